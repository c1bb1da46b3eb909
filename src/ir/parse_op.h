/* parse_op: what the readers of operations share: the reader's state, statements, and how one becomes operations of the
 * function. See parse_int.h for who does what. */
#ifndef TTPU_IR_PARSE_OP_H
#define TTPU_IR_PARSE_OP_H

#include "ir/parse_int.h"

#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)
#define FAIL(...) return text_fail(&p->text, TTPU_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(...) return text_fail(&p->text, TTPU_UNIMPLEMENTED, __VA_ARGS__)

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

/* Lists that grow in scratch. A value with TUPLE_VALUE set is the number of a tuple. */
enum { TUPLE_VALUE = 1u << 31 };
typedef struct values {
  ir_value *data;
  uint32_t count, capacity;
} values;
typedef struct types {
  text_type *data;
  uint32_t count, capacity;
} types;

/* What is known of an integer value, by parse_known.c: `count` numbers, or none. */
typedef struct known {
  bool asked;
  uint32_t count;
  const int64_t *numbers; /* NULL: not known */
} known;

/* interpreter.probe: a value that check.expect_serialized_eq asks for by name. */
typedef struct probe {
  text_slice name;
  ir_value value;
  int64_t channel; /* on which a probe in a region sends it each time; 0: it is `value` */
} probe;

/* Functions that call others twice, twenty levels deep, are a short text: reading in place needs its bounds. */
enum { BUCKETS = 1024, DEEPEST = 200, MOST_VALUES = 1 << 23, MOST_CALLS = 1 << 17 };

