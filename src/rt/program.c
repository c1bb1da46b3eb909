/* Piece -> IR -> executable, and the cache of programs by key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rt/rt_int.h"

enum { PROGRAM_BUCKETS = 1 << 14, PROGRAM_LIMIT = 1 << 14 };

static struct {
  rt_program *buckets[PROGRAM_BUCKETS];
  rt_program *newest, *oldest;
  uint32_t count;
  int64_t bytes;
} cache;

/* ---- building IR ---- */

typedef struct build {
  rt_trace *trace;
  ir_builder b;
  ir_value *locals; /* IR value of each local */
  ir_value f64s, i64s;
  rt_record_entry *record;
  aten_tensor *tensors; /* the record's, in the dtypes that programs compute in */
  ir_value *operands;   /* made for the record so far, by tensor */
} build;

/* Element `index` of a vector of numbers, rank 0. */
static ir_value element(ir_builder *b, ir_value vector, uint32_t index) {
  return ir_reshape(b, ir_slice_dim(b, vector, 0, index, (int64_t)index + 1, 1), 0, NULL);
}

static ir_value number_value(build *s, rt_slot slot, ttpu_dtype dtype) {
  ir_builder *b = &s->b;
  if (base_dtype_is_complex((ttpu_dtype)slot.dtype)) {
    ir_value v = ir_complex(b, element(b, s->f64s, slot.index), element(b, s->f64s, slot.index + 1));
    if (base_dtype_is_complex(dtype)) return ir_convert(b, v, dtype);
    return ir_convert(b, ir_real(b, v), dtype);
  }
  bool is_float = base_dtype_is_float((ttpu_dtype)slot.dtype);
  ir_value v = element(b, is_float ? s->f64s : s->i64s, slot.index);
  return ir_convert(b, v, dtype);
}

static ir_value lowering_number(aten_lowering *c, uint32_t number, ttpu_dtype dtype) {
  build *s = c->context;
  return number_value(s, s->record->number_slots[number], dtype);
}

static ir_value lowering_operand(aten_lowering *c, uint32_t i) {
  build *s = c->context;
  if (s->operands[i] != 0) return s->operands[i];
  const aten_tensor *t = &s->tensors[i];
  ir_value v;
  if (t->flags & ATEN_UNDEFINED) {
    v = ir_fail(&s->b, TTPU_INTERNAL, "operand %u was left out but is needed", i);
  } else if (t->flags & ATEN_NUMBER) {
    v = number_value(s, s->record->tensor_slots[i], (ttpu_dtype)t->dtype);
  } else if (s->record->operands[i] == RT_NO_LOCAL) { /* never written: zeros */
    v = ir_fill_i64(&s->b, (ttpu_dtype)t->dtype, t->rank, t->sizes, 0);
  } else {
    v = rt_view_read(&s->b, s->locals[s->record->operands[i]], &s->record->call.tensors[i]);
  }
  return s->operands[i] = v;
}

static ir_value lowering_random(aten_lowering *c) {
  build *s = c->context;
  int64_t slot = s->record->random_slot;
  return ir_bitcast_convert(&s->b, ir_slice_dim(&s->b, s->i64s, 0, slot, slot + 2, 1), TTPU_U64);
}

/* The value that a result leaves in its storage: dense, in memory order. */
static ir_value stored(build *s, const rt_out *out, ir_value v) {
  ir_builder *b = &s->b;
  const rt_value *value = s->trace->locals[out->local].value;
  v = rt_view_pack(b, (ttpu_dtype)out->meta.dtype, v);
  uint32_t order[TTPU_MAX_RANK];
  if (rt_view_is_dense(&out->meta, order) && base_numel(out->meta.rank, out->meta.sizes) == out->base_numel)
    return rt_view_to_memory(b, &out->meta, order, v);
  ir_value base = out->base != RT_NO_LOCAL ? s->locals[out->base]
                                           : ir_fill_i64(b, (ttpu_dtype)value->dtype, value->rank, value->dims, 0);
  return ir_reshape(b, rt_view_write(b, base, &out->meta, v), value->rank, value->dims);
}

/* What a lowering sees of a tensor. */
static aten_tensor computed(aten_tensor t) {
  if (t.dtype == TTPU_C32) t.flags |= ATEN_HALVES;
  t.dtype = (uint8_t)base_dtype_computed((ttpu_dtype)t.dtype);
  return t;
}

