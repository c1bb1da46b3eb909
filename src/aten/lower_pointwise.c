/* Pointwise operators: one function a tuple of operands, serving the plain and the foreach operator (aten_int.h).
 *
 * Where a formula looks roundabout it follows the CPU kernel's, so that the results agree in the last bits and at
 * NaN, infinities and signed zeros. */
#include <math.h>

#include "aten/aten_int.h"

/* POINT(name, promoted, promotion) { body } makes lower_<name>; POINT_EACH makes lower_foreach_<name> as well.
 * In the body p is the point, c the lowering, b the builder. */
#define MAYBE __attribute__((unused))
#define POINT_BODY(name) static ir_value point_##name(MAYBE aten_point *p, MAYBE aten_lowering *c, MAYBE ir_builder *b)
#define POINT_LOWER(prefix, run, name, promoted, promotion)                                     \
  static ir_value prefix##call_##name(aten_point *p) { return point_##name(p, p->c, p->c->b); } \
  void lower_##prefix##name(aten_lowering *c) { run(c, promoted, promotion, prefix##call_##name); }
#define POINT(name, promoted, promotion)                   \
  POINT_BODY(name);                                        \
  POINT_LOWER(, aten_pointwise, name, promoted, promotion) \
  POINT_BODY(name)
#define POINT_EACH(name, promoted, promotion)                    \
  POINT_BODY(name);                                              \
  POINT_LOWER(, aten_pointwise, name, promoted, promotion)       \
  POINT_LOWER(foreach_, aten_foreach, name, promoted, promotion) \
  POINT_BODY(name)

enum { SELF = ARG(0), PAIR = ARG(0) | ARG(1), TRIPLE = ARG(0) | ARG(1) | ARG(2) };

static bool is_float(const aten_point *p) { return base_dtype_is_float(p->common); }
static bool is_complex(const aten_point *p) { return base_dtype_is_complex(p->common); }
static bool is_whole(const aten_point *p) { return !is_float(p) && !is_complex(p); } /* integer or bool */

static ir_value both(ir_builder *b, ir_value x, ir_value y) { return ir_and_bits(b, x, y); }
static ir_value either(ir_builder *b, ir_value x, ir_value y) { return ir_or_bits(b, x, y); }
static ir_value is_zero(aten_lowering *c, ir_value x) { return ir_compare(c->b, IR_EQ, x, ir_zeros_like(c->b, x)); }
static ir_value is_negative(aten_lowering *c, ir_value x) { return ir_compare(c->b, IR_LT, x, ir_zeros_like(c->b, x)); }
static ir_value none_true(aten_point *p) { return ir_fill_i64(p->c->b, TTPU_BOOL, p->rank, p->sizes, 0); }

static ir_value make(aten_lowering *c, ir_value re, ir_value im) { return ir_complex(c->b, re, im); }

/* ---- one operand --------------------------------------------------------------------------------- */

#define UNARY_FLOAT(name, build) \
  POINT(name, SELF, ATEN_PROMOTE_FLOAT) { return build(b, aten_point_in(p, 0)); }
#define UNARY_FLOAT_EACH(name, build) \
  POINT_EACH(name, SELF, ATEN_PROMOTE_FLOAT) { return build(b, aten_point_in(p, 0)); }

UNARY_FLOAT_EACH(cos, ir_cosine)
UNARY_FLOAT_EACH(sin, ir_sine)
UNARY_FLOAT_EACH(tan, ir_tan)
UNARY_FLOAT_EACH(tanh, ir_tanh)
UNARY_FLOAT_EACH(expm1, ir_exponential_minus_one)
UNARY_FLOAT_EACH(log, ir_log)
UNARY_FLOAT_EACH(log1p, ir_log_plus_one)
UNARY_FLOAT_EACH(sqrt, ir_sqrt)
UNARY_FLOAT_EACH(rsqrt, ir_rsqrt)
UNARY_FLOAT_EACH(sigmoid, ir_logistic)
UNARY_FLOAT_EACH(erf, ir_erf)
UNARY_FLOAT_EACH(erfc, ir_erfc)
UNARY_FLOAT(erfinv, ir_erf_inv)
UNARY_FLOAT_EACH(lgamma, ir_lgamma)
UNARY_FLOAT_EACH(acos, ir_acos)
UNARY_FLOAT_EACH(asin, ir_asin)
UNARY_FLOAT_EACH(atan, ir_atan)
UNARY_FLOAT(acosh, ir_acosh)
UNARY_FLOAT(asinh, ir_asinh)
UNARY_FLOAT(atanh, ir_atanh)
UNARY_FLOAT_EACH(cosh, ir_cosh)
UNARY_FLOAT_EACH(sinh, ir_sinh)

/* Of infinity with an imaginary part that is not finite it is 0 or infinity on CPU, NaN in StableHLO. */
static ir_value complex_exp(aten_lowering *c, ir_value x) {
  ir_builder *b = c->b;
  ir_value re = ir_real(b, x), im = ir_imag(b, x), top = aten_like(c, re, INFINITY), zero = aten_like(c, re, 0);
  ir_value open = ir_not_bits(b, ir_is_finite(b, im));
  ir_value signed_zero = ir_select(b, is_negative(c, im), ir_negate(b, zero), zero);
  ir_value below = both(b, open, ir_compare(b, IR_EQ, re, ir_negate(b, top)));
  ir_value above = both(b, open, ir_compare(b, IR_EQ, re, top));
  ir_value y = ir_select(b, below, make(c, zero, signed_zero), ir_exponential(b, x));
  return ir_select(b, above, make(c, top, aten_like(c, re, NAN)), y);
}
POINT_EACH(exp, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0);
  return is_complex(p) ? complex_exp(c, x) : ir_exponential(b, x);
}

