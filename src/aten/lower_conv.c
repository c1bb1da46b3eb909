/* Convolutions of 1 to 3 spatial dimensions, and their gradients, as StableHLO convolutions.
 *
 * Everything is one of three forms. With x the larger image [N, Cx, X..], y the smaller one [N, Cy, Y..] and weights
 * w [Cy, Cx / groups, K..], related by y[p] = sum over k of x[p * stride - padding + k * dilation] * w[k]:
 *
 *   image_to_small     y from x and w:  forward, and the input's gradient of a transposed convolution
 *   small_to_image     x from y and w:  forward of a transposed one, and the input's gradient
 *   weights_from       w from x and y:  the weights' gradient of both
 *
 * The trailing padding is computed from the sizes wanted, so output_padding and rows that a stride leaves over need
 * no case of their own; it may be negative. */
#include "aten/nn_int.h"

typedef struct conv {
  aten_lowering *c;
  uint32_t spatial; /* 1..3 */
  int64_t groups, stride[3], padding[3], dilation[3];
  bool transposed;
} conv;

static uint32_t spatial_of(aten_lowering *c, uint32_t rank) {
  if (rank >= 3 && rank <= 5) return rank - 2;
  ir_fail(c->b, TTPU_INVALID_ARGUMENT, "convolution: expected 3 to 5 dimensions, got %u", rank);
  return 1;
}

/* stride, padding, dilation, transposed, output_padding, groups are arguments first, first + 1, ... */
static conv conv_of(aten_lowering *c, uint32_t first, uint32_t rank) {
  conv v = {.c = c,
            .spatial = spatial_of(c, rank),
            .groups = aten_int(c, first + 5),
            .transposed = aten_int(c, first + 3) != 0};
  for (uint32_t i = 0; i < v.spatial; ++i) {
    v.stride[i] = nn_int_at(c, first, i);
    v.padding[i] = nn_int_at(c, first + 1, i);
    v.dilation[i] = nn_int_at(c, first + 2, i);
  }
  return v;
}

static const int64_t spatial_dims[3] = {2, 3, 4}, no_dilation[3] = {1, 1, 1};

static ir_convolution_attrs plain_attrs(const conv *v) {
  ir_i64s spatial = {spatial_dims, v->spatial}, ones = {no_dilation, v->spatial};
  return (ir_convolution_attrs){.window_strides = ones,
                                .lhs_dilation = ones,
                                .rhs_dilation = ones,
                                .input_batch_dimension = 0,
                                .input_feature_dimension = 1,
                                .input_spatial_dimensions = spatial,
                                .kernel_output_feature_dimension = 0,
                                .kernel_input_feature_dimension = 1,
                                .kernel_spatial_dimensions = spatial,
                                .output_batch_dimension = 0,
                                .output_feature_dimension = 1,
                                .output_spatial_dimensions = spatial,
                                .feature_group_count = 1,
                                .batch_group_count = 1};
}

static ir_value convolve(const conv *v, ir_value x, ir_value w, ir_convolution_attrs *attrs) {
  ttpu_dtype t = (ttpu_dtype)nn_type(v->c, x).dtype;
  attrs->precision = nn_precision(v->c, t);
  return ir_convolution(v->c->b, x, w, attrs, aten_math_dtype(t));
}

/* A result without any element, or one that sums nothing, needs no convolution. */
static ir_value zeros(const conv *v, ir_value x, uint32_t rank, const int64_t *dims) {
  return ir_fill_i64(v->c->b, aten_math_dtype((ttpu_dtype)nn_type(v->c, x).dtype), rank, dims, 0);
}

static bool has_elements(const conv *v, ir_value x, ir_value y, uint32_t rank, const int64_t *dims) {
  return ir_numel(nn_type(v->c, x)) != 0 && ir_numel(nn_type(v->c, y)) != 0 && base_numel(rank, dims) != 0;
}

static ir_value image_to_small(const conv *v, ir_value x, ir_value w, const int64_t *y_sizes) {
  ir_type xt = nn_type(v->c, x), wt = nn_type(v->c, w);
  if (!has_elements(v, x, w, xt.rank, y_sizes)) return zeros(v, x, xt.rank, y_sizes);
  int64_t padding[6];
  for (uint32_t i = 0; i < v->spatial; ++i) {
    int64_t window = (wt.dims[2 + i] - 1) * v->dilation[i] + 1;
    padding[2 * i] = v->padding[i];
    padding[2 * i + 1] = (y_sizes[2 + i] - 1) * v->stride[i] + window - xt.dims[2 + i] - v->padding[i];
  }
  ir_convolution_attrs attrs = plain_attrs(v);
  attrs.window_strides.data = v->stride;
  attrs.rhs_dilation.data = v->dilation;
  attrs.padding = (ir_i64s){padding, 2 * v->spatial};
  attrs.feature_group_count = v->groups;
  return convolve(v, x, w, &attrs);
}

