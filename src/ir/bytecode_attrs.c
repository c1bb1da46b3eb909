/* Attributes of the VHLO and the builtin dialect, as nodes: see bytecode_int.h. */
#include <inttypes.h>
#include <string.h>

#include "ir/bytecode_int.h"

#undef FAIL /* here a message names the byte */
#define FAIL(...) return bytecode_fail(p, c, __VA_ARGS__), false

/* The builtin dialect's codes (BuiltinDialectBytecode.td of MLIR). Locations are never asked for. */
typedef enum builtin_attribute {
  BUILTIN_ARRAY = 0,
  BUILTIN_DICTIONARY = 1,
  BUILTIN_STRING = 2,
  BUILTIN_STRING_TYPED = 3,
  BUILTIN_FLAT_SYMBOL = 4,
  BUILTIN_SYMBOL = 5,
  BUILTIN_TYPE = 6,
  BUILTIN_UNIT = 7,
  BUILTIN_INTEGER = 8,
  BUILTIN_FLOAT = 9,
  BUILTIN_FIRST_LOCATION = 10,
  BUILTIN_LAST_LOCATION = 15,
  BUILTIN_DENSE_RESOURCE = 16,
  BUILTIN_DENSE_ARRAY = 17,
  BUILTIN_DENSE = 18,
  BUILTIN_DENSE_STRING = 19,
  BUILTIN_SPARSE = 20,
  BUILTIN_DISTINCT = 21,
} builtin_attribute;

/* ---- parts ---------------------------------------------------------------------------------- */

static bool take_entries(parser *p, uint32_t count, node *out) {
  out->entries = text_room(&p->text, count * sizeof *out->entries);
  out->count = count;
  return out->entries != NULL;
}

/* Attributes by index, as an array's entries. */
static bool read_array(parser *p, cursor *c, node *out) {
  uint32_t count;
  TRY(cursor_count(p, c, &count));
  TRY(take_entries(p, count, out));
  out->kind = NODE_ARRAY;
  for (uint32_t i = 0; i < count; ++i) {
    const node *value;
    TRY(cursor_attribute(p, c, &value));
    out->entries[i].value = *value;
  }
  return true;
}

static bool read_name(parser *p, cursor *c, text_slice *out) {
  const cursor before = *c;
  const node *name;
  TRY(cursor_attribute(p, c, &name));
  if (name->kind == NODE_STRING) return *out = name->value, true;
  *c = before;
  FAIL("a name is no string");
}

static bool read_dictionary(parser *p, cursor *c, node *out) {
  uint32_t count;
  TRY(cursor_count(p, c, &count));
  TRY(take_entries(p, count, out));
  out->kind = NODE_DICT;
  for (uint32_t i = 0; i < count; ++i) {
    const node *value;
    TRY(read_name(p, c, &out->entries[i].name) && cursor_attribute(p, c, &value));
    out->entries[i].value = *value;
  }
  return true;
}

/* The width of a number's type in bits, from its text: "ui8", "f32", "bf16", "f8E4M3FN", "index". */
static unsigned width_of(text_slice type) {
  if (text_is(type, "index")) return 64;
  if (text_is(type, "tf32")) return 19;
  unsigned bits = 0;
  size_t at = 0;
  while (at < type.length && at < 3 && !(type.data[at] >= '0' && type.data[at] <= '9')) ++at;
  for (; at < type.length && bits < 1000 && type.data[at] >= '0' && type.data[at] <= '9'; ++at)
    bits = bits * 10 + (unsigned)(type.data[at] - '0');
  return bits;
}

/* The bits of a number of known width: a byte up to 8, zigzag up to 64. */
static bool read_bits(parser *p, cursor *c, unsigned width, uint64_t *out) {
  int64_t bits;
  uint8_t byte;
  if (width == 0 || width > 64) FAIL("a number of %u bits", width);
  if (width <= 8) {
    TRY(cursor_byte(p, c, &byte));
    *out = byte;
  } else {
    TRY(cursor_svarint(p, c, &bits));
    *out = (uint64_t)bits;
  }
  if (width < 64) *out &= ((uint64_t)1 << width) - 1;
  return true;
}

