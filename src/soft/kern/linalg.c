/* Cholesky and triangular solve for f32 and f64, in double, blocked around the matrix product.
 *
 * A matrix is copied into a dense double workspace, worked on in blocks of BLOCK columns, and stored. Within a block
 * the textbook loops run; everything behind it is one product (gemm.h). Batches of small matrices, where a
 * product would not pay, are worked on in parallel instead.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/gemm.h"
#include "soft/kern/wide.h"

enum { BLOCK = 64 };

bool kern_linalg_supports(ttpu_dtype t) { return t == TTPU_F32 || t == TTPU_F64; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The matrix (last two dimensions) at a batch position. */
typedef struct matrix {
  char *data;
  int64_t row, column; /* bytes */
  ttpu_dtype dtype;
} matrix;

static matrix matrix_at(const soft_view *v, int64_t batch) {
  int64_t bytes = (int64_t)base_dtype_bytes(v->dtype), offset = 0;
  for (uint32_t d = v->rank - 2; d-- > 0; batch /= v->dims[d]) offset += batch % v->dims[d] * v->strides[d];
  return (matrix){(char *)v->data + offset * bytes, v->strides[v->rank - 2] * bytes, v->strides[v->rank - 1] * bytes,
                  v->dtype};
}

/* out[i * n + k] = element (i, first + k), `count` of them, with a leading dimension of `lead`. */
static void load_row(matrix m, int64_t i, int64_t first, int64_t count, double *out) {
  wide row[KERN_ROW];
  for (int64_t at = 0; at < count; at += KERN_ROW) {
    int64_t n = least(KERN_ROW, count - at);
    wide_get()->load(m.dtype, m.data + i * m.row + (first + at) * m.column, m.column, n, row);
    for (int64_t k = 0; k < n; ++k) out[at + k] = row[k].f;
  }
}

static void store_row(matrix m, int64_t i, int64_t count, const double *from) {
  wide row[KERN_ROW];
  for (int64_t at = 0; at < count; at += KERN_ROW) {
    int64_t n = least(KERN_ROW, count - at);
    for (int64_t k = 0; k < n; ++k) row[k].f = from[at + k];
    wide_get()->store(m.dtype, m.data + i * m.row + at * m.column, m.column, n, row);
  }
}

static matrix transposed(matrix m) { return (matrix){m.data, m.column, m.row, m.dtype}; }

/* c [m, n] += a [m, k] b [k, n], all double. */
static ttpu_status add_product(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col,
                               const double *b, int64_t b_row, int64_t b_col, double *c, int64_t c_row) {
  const kern_gemm g = {.a_dtype = TTPU_F64,
                       .b_dtype = TTPU_F64,
                       .out = TTPU_F64,
                       .precision = KERN_PRECISION_HIGHEST,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .a_row = a_row,
                       .a_col = a_col,
                       .b = b,
                       .b_row = b_row,
                       .b_col = b_col,
                       .c = c,
                       .c_row = c_row,
                       .c_col = 1,
                       .batch = 1,
                       .beta = 1};
  return kern_gemm_run(&g);
}

/* ---- Cholesky ---------------------------------------------------------------------------------------- */

/* Rows [k, n) of columns [k, k + width): the diagonal block is factored and the rows below solved against it. */
static void factor_panel(double *l, int64_t n, int64_t k, int64_t width) {
  for (int64_t j = k; j < k + width; ++j) {
    double pivot = l[j * n + j];
    for (int64_t p = k; p < j; ++p) pivot -= l[j * n + p] * l[j * n + p];
    l[j * n + j] = pivot = pivot > 0 ? sqrt(pivot) : NAN;
    for (int64_t i = j + 1; i < n; ++i) {
      double sum = l[i * n + j];
      for (int64_t p = k; p < j; ++p) sum -= l[i * n + p] * l[j * n + p];
      l[i * n + j] = sum / pivot;
    }
  }
}

