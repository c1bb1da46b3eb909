/* Attention, forward. A task is a block of query rows of one key head; rows of all query heads that share the key head
 * count as one list, so that grouped heads share packed keys, and decoding (one query) becomes few rows. Two ways:
 *
 *   blocks   scores and outputs by gemm's micro-kernels on blocks of keys, softmax on the rows in between
 *   stream   few rows: keys and values are read once where they lie, by gemm's skinny kernels, in chunks of keys that
 *            threads share; the chunks' partial sums are merged in order
 */
#include "soft/kern/attention.h"

#include <math.h>
#include <string.h>

#include "soft/kern/attention_int.h"
#include "soft/kern/scratch.h"

enum { BLOCK_ROWS = 84, BLOCK_KEYS = 256, STREAM_ROWS = 8, STREAM_KEYS = 512 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

static const attention_kernels *kernels(void) {
#if defined(__x86_64__)
  if (base_cpu()->avx512) return &attention_kernels_avx512;
  if (base_cpu()->avx2) return &attention_kernels_avx2;
#endif
  return &attention_kernels_portable;
}

typedef struct attention_task {
  const kern_attention *a;
  const attention_kernels *rows_kernels;
  const gemm_kernel *kernel; /* both products */
  const gemm_skinny *skinny; /* stream only */
  ttpu_dtype acc;
  int64_t element, acc_bytes; /* bytes of an element of q, k, v; of an accumulator */
  int64_t rows;               /* of one key head: heads/kv_heads * m */
  int64_t block_rows, row_blocks;
  int64_t block_keys;         /* of a block, or of a chunk when streaming */
  int64_t chunks;             /* stream only */
  int64_t score_row, out_row; /* accumulators from row to row */
  int64_t q_bytes, k_bytes, v_bytes, score_bytes, out_bytes, state_bytes, p_bytes, bias_bytes, worker_bytes;
  char *workspace;
  char *partial; /* stream only: each chunk's rows of [e sums, max, sum] */
} attention_task;

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct row {
  int64_t head, query;
} row;

static row row_at(const attention_task *t, int64_t kv_head, int64_t r) {
  const int64_t m = t->a->m;
  return (row){kv_head * (t->a->heads / t->a->kv_heads) + r / m, r % m};
}

/* How many keys, from the first, this row may see. */
static int64_t keys_seen(const attention_task *t, row r) {
  return t->a->causal ? min64(t->a->n, r.query + 1) : t->a->n;
}

static const char *element_at(const void *p, int64_t element, const int64_t strides[4], int64_t i0, int64_t i1,
                              int64_t i2) {
  return (const char *)p + (i0 * strides[0] + i1 * strides[1] + i2 * strides[2]) * element;
}

/* The bias of `count` keys from key0, as accumulators; masks become 0 and -inf. NULL: none. */
static const void *bias_row(const attention_task *t, int64_t batch, row r, int64_t key0, int64_t count, char *to) {
  const kern_attention *a = t->a;
  if (!a->bias) return NULL;
  const int64_t bytes = (int64_t)base_dtype_bytes(a->bias_dtype);
  const char *from =
      element_at(a->bias, bytes, a->bias_strides, batch, r.head, r.query) + key0 * a->bias_strides[3] * bytes;
  if (a->bias_dtype == TTPU_BOOL) {
    const uint8_t *mask = (const uint8_t *)from;
    for (int64_t j = 0; j < count; ++j) {
      const bool seen = mask[j * a->bias_strides[3]];
      if (t->acc == TTPU_F32) ((float *)(void *)to)[j] = seen ? 0 : -INFINITY;
      else ((double *)(void *)to)[j] = seen ? 0 : -(double)INFINITY;
    }
    return to;
  }
  if (a->bias_dtype == t->acc && a->bias_strides[3] == 1) return from;
  gemm_convert_row(a->bias_dtype, t->acc, count, from, a->bias_strides[3], to);
  return to;
}

/* Softmax of one row's block of scores; its earlier sums `out` are brought to the new maximum. */
static void softmax_row(const attention_task *t, void *score, int64_t seen, int64_t count, const void *bias,
                        double *max, double *sum, void *out) {
  const kern_attention *a = t->a;
  if (t->acc == TTPU_F32) {
    float high = (float)*max, total = (float)*sum;
    float by = t->rows_kernels->softmax_f32(score, seen, count, (float)a->scale, bias, &high, &total);
    *max = high;
    *sum = total;
    if (by != 1) t->rows_kernels->scale_f32(out, a->e, by);
  } else {
    double by = t->rows_kernels->softmax_f64(score, seen, count, a->scale, bias, max, sum);
    if (by != 1) t->rows_kernels->scale_f64(out, a->e, by);
  }
}

static void finish_row(const attention_task *t, int64_t batch, row r, void *sums, double max, double sum) {
  const kern_attention *a = t->a;
  const bool nothing = max == -(double)INFINITY && sum == 0;
  if (nothing) memset(sums, 0, (size_t)(a->e * t->acc_bytes));
  else if (t->acc == TTPU_F32) t->rows_kernels->scale_f32(sums, a->e, (float)(1 / sum));
  else t->rows_kernels->scale_f64(sums, a->e, 1 / sum);
  char *out = (char *)(uintptr_t)element_at(a->out, t->element, a->out_strides, batch, r.head, r.query);
  gemm_store_row(t->acc, a->dtype, a->e, sums, out, a->out_strides[3]);
  if (a->logsumexp)
    a->logsumexp[batch * a->logsumexp_strides[0] + r.head * a->logsumexp_strides[1] +
                 r.query * a->logsumexp_strides[2]] = (float)(nothing ? -(double)INFINITY : max + log(sum));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A worker's part of the workspace. */
typedef struct block_buffers {
  char *q, *k, *v, *score, *out, *p, *bias;
  double *state; /* max and sum of every row */
} block_buffers;

static block_buffers buffers_at(const attention_task *t, int worker) {
  block_buffers b;
  b.q = t->workspace + worker * t->worker_bytes;
  b.k = b.q + t->q_bytes;
  b.v = b.k + t->k_bytes;
  b.score = b.v + t->v_bytes;
  b.out = b.score + t->score_bytes;
  b.p = b.out + t->out_bytes;
  b.bias = b.p + t->p_bytes;
  b.state = (double *)(void *)(b.bias + t->bias_bytes);
  return b;
}

/* Rows of q, gathered (their heads may differ) and packed in panels of `height`. */
static void pack_queries(const attention_task *t, int64_t batch, int64_t kv_head, int64_t row0, int64_t rows,
                         int height, char *to) {
  const kern_attention *a = t->a;
  const int64_t padded = gemm_padded(t->kernel, a->d), packed = (int64_t)base_dtype_bytes(t->kernel->packed);
  for (int64_t r = 0; r < rows;) {
    /* as many rows of one panel as belong to one head go at once; panels are packed from line 0 */
    const int lines = (int)min64(height, rows - r);
    const row first = row_at(t, kv_head, row0 + r);
    if (first.query + lines <= a->m) {
      gemm_pack(t->kernel, GEMM_A, a->dtype, lines, lines, a->d,
                element_at(a->q, t->element, a->q_strides, batch, first.head, first.query), a->q_strides[2],
                a->q_strides[3], to + r * padded * packed);
    } else {
      char *line = to + t->q_bytes / 2; /* the second half of q's room: rows gathered */
      for (int i = 0; i < lines; ++i) {
        const row one = row_at(t, kv_head, row0 + r + i);
        gemm_convert_row(a->dtype, a->dtype, a->d,
                         element_at(a->q, t->element, a->q_strides, batch, one.head, one.query), a->q_strides[3],
                         line + i * a->d * t->element);
      }
      gemm_pack(t->kernel, GEMM_A, a->dtype, lines, lines, a->d, line, a->d, 1, to + r * padded * packed);
    }
    r += lines;
  }
}

static void multiply_scores(const attention_task *t, int64_t rows, int height, int64_t keys, const block_buffers *b) {
  const gemm_kernel *kernel = t->kernel;
  const int64_t packed = (int64_t)base_dtype_bytes(kernel->packed), line = gemm_padded(kernel, t->a->d) * packed;
  for (int64_t j = 0; j < keys; j += kernel->nr)
    for (int64_t r = 0; r < rows; r += height)
      kernel->run(t->a->d, (int)min64(height, rows - r), (int)min64(kernel->nr, keys - j), b->q + r * line,
                  b->k + j * line, b->score + (r * t->score_row + j) * t->acc_bytes, t->score_row, false);
}

static bool values_in_place(const attention_task *t) {
  return t->kernel->direct && t->a->dtype == t->kernel->packed && t->a->v_strides[3] == 1 &&
         t->a->e % t->kernel->lanes == 0;
}

/* out += probabilities * values: unpacked probabilities, and values where they lie when that is possible. */
static void multiply_values(const attention_task *t, int64_t rows, int height, int64_t keys, const char *values,
                            const block_buffers *b) {
  const gemm_kernel *kernel = t->kernel;
  const int64_t packed = (int64_t)base_dtype_bytes(kernel->packed), padded = gemm_padded(kernel, keys);
  if (!kernel->direct) { /* probabilities, rounded to the packed dtype where that is smaller, are packed too */
    for (int64_t r = 0; r < rows; ++r)
      gemm_convert_row(t->acc, kernel->packed, keys, b->score + r * t->score_row * t->acc_bytes, 1,
                       b->p + r * t->score_row * packed);
    char *panels = b->p + t->p_bytes / 2;
    for (int64_t r = 0; r < rows; r += height) {
      const int lines = (int)min64(height, rows - r);
      gemm_pack(kernel, GEMM_A, kernel->packed, lines, lines, keys, b->p + r * t->score_row * packed, t->score_row, 1,
                panels + r * padded * packed);
      for (int64_t c = 0; c < t->a->e; c += kernel->nr)
        kernel->run(keys, lines, (int)min64(kernel->nr, t->a->e - c), panels + r * padded * packed,
                    b->v + c * padded * packed, b->out + (r * t->out_row + c) * t->acc_bytes, t->out_row, true);
    }
    return;
  }
  const bool in_place = values_in_place(t);
  for (int64_t c = 0; c < t->a->e; c += kernel->nr)
    for (int64_t r = 0; r < rows; r += height)
      kernel->direct(keys, (int)min64(height, rows - r), (int)min64(kernel->nr, t->a->e - c),
                     b->score + r * t->score_row * t->acc_bytes, t->score_row, 1,
                     in_place ? values + c * packed : b->v + c * padded * packed,
                     in_place ? t->a->v_strides[2] : kernel->nr, b->out + (r * t->out_row + c) * t->acc_bytes,
                     t->out_row, true);
}

static void run_block(const attention_task *t, int64_t batch, int64_t kv_head, int64_t row0, int64_t rows,
                      const block_buffers *b) {
  const kern_attention *a = t->a;
  const gemm_kernel *kernel = t->kernel;
  const int64_t packed = (int64_t)base_dtype_bytes(kernel->packed), d_line = gemm_padded(kernel, a->d) * packed;
  const int height = (int)ceil_div(rows, ceil_div(rows, kernel->mr));
  int64_t limit = 0;
  for (int64_t r = 0; r < rows; ++r) {
    limit = max64(limit, keys_seen(t, row_at(t, kv_head, row0 + r)));
    b->state[2 * r] = -(double)INFINITY;
    b->state[2 * r + 1] = 0;
  }
  memset(b->out, 0, (size_t)(rows * t->out_row * t->acc_bytes));
  pack_queries(t, batch, kv_head, row0, rows, height, b->q);
  const char *k = element_at(a->k, t->element, a->k_strides, batch, kv_head, 0);
  const char *v = element_at(a->v, t->element, a->v_strides, batch, kv_head, 0);
  for (int64_t key0 = 0; key0 < limit; key0 += t->block_keys) {
    const int64_t keys = min64(t->block_keys, limit - key0), padded = gemm_padded(kernel, keys);
    for (int64_t j = 0; j < keys; j += kernel->nr)
      gemm_pack(kernel, GEMM_B, a->dtype, (int)min64(kernel->nr, keys - j), kernel->nr, a->d,
                k + (key0 + j) * a->k_strides[2] * t->element, a->k_strides[2], a->k_strides[3], b->k + j * d_line);
    multiply_scores(t, rows, height, keys, b);
    for (int64_t r = 0; r < rows; ++r) {
      const row one = row_at(t, kv_head, row0 + r);
      const int64_t seen = max64(0, min64(keys, keys_seen(t, one) - key0));
      softmax_row(t, b->score + r * t->score_row * t->acc_bytes, seen, keys,
                  bias_row(t, batch, one, key0, seen, b->bias), &b->state[2 * r], &b->state[2 * r + 1],
                  b->out + r * t->out_row * t->acc_bytes);
    }
    const char *values = v + key0 * a->v_strides[2] * t->element;
    if (!values_in_place(t))
      for (int64_t c = 0; c < a->e; c += kernel->nr)
        gemm_pack(kernel, GEMM_B, a->dtype, (int)min64(kernel->nr, a->e - c), kernel->nr, keys,
                  values + c * a->v_strides[3] * t->element, a->v_strides[3], a->v_strides[2],
                  b->v + c * padded * packed);
    multiply_values(t, rows, height, keys, values, b);
  }
  for (int64_t r = 0; r < rows; ++r)
    finish_row(t, batch, row_at(t, kv_head, row0 + r), b->out + r * t->out_row * t->acc_bytes, b->state[2 * r],
               b->state[2 * r + 1]);
}

static void run_blocks(void *ctx, int64_t begin, int64_t end, int worker) {
  const attention_task *t = ctx;
  const block_buffers b = buffers_at(t, worker);
  if (t->kernel->begin) t->kernel->begin();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row0 = i % t->row_blocks * t->block_rows, kv_head = i / t->row_blocks % t->a->kv_heads;
    run_block(t, i / t->row_blocks / t->a->kv_heads, kv_head, row0, min64(t->block_rows, t->rows - row0), &b);
  }
  if (t->kernel->end) t->kernel->end();
}

static void plan_blocks(attention_task *t) {
  const kern_attention *a = t->a;
  const gemm_kernel *kernel = t->kernel;
  const int64_t packed = (int64_t)base_dtype_bytes(kernel->packed);
  t->row_blocks = ceil_div(t->rows, BLOCK_ROWS);
  t->block_rows = ceil_div(t->rows, t->row_blocks);
  t->block_keys = round_up(ceil_div(max64(a->n, 1), ceil_div(max64(a->n, 1), BLOCK_KEYS)), kernel->nr);
  t->score_row = t->block_keys + 16; /* rows a power of two apart would share cache sets */
  t->out_row = round_up(a->e, 16);
  const int64_t tall = t->block_rows + (kernel->a_by_rows ? kernel->mr : 1); /* tiles are loaded whole */
  t->q_bytes = 2 * round_up(tall * gemm_padded(kernel, a->d) * max64(packed, t->element) + 64, 64);
  t->k_bytes = round_up(round_up(t->block_keys, kernel->nr) * gemm_padded(kernel, a->d) * packed, 64);
  t->v_bytes =
      values_in_place(t) ? 0 : round_up(round_up(a->e, kernel->nr) * gemm_padded(kernel, t->block_keys) * packed, 64);
  t->score_bytes = round_up(t->block_rows * t->score_row * t->acc_bytes, 64);
  t->out_bytes = round_up(t->block_rows * t->out_row * t->acc_bytes, 64);
  t->p_bytes = kernel->direct ? 0 : 2 * round_up(tall * gemm_padded(kernel, t->score_row) * packed + 64, 64);
  t->bias_bytes = a->bias ? round_up(t->block_keys * t->acc_bytes, 64) : 0;
  t->state_bytes = round_up(t->block_rows * 16, 64);
  t->worker_bytes = t->q_bytes + t->k_bytes + t->v_bytes + t->score_bytes + t->out_bytes + t->p_bytes + t->bias_bytes +
                    t->state_bytes + 64;
}

/* ---- stream ---------------------------------------------------------------------------------- */

static const gemm_skinny *stream_kernel(const attention_task *t) {
  const kern_attention *a = t->a;
  const gemm_isa *isa = gemm_isa_get();
  if (t->rows > STREAM_ROWS || a->k_strides[3] != 1 || a->v_strides[3] != 1) return NULL;
  for (int i = 0; i < isa->skinny_count; ++i)
    if (isa->skinny[i].weight == a->dtype && isa->skinny[i].acc == t->acc) return &isa->skinny[i];
  return NULL;
}

static void plan_stream(attention_task *t) {
  const kern_attention *a = t->a;
  t->block_keys = STREAM_KEYS;
  t->chunks = max64(1, ceil_div(a->n, STREAM_KEYS));
  t->score_row = min64(t->block_keys, round_up(max64(a->n, 1), 16));
  t->out_row = a->e + 4; /* sums, max, sum; f32 states are kept as f64 in the last 4 */
  t->q_bytes = round_up(t->rows * a->d * t->acc_bytes, 64);
  t->score_bytes = round_up(t->rows * t->score_row * t->acc_bytes, 64);
  t->bias_bytes = a->bias ? round_up(t->block_keys * t->acc_bytes, 64) : 0;
  t->worker_bytes = t->q_bytes + t->score_bytes + t->bias_bytes + 64;
  t->out_row = round_up(a->e * t->acc_bytes, 16) + 16; /* here in bytes: sums, then max and sum as f64 */
  t->out_bytes = a->batch * a->kv_heads * t->chunks * t->rows * t->out_row;
}

static char *partial_at(const attention_task *t, int64_t task, int64_t r) {
  return t->partial + (task * t->rows + r) * t->out_row;
}
static double *partial_state(const attention_task *t, char *partial) {
  return (double *)(void *)(partial + t->out_row - 16);
}

static void run_chunks(void *ctx, int64_t begin, int64_t end, int worker) {
  const attention_task *t = ctx;
  const kern_attention *a = t->a;
  char *q = t->workspace + worker * t->worker_bytes, *score = q + t->q_bytes, *bias = score + t->score_bytes;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t kv_head = i / t->chunks % a->kv_heads, batch = i / t->chunks / a->kv_heads;
    const int64_t key0 = i % t->chunks * t->block_keys;
    int64_t keys = min64(t->block_keys, a->n - key0), limit = 0;
    for (int64_t r = 0; r < t->rows; ++r) limit = max64(limit, keys_seen(t, row_at(t, kv_head, r)));
    keys = max64(0, min64(keys, limit - key0));
    for (int64_t r = 0; r < t->rows; ++r) {
      const row one = row_at(t, kv_head, r);
      gemm_convert_row(a->dtype, t->acc, a->d, element_at(a->q, t->element, a->q_strides, batch, one.head, one.query),
                       a->q_strides[3], q + r * a->d * t->acc_bytes);
      char *partial = partial_at(t, i, r);
      memset(partial, 0, (size_t)t->out_row);
      partial_state(t, partial)[0] = -(double)INFINITY;
    }
    if (keys == 0) continue;
    t->skinny->dot(t->rows, keys, a->d, q, a->d, element_at(a->k, t->element, a->k_strides, batch, kv_head, key0),
                   a->k_strides[2], score, t->score_row);
    for (int64_t r = 0; r < t->rows; ++r) {
      const row one = row_at(t, kv_head, r);
      const int64_t seen = max64(0, min64(keys, keys_seen(t, one) - key0));
      double *state = partial_state(t, partial_at(t, i, r));
      softmax_row(t, score + r * t->score_row * t->acc_bytes, seen, keys, bias_row(t, batch, one, key0, seen, bias),
                  &state[0], &state[1], partial_at(t, i, r));
    }
    t->skinny->axpy(t->rows, a->e, keys, score, t->score_row,
                    element_at(a->v, t->element, a->v_strides, batch, kv_head, key0), a->v_strides[2],
                    partial_at(t, i, 0), t->out_row / t->acc_bytes);
  }
}

