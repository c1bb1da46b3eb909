"""Compares a result on tpu with the same call's on the CPU.

Samples move between the two with their strides, offsets and bits; values are close within PyTorch's own tolerances,
or as close as the CPU's are to the same computation in double precision.
"""

import contextlib
import random
import unittest.mock
import warnings

import numpy
from torch.testing import assert_close
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.utils._pytree import tree_flatten, tree_map

import torch

DTYPES = {
    str(d).split(".")[1]: d
    for d in (
        torch.float32,
        torch.int64,
        torch.bool,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.float16,
        torch.uint8,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.complex128,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.complex32,
    )
}  # all that tpu has; PyTorch's CPU also has two more float8


def seed(value: int = 0) -> None:
    """The same samples every time."""
    torch.manual_seed(value)
    random.seed(value)
    numpy.random.seed(value)  # noqa: NPY002 - the generator that the database draws from


def move_tensor(x: torch.Tensor, device: str) -> torch.Tensor:
    """The same tensor elsewhere: strides, expanded dimensions, offset, conj and neg bits are part of the case."""
    if x.is_conj():
        return move_tensor(x.conj(), device).conj()
    if x.is_neg():
        return torch._neg_view(move_tensor(torch._neg_view(x), device))
    if x.numel() == 0:
        return x.to(device)
    base = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    return base.to(device).as_strided(x.size(), x.stride(), x.storage_offset())


def to_device(value, device: str):
    """Move tensors and names of devices, keep everything else; what requires a gradient goes on doing so."""

    def move(x):
        if isinstance(x, torch.Tensor):
            return move_tensor(x.detach(), device).requires_grad_(x.requires_grad)
        if isinstance(x, torch.device) or x == "cpu":
            return torch.device(device)
        return x

    return tree_map(move, value)


WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def to_wider(value):
    """Every tensor and dtype argument in double precision."""

    def widen(x):
        if isinstance(x, torch.Tensor) and x.dtype in WIDER:
            return x.detach().to(WIDER[x.dtype]).requires_grad_(x.requires_grad)
        if isinstance(x, torch.dtype):
            return WIDER.get(x, x)
        return x

    return tree_map(widen, value)


DEFAULT_TOLERANCES = {  # relative, absolute
    torch.float32: (1e-5, 2e-6),
    torch.float64: (1e-9, 1e-9),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-3),
    torch.complex32: (2e-3, 1e-3),
    torch.complex64: (1e-5, 1e-5),
    torch.complex128: (1e-9, 1e-9),
}


def tolerances(op, dtype: torch.dtype) -> tuple[float, float]:
    """Relative and absolute: the defaults above, or what PyTorch's own tests allow the operator where that is more."""
    relative, absolute = DEFAULT_TOLERANCES.get(dtype, (0.0, 0.0))
    for info in op.decorators or ():
        if getattr(info, "device_type", None) not in (None, "cpu"):
            continue
        for decorator in getattr(info, "decorators", (info,)):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                absolute = max(absolute, decorator.d[dtype].atol)
                relative = max(relative, decorator.d[dtype].rtol)
            elif isinstance(decorator, precisionOverride) and dtype in decorator.d:
                absolute = max(absolute, decorator.d[dtype])
    return relative, absolute


UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}  # any values
TIES = {
    "sort",
    "argsort",
    "topk",
    "kthvalue",
    "mode",
}  # which of several equal elements an index names is not specified
HOST_ARGUMENTS = {"tensor_split"}  # PyTorch wants the tensors among their arguments on the CPU, on every device