/* L in place of the lower triangle of l [n, n]; `panel` has room for n * BLOCK. */
static ttpu_status factor(double *l, int64_t n, double *panel) {
  for (int64_t k = 0; k < n; k += BLOCK) {
    int64_t width = least(BLOCK, n - k), rest = k + width;
    factor_panel(l, n, k, width);
    for (int64_t i = rest; i < n; ++i) /* minus the panel, for the product below */
      for (int64_t p = 0; p < width; ++p) panel[i * BLOCK + p] = -l[i * n + k + p];
    for (int64_t j = rest; j < n; j += 4 * BLOCK) { /* the lower triangle in strips of columns */
      int64_t columns = least(4 * BLOCK, n - j);
      BASE_TRY(add_product(n - j, columns, width, panel + j * BLOCK, BLOCK, 1, l + j * n + k, 1, n, l + j * n + j, n));
    }
  }
  return TTPU_OK;
}

typedef struct cholesky_job {
  bool lower;
  int64_t n;
  const soft_view *x, *y;
  double *memory;     /* of each worker: a matrix and a panel */
  ttpu_status status; /* of large matrices, which run one by one */
} cholesky_job;

static void cholesky_batch(void *context, int64_t begin, int64_t end, int worker) {
  cholesky_job *j = context;
  int64_t n = j->n;
  double *l = j->memory + (int64_t)worker * n * (n + BLOCK), *panel = l + n * n;
  for (int64_t b = begin; b < end; ++b) {
    matrix from = matrix_at(j->x, b), to = matrix_at(j->y, b);
    if (!j->lower) from = transposed(from), to = transposed(to);
    for (int64_t i = 0; i < n; ++i) load_row(from, i, 0, i + 1, l + i * n);
    if (n <= BLOCK) factor_panel(l, n, 0, n);
    else if ((j->status = factor(l, n, panel)) != TTPU_OK) return;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = i + 1; k < n; ++k) l[i * n + k] = 0;
      store_row(to, i, n, l + i * n);
    }
  }
}

ttpu_status kern_cholesky(bool lower, const soft_view *x, const soft_view *y) {
  if (base_numel(x->rank, x->dims) == 0) return TTPU_OK;
  cholesky_job j = {.lower = lower, .n = x->dims[x->rank - 1], .x = x, .y = y};
  int64_t batch = base_numel(x->rank - 2, x->dims), cost = j.n * j.n * j.n / 3 + j.n * j.n * 4;
  bool small = j.n <= BLOCK;
  size_t bytes = (size_t)(j.n * (j.n + BLOCK)) * sizeof(double) * (size_t)(small ? base_pool_size() : 1);
  if (!(j.memory = base_calloc(bytes, 1))) return base_no_memory(bytes);
  if (small) base_pool_run(batch, kern_grain(cost), batch * cost, cholesky_batch, &j);
  else cholesky_batch(&j, 0, batch, 0);
  base_free(j.memory);
  return j.status;
}

/* ---- triangular solve -------------------------------------------------------------------------------- */

typedef struct solve_job {
  const ir_triangular_solve_attrs *t;
  const soft_view *a, *b, *y;
  int64_t n, m;           /* E [n, n] z = c [n, m] */
  bool transposed, lower; /* of E */
  double *memory;         /* of each worker: E and z */
  ttpu_status status;
} solve_job;

/* A block of rows [k, k + width) of z, solved against the diagonal block. e holds E with the off-diagonal part negated;
 * columns [begin, end). */
static void solve_block(const solve_job *j, const double *e, double *z, int64_t k, int64_t width, int64_t begin,
                        int64_t end) {
  int64_t n = j->n, m = j->m;
  for (int64_t step = 0; step < width; ++step) {
    int64_t i = j->lower ? k + step : k + width - 1 - step;
    for (int64_t s = 0; s < step; ++s) {
      int64_t p = j->lower ? k + s : k + width - 1 - s;
      double factor = e[i * n + p];
      for (int64_t c = begin; c < end; ++c) z[i * m + c] += factor * z[p * m + c];
    }
    if (j->t->unit_diagonal) continue;
    double pivot = e[i * n + i];
    for (int64_t c = begin; c < end; ++c) z[i * m + c] /= pivot;
  }
}

