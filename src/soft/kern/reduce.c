/* Reductions over any dimensions, and the places of extremes.
 *
 * x is seen as two loops, one over the kept dimensions and one over the reduced ones. Two ways to walk them:
 *   lanes  up to KERN_ROW neighbours of the last kept dimension are accumulated side by side
 *   runs   each result is folded on its own from runs of the last reduced dimension
 * whichever reads memory in its order. A reduction to few results is cut into parts along the first
 * reduced dimension, which are combined in order; the cut depends on the shape alone.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"

typedef struct reduce_job {
  const wide_functions *w;
  ir_kind kind;
  wide_class cls;
  uint32_t entries;
  ttpu_dtype dtype;
  size_t bytes;
  const char *x;
  kern_loop kept;    /* view 0: x, 1: y */
  kern_loop reduced; /* view 0: x */
  int64_t kept_count, reduced_count;
  bool lanes;
  int64_t parts, part_size;      /* of reduced dimension 0 */
  int64_t lane_dim, lane_blocks; /* size of the last kept dimension, in blocks of KERN_ROW */
  wide neutral[2];
  wide *partial; /* [part][kept] */
} reduce_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

static void find_neutral(ir_kind kind, wide_class c, wide *out) {
  out[0].u = out[1].u = 0;
  switch (kind) {
    case IR_MULTIPLY:
      if (c == WIDE_F || c == WIDE_C) out[0].f = 1;
      else out[0].u = 1;
      return;
    case IR_AND: out[0].u = ~0ull; return;
    case IR_MAXIMUM:
      if (c == WIDE_F) out[0].f = -INFINITY;
      else if (c == WIDE_I) out[0].i = INT64_MIN;
      return;
    case IR_MINIMUM:
      if (c == WIDE_F) out[0].f = INFINITY;
      else if (c == WIDE_I) out[0].i = INT64_MAX;
      else out[0].u = UINT64_MAX;
      return;
    default: return;
  }
}

static void fill_row(wide *row, const wide *value, uint32_t entries, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (uint32_t e = 0; e < entries; ++e) row[i * entries + e] = value[e];
}

static bool is_reduced(ir_i64s dims, uint32_t d) {
  for (uint32_t i = 0; i < dims.count; ++i)
    if (dims.data[i] == d) return true;
  return false;
}

static void make_loops(reduce_job *j, ir_i64s dims, const soft_view *x, const soft_view *y) {
  int64_t kept[TTPU_MAX_RANK], kept_x[TTPU_MAX_RANK], inner[TTPU_MAX_RANK], inner_x[TTPU_MAX_RANK];
  uint32_t k = 0, r = 0;
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (is_reduced(dims, d)) inner[r] = x->dims[d], inner_x[r++] = x->strides[d];
    else kept[k] = x->dims[d], kept_x[k++] = x->strides[d];
  }
  size_t bytes[2] = {j->bytes, j->bytes};
  kern_loop_make(&j->kept, k, kept, 2, (const int64_t *const[]){kept_x, y->strides}, bytes);
  kern_loop_sort(&j->kept);
  kern_loop_make(&j->reduced, r, inner, 1, (const int64_t *const[]){inner_x}, bytes);
  kern_loop_sort(&j->reduced);
  j->kept_count = kern_loop_numel(&j->kept), j->reduced_count = kern_loop_numel(&j->reduced);
}

/* Lanes where the kept dimension is the denser one, or runs would be short. */
static void choose_walk(reduce_job *j) {
  uint32_t k = j->kept.rank, r = j->reduced.rank;
  int64_t run = r ? j->reduced.dims[r - 1] : 1;
  if (k == 0) j->lanes = false;
  else if (r == 0) j->lanes = true;
  else
    j->lanes = magnitude(j->kept.strides[0][k - 1]) < magnitude(j->reduced.strides[0][r - 1]) ||
               (run < 32 && j->kept.dims[k - 1] > 8);
  j->lane_dim = j->lanes ? j->kept.dims[k - 1] : 1;
  j->lane_blocks = (j->lane_dim + KERN_ROW - 1) / KERN_ROW;
  int64_t first = r ? j->reduced.dims[0] : 1, items = j->kept_count / j->lane_dim * j->lane_blocks;
  j->parts = 1, j->part_size = first;
  if (items >= 32 || j->reduced_count * j->lane_dim < (1 << 17) || first < 2) return;
  int64_t rest = j->reduced_count / first * j->lane_dim; /* elements for each step of dimension 0 */
  j->part_size = (1 << 16) / rest < 1 ? 1 : (1 << 16) / rest;
  if ((first + j->part_size - 1) / j->part_size > 256) j->part_size = (first + 255) / 256;
  j->parts = (first + j->part_size - 1) / j->part_size;
}

