"""Complex numbers: what holds of their arithmetic."""

import itertools
from math import inf, nan

import pytest
from support import on_both

import torch


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_products_do_not_depend_on_sizes(dtype):
    """One element at a time or many at once: no fused multiply-add sneaks into one of the two."""
    x, y = torch.randn(64, dtype=dtype), torch.randn(64, dtype=dtype)
    for operator in (torch.mul, torch.div):
        many = operator(x.to("tpu"), y.to("tpu")).cpu()
        one = torch.stack([operator(a.to("tpu"), b.to("tpu")).cpu() for a, b in zip(x, y, strict=True)])
        assert torch.equal(torch.view_as_real(many), torch.view_as_real(one))


# ---- complex32, which StableHLO has not: pairs of float16 in memory, computed as complex64 ---------------------------

HALVES = torch.tensor([1 + 2j, -0.1 + 0.3j, 60000 - 6e-8j, complex("inf"), 0j, -7.5 - 1j], dtype=torch.complex32)


def assert_same(actual: torch.Tensor, expected: torch.Tensor):
    assert actual.device.type == "tpu"
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def assert_like_cpu(function, *operands: torch.Tensor):
    """The same values, or the same refusal."""
    try:
        expected = function(*operands)
    except RuntimeError as error:
        with pytest.raises(type(error), match=r"ComplexHalf|complex"):
            function(*(t.to("tpu") for t in operands))
        return
    assert_same(function(*(t.to("tpu") for t in operands)), expected)


def test_complex_half_moves_between_devices():
    x = HALVES.to("tpu")
    assert_same(x, HALVES)
    assert x.element_size() == 4
    assert x.untyped_storage().nbytes() == 24
    assert x[1].item() == HALVES[1].item()
    assert x[:2].tolist() == HALVES[:2].tolist()
    assert str(x.reshape(2, 3).cpu()) in str(x.reshape(2, 3)).replace(", device='tpu:0'", "")
    assert_same(x.to(torch.complex128), HALVES.to(torch.complex128))
    assert_same(torch.arange(4.0, device="tpu").to(torch.complex32), torch.arange(4.0).to(torch.complex32))
    assert_same(torch.zeros(3, dtype=torch.complex32, device="tpu"), torch.zeros(3, dtype=torch.complex32))


def test_complex_half_views_share_memory():
    def run(x):
        parts = torch.view_as_real(x)
        parts[:, 1] += 1
        x[1::2] = 3 - 4j
        x.real[2] = -1
        x.imag[3:].fill_(0.5)
        x.view(torch.int16)[0] = 0x4000
        x.conj()[4] = 5 + 6j
        y = torch.view_as_complex(parts * 2)
        y[:2].copy_(x[4:])
        return x, parts, y, x.reshape(2, 3).t().contiguous(), x.conj().resolve_conj(), x.conj().imag + 0

    for actual, expected in zip(run(HALVES.to("tpu")), run(HALVES.clone()), strict=True):
        assert_same(actual, expected)


@pytest.mark.parametrize(
    "function",
    [
        torch.add,
        torch.sub,
        torch.mul,
        torch.div,
        torch.eq,
        torch.ne,
        torch.pow,
        torch.dot,
        torch.maximum,
        torch.logical_and,
        lambda x, y: torch.where(x.real > 0, x, y),
        lambda x, y: torch.cat([x, y[2:]]),
        lambda x, y: torch.stack([x, y], 1),
        lambda x, y: x.abs(),
        lambda x, y: x.angle(),
        lambda x, y: -x,
        lambda x, y: x.exp(),
        lambda x, y: x[:2].sum(),
        lambda x, y: x.flip(0)[torch.tensor([3, 0], device=x.device)],
        lambda x, y: x * 2.5,
        lambda x, y: x.real * (1 + 2j),
        lambda x, y: torch.complex(x.real, y.imag),
        lambda x, y: x.masked_fill(y.real > 0, 1j),
        lambda x, y: x.nonzero(),
        lambda x, y: x.reshape(2, 3) @ y.reshape(3, 2),
        lambda x, y: x.cumsum(0),
        lambda x, y: x.sort()[0],
    ],
)
def test_complex_half_as_on_the_cpu(function):
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(6, dtype=torch.complex64, generator=generator).to(torch.complex32) for _ in range(2))
    assert_like_cpu(function, x, y)


def test_complex_half_gradient():
    def run(device):
        x = HALVES[:2].to(device).requires_grad_()
        (x * x.conj() * (2 - 1j)).abs().sum().backward()
        return x.grad

    assert_same(run("tpu"), run("cpu"))


def test_complex_half_random_numbers():
    x = torch.randn(4096, dtype=torch.complex32, device="tpu")
    assert x.dtype == torch.complex32
    assert abs(x.to(torch.complex64).abs().square().mean().item() - 1) < 0.1
    for dtype in (torch.complex32, torch.complex64):
        parts = torch.view_as_real(torch.rand(4096, dtype=dtype, device="tpu")).cpu()
        assert parts.min() >= 0
        assert parts.max() < 1
        assert all(abs(part.float().mean() - 0.5) < 0.05 for part in parts.unbind(-1))
    before = torch.get_rng_state()  # whether the CPU has a kernel is asked without drawing its numbers
    torch.randn(3, 5, dtype=torch.complex32, device="tpu")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_infinite_parts(dtype):
    """As on the CPU: sums multiply by an alpha of 1 + 0i, 0 to the 0 is NaN, e^-inf is 0 at any angle."""
    parts = (-inf, -1.0, 0.0, 1.0, inf, nan)
    x = torch.tensor([complex(*pair) for pair in itertools.product(parts, parts)], dtype=dtype)
    on_both(torch.expm1, x)
    on_both(torch.exp, x)
    on_both(torch.exp2, x)
    for operator in (torch.add, torch.sub, torch.rsub, torch.logaddexp):
        on_both(operator, x.repeat(36), x.repeat_interleave(36))
    zeros = torch.zeros(9, dtype=dtype)
    on_both(torch.pow, zeros, torch.arange(-4, 5).to(dtype))


def test_imaginary_exponents_are_told_apart():
    """Exponents are constants of a program: by both of their parts."""
    x = torch.tensor([1.5 + 2j, -0.5 + 0.25j], dtype=torch.complex64)
    for exponent in (1j, 2j, -2.5j, 1 + 1j, 1 + 2j):
        on_both(lambda x, e=exponent: x**e, x)


@pytest.mark.parametrize("sizes", [(), (0,)])
def test_nothing_to_order(sizes):
    for operator in (torch.cummax, torch.cummin):
        for part in (0, 1):
            on_both(lambda x, o=operator, i=part: o(x, 0)[i], torch.ones(sizes, dtype=torch.complex64))
