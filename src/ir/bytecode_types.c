/* Types of the VHLO and the builtin dialect, as StableHLO text: see bytecode_int.h. */
#include <inttypes.h>
#include <string.h>

#include "ir/bytecode_int.h"

#undef FAIL /* here a message names the byte */
#define FAIL(...) return bytecode_fail(p, c, __VA_ARGS__), false

/* The builtin dialect's codes (BuiltinDialectBytecode.td of MLIR). */
typedef enum builtin_type {
  BUILTIN_INTEGER = 0,
  BUILTIN_FUNCTION = 2,
  BUILTIN_COMPLEX = 9,
  BUILTIN_RANKED_TENSOR = 13,
  BUILTIN_RANKED_TENSOR_ENCODED = 14,
  BUILTIN_TUPLE = 15,
  BUILTIN_UNRANKED_TENSOR = 18,
} builtin_type;

static const char *builtin_type_name(uint64_t code) {
  static const char *const names[] = {[1] = "index", [3] = "bf16", [4] = "f16",  [5] = "f32",
                                      [6] = "f64",   [7] = "f80",  [8] = "f128", [12] = "none"};
  return code < sizeof names / sizeof *names ? names[code] : NULL;
}

static void put(base_text *out, const char *text) { base_text_put(out, text, strlen(text)); }
static void put_slice(base_text *out, text_slice s) { base_text_put(out, s.data, s.length); }

static bool put_type(parser *p, cursor *c, base_text *out) {
  text_slice type;
  TRY(cursor_type_text(p, c, &type));
  put_slice(out, type);
  return true;
}

/* a, b */
static bool put_type_list(parser *p, cursor *c, base_text *out) {
  uint32_t count;
  TRY(cursor_count(p, c, &count));
  for (uint32_t i = 0; i < count; ++i) {
    if (i) put(out, ", ");
    TRY(put_type(p, c, out));
    if (out->length > p->bytecode->text_budget) FAIL("the text of the types is too long");
  }
  return true;
}

static bool put_function(parser *p, cursor *c, base_text *out) {
  put(out, "(");
  TRY(put_type_list(p, c, out));
  put(out, ") -> (");
  TRY(put_type_list(p, c, out));
  put(out, ")");
  return true;
}

/* 2x3xf32, or memory in place of the tensor. */
static bool put_shaped(parser *p, cursor *c, const char *mnemonic, const node *encoding, base_text *out) {
  uint32_t rank;
  put(out, mnemonic);
  put(out, "<");
  TRY(cursor_count(p, c, &rank));
  for (uint32_t i = 0; i < rank; ++i) {
    int64_t dim;
    TRY(cursor_svarint(p, c, &dim));
    if (dim == INT64_MIN) put(out, "?x");
    else if (dim < 0) FAIL("a dimension of %" PRId64, dim);
    else base_text_printf(out, "%" PRId64 "x", dim);
  }
  TRY(put_type(p, c, out));
  if (encoding && encoding->kind == NODE_LIST) { /* upper bounds of the dimensions that are not known */
    put(out, ", #stablehlo.bounds<");
    for (uint32_t i = 0; i < encoding->numbers.count; ++i) {
      if (i) put(out, ", ");
      if (encoding->numbers.data[i] == INT64_MIN) put(out, "?");
      else base_text_printf(out, "%" PRId64, encoding->numbers.data[i]);
    }
    put(out, ">");
  }
  put(out, ">");
  return true;
}

static bool put_unranked(parser *p, cursor *c, base_text *out) {
  put(out, "tensor<*x");
  TRY(put_type(p, c, out));
  put(out, ">");
  return true;
}

static bool put_bracketed(parser *p, cursor *c, const char *open, bool list, base_text *out) {
  put(out, open);
  TRY(list ? put_type_list(p, c, out) : put_type(p, c, out));
  put(out, ">");
  return true;
}

/* i8, or i8<-127:127> where the range is not the type's own. Flag 1: signed; u8 stands for the others. */
static bool put_storage(parser *p, cursor *c, text_slice type, bool is_signed, int64_t low, int64_t high,
                        base_text *out) {
  unsigned bits = 0;
  if (type.length > 1 && (type.data[0] == 'u' || type.data[0] == 'i'))
    for (size_t i = type.data[0] == 'u' ? 2 : 1; i < type.length && i < 5; ++i)
      bits = bits * 10 + (unsigned)(type.data[i] - '0') % 10;
  if (bits == 0 || bits > 32) FAIL("quantized storage of type %.*s", (int)type.length, type.data);
  int64_t least = is_signed ? -((int64_t)1 << (bits - 1)) : 0,
          most = is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
  base_text_printf(out, "%c%u", is_signed ? 'i' : 'u', bits);
  if (low != least || high != most) base_text_printf(out, "<%" PRId64 ":%" PRId64 ">", low, high);
  return true;
}

