/* Control flow on the device: torch.cond, scan and while_loop. Their functions were recorded apart, as regions (rt_region_begin), and
 * arrive as StableHLO text: static like every text, so part of each key. A function's parameters are the call's tensors
 * in order, row-major in their own sizes. */
#include <string.h>

#include "aten/nn_int.h"

enum { TEXT_1 = 0, TEXT_2 = 1 }; /* where the functions of a row stand: its first arguments */

static ir_func *function_of(aten_lowering *c, uint32_t arg) {
  const char *text = aten_text(c, arg);
  ir_func *f = NULL;
  ttpu_status status = ir_parse(c->b->func->arena, text, strlen(text), &f);
  if (status != TTPU_OK) ir_fail(c->b, status, "%s", base_message());
  return f;
}

/* Appends what f computes of `operands`, its parameters, and puts its results in `results`. */
static void append_function(aten_lowering *c, const ir_func *f, const ir_value *operands, ir_value *results) {
  ir_value *map = nn_scratch(c, f->value_count, sizeof *map);
  if (map == NULL) return;
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
  ir_value *operands = nn_scratch(c, room, sizeof *operands);
  *count = 0;
  for (uint32_t arg = first; operands != NULL && arg < c->call->arg_count; ++arg)
    for (uint32_t i = 0; i < aten_list_count(c, arg); ++i) operands[(*count)++] = aten_list_in(c, arg, i);
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
  ir_value *results = nn_scratch(c, c->out_count, sizeof *results);
  if (results == NULL) return;
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
  ir_type *types = nn_scratch(c, carried, sizeof *types);
  ir_value *state = nn_scratch(c, carried, sizeof *state);
  ir_value *results = nn_scratch(c, carried + 1, sizeof *results); /* the condition has one, whatever is carried */
  if (types == NULL || state == NULL || results == NULL) return;
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

/* ---- scan ---- */

/* A scan as a loop: its state is the number of the step, what is carried, and the results of the steps, stacked, of which each
 * round writes one. What has a slice for each step, and what all steps see, is captured. */
typedef struct scan {
  const ir_func
      *combine; /* of (carried..., a slice of each..., others...): what is carried next, then the step's results */
  uint32_t carried, sliced, others, stacked;
  const ir_value *operands; /* in the order of combine's parameters */
  int64_t steps;
  ttpu_dtype counter;
} scan;

static ir_type result_type(const scan *s, uint32_t result) {
  const ir_func *f = s->combine;
  return ir_type_of(f, f->body.ops[f->body.count - 1]->operands[result]);
}

/* The starts of what lies at `step` in something of `rank` dimensions. */
static ir_value *starts_at(aten_lowering *c, const scan *s, ir_value step, uint32_t rank) {
  ir_value *starts = nn_scratch(c, rank, sizeof *starts);
  if (starts == NULL) return NULL;
  starts[0] = step;
  if (rank > 1) starts[1] = ir_scalar_i64(c->b, s->counter, 0);
  for (uint32_t d = 2; d < rank; ++d) starts[d] = starts[1];
  return starts;
}

static ir_value read_slice(aten_lowering *c, const scan *s, ir_value from, ir_value step) {
  ir_type t = ir_type_of(c->b->func, from);
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < t.rank; ++d) sizes[d] = d == 0 ? 1 : t.dims[d];
  const ir_value *starts = starts_at(c, s, step, t.rank);
  if (starts == NULL) return 0;
  return ir_reshape(c->b, ir_dynamic_slice(c->b, from, starts, sizes), t.rank - 1u, sizes + 1);
}

static ir_value write_slice(aten_lowering *c, const scan *s, ir_value to, ir_value slice, ir_value step) {
  ir_type t = ir_type_of(c->b->func, slice);
  int64_t sizes[TTPU_MAX_RANK] = {1};
  for (uint32_t d = 0; d < t.rank; ++d) sizes[d + 1] = t.dims[d];
  const ir_value *starts = starts_at(c, s, step, t.rank + 1u);
  if (starts == NULL) return 0;
  return ir_dynamic_update_slice(c->b, to, ir_reshape(c->b, slice, t.rank + 1u, sizes), starts);
}

