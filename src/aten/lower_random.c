/* Random numbers: Philox bits through ir_philox, turned into distributions by formulas without rejection, so that
 * element i depends on the seed, the offset and i alone.
 *
 * A call's draws take consecutive counters from the generator's offset; aten_random_counters says how many the call
 * may take at most, by the same arithmetic as aten_draw_bits: a counter gives four u32 or two u64. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aten/aten_int.h"

static uint64_t counters(ttpu_dtype bits, int64_t n) {
  uint64_t per_counter = bits == TTPU_U64 ? 2 : 4;
  return ((uint64_t)n + per_counter - 1) / per_counter;
}

ir_value aten_draw_bits(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  aten_lowering *c = d->c;
  ir_value state = c->random(c);
  if (d->used) {
    const uint64_t step[2] = {0, d->used};
    const int64_t two = 2;
    ir_value more = ir_constant(c->b, ir_tensor(c->b, TTPU_U64, 1, &two), (ir_data){step, false});
    state = ir_add(c->b, state, more);
  }
  d->used += counters(dtype, base_numel(rank, dims));
  return ir_philox(c->b, state, dtype, rank, dims);
}

/* The high bits that the dtype can hold, as a fraction: 24 of 32 for f32, 53 of 64 for f64. */
ir_value aten_draw_uniform(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  ir_builder *b = d->c->b;
  bool wide = dtype == TTPU_F64;
  ir_value bits = aten_draw_bits(d, wide ? TTPU_U64 : TTPU_U32, rank, dims);
  bits = ir_shift_right_logical(b, bits, aten_like_i64(d->c, bits, wide ? 11 : 8));
  ir_value whole = ir_convert(b, bits, wide ? TTPU_F64 : TTPU_F32);
  return ir_multiply(b, whole, aten_like(d->c, whole, wide ? 0x1p-53 : 0x1p-24));
}

/* All bits, plus one half: close to 0 the steps are finer than uniform's, which is what logarithms look at. Rounding
 * reaches 1, which the last number below it stands in for. */
ir_value aten_draw_open(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  aten_lowering *c = d->c;
  ir_builder *b = c->b;
  bool wide = dtype == TTPU_F64;
  ir_value bits = aten_draw_bits(d, wide ? TTPU_U64 : TTPU_U32, rank, dims);
  ir_value whole = ir_convert(b, bits, wide ? TTPU_F64 : TTPU_F32);
  ir_value part =
      ir_multiply(b, ir_add(b, whole, aten_like(c, whole, 0.5)), aten_like(c, whole, wide ? 0x1p-64 : 0x1p-32));
  return ir_minimum(b, part, aten_like(c, part, wide ? 1 - 0x1p-53 : 1 - 0x1p-24));
}

/* Box and Muller: each pair of draws gives a pair of normals, elements 2i and 2i+1. */
ir_value aten_draw_normal(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  aten_lowering *c = d->c;
  ir_builder *b = c->b;
  ttpu_dtype t = dtype == TTPU_F64 ? TTPU_F64 : TTPU_F32;
  int64_t n = base_numel(rank, dims);
  const int64_t half = (n + 1) / 2, column[2] = {half, 1}, even = 2 * half;
  ir_value radius = aten_draw_open(d, t, 2, column);
  radius = ir_log(b, radius);
  radius = ir_sqrt(b, ir_multiply(b, radius, aten_like(c, radius, -2)));
  ir_value angle = aten_draw_uniform(d, t, 2, column);
  angle = ir_multiply(b, angle, aten_like(c, angle, 2 * M_PI));
  ir_value pair[2] = {ir_multiply(b, radius, ir_cosine(b, angle)), ir_multiply(b, radius, ir_sine(b, angle))};
  ir_value line = ir_reshape(b, ir_concatenate(b, 2, pair, 1), 1, &even);
  return ir_reshape(b, ir_slice_dim(b, line, 0, 0, n, 1), rank, dims);
}

/* ---- distributions over a whole tensor ----------------------------------------------------------- */

/* What a distribution's lowering starts from: result 0's sizes and the dtype to compute in. */
typedef struct fresh {
  aten_draws draws;
  const aten_tensor *out;
  ttpu_dtype math; /* f32 or f64 */
} fresh;

static fresh begin(aten_lowering *c) {
  const aten_tensor *out = &c->outs[0];
  ttpu_dtype real = aten_real_dtype((ttpu_dtype)out->dtype);
  return (fresh){{c, 0}, out, real == TTPU_F64 ? TTPU_F64 : TTPU_F32};
}
static ir_value uniform(fresh *f) { return aten_draw_uniform(&f->draws, f->math, f->out->rank, f->out->sizes); }
static ir_value open_uniform(fresh *f) { return aten_draw_open(&f->draws, f->math, f->out->rank, f->out->sizes); }
static ir_value normal(fresh *f) { return aten_draw_normal(&f->draws, f->math, f->out->rank, f->out->sizes); }
/* A number (float argument) as f's dtype, spread over the result. */
static ir_value parameter(fresh *f, uint32_t arg) {
  aten_lowering *c = f->draws.c;
  return ir_broadcast_to(c->b, aten_number_in(c, arg, f->math), f->out->rank, f->out->sizes);
}
/* A tensor argument, the same. */
static ir_value operand(fresh *f, uint32_t arg) {
  return aten_expand(f->draws.c, aten_in_as(f->draws.c, arg, f->math), f->out);
}
/* Two independent draws as the parts of a complex number where the result is complex. */
static ir_value draw(fresh *f, ir_value (*one)(fresh *)) {
  ir_value re = one(f);
  return base_dtype_is_complex((ttpu_dtype)f->out->dtype) ? ir_complex(f->draws.c->b, re, one(f)) : re;
}

