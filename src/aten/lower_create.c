/* Tensors made from numbers: fills, ranges, identity, index grids. */
#include <math.h>

#include "aten/aten_int.h"

/* Result 0 filled with argument `arg`. Its value is rounded to the result's dtype alone. */
static void fill_from_number(aten_lowering *c, uint32_t arg) {
  ttpu_dtype t = (ttpu_dtype)c->outs[0].dtype, number = aten_number_dtype(c, arg);
  /* A complex number may fill a real tensor when it is real, which PyTorch has checked. */
  ttpu_dtype as = number == TTPU_C128 && !base_dtype_is_complex(t) ? TTPU_C128 : t;
  aten_out(c, 0, aten_number_in(c, arg, as));
}

static void fill_with(aten_lowering *c, double value) {
  for (uint32_t i = 0; i < c->out_count; ++i)
    aten_out(c, i, ir_fill_f64(c->b, (ttpu_dtype)c->outs[i].dtype, c->outs[i].rank, c->outs[i].sizes, value));
}

void lower_zeros(aten_lowering *c) { fill_with(c, 0); } /* zeros and all its kin, zero_, _foreach_zero_ */
void lower_ones(aten_lowering *c) { fill_with(c, 1); }
void lower_fill_scalar(aten_lowering *c) { fill_from_number(c, 1); } /* fill_, full, full_like */
void lower_fill_tensor(aten_lowering *c) { aten_out(c, 0, aten_in(c, 1)); }
void lower_new_full(aten_lowering *c) { fill_from_number(c, 2); }
void lower_scalar_tensor(aten_lowering *c) { fill_from_number(c, 0); }

/* ---- ranges -------------------------------------------------------------------------------------- */

/* 0, 1, 2, ... over the result's elements in row-major order: an out= argument may have more dimensions than one. */
static ir_value places(aten_lowering *c, ttpu_dtype t) {
  const aten_tensor *out = &c->outs[0];
  int64_t n = base_numel(out->rank, out->sizes);
  ir_value line = ir_iota(c->b, t, 1, &n, 0);
  return out->rank == 1 ? line : ir_reshape(c->b, line, out->rank, out->sizes);
}

/* start + i * step. The numbers are static, since the size follows from them. Floats that are no integers are
 * computed in f64, so that each element is rounded once, as on CPU. */
static void range_from(aten_lowering *c, const aten_number *start, const aten_number *step) {
  ir_builder *b = c->b;
  const aten_tensor *out = &c->outs[0];
  ttpu_dtype t = (ttpu_dtype)out->dtype;
  bool whole = base_dtype_is_integer(t);
  int64_t first_int = 0, step_int = 1;
  double first = 0, each = 1;
  if (start) {
    first = base_scalar_convert(start->dtype, TTPU_F64, start->value).d[0];
    first_int = base_scalar_convert(start->dtype, TTPU_I64, start->value).i;
  }
  if (step) {
    each = base_scalar_convert(step->dtype, TTPU_F64, step->value).d[0];
    step_int = base_scalar_convert(step->dtype, TTPU_I64, step->value).i;
  }
  double last = first + each * (double)base_numel(out->rank, out->sizes), exact = 0x1p24;
  bool small = first == floor(first) && each == floor(each) && fabs(first) < exact && fabs(last) < exact;
  ttpu_dtype math = whole ? TTPU_I64 : small ? TTPU_F32 : TTPU_F64;
  ir_value i = places(c, math);
  if (whole ? step_int != 1 : each != 1)
    i = ir_multiply(b, i, whole ? aten_like_i64(c, i, step_int) : aten_like(c, i, each));
  if (whole ? first_int != 0 : first != 0)
    i = ir_add(b, i, whole ? aten_like_i64(c, i, first_int) : aten_like(c, i, first));
  aten_out(c, 0, i);
}

void lower_arange(aten_lowering *c) { range_from(c, NULL, NULL); }
void lower_arange_start(aten_lowering *c) { range_from(c, aten_number_of(c, 0), NULL); }
void lower_arange_step(aten_lowering *c) { range_from(c, aten_number_of(c, 0), aten_number_of(c, 2)); }

