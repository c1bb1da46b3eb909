/* Programs of padded sizes, where compiling is expensive.
 *
 * The first program of a structure is compiled with its exact sizes, and how long that took is kept with its numbers (its
 * *skeleton*). Where it took long, a program of the same structure with other sizes is padded (ir/bucket.h): its executable
 * is found by the text of the padded function, so equal texts, and nothing else, are what sizes share. A small program
 * pads an argument, another cuts a result when a program of exact sizes wants it. Between padded programs values stay as they
 * are, padded (`rt_value.layout`), the host cuts what it reads itself, and pads what little it has sent itself: each of the
 * small programs costs a compilation.
 *
 * TTPU_BUCKETS=auto (the default) does so on every plugin but ours, which binds new sizes instead of compiling; off never;
 * always on every plugin, for every program from the first on, and all its sizes: for tests. */
#include <stdlib.h>
#include <string.h>

#include "ir/bucket.h"
#include "rt/rt_int.h"

/* A run through a bucket pays for a small program more for each argument that is not padded yet, some tens of microseconds,
 * and for up to half as much again of each padded size. A compilation of this many nanoseconds is worth thousands of such runs. */
enum { SLOW_COMPILE = 100 * 1000 * 1000 };
/* Sizes that stay, such as those of a model's layers that differ, end with programs of their own: after as many runs the
 * arithmetic in vain, a fifth of a run, has cost as much as compiling, which takes XLA some hundred runs. */
enum { OUTGROWN_RUNS = 1000 };
enum { SKELETON_BUCKETS = 1 << 10, SKELETON_LIMIT = 1 << 12, COMPILED_BUCKETS = 1 << 10 };
/* Token ids and masks come from the host, and each new length of them would need a program that pads it. */
enum { HOST_COPY = 64 << 10 };

typedef struct rt_skeleton {
  base_hash128 key;
  uint64_t nanoseconds; /* that its first program took to compile */
  uint32_t count;
  int64_t *numbers; /* of that one */
  bool *varies;     /* behind the numbers: which have been seen to differ */
  struct rt_skeleton *next;
} rt_skeleton;

/* An executable that several programs use. */
typedef struct compiled {
  base_hash128 key;
  pjrt_executable *executable;
  uint32_t users;
  struct compiled *next;
} compiled;

/* How a value lies in a longer buffer; values and programs share it. */
typedef struct rt_layout {
  atomic_uint refs;
  ir_layout is; /* its lists behind it */
} rt_layout;

struct rt_bucket {
  compiled *main;
  pjrt_buffer *numbers; /* of its exact sizes; NULL: it has none */
  uint32_t input_count, output_count;
  rt_layout **inputs, **outputs; /* NULL: as it is */
  compiled **enter;              /* by input: what pads it, once it was needed */
};

enum { KEPT_CUTS = 256 };

static struct {
  rt_skeleton *skeletons[SKELETON_BUCKETS];
  uint32_t skeleton_count;
  compiled *executables[COMPILED_BUCKETS];
  compiled *cuts[KEPT_CUTS]; /* the last ones made: values come and go, and cannot hold them */
  uint32_t cut;
} known;

/* ---- whether ---------------------------------------------------------------------------------- */

typedef enum { BUCKETS_UNDECIDED, BUCKETS_OFF, BUCKETS_AUTO, BUCKETS_ALWAYS } bucket_mode;

static bucket_mode decide(void) {
  const char *given = getenv("TTPU_BUCKETS");
  if (given != NULL && strcmp(given, "off") == 0) return BUCKETS_OFF;
  if (given != NULL && strcmp(given, "always") == 0) return BUCKETS_ALWAYS;
  if (given != NULL && given[0] != '\0' && strcmp(given, "auto") != 0)
    base_log(LOG_WARN, "TTPU_BUCKETS=%s is none of off, auto and always; auto it is", given);
  return pjrt_client_is_soft(rt_global.client) ? BUCKETS_OFF : BUCKETS_AUTO;
}

