/* Control flow: the regions of if, case and while as executables of their own.
 *
 * A region becomes a function whose parameters are the region's arguments, then what it captures (constants are copied
 * into it); so its operations are fused and its structure is cached like any other's. A while hands pointers on from one
 * run of the body to the next: a state that the body returns as it came moves nothing, one that it updates in place
 * stays where it is, any other has two buffers that take turns. */
#include <string.h>

#include "soft/kern/data.h"
#include "soft/opt/opt.h"

/* ---- compiling -------------------------------------------------------------------------------- */

bool opt_is_control(const ir_op *op) { return op->kind == IR_IF || op->kind == IR_CASE || op->kind == IR_WHILE; }

static bool is_constant(const ir_func *f, ir_value v) {
  const ir_op *op = ir_def(f, v);
  return op && op->kind == IR_CONSTANT;
}

uint32_t opt_captures(const ir_func *f, const ir_op *op, ir_value *out) {
  uint32_t all = soft_op_captures(f, op, out), n = 0;
  if (!opt_is_control(op) || all == 0) return all;
  ir_value *list = out ? out : base_alloc(all * sizeof *list);
  if (!list) return 0;
  if (!out) soft_op_captures(f, op, list);
  for (uint32_t i = 0; i < all; ++i)
    if (!is_constant(f, list[i])) list[n++] = list[i];
  if (!out) base_free(list);
  return n;
}

static ttpu_status outline(base_arena *arena, const ir_func *f, const ir_op *op, const ir_region *region,
                           const ir_func **out) {
  uint32_t captures = soft_op_captures(f, op, NULL);
  ir_value *map = base_arena_zalloc(arena, (f->value_count + captures + 1) * sizeof *map);
  ir_func *inner = ir_func_new(arena, f->name);
  bool *donate = base_arena_zalloc(arena, region->arg_count + captures + 1);
  if (!map || !inner || !donate) return base_no_memory(f->value_count * sizeof *map);
  ir_value *captured = map + f->value_count;
  soft_op_captures(f, op, captured);
  ir_builder b = ir_builder_on(inner);
  for (uint32_t i = 0; i < region->arg_count; ++i) {
    map[region->first_arg + i] = ir_param(&b, ir_type_of(f, region->first_arg + i));
    donate[i] = true;
  }
  for (uint32_t i = 0; i < captures; ++i)
    if (!is_constant(f, captured[i])) map[captured[i]] = ir_param(&b, ir_type_of(f, captured[i]));
  for (uint32_t i = 0; i < captures; ++i)
    if (is_constant(f, captured[i])) ir_copy_op(&b, f, ir_def(f, captured[i]), map);
  for (uint32_t i = 0; i < region->count; ++i) ir_copy_op(&b, f, region->ops[i], map);
  inner->donate = donate;
  *out = inner;
  return b.status == TTPU_OK ? TTPU_OK : base_fail(b.status, "%s", b.message);
}

static ttpu_status compile_region(const ir_func *f, const ir_op *op, const ir_region *region, soft_executable **out) {
  base_arena *arena = base_arena_new();
  if (!arena) return base_no_memory(sizeof *arena);
  const ir_func *inner;
  ttpu_status status = outline(arena, f, op, region, &inner);
  if (status == TTPU_OK) status = soft_compile(arena, inner, NULL, out);
  if (status == TTPU_OK) return TTPU_OK;
  base_arena_delete(arena);
  return status;
}

ttpu_status opt_compile_regions(const ir_func *f, const ir_op *op, base_arena *arena, soft_executable ***out) {
  *out = base_arena_zalloc(arena, (op->region_count + 1u) * sizeof **out); /* ends with NULL */
  if (!*out) return base_no_memory(op->region_count * sizeof **out);
  for (uint32_t i = 0; i < op->region_count; ++i) BASE_TRY(compile_region(f, op, op->regions[i], &(*out)[i]));
  return TTPU_OK;
}