static bool read_scale(parser *p, cursor *c, double *out) {
  int64_t bits;
  TRY(cursor_svarint(p, c, &bits));
  memcpy(out, &bits, sizeof bits);
  return true;
}

static void put_scale(base_text *out, double scale, int64_t zero) {
  base_text_printf(out, "%.17e", scale);
  if (zero) base_text_printf(out, ":%" PRId64, zero);
}

/* !quant.uniform<i8:f32, 0.5:3>, and with one scale an index of a dimension: <i8:f32:1, {0.5:3, 0.25}>. */
static bool put_quantized(parser *p, cursor *c, bool per_axis, base_text *out) {
  uint64_t flags, dimension = 0;
  text_slice storage, expressed;
  int64_t low, high, zero = 0;
  double scale;
  TRY(cursor_varint(p, c, &flags) && cursor_type_text(p, c, &storage) && cursor_type_text(p, c, &expressed));
  if (per_axis) TRY(cursor_varint(p, c, &dimension));
  else TRY(read_scale(p, c, &scale) && cursor_svarint(p, c, &zero));
  TRY(cursor_svarint(p, c, &low) && cursor_svarint(p, c, &high));
  put(out, "!quant.uniform<");
  TRY(put_storage(p, c, storage, flags & 1, low, high, out));
  put(out, ":");
  put_slice(out, expressed);
  if (!per_axis) {
    put(out, ", ");
    put_scale(out, scale, zero);
    put(out, ">");
    return true;
  }
  uint32_t count, zeros;
  TRY(cursor_count(p, c, &count));
  cursor scales = *c;
  for (uint32_t i = 0; i < count; ++i) TRY(read_scale(p, c, &scale));
  TRY(cursor_count(p, c, &zeros));
  if (zeros != count) FAIL("%u scales, but %u zero points", count, zeros);
  base_text_printf(out, ":%" PRIu64 ", {", dimension);
  for (uint32_t i = 0; i < count; ++i) {
    TRY(read_scale(p, &scales, &scale) && cursor_svarint(p, c, &zero));
    if (i) put(out, ", ");
    put_scale(out, scale, zero);
  }
  put(out, "}>");
  return true;
}

static bool put_vhlo(parser *p, cursor *c, base_text *out) {
  const cursor before = *c;
  uint64_t code;
  const node *encoding = NULL;
  TRY(cursor_varint(p, c, &code));
  const char *name = vhlo_type_name(code);
  if (name) return put(out, name), true;
  switch (code) {
    case VHLO_COMPLEX: return put_bracketed(p, c, "complex<", false, out);
    case VHLO_FUNCTION: return put_function(p, c, out);
    case VHLO_RANKED_TENSOR_ENCODED: TRY(cursor_attribute(p, c, &encoding)); /* fall through */
    case VHLO_RANKED_TENSOR: return put_shaped(p, c, "tensor", encoding, out);
    case VHLO_TUPLE: return put_bracketed(p, c, "tuple<", true, out);
    case VHLO_QUANTIZED: return put_quantized(p, c, false, out);
    case VHLO_QUANTIZED_PER_AXIS: return put_quantized(p, c, true, out);
    case VHLO_UNRANKED_TENSOR: return put_unranked(p, c, out);
    case VHLO_BUFFER: return put_shaped(p, c, "memref", NULL, out);
    case VHLO_FUTURE: return put_bracketed(p, c, "!stablehlo.future<", true, out);
    default: *c = before; FAIL("VHLO type %" PRIu64 " is unknown", code);
  }
}

static bool put_builtin(parser *p, cursor *c, base_text *out) {
  const cursor before = *c;
  uint64_t code, bits;
  const node *encoding = NULL;
  TRY(cursor_varint(p, c, &code));
  const char *name = builtin_type_name(code);
  if (name) return put(out, name), true;
  switch (code) {
    case BUILTIN_INTEGER: /* width << 2 | 0 without sign, 1 signed, 2 unsigned */
      TRY(cursor_varint(p, c, &bits));
      base_text_printf(out, "%si%" PRIu64, (bits & 3) == 2 ? "u" : (bits & 3) == 1 ? "s" : "", bits >> 2);
      return true;
    case BUILTIN_FUNCTION: return put_function(p, c, out);
    case BUILTIN_COMPLEX: return put_bracketed(p, c, "complex<", false, out);
    case BUILTIN_RANKED_TENSOR_ENCODED: TRY(cursor_attribute(p, c, &encoding)); /* fall through */
    case BUILTIN_RANKED_TENSOR: return put_shaped(p, c, "tensor", encoding, out);
    case BUILTIN_TUPLE: return put_bracketed(p, c, "tuple<", true, out);
    case BUILTIN_UNRANKED_TENSOR: return put_unranked(p, c, out);
    default: *c = before; FAIL("builtin type %" PRIu64 " is unknown", code);
  }
}

