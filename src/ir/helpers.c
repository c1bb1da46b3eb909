/* The builder's helpers. Each is ir_append with its attributes filled in; what would change nothing returns its
 * operand, so that lowerings need not ask first. */
#include <math.h>
#include <string.h>

#include "ir/ir_int.h"

#define TYPE(v) ir_type_of(b->func, v)

static ir_value append1(ir_builder *b, ir_kind kind, ir_value x, const void *attrs) {
  return ir_append(b, kind, 1, &x, attrs, 0, NULL, 0, NULL);
}

static ir_value append1_given(ir_builder *b, ir_kind kind, ir_value x, const void *attrs, ir_type type) {
  return ir_append(b, kind, 1, &x, attrs, 1, &type, 0, NULL);
}

static ir_i64s list(uint32_t count, const int64_t *data) { return (ir_i64s){data, count}; }

static bool all_equal(uint32_t count, const int64_t *list, int64_t value) {
  for (uint32_t i = 0; i < count; ++i)
    if (list[i] != value) return false;
  return true;
}

static bool is_counting(uint32_t count, const int64_t *list) {
  for (uint32_t i = 0; i < count; ++i)
    if (list[i] != i) return false;
  return true;
}

/* ---- elementwise ---------------------------------------------------------------------------- */

ir_value ir_unary(ir_builder *b, ir_kind kind, ir_value x) { return append1(b, kind, x, NULL); }

static bool is_zero(const ir_func *f, ir_value v) {
  const ir_op *op = ir_def(f, v);
  if (op && op->kind == IR_BROADCAST_IN_DIM) op = ir_def(f, op->operands[0]);
  if (!op || op->kind != IR_CONSTANT || !IR_ATTRS(op, constant)->value.splat) return false;
  const uint8_t *bytes = IR_ATTRS(op, constant)->value.bytes;
  for (size_t i = 0; i < base_dtype_bytes((ttpu_dtype)ir_type_of(f, v).dtype); ++i)
    if (bytes[i] != 0) return false;
  return true;
}

/* v as zeros into a view of which something was written: the gradient of a slice. */
static const ir_op *slice_of_zeros(const ir_func *f, ir_value v) {
  const ir_op *op = ir_def(f, v);
  return op && op->kind == IR_AS_STRIDED_UPDATE && is_zero(f, op->operands[0]) ? op : NULL;
}

/* x plus such a value: only the slice's elements are added, into x. The gradients of the many slices that a loop over time
 * takes of one tensor so cost their own size each, not the tensor's. (Zeros of x keep their sign.) */
static ir_value add_slice(ir_builder *b, ir_value x, const ir_op *update) {
  const ir_as_strided_attrs *a = IR_ATTRS(update, as_strided);
  const ir_value part = update->operands[1];
  const ir_type view = TYPE(part);
  ir_value sum = ir_add(b, ir_as_strided(b, x, view.rank, view.dims, a->strides.data, a->offset), part);
  return ir_as_strided_update(b, x, sum, a->strides.data, a->offset);
}

ir_value ir_binary(ir_builder *b, ir_kind kind, ir_value x, ir_value y) {
  const ir_value operands[2] = {x, y};
  if (kind == IR_ADD && !b->status) {
    const ir_op *update;
    if ((update = slice_of_zeros(b->func, y))) return add_slice(b, x, update);
    if ((update = slice_of_zeros(b->func, x))) return add_slice(b, y, update);
  }
  return ir_append(b, kind, 2, operands, NULL, 0, NULL, 0, NULL);
}

static ir_value ternary(ir_builder *b, ir_kind kind, ir_value x, ir_value y, ir_value z) {
  const ir_value operands[3] = {x, y, z};
  return ir_append(b, kind, 3, operands, NULL, 0, NULL, 0, NULL);
}

ir_value ir_convert(ir_builder *b, ir_value x, ttpu_dtype to) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  if (type.dtype == to) return x;
  type.dtype = (uint8_t)to;
  return append1_given(b, IR_CONVERT, x, NULL, type);
}

ir_value ir_bitcast_convert(ir_builder *b, ir_value x, ttpu_dtype to) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  if (type.dtype == to) return x;
  type.dtype = (uint8_t)to;
  return append1_given(b, IR_BITCAST_CONVERT, x, NULL, type);
}

