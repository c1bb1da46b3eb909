/* Special functions: Bessel and error functions, orthogonal polynomials; lower_gamma.c has those around the gamma function. Formulas and coefficients are those of
 * Cephes, as in PyTorch's CPU kernels; both sides of a case distinction are computed and one is selected, so that each
 * side is given arguments at which it is defined. (PyTorch lost the leading coefficient 1 of the denominators that Cephes
 * evaluates with p1evl, those of the Bessel and Airy functions: its results are off by up to 2e-7, ours are not.) */
#include "aten/special_int.h"

#define SERIES(x, table) chebyshev_series(c, x, COUNT(table), table)

/* Clenshaw's sum of a Chebyshev series. */
static ir_value chebyshev_series(aten_lowering *c, ir_value x, uint32_t count, const double *table) {
  ir_value b0 = num(c, x, table[0]), b1 = num(c, x, 0), b2 = b1;
  for (uint32_t i = 1; i < count; ++i) {
    b2 = b1;
    b1 = b0;
    b0 = add_n(c, sub(c, mul(c, x, b1), b2), table[i]);
  }
  return mul_n(c, sub(c, b0, b2), 0.5);
}

/* SPECIAL(name) { body }: an operator of one floating operand, x in f64. */
#define SPECIAL(name)                                                                                  \
  static ir_value name##_of(aten_lowering *c, ir_value x);                                             \
  static ir_value name##_point(aten_point *p) { return name##_of(p->c, wide_in(p, 0)); }               \
  void lower_##name(aten_lowering *c) { aten_pointwise(c, ARG(0), ATEN_PROMOTE_FLOAT, name##_point); } \
  static ir_value name##_of(aten_lowering *c, ir_value x)

/* ---- modified Bessel functions ------------------------------------------------------------------- */

/* exp(-|x|) I0(x); exp(-|x|) I1(|x|). */
SPECIAL(i0e) {
  ir_value size = ir_abs(c->b, x), small = cmp_n(c, IR_LE, size, 8);
  ir_value large = pick_n(c, small, 8, size);
  ir_value near = SERIES(add_n(c, mul_n(c, pick_n(c, cmp_n(c, IR_GT, size, 8), 8, size), 0.5), -2), I0_A);
  ir_value far = over(c, SERIES(add_n(c, n_over(c, 32, large), -2), I0_B), root(c, large));
  return pick(c, small, near, far);
}

static ir_value i1e_of_size(aten_lowering *c, ir_value size) {
  ir_value small = cmp_n(c, IR_LE, size, 8), large = pick_n(c, small, 8, size);
  ir_value inner = pick_n(c, cmp_n(c, IR_GT, size, 8), 8, size);
  ir_value near = mul(c, SERIES(add_n(c, mul_n(c, inner, 0.5), -2), I1_A), inner);
  ir_value far = over(c, SERIES(add_n(c, n_over(c, 32, large), -2), I1_B), root(c, large));
  return pick(c, small, near, far);
}
static ir_value odd(aten_lowering *c, ir_value x, ir_value of_size) {
  return pick(c, cmp_n(c, IR_LT, x, 0), neg(c, of_size), of_size);
}
SPECIAL(i1e) { return odd(c, x, i1e_of_size(c, ir_abs(c->b, x))); }
SPECIAL(i0) { return mul(c, exp_of(c, ir_abs(c->b, x)), i0e_of(c, x)); }
SPECIAL(i1) { return mul(c, exp_of(c, ir_abs(c->b, x)), i1e_of(c, x)); }

