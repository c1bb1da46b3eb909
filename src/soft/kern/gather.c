/* Gather: for every batch position (an index vector) a window of x goes to y.
 *
 * The window is split into rows and a run: its last dimension, when that is contiguous on both sides, is the run, and
 * the other dimensions count the rows; else a run is one element. Work is cut into blocks of (batch positions x
 * rows). For a block the start offsets are computed once into a small table; then rows are the outer loop
 * and batch positions the inner one, so that gathering single elements along a contiguous batch dimension is one
 * tight loop over the table.
 */
#include <string.h>

#include "soft/kern/data.h"

enum { TABLE = 512 }; /* batch positions in a block at most */

typedef struct gather_job {
  const soft_view *x, *indices, *y;
  size_t bytes;
  kern_loop window;  /* view 0: y, 1: x */
  uint32_t row_rank; /* window dimensions before the run */
  int64_t run;       /* bytes */
  int64_t rows;
  /* batch dimensions of y in order */
  uint32_t batch_rank;
  int64_t batch_dims[TTPU_MAX_RANK], batch_y[TTPU_MAX_RANK],
      batch_x[TTPU_MAX_RANK];         /* strides in bytes; x: batching dims */
  int64_t batch_index[TTPU_MAX_RANK]; /* strides of indices in bytes */
  int64_t batches;
  uint32_t components; /* of an index vector */
  int64_t component_stride, component_x[TTPU_MAX_RANK], component_limit[TTPU_MAX_RANK];
  int64_t block_batches, block_rows, row_blocks;
} gather_job;

static bool contains(ir_i64s list, int64_t x) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == x) return true;
  return false;
}

/* ---- preparation --------------------------------------------------------------------------------- */

static void find_window(gather_job *j, const ir_gather_attrs *a) {
  int64_t dims[TTPU_MAX_RANK], to[TTPU_MAX_RANK], from[TTPU_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t d = 0; d < j->x->rank; ++d) {
    if (contains(a->collapsed_slice_dims, d) || contains(a->operand_batching_dims, d)) continue;
    dims[n] = a->slice_sizes.data[d];
    to[n] = j->y->strides[a->offset_dims.data[n]];
    from[n] = j->x->strides[d];
    ++n;
  }
  kern_loop_make(&j->window, n, dims, 2, (const int64_t *const[]){to, from}, (const size_t[]){j->bytes, j->bytes});
  kern_loop_sort(&j->window);
  uint32_t last = j->window.rank - 1;
  bool contiguous = j->window.rank > 0 && j->window.strides[0][last] == (int64_t)j->bytes &&
                    j->window.strides[1][last] == (int64_t)j->bytes;
  j->row_rank = contiguous ? last : j->window.rank;
  j->run = contiguous ? j->window.dims[last] * (int64_t)j->bytes : (int64_t)j->bytes;
  j->rows = base_numel(j->row_rank, j->window.dims);
}

/* Batch dimensions: those of y that are no offset dimensions; the k-th is the k-th of indices without
 * index_vector_dim. */
static void find_batch(gather_job *j, const ir_gather_attrs *a) {
  size_t index_bytes = base_dtype_bytes(j->indices->dtype);
  uint32_t of_index = 0;
  j->batches = 1;
  for (uint32_t d = 0; d < j->y->rank; ++d) {
    if (contains(a->offset_dims, d)) continue;
    if (of_index == a->index_vector_dim) ++of_index;
    uint32_t b = j->batch_rank++;
    j->batch_dims[b] = j->y->dims[d];
    j->batches *= j->y->dims[d];
    j->batch_y[b] = j->y->strides[d] * (int64_t)j->bytes;
    j->batch_index[b] = j->indices->strides[of_index] * (int64_t)index_bytes;
    j->batch_x[b] = 0;
    for (uint32_t k = 0; k < a->operand_batching_dims.count; ++k)
      if (a->start_indices_batching_dims.data[k] == of_index)
        j->batch_x[b] = j->x->strides[a->operand_batching_dims.data[k]] * (int64_t)j->bytes;
    ++of_index;
  }
  bool vector = a->index_vector_dim < j->indices->rank;
  j->component_stride = vector ? j->indices->strides[a->index_vector_dim] * (int64_t)index_bytes : 0;
  j->components = a->start_index_map.count;
  for (uint32_t k = 0; k < j->components; ++k) {
    int64_t d = a->start_index_map.data[k];
    j->component_x[k] = j->x->strides[d] * (int64_t)j->bytes;
    j->component_limit[k] = j->x->dims[d] - a->slice_sizes.data[d];
  }
}

