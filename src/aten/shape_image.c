/* Shape functions of aten_nn.def's rows of images: convolutions, and what keeps an image's layout. False wherever they are
 * not sure, as in shape_nn.c. */
#include "aten/nn_int.h"

/* ---- convolution --------------------------------------------------------------------------------- */

static int64_t list_at(ir_i64s list, uint32_t i) { return list.data[i < list.count ? i : list.count - 1]; }

/* The layout that convolutions choose: channels last if the image or the weights have it. Volumes have it from oneDNN alone,
 * which knows no float64. */
static void lay_out_image(aten_shape *out, bool channels_last) {
  if (channels_last && out->rank >= 4 && (out->rank == 4 || out->dtype != TTPU_F64)) aten_shape_channels_last(out);
}

bool shape_convolution(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *w = aten_call_tensor(call, 1), *bias = aten_call_tensor(call, 2);
  if (!x || !w || x->rank < 3 || x->rank > 5 || w->rank != x->rank || x->dtype != w->dtype) return false;
  if (!base_dtype_is_float((ttpu_dtype)x->dtype) || numel(x) == 0 || numel(w) == 0) return false;
  ir_i64s stride = aten_call_ints(call, 3), padding = aten_call_ints(call, 4), dilation = aten_call_ints(call, 5),
          extra = aten_call_ints(call, 7);
  int64_t groups = aten_call_int(call, 8, 1), sizes[5] = {x->sizes[0]};
  bool transposed = aten_call_int(call, 6, 0) != 0;
  if (!stride.count || !padding.count || !dilation.count || !extra.count || groups < 1) return false;
  if (x->sizes[1] != (transposed ? w->sizes[0] : w->sizes[1] * groups) || w->sizes[0] % groups) return false;
  sizes[1] = transposed ? w->sizes[1] * groups : w->sizes[0];
  if (bias && (bias->rank != 1 || bias->sizes[0] != sizes[1] || bias->dtype != x->dtype)) return false;
  for (uint32_t i = 2; i < x->rank; ++i) {
    int64_t s = list_at(stride, i - 2), p = list_at(padding, i - 2), d = list_at(dilation, i - 2),
            e = list_at(extra, i - 2);
    int64_t window = d * (w->sizes[i] - 1) + 1;
    if (s < 1 || p < 0 || d < 1 || e < 0) return false;
    if (transposed) {
      if (e >= s && e >= d) return false;
      sizes[i] = (x->sizes[i] - 1) * s - 2 * p + window + e;
    } else {
      if (x->sizes[i] + 2 * p < window) return false;
      sizes[i] = (x->sizes[i] + 2 * p - window) / s + 1;
    }
    if (sizes[i] < 1) return false;
  }
  shape_of(outs, x->dtype, x->rank, sizes);
  lay_out_image(outs, aten_prefers_channels_last(x) || aten_prefers_channels_last(w));
  return true;
}

static bool shape_gradients(const aten_call *call, aten_shape *outs, uint32_t mask_arg) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *w = aten_call_tensor(call, 2);
  ir_i64s mask = aten_call_ints(call, mask_arg);
  if (!g || !x || !w || mask.count != 3 || g->rank != x->rank || x->rank != w->rank || x->rank < 3) return false;
  if (numel(x) == 0 || numel(w) == 0 || numel(g) == 0 || x->dtype != w->dtype || x->dtype != g->dtype) return false;
  bool last = aten_prefers_channels_last(x) || aten_prefers_channels_last(w);
  for (uint32_t i = 0; i < 3; ++i) no_result(&outs[i]);
  if (mask.data[0]) shape_of(&outs[0], x->dtype, x->rank, x->sizes), lay_out_image(&outs[0], last);
  if (mask.data[1]) shape_of(&outs[1], w->dtype, w->rank, w->sizes), lay_out_image(&outs[1], last);
  if (mask.data[2]) shape_of(&outs[2], g->dtype, 1, &g->sizes[1]);
  return true;
}

