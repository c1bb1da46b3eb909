/* What each operation asks of its dimensions: which are equal, which must lie in one run, which keep their exact size. */
#include <string.h>

#include "ir/bucket_int.h"

#define TYPE(v) ir_type_of(s->f, v)

bool bucket_same(const bucket *s, uint32_t factor, uint32_t other) {
  return s->numbers[factor] == s->numbers[other] && s->before[factor] == s->before[other];
}

static void pin_value(bucket *s, ir_value v) {
  for (uint32_t d = 0; d < TYPE(v).rank; ++d) bucket_pin(s, bucket_dim(s, v, d));
}

static void pin_region(bucket *s, const ir_region *r);

/* An operation without a rule: nothing that it sees or gives is padded, in its regions neither. */
static void pin_op(bucket *s, const ir_op *op) {
  for (uint32_t i = 0; i < op->operand_count; ++i) pin_value(s, op->operands[i]);
  for (uint32_t i = 0; i < op->result_count; ++i) pin_value(s, op->first_result + i);
  for (uint32_t i = 0; i < op->region_count; ++i) pin_region(s, op->regions[i]);
}

static void pin_region(bucket *s, const ir_region *r) {
  for (uint32_t i = 0; i < r->arg_count; ++i) pin_value(s, r->first_arg + i);
  for (uint32_t i = 0; i < r->count; ++i) pin_op(s, r->ops[i]);
}

/* Two values of equal sizes, dimension by dimension. */
static void tie_values(bucket *s, ir_value x, ir_value y) {
  for (uint32_t d = 0; d < TYPE(x).rank; ++d) bucket_tie(s, bucket_dim(s, x, d), bucket_dim(s, y, d));
}

/* Dimension d of x and e of y: tied where they are equal; where not, pinned. */
static void tie_or_pin(bucket *s, ir_value x, uint32_t d, ir_value y, uint32_t e) {
  uint32_t a = bucket_dim(s, x, d), b = bucket_dim(s, y, e);
  if (bucket_same(s, a, b)) {
    bucket_tie(s, a, b);
  } else {
    bucket_pin(s, a);
    bucket_pin(s, b);
  }
}

/* Dimension d of x becomes dimension e of y, of another size: both have their real elements at the beginning. */
static void keep_both(bucket *s, ir_value x, uint32_t d, ir_value y, uint32_t e) {
  bucket_keep_whole(s, bucket_dim(s, x, d));
  bucket_keep_whole(s, bucket_dim(s, y, e));
}

static bool contains(ir_i64s list, int64_t d) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == d) return true;
  return false;
}

/* ---- elementwise and index maps ------------------------------------------------------------- */

static void tie_pointwise(bucket *s, const ir_op *op) {
  for (uint32_t i = 0; i < op->operand_count; ++i) /* scalars beside tensors: select, clamp */
    if (TYPE(op->operands[i]).rank > 0) tie_values(s, op->operands[i], op->first_result);
}

/* Results one by one of operands: barriers, checks. */
static void tie_each(bucket *s, const ir_op *op) {
  for (uint32_t i = 0; i < op->result_count; ++i) tie_values(s, op->operands[i], op->first_result + i);
}

/* Where the element size changes, the last dimension that one side has more is taken together. */
static void tie_bitcast(bucket *s, const ir_op *op) {
  ir_value x = op->operands[0], y = op->first_result;
  uint32_t rank = TYPE(x).rank < TYPE(y).rank ? TYPE(x).rank : TYPE(y).rank;
  for (uint32_t d = 0; d < rank; ++d) tie_or_pin(s, x, d, y, d);
  for (uint32_t d = rank; d < TYPE(x).rank; ++d) bucket_pin(s, bucket_dim(s, x, d));
  for (uint32_t d = rank; d < TYPE(y).rank; ++d) bucket_pin(s, bucket_dim(s, y, d));
}

static void tie_broadcast(bucket *s, const ir_op *op) {
  ir_i64s map = IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions;
  for (uint32_t d = 0; d < map.count; ++d)
    if (TYPE(op->operands[0]).dims[d] != 1)
      bucket_tie(s, bucket_dim(s, op->operands[0], d), bucket_dim(s, op->first_result, (uint32_t)map.data[d]));
}