/* ---- a block ------------------------------------------------------------------------------------- */

/* from[i] += clamped index * stride, for n indices `step` bytes apart. */
#define ADD_INDICES(T)                               \
  for (int64_t i = 0; i < n; ++i) {                  \
    int64_t v = (int64_t)*(const T *)(p + i * step); \
    v = v < 0 ? 0 : v > limit ? limit : v;           \
    from[i] += v * stride;                           \
  }

static void add_indices(ttpu_dtype t, const char *p, int64_t step, int64_t n, int64_t limit, int64_t stride,
                        int64_t *from) {
  switch (t) {
    case TTPU_I64: ADD_INDICES(int64_t); return;
    case TTPU_I32: ADD_INDICES(int32_t); return;
    default:
      for (int64_t i = 0; i < n; ++i) {
        int64_t v = kern_integer_at(t, p + i * step);
        from[i] += (v < 0 ? 0 : v > limit ? limit : v) * stride;
      }
  }
}

/* Batch positions that differ in the innermost batch dimension alone: byte offsets of the first one, and steps. */
typedef struct segment {
  int64_t n, y, x, index, y_step, x_step, index_step;
} segment;

/* The longest segment from position b that ends before `end`. */
static segment segment_at(const gather_job *j, int64_t b, int64_t end) {
  segment s = {.n = 1};
  int64_t rest = b;
  for (uint32_t d = j->batch_rank; d-- > 0;) {
    int64_t at = d ? rest % j->batch_dims[d] : rest;
    rest = d ? rest / j->batch_dims[d] : 0;
    s.y += at * j->batch_y[d], s.x += at * j->batch_x[d], s.index += at * j->batch_index[d];
    if (d != j->batch_rank - 1) continue;
    s.n = j->batch_dims[d] - at < end - b ? j->batch_dims[d] - at : end - b;
    s.y_step = j->batch_y[d], s.x_step = j->batch_x[d], s.index_step = j->batch_index[d];
  }
  return s;
}

/* Offsets of batch positions [begin, end) in y and x. */
static void fill_table(const gather_job *j, int64_t begin, int64_t end, int64_t *to, int64_t *from) {
  for (int64_t b = begin; b < end;) {
    segment s = segment_at(j, b, end);
    for (int64_t i = 0; i < s.n; ++i) to[i] = s.y + i * s.y_step, from[i] = s.x + i * s.x_step;
    for (uint32_t k = 0; k < j->components; ++k)
      add_indices(j->indices->dtype, (const char *)j->indices->data + s.index + k * j->component_stride, s.index_step,
                  s.n, j->component_limit[k], j->component_x[k], from);
    b += s.n, to += s.n, from += s.n;
  }
}

/* ---- single elements by single indices, without a table ------------------------------------------------ */

/* A run of a few small elements is moved as one word, which need not be aligned as such. */
typedef uint16_t loose16 __attribute__((aligned(1), may_alias));
typedef uint32_t loose32 __attribute__((aligned(1), may_alias));
typedef uint64_t loose64 __attribute__((aligned(1), may_alias));

#define MOVE_POINTS(T, I)                                                   \
  for (int64_t i = 0; i < s.n; ++i) {                                       \
    int64_t v = (int64_t)*(const I *)(p + i * s.index_step);                \
    v = v < 0 ? 0 : v > limit ? limit : v;                                  \
    *(T *)(y + i * s.y_step) = *(const T *)(x + i * s.x_step + v * stride); \
  }                                                                         \
  break