/* exp(x) K0(x) and exp(x) K1(x) for x > 0; near 0 they follow from I0, I1 and a logarithm. */
static ir_value scaled_k(aten_lowering *c, ir_value x, bool one) {
  ir_value near = cmp_n(c, IR_LE, x, 2), inner = pick_n(c, cmp_n(c, IR_GT, x, 2), 2, x), outer = pick_n(c, near, 2, x);
  ir_value square = add_n(c, mul(c, inner, inner), -2), logarithm = log_of(c, mul_n(c, inner, 0.5));
  ir_value low, high = add_n(c, n_over(c, 8, outer), -2);
  if (one) low = add(c, mul(c, logarithm, i1_of(c, inner)), over(c, SERIES(square, K1_A), inner));
  else low = sub(c, SERIES(square, K0_A), mul(c, logarithm, i0_of(c, inner)));
  high = over(c, one ? SERIES(high, K1_B) : SERIES(high, K0_B), root(c, outer));
  ir_value r = pick(c, near, mul(c, low, exp_of(c, inner)), high);
  r = pick_n(c, cmp_n(c, IR_LT, x, 0), NAN, r);
  return pick_n(c, cmp_n(c, IR_EQ, x, 0), INFINITY, r);
}
SPECIAL(scaled_k0) { return scaled_k(c, x, false); }
SPECIAL(scaled_k1) { return scaled_k(c, x, true); }
static ir_value unscaled_k(aten_lowering *c, ir_value x, bool one) {
  ir_value r = mul(c, scaled_k(c, x, one), exp_of(c, neg(c, x)));
  return pick_n(c, cmp_n(c, IR_EQ, x, 0), INFINITY, r);
}
SPECIAL(modified_k0) { return unscaled_k(c, x, false); }
SPECIAL(modified_k1) { return unscaled_k(c, x, true); }

/* ---- Bessel functions ---------------------------------------------------------------------------- */

/* sqrt(2/(pi x)) (P cos(x - phase) - Q sin(x - phase)), and for the second kind P sin + Q cos; x >= 5. The phase is
 * pi/4 for order 0 and 3 pi/4 for order 1: sines and cosines of x itself, which are right however large x is, give those
 * of the difference by (sin x +- cos x) / sqrt(2). */
static ir_value far_bessel(aten_lowering *c, ir_value x, ir_value p, ir_value q, bool one, bool second) {
  ir_builder *b = c->b;
  ir_value plus = add(c, ir_sine(b, x), ir_cosine(b, x)), minus = sub(c, ir_sine(b, x), ir_cosine(b, x));
  ir_value cosine = one ? minus : plus, sine = one ? neg(c, plus) : minus;
  q = mul(c, n_over(c, 5, x), q);
  ir_value wave = second ? add(c, mul(c, p, sine), mul(c, q, cosine)) : sub(c, mul(c, p, cosine), mul(c, q, sine));
  return over(c, mul_n(c, wave, 0.564189583547756286948 /* 1/sqrt(pi) */), root(c, x));
}

static ir_value far_0(aten_lowering *c, ir_value x, bool second) {
  ir_value z = n_over(c, 25, mul(c, x, x));
  return far_bessel(c, x, over(c, POLY(z, J0_PP), POLY(z, J0_PQ)), over(c, POLY(z, J0_QP), POLY(z, J0_QQ)), false,
                    second);
}
static ir_value far_1(aten_lowering *c, ir_value x, bool second) {
  ir_value z = n_over(c, 25, mul(c, x, x));
  return far_bessel(c, x, over(c, POLY(z, J1_PP), POLY(z, J1_PQ)), over(c, POLY(z, J1_QP), POLY(z, J1_QQ)), true,
                    second);
}
/* x kept within [0, 5] for the near formula, at 5 and above for the far one. */
static ir_value near_argument(aten_lowering *c, ir_value x) { return pick_n(c, cmp_n(c, IR_GT, x, 5), 5, x); }
static ir_value far_argument(aten_lowering *c, ir_value x) { return pick_n(c, cmp_n(c, IR_LE, x, 5), 5, x); }

SPECIAL(bessel_j0) {
  ir_value size = ir_abs(c->b, x), inner = near_argument(c, size), z = mul(c, inner, inner);
  ir_value zeros = mul(c, add_n(c, z, -5.78318596294678452118), add_n(c, z, -30.4712623436620863991));
  ir_value near = over(c, mul(c, zeros, POLY(z, J0_RP)), POLY(z, J0_RQ));
  near = pick(c, cmp_n(c, IR_LT, inner, 1e-5), add_n(c, mul_n(c, z, -0.25), 1), near);
  return pick(c, cmp_n(c, IR_LE, size, 5), near, far_0(c, far_argument(c, size), false));
}