static void tie_reshape(bucket *s, const ir_op *op) {
  uint32_t lists[2][TTPU_MAX_RANK];
  ir_value v[2] = {op->operands[0], op->first_result};
  for (int k = 0; k < 2; ++k)
    for (uint32_t d = 0; d < TYPE(v[k]).rank; ++d) lists[k][d] = bucket_dim(s, v[k], d);
  bucket_tie_lists(s, TYPE(v[0]).rank, lists[0], TYPE(v[1]).rank, lists[1]);
}

static void tie_transpose(bucket *s, const ir_op *op) {
  ir_i64s p = IR_ATTRS(op, transpose)->permutation;
  for (uint32_t d = 0; d < p.count; ++d)
    bucket_tie(s, bucket_dim(s, op->operands[0], (uint32_t)p.data[d]), bucket_dim(s, op->first_result, d));
}

static void tie_reverse(bucket *s, const ir_op *op) {
  tie_values(s, op->operands[0], op->first_result);
  ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  for (uint32_t i = 0; i < dims.count; ++i)
    bucket_keep_whole(s, bucket_dim(s, op->first_result, (uint32_t)dims.data[i]));
}

/* Is number `slot` of both functions `value`? */
static bool is_always(const bucket *s, uint32_t slot, int64_t value) {
  return s->numbers[slot] == value && s->before[slot] == value;
}

bool bucket_slice_is_whole(const bucket *s, const ir_op *op, uint32_t d) {
  uint32_t slot = s->op_slots[op->index], rank = TYPE(op->first_result).rank;
  return is_always(s, slot + d, 0) && is_always(s, slot + 2 * rank + d, 1) &&
         bucket_same(s, bucket_dim(s, op->operands[0], d), bucket_dim(s, op->first_result, d));
}

static void tie_slice(bucket *s, const ir_op *op) {
  uint32_t slot = s->op_slots[op->index], rank = TYPE(op->first_result).rank;
  for (uint32_t d = 0; d < rank; ++d) {
    if (bucket_slice_is_whole(s, op, d)) {
      bucket_tie(s, bucket_dim(s, op->operands[0], d), bucket_dim(s, op->first_result, d));
      continue;
    }
    keep_both(s, op->operands[0], d, op->first_result, d);
    if (!bucket_varies(s, slot + 2 * rank + d)) continue; /* the step: it stays in the text */
    bucket_pin(s, bucket_dim(s, op->operands[0], d));
    bucket_pin(s, bucket_dim(s, op->first_result, d));
  }
}

bool bucket_pad_is_whole(const bucket *s, const ir_op *op, uint32_t d) {
  uint32_t slot = s->op_slots[op->index], rank = TYPE(op->first_result).rank;
  return is_always(s, slot + d, 0) && is_always(s, slot + rank + d, 0) && is_always(s, slot + 2 * rank + d, 0);
}

static void tie_pad(bucket *s, const ir_op *op) {
  uint32_t slot = s->op_slots[op->index], rank = TYPE(op->first_result).rank;
  for (uint32_t d = 0; d < rank; ++d) {
    if (bucket_pad_is_whole(s, op, d)) {
      bucket_tie(s, bucket_dim(s, op->operands[0], d), bucket_dim(s, op->first_result, d));
      continue;
    }
    keep_both(s, op->operands[0], d, op->first_result, d);
    if (is_always(s, slot + 2 * rank + d, 0) && s->numbers[slot + d] >= 0 && s->before[slot + d] >= 0) continue;
    bucket_pin(s, bucket_dim(s, op->operands[0], d));
    bucket_pin(s, bucket_dim(s, op->first_result, d));
  }
}

static void tie_concatenate(bucket *s, const ir_op *op) {
  uint32_t along = (uint32_t)IR_ATTRS(op, dim)->dimension;
  for (uint32_t i = 0; i < op->operand_count; ++i)
    for (uint32_t d = 0; d < TYPE(op->first_result).rank; ++d) {
      if (d == along) bucket_keep_whole(s, bucket_dim(s, op->operands[i], d));
      else bucket_tie(s, bucket_dim(s, op->operands[i], d), bucket_dim(s, op->first_result, d));
    }
  bucket_keep_whole(s, bucket_dim(s, op->first_result, along));
}

