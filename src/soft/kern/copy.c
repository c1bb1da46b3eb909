/* Strided copies. After sorting the loop by the destination's strides there are four cases for the last dimension:
 *   both run on             memcpy, or moves of a fixed size for short runs
 *   the source stands still fill
 *   the source runs on in another dimension   transposition in tiles of that dimension and the last
 *   neither                 strided moves of one element
 * Elements are moved as unsigned words of their size.
 */
#include <string.h>

#include "soft/kern/data.h"

/* ---- loops --------------------------------------------------------------------------------------- */

static bool runs_on(const kern_loop *l, uint32_t outer, uint32_t inner) {
  for (uint32_t v = 0; v < l->views; ++v)
    if (l->strides[v][outer] != l->strides[v][inner] * l->dims[inner]) return false;
  return true;
}

static void move_dim(kern_loop *l, uint32_t to, uint32_t from) {
  l->dims[to] = l->dims[from];
  for (uint32_t v = 0; v < l->views; ++v) l->strides[v][to] = l->strides[v][from];
}

/* Merges dimension d + 1 into d where all views run on. */
static void merge_dims(kern_loop *l) {
  uint32_t out = 0;
  for (uint32_t d = 1; d < l->rank; ++d) {
    if (runs_on(l, out, d)) {
      int64_t size = l->dims[out];
      move_dim(l, out, d);
      l->dims[out] *= size;
    } else {
      move_dim(l, ++out, d);
    }
  }
  l->rank = l->rank ? out + 1 : 0;
}

