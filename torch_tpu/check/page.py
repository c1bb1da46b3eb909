"""The report as one page of HTML, with its pictures in it."""

import pathlib

import jinja2

from torch_tpu.check import pictures
from torch_tpu.check.judge import bytes_text, seconds_text
from torch_tpu.check.report import where


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
    return environment.get_template("page.html").render(report=report, pictures=_pictures(report))
