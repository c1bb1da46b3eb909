/* Which instructions become one loop, and where the code of loops lives. */
#include "soft/tile/emit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <sys/mman.h>
#include <unistd.h>

#include "soft/tile/emit_int.h"

/* ---- what can be emitted ---------------------------------------------------------------------- */

static bool is_half(uint32_t dtype) { return dtype == TTPU_BF16 || dtype == TTPU_F16; }

static bool emits_kind(const tile_instr *in) {
  if (in->type == TTPU_BOOL) return in->kind == IR_AND || in->kind == IR_OR || in->kind == IR_XOR || in->kind == IR_NOT;
  if (in->type != TTPU_F32) return false;
  switch (in->kind) {
    case IR_ABS:
    case IR_ADD:
    case IR_CEIL:
    case IR_DIVIDE:
    case IR_ERF:
    case IR_EXPONENTIAL:
    case IR_FLOOR:
    case IR_LOGISTIC:
    case IR_MAXIMUM:
    case IR_MINIMUM:
    case IR_MULTIPLY:
    case IR_NEGATE:
    case IR_ROUND_NEAREST_EVEN:
    case IR_RSQRT:
    case IR_SQRT:
    case IR_SUBTRACT:
    case IR_TANH: return true;
    default: return false;
  }
}

static bool emits_map(const tile_instr *in) {
  switch (in->table) {
    case TILE_MAP_KIND: return emits_kind(in);
    case TILE_MAP_COMPARE: return in->type == TTPU_F32;
    case TILE_MAP_SELECT: return in->type == TTPU_F32;
    case TILE_MAP_COPY: return in->type == TTPU_F32;
    case TILE_MAP_ROUND: return is_half(in->type);
    case TILE_MAP_CONVERT:
      return (in->type == TTPU_BOOL && in->extra == TTPU_F32) || (in->type == TTPU_F32 && in->extra == TTPU_BOOL);
    default: return false;
  }
}

static bool is_emitted(const tile_bound *b, const tile_bound_instr *in) {
  if (in->level != TILE_FULL) return false;
  const tile_port *port;
  switch (in->op) {
    case TILE_MAP: return emits_map(in->source);
    case TILE_LOAD:
      port = &b->ports[in->a];
      return !in->scalar && port->level == TILE_FULL && port->mode == PORT_DIRECT && is_half(port->dtype);
    case TILE_STORE:
      port = &b->ports[b->prog->leaf_count + in->dst];
      return !in->scalar && port->level == TILE_FULL && port->mode == PORT_DIRECT &&
             (is_half(port->dtype) || port->dtype == TTPU_F32);
    case TILE_EXPAND: return b->layout == LAYOUT_ROWS && in->source->type == TTPU_F32;
    default: return false;
  }
}

/* ---- where code lives ------------------------------------------------------------------------- */

/* Code is written through one mapping of a memory file and run through another, so no page is ever both writable and
 * executable. It stays: runs that are equal share it, and a program's are few kinds. */
enum { REGION_BYTES = 16 << 20, TABLE_SIZE = 1 << 14 };
static struct {
  pthread_mutex_t lock;
  uint8_t *writable, *executable;
  size_t used;
  bool is_open, is_unusable, is_off;
  uint32_t count;
  struct {
    base_hash128 key;
    tile_code_fn code;
  } table[TABLE_SIZE];
} region = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget_after_fork(void) { region.is_unusable = true; } /* the parent goes on to write there */

static void open_region(void) {
  region.is_open = true;
  const char *mode = getenv("TTPU_SOFT");
  region.is_unusable = !base_cpu()->avx2 || (mode != NULL && strcmp(mode, "vm") == 0);
  if (region.is_unusable) return;
  int file = memfd_create("ttpu-code", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, REGION_BYTES) == 0) {
    void *writable = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *executable = mmap(NULL, REGION_BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    region.writable = writable != MAP_FAILED ? writable : NULL;
    region.executable = executable != MAP_FAILED ? executable : NULL;
  }
  if (file >= 0) close(file);
  region.is_unusable = !region.writable || !region.executable || pthread_atfork(NULL, NULL, forget_after_fork) != 0;
  if (region.is_unusable) base_log(LOG_INFO, "no memory for machine code: tile programs are interpreted");
}

