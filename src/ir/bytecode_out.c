/* The container of a portable artifact, written: see bytecode_out.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/bytecode_out.h"

void out_byte(base_text *t, unsigned byte) { base_text_put(t, &(const char){(char)byte}, 1); }

/* The number of low zero bits says how many bytes follow the first; eight of them are the number's own. */
void out_varint(base_text *t, uint64_t v) {
  unsigned bytes = 1;
  while (bytes < 9 && v >> (7 * bytes)) ++bytes;
  uint8_t out[9] = {0};
  uint64_t tagged = bytes < 9 ? (v << 1 | 1) << (bytes - 1) : v;
  for (unsigned i = 0; i < 8; ++i) out[bytes < 9 ? i : i + 1] = (uint8_t)(tagged >> (8 * i));
  base_text_put(t, (const char *)out, bytes);
}

void out_svarint(base_text *t, int64_t v) { out_varint(t, (uint64_t)v << 1 ^ (0 - (uint64_t)(v < 0))); }

void out_section(base_text *out, unsigned id, const base_text *bytes) {
  out_byte(out, id);
  out_varint(out, bytes->length);
  base_text_put(out, bytes->data, bytes->length);
}

void out_fail(writer *w, ttpu_status code, const char *format, ...) {
  if (w->status) return;
  char message[400];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  w->status = base_fail(code, "%s", message);
}

static uint32_t no_memory(writer *w) {
  out_fail(w, TTPU_RESOURCE_EXHAUSTED, "out of host memory");
  return 0;
}

/* ---- tables --------------------------------------------------------------------------------- */

static uint32_t bucket_of(const out_table *t, uint32_t dialect, const void *bytes, size_t length) {
  return (uint32_t)base_hash(dialect, bytes, length) & (t->bucket_count - 1);
}

/* Twice as many buckets; items are found by their bytes again. */
static bool grow_buckets(out_table *t) {
  uint32_t count = t->bucket_count ? t->bucket_count * 2 : 64;
  uint32_t *buckets = base_calloc(count, sizeof *buckets);
  if (!buckets) return false;
  base_free(t->buckets);
  t->buckets = buckets;
  t->bucket_count = count;
  for (uint32_t i = 0; i < t->count; ++i) {
    const out_item *item = &t->items[i];
    uint32_t at = bucket_of(t, item->dialect, t->bytes.data + item->at, item->length);
    while (t->buckets[at]) at = (at + 1) & (count - 1);
    t->buckets[at] = i + 1;
  }
  return true;
}

uint32_t out_entry(writer *w, out_table *t, uint32_t dialect, const void *bytes, size_t length) {
  if (w->status) return 0;
  if (2 * t->count >= t->bucket_count && !grow_buckets(t)) return no_memory(w);
  uint32_t at = bucket_of(t, dialect, bytes, length);
  for (; t->buckets[at]; at = (at + 1) & (t->bucket_count - 1)) {
    const out_item *item = &t->items[t->buckets[at] - 1];
    if (item->dialect == dialect && item->length == length &&
        (length == 0 || memcmp(t->bytes.data + item->at, bytes, length) == 0))
      return t->buckets[at] - 1;
  }
  if (!BASE_GROW(t->items, t->count, t->capacity)) return no_memory(w);
  t->items[t->count] = (out_item){t->bytes.length, length, dialect};
  base_text_put(&t->bytes, bytes, length);
  if (t->bytes.failed) return no_memory(w);
  t->buckets[at] = ++t->count;
  return t->count - 1;
}

uint32_t out_take(writer *w, out_table *table, uint32_t dialect, base_text *bytes) {
  uint32_t number = bytes->failed ? no_memory(w) : out_entry(w, table, dialect, bytes->data, bytes->length);
  base_text_free(bytes);
  *bytes = (base_text){0};
  return number;
}

uint32_t out_string(writer *w, const char *text) { return out_entry(w, &w->strings, 0, text, strlen(text) + 1); }

uint32_t out_name(writer *w, uint32_t dialect, const char *name) {
  uint32_t string = out_string(w, name);
  return out_entry(w, &w->names, dialect, &string, sizeof string);
}

static void free_table(out_table *t) {
  base_text_free(&t->bytes);
  base_free(t->items);
  base_free(t->buckets);
}

/* ---- sections ------------------------------------------------------------------------------- */