static void tie_dynamic_slice(bucket *s, const ir_op *op) {
  ir_value x = op->operands[0], y = op->first_result;
  for (uint32_t d = 0; d < TYPE(y).rank; ++d) {
    if (bucket_same(s, bucket_dim(s, x, d), bucket_dim(s, y, d)))
      bucket_tie(s, bucket_dim(s, x, d), bucket_dim(s, y, d));
    else keep_both(s, x, d, y, d);
  }
}

static void tie_dynamic_update_slice(bucket *s, const ir_op *op) {
  ir_value x = op->operands[0], part = op->operands[1];
  tie_values(s, x, op->first_result);
  for (uint32_t d = 0; d < TYPE(x).rank; ++d) {
    if (bucket_same(s, bucket_dim(s, x, d), bucket_dim(s, part, d)))
      bucket_tie(s, bucket_dim(s, x, d), bucket_dim(s, part, d));
    else keep_both(s, x, d, part, d);
  }
}

/* ---- gather and scatter --------------------------------------------------------------------- */

/* The dimension of the indices that stands for dimension i of the batch: all but the vector's, in order. */
static uint32_t index_dim(int64_t vector_dim, uint32_t i) { return i + ((int64_t)i >= vector_dim); }

static void tie_gather(bucket *s, const ir_op *op) {
  const ir_gather_attrs *a = IR_ATTRS(op, gather);
  ir_value x = op->operands[0], index = op->operands[1], y = op->first_result;
  uint32_t batch = 0, offset = 0, slot = s->op_slots[op->index];
  if (a->index_vector_dim < TYPE(index).rank) bucket_pin(s, bucket_dim(s, index, (uint32_t)a->index_vector_dim));
  for (uint32_t d = 0; d < TYPE(y).rank; ++d)
    if (!contains(a->offset_dims, d))
      bucket_tie(s, bucket_dim(s, index, index_dim(a->index_vector_dim, batch++)), bucket_dim(s, y, d));
  for (uint32_t i = 0; i < a->operand_batching_dims.count; ++i)
    bucket_tie(s, bucket_dim(s, x, (uint32_t)a->operand_batching_dims.data[i]),
               bucket_dim(s, index, (uint32_t)a->start_indices_batching_dims.data[i]));
  for (uint32_t d = 0; d < TYPE(x).rank; ++d) {
    if (contains(a->operand_batching_dims, d)) continue;
    if (contains(a->collapsed_slice_dims, d)) {
      bucket_keep_whole(s, bucket_dim(s, x, d));
      continue;
    }
    uint32_t e = (uint32_t)a->offset_dims.data[offset++];
    if (bucket_same(s, bucket_dim(s, x, d), bucket_dim(s, y, e))) {
      bucket_tie(s, bucket_dim(s, x, d), bucket_dim(s, y, e));
    } else {
      bucket_keep_whole(s, bucket_dim(s, x, d));
      bucket_pin(s, bucket_dim(s, y, e)); /* a window of the dimension: of one size */
      if (bucket_varies(s, slot + d)) bucket_pin(s, bucket_dim(s, x, d));
    }
  }
}

