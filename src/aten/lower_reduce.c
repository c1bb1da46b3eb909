/* Reductions, scans and order statistics. Halves accumulate in f32 and are rounded once, as on CPU. */
#include <math.h>
#include <string.h>

#include "aten/aten_int.h"

/* Which dims argument `arg` names. An empty list means all of them, save where the result shows that PyTorch took it
 * for none (any and all over dims=[]). */
static uint32_t reduced_dims(const aten_lowering *c, uint32_t arg, int64_t dims[TTPU_MAX_RANK]) {
  const aten_tensor *x = aten_meta(c, 0), *out = &c->outs[0];
  bool empty = arg < c->call->arg_count && c->call->args[arg].kind == ATEN_INTS && c->call->args[arg].count == 0;
  if (empty && c->out_count && out->rank == x->rank &&
      (x->rank == 0 || memcmp(out->sizes, x->sizes, x->rank * sizeof *x->sizes) == 0))
    return 0;
  return aten_dims(c, arg, x->rank, dims);
}

static const uint32_t no_arg = ~0u; /* reduced_dims: all dims */

/* Operand 0 as the dtype of result 0 sees it, in the dtype to accumulate in. */
static ir_value addends(aten_lowering *c) {
  ttpu_dtype out = (ttpu_dtype)c->outs[0].dtype;
  return aten_convert(c, aten_in_as(c, 0, out), aten_math_dtype(out));
}

/* ---- sums and products --------------------------------------------------------------------------- */

static void reduce_sum(aten_lowering *c, uint32_t dims_arg, ir_kind kind, bool skip_nan, bool mean) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = reduced_dims(c, dims_arg, dims);
  ir_value x = addends(c);
  ttpu_dtype t = aten_type(c, x).dtype;
  if (skip_nan && (base_dtype_is_float(t) || base_dtype_is_complex(t)))
    x = aten_select_number(c, aten_is_nan(c, x), 0, x);
  ir_value sum = aten_reduce(c, kind, x, count, dims, false);
  if (mean) sum = ir_divide(c->b, sum, aten_like(c, sum, (double)aten_reduced_count(c, x, count, dims)));
  aten_out_reshaped(c, 0, sum);
}

void lower_sum(aten_lowering *c) { reduce_sum(c, no_arg, IR_ADD, false, false); }
void lower_sum_dim(aten_lowering *c) { reduce_sum(c, 1, IR_ADD, false, false); }
void lower_nansum(aten_lowering *c) { reduce_sum(c, 1, IR_ADD, true, false); }
void lower_mean(aten_lowering *c) { reduce_sum(c, no_arg, IR_ADD, false, true); }
void lower_mean_dim(aten_lowering *c) { reduce_sum(c, 1, IR_ADD, false, true); }
void lower_prod(aten_lowering *c) { reduce_sum(c, no_arg, IR_MULTIPLY, false, false); }
void lower_prod_dim(aten_lowering *c) { reduce_sum(c, 1, IR_MULTIPLY, false, false); }

void lower_count_nonzero(aten_lowering *c) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = aten_dims(c, 1, aten_meta(c, 0)->rank, dims);
  ir_value ones = ir_convert(c->b, aten_is_true(c, aten_in(c, 0)), TTPU_I64);
  aten_out_reshaped(c, 0, aten_reduce(c, IR_ADD, ones, count, dims, false));
}

/* Exclusive or of the elements' 64 bits: those of an integer, or of a float as f64. */
void lower_hash_tensor(aten_lowering *c) { /* self, dim, keepdim, mode (0 is the only one) */
  ir_builder *b = c->b;
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = reduced_dims(c, 1, dims);
  ir_value x = aten_in(c, 0);
  ttpu_dtype t = (ttpu_dtype)aten_type(c, x).dtype;
  if (base_dtype_is_float(t)) x = ir_bitcast_convert(b, ir_convert(b, x, TTPU_F64), TTPU_U64);
  else x = ir_convert(b, base_dtype_is_signed(t) ? ir_convert(b, x, TTPU_I64) : x, TTPU_U64);
  aten_out_reshaped(c, 0, aten_reduce(c, IR_XOR, x, count, dims, false));
}

