/* Numbers that are known while a program is read. Shapes are computed by the program itself, from the sizes of its
 * arguments, on tensors of a few integers: they are evaluated here as far as constants and known arguments reach, so that
 * a dynamic operation becomes the static one that it is for these sizes. */
#include <string.h>

#include "ir/parse_op.h"

/* What lies in a value's table of numbers; NULL: the table cannot grow, which the reader has noted. */
static known *entry_of(parser *p, ir_value v) {
  if (v >= p->known_capacity) {
    uint32_t more = p->known_capacity ? p->known_capacity : 64;
    while (more <= v) more *= 2;
    known *table = parse_room(p, more * sizeof *table);
    if (!table) return NULL;
    if (p->known_capacity) memcpy(table, p->known, p->known_capacity * sizeof *table);
    p->known = table;
    p->known_capacity = more;
  }
  return &p->known[v];
}

bool parse_set_known(parser *p, ir_value v, uint32_t count, const int64_t *numbers) {
  if (count > PARSE_MOST_KNOWN) return true;
  int64_t *copy = parse_room(p, count * sizeof *copy);
  known *k = copy ? entry_of(p, v) : NULL;
  if (!k) return false;
  memcpy(copy, numbers, count * sizeof *copy);
  *k = (known){true, count, copy};
  return true;
}

/* ---- one element ---------------------------------------------------------------------------- */

static int64_t wrap(ttpu_dtype t, int64_t x) {
  uint8_t bytes[16] = {0};
  base_scalar v = {.i = x};
  base_scalar_store(t, bytes, v);
  return base_scalar_load(t, bytes).i;
}

static bool compare(ir_direction direction, bool is_unsigned, int64_t a, int64_t b) {
  bool less = is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
  switch (direction) {
    case IR_EQ: return a == b;
    case IR_NE: return a != b;
    case IR_GE: return !less;
    case IR_GT: return !less && a != b;
    case IR_LE: return less || a == b;
    case IR_LT: return less;
  }
  return false;
}

/* False where the operation is not one that shapes are computed with, or divides by zero. */
static bool evaluate(const ir_op *op, ttpu_dtype t, const int64_t *x, int64_t *y) {
  uint64_t a = (uint64_t)x[0], b = (uint64_t)x[1];
  bool is_unsigned = !base_dtype_is_signed(t);
  switch ((ir_kind)op->kind) {
    case IR_CONVERT: *y = x[0]; return true;
    case IR_NEGATE: *y = (int64_t)(0 - a); return true;
    case IR_ABS: *y = x[0] < 0 ? (int64_t)(0 - a) : x[0]; return true;
    case IR_SIGN: *y = x[0] > 0 ? 1 : x[0] < 0 ? -1 : 0; return true;
    case IR_NOT: *y = t == TTPU_BOOL ? !x[0] : ~x[0]; return true;
    case IR_ADD: *y = (int64_t)(t == TTPU_BOOL ? a | b : a + b); return true;
    case IR_SUBTRACT: *y = (int64_t)(a - b); return true;
    case IR_MULTIPLY: *y = (int64_t)(a * b); return true;
    case IR_AND: *y = x[0] & x[1]; return true;
    case IR_OR: *y = x[0] | x[1]; return true;
    case IR_XOR: *y = x[0] ^ x[1]; return true;
    case IR_MAXIMUM: *y = compare(IR_GT, is_unsigned, x[0], x[1]) ? x[0] : x[1]; return true;
    case IR_MINIMUM: *y = compare(IR_LT, is_unsigned, x[0], x[1]) ? x[0] : x[1]; return true;
    case IR_DIVIDE:
    case IR_REMAINDER: {
      bool quotient = op->kind == IR_DIVIDE;
      if (b == 0 || (!is_unsigned && x[1] == -1 && x[0] == INT64_MIN)) return false;
      if (is_unsigned) *y = (int64_t)(quotient ? a / b : a % b);
      else *y = quotient ? x[0] / x[1] : x[0] % x[1];
      return true;
    }
    case IR_COMPARE: *y = compare(IR_ATTRS(op, compare)->comparison_direction, is_unsigned, x[0], x[1]); return true;
    case IR_SELECT: *y = x[0] ? x[1] : x[2]; return true;
    case IR_CLAMP: *y = x[1] < x[0] ? x[0] : x[1] > x[2] ? x[2] : x[1]; return true;
    default: return false;
  }
}

/* ---- one operation -------------------------------------------------------------------------- */

static bool is_integral(ttpu_dtype t) { return base_dtype_is_integer(t) || t == TTPU_BOOL; }

static bool evaluate_pointwise(parser *p, const ir_op *op, ir_type type, int64_t *numbers) {
  const int64_t *operands[3];
  uint32_t counts[3], count = (uint32_t)ir_numel(type);
  if (op->operand_count > 3) return false;
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    if (!is_integral((ttpu_dtype)ir_type_of(p->b.func, op->operands[i]).dtype)) return false;
    if (!(operands[i] = parse_known(p, op->operands[i], &counts[i]))) return false;
  }
  ttpu_dtype t = (ttpu_dtype)ir_type_of(p->b.func, op->operands[op->operand_count - 1]).dtype;
  for (uint32_t k = 0; k < count; ++k) {
    int64_t x[3] = {0, 0, 0};
    for (uint32_t i = 0; i < op->operand_count; ++i) x[i] = operands[i][counts[i] == 1 ? 0 : k];
    if (!evaluate(op, t, x, &numbers[k])) return false;
    numbers[k] = wrap((ttpu_dtype)type.dtype, numbers[k]);
  }
  return true;
}

