/* Recording: appending calls to a device's trace, its hash, and where to cut. */
#include <string.h>

#include "rt/rt_int.h"

/* A cut comes where the rolling hash of the last four operators (their rows, dtypes and ranks, no sizes) says so,
 * once in CUT_MEAN operators, between CUT_MIN and CUT_MAX. What was recorded before the window has no say, so
 * the second pass through the same layers is cut at the same places. */
enum { CUT_MIN = 8, CUT_MEAN = 32, CUT_MAX = 256 };

/* ---- locals ---- */

uint32_t rt_trace_local(rt_device *d, rt_value *v) {
  rt_trace *t = &d->trace;
  if (v->epoch == t->epoch) return v->local;
  if (!BASE_GROW(t->locals, t->local_count, t->local_capacity)) return RT_NO_LOCAL;
  v->epoch = t->epoch;
  v->local = t->local_count++;
  t->locals[v->local] = (rt_local){.value = rt_value_share(v), .is_input = v->state != RT_PENDING};
  base_hash128 h = base_mix128(t->hash, 0x1000u | v->dtype | (uint64_t)v->rank << 16);
  for (uint32_t i = 0; i < v->rank; ++i) h = base_mix128(h, (uint64_t)v->dims[i]);
  t->hash = h;
  return v->local;
}

/* ---- copying a call into the trace ---- */

static int64_t *copy_dims(int64_t *to, aten_tensor *t) {
  for (uint32_t i = 0; i < t->rank; ++i) { /* a few numbers: cheaper than a call of memcpy */
    to[i] = t->sizes[i];
    to[t->rank + i] = t->strides[i];
  }
  t->sizes = to;
  t->strides = to + t->rank;
  return to + 2 * t->rank;
}

static void *carve(uint8_t **at, size_t bytes) {
  void *p = *at;
  *at += (bytes + 15) & ~(size_t)15;
  return p;
}

/* A record of the call in one allocation: the entry, then each of its arrays. The texts are copied apart. */
static rt_record_entry *record_new(base_arena *a, const rt_op *op, const rt_call *call, uint32_t result_count,
                                   const rt_tensor *results) {
  const aten_call *c = &call->call;
  size_t dims = 0;
  for (uint32_t i = 0; i < c->tensor_count; ++i) dims += 2u * c->tensors[i].rank;
  for (uint32_t i = 0; i < result_count; ++i) dims += 2u * results[i].meta.rank;
  enum { ARRAYS = 11, PAD = 16 };
  size_t bytes = sizeof(rt_record_entry) +
                 c->tensor_count * (sizeof(aten_tensor) + sizeof(uint32_t) + sizeof(rt_slot) + sizeof(int64_t)) +
                 c->arg_count * sizeof(aten_arg) + c->int_count * sizeof(int64_t) +
                 c->number_count * (sizeof(aten_number) + sizeof(rt_slot)) + c->text_count * sizeof(char *) +
                 result_count * sizeof(rt_out) + dims * sizeof(int64_t) + ARRAYS * PAD + PAD;
  uint8_t *at = base_arena_alloc(a, bytes);
  if (at == NULL) return NULL;
  rt_record_entry *r = carve(&at, sizeof *r);
  aten_tensor *tensors = carve(&at, c->tensor_count * sizeof *tensors);
  aten_arg *args = carve(&at, c->arg_count * sizeof *args);
  int64_t *ints = carve(&at, c->int_count * sizeof *ints);
  aten_number *numbers = carve(&at, c->number_count * sizeof *numbers);
  const char **texts = carve(&at, c->text_count * sizeof *texts);
  *r = (rt_record_entry){.op = op, .call = *c, .out_count = result_count, .precision = (uint8_t)call->precision};
  r->operands = carve(&at, c->tensor_count * sizeof *r->operands);
  r->tensor_slots = carve(&at, c->tensor_count * sizeof *r->tensor_slots);
  r->storage_numels = carve(&at, c->tensor_count * sizeof *r->storage_numels);
  r->number_slots = carve(&at, c->number_count * sizeof *r->number_slots);
  r->outs = carve(&at, result_count * sizeof *r->outs);
  int64_t *sizes = (int64_t *)at;
  if (c->arg_count > 0) memcpy(args, c->args, c->arg_count * sizeof *args);
  if (c->int_count > 0) memcpy(ints, c->ints, c->int_count * sizeof *ints);
  if (c->number_count > 0) memcpy(numbers, c->numbers, c->number_count * sizeof *numbers);
  for (uint32_t i = 0; i < c->tensor_count; ++i) {
    tensors[i] = c->tensors[i];
    sizes = copy_dims(sizes, &tensors[i]);
  }
  for (uint32_t i = 0; i < result_count; ++i) {
    r->outs[i] = (rt_out){.local = RT_NO_LOCAL, .base = RT_NO_LOCAL, .meta = results[i].meta};
    sizes = copy_dims(sizes, &r->outs[i].meta);
  }
  for (uint32_t i = 0; i < c->text_count; ++i) {
    texts[i] = c->texts[i] != NULL ? base_arena_dup(a, c->texts[i], strlen(c->texts[i]) + 1) : NULL;
    if (texts[i] == NULL && c->texts[i] != NULL) return NULL;
  }
  r->call.tensors = tensors;
  r->call.args = args;
  r->call.ints = ints;
  r->call.numbers = numbers;
  r->call.texts = texts;
  return r;
}