typedef struct columns_job {
  const solve_job *job;
  const double *e;
  double *z;
  int64_t k, width;
} columns_job;

static void solve_columns(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const columns_job *c = context;
  solve_block(c->job, c->e, c->z, c->k, c->width, begin, end);
}

/* z = E⁻¹ z, a block of rows after the other, each followed by one product for the rows that are left. */
static ttpu_status solve(const solve_job *j, const double *e, double *z) {
  int64_t n = j->n, m = j->m, blocks = (n + BLOCK - 1) / BLOCK;
  for (int64_t b = 0; b < blocks; ++b) {
    int64_t k = (j->lower ? b : blocks - 1 - b) * BLOCK, width = least(BLOCK, n - k);
    columns_job c = {j, e, z, k, width};
    base_pool_run(m, 64, width * width * m / 4, solve_columns, &c);
    int64_t first = j->lower ? k + width : 0, rest = j->lower ? n - first : k;
    if (rest > 0) BASE_TRY(add_product(rest, m, width, e + first * n + k, n, 1, z + k * m, m, 1, z + first * m, m));
  }
  return TTPU_OK;
}

static void solve_batch(void *context, int64_t begin, int64_t end, int worker) {
  solve_job *j = context;
  int64_t n = j->n, m = j->m;
  double *e = j->memory + (int64_t)worker * n * (n + m), *z = e + n * n;
  for (int64_t b = begin; b < end; ++b) {
    matrix a = matrix_at(j->a, b), c = matrix_at(j->b, b), y = matrix_at(j->y, b);
    if (j->transposed) a = transposed(a);
    if (!j->t->left_side) c = transposed(c), y = transposed(y);
    for (int64_t i = 0; i < n; ++i) { /* only E's triangle is read */
      int64_t first = j->lower ? 0 : i, count = j->lower ? i + 1 : n - i;
      load_row(a, i, first, count, e + i * n + first);
      for (int64_t k = first; k < first + count; ++k)
        if (k != i) e[i * n + k] = -e[i * n + k];
    }
    for (int64_t i = 0; i < n; ++i) load_row(c, i, 0, m, z + i * m);
    if (n <= BLOCK) solve_block(j, e, z, 0, n, 0, m);
    else if ((j->status = solve(j, e, z)) != TTPU_OK) return;
    for (int64_t i = 0; i < n; ++i) store_row(y, i, m, z + i * m);
  }
}

/* A on the right is the transposed problem: z op(A) = c is op(A)ᵀ zᵀ = cᵀ. */
ttpu_status kern_triangular_solve(const ir_triangular_solve_attrs *t, const soft_view *a, const soft_view *b,
                                  const soft_view *y) {
  if (base_numel(b->rank, b->dims) == 0) return TTPU_OK;
  uint32_t rank = b->rank;
  solve_job j = {
      .t = t, .a = a, .b = b, .y = y, .n = a->dims[rank - 1], .m = b->dims[t->left_side ? rank - 1 : rank - 2]};
  j.transposed = (t->transpose_a != IR_NO_TRANSPOSE) != !t->left_side;
  j.lower = t->lower != j.transposed;
  int64_t batch = base_numel(rank - 2, b->dims), cost = j.n * j.n * j.m / 4 + j.n * (j.n + j.m) * 4;
  bool small = j.n <= BLOCK;
  size_t bytes = (size_t)(j.n * (j.n + j.m)) * sizeof(double) * (size_t)(small ? base_pool_size() : 1);
  if (!(j.memory = base_alloc(bytes))) return base_no_memory(bytes);
  if (small) base_pool_run(batch, kern_grain(cost), batch * cost, solve_batch, &j);
  else solve_batch(&j, 0, batch, 0);
  base_free(j.memory);
  return j.status;
}