static uint32_t find_place(base_hash128 key) {
  uint32_t at = (uint32_t)key.a % TABLE_SIZE;
  while (region.table[at].code && (region.table[at].key.a != key.a || region.table[at].key.b != key.b))
    at = (at + 1) % TABLE_SIZE;
  return at;
}

static tile_code_fn keep_code(const emitter *e, uint32_t place, base_hash128 key) {
  size_t length = (e->code.length + 63) & ~(size_t)63;
  if (region.used + length > REGION_BYTES || region.count > TABLE_SIZE / 2) return NULL;
  memcpy(region.writable + region.used, e->code.bytes, e->code.length);
  void *start = region.executable + region.used;
  region.used += length;
  ++region.count;
  region.table[place].key = key;
  memcpy(&region.table[place].code, &start, sizeof start); /* ISO C has no conversion for it */
  return region.table[place].code;
}

/* What the code depends on. */
static base_hash128 key_of(const emitter *e) {
  base_hash128 h = {e->count, e->has_rows};
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *in = e->instrs[i];
    const tile_instr *s = in->source;
    uint32_t dtype = in->op == TILE_LOAD    ? e->b->ports[in->a].dtype
                     : in->op == TILE_STORE ? e->b->ports[e->b->prog->leaf_count + in->dst].dtype
                                            : s->type;
    uint32_t memory = in->op == TILE_STORE  ? e->b->slot_count + e->b->prog->leaf_count + in->dst
                      : in->op == TILE_LOAD ? e->b->slot_count + in->a
                                            : 0;
    h = base_mix128(h, in->op | (uint64_t)s->table << 8 | (uint64_t)s->kind << 16 | (uint64_t)dtype << 32 |
                           (uint64_t)s->extra << 40 | (uint64_t)in->scalar << 48 | (uint64_t)e->stores[i] << 56 |
                           (uint64_t)emit_rounds_result(e, in) << 57);
    h = base_mix128(h, in->dst | (uint64_t)in->a << 16 | (uint64_t)in->b << 32 | (uint64_t)in->c << 48);
    h = base_mix128(h, memory);
  }
  return h;
}

/* The run's code; NULL: registers or memory do not suffice. */
static tile_code_fn code_of(emitter *e) {
  base_hash128 key = key_of(e);
  uint32_t place = find_place(key);
  if (region.table[place].code) return region.table[place].code;
  uint8_t bytes[CODE_BYTES];
  e->failed = true;
  for (unsigned units = UNITS; units > 0 && e->failed; --units) {
    e->code = (x86_code){.bytes = bytes, .capacity = sizeof bytes, .narrow = !base_cpu()->avx512};
    e->constants = (x86_constants){.count = 0};
    e->fixed_count = 0;
    e->failed = false;
    emit_function(e, units);
  }
  return e->failed ? NULL : keep_code(e, place, key);
}

/* ---- runs ------------------------------------------------------------------------------------- */

enum { FEWEST = 2 }; /* instructions that are worth a loop of their own */

/* Is the slot's value at position `from` of the list read there or later? Memory in place is read by others. */
static bool is_wanted(const tile_bound *b, const tile_list *list, uint32_t from, uint16_t slot) {
  if (slot >= b->slot_count) return true;
  for (uint32_t i = from; i < list->count; ++i) {
    if (emit_reads_slot(&list->instrs[i], slot)) return true;
    if (emit_writes_slot(&list->instrs[i], slot)) return false;
  }
  return false;
}

/* Where a register's elements begin; ports have places of their own. */
static bool same_place(const tile_bound *b, uint16_t x, uint16_t y) {
  return x < b->slot_count && y < b->slot_count && b->slot_offsets[x] == b->slot_offsets[y];
}

/* May `in`, which is not emitted, be moved before the run? It gives no lanes or loads them, and nothing of the run meets it. (An
 * output that lies over a leaf is written after the leaf's last load.) */
static bool can_go_before(const emitter *e, const tile_bound_instr *in) {
  if (in->op != TILE_LOAD && (in->level == TILE_FULL || in->op != TILE_MAP)) return false;
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *of = e->instrs[i];
    uint16_t slots[3];
    uint32_t count = emit_reads(of, slots);
    for (uint32_t k = 0; k < count; ++k)
      if (same_place(e->b, slots[k], in->dst) || slots[k] == in->dst) return false;
    if (of->op == TILE_STORE) continue;
    if (same_place(e->b, of->dst, in->dst) || emit_reads_slot(in, of->dst)) return false;
  }
  return true;
}

