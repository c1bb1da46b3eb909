/* grid_sampler: an image read at positions that are data, and its gradients.
 *
 * Along each axis a position becomes a few taps: pixel numbers with weights, and the weights' slopes with respect to
 * the grid's number. A sample is the sum over the taps' product; what lies outside counts 0. input [N, C, D.., ], grid
 * [N, O.., axes], whose last dim names the innermost axis first. Everything is done over [N, P], P positions. */
#include "aten/nn_int.h"

#include <math.h>

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };

typedef struct axis {
  uint32_t taps;
  ir_value at[4];     /* i64, a pixel; 0 where outside */
  ir_value inside[4]; /* bool */
  ir_value weight[4], slope[4];
} axis;

typedef struct sampler {
  aten_lowering *c;
  uint32_t axes;
  int64_t n, channels, area, positions, sizes[3]; /* of the image, outermost first */
  int64_t interpolation, padding;
  bool align;
  ttpu_dtype math;
  ir_value input; /* [N, C, area] */
  axis axis[3];
} sampler;

/* ---- positions --------------------------------------------------------------------------------------- */

/* x clipped into [0, size - 1]; *slope is 0 where it was. */
static ir_value clip(aten_lowering *c, ir_value x, int64_t size, ir_value *slope) {
  ir_value low = nn_const(c, x, 0), high = nn_const(c, x, (double)(size - 1));
  ir_value moves = ir_and_bits(c->b, ir_compare(c->b, IR_GT, x, low), ir_compare(c->b, IR_LT, x, high));
  *slope = ir_select(c->b, moves, *slope, nn_const(c, x, 0));
  return ir_minimum(c->b, ir_maximum(c->b, x, low), high);
}

/* x mirrored at the borders until it is inside. */
static ir_value reflect(aten_lowering *c, ir_value x, int64_t size, bool align, ir_value *slope) {
  double low = align ? 0 : -0.5, high = align ? (double)(size - 1) : (double)size - 0.5, span = high - low;
  if (span <= 0) {
    *slope = nn_const(c, x, 0);
    return nn_const(c, x, 0);
  }
  ir_value from = nn_add_f64(c, x, -low), negative = nn_compare_f64(c, IR_LT, from, 0);
  from = ir_abs(c->b, from);
  ir_value width = nn_const(c, from, span), rest = ir_remainder(c->b, from, width);
  ir_value flips = ir_floor(c->b, ir_divide(c->b, from, width));
  ir_value odd = nn_compare_f64(c, IR_NE, ir_remainder(c->b, flips, nn_const(c, flips, 2)), 0);
  *slope = ir_select(c->b, negative, ir_negate(c->b, *slope), *slope);
  *slope = ir_select(c->b, odd, ir_negate(c->b, *slope), *slope);
  return nn_add_f64(c, ir_select(c->b, odd, ir_subtract(c->b, width, rest), rest), low);
}

static ir_value pad_position(const sampler *s, ir_value x, int64_t size, ir_value *slope) {
  if (s->padding == ZEROS) return x;
  if (s->padding == REFLECTION) x = reflect(s->c, x, size, s->align, slope);
  return clip(s->c, x, size, slope);
}

/* Tap k at the whole-numbered position x. */
static void set_tap(const sampler *s, axis *a, uint32_t k, ir_value x, int64_t size) {
  aten_lowering *c = s->c;
  a->inside[k] = ir_and_bits(c->b, nn_compare_f64(c, IR_GE, x, 0), nn_compare_f64(c, IR_LE, x, (double)(size - 1)));
  a->at[k] = ir_convert(c->b, ir_select(c->b, a->inside[k], x, nn_const(c, x, 0)), TTPU_I64);
}

/* Keys' cubic and its derivative, A = -0.75: of distance d in [0, 1] and in [1, 2]. */
static ir_value polynomial(aten_lowering *c, ir_value d, double c3, double c2, double c1, double c0) {
  ir_value r = nn_add_f64(c, nn_mul_f64(c, d, c3), c2);
  r = nn_add_f64(c, ir_multiply(c->b, r, d), c1);
  return nn_add_f64(c, ir_multiply(c->b, r, d), c0);
}