static void lower_record(build *s, rt_record_entry *r, base_arena *scratch) {
  ir_builder *b = &s->b;
  uint32_t tensors = r->call.tensor_count, outs = r->out_count;
  ir_value *memory = base_arena_zalloc(scratch, (tensors + outs) * sizeof *memory + 16);
  aten_tensor *metas = base_arena_alloc(scratch, (tensors + outs) * sizeof *metas);
  if (memory == NULL || metas == NULL) {
    ir_fail(b, base_no_memory(tensors * sizeof *memory), "%s", base_message());
    return;
  }
  s->record = r;
  s->operands = memory;
  s->tensors = metas + outs;
  ir_value *results = memory + tensors;
  for (uint32_t i = 0; i < outs; ++i) metas[i] = computed(r->outs[i].meta);
  for (uint32_t i = 0; i < tensors; ++i) s->tensors[i] = computed(r->call.tensors[i]);
  aten_call call = r->call;
  call.tensors = s->tensors;
  b->source = r->op->name; /* kept as long as the row is */
  if (r->location != NULL) b->source = base_arena_printf(b->func->arena, "%s (%s)", r->op->name, r->location);
  aten_lowering c = {.b = b,
                     .call = &call,
                     .outs = metas,
                     .out_count = outs,
                     .results = results,
                     .operand = lowering_operand,
                     .number = lowering_number,
                     .random = lowering_random,
                     .precision = (ir_precision)r->precision,
                     .context = s};
  r->op->row->lower(&c);
  for (uint32_t i = 0; i < outs && b->status == TTPU_OK; ++i) {
    if (r->outs[i].local == RT_NO_LOCAL) continue;
    if (results[i] == 0) {
      ir_fail(b, TTPU_INTERNAL, "%s: its lowering gave no result %u", r->op->name, i);
      return;
    }
    s->locals[r->outs[i].local] = stored(s, &r->outs[i], results[i]);
  }
}

static void add_params(build *s, const bool *donate) {
  rt_trace *t = s->trace;
  bool *flags = base_arena_zalloc(s->b.func->arena, (t->local_count + 2u) * sizeof *flags);
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->local_count; ++i) {
    if (!t->locals[i].is_input) continue;
    const rt_value *v = t->locals[i].value;
    s->locals[i] = ir_param(&s->b, ir_tensor(&s->b, (ttpu_dtype)v->dtype, v->rank, v->dims));
    if (flags != NULL) flags[n] = donate[n];
    ++n;
  }
  int64_t count = t->f64_count;
  if (count > 0) s->f64s = ir_param(&s->b, ir_tensor(&s->b, TTPU_F64, 1, &count));
  count = t->i64_count;
  if (count > 0) s->i64s = ir_param(&s->b, ir_tensor(&s->b, TTPU_I64, 1, &count));
  s->b.func->donate = flags;
}

ttpu_status rt_trace_build(rt_device *d, base_arena *arena, const uint32_t *outputs, uint32_t output_count,
                           const bool *donate, ir_func **out) {
  rt_trace *t = &d->trace;
  ir_func *f = ir_func_new(arena, "main");
  build s = {.trace = t, .locals = base_arena_zalloc(&t->arena, t->local_count * sizeof(ir_value) + 16)};
  ir_value *results = base_arena_alloc(&t->arena, output_count * sizeof *results + 16);
  if (f == NULL || s.locals == NULL || results == NULL) return base_no_memory(64);
  s.b = ir_builder_on(f);
  add_params(&s, donate);
  for (uint32_t i = 0; i < t->count && s.b.status == TTPU_OK; ++i) {
    lower_record(&s, t->records[i], &t->arena);
    if (s.b.status != TTPU_OK) return base_fail(s.b.status, "%s: %s", t->records[i]->op->name, s.b.message);
  }
  for (uint32_t i = 0; i < output_count; ++i) results[i] = s.locals[outputs[i]];
  ir_return(&s.b, output_count, results);
  if (s.b.status != TTPU_OK) return base_fail(s.b.status, "%s", s.b.message);
  *out = f;
  return TTPU_OK;
}

/* ---- cache ---- */

static void unlink_use(rt_program *p) {
  if (p->newer != NULL) p->newer->older = p->older;
  else cache.newest = p->older;
  if (p->older != NULL) p->older->newer = p->newer;
  else cache.oldest = p->newer;
}

static void link_newest(rt_program *p) {
  p->newer = NULL;
  p->older = cache.newest;
  if (cache.newest != NULL) cache.newest->newer = p;
  else cache.oldest = p;
  cache.newest = p;
}

void rt_program_leave(rt_program *p) {
  if (--p->users > 0) return;
  if (p->bucket != NULL) rt_bucket_free(p->bucket);
  else pjrt_executable_free(p->executable);
  base_free(p);
}

/* The least recently used programs go when there are too many, or when they take more of the host's memory than this: a
 * program of a hundred loops takes a megabyte. TTPU_PROGRAM_MEMORY sets it, in bytes. */
