/* What each pointwise operation means for one element. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "soft/reference_int.h"

typedef double complex complex128;

static complex128 complex_of(base_scalar x) { return CMPLX(x.d[0], x.d[1]); }
static base_scalar scalar_of(complex128 z) { return (base_scalar){.d = {creal(z), cimag(z)}}; }
static uint32_t width_of(ttpu_dtype t) { return (uint32_t)base_dtype_bits(t); }
static uint64_t mask_of(ttpu_dtype t) { return width_of(t) == 64 ? ~0ull : (1ull << width_of(t)) - 1; }

/* Brings a 64-bit result back into the dtype's range: modulo 2^width, sign-extended where signed. */
static base_scalar wrap(ttpu_dtype t, uint64_t x) {
  if (t == TTPU_BOOL) return (base_scalar){.u = x != 0};
  uint64_t low = x & mask_of(t), sign = 1ull << (width_of(t) - 1);
  if (base_dtype_is_signed(t) && (low & sign)) low |= ~mask_of(t);
  return (base_scalar){.u = low};
}

/* ---- one operand ------------------------------------------------------------------------------- */

static bool real_unary(ir_kind kind, double x, double *y) {
  switch (kind) {
    case IR_ABS: *y = fabs(x); return true;
    case IR_CBRT: *y = cbrt(x); return true;
    case IR_CEIL: *y = ceil(x); return true;
    case IR_COSINE: *y = cos(x); return true;
    case IR_EXPONENTIAL: *y = exp(x); return true;
    case IR_EXPONENTIAL_MINUS_ONE: *y = expm1(x); return true;
    case IR_FLOOR: *y = floor(x); return true;
    case IR_LOG: *y = log(x); return true;
    case IR_LOG_PLUS_ONE: *y = log1p(x); return true;
    case IR_LOGISTIC: *y = 1 / (1 + exp(-x)); return true;
    case IR_NEGATE: *y = -x; return true;
    case IR_REAL: *y = x; return true;
    case IR_IMAG: *y = 0; return true;
    case IR_ROUND_NEAREST_AFZ: *y = round(x); return true;
    case IR_ROUND_NEAREST_EVEN: *y = rint(x); return true;
    case IR_RSQRT: *y = 1 / sqrt(x); return true;
    case IR_SIGN: *y = x > 0 ? 1 : x < 0 ? -1 : x; return true; /* keeps NaN and the zeros */
    case IR_SINE: *y = sin(x); return true;
    case IR_SQRT: *y = sqrt(x); return true;
    case IR_TAN: *y = tan(x); return true;
    case IR_TANH: *y = tanh(x); return true;
    case IR_ERF: *y = erf(x); return true;
    case IR_ERFC: *y = erfc(x); return true;
    case IR_ERF_INV: *y = ref_erf_inv(x); return true;
    case IR_LGAMMA: {
      int sign;
      *y = lgamma_r(x, &sign);
      return true;
    }
    case IR_DIGAMMA: *y = ref_digamma(x); return true;
    case IR_ASIN: *y = asin(x); return true;
    case IR_ACOS: *y = acos(x); return true;
    case IR_ATAN: *y = atan(x); return true;
    case IR_SINH: *y = sinh(x); return true;
    case IR_COSH: *y = cosh(x); return true;
    case IR_ASINH: *y = asinh(x); return true;
    case IR_ACOSH: *y = acosh(x); return true;
    case IR_ATANH: *y = atanh(x); return true;
    default: return false;
  }
}

/* The quotient as numpy and PyTorch compute it: scaled by the larger part of the divisor. */
static complex128 complex_divide(complex128 x, complex128 y) {
  double a = creal(x), b = cimag(x), c = creal(y), d = cimag(y);
  if (fabs(c) >= fabs(d)) {
    if (c == 0 && d == 0) return CMPLX(a / fabs(c), b / fabs(d));
    double ratio = d / c, scale = 1 / (c + d * ratio);
    return CMPLX((a + b * ratio) * scale, (b - a * ratio) * scale);
  }
  double ratio = c / d, scale = 1 / (d + c * ratio);
  return CMPLX((a * ratio + b) * scale, (b * ratio - a) * scale);
}

static complex128 complex_multiply(complex128 x, complex128 y) {
  return CMPLX(creal(x) * creal(y) - cimag(x) * cimag(y), creal(x) * cimag(y) + cimag(x) * creal(y));
}