/* acc (lane n) over reduced dimension 0's [begin, end) and all of the others. */
static void reduce_lanes(const reduce_job *j, const char *x, int64_t n, int64_t begin, int64_t end, wide *acc) {
  kern_loop inner = j->reduced;
  if (inner.rank) inner.dims[0] = end - begin;
  const char *base = x + (inner.rank ? begin * inner.strides[0][0] : 0);
  int64_t steps = kern_loop_numel(&inner), lane_step = j->kept.strides[0][j->kept.rank - 1];
  wide_row row;
  fill_row(acc, j->neutral, j->entries, n);
  kern_walk w = kern_walk_begin(&inner, inner.rank, 0);
  for (int64_t i = 0; i < steps; ++i, kern_walk_next(&w)) {
    j->w->load(j->dtype, base + w.offsets[0], lane_step, n, row);
    j->w->combine(j->kind, j->cls, acc, row, n);
  }
}

static void reduce_runs(const reduce_job *j, const char *x, int64_t begin, int64_t end, wide *acc) {
  kern_loop inner = j->reduced;
  if (inner.rank) inner.dims[0] = end - begin;
  const char *base = x + (inner.rank ? begin * inner.strides[0][0] : 0);
  uint32_t outer = inner.rank ? inner.rank - 1 : 0;
  int64_t run = inner.rank ? inner.dims[outer] : 1, step = inner.rank ? inner.strides[0][outer] : 0;
  int64_t runs = base_numel(outer, inner.dims);
  wide_row row;
  fill_row(acc, j->neutral, j->entries, 1);
  kern_walk w = kern_walk_begin(&inner, outer, 0);
  for (int64_t i = 0; i < runs; ++i, kern_walk_next(&w))
    for (int64_t at = 0; at < run; at += KERN_ROW) {
      int64_t n = least(KERN_ROW, run - at);
      j->w->load(j->dtype, base + w.offsets[0] + at * step, step, n, row);
      j->w->fold(j->kind, j->cls, acc, row, n);
    }
}

/* Items: (kept position without its lane dimension, lane block, part). */
static void reduce_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const reduce_job *j = context;
  uint32_t outer = j->kept.rank - (j->lanes ? 1 : 0);
  for (int64_t item = begin; item < end; ++item) {
    int64_t part = item % j->parts, block = item / j->parts % j->lane_blocks,
            position = item / j->parts / j->lane_blocks;
    kern_walk w = kern_walk_begin(&j->kept, outer, position);
    int64_t lane = block * KERN_ROW, n = least(KERN_ROW, j->lane_dim - lane);
    int64_t first = part * j->part_size, last = least(first + j->part_size, j->reduced.rank ? j->reduced.dims[0] : 1);
    wide *acc = j->partial + (part * j->kept_count + position * j->lane_dim + lane) * j->entries;
    if (j->lanes) reduce_lanes(j, j->x + w.offsets[0] + lane * j->kept.strides[0][outer], n, first, last, acc);
    else reduce_runs(j, j->x + w.offsets[0], first, last, acc);
  }
}

