#include "soft/custom.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "soft/reference_int.h"

typedef double complex complex128;

/* One matrix of a batch, dense and row-major. */
typedef struct matrix {
  int64_t rows, columns;
  complex128 *at;
} matrix;

static ttpu_status matrix_new(int64_t rows, int64_t columns, matrix *m) {
  *m = (matrix){rows, columns, base_calloc((size_t)(rows * columns) + 1, sizeof *m->at)};
  return m->at ? TTPU_OK : base_no_memory((size_t)(rows * columns) * sizeof *m->at);
}

/* Matrix, or with `tail` 1 vector, number `batch` of a view. */
static soft_view part_of(const soft_view *v, uint32_t tail, int64_t batch) {
  int64_t at[TTPU_MAX_RANK] = {0};
  soft_view part = {.dtype = v->dtype, .rank = tail};
  ref_unflatten(v->rank - tail, v->dims, batch, at);
  part.data = ref_at(v, at);
  for (uint32_t d = 0; d < tail; ++d) {
    part.dims[d] = v->dims[v->rank - tail + d];
    part.strides[d] = v->strides[v->rank - tail + d];
  }
  return part;
}

static int64_t batch_count(const soft_view *v, uint32_t tail) { return base_numel(v->rank - tail, v->dims); }

static complex128 load(const soft_view *v, int64_t i, int64_t j) {
  base_scalar x = ref_load(v, (const int64_t[]){i, j});
  return CMPLX(x.d[0], base_dtype_is_complex(v->dtype) ? x.d[1] : 0);
}
static void store(const soft_view *v, int64_t i, int64_t j, complex128 z) {
  ref_store(v, (const int64_t[]){i, j}, (base_scalar){.d = {creal(z), cimag(z)}});
}
static void store_at(const soft_view *v, int64_t i, complex128 z) { store(v, i, 0, z); }

static void read_matrix(const soft_view *v, matrix *m) {
  for (int64_t i = 0; i < v->dims[0]; ++i)
    for (int64_t j = 0; j < v->dims[1]; ++j) m->at[i * m->columns + j] = load(v, i, j);
}
static void write_matrix(const matrix *m, const soft_view *v) {
  for (int64_t i = 0; i < v->dims[0]; ++i)
    for (int64_t j = 0; j < v->dims[1]; ++j) store(v, i, j, m->at[i * m->columns + j]);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- reflectors --------------------------------------------------------------------------------------------- */

/* Column j of a from row j on becomes (beta, 0, ...) under the reflection I - tau v vᴴ, v = (1, what is left there): LAPACK's
 * larfg. beta has the sign that does not cancel; tau is 0 where nothing is to be done. */
static complex128 make_reflector(matrix *a, int64_t j) {
  complex128 *column = a->at + j * a->columns + j, alpha = *column;
  double largest = cabs(alpha), sum = 0;
  for (int64_t i = 1; i < a->rows - j; ++i) largest = fmax(largest, cabs(column[i * a->columns]));
  bool below = false;
  for (int64_t i = 0; i < a->rows - j; ++i) {
    double size = largest > 0 ? cabs(column[i * a->columns]) / largest : 0;
    sum += size * size;
    below |= i > 0 && !(size == 0);
  }
  if (!below && cimag(alpha) == 0) return 0;
  double beta = -copysign(largest * sqrt(sum), creal(alpha));
  for (int64_t i = 1; i < a->rows - j; ++i) column[i * a->columns] /= alpha - beta;
  *column = beta;
  return CMPLX((beta - creal(alpha)) / beta, -cimag(alpha) / beta);
}

/* c -= tau v (vᴴ c) for the columns of c from `first` on, v being reflector j of a. sums: as many as c has columns. */
static void reflect(const matrix *a, int64_t j, complex128 tau, matrix *c, int64_t first, complex128 *sums) {
  for (int64_t k = first; k < c->columns; ++k) sums[k] = c->at[j * c->columns + k];
  for (int64_t i = j + 1; i < a->rows; ++i) {
    complex128 v = conj(a->at[i * a->columns + j]);
    for (int64_t k = first; k < c->columns; ++k) sums[k] += v * c->at[i * c->columns + k];
  }
  for (int64_t k = first; k < c->columns; ++k) c->at[j * c->columns + k] -= tau * sums[k];
  for (int64_t i = j + 1; i < a->rows; ++i) {
    complex128 v = tau * a->at[i * a->columns + j];
    for (int64_t k = first; k < c->columns; ++k) c->at[i * c->columns + k] -= v * sums[k];
  }
}

static ttpu_status run_qr(const ir_op *op, const soft_view *x, const soft_view *y) {
  int64_t m = x->dims[x->rank - 2], n = x->dims[x->rank - 1];
  matrix a = {0}, sums = {0};
  (void)op;
  ttpu_status status = matrix_new(m, n, &a);
  if (status == TTPU_OK) status = matrix_new(1, n, &sums);
  for (int64_t b = 0; b < batch_count(x, 2) && status == TTPU_OK; ++b) {
    soft_view from = part_of(x, 2, b), to = part_of(&y[0], 2, b), taus = part_of(&y[1], 1, b);
    read_matrix(&from, &a);
    for (int64_t j = 0; j < least(m, n); ++j) {
      complex128 tau = make_reflector(&a, j);
      reflect(&a, j, conj(tau), &a, j + 1, sums.at);
      store_at(&taus, j, tau);
    }
    write_matrix(&a, &to);
  }
  base_free(a.at);
  base_free(sums.at);
  return status;
}

/* The first columns of the product of all reflectors, which is applied to those of the identity from the last one on. */
static ttpu_status run_product(const ir_op *op, const soft_view *x, const soft_view *y) {
  int64_t m = x->dims[x->rank - 2], n = x->dims[x->rank - 1], count = x[1].dims[x[1].rank - 1];
  matrix a = {0}, q = {0}, sums = {0};
  (void)op;
  ttpu_status status = matrix_new(m, n, &a);
  if (status == TTPU_OK) status = matrix_new(m, n, &q);
  if (status == TTPU_OK) status = matrix_new(1, n, &sums);
  for (int64_t b = 0; b < batch_count(x, 2) && status == TTPU_OK; ++b) {
    soft_view from = part_of(x, 2, b), to = part_of(y, 2, b), taus = part_of(&x[1], 1, b);
    read_matrix(&from, &a);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) q.at[i * n + j] = i == j;
    for (int64_t j = count; j-- > 0;) reflect(&a, j, load(&taus, j, 0), &q, j, sums.at);
    write_matrix(&q, &to);
  }
  base_free(a.at);
  base_free(q.at);
  base_free(sums.at);
  return status;
}