static int64_t memory_limit(void) {
  const char *given = getenv("TTPU_PROGRAM_MEMORY");
  return given != NULL ? strtoll(given, NULL, 10) : (int64_t)1 << 30;
}

/* A bucket's program is shared, and small beside it what is each size's own. */
static int64_t host_bytes(const rt_program *p) {
  return p->bucket == NULL && p->cost.host_bytes > 0 ? p->cost.host_bytes : 0;
}

static void drop(rt_program *p) {
  rt_program **link = &cache.buckets[p->key.a % PROGRAM_BUCKETS];
  while (*link != p) link = &(*link)->next;
  *link = p->next;
  unlink_use(p);
  --cache.count;
  cache.bytes -= host_bytes(p);
  rt_program_leave(p);
}

void rt_program_clear(void) {
  while (cache.oldest != NULL) drop(cache.oldest);
  rt_bucket_clear();
}

static rt_program *lookup(base_hash128 key) {
  rt_program *p = cache.buckets[key.a % PROGRAM_BUCKETS];
  while (p != NULL && (p->key.a != key.a || p->key.b != key.b)) p = p->next;
  return p;
}

/* How many programs the plugin has compiled (our own tells a bind from a compilation; others always compile). */
static uint64_t compilations(uint64_t calls) {
  pjrt_counters c;
  return pjrt_client_counters(rt_global.client, &c) ? c.structures_compiled : calls;
}

ttpu_status rt_compile(rt_device *d, base_arena *arena, ir_func *f, pjrt_executable **out) {
  uint64_t before = compilations(0);
  ttpu_status status = pjrt_compile(rt_global.client, d->pjrt, arena, f, out);
  rt_global.counters.programs_compiled += compilations(1) - before;
  return status;
}

/* With errors_on_compile() a piece for which anything was compiled fails. */
static ttpu_status check_compiled(const rt_trace *t, uint64_t before) {
  if (rt_global.counters.programs_compiled == before || rt_global.forbid_compile == 0) return TTPU_OK;
  return base_fail(TTPU_FAILED_PRECONDITION,
                   "a program was compiled where torch.tpu.errors_on_compile() forbids it: %u operators, from %s to %s",
                   t->count, t->records[0]->op->name, t->records[t->count - 1]->op->name);
}

/* With TTPU_PROGRAM_DIR=<folder>, what a plugin without our extension would get of each piece, in a file that is named
 * after the piece's first row and its text: all lowerings, for whoever compiles them elsewhere. The hash of the text that
 * is in the name; 0 where there is no file. */
static uint64_t keep_text(const rt_trace *t, const ir_func *f) {
  const char *folder = getenv("TTPU_PROGRAM_DIR");
  if (folder == NULL || folder[0] == '\0') return 0;
  base_arena arena;
  base_arena_init(&arena);
  base_text text = {0};
  char path[1024];
  ir_func *plain;
  ttpu_status status = ir_decompose(f, &arena, NULL, &plain);
  if (status == TTPU_OK) {
    plain->donate = NULL; /* who owns its operands is no part of a lowering */
    status = ir_func_print(plain, &text);
  }
  FILE *file = NULL;
  base_hash128 hash = {0, 0};
  if (status == TTPU_OK) {
    hash = base_hash128_bytes((base_hash128){0, 0}, text.data, text.length);
    snprintf(path, sizeof path, "%s/%s-%016llx.mlir", folder, t->records[0]->op->row->name, (unsigned long long)hash.a);
    file = fopen(path, "w");
  }
  if (file != NULL) {
    fwrite(text.data, 1, text.length, file);
    fclose(file);
  } else {
    base_log(LOG_WARN, "TTPU_PROGRAM_DIR: %s cannot be written", status == TTPU_OK ? path : base_message());
  }
  base_text_free(&text);
  base_arena_free(&arena);
  return file != NULL ? hash.a : 0;
}

/* Compiles the function of exact sizes, and remembers how long it took where that may matter to other sizes. */
static ttpu_status compile_exact(rt_device *d, base_arena *arena, ir_func *f, const rt_form *form, rt_program *p) {
  int64_t start = base_now_ns();
  BASE_TRY(rt_compile(d, arena, f, &p->executable));
  if (form != NULL) rt_form_note(form, (uint64_t)(base_now_ns() - start));
  return TTPU_OK;
}