/* digamma(+-0) is -+inf on CPU, and NaN at the negative integers. */
POINT(digamma, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0);
  ir_value at_zero = ir_divide(b, aten_point_const(p, -1), x);
  ir_value pole = both(b, is_negative(c, x), ir_compare(b, IR_EQ, x, ir_floor(b, x)));
  return ir_select(b, is_zero(c, x), at_zero, aten_select_number(c, pole, NAN, ir_digamma(b, x)));
}

POINT(exp2, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0);
  if (is_complex(p)) { /* by parts: inf * (ln(2) + 0i) would have a NaN */
    ir_value re = ir_real(b, x), ln2 = aten_like(c, re, M_LN2);
    return complex_exp(c, make(c, ir_multiply(b, re, ln2), ir_multiply(b, ir_imag(b, x), ln2)));
  }
  return ir_power(b, aten_like(c, x, 2), x);
}

POINT_EACH(log2, SELF, ATEN_PROMOTE_FLOAT) { return aten_log2(c, aten_point_in(p, 0)); }

POINT_EACH(log10, SELF, ATEN_PROMOTE_FLOAT) { return aten_log_of_base(c, aten_point_in(p, 0), M_LN10); }

POINT_EACH(reciprocal, SELF, ATEN_PROMOTE_FLOAT) { return ir_divide(b, aten_point_const(p, 1), aten_point_in(p, 0)); }

POINT_EACH(abs, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  bool already = p->common == TTPU_BOOL || base_dtypes[p->common].cls == DTYPE_UNSIGNED;
  return already ? x : ir_abs(b, x);
}

POINT_EACH(neg, SELF, ATEN_PROMOTE) { return ir_negate(b, aten_point_in(p, 0)); }

/* Integers are whole already; PyTorch passes them through. */
#define UNARY_WHOLE(name, build)         \
  POINT_EACH(name, SELF, ATEN_PROMOTE) { \
    ir_value x = aten_point_in(p, 0);    \
    return is_whole(p) ? x : build;      \
  }
UNARY_WHOLE(ceil, ir_ceil(b, x))
UNARY_WHOLE(floor, ir_floor(b, x))
UNARY_WHOLE(round, ir_round_nearest_even(b, x))
UNARY_WHOLE(trunc, aten_trunc(c, x))

POINT_EACH(frac, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  return ir_subtract(b, x, aten_trunc(c, x));
}

/* round.decimals: scaled by a power of ten (a division by one for negative decimals), as CPU does. */
POINT(round_decimals, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  int64_t decimals = aten_int(c, 1);
  if (is_whole(p)) return x;
  ir_value ten = aten_point_const(p, pow(10, fabs((double)decimals)));
  if (decimals < 0) return ir_multiply(b, ir_round_nearest_even(b, ir_divide(b, x, ten)), ten);
  return ir_divide(b, ir_round_nearest_even(b, ir_multiply(b, x, ten)), ten);
}

/* (0 < x) - (x < 0): 0 for NaN, where StableHLO's sign keeps it. */
static ir_value real_sign(aten_point *p, ir_value x) {
  aten_lowering *c = p->c;
  if (p->common == TTPU_BOOL) return x;
  if (base_dtypes[p->common].cls == DTYPE_UNSIGNED) {
    ir_value one = aten_like_i64(c, x, 1);
    return ir_minimum(c->b, x, one);
  }
  if (is_whole(p)) return ir_sign(c->b, x);
  ir_value zero = aten_like(c, x, 0);
  ir_value below = ir_select(c->b, is_negative(c, x), aten_like(c, x, -1), zero);
  return ir_select(c->b, ir_compare(c->b, IR_GT, x, zero), aten_like(c, x, 1), below);
}

POINT_EACH(sign, SELF, ATEN_PROMOTE) { return real_sign(p, aten_point_in(p, 0)); }

POINT(sgn, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  if (!is_complex(p)) return real_sign(p, x);
  ir_value size = ir_abs(b, x);
  ir_value unit = make(c, ir_divide(b, ir_real(b, x), size), ir_divide(b, ir_imag(b, x), size));
  return ir_select(b, is_zero(c, size), ir_zeros_like(b, x), unit);
}

POINT(signbit, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  if (base_dtypes[p->common].cls == DTYPE_UNSIGNED || p->common == TTPU_BOOL) return none_true(p);
  if (is_whole(p)) return is_negative(c, x);
  return is_negative(c, ir_bitcast_convert(b, x, p->math == TTPU_F64 ? TTPU_I64 : TTPU_I32));
}

POINT(angle, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0);
  if (is_complex(p)) return ir_atan2(b, ir_imag(b, x), ir_real(b, x));
  ir_value turned = ir_select(b, is_negative(c, x), aten_like(c, x, M_PI), aten_like(c, x, 0));
  return ir_select(b, aten_is_nan(c, x), x, turned);
}

POINT(conj_physical, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  return is_complex(p) ? make(c, ir_real(b, x), ir_negate(b, ir_imag(b, x))) : x;
}

POINT(deg2rad, SELF, ATEN_PROMOTE_FLOAT) {
  return ir_multiply(b, aten_point_in(p, 0), aten_point_const(p, M_PI / 180));
}
POINT(rad2deg, SELF, ATEN_PROMOTE_FLOAT) {
  return ir_multiply(b, aten_point_in(p, 0), aten_point_const(p, 180 / M_PI));
}