static bucket_mode mode(void) {
  static atomic_int decided = BUCKETS_UNDECIDED;
  if (atomic_load_explicit(&decided, memory_order_relaxed) == BUCKETS_UNDECIDED)
    atomic_store_explicit(&decided, decide(), memory_order_relaxed);
  return (bucket_mode)atomic_load_explicit(&decided, memory_order_relaxed);
}

bool rt_bucket_enabled(void) { return mode() != BUCKETS_OFF; }

/* ---- skeletons -------------------------------------------------------------------------------- */

static rt_skeleton *skeleton_new(base_hash128 key, uint32_t count) {
  rt_skeleton *k = base_calloc(1, sizeof *k);
  if (k == NULL) return NULL;
  *k = (rt_skeleton){.key = key, .count = count, .numbers = base_calloc(count + 1u, sizeof(int64_t) + sizeof(bool))};
  if (k->numbers == NULL) {
    base_free(k);
    return NULL;
  }
  k->varies = (bool *)(k->numbers + count);
  return k;
}

static void skeleton_free(rt_skeleton *k) {
  base_free(k->numbers);
  base_free(k);
}

static void clear_skeletons(void) {
  for (uint32_t i = 0; i < SKELETON_BUCKETS; ++i) {
    while (known.skeletons[i] != NULL) {
      rt_skeleton *k = known.skeletons[i];
      known.skeletons[i] = k->next;
      skeleton_free(k);
    }
  }
  known.skeleton_count = 0;
}

static void insert_skeleton(rt_skeleton *k) {
  if (known.skeleton_count >= SKELETON_LIMIT) clear_skeletons();
  rt_skeleton **bucket = &known.skeletons[k->key.a % SKELETON_BUCKETS];
  k->next = *bucket;
  *bucket = k;
  ++known.skeleton_count;
}

/* On disk a skeleton lies beside the programs: nanoseconds, then numbers, then what varies. */
static base_hash128 disk_key(base_hash128 key) { return base_mix128(key, 0x736b656c65746f6eull); }

static size_t skeleton_bytes(uint32_t count) { return count * (sizeof(int64_t) + sizeof(bool)); }

static void store_skeleton(const rt_skeleton *k) {
  size_t bytes = sizeof k->nanoseconds + skeleton_bytes(k->count);
  uint8_t *payload = rt_disk_enabled() ? base_alloc(bytes) : NULL;
  if (payload == NULL) return;
  memcpy(payload, &k->nanoseconds, sizeof k->nanoseconds);
  memcpy(payload + sizeof k->nanoseconds, k->numbers, skeleton_bytes(k->count));
  rt_disk_write(disk_key(k->key), payload, bytes);
  base_free(payload);
}

static rt_skeleton *load_skeleton(base_hash128 key, uint32_t count) {
  size_t bytes;
  uint8_t *payload = rt_disk_enabled() ? rt_disk_read(disk_key(key), &bytes) : NULL;
  if (payload == NULL) return NULL;
  rt_skeleton *k = bytes == sizeof k->nanoseconds + skeleton_bytes(count) ? skeleton_new(key, count) : NULL;
  if (k != NULL) {
    memcpy(&k->nanoseconds, payload, sizeof k->nanoseconds);
    memcpy(k->numbers, payload + sizeof k->nanoseconds, skeleton_bytes(count));
    insert_skeleton(k);
  }
  base_free(payload);
  return k;
}

static rt_skeleton *find_skeleton(base_hash128 key, uint32_t count) {
  rt_skeleton *k = known.skeletons[key.a % SKELETON_BUCKETS];
  while (k != NULL && (k->key.a != key.a || k->key.b != key.b)) k = k->next;
  return k != NULL ? (k->count == count ? k : NULL) : load_skeleton(key, count);
}

