/* segment_reduce and its gradient: runs of one dimension, given by their lengths or by the offsets between them, reduced
 * each on its own. data [outer.., n, inner..]; lengths [outer.., count] or offsets [outer.., count + 1], which go first.
 *
 * Every position gets the row of a table [outer * (count + 1), inner] into which it is combined; the last row of each
 * block takes what belongs to no segment. */
#include "aten/nn_int.h"

#include <math.h>
#include <string.h>

typedef struct segments {
  aten_lowering *c;
  int64_t outer, n, inner, count;
  ttpu_dtype math;
  ir_value row;    /* [outer * n] i64: of the table */
  ir_value length; /* [outer, count] i64 */
} segments;

static const char bad_sum[] =
    "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.";

/* Offsets [outer, count + 1] from lengths [outer, count]. */
static ir_value offsets_of_lengths(const segments *s, ir_value lengths, bool safe) {
  aten_lowering *c = s->c;
  if (safe) {
    ir_check_not(c->b, nn_compare_f64(c, IR_LT, lengths, 0), IR_BAD_VALUE, "lengths contains negative value!");
    ir_value sums = nn_reduce_dim(c, IR_ADD, lengths, 1, false);
    ir_check_not(c->b, nn_compare_f64(c, IR_NE, sums, (double)s->n), IR_BAD_VALUE, bad_sum);
  }
  return nn_pad_dim(c, nn_cumsum(c, lengths, 1), 1, ir_scalar_i64(c->b, TTPU_I64, 0), 1, 0, 0);
}

/* The table's row of each position: how many offsets are not beyond it says which segment it is in. */
static ir_value rows_of_offsets(const segments *s, ir_value offsets) {
  aten_lowering *c = s->c;
  const int64_t marks[2] = {s->outer, s->n + 1}, all[2] = {s->outer, s->count + 1};
  offsets = nn_index(c, offsets, s->n + 1, false, IR_BAD_VALUE, "segment_reduce: a segment outside the data");
  ir_value begun = nn_scatter_along(c, ir_fill_i64(c->b, TTPU_I64, 2, marks, 0), offsets,
                                    ir_fill_i64(c->b, TTPU_I64, 2, all, 1), 1, IR_ADD);
  begun = nn_cumsum(c, ir_slice_dim(c->b, begun, 1, 0, s->n, 1), 1);
  ir_value none = nn_compare_f64(c, IR_EQ, begun, 0);
  ir_value segment = ir_select(c->b, none, nn_const(c, begun, (double)s->count), nn_add_f64(c, begun, -1));
  ir_value block = nn_mul_f64(c, aten_iota_like(c, segment, TTPU_I64, 0), (double)(s->count + 1));
  return nn_flatten(c, ir_add(c->b, segment, block));
}

/* False after a failure. */
static bool segments_in(segments *s, aten_lowering *c, const aten_tensor *data, uint32_t lengths, uint32_t offsets,
                        bool safe) {
  bool by_offsets = aten_has(c, offsets);
  const aten_tensor *given = aten_meta(c, by_offsets ? offsets : lengths);
  uint32_t axis = given->rank - 1u;
  *s = (segments){.c = c,
                  .outer = base_numel(axis, data->sizes),
                  .n = data->sizes[axis],
                  .inner = base_numel(data->rank - axis - 1, data->sizes + axis + 1),
                  .count = given->sizes[axis] - (by_offsets ? 1 : 0),
                  .math = aten_math_dtype((ttpu_dtype)data->dtype)};
  ir_value runs = nn_reshape2(c, nn_in_as(c, by_offsets ? offsets : lengths, TTPU_I64), s->outer, given->sizes[axis]);
  if (!by_offsets) runs = offsets_of_lengths(s, runs, safe);
  s->length =
      ir_subtract(c->b, ir_slice_dim(c->b, runs, 1, 1, s->count + 1, 1), ir_slice_dim(c->b, runs, 1, 0, s->count, 1));
  ir_check_not(c->b, nn_compare_f64(c, IR_LT, s->length, 0), IR_BAD_VALUE,
               "segment_reduce: expected segment_length >= 0");
  s->row = rows_of_offsets(s, runs);
  return s->row != 0;
}

/* x [outer, n, inner] combined into a table filled with `first` (rank 0). */
static ir_value combine(const segments *s, ir_kind kind, ir_value x, ir_value first) {
  aten_lowering *c = s->c;
  const int64_t table[2] = {s->outer * (s->count + 1), s->inner};
  x = nn_reshape2(c, x, s->outer * s->n, s->inner);
  return nn_index_update(c, ir_broadcast_to(c->b, first, 2, table), s->row, x, 0, kind);
}

/* How many of the positions where `mask` holds are in each position's segment. */
static ir_value count_around(const segments *s, ir_value mask) {
  aten_lowering *c = s->c;
  ir_value total = combine(s, IR_ADD, ir_convert(c->b, mask, s->math), ir_scalar_i64(c->b, s->math, 0));
  return nn_take(c, total, s->row, 0);
}

/* What each position's segment has in x [outer, count, inner or 1]; `none` for positions in no segment. */
static ir_value around(const segments *s, ir_value x, int64_t inner, double none) {
  aten_lowering *c = s->c;
  ir_value fill = ir_scalar_f64(c->b, (ttpu_dtype)nn_type(c, x).dtype, none);
  x = nn_pad_dim(c, nn_reshape3(c, x, s->outer, s->count, inner), 1, fill, 0, 1, 0);
  return nn_take(c, nn_reshape2(c, x, s->outer * (s->count + 1), inner), s->row, 0);
}

