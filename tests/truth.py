"""Elementary functions next to their true values: what test_numerics.py measures errors with.

A true value comes from mpmath, with digits enough that it is right to far more than a double holds, as two doubles: the
nearest one and the rest. Errors are in units in the last place (ULP) of the true value in the dtype at hand, whose
subnormals all have the smallest unit.
"""

import dataclasses
import fractions
import math
from collections.abc import Callable

import mpmath
import numpy
import scipy.special
from mpmath import mp

import torch

mp.prec = 160  # f64's 53 bits, and enough for functions that lose half of them on the way

Real = mpmath.mpf


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of one or two numbers: PyTorch's, the true one, and where to look at it.

    ``low`` and ``high`` bound the arguments that are of interest; ``near`` are points whose neighbourhood is hard:
    zeros, poles, ends of the domain, where a result overflows. ``count`` is about the number of arguments.
    """

    name: str
    operator: Callable
    truth: Callable
    low: float = -1e38
    high: float = 1e38
    near: tuple = ()
    count: int = 1500
    ulp: float = 2.0  # f32: the bar, unless CPU's own error is greater
    wide_ulp: float = 4.0  # f64

    @property
    def operands(self) -> int:
        """How many numbers the function takes."""
        return self.truth.__code__.co_argcount


def _positive(function):
    """NaN for negative arguments, where mpmath gives a complex number."""
    return lambda x: function(x) if x >= 0 else mp.nan


def _log(x):
    return -mp.inf if x == 0 else mp.log(x) if x > 0 else mp.nan


def _lgamma(x):
    if x <= 0 and x == mp.floor(x):
        return mp.inf
    return mp.re(mp.loggamma(x))


def _digamma(x):
    if x <= 0 and x == mp.floor(x):
        return mp.nan
    return mp.psi(0, x)


def _polygamma(n):
    def truth(x):
        if x <= 0 and x == mp.floor(x):
            return mp.nan
        return mp.psi(n, x)

    return truth


def _erfc(x):
    """mpmath's own fails far out."""
    return mp.mpf(0) if x > 1e5 else mp.mpf(2) if x < -1e5 else mp.erfc(x)


def _erfinv(x):
    """By Newton's iteration (Halley's form) from SciPy's value; near 1 the residual is that of erfc."""
    a = abs(x)
    if a >= 1:
        return mp.nan
    y = mp.mpf(scipy.special.erfinv(float(a)))
    for _ in range(4):
        error = mp.erf(y) - a if a < 0.5 else (1 - a) - mp.erfc(y)
        step = error * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y -= step / (1 + y * step)
    return mp.sign(x) * y


def _ndtri(x):
    if x <= 0 or x >= 1:
        return mp.nan
    z = mp.mpf(scipy.special.ndtri(float(x)))
    for _ in range(4):
        step = (mp.erfc(-z / mp.sqrt(2)) / 2 - x) * mp.exp(z * z / 2) * mp.sqrt(2 * mp.pi)
        z -= step / (1 + z * step / 2)
    return z


def _erfcx(x):
    return (
        (1 - 1 / (2 * x * x)) / (x * mp.sqrt(mp.pi))
        if x > 1e5
        else mp.exp(x * x) * mp.erfc(x)
        if abs(x) < 1e5
        else mp.nan
    )


def _log_ndtr(x):
    if x < -1e5:
        return -x * x / 2 - mp.log(-x) - mp.log(2 * mp.pi) / 2
    return mp.log(_erfc(-x / mp.sqrt(2)) / 2) if x < 3 else mp.log1p(-_erfc(x / mp.sqrt(2)) / 2)


def _log1p_exp(x):
    return mp.log1p(mp.exp(x))


def _gelu_tanh(x):
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)
    return x / (1 + mp.exp(-2 * inner))


def _logaddexp(x, y):
    high, low = max(x, y), min(x, y)
    return high + mp.log1p(mp.exp(low - high)) if not mp.isinf(high) else high


def _pow(x, y):
    if x < 0 and y != mp.floor(y):
        return mp.nan
    if x == 0:
        return mp.mpf(1) if y == 0 else mp.nan
    return x**y


