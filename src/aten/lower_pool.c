/* Pooling. Windows are separable: a 2-d or 3-d pool is a fold along one dimension after the other. Along a dimension
 * each output position reads `taps` positions, and the fold over the taps is elementwise (strided slices of the padded
 * input, or rows chosen by a table where windows differ, or gathered where only the device knows them), which fuses.
 * Long uniform windows are one reduce_window.
 *
 * Maximum and its index: PyTorch's loop takes a value when it is greater than the best so far or is NaN, row-major.
 * Folding the last dimension first, with the same rule, chooses the same element. The index is carried beside the value
 * as i32 and vanishes with dead code elimination when nobody wants it. */
#include "aten/nn_int.h"

enum { LONG_WINDOW = 16 }; /* taps; longer ones are a reduce_window */

/* One dimension's windows: output o reads start[o] + t * dilation for t < length[o]. */
typedef struct windows {
  int64_t input, output, taps;
  bool uniform; /* start[o] = o * stride - padding, and the length is taps */
  int64_t stride, padding, dilation;
  int64_t *start, *length; /* where not uniform */
  ir_value starts;         /* where each plane has its own: [planes, output] i64, and the length is taps */
} windows;

static windows uniform_windows(int64_t input, int64_t output, int64_t kernel, int64_t stride, int64_t padding,
                               int64_t dilation) {
  return (windows){.input = input,
                   .output = output,
                   .taps = kernel,
                   .uniform = true,
                   .stride = stride,
                   .padding = padding,
                   .dilation = dilation};
}

/* Adaptive pooling's: from floor(o * I / O) to ceil((o + 1) * I / O). */
static windows adaptive_windows(aten_lowering *c, int64_t input, int64_t output) {
  if (output > 0 && input % output == 0)
    return uniform_windows(input, output, input / output, input / output > 0 ? input / output : 1, 0, 1);
  windows w = {.input = input, .output = output, .dilation = 1};
  w.start = nn_scratch(c, (size_t)output, sizeof(int64_t));
  w.length = nn_scratch(c, (size_t)output, sizeof(int64_t));
  if (w.start == NULL || w.length == NULL) return uniform_windows(input, output, 0, 1, 0, 1);
  for (int64_t o = 0; o < output; ++o) {
    w.start[o] = o * input / output;
    w.length[o] = ((o + 1) * input + output - 1) / output - w.start[o];
    if (w.length[o] > w.taps) w.taps = w.length[o];
  }
  return w;
}

/* How much of the padded input uniform windows reach beyond its end: may be negative. */
static int64_t reach_beyond(const windows *w) {
  return (w->output - 1) * w->stride + (w->taps - 1) * w->dilation + 1 - w->input - w->padding;
}

/* x padded so that every uniform window lies inside. */
static ir_value padded(aten_lowering *c, ir_value x, const windows *w, uint32_t dim, ir_value fill) {
  return w->uniform ? nn_pad_dim(c, x, dim, fill, w->padding, reach_beyond(w), 0) : x;
}

/* x [planes, ..] at position starts + t of `dim`, in each plane. */
static ir_value gathered_tap(aten_lowering *c, ir_value x, const windows *w, uint32_t dim, int64_t t) {
  ir_type type = nn_type(c, x), n = nn_type(c, w->starts);
  int64_t others[TTPU_MAX_RANK], slice[TTPU_MAX_RANK], plane = 0, collapsed = dim;
  uint32_t count = 0;
  for (uint32_t i = 0; i < type.rank; ++i) slice[i] = i == 0 || i == dim ? 1 : type.dims[i];
  for (uint32_t i = 1; i < type.rank; ++i)
    if (i != dim) others[count++] = i;
  ir_gather_attrs attrs = {.offset_dims = {others, count},
                           .collapsed_slice_dims = {&collapsed, 1},
                           .operand_batching_dims = {&plane, 1},
                           .start_indices_batching_dims = {&plane, 1},
                           .start_index_map = {&collapsed, 1},
                           .index_vector_dim = 2,
                           .slice_sizes = {slice, type.rank}};
  ir_value at = nn_add_f64(c, w->starts, (double)t);
  return ir_gather(c->b, x, nn_reshape3(c, at, n.dims[0], n.dims[1], 1), &attrs);
}

