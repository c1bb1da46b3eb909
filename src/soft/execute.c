/* soft_execute: memory for the results and temporaries, then the steps in order. */
#include <alloca.h>
#include <string.h>

#include "soft/opt/opt.h"

/* One execution. */
typedef struct run {
  const soft_executable *e;
  soft_hbm *hbm;
  soft_block *const *arguments;
  const bool *donated;
  soft_block **results;
  soft_block *slab;
  void **memory; /* by buffer */
} run;

static soft_view view_at(const run *r, const soft_operand *x) {
  soft_view v = {.dtype = x->type.dtype, .rank = x->type.rank};
  v.data = (uint8_t *)r->memory[x->place.buffer] + x->place.offset * (int64_t)base_dtype_bytes(x->type.dtype);
  for (uint32_t d = 0; d < v.rank; ++d) v.dims[d] = x->type.dims[d], v.strides[d] = x->place.strides[d];
  return v;
}

/* ---- memory ----------------------------------------------------------------------------------- */

static bool is_exclusive(const soft_block *b) { return atomic_load(&((soft_block *)(uintptr_t)b)->refs) == 1; }

/* Result buffer b: its donor's block if nobody else holds that, else a new one. */
static ttpu_status open_result(run *r, const opt_buffer *b) {
  soft_block **result = &r->results[b->number];
  if (b->donor != OPT_NO_BUFFER) {
    uint32_t i = r->e->buffers[b->donor].number;
    if (r->donated && r->donated[i] && is_exclusive(r->arguments[i])) {
      *result = soft_block_share(r->arguments[i]); /* the donated reference is given up at the end */
      return TTPU_OK;
    }
  }
  return soft_block_new(r->hbm, b->bytes, result);
}

static ttpu_status open_memory(run *r) {
  const soft_executable *e = r->e;
  if (e->slab_bytes) BASE_TRY(soft_block_new(r->hbm, e->slab_bytes, &r->slab));
  for (uint32_t i = 0; i < e->buffer_count; ++i) {
    const opt_buffer *b = &e->buffers[i];
    switch (b->kind) {
      case BUFFER_PARAM: r->memory[i] = r->arguments[b->number]->data; break;
      case BUFFER_CONSTANT: r->memory[i] = (void *)(uintptr_t)b->data; break;
      case BUFFER_TEMP: r->memory[i] = r->slab ? (uint8_t *)r->slab->data + b->offset : NULL; break;
      case BUFFER_RESULT:
        BASE_TRY(open_result(r, b));
        r->memory[i] = r->results[b->number]->data;
        break;
    }
  }
  for (uint32_t i = 0; i < e->buffer_count; ++i) {
    uint32_t root = i;
    while (e->buffers[root].same != root) root = e->buffers[root].same;
    r->memory[i] = r->memory[root];
  }
  for (uint32_t i = 0; i < e->result_count; ++i)
    if (e->buffers[e->result_buffers[i]].kind == BUFFER_PARAM)
      r->results[i] = soft_block_share(r->arguments[e->buffers[e->result_buffers[i]].number]);
  return TTPU_OK;
}

