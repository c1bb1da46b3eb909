"""Compares aten/'s rows with PyTorch's CPU kernels, without a device.

A dispatch mode sees every ATen call that a piece of Python makes. A call that a row serves is made twice: by PyTorch on
the CPU, and by the row's lowering run through the scalar reference; values, and the metadata that the row's shape
function gives, must agree. By hand, over PyTorch's operator database:

    python tests/aten/oracle.py 'clamp|where' --samples 20
    python tests/aten/oracle.py --print '^sinc$'        with the StableHLO of each call
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import dataclasses
import itertools
import os
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":  # where a test imports it, the variable would pass to every process that a later test starts
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
DTYPES = [
    None, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128,
    torch.float8_e5m2, torch.float8_e4m3fn,
]  # in the order of dtypes.def  # fmt: skip
CODE = {dtype: i for i, dtype in enumerate(DTYPES) if dtype is not None}
NONE, TENSOR, TENSORS, INT, INTS, FLOAT, SCALAR, FLOATS, SCALARS, TEXT, OTHER = range(11)  # aten_kind
WRAPPED, NUMBER, UNDEFINED = 1, 2, 4
RNG, DYNAMIC = 1, 2
FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}
TOLERANCE = {
    torch.float32: (2e-5, 1e-5), torch.float64: (1e-9, 1e-10), torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2), torch.complex64: (5e-5, 5e-5), torch.complex128: (1e-9, 1e-9),
}  # fmt: skip


class Unsupported(Exception):
    """A call that the oracle cannot express (sparse layouts, dtypes that the project does not have)."""


def build(flags: str = "-O1") -> Path:
    """Compile the rows, the IR, and the scalar reference into one library; returns its path."""
    folder = Path(os.environ.get("TTPU_ORACLE_DIR") or tempfile.mkdtemp(prefix="ttpu-oracle-"))
    folder.mkdir(parents=True, exist_ok=True)
    src = ROOT / "src"
    sources = [Path(__file__).with_name("call.c"), src / "soft/view.c", *src.glob("soft/reference*.c")]
    for room in ("base", "ir", "aten"):
        sources += sorted((src / room).glob("*.c"))
    newest = max(p.stat().st_mtime for p in [*sources, *src.glob("*/*.h"), *src.glob("*/*.def")])
    library = folder / "oracle.so"
    if library.exists() and library.stat().st_mtime > newest:
        return library
    options = ["-std=gnu11", *flags.split(), "-g", "-fPIC", "-ffp-contract=off", "-D_GNU_SOURCE", f"-I{src}"]

    def compile_one(source: Path) -> str:
        target = folder / ("_".join(source.parts[-2:]) + ".o")
        subprocess.run(["cc", *options, "-c", str(source), "-o", str(target)], check=True)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    others = (
        "link_collective",
        "link_fold_reference",
        "soft_custom_call",
        "soft_host_transfer",
    )  # chips, LAPACK, the host
    others = ("link_collective", "link_fold_reference", "soft_custom_call", "soft_host_transfer")
    absent = [f"-Wl,--defsym={name}=0" for name in others]
    subprocess.run(
        ["cc", "-shared", "-o", str(library), *flags.split(), *absent, *objects, "-lm", "-lpthread", "-ldl"],
        check=True,
    )
    return library


def load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build()))
    i, i64, f64, p = ctypes.c_int, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    numbers = ctypes.POINTER(i64)
    lib.call_tensor.argtypes = [i, i, numbers, numbers, i, p]
    lib.call_result.argtypes = [i, i, numbers, numbers, p]
    lib.call_int.argtypes = [i64]
    lib.call_number.argtypes = [i, i64, f64, f64]
    lib.call_seed.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    lib.shape_sizes.restype = lib.shape_strides.restype = numbers
    lib.row_name.restype = lib.call_message.restype = ctypes.c_char_p
    return lib


@dataclasses.dataclass
class Failure:
    """A call whose row disagrees with PyTorch."""

    call: str
    row: str
    what: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.call} (row {self.row}): {self.what}\n    {self.arguments}"


class Rows:
    """The rows of the library, and calls through them."""

    def __init__(self) -> None:
        self.lib = load()
        self.names: set[str] = set()
        while (name := self.lib.row_name(len(self.names))) is not None:
            self.names.add(name.decode())
        self.kept: list[torch.Tensor] = []  # data that a pushed call points to
        self.found: dict[torch._ops.OpOverload, str | None] = {}
        self.results: list[torch.Tensor] = []  # of the last call
        self.print = False

    def serving(self, func: torch._ops.OpOverload) -> str | None:
        """The row of an overload: its own, or its functional form's, as registration pairs them."""
        if func not in self.found:
            self.found[func] = self._find(func._schema)
        return self.found[func]

    def _find(self, schema: torch._C.FunctionSchema) -> str | None:
        base = schema.name.split("::")[1]
        own = f"{base}.{schema.overload_name}" if schema.overload_name else base
        if own in self.names:
            return own
        if base.endswith("_") and not base.endswith("__"):
            base = base[:-1]
        packet = getattr(torch.ops.aten, base, None)
        types = [str(a.type) for a in schema.arguments if not a.is_out]
        for overload in packet.overloads() if packet else []:
            other = getattr(packet, overload)._schema
            name = f"{base}.{other.overload_name}" if other.overload_name else base
            if name in self.names and [str(a.type) for a in other.arguments if not a.is_out] == types:
                return name
        return None

    # ---- pushing a call

    @staticmethod
    def _array(numbers) -> ctypes.Array:
        return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)

    def _tensor(self, t: torch.Tensor | None, flags: int = 0) -> int:
        if t is None:
            return self.lib.call_tensor(CODE[torch.float32], 0, self._array([]), self._array([]), UNDEFINED, None)
        if t.dtype not in CODE or t.layout != torch.strided:
            raise Unsupported
        dense = t.detach().resolve_conj().resolve_neg().contiguous()
        self.kept.append(dense)
        return self.lib.call_tensor(
            CODE[t.dtype], t.dim(), self._array(t.shape), self._array(t.stride()), flags, dense.data_ptr()
        )

    def _number(self, v: complex) -> int:
        if isinstance(v, (bool, int)):
            return self.lib.call_number(CODE[torch.bool if isinstance(v, bool) else torch.int64], int(v), 0.0, 0.0)
        dtype = torch.complex128 if isinstance(v, complex) else torch.float64
        return self.lib.call_number(CODE[dtype], 0, complex(v).real, complex(v).imag)

    def _list(self, kind: int, push, values) -> None:
        first = [push(v) for v in values]
        self.lib.call_arg(kind, first[0] if first else 0, len(values))

    def _argument(self, v, kind: str, unit: bool) -> None:
        one = self.lib.call_arg
        kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
        if v is None:
            one(TENSOR, self._tensor(None), 1) if kind == "Tensor" else one(NONE, 0, 0)
        elif isinstance(v, (torch.layout, torch.device, torch.Generator)):
            one(OTHER, 0, 0)
        elif kind == "Tensor" and not isinstance(v, torch.Tensor):
            wide = torch.tensor(v, dtype={float: torch.float64, complex: torch.complex128}.get(type(v)))
            one(TENSOR, self._tensor(wide, WRAPPED | NUMBER), 1)
        elif kind == "Tensor":
            one(TENSOR, self._tensor(v), 1)
        elif kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            self._list(TENSORS, self._tensor, v)
        elif isinstance(v, torch.dtype):
            if v not in CODE:
                raise Unsupported
            one(INT, self.lib.call_int(CODE[v]), 1)
        elif isinstance(v, torch.memory_format):
            one(INT, self.lib.call_int(FORMATS[v]), 1)
        elif kind in ("int", "SymInt", "bool"):
            one(INT, self.lib.call_int(int(v)), 1)
        elif kind in ("List[int]", "List[SymInt]", "List[bool]"):
            self._list(INTS, lambda x: self.lib.call_int(int(x)), [v] if isinstance(v, int) else v)
        elif kind == "float":
            one(FLOAT, self._number(float(v)), 1)
        elif kind == "number":
            one(NONE, 0, 0) if unit and v == 1 else one(SCALAR, self._number(v), 1)
        elif kind in ("List[float]", "List[number]"):
            self._list(FLOATS if kind == "List[float]" else SCALARS, self._number, v)
        elif kind == "str":
            one(TEXT, self.lib.call_text(v.encode()), 1)
        else:
            one(OTHER, 0, 0)

    def _push(self, schema: torch._C.FunctionSchema, row: str, args: tuple, kwargs: dict) -> None:
        self.lib.call_begin(row.encode())
        self.kept.clear()
        units = self.lib.row_units(row.encode())
        inputs = [(i, a) for i, a in enumerate(schema.arguments) if not a.is_out]
        for position, (i, a) in enumerate(inputs):
            v = args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
            self._argument(v, str(a.type), bool(units >> position & 1))

    # ---- comparing

    def check(self, func, row: str, before: tuple, after: tuple, returned) -> str | None:
        """Repeat a call through its row; None when it agrees, else what differs."""
        schema = func._schema
        expected = expected_results(schema, *after, returned)
        if any(not isinstance(t, torch.Tensor) or t.dtype not in CODE for t in expected):
            return None
        flags = self.lib.row_flags(row.encode())
        if flags & DYNAMIC:
            return None
        try:
            self._push(schema, row, *before)
        except Unsupported:
            return None
        self.results = [torch.zeros(t.shape, dtype=t.dtype) for t in expected]
        for want, got in zip(expected, self.results, strict=True):
            self.lib.call_result(
                CODE[want.dtype], want.dim(), self._array(want.shape), self._array(want.stride()), got.data_ptr()
            )
        functional = not any(a.alias_info and a.alias_info.is_write for a in schema.arguments)
        if functional and self.lib.call_shape() == 1:
            for i, want in enumerate(expected):
                difference = self._shape_difference(i, want)
                if difference:
                    return difference
        self.lib.call_seed(1234567, 8)
        if self.lib.call_run(int(self.print)):
            return "failed: " + self.lib.call_message().decode()
        return None if flags & RNG else value_difference(self.results, expected)

    def _shape_difference(self, i: int, want: torch.Tensor) -> str | None:
        rank = self.lib.shape_rank(i)
        if rank > 16:
            return f"metadata of result {i} was not given"
        sizes, strides = self.lib.shape_sizes(i)[:rank], self.lib.shape_strides(i)[:rank]
        got = (DTYPES[self.lib.shape_dtype(i)], sizes, strides)
        meta = (want.dtype, list(want.shape), list(want.stride()))
        return None if got == meta else f"metadata of result {i}: {got}, PyTorch says {meta}"


