/* Building the padded function: each operation again, with what keeps padding out of its real elements.
 *
 * Whether something is done depends on which dimensions are padded, never on how much: where an exact size happens to be its
 * bucket's, the text must be that of the other sizes. Indices clamped to a dimension are clamped to its exact size, since
 * StableHLO would clamp them to the padded one. */
#include <math.h>
#include <string.h>

#include "ir/bucket_int.h"

#define OLD(v) ir_type_of(s->f, v)
#define NEW(v) ir_type_of(s->b.func, v)

/* ---- parts ---------------------------------------------------------------------------------- */

static bool is_padded(bucket *s, ir_value v, uint32_t d) { return bucket_is_padded(s, bucket_dim(s, v, d)); }
static int64_t padded_size(bucket *s, ir_value v, uint32_t d) { return bucket_padded_size(s, bucket_dim(s, v, d)); }

static void padded_dims(bucket *s, ir_value v, int64_t *dims) {
  for (uint32_t d = 0; d < OLD(v).rank; ++d) dims[d] = padded_size(s, v, d);
}

static uint32_t padded_bits(bucket *s, ir_value v) {
  uint32_t bits = 0;
  for (uint32_t d = 0; d < OLD(v).rank; ++d) bits |= (uint32_t)is_padded(s, v, d) << d;
  return bits;
}

static ir_value run_number(bucket *s, uint32_t k) {
  return ir_reshape(&s->b, ir_slice_dim(&s->b, s->run_numbers, 0, k, (int64_t)k + 1, 1), 0, NULL);
}

/* Exact size of a root, at run time where it is padded. */
static ir_value root_size(bucket *s, uint32_t root) {
  if (bucket_root_is_padded(s, root)) return run_number(s, s->factors[root].number);
  return ir_scalar_i64(&s->b, TTPU_I64, s->factors[root].size);
}

static ir_value exact_size(bucket *s, uint32_t factor) {
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots);
  ir_value n = ir_scalar_i64(&s->b, TTPU_I64, 1);
  for (uint32_t i = 0; i < count; ++i)
    n = i ? ir_binary(&s->b, IR_MULTIPLY, n, root_size(s, roots[i])) : root_size(s, roots[i]);
  return n;
}

/* A number of an attribute: a start, at run time where it varies. */
static ir_value slot_value(bucket *s, uint32_t slot) {
  if (s->slot_number[slot] != BUCKET_NONE) return run_number(s, s->slot_number[slot]);
  return ir_scalar_i64(&s->b, TTPU_I64, s->numbers[slot]);
}

static ir_value spread(bucket *s, ir_value scalar, uint32_t rank, const int64_t *dims) {
  return ir_broadcast_in_dim(&s->b, scalar, rank, dims, NULL);
}

/* Which elements of a dimension are real: bool, of its padded size. */
static ir_value real_elements(bucket *s, uint32_t factor) {
  ir_builder *b = &s->b;
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots), rank = 0;
  int64_t dims[TTPU_MAX_RANK], size = bucket_padded_size(s, factor);
  ir_value real = 0;
  /* Roots that are not padded are taken together with their neighbours of the same kind. */
  uint32_t axis[BUCKET_FACTORS];
  bool merge = false;
  for (uint32_t i = 0; i < count; ++i) {
    bool padded = bucket_root_is_padded(s, roots[i]);
    int64_t n = bucket_padded_size(s, roots[i]);
    if (merge && !padded) dims[rank - 1] *= n;
    else if (rank == TTPU_MAX_RANK) return ir_fail(b, TTPU_UNIMPLEMENTED, "a dimension of more than %u factors", rank);
    else dims[rank++] = n;
    axis[i] = rank - 1;
    merge = !padded;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (!bucket_root_is_padded(s, roots[i])) continue;
    ir_value end = spread(s, ir_convert(b, root_size(s, roots[i]), TTPU_I32), rank, dims);
    ir_value below = ir_compare(b, IR_LT, ir_iota(b, TTPU_I32, rank, dims, axis[i]), end);
    real = real ? ir_binary(b, IR_AND, real, below) : below;
  }
  return ir_reshape(b, real, 1, &size);
}