/* Notes which numbers differ from the first program's. */
static void compare(rt_skeleton *k, const int64_t *numbers) {
  bool changed = false;
  for (uint32_t i = 0; i < k->count; ++i) {
    bool differs = k->numbers[i] != numbers[i];
    changed |= differs && !k->varies[i];
    k->varies[i] |= differs;
  }
  if (changed) store_skeleton(k);
}

ttpu_status rt_form_open(const ir_func *f, rt_form *out) {
  *out = (rt_form){0};
  base_arena_init(&out->arena);
  BASE_TRY(ir_decompose(f, &out->arena, ir_bucket_keeps, &out->plain));
  BASE_TRY(ir_func_numbers(out->plain, &out->arena, &out->count, &out->numbers));
  out->key = ir_func_structure(out->plain);
  out->known = find_skeleton(out->key, out->count);
  if (out->known != NULL) compare(out->known, out->numbers);
  return TTPU_OK;
}

void rt_form_close(rt_form *form) { base_arena_free(&form->arena); }

void rt_form_note(const rt_form *form, uint64_t nanoseconds) {
  if (form->known != NULL || (nanoseconds < SLOW_COMPILE && mode() != BUCKETS_ALWAYS)) return;
  rt_skeleton *k = skeleton_new(form->key, form->count);
  if (k == NULL) return; /* it is compiled as if it were the first once more */
  k->nanoseconds = nanoseconds;
  memcpy(k->numbers, form->numbers, form->count * sizeof *form->numbers);
  insert_skeleton(k);
  store_skeleton(k);
}

/* ---- shared executables ----------------------------------------------------------------------- */

static void leave_compiled(compiled *c) {
  if (c == NULL || --c->users > 0) return;
  compiled **link = &known.executables[c->key.a % COMPILED_BUCKETS];
  while (*link != c) link = &(*link)->next;
  *link = c->next;
  pjrt_executable_free(c->executable);
  base_free(c);
}

void rt_bucket_clear(void) {
  clear_skeletons();
  for (uint32_t i = 0; i < KEPT_CUTS; ++i) {
    leave_compiled(known.cuts[i]);
    known.cuts[i] = NULL;
  }
}

/* What a text does not say and programs differ by: the device, and whom a failed check names. */
static base_hash128 text_key(const rt_device *d, const ir_func *f) {
  base_hash128 key = base_mix128(ir_func_hash(f), d->index);
  for (uint32_t i = 0; i < f->body.count; ++i) {
    const ir_op *op = f->body.ops[i];
    if (op->kind == IR_CHECK_INDEX && op->source != NULL) key = base_hash128_bytes(key, op->source, strlen(op->source));
  }
  return key;
}

/* The executable of f, compiled if need be. Takes the arena, which base_alloc made. */
static ttpu_status get_compiled(rt_device *d, base_arena *arena, ir_func *f, compiled **out) {
  base_hash128 key = text_key(d, f);
  compiled **bucket = &known.executables[key.a % COMPILED_BUCKETS], *c = *bucket;
  while (c != NULL && (c->key.a != key.a || c->key.b != key.b)) c = c->next;
  ttpu_status status = TTPU_OK;
  bool takes = true; /* the arena is still ours */
  if (c == NULL) {
    c = base_calloc(1, sizeof *c);
    if (c == NULL) status = base_no_memory(sizeof *c);
    if (status == TTPU_OK && !(rt_disk_enabled() && rt_executable_load(d, key, &c->executable))) {
      takes = false;
      status = rt_compile(d, arena, f, &c->executable);
      if (status == TTPU_OK && rt_disk_enabled()) rt_executable_store(key, c->executable);
    }
    if (status == TTPU_OK) {
      c->key = key;
      c->next = *bucket;
      *bucket = c;
    }
  }
  if (takes) base_arena_delete(arena);
  if (status == TTPU_OK) ++(*out = c)->users;
  else base_free(c);
  return status;
}

/* ---- layouts ---------------------------------------------------------------------------------- */

static const int64_t *copy_list(int64_t **at, const int64_t *list, uint32_t count) {
  int64_t *to = *at;
  if (count > 0) memcpy(to, list, count * sizeof *to);
  *at += count;
  return to;
}

