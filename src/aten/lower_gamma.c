/* Functions around the gamma function: zeta and polygamma, the incomplete gamma functions, and how samples of gamma, beta and
 * Dirichlet distributions follow their parameters. Formulas and coefficients are Cephes's, as in PyTorch's CPU kernels. */
#include "aten/special_int.h"

/* ---- loops over whole tensors -------------------------------------------------------------------- */

ir_value special_loop(aten_lowering *c, uint32_t n, const ir_value *state, int64_t limit, special_step step) {
  ir_builder *b = c->b;
  ir_value start[SPECIAL_LOOP_MAX + 1];
  ir_type types[SPECIAL_LOOP_MAX + 1];
  start[n] = ir_scalar_i64(b, TTPU_I64, 0); /* counts passes */
  for (uint32_t i = 0; i < n; ++i) start[i] = state[i];
  for (uint32_t i = 0; i <= n; ++i) types[i] = aten_type(c, start[i]);
  ir_region *outer, *regions[2];

  regions[0] = ir_region_begin(b, n + 1, types, &outer);
  if (!regions[0]) return 0;
  ir_value going = regions[0]->first_arg, passes = going + n;
  int64_t all[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < types[0].rank; ++i) all[i] = i;
  if (types[0].rank) going = ir_reduce(b, IR_OR, going, types[0].rank, all);
  going = both(c, going, ir_compare(b, IR_LT, passes, aten_like_i64(c, passes, limit)));
  ir_region_end(b, outer, 1, &going);

  regions[1] = ir_region_begin(b, n + 1, types, &outer);
  if (!regions[1]) return 0;
  ir_value now[SPECIAL_LOOP_MAX + 1], next[SPECIAL_LOOP_MAX + 1];
  for (uint32_t i = 0; i <= n; ++i) now[i] = regions[1]->first_arg + i;
  step(c, now[n], now, next);
  next[n] = ir_add(b, now[n], aten_like_i64(c, now[n], 1));
  ir_region_end(b, outer, n + 1, next);
  return ir_append(b, IR_WHILE, n + 1, start, NULL, 0, NULL, 2, regions);
}

static ir_value yes(aten_lowering *c, ir_value like) {
  ir_type t = aten_type(c, like);
  return ir_fill_i64(c->b, TTPU_BOOL, t.rank, t.dims, 1);
}

/* ---- zeta and polygamma -------------------------------------------------------------------------- */

/* One more of the first terms of Hurwitz's sum. State: going, a, sum, last term, done, x. */
static void zeta_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  ir_builder *b = c->b;
  ir_value a = add_n(c, s[1], 1), term = ir_power(b, a, neg(c, s[5])), sum = add(c, s[2], term);
  ir_value tiny = ir_compare(b, IR_LT, ir_abs(b, term), mul_n(c, ir_abs(b, sum), 0x1p-53));
  ir_value early = ir_compare(b, IR_LT, add(c, count, aten_like_i64(c, count, 1)), aten_like_i64(c, count, 9));
  ir_value more = either(c, aten_spread(c, early, s[0]), cmp_n(c, IR_LE, a, 9));
  next[1] = pick(c, s[0], a, s[1]);
  next[2] = pick(c, s[0], sum, s[2]);
  next[3] = pick(c, s[0], term, s[3]);
  next[4] = pick(c, s[0], tiny, s[4]);
  next[0] = both(c, s[0], both(c, more, ir_not_bits(b, tiny)));
  next[5] = s[5];
}

/* zeta(x, q) for q > 0, the sum over k of (q + k)^-x: nine terms and more until q + k > 9, then Euler and Maclaurin. In f64,
 * as the CPU kernel accumulates. Where `wanted` is false the result is any number. */