/* ---- numbers ---- */

static bool push_i64(rt_trace *t, int64_t v, uint32_t *at) {
  if (!BASE_GROW(t->i64s, t->i64_count, t->i64_capacity)) return false;
  *at = t->i64_count;
  t->i64s[t->i64_count++] = v;
  return true;
}

static bool push_f64(rt_trace *t, double v, uint32_t *at) {
  if (!BASE_GROW(t->f64s, t->f64_count, t->f64_capacity)) return false;
  *at = t->f64_count;
  t->f64s[t->f64_count++] = v;
  return true;
}

static bool push_number(rt_trace *t, ttpu_dtype dtype, base_scalar v, rt_slot *slot) {
  slot->dtype = (uint8_t)dtype;
  uint32_t imaginary;
  if (base_dtype_is_complex(dtype)) return push_f64(t, v.d[0], &slot->index) && push_f64(t, v.d[1], &imaginary);
  if (base_dtype_is_float(dtype)) return push_f64(t, v.d[0], &slot->index);
  return push_i64(t, v.i, &slot->index);
}

/* The size-free hash of an operator, for cuts. */
static uint64_t hash_without_sizes(const rt_op *op, const aten_call *call) {
  uint64_t h = op->id;
  for (uint32_t i = 0; i < call->tensor_count; ++i)
    h = base_mix(h, call->tensors[i].dtype | (uint64_t)call->tensors[i].rank << 8);
  return h;
}

/* ---- appending ---- */

/* The dims in memory of a result that covers its storage. */
static void memory_dims(const aten_tensor *t, const uint32_t *order, int64_t *dims) {
  for (uint32_t i = 0; i < t->rank; ++i) dims[i] = t->sizes[order[i]];
}

static rt_value *result_value(const rt_tensor *result, int64_t storage_numel, bool covers, const uint32_t *order) {
  const aten_tensor *t = &result->meta;
  ttpu_dtype dtype = base_dtype_stored((ttpu_dtype)t->dtype);
  rt_storage *s = result->storage;
  if (covers) {
    int64_t dims[TTPU_MAX_RANK];
    memory_dims(t, order, dims);
    return rt_value_new(s->device, dtype, t->rank, dims);
  }
  if (s->value != NULL && s->value->dtype == dtype)
    return rt_value_new(s->device, dtype, s->value->rank, s->value->dims);
  return rt_value_new(s->device, dtype, 1, &storage_numel);
}