bool shape_convolution_backward(const aten_call *call, aten_shape *outs) { return shape_gradients(call, outs, 10); }
bool shape_convolution_backward_overrideable(const aten_call *call, aten_shape *outs) {
  return shape_gradients(call, outs, 9);
}

static bool has_slow_dtype(const aten_tensor *x) {
  return (base_dtype_is_float((ttpu_dtype)x->dtype) && x->dtype < TTPU_F8E5M2) || x->dtype == TTPU_I64;
}

/* The weight's channels [out, in] of a convolution with this kernel; false where its sizes are other ones. A plain 2-d
 * one takes a matrix [Cy, Cx * K..] too. */
static bool slow_weight(const aten_tensor *w, ir_i64s kernel, uint32_t spatial, bool matrix, int64_t channels[2]) {
  if (!w || kernel.count != spatial) return false;
  int64_t window = base_numel(spatial, kernel.data);
  channels[0] = w->sizes[0];
  if (matrix && w->rank == 2) {
    channels[1] = window > 0 ? w->sizes[1] / window : 0;
    return window > 0 && w->sizes[1] % window == 0;
  }
  if (w->rank != spatial + 2) return false;
  for (uint32_t i = 0; i < spatial; ++i)
    if (w->sizes[2 + i] != kernel.data[i] || kernel.data[i] < 1) return false;
  channels[1] = w->sizes[1];
  return true;
}

/* What distinguishes the operators below; the arguments are self, weight, kernel_size, bias?, stride, padding, then
 * output_padding (transposed), then dilation. */
typedef struct slow_kind {
  uint32_t spatial;
  bool transposed, dilated;
  bool images; /* takes one image as well as a batch */
} slow_kind;

/* Element i of a list argument that must have one for each spatial dimension; `least` - 1 where it does not. */
static int64_t slow_int(const aten_call *call, slow_kind kind, uint32_t arg, uint32_t i, int64_t least) {
  ir_i64s list = aten_call_ints(call, arg);
  return list.count == kind.spatial ? list.data[i] : least - 1;
}

static bool slow_size(const aten_call *call, slow_kind kind, uint32_t i, int64_t x, int64_t k, int64_t *y) {
  int64_t s = slow_int(call, kind, 4, i, 1), p = slow_int(call, kind, 5, i, 0);
  int64_t d = kind.dilated ? slow_int(call, kind, kind.transposed ? 7 : 6, i, 1) : 1;
  int64_t e = kind.transposed ? slow_int(call, kind, 6, i, 0) : 0, window = d * (k - 1) + 1;
  if (s < 1 || p < 0 || d < 1 || e < 0) return false;
  if (kind.transposed) *y = (x - 1) * s - 2 * p + window + e;
  else *y = (x + 2 * p - window) / s + 1;
  return *y >= 1 && (kind.transposed ? e < s || e < d : x + 2 * p >= window);
}

static bool slow_shape(const aten_call *call, aten_shape *outs, slow_kind kind) {
  const aten_tensor *x = aten_call_tensor(call, 0), *w = aten_call_tensor(call, 1), *bias = aten_call_tensor(call, 3);
  bool plain = !kind.transposed && !kind.dilated;
  ir_i64s kernel = aten_call_ints(call, 2);
  int64_t channels[2], sizes[5];
  if (!x || !slow_weight(w, kernel, kind.spatial, plain && kind.spatial == 2, channels)) return false;
  if (x->dtype != w->dtype || (!has_slow_dtype(x) && !(plain && base_dtype_is_integer((ttpu_dtype)x->dtype))))
    return false;
  uint32_t lead = x->rank - kind.spatial; /* batch and channels; of an image its channels alone */
  if (x->rank < kind.spatial || lead < (kind.images ? 1u : 2u) || lead > 2) return false;
  int64_t taken = x->sizes[lead - 1], given = kind.transposed ? channels[1] : channels[0];
  bool grouped = plain && kind.spatial == 3 && channels[1] > 0 && taken % channels[1] == 0;
  if (taken == 0 || given == 0) return false;
  if (taken != (kind.transposed ? channels[0] : channels[1]) && !grouped) return false;
  if (grouped && channels[0] % (taken / channels[1]) != 0) return false;
  if (bias && (bias->rank != 1 || bias->sizes[0] != given)) return false;
  if (kind.transposed && x->sizes[0] == 0) return false;
  sizes[0] = x->sizes[0];
  sizes[lead - 1] = given;
  for (uint32_t i = 0; i < kind.spatial; ++i)
    if (!slow_size(call, kind, i, x->sizes[lead + i], kernel.data[i], &sizes[lead + i])) return false;
  shape_of(outs, x->dtype, x->rank, sizes);
  if (kind.spatial == 2) lay_out_image(outs, aten_prefers_channels_last(x) || aten_prefers_channels_last(w));
  return true;
}

