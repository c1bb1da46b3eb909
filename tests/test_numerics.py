"""Elementary functions against their true values; special values, integers, casts and promotion against the CPU.

The functions and their true values are in truth.py. Each is held to its bar on every level of kernels that the machine
has, which ``TTPU_CPU`` chooses when a process starts: so the lower ones are computed in a process of their own.
"""

import functools
import itertools
import math
import os
import pathlib

import numpy
import pytest
import truth
from support import in_fresh_python, on_both

import torch

F = torch.nn.functional
FUNCTIONS = {f.name: f for f in truth.FUNCTIONS}
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WIDTHS = {"f32": numpy.float32, "f64": numpy.float64}
inf, nan = math.inf, math.nan


# ---- functions -------------------------------------------------------------------------------------------------------


@functools.cache
def true_values(name: str, width: str):
    """Arguments and true values of a function; a quarter of the arguments will do in f64, which has one path."""
    operands = truth.arguments(FUNCTIONS[name], WIDTHS[width])
    operands = [o[:: 1 if width == "f32" else 4] for o in operands]
    return operands, *truth.true_values(FUNCTIONS[name], operands)


def evaluate(device: str, name: str, width: str) -> numpy.ndarray:
    """A function of its arguments on a device."""
    operands = truth.arguments(FUNCTIONS[name], WIDTHS[width])
    operands = [torch.from_numpy(o[:: 1 if width == "f32" else 4].copy()).to(device) for o in operands]
    return FUNCTIONS[name].operator(*operands).cpu().numpy()


@pytest.fixture(scope="module", params=["portable", "avx2", None])
def results(request, tmp_path_factory) -> dict[str, numpy.ndarray]:
    """All functions on tpu, on one level of kernels; None: the machine's own."""
    cases = [(name, width) for name in FUNCTIONS for width in WIDTHS]
    if request.param is None:
        return {f"{name} {width}": evaluate("tpu", name, width) for name, width in cases}
    path = tmp_path_factory.mktemp("numerics") / f"{request.param}.npz"
    here = str(pathlib.Path(__file__).parent)
    code = f"""
import sys
sys.path.insert(0, {here!r})
import numpy, test_numerics as t
numpy.savez({str(path)!r}, **{{f"{{n}} {{w}}": t.evaluate("tpu", n, w) for n in t.FUNCTIONS for w in t.WIDTHS}})
"""
    in_fresh_python(
        code, TTPU_CPU=request.param, PYTHONPATH=os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    return dict(numpy.load(path))


# Where the CPU misses the bar itself, its own error counts, with a margin for the order of the operations: near zeros a
# result is the difference of two almost equal numbers. (In f64 such functions are computed in f64, here as there.)
MARGINS = {"f32": 1.5, "f64": 8}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("width", WIDTHS)
def test_function_is_accurate(results, name, width):
    operands, high, rest = true_values(name, width)
    y = results[f"{name} {width}"]
    error, own = truth.ulps(y, high, rest), truth.ulps(evaluate("cpu", name, width), high, rest)
    bar = FUNCTIONS[name].ulp if width == "f32" else FUNCTIONS[name].wide_ulp
    allowed = max(bar, own.max() * MARGINS[width] if own.max() > bar else 0)
    i = int(error.argmax())
    at = [o[i].item() for o in operands]
    assert error[i] <= allowed, (
        f"{name}{at} is {y[i]}, which is {error[i]:.3g} ULP from {high[i]!r}; CPU's worst: {own.max():.3g}"
    )


def rank(x: torch.Tensor) -> torch.Tensor:
    """The place of a half-precision number among all of them, so that neighbours differ by 1."""
    bits = x.view(torch.int16).to(torch.int32)
    return torch.where(bits < 0, -32768 - bits, bits)


def supports_half(function: truth.Function) -> bool:
    try:
        function.operator(*[torch.ones(2, dtype=torch.bfloat16)] * function.operands)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if supports_half(f)])