static rt_layout *layout_new(const ir_layout *from) {
  size_t numbers = 2u * from->exact.rank + 2u * from->rank;
  rt_layout *l = base_alloc(sizeof *l + numbers * sizeof(int64_t));
  if (l == NULL) return NULL;
  int64_t *at = (int64_t *)(l + 1);
  atomic_init(&l->refs, 1);
  l->is = *from;
  l->is.exact.dims = copy_list(&at, from->exact.dims, from->exact.rank);
  l->is.padded.dims = copy_list(&at, from->padded.dims, from->exact.rank);
  l->is.sizes = copy_list(&at, from->sizes, from->rank);
  l->is.padded_sizes = copy_list(&at, from->padded_sizes, from->rank);
  return l;
}

static rt_layout *layout_share(rt_layout *l) {
  if (l != NULL) atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
  return l;
}

void rt_layout_free(rt_layout *l) {
  if (l != NULL && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) base_free(l);
}

static bool layout_equal(const ir_layout *x, const ir_layout *y) {
  return ir_type_equal(x->exact, y->exact) && ir_same_dims(x->padded, y->padded) && x->rank == y->rank &&
         memcmp(x->sizes, y->sizes, x->rank * sizeof *x->sizes) == 0 &&
         memcmp(x->padded_sizes, y->padded_sizes, x->rank * sizeof *x->sizes) == 0;
}

static ttpu_status get_border(rt_device *d, const ir_layout *l,
                              ttpu_status (*build)(const ir_layout *l, base_arena *arena, ir_func **out),
                              compiled **out) {
  uint64_t before = rt_global.counters.programs_compiled;
  base_arena *arena = base_arena_new();
  if (arena == NULL) return base_no_memory(sizeof *arena);
  ir_func *f = NULL;
  ttpu_status status = build(l, arena, &f);
  if (status != TTPU_OK) {
    base_arena_delete(arena);
    return status;
  }
  BASE_TRY(get_compiled(d, arena, f, out));
  if (rt_global.counters.programs_compiled == before || rt_global.forbid_compile == 0) return TTPU_OK;
  return base_fail(TTPU_FAILED_PRECONDITION,
                   "a program that pads or cuts a tensor was compiled where torch.tpu.errors_on_compile() forbids it");
}

static ttpu_status run_border(const compiled *c, pjrt_buffer *from, pjrt_buffer **to) {
  const bool kept = false;
  return pjrt_execute(c->executable, 1, &from, &kept, to, NULL, NULL);
}

ttpu_status rt_value_exact(rt_device *d, rt_value *v, pjrt_buffer **out) {
  *out = v->layout == NULL ? v->buffer : v->cut;
  if (*out != NULL) return TTPU_OK;
  compiled *cut;
  BASE_TRY(get_border(d, &v->layout->is, ir_layout_leave, &cut));
  compiled **kept = &known.cuts[known.cut++ % KEPT_CUTS];
  leave_compiled(*kept);
  *kept = cut;
  BASE_TRY(run_border(cut, v->buffer, &v->cut));
  *out = v->cut;
  return TTPU_OK;
}

/* Element `flat` of the exact value in the padded one. */
static int64_t padded_place(const ir_layout *l, int64_t flat) {
  int64_t at = 0, stride = 1;
  for (uint32_t i = l->rank; i-- > 0;) {
    at += flat % l->sizes[i] * stride;
    flat /= l->sizes[i];
    stride *= l->padded_sizes[i];
  }
  return at;
}