/* What tap t of each window holds; windows of a table repeat their last element, or give fill there where it is. */
static ir_value tap(aten_lowering *c, ir_value x, const windows *w, uint32_t dim, int64_t t, ir_value fill) {
  if (w->starts) return gathered_tap(c, x, w, dim, t);
  if (w->uniform) {
    int64_t from = t * w->dilation;
    return ir_slice_dim(c->b, x, dim, from, from + (w->output - 1) * w->stride + 1, w->stride);
  }
  int64_t *at = nn_scratch(c, (size_t)w->output, sizeof *at), *valid = nn_scratch(c, (size_t)w->output, sizeof *valid);
  if (at == NULL || valid == NULL) return 0;
  bool all = true;
  for (int64_t o = 0; o < w->output; ++o) {
    valid[o] = t < w->length[o];
    all = all && valid[o];
    at[o] = w->start[o] + (valid[o] ? t : w->length[o] - 1);
  }
  ir_value v = ir_take(c->b, x, nn_table_i64(c, (uint32_t)w->output, at), dim);
  if (all || fill == 0) return v;
  ir_value mask = ir_convert(c->b, nn_table_i64(c, (uint32_t)w->output, valid), TTPU_BOOL);
  return nn_select(c, nn_along(c, mask, dim, v), v, nn_broadcast_like(c, fill, v));
}

/* Sums the windows along dim. */
static ir_value sum_windows(aten_lowering *c, ir_value x, const windows *w, uint32_t dim) {
  ir_type t = nn_type(c, x);
  ir_value zero = ir_scalar_i64(c->b, (ttpu_dtype)t.dtype, 0);
  x = padded(c, x, w, dim, zero);
  if (w->uniform && w->taps > LONG_WINDOW) {
    int64_t window[TTPU_MAX_RANK], strides[TTPU_MAX_RANK], padding[2 * TTPU_MAX_RANK] = {0};
    for (uint32_t i = 0; i < t.rank; ++i) window[i] = i == dim ? w->taps : 1, strides[i] = i == dim ? w->stride : 1;
    if (w->output == 1) return nn_reduce_dim(c, IR_ADD, x, dim, true);
    ir_window_attrs attrs = {
        .window_dimensions = {window, t.rank}, .window_strides = {strides, t.rank}, .padding = {padding, 2 * t.rank}};
    return ir_reduce_window(c->b, IR_ADD, x, &attrs);
  }
  ir_value sum = tap(c, x, w, dim, 0, zero);
  for (int64_t k = 1; k < w->taps; ++k) sum = ir_add(c->b, sum, tap(c, x, w, dim, k, zero));
  return sum;
}

/* The opposite: x's gradient from the windows' gradients, i.e. g spread over the windows and added up. */
static ir_value spread_windows(aten_lowering *c, ir_value g, const windows *w, uint32_t dim) {
  ir_value zero = ir_scalar_i64(c->b, (ttpu_dtype)nn_type(c, g).dtype, 0);
  if (w->uniform) {
    int64_t low = w->taps - 1 - w->padding, dilated = (w->output - 1) * w->stride + 1;
    g = nn_pad_dim(c, g, dim, zero, low, w->input + w->taps - 1 - low - dilated, w->stride - 1);
    windows all = uniform_windows(w->input, w->input, w->taps, 1, 0, 1);
    all.input = w->input + w->taps - 1;
    return sum_windows(c, g, &all, dim);
  }
  /* Position i lies in a run of windows. */
  windows back = {.input = w->output, .output = w->input, .dilation = 1};
  back.start = nn_scratch(c, (size_t)w->input, sizeof(int64_t));
  back.length = nn_scratch(c, (size_t)w->input, sizeof(int64_t));
  if (back.start == NULL || back.length == NULL) return 0;
  for (int64_t o = 0; o < w->output; ++o)
    for (int64_t i = w->start[o]; i < w->start[o] + w->length[o]; ++i) {
      if (back.length[i] == 0) back.start[i] = o;
      if (++back.length[i] > back.taps) back.taps = back.length[i];
    }
  return sum_windows(c, g, &back, dim);
}

/* ---- maximum ------------------------------------------------------------------------------------- */

