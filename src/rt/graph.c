/* A function recorded once as one program and run again on other arguments: what torch.compile makes of a graph.
 *
 * Between rt_graph_begin and rt_graph_end the device's trace is not cut, and at the end it runs as one piece. The graph
 * remembers where each input of that piece came from (an argument's storage, or a value that is the same each time) and
 * which storages its results went to. A run takes the arguments' present values, starts the program, and moves the results
 * to new storages and into the arguments that the function wrote. */
#include <string.h>

#include "rt/rt_int.h"

enum { NOT_AN_ARGUMENT = UINT32_MAX };

/* A value of the trace that the program did not make. */
typedef struct graph_source {
  uint32_t argument;  /* it is this one's, or: */
  rt_value *constant; /* the same each time */
} graph_source;

typedef struct graph_input {
  graph_source from;
  bool donate; /* of an argument that is written: its old value may become the new one */
} graph_input;

/* Where a value goes: into a storage, counted through the arguments, then the results. */
typedef struct graph_target {
  uint32_t storage;
  uint32_t output;   /* of the program; NOT_AN_OUTPUT: */
  graph_source from; /* handed on */
} graph_target;
enum { NOT_AN_OUTPUT = UINT32_MAX };

struct rt_graph {
  uint32_t device;
  rt_program *program;
  uint32_t argument_count, input_count, output_count, target_count;
  graph_input *inputs;
  rt_value **outputs; /* models of the values: dtype and dims */
  graph_target *targets;
  rt_numbers numbers;
  uint32_t random_count;
  uint32_t *random_slots;   /* of a seed and an offset, in the i64 numbers */
  uint64_t *random_offsets; /* beyond the run's first */
  uint64_t random_drawn;    /* in all */
  base_text text;           /* the program, for whoever wants to see it */
};

/* What is recorded now. */
struct rt_recording {
  rt_device *device;
  bool keep_text;
  uint32_t argument_count;
  uint32_t locals[]; /* of the arguments' values; RT_NO_LOCAL: never written */
};

/* ---- recording -------------------------------------------------------------------------------- */

static ttpu_status begin(rt_recording *r, rt_storage *const *arguments) {
  rt_device *d = r->device;
  if (d->whole) return base_fail(TTPU_FAILED_PRECONDITION, "a graph is already being recorded on tpu:%u", d->index);
  (void)rt_trace_cut(d); /* its failure is kept for the next synchronisation */
  for (uint32_t i = 0; i < r->argument_count; ++i) {
    rt_value *v = arguments[i]->value;
    r->locals[i] = v != NULL && arguments[i]->device == d->index ? rt_trace_local(d, v) : RT_NO_LOCAL;
    if (r->locals[i] == RT_NO_LOCAL && v != NULL) return base_no_memory(sizeof(rt_local));
  }
  d->whole = true;
  d->was_cut = false;
  return TTPU_OK;
}

ttpu_status rt_graph_begin(uint32_t device, uint32_t count, rt_storage *const *arguments, bool keep_text,
                           rt_recording **out) {
  rt_recording *r = *out = base_calloc(1, sizeof *r + count * sizeof *r->locals);
  if (r == NULL) return base_no_memory(sizeof *r + count * sizeof *r->locals);
  rt_lock();
  r->device = &rt_global.devices[device];
  r->argument_count = count;
  r->keep_text = keep_text;
  ttpu_status status = rt_take_turn(r->device);
  if (status == TTPU_OK) status = begin(r, arguments);
  rt_unlock();
  if (status == TTPU_OK) return TTPU_OK;
  base_free(r);
  *out = NULL;
  return status;
}

static bool is_local(const rt_recording *r, const rt_value *v) { return v->epoch == r->device->trace.epoch; }

static graph_source source_of(const rt_recording *r, rt_value *v) {
  for (uint32_t i = 0; is_local(r, v) && i < r->argument_count; ++i)
    if (r->locals[i] == v->local) return (graph_source){i, NULL};
  return (graph_source){NOT_AN_ARGUMENT, rt_value_share(v)};
}

static ttpu_status copy_inputs(rt_graph *g, const rt_recording *r, const rt_piece *p) {
  const rt_trace *t = &r->device->trace;
  g->inputs = base_calloc(p->input_count + 1u, sizeof *g->inputs);
  if (g->inputs == NULL) return base_no_memory(p->input_count * sizeof *g->inputs);
  for (uint32_t i = 0; i < t->local_count; ++i) {
    if (!t->locals[i].is_input) continue;
    graph_source from = source_of(r, t->locals[i].value);
    g->inputs[g->input_count] = (graph_input){from, from.constant == NULL && p->donate[g->input_count]};
    ++g->input_count;
  }
  return TTPU_OK;
}