SPECIAL(bessel_j1) {
  ir_value size = ir_abs(c->b, x), inner = near_argument(c, size), z = mul(c, inner, inner);
  ir_value zeros = mul(c, add_n(c, z, -14.6819706421238932572), add_n(c, z, -49.2184563216946036703));
  ir_value near = mul(c, mul(c, over(c, POLY(z, J1_RP), POLY(z, J1_RQ)), inner), zeros);
  ir_value r = odd(c, x, pick(c, cmp_n(c, IR_LE, size, 5), near, far_1(c, far_argument(c, size), false)));
  return pick(c, cmp_n(c, IR_EQ, x, 0), x, r);
}

/* -inf at 0, NaN below. */
static ir_value right_half(aten_lowering *c, ir_value x, ir_value r) {
  return pick_n(c, cmp_n(c, IR_EQ, x, 0), -INFINITY, pick_n(c, cmp_n(c, IR_LT, x, 0), NAN, r));
}

SPECIAL(bessel_y0) {
  ir_value inner = near_argument(c, x), z = mul(c, inner, inner);
  ir_value part = mul_n(c, mul(c, log_of(c, inner), bessel_j0_of(c, inner)), M_2_PI);
  ir_value near = add(c, over(c, POLY(z, Y0_YP), POLY(z, Y0_YQ)), part);
  return right_half(c, x, pick(c, cmp_n(c, IR_LE, x, 5), near, far_0(c, far_argument(c, x), true)));
}

SPECIAL(bessel_y1) {
  ir_value inner = near_argument(c, x), z = mul(c, inner, inner);
  ir_value part = sub(c, mul(c, bessel_j1_of(c, inner), log_of(c, inner)), n_over(c, 1, inner));
  ir_value near = add(c, mul(c, inner, over(c, POLY(z, Y1_YP), POLY(z, Y1_YQ))), mul_n(c, part, M_2_PI));
  return right_half(c, x, pick(c, cmp_n(c, IR_LE, x, 5), near, far_1(c, far_argument(c, x), true)));
}

SPECIAL(spherical_bessel_j0) {
  static const double taylor[] = {
      1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1};
  ir_value near = cmp_n(c, IR_LT, ir_abs(c->b, x), 0.5), outer = pick_n(c, near, 1, x);
  ir_value r = pick(c, near, POLY(mul(c, x, x), taylor), over(c, ir_sine(c->b, outer), outer));
  return pick_n(c, aten_is_inf(c, x), 0, r);
}