/* y = init (kind) part 0 (kind) part 1 ... */
static void finish(const reduce_job *j, const wide *init, char *y) {
  uint32_t outer = j->kept.rank ? j->kept.rank - 1 : 0;
  int64_t lane_dim = j->kept.rank ? j->kept.dims[outer] : 1,
          step = j->kept.rank ? j->kept.strides[1][outer] : (int64_t)j->bytes;
  int64_t rows = base_numel(outer, j->kept.dims);
  wide_row acc;
  kern_walk w = kern_walk_begin(&j->kept, outer, 0);
  for (int64_t r = 0; r < rows; ++r, kern_walk_next(&w))
    for (int64_t lane = 0; lane < lane_dim; lane += KERN_ROW) {
      int64_t n = least(KERN_ROW, lane_dim - lane);
      fill_row(acc, init, j->entries, n);
      for (int64_t p = 0; p < j->parts; ++p)
        j->w->combine(j->kind, j->cls, acc, j->partial + (p * j->kept_count + r * lane_dim + lane) * j->entries, n);
      j->w->store(j->dtype, y + w.offsets[1] + lane * step, step, n, acc);
    }
}

bool kern_reduce_supports(ir_kind kind, ttpu_dtype t) { return wide_kind(kind, t) != IR_NO_OP; }

ttpu_status kern_reduce(ir_kind kind, ir_i64s dims, const soft_view *x, const void *init, const soft_view *y) {
  reduce_job j = {.w = wide_get(),
                  .kind = wide_kind(kind, x->dtype),
                  .cls = wide_class_of(x->dtype),
                  .dtype = x->dtype,
                  .bytes = base_dtype_bytes(x->dtype),
                  .x = x->data};
  if (base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  j.entries = wide_entries(j.cls);
  find_neutral(j.kind, j.cls, j.neutral);
  make_loops(&j, dims, x, y);
  wide first[2];
  j.w->load(x->dtype, init, (int64_t)j.bytes, 1, first);
  if (j.reduced_count == 0) {
    kern_fill(y, init);
    return TTPU_OK;
  }
  choose_walk(&j);
  size_t bytes = (size_t)(j.parts * j.kept_count) * j.entries * sizeof(wide);
  if (!(j.partial = base_alloc(bytes))) return base_no_memory(bytes);
  int64_t items = j.kept_count / j.lane_dim * j.lane_blocks * j.parts;
  int64_t cost = j.kept_count * j.reduced_count / 2 + items * 10;
  base_pool_run(items, kern_grain(cost / items), cost, reduce_items, &j);
  finish(&j, first, y->data);
  base_free(j.partial);
  return TTPU_OK;
}

/* ---- argmax, argmin -------------------------------------------------------------------------------- */

typedef struct arg_job {
  const wide_functions *w;
  wide_class cls;
  ttpu_dtype dtype;
  bool largest, lanes;
  const soft_view *x, *values, *indices;
  kern_loop kept;  /* view 0: x, 1: values, 2: indices */
  int64_t n, step; /* of the reduced dimension; bytes */
  int64_t lane_dim, lane_blocks;
  wide init;
  int64_t init_index;
} arg_job;

/* a before b: NaN before all, the smaller index among equals. */
static bool wins(const arg_job *j, wide a, int64_t a_index, wide b, int64_t b_index) {
  bool better, equal;
  if (j->cls == WIDE_F) {
    bool a_nan = isnan(a.f), b_nan = isnan(b.f);
    better = j->largest ? a.f > b.f : a.f < b.f;
    if (a_nan || b_nan) better = a_nan && !b_nan;
    equal = a.f == b.f || (a_nan && b_nan);
  } else if (j->cls == WIDE_I) {
    better = j->largest ? a.i > b.i : a.i < b.i, equal = a.i == b.i;
  } else {
    better = j->largest ? a.u > b.u : a.u < b.u, equal = a.u == b.u;
  }
  return better || (equal && a_index < b_index);
}

static void find_in_lanes(const arg_job *j, const char *x, int64_t lane_step, int64_t n, wide *best, int64_t *index) {
  wide_row row;
  j->w->load(j->dtype, x, lane_step, n, best);
  memset(index, 0, (size_t)n * sizeof *index);
  for (int64_t k = 1; k < j->n; ++k) {
    j->w->load(j->dtype, x + k * j->step, lane_step, n, row);
    j->w->take(j->largest, false, j->cls, best, index, row, k, n);
  }
}

static bool same(wide_class c, wide a, wide b) {
  return c == WIDE_F ? a.f == b.f || (isnan(a.f) && isnan(b.f)) : a.u == b.u;
}

/* A row at a time: its extreme, and only where that is a new one, its place. */
static void find_in_run(const arg_job *j, const char *x, wide *best, int64_t *index) {
  wide_row row;
  *index = -1;
  for (int64_t at = 0; at < j->n; at += KERN_ROW) {
    int64_t n = least(KERN_ROW, j->n - at), i = 0;
    j->w->load(j->dtype, x + at * j->step, j->step, n, row);
    wide extreme = row[0];
    j->w->fold(j->largest ? IR_MAXIMUM : IR_MINIMUM, j->cls, &extreme, row + 1, n - 1);
    if (at > 0 && !wins(j, extreme, at, *best, *index)) continue;
    while (!same(j->cls, row[i], extreme)) ++i;
    *best = row[i], *index = at + i;
  }
}

static void find_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const arg_job *j = context;
  uint32_t outer = j->kept.rank - (j->lanes ? 1 : 0);
  int64_t x_step = j->lanes ? j->kept.strides[0][outer] : 0, value_step = j->lanes ? j->kept.strides[1][outer] : 0,
          index_step = j->lanes ? j->kept.strides[2][outer] : 0;
  wide_row best;
  int64_t index[KERN_ROW];
  for (int64_t item = begin; item < end; ++item) {
    kern_walk w = kern_walk_begin(&j->kept, outer, item / j->lane_blocks);
    int64_t lane = item % j->lane_blocks * KERN_ROW, n = least(KERN_ROW, j->lane_dim - lane);
    const char *x = (const char *)j->x->data + w.offsets[0] + lane * x_step;
    if (j->n > 0 && j->lanes) find_in_lanes(j, x, x_step, n, best, index);
    else if (j->n > 0) find_in_run(j, x, best, index);
    for (int64_t i = 0; i < n; ++i) {
      if (j->n == 0 || wins(j, j->init, j->init_index, best[i], index[i])) best[i] = j->init, index[i] = j->init_index;
      *(int64_t *)((char *)j->indices->data + w.offsets[2] + (lane + i) * index_step) = index[i];
    }
    j->w->store(j->dtype, (char *)j->values->data + w.offsets[1] + lane * value_step, value_step, n, best);
  }
}