/* The same, unless a program of padded sizes does for it. */
static ttpu_status compile_or_share(rt_device *d, base_arena *arena, ir_func *f, bool exact, rt_program *p) {
  if (exact || !rt_bucket_enabled()) return compile_exact(d, arena, f, NULL, p);
  rt_form form;
  ttpu_status status = rt_form_open(f, &form);
  if (status == TTPU_OK && rt_bucket_find(d, &form, &p->bucket) != TTPU_OK)
    base_log(LOG_WARN, "a program is compiled with its exact sizes: %s",
             base_message()); /* padded it may be too large */
  if (status == TTPU_OK && p->bucket == NULL) {
    status = compile_exact(d, arena, f, &form, p);
  } else {
    base_arena_delete(arena);
  }
  if (p->bucket != NULL) p->executable = rt_bucket_executable(p->bucket);
  rt_global.counters.programs_bucketed += p->bucket != NULL;
  rt_form_close(&form);
  return status;
}

/* Lowers and compiles the trace's piece. */
static ttpu_status compile_piece(rt_device *d, const uint32_t *outputs, uint32_t output_count, const bool *donate,
                                 bool exact, rt_program *p) {
  uint64_t before = rt_global.counters.programs_compiled;
  base_arena *arena = base_arena_new(); /* pjrt takes it, and the plugin keeps it with the program */
  if (arena == NULL) return base_no_memory(sizeof *arena);
  ir_func *f = NULL;
  ttpu_status status = rt_trace_build(d, arena, outputs, output_count, donate, &f);
  if (status != TTPU_OK) {
    base_arena_delete(arena);
    return status;
  }
  ++rt_global.counters.programs_built;
  p->text = keep_text(&d->trace, f);
  p->operators = d->trace.count;
  p->row = d->trace.records[0]->op->row->name;
  BASE_TRY(compile_or_share(d, arena, f, exact, p));
  return check_compiled(&d->trace, before);
}

/* From the disk cache; false when it is not there or the plugin does not take it. */
bool rt_executable_load(rt_device *d, base_hash128 key, pjrt_executable **out) {
  size_t length;
  void *payload = rt_disk_read(key, &length);
  if (payload == NULL) return false;
  bool loaded = pjrt_executable_deserialize(rt_global.client, d->pjrt, payload, length, out) == TTPU_OK;
  base_free(payload);
  if (!loaded) rt_disk_remove(key);
  rt_global.counters.programs_loaded += loaded;
  return loaded;
}

void rt_executable_store(base_hash128 key, pjrt_executable *e) {
  void *payload;
  size_t length;
  if (pjrt_executable_serialize(e, &payload, &length) != TTPU_OK) return;
  rt_disk_write(key, payload, length);
  base_free(payload);
}

ttpu_status rt_program_get(rt_device *d, base_hash128 key, const uint32_t *outputs, uint32_t output_count,
                           const bool *donate, rt_program **out) {
  key = base_mix128(key, d->index);
  rt_program *p = lookup(key);
  bool exact = p != NULL && rt_bucket_is_outgrown(p);
  if (exact) {
    drop(p);
  } else if (p != NULL) {
    ++rt_global.counters.program_cache_hits;
    unlink_use(p);
    link_newest(p);
    *out = p;
    return TTPU_OK;
  }
  p = base_calloc(1, sizeof *p);
  if (p == NULL) return base_no_memory(sizeof *p);
  p->key = key;
  p->users = 1;
  ttpu_status status = TTPU_OK;
  if (!rt_disk_enabled() || !rt_executable_load(d, key, &p->executable)) {
    int64_t start = base_now_ns();
    status = compile_piece(d, outputs, output_count, donate, exact, p);
    rt_global.counters.compile_nanoseconds += (uint64_t)(base_now_ns() - start);
    if (status == TTPU_OK && p->bucket == NULL && rt_disk_enabled()) rt_executable_store(key, p->executable);
  }
  if (status != TTPU_OK) {
    rt_program_leave(p);
    return status;
  }
  p->next = cache.buckets[key.a % PROGRAM_BUCKETS];
  cache.buckets[key.a % PROGRAM_BUCKETS] = p;
  link_newest(p);
  if (pjrt_executable_get_cost(p->executable, &p->cost) != TTPU_OK) base_log(LOG_WARN, "%s", base_message());
  ++cache.count;
  cache.bytes += host_bytes(p);
  while (cache.count > PROGRAM_LIMIT || (cache.bytes > memory_limit() && cache.oldest != p)) drop(cache.oldest);
  *out = p;
  return TTPU_OK;
}

/* ---- looking at programs ---- */

void rt_program_visit(uint32_t device, void (*visit)(void *context, const rt_program_info *info), void *context) {
  if (device >= rt_global.device_count) return;
  rt_lock();
  for (rt_program *p = cache.oldest; p != NULL; p = p->newer) {
    if (pjrt_executable_device(p->executable) != rt_global.devices[device].pjrt) continue;
    rt_program_info info = {
        .key = p->key.a, .text = p->text, .runs = p->runs, .operators = p->operators, .row = p->row, .cost = p->cost};
    visit(context, &info);
  }
  rt_unlock();
}
