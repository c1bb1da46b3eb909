"""Does the TPU compiler take what our lowerings give? Verdicts of all fragments, and the files that keep them.

A *fragment* is the StableHLO of one call of one row (of src/aten): what it becomes when operators run one at a time,
composites decomposed, without who owns its operands. The calls are those of PyTorch's databases, forward and backward.
``verdicts.txt`` beside this file keeps what was compiled: a line a fragment with the row, the hash of its text, and the
chips whose compiler took it. What was refused stands in torch_tpu/aot/refused.json, and so in docs/operators.md.

    python tests/aot/verdicts.py collect out/fragments add mul --dtype float32     (all operators where none is named)
    python tests/aot/verdicts.py compile out/fragments --minutes 30
    python tests/aot/verdicts.py forget out/fragments      (what no call gives any more; collect all operators before)
    python tests/aot/verdicts.py count out/fragments counts.json       (for scripts/side_by_side.py)
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Sequence

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
TOPOLOGIES = {"v5e": "v5e:1x1", "v6e": "v6e:1x1", "tpu7x": "tpu7x:1x1x1"}
DTYPES = ("float32", "bfloat16", "int32")


@dataclasses.dataclass(frozen=True, order=True)
class Fragment:
    """A row's lowering of one call: its text and the hash of that."""

    row: str
    hash: str
    text: str = dataclasses.field(repr=False, compare=False)


def read_fragments(folder: pathlib.Path) -> list[Fragment]:
    """The fragments that a process has left in TTPU_PROGRAM_DIR, or below it by case, each text once."""
    found = {}
    for path in sorted(folder.rglob("*.mlir")):
        text = path.read_text()
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        found.setdefault(key, Fragment(path.name.rpartition("-")[0], key, text))
    return sorted(found.values())


# ---- collecting ----


def collect(
    folder: pathlib.Path, operators: Sequence[str] = (), dtypes: Sequence[str] = DTYPES, samples: int = 1
) -> None:
    """Run calls of the operators in a process of their own. The fragments of each go to <folder>/<operator>/<dtype>."""
    environment = {
        **os.environ,
        "TTPU_MODE": "eager",
        "TTPU_CACHE": "off",
        "PYTHONPATH": os.pathsep.join([str(TREE), str(TREE / "tests" / "ops")]),
    }
    command = [sys.executable, __file__, "run", str(folder), ",".join(dtypes), str(samples), *operators]
    subprocess.run(command, env=environment, check=True)


def run_calls(folder: pathlib.Path, operators: Sequence[str], dtypes: Sequence[str], samples: int) -> None:
    """Call operators on tpu with the databases' samples, forward and backward; what they raise is for other tests."""
    import aspects
    import compare
    import suite

    import torch
    import torch_tpu

    for name, op in suite.OPERATORS.items():
        if operators and not {name, op.name} & set(operators):
            continue
        for dtype in (compare.DTYPES[d] for d in dtypes if d in suite.dtypes_of(op)):
            compare.seed()
            case = folder / name / str(dtype).removeprefix("torch.")
            case.mkdir(parents=True, exist_ok=True)
            torch.tpu.synchronize()
            torch_tpu._C.clear_caches()  # what another operator has compiled is a fragment of this one too
            os.environ["TTPU_PROGRAM_DIR"] = str(case)
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for sample in itertools.islice(aspects.samples_with_gradient(op, dtype), samples):
                    moved = compare.move_sample(op, sample)
                    result = compare.scalar(op(moved.input, *moved.args, **moved.kwargs))
                    if result is not None:
                        torch.autograd.grad(result, compare.leaves(moved), allow_unused=True)
            with contextlib.suppress(Exception):
                torch.tpu.synchronize()


# ---- verdicts ----


@dataclasses.dataclass(frozen=True)
class Refusal:
    """What the TPU compiler said of a fragment."""

    row: str
    hash: str
    chips: tuple[str, ...]
    code: int
    message: str


ACCEPTED = HERE / "verdicts.txt"
REFUSED = TREE / "torch_tpu" / "aot" / "refused.json"