/* [Cy, Cx / groups, K..] -> [Cy / groups, Cx, K..], the same groups side by side along the other dimension. */
static ir_value regroup(const conv *v, ir_value w) {
  ir_type t = nn_type(v->c, w);
  if (v->groups <= 1 || w == 0) return w;
  int64_t split[6] = {v->groups, t.dims[0] / v->groups, t.dims[1]},
          joined[5] = {t.dims[0] / v->groups, v->groups * t.dims[1]};
  for (uint32_t i = 0; i < v->spatial; ++i) joined[2 + i] = split[3 + i] = t.dims[2 + i];
  w = ir_reshape(v->c->b, w, v->spatial + 3, split);
  return ir_reshape(v->c->b, nn_swap(v->c, w, 0, 1), v->spatial + 2, joined);
}

static ir_value small_to_image(const conv *v, ir_value y, ir_value w, const int64_t *x_sizes) {
  ir_type yt = nn_type(v->c, y), wt = nn_type(v->c, w);
  if (!has_elements(v, y, w, yt.rank, x_sizes)) return zeros(v, y, yt.rank, x_sizes);
  int64_t padding[6];
  bool reversed[3] = {true, true, true};
  for (uint32_t i = 0; i < v->spatial; ++i) {
    int64_t reach = (wt.dims[2 + i] - 1) * v->dilation[i];
    padding[2 * i] = reach - v->padding[i];
    padding[2 * i + 1] = x_sizes[2 + i] - 1 - (yt.dims[2 + i] - 1) * v->stride[i] + v->padding[i];
  }
  ir_convolution_attrs attrs = plain_attrs(v);
  attrs.lhs_dilation.data = v->stride;
  attrs.rhs_dilation.data = v->dilation;
  attrs.padding = (ir_i64s){padding, 2 * v->spatial};
  attrs.window_reversal = (ir_flags){reversed, v->spatial};
  attrs.kernel_input_feature_dimension = 0;
  attrs.kernel_output_feature_dimension = 1;
  attrs.feature_group_count = v->groups;
  return convolve(v, y, regroup(v, w), &attrs);
}

/* Here the batch is contracted: x's channels take the batch's place, and the groups divide it. The window is y. */
static ir_value weights_from(const conv *v, ir_value x, ir_value y, const int64_t *w_sizes) {
  ir_type xt = nn_type(v->c, x), yt = nn_type(v->c, y);
  if (!has_elements(v, x, y, xt.rank, w_sizes)) return zeros(v, x, xt.rank, w_sizes);
  int64_t padding[6];
  for (uint32_t i = 0; i < v->spatial; ++i) {
    int64_t window = (yt.dims[2 + i] - 1) * v->stride[i] + 1;
    padding[2 * i] = v->padding[i];
    padding[2 * i + 1] = (w_sizes[2 + i] - 1) * v->dilation[i] + window - xt.dims[2 + i] - v->padding[i];
  }
  ir_convolution_attrs attrs = plain_attrs(v);
  attrs.window_strides.data = v->dilation;
  attrs.rhs_dilation.data = v->stride;
  attrs.padding = (ir_i64s){padding, 2 * v->spatial};
  attrs.input_batch_dimension = 1;
  attrs.input_feature_dimension = 0;
  attrs.kernel_input_feature_dimension = 0;
  attrs.kernel_output_feature_dimension = 1;
  attrs.output_batch_dimension = 1;
  attrs.output_feature_dimension = 0;
  attrs.batch_group_count = v->groups;
  return convolve(v, x, y, &attrs);
}

/* x [N, ..] and w with the bias of argument `bias`, to these sizes. */
static ir_value forward(const conv *v, ir_value x, ir_value w, uint32_t bias, const int64_t *sizes) {
  aten_lowering *c = v->c;
  ir_value y = v->transposed ? small_to_image(v, x, w, sizes) : image_to_small(v, x, w, sizes);
  if (!aten_has(c, bias)) return y;
  return ir_add(c->b, y, nn_along(c, nn_in_as(c, bias, (ttpu_dtype)nn_type(c, y).dtype), 1, y));
}

void lower_convolution(aten_lowering *c) { /* input, weight, bias?, stride, padding, dilation, transposed, .., groups */
  conv v = conv_of(c, 3, aten_meta(c, 0)->rank);
  aten_out(c, 0, forward(&v, aten_in(c, 0), aten_in(c, 1), 2, c->outs[0].sizes));
}

