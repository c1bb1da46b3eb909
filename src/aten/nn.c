/* The shared parts of the lowerings of aten_nn.def. */
#include "aten/nn_int.h"

#include <string.h>

static const int64_t no_dims[TTPU_MAX_RANK];

ir_type nn_type(const aten_lowering *c, ir_value v) {
  if (v == 0) return (ir_type){.dtype = TTPU_F32, .rank = 0, .dims = no_dims};
  ir_type t = ir_type_of(c->b->func, v);
  if (t.rank == 0) t.dims = no_dims;
  return t;
}

/* ---- operands ------------------------------------------------------------------------------------ */

ir_value nn_in_as(aten_lowering *c, uint32_t arg, ttpu_dtype dtype) { return ir_convert(c->b, aten_in(c, arg), dtype); }

ir_value nn_in(aten_lowering *c, uint32_t arg) {
  return nn_in_as(c, arg, aten_math_dtype((ttpu_dtype)aten_meta(c, arg)->dtype));
}

ir_value nn_number(aten_lowering *c, uint32_t arg, ir_value like) {
  ir_type t = nn_type(c, like);
  return ir_broadcast_to(c->b, aten_number_in(c, arg, (ttpu_dtype)t.dtype), t.rank, t.dims);
}

bool nn_static_is(const aten_lowering *c, uint32_t arg, double value) {
  return aten_number_dtype(c, arg) != TTPU_C128 && aten_static(c, arg) == value;
}

int64_t nn_int_at(const aten_lowering *c, uint32_t arg, uint32_t i) {
  ir_i64s list = aten_ints(c, arg);
  if (list.count == 0) return 0;
  return list.data[i < list.count ? i : list.count - 1];
}

bool nn_mask_at(const aten_lowering *c, uint32_t arg, uint32_t i) {
  ir_i64s list = aten_ints(c, arg);
  return i < list.count && list.data[i] != 0;
}

ir_precision nn_precision(const aten_lowering *c, ttpu_dtype operands) {
  if (operands == TTPU_BF16) return IR_PRECISION_DEFAULT; /* one pass holds bf16 exactly */
  return operands == TTPU_F32 || operands == TTPU_C64 ? c->precision : IR_PRECISION_HIGHEST;
}

/* ---- arithmetic with broadcasting ------------------------------------------------------------------ */

/* The common sizes of x and y; false (and a failed builder) when they do not broadcast. */
static bool common_sizes(aten_lowering *c, ir_type x, ir_type y, uint32_t *rank, int64_t dims[TTPU_MAX_RANK]) {
  *rank = x.rank > y.rank ? x.rank : y.rank;
  for (uint32_t i = 0; i < *rank; ++i) { /* from the last dimension */
    int64_t a = i < x.rank ? x.dims[x.rank - 1 - i] : 1, b = i < y.rank ? y.dims[y.rank - 1 - i] : 1;
    if (a != b && a != 1 && b != 1) {
      ir_fail(c->b, TTPU_INVALID_ARGUMENT, "%s: sizes %lld and %lld do not broadcast", c->call->row->name, (long long)a,
              (long long)b);
      return false;
    }
    dims[*rank - 1 - i] = a == 1 ? b : a;
  }
  return true;
}

/* Broadcasts both to their common sizes. */
static void broadcast_both(aten_lowering *c, ir_value *x, ir_value *y) {
  ir_type a = nn_type(c, *x), b = nn_type(c, *y);
  if (*x == 0 || *y == 0 || ir_same_dims(a, b)) return;
  uint32_t rank;
  int64_t dims[TTPU_MAX_RANK];
  if (!common_sizes(c, a, b, &rank, dims)) {
    *x = *y = 0;
    return;
  }
  *x = ir_broadcast_to(c->b, *x, rank, dims);
  *y = ir_broadcast_to(c->b, *y, rank, dims);
}

ir_value nn_binary(aten_lowering *c, ir_kind kind, ir_value x, ir_value y) {
  broadcast_both(c, &x, &y);
  return ir_binary(c->b, kind, x, y);
}

ir_value nn_compare(aten_lowering *c, ir_direction direction, ir_value x, ir_value y) {
  broadcast_both(c, &x, &y);
  return ir_compare(c->b, direction, x, y);
}

ir_value nn_select(aten_lowering *c, ir_value pred, ir_value on_true, ir_value on_false) {
  broadcast_both(c, &on_true, &on_false);
  broadcast_both(c, &pred, &on_true);
  broadcast_both(c, &on_true, &on_false);
  return ir_select(c->b, pred, on_true, on_false);
}