class Verdicts:
    """What is known of fragments, by hash and chip, of one version of libtpu; None: whichever the files are of."""

    def __init__(self, version: str | None = None) -> None:
        self.rows: dict[str, str] = {}
        self.accepted: dict[str, set[str]] = collections.defaultdict(set)
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}
        head, *lines = ACCEPTED.read_text().splitlines() if ACCEPTED.exists() else [""]
        self.version = version or head.removeprefix("# libtpu ")
        if head.removeprefix("# libtpu ") == self.version:
            for row, key, *chips in (line.split() for line in lines):
                self.rows[key] = row
                self.accepted[key] = set(chips)
            for entry in json.loads(REFUSED.read_text())["refused"]:
                self.rows[entry["hash"]] = entry["row"]
                for chip in entry["chips"]:
                    self.refused[entry["hash"], chip] = entry["code"], entry["message"]

    def knows(self, fragment: Fragment, chip: str) -> bool:
        return chip in self.accepted.get(fragment.hash, ()) or (fragment.hash, chip) in self.refused

    def add(self, fragment: Fragment, chip: str, code: int, message: str) -> None:
        self.rows[fragment.hash] = fragment.row
        self.accepted[fragment.hash].discard(chip)
        self.refused.pop((fragment.hash, chip), None)
        if code == 0:
            self.accepted[fragment.hash].add(chip)
        else:
            self.refused[fragment.hash, chip] = code, message

    def keep_only(self, fragments: Iterable[Fragment]) -> int:
        """Forget fragments that no call gives any more; how many they were."""
        gone = self.rows.keys() - {fragment.hash for fragment in fragments}
        for key in gone:
            del self.rows[key]
            self.accepted.pop(key, None)
        self.refused = {k: v for k, v in self.refused.items() if k[0] not in gone}
        return len(gone)

    def refusals(self) -> list[Refusal]:
        grouped = collections.defaultdict(list)
        for (key, chip), (code, message) in self.refused.items():
            grouped[self.rows[key], key, code, message].append(chip)
        return [
            Refusal(row, key, tuple(chips), code, message)
            for (row, key, code, message), chips in sorted(grouped.items())
        ]

    def save(self) -> None:
        order = list(TOPOLOGIES)
        lines = [
            " ".join([self.rows[key], key, *sorted(chips, key=order.index)])
            for key, chips in self.accepted.items()
            if chips
        ]
        ACCEPTED.write_text("\n".join([f"# libtpu {self.version}", *sorted(lines)]) + "\n")
        refused = [dataclasses.asdict(refusal) for refusal in self.refusals()]
        compiled = {chip: sum(chip in chips for chips in self.accepted.values()) for chip in TOPOLOGIES}
        page = {"libtpu": self.version, "compiled": compiled, "refused": refused}
        REFUSED.write_text(json.dumps(page, indent=1) + "\n")


def first_line(message: str) -> str:
    """What a refusal says, without places in the text and addresses."""
    lines = [line for line in message.splitlines() if line.strip()]
    text = re.sub(r"^(-|<unknown>):\d+(:\d+)?: (error: )?", "", lines[0] if lines else "")
    return text[:300]


def compile_fragment(compiler, fragment: Fragment, chip: str) -> tuple[int, str]:
    """The TPU compiler's verdict: its code, and what it said."""
    from torch_tpu.aot import CompileError

    try:
        compiler.compile(fragment.text, TOPOLOGIES[chip])
    except CompileError as error:
        return error.code, first_line(str(error).partition(": ")[2])
    return 0, ""


def effort(fragment: Fragment) -> int:
    """What compiling costs, roughly: TPUs have no double precision, and one operation of it becomes many."""
    return len(fragment.text) + 200 * fragment.text.count("xf64>")