/* Which elements of v are real along those of the dimensions `bits` that are padded; 0: all are. */
static ir_value real_mask(bucket *s, ir_value v, uint32_t bits) {
  int64_t dims[TTPU_MAX_RANK];
  ir_value mask = 0;
  padded_dims(s, v, dims);
  for (uint32_t d = 0; d < OLD(v).rank; ++d) {
    if (!(bits >> d & 1) || !is_padded(s, v, d)) continue;
    const int64_t map = d;
    ir_value real = real_elements(s, bucket_dim(s, v, d));
    real = ir_broadcast_in_dim(&s->b, real, OLD(v).rank, dims, &map);
    mask = mask ? ir_binary(&s->b, IR_AND, mask, real) : real;
  }
  return mask;
}

/* The padded v with `fill` (rank 0) in the padding along `bits`. */
static ir_value masked(bucket *s, ir_value v, uint32_t bits, ir_value fill) {
  ir_value x = s->map[v], mask = real_mask(s, v, bits);
  if (!mask || s->b.status) return x;
  return ir_select(&s->b, mask, x, spread(s, fill, NEW(x).rank, NEW(x).dims));
}

/* x with `more` elements behind the last one along d (zeros), or, where negative, without its last ones. */
static ir_value extend(bucket *s, ir_value x, uint32_t d, int64_t more) {
  if (s->b.status) return 0;
  if (more <= 0) return ir_slice_dim(&s->b, x, d, 0, NEW(x).dims[d] + more, 1);
  int64_t high[TTPU_MAX_RANK] = {0};
  high[d] = more;
  return ir_pad(&s->b, x, ir_scalar_i64(&s->b, (ttpu_dtype)NEW(x).dtype, 0), NULL, high, NULL);
}

static ir_value resize(bucket *s, ir_value x, uint32_t d, int64_t size) {
  return s->b.status ? 0 : extend(s, x, d, size - NEW(x).dims[d]);
}

/* x from `start` on along d. x is long enough that the start is not moved. */
static ir_value part_from(bucket *s, ir_value x, uint32_t d, ir_value start, int64_t size) {
  ir_value starts[TTPU_MAX_RANK], zero = ir_scalar_i64(&s->b, TTPU_I64, 0);
  int64_t sizes[TTPU_MAX_RANK];
  if (s->b.status) return 0;
  for (uint32_t i = 0; i < NEW(x).rank; ++i) {
    starts[i] = i == d ? start : zero;
    sizes[i] = i == d ? size : NEW(x).dims[i];
  }
  return ir_dynamic_slice(&s->b, x, starts, sizes);
}

/* `part` written over x from `start` on along d; the rest as part_from. */
static ir_value write_from(bucket *s, ir_value x, ir_value part, uint32_t d, ir_value start) {
  ir_value starts[TTPU_MAX_RANK], zero = ir_scalar_i64(&s->b, TTPU_I64, 0);
  if (s->b.status) return 0;
  for (uint32_t i = 0; i < NEW(x).rank; ++i) starts[i] = i == d ? start : zero;
  return ir_dynamic_update_slice(&s->b, x, part, starts);
}

static ir_value clamp_start(bucket *s, ir_value start, ir_value end) {
  ir_value zero = ir_scalar_i64(&s->b, TTPU_I64, 0);
  return ir_binary(&s->b, IR_MAXIMUM, zero, ir_binary(&s->b, IR_MINIMUM, start, end));
}

/* The operation on these operands, its results of padded sizes. */
static void emit_on(bucket *s, const ir_op *op, const ir_value *operands, const void *attrs) {
  base_arena *arena = s->arena;
  ir_type *types = base_arena_alloc(arena, op->result_count * sizeof *types + 1);
  ir_region **regions = base_arena_alloc(arena, op->region_count * sizeof *regions + 1);
  int64_t (*dims)[TTPU_MAX_RANK] = base_arena_alloc(arena, op->result_count * sizeof *dims + 1);
  if (!types || !regions || !dims) {
    ir_fail(&s->b, base_no_memory(op->result_count * sizeof *dims), "%s", base_message());
    return;
  }
  for (uint32_t i = 0; i < op->result_count; ++i) {
    padded_dims(s, op->first_result + i, dims[i]);
    types[i] = OLD(op->first_result + i);
    types[i].dims = dims[i];
  }
  for (uint32_t i = 0; i < op->region_count; ++i)
    regions[i] = ir_region_copy(&s->b, s->f, op->regions[i], s->map, NULL);
  ir_value first = ir_append(&s->b, (ir_kind)op->kind, op->operand_count, operands, attrs, op->result_count, types,
                             op->region_count, regions);
  for (uint32_t i = 0; i < op->result_count; ++i) s->map[op->first_result + i] = first ? first + i : 0;
}