typedef struct best {
  ir_value value, index; /* index: i32, -1 where padded */
} best;

static best max_windows(aten_lowering *c, best x, const windows *w, uint32_t dim) {
  ir_value low = ir_lowest(c->b, (ttpu_dtype)nn_type(c, x.value).dtype), none = ir_scalar_i64(c->b, TTPU_I32, -1);
  ir_value values = padded(c, x.value, w, dim, low), indices = padded(c, x.index, w, dim, none);
  best r = {tap(c, values, w, dim, 0, 0), tap(c, indices, w, dim, 0, 0)};
  for (int64_t k = 1; k < w->taps; ++k) {
    ir_value v = tap(c, values, w, dim, k, 0), i = tap(c, indices, w, dim, k, 0);
    ir_value better = ir_or_bits(c->b, ir_compare(c->b, IR_GT, v, r.value), nn_is_nan(c, v));
    if (w->uniform && w->padding > 0) /* a first tap that is padding loses even to equal values */
      better = ir_or_bits(c->b, better, nn_compare_f64(c, IR_LT, r.index, 0));
    r.value = ir_maximum(c->b, r.value, v);
    r.index = ir_select(c->b, better, i, r.index);
  }
  return r;
}

/* Folds the last `spatial` dims and gives value and flat index within them. */
static void max_pool(aten_lowering *c, uint32_t spatial, const windows *w) {
  if (base_numel(c->outs[0].rank, c->outs[0].sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
    aten_out(c, 1, nn_zeros_out(c, 1, TTPU_I64));
    return;
  }
  ir_value x = aten_in(c, 0);
  ir_type t = nn_type(c, x);
  uint32_t lead = t.rank > spatial ? t.rank - spatial : 0;
  int64_t plane = base_numel(spatial, t.dims + lead);
  if (plane >= INT32_MAX) {
    ir_fail(c->b, TTPU_UNIMPLEMENTED, "%s: a plane of %lld elements", c->call->row->name, (long long)plane);
    return;
  }
  ir_value flat = ir_iota(c->b, TTPU_I32, 1, &plane, 0);
  best r = {x, ir_broadcast_to(c->b, ir_reshape(c->b, flat, spatial, t.dims + lead), t.rank, t.dims)};
  for (uint32_t i = spatial; i-- > 0;) r = max_windows(c, r, &w[i], lead + i);
  aten_out(c, 0, r.value);
  aten_out(c, 1, ir_convert(c->b, r.index, TTPU_I64));
}

static void max_pool_nd(aten_lowering *c, uint32_t spatial) { /* self, kernel, stride, padding, dilation, ceil_mode */
  windows w[3];
  const aten_tensor *x = aten_meta(c, 0), *y = &c->outs[0];
  uint32_t stride = aten_ints(c, 2).count ? 2 : 1;
  for (uint32_t i = 0; i < spatial; ++i)
    w[i] = uniform_windows(x->sizes[x->rank - spatial + i], y->sizes[y->rank - spatial + i], nn_int_at(c, 1, i),
                           nn_int_at(c, stride, i), nn_int_at(c, 3, i), nn_int_at(c, 4, i));
  max_pool(c, spatial, w);
}

void lower_max_pool2d(aten_lowering *c) { max_pool_nd(c, 2); }
void lower_max_pool3d(aten_lowering *c) { max_pool_nd(c, 3); }

static void adaptive_max_pool(aten_lowering *c, uint32_t spatial) { /* self, output_size */
  windows w[3];
  const aten_tensor *x = aten_meta(c, 0), *y = &c->outs[0];
  for (uint32_t i = 0; i < spatial; ++i)
    w[i] = adaptive_windows(c, x->sizes[x->rank - spatial + i], y->sizes[y->rank - spatial + i]);
  max_pool(c, spatial, w);
}

void lower_adaptive_max_pool2d(aten_lowering *c) { adaptive_max_pool(c, 2); }
void lower_adaptive_max_pool3d(aten_lowering *c) { adaptive_max_pool(c, 3); }

/* Where each plane's windows of fractional pooling begin: [planes, output]. Steps of alpha = (input - taps) / (output -
 * 1) from the sample on, in the input's dtype, whose roundings decide; the last window ends where the input does. */
static ir_value fractional_starts(aten_lowering *c, ir_value sample, const windows *w) {
  ir_type t = nn_type(c, sample); /* [planes] */
  int64_t dims[2] = {ir_numel(t), w->output}, last = w->output - 1, planes = 0;
  ir_value end = ir_fill_i64(c->b, TTPU_I64, 2, dims, w->input - w->taps);
  if (w->output == 1) return end;
  ir_value alpha = ir_divide(c->b, ir_fill_i64(c->b, (ttpu_dtype)t.dtype, 2, dims, w->input - w->taps),
                             ir_fill_i64(c->b, (ttpu_dtype)t.dtype, 2, dims, last));
  ir_value from = ir_broadcast_in_dim(c->b, sample, 2, dims, &planes);
  ir_value o = ir_iota(c->b, TTPU_I64, 2, dims, 1);
  ir_value reached = ir_multiply(c->b, ir_add(c->b, ir_convert(c->b, o, (ttpu_dtype)t.dtype), from), alpha);
  ir_value start = ir_subtract(c->b, ir_convert(c->b, reached, TTPU_I64),
                               ir_convert(c->b, ir_multiply(c->b, from, alpha), TTPU_I64));
  start = ir_select(c->b, nn_compare_f64(c, IR_LT, o, (double)last), start, end);
  return nn_index(c, start, w->input - w->taps + 1, false, IR_BAD_VALUE,
                  "fractional_max_pool: a window outside the input");
}

/* self, kernel_size, output_size, random_samples [batch or more, channels, spatial] in the order of `sample_of`. Leading
 * dims are merged into planes: a fold over [planes, ..]. */
static void fractional_max_pool(aten_lowering *c, uint32_t spatial, const uint32_t *sample_of) {
  const aten_tensor *x = aten_meta(c, 0), *out = &c->outs[0];
  uint32_t lead = x->rank - spatial;
  int64_t planes = base_numel(lead, x->sizes), dims[4] = {planes}, taps = 1;
  windows w[3];
  if (base_numel(out->rank, out->sizes) == 0) {
    for (uint32_t i = 0; i < 2; ++i) aten_out(c, i, nn_zeros_out(c, i, (ttpu_dtype)c->outs[i].dtype));
    return;
  }
  int64_t images = lead == 2 ? x->sizes[0] : 1;
  ir_value samples = nn_reshape2(c, ir_slice_dim(c->b, aten_in(c, 3), 0, 0, images, 1), planes, spatial);
  for (uint32_t i = 0; i < spatial; ++i) {
    w[i] =
        (windows){.input = x->sizes[lead + i], .output = nn_int_at(c, 2, i), .taps = nn_int_at(c, 1, i), .dilation = 1};
    ir_value sample = ir_slice_dim(c->b, samples, 1, sample_of[i], sample_of[i] + 1, 1);
    w[i].starts = fractional_starts(c, ir_reshape(c->b, sample, 1, &planes), &w[i]);
    if (w[i].starts == 0) return; /* an error is on its way */
    dims[1 + i] = x->sizes[lead + i];
    taps *= w[i].taps;
  }
  if (taps == 0) { /* the maximum of nothing */
    aten_out(c, 0, ir_lowest(c->b, (ttpu_dtype)out->dtype));
    aten_out(c, 1, nn_zeros_out(c, 1, TTPU_I64));
    return;
  }
  int64_t plane = base_numel(spatial, dims + 1);
  ir_value flat = ir_reshape(c->b, ir_iota(c->b, TTPU_I64, 1, &plane, 0), spatial, dims + 1);
  best r = {ir_reshape(c->b, aten_in(c, 0), spatial + 1, dims), ir_broadcast_to(c->b, flat, spatial + 1, dims)};
  for (uint32_t i = spatial; i-- > 0;) r = max_windows(c, r, &w[i], 1 + i);
  aten_out_reshaped(c, 0, r.value);
  aten_out_reshaped(c, 1, r.index);
}

/* A plane's samples are for width, height; and for time, height, width. */
void lower_fractional_max_pool2d(aten_lowering *c) { fractional_max_pool(c, 2, (const uint32_t[]){1, 0}); }
void lower_fractional_max_pool3d(aten_lowering *c) { fractional_max_pool(c, 3, (const uint32_t[]){0, 1, 2}); }

/* updates at flat indices of planes of the result: [planes, plane]. combine: IR_ADD, or 0 to replace. */
static void scatter_planes(aten_lowering *c, uint32_t spatial, ir_value updates, ir_value index, ir_kind combine) {
  const aten_tensor *out = &c->outs[0];
  if (base_numel(out->rank, out->sizes) == 0 || ir_numel(nn_type(c, updates)) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)out->dtype));
    return;
  }
  int64_t plane = base_numel(spatial, out->sizes + out->rank - spatial);
  int64_t planes = base_numel(out->rank - spatial, out->sizes);
  int64_t small = ir_numel(nn_type(c, updates)) / planes, dims[2] = {planes, plane};
  ir_value zero = ir_fill_i64(c->b, (ttpu_dtype)nn_type(c, updates).dtype, 2, dims, 0);
  index =
      nn_index(c, nn_reshape2(c, index, planes, small), plane, false, IR_BAD_VALUE, "pooling: index outside its plane");
  ir_value r = nn_scatter_along(c, zero, index, nn_reshape2(c, updates, planes, small), 1, combine);
  aten_out(c, 0, ir_reshape(c->b, r, out->rank, out->sizes));
}

