"""Running StableHLO's own test files: ``ttpu check-stablehlo``.

A file is one case, or several between lines ``// -----``. What a case asks for follows from its text. A case with
``expected-error`` comments must be refused. Any other must be read, verified, printed and read again, and, where
nothing is left open, run; its ``check.*`` operations compare values. Of a list of functions without checks each is a
case. All of that happens in C (``src/check``); here are files, cases and the report.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

SEPARATOR = re.compile(r"^[ \t]*// -----.*$", re.MULTILINE)
FUNCTION = re.compile(r"func(?:\.func)?\s+(?:public\s+|private\s+|nested\s+)?@(\w+|\"[^\"]*\")")
COMMENT = re.compile(r"//.*")
# An error that is expected; those of writing a valid program for an older version of VHLO are none of reading it.
ERROR = re.compile(r"expected-error(?![^\n]*failed to (?:legalize operation 'vhlo|convert VHLO))")
# How many failures of one kind the report shows.
SHOWN = 3


@dataclass
class Case:
    """One test and what came of it."""

    name: str
    """The file, and the number of the part where there are several."""
    kind: str
    """``run``: ran and was compared; ``read``: read alone; ``refuse``: had to be refused."""
    stage: str
    """``passed``, or the stage that failed: read, compile, run, values, accepted."""
    checks: int
    """Comparisons made."""
    message: str

    @property
    def passed(self) -> bool:
        return self.stage == "passed"


@dataclass
class Report:
    """The cases of some files."""

    cases: list[Case] = field(default_factory=list)

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases if not case.passed]

    def json(self) -> str:
        passed = len(self.cases) - len(self.failed)
        cases = [asdict(case) for case in self.cases]
        return json.dumps({"passed": passed, "failed": len(self.failed), "cases": cases}, indent=1)

    def text(self) -> str:
        lines = []
        for reason, cases in self.reasons():
            lines.append(f"{len(cases)} x {reason}")
            lines += [f"    {case.name}: {case.message}" for case in cases[:SHOWN]]
        kinds = Counter(case.kind for case in self.cases if case.passed)
        lines.append(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing")
        lines.append(f"{len(self.cases) - len(self.failed)} passed, {len(self.failed)} failed")
        return "\n".join(lines)

    def reasons(self) -> list[tuple[str, list[Case]]]:
        """The failures by what went wrong, the most frequent reason first."""
        groups: dict[str, list[Case]] = {}
        for case in self.failed:
            groups.setdefault(f"{case.stage}: {reason(case.message)}", []).append(case)
        return sorted(groups.items(), key=lambda item: -len(item[1]))


def reason(message: str) -> str:
    """A message without what differs from case to case: positions, numbers, names."""
    message = re.sub(r"line \d+(, column \d+)?", "line", message)
    message = re.sub(r"-?\d[\w.+-]*", "N", message)
    return message[:110]


def files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.exists():
            raise SystemExit(f"ttpu check-stablehlo: {path} does not exist")
        yield from sorted(path.rglob("*.mlir")) if path.is_dir() else [path]


def parts(text: str) -> list[str]:
    """The cases of a file; parts without any operation are none."""
    return [part for part in SEPARATOR.split(text) if re.search(r"^[ \t]*[^/\s]", part, re.MULTILINE)]


def functions(part: str) -> Iterator[tuple[str, str]]:
    """Each function's name and its text, the comments in front of it included."""
    found = list(FUNCTION.finditer(part))
    for this, following in zip(found, [*found[1:], None][: len(found)], strict=True):
        begin = max(part.rfind("}", 0, this.start()), 0)
        end = part.rfind("}", 0, following.start()) if following else len(part)
        yield this[1].strip('"'), part[begin:end]


def refuse(name: str, part: str) -> Case:
    """A case of which every function with an ``expected-error`` must be refused; the message is ours."""
    from torch_tpu import _C

    message = ""
    for function, text in functions(part):
        if not ERROR.search(text):
            continue
        outcome = _C.read_stablehlo(part, function, 4)
        if outcome["stage"] == "passed":
            expected = re.search(r"expected-error[^{]*\{\{(.*?)\}\}", text)
            return Case(name, "refuse", "accepted", 0, f"@{function}: {expected[1] if expected else ''}")
        message = outcome["message"]
    return Case(name, "refuse", "passed", 0, message)


def check(name: str, part: str) -> Iterator[Case]:
    """The case, or where it is a list of functions to be read, each of them."""
    from torch_tpu import _C

    if ERROR.search(part):
        yield refuse(name, part)
        return
    names = [function for function, _ in functions(COMMENT.sub("", part))]
    if "check." not in part and "main" not in names and len(names) > 1:
        for function in names:
            outcome = _C.read_stablehlo(part, function, 0)
            yield Case(f"{name}@{function}", "read", outcome["stage"], 0, outcome["message"])
        return
    outcome = _C.check_stablehlo(part)
    yield Case(name, "run" if outcome["ran"] else "read", outcome["stage"], outcome["checks"], outcome["message"])


def run(paths: Iterable[str], verbose: bool = False) -> Report:
    """Run the cases of files and folders."""
    report = Report()
    for path in files(paths):
        cases = parts(path.read_text())
        for number, part in enumerate(cases, 1):
            for case in check(str(path) if len(cases) == 1 else f"{path}#{number}", part):
                report.cases.append(case)
                if verbose:
                    print(f"{case.stage:8} {case.name} {case.message}", file=sys.stderr)
    return report