/* In [from, to). Halves take as many random bits as they can hold. Where rounding reaches `to`, `from` stands in. */
static ir_value uniform_part(fresh *f) {
  aten_lowering *c = f->draws.c;
  ir_builder *b = c->b;
  ttpu_dtype out = f->out->flags & ATEN_HALVES ? TTPU_F16 : aten_real_dtype((ttpu_dtype)f->out->dtype);
  ir_value u = uniform(f), low = parameter(f, 1), high = parameter(f, 2);
  if (aten_is_half(out)) {
    double steps = out == TTPU_BF16 ? 256 : 2048;
    ir_value whole = ir_floor(b, ir_multiply(b, u, aten_like(c, u, steps)));
    u = ir_multiply(b, whole, aten_like(c, u, 1 / steps));
  }
  ir_value v = ir_add(b, low, ir_multiply(b, u, ir_subtract(b, high, low)));
  if (out != f->math && base_dtype_is_float(out)) v = ir_convert(b, ir_convert(b, v, out), f->math);
  return ir_select(b, ir_compare(b, IR_LT, v, high), v, low);
}

void lower_uniform_(aten_lowering *c) {
  fresh f = begin(c);
  aten_out(c, 0, draw(&f, uniform_part));
}

static void shift_and_scale(aten_lowering *c, fresh *f, ir_value z, ir_value mean, ir_value deviation) {
  ir_builder *b = c->b;
  if (base_dtype_is_complex((ttpu_dtype)f->out->dtype)) { /* variance 1 in all: one half for each part */
    ir_value half = aten_like(c, deviation, M_SQRT1_2), none = ir_zeros_like(b, deviation);
    deviation = ir_complex(b, ir_multiply(b, deviation, half), none);
    mean = ir_complex(b, mean, none);
  }
  aten_out(c, 0, ir_add(b, mean, ir_multiply(b, z, deviation)));
}

void lower_normal_(aten_lowering *c) { /* self, mean, std */
  fresh f = begin(c);
  ir_value z = draw(&f, normal);
  shift_and_scale(c, &f, z, parameter(&f, 1), parameter(&f, 2));
}
/* Fails the execution where an element of x is below 0 or NaN. */
static ir_value not_negative(aten_lowering *c, ir_value x, const char *what) {
  ir_value inside = ir_compare(c->b, IR_GE, x, aten_like(c, x, 0));
  ir_check_not(c->b, ir_not_bits(c->b, inside), IR_BAD_VALUE, what);
  return x;
}
static ir_value deviations(aten_lowering *c, fresh *f, uint32_t arg) {
  return not_negative(c, operand(f, arg), "normal expects all elements of std >= 0.0");
}

void lower_normal_tensor_float(aten_lowering *c) {
  fresh f = begin(c);
  ir_value z = draw(&f, normal), mean = operand(&f, 0);
  shift_and_scale(c, &f, z, mean, parameter(&f, 1));
}
void lower_normal_float_tensor(aten_lowering *c) {
  fresh f = begin(c);
  ir_value z = draw(&f, normal), mean = parameter(&f, 0);
  shift_and_scale(c, &f, z, mean, deviations(c, &f, 1));
}
void lower_normal_tensor_tensor(aten_lowering *c) {
  fresh f = begin(c);
  ir_value z = draw(&f, normal), mean = operand(&f, 0);
  shift_and_scale(c, &f, z, mean, deviations(c, &f, 1));
}

void lower_log_normal_(aten_lowering *c) {
  ir_builder *b = c->b;
  fresh f = begin(c);
  ir_value z = normal(&f);
  ir_value scaled = ir_multiply(b, z, parameter(&f, 2));
  aten_out(c, 0, ir_exponential(b, ir_add(b, scaled, parameter(&f, 1))));
}

/* -log(u) / lambda, u in (0, 1): never 0 and never infinite. */
void lower_exponential_(aten_lowering *c) {
  ir_builder *b = c->b;
  fresh f = begin(c);
  ir_value u = open_uniform(&f);
  aten_out(c, 0, ir_divide(b, ir_negate(b, ir_log(b, u)), parameter(&f, 1)));
}

void lower_geometric_(aten_lowering *c) { /* ceil(log(u) / log(1 - p)) */
  ir_builder *b = c->b;
  fresh f = begin(c);
  ir_value u = open_uniform(&f), p = parameter(&f, 1);
  ir_value r = ir_ceil(b, ir_divide(b, ir_log(b, u), ir_log_plus_one(b, ir_negate(b, p))));
  aten_out(c, 0, ir_maximum(b, r, aten_like(c, r, 1)));
}

void lower_cauchy_(aten_lowering *c) {
  ir_builder *b = c->b;
  fresh f = begin(c);
  ir_value u = open_uniform(&f);
  ir_value turn = ir_multiply(b, ir_subtract(b, u, aten_like(c, u, 0.5)), aten_like(c, u, M_PI));
  aten_out(c, 0, ir_add(b, parameter(&f, 1), ir_multiply(b, parameter(&f, 2), ir_tan(b, turn))));
}

