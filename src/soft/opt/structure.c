/* Makes structures and keeps the recently used ones. */
#include <pthread.h>
#include <string.h>

#include "soft/opt/opt.h"

/* ---- the order of steps ----------------------------------------------------------------------- */

typedef struct orderer {
  opt_analysis a;
  opt_structure *s;
  tile_prog **group_progs;  /* by group */
  tile_prog **scalar_progs; /* by value */
  bool *emitted;            /* by position */
  uint32_t capacity;
} orderer;

static ttpu_status append(orderer *o, opt_step step) {
  if (!BASE_GROW(o->s->steps, o->s->step_count, o->capacity)) return base_no_memory(sizeof step);
  o->s->steps[o->s->step_count++] = step;
  return TTPU_OK;
}

static ttpu_status emit_value(orderer *o, ir_value v);

static ttpu_status emit_program(orderer *o, const tile_prog *p) {
  for (uint32_t i = 0; i < p->leaf_count; ++i) BASE_TRY(emit_value(o, p->leaves[i].value));
  return append(o, (opt_step){.kind = STEP_TILE, .prog = p});
}

static ttpu_status emit_group(orderer *o, uint32_t group) {
  opt_group *g = &o->a.groups[group];
  if (g->emitted) return TTPU_OK;
  g->emitted = true;
  return o->group_progs[group]->out_count ? emit_program(o, o->group_progs[group]) : TTPU_OK;
}

static ttpu_status emit_captures(orderer *o, const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    for (uint32_t k = 0; k < op->operand_count; ++k)
      if (o->a.f->values[op->operands[k]].region == &o->a.f->body) BASE_TRY(emit_value(o, op->operands[k]));
    for (uint32_t k = 0; k < op->region_count; ++k) BASE_TRY(emit_captures(o, op->regions[k]));
  }
  return TTPU_OK;
}

static ttpu_status emit_op(orderer *o, const ir_op *op, opt_step_kind kind) {
  if (o->emitted[op->index]) return TTPU_OK;
  o->emitted[op->index] = true;
  for (uint32_t k = 0; k < op->operand_count; ++k) BASE_TRY(emit_value(o, op->operands[k]));
  for (uint32_t k = 0; k < op->region_count; ++k) BASE_TRY(emit_captures(o, op->regions[k]));
  return append(o, (opt_step){.kind = (uint8_t)kind, .position = op->index});
}

/* Everything that puts v into memory, unless it was emitted. */
static ttpu_status emit_value(orderer *o, ir_value v) {
  const ir_op *op = ir_def(o->a.f, v);
  switch (o->a.notes[v].home) {
    case HOME_VIEW: return emit_op(o, op, STEP_VIEW);
    case HOME_BUFFER: return emit_op(o, op, STEP_KERNEL);
    case HOME_FUSED: return emit_group(o, opt_find(&o->a, o->a.notes[v].group));
    case HOME_SCALAR:
      if (o->emitted[op->index]) return TTPU_OK;
      o->emitted[op->index] = true;
      return emit_program(o, o->scalar_progs[v]);
    default: return TTPU_OK;
  }
}

static ttpu_status order_steps(orderer *o) {
  const ir_region *body = &o->a.f->body;
  for (uint32_t i = 0; i + 1 < body->count; ++i) {
    const ir_op *op = body->ops[i];
    if (!o->a.live[i]) continue;
    const opt_note *n = op->result_count ? &o->a.notes[op->first_result] : NULL;
    if (!n || n->home == HOME_BUFFER) BASE_TRY(emit_op(o, op, STEP_KERNEL));
    else if (op->kind == IR_CHECK_INDEX) BASE_TRY(emit_op(o, op, STEP_VIEW));
    else if (n->home == HOME_FUSED) {
      uint32_t g = opt_find(&o->a, n->group);
      if (o->a.groups[g].last == i + 1) BASE_TRY(emit_group(o, g));
    }
  }
  const ir_op *ret = body->ops[body->count - 1];
  for (uint32_t k = 0; k < ret->operand_count; ++k) BASE_TRY(emit_value(o, ret->operands[k]));
  return TTPU_OK;
}

/* ---- programs --------------------------------------------------------------------------------- */

static ttpu_status make_programs(orderer *o) {
  opt_analysis *a = &o->a;
  size_t groups = a->group_count + 1, values = a->f->value_count + 1;
  o->group_progs = base_arena_zalloc(a->arena, groups * sizeof *o->group_progs);
  o->scalar_progs = base_arena_zalloc(a->arena, values * sizeof *o->scalar_progs);
  if (!o->group_progs || !o->scalar_progs) return base_no_memory(values * sizeof *o->scalar_progs);
  for (uint32_t g = 1; g < groups; ++g)
    if (a->groups[g].parent == g) BASE_TRY(opt_program_make(a, &o->s->arena, g, 0, &o->group_progs[g]));
  for (uint32_t v = 1; v < a->f->value_count; ++v) /* in order: a scalar may need one of a smaller number */
    if (a->notes[v].home == HOME_SCALAR && a->notes[v].needed)
      BASE_TRY(opt_program_make(a, &o->s->arena, 0, v, &o->scalar_progs[v]));
  for (uint32_t g = 1; g < groups; ++g)
    if (o->group_progs[g]) BASE_TRY(opt_program_finish(a, &o->s->arena, o->group_progs[g], g, 0));
  for (uint32_t v = 1; v < a->f->value_count; ++v)
    if (o->scalar_progs[v]) BASE_TRY(opt_program_finish(a, &o->s->arena, o->scalar_progs[v], 0, v));
  return TTPU_OK;
}

