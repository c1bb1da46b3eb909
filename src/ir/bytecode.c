/* The container: see bytecode_int.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/bytecode_int.h"

#undef FAIL /* here a message names the byte */
#define FAIL(...) return bytecode_fail(p, c, __VA_ARGS__), false

/* ---- bytes ---------------------------------------------------------------------------------- */

bool bytecode_fail(parser *p, const cursor *c, const char *format, ...) {
  char message[400];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (c && text_ok(&p->text)) p->text.at = (const char *)c->at;
  return text_fail(&p->text, TTPU_INVALID_ARGUMENT, "%s", message);
}

bool cursor_byte(parser *p, cursor *c, uint8_t *out) {
  if (c->at >= c->end) FAIL("the bytecode ends in the middle");
  *out = *c->at++;
  return true;
}

/* One to nine bytes: the number of low zero bits of the first says how many follow it. */
bool cursor_varint(parser *p, cursor *c, uint64_t *out) {
  if (c->at >= c->end) FAIL("the bytecode ends where a number should be");
  uint8_t first = *c->at;
  unsigned more = first ? (unsigned)__builtin_ctz(first) : 8;
  if (cursor_left(c) < more + 1) FAIL("the bytecode ends in a number");
  uint64_t bits = 0;
  for (unsigned i = 0; i <= more && i < 8; ++i) bits |= (uint64_t)c->at[more < 8 ? i : i + 1] << (8 * i);
  *out = more < 8 ? bits >> (more + 1) : bits;
  c->at += more + 1;
  return true;
}

bool cursor_svarint(parser *p, cursor *c, int64_t *out) {
  uint64_t bits;
  TRY(cursor_varint(p, c, &bits));
  *out = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
  return true;
}

bool cursor_flagged(parser *p, cursor *c, uint64_t *out, bool *flag) {
  TRY(cursor_varint(p, c, out));
  *flag = *out & 1;
  *out >>= 1;
  return true;
}

bool cursor_index(parser *p, cursor *c, uint64_t limit, const char *what, uint32_t *out) {
  const cursor before = *c;
  uint64_t index;
  TRY(cursor_varint(p, c, &index));
  if (index >= limit) {
    *c = before;
    FAIL("%s %llu of %llu", what, (unsigned long long)index, (unsigned long long)limit);
  }
  *out = (uint32_t)index;
  return true;
}

bool cursor_count(parser *p, cursor *c, uint32_t *out) {
  const cursor before = *c;
  uint64_t count;
  TRY(cursor_varint(p, c, &count));
  if (count > cursor_left(c) || count > UINT32_MAX / 2) {
    *c = before;
    FAIL("%llu entries in %zu bytes", (unsigned long long)count, cursor_left(&before));
  }
  *out = (uint32_t)count;
  return true;
}

bool cursor_take(parser *p, cursor *c, uint64_t bytes, cursor *out) {
  if (bytes > cursor_left(c)) FAIL("%llu bytes, but only %zu are left", (unsigned long long)bytes, cursor_left(c));
  *out = (cursor){c->at, c->at + bytes};
  c->at += bytes;
  return true;
}

bool cursor_string(parser *p, cursor *c, text_slice *out) {
  uint32_t index;
  TRY(cursor_index(p, c, p->bytecode->string_count, "string", &index));
  *out = p->bytecode->strings[index];
  return true;
}

/* Padding up to a multiple of `alignment` from the file's start. */
static bool skip_padding(parser *p, cursor *c, uint64_t alignment) {
  enum { MOST = 1 << 20, PADDING = 0xCB };
  if (alignment == 0 || (alignment & (alignment - 1)) || alignment > MOST)
    FAIL("an alignment of %llu bytes", (unsigned long long)alignment);
  while ((size_t)((const char *)c->at - p->text.start) & (alignment - 1)) {
    uint8_t byte;
    TRY(cursor_byte(p, c, &byte));
    if (byte != PADDING) FAIL("a byte of padding is 0x%02X", byte);
  }
  return true;
}

bool cursor_section(parser *p, cursor *c, uint8_t *id, cursor *out) {
  uint64_t length, alignment;
  TRY(cursor_byte(p, c, id));
  TRY(cursor_varint(p, c, &length));
  if (*id & 0x80) TRY(cursor_varint(p, c, &alignment) && skip_padding(p, c, alignment));
  *id &= 0x7F;
  return cursor_take(p, c, length, out);
}

bool cursor_group(parser *p, cursor *c, uint32_t *dialect, uint64_t *count) {
  return cursor_index(p, c, p->bytecode->dialect_count, "dialect", dialect) && cursor_varint(p, c, count);
}

/* ---- sections ------------------------------------------------------------------------------- */

