/* Fourier transforms, Cholesky factors, triangular systems, sums of matrices. */
#include "aten/nn_int.h"

#include <math.h>

/* ---- Fourier ------------------------------------------------------------------------------------------ */

/* One dimension's transform, unscaled. length: of the real side for RFFT and IRFFT. */
static ir_value transform(aten_lowering *c, ir_value x, uint32_t dim, ir_fft_type type, int64_t length) {
  uint32_t last = aten_meta(c, 0)->rank - 1u;
  if (dim != last) x = nn_swap(c, x, dim, last);
  ir_fft_attrs attrs = {.fft_type = type, .fft_length = {&length, 1}};
  ir_value y = ir_append(c->b, IR_FFT, 1, &x, &attrs, 0, NULL, 0, NULL);
  if (type == IR_FFT_IFFT || type == IR_FFT_IRFFT) y = nn_mul_f64(c, y, (double)length); /* StableHLO divides by it */
  return dim != last ? nn_swap(c, y, dim, last) : y;
}

/* PyTorch's fft_norm_mode: 0 none, 1 by sqrt(n), 2 by n. */
static ir_value normalised(aten_lowering *c, ir_value x, int64_t mode, double n) {
  if (mode == 0 || n == 0) return x;
  return nn_mul_f64(c, x, mode == 1 ? 1 / sqrt(n) : 1 / n);
}

static ir_value transform_complex(aten_lowering *c, ir_value x, ir_i64s dims, uint32_t count, bool forward, double *n) {
  ir_type t = nn_type(c, x);
  for (uint32_t i = 0; x != 0 && i < count; ++i) {
    uint32_t dim = (uint32_t)(dims.data[i] < 0 ? dims.data[i] + t.rank : dims.data[i]);
    x = transform(c, x, dim, forward ? IR_FFT_FFT : IR_FFT_IFFT, t.dims[dim]);
    *n *= (double)t.dims[dim];
  }
  return x;
}

static bool fft_empty(aten_lowering *c) {
  const aten_tensor *x = aten_meta(c, 0);
  if (base_numel(c->outs[0].rank, c->outs[0].sizes) != 0 && base_numel(x->rank, x->sizes) != 0) return false;
  aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
  return true;
}

void lower_fft_c2c(aten_lowering *c) { /* self, dim, normalization, forward */
  if (fft_empty(c)) return;
  ir_i64s dims = aten_ints(c, 1);
  double n = 1;
  ir_value x = transform_complex(c, aten_in(c, 0), dims, dims.count, aten_int(c, 3) != 0, &n);
  aten_out(c, 0, normalised(c, x, aten_int(c, 2), n));
}

void lower_fft_r2c(aten_lowering *c) { /* self, dim, normalization, onesided */
  if (fft_empty(c)) return;
  ir_i64s dims = aten_ints(c, 1);
  ir_value x = aten_in(c, 0);
  ir_type t = nn_type(c, x);
  double n = 1;
  if (dims.count == 0) {
    aten_out(c, 0, x);
    return;
  }
  if (aten_int(c, 3)) {
    int64_t dim = dims.data[dims.count - 1];
    if (dim < 0) dim += aten_meta(c, 0)->rank;
    n = (double)t.dims[dim];
    x = transform(c, x, (uint32_t)dim, IR_FFT_RFFT, t.dims[dim]);
    x = transform_complex(c, x, dims, dims.count - 1, true, &n);
  } else {
    x = transform_complex(c, ir_convert(c->b, x, aten_complex_dtype((ttpu_dtype)t.dtype)), dims, dims.count, true, &n);
  }
  aten_out(c, 0, normalised(c, x, aten_int(c, 2), n));
}

void lower_fft_c2r(aten_lowering *c) { /* self, dim, normalization, last_dim_size */
  if (fft_empty(c)) return;
  ir_i64s dims = aten_ints(c, 1);
  ir_value x = aten_in(c, 0);
  if (dims.count == 0) {
    aten_out(c, 0, ir_real(c->b, x));
    return;
  }
  double n = (double)aten_int(c, 3);
  int64_t dim = dims.data[dims.count - 1];
  if (dim < 0) dim += aten_meta(c, 0)->rank;
  x = transform_complex(c, x, dims, dims.count - 1, false, &n);
  x = transform(c, x, (uint32_t)dim, IR_FFT_IRFFT, aten_int(c, 3));
  aten_out(c, 0, normalised(c, x, aten_int(c, 2), n));
}