ir_value ir_compare(ir_builder *b, ir_direction direction, ir_value x, ir_value y) {
  const ir_value operands[2] = {x, y};
  const ir_compare_attrs attrs = {direction};
  return ir_append(b, IR_COMPARE, 2, operands, &attrs, 0, NULL, 0, NULL);
}

ir_value ir_select(ir_builder *b, ir_value pred, ir_value on_true, ir_value on_false) {
  return ternary(b, IR_SELECT, pred, on_true, on_false);
}

ir_value ir_clamp(ir_builder *b, ir_value low, ir_value x, ir_value high) { return ternary(b, IR_CLAMP, low, x, high); }

/* ---- index maps ----------------------------------------------------------------------------- */

ir_value ir_reshape(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims) {
  if (b->status) return 0;
  ir_type type = TYPE(x), to = {type.dtype, (uint8_t)rank, rank ? dims : ir_no_dims};
  if (rank > TTPU_MAX_RANK)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "reshape: rank %u is more than %d", rank, TTPU_MAX_RANK);
  return ir_same_dims(type, to) ? x : append1_given(b, IR_RESHAPE, x, NULL, to);
}

ir_value ir_transpose(ir_builder *b, ir_value x, const int64_t *permutation) {
  if (b->status) return 0;
  uint32_t rank = TYPE(x).rank;
  if (is_counting(rank, permutation)) return x;
  const ir_transpose_attrs attrs = {list(rank, permutation)};
  return append1(b, IR_TRANSPOSE, x, &attrs);
}

ir_value ir_broadcast_in_dim(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims, const int64_t *map) {
  if (b->status) return 0;
  ir_type type = TYPE(x), to = {type.dtype, (uint8_t)rank, rank ? dims : ir_no_dims};
  if (rank > TTPU_MAX_RANK)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "broadcast_in_dim: rank %u is more than %d", rank, TTPU_MAX_RANK);
  if (ir_same_dims(type, to) && is_counting(rank, map)) return x;
  const ir_broadcast_in_dim_attrs attrs = {list(type.rank, map)};
  return append1_given(b, IR_BROADCAST_IN_DIM, x, &attrs, to);
}

ir_value ir_broadcast_to(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims) {
  if (b->status) return 0;
  uint32_t own = TYPE(x).rank;
  int64_t map[TTPU_MAX_RANK];
  if (own > rank || rank > TTPU_MAX_RANK)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "broadcast: %s has more dimensions than the %u asked for",
                   IR_SHOW(TYPE(x)), rank);
  for (uint32_t i = 0; i < own; ++i) map[i] = i + rank - own;
  return ir_broadcast_in_dim(b, x, rank, dims, map);
}

ir_value ir_slice(ir_builder *b, ir_value x, const int64_t *start, const int64_t *limit, const int64_t *strides) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  int64_t ones[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < type.rank; ++i) ones[i] = 1;
  if (!strides) strides = ones;
  if (all_equal(type.rank, start, 0) && all_equal(type.rank, strides, 1) &&
      ir_same_dims(type, (ir_type){0, type.rank, limit}))
    return x;
  const ir_slice_attrs attrs = {list(type.rank, start), list(type.rank, limit), list(type.rank, strides)};
  return append1(b, IR_SLICE, x, &attrs);
}

ir_value ir_slice_dim(ir_builder *b, ir_value x, uint32_t dim, int64_t start, int64_t limit, int64_t stride) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  if (dim >= type.rank) return ir_fail(b, TTPU_INVALID_ARGUMENT, "slice: dimension %u of %s", dim, IR_SHOW(type));
  int64_t starts[TTPU_MAX_RANK], limits[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < type.rank; ++i) {
    starts[i] = i == dim ? start : 0;
    limits[i] = i == dim ? limit : type.dims[i];
    strides[i] = i == dim ? stride : 1;
  }
  return ir_slice(b, x, starts, limits, strides);
}

ir_value ir_reverse(ir_builder *b, ir_value x, uint32_t count, const int64_t *dims) {
  if (b->status || count == 0) return b->status ? 0 : x;
  const ir_dims_attrs attrs = {list(count, dims)};
  return append1(b, IR_REVERSE, x, &attrs);
}

ir_value ir_concatenate(ir_builder *b, uint32_t count, const ir_value *xs, uint32_t dim) {
  if (b->status) return 0;
  if (count == 1) return xs[0];
  const ir_dim_attrs attrs = {dim};
  return ir_append(b, IR_CONCATENATE, count, xs, &attrs, 0, NULL, 0, NULL);
}