static void bernoulli(aten_lowering *c, fresh *f, ir_value p) {
  ir_value u = uniform(f);
  aten_out(c, 0, ir_compare(c->b, IR_LT, u, p));
}
static ir_value probabilities(aten_lowering *c, fresh *f, uint32_t arg) {
  ir_value p = operand(f, arg);
  ir_value low = ir_compare(c->b, IR_GE, p, aten_like(c, p, 0)), high = ir_compare(c->b, IR_LE, p, aten_like(c, p, 1));
  ir_check_not(c->b, ir_not_bits(c->b, ir_and_bits(c->b, low, high)), IR_BAD_VALUE,
               "bernoulli expects all elements of p to be in [0, 1]");
  return p;
}
void lower_bernoulli(aten_lowering *c) { /* self holds the probabilities */
  fresh f = begin(c);
  bernoulli(c, &f, probabilities(c, &f, 0));
}
void lower_bernoulli_number(aten_lowering *c) { /* self, p */
  fresh f = begin(c);
  bernoulli(c, &f, parameter(&f, 1));
}
void lower_bernoulli_tensor(aten_lowering *c) { /* self, a tensor p */
  fresh f = begin(c);
  bernoulli(c, &f, probabilities(c, &f, 1));
}

/* ---- integers ------------------------------------------------------------------------------------ */

/* In [0, range), for range < 2^32: the high word of bits * range, from 64 random bits, so that no value is favoured
 * by more than 2^-32 of its probability. For wider ranges the remainder, by as little. range 0 stands for 2^64. */
static ir_value draw_below(aten_draws *d, uint64_t range, uint32_t rank, const int64_t *dims) {
  aten_lowering *c = d->c;
  ir_builder *b = c->b;
  ir_value bits = aten_draw_bits(d, TTPU_U64, rank, dims);
  if (range == 0) return bits;
  ir_value n = aten_like_i64(c, bits, (int64_t)range);
  if (range >> 32) return ir_remainder(b, bits, n);
  ir_value word = aten_like_i64(c, bits, 32), mask = aten_like_i64(c, bits, 0xffffffff);
  ir_value high = ir_multiply(b, ir_shift_right_logical(b, bits, word), n);
  ir_value low = ir_multiply(b, ir_and_bits(b, bits, mask), n);
  return ir_shift_right_logical(b, ir_add(b, high, ir_shift_right_logical(b, low, word)), word);
}

static void integers_between(aten_lowering *c, int64_t from, uint64_t range) {
  ir_builder *b = c->b;
  fresh f = begin(c);
  ir_value v = ir_convert(b, draw_below(&f.draws, range, f.out->rank, f.out->sizes), TTPU_I64);
  aten_out(c, 0, ir_add(b, v, aten_like_i64(c, v, from)));
}

/* How many integers from 0 on random_() draws from: all non-negative ones of an integer dtype; of a float those up to
 * which it holds every integer. */
static uint64_t default_range(ttpu_dtype t) {
  switch (t) {
    case TTPU_BOOL: return 2;
    case TTPU_U8: return 256;
    case TTPU_I8: return 128;
    case TTPU_I16: return 1u << 15;
    case TTPU_U16: return 1u << 16;
    case TTPU_I32: return 1u << 31;
    case TTPU_U32: return (uint64_t)1 << 32;
    case TTPU_BF16: return (1u << 8) + 1;
    case TTPU_F16: return (1u << 11) + 1;
    case TTPU_F32: return (1u << 24) + 1;
    case TTPU_F64: return ((uint64_t)1 << 53) + 1;
    case TTPU_U64: return 0;
    default: return (uint64_t)1 << 63;
  }
}

void lower_random_(aten_lowering *c) { integers_between(c, 0, default_range((ttpu_dtype)c->outs[0].dtype)); }
void lower_random_to(aten_lowering *c) { integers_between(c, 0, (uint64_t)aten_int(c, 1)); }
void lower_random_from(aten_lowering *c) { /* self, from, to; without `to` up to the dtype's largest */
  int64_t from = aten_int(c, 1);
  if (aten_has(c, 2)) return integers_between(c, from, (uint64_t)aten_int(c, 2) - (uint64_t)from);
  ttpu_dtype t = (ttpu_dtype)c->outs[0].dtype;
  integers_between(c, from, default_range(t) - (uint64_t)from);
}

/* The order of n random keys of 64 bits, of which two are equal once in 2^63 pairs. */
void lower_randperm(aten_lowering *c) {
  const aten_tensor *out = &c->outs[0];
  aten_draws d = {c, 0};
  ir_value both[2] = {aten_draw_bits(&d, TTPU_U64, 1, out->sizes), ir_iota(c->b, TTPU_I64, 1, out->sizes, 0)};
  ir_value sorted = ir_sort(c->b, 2, both, 0, false);
  aten_out(c, 0, sorted ? sorted + 1 : 0);
}

/* ---- Poisson, gamma, Dirichlet ------------------------------------------------------------------- */

enum { INVERSION_LIMIT = 500, GAMMA_ROUNDS = 8 };

/* The next probability's factor over that of k - 1, from the distribution's two parameters. */
typedef ir_value (*next_factor)(aten_lowering *c, ir_value k, const ir_value *parameters);

/* The smallest k at which the distribution function passes u, from the probability of 0 on: state going, k, term, sum, u
 * and the parameters. */
