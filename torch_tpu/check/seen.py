"""What was seen, in tables: operators, host reads, dynamic shapes, recompilations, graph breaks."""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch_tpu import operators as table
from torch_tpu.check.places import LIBRARY, NOWHERE, PROGRAM, Place, kind_of
from torch_tpu.check.record import PRINT, Call, Recorder

_PLACES, _SHAPES, _LISTED = 8, 8, 40


def _place(call: Call) -> Place:
    return call.own if call.own is not NOWHERE else call.call


def _tensors_text(tensors: tuple) -> str:
    """The tensors of a signature: ``float32[32,128] float32[128,64]``."""
    return " ".join(f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, sizes))}]" for dtype, sizes in tensors)


def _lines(call: Call) -> tuple:
    """What tells places apart: the program's own line, and the one in a library that it leads to."""
    return call.own[:2], call.call[:2]


def _places(calls: Iterable[Call]) -> list[dict]:
    """The lines that call, those with the most calls first."""
    rows: dict[tuple, dict] = {}
    for call in calls:
        row = rows.setdefault(
            (_lines(call), call.backward),
            {"place": _place(call), "within": call.call, "backward": call.backward, "count": 0},
        )
        row["count"] += call.count
    return sorted(rows.values(), key=lambda row: -row["count"])[:_PLACES]


def _grouped(recorder: Recorder) -> dict[str, list[Call]]:
    groups: dict[str, list[Call]] = {}
    for call in list(recorder.calls.values()):
        groups.setdefault(call.name, []).append(call)
    return groups


def operators(recorder: Recorder) -> list[dict]:
    """Each operator: status, dtypes, shapes and places."""
    rows = []
    for name, calls in _grouped(recorder).items():
        shapes: dict[str, int] = {}
        dtypes: set[str] = set()
        for call in calls:
            for (tensors, _), (_, count) in list(call.signatures.items()):
                text = _tensors_text(tensors)
                shapes[text] = shapes.get(text, 0) + count
                dtypes.update(str(dtype).removeprefix("torch.") for dtype, _ in tensors)
        listed = sorted(shapes.items(), key=lambda shape: -shape[1])
        rows.append(
            {
                "operator": name,
                "status": calls[0].status,
                "reason": table.reason_for(name) if calls[0].status == table.UNSUPPORTED else "",
                "count": sum(call.count for call in calls),
                "dtypes": sorted(dtypes),
                "shapes": [{"tensors": text, "count": count} for text, count in listed[:_SHAPES]],
                "shapes_in_all": len(shapes) + sum(call.signatures_left_out for call in calls),
                "places": _places(calls),
            }
        )
    for name, call in list(recorder.fallen_back.items()):
        rows.append(
            {
                "operator": name,
                "status": table.UNSUPPORTED,
                "reason": f"called within {call.name}",
                "count": call.count,
                "dtypes": [],
                "shapes": [],
                "shapes_in_all": 0,
                "places": _places([call]),
            }
        )
    first = {table.UNSUPPORTED: 0, table.HOST: 1}
    return sorted(rows, key=lambda row: (first.get(row["status"], 2), -row["count"], row["operator"]))


def on_host(recorder: Recorder) -> list[dict]:
    """Operators that run on the host's CPU, with their places."""
    return [
        {"operator": name, "count": sum(call.count for call in calls), "places": _places(calls)}
        for name, calls in _grouped(recorder).items()
        if calls[0].status == table.HOST
    ]


def _has_mask(call: Call) -> bool:
    masks = (torch.bool, torch.uint8)
    return any(dtype in masks for tensors, _ in list(call.signatures) for dtype, _ in tensors[1:])


def _is_dynamic(call: Call) -> bool:
    """Does the size of its result depend on values? Indexing does so by masks alone."""
    if torch.Tag.dynamic_output_shape not in call.tags or call.backward:
        return False
    return call.name.split(".")[0] != "index" or _has_mask(call)


# ---- host reads ----

_ADVICE = {
    "print": "Printing waits for the device: print every so many steps, or what was added up on the device.",
    "branch": "A branch on a tensor's value waits for it: torch.where keeps both sides on the device.",
    "item": "Keep the number as a tensor, add it up on the device, and read it once every so many steps.",
    "copy": "A copy to the host waits for all before it: keep results on the device and copy them once, at the end.",
    "compare": "Comparing whole tensors gives a Python bool: compare elementwise and keep the result on the device.",
    "sizes": "The size of the result depends on values: mask or pad to a size that is known (torch.where, topk).",
    "collective": "Its bytes go through the hosts' memory: with async_op=True other work goes on meanwhile.",
    "other": "The host needs a value here: keep it on the device where the program can go on without it.",
}


def _kind_of_read(name: str, text: str) -> str:
    base = name.split(".")[0]
    if base.startswith(("c10d::", "_c10d_functional::")):
        return "collective"
    if base in (
        "nonzero",
        "masked_select",
        "index",
        "unique_dim",
        "_unique2",
        "unique_consecutive",
        "repeat_interleave",
    ):
        return "sizes"
    if base in ("equal", "is_nonzero", "allclose"):
        return "compare"
    if name == PRINT or "print(" in text or 'f"' in text or "f'" in text:
        return "print"
    if text.startswith(("if ", "elif ", "while ", "assert ")):
        return "branch"
    if base == "_local_scalar_dense":
        return "item"
    return "copy" if base in ("_to_copy", "copy_", "copy") else "other"