bool shape_slow_conv2d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 2});
}
bool shape_slow_conv3d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 3});
}
bool shape_slow_conv_dilated2d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 2, .dilated = true, .images = true});
}
bool shape_slow_conv_dilated3d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 3, .dilated = true, .images = true});
}
bool shape_slow_conv_transpose2d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 2, .transposed = true, .dilated = true, .images = true});
}
bool shape_slow_conv_transpose3d(const aten_call *call, aten_shape *outs) {
  return slow_shape(call, outs, (slow_kind){.spatial = 3, .transposed = true, .dilated = true, .images = true});
}

/* grad_output, self, weight, kernel_size, stride, padding, then a mask or nothing. */
static bool slow_gradients(const aten_call *call, aten_shape *outs, const bool wanted[3]) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *w = aten_call_tensor(call, 2);
  ir_i64s kernel = aten_call_ints(call, 3);
  int64_t channels[2], y;
  if (!g || !x || g->rank != 4 || x->rank != 4 || !slow_weight(w, kernel, 2, true, channels)) return false;
  if (g->dtype != x->dtype || w->dtype != x->dtype || x->dtype == TTPU_I64 || !has_slow_dtype(x)) return false;
  if (x->sizes[1] != channels[1] || g->sizes[1] != channels[0] || g->sizes[0] != x->sizes[0]) return false;
  if (channels[0] == 0 || channels[1] == 0) return false;
  for (uint32_t i = 0; i < 2; ++i)
    if (!slow_size(call, (slow_kind){.spatial = 2}, i, x->sizes[2 + i], kernel.data[i], &y) || y != g->sizes[2 + i])
      return false;
  for (uint32_t i = 0; i < 3; ++i) no_result(&outs[i]);
  bool last = aten_prefers_channels_last(w);
  if (wanted[0])
    shape_of(&outs[0], x->dtype, 4, x->sizes), lay_out_image(&outs[0], last || aten_prefers_channels_last(x));
  if (wanted[1]) shape_of(&outs[1], x->dtype, w->rank, w->sizes), lay_out_image(&outs[1], last);
  if (wanted[2]) shape_of(&outs[2], x->dtype, 1, &g->sizes[1]);
  return true;
}

bool shape_slow_conv2d_backward(const aten_call *call, aten_shape *outs) {
  return slow_gradients(call, outs, (const bool[3]){true, true, true});
}

bool shape_slow_conv2d_backward_masked(const aten_call *call, aten_shape *outs) {
  ir_i64s mask = aten_call_ints(call, 6);
  if (mask.count != 3) return false;
  return slow_gradients(call, outs, (const bool[3]){mask.data[0] != 0, mask.data[1] != 0, mask.data[2] != 0});
}

/* ---- pools --------------------------------------------------------------------------------------- */

/* grad, self, kernel_size, output_size, indices. Meta has none. */
bool shape_fractional_max_pool3d_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *index = aten_call_tensor(call, 4);
  ir_i64s output = aten_call_ints(call, 3);
  if (!g || !x || !index || (x->rank != 4 && x->rank != 5) || !same_sizes(g, index) || g->rank != x->rank) return false;
  if (g->dtype != x->dtype || !base_dtype_is_float((ttpu_dtype)x->dtype) || index->dtype != TTPU_I64) return false;
  for (uint32_t i = 0; i < x->rank - 3u; ++i)
    if (g->sizes[i] != x->sizes[i]) return false;
  for (uint32_t i = 0; i < 3; ++i)
    if (g->sizes[x->rank - 3 + i] != list_at(output, i)) return false;
  shape_of(outs, x->dtype, x->rank, x->sizes);
  return true;
}

