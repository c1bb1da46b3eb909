/* Distances between all pairs of rows: cdist and pdist, and their gradients. Differences are taken before squares, which loses
 * nothing where points are near each other. p is static. */
#include "aten/nn_int.h"

#include <math.h>

/* x [B, P, M] and y [B, R, M] as differences [B, P, R, M]. */
static ir_value differences(aten_lowering *c, ir_value x, ir_value y) {
  ir_type a = nn_type(c, x), b = nn_type(c, y);
  if (x == 0 || y == 0) return 0;
  int64_t dims[4] = {a.dims[0], a.dims[1], b.dims[1], a.dims[2]};
  return ir_subtract(c->b, ir_broadcast_in_dim(c->b, x, 4, dims, (int64_t[]){0, 1, 3}),
                     ir_broadcast_in_dim(c->b, y, 4, dims, (int64_t[]){0, 2, 3}));
}

/* The p-norm over the last dim. */
static ir_value norm_last(aten_lowering *c, ir_value d, double p) {
  if (d == 0) return 0;
  uint32_t last = nn_type(c, d).rank - 1u;
  ir_value size = ir_abs(c->b, d);
  if (p == 0)
    return nn_reduce_dim(c, IR_ADD, ir_convert(c->b, nn_compare_f64(c, IR_NE, d, 0), (ttpu_dtype)nn_type(c, d).dtype),
                         last, false);
  if (p == 1) return nn_reduce_dim(c, IR_ADD, size, last, false);
  if (p == 2) return ir_sqrt(c->b, nn_reduce_dim(c, IR_ADD, ir_multiply(c->b, d, d), last, false));
  if (p == INFINITY) {
    if (nn_type(c, d).dims[last] == 0) return nn_reduce_dim(c, IR_ADD, size, last, false);
    return nn_reduce_dim(c, IR_MAXIMUM, size, last, false);
  }
  ir_value sum = nn_reduce_dim(c, IR_ADD, ir_power(c->b, size, nn_const(c, size, p)), last, false);
  return ir_power(c->b, sum, nn_const(c, sum, 1 / p));
}

/* An operand [.., rows, M] as [batch, rows, M], its batch broadcast to the result's. */
static ir_value rows_in(aten_lowering *c, uint32_t arg, uint32_t rank, const int64_t *batch) {
  ir_value x = nn_in(c, arg);
  ir_type t = nn_type(c, x);
  int64_t dims[TTPU_MAX_RANK];
  if (x == 0) return 0;
  for (uint32_t i = 0; i + 2 < rank; ++i) dims[i] = batch[i];
  for (uint32_t i = 0; i < 2; ++i) dims[rank - 2 + i] = t.dims[t.rank - 2 + i];
  x = ir_broadcast_to(c->b, x, rank, dims);
  return nn_reshape3(c, x, base_numel(rank - 2, batch), dims[rank - 2], dims[rank - 1]);
}

void lower_cdist(aten_lowering *c) { /* x1, x2, p, compute_mode? */
  const aten_tensor *out = &c->outs[0];
  ir_value d = differences(c, rows_in(c, 0, out->rank, out->sizes), rows_in(c, 1, out->rank, out->sizes));
  aten_out(c, 0, ir_reshape(c->b, norm_last(c, d, aten_static(c, 2)), out->rank, out->sizes));
}

/* The derivative of |d| by d times g, for differences d [B, P, R, M], their norms and g [B, P, R]. */
static ir_value norm_slope(aten_lowering *c, ir_value d, ir_value distance, ir_value g, double p) {
  if (d == 0) return 0;
  ir_type t = nn_type(c, d);
  const int64_t one_each[4] = {t.dims[0], t.dims[1], t.dims[2], 1};
  ir_value zero = nn_const(c, d, 0), slope;
  g = ir_broadcast_to(c->b, ir_reshape(c->b, g, 4, one_each), 4, t.dims);
  distance = ir_broadcast_to(c->b, ir_reshape(c->b, distance, 4, one_each), 4, t.dims);
  if (p == 0) return zero;
  if (p == 1) return ir_multiply(c->b, g, ir_sign(c->b, d));
  if (p == INFINITY) {
    ir_value largest = ir_convert(c->b, ir_compare(c->b, IR_EQ, ir_abs(c->b, d), distance), (ttpu_dtype)t.dtype);
    slope = ir_multiply(c->b, ir_multiply(c->b, g, ir_sign(c->b, d)), largest);
  } else if (p == 2) {
    slope = ir_divide(c->b, ir_multiply(c->b, g, d), distance);
  } else {
    ir_value steep = ir_power(c->b, ir_abs(c->b, d), nn_const(c, d, p - 1));
    slope = ir_multiply(c->b, ir_multiply(c->b, ir_sign(c->b, d), steep),
                        ir_divide(c->b, g, ir_power(c->b, distance, nn_const(c, d, p - 1))));
    slope = ir_select(c->b, nn_compare_f64(c, IR_EQ, d, 0), zero, slope);
  }
  return ir_select(c->b, nn_compare_f64(c, IR_EQ, distance, 0), zero, slope);
}