static bool evaluate_constant(const ir_op *op, ir_type type, int64_t *numbers) {
  ir_data data = IR_ATTRS(op, constant)->value;
  size_t size = base_dtype_bytes((ttpu_dtype)type.dtype);
  for (int64_t k = 0; k < ir_numel(type); ++k)
    numbers[k] =
        base_scalar_load((ttpu_dtype)type.dtype, (const uint8_t *)data.bytes + (data.splat ? 0 : (size_t)k * size)).i;
  return true;
}

/* Along the first dimension the parts follow each other whatever the rank. */
static bool evaluate_concatenate(parser *p, const ir_op *op, int64_t *numbers) {
  if (IR_ATTRS(op, dim)->dimension != 0) return false;
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    uint32_t count;
    const int64_t *part = parse_known(p, op->operands[i], &count);
    if (!part) return false;
    memcpy(numbers, part, count * sizeof *part);
    numbers += count;
  }
  return true;
}

static bool evaluate_slice(parser *p, const ir_op *op, ir_type type, int64_t *numbers) {
  const ir_slice_attrs *a = IR_ATTRS(op, slice);
  uint32_t count;
  const int64_t *x = type.rank == 1 ? parse_known(p, op->operands[0], &count) : NULL;
  for (int64_t k = 0; x && k < type.dims[0]; ++k)
    numbers[k] = x[a->start_indices.data[0] + k * (a->strides.count ? a->strides.data[0] : 1)];
  return x != NULL;
}

static bool evaluate_op(parser *p, const ir_op *op, ir_type type, int64_t *numbers) {
  uint32_t count;
  const int64_t *x;
  switch ((ir_kind)op->kind) {
    case IR_CONSTANT: return evaluate_constant(op, type, numbers);
    case IR_CONCATENATE: return evaluate_concatenate(p, op, numbers);
    case IR_SLICE: return evaluate_slice(p, op, type, numbers);
    case IR_RESHAPE:
      if (!(x = parse_known(p, op->operands[0], &count))) return false;
      memcpy(numbers, x, count * sizeof *x);
      return true;
    case IR_BROADCAST_IN_DIM:
      x = parse_known(p, op->operands[0], &count);
      if (!x || count != 1) return false;
      for (int64_t k = 0; k < ir_numel(type); ++k) numbers[k] = x[0];
      return true;
    case IR_IOTA:
      for (int64_t k = 0; type.rank == 1 && k < type.dims[0]; ++k) numbers[k] = k;
      return type.rank == 1;
    default: return (ir_ops[op->kind].flags & IR_POINTWISE) && evaluate_pointwise(p, op, type, numbers);
  }
}

const int64_t *parse_known(parser *p, ir_value v, uint32_t *count) {
  if (v == 0 || v & TUPLE_VALUE) return NULL;
  known *k = entry_of(p, v);
  if (!k) return NULL;
  if (!k->asked) {
    ir_type type = ir_type_of(p->b.func, v);
    const ir_op *op = ir_def(p->b.func, v);
    int64_t numel = ir_numel(type);
    k->asked = true;
    if (!op || numel > PARSE_MOST_KNOWN || !is_integral((ttpu_dtype)type.dtype) || p->depth >= DEEPEST) return NULL;
    int64_t *numbers = parse_room(p, (size_t)numel * sizeof *numbers);
    ++p->depth; /* a chain of operations is followed as deep as regions may nest: marking as asked ends it */
    bool ok = numbers && evaluate_op(p, op, type, numbers);
    --p->depth;
    if (ok) {
      k = &p->known[v]; /* the table may have moved */
      k->count = (uint32_t)numel;
      k->numbers = numbers;
    }
  }
  *count = p->known[v].count;
  return p->known[v].numbers;
}

bool parse_same(parser *p, ir_value a, ir_value b, int depth) {
  enum { DEEP = 12 };
  if (a == b) return true;
  uint32_t counts[2];
  const int64_t *x = parse_known(p, a, &counts[0]), *y = parse_known(p, b, &counts[1]);
  if (x && y) return counts[0] == counts[1] && memcmp(x, y, counts[0] * sizeof *x) == 0;
  const ir_op *one = ir_def(p->b.func, a), *other = ir_def(p->b.func, b);
  if (!one || !other || depth > DEEP || one->kind != other->kind || one->operand_count != other->operand_count ||
      one->region_count || one->result_count != 1 || other->result_count != 1 || ir_ops[one->kind].flags & IR_EFFECT)
    return false;
  ir_type type = ir_type_of(p->b.func, a);
  if (!ir_type_equal(type, ir_type_of(p->b.func, b))) return false;
  if (ir_ops[one->kind].attrs && !ir_attrs_equal((ir_kind)one->kind, one->attrs, other->attrs, type)) return false;
  for (uint32_t i = 0; i < one->operand_count; ++i)
    if (!parse_same(p, one->operands[i], other->operands[i], depth + 1)) return false;
  return true;
}
