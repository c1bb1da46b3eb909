"""Second derivatives and forward-mode derivatives, compared with the CPU's in double precision.

PyTorch's own tests hold them against finite differences (gradgradcheck). Against the CPU's they cost one call
instead of two for each element, and the comparison is to nine digits instead of five.
"""

import warnings

import compare
import torch.autograd.forward_ad as forward_ad
from torch.utils._pytree import tree_flatten, tree_map

import torch

DOUBLE = (torch.float64, torch.complex128)
TOLERANCE = (1e-7, 1e-7)  # what cancels in a backward formula is not as exact as the operator


def has_second(op, dtype: torch.dtype) -> bool:
    """Does the database say that there are second derivatives?"""
    return op.supports_gradgrad and dtype in DOUBLE and dtype in op.supported_backward_dtypes("cpu")


def has_forward(op, dtype: torch.dtype) -> bool:
    """Does the database say that there are forward derivatives?"""
    return op.supports_forward_ad and dtype in DOUBLE and dtype in op.supported_backward_dtypes("cpu")


def weights_for(values: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Random numbers in the sizes of each, the same on every device."""
    return [torch.randn(t.shape, dtype=t.dtype).to(device).requires_grad_() for t in values]


def differentiable(values) -> list[torch.Tensor]:
    """The tensors that a derivative exists of."""
    return [t for t in tree_flatten(values)[0] if isinstance(t, torch.Tensor) and t.requires_grad]


def second_derivatives(op, sample, device: str) -> list:
    """Of a weighted sum of first derivatives, by the operands and by what came in from above."""
    compare.seed()
    results = differentiable(op(sample.input, *sample.args, **sample.kwargs))
    leaves = compare.leaves(sample)
    compare.seed(1)
    above = weights_for(results, device)
    first = torch.autograd.grad(results, leaves, above, create_graph=True, allow_unused=True)
    first = differentiable(first)
    if not first:
        return []
    return list(torch.autograd.grad(first, leaves + above, weights_for(first, device), allow_unused=True))


def forward_derivatives(op, sample, device: str) -> list:
    """The results' tangents, for random tangents of all operands."""
    compare.seed(1)

    def dual(t):
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()):
            return t
        return forward_ad.make_dual(t.detach(), torch.randn(t.shape, dtype=t.dtype).to(device))

    with forward_ad.dual_level():
        inputs = tree_map(dual, (sample.input, sample.args, sample.kwargs))
        compare.seed()
        results = op(inputs[0], *inputs[1], **inputs[2])
        flat = [t for t in tree_flatten(results)[0] if isinstance(t, torch.Tensor)]
        return [forward_ad.unpack_dual(t).tangent for t in flat]


def check(op, sample, derivatives, what: str) -> None:
    """Compare one kind of derivative."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = derivatives(op, sample, "cpu")
        except Exception:
            return  # there is none on the CPU for this sample
        found = derivatives(op, compare.move_sample(op, sample), "tpu")
    assert len(found) == len(expected), f"{what}: {len(found)} instead of {len(expected)}"
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        if f is None or e is None:
            zero = f if e is None else e
            assert zero is None or not zero.any(), f"{what} {i}: {'missing' if f is None else 'unexpected'}"
            continue
        try:
            compare.check_close(op, f.detach().cpu(), e.detach(), lambda: None, TOLERANCE)
        except compare.Different as error:
            if not compare.Oracle(op, sample).is_random():
                raise compare.Different(f"{what} {i}: {error}") from None


def check_second(op, dtype: torch.dtype, sample) -> None:
    """Second derivatives."""
    check(op, sample, second_derivatives, "second derivative")


def check_forward(op, dtype: torch.dtype, sample) -> None:
    """Forward-mode derivatives."""
    check(op, sample, forward_derivatives, "tangent")
