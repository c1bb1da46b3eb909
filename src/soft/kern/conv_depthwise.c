/* Depthwise convolution: one input channel a group, so a matrix product would have a single row. Sums are f32, dtypes the
 * floats up to 32 bits.
 *
 *   planes          channels apart in memory (NCHW): a band of input rows is copied with its padding into a buffer of
 *                   f32, columns sorted by their phase modulo the stride, so that any stride, padding and dilation
 *                   becomes: an output row is a weighted sum of contiguous rows
 *   channels last   channels adjacent: an output pixel is a weighted sum of vectors of channels
 */
#include <string.h>

#include "soft/kern/conv_int.h"

enum { ROWS = 4, BAND_BYTES = 96 << 10, CHANNEL_BLOCK = 256, MOST_TAPS = 1024 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

static const conv_depthwise_kernels *kernels(void) {
#if defined(__x86_64__)
  if (base_cpu()->avx512) return &conv_depthwise_avx512;
  if (base_cpu()->avx2) return &conv_depthwise_avx2;
#endif
  return &conv_depthwise_portable;
}

static bool has_vector_loads(ttpu_dtype t) { return t == TTPU_F32 || t == TTPU_BF16 || t == TTPU_F16; }

static int64_t count_taps(const conv_plain *c) { return c->taps[0] * c->taps[1] * c->taps[2]; }

static bool channels_last(const conv_plain *c) {
  return c->in_group == 1 && c->out_group == 1 && c->features == 1 && c->groups >= 8 && has_vector_loads(c->dtype);
}

/* A band: the output rows y0 .. y0+rows of one output slice, and the input rows that they need. */
typedef struct band_layout {
  int64_t rows;        /* output rows in a band */
  int64_t in_rows;     /* input rows that they meet */
  int64_t phase_pitch; /* floats of one phase of a row */
  int64_t row_pitch;
  int64_t bands; /* in one output plane, over all slices */
  int64_t worker_bytes;
} band_layout;

static band_layout layout(const conv_plain *c) {
  band_layout b;
  const int64_t width = (c->out_size[2] - 1) * c->stride[2] + (c->taps[2] - 1) * c->dilation[2] + 1;
  b.phase_pitch = round_up((width + c->stride[2] - 1) / c->stride[2] + 16, 16); /* 16: a vector may overhang */
  b.row_pitch = b.phase_pitch * c->stride[2];
  const int64_t halo = (c->taps[1] - 1) * c->dilation[1] + 1;
  const int64_t fit = BAND_BYTES / (4 * b.row_pitch * c->taps[0]);
  b.rows = max64(1, min64(c->out_size[1], (fit - halo) / c->stride[1] + 1));
  b.in_rows = (b.rows - 1) * c->stride[1] + halo;
  b.bands = c->out_size[0] * ((c->out_size[1] + b.rows - 1) / b.rows);
  b.worker_bytes =
      round_up(4 * (c->taps[0] * b.in_rows * b.row_pitch + ROWS * round_up(c->out_size[2], 64) + width + 64), 64);
  return b;
}

bool conv_depthwise_fits(const conv_plain *c) {
  const int64_t taps = count_taps(c);
  if (c->channels != 1 || c->groups < 2 || c->features > 8 || taps < 1 || taps > MOST_TAPS) return false;
  if (kern_gemm_accumulator(c->dtype, c->out_dtype) != TTPU_F32 ||
      kern_gemm_accumulator(c->kernel_dtype, c->out_dtype) != TTPU_F32)
    return false;
  if (c->epilogue && (c->phase_step[0] != 1 || c->phase_step[1] != 1 || c->phase_step[2] != 1)) return false;
  if (channels_last(c)) return true;
  return c->out_size[2] >= 4 && layout(c).worker_bytes <= 4 << 20;
}

typedef struct depthwise_task {
  const conv_plain *c;
  band_layout band;
  const float *weights; /* planes: [group][feature][tap]; channels last: [tap][group] */
  char *workspace;
} depthwise_task;

/* ---- planes ---------------------------------------------------------------------------------- */

/* One input row into the buffer, padding included; `row` is NULL for a row of padding. */
static void fill_row(const depthwise_task *t, const char *row, float *to, float *scratch) {
  const conv_plain *c = t->c;
  const int64_t width = (c->out_size[2] - 1) * c->stride[2] + (c->taps[2] - 1) * c->dilation[2] + 1;
  const int64_t from = max64(0, c->pad[2]); /* the buffer's column of the first input column read */
  const int64_t first = from - c->pad[2], count = min64(width - from, c->in_size[2] - first);
  if (!row || count <= 0) {
    memset(to, 0, (size_t)t->band.row_pitch * 4);
    return;
  }
  float *line = c->stride[2] == 1 ? to : scratch;
  memset(line, 0, (size_t)from * 4);
  gemm_convert_row(c->dtype, TTPU_F32, count, row + first * c->in_spatial[2] * (int64_t)base_dtype_bytes(c->dtype),
                   c->in_spatial[2], line + from);
  const int64_t end = c->stride[2] == 1 ? t->band.row_pitch : width;
  memset(line + from + count, 0, (size_t)(end - from - count) * 4);
  if (c->stride[2] == 1) return;
  for (int64_t phase = 0; phase < c->stride[2]; ++phase) {
    float *d = to + phase * t->band.phase_pitch;
    const int64_t values = max64(0, (width - phase + c->stride[2] - 1) / c->stride[2]);
    int64_t i = 0;
    if (c->stride[2] == 2)
      for (; i < values; ++i) d[i] = line[phase + 2 * i];
    else
      for (; i < values; ++i) d[i] = line[phase + c->stride[2] * i];
    for (; i < t->band.phase_pitch; ++i) d[i] = 0;
  }
}

static void fill_band(const depthwise_task *t, const char *plane, int64_t z, int64_t y0, float *buffer,
                      float *scratch) {
  const conv_plain *c = t->c;
  const int64_t element = (int64_t)base_dtype_bytes(c->dtype);
  for (int64_t w = 0; w < c->taps[0]; ++w)
    for (int64_t r = 0; r < t->band.in_rows; ++r) {
      const int64_t slice = z * c->stride[0] + w * c->dilation[0] - c->pad[0], y = y0 * c->stride[1] + r - c->pad[1];
      const bool inside = slice >= 0 && slice < c->in_size[0] && y >= 0 && y < c->in_size[1];
      fill_row(t, inside ? plane + (slice * c->in_spatial[0] + y * c->in_spatial[1]) * element : NULL,
               buffer + (w * t->band.in_rows + r) * t->band.row_pitch, scratch);
    }
}

static void finish_row(const conv_plain *c, int64_t feature, int64_t image, int64_t z, int64_t y, float *row) {
  const int64_t g = feature / c->features, f = feature % c->features;
  if (c->bias) {
    float bias;
    gemm_convert_row(c->bias_dtype, TTPU_F32, 1,
                     (const char *)c->bias + feature * (int64_t)base_dtype_bytes(c->bias_dtype), 1, &bias);
    for (int64_t x = 0; x < c->out_size[2]; ++x) row[x] += bias;
  }
  if (c->epilogue)
    c->epilogue(c->epilogue_ctx, feature, 1, ((image * c->out_size[0] + z) * c->out_size[1] + y) * c->out_size[2],
                c->out_size[2], row, c->out_size[2], 1);
  gemm_store_row(TTPU_F32, c->out_dtype, c->out_size[2], row,
                 c->out + (image * c->out_image + g * c->out_group + f * c->out_feature + z * c->out_spatial[0] +
                           y * c->out_spatial[1]) *
                              (int64_t)base_dtype_bytes(c->out_dtype),
                 c->out_spatial[2]);
}

static void run_bands(void *ctx, int64_t begin, int64_t end, int worker) {
  const depthwise_task *t = ctx;
  const conv_plain *c = t->c;
  const band_layout *b = &t->band;
  const conv_depthwise_kernels *k = kernels();
  const int64_t taps = count_taps(c), row_step = round_up(c->out_size[2], 64);
  float *buffer = (float *)(void *)(t->workspace + worker * b->worker_bytes);
  float *row = buffer + c->taps[0] * b->in_rows * b->row_pitch, *scratch = row + ROWS * round_up(c->out_size[2], 64);
  int64_t offsets[MOST_TAPS];
  for (int64_t i = 0; i < taps; ++i) {
    const int64_t x = i % c->taps[2] * c->dilation[2], y = i / c->taps[2] % c->taps[1] * c->dilation[1];
    offsets[i] = (i / (c->taps[2] * c->taps[1]) * b->in_rows + y) * b->row_pitch + x % c->stride[2] * b->phase_pitch +
                 x / c->stride[2];
  }
  for (int64_t i = begin; i < end; ++i) {
    const int64_t per_slice = b->bands / c->out_size[0];
    const int64_t y0 = i % per_slice * b->rows, z = i % b->bands / per_slice;
    const int64_t g = i / b->bands % c->groups, image = i / b->bands / c->groups;
    const char *plane = c->in + (image * c->in_image + g * c->in_group) * (int64_t)base_dtype_bytes(c->dtype);
    fill_band(t, plane, z, y0, buffer, scratch);
    for (int64_t f = 0; f < c->features; ++f)
      for (int64_t y = y0; y < min64(y0 + b->rows, c->out_size[1]); y += ROWS) {
        const int rows = (int)min64(ROWS, min64(y0 + b->rows, c->out_size[1]) - y);
        k->rows(rows, c->out_size[2], (int)taps, offsets, t->weights + (g * c->features + f) * taps,
                buffer + (y - y0) * c->stride[1] * b->row_pitch, c->stride[1] * b->row_pitch, row, row_step);
        for (int r = 0; r < rows; ++r) finish_row(c, g * c->features + f, image, z, y + r, row + r * row_step);
      }
  }
}

/* ---- channels last ----------------------------------------------------------------------------- */

static void finish_pixel(const conv_plain *c, int64_t channel0, int64_t channels, int64_t position, char *out,
                         float *sum) {
  if (c->bias) {
    float bias[CHANNEL_BLOCK];
    gemm_convert_row(c->bias_dtype, TTPU_F32, channels,
                     (const char *)c->bias + channel0 * (int64_t)base_dtype_bytes(c->bias_dtype), 1, bias);
    for (int64_t i = 0; i < channels; ++i) sum[i] += bias[i];
  }
  if (c->epilogue) c->epilogue(c->epilogue_ctx, channel0, channels, position, 1, sum, 1, channels);
  gemm_convert_row(TTPU_F32, c->out_dtype, channels, sum, 1, out + channel0 * (int64_t)base_dtype_bytes(c->out_dtype));
}

/* Taps of dimension d that meet the input at output x: from..to. */
static void live_taps(const conv_plain *c, int d, int64_t x, int64_t *from, int64_t *to) {
  const int64_t i = x * c->stride[d] - c->pad[d];
  *from = i < 0 ? min64(c->taps[d], (-i + c->dilation[d] - 1) / c->dilation[d]) : 0;
  *to = i >= c->in_size[d] ? 0 : min64(c->taps[d], (c->in_size[d] - 1 - i) / c->dilation[d] + 1);
}

/* The taps that meet the input: where from (but for the pixel's image and first column), and which row of the weights. */
static int list_taps(const conv_plain *c, int64_t z, int64_t y, int64_t z_from, int64_t z_to, int64_t y_from,
                     int64_t y_to, int64_t x_from, int64_t x_to, int64_t *offsets, int32_t *rows) {
  int taps = 0;
  for (int64_t a = z_from; a < z_to; ++a)
    for (int64_t b = y_from; b < y_to; ++b)
      for (int64_t w = x_from; w < x_to; ++w) {
        offsets[taps] = (z * c->stride[0] + a * c->dilation[0] - c->pad[0]) * c->in_spatial[0] +
                        (y * c->stride[1] + b * c->dilation[1] - c->pad[1]) * c->in_spatial[1] +
                        w * c->dilation[2] * c->in_spatial[2];
        rows[taps++] = (int32_t)((a * c->taps[1] + b) * c->taps[2] + w);
      }
  return taps;
}

/* One row of output pixels. */
static void run_pixel_rows(void *ctx, int64_t begin, int64_t end, int worker) {
  const depthwise_task *t = ctx;
  const conv_plain *c = t->c;
  const conv_depthwise_kernels *k = kernels();
  const int64_t element = (int64_t)base_dtype_bytes(c->dtype), out_element = (int64_t)base_dtype_bytes(c->out_dtype);
  int64_t offsets[MOST_TAPS];
  int32_t rows[MOST_TAPS];
  float sum[CHANNEL_BLOCK] __attribute__((aligned(64)));
  const bool in_place = c->out_dtype == TTPU_F32 && !c->bias && !c->epilogue;
  (void)worker;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t y = i % c->out_size[1], z = i / c->out_size[1] % c->out_size[0],
                  image = i / c->out_size[1] / c->out_size[0];
    int64_t z_from, z_to, y_from, y_to, x_from, x_to, listed_from = -1, listed_to = -1;
    int taps = 0;
    live_taps(c, 0, z, &z_from, &z_to);
    live_taps(c, 1, y, &y_from, &y_to);
    for (int64_t x = 0; x < c->out_size[2]; ++x) {
      live_taps(c, 2, x, &x_from, &x_to);
      /* Offsets are relative to the pixel's first column, so the list is made anew at the borders only. */
      if (x_from != listed_from || x_to != listed_to) {
        listed_from = x_from;
        listed_to = x_to;
        taps = list_taps(c, z, y, z_from, z_to, y_from, y_to, x_from, x_to, offsets, rows);
      }
      const char *in = c->in + (image * c->in_image + (x * c->stride[2] - c->pad[2]) * c->in_spatial[2]) * element;
      char *out =
          c->out +
          (image * c->out_image + z * c->out_spatial[0] + y * c->out_spatial[1] + x * c->out_spatial[2]) * out_element;
      for (int64_t ch = 0; ch < c->groups; ch += CHANNEL_BLOCK) {
        const int64_t n = min64(CHANNEL_BLOCK, c->groups - ch);
        float *to = in_place ? (float *)(void *)out + ch : sum;
        k->pixel(c->dtype, n, taps, offsets, rows, t->weights + ch, c->groups, in + ch * element, to);
        if (!in_place)
          finish_pixel(c, ch, n, ((image * c->out_size[0] + z) * c->out_size[1] + y) * c->out_size[2] + x, out, sum);
      }
    }
  }
}