/* sin(pi x) / (pi x). The sine is that of x's distance to the nearest integer, which is exact, where pi x is not. In f64:
 * pi alone has half an f32 ULP. */
POINT(sinc, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0), one;
  if (is_complex(p)) {
    ir_value product = ir_multiply(b, x, aten_like(c, x, M_PI));
    return ir_select(b, is_zero(c, x), aten_like(c, x, 1), ir_divide(b, ir_sine(b, product), product));
  }
  x = ir_convert(b, x, TTPU_F64);
  one = aten_like(c, x, 1);
  ir_value whole = ir_round_nearest_even(b, x), half = ir_multiply(b, whole, aten_like(c, x, 0.5));
  ir_value angle = ir_multiply(b, ir_subtract(b, x, whole), aten_like(c, x, M_PI));
  /* An f32 sine is good enough for f32, and vector code. */
  ir_value sine = ir_convert(b, ir_sine(b, ir_convert(b, angle, p->math)), TTPU_F64);
  ir_value odd = ir_compare(b, IR_NE, half, ir_floor(b, half));
  sine = ir_select(b, odd, ir_negate(b, sine), sine);
  ir_value ratio = ir_divide(b, sine, ir_multiply(b, x, aten_like(c, x, M_PI)));
  ir_value small =
      ir_compare(b, IR_LT, ir_abs(b, x), aten_like(c, x, 1e-20)); /* the sine of a subnormal has few bits */
  return ir_select(b, small, one, ratio);
}

POINT(logit, SELF, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0), one = aten_like(c, x, 1);
  const aten_number *eps = aten_number_of(c, 1); /* static: its sign decides */
  if (eps && eps->value.d[0] >= 0) {
    ir_value low = aten_point_number(p, 1), high = ir_subtract(b, one, low);
    ir_value below = ir_compare(b, IR_LT, x, low), above = ir_compare(b, IR_GT, x, high);
    x = ir_select(b, below, low, ir_select(b, above, high, x));
  }
  /* log(x / (1 - x)); near 1/2, where that is near 0, log1p of the ratio less 1, on either side with the smaller part
   * as the divisor. */
  ir_value rest = ir_subtract(b, one, x), right = ir_compare(b, IR_GT, x, aten_like(c, x, 0.5));
  ir_value low = ir_select(b, right, rest, x), near = ir_compare(b, IR_GT, low, aten_like(c, x, 0.25));
  ir_value apart = ir_divide(b, ir_subtract(b, one, ir_add(b, low, low)), low);
  apart = ir_log_plus_one(b, apart);
  apart = ir_select(b, right, apart, ir_negate(b, apart));
  return ir_select(b, near, apart, ir_log(b, ir_divide(b, x, rest)));
}

/* Without eps: NaN outside [0, 1]; with it: 0 outside [eps, 1 - eps]. */
POINT(logit_backward, PAIR, ATEN_PROMOTE_FLOAT) {
  ir_value grad = aten_point_in(p, 0), x = aten_point_in(p, 1), one = aten_like(c, x, 1);
  const aten_number *eps = aten_number_of(c, 2); /* static, like logit's */
  bool bounded = eps && eps->value.d[0] >= 0;
  ir_value low = bounded ? aten_point_number(p, 2) : aten_like(c, x, 0), high = ir_subtract(b, one, low);
  ir_value outside = either(b, ir_compare(b, IR_LT, x, low), ir_compare(b, IR_GT, x, high));
  ir_value r = ir_divide(b, grad, ir_multiply(b, x, ir_subtract(b, one, x)));
  return aten_select_number(c, outside, bounded ? 0 : NAN, r);
}

static double largest_finite(ttpu_dtype t) {
  switch (t) {
    case TTPU_F16: return 65504;
    case TTPU_BF16: return 0x1.fep127;
    case TTPU_F64: return 0x1.fffffffffffffp1023;
    case TTPU_F8E4M3FN: return 448;
    case TTPU_F8E5M2: return 57344;
    default: return 0x1.fffffep127;
  }
}

POINT(nan_to_num, SELF, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0);
  if (is_whole(p)) return x;
  ttpu_dtype part = aten_real_dtype(p->math);
  ir_value highest = ir_scalar_f64(b, part, largest_finite(aten_real_dtype(p->common)));
  ir_value nan = aten_has(c, 1) ? aten_number_in(c, 1, part) : ir_scalar_f64(b, part, 0);
  ir_value high = aten_has(c, 2) ? aten_number_in(c, 2, part) : highest;
  ir_value low = aten_has(c, 3) ? aten_number_in(c, 3, part) : ir_negate(b, highest);
  ir_value parts[2] = {x, 0};
  if (is_complex(p)) parts[0] = ir_real(b, x), parts[1] = ir_imag(b, x);
  for (int i = 0; i < 1 + is_complex(p); ++i) {
    ir_value v = parts[i], infinity = aten_like(c, v, INFINITY);
    ir_value r = ir_select(b, ir_compare(b, IR_EQ, v, infinity), aten_spread(c, high, v), v);
    r = ir_select(b, ir_compare(b, IR_EQ, v, ir_negate(b, infinity)), aten_spread(c, low, v), r);
    parts[i] = ir_select(b, aten_is_nan(c, v), aten_spread(c, nan, v), r);
  }
  return is_complex(p) ? make(c, parts[0], parts[1]) : parts[0];
}

/* ---- tests of one operand ------------------------------------------------------------------------ */

POINT(isnan, SELF, ATEN_COMPARE) {
  if (is_whole(p)) return none_true(p);
  ir_value x = aten_point_in(p, 0);
  return ir_compare(b, IR_NE, x, x);
}

