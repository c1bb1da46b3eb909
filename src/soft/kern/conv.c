/* Convolution: from the public struct to plain convolutions (one per phase of a dilated input), and from there to an
 * implicit matrix product. */
#include "soft/kern/conv.h"

#include <stdlib.h>
#include <string.h>

#include "soft/kern/conv_int.h"
#include "soft/kern/scratch.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- input ----------------------------------------------------------------------------------- */

static ttpu_status check(const kern_conv *c) {
  const ttpu_dtype kernel_dtype = c->kernel_dtype ? c->kernel_dtype : c->dtype;
  if (c->spatial < 0 || c->spatial > KERN_CONV_SPATIAL)
    return base_fail(TTPU_UNIMPLEMENTED, "convolution: %d spatial dimensions, at most %d", c->spatial,
                     KERN_CONV_SPATIAL);
  if (!gemm_kernel_get(c->dtype, kernel_dtype, c->out_dtype, c->precision))
    return base_fail(TTPU_INVALID_ARGUMENT, "convolution: no product of dtypes %d and %d into %d", (int)c->dtype,
                     (int)kernel_dtype, (int)c->out_dtype);
  if (c->batch < 0 || c->in_features < 0 || c->out_features < 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "convolution: negative size: batch %lld, features %lld to %lld",
                     (long long)c->batch, (long long)c->in_features, (long long)c->out_features);
  if (c->groups < 1 || c->batch_groups < 1 || (c->groups > 1 && c->batch_groups > 1))
    return base_fail(TTPU_INVALID_ARGUMENT,
                     "convolution: feature_group_count %lld and batch_group_count %lld: both are "
                     "at least 1 and one of them is 1",
                     (long long)c->groups, (long long)c->batch_groups);
  if (c->in_features % c->groups || c->out_features % c->groups || c->out_features % c->batch_groups ||
      c->batch % c->batch_groups)
    return base_fail(TTPU_INVALID_ARGUMENT,
                     "convolution: batch %lld and features %lld to %lld do not divide into %lld "
                     "feature groups and %lld batch groups",
                     (long long)c->batch, (long long)c->in_features, (long long)c->out_features, (long long)c->groups,
                     (long long)c->batch_groups);
  for (int d = 0; d < c->spatial; ++d) {
    if (c->in_size[d] < 0 || c->kernel_size[d] < 0 || c->out_size[d] < 0)
      return base_fail(TTPU_INVALID_ARGUMENT, "convolution: negative size in spatial dimension %d", d);
    if (c->window_stride[d] < 1 || c->lhs_dilation[d] < 1 || c->rhs_dilation[d] < 1)
      return base_fail(TTPU_INVALID_ARGUMENT,
                       "convolution: stride and dilations of spatial dimension %d must be "
                       "positive: %lld, %lld, %lld",
                       d, (long long)c->window_stride[d], (long long)c->lhs_dilation[d], (long long)c->rhs_dilation[d]);
  }
  if (c->bias && (c->bias_dtype <= TTPU_NO_DTYPE || c->bias_dtype >= TTPU_DTYPE_COUNT))
    return base_fail(TTPU_INVALID_ARGUMENT, "convolution: the bias has no dtype");
  return TTPU_OK;
}

static bool is_empty(const kern_conv *c) {
  bool empty = c->batch == 0 || c->out_features == 0;
  for (int d = 0; d < c->spatial; ++d) empty |= c->out_size[d] == 0;
  return empty;
}

/* One element, one tap, one result: the dimension says nothing. */
static bool is_trivial(const kern_conv *c, int d) {
  return c->in_size[d] == 1 && c->kernel_size[d] == 1 && c->out_size[d] == 1 && c->pad_low[d] == 0;
}

/* Everything but the dilation of the input, which goes to lhs_dilation. The dimensions that say something come last: the
 * innermost is copied by rows, and an image of one column would have rows of one element. */