/* grad_output, input, weight; then the geometry from `first`; then the mask. */
static void convolution_backward(aten_lowering *c, uint32_t first) {
  conv v = conv_of(c, first, aten_meta(c, 0)->rank);
  ir_value g = aten_in(c, 0);
  const int64_t *x_sizes = aten_meta(c, 1)->sizes, *w_sizes = aten_meta(c, 2)->sizes;
  if (nn_mask_at(c, first + 6, 0)) {
    ir_value w = aten_in(c, 2);
    aten_out(c, 0, v.transposed ? image_to_small(&v, g, w, x_sizes) : small_to_image(&v, g, w, x_sizes));
  }
  if (nn_mask_at(c, first + 6, 1)) {
    ir_value x = aten_in(c, 1);
    aten_out(c, 1, v.transposed ? weights_from(&v, g, x, w_sizes) : weights_from(&v, x, g, w_sizes));
  }
  if (nn_mask_at(c, first + 6, 2)) aten_out(c, 2, nn_sum_to_dim(c, nn_in(c, 0), 1));
  nn_out_rest(c);
}

void lower_convolution_backward(aten_lowering *c) { convolution_backward(c, 4); }
void lower_convolution_backward_overrideable(aten_lowering *c) { convolution_backward(c, 3); }

/* ---- the operators that PyTorch's CPU convolutions consist of ------------------------------------ */

/* stride and padding are arguments first and first + 1; dilation is another, or none (0). */
static conv slow_conv(aten_lowering *c, uint32_t spatial, bool transposed, uint32_t first, uint32_t dilation) {
  conv v = {.c = c, .spatial = spatial, .groups = 1, .transposed = transposed};
  for (uint32_t i = 0; i < spatial; ++i) {
    v.stride[i] = nn_int_at(c, first, i);
    v.padding[i] = nn_int_at(c, first + 1, i);
    v.dilation[i] = dilation ? nn_int_at(c, dilation, i) : 1;
  }
  return v;
}

/* The weight [Cy, Cx, K..] of argument `arg`, which may be given as a matrix [Cy, Cx * K..]. */
static ir_value slow_weight(const conv *v, uint32_t arg, uint32_t kernel, int64_t channels) {
  const aten_tensor *w = aten_meta(v->c, arg);
  int64_t dims[5] = {w->sizes[0], channels};
  for (uint32_t i = 0; i < v->spatial; ++i) dims[2 + i] = nn_int_at(v->c, kernel, i);
  return w->rank == 2 ? ir_reshape(v->c->b, aten_in(v->c, arg), v->spatial + 2, dims) : aten_in(v->c, arg);
}

/* self (a batch, or one image without), weight, kernel_size, bias?, stride, padding, .. */
static void slow_forward(aten_lowering *c, uint32_t spatial, bool transposed, uint32_t dilation) {
  conv v = slow_conv(c, spatial, transposed, 4, dilation);
  const aten_tensor *x_meta = aten_meta(c, 0), *out = &c->outs[0];
  uint32_t batched = x_meta->rank == spatial + 2;
  int64_t x_sizes[5] = {1}, sizes[5] = {1};
  for (uint32_t i = 0; i < spatial + 1 + batched; ++i) {
    x_sizes[i + 1 - batched] = x_meta->sizes[i];
    sizes[i + 1 - batched] = out->sizes[i];
  }
  ir_value w = slow_weight(&v, 1, 2, x_sizes[1]);
  int64_t fed = nn_type(c, w).dims[1];
  if (!transposed && fed > 0) v.groups = x_sizes[1] / fed;
  aten_out_reshaped(c, 0, forward(&v, ir_reshape(c->b, aten_in(c, 0), spatial + 2, x_sizes), w, 3, sizes));
}

void lower_slow_conv2d(aten_lowering *c) { slow_forward(c, 2, false, 0); }
void lower_slow_conv3d(aten_lowering *c) { slow_forward(c, 3, false, 0); }
void lower_slow_conv_dilated2d(aten_lowering *c) { slow_forward(c, 2, false, 6); }
void lower_slow_conv_dilated3d(aten_lowering *c) { slow_forward(c, 3, false, 6); }
void lower_slow_conv_transpose2d(aten_lowering *c) { slow_forward(c, 2, true, 7); }
void lower_slow_conv_transpose3d(aten_lowering *c) { slow_forward(c, 3, true, 7); }

/* grad_output, self, weight, kernel_size, stride, padding; then the mask, or all are wanted. */
static void slow_backward(aten_lowering *c, bool image, bool weight, bool bias) {
  conv v = slow_conv(c, 2, false, 4, 0);
  ir_value g = aten_in(c, 0), w = slow_weight(&v, 2, 3, aten_meta(c, 1)->sizes[1]);
  if (image) aten_out(c, 0, small_to_image(&v, g, w, aten_meta(c, 1)->sizes));
  if (weight) aten_out_reshaped(c, 1, weights_from(&v, aten_in(c, 1), g, nn_type(c, w).dims));
  if (bias) aten_out(c, 2, nn_sum_to_dim(c, nn_in(c, 0), 1));
}

void lower_slow_conv2d_backward(aten_lowering *c) { slow_backward(c, true, true, true); }
void lower_slow_conv2d_backward_masked(aten_lowering *c) {
  slow_backward(c, nn_mask_at(c, 6, 0), nn_mask_at(c, 6, 1), nn_mask_at(c, 6, 2));
}
