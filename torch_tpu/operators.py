"""Which of PyTorch's operators run on tpu, and how.

The universe is what the installed PyTorch lists: every overload that has a kernel for the CPU and is not composed for
all devices, and every Core ATen operator. The status of each is read off the dispatcher, as this process has filled it:
nothing is listed here but why what is unsupported is so.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

NATIVE, COMPOSED, HOST, UNSUPPORTED = "native", "composed", "host", "unsupported"
STATUSES = {
    NATIVE: "a kernel of this backend",
    COMPOSED: "PyTorch composes it of others",
    HOST: "a factorisation by LAPACK on the host, counted in `torch.tpu.counters()`",
    UNSUPPORTED: "raises, and says so",
}

# Why operators make no sense on a TPU, by what their names match (the first that does).
REASONS = [
    (r"^_test_|^_foobar$", "An operator of PyTorch's own tests."),
    (r"nested|jagged|_padded_dense", "Nested tensors are a layout of their own."),
    (r"sparse|_csr|_csc|_bsr|_bsc|_coo|_spdiags|sspaddmm|hspmm|_compressed", "Sparse tensors do not exist on tpu."),
    (r"mkldnn|onednn", "oneDNN's tensors exist on the CPU alone."),
    (r"int[48]pack|_dyn_quant_", "Weights in a packing that CPU kernels define."),
    (r"_obs_fq_", "It resizes what it observes with; the fake quantisation that it ends with is native."),
    (r"quantize|_affine_quantized|_quantized", "Quantised tensors belong to the engines of the CPU."),
    (r"^from_file$", "Maps a file into the memory of the host."),
    (r"flash_attention_for_cpu", "The CPU's attention; tpu's is `_scaled_dot_product_fused_attention_overrideable`."),
]

_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


class Operator(NamedTuple):
    """An overload such as ``add.Tensor``, its status, why it is unsupported, and whether it is a Core ATen operator."""

    name: str
    status: str
    reason: str
    core: bool

    @property
    def base(self) -> str:
        """The operator's name without overload, and without the mark of the form in place."""
        base = self.name.split(".")[0]
        if base.startswith("__i") and base.endswith("__"):
            return "__" + base[3:]
        return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def _overload(name: str) -> torch._ops.OpOverload | None:
    base, _, overload = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, base), overload or "default")
    except AttributeError:  # a name without a schema
        return None


def _inputs(schema: torch._C.FunctionSchema) -> list[str]:
    return [str(argument.type) for argument in schema.arguments if not argument.is_out]


def _out_forms(name: str) -> list[str]:
    """The overloads with ``out=`` of the same arguments: what a structured operator calls."""
    own = _inputs(_overload(name)._schema)
    packet = getattr(torch.ops.aten, name.split(".")[0])
    forms = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return [
        f"{name.split('.')[0]}.{form.overload_name}"
        for form in forms
        if form.overload_name and any(a.is_out for a in form.arguments) and _inputs(form) == own
    ]


@cache
def _host_operators() -> frozenset[str]:
    from torch_tpu import _C

    return frozenset(_C.host_operators())


def status_of(name: str) -> str:
    """The status of an overload, ``add.Tensor``."""
    full = f"aten::{name}"
    if _has_kernel(full, "PrivateUse1"):
        return HOST if name in _host_operators() else NATIVE
    if any(_has_kernel(full, key) for key in _COMPOSITE):
        return COMPOSED
    if _has_kernel(full, "CompositeExplicitAutogradNonFunctional"):  # composed of the form with out=
        forms = [status_of(form) for form in _out_forms(name)]
        return COMPOSED if any(form != UNSUPPORTED for form in forms) else UNSUPPORTED
    return UNSUPPORTED


def reason_for(name: str) -> str:
    """Why an unsupported operator is so; empty when nothing says why."""
    base = name.split(".")[0]
    return next((reason for pattern, reason in REASONS if re.search(pattern, base)), "")


def operators() -> list[Operator]:
    """Every operator of the universe, in the order of names."""
    found = []
    for full in sorted(set(torch._C._dispatch_get_all_op_names())):
        name = full.removeprefix("aten::")
        overload = _overload(name) if full.startswith("aten::") else None
        if overload is None:
            continue
        core = torch.Tag.core in overload.tags
        if not core and (not _has_kernel(full, "CPU") or _has_kernel(full, "CompositeImplicitAutograd")):
            continue
        status = status_of(name)
        found.append(Operator(name, status, reason_for(name) if status == UNSUPPORTED else "", core))
    return found