def compile_all(folder: pathlib.Path, chips: Sequence[str], minutes: float, again: bool) -> int:
    """Compile what has no verdict yet; every process that asks may be stopped and go on later."""
    from torch_tpu.aot import Compiler, compiler

    verdicts, fragments = Verdicts(compiler.library_version()), read_fragments(folder)
    fragments.sort(key=effort)  # most take 30 ms, the longest minutes
    work = [(f, chip) for f in fragments for chip in chips if again or not verdicts.knows(f, chip)]
    print(f"{len(fragments)} fragments, {len(work)} to compile with libtpu {verdicts.version}", flush=True)
    began, made = time.monotonic(), Compiler(timeout=600)
    for done, (fragment, chip) in enumerate(work):
        if time.monotonic() - began > 60 * minutes:
            print(f"out of time after {done}", flush=True)
            break
        code, message = compile_fragment(made, fragment, chip)
        verdicts.add(fragment, chip, code, message)
        if code:
            print(f"{chip} {fragment.row} {fragment.hash}: {code} {message}", flush=True)
        if done % 20 == 19:
            verdicts.save()
    verdicts.save()
    made.close()
    for chip in TOPOLOGIES:
        taken = sum(chip in verdicts.accepted.get(f.hash, ()) for f in fragments)
        refused = sum((f.hash, chip) in verdicts.refused for f in fragments)
        print(f"{chip}: {taken} compiled, {refused} refused, {len(fragments) - taken - refused} without a verdict")
    return 0


def forget(folder: pathlib.Path) -> None:
    """Drop the verdicts on fragments that are not in the folder, which holds those of all operators."""
    sys.path.insert(0, str(TREE / "tests" / "ops"))
    import suite

    wanted = [name for name, op in suite.OPERATORS.items() if {*DTYPES} & {*suite.dtypes_of(op)}]
    if missing := [name for name in wanted if not (folder / name).is_dir()]:
        raise SystemExit(f"{folder} lacks {len(missing)} operators, {missing[0]} the first: collect all of them before")
    verdicts = Verdicts()
    print(f"{verdicts.keep_only(read_fragments(folder))} forgotten, {len(verdicts.rows)} kept")
    verdicts.save()


def count(folder: pathlib.Path, verdicts: Verdicts) -> dict[str, dict[str, dict[str, int]]]:
    """By chip and operator: the cases of which every fragment has a verdict, and those of which every one compiles."""
    counts: dict[str, dict[str, dict[str, int]]] = {chip: {} for chip in TOPOLOGIES}
    for case in sorted(folder.glob("*/*")):
        fragments = read_fragments(case)
        for chip in TOPOLOGIES if fragments else ():
            if all(verdicts.knows(f, chip) for f in fragments):
                of = counts[chip].setdefault(case.parent.name, {"cases": 0, "compiles": 0})
                of["cases"] += 1
                of["compiles"] += not any((f.hash, chip) in verdicts.refused for f in fragments)
    return counts


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=pathlib.Path)
    collecting.add_argument("operators", nargs="*")
    collecting.add_argument("--dtype", action="append")
    collecting.add_argument("--samples", type=int, default=1)
    compiling = commands.add_parser("compile")
    compiling.add_argument("folder", type=pathlib.Path)
    compiling.add_argument("--chip", action="append", choices=list(TOPOLOGIES))
    compiling.add_argument("--minutes", type=float, default=1e9)
    compiling.add_argument("--again", action="store_true", help="what has a verdict, too")
    forgetting = commands.add_parser("forget")
    forgetting.add_argument("folder", type=pathlib.Path)
    counting = commands.add_parser("count")
    counting.add_argument("folder", type=pathlib.Path)
    counting.add_argument("file", type=pathlib.Path)
    running = commands.add_parser("run")  # of collect's process
    running.add_argument("folder", type=pathlib.Path)
    running.add_argument("dtypes")
    running.add_argument("samples", type=int)
    running.add_argument("operators", nargs="*")
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.folder, options.operators, options.dtype or DTYPES, options.samples)
    elif options.command == "forget":
        forget(options.folder)
    elif options.command == "count":
        options.file.write_text(json.dumps(count(options.folder, Verdicts())))
    elif options.command == "run":
        run_calls(options.folder, options.operators, options.dtypes.split(","), options.samples)
    else:
        return compile_all(options.folder, options.chip or list(TOPOLOGIES), options.minutes, options.again)
    return 0


if __name__ == "__main__":
    sys.exit(main())