bool kern_reduce_arg_supports(ttpu_dtype t) { return !base_dtype_is_complex(t); }

ttpu_status kern_reduce_arg(bool largest, uint32_t dim, const soft_view *x, const void *init, int64_t init_index,
                            const soft_view *values, const soft_view *indices) {
  arg_job j = {.w = wide_get(),
               .cls = wide_class_of(x->dtype),
               .dtype = x->dtype,
               .largest = largest,
               .x = x,
               .values = values,
               .indices = indices,
               .n = x->dims[dim],
               .init_index = init_index};
  if (base_numel(values->rank, values->dims) == 0) return TTPU_OK;
  int64_t bytes = (int64_t)base_dtype_bytes(x->dtype), strides[TTPU_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t d = 0; d < x->rank; ++d)
    if (d != dim) strides[k++] = x->strides[d];
  kern_loop_make(&j.kept, k, values->dims, 3, (const int64_t *const[]){strides, values->strides, indices->strides},
                 (const size_t[]){(size_t)bytes, (size_t)bytes, sizeof(int64_t)});
  kern_loop_sort(&j.kept);
  j.step = x->strides[dim] * bytes;
  j.w->load(x->dtype, init, bytes, 1, &j.init);
  uint32_t last = j.kept.rank - 1;
  j.lanes = j.kept.rank > 0 &&
            (magnitude(j.kept.strides[0][last]) < magnitude(j.step) || (j.n < 32 && j.kept.dims[last] > 8));
  j.lane_dim = j.lanes ? j.kept.dims[last] : 1;
  j.lane_blocks = (j.lane_dim + KERN_ROW - 1) / KERN_ROW;
  int64_t items = kern_loop_numel(&j.kept) / j.lane_dim * j.lane_blocks, cost = kern_loop_numel(&j.kept) * (j.n + 10);
  base_pool_run(items, kern_grain(cost / items), cost, find_items, &j);
  return TTPU_OK;
}
