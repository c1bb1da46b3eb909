/* bytecode_out: how a portable artifact is written; bytecode_int.h says what one is.
 *
 * The tables grow while operations are written: whoever names a string, an attribute, a type or an operation's properties
 * gets the number of the entry with those bytes, which is made at its first use. Equal functions therefore give equal
 * bytes. Every operation is written in the form that it had in the wanted version of VHLO, so that whatever is as new as
 * that version, or newer, can read it. */
#ifndef TTPU_IR_BYTECODE_OUT_H
#define TTPU_IR_BYTECODE_OUT_H

#include "ir/bytecode_int.h"

typedef struct out_item {
  size_t at, length; /* in the table's bytes */
  uint32_t dialect;
} out_item;

typedef struct out_table {
  base_text bytes;
  out_item *items;
  uint32_t count, capacity;
  uint32_t *buckets; /* item + 1; 0: free. A power of two of them */
  uint32_t bucket_count;
} out_table;

/* The dialects of an artifact, by their numbers. */
enum { OUT_BUILTIN, OUT_VHLO, OUT_DIALECTS };

typedef struct writer {
  unsigned version; /* of VHLO: major * 100 + minor */
  out_table strings, attributes, types, properties, names;
  base_text ir;
  const ir_func *func;
  uint32_t *numbers; /* heap: by value, its number in the bytecode */
  ir_decompositions decompositions;
  ttpu_status status;
} writer;

void out_varint(base_text *t, uint64_t v);
void out_svarint(base_text *t, int64_t v);
void out_byte(base_text *t, unsigned byte);
/* The number of an entry with these bytes; 0 after a failure. */
uint32_t out_entry(writer *w, out_table *table, uint32_t dialect, const void *bytes, size_t length);
uint32_t out_string(writer *w, const char *text);
uint32_t out_name(writer *w, uint32_t dialect, const char *name); /* of an operation */
/* The number of an entry whose bytes are in `bytes`, which is freed. */
uint32_t out_take(writer *w, out_table *table, uint32_t dialect, base_text *bytes);
void out_section(base_text *out, unsigned id, const base_text *bytes);
void out_fail(writer *w, ttpu_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* bytecode_out_attrs.c: attributes and types by their numbers. */
uint32_t out_type(writer *w, ir_type type);
uint32_t out_function_type(writer *w, uint32_t inputs, const ir_value *input, uint32_t results, const ir_value *result);
uint32_t out_text(writer *w, const char *text); /* a string */
uint32_t out_array(writer *w, uint32_t count, const uint32_t *attributes);
uint32_t out_boolean(writer *w, bool value);
uint32_t out_type_attribute(writer *w, uint32_t type);
uint32_t out_dictionary(writer *w, uint32_t count, const uint32_t *names_and_values);
/* An operation's properties, in the order of its row; `form` is the row. */
uint32_t out_properties(writer *w, const ir_op *op, const vhlo_op *form);
uint32_t out_composite_properties(writer *w, const ir_op *op);

/* bytecode_out_ops.c */
void out_module(writer *w, const ir_func *f);

#endif