/* The state before the first step. */
static void begin_scan(aten_lowering *c, const scan *s, ir_type *types, ir_value *state) {
  state[0] = ir_scalar_i64(c->b, s->counter, 0);
  for (uint32_t i = 0; i < s->carried; ++i)
    state[1 + i] = aten_convert(c, s->operands[i], (ttpu_dtype)result_type(s, i).dtype);
  for (uint32_t i = s->carried; i < s->carried + s->stacked; ++i) {
    ir_type t = result_type(s, i);
    int64_t sizes[TTPU_MAX_RANK] = {s->steps};
    for (uint32_t d = 0; d < t.rank; ++d) sizes[d + 1] = t.dims[d];
    state[1 + i] = ir_fill_i64(c->b, (ttpu_dtype)t.dtype, t.rank + 1u, sizes, 0);
  }
  for (uint32_t i = 0; i <= s->carried + s->stacked; ++i) types[i] = ir_type_of(c->b->func, state[i]);
}

static ir_region *scan_condition(aten_lowering *c, const scan *s, const ir_type *types) {
  ir_region *outer, *region = ir_region_begin(c->b, 1 + s->carried + s->stacked, types, &outer);
  ir_value last = ir_scalar_i64(c->b, s->counter, s->steps);
  ir_value go = ir_compare(c->b, IR_LT, region->first_arg, last);
  ir_region_end(c->b, outer, 1, &go);
  return region;
}

/* `operands` and `results` have room for combine's. */
static ir_region *scan_body(aten_lowering *c, const scan *s, const ir_type *types, ir_value *operands,
                            ir_value *results) {
  ir_region *outer, *region = ir_region_begin(c->b, 1 + s->carried + s->stacked, types, &outer);
  ir_value step = region->first_arg;
  for (uint32_t i = 0; i < s->carried + s->sliced + s->others; ++i) {
    if (i < s->carried) operands[i] = step + 1 + i;
    else operands[i] = i < s->carried + s->sliced ? read_slice(c, s, s->operands[i], step) : s->operands[i];
  }
  append_function(c, s->combine, operands, results + 1);
  results[0] = ir_add(c->b, step, ir_scalar_i64(c->b, s->counter, 1));
  for (uint32_t i = s->carried; i < s->carried + s->stacked; ++i)
    results[1 + i] = write_slice(c, s, step + 1 + i, results[1 + i], step);
  ir_region_end(c->b, outer, 1 + s->carried + s->stacked, results);
  return region;
}

/* scan(str combine, Tensor[] carried, Tensor[] sliced, Tensor[] others): what is carried in the end, then the results of all
 * steps. */
static void lower_scan(aten_lowering *c) {
  scan s = {.combine = function_of(c, TEXT_1), .carried = aten_list_count(c, 1), .sliced = aten_list_count(c, 2)};
  uint32_t count;
  s.operands = operands_of(c, 1, &count);
  if (!takes(c, s.combine, count, c->out_count)) return;
  s.others = count - s.carried - s.sliced;
  s.stacked = c->out_count - s.carried;
  s.steps = ir_type_of(c->b->func, s.operands[s.carried]).dims[0];
  s.counter = s.steps <= INT32_MAX ? TTPU_I32 : TTPU_I64; /* a TPU has no 64-bit integers of its own */
  uint32_t states = 1 + c->out_count;
  ir_type *types = nn_scratch(c, states, sizeof *types);
  ir_value *state = nn_scratch(c, states, sizeof *state);
  ir_value *operands = nn_scratch(c, count, sizeof *operands);
  ir_value *results = nn_scratch(c, states, sizeof *results);
  if (types == NULL || state == NULL || operands == NULL || results == NULL) return;
  begin_scan(c, &s, types, state);
  ir_region *regions[2] = {scan_condition(c, &s, types), scan_body(c, &s, types, operands, results)};
  ir_value first = ir_append(c->b, IR_WHILE, states, state, NULL, 0, NULL, 2, regions);
  for (uint32_t i = 0; i < c->out_count; ++i) aten_out(c, i, first + 1 + i);
}

const aten_row aten_cond_row = {.name = "cond", .lower = lower_cond};
const aten_row aten_scan_row = {.name = "scan", .lower = lower_scan};
const aten_row aten_while_loop_row = {.name = "while_loop", .lower = lower_while_loop};