/* Airy's Ai: asymptotic forms beyond +-2.09, between them the Taylor series, whose 24 terms there suffice for f64. */
SPECIAL(airy_ai) {
  ir_builder *b = c->b;
  const double scale = 0.564189583547756286948 /* 1/sqrt(pi) */;
  ir_value left = pick_n(c, cmp_n(c, IR_LT, x, -2.09), 0, x); /* placeholders where a form is not used */
  ir_value far_left = neg(c, pick_n(c, cmp_n(c, IR_GE, x, -2.09), -3, x)), root_left = root(c, far_left);
  ir_value phase = mul_n(c, mul(c, far_left, root_left), 2.0 / 3), z = n_over(c, 1, phase), zz = mul(c, z, z);
  ir_value t = add_n(c, phase, M_PI_4);
  ir_value waves = mul(c, ir_sine(b, t), add_n(c, over(c, mul(c, zz, POLY(zz, AI_AFN)), POLY(zz, AI_AFD)), 1));
  waves = sub(c, waves, mul(c, ir_cosine(b, t), over(c, mul(c, z, POLY(zz, AI_AGN)), POLY(zz, AI_AGD))));
  ir_value on_left = over(c, mul_n(c, waves, scale), root(c, root_left));

  ir_value far_right = pick_n(c, cmp_n(c, IR_LT, x, 2.09), 3, x), root_right = root(c, far_right);
  ir_value zeta = mul_n(c, mul(c, far_right, root_right), 2.0 / 3), inverse = n_over(c, 1, zeta);
  ir_value below = mul(c, mul_n(c, root(c, root_right), 2), exp_of(c, zeta));
  ir_value on_right = over(c, mul_n(c, over(c, POLY(inverse, AI_AN), POLY(inverse, AI_AD)), scale), below);

  ir_value near = pick_n(c, cmp_n(c, IR_GT, x, 2.09), 0, left), cube = mul(c, mul(c, near, near), near);
  ir_value f = num(c, x, 1), g = near, m = f, n = near;
  for (int k = 1; k < 72; k += 3) {
    m = mul(c, m, mul_n(c, cube, 1.0 / ((k + 1) * (k + 2.0))));
    n = mul(c, n, mul_n(c, cube, 1.0 / ((k + 2.0) * (k + 3.0))));
    f = add(c, f, m);
    g = add(c, g, n);
  }
  ir_value middle = sub(c, mul_n(c, f, 0.355028053887817239260), mul_n(c, g, 0.258819403792806798405));
  ir_value r = pick(c, cmp_n(c, IR_LT, x, -2.09), on_left, pick(c, cmp_n(c, IR_GE, x, 2.09), on_right, middle));
  r = pick_n(c, cmp_n(c, IR_GT, x, 103.892), 0, r);
  return pick_n(c, either(c, aten_is_inf(c, x), aten_is_nan(c, x)), NAN, r);
}

/* ---- error functions ----------------------------------------------------------------------------- */

/* exp(x^2) with x^2 in two parts: the square of x rounded to half its digits, which is exact, and the rest. */
static ir_value exp_of_square(aten_lowering *c, ir_value x) {
  ir_value big = mul_n(c, x, 0x1p27 + 1 /* Veltkamp */), high = sub(c, big, sub(c, big, x)), low = sub(c, x, high);
  ir_value rest = mul(c, low, add(c, x, high));
  return mul(c, exp_of(c, mul(c, high, high)), exp_of(c, rest));
}

/* exp(x^2) erfc(x): the product up to 6, beyond it Laplace's continued fraction, which has converged there. */
SPECIAL(erfcx) {
  const double limit = 6;
  ir_value far = cmp_n(c, IR_GT, x, limit);
  ir_value inner = pick_n(c, either(c, far, cmp_n(c, IR_LT, x, -27)), 0, x);
  ir_value near = mul(c, exp_of_square(c, inner), ir_erfc(c->b, inner));
  ir_value outer = pick_n(c, cmp_n(c, IR_LE, x, limit), limit, x), fraction = outer;
  for (int k = 40; k >= 1; --k) fraction = add(c, outer, n_over(c, 0.5 * k, fraction));
  ir_value r = pick(c, far, n_over(c, 0.564189583547756286948, fraction), near);
  r = pick_n(c, cmp_n(c, IR_LT, x, -27), INFINITY, r);
  return pick(c, aten_is_nan(c, x), x, r);
}

SPECIAL(log_ndtr) {
  ir_value t = mul_n(c, x, M_SQRT1_2), left = cmp_n(c, IR_LT, x, -1);
  ir_value far = neg(c, pick_n(c, cmp_n(c, IR_GE, x, -1), -1, t));
  ir_value tail = sub(c, log_of(c, mul_n(c, erfcx_of(c, far), 0.5)), mul(c, t, t));
  ir_value body = ir_log_plus_one(c->b, mul_n(c, ir_erfc(c->b, pick_n(c, left, 0, t)), -0.5));
  return pick(c, left, tail, body);
}