/* ---- operators that keep an image's channels last, which PyTorch's Meta kernels do not -------------------------- */

static void shape_like_image(const aten_tensor *x, const int64_t *sizes, aten_shape *out) {
  shape_of(out, x->dtype, x->rank, sizes);
  if (aten_prefers_channels_last(x)) aten_shape_channels_last(out);
}

static bool edge_pad_shape(const aten_call *call, uint32_t spatial, bool reflect, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s pad = aten_call_ints(call, 1);
  int64_t sizes[TTPU_MAX_RANK];
  if (!x || pad.count != 2 * spatial || (x->rank != spatial + 1 && x->rank != spatial + 2) || numel(x) == 0)
    return false;
  for (uint32_t i = 0; i < x->rank; ++i) sizes[i] = x->sizes[i];
  for (uint32_t i = 0; i < spatial; ++i) {
    int64_t low = pad.data[2 * i], high = pad.data[2 * i + 1], *size = &sizes[x->rank - 1 - i];
    if (reflect && (low >= *size || high >= *size)) return false;
    *size += low + high;
    if (*size < 1) return false;
  }
  shape_like_image(x, sizes, outs);
  return true;
}
bool shape_reflection_pad2d(const aten_call *call, aten_shape *outs) { return edge_pad_shape(call, 2, true, outs); }
bool shape_reflection_pad3d(const aten_call *call, aten_shape *outs) { return edge_pad_shape(call, 3, true, outs); }
bool shape_replication_pad2d(const aten_call *call, aten_shape *outs) { return edge_pad_shape(call, 2, false, outs); }
bool shape_replication_pad3d(const aten_call *call, aten_shape *outs) { return edge_pad_shape(call, 3, false, outs); }

bool shape_channel_shuffle(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  int64_t groups = aten_call_int(call, 1, 0);
  if (!x || x->rank < 3 || groups < 1 || x->sizes[1] % groups != 0) return false;
  shape_like_image(x, x->sizes, outs);
  return true;
}

bool shape_pixel_shuffle(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  int64_t factor = aten_call_int(call, 1, 0), sizes[4];
  if (!x || x->rank != 4 || factor < 1 || factor > INT32_MAX || x->sizes[1] % (factor * factor) != 0) return false;
  for (uint32_t i = 0; i < 4; ++i) sizes[i] = x->sizes[i] * (i < 2 ? 1 : factor);
  sizes[1] /= factor * factor;
  shape_like_image(x, sizes, outs);
  return true;
}

bool shape_max_unpool2d(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *index = aten_call_tensor(call, 1);
  ir_i64s wanted = aten_call_ints(call, 2);
  int64_t sizes[4];
  if (!x || !index || index->dtype != TTPU_I64 || (x->rank != 3 && x->rank != 4) || index->rank != x->rank)
    return false;
  if (wanted.count != 2 || wanted.data[0] < 1 || wanted.data[1] < 1 || numel(x) == 0) return false;
  for (uint32_t i = 0; i < x->rank; ++i) {
    if (index->sizes[i] != x->sizes[i]) return false;
    sizes[i] = i + 2 < x->rank ? x->sizes[i] : wanted.data[i + 2 - x->rank];
  }
  shape_like_image(x, sizes, outs);
  return true;
}

/* Made of pieces of x, which are joined. Without dims it is x as one row that is rolled. */
bool shape_roll(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s shifts = aten_call_ints(call, 1), dims = aten_call_ints(call, 2);
  uint32_t dim;
  if (!x || dims.count == 0 || shifts.count != dims.count || numel(x) == 0) return false;
  for (uint32_t i = 0; i < dims.count; ++i)
    if (!wrap_dim(dims.data[i], x->rank, &dim)) return false;
  shape_like_image(x, x->sizes, outs);
  return true;
}