/* ---- LU ------------------------------------------------------------------------------------------------------- */

/* LAPACK's measure of a pivot. */
static double pivot_size(complex128 z) { return fabs(creal(z)) + fabs(cimag(z)); }

static void swap_rows(matrix *a, int64_t i, int64_t k) {
  for (int64_t j = 0; j < a->columns && i != k; ++j) {
    complex128 z = a->at[i * a->columns + j];
    a->at[i * a->columns + j] = a->at[k * a->columns + j];
    a->at[k * a->columns + j] = z;
  }
}

/* Eliminates below element (j, j) with the largest of the column there; a column of zeros stays. Gives the pivot's row. */
static int64_t eliminate(matrix *a, int64_t j) {
  int64_t n = a->columns, pivot = j;
  for (int64_t i = j + 1; i < a->rows; ++i)
    if (pivot_size(a->at[i * n + j]) > pivot_size(a->at[pivot * n + j])) pivot = i;
  swap_rows(a, j, pivot);
  complex128 by = a->at[j * n + j];
  for (int64_t i = j + 1; i < a->rows && by != 0; ++i) {
    complex128 factor = a->at[i * n + j] /= by;
    for (int64_t k = j + 1; k < n; ++k) a->at[i * n + k] -= factor * a->at[j * n + k];
  }
  return pivot;
}

static ttpu_status run_lu(const ir_op *op, const soft_view *x, const soft_view *y) {
  int64_t m = x->dims[x->rank - 2], n = x->dims[x->rank - 1];
  matrix a = {0};
  (void)op;
  int64_t *order = base_alloc((size_t)m * sizeof *order + 1);
  ttpu_status status = order ? matrix_new(m, n, &a) : base_no_memory((size_t)m * sizeof *order);
  for (int64_t b = 0; b < batch_count(x, 2) && status == TTPU_OK; ++b) {
    soft_view from = part_of(x, 2, b), to = part_of(&y[0], 2, b);
    soft_view pivots = part_of(&y[1], 1, b), permutation = part_of(&y[2], 1, b);
    read_matrix(&from, &a);
    for (int64_t i = 0; i < m; ++i) order[i] = i;
    for (int64_t j = 0; j < least(m, n); ++j) {
      int64_t pivot = eliminate(&a, j), row = order[j];
      order[j] = order[pivot];
      order[pivot] = row;
      ref_store(&pivots, &j, (base_scalar){.i = pivot});
    }
    for (int64_t i = 0; i < m; ++i) ref_store(&permutation, &i, (base_scalar){.i = order[i]});
    write_matrix(&a, &to);
  }
  base_free(a.at);
  base_free(order);
  return status;
}

/* ---- eigenvalues of Hermitian matrices -------------------------------------------------------------------------- */