static ir_value *mapped(bucket *s, const ir_op *op, uint32_t more) {
  ir_value *list = base_arena_alloc(s->arena, (op->operand_count + more + 1) * sizeof *list);
  if (!list) {
    ir_fail(&s->b, base_no_memory(op->operand_count * sizeof *list), "%s", base_message());
    return NULL;
  }
  for (uint32_t i = 0; i < op->operand_count; ++i) list[i] = s->map[op->operands[i]];
  return list;
}

static void emit_same(bucket *s, const ir_op *op) {
  ir_value *operands = mapped(s, op, 0);
  if (operands) emit_on(s, op, operands, op->attrs);
}

/* ---- index maps ----------------------------------------------------------------------------- */

/* Elements start, start + step, ... of x along d; as many as the result's padded size. `start` is a number of the run. */
static ir_value slice_at_run_time(bucket *s, ir_value x, uint32_t d, uint32_t slot, int64_t step, int64_t size) {
  int64_t span = (size - 1) * step + 1;
  x = extend(s, x, d, span); /* a start in the operand's last real element leaves room behind it */
  x = part_from(s, x, d, slot_value(s, slot), span);
  return ir_slice_dim(&s->b, x, d, 0, span, step);
}

static void emit_slice(bucket *s, const ir_op *op) {
  const ir_slice_attrs *a = IR_ATTRS(op, slice);
  ir_value y = op->first_result, x = s->map[op->operands[0]];
  uint32_t slot = s->op_slots[op->index];
  for (uint32_t d = 0; d < OLD(y).rank && !s->b.status; ++d) {
    if (bucket_slice_is_whole(s, op, d)) continue;
    int64_t size = padded_size(s, y, d), step = a->strides.data[d], start = a->start_indices.data[d];
    if (s->slot_number[slot + d] != BUCKET_NONE && size > 0) {
      x = slice_at_run_time(s, x, d, slot + d, step, size);
      continue;
    }
    int64_t end = size > 0 ? start + (size - 1) * step + 1 : start;
    if (end > NEW(x).dims[d]) x = resize(s, x, d, end);
    x = ir_slice_dim(&s->b, x, d, start, end, step);
  }
  s->map[y] = x;
}

static void emit_pad(bucket *s, const ir_op *op) {
  const ir_pad_attrs *a = IR_ATTRS(op, pad);
  ir_value y = op->first_result, fill = s->map[op->operands[1]];
  uint32_t slot = s->op_slots[op->index], bits = 0;
  int64_t low[TTPU_MAX_RANK], high[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < OLD(y).rank; ++d)
    if (!bucket_pad_is_whole(s, op, d)) bits |= 1u << d;
  ir_value x = masked(s, op->operands[0], bits, fill);
  for (uint32_t d = 0; d < OLD(y).rank && !s->b.status; ++d) {
    low[d] = a->edge_padding_low.data[d];
    high[d] = a->edge_padding_high.data[d];
    if (s->slot_number[slot + d] != BUCKET_NONE) low[d] = high[d] = 0; /* moved below */
    else if (is_padded(s, op->operands[0], d) || is_padded(s, y, d))
      high[d] = bits >> d & 1 ? padded_size(s, y, d) - low[d] - NEW(x).dims[d] : 0;
  }
  x = ir_pad(&s->b, x, fill, low, high, a->interior_padding.data);
  for (uint32_t d = 0; d < OLD(y).rank && !s->b.status; ++d) {
    if (s->slot_number[slot + d] == BUCKET_NONE) continue;
    int64_t dims[TTPU_MAX_RANK];
    memcpy(dims, NEW(x).dims, NEW(x).rank * sizeof *dims);
    dims[d] += padded_size(s, y, d);
    ir_value room = spread(s, fill, NEW(x).rank, dims);
    x = resize(s, write_from(s, room, x, d, slot_value(s, slot + d)), d, padded_size(s, y, d));
  }
  s->map[y] = x;
}

