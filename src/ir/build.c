/* Functions, regions and append. Lowering runs in eager mode, so the way in costs about 0.2 us: an operation and
 * its operand list are one arena allocation, result types share their operand's dims, nothing is copied that
 * lives as long as the function. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/ir_int.h"

/* ---- failure -------------------------------------------------------------------------------- */

/* What a builder that has failed works on, so that a lowering that looks at types before it asks for the status
 * reads a scalar of no dtype and never a null pointer. Nobody writes to these. */
static ir_value_info no_values[1] = {{.type = {TTPU_NO_DTYPE, 0, ir_no_dims}}};
static ir_region no_region;
static ir_func no_func = {.name = "", .values = no_values, .value_count = 1, .value_capacity = 1};

ir_value ir_fail(ir_builder *b, ttpu_status code, const char *format, ...) {
  if (b->status) return 0; /* the first failure is the one to tell */
  b->status = code ? code : TTPU_INTERNAL;
  int at = b->source ? snprintf(b->message, sizeof b->message, "%s: ", b->source) : 0;
  if (at < 0 || (size_t)at >= sizeof b->message) at = 0;
  va_list args;
  va_start(args, format);
  vsnprintf(b->message + at, sizeof b->message - (size_t)at, format, args);
  va_end(args);
  return 0;
}

static ir_value no_memory(ir_builder *b) {
  return ir_fail(b, TTPU_RESOURCE_EXHAUSTED, "out of host memory while building a program");
}

/* ---- functions ------------------------------------------------------------------------------ */

ir_func *ir_func_new(base_arena *arena, const char *name) {
  enum { FIRST_VALUES = 32 };
  ir_func *f = base_arena_zalloc(arena, sizeof *f);
  char *copy = base_arena_dup(arena, name, strlen(name) + 1);
  ir_value_info *values = base_arena_alloc(arena, FIRST_VALUES * sizeof *values);
  if (!f || !copy || !values) return NULL;
  values[0] = no_values[0];
  *f = (ir_func){.arena = arena, .name = copy, .values = values, .value_count = 1, .value_capacity = FIRST_VALUES};
  f->body.first_arg = 1;
  return f;
}

ir_builder ir_builder_on(ir_func *func) {
  ir_builder b = {.func = func ? func : &no_func, .region = func ? &func->body : &no_region};
  if (!func) no_memory(&b);
  return b;
}

/* Room for `count` more values. The old array stays in the arena: doubling wastes as much again at most. */
static bool grow_values(ir_func *f, uint32_t count) {
  if (f->value_capacity - f->value_count >= count) return true;
  uint64_t capacity = (uint64_t)f->value_capacity * 2;
  while (capacity < (uint64_t)f->value_count + count) capacity *= 2;
  if (capacity > UINT32_MAX) return false;
  ir_value_info *values = base_arena_alloc(f->arena, capacity * sizeof *values);
  if (!values) return false;
  memcpy(values, f->values, f->value_count * sizeof *values);
  f->values = values;
  f->value_capacity = (uint32_t)capacity;
  return true;
}

static bool grow_region(ir_func *f, ir_region *r) {
  if (r->count < r->capacity) return true;
  uint32_t capacity = r->capacity ? r->capacity * 2 : r == &f->body ? 32 : 4;
  ir_op **ops = base_arena_alloc(f->arena, capacity * sizeof *ops);
  if (!ops) return false;
  if (r->count) memcpy(ops, r->ops, r->count * sizeof *ops);
  r->ops = ops;
  r->capacity = capacity;
  return true;
}

ir_type ir_tensor(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  ir_type type = {(uint8_t)dtype, (uint8_t)rank, ir_no_dims};
  if (rank > TTPU_MAX_RANK) {
    ir_fail(b, TTPU_INVALID_ARGUMENT, "a tensor of rank %u: at most %d is possible", rank, TTPU_MAX_RANK);
  } else if (!b->status && rank > 0) {
    type.dims = base_arena_dup(b->func->arena, dims, rank * sizeof *dims);
    if (!type.dims) no_memory(b);
  }
  return b->status ? no_values[0].type : type;
}