static void reduce_truth(aten_lowering *c, uint32_t dims_arg, ir_kind kind) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = reduced_dims(c, dims_arg, dims);
  aten_out_reshaped(c, 0, aten_reduce(c, kind, aten_is_true(c, aten_in(c, 0)), count, dims, false));
}
void lower_any(aten_lowering *c) { reduce_truth(c, no_arg, IR_OR); }
void lower_any_dim(aten_lowering *c) { reduce_truth(c, 1, IR_OR); }
void lower_all(aten_lowering *c) { reduce_truth(c, no_arg, IR_AND); }
void lower_all_dim(aten_lowering *c) { reduce_truth(c, 1, IR_AND); }

void lower_trace(aten_lowering *c) {
  const aten_tensor *t = aten_meta(c, 0);
  int64_t n = t->sizes[0] < t->sizes[1] ? t->sizes[0] : t->sizes[1], stride = t->sizes[1] + 1, first = 0;
  ir_value diagonal = ir_as_strided(c->b, addends(c), 1, &n, &stride, 0);
  aten_out_reshaped(c, 0, aten_reduce(c, IR_ADD, diagonal, 1, &first, false));
}

/* ---- variance ------------------------------------------------------------------------------------ */

/* Two passes: the mean, then the squared distances from it; complex numbers by their parts. */
static void reduce_variance(aten_lowering *c, bool root, bool with_mean) {
  ir_builder *b = c->b;
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = aten_dims(c, 1, aten_meta(c, 0)->rank, dims);
  double correction = aten_has(c, 2) ? aten_static(c, 2) : 1;
  ir_value x = aten_in_math(c, 0);
  ttpu_dtype t = aten_type(c, x).dtype;
  double n = (double)aten_reduced_count(c, x, count, dims), divisor = fmax(n - correction, 0);

  ir_value sum = aten_reduce(c, IR_ADD, x, count, dims, true);
  ir_value mean = ir_divide(b, sum, aten_like(c, sum, n));
  ir_value away = ir_subtract(b, x, aten_spread(c, mean, x)), square;
  if (base_dtype_is_complex(t)) {
    ir_value re = ir_real(b, away), im = ir_imag(b, away);
    square = ir_add(b, ir_multiply(b, re, re), ir_multiply(b, im, im));
  } else {
    square = ir_multiply(b, away, away);
  }
  ir_value total = aten_reduce(c, IR_ADD, square, count, dims, false);
  ir_value variance = ir_divide(b, total, aten_like(c, total, divisor));
  aten_out_reshaped(c, 0, root ? ir_sqrt(b, variance) : variance);
  if (with_mean) aten_out_reshaped(c, 1, mean);
}
void lower_var(aten_lowering *c) { reduce_variance(c, false, false); }
void lower_std(aten_lowering *c) { reduce_variance(c, true, false); }
void lower_var_mean(aten_lowering *c) { reduce_variance(c, false, true); }
void lower_std_mean(aten_lowering *c) { reduce_variance(c, true, true); }

/* ---- norms --------------------------------------------------------------------------------------- */

/* (sum |x|^p)^(1/p), where p is known now; without the root for powsum. x has the dtype to accumulate in. */
static ir_value vector_norm(aten_lowering *c, ir_value x, double p, uint32_t count, const int64_t *dims, bool keep) {
  ir_builder *b = c->b;
  ttpu_dtype t = aten_type(c, x).dtype;
  if (p == 0) {
    ir_value ones = ir_convert(b, aten_is_true(c, x), aten_real_dtype(t));
    return aten_reduce(c, IR_ADD, ones, count, dims, keep);
  }
  if (p == 2 && !base_dtype_is_complex(t)) {
    return ir_sqrt(b, aten_reduce(c, IR_ADD, ir_multiply(b, x, x), count, dims, keep));
  }
  ir_value size = ir_abs(b, x);
  if (isinf(p)) {
    if (p > 0 && aten_reduced_count(c, size, count, dims) == 0) /* max over nothing: 0, not -inf */
      return ir_zeros_like(b, aten_reduce(c, IR_ADD, size, count, dims, keep));
    return aten_reduce(c, p > 0 ? IR_MAXIMUM : IR_MINIMUM, size, count, dims, keep);
  }
  if (p == 1) return aten_reduce(c, IR_ADD, size, count, dims, keep);
  if (p == 2) return ir_sqrt(b, aten_reduce(c, IR_ADD, ir_multiply(b, size, size), count, dims, keep));
  ir_value sum = aten_reduce(c, IR_ADD, ir_power(b, size, aten_like(c, size, p)), count, dims, keep);
  return ir_power(b, sum, aten_like(c, sum, 1 / p));
}