/* Each operand over the padding of those before it. */
static void emit_concatenate(bucket *s, const ir_op *op) {
  uint32_t along = (uint32_t)IR_ATTRS(op, dim)->dimension, first = 0;
  ir_value *parts = mapped(s, op, 0);
  if (!parts) return;
  while (first + 1 < op->operand_count && !is_padded(s, op->operands[first], along)) ++first;
  ir_value x = ir_concatenate(&s->b, first + 1, parts, along); /* the first padded one is the last here */
  ir_value end = ir_scalar_i64(&s->b, TTPU_I64, 0);
  for (uint32_t i = 0; i < op->operand_count && !s->b.status; ++i) {
    if (i > first) {
      x = extend(s, x, along, NEW(parts[i]).dims[along]);
      x = write_from(s, x, parts[i], along, end);
    }
    end = ir_binary(&s->b, IR_ADD, end, exact_size(s, bucket_dim(s, op->operands[i], along)));
  }
  s->map[op->first_result] = resize(s, x, along, padded_size(s, op->first_result, along));
}

static void emit_reverse(bucket *s, const ir_op *op) {
  ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  emit_same(s, op);
  ir_value y = op->first_result;
  for (uint32_t i = 0; i < dims.count && !s->b.status; ++i) {
    uint32_t d = (uint32_t)dims.data[i];
    if (!is_padded(s, y, d)) continue;
    int64_t size = padded_size(s, y, d); /* the padding came first: begin behind it */
    ir_value padding =
        ir_binary(&s->b, IR_SUBTRACT, ir_scalar_i64(&s->b, TTPU_I64, size), exact_size(s, bucket_dim(s, y, d)));
    s->map[y] = part_from(s, extend(s, s->map[y], d, size), d, padding, size);
  }
}

/* Starts of a dynamic slice of `whole` with the sizes of `part`, as i64, clamped as the exact sizes ask. */
static void clamp_starts(bucket *s, ir_value whole, ir_value part, const ir_value *given, ir_value *starts) {
  for (uint32_t d = 0; d < OLD(whole).rank; ++d) {
    uint32_t n = bucket_dim(s, whole, d), m = bucket_dim(s, part, d);
    starts[d] = ir_convert(&s->b, s->map[given[d]], TTPU_I64);
    if (bucket_same(s, n, m)) starts[d] = ir_scalar_i64(&s->b, TTPU_I64, 0);
    else if (bucket_is_padded(s, n) || bucket_is_padded(s, m))
      starts[d] = clamp_start(s, starts[d], ir_binary(&s->b, IR_SUBTRACT, exact_size(s, n), exact_size(s, m)));
  }
}

/* `whole` with room behind its end for the padding of `part`, along the dimensions in which they differ. */
static ir_value room_for(bucket *s, ir_value whole, ir_value part, uint32_t *bits) {
  ir_value x = s->map[whole];
  *bits = 0;
  for (uint32_t d = 0; d < OLD(whole).rank; ++d) {
    if (bucket_same(s, bucket_dim(s, whole, d), bucket_dim(s, part, d)) || !is_padded(s, part, d)) continue;
    x = extend(s, x, d, padded_size(s, part, d));
    *bits |= 1u << d;
  }
  return x;
}

static void emit_dynamic_slice(bucket *s, const ir_op *op) {
  ir_value starts[TTPU_MAX_RANK], y = op->first_result;
  int64_t sizes[TTPU_MAX_RANK];
  uint32_t bits;
  padded_dims(s, y, sizes);
  clamp_starts(s, op->operands[0], y, op->operands + 1, starts);
  s->map[y] = ir_dynamic_slice(&s->b, room_for(s, op->operands[0], y, &bits), starts, sizes);
}