typedef struct parser {
  text_reader text;
  ir_builder b;
  ir_parse_options *options; /* never NULL */
  function *functions;       /* heap */
  uint32_t function_count, function_capacity;
  binding *bindings; /* heap, a stack */
  uint32_t binding_count, binding_capacity;
  int32_t buckets[BUCKETS];
  uint32_t frame, frames; /* the current frame, and how many there were */
  base_arena *arena;      /* the function's */
  ir_mesh *meshes;        /* heap; their texts are in the arena */
  uint32_t mesh_count, mesh_capacity;
  int depth;
  values *tuples; /* in scratch; tuple number i is value TUPLE_VALUE | i */
  uint32_t tuple_count, tuple_capacity;
  const quantization **quantized; /* by value, in scratch: NULL for plain ones */
  uint32_t quantized_capacity;
  known *known; /* by value, in scratch */
  uint32_t known_capacity;
  values checked;     /* what the checks compare: the function's further results */
  uint32_t parallels; /* how many were met */
  probe *probes;
  uint32_t probe_count, probe_capacity;
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

static inline ir_value operand(const statement *s, uint32_t i) { return s->operands.data[i]; }
static inline ir_type type_of(const parser *p, ir_value v) { return ir_type_of(p->b.func, v); }
static inline ttpu_dtype result_dtype(const statement *s) { return (ttpu_dtype)s->result_types.data[0].type.dtype; }

/* An operation that is said with others, and who says it. */
typedef struct parse_row {
  const char *name;
  bool (*run)(parser *p, statement *s);
} parse_row;

/* parse.c */
void *parse_room(parser *p, size_t bytes);
bool parse_push(parser *p, void **data, uint32_t count, uint32_t *capacity, size_t size);
bool parse_push_value(parser *p, values *list, ir_value v);
bool parse_push_type(parser *p, types *list, text_type type);
bool parse_check_builder(parser *p); /* the builder's failure, told with the position */
bool parse_bind(parser *p, text_slice name, ir_value first, const ir_value *list, uint32_t count);
void parse_unbind_to(parser *p, uint32_t count);
bool parse_value_name(parser *p, text_slice *out);
bool parse_read_value(parser *p, ir_value *out);
bool parse_read_operands(parser *p, values *out);
bool parse_read_types(parser *p, types *out);     /* one, or some in parentheses */
bool parse_read_type_list(parser *p, types *out); /* a, b, c */
/* A region. `like`: the operands that its arguments stand for, whose sizes theirs are where `?` is written; may be NULL. */
bool parse_read_region(parser *p, const values *like, ir_region **out);
/* The same with the arguments known already: from the opening brace on. */
bool parse_read_region_body(parser *p, const types *arguments, const text_slice *names, ir_region **out);
bool parse_add_region(parser *p, statement *s, ir_region *region);
/* A function's body here, its parameters being these operands. */
bool parse_add_function(parser *p, function f);
function *parse_find_function(parser *p, text_slice name); /* NULL: none */
bool parse_add_mesh(parser *p, const node *attrs);         /* of an sdy.mesh */
bool parse_donates(const node *attrs);                     /* do a parameter's attributes donate its buffer? */
/* A parameter of the function that is read, `number` being how many there were; a tuple is one for each element. */
bool parse_parameter(parser *p, const text_type *type, uint32_t *number, ir_value *out);
/* The function's return: the values without tuples around them, and what checks compare. */
bool parse_return(parser *p, const values *returned);
/* The types of a region's arguments, from operands where `?` is written. */
bool parse_argument_types(parser *p, const values *like, const types *arguments, ir_type **out);
bool parse_inline(parser *p, text_slice name, const values *operands, values *returned);
bool parse_merge_attrs(parser *p, statement *s, const node *more);
bool parse_value_matches(parser *p, ir_value v, const text_type *type);
/* The written type with the sizes of `like` where `?` stands; false where they do not fit. */
bool parse_resolve(parser *p, const text_type *written, ir_type like, ir_type *out);
const char *parse_show(parser *p, const text_type *type);

/* parse_pretty.c: everything behind the name, and the result types that follow from what is written. */
bool parse_read_pretty(parser *p, statement *s);

/* parse_legal.c */
bool parse_run(parser *p, statement *s); /* the operations that a statement means */
/* One operation of the statement's operands, attributes from `attrs`; sets its results. */
bool parse_append(parser *p, statement *s, ir_kind kind, const node *attrs);
bool parse_results(parser *p, statement *s, uint32_t count, const ir_value *values);
bool parse_result(parser *p, statement *s, ir_value v);
const parse_row *parse_find(const parse_row *rows, size_t count, text_slice name); /* NULL: not among them */
bool parse_expect_counts(parser *p, const statement *s, uint32_t operands, uint32_t results);
int64_t parse_integer_attr(const statement *s, const char *name, int64_t otherwise);
bool parse_dimension_attr(parser *p, const statement *s, const char *name, uint32_t rank, uint32_t *out);

/* parse_deprecated.c */
const parse_row *parse_find_deprecated(text_slice name);

/* parse_dynamic.c */
const parse_row *parse_find_dynamic(text_slice name);
/* The numbers of an operand that is a shape or a list of positions. */
bool parse_known_operand(parser *p, const statement *s, uint32_t i, const int64_t **numbers, uint32_t *count);
/* A shape: of the result as it is written, where that says it. */
bool parse_known_shape(parser *p, const statement *s, uint32_t i, const int64_t **dims, uint32_t *rank);

/* parse_check.c */
bool parse_run_check(parser *p, statement *s, text_slice name); /* check.expect_eq and its like, without the dialect */
bool parse_probe(parser *p, statement *s);
bool parse_run_parallel(parser *p, statement *s);

/* parse_chlo.c */
bool parse_run_chlo(parser *p, statement *s, text_slice name); /* `name` is without the dialect */
bool parse_approx_top_k(parser *p, statement *s);              /* a custom call */
/* One of ours that CHLO has too, with CHLO's results. */
bool parse_run_composite(parser *p, statement *s, ir_kind kind, const node *attrs);

/* parse_ragged.c */
bool parse_ragged_dot(parser *p, statement *s);

/* A region's operations again, here; returned[i] are its results. */
bool parse_repeat_region(parser *p, const ir_region *region, const ir_value *arguments, ir_value *returned);

/* parse_known.c: the numbers of v, at most PARSE_MOST_KNOWN; NULL: not known. */
enum { PARSE_MOST_KNOWN = 64 };
const int64_t *parse_known(parser *p, ir_value v, uint32_t *count);
bool parse_set_known(parser *p, ir_value v, uint32_t count, const int64_t *numbers);
/* Are these two computed alike? */
bool parse_same(parser *p, ir_value a, ir_value b, int depth);

/* parse_quant.c */
const quantization *parse_quantization(const parser *p, ir_value v);
bool parse_set_quantization(parser *p, ir_value v, const quantization *q);
bool parse_is_quantized(const parser *p, const statement *s);
/* Runs the statement on what its operands stand for, and quantizes its results. */
bool parse_run_quantized(parser *p, statement *s);
ir_value parse_quantize(parser *p, ir_value x, const quantization *q);
ir_value parse_dequantize(parser *p, ir_value x, const quantization *q);

/* bytecode.c. Between open and close text.at says where in the bytes the reader is. */
bool bytecode_begins(const char *bytes, size_t size); /* with the magic number? */
bool bytecode_open(parser *p);                        /* all but the operations; notes the functions */
bool bytecode_read_main(parser *p, function *f);
bool bytecode_call(parser *p, text_slice name, const values *operands, values *returned);
void bytecode_close(parser *p);

#endif