/* The dtype in which a norm of t is computed for a result of `out`: complex stays complex until abs. */
static ttpu_dtype norm_dtype(ttpu_dtype t, ttpu_dtype out) {
  ttpu_dtype math = aten_math_dtype(out);
  return base_dtype_is_complex(t) ? aten_complex_dtype(math) : math;
}

void lower_vector_norm(aten_lowering *c) {
  int64_t dims[TTPU_MAX_RANK];
  const aten_tensor *t = aten_meta(c, 0);
  uint32_t count = c->call->arg_count > 2 && c->call->args[2].kind != ATEN_INT ? aten_dims(c, 2, t->rank, dims)
                                                                               : aten_dims(c, no_arg, t->rank, dims);
  ir_value x = aten_in_as(c, 0, norm_dtype(t->dtype, (ttpu_dtype)c->outs[0].dtype));
  double p = aten_has(c, 1) ? aten_static(c, 1) : 2;
  aten_out_reshaped(c, 0, vector_norm(c, x, p, count, dims, false));
}

void lower_foreach_norm(aten_lowering *c) {
  double p = aten_has(c, 1) ? aten_static(c, 1) : 2;
  for (uint32_t i = 0; i < c->out_count; ++i) {
    const aten_tensor *t = aten_list_meta(c, 0, i);
    int64_t dims[TTPU_MAX_RANK];
    uint32_t count = aten_dims(c, no_arg, t->rank, dims);
    ir_value x = aten_convert(c, aten_list_in(c, 0, i), norm_dtype(t->dtype, (ttpu_dtype)c->outs[i].dtype));
    aten_out_reshaped(c, i, vector_norm(c, x, p, count, dims, false));
  }
}

/* sum |x|^p. */
void lower_powsum(aten_lowering *c) {
  int64_t dims[TTPU_MAX_RANK];
  const aten_tensor *t = aten_meta(c, 0);
  uint32_t count = aten_dims(c, 2, t->rank, dims);
  ttpu_dtype dtype = norm_dtype((ttpu_dtype)t->dtype, (ttpu_dtype)c->outs[0].dtype);
  ir_value size = ir_abs(c->b, aten_in_as(c, 0, dtype));
  ir_value power = ir_power(c->b, size, aten_like(c, size, aten_static(c, 1)));
  aten_out_reshaped(c, 0, aten_reduce(c, IR_ADD, power, count, dims, false));
}

/* ---- weight normalisation ------------------------------------------------------------------------ */

/* Every dim but the one that argument `arg` names; all of them for -1. */
static uint32_t dims_except(const aten_lowering *c, uint32_t arg, uint32_t rank, int64_t dims[TTPU_MAX_RANK]) {
  int64_t kept = aten_int(c, arg);
  uint32_t count = 0;
  for (uint32_t i = 0; i < rank; ++i)
    if (i != kept) dims[count++] = i;
  return count;
}

void lower_weight_norm(aten_lowering *c) { /* v, g, dim -> v * g / |v|, |v| */
  ir_value v = aten_in_math(c, 0), g = aten_in_math(c, 1);
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = dims_except(c, 2, aten_meta(c, 0)->rank, dims);
  ir_value norm = vector_norm(c, v, 2, count, dims, true);
  ir_value scale = ir_divide(c->b, ir_reshape(c->b, g, aten_type(c, norm).rank, aten_type(c, norm).dims), norm);
  aten_out(c, 0, ir_multiply(c->b, v, aten_spread(c, scale, v)));
  aten_out_reshaped(c, 1, norm);
}

