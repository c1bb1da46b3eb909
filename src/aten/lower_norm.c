/* Normalisations. Statistics are f32 (or f64) whatever the input, the variance from centred values in a second pass,
 * and the reciprocal standard deviation is 1 / sqrt, not an approximation, since there are few of them. */
#include "aten/nn_int.h"

#include <float.h>
#include <math.h>

/* 1 / sqrt(v + eps), eps a float argument. */
static ir_value reciprocal_deviation(aten_lowering *c, ir_value variance, uint32_t eps) {
  ir_value d = ir_sqrt(c->b, ir_add(c->b, variance, nn_number(c, eps, variance)));
  return ir_divide(c->b, nn_const(c, d, 1), d);
}

static ir_value mean_of(aten_lowering *c, ir_value x, uint32_t count, const int64_t *dims) {
  ir_type t = nn_type(c, x);
  double n = 1;
  for (uint32_t i = 0; i < count; ++i) n *= (double)t.dims[dims[i]];
  ir_value sum = nn_reduce(c, IR_ADD, x, count, dims, true);
  return ir_divide(c->b, sum, nn_const(c, sum, n));
}

/* Mean and variance (biased) over dims, both keeping them. *centred, if wanted: x - mean. */
static void moments(aten_lowering *c, ir_value x, uint32_t count, const int64_t *dims, ir_value *mean,
                    ir_value *variance, ir_value *centred) {
  *mean = mean_of(c, x, count, dims);
  *centred = nn_sub(c, x, *mean);
  *variance = mean_of(c, ir_multiply(c->b, *centred, *centred), count, dims);
}

/* Result i in its own sizes, elements in order. */
static void out_in_order(aten_lowering *c, uint32_t i, ir_value v) {
  aten_out(c, i, ir_reshape(c->b, v, c->outs[i].rank, c->outs[i].sizes));
}

/* y * weight + bias, without those that are 0. */
static ir_value affine(aten_lowering *c, ir_value y, ir_value weight, ir_value bias) {
  if (weight) y = nn_mul(c, y, weight);
  return bias ? nn_add(c, y, bias) : y;
}

/* ---- layer norm and RMS norm ---------------------------------------------------------------------- */

/* The last `normalized` dims joined: [rows, row]. */
static ir_value as_rows(aten_lowering *c, ir_value x, uint32_t normalized) {
  ir_type t = nn_type(c, x);
  uint32_t lead = t.rank > normalized ? t.rank - normalized : 0;
  return nn_reshape2(c, x, base_numel(lead, t.dims), base_numel(t.rank - lead, t.dims + lead));
}

static const int64_t row_dim = 1, rows_dim = 0;

/* An optional weight or bias argument as one row, else 0. */
static ir_value row_in(aten_lowering *c, uint32_t arg, ttpu_dtype dtype) {
  return aten_has(c, arg) ? nn_flatten(c, nn_in_as(c, arg, dtype)) : 0;
}

void lower_layer_norm(aten_lowering *c) { /* input, normalized_shape, weight?, bias?, eps */
  ir_value x = as_rows(c, nn_in(c, 0), aten_ints(c, 1).count), mean, variance, centred;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  moments(c, x, 1, &row_dim, &mean, &variance, &centred);
  ir_value rstd = reciprocal_deviation(c, variance, 4);
  out_in_order(c, 0, affine(c, nn_mul(c, centred, rstd), row_in(c, 2, t), row_in(c, 3, t)));
  out_in_order(c, 1, mean);
  out_in_order(c, 2, rstd);
}