static ir_value hurwitz_right(aten_lowering *c, ir_value x, ir_value q, ir_value wanted) {
  static const double bernoulli[12] = {12.0,
                                       -720.0,
                                       30240.0,
                                       -1209600.0,
                                       47900160.0,
                                       -1.8924375803183791606e9,
                                       7.47242496e10,
                                       -2.950130727918164224e12,
                                       1.1646782814350067249e14,
                                       -4.5979787224074726105e15,
                                       1.8152105401943546773e17,
                                       -7.1661652561756670113e18};
  ir_builder *b = c->b;
  ir_value sum = ir_power(b, q, neg(c, x)), not_yet = ir_not_bits(b, yes(c, x));
  ir_value start[6] = {both(c, wanted, cmp_n(c, IR_GT, x, 1)), q, sum, num(c, x, 0), not_yet, x};
  ir_value end = special_loop(c, 6, start, 16, zeta_step);
  if (!end) return 0;
  ir_value w = end + 1, term = end + 3, done = end + 4;
  sum = end + 2;
  ir_value tail = add(c, sum, sub(c, over(c, mul(c, term, w), add_n(c, x, -1)), mul_n(c, term, 0.5)));
  ir_value factor = num(c, x, 1), stop = done;
  sum = pick(c, done, sum, tail);
  for (int i = 0; i < 12; ++i) {
    factor = mul(c, factor, add_n(c, x, 2 * i));
    term = over(c, term, w);
    ir_value t = mul_n(c, mul(c, factor, term), 1 / bernoulli[i]), further = add(c, sum, t);
    sum = pick(c, stop, sum, further);
    ir_value small = ir_compare(b, IR_LT, ir_abs(b, t), mul_n(c, ir_abs(b, sum), 0x1p-53));
    stop = either(c, stop, small);
    factor = mul(c, factor, add_n(c, x, 2 * i + 1));
    term = over(c, term, w);
  }
  return sum;
}

/* zeta(x, q). Left of 0, where x has to be a whole number, the terms from q to the pole nearest 0 are those of two sums to the
 * right, (q + k)^-x = (-1)^x (-q - k)^-x: no more of them are added up for a q that is far away. */
static ir_value hurwitz(aten_lowering *c, ir_value x, ir_value q) {
  ir_builder *b = c->b;
  ir_value left = cmp_n(c, IR_LE, q, 0), floor = ir_floor(b, q), whole_q = ir_compare(b, IR_EQ, q, floor);
  ir_value whole_x = ir_compare(b, IR_EQ, x, ir_floor(b, x)), one = num(c, x, 1), half = mul_n(c, x, 0.5);
  ir_value right = hurwitz_right(c, x, pick(c, left, sub(c, q, floor), q), yes(c, x));
  ir_value nearest = hurwitz_right(c, x, pick(c, left, sub(c, ir_ceil(b, q), q), one), left);
  ir_value beyond = hurwitz_right(c, x, pick(c, left, sub(c, one, q), one), left);
  /* A term that overflows is the sum: what lies beyond may be NaN for so large an x. */
  ir_value back = pick(c, aten_is_inf(c, nearest), nearest, sub(c, nearest, beyond)),
           even = ir_compare(b, IR_EQ, half, ir_floor(b, half));
  ir_value sum = pick(c, left, add(c, right, pick(c, even, back, neg(c, back))), right);
  /* Poles count before NaN, as on CPU: zeta(1, NaN) and zeta(NaN, 0) are infinite. */
  sum = pick_n(c, either(c, aten_is_nan(c, x), aten_is_nan(c, q)), NAN, sum);
  sum = pick_n(c, both(c, left, ir_not_bits(b, whole_x)), NAN, sum);
  sum = pick_n(c, both(c, left, whole_q), INFINITY, sum);
  sum = pick_n(c, cmp_n(c, IR_LT, x, 1), NAN, sum);
  return pick_n(c, cmp_n(c, IR_EQ, x, 1), INFINITY, sum);
}

static ir_value zeta_point(aten_point *p) { return hurwitz(p->c, wide_in(p, 0), wide_in(p, 1)); }
void lower_zeta(aten_lowering *c) { aten_pointwise(c, ARG(0) | ARG(1), ATEN_PROMOTE_FLOAT, zeta_point); }

/* (-1)^(n+1) n! zeta(n + 1, x). */
static ir_value polygamma_point(aten_point *p) {
  aten_lowering *c = p->c;
  int64_t n = aten_int(c, 0);
  ir_value x = wide_in(p, 1), sum = hurwitz(c, num(c, x, (double)n + 1), x);
  return mul_n(c, sum, (n % 2 ? 1 : -1) * exp(lgamma((double)n + 1)));
}
static ir_value digamma_point(aten_point *p) {
  aten_lowering *c = p->c;
  ir_value x = aten_point_in(p, 1),
           pole = both(c, cmp_n(c, IR_LT, x, 0), ir_compare(c->b, IR_EQ, x, ir_floor(c->b, x)));
  return pick(c, cmp_n(c, IR_EQ, x, 0), n_over(c, -1, x), pick_n(c, pole, NAN, ir_digamma(c->b, x)));
}
/* zeta(2, x) for x from 1/2 on: ten terms of the sum, then Euler and Maclaurin (DLMF 5.15.8), good to 1e-15. */
static ir_value trigamma_right(aten_lowering *c, ir_value x) {
  static const double terms[8] = {7.0 / 6, -691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6, 1.0};
  ir_value sum = num(c, x, 0);
  for (int i = 0; i < 10; ++i) {
    ir_value a = add_n(c, x, i);
    sum = add(c, sum, n_over(c, 1, mul(c, a, a)));
  }
  ir_value w = n_over(c, 1, add_n(c, x, 10)), v = mul(c, w, w);
  ir_value series = POLY(v, terms);
  return add(c, sum, add(c, mul(c, w, series), mul_n(c, v, 0.5)));
}

