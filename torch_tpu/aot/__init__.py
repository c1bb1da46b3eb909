"""``torch.tpu.aot``: compiling for TPUs ahead of time, without a TPU.

Google's TPU compiler, libtpu, compiles for a chip by its name alone: whether a model fits, what it costs and which
collectives a sharding takes is known before any TPU is rented. libtpu is proprietary, and so no part of this package:
``pip install 'ttpu[libtpu]'`` fetches it.

>>> report = torch.tpu.aot.compile(model, (tokens,), topology="v6e:1x1")
>>> print(report)
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch_tpu.aot.compiler import CompileError, Compiler, library_path, shared_compiler
from torch_tpu.aot.program import Program, capture, without_data
from torch_tpu.aot.report import Collective, Memory, Report, Roofline, make_report
from torch_tpu.aot.sharding import Sharding, data_parallel, tensor_parallel

__all__ = [
    "Collective",
    "CompileError",
    "Compiler",
    "Memory",
    "Program",
    "Report",
    "Roofline",
    "Sharding",
    "capture",
    "compile",
    "data_parallel",
    "library_path",
    "tensor_parallel",
    "without_data",
]


def _count_in(program: str | bytes, name: str) -> int:
    """How many partitions or replicas a StableHLO text says that it is for; 1 where it does not."""
    text = program if isinstance(program, str) else program.decode("latin-1")
    found = re.search(rf"mhlo\.num_{name} = (\d+)", text)
    return int(found[1]) if found else 1


def _check_mesh(mesh: Mapping[str, int] | None, shardings: Mapping[str, Sharding] | None) -> None:
    if shardings and not mesh:
        raise ValueError("shardings need a mesh, such as mesh={'data': 4}")
    for axis, size in (mesh or {}).items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"the mesh's axis {axis!r} has length {size!r}; expected a positive integer")


def compile(
    target: Any,
    args: Sequence = (),
    kwargs: Mapping | None = None,
    *,
    topology: str,
    state: Any = (),
    mesh: Mapping[str, int] | None = None,
    shardings: Mapping[str, Sharding] | None = None,
    partitions: int | None = None,
    compiler: Compiler | None = None,
) -> Report:
    """Compile a program for a TPU that need not be there, and report what it takes.

    Parameters
    ----------
    target
        A module, an exported program or a function, captured as ``capture`` says; a captured ``Program``; or StableHLO:
        text, or the bytes of a portable artifact.
    args, kwargs, state
        As for ``capture``.
    topology
        Chips, by libtpu's names: ``"v5e:1x1"``, ``"v6e:2x2"``, ``"tpu7x:2x2x1"`` (two devices a chip).
    mesh
        The axes over which the program is cut and their lengths, ``{"data": 2, "model": 2}``.
    shardings
        How arguments are cut, by patterns of their names (``torch_tpu.aot.sharding``).
    partitions
        For StableHLO that has its own shardings: over how many devices. None takes its ``mhlo.num_partitions``.
    compiler
        The processes that compile; None means one that is shared.

    Returns
    -------
    Report

    Raises
    ------
    CompileError
        If the TPU compiler refuses the program; with code 8 it does not fit the chip's memory.
    ImportError
        If libtpu is not installed.
    ValueError
        If a mesh or sharding does not fit.
    """
    compiler = shared_compiler() if compiler is None else compiler
    _check_mesh(mesh, shardings)
    program = None
    if not isinstance(target, str | bytes):
        program = target if isinstance(target, Program) else capture(target, args, kwargs, state=state)
    elif mesh:
        raise ValueError("a StableHLO program has its own shardings: mesh and shardings are for what is captured")
    code = target if program is None else program.text(mesh, shardings)
    partitions = _count_in(code, "partitions") if partitions is None else partitions
    replicas = _count_in(code, "replicas")
    devices = int(compiler.topology(topology)["devices"])
    if partitions * replicas > devices:
        raise ValueError(f"the program is for {partitions * replicas} devices; {topology} has {devices}")
    began = time.perf_counter()
    answer = compiler.compile(
        code,
        topology,
        partitions=partitions,
        replicas=replicas,
        shardy=b"sdy." in (code.encode() if isinstance(code, str) else code),
        want=("executable",),
    )
    return make_report(
        answer,
        topology=topology,
        partitions=partitions,
        replicas=replicas,
        arguments=tuple(value.name for value in program.arguments) if program else (),
        results=tuple(value.name for value in program.results) if program else (),
        aliases=dict(program.aliases) if program else {},
        seconds_to_compile=time.perf_counter() - began,
        program=code,
    )
