"""Lattice constants and stiffness of crystals, from the energies that CHGNet gives them stretched and squeezed.

    python examples/crystals.py [--steps 9]          # needs: pip install chgnet

A neural network of atoms, trained on a million crystals, with its weights in its package (Deng et al. 2023). The
energy of each crystal is fitted with a parabola; its minimum is the lattice constant, its curvature the bulk modulus.
Energies, and the forces and stresses that are their derivatives, are compared with the CPU's.
"""

import argparse
import sys

import numpy
from _report import Row, console, print_table, run_on
from rich.table import Table

EV_PER_CUBIC_ANGSTROM = 160.21766  # in GPa
# Space group, elements, where they are in the cell, and as measured at room temperature, rounded: the lattice constant
# in Å and the bulk modulus in GPa.
CRYSTALS = {
    "silicon": ("Fd-3m", ["Si"], [[0, 0, 0]], 5.431, 98),
    "salt": ("Fm-3m", ["Na", "Cl"], [[0, 0, 0], [0.5, 0.5, 0.5]], 5.640, 24),
    "magnesia": ("Fm-3m", ["Mg", "O"], [[0, 0, 0], [0.5, 0.5, 0.5]], 4.212, 160),
    "copper": ("Fm-3m", ["Cu"], [[0, 0, 0]], 3.615, 137),
}


def stretched(steps: int) -> list:
    """Each crystal at lattice constants around the measured one."""
    try:
        from pymatgen.core import Lattice, Structure
    except ImportError as error:
        raise SystemExit(f"{error}: pip install chgnet") from error

    return [
        Structure.from_spacegroup(group, Lattice.cubic(measured * scale), elements, places)
        for group, elements, places, measured, _ in CRYSTALS.values()
        for scale in numpy.linspace(0.97, 1.03, steps)
    ]


def predict(device: str, crystals: list) -> list[dict]:
    """Energy, forces, stress and magnetic moments of each crystal."""
    from chgnet.model import CHGNet

    model = CHGNet.load(use_device=device, check_cuda_mem=False, verbose=False)
    return model.predict_structure(crystals, batch_size=len(crystals))


def fit(crystals: list, energies: numpy.ndarray) -> tuple[float, float]:
    """Lattice constant in Å and bulk modulus in GPa of one crystal."""
    lengths = numpy.array([crystal.lattice.a for crystal in crystals])
    parabola = numpy.polynomial.Polynomial.fit(lengths**3, energies * len(crystals[0]), 2)
    volume = parabola.deriv().roots()[0]
    return volume ** (1 / 3), volume * parabola.deriv(2)(volume) * EV_PER_CUBIC_ANGSTROM


def main(steps: int = 9) -> Row:
    """Predict on both devices and compare."""
    console.rule("crystals: CHGNet")
    crystals = stretched(steps)
    cpu = run_on("cpu", lambda device: predict(device, crystals))
    tpu = run_on("tpu", lambda device: predict(device, crystals))
    table = Table("crystal", "lattice constant", "CPU's", "measured", "bulk modulus", "CPU's", "measured")
    errors, same = [], True
    for index, (name, (*_, length, modulus)) in enumerate(CRYSTALS.items()):
        part = slice(index * steps, (index + 1) * steps)
        got, expected = (
            fit(crystals[part], numpy.array([float(p["e"]) for p in run.result[part]])) for run in (tpu, cpu)
        )
        table.add_row(
            name,
            *(f"{value:.3f} Å" for value in (got[0], expected[0], length)),
            *(f"{value:.0f} GPa" for value in (got[1], expected[1], modulus)),
        )
        errors.append(abs(got[0] / length - 1))
        same &= abs(got[0] - expected[0]) < 1e-3 and abs(got[1] / expected[1] - 1) < 0.01
    console.print(table)
    difference = max(
        float(numpy.abs(a[key] - b[key]).max()) for a, b in zip(tpu.result, cpu.result, strict=True) for key in a
    )
    return Row(
        "crystals",
        f"lattice constants within {max(errors):.1%} of measured",
        f"energies, forces, stresses within {difference:.1e}",
        cpu.seconds,
        tpu,
        same and max(errors) < 0.03 and difference < 1e-2,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9, help="sizes tried of each crystal (default: 9)")
    sys.exit(0 if print_table([main(parser.parse_args().steps)]) else 1)