POINT(isinf, SELF, ATEN_COMPARE) {
  if (is_whole(p)) return none_true(p);
  ir_value x = aten_point_in(p, 0);
  if (!is_complex(p)) return aten_is_inf(c, x);
  return either(b, aten_is_inf(c, ir_real(b, x)), aten_is_inf(c, ir_imag(b, x)));
}

POINT(isposinf, SELF, ATEN_COMPARE) {
  if (is_whole(p)) return none_true(p);
  return ir_compare(b, IR_EQ, aten_point_in(p, 0), aten_point_const(p, INFINITY));
}

POINT(isneginf, SELF, ATEN_COMPARE) {
  if (is_whole(p)) return none_true(p);
  return ir_compare(b, IR_EQ, aten_point_in(p, 0), aten_point_const(p, -INFINITY));
}

/* ---- arithmetic ---------------------------------------------------------------------------------- */

/* alpha * x; the packer leaves alpha out where it is 1. A complex x is multiplied by 1 + 0i all the same, as PyTorch's
 * kernels do: it makes NaN of a number of which both parts are infinite. */
static ir_value scaled(aten_point *p, uint32_t alpha, ir_value x) {
  if (!aten_point_has(p, alpha)) return is_complex(p) ? ir_multiply(p->c->b, x, aten_like(p->c, x, 1)) : x;
  return ir_multiply(p->c->b, x, aten_point_number(p, alpha));
}

POINT_EACH(add, PAIR, ATEN_PROMOTE) {
  return ir_add(b, aten_point_in_exact(p, 0), scaled(p, 2, aten_point_in_exact(p, 1)));
}
POINT_EACH(sub, PAIR, ATEN_PROMOTE) {
  return ir_subtract(b, aten_point_in_exact(p, 0), scaled(p, 2, aten_point_in_exact(p, 1)));
}
POINT(add_relu, PAIR, ATEN_PROMOTE) {
  ir_value sum = ir_add(b, aten_point_in_exact(p, 0), scaled(p, 2, aten_point_in_exact(p, 1)));
  return ir_maximum(b, sum, aten_like(c, sum, 0));
}
POINT(rsub, PAIR, ATEN_PROMOTE) {
  return ir_subtract(b, aten_point_in_exact(p, 1), scaled(p, 2, aten_point_in_exact(p, 0)));
}
POINT_EACH(mul, PAIR, ATEN_PROMOTE) { return ir_multiply(b, aten_point_in_exact(p, 0), aten_point_in_exact(p, 1)); }

/* Python's //: the quotient of what is left after taking the remainder away, rounded down, so that an inexact
 * quotient never rounds past the integer below. */
static ir_value float_floor_divide(aten_lowering *c, ir_value x, ir_value y) {
  ir_builder *b = c->b;
  ir_value zero = aten_like(c, x, 0), one = aten_like(c, x, 1);
  ir_value rest = ir_remainder(b, x, y), plain = ir_divide(b, x, y);
  ir_value quotient = ir_divide(b, ir_subtract(b, x, rest), y);
  ir_value apart = ir_compare(b, IR_NE, is_negative(c, y), is_negative(c, rest));
  apart = both(b, apart, ir_compare(b, IR_NE, rest, zero));
  quotient = ir_select(b, apart, ir_subtract(b, quotient, one), quotient);
  ir_value down = ir_floor(b, quotient);
  ir_value close = ir_compare(b, IR_GT, ir_subtract(b, quotient, down), aten_like(c, x, 0.5));
  down = ir_select(b, close, ir_add(b, down, one), down);
  ir_value signed_zero = ir_multiply(b, zero, plain); /* copysign(0, x/y) for the finite x/y it is used for */
  ir_value nonzero = ir_compare(b, IR_NE, quotient, zero);
  return ir_select(b, is_zero(c, y), plain, ir_select(b, nonzero, down, signed_zero));
}

static ir_value integer_floor_divide(aten_lowering *c, ir_value x, ir_value y) {
  ir_builder *b = c->b;
  ir_value quotient = ir_divide(b, x, y);
  if (base_dtypes[aten_type(c, x).dtype].cls != DTYPE_SIGNED) return quotient;
  ir_value rest = ir_remainder(b, x, y), zero = aten_like_i64(c, x, 0);
  ir_value apart = ir_compare(b, IR_NE, is_negative(c, y), is_negative(c, rest));
  apart = both(b, apart, ir_compare(b, IR_NE, rest, zero));
  return ir_select(b, apart, ir_subtract(b, quotient, aten_like_i64(c, x, 1)), quotient);
}

/* A divisor; among whole numbers it must not be 0. */
static ir_value divisor(aten_point *p, ir_value y) {
  ir_builder *b = p->c->b;
  if (is_whole(p)) ir_check_not(b, ir_compare(b, IR_EQ, y, ir_zeros_like(b, y)), IR_BAD_VALUE, "ZeroDivisionError");
  return y;
}

static ir_value floor_divide(aten_point *p) {
  ir_value x = aten_point_in_exact(p, 0), y = divisor(p, aten_point_in_exact(p, 1));
  return is_whole(p) ? integer_floor_divide(p->c, x, y) : float_floor_divide(p->c, x, y);
}

