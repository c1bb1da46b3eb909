"""What the report means: findings with their severity, and the verdict."""

import dataclasses
from typing import Any

ERROR, WARNING, NOTE = "error", "warning", "note"
READY, WARNINGS, BROKEN = "ready", "runs with warnings", "will not run"
_ALMOST_FULL = 0.9  # of a chip's memory


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing to know.

    Attributes
    ----------
    severity : str
        "error": it will not run, or not rightly; "warning": it will be slow or fragile; "note".
    topic : str
        What it is about: "operator", "host read", "memory" ...
    place : dict or None
        The file, line and function.
    message, advice : str
        What was seen, and what to do.
    """

    severity: str
    topic: str
    message: str
    advice: str = ""
    place: dict | None = None

    def to_dict(self) -> dict:
        """As JSON takes it."""
        return dataclasses.asdict(self)


def bytes_text(count: float) -> str:
    """A byte count for people: "1.50 GiB"."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{int(count)} B"


def seconds_text(count: float) -> str:
    """A time for people."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e-9:.3g} ns"


def _place(rows: list[dict]) -> dict | None:
    return rows[0]["place"] if rows else None


def _within(row: dict) -> str:
    """The line of a library that the program's own leads to."""
    within = row["within"]
    return f" [in {within['file']}:{within['line']}]" if within != row["place"] and within["line"] else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _first_sentence(text: str) -> str:
    """The beginning of an error's message: PyTorch's go on for a page."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= 300 else line[:300].rpartition(". ")[0] or line[:300] + " …"


def _ending(report: dict) -> list[Finding]:
    ended = report["ended"]
    if ended["how"] == "error" and ended["out_of_memory"] and report["memory"]["exceeded"]:
        return [
            Finding(NOTE, "memory", f"the program ended here: {_first_sentence(ended['message'])}", "", ended["place"])
        ]
    if ended["how"] == "error":
        advice = ""
        last = ended.get("last")
        if last and last["place"] and last["place"]["line"]:
            place = last["place"]
            advice = f"The last operator on tpu was {last['operator']}, from {place['file']}:{place['line']}."
        message = f"the program raised {ended['type']}: {_first_sentence(ended['message'])}"
        topic = "memory" if ended["out_of_memory"] else "error"
        return [Finding(ERROR, topic, message, advice, ended["place"])]
    if ended["how"] == "exit":
        return [Finding(ERROR, "error", f"the program ended with exit status {ended['code']}")]
    if ended["how"] == "died":
        return [Finding(ERROR, "error", f"the program's process ended: {ended['message']}", ended.get("where", ""))]
    if not report["calls"]["tpu"]:
        return [
            Finding(
                ERROR,
                "device",
                "nothing ran on tpu",
                "Name the device, as model.to('tpu'), or let --map cpu=tpu move what is on the CPU.",
            )
        ]
    return []


def _operators(report: dict) -> list[Finding]:
    found = []
    for row in report["operators"]:
        if row["status"] != "unsupported":
            continue
        why = f" ({row['reason']})" if row["reason"] else ""
        found.append(
            Finding(
                ERROR,
                "operator",
                f"{row['operator']} does not exist on tpu; called {_times(row['count'])}{why}",
                "Write it with other operators, or run it on CPU tensors; `ttpu ops` lists what there is.",
                _place(row["places"]),
            )
        )
    for row in report["host_operators"]:
        found.append(
            Finding(
                WARNING,
                "operator",
                f"{row['operator']} runs on the host's CPU; called {_times(row['count'])}",
                "Keep it out of the steps, or compute it less often.",
                _place(row["places"]),
            )
        )
    return found


def _host_reads(report: dict) -> list[Finding]:
    found = []
    for row in report["host_reads"]:
        often = f", {row['per_step']:.3g} a step" if row["per_step"] else ""
        what = ", ".join(row["operators"])
        message = f"the host reads a value {_times(row['count'])}{often} ({what}): {row['text']}{_within(row)}"
        severity = WARNING if row["in_loop"] and row["kind"] != "collective" else NOTE
        found.append(Finding(severity, "host read", message, row["advice"], row["place"]))
    return found


def _sizes(report: dict) -> list[Finding]:
    found = []
    for row in report["dynamic"]:
        found.append(
            Finding(
                WARNING,
                "dynamic shape",
                f"the size of {row['operator']}'s result depends on values: {row['text']}{_within(row)}",
                "Each new size is another program on a TPU: mask or pad to a fixed size.",
                row["place"],
            )
        )
    again = report["recompilations"]
    if again["late_steps_that_build"] < max(2, again["late_steps"] / 2):
        return found  # one may be new: a last batch that is smaller
    found.append(
        Finding(
            WARNING,
            "recompilation",
            f"{again['late_steps_that_build']} of {again['late_steps']} steps behind the first "
            f"{again['warm_after']} met programs that were new; on a TPU each is a compilation of seconds",
            "Keep sizes equal from step to step: fixed batches, padding to a few lengths, caches of a fixed size.",
        )
    )
    for row in again["risks"][:8]:
        what = "sizes" if row["changes"] == "sizes" else "arguments that are part of the program (indices, lengths)"
        found.append(
            Finding(
                WARNING,
                "recompilation",
                f"{what} change from step to step, {row['variants']} variants: {row['text']}{_within(row)}",
                f"Seen: {'; '.join(row['examples'])}",
                row["place"],
            )
        )
    return found


def _breaks(report: dict) -> list[Finding]:
    rows = list(report["compiled"]["breaks"])
    explained = report["explained"] or {}
    rows += explained.get("breaks", [])
    return [
        Finding(
            WARNING,
            "graph break",
            f"torch.compile's graph breaks: {row['reason']}",
            "Take it out of the compiled function, or mark the function with torch.compiler.disable.",
            row["place"],
        )
        for row in rows
    ]


def _memory(report: dict) -> list[Finding]:
    m = report["memory"]
    chip, limit = report["chip"]["name"], bytes_text(m["limit"])
    biggest = next(iter(m["largest"]), None)
    advice = ""
    if biggest:
        owner = biggest["name"] or biggest["kind"]
        at = biggest["within"]
        where = f", made at {at['file']}:{at['line']}" if at and at["line"] else ""
        advice = f"The largest tensor is {bytes_text(biggest['bytes'])} ({owner}{where})."
    if m["exceeded"]:
        over = m["exceeded"]
        message = (
            f"too large for {chip}: live tensors reach {bytes_text(m['peak'])} of {limit}, "
            f"{bytes_text(m['peak'] - m['limit'])} too much; {over['operator']} passes the limit here{_within(over)}"
        )
        return [Finding(ERROR, "memory", message, advice, over["place"])]
    if m["over"]:
        message = (
            f"may be too large for {chip}: live tensors reach {bytes_text(m['peak'])} of {limit}, and a program "
            f"may need {bytes_text(m['temporaries'])} besides"
        )
        return [Finding(WARNING, "memory", message, advice)]
    if m["peak"] > _ALMOST_FULL * m["limit"]:
        return [Finding(WARNING, "memory", f"{bytes_text(m['peak'])} of {limit} on {chip}: almost full", advice)]
    return []


def _parity(report: dict) -> list[Finding]:
    parity = report["parity"]
    if not parity:
        return []
    if parity["error"]:
        return [Finding(NOTE, "parity", f"not compared with the CPU: {parity['error']}")]
    first = parity["first"]
    if not first:
        return []
    severity = ERROR if first["difference"] > 0.5 else WARNING
    rows = [row for row in (*parity["layers"], *parity["gradients"]) if not row["agrees"]]
    return [
        Finding(
            severity,
            "parity",
            f"{first['kind']} {first['layer']} is the first of {len(rows)} that differ from the CPU: by "
            f"{first['difference']:.2g} of its largest element, where {first['tolerance']:.0e} is allowed",
        )
    ]


def _compiler(report: dict) -> list[Finding]:
    refused = ((report["cost"] or {}).get("compiler") or {}).get("refused", [])
    return [
        Finding(ERROR, "compiler", f"the TPU compiler refuses {row['program']}, code {row['code']}: {row['message']}")
        for row in refused
    ]


def _devices(report: dict) -> list[Finding]:
    found = []
    if report["cuda"]:
        lines = ", ".join(f"{row['place']['file']}:{row['place']['line']}" for row in report["cuda"][:10])
        more = f" and {len(report['cuda']) - 10} more" if len(report["cuda"]) > 10 else ""
        found.append(
            Finding(
                NOTE,
                "device",
                f"{len(report['cuda'])} lines name cuda: {lines}{more}",
                "Say tpu there, or choose by torch.accelerator.current_accelerator().",
            )
        )
    for row in report["moved"]:
        found.append(
            Finding(
                NOTE,
                "device",
                f"a module or tensor has to be moved to tpu here: {row['text']}",
                "Add .to('tpu').",
                row["place"],
            )
        )
    return found


def findings(report: dict) -> list[Finding]:
    """All that there is to say, errors first."""
    parts = (_ending, _operators, _memory, _parity, _compiler, _host_reads, _sizes, _breaks, _devices)
    found = [finding for part in parts for finding in part(report)]
    order = [ERROR, WARNING, NOTE]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def verdict(found: list[Finding]) -> str:
    """In three words: is the program ready?"""
    severities = {finding.severity for finding in found}
    if ERROR in severities:
        return BROKEN
    return WARNINGS if WARNING in severities else READY


def fails(answer: Any, fail_on: str) -> bool:
    """Is this verdict a failure, where errors or warnings are?"""
    return answer == BROKEN or (answer == WARNINGS and fail_on == WARNING)
