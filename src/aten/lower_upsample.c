/* Resampling. An upsample is separable: along each dimension an output element is a weighted sum of a few inputs, whose
 * positions and weights are a table made on the host in the precision that PyTorch's CPU kernels use (float for all
 * dtypes but double). Its gradient adds through the same table. */
#include "aten/nn_int.h"

#include <math.h>

/* ---- tables -------------------------------------------------------------------------------------------- */

typedef enum { NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LANCZOS } interpolation;
enum { ANTIALIAS = 8 }; /* or-ed to LINEAR, CUBIC, and always to LANCZOS */

/* Output o is the sum over t < taps of weight[t * output + o] * input[at[t * output + o]]. */
typedef struct resampling {
  uint32_t taps;
  int64_t input, output;
  int64_t *at;
  double *weight;
} resampling;

/* Source coordinates in float or double, by the letter of UpSample.h. */
#define COORDINATES(suffix, real, floor_fn)                                              \
  static real scale_##suffix(int64_t input, int64_t output, bool align, double given) {  \
    if (align) return output > 1 ? (real)(input - 1) / (real)(output - 1) : (real)0;     \
    return given > 0 ? (real)(1.0 / given) : (real)input / (real)output;                 \
  }                                                                                      \
  static double source_##suffix(interpolation kind, real scale, int64_t o, bool align) { \
    if (align) return scale * (real)o;                                                   \
    real s = scale * ((real)o + (real)0.5) - (real)0.5;                                  \
    return kind == LINEAR && s < 0 ? 0 : s;                                              \
  }                                                                                      \
  static double fraction_##suffix(double source) { return (real)((real)source - (real)floor_fn((real)source)); }
COORDINATES(f32, float, floorf)
COORDINATES(f64, double, floor)

