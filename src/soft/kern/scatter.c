/* Scatter: y, which holds the operand, is combined with a window of updates at every batch position.
 *
 * Duplicates combine in the order of the batch positions, for any number of threads. Batch positions that differ in a
 * batching dimension never meet: where such dimensions come first, each of their positions is a task. Otherwise, for
 * windows worth it, every task walks through all positions in order and applies those whose target lies in its own
 * part of y. (Which part a target falls in depends on the number of threads, but nothing else does.) That needs windows
 * that either coincide or do not touch, so dimensions that are indexed must be inserted ones (size 1 in
 * the window); other scatters are declined.
 *
 * Positions are worked on in tables of TABLE; one whose index lies outside is marked there and dropped.
 */
// clang-format off: lists of rows, which it takes for statements
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"

enum { DROPPED = -1, TABLE = 512 };

/* y[i] = y[i] (combine) u[i] for a run, strides in bytes. */
typedef void (*run_fn)(char *y, int64_t y_step, const char *u, int64_t u_step, int64_t n);
/* The same for single elements: element i goes to y + i * y_step + index[i] * stride where index[i] lies in [0, size). */
typedef void (*points_fn)(char *y, int64_t y_step, const int64_t *index, int64_t size, int64_t stride, const char *u,
                          int64_t u_step, int64_t n);
typedef struct combiner {
  run_fn run;
  points_fn points;
} combiner;

typedef struct scatter_job {
  const soft_view *indices, *updates, *y;
  size_t bytes;
  combiner combine;
  kern_loop window; /* view 0: y, 1: updates */
  uint32_t row_rank;
  int64_t rows, run, y_step, u_step; /* the run is the window's last dimension */
  uint32_t batch_rank;
  int64_t batch_dims[TTPU_MAX_RANK], batch_u[TTPU_MAX_RANK], batch_y[TTPU_MAX_RANK], batch_index[TTPU_MAX_RANK];
  int64_t batches;
  uint32_t components;
  int64_t component_stride, component_y[TTPU_MAX_RANK], component_size[TTPU_MAX_RANK];
  int64_t component_number[TTPU_MAX_RANK], batch_number[TTPU_MAX_RANK]; /* weights of a target's number */
  int64_t targets; /* how many numbers there are */
  int64_t groups, parts;
} scatter_job;

static bool contains(ir_i64s list, int64_t x) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == x) return true;
  return false;
}

/* ---- combining ----------------------------------------------------------------------------------- */

#define RUN(name, T, EXPR)                                                                                         \
  static void name(char *y, int64_t y_step, const char *u, int64_t u_step, int64_t n) {                            \
    if (y_step == (int64_t)sizeof(T) && u_step == (int64_t)sizeof(T))                                              \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        T a = ((T *)y)[i], b = ((const T *)u)[i];                                                                  \
        ((T *)y)[i] = (T)(EXPR);                                                                                   \
      }                                                                                                            \
    else                                                                                                           \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        T a = *(T *)(y + i * y_step), b = *(const T *)(u + i * u_step);                                            \
        *(T *)(y + i * y_step) = (T)(EXPR);                                                                        \
      }                                                                                                            \
  }                                                                                                                \
  static void points_##name(char *y, int64_t y_step, const int64_t *index, int64_t size, int64_t stride, const char *u, \
                            int64_t u_step, int64_t n) {                                                           \
    for (int64_t i = 0; i < n; ++i) {                                                                              \
      if ((uint64_t)index[i] >= (uint64_t)size) continue;                                                          \
      T *p = (T *)(y + i * y_step + index[i] * stride), a = *p, b = *(const T *)(u + i * u_step);                  \
      *p = (T)(EXPR);                                                                                              \
    }                                                                                                              \
  }
#define COMBINER(name) ((combiner){name, points_##name})