static ir_value invert_counts(aten_lowering *c, ir_value u, ir_value none, const ir_value *parameters,
                              next_factor factor) {
  ir_builder *b = c->b;
  ir_value zero = aten_like(c, u, 0);
  const ir_value start[7] = {ir_compare(b, IR_GT, u, none), zero, none, none, u, parameters[0], parameters[1]};
  ir_type types[7];
  for (int i = 0; i < 7; ++i) types[i] = aten_type(c, start[i]);
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 7, types, &outer);
  if (!regions[0]) return 0;
  ir_value going = regions[0]->first_arg;
  int64_t all[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < types[0].rank; ++i) all[i] = i;
  if (types[0].rank) going = ir_reduce(b, IR_OR, going, types[0].rank, all);
  ir_region_end(b, outer, 1, &going);

  regions[1] = ir_region_begin(b, 7, types, &outer);
  if (!regions[1]) return 0;
  ir_value s = regions[1]->first_arg, on = s, k = s + 1, term = s + 2, sum = s + 3;
  const ir_value given[2] = {s + 5, s + 6};
  ir_value next_k = ir_add(b, k, aten_like(c, k, 1)), next_term = ir_multiply(b, term, factor(c, next_k, given));
  ir_value next_sum = ir_add(b, sum, next_term);
  ir_value more = ir_and_bits(b, ir_compare(b, IR_GT, s + 4, next_sum), ir_compare(b, IR_GT, next_sum, sum));
  ir_value next[7] = {ir_and_bits(b, on, more),
                      ir_select(b, on, next_k, k),
                      ir_select(b, on, next_term, term),
                      ir_select(b, on, next_sum, sum),
                      s + 4,
                      s + 5,
                      s + 6};
  ir_region_end(b, outer, 7, next);
  ir_value end = ir_append(b, IR_WHILE, 7, start, NULL, 0, NULL, 2, regions);
  return end ? end + 1 : 0;
}

static ir_value poisson_factor(aten_lowering *c, ir_value k, const ir_value *rate) {
  return ir_divide(c->b, rate[0], k);
}
static ir_value binomial_factor(aten_lowering *c, ir_value k, const ir_value *count_and_odds) {
  ir_value left = ir_add(c->b, ir_subtract(c->b, count_and_odds[0], k), aten_like(c, k, 1));
  return ir_multiply(c->b, ir_divide(c->b, left, k), count_and_odds[1]);
}

/* By inversion for rates up to INVERSION_LIMIT; above, the Cornish-Fisher expansion of the quantile in a normal z, whose
 * error there is below a thousandth of the deviation. */
void lower_poisson(aten_lowering *c) {
  ir_builder *b = c->b;
  aten_draws d = {c, 0};
  const aten_tensor *out = &c->outs[0];
  ir_value rate = aten_expand(c, aten_in_as(c, 0, TTPU_F64), out);
  rate = not_negative(c, rate, "invalid Poisson rate, expected rate to be non-negative");
  ir_value large = ir_compare(b, IR_GT, rate, aten_like(c, rate, INVERSION_LIMIT));
  ir_value u = aten_draw_uniform(&d, TTPU_F64, out->rank, out->sizes);
  ir_value z = aten_draw_normal(&d, TTPU_F64, out->rank, out->sizes);
  ir_value near = aten_select_number(c, large, 1, rate), none = ir_exponential(b, ir_negate(b, near));
  const ir_value rates[2] = {near, near};
  ir_value small = invert_counts(c, aten_select_number(c, large, 0, u), none, rates, poisson_factor);
  ir_value square = ir_multiply(b, z, z), one = aten_like(c, z, 1), root = ir_sqrt(b, rate);
  ir_value skew = ir_multiply(b, ir_subtract(b, square, one), aten_like(c, z, 1.0 / 6));
  ir_value third =
      ir_divide(b, ir_multiply(b, z, ir_subtract(b, one, square)), ir_multiply(b, root, aten_like(c, z, 72)));
  ir_value far = ir_add(b, ir_add(b, rate, ir_multiply(b, root, z)), ir_add(b, skew, third));
  far = ir_floor(b, ir_add(b, far, aten_like(c, far, 0.5)));
  aten_out(c, 0, ir_select(b, large, far, small));
}

/* The quantile of Binomial(n, p), p at most 1/2 and n p large, at a normal z: Cornish and Fisher's expansion with the
 * skewness and the excess kurtosis, kept within [0, n]. */
static ir_value binomial_far(aten_lowering *c, ir_value n, ir_value p, ir_value z) {
  ir_builder *b = c->b;
  ir_value one = aten_like(c, p, 1), q = ir_subtract(b, one, p), mean = ir_multiply(b, n, p);
  ir_value variance = ir_multiply(b, mean, q), root = ir_sqrt(b, variance), square = ir_multiply(b, z, z);
  ir_value bias = ir_subtract(b, q, p), pq = ir_multiply(b, p, q);
  ir_value skew = ir_multiply(b, ir_multiply(b, bias, ir_subtract(b, square, one)), aten_like(c, z, 1.0 / 6));
  ir_value kurtosis = ir_multiply(b, ir_subtract(b, one, ir_multiply(b, pq, aten_like(c, pq, 6))),
                                  ir_multiply(b, z, ir_subtract(b, square, aten_like(c, z, 3))));
  ir_value cubic = ir_multiply(b, z, ir_subtract(b, ir_multiply(b, square, aten_like(c, z, 2)), aten_like(c, z, 5)));
  kurtosis = ir_divide(b, kurtosis, aten_like(c, z, 24));
  cubic = ir_divide(b, ir_multiply(b, ir_multiply(b, bias, bias), cubic), aten_like(c, z, 36));
  ir_value third = ir_divide(b, ir_subtract(b, kurtosis, cubic), root);
  ir_value x = ir_add(b, ir_add(b, mean, ir_multiply(b, root, z)), ir_add(b, skew, third));
  x = ir_floor(b, ir_add(b, x, aten_like(c, x, 0.5)));
  return ir_minimum(b, ir_maximum(b, x, aten_like(c, x, 0)), n);
}

