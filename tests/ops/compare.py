"""Runs PyTorch's own operator database on tpu and on the CPU and compares.

An operator's *verdict* in one dtype is ``ok``, ``missing`` (it needs an operator that the device lacks), or ``wrong``
with the first difference. Used by test_opinfo.py, and by hand: ``python tests/ops/compare.py add mul --dtype float32``.
"""

import argparse
import contextlib
import dataclasses
import itertools
import random
import sys
import warnings

import numpy
import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

DTYPES = {
    str(d).split(".")[1]: d
    for d in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float64, torch.complex64, torch.float16, torch.uint8)
}


@dataclasses.dataclass
class Verdict:
    """What became of one operator in one dtype."""

    operator: str
    dtype: str
    outcome: str  # ok, missing, wrong, none (no samples)
    detail: str = ""


def seed() -> None:
    """The same samples every time."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def to_device(value, device: str):
    """Move tensors, keep everything else; grad requirements and strides survive."""

    def move(x):
        if isinstance(x, torch.Tensor):
            strided = x.detach()
            # strides, expanded dimensions and offsets are part of the case: move the storage, then view it again
            plain = strided.resolve_conj().resolve_neg()
            base = torch.empty(0, dtype=x.dtype).set_(plain.untyped_storage()) if plain.numel() else plain
            moved = (
                base.to(device).as_strided(plain.size(), plain.stride(), plain.storage_offset())
                if plain.numel()
                else plain.to(device)
            )
            return moved.requires_grad_(x.requires_grad)
        if isinstance(x, torch.device):
            return torch.device(device)
        return x

    return tree_map(move, value)


def tolerances(op, dtype: torch.dtype) -> dict:
    """PyTorch's own defaults, a little wider where a kernel may sum in another order."""
    default = {
        torch.float32: (1e-5, 2e-6),
        torch.float64: (1e-9, 1e-9),
        torch.bfloat16: (1.6e-2, 1e-3),
        torch.float16: (2e-3, 1e-3),
        torch.complex64: (1e-5, 1e-5),
    }.get(dtype)
    if default is None:
        return {}
    return {"rtol": default[0], "atol": default[1]}


RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "uniform", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "pca_lowrank", "svd_lowrank",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "empty", "empty_like", "empty_strided",
    "new_empty", "new_empty_strided", "empty_permuted", "randperm", "torch.ops.aten._safe_softmax.default",
}


def check_equal(op, dtype, got, expected) -> None:
    """Compare results: structure, metadata, values."""
    got, expected = tree_flatten(got)[0], tree_flatten(expected)[0]
    assert len(got) == len(expected), f"{len(got)} results instead of {len(expected)}"
    for g, e in zip(got, expected, strict=True):
        if not isinstance(e, torch.Tensor):
            assert type(g) is type(e), f"{type(g)} instead of {type(e)}"
            continue
        assert g.dtype == e.dtype, f"dtype {g.dtype} instead of {e.dtype}"
        assert g.shape == e.shape, f"shape {tuple(g.shape)} instead of {tuple(e.shape)}"
        if op.name in RANDOM or op.name.split(".")[-1] in RANDOM:
            continue
        assert_close(g.cpu(), e.cpu(), equal_nan=True, **tolerances(op, e.dtype))


def run_gradients(op, dtype, sample, moved, got, expected) -> None:
    """Backward through one sample on both devices."""

    def leaves(s):
        flat = tree_flatten((s.input, s.args, s.kwargs))[0]
        return [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]

    def scalar(result):
        flat = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
        return sum((t.abs() if t.is_complex() else t).sum() for t in flat) if flat else None

    e, g = scalar(expected), scalar(got)
    if e is None:
        return
    wanted = torch.autograd.grad(e, leaves(sample), allow_unused=True)
    found = torch.autograd.grad(g, leaves(moved), allow_unused=True)
    for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
        assert (w is None) == (f is None), f"gradient {i}: {'missing' if f is None else 'unexpected'}"
        if w is not None and not (op.name in RANDOM):
            tolerance = tolerances(op, dtype)
            assert_close(f.cpu(), w, equal_nan=True, rtol=tolerance["rtol"] * 10, atol=tolerance["atol"] * 10)


def judge(op, dtype: torch.dtype, limit: int, gradients: bool) -> Verdict:
    """Run up to ``limit`` samples of an operator."""
    name = str(dtype).split(".")[1]
    label = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    seed()
    with_grad = gradients and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    count = 0
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=with_grad), limit))
    except Exception as error:
        return Verdict(label, name, "none", str(error)[:200])
    for sample in samples:
        try:
            seed()
            expected = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue  # not the CPU's to refuse: the sample means something else
        moved = sample.transform(lambda x: x)
        moved.input, moved.args, moved.kwargs = to_device((sample.input, sample.args, sample.kwargs), "tpu")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = op(moved.input, *moved.args, **moved.kwargs)
                check_equal(op, dtype, got, expected)
                if with_grad:
                    run_gradients(op, dtype, sample, moved, got, expected)
        except NotImplementedError as error:
            return Verdict(label, name, "missing", str(error).split("\n")[0][:160])
        except Exception as error:
            with contextlib.suppress(Exception):
                torch.tpu.synchronize()
            text = f"sample {count}: {type(error).__name__}: {error}"
            return Verdict(label, name, "wrong", " ".join(text.split())[:300])
        count += 1
    return Verdict(label, name, "ok" if count else "none")


def select(names: list[str]) -> list:
    """Operators of the database by name; all for an empty list."""
    return [op for op in op_db if not names or op.name in names or f"{op.name}.{op.variant_test_name}" in names]


def main() -> int:
    """Print the verdicts that are not ok, and counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES))
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--no-gradients", action="store_true")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator from the i-th")
    parser.add_argument("--verbose", action="store_true", help="name each operator before it runs")
    options = parser.parse_args()
    part, parts = (int(x) for x in options.part.split("/"))
    counts: dict[str, int] = {}
    for op in select(options.operators)[part::parts]:
        for name in options.dtype or ["float32"]:
            dtype = DTYPES[name]
            if dtype not in op.supported_dtypes("cpu"):
                continue
            if options.verbose:
                print(f"{op.name} {op.variant_test_name} {name}", flush=True)
            verdict = judge(op, dtype, options.samples, not options.no_gradients)
            counts[verdict.outcome] = counts.get(verdict.outcome, 0) + 1
            if verdict.outcome not in ("ok", "none"):
                print(f"{verdict.outcome:8} {verdict.operator} {verdict.dtype}: {verdict.detail}", flush=True)
    print(counts)
    return 1 if counts.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