static ttpu_status append_operands(rt_device *d, rt_record_entry *r, const rt_call *call) {
  rt_trace *t = &d->trace;
  for (uint32_t i = 0; i < r->call.tensor_count; ++i) {
    const aten_tensor *m = &r->call.tensors[i];
    rt_storage *s = call->storages[i];
    r->operands[i] = RT_NO_LOCAL;
    if (m->flags & ATEN_UNDEFINED) continue;
    if (m->flags & ATEN_NUMBER) {
      if (!push_number(t, (ttpu_dtype)m->dtype, m->number, &r->tensor_slots[i])) return base_no_memory(16);
    } else if (s->value != NULL) {
      r->operands[i] = rt_trace_local(d, s->value);
      if (r->operands[i] == RT_NO_LOCAL) return base_no_memory(sizeof(rt_local));
    } else {
      r->storage_numels[i] = (int64_t)(s->bytes / base_dtype_bytes((ttpu_dtype)m->dtype));
      t->hash = base_mix128(t->hash, (uint64_t)r->storage_numels[i] + 1);
    }
    t->hash = base_mix128(t->hash, r->operands[i] ^ (uint64_t)m->offset << 32);
  }
  for (uint32_t i = 0; i < r->call.number_count; ++i)
    if (!push_number(t, r->call.numbers[i].dtype, r->call.numbers[i].value, &r->number_slots[i]))
      return base_no_memory(16);
  if (r->op->row->flags & ATEN_RNG) {
    uint32_t offset_slot;
    if (!push_i64(t, (int64_t)call->random.seed, &r->random_slot) ||
        !push_i64(t, (int64_t)call->random.offset, &offset_slot))
      return base_no_memory(16);
  }
  return TTPU_OK;
}

static ttpu_status append_results(rt_device *d, rt_record_entry *r, const rt_tensor *results) {
  rt_trace *t = &d->trace;
  for (uint32_t i = 0; i < r->out_count; ++i) {
    const rt_tensor *result = &results[i];
    rt_storage *s = result->storage;
    rt_out *out = &r->outs[i];
    if (s == NULL) { /* a result that is not wanted, such as a masked gradient */
      t->hash = base_mix128(t->hash, 0x2000u + i);
      continue;
    }
    out->base_numel = (int64_t)(s->bytes / base_dtype_bytes((ttpu_dtype)out->meta.dtype));
    uint32_t order[TTPU_MAX_RANK];
    bool covers = rt_view_is_dense(&out->meta, order) && base_numel(out->meta.rank, out->meta.sizes) == out->base_numel;
    if (!covers && s->value != NULL) {
      out->base = rt_trace_local(d, s->value);
      if (out->base == RT_NO_LOCAL) return base_no_memory(sizeof(rt_local));
    }
    /* A covering result's sizes follow from the call's key; another's place and storage do not. */
    t->hash = base_mix128(t->hash, covers ? 1 : 2 + (out->base ^ (uint64_t)out->base_numel << 32));
    if (!covers) t->hash = base_mix128(t->hash, (uint64_t)out->meta.offset);
    rt_value *v = result_value(result, out->base_numel, covers, order);
    if (v == NULL || !BASE_GROW(t->locals, t->local_count, t->local_capacity)) {
      rt_value_free(v);
      return base_no_memory(sizeof *v);
    }
    v->epoch = t->epoch;
    v->local = out->local = t->local_count++;
    t->locals[v->local] = (rt_local){.value = rt_value_share(v)};
    t->bytes += (uint64_t)v->numel * base_dtype_bytes((ttpu_dtype)v->dtype);
    rt_value *old = s->value;
    s->value = v;
    rt_value_free(old);
  }
  return TTPU_OK;
}

