/* Shape functions of rows for which PyTorch has no Meta kernel: the CPU's results are the model. What they refuse has
 * only the CPU to say why (it is called with zeros of the same sizes), so they cover every good call. */
#include "aten/nn_int.h"

#include <math.h>

/* ---- unique -------------------------------------------------------------------------------------------- */

static bool unique_shapes(const aten_call *call, bool inverse, bool counts, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!x || base_dtype_is_complex((ttpu_dtype)x->dtype)) return false;
  int64_t n = base_numel(x->rank, x->sizes), none = 0;
  shape_of(&outs[0], x->dtype, 1, &n);
  if (inverse) shape_of(&outs[1], TTPU_I64, x->rank, x->sizes);
  else shape_of(&outs[1], TTPU_I64, 1, &none);
  shape_of(&outs[2], TTPU_I64, 1, counts ? &n : &none);
  shape_of(&outs[3], TTPU_I64, 0, NULL);
  return true;
}

bool shape_unique2(const aten_call *call, aten_shape *outs) {
  return unique_shapes(call, aten_call_int(call, 2, 0) != 0, aten_call_int(call, 3, 0) != 0, outs);
}

bool shape_unique(const aten_call *call, aten_shape *outs) {
  aten_shape all[4]; /* of the form with counts */
  if (!unique_shapes(call, aten_call_int(call, 2, 0) != 0, false, all)) return false;
  outs[0] = all[0], outs[1] = all[1], outs[2] = all[3];
  return true;
}

/* Slices along dim: the result keeps the strides of a stack of them. */
static bool unique_slice_shapes(const aten_call *call, int64_t dim, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!x || x->rank == 0 || base_dtype_is_complex((ttpu_dtype)x->dtype) || dim < -x->rank || dim >= x->rank)
    return false;
  if (dim < 0) dim += x->rank;
  int64_t n = x->sizes[dim], slice = 1;
  aten_shape *out = &outs[0];
  *out = (aten_shape){.dtype = x->dtype, .rank = x->rank};
  for (uint32_t i = x->rank; i-- > 0;) {
    out->sizes[i] = x->sizes[i];
    if (i == (uint32_t)dim) continue;
    if (x->sizes[i] == 0) return false;
    out->strides[i] = slice;
    slice *= x->sizes[i];
  }
  out->strides[dim] = slice;
  shape_of(&outs[1], TTPU_I64, 1, &n);
  shape_of(&outs[2], TTPU_I64, 1, &n);
  shape_of(&outs[3], TTPU_I64, 0, NULL);
  return true;
}

bool shape_unique_dim(const aten_call *call, aten_shape *outs) {
  return unique_slice_shapes(call, aten_call_int(call, 1, 0), outs);
}

bool shape_unique_consecutive(const aten_call *call, aten_shape *outs) {
  if (aten_call_has(call, 3)) return unique_slice_shapes(call, aten_call_int(call, 3, 0), outs);
  return unique_shapes(call, aten_call_int(call, 1, 0) != 0, aten_call_int(call, 2, 0) != 0, outs);
}

/* ---- histograms ---------------------------------------------------------------------------------------- */

/* Points of `dimensions` coordinates each, and a weight for each point. */
static bool is_histogram(const aten_call *call, int64_t dimensions, uint32_t weight) {
  const aten_tensor *x = aten_call_tensor(call, 0), *w = aten_call_tensor(call, weight);
  if (!x || (x->dtype != TTPU_F32 && x->dtype != TTPU_F64)) return false;
  bool flat = dimensions == 0; /* of histogram, whose samples have no coordinates */
  if (!flat && (x->rank < 2 || x->sizes[x->rank - 1] != dimensions || dimensions >= TTPU_MAX_RANK)) return false;
  if (!w) return true;
  if (w->dtype != x->dtype || w->rank != x->rank - !flat) return false;
  for (uint32_t i = 0; i < w->rank; ++i)
    if (w->sizes[i] != x->sizes[i]) return false;
  return true;
}

/* A range that is given has two finite ends a dimension, in order. */
static bool is_range(const aten_call *call, uint32_t arg, uint32_t dimensions) {
  const aten_arg *a = &call->args[arg];
  if (a->kind != ATEN_FLOATS) return a->kind == ATEN_NONE;
  if (a->count != 2 * dimensions) return false;
  for (uint32_t d = 0; d < dimensions; ++d) {
    double low = call->numbers[a->first + 2 * d].value.d[0], high = call->numbers[a->first + 2 * d + 1].value.d[0];
    if (!isfinite(low) || !isfinite(high) || low > high) return false;
  }
  return true;
}