static void emit_dynamic_update_slice(bucket *s, const ir_op *op) {
  ir_value starts[TTPU_MAX_RANK], part = op->operands[1], y = op->first_result;
  int64_t sizes[TTPU_MAX_RANK];
  uint32_t bits;
  padded_dims(s, part, sizes);
  clamp_starts(s, op->operands[0], part, op->operands + 2, starts);
  ir_value x = room_for(s, op->operands[0], part, &bits), update = s->map[part];
  if (bits) update = ir_select(&s->b, real_mask(s, part, bits), update, ir_dynamic_slice(&s->b, x, starts, sizes));
  x = ir_dynamic_update_slice(&s->b, x, update, starts);
  for (uint32_t d = 0; d < OLD(y).rank; ++d)
    if (bits >> d & 1) x = resize(s, x, d, padded_size(s, y, d));
  s->map[y] = x;
}

/* ---- gather and scatter --------------------------------------------------------------------- */

/* A vector, one number for each component of an index, over the indices' shape. */
static ir_value spread_components(bucket *s, ir_value index, int64_t vector_dim, uint32_t count, ir_value *numbers) {
  static const int64_t one = 1;
  ir_type t = NEW(index);
  if (vector_dim >= t.rank) return spread(s, numbers[0], t.rank, t.dims);
  for (uint32_t i = 0; i < count; ++i) numbers[i] = ir_reshape(&s->b, numbers[i], 1, &one);
  return ir_broadcast_in_dim(&s->b, ir_concatenate(&s->b, count, numbers, 0), t.rank, t.dims, &vector_dim);
}

static void emit_gather(bucket *s, const ir_op *op) {
  ir_gather_attrs a = *IR_ATTRS(op, gather);
  ir_value x = op->operands[0], *operands = mapped(s, op, 0), ends[TTPU_MAX_RANK];
  int64_t sizes[TTPU_MAX_RANK];
  bool clamps = false;
  uint32_t offset = 0;
  if (!operands) return;
  for (uint32_t d = 0; d < OLD(x).rank; ++d) {
    sizes[d] = a.slice_sizes.data[d];
    bool one = false;
    for (uint32_t i = 0; i < a.collapsed_slice_dims.count; ++i) one |= a.collapsed_slice_dims.data[i] == d;
    for (uint32_t i = 0; i < a.operand_batching_dims.count; ++i) one |= a.operand_batching_dims.data[i] == d;
    if (!one) sizes[d] = padded_size(s, op->first_result, (uint32_t)a.offset_dims.data[offset++]);
  }
  for (uint32_t i = 0; i < a.start_index_map.count; ++i) {
    uint32_t d = (uint32_t)a.start_index_map.data[i];
    bool part = sizes[d] != padded_size(s, x, d) || sizes[d] == 1;
    clamps |= part && is_padded(s, x, d);
    ir_value end = exact_size(s, bucket_dim(s, x, d));
    ends[i] = part ? ir_binary(&s->b, IR_SUBTRACT, end, ir_scalar_i64(&s->b, TTPU_I64, sizes[d]))
                   : ir_scalar_i64(&s->b, TTPU_I64, 0);
  }
  if (clamps) {
    ir_value index = ir_convert(&s->b, operands[1], TTPU_I64);
    if (s->b.status) return;
    ir_value high = spread_components(s, index, a.index_vector_dim, a.start_index_map.count, ends);
    operands[1] = ir_binary(&s->b, IR_MINIMUM, index, high);
    a.indices_are_sorted = false;
  }
  a.slice_sizes = (ir_i64s){sizes, OLD(x).rank};
  emit_on(s, op, operands, &a);
}

/* Updates from the padding get an index outside of every dimension, and so are left out. */
static void emit_scatter(bucket *s, const ir_op *op) {
  ir_scatter_attrs a = *IR_ATTRS(op, scatter);
  ir_value *operands = mapped(s, op, 0), x = op->operands[0], index = op->operands[op->result_count];
  uint32_t bits = padded_bits(s, index);
  int64_t outside = 0;
  if (!operands) return;
  for (uint32_t d = 0; d < OLD(x).rank; ++d)
    if (padded_size(s, x, d) > outside) outside = padded_size(s, x, d);
  if (bits) {
    ir_value *to = &operands[op->result_count], wide = ir_convert(&s->b, *to, TTPU_I64),
             mask = real_mask(s, index, bits);
    if (s->b.status) return;
    *to = ir_select(&s->b, mask, wide, ir_fill_i64(&s->b, TTPU_I64, NEW(wide).rank, NEW(wide).dims, outside));
    a.indices_are_sorted = a.unique_indices = false;
  }
  emit_on(s, op, operands, &a);
}