def expected_results(schema, args: tuple, kwargs: dict, returned) -> list:
    """What the call gave, in the order of aten.h: returns, then what was written and not returned."""
    values = [] if returned is None else list(returned) if isinstance(returned, (tuple, list)) else [returned]
    flat = [x for v in values for x in (v if isinstance(v, (list, tuple)) else [v])]
    sets = {s for r in schema.returns if r.alias_info for s in r.alias_info.before_set | r.alias_info.after_set}
    for i, a in enumerate(schema.arguments):
        if a.is_out or not (a.alias_info and a.alias_info.is_write) or a.alias_info.before_set & sets:
            continue
        v = args[i] if i < len(args) else kwargs.get(a.name)
        flat += [] if v is None else list(v) if isinstance(v, (list, tuple)) else [v]
    return flat


def value_difference(results: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
    for i, (got, want) in enumerate(zip(results, expected, strict=True)):
        want = want.detach().resolve_conj().resolve_neg()
        if want.dtype.is_floating_point and want.element_size() == 1:
            got, want = got.float(), want.float()
        relative, absolute = TOLERANCE.get(want.dtype, (0, 0))
        close = torch.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True)
        if not close.all():
            at = tuple((~close).nonzero()[0].tolist())
            return f"result {i} at {list(at)}: {got[at].item()}, PyTorch says {want[at].item()} ({want.dtype})"
    return None