void lower_weight_norm_backward(aten_lowering *c) { /* grad_w, v, g, norms, dim -> grad_v, grad_g */
  ir_builder *b = c->b;
  ir_value grad = aten_in_math(c, 0), v = aten_in_math(c, 1), g = aten_in_math(c, 2), norm = aten_in_math(c, 3);
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = dims_except(c, 4, aten_meta(c, 1)->rank, dims);
  ir_value sum = aten_reduce(c, IR_ADD, ir_multiply(b, grad, v), count, dims, true);
  ir_type t = aten_type(c, sum);
  norm = aten_convert(c, ir_reshape(b, norm, t.rank, t.dims), (ttpu_dtype)t.dtype);
  g = ir_reshape(b, g, t.rank, t.dims);
  ir_value share = ir_divide(b, sum, ir_multiply(b, norm, norm));
  ir_value rest = ir_subtract(b, grad, ir_multiply(b, v, aten_spread(c, share, v)));
  aten_out(c, 0, ir_multiply(b, aten_spread(c, ir_divide(b, g, norm), v), rest));
  aten_out_reshaped(c, 1, ir_divide(b, sum, norm));
}

/* Each slice along dim whose norm is above maxnorm is scaled down to it. */
void lower_renorm(aten_lowering *c) {
  ir_builder *b = c->b;
  const aten_tensor *t = aten_meta(c, 0);
  uint32_t dim = aten_dim(c, 2, t->rank), count = 0;
  int64_t dims[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; ++i)
    if (i != dim) dims[count++] = i;
  ir_value x = aten_in_math(c, 0);
  ir_value norm = vector_norm(c, x, aten_static(c, 1), count, dims, true);
  ir_value most = aten_spread(c, aten_number_in(c, 3, (ttpu_dtype)aten_type(c, norm).dtype), norm);
  ir_value scale = ir_divide(b, most, ir_add(b, norm, aten_like(c, norm, 1e-7)));
  scale = ir_select(b, ir_compare(b, IR_GT, norm, most), scale, aten_like(c, scale, 1));
  scale = aten_convert(c, scale, (ttpu_dtype)aten_type(c, x).dtype);
  aten_out(c, 0, ir_multiply(b, x, aten_spread(c, scale, x)));
}

/* log(sum(exp(x))), shifted by the maximum; an infinite maximum shifts by nothing. */
void lower_logsumexp(aten_lowering *c) {
  ir_builder *b = c->b;
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = aten_dims(c, 1, aten_meta(c, 0)->rank, dims);
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)c->outs[0].dtype);
  ir_value x = aten_in_as(c, 0, t), shift;
  if (base_dtype_is_complex(t)) {
    ir_value high = aten_reduce(c, IR_MAXIMUM, ir_real(b, x), count, dims, true);
    high = aten_select_number(c, aten_is_inf(c, high), 0, high);
    shift = ir_complex(b, high, ir_zeros_like(b, high));
  } else {
    ir_value high = aten_reduce(c, IR_MAXIMUM, x, count, dims, true);
    shift = aten_select_number(c, aten_is_inf(c, high), 0, high);
  }
  ir_value terms = ir_exponential(b, ir_subtract(b, x, aten_spread(c, shift, x)));
  ir_value sum = aten_reduce(c, IR_ADD, terms, count, dims, true);
  aten_out_reshaped(c, 0, ir_add(b, ir_log(b, sum), shift));
}

/* ---- extremes ------------------------------------------------------------------------------------ */