def test_function_is_rounded_once_in_half_precision(name, dtype):
    """Every bit pattern; pairs by a permutation. The reference is the CPU's f64 result, rounded."""
    function = FUNCTIONS[name]
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    if "gamma" in name and name != "lgamma" and name != "digamma":
        every = every[every > 0]  # far to the left CPU's sum does not end
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(1))
    operands = [every, every[order]][: function.operands]
    wanted = function.operator(*[o.double() for o in operands]).to(dtype)

    def distance(y):
        apart = torch.where(wanted.isnan() & y.isnan(), 0, (rank(y) - rank(wanted)).abs())
        return torch.where(wanted.isnan() != y.isnan(), 65536, apart)

    ours = distance(function.operator(*[o.to("tpu") for o in operands]).cpu())
    allowed = max(1, int(distance(function.operator(*operands)).max()))
    i = int(ours.argmax())
    assert ours[i] <= allowed, (
        f"{name}{[o[i].item() for o in operands]} is {int(ours[i])} steps from {wanted[i].item()}"
    )


# ---- special values --------------------------------------------------------------------------------------------------


def special_numbers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    edge = [info.max, info.min, info.tiny, -info.tiny, info.tiny / 4, -info.tiny / 4, info.eps]
    plain = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -2.5, 7.0, -7.0, 1e4, -1e4, 0.1, -0.1]
    return torch.tensor([*plain, inf, -inf, nan, *edge], dtype=torch.float64).to(dtype)


def assert_identical(function, *operands, near: float = 0, zeros: bool = True) -> None:
    """The same numbers on tpu as on the CPU: NaN at the same places, zeros of the same sign unless not `zeros`, others
    within `near` ULP."""
    expected = function(*operands)
    actual = function(*[o.to("tpu") if isinstance(o, torch.Tensor) else o for o in operands])
    several = isinstance(expected, (tuple, list))
    for a, e in zip(actual if several else [actual], expected if several else [expected], strict=True):
        a = a.cpu()
        assert a.dtype == e.dtype and a.shape == e.shape
        if e.dtype.is_complex:
            a, e = torch.view_as_real(a), torch.view_as_real(e)
        same = a == e
        if e.dtype.is_floating_point:
            same = (same & ((a.signbit() == e.signbit()) | (not zeros))) | (a.isnan() & e.isnan())
            if near:
                info = torch.finfo(e.dtype)
                unit = info.eps * torch.maximum(a.abs(), e.abs()).clamp_min(info.tiny)
                same |= (a != 0) & (e != 0) & ((a - e).abs() <= near * unit)
        if not same.all():
            i = tuple((~same).nonzero()[0].tolist())
            inputs = [o[i[: o.dim()]].item() for o in operands if isinstance(o, torch.Tensor) and o.shape == e.shape]
            pytest.fail(f"{int((~same).sum())} differ, first at {i}, of {inputs}: {a[i].item()}, on CPU {e[i].item()}")