static bool read_integer(parser *p, cursor *c, node *out) {
  text_slice type;
  uint64_t bits;
  TRY(cursor_type_text(p, c, &type));
  unsigned width = width_of(type);
  TRY(read_bits(p, c, width, &bits));
  bool is_unsigned = type.data[0] == 'u', negative = !is_unsigned && width > 1 && bits >> (width - 1);
  out->kind = width == 1 ? NODE_BOOL : NODE_INT;
  out->value = type;
  out->i = (int64_t)(negative && width < 64 ? bits | ~(uint64_t)0 << width : bits);
  return true;
}

static bool read_float(parser *p, cursor *c, node *out) {
  const cursor before = *c;
  text_slice type;
  uint64_t bits;
  TRY(cursor_type_text(p, c, &type));
  TRY(read_bits(p, c, width_of(type), &bits));
  ttpu_dtype dtype = base_dtype_from_hlo(type.data, type.length);
  if (!base_dtype_is_float(dtype)) {
    *c = before;
    FAIL("a number of type %.*s", (int)(type.length > 40 ? 40 : type.length), type.data);
  }
  out->kind = NODE_FLOAT;
  out->value = type;
  out->d = base_scalar_load(dtype, &bits).d[0];
  return true;
}

/* i1 elements: a byte each, or eight to a byte; one byte 0xFF or 0 fills all (but 0 where it can be packed elements). */
static bool read_bools(parser *p, const cursor *c, const cursor *blob, int64_t count, node *out) {
  size_t size = cursor_left(blob);
  bool splat = size == 1 && (blob->at[0] == 0xFF || count > 8 || count == 1),
       packed = !splat && size == ((uint64_t)count + 7) / 8;
  if (!splat && !packed && size != (uint64_t)count) FAIL("%zu bytes for %" PRId64 " booleans", size, count);
  uint8_t *bytes = text_room(&p->text, splat ? 1 : (size_t)count);
  if (!bytes) return false;
  if (splat) bytes[0] = blob->at[0] != 0;
  for (int64_t i = 0; !splat && i < count; ++i)
    bytes[i] = (uint8_t)(packed ? blob->at[i / 8] >> (i % 8) & 1 : blob->at[i] != 0);
  out->data = (ir_data){bytes, splat};
  return true;
}

/* Elements in row-major order, or one for all. They stay where they are: whoever keeps them copies. */
static bool read_elements(parser *p, const cursor *c, const cursor *blob, text_slice type, node *out) {
  text_reader t = bytecode_text(p, type);
  text_static_type(&t, &out->type);
  TRY(bytecode_text_done(p, c, &t));
  out->kind = NODE_DENSE;
  int64_t count = ir_numel(out->type);
  size_t size = cursor_left(blob), each = base_dtype_bytes((ttpu_dtype)out->type.dtype);
  if (out->type.dtype == TTPU_BOOL && count) return read_bools(p, c, blob, count, out);
  bool splat = size == each; /* of one element too, as in text */
  if (!splat && size != (uint64_t)count * each)
    FAIL("%zu bytes of elements for %.*s", size, (int)type.length, type.data);
  out->data = count ? (ir_data){blob->at, splat} : (ir_data){ir_no_dims, false};
  return true;
}

static bool read_blob(parser *p, cursor *c, cursor *out) {
  uint64_t size;
  return cursor_varint(p, c, &size) && cursor_take(p, c, size, out);
}

static bool read_dense(parser *p, cursor *c, node *out) {
  const cursor before = *c;
  text_slice type;
  cursor blob;
  return cursor_type_text(p, c, &type) && read_blob(p, c, &blob) && read_elements(p, &before, &blob, type, out);
}