/* A run of elements, those of the last factor, at a time. */
ttpu_status rt_layout_read(const rt_value *v, size_t offset, void *to, size_t count) {
  const ir_layout *l = &v->layout->is;
  size_t bytes = base_dtype_bytes((ttpu_dtype)v->dtype), whole = (size_t)ir_numel(l->padded) * bytes;
  size_t run = (size_t)l->sizes[l->rank - 1] * bytes;
  uint8_t *padded = base_alloc(whole), *at = to;
  if (padded == NULL) return base_no_memory(whole);
  ttpu_status status = pjrt_buffer_to_host(v->buffer, padded, whole);
  while (status == TTPU_OK && count > 0) {
    size_t within = offset % run, part = run - within < count ? run - within : count;
    size_t place = (size_t)padded_place(l, (int64_t)(offset / run) * l->sizes[l->rank - 1]) * bytes;
    memcpy(at, padded + place + within, part);
    at += part;
    offset += part;
    count -= part;
  }
  base_free(padded);
  return status;
}

/* ---- making a bucket's program ---------------------------------------------------------------- */

static ttpu_status upload_numbers(rt_device *d, const ir_bucketed *made, rt_bucket *b) {
  const int64_t count = made->number_count;
  if (count == 0) return TTPU_OK;
  return pjrt_buffer_from_host(d->pjrt, TTPU_I64, 1, &count, made->numbers, NULL, NULL, &b->numbers);
}

static ttpu_status copy_layouts(uint32_t count, const ir_layout *from, rt_layout **to) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!ir_layout_is_padded(&from[i])) continue;
    to[i] = layout_new(&from[i]);
    if (to[i] == NULL) return base_no_memory(sizeof **to);
  }
  return TTPU_OK;
}

static ttpu_status describe(rt_device *d, const ir_bucketed *made, rt_bucket *b) {
  const ir_region *body = &made->func->body;
  b->input_count = body->arg_count - (made->number_count > 0);
  b->output_count = body->ops[body->count - 1]->operand_count;
  b->enter = base_calloc(b->input_count + 1u, sizeof *b->enter);
  b->inputs = base_calloc(b->input_count + 1u, sizeof *b->inputs);
  b->outputs = base_calloc(b->output_count + 1u, sizeof *b->outputs);
  if (b->enter == NULL || b->inputs == NULL || b->outputs == NULL)
    return base_no_memory(b->input_count * sizeof *b->enter);
  BASE_TRY(copy_layouts(b->input_count, made->params, b->inputs));
  BASE_TRY(copy_layouts(b->output_count, made->results, b->outputs));
  return upload_numbers(d, made, b);
}

/* Takes the arena. */
static ttpu_status fill_bucket(rt_device *d, base_arena *arena, const ir_bucketed *made, rt_bucket *b) {
  ttpu_status status = describe(d, made, b);
  if (status == TTPU_OK) return get_compiled(d, arena, made->func, &b->main);
  base_arena_delete(arena);
  return status;
}

ttpu_status rt_bucket_find(rt_device *d, const rt_form *form, rt_bucket **out) {
  const rt_skeleton *k = form->known;
  if (mode() != BUCKETS_ALWAYS && (k == NULL || k->nanoseconds < SLOW_COMPILE)) return TTPU_OK;
  const ir_bucket_options options = {k ? k->numbers : NULL, k ? k->varies : NULL, mode() == BUCKETS_ALWAYS};
  base_arena *arena = base_arena_new();
  if (arena == NULL) return base_no_memory(sizeof *arena);
  ir_bucketed made;
  ttpu_status status = ir_bucket(form->plain, arena, &options, &made);
  if (status != TTPU_OK || made.func == NULL) {
    base_arena_delete(arena);
    return status;
  }
  rt_form_note(form, 0); /* with `always` the first one is padded too */
  ir_dump(made.func, "bucket");
  rt_bucket *b = base_calloc(1, sizeof *b);
  if (b == NULL) {
    base_arena_delete(arena);
    return base_no_memory(sizeof *b);
  }
  status = fill_bucket(d, arena, &made, b);
  if (status == TTPU_OK) *out = b;
  else rt_bucket_free(b);
  return status;
}

bool rt_bucket_is_outgrown(const rt_program *p) {
  return p->bucket != NULL && p->runs >= OUTGROWN_RUNS && mode() == BUCKETS_AUTO && rt_global.forbid_compile == 0;
}