static complex128 complex_power(complex128 x, complex128 y) {
  if (creal(y) == 0 && cimag(y) == 0) return 1;
  if (creal(x) == 0 && cimag(x) == 0 && creal(y) > 0) return 0;
  return cpow(x, y);
}

/* exp(z) - 1 without cancellation: expm1(a) cos b - 2 sin²(b/2) + i e^a sin b; NaN for an infinite b, as PyTorch has it. */
static complex128 complex_expm1(complex128 z) {
  double a = creal(z), b = cimag(z), half = sin(b / 2);
  return CMPLX(expm1(a) * cos(b) - 2 * half * half, exp(a) * sin(b));
}

/* log(1 + z): |1 + z|² - 1 = a (2 + a) + b², exact enough near 0. */
static complex128 complex_log1p(complex128 z) {
  double a = creal(z), b = cimag(z);
  if (!(fabs(a) < 1e8 && fabs(b) < 1e8)) return clog(z + 1);
  if (fabs(1 + a) < 0.5 && fabs(b) < 0.5) return clog(z + 1);
  return CMPLX(0.5 * log1p(a * (2 + a) + b * b), atan2(b, 1 + a));
}

/* e^a (cos b + i sin b): NaN for an infinite a with a b that is not finite, where C's cexp gives 0 or infinity. */
static complex128 complex_exp(complex128 z) {
  if (isinf(creal(z)) && !isfinite(cimag(z))) return CMPLX(NAN, NAN);
  return cexp(z);
}

static bool complex_unary(ir_kind kind, complex128 x, complex128 *y) {
  switch (kind) {
    case IR_ABS: *y = cabs(x); return true;
    case IR_CBRT: *y = cpow(x, 1.0 / 3); return true;
    case IR_COSINE: *y = ccos(x); return true;
    case IR_EXPONENTIAL: *y = complex_exp(x); return true;
    case IR_EXPONENTIAL_MINUS_ONE: *y = complex_expm1(x); return true;
    case IR_LOG: *y = clog(x); return true;
    case IR_LOG_PLUS_ONE: *y = complex_log1p(x); return true;
    case IR_LOGISTIC: *y = complex_divide(1, 1 + cexp(-x)); return true;
    case IR_NEGATE: *y = CMPLX(-creal(x), -cimag(x)); return true;
    case IR_REAL: *y = creal(x); return true;
    case IR_IMAG: *y = cimag(x); return true;
    case IR_RSQRT: *y = complex_divide(1, csqrt(x)); return true;
    case IR_SIGN: {
      double a = cabs(x);
      *y = a == 0 ? 0 : CMPLX(creal(x) / a, cimag(x) / a);
      return true;
    }
    case IR_SINE: *y = csin(x); return true;
    case IR_SQRT: *y = csqrt(x); return true;
    case IR_TAN: *y = ctan(x); return true;
    case IR_TANH: *y = ctanh(x); return true;
    case IR_ASIN: *y = casin(x); return true;
    case IR_ACOS: *y = cacos(x); return true;
    case IR_ATAN: *y = catan(x); return true;
    case IR_SINH: *y = csinh(x); return true;
    case IR_COSH: *y = ccosh(x); return true;
    case IR_ASINH: *y = casinh(x); return true;
    case IR_ACOSH: *y = cacosh(x); return true;
    case IR_ATANH: *y = catanh(x); return true;
    default: return false;
  }
}

static bool integer_unary(ir_kind kind, ttpu_dtype t, base_scalar x, base_scalar *y) {
  bool negative = base_dtype_is_signed(t) && x.i < 0;
  uint64_t bits = x.u & mask_of(t);
  switch (kind) {
    case IR_ABS: *y = wrap(t, negative ? 0 - x.u : x.u); return true;
    case IR_NEGATE: *y = wrap(t, 0 - x.u); return true;
    case IR_NOT: *y = t == TTPU_BOOL ? wrap(t, !x.i) : wrap(t, ~x.u); return true;
    case IR_SIGN: *y = wrap(t, negative ? ~0ull : x.u != 0); return true;
    case IR_POPCNT: *y = wrap(t, (uint64_t)__builtin_popcountll(bits)); return true;
    case IR_COUNT_LEADING_ZEROS:
      *y = wrap(t, bits ? (uint64_t)__builtin_clzll(bits) - (64 - width_of(t)) : width_of(t));
      return true;
    case IR_CEIL:
    case IR_FLOOR:
    case IR_ROUND_NEAREST_AFZ:
    case IR_ROUND_NEAREST_EVEN:
    case IR_REAL: *y = x; return true;
    case IR_IMAG: *y = wrap(t, 0); return true;
    default: return false;
  }
}

