"""Makes the tables of docs/interop.md and docs/side_by_side.md: operator cases on every executor, side by side.

    python tests/ops/suite.py --dtype float32 --aspect values --samples 1 --json fast.jsonl
    TTPU_SOFT=reference python tests/ops/suite.py ... --json reference.jsonl
    TTPU_PLUGIN=.../pjrt_c_api_cpu_plugin.so python tests/ops/suite.py ... --json xla.jsonl
    python scripts/side_by_side.py fast=fast.jsonl reference=reference.jsonl xla=xla.jsonl

writes the counts into docs/side_by_side.json, from which the pages are made; columns that are not given stay as they
are there. ``--compiles FILE`` takes the TPU compiler's verdicts, which ``tests/aot/verdicts.py count`` writes: by chip
and operator, the fragments that have a verdict, and those of them that compile.
"""

import argparse
import collections
import json
import pathlib

DOCS = pathlib.Path(__file__).parent.parent / "docs"
COUNTS = DOCS / "side_by_side.json"
EXECUTORS = {  # the columns of what runs programs
    "reference": "software TPU, reference",
    "fast": "software TPU, fast path",
    "xla": "XLA CPU",
}
BEGIN, END = "<!-- side by side: begin -->", "<!-- side by side: end -->"


DIFFERENT = ("AssertionError", "Different")  # what a comparison of results raises


def read_verdicts(path: str) -> dict[tuple, dict]:
    """The last verdict of each case in a file of suite.py --json."""
    with open(path, encoding="utf-8") as file:
        return {(v["operator"], v["dtype"], v["aspect"]): v for v in map(json.loads, file)}


def has_run(verdict: dict) -> bool:
    """Was there a result at all, be it equal or not?"""
    return verdict["outcome"] == "ok" or any(f": {e}:" in verdict["detail"] for e in DIFFERENT)


def count(path: str) -> dict[str, dict[str, int]]:
    """By operator: cases that the CPU takes, those that run, and those that are equal."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for verdict in read_verdicts(path).values():
        if verdict["outcome"] == "none":
            continue
        of = counts[verdict["operator"]]
        of["cases"] += 1
        of["runs"] += has_run(verdict)
        of["equal"] += verdict["outcome"] == "ok"
    return {name: {k: of[k] for k in ("cases", "runs", "equal")} for name, of in sorted(counts.items())}


def columns_of(data: dict) -> list[tuple[str, dict, tuple[str, ...]]]:
    """(title, counts by operator, what is counted), in the tables' order."""
    columns = [(title, data[name], ("runs", "equal")) for name, title in EXECUTORS.items() if name in data]
    return columns + [(f"TPU compiler {t}", c, ("compiles",)) for t, c in sorted(data.get("compiles", {}).items())]


def summary(data: dict) -> list[str]:
    """The totals, a line a column."""
    lines = ["| | operators | cases | run | equal | compile |", "|---|---|---|---|---|---|"]
    for title, counts, what in columns_of(data):
        total = {k: sum(c.get(k, 0) for c in counts.values()) for k in ("cases", "runs", "equal", "compiles")}
        cells = [f"{total[k]:,}" if k in what else "" for k in ("runs", "equal", "compiles")]
        lines.append(f"| {title} | {len(counts):,} | {total['cases']:,} | {' | '.join(cells)} |")
    return lines


def cell(counts: dict | None, what: tuple[str, ...]) -> str:
    """Of one operator: "3" where all is well, else "runs/equal of cases"."""
    if counts is None:
        return ""
    if all(counts[k] == counts["cases"] for k in what):
        return str(counts["cases"])
    return f"**{'/'.join(str(counts[k]) for k in what)}** of {counts['cases']}"


def page(data: dict) -> list[str]:
    """All operators."""
    columns = columns_of(data)
    names = sorted({name for _, counts, _ in columns for name in counts})
    lines = [
        "# Operators side by side",
        "",
        "Made by `scripts/side_by_side.py`; docs/interop.md says how. A number is the cases that run and agree with",
        "PyTorch's CPU (for the TPU compiler: that compile); **run/equal** of cases where it is not all of them.",
        "",
        f"| operator | {' | '.join(title for title, _, _ in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for name in names:
        lines.append(f"| {name} | {' | '.join(cell(counts.get(name), what) for _, counts, what in columns)} |")
    return lines


def as_lines(data: dict) -> str:
    """JSON with a line for each operator, so that a change of one is a change of one line."""
    columns = []
    for name, counts in sorted(data.items()):
        rows = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in sorted(counts.items())]
        columns.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(columns) + "\n}\n"


def put_between_marks(path: pathlib.Path, lines: list[str]) -> None:
    """Replace what stands between the two marks of a page."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verdicts", nargs="*", help=f"executor=file.jsonl; executors: {', '.join(EXECUTORS)}")
    parser.add_argument("--compiles", help="the TPU compiler's verdicts")
    options = parser.parse_args()
    data = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    for given in options.verdicts:
        name, path = given.split("=", 1)
        if name not in EXECUTORS:
            parser.error(f"no executor {name!r}")
        data[name] = count(path)
    if options.compiles:
        data["compiles"] = json.loads(pathlib.Path(options.compiles).read_text(encoding="utf-8"))
    COUNTS.write_text(as_lines(data), encoding="utf-8")
    (DOCS / "side_by_side.md").write_text("\n".join(page(data)) + "\n", encoding="utf-8")
    put_between_marks(DOCS / "interop.md", summary(data))


if __name__ == "__main__":
    main()