static bool read_strings(parser *p, bytecode *b) {
  cursor *c = &b->sections[SECTION_STRINGS];
  TRY(cursor_count(p, c, &b->string_count));
  b->strings = text_room(&p->text, b->string_count * sizeof *b->strings);
  if (!b->strings) return false;
  for (uint32_t i = b->string_count; i-- > 0;) { /* the last string lies at the end: lengths and strings meet */
    uint64_t length;
    TRY(cursor_varint(p, c, &length));
    if (length == 0 || length > cursor_left(c)) FAIL("string %u has %llu bytes", i, (unsigned long long)length);
    c->end -= length;
    if (c->end[length - 1]) FAIL("string %u does not end with a NUL", i);
    b->strings[i] = (text_slice){(const char *)c->end, (size_t)length - 1};
  }
  if (c->at != c->end) FAIL("%zu bytes between the strings' lengths and the strings", cursor_left(c));
  return true;
}

/* "stablehlo.add" for add_v1; other dialects' names as they are. */
static bool name_statement(parser *p, bytecode_name *n) {
  bool vhlo = text_is(n->dialect, "vhlo");
  if (vhlo) n->vhlo = vhlo_op_find(n->name);
  text_slice dialect = n->dialect, name = n->name;
  if (n->vhlo) {
    bool call = strcmp(n->vhlo->name, "call") == 0, func = strcmp(n->vhlo->name, "func") == 0;
    dialect = call || func ? (text_slice){"func", 4} : (text_slice){"stablehlo", 9};
    name = (text_slice){n->vhlo->name, strlen(n->vhlo->name)};
  }
  char *text = text_room(&p->text, dialect.length + 1 + name.length + 1);
  if (!text) return false;
  memcpy(text, dialect.data, dialect.length);
  text[dialect.length] = '.';
  memcpy(text + dialect.length + 1, name.data, name.length);
  n->statement = (text_slice){text, dialect.length + 1 + name.length};
  return true;
}

static bool read_dialects(parser *p, bytecode *b) {
  cursor *c = &b->sections[SECTION_DIALECTS], ignored;
  TRY(cursor_count(p, c, &b->dialect_count));
  b->dialects = text_room(&p->text, b->dialect_count * sizeof *b->dialects);
  if (!b->dialects) return false;
  for (uint32_t i = 0; i < b->dialect_count; ++i) {
    uint64_t name;
    bool versioned = false;
    uint8_t id;
    if (b->version >= 1) TRY(cursor_flagged(p, c, &name, &versioned));
    else TRY(cursor_varint(p, c, &name));
    if (name >= b->string_count) FAIL("the name of dialect %u is string %llu", i, (unsigned long long)name);
    b->dialects[i] = b->strings[name];
    if (versioned) TRY(cursor_section(p, c, &id, &ignored));
  }
  uint64_t total;
  if (b->version >= 4) TRY(cursor_varint(p, c, &total)); /* a hint */
  while (c->at < c->end) {
    uint32_t dialect;
    uint64_t count;
    TRY(cursor_group(p, c, &dialect, &count));
    for (uint64_t i = 0; i < count; ++i) {
      bytecode_name n = {.dialect = b->dialects[dialect]};
      uint64_t name;
      if (b->version >= 5) TRY(cursor_flagged(p, c, &name, &n.registered));
      else TRY(cursor_varint(p, c, &name));
      if (name >= b->string_count) FAIL("the name of an operation is string %llu", (unsigned long long)name);
      n.name = b->strings[name];
      TRY(name_statement(p, &n));
      TRY(parse_push(p, (void **)&b->names, b->name_count, &b->name_capacity, sizeof *b->names));
      b->names[b->name_count++] = n;
    }
  }
  return true;
}

static bool read_offsets(parser *p, cursor *c, cursor *data, uint32_t count, bytecode_entry *entries) {
  for (uint32_t at = 0; at < count;) {
    uint32_t dialect;
    uint64_t in_group, length;
    TRY(cursor_group(p, c, &dialect, &in_group));
    if (in_group > count - at) FAIL("%llu entries, expected %u at most", (unsigned long long)in_group, count - at);
    for (uint64_t i = 0; i < in_group; ++i) {
      bytecode_entry *e = &entries[at++];
      e->dialect = dialect;
      TRY(cursor_flagged(p, c, &length, &e->custom));
      if (length > cursor_left(data)) FAIL("entry %u has %llu bytes", at - 1, (unsigned long long)length);
      e->bytes = (cursor){data->at, data->at + length};
      data->at += length;
    }
  }
  return true;
}