/* By inversion while n p is at most INVERSION_LIMIT; above by its expansion. Of a p above 1/2 the failures are counted. */
void lower_binomial(aten_lowering *c) { /* count, prob */
  ir_builder *b = c->b;
  aten_draws d = {c, 0};
  const aten_tensor *out = &c->outs[0];
  ir_value n = aten_expand(c, aten_in_as(c, 0, TTPU_F64), out), p = aten_expand(c, aten_in_as(c, 1, TTPU_F64), out);
  ir_value zero = aten_like(c, n, 0), one = aten_like(c, n, 1), half = aten_like(c, n, 0.5);
  ir_value never = ir_or_bits(b, ir_compare(b, IR_LE, n, zero), ir_compare(b, IR_LE, p, zero));
  ir_value always = ir_compare(b, IR_GE, p, one), many = ir_compare(b, IR_GT, p, half);
  ir_value rare = ir_select(b, many, ir_subtract(b, one, p), p);
  ir_value bad = ir_or_bits(b, aten_is_nan(c, n), aten_is_nan(c, p));
  ir_value usual = ir_not_bits(b, ir_or_bits(b, bad, ir_or_bits(b, never, always)));
  n = ir_select(b, usual, n, zero);
  rare = ir_select(b, usual, rare, half);
  ir_value large = ir_compare(b, IR_GT, ir_multiply(b, n, rare), aten_like(c, n, INVERSION_LIMIT));
  ir_value u = aten_draw_uniform(&d, TTPU_F64, out->rank, out->sizes);
  ir_value z = aten_draw_normal(&d, TTPU_F64, out->rank, out->sizes);
  ir_value near = ir_select(b, large, zero, n), rest = ir_subtract(b, one, rare);
  ir_value none = ir_exponential(b, ir_multiply(b, near, ir_log_plus_one(b, ir_negate(b, rare))));
  const ir_value count_and_odds[2] = {near, ir_divide(b, rare, rest)};
  ir_value k = invert_counts(c, ir_select(b, large, zero, u), none, count_and_odds, binomial_factor);
  k = ir_select(b, large, binomial_far(c, n, rare, z), ir_minimum(b, k, near));
  k = ir_select(b, many, ir_subtract(b, n, k), k);
  k = ir_select(b, never, zero, ir_select(b, always, aten_expand(c, aten_in_as(c, 0, TTPU_F64), out), k));
  aten_out(c, 0, aten_select_number(c, bad, NAN, k));
}

/* Marsaglia and Tsang's method for shape >= 1; below 1 that of shape + 1 times u^(1/shape). A round is accepted with a
 * probability above 0.95, so that after GAMMA_ROUNDS of them one element in 10^10 keeps its last proposal. */
static ir_value draw_gamma(aten_draws *d, ir_value shape) {
  aten_lowering *c = d->c;
  ir_builder *b = c->b;
  ir_type t = aten_type(c, shape);
  ttpu_dtype dtype = (ttpu_dtype)t.dtype;
  ir_value one = aten_like(c, shape, 1), small = ir_compare(b, IR_LT, shape, one);
  ir_value power = ir_divide(b, ir_log(b, aten_draw_open(d, dtype, t.rank, t.dims)), shape);
  ir_value scale = ir_select(b, small, ir_exponential(b, power), one);
  ir_value base = ir_select(b, small, ir_add(b, shape, one), shape);
  ir_value e = ir_subtract(b, base, aten_like(c, base, 1.0 / 3));
  ir_value f = ir_divide(b, one, ir_sqrt(b, ir_multiply(b, e, aten_like(c, e, 9))));
  ir_value value = ir_zeros_like(b, e), done = ir_fill_i64(b, TTPU_BOOL, t.rank, t.dims, 0);
  for (int i = 0; i < GAMMA_ROUNDS; ++i) {
    ir_value z = aten_draw_normal(d, dtype, t.rank, t.dims);
    ir_value u = aten_draw_open(d, dtype, t.rank, t.dims);
    ir_value v = ir_add(b, one, ir_multiply(b, f, z)), cube = ir_multiply(b, ir_multiply(b, v, v), v);
    ir_value positive = ir_compare(b, IR_GT, cube, ir_zeros_like(b, cube)), safe = ir_select(b, positive, cube, one);
    ir_value bound = ir_add(b, ir_subtract(b, one, safe), ir_log(b, safe));
    bound = ir_add(b, ir_multiply(b, e, bound), ir_multiply(b, ir_multiply(b, z, z), aten_like(c, z, 0.5)));
    ir_value accepted = ir_and_bits(b, positive, ir_compare(b, IR_LT, ir_log(b, u), bound));
    value = ir_select(b, done, value, ir_select(b, positive, ir_multiply(b, e, safe), e));
    done = ir_or_bits(b, done, accepted);
  }
  return ir_multiply(b, value, scale);
}

static double smallest_normal(ttpu_dtype t) { return t == TTPU_F64 ? 0x1p-1022 : t == TTPU_F16 ? 0x1p-14 : 0x1p-126; }

void lower_standard_gamma(aten_lowering *c) {
  aten_draws d = {c, 0};
  ir_value x = draw_gamma(&d, aten_in_math(c, 0));
  aten_out(c, 0, ir_maximum(c->b, x, aten_like(c, x, smallest_normal((ttpu_dtype)c->outs[0].dtype))));
}

/* Gammas divided by their sum along the last dimension. */
void lower_sample_dirichlet(aten_lowering *c) {
  aten_draws d = {c, 0};
  ir_value x = draw_gamma(&d, aten_in_math(c, 0));
  const double least = smallest_normal((ttpu_dtype)c->outs[0].dtype);
  x = ir_maximum(c->b, x, aten_like(c, x, least));
  const int64_t last = aten_type(c, x).rank - 1;
  ir_value share = ir_divide(c->b, x, aten_spread(c, aten_reduce(c, IR_ADD, x, 1, &last, true), x));
  aten_out(c, 0, ir_maximum(c->b, share, aten_like(c, share, least)));
}