POINT_EACH(div, PAIR, ATEN_PROMOTE_FLOAT) { return ir_divide(b, aten_point_in_exact(p, 0), aten_point_in_exact(p, 1)); }
POINT(floor_divide, PAIR, ATEN_PROMOTE) { return floor_divide(p); }
static ir_value div_floor(aten_point *p) { return floor_divide(p); }
/* CPU rounds a half quotient before it cuts it, save where the divisor is one number for all. */
static ir_value div_trunc(aten_point *p) {
  ir_builder *b = p->c->b;
  ir_value quotient = ir_divide(b, aten_point_in_exact(p, 0), divisor(p, aten_point_in_exact(p, 1)));
  if (is_whole(p)) return quotient;
  bool one_divisor = aten_point_number_of(p, 1) || aten_meta(p->c, 1)->rank == 0;
  if (aten_is_half(p->common) && !one_divisor) quotient = ir_convert(b, ir_convert(b, quotient, p->common), p->math);
  return aten_trunc(p->c, quotient);
}
void lower_div_mode(aten_lowering *c) {
  const char *mode = aten_text(c, 2);
  if (!mode) lower_div(c);
  else aten_pointwise(c, PAIR, ATEN_PROMOTE, mode[0] == 'f' ? div_floor : div_trunc);
}

POINT(fmod, PAIR, ATEN_PROMOTE) { return ir_remainder(b, aten_point_in(p, 0), divisor(p, aten_point_in(p, 1))); }

/* The remainder has the divisor's sign. */
POINT(remainder, PAIR, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0), y = divisor(p, aten_point_in(p, 1)), rest = ir_remainder(b, x, y);
  if (is_whole(p) && base_dtypes[p->common].cls != DTYPE_SIGNED) return rest;
  ir_value apart = ir_compare(b, IR_NE, is_negative(c, y), is_negative(c, rest));
  apart = both(b, apart, ir_compare(b, IR_NE, rest, ir_zeros_like(b, rest)));
  return ir_select(b, apart, ir_add(b, rest, y), rest);
}

/* ---- powers -------------------------------------------------------------------------------------- */

/* x ** n for integers: 0 for a negative n, save for the bases that have an inverse. */
static ir_value integer_power(aten_lowering *c, ir_value x, ir_value n) {
  ir_builder *b = c->b;
  ttpu_dtype t = aten_type(c, x).dtype;
  if (base_dtypes[t].cls != DTYPE_SIGNED) return ir_power(b, x, n);
  ir_value zero = aten_like_i64(c, x, 0), one = aten_like_i64(c, x, 1), minus = aten_like_i64(c, x, -1);
  ir_value below = is_negative(c, n);
  ir_value odd = ir_compare(b, IR_NE, ir_and_bits(b, n, one), zero);
  ir_value at_minus = ir_select(b, odd, minus, one);
  ir_value inverse =
      ir_select(b, ir_compare(b, IR_EQ, x, one), one, ir_select(b, ir_compare(b, IR_EQ, x, minus), at_minus, zero));
  return ir_select(b, below, inverse, ir_power(b, x, ir_select(b, below, zero, n)));
}

/* exp(n log x) has no value at x = 0, where the power is 0 for n to the right and infinite to the left, and NaN for n = 0 as
 * on the CPU (which gives 1 for a Scalar exponent alone). */
static ir_value complex_power(aten_lowering *c, ir_value x, ir_value n) {
  ir_builder *b = c->b;
  ir_value re = ir_real(b, n), right = ir_compare(b, IR_GT, re, ir_zeros_like(b, re)), nan = aten_like(c, re, NAN);
  ir_value infinite = make(c, aten_like(c, re, INFINITY), nan);
  ir_value left = ir_select(b, is_zero(c, n), make(c, nan, nan), infinite);
  ir_value at_zero = ir_select(b, right, aten_like(c, x, 0), left);
  return ir_select(b, is_zero(c, x), at_zero, ir_power(b, x, n));
}

static ir_value general_power(aten_point *p) {
  ir_value x = aten_point_in(p, 0), n = aten_point_in(p, 1);
  if (is_complex(p)) return complex_power(p->c, x, n);
  return is_whole(p) ? integer_power(p->c, x, n) : ir_power(p->c->b, x, n);
}

POINT_EACH(pow, PAIR, ATEN_PROMOTE) { return general_power(p); }

/* The exponents that CPU's pow singles out; the exponent is static, since models use few and the most frequent is 2. */
POINT(pow_scalar, PAIR, ATEN_PROMOTE) {
  const aten_number *n = aten_number_of(c, 1);
  double e = aten_static(c, 1);
  if (!n || (n->dtype == TTPU_C128 && n->value.d[1] != 0)) return general_power(p);
  if (is_whole(p) && (e < 0 || e > 3)) return general_power(p);
  if (p->common == TTPU_F16 && fabs(e) == 0.5) return general_power(p); /* pow(-inf, 0.5) is inf there, not NaN */
  ir_value x = aten_point_in(p, 0), one = 0;
  if (e == 0) return is_whole(p) ? aten_like_i64(c, x, 1) : aten_like(c, x, 1);
  if (e == 1) return x;
  if (e == 2) return ir_multiply(b, x, x);
  if (e == 3) return ir_multiply(b, ir_multiply(b, x, x), x);
  if (e == 0.5) return ir_sqrt(b, x);
  one = aten_like(c, x, 1);
  if (e == -0.5) return is_complex(p) ? ir_divide(b, one, ir_sqrt(b, x)) : ir_rsqrt(b, x);
  if (e == -1) return ir_divide(b, one, x);
  if (e == -2) return ir_divide(b, one, ir_multiply(b, x, x));
  return general_power(p);
}

/* ---- bits ---------------------------------------------------------------------------------------- */