static void tie_scatter(bucket *s, const ir_op *op) {
  const ir_scatter_attrs *a = IR_ATTRS(op, scatter);
  uint32_t count = op->result_count;
  ir_value x = op->operands[0], index = op->operands[count], update = op->operands[count + 1];
  for (uint32_t i = 0; i < count; ++i) {
    tie_values(s, op->operands[i], op->first_result + i);
    tie_values(s, op->operands[i], x);
    tie_values(s, op->operands[count + 1 + i], update);
  }
  if (a->index_vector_dim < TYPE(index).rank) bucket_pin(s, bucket_dim(s, index, (uint32_t)a->index_vector_dim));
  uint32_t batch = 0, window = 0;
  for (uint32_t d = 0; d < TYPE(update).rank; ++d) {
    if (contains(a->update_window_dims, d)) continue;
    uint32_t e = index_dim(a->index_vector_dim, batch++);
    bucket_tie(s, bucket_dim(s, index, e), bucket_dim(s, update, d));
    if (a->scatter_dims_to_operand_dims.count == 0)
      bucket_pin(s, bucket_dim(s, update, d)); /* no index to hide it by */
  }
  for (uint32_t i = 0; i < a->input_batching_dims.count; ++i)
    bucket_tie(s, bucket_dim(s, x, (uint32_t)a->input_batching_dims.data[i]),
               bucket_dim(s, index, (uint32_t)a->scatter_indices_batching_dims.data[i]));
  for (uint32_t d = 0; d < TYPE(x).rank; ++d) {
    if (contains(a->input_batching_dims, d)) continue;
    if (contains(a->inserted_window_dims, d)) {
      bucket_keep_whole(s, bucket_dim(s, x, d));
      continue;
    }
    /* A window over the whole dimension; with an index, or over a part of it, what is outside depends on the exact size. */
    uint32_t e = (uint32_t)a->update_window_dims.data[window++];
    tie_or_pin(s, x, d, update, e);
    if (contains(a->scatter_dims_to_operand_dims, d)) bucket_pin(s, bucket_dim(s, x, d));
  }
}

/* ---- products, reductions, order ------------------------------------------------------------ */

static void tie_dot_general(bucket *s, const ir_op *op) {
  const ir_dot_general_attrs *a = IR_ATTRS(op, dot_general);
  const ir_i64s batching[2] = {a->lhs_batching_dimensions, a->rhs_batching_dimensions};
  const ir_i64s contracting[2] = {a->lhs_contracting_dimensions, a->rhs_contracting_dimensions};
  uint32_t at = batching[0].count;
  for (uint32_t i = 0; i < at; ++i)
    for (int k = 0; k < 2; ++k)
      bucket_tie(s, bucket_dim(s, op->operands[k], (uint32_t)batching[k].data[i]), bucket_dim(s, op->first_result, i));
  for (uint32_t i = 0; i < contracting[0].count; ++i)
    bucket_tie(s, bucket_dim(s, op->operands[0], (uint32_t)contracting[0].data[i]),
               bucket_dim(s, op->operands[1], (uint32_t)contracting[1].data[i]));
  for (int k = 0; k < 2; ++k)
    for (uint32_t d = 0; d < TYPE(op->operands[k]).rank; ++d)
      if (!contains(batching[k], d) && !contains(contracting[k], d))
        bucket_tie(s, bucket_dim(s, op->operands[k], d), bucket_dim(s, op->first_result, at++));
}

/* The batch alone: windows and features keep their sizes. */
static void tie_convolution(bucket *s, const ir_op *op) {
  const ir_convolution_attrs *a = IR_ATTRS(op, convolution);
  ir_value x = op->operands[0], y = op->first_result;
  uint32_t in = (uint32_t)a->input_batch_dimension, out = (uint32_t)a->output_batch_dimension;
  pin_value(s, op->operands[1]);
  for (uint32_t d = 0; d < TYPE(x).rank; ++d)
    if (d != in || a->batch_group_count != 1) bucket_pin(s, bucket_dim(s, x, d));
  for (uint32_t d = 0; d < TYPE(y).rank; ++d)
    if (d != out) bucket_pin(s, bucket_dim(s, y, d));
  tie_or_pin(s, x, in, y, out);
}

static void tie_reduce(bucket *s, const ir_op *op) {
  ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  for (uint32_t i = 0; i < op->result_count; ++i) {
    uint32_t kept = 0;
    tie_values(s, op->operands[i], op->operands[0]);
    for (uint32_t d = 0; d < TYPE(op->operands[i]).rank; ++d) {
      uint32_t from = bucket_dim(s, op->operands[i], d);
      if (!contains(dims, d)) bucket_tie(s, from, bucket_dim(s, op->first_result + i, kept++));
      else if (base_dtype_is_rare((ttpu_dtype)TYPE(op->operands[i]).dtype))
        bucket_pin(s, from); /* no neutral element */
    }
  }
}