void lower_max_pool2d_backward(aten_lowering *c) { scatter_planes(c, 2, nn_in(c, 0), aten_in(c, 7), IR_ADD); }
void lower_max_pool3d_backward(aten_lowering *c) { scatter_planes(c, 3, nn_in(c, 0), aten_in(c, 7), IR_ADD); }
void lower_adaptive_max_pool2d_backward(aten_lowering *c) { scatter_planes(c, 2, nn_in(c, 0), aten_in(c, 2), IR_ADD); }
void lower_adaptive_max_pool3d_backward(aten_lowering *c) { scatter_planes(c, 3, nn_in(c, 0), aten_in(c, 2), IR_ADD); }
void lower_fractional_max_pool2d_backward(aten_lowering *c) {
  scatter_planes(c, 2, nn_in(c, 0), aten_in(c, 4), IR_ADD);
}
void lower_fractional_max_pool3d_backward(aten_lowering *c) {
  scatter_planes(c, 3, nn_in(c, 0), aten_in(c, 4), IR_ADD);
}
void lower_max_unpool2d(aten_lowering *c) { scatter_planes(c, 2, aten_in(c, 0), aten_in(c, 1), IR_NO_OP); }
void lower_max_unpool3d(aten_lowering *c) { scatter_planes(c, 3, aten_in(c, 0), aten_in(c, 1), IR_NO_OP); }