static int64_t clamp_index(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

/* Keys' cubic convolution with A = -0.75. */
static double cubic_near(double x) { return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1; }
static double cubic_far(double x) { return ((-0.75 * x - 5 * -0.75) * x + 8 * -0.75) * x - 4 * -0.75; }

static void cubic_weights(double t, double w[4]) {
  w[0] = cubic_far(t + 1);
  w[1] = cubic_near(t);
  w[2] = cubic_near(1 - t);
  w[3] = cubic_far(2 - t);
}

/* Nearest neighbours: floor(o * scale), exact ones floor((o + 0.5) * scale), the scale always a float. */
static int64_t nearest(interpolation kind, int64_t o, int64_t input, int64_t output, double given) {
  float scale = given > 0 ? (float)(1.0 / given) : (float)input / (float)output;
  float at = kind == NEAREST ? (float)o * scale : (float)(((double)o + 0.5) * scale);
  int64_t i = (int64_t)floorf(at);
  return i < input - 1 ? i : input - 1;
}

/* PyTorch's nearest kernels take short cuts for a scale of 1 and of 2. */
static int64_t nearest_short(interpolation kind, int64_t o, int64_t input, int64_t output, double given) {
  if (kind == NEAREST && output == input) return o;
  if (kind == NEAREST && output == 2 * input) return o >> 1;
  return nearest(kind, o, input, output, given);
}

static bool antialiasing_of(aten_lowering *c, interpolation kind, int64_t input, int64_t output, bool align,
                            double given, bool wide, resampling *r);

static bool resampling_of(aten_lowering *c, uint32_t how, int64_t input, int64_t output, bool align, double given,
                          bool wide, resampling *r) {
  interpolation kind = (interpolation)(how & ~(uint32_t)ANTIALIAS);
  if (how & ANTIALIAS) return antialiasing_of(c, kind, input, output, align, given, wide, r);
  *r = (resampling){.taps = kind <= NEAREST_EXACT ? 1 : kind == LINEAR ? 2 : 4, .input = input, .output = output};
  r->at = nn_scratch(c, (size_t)output * r->taps, sizeof *r->at);
  r->weight = nn_scratch(c, (size_t)output * r->taps, sizeof *r->weight);
  if (r->at == NULL || r->weight == NULL) return false;
  for (int64_t o = 0; o < output; ++o) {
    if (kind <= NEAREST_EXACT) {
      r->at[o] = nearest_short(kind, o, input, output, given);
      r->weight[o] = 1;
      continue;
    }
    double source = wide ? source_f64(kind, scale_f64(input, output, align, given), o, align)
                         : source_f32(kind, scale_f32(input, output, align, given), o, align);
    if (kind == LINEAR && !align && input == output) source = (double)o; /* PyTorch copies */
    int64_t low = (int64_t)floor(source);
    double t = wide ? fraction_f64(source) : fraction_f32(source);
    if (kind == LINEAR) {
      if (low > input - 1) low = input - 1;
      if (input == output) t = 0, low = o;
      r->at[o] = low;
      r->at[output + o] = low + (low < input - 1);
      r->weight[o] = wide ? 1 - t : (double)(1.0f - (float)t);
      r->weight[output + o] = t;
      continue;
    }
    double w[4];
    cubic_weights(t, w);
    for (int k = 0; k < 4; ++k) {
      r->at[k * output + o] = clamp_index(low - 1 + k, input);
      r->weight[k * output + o] = w[k];
    }
  }
  return true;
}

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

/* Antialiased: a filter as wide as the scale asks, its weights summing to 1 (after Pillow). */
static double filter_at(interpolation kind, double x) {
  x = fabs(x);
  if (kind == LINEAR) return x < 1 ? 1 - x : 0;
  if (kind == LANCZOS) return x < 3 ? sinc(x) * sinc(x / 3) : 0;
  const double a = -0.5; /* not the -0.75 of plain bicubic */
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static bool antialiasing_of(aten_lowering *c, interpolation kind, int64_t input, int64_t output, bool align,
                            double given, bool wide, resampling *r) {
  double scale = wide ? scale_f64(input, output, align, given) : (double)scale_f32(input, output, align, given);
  double half = kind == LINEAR  ? 1
                : kind == CUBIC ? 2
                                : 3,
         support = scale >= 1 ? half * scale : half, inverse = scale >= 1 ? 1 / scale : 1;
  *r = (resampling){.taps = (uint32_t)ceil(support) * 2 + 1, .input = input, .output = output};
  r->at = nn_scratch(c, (size_t)output * r->taps, sizeof *r->at);
  r->weight = nn_scratch(c, (size_t)output * r->taps, sizeof *r->weight);
  if (r->at == NULL || r->weight == NULL) return false;
  for (int64_t o = 0; o < output; ++o) {
    double centre = scale * ((double)o + 0.5), sum = 0;
    int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
    if (low < 0) low = 0;
    if (high > input) high = input;
    for (int64_t k = 0; k < r->taps; ++k) {
      r->at[k * output + o] = clamp_index(low + k, input);
      if (low + k >= high) continue; /* weight 0 */
      sum += r->weight[k * output + o] = filter_at(kind, ((double)(low + k) - centre + 0.5) * inverse);
    }
    for (int64_t k = 0; k < r->taps && sum != 0; ++k) r->weight[k * output + o] /= sum;
  }
  return true;
}

static ir_value resample(aten_lowering *c, ir_value x, uint32_t dim, const resampling *r) {
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value sum = 0;
  for (uint32_t k = 0; k < r->taps; ++k) {
    ir_value v = nn_take(c, x, nn_table_i64(c, (uint32_t)r->output, r->at + k * r->output), dim);
    if (r->taps > 1)
      v = ir_multiply(c->b, v, nn_along(c, nn_table_f64(c, t, (uint32_t)r->output, r->weight + k * r->output), dim, v));
    sum = k == 0 ? v : ir_add(c->b, sum, v);
  }
  return sum;
}

static ir_value resample_backward(aten_lowering *c, ir_value g, uint32_t dim, const resampling *r) {
  ir_type t = nn_type(c, g);
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) sizes[i] = i == dim ? r->input : t.dims[i];
  ir_value sum = ir_fill_i64(c->b, (ttpu_dtype)t.dtype, t.rank, sizes, 0);
  for (uint32_t k = 0; k < r->taps; ++k) {
    ir_value v = g;
    if (r->taps > 1)
      v = ir_multiply(
          c->b, v,
          nn_along(c, nn_table_f64(c, (ttpu_dtype)t.dtype, (uint32_t)r->output, r->weight + k * r->output), dim, v));
    sum = nn_index_update(c, sum, nn_table_i64(c, (uint32_t)r->output, r->at + k * r->output), v, dim, IR_ADD);
  }
  return sum;
}

/* ---- upsample --------------------------------------------------------------------------------------------- */

/* The scale given for spatial dim i by optional float arguments from `first`; 0: none. */
static double scale_at(const aten_lowering *c, uint32_t first, uint32_t i) {
  return aten_has(c, first + i) ? aten_static(c, first + i) : 0;
}

/* Images of bytes are interpolated in f32 and rounded after each dimension, as CPU's kernels (which count in int16
 * fractions, so that the last bit may differ) do. */
static ir_value rounded(aten_lowering *c, ir_value x) {
  ttpu_dtype out = (ttpu_dtype)c->outs[0].dtype;
  if (!base_dtype_is_integer(out) || !base_dtype_is_float((ttpu_dtype)nn_type(c, x).dtype)) return x;
  x = ir_round_nearest_even(c->b, x);
  if (out != TTPU_U8) return x;
  return ir_clamp(c->b, ir_scalar_i64(c->b, TTPU_F32, 0), x, ir_scalar_i64(c->b, TTPU_F32, 255)); /* cubic overshoots */
}

static void upsample(aten_lowering *c, uint32_t kind, uint32_t spatial) { /* self, output_size, [align], scales.. */
  bool smooth = kind > NEAREST_EXACT;
  const aten_tensor *out = &c->outs[0];
  if (base_numel(out->rank, out->sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)out->dtype));
    return;
  }
  ir_value x = smooth ? nn_in(c, 0) : aten_in(c, 0);
  if (smooth && base_dtype_is_integer((ttpu_dtype)nn_type(c, x).dtype)) x = ir_convert(c->b, x, TTPU_F32);
  bool wide = nn_type(c, x).dtype == TTPU_F64, align = smooth && aten_int(c, 2);
  for (uint32_t i = spatial; i-- > 0;) {
    resampling r;
    if (!resampling_of(c, kind, nn_type(c, x).dims[2 + i], out->sizes[2 + i], align, scale_at(c, smooth ? 3 : 2, i),
                       wide, &r))
      return;
    x = rounded(c, resample(c, x, 2 + i, &r));
  }
  aten_out(c, 0, x);
}