/* The inverse of the normal distribution function. */
SPECIAL(ndtri) {
  const double tail = 0.13533528323661269189; /* exp(-2) */
  ir_value upper = cmp_n(c, IR_GT, x, 1 - tail), y = pick(c, upper, sub(c, num(c, x, 1), x), x);
  ir_value middle = add_n(c, y, -0.5), square = mul(c, middle, middle);
  ir_value centre = over(c, mul(c, square, POLY(square, NDTRI_P0)), POLY(square, NDTRI_Q0));
  centre = mul_n(c, add(c, middle, mul(c, middle, centre)), 2.50662827463100050242 /* sqrt(2 pi) */);

  ir_value low = pick_n(c, cmp_n(c, IR_GT, y, tail), tail, y), z = root(c, mul_n(c, log_of(c, low), -2));
  ir_value first = sub(c, z, over(c, log_of(c, z), z)), inverse = n_over(c, 1, z);
  ir_value close = over(c, POLY(inverse, NDTRI_P1), POLY(inverse, NDTRI_Q1));
  ir_value distant = over(c, POLY(inverse, NDTRI_P2), POLY(inverse, NDTRI_Q2));
  ir_value correction = mul(c, inverse, pick(c, cmp_n(c, IR_LT, z, 8), close, distant));
  ir_value outer = sub(c, first, correction);
  outer = pick(c, upper, outer, neg(c, outer));

  ir_value r = pick(c, cmp_n(c, IR_GT, y, tail), centre, outer);
  r = pick_n(c, cmp_n(c, IR_EQ, x, 0), -INFINITY, pick_n(c, cmp_n(c, IR_EQ, x, 1), INFINITY, r));
  ir_value outside = either(c, cmp_n(c, IR_LT, x, 0), cmp_n(c, IR_GT, x, 1));
  return pick_n(c, either(c, outside, aten_is_nan(c, x)), NAN, r);
}

static ir_value entr_point(aten_point *p) {
  aten_lowering *c = p->c;
  ir_value x = aten_point_in(p, 0);
  ir_value inside = neg(c, mul(c, x, log_of(c, x)));
  ir_value r = pick(c, cmp_n(c, IR_GT, x, 0), inside, pick_n(c, cmp_n(c, IR_EQ, x, 0), 0, num(c, x, -INFINITY)));
  return pick(c, aten_is_nan(c, x), x, r);
}
void lower_entr(aten_lowering *c) { aten_pointwise(c, ARG(0), ATEN_PROMOTE_FLOAT, entr_point); }

/* ---- orthogonal polynomials ---------------------------------------------------------------------- */

/* Three-term recurrences, from p(0) = 1 and p(1) up to the degree of each element. State: going, p, q, n (i64), x. */
static void next_degree(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next, ir_value r) {
  ir_builder *b = c->b;
  ir_value degree = aten_spread(c, add(c, count, aten_like_i64(c, count, 2)), s[3]); /* that r has now */
  next[1] = pick(c, s[0], s[2], s[1]);
  next[2] = pick(c, s[0], r, s[2]);
  next[3] = s[3];
  next[4] = s[4];
  next[0] = both(c, s[0], both(c, ir_compare(b, IR_LT, degree, s[3]), ir_compare(b, IR_EQ, r, r)));
}
/* k = 1, 2, ... as a value like x: the degree of q. */
static ir_value degree_of(aten_lowering *c, ir_value count, ir_value x) {
  ir_value k = ir_convert(c->b, add(c, count, aten_like_i64(c, count, 1)), (ttpu_dtype)aten_type(c, x).dtype);
  return aten_spread(c, k, x);
}
static void chebyshev_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  next_degree(c, count, s, next, sub(c, mul(c, add(c, s[4], s[4]), s[2]), s[1]));
}
static void hermite_h_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  ir_value k = mul_n(c, degree_of(c, count, s[4]), 2);
  next_degree(c, count, s, next, sub(c, mul(c, add(c, s[4], s[4]), s[2]), mul(c, k, s[1])));
}
static void hermite_he_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  ir_value k = degree_of(c, count, s[4]);
  next_degree(c, count, s, next, sub(c, mul(c, s[4], s[2]), mul(c, k, s[1])));
}
static void laguerre_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  ir_value k = degree_of(c, count, s[4]), lead = add(c, add(c, k, k), sub(c, num(c, k, 1), s[4]));
  next_degree(c, count, s, next, over(c, sub(c, mul(c, lead, s[2]), mul(c, k, s[1])), add_n(c, k, 1)));
}
static void legendre_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  ir_value k = degree_of(c, count, s[4]), lead = mul(c, add_n(c, add(c, k, k), 1), s[4]);
  next_degree(c, count, s, next, over(c, sub(c, mul(c, lead, s[2]), mul(c, k, s[1])), add_n(c, k, 1)));
}