/* zeta(2, x), left of 1/2 by reflection: pi^2 / sin^2(pi x) - zeta(2, 1 - x). The sine is that of x's distance to the
 * nearest integer, which is exact; at the poles it is what rounding leaves of the sine of pi x, as on the CPU. */
static ir_value trigamma_point(aten_point *p) {
  aten_lowering *c = p->c;
  ir_value narrow = aten_point_in(p, 1), x = wide_in(p, 1), left = cmp_n(c, IR_LT, x, 0.5);
  ir_value nearest = ir_round_nearest_even(c->b, x), angle = mul_n(c, sub(c, x, nearest), M_PI);
  ir_value at_pole = ir_convert(c->b, mul_n(c, narrow, M_PI), TTPU_F64);
  ir_value sine = ir_sine(c->b, pick(c, ir_compare(c->b, IR_EQ, x, nearest), at_pole, angle));
  ir_value sum = trigamma_right(c, pick(c, left, sub(c, num(c, x, 1), x), x));
  sum = pick_n(c, cmp_n(c, IR_EQ, x, INFINITY), 0, sum);
  return pick(c, left, sub(c, n_over(c, M_PI * M_PI, mul(c, sine, sine)), sum), sum);
}

void lower_polygamma(aten_lowering *c) { /* n, self */
  int64_t n = aten_int(c, 0);
  aten_pointwise(c, ARG(1), ATEN_PROMOTE_FLOAT, n == 0 ? digamma_point : n == 1 ? trigamma_point : polygamma_point);
}

/* ---- incomplete gamma functions ------------------------------------------------------------------ */

/* The power series of the lower function. State: going, r, term, sum, x. */
static void gamma_series_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  (void)count;
  ir_value r = add_n(c, s[1], 1), term = mul(c, s[2], over(c, s[4], r)), sum = add(c, s[3], term);
  next[1] = pick(c, s[0], r, s[1]);
  next[2] = pick(c, s[0], term, s[2]);
  next[3] = pick(c, s[0], sum, s[3]);
  next[4] = s[4];
  next[0] = both(c, s[0], ir_compare(c->b, IR_GT, term, mul_n(c, sum, 0x1p-53)));
}

/* The continued fraction of the upper function, by Lentz's method. State: going, n, b, c, d, h, a. */
static void gamma_fraction_step(aten_lowering *c, ir_value count, const ir_value *s, ir_value *next) {
  (void)count;
  ir_value n = add_n(c, s[1], 1), an = neg(c, mul(c, n, sub(c, n, s[6]))), bn = add_n(c, s[2], 2);
  ir_value d = add(c, mul(c, an, s[4]), bn), e = add(c, bn, over(c, an, s[3]));
  d = pick_n(c, cmp_n(c, IR_EQ, d, 0), 1e-300, d);
  e = pick_n(c, cmp_n(c, IR_EQ, e, 0), 1e-300, e);
  d = n_over(c, 1, d);
  ir_value change = mul(c, d, e);
  next[1] = pick(c, s[0], n, s[1]);
  next[2] = pick(c, s[0], bn, s[2]);
  next[3] = pick(c, s[0], e, s[3]);
  next[4] = pick(c, s[0], d, s[4]);
  next[5] = pick(c, s[0], mul(c, s[5], change), s[5]);
  next[6] = s[6];
  ir_value moved = cmp_n(c, IR_GT, ir_abs(c->b, add_n(c, change, -1)), 0x1p-52);
  next[0] = both(c, s[0], moved);
}