/* ---- products, reductions, order ------------------------------------------------------------ */

/* What a reduction of this kind takes without a change: of a sum -0, which leaves -0 as it is. 0: unknown. */
static ir_value neutral(bucket *s, ir_kind kind, ttpu_dtype dtype) {
  if (kind == IR_ADD && base_dtype_is_float(dtype)) return ir_scalar_f64(&s->b, dtype, -0.0);
  return ir_neutral(&s->b, kind, dtype);
}

/* StableHLO defines a reduction where the initial value is neutral: another reducer's padding takes that. */
static void emit_reduce(bucket *s, const ir_op *op) {
  ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  ir_value *operands = mapped(s, op, 0);
  uint32_t bits = 0;
  if (!operands) return;
  for (uint32_t i = 0; i < dims.count; ++i)
    if (is_padded(s, op->operands[0], (uint32_t)dims.data[i])) bits |= 1u << dims.data[i];
  ir_kind kind = ir_region_reducer(s->f, op->regions[0]);
  for (uint32_t i = 0; i < op->result_count && bits; ++i) {
    ir_value fill = op->result_count == 1 ? neutral(s, kind, (ttpu_dtype)OLD(op->operands[0]).dtype) : 0;
    operands[i] = masked(s, op->operands[i], bits, fill ? fill : operands[op->result_count + i]);
  }
  emit_on(s, op, operands, op->attrs);
}

/* Zeros on both sides of a product's sum: beside a NaN, zeros on one side alone would not do. */
static void emit_dot_general(bucket *s, const ir_op *op) {
  const ir_dot_general_attrs *a = IR_ATTRS(op, dot_general);
  const ir_i64s contracting[2] = {a->lhs_contracting_dimensions, a->rhs_contracting_dimensions};
  ir_value operands[2];
  for (int k = 0; k < 2; ++k) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < contracting[k].count; ++i) bits |= 1u << contracting[k].data[i];
    ir_value zero = ir_scalar_i64(&s->b, (ttpu_dtype)OLD(op->operands[k]).dtype, 0);
    operands[k] = masked(s, op->operands[k], bits, zero);
  }
  emit_on(s, op, operands, a);
}

/* (flag, flag, x, y, ...) -> whether the first comes before the second: real elements before padding. */
static ir_region *padding_last(bucket *s, const ir_op *op, uint32_t count) {
  ir_builder *b = &s->b;
  const ir_region *r = op->regions[0];
  ir_type *types = base_arena_alloc(s->arena, (2 * count + 2) * sizeof *types);
  if (!types) return NULL;
  for (uint32_t i = 0; i < 2 * count; ++i) types[i] = OLD(r->first_arg + i);
  types[2 * count] = types[2 * count + 1] = ir_tensor(b, TTPU_I32, 0, NULL);
  ir_region *outer, *to = ir_region_begin(b, 2 * count + 2, types, &outer);
  for (uint32_t i = 0; i < 2 * count; ++i) s->map[r->first_arg + i] = to->first_arg + i;
  for (uint32_t i = 0; i + 1 < r->count; ++i) ir_copy_op(b, s->f, r->ops[i], s->map);
  ir_value before = s->map[r->ops[r->count - 1]->operands[0]];
  ir_value x = to->first_arg + 2 * count, y = x + 1;
  before = ir_select(b, ir_compare(b, IR_EQ, x, y), before, ir_compare(b, IR_LT, x, y));
  ir_region_end(b, outer, 1, &before);
  return to;
}

static void emit_sort(bucket *s, const ir_op *op) {
  uint32_t d = (uint32_t)IR_ATTRS(op, sort)->dimension, count = op->operand_count;
  if (!is_padded(s, op->operands[0], d)) {
    emit_same(s, op);
    return;
  }
  ir_value *operands = mapped(s, op, 1);
  ir_region *region = operands ? padding_last(s, op, count) : NULL;
  if (!region) {
    ir_fail(&s->b, base_no_memory(count), "%s", base_message());
    return;
  }
  operands[count] = ir_convert(&s->b, ir_unary(&s->b, IR_NOT, real_mask(s, op->operands[0], 1u << d)), TTPU_I32);
  ir_value first = ir_append(&s->b, IR_SORT, count + 1, operands, op->attrs, 0, NULL, 1, &region);
  for (uint32_t i = 0; i < count; ++i) s->map[op->first_result + i] = first ? first + i : 0;
}

