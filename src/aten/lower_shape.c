/* Operators that move elements: concatenation, padding, unfolding, shuffles, repeats. */
#include "aten/nn_int.h"

/* ---- concatenation ------------------------------------------------------------------------------------- */

static ir_value concatenate(aten_lowering *c, uint32_t count, const ir_value *xs, uint32_t dim) {
  return count == 1 ? xs[0] : ir_concatenate(c->b, count, xs, dim);
}

void lower_cat(aten_lowering *c) { /* tensors, dim; vectors of size 0 are left out whatever the others' rank */
  uint32_t n = aten_list_count(c, 0), count = 0;
  ttpu_dtype t = (ttpu_dtype)c->outs[0].dtype;
  ir_value *xs = nn_scratch(c, n, sizeof *xs);
  if (xs == NULL) return;
  for (uint32_t i = 0; i < n; ++i) {
    const aten_tensor *x = aten_list_meta(c, 0, i);
    if (x->rank == 1 && x->sizes[0] == 0 && (c->outs[0].rank != 1 || count > 0 || i + 1 < n)) continue;
    xs[count++] = ir_convert(c->b, aten_list_in(c, 0, i), t);
  }
  if (count == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, t));
    return;
  }
  aten_out(c, 0, concatenate(c, count, xs, aten_dim(c, 1, c->outs[0].rank)));
}

void lower_stack(aten_lowering *c) { /* tensors, dim */
  uint32_t n = aten_list_count(c, 0), rank = c->outs[0].rank, dim = aten_dim(c, 1, rank);
  ir_value *xs = nn_scratch(c, n, sizeof *xs);
  if (xs == NULL) return;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < rank; ++i) sizes[i] = i == dim ? 1 : c->outs[0].sizes[i];
  for (uint32_t i = 0; i < n; ++i)
    xs[i] = ir_reshape(c->b, ir_convert(c->b, aten_list_in(c, 0, i), (ttpu_dtype)c->outs[0].dtype), rank, sizes);
  aten_out(c, 0, concatenate(c, n, xs, dim));
}

/* ---- padding ---------------------------------------------------------------------------------------------- */

void lower_constant_pad(aten_lowering *c) { /* self, pad (last dim first: low, high), value */
  ir_value x = aten_in(c, 0);
  ir_type t = nn_type(c, x);
  ir_i64s pad = aten_ints(c, 1);
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, interior[TTPU_MAX_RANK] = {0};
  for (uint32_t i = 0; i + 1 < pad.count && i / 2 < t.rank; i += 2) {
    low[t.rank - 1 - i / 2] = pad.data[i];
    high[t.rank - 1 - i / 2] = pad.data[i + 1];
  }
  aten_out(c, 0, ir_pad(c->b, x, aten_number_in(c, 2, (ttpu_dtype)t.dtype), low, high, interior));
}

/* Which element each padded position repeats: reflection mirrors without the edge, replication keeps it. */
static ir_value pad_table(aten_lowering *c, int64_t size, int64_t low, int64_t padded, bool reflect) {
  int64_t *at = nn_scratch(c, (size_t)padded, sizeof *at);
  if (at == NULL) return 0;
  for (int64_t i = 0; i < padded; ++i) {
    int64_t j = i - low;
    if (reflect && j < 0) j = -j;
    if (reflect && j >= size) j = 2 * (size - 1) - j;
    at[i] = j < 0 ? 0 : j >= size ? size - 1 : j;
  }
  return nn_table_i64(c, (uint32_t)padded, at);
}

static void edge_pad(aten_lowering *c, uint32_t spatial, bool reflect) { /* self, padding */
  ir_value x = aten_in(c, 0);
  for (uint32_t i = 0; i < spatial; ++i) {
    uint32_t dim = c->outs[0].rank - 1 - i;
    int64_t low = nn_int_at(c, 1, 2 * i), high = nn_int_at(c, 1, 2 * i + 1), size = nn_type(c, x).dims[dim];
    if (low == 0 && high == 0) continue;
    x = nn_take(c, x, pad_table(c, size, low, size + low + high, reflect), dim);
  }
  aten_out(c, 0, x);
}

static void edge_pad_backward(aten_lowering *c, uint32_t spatial, bool reflect) { /* grad, self, padding */
  ir_value g = nn_in(c, 0);
  const aten_tensor *x = aten_meta(c, 1);
  for (uint32_t i = 0; i < spatial; ++i) {
    uint32_t dim = x->rank - 1 - i;
    int64_t low = nn_int_at(c, 2, 2 * i), high = nn_int_at(c, 2, 2 * i + 1), size = x->sizes[dim];
    if (low == 0 && high == 0) continue;
    int64_t sizes[TTPU_MAX_RANK];
    ir_type t = nn_type(c, g);
    for (uint32_t k = 0; k < t.rank; ++k) sizes[k] = k == dim ? size : t.dims[k];
    ir_value zeros = ir_fill_i64(c->b, (ttpu_dtype)t.dtype, t.rank, sizes, 0);
    g = nn_index_update(c, zeros, pad_table(c, size, low, size + low + high, reflect), g, dim, IR_ADD);
  }
  aten_out(c, 0, g);
}