/* For large a, three terms of Temme's uniform expansion (DLMF 8.12): good to 1e-13 from 1000 on, where the series takes
 * hundreds of steps. eta^2 / 2 = mu - log(1 + mu) with mu = x / a - 1; TEMME_k are the coefficients of a^-k as power series
 * in eta, and only the first has a simple closed form, for where the result is 0 or 1 but for 1e-17. */
static const double LOG_REST[] = {1. / 20,  -1. / 19, 1. / 18,  -1. / 17, 1. / 16, -1. / 15, 1. / 14,
                                  -1. / 13, 1. / 12,  -1. / 11, 0.1,      -1. / 9, 0.125,    -1. / 7,
                                  1. / 6,   -0.2,     0.25,     -1. / 3,  0.5};
static const double TEMME_0[] = {-1.7665952736826078e-07, 8.2967113409530865e-07, -1.85406221071516e-06,
                                 -2.185448510679992e-06,  3.9192631785224377e-05, -0.0001787551440329218,
                                 0.00035273368606701942,  0.0011574074074074073,  -0.014814814814814815,
                                 0.083333333333333329,    -0.33333333333333331};
static const double TEMME_1[] = {-1.6120900894563446e-06, 7.6491609160811098e-06, -1.8098550334489977e-05,
                                 -4.018775720164609e-07,  0.00020576131687242798, -0.00099022633744855963,
                                 0.0026455026455026454,   -0.003472222222222222,  -0.0018518518518518519};
static const double TEMME_2[] = {-1.2760635188618728e-05, 5.2923448829120125e-05, -0.0001073665322636516,
                                 2.0093878600823047e-06,  0.0007716049382716049,  -0.0026813271604938273,
                                 0.0041335978835978834};
static ir_value uniform_gamma(aten_lowering *c, ir_value a, ir_value x, bool upper) {
  ir_builder *b = c->b;
  ir_value mu = over(c, sub(c, x, a), a), near = cmp_n(c, IR_LT, ir_abs(b, mu), 0.25);
  ir_value small = pick_n(c, ir_not_bits(b, near), 0, mu), large = pick_n(c, near, 1, mu);
  ir_value half_square = POLY(small, LOG_REST); /* (mu - log(1 + mu)) / mu^2 */
  ir_value small_eta = mul(c, small, root(c, mul_n(c, half_square, 2)));
  ir_value rest = sub(c, large, ir_log_plus_one(b, large));
  ir_value large_eta = mul(c, ir_sign(b, large), root(c, mul_n(c, rest, 2)));
  ir_value eta = pick(c, near, small_eta, large_eta);
  ir_value series = add(c, POLY(small_eta, TEMME_1), over(c, POLY(small_eta, TEMME_2), a));
  series = add(c, POLY(small_eta, TEMME_0), over(c, series, a));
  ir_value factor = pick(c, near, series, sub(c, n_over(c, 1, large), n_over(c, 1, large_eta)));
  ir_value exponent = mul(c, a, pick(c, near, mul(c, half_square, mul(c, small, small)), rest));
  ir_value density = over(c, exp_of(c, neg(c, exponent)), root(c, mul_n(c, a, 2 * M_PI)));
  ir_value side = mul(c, eta, root(c, mul_n(c, a, 0.5))), change = mul(c, factor, density);
  ir_value half = mul_n(c, ir_erfc(b, upper ? side : neg(c, side)), 0.5);
  return upper ? add(c, half, change) : sub(c, half, change);
}

