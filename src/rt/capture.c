/* Recording a whole function as one program that does not run.
 *
 * A capture is the device's trace, not cut until the capture ends. Every storage that lives at its beginning is marked and
 * keeps its value aside (`before`); whatever the function writes there is a result of the program, and is undone at the
 * end. What other storages hold then are results too. An argument needs no data: a value without any is a failed one whose
 * error says so, so that reading it outside of a capture is an error like any other. */
#include <string.h>

#include "rt/rt_int.h"

static const char no_data[] =
    "this tensor has a size and no data: it was made for, or while, capturing a program to be compiled ahead of time";

/* ---- values without data ---- */

ttpu_status rt_storage_new_absent(uint32_t device, ttpu_dtype dtype, uint32_t rank, const int64_t *dims,
                                  rt_storage **out) {
  rt_value *v = rt_value_new(device, dtype, rank, dims);
  if (v == NULL) return base_no_memory(sizeof *v);
  rt_error *e = rt_error_new(TTPU_FAILED_PRECONDITION, no_data);
  rt_value_fail(v, e);
  rt_error_free(e);
  ttpu_status status = rt_storage_make(device, (size_t)v->numel * base_dtype_bytes(dtype), true, out);
  if (status != TTPU_OK) {
    rt_value_free(v);
    return status;
  }
  (*out)->value = v; /* nobody else has it yet */
  return TTPU_OK;
}

/* ---- beginning ---- */

static void mark_older(const rt_device *d) {
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next) {
    if (s->device != d->index) continue;
    s->is_older = true;
    s->before = s->value != NULL ? rt_value_share(s->value) : NULL;
  }
}

/* Gives the older storages their values back; the trace still holds those that it drops. */
static void restore_older(const rt_device *d) {
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next) {
    if (s->device != d->index || !s->is_older) continue;
    rt_value_free(s->value);
    s->value = s->before;
    s->before = NULL;
    s->is_older = false;
  }
}

static ttpu_status begin(rt_device *d, uint32_t count, rt_storage *const *arguments) {
  if (d->capturing)
    return base_fail(TTPU_FAILED_PRECONDITION, "a program is already being captured on tpu:%u", d->index);
  (void)rt_trace_cut(d); /* its failure is kept for the next synchronisation */
  for (uint32_t i = 0; i < count; ++i) {
    if (arguments[i]->device != d->index)
      return base_fail(TTPU_INVALID_ARGUMENT, "argument %u is on tpu:%u, the program on tpu:%u", i,
                       arguments[i]->device, d->index);
    if (arguments[i]->value == NULL) continue; /* never written: zeros, which are no argument */
    if (rt_trace_local(d, arguments[i]->value) == RT_NO_LOCAL) return base_no_memory(sizeof(rt_local));
  }
  d->capturing = true;
  mark_older(d);
  return TTPU_OK;
}

ttpu_status rt_capture_begin(uint32_t device, uint32_t count, rt_storage *const *arguments) {
  if (device >= rt_global.device_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "tpu:%u does not exist; there are %u devices", device,
                     rt_global.device_count);
  rt_lock();
  ttpu_status status = rt_take_turn(&rt_global.devices[device]);
  if (status == TTPU_OK) status = begin(&rt_global.devices[device], count, arguments);
  rt_unlock();
  return status;
}

/* ---- the end ---- */

typedef struct results {
  rt_device *d;
  rt_captured *captured;
  uint32_t *locals;    /* of each result */
  bool *listed;        /* by local */
  uint32_t *arguments; /* by local: an input's number */
} results;

static bool is_local(const results *r, const rt_value *v) { return v != NULL && v->epoch == r->d->trace.epoch; }

static bool same_type(const rt_value *a, const rt_value *b) {
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

static rt_captured_value describe(base_arena *arena, const rt_value *v, const void *address) {
  int64_t *dims = base_arena_dup(arena, v->dims, v->rank * sizeof *v->dims);
  return (rt_captured_value){address, {v->dtype, v->rank, dims}, RT_NO_ALIAS};
}

/* Appends the storage's value, if it belongs to the program and is not there yet. */
static void add_result(results *r, const rt_storage *s) {
  const rt_value *v = s->value;
  if (!is_local(r, v) || r->listed[v->local]) return;
  r->listed[v->local] = true;
  uint32_t at = r->captured->result_count++;
  r->locals[at] = v->local;
  r->captured->results[at] = describe(&r->captured->arena, v, s->address);
  const rt_local *before = s->is_older && is_local(r, s->before) ? &r->d->trace.locals[s->before->local] : NULL;
  if (before != NULL && before->is_input && s->before != v && same_type(s->before, v))
    r->captured->arguments[r->arguments[s->before->local]].alias = (int32_t)at;
}

/* What was written, in the order in which it was made, whatever the order of the storages' list. */
static void add_written(results *r) {
  const rt_trace *t = &r->d->trace;
  const rt_storage **by_local = base_arena_zalloc(&r->captured->arena, t->local_count * sizeof *by_local + 1);
  if (by_local == NULL) return;
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next)
    if (s->device == r->d->index && is_local(r, s->value) && !t->locals[s->value->local].is_input)
      by_local[s->value->local] = s;
  for (uint32_t i = 0; i < t->local_count; ++i)
    if (by_local[i] != NULL) add_result(r, by_local[i]);
}