/* Of a window operation: does the window see one element at a time along d? */
static bool sees_one(const bucket *s, const ir_op *op, uint32_t d, uint32_t rank) {
  const ir_window_attrs *a = IR_ATTRS(op, window);
  uint32_t slot = s->op_slots[op->index];
  if (!is_always(s, slot + d, 1)) return false;
  const ir_i64s lists[3] = {a->window_strides, a->base_dilations, a->window_dilations};
  for (int i = 0; i < 3; ++i)
    if (lists[i].count > d && lists[i].data[d] != 1) return false;
  return a->padding.count < 2 * rank || (a->padding.data[2 * d] == 0 && a->padding.data[2 * d + 1] == 0);
}

/* Pooling: values of one window each. */
static void tie_windows(bucket *s, const ir_op *op) {
  bool reduces = op->kind == IR_REDUCE_WINDOW;
  uint32_t operands = reduces ? op->result_count : 2; /* select_and_scatter: operand, source, init */
  for (uint32_t d = 0; d < TYPE(op->operands[0]).rank; ++d) {
    bool one = sees_one(s, op, d, TYPE(op->operands[0]).rank);
    for (uint32_t i = 0; i < operands + op->result_count; ++i) {
      ir_value v = i < operands ? op->operands[i] : op->first_result + (i - operands);
      if (one) tie_or_pin(s, op->operands[0], d, v, d);
      else bucket_pin(s, bucket_dim(s, v, d));
    }
  }
}

static void tie_along(bucket *s, const ir_op *op, uint32_t along) {
  for (uint32_t i = 0; i < op->operand_count; ++i) tie_values(s, op->operands[i], op->operands[0]);
  for (uint32_t i = 0; i < op->result_count; ++i) tie_values(s, op->first_result + i, op->operands[0]);
  bucket_keep_whole(s, bucket_dim(s, op->operands[0], along));
}

static void tie_sort(bucket *s, const ir_op *op) { tie_along(s, op, (uint32_t)IR_ATTRS(op, sort)->dimension); }
static void tie_scan(bucket *s, const ir_op *op) { tie_along(s, op, (uint32_t)IR_ATTRS(op, scan)->dimension); }

/* Operations on the last `inner` dimensions of each value, the same for every index of the others. */
static void tie_batches(bucket *s, const ir_op *op, uint32_t inner) {
  uint32_t rank = TYPE(op->first_result).rank, outer = rank > inner ? rank - inner : 0;
  for (uint32_t i = 0; i < op->operand_count; ++i)
    for (uint32_t d = 0; d < rank; ++d) {
      if (d < outer) tie_or_pin(s, op->operands[i], d, op->first_result, d);
      else bucket_pin(s, bucket_dim(s, op->operands[i], d));
    }
  for (uint32_t d = outer; d < rank; ++d) bucket_pin(s, bucket_dim(s, op->first_result, d));
}

static void tie_matrices(bucket *s, const ir_op *op) { tie_batches(s, op, 2); }
static void tie_fft(bucket *s, const ir_op *op) { tie_batches(s, op, IR_ATTRS(op, fft)->fft_length.count); }

/* ---- sources -------------------------------------------------------------------------------- */

static void tie_constant(bucket *s, const ir_op *op) {
  if (!IR_ATTRS(op, constant)->value.splat) pin_value(s, op->first_result);
}

static bool is_read(const ir_region *r, ir_value v) {
  for (uint32_t i = 0; i < r->count; ++i) {
    for (uint32_t k = 0; k < r->ops[i]->operand_count; ++k)
      if (r->ops[i]->operands[k] == v) return true;
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k)
      if (is_read(r->ops[i]->regions[k], v)) return true;
  }
  return false;
}

/* The dimension of random bits that may be padded: the one that varies; with `all`, the last one that can be. */
static uint32_t random_dim(const bucket *s, ir_value y) {
  uint32_t found = BUCKET_NONE;
  int64_t before = 1;
  for (uint32_t d = 0; d < TYPE(y).rank; ++d) {
    bool all = s->options->all && TYPE(y).dims[d] > 1;
    if (!all && !bucket_varies(s, bucket_dim(s, y, d))) continue;
    if (found != BUCKET_NONE && !all) return BUCKET_NONE;
    for (uint32_t i = found == BUCKET_NONE ? 0 : found; i < d; ++i) before *= TYPE(y).dims[i];
    if (before > BUCKET_CHUNKS) return all ? found : BUCKET_NONE;
    found = d;
  }
  return found;
}

