"""Rows against PyTorch's CPU kernels: layouts, promotion, special values, lists, optimizers, random numbers.

What oracle.py's run over PyTorch's operator database does not reach. Needs a C compiler, no device."""

import itertools
import math

import pytest
from oracle import Compare, Rows, run_database

import torch

A = torch.ops.aten
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ALL = [torch.bool, *INTEGERS, *FLOATS, torch.complex64, torch.complex128]


@pytest.fixture(scope="session")
def rows():
    return Rows()


@pytest.fixture
def compare(rows):
    torch.manual_seed(0)
    mode = Compare(rows)
    yield mode
    assert not mode.failures, "\n".join(map(str, mode.failures[:10]))


def make(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape).to(dtype)


def layouts(shape):
    """Tensors of a shape: contiguous, permuted, strided, expanded, channels last."""
    yield make(shape, torch.float32)
    if len(shape) < 2:
        return
    order = [*range(1, len(shape)), 0]
    yield make([shape[i] for i in order], torch.float32).permute([order.index(i) for i in range(len(shape))])
    yield make([2 * n for n in shape], torch.float32)[tuple(slice(None, None, 2) for _ in shape)]
    yield make([1, *shape[1:]], torch.float32).expand(shape)
    if len(shape) == 4:
        yield make(shape, torch.float32).contiguous(memory_format=torch.channels_last)


SHAPES = [(2, 3, 4, 5), (3, 4), (1, 3, 1, 2), (4,), (), (0, 3), (2, 1, 3), (2, 3, 1, 1), (5, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts(compare, shape):
    for x in layouts(shape):
        for f in (torch.exp, torch.isnan, torch.abs, torch.clone, torch.zeros_like, torch.sum, lambda x: x + 2.5,
                  lambda x: x > 1, lambda x: x**2, lambda x: x.clamp(-1, 1), lambda x: torch.full_like(x, 3),
                  lambda x: x.double(), lambda x: torch.cumsum(x, 0), lambda x: torch.flip(x, [0])):  # fmt: skip
            compare.run(f, x)
        for dim, keep in itertools.product(range(len(shape)), (False, True)):
            for f in (torch.sum, torch.mean, torch.amax, torch.argmax, torch.var, torch.logsumexp):
                compare.run(f, x, dim, keepdim=keep)
            compare.run(torch.max, x, dim, keepdim=keep)
            compare.run(torch.linalg.vector_norm, x, dim=dim, keepdim=keep)
        for other in [(1,) * len(shape), shape[-1:], shape, (3, *shape), ()]:
            for y in layouts(other):
                compare.run(torch.add, x, y)
                compare.run(torch.where, y > 0, x, y)
                compare.run(torch.lt, y, x)


@pytest.mark.parametrize("a", ALL, ids=str)
def test_promotion(compare, a):
    functions = [torch.add, torch.mul, torch.div, torch.eq, torch.lt, torch.maximum, torch.logical_and,
                 torch.bitwise_or, lambda x, y: torch.where(torch.ones(2, dtype=torch.bool), x, y)]  # fmt: skip
    for b, (left, right) in itertools.product(ALL, [((3, 2), (3, 2)), ((3, 2), ()), ((), (2,)), ((), ())]):
        for f in functions:
            compare.run(f, make(left, a), make(right, b))
    numbers = (2, 2.5, True, 1 + 2j, -3)
    for f, number in itertools.product(
        [*functions[:5], torch.sub, torch.remainder, torch.fmod, torch.pow, torch.clamp_min], numbers
    ):
        compare.run(f, make((3, 2), a), number)
    for b in ALL:
        compare.run(lambda b=b: make((3, 2), a).to(b))
        compare.run(lambda b=b: make((3, 2), b).copy_(make((2,), a)))


SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 3, 7, -7, 0.1, 8, 1000]
UNARY = (
    "abs acos acosh angle asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac isinf "
    "isnan isneginf isposinf lgamma log log10 log1p log2 logical_not logit nan_to_num neg reciprocal round rsqrt sgn "
    "sigmoid sign signbit sin sinc sinh sqrt tan tanh trunc sum amax amin argmax argmin prod nansum median "
    "nanmedian any all std var"
).split()
BINARY = (
    "add div pow remainder fmod atan2 maximum fmax fmin copysign heaviside hypot xlogy logaddexp floor_divide eq le"
).split()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(compare, dtype):
    v = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    x, y = torch.meshgrid(v, v, indexing="ij")
    for name in UNARY:
        compare.run(getattr(torch, name), v)
    for name in BINARY:
        compare.run(getattr(torch, name), x, y)
    for mode in ("trunc", "floor"):
        compare.run(torch.div, x, y, rounding_mode=mode)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 4, 2.5, -3):
        compare.run(torch.pow, v, exponent)
    for order in (0, 1, 2, 3, math.inf, -math.inf):
        compare.run(torch.linalg.vector_norm, v[:10], order)
    compare.run(torch.clamp, v, -1, math.nan)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(compare, dtype):
    v = torch.tensor([0, 1, -1, 2, -2, 7, -7, 127, -128, 100]).to(dtype)
    x, y = torch.meshgrid(v, v, indexing="ij")
    divisor = torch.where(y == 0, 3, y).to(dtype)
    for f in (torch.remainder, torch.fmod, torch.floor_divide, torch.gcd, torch.lcm):
        compare.run(f, x, divisor)
    for mode in (None, "trunc", "floor"):
        compare.run(torch.div, x, divisor, rounding_mode=mode)
    for f in (torch.bitwise_left_shift, torch.bitwise_right_shift, torch.bitwise_xor, torch.mul, torch.pow):
        compare.run(f, x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64], ids=str)
