/* Fourier transforms by definition, and the triangular algorithms of linear algebra, all in complex double. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "soft/reference_int.h"

typedef double complex complex128;

static complex128 load(const soft_view *v, const int64_t *at) {
  base_scalar x = ref_load(v, at);
  return CMPLX(x.d[0], base_dtype_is_complex(v->dtype) ? x.d[1] : 0);
}
static void store(const soft_view *v, const int64_t *at, complex128 z) {
  ref_store(v, at, (base_scalar){.d = {creal(z), cimag(z)}});
}

/* ---- fft --------------------------------------------------------------------------------------- */

/* A dense array of complex numbers that one dimension after the other is transformed in. */
typedef struct spectrum {
  uint32_t rank;
  int64_t dims[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
  complex128 *data;
} spectrum;

static int64_t place(const spectrum *s, const int64_t *at) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < s->rank; ++d) offset += at[d] * s->strides[d];
  return offset;
}

/* y[k] = sum over j of x[j] w^(jk), w = exp(sign 2 pi i / n): n² steps, with exact reduction of jk modulo n. */
static ttpu_status transform_dim(spectrum *s, uint32_t dim, double sign) {
  int64_t n = s->dims[dim], lines[TTPU_MAX_RANK], step = s->strides[dim];
  complex128 *roots = base_alloc((size_t)(2 * n) * sizeof *roots + 1), *line = roots + n;
  if (!roots) return base_no_memory((size_t)(2 * n) * sizeof *roots);
  for (int64_t j = 0; j < n; ++j)
    roots[j] = CMPLX(cos(2 * M_PI * (double)j / (double)n), sign * sin(2 * M_PI * (double)j / (double)n));
  for (uint32_t d = 0; d < s->rank; ++d) lines[d] = d == dim ? 1 : s->dims[d];
  for (ref_index i = ref_index_begin(s->rank, lines); i.more; ref_index_next(&i)) {
    complex128 *x = s->data + place(s, i.at);
    for (int64_t k = 0; k < n; ++k) {
      double re = 0, im = 0;
      for (int64_t j = 0; j < n; ++j) {
        complex128 root = roots[(int64_t)((__int128)j * k % n)], value = x[j * step];
        re += creal(value) * creal(root) - cimag(value) * cimag(root);
        im += creal(value) * cimag(root) + cimag(value) * creal(root);
      }
      line[k] = CMPLX(re, im);
    }
    for (int64_t k = 0; k < n; ++k) x[k * step] = line[k];
  }
  base_free(roots);
  return TTPU_OK;
}

/* The half spectrum of a real signal along the last dimension becomes whole: X[n - k] = conj X[k]. */
static void complete_hermitian(spectrum *s) {
  uint32_t last = s->rank - 1;
  int64_t n = s->dims[last];
  int64_t rows = base_numel(last, s->dims);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = n / 2 + 1; k < n; ++k) s->data[r * n + k] = conj(s->data[r * n + n - k]);
}

ttpu_status ref_fft(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  (void)f;
  const ir_fft_attrs *a = IR_ATTRS(op, fft);
  uint32_t transformed = a->fft_length.count, rank = x->rank;
  bool inverse = a->fft_type == IR_FFT_IFFT || a->fft_type == IR_FFT_IRFFT;
  spectrum s = {.rank = rank};
  double scale = 1;
  memcpy(s.dims, x->dims, sizeof s.dims);
  for (uint32_t d = 0; d < transformed; ++d) {
    s.dims[rank - transformed + d] = a->fft_length.data[d];
    if (inverse) scale /= (double)a->fft_length.data[d];
  }
  base_row_major(rank, s.dims, s.strides);
  size_t bytes = (size_t)base_numel(rank, s.dims) * sizeof *s.data;
  if (!(s.data = base_calloc(bytes + 1, 1))) return base_no_memory(bytes);
  ttpu_status status = TTPU_OK;
  for (ref_index i = ref_index_begin(rank, x->dims); i.more; ref_index_next(&i))
    s.data[place(&s, i.at)] = load(x, i.at);
  for (uint32_t d = 0; d + 1 < transformed && status == TTPU_OK; ++d)
    status = transform_dim(&s, rank - transformed + d, inverse ? 1 : -1);
  if (a->fft_type == IR_FFT_IRFFT) complete_hermitian(&s);
  if (transformed && status == TTPU_OK) status = transform_dim(&s, rank - 1, inverse ? 1 : -1);
  for (ref_index i = ref_index_begin(rank, y->dims); i.more && status == TTPU_OK; ref_index_next(&i))
    store(y, i.at, s.data[place(&s, i.at)] * scale);
  base_free(s.data);
  return status;
}