void lower_layer_norm_backward(aten_lowering *c) { /* grad, input, shape, mean, rstd, weight?, bias?, mask */
  uint32_t normalized = aten_ints(c, 2).count;
  ir_value x = as_rows(c, nn_in(c, 1), normalized);
  ir_type t = nn_type(c, x);
  ir_value g = as_rows(c, nn_in_as(c, 0, (ttpu_dtype)t.dtype), normalized);
  ir_value mean = nn_reshape2(c, nn_in_as(c, 3, (ttpu_dtype)t.dtype), t.dims[0], 1);
  ir_value rstd = nn_reshape2(c, nn_in_as(c, 4, (ttpu_dtype)t.dtype), t.dims[0], 1);
  ir_value normal = nn_mul(c, nn_sub(c, x, mean), rstd);
  if (nn_mask_at(c, 7, 0)) {
    ir_value weight = row_in(c, 5, (ttpu_dtype)t.dtype), gw = weight ? nn_mul(c, g, weight) : g;
    ir_value slope = mean_of(c, ir_multiply(c->b, gw, normal), 1, &row_dim);
    ir_value dx = nn_sub(c, nn_sub(c, gw, mean_of(c, gw, 1, &row_dim)), nn_mul(c, normal, slope));
    out_in_order(c, 0, nn_mul(c, dx, rstd));
  }
  if (nn_mask_at(c, 7, 1)) out_in_order(c, 1, nn_reduce(c, IR_ADD, ir_multiply(c->b, g, normal), 1, &rows_dim, false));
  if (nn_mask_at(c, 7, 2)) out_in_order(c, 2, nn_reduce(c, IR_ADD, g, 1, &rows_dim, false));
  nn_out_rest(c);
}

void lower_rms_norm(aten_lowering *c) { /* input, normalized_shape, weight?, eps? */
  ir_value x = as_rows(c, nn_in(c, 0), aten_ints(c, 1).count);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value square = mean_of(c, ir_multiply(c->b, x, x), 1, &row_dim);
  double epsilon =
      t == TTPU_F64 || t == TTPU_C128 ? DBL_EPSILON : FLT_EPSILON; /* of the math dtype, when none is given */
  ir_value eps = aten_has(c, 3) ? nn_number(c, 3, square) : nn_const(c, square, epsilon);
  ir_value deviation = ir_sqrt(c->b, ir_add(c->b, square, eps));
  ir_value rstd = ir_divide(c->b, nn_const(c, deviation, 1), deviation);
  out_in_order(c, 0, affine(c, nn_mul(c, x, rstd), row_in(c, 2, t), 0));
  out_in_order(c, 1, rstd);
}

void lower_rms_norm_backward(aten_lowering *c) { /* grad, input, normalized_shape, rstd, weight?, mask */
  uint32_t normalized = aten_ints(c, 2).count;
  ir_value x = as_rows(c, nn_in(c, 1), normalized);
  ir_type t = nn_type(c, x);
  ir_value g = as_rows(c, nn_in_as(c, 0, (ttpu_dtype)t.dtype), normalized);
  ir_value rstd = nn_reshape2(c, nn_in_as(c, 3, (ttpu_dtype)t.dtype), t.dims[0], 1);
  ir_value normal = nn_mul(c, x, rstd);
  if (nn_mask_at(c, 5, 0)) {
    ir_value weight = row_in(c, 4, (ttpu_dtype)t.dtype), gw = weight ? nn_mul(c, g, weight) : g;
    ir_value slope = mean_of(c, ir_multiply(c->b, gw, normal), 1, &row_dim);
    out_in_order(c, 0, nn_mul(c, nn_sub(c, gw, nn_mul(c, normal, slope)), rstd));
  }
  if (nn_mask_at(c, 5, 1)) out_in_order(c, 1, nn_reduce(c, IR_ADD, ir_multiply(c->b, g, normal), 1, &rows_dim, false));
  nn_out_rest(c);
}

/* ---- group norm ------------------------------------------------------------------------------------ */

/* Arguments N, C, HxW, group from `first`. x as [N * group, C / group, HxW]. */
typedef struct groups {
  int64_t n, channels, area, group;
} groups;