ir_value nn_const(aten_lowering *c, ir_value x, double value) {
  if (x == 0) return 0;
  return ir_like_f64(c->b, x, value);
}

ir_value nn_add_f64(aten_lowering *c, ir_value x, double value) { return ir_add(c->b, x, nn_const(c, x, value)); }
ir_value nn_mul_f64(aten_lowering *c, ir_value x, double value) { return ir_multiply(c->b, x, nn_const(c, x, value)); }

ir_value nn_compare_f64(aten_lowering *c, ir_direction direction, ir_value x, double value) {
  return ir_compare(c->b, direction, x, nn_const(c, x, value));
}

ir_value nn_is_nan(aten_lowering *c, ir_value x) {
  ir_type t = nn_type(c, x);
  if (base_dtype_is_float((ttpu_dtype)t.dtype) || base_dtype_is_complex((ttpu_dtype)t.dtype))
    return ir_compare(c->b, IR_NE, x, x);
  return ir_fill_i64(c->b, TTPU_BOOL, t.rank, t.dims, 0);
}

ir_value nn_conj(aten_lowering *c, ir_value x) {
  if (!base_dtype_is_complex((ttpu_dtype)nn_type(c, x).dtype)) return x;
  return ir_complex(c->b, ir_real(c->b, x), ir_negate(c->b, ir_imag(c->b, x)));
}

ir_value nn_sigmoid(aten_lowering *c, ir_value x) { return ir_logistic(c->b, x); }

/* ---- shapes ---------------------------------------------------------------------------------------- */

ir_value nn_reshape2(aten_lowering *c, ir_value x, int64_t d0, int64_t d1) {
  return ir_reshape(c->b, x, 2, (int64_t[]){d0, d1});
}

ir_value nn_reshape3(aten_lowering *c, ir_value x, int64_t d0, int64_t d1, int64_t d2) {
  return ir_reshape(c->b, x, 3, (int64_t[]){d0, d1, d2});
}

ir_value nn_reshape_like(aten_lowering *c, ir_value x, ir_value like) {
  ir_type t = nn_type(c, like);
  return ir_reshape(c->b, x, t.rank, t.dims);
}

ir_value nn_flatten(aten_lowering *c, ir_value x) {
  int64_t n = ir_numel(nn_type(c, x));
  return ir_reshape(c->b, x, 1, &n);
}

ir_value nn_at_least_1d(aten_lowering *c, ir_value x) { return nn_type(c, x).rank == 0 ? nn_flatten(c, x) : x; }

ir_value nn_broadcast_like(aten_lowering *c, ir_value x, ir_value like) {
  ir_type t = nn_type(c, like);
  return ir_broadcast_to(c->b, x, t.rank, t.dims);
}

ir_value nn_along(aten_lowering *c, ir_value vector, uint32_t dim, ir_value like) {
  ir_type t = nn_type(c, like);
  int64_t map = dim;
  return ir_broadcast_in_dim(c->b, vector, t.rank, t.dims, &map);
}

ir_value nn_swap(aten_lowering *c, ir_value x, uint32_t a, uint32_t b) {
  if (x == 0) return 0; /* then a and b may come from its rank */
  int64_t permutation[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < TTPU_MAX_RANK; ++i) permutation[i] = i;
  permutation[a] = b;
  permutation[b] = a;
  return ir_transpose(c->b, x, permutation);
}

ir_value nn_move(aten_lowering *c, ir_value x, uint32_t from, uint32_t to) {
  if (x == 0) return 0;
  uint32_t rank = nn_type(c, x).rank;
  int64_t permutation[TTPU_MAX_RANK];
  uint32_t next = 0;
  for (uint32_t i = 0; i < rank; ++i) {
    if (i == to) {
      permutation[i] = from;
      continue;
    }
    if (next == from) ++next;
    permutation[i] = next++;
  }
  return ir_transpose(c->b, x, permutation);
}

ir_value nn_pad_dim(aten_lowering *c, ir_value x, uint32_t dim, ir_value fill, int64_t low, int64_t high,
                    int64_t interior) {
  if (low == 0 && high == 0 && interior == 0) return x;
  int64_t lows[TTPU_MAX_RANK] = {0}, highs[TTPU_MAX_RANK] = {0}, interiors[TTPU_MAX_RANK] = {0};
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return ir_pad(c->b, x, fill, lows, highs, interiors);
}

ir_value nn_zeros_out(aten_lowering *c, uint32_t i, ttpu_dtype dtype) {
  return ir_fill_i64(c->b, dtype, c->outs[i].rank, c->outs[i].sizes, 0);
}