void rt_bucket_free(rt_bucket *b) {
  for (uint32_t i = 0; b->enter != NULL && i < b->input_count; ++i) leave_compiled(b->enter[i]);
  for (uint32_t i = 0; b->inputs != NULL && i < b->input_count; ++i) rt_layout_free(b->inputs[i]);
  for (uint32_t i = 0; b->outputs != NULL && i < b->output_count; ++i) rt_layout_free(b->outputs[i]);
  leave_compiled(b->main);
  pjrt_buffer_free(b->numbers);
  base_free(b->enter);
  base_free(b->inputs);
  base_free(b->outputs);
  base_free(b);
}

pjrt_executable *rt_bucket_executable(const rt_bucket *b) { return b->main->executable; }

/* ---- running ---------------------------------------------------------------------------------- */

/* What the host has is padded there, without a program. */
static ttpu_status upload_padded(rt_device *d, const ir_layout *l, const void *data, pjrt_buffer **out) {
  ttpu_dtype dtype = (ttpu_dtype)l->exact.dtype;
  size_t bytes = base_dtype_bytes(dtype), run = (size_t)l->sizes[l->rank - 1] * bytes;
  uint8_t *padded = base_calloc((size_t)ir_numel(l->padded), bytes);
  if (padded == NULL) return base_no_memory((size_t)ir_numel(l->padded) * bytes);
  for (int64_t i = 0; i < ir_numel(l->exact); i += l->sizes[l->rank - 1])
    memcpy(padded + (size_t)padded_place(l, i) * bytes, (const uint8_t *)data + (size_t)i * bytes, run);
  ttpu_status status = pjrt_buffer_from_host(d->pjrt, dtype, l->padded.rank, l->padded.dims, padded, NULL, NULL, out);
  base_free(padded);
  return status;
}

void *rt_bucket_host_copy(const void *data, size_t bytes) {
  if (!rt_bucket_enabled() || bytes > HOST_COPY) return NULL;
  void *copy = base_alloc(bytes + 1);
  if (copy != NULL && bytes > 0) memcpy(copy, data, bytes);
  return copy;
}

static ttpu_status enter(rt_device *d, const rt_bucket *b, uint32_t i, rt_value *v, pjrt_buffer **entered) {
  const ir_layout *l = &b->inputs[i]->is;
  if (v->host != NULL) return upload_padded(d, l, v->host, entered);
  pjrt_buffer *exact;
  BASE_TRY(rt_value_exact(d, v, &exact));
  if (b->enter[i] == NULL) BASE_TRY(get_border(d, l, ir_layout_enter, &b->enter[i]));
  return run_border(b->enter[i], exact, entered);
}

ttpu_status rt_bucket_enter(rt_device *d, const rt_bucket *b, uint32_t i, rt_value *v, pjrt_buffer **out,
                            pjrt_buffer **entered) {
  const rt_layout *wanted = b->inputs[i];
  if (wanted != NULL && v->layout != NULL && layout_equal(&wanted->is, &v->layout->is)) {
    *out = v->buffer;
    return TTPU_OK;
  }
  if (wanted == NULL) return rt_value_exact(d, v, out);
  BASE_TRY(enter(d, b, i, v, entered));
  *out = *entered;
  return TTPU_OK;
}

ttpu_status rt_bucket_upload(rt_device *d, const rt_bucket *b, uint32_t i, ttpu_dtype dtype, uint32_t count,
                             const void *data, pjrt_buffer **out) {
  const int64_t n = count;
  if (b->inputs[i] != NULL) return upload_padded(d, &b->inputs[i]->is, data, out);
  return pjrt_buffer_from_host(d->pjrt, dtype, 1, &n, data, NULL, NULL, out);
}

pjrt_buffer *rt_bucket_numbers(const rt_bucket *b) { return b->numbers; }
rt_layout *rt_bucket_layout(const rt_bucket *b, uint32_t output) { return layout_share(b->outputs[output]); }