static groups groups_of(aten_lowering *c, uint32_t first) {
  groups g = {aten_int(c, first), aten_int(c, first + 1), aten_int(c, first + 2), aten_int(c, first + 3)};
  if (g.group < 1) g.group = 1;
  return g;
}

static ir_value by_group(aten_lowering *c, ir_value x, groups g) {
  return nn_reshape3(c, x, g.n * g.group, g.channels / g.group, g.area);
}

/* A per-channel argument as [N * group, C / group, 1], else 0. */
static ir_value channels_by_group(aten_lowering *c, uint32_t arg, ttpu_dtype dtype, groups g) {
  if (!aten_has(c, arg)) return 0;
  ir_value v = ir_broadcast_to(c->b, nn_flatten(c, nn_in_as(c, arg, dtype)), 2, (int64_t[]){g.n, g.channels});
  return nn_reshape3(c, v, g.n * g.group, g.channels / g.group, 1);
}

static const int64_t group_dims[2] = {1, 2};

void lower_group_norm(aten_lowering *c) { /* input, weight?, bias?, N, C, HxW, group, eps */
  groups g = groups_of(c, 3);
  ir_value x = by_group(c, nn_in(c, 0), g), mean, variance, centred;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  moments(c, x, 2, group_dims, &mean, &variance, &centred);
  ir_value rstd = reciprocal_deviation(c, variance, 7), weight = channels_by_group(c, 1, t, g);
  out_in_order(c, 0, affine(c, nn_mul(c, centred, rstd), weight, channels_by_group(c, 2, t, g)));
  out_in_order(c, 1, mean);
  out_in_order(c, 2, rstd);
}

void lower_group_norm_backward(aten_lowering *c) { /* grad, input, mean, rstd, weight?, N, C, HxW, group, mask */
  groups s = groups_of(c, 5);
  ir_value x = by_group(c, nn_in(c, 1), s);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value g = by_group(c, nn_in_as(c, 0, t), s);
  ir_value mean = nn_reshape3(c, nn_in_as(c, 2, t), s.n * s.group, 1, 1);
  ir_value rstd = nn_reshape3(c, nn_in_as(c, 3, t), s.n * s.group, 1, 1);
  ir_value normal = nn_mul(c, nn_sub(c, x, mean), rstd);
  if (nn_mask_at(c, 9, 0)) {
    ir_value weight = channels_by_group(c, 4, t, s), gw = weight ? nn_mul(c, g, weight) : g;
    ir_value slope = mean_of(c, ir_multiply(c->b, gw, normal), 2, group_dims);
    ir_value dx = nn_sub(c, nn_sub(c, gw, mean_of(c, gw, 2, group_dims)), nn_mul(c, normal, slope));
    out_in_order(c, 0, nn_mul(c, dx, rstd));
  }
  if (nn_mask_at(c, 9, 1))
    out_in_order(c, 1, nn_sum_to_dim(c, nn_reshape3(c, ir_multiply(c->b, g, normal), s.n, s.channels, s.area), 1));
  if (nn_mask_at(c, 9, 2)) out_in_order(c, 2, nn_sum_to_dim(c, nn_reshape3(c, g, s.n, s.channels, s.area), 1));
  nn_out_rest(c);
}

/* ---- batch norm ------------------------------------------------------------------------------------- */

/* Everything but the channel, dimension 1. */
static uint32_t batch_dims(aten_lowering *c, ir_value x, int64_t dims[TTPU_MAX_RANK]) {
  uint32_t count = 0, rank = nn_type(c, x).rank;
  for (uint32_t i = 0; i < rank; ++i)
    if (i != 1) dims[count++] = i;
  return count;
}

/* A vector of channels with x's rank: [1, C, 1, ..]. */
static ir_value channels(aten_lowering *c, ir_value v, ir_value x) {
  ir_type t = nn_type(c, x);
  int64_t dims[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) dims[i] = i == 1 ? t.dims[1] : 1;
  return ir_reshape(c->b, v, t.rank, dims);
}

