/* Histograms. Elements outside of the bins count nowhere: their index is the number of bins, which the scatter drops. */
#include "aten/nn_int.h"

#include <math.h>

/* Refuses ends that are not finite, as the CPU does. */
static void check_range(ir_builder *b, ir_value low, ir_value high, const char *what) {
  if (!base_dtype_is_float((ttpu_dtype)ir_type_of(b->func, low).dtype)) return;
  ir_value finite = ir_and_bits(b, ir_is_finite(b, low), ir_is_finite(b, high));
  ir_check_not(b, ir_not_bits(b, finite), IR_BAD_VALUE, what);
}

/* ---- histc ----------------------------------------------------------------------------------------- */

/* Where each x lies among bins equal parts of [low, high]; the last one is closed. Integers are computed in 64 bits and
 * divided down, as PyTorch does on CUDA: Transformers counts the tokens of each expert so. */
static ir_value part_of(aten_lowering *c, ir_value x, ir_value low, ir_value high, int64_t bins) {
  ir_builder *b = c->b;
  ir_value from_low = ir_subtract(b, x, low), range = ir_subtract(b, high, low), index;
  if (base_dtype_is_float((ttpu_dtype)aten_type(c, x).dtype)) {
    ir_value part = ir_divide(b, from_low, range);
    index = ir_floor(b, ir_multiply(b, part, aten_like(c, part, (double)bins)));
  } else {
    index = ir_divide(b, ir_multiply(b, from_low, aten_like(c, from_low, (double)bins)), range);
  }
  return ir_minimum(b, index, aten_like(c, index, (double)(bins - 1)));
}

/* bins equal parts of [min, max]; min == max means the data's own. What lies outside counts nowhere: its index is bins,
 * which the scatter drops. */
void lower_histc(aten_lowering *c) {
  ir_builder *b = c->b;
  int64_t bins = aten_int(c, 1), whole = 0;
  double low_number = aten_static(c, 2), high_number = aten_static(c, 3);
  ir_value x = nn_flatten(c, aten_in_math(c, 0));
  bool whole_numbers = base_dtype_is_integer((ttpu_dtype)aten_meta(c, 0)->dtype);
  if (whole_numbers) {
    x = ir_convert(b, x, TTPU_I64);
    low_number = trunc(low_number), high_number = trunc(high_number);
  }
  ir_type t = aten_type(c, x);
  ttpu_dtype dtype = (ttpu_dtype)t.dtype, counted = whole_numbers ? (ttpu_dtype)aten_meta(c, 0)->dtype : dtype;
  ir_value low = ir_scalar_f64(b, dtype, low_number), high = ir_scalar_f64(b, dtype, high_number);
  if (low_number == high_number && ir_numel(t) > 0) {
    low = ir_reduce(b, IR_MINIMUM, x, 1, &whole);
    high = ir_reduce(b, IR_MAXIMUM, x, 1, &whole);
    check_range(b, low, high, "torch.histc: the range of the elements is not finite");
  }
  ir_value same = ir_compare(b, IR_EQ, low, high), one = aten_like(c, low, 1);
  low = aten_spread(c, ir_select(b, same, ir_subtract(b, low, one), low), x);
  high = aten_spread(c, ir_select(b, same, ir_add(b, high, one), high), x);
  ir_value inside = ir_and_bits(b, ir_compare(b, IR_GE, x, low), ir_compare(b, IR_LE, x, high));
  ir_value index = part_of(c, x, low, high, bins);
  index = ir_convert(b, ir_select(b, inside, index, aten_like(c, index, (double)bins)), TTPU_I64);
  const int64_t column[2] = {ir_numel(t), 1};
  const int64_t zero = 0;
  const ir_scatter_attrs attrs = {
      .inserted_window_dims = {&zero, 1}, .scatter_dims_to_operand_dims = {&zero, 1}, .index_vector_dim = 1};
  ir_value empty = ir_fill_f64(b, counted, 1, &bins, 0), ones = ir_fill_f64(b, counted, 1, &column[0], 1);
  aten_out(c, 0, ir_scatter(b, empty, ir_reshape(b, index, 2, column), ones, &attrs, IR_ADD));
}

/* ---- histograms of points in several dimensions ----------------------------------------------------- */

/* A sample is a point: self is [samples, dimensions]. Each dimension's edges are given, or part a range evenly. */
typedef struct histogram {
  uint32_t dimensions, weight; /* weight, density: positions of arguments */
  uint32_t density;
  int64_t samples;
  ir_value points; /* [samples, dimensions] */
  ir_value edges[TTPU_MAX_RANK];
  bool even;
} histogram;