static conv_plain flatten(const kern_conv *c, int64_t lhs_dilation[3]) {
  const int64_t groups = c->groups * c->batch_groups;
  conv_plain p = {
      .dtype = c->dtype,
      .kernel_dtype = c->kernel_dtype ? c->kernel_dtype : c->dtype,
      .out_dtype = c->out_dtype,
      .precision = c->precision,
      .groups = groups,
      .images = c->batch / c->batch_groups,
      .channels = c->in_features / c->groups,
      .features = c->out_features / groups,
      .in = c->in,
      .kernel = c->kernel,
      .kernel_packed = c->kernel_packed,
      .out = c->out,
      .in_image = c->in_batch,
      .in_channel = c->in_feature,
      .kernel_channel = c->kernel_in,
      .kernel_feature = c->kernel_out,
      .out_image = c->out_batch,
      .out_feature = c->out_feature,
      .bias = c->bias,
      .bias_dtype = c->bias_dtype,
      .epilogue = c->epilogue,
      .epilogue_ctx = c->epilogue_ctx,
  };
  p.in_group = c->groups > 1 ? p.channels * c->in_feature : p.images * c->in_batch;
  p.kernel_group = p.features * c->kernel_out;
  p.out_group = p.features * c->out_feature;
  int origin[3] = {-1, -1, -1}, at = 3;
  for (int d = c->spatial - 1; d >= 0; --d)
    if (!is_trivial(c, d)) origin[--at] = d;
  for (int d = 0; d < 3; ++d) {
    const int from = origin[d];
    const bool real = from >= 0;
    p.in_size[d] = real ? c->in_size[from] : 1;
    p.taps[d] = real ? c->kernel_size[from] : 1;
    p.out_size[d] = p.whole_size[d] = real ? c->out_size[from] : 1;
    p.stride[d] = real ? c->window_stride[from] : 1;
    p.pad[d] = real ? c->pad_low[from] : 0;
    p.dilation[d] = real ? c->rhs_dilation[from] : 1;
    p.in_spatial[d] = real ? c->in_spatial[from] : 0;
    p.kernel_spatial[d] = real ? c->kernel_spatial[from] : 0;
    p.out_spatial[d] = real ? c->out_spatial[from] : 0;
    p.phase_step[d] = 1;
    lhs_dilation[d] = real ? c->lhs_dilation[from] : 1;
    if (real && c->reversal[from] && p.taps[d] > 0) {
      p.kernel += (p.taps[d] - 1) * p.kernel_spatial[d] * (int64_t)base_dtype_bytes(p.kernel_dtype);
      p.kernel_spatial[d] = -p.kernel_spatial[d];
    }
  }
  return p;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

/* The outputs x = r + L*x' of a dimension whose input is dilated by L. Tap w meets a real input element when
 * r*stride + w*dilation - pad is a multiple of L, that is for w = w0 + (L/g)*w', g = gcd(dilation, L), or for no w;
 * then its index is x'*stride + w'*dilation/g + (r*stride + w0*dilation - pad)/L: a plain dimension again. */
static void take_phase(conv_plain *p, int d, int64_t r, int64_t dilation) {
  const int64_t g = common_divisor(p->dilation[d], dilation), step = dilation / g;
  int64_t first = -1;
  for (int64_t w = 0; w < step && first < 0; ++w)
    if ((r * p->stride[d] + w * p->dilation[d] - p->pad[d]) % dilation == 0) first = w;
  p->out += r * p->out_spatial[d] * (int64_t)base_dtype_bytes(p->out_dtype);
  p->out_size[d] = (p->out_size[d] - r + dilation - 1) / dilation;
  p->out_spatial[d] *= dilation;
  p->phase_offset[d] = r;
  p->phase_step[d] = dilation;
  if (first < 0 || first >= p->taps[d]) {
    p->taps[d] = 0;
  } else {
    p->kernel += first * p->kernel_spatial[d] * (int64_t)base_dtype_bytes(p->kernel_dtype);
    p->pad[d] = -(r * p->stride[d] + first * p->dilation[d] - p->pad[d]) / dilation;
    p->taps[d] = (p->taps[d] - first + step - 1) / step;
    p->kernel_spatial[d] *= step;
    p->dilation[d] /= g;
  }
}

/* ---- one plain convolution as a matrix product ------------------------------------------------- */

/* Do these dimensions, outermost first, make one with a single stride? Sizes of 1 do not matter. */
static bool collapses(int count, const int64_t *sizes, const int64_t *strides, int64_t *stride) {
  int64_t next = -1, total = 1;
  *stride = 0;
  for (int d = count - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (next < 0) *stride = strides[d];
    else if (strides[d] != *stride * total) return false;
    next = d;
    total *= sizes[d];
  }
  return true;
}

typedef struct conv_plan {
  gemm_job job;
  conv_patches patches;
  conv_window window;
  bool windowed; /* positions are read through the window */
  bool features_in_rows;
  int64_t first_image; /* of those that the job does */
  bool scatter;        /* positions have no single stride in the output */
  size_t kernel_bytes; /* of a copy in the order of k, where the kernel has no single stride in it; else 0 */
} conv_plan;

/* The window covers single pixels and those have one stride: the input is a matrix as it lies. */
static bool pixels_are_matrix(const conv_plain *c, bool per_image, int64_t *stride) {
  int64_t sizes[4], strides[4];
  for (int d = 0; d < 3; ++d) {
    if (c->taps[d] != 1 || c->pad[d] > 0) return false;
    if ((c->out_size[d] - 1) * c->stride[d] - c->pad[d] >= c->in_size[d]) return false;
    sizes[d + 1] = c->out_size[d];
    strides[d + 1] = c->in_spatial[d] * c->stride[d];
  }
  sizes[0] = per_image ? 1 : c->images;
  strides[0] = c->in_image;
  return collapses(4, sizes, strides, stride);
}

static void store_positions(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                            const void *tile, int64_t tile_stride);
static void call_epilogue(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *tile,
                          int64_t tile_stride);

static void plan_positions(const conv_plain *c, conv_plan *p) {
  gemm_operand *o = p->features_in_rows ? &p->job.b : &p->job.a;
  const bool per_image = p->patches.per_image;
  int64_t stride;
  o->dtype = c->dtype;
  if (p->windowed) {
    o->window = &p->window.window;
    return;
  }
  if (pixels_are_matrix(c, per_image, &stride)) {
    int64_t first = 0;
    for (int d = 0; d < 3; ++d) first -= c->pad[d] * c->in_spatial[d];
    *o = (gemm_operand){.dtype = c->dtype,
                        .data = c->in + first * (int64_t)base_dtype_bytes(c->dtype),
                        .line = stride,
                        .k = c->in_channel,
                        .batch = per_image ? c->in_image : c->in_group};
    return;
  }
  const int64_t inner = p->patches.channels_inner ? c->channels : c->taps[2];
  const int64_t k_step = p->patches.channels_inner ? c->in_channel : c->in_spatial[2] * c->dilation[2];
  const int64_t lane_step = c->in_spatial[2] * c->stride[2];
  p->patches.by_k = inner > c->out_size[2] || (k_step == 1 && llabs(lane_step) > 2 && inner >= 8);
  o->pack = conv_pack_positions;
  o->data = &p->patches;
}

/* Channels that stand together in k, behind the taps. */
static int64_t grouped_channels(const conv_plan *p) {
  return p->windowed && !p->patches.channels_inner ? p->job.kernel->kr : 1;
}

static void plan_kernel(const conv_plain *c, conv_plan *p, const void *copy) {
  gemm_operand *o = p->features_in_rows ? &p->job.a : &p->job.b;
  int64_t sizes[4], strides[4], stride;
  const int channel_at = p->patches.channels_inner ? 3 : 0;
  sizes[channel_at] = c->channels;
  strides[channel_at] = c->kernel_channel;
  for (int d = 0, at = channel_at == 0; d < 3; ++d, ++at) {
    sizes[at] = c->taps[d];
    strides[at] = c->kernel_spatial[d];
  }
  const bool in_order = grouped_channels(p) == 1 && collapses(4, sizes, strides, &stride);
  p->kernel_bytes = 0;
  o->dtype = c->kernel_dtype;
  if (in_order) {
    o->data = c->kernel;
    o->line = c->kernel_feature;
    o->k = stride;
    o->batch = c->kernel_group;
  } else {
    const size_t elements = (size_t)(c->groups * c->features * p->job.k);
    p->kernel_bytes = (elements * base_dtype_bytes(c->kernel_dtype) + 63) / 64 * 64;
    o->data = copy;
    o->line = p->job.k;
    o->k = 1;
    o->batch = c->features * p->job.k;
  }
}

static void plan(const conv_plain *c, conv_plan *p, const void *copy) {
  memset(p, 0, sizeof *p);
  const int64_t pixels = c->out_size[0] * c->out_size[1] * c->out_size[2];
  int64_t sizes[4] = {c->images, c->out_size[0], c->out_size[1], c->out_size[2]};
  int64_t strides[4] = {c->out_image, c->out_spatial[0], c->out_spatial[1], c->out_spatial[2]};
  int64_t all_stride = 0, pixel_stride = 0;
  const bool all = collapses(4, sizes, strides, &all_stride);
  const bool pixels_only = collapses(3, sizes + 1, strides + 1, &pixel_stride);
  /* Images one by one when that makes C a matrix and they are large enough to fill panels; a single group only, so that
   * the batch steps over one thing. */
  p->patches.kernel = gemm_kernel_get(c->dtype, c->kernel_dtype, c->out_dtype, c->precision);
  p->patches.channels_inner = c->in_channel == 1 && c->channels >= 4 && c->in_spatial[2] != 1;
  p->windowed = pixels_only && conv_window_plan(c, p->patches.kernel, p->patches.channels_inner, &p->window);
  const bool per_image = p->windowed || (!all && pixels_only && pixels >= 192 && c->groups == 1);
  p->scatter = !all && !per_image;
  p->features_in_rows = !p->windowed && !(c->out_feature == 1 && c->features >= 8);
  p->patches.conv = c;
  p->patches.side = p->features_in_rows ? GEMM_B : GEMM_A;
  p->patches.per_image = per_image;

  gemm_job *j = &p->job;
  const int64_t positions = per_image ? pixels : pixels * c->images;
  const int64_t position_stride = per_image ? pixel_stride : all_stride;
  j->kernel = p->patches.kernel;
  j->batch = per_image ? c->images : c->groups;
  j->k = (p->windowed ? p->window.channel_groups * j->kernel->kr : c->channels) * c->taps[0] * c->taps[1] * c->taps[2];
  j->m = p->features_in_rows ? c->features : positions;
  j->n = p->features_in_rows ? positions : c->features;
  j->out = c->out_dtype;
  j->c = c->out;
  j->c_row = p->features_in_rows ? c->out_feature : position_stride;
  j->c_col = p->features_in_rows ? position_stride : c->out_feature;
  j->c_batch = per_image ? c->out_image : c->out_group;
  j->bias = c->bias;
  j->bias_dtype = c->bias_dtype;
  j->bias_rows = p->features_in_rows;
  j->bias_batch = per_image ? 0 : c->features;
  plan_positions(c, p);
  plan_kernel(c, p, copy);
  if (per_image) (p->features_in_rows ? &j->a : &j->b)->batch = 0;
  if (p->scatter) {
    j->store = store_positions;
    j->store_ctx = p;
  }
  if (c->epilogue) {
    j->epilogue = call_epilogue;
    j->epilogue_ctx = p;
  }
}

/* ---- storing --------------------------------------------------------------------------------- */

/* Output pixels of a tile, run by run along the innermost dimension. */
static void store_positions(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                            const void *tile, int64_t tile_stride) {
  const conv_plan *p = ctx;
  const conv_plain *c = p->patches.conv;
  const ttpu_dtype acc = p->job.kernel->acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc), ob = (int64_t)base_dtype_bytes(c->out_dtype);
  const bool in_rows = p->features_in_rows;
  const int64_t first = in_rows ? col0 : row0, positions = in_rows ? cols : rows;
  const int64_t feature0 = in_rows ? row0 : col0, features = in_rows ? rows : cols;
  char *out = c->out + (batch * c->out_group + feature0 * c->out_feature) * ob;
  for (int64_t i = 0; i < positions;) {
    const int64_t x = (first + i) % c->out_size[2], run = min64(c->out_size[2] - x, positions - i);
    int64_t rest = (first + i) / c->out_size[2];
    const int64_t y = rest % c->out_size[1];
    rest /= c->out_size[1];
    char *to = out + (rest / c->out_size[0] * c->out_image + rest % c->out_size[0] * c->out_spatial[0] +
                      y * c->out_spatial[1] + x * c->out_spatial[2]) *
                         ob;
    if (in_rows) {
      for (int64_t f = 0; f < features; ++f)
        gemm_store_row(acc, c->out_dtype, run, (const char *)tile + (f * tile_stride + i) * ab,
                       to + f * c->out_feature * ob, c->out_spatial[2]);
    } else {
      for (int64_t r = 0; r < run; ++r)
        gemm_store_row(acc, c->out_dtype, features, (const char *)tile + (i + r) * tile_stride * ab,
                       to + r * c->out_spatial[2] * ob, c->out_feature);
    }
    i += run;
  }
}