/* Runs a recurrence for the elements that `closed` (0: none) does not give. */
static ir_value polynomial(aten_lowering *c, ir_value x, ir_value n, ir_value first, special_step step,
                           ir_value use_closed, ir_value closed) {
  ir_builder *b = c->b;
  ir_value degree = ir_convert(b, pick_n(c, either(c, aten_is_nan(c, n), aten_is_inf(c, n)), -1, n), TTPU_I64);
  ir_value two = aten_like_i64(c, degree, 2), going = ir_compare(b, IR_GE, degree, two);
  if (use_closed) going = both(c, going, ir_not_bits(b, use_closed));
  ir_value start[5] = {going, num(c, x, 1), first, degree, x};
  ir_value end = special_loop(c, 5, start, INT64_MAX, step);
  if (!end) return 0;
  ir_value r = end + 2;
  if (use_closed) r = pick(c, use_closed, closed, r);
  r = pick_n(c, ir_compare(b, IR_EQ, degree, aten_like_i64(c, degree, 0)), 1, r);
  return pick_n(c, ir_compare(b, IR_LT, degree, aten_like_i64(c, degree, 0)), 0, r);
}

/* Chebyshev polynomials of four kinds; within (-1, 1) and above a degree by their trigonometric form, with x = cos t:
 * T cos(nt), U sin((n+1)t)/sin t, V cos((n+1/2)t)/cos(t/2), W sin((n+1/2)t)/sin(t/2). */
static ir_value chebyshev(aten_point *p, char kind, bool shifted) {
  aten_lowering *c = p->c;
  ir_builder *b = c->b;
  ir_value x = aten_point_in(p, 0), n = aten_trunc(c, aten_point_in(p, 1));
  if (shifted) x = add_n(c, add(c, x, x), -1);
  double limit = kind == 'T' || shifted ? 6 : 8;
  if (shifted && kind == 'W') limit = 4;
  ir_value inside = cmp_n(c, IR_LT, ir_abs(b, x), 1), t = ir_acos(b, pick_n(c, ir_not_bits(b, inside), 0, x));
  ir_value use = both(c, inside, cmp_n(c, IR_GT, n, limit)), half = mul_n(c, t, 0.5), doubled = add(c, x, x), closed,
           first;
  switch (kind) {
    case 'T':
      closed = ir_cosine(b, mul(c, n, t));
      first = x;
      break;
    case 'U':
      closed = over(c, ir_sine(b, mul(c, add_n(c, n, 1), t)), ir_sine(b, t));
      first = doubled;
      break;
    case 'V':
      closed = over(c, ir_cosine(b, mul(c, add_n(c, n, 0.5), t)), ir_cosine(b, half));
      first = add_n(c, doubled, -1);
      break;
    default:
      closed = over(c, ir_sine(b, mul(c, add_n(c, n, 0.5), t)), ir_sine(b, half));
      first = add_n(c, doubled, 1);
      break;
  }
  return polynomial(c, x, n, first, chebyshev_step, use, closed);
}

#define POLYNOMIAL(name, value)                                 \
  static ir_value name##_point(aten_point *p) { return value; } \
  void lower_##name(aten_lowering *c) { aten_pointwise(c, ARG(0) | ARG(1), ATEN_PROMOTE_FLOAT, name##_point); }