static ir_value channels_in(aten_lowering *c, uint32_t arg, ttpu_dtype dtype, ir_value x) {
  return aten_has(c, arg) ? channels(c, nn_in_as(c, arg, dtype), x) : 0;
}

/* old * (1 - momentum) + now * momentum, as result i. */
static void update_running(aten_lowering *c, uint32_t i, uint32_t arg, ir_value now, uint32_t momentum) {
  if (!aten_has(c, arg)) return;
  ir_value old = nn_in(c, arg);
  now = ir_reshape(c->b, ir_convert(c->b, now, (ttpu_dtype)nn_type(c, old).dtype), nn_type(c, old).rank,
                   nn_type(c, old).dims);
  ir_value m = nn_number(c, momentum, old);
  ir_value keep = ir_subtract(c->b, nn_const(c, m, 1), m);
  aten_out(c, i, ir_add(c->b, ir_multiply(c->b, keep, old), ir_multiply(c->b, m, now)));
}

/* The variance that running statistics keep: its divisor is one less than the number of elements. */
static ir_value unbiased(aten_lowering *c, ir_value x, ir_value variance) {
  int64_t channel_count = nn_type(c, x).dims[1], n = channel_count ? ir_numel(nn_type(c, x)) / channel_count : 0;
  variance = nn_mul_f64(c, variance, (double)n);
  return ir_divide(c->b, variance, nn_const(c, variance, (double)(n - 1)));
}

/* Where batch norm's arguments and results are; 0: it has none (input is argument 0). */
typedef struct batch_norm_form {
  uint32_t running, momentum; /* running_var and eps follow */
  uint32_t running_out;       /* results: running_mean's, running_var's */
  bool training;
} batch_norm_form;

static void save_statistics(aten_lowering *c, ir_value mean, ir_value rstd) {
  if (base_numel(c->outs[1].rank, c->outs[1].sizes) == 0) { /* CPU saves nothing in evaluation */
    aten_out(c, 1, nn_zeros_out(c, 1, (ttpu_dtype)c->outs[1].dtype));
    aten_out(c, 2, nn_zeros_out(c, 2, (ttpu_dtype)c->outs[2].dtype));
    return;
  }
  out_in_order(c, 1, mean);
  out_in_order(c, 2, rstd);
}

static void batch_norm(aten_lowering *c, batch_norm_form f) {
  ir_value x = nn_in(c, 0), mean, variance, centred;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = batch_dims(c, x, dims);
  if (f.training) {
    moments(c, x, count, dims, &mean, &variance, &centred);
  } else {
    mean = channels_in(c, f.running, t, x);
    variance = channels_in(c, f.running + 1, t, x);
    centred = nn_sub(c, x, mean);
  }
  ir_value rstd = reciprocal_deviation(c, variance, f.momentum + 1), weight = channels_in(c, 1, t, x);
  aten_out(c, 0, affine(c, nn_mul(c, centred, rstd), weight, channels_in(c, 2, t, x)));
  save_statistics(c, mean, rstd);
  if (!f.running_out) return;
  if (f.training) {
    update_running(c, f.running_out, f.running, mean, f.momentum);
    update_running(c, f.running_out + 1, f.running + 1, unbiased(c, x, variance), f.momentum);
  } else {
    for (uint32_t i = 0; i < 2; ++i)
      if (aten_has(c, f.running + i)) aten_out(c, f.running_out + i, aten_in(c, f.running + i));
  }
}

/* input, weight?, bias?, running_mean?, running_var?, training, momentum, eps; running statistics are results 3, 4 */
void lower_batch_norm(aten_lowering *c) {
  batch_norm(c, (batch_norm_form){.running = 3, .momentum = 6, .running_out = 3, .training = aten_int(c, 5)});
}

void lower_batch_norm_no_stats(aten_lowering *c) { /* input, weight?, bias?, training, momentum, eps */
  batch_norm(c, (batch_norm_form){.momentum = 4, .training = true});
}