void nn_out_rest(aten_lowering *c) {
  for (uint32_t i = 0; i < c->out_count; ++i)
    if (c->results[i] == 0 && c->outs[i].dtype != TTPU_NO_DTYPE && !(c->outs[i].flags & ATEN_UNDEFINED))
      aten_out(c, i, nn_zeros_out(c, i, (ttpu_dtype)c->outs[i].dtype));
}

/* ---- reductions ------------------------------------------------------------------------------------- */

ir_value nn_reduce(aten_lowering *c, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims, bool keep) {
  ir_type t = nn_type(c, x);
  int64_t kept[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) kept[i] = t.dims[i];
  for (uint32_t i = 0; i < count; ++i) kept[dims[i]] = 1;
  uint32_t rank = t.rank;
  ir_value r = count == 0 ? x : ir_reduce(c->b, kind, x, count, dims);
  return keep ? ir_reshape(c->b, r, rank, kept) : r;
}

ir_value nn_reduce_dim(aten_lowering *c, ir_kind kind, ir_value x, uint32_t dim, bool keep) {
  return nn_reduce(c, kind, x, 1, (int64_t[]){dim}, keep);
}

ir_value nn_sum_to_dim(aten_lowering *c, ir_value x, uint32_t dim) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = 0, rank = nn_type(c, x).rank;
  for (uint32_t i = 0; i < rank; ++i)
    if (i != dim) dims[count++] = i;
  return nn_reduce(c, IR_ADD, x, count, dims, false);
}

ir_value nn_sum_to_sizes(aten_lowering *c, ir_value x, uint32_t rank, const int64_t *sizes) {
  ir_type t = nn_type(c, x);
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = 0, extra = t.rank >= rank ? t.rank - rank : 0;
  for (uint32_t i = 0; i < t.rank; ++i)
    if (i < extra || (sizes[i - extra] == 1 && t.dims[i] != 1)) dims[count++] = i;
  return ir_reshape(c->b, nn_reduce(c, IR_ADD, x, count, dims, false), rank, sizes);
}

ir_value nn_reduce_loss(aten_lowering *c, ir_value loss, int64_t reduction) {
  if (reduction == NN_REDUCTION_NONE) return loss;
  int64_t count = ir_numel(nn_type(c, loss));
  ir_value sum = nn_reduce_dim(c, IR_ADD, nn_flatten(c, loss), 0, false);
  if (reduction == NN_REDUCTION_SUM) return sum;
  return ir_divide(c->b, sum, nn_const(c, sum, (double)count)); /* 0/0 is NaN, as in PyTorch */
}

ir_value nn_cumsum(aten_lowering *c, ir_value x, uint32_t dim) {
  ir_scan_attrs attrs = {.dimension = dim, .kind = IR_CUMSUM};
  return ir_append(c->b, IR_SCAN, 1, &x, &attrs, 0, NULL, 0, NULL);
}

/* ---- tables and indexing ------------------------------------------------------------------------------ */

ir_value nn_table_i64(aten_lowering *c, uint32_t count, const int64_t *values) {
  if (values == NULL) return 0;
  int64_t n = count;
  return ir_constant(c->b, ir_tensor(c->b, TTPU_I64, 1, &n), (ir_data){.bytes = values});
}

ir_value nn_table_f64(aten_lowering *c, ttpu_dtype dtype, uint32_t count, const double *values) {
  size_t bytes = base_dtype_bytes(dtype);
  uint8_t *data = nn_scratch(c, count, bytes);
  if (data == NULL || values == NULL) return 0;
  for (uint32_t i = 0; i < count; ++i)
    base_scalar_store(dtype, data + i * bytes,
                      base_scalar_convert(TTPU_F64, dtype, (base_scalar){.d = {values[i], 0}}));
  int64_t n = count;
  return ir_constant(c->b, ir_tensor(c->b, dtype, 1, &n), (ir_data){.bytes = data});
}

void *nn_scratch(aten_lowering *c, size_t count, size_t bytes) {
  void *p = base_arena_zalloc(c->b->func->arena, count * bytes + 1);
  if (p == NULL) ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "%s: out of host memory", c->call->row->name);
  return p;
}

ir_value nn_index(aten_lowering *c, ir_value index, int64_t size, bool wrap, ir_check_error error, const char *what) {
  index = ir_convert(c->b, index, TTPU_I64);
  index = ir_check_index(c->b, index, wrap ? -size : 0, size, error, what);
  if (!wrap) return index;
  ir_value negative = nn_compare_f64(c, IR_LT, index, 0);
  return ir_select(c->b, negative, ir_add(c->b, index, ir_like_f64(c->b, index, (double)size)), index);
}