static bool cut_here(const rt_device *d) {
  const rt_trace *t = &d->trace;
  if (d->whole || d->capturing) return false;
  if (rt_global.mode != RT_FUSED || t->count >= CUT_MAX) return true;
  if (d->limit > 0 && t->bytes > d->limit / 4) return true;
  if (t->count < CUT_MIN) return false;
  uint64_t h = 0;
  for (uint32_t i = 0; i < 4; ++i) h = base_mix(h, t->window[(t->count + i) & 3]);
  return h % CUT_MEAN == 0;
}

static _Thread_local const char *location; /* of this thread's calls */

void rt_set_location(const char *text) { location = text; }

/* It is part of the piece's key: a program's messages name the lines that it was recorded from. */
static ttpu_status note_location(rt_trace *t, rt_record_entry *r) {
  if (location == NULL || rt_disk_enabled()) return TTPU_OK;
  size_t length = strlen(location);
  r->location = base_arena_dup(&t->arena, location, length + 1);
  if (r->location == NULL) return base_no_memory(length);
  t->hash = base_mix128(t->hash, base_hash(0, location, length));
  return TTPU_OK;
}

ttpu_status rt_record(uint32_t device, const rt_op *op, const rt_call *call, uint32_t result_count,
                      const rt_tensor *results) {
  if (rt_in_bad_fork())
    return base_fail(TTPU_FAILED_PRECONDITION,
                     "%s: the tpu cannot be used in a forked process; use the spawn start method", op->name);
  rt_lock();
  rt_device *d = &rt_global.devices[device];
  rt_trace *t = &d->trace;
  ttpu_status status = rt_take_turn(d);
  if (status != TTPU_OK) goto out;
  rt_record_entry *r = record_new(&t->arena, op, call, result_count, results);
  if (r == NULL || !BASE_GROW(t->records, t->count, t->capacity)) {
    status = base_no_memory(sizeof *r);
    goto out;
  }
  t->hash = base_mix128(base_mix128(t->hash, call->key.a ^ (uint64_t)call->precision), call->key.b);
  if (op->row->flags & ATEN_RNG) t->hash.b += 1;
  status = note_location(t, r);
  if (status == TTPU_OK) status = append_operands(d, r, call);
  if (status == TTPU_OK) status = append_results(d, r, results);
  if (status != TTPU_OK) goto out;
  t->window[t->count & 3] = hash_without_sizes(op, &r->call);
  t->records[t->count++] = r;
  ++rt_global.counters.ops_recorded;
  if (cut_here(d)) {
    (void)rt_trace_cut(d); /* its failure is kept for the next synchronisation */
    if (rt_global.mode == RT_BLOCKING) {
      rt_unlock();
      return rt_synchronize(device);
    }
  }
out:
  rt_unlock();
  return status;
}

/* ---- cutting ---- */

void rt_trace_reset(rt_trace *t) {
  for (uint32_t i = 0; i < t->local_count; ++i) rt_value_free(t->locals[i].value);
  base_arena_reset(&t->arena);
  static atomic_uint epochs = 1; /* 0 is no epoch: a fresh value belongs to none */
  t->epoch = atomic_fetch_add(&epochs, 1);
  t->count = t->local_count = t->f64_count = t->i64_count = 0;
  t->bytes = 0;
  t->hash = (base_hash128){0x74747075, 1};
}

void rt_trace_free(rt_trace *t) {
  base_arena_free(&t->arena);
  base_free(t->records);
  base_free(t->locals);
  base_free(t->f64s);
  base_free(t->i64s);
}

/* A vector of the piece's numbers as a buffer. */
static ttpu_status upload_numbers(rt_device *d, ttpu_dtype dtype, uint32_t count, const void *data, pjrt_buffer **out) {
  int64_t n = count;
  return pjrt_buffer_from_host(d->pjrt, dtype, 1, &n, data, NULL, NULL, out);
}

static void note_running(rt_device *d, int change) {
  pthread_mutex_lock(&d->error_lock);
  d->running += (uint32_t)change;
  if (d->running == 0) pthread_cond_broadcast(&d->noted);
  pthread_mutex_unlock(&d->error_lock);
}