static bool is_edges(const aten_call *call, const aten_tensor *edges) {
  return edges->rank == 1 && edges->dtype == aten_call_tensor(call, 0)->dtype && edges->sizes[0] > 1;
}

/* Of integers, which PyTorch's CPU does not count but its other devices do. Meta knows all others. */
bool shape_histc(const aten_call *call, aten_shape *outs) { /* self, bins, min, max */
  const aten_tensor *x = aten_call_tensor(call, 0);
  int64_t bins = aten_call_int(call, 1, 100);
  if (!x || !base_dtype_is_integer((ttpu_dtype)x->dtype) || bins <= 0) return false;
  double low = aten_call_real(call, 2, 0), high = aten_call_real(call, 3, 0);
  if (!isfinite(low) || !isfinite(high) || low > high) return false;
  shape_of(&outs[0], x->dtype, 1, &bins);
  return true;
}

bool shape_histogram_bins(const aten_call *call, aten_shape *outs) { /* self, bins, weight?, density */
  const aten_tensor *edges = aten_call_tensor(call, 1);
  if (!is_histogram(call, 0, 2) || !edges || !is_edges(call, edges)) return false;
  int64_t bins = edges->sizes[0] - 1;
  shape_of(&outs[0], edges->dtype, 1, &bins);
  shape_of(&outs[1], edges->dtype, 1, edges->sizes);
  return true;
}

bool shape_histogram_count(const aten_call *call, aten_shape *outs) { /* self, bins, range?, weight?, density */
  int64_t bins = aten_call_int(call, 1, 0), edges = bins + 1;
  if (!is_histogram(call, 0, 3) || !is_range(call, 2, 1) || bins <= 0) return false;
  uint8_t dtype = aten_call_tensor(call, 0)->dtype;
  shape_of(&outs[0], dtype, 1, &bins);
  shape_of(&outs[1], dtype, 1, &edges);
  return true;
}

static bool has_even_bins(const aten_call *call, ir_i64s bins) { /* self, bins[], range?, weight?, density */
  if (bins.count == 0 || !is_histogram(call, bins.count, 3) || !is_range(call, 2, bins.count)) return false;
  for (uint32_t d = 0; d < bins.count; ++d)
    if (bins.data[d] <= 0) return false;
  return true;
}

bool shape_histogram_edges(const aten_call *call, aten_shape *outs) {
  ir_i64s bins = aten_call_ints(call, 1);
  if (!has_even_bins(call, bins)) return false;
  for (uint32_t d = 0; d < bins.count; ++d) {
    int64_t edges = bins.data[d] + 1;
    shape_of(&outs[d], aten_call_tensor(call, 0)->dtype, 1, &edges);
  }
  return true;
}

bool shape_histogram_of_counts(const aten_call *call, aten_shape *outs) {
  ir_i64s bins = aten_call_ints(call, 1);
  if (!has_even_bins(call, bins)) return false;
  shape_of(&outs[0], aten_call_tensor(call, 0)->dtype, bins.count, bins.data);
  return true;
}

bool shape_histogram_of_bins(const aten_call *call, aten_shape *outs) { /* self, bins (Tensor[]), weight?, density */
  const aten_arg *list = &call->args[1];
  int64_t sizes[TTPU_MAX_RANK];
  if (list->kind != ATEN_TENSORS || list->count == 0 || !is_histogram(call, list->count, 2)) return false;
  for (uint32_t d = 0; d < list->count; ++d) {
    const aten_tensor *edges = &call->tensors[list->first + d];
    if ((edges->flags & ATEN_UNDEFINED) || !is_edges(call, edges)) return false;
    sizes[d] = edges->sizes[0] - 1;
  }
  shape_of(&outs[0], aten_call_tensor(call, 0)->dtype, list->count, sizes);
  return true;
}

/* ---- pointwise ----------------------------------------------------------------------------------------- */

/* Tensors of one floating dtype, broadcast. */
bool shape_same_floats(const aten_call *call, aten_shape *outs) {
  const aten_tensor *operands[3];
  uint32_t count = 0;
  for (uint32_t i = 0; i < call->arg_count && count < 3; ++i) {
    const aten_tensor *t = aten_call_tensor(call, i);
    if (!t) continue;
    if (!base_dtype_is_float((ttpu_dtype)t->dtype) || (count && t->dtype != operands[0]->dtype)) return false;
    operands[count++] = t;
  }
  if (count == 0) return false;
  outs->dtype = operands[0]->dtype;
  return aten_shape_broadcast(count, operands, outs);
}

/* ---- networks ------------------------------------------------------------------------------------------ */