/* ---- multinomial --------------------------------------------------------------------------------- */

/* Without replacement: the k largest of p / e with e exponential, which come in the order of drawing (the race of
 * exponential clocks). */
static ir_value draw_without(aten_lowering *c, aten_draws *d, ir_value p, int64_t k) {
  ir_type t = aten_type(c, p);
  ir_value clocks = ir_negate(c->b, ir_log(c->b, aten_draw_open(d, (ttpu_dtype)t.dtype, t.rank, t.dims)));
  ir_value race = ir_divide(c->b, p, clocks);
  if (k == 1) {
    int64_t sizes[2] = {t.dims[0], 1};
    return ir_reshape(c->b, ir_reduce_arg(c->b, true, race, 1, NULL), 2, sizes);
  }
  const ir_top_k_attrs attrs = {.k = k, .largest = true, .sorted = true};
  ir_value top = ir_append(c->b, IR_TOP_K, 1, &race, &attrs, 0, NULL, 0, NULL);
  return top ? top + 1 : 0;
}

/* With replacement: for each draw the first place whose cumulative sum is above it, by bisection. */
static ir_value draw_with(aten_lowering *c, aten_draws *d, ir_value p, int64_t k) {
  ir_builder *b = c->b;
  ir_type t = aten_type(c, p);
  int64_t rows = t.dims[0], n = t.dims[1];
  const int64_t sizes[2] = {rows, k};
  const ir_scan_attrs attrs = {.dimension = 1, .kind = IR_CUMSUM};
  ir_value sums = ir_append(b, IR_SCAN, 1, &p, &attrs, 0, NULL, 0, NULL);
  ir_value total = ir_broadcast_to(b, ir_slice_dim(b, sums, 1, n - 1, n, 1), 2, sizes);
  ir_value mark = ir_multiply(b, aten_draw_uniform(d, (ttpu_dtype)t.dtype, 2, sizes), total);
  ir_value place = ir_fill_i64(b, TTPU_I64, 2, sizes, 0), last = ir_fill_i64(b, TTPU_I64, 2, sizes, n - 1);
  int bits = 0;
  while (bits < 62 && ((int64_t)1 << bits) < n) ++bits;
  for (int bit = bits; bit-- > 0;) { /* place: how many sums are known to be at or below the mark */
    ir_value further = ir_add(b, place, aten_like_i64(c, place, (int64_t)1 << bit));
    ir_value before = ir_minimum(b, ir_subtract(b, further, aten_like_i64(c, place, 1)), last);
    ir_value sum = ir_take_along(b, sums, before, 1), reached = ir_compare(b, IR_LE, sum, mark);
    reached = ir_and_bits(b, reached, ir_compare(b, IR_LE, further, last));
    reached = ir_and_bits(b, reached, ir_compare(b, IR_LT, sum, total)); /* never into places without weight */
    place = ir_select(b, reached, further, place);
  }
  return place;
}

/* Weights of a row are finite, not negative, and not all 0. */
static void check_weights(aten_lowering *c, ir_value p) {
  ir_builder *b = c->b;
  ir_value zero = aten_like(c, p, 0),
           sound = ir_and_bits(b, ir_compare(b, IR_GE, p, zero), ir_unary(b, IR_IS_FINITE, p));
  ir_check_not(b, ir_not_bits(b, sound), IR_BAD_VALUE,
               "probability tensor contains either `inf`, `nan` or element < 0");
  int64_t dim = 1;
  ir_value sum = ir_reduce(b, IR_ADD, p, 1, &dim);
  ir_check_not(b, ir_compare(b, IR_LE, sum, ir_zeros_like(b, sum)), IR_BAD_VALUE,
               "invalid multinomial distribution (sum of probabilities <= 0)");
}

void lower_multinomial(aten_lowering *c) {
  const aten_tensor *self = aten_meta(c, 0);
  int64_t k = aten_int(c, 1);
  bool replacement = aten_int(c, 2);
  aten_draws d = {c, 0};
  ir_value p = aten_in_math(c, 0);
  const int64_t sizes[2] = {self->rank == 2 ? self->sizes[0] : 1, self->rank ? self->sizes[self->rank - 1] : 1};
  p = ir_reshape(c->b, p, 2, sizes);
  check_weights(c, p);
  ir_value r = replacement ? draw_with(c, &d, p, k) : draw_without(c, &d, p, k);
  aten_out_reshaped(c, 0, r);
}

/* ---- dropout ------------------------------------------------------------------------------------- */

/* 1 / (1 - p), and 0 for p = 1, where nothing is kept. */
static ir_value dropout_scale(aten_lowering *c, uint32_t p_arg, ttpu_dtype t) {
  ir_value one = ir_scalar_f64(c->b, t, 1), kept = ir_subtract(c->b, one, aten_number_in(c, p_arg, t));
  return aten_select_number(c, ir_compare(c->b, IR_EQ, kept, aten_like(c, kept, 0)), 0, ir_divide(c->b, one, kept));
}

void lower_native_dropout(aten_lowering *c) { /* input, p, train? -> output, mask */
  ir_builder *b = c->b;
  const aten_tensor *t = aten_meta(c, 0);
  ir_value x = aten_in_math(c, 0);
  if (aten_has(c, 2) && !aten_int(c, 2)) {
    aten_out(c, 0, x);
    aten_out(c, 1, ir_fill_i64(b, TTPU_BOOL, t->rank, t->sizes, 1));
    return;
  }
  fresh f = begin(c);
  ir_value keep = ir_compare(b, IR_GE, uniform(&f), parameter(&f, 1));
  ir_value scale = aten_spread(c, dropout_scale(c, 1, aten_type(c, x).dtype), x);
  aten_out(c, 0, ir_select(b, keep, ir_multiply(b, x, scale), ir_zeros_like(b, x)));
  aten_out(c, 1, keep);
}

