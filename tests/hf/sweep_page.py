"""docs/models.md from the sweep's results."""

import collections
import pathlib
from collections.abc import Callable
from typing import Any

import sweep

# Why a model does not agree, where that is known and not mended: by library and name.
TWO_VALUES = (
    "with two images, batch norms behind a mean over all pixels see two values a channel; where bf16 makes them equal"
    " the gradient is multiplied by 1/√ε = 316, where they differ by a bit by almost nothing"
)
REASONS = {
    ("timm", "ghostnet"): TWO_VALUES,
    ("timm", "levit"): "bf16 does not tell this gradient: the CPU's own results differ by five times its size",
    ("timm", "rexnet"): TWO_VALUES,
    ("transformers", "pp_doclayout_v2"): (
        "it takes the 30 best of 336 queries, about 180 of which have one score but for the last bits:"
        " rounding decides which"
    ),
}

Results = dict[tuple, dict[str, Any]]
STEPS = ("forward", "loss", "backward", "step", "greedy", "static cache", "beam", "sampling")
MARKS = {"ok": "✓", "not": "–", "differs": "≠", "fails": "✗"}
TITLES = {
    "transformers": "Transformers: every registered model type",
    "timm": "timm: one model of each family",
    "diffusers": "diffusers: models and pipelines with tiny random components",
    "sentence_transformers": "sentence-transformers",
}

HEAD = """# Models

Made by `python tests/hf/sweep.py --markdown` from the results of its runs; do not edit.

Every model is unmodified, small and has random weights. Where it comes from stands beside it: *tests* is the tiny
configuration of Transformers' own tests for the type, *part* a module inside of one of these with the arguments that
it gets there, else `tests/hf/shrink.py` made the configuration and `tests/hf/batches.py` the inputs; of a model of
timm it is the side of its images, and what made it smaller where its family has no small one. It runs on the CPU
first; what runs there is copied to tpu and does the same again: a forward call in evaluation, a forward call in
training with its loss, backward, a step of AdamW, and where it generates six tokens greedily, with a static cache,
with two beams, and sampled twice with one seed. Outputs, loss, every gradient, and every weight and buffer after the
step are compared; `tests/hf/trial.py` states the tolerances. A compiled model does so without generating, and may be
what PyTorch's tracing makes of it on the CPU, where that is not the same. A model agrees if all of that agrees, nothing
ran on the CPU instead, and no step raised.

"""


def counts(results: Results) -> list[str]:
    """The table at the top: for each library, dtype and mode how many run and how many of these agree."""
    groups: dict[tuple, collections.Counter] = collections.defaultdict(collections.Counter)
    for (library, _, dtype, mode), result in results.items():
        groups[library, dtype, mode][sweep.outcome(result)] += 1
    lines = [
        "| library | dtype | mode | tried | run on the CPU | agree on tpu | of those that run |",
        "|---|---|---|---|---|---|---|",
    ]
    for (library, dtype, mode), outcomes in sorted(groups.items()):
        runs = outcomes["agrees"] + outcomes["fails"]
        share = f"{100 * outcomes['agrees'] / runs:.1f}%" if runs else ""
        lines.append(f"| {library} | {dtype} | {mode} | {outcomes.total()} | {runs} | {outcomes['agrees']} | {share} |")
    return lines


def step_counts(results: Results) -> list[str]:
    """What of it was tried how often, in f32 and eager mode, and how often it agreed."""
    lines = ["| step | tried | agree |", "|---|---|---|"]
    for step in STEPS:
        outcomes = [
            result["steps"][step]
            for (_, _, dtype, mode), result in results.items()
            if (dtype, mode) == ("f32", "eager") and step in result.get("steps", {})
        ]
        tried = [text for text in outcomes if not text.startswith("not on the CPU")]
        lines.append(f"| {step} | {len(tried)} | {sum(text == 'ok' for text in tried)} |")
    return lines


def mark(text: str | None) -> str:
    """A step's outcome in a character."""
    return "" if text is None else MARKS[text.split(":")[0].split()[0]]


def row(name: str, modes: dict[tuple, dict[str, Any]]) -> str:
    """One model: what was built, then the steps in f32, then one word for each other dtype and mode."""
    main = modes.get(("f32", "eager"))
    cells = [name]
    if main is None or "steps" not in main:
        cells += [main["class"] if main and "class" in main else "", "", "", *[""] * len(STEPS)]
    else:
        cells += [main["class"], main.get("plan", ""), f"{main['parameters'] / 1e6:.2f}"]
        cells += [mark(main["steps"].get(step)) for step in STEPS]
    cells += [word(modes.get(key)) for key in (("bf16", "eager"), ("f32", "compiled"))]
    return "| " + " | ".join(cells) + " |"


def word(result: dict[str, Any] | None) -> str:
    return {"agrees": "✓", "fails": "✗", "not runnable": "–"}[sweep.outcome(result)] if result else ""


def table(by_name: dict[str, dict[tuple, dict[str, Any]]]) -> list[str]:
    head = ["model type", "class", "from", "million weights", *STEPS, "bf16", "compiled"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, modes in sorted(by_name.items()):
        if any(sweep.outcome(result) != "not runnable" for result in modes.values()):
            lines.append(row(name, modes))
    return lines


def reasons(results: Results, library: str, outcome: str, text: Callable[[dict[str, Any]], str]) -> list[str]:
    lines = []
    for (where, name, dtype, mode), result in sorted(results.items()):
        if where == library and sweep.outcome(result) == outcome:
            # What does not run on the CPU does not in any mode; one reason is enough.
            if outcome == "not runnable" and (dtype, mode) != ("f32", "eager"):
                continue
            kind = "" if (dtype, mode) == ("f32", "eager") else f" ({dtype}, {mode})"
            why = REASONS.get((library, name)) if outcome == "fails" else None
            lines.append(f"- `{name}`{kind}: {escape(text(result))}" + (f". Why: {why}" if why else ""))
    return lines


def escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def write(results: Results, path: pathlib.Path) -> None:
    lines = [HEAD.rstrip(), "", *counts(results), "", *step_counts(results), ""]
    lines += ["✓ agrees, ≠ differs, ✗ raises on tpu, – cannot be done on the CPU either, empty: not tried.", ""]
    for library in dict.fromkeys(key[0] for key in sorted(results)):
        by_name: dict[str, dict[tuple, dict[str, Any]]] = collections.defaultdict(dict)
        for (where, name, dtype, mode), result in results.items():
            if where == library:
                by_name[name][dtype, mode] = result
        lines += [f"## {TITLES[library]}", "", *table(by_name), ""]
        bad = reasons(results, library, "fails", sweep.summary)
        lines += ["### What does not agree", "", *(bad or ["Nothing."]), ""]
        missing = reasons(results, library, "not runnable", sweep.summary)
        lines += ["### What does not run on the CPU here", "", *(missing or ["Nothing."]), ""]
    path.write_text("\n".join(lines))