ir_value ir_pad(ir_builder *b, ir_value x, ir_value fill, const int64_t *low, const int64_t *high,
                const int64_t *interior) {
  if (b->status) return 0;
  uint32_t rank = TYPE(x).rank;
  if (!low) low = ir_no_dims;
  if (!high) high = ir_no_dims;
  if (!interior) interior = ir_no_dims;
  if (all_equal(rank, low, 0) && all_equal(rank, high, 0) && all_equal(rank, interior, 0)) return x;
  const ir_value operands[2] = {x, fill};
  const ir_pad_attrs attrs = {list(rank, low), list(rank, high), list(rank, interior)};
  return ir_append(b, IR_PAD, 2, operands, &attrs, 0, NULL, 0, NULL);
}

/* The view is the operand's elements in their order: strides are row-major wherever they matter. */
static bool is_whole(ir_type operand, uint32_t rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  int64_t row_major[TTPU_MAX_RANK];
  if (offset != 0 || rank > TTPU_MAX_RANK || base_numel(rank, sizes) != ir_numel(operand)) return false;
  base_row_major(rank, sizes, row_major);
  for (uint32_t i = 0; i < rank; ++i)
    if (sizes[i] > 1 && strides[i] != row_major[i]) return false;
  return true;
}

ir_value ir_as_strided(ir_builder *b, ir_value x, uint32_t rank, const int64_t *sizes, const int64_t *strides,
                       int64_t offset) {
  if (b->status) return 0;
  if (is_whole(TYPE(x), rank, sizes, strides, offset)) return ir_reshape(b, x, rank, sizes);
  const ir_as_strided_attrs attrs = {list(rank, strides), offset};
  return append1_given(b, IR_AS_STRIDED, x, &attrs, (ir_type){TYPE(x).dtype, (uint8_t)rank, rank ? sizes : ir_no_dims});
}

ir_value ir_as_strided_update(ir_builder *b, ir_value x, ir_value update, const int64_t *strides, int64_t offset) {
  if (b->status) return 0;
  ir_type type = TYPE(x), view = TYPE(update);
  if (type.dtype == view.dtype && is_whole(type, view.rank, view.dims, strides, offset))
    return ir_reshape(b, update, type.rank, type.dims);
  const ir_value operands[2] = {x, update};
  const ir_as_strided_attrs attrs = {list(view.rank, strides), offset};
  return ir_append(b, IR_AS_STRIDED_UPDATE, 2, operands, &attrs, 0, NULL, 0, NULL);
}

ir_value ir_dynamic_slice(ir_builder *b, ir_value x, const ir_value *starts, const int64_t *sizes) {
  if (b->status) return 0;
  uint32_t rank = TYPE(x).rank;
  ir_value operands[1 + TTPU_MAX_RANK] = {x};
  if (rank) memcpy(operands + 1, starts, rank * sizeof *starts);
  const ir_dynamic_slice_attrs attrs = {list(rank, sizes)};
  return ir_append(b, IR_DYNAMIC_SLICE, 1 + rank, operands, &attrs, 0, NULL, 0, NULL);
}

ir_value ir_dynamic_update_slice(ir_builder *b, ir_value x, ir_value update, const ir_value *starts) {
  if (b->status) return 0;
  uint32_t rank = TYPE(x).rank;
  ir_value operands[2 + TTPU_MAX_RANK] = {x, update};
  if (rank) memcpy(operands + 2, starts, rank * sizeof *starts);
  return ir_append(b, IR_DYNAMIC_UPDATE_SLICE, 2 + rank, operands, NULL, 0, NULL, 0, NULL);
}

ir_value ir_gather(ir_builder *b, ir_value x, ir_value indices, const ir_gather_attrs *attrs) {
  const ir_value operands[2] = {x, indices};
  return ir_append(b, IR_GATHER, 2, operands, attrs, 0, NULL, 0, NULL);
}

/* (accumulator, element) -> kind(accumulator, element); the element itself where kind is 0. */
static ir_region *reducer(ir_builder *b, ir_kind kind, uint8_t dtype) {
  const ir_type scalar = {dtype, 0, ir_no_dims};
  ir_region *outer, *r = ir_region_begin(b, 2, (ir_type[2]){scalar, scalar}, &outer);
  ir_value y = r->first_arg + 1;
  if (kind != IR_NO_OP) y = ir_binary(b, kind, r->first_arg, r->first_arg + 1);
  ir_region_end(b, outer, 1, &y);
  return r;
}