/* The address of the storage that an input's value is in, now or at the beginning. */
static void add_addresses(results *r) {
  const rt_trace *t = &r->d->trace;
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next) {
    const rt_value *v = s->is_older ? s->before : s->value;
    if (s->device == r->d->index && is_local(r, v) && t->locals[v->local].is_input)
      r->captured->arguments[r->arguments[v->local]].address = s->address;
  }
}

static void add_arguments(results *r) {
  const rt_trace *t = &r->d->trace;
  rt_captured *c = r->captured;
  for (uint32_t i = 0; i < t->local_count; ++i) {
    if (!t->locals[i].is_input) continue;
    r->arguments[i] = c->argument_count;
    c->arguments[c->argument_count++] = describe(&c->arena, t->locals[i].value, NULL);
  }
  const int64_t counts[2] = {t->f64_count, t->i64_count};
  const ttpu_dtype dtypes[2] = {TTPU_F64, TTPU_I64};
  for (int i = 0; i < 2; ++i) {
    if (counts[i] == 0) continue;
    const int64_t *dims = base_arena_dup(&c->arena, &counts[i], sizeof counts[i]);
    c->arguments[c->argument_count++] = (rt_captured_value){NULL, {(uint8_t)dtypes[i], 1, dims}, RT_NO_ALIAS};
  }
  add_addresses(r);
}

/* The numbers, and where random operators have theirs. */
static ttpu_status copy_numbers(const rt_trace *t, rt_captured *out) {
  uint32_t *slots = base_arena_alloc(&out->arena, t->count * sizeof *slots + 1);
  out->f64_count = t->f64_count;
  out->i64_count = t->i64_count;
  out->f64s = base_arena_dup(&out->arena, t->f64s, t->f64_count * sizeof *t->f64s);
  out->i64s = base_arena_dup(&out->arena, t->i64s, t->i64_count * sizeof *t->i64s);
  if (slots == NULL || (t->f64_count && !out->f64s) || (t->i64_count && !out->i64s))
    return base_no_memory((t->f64_count + t->i64_count) * sizeof *t->i64s);
  for (uint32_t i = 0; i < t->count; ++i)
    if (t->records[i]->op->row->flags & ATEN_RNG) slots[out->random_count++] = t->records[i]->random_slot;
  out->random_slots = slots;
  return TTPU_OK;
}

/* Lists arguments and results, and lowers the trace. */
static ttpu_status build(rt_device *d, uint32_t count, rt_storage *const *returned, rt_captured *out) {
  const rt_trace *t = &d->trace;
  base_arena *a = &out->arena;
  uint32_t locals = t->local_count;
  results r = {.d = d, .captured = out};
  r.locals = base_arena_zalloc(a, (locals + 1u) * sizeof *r.locals);
  r.listed = base_arena_zalloc(a, locals + 1u);
  r.arguments = base_arena_zalloc(a, (locals + 1u) * sizeof *r.arguments);
  bool *donate = base_arena_zalloc(a, locals + 2u); /* aliases say it */
  out->arguments = base_arena_zalloc(a, (locals + 2u) * sizeof *out->arguments);
  out->results = base_arena_zalloc(a, (locals + 1u) * sizeof *out->results);
  if (!r.locals || !r.listed || !r.arguments || !donate || !out->arguments || !out->results)
    return base_no_memory(locals * sizeof *out->results);
  add_arguments(&r);
  for (uint32_t i = 0; i < count; ++i) add_result(&r, returned[i]);
  add_written(&r);
  out->operators = t->count;
  BASE_TRY(copy_numbers(t, out));
  return rt_trace_build(d, a, r.locals, out->result_count, donate, &out->func);
}

/* What the program made has no data, in whatever storage it is. */
static void forget_values(rt_device *d) {
  rt_trace *t = &d->trace;
  rt_error *e = rt_error_new(TTPU_FAILED_PRECONDITION, no_data);
  for (uint32_t i = 0; i < t->local_count; ++i)
    if (t->locals[i].value->state == RT_PENDING) rt_value_fail(t->locals[i].value, e);
  rt_error_free(e);
}