def same_numbers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where two tensors are equal, NaN equal to itself, in both parts of complex numbers."""
    if a.is_complex():
        return same_numbers(a.real, b.real) & same_numbers(a.imag, b.imag)
    return (a == b) | (a.isnan() & b.isnan())


def as_accurate(got: torch.Tensor, expected: torch.Tensor, exact, tolerance: tuple[float, float]) -> bool:
    """Is our error against the same computation in double precision within the tolerance, or twice the CPU's error?

    The CPU's error is that of its worst element: a rounding that happens to be lucky in one place asks nothing of us.
    """
    if not isinstance(exact, torch.Tensor) or exact.shape != got.shape or exact.dtype != WIDER.get(got.dtype):
        return False
    finite = torch.isfinite(exact) & torch.isfinite(expected)
    infinite = same_numbers(got, expected) | same_numbers(got, exact.to(got.dtype))  # noise may decide the CPU's signs
    if not bool((finite | infinite).all()):
        return False
    got, expected, exact = (t[finite].to(exact.dtype) for t in (got, expected, exact))
    theirs, ours = (expected - exact).abs(), (got - exact).abs()
    allowed = tolerance[1] + tolerance[0] * exact.abs()
    if theirs.numel() > 0:
        allowed = allowed.clamp(min=2 * theirs.max().item())
    return bool((ours <= allowed).all())


def without_complex32(x: torch.Tensor) -> torch.Tensor:
    """Values of complex32 as complex64, which more operators take; the CPU cannot copy two bits of a view at once."""
    if x.dtype != torch.complex32:
        return x
    if x.is_neg():
        return -without_complex32(torch._neg_view(x))
    return without_complex32(x.conj()).conj() if x.is_conj() else x.to(torch.complex64)


def check_close(op, got: torch.Tensor, expected: torch.Tensor, exact, tolerance: tuple[float, float]) -> None:
    """Compare values; ``exact()`` gives the result in double precision, which decides where the two differ."""
    got, expected = without_complex32(got), without_complex32(expected)
    try:
        assert_close(got, expected, equal_nan=True, rtol=tolerance[0], atol=tolerance[1])
    except AssertionError as error:
        if expected.dtype in WIDER and as_accurate(got.resolve_conj(), expected.resolve_conj(), exact(), tolerance):
            return
        raise Different(str(error)) from None


class Oracle:
    """What the CPU says about a sample beyond its result, computed when a comparison asks for it."""

    def __init__(self, op, sample):
        self.op, self.sample, self.values, self.slopes = op, sample, None, None

    def results(self) -> list:
        """The results in double precision, flat; empty when the operator does not run so."""
        if self.values is None:
            self.values = []
            self.wide = self.sample.transform(lambda x: x)
            self.wide.input, self.wide.args, self.wide.kwargs = to_wider(
                (self.sample.input, self.sample.args, self.sample.kwargs)
            )
            with contextlib.suppress(Exception):
                seed()
                self.values = tree_flatten(self.op(self.wide.input, *self.wide.args, **self.wide.kwargs))[0]
        return self.values

    def result(self, i: int):
        """Result i in double precision, or None."""
        values = self.results()
        return values[i].detach() if i < len(values) and isinstance(values[i], torch.Tensor) else None

    def gradient(self, i: int):
        """The gradient of leaf i in double precision, or None."""
        if self.slopes is None:
            self.slopes = []
            with contextlib.suppress(Exception):
                self.slopes = torch.autograd.grad(scalar(self.results()), leaves(self.wide), allow_unused=True)
        return self.slopes[i] if i < len(self.slopes) else None

    def is_random(self) -> bool:
        """Do the values depend on the generator, or on memory that nothing has written?"""
        if self.op.name in UNWRITTEN:
            return True
        runs, manual_seed = [], torch.manual_seed
        for value in range(6):  # several: few numbers are drawn, of few values
            seed(value)
            # many entries of the database seed the generator themselves
            with unittest.mock.patch.object(
                torch, "manual_seed", lambda given, value=value: manual_seed(given + value)
            ):
                flat = tree_flatten(self.op(self.sample.input, *self.sample.args, **self.sample.kwargs))[0]
                runs.append([without_complex32(t.detach()).clone() if isinstance(t, torch.Tensor) else t for t in flat])
        tensors = [results for results in zip(*runs, strict=True) if isinstance(results[0], torch.Tensor)]
        return any(not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, *rest in tensors for b in rest)

    def dim(self) -> int:
        """The dimension along which an operator of TIES orders elements."""
        first = 1 if self.op.name in ("topk", "kthvalue") else 0  # where the argument dim is
        return self.sample.kwargs.get("dim", next((a for a in self.sample.args[first:] if type(a) is int), -1))

    def same_elements(self, i: int, got: torch.Tensor, expected: torch.Tensor) -> bool:
        """Do two results of indices name equal elements of the input?"""
        x, name = self.sample.input, self.op.name
        if name not in TIES or i != (0 if name == "argsort" else 1) or x.dim() == 0:
            return False
        dim = self.dim()
        if expected.dim() < x.dim():
            got, expected = got.unsqueeze(dim), expected.unsqueeze(dim)
        return torch.equal(x.gather(dim, got), x.gather(dim, expected))

    def in_order(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient of an operator of TIES, ordered by the elements it belongs to, and among equal ones by itself."""
        if self.op.name not in TIES or gradient is None or self.sample.input.dim() == 0:
            return gradient
        x, dim = self.sample.input.detach(), self.dim()
        order = gradient.argsort(dim=dim, stable=True)
        order = order.gather(dim, x.gather(dim, order).argsort(dim=dim, stable=True))
        return gradient.gather(dim, order)


