/* parse_int: the reader's layers.
 *
 *   parse_text.c    characters: names, types, numbers, dense elements, and attribute values into a small tree (node).
 *                   It knows MLIR's syntax and no operation
 *   parse_attrs.c   turns such a tree into an attribute struct by the field tables
 *   parse.c         modules, functions, regions, operations in generic form
 *   parse_pretty.c  operations in the form that StableHLO's own printer gives
 *   parse_known.c   the numbers of small integer tensors that are known while reading: shapes, mostly
 *   parse_legal.c   operations: rows of ops.def, and what is said with those: calls and tuples here, the rest in
 *                   parse_deprecated.c, parse_dynamic.c, parse_chlo.c and parse_ragged.c (CHLO's) and parse_check.c (test files')
 *   parse_quant.c   operations on quantized tensors: dequantized, run, quantized again
 *
 * Trees live in `scratch`; what the function keeps is copied by the builder. The first failure is kept in `status`, with
 * base_fail's message; from then on nothing is read.
 *
 * The function that comes out is static, has no tuples and no quantized types. A dimension written `?` is read as
 * whatever the operands make of it: sizes of @main's parameters must be given (ir_parse_options), from there on they are
 * inferred, and the shape operands of dynamic operations must be known numbers. A tuple is a list of values, a quantized
 * tensor the integers that it is stored in. */
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
  NODE_SYMBOL, /* value: without @; of @a::@b the last */
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

/* What `!quant.uniform<i8:f32:axis, {scale:zero, ...}>` says of integers that stand for real numbers:
 * real = (stored - zero) * scale. One pair for all, or one for each index of a dimension. */
typedef struct quantization {
  ttpu_dtype storage, expressed;
  int64_t low, high; /* of the stored integers */
  int64_t axis;      /* -1: one pair for the whole tensor */
  uint32_t count;
  const double *scales;
  const int64_t *zeros;
} quantization;

/* A type as written. dims may hold TEXT_ANY where `?` stands; a tensor of no known rank has `unranked`. */
enum { TEXT_ANY = -1 };
typedef struct text_type {
  ir_type type; /* of the integers, where quantized */
  const quantization *quantized;
  bool tuple, unranked, dynamic; /* dynamic: some dims are TEXT_ANY */
  struct text_type *elements;    /* of a tuple */
  uint32_t count;
} text_type;

typedef struct type_alias {
  text_slice name;
  text_type type;
} type_alias;

typedef struct text_reader {
  const char *start, *at, *end;
  base_arena *scratch;
  ttpu_status status;
  text_slice operation;                       /* being read, for messages */
  bool binary;                                /* messages give the byte, not the line */
  entry *aliases;                             /* #name = value */
  uint32_t alias_count, alias_capacity;       /* heap; the owner frees it */
  type_alias *types;                          /* !name = type */
  uint32_t type_count, type_capacity;         /* heap; the owner frees it */
  entry *resources;                           /* dense_resource<name>: a string "0x..." */
  uint32_t resource_count, resource_capacity; /* heap; the owner frees it */
  bool bare; /* numbers are read without a type behind them: the pretty form's `dim = 0 : tensor<...>` */
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
bool text_read_type(text_reader *t, text_type *out, int depth);
bool text_static_type(text_reader *t, ir_type *out); /* of dense elements: known sizes, stored as they are */
bool text_type_equal(const text_type *a, const text_type *b);
bool text_attribute(text_reader *t, node *out, int depth);
bool text_nested_list(text_reader *t, node *out, int depth);                               /* [a, b] */
bool text_dict(text_reader *t, const char *open, const char *close, node *out, int depth); /* entries between the two */
const node *node_find(const node *dict, const char *name);
void *text_room(text_reader *t, size_t bytes); /* cleared memory from scratch; NULL after a failure */
bool text_list(text_reader *t, const char *name, const node *n, ir_i64s *out); /* any spelling of integers */
/* The attribute struct of a kind from its dictionary, in scratch; NULL attributes where the kind has none. */
bool text_attrs(text_reader *t, ir_kind kind, const node *dict, const void **out);

#endif