/* `initial` as the kernels take it, in the data's dtype; or what the reduction starts from without. */
static ir_value initial_in(aten_lowering *c, uint32_t arg, ttpu_dtype dtype, ttpu_dtype math, double none) {
  if (!aten_has(c, arg)) return ir_scalar_f64(c->b, math, none);
  return ir_convert(c->b, aten_number_in(c, arg, dtype), math);
}

typedef struct reduction {
  ir_kind kind;
  double first;
  bool mean;
} reduction;

static reduction reduction_of(const char *name) {
  if (strcmp(name, "max") == 0 || strcmp(name, "amax") == 0) return (reduction){IR_MAXIMUM, -INFINITY, false};
  if (strcmp(name, "min") == 0 || strcmp(name, "amin") == 0) return (reduction){IR_MINIMUM, INFINITY, false};
  if (strcmp(name, "prod") == 0) return (reduction){IR_MULTIPLY, 1, false};
  return (reduction){IR_ADD, 0, strcmp(name, "mean") == 0};
}

/* data, reduce, lengths?, indices?, offsets?, axis, unsafe, initial? */
void lower_segment_reduce(aten_lowering *c) {
  const aten_tensor *data = aten_meta(c, 0);
  reduction r = reduction_of(aten_text(c, 1));
  segments s;
  if (!segments_in(&s, c, data, 2, 4, aten_int(c, 6) == 0)) return;
  ir_value first = initial_in(c, 7, (ttpu_dtype)data->dtype, s.math, r.first);
  ir_value x = combine(&s, r.kind, nn_in(c, 0), first);
  x = ir_slice_dim(c->b, nn_reshape3(c, x, s.outer, s.count + 1, s.inner), 1, 0, s.count, 1);
  if (r.mean) {
    ir_value length = nn_reshape3(c, s.length, s.outer, s.count, 1);
    ir_value mean = nn_div(c, x, ir_convert(c->b, length, s.math));
    ir_value empty = aten_has(c, 7) ? x : nn_const(c, x, NAN);
    x = nn_select(c, nn_compare_f64(c, IR_EQ, length, 0), empty, mean);
  }
  aten_out_reshaped(c, 0, x);
}

/* To each element that is its segment's extreme (and to NaN) the segment's gradient; a positive one is shared among
 * them, a negative one is not: so do PyTorch's kernels. */
static ir_value extreme_gradient(const segments *s, ir_value g, ir_value y, ir_value x) {
  aten_lowering *c = s->c;
  ir_value chosen = ir_or_bits(c->b, nn_is_nan(c, x), ir_compare(c->b, IR_EQ, x, y)), many = count_around(s, chosen);
  g = ir_select(c->b, chosen, g, nn_const(c, g, 0));
  ir_value shared = ir_and_bits(c->b, nn_compare_f64(c, IR_GE, many, 2), nn_compare_f64(c, IR_GT, g, 0));
  return ir_select(c->b, shared, ir_divide(c->b, g, many), g);
}

/* The product of the other elements: the segment's divided by the element, unless that is 0 or NaN. Then it is the
 * product of those that are neither, times 0 or NaN if there is another such one. */
static ir_value product_gradient(const segments *s, ir_value g, ir_value y, ir_value x, ir_value first) {
  aten_lowering *c = s->c;
  ir_value one = nn_const(c, x, 1), zero = nn_compare_f64(c, IR_EQ, x, 0), nan = nn_is_nan(c, x);
  ir_value special = ir_or_bits(c->b, zero, nan);
  ir_value others = combine(s, IR_MULTIPLY, ir_select(c->b, special, one, x), first);
  others = nn_take(c, others, s->row, 0);
  ir_value zeros = ir_subtract(c->b, count_around(s, zero), ir_convert(c->b, zero, s->math));
  ir_value nans = ir_subtract(c->b, count_around(s, nan), ir_convert(c->b, nan, s->math));
  others = ir_select(c->b, nn_compare_f64(c, IR_GT, zeros, 0), nn_mul_f64(c, others, 0), others);
  others = ir_select(c->b, nn_compare_f64(c, IR_GT, nans, 0), nn_const(c, others, NAN), others);
  return ir_select(c->b, special, ir_multiply(c->b, g, others), ir_divide(c->b, ir_multiply(c->b, g, y), x));
}

/* grad, output, data, reduce, lengths?, offsets?, axis, initial? */
void lower_segment_reduce_backward(aten_lowering *c) {
  const aten_tensor *data = aten_meta(c, 2);
  reduction r = reduction_of(aten_text(c, 3));
  segments s;
  if (!segments_in(&s, c, data, 4, 5, false)) return;
  ir_value g = around(&s, nn_in(c, 0), s.inner, 0);
  if (r.mean) {
    g = nn_div(c, g, around(&s, ir_convert(c->b, s.length, s.math), 1, 1));
  } else if (r.kind != IR_ADD) {
    ir_value x = nn_reshape2(c, nn_in(c, 2), s.outer * s.n, s.inner), y = around(&s, nn_in(c, 1), s.inner, 1);
    if (r.kind == IR_MULTIPLY) g = product_gradient(&s, g, y, x, initial_in(c, 7, (ttpu_dtype)data->dtype, s.math, 1));
    else g = extreme_gradient(&s, g, y, x);
  }
  /* what is in no segment has none, whatever its value */
  ir_value inside = around(&s, ir_fill_i64(c->b, TTPU_BOOL, 3, (int64_t[]){s.outer, s.count, 1}, 1), 1, 0);
  aten_out_reshaped(c, 0, nn_select(c, inside, g, nn_const(c, g, 0)));
}
