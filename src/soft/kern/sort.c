/* Sorting by key, and the k largest or smallest.
 *
 * A key becomes an unsigned number in the same order: floats by their bits (sign flipped, negative ones inverted; -0 made
 * 0 and every NaN the largest number), signed integers by the flipped sign bit; all bits inverted when descending. With the
 * position behind the key all items are different, so any way to sort gives the stable order:
 *   keys up to 32 bits   one 64-bit word, key above position
 *   64-bit keys          key and position side by side
 * Short lines are sorted by insertion, longer ones by radix, low digit first, passes that would change nothing left
 * out. A single long line is cut into one part a thread, whose sorted parts are merged.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"

typedef struct item64 {
  uint64_t key, position;
} item64;

/* ---- keys ----------------------------------------------------------------------------------------- */

static inline uint32_t key_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return UINT32_MAX;
  if (x == 0) bits = 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static inline uint64_t key_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return UINT64_MAX;
  if (x == 0) bits = 0;
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

#define FILL_KEYS(T, EXPR)                                                      \
  for (int64_t i = 0; i < n; ++i) {                                             \
    T v = *(const T *)(x + i * step);                                           \
    out[i] = (uint64_t)((uint32_t)(EXPR) ^ flip) << 32 | (uint64_t)(first + i); \
  }                                                                             \
  return

/* Items of n elements `step` bytes apart, positions from `first`. */
static void make_items32(ttpu_dtype t, const char *x, int64_t step, int64_t n, int64_t first, bool descending,
                         uint64_t *out) {
  uint32_t flip = descending ? UINT32_MAX : 0;
  switch (t) {
    case TTPU_F32: FILL_KEYS(float, key_f32(v));
    case TTPU_BF16: FILL_KEYS(uint16_t, key_f32(base_f32_from_bf16(v)));
    case TTPU_F16: FILL_KEYS(uint16_t, key_f32(base_f32_from_f16(v)));
    case TTPU_F8E5M2: FILL_KEYS(uint8_t, key_f32(base_f32_from_f8e5m2(v)));
    case TTPU_F8E4M3FN: FILL_KEYS(uint8_t, key_f32(base_f32_from_f8e4m3fn(v)));
    case TTPU_I32: FILL_KEYS(int32_t, (uint32_t)v ^ 0x80000000u);
    case TTPU_I16: FILL_KEYS(int16_t, (uint16_t)v ^ 0x8000u);
    case TTPU_I8: FILL_KEYS(int8_t, (uint8_t)v ^ 0x80u);
    case TTPU_U32: FILL_KEYS(uint32_t, v);
    case TTPU_U16: FILL_KEYS(uint16_t, v);
    case TTPU_BOOL: FILL_KEYS(uint8_t, v != 0);
    default: FILL_KEYS(uint8_t, v);
  }
}

#define FILL_KEYS64(T, EXPR)                                 \
  for (int64_t i = 0; i < n; ++i) {                          \
    T v = *(const T *)(x + i * step);                        \
    out[i] = (item64){(EXPR) ^ flip, (uint64_t)(first + i)}; \
  }                                                          \
  return

static void make_items64(ttpu_dtype t, const char *x, int64_t step, int64_t n, int64_t first, bool descending,
                         item64 *out) {
  uint64_t flip = descending ? UINT64_MAX : 0;
  switch (t) {
    case TTPU_F64: FILL_KEYS64(double, key_f64(v));
    case TTPU_I64: FILL_KEYS64(int64_t, (uint64_t)v ^ 1ull << 63);
    default: FILL_KEYS64(uint64_t, v);
  }
}

static inline bool less64(item64 a, item64 b) { return a.key < b.key || (a.key == b.key && a.position < b.position); }

/* ---- one line ------------------------------------------------------------------------------------- */

enum { INSERTION = 24, WIDE_DIGITS_FROM = 8192 };