/* array<i64: 1, 2>: numbers, as the text reader gives them. */
static bool read_dense_array(parser *p, cursor *c, node *out) {
  text_slice type;
  uint64_t count;
  cursor blob;
  TRY(cursor_type_text(p, c, &type) && cursor_varint(p, c, &count) && read_blob(p, c, &blob));
  ttpu_dtype dtype = base_dtype_from_hlo(type.data, type.length);
  size_t each = base_dtype_bytes(dtype);
  if (!base_dtype_is_integer(dtype) && dtype != TTPU_BOOL) return out->kind = NODE_OTHER, true;
  if (count > cursor_left(&blob) || count * each != cursor_left(&blob)) FAIL("an array's length is wrong");
  int64_t *numbers = text_room(&p->text, (size_t)count * sizeof *numbers);
  if (!numbers) return false;
  for (uint64_t i = 0; i < count; ++i) numbers[i] = base_scalar_load(dtype, blob.at + i * each).i;
  out->kind = NODE_LIST;
  out->numbers = (ir_i64s){numbers, (uint32_t)count};
  return true;
}

static bool read_resource(parser *p, cursor *c, node *out) {
  const cursor before = *c;
  text_slice type;
  uint32_t index;
  TRY(cursor_type_text(p, c, &type));
  TRY(cursor_index(p, c, p->bytecode->resource_count, "resource", &index));
  const bytecode_resource *r = &p->bytecode->resources[index];
  cursor from = r->bytes, blob;
  uint64_t alignment, size;
  if (r->kind != 0) FAIL("resource %u is no blob", index);
  TRY(cursor_varint(p, &from, &alignment) && cursor_varint(p, &from, &size));
  if (size > cursor_left(&from)) FAIL("resource %u has %" PRIu64 " bytes", index, size);
  blob = (cursor){from.end - size, from.end}; /* padding stands between the two */
  return read_elements(p, &before, &blob, type, out);
}

static bool read_signed_list(parser *p, cursor *c, node *out) {
  uint32_t count;
  TRY(cursor_count(p, c, &count));
  int64_t *numbers = text_room(&p->text, count * sizeof *numbers);
  if (!numbers) return false;
  for (uint32_t i = 0; i < count; ++i) TRY(cursor_svarint(p, c, &numbers[i]));
  out->kind = NODE_LIST;
  out->numbers = (ir_i64s){numbers, count};
  return true;
}

/* ---- records: a name and a kind for each field ----------------------------------------------- */

/* The n-th entry of a record: `name = value`. */
static node *field(node *out, uint32_t n, const char *name) {
  out->entries[n].name = (text_slice){name, strlen(name)};
  return &out->entries[n].value;
}

static bool read_field_int(parser *p, cursor *c, node *out) {
  out->kind = NODE_INT;
  return cursor_svarint(p, c, &out->i);
}

static bool read_field_f64(parser *p, cursor *c, node *out) {
  int64_t bits;
  TRY(cursor_svarint(p, c, &bits));
  out->kind = NODE_FLOAT;
  memcpy(&out->d, &bits, sizeof bits);
  return true;
}

static bool read_field_attribute(parser *p, cursor *c, node *out) {
  const node *value;
  TRY(cursor_attribute(p, c, &value));
  *out = *value;
  return true;
}

static bool read_optional_attribute(parser *p, cursor *c, node *out) { /* index << 1 | there is one */
  uint64_t index;
  bool there;
  const node *value;
  TRY(cursor_flagged(p, c, &index, &there));
  out->kind = NODE_UNIT;
  if (!there) return true;
  if (index >= p->bytecode->attribute_count) FAIL("attribute %" PRIu64 " of %u", index, p->bytecode->attribute_count);
  TRY(bytecode_attribute(p, (uint32_t)index, &value));
  *out = *value;
  return true;
}

static bool read_axis_ref(parser *p, cursor *c, node *out) {
  uint64_t has_sub_axis;
  TRY(read_field_attribute(p, c, field(out, 0, "name")) && cursor_varint(p, c, &has_sub_axis));
  out->count = has_sub_axis ? 2 : 1;
  return !has_sub_axis || read_field_attribute(p, c, field(out, 1, "sub_axis_info"));
}