/* self, output_size: the last dimensions are replaced. */
bool shape_adaptive_pool(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s size = aten_call_ints(call, 1);
  if (!x || !base_dtype_is_float((ttpu_dtype)x->dtype) || x->rank <= size.count || x->rank > size.count + 2)
    return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) {
    bool replaced = i + size.count >= x->rank;
    if (i > 0 && x->sizes[i] == 0) return false;
    sizes[i] = replaced ? size.data[i + size.count - x->rank] : x->sizes[i];
    if (sizes[i] < 0) return false;
  }
  shape_of(outs, x->dtype, x->rank, sizes);
  return true;
}

/* input, running_mean?, running_var?, momentum: vectors of channels, in the running ones' dtype. */
bool shape_batch_norm_stats(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!x || x->rank < 2 || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  uint8_t dtype = x->dtype;
  for (uint32_t i = 1; i < 3; ++i) {
    const aten_tensor *t = aten_call_tensor(call, i);
    if (t && (t->rank != 1 || t->sizes[0] != x->sizes[1])) return false;
    if (t && t->dtype != x->dtype && (t->dtype != TTPU_F32 || !aten_is_half((ttpu_dtype)x->dtype))) return false;
    if (t) dtype = t->dtype;
  }
  for (uint32_t i = 0; i < 2; ++i) shape_of(&outs[i], dtype, 1, &x->sizes[1]);
  return true;
}

static bool has_channels(const aten_tensor *x) {
  return x && x->rank >= 2 && base_dtype_is_float((ttpu_dtype)x->dtype);
}

bool shape_batch_norm_moments(const aten_call *call, aten_shape *outs) { /* input, eps */
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!has_channels(x)) return false;
  for (uint32_t i = 0; i < 2; ++i) shape_of(&outs[i], (uint8_t)aten_math_dtype((ttpu_dtype)x->dtype), 1, &x->sizes[1]);
  return true;
}

bool shape_batch_norm_gathered(const aten_call *call, aten_shape *outs) { /* input, means, deviations, .., counts */
  const aten_tensor *x = aten_call_tensor(call, 0), *means = aten_call_tensor(call, 1),
                    *rstds = aten_call_tensor(call, 2), *counts = aten_call_tensor(call, 7);
  if (!has_channels(x) || !means || !rstds || means->rank != 2 || means->sizes[1] != x->sizes[1]) return false;
  if (rstds->rank != 2 || rstds->dtype != means->dtype || memcmp(rstds->sizes, means->sizes, 2 * sizeof *means->sizes))
    return false;
  if (counts && base_numel(counts->rank, counts->sizes) != means->sizes[0]) return false;
  for (uint32_t i = 0; i < 2; ++i) shape_of(&outs[i], means->dtype, 1, &x->sizes[1]);
  return true;
}

/* grad, input, mean, 1 / deviation, weight?, which gradients */
bool shape_batch_norm_sums(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *mean = aten_call_tensor(call, 2),
                    *weight = aten_call_tensor(call, 4);
  if (!has_channels(x) || !g || g->rank != x->rank || !mean || mean->rank != 1 || mean->sizes[0] != x->sizes[1])
    return false;
  for (uint32_t i = 0; i < 4; ++i) no_result(&outs[i]);
  for (uint32_t i = 0; i < 2 && aten_call_int(call, 5, 0); ++i) shape_of(&outs[i], mean->dtype, 1, &x->sizes[1]);
  for (uint32_t i = 2; i < 4; ++i)
    if (aten_call_int(call, 4 + i, 0)) shape_of(&outs[i], weight ? weight->dtype : mean->dtype, 1, &x->sizes[1]);
  return true;
}

bool shape_rescale_qkv(const aten_call *call, aten_shape *outs) { /* qkv [B, T, 3 D], bias [3 D], heads */
  const aten_tensor *x = aten_call_tensor(call, 0), *bias = aten_call_tensor(call, 1);
  int64_t heads = aten_call_int(call, 2, 0);
  if (!x || !bias || x->rank != 3 || bias->rank != 1 || x->dtype != bias->dtype || heads < 1) return false;
  if (bias->sizes[0] != x->sizes[2] || x->sizes[2] % (3 * heads) != 0) return false;
  const int64_t sizes[4] = {x->sizes[0], heads, x->sizes[1], x->sizes[2] / 3 / heads};
  for (uint32_t i = 0; i < 3; ++i) shape_of(&outs[i], x->dtype, 4, sizes);
  return true;
}