void lower_batch_norm_no_training(
    aten_lowering *c) { /* input, weight?, bias?, running_mean, running_var, momentum, eps */
  batch_norm(c, (batch_norm_form){.running = 3, .momentum = 5});
}

static void reserve_out(aten_lowering *c) { aten_out(c, 3, nn_zeros_out(c, 3, (ttpu_dtype)c->outs[3].dtype)); }

void lower_batch_norm_with_update(
    aten_lowering *c) { /* as no_training; results: .., reserve, running_mean, running_var */
  batch_norm(c, (batch_norm_form){.running = 3, .momentum = 5, .running_out = 4, .training = true});
  reserve_out(c);
}

void lower_batch_norm_no_update(aten_lowering *c) {
  batch_norm(c, (batch_norm_form){.running = 3, .momentum = 5, .training = !aten_has(c, 3)});
  reserve_out(c);
}

/* input, running_mean?, running_var? (both written), momentum; results: mean, variance, the running ones */
void lower_batch_norm_update_stats(aten_lowering *c) {
  ir_value x = nn_in(c, 0), mean, variance, centred;
  int64_t dims[TTPU_MAX_RANK];
  moments(c, x, batch_dims(c, x, dims), dims, &mean, &variance, &centred);
  out_in_order(c, 0, mean);
  out_in_order(c, 1, variance);
  update_running(c, 2, 1, mean, 3);
  update_running(c, 3, 2, unbiased(c, x, variance), 3);
}

/* grad, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps, mask */
void lower_batch_norm_backward(aten_lowering *c) {
  ir_value x = nn_in(c, 1), mean, rstd;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value g = nn_in_as(c, 0, t);
  bool train = aten_int(c, 7);
  if (train) {
    mean = channels_in(c, 5, t, x);
    rstd = channels_in(c, 6, t, x);
  } else {
    mean = channels_in(c, 3, t, x);
    rstd = reciprocal_deviation(c, channels_in(c, 4, t, x), 8);
  }
  ir_value normal = nn_mul(c, nn_sub(c, x, mean), rstd);
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = batch_dims(c, x, dims);
  if (nn_mask_at(c, 9, 0)) {
    ir_value dx = g, scale = channels_in(c, 2, t, x);
    if (train) {
      ir_value slope = mean_of(c, ir_multiply(c->b, g, normal), count, dims);
      dx = nn_sub(c, nn_sub(c, g, mean_of(c, g, count, dims)), nn_mul(c, normal, slope));
    }
    dx = nn_mul(c, dx, rstd);
    aten_out(c, 0, scale ? nn_mul(c, dx, scale) : dx);
  }
  if (nn_mask_at(c, 9, 1)) out_in_order(c, 1, nn_sum_to_dim(c, ir_multiply(c->b, g, normal), 1));
  if (nn_mask_at(c, 9, 2)) out_in_order(c, 2, nn_sum_to_dim(c, g, 1));
  nn_out_rest(c);
}

/* ---- batch norm over several processes ---------------------------------------------------------------- */

/* What SyncBatchNorm calls between its collectives. Statistics are vectors of channels in the dtype that is computed in. */

void lower_batch_norm_stats(aten_lowering *c) { /* input, eps; results: mean, 1 / deviation */
  ir_value x = nn_in(c, 0), mean, variance, centred;
  int64_t dims[TTPU_MAX_RANK];
  moments(c, x, batch_dims(c, x, dims), dims, &mean, &variance, &centred);
  out_in_order(c, 0, mean);
  out_in_order(c, 1, reciprocal_deviation(c, variance, 1));
}

/* input, mean and 1 / deviation with a row a process, running_mean?, running_var? (both written), momentum, eps, counts;
 * results: mean and 1 / deviation of all examples, the running ones. counts broadcasts to the statistics. */
