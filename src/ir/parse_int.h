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
  bool binary;                          /* messages give the byte, not the line */
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
bool text_attribute_type(text_reader *t, ir_type *out); /* of dense elements: may be of index */
bool text_attribute(text_reader *t, node *out, int depth);
bool text_dict(text_reader *t, const char *open, const char *close, node *out, int depth); /* entries between the two */
const node *node_find(const node *dict, const char *name);
void *text_room(text_reader *t, size_t bytes); /* cleared memory from scratch; NULL after a failure */
/* The attribute struct of a kind from its dictionary, in scratch; NULL attributes where the kind has none. */
bool text_attrs(text_reader *t, ir_kind kind, const node *dict, const void **out);

/* ---- the reader of modules: parse.c for text, bytecode*.c for bytecode ---------------------- */

/* A list that grows in scratch. */
typedef struct values {
  ir_value *data;
  uint32_t count, capacity;
} values;
typedef struct types {
  ir_type *data;
  uint32_t count, capacity;
} types;

/* A function's text: where its signature, or the region of the generic form, begins. In bytecode: its region. */
typedef struct function {
  text_slice name;
  const char *at;
  bool generic, private, open; /* open: being read, so that a call to it is a recursion */
  node attrs;                  /* the generic form's attributes */
} function;

/* %name, bound to `count` values; seen only in its own frame (a function that is read in place). */
typedef struct binding {
  text_slice name;
  ir_value first;
  const ir_value *list; /* the values where they are not first, first + 1, ... */
  uint32_t count, frame;
  int32_t next; /* older binding in the same bucket, -1: none */
} binding;

/* Functions that call others twice, twenty levels deep, are a short text: reading in place needs its bounds. */
enum { BUCKETS = 1024, DEEPEST = 200, MOST_VALUES = 1 << 23, MOST_CALLS = 1 << 17 };

typedef struct parser {
  text_reader text;
  ir_builder b;
  function *functions; /* heap */
  uint32_t function_count, function_capacity;
  binding *bindings; /* heap, a stack */
  uint32_t binding_count, binding_capacity;
  int32_t buckets[BUCKETS];
  uint32_t frame, frames; /* the current frame, and how many there were */
  base_arena *arena;      /* the function's */
  ir_mesh *meshes;        /* heap; their texts are in the arena */
  uint32_t mesh_count, mesh_capacity;
  int depth;
  struct bytecode *bytecode; /* NULL: reading text */
} parser;

/* An operation's parts, as read. */
typedef struct statement {
  text_slice results[16]; /* names; %a:2 and %a, %b are both possible */
  uint32_t counts[16], result_names;
  text_slice name;
  values operands;
  node attrs;
  ir_region **regions;
  uint32_t region_count, region_capacity;
  types operand_types, result_types;
  ir_value first; /* of consecutive results */
  ir_value *all;  /* the results where they are not consecutive; else NULL */
} statement;

bool parse_push(parser *p, void **data, uint32_t count, uint32_t *capacity, size_t size); /* room for one more */
bool parse_check_builder(parser *p); /* the builder's failure, told with the position */
bool parse_add_function(parser *p, function f);
function *parse_find_function(parser *p, text_slice name); /* NULL: none */
bool parse_add_mesh(parser *p, const node *attrs);         /* of an sdy.mesh */
bool parse_donates(const node *attrs);                     /* do a parameter's attributes donate its buffer? */
/* Appends what the statement says (StableHLO, CHLO, a call or a composite): its results are in s->first or s->all. */
bool parse_append(parser *p, statement *s);

/* bytecode.c. Between open and close text.at says where in the bytes the reader is. */
bool bytecode_begins(const char *bytes, size_t size); /* with the magic number? */
bool bytecode_open(parser *p);                        /* all but the operations; notes the functions */
bool bytecode_read_main(parser *p, function *f);
bool bytecode_call(parser *p, text_slice name, const values *operands, values *returned);
void bytecode_close(parser *p);

#endif