def _fmod(x, y):
    return mp.mpf(math.fmod(x, y)) if y else mp.nan  # exact


def _remainder(x, y):
    if y == 0:
        return mp.nan
    rest = fractions.Fraction(float(x)) % fractions.Fraction(float(y))
    return mp.mpf(rest.numerator) / rest.denominator


def _inside(function):
    """NaN outside [-1, 1]."""
    return lambda x: function(x) if abs(x) <= 1 else mp.nan


_PI = 3.141592653589793
_TRIG_NEAR = tuple(k * _PI / 2 for k in (1, 2, 3, 4, 11, 100, 710, 12345, 1e6, 3e7))
_TRIG = {"low": -1e30, "high": 1e30, "near": (*_TRIG_NEAR, *(-x for x in _TRIG_NEAR), 1e5, 1e10, 1e20, 1e30)}
_GAMMA_NEAR = (1.0, 2.0, -1.0, -2.0, -0.5, -2.4570247382208006, -2.7476826467274126, 1.4616321449683623, -0.504083008)

special = torch.special
functional = torch.nn.functional

FUNCTIONS = [
    Function("exp", torch.exp, lambda x: mp.exp(x), -750, 710, (88.72, -87.3, -103.9, 709.78, -708.4)),
    Function("exp2", torch.exp2, lambda x: mp.mpf(2) ** x, -1080, 1024, (1, 128, -126, -149, 1024)),
    Function("expm1", torch.expm1, lambda x: mp.expm1(x), -750, 710, (88.72, -17, 1, -1, 0.35, -0.35)),
    Function("log", torch.log, _log, 0, 1e300, (1, 2, 0.5)),
    Function("log2", torch.log2, lambda x: _log(x) / mp.log(2), 0, 1e300, (1, 2, 0.5, 8)),
    Function("log10", torch.log10, lambda x: _log(x) / mp.log(10), 0, 1e300, (1, 2, 0.5, 10, 1000)),
    Function(
        "log1p", torch.log1p, lambda x: mp.log1p(x) if x > -1 else _log(x + 1), -1, 1e300, (-1, 1, -0.5, 0.41, -0.29)
    ),
    Function("sqrt", torch.sqrt, _positive(lambda x: mp.sqrt(x)), 0, 1e300, (1, 2), ulp=0.5, wide_ulp=0.5),
    Function("rsqrt", torch.rsqrt, _positive(lambda x: 1 / mp.sqrt(x) if x else mp.nan), 0, 1e300, (1, 2)),
    Function("reciprocal", torch.reciprocal, lambda x: 1 / x if x else mp.nan, near=(1, 3e-39), ulp=0.5, wide_ulp=0.5),
    Function("sin", torch.sin, lambda x: mp.sin(x), **_TRIG),
    Function("cos", torch.cos, lambda x: mp.cos(x), **_TRIG),
    Function("tan", torch.tan, lambda x: mp.tan(x), **_TRIG),
    Function("asin", torch.asin, _inside(lambda x: mp.asin(x)), -1, 1, (1, -1, 0.5, -0.5)),
    Function("acos", torch.acos, _inside(lambda x: mp.acos(x)), -1, 1, (1, -1, 0.5, -0.5)),
    Function("atan", torch.atan, lambda x: mp.atan(x), near=(1, -1, 0.41, 2.41)),
    Function("sinh", torch.sinh, lambda x: mp.sinh(x), -711, 711, (89.4, 1, -1, -89.4, 20, 710.4)),
    Function("cosh", torch.cosh, lambda x: mp.cosh(x), -711, 711, (89.4, 1, -1, -89.4, 20, 710.4)),
    Function("tanh", torch.tanh, lambda x: mp.tanh(x), -25, 25, (0.625, -0.625, 9, 19, 0.55)),
    Function("asinh", torch.asinh, lambda x: mp.asinh(x), near=(1, -1, 0.5)),
    Function("acosh", torch.acosh, lambda x: mp.acosh(x) if x >= 1 else mp.nan, 1, 1e300, (1, 2)),
    Function("atanh", torch.atanh, lambda x: mp.atanh(x) if abs(x) < 1 else mp.nan, -1, 1, (1, -1, 0.5)),
    Function("sigmoid", torch.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), -750, 50, (-88.7, -103, 17, 36)),
    Function("erf", torch.erf, lambda x: mp.erf(x), -6, 6, (1, -1, 0.93, 3.9)),
    Function("erfc", torch.erfc, _erfc, -6, 27, (1, -1, 0.5, 10, 9.2, 26)),
    Function("erfinv", torch.erfinv, _erfinv, -1, 1, (1, -1, 0.5), 400),
    Function("lgamma", torch.lgamma, _lgamma, -1e6, 1e36, _GAMMA_NEAR, 800),
    Function("digamma", torch.digamma, _digamma, -1e6, 1e36, _GAMMA_NEAR, 800),
    Function("polygamma1", lambda x: torch.polygamma(1, x), _polygamma(1), -100, 1e30, _GAMMA_NEAR, 300),
    Function("polygamma3", lambda x: torch.polygamma(3, x), _polygamma(3), -20, 1e8, _GAMMA_NEAR, 200),
    Function("gelu", functional.gelu, lambda x: x * _erfc(-x / mp.sqrt(2)) / 2, -40, 40, (-1, -0.75, -5, -13)),
    Function("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh"), _gelu_tanh, -30, 40, (-1, -0.75, -5)),
    Function("silu", functional.silu, lambda x: x / (1 + mp.exp(-x)), -750, 100, (-88.7, -103, -1.27)),
    Function("softplus", functional.softplus, lambda x: _log1p_exp(x) if x <= 20 else x, -750, 100, (20, -88, -103)),
    Function("mish", functional.mish, lambda x: x * mp.tanh(_log1p_exp(x)), -750, 100, (-88.7, -103, -1.2)),
    Function("logsigmoid", functional.logsigmoid, lambda x: -_log1p_exp(-x), -750, 750, (88, 103)),
    Function("logit", torch.logit, lambda x: mp.log(x / (1 - x)) if 0 < x < 1 else mp.nan, 0, 1, (0.5, 1)),
    # In f64, Cephes' series for I1 lose a digit next to 8, the end of their interval.
    Function("i0", special.i0, lambda x: mp.besseli(0, x), -700, 700, (8, -8, 91), 200),
    Function("i0e", special.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), -1e5, 1e5, (8, -8, 91), 200),
    Function("i1", special.i1, lambda x: mp.besseli(1, x), -700, 700, (8, -8, 91), 200, wide_ulp=16),
    Function(
        "i1e", special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), -1e5, 1e5, (8, -8, 91), 200, wide_ulp=16
    ),
    Function("ndtr", special.ndtr, lambda x: _erfc(-x / mp.sqrt(2)) / 2, -38, 10, (-1, 1, -13, -14)),
    Function("ndtri", special.ndtri, _ndtri, 0, 1, (0.135335, 0.864664, 0.5, 1), 400),
    Function("log_ndtr", special.log_ndtr, _log_ndtr, -1e5, 20, (-1, 1), 400),
    Function("erfcx", special.erfcx, _erfcx, -26, 1e6, (-1, 1, 6, -9.3), 400),
    Function(
        "sinc",
        torch.sinc,
        lambda x: mp.sinpi(x) / (mp.pi * x) if x else mp.mpf(1),
        -1e6,
        1e6,
        (1, 2, 3, -1, 0.5, 100),
        800,
    ),
    Function(
        "bessel_j0", special.bessel_j0, lambda x: mp.besselj(0, x), -1e4, 1e4, (2.404825557695773, 5, 5.5200781), 200
    ),
    Function("bessel_j1", special.bessel_j1, lambda x: mp.besselj(1, x), -1e4, 1e4, (3.8317059702, 5, 7.0155866), 200),
    Function(
        "bessel_y0", special.bessel_y0, lambda x: mp.bessely(0, x), 1e-30, 1e4, (0.8935769662791675, 5, 3.9576784), 200
    ),
    Function(
        "bessel_y1", special.bessel_y1, lambda x: mp.bessely(1, x), 1e-30, 1e4, (2.197141326031017, 5, 5.4296810), 200
    ),
    Function("modified_bessel_k0", special.modified_bessel_k0, lambda x: mp.besselk(0, x), 1e-30, 80, (2, 85), 60),
    Function("modified_bessel_k1", special.modified_bessel_k1, lambda x: mp.besselk(1, x), 1e-30, 80, (2, 85), 20),
    Function("modified_bessel_i0", special.modified_bessel_i0, lambda x: mp.besseli(0, x), -80, 80, (8, 2), 200),
    Function(
        "modified_bessel_i1", special.modified_bessel_i1, lambda x: mp.besseli(1, x), -80, 80, (8, 2), 200, wide_ulp=16
    ),
    Function("spherical_bessel_j0", special.spherical_bessel_j0, lambda x: mp.sinc(x), -1e4, 1e4, (0.5, 3.14159265)),
    Function(
        "airy_ai",
        special.airy_ai,
        lambda x: mp.airyai(x) if x > -1e4 else mp.nan,
        -100,
        30,
        (-2.338107410459767, 2.09, -2.09),
        200,
    ),
    Function("atan2", torch.atan2, lambda x, y: mp.atan2(x, y) if x else mp.nan, near=(1, -1)),
    Function("hypot", torch.hypot, lambda x, y: mp.hypot(x, y), near=(1, 3e38)),
    Function("pow", torch.pow, _pow, -1e38, 1e38, (1, 2, 3, -1, -2, 0.5, 127, -149)),
    Function("xlogy", torch.xlogy, lambda x, y: x * _log(y) if x else x, near=(1, 2, 0.5)),
    Function(
        "xlog1py",
        special.xlog1py,
        lambda x, y: (x * mp.log1p(y) if y > -1 else x * _log(1 + y)) if x else x,
        near=(1, -1, 1e-5),
    ),
    Function("logaddexp", torch.logaddexp, _logaddexp, -800, 800, (1, -1, 0.5)),
    Function(
        "logaddexp2", torch.logaddexp2, lambda x, y: _logaddexp(x * mp.ln2, y * mp.ln2) / mp.ln2, -800, 800, (1, -1)
    ),
    Function("fmod", torch.fmod, _fmod, -1e30, 1e30, (1, 0.5, 3), ulp=0, wide_ulp=0),
    Function("remainder", torch.remainder, _remainder, -1e30, 1e30, (1, 0.5, 3), ulp=0.5, wide_ulp=0.5),
    Function(
        "zeta",
        special.zeta,
        lambda x, q: mp.zeta(x, q) if 1 < x < 1000 and 0 < q < 1e30 else mp.nan,
        1.0,
        60,
        (1, 2, 9),
        150,
    ),
]