ir_value ir_scatter(ir_builder *b, ir_value x, ir_value indices, ir_value updates, const ir_scatter_attrs *attrs,
                    ir_kind combine) {
  if (b->status) return 0;
  const ir_value operands[3] = {x, indices, updates};
  ir_region *r = reducer(b, combine, TYPE(x).dtype);
  return ir_append(b, IR_SCATTER, 3, operands, attrs, 0, NULL, 1, &r);
}

ir_value ir_take_along(ir_builder *b, ir_value x, ir_value index, uint32_t dim) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  if (dim >= type.rank || TYPE(index).rank != type.rank)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "take_along: dimension %u of %s by indices %s", dim, IR_SHOW(type),
                   IR_SHOW(TYPE(index)));
  int64_t others[TTPU_MAX_RANK], sizes[TTPU_MAX_RANK];
  const int64_t along = dim;
  uint32_t n = 0;
  for (uint32_t i = 0; i < type.rank; ++i) {
    sizes[i] = type.dims[i] > 0; /* 1, and 0 in a tensor that has nothing to take */
    if (i != dim) others[n++] = i;
  }
  const ir_gather_attrs attrs = {.collapsed_slice_dims = list(1, &along),
                                 .operand_batching_dims = list(n, others),
                                 .start_indices_batching_dims = list(n, others),
                                 .start_index_map = list(1, &along),
                                 .index_vector_dim = type.rank,
                                 .slice_sizes = list(type.rank, sizes)};
  return ir_gather(b, x, index, &attrs);
}

ir_value ir_take(ir_builder *b, ir_value x, ir_value index, uint32_t dim) {
  if (b->status) return 0;
  ir_type type = TYPE(x), by = TYPE(index);
  if (dim >= type.rank || type.rank - 1u + by.rank > TTPU_MAX_RANK)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "take: dimension %u of %s by indices %s", dim, IR_SHOW(type), IR_SHOW(by));
  int64_t offsets[TTPU_MAX_RANK], sizes[TTPU_MAX_RANK];
  const int64_t along = dim;
  uint32_t n = 0;
  for (uint32_t i = 0; i < type.rank; ++i) {
    sizes[i] = i == dim ? type.dims[i] > 0 : type.dims[i];
    if (i != dim) offsets[n++] = i < dim ? i : i - 1 + by.rank;
  }
  const ir_gather_attrs attrs = {.offset_dims = list(n, offsets),
                                 .collapsed_slice_dims = list(1, &along),
                                 .start_index_map = list(1, &along),
                                 .index_vector_dim = by.rank,
                                 .slice_sizes = list(type.rank, sizes)};
  return ir_gather(b, x, index, &attrs);
}

ir_value ir_check_index(ir_builder *b, ir_value index, int64_t low, int64_t high, ir_check_error error,
                        const char *what) {
  const ir_check_index_attrs attrs = {low, high, error, what};
  return append1(b, IR_CHECK_INDEX, index, &attrs);
}

void ir_check_not(ir_builder *b, ir_value wrong, ir_check_error error, const char *what) {
  ir_check_index(b, wrong, 0, 1, error, what);
}

ttpu_status ir_check_fail(const ir_check_index_attrs *check, bool is_condition, int64_t found) {
  static const ttpu_status codes[] = {
      [IR_BAD_INDEX] = TTPU_OUT_OF_RANGE, [IR_BAD_VALUE] = TTPU_FAILED_PRECONDITION, [IR_BAD_MATRIX] = TTPU_ABORTED};
  const char *what = check->what ? check->what : "index";
  if (is_condition) return base_fail(codes[check->error], "%s", what);
  return base_fail(codes[check->error], "%s: index %lld is out of range [%lld, %lld)", what, (long long)found,
                   (long long)check->low, (long long)check->high);
}

/* ---- sources -------------------------------------------------------------------------------- */

ir_value ir_constant(ir_builder *b, ir_type type, ir_data data) {
  const ir_constant_attrs attrs = {data};
  return ir_append(b, IR_CONSTANT, 0, NULL, &attrs, 1, &type, 0, NULL);
}