/* The rotation of rows and columns p and q that makes a(p, q) zero; v has the eigenvectors so far as its rows. */
static void rotate(matrix *a, matrix *v, int64_t p, int64_t q) {
  int64_t n = a->rows;
  complex128 *rp = a->at + p * n, *rq = a->at + q * n, between = rp[q];
  double size = cabs(between), app = creal(rp[p]), aqq = creal(rq[q]);
  double tau = (aqq - app) / (2 * size), t = copysign(1, tau) / (fabs(tau) + hypot(1, tau));
  double c = 1 / hypot(1, t), s = t * c;
  complex128 phase = between / size, up = s * phase, down = s * conj(phase);
  for (int64_t k = 0; k < n; ++k) { /* columns p and q as rows of the conjugate: a stays Hermitian */
    if (k == p || k == q) continue;
    complex128 x = conj(rp[k]), y = conj(rq[k]);
    complex128 new_p = c * x - down * y, new_q = up * x + c * y;
    a->at[k * n + p] = new_p, a->at[k * n + q] = new_q;
    rp[k] = conj(new_p), rq[k] = conj(new_q);
  }
  rp[p] = app - t * size, rq[q] = aqq + t * size;
  rp[q] = rq[p] = 0;
  complex128 *vp = v->at + p * n, *vq = v->at + q * n;
  for (int64_t k = 0; k < n; ++k) {
    complex128 x = vp[k], y = vq[k];
    vp[k] = c * x - down * y, vq[k] = up * x + c * y;
  }
}

/* Jacobi's method, row by row, until what is beside the diagonal is rounding. */
static void diagonalize(matrix *a, matrix *v) {
  enum { MOST_SWEEPS = 60 };
  int64_t n = a->rows;
  double all = 0;
  for (int64_t i = 0; i < n * n; ++i) all += creal(a->at[i] * conj(a->at[i])), v->at[i] = i / n == i % n;
  double smallest = sqrt(all) * 1e-17 / (double)(n ? n : 1);
  bool rotated = true;
  for (int sweep = 0; sweep < MOST_SWEEPS && rotated; ++sweep) {
    rotated = false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (!(cabs(a->at[p * n + q]) > smallest)) continue;
        rotate(a, v, p, q);
        rotated = true;
      }
  }
}

static bool is_finite(const matrix *a) {
  for (int64_t i = 0; i < a->rows * a->columns; ++i)
    if (!isfinite(creal(a->at[i])) || !isfinite(cimag(a->at[i]))) return false;
  return true;
}

/* Positions by ascending eigenvalue. */
static void sort_values(const matrix *a, int64_t *order) {
  for (int64_t i = 0; i < a->rows; ++i) {
    int64_t k = i;
    double value = creal(a->at[i * a->rows + i]);
    for (; k > 0 && creal(a->at[order[k - 1] * (a->rows + 1)]) > value; --k) order[k] = order[k - 1];
    order[k] = i;
  }
}

/* One triangle of the matrix, with the other as its conjugate. */
static void read_triangle(const soft_view *v, bool lower, matrix *a) {
  int64_t n = a->rows;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      complex128 z = lower ? load(v, i, j) : conj(load(v, j, i));
      a->at[i * n + j] = i == j ? creal(z) : z;
      if (i != j) a->at[j * n + i] = conj(z);
    }
}

static ttpu_status run_eigh(const ir_op *op, const soft_view *x, const soft_view *y) {
  const char *config = IR_ATTRS(op, custom_call)->backend_config;
  int lower = 1, sort = 1;
  int64_t n = x->dims[x->rank - 1];
  matrix a = {0}, v = {0};
  sscanf(config, "%d,%d", &lower, &sort); /* checked when it was compiled */
  int64_t *order = base_alloc((size_t)n * sizeof *order + 1);
  ttpu_status status = order ? matrix_new(n, n, &a) : base_no_memory((size_t)n * sizeof *order);
  if (status == TTPU_OK) status = matrix_new(n, n, &v);
  for (int64_t b = 0; b < batch_count(x, 2) && status == TTPU_OK; ++b) {
    soft_view from = part_of(x, 2, b), vectors = part_of(&y[0], 2, b), values = part_of(&y[1], 1, b);
    read_triangle(&from, lower, &a);
    bool good = is_finite(&a);
    if (good) diagonalize(&a, &v);
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    if (sort && good) sort_values(&a, order);
    for (int64_t j = 0; j < n; ++j) {
      store_at(&values, j, good ? a.at[order[j] * (n + 1)] : NAN);
      for (int64_t i = 0; i < n; ++i) store(&vectors, i, j, good ? v.at[order[j] * n + i] : NAN);
    }
  }
  base_free(a.at);
  base_free(v.at);
  base_free(order);
  return status;
}

/* ---- which is which, and what they take --------------------------------------------------------------------------- */

