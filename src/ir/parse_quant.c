/* Operations on quantized tensors. In the function that is read such a tensor is the integers that it is stored in; which
 * scale and zero point they have is known while reading. An operation on them runs on the real numbers that they stand
 * for, and its result is quantized again: dequantize_op_quantize of StableHLO's specification.
 *
 *   dequantize  real = (stored - zero) * scale
 *   quantize    stored = clamp(round_nearest_even(real / scale) + zero, low, high) */
#include <string.h>

#include "ir/parse_op.h"

const quantization *parse_quantization(const parser *p, ir_value v) {
  return v < p->quantized_capacity ? p->quantized[v] : NULL;
}

bool parse_set_quantization(parser *p, ir_value v, const quantization *q) {
  if (!q || v & TUPLE_VALUE) return true;
  if (v >= p->quantized_capacity) {
    uint32_t more = p->quantized_capacity ? p->quantized_capacity : 64;
    while (more <= v) more *= 2;
    const quantization **table = parse_room(p, more * sizeof *table);
    if (!table) return false;
    if (p->quantized_capacity) memcpy(table, p->quantized, p->quantized_capacity * sizeof *table);
    p->quantized = table;
    p->quantized_capacity = more;
  }
  p->quantized[v] = q;
  return true;
}

bool parse_is_quantized(const parser *p, const statement *s) {
  for (uint32_t i = 0; i < s->operands.count; ++i)
    if (parse_quantization(p, s->operands.data[i])) return true;
  for (uint32_t i = 0; i < s->result_types.count; ++i)
    if (s->result_types.data[i].quantized) return true;
  return false;
}

/* The scales, or the zero points, as a tensor of `like`'s sizes. */
static ir_value parameter(parser *p, const quantization *q, ir_type like, bool zeros) {
  ir_builder *b = &p->b;
  size_t size = base_dtype_bytes(q->expressed);
  uint8_t *bytes = parse_room(p, q->count * size);
  if (!bytes) return 0;
  for (uint32_t i = 0; i < q->count; ++i) {
    base_scalar v = {.d = {zeros ? (double)q->zeros[i] : q->scales[i], 0}};
    base_scalar_store(q->expressed, bytes + i * size, base_scalar_convert(TTPU_F64, q->expressed, v));
  }
  const int64_t dims[1] = {q->count}, map[1] = {q->axis};
  bool one = q->axis < 0;
  ir_value list = ir_constant(b, ir_tensor(b, q->expressed, !one, dims), (ir_data){bytes, one});
  return ir_broadcast_in_dim(b, list, like.rank, like.dims, one ? NULL : map);
}

ir_value parse_dequantize(parser *p, ir_value x, const quantization *q) {
  ir_builder *b = &p->b;
  if (b->status) return 0;
  ir_type type = ir_type_of(b->func, x);
  ir_value real = ir_subtract(b, ir_convert(b, x, q->expressed), parameter(p, q, type, true));
  return ir_multiply(b, real, parameter(p, q, type, false));
}

ir_value parse_quantize(parser *p, ir_value x, const quantization *q) {
  ir_builder *b = &p->b;
  if (b->status) return 0;
  ir_type type = ir_type_of(b->func, x);
  ir_value steps = ir_round_nearest_even(b, ir_divide(b, x, parameter(p, q, type, false)));
  steps = ir_add(b, steps, parameter(p, q, type, true));
  steps = ir_clamp(b, ir_scalar_f64(b, q->expressed, (double)q->low), steps,
                   ir_scalar_f64(b, q->expressed, (double)q->high));
  return ir_convert(b, steps, q->storage);
}

