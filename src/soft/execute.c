/* soft_execute: memory for the results and temporaries, then the steps in order.
 *
 * A failed check ends nothing: the indexing itself clamps or skips, so the steps run on, and at the end
 * the function is followed from the check to the results that it spoils. So it is with arguments that never came, in
 * whose place stand zeros. */
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
  soft_damage *damage;
  void **zeros;            /* by parameter, in the place of lost ones; NULL: none is lost */
  uint32_t *failed_checks; /* positions in the function */
  uint32_t check_count, check_capacity, damage_capacity;
} run;

static soft_view view_at(const run *r, const soft_operand *x) {
  soft_view v = {.dtype = x->type.dtype, .rank = x->type.rank};
  v.data = (uint8_t *)r->memory[x->place.buffer] + x->place.offset * (int64_t)base_dtype_bytes(x->type.dtype);
  for (uint32_t d = 0; d < v.rank; ++d) v.dims[d] = x->type.dims[d], v.strides[d] = x->place.strides[d];
  return v;
}

/* ---- memory ----------------------------------------------------------------------------------- */

static bool is_exclusive(const soft_block *b) { return atomic_load(&((soft_block *)(uintptr_t)b)->refs) == 1; }

static bool is_lost(const run *r, uint32_t parameter) {
  return r->damage && r->damage->lost && r->damage->lost[parameter];
}

static ttpu_status open_zeros(run *r) {
  const ir_region *body = &r->e->f->body;
  r->zeros = base_calloc(r->e->param_count, sizeof *r->zeros);
  if (!r->zeros) return base_no_memory(r->e->param_count * sizeof *r->zeros);
  for (uint32_t i = 0; i < r->e->param_count; ++i) {
    if (!r->damage->lost[i]) continue;
    ir_type t = ir_type_of(r->e->f, body->first_arg + i);
    size_t bytes = (size_t)ir_numel(t) * base_dtype_bytes(t.dtype);
    r->zeros[i] = base_calloc(1, bytes + 64);
    if (!r->zeros[i]) return base_no_memory(bytes);
  }
  return TTPU_OK;
}

static void close_zeros(run *r) {
  for (uint32_t i = 0; r->zeros && i < r->e->param_count; ++i) base_free(r->zeros[i]);
  base_free(r->zeros);
}

/* Result buffer b: its donor's block if nobody else holds that, else a new one. */
static ttpu_status open_result(run *r, const opt_buffer *b) {
  soft_block **result = &r->results[b->number];
  if (b->donor != OPT_NO_BUFFER) {
    uint32_t i = r->e->buffers[b->donor].number;
    if (r->donated && r->donated[i] && !is_lost(r, i) && is_exclusive(r->arguments[i])) {
      *result = soft_block_share(r->arguments[i]); /* the donated reference is given up at the end */
      soft_block_forget(*result);
      return TTPU_OK;
    }
  }
  return soft_block_new(r->hbm, b->bytes, result);
}

/* Buffers that share memory have that of the last of them. */
static void *memory_of(const run *r, uint32_t buffer) {
  while (r->e->buffers[buffer].same != buffer) buffer = r->e->buffers[buffer].same;
  return r->memory[buffer];
}

static ttpu_status open_memory(run *r) {
  const soft_executable *e = r->e;
  if (e->slab_bytes) BASE_TRY(soft_block_new(r->hbm, e->slab_bytes, &r->slab));
  for (uint32_t i = 0; i < e->buffer_count; ++i) {
    const opt_buffer *b = &e->buffers[i];
    switch (b->kind) {
      case BUFFER_PARAM:
        r->memory[i] = is_lost(r, b->number) ? r->zeros[b->number] : r->arguments[b->number]->data;
        break;
      case BUFFER_CONSTANT: r->memory[i] = (void *)(uintptr_t)b->data; break;
      case BUFFER_TEMP: r->memory[i] = r->slab ? (uint8_t *)r->slab->data + b->offset : NULL; break;
      case BUFFER_RESULT:
        BASE_TRY(open_result(r, b));
        r->memory[i] = r->results[b->number]->data;
        break;
    }
  }
  for (uint32_t i = 0; i < e->buffer_count; ++i) r->memory[i] = memory_of(r, i);
  for (uint32_t i = 0; i < e->result_count; ++i) {
    const opt_buffer *b = &e->buffers[e->result_buffers[i]];
    if (b->kind == BUFFER_PARAM && !is_lost(r, b->number)) r->results[i] = soft_block_share(r->arguments[b->number]);
  }
  return TTPU_OK;
}

