/* Operations in the form that StableHLO's printer gives. Most are one grammar: operands, words, `key = value` and what
 * stands in brackets, separated by commas, then attributes, then types; pretty.def says which key means which attribute.
 * A few have a form of their own: those with regions, products, convolutions, slices. */
#include <ctype.h>
#include <string.h>

#include "ir/parse_op.h"

static const struct {
  const char *operation, *written, *attribute;
} keys[] = {
#define KEY(operation, written, attribute) {operation, written, attribute},
#include "ir/pretty.def"
#undef KEY
};

static const struct {
  const char *operation;
  uint32_t number;
  const char *attribute;
} words[] = {
#define WORD(operation, number, attribute) {operation, number, attribute},
#include "ir/pretty.def"
#undef WORD
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The name without its dialect. */
static text_slice short_name(text_slice name) {
  const char *dot = memchr(name.data, '.', name.length);
  if (!dot) return name;
  size_t skipped = (size_t)(dot - name.data) + 1;
  return (text_slice){name.data + skipped, name.length - skipped};
}

static text_slice literal(const char *text) { return (text_slice){text, strlen(text)}; }

static bool add_attr(parser *p, statement *s, text_slice name, const node *value) {
  entry one = {name, *value};
  const node dict = {.kind = NODE_DICT, .entries = &one, .count = 1};
  return parse_merge_attrs(p, s, &dict);
}

static bool add_list(parser *p, statement *s, const char *name, const int64_t *numbers, uint32_t count) {
  const node list = {.kind = NODE_LIST, .numbers = {numbers, count}};
  return add_attr(p, s, literal(name), &list);
}

static text_slice attribute_of(text_slice operation, text_slice key) {
  for (size_t i = 0; i < COUNT(keys); ++i)
    if (text_is(operation, keys[i].operation) && text_is(key, keys[i].written)) return literal(keys[i].attribute);
  return key;
}

static bool read_value(parser *p, node *out) {
  bool bare = p->text.bare;
  p->text.bare = true;
  bool ok = text_attribute(&p->text, out, 0);
  p->text.bare = bare;
  return ok;
}

/* ---- forms of their own --------------------------------------------------------------------- */

/* [0:4:2, 1:3] */
static bool read_slice(parser *p, statement *s) {
  text_reader *t = &p->text;
  int64_t *lists = parse_room(p, 3 * TTPU_MAX_RANK * sizeof *lists), *start = lists;
  if (!lists) return false;
  int64_t *limit = lists + TTPU_MAX_RANK, *stride = limit + TTPU_MAX_RANK;
  uint32_t count = 0;
  TRY(text_expect(t, "["));
  while (!text_take(t, "]")) {
    if (count == TTPU_MAX_RANK) FAIL("a slice of more than %d dimensions", TTPU_MAX_RANK);
    stride[count] = 1;
    TRY(text_integer(t, &start[count]) && text_expect(t, ":") && text_integer(t, &limit[count]));
    if (text_take(t, ":")) TRY(text_integer(t, &stride[count]));
    ++count;
    if (!text_take(t, ",") && !text_peek(t, "]")) FAIL("expected ',' or ']'");
  }
  return add_list(p, s, "start_indices", start, count) && add_list(p, s, "limit_indices", limit, count) &&
         add_list(p, s, "strides", stride, count);
}

/* batching_dims = [0] x [0] and contracting_dims = [2] x [1], as one record. */
static bool read_dot_dims(parser *p, statement *s, bool batching) {
  text_reader *t = &p->text;
  static const char *const names[2][2] = {{"lhs_contracting_dimensions", "rhs_contracting_dimensions"},
                                          {"lhs_batching_dimensions", "rhs_batching_dimensions"}};
  node *old = NULL;
  for (uint32_t i = 0; i < s->attrs.count; ++i)
    if (text_is(s->attrs.entries[i].name, "dot_dimension_numbers")) old = &s->attrs.entries[i].value;
  node record = {.kind = NODE_DICT, .entries = parse_room(p, 4 * sizeof *record.entries)};
  if (!record.entries) return false;
  if (!old) {
    TRY(add_attr(p, s, literal("dot_dimension_numbers"), &record));
    old = &s->attrs.entries[s->attrs.count - 1].value;
  }
  for (int side = 0; side < 2; ++side) {
    if (side) TRY(text_expect(t, "x"));
    if (old->count == 4) FAIL("dimensions are named twice");
    entry *e = &old->entries[old->count++];
    e->name = literal(names[batching][side]);
    TRY(text_nested_list(t, &e->value, 1));
  }
  return true;
}

/* dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f]: kept as text. */
static bool read_conv_dims(parser *p, statement *s) {
  text_reader *t = &p->text;
  text_space(t);
  const char *from = t->at;
  for (int group = 0; group < 3; ++group) {
    if (group == 1) TRY(text_expect(t, "x"));
    if (group == 2) TRY(text_expect(t, "->"));
    if (!text_peek(t, "[")) FAIL("expected '['");
    TRY(text_skip_balanced(t));
  }
  node conv = {.kind = NODE_CONV, .value = {from, (size_t)(t->at - from)}};
  return add_attr(p, s, literal("dimension_numbers"), &conv);
}

/* window = {stride = [2], pad = [[1, 1]], ...} */
static bool read_window(parser *p, statement *s) {
  node window = {0};
  bool bare = p->text.bare;
  p->text.bare = true;
  bool ok = text_dict(&p->text, "{", "}", &window, 0);
  p->text.bare = bare;
  TRY(ok);
  for (uint32_t i = 0; i < window.count; ++i)
    window.entries[i].name = attribute_of(literal("convolution"), window.entries[i].name);
  return parse_merge_attrs(p, s, &window);
}

/* format = e5m10 */
static bool read_format(parser *p, statement *s) {
  text_slice word;
  TRY(text_word(&p->text, &word));
  node bits[2] = {{.kind = NODE_INT}, {.kind = NODE_INT}};
  const char *at = word.data, *end = at + word.length;
  for (int i = 0; i < 2; ++i) {
    if (at >= end || *at++ != (i ? 'm' : 'e')) FAIL("expected a format such as e5m10");
    for (; at < end && isdigit((unsigned char)*at) && bits[i].i < 1000; ++at) bits[i].i = bits[i].i * 10 + *at - '0';
  }
  return add_attr(p, s, literal("exponent_bits"), &bits[0]) && add_attr(p, s, literal("mantissa_bits"), &bits[1]);
}

/* ---- the common form ------------------------------------------------------------------------ */

static bool read_key(parser *p, statement *s, text_slice operation, text_slice key) {
  bool dot = text_is(operation, "dot_general"), conv = text_is(operation, "convolution");
  if (dot && text_is(key, "batching_dims")) return read_dot_dims(p, s, true);
  if (dot && text_is(key, "contracting_dims")) return read_dot_dims(p, s, false);
  if (conv && text_is(key, "dim_numbers")) return read_conv_dims(p, s);
  if (conv && text_is(key, "window")) return read_window(p, s);
  if (text_is(operation, "reduce_precision") && text_is(key, "format")) return read_format(p, s);
  node value;
  TRY(read_value(p, &value));
  return add_attr(p, s, attribute_of(operation, key), &value);
}

/* A word that is no key: an enum's value, or a shorthand. */
static bool take_word(parser *p, statement *s, text_slice operation, text_slice word, uint32_t number) {
  const node value = {.kind = NODE_OTHER, .text = word};
  for (size_t i = 0; i < COUNT(words); ++i)
    if (text_is(operation, words[i].operation) && words[i].number == number)
      return add_attr(p, s, literal(words[i].attribute), &value);
  FAIL("'%.*s' is not expected here", (int)(word.length > 40 ? 40 : word.length), word.data);
}

/* @target is a custom call's or a call's; "name" a composite's. */
static bool read_symbol(parser *p, statement *s, text_slice operation) {
  node value;
  TRY(text_attribute(&p->text, &value, 0));
  bool custom = text_is(operation, "custom_call");
  if (custom) value.kind = NODE_STRING;
  const char *name = value.kind == NODE_SYMBOL ? "callee" : custom ? "call_target_name" : "name";
  return add_attr(p, s, literal(name), &value);
}

/* %x[0], or a slice. */
static bool read_bracket(parser *p, statement *s, text_slice operation) {
  if (!text_is(operation, "get_tuple_element")) return read_slice(p, s);
  node index = {.kind = NODE_INT};
  TRY(text_expect(&p->text, "[") && text_integer(&p->text, &index.i) && text_expect(&p->text, "]"));
  return add_attr(p, s, literal("index"), &index);
}

static bool read_dense_value(parser *p, statement *s) {
  node value;
  TRY(text_attribute(&p->text, &value, 0));
  if (value.kind != NODE_DENSE) FAIL("expected dense<...>");
  if (s->result_names) TRY(parse_push_type(p, &s->result_types, (text_type){.type = value.type}));
  return add_attr(p, s, literal("value"), &value);
}

static bool read_items(parser *p, statement *s, text_slice operation) {
  text_reader *t = &p->text;
  uint32_t word_count = 0;
  bool parentheses = false;
  for (;;) {
    text_slice word;
    text_space(t);
    if (!text_ok(t) || t->at >= t->end) return text_ok(t);
    char c = *t->at;
    if (c == ':' || c == '}') return true;
    if (c == ',') ++t->at;
    else if (c == '(') ++t->at, parentheses = true;
    else if (c == ')' && parentheses) ++t->at, parentheses = false;
    else if (c == '{') {
      node more = {0};
      TRY(text_dict(t, "{", "}", &more, 0));
      TRY(parse_merge_attrs(p, s, &more));
    } else if (c == '%') {
      ir_value v;
      TRY(parse_read_value(p, &v));
      TRY(parse_push_value(p, &s->operands, v));
    } else if (c == '@' || c == '"') TRY(read_symbol(p, s, operation));
    else if (c == '[') TRY(read_bracket(p, s, operation));
    else if (text_peek(t, "dense") || text_peek(t, "dense_resource")) {
      return read_dense_value(p, s); /* its type, and with it the operation's, is read */
    } else {
      TRY(text_word(t, &word));
      TRY(text_take(t, "=") ? read_key(p, s, operation, word) : take_word(p, s, operation, word, word_count++));
    }
  }
}

/* Operations whose results have all the types that are listed; of the others the last one is the result's. */
static bool lists_results(text_slice operation) { return text_is(operation, "optimization_barrier"); }
static bool has_no_result(const statement *s) { return s->name.length > 6 && memcmp(s->name.data, "check.", 6) == 0; }

/* (a, b) -> c, or `a, b -> c`, or `a`: from behind the colon. */
static bool read_signature(parser *p, statement *s, text_slice operation) {
  text_reader *t = &p->text;
  types listed = {0};
  if (text_peek(t, "(")) {
    TRY(parse_read_types(p, &s->operand_types));
    return text_expect(t, "->") && parse_read_types(p, &s->result_types);
  }
  TRY(parse_read_type_list(p, &listed));
  if (text_take(t, "->")) {
    s->operand_types = listed.count == s->operands.count ? listed : (types){0};
    return parse_read_types(p, &s->result_types);
  }
  if (lists_results(operation)) s->result_types = s->operand_types = listed;
  else if (!has_no_result(s)) TRY(parse_push_type(p, &s->result_types, listed.data[listed.count - 1]));
  return true;
}

static bool read_plain(parser *p, statement *s, text_slice operation) {
  TRY(read_items(p, s, operation));
  if (text_take(&p->text, ":")) TRY(read_signature(p, s, operation));
  node more = {0};
  if (!text_peek(&p->text, "{")) return text_ok(&p->text);
  return text_dict(&p->text, "{", "}", &more, 0) && parse_merge_attrs(p, s, &more);
}

/* ---- regions -------------------------------------------------------------------------------- */

/* reduce(%a init: %b), (%c init: %d): the operands, inputs first. */
static bool read_reduce_inputs(parser *p, statement *s) {
  text_reader *t = &p->text;
  values inits = {0};
  do {
    ir_value input, init;
    TRY(text_expect(t, "(") && parse_read_value(p, &input) && text_expect(t, "init") && text_expect(t, ":"));
    TRY(parse_read_value(p, &init) && text_expect(t, ")"));
    TRY(parse_push_value(p, &s->operands, input) && parse_push_value(p, &inits, init));
  } while (text_take(t, ","));
  for (uint32_t i = 0; i < inits.count; ++i) TRY(parse_push_value(p, &s->operands, inits.data[i]));
  return true;
}

/* `applies stablehlo.add`: a region that is this operation alone. */
static bool make_reducer(parser *p, statement *s, text_slice name) {
  text_slice operation = short_name(name);
  ir_kind kind = ir_kind_from_name(operation.data, operation.length);
  bool stablehlo = name.length > 10 && memcmp(name.data, "stablehlo.", 10) == 0;
  if (kind == IR_NO_OP || !stablehlo || !(ir_ops[kind].flags & IR_COMMUTES) || s->operands.count != 2)
    FAIL("'%.*s' reduces nothing", (int)(name.length > 40 ? 40 : name.length), name.data);
  ir_type scalar = {ir_type_of(p->b.func, s->operands.data[1]).dtype, 0, ir_no_dims};
  const ir_type arguments[2] = {scalar, scalar};
  ir_region *outer, *region = ir_region_begin(&p->b, 2, arguments, &outer);
  ir_value sum = ir_binary(&p->b, kind, region->first_arg, region->first_arg + 1);
  ir_region_end(&p->b, outer, 1, &sum);
  return parse_check_builder(p) && parse_add_region(p, s, region);
}

/* reducer(%x: t, %y: t) (%z: u, %w: u) {...}: arguments are all first ones, then all second ones. */
static bool read_reducer(parser *p, statement *s) {
  text_reader *t = &p->text;
  types first = {0}, second = {0};
  text_slice *names[2] = {NULL, NULL};
  uint32_t capacities[2] = {0, 0};
  do {
    TRY(text_expect(t, "("));
    for (int side = 0; side < 2; ++side) {
      types *list = side ? &second : &first;
      text_type type;
      if (side) TRY(text_expect(t, ","));
      TRY(parse_push(p, (void **)&names[side], list->count, &capacities[side], sizeof *names[side]));
      TRY(parse_value_name(p, &names[side][list->count]) && text_expect(t, ":") && text_read_type(t, &type, 0));
      TRY(parse_push_type(p, list, type));
      TRY(text_skip_location(t));
    }
    TRY(text_expect(t, ")"));
  } while (text_peek(t, "("));
  text_slice *all = parse_room(p, 2 * first.count * sizeof *all);
  if (!all) return false;
  memcpy(all, names[0], first.count * sizeof *all);
  memcpy(all + first.count, names[1], first.count * sizeof *all);
  for (uint32_t i = 0; i < second.count; ++i) TRY(parse_push_type(p, &first, second.data[i]));
  ir_region *region;
  return parse_read_region_body(p, &first, all, &region) && parse_add_region(p, s, region);
}

static bool read_reduce(parser *p, statement *s) {
  text_reader *t = &p->text;
  text_slice applied = {0};
  node dimensions = {0}, more = {0};
  TRY(read_reduce_inputs(p, s));
  if (text_take(t, "applies")) TRY(text_word(t, &applied));
  TRY(text_expect(t, "across") && text_expect(t, "dimensions") && text_expect(t, "="));
  TRY(text_nested_list(t, &dimensions, 0) && add_attr(p, s, literal("dimensions"), &dimensions));
  if (text_peek(t, "{")) TRY(text_dict(t, "{", "}", &more, 0) && parse_merge_attrs(p, s, &more));
  TRY(text_expect(t, ":") && parse_read_types(p, &s->operand_types));
  TRY(text_expect(t, "->") && parse_read_types(p, &s->result_types));
  if (applied.length) return make_reducer(p, s, applied);
  return text_expect(t, "reducer") && read_reducer(p, s);
}

/* while(%i = %0, %j = %1) : types cond {...} do {...} */
static bool read_while(parser *p, statement *s) {
  text_reader *t = &p->text;
  types arguments = {0};
  text_slice *names = NULL;
  uint32_t count = 0, capacity = 0;
  TRY(text_expect(t, "("));
  while (!text_take(t, ")")) {
    ir_value v;
    TRY(parse_push(p, (void **)&names, count, &capacity, sizeof *names));
    TRY(parse_value_name(p, &names[count++]) && text_expect(t, "=") && parse_read_value(p, &v));
    TRY(parse_push_value(p, &s->operands, v));
    if (!text_take(t, ",") && !text_peek(t, ")")) FAIL("expected ',' or ')'");
  }
  if (count) TRY(text_expect(t, ":") && parse_read_type_list(p, &s->result_types));
  if (s->result_types.count != count) FAIL("%u values, but %u types", count, s->result_types.count);
  s->operand_types = s->result_types;
  node more = {0};
  if (text_take(t, "attributes")) TRY(text_dict(t, "{", "}", &more, 0) && parse_merge_attrs(p, s, &more));
  for (uint32_t i = 0; i < count; ++i) { /* the state has the operands' sizes */
    text_type type = s->result_types.data[i];
    if (s->operands.data[i] & TUPLE_VALUE || !parse_value_matches(p, s->operands.data[i], &type))
      FAIL("value %u does not have the type %s", i, parse_show(p, &type));
    type.type = ir_type_of(p->b.func, s->operands.data[i]), type.dynamic = type.unranked = false;
    TRY(parse_push_type(p, &arguments, type));
  }
  for (int part = 0; part < 2; ++part) {
    ir_region *region;
    TRY(text_expect(t, part ? "do" : "cond"));
    TRY(parse_read_region_body(p, &arguments, names, &region) && parse_add_region(p, s, region));
  }
  return true;
}

/* chlo.scan(%a, %b) inits(%c) dimension=0 attributes {...} {region} : types. How many operands are inputs is kept as
 * an attribute. */
static bool read_scan(parser *p, statement *s) {
  text_reader *t = &p->text;
  node more = {0}, inputs = {.kind = NODE_INT}, dimension;
  ir_region *region;
  TRY(text_expect(t, "(") && parse_read_operands(p, &s->operands) && text_expect(t, ")"));
  inputs.i = s->operands.count;
  TRY(text_expect(t, "inits") && text_expect(t, "(") && parse_read_operands(p, &s->operands) && text_expect(t, ")"));
  TRY(text_expect(t, "dimension") && text_expect(t, "=") && read_value(p, &dimension));
  TRY(add_attr(p, s, literal("dimension"), &dimension) && add_attr(p, s, literal("scan.inputs"), &inputs));
  if (text_take(t, "attributes")) TRY(text_dict(t, "{", "}", &more, 0) && parse_merge_attrs(p, s, &more));
  TRY(parse_read_region(p, NULL, &region) && parse_add_region(p, s, region));
  TRY(text_expect(t, ":") && parse_read_types(p, &s->operand_types));
  return text_expect(t, "->") && parse_read_types(p, &s->result_types);
}

bool parse_read_pretty(parser *p, statement *s) {
  text_slice operation = short_name(s->name);
  bool stablehlo = s->name.length > 10 && memcmp(s->name.data, "stablehlo.", 10) == 0;
  if (stablehlo && text_is(operation, "reduce")) return read_reduce(p, s);
  if (stablehlo && text_is(operation, "while")) return read_while(p, s);
  if (text_is(s->name, "chlo.scan")) return read_scan(p, s);
  return read_plain(p, s, operation);
}