/* ---- two operands ------------------------------------------------------------------------------ */

/* Signed exponents below 0 as PyTorch: 1 and -1 have integer inverses, all others give 0. */
static uint64_t integer_power(ttpu_dtype t, base_scalar base, base_scalar exponent) {
  uint64_t b = base.u, e = exponent.u, y = 1;
  if (base_dtype_is_signed(t) && exponent.i < 0) {
    if (base.i == 1) return 1;
    return base.i == -1 ? (exponent.i & 1 ? ~0ull : 1) : 0;
  }
  for (; e; e >>= 1, b *= b)
    if (e & 1) y *= b;
  return y;
}

/* Division by zero gives all bits set, a remainder by zero the dividend, as XLA; MIN / -1 wraps. */
static uint64_t integer_divide(ttpu_dtype t, base_scalar a, base_scalar b, bool remainder) {
  if (b.u == 0) return remainder ? a.u : ~0ull;
  if (!base_dtype_is_signed(t)) return remainder ? a.u % b.u : a.u / b.u;
  if (b.i == -1) return remainder ? 0 : 0 - a.u;
  return (uint64_t)(remainder ? a.i % b.i : a.i / b.i);
}

/* Shifts by the width or more (a negative amount counts as huge) push every bit out. */
static uint64_t integer_shift(ir_kind kind, ttpu_dtype t, base_scalar a, base_scalar b) {
  bool out = (b.u & mask_of(t)) >= width_of(t) || (base_dtype_is_signed(t) && b.i < 0);
  uint64_t bits = a.u & mask_of(t), sign = bits >> (width_of(t) - 1);
  switch (kind) {
    case IR_SHIFT_LEFT: return out ? 0 : bits << b.u;
    case IR_SHIFT_RIGHT_LOGICAL: return out ? 0 : bits >> b.u;
    default: { /* arithmetic: the top bit moves in, for unsigned types as well */
      int64_t extended = (int64_t)(sign ? bits | ~mask_of(t) : bits);
      return (uint64_t)(extended >> (out ? 63 : b.i));
    }
  }
}

static bool integer_less(ttpu_dtype t, base_scalar a, base_scalar b) {
  return base_dtype_is_signed(t) ? a.i < b.i : a.u < b.u;
}

static bool integer_binary(ir_kind kind, ttpu_dtype t, base_scalar a, base_scalar b, base_scalar *y) {
  bool is_bool = t == TTPU_BOOL;
  switch (kind) {
    case IR_ADD: *y = wrap(t, is_bool ? a.u | b.u : a.u + b.u); return true;
    case IR_SUBTRACT: *y = wrap(t, is_bool ? a.u ^ b.u : a.u - b.u); return true;
    case IR_MULTIPLY: *y = wrap(t, a.u * b.u); return true;
    case IR_DIVIDE: *y = wrap(t, integer_divide(t, a, b, false)); return true;
    case IR_REMAINDER: *y = wrap(t, integer_divide(t, a, b, true)); return true;
    case IR_POWER: *y = wrap(t, integer_power(t, a, b)); return true;
    case IR_MAXIMUM: *y = integer_less(t, a, b) ? b : a; return true;
    case IR_MINIMUM: *y = integer_less(t, b, a) ? b : a; return true;
    case IR_AND: *y = wrap(t, a.u & b.u); return true;
    case IR_OR: *y = wrap(t, a.u | b.u); return true;
    case IR_XOR: *y = wrap(t, a.u ^ b.u); return true;
    case IR_SHIFT_LEFT:
    case IR_SHIFT_RIGHT_ARITHMETIC:
    case IR_SHIFT_RIGHT_LOGICAL: *y = wrap(t, integer_shift(kind, t, a, b)); return true;
    default: return false;
  }
}