static bool read_record(parser *p, cursor *c, uint64_t code, node *out) {
  enum { MOST_FIELDS = 4 };
  TRY(take_entries(p, MOST_FIELDS, out));
  out->kind = NODE_DICT;
  out->count = 2;
  switch (code) {
    case VHLO_OUTPUT_OPERAND_ALIAS:
      out->count = 3;
      return read_signed_list(p, c, field(out, 0, "output_tuple_indices")) &&
             read_field_int(p, c, field(out, 1, "operand_index")) &&
             read_signed_list(p, c, field(out, 2, "operand_tuple_indices"));
    case VHLO_RESULT_ACCURACY:
      out->count = 4;
      return read_field_f64(p, c, field(out, 0, "atol")) && read_field_f64(p, c, field(out, 1, "rtol")) &&
             read_field_int(p, c, field(out, 2, "ulps")) && read_field_attribute(p, c, field(out, 3, "mode"));
    case VHLO_SUB_AXIS_INFO:
      return read_field_int(p, c, field(out, 0, "pre_size")) && read_field_int(p, c, field(out, 1, "size"));
    case VHLO_AXIS_REF: return read_axis_ref(p, c, out);
    case VHLO_REPLICA_GROUP_MESH_AXES:
      return read_field_attribute(p, c, field(out, 0, "mesh")) && read_field_attribute(p, c, field(out, 1, "axes"));
    case VHLO_MESH_AXIS:
      return read_field_attribute(p, c, field(out, 0, "name")) && read_field_int(p, c, field(out, 1, "size"));
    default: /* VHLO_MESH */
      return read_field_attribute(p, c, field(out, 0, "axes")) &&
             read_optional_attribute(p, c, field(out, 1, "device_ids"));
  }
}

/* ---- attributes ----------------------------------------------------------------------------- */

static bool read_enum(parser *p, cursor *c, uint64_t code, node *out) {
  const cursor before = *c;
  uint64_t value;
  TRY(cursor_varint(p, c, &value));
  out->i = (int64_t)value;
  out->kind = NODE_INT;
  if (code == VHLO_API_VERSION) return true; /* a number in StableHLO */
  const char *name = vhlo_enum_name(code, value);
  if (!name) {
    *c = before;
    FAIL("value %" PRIu64 " of the enumeration %" PRIu64 " is unknown", value, code);
  }
  out->kind = NODE_ENUM;
  out->value = out->text = (text_slice){name, strlen(name)};
  return true;
}

static bool read_string(parser *p, cursor *c, node *out) {
  out->kind = NODE_STRING;
  TRY(cursor_string(p, c, &out->value));
  out->text = out->value;
  return true;
}

static bool read_type(parser *p, cursor *c, node *out) {
  out->kind = NODE_OTHER;
  return cursor_type_text(p, c, &out->text);
}

static bool read_symbol(parser *p, cursor *c, node *out) {
  TRY(read_name(p, c, &out->value));
  out->kind = NODE_SYMBOL;
  out->text = out->value;
  return true;
}

static bool read_vhlo(parser *p, cursor *c, node *out) {
  const cursor before = *c;
  uint64_t code, value;
  TRY(cursor_varint(p, c, &code));
  switch (code) {
    case VHLO_ARRAY: return read_array(p, c, out);
    case VHLO_DICTIONARY: return read_dictionary(p, c, out);
    case VHLO_BOOLEAN:
      TRY(cursor_varint(p, c, &value));
      out->kind = NODE_BOOL;
      out->i = value != 0;
      return true;
    case VHLO_COMPARISON_DIRECTION:
    case VHLO_COMPARISON_TYPE:
    case VHLO_API_VERSION:
    case VHLO_FFT_TYPE:
    case VHLO_PRECISION:
    case VHLO_RNG_ALGORITHM:
    case VHLO_RNG_DISTRIBUTION:
    case VHLO_TRANSPOSE:
    case VHLO_RESULT_ACCURACY_MODE: return read_enum(p, c, code, out);
    case VHLO_FLOAT: return read_float(p, c, out);
    case VHLO_INTEGER: return read_integer(p, c, out);
    case VHLO_STRING: return read_string(p, c, out);
    case VHLO_TENSOR: return read_dense(p, c, out);
    case VHLO_TYPE: return read_type(p, c, out);
    case VHLO_TYPE_EXTENSIONS: return read_signed_list(p, c, out); /* bounds */
    case VHLO_OUTPUT_OPERAND_ALIAS:
    case VHLO_RESULT_ACCURACY:
    case VHLO_SUB_AXIS_INFO:
    case VHLO_AXIS_REF:
    case VHLO_REPLICA_GROUP_MESH_AXES:
    case VHLO_MESH_AXIS:
    case VHLO_MESH: return read_record(p, c, code, out);
    default: *c = before; FAIL("VHLO attribute %" PRIu64 " is unknown", code);
  }
}