void lower_reflection_pad1d(aten_lowering *c) { edge_pad(c, 1, true); }
void lower_reflection_pad2d(aten_lowering *c) { edge_pad(c, 2, true); }
void lower_reflection_pad3d(aten_lowering *c) { edge_pad(c, 3, true); }
void lower_replication_pad1d(aten_lowering *c) { edge_pad(c, 1, false); }
void lower_replication_pad2d(aten_lowering *c) { edge_pad(c, 2, false); }
void lower_replication_pad3d(aten_lowering *c) { edge_pad(c, 3, false); }
void lower_reflection_pad1d_backward(aten_lowering *c) { edge_pad_backward(c, 1, true); }
void lower_reflection_pad2d_backward(aten_lowering *c) { edge_pad_backward(c, 2, true); }
void lower_reflection_pad3d_backward(aten_lowering *c) { edge_pad_backward(c, 3, true); }
void lower_replication_pad1d_backward(aten_lowering *c) { edge_pad_backward(c, 1, false); }
void lower_replication_pad2d_backward(aten_lowering *c) { edge_pad_backward(c, 2, false); }
void lower_replication_pad3d_backward(aten_lowering *c) { edge_pad_backward(c, 3, false); }

/* ---- windows as dimensions ---------------------------------------------------------------------------------- */

/* Position of tap t of window o along one dim: o * stride + t * dilation, window-major or tap-major. */
static ir_value window_table(aten_lowering *c, int64_t outer, int64_t outer_step, int64_t inner, int64_t inner_step) {
  int64_t *at = nn_scratch(c, (size_t)(outer * inner), sizeof *at);
  if (at == NULL) return 0;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t k = 0; k < inner; ++k) at[i * inner + k] = i * outer_step + k * inner_step;
  return nn_table_i64(c, (uint32_t)(outer * inner), at);
}

void lower_unfold_backward(aten_lowering *c) { /* grad [.., windows at dim, .., size], input_sizes, dim, size, step */
  ir_value g = nn_in(c, 0);
  ir_i64s sizes = aten_ints(c, 1);
  if (sizes.count == 0) { /* a 0-d input unfolds into one element */
    aten_out(c, 0, nn_reduce_dim(c, IR_ADD, nn_flatten(c, g), 0, false));
    return;
  }
  uint32_t dim = aten_dim(c, 2, sizes.count), last = sizes.count;
  int64_t size = aten_int(c, 3), step = aten_int(c, 4), windows = nn_type(c, g).dims[dim], joined[TTPU_MAX_RANK];
  g = nn_move(c, g, last, dim + 1);
  for (uint32_t i = 0; i < sizes.count; ++i) joined[i] = i == dim ? windows * size : sizes.data[i];
  g = ir_reshape(c->b, g, sizes.count, joined);
  ir_value zeros = ir_fill_i64(c->b, (ttpu_dtype)nn_type(c, g).dtype, sizes.count, sizes.data, 0);
  aten_out(c, 0, nn_index_update(c, zeros, window_table(c, windows, step, size, 1), g, dim, IR_ADD));
}

/* kernel_size, dilation, padding, stride from argument `first`; of an image [N, C, H, W]. */
typedef struct unfolding {
  int64_t n, channels, size[2], padded[2], kernel[2], dilation[2], padding[2], stride[2], windows[2];
} unfolding;

static unfolding unfolding_of(aten_lowering *c, uint32_t first, int64_t n, int64_t channels, const int64_t *size) {
  unfolding u = {.n = n, .channels = channels};
  for (uint32_t i = 0; i < 2; ++i) {
    u.size[i] = size[i];
    u.kernel[i] = nn_int_at(c, first, i);
    u.dilation[i] = nn_int_at(c, first + 1, i);
    u.padding[i] = nn_int_at(c, first + 2, i);
    u.stride[i] = nn_int_at(c, first + 3, i);
    u.padded[i] = size[i] + 2 * u.padding[i];
    u.windows[i] = (u.padded[i] - u.dilation[i] * (u.kernel[i] - 1) - 1) / u.stride[i] + 1;
  }
  return u;
}

