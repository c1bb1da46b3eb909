/* Convolutions whose positions need no panels: kernel->window reads them where they lie, one broadcast a position and group
 * of channels, while output features fill the vectors. What it reads is the *field*: the part of the input that the windows
 * reach, with zeros for padding, in the kernel's own dtype and with kr channels side by side. The input itself is the field
 * when it has that form. A field costs one pass over the input; panels would cost one for each tap.
 */
#include <stdlib.h>
#include <string.h>

#include "soft/kern/conv_int.h"

enum {
  FIELD_BYTES = 4 << 20, /* images share a field up to this size: it stays in the cache */
  MOST_TAPS = 128,
  FEWEST_TAPS = 3, /* single pixels are a matrix as they lie */
  FEWEST_COLUMNS = 4,
  ROW_ELEMENTS = 2048, /* converted at a time */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/* ---- does it fit? ---------------------------------------------------------------------------- */

/* Is the input the field as it lies? */
static bool is_field(const conv_window *w) {
  const conv_plain *c = w->conv;
  if (c->dtype != w->kernel->packed) return false;
  bool fits = true;
  for (int d = 0; d < 3; ++d) fits &= w->low[d] >= 0 && w->low[d] + w->size[d] <= c->in_size[d];
  if (w->kernel->kr == 1) return fits;
  const int64_t kr = w->kernel->kr;
  fits &= w->channels_inner && c->in_channel == 1 && c->in_image % kr == 0;
  for (int d = 0; d < 3; ++d) fits &= c->in_spatial[d] % kr == 0;
  return fits && (uintptr_t)c->in % (uintptr_t)(kr * (int64_t)base_dtype_bytes(c->dtype)) == 0;
}

static void take_strides(conv_window *w) {
  const conv_plain *c = w->conv;
  const int64_t kr = w->kernel->kr;
  if (w->in_place) {
    w->image = c->in_image / kr;
    w->group = w->channels_inner ? c->in_channel : c->in_channel / kr;
    for (int d = 0; d < 3; ++d) w->spatial[d] = c->in_spatial[d] / kr;
    return;
  }
  int64_t step = w->channels_inner ? w->channel_groups : 1;
  for (int d = 2; d >= 0; --d) {
    w->spatial[d] = step;
    step *= w->size[d];
  }
  w->group = w->channels_inner ? 1 : step;
  w->image = w->channels_inner ? step : step * w->channel_groups;
}

static const void *line_at(const void *context, int64_t image, int64_t line) {
  const conv_window *w = context;
  const conv_plain *c = w->conv;
  int64_t offset = image * w->image;
  for (int d = 2; d >= 0; --d) {
    offset += line % c->out_size[d] * c->stride[d] * w->spatial[d];
    line /= c->out_size[d];
  }
  return w->field + offset * w->kernel->kr * (int64_t)base_dtype_bytes(w->kernel->packed);
}

bool conv_window_plan(const conv_plain *c, const gemm_kernel *kernel, bool channels_inner, conv_window *w) {
  const int64_t taps = c->taps[0] * c->taps[1] * c->taps[2], kr = kernel->kr;
  if (!kernel->window || c->groups != 1 || c->channels == 0) return false;
  if (taps < FEWEST_TAPS || taps > MOST_TAPS || c->out_size[2] < FEWEST_COLUMNS) return false;
  /* lanes without a feature, and channels that fill up a group, are work for nothing */
  if (4 * round_up(c->features, kernel->lanes) > 5 * c->features) return false;
  if (4 * round_up(c->channels, kr) > 5 * c->channels || (channels_inner && c->channels % kr)) return false;
  *w = (conv_window){.conv = c, .kernel = kernel, .channels_inner = channels_inner};
  w->channel_groups = round_up(c->channels, kr) / kr;
  for (int d = 0; d < 3; ++d) {
    w->low[d] = -c->pad[d];
    w->size[d] = (c->out_size[d] - 1) * c->stride[d] + (c->taps[d] - 1) * c->dilation[d] + 1;
  }
  w->in_place = is_field(w);
  take_strides(w);
  w->window = (gemm_window){.run = c->out_size[2], .step = c->stride[2] * w->spatial[2], .line = line_at, .ctx = w};
  w->images = c->images;
  const int64_t bytes = w->image * kr * (int64_t)base_dtype_bytes(kernel->packed);
  if (!w->in_place) {
    const int64_t most = max64(1, FIELD_BYTES / max64(1, bytes)), pieces = (c->images + most - 1) / most;
    w->images = (c->images + pieces - 1) / pieces;
  }
  int64_t reach = llabs(w->group) * w->channel_groups;
  for (int d = 0; d < 3; ++d) reach += llabs(w->spatial[d]) * w->size[d];
  return reach < INT32_MAX;
}

/* ---- offsets --------------------------------------------------------------------------------- */

static int64_t offsets_count(const conv_window *w) {
  const conv_plain *c = w->conv;
  return w->channel_groups * c->taps[0] * c->taps[1] * c->taps[2];
}

static size_t offsets_bytes(const conv_window *w) {
  return (size_t)round_up((offsets_count(w) + GEMM_AHEAD) * (int64_t)sizeof(int32_t), 64);
}

size_t conv_window_workspace(const conv_window *w) {
  const int64_t element = w->kernel->kr * (int64_t)base_dtype_bytes(w->kernel->packed);
  return offsets_bytes(w) + (w->in_place ? 0 : (size_t)round_up(w->images * w->image * element, 64));
}

void conv_window_start(conv_window *w, void *workspace) {
  const conv_plain *c = w->conv;
  const int64_t taps = c->taps[0] * c->taps[1] * c->taps[2], groups = w->channel_groups;
  int32_t *offsets = workspace;
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t at = 0, rest = tap;
    for (int d = 2; d >= 0; --d) {
      at += rest % c->taps[d] * c->dilation[d] * w->spatial[d];
      rest /= c->taps[d];
    }
    for (int64_t g = 0; g < groups; ++g)
      offsets[w->channels_inner ? tap * groups + g : g * taps + tap] = (int32_t)(at + g * w->group);
  }
  memset(offsets + offsets_count(w), 0, GEMM_AHEAD * sizeof *offsets);
  w->field = (char *)workspace + offsets_bytes(w);
  w->window.offsets = offsets;
}