static bool read_builtin(parser *p, cursor *c, node *out) {
  const cursor before = *c;
  uint64_t code;
  TRY(cursor_varint(p, c, &code));
  out->kind = NODE_OTHER;
  switch (code) {
    case BUILTIN_ARRAY: return read_array(p, c, out);
    case BUILTIN_DICTIONARY: return read_dictionary(p, c, out);
    case BUILTIN_STRING: return read_string(p, c, out);
    case BUILTIN_STRING_TYPED: TRY(read_string(p, c, out)); break;
    case BUILTIN_FLAT_SYMBOL: return read_symbol(p, c, out);
    case BUILTIN_SYMBOL: TRY(read_symbol(p, c, out)); break; /* of @a::@b nobody wants more */
    case BUILTIN_TYPE: return read_type(p, c, out);
    case BUILTIN_UNIT: return out->kind = NODE_UNIT, true;
    case BUILTIN_INTEGER: return read_integer(p, c, out);
    case BUILTIN_FLOAT: return read_float(p, c, out);
    case BUILTIN_DENSE_RESOURCE: return read_resource(p, c, out);
    case BUILTIN_DENSE_ARRAY: return read_dense_array(p, c, out);
    case BUILTIN_DENSE: return read_dense(p, c, out);
    case BUILTIN_DENSE_STRING:
    case BUILTIN_SPARSE:
    case BUILTIN_DISTINCT: break;
    default:
      if (code >= BUILTIN_FIRST_LOCATION && code <= BUILTIN_LAST_LOCATION) break;
      *c = before;
      FAIL("builtin attribute %" PRIu64 " is unknown", code);
  }
  c->at = c->end; /* the rest says nothing */
  return true;
}

static bool read_assembly(parser *p, cursor *c, node *out) {
  const uint8_t *nul = memchr(c->at, 0, cursor_left(c));
  if (!nul) FAIL("an attribute's text does not end");
  text_reader t = bytecode_text(p, (text_slice){(const char *)c->at, (size_t)(nul - c->at)});
  text_attribute(&t, out, 0);
  TRY(bytecode_text_done(p, c, &t));
  c->at = nul + 1;
  return true;
}

static bool read_attribute(parser *p, const bytecode_entry *e, node *out) {
  cursor at = e->bytes, *c = &at;
  text_slice dialect = p->bytecode->dialects[e->dialect];
  out->text = (text_slice){"", 0};
  if (!e->custom) TRY(read_assembly(p, c, out));
  else if (text_is(dialect, "vhlo")) TRY(read_vhlo(p, c, out));
  else if (text_is(dialect, "builtin")) TRY(read_builtin(p, c, out));
  else if (text_is(dialect, "sdy")) TRY(bytecode_read_shardy(p, c, out));
  else out->kind = NODE_OTHER, out->text = dialect, c->at = c->end;
  if (c->at != c->end) FAIL("%zu bytes behind an attribute", cursor_left(c));
  return true;
}

