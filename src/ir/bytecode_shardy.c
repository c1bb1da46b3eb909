/* Attributes of Shardy's dialect (shardy/dialect/sdy/ir/bytecode.td of openxla/shardy), as the text that their printer
 * writes: shardings, meshes and manual axes. Nobody wants the others. Parts of an attribute are attributes themselves,
 * named by index; their texts are put together. */
#include <inttypes.h>

#include "ir/bytecode_int.h"

#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)

typedef enum shardy_attribute {
  SHARDY_MANUAL_AXES = 0,
  SHARDY_MESH_AXIS = 1,
  SHARDY_MESH = 2,
  SHARDY_SUB_AXIS = 3,
  SHARDY_AXIS = 4,
  SHARDY_DIMENSION = 5,
  SHARDY_SHARDING_1 = 6,
  SHARDY_PER_VALUE_1 = 7,
  SHARDY_SHARDING_2 = 15, /* with unreduced axes */
  SHARDY_PER_VALUE_2 = 16,
  SHARDY_SHARDING_3 = 17, /* with how they are reduced */
} shardy_attribute;

/* An attribute by its index: a string in quotes, a symbol with @, Shardy's own as its text. */
static bool put_part(parser *p, cursor *c, base_text *out) {
  const node *n;
  TRY(cursor_attribute(p, c, &n));
  if (n->kind == NODE_STRING) base_text_printf(out, "\"%.*s\"", (int)n->value.length, n->value.data);
  else if (n->kind == NODE_SYMBOL) base_text_printf(out, "@%.*s", (int)n->value.length, n->value.data);
  else base_text_printf(out, "%.*s", (int)n->text.length, n->text.data);
  if (out->length > p->bytecode->text_budget) return bytecode_fail(p, c, "the text of an attribute is too long");
  return true;
}

/* An array of them, separated by commas. */
static bool put_parts(parser *p, cursor *c, base_text *out, uint32_t *count) {
  TRY(cursor_count(p, c, count));
  for (uint32_t i = 0; i < *count; ++i) {
    if (i) base_text_printf(out, ", ");
    TRY(put_part(p, c, out));
  }
  return true;
}

static bool put_string(parser *p, cursor *c, base_text *out) {
  text_slice s;
  TRY(cursor_string(p, c, &s));
  base_text_printf(out, "\"%.*s\"", (int)s.length, s.data);
  return true;
}

static bool put_mesh(parser *p, cursor *c, base_text *out) {
  uint32_t count;
  int64_t id;
  base_text_printf(out, "#sdy.mesh<[");
  TRY(put_parts(p, c, out, &count));
  base_text_printf(out, "]");
  TRY(cursor_count(p, c, &count));
  for (uint32_t i = 0; i < count; ++i) {
    TRY(cursor_svarint(p, c, &id));
    base_text_printf(out, "%s%" PRId64, i ? ", " : ", device_ids=[", id);
  }
  base_text_printf(out, count ? "]>" : ">");
  return true;
}

/* name, and the part of the axis where it is not all of it */
static bool put_axis(parser *p, cursor *c, base_text *out) {
  const cursor before = *c;
  uint64_t index;
  bool there;
  TRY(put_string(p, c, out));
  TRY(cursor_flagged(p, c, &index, &there));
  if (!there) return true;
  const node *n;
  if (index >= p->bytecode->attribute_count) return bytecode_fail(p, &before, "no attribute %" PRIu64, index);
  TRY(bytecode_attribute(p, (uint32_t)index, &n));
  base_text_printf(out, "%.*s", (int)n->text.length, n->text.data);
  return true;
}

static bool put_dimension(parser *p, cursor *c, base_text *out) {
  uint32_t count;
  uint64_t priority;
  uint8_t closed;
  bool there;
  base_text_printf(out, "{");
  TRY(put_parts(p, c, out, &count) && cursor_byte(p, c, &closed) && cursor_flagged(p, c, &priority, &there));
  if (!closed) base_text_printf(out, count ? ", ?" : "?");
  base_text_printf(out, "}");
  if (there) base_text_printf(out, "p%" PRIu64, priority);
  return true;
}

static bool put_sharding(parser *p, cursor *c, base_text *out, uint64_t code) {
  uint32_t count;
  int64_t reduction;
  base_text_printf(out, "#sdy.sharding<");
  TRY(put_part(p, c, out));
  base_text_printf(out, ", [");
  TRY(put_parts(p, c, out, &count));
  base_text_printf(out, "], replicated={");
  TRY(put_parts(p, c, out, &count));
  base_text_printf(out, "}");
  if (code != SHARDY_SHARDING_1) {
    base_text_printf(out, ", unreduced={");
    TRY(put_parts(p, c, out, &count));
    base_text_printf(out, "}");
  }
  if (code == SHARDY_SHARDING_3) TRY(cursor_svarint(p, c, &reduction));
  base_text_printf(out, ">");
  return true;
}

static bool put_attribute(parser *p, cursor *c, base_text *out) {
  uint64_t code;
  uint32_t count;
  int64_t size, before;
  TRY(cursor_varint(p, c, &code));
  switch (code) {
    case SHARDY_MANUAL_AXES:
      base_text_printf(out, "#sdy<manual_axes{");
      TRY(put_parts(p, c, out, &count));
      base_text_printf(out, "}>");
      return true;
    case SHARDY_MESH_AXIS:
      TRY(put_string(p, c, out) && cursor_svarint(p, c, &size));
      base_text_printf(out, "=%" PRId64, size);
      return true;
    case SHARDY_MESH: return put_mesh(p, c, out);
    case SHARDY_SUB_AXIS:
      TRY(cursor_svarint(p, c, &before) && cursor_svarint(p, c, &size));
      base_text_printf(out, ":(%" PRId64 ")%" PRId64, before, size);
      return true;
    case SHARDY_AXIS: return put_axis(p, c, out);
    case SHARDY_DIMENSION: return put_dimension(p, c, out);
    case SHARDY_SHARDING_1:
    case SHARDY_SHARDING_2:
    case SHARDY_SHARDING_3: return put_sharding(p, c, out, code);
    case SHARDY_PER_VALUE_1:
    case SHARDY_PER_VALUE_2:
      base_text_printf(out, "#sdy.sharding_per_value<[");
      TRY(put_parts(p, c, out, &count));
      base_text_printf(out, "]>");
      return true;
    default: /* a rule of propagation, say */
      base_text_printf(out, "#sdy.other");
      c->at = c->end;
      return true;
  }
}

bool bytecode_read_shardy(parser *p, cursor *c, node *out) {
  base_text text = {0};
  bool ok = put_attribute(p, c, &text);
  if (ok && text.length > p->bytecode->text_budget) ok = bytecode_fail(p, c, "the text of an attribute is too long");
  char *copy = ok && !text.failed ? base_arena_dup(p->text.scratch, text.data ? text.data : "", text.length + 1) : NULL;
  out->kind = NODE_OTHER;
  out->text = (text_slice){copy, text.length};
  p->bytecode->text_budget -= ok ? text.length : 0;
  base_text_free(&text);
  if (ok && !copy) return text_no_memory(&p->text);
  return ok;
}