/* A type from outside, checked, its dims in the arena. */
static bool take_type(ir_builder *b, ir_type *type) {
  int64_t bytes = type->dtype < TTPU_DTYPE_COUNT ? base_dtypes[type->dtype].bytes : 0;
  bool bad = type->dtype == TTPU_NO_DTYPE || type->dtype >= TTPU_DTYPE_COUNT || type->rank > TTPU_MAX_RANK ||
             (type->rank && !type->dims);
  for (uint32_t i = 0; !bad && i < type->rank; ++i)
    bad = type->dims[i] < 0 || __builtin_mul_overflow(bytes, type->dims[i] ? type->dims[i] : 1, &bytes);
  if (bad) {
    ir_fail(b, TTPU_INVALID_ARGUMENT, "an argument is not a tensor: %s",
            type->dtype < TTPU_DTYPE_COUNT && type->rank <= TTPU_MAX_RANK && type->dims ? IR_SHOW(*type)
                                                                                        : "no dtype or dims");
    return false;
  }
  *type = ir_tensor(b, (ttpu_dtype)type->dtype, type->rank, type->dims);
  return b->status == TTPU_OK;
}

ir_value ir_param(ir_builder *b, ir_type type) {
  if (b->status) return 0;
  ir_func *f = b->func;
  if (b->region != &f->body || f->value_count != f->body.first_arg + f->body.arg_count)
    return ir_fail(b, TTPU_INVALID_ARGUMENT, "parameters come before the first operation");
  if (!take_type(b, &type)) return 0;
  if (!grow_values(f, 1)) return no_memory(b);
  ir_value v = f->value_count++;
  f->values[v] = (ir_value_info){.type = type, .region = &f->body, .number = f->body.arg_count++};
  return v;
}

void ir_return(ir_builder *b, uint32_t count, const ir_value *values) {
  ir_append(b, IR_RETURN, count, values, NULL, 0, NULL, 0, NULL);
}

/* ---- regions -------------------------------------------------------------------------------- */

ir_region *ir_region_begin(ir_builder *b, uint32_t arg_count, const ir_type *types, ir_region **outer) {
  *outer = b->region;
  if (b->status) return &no_region;
  ir_func *f = b->func;
  ir_region *r = base_arena_zalloc(f->arena, sizeof *r);
  if (!r || !grow_values(f, arg_count)) {
    no_memory(b);
    return &no_region;
  }
  r->first_arg = f->value_count;
  r->arg_count = arg_count;
  for (uint32_t i = 0; i < arg_count; ++i) {
    ir_type type = types[i];
    if (!take_type(b, &type)) return &no_region;
    f->values[f->value_count++] = (ir_value_info){.type = type, .region = r, .number = i};
  }
  b->region = r;
  return r;
}

void ir_region_end(ir_builder *b, ir_region *outer, uint32_t count, const ir_value *results) {
  ir_append(b, IR_RETURN, count, results, NULL, 0, NULL, 0, NULL);
  b->region = outer;
}

/* ---- append --------------------------------------------------------------------------------- */

__attribute__((cold, noinline)) static ir_value refuse(ir_builder *b, ir_kind kind, ttpu_status code, const char *why) {
  return ir_fail(b, code, "%s: %s", kind < IR_KIND_COUNT ? ir_ops[kind].name : "?", why);
}

/* Why an operand cannot be used, or NULL. */
static const char *bad_operand(const ir_builder *b, uint32_t count, const ir_value *operands) {
  for (uint32_t i = 0; i < count; ++i)
    if (operands[i] == 0 || operands[i] >= b->func->value_count) return "an operand is not a value of this function";
  return NULL;
}