/* ---- filling the field ------------------------------------------------------------------------ */

/* A row of a channel, or zeros for the channel that fills up a group. */
typedef struct field_row {
  const char *from;
  int64_t step;
} field_row;

static void pair_rows(int64_t n, const uint16_t *a, const uint16_t *b, uint16_t *to) {
#if defined(__x86_64__)
  if (base_cpu()->avx512) {
    conv_pair_rows_avx512(n, a, b, to);
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

/* n values of two channels side by side. */
static void fill_pairs(const conv_window *w, int64_t n, const field_row rows[2], uint16_t *to) {
  static const uint16_t zeros[ROW_ELEMENTS];
  const ttpu_dtype from = w->conv->dtype, packed = w->kernel->packed;
  const int64_t element = (int64_t)base_dtype_bytes(from);
  uint16_t buffers[2][ROW_ELEMENTS];
  for (int64_t i = 0; i < n; i += ROW_ELEMENTS) {
    const int64_t count = min64(ROW_ELEMENTS, n - i);
    const uint16_t *sides[2] = {zeros, zeros};
    for (int s = 0; s < 2; ++s) {
      if (!rows[s].from) continue;
      const char *at = rows[s].from + i * rows[s].step * element;
      const bool as_it_is = from == packed && rows[s].step == 1;
      if (!as_it_is) gemm_convert_row(from, packed, count, at, rows[s].step, buffers[s]);
      sides[s] = as_it_is ? (const uint16_t *)at : buffers[s];
    }
    pair_rows(count, sides[0], sides[1], to + 2 * i);
  }
}

/* One row of the field: columns of one group of channels, or pixels with all of their channels. `at` is the input's row. */
static void fill_row(const conv_window *w, const char *at, int64_t group, char *to) {
  const conv_plain *c = w->conv;
  const ttpu_dtype from = c->dtype, packed = w->kernel->packed;
  const int64_t eb = (int64_t)base_dtype_bytes(from), kr = w->kernel->kr;
  const int64_t pixel = (w->channels_inner ? w->channel_groups : 1) * kr * (int64_t)base_dtype_bytes(packed);
  const int64_t left = min64(w->size[2], max64(0, -w->low[2]));
  const int64_t end = max64(left, min64(w->size[2], c->in_size[2] - w->low[2])), n = end - left;
  if (!at) {
    memset(to, 0, (size_t)(w->size[2] * pixel));
    return;
  }
  memset(to, 0, (size_t)(left * pixel));
  at += (w->low[2] + left) * c->in_spatial[2] * eb;
  char *first = to + left * pixel;
  if (w->channels_inner) {
    if (c->in_spatial[2] == c->channels && c->in_channel == 1)
      gemm_convert_row(from, packed, n * c->channels, at, 1, first);
    else
      for (int64_t x = 0; x < n; ++x)
        gemm_convert_row(from, packed, c->channels, at + x * c->in_spatial[2] * eb, c->in_channel, first + x * pixel);
  } else if (kr == 1) {
    gemm_convert_row(from, packed, n, at + group * c->in_channel * eb, c->in_spatial[2], first);
  } else {
    field_row rows[2] = {{at + 2 * group * c->in_channel * eb, c->in_spatial[2]}, {NULL, c->in_spatial[2]}};
    if (2 * group + 1 < c->channels) rows[1].from = rows[0].from + c->in_channel * eb;
    fill_pairs(w, n, rows, (uint16_t *)(void *)first);
  }
  memset(to + end * pixel, 0, (size_t)((w->size[2] - end) * pixel));
}

typedef struct fill_task {
  const conv_window *window;
  int64_t first_image;
  char *field;
} fill_task;

/* Planes of the field: of an image, a group of channels (or all) and an outermost spatial index. */
static void fill_planes(void *context, int64_t begin, int64_t end, int worker) {
  const fill_task *t = context;
  const conv_window *w = t->window;
  const conv_plain *c = w->conv;
  const int64_t eb = (int64_t)base_dtype_bytes(c->dtype), groups = w->channels_inner ? 1 : w->channel_groups;
  const int64_t row = w->spatial[1] * w->kernel->kr * (int64_t)base_dtype_bytes(w->kernel->packed);
  (void)worker;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t z = i % w->size[0] + w->low[0], group = i / w->size[0] % groups;
    const char *image = c->in + (t->first_image + i / (w->size[0] * groups)) * c->in_image * eb;
    for (int64_t y = 0; y < w->size[1]; ++y) {
      const int64_t iy = y + w->low[1];
      const bool inside = z >= 0 && z < c->in_size[0] && iy >= 0 && iy < c->in_size[1];
      const char *at = inside ? image + (z * c->in_spatial[0] + iy * c->in_spatial[1]) * eb : NULL;
      fill_row(w, at, group, t->field + (i * w->size[1] + y) * row);
    }
  }
}

void conv_window_fill(conv_window *w, int64_t first_image, int64_t images) {
  const conv_plain *c = w->conv;
  if (w->in_place) {
    int64_t offset = first_image * c->in_image;
    for (int d = 0; d < 3; ++d) offset += w->low[d] * c->in_spatial[d];
    w->field = c->in + offset * (int64_t)base_dtype_bytes(c->dtype);
    return;
  }
  fill_task task = {w, first_image, (char *)(uintptr_t)w->field};
  const int64_t planes = images * (w->channels_inner ? 1 : w->channel_groups) * w->size[0];
  base_pool_run(planes, 1 + planes / 64, images * w->image * w->kernel->kr / 2, fill_planes, &task);
}
