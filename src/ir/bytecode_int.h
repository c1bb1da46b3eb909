/* bytecode_int: how a StableHLO portable artifact is read.
 *
 * An artifact is MLIR bytecode (the container) that holds operations, attributes and types of the VHLO dialect (the
 * content): StableHLO's own, each with a version in its name. Sources: mlir/docs/BytecodeFormat.md of LLVM for the
 * container, VhloOps.td and VhloBytecode.cpp of StableHLO for the content.
 *
 *   magic "ML\xefR", version varint (0 to 6), producer string, then sections: id byte (bit 7: aligned), length, bytes
 *   0 strings      count, lengths from the last to the first, the characters; each ends with a NUL that counts
 *   1 dialects     names (from version 1 with a version each), then operation names by dialect
 *   2, 3 entries   attributes and types: all their bytes in 2, dialect and length of each in 3. They name each other by
 *                  index, in any order, so they are read when they are first asked for
 *   4 operations   of the module; an isolated operation holds its regions in such a section of its own
 *   5, 6 resources large constants: bytes in 5, name, kind and length of each in 6
 *   8 properties   from version 5: an operation's own attributes, as indices in alphabetical order of their names
 *
 * Values are numbered in the order of their definition through an isolated operation's regions. A region says first how
 * many it defines; numbers of an inner region follow those of the outer ones and are free again behind it.
 *
 * What is read becomes what the text reader has (parse_int.h): attributes become nodes, an operation becomes a
 * statement named "stablehlo.<name>", and parse_append makes it, so that both readers take the same operations. An
 * older version of an operation lacks attributes that the newer one has, which parse_attrs.c takes for their defaults.
 * Types become StableHLO text, read by text_type.
 *
 * Hostile input: every count is compared with the bytes that are left before anything is allocated for it, entries
 * being read are marked, so that a cycle is an error, nesting is bounded, and the text of types has a budget. */
#ifndef TTPU_IR_BYTECODE_INT_H
#define TTPU_IR_BYTECODE_INT_H

#include "ir/parse_op.h"

/* One version of an operation; vhlo.def is the list. Versions of the dialect are major * 100 + minor. */
typedef struct vhlo_op {
  const char *name;       /* "all_gather" */
  uint16_t version;       /* of the operation: the 2 of all_gather_v2 */
  uint16_t first, last;   /* of the dialect: where this form is the current one; last 0: up to now */
  const char *attributes; /* their names in alphabetical order, with spaces between them */
} vhlo_op;
enum { VHLO_OLDEST_WRITTEN = 100, VHLO_NEWEST = 120 };
const vhlo_op *vhlo_op_find(text_slice name);                  /* "all_gather_v2"; NULL: unknown */
const vhlo_op *vhlo_op_first(const char *name);                /* "all_gather": v1, which v2 follows; NULL: unknown */
const vhlo_op *vhlo_op_at(const char *name, unsigned version); /* the form of that version; NULL: none */
unsigned vhlo_type_since(const char *name);                    /* the first version with that type */
unsigned vhlo_version_needed(const ir_func *f);                /* the oldest that holds it, from OLDEST_WRITTEN on */

typedef enum vhlo_attribute {
  VHLO_ARRAY = 1,
  VHLO_BOOLEAN = 2,
  VHLO_COMPARISON_DIRECTION = 3,
  VHLO_COMPARISON_TYPE = 4,
  VHLO_API_VERSION = 5,
  VHLO_DICTIONARY = 6,
  VHLO_FFT_TYPE = 7,
  VHLO_FLOAT = 8,
  VHLO_INTEGER = 9,
  VHLO_OUTPUT_OPERAND_ALIAS = 10,
  VHLO_PRECISION = 11,
  VHLO_RNG_ALGORITHM = 12,
  VHLO_RNG_DISTRIBUTION = 13,
  VHLO_STRING = 14,
  VHLO_TENSOR = 15,
  VHLO_TRANSPOSE = 16,
  VHLO_TYPE = 17,
  VHLO_TYPE_EXTENSIONS = 18,
  VHLO_RESULT_ACCURACY_MODE = 19,
  VHLO_RESULT_ACCURACY = 20,
  VHLO_SUB_AXIS_INFO = 21,
  VHLO_AXIS_REF = 22,
  VHLO_REPLICA_GROUP_MESH_AXES = 23,
  VHLO_MESH_AXIS = 24,
  VHLO_MESH = 25,
} vhlo_attribute;

typedef enum vhlo_type {
  VHLO_COMPLEX = 1,
  VHLO_FUNCTION = 8,
  VHLO_RANKED_TENSOR = 20,
  VHLO_RANKED_TENSOR_ENCODED = 21,
  VHLO_TUPLE = 23,
  VHLO_QUANTIZED = 24,
  VHLO_UNRANKED_TENSOR = 25,
  VHLO_QUANTIZED_PER_AXIS = 30,
  VHLO_BUFFER = 41,
  VHLO_FUTURE = 42,
} vhlo_type;
enum { VHLO_TYPE_CODES = 43 };
/* StableHLO's name of a type that has no parts ("f32", "!stablehlo.token"); NULL: has parts, or is unknown. */
const char *vhlo_type_name(uint64_t code);
/* StableHLO's name of an enumeration's value; NULL: no such enumeration or value. */
const char *vhlo_enum_name(uint64_t attribute, uint64_t value);