static void upsample_backward(aten_lowering *c, uint32_t kind,
                              uint32_t spatial) { /* grad, output_size, input_size, [align], scales.. */
  bool smooth = kind > NEAREST_EXACT;
  const aten_tensor *out = &c->outs[0];
  ir_value g = nn_in(c, 0);
  if (base_numel(out->rank, out->sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)out->dtype));
    return;
  }
  bool wide = nn_type(c, g).dtype == TTPU_F64, align = smooth && aten_int(c, 3);
  for (uint32_t i = 0; i < spatial; ++i) {
    resampling r;
    if (!resampling_of(c, kind, out->sizes[2 + i], nn_type(c, g).dims[2 + i], align, scale_at(c, smooth ? 4 : 3, i),
                       wide, &r))
      return;
    g = resample_backward(c, g, 2 + i, &r);
  }
  aten_out(c, 0, g);
}

void lower_upsample_nearest1d(aten_lowering *c) { upsample(c, NEAREST, 1); }
void lower_upsample_nearest2d(aten_lowering *c) { upsample(c, NEAREST, 2); }
void lower_upsample_nearest3d(aten_lowering *c) { upsample(c, NEAREST, 3); }
void lower_upsample_nearest_exact1d(aten_lowering *c) { upsample(c, NEAREST_EXACT, 1); }
void lower_upsample_nearest_exact2d(aten_lowering *c) { upsample(c, NEAREST_EXACT, 2); }
void lower_upsample_nearest_exact3d(aten_lowering *c) { upsample(c, NEAREST_EXACT, 3); }
void lower_upsample_linear1d(aten_lowering *c) { upsample(c, LINEAR, 1); }
void lower_upsample_bilinear2d(aten_lowering *c) { upsample(c, LINEAR, 2); }
void lower_upsample_trilinear3d(aten_lowering *c) { upsample(c, LINEAR, 3); }
void lower_upsample_bicubic2d(aten_lowering *c) { upsample(c, CUBIC, 2); }
void lower_upsample_nearest1d_backward(aten_lowering *c) { upsample_backward(c, NEAREST, 1); }
void lower_upsample_nearest2d_backward(aten_lowering *c) { upsample_backward(c, NEAREST, 2); }
void lower_upsample_nearest3d_backward(aten_lowering *c) { upsample_backward(c, NEAREST, 3); }
void lower_upsample_nearest_exact1d_backward(aten_lowering *c) { upsample_backward(c, NEAREST_EXACT, 1); }
void lower_upsample_nearest_exact2d_backward(aten_lowering *c) { upsample_backward(c, NEAREST_EXACT, 2); }
void lower_upsample_nearest_exact3d_backward(aten_lowering *c) { upsample_backward(c, NEAREST_EXACT, 3); }
void lower_upsample_linear1d_backward(aten_lowering *c) { upsample_backward(c, LINEAR, 1); }
void lower_upsample_bilinear2d_backward(aten_lowering *c) { upsample_backward(c, LINEAR, 2); }
void lower_upsample_trilinear3d_backward(aten_lowering *c) { upsample_backward(c, LINEAR, 3); }
void lower_upsample_bicubic2d_backward(aten_lowering *c) { upsample_backward(c, CUBIC, 2); }
void lower_upsample_bilinear2d_aa(aten_lowering *c) { upsample(c, LINEAR | ANTIALIAS, 2); }
void lower_upsample_bicubic2d_aa(aten_lowering *c) { upsample(c, CUBIC | ANTIALIAS, 2); }
void lower_upsample_bilinear2d_aa_backward(aten_lowering *c) { upsample_backward(c, LINEAR | ANTIALIAS, 2); }
void lower_upsample_bicubic2d_aa_backward(aten_lowering *c) { upsample_backward(c, CUBIC | ANTIALIAS, 2); }
void lower_upsample_lanczos2d_aa(aten_lowering *c) { upsample(c, LANCZOS | ANTIALIAS, 2); }
void lower_upsample_lanczos2d_aa_backward(aten_lowering *c) { upsample_backward(c, LANCZOS | ANTIALIAS, 2); }