/* Sorts a[0 .. n), spare has room for n; the result is in a. KEY gives an item's radix key of KEY_BITS bits. */
#define SORT_ITEMS(NAME, T, LESS, KEY, KEY_BITS)                                                               \
  static void insert_##NAME(T *a, int64_t n) {                                                                 \
    for (int64_t i = 1; i < n; ++i) {                                                                          \
      T v = a[i];                                                                                              \
      int64_t k = i;                                                                                           \
      for (; k > 0 && LESS(v, a[k - 1]); --k) a[k] = a[k - 1];                                                 \
      a[k] = v;                                                                                                \
    }                                                                                                          \
  }                                                                                                            \
  static void radix_##NAME(T *a, T *spare, int64_t n, int digit_bits) {                                        \
    enum { DIGITS = 8, BUCKETS = 1 << 11 };                                                                    \
    uint32_t counts[DIGITS][BUCKETS]; /* of one pass each: items fit 32 bits, as positions do */               \
    int passes = (KEY_BITS + digit_bits - 1) / digit_bits, buckets = 1 << digit_bits;                          \
    uint64_t mask = (uint64_t)buckets - 1;                                                                     \
    for (int p = 0; p < passes; ++p) memset(counts[p], 0, (size_t)buckets * sizeof counts[p][0]);              \
    for (int64_t i = 0; i < n; ++i)                                                                            \
      for (int p = 0; p < passes; ++p) ++counts[p][KEY(a[i]) >> (p * digit_bits) & mask];                      \
    T *from = a, *to = spare;                                                                                  \
    for (int p = 0; p < passes; ++p) {                                                                         \
      uint32_t *count = counts[p], sum = 0;                                                                    \
      int shift = p * digit_bits;                                                                              \
      if (count[KEY(from[0]) >> shift & mask] == n) continue; /* all alike */                                  \
      for (int b = 0; b < buckets; ++b) {                                                                      \
        uint32_t c = count[b];                                                                                 \
        count[b] = sum;                                                                                        \
        sum += c;                                                                                              \
      }                                                                                                        \
      for (int64_t i = 0; i < n; ++i) {                                                                        \
        T v = from[i];                                                                                         \
        to[count[KEY(v) >> shift & mask]++] = v;                                                               \
      }                                                                                                        \
      T *swap = from;                                                                                          \
      from = to, to = swap;                                                                                    \
    }                                                                                                          \
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);                                                     \
  }                                                                                                            \
  static void sort_##NAME(T *a, T *spare, int64_t n) {                                                         \
    if (n <= INSERTION) insert_##NAME(a, n);                                                                   \
    else radix_##NAME(a, spare, n, n < WIDE_DIGITS_FROM ? 8 : 11);                                             \
  }                                                                                                            \
  /* out[begin .. end) of the merge of a and b. */                                                             \
  static void merge_##NAME(const T *a, int64_t n, const T *b, int64_t m, T *out, int64_t begin, int64_t end) { \
    int64_t low = begin > m ? begin - m : 0, high = begin < n ? begin : n;                                     \
    while (low < high) { /* how many of the first `begin` are a's */                                           \
      int64_t i = (low + high) / 2;                                                                            \
      if (LESS(a[i], b[begin - 1 - i])) low = i + 1;                                                           \
      else high = i;                                                                                           \
    }                                                                                                          \
    int64_t i = low, k = begin - low;                                                                          \
    for (int64_t o = begin; o < end; ++o) out[o] = k >= m || (i < n && LESS(a[i], b[k])) ? a[i++] : b[k++];    \
  }

#define LESS32(x, y) ((x) < (y))
#define KEY32(x) ((x) >> 32)
#define KEY64(x) ((x).key)
SORT_ITEMS(items32, uint64_t, LESS32, KEY32, 32)
SORT_ITEMS(items64, item64, less64, KEY64, 64)

/* ---- a long line on all threads --------------------------------------------------------------------- */

typedef struct long_job {
  ttpu_dtype key;
  const char *x;
  int64_t step, n, parts, part, merged; /* parts are of `part` items; `merged` of them are in order already */
  bool descending, wide;
  char *items, *spare;
} long_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void sort_part(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const long_job *j = context;
  for (int64_t p = begin; p < end; ++p) {
    int64_t first = p * j->part, n = least(j->part, j->n - first);
    if (n <= 0) continue;
    if (j->wide) {
      item64 *a = (item64 *)j->items + first;
      make_items64(j->key, j->x + first * j->step, j->step, n, first, j->descending, a);
      sort_items64(a, (item64 *)j->spare + first, n);
    } else {
      uint64_t *a = (uint64_t *)j->items + first;
      make_items32(j->key, j->x + first * j->step, j->step, n, first, j->descending, a);
      sort_items32(a, (uint64_t *)j->spare + first, n);
    }
  }
}