static void cubic_axis(const sampler *s, axis *a, ir_value x, ir_value slope, int64_t size) {
  aten_lowering *c = s->c;
  const double A = -0.75;
  ir_value low = ir_floor(c->b, x), t = ir_subtract(c->b, x, low);
  a->taps = 4;
  for (uint32_t k = 0; k < 4; ++k) {
    ir_value ignored = slope, at = nn_add_f64(c, low, (double)k - 1);
    set_tap(s, a, k, s->padding == ZEROS ? at : ir_floor(c->b, pad_position(s, at, size, &ignored)), size);
    /* distance to the tap, and the sign with which it grows with t */
    ir_value d = k < 2 ? nn_add_f64(c, t, 1 - (double)k) : ir_subtract(c->b, nn_const(c, t, (double)k - 1), t);
    bool far = k == 0 || k == 3;
    a->weight[k] = far ? polynomial(c, d, A, -5 * A, 8 * A, -4 * A) : polynomial(c, d, A + 2, -(A + 3), 0, 1);
    ir_value steep =
        far ? polynomial(c, d, 0, 3 * A, -10 * A, 8 * A) : polynomial(c, d, 0, 3 * (A + 2), -2 * (A + 3), 0);
    if (k >= 2) steep = ir_negate(c->b, steep);
    a->slope[k] = ir_multiply(c->b, steep, slope);
  }
}

/* Fills axis i (outermost first) from the grid's numbers. */
static void axis_of(sampler *s, uint32_t i, ir_value grid) {
  aten_lowering *c = s->c;
  int64_t size = s->sizes[i];
  axis *a = &s->axis[i];
  double step = s->align ? (double)(size - 1) / 2 : (double)size / 2;
  ir_value x = nn_add_f64(c, grid, 1), slope = nn_const(c, x, step);
  if (s->align) x = nn_mul_f64(c, nn_mul_f64(c, x, 0.5), (double)(size - 1));
  else x = nn_mul_f64(c, nn_add_f64(c, nn_mul_f64(c, x, (double)size), -1), 0.5);
  if (s->interpolation == BICUBIC) {
    cubic_axis(s, a, x, slope, size);
    return;
  }
  x = pad_position(s, x, size, &slope);
  if (s->interpolation == NEAREST) {
    a->taps = 1;
    set_tap(s, a, 0, ir_round_nearest_even(c->b, x), size);
    a->weight[0] = nn_const(c, x, 1);
    a->slope[0] = nn_const(c, x, 0);
    return;
  }
  ir_value low = ir_floor(c->b, x), t = ir_subtract(c->b, x, low);
  a->taps = 2;
  set_tap(s, a, 0, low, size);
  set_tap(s, a, 1, nn_add_f64(c, low, 1), size);
  a->weight[0] = ir_subtract(c->b, nn_const(c, t, 1), t);
  a->weight[1] = t;
  a->slope[0] = ir_negate(c->b, slope);
  a->slope[1] = slope;
}

/* input, grid, interpolation, padding, align_corners are arguments first, first + 1, ... */
static bool sampler_of(aten_lowering *c, uint32_t first, uint32_t axes, sampler *s) {
  const aten_tensor *x = aten_meta(c, first), *g = aten_meta(c, first + 1);
  *s = (sampler){.c = c,
                 .axes = axes,
                 .n = x->sizes[0],
                 .channels = x->sizes[1],
                 .interpolation = aten_int(c, first + 2),
                 .padding = aten_int(c, first + 3),
                 .align = aten_int(c, first + 4) != 0,
                 .math = aten_math_dtype((ttpu_dtype)x->dtype)};
  s->area = base_numel(axes, x->sizes + 2);
  s->positions = base_numel(axes, g->sizes + 1);
  if (s->n == 0 || s->channels == 0 || s->area == 0 || s->positions == 0) return false;
  s->input = nn_reshape3(c, nn_in_as(c, first, s->math), s->n, s->channels, s->area);
  ir_value grid = nn_reshape3(c, nn_in_as(c, first + 1, s->math), s->n, s->positions, axes);
  for (uint32_t i = 0; i < axes; ++i) {
    s->sizes[i] = x->sizes[2 + i];
    uint32_t number = axes - 1 - i;
    axis_of(s, i, nn_reshape2(c, ir_slice_dim(c->b, grid, 2, number, number + 1, 1), s->n, s->positions));
  }
  return true;
}

/* ---- taps' products -------------------------------------------------------------------------------------- */

typedef struct corner {
  ir_value index;    /* [N, C, P] i64, flat in the image */
  ir_value weight;   /* [N, P], 0 outside */
  ir_value slope[3]; /* [N, P]: of the weight, by axis */
} corner;

static uint32_t corner_count(const sampler *s) {
  uint32_t n = 1;
  for (uint32_t i = 0; i < s->axes; ++i) n *= s->axis[i].taps;
  return n;
}