bool shape_linear_combination(const aten_call *call, aten_shape *outs) { /* input [M, ..], coefficients [N, M] */
  const aten_tensor *x = aten_call_tensor(call, 0), *factors = aten_call_tensor(call, 1);
  if (!x || !factors || x->rank == 0 || factors->rank != 2 || x->dtype != factors->dtype) return false;
  if (base_numel(x->rank, x->sizes) == 0 || factors->sizes[1] != x->sizes[0]) return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) sizes[i] = i ? x->sizes[i] : factors->sizes[0];
  shape_of(outs, x->dtype, x->rank, sizes);
  return true;
}

/* ---- fake quantisation --------------------------------------------------------------------------------- */

static bool is_quantisable(const aten_tensor *x) { return x && base_dtype_is_float((ttpu_dtype)x->dtype); }

static bool like_operand(const aten_tensor *x, uint8_t dtype, aten_shape *out) {
  aten_shape_preserve(x, out);
  out->dtype = dtype;
  return true;
}

static bool has_one(const aten_tensor *t) { return t == NULL || base_numel(t->rank, t->sizes) == 1; }

/* Vectors with an element for each of x's slices along the axis. */
static bool fits_axis(const aten_tensor *x, const aten_tensor *scale, const aten_tensor *zero, int64_t axis) {
  if (!scale || !zero || scale->rank != 1 || zero->rank != 1 || axis < 0 || axis >= x->rank) return false;
  return scale->sizes[0] == x->sizes[axis] && zero->sizes[0] == x->sizes[axis];
}

/* quant_min <= quant_max, from argument `low` on. */
static bool is_interval(const aten_call *call, uint32_t low) {
  return aten_call_int(call, low, 1) <= aten_call_int(call, low + 1, 0);
}

bool shape_fake_quantize(const aten_call *call, aten_shape *outs) { /* by numbers or tensors: then one argument more */
  const aten_tensor *x = aten_call_tensor(call, 0), *scale = aten_call_tensor(call, 1);
  uint32_t low = scale ? 4 : 3;
  int64_t zero = aten_call_int(call, 2, 0);
  if (!is_quantisable(x) || !has_one(scale) || !has_one(aten_call_tensor(call, 2)) || !is_interval(call, low))
    return false;
  if (!scale && (zero < aten_call_int(call, low, 0) || zero > aten_call_int(call, low + 1, 0))) return false;
  return like_operand(x, x->dtype, &outs[0]) && like_operand(x, TTPU_BOOL, &outs[1]);
}

bool shape_fake_quantize_channels(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *scale = aten_call_tensor(call, 1);
  if (!is_quantisable(x) || !fits_axis(x, scale, aten_call_tensor(call, 2), aten_call_int(call, 3, -1))) return false;
  if (scale->dtype != TTPU_F32 && scale->dtype != TTPU_BF16) return false;
  if (!is_interval(call, 4)) return false;
  return like_operand(x, x->dtype, &outs[0]) && like_operand(x, TTPU_BOOL, &outs[1]);
}

bool shape_fake_quantize_learned(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *scale = aten_call_tensor(call, 1);
  if (!is_quantisable(x) || !scale || !has_one(scale) || !has_one(aten_call_tensor(call, 2)) || !is_interval(call, 3))
    return false;
  return like_operand(x, x->dtype, outs);
}

bool shape_fake_quantize_learned_channels(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *scale = aten_call_tensor(call, 1);
  if (!is_quantisable(x) || !fits_axis(x, scale, aten_call_tensor(call, 2), aten_call_int(call, 3, -1))) return false;
  return is_interval(call, 4) && like_operand(x, x->dtype, outs);
}

/* grad, self, scale, zero_point, ..: gradients of the last three. */
static bool fake_quantize_gradients(const aten_call *call, int64_t count, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1);
  if (!g || !x || g->dtype != TTPU_F32 || x->dtype != TTPU_F32 || g->rank != x->rank) return false;
  for (uint32_t i = 0; i < x->rank; ++i)
    if (g->sizes[i] != x->sizes[i]) return false;
  if (base_numel(x->rank, x->sizes) == 0) return false;
  shape_of(&outs[1], TTPU_F32, 1, &count);
  shape_of(&outs[2], TTPU_F32, 1, &count);
  return like_operand(x, x->dtype, &outs[0]);
}

bool shape_fake_quantize_learned_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *scale = aten_call_tensor(call, 2);
  if (!scale || !has_one(scale) || !has_one(aten_call_tensor(call, 3)) || !is_interval(call, 4)) return false;
  return fake_quantize_gradients(call, 1, outs);
}

bool shape_fake_quantize_learned_channels_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 1), *scale = aten_call_tensor(call, 2);
  if (!x || !fits_axis(x, scale, aten_call_tensor(call, 3), aten_call_int(call, 4, -1)) || !is_interval(call, 5))
    return false;
  return fake_quantize_gradients(call, scale->sizes[0], outs);
}