enum { MERGE_PIECE = 1 << 15 };

/* Items: pieces of the whole line, each of which lies in one pair of runs (`part` is a multiple of the piece). */
static void merge_piece(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const long_job *j = context;
  int64_t run = j->part * j->merged;
  for (int64_t p = begin; p < end; ++p) {
    int64_t at = p * MERGE_PIECE, first = at / (2 * run) * (2 * run);
    int64_t n = least(run, j->n - first), m = least(run, j->n - first - n),
            stop = least(at + MERGE_PIECE, j->n) - first;
    if (m < 0) m = 0;
    if (j->wide) {
      const item64 *a = (const item64 *)j->items + first;
      merge_items64(a, n, a + n, m, (item64 *)j->spare + first, at - first, stop);
    } else {
      const uint64_t *a = (const uint64_t *)j->items + first;
      merge_items32(a, n, a + n, m, (uint64_t *)j->spare + first, at - first, stop);
    }
  }
}

/* The sorted items are in j->items. */
static void sort_long(long_job *j) {
  int64_t threads = base_pool_size();
  j->parts = 1;
  while (j->parts * 2 <= threads && j->n / (j->parts * 2) >= MERGE_PIECE) j->parts *= 2;
  j->part = ((j->n + j->parts - 1) / j->parts + MERGE_PIECE - 1) / MERGE_PIECE * MERGE_PIECE;
  base_pool_run(j->parts, 1, j->n * 15, sort_part, j);
  for (j->merged = 1; j->merged < j->parts; j->merged *= 2) {
    base_pool_run((j->n + MERGE_PIECE - 1) / MERGE_PIECE, 1, j->n * 3, merge_piece, j);
    char *swap = j->items;
    j->items = j->spare, j->spare = swap;
  }
}

/* ---- sort ----------------------------------------------------------------------------------------- */

typedef struct sort_job {
  bool descending, wide;
  uint32_t dim, count;
  const soft_view *x, *y;
  const bool *iota;
  int64_t n;
  int64_t lines[TTPU_MAX_RANK]; /* dims, with 1 for dim */
  char *memory;                 /* items and spare for each worker */
  size_t item_bytes;
} sort_job;

static int64_t line_offset(const soft_view *v, const int64_t *at) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < v->rank; ++d) offset += at[d] * v->strides[d];
  return offset * (int64_t)base_dtype_bytes(v->dtype);
}

#define PERMUTE(T)                      \
  for (int64_t i = begin; i < end; ++i) \
  *(T *)(to + i * to_step) = *(const T *)(from + (int64_t)position(items, i, wide) * from_step)

static inline uint64_t position(const char *items, int64_t i, bool wide) {
  return wide ? ((const item64 *)items)[i].position : ((const uint64_t *)items)[i] & UINT32_MAX;
}

typedef struct {
  uint64_t low, high;
} word128;

/* to[i] = from[position of item i] for i in [begin, end). */
static void permute(size_t bytes, char *to, int64_t to_step, const char *from, int64_t from_step, const char *items,
                    bool wide, int64_t begin, int64_t end) {
  switch (bytes) {
    case 1: PERMUTE(uint8_t); return;
    case 2: PERMUTE(uint16_t); return;
    case 4: PERMUTE(uint32_t); return;
    case 8: PERMUTE(uint64_t); return;
    default: PERMUTE(word128); return;
  }
}

static void write_operand(const sort_job *j, uint32_t k, const int64_t *at, const char *items, int64_t begin,
                          int64_t end) {
  const soft_view *x = &j->x[k], *y = &j->y[k];
  size_t bytes = base_dtype_bytes(y->dtype);
  int64_t to_step = y->strides[j->dim] * (int64_t)bytes;
  char *to = (char *)y->data + line_offset(y, at);
  if (!j->iota[k]) {
    permute(bytes, to, to_step, (const char *)x->data + line_offset(x, at), x->strides[j->dim] * (int64_t)bytes, items,
            j->wide, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    uint64_t p = position(items, i, j->wide);
    if (y->dtype == TTPU_I64) *(uint64_t *)(to + i * to_step) = p;
    else base_scalar_store(y->dtype, to + i * to_step, base_scalar_convert(TTPU_I64, y->dtype, (base_scalar){.u = p}));
  }
}

static void unflatten(uint32_t rank, const int64_t *dims, int64_t flat, int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) {
    index[d] = flat % dims[d];
    flat /= dims[d];
  }
}