#define UNSIGNED(T, U) /* wraps without overflow of signed numbers */                                              \
  RUN(add_##T, T, (U)a + (U)b) RUN(multiply_##T, T, (U)a * (U)b) RUN(maximum_##T, T, a < b ? b : a)                \
  RUN(minimum_##T, T, b < a ? b : a) RUN(and_##T, T, a & b) RUN(or_##T, T, a | b) RUN(xor_##T, T, a ^ b)
UNSIGNED(int8_t, uint32_t) UNSIGNED(int16_t, uint32_t) UNSIGNED(int32_t, uint32_t) UNSIGNED(int64_t, uint64_t)
UNSIGNED(uint8_t, uint32_t) UNSIGNED(uint16_t, uint32_t) UNSIGNED(uint32_t, uint32_t) UNSIGNED(uint64_t, uint64_t)

#define REAL(T)                                                                                                    \
  RUN(add_##T, T, a + b) RUN(multiply_##T, T, a * b) RUN(maximum_##T, T, a != a ? a : b != b || a < b ? b : a)     \
  RUN(minimum_##T, T, a != a ? a : b != b || b < a ? b : a)
REAL(float) REAL(double)

typedef uint16_t half;
#define HALF(name, load, store)                                                                                    \
  RUN(add_##name, half, store(load(a) + load(b))) RUN(multiply_##name, half, store(load(a) * load(b)))             \
  RUN(maximum_##name, half, load(a) != load(a) ? a : load(b) != load(b) || load(a) < load(b) ? b : a)              \
  RUN(minimum_##name, half, load(a) != load(a) ? a : load(b) != load(b) || load(b) < load(a) ? b : a)
HALF(bf16, base_f32_from_bf16, base_bf16_from_f32) HALF(f16, base_f32_from_f16, base_f16_from_f32)

typedef struct { float re, im; } complex64;
typedef struct { double re, im; } complex128;
static complex64 add_complex64(complex64 a, complex64 b) { return (complex64){a.re + b.re, a.im + b.im}; }
static complex128 add_complex128(complex128 a, complex128 b) { return (complex128){a.re + b.re, a.im + b.im}; }
static complex64 multiply_complex64(complex64 a, complex64 b) {
  return (complex64){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static complex128 multiply_complex128(complex128 a, complex128 b) {
  return (complex128){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
RUN(add_c64, complex64, add_complex64(a, b)) RUN(add_c128, complex128, add_complex128(a, b))
RUN(multiply_c64, complex64, multiply_complex64(a, b)) RUN(multiply_c128, complex128, multiply_complex128(a, b))

typedef struct { uint64_t low, high; } word128;
RUN(replace_1, uint8_t, ((void)a, b)) RUN(replace_2, uint16_t, ((void)a, b)) RUN(replace_4, uint32_t, ((void)a, b))
RUN(replace_8, uint64_t, ((void)a, b)) RUN(replace_16, word128, ((void)a, b))
RUN(or_bool, uint8_t, a | b) RUN(and_bool, uint8_t, a & b) RUN(xor_bool, uint8_t, a ^ b)

static combiner find_replace(size_t bytes) {
  switch (bytes) {
  case 1: return COMBINER(replace_1);
  case 2: return COMBINER(replace_2);
  case 4: return COMBINER(replace_4);
  case 8: return COMBINER(replace_8);
  default: return COMBINER(replace_16);
  }
}

#define NONE ((combiner){NULL, NULL})
#define PASTED(name) COMBINER(name)
#define FLOAT_CASE(T, NAME)                                                                                        \
  case T:                                                                                                          \
    switch (kind) {                                                                                                \
    case IR_ADD: return PASTED(add_##NAME);                                                                        \
    case IR_MULTIPLY: return PASTED(multiply_##NAME);                                                              \
    case IR_MAXIMUM: return PASTED(maximum_##NAME);                                                                \
    case IR_MINIMUM: return PASTED(minimum_##NAME);                                                                \
    default: return NONE;                                                                                           \
    }
#define INTEGER_CASE(T, NAME)                                                                                      \
  case T:                                                                                                          \
    switch (kind) {                                                                                                \
    case IR_ADD: return PASTED(add_##NAME);                                                                        \
    case IR_MULTIPLY: return PASTED(multiply_##NAME);                                                              \
    case IR_MAXIMUM: return PASTED(maximum_##NAME);                                                                \
    case IR_MINIMUM: return PASTED(minimum_##NAME);                                                                \
    case IR_AND: return PASTED(and_##NAME);                                                                        \
    case IR_OR: return PASTED(or_##NAME);                                                                          \
    case IR_XOR: return PASTED(xor_##NAME);                                                                        \
    default: return NONE;                                                                                           \
    }

static combiner find_combine(ir_kind kind, ttpu_dtype t) {
  if (kind == IR_NO_OP) return find_replace(base_dtype_bytes(t));
  switch (t) {
  case TTPU_BOOL: /* adds as or, multiplies as and */
    if (kind == IR_ADD || kind == IR_OR || kind == IR_MAXIMUM) return COMBINER(or_bool);
    if (kind == IR_MULTIPLY || kind == IR_AND || kind == IR_MINIMUM) return COMBINER(and_bool);
    return kind == IR_XOR ? COMBINER(xor_bool) : NONE;
  INTEGER_CASE(TTPU_I8, int8_t) INTEGER_CASE(TTPU_I16, int16_t) INTEGER_CASE(TTPU_I32, int32_t)
  INTEGER_CASE(TTPU_I64, int64_t) INTEGER_CASE(TTPU_U8, uint8_t) INTEGER_CASE(TTPU_U16, uint16_t)
  INTEGER_CASE(TTPU_U32, uint32_t) INTEGER_CASE(TTPU_U64, uint64_t)
  FLOAT_CASE(TTPU_F32, float) FLOAT_CASE(TTPU_F64, double) FLOAT_CASE(TTPU_BF16, bf16) FLOAT_CASE(TTPU_F16, f16)
  case TTPU_C64:
    if (kind == IR_ADD) return COMBINER(add_c64);
    return kind == IR_MULTIPLY ? COMBINER(multiply_c64) : NONE;
  case TTPU_C128:
    if (kind == IR_ADD) return COMBINER(add_c128);
    return kind == IR_MULTIPLY ? COMBINER(multiply_c128) : NONE;
  default: return NONE;
  }
}

/* ---- preparation --------------------------------------------------------------------------------- */

bool kern_scatter_supports(const ir_scatter_attrs *a, ir_kind combine, const soft_view *y, const soft_view *updates) {
  (void)updates;
  for (uint32_t k = 0; k < a->scatter_dims_to_operand_dims.count; ++k)
    if (!contains(a->inserted_window_dims, a->scatter_dims_to_operand_dims.data[k])) return false;
  return find_combine(combine, y->dtype).run != NULL;
}

static void find_window(scatter_job *j, const ir_scatter_attrs *a) {
  int64_t dims[TTPU_MAX_RANK], to[TTPU_MAX_RANK], from[TTPU_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t d = 0; d < j->y->rank; ++d) {
    if (contains(a->inserted_window_dims, d) || contains(a->input_batching_dims, d)) continue;
    int64_t of_update = a->update_window_dims.data[n];
    dims[n] = j->updates->dims[of_update];
    from[n] = j->updates->strides[of_update];
    to[n++] = j->y->strides[d];
  }
  kern_loop_make(&j->window, n, dims, 2, (const int64_t *const[]){to, from}, (const size_t[]){j->bytes, j->bytes});
  kern_loop_sort(&j->window);
  bool scalar = j->window.rank == 0;
  uint32_t last = j->window.rank - 1;
  j->row_rank = scalar ? 0 : last;
  j->rows = base_numel(j->row_rank, j->window.dims);
  j->run = scalar ? 1 : j->window.dims[last];
  j->y_step = scalar ? (int64_t)j->bytes : j->window.strides[0][last];
  j->u_step = scalar ? (int64_t)j->bytes : j->window.strides[1][last];
}

/* Numbers the targets: a position in the space of batching and indexed dimensions. */
static void find_batch(scatter_job *j, const ir_scatter_attrs *a) {
  int64_t index_bytes = (int64_t)base_dtype_bytes(j->indices->dtype), bytes = (int64_t)j->bytes, of_index = 0;
  j->batches = j->targets = 1;
  j->components = a->scatter_dims_to_operand_dims.count;
  for (uint32_t k = j->components; k-- > 0;) {
    int64_t d = a->scatter_dims_to_operand_dims.data[k];
    j->component_y[k] = j->y->strides[d] * bytes;
    j->component_size[k] = j->y->dims[d];
    j->component_number[k] = j->targets;
    j->targets *= j->y->dims[d];
  }
  for (uint32_t d = 0; d < j->updates->rank; ++d) {
    if (contains(a->update_window_dims, d)) continue;
    if (of_index == a->index_vector_dim) ++of_index;
    uint32_t b = j->batch_rank++;
    j->batch_dims[b] = j->updates->dims[d];
    j->batches *= j->updates->dims[d];
    j->batch_u[b] = j->updates->strides[d] * bytes;
    j->batch_index[b] = j->indices->strides[of_index] * index_bytes;
    j->batch_y[b] = j->batch_number[b] = 0;
    for (uint32_t k = 0; k < a->input_batching_dims.count; ++k)
      if (a->scatter_indices_batching_dims.data[k] == of_index) {
        j->batch_y[b] = j->y->strides[a->input_batching_dims.data[k]] * bytes;
        j->batch_number[b] = j->targets;
        j->targets *= j->y->dims[a->input_batching_dims.data[k]];
      }
    ++of_index;
  }
  bool vector = a->index_vector_dim < j->indices->rank;
  j->component_stride = vector ? j->indices->strides[a->index_vector_dim] * index_bytes : 0;
}

/* ---- tables ---------------------------------------------------------------------------------------- */

/* Of a number of batch positions: byte offsets in y and updates, and the number of the target or DROPPED. */
typedef struct table {
  int64_t to[TABLE], from[TABLE], number[TABLE];
} table;

#define ADD_INDICES(T)                                                                                             \
  for (int64_t i = 0; i < n; ++i) {                                                                                \
    int64_t v = (int64_t)*(const T *)(p + i * step);                                                               \
    bool inside = v >= 0 && v < size;                                                                              \
    to[i] += inside ? v * stride : 0;                                                                              \
    number[i] = inside && number[i] != DROPPED ? number[i] + v * weight : DROPPED;                                 \
  }                                                                                                                \
  return

/* Component k of n index vectors, `step` bytes apart. */
static void add_indices(const scatter_job *j, uint32_t k, const char *p, int64_t step, int64_t n, int64_t *to, int64_t *number) {
  const int64_t size = j->component_size[k], stride = j->component_y[k], weight = j->component_number[k];
  switch (j->indices->dtype) {
  case TTPU_I64: ADD_INDICES(int64_t);
  case TTPU_I32: ADD_INDICES(int32_t);
  default:
    for (int64_t i = 0; i < n; ++i) {
      int64_t v = kern_integer_at(j->indices->dtype, p + i * step);
      bool inside = v >= 0 && v < size;
      to[i] += inside ? v * stride : 0;
      number[i] = inside && number[i] != DROPPED ? number[i] + v * weight : DROPPED;
    }
  }
}

/* Batch positions that differ in the innermost batch dimension alone: byte offsets of the first one, and steps. */
typedef struct segment {
  int64_t n, y, u, index, number, y_step, u_step, index_step, number_step;
} segment;

/* The longest segment from position b that ends before `end`. */
static segment segment_at(const scatter_job *j, int64_t b, int64_t end) {
  segment s = {.n = 1};
  int64_t rest = b;
  for (uint32_t d = j->batch_rank; d-- > 0;) {
    int64_t at = d ? rest % j->batch_dims[d] : rest;
    rest = d ? rest / j->batch_dims[d] : 0;
    s.y += at * j->batch_y[d], s.u += at * j->batch_u[d], s.index += at * j->batch_index[d], s.number += at * j->batch_number[d];
    if (d != j->batch_rank - 1) continue;
    s.n = j->batch_dims[d] - at < end - b ? j->batch_dims[d] - at : end - b;
    s.y_step = j->batch_y[d], s.u_step = j->batch_u[d], s.index_step = j->batch_index[d], s.number_step = j->batch_number[d];
  }
  return s;
}

/* Positions [begin, end), at most TABLE. */
static void fill_table(const scatter_job *j, int64_t begin, int64_t end, table *t) {
  for (int64_t b = begin, at = 0; b < end;) {
    segment s = segment_at(j, b, end);
    for (int64_t i = 0; i < s.n; ++i) {
      t->to[at + i] = s.y + i * s.y_step, t->from[at + i] = s.u + i * s.u_step;
      t->number[at + i] = s.number + i * s.number_step;
    }
    for (uint32_t k = 0; k < j->components; ++k)
      add_indices(j, k, (const char *)j->indices->data + s.index + k * j->component_stride, s.index_step, s.n, t->to + at, t->number + at);
    b += s.n, at += s.n;
  }
}

/* ---- application --------------------------------------------------------------------------------- */

/* The table's positions whose target number lies in [low, high). */
static void apply_windows(const scatter_job *j, const table *t, int64_t n, int64_t low, int64_t high) {
  for (int64_t i = 0; i < n; ++i) {
    if (t->number[i] < low || t->number[i] >= high) continue; /* DROPPED is below all */
    char *y = (char *)j->y->data + t->to[i];
    const char *from = (const char *)j->updates->data + t->from[i];
    if (j->row_rank == 0) {
      j->combine.run(y, j->y_step, from, j->u_step, j->run);
      continue;
    }
    kern_walk w = kern_walk_begin(&j->window, j->row_rank, 0);
    for (int64_t r = 0; r < j->rows; ++r, kern_walk_next(&w))
      j->combine.run(y + w.offsets[0], j->y_step, from + w.offsets[1], j->u_step, j->run);
  }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Indices of a segment as int64, in place where they are that already. */
static const int64_t *read_indices(const scatter_job *j, const segment *s, int64_t *buffer) {
  const char *p = (const char *)j->indices->data + s->index;
  if (j->indices->dtype == TTPU_I64 && s->index_step == (int64_t)sizeof(int64_t)) return (const int64_t *)p;
  if (j->indices->dtype == TTPU_I32)
    for (int64_t i = 0; i < s->n; ++i) buffer[i] = *(const int32_t *)(p + i * s->index_step);
  else
    for (int64_t i = 0; i < s->n; ++i) buffer[i] = kern_integer_at(j->indices->dtype, p + i * s->index_step);
  return buffer;
}

/* Single elements at positions [begin, end). Index vectors become byte offsets, or DROPPED, first. */
static void apply_points(const scatter_job *j, int64_t begin, int64_t end) {
  int64_t to[TABLE], number[TABLE];
  for (int64_t b = begin; b < end;) {
    segment s = segment_at(j, b, least(end, b + TABLE));
    char *y = (char *)j->y->data + s.y;
    const char *u = (const char *)j->updates->data + s.u;
    if (j->components == 1) {
      j->combine.points(y, s.y_step, read_indices(j, &s, to), j->component_size[0], j->component_y[0], u, s.u_step, s.n);
    } else {
      memset(to, 0, (size_t)s.n * sizeof *to), memset(number, 0, (size_t)s.n * sizeof *number);
      for (uint32_t k = 0; k < j->components; ++k)
        add_indices(j, k, (const char *)j->indices->data + s.index + k * j->component_stride, s.index_step, s.n, to, number);
      for (int64_t i = 0; i < s.n; ++i) /* an offset may be negative: a position of its own is needed for "dropped" */
        if (number[i] != DROPPED) j->combine.points(y + i * s.y_step + to[i], 0, &(int64_t){0}, 1, 0, u + i * s.u_step, 0, 1);
    }
    b += s.n;
  }
}

/* Groups of positions that meet no other group's. */
static void apply_groups(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const scatter_job *j = context;
  int64_t size = j->batches / j->groups;
  table t;
  if (j->rows == 1 && j->run == 1) {
    apply_points(j, begin * size, end * size);
    return;
  }
  for (int64_t b = begin * size; b < end * size; b += TABLE) {
    int64_t n = least(TABLE, end * size - b);
    fill_table(j, b, b + n, &t);
    apply_windows(j, &t, n, 0, j->targets);
  }
}

/* All positions whose target number lies in parts [begin, end). */
static void apply_parts(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const scatter_job *j = context;
  int64_t low = (int64_t)((__int128)j->targets * begin / j->parts), high = (int64_t)((__int128)j->targets * end / j->parts);
  table t;
  for (int64_t b = 0; b < j->batches; b += TABLE) {
    int64_t n = least(TABLE, j->batches - b);
    fill_table(j, b, b + n, &t);
    apply_windows(j, &t, n, low, high);
  }
}

/* The leading batch dimensions that are batching ones. */
static int64_t count_groups(const scatter_job *j) {
  int64_t groups = 1;
  for (uint32_t d = 0; d < j->batch_rank && (j->batch_number[d] != 0 || j->batch_dims[d] == 1); ++d) groups *= j->batch_dims[d];
  return groups;
}

ttpu_status kern_scatter(const ir_scatter_attrs *a, ir_kind combine, const soft_view *indices, const soft_view *updates,
                         const soft_view *y) {
  scatter_job j = {.indices = indices, .updates = updates, .y = y, .bytes = base_dtype_bytes(y->dtype)};
  if (base_numel(updates->rank, updates->dims) == 0 || base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  j.combine = find_combine(combine, y->dtype);
  find_window(&j, a);
  find_batch(&j, a);
  j.groups = count_groups(&j);
  int64_t window = j.rows * j.run, each = 3 + j.rows * 2 + kern_move_cost(3 * window * (int64_t)j.bytes), cost = j.batches * each;
  /* Every part looks at all positions: worth it where a window is more work than a look. */
  if (j.groups == 1 && window >= 16) {
    int threads = base_pool_size();
    j.parts = threads == 1 ? 1 : window < 256 ? threads : 4 * threads;
    base_pool_run(j.parts, 1, cost, apply_parts, &j);
  } else {
    base_pool_run(j.groups, kern_grain(cost / j.groups), cost, apply_groups, &j);
  }
  return TTPU_OK;
}