void kern_loop_make(kern_loop *l, uint32_t rank, const int64_t *dims, uint32_t views, const int64_t *const *strides,
                    const size_t *bytes) {
  l->rank = 0, l->views = views;
  if (base_numel(rank, dims) == 0) {
    l->rank = 1, l->dims[0] = 0;
    for (uint32_t v = 0; v < views; ++v) l->strides[v][0] = 0;
    return;
  }
  for (uint32_t d = 0; d < rank; ++d) {
    if (dims[d] == 1) continue;
    l->dims[l->rank] = dims[d];
    for (uint32_t v = 0; v < views; ++v) l->strides[v][l->rank] = strides[v][d] * (int64_t)bytes[v];
    ++l->rank;
  }
  merge_dims(l);
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

void kern_loop_sort(kern_loop *l) {
  bool moved = false;
  for (uint32_t i = 1; i < l->rank; ++i)
    for (uint32_t d = i; d > 0 && magnitude(l->strides[0][d - 1]) < magnitude(l->strides[0][d]); --d) {
      int64_t size = l->dims[d], strides[KERN_LOOP_VIEWS];
      for (uint32_t v = 0; v < l->views; ++v) strides[v] = l->strides[v][d];
      move_dim(l, d, d - 1);
      l->dims[d - 1] = size;
      for (uint32_t v = 0; v < l->views; ++v) l->strides[v][d - 1] = strides[v];
      moved = true;
    }
  if (moved) merge_dims(l);
}

kern_walk kern_walk_begin(const kern_loop *loop, uint32_t rank, int64_t flat) {
  kern_walk w = {.loop = loop, .rank = rank};
  for (uint32_t d = rank; d-- > 0 && flat;) {
    w.at[d] = flat % loop->dims[d];
    flat /= loop->dims[d];
    for (uint32_t v = 0; v < loop->views; ++v) w.offsets[v] += w.at[d] * loop->strides[v][d];
  }
  return w;
}

/* ---- one run ------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t low, high;
} word128;

#define MOVE_STRIDED(T)                                                                              \
  do {                                                                                               \
    if (to_step == (int64_t)sizeof(T))                                                               \
      for (int64_t i = 0; i < n; ++i) ((T *)to)[i] = *(const T *)(from + i * from_step);             \
    else if (from_step == (int64_t)sizeof(T))                                                        \
      for (int64_t i = 0; i < n; ++i) *(T *)(to + i * to_step) = ((const T *)from)[i];               \
    else                                                                                             \
      for (int64_t i = 0; i < n; ++i) *(T *)(to + i * to_step) = *(const T *)(from + i * from_step); \
  } while (0)

static void move_strided(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, size_t bytes) {
  switch (bytes) {
    case 1: MOVE_STRIDED(uint8_t); return;
    case 2: MOVE_STRIDED(uint16_t); return;
    case 4: MOVE_STRIDED(uint32_t); return;
    case 8: MOVE_STRIDED(uint64_t); return;
    default: MOVE_STRIDED(word128); return;
  }
}

#define FILL(T)                                           \
  do {                                                    \
    T value = *(const T *)from;                           \
    for (int64_t i = 0; i < n; ++i) ((T *)to)[i] = value; \
  } while (0)

static void fill_run(char *to, const char *from, int64_t n, size_t bytes) {
  switch (bytes) {
    case 1: memset(to, *(const uint8_t *)from, (size_t)n); return;
    case 2: FILL(uint16_t); return;
    case 4: FILL(uint32_t); return;
    case 8: FILL(uint64_t); return;
    default: FILL(word128); return;
  }
}

static void move_run(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, size_t bytes) {
  if (to_step == (int64_t)bytes && from_step == to_step) memcpy(to, from, (size_t)n * bytes);
  else if (to_step == (int64_t)bytes && from_step == 0) fill_run(to, from, n, bytes);
  else move_strided(to, to_step, from, from_step, n, bytes);
}

/* ---- transposition ------------------------------------------------------------------------------- */

/* to[r * to_row + c] = from[c * from_row + r], r < rows, c < columns: destination rows are written whole, so that
 * a tile's cache lines on both sides are used up while they are near. */
#define TRANSPOSE(T)                 \
  for (int64_t r = 0; r < rows; ++r) \
    for (int64_t c = 0; c < columns; ++c) ((T *)(to + r * to_row))[c] = ((const T *)(from + c * from_row))[r]

#define SHUFFLE4(T, V)                                                                                              \
  static void transpose_4x4_##T(char *to, int64_t to_row, const char *from, int64_t from_row) {                     \
    V a, b, c, d;                                                                                                   \
    memcpy(&a, from, sizeof a), memcpy(&b, from + from_row, sizeof b);                                              \
    memcpy(&c, from + 2 * from_row, sizeof c), memcpy(&d, from + 3 * from_row, sizeof d);                           \
    V ac_low = __builtin_shuffle(a, c, (V){0, 4, 1, 5}), ac_high = __builtin_shuffle(a, c, (V){2, 6, 3, 7});        \
    V bd_low = __builtin_shuffle(b, d, (V){0, 4, 1, 5}), bd_high = __builtin_shuffle(b, d, (V){2, 6, 3, 7});        \
    a = __builtin_shuffle(ac_low, bd_low, (V){0, 4, 1, 5}), b = __builtin_shuffle(ac_low, bd_low, (V){2, 6, 3, 7}); \
    c = __builtin_shuffle(ac_high, bd_high, (V){0, 4, 1, 5}),                                                       \
    d = __builtin_shuffle(ac_high, bd_high, (V){2, 6, 3, 7});                                                       \
    memcpy(to, &a, sizeof a), memcpy(to + to_row, &b, sizeof b);                                                    \
    memcpy(to + 2 * to_row, &c, sizeof c), memcpy(to + 3 * to_row, &d, sizeof d);                                   \
  }
typedef uint32_t vector4 __attribute__((vector_size(16)));
SHUFFLE4(uint32_t, vector4)

typedef uint16_t vector8 __attribute__((vector_size(16)));

/* Three rounds of interleaving rows i and i + 4. */
static void transpose_8x8(char *to, int64_t to_row, const char *from, int64_t from_row) {
  vector8 a[8], b[8];
  for (int i = 0; i < 8; ++i) memcpy(&a[i], from + i * from_row, sizeof a[i]);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = __builtin_shuffle(a[i], a[i + 4], (vector8){0, 8, 1, 9, 2, 10, 3, 11});
      b[2 * i + 1] = __builtin_shuffle(a[i], a[i + 4], (vector8){4, 12, 5, 13, 6, 14, 7, 15});
    }
    memcpy(a, b, sizeof a);
  }
  for (int i = 0; i < 8; ++i) memcpy(to + i * to_row, &a[i], sizeof a[i]);
}