/* The next representable value from a towards b, by the bits of any of our float formats. */
static base_scalar next_after(ttpu_dtype t, base_scalar a, base_scalar b) {
  if (isnan(a.d[0]) || isnan(b.d[0])) return (base_scalar){.d = {NAN}};
  if (a.d[0] == b.d[0]) return b;
  uint64_t bits = 0, sign = 1ull << (width_of(t) - 1);
  base_scalar_store(t, &bits, a);
  if (a.d[0] == 0) bits = 1 | (b.d[0] < 0 ? sign : 0);
  else if ((a.d[0] < b.d[0]) == (a.d[0] > 0)) bits += 1;
  else bits -= 1;
  return base_scalar_load(t, &bits);
}

static bool real_binary(ir_kind kind, ttpu_dtype t, double a, double b, double *y) {
  switch (kind) {
    case IR_ADD: *y = a + b; return true;
    case IR_SUBTRACT: *y = a - b; return true;
    case IR_MULTIPLY: *y = a * b; return true;
    case IR_DIVIDE: *y = a / b; return true;
    case IR_REMAINDER: *y = fmod(a, b); return true;
    case IR_POWER: *y = pow(a, b); return true;
    case IR_ATAN2: *y = atan2(a, b); return true;
    case IR_MAXIMUM: *y = isnan(a) ? a : isnan(b) || a < b ? b : a; return true;
    case IR_MINIMUM: *y = isnan(a) ? a : isnan(b) || b < a ? b : a; return true;
    case IR_NEXT_AFTER: *y = next_after(t, (base_scalar){.d = {a}}, (base_scalar){.d = {b}}).d[0]; return true;
    default: return false;
  }
}

/* Order of complex numbers, for maximum and minimum alone: by real part, then by imaginary part. */
static bool complex_less(complex128 a, complex128 b) {
  return creal(a) < creal(b) || (creal(a) == creal(b) && cimag(a) < cimag(b));
}
static bool complex_is_nan(complex128 a) { return isnan(creal(a)) || isnan(cimag(a)); }

static bool complex_binary(ir_kind kind, complex128 a, complex128 b, complex128 *y) {
  switch (kind) {
    case IR_ADD: *y = CMPLX(creal(a) + creal(b), cimag(a) + cimag(b)); return true;
    case IR_SUBTRACT: *y = CMPLX(creal(a) - creal(b), cimag(a) - cimag(b)); return true;
    case IR_MULTIPLY: *y = complex_multiply(a, b); return true;
    case IR_DIVIDE: *y = complex_divide(a, b); return true;
    case IR_POWER: *y = complex_power(a, b); return true;
    case IR_ATAN2: /* -i log((b + ia) / sqrt(a² + b²)) */
      *y = complex_multiply(CMPLX(0, -1), clog(complex_divide(b + complex_multiply(CMPLX(0, 1), a),
                                                              csqrt(complex_multiply(a, a) + complex_multiply(b, b)))));
      return true;
    case IR_MAXIMUM: *y = complex_is_nan(a) ? a : complex_is_nan(b) || complex_less(a, b) ? b : a; return true;
    case IR_MINIMUM: *y = complex_is_nan(a) ? a : complex_is_nan(b) || complex_less(b, a) ? b : a; return true;
    default: return false;
  }
}

bool ref_binary(ir_kind kind, ttpu_dtype t, base_scalar a, base_scalar b, base_scalar *y) {
  switch (base_dtypes[t].cls) {
    case DTYPE_FLOAT: {
      double r;
      if (!real_binary(kind, t, a.d[0], b.d[0], &r)) return false;
      *y = (base_scalar){.d = {r}};
      return true;
    }
    case DTYPE_COMPLEX: {
      complex128 r;
      if (!complex_binary(kind, complex_of(a), complex_of(b), &r)) return false;
      *y = scalar_of(r);
      return true;
    }
    default: return integer_binary(kind, t, a, b, y);
  }
}

/* ---- the rest ---------------------------------------------------------------------------------- */

static bool compare(ir_direction direction, ttpu_dtype t, base_scalar a, base_scalar b) {
  bool less, equal, greater; /* all false: unordered */
  switch (base_dtypes[t].cls) {
    case DTYPE_FLOAT: less = a.d[0]<b.d[0], equal = a.d[0] == b.d[0], greater = a.d[0]> b.d[0]; break;
    case DTYPE_COMPLEX:
      equal = a.d[0] == b.d[0] && a.d[1] == b.d[1];
      less = complex_less(complex_of(a), complex_of(b)), greater = complex_less(complex_of(b), complex_of(a));
      break;
    default: less = integer_less(t, a, b), equal = a.u == b.u, greater = integer_less(t, b, a); break;
  }
  switch (direction) {
    case IR_EQ: return equal;
    case IR_NE: return !equal;
    case IR_GE: return greater || equal;
    case IR_GT: return greater;
    case IR_LE: return less || equal;
    case IR_LT: return less;
  }
  return false;
}

