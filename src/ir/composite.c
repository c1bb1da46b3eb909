/* Decompositions of our composites, and ir_decompose. What StableHLO can say in a few operations is here; elementwise
 * functions are in composite_math.c, strided views in composite_view.c. A decomposition contains no composite. */
#include <math.h>
#include <string.h>

#include "ir/ir_int.h"

#define TYPE(v) ir_type_of(b->func, v)

/* ---- attention ------------------------------------------------------------------------------ */

/* The score of what may not be attended to is -inf: column j of row i with j > i. s is [B,G,R,M,N]. */
static ir_value mask_causal(ir_builder *b, ir_value s) {
  ir_type type = TYPE(s);
  ir_value row = ir_iota(b, TTPU_I32, type.rank, type.dims, 3), column = ir_iota(b, TTPU_I32, type.rank, type.dims, 4);
  return ir_select(b, ir_compare(b, IR_GE, row, column), s, ir_like_f64(b, s, -INFINITY));
}

/* x [B,G,R,M] along the last dim of like [B,G,R,M,N]. */
static ir_value spread_rows(ir_builder *b, ir_value x, ir_value like) {
  static const int64_t map[4] = {0, 1, 2, 3};
  return ir_broadcast_in_dim(b, x, 5, TYPE(like).dims, map);
}

/* Softmax(q k' scale + bias) v in f32 (f64 for f64), the R = H / G query heads of a key head together. */
static void expand_attention(ir_builder *b, const ir_attention_attrs *a, uint32_t operand_count,
                             const ir_value *operands, ir_value *results) {
  ir_type q = TYPE(operands[0]), v = TYPE(operands[2]);
  ttpu_dtype wide = q.dtype == TTPU_F64 ? TTPU_F64 : TTPU_F32;
  const int64_t batch = q.dims[0], heads = q.dims[1], groups = v.dims[1], rows = q.dims[2], keys = v.dims[2];
  const int64_t per_group = groups ? heads / groups : 0, grouped_q[5] = {batch, groups, per_group, rows, q.dims[3]};
  const int64_t scores[4] = {batch, heads, rows, keys}, grouped_scores[5] = {batch, groups, per_group, rows, keys};
  static const int64_t batching[2] = {0, 1}, last[1] = {4}, q_last[1] = {4}, k_last[1] = {3}, v_rows[1] = {2};
  const ir_i64s both = {batching, 2};
  const ir_dot_general_attrs qk = {both, both, {q_last, 1}, {k_last, 1}, IR_PRECISION_HIGHEST};
  const ir_dot_general_attrs pv = {both, both, {last, 1}, {v_rows, 1}, IR_PRECISION_HIGHEST};

  ir_value s = ir_dot_general(b, ir_reshape(b, operands[0], 5, grouped_q), operands[1], &qk, wide);
  s = ir_multiply(b, s, ir_broadcast_in_dim(b, ir_convert(b, operands[3], wide), 5, grouped_scores, NULL));
  if (operand_count == 5) {
    ir_value bias = ir_broadcast_to(b, ir_convert(b, operands[4], wide), 4, scores);
    s = ir_add(b, s, ir_reshape(b, bias, 5, grouped_scores));
  }
  if (a->causal) s = mask_causal(b, s);
  ir_value top = ir_reduce(b, IR_MAXIMUM, s, 1, last);
  /* a row that attends to nothing: its top is -inf, its sum 0, its result 0 */
  ir_value nothing = ir_compare(b, IR_EQ, top, ir_like_f64(b, top, -INFINITY));
  top = ir_select(b, nothing, ir_zeros_like(b, top), top);
  ir_value p = ir_exponential(b, ir_subtract(b, s, spread_rows(b, top, s)));
  ir_value sum = ir_reduce(b, IR_ADD, p, 1, last);
  ir_value y = ir_dot_general(b, ir_convert(b, p, (ttpu_dtype)v.dtype), operands[2], &pv, wide);
  ir_value divisor = ir_select(b, nothing, ir_like_f64(b, sum, 1), sum);
  y = ir_divide(b, y, spread_rows(b, divisor, y));
  if (b->status) return;
  const int64_t out[4] = {batch, heads, rows, v.dims[3]};
  results[0] = ir_reshape(b, ir_convert(b, y, (ttpu_dtype)q.dtype), 4, out);
  results[1] = ir_reshape(b, ir_convert(b, ir_add(b, top, ir_log(b, sum)), TTPU_F32), 3, out);
}

/* ---- scan ----------------------------------------------------------------------------------- */