static void sort_lines(void *context, int64_t begin, int64_t end, int worker) {
  const sort_job *j = context;
  const soft_view *key = &j->x[0];
  int64_t step = key->strides[j->dim] * (int64_t)base_dtype_bytes(key->dtype);
  char *items = j->memory + 2 * j->item_bytes * (size_t)j->n * (size_t)worker,
       *spare = items + j->item_bytes * (size_t)j->n;
  for (int64_t line = begin; line < end; ++line) {
    int64_t at[TTPU_MAX_RANK];
    unflatten(key->rank, j->lines, line, at);
    const char *x = (const char *)key->data + line_offset(key, at);
    if (j->wide) {
      make_items64(key->dtype, x, step, j->n, 0, j->descending, (item64 *)items);
      sort_items64((item64 *)items, (item64 *)spare, j->n);
    } else {
      make_items32(key->dtype, x, step, j->n, 0, j->descending, (uint64_t *)items);
      sort_items32((uint64_t *)items, (uint64_t *)spare, j->n);
    }
    for (uint32_t k = 0; k < j->count; ++k) write_operand(j, k, at, items, 0, j->n);
  }
}

typedef struct write_job {
  const sort_job *sort;
  const int64_t *at;
  const char *items;
} write_job;

static void write_pieces(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const write_job *w = context;
  for (uint32_t k = 0; k < w->sort->count; ++k) write_operand(w->sort, k, w->at, w->items, begin, end);
}

static void sort_lines_one_by_one(sort_job *j, int64_t lines) {
  const soft_view *key = &j->x[0];
  for (int64_t line = 0; line < lines; ++line) {
    int64_t at[TTPU_MAX_RANK];
    unflatten(key->rank, j->lines, line, at);
    long_job l = {.key = key->dtype,
                  .x = (const char *)key->data + line_offset(key, at),
                  .n = j->n,
                  .step = key->strides[j->dim] * (int64_t)base_dtype_bytes(key->dtype),
                  .descending = j->descending,
                  .wide = j->wide,
                  .items = j->memory,
                  .spare = j->memory + j->item_bytes * (size_t)j->n};
    sort_long(&l);
    write_job w = {j, at, l.items};
    base_pool_run(j->n, 1 << 14, j->n * 2 * j->count, write_pieces, &w);
  }
}

/* Positions take 32 bits. */
bool kern_sort_supports(ttpu_dtype key) { return !base_dtype_is_complex(key); }

ttpu_status kern_sort(bool descending, uint32_t dim, uint32_t count, const soft_view *x, const bool *iota,
                      const soft_view *y) {
  if (base_numel(x->rank, x->dims) == 0) return TTPU_OK;
  sort_job j = {.descending = descending,
                .wide = base_dtype_bytes(x->dtype) == 8,
                .dim = dim,
                .count = count,
                .x = x,
                .y = y,
                .iota = iota,
                .n = x->dims[dim]};
  if (j.n > (int64_t)UINT32_MAX)
    return base_fail(TTPU_UNIMPLEMENTED, "sort: a line of %lld elements is longer than 2^32", (long long)j.n);
  memcpy(j.lines, x->dims, sizeof j.lines);
  j.lines[dim] = 1;
  j.item_bytes = j.wide ? sizeof(item64) : sizeof(uint64_t);
  int64_t lines = base_numel(x->rank, j.lines), threads = base_pool_size();
  bool one_by_one = j.n >= 1 << 16 && lines < 2 * threads;
  size_t bytes = 2 * j.item_bytes * (size_t)j.n * (size_t)(one_by_one ? 1 : threads);
  if (!(j.memory = base_alloc(bytes))) return base_no_memory(bytes);
  int64_t cost_each = j.n * (j.wide ? 20 : 10) + 500;
  if (one_by_one) sort_lines_one_by_one(&j, lines);
  else base_pool_run(lines, kern_grain(cost_each), lines * cost_each, sort_lines, &j);
  base_free(j.memory);
  return TTPU_OK;
}

/* ---- top k ---------------------------------------------------------------------------------------- */

typedef struct top_job {
  bool largest, wide;
  int64_t k, n, room; /* room: items kept before the worst are thrown away */
  const soft_view *x, *values, *indices;
  char *memory;
  size_t item_bytes;
} top_job;

