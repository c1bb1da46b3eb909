/* parse_int: the reader's layers.
 *
 * parse_text.c reads characters: names, types, numbers, dense elements, and attribute values into a small tree (node).
 * It knows MLIR's syntax and no operation. parse_attrs.c turns such a tree into an attribute struct by the field
 * tables; parse.c reads modules, functions, regions and operations with both. Trees live in `scratch`; what the
 * function keeps is copied by the builder. The first failure is kept in `status`, with base_fail's message; from then
 * on nothing is read. */
#ifndef TTPU_IR_PARSE_INT_H
#define TTPU_IR_PARSE_INT_H

#include "ir/ir_int.h"

typedef struct text_slice {
  const char *data;
  size_t length;
} text_slice;

typedef enum node_kind {
  NODE_OTHER, /* something that no field wants: its text alone */
  NODE_INT,   /* i */
  NODE_FLOAT, /* d */
  NODE_BOOL,  /* i */
  NODE_UNIT,
  NODE_STRING, /* value: unescaped, NUL-terminated */
  NODE_SYMBOL, /* value: without @ */
  NODE_ENUM,   /* #stablehlo<tag NAME>: value is NAME */
  NODE_LIST,   /* array<i64: ...>: numbers */
  NODE_DENSE,  /* type, data */
  NODE_ARRAY,  /* [a, b]: entries without names */
  NODE_DICT,   /* {a = 1}, and #stablehlo.record<a = 1> */
  NODE_CONV,   /* #stablehlo.conv<...>: its text between the angle brackets is `value` */
} node_kind;

typedef struct node {
  node_kind kind;
  text_slice text; /* as written */
  text_slice value;
  int64_t i;
  double d;
  ir_i64s numbers;
  ir_type type;
  ir_data data;
  struct entry *entries;
  uint32_t count;
} node;

typedef struct entry {
  text_slice name;
  node value;
} entry;

typedef struct text_reader {
  const char *start, *at, *end;
  base_arena *scratch;
  ttpu_status status;
  text_slice operation;                 /* being read, for messages */
  entry *aliases;                       /* #name = value */
  uint32_t alias_count, alias_capacity; /* heap; the owner frees it */
} text_reader;

bool text_fail(text_reader *t, ttpu_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool text_no_memory(text_reader *t);
static inline bool text_ok(const text_reader *t) { return t->status == TTPU_OK; }

bool text_is(text_slice s, const char *literal);
void text_space(text_reader *t);                     /* skips white space and comments */
bool text_peek(text_reader *t, const char *literal); /* after white space; a word must end there */
bool text_take(text_reader *t, const char *literal); /* the same, and goes over it */
bool text_expect(text_reader *t, const char *literal);
bool text_word(text_reader *t, text_slice *out);   /* letters, digits, _ $ and . */
bool text_string(text_reader *t, text_slice *out); /* "..." */
bool text_symbol(text_reader *t, text_slice *out); /* @name or @"name" */
bool text_integer(text_reader *t, int64_t *out);
bool text_skip_balanced(text_reader *t); /* from an opening bracket to behind its partner */
bool text_skip_location(text_reader *t); /* loc(...), when there is one */
bool text_type(text_reader *t, ir_type *out);
bool text_attribute(text_reader *t, node *out, int depth);
bool text_dict(text_reader *t, const char *open, const char *close, node *out, int depth); /* entries between the two */
const node *node_find(const node *dict, const char *name);
void *text_room(text_reader *t, size_t bytes); /* cleared memory from scratch; NULL after a failure */
/* The attribute struct of a kind from its dictionary, in scratch; NULL attributes where the kind has none. */
bool text_attrs(text_reader *t, ir_kind kind, const node *dict, const void **out);

#endif