static bool has_phases(const conv_plain *c) {
  return c->phase_step[0] != 1 || c->phase_step[1] != 1 || c->phase_step[2] != 1;
}

/* Positions of this (phase of a) convolution to those of the whole one; a run of positions at a time. */
static void call_epilogue(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *tile,
                          int64_t tile_stride) {
  const conv_plan *p = ctx;
  const conv_plain *c = p->patches.conv;
  const int64_t ab = (int64_t)base_dtype_bytes(p->job.kernel->acc);
  const bool in_rows = p->features_in_rows;
  int64_t first = in_rows ? col0 : row0, positions = in_rows ? cols : rows;
  int64_t feature0 = in_rows ? row0 : col0;
  const int64_t features = in_rows ? rows : cols;
  const int64_t feature_stride = in_rows ? tile_stride : 1, position_stride = in_rows ? 1 : tile_stride;
  if (p->patches.per_image) first += (p->first_image + batch) * c->out_size[0] * c->out_size[1] * c->out_size[2];
  else feature0 += batch * c->features;
  if (!has_phases(c)) {
    c->epilogue(c->epilogue_ctx, feature0, features, first, positions, tile, feature_stride, position_stride);
    return;
  }
  for (int64_t i = 0; i < positions; ++i) {
    int64_t index = first + i, whole = 0, scale = 1;
    for (int d = 2; d >= 0; --d) {
      whole += (index % c->out_size[d] * c->phase_step[d] + c->phase_offset[d]) * scale;
      scale *= c->whole_size[d];
      index /= c->out_size[d];
    }
    c->epilogue(c->epilogue_ctx, feature0, features, whole + index * scale, 1, (char *)tile + i * position_stride * ab,
                feature_stride, position_stride);
  }
}