/* ---- average ------------------------------------------------------------------------------------- */

/* How many elements window o counts. */
static int64_t count_of(const windows *w, int64_t o, bool include_pad) {
  if (!w->uniform) return w->length[o];
  int64_t start = o * w->stride - w->padding, end = start + w->taps;
  if (end > w->input + w->padding) end = w->input + w->padding;
  if (include_pad) return end - start;
  if (start < 0) start = 0;
  if (end > w->input) end = w->input;
  return end - start;
}

/* x divided by the windows' element counts (the product over the dims), or by `given` when it is not 0. */
static ir_value divide_counts(aten_lowering *c, ir_value x, uint32_t spatial, const windows *w, bool include_pad,
                              int64_t given) {
  if (given != 0) return ir_divide(c->b, x, nn_const(c, x, (double)given));
  uint32_t lead = aten_meta(c, 0)->rank - spatial;
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  int64_t common = 1;
  ir_value varying = 0;
  for (uint32_t i = 0; i < spatial; ++i) {
    double *counts = nn_scratch(c, (size_t)w[i].output, sizeof *counts);
    if (counts == NULL) return 0;
    bool equal = true;
    for (int64_t o = 0; o < w[i].output; ++o) {
      counts[o] = (double)count_of(&w[i], o, include_pad);
      equal = equal && counts[o] == counts[0];
    }
    if (equal) {
      common *= (int64_t)counts[0];
      continue;
    }
    ir_value v = nn_along(c, nn_table_f64(c, t, (uint32_t)w[i].output, counts), lead + i, x);
    varying = varying == 0 ? v : ir_multiply(c->b, varying, v);
  }
  if (varying == 0) return ir_divide(c->b, x, nn_const(c, x, (double)common));
  return ir_divide(c->b, x, common == 1 ? varying : nn_mul_f64(c, varying, (double)common));
}