/* P(a, x) or Q(a, x), in f64. Up to a = 1000 the series where it converges fast (x < a + 1), else the fraction. */
static ir_value incomplete_gamma(aten_point *p, bool upper) {
  aten_lowering *c = p->c;
  ir_builder *b = c->b;
  ir_value a = wide_in(p, 0), x = wide_in(p, 1);
  ir_value inf_a = aten_is_inf(c, a), inf_x = aten_is_inf(c, x);
  ir_value usual = both(c, cmp_n(c, IR_GT, a, 0), cmp_n(c, IR_GT, x, 0));
  usual = both(c, usual, ir_not_bits(b, either(c, inf_a, inf_x)));
  ir_value uniform = both(c, usual, cmp_n(c, IR_GT, a, 1000)), one = num(c, a, 1);
  ir_value of_large =
      uniform_gamma(c, pick_n(c, ir_not_bits(b, uniform), 1e6, a), pick_n(c, ir_not_bits(b, usual), 1, x), upper);
  usual = both(c, usual, ir_not_bits(b, uniform));
  ir_value sa = pick(c, usual, a, one), sx = pick(c, usual, x, one);
  ir_value scale = exp_of(c, sub(c, sub(c, mul(c, sa, log_of(c, sx)), sx), ir_lgamma(b, sa)));
  ir_value low = ir_compare(b, IR_LT, sx, add_n(c, sa, 1));

  ir_value series[5] = {both(c, low, usual), sa, one, one, sx};
  ir_value summed = special_loop(c, 5, series, 2000, gamma_series_step);
  if (!summed) return 0;
  ir_value lower = over(c, mul(c, summed + 3, scale), sa);
  ir_value first = add_n(c, sub(c, sx, sa), 1), d = n_over(c, 1, pick_n(c, cmp_n(c, IR_EQ, first, 0), 1e-300, first));
  ir_value fraction[7] = {both(c, ir_not_bits(b, low), usual), num(c, a, 0), first, num(c, a, 1e300), d, d, sa};
  ir_value expanded = special_loop(c, 7, fraction, 2000, gamma_fraction_step);
  if (!expanded) return 0;
  ir_value higher = mul(c, expanded + 5, scale);

  ir_value r = upper ? pick(c, low, sub(c, one, lower), higher) : pick(c, low, lower, sub(c, one, higher));
  r = pick(c, uniform, of_large, r);
  double at_zero = upper ? 1 : 0, at_end = 1 - at_zero;
  /* From the least to the most telling argument, as on CPU, where igamma(NaN, inf) is 1 and igamma(inf, NaN) is 0. */
  r = pick_n(c, either(c, aten_is_nan(c, a), aten_is_nan(c, x)), NAN, r);
  r = pick_n(c, inf_x, at_end, r);
  r = pick_n(c, inf_a, at_zero, r);
  r = pick_n(c, cmp_n(c, IR_EQ, x, 0), at_zero, r);
  r = pick_n(c, both(c, cmp_n(c, IR_EQ, a, 0), cmp_n(c, IR_GT, x, 0)), at_end, r);
  ir_value bad = either(c, both(c, inf_a, inf_x), both(c, cmp_n(c, IR_EQ, a, 0), cmp_n(c, IR_EQ, x, 0)));
  bad = either(c, bad, either(c, cmp_n(c, IR_LT, a, 0), cmp_n(c, IR_LT, x, 0)));
  return pick_n(c, bad, NAN, r);
}
static ir_value lower_gamma_point(aten_point *p) { return incomplete_gamma(p, false); }
static ir_value upper_gamma_point(aten_point *p) { return incomplete_gamma(p, true); }
void lower_igamma(aten_lowering *c) { aten_pointwise(c, ARG(0) | ARG(1), ATEN_PROMOTE_FLOAT, lower_gamma_point); }
void lower_igammac(aten_lowering *c) { aten_pointwise(c, ARG(0) | ARG(1), ATEN_PROMOTE_FLOAT, upper_gamma_point); }

/* ---- how samples follow their parameters --------------------------------------------------------- */

/* Of a sample x of a distribution with parameter a: dx/da = -(dF/da) / f, F its distribution function and f its density.
 * In regions, each with an approximation of its own (those of PyTorch's CPU kernels), all in f64. */

static ir_value square(aten_lowering *c, ir_value x) { return mul(c, x, x); }
static ir_value no_nan(aten_lowering *c, ir_value x) { return pick_n(c, aten_is_nan(c, x), 0, x); }
static ir_value power_n(aten_lowering *c, ir_value x, double y) { return ir_power(c->b, x, num(c, x, y)); }

/* Gamma(a), x small: F = x^a sum (-x)^i / (i! (a + i)). */
static ir_value gamma_slope_near(aten_lowering *c, ir_value a, ir_value x) {
  ir_value term = num(c, a, 1), first = n_over(c, 1, a), second = square(c, first);
  for (int i = 1; i <= 5; ++i) {
    term = mul(c, term, mul_n(c, x, -1.0 / i));
    ir_value inverse = n_over(c, 1, add_n(c, a, i)), part = mul(c, term, inverse);
    first = add(c, first, part);
    second = add(c, second, mul(c, part, inverse));
  }
  ir_value slope = sub(c, mul(c, sub(c, log_of(c, x), ir_digamma(c->b, a)), first), second);
  return no_nan(c, neg(c, mul(c, mul(c, x, exp_of(c, x)), slope)));
}