def snapshot(x):
    """A copy with the same strides, for arguments that the call will overwrite."""
    if not isinstance(x, torch.Tensor):
        return x
    overlapping = any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True))
    if x.layout != torch.strided or overlapping or not x.numel():
        return x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


def describe(x):
    return (tuple(x.shape), x.dtype, tuple(x.stride())) if isinstance(x, torch.Tensor) else x


class Compare(TorchDispatchMode):
    """Checks every ATen call under it that a row serves."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.rows = rows
        self.calls: collections.Counter[str] = collections.Counter()
        self.failures: list[Failure] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        row = self.rows.serving(func) if func.namespace == "aten" else None
        if row is None:
            return func(*args, **kwargs)
        before = tree_map(snapshot, (args, kwargs)) if func._schema.is_mutable else (args, kwargs)
        returned = func(*args, **kwargs)
        self.calls[row] += 1
        difference = self.rows.check(func, row, before, (args, kwargs), returned)
        if difference:
            self.failures.append(Failure(str(func), row, difference, str(tree_map(describe, before))[:400]))
        return returned

    def run(self, f, *args, **kwargs) -> None:
        """A call of which PyTorch's own error is no failure."""
        try:
            with torch.no_grad(), self:
                f(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
            pass


def run_database(compare: Compare, pattern: str, samples: int, dtypes=None) -> None:
    """Every operator of PyTorch's database that the pattern finds, functional and in place."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if not re.search(pattern, op.name):
            continue
        for dtype in sorted(dtypes or op.supported_dtypes("cpu"), key=str):
            if dtype not in CODE or dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", dtype), samples):
                tensors = [
                    x
                    for x in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
                    if isinstance(x, torch.Tensor)
                ]
                if sum(x.numel() for x in tensors) > 20000:
                    continue  # the reference goes element by element
                compare.run(op.op, sample.input, *sample.args, **sample.kwargs)
                if op.inplace_variant and isinstance(sample.input, torch.Tensor):
                    compare.run(op.inplace_variant, sample.input.detach().clone(), *sample.args, **sample.kwargs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="regular expression for names in the database")
    parser.add_argument("--samples", type=int, default=8, help="at most so many of an operator's samples")
    parser.add_argument("--print", action="store_true", help="print each lowering's StableHLO")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = Rows()
    rows.print = options.print
    compare = Compare(rows)
    run_database(compare, options.pattern, options.samples)
    seen = collections.Counter()
    for failure in compare.failures:
        seen[failure.row] += 1
        if seen[failure.row] <= 3:
            print(failure)
    for row, count in seen.most_common():
        print(f"{row}: {count} of {compare.calls[row]} calls differ")
    print(f"{len(compare.calls)} rows, {sum(compare.calls.values())} calls, {len(compare.failures)} differ")
    return bool(compare.failures)


if __name__ == "__main__":
    sys.exit(main())