#define MOVE_SIZES(I)                 \
  switch (j->run) {                   \
    case 1: MOVE_POINTS(uint8_t, I);  \
    case 2: MOVE_POINTS(loose16, I);  \
    case 4: MOVE_POINTS(loose32, I);  \
    default: MOVE_POINTS(loose64, I); \
  }

static bool is_points(const gather_job *j) {
  bool size = j->run == 1 || j->run == 2 || j->run == 4 || j->run == 8, one = j->components == 1 && j->rows == 1;
  return size && one && (j->indices->dtype == TTPU_I64 || j->indices->dtype == TTPU_I32);
}

static void gather_points(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const gather_job *j = context;
  const int64_t limit = j->component_limit[0], stride = j->component_x[0];
  for (int64_t b = begin; b < end;) {
    segment s = segment_at(j, b, end);
    char *y = (char *)j->y->data + s.y;
    const char *x = (const char *)j->x->data + s.x, *p = (const char *)j->indices->data + s.index;
    if (j->indices->dtype == TTPU_I64) {
      MOVE_SIZES(int64_t)
    } else {
      MOVE_SIZES(int32_t)
    }
    b += s.n;
  }
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

#define MOVE_EACH(BYTES) \
  for (int64_t i = 0; i < n; ++i) memcpy(y + to[i], x + from[i], BYTES)

/* One run for each entry of the table. Small sizes as constants: moves instead of calls. */
static void move_runs(char *y, const char *x, const int64_t *to, const int64_t *from, int64_t n, int64_t run) {
  switch (run) {
    case 1: MOVE_EACH(1); return;
    case 2: MOVE_EACH(2); return;
    case 4: MOVE_EACH(4); return;
    case 8: MOVE_EACH(8); return;
    case 16: MOVE_EACH(16); return;
    case 32: MOVE_EACH(32); return;
    case 64: MOVE_EACH(64); return;
    default: MOVE_EACH((size_t)run); return;
  }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void gather_blocks(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const gather_job *j = context;
  int64_t to[TABLE], from[TABLE], filled = -1;
  for (int64_t block = begin; block < end; ++block) {
    int64_t b = block / j->row_blocks * j->block_batches, n = least(j->block_batches, j->batches - b);
    if (b != filled) fill_table(j, b, b + n, to, from), filled = b;
    int64_t row = block % j->row_blocks * j->block_rows, row_end = least(row + j->block_rows, j->rows);
    kern_walk w = kern_walk_begin(&j->window, j->row_rank, row);
    for (; row < row_end; ++row, kern_walk_next(&w))
      move_runs((char *)j->y->data + w.offsets[0], (const char *)j->x->data + w.offsets[1], to, from, n, j->run);
  }
}

ttpu_status kern_gather(const ir_gather_attrs *a, const soft_view *x, const soft_view *indices, const soft_view *y) {
  gather_job j = {.x = x, .indices = indices, .y = y, .bytes = base_dtype_bytes(x->dtype)};
  if (base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  find_window(&j, a);
  find_batch(&j, a);
  if (is_points(&j)) {
    base_pool_run(j.batches, 16384, j.batches * 2, gather_points, &j);
    return TTPU_OK;
  }
  int64_t target = 65536 / j.run; /* runs in a block: about 64 KiB */
  target = target < 1 ? 1 : target;
  j.block_batches = least(least(target, TABLE), j.batches);
  j.block_rows = target / j.block_batches < 1 ? 1 : least(target / j.block_batches, j.rows);
  j.row_blocks = (j.rows + j.block_rows - 1) / j.block_rows;
  int64_t blocks = (j.batches + j.block_batches - 1) / j.block_batches * j.row_blocks;
  int64_t runs = j.batches * j.rows, cost = runs * (2 + kern_move_cost(2 * j.run));
  base_pool_run(blocks, kern_grain(cost / blocks), cost, gather_blocks, &j);
  return TTPU_OK;
}