POLYNOMIAL(chebyshev_t, chebyshev(p, 'T', false))
POLYNOMIAL(chebyshev_u, chebyshev(p, 'U', false))
POLYNOMIAL(chebyshev_v, chebyshev(p, 'V', false))
POLYNOMIAL(chebyshev_w, chebyshev(p, 'W', false))
POLYNOMIAL(shifted_chebyshev_t, chebyshev(p, 'T', true))
POLYNOMIAL(shifted_chebyshev_u, chebyshev(p, 'U', true))
POLYNOMIAL(shifted_chebyshev_v, chebyshev(p, 'V', true))
POLYNOMIAL(shifted_chebyshev_w, chebyshev(p, 'W', true))

/* Hermite polynomials of a degree above 128 (f32) or 512 (f64) are NaN, as on CPU. */
static ir_value hermite(aten_point *p, bool physicist) {
  aten_lowering *c = p->c;
  ir_value x = aten_point_in(p, 0), n = aten_trunc(c, aten_point_in(p, 1));
  ir_value above = both(c, cmp_n(c, IR_GT, n, p->math == TTPU_F64 ? 512 : 128), ir_not_bits(c->b, aten_is_inf(c, n)));
  ir_value r = polynomial(c, x, n, physicist ? add(c, x, x) : x, physicist ? hermite_h_step : hermite_he_step, above,
                          num(c, x, NAN));
  return r;
}
POLYNOMIAL(hermite_h, hermite(p, true))
POLYNOMIAL(hermite_he, hermite(p, false))

static ir_value plain_polynomial(aten_point *p, bool laguerre) {
  aten_lowering *c = p->c;
  ir_value x = aten_point_in(p, 0), n = aten_trunc(c, aten_point_in(p, 1));
  ir_value first = laguerre ? sub(c, num(c, x, 1), x) : x;
  return polynomial(c, x, n, first, laguerre ? laguerre_step : legendre_step, 0, 0);
}
POLYNOMIAL(laguerre_l, plain_polynomial(p, true))
POLYNOMIAL(legendre_p, plain_polynomial(p, false))

/* ---- parts of a float ---------------------------------------------------------------------------- */

/* x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; numbers below the normal ones are scaled up first. */
void lower_frexp(aten_lowering *c) {
  ir_builder *b = c->b;
  ir_value x = aten_in_math(c, 0);
  bool wide = aten_type(c, x).dtype == TTPU_F64;
  ttpu_dtype word = wide ? TTPU_I64 : TTPU_I32, dtype = wide ? TTPU_F64 : TTPU_F32;
  int bits = wide ? 52 : 23, bias = wide ? 1022 : 126, lift = wide ? 54 : 25;
  ir_value small = cmp_n(c, IR_LT, ir_abs(b, x), wide ? 0x1p-1022 : 0x1p-126);
  ir_value normal = pick(c, small, mul_n(c, x, ldexp(1, lift)), x);
  ir_value w = ir_bitcast_convert(b, normal, word);
  int64_t field = (wide ? (int64_t)0x7ff : 0xff) << bits;
  ir_value mask = aten_like_i64(c, w, field);
  ir_value exponent = ir_shift_right_logical(b, ir_and_bits(b, w, mask), aten_like_i64(c, w, bits));
  exponent = ir_subtract(b, exponent, aten_like_i64(c, w, bias));
  exponent = ir_subtract(b, exponent, ir_select(b, small, aten_like_i64(c, w, lift), aten_like_i64(c, w, 0)));
  ir_value set = ir_or_bits(b, ir_and_bits(b, w, ir_not_bits(b, mask)), aten_like_i64(c, w, (int64_t)bias << bits));
  ir_value mantissa = ir_bitcast_convert(b, set, dtype);
  ir_value keeps = either(c, cmp_n(c, IR_EQ, x, 0), ir_not_bits(b, ir_is_finite(b, x)));
  aten_out(c, 0, pick(c, keeps, x, mantissa));
  aten_out(c, 1, ir_select(b, keeps, aten_like_i64(c, exponent, 0), exponent));
}