static ir_value fill(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, ttpu_dtype from,
                     base_scalar value) {
  if (b->status) return 0;
  if (dtype <= TTPU_NO_DTYPE || dtype >= TTPU_DTYPE_COUNT)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "constant: %d is not a dtype", (int)dtype);
  if (rank > TTPU_MAX_RANK)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "constant: rank %u is more than %d", rank, TTPU_MAX_RANK);
  uint64_t bytes[2] = {0, 0};
  base_scalar_store(dtype, bytes, base_scalar_convert(from, dtype, value));
  return ir_constant(b, (ir_type){(uint8_t)dtype, (uint8_t)rank, rank ? dims : ir_no_dims}, (ir_data){bytes, true});
}

ir_value ir_fill_f64(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, double value) {
  return fill(b, dtype, rank, dims, TTPU_F64, (base_scalar){.d = {value, 0}});
}

ir_value ir_fill_i64(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, int64_t value) {
  return fill(b, dtype, rank, dims, TTPU_I64, (base_scalar){.i = value});
}

ir_value ir_scalar_f64(ir_builder *b, ttpu_dtype dtype, double value) { return ir_fill_f64(b, dtype, 0, NULL, value); }
ir_value ir_scalar_i64(ir_builder *b, ttpu_dtype dtype, int64_t value) { return ir_fill_i64(b, dtype, 0, NULL, value); }

ir_value ir_like_f64(ir_builder *b, ir_value x, double value) {
  if (b->status) return 0;
  ir_type type = TYPE(x);
  return ir_fill_f64(b, (ttpu_dtype)type.dtype, type.rank, type.dims, value);
}

ir_value ir_zeros_like(ir_builder *b, ir_value x) { return ir_like_f64(b, x, 0); }

ir_value ir_iota(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, uint32_t dim) {
  const ir_iota_attrs attrs = {dim};
  const ir_type type = {(uint8_t)dtype, (uint8_t)rank, rank ? dims : ir_no_dims};
  return ir_append(b, IR_IOTA, 0, NULL, &attrs, 1, &type, 0, NULL);
}

/* The end of a dtype's range in the direction of `sign`. */
static ir_value extreme(ir_builder *b, ttpu_dtype dtype, int sign) {
  if (b->status) return 0;
  if (dtype <= TTPU_NO_DTYPE || dtype >= TTPU_DTYPE_COUNT)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "%d is not a dtype", (int)dtype);
  int bits = base_dtype_bits(dtype);
  switch (base_dtypes[dtype].cls) {
    case DTYPE_BOOL: return ir_scalar_i64(b, dtype, sign > 0);
    case DTYPE_UNSIGNED: return ir_scalar_i64(b, dtype, sign > 0 ? -1 : 0); /* wraps to the largest */
    case DTYPE_SIGNED: {
      int64_t high = (int64_t)(UINT64_MAX >> (65 - bits));
      return ir_scalar_i64(b, dtype, sign > 0 ? high : -high - 1);
    }
    case DTYPE_FLOAT:
      if (base_dtype_is_rare(dtype))
        return ir_fail(b, TTPU_UNIMPLEMENTED, "the extremes of %s", base_dtypes[dtype].name);
      return ir_scalar_f64(b, dtype,
                           sign * (dtype == TTPU_F8E4M3FN ? 448.0 : (double)INFINITY)); /* e4m3fn has no inf */
    default: return ir_fail(b, TTPU_INVALID_ARGUMENT, "%s has no order", base_dtypes[dtype].name);
  }
}

ir_value ir_lowest(ir_builder *b, ttpu_dtype dtype) { return extreme(b, dtype, -1); }
ir_value ir_highest(ir_builder *b, ttpu_dtype dtype) { return extreme(b, dtype, 1); }

ir_value ir_philox(ir_builder *b, ir_value state, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  if (b->status) return 0;
  ir_type has = TYPE(state);
  if (has.dtype != TTPU_U64 || has.rank != 1 || has.dims[0] < 2 || has.dims[0] > 3)
    return ir_fail(b, TTPU_INVALID_ARGUMENT,
                   "rng_bit_generator: initial state is %s, expected tensor<2xui64> or tensor<3xui64>", IR_SHOW(has));
  if (dtype != TTPU_U32 && dtype != TTPU_U64) return ir_fail(b, TTPU_INVALID_ARGUMENT, "philox: bits are ui32 or ui64");
  const ir_rng_bit_generator_attrs attrs = {IR_RNG_PHILOX};
  const ir_type given[2] = {TYPE(state), {(uint8_t)dtype, (uint8_t)rank, rank ? dims : ir_no_dims}};
  ir_value first = ir_append(b, IR_RNG_BIT_GENERATOR, 1, &state, &attrs, 2, given, 0, NULL);
  return first ? first + 1 : 0;
}