/* ---- the kernel in the order of k ------------------------------------------------------------- */

typedef struct copy_task {
  const conv_plan *plan;
  char *to;
} copy_task;

static void gather(int64_t bytes, int64_t n, const char *from, int64_t from_step, char *to, int64_t to_step) {
  if (from_step == 1 && to_step == 1) {
    memcpy(to, from, (size_t)(n * bytes));
    return;
  }
#define GATHER(T)                                                                                                  \
  for (int64_t i = 0; i < n; ++i) ((T *)(void *)to)[i * to_step] = ((const T *)(const void *)from)[i * from_step]; \
  return;
  switch (bytes) {
    case 1: GATHER(uint8_t)
    case 2: GATHER(uint16_t)
    case 4: GATHER(uint32_t)
    case 8: GATHER(uint64_t)
    default:
      for (int64_t i = 0; i < n; ++i) memcpy(to + i * to_step * bytes, from + i * from_step * bytes, (size_t)bytes);
  }
#undef GATHER
}

/* One channel's taps, `to_step` apart. */
static void copy_taps(const conv_plain *c, int64_t bytes, const char *from, char *to, int64_t to_step) {
  int64_t step, taps = c->taps[0] * c->taps[1] * c->taps[2];
  if (collapses(3, c->taps, c->kernel_spatial, &step)) {
    gather(bytes, taps, from, step, to, to_step);
    return;
  }
  for (int64_t z = 0; z < c->taps[0]; ++z)
    for (int64_t y = 0; y < c->taps[1]; ++y, to += c->taps[2] * to_step * bytes)
      gather(bytes, c->taps[2], from + (z * c->kernel_spatial[0] + y * c->kernel_spatial[1]) * bytes,
             c->kernel_spatial[2], to, to_step);
}