static void end(rt_device *d) {
  if (!d->capturing) return;
  restore_older(d);
  forget_values(d);
  rt_trace_reset(&d->trace);
  d->capturing = false;
  rt_end_turn();
}

ttpu_status rt_capture_end(uint32_t device, uint32_t count, rt_storage *const *returned, rt_captured *out) {
  *out = (rt_captured){0};
  base_arena_init(&out->arena);
  if (device >= rt_global.device_count || !rt_global.devices[device].capturing)
    return base_fail(TTPU_FAILED_PRECONDITION, "no program is being captured on tpu:%u", device);
  rt_lock();
  rt_device *d = &rt_global.devices[device];
  ttpu_status status = build(d, count, returned, out);
  end(d);
  rt_unlock();
  return status;
}

void rt_captured_free(rt_captured *c) { base_arena_free(&c->arena); }

void rt_capture_cancel(uint32_t device) {
  if (device >= rt_global.device_count) return;
  rt_lock();
  end(&rt_global.devices[device]);
  rt_unlock();
}

bool rt_is_capturing(uint32_t device) {
  rt_lock();
  bool capturing = device < rt_global.device_count && rt_global.devices[device].capturing;
  rt_unlock();
  return capturing && rt_records_here();
}

/* ---- regions ---- */

struct rt_region {
  rt_device *device;
  uint32_t argument_count;
  rt_trace outer;
  bool capturing, whole, was_cut; /* of the device, outside */
};

static ttpu_status name_arguments(rt_device *d, uint32_t count, rt_storage *const *arguments) {
  for (uint32_t i = 0; i < count; ++i) {
    rt_value *v = arguments[i]->value;
    if (v == NULL || v->epoch == d->trace.epoch)
      return base_fail(TTPU_INVALID_ARGUMENT, "argument %u of a region is not one of its own", i);
    if (rt_trace_local(d, v) == RT_NO_LOCAL) return base_no_memory(sizeof(rt_local));
  }
  return TTPU_OK;
}

ttpu_status rt_region_begin(uint32_t device, uint32_t count, rt_storage *const *arguments, rt_region **out) {
  rt_region *r = *out = base_calloc(1, sizeof *r);
  if (r == NULL) return base_no_memory(sizeof *r);
  rt_lock();
  rt_device *d = &rt_global.devices[device];
  ttpu_status status = rt_take_turn(d);
  if (status != TTPU_OK) {
    rt_unlock();
    base_free(r);
    *out = NULL;
    return status;
  }
  *r = (rt_region){d, count, d->trace, d->capturing, d->whole, d->was_cut};
  d->trace = (rt_trace){0};
  base_arena_init(&d->trace.arena);
  rt_trace_reset(&d->trace);
  d->capturing = true;
  status = name_arguments(d, count, arguments);
  rt_unlock();
  if (status == TTPU_OK) return TTPU_OK;
  (void)rt_region_end(r, 0, NULL, NULL);
  *out = NULL;
  return status;
}

/* A region runs at another time than the recording around it, or never, or many times. */
static ttpu_status check_region(const rt_region *r) {
  const rt_trace *t = &r->device->trace;
  uint32_t inputs = 0;
  for (uint32_t i = 0; i < t->local_count; ++i) inputs += t->locals[i].is_input;
  if (inputs > r->argument_count)
    return base_fail(TTPU_FAILED_PRECONDITION, "a branch or loop reads a tensor that is none of its operands");
  for (uint32_t i = 0; i < t->count; ++i)
    if (t->records[i]->op->row->flags & ATEN_RNG)
      return base_fail(TTPU_FAILED_PRECONDITION, "%s: a branch or loop draws random numbers", t->records[i]->op->name);
  return TTPU_OK;
}

static void close_region(rt_region *r) {
  rt_device *d = r->device;
  rt_trace *t = &d->trace;
  forget_values(d);
  rt_trace_reset(t);
  rt_trace_free(t);
  *t = r->outer;
  d->capturing = r->capturing;
  d->whole = r->whole;
  d->was_cut = r->was_cut;
  rt_end_turn();
}

ttpu_status rt_region_end(rt_region *r, uint32_t count, rt_storage *const *returned, rt_captured *out) {
  ttpu_status status = TTPU_OK;
  rt_lock();
  if (out != NULL) {
    *out = (rt_captured){0};
    base_arena_init(&out->arena);
    status = check_region(r);
    if (status == TTPU_OK) status = build(r->device, count, returned, out);
  }
  close_region(r);
  rt_unlock();
  base_free(r);
  return status;
}
