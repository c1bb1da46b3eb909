/* embedding_bag: rows of a table, looked up and summed, averaged or maximised over bags. indices [N] are cut into bags
 * by offsets [B]; a row of padding_idx counts nowhere. */
#include "aten/nn_int.h"

#include <math.h>

enum { MODE_SUM, MODE_MEAN, MODE_MAX };

typedef struct bags {
  int64_t n, count, rows, width; /* indices, bags, table rows, row length */
  ttpu_dtype math;
  ir_value index;   /* [N] i64, checked */
  ir_value bag;     /* [N] i64 */
  ir_value counted; /* [N] bool: no padding; 0 when there is none */
} bags;

/* How many offsets are at most i, less one: the bag of index i. A comparison of all pairs would be N x B. */
static ir_value bags_from_offsets(aten_lowering *c, ir_value offsets, int64_t n, int64_t count) {
  ir_value marks = ir_fill_i64(c->b, TTPU_I64, 1, (int64_t[]){n + 1}, 0);
  ir_value at = nn_index(c, offsets, n + 1, false, IR_BAD_VALUE, "embedding_bag: offsets out of range");
  marks = nn_index_update(c, marks, at, ir_fill_i64(c->b, TTPU_I64, 1, &count, 1), 0, IR_ADD);
  ir_value before = nn_cumsum(c, ir_slice_dim(c->b, marks, 0, 0, n, 1), 0);
  return nn_add_f64(c, before, -1);
}

static void index_in(aten_lowering *c, uint32_t indices, int64_t padding, bags *b) {
  b->index = nn_index(c, nn_flatten(c, aten_in(c, indices)), b->rows, false, IR_BAD_VALUE,
                      "embedding_bag: index out of range in self");
  b->counted = padding >= 0 ? nn_compare_f64(c, IR_NE, b->index, (double)padding) : 0;
}

/* v [N, ..] with rows of padding replaced. */
static ir_value without_padding(aten_lowering *c, const bags *b, ir_value v, double by) {
  if (!b->counted) return v;
  return ir_select(c->b, nn_along(c, b->counted, 0, v), v, nn_const(c, v, by));
}

static ir_value bag_sizes(aten_lowering *c, const bags *b) {
  ir_value ones = without_padding(c, b, nn_const(c, b->index, 1), 0);
  return nn_index_update(c, ir_fill_i64(c->b, TTPU_I64, 1, &b->count, 0), b->bag, ones, 0, IR_ADD);
}

/* [B] as [B, 1] in the math dtype, at least 1. */
static ir_value divisor(aten_lowering *c, const bags *b, ir_value sizes) {
  return nn_reshape2(c, ir_convert(c->b, ir_maximum(c->b, sizes, nn_const(c, sizes, 1)), b->math), b->count, 1);
}