static void reduce_extreme(aten_lowering *c, uint32_t dims_arg, ir_kind kind) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = reduced_dims(c, dims_arg, dims);
  aten_out_reshaped(c, 0, aten_reduce(c, kind, aten_in(c, 0), count, dims, false));
}
void lower_amax(aten_lowering *c) { reduce_extreme(c, 1, IR_MAXIMUM); }
void lower_amin(aten_lowering *c) { reduce_extreme(c, 1, IR_MINIMUM); }
void lower_max(aten_lowering *c) { reduce_extreme(c, no_arg, IR_MAXIMUM); }
void lower_min(aten_lowering *c) { reduce_extreme(c, no_arg, IR_MINIMUM); }

void lower_aminmax(aten_lowering *c) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = aten_dims(c, 1, aten_meta(c, 0)->rank, dims);
  ir_value x = aten_in(c, 0);
  aten_out_reshaped(c, 0, aten_reduce(c, IR_MINIMUM, x, count, dims, false));
  aten_out_reshaped(c, 1, aten_reduce(c, IR_MAXIMUM, x, count, dims, false));
}

void lower_foreach_max(aten_lowering *c) {
  for (uint32_t i = 0; i < c->out_count; ++i) {
    int64_t dims[TTPU_MAX_RANK];
    uint32_t count = aten_dims(c, no_arg, aten_list_meta(c, 0, i)->rank, dims);
    aten_out_reshaped(c, i, aten_reduce(c, IR_MAXIMUM, aten_list_in(c, 0, i), count, dims, false));
  }
}

/* A tensor with at least one dimension: a scalar becomes [1]. */
static ir_value at_least_1d(aten_lowering *c, ir_value x) {
  const int64_t one = 1;
  return aten_type(c, x).rank ? x : ir_reshape(c->b, x, 1, &one);
}

static ir_value flat(aten_lowering *c, ir_value x) {
  ir_type t = aten_type(c, x);
  const int64_t n = ir_numel(t);
  return ir_reshape(c->b, x, 1, &n);
}

/* Bools are ordered as integers. */
static ir_value ordered(aten_lowering *c, ir_value x) {
  return aten_type(c, x).dtype == TTPU_BOOL ? ir_convert(c->b, x, TTPU_I32) : x;
}

static void reduce_arg(aten_lowering *c, bool largest) {
  ir_value x = ordered(c, aten_in(c, 0));
  uint32_t dim = 0;
  if (aten_has(c, 1)) {
    dim = aten_dim(c, 1, aten_meta(c, 0)->rank);
    x = at_least_1d(c, x);
  } else {
    x = flat(c, x);
  }
  aten_out_reshaped(c, 0, ir_reduce_arg(c->b, largest, x, dim, NULL));
}
void lower_argmax(aten_lowering *c) { reduce_arg(c, true); }
void lower_argmin(aten_lowering *c) { reduce_arg(c, false); }

static void reduce_with_index(aten_lowering *c, bool largest) {
  ir_value x = at_least_1d(c, ordered(c, aten_in(c, 0))), value = 0;
  ir_value index = ir_reduce_arg(c->b, largest, x, aten_dim(c, 1, aten_meta(c, 0)->rank), &value);
  aten_out_reshaped(c, 0, value);
  aten_out_reshaped(c, 1, index);
}
void lower_max_dim(aten_lowering *c) { reduce_with_index(c, true); }
void lower_min_dim(aten_lowering *c) { reduce_with_index(c, false); }

/* ---- scans --------------------------------------------------------------------------------------- */

/* Gives the scan's results, in x's dtype; the operand itself where there is nothing to scan. */
static ir_value scan(aten_lowering *c, ir_value x, ir_scan_kind kind, uint32_t dim) {
  const ir_scan_attrs attrs = {.dimension = dim, .kind = kind};
  return ir_append(c->b, IR_SCAN, 1, &x, &attrs, 0, NULL, 0, NULL);
}

static void lower_scan(aten_lowering *c, ir_scan_kind kind) {
  uint32_t dim = aten_dim(c, 1, aten_meta(c, 0)->rank);
  ir_value x = at_least_1d(c, addends(c));
  bool truth = aten_type(c, x).dtype == TTPU_BOOL; /* out= of bool: any and all so far, counted */
  ir_value result = scan(c, truth ? aten_convert(c, x, TTPU_I64) : x, kind, dim);
  aten_out_reshaped(c, 0, truth ? aten_is_true(c, result) : result);
}
void lower_cumsum(aten_lowering *c) { lower_scan(c, IR_CUMSUM); }
void lower_cumprod(aten_lowering *c) { lower_scan(c, IR_CUMPROD); }