/* The taps of two channels side by side, where they lie one behind the other. */
static bool copy_pairs(const conv_plain *c, const char *from, char *to) {
#if defined(__x86_64__)
  const int64_t taps = c->taps[0] * c->taps[1] * c->taps[2];
  int64_t step;
  if (!base_cpu()->avx512 || base_dtype_bytes(c->kernel_dtype) != 2 || taps > 16 || c->channels % 2) return false;
  if (c->kernel_channel != taps || !collapses(3, c->taps, c->kernel_spatial, &step) || step != 1) return false;
  conv_pair_taps_avx512(c->channels / 2, (int)taps, (const uint16_t *)(const void *)from, (uint16_t *)(void *)to);
  return true;
#else
  (void)c, (void)from, (void)to;
  return false;
#endif
}

static void copy_features(void *ctx, int64_t begin, int64_t end, int worker) {
  const copy_task *t = ctx;
  const conv_plain *c = t->plan->patches.conv;
  const int64_t kb = (int64_t)base_dtype_bytes(c->kernel_dtype), taps = c->taps[0] * c->taps[1] * c->taps[2];
  const bool inner = t->plan->patches.channels_inner;
  const int64_t group = grouped_channels(t->plan), k = t->plan->job.k;
  (void)worker;
  for (int64_t f = begin; f < end; ++f) {
    const char *from = c->kernel + (f / c->features * c->kernel_group + f % c->features * c->kernel_feature) * kb;
    char *to = t->to + f * k * kb;
    if (group == 2 && copy_pairs(c, from, to)) continue;
    if (c->channels % group) memset(to + (k - group * taps) * kb, 0, (size_t)(group * taps * kb));
    for (int64_t i = 0; i < c->channels; ++i)
      copy_taps(c, kb, from + i * c->kernel_channel * kb, to + (inner ? i : i / group * taps * group + i % group) * kb,
                inner ? c->channels : group);
  }
}