static void put_strings(writer *w, base_text *out) {
  base_text section = {0};
  out_varint(&section, w->strings.count);
  for (uint32_t i = w->strings.count; i-- > 0;) out_varint(&section, w->strings.items[i].length);
  base_text_put(&section, w->strings.bytes.data, w->strings.bytes.length);
  out_section(out, SECTION_STRINGS, &section);
  if (section.failed) no_memory(w);
  base_text_free(&section);
}

/* Items of one dialect that follow each other, as a group: its number, how many. Returns where the next one begins. */
static uint32_t put_group(const out_table *t, uint32_t from, base_text *out) {
  uint32_t to = from;
  while (to < t->count && t->items[to].dialect == t->items[from].dialect) ++to;
  out_varint(out, t->items[from].dialect);
  out_varint(out, to - from);
  return to;
}

static void put_dialects(writer *w, const uint32_t *dialects, base_text *out) {
  base_text section = {0};
  out_varint(&section, OUT_DIALECTS);
  for (uint32_t i = 0; i < OUT_DIALECTS; ++i) out_varint(&section, (uint64_t)dialects[i] << 1); /* of no version */
  out_varint(&section, w->names.count);
  for (uint32_t i = 0; i < w->names.count;)
    for (uint32_t end = put_group(&w->names, i, &section); i < end; ++i) {
      uint32_t string;
      memcpy(&string, w->names.bytes.data + w->names.items[i].at, sizeof string);
      out_varint(&section, (uint64_t)string << 1 | 1); /* a registered operation: properties are native */
    }
  out_section(out, SECTION_DIALECTS, &section);
  if (section.failed) no_memory(w);
  base_text_free(&section);
}

static void put_entries(writer *w, base_text *out) {
  const out_table *tables[] = {&w->attributes, &w->types};
  base_text section = {0}, offsets = {0};
  for (size_t t = 0; t < 2; ++t) out_varint(&offsets, tables[t]->count);
  for (size_t t = 0; t < 2; ++t) {
    base_text_put(&section, tables[t]->bytes.data, tables[t]->bytes.length);
    for (uint32_t i = 0; i < tables[t]->count;)
      for (uint32_t end = put_group(tables[t], i, &offsets); i < end; ++i)
        out_varint(&offsets, (uint64_t)tables[t]->items[i].length << 1 | 1); /* in the dialect's own encoding */
  }
  out_section(out, SECTION_ENTRIES, &section);
  out_section(out, SECTION_OFFSETS, &offsets);
  if (section.failed || offsets.failed) no_memory(w);
  base_text_free(&section);
  base_text_free(&offsets);
}

static void put_properties(writer *w, base_text *out) {
  base_text section = {0};
  out_varint(&section, w->properties.count);
  for (uint32_t i = 0; i < w->properties.count; ++i) {
    const out_item *item = &w->properties.items[i];
    out_varint(&section, item->length);
    base_text_put(&section, w->properties.bytes.data + item->at, item->length);
  }
  out_section(out, SECTION_PROPERTIES, &section);
  if (section.failed) no_memory(w);
  base_text_free(&section);
}

static void put_file(writer *w, base_text *out) {
  const uint32_t dialects[OUT_DIALECTS] = {out_string(w, "builtin"), out_string(w, "vhlo")};
  base_text_put(out, "ML\xefR", 4);
  out_varint(out, BYTECODE_NEWEST);
  base_text_printf(out, "StableHLO_v%u.%u.0", w->version / 100, w->version % 100);
  out_byte(out, 0);
  put_strings(w, out);
  put_dialects(w, dialects, out);
  put_entries(w, out);
  out_section(out, SECTION_IR, &w->ir);
  put_properties(w, out);
  if (out->failed || w->ir.failed) no_memory(w);
}

ttpu_status ir_func_write(const ir_func *f, unsigned version, base_text *out) {
  unsigned needed = vhlo_version_needed(f);
  if (version == 0) version = needed;
  if (version < needed || version > VHLO_NEWEST || version < VHLO_OLDEST_WRITTEN)
    return base_fail(TTPU_UNIMPLEMENTED, "StableHLO %u.%u cannot hold this program: %u.%u to %u.%u can", version / 100,
                     version % 100, needed / 100, needed % 100, VHLO_NEWEST / 100, VHLO_NEWEST % 100);
  writer writer = {.version = version}, *w = &writer;
  size_t before = out->length;
  out_module(w, f);
  if (!w->status) put_file(w, out);
  if (w->status) out->length = before;
  out_table *tables[] = {&w->strings, &w->attributes, &w->types, &w->properties, &w->names};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) free_table(tables[i]);
  base_text_free(&w->ir);
  base_free(w->numbers);
  base_free(w->decompositions.list);
  return w->status;
}