/* Complex numbers: each element takes in the sum up to the one 1, 2, 4, ... places before it. */
static ir_value complex_logcumsumexp(aten_lowering *c, ir_value x, uint32_t dim) {
  ir_type t = aten_type(c, x);
  for (int64_t shift = 1; shift < t.dims[dim]; shift *= 2) {
    ir_value head = ir_slice_dim(c->b, x, dim, 0, shift, 1);
    ir_value tail = ir_slice_dim(c->b, x, dim, shift, t.dims[dim], 1);
    ir_value before = ir_slice_dim(c->b, x, dim, 0, t.dims[dim] - shift, 1);
    ir_value parts[2] = {head, aten_logaddexp(c, tail, before)};
    x = ir_concatenate(c->b, 2, parts, dim);
  }
  return x;
}

void lower_logcumsumexp(aten_lowering *c) {
  ttpu_dtype t = (ttpu_dtype)c->outs[0].dtype;
  if (!base_dtype_is_complex(t)) return lower_scan(c, IR_LOGCUMSUMEXP);
  uint32_t dim = aten_dim(c, 1, aten_meta(c, 0)->rank);
  aten_out_reshaped(c, 0, complex_logcumsumexp(c, at_least_1d(c, aten_in(c, 0)), dim));
}

static void scan_extreme(aten_lowering *c, ir_scan_kind kind, uint32_t dim_arg) {
  const aten_tensor *x = aten_meta(c, 0);
  if (x->rank == 0 || base_numel(x->rank, x->sizes) == 0) { /* nothing to order: complex numbers too */
    aten_out(c, 0, aten_in(c, 0));
    aten_out(c, 1, ir_fill_i64(c->b, TTPU_I64, x->rank, x->sizes, 0));
    return;
  }
  uint32_t dim = aten_dim(c, dim_arg, aten_meta(c, 0)->rank);
  ir_value values = scan(c, at_least_1d(c, aten_in(c, 0)), kind, dim);
  aten_out_reshaped(c, 0, values);
  aten_out_reshaped(c, 1, values ? values + 1 : 0);
}
void lower_cummax(aten_lowering *c) { scan_extreme(c, IR_CUMMAX, 1); }
void lower_cummin(aten_lowering *c) { scan_extreme(c, IR_CUMMIN, 1); }
void lower_cummax_helper(aten_lowering *c) { scan_extreme(c, IR_CUMMAX, 3); }
void lower_cummin_helper(aten_lowering *c) { scan_extreme(c, IR_CUMMIN, 3); }

/* ---- order statistics ---------------------------------------------------------------------------- */

/* x sorted along dim (NaN last, stable) with the places that its elements came from. */
static ir_value sort_with_places(aten_lowering *c, ir_value x, uint32_t dim, ir_value *places) {
  ir_value both[2] = {x, aten_iota_like(c, x, TTPU_I64, dim)};
  ir_value sorted = ir_sort(c->b, 2, both, dim, false);
  *places = sorted ? sorted + 1 : 0;
  return sorted;
}

/* How many NaN along dim (kept with size 1), i64. */
static ir_value count_nan(aten_lowering *c, ir_value x, uint32_t dim) {
  const int64_t along = dim;
  return aten_reduce(c, IR_ADD, ir_convert(c->b, aten_is_nan(c, x), TTPU_I64), 1, &along, true);
}

