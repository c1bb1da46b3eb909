/* Results' metadata by call: an open hash table of compact entries, emptied when full. */
#include <string.h>

#include "rt/rt_int.h"

enum { META_SLOTS = 1 << 16, META_LIMIT = META_SLOTS / 2, META_WORDS = 6 };

/* An entry's data: for each result dtype | rank << 8, then sizes, then strides. */
typedef struct meta_entry {
  base_hash128 key;
  uint32_t count;
  uint32_t words;
  int64_t *data; /* own, or in `small` */
  int64_t small[META_WORDS];
} meta_entry;

static struct {
  rt_mutex lock;
  meta_entry *slots;
  uint32_t used;
} table;

base_hash128 rt_meta_key(const rt_op *op, const aten_call *call, uint64_t salt) {
  base_hash128 h = {op->id, salt};
  for (uint32_t i = 0; i < call->arg_count; ++i)
    h.a = base_mix(h.a, call->args[i].kind | (uint64_t)call->args[i].count << 8);
  for (uint32_t i = 0; i < call->tensor_count; ++i) {
    const aten_tensor *t = &call->tensors[i];
    h = base_mix128(h, t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->flags << 16);
    if (t->flags & ATEN_UNDEFINED) continue;
    for (uint32_t d = 0; d < t->rank; ++d)
      h = base_mix128(h, (uint64_t)t->sizes[d] ^ (uint64_t)t->strides[d] << 40 ^ (uint64_t)t->strides[d] >> 24);
  }
  for (uint32_t i = 0; i < call->int_count; ++i) h = base_mix128(h, (uint64_t)call->ints[i]);
  for (uint32_t i = 0; i < call->number_count; ++i) h.a = base_mix(h.a, call->numbers[i].dtype);
  for (uint32_t i = 0; i < call->arg_count; ++i) { /* static numbers may decide shapes */
    const aten_arg *a = &call->args[i];
    if (a->kind < ATEN_FLOAT || a->kind > ATEN_SCALARS || i >= 32 || !(call->row->static_args >> i & 1)) continue;
    uint32_t n = a->kind == ATEN_FLOAT || a->kind == ATEN_SCALAR ? 1 : a->count;
    for (uint32_t k = 0; k < n; ++k) {
      const aten_number *number = &call->numbers[a->first + k];
      h = base_mix128(h, number->value.u);
      if (number->dtype == TTPU_C128) h = base_hash128_bytes(h, &number->value.d[1], sizeof(double));
    }
  }
  for (uint32_t i = 0; i < call->text_count; ++i)
    if (call->texts[i] != NULL) h = base_hash128_bytes(h, call->texts[i], strlen(call->texts[i]));
  return h;
}

static meta_entry *find(base_hash128 key) {
  for (uint32_t i = (uint32_t)key.a & (META_SLOTS - 1);; i = (i + 1) & (META_SLOTS - 1)) {
    meta_entry *e = &table.slots[i];
    if (e->words == 0 || (e->key.a == key.a && e->key.b == key.b)) return e;
  }
}

bool rt_meta_get(base_hash128 key, uint32_t *count, aten_shape *outs, uint32_t capacity) {
  rt_mutex_lock(&table.lock);
  meta_entry *e = table.slots != NULL ? find(key) : NULL;
  bool known = e != NULL && e->words > 0, hit = known && e->count <= capacity;
  if (known) *count = e->count;
  if (hit) {
    const int64_t *p = e->data != NULL ? e->data : e->small;
    for (uint32_t i = 0; i < e->count; ++i) {
      outs[i].dtype = (uint8_t)(p[0] & 0xff);
      outs[i].rank = (uint8_t)(p[0] >> 8);
      memcpy(outs[i].sizes, p + 1, outs[i].rank * sizeof(int64_t));
      memcpy(outs[i].strides, p + 1 + outs[i].rank, outs[i].rank * sizeof(int64_t));
      p += 1 + 2 * outs[i].rank;
    }
  }
  if (hit) ++rt_global.counters.op_cache_hits; /* written under this lock alone */
  else ++rt_global.counters.op_cache_misses;
  rt_mutex_unlock(&table.lock);
  return hit;
}

static void clear_slots(void) {
  if (table.slots == NULL) return;
  for (uint32_t i = 0; i < META_SLOTS; ++i) {
    if (table.slots[i].data != NULL) base_free(table.slots[i].data);
    table.slots[i] = (meta_entry){0};
  }
  table.used = 0;
}

void rt_meta_put(base_hash128 key, uint32_t count, const aten_shape *outs) {
  uint32_t words = 1; /* never 0: that marks a free slot */
  for (uint32_t i = 0; i < count; ++i) words += 1 + 2u * outs[i].rank;
  rt_mutex_lock(&table.lock);
  if (table.slots == NULL) table.slots = base_calloc(META_SLOTS, sizeof *table.slots);
  if (table.slots != NULL) {
    if (table.used >= META_LIMIT) clear_slots();
    meta_entry *e = find(key);
    int64_t *data = words - 1 > META_WORDS ? base_alloc(words * sizeof(int64_t)) : e->small;
    if (e->words == 0 && data != NULL) {
      *e = (meta_entry){.key = key, .count = count, .words = words, .data = data == e->small ? NULL : data};
      int64_t *p = data;
      for (uint32_t i = 0; i < count; ++i) {
        *p++ = outs[i].dtype | (int64_t)outs[i].rank << 8;
        for (uint32_t d = 0; d < outs[i].rank; ++d) *p++ = outs[i].sizes[d];
        for (uint32_t d = 0; d < outs[i].rank; ++d) *p++ = outs[i].strides[d];
      }
      ++table.used;
    } else if (data != NULL && data != e->small) {
      base_free(data);
    }
  }
  rt_mutex_unlock(&table.lock);
}

void rt_meta_clear(void) {
  rt_mutex_lock(&table.lock);
  clear_slots();
  rt_mutex_unlock(&table.lock);
}
