/* Control flow on the device: torch.cond and while_loop. Their functions were recorded apart, as regions (rt_region_begin), and
 * arrive as StableHLO text: static like every text, so part of each key. A function's parameters are the call's tensors
 * in order, row-major in their own sizes. */
#include <string.h>

#include "aten/aten_int.h"

enum { TEXT_1 = 0, TEXT_2 = 1 }; /* the arguments of both rows begin with two functions */

static ir_func *function_of(aten_lowering *c, uint32_t arg) {
  const char *text = aten_text(c, arg);
  ir_func *f = NULL;
  ttpu_status status = ir_parse(c->b->func->arena, text, strlen(text), &f);
  if (status != TTPU_OK) ir_fail(c->b, status, "%s", base_message());
  return f;
}

/* Appends what f computes of `operands`, its parameters, and puts its results in `results`. */
static void append_function(aten_lowering *c, const ir_func *f, const ir_value *operands, ir_value *results) {
  ir_value *map = base_arena_zalloc(c->b->func->arena, f->value_count * sizeof *map);
  if (map == NULL) {
    ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    map[f->body.first_arg + i] = aten_convert(c, operands[i], (ttpu_dtype)ir_type_of(f, f->body.first_arg + i).dtype);
  for (uint32_t i = 0; i + 1 < f->body.count && !c->b->status; ++i) ir_copy_op(c->b, f, f->body.ops[i], map);
  const ir_op *end = f->body.ops[f->body.count - 1];
  for (uint32_t i = 0; i < end->operand_count; ++i) results[i] = map[end->operands[i]];
}

static uint32_t result_count(const ir_func *f) { return f->body.ops[f->body.count - 1]->operand_count; }

/* The tensors of the lists from argument `first` on. */
static ir_value *operands_of(aten_lowering *c, uint32_t first, uint32_t *count) {
  uint32_t room = 0;
  for (uint32_t arg = first; arg < c->call->arg_count; ++arg) room += aten_list_count(c, arg);
  ir_value *operands = base_arena_alloc(c->b->func->arena, (room + 1) * sizeof *operands);
  *count = 0;
  for (uint32_t arg = first; operands != NULL && arg < c->call->arg_count; ++arg)
    for (uint32_t i = 0; i < aten_list_count(c, arg); ++i) operands[(*count)++] = aten_list_in(c, arg, i);
  if (operands == NULL) ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "out of memory");
  return operands;
}

static bool takes(aten_lowering *c, const ir_func *f, uint32_t operands, uint32_t results) {
  if (f == NULL || c->b->status) return false;
  if (f->body.arg_count == operands && result_count(f) == results) return true;
  aten_fail(c, "a function of %u tensors with %u results, not of %u with %u", f->body.arg_count, result_count(f),
            operands, results);
  return false;
}

/* A truth of any dtype and one element, as a bool of rank 0. */
static ir_value truth(aten_lowering *c, ir_value v) { return ir_reshape(c->b, aten_is_true(c, v), 0, NULL); }

static ir_region *branch(aten_lowering *c, const ir_func *f, const ir_value *operands, ir_value *results) {
  ir_region *outer, *region = ir_region_begin(c->b, 0, NULL, &outer);
  append_function(c, f, operands, results);
  ir_region_end(c->b, outer, result_count(f), results);
  return region;
}

/* cond(str if_true, str if_false, Tensor[1] predicate, Tensor[] operands) */
static void lower_cond(aten_lowering *c) {
  const ir_func *functions[2] = {function_of(c, TEXT_1), function_of(c, TEXT_2)};
  uint32_t count;
  ir_value *operands = operands_of(c, 2, &count);
  for (uint32_t i = 0; i < 2; ++i)
    if (!takes(c, functions[i], count - 1, c->out_count)) return;
  ir_value predicate = truth(c, operands[0]);
  ir_value *results = base_arena_alloc(c->b->func->arena, (c->out_count + 1) * sizeof *results);
  if (results == NULL) {
    ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "out of memory");
    return;
  }
  ir_region *regions[2];
  for (uint32_t i = 0; i < 2; ++i) regions[i] = branch(c, functions[i], operands + 1, results);
  ir_value first = ir_append(c->b, IR_IF, 1, &predicate, NULL, 0, NULL, 2, regions);
  for (uint32_t i = 0; i < c->out_count; ++i) aten_out(c, i, first + i);
}

/* while_loop(str condition, str body, Tensor[] carried, Tensor[] others): what is carried has its sizes and dtypes for ever. */
static void lower_while_loop(aten_lowering *c) {
  const ir_func *condition = function_of(c, TEXT_1), *body = function_of(c, TEXT_2);
  uint32_t count, carried = c->out_count;
  ir_value *operands = operands_of(c, 2, &count);
  if (!takes(c, condition, count, 1) || !takes(c, body, count, carried)) return;
  base_arena *arena = c->b->func->arena;
  ir_type *types = base_arena_alloc(arena, carried * sizeof *types + 1);
  ir_value *state = base_arena_alloc(arena, carried * sizeof *state + 1);
  ir_value *results = base_arena_alloc(arena, (carried + 1) * sizeof *results);
  if (types == NULL || state == NULL || results == NULL) {
    ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < carried; ++i) {
    types[i] = ir_type_of(body, body->body.first_arg + i);
    state[i] = aten_convert(c, operands[i], (ttpu_dtype)types[i].dtype);
  }
  ir_region *outer, *regions[2];
  for (uint32_t r = 0; r < 2; ++r) {
    regions[r] = ir_region_begin(c->b, carried, types, &outer);
    for (uint32_t i = 0; i < carried; ++i) operands[i] = regions[r]->first_arg + i;
    append_function(c, r == 0 ? condition : body, operands, results);
    if (r == 0) results[0] = truth(c, results[0]);
    ir_region_end(c->b, outer, r == 0 ? 1 : carried, results);
  }
  ir_value first = ir_append(c->b, IR_WHILE, carried, state, NULL, 0, NULL, 2, regions);
  for (uint32_t i = 0; i < carried; ++i) aten_out(c, i, first + i);
}

const aten_row aten_cond_row = {.name = "cond", .lower = lower_cond};
const aten_row aten_while_loop_row = {.name = "while_loop", .lower = lower_while_loop};