static void note_when_done(void *context, ttpu_status status) {
  rt_device *d = context;
  if (status != TTPU_OK) rt_device_note_error(d, status, base_message());
  note_running(d, -1);
}

static void fail_results(rt_device *d, ttpu_status code) {
  rt_trace *t = &d->trace;
  rt_error *e = rt_error_new(code, base_message());
  for (uint32_t i = 0; i < t->local_count; ++i)
    if (t->locals[i].value->state == RT_PENDING) rt_value_fail(t->locals[i].value, e);
  rt_error_free(e);
  rt_device_note_error(d, code, base_message());
}

/* An input that failed fails the piece; PJRT does the same for buffers whose computation fails later. */
static const rt_error *failed_input(const rt_trace *t) {
  for (uint32_t i = 0; i < t->local_count; ++i)
    if (t->locals[i].is_input && t->locals[i].value->state == RT_FAILED) return t->locals[i].value->error;
  return NULL;
}

/* Which results are wanted and which inputs are not any more, and the program for that. */
static ttpu_status plan(rt_device *d, rt_piece *p) {
  rt_trace *t = &d->trace;
  base_arena *a = &t->arena;
  *p = (rt_piece){.outputs = base_arena_alloc(a, (t->local_count + 1u) * sizeof *p->outputs),
                  .donate = base_arena_zalloc(a, (t->local_count + 3u) * sizeof *p->donate)};
  if (!p->outputs || !p->donate) return base_no_memory(64);
  rt_value_free(d->tail); /* this piece's results take its place */
  d->tail = NULL;
  base_hash128 key = t->hash;
  for (uint32_t i = 0; i < t->local_count; ++i) {
    rt_value *v = t->locals[i].value;
    bool wanted = atomic_load_explicit(&v->refs, memory_order_acquire) > 1;
    if (t->locals[i].is_input) {
      p->donate[p->input_count++] = !wanted;
    } else if (wanted) {
      p->outputs[p->output_count++] = i;
    }
    key = base_mix128(key, (uint64_t)i << 1 | wanted);
  }
  if (p->output_count == 0) { /* nobody looks, but its checks still count: keep the last result */
    for (uint32_t i = t->local_count; i-- > 0 && p->output_count == 0;)
      if (!t->locals[i].is_input) p->outputs[p->output_count++] = i;
  }
  return rt_program_get(d, key, p->outputs, p->output_count, p->donate, &p->program);
}

/* The numbers behind the inputs, as buffers of the run's own. */
static ttpu_status enter_numbers(rt_device *d, const rt_program *p, const rt_numbers *numbers, rt_run *run,
                                 uint32_t *count) {
  const struct {
    ttpu_dtype dtype;
    uint32_t count;
    const void *data;
  } vectors[2] = {{TTPU_F64, numbers->f64_count, numbers->f64s}, {TTPU_I64, numbers->i64_count, numbers->i64s}};
  for (int k = 0; k < 2; ++k) {
    if (vectors[k].count == 0) continue;
    uint32_t i = (*count)++, n = vectors[k].count;
    if (p->bucket == NULL) BASE_TRY(upload_numbers(d, vectors[k].dtype, n, vectors[k].data, &run->entered[i]));
    else BASE_TRY(rt_bucket_upload(d, p->bucket, i, vectors[k].dtype, n, vectors[k].data, &run->entered[i]));
    run->buffers[i] = run->entered[i];
  }
  if (p->bucket != NULL && rt_bucket_numbers(p->bucket) != NULL)
    run->buffers[(*count)++] = rt_bucket_numbers(p->bucket);
  return TTPU_OK;
}