/* Operations that keep which index an element has along the quantized dimension, or say what becomes of it. */
static bool takes_axis(text_slice name) {
  static const char *const names[] = {"add",
                                      "broadcast_in_dim",
                                      "concatenate",
                                      "convolution",
                                      "dot_general",
                                      "dynamic_broadcast_in_dim",
                                      "dynamic_conv",
                                      "dynamic_reshape",
                                      "reshape",
                                      "transpose",
                                      "return",
                                      "slice",
                                      "custom_call",
                                      "tuple",
                                      "get_dimension_size"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (name.length == strlen(names[i]) + 10 && memcmp(name.data + 10, names[i], name.length - 10) == 0) return true;
  return false;
}

static bool same_parameters(const quantization *a, const quantization *b) {
  return a->count == b->count && memcmp(a->scales, b->scales, a->count * sizeof *a->scales) == 0 &&
         memcmp(a->zeros, b->zeros, a->count * sizeof *a->zeros) == 0;
}

static const quantization *operand_quantization(const parser *p, const statement *s, uint32_t i) {
  return i < s->operands.count ? parse_quantization(p, s->operands.data[i]) : NULL;
}

/* Products take integers that have one storage type, and a right side whose zero point is 0. */
static bool check_product(parser *p, const statement *s, bool dot) {
  const quantization *left = operand_quantization(p, s, 0), *right = operand_quantization(p, s, 1);
  const quantization *result = s->result_types.count ? s->result_types.data[0].quantized : NULL;
  if (!right || !left != !result) FAIL("the right operand is quantized, and the left one as the result is");
  if (left && left->storage != right->storage) FAIL("the operands are stored in different types");
  if (left && (left->expressed != right->expressed || result->expressed != right->expressed))
    FAIL("different types are expressed");
  if (result && right->axis < 0 && result->axis >= 0)
    FAIL("the result is quantized by dimension, the right operand is not");
  for (uint32_t i = 0; dot && i < right->count; ++i)
    if (right->zeros[i] != 0) FAIL("a zero point of the right operand is %lld, expected 0", (long long)right->zeros[i]);
  return true;
}

static bool check_quantized(parser *p, const statement *s) {
  bool by_axis = false, dot = text_is(s->name, "stablehlo.dot_general");
  for (uint32_t i = 0; i < s->operands.count; ++i) {
    const quantization *q = operand_quantization(p, s, i);
    by_axis |= q && q->axis >= 0;
  }
  if (by_axis && !takes_axis(s->name)) FAIL("an operand is quantized by dimension, which this operation does not take");
  if (dot || text_is(s->name, "stablehlo.convolution")) return check_product(p, s, dot);
  const quantization *from = operand_quantization(p, s, 0);
  const quantization *to = s->result_types.count ? s->result_types.data[0].quantized : NULL;
  bool moves = text_is(s->name, "stablehlo.reshape") || text_is(s->name, "stablehlo.transpose") ||
               text_is(s->name, "stablehlo.dynamic_reshape");
  if (moves && from && to && !same_parameters(from, to)) FAIL("the operand and the result are quantized differently");
  if (!text_is(s->name, "stablehlo.add")) return true;
  const quantization *other = operand_quantization(p, s, 1);
  if (!from || !other || !to) FAIL("quantized and plain numbers are added");
  if (from->storage != other->storage || from->storage != to->storage) FAIL("they are stored in different types");
  if (to->axis < 0 && (from->axis >= 0 || other->axis >= 0))
    FAIL("operands are quantized by dimension, the result is not");
  if ((from->axis >= 0 && from->axis != to->axis) || (other->axis >= 0 && other->axis != to->axis))
    FAIL("an operand and the result are quantized along different dimensions");
  return true;
}

bool parse_run_quantized(parser *p, statement *s) {
  TRY(check_quantized(p, s));
  statement plain = *s;
  plain.operands = (values){0};
  plain.operand_types = plain.result_types = (types){0};
  for (uint32_t i = 0; i < s->operands.count; ++i) {
    ir_value v = s->operands.data[i];
    const quantization *q = parse_quantization(p, v);
    TRY(parse_push_value(p, &plain.operands, q ? parse_dequantize(p, v, q) : v));
  }
  for (uint32_t i = 0; i < s->result_types.count; ++i) {
    text_type type = s->result_types.data[i];
    if (type.quantized) type.type.dtype = (uint8_t)type.quantized->expressed;
    type.quantized = NULL;
    TRY(parse_push_type(p, &plain.result_types, type));
  }
  TRY(parse_check_builder(p));
  TRY(parse_run(p, &plain));
  ir_value *results = parse_room(p, s->result_types.count * sizeof *results);
  if (!results) return false;
  for (uint32_t i = 0; i < s->result_types.count; ++i) {
    const quantization *q = s->result_types.data[i].quantized;
    ir_value v = plain.all ? plain.all[i] : plain.first + i;
    results[i] = q ? parse_quantize(p, v, q) : v;
    TRY(parse_set_quantization(p, results[i], q));
  }
  s->all = results;
  return parse_check_builder(p);
}