POINT(bitwise_and, PAIR, ATEN_PROMOTE) { return ir_and_bits(b, aten_point_in(p, 0), aten_point_in(p, 1)); }
POINT(bitwise_or, PAIR, ATEN_PROMOTE) { return ir_or_bits(b, aten_point_in(p, 0), aten_point_in(p, 1)); }
POINT(bitwise_xor, PAIR, ATEN_PROMOTE) { return ir_xor_bits(b, aten_point_in(p, 0), aten_point_in(p, 1)); }
POINT(bitwise_not, SELF, ATEN_PROMOTE) { return ir_not_bits(b, aten_point_in(p, 0)); }

/* Shifts by a negative amount or by the width and more: left gives 0, right what remains after all bits have gone. */
static ir_value amount_outside(aten_lowering *c, ir_value amount, int64_t limit) {
  ir_value above = ir_compare(c->b, IR_GE, amount, aten_like_i64(c, amount, limit));
  return either(c->b, above, is_negative(c, amount));
}

POINT(shift_left, PAIR, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0), amount = aten_point_in(p, 1), zero = aten_like_i64(c, x, 0);
  if (!is_whole(p)) return ir_multiply(b, x, ir_power(b, aten_like(c, x, 2), amount));
  ir_value outside = amount_outside(c, amount, 8 * (int64_t)base_dtype_bytes(p->common));
  return ir_select(b, outside, zero, ir_shift_left(b, x, ir_select(b, outside, zero, amount)));
}

POINT(shift_right, PAIR, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0), amount = aten_point_in(p, 1);
  if (!is_whole(p)) return ir_divide(b, x, ir_power(b, aten_like(c, x, 2), amount));
  bool has_sign = base_dtypes[p->common].cls == DTYPE_SIGNED;
  int64_t bits = 8 * (int64_t)base_dtype_bytes(p->common), most = bits - 1;
  ir_value outside = amount_outside(c, amount, bits);
  ir_value safe = ir_select(b, outside, aten_like_i64(c, x, most), amount);
  if (has_sign) return ir_shift_right_arithmetic(b, x, safe);
  return ir_select(b, outside, aten_like_i64(c, x, 0), ir_shift_right_logical(b, x, safe));
}

/* ---- comparisons and logic ----------------------------------------------------------------------- */

#define COMPARISON(name, direction) \
  POINT(name, PAIR, ATEN_COMPARE) { return ir_compare(b, direction, aten_point_in(p, 0), aten_point_in(p, 1)); }
COMPARISON(eq, IR_EQ)
COMPARISON(ne, IR_NE)
COMPARISON(lt, IR_LT)
COMPARISON(le, IR_LE)
COMPARISON(gt, IR_GT)
COMPARISON(ge, IR_GE)

/* Each operand against its own zero: no promotion, which could round a small number to 0. */
static ir_value truth(aten_point *p, uint32_t arg) {
  ttpu_dtype own = (ttpu_dtype)aten_meta(p->c, arg)->dtype;
  return aten_is_true(p->c, aten_point_in_as(p, arg, own));
}
POINT(logical_and, PAIR, ATEN_COMPARE) { return ir_and_bits(b, truth(p, 0), truth(p, 1)); }
POINT(logical_or, PAIR, ATEN_COMPARE) { return ir_or_bits(b, truth(p, 0), truth(p, 1)); }
POINT(logical_xor, PAIR, ATEN_COMPARE) { return ir_xor_bits(b, truth(p, 0), truth(p, 1)); }
POINT(logical_not, SELF, ATEN_COMPARE) { return ir_not_bits(b, truth(p, 0)); }

/* ---- two operands -------------------------------------------------------------------------------- */

#define BINARY(name, promotion, build) \
  POINT(name, PAIR, promotion) { return build(b, aten_point_in(p, 0), aten_point_in(p, 1)); }
#define BINARY_EACH(name, promotion, build) \
  POINT_EACH(name, PAIR, promotion) { return build(b, aten_point_in(p, 0), aten_point_in(p, 1)); }

BINARY_EACH(maximum, ATEN_PROMOTE, ir_maximum)
BINARY_EACH(minimum, ATEN_PROMOTE, ir_minimum)
BINARY(atan2, ATEN_PROMOTE_FLOAT, ir_atan2)

/* NaN gives way to a number, and of equal operands (zeros of either sign) the first is taken. */
static ir_value prefer_number(aten_point *p, ir_direction first) {
  aten_lowering *c = p->c;
  ir_value x = aten_point_in(p, 0), y = aten_point_in(p, 1);
  ir_value takes = ir_compare(c->b, first, x, y);
  if (!is_whole(p)) takes = either(c->b, takes, aten_is_nan(c, y));
  return ir_select(c->b, takes, x, y);
}
POINT(fmax, PAIR, ATEN_PROMOTE) { return prefer_number(p, IR_GE); }
POINT(fmin, PAIR, ATEN_PROMOTE) { return prefer_number(p, IR_LE); }

/* In the dtype itself: the neighbour of a bf16 is a bf16. */
POINT(nextafter, PAIR, ATEN_PROMOTE) {
  return ir_next_after(b, aten_point_in_as(p, 0, p->common), aten_point_in_as(p, 1, p->common));
}

POINT(hypot, PAIR, ATEN_PROMOTE_FLOAT) { return ir_abs(b, ir_complex(b, aten_point_in(p, 0), aten_point_in(p, 1))); }

POINT(copysign, PAIR, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0), y = aten_point_in(p, 1);
  bool wide = p->math == TTPU_F64;
  ttpu_dtype bits = wide ? TTPU_I64 : TTPU_I32;
  ir_value sign = ir_bitcast_convert(b, y, bits), size = ir_bitcast_convert(b, x, bits);
  ir_value sign_bit = aten_like_i64(c, sign, wide ? INT64_MIN : INT32_MIN);
  ir_value rest = ir_and_bits(b, size, ir_not_bits(b, sign_bit));
  return ir_bitcast_convert(b, ir_or_bits(b, rest, ir_and_bits(b, sign, sign_bit)), p->math);
}