void opt_free_regions(soft_executable **regions) {
  for (uint32_t i = 0; regions && regions[i]; ++i) soft_executable_free(regions[i]);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static size_t view_bytes(const soft_view *v) {
  return (size_t)base_numel(v->rank, v->dims) * base_dtype_bytes(v->dtype);
}
static size_t padded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* The result is its parameter of the same number, or may be written over it. */
static bool stays(const soft_executable *e, uint32_t result) {
  const opt_buffer *b = &e->buffers[e->result_buffers[result]];
  if (b->kind == BUFFER_PARAM) return b->number == result;
  return b->donor != OPT_NO_BUFFER && e->buffers[b->donor].number == result;
}

/* What one run of a control flow operation needs beside its operands and results. */
typedef struct room {
  soft_block *block;
  uint8_t *next;
  uint8_t *slab;                    /* of whichever region runs */
  void **params, **state, **spares; /* by parameter of a region; the states among them are the first */
  void **targets;                   /* by result of the body */
} room;

static void *take(room *r, size_t bytes) {
  void *p = r->next;
  r->next += padded(bytes);
  return p;
}

/* Captured values as dense memory: where they are, if they lie so, else copied. */
static void place_captures(room *r, uint32_t count, const soft_view *captured, void **params) {
  for (uint32_t i = 0; i < count; ++i) {
    const soft_view *x = &captured[i];
    params[i] = x->data;
    if (soft_view_is_dense(x)) continue;
    soft_view dense = soft_view_dense(x->dtype, x->rank, x->dims, params[i] = take(r, view_bytes(x)));
    kern_copy(&dense, x);
  }
}

static ttpu_status open_room(room *r, const soft_step *s, soft_hbm *hbm, const soft_view *x) {
  uint32_t states = s->op->kind == IR_WHILE ? s->op->operand_count : 0;
  uint32_t most = s->operand_count + s->op->result_count;
  size_t bytes = 0, slab = 0;
  for (uint32_t i = s->op->operand_count; i < s->operand_count; ++i)
    if (!soft_view_is_dense(&x[i])) bytes += padded(view_bytes(&x[i]));
  for (uint32_t i = 0; i < s->op->region_count; ++i)
    if (s->regions[i]->slab_bytes > slab) slab = s->regions[i]->slab_bytes;
  for (uint32_t i = 0; i < states; ++i)
    if (!stays(s->regions[1], i)) bytes += padded(view_bytes(&x[i]));
  *r = (room){.params = base_calloc(4 * (size_t)most + 1, sizeof *r->params)};
  if (!r->params) return base_no_memory(4 * most * sizeof *r->params);
  r->state = r->params; /* a region's parameters begin with them */
  r->spares = r->params + most, r->targets = r->spares + most;
  BASE_TRY(soft_block_new(hbm, bytes + padded(slab) + 64, &r->block));
  r->next = r->block->data;
  r->slab = take(r, slab);
  for (uint32_t i = 0; i < states; ++i)
    if (!stays(s->regions[1], i)) r->spares[i] = take(r, view_bytes(&x[i]));
  place_captures(r, s->operand_count - s->op->operand_count, x + s->op->operand_count, r->params + states);
  return TTPU_OK;
}

static void close_room(room *r) {
  soft_block_free(r->block);
  base_free(r->params);
}

/* ---- running ---------------------------------------------------------------------------------- */

/* Where result i lies after a run: itself, or the parameter that it is. */
static void *result_of(const soft_executable *e, uint32_t i, void *const *params, void *const *targets) {
  const opt_buffer *b = &e->buffers[e->result_buffers[i]];
  return b->kind == BUFFER_PARAM ? params[b->number] : targets[i];
}

static ttpu_status run_branch(room *r, const soft_step *s, soft_hbm *hbm, const soft_view *x, const soft_view *y) {
  int64_t chosen = kern_integer_at(x->dtype, x->data);
  if (s->op->kind == IR_IF) chosen = !chosen;
  else if (chosen < 0 || chosen >= s->op->region_count) chosen = s->op->region_count - 1;
  const soft_executable *e = s->regions[chosen];
  for (uint32_t i = 0; i < e->result_count; ++i) r->targets[i] = y[i].data;
  BASE_TRY(opt_run_inner(e, hbm, r->slab, r->params, r->targets));
  for (uint32_t i = 0; i < e->result_count; ++i) {
    const void *from = result_of(e, i, r->params, r->targets);
    if (from != y[i].data) memcpy(y[i].data, from, view_bytes(&y[i]));
  }
  return TTPU_OK;
}

/* One run of the body; r->state moves on to its results. */
static ttpu_status run_body(room *r, const soft_executable *body, soft_hbm *hbm, const soft_view *y) {
  for (uint32_t i = 0; i < body->result_count; ++i) r->targets[i] = stays(body, i) ? r->state[i] : r->spares[i];
  BASE_TRY(opt_run_inner(body, hbm, r->slab, r->params, r->targets));
  for (uint32_t i = 0; i < body->result_count; ++i) {
    if (stays(body, i)) continue;
    const void *from = result_of(body, i, r->params, r->targets);
    if (from != r->spares[i]) memcpy(r->spares[i], from, view_bytes(&y[i]));
  }
  for (uint32_t i = 0; i < body->result_count; ++i) {
    if (stays(body, i)) continue;
    void *old = r->state[i];
    r->state[i] = r->spares[i], r->spares[i] = old;
  }
  return TTPU_OK;
}

static ttpu_status run_while(room *r, const soft_step *s, soft_hbm *hbm, const soft_view *x, const soft_view *y) {
  const soft_executable *condition = s->regions[0], *body = s->regions[1];
  for (uint32_t i = 0; i < s->op->result_count; ++i) {
    kern_update(&y[i], &x[i]);
    r->state[i] = y[i].data;
  }
  for (;;) {
    uint64_t space = 0;
    void *go = &space;
    BASE_TRY(opt_run_inner(condition, hbm, r->slab, r->params, &go));
    if (!*(const uint8_t *)result_of(condition, 0, r->params, &go)) break;
    BASE_TRY(run_body(r, body, hbm, y));
  }
  for (uint32_t i = 0; i < s->op->result_count; ++i)
    if (r->state[i] != y[i].data) memcpy(y[i].data, r->state[i], view_bytes(&y[i]));
  return TTPU_OK;
}

ttpu_status opt_run_control(const soft_step *s, soft_hbm *hbm, const soft_view *x, const soft_view *y) {
  room r;
  ttpu_status status = open_room(&r, s, hbm, x);
  if (status == TTPU_OK) status = s->op->kind == IR_WHILE ? run_while(&r, s, hbm, x, y) : run_branch(&r, s, hbm, x, y);
  close_room(&r);
  return status;
}