/* ---- entry ----------------------------------------------------------------------------------- */

static int64_t weight_bytes(const conv_plain *c) { return round_up(4 * c->groups * c->features * count_taps(c), 64); }

size_t conv_depthwise_workspace(const conv_plain *c) {
  return (size_t)(weight_bytes(c) + (channels_last(c) ? 0 : base_pool_size() * layout(c).worker_bytes));
}

ttpu_status conv_depthwise_run(const conv_plain *c, void *workspace) {
  const int64_t taps = count_taps(c);
  const int64_t kb = (int64_t)base_dtype_bytes(c->kernel_dtype);
  const bool last = channels_last(c);
  float *weights = workspace;
  depthwise_task t = {.c = c, .band = layout(c), .weights = weights, .workspace = (char *)workspace + weight_bytes(c)};
  for (int64_t f = 0; f < c->groups * c->features; ++f) {
    float line[MOST_TAPS];
    const char *kernel = c->kernel + (f / c->features * c->kernel_group + f % c->features * c->kernel_feature) * kb;
    for (int64_t z = 0; z < c->taps[0]; ++z)
      for (int64_t y = 0; y < c->taps[1]; ++y)
        gemm_convert_row(c->kernel_dtype, TTPU_F32, c->taps[2],
                         kernel + (z * c->kernel_spatial[0] + y * c->kernel_spatial[1]) * kb, c->kernel_spatial[2],
                         line + (z * c->taps[1] + y) * c->taps[2]);
    if (!last) memcpy(weights + f * taps, line, (size_t)taps * 4);
    else
      for (int64_t i = 0; i < taps; ++i) weights[i * c->groups + f] = line[i];
  }
  const int64_t pixels = c->images * c->out_size[0] * c->out_size[1] * c->out_size[2];
  const int64_t cost = max64(1, pixels * c->groups * c->features * taps / 8);
  if (last) {
    const int64_t rows = c->images * c->out_size[0] * c->out_size[1];
    base_pool_run(rows, max64(1, 20000 / max64(1, cost / rows)), cost, run_pixel_rows, &t);
  } else {
    const int64_t bands = c->images * c->groups * t.band.bands;
    base_pool_run(bands, max64(1, 20000 / max64(1, cost / bands)), cost, run_bands, &t);
  }
  return TTPU_OK;
}