/* The dimensions that the result has: its own rank, or that of the list of edges. */
static histogram histogram_of(aten_lowering *c, uint32_t dimensions, uint32_t weight) {
  histogram h = {.dimensions = dimensions, .weight = weight, .density = weight + 1};
  const aten_tensor *x = aten_meta(c, 0);
  int64_t n = base_numel(x->rank, x->sizes);
  h.samples = dimensions > 0 ? n / dimensions : n;
  h.points = nn_reshape2(c, aten_in(c, 0), h.samples, dimensions);
  return h;
}

static ir_value coordinate(aten_lowering *c, const histogram *h, uint32_t d) {
  return nn_flatten(c, ir_slice_dim(c->b, h->points, 1, d, d + 1, 1));
}

/* Where dimension d begins and ends: as `range` says, else with the least and the greatest element; 0 and 1 where there
 * are none. A range of one number is widened by 1/2 on both sides. */
static void range_of(aten_lowering *c, const histogram *h, uint32_t d, uint32_t range, ir_value *low, ir_value *high) {
  ir_builder *b = c->b;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, h->points).dtype;
  if (aten_list_count(c, range) > 0) {
    const aten_number *ends = &c->call->numbers[c->call->args[range].first + 2 * d];
    double first = ends[0].value.d[0], last = ends[1].value.d[0], widen = first == last ? 0.5 : 0;
    *low = ir_scalar_f64(b, t, first - widen);
    *high = ir_scalar_f64(b, t, last + widen);
    return;
  }
  if (h->samples == 0) {
    *low = ir_scalar_f64(b, t, 0);
    *high = ir_scalar_f64(b, t, 1);
    return;
  }
  *low = nn_reduce_dim(c, IR_MINIMUM, coordinate(c, h, d), 0, false);
  *high = nn_reduce_dim(c, IR_MAXIMUM, coordinate(c, h, d), 0, false);
  check_range(b, *low, *high, "torch.histogramdd: the range of a dimension is not finite");
  ir_value half = nn_const(c, *low, 0.5), same = ir_compare(b, IR_EQ, *low, *high);
  ir_value wide_low = ir_select(b, same, ir_subtract(b, *low, half), *low);
  *high = ir_select(b, same, ir_add(b, *high, half), *high);
  *low = wide_low;
}

/* Bins of equal width: `bins` (an int, or int[]) and `range` are positions of arguments. */
static void part_evenly(aten_lowering *c, histogram *h, uint32_t bins, uint32_t range) {
  h->even = true;
  for (uint32_t d = 0; d < h->dimensions; ++d) {
    ir_value low, high;
    range_of(c, h, d, range, &low, &high);
    int64_t count = c->call->args[bins].kind == ATEN_INTS ? aten_ints(c, bins).data[d] : aten_int(c, bins);
    h->edges[d] = aten_spaced(c, low, high, count + 1);
  }
}

static int64_t edge_count(aten_lowering *c, const histogram *h, uint32_t d) { return nn_type(c, h->edges[d]).dims[0]; }

/* The last edge at or before each v, by where it lies between the ends, set right by one where rounding went across. */
static ir_value bin_by_width(aten_lowering *c, ir_value v, ir_value edges, ir_value low, ir_value high) {
  ir_builder *b = c->b;
  int64_t last = nn_type(c, edges).dims[0] - 1;
  ir_value part = ir_divide(b, nn_mul_f64(c, ir_subtract(b, v, low), (double)last), ir_subtract(b, high, low));
  ir_value at =
      ir_clamp(b, ir_scalar_i64(b, TTPU_I64, 0), ir_convert(b, part, TTPU_I64), ir_scalar_i64(b, TTPU_I64, last - 1));
  ir_value one = nn_const(c, at, 1), zero = nn_const(c, at, 0);
  ir_value above = ir_compare(b, IR_GT, nn_take(c, edges, at, 0), v);
  ir_value next = ir_compare(b, IR_LE, nn_take(c, edges, ir_add(b, at, one), 0), v);
  at = ir_subtract(b, at, ir_select(b, above, one, zero));
  return ir_add(b, at, ir_select(b, next, one, zero));
}