/* ---- Cholesky ------------------------------------------------------------------------------------------- */

static ir_value adjoint(aten_lowering *c, ir_value x) {
  uint32_t rank = nn_type(c, x).rank;
  return nn_conj(c, nn_swap(c, x, rank - 2, rank - 1));
}

/* The lower factor, zeros above. */
static ir_value cholesky_factor(aten_lowering *c, ir_value x, bool upper) {
  ir_type t = nn_type(c, x);
  if (x == 0 || ir_numel(t) == 0) return x;
  if (upper) x = adjoint(c, x); /* only the named triangle is read */
  ir_cholesky_attrs attrs = {.lower = true};
  ir_value l = ir_append(c->b, IR_CHOLESKY, 1, &x, &attrs, 0, NULL, 0, NULL);
  ir_value row = ir_iota(c->b, TTPU_I64, t.rank, t.dims, t.rank - 2),
           column = ir_iota(c->b, TTPU_I64, t.rank, t.dims, t.rank - 1);
  return ir_select(c->b, ir_compare(c->b, IR_GE, row, column), l, nn_const(c, l, 0));
}

/* LAPACK's info: 0, or the order of the first leading minor that is not positive. i32, batch sizes. */
static ir_value cholesky_info(aten_lowering *c, ir_value l) {
  ir_type t = nn_type(c, l);
  if (l == 0) return 0;
  int64_t n = t.dims[t.rank - 1];
  if (ir_numel(t) == 0) return ir_fill_i64(c->b, TTPU_I32, t.rank - 2, t.dims, 0);
  ir_value real = base_dtype_is_complex((ttpu_dtype)t.dtype) ? ir_real(c->b, l) : l;
  ir_value row = ir_iota(c->b, TTPU_I32, t.rank, t.dims, t.rank - 2),
           column = ir_iota(c->b, TTPU_I32, t.rank, t.dims, t.rank - 1);
  ir_value bad =
      ir_and_bits(c->b, ir_compare(c->b, IR_EQ, row, column), ir_not_bits(c->b, nn_compare_f64(c, IR_GT, real, 0)));
  ir_value at = ir_select(c->b, bad, nn_add_f64(c, row, 1), nn_const(c, row, (double)(n + 1)));
  at = nn_reduce(c, IR_MINIMUM, at, 2, (int64_t[]){t.rank - 2, t.rank - 1}, false);
  return ir_select(c->b, nn_compare_f64(c, IR_GT, at, (double)n), nn_const(c, at, 0), at);
}

static const char not_definite[] =
    "the factorization could not be completed because the input is not positive-definite";

void lower_cholesky_ex(aten_lowering *c) { /* self, upper, check_errors; results: factor, info */
  bool upper = aten_int(c, 1) != 0;
  ir_value l = cholesky_factor(c, aten_in(c, 0), upper), info = cholesky_info(c, l);
  if (aten_int(c, 2)) ir_check_not(c->b, nn_compare_f64(c, IR_NE, info, 0), IR_BAD_MATRIX, not_definite);
  aten_out(c, 0, upper ? adjoint(c, l) : l);
  aten_out(c, 1, info);
}

void lower_cholesky(aten_lowering *c) { /* self, upper */
  bool upper = aten_int(c, 1) != 0;
  ir_value l = cholesky_factor(c, aten_in(c, 0), upper);
  ir_check_not(c->b, nn_compare_f64(c, IR_NE, cholesky_info(c, l), 0), IR_BAD_MATRIX, not_definite);
  aten_out(c, 0, upper ? adjoint(c, l) : l);
}

/* ---- triangular systems ----------------------------------------------------------------------------------- */

/* Batch dims of x (all but two) expanded to those of `sizes`, which has `rank` dims. */
static ir_value expand_batch(aten_lowering *c, ir_value x, uint32_t rank, const int64_t *sizes) {
  ir_type t = nn_type(c, x);
  int64_t dims[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < rank; ++i) dims[i] = i + 2 < rank ? sizes[i] : t.rank >= 2 ? t.dims[t.rank - (rank - i)] : 1;
  return ir_broadcast_to(c->b, x, rank, dims);
}