/* a large: Rice's saddle point expansion, and near its singularity at x = a its series. */
static ir_value gamma_slope_far(aten_lowering *c, ir_value a, ir_value x) {
  ir_builder *b = c->b;
  ir_value middle = both(c, ir_compare(b, IR_LE, mul_n(c, a, 0.9f), x), ir_compare(b, IR_LE, x, mul_n(c, a, 1.1f)));
  ir_value aa = square(c, a), p = add_n(c, mul(c, mul_n(c, a, 24), add_n(c, mul_n(c, a, 12), 1)), 1);
  ir_value q = add(c, mul_n(c, aa, 1440), mul(c, mul_n(c, x, 6), add_n(c, mul_n(c, x, -120), 53)));
  q = sub(c, q, over(c, mul_n(c, square(c, x), 65), a));
  q = add(c, q, mul(c, a, add_n(c, mul_n(c, x, 3600), 107)));
  ir_value centre = over(c, mul(c, p, q), mul_n(c, square(c, aa), 1244160));

  ir_value scale = root(c, mul_n(c, a, 8)), apart = sub(c, a, x), log_ratio = log_of(c, over(c, x, a));
  ir_value linear = over(c, scale, apart);
  ir_value saddle = power_n(c, sub(c, sub(c, x, a), mul(c, a, log_ratio)), -1.5);
  ir_value sum = pick(c, ir_compare(b, IR_LT, x, a), sub(c, linear, saddle), add(c, linear, saddle));
  ir_value rest = over(c, mul(c, root(c, n_over(c, 2, a)), add(c, a, x)), square(c, apart));
  ir_value stirling = add_n(c, mul(c, n_over(c, 1.0 / 12, a), add_n(c, n_over(c, 1.0 / 24, a), 1)), 1);
  ir_value tail = mul(c, x, sub(c, mul(c, log_ratio, sum), rest));
  return pick(c, middle, centre, neg(c, over(c, mul(c, stirling, tail), scale)));
}