/* A result that Meta may have given no elements, or more than there are (an offset too many). */
static void out_or_zeros(aten_lowering *c, uint32_t i, ir_value v) {
  const aten_tensor *out = &c->outs[i];
  ir_type t = nn_type(c, v);
  if (v == 0 || base_numel(out->rank, out->sizes) == ir_numel(t)) {
    if (v) aten_out(c, i, ir_reshape(c->b, v, out->rank, out->sizes));
    else aten_out(c, i, nn_zeros_out(c, i, TTPU_I64));
    return;
  }
  if (out->rank == 1 && t.rank == 1 && out->sizes[0] > t.dims[0]) {
    aten_out(c, i, nn_pad_dim(c, v, 0, ir_scalar_i64(c->b, (ttpu_dtype)t.dtype, 0), 0, out->sizes[0] - t.dims[0], 0));
    return;
  }
  aten_out(c, i, nn_zeros_out(c, i, TTPU_I64));
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights?, include_last_offset, padding_idx.
 * Results: output, offset2bag, bag_size, max_indices. */
void lower_embedding_bag(aten_lowering *c) {
  const aten_tensor *weight = aten_meta(c, 0), *out = &c->outs[0];
  bags b = {.n = aten_meta(c, 1)->sizes[0],
            .count = out->sizes[0],
            .rows = weight->sizes[0],
            .width = weight->sizes[1],
            .math = aten_math_dtype((ttpu_dtype)weight->dtype)};
  int64_t mode = aten_int(c, 4);
  ir_value offsets = nn_in_as(c, 2, TTPU_I64);
  offsets = ir_slice_dim(c->b, offsets, 0, 0, b.count, 1); /* not the last one, which is N */
  index_in(c, 1, aten_int_or(c, 8, -1), &b);
  b.bag = bags_from_offsets(c, offsets, b.n, b.count);
  ir_value sizes = bag_sizes(c, &b), rows = nn_take(c, nn_in(c, 0), b.index, 0), largest = 0;
  if (mode == MODE_MAX) {
    rows = without_padding(c, &b, rows, -INFINITY);
    ir_value low = nn_broadcast_like(c, ir_lowest(c->b, b.math), ir_fill_i64(c->b, b.math, 2, out->sizes, 0));
    ir_value top = nn_index_update(c, low, b.bag, rows, 0, IR_MAXIMUM);
    /* The first index that gave the maximum. */
    ir_value hit = ir_compare(c->b, IR_EQ, rows, nn_take(c, top, b.bag, 0));
    int64_t dims[2] = {b.n, b.width};
    ir_value at = ir_select(c->b, hit, ir_iota(c->b, TTPU_I64, 2, dims, 0), ir_fill_i64(c->b, TTPU_I64, 2, dims, b.n));
    ir_value first = nn_index_update(c, ir_fill_i64(c->b, TTPU_I64, 2, out->sizes, b.n), b.bag, at, 0, IR_MINIMUM);
    ir_value some = nn_along(c, nn_compare_f64(c, IR_GT, sizes, 0), 0, top);
    first = ir_minimum(c->b, first, nn_const(c, first, (double)(b.n > 0 ? b.n - 1 : 0)));
    largest = ir_select(c->b, some, nn_take(c, b.index, first, 0), nn_const(c, first, 0));
    aten_out(c, 0, ir_select(c->b, some, top, nn_const(c, top, 0)));
  } else {
    if (aten_has(c, 6)) rows = nn_mul(c, rows, nn_reshape2(c, nn_in_as(c, 6, b.math), b.n, 1));
    rows = without_padding(c, &b, rows, 0);
    ir_value sum = nn_index_update(c, ir_fill_i64(c->b, b.math, 2, out->sizes, 0), b.bag, rows, 0, IR_ADD);
    aten_out(c, 0, mode == MODE_MEAN ? nn_div(c, sum, divisor(c, &b, sizes)) : sum);
  }
  out_or_zeros(c, 1, b.bag);
  out_or_zeros(c, 2, sizes);
  out_or_zeros(c, 3, largest);
}

/* The table's gradient from grad [B, D]. */
static void table_gradient(aten_lowering *c, bags b, int64_t mode, bool by_frequency, uint32_t weights,
                           uint32_t maximum_indices) {
  ir_value g = nn_in_as(c, 0, b.math), zeros = ir_fill_i64(c->b, b.math, 2, c->outs[0].sizes, 0);
  ir_value sizes = bag_sizes(c, &b);
  if (mode == MODE_MAX) {
    ir_value some = nn_along(c, nn_compare_f64(c, IR_GT, sizes, 0), 0, g);
    g = ir_select(c->b, some, g, nn_const(c, g, 0));
    aten_out(c, 0, nn_scatter_along(c, zeros, nn_in_as(c, maximum_indices, TTPU_I64), g, 0, IR_ADD));
    return;
  }
  if (mode == MODE_MEAN) g = nn_div(c, g, divisor(c, &b, sizes));
  ir_value rows = nn_take(c, g, b.bag, 0);
  if (aten_has(c, weights)) rows = nn_mul(c, rows, nn_reshape2(c, nn_in_as(c, weights, b.math), b.n, 1));
  if (by_frequency) {
    ir_value counts = ir_fill_i64(c->b, b.math, 1, &b.rows, 0);
    counts = nn_index_update(c, counts, b.index, ir_fill_i64(c->b, b.math, 1, &b.n, 1), 0, IR_ADD);
    rows = nn_div(c, rows, nn_reshape2(c, nn_take(c, counts, b.index, 0), b.n, 1));
  }
  aten_out(c, 0, nn_index_update(c, zeros, b.index, without_padding(c, &b, rows, 0), 0, IR_ADD));
}

static bags bags_of_gradient(aten_lowering *c, uint32_t indices, uint32_t num_weights, uint32_t padding) {
  const aten_tensor *g = aten_meta(c, 0);
  bags b = {.n = aten_meta(c, indices)->sizes[0],
            .count = g->sizes[0],
            .rows = aten_int(c, num_weights),
            .width = g->sizes[1],
            .math = aten_math_dtype((ttpu_dtype)g->dtype)};
  index_in(c, indices, aten_int_or(c, padding, -1), &b);
  return b;
}

/* offset2bag, which sums without weights leave empty; then from offsets. */
static ir_value bag_in(aten_lowering *c, const bags *b, uint32_t offset2bag, uint32_t offsets) {
  const aten_tensor *given = aten_meta(c, offset2bag);
  if (base_numel(given->rank, given->sizes) == b->n) return nn_in_as(c, offset2bag, TTPU_I64);
  return bags_from_offsets(c, ir_slice_dim(c->b, nn_in_as(c, offsets, TTPU_I64), 0, 0, b->count, 1), b->n, b->count);
}

/* grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
 * per_sample_weights?, padding_idx */
void lower_embedding_bag_backward(aten_lowering *c) {
  bags b = bags_of_gradient(c, 1, 6, 11);
  b.bag = bag_in(c, &b, 3, 2);
  table_gradient(c, b, aten_int(c, 8), aten_int(c, 7) != 0, 10, 5);
}

/* grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights?,
 * padding_idx */
void lower_embedding_bag_dense_backward(aten_lowering *c) {
  bags b = bags_of_gradient(c, 1, 5, 9);
  b.bag = nn_in_as(c, 2, TTPU_I64);
  table_gradient(c, b, aten_int(c, 7), aten_int(c, 6) != 0, 8, 4);
}

/* grad, weight, indices, offsets, offset2bag, mode, padding_idx */
void lower_embedding_bag_weights_backward(aten_lowering *c) {
  const aten_tensor *g = aten_meta(c, 0), *weight = aten_meta(c, 1);
  bags b = {.n = aten_meta(c, 2)->sizes[0],
            .count = g->sizes[0],
            .rows = weight->sizes[0],
            .width = g->sizes[1],
            .math = aten_math_dtype((ttpu_dtype)g->dtype)};
  index_in(c, 2, aten_int_or(c, 6, -1), &b);
  b.bag = bag_in(c, &b, 4, 3);
  ir_value rows = nn_take(c, nn_in_as(c, 1, b.math), b.index, 0), grads = nn_take(c, nn_in_as(c, 0, b.math), b.bag, 0);
  ir_value dots = nn_reduce_dim(c, IR_ADD, ir_multiply(c->b, rows, grads), 1, false);
  aten_out(c, 0, without_padding(c, &b, dots, 0));
}