/* log(exp(x) + exp(y)), where an infinity is itself. */
static ir_value add_logarithms(ir_builder *b, ir_value x, ir_value y) {
  ir_value high = ir_maximum(b, x, y), low = ir_minimum(b, x, y);
  ir_value sum = ir_add(b, high, ir_log_plus_one(b, ir_exponential(b, ir_subtract(b, low, high))));
  return ir_select(b, ir_is_finite(b, high), sum, high);
}

/* Whether the later element takes over: PyTorch keeps the last of equal ones, and of NaN. */
static ir_value later_wins(ir_builder *b, bool largest, ir_value earlier, ir_value later) {
  ir_value wins = ir_compare(b, largest ? IR_GE : IR_LE, later, earlier);
  if (b->status || !base_dtype_is_float((ttpu_dtype)TYPE(later).dtype)) return wins;
  return ir_or_bits(b, wins, ir_compare(b, IR_NE, later, later)); /* a comparison with an earlier NaN is false */
}

/* One step of the scan: element i combined with element i - shift, for both tensors (index 0: none). */
static void scan_step(ir_builder *b, const ir_scan_attrs *a, int64_t shift, ir_value *x, ir_value *index) {
  uint32_t dim = (uint32_t)a->dimension;
  int64_t n = TYPE(*x).dims[dim];
  ir_value earlier = ir_slice_dim(b, *x, dim, 0, n - shift, 1), later = ir_slice_dim(b, *x, dim, shift, n, 1), both = 0;
  switch (a->kind) {
    case IR_CUMSUM: both = ir_add(b, earlier, later); break;
    case IR_CUMPROD: both = ir_multiply(b, earlier, later); break;
    case IR_LOGCUMSUMEXP: both = add_logarithms(b, earlier, later); break;
    case IR_CUMMAX:
    case IR_CUMMIN: {
      ir_value wins = later_wins(b, a->kind == IR_CUMMAX, earlier, later);
      both = ir_select(b, wins, later, earlier);
      ir_value where =
          ir_select(b, wins, ir_slice_dim(b, *index, dim, shift, n, 1), ir_slice_dim(b, *index, dim, 0, n - shift, 1));
      *index = ir_concatenate(b, 2, (ir_value[2]){ir_slice_dim(b, *index, dim, 0, shift, 1), where}, dim);
    }
  }
  *x = ir_concatenate(b, 2, (ir_value[2]){ir_slice_dim(b, *x, dim, 0, shift, 1), both}, dim);
}

/* Hillis and Steele: after the step of shift s, element i holds the 2s elements up to it. Narrow floats are summed in
 * f32. */
static void expand_scan(ir_builder *b, const ir_scan_attrs *a, ir_value x, ir_value *results) {
  ir_type type = TYPE(x);
  ttpu_dtype dtype = (ttpu_dtype)type.dtype;
  bool extreme = a->kind == IR_CUMMAX || a->kind == IR_CUMMIN;
  ir_value index = extreme ? ir_iota(b, TTPU_I64, type.rank, type.dims, (uint32_t)a->dimension) : 0;
  if (!extreme && base_dtype_is_float(dtype) && base_dtype_bytes(dtype) < 4) x = ir_convert(b, x, TTPU_F32);
  if (a->reverse) x = ir_reverse(b, x, 1, &a->dimension);
  if (a->reverse && extreme) index = ir_reverse(b, index, 1, &a->dimension);
  for (int64_t shift = 1; shift < type.dims[a->dimension] && !b->status; shift *= 2) scan_step(b, a, shift, &x, &index);
  if (a->reverse) x = ir_reverse(b, x, 1, &a->dimension);
  if (a->reverse && extreme) index = ir_reverse(b, index, 1, &a->dimension);
  results[0] = ir_convert(b, x, dtype);
  if (extreme) results[1] = index;
}

/* ---- top_k ---------------------------------------------------------------------------------- */

static void expand_top_k(ir_builder *b, const ir_top_k_attrs *a, ir_value x, ir_value *results) {
  ir_type type = TYPE(x);
  uint32_t dim = type.rank - 1u;
  const ir_value operands[2] = {x, ir_iota(b, TTPU_I64, type.rank, type.dims, dim)};
  ir_value first = ir_sort(b, 2, operands, dim, a->largest);
  if (b->status) return;
  for (uint32_t i = 0; i < 2; ++i) results[i] = ir_slice_dim(b, first + i, dim, 0, a->k, 1);
}

/* ---- path_scan ------------------------------------------------------------------------------ */