static void gather_stats(aten_lowering *c, ir_value counts) {
  ir_value means = nn_in(c, 1), rstds = nn_in(c, 2), all = nn_reduce_dim(c, IR_ADD, counts, 0, true);
  ir_value mean = nn_div(c, nn_reduce_dim(c, IR_ADD, nn_mul(c, counts, means), 0, true), all);
  ir_value variances = ir_divide(c->b, nn_const(c, rstds, 1), ir_multiply(c->b, rstds, rstds));
  variances = ir_subtract(c->b, variances, nn_number(c, 6, variances));
  ir_value apart = nn_sub(c, means, mean);
  ir_value squares = nn_mul(c, counts, ir_add(c->b, variances, ir_multiply(c->b, apart, apart)));
  squares = nn_reduce_dim(c, IR_ADD, squares, 0, true);
  out_in_order(c, 0, mean);
  out_in_order(c, 1, reciprocal_deviation(c, nn_div(c, squares, all), 6));
  update_running(c, 2, 3, mean, 5);
  update_running(c, 3, 4, nn_div(c, squares, nn_add_f64(c, all, -1)), 5);
}

void lower_batch_norm_gather_stats(aten_lowering *c) { /* counts: of every process the same number */
  gather_stats(c, nn_const(c, nn_in(c, 1), (double)aten_int(c, 7)));
}

void lower_batch_norm_gather_stats_with_counts(aten_lowering *c) { /* counts: a vector */
  ir_type t = nn_type(c, nn_in(c, 1));
  gather_stats(c, nn_reshape2(c, nn_in_as(c, 7, (ttpu_dtype)t.dtype), t.dims[0], 1));
}

void lower_batch_norm_elemt(aten_lowering *c) { /* input, weight?, bias?, mean, 1 / deviation, eps */
  ir_value x = nn_in(c, 0);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value y = nn_mul(c, nn_sub(c, x, channels_in(c, 3, t, x)), channels_in(c, 4, t, x));
  aten_out(c, 0, affine(c, y, channels_in(c, 1, t, x), channels_in(c, 2, t, x)));
}

/* grad, input, mean, 1 / deviation, weight?, whether to give the sums for the input's, the weight's and the bias's
 * gradient; results: sum of grad, sum of grad * (input - mean), the weight's and the bias's gradient */
void lower_batch_norm_backward_reduce(aten_lowering *c) {
  ir_value x = nn_in(c, 1);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value g = nn_in_as(c, 0, t), sum = nn_sum_to_dim(c, g, 1);
  ir_value product = nn_sum_to_dim(c, nn_mul(c, g, nn_sub(c, x, channels_in(c, 2, t, x))), 1);
  if (aten_int(c, 5)) {
    out_in_order(c, 0, sum);
    out_in_order(c, 1, product);
  }
  if (aten_int(c, 6)) out_in_order(c, 2, nn_mul(c, product, nn_flatten(c, nn_in_as(c, 3, t))));
  if (aten_int(c, 7)) out_in_order(c, 3, sum);
}

/* grad, input, mean, 1 / deviation, weight?, the two sums over all processes, counts */
void lower_batch_norm_backward_elemt(aten_lowering *c) {
  ir_value x = nn_in(c, 1);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value g = nn_in_as(c, 0, t), rstd = channels_in(c, 3, t, x), weight = channels_in(c, 4, t, x);
  ir_value all = nn_reduce_dim(c, IR_ADD, nn_flatten(c, nn_in_as(c, 7, t)), 0, false);
  ir_value sum = nn_div(c, channels_in(c, 5, t, x), all), product = nn_div(c, channels_in(c, 6, t, x), all);
  ir_value slope = ir_multiply(c->b, ir_multiply(c->b, rstd, rstd), product);
  ir_value dx = nn_sub(c, nn_sub(c, g, sum), nn_mul(c, nn_sub(c, x, channels_in(c, 2, t, x)), slope));
  aten_out(c, 0, affine(c, nn_mul(c, dx, rstd), weight, 0));
}