/* Brings the chunks of every row together, in their order. */
static void merge_chunks(const attention_task *t) {
  const kern_attention *a = t->a;
  for (int64_t head = 0; head < a->batch * a->kv_heads; ++head)
    for (int64_t r = 0; r < t->rows; ++r) {
      char *whole = partial_at(t, head * t->chunks, r);
      double *state = partial_state(t, whole);
      for (int64_t c = 1; c < t->chunks; ++c) {
        char *other = partial_at(t, head * t->chunks + c, r);
        const double *more = partial_state(t, other);
        if (more[0] == -(double)INFINITY && more[1] == 0) continue;
        const double max = more[0] > state[0] ? more[0] : state[0], shift = max == -(double)INFINITY ? 0 : max;
        const double by = exp(state[0] - shift), other_by = exp(more[0] - shift);
        for (int64_t j = 0; j < a->e; ++j) {
          if (t->acc == TTPU_F32)
            ((float *)(void *)whole)[j] =
                (float)(((float *)(void *)whole)[j] * by + ((float *)(void *)other)[j] * other_by);
          else
            ((double *)(void *)whole)[j] = ((double *)(void *)whole)[j] * by + ((double *)(void *)other)[j] * other_by;
        }
        state[0] = max;
        state[1] = state[1] * by + more[1] * other_by;
      }
      finish_row(t, head / a->kv_heads, row_at(t, head % a->kv_heads, r), whole, state[0], state[1]);
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

static ttpu_status check(const kern_attention *a) {
  if (a->dtype != TTPU_F32 && a->dtype != TTPU_BF16 && a->dtype != TTPU_F16 && a->dtype != TTPU_F64)
    return base_fail(TTPU_INVALID_ARGUMENT, "attention: dtype %d is not f32, bf16, f16 or f64", (int)a->dtype);
  if (a->batch < 0 || a->heads < 0 || a->kv_heads < 0 || a->m < 0 || a->n < 0 || a->d < 0 || a->e < 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "attention: negative size");
  if (a->heads > 0 && (a->kv_heads == 0 || a->heads % a->kv_heads))
    return base_fail(TTPU_INVALID_ARGUMENT, "attention: %lld query heads are no multiple of %lld key heads",
                     (long long)a->heads, (long long)a->kv_heads);
  if (a->bias && a->bias_dtype != TTPU_BOOL &&
      !(a->bias_dtype > TTPU_NO_DTYPE && a->bias_dtype < TTPU_DTYPE_COUNT && base_dtype_is_float(a->bias_dtype)))
    return base_fail(TTPU_INVALID_ARGUMENT, "attention: a bias of dtype %d is neither float nor bool",
                     (int)a->bias_dtype);
  return TTPU_OK;
}

static attention_task plan(const kern_attention *a) {
  attention_task t = {.a = a, .rows_kernels = kernels()};
  t.acc = a->dtype == TTPU_F64 ? TTPU_F64 : TTPU_F32;
  t.kernel = gemm_kernel_get(a->dtype, a->dtype, t.acc, KERN_PRECISION_HIGHEST);
  t.element = (int64_t)base_dtype_bytes(a->dtype);
  t.acc_bytes = (int64_t)base_dtype_bytes(t.acc);
  t.rows = a->heads / a->kv_heads * a->m;
  t.skinny = stream_kernel(&t);
  if (t.skinny) plan_stream(&t);
  else plan_blocks(&t);
  return t;
}

static bool is_empty(const kern_attention *a) { return a->batch == 0 || a->heads == 0 || a->m == 0; }

static size_t workspace_bytes(const attention_task *t) {
  return (size_t)(base_pool_size() * t->worker_bytes + (t->skinny ? t->out_bytes : 0));
}

size_t kern_attention_workspace(const kern_attention *a) {
  if (check(a) != TTPU_OK || is_empty(a)) return 0;
  const attention_task t = plan(a);
  return workspace_bytes(&t);
}

ttpu_status kern_attention_run(const kern_attention *a) {
  BASE_TRY(check(a));
  if (is_empty(a)) return TTPU_OK;
  attention_task t = plan(a);
  const size_t bytes = workspace_bytes(&t);
  char small[16384] __attribute__((aligned(64)));
  void *own = NULL;
  t.workspace = a->workspace ? a->workspace : bytes <= sizeof small ? small : (own = kern_scratch_new(bytes));
  if (!t.workspace) return base_no_memory(bytes);
  const double flops = 2.0 * (double)a->batch * (double)a->heads * (double)a->m * (double)a->n * (double)(a->d + a->e) *
                       (a->causal && a->m > 1 ? 0.5 : 1);
  const int64_t cost = (int64_t)fmin(1e15, flops / (base_cpu()->avx512 ? 60 : base_cpu()->avx2 ? 30 : 2) + 100);
  if (t.skinny) {
    t.partial = t.workspace + base_pool_size() * t.worker_bytes;
    const int64_t tasks = a->batch * a->kv_heads * t.chunks,
                  bytes_cost = a->batch * a->kv_heads * a->n * (a->d + a->e) * t.element / 15;
    base_pool_run(tasks, max64(1, 5000 / max64(1, bytes_cost / tasks)), max64(cost, bytes_cost), run_chunks, &t);
    merge_chunks(&t);
  } else {
    base_pool_run(a->batch * a->kv_heads * t.row_blocks, 1, cost, run_blocks, &t);
  }
  kern_scratch_free(own);
  return TTPU_OK;
}