ir_value nn_take(aten_lowering *c, ir_value x, ir_value index, uint32_t dim) {
  ir_type t = nn_type(c, x), n = nn_type(c, index);
  if (x == 0 || index == 0) return 0;
  if (t.dims[dim] != 0) return ir_take(c->b, x, index, dim);
  int64_t dims[2 * TTPU_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < dim; ++i) dims[rank++] = t.dims[i];
  for (uint32_t i = 0; i < n.rank; ++i) dims[rank++] = n.dims[i];
  for (uint32_t i = dim + 1; i < t.rank; ++i) dims[rank++] = t.dims[i];
  return ir_fill_i64(c->b, (ttpu_dtype)t.dtype, rank, dims, 0);
}

ir_value nn_take_along(aten_lowering *c, ir_value x, ir_value index, uint32_t dim) {
  ir_type t = nn_type(c, x), n = nn_type(c, index);
  if (x == 0 || index == 0) return 0;
  if (t.dims[dim] == 0 || ir_numel(n) == 0) return ir_fill_i64(c->b, (ttpu_dtype)t.dtype, n.rank, n.dims, 0);
  return ir_take_along(c->b, x, index, dim);
}

ir_value nn_index_update(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                         ir_kind combine) {
  ir_type t = nn_type(c, x), u = nn_type(c, updates);
  if (x == 0 || updates == 0 || ir_numel(t) == 0 || ir_numel(u) == 0) return x;
  int64_t window[TTPU_MAX_RANK], inserted = dim;
  uint32_t windows = 0;
  for (uint32_t i = 0; i < t.rank; ++i)
    if (i != dim) window[windows++] = i;
  ir_scatter_attrs attrs = {.update_window_dims = {window, windows},
                            .inserted_window_dims = {&inserted, 1},
                            .scatter_dims_to_operand_dims = {&inserted, 1},
                            .index_vector_dim = 1};
  return ir_scatter(c->b, x, nn_reshape2(c, index, u.dims[dim], 1), updates, &attrs, combine);
}

/* x and index agree outside dim. */
static ir_value scatter_batched(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                                ir_kind combine) {
  ir_type n = nn_type(c, index);
  int64_t batch[TTPU_MAX_RANK], inserted = dim, with_vector[TTPU_MAX_RANK];
  uint32_t batches = 0, rank = n.rank;
  for (uint32_t i = 0; i < rank; ++i) {
    with_vector[i] = n.dims[i];
    if (i != dim) batch[batches++] = i;
  }
  with_vector[rank] = 1;
  ir_scatter_attrs attrs = {.inserted_window_dims = {&inserted, 1},
                            .input_batching_dims = {batch, batches},
                            .scatter_indices_batching_dims = {batch, batches},
                            .scatter_dims_to_operand_dims = {&inserted, 1},
                            .index_vector_dim = rank};
  return ir_scatter(c->b, x, ir_reshape(c->b, index, rank + 1, with_vector), updates, &attrs, combine);
}

ir_value nn_scatter_along(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                          ir_kind combine) {
  ir_type t = nn_type(c, x), n = nn_type(c, index);
  if (x == 0 || index == 0 || ir_numel(t) == 0 || ir_numel(n) == 0) return x;
  int64_t start[TTPU_MAX_RANK] = {0}, limit[TTPU_MAX_RANK];
  bool whole = true;
  for (uint32_t i = 0; i < t.rank; ++i) {
    limit[i] = i == dim ? t.dims[i] : n.dims[i];
    whole = whole && limit[i] == t.dims[i];
  }
  if (whole) return scatter_batched(c, x, index, updates, dim, combine);
  /* Only the corner box that index covers changes. */
  ir_value box = ir_slice(c->b, x, start, limit, NULL);
  box = scatter_batched(c, box, index, updates, dim, combine);
  ir_value starts[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) starts[i] = ir_scalar_i64(c->b, TTPU_I64, 0);
  return ir_dynamic_update_slice(c->b, x, box, starts);
}

ir_kind nn_combine_add(ttpu_dtype dtype) { return dtype == TTPU_BOOL ? IR_MAXIMUM : IR_ADD; }
ir_kind nn_combine_multiply(ttpu_dtype dtype) { return dtype == TTPU_BOOL ? IR_MINIMUM : IR_MULTIPLY; }