/* ---- reductions ----------------------------------------------------------------------------- */

ir_value ir_neutral(ir_builder *b, ir_kind kind, ttpu_dtype dtype) {
  switch (kind) {
    case IR_ADD:
    case IR_OR:
    case IR_XOR: return ir_scalar_i64(b, dtype, 0);
    case IR_MULTIPLY: return ir_scalar_i64(b, dtype, 1);
    case IR_AND: return ir_scalar_i64(b, dtype, -1);
    case IR_MAXIMUM: return ir_lowest(b, dtype);
    case IR_MINIMUM: return ir_highest(b, dtype);
    default: return 0;
  }
}

static ir_value initial(ir_builder *b, ir_kind kind, ttpu_dtype dtype) {
  ir_value v = ir_neutral(b, kind, dtype);
  if (v || b->status) return v;
  return ir_fail(b, TTPU_INVALID_ARGUMENT, "%s is not a reduction", kind < IR_KIND_COUNT ? ir_ops[kind].name : "?");
}

ir_value ir_reduce(ir_builder *b, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims) {
  if (b->status || count == 0) return b->status ? 0 : x;
  uint8_t dtype = TYPE(x).dtype;
  const ir_value operands[2] = {x, initial(b, kind, (ttpu_dtype)dtype)};
  const ir_dims_attrs attrs = {list(count, dims)};
  ir_region *r = reducer(b, kind, dtype);
  return ir_append(b, IR_REDUCE, 2, operands, &attrs, 0, NULL, 1, &r);
}

ir_value ir_reduce_window(ir_builder *b, ir_kind kind, ir_value x, const ir_window_attrs *attrs) {
  if (b->status) return 0;
  uint8_t dtype = TYPE(x).dtype;
  const ir_value operands[2] = {x, initial(b, kind, (ttpu_dtype)dtype)};
  ir_region *r = reducer(b, kind, dtype);
  return ir_append(b, IR_REDUCE_WINDOW, 2, operands, attrs, 0, NULL, 1, &r);
}

/* Whether x comes before y: x < y (or > y), and a NaN on the side that `nan_first` says. */
static ir_value comes_before(ir_builder *b, ir_value x, ir_value y, bool descending, bool nan_first) {
  ir_value before = ir_compare(b, descending ? IR_GT : IR_LT, x, y);
  if (b->status || !base_dtype_is_float((ttpu_dtype)TYPE(x).dtype)) return before;
  ir_value first = nan_first ? x : y, second = nan_first ? y : x;
  ir_value only = ir_and_bits(b, ir_compare(b, IR_NE, first, first), ir_compare(b, IR_EQ, second, second));
  return ir_or_bits(b, before, only);
}

/* (value, index, value, index) -> the better value; of equal ones, two NaN among them, that of smaller index. */
static ir_region *arg_reducer(ir_builder *b, bool largest, uint8_t dtype) {
  const ir_type value = {dtype, 0, ir_no_dims}, index = {TTPU_I64, 0, ir_no_dims};
  ir_region *outer, *r = ir_region_begin(b, 4, (ir_type[4]){value, index, value, index}, &outer);
  ir_value x = r->first_arg, i = x + 1, y = x + 2, j = x + 3;
  ir_value better = comes_before(b, x, y, largest, true), equal = ir_compare(b, IR_EQ, x, y);
  if (base_dtype_is_float((ttpu_dtype)dtype))
    equal = ir_or_bits(b, equal, ir_and_bits(b, ir_compare(b, IR_NE, x, x), ir_compare(b, IR_NE, y, y)));
  ir_value take = ir_or_bits(b, better, ir_and_bits(b, equal, ir_compare(b, IR_LT, i, j)));
  const ir_value out[2] = {ir_select(b, take, x, y), ir_select(b, take, i, j)};
  ir_region_end(b, outer, 2, out);
  return r;
}