static void release_arguments(const run *r) {
  for (uint32_t i = 0; i < r->e->param_count; ++i)
    if (r->donated && r->donated[i]) soft_block_free(r->arguments[i]);
}
static void release_results(const run *r) {
  for (uint32_t i = 0; i < r->e->result_count; ++i) {
    soft_block_free(r->results[i]);
    r->results[i] = NULL;
  }
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* f8 goes to the reference. */
static bool attention_has_kernel(const soft_view *q) {
  return q->dtype == TTPU_F32 || q->dtype == TTPU_BF16 || q->dtype == TTPU_F16 || q->dtype == TTPU_F64;
}

static ttpu_status run_op(const run *r, const soft_step *s) {
  enum { FEW = 12 };
  uint32_t count = s->operand_count + s->result_count;
  soft_view few[FEW], *views = few;
  if (count > FEW && !(views = base_alloc(count * sizeof *views))) return base_no_memory(count * sizeof *views);
  for (uint32_t i = 0; i < s->operand_count; ++i) views[i] = view_at(r, &s->operands[i]);
  for (uint32_t i = 0; i < s->result_count; ++i) views[s->operand_count + i] = view_at(r, &s->results[i]);
  const soft_view *x = views, *y = views + s->operand_count;
  ttpu_status status;
  switch (s->op->kind) {
    case IR_DOT_GENERAL: status = opt_run_dot(s->op, x, y); break;
    case IR_CONVOLUTION: status = opt_run_convolution(r->e->f, s->op, x, y); break;
    case IR_ATTENTION:
      status = attention_has_kernel(x) ? opt_run_attention(s->op, x, y) : soft_reference_op(r->e->f, s->op, x, y);
      break;
    default: status = soft_kernel_op(r->e->f, s->op, x, y); break;
  }
  if (views != few) base_free(views);
  return status;
}

static void run_copy(const run *r, const soft_step *s) {
  soft_view from = view_at(r, &s->operands[0]), to = view_at(r, &s->results[0]);
  kern_copy(&to, &from);
}

static void run_update(const run *r, const soft_step *s) {
  soft_view old = view_at(r, &s->operands[0]), whole = view_at(r, &s->results[0]);
  if (old.data != whole.data) kern_copy(&whole, &old);
  soft_view part = view_at(r, &s->operands[1]), to = view_at(r, &s->results[1]);
  kern_copy(&to, &part);
}

static ttpu_status run_step(const run *r, const soft_step *s) {
  switch (s->kind) {
    case RUN_TILE: tile_run(s->tile, r->memory); return TTPU_OK;
    case RUN_COPY: run_copy(r, s); return TTPU_OK;
    case RUN_UPDATE: run_update(r, s); return TTPU_OK;
    case RUN_RAMP: {
      soft_view to = view_at(r, &s->results[0]);
      tile_ramp(to.dtype, to.dims[0], to.data);
      return TTPU_OK;
    }
    default: return run_op(r, s);
  }
}

static ttpu_status run_steps(const run *r) {
  for (uint32_t i = 0; i < r->e->step_count; ++i) {
    const soft_step *s = &r->e->steps[i];
    ttpu_status status = run_step(r, s);
    if (status == TTPU_OK) continue;
    return s->op && s->op->source ? base_fail_context(status, "%s", s->op->source) : status;
  }
  return TTPU_OK;
}

/* ---- the reference ---------------------------------------------------------------------------- */

static ttpu_status run_reference(run *r) {
  const ir_func *f = r->e->f;
  const ir_op *ret = f->body.ops[f->body.count - 1];
  uint32_t params = r->e->param_count, results = r->e->result_count;
  void **memory = base_calloc(params + results + 1, sizeof *memory);
  ttpu_status status = memory ? TTPU_OK : base_no_memory((params + results) * sizeof *memory);
  for (uint32_t i = 0; i < params && status == TTPU_OK; ++i) memory[i] = r->arguments[i]->data;
  for (uint32_t i = 0; i < results && status == TTPU_OK; ++i) {
    ir_type t = ir_type_of(f, ret->operands[i]);
    status = soft_block_new(r->hbm, (size_t)ir_numel(t) * base_dtype_bytes(t.dtype), &r->results[i]);
    if (status == TTPU_OK) memory[params + i] = r->results[i]->data;
  }
  if (status == TTPU_OK) status = soft_reference_run(f, memory, memory + params);
  base_free(memory);
  return status;
}

/* ---- the entry -------------------------------------------------------------------------------- */

ttpu_status soft_execute(const soft_executable *e, soft_hbm *hbm, soft_block *const *arguments, const bool *donated,
                         soft_block **results) {
  enum { FEW = 256 };
  void *few[FEW];
  run r = {.e = e, .hbm = hbm, .arguments = arguments, .donated = donated, .results = results, .memory = few};
  ttpu_status status = TTPU_OK;
  memset(results, 0, e->result_count * sizeof *results);
  if (e->reference) {
    status = run_reference(&r);
  } else {
    if (e->buffer_count > FEW && !(r.memory = base_alloc(e->buffer_count * sizeof *r.memory)))
      status = base_no_memory(e->buffer_count * sizeof *r.memory);
    if (status == TTPU_OK) status = open_memory(&r);
    if (status == TTPU_OK) status = run_steps(&r);
    if (r.memory != few) base_free(r.memory);
  }
  soft_block_free(r.slab);
  if (status != TTPU_OK) release_results(&r);
  release_arguments(&r);
  opt_count_execution();
  return status;
}