static ttpu_status copy_outputs(rt_graph *g, const rt_recording *r, const rt_piece *p) {
  g->outputs = base_calloc(p->output_count + 1u, sizeof *g->outputs);
  if (g->outputs == NULL) return base_no_memory(p->output_count * sizeof *g->outputs);
  for (; g->output_count < p->output_count; ++g->output_count) {
    const rt_value *v = r->device->trace.locals[p->outputs[g->output_count]].value;
    rt_value *model = rt_value_new(v->device, (ttpu_dtype)v->dtype, v->rank, v->dims);
    if (model == NULL) return base_no_memory(sizeof *model);
    g->outputs[g->output_count] = model;
  }
  return TTPU_OK;
}

static uint32_t output_of(const rt_recording *r, const rt_piece *p, const rt_value *v) {
  for (uint32_t i = 0; i < p->output_count; ++i)
    if (r->device->trace.locals[p->outputs[i]].value == v) return i;
  return NOT_AN_OUTPUT;
}

static ttpu_status copy_targets(rt_graph *g, const rt_recording *r, const rt_piece *p, uint32_t count,
                                rt_storage *const *storages) {
  g->targets = base_calloc(count + 1u, sizeof *g->targets);
  if (g->targets == NULL) return base_no_memory(count * sizeof *g->targets);
  for (uint32_t i = 0; i < count; ++i) {
    rt_value *v = storages[i]->value;
    bool written = v != NULL && (i >= r->argument_count || !is_local(r, v) || v->local != r->locals[i]);
    if (!written) continue; /* a result that is zeros; an argument as it was */
    graph_target *to = &g->targets[g->target_count++];
    *to = (graph_target){i, output_of(r, p, v), {NOT_AN_ARGUMENT, NULL}};
    if (to->output == NOT_AN_OUTPUT) to->from = source_of(r, v);
  }
  return TTPU_OK;
}

static void copy_random(rt_graph *g, const rt_trace *t, uint64_t after) {
  for (uint32_t i = 0; i < t->count; ++i) {
    const rt_record_entry *r = t->records[i];
    if (!(r->op->row->flags & ATEN_RNG)) continue;
    g->random_slots[g->random_count] = r->random_slot;
    g->random_offsets[g->random_count++] = (uint64_t)t->i64s[r->random_slot + 1];
  }
  if (g->random_count) g->random_drawn = after - g->random_offsets[0];
  for (uint32_t i = g->random_count; i-- > 0;) g->random_offsets[i] -= g->random_offsets[0];
}

static ttpu_status copy_numbers(rt_graph *g, const rt_trace *t, uint64_t random_after) {
  g->numbers = (rt_numbers){.f64_count = t->f64_count, .i64_count = t->i64_count};
  g->numbers.f64s = base_alloc((t->f64_count + 1u) * sizeof(double));
  g->numbers.i64s = base_alloc((t->i64_count + 1u) * sizeof(int64_t));
  g->random_slots = base_alloc((t->count + 1u) * sizeof *g->random_slots);
  g->random_offsets = base_alloc((t->count + 1u) * sizeof *g->random_offsets);
  if (!g->numbers.f64s || !g->numbers.i64s || !g->random_slots || !g->random_offsets)
    return base_no_memory(t->i64_count * sizeof(int64_t));
  if (t->f64_count) memcpy(g->numbers.f64s, t->f64s, t->f64_count * sizeof(double));
  if (t->i64_count) memcpy(g->numbers.i64s, t->i64s, t->i64_count * sizeof(int64_t));
  copy_random(g, t, random_after);
  return TTPU_OK;
}

/* The trace is lowered once more: its program may have come from a cache, or belong to the plugin by now. */
static ttpu_status copy_text(rt_graph *g, const rt_recording *r, const rt_piece *p) {
  base_arena arena;
  ir_func *f;
  base_arena_init(&arena);
  ttpu_status status = rt_trace_build(r->device, &arena, p->outputs, p->output_count, p->donate, &f);
  if (status == TTPU_OK) status = ir_func_print(f, &g->text);
  base_arena_free(&arena);
  return status;
}

static ttpu_status make(rt_graph *g, const rt_recording *r, const rt_piece *p, uint32_t count,
                        rt_storage *const *storages, uint64_t random_after) {
  g->device = r->device->index;
  g->argument_count = r->argument_count;
  g->program = p->program;
  ++g->program->users;
  BASE_TRY(copy_inputs(g, r, p));
  BASE_TRY(copy_outputs(g, r, p));
  BASE_TRY(copy_targets(g, r, p, count, storages));
  if (r->keep_text) BASE_TRY(copy_text(g, r, p));
  return copy_numbers(g, &r->device->trace, random_after);
}