/* ---- triangles ---------------------------------------------------------------------------------- */

/* at[rank - 2] = i, at[rank - 1] = j */
static int64_t *set_row_column(int64_t *at, uint32_t rank, int64_t i, int64_t j) {
  at[rank - 2] = i, at[rank - 1] = j;
  return at;
}

/* The lower triangle of one matrix: L with L Lᴴ = A, in place in l [n, n]. A matrix that is not positive
 * definite gives NaN from the first bad pivot on. */
static void factor(complex128 *l, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    double pivot = creal(l[j * n + j]);
    for (int64_t k = 0; k < j; ++k) pivot -= creal(l[j * n + k] * conj(l[j * n + k]));
    l[j * n + j] = pivot = pivot > 0 ? sqrt(pivot) : NAN;
    for (int64_t i = j + 1; i < n; ++i) {
      complex128 sum = l[i * n + j];
      for (int64_t k = 0; k < j; ++k) sum -= l[i * n + k] * conj(l[j * n + k]);
      l[i * n + j] = CMPLX(creal(sum) / pivot, cimag(sum) / pivot);
    }
  }
}

/* Only the named triangle is read; the other one of the result is zero. */
ttpu_status ref_cholesky(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  (void)f;
  bool lower = IR_ATTRS(op, cholesky)->lower;
  uint32_t rank = x->rank;
  int64_t n = x->dims[rank - 1];
  complex128 *l = base_calloc((size_t)(n * n) + 1, sizeof *l);
  if (!l) return base_no_memory((size_t)(n * n) * sizeof *l);
  for (ref_index b = ref_index_begin(rank - 2, x->dims); b.more && n > 0; ref_index_next(&b)) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j)
        l[i * n + j] =
            lower ? load(x, set_row_column(b.at, rank, i, j)) : conj(load(x, set_row_column(b.at, rank, j, i)));
    factor(l, n);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        bool kept = lower ? j <= i : i <= j;
        store(y, set_row_column(b.at, rank, i, j), !kept ? 0 : lower ? l[i * n + j] : conj(l[j * n + i]));
      }
  }
  base_free(l);
  return TTPU_OK;
}

/* Solves E z = c, E(i, j) being a(i, j), transposed where asked and once more when a stands on the right
 * (z op(a) = c is op(a)ᵀ zᵀ = cᵀ). z holds c and becomes the solution. */
static void solve_line(const ir_triangular_solve_attrs *t, const soft_view *a, int64_t *at, complex128 *z, int64_t n) {
  bool transposed = (t->transpose_a != IR_NO_TRANSPOSE) != !t->left_side, forward = t->lower != transposed;
  for (int64_t step = 0; step < n; ++step) {
    int64_t i = forward ? step : n - 1 - step;
    for (int64_t k = 0; k < step; ++k) {
      int64_t j = forward ? k : n - 1 - k;
      complex128 e = load(a, transposed ? set_row_column(at, a->rank, j, i) : set_row_column(at, a->rank, i, j));
      z[i] -= (t->transpose_a == IR_ADJOINT ? conj(e) : e) * z[j];
    }
    if (t->unit_diagonal) continue;
    complex128 e = load(a, set_row_column(at, a->rank, i, i));
    if (t->transpose_a == IR_ADJOINT) e = conj(e);
    z[i] = cimag(e) == 0 ? CMPLX(creal(z[i]) / creal(e), cimag(z[i]) / creal(e)) : z[i] / e;
  }
}

ttpu_status ref_triangular_solve(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  (void)f;
  const ir_triangular_solve_attrs *t = IR_ATTRS(op, triangular_solve);
  const soft_view *a = &x[0], *b = &x[1];
  uint32_t rank = b->rank;
  int64_t n = a->dims[rank - 1], lines = b->dims[t->left_side ? rank - 1 : rank - 2];
  complex128 *z = base_alloc((size_t)n * sizeof *z + 1);
  if (!z) return base_no_memory((size_t)n * sizeof *z);
  for (ref_index i = ref_index_begin(rank - 2, b->dims); i.more; ref_index_next(&i))
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t k = 0; k < n; ++k)
        z[k] = load(b, t->left_side ? set_row_column(i.at, rank, k, line) : set_row_column(i.at, rank, line, k));
      solve_line(t, a, i.at, z, n);
      for (int64_t k = 0; k < n; ++k)
        store(y, t->left_side ? set_row_column(i.at, rank, k, line) : set_row_column(i.at, rank, line, k), z[k]);
    }
  base_free(z);
  return TTPU_OK;
}
