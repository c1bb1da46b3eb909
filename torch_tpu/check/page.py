"""The report as one page of HTML, with its pictures in it."""

import pathlib

import jinja2

from torch_tpu.check import pictures
from torch_tpu.check.judge import ERROR, WARNING, bytes_text, seconds_text
from torch_tpu.check.report import tally, where


def _pictures(report: dict) -> dict[str, str]:
    memory, parity, cost = report["memory"], report["parity"] or {}, report["cost"] or {}
    kinds = [(kind, size, "bar") for kind, size in memory["kinds"].items()]
    operators = [(row["operator"], row["seconds"], "bar") for row in cost.get("operators", [])[:15] if row["seconds"]]
    layers = [*parity.get("layers", []), *parity.get("gradients", [])]
    return {
        "memory": pictures.curve(
            memory["curve"], memory["limit"], memory["steps"], bytes_text, "memory over operators"
        ),
        "kinds": pictures.bars(kinds, bytes_text, "memory at its highest point by kind"),
        "operators": pictures.bars(operators, seconds_text, "time by operator"),
        "built": pictures.columns(report["recompilations"]["built"][:100], "new programs by step"),
        "parity": pictures.differences(layers, "difference from the CPU by layer"),
    }


def _facts(report: dict) -> list[tuple[str, str, str]]:
    """What matters most, at a glance: a figure, what it is, and its tone."""
    memory, again = report["memory"], report["recompilations"]
    share = memory["peak"] / memory["limit"]
    percent = f"{100 * share:.0f}%" if share >= 0.01 else "< 1%"
    facts = [(percent, "of the chip's memory", ERROR if share > 1 else WARNING if share > 0.9 else "")]
    line = (report["cost"] or {}).get("roofline")
    if line:
        facts.append((f"≥ {seconds_text(line['seconds'])}", "a " + _unit(report), ""))
    if again["late_steps"]:
        late, steps = again["late_steps_that_build"], again["late_steps"]
        facts.append((f"{late} of {steps}", "later steps compile anew", WARNING if 2 * late >= steps else ""))
    parity = report["parity"] or {}
    rows = [*parity.get("layers", []), *parity.get("gradients", [])]
    if rows:
        differ = sum(not row["agrees"] for row in rows)
        facts.append((f"{differ} of {len(rows)}", "layers and gradients differ", WARNING if differ else ""))
    missing = sum(row["status"] == "unsupported" for row in report["operators"])
    facts.append((f"{missing} of {len(report['operators'])}", "operators missing", ERROR if missing else ""))
    reads = sum(row["count"] for row in report["host_reads"])
    facts.append((f"{reads:,}", "reads by the host", ""))
    return facts


def _unit(report: dict) -> str:
    """What a step is called: where there is no optimizer it is a call."""
    return "step" if report["steps"]["kind"] == "optimizer" else "call"


def html(report: dict) -> str:
    """The whole page; it needs nothing from elsewhere."""
    folder = pathlib.Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": bytes_text, "seconds": seconds_text, "where": where}
    return environment.get_template("page.html").render(
        report=report, pictures=_pictures(report), facts=_facts(report), tally=tally(report), unit=_unit(report)
    )