def test_foreach(compare, rows, dtype):
    def tensors():
        return [(make(s, dtype).abs() + 0.5).to(dtype) for s in ((3,), (2, 2), (), (0,))]

    whole = dtype == torch.int64
    given = {
        "number": 2 if whole else 1.5,
        "List[number]": [1, 2, 3, 4] if whole else [1.5, 2.0, 3.0, 0.25],
        "bool": False,
    }
    for name in sorted({n.split(".")[0].rstrip("_") for n in rows.names if n.startswith("_foreach")}):
        for packet in (getattr(A, name, None), getattr(A, name + "_", None)):
            for overload in packet.overloads() if packet else []:
                f = getattr(packet, overload)
                if any(a.is_out for a in f._schema.arguments):
                    continue
                scalars = torch.rand(4) + 1 if "addc" in name else torch.tensor(1.5)
                kinds = [str(a.type) for a in f._schema.arguments if not a.kwarg_only]
                args = [tensors() if k == "List[Tensor]" else scalars if k == "Tensor" else given.get(k) for k in kinds]
                compare.run(f, *args)
                if any(a.name == "alpha" for a in f._schema.arguments):
                    compare.run(f, *args, alpha=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_optimizers(compare, dtype):
    def params(positive=False):
        made = [torch.randn(s, dtype=dtype) for s in ((3,), (2, 2), (5, 1))]
        return [x.abs() for x in made] if positive else made

    steps = [torch.tensor(float(i + 1)) for i in range(3)]
    scaling = itertools.product((False, True), (None, torch.tensor(4.0)), (None, torch.tensor(0.0), torch.tensor(1.0)))
    for maximize, scale, found in scaling:
        shared = {"weight_decay": 0.01, "maximize": maximize, "grad_scale": scale, "found_inf": found}
        for f, amsgrad in itertools.product((A._fused_adam_, A._fused_adamw_), (False, True)):
            options = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": amsgrad, **shared}
            largest = params(True) if amsgrad else []
            compare.run(f.default, params(), params(), params(), params(True), largest, steps, lr=1e-3, **options)
            compare.run(
                f.tensor_lr,
                params(),
                params(),
                params(),
                params(True),
                largest,
                steps,
                lr=torch.tensor(1e-3),
                **options,
            )
        for momentum, nesterov, first in itertools.product((0.0, 0.9), (False, True), (False, True)):
            options = {
                "momentum": momentum,
                "nesterov": nesterov and momentum > 0,
                "dampening": 0.0,
                "is_first_step": first,
                **shared,
            }
            compare.run(A._fused_sgd_.default, params(), params(), params() if momentum else [], lr=0.1, **options)
        compare.run(
            A._fused_adagrad_.default,
            params(),
            params(),
            params(True),
            steps,
            lr=0.1,
            lr_decay=0.1,
            eps=1e-10,
            **shared,
        )


def test_mixed_precision(compare):
    good, bad = [torch.randn(3), torch.randn(2, 2)], [torch.randn(3), torch.tensor([1.0, math.inf])]
    for grads in (good, bad):
        compare.run(A._amp_foreach_non_finite_check_and_unscale_.default, grads, torch.zeros(1), torch.tensor(0.5))
    for done, found in itertools.product((0, 3), (0.0, 1.0)):
        tracker = torch.tensor(done, dtype=torch.int32)
        compare.run(A._amp_update_scale_.default, torch.tensor(65536.0), tracker, torch.tensor(found), 2.0, 0.5, 4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_creation(compare, dtype):
    for args in ((5,), (2, 9), (2, 9, 2), (10, 1, -3), (0, 0), (0, 2, 0.3)):
        compare.run(torch.arange, *args, dtype=dtype)
    for n in (0, 1, 2, 5, 8):
        compare.run(torch.linspace, 1, 9, n, dtype=dtype)
        compare.run(torch.logspace, 0, 2, n, dtype=dtype)
    for rows_, columns, offset in (
        (4, 4, 0),
        (3, 7, 1),
        (7, 3, -2),
        (5, 5, -9),
        (5, 5, 9),
        (0, 3, 0),
        (50, 40, 7),
        (8, 3, 5),
    ):
        for f in (torch.tril_indices, torch.triu_indices):
            compare.run(f, rows_, columns, offset)
            compare.run(f, rows_, columns, -offset)


def normalised(sample, mean, deviation):
    """How many of its own deviations a sample's mean is off; and the ratio of the deviations."""
    x = sample.double().flatten()
    return abs(float((x.mean() - mean) / (deviation / math.sqrt(x.numel())))), float(x.std() / deviation)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda x: x.uniform_(-1, 3), 1, 4 / math.sqrt(12)),
        (lambda x: x.normal_(2, 3), 2, 3),
        (lambda x: x.exponential_(2.0), 0.5, 0.5),
        (lambda x: x.geometric_(0.3), 1 / 0.3, math.sqrt(0.7) / 0.3),
        (lambda x: x.bernoulli_(0.3), 0.3, math.sqrt(0.21)),
        (lambda x: x.random_(3, 9), 5.5, math.sqrt(35 / 12)),
        (lambda x: torch.poisson(torch.full_like(x, 3.0)), 3, math.sqrt(3)),
        (lambda x: torch.poisson(torch.full_like(x, 9000.0)), 9000, math.sqrt(9000)),
        (lambda x: A._standard_gamma(torch.full_like(x, 0.3)), 0.3, math.sqrt(0.3)),
        (lambda x: A._standard_gamma(torch.full_like(x, 5.0)), 5, math.sqrt(5)),
    ],
    ids=[
        "uniform",
        "normal",
        "exponential",
        "geometric",
        "bernoulli",
        "random",
        "poisson",
        "poisson_large",
        "gamma_small",
        "gamma",
    ],
)
def test_distributions(compare, rows, dtype, draw, mean, deviation):
    compare.run(draw, torch.empty(10000, dtype=dtype))
    off, ratio = normalised(rows.results[0], mean, deviation)
    assert off < 5
    assert abs(ratio - 1) < 0.06


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_stays_below_its_end(compare, rows, dtype):
    compare.run(lambda: torch.empty(20000, dtype=dtype).uniform_(0.25, 1))
    assert rows.results[0].min() >= 0.25
    assert rows.results[0].max() < 1


def test_permutations_and_choices(compare, rows):
    compare.run(torch.randperm, 1000)
    assert sorted(rows.results[0].tolist()) == list(range(1000))
    weights = torch.tensor([0.0, 1, 2, 3, 0, 4])
    compare.run(torch.multinomial, weights.expand(500, 6), 3)
    assert all(len(set(row)) == 3 and not {0, 4} & set(row) for row in rows.results[0].tolist())
    compare.run(torch.multinomial, weights, 20000, True)
    share = torch.bincount(rows.results[0], minlength=6) / 20000
    assert torch.allclose(share, weights / 10, atol=0.02)


@pytest.mark.parametrize(
    "pattern", ["^special_", "^(cum|log)", "^(std|var|norm|linalg.vector_norm)", "^(isin|roll|repeat|tril|triu|flip)"]
)
def test_database(compare, pattern):
    run_database(compare, pattern, samples=3, dtypes=[torch.float32, torch.int64])
    # ties are broken by other rules, and long recurrences cancel
    compare.failures = [
        f for f in compare.failures if f.row not in ("mode", "kthvalue", "special_hermite_polynomial_he")
    ]