/* Bits: an element depends on its place in the exact result alone, so one dimension may be padded, where what is before it
 * is few runs of elements (emit_random). How far the state goes depends on how many there are. */
static void tie_random(bucket *s, const ir_op *op) {
  ir_value y = op->first_result + 1;
  uint32_t padded = is_read(&s->f->body, op->first_result) ? BUCKET_NONE : random_dim(s, y);
  pin_value(s, op->operands[0]);
  pin_value(s, op->first_result);
  for (uint32_t d = 0; d < TYPE(y).rank; ++d) {
    if (d == padded) bucket_keep_whole(s, bucket_dim(s, y, d));
    else bucket_pin(s, bucket_dim(s, y, d));
  }
}

static void tie_nothing(bucket *s, const ir_op *op) { (void)s, (void)op; }

/* ---- the table ------------------------------------------------------------------------------ */

/* Pointwise operations have tie_pointwise; who is not here has no rule. */
static void (*const rules[IR_KIND_COUNT])(bucket *s, const ir_op *op) = {
    [IR_BITCAST_CONVERT] = tie_bitcast,
    [IR_BROADCAST_IN_DIM] = tie_broadcast,
    [IR_RESHAPE] = tie_reshape,
    [IR_REVERSE] = tie_reverse,
    [IR_SLICE] = tie_slice,
    [IR_TRANSPOSE] = tie_transpose,
    [IR_CONCATENATE] = tie_concatenate,
    [IR_PAD] = tie_pad,
    [IR_DYNAMIC_SLICE] = tie_dynamic_slice,
    [IR_DYNAMIC_UPDATE_SLICE] = tie_dynamic_update_slice,
    [IR_GATHER] = tie_gather,
    [IR_SCATTER] = tie_scatter,
    [IR_CONSTANT] = tie_constant,
    [IR_IOTA] = tie_nothing,
    [IR_RNG_BIT_GENERATOR] = tie_random,
    [IR_DOT_GENERAL] = tie_dot_general,
    [IR_CONVOLUTION] = tie_convolution,
    [IR_REDUCE] = tie_reduce,
    [IR_REDUCE_WINDOW] = tie_windows,
    [IR_SELECT_AND_SCATTER] = tie_windows,
    [IR_SORT] = tie_sort,
    [IR_FFT] = tie_fft,
    [IR_CHOLESKY] = tie_matrices,
    [IR_TRIANGULAR_SOLVE] = tie_matrices,
    [IR_RETURN] = tie_nothing,
    [IR_OPTIMIZATION_BARRIER] = tie_each,
    [IR_CHECK_INDEX] = tie_each,
    [IR_SCAN] = tie_scan,
};

void bucket_tie_op(bucket *s, const ir_op *op) {
  if (ir_ops[op->kind].flags & IR_POINTWISE) tie_pointwise(s, op);
  else if (rules[op->kind]) rules[op->kind](s, op);
  else pin_op(s, op);
}

bool ir_bucket_keeps(ir_kind kind) {
  return (ir_ops[kind].flags & IR_POINTWISE) || kind == IR_SCAN || kind == IR_CHECK_INDEX;
}

void bucket_run_slots(const ir_func *f, const ir_op *op, uint32_t *first, uint32_t *count) {
  *first = *count = 0;
  if (op->kind == IR_SLICE || op->kind == IR_PAD) { /* starts, amounts in front */
    *count = ir_type_of(f, op->first_result).rank;
  } else if (op->kind == IR_CONSTANT && IR_ATTRS(op, constant)->value.splat) {
    ttpu_dtype dtype = (ttpu_dtype)ir_type_of(f, op->first_result).dtype;
    *count = !base_dtype_is_rare(dtype) && base_dtype_bytes(dtype) <= 8 && !base_dtype_is_complex(dtype);
  }
}