static ir_value solve(aten_lowering *c, ir_value a, ir_value b, ir_triangular_solve_attrs attrs) {
  if (ir_numel(nn_type(c, b)) == 0 || a == 0) return b;
  return ir_append(c->b, IR_TRIANGULAR_SOLVE, 2, (ir_value[]){a, b}, &attrs, 0, NULL, 0, NULL);
}

void lower_solve_triangular(aten_lowering *c) { /* A, B, upper, left, unitriangular */
  const aten_tensor *out = &c->outs[0];
  ir_value a = expand_batch(c, aten_in(c, 0), out->rank, out->sizes),
           b = expand_batch(c, aten_in(c, 1), out->rank, out->sizes);
  ir_triangular_solve_attrs attrs = {
      .left_side = aten_int(c, 3) != 0, .lower = !aten_int(c, 2), .unit_diagonal = aten_int(c, 4) != 0};
  aten_out(c, 0, solve(c, a, b, attrs));
}

void lower_triangular_solve(aten_lowering *c) { /* B, A, upper, transpose, unitriangular; results: solution, A */
  const aten_tensor *out = &c->outs[0];
  ir_value a = expand_batch(c, aten_in(c, 1), out->rank, out->sizes),
           b = expand_batch(c, aten_in(c, 0), out->rank, out->sizes);
  ir_triangular_solve_attrs attrs = {.left_side = true,
                                     .lower = !aten_int(c, 2),
                                     .unit_diagonal = aten_int(c, 4) != 0,
                                     .transpose_a = aten_int(c, 3) ? IR_TRANSPOSE_A : IR_NO_TRANSPOSE};
  aten_out(c, 0, solve(c, a, b, attrs));
  aten_out(c, 1, a);
}

/* ---- solutions from Cholesky factors ---------------------------------------------------------------------- */

/* x with f f^H x = b, f the lower factor; with f^H f x = b, f the upper one. Sizes agree. */
static ir_value solve_factored(aten_lowering *c, ir_value f, ir_value b, bool upper) {
  ir_triangular_solve_attrs plain = {.left_side = true, .lower = !upper, .transpose_a = IR_NO_TRANSPOSE},
                            adjoint = {.left_side = true, .lower = !upper, .transpose_a = IR_ADJOINT};
  return solve(c, f, solve(c, f, b, upper ? adjoint : plain), upper ? plain : adjoint);
}

void lower_cholesky_solve(aten_lowering *c) { /* B, factor, upper */
  aten_out(c, 0, solve_factored(c, aten_in(c, 1), aten_in(c, 0), aten_int(c, 2) != 0));
}

void lower_cholesky_inverse(aten_lowering *c) { /* factor, upper */
  ir_value f = aten_in(c, 0);
  ir_type t = nn_type(c, f);
  if (f == 0 || ir_numel(t) == 0) return aten_out(c, 0, f);
  ir_value row = ir_iota(c->b, TTPU_I64, t.rank, t.dims, t.rank - 2),
           column = ir_iota(c->b, TTPU_I64, t.rank, t.dims, t.rank - 1);
  ir_value diagonal = ir_compare(c->b, IR_EQ, row, column), unit = ir_convert(c->b, diagonal, (ttpu_dtype)t.dtype);
  ir_check_not(c->b, ir_and_bits(c->b, diagonal, ir_compare(c->b, IR_EQ, f, nn_const(c, f, 0))), IR_BAD_MATRIX,
               "the inversion could not be completed because the input matrix is singular");
  aten_out(c, 0, solve_factored(c, f, unit, aten_int(c, 1) != 0));
}

/* ---- sums of matrices ------------------------------------------------------------------------------------- */

/* Along input's first dimension: output[i] = sum over j of coefficients[i, j] input[j]. */
void lower_linear_combination(aten_lowering *c) { /* input, coefficients */
  ir_value x = aten_in(c, 0), y;
  ir_type t = nn_type(c, x);
  x = nn_reshape2(c, x, t.dims[0], base_numel(t.rank - 1u, t.dims + 1));
  y = ir_matmul(c->b, aten_in(c, 1), x, IR_PRECISION_HIGHEST, (ttpu_dtype)t.dtype);
  aten_out(c, 0, ir_reshape(c->b, y, c->outs[0].rank, c->outs[0].sizes));
}