/* The bin of each sample in dimension d, and which samples lie in none. The last bin includes its upper edge. */
static ir_value bins_along(aten_lowering *c, const histogram *h, uint32_t d, ir_value *outside) {
  ir_builder *b = c->b;
  ir_value v = coordinate(c, h, d), edges = h->edges[d];
  int64_t count = edge_count(c, h, d), n = h->samples;
  ir_value low = nn_broadcast_like(c, ir_slice_dim(b, edges, 0, 0, 1, 1), v);
  ir_value high = nn_broadcast_like(c, ir_slice_dim(b, edges, 0, count - 1, count, 1), v), at;
  if (h->even) {
    at = bin_by_width(c, v, edges, low, high);
  } else {
    at = nn_search(c, nn_reshape2(c, edges, 1, count), nn_reshape2(c, v, 1, n), true);
    at = nn_add_f64(c, nn_flatten(c, at), -1);
  }
  ir_value inside = ir_and_bits(b, ir_compare(b, IR_GE, v, low), ir_compare(b, IR_LE, v, high));
  *outside = ir_not_bits(b, inside);
  return ir_minimum(b, at, nn_const(c, at, (double)(count - 2)));
}

/* Divides by the sum and by each bin's volume. */
static ir_value density_of(aten_lowering *c, const histogram *h, ir_value counts) {
  int64_t all[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < h->dimensions; ++d) all[d] = d;
  counts = nn_div(c, counts, nn_reduce(c, IR_ADD, counts, h->dimensions, all, false));
  for (uint32_t d = 0; d < h->dimensions; ++d) {
    int64_t n = edge_count(c, h, d);
    ir_value widths =
        ir_subtract(c->b, ir_slice_dim(c->b, h->edges[d], 0, 1, n, 1), ir_slice_dim(c->b, h->edges[d], 0, 0, n - 1, 1));
    counts = ir_divide(c->b, counts, nn_along(c, widths, d, counts));
  }
  return counts;
}

static void out_counts(aten_lowering *c, const histogram *h) {
  ir_builder *b = c->b;
  const aten_tensor *out = &c->outs[0];
  ttpu_dtype t = (ttpu_dtype)out->dtype;
  int64_t bins = base_numel(out->rank, out->sizes), n = h->samples;
  ir_value at = ir_fill_i64(b, TTPU_I64, 1, &n, 0), lost = ir_fill_i64(b, TTPU_BOOL, 1, &n, 0), outside;
  for (uint32_t d = 0; d < h->dimensions; ++d) {
    ir_value along = bins_along(c, h, d, &outside);
    at = ir_add(b, nn_mul_f64(c, at, (double)out->sizes[d]), along);
    lost = ir_or_bits(b, lost, outside);
  }
  at = ir_select(b, lost, nn_const(c, at, (double)bins), at);
  ir_value weights = aten_has(c, h->weight) ? nn_flatten(c, nn_in_as(c, h->weight, t)) : ir_fill_i64(b, t, 1, &n, 1);
  ir_value counts = nn_index_update(c, ir_fill_i64(b, t, 1, &bins, 0), at, weights, 0, IR_ADD);
  counts = ir_reshape(b, counts, out->rank, out->sizes);
  aten_out(c, 0, aten_int(c, h->density) ? density_of(c, h, counts) : counts);
}

void lower_histogram_bins(aten_lowering *c) { /* self, bins, weight?, density; results: counts, edges */
  histogram h = histogram_of(c, 1, 2);
  h.edges[0] = aten_in(c, 1);
  out_counts(c, &h);
  aten_out(c, 1, h.edges[0]);
}

void lower_histogram_count(aten_lowering *c) { /* self, bins, range?, weight?, density; results: counts, edges */
  histogram h = histogram_of(c, 1, 3);
  part_evenly(c, &h, 1, 2);
  out_counts(c, &h);
  aten_out(c, 1, h.edges[0]);
}

void lower_histogram_edges(aten_lowering *c) { /* self, bins[], range?, weight?, density; results: edges, a list */
  histogram h = histogram_of(c, c->out_count, 3);
  part_evenly(c, &h, 1, 2);
  for (uint32_t d = 0; d < h.dimensions; ++d) aten_out(c, d, h.edges[d]);
}

void lower_histogram_of_counts(aten_lowering *c) { /* self, bins[], range?, weight?, density */
  histogram h = histogram_of(c, c->outs[0].rank, 3);
  part_evenly(c, &h, 1, 2);
  out_counts(c, &h);
}

void lower_histogram_of_bins(aten_lowering *c) { /* self, bins (Tensor[]), weight?, density */
  histogram h = histogram_of(c, c->outs[0].rank, 2);
  for (uint32_t d = 0; d < h.dimensions; ++d) h.edges[d] = aten_list_in(c, 1, d);
  out_counts(c, &h);
}