/* x [N, S] with every state taking the value of the one `by` before it; -inf where there is none. */
static ir_value shift_states(ir_builder *b, ir_value x, int64_t by) {
  int64_t low[2] = {0, by}, high[2] = {0, -by};
  return ir_pad(b, x, ir_scalar_f64(b, (ttpu_dtype)TYPE(x).dtype, -INFINITY), low, high, NULL);
}

/* log(exp(x) + exp(y) + exp(z)), -inf where all are. */
static ir_value log_sum_of_three(ir_builder *b, ir_value x, ir_value y, ir_value z) {
  ir_value high = ir_maximum(b, ir_maximum(b, x, y), z), low = ir_like_f64(b, high, -INFINITY);
  high = ir_select(b, ir_compare(b, IR_EQ, high, low), ir_zeros_like(b, high), high);
  ir_value sum = ir_exponential(b, ir_subtract(b, x, high));
  sum = ir_add(b, sum, ir_exponential(b, ir_subtract(b, y, high)));
  sum = ir_add(b, sum, ir_exponential(b, ir_subtract(b, z, high)));
  return ir_add(b, ir_log(b, sum), high);
}

/* The step after `before` [N, S], at `t` (rank 0) of x. */
static ir_value path_step(ir_builder *b, const ir_value *operands, ir_value t, ir_value before) {
  ir_type row = TYPE(before);
  ir_value zero = ir_scalar_i64(b, TTPU_I64, 0), starts[3] = {t, zero, zero}, low = ir_like_f64(b, before, -INFINITY);
  ir_value now = ir_dynamic_slice(b, operands[0], starts, (int64_t[]){1, row.dims[0], row.dims[1]});
  now = ir_reshape(b, now, 2, row.dims);
  ir_value skipped = ir_select(b, operands[1], shift_states(b, before, 2), low);
  ir_value on = ir_add(b, now, log_sum_of_three(b, before, shift_states(b, before, 1), skipped));
  ir_value start = ir_broadcast_in_dim(b, operands[2], 2, row.dims, (int64_t[]){0});
  t = ir_broadcast_to(b, t, 2, row.dims);
  ir_value begun = ir_select(b, ir_compare(b, IR_EQ, t, start), now, on);
  return ir_select(b, ir_compare(b, IR_LT, t, start), low, begun);
}

/* A loop over t whose state is t, the last row and the result so far. Narrow floats go on in f32. */
static ir_value expand_path_scan(ir_builder *b, const ir_value *given) {
  ttpu_dtype dtype = (ttpu_dtype)TYPE(given[0]).dtype, wide = base_dtype_bytes(dtype) < 4 ? TTPU_F32 : dtype;
  const ir_value operands[3] = {ir_convert(b, given[0], wide), given[1], given[2]};
  ir_type type = TYPE(operands[0]);
  if (b->status || ir_numel(type) == 0) return given[0];
  ir_value zero = ir_scalar_i64(b, TTPU_I64, 0);
  const ir_value state[3] = {zero, ir_fill_i64(b, wide, 2, type.dims + 1, 0), ir_zeros_like(b, operands[0])};
  const ir_type types[3] = {TYPE(state[0]), TYPE(state[1]), TYPE(state[2])};
  ir_region *outer, *regions[2];
  if (!(regions[0] = ir_region_begin(b, 3, types, &outer))) return 0;
  ir_value more = ir_compare(b, IR_LT, regions[0]->first_arg, ir_scalar_i64(b, TTPU_I64, type.dims[0]));
  ir_region_end(b, outer, 1, &more);
  if (!(regions[1] = ir_region_begin(b, 3, types, &outer))) return 0;
  ir_value t = regions[1]->first_arg, row = path_step(b, operands, t, t + 1);
  ir_value place[3] = {t, ir_scalar_i64(b, TTPU_I64, 0), ir_scalar_i64(b, TTPU_I64, 0)};
  ir_value slab = ir_reshape(b, row, 3, (int64_t[]){1, type.dims[1], type.dims[2]});
  ir_value next[3] = {ir_add(b, t, ir_scalar_i64(b, TTPU_I64, 1)), row, ir_dynamic_update_slice(b, t + 2, slab, place)};
  ir_region_end(b, outer, 3, next);
  ir_value end = ir_append(b, IR_WHILE, 3, state, NULL, 0, NULL, 2, regions);
  return end ? ir_convert(b, end + 2, dtype) : 0;
}

/* ---- dispatch ------------------------------------------------------------------------------- */