/* The median of n numbers is number (n-1)/2 in order. With a NaN it is NaN, the first one, unless they are skipped. */
static void reduce_median(aten_lowering *c, bool skip_nan, bool whole) {
  ir_builder *b = c->b;
  ir_value x = ordered(c, aten_in(c, 0));
  x = whole ? flat(c, x) : at_least_1d(c, x);
  uint32_t dim = whole ? 0 : aten_dim(c, 1, aten_meta(c, 0)->rank);
  ir_type t = aten_type(c, x);
  int64_t n = t.dims[dim];
  if (n == 0) { /* only over the whole tensor: NaN, or the lowest integer */
    ttpu_dtype dtype = (ttpu_dtype)t.dtype;
    aten_out_reshaped(c, 0, base_dtype_is_float(dtype) ? ir_scalar_f64(b, dtype, NAN) : ir_lowest(b, dtype));
    return;
  }
  ir_value places, sorted = sort_with_places(c, x, dim, &places);
  ir_value value, place;
  if (base_dtype_is_float((ttpu_dtype)t.dtype)) {
    ir_value nans = count_nan(c, x, dim), numbers = ir_subtract(b, aten_like_i64(c, nans, n), nans), at;
    if (skip_nan) {
      at = ir_subtract(b, numbers, aten_like_i64(c, nans, 1));
      at = ir_maximum(b, at, aten_like_i64(c, nans, 0));
      at = ir_shift_right_arithmetic(b, at, aten_like_i64(c, nans, 1));
    } else {
      ir_value none = ir_compare(b, IR_EQ, nans, aten_like_i64(c, nans, 0));
      at = ir_select(b, none, aten_like_i64(c, nans, (n - 1) / 2), numbers);
    }
    value = ir_take_along(b, sorted, at, dim);
    place = ir_take_along(b, places, at, dim);
  } else {
    value = ir_slice_dim(b, sorted, dim, (n - 1) / 2, (n - 1) / 2 + 1, 1);
    place = ir_slice_dim(b, places, dim, (n - 1) / 2, (n - 1) / 2 + 1, 1);
  }
  aten_out_reshaped(c, 0, value);
  if (!whole) aten_out_reshaped(c, 1, place);
}
void lower_median(aten_lowering *c) { reduce_median(c, false, true); }
void lower_median_dim(aten_lowering *c) { reduce_median(c, false, false); }
void lower_nanmedian(aten_lowering *c) { reduce_median(c, true, true); }
void lower_nanmedian_dim(aten_lowering *c) { reduce_median(c, true, false); }

void lower_kthvalue(aten_lowering *c) {
  int64_t k = aten_int(c, 1);
  uint32_t dim = aten_dim(c, 2, aten_meta(c, 0)->rank);
  ir_value places, sorted = sort_with_places(c, at_least_1d(c, ordered(c, aten_in(c, 0))), dim, &places);
  aten_out_reshaped(c, 0, ir_slice_dim(c->b, sorted, dim, k - 1, k, 1));
  aten_out_reshaped(c, 1, ir_slice_dim(c->b, places, dim, k - 1, k, 1));
}

/* In sorted order equal elements form runs; an element's number in its run is its place less the place where the
 * run began, which is a running maximum. The first largest number ends the longest run (of the least value), and
 * that element came from the last place of its value, as on CPU. */
void lower_mode(aten_lowering *c) {
  ir_builder *b = c->b;
  ir_value x = at_least_1d(c, ordered(c, aten_in(c, 0)));
  uint32_t dim = aten_dim(c, 1, aten_meta(c, 0)->rank);
  ir_type t = aten_type(c, x);
  int64_t n = t.dims[dim];
  ir_value places, sorted = sort_with_places(c, x, dim, &places), index;
  if (n == 1) {
    aten_out_reshaped(c, 0, sorted);
    aten_out_reshaped(c, 1, places);
    return;
  }
  ir_value before = ir_slice_dim(b, sorted, dim, 0, n - 1, 1), after = ir_slice_dim(b, sorted, dim, 1, n, 1);
  ir_value changes[2] = {ir_fill_i64(b, TTPU_BOOL, 0, NULL, 1), ir_compare(b, IR_NE, before, after)};
  ir_type changed = aten_type(c, changes[1]);
  int64_t first[TTPU_MAX_RANK];
  memcpy(first, changed.dims, changed.rank * sizeof *first);
  first[dim] = 1;
  changes[0] = ir_broadcast_to(b, changes[0], changed.rank, first);
  ir_value begins = ir_concatenate(b, 2, changes, dim), here = aten_iota_like(c, x, TTPU_I64, dim);
  ir_value began = scan(c, ir_select(b, begins, here, aten_like_i64(c, here, 0)), IR_CUMMAX, dim);
  index = ir_reduce_arg(b, true, ir_subtract(b, here, began), dim, NULL);
  ir_type one = aten_type(c, index);
  int64_t kept[TTPU_MAX_RANK];
  for (uint32_t i = 0, j = 0; i < t.rank; ++i) kept[i] = i == dim ? 1 : one.dims[j++];
  index = ir_reshape(b, index, t.rank, kept);
  aten_out_reshaped(c, 0, ir_take_along(b, sorted, index, dim));
  aten_out_reshaped(c, 1, ir_take_along(b, places, index, dim));
}