ir_value ir_reduce_arg(ir_builder *b, bool largest, ir_value x, uint32_t dim, ir_value *value) {
  if (value) *value = 0;
  if (b->status) return 0;
  ir_type type = TYPE(x);
  if (dim >= type.rank)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "arg reduction: dimension %u of %s", dim, IR_SHOW(type));
  const int64_t along = dim;
  const ir_value operands[4] = {x, ir_iota(b, TTPU_I64, type.rank, type.dims, dim),
                                largest ? ir_lowest(b, (ttpu_dtype)type.dtype) : ir_highest(b, (ttpu_dtype)type.dtype),
                                ir_scalar_i64(b, TTPU_I64, 0)};
  const ir_dims_attrs attrs = {list(1, &along)};
  ir_region *r = arg_reducer(b, largest, type.dtype);
  ir_value first = ir_append(b, IR_REDUCE, 4, operands, &attrs, 0, NULL, 1, &r);
  if (value) *value = first;
  return first ? first + 1 : 0;
}

ir_value ir_sort(ir_builder *b, uint32_t count, const ir_value *xs, uint32_t dim, bool descending) {
  if (b->status) return 0;
  ir_type few[16], *types = few;
  if (count == 0) return ir_fail(b, TTPU_INVALID_ARGUMENT, "sort: no operands");
  if (2 * count > 16) types = base_arena_alloc(b->func->arena, 2 * count * sizeof *types);
  if (!types) return ir_fail(b, TTPU_RESOURCE_EXHAUSTED, "sort: out of memory");
  for (uint32_t i = 0; i < 2 * count; ++i) types[i] = (ir_type){TYPE(xs[i / 2]).dtype, 0, ir_no_dims};
  ir_region *outer, *r = ir_region_begin(b, 2 * count, types, &outer);
  ir_value before = comes_before(b, r->first_arg, r->first_arg + 1, descending, descending);
  ir_region_end(b, outer, 1, &before);
  const ir_sort_attrs attrs = {dim, true};
  return ir_append(b, IR_SORT, count, xs, &attrs, 0, NULL, 1, &r);
}

ir_kind ir_region_reducer(const ir_func *f, const ir_region *r) {
  if (r->arg_count != 2 || r->count != 2 || r->ops[1]->operand_count != 1) return IR_NO_OP;
  const ir_op *op = r->ops[0];
  if (op->operand_count != 2 || op->result_count != 1 || op->region_count || r->ops[1]->operands[0] != op->first_result)
    return IR_NO_OP;
  ir_value x = r->first_arg, y = x + 1;
  bool swapped = op->operands[0] == y && op->operands[1] == x && (ir_ops[op->kind].flags & IR_COMMUTES);
  (void)f;
  return swapped || (op->operands[0] == x && op->operands[1] == y) ? (ir_kind)op->kind : IR_NO_OP;
}

/* ---- products ------------------------------------------------------------------------------- */

ir_value ir_dot_general(ir_builder *b, ir_value x, ir_value y, const ir_dot_general_attrs *attrs, ttpu_dtype result) {
  const ir_value operands[2] = {x, y};
  const ir_type given = {(uint8_t)result, 0, NULL}; /* the dtype alone */
  return ir_append(b, IR_DOT_GENERAL, 2, operands, attrs, 1, &given, 0, NULL);
}

ir_value ir_matmul(ir_builder *b, ir_value x, ir_value y, ir_precision precision, ttpu_dtype result) {
  if (b->status) return 0;
  uint32_t rank = TYPE(x).rank;
  if (rank < 2 || TYPE(y).rank != rank)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "matmul: %s and %s, expected equal ranks of 2 or more", IR_SHOW(TYPE(x)),
                   IR_SHOW(TYPE(y)));
  int64_t batch[TTPU_MAX_RANK];
  const int64_t x_k = rank - 1, y_k = rank - 2;
  for (uint32_t i = 0; i + 2 < rank; ++i) batch[i] = i;
  const ir_dot_general_attrs attrs = {list(rank - 2, batch), list(rank - 2, batch), list(1, &x_k), list(1, &y_k),
                                      precision};
  return ir_dot_general(b, x, y, &attrs, result);
}

ir_value ir_convolution(ir_builder *b, ir_value x, ir_value w, const ir_convolution_attrs *attrs, ttpu_dtype result) {
  const ir_value operands[2] = {x, w};
  const ir_type given = {(uint8_t)result, 0, NULL};
  return ir_append(b, IR_CONVOLUTION, 2, operands, attrs, 1, &given, 0, NULL);
}