bool bytecode_attribute(parser *p, uint32_t index, const node **out) {
  enum { DEEPEST_ATTRIBUTE = 64 };
  bytecode *b = p->bytecode;
  bytecode_entry *e = &b->attributes[index];
  cursor *c = &e->bytes;
  if (e->state == ENTRY_OPEN) FAIL("attribute %u is a part of itself", index);
  if (e->state == ENTRY_UNREAD) {
    if (b->depth >= DEEPEST_ATTRIBUTE) FAIL("types and attributes nested more than %d deep", DEEPEST_ATTRIBUTE);
    node *n = text_room(&p->text, sizeof *n);
    if (!n) return false;
    ++b->depth;
    e->state = ENTRY_OPEN;
    TRY(read_attribute(p, e, n));
    --b->depth;
    e->node = n;
    e->state = ENTRY_READ;
  }
  *out = e->node;
  return true;
}

bool cursor_attribute(parser *p, cursor *c, const node **out) {
  uint32_t index;
  return cursor_index(p, c, p->bytecode->attribute_count, "attribute", &index) && bytecode_attribute(p, index, out);
}

/* ---- as text -------------------------------------------------------------------------------- */

static void put(base_text *out, const char *text) { base_text_put(out, text, strlen(text)); }

static void put_quoted(base_text *out, text_slice s) {
  put(out, "\"");
  for (size_t i = 0; i < s.length; ++i) {
    unsigned char c = (unsigned char)s.data[i];
    if (c == '"' || c == '\\' || c < 32 || c > 126) base_text_printf(out, "\\%02X", c);
    else base_text_put(out, s.data + i, 1);
  }
  put(out, "\"");
}

static void put_typed(base_text *out, text_slice type) {
  if (type.length) base_text_printf(out, " : %.*s", (int)type.length, type.data);
}

static void put_numbers(base_text *out, ir_i64s list) {
  put(out, list.count ? "array<i64: " : "array<i64");
  for (uint32_t i = 0; i < list.count; ++i) base_text_printf(out, "%s%" PRId64, i ? ", " : "", list.data[i]);
  put(out, ">");
}

/* Shared parts are written each time, so a short table could mean a long text: `most` bounds it. */
static void put_node(base_text *out, const node *n, size_t most) {
  bool dict = n->kind == NODE_DICT;
  if (out->length > most) return;
  switch (n->kind) {
    case NODE_INT: base_text_printf(out, "%" PRId64, n->i), put_typed(out, n->value); break;
    case NODE_FLOAT: base_text_printf(out, "%.17e", n->d), put_typed(out, n->value); break;
    case NODE_BOOL: put(out, n->i ? "true" : "false"); break;
    case NODE_UNIT: put(out, "unit"); break;
    case NODE_STRING: put_quoted(out, n->value); break;
    case NODE_SYMBOL: base_text_printf(out, "@%.*s", (int)n->value.length, n->value.data); break;
    case NODE_LIST: put_numbers(out, n->numbers); break;
    case NODE_ARRAY:
    case NODE_DICT:
      put(out, dict ? "{" : "[");
      for (uint32_t i = 0; i < n->count && out->length <= most; ++i) {
        if (i) put(out, ", ");
        if (dict) base_text_printf(out, "%.*s = ", (int)n->entries[i].name.length, n->entries[i].name.data);
        put_node(out, &n->entries[i].value, most);
      }
      put(out, dict ? "}" : "]");
      break;
    case NODE_DENSE: base_text_printf(out, "dense<...> : %s", IR_SHOW(n->type)); break;
    default: base_text_put(out, n->text.data, n->text.length);
  }
}

bool bytecode_attribute_text(parser *p, const node *n, text_slice *out) {
  size_t most = p->bytecode->text_budget;
  base_text text = {0};
  put_node(&text, n, most);
  bool fits = text.length <= most, ok = fits && !text.failed;
  char *copy = ok ? base_arena_dup(p->text.scratch, text.data ? text.data : "", text.length + 1) : NULL;
  *out = (text_slice){copy, text.length};
  base_text_free(&text);
  if (!fits) return bytecode_fail(p, NULL, "the text of an attribute is too long");
  if (!copy) return text_no_memory(&p->text);
  p->bytecode->text_budget -= out->length;
  return true;
}