static void copy_kernel(const conv_plan *p, void *to) {
  const conv_plain *c = p->patches.conv;
  copy_task t = {.plan = p, .to = to};
  const int64_t lines = c->groups * c->features;
  if (p->kernel_bytes) base_pool_run(lines, 1 + lines / 64, lines * p->job.k, copy_features, &t);
}

/* ---- through the window, as many images at a time as a field holds ------------------------------- */

static size_t panels_bytes(const conv_plan *p) {
  return (gemm_whole_b_bytes(p->job.kernel, p->job.n, p->job.k) + 63) / 64 * 64;
}

/* `copy` has room for the kernel in the order of k. */
static void pack_kernel(const conv_plan *p, void *copy, void *panels) {
  copy_kernel(p, copy);
  gemm_pack_whole_b(&p->job, panels);
}

/* What the workspace holds before the field. */
static size_t own_panels_bytes(const conv_plan *p) {
  return p->patches.conv->kernel_packed ? 0 : p->kernel_bytes + panels_bytes(p);
}

static ttpu_status run_windowed(conv_plan *p, char *workspace) {
  const conv_plain *c = p->patches.conv;
  gemm_job *j = &p->job;
  char *panels = workspace + p->kernel_bytes, *field = workspace + own_panels_bytes(p);
  if (!c->kernel_packed) pack_kernel(p, workspace, panels);
  j->b.panels = c->kernel_packed ? c->kernel_packed : panels;
  conv_window_start(&p->window, field);
  for (; p->first_image < c->images; p->first_image += p->window.images) {
    j->batch = min64(p->window.images, c->images - p->first_image);
    j->c = c->out + p->first_image * c->out_image * (int64_t)base_dtype_bytes(c->out_dtype);
    conv_window_fill(&p->window, p->first_image, j->batch);
    BASE_TRY(gemm_job_run(j, field + conv_window_workspace(&p->window)));
  }
  return TTPU_OK;
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* With `bytes` only measures. */
static ttpu_status run_plain(const conv_plain *c, char *workspace, size_t *bytes) {
  if (conv_depthwise_fits(c)) {
    if (!bytes) return conv_depthwise_run(c, workspace);
    *bytes = conv_depthwise_workspace(c);
    return TTPU_OK;
  }
  conv_plan p;
  plan(c, &p, workspace);
  if (bytes) {
    *bytes = gemm_job_workspace(&p.job);
    *bytes += p.windowed ? own_panels_bytes(&p) + conv_window_workspace(&p.window) : p.kernel_bytes;
    return TTPU_OK;
  }
  if (p.windowed) return run_windowed(&p, workspace);
  copy_kernel(&p, workspace);
  return gemm_job_run(&p.job, workspace ? workspace + p.kernel_bytes : NULL);
}

/* Runs (or measures) every phase. */
static ttpu_status run_phases(const kern_conv *c, char *workspace, size_t *bytes) {
  int64_t dilation[3];
  const conv_plain whole = flatten(c, dilation);
  for (int64_t r0 = 0; r0 < min64(dilation[0], whole.out_size[0]); ++r0)
    for (int64_t r1 = 0; r1 < min64(dilation[1], whole.out_size[1]); ++r1)
      for (int64_t r2 = 0; r2 < min64(dilation[2], whole.out_size[2]); ++r2) {
        conv_plain phase = whole;
        if (dilation[0] > 1) take_phase(&phase, 0, r0, dilation[0]);
        if (dilation[1] > 1) take_phase(&phase, 1, r1, dilation[1]);
        if (dilation[2] > 1) take_phase(&phase, 2, r2, dilation[2]);
        size_t need = 0;
        BASE_TRY(run_plain(&phase, workspace, bytes ? &need : NULL));
        if (bytes && need > *bytes) *bytes = need;
      }
  return TTPU_OK;
}

size_t kern_conv_workspace(const kern_conv *c) {
  size_t bytes = 0;
  if (check(c) != TTPU_OK || is_empty(c)) return 0;
  run_phases(c, NULL, &bytes);
  return bytes;
}

ttpu_status kern_conv_run(const kern_conv *c) {
  BASE_TRY(check(c));
  if (is_empty(c)) return TTPU_OK;
  if (c->workspace) return run_phases(c, c->workspace, NULL);
  const size_t bytes = kern_conv_workspace(c);
  void *own = bytes ? kern_scratch_new(bytes) : NULL;
  if (bytes && !own) return base_no_memory(bytes);
  const ttpu_status status = run_phases(c, own, NULL);
  kern_scratch_free(own);
  return status;
}

/* Of a convolution in one phase whose positions are read through the window; false for all others. */
static bool plan_packed(const kern_conv *c, conv_plain *plain, conv_plan *p, const void *copy) {
  int64_t dilation[3];
  if (check(c) != TTPU_OK || is_empty(c)) return false;
  *plain = flatten(c, dilation);
  if (dilation[0] > 1 || dilation[1] > 1 || dilation[2] > 1 || conv_depthwise_fits(plain)) return false;
  plan(plain, p, copy);
  return p->windowed;
}

size_t kern_conv_packed_bytes(const kern_conv *c, base_hash128 *key) {
  conv_plain plain;
  conv_plan p;
  if (!plan_packed(c, &plain, &p, NULL)) return 0;
  const gemm_kernel *kernel = p.job.kernel;
  base_hash128 h = base_hash128_bytes((base_hash128){0, 0}, kernel->name, strlen(kernel->name));
  const int64_t words[] = {plain.kernel_dtype,      p.patches.channels_inner,
                           plain.channels,          plain.features,
                           plain.kernel_channel,    plain.kernel_feature,
                           plain.kernel_spatial[0], plain.kernel_spatial[1],
                           plain.kernel_spatial[2], plain.taps[0],
                           plain.taps[1],           plain.taps[2]};
  *key = base_hash128_bytes(h, words, sizeof words);
  return panels_bytes(&p);
}

ttpu_status kern_conv_pack(const kern_conv *c, void *packed) {
  conv_plain plain;
  conv_plan p;
  if (!plan_packed(c, &plain, &p, NULL)) return base_fail(TTPU_INTERNAL, "the convolution takes no packed kernel");
  void *copy = p.kernel_bytes ? kern_scratch_new(p.kernel_bytes) : NULL;
  if (p.kernel_bytes && !copy) return base_no_memory(p.kernel_bytes);
  plan(&plain, &p, copy);
  pack_kernel(&p, copy, packed);
  kern_scratch_free(copy);
  return TTPU_OK;
}