PAIRED = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "heaviside": torch.heaviside,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "where": lambda a, b: torch.where(a > b, a, b),
    "isclose": lambda a, b: torch.isclose(a, b, equal_nan=True),
}
PAIRED_NEAR = {
    "pow": torch.pow,
    "float_power": torch.float_power,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "logaddexp": torch.logaddexp,
    "ldexp": torch.ldexp,
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*PAIRED, *PAIRED_NEAR])
def test_pairs_of_special_values(name, dtype):
    x = special_numbers(dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    if name in ("fmax", "fmin") and dtype == torch.bfloat16:  # CPU takes the second of two zeros in this type alone
        a, b = a[(a != 0) | (b != 0)], b[(a != 0) | (b != 0)]
    if name in PAIRED:
        assert_identical(PAIRED[name], a, b)
    else:
        assert_identical(PAIRED_NEAR[name], a, b, near=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_remainders_of_special_values(name, dtype):
    """Save where the quotient overflows, of which CPU's vector code makes NaN, or a half type cannot hold it."""
    x = special_numbers(dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    keep = (b == 0) | ~(a / b).isinf() | a.isinf()
    if name == "floor_divide" and dtype not in (torch.float32, torch.float64):
        keep &= ~((a / b).abs() > 200)
    assert_identical(getattr(torch, name), a[keep], b[keep])


def test_zeta_and_igamma_of_nan():
    numbers = torch.tensor([nan, 0.0, 1.0, 2.0, inf, -1.0])
    a, b = numbers.repeat_interleave(6), numbers.repeat(6)
    assert_identical(torch.special.zeta, a, b, near=4)
    assert_identical(torch.special.gammainc, a, b, near=8)
    assert_identical(torch.special.gammaincc, a, b, near=8)


def test_polygamma_left_of_zero():
    x = torch.tensor([-4988429.2, -17.7, -1.2, -0.3, -1e-20, 2.5], dtype=torch.float64)
    for n in (2, 3, 4):
        on_both(lambda x, n=n: torch.polygamma(n, x), x, rtol=1e-12, atol=0)
    poles = torch.arange(-20, 1, dtype=torch.float32)
    on_both(lambda x: torch.polygamma(1, x), poles, rtol=1e-5, atol=0)


ALONE = {
    name: getattr(torch, name)
    for name in (
        *(
            "abs",
            "neg",
            "sign",
            "sgn",
            "signbit",
            "floor",
            "ceil",
            "trunc",
            "round",
            "frac",
            "isnan",
            "isinf",
            "isfinite",
        ),
        *(
            "isposinf",
            "isneginf",
            "nan_to_num",
            "sqrt",
            "reciprocal",
            "square",
            "frexp",
            "logical_not",
            "relu",
            "angle",
        ),
    )
} | {
    "clamp": lambda x: torch.clamp(x, -1, 2),
    "clamp_zero": lambda x: torch.clamp(x, min=0),
    "clamp_nan": lambda x: torch.clamp(x, nan, 2),
    "round_decimals": lambda x: torch.round(x, decimals=2),
    "cube": lambda x: x**3,
    "root": lambda x: x**0.5,
    "inverse_square": lambda x: x**-2,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.1, 20),
    "hardshrink": F.hardshrink,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ALONE)
def test_special_values(name, dtype):
    assert_identical(ALONE[name], special_numbers(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.operands == 1])
def test_functions_at_the_ends(name, dtype):
    """NaN, infinities, zeros of either sign, and the ends of the range, where a function may be infinite or 0."""
    numbers = torch.tensor([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, torch.finfo(dtype).tiny], dtype=dtype)
    if name == "gelu":
        numbers = numbers[~numbers.isinf()]  # of which CPU's vector code makes NaN
    if name in ("polygamma1", "sinc"):
        numbers = numbers[numbers.abs() != 1]  # CPU's sine of pi is not 0, and its trigamma in f64 has 9 digits
    assert_identical(FUNCTIONS[name].operator, numbers, near=512)


ORDERED = {
    "sort": lambda x: torch.sort(x, stable=True),
    "sort_down": lambda x: torch.sort(x, descending=True, stable=True),
    "topk": lambda x: torch.topk(x, 5).values,
    "topk_smallest": lambda x: torch.topk(x, 5, largest=False).values,
    "kthvalue": lambda x: torch.kthvalue(x, 4).values,
    "unique": torch.unique,
    "max_dim": lambda x: torch.max(x, 0),
    "min_dim": lambda x: torch.min(x, 0),
    "cummax": lambda x: torch.cummax(x, 0),
    "cummin": lambda x: torch.cummin(x, 0),
    "searchsorted": lambda x: torch.searchsorted(torch.arange(-3.0, 4.0, device=x.device).to(x.dtype), x),
} | {
    n: getattr(torch, n)
    for n in "argmax argmin max min amax amin aminmax median nanmedian any all count_nonzero".split()
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ORDERED)
def test_order_of_special_values(name, dtype):
    x = special_numbers(dtype)
    for seed in range(4):
        mixed = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))]
        if name in ("unique", "nanmedian"):  # which of two zeros stands for both is left open
            mixed = mixed[(mixed != 0) | ~mixed.signbit()]
        assert_identical(ORDERED[name], mixed if seed % 2 else mixed[~mixed.isnan()])