# ---- pages ----


def _counts(some: Iterable[Operator]) -> list[int]:
    statuses = [operator.status for operator in some]
    return [len(statuses), *(statuses.count(status) for status in STATUSES)]


def _summary(listed: list[Operator]) -> list[str]:
    rows = [("All", _counts(listed)), ("Core ATen", _counts(o for o in listed if o.core))]
    head = ["", "overloads", *STATUSES]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + [f"| {label} | " + " | ".join(map(str, counts)) + " |" for label, counts in rows]


def _row(base: str, group: list[Operator]) -> str:
    """One line of the page: overloads by status, Core ATen's in bold."""
    parts = []
    for status in STATUSES:
        some = [operator for operator in group if operator.status == status]
        if not some:
            continue
        names = [o.name.removeprefix(base + ".") if o.name != base else "(default)" for o in some]
        marked = [f"**{name}**" if o.core else name for name, o in zip(names, some, strict=True)]
        parts.append((status, ", ".join(marked).replace("_", "\\_")))
    if len(parts) == 1:
        status, names = parts[0]
    else:
        status, names = "mixed", "; ".join(f"{status}: {names}" for status, names in parts)
    reasons = " ".join(dict.fromkeys(operator.reason for operator in group if operator.reason))
    return f"| `{base}` | {status} | {names} | {reasons} |"


def _refused() -> list[str]:
    """What the TPU compiler does not take of the lowerings, from the verdicts that tests/aot/verdicts.py keeps."""
    known = json.loads((Path(__file__).parent / "aot" / "refused.json").read_text())
    counts = ", ".join(f"{count} for {chip}" for chip, count in known["compiled"].items() if count)
    lines = [
        "",
        "## What the TPU compiler refuses",
        "",
        f"Google's compiler (libtpu {known['libtpu']}, `ttpu aot`) was given lowerings of calls in PyTorch's",
        f"databases, one program a call, forward and backward. It took {counts}; it refused:",
        "",
    ]
    groups: dict[tuple[str, str, str], int] = {}
    for entry in known["refused"]:
        key = entry["row"], ", ".join(entry["chips"]), f"{entry['code']}: {entry['message']}"
        groups[key] = groups.get(key, 0) + 1
    if not groups:
        return [*lines[:-1], "none."]
    table = [
        f"| `{row}` | {chips} | {n} | {text.replace('|', '/')} |" for (row, chips, text), n in sorted(groups.items())
    ]
    return [*lines, "| row | chips | programs | code and message |", "|---|---|---:|---|", *table]


def markdown(listed: list[Operator]) -> str:
    """The page ``docs/operators.md``."""
    groups: dict[str, list[Operator]] = {}
    for operator in listed:
        groups.setdefault(operator.base, []).append(operator)
    lines = [
        "# Operators",
        "",
        f"Every `aten::` overload of PyTorch {torch.__version__.split('+')[0]} that has a kernel for the CPU and is",
        "not composed for all devices, and every Core ATen operator (in bold). `ttpu ops --markdown` makes this page",
        "from what is registered; a test holds it to that.",
        "",
        *_summary(listed),
        "",
        *(f"- **{status}**: {meaning}" for status, meaning in STATUSES.items()),
        "",
        "Forms in place and with `out=` stand beside the operator that they are forms of.",
        "",
        "| operator | status | overloads | reason |",
        "|---|---|---|---|",
        *(_row(base, group) for base, group in sorted(groups.items())),
        *(_refused() if len(listed) == len(operators()) else []),
    ]
    return "\n".join(lines) + "\n"


def text(listed: list[Operator]) -> str:
    """One operator a line, and the counts of each status."""
    width = max((len(operator.name) for operator in listed), default=0)
    lines = [f"{o.name:{width}}  {o.status:11}  {o.reason}".rstrip() for o in listed]
    total, *counts = _counts(listed)
    shares = ", ".join(f"{count} {status}" for status, count in zip(STATUSES, counts, strict=True))
    return "\n".join([*lines, f"{total} operators: {shares}"]) + "\n"