void lower_native_dropout_backward(aten_lowering *c) { /* grad, mask, scale */
  ir_builder *b = c->b;
  ir_value grad = aten_in_as(c, 0, aten_math_dtype((ttpu_dtype)c->outs[0].dtype)), keep = aten_in_as(c, 1, TTPU_BOOL);
  ir_value scale = aten_spread(c, aten_number_in(c, 2, aten_type(c, grad).dtype), grad);
  aten_out(c, 0, ir_select(b, keep, ir_multiply(b, grad, scale), ir_zeros_like(b, grad)));
}

/* ---- counters ------------------------------------------------------------------------------------ */

/* An upper bound for every row that draws once: per element of the largest tensor that takes part, two draws of 64 bits
 * (a complex f64 normal), each draw rounded up to whole counters. */
uint64_t aten_random_counters(const aten_call *call, const aten_tensor *outs) {
  int64_t most = outs ? base_numel(outs[0].rank, outs[0].sizes) : 0;
  for (uint32_t i = 0; i < call->tensor_count; ++i) {
    const aten_tensor *t = &call->tensors[i];
    int64_t n = t->flags & ATEN_UNDEFINED ? 0 : base_numel(t->rank, t->sizes);
    if (n > most) most = n;
  }
  if (call->row && call->row->lower == lower_attention &&
      call->tensor_count >= 2) { /* the probabilities, which no tensor holds */
    const aten_tensor *q = &call->tensors[0], *k = &call->tensors[1];
    int64_t n = q->rank >= 3 && k->rank >= 3 ? base_numel(q->rank - 1u, q->sizes) * k->sizes[k->rank - 2] : 0;
    if (n > most) most = n;
  }
  bool rounds = call->row && (call->row->lower == lower_standard_gamma || call->row->lower == lower_sample_dirichlet);
  return ((uint64_t)most + 4) * (rounds ? 2 * GAMMA_ROUNDS : 1);
}

/* ---- numbers with which no distribution is ------------------------------------------------------- */

static ttpu_status check_uniform(const aten_call *call) {
  double from = aten_call_real(call, 1, 1), to = aten_call_real(call, 2, 1);
  ttpu_dtype t = aten_real_dtype((ttpu_dtype)call->tensors[0].dtype);
  double most = aten_float_max(t);
  if (!(fabs(from) <= most) || !(fabs(to) <= most))
    return base_fail(TTPU_INVALID_ARGUMENT, "%s is out of bounds for %s", fabs(from) <= most ? "to" : "from",
                     base_dtypes[t].name);
  if (!(from <= to))
    return base_fail(TTPU_INVALID_ARGUMENT, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g",
                     from, to);
  if (to - from <= most) return TTPU_OK;
  return base_fail(
      TTPU_INVALID_ARGUMENT,
      "uniform_ expects to-from <= %g, the largest %s, but found to=%g and from=%g which result in to-from "
      "to exceed the limit",
      most, base_dtypes[t].name, to, from);
}

/* The least and the largest of the numbers that random_ may be asked to draw into a dtype; `digits` of a float. */
typedef struct bounds {
  int64_t low, high;
  int digits; /* integers up to 2^digits are all there; 0 for an integer dtype */
} bounds;

static bounds bounds_of(ttpu_dtype t) {
  switch (t) {
    case TTPU_BOOL: return (bounds){0, 1, 0};
    case TTPU_F16: return (bounds){-65504, 65504, 11};
    case TTPU_BF16: return (bounds){INT64_MIN, INT64_MAX, 8};
    case TTPU_F32: return (bounds){INT64_MIN, INT64_MAX, 24};
    case TTPU_F64: return (bounds){INT64_MIN, INT64_MAX, 53};
    default: break;
  }
  size_t bits = 8 * base_dtype_bytes(t);
  if (!base_dtype_is_integer(t) || bits == 64) return (bounds){INT64_MIN, INT64_MAX, 0};
  int64_t half = (int64_t)1 << (bits - 1);
  return base_dtype_is_signed(t) ? (bounds){-half, half - 1, 0} : (bounds){0, 2 * half - 1, 0};
}

static ttpu_status check_bound(ttpu_dtype t, const char *what, int64_t n, char *warning) {
  bounds b = bounds_of(t);
  if (n < b.low || n > b.high)
    return base_fail(TTPU_INVALID_ARGUMENT, "%s is out of bounds for %s", what, base_dtypes[t].name);
  int64_t exact = (int64_t)1 << b.digits;
  if (b.digits == 0 || (n >= -exact && n <= exact)) return TTPU_OK;
  size_t length = strlen(warning);
  snprintf(warning + length, ATEN_WARNING - length,
           "%s%s is out of bounds [-2^%d, 2^%d]: %s holds only some integers there", length ? "; " : "", what, b.digits,
           b.digits, base_dtypes[t].name);
  return TTPU_OK;
}