static bool read_entries(parser *p, bytecode *b) {
  cursor *c = &b->sections[SECTION_OFFSETS], *data = &b->sections[SECTION_ENTRIES];
  TRY(cursor_count(p, c, &b->attribute_count));
  TRY(cursor_count(p, c, &b->type_count));
  b->attributes = text_room(&p->text, b->attribute_count * sizeof *b->attributes);
  b->types = text_room(&p->text, b->type_count * sizeof *b->types);
  return b->attributes && b->types && read_offsets(p, c, data, b->attribute_count, b->attributes) &&
         read_offsets(p, c, data, b->type_count, b->types);
}

static bool read_properties(parser *p, bytecode *b) {
  cursor *c = &b->sections[SECTION_PROPERTIES];
  if (!c->at) return true;
  TRY(cursor_count(p, c, &b->property_count));
  b->properties = text_room(&p->text, b->property_count * sizeof *b->properties);
  if (!b->properties) return false;
  for (uint32_t i = 0; i < b->property_count; ++i) {
    uint64_t length;
    TRY(cursor_varint(p, c, &length) && cursor_take(p, c, length, &b->properties[i]));
  }
  return true;
}

/* One group's resources; those of tools outside (`keep` false) are gone over. */
static bool read_resource_group(parser *p, bytecode *b, cursor *c, uint64_t count, bool keep) {
  for (uint64_t i = 0; i < count; ++i) {
    bytecode_resource r;
    uint64_t length;
    TRY(cursor_string(p, c, &r.key) && cursor_varint(p, c, &length) && cursor_byte(p, c, &r.kind));
    if (length > cursor_left(&b->sections[SECTION_RESOURCES]))
      FAIL("resource %.*s has %llu bytes", (int)(r.key.length > 60 ? 60 : r.key.length), r.key.data,
           (unsigned long long)length);
    TRY(cursor_take(p, &b->sections[SECTION_RESOURCES], length, &r.bytes));
    if (!keep) continue;
    TRY(parse_push(p, (void **)&b->resources, b->resource_count, &b->resource_capacity, sizeof *b->resources));
    b->resources[b->resource_count++] = r;
  }
  return true;
}

static bool read_resources(parser *p, bytecode *b) {
  cursor *c = &b->sections[SECTION_RESOURCE_OFFSETS];
  if (!c->at) return true;
  uint32_t groups, dialect;
  uint64_t count;
  text_slice key;
  TRY(cursor_count(p, c, &groups));
  for (uint32_t i = 0; i < groups; ++i)
    TRY(cursor_string(p, c, &key) && cursor_varint(p, c, &count) && read_resource_group(p, b, c, count, false));
  while (c->at < c->end) TRY(cursor_group(p, c, &dialect, &count) && read_resource_group(p, b, c, count, true));
  return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static const char magic[4] = {'M', 'L', '\xef', 'R'};

bool bytecode_begins(const char *bytes, size_t size) {
  return size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

static bool read_header(parser *p, bytecode *b, cursor *c) {
  c->at += sizeof magic;
  TRY(cursor_varint(p, c, &b->version));
  if (b->version > BYTECODE_NEWEST)
    return text_fail(&p->text, TTPU_UNIMPLEMENTED, "MLIR bytecode of version %llu; versions 0 to %d are read",
                     (unsigned long long)b->version, BYTECODE_NEWEST);
  const uint8_t *nul = memchr(c->at, 0, cursor_left(c));
  if (!nul) FAIL("the producer's name does not end");
  c->at = nul + 1;
  while (c->at < c->end) {
    const cursor before = *c;
    uint8_t id;
    cursor section;
    TRY(cursor_section(p, c, &id, &section));
    bool twice = id < BYTECODE_SECTIONS && b->sections[id].at;
    if (id >= BYTECODE_SECTIONS || twice) {
      *c = before;
      FAIL(twice ? "section %u stands twice" : "section %u is unknown", id);
    }
    b->sections[id] = section;
  }
  for (unsigned id = SECTION_STRINGS; id <= SECTION_IR; ++id)
    if (!b->sections[id].at) FAIL("section %u is missing", id);
  return true;
}

bool bytecode_open(parser *p) {
  enum { FREE_TEXT = 1 << 20, TEXT_FACTOR = 64 };
  bytecode *b = text_room(&p->text, sizeof *b);
  if (!b) return false;
  p->text.binary = true;
  p->bytecode = b;
  size_t size = (size_t)(p->text.end - p->text.start);
  b->text_budget = FREE_TEXT + (size < SIZE_MAX / 128 ? TEXT_FACTOR * size : 0);
  cursor c = {(const uint8_t *)p->text.start, (const uint8_t *)p->text.end};
  return read_header(p, b, &c) && read_strings(p, b) && read_dialects(p, b) && read_entries(p, b) &&
         read_properties(p, b) && read_resources(p, b) && bytecode_find_functions(p);
}

void bytecode_close(parser *p) {
  if (p->bytecode) base_free(p->bytecode->values);
}
