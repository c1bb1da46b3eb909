/* Panels of positions, read through the window. Rows (or lines) are gathered in the input's own dtype, straight into the
 * panel where it has that dtype, else into a chunk that gemm_pack converts and interleaves. */
#include <string.h>

#include "soft/kern/conv_int.h"

enum { CHUNK_BYTES = 16384 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

/* ---- positions ------------------------------------------------------------------------------- */

typedef struct position {
  int64_t image, x[3];
} position;

static position position_at(const conv_plain *c, int64_t index) {
  position p;
  for (int d = 2; d >= 0; --d) {
    p.x[d] = index % c->out_size[d];
    index /= c->out_size[d];
  }
  p.image = index;
  return p;
}

static void position_next_row(const conv_plain *c, position *p) {
  p->x[2] = 0;
  if (++p->x[1] < c->out_size[1]) return;
  p->x[1] = 0;
  if (++p->x[0] < c->out_size[0]) return;
  p->x[0] = 0;
  ++p->image;
}

static void tap_at(const conv_plain *c, int64_t index, int64_t tap[3]) {
  for (int d = 2; d >= 0; --d) {
    tap[d] = index % c->taps[d];
    index /= c->taps[d];
  }
}

/* The input's row that output row (image, x0, x1) meets at this tap: its offset, or false when it is padding. */
static bool input_row(const conv_plain *c, const position *p, const int64_t tap[3], int64_t *offset) {
  *offset = p->image * c->in_image;
  for (int d = 0; d < 2; ++d) {
    int64_t i = p->x[d] * c->stride[d] + tap[d] * c->dilation[d] - c->pad[d];
    if (i < 0 || i >= c->in_size[d]) return false;
    *offset += i * c->in_spatial[d];
  }
  return true;
}

/* ---- by lanes: for one tap, the segments of a panel; then a row per channel ------------------------- */

static int make_segments(const conv_plain *c, int64_t line0, int lines, const int64_t tap[3], conv_segment *segments) {
  int count = 0;
  position p = position_at(c, line0);
  const int64_t shift = tap[2] * c->dilation[2] - c->pad[2]; /* input column = x*stride + shift */
  const int64_t low = max64(0, ceil_div(-shift, c->stride[2]));
  const int64_t high = min64(c->out_size[2], floor_div(c->in_size[2] - 1 - shift, c->stride[2]) + 1);
  for (int lane = 0; lane < lines;) {
    const int64_t end = min64(c->out_size[2], p.x[2] + lines - lane);
    const int64_t from = max64(p.x[2], low), to = min64(end, high);
    int64_t row;
    if (from < to && input_row(c, &p, tap, &row))
      segments[count++] = (conv_segment){lane + (int)(from - p.x[2]), (int)(to - from),
                                         row + (from * c->stride[2] + shift) * c->in_spatial[2]};
    lane += (int)(end - p.x[2]);
    position_next_row(c, &p);
  }
  return count;
}

#define FILL_ROWS(T)                                                               \
  for (int64_t r = 0; r < rows; ++r) {                                             \
    const T *s = (const T *)src + r * src_step;                                    \
    T *d = (T *)dst + r * dst_step;                                                \
    int lane = 0;                                                                  \
    for (int i = 0; i < count; ++i) {                                              \
      const T *from = s + segments[i].offset;                                      \
      for (; lane < segments[i].lane; ++lane) d[lane] = (T){0};                    \
      if (step == 1)                                                               \
        for (int l = 0; l < segments[i].length; ++l) d[lane + l] = from[l];        \
      else                                                                         \
        for (int l = 0; l < segments[i].length; ++l) d[lane + l] = from[l * step]; \
      lane += segments[i].length;                                                  \
    }                                                                              \
    for (; lane < width; ++lane) d[lane] = (T){0};                                 \
  }                                                                                \
  return;

typedef struct bytes_16 {
  uint64_t part[2];
} bytes_16;

static void fill_rows(size_t element, const conv_segment *segments, int count, int64_t step, int width, int64_t rows,
                      const void *src, int64_t src_step, void *dst, int64_t dst_step) {
#if defined(__x86_64__)
  if (base_cpu()->avx512 && element == 4) {
    conv_fill_rows_avx512_4(segments, count, step, width, rows, src, src_step, dst, dst_step);
    return;
  }
  if (base_cpu()->avx512 && element == 2 && (step == 1 || step == 2)) {
    conv_fill_rows_avx512_2(segments, count, step, width, rows, src, src_step, dst, dst_step);
    return;
  }
#endif
  switch (element) {
    case 1: FILL_ROWS(uint8_t)
    case 2: FILL_ROWS(uint16_t)
    case 4: FILL_ROWS(uint32_t)
    case 8: FILL_ROWS(uint64_t)
    default: FILL_ROWS(bytes_16)
  }
}

/* Rows k0 .. k0+count of lanes line0 .. line0+lines; row r at dst + r*dst_step elements. */
static void gather_rows(const conv_patches *t, const char *in, int64_t line0, int lines, int width, int64_t k0,
                        int64_t count, char *dst, int64_t dst_step) {
  const conv_plain *c = t->conv;
  const int64_t element = (int64_t)base_dtype_bytes(c->dtype);
  const int64_t taps = c->taps[0] * c->taps[1] * c->taps[2];
  conv_segment segments[GEMM_NR_MAX];
  /* k = channel*taps + tap, or tap*channels + channel */
  const int64_t first_tap = t->channels_inner ? k0 / c->channels : 0;
  const int64_t last_tap = t->channels_inner ? (k0 + count - 1) / c->channels : taps - 1;
  for (int64_t s = first_tap; s <= last_tap; ++s) {
    int64_t from, to, row, row_step;
    if (t->channels_inner) {
      from = max64(0, k0 - s * c->channels);
      to = min64(c->channels, k0 + count - s * c->channels);
      row = s * c->channels + from - k0;
      row_step = 1;
    } else {
      from = max64(0, ceil_div(k0 - s, taps));
      to = ceil_div(k0 + count - s, taps);
      row = from * taps + s - k0;
      row_step = taps;
    }
    if (from >= to) continue;
    int64_t tap[3];
    tap_at(c, s, tap);
    const int n = make_segments(c, line0, lines, tap, segments);
    fill_rows((size_t)element, segments, n, c->stride[2] * c->in_spatial[2], width, to - from,
              in + from * c->in_channel * element, c->in_channel, dst + row * dst_step * element, row_step * dst_step);
  }
}

/* ---- by k: for one position, a run of channels or of taps ----------------------------------------- */

/* Runs are a row of an image or a part of one: a call of memcpy costs more than most of them. */
static inline void copy_bytes(char *to, const char *from, size_t n) {
  if (n > 256) {
    memcpy(to, from, n);
    return;
  }
  for (; n >= 16; n -= 16, to += 16, from += 16) memcpy(to, from, 16);
  if (n & 8) memcpy(to, from, 8), to += 8, from += 8;
  if (n & 4) memcpy(to, from, 4), to += 4, from += 4;
  if (n & 2) memcpy(to, from, 2), to += 2, from += 2;
  if (n & 1) *to = *from;
}

static inline void copy_run(size_t element, int64_t n, const char *src, int64_t stride, char *dst) {
  if (stride == 1) {
    copy_bytes(dst, src, (size_t)n * element);
    return;
  }
#define COPY(T)                                                                 \
  for (int64_t i = 0; i < n; ++i) ((T *)dst)[i] = ((const T *)src)[i * stride]; \
  return;
  switch (element) {
    case 1: COPY(uint8_t)
    case 2: COPY(uint16_t)
    case 4: COPY(uint32_t)
    case 8: COPY(uint64_t)
    default: COPY(bytes_16)
  }
#undef COPY
}

/* Values k0 .. k0+count of every line; line i at dst + i*dst_step elements. */
static void gather_lines(const conv_patches *t, const char *in, int64_t line0, int lines, int64_t k0, int64_t count,
                         char *dst, int64_t dst_step) {
  const conv_plain *c = t->conv;
  const int64_t element = (int64_t)base_dtype_bytes(c->dtype);
  const int64_t inner = t->channels_inner ? c->channels : c->taps[2];
  position p[GEMM_NR_MAX];
  for (int i = 0; i < lines; ++i) p[i] = position_at(c, line0 + i);
  for (int64_t k = 0; k < count;) {
    /* A run: the same tap (or the same row of taps) and channels from..to (or taps from..to). */
    const int64_t run = (k0 + k) / inner, from = (k0 + k) % inner, n = min64(inner - from, count - k);
    int64_t tap[3] = {0, 0, 0}, channel = 0;
    if (t->channels_inner) {
      tap_at(c, run, tap);
      channel = from;
    } else {
      tap[1] = run % c->taps[1];
      tap[0] = run / c->taps[1] % c->taps[0];
      tap[2] = from;
      channel = run / (c->taps[1] * c->taps[0]);
    }
    for (int i = 0; i < lines; ++i) {
      char *to = dst + (i * dst_step + k) * element;
      const int64_t column = p[i].x[2] * c->stride[2] + tap[2] * c->dilation[2] - c->pad[2];
      /* How many values at the start are padding, and where padding begins again. */
      int64_t low = 0, high = n, row, step = c->in_channel;
      if (t->channels_inner) {
        if (column < 0 || column >= c->in_size[2]) high = 0;
      } else {
        step = c->dilation[2] * c->in_spatial[2];
        low = min64(n, max64(0, ceil_div(-column, c->dilation[2])));
        high = max64(low, min64(n, floor_div(c->in_size[2] - 1 - column, c->dilation[2]) + 1));
      }
      if (low >= high || !input_row(c, &p[i], tap, &row)) {
        memset(to, 0, (size_t)(n * element));
        continue;
      }
      if (low > 0) memset(to, 0, (size_t)(low * element));
      copy_run((size_t)element, high - low,
               in + (row + channel * c->in_channel + column * c->in_spatial[2] + low * step) * element, step,
               to + low * element);
      if (high < n) memset(to + high * element, 0, (size_t)((n - high) * element));
    }
    k += n;
  }
}

/* ---- a panel --------------------------------------------------------------------------------- */

void conv_pack_positions(const void *patches, int64_t batch, int64_t line0, int lines, int width, int64_t k0,
                         int64_t count, void *dst) {
  const conv_patches *t = patches;
  const conv_plain *c = t->conv;
  const gemm_kernel *kernel = t->kernel;
  const int64_t element = (int64_t)base_dtype_bytes(c->dtype);
  const char *in = c->in;
  if (t->per_image) in += (batch / c->images * c->in_group + batch % c->images * c->in_image) * element;
  else in += batch * c->in_group * element;
  if (count == 0) return;
  if (!t->by_k && c->dtype == kernel->packed && kernel->kr == 1 && !base_dtype_is_complex(c->dtype)) {
    gather_rows(t, in, line0, lines, width, k0, count, dst, width);
    return;
  }
  char chunk[CHUNK_BYTES] __attribute__((aligned(64)));
  const int64_t step = max64(2, min64(count, CHUNK_BYTES / (lines * element) / 8 * 8)); /* even, for pairs */
  for (int64_t k = 0; k < count; k += step) {
    const int64_t n = min64(step, count - k);
    if (t->by_k) {
      gather_lines(t, in, line0, lines, k0 + k, n, chunk, step);
      gemm_pack_chunk(kernel, t->side, c->dtype, lines, width, k, n, count, chunk, step, 1, dst);
    } else {
      gather_rows(t, in, line0, lines, lines, k0 + k, n, chunk, lines);
      gemm_pack_chunk(kernel, t->side, c->dtype, lines, width, k, n, count, chunk, 1, lines, dst);
    }
  }
}