/* Registers are shared by values that do not live together. Lane after lane that holds only for elements of one size: a
 * result that is stored may not lie over an operand of another size that is read from memory. */
static bool places_fit(const emitter *e) {
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *writer = e->instrs[i];
    if (!e->stores[i]) continue;
    for (uint32_t k = 0; k < e->count; ++k) {
      const tile_bound_instr *reader = e->instrs[k];
      uint16_t slots[3];
      uint32_t count = reader->op == TILE_EXPAND ? 0 : emit_reads(reader, slots);
      for (uint32_t j = 0; j < count; ++j)
        if (same_place(e->b, slots[j], writer->dst) && emit_takes_truth(reader, j) != emit_gives_truth(writer))
          return false;
      if (e->stores[k] && same_place(e->b, reader->dst, writer->dst) &&
          emit_gives_truth(reader) != emit_gives_truth(writer))
        return false;
    }
  }
  return true;
}

/* Makes one instruction of the run, whose last instruction is before position `end` of the list. */
static bool close_run(emitter *e, const tile_list *list, uint32_t end, tile_bound_instr *to) {
  if (e->count < FEWEST) return false;
  e->rounds = false;
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *in = e->instrs[i];
    e->rounds |= emit_rounds_result(e, in) || (in->op == TILE_MAP && in->source->table == TILE_MAP_ROUND);
    e->stores[i] = false;
    if (in->op == TILE_STORE) continue;
    bool last = true;
    for (uint32_t k = i + 1; k < e->count; ++k) last &= !emit_writes_slot(e->instrs[k], in->dst);
    e->stores[i] = last && is_wanted(e->b, list, end, in->dst);
  }
  if (!places_fit(e)) return false;
  tile_code_fn code = code_of(e);
  if (!code) return false;
  *to =
      (tile_bound_instr){.op = TILE_EMITTED, .level = TILE_FULL, .scalar = e->has_rows, .source = e->instrs[0]->source};
  to->kernel.code = code;
  return true;
}

void tile_emit(tile_bound *b, tile_list *list) {
  if (list->count < FEWEST) return;
  pthread_mutex_lock(&region.lock);
  if (!region.is_open) open_region();
  static emitter e; /* guarded by the lock: too large for a stack */
  bool usable = !region.is_unusable && !region.is_off;
  tile_bound_instr copy[MOST_INSTRS]; /* of a run, whose places in the list are written meanwhile */
  uint32_t out = 0;
  for (uint32_t at = 0; usable && at < list->count;) {
    e.b = b, e.count = 0, e.has_rows = false;
    uint32_t end = at, before = out; /* instructions that go before the run are put down at once */
    for (; end < list->count && e.count < MOST_INSTRS; ++end) {
      const tile_bound_instr *in = &list->instrs[end];
      if (!is_emitted(b, in)) {
        if (e.count == 0 || !can_go_before(&e, in)) break;
        list->instrs[before++] = *in;
        continue;
      }
      e.has_rows |= in->op == TILE_EXPAND;
      copy[e.count] = *in;
      e.instrs[e.count] = &copy[e.count];
      ++e.count;
    }
    if (e.count == 0) { /* not for us */
      list->instrs[out++] = list->instrs[at++];
      continue;
    }
    out = before;
    if (close_run(&e, list, end, &list->instrs[out])) ++out;
    else
      for (uint32_t i = 0; i < e.count; ++i) list->instrs[out++] = copy[i];
    at = end;
  }
  if (usable) list->count = out;
  pthread_mutex_unlock(&region.lock);
}

bool tile_emit_allow(bool allow) {
  pthread_mutex_lock(&region.lock);
  if (!region.is_open) open_region();
  region.is_off = !allow;
  bool usable = !region.is_unusable;
  pthread_mutex_unlock(&region.lock);
  return usable;
}

#else

void tile_emit(tile_bound *b, tile_list *list) {
  (void)b;
  (void)list;
}

bool tile_emit_allow(bool allow) {
  (void)allow;
  return false;
}

#endif