/* What the graph will read again must survive its first run: with a second holder it is not donated. */
static void hold_constants(const rt_recording *r, bool hold) {
  const rt_trace *t = &r->device->trace;
  for (uint32_t i = 0; i < t->local_count; ++i) {
    bool argument = false;
    for (uint32_t k = 0; k < r->argument_count && !argument; ++k) argument = r->locals[k] == i;
    if (!t->locals[i].is_input || argument) continue;
    if (hold) rt_value_share(t->locals[i].value);
    else rt_value_free(t->locals[i].value);
  }
}

static bool is_elsewhere(const rt_device *d, uint32_t count, rt_storage *const *storages) {
  for (uint32_t i = 0; i < count; ++i)
    if (storages[i]->device != d->index) return true;
  return false;
}

static ttpu_status finish(rt_recording *r, uint32_t count, rt_storage *const *storages, uint64_t random_after,
                          rt_graph **out) {
  rt_device *d = r->device;
  d->whole = false;
  rt_end_turn();
  rt_piece piece;
  bool usable = !d->was_cut && d->trace.count > 0 && !is_elsewhere(d, count, storages);
  if (!usable) return rt_trace_cut(d);
  rt_graph *g = base_calloc(1, sizeof *g);
  hold_constants(r, true);
  ttpu_status status = rt_trace_run(d, &piece), kept = TTPU_OK;
  if (status == TTPU_OK)
    kept = g == NULL ? base_no_memory(sizeof *g) : make(g, r, &piece, count, storages, random_after);
  if (status == TTPU_OK && kept == TTPU_OK) *out = g;
  hold_constants(r, false);
  rt_trace_reset(&d->trace);
  if (*out == NULL) rt_graph_free_locked(g);
  return status; /* a graph that cannot be kept is no error: the function is recorded anew each time */
}

ttpu_status rt_graph_end(rt_recording *r, uint32_t count, rt_storage *const *storages, uint64_t random_after,
                         rt_graph **out) {
  *out = NULL;
  rt_lock();
  ttpu_status status = finish(r, count, storages, random_after, out);
  rt_unlock();
  base_free(r);
  return status;
}

void rt_graph_free_locked(rt_graph *g) {
  if (g == NULL) return;
  for (uint32_t i = 0; i < g->input_count; ++i) rt_value_free(g->inputs[i].from.constant);
  for (uint32_t i = 0; i < g->output_count; ++i) rt_value_free(g->outputs[i]);
  for (uint32_t i = 0; i < g->target_count; ++i) rt_value_free(g->targets[i].from.constant);
  if (g->program != NULL) rt_program_leave(g->program);
  base_free(g->inputs);
  base_free(g->outputs);
  base_free(g->targets);
  base_free(g->numbers.f64s);
  base_free(g->numbers.i64s);
  base_free(g->random_slots);
  base_free(g->random_offsets);
  base_text_free(&g->text);
  base_free(g);
}

void rt_graph_free(rt_graph *g) {
  rt_lock();
  rt_graph_free_locked(g);
  rt_unlock();
}

void rt_graph_take_text(rt_graph *g, base_text *out) {
  *out = g->text;
  g->text = (base_text){0};
}

uint64_t rt_graph_random_drawn(const rt_graph *g) { return g->random_drawn; }

/* ---- running ---------------------------------------------------------------------------------- */

base_hash128 rt_graph_key(uint32_t count, rt_storage *const *arguments) {
  base_hash128 h = {0x67726170, 1};
  rt_lock();
  for (uint32_t i = count; i-- > 0;) arguments[i]->number = i;
  for (uint32_t i = 0; i < count; ++i) {
    const rt_value *v = arguments[i]->value;
    h = base_mix128(h, (uint64_t)arguments[i]->number << 32 | (v == NULL ? 0xffff : v->dtype | (uint64_t)v->rank << 8));
    if (v == NULL) continue;
    for (uint32_t k = 0; k < v->rank; ++k) h = base_mix128(h, (uint64_t)v->dims[k]);
  }
  rt_unlock();
  return h;
}

static rt_value *value_from(const graph_source *s, rt_storage *const *storages) {
  return s->argument == NOT_AN_ARGUMENT ? s->constant : storages[s->argument]->value;
}

