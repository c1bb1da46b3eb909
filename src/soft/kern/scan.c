/* Inclusive scans. Along a contiguous line the prefix is taken in a buffer of a row at a time; along any other
 * dimension up to KERN_ROW neighbouring lines go forward together. Running values are wide (wide.h) and
 * rounded only as they are stored.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"

typedef struct scan_job {
  const wide_functions *w;
  ir_scan_kind scan;
  ir_kind kind; /* of cumsum and cumprod */
  wide_class cls;
  uint32_t entries;
  ttpu_dtype dtype;
  const char *x;
  char *values, *indices; /* indices: NULL for scans that have none */
  kern_loop lines;        /* view 0: x, 1: values, 2: indices */
  int64_t n;              /* length of a line, and strides along it in bytes; reversed scans start at the end */
  int64_t x_step, value_step, index_step;
  int64_t first, direction; /* the index of step 0, and what a step adds */
  bool along;               /* the line itself is contiguous */
  int64_t lane_dim, lane_blocks;
} scan_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* log(exp(a) + exp(b)) without overflow; equal infinities stay. */
static double log_add_exp(double a, double b) {
  if (isnan(a) || isnan(b)) return NAN;
  double high = a > b ? a : b, low = a > b ? b : a;
  if (high == low && isinf(high)) return high;
  return high + log1p(exp(low - high));
}

static void add_logs(wide *total, const wide *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) total[i].f = log_add_exp(total[i].f, x[i].f);
}

static void prefix_logs(wide *carry, wide *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i].f = carry->f = log_add_exp(carry->f, x[i].f);
}

/* n lines side by side, `lane_step` bytes apart in each view. */
static void scan_lanes(const scan_job *j, const char *x, char *values, char *indices, const int64_t lane_step[3],
                       int64_t n) {
  wide_row total, row;
  int64_t places[KERN_ROW];
  j->w->load(j->dtype, x, lane_step[0], n, total);
  for (int64_t i = 0; i < n; ++i) places[i] = j->first;
  for (int64_t k = 0; k < j->n; ++k) {
    if (k > 0) {
      j->w->load(j->dtype, x + k * j->x_step, lane_step[0], n, row);
      if (j->indices)
        j->w->take(j->scan == IR_CUMMAX, true, j->cls, total, places, row, j->first + k * j->direction, n);
      else if (j->scan == IR_LOGCUMSUMEXP) add_logs(total, row, n);
      else j->w->combine(j->kind, j->cls, total, row, n);
    }
    j->w->store(j->dtype, values + k * j->value_step, lane_step[1], n, total);
    for (int64_t i = 0; indices && i < n; ++i) *(int64_t *)(indices + k * j->index_step + i * lane_step[2]) = places[i];
  }
}

/* One line, a row at a time. */
static void scan_line(const scan_job *j, const char *x, char *values, char *indices) {
  wide_row row;
  wide carry[2];
  int64_t place = j->first;
  j->w->load(j->dtype, x, j->x_step, 1, carry);
  for (int64_t at = 0; at < j->n; at += KERN_ROW) {
    int64_t n = least(KERN_ROW, j->n - at), skip = at == 0; /* the first element is the carry */
    j->w->load(j->dtype, x + at * j->x_step, j->x_step, n, row);
    wide *rest = row + skip * j->entries;
    if (!indices) {
      if (j->scan == IR_LOGCUMSUMEXP) prefix_logs(carry, rest, n - skip);
      else j->w->prefix(j->kind, j->cls, carry, rest, n - skip);
    }
    if (indices) {
      int64_t places[KERN_ROW];
      j->w->prefix_take(j->scan == IR_CUMMAX, j->cls, carry, &place, row, places, j->first + at * j->direction,
                        j->direction, n);
      for (int64_t i = 0; i < n; ++i) *(int64_t *)(indices + (at + i) * j->index_step) = places[i];
    }
    j->w->store(j->dtype, values + at * j->value_step, j->value_step, n, row);
  }
}

