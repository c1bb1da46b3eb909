/* Sums over paths in log space. The sequences of a batch are independent: each is one item, walked step by step with
 * the step before in a row of doubles, in front of which two states that nothing reaches spare the ends a case of
 * their own. */
#include <math.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"

enum { GUARDS = 2 };

typedef struct path_job {
  const wide_functions *w;
  const soft_view *x, *skip, *y; /* [T, N, S], [N, S], [T, N, S] */
  const int64_t *start;          /* [N] */
  wide *memory;                  /* of each worker: two rows */
} path_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static char *row_at(const soft_view *v, int64_t step, int64_t sequence) {
  return (char *)v->data + (step * v->strides[0] + sequence * v->strides[1]) * (int64_t)base_dtype_bytes(v->dtype);
}

static double log_sum(double a, double b, double c) {
  double high = a;
  if (b > high) high = b;
  if (c > high) high = c;
  if (high == -INFINITY) return a + b + c; /* which may hold NaN */
  return high + log(exp(a - high) + exp(b - high) + exp(c - high));
}

/* now[s] += the logarithm of what leads to state s. */
static void advance(const path_job *j, int64_t sequence, const wide *before, wide *now) {
  const soft_view *skip = j->skip;
  const uint8_t *may = (const uint8_t *)skip->data + sequence * skip->strides[0];
  for (int64_t s = 0; s < skip->dims[1]; ++s)
    now[s].f += log_sum(before[s].f, before[s - 1].f, may[s * skip->strides[1]] ? before[s - 2].f : -INFINITY);
}

static void walk(const path_job *j, int64_t sequence, wide *before, wide *now) {
  int64_t states = j->y->dims[2], bytes = (int64_t)base_dtype_bytes(j->y->dtype);
  int64_t from = j->x->strides[2] * bytes, to = j->y->strides[2] * bytes;
  for (int64_t t = 0; t < j->y->dims[0]; ++t) {
    const char *x = row_at(j->x, t, sequence);
    char *y = row_at(j->y, t, sequence);
    for (int64_t s = 0; s < states; s += KERN_ROW)
      j->w->load(j->x->dtype, x + s * from, from, least(KERN_ROW, states - s), now + s);
    for (int64_t s = 0; t < j->start[sequence] && s < states; ++s) now[s].f = -INFINITY;
    if (t > j->start[sequence]) advance(j, sequence, before, now);
    for (int64_t s = 0; s < states; s += KERN_ROW)
      j->w->store(j->y->dtype, y + s * to, to, least(KERN_ROW, states - s), now + s);
    wide *other = now;
    now = before;
    before = other;
  }
}

static void walk_items(void *context, int64_t begin, int64_t end, int worker) {
  const path_job *j = context;
  int64_t row = GUARDS + j->y->dims[2];
  wide *first = j->memory + 2 * row * worker, *second = first + row;
  for (int i = 0; i < GUARDS; ++i) first[i].f = second[i].f = -INFINITY;
  for (int64_t n = begin; n < end; ++n) walk(j, n, first + GUARDS, second + GUARDS);
}

ttpu_status kern_path_scan(const soft_view *x, const soft_view *skip, const soft_view *start, const soft_view *y) {
  int64_t sequences = y->dims[1], cost = y->dims[0] * y->dims[2] * 25;
  if (base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  size_t rows = (size_t)base_pool_size() * 2 * (size_t)(GUARDS + y->dims[2]) * sizeof(wide);
  wide *memory = base_alloc(rows + (size_t)sequences * sizeof(int64_t));
  if (!memory) return base_no_memory(rows);
  int64_t *starts = (int64_t *)((char *)memory + rows);
  kern_read_integers(start, starts);
  path_job j = {.w = wide_get(), .x = x, .skip = skip, .y = y, .start = starts, .memory = memory};
  base_pool_run(sequences, kern_grain(cost), sequences * cost, walk_items, &j);
  base_free(memory);
  return TTPU_OK;
}