/* NUL-terminated text. */
static bool put_assembly(parser *p, cursor *c, base_text *out) {
  const uint8_t *nul = memchr(c->at, 0, cursor_left(c));
  if (!nul) FAIL("a type's text does not end");
  base_text_put(out, (const char *)c->at, (size_t)(nul - c->at));
  c->at = nul + 1;
  return true;
}

static bool render(parser *p, const bytecode_entry *e, base_text *out) {
  bytecode *b = p->bytecode;
  cursor at = e->bytes, *c = &at;
  text_slice dialect = b->dialects[e->dialect];
  if (!e->custom) TRY(put_assembly(p, c, out));
  else if (text_is(dialect, "vhlo")) TRY(put_vhlo(p, c, out));
  else if (text_is(dialect, "builtin")) TRY(put_builtin(p, c, out));
  else FAIL("a type of the dialect %.*s", (int)(dialect.length > 60 ? 60 : dialect.length), dialect.data);
  if (c->at != c->end) FAIL("%zu bytes behind a type", cursor_left(c));
  if (out->failed) return text_no_memory(&p->text);
  if (out->length + 1 > b->text_budget) FAIL("the text of the types is too long");
  b->text_budget -= out->length + 1;
  return true;
}

bool bytecode_type_text(parser *p, uint32_t index, text_slice *out) {
  enum { DEEPEST_TYPE = 64 };
  bytecode *b = p->bytecode;
  bytecode_entry *e = &b->types[index];
  cursor *c = &e->bytes;
  if (e->state == ENTRY_OPEN) FAIL("type %u is a part of itself", index);
  if (e->state == ENTRY_UNREAD) {
    if (b->depth >= DEEPEST_TYPE) FAIL("types and attributes nested more than %d deep", DEEPEST_TYPE);
    base_text text = {0};
    ++b->depth;
    e->state = ENTRY_OPEN;
    bool ok = render(p, e, &text);
    char *copy = ok ? base_arena_dup(p->text.scratch, text.data ? text.data : "", text.length + 1) : NULL;
    e->text = (text_slice){copy, text.length};
    base_text_free(&text);
    --b->depth;
    if (ok && !copy) return text_no_memory(&p->text);
    TRY(ok);
    e->state = ENTRY_READ;
  }
  *out = e->text;
  return true;
}

text_reader bytecode_text(parser *p, text_slice text) {
  return (text_reader){.start = text.data, .at = text.data, .end = text.data + text.length, .scratch = p->text.scratch};
}

bool bytecode_text_done(parser *p, const cursor *c, const text_reader *t) {
  if (text_ok(t) && t->at == t->end) return true;
  int length = t->end - t->start > 80 ? 80 : (int)(t->end - t->start);
  p->text.at = (const char *)c->at;
  if (text_ok(t)) FAIL("more than expected in %.*s", length, t->start);
  return text_fail(&p->text, t->status, "in %.*s: %s", length, t->start, base_message());
}

bool bytecode_type(parser *p, uint32_t index, const text_type **out) {
  bytecode_entry *e = &p->bytecode->types[index];
  text_slice text;
  TRY(bytecode_type_text(p, index, &text));
  if (!e->type) {
    text_type *type = text_room(&p->text, sizeof *type);
    if (!type) return false;
    text_reader t = bytecode_text(p, text);
    text_read_type(&t, type, 0);
    TRY(bytecode_text_done(p, &e->bytes, &t));
    e->type = type;
  }
  *out = e->type;
  return true;
}

bool cursor_type_text(parser *p, cursor *c, text_slice *out) {
  uint32_t index;
  return cursor_index(p, c, p->bytecode->type_count, "type", &index) && bytecode_type_text(p, index, out);
}

bool cursor_type(parser *p, cursor *c, const text_type **out) {
  uint32_t index;
  return cursor_index(p, c, p->bytecode->type_count, "type", &index) && bytecode_type(p, index, out);
}