static ttpu_status open_run(const rt_graph *g, rt_run *r) {
  uint32_t inputs = g->input_count + 3, outputs = g->output_count;
  size_t pointers = 2 * (size_t)outputs + 3 * (size_t)inputs;
  r->outputs = base_calloc(1, pointers * sizeof(void *) + inputs * sizeof(bool));
  if (r->outputs == NULL) return base_no_memory(pointers * sizeof(void *));
  r->input_count = g->input_count;
  r->output_count = outputs;
  r->made = (pjrt_buffer **)(r->outputs + outputs);
  r->buffers = r->made + outputs;
  r->entered = r->buffers + inputs;
  r->inputs = (rt_value **)(r->entered + inputs);
  r->donate = (bool *)(r->inputs + inputs);
  for (uint32_t i = 0; i < outputs; ++i) {
    const rt_value *model = g->outputs[i];
    r->outputs[i] = rt_value_new(model->device, (ttpu_dtype)model->dtype, model->rank, model->dims);
    if (r->outputs[i] == NULL) return base_no_memory(sizeof *model);
  }
  return TTPU_OK;
}

static void close_run(const rt_graph *g, rt_run *r) {
  for (uint32_t i = 0; r->outputs != NULL && i < g->output_count; ++i) rt_value_free(r->outputs[i]);
  base_free(r->outputs);
}

/* The inputs' values; the error of one that failed. */
static ttpu_status find_inputs(const rt_graph *g, rt_run *r, rt_storage *const *storages) {
  for (uint32_t i = 0; i < g->input_count; ++i) {
    const graph_input *in = &g->inputs[i];
    rt_value *v = value_from(&in->from, storages);
    if (v == NULL || v->state == RT_PENDING)
      return base_fail(TTPU_INTERNAL, "a compiled graph's input %u has no value", i);
    if (v->state == RT_FAILED) return base_fail(v->error->code, "%s", v->error->message);
    r->inputs[i] = v;
    r->donate[i] = in->donate && atomic_load_explicit(&v->refs, memory_order_acquire) == 1;
  }
  return TTPU_OK;
}

static ttpu_status start(const rt_graph *g, rt_run *r, rt_storage *const *storages, rt_random random) {
  rt_device *d = &rt_global.devices[g->device];
  rt_value_free(d->tail); /* this run's results take its place; a value that it holds could not be donated */
  d->tail = NULL;
  BASE_TRY(find_inputs(g, r, storages));
  for (uint32_t i = 0; i < g->random_count; ++i) {
    g->numbers.i64s[g->random_slots[i]] = (int64_t)random.seed;
    g->numbers.i64s[g->random_slots[i] + 1] = (int64_t)(random.offset + g->random_offsets[i]);
  }
  BASE_TRY(rt_launch(d, g->program, &g->numbers, r));
  ++g->program->runs;
  if (g->output_count > 0) d->tail = rt_value_share(r->outputs[g->output_count - 1]);
  return TTPU_OK;
}

/* A value that is handed on is found before any storage changes. */
static void move_results(const rt_graph *g, rt_run *r, rt_storage *const *storages, rt_value **next) {
  for (uint32_t i = 0; i < g->target_count; ++i) {
    const graph_target *to = &g->targets[i];
    rt_value *v = to->output != NOT_AN_OUTPUT ? r->outputs[to->output] : value_from(&to->from, storages);
    next[i] = v != NULL ? rt_value_share(v) : NULL;
  }
  for (uint32_t i = 0; i < g->target_count; ++i) {
    rt_storage *s = storages[g->targets[i].storage];
    rt_value_free(s->value);
    s->value = next[i];
  }
}

static void fail_run(const rt_graph *g, rt_run *r, ttpu_status code) {
  rt_error *e = rt_error_new(code, base_message());
  for (uint32_t i = 0; i < g->output_count; ++i) rt_value_fail(r->outputs[i], e);
  rt_error_free(e);
  rt_device_note_error(&rt_global.devices[g->device], code, base_message());
}

ttpu_status rt_graph_run(rt_graph *g, rt_storage *const *storages, rt_random random) {
  rt_run r = {0};
  rt_value **next = base_alloc((g->target_count + 1u) * sizeof *next);
  ttpu_status status = next == NULL ? base_no_memory(g->target_count * sizeof *next) : open_run(g, &r);
  if (status == TTPU_OK) {
    rt_lock();
    status = rt_take_turn(&rt_global.devices[g->device]);
    if (status == TTPU_OK) {
      (void)rt_trace_cut(&rt_global.devices[g->device]); /* its failure is kept, and its results have failed */
      status = start(g, &r, storages, random);
    }
    if (status != TTPU_OK) fail_run(g, &r, status);
    move_results(g, &r, storages, next);
    rt_unlock();
  }
  close_run(g, &r);
  base_free(next);
  return status;
}