def host_reads(recorder: Recorder, steps: int) -> list[dict]:
    """Lines at which the host waits for a value, the most frequent first."""
    rows: dict[tuple, dict] = {}
    for call in [*recorder.calls.values(), *recorder.prints.values()]:
        if call.host_reads == 0 or call.status in (table.UNSUPPORTED, table.HOST) or _is_dynamic(call):
            continue
        kind = _kind_of_read(call.name, call.call.text)
        row = rows.setdefault(
            (_lines(call), kind),
            {
                "place": _place(call),
                "within": call.call,
                "text": call.call.text,
                "operators": [],
                "kind": kind,
                "count": 0,
                "steps": 0,
                "advice": _ADVICE[kind],
            },
        )
        row["count"] += call.host_reads
        row["steps"] = max(row["steps"], call.steps)
        if call.name not in row["operators"]:
            row["operators"].append(call.name)
    for row in rows.values():
        row["in_loop"] = row["steps"] > 1 if steps > 2 else row["count"] > 1
        row["per_step"] = row["count"] / row["steps"] if steps and row["steps"] > 1 else None
    return sorted(rows.values(), key=lambda row: -row["count"])


# ---- sizes ----


def dynamic(recorder: Recorder) -> list[dict]:
    """Lines whose results' sizes depend on values."""
    found = []
    for call in list(recorder.calls.values()):
        if _is_dynamic(call):
            found.append(
                {
                    "place": _place(call),
                    "within": call.call,
                    "text": call.call.text,
                    "operator": call.name,
                    "count": call.count,
                    "host_reads": call.host_reads,
                }
            )
    return sorted(found, key=lambda row: -row["count"])


def _late(call: Call, first: int) -> list[tuple]:
    return [signature for signature, (step, _) in list(call.signatures.items()) if step >= first]


def recompilations(recorder: Recorder, steps: list) -> dict:
    """Programs that were built in each step, and the calls that were new in the later ones."""
    built = [step.counters["programs_built"] for step in steps]
    warm = 2
    risks: dict[tuple, dict] = {}
    for call in list(recorder.calls.values()):
        late = _late(call, warm)
        if not late or call.backward or len(steps) <= warm or len(call.signatures) < 2:
            continue
        tensors = {tensors for tensors, _ in call.signatures}
        changes = "sizes" if len(tensors) > 1 else "arguments"
        examples = [_tensors_text(t) if changes == "sizes" else str(_shown(s)) for t, s in list(call.signatures)[:3]]
        row = risks.setdefault(
            (_lines(call), changes),
            {
                "place": _place(call),
                "within": call.call,
                "text": call.call.text,
                "changes": changes,
                "operators": [],
                "variants": 0,
                "examples": examples,
            },
        )
        row["operators"].append(call.name)
        row["variants"] = max(row["variants"], len(call.signatures) + call.signatures_left_out)
    order = {PROGRAM: 0, LIBRARY: 1}
    listed = sorted(risks.values(), key=lambda r: (order.get(kind_of(r["place"].file), 2), -r["variants"]))
    steps_built = sum(count > 0 for count in built[warm:])
    return {
        "built": built,
        "compiled": [step.counters["programs_compiled"] for step in steps],
        "warm_after": warm,
        "late_steps": len(built[warm:]),
        "late_steps_that_build": steps_built,
        "risks": listed[:_LISTED] if steps_built else [],
    }


def _shown(static: tuple) -> list:
    return [value for value in static if not isinstance(value, bool | type(None))]


# ---- graph breaks ----


def _break_place(stack: list) -> Place:
    """The program's own line of a graph break, else the innermost."""
    for wanted in (PROGRAM, LIBRARY):
        for frame in reversed(stack):
            if kind_of(frame.filename) == wanted:
                return Place(frame.filename, frame.lineno or 0, frame.name)
    return NOWHERE


def explain(kept: Any) -> dict:
    """Trace the module's first call with Dynamo, as torch.compile would."""
    from torch_tpu.check.parity import moved

    module = getattr(kept.module, "_orig_mod", kept.module)
    args, kwargs = moved((kept.args, kept.kwargs), "tpu")
    module.eval()
    with torch.no_grad():
        found = torch._dynamo.explain(module)(*args, **kwargs)
    torch._dynamo.reset()
    return {
        "graphs": found.graph_count,
        "operators": found.op_count,
        "breaks": [
            {"place": _break_place(reason.user_stack), "reason": reason.reason.splitlines()[0]}
            for reason in found.break_reasons
        ],
    }


def breaks_of_compiled() -> dict:
    """Where the graphs of what the program itself compiles broke, and how many graphs there are."""
    if "torch._dynamo" not in sys.modules:
        return {"graphs": 0, "breaks": []}
    utils = torch._dynamo.utils
    rows: dict[tuple, dict] = {}
    for reason in list(utils.graph_break_reasons):
        place, text = _break_place(reason.user_stack), reason.reason.splitlines()[0]
        row = rows.setdefault((place[:2], text), {"place": place, "text": place.text, "reason": text, "count": 0})
        row["count"] += 1
    return {"graphs": utils.counters["stats"].get("unique_graphs", 0), "breaks": list(rows.values())}
