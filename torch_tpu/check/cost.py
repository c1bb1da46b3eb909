"""How long a step would take on a chip: bounds from operations and bytes, and what Google's TPU compiler says.

The bound of a program is the longer of its operations at the chip's bfloat16 peak and its bytes at the memory's
bandwidth (a roofline; S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009). Operations and bytes are those of the
programs that ran, after the software TPU's fusion; the chips' figures are those of ``src/soft/generations.def``, from
docs.cloud.google.com/tpu/docs. A float32 product takes six bfloat16 passes at precision "highest", three at "high".
"""

import contextlib
import functools
import pathlib
import statistics
import time
from collections.abc import Iterable
from typing import Any

from torch.utils import flop_counter

import torch
from torch_tpu import _C

_DEADLINE_EXCEEDED = 4  # PJRT's code: the compiler was ended, which says nothing of the program
_PASSES = {"highest": 6, "high": 3, "medium": 1}


@functools.cache
def chips() -> dict[str, dict]:
    """What each generation has, by its names."""
    return {name: chip for chip in _C.chips() for name in (chip["name"], *chip["aliases"].split())}


def topology_of(chip: dict, for_compiler: bool = False) -> str:
    """The smallest topology of a generation, of which one device is used."""
    if chip["dimensions"] == 2:
        return f"{chip['name']}:1x1"
    return f"{chip['name']}:{'2x2x1' if for_compiler else '1x1x1'}"


def passes_of(dtype: torch.dtype) -> int:
    """How many passes of the matrix unit a product of this dtype takes."""
    return _PASSES[torch.get_float32_matmul_precision()] if dtype in (torch.float32, torch.complex64) else 1


@functools.cache
def _is_view(func: torch._ops.OpOverload) -> bool:
    """Does it only look at its argument in another way?"""
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


@functools.cache
def _formula(func: torch._ops.OpOverload) -> Any:
    packet = func._overloadpacket
    if "_fused_attention_overrideable" in func.name():  # PyTorch has formulas for other devices' attention
        packet = torch.ops.aten._scaled_dot_product_efficient_attention
        if func.name().endswith("_backward"):
            packet = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    return flop_counter.flop_registry.get(packet)


class OperatorCosts:
    """Operations and bytes of operators, each on its own: what they would take were nothing fused.

    Attributes
    ----------
    rows : dict
        By operator: calls, operations, operations times passes of the matrix unit, bytes of arguments and results.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = {}

    def note(self, name: str, func, args: tuple, kwargs: dict, tensors: list, result: Any, results: list) -> None:
        """Count a call of these arguments and this result, which hold these tensors."""
        row = self.rows.setdefault(name, [0, 0.0, 0.0, 0.0])
        row[0] += 1
        if _is_view(func):
            return
        row[3] += sum(tensor.numel() * tensor.element_size() for tensor in (*tensors, *results))
        formula = _formula(func)
        if formula is None or not tensors:
            return
        try:
            flops = formula(*args, **kwargs, out_val=result)
        except Exception:  # PyTorch's formulas do not know every form of their operators
            return
        row[1] += flops
        row[2] += flops * passes_of(tensors[0].dtype)

    @property
    def passes(self) -> float:
        """Passes of the matrix unit a product takes, on average over operations."""
        flops = sum(row[1] for row in self.rows.values())
        return sum(row[2] for row in self.rows.values()) / flops if flops else 1.0

    def by_operator(self, chip: dict, steps: int) -> list[dict]:
        """The bound of each operator's time in a step, the longest first."""
        listed = []
        for name, (calls, _, passes, moved) in self.rows.items():
            seconds = max(passes / chip["flops_per_second"], moved / chip["bytes_per_second"]) / max(steps, 1)
            listed.append({"operator": name, "calls": calls, "seconds": seconds})
        return sorted(listed, key=lambda row: -row["seconds"])


def steady(steps: list) -> list:
    """The steps behind the first two, in which programs are made; all where there are no more."""
    return steps[2:] if len(steps) > 2 else steps[-1:]


def roofline(steps: list, programs: dict[int, dict], passes: float, chip: dict) -> dict | None:
    """Bounds of a steady step's time, the median over these steps; None without steps."""
    if not steps:
        return None
    rows = []
    for step in steady(steps):
        compute = memory = bound = flops = moved = 0.0
        for key, runs in step.runs.items():
            program = programs[key]
            seconds = _seconds(program, passes, chip)
            compute, memory, bound = (
                compute + runs * seconds[0],
                memory + runs * seconds[1],
                bound + runs * max(seconds),
            )
            flops, moved = flops + runs * program["flops"], moved + runs * program["bytes_accessed"]
        rows.append((bound, compute, memory, flops, moved, sum(step.runs.values())))
    names = ("seconds", "compute", "memory", "flops", "bytes", "programs")
    return {name: statistics.median(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)} | {
        "passes": passes
    }


def _seconds(program: dict, passes: float, chip: dict) -> tuple[float, float]:
    flops, moved = max(program["flops"], 0.0), max(program["bytes_accessed"], 0.0)
    return flops * passes / chip["flops_per_second"], moved / chip["bytes_per_second"]


def compiler_estimate(
    step: Any, programs: dict[int, dict], passes: float, chip: dict, folder: pathlib.Path, budget: float
) -> dict:
    """What the TPU compiler says of a step's programs, the longest first until the time for it is over.

    Programs that it was not asked about count with their bounds.
    """
    from torch_tpu import aot

    order = sorted(step.runs, key=lambda key: -step.runs[key] * max(_seconds(programs[key], passes, chip)))
    deadline = time.monotonic() + budget
    asked, seconds, known, covered, refused = 0, 0.0, 0.0, 0.0, []
    with contextlib.closing(aot.Compiler(timeout=max(budget, 1.0))) as compiler:
        for key in order:
            bound = step.runs[key] * max(_seconds(programs[key], passes, chip))
            known += bound
            text = _text(folder, programs[key])
            if text is None or time.monotonic() > deadline:
                seconds += bound
                continue
            try:
                report = aot.compile(text, topology=topology_of(chip, for_compiler=True), compiler=compiler)
            except aot.CompileError as error:
                if error.code != _DEADLINE_EXCEEDED:
                    refused.append({"program": programs[key]["file"], "code": error.code, "message": str(error)[:500]})
                seconds += bound
                continue
            asked += 1
            covered += bound
            line = report.roofline.seconds if report.roofline else bound
            seconds += step.runs[key] * (report.compiler_seconds or line)
    return {
        "seconds": seconds,
        "asked": asked,
        "programs": len(order),
        "covered": covered / known if known else 0.0,
        "refused": refused,
    }


def _text(folder: pathlib.Path, program: dict) -> str | None:
    path = folder / program["file"] if program["file"] else None
    return path.read_text() if path is not None and path.is_file() else None


def largest_temporaries(programs: Iterable[dict]) -> int:
    """Bytes that the program with the most of them needs beside its arguments and results."""
    return max((program["temporaries"] for program in programs), default=0)