POINT(heaviside, PAIR, ATEN_PROMOTE) {
  ir_value x = aten_point_in(p, 0), y = aten_point_in(p, 1);
  ir_value positive = ir_convert(b, ir_compare(b, IR_GT, x, ir_zeros_like(b, x)), p->math);
  return ir_select(b, is_zero(c, x), y, positive);
}

/* x * f(y), which is 0 where x is 0 whatever y, save for NaN. */
static ir_value times_log(aten_point *p, aten_lowering *c, ir_value (*f)(ir_builder *, ir_value)) {
  ir_value x = aten_point_in(p, 0), y = aten_point_in(p, 1);
  ir_value product = ir_multiply(c->b, x, f(c->b, y));
  ir_value r = aten_select_number(c, is_zero(c, x), 0, product);
  return aten_select_number(c, aten_is_nan(c, y), NAN, r);
}
POINT(xlogy, PAIR, ATEN_PROMOTE_FLOAT) { return times_log(p, c, ir_log); }
POINT(xlog1py, PAIR, ATEN_PROMOTE_FLOAT) { return times_log(p, c, ir_log_plus_one); }

/* max + log(1 + exp(min - max)) of complex numbers, which are ordered by their real parts. As on CPU a NaN makes both
 * parts NaN; two real parts of -inf give one of the numbers, two of inf log(exp(x) + exp(y)). */
static ir_value complex_logaddexp(aten_lowering *c, ir_value x, ir_value y) {
  ir_builder *b = c->b;
  ir_value re_x = ir_real(b, x), re_y = ir_real(b, y), first = ir_compare(b, IR_GE, re_x, re_y);
  ir_value high = ir_select(b, first, x, y), low = ir_select(b, first, y, x);
  ir_value share = complex_exp(c, ir_subtract(b, low, high)), top = aten_like(c, re_x, INFINITY);
  ir_value r = ir_add(b, high, ir_log(b, ir_add(b, share, aten_like(c, share, 1))));
  ir_value sum = ir_log(b, ir_add(b, complex_exp(c, x), complex_exp(c, y)));
  ir_value same = ir_compare(b, IR_EQ, re_x, re_y);
  r = ir_select(b, both(b, same, ir_compare(b, IR_EQ, re_x, top)), sum, r);
  r = ir_select(b, both(b, same, ir_compare(b, IR_EQ, re_x, ir_negate(b, top))), low, r);
  ir_value nan = aten_like(c, re_x, NAN);
  return ir_select(b, either(b, aten_is_nan(c, x), aten_is_nan(c, y)), make(c, nan, nan), r);
}

/* max + log(1 + exp(min - max)); equal infinities would give inf - inf. */
ir_value aten_logaddexp(aten_lowering *c, ir_value x, ir_value y) {
  ir_builder *b = c->b;
  if (base_dtype_is_complex((ttpu_dtype)aten_type(c, x).dtype)) return complex_logaddexp(c, x, y);
  ir_value high = ir_maximum(b, x, y), distance = ir_abs(b, ir_subtract(b, x, y));
  ir_value r = ir_add(b, high, ir_log_plus_one(b, ir_exponential(b, ir_negate(b, distance))));
  return ir_select(b, both(b, aten_is_inf(c, x), ir_compare(b, IR_EQ, x, y)), x, r);
}

POINT(logaddexp, PAIR, ATEN_PROMOTE_FLOAT) { return aten_logaddexp(c, aten_point_in(p, 0), aten_point_in(p, 1)); }

POINT(logaddexp2, PAIR, ATEN_PROMOTE_FLOAT) {
  ir_value x = aten_point_in(p, 0), y = aten_point_in(p, 1);
  ir_value high = ir_maximum(b, x, y), distance = ir_abs(b, ir_subtract(b, x, y));
  ir_value part = ir_log_plus_one(b, ir_power(b, aten_like(c, x, 2), ir_negate(b, distance)));
  ir_value r = ir_add(b, high, ir_multiply(b, part, aten_like(c, x, M_LOG2E)));
  return ir_select(b, both(b, aten_is_inf(c, x), ir_compare(b, IR_EQ, x, y)), x, r);
}

/* Euclid's algorithm on whole tensors: x, y = y, x mod y until every y is 0. */
static ir_value euclid(aten_lowering *c, ir_value x, ir_value y) {
  ir_builder *b = c->b;
  ir_type types[2] = {aten_type(c, x), aten_type(c, x)};
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 2, types, &outer);
  if (!regions[0]) return 0;
  ir_value rest = regions[0]->first_arg + 1;
  int64_t all[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < types[0].rank; ++i) all[i] = i;
  ir_value going = ir_compare(b, IR_NE, rest, ir_zeros_like(b, rest));
  if (types[0].rank) going = ir_reduce(b, IR_OR, going, types[0].rank, all);
  ir_region_end(b, outer, 1, &going);

  regions[1] = ir_region_begin(b, 2, types, &outer);
  if (!regions[1]) return 0;
  ir_value high = regions[1]->first_arg, low = high + 1;
  ir_value done = is_zero(c, low);
  ir_value divisor = ir_select(b, done, aten_like_i64(c, low, 1), low);
  ir_value next[2] = {ir_select(b, done, high, low), ir_select(b, done, low, ir_remainder(b, high, divisor))};
  ir_region_end(b, outer, 2, next);
  return ir_append(b, IR_WHILE, 2, (ir_value[]){x, y}, NULL, 0, NULL, 2, regions);
}