ir_value ir_append(ir_builder *b, ir_kind kind, uint32_t operand_count, const ir_value *operands, const void *attrs,
                   uint32_t given_count, const ir_type *given, uint32_t region_count, ir_region **regions) {
  if (b->status) return 0;
  ir_func *f = b->func;
  ir_region *r = b->region;
  if (kind <= IR_NO_OP || kind >= IR_KIND_COUNT) return refuse(b, kind, TTPU_INVALID_ARGUMENT, "not an operation");
  const char *why = bad_operand(b, operand_count, operands);
  if (!why && r->count && r->ops[r->count - 1]->kind == IR_RETURN) why = "appended after the region's return";
  if (why) return refuse(b, kind, TTPU_INVALID_ARGUMENT, why);

  char message[448];
  ir_inference in = {.func = f,
                     .arena = f->arena,
                     .kind = kind,
                     .operand_count = operand_count,
                     .operands = operands,
                     .attrs = attrs,
                     .given_count = given_count,
                     .given = given,
                     .region_count = region_count,
                     .regions = regions,
                     .message = message,
                     .message_size = sizeof message};
  if (!ir_infer(&in)) return refuse(b, kind, in.status, message);

  size_t operand_bytes = (operand_count * sizeof *operands + 7) & ~(size_t)7,
         region_bytes = region_count * sizeof *regions;
  ir_op *op = base_arena_alloc(f->arena, sizeof *op + operand_bytes + region_bytes);
  if (!op || !grow_region(f, r) || !grow_values(f, in.result_count)) return no_memory(b);
  uint8_t *tail = (uint8_t *)(op + 1);
  *op = (ir_op){.kind = (uint16_t)kind,
                .region_count = (uint16_t)region_count,
                .operand_count = operand_count,
                .result_count = in.result_count,
                .index = r->count,
                .operands = (ir_value *)tail,
                .first_result = f->value_count,
                .regions = (ir_region **)(tail + operand_bytes),
                .source = b->source};
  if (operand_count) memcpy(op->operands, operands, operand_count * sizeof *operands);
  if (region_count) memcpy(op->regions, regions, region_bytes);
  if (ir_ops[kind].attrs) {
    op->attrs = ir_attrs_copy(f->arena, kind, attrs, in.result_count ? in.results[0] : no_values[0].type);
    if (!op->attrs) return no_memory(b);
  }
  for (uint32_t i = 0; i < in.result_count; ++i)
    f->values[f->value_count++] = (ir_value_info){.type = in.results[i], .def = op, .region = r, .number = i};
  r->ops[r->count++] = op;
  return in.result_count ? op->first_result : 0;
}

/* ---- copying -------------------------------------------------------------------------------- */

ir_region *ir_region_copy(ir_builder *b, const ir_func *from, const ir_region *r, ir_value *map,
                          bool (*keep)(ir_kind)) {
  ir_type *types = base_arena_alloc(b->func->arena, (r->arg_count + 1) * sizeof *types);
  if (!types) {
    no_memory(b);
    return &no_region;
  }
  for (uint32_t i = 0; i < r->arg_count; ++i) types[i] = ir_type_of(from, r->first_arg + i);
  ir_region *outer, *copy = ir_region_begin(b, r->arg_count, types, &outer);
  for (uint32_t i = 0; i < r->arg_count && !b->status; ++i) map[r->first_arg + i] = copy->first_arg + i;
  for (uint32_t i = 0; i < r->count && !b->status; ++i) ir_copy_op_keeping(b, from, r->ops[i], map, keep);
  b->region = outer;
  return copy;
}

ir_value ir_copy_op_keeping(ir_builder *b, const ir_func *from, const ir_op *op, ir_value *map, bool (*keep)(ir_kind)) {
  enum { FEW = 16 };
  ir_value few[FEW], results[2] = {0, 0}, *operands = few;
  ir_type few_types[FEW], *types = few_types;
  ir_region *few_regions[FEW], **regions = few_regions;
  if (b->status) return 0;
  base_arena *arena = b->func->arena;
  if (op->operand_count > FEW) operands = base_arena_alloc(arena, op->operand_count * sizeof *operands);
  if (op->result_count > FEW) types = base_arena_alloc(arena, op->result_count * sizeof *types);
  if (op->region_count > FEW) regions = base_arena_alloc(arena, op->region_count * sizeof *regions);
  if (!operands || !types || !regions) return no_memory(b);
  for (uint32_t i = 0; i < op->operand_count; ++i) operands[i] = map[op->operands[i]];
  for (uint32_t i = 0; i < op->result_count; ++i) types[i] = ir_type_of(from, op->first_result + i);
  for (uint32_t i = 0; i < op->region_count; ++i) regions[i] = ir_region_copy(b, from, op->regions[i], map, keep);
  const char *source = b->source;
  b->source = op->source;
  if (keep && (ir_ops[op->kind].flags & IR_COMPOSITE) && !keep((ir_kind)op->kind)) {
    ir_composite_expand(b, (ir_kind)op->kind, op->attrs, op->operand_count, operands, op->result_count, types, results);
    for (uint32_t i = 0; i < op->result_count; ++i) map[op->first_result + i] = results[i];
  } else {
    results[0] = ir_append(b, (ir_kind)op->kind, op->operand_count, operands, op->attrs, op->result_count, types,
                           op->region_count, regions);
    for (uint32_t i = 0; i < op->result_count; ++i) map[op->first_result + i] = results[0] ? results[0] + i : 0;
  }
  b->source = source;
  return results[0];
}

ir_value ir_copy_op(ir_builder *b, const ir_func *from, const ir_op *op, ir_value *map) {
  return ir_copy_op_keeping(b, from, op, map, NULL);
}