static bool empty_result(aten_lowering *c, uint32_t arg) {
  const aten_tensor *x = aten_meta(c, arg);
  if (base_numel(c->outs[0].rank, c->outs[0].sizes) != 0 && base_numel(x->rank, x->sizes) != 0) return false;
  aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
  return true;
}

static void average(aten_lowering *c, uint32_t spatial, const windows *w, bool include_pad, int64_t given) {
  if (empty_result(c, 0)) return;
  ir_value x = nn_in(c, 0);
  uint32_t lead = aten_meta(c, 0)->rank - spatial;
  for (uint32_t i = spatial; i-- > 0;) x = sum_windows(c, x, &w[i], lead + i);
  aten_out(c, 0, divide_counts(c, x, spatial, w, include_pad, given));
}

static void average_backward(aten_lowering *c, uint32_t spatial, const windows *w, bool include_pad, int64_t given) {
  if (empty_result(c, 0)) return;
  ir_value g = divide_counts(c, nn_in(c, 0), spatial, w, include_pad, given);
  uint32_t lead = aten_meta(c, 0)->rank - spatial;
  for (uint32_t i = spatial; i-- > 0;) g = spread_windows(c, g, &w[i], lead + i);
  aten_out(c, 0, g);
}

/* kernel, stride, padding from argument `first`; x is pooled to y. */
static void average_windows(aten_lowering *c, uint32_t spatial, uint32_t first, const aten_tensor *x,
                            const aten_tensor *y, windows *w) {
  uint32_t stride = aten_ints(c, first + 1).count ? first + 1 : first;
  for (uint32_t i = 0; i < spatial; ++i)
    w[i] = uniform_windows(x->sizes[x->rank - spatial + i], y->sizes[y->rank - spatial + i], nn_int_at(c, first, i),
                           nn_int_at(c, stride, i), nn_int_at(c, first + 2, i), 1);
}

static void avg_pool(aten_lowering *c,
                     uint32_t spatial) { /* self, kernel, stride, padding, ceil, include_pad, divisor */
  windows w[3];
  average_windows(c, spatial, 1, aten_meta(c, 0), &c->outs[0], w);
  average(c, spatial, w, aten_int(c, 5), aten_int_or(c, 6, 0));
}

static void avg_pool_backward(aten_lowering *c, uint32_t spatial) { /* grad, self, then the same */
  windows w[3];
  average_windows(c, spatial, 2, aten_meta(c, 1), aten_meta(c, 0), w);
  average_backward(c, spatial, w, aten_int(c, 6), aten_int_or(c, 7, 0));
}

void lower_avg_pool2d(aten_lowering *c) { avg_pool(c, 2); }
void lower_avg_pool3d(aten_lowering *c) { avg_pool(c, 3); }
void lower_avg_pool2d_backward(aten_lowering *c) { avg_pool_backward(c, 2); }
void lower_avg_pool3d_backward(aten_lowering *c) { avg_pool_backward(c, 3); }

static void adaptive_avg_pool(aten_lowering *c, uint32_t spatial, bool backward) {
  windows w[3];
  const aten_tensor *x = aten_meta(c, backward ? 1 : 0), *y = backward ? aten_meta(c, 0) : &c->outs[0];
  for (uint32_t i = 0; i < spatial; ++i)
    w[i] = adaptive_windows(c, x->sizes[x->rank - spatial + i], y->sizes[y->rank - spatial + i]);
  backward ? average_backward(c, spatial, w, true, 0) : average(c, spatial, w, true, 0);
}

void lower_adaptive_avg_pool2d(aten_lowering *c) { adaptive_avg_pool(c, 2, false); }
void lower_adaptive_avg_pool3d(aten_lowering *c) { adaptive_avg_pool(c, 3, false); }
void lower_adaptive_avg_pool2d_backward(aten_lowering *c) { adaptive_avg_pool(c, 2, true); }
void lower_adaptive_avg_pool3d_backward(aten_lowering *c) { adaptive_avg_pool(c, 3, true); }