void lower_im2col(
    aten_lowering *c) { /* self, kernel_size, dilation, padding, stride: a strided view of the padded image */
  const aten_tensor *x = aten_meta(c, 0), *out = &c->outs[0];
  if (base_numel(out->rank, out->sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)out->dtype));
    return;
  }
  unfolding u = unfolding_of(c, 1, x->rank == 4 ? x->sizes[0] : 1, x->sizes[x->rank - 3], x->sizes + x->rank - 2);
  ir_value v = ir_reshape(c->b, aten_in(c, 0), 4, (int64_t[]){u.n, u.channels, u.size[0], u.size[1]});
  ir_value zero = ir_scalar_i64(c->b, (ttpu_dtype)x->dtype, 0);
  for (uint32_t i = 0; i < 2; ++i) v = nn_pad_dim(c, v, 2 + i, zero, u.padding[i], u.padding[i], 0);
  int64_t row = u.padded[1], plane = u.padded[0] * row;
  int64_t sizes[6] = {u.n, u.channels, u.kernel[0], u.kernel[1], u.windows[0], u.windows[1]};
  int64_t strides[6] = {u.channels * plane, plane, u.dilation[0] * row, u.dilation[1], u.stride[0] * row, u.stride[1]};
  aten_out(c, 0, ir_reshape(c->b, ir_as_strided(c->b, v, 6, sizes, strides, 0), out->rank, out->sizes));
}

void lower_col2im(aten_lowering *c) { /* self, output_size, kernel_size, dilation, padding, stride: adds up overlaps */
  const aten_tensor *out = &c->outs[0];
  if (base_numel(out->rank, out->sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)out->dtype));
    return;
  }
  int64_t n = out->rank == 4 ? out->sizes[0] : 1;
  unfolding u = unfolding_of(c, 2, n, out->sizes[out->rank - 3], out->sizes + out->rank - 2);
  ir_value v = nn_in(c, 0);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, v).dtype;
  v = ir_reshape(c->b, v, 6, (int64_t[]){n, u.channels, u.kernel[0], u.kernel[1], u.windows[0], u.windows[1]});
  v = nn_swap(c, v, 3, 4); /* [N, C, kh, oh, kw, ow] */
  v = ir_reshape(c->b, v, 4, (int64_t[]){n, u.channels, u.kernel[0] * u.windows[0], u.kernel[1] * u.windows[1]});
  for (uint32_t i = 2; i-- > 0;) {
    int64_t sizes[4] = {n, u.channels, i == 1 ? nn_type(c, v).dims[2] : u.padded[0], u.padded[1]};
    ir_value table = window_table(c, u.kernel[i], u.dilation[i], u.windows[i], u.stride[i]);
    v = nn_index_update(c, ir_fill_i64(c->b, t, 4, sizes, 0), table, v, 2 + i, nn_combine_add(t));
  }
  for (uint32_t i = 0; i < 2; ++i) v = ir_slice_dim(c->b, v, 2 + i, u.padding[i], u.padding[i] + u.size[i], 1);
  aten_out(c, 0, ir_reshape(c->b, v, out->rank, out->sizes));
}

/* ---- shuffles ------------------------------------------------------------------------------------------------- */

void lower_pixel_shuffle(aten_lowering *c) { /* self [.., C r r, H, W], r -> [.., C, H r, W r] */
  const aten_tensor *out = &c->outs[0];
  int64_t r = aten_int(c, 1), lead = base_numel(out->rank - 3, out->sizes);
  int64_t channels = out->sizes[out->rank - 3], h = out->sizes[out->rank - 2] / r, w = out->sizes[out->rank - 1] / r;
  ir_value x = ir_reshape(c->b, aten_in(c, 0), 6, (int64_t[]){lead, channels, r, r, h, w});
  x = ir_transpose(c->b, x, (int64_t[]){0, 1, 4, 2, 5, 3});
  aten_out(c, 0, ir_reshape(c->b, x, out->rank, out->sizes));
}

void lower_pixel_unshuffle(aten_lowering *c) {
  const aten_tensor *x = aten_meta(c, 0), *out = &c->outs[0];
  int64_t r = aten_int(c, 1), lead = base_numel(x->rank - 3, x->sizes);
  int64_t channels = x->sizes[x->rank - 3], h = out->sizes[out->rank - 2], w = out->sizes[out->rank - 1];
  ir_value v = ir_reshape(c->b, aten_in(c, 0), 6, (int64_t[]){lead, channels, h, r, w, r});
  v = ir_transpose(c->b, v, (int64_t[]){0, 1, 3, 5, 2, 4});
  aten_out(c, 0, ir_reshape(c->b, v, out->rank, out->sizes));
}

void lower_channel_shuffle(aten_lowering *c) { /* self [N, C, ..], groups */
  const aten_tensor *x = aten_meta(c, 0);
  int64_t groups = aten_int(c, 1), channels = x->sizes[1], rest = base_numel(x->rank - 2, x->sizes + 2);
  ir_value v =
      ir_reshape(c->b, aten_in(c, 0), 4, (int64_t[]){x->sizes[0], groups, groups ? channels / groups : 0, rest});
  aten_out(c, 0, ir_reshape(c->b, nn_swap(c, v, 1, 2), x->rank, x->sizes));
}
