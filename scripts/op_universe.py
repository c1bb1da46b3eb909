#!/usr/bin/env python3
"""Lists ATen's overloads that need a kernel of ours, and which of them a row of aten.def serves.

The universe is what the installed PyTorch runs on CPU by a kernel that is not composite: those overloads have nothing
to fall back on. Overloads that are CompositeExplicitAutograd only decompose into others (or into host code) and are
listed with ``--explicit``; what is CompositeImplicitAutograd never reaches a backend.

An overload is served by a row of its own name, or by the row of its functional form when it is that operator in place
or with ``out=`` (same arguments, as registration matches them).

    scripts/op_universe.py               what is missing, by family
    scripts/op_universe.py --all         everything, with the row that serves it
    scripts/op_universe.py --explicit    the decomposable ones too
    scripts/op_universe.py --check       rows that name no operator, or an in-place form whose functional has a row
"""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
import torch

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r'^\s*[A-Z][A-Z0-9_]*\(\s*"([^"]+)"', re.MULTILINE)
# Other backends' operators, other layouts, and what is not about a tensor's elements.
FOREIGN = re.compile(
    r"sparse|_coo_|csr|csc|quantize|fbgemm|mkldnn|cudnn|miopen|vulkan|_jagged|nested|_mps_|xnnpack|_test_|_foobar|"
    r"qint|_make_per_|_choose_qparams|int_repr|q_scale|q_zero|q_per_channel|_indices|_values|_coalesce|dense_dim|"
    r"_spdiags|onednn|_cslt|hspmm|to_dense|dequantize|_weight_int"
)
# Storage, views and host reads: made in the extension, not by a lowering.
HOST = re.compile(
    r"^(as_strided|view|view_as_real|view_as_complex|unfold|_reshape_alias|set_|resize_|empty|_local_scalar_dense|"
    r"equal|is_set_to|_assert_async|_functional_assert_async|record_stream|_fused_sdp_choice|from_file|_nnpack_available|"
    r"_has_compatible_shallow_copy_type|_make_dep_token|_pin_memory|is_pinned|_efficientzerotensor)(\.|$)"
)


def rows() -> set[str]:
    names: set[str] = set()
    for file in ("aten.def", "aten_nn.def"):
        path = ROOT / "src" / "aten" / file
        if path.exists():
            names.update(ROW.findall(path.read_text()))
    return names


def name_of(schema: torch._C.FunctionSchema) -> str:
    base = schema.name.split("::")[1]
    return f"{base}.{schema.overload_name}" if schema.overload_name else base


def signature(schema: torch._C.FunctionSchema) -> tuple[str, ...]:
    return tuple(str(a.type) for a in schema.arguments if not a.is_out)


def functional_base(base: str) -> str | None:
    if base.startswith("__i") and base.endswith("__"):
        return "__" + base[3:]
    if base.endswith("_") and not base.endswith("__"):
        return base[:-1]
    return None


def serving_row(schema: torch._C.FunctionSchema, by_base: dict[str, list], names: set[str]) -> str | None:
    own = name_of(schema)
    if own in names:
        return own
    base = own.split(".")[0]
    bases = [base]
    in_place = functional_base(base)
    if in_place:
        bases.append(in_place)
    for candidate in bases:
        for other in by_base.get(candidate, []):
            writes = any(a.is_out for a in other.arguments)
            if not writes and name_of(other) in names and signature(other) == signature(schema):
                return name_of(other)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="list served overloads too")
    parser.add_argument("--explicit", action="store_true", help="include CompositeExplicitAutograd overloads")
    parser.add_argument("--check", action="store_true", help="check the rows themselves")
    options = parser.parse_args()

    names = rows()
    by_base: dict[str, list] = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            by_base[schema.name.split("::")[1]].append(schema)
    has = torch._C._dispatch_has_kernel_for_dispatch_key

    if options.check:
        known = {name_of(s) for group in by_base.values() for s in group}
        for row in sorted(names):
            if row not in known:
                print(f"{row}: PyTorch {torch.__version__} has no such overload")
            elif has(f"aten::{row}", "CompositeImplicitAutograd"):
                print(f"{row}: composite implicit, never reaches a backend")
        return

    total: dict[str, int] = defaultdict(int)
    served: dict[str, int] = defaultdict(int)
    missing: dict[str, list[str]] = defaultdict(list)
    for base in sorted(by_base):
        for schema in by_base[base]:
            name = name_of(schema)
            full = f"aten::{name}"
            if FOREIGN.search(name) or HOST.match(name):
                continue
            try:
                if has(full, "CompositeImplicitAutograd"):
                    continue
                kind = "cpu" if has(full, "CPU") else "explicit" if has(full, "CompositeExplicitAutograd") else None
            except RuntimeError:  # schemas without a dispatcher entry
                continue
            if kind is None or (kind == "explicit" and not options.explicit):
                continue
            total[kind] += 1
            row = serving_row(schema, by_base, names)
            if row:
                served[kind] += 1
                if options.all:
                    print(f"  {name:56} {row}")
            else:
                missing[kind].append(name)
    for kind in total:
        print(f"{kind}: {served[kind]} of {total[kind]} overloads are served by {len(names)} rows")
        groups: dict[str, list[str]] = defaultdict(list)
        for name in missing[kind]:
            groups[functional_base(name.split(".")[0]) or name.split(".")[0]].append(name)
        for group in sorted(groups):
            print(f"  {group}: {', '.join(groups[group])}")


if __name__ == "__main__":
    main()