static ir_value magnitude(aten_point *p, ir_value x) {
  return base_dtypes[p->common].cls == DTYPE_SIGNED ? ir_abs(p->c->b, x) : x;
}

POINT(gcd, PAIR, ATEN_PROMOTE) {
  return euclid(c, magnitude(p, aten_point_in(p, 0)), magnitude(p, aten_point_in(p, 1)));
}

/* Narrow integers multiply as C's int and wrap at the end, as on CPU. */
POINT(lcm, PAIR, ATEN_PROMOTE) {
  ttpu_dtype t = base_dtype_bytes(p->common) < 4 ? TTPU_I32 : p->common;
  ir_value x = ir_convert(b, aten_point_in(p, 0), t), y = ir_convert(b, aten_point_in(p, 1), t);
  ir_value divisor = euclid(c, ir_abs(b, x), ir_abs(b, y));
  ir_value none = is_zero(c, divisor), one = aten_like_i64(c, x, 1);
  ir_value part = ir_divide(b, x, ir_select(b, none, one, divisor));
  ir_value r = ir_abs(b, ir_multiply(b, part, y));
  return ir_select(b, none, aten_like_i64(c, x, 0), r);
}

POINT(complex, PAIR, ATEN_PROMOTE) { return ir_complex(b, aten_point_in(p, 0), aten_point_in(p, 1)); }
POINT(polar, PAIR, ATEN_PROMOTE) {
  ir_value size = aten_point_in(p, 0), angle = aten_point_in(p, 1);
  return ir_complex(b, ir_multiply(b, size, ir_cosine(b, angle)), ir_multiply(b, size, ir_sine(b, angle)));
}

/* ---- three operands ------------------------------------------------------------------------------ */

POINT_EACH(addcmul, TRIPLE, ATEN_PROMOTE) {
  ir_value product = ir_multiply(b, scaled(p, 3, aten_point_in(p, 1)), aten_point_in(p, 2));
  return ir_add(b, aten_point_in(p, 0), product);
}
POINT_EACH(addcdiv, TRIPLE, ATEN_PROMOTE) {
  ir_value quotient = ir_divide(b, scaled(p, 3, aten_point_in(p, 1)), aten_point_in(p, 2));
  return ir_add(b, aten_point_in(p, 0), quotient);
}

/* start + weight * (end - start), or from the nearer end, so that weight 1 gives `end` exactly: end + (weight - 1) * (end -
 * start). */
POINT_EACH(lerp, PAIR, ATEN_PROMOTE) {
  ir_value start = aten_point_in(p, 0), end = aten_point_in(p, 1), weight = aten_point_number(p, 2);
  ir_value size = ir_abs(b, weight), near = ir_compare(b, IR_LT, size, aten_like(c, size, 0.5));
  ir_value share = ir_select(b, near, weight, ir_subtract(b, weight, aten_like(c, weight, 1)));
  ir_value way = ir_subtract(b, end, start);
  return ir_add(b, ir_select(b, near, start, end), ir_multiply(b, share, way));
}

POINT(where, ARG(1) | ARG(2), ATEN_PROMOTE) {
  ir_value pred = aten_is_true(c, aten_point_in_as(p, 0, (ttpu_dtype)aten_meta(c, 0)->dtype));
  return ir_select(b, pred, aten_point_in_as(p, 1, p->common), aten_point_in_as(p, 2, p->common));
}

/* A number as the bound comes first, so that an equal element (a zero of the other sign) stays, as on CPU. */
static ir_value bounded(aten_point *p, ir_value x, uint32_t bound, ir_kind kind) {
  if (!aten_point_has(p, bound)) return x;
  ir_value limit = aten_point_in(p, bound);
  return aten_point_number_of(p, bound) ? ir_binary(p->c->b, kind, limit, x) : ir_binary(p->c->b, kind, x, limit);
}
POINT(clamp, TRIPLE, ATEN_PROMOTE) { return bounded(p, bounded(p, aten_point_in(p, 0), 1, IR_MAXIMUM), 2, IR_MINIMUM); }
POINT(clamp_min, PAIR, ATEN_PROMOTE) { return bounded(p, aten_point_in(p, 0), 1, IR_MAXIMUM); }
POINT(clamp_max, PAIR, ATEN_PROMOTE) { return bounded(p, aten_point_in(p, 0), 1, IR_MINIMUM); }

/* ---- cross product ------------------------------------------------------------------------------- */

/* Component i of a x b is a[i+1] b[i+2] - a[i+2] b[i+1], indices modulo 3. */
void lower_linalg_cross(aten_lowering *c) { /* self, other, dim */
  ir_builder *b = c->b;
  const aten_tensor *out = &c->outs[0];
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)out->dtype);
  uint32_t dim = aten_dim(c, 2, out->rank);
  ir_value x = aten_expand(c, aten_in_as(c, 0, t), out), y = aten_expand(c, aten_in_as(c, 1, t), out), parts[3];
  ir_value xs[3], ys[3];
  for (int64_t i = 0; i < 3; ++i) {
    xs[i] = ir_slice_dim(b, x, dim, i, i + 1, 1);
    ys[i] = ir_slice_dim(b, y, dim, i, i + 1, 1);
  }
  for (int i = 0; i < 3; ++i) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    parts[i] = ir_subtract(b, ir_multiply(b, xs[j], ys[k]), ir_multiply(b, xs[k], ys[j]));
  }
  aten_out(c, 0, ir_concatenate(b, 3, parts, dim));
}