/* On the bits, as XLA: round the mantissa to nearest even; an exponent beyond the smaller range becomes
 * infinity, one below it a signed zero (subnormals of the smaller format are flushed). */
static base_scalar reduce_precision(const ir_reduce_precision_attrs *attrs, ttpu_dtype t, base_scalar x) {
  if (isnan(x.d[0]) && attrs->mantissa_bits == 0) /* nothing is left to tell it from infinity */
    return (base_scalar){.d = {signbit(x.d[0]) ? -INFINITY : INFINITY}};
  if (isnan(x.d[0]) || isinf(x.d[0])) return x;
  int exponent, mantissa;
  base_dtype_float_format(t, &exponent, &mantissa);
  uint64_t bits = 0, sign = 1ull << (width_of(t) - 1);
  base_scalar_store(t, &bits, x);
  if (attrs->mantissa_bits < mantissa) {
    int drop = mantissa - (int)attrs->mantissa_bits;
    bits += ((bits >> drop) & 1) + (1ull << (drop - 1)) - 1;
    bits &= ~((1ull << drop) - 1);
  }
  if (attrs->exponent_bits < exponent) {
    int64_t bias = (1 << (exponent - 1)) - 1, reach = (1ll << (attrs->exponent_bits - 1)) - 1;
    int64_t e = (int64_t)((bits & ~sign) >> mantissa);
    if (e > bias + reach) return (base_scalar){.d = {bits & sign ? -INFINITY : INFINITY}};
    if (e <= bias - reach) bits &= sign;
  }
  return base_scalar_load(t, &bits);
}

static bool is_finite(ttpu_dtype t, base_scalar x) {
  if (base_dtype_is_float(t)) return isfinite(x.d[0]);
  return base_dtype_is_complex(t) ? isfinite(x.d[0]) && isfinite(x.d[1]) : true;
}

static bool unary(ir_kind kind, ttpu_dtype t, base_scalar x, base_scalar *y) {
  *y = (base_scalar){.d = {0, 0}};
  if (base_dtype_is_float(t)) return real_unary(kind, x.d[0], &y->d[0]);
  if (!base_dtype_is_complex(t)) return integer_unary(kind, t, x, y);
  complex128 r;
  if (!complex_unary(kind, complex_of(x), &r)) return false;
  *y = scalar_of(r);
  return true;
}

bool ref_pointwise(const ir_op *op, const ttpu_dtype *types, const base_scalar *x, ttpu_dtype result, base_scalar *y) {
  ir_kind kind = (ir_kind)op->kind;
  switch (kind) {
    case IR_CONVERT: *y = base_scalar_convert(types[0], result, x[0]); return true;
    case IR_BITCAST_CONVERT: {
      uint64_t bits[2] = {0, 0};
      base_scalar_store(types[0], bits, x[0]);
      *y = base_scalar_load(result, bits);
      return true;
    }
    case IR_REDUCE_PRECISION: *y = reduce_precision(IR_ATTRS(op, reduce_precision), types[0], x[0]); return true;
    case IR_IS_FINITE: *y = (base_scalar){.u = is_finite(types[0], x[0])}; return true;
    case IR_COMPARE:
      *y = (base_scalar){.u = compare(IR_ATTRS(op, compare)->comparison_direction, types[0], x[0], x[1])};
      return true;
    case IR_SELECT: *y = x[0].i ? x[1] : x[2]; return true;
    case IR_CLAMP: {
      base_scalar low;
      return ref_binary(IR_MAXIMUM, types[1], x[1], x[0], &low) && ref_binary(IR_MINIMUM, types[1], low, x[2], y);
    }
    case IR_COMPLEX: *y = (base_scalar){.d = {x[0].d[0], x[1].d[0]}}; return true;
    default: return op->operand_count == 1 ? unary(kind, types[0], x[0], y) : ref_binary(kind, types[0], x[0], x[1], y);
  }
}