static void transpose_edge(char *to, int64_t to_row, const char *from, int64_t from_row, int64_t rows, int64_t columns,
                           size_t bytes) {
  switch (bytes) {
    case 1: TRANSPOSE(uint8_t); return;
    case 2: TRANSPOSE(uint16_t); return;
    case 4: TRANSPOSE(uint32_t); return;
    case 8: TRANSPOSE(uint64_t); return;
    default: TRANSPOSE(word128); return;
  }
}

/* In little squares where there is a shuffle for the size, the rest element by element. The columns are the outer loop: a
 * few source lines are used up before the next ones are touched. */
static void transpose_squares(char *to, int64_t to_row, const char *from, int64_t from_row, int64_t rows,
                              int64_t columns, size_t bytes) {
  int64_t side = bytes == 4 ? 4 : bytes == 2 ? 8 : 0;
  if (side == 0 || rows < side || columns < side) {
    transpose_edge(to, to_row, from, from_row, rows, columns, bytes);
    return;
  }
  int64_t whole_rows = rows / side * side, whole_columns = columns / side * side, width = (int64_t)bytes;
  for (int64_t c = 0; c < whole_columns; c += side)
    for (int64_t r = 0; r < whole_rows; r += side) {
      char *t = to + r * to_row + c * width;
      const char *f = from + c * from_row + r * width;
      if (bytes == 4) transpose_4x4_uint32_t(t, to_row, f, from_row);
      else transpose_8x8(t, to_row, f, from_row);
    }
  if (whole_columns < columns)
    transpose_edge(to + whole_columns * width, to_row, from + whole_columns * from_row, from_row, whole_rows,
                   columns - whole_columns, bytes);
  if (whole_rows < rows)
    transpose_edge(to + whole_rows * to_row, to_row, from + whole_rows * width, from_row, rows - whole_rows, columns,
                   bytes);
}

enum { TILE_BYTES = 8192 };

/* One tile, at most TILE_BYTES. Rows of the destination that are a large power of two apart share a few places of the
 * cache, so they are put together in a buffer and written one after the other. */
static void transpose_tile(char *to, int64_t to_row, const char *from, int64_t from_row, int64_t rows, int64_t columns,
                           size_t bytes) {
  if (to_row % 1024 != 0) {
    transpose_squares(to, to_row, from, from_row, rows, columns, bytes);
    return;
  }
  _Alignas(64) char tile[TILE_BYTES];
  int64_t row = columns * (int64_t)bytes;
  transpose_squares(tile, row, from, from_row, rows, columns, bytes);
  for (int64_t r = 0; r < rows; ++r) memcpy(to + r * to_row, tile + r * row, (size_t)row);
}

/* ---- the copy ------------------------------------------------------------------------------------ */

typedef struct copy_job {
  kern_loop loop; /* view 0: destination, 1: source */
  char *to;
  const char *from;
  size_t bytes;
  int64_t piece, pieces; /* the last dimension in pieces of so many elements */
  /* transposition: dimension rank - 2 is the source's contiguous one, in tiles as well */
  int64_t tile_rows, row_tiles;
} copy_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Items: (outer position, piece of the last dimension). */
static void copy_rows(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy_job *j = context;
  uint32_t last = j->loop.rank - 1;
  int64_t to_step = j->loop.strides[0][last], from_step = j->loop.strides[1][last], n = j->loop.dims[last];
  kern_walk w = kern_walk_begin(&j->loop, last, begin / j->pieces);
  int64_t piece = begin % j->pieces;
  for (int64_t i = begin; i < end; ++i) {
    int64_t start = piece * j->piece;
    move_run(j->to + w.offsets[0] + start * to_step, to_step, j->from + w.offsets[1] + start * from_step, from_step,
             least(j->piece, n - start), j->bytes);
    if (++piece == j->pieces) piece = 0, kern_walk_next(&w);
  }
}