/* From the beginning on, padding comes last and is never seen; from the end on, it comes first. */
static void emit_scan(bucket *s, const ir_op *op) {
  const ir_scan_attrs *a = IR_ATTRS(op, scan);
  ttpu_dtype dtype = (ttpu_dtype)OLD(op->operands[0]).dtype;
  ir_value x = s->map[op->operands[0]];
  static const ir_kind kinds[] = {
      [IR_CUMSUM] = IR_ADD, [IR_CUMPROD] = IR_MULTIPLY, [IR_CUMMAX] = IR_MAXIMUM, [IR_CUMMIN] = IR_MINIMUM};
  if (a->reverse && is_padded(s, op->operands[0], (uint32_t)a->dimension)) {
    ir_value fill =
        a->kind == IR_LOGCUMSUMEXP ? ir_scalar_f64(&s->b, dtype, -INFINITY) : neutral(s, kinds[a->kind], dtype);
    x = masked(s, op->operands[0], 1u << a->dimension, fill);
  }
  emit_on(s, op, &x, a);
}

/* ---- sources and checks --------------------------------------------------------------------- */

/* The index of an element among the real ones, where it is not the index among all. */
static ir_value real_index(bucket *s, uint32_t factor) {
  ir_builder *b = &s->b;
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots);
  int64_t dims[TTPU_MAX_RANK], size = bucket_padded_size(s, factor);
  if (count > TTPU_MAX_RANK) return ir_fail(b, TTPU_UNIMPLEMENTED, "a dimension of %u factors", count);
  for (uint32_t i = 0; i < count; ++i) dims[i] = bucket_padded_size(s, roots[i]);
  ir_value index = 0, stride = ir_scalar_i64(b, TTPU_I64, 1);
  for (uint32_t i = count; i-- > 0;) {
    ir_value step = ir_binary(b, IR_MULTIPLY, ir_iota(b, TTPU_I64, count, dims, i), spread(s, stride, count, dims));
    index = index ? ir_binary(b, IR_ADD, index, step) : step;
    stride = ir_binary(b, IR_MULTIPLY, stride, root_size(s, roots[i]));
  }
  return ir_reshape(b, index, 1, &size);
}

static void emit_iota(bucket *s, const ir_op *op) {
  ir_value y = op->first_result;
  const int64_t d = IR_ATTRS(op, iota)->iota_dimension;
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, bucket_dim(s, y, (uint32_t)d), roots);
  bool scattered = false;
  for (uint32_t i = 1; i < count; ++i) scattered |= bucket_root_is_padded(s, roots[i]);
  if (!scattered) {
    emit_same(s, op);
    return;
  }
  int64_t dims[TTPU_MAX_RANK];
  padded_dims(s, y, dims);
  ir_value index = ir_convert(&s->b, real_index(s, bucket_dim(s, y, (uint32_t)d)), (ttpu_dtype)OLD(y).dtype);
  s->map[y] = ir_broadcast_in_dim(&s->b, index, OLD(y).rank, dims, &d);
}

/* Random bits are made flat, as the exact ones lie; from them a run for each index of what is before the padded dimension,
 * with the beginning of the next one as its padding. */