static void structure_free(opt_structure *s) {
  if (!s) return;
  base_free(s->steps);
  base_arena_free(&s->arena);
  base_free(s);
}

static ttpu_status structure_make(const ir_func *f, base_hash128 key, opt_structure **out) {
  base_arena scratch;
  base_arena_init(&scratch);
  orderer o = {.a = {.arena = &scratch, .f = f}};
  ttpu_status status;
  o.s = base_calloc(1, sizeof *o.s);
  if (!o.s) {
    status = base_no_memory(sizeof *o.s);
    goto out;
  }
  base_arena_init(&o.s->arena);
  o.s->key = key;
  atomic_init(&o.s->refs, 1);
  o.emitted = base_arena_zalloc(&scratch, f->body.count + 1);
  status = o.emitted ? opt_group_operations(&o.a) : base_no_memory(f->body.count);
  if (status == TTPU_OK) status = make_programs(&o);
  if (status == TTPU_OK) status = order_steps(&o);
out:
  base_free(o.a.groups);
  base_arena_free(&scratch);
  if (status != TTPU_OK) structure_free(o.s);
  else *out = o.s;
  return status;
}

/* ---- the cache -------------------------------------------------------------------------------- */

enum { BUCKETS = 1024, MOST_CACHED = 2048 };

static struct {
  pthread_mutex_t lock;
  struct bucket {
    opt_structure **entries;
    uint32_t count, capacity;
  } buckets[BUCKETS];
  opt_structure *newest, *oldest;
  uint32_t count;
  atomic_ullong compiled;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t opt_structures_compiled(void) { return atomic_load(&cache.compiled); }

void opt_structure_release(opt_structure *s) {
  if (s && atomic_fetch_sub(&s->refs, 1) == 1) structure_free(s);
}

static void unlink_structure(opt_structure *s) {
  *(s->newer ? &s->newer->older : &cache.newest) = s->older;
  *(s->older ? &s->older->newer : &cache.oldest) = s->newer;
  s->newer = s->older = NULL;
}
static void link_newest(opt_structure *s) {
  s->older = cache.newest;
  if (cache.newest) cache.newest->newer = s;
  cache.newest = s;
  if (!cache.oldest) cache.oldest = s;
}

static opt_structure *find(base_hash128 key) {
  struct bucket *b = &cache.buckets[key.a % BUCKETS];
  for (uint32_t i = 0; i < b->count; ++i)
    if (b->entries[i]->key.a == key.a && b->entries[i]->key.b == key.b) return b->entries[i];
  return NULL;
}

static void evict_oldest(void) {
  opt_structure *s = cache.oldest;
  struct bucket *b = &cache.buckets[s->key.a % BUCKETS];
  for (uint32_t i = 0; i < b->count; ++i)
    if (b->entries[i] == s) {
      b->entries[i] = b->entries[--b->count];
      break;
    }
  unlink_structure(s);
  --cache.count;
  opt_structure_release(s);
}

/* With the lock held. Keeping a structure is a convenience: without memory it is not kept. */
static void insert(opt_structure *s) {
  struct bucket *b = &cache.buckets[s->key.a % BUCKETS];
  if (!BASE_GROW(b->entries, b->count, b->capacity)) return;
  if (cache.count == MOST_CACHED) evict_oldest();
  b->entries[b->count++] = s;
  atomic_fetch_add(&s->refs, 1);
  link_newest(s);
  ++cache.count;
}

/* The structural hash, and of each reshape whether it keeps the dims other than 1. */
static base_hash128 key_of(const ir_func *f) {
  base_hash128 key = ir_func_structure(f);
  uint64_t bits = 1;
  for (uint32_t i = 0; i < f->body.count; ++i) {
    if (f->body.ops[i]->kind != IR_RESHAPE) continue;
    bits = bits << 1 | opt_reshape_keeps(f, f->body.ops[i]);
    if (bits >> 63) key = base_mix128(key, bits), bits = 1;
  }
  return base_mix128(key, bits);
}

ttpu_status opt_structure_get(const ir_func *f, opt_structure **out, bool *hit) {
  base_hash128 key = key_of(f);
  pthread_mutex_lock(&cache.lock);
  opt_structure *s = find(key);
  if (s) {
    atomic_fetch_add(&s->refs, 1);
    unlink_structure(s);
    link_newest(s);
  }
  pthread_mutex_unlock(&cache.lock);
  *hit = s != NULL;
  if (!s) {
    BASE_TRY(structure_make(f, key, &s));
    atomic_fetch_add(&cache.compiled, 1);
    pthread_mutex_lock(&cache.lock);
    if (!find(key)) insert(s);
    pthread_mutex_unlock(&cache.lock);
  }
  *out = s;
  return TTPU_OK;
}