class Different(AssertionError):
    """Values that are not close."""


def meta_dtypes(op, sample) -> list:
    """The dtypes that Meta promises; the CPU's own differ for statistics of half floats, which it rounds."""
    with contextlib.suppress(Exception):
        inputs, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), "meta")
        return [getattr(t, "dtype", None) for t in tree_flatten(op(inputs, *args, **kwargs))[0]]
    return []


def is_placed(sample) -> bool:
    """Does the sample say where its results are? A product of two Python numbers is always on the CPU."""
    flat = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return any(isinstance(x, (torch.Tensor, torch.device)) for x in flat) or "device" in sample.kwargs


def check_metadata(op, sample, got, expected) -> None:
    """Compare results but not the tensors' values."""
    got, expected = tree_flatten(got)[0], tree_flatten(expected)[0]
    assert len(got) == len(expected), f"{len(got)} results instead of {len(expected)}"
    for g, e in zip(got, expected, strict=True):
        if not isinstance(e, torch.Tensor):
            assert type(g) is type(e), f"{type(g)} instead of {type(e)}"
            continue
        assert g.device.type == ("tpu" if is_placed(sample) else "cpu"), f"the result is on {g.device}"
        fits = g.dtype == e.dtype or [t.dtype for t in got] == meta_dtypes(op, sample)
        assert fits, f"dtype {g.dtype} instead of {e.dtype}"
        assert g.shape == e.shape, f"shape {tuple(g.shape)} instead of {tuple(e.shape)}"
        assert g.requires_grad == e.requires_grad, f"requires_grad is {g.requires_grad}"


def check_values(op, got, expected, oracle: Oracle) -> None:
    """Compare the values of all results."""
    pairs = zip(tree_flatten(got)[0], tree_flatten(expected)[0], strict=True)
    for i, (g, e) in enumerate(pairs):
        if isinstance(e, torch.Tensor):
            g, e = g.detach().cpu().to(e.dtype), e.detach()
            if not oracle.same_elements(i, g, e):
                check_close(op, g, e, lambda i=i: oracle.result(i), tolerances(op, e.dtype))
        elif isinstance(e, (bool, int)) and g != e:
            raise Different(f"{g} instead of {e}")


def leaves(sample) -> list:
    """The tensors that want a gradient."""
    flat = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]


def scalar(result):
    """One real number of all results that have a gradient; None if there is none."""
    flat = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    return sum((t.abs() if t.is_complex() else t).sum() for t in flat) if flat else None


def check_gradients(op, sample, moved, got, expected, oracle: Oracle) -> None:
    """Backward through one sample on both devices."""
    e, g = scalar(expected), scalar(got)
    if e is None:
        return
    try:
        wanted = torch.autograd.grad(e, leaves(sample), allow_unused=True)
    except Exception:
        return  # the CPU has none for this sample
    found = torch.autograd.grad(g, leaves(moved), allow_unused=True)
    through = tolerances(op, e.dtype)  # what passed through a narrower dtype is no better than that
    for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
        assert (w is None) == (f is None), f"gradient {i}: {'missing' if f is None else 'unexpected'}"
        if w is None:
            continue
        own = tolerances(op, w.dtype)
        try:
            check_close(
                op,
                oracle.in_order(f.cpu()),
                oracle.in_order(w),
                lambda i=i: oracle.in_order(oracle.gradient(i)),
                tuple(10 * max(t) for t in zip(own, through, strict=True)),
            )
        except Different as error:
            raise Different(f"gradient {i}: {error}") from None


def move_sample(op, sample):
    """A sample on the device."""
    moved = sample.transform(lambda x: x)
    moved.input, moved.args, moved.kwargs = to_device((sample.input, sample.args, sample.kwargs), "tpu")
    if op.name in HOST_ARGUMENTS:
        moved.args, moved.kwargs = sample.args, sample.kwargs
    return moved


def check_sample(op, sample, expected, with_grad: bool) -> None:
    """Run one sample on the device and compare; raises what is wrong."""
    check_moved(op, sample, move_sample(op, sample), expected, with_grad)


def check_moved(op, sample, moved, expected, with_grad: bool) -> None:
    """Run what a sample has become on the device and compare."""
    oracle = Oracle(op, sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed()
        got = op(moved.input, *moved.args, **moved.kwargs)
        check_metadata(op, sample, got, expected)
        try:
            check_values(op, got, expected, oracle)
            if with_grad:
                check_gradients(op, sample, moved, got, expected, oracle)
        except Different:
            if not oracle.is_random():
                raise
