#include "ir/select.h"

/* The parameters that stay, in order, and constants for the others. */
static void select_parameters(ir_builder *b, const ir_func *f, const ir_selection *s, ir_value *map) {
  const ir_region *body = &f->body;
  bool *donate = base_arena_zalloc(b->func->arena, body->arg_count + 1u);
  uint32_t kept = 0;
  if (donate == NULL) {
    ir_fail(b, TTPU_RESOURCE_EXHAUSTED, "out of host memory for %u parameters", body->arg_count);
    return;
  }
  for (uint32_t i = 0; i < body->arg_count; ++i) { /* parameters come before any operation */
    if (s->constants != NULL && s->constants[i].bytes != NULL) continue;
    map[body->first_arg + i] = ir_param(b, ir_type_of(f, body->first_arg + i));
    donate[kept++] = s->donate != NULL && s->donate[i];
  }
  for (uint32_t i = 0; i < body->arg_count; ++i)
    if (s->constants != NULL && s->constants[i].bytes != NULL)
      map[body->first_arg + i] = ir_constant(b, ir_type_of(f, body->first_arg + i), s->constants[i]);
  b->func->donate = donate;
}

static void select_results(ir_builder *b, const ir_func *f, const ir_selection *s, const ir_value *map) {
  const ir_op *ret = f->body.ops[f->body.count - 1];
  ir_value *results = base_arena_alloc(b->func->arena, s->result_count * sizeof *results + 1);
  if (results == NULL) {
    ir_fail(b, TTPU_RESOURCE_EXHAUSTED, "out of host memory for %u results", s->result_count);
    return;
  }
  for (uint32_t i = 0; i < s->result_count; ++i) {
    if (s->results[i] >= ret->operand_count) {
      ir_fail(b, TTPU_INVALID_ARGUMENT, "there is no result %u: the function has %u", s->results[i],
              ret->operand_count);
      return;
    }
    ir_type has = ir_type_of(f, ret->operands[s->results[i]]), wanted = s->types[i];
    if (has.dtype != wanted.dtype || ir_numel(has) != ir_numel(wanted)) {
      ir_fail(b, TTPU_INVALID_ARGUMENT, "result %u has %lld elements of %s; %lld of %s are wanted", s->results[i],
              (long long)ir_numel(has), base_dtypes[has.dtype].name, (long long)ir_numel(wanted),
              base_dtypes[wanted.dtype].name);
      return;
    }
    results[i] = ir_reshape(b, map[ret->operands[s->results[i]]], wanted.rank, wanted.dims);
  }
  ir_return(b, s->result_count, results);
}

ttpu_status ir_func_select(const ir_func *f, const ir_selection *s, base_arena *arena, ir_func **out) {
  *out = NULL;
  ir_func *to = ir_func_new(arena, f->name);
  ir_builder b = ir_builder_on(to);
  ir_value *map = base_calloc(f->value_count, sizeof *map);
  if (to == NULL || map == NULL) {
    base_free(map);
    return base_no_memory(f->value_count * sizeof *map);
  }
  select_parameters(&b, f, s, map);
  for (uint32_t i = 0; i + 1 < f->body.count && b.status == TTPU_OK; ++i) ir_copy_op(&b, f, f->body.ops[i], map);
  if (b.status == TTPU_OK) select_results(&b, f, s, map);
  base_free(map);
  if (b.status != TTPU_OK) return base_fail(b.status, "%s", b.message);
  *out = to;
  return TTPU_OK;
}