# ---- complex numbers -------------------------------------------------------------------------------------------------

COMPLEX = (
    "exp log sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh reciprocal rsqrt exp2 log2 log10 log1p "
    "expm1 square abs angle sgn sigmoid"
).split()


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_function_is_accurate(name):
    """c64 next to CPU's c128 function of the same numbers; a few ULP of the absolute value."""
    g = torch.Generator().manual_seed(9)
    parts = [torch.rand(2, 400, generator=g, dtype=torch.float64) * 2 * s - s for s in (3, 40, 1e-3)]
    size = 10 ** (torch.rand(2, 400, generator=g, dtype=torch.float64) * 60 - 30)
    parts.append(size * torch.sign(torch.rand(2, 400, generator=g) - 0.5))
    z = torch.cat([torch.complex(*p) for p in parts]).to(torch.complex64)
    function = getattr(torch, name)
    wanted, y, own = function(z.to(torch.complex128)), function(z.to("tpu")).cpu(), function(z)
    size = wanted.abs()
    usual = (size < 1e38) & (size > 1e-37) & wanted.isfinite()
    if name == "exp2":
        usual &= z.abs() < 100  # beyond, x log(2) has no digits left of the angle

    def error(v):
        return torch.where(usual, (v.to(torch.complex128) - wanted).abs() / (size * 2.0**-23), 0).max()

    assert error(y) <= max(4, 1.5 * float(error(own)))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", [n for n in COMPLEX if n not in ("log1p", "expm1", "square", "exp2")])
def test_complex_special_values(name, dtype):
    real = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, inf, -inf, nan, 3.0], dtype=dtype.to_real())
    z = torch.complex(real.repeat_interleave(9), real.repeat(9))
    assert_identical(getattr(torch, name), z, near=16, zeros=name != "acos")  # CPU's two complex types differ there


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_quotients_of_special_values(dtype):
    real = torch.tensor(
        [0.0, -0.0, 1.0, -2.0, inf, nan, torch.finfo(dtype).max, torch.finfo(dtype).tiny], dtype=dtype.to_real()
    )
    z = torch.complex(real.repeat_interleave(8), real.repeat(8))
    assert_identical(torch.div, z.repeat_interleave(64), z.repeat(64), near=16, zeros=False)  # CPU's follow the place


# ---- integers --------------------------------------------------------------------------------------------------------

SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
INTEGERS = [*SIGNED, torch.uint8]
ALL_INTEGERS = [*INTEGERS, torch.uint16, torch.uint32, torch.uint64, torch.bool]


def special_integers(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    numbers = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 3, 0, 1, 2, 3, 7, 100}
    return torch.tensor(sorted(numbers | ({-1, -2, -7, -100} if info.min else set())), dtype=dtype)