/* Items: (line without its lane dimension, lane block). */
static void scan_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const scan_job *j = context;
  uint32_t outer = j->lines.rank - (j->along ? 0 : 1);
  int64_t lane_step[3];
  for (int v = 0; v < 3; ++v) lane_step[v] = j->along ? 0 : j->lines.strides[v][outer];
  for (int64_t item = begin; item < end; ++item) {
    kern_walk w = kern_walk_begin(&j->lines, outer, item / j->lane_blocks);
    int64_t lane = item % j->lane_blocks * KERN_ROW, n = least(KERN_ROW, j->lane_dim - lane);
    const char *x = j->x + w.offsets[0] + lane * lane_step[0];
    char *values = j->values + w.offsets[1] + lane * lane_step[1];
    char *indices = j->indices ? j->indices + w.offsets[2] + lane * lane_step[2] : NULL;
    if (j->along) scan_line(j, x, values, indices);
    else scan_lanes(j, x, values, indices, lane_step, n);
  }
}

bool kern_scan_supports(ir_scan_kind kind, ttpu_dtype t) {
  return !base_dtype_is_complex(t) || kind == IR_CUMSUM || kind == IR_CUMPROD;
}

/* A line as long as the view of dimension dim: its stride in bytes, started from the end when reversed. */
static int64_t aim(const soft_view *v, uint32_t dim, bool reverse, char **start) {
  int64_t step = v->rank ? v->strides[dim] * (int64_t)base_dtype_bytes(v->dtype) : (int64_t)base_dtype_bytes(v->dtype);
  *start = v->data;
  if (!reverse || v->rank == 0) return step;
  *start += (v->dims[dim] - 1) * step;
  return -step;
}

ttpu_status kern_scan(const ir_scan_attrs *a, const soft_view *x, const soft_view *values, const soft_view *indices) {
  if (base_numel(x->rank, x->dims) == 0) return TTPU_OK;
  scan_job j = {.w = wide_get(), .scan = a->kind, .cls = wide_class_of(x->dtype), .dtype = x->dtype};
  j.entries = wide_entries(j.cls);
  j.kind = wide_kind(a->kind == IR_CUMPROD ? IR_MULTIPLY : IR_ADD, x->dtype);
  uint32_t dim = x->rank ? (uint32_t)a->dimension : 0, k = 0;
  j.n = x->rank ? x->dims[dim] : 1;
  char *from;
  j.x_step = aim(x, dim, a->reverse, &from), j.x = from;
  j.value_step = aim(values, dim, a->reverse, &j.values);
  if (indices) j.index_step = aim(indices, dim, a->reverse, &j.indices);
  j.first = a->reverse ? j.n - 1 : 0, j.direction = a->reverse ? -1 : 1;
  int64_t dims[TTPU_MAX_RANK], strides[3][TTPU_MAX_RANK];
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (d == dim) continue;
    dims[k] = x->dims[d], strides[0][k] = x->strides[d], strides[1][k] = values->strides[d];
    strides[2][k++] = indices ? indices->strides[d] : 0;
  }
  size_t bytes = base_dtype_bytes(x->dtype);
  kern_loop_make(&j.lines, k, dims, 3, (const int64_t *const[]){strides[0], strides[1], strides[2]},
                 (const size_t[]){bytes, bytes, sizeof(int64_t)});
  kern_loop_sort(&j.lines);
  int64_t step = j.x_step < 0 ? -j.x_step : j.x_step, lines = kern_loop_numel(&j.lines);
  uint32_t last = j.lines.rank - 1;
  j.along = j.lines.rank == 0 || (step <= (int64_t)bytes && j.lines.strides[0][last] != (int64_t)bytes);
  j.lane_dim = j.along ? 1 : j.lines.dims[last];
  j.lane_blocks = (j.lane_dim + KERN_ROW - 1) / KERN_ROW;
  int64_t items = lines / j.lane_dim * j.lane_blocks,
          cost = lines * j.n * (a->kind == IR_LOGCUMSUMEXP ? 20 : 1) + items * 20;
  base_pool_run(items, kern_grain(cost / items), cost, scan_items, &j);
  return TTPU_OK;
}