/* ---- the container -------------------------------------------------------------------------- */

typedef struct cursor { /* what is left of some bytes */
  const uint8_t *at, *end;
} cursor;
static inline size_t cursor_left(const cursor *c) { return (size_t)(c->end - c->at); }

enum { BYTECODE_NEWEST = 6, BYTECODE_SECTIONS = 9 };
enum { SECTION_STRINGS, SECTION_DIALECTS, SECTION_ENTRIES, SECTION_OFFSETS, SECTION_IR, SECTION_RESOURCES };
enum { SECTION_RESOURCE_OFFSETS = 6, SECTION_DIALECT_VERSIONS, SECTION_PROPERTIES };

typedef enum { ENTRY_UNREAD, ENTRY_OPEN, ENTRY_READ } entry_state;
typedef struct bytecode_entry { /* an attribute or a type */
  cursor bytes;
  uint32_t dialect;
  bool custom; /* else its text form */
  uint8_t state;
  text_slice text;       /* of a type, when read */
  const node *node;      /* of an attribute, when read */
  const text_type *type; /* once asked for */
} bytecode_entry;

typedef struct bytecode_name { /* of an operation */
  text_slice dialect, name;
  bool registered;
  const vhlo_op *vhlo;  /* NULL: another dialect's */
  text_slice statement; /* "stablehlo.add" */
} bytecode_name;

typedef struct bytecode_resource {
  text_slice key;
  cursor bytes; /* with alignment and length in front */
  uint8_t kind; /* 0 blob, 1 bool, 2 string */
} bytecode_resource;

typedef struct bytecode {
  uint64_t version;
  cursor sections[BYTECODE_SECTIONS]; /* at NULL: absent */
  text_slice *strings, *dialects;
  bytecode_name *names;
  bytecode_entry *attributes, *types;
  cursor *properties;
  bytecode_resource *resources;
  uint32_t string_count, dialect_count, name_count, attribute_count, type_count, property_count, resource_count;
  uint32_t name_capacity, resource_capacity;
  int depth;          /* of entries being read */
  size_t text_budget; /* bytes that types' texts may still take */
  ir_value *values;   /* heap: the values of all open regions; 0 where not yet defined */
  uint32_t value_count, value_capacity;
  uint32_t frame; /* where number 0 of the innermost isolated operation is */
} bytecode;

bool bytecode_fail(parser *p, const cursor *c, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool cursor_byte(parser *p, cursor *c, uint8_t *out);
bool cursor_varint(parser *p, cursor *c, uint64_t *out);
bool cursor_svarint(parser *p, cursor *c, int64_t *out);
bool cursor_flagged(parser *p, cursor *c, uint64_t *out, bool *flag); /* value << 1 | flag */
bool cursor_index(parser *p, cursor *c, uint64_t limit, const char *what, uint32_t *out);
/* How many things follow, each of which takes a byte at least. */
bool cursor_count(parser *p, cursor *c, uint32_t *out);
bool cursor_take(parser *p, cursor *c, uint64_t bytes, cursor *out);
bool cursor_string(parser *p, cursor *c, text_slice *out); /* an index into the strings */
bool cursor_section(parser *p, cursor *c, uint8_t *id, cursor *out);
/* A list of entries of a dialect each: its number and how many follow. */
bool cursor_group(parser *p, cursor *c, uint32_t *dialect, uint64_t *count);

/* ---- attributes and types ------------------------------------------------------------------- */

bool bytecode_attribute(parser *p, uint32_t index, const node **out);
bool bytecode_read_shardy(parser *p, cursor *c, node *out); /* bytecode_shardy.c: as text */
bool bytecode_type_text(parser *p, uint32_t index, text_slice *out);
bool bytecode_type(parser *p, uint32_t index, const text_type **out);
/* The text readers over a piece of text: what fails there is told at c. */
text_reader bytecode_text(parser *p, text_slice text);
bool bytecode_text_done(parser *p, const cursor *c, const text_reader *t);
bool cursor_attribute(parser *p, cursor *c, const node **out); /* by its index */
bool cursor_type_text(parser *p, cursor *c, text_slice *out);
bool cursor_type(parser *p, cursor *c, const text_type **out);
/* An attribute's text form, for those that are kept as text (a custom call's dictionary). */
bool bytecode_attribute_text(parser *p, const node *n, text_slice *out);

/* ---- operations ----------------------------------------------------------------------------- */

bool bytecode_find_functions(parser *p);

#endif