WHOLE_PAIRS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=3),
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div": torch.div,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lt": torch.lt,
    "ge": torch.ge,
    "pow": lambda a, b: torch.pow(a, b % 9),
    "pow_negative": torch.pow,
}
DIVIDES = {"floor_divide", "div_trunc", "remainder", "fmod"}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", WHOLE_PAIRS)
def test_integers_are_exact(name, dtype):
    x = special_integers(dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    if name in DIVIDES:  # by 0 CPU raises, and min / -1 traps there
        keep = (b != 0) & ~((a == torch.iinfo(dtype).min) & (b.to(torch.int64) == -1))
        a, b = a[keep], b[keep]
    assert_identical(WHOLE_PAIRS[name], a, b)


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_least_integer_by_minus_one(dtype):
    """CPU traps for wide integers; here quotients wrap, as products do, and nothing is left over."""
    least = torch.tensor([torch.iinfo(dtype).min], dtype=dtype, device="tpu")
    assert (least // -1).item() == (least * -1).item() == least.item()
    assert (least % -1).item() == torch.fmod(least, -1).item() == 0
    assert least.abs().item() == least.item()


WHOLE = {
    **{n: getattr(torch, n) for n in "abs neg sign bitwise_not square sum prod max argmax signbit floor diff".split()},
    "cumsum": lambda x: torch.cumsum(x, 0),
    "cumprod": lambda x: torch.cumprod(x, 0),
    "sum_own": lambda x: torch.sum(x, dtype=x.dtype),
    "cumsum_own": lambda x: torch.cumsum(x, 0, dtype=x.dtype),
    "prod_own": lambda x: torch.prod(x, dtype=x.dtype),
    "fifth": lambda x: x**5,
    "dot": lambda x: torch.dot(x, x),
    "outer": lambda x: x[:, None] @ x[None],
    "shift_far": lambda x: torch.stack([x << 70, x >> 70, x << 63, x >> 63, x >> 3]),
    "sort": lambda x: torch.sort(x, descending=True),
    "rsub": lambda x: 5 - x,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_integer_functions_are_exact(name, dtype):
    assert_identical(WHOLE[name], special_integers(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_products_wrap(dtype):
    info, g = torch.iinfo(dtype), torch.Generator().manual_seed(5)
    a = torch.randint(info.min, info.max, (37, 53), generator=g, dtype=dtype)
    b = torch.randint(info.min, info.max, (53, 29), generator=g, dtype=dtype)
    assert_identical(torch.matmul, a, b)
    assert_identical(torch.bmm, a[None], b[None])
    assert_identical(lambda x, y: torch.addmm(x[:, :29], x, y, alpha=3, beta=2), a, b)
    assert_identical(lambda x: x.cumprod(1), a)
    assert_identical(lambda x: x.sum(0), a)


# ---- casts -----------------------------------------------------------------------------------------------------------

FAR = [0.4, -0.6, 0.5, 1.5, 2.5, -1.5, 127, 128, 129, -128, -129, 255, 256, 257, 300, -300, 32768, 65535, 65536, -70000]
FAR += [2147483647.5, 2147483648, 2147483649, -2147483648, -2147483905, 4294967296, 5000000001, -5000000123, 9.2e18]
FAR += [
    9223372036854775808,
    -9223372036854775808,
    1.7e19,
    18446744073709551616,
    1e20,
    -1e20,
    1e30,
    inf,
    -inf,
    nan,
    -0.0,
]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("to", [*ALL_INTEGERS, *FLOATS, torch.complex64, torch.complex128], ids=str)
def test_casts(to):
    """Numbers out of range too, as CPU's vector code casts them: they fill whole vectors."""
    far = torch.tensor(FAR, dtype=torch.float64).repeat_interleave(64)
    for dtype in [*FLOATS, torch.complex64, torch.complex128]:
        numbers = far.to(dtype)
        if dtype == torch.float16 and to == torch.uint32:  # which CPU converts one by one, by another instruction
            numbers = numbers[numbers.isfinite()]
        assert_identical(lambda x: x.to(to), numbers)
    for dtype in ALL_INTEGERS:
        assert_identical(lambda x: x.to(to), special_integers(dtype))


@pytest.mark.parametrize("to", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16], ids=str)
def test_small_floats_round_at_every_boundary(to):
    """Every number of the small type, the ties half way to the next, and their f32 neighbours; subnormals, overflow and
    back again."""
    integer = torch.uint8 if to.itemsize == 1 else torch.int16
    codes = torch.arange(0, 256) if to.itemsize == 1 else torch.arange(0, 65536, 7)
    exact = codes.to(integer).view(to).float()
    finite = exact[exact.isfinite()].double().sort().values
    ties = ((finite[1:] + finite[:-1]) / 2).float()
    top = finite[-1].float()
    beyond = torch.tensor([1.03, 1.0625, 1.07, 1.125, 1.13, 2, 1e3]) * top
    points = torch.cat([exact, ties, beyond, -beyond, torch.tensor([inf, -inf, nan, 1e-45, -1e-45, 3.4e38])])
    both = torch.cat([points, points.nextafter(torch.tensor(inf)), points.nextafter(torch.tensor(-inf))])
    assert_identical(lambda x: x.to(to).float(), both)
    assert_identical(lambda x: x.to(to).view(integer), both[~both.isnan()])
    assert_identical(lambda x: x.to(to).float(), both.double())
    assert_identical(lambda x: x.view(to).to(torch.float64), codes.to(integer))
    if to.itemsize == 1:
        assert_identical(lambda x: x.to(to).float(), both.bfloat16())
        assert_identical(lambda x: x.to(to).float(), both.half())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu], ids=str)
def test_other_float8_types_are_refused(dtype):
    with pytest.raises(TypeError, match="cannot have dtype"):
        torch.ones(2, device="tpu").to(dtype)


# ---- promotion -------------------------------------------------------------------------------------------------------


def operand(dtype: torch.dtype, form: str):
    if form == "number":
        return {True: 1.5, False: 2}[dtype.is_floating_point] if not dtype.is_complex else 2 + 1j
    return torch.ones((3,) if form == "tensor" else (), dtype=dtype)


PROMOTED = [*ALL_INTEGERS, *FLOATS, torch.complex32, torch.complex64, torch.complex128]


@pytest.mark.parametrize("first", PROMOTED, ids=str)
def test_promotion(first):
    """Over all pairs of dtypes, as tensors, 0-d tensors and Python numbers; what CPU refuses is refused."""
    for second, forms in itertools.product(
        PROMOTED,
        [("tensor", "tensor"), ("tensor", "zero"), ("zero", "tensor"), ("tensor", "number"), ("zero", "number")],
    ):
        a, b = operand(first, forms[0]), operand(second, forms[1])
        to = [x.to("tpu") if isinstance(x, torch.Tensor) else x for x in (a, b)]
        for function in (torch.mul, torch.eq, torch.true_divide):
            try:
                expected = function(a, b).dtype
            except NotImplementedError:  # CPU lacks the kernel, promotion is not at fault
                continue
            except RuntimeError as error:
                with pytest.raises(type(error), match="Promotion"):
                    function(*to)
                continue
            assert function(*to).dtype == expected, (function, first, second, forms)
            assert torch.result_type(*to) == torch.result_type(a, b)


# ---- products --------------------------------------------------------------------------------------------------------


@pytest.fixture
def precision():
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


# Largest error, relative to |a| |b|: "highest" is f32's own, checked against the CPU's; "high" is three bf16 products
# (2^-16 and what they lose), "medium" one (2^-8 each operand).
@pytest.mark.parametrize(("setting", "bound"), [("highest", 2**-22), ("high", 2**-15), ("medium", 2**-7)])
@pytest.mark.parametrize("depth", [1, 7, 64, 1000])
def test_products_have_their_precision(precision, setting, bound, depth):
    g = torch.Generator().manual_seed(depth)
    a, b = torch.randn(33, depth, generator=g), torch.randn(depth, 65, generator=g)
    exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    precision(setting)
    error = ((a.to("tpu") @ b.to("tpu")).cpu().double() - exact).abs() / scale
    assert error.max() <= bound
    if setting == "highest":
        assert error.max() <= 2 * ((a @ b).double() - exact).abs().div(scale).max() + 2**-24


def test_products_of_whole_numbers_are_exact():
    """In f32 up to 2^24, whatever the order of summation."""
    g = torch.Generator().manual_seed(1)
    a = torch.randint(-100, 100, (40, 300), generator=g).float()
    b = torch.randint(-100, 100, (300, 40), generator=g).float()
    assert_identical(torch.matmul, a, b)