/* Between: exp of a rational function in log(x/a) and log(a). */
static ir_value gamma_slope_between(aten_lowering *c, ir_value a, ir_value x) {
  static const double table[3][8] = {
      {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
      {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367,
       -1.5247877e-07}};
  ir_value u = log_of(c, over(c, x, a)), v = log_of(c, a), parts[2];
  for (int part = 0; part < 2; ++part) {
    ir_value sum = num(c, u, 0);
    for (int i = 4 * part + 3; i >= 4 * part; --i) {
      const double in_u[3] = {table[2][i], table[1][i], table[0][i]};
      sum = add(c, mul(c, sum, v), POLY(u, in_u));
    }
    parts[part] = sum;
  }
  return exp_of(c, over(c, parts[0], parts[1]));
}

static ir_value gamma_slope_point(aten_point *p) { /* the parameter, the sample */
  aten_lowering *c = p->c;
  ir_value a = aten_point_in_as(p, 0, TTPU_F64), x = aten_point_in_as(p, 1, TTPU_F64);
  ir_value near = cmp_n(c, IR_LT, x, 0.8f), large = cmp_n(c, IR_GT, a, 8);
  ir_value beyond = pick(c, large, gamma_slope_far(c, a, x), gamma_slope_between(c, a, x));
  return pick(c, near, gamma_slope_near(c, a, x), beyond);
}
void lower_standard_gamma_grad(aten_lowering *c) {
  aten_pointwise(c, ARG(0) | ARG(1), ATEN_PROMOTE, gamma_slope_point);
}

/* Beta(a, b) in a, x near 0. */
static ir_value beta_slope_near(aten_lowering *c, ir_value x, ir_value a, ir_value b) {
  ir_value factor = sub(c, ir_digamma(c->b, a), ir_digamma(c->b, add(c, a, b)));
  factor = sub(c, factor, log_of(c, x));
  ir_value term = num(c, x, 1), inverse = n_over(c, 1, a), series = mul(c, inverse, add(c, factor, inverse));
  for (int i = 1; i <= 10; ++i) {
    term = mul(c, term, mul_n(c, mul(c, sub(c, num(c, b, i), b), x), 1.0 / i));
    inverse = n_over(c, 1, add_n(c, a, i));
    series = add(c, series, mul(c, mul(c, term, inverse), add(c, factor, inverse)));
  }
  ir_value scale = ir_power(c->b, sub(c, num(c, x, 1), x), neg(c, b));
  return no_nan(c, mul(c, mul(c, x, scale), series));
}

/* Beta(a, b) in b, x near 0. */
static ir_value beta_other_slope_near(aten_lowering *c, ir_value x, ir_value a, ir_value b) {
  ir_value factor = sub(c, ir_digamma(c->b, add(c, a, b)), ir_digamma(c->b, b));
  ir_value term = num(c, x, 1), falling = term, derivative = num(c, x, 0), series = over(c, factor, a);
  for (int i = 1; i <= 8; ++i) {
    term = mul(c, term, mul_n(c, x, -1.0 / i));
    derivative = add(c, mul(c, derivative, add_n(c, b, -i)), falling);
    falling = mul(c, falling, add_n(c, b, -i));
    series = add(c, series, mul(c, over(c, term, add_n(c, a, i)), add(c, derivative, mul(c, factor, falling))));
  }
  ir_value one = num(c, x, 1), scale = ir_power(c->b, sub(c, one, x), sub(c, one, b));
  return no_nan(c, neg(c, mul(c, scale, series)));
}

/* The expansion of Beta(a, b), both large, at its singularity x = mean. */
static ir_value beta_slope_at_mean(aten_lowering *c, ir_value x, ir_value a, ir_value b) {
  ir_value total = add(c, a, b), bb = square(c, b), left = sub(c, num(c, x, 1), x), ab = mul(c, a, b);
  ir_value s0 = mul_n(c, mul(c, mul(c, left, add_n(c, mul_n(c, b, 135), -11)), a), 8);
  ir_value s1 = add(c, mul(c, mul_n(c, b, 1620), left), add_n(c, mul_n(c, x, -455), 453));
  ir_value s2 = mul_n(c, sub(c, add_n(c, mul_n(c, b, 180), 59), mul_n(c, x, 90)), 3);
  ir_value s3 = add_n(c, mul(c, mul_n(c, add_n(c, mul_n(c, b, 27), 16), 20), x), 43);
  ir_value sum = mul(c, add(c, mul(c, s1, b), s0), a);
  sum = mul(c, add(c, mul(c, s2, bb), sum), a);
  sum = mul(c, add(c, mul(c, s3, mul(c, bb, b)), sum), a);
  sum = add(c, mul_n(c, mul(c, x, square(c, bb)), 47), sum);
  ir_value high = mul(c, add_n(c, mul_n(c, a, 12), 1), add_n(c, mul_n(c, b, 12), 1));
  ir_value low = mul(c, mul_n(c, mul(c, square(c, ab), a), 12960), add_n(c, mul_n(c, total, 12), 1));
  return over(c, mul(c, over(c, over(c, high, square(c, total)), left), sum), low);
}

static ir_value stirling_ratio(aten_lowering *c, ir_value x) { /* 1 + 1/(12 x) + 1/(288 x^2) */
  ir_value inverse = n_over(c, 1.0 / 12, x);
  return add_n(c, mul(c, inverse, add_n(c, mul_n(c, inverse, 0.5), 1)), 1);
}

/* Beta(a, b), both large. */
static ir_value beta_slope_far(aten_lowering *c, ir_value x, ir_value a, ir_value b) {
  ir_value total = add(c, a, b), ab = mul(c, a, b), mean = over(c, a, total), left = sub(c, num(c, x, 1), x);
  ir_value deviation = over(c, root(c, over(c, ab, add_n(c, total, 1))), total);
  ir_value middle = ir_compare(c->b, IR_LE, ir_abs(c->b, sub(c, x, mean)), mul_n(c, deviation, 0.1));
  ir_value scale = over(c, neg(c, x), root(c, over(c, mul_n(c, ab, 2), total)));
  scale = mul(c, scale, over(c, mul(c, stirling_ratio(c, a), stirling_ratio(c, b)), stirling_ratio(c, total)));
  ir_value apart = sub(c, mul(c, b, x), mul(c, a, left));
  ir_value first = neg(c, add(c, mul(c, mul(c, a, add(c, add(c, a, a), b)), left), mul(c, x, square(c, b))));
  ir_value below = mul(c, root(c, over(c, mul_n(c, a, 2), b)), power_n(c, total, 1.5));
  first = over(c, first, mul(c, below, square(c, apart)));
  ir_value log_a = log_of(c, over(c, mean, x)), log_b = log_of(c, over(c, over(c, b, total), left));
  ir_value third = over(c, root(c, over(c, mul_n(c, ab, 8), total)), apart);
  ir_value saddle = power_n(c, add(c, mul(c, b, log_b), mul(c, a, log_a)), -1.5);
  ir_value side = pick(c, ir_compare(c->b, IR_LT, x, mean), saddle, neg(c, saddle));
  ir_value tail = mul(c, scale, add(c, first, mul(c, mul_n(c, log_a, 0.5), add(c, third, side))));
  return pick(c, middle, beta_slope_at_mean(c, x, a, b), tail);
}

/* Between: x (psi(total) - psi(a)) / b, times a rational function of three logarithms. */
static ir_value beta_slope_between(aten_lowering *c, ir_value x, ir_value a, ir_value b, ir_value total) {
  static const double table[2][3][3][4] = {{{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
                                             {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
                                             {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
                                            {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
                                             {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
                                             {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
                                            {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
                                             {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
                                             {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
                                           {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
                                             {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
                                             {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
                                            {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
                                             {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
                                             {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
                                            {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
                                             {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
                                             {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}}};
  ir_value u = log_of(c, x), v = sub(c, log_of(c, a), u), w = sub(c, log_of(c, total), v), parts[2];
  for (int part = 0; part < 2; ++part) {
    ir_value in_u = num(c, u, 0);
    for (int i = 2; i >= 0; --i) {
      ir_value in_v = num(c, u, 0);
      for (int j = 2; j >= 0; --j) {
        const double *t = table[part][i][j], in_w[4] = {t[3], t[2], t[1], t[0]};
        in_v = add(c, mul(c, in_v, v), POLY(w, in_w));
      }
      in_u = add(c, mul(c, in_u, u), in_v);
    }
    parts[part] = in_u;
  }
  ir_value slope = mul(c, x, sub(c, ir_digamma(c->b, total), ir_digamma(c->b, a)));
  return mul(c, over(c, parts[0], parts[1]), over(c, slope, b));
}

/* A share x of Dirichlet's is Beta(alpha, total - alpha): its slope, over 1 - x. */
static ir_value dirichlet_slope_point(aten_point *p) { /* x, alpha, total */
  aten_lowering *c = p->c;
  ir_value x = aten_point_in_as(p, 0, TTPU_F64), a = aten_point_in_as(p, 1, TTPU_F64),
           total = aten_point_in_as(p, 2, TTPU_F64), b = sub(c, total, a), left = sub(c, num(c, x, 1), x);
  ir_value room = mul(c, mul(c, total, x), left);
  ir_value near_0 = both(c, cmp_n(c, IR_LE, x, 0.5), cmp_n(c, IR_LT, room, 2.5));
  ir_value near_1 = both(c, cmp_n(c, IR_GE, x, 0.5), cmp_n(c, IR_LT, room, 0.75));
  ir_value large = both(c, cmp_n(c, IR_GT, a, 6), cmp_n(c, IR_GT, b, 6));
  ir_value r = pick(c, large, beta_slope_far(c, x, a, b), beta_slope_between(c, x, a, b, total));
  r = pick(c, near_1, neg(c, beta_other_slope_near(c, left, b, a)), r);
  return pick(c, near_0, beta_slope_near(c, x, a, b), r);
}
void lower_dirichlet_grad(aten_lowering *c) {
  aten_pointwise(c, ARG(0) | ARG(1) | ARG(2), ATEN_PROMOTE, dirichlet_slope_point);
}

/* ---- the multivariate log-gamma function ---------------------------------------------------------- */

/* sum of lgamma(x - j / 2) over j < p, and p (p - 1) / 4 log pi (DLMF 35.3.4). The CPU composes it of four operators, after
 * each of which a half type is rounded: next to a pole x - j / 2 is rounded to the pole. */
void lower_mvlgamma(aten_lowering *c) {
  ir_builder *b = c->b;
  int64_t p = aten_int(c, 1);
  ttpu_dtype dtype = (ttpu_dtype)c->outs[0].dtype, math = aten_math_dtype(dtype);
  ir_value x = aten_in_as(c, 0, math), sum = num(c, x, 0);
  for (int64_t j = 0; j < p; ++j) {
    ir_value shifted = ir_convert(b, add_n(c, x, -(double)j / 2), dtype);
    ir_value term = ir_convert(b, ir_lgamma(b, ir_convert(b, shifted, math)), dtype);
    sum = add(c, sum, ir_convert(b, term, math));
  }
  sum = ir_convert(b, ir_convert(b, sum, dtype), math);
  aten_out(c, 0, add_n(c, sum, (double)(p * (p - 1)) / 4 * log(M_PI)));
}