static void emit_random(bucket *s, const ir_op *op) {
  ir_builder *b = &s->b;
  ir_value y = op->first_result + 1, state = s->map[op->operands[0]], parts[BUCKET_CHUNKS];
  int64_t dims[TTPU_MAX_RANK], chunks = 1, inner = 1;
  uint32_t d = 0;
  while (d < OLD(y).rank && !is_padded(s, y, d)) chunks *= OLD(y).dims[d++];
  if (d == OLD(y).rank || chunks <= 1) {
    emit_same(s, op);
    return;
  }
  padded_dims(s, y, dims);
  for (uint32_t i = d + 1; i < OLD(y).rank; ++i) inner *= dims[i];
  const int64_t run = dims[d] * inner, all = chunks * run;
  const ir_type given[2] = {OLD(op->first_result), {OLD(y).dtype, 1, &all}};
  ir_value flat = ir_append(b, IR_RNG_BIT_GENERATOR, 1, &state, op->attrs, 2, given, 0, NULL) + 1;
  ir_value start = ir_scalar_i64(b, TTPU_I64, 0);
  ir_value step = ir_binary(b, IR_MULTIPLY, exact_size(s, bucket_dim(s, y, d)), ir_scalar_i64(b, TTPU_I64, inner));
  for (int64_t i = 0; i < chunks && !b->status; ++i) {
    parts[i] = part_from(s, flat, 0, start, run);
    start = ir_binary(b, IR_ADD, start, step);
  }
  s->map[op->first_result] = b->status ? 0 : flat - 1;
  s->map[y] = ir_reshape(b, ir_concatenate(b, (uint32_t)chunks, parts, 0), OLD(y).rank, dims);
}

/* The bits of a number of the run, as a scalar of dtype. */
static ir_value number_of_bits(bucket *s, ir_value bits, ttpu_dtype dtype) {
  static const ttpu_dtype unsigned_of[9] = {[1] = TTPU_U8, [2] = TTPU_U16, [4] = TTPU_U32, [8] = TTPU_U64};
  ir_builder *b = &s->b;
  if (dtype == TTPU_BOOL) return ir_compare(b, IR_NE, bits, ir_scalar_i64(b, TTPU_I64, 0));
  if (base_dtype_bytes(dtype) == 8) return ir_bitcast_convert(b, bits, dtype);
  ttpu_dtype raw = unsigned_of[base_dtype_bytes(dtype)];
  return ir_bitcast_convert(b, ir_convert(b, ir_bitcast_convert(b, bits, TTPU_U64), raw), dtype);
}

static void emit_constant(bucket *s, const ir_op *op) {
  uint32_t slot = s->op_slots[op->index];
  ir_data data = IR_ATTRS(op, constant)->value;
  int64_t dims[TTPU_MAX_RANK];
  ir_type t = OLD(op->first_result);
  padded_dims(s, op->first_result, dims);
  bool at_run_time = data.splat && slot < s->number_count && s->slot_number[slot] != BUCKET_NONE;
  if (at_run_time) {
    ir_value x = number_of_bits(s, run_number(s, s->slot_number[slot]), (ttpu_dtype)t.dtype);
    s->map[op->first_result] = spread(s, x, t.rank, dims);
  } else {
    t.dims = dims;
    s->map[op->first_result] = ir_constant(&s->b, t, data);
  }
}

/* Padding is no index: it is checked as one that is right. */
static void emit_check(bucket *s, const ir_op *op) {
  const ir_check_index_attrs *a = IR_ATTRS(op, check_index);
  ir_value low = ir_scalar_i64(&s->b, (ttpu_dtype)OLD(op->operands[0]).dtype, a->low);
  ir_value x = masked(s, op->operands[0], padded_bits(s, op->operands[0]), low);
  emit_on(s, op, &x, a);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Who is not here is emitted as it was, on padded operands. */
static void (*const emitters[IR_KIND_COUNT])(bucket *s, const ir_op *op) = {
    [IR_SLICE] = emit_slice,
    [IR_PAD] = emit_pad,
    [IR_CONCATENATE] = emit_concatenate,
    [IR_REVERSE] = emit_reverse,
    [IR_DYNAMIC_SLICE] = emit_dynamic_slice,
    [IR_DYNAMIC_UPDATE_SLICE] = emit_dynamic_update_slice,
    [IR_GATHER] = emit_gather,
    [IR_SCATTER] = emit_scatter,
    [IR_REDUCE] = emit_reduce,
    [IR_DOT_GENERAL] = emit_dot_general,
    [IR_SORT] = emit_sort,
    [IR_SCAN] = emit_scan,
    [IR_IOTA] = emit_iota,
    [IR_RNG_BIT_GENERATOR] = emit_random,
    [IR_CONSTANT] = emit_constant,
    [IR_CHECK_INDEX] = emit_check,
};

void bucket_emit_op(bucket *s, const ir_op *op) {
  s->b.source = op->source;
  (emitters[op->kind] ? emitters[op->kind] : emit_same)(s, op);
  s->b.source = NULL;
}
