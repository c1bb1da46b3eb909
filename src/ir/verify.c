/* A whole function again: what the builder guarantees, checked from the finished structure. Run after parsing and,
 * in debug builds, between passes. */
#include <string.h>

#include "ir/ir_int.h"

typedef struct verifier {
  const ir_func *func;
  base_arena scratch; /* inferred types, an operation's at a time */
  bool *visible;      /* by value: defined here or outside, and before */
} verifier;

#define BAD(...) return base_fail(TTPU_INTERNAL, __VA_ARGS__)

static const char *name_of(const ir_op *op) { return op->kind < IR_KIND_COUNT ? ir_ops[op->kind].name : "?"; }

static ttpu_status verify_region(verifier *s, const ir_region *r, int depth);

static ttpu_status verify_results(verifier *s, const ir_region *r, const ir_op *op, const ir_inference *in) {
  if (in->result_count != op->result_count)
    BAD("%s: %u results, expected %u", name_of(op), op->result_count, in->result_count);
  for (uint32_t i = 0; i < op->result_count; ++i) {
    ir_value v = op->first_result + i;
    if (v == 0 || v >= s->func->value_count) BAD("%s: result %u has no value", name_of(op), i);
    const ir_value_info *info = &s->func->values[v];
    if (info->def != op || info->number != i || info->region != r)
      BAD("%s: value %u does not say that it is result %u", name_of(op), v, i);
    if (s->visible[v]) BAD("%s: value %u is defined twice", name_of(op), v);
    if (!ir_type_equal(info->type, in->results[i]))
      BAD("%s: result %u is %s, expected %s", name_of(op), i, IR_SHOW(info->type), IR_SHOW(in->results[i]));
  }
  return TTPU_OK;
}

static ttpu_status verify_op(verifier *s, const ir_region *r, const ir_op *op, uint32_t index, int depth) {
  if (op->kind <= IR_NO_OP || op->kind >= IR_KIND_COUNT) BAD("operation %u is of kind %u", index, op->kind);
  if (op->index != index) BAD("%s: is operation %u but says %u", name_of(op), index, op->index);
  if ((op->kind == IR_RETURN) != (index + 1 == r->count))
    BAD("%s: a region's last operation, and no other, is its return", name_of(op));
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    ir_value v = op->operands[i];
    if (v == 0 || v >= s->func->value_count || !s->visible[v])
      BAD("%s: operand %u is value %u, which is not defined before", name_of(op), i, v);
  }
  for (uint32_t i = 0; i < op->region_count; ++i) BASE_TRY(verify_region(s, op->regions[i], depth + 1));
  char message[448];
  ir_type few[8], *types = few;
  if (op->result_count > 8) types = base_arena_alloc(&s->scratch, op->result_count * sizeof *types);
  if (!types) return base_no_memory(op->result_count * sizeof *types);
  for (uint32_t i = 0; i < op->result_count; ++i) types[i] = ir_type_of(s->func, op->first_result + i);
  ir_inference in = {.func = s->func,
                     .arena = &s->scratch,
                     .kind = (ir_kind)op->kind,
                     .operand_count = op->operand_count,
                     .operands = op->operands,
                     .attrs = op->attrs,
                     .given_count = op->result_count,
                     .given = types,
                     .region_count = op->region_count,
                     .regions = op->regions,
                     .message = message,
                     .message_size = sizeof message};
  if (!ir_infer(&in)) return base_fail(in.status, "%s: %s", name_of(op), message);
  BASE_TRY(verify_results(s, r, op, &in));
  for (uint32_t i = 0; i < op->result_count; ++i) s->visible[op->first_result + i] = true;
  base_arena_reset(&s->scratch);
  return TTPU_OK;
}

static ttpu_status verify_region(verifier *s, const ir_region *r, int depth) {
  enum { DEEPEST = 512 };
  if (!r || depth > DEEPEST) BAD("a region is missing, or nested more than %d deep", DEEPEST);
  if (r->count == 0) BAD("a region has no operations, not even a return");
  for (uint32_t i = 0; i < r->arg_count; ++i) {
    ir_value v = r->first_arg + i;
    if (v == 0 || v >= s->func->value_count || s->func->values[v].def || s->func->values[v].number != i ||
        s->func->values[v].region != r)
      BAD("argument %u of a region is not its value %u", i, v);
    s->visible[v] = true;
  }
  for (uint32_t i = 0; i < r->count; ++i) BASE_TRY(verify_op(s, r, r->ops[i], i, depth));
  /* what was defined here is not seen outside */
  for (uint32_t i = 0; i < r->arg_count; ++i) s->visible[r->first_arg + i] = false;
  for (uint32_t i = 0; i < r->count; ++i)
    for (uint32_t k = 0; k < r->ops[i]->result_count; ++k) s->visible[r->ops[i]->first_result + k] = false;
  return TTPU_OK;
}

ttpu_status ir_func_verify(const ir_func *f) {
  verifier s = {.func = f, .visible = base_calloc(f->value_count, sizeof(bool))};
  if (!s.visible) return base_no_memory(f->value_count);
  base_arena_init(&s.scratch);
  ttpu_status status = verify_region(&s, &f->body, 0);
  base_arena_free(&s.scratch);
  base_free(s.visible);
  return status == TTPU_OK ? TTPU_OK : base_fail_context(status, "@%s is not a valid function", f->name);
}
