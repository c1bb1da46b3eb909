"""The report as text."""

import textwrap

from torch_tpu.check.judge import ERROR, NOTE, WARNING, bytes_text, seconds_text

_WIDTH = 120
_SHOWN_OPERATORS = 12
_SHOWN_NOTES = 12


def where(place: dict | None) -> str:
    """A place as ``file:line``; empty where there is none."""
    return f"{place['file']}:{place['line']}" if place and place["line"] else ""


def _table(rows: list[tuple], heads: tuple[str, ...], right: tuple[int, ...] = ()) -> list[str]:
    cells = [heads, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    aligned = (
        "  ".join(
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return ["  " + line.rstrip() for line in aligned]


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) or [first]


def _findings(report: dict) -> list[str]:
    lines, notes = [], 0
    for finding in report["findings"]:
        if finding["severity"] == NOTE and (notes := notes + 1) > _SHOWN_NOTES:
            continue
        place = where(finding["place"])
        head = f"{finding['severity']:8} {place + ': ' if place else ''}{finding['topic']}: {finding['message']}"
        lines += _wrapped(head, "", " " * 9)
        if finding["advice"]:
            lines += _wrapped(finding["advice"], " " * 9 + "→ ", " " * 11)
    if notes > _SHOWN_NOTES:
        lines.append(f"{'':9}… and {notes - _SHOWN_NOTES} more notes (--json has them all)")
    return lines or ["nothing to report"]


def _operators(report: dict, everything: bool) -> list[str]:
    rows = report["operators"]
    counts = {
        status: sum(row["status"] == status for row in rows) for status in ("native", "composed", "host", "unsupported")
    }
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    calls = report["calls"]
    lines = [
        f"operators   {len(rows)} on tpu{f' ({summary})' if summary else ''}, {calls['tpu']:,} calls; "
        f"{calls['elsewhere']:,} calls on CPU tensors"
    ]
    listed = rows if everything else rows[:_SHOWN_OPERATORS]
    cells = [
        (
            row["operator"],
            row["status"],
            f"{row['count']:,}",
            " ".join(row["dtypes"]),
            row["shapes_in_all"],
            row["shapes"][0]["tensors"][:40] if row["shapes"] else "",
            where(row["places"][0]["within"]) if row["places"] else "",
        )
        for row in listed
    ]
    lines += _table(cells, ("operator", "status", "calls", "dtypes", "shapes", "most often", "from"), (2, 4))
    if len(listed) < len(rows):
        lines.append(f"  … and {len(rows) - len(listed)} more (--all lists them)")
    return lines


def _steps(report: dict) -> list[str]:
    steps, again = report["steps"], report["recompilations"]
    kind = {"optimizer": "steps of an optimizer", "forward": "calls of a module"}[steps["kind"]]
    built = " ".join(map(str, again["built"][:24]))
    lines = [f"steps       {steps['count']} {kind}{f'; new programs in each: {built}' if built else ''}"]
    if report["ended"]["how"] in ("steps", "time"):
        option = "--steps" if report["ended"]["how"] == "steps" else "--seconds"
        lines.append(f"            ended there by {option}; {option} 0 runs the program to its end")
    return lines


def _memory(report: dict) -> list[str]:
    m = report["memory"]
    share = 100 * m["peak"] / m["limit"]
    lines = [
        f"memory      {bytes_text(m['peak'])} of {bytes_text(m['limit'])} ({share:.1f}%) held by live tensors at most; "
        f"temporaries of a program: up to {bytes_text(m['temporaries'])}"
    ]
    if m["kinds"]:
        lines.append(
            "  at the highest point: " + ", ".join(f"{kind} {bytes_text(size)}" for kind, size in m["kinds"].items())
        )
    cells = [
        (
            bytes_text(row["bytes"]),
            row["name"] or row["kind"],
            f"{row['dtype']}{row['sizes']}" if "dtype" in row else "",
            row.get("operator", ""),
            where(row["within"]) + (" (backward)" if row.get("backward") else ""),
        )
        for row in m["largest"][:6]
    ]
    return lines + (_table(cells, ("bytes", "tensor", "sizes", "made by", "at"), (0,)) if cells else [])


def _parity(report: dict) -> list[str]:
    parity = report["parity"]
    if not parity:
        return []
    if parity["error"]:
        return [f"parity      not compared: {parity['error']}"]
    rows = [*parity["layers"], *parity["gradients"]]
    worst = max(rows, key=lambda row: row["difference"], default=None)
    lines = [
        f"parity      {parity['module']}: {len(parity['layers'])} layers and {len(parity['gradients'])} gradients "
        f"compared with the CPU, {sum(not row['agrees'] for row in rows)} beyond tolerance"
    ]
    for title, row in (("first that differs", parity["first"]), ("largest difference", worst)):
        if row:
            lines.append(
                f"  {title}: {row['kind']} {row['layer']}, {row['difference']:.2g} (allowed {row['tolerance']:.0e})"
            )
    return lines


def _cost(report: dict) -> list[str]:
    found = report["cost"]
    line = (found or {}).get("roofline")
    if not line:
        return []
    chip, unit = found["chip"], {"optimizer": "step", "forward": "call"}[found["step_kind"]]
    bound = "operations" if line["compute"] > line["memory"] else "memory"
    lines = [
        f"time        at least {seconds_text(line['seconds'])} a {unit} on {chip}, by a roofline bound by {bound}: "
        f"{line['flops']:.3g} operations × {line['passes']:.2g} passes take {seconds_text(line['compute'])}, "
        f"{bytes_text(line['bytes'])} {seconds_text(line['memory'])}; {line['programs']:.0f} programs"
    ]
    compiler = found["compiler"]
    if compiler and "error" in compiler:
        lines.append(f"  TPU compiler not asked: {compiler['error']}")
    elif compiler:
        lines.append(
            f"  {seconds_text(compiler['seconds'])} a {unit} by the TPU compiler: {compiler['asked']} of "
            f"{compiler['programs']} programs compiled, {100 * compiler['covered']:.0f}% of the bound"
        )
    heavy = ", ".join(
        f"{row['operator']} {seconds_text(row['seconds'])}" for row in found["operators"][:5] if row["seconds"]
    )
    if heavy:
        lines.append(f"  longest by themselves: {heavy}")
    return lines


def _compiled(report: dict) -> list[str]:
    lines = []
    own, explained = report["compiled"], report["explained"]
    if own["graphs"]:
        lines.append(f"compile     {own['graphs']} graphs, {len(own['breaks'])} places at which they break")
    if explained and "error" in explained:
        lines.append(f"compile     not explained: {explained['error']}")
    elif explained:
        lines.append(
            f"compile     as torch.compile would take the module: {explained['graphs']} graphs, "
            f"{len(explained['breaks'])} breaks"
        )
    return lines


def tally(report: dict) -> str:
    """How many findings of each kind there are: "1 error, 2 notes"."""
    counts = {s: sum(f["severity"] == s for f in report["findings"]) for s in (ERROR, WARNING, NOTE)}
    return ", ".join(f"{count} {severity}{'s' * (count != 1)}" for severity, count in counts.items() if count)


def text(report: dict, everything: bool = False) -> str:
    """The whole report."""
    counted = tally(report)
    lines = [f"ttpu check {report['command']}  (for {report['chip']['name']}, on the software TPU)", ""]
    lines += [f"VERDICT: {report['verdict']}{f' ({counted})' if counted else ''}", "", *_findings(report), ""]
    for part in (
        _operators(report, everything),
        _steps(report),
        _compiled(report),
        _memory(report),
        _parity(report),
        _cost(report),
    ):
        lines += part
    return "\n".join(lines) + "\n"