/* Argument `arg`, a Scalar or a 0-d tensor, as a rank-0 value; for integer results cut to an integer first. */
static ir_value end_point(aten_lowering *c, uint32_t arg, ttpu_dtype t) {
  ttpu_dtype out = (ttpu_dtype)c->outs[0].dtype;
  if (base_dtype_is_integer(out) && t != out) return ir_convert(c->b, end_point(c, arg, out), t);
  if (!aten_number_of(c, arg)) return aten_in_as(c, arg, t);
  if (aten_number_dtype(c, arg) == TTPU_C128 && !base_dtype_is_complex(t))
    return aten_convert(c, aten_number_in(c, arg, TTPU_C128), t);
  return aten_number_in(c, arg, t);
}

ir_value aten_spaced(aten_lowering *c, ir_value start, ir_value end, int64_t n) {
  ir_builder *b = c->b;
  if (n <= 1) return ir_broadcast_to(b, start, 1, &n);
  ttpu_dtype t = (ttpu_dtype)aten_type(c, start).dtype, real = aten_real_dtype(t);
  ir_value i = ir_iota(b, real, 1, &n, 0);
  ir_value near = ir_compare(b, IR_LT, i, aten_like(c, i, (double)(n / 2)));
  ir_value left = ir_subtract(b, aten_like(c, i, (double)(n - 1)), i);
  i = ir_convert(b, i, t);
  left = ir_convert(b, left, t);
  ir_value step = ir_divide(b, ir_subtract(b, end, start), ir_scalar_f64(b, t, (double)(n - 1)));
  step = aten_spread(c, step, i);
  ir_value from_start = ir_add(b, aten_spread(c, start, i), ir_multiply(b, step, i));
  ir_value from_end = ir_subtract(b, aten_spread(c, end, i), ir_multiply(b, step, left));
  return ir_select(b, near, from_start, from_end);
}

/* The result's elements from argument 0 to argument 1; integers are computed in f64 and truncated. */
static ir_value spaced(aten_lowering *c, ttpu_dtype t) {
  const aten_tensor *out = &c->outs[0];
  ir_value line = aten_spaced(c, end_point(c, 0, t), end_point(c, 1, t), base_numel(out->rank, out->sizes));
  return ir_reshape(c->b, line, out->rank, out->sizes); /* an out= argument may have more dimensions than one */
}

static ttpu_dtype spaced_dtype(aten_lowering *c) {
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)c->outs[0].dtype);
  return base_dtype_is_integer(t) || t == TTPU_BOOL ? TTPU_F64 : t;
}

void lower_linspace(aten_lowering *c) { aten_out(c, 0, spaced(c, spaced_dtype(c))); }

void lower_logspace(aten_lowering *c) {
  ttpu_dtype t = spaced_dtype(c);
  ir_value exponents = spaced(c, t);
  ir_value base = aten_number_in(c, 3, t);
  aten_out(c, 0, ir_power(c->b, aten_spread(c, base, exponents), exponents));
}

/* ---- grids --------------------------------------------------------------------------------------- */

void lower_eye(aten_lowering *c) {
  ir_builder *b = c->b;
  const aten_tensor *out = &c->outs[0];
  ir_value row = ir_iota(b, TTPU_I64, 2, out->sizes, 0), column = ir_iota(b, TTPU_I64, 2, out->sizes, 1);
  aten_out(c, 0, ir_compare(b, IR_EQ, row, column));
}

/* The row in which place k of a trapezoid lies, whose row r has first + r places: the root of
 * r*first + r(r-1)/2 = k in f64, then set right by one step where the root was rounded across. */