/* Runs of a few bytes: the size as a constant makes each a move instead of a call. */
#define COPY_SHORT(BYTES) \
  for (int64_t i = begin; i < end; ++i, kern_walk_next(&w)) memcpy(j->to + w.offsets[0], j->from + w.offsets[1], BYTES)

static void copy_short_runs(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy_job *j = context;
  uint32_t last = j->loop.rank - 1;
  kern_walk w = kern_walk_begin(&j->loop, last, begin);
  switch ((size_t)j->loop.dims[last] * j->bytes) {
    case 2: COPY_SHORT(2); return;
    case 4: COPY_SHORT(4); return;
    case 8: COPY_SHORT(8); return;
    case 16: COPY_SHORT(16); return;
    case 32: COPY_SHORT(32); return;
    default: COPY_SHORT(64); return;
  }
}

/* Items: (outer position, tile of rows, tile of columns). */
static void copy_tiles(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy_job *j = context;
  uint32_t column_dim = j->loop.rank - 1, row_dim = j->loop.rank - 2;
  int64_t rows = j->loop.dims[row_dim], columns = j->loop.dims[column_dim];
  int64_t to_row = j->loop.strides[0][row_dim], from_row = j->loop.strides[1][column_dim];
  for (int64_t i = begin; i < end; ++i) {
    int64_t tile = i % (j->row_tiles * j->pieces);
    kern_walk w = kern_walk_begin(&j->loop, row_dim, i / (j->row_tiles * j->pieces));
    int64_t r = tile / j->pieces * j->tile_rows, c = tile % j->pieces * j->piece;
    transpose_tile(j->to + w.offsets[0] + r * to_row + c * (int64_t)j->bytes, to_row,
                   j->from + w.offsets[1] + r * (int64_t)j->bytes + c * from_row, from_row,
                   least(j->tile_rows, rows - r), least(j->piece, columns - c), j->bytes);
  }
}

/* Brings the dimension in which the source runs on to place rank - 2, where the order of the others allows any. */
static bool find_transposition(copy_job *j) {
  kern_loop *l = &j->loop;
  uint32_t last = l->rank - 1;
  int64_t bytes = (int64_t)j->bytes;
  if (l->rank < 2 || l->strides[0][last] != bytes || l->strides[1][last] == bytes || l->strides[1][last] == 0)
    return false;
  for (uint32_t d = 0; d < last; ++d) {
    if (l->strides[1][d] != bytes || l->dims[d] < 4 || l->dims[last] < 4) continue;
    int64_t size = l->dims[d], to = l->strides[0][d], from = l->strides[1][d];
    for (uint32_t k = d; k + 1 < last; ++k) move_dim(l, k, k + 1);
    l->dims[last - 1] = size, l->strides[0][last - 1] = to, l->strides[1][last - 1] = from;
    return true;
  }
  return false;
}

static void run_transposition(copy_job *j) {
  uint32_t rank = j->loop.rank;
  j->tile_rows = j->bytes > 8 ? 8 : 64 / (int64_t)j->bytes; /* a cache line of the source, as a rule */
  j->piece = 64;
  j->row_tiles = (j->loop.dims[rank - 2] + j->tile_rows - 1) / j->tile_rows;
  j->pieces = (j->loop.dims[rank - 1] + j->piece - 1) / j->piece;
  int64_t items = base_numel(rank - 2, j->loop.dims) * j->row_tiles * j->pieces;
  int64_t bytes = kern_loop_numel(&j->loop) * (int64_t)j->bytes;
  base_pool_run(items, kern_grain(kern_move_cost(3 * bytes / items)), kern_move_cost(3 * bytes), copy_tiles, j);
}