/* random_(from, to), random_(to), and random_(from) to the dtype's largest. */
static ttpu_status check_integers(const aten_call *call, char *warning) {
  ttpu_dtype t = (ttpu_dtype)call->tensors[0].dtype;
  bool has_from = call->row->lower == lower_random_from, has_to = aten_call_has(call, has_from ? 2 : 1);
  int64_t from = has_from ? aten_call_int(call, 1, 0) : 0;
  int64_t to = aten_call_int(call, has_from ? 2 : 1, bounds_of(t).high);
  if (!has_to && from == INT64_MIN) return TTPU_OK; /* all 64 bits */
  if (has_to ? from >= to : from > to)
    return base_fail(TTPU_INVALID_ARGUMENT, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                     (long long)from, (long long)to);
  BASE_TRY(check_bound(t, "from", from, warning));
  return has_to ? check_bound(t, "to - 1", to - 1, warning) : TTPU_OK;
}

/* randperm(n) into a dtype that has to hold the numbers up to n. */
static ttpu_status check_permutation(const aten_call *call, const aten_tensor *out) {
  ttpu_dtype t = (ttpu_dtype)out->dtype;
  bounds b = bounds_of(t);
  int64_t n = aten_call_int(call, 0, 0), exact = (int64_t)1 << b.digits;
  if (n - 1 > b.high)
    return base_fail(TTPU_INVALID_ARGUMENT, "n=%lld is too large for result tensor type %s", (long long)n,
                     base_dtypes[t].name);
  if (b.digits == 0 || t == TTPU_BF16 || n <= exact + 1) return TTPU_OK; /* of bf16 the CPU asks nothing */
  return base_fail(TTPU_INVALID_ARGUMENT, "n cannot be greater than 2^%d+1 for %s", b.digits, base_dtypes[t].name);
}

/* A distribution's dtypes, where the CPU has no kernel for others. */
static ttpu_status check_dtype(const aten_call *call) {
  enum { WHOLE = 1, FLOAT = 2, COMPLEX = 4 };
  static const struct {
    aten_lower_fn lower;
    int classes;
    ttpu_status refusal;
  } kernels[] = {
      {lower_random_, WHOLE | FLOAT, TTPU_UNIMPLEMENTED},
      {lower_random_to, WHOLE | FLOAT, TTPU_INVALID_ARGUMENT},
      {lower_random_from, WHOLE | FLOAT, TTPU_INVALID_ARGUMENT},
      {lower_bernoulli_number, WHOLE | FLOAT, TTPU_UNIMPLEMENTED},
      {lower_geometric_, WHOLE | FLOAT, TTPU_UNIMPLEMENTED},
      {lower_uniform_, FLOAT | COMPLEX, TTPU_UNIMPLEMENTED},
      {lower_normal_, FLOAT | COMPLEX, TTPU_UNIMPLEMENTED},
      {lower_log_normal_, FLOAT, TTPU_UNIMPLEMENTED},
      {lower_exponential_, FLOAT, TTPU_INVALID_ARGUMENT},
      {lower_cauchy_, FLOAT, TTPU_INVALID_ARGUMENT},
  };
  if (call->tensor_count == 0) return TTPU_OK;
  ttpu_dtype t = (ttpu_dtype)call->tensors[0].dtype;
  int class = base_dtype_is_complex(t) ? COMPLEX : base_dtype_is_float(t) ? FLOAT : WHOLE;
  for (uint32_t i = 0; i < sizeof kernels / sizeof *kernels; ++i)
    if (kernels[i].lower == call->row->lower && !(kernels[i].classes & class))
      return base_fail(kernels[i].refusal, "%s: not implemented for %s", call->row->name, base_dtypes[t].name);
  return TTPU_OK;
}

ttpu_status aten_random_check(const aten_call *call, const aten_tensor *outs, char *warning) {
  aten_lower_fn lower = call->row->lower;
  warning[0] = 0;
  BASE_TRY(check_dtype(call));
  if (lower == lower_uniform_) return check_uniform(call);
  if (lower == lower_randperm) return check_permutation(call, &outs[0]);
  if (lower == lower_random_to || lower == lower_random_from) return check_integers(call, warning);
  /* Those with one number that counts. NaN is in no range. */
  static const struct {
    aten_lower_fn lower;
    uint32_t arg;
    double low, high;
    bool open_low, open_high;
    const char *what;
  } ranges[] = {
      {lower_bernoulli_number, 1, 0, 1, false, false, "bernoulli_ expects p to be in [0, 1], but got p="},
      {lower_native_dropout, 1, 0, 1, false, false, "dropout probability has to be between 0 and 1, but got "},
      {lower_normal_, 2, 0, INFINITY, false, false, "normal expects std >= 0.0, but found std "},
      {lower_normal_tensor_float, 1, 0, INFINITY, false, false, "normal expects std >= 0.0, but found std "},
      {lower_log_normal_, 2, 0, INFINITY, true, false, "log_normal_ expects std > 0.0, but found std="},
      {lower_exponential_, 1, 0, INFINITY, true, false, "exponential_ expects lambda > 0.0, but found lambda="},
      {lower_geometric_, 1, 0, 1, true, true, "geometric_ expects p to be in (0, 1), but got p="},
      {lower_cauchy_, 2, 0, INFINITY, true, false, "cauchy_ expects sigma > 0.0, but found sigma="},
  };
  for (uint32_t i = 0; i < sizeof ranges / sizeof *ranges; ++i) {
    if (ranges[i].lower != lower) continue;
    double x = aten_call_real(call, ranges[i].arg, 1);
    bool above = ranges[i].open_low ? x > ranges[i].low : x >= ranges[i].low;
    bool below = ranges[i].open_high ? x < ranges[i].high : x <= ranges[i].high;
    return above && below ? TTPU_OK : base_fail(TTPU_INVALID_ARGUMENT, "%s%g", ranges[i].what, x);
  }
  return TTPU_OK;
}