/* ---- membership ---------------------------------------------------------------------------------- */

/* Whether each x is among the sorted values: a bisection finds the first value that is not below it. */
static ir_value found_in_sorted(aten_lowering *c, ir_value sorted, ir_value x) {
  ir_builder *b = c->b;
  int64_t n = aten_type(c, sorted).dims[0];
  ir_type t = aten_type(c, x);
  ir_value place = ir_fill_i64(b, TTPU_I64, t.rank, t.dims, 0), last = aten_like_i64(c, place, n - 1);
  int bits = 0;
  while (bits < 62 && ((int64_t)1 << bits) < n) ++bits;
  for (int bit = bits; bit-- > 0;) {
    ir_value further = ir_add(b, place, aten_like_i64(c, place, (int64_t)1 << bit));
    ir_value before = ir_minimum(b, ir_subtract(b, further, aten_like_i64(c, place, 1)), last);
    ir_value below = ir_compare(b, IR_LT, ir_take(b, sorted, before, 0), x);
    below = ir_and_bits(b, below, ir_compare(b, IR_LE, further, last));
    place = ir_select(b, below, further, place);
  }
  return ir_compare(b, IR_EQ, ir_take(b, sorted, place, 0), x);
}

/* Few values are compared with every element, many are sorted. */
void lower_isin(aten_lowering *c) { /* elements, test elements (either may be a Scalar), assume_unique, invert */
  ir_builder *b = c->b;
  aten_promotion types = {0};
  for (uint32_t i = 0; i < 2; ++i) {
    if (aten_number_of(c, i)) aten_promotion_add_number(&types, aten_number_dtype(c, i));
    else aten_promotion_add(&types, aten_meta(c, i));
  }
  ttpu_dtype common = aten_promotion_result(&types), t = common == TTPU_BOOL ? TTPU_I32 : common;
  ir_value x = aten_number_of(c, 0) ? aten_number_in(c, 0, t) : aten_in_as(c, 0, t);
  ir_value tests = flat(c, aten_number_of(c, 1) ? aten_number_in(c, 1, t) : aten_in_as(c, 1, t));
  ir_type type = aten_type(c, x);
  int64_t n = aten_type(c, tests).dims[0], sizes[TTPU_MAX_RANK];
  ir_value found;
  if (n <= 32 && type.rank < TTPU_MAX_RANK) {
    for (uint32_t i = 0; i < type.rank; ++i) sizes[i] = type.dims[i];
    sizes[type.rank] = n;
    const int64_t last = type.rank;
    int64_t map[TTPU_MAX_RANK];
    for (uint32_t i = 0; i < type.rank; ++i) map[i] = i;
    ir_value wide = ir_broadcast_in_dim(b, x, type.rank + 1u, sizes, map);
    ir_value equal = ir_compare(b, IR_EQ, wide, ir_broadcast_to(b, tests, type.rank + 1u, sizes));
    found = ir_reduce(b, IR_OR, equal, 1, &last);
  } else {
    found = found_in_sorted(c, ir_sort(b, 1, &tests, 0, false), x);
  }
  aten_out(c, 0, aten_int(c, 3) ? ir_not_bits(b, found) : found);
}