/* Of m x n matrices, k = min(m, n): "mn" is a matrix like the operand, "nn" square; "k", "m" and "n" vectors. What is
 * behind them is their dtype: the operand's (a), its real part's (r), i32 (i). */
typedef struct custom_row {
  const char *target, *operands[2], *results[3];
  ttpu_status (*run)(const ir_op *op, const soft_view *x, const soft_view *y);
} custom_row;

static const custom_row rows[] = {
    {"Qr", {"mna"}, {"mna", "ka"}, run_qr},
    {"ProductOfElementaryHouseholderReflectors", {"mna", "?a"}, {"mna"}, run_product},
    {"LuDecomposition", {"mna"}, {"mna", "ki", "mi"}, run_lu},
    {"Eigh", {"nna"}, {"nna", "nr"}, run_eigh},
};

static const custom_row *find_row(const ir_op *op) {
  const char *target = IR_ATTRS(op, custom_call)->call_target_name;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    if (strcmp(rows[i].target, target) == 0) return &rows[i];
  return NULL;
}

/* Is `t` what the pattern says, of matrices like `a`? */
static bool fits(ir_type t, const char *pattern, ir_type a) {
  int64_t m = a.dims[a.rank - 2], n = a.dims[a.rank - 1];
  uint32_t tail = (uint32_t)strlen(pattern) - 1, d = 0;
  char kind = pattern[tail];
  ttpu_dtype dtype = (ttpu_dtype)a.dtype;
  if (kind == 'i') dtype = TTPU_I32;
  if (kind == 'r' && base_dtype_is_complex(dtype)) dtype = dtype == TTPU_C64 ? TTPU_F32 : TTPU_F64;
  if (t.dtype != dtype || t.rank != a.rank - 2 + tail) return false;
  for (; d + 2u < a.rank; ++d)
    if (t.dims[d] != a.dims[d]) return false;
  for (uint32_t k = 0; k < tail; ++k) {
    int64_t size = t.dims[d + k], want = pattern[k] == 'm' ? m : pattern[k] == 'n' ? n : least(m, n);
    if (pattern[k] == '?' ? size > least(m, n) : size != want) return false;
  }
  return true;
}

static ttpu_status check_call(const ir_func *f, const ir_op *op) {
  const custom_row *row = find_row(op);
  const char *target = IR_ATTRS(op, custom_call)->call_target_name;
  int lower, sort;
  const char *config = IR_ATTRS(op, custom_call)->backend_config;
  if (!row) return base_fail(TTPU_UNIMPLEMENTED, "custom_call: the software TPU has no target \"%s\"", target);
  ir_type a = op->operand_count ? ir_type_of(f, op->operands[0]) : (ir_type){0};
  uint32_t operands = 0, results = 0;
  bool good = a.rank >= 2 && (base_dtype_is_float((ttpu_dtype)a.dtype) || base_dtype_is_complex((ttpu_dtype)a.dtype));
  for (; operands < 2 && row->operands[operands]; ++operands)
    good =
        good && operands < op->operand_count && fits(ir_type_of(f, op->operands[operands]), row->operands[operands], a);
  for (; results < 3 && row->results[results]; ++results)
    good =
        good && results < op->result_count && fits(ir_type_of(f, op->first_result + results), row->results[results], a);
  good = good && operands == op->operand_count && results == op->result_count;
  if (row->run == run_eigh) good = good && a.dims[a.rank - 1] == a.dims[a.rank - 2];
  if (row->run == run_product) good = good && a.dims[a.rank - 2] >= a.dims[a.rank - 1];
  if (row->run == run_eigh && (!config || sscanf(config, "%d,%d", &lower, &sort) != 2))
    return base_fail(TTPU_INVALID_ARGUMENT,
                     "custom_call Eigh: its backend_config is to begin with \"lower,sort\", as in "
                     "\"1,1,100,1e-6\"");
  if (good) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT,
                   "custom_call %s: operands or results do not have the types that it is known with", target);
}

static ttpu_status check_region(const ir_func *f, const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    if (op->kind == IR_CUSTOM_CALL) BASE_TRY(check_call(f, op));
    for (uint32_t k = 0; k < op->region_count; ++k) BASE_TRY(check_region(f, op->regions[k]));
  }
  return TTPU_OK;
}

ttpu_status soft_custom_check(const ir_func *f) { return check_region(f, &f->body); }

ttpu_status soft_custom_call(const ir_op *op, const soft_view *x, const soft_view *y) {
  const custom_row *row = find_row(op);
  return row ? row->run(op, x, y)
             : base_fail(TTPU_UNIMPLEMENTED, "custom_call: the software TPU has no target \"%s\"",
                         IR_ATTRS(op, custom_call)->call_target_name);
}