static ttpu_status start(rt_device *d, const rt_program *p, const rt_numbers *numbers, rt_run *run) {
  uint32_t count = run->input_count;
  for (uint32_t i = 0; i < count; ++i) {
    if (p->bucket == NULL) BASE_TRY(rt_value_exact(d, run->inputs[i], &run->buffers[i]));
    else BASE_TRY(rt_bucket_enter(d, p->bucket, i, run->inputs[i], &run->buffers[i], &run->entered[i]));
  }
  BASE_TRY(enter_numbers(d, p, numbers, run, &count));
  note_running(d, 1);
  ttpu_status status = pjrt_execute(p->executable, count, run->buffers, run->donate, run->made, note_when_done, d);
  if (status != TTPU_OK) note_running(d, -1);
  return status;
}

ttpu_status rt_launch(rt_device *d, const rt_program *p, const rt_numbers *numbers, rt_run *run) {
  ttpu_status status = start(d, p, numbers, run);
  for (uint32_t i = 0; i < run->input_count + 2; ++i) pjrt_buffer_free(run->entered[i]);
  if (status != TTPU_OK) return status;
  ++rt_global.counters.programs_run;
  for (uint32_t i = 0; i < run->output_count; ++i) {
    rt_value *v = run->outputs[i];
    v->buffer = run->made[i];
    v->layout = p->bucket != NULL ? rt_bucket_layout(p->bucket, i) : NULL;
    v->state = RT_READY;
  }
  return TTPU_OK;
}

static ttpu_status open_run(const rt_trace *t, const rt_piece *p, base_arena *a, rt_run *run) {
  uint32_t inputs = p->input_count + 3, outputs = p->output_count;
  *run = (rt_run){.input_count = p->input_count,
                  .output_count = outputs,
                  .inputs = base_arena_alloc(a, inputs * sizeof *run->inputs),
                  .outputs = base_arena_alloc(a, outputs * sizeof *run->outputs + 1),
                  .donate = p->donate,
                  .buffers = base_arena_alloc(a, inputs * sizeof *run->buffers),
                  .entered = base_arena_zalloc(a, inputs * sizeof *run->entered),
                  .made = base_arena_zalloc(a, outputs * sizeof *run->made + 1)};
  if (!run->inputs || !run->outputs || !run->buffers || !run->entered || !run->made) return base_no_memory(64);
  for (uint32_t i = 0, n = 0; i < t->local_count; ++i)
    if (t->locals[i].is_input) run->inputs[n++] = t->locals[i].value;
  for (uint32_t i = 0; i < outputs; ++i) run->outputs[i] = t->locals[p->outputs[i]].value;
  return TTPU_OK;
}

static ttpu_status run_piece(rt_device *d, rt_piece *p) {
  rt_trace *t = &d->trace;
  BASE_TRY(plan(d, p));
  const rt_numbers numbers = {t->f64s, t->i64s, t->f64_count, t->i64_count};
  rt_run run;
  BASE_TRY(open_run(t, p, &t->arena, &run));
  BASE_TRY(rt_launch(d, p->program, &numbers, &run));
  ++p->program->runs;
  if (p->output_count > 0) d->tail = rt_value_share(t->locals[p->outputs[p->output_count - 1]].value);
  return TTPU_OK;
}

ttpu_status rt_trace_run(rt_device *d, rt_piece *piece) {
  const rt_error *e = failed_input(&d->trace);
  ttpu_status status = e != NULL ? base_fail(e->code, "%s", e->message) : run_piece(d, piece);
  if (status != TTPU_OK) fail_results(d, status);
  return status;
}

ttpu_status rt_trace_cut(rt_device *d) {
  rt_trace *t = &d->trace;
  if (d->capturing) return TTPU_OK;
  ttpu_status status = TTPU_OK;
  rt_piece piece;
  if (t->count > 0) status = rt_trace_run(d, &piece);
  if (t->local_count > 0) rt_trace_reset(t);
  d->was_cut = true;
  return status;
}

ttpu_status rt_flush(uint32_t device) {
  if (device >= rt_global.device_count) return TTPU_OK;
  rt_lock();
  ttpu_status status = rt_take_turn(&rt_global.devices[device]);
  if (status == TTPU_OK) status = rt_trace_cut(&rt_global.devices[device]);
  rt_unlock();
  return status;
}