static corner corner_at(const sampler *s, uint32_t number) {
  aten_lowering *c = s->c;
  uint32_t tap[3] = {0};
  for (uint32_t i = s->axes; i-- > 0; number /= s->axis[i].taps) tap[i] = number % s->axis[i].taps;
  corner r = {0};
  ir_value flat = s->axis[0].at[tap[0]], inside = s->axis[0].inside[tap[0]];
  r.weight = s->axis[0].weight[tap[0]];
  for (uint32_t i = 1; i < s->axes; ++i) {
    const axis *a = &s->axis[i];
    flat = ir_add(c->b, nn_mul_f64(c, flat, (double)s->sizes[i]), a->at[tap[i]]);
    inside = ir_and_bits(c->b, inside, a->inside[tap[i]]);
    r.weight = ir_multiply(c->b, r.weight, a->weight[tap[i]]);
  }
  ir_value zero = nn_const(c, r.weight, 0);
  r.weight = ir_select(c->b, inside, r.weight, zero);
  for (uint32_t i = 0; i < s->axes; ++i) {
    ir_value slope = s->axis[i].slope[tap[i]];
    for (uint32_t k = 0; k < s->axes; ++k)
      if (k != i) slope = ir_multiply(c->b, slope, s->axis[k].weight[tap[k]]);
    r.slope[i] = ir_select(c->b, inside, slope, zero);
  }
  int64_t dims[3] = {s->n, s->channels, s->positions};
  r.index = ir_broadcast_in_dim(c->b, flat, 3, dims, (int64_t[]){0, 2});
  return r;
}

/* [N, P] over all channels. */
static ir_value per_channel(const sampler *s, ir_value v) {
  int64_t dims[3] = {s->n, s->channels, s->positions};
  return ir_broadcast_in_dim(s->c->b, v, 3, dims, (int64_t[]){0, 2});
}

static void sample(aten_lowering *c, uint32_t axes) {
  sampler s;
  if (!sampler_of(c, 0, axes, &s)) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
    return;
  }
  ir_value sum = 0;
  for (uint32_t k = 0; k < corner_count(&s); ++k) {
    corner r = corner_at(&s, k);
    ir_value v = ir_multiply(c->b, ir_take_along(c->b, s.input, r.index, 2), per_channel(&s, r.weight));
    sum = k == 0 ? v : ir_add(c->b, sum, v);
  }
  aten_out(c, 0, ir_reshape(c->b, sum, c->outs[0].rank, c->outs[0].sizes));
}

static void sample_backward(aten_lowering *c, uint32_t axes) { /* grad, input, grid, .., mask */
  sampler s;
  if (!sampler_of(c, 1, axes, &s)) {
    nn_out_rest(c);
    return;
  }
  ir_value g = nn_reshape3(c, nn_in_as(c, 0, s.math), s.n, s.channels, s.positions);
  ir_value image = ir_fill_i64(c->b, s.math, 3, (int64_t[]){s.n, s.channels, s.area}, 0), slopes[3] = {0};
  for (uint32_t k = 0; k < corner_count(&s); ++k) {
    corner r = corner_at(&s, k);
    image = nn_scatter_along(c, image, r.index, ir_multiply(c->b, g, per_channel(&s, r.weight)), 2, IR_ADD);
    ir_value by_value =
        nn_reduce_dim(c, IR_ADD, ir_multiply(c->b, g, ir_take_along(c->b, s.input, r.index, 2)), 1, false);
    for (uint32_t i = 0; i < axes; ++i) {
      ir_value v = ir_multiply(c->b, by_value, r.slope[i]);
      slopes[i] = k == 0 ? v : ir_add(c->b, slopes[i], v);
    }
  }
  if (nn_mask_at(c, 6, 0)) aten_out(c, 0, ir_reshape(c->b, image, c->outs[0].rank, c->outs[0].sizes));
  ir_value columns[3];
  for (uint32_t i = 0; i < axes; ++i) columns[axes - 1 - i] = nn_reshape3(c, slopes[i], s.n, s.positions, 1);
  aten_out(c, 1, ir_reshape(c->b, ir_concatenate(c->b, axes, columns, 2), c->outs[1].rank, c->outs[1].sizes));
  nn_out_rest(c);
}

void lower_grid_sampler_2d(aten_lowering *c) { sample(c, 2); }
void lower_grid_sampler_3d(aten_lowering *c) { sample(c, 3); }
void lower_grid_sampler_2d_backward(aten_lowering *c) { sample_backward(c, 2); }
void lower_grid_sampler_3d_backward(aten_lowering *c) { sample_backward(c, 3); }