# ---- arguments -------------------------------------------------------------------------------------------------------

_INTEGER = {numpy.float32: numpy.int32, numpy.float64: numpy.int64}


def _around(points, dtype, width):
    """The given numbers and their neighbours in the dtype, 2^k steps away."""
    bits = numpy.array(points, dtype).view(_INTEGER[dtype])
    steps = [0] + [s for k in range(0, width, 2) for s in (1 << k, -(1 << k))]
    return numpy.concatenate([(bits + s).view(dtype) for s in steps])


@numpy.errstate(all="ignore")  # numbers that the dtype cannot hold become infinite
def arguments(function: Function, dtype=numpy.float32) -> list[numpy.ndarray]:
    """Hard arguments, the same every time: special numbers, subnormals, the function's hard points and what lies
    around them, magnitudes evenly over the exponents, numbers evenly between the bounds, whole and half numbers, any
    bits."""
    random = numpy.random.default_rng(len(function.name) * 1000 + sum(map(ord, function.name)))
    info = numpy.finfo(dtype)
    low, high = max(function.low, float(info.min)), min(function.high, float(info.max))
    special_numbers = [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1, -1, info.tiny, -info.tiny, info.max, info.min]
    special_numbers += [info.smallest_subnormal, -info.smallest_subnormal, info.tiny / 8, -info.tiny / 4, info.eps]

    def operand():
        n = function.count // 5
        near = _around(function.near, dtype, 22 if dtype is numpy.float32 else 51) if function.near else []
        near = random.choice(near, min(len(near), n), replace=False) if len(near) else near
        exponents = numpy.exp2(
            random.uniform(numpy.log2(float(info.smallest_subnormal)), numpy.log2(float(info.max)), n)
        )
        magnitudes = exponents * random.choice([1, -1] if low < 0 else [1], n)
        magnitudes = magnitudes[(magnitudes >= low) & (magnitudes <= high)] if function.count < 1000 else magnitudes
        span = random.uniform(max(low, -100), min(high, 100), n)
        whole = numpy.round(random.uniform(max(low, -300), min(high, 300), n // 2) * 2) / 2
        bits = random.integers(-(2 ** (info.bits - 1)), 2 ** (info.bits - 1), n // 2).astype(_INTEGER[dtype])
        bits = bits if function.count >= 1000 else bits[:0]
        evenly = random.uniform(low / 2, high / 2, n) * 2
        parts = [special_numbers, near, magnitudes, span, whole, evenly]
        return numpy.concatenate([numpy.asarray(p).astype(dtype) for p in parts] + [bits.view(dtype)])

    if function.operands == 1:
        return [operand()]
    a, b = operand(), operand()
    size = min(len(a), len(b))
    corner = numpy.array(special_numbers, dtype)
    corners = numpy.array(numpy.meshgrid(corner, corner)).reshape(2, -1)
    close = random.permutation(a)[: size // 4]
    return [
        numpy.concatenate([random.permutation(a)[:size], corners[0], close]),
        numpy.concatenate(
            [random.permutation(b)[:size], corners[1], _around(close, dtype, 1)[: len(close)] * dtype(1.0001)]
        ),
    ]


# ---- true values and errors -----------------------------------------------------------------------------------------


@numpy.errstate(all="ignore")
def true_values(function: Function, operands: list[numpy.ndarray]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The true value as a double and what is left; NaN where an operand is not finite or there is no real value."""
    high, rest = numpy.full(len(operands[0]), numpy.nan), numpy.zeros(len(operands[0]))
    for i, xs in enumerate(zip(*(o.astype(numpy.float64).tolist() for o in operands), strict=True)):
        if not all(map(mpmath.isfinite, xs)):
            continue
        try:
            y = function.truth(*map(mp.mpf, xs))
        except (ValueError, ZeroDivisionError, OverflowError, mp.NoConvergence):
            continue
        if isinstance(y, mpmath.mpc):
            continue
        high[i] = float(y)
        rest[i] = float(y - mp.mpf(high[i])) if numpy.isfinite(high[i]) else 0.0
    return high, rest


def ulps(y: numpy.ndarray, high: numpy.ndarray, rest: numpy.ndarray) -> numpy.ndarray:
    """The error of each y; 0 where the true value is unknown, infinite where y is NaN or infinite and should not be."""
    info = numpy.finfo(y.dtype)
    top = float(info.max)
    with numpy.errstate(all="ignore"):
        _, exponent = numpy.frexp(high)
        unit = numpy.ldexp(1.0, numpy.maximum(exponent - 1, info.minexp) - info.nmant)
        error = numpy.abs((y.astype(numpy.float64) - high) - rest) / unit
        overflows = numpy.abs(high) > top
        rounded_up = numpy.isinf(y) & (numpy.sign(y) == numpy.sign(high))
        error = numpy.where(
            overflows, numpy.where(rounded_up, 0.0, numpy.where(numpy.abs(y) == info.max, 1.0, numpy.inf)), error
        )
        error = numpy.where(~overflows & rounded_up & (numpy.abs(high) > top * (1 - float(info.eps) * 2)), 1.0, error)
        error = numpy.where(numpy.isnan(y) | (numpy.isinf(y) & ~rounded_up), numpy.inf, error)
    return numpy.where(numpy.isnan(high), 0.0, numpy.nan_to_num(error, nan=numpy.inf, posinf=numpy.inf))