enum { CHUNK = 256 };

/* Goes through x in chunks; what is no worse than the k-th best so far is kept, and when there is no room the best k of what
 * was kept stay. */
#define TOP_ITEMS(NAME, T, LESS, MAKE)                                                       \
  static void top_##NAME(const top_job *j, const char *x, int64_t step, T *kept, T *spare) { \
    T chunk[CHUNK], worst;                                                                   \
    int64_t count = 0;                                                                       \
    bool full = false;                                                                       \
    memset(&worst, 0, sizeof worst);                                                         \
    for (int64_t at = 0; at < j->n; at += CHUNK) {                                           \
      int64_t n = least(CHUNK, j->n - at);                                                   \
      MAKE(j->x->dtype, x + at * step, step, n, at, j->largest, chunk);                      \
      for (int64_t i = 0; i < n; ++i)                                                        \
        if (!full || LESS(chunk[i], worst)) kept[count++] = chunk[i];                        \
      if (count + CHUNK <= j->room) continue;                                                \
      sort_##NAME(kept, spare, count);                                                       \
      count = least(count, j->k);                                                            \
      if (count == j->k && count > 0) full = true, worst = kept[count - 1];                  \
    }                                                                                        \
    sort_##NAME(kept, spare, count);                                                         \
  }
TOP_ITEMS(items32, uint64_t, LESS32, make_items32)
TOP_ITEMS(items64, item64, less64, make_items64)

static void top_lines(void *context, int64_t begin, int64_t end, int worker) {
  const top_job *j = context;
  const soft_view *x = j->x, *y = j->values;
  uint32_t rank = x->rank, last = rank ? rank - 1 : 0;
  size_t bytes = base_dtype_bytes(x->dtype);
  int64_t step = rank ? x->strides[last] * (int64_t)bytes : 0,
          value_step = rank ? y->strides[last] * (int64_t)bytes : 0;
  int64_t index_step = rank ? j->indices->strides[last] * (int64_t)sizeof(int64_t) : 0;
  char *kept = j->memory + 2 * j->item_bytes * (size_t)j->room * (size_t)worker,
       *spare = kept + j->item_bytes * (size_t)j->room;
  for (int64_t line = begin; line < end; ++line) {
    int64_t at[TTPU_MAX_RANK] = {0};
    unflatten(last, x->dims, line, at);
    const char *from = (const char *)x->data + line_offset(x, at);
    if (j->wide) top_items64(j, from, step, (item64 *)kept, (item64 *)spare);
    else top_items32(j, from, step, (uint64_t *)kept, (uint64_t *)spare);
    permute(bytes, (char *)y->data + line_offset(y, at), value_step, from, step, kept, j->wide, 0, j->k);
    char *to = (char *)j->indices->data + line_offset(j->indices, at);
    for (int64_t i = 0; i < j->k; ++i) *(uint64_t *)(to + i * index_step) = position(kept, i, j->wide);
  }
}

ttpu_status kern_top_k(const ir_top_k_attrs *a, const soft_view *x, const soft_view *values, const soft_view *indices) {
  if (base_numel(values->rank, values->dims) == 0) return TTPU_OK;
  top_job j = {.largest = a->largest,
               .wide = base_dtype_bytes(x->dtype) == 8,
               .k = a->k,
               .x = x,
               .values = values,
               .indices = indices};
  uint32_t last = x->rank ? x->rank - 1 : 0;
  j.n = x->rank ? x->dims[last] : 1;
  if (j.n > (int64_t)UINT32_MAX)
    return base_fail(TTPU_UNIMPLEMENTED, "top_k: a line of %lld elements is longer than 2^32", (long long)j.n);
  j.room = 2 * j.k + 2 * CHUNK;
  j.item_bytes = j.wide ? sizeof(item64) : sizeof(uint64_t);
  int64_t lines = x->rank ? base_numel(last, x->dims) : 1, threads = base_pool_size(), cost = j.n * 2 + j.k * 20 + 200;
  size_t bytes = 2 * j.item_bytes * (size_t)j.room * (size_t)threads;
  if (!(j.memory = base_alloc(bytes))) return base_no_memory(bytes);
  base_pool_run(lines, kern_grain(cost), lines * cost, top_lines, &j);
  base_free(j.memory);
  return TTPU_OK;
}