static void release_arguments(const run *r) {
  for (uint32_t i = 0; i < r->e->param_count; ++i)
    if (r->donated && r->donated[i]) soft_block_free(r->arguments[i]); /* NULL where it is lost */
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

/* The parameter's block that the place lies in, if its value outlives this run: nothing writes it. */
static soft_block *kept_block(const run *r, const opt_place *place) {
  const opt_buffer *b = &r->e->buffers[place->buffer];
  if (!r->arguments || b->kind != BUFFER_PARAM || b->written || is_lost(r, b->number)) return NULL;
  return r->arguments[b->number];
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
    case IR_DOT_GENERAL: status = opt_run_dot(s->op, x, y, kept_block(r, &s->operands[1].place)); break;
    case IR_CONVOLUTION:
      status = opt_run_convolution(r->e->f, s->op, x, y, kept_block(r, &s->operands[1].place));
      break;
    case IR_ATTENTION:
      status = attention_has_kernel(x) ? opt_run_attention(s->op, x, y) : soft_reference_op(r->e->f, s->op, x, y);
      break;
    default:
      status = s->kind == RUN_CONTROL ? opt_run_control(s, r->hbm, x, y) : soft_kernel_op(r->e->f, s->op, x, y);
      break;
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

/* The check at a position of the function failed, with this thread's message. */
static ttpu_status note_failed_check(run *r, uint32_t position, ttpu_status status) {
  soft_damage *d = r->damage;
  if (!BASE_GROW(r->failed_checks, r->check_count, r->check_capacity) ||
      !BASE_GROW(d->checks, r->check_count, r->damage_capacity))
    return base_no_memory(sizeof *d->checks);
  size_t bytes = strlen(base_message()) + 1;
  char *message = base_alloc(bytes);
  if (message) memcpy(message, base_message(), bytes);
  r->failed_checks[r->check_count] = position;
  d->checks[r->check_count++] = (soft_failed_check){status, message};
  d->check_count = r->check_count;
  return TTPU_OK;
}

static ttpu_status run_steps(run *r) {
  for (uint32_t i = 0; i < r->e->step_count; ++i) {
    const soft_step *s = &r->e->steps[i];
    ttpu_status status = run_step(r, s);
    if (status == TTPU_OK) continue;
    if (s->op && s->op->source) status = base_fail_context(status, "%s", s->op->source);
    if (!r->damage || !s->op || s->op->kind != IR_CHECK_INDEX) return status;
    BASE_TRY(note_failed_check(r, s->op->index, status));
  }
  return TTPU_OK;
}

/* ---- what a failure spoils ---------------------------------------------------------------------- */

static uint32_t first_of(uint32_t a, uint32_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The cause that an operation's operands and captured values carry, by value. */
static uint32_t inherited(const ir_func *f, const ir_op *op, const uint32_t *causes, ir_value *captures) {
  uint32_t cause = 0, n = soft_op_captures(f, op, captures);
  for (uint32_t k = 0; k < op->operand_count; ++k) cause = first_of(cause, causes[op->operands[k]]);
  for (uint32_t k = 0; k < n; ++k) cause = first_of(cause, causes[captures[k]]);
  return cause;
}

/* Checks stand beside what they guard and not always before it: a failed one spoils all that its operator made, which
 * are the operations around it with the same source. */
static void mark_operator(const ir_region *body, uint32_t position, uint32_t cause, uint32_t *own) {
  const char *source = body->ops[position]->source;
  own[position] = first_of(own[position], cause);
  for (uint32_t i = position; source && i-- > 0 && body->ops[i]->source == source;) own[i] = first_of(own[i], cause);
  for (uint32_t i = position + 1; source && i < body->count && body->ops[i]->source == source; ++i)
    own[i] = first_of(own[i], cause);
}

static ttpu_status find_causes(const run *r) {
  const ir_func *f = r->e->f;
  const ir_region *body = &f->body;
  const ir_op *ret = body->ops[body->count - 1];
  soft_damage *d = r->damage;
  size_t words = (size_t)body->count + 2 * (f->value_count + 1);
  uint32_t *own = base_calloc(words, sizeof *own), *causes = own + body->count;
  if (!own) return base_no_memory(words * sizeof *own);
  ir_value *captures = causes + f->value_count + 1;
  for (uint32_t i = 0; d->lost && i < r->e->param_count; ++i)
    if (d->lost[i]) causes[body->first_arg + i] = 1 + i;
  for (uint32_t i = 0; i < r->check_count; ++i)
    mark_operator(body, r->failed_checks[i], 1 + r->e->param_count + i, own);
  for (uint32_t i = 0; i + 1 < body->count; ++i) {
    uint32_t cause = first_of(own[i], inherited(f, body->ops[i], causes, captures));
    for (uint32_t k = 0; k < body->ops[i]->result_count; ++k) causes[body->ops[i]->first_result + k] = cause;
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i) {
    d->causes[i] = causes[ret->operands[i]];
    if (d->causes[i] == 0) continue;
    soft_block_free(r->results[i]);
    r->results[i] = NULL;
  }
  base_free(own);
  return TTPU_OK;
}

/* What the reference makes of lost arguments: it runs all or nothing. */
static void spoil_everything(const run *r) {
  uint32_t cause = 0;
  while (!r->damage->lost[cause++]) {}
  for (uint32_t i = 0; i < r->e->result_count; ++i) r->damage->causes[i] = cause;
}

void soft_damage_free(soft_damage *d) {
  for (uint32_t i = 0; i < d->check_count; ++i) base_free(d->checks[i].message);
  base_free(d->checks);
  d->checks = NULL;
  d->check_count = 0;
}

bool soft_executable_can_fail_in_part(const soft_executable *e) {
  for (uint32_t i = 0; i < e->step_count; ++i)
    if (e->steps[i].op && e->steps[i].op->kind == IR_CHECK_INDEX) return true;
  return false;
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

ttpu_status opt_run_inner(const soft_executable *e, soft_hbm *hbm, void *slab, void *const *params,
                          void *const *results) {
  enum { FEW = 128 };
  void *few[FEW];
  run r = {.e = e, .hbm = hbm, .memory = few};
  if (e->buffer_count > FEW && !(r.memory = base_alloc(e->buffer_count * sizeof *r.memory)))
    return base_no_memory(e->buffer_count * sizeof *r.memory);
  for (uint32_t i = 0; i < e->buffer_count; ++i) {
    const opt_buffer *b = &e->buffers[i];
    switch (b->kind) {
      case BUFFER_PARAM: r.memory[i] = params[b->number]; break;
      case BUFFER_CONSTANT: r.memory[i] = (void *)(uintptr_t)b->data; break;
      case BUFFER_TEMP: r.memory[i] = (uint8_t *)slab + b->offset; break;
      case BUFFER_RESULT: r.memory[i] = results[b->number]; break;
    }
  }
  for (uint32_t i = 0; i < e->buffer_count; ++i) r.memory[i] = memory_of(&r, i);
  ttpu_status status = run_steps(&r);
  if (r.memory != few) base_free(r.memory);
  return status;
}

ttpu_status soft_execute(const soft_executable *e, soft_hbm *hbm, soft_block *const *arguments, const bool *donated,
                         soft_block **results, soft_damage *damage) {
  enum { FEW = 256 };
  void *few[FEW];
  run r = {.e = e,
           .hbm = hbm,
           .arguments = arguments,
           .donated = donated,
           .results = results,
           .memory = few,
           .damage = damage};
  ttpu_status status = TTPU_OK;
  memset(results, 0, e->result_count * sizeof *results);
  bool lost = damage && damage->lost;
  if (e->reference) {
    if (lost) spoil_everything(&r);
    else status = run_reference(&r);
  } else {
    if (e->buffer_count > FEW && !(r.memory = base_alloc(e->buffer_count * sizeof *r.memory)))
      status = base_no_memory(e->buffer_count * sizeof *r.memory);
    if (status == TTPU_OK && lost) status = open_zeros(&r);
    if (status == TTPU_OK) status = open_memory(&r);
    if (status == TTPU_OK) status = run_steps(&r);
    if (status == TTPU_OK && damage && (lost || r.check_count > 0)) status = find_causes(&r);
    if (r.memory != few) base_free(r.memory);
    close_zeros(&r);
    base_free(r.failed_checks);
  }
  soft_block_free(r.slab);
  if (status != TTPU_OK) release_results(&r);
  release_arguments(&r);
  opt_count_execution();
  return status;
}