void ir_composite_expand(ir_builder *b, ir_kind kind, const void *attrs, uint32_t operand_count,
                         const ir_value *operands, uint32_t result_count, const ir_type *types, ir_value *results) {
  for (uint32_t i = 0; i < result_count && i < 2; ++i) results[i] = 0;
  if (b->status) return;
  switch (kind) {
    case IR_AS_STRIDED: results[0] = ir_view_read(b, operands[0], attrs, types[0]); break;
    case IR_AS_STRIDED_UPDATE: results[0] = ir_view_write(b, operands[0], operands[1], attrs); break;
    case IR_CHECK_INDEX: results[0] = operands[0]; break;
    case IR_ATTENTION: expand_attention(b, attrs, operand_count, operands, results); break;
    case IR_SCAN: expand_scan(b, attrs, operands[0], results); break;
    case IR_TOP_K: expand_top_k(b, attrs, operands[0], results); break;
    case IR_PATH_SCAN: results[0] = expand_path_scan(b, operands); break;
    default: results[0] = ir_math_expand(b, kind, operands[0], operand_count > 1 ? operands[1] : 0); break;
  }
}

static bool keep_none(ir_kind kind) {
  (void)kind;
  return false;
}

ttpu_status ir_decompose(const ir_func *f, base_arena *arena, bool (*keep)(ir_kind), ir_func **out) {
  ir_func *to = ir_func_new(arena, f->name);
  ir_builder b = ir_builder_on(to);
  *out = NULL;
  ir_value *map = base_calloc(f->value_count, sizeof *map);
  if (!map) return base_no_memory(f->value_count * sizeof *map);
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    map[f->body.first_arg + i] = ir_param(&b, ir_type_of(f, f->body.first_arg + i));
  for (uint32_t i = 0; i < f->body.count && !b.status; ++i)
    ir_copy_op_keeping(&b, f, f->body.ops[i], map, keep ? keep : keep_none);
  base_free(map);
  if (!b.status && f->donate) {
    to->donate = base_arena_dup(arena, f->donate, f->body.arg_count * sizeof *f->donate);
    if (!to->donate) return base_no_memory(f->body.arg_count);
  }
  if (b.status) return base_fail(b.status, "%s", b.message);
  *out = to;
  return TTPU_OK;
}

/* ---- as functions --------------------------------------------------------------------------- */

static bool same_composite(const struct ir_decomposition *d, const ir_func *f, const ir_op *op) {
  if (d->op->kind != op->kind || d->op->operand_count != op->operand_count) return false;
  for (uint32_t i = 0; i < op->operand_count; ++i)
    if (!ir_type_equal(ir_type_of(d->user, d->op->operands[i]), ir_type_of(f, op->operands[i]))) return false;
  for (uint32_t i = 0; i < op->result_count; ++i)
    if (!ir_type_equal(ir_type_of(d->user, d->op->first_result + i), ir_type_of(f, op->first_result + i))) return false;
  return !ir_ops[op->kind].attrs ||
         ir_attrs_equal((ir_kind)op->kind, d->op->attrs, op->attrs, ir_type_of(f, op->first_result));
}

uint32_t ir_decomposition_of(ir_decompositions *d, const ir_func *f, const ir_op *op) {
  for (uint32_t i = 0; i < d->count; ++i)
    if (same_composite(&d->list[i], f, op)) return i;
  if (!BASE_GROW(d->list, d->count, d->capacity)) {
    d->failed = true;
    return 0;
  }
  d->list[d->count] = (struct ir_decomposition){f, op};
  return d->count++;
}

/* Its operands' types in, its results out. */
ttpu_status ir_decomposition_build(const ir_decompositions *d, uint32_t number, base_arena *arena, ir_func **out) {
  const ir_func *user = d->list[number].user;
  const ir_op *op = d->list[number].op;
  ir_func *f = ir_func_new(arena, ir_ops[op->kind].name);
  ir_builder b = ir_builder_on(f);
  ir_value few[8], *operands = few, results[2] = {0, 0};
  ir_type types[2] = {{0, 0, NULL}, {0, 0, NULL}};
  if (op->operand_count > 8) operands = base_arena_alloc(arena, op->operand_count * sizeof *operands);
  if (!operands) return base_no_memory(op->operand_count * sizeof *operands);
  for (uint32_t i = 0; i < op->operand_count; ++i) operands[i] = ir_param(&b, ir_type_of(user, op->operands[i]));
  for (uint32_t i = 0; i < op->result_count && i < 2; ++i) types[i] = ir_type_of(user, op->first_result + i);
  ir_composite_expand(&b, (ir_kind)op->kind, op->attrs, op->operand_count, operands, op->result_count, types, results);
  ir_return(&b, op->result_count, results);
  if (b.status) return base_fail(b.status, "the decomposition of %s: %s", ir_ops[op->kind].name, b.message);
  *out = f;
  return TTPU_OK;
}