static bool is_short_run(const copy_job *j) {
  uint32_t last = j->loop.rank - 1;
  int64_t bytes = (int64_t)j->bytes, run = j->loop.dims[last] * bytes;
  if (j->loop.strides[0][last] != bytes || j->loop.strides[1][last] != bytes) return false;
  return run == 2 || run == 4 || run == 8 || run == 16 || run == 32 || run == 64;
}

static void run_copy(copy_job *j) {
  if (kern_loop_numel(&j->loop) == 0) return;
  if (j->loop.rank == 0) {
    memcpy(j->to, j->from, j->bytes);
    return;
  }
  if (find_transposition(j)) {
    run_transposition(j);
    return;
  }
  uint32_t last = j->loop.rank - 1;
  int64_t n = j->loop.dims[last], rows = base_numel(last, j->loop.dims), bytes = n * rows * (int64_t)j->bytes;
  bool contiguous = j->loop.strides[0][last] == (int64_t)j->bytes && j->loop.strides[1][last] == (int64_t)j->bytes;
  int64_t cost = kern_move_cost(bytes) * (contiguous ? 1 : 2) + rows * 3;
  if (is_short_run(j)) {
    base_pool_run(rows, kern_grain(cost / rows), cost, copy_short_runs, j);
    return;
  }
  j->piece = (1 << 20) / (int64_t)j->bytes;
  j->pieces = (n + j->piece - 1) / j->piece;
  base_pool_run(rows * j->pieces, kern_grain(cost / (rows * j->pieces)), cost, copy_rows, j);
}

void kern_copy(const soft_view *dst, const soft_view *src) {
  copy_job j = {.to = dst->data, .from = src->data, .bytes = base_dtype_bytes(dst->dtype)};
  kern_loop_make(&j.loop, dst->rank, dst->dims, 2, (const int64_t *const[]){dst->strides, src->strides},
                 (const size_t[]){j.bytes, j.bytes});
  kern_loop_sort(&j.loop);
  run_copy(&j);
}

void kern_fill(const soft_view *dst, const void *element) {
  soft_view src = *dst;
  src.data = (void *)element; /* read only */
  memset(src.strides, 0, sizeof src.strides);
  kern_copy(dst, &src);
}

soft_view kern_slice(const soft_view *v, uint32_t dim, int64_t start, int64_t size) {
  soft_view part = *v;
  part.data = (char *)v->data + start * v->strides[dim] * (int64_t)base_dtype_bytes(v->dtype);
  part.dims[dim] = size;
  return part;
}

bool kern_same(const soft_view *a, const soft_view *b) {
  if (a->data != b->data) return false;
  for (uint32_t d = 0; d < a->rank; ++d)
    if (a->dims[d] != 1 && a->strides[d] != b->strides[d]) return false;
  return true;
}

/* ---- integers ------------------------------------------------------------------------------------ */

int64_t kern_integer_at(ttpu_dtype t, const void *p) {
  switch (t) {
    case TTPU_I64: return *(const int64_t *)p;
    case TTPU_I32: return *(const int32_t *)p;
    case TTPU_I16: return *(const int16_t *)p;
    case TTPU_I8: return *(const int8_t *)p;
    case TTPU_U64: return *(const uint64_t *)p > INT64_MAX ? INT64_MAX : (int64_t)*(const uint64_t *)p;
    case TTPU_U32: return *(const uint32_t *)p;
    case TTPU_U16: return *(const uint16_t *)p;
    default: return *(const uint8_t *)p;
  }
}

void kern_read_integers(const soft_view *src, int64_t *dst) {
  kern_loop loop;
  size_t bytes = base_dtype_bytes(src->dtype);
  kern_loop_make(&loop, src->rank, src->dims, 1, (const int64_t *const[]){src->strides}, &bytes);
  int64_t n = kern_loop_numel(&loop);
  kern_walk w = kern_walk_begin(&loop, loop.rank, 0);
  for (int64_t i = 0; i < n; ++i, kern_walk_next(&w))
    dst[i] = kern_integer_at(src->dtype, (char *)src->data + w.offsets[0]);
}