/* grad, x1, x2, p, cdist: the gradient of x1. */
void lower_cdist_backward(aten_lowering *c) {
  const aten_tensor *out = &c->outs[0], *g_meta = aten_meta(c, 0);
  ir_value d = differences(c, rows_in(c, 1, g_meta->rank, g_meta->sizes), rows_in(c, 2, g_meta->rank, g_meta->sizes));
  if (d == 0) return;
  ir_type t = nn_type(c, d);
  ir_value slope = norm_slope(c, d, nn_in(c, 4), nn_in(c, 0), aten_static(c, 3));
  ir_value sum = nn_reduce_dim(c, IR_ADD, slope, 2, false);
  int64_t full[TTPU_MAX_RANK];
  for (uint32_t i = 0; i + 2 < g_meta->rank; ++i) full[i] = g_meta->sizes[i];
  full[g_meta->rank - 2] = t.dims[1];
  full[g_meta->rank - 1] = t.dims[3];
  aten_out(c, 0, nn_sum_to_sizes(c, ir_reshape(c->b, sum, g_meta->rank, full), out->rank, out->sizes));
}

void lower_pdist(aten_lowering *c) { /* self [N, M], p: the pairs i < j, row by row */
  int64_t n = aten_meta(c, 0)->sizes[0], m = aten_meta(c, 0)->sizes[1], pairs = n * (n - 1) / 2, at = 0;
  int64_t *i_table = nn_scratch(c, (size_t)(pairs > 0 ? pairs : 0), sizeof *i_table),
          *j_table = nn_scratch(c, (size_t)(pairs > 0 ? pairs : 0), sizeof *j_table);
  if (pairs <= 0 || m == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
    return;
  }
  if (i_table == NULL || j_table == NULL) return;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j, ++at) i_table[at] = i, j_table[at] = j;
  ir_value x = nn_in(c, 0);
  ir_value d = ir_subtract(c->b, nn_take(c, x, nn_table_i64(c, (uint32_t)pairs, i_table), 0),
                           nn_take(c, x, nn_table_i64(c, (uint32_t)pairs, j_table), 0));
  aten_out(c, 0, norm_last(c, d, aten_static(c, 1)));
}

/* A value for each pair i < j, as a symmetric matrix [1, N, N] with zeros on its diagonal. */
static ir_value matrix_of_pairs(aten_lowering *c, ir_value pairs, int64_t n) {
  int64_t *where = nn_scratch(c, (size_t)(n * n), sizeof *where), at = 0, none = n * (n - 1) / 2;
  if (where == NULL) return 0;
  for (int64_t i = 0; i < n; ++i) {
    where[i * n + i] = none;
    for (int64_t j = i + 1; j < n; ++j, ++at) where[i * n + j] = where[j * n + i] = at;
  }
  ir_value zero = ir_scalar_i64(c->b, (ttpu_dtype)nn_type(c, pairs).dtype, 0);
  pairs = nn_pad_dim(c, pairs, 0, zero, 0, 1, 0);
  return nn_reshape3(c, ir_take(c->b, pairs, nn_table_i64(c, (uint32_t)(n * n), where), 0), 1, n, n);
}

void lower_pdist_backward(aten_lowering *c) { /* grad [pairs], self [N, M], p, pdist [pairs] */
  int64_t n = aten_meta(c, 1)->sizes[0], m = aten_meta(c, 1)->sizes[1];
  if (n < 2 || m == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
    return;
  }
  ir_value x = nn_reshape3(c, nn_in(c, 1), 1, n, m);
  ir_value g = matrix_of_pairs(c, nn_in(c, 0), n), distance = matrix_of_pairs(c, nn_in(c, 3), n);
  ir_value slope = norm_slope(c, differences(c, x, x), distance, g, aten_static(c, 2));
  aten_out(c, 0, nn_reshape2(c, nn_reduce_dim(c, IR_ADD, slope, 2, false), n, m));
}