static ir_value trapezoid_row(aten_lowering *c, ir_value k, int64_t first, ir_value *begin) {
  ir_builder *b = c->b;
  ir_value half = aten_like_i64(c, k, 1), one = aten_like_i64(c, k, 1);
  double d = (double)first - 0.5;
  ir_value place = ir_convert(b, k, TTPU_F64);
  ir_value root = ir_sqrt(b, ir_add(b, ir_multiply(b, place, aten_like(c, place, 2)), aten_like(c, place, d * d)));
  ir_value row = ir_convert(b, ir_floor(b, ir_subtract(b, root, aten_like(c, place, d))), TTPU_I64);
  for (int pass = 0; pass < 2;
       ++pass) { /* down where it begins after k, then up where the next begins at k or before */
    ir_value candidate = pass ? ir_add(b, row, one) : row;
    ir_value below = ir_subtract(b, candidate, one);
    ir_value pairs = ir_shift_right_arithmetic(b, ir_multiply(b, candidate, below), half);
    ir_value starts = ir_add(b, ir_multiply(b, candidate, aten_like_i64(c, k, first)), pairs);
    ir_value late = ir_compare(b, IR_GT, starts, k);
    row = pass ? ir_select(b, late, row, candidate) : ir_select(b, late, below, candidate);
  }
  ir_value pairs = ir_shift_right_arithmetic(b, ir_multiply(b, row, ir_subtract(b, row, one)), half);
  *begin = ir_add(b, ir_multiply(b, row, aten_like_i64(c, k, first)), pairs);
  return row;
}

/* Rows and columns of a lower triangle, in order: empty rows, then a trapezoid of growing rows, then full rows. With
 * `mirrored` the matrix is turned by 180 degrees and the order with it, which makes an upper triangle. */
static void triangle_indices(aten_lowering *c, int64_t rows, int64_t columns, int64_t offset, bool mirrored) {
  ir_builder *b = c->b;
  int64_t n = c->outs[0].rank == 2 ? c->outs[0].sizes[1] : 0;
  if (n == 0) return aten_out(c, 0, ir_fill_i64(b, (ttpu_dtype)c->outs[0].dtype, 2, c->outs[0].sizes, 0));
  int64_t skipped = offset < 0 ? -offset : 0;  /* empty rows */
  int64_t first = offset < 0 ? 1 : offset + 1; /* places in the first row that has any */
  if (first > columns) first = columns;
  int64_t growing = columns - first + 1; /* rows until one is full */
  if (growing > rows - skipped) growing = rows - skipped;
  int64_t places = growing * first + growing * (growing - 1) / 2;
  ir_value k = ir_iota(b, TTPU_I64, 1, &n, 0);
  if (mirrored) k = ir_subtract(b, aten_like_i64(c, k, n - 1), k);
  ir_value begin, row = trapezoid_row(c, k, first, &begin), column = ir_subtract(b, k, begin);
  ir_value rest = ir_subtract(b, k, aten_like_i64(c, k, places)), width = aten_like_i64(c, k, columns);
  ir_value full = ir_compare(b, IR_GE, rest, aten_like_i64(c, k, 0));
  row = ir_select(b, full, ir_add(b, ir_divide(b, rest, width), aten_like_i64(c, k, growing)), row);
  column = ir_select(b, full, ir_remainder(b, rest, width), column);
  row = ir_add(b, row, aten_like_i64(c, k, skipped));
  if (mirrored) {
    row = ir_subtract(b, aten_like_i64(c, k, rows - 1), row);
    column = ir_subtract(b, aten_like_i64(c, k, columns - 1), column);
  }
  const int64_t line[2] = {1, n};
  ir_value both[2] = {ir_reshape(b, row, 2, line), ir_reshape(b, column, 2, line)};
  aten_out(c, 0, ir_concatenate(b, 2, both, 0));
}

void lower_tril_indices(aten_lowering *c) {
  triangle_indices(c, aten_int(c, 0), aten_int(c, 1), aten_int(c, 2), false);
}

/* column - row >= offset, turned: column' - row' <= (columns - rows) - offset. */
void lower_triu_indices(aten_lowering *c) {
  int64_t rows = aten_int(c, 0), columns = aten_int(c, 1);
  triangle_indices(c, rows, columns, columns - rows - aten_int(c, 2), true);
}
