/* The reader of modules: MLIR text to an ir_func. It takes what print.c writes and what other tools print, operations in
 * generic form here and in StableHLO's own form in parse_pretty.c: both spellings of functions, properties in <{...}>,
 * locations, aliases.
 *
 * Functions are found first, by skipping over their bodies. @main is then read into the result; a call reads the
 * callee's text again, in place, with its parameters bound to the call's operands. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ir/parse_op.h"

static bool no_memory(parser *p) { return text_no_memory(&p->text); }

void *parse_room(parser *p, size_t bytes) { return text_room(&p->text, bytes); }

bool parse_check_builder(parser *p) {
  return p->b.status == TTPU_OK || text_fail(&p->text, p->b.status, "%s", p->b.message);
}

/* ---- names ---------------------------------------------------------------------------------- */

static uint32_t bucket_of(text_slice name) { return (uint32_t)(base_hash(0, name.data, name.length) % BUCKETS); }

bool parse_bind(parser *p, text_slice name, ir_value first, const ir_value *list, uint32_t count) {
  if (!BASE_GROW(p->bindings, p->binding_count, p->binding_capacity)) return no_memory(p);
  uint32_t bucket = bucket_of(name);
  p->bindings[p->binding_count] = (binding){name, first, list, count, p->frame, p->buckets[bucket]};
  p->buckets[bucket] = (int32_t)p->binding_count++;
  return true;
}

void parse_unbind_to(parser *p, uint32_t count) {
  while (p->binding_count > count) {
    binding *b = &p->bindings[--p->binding_count];
    p->buckets[bucket_of(b->name)] = b->next;
  }
}

bool parse_value_name(parser *p, text_slice *out) { return text_expect(&p->text, "%") && text_word(&p->text, out); }

/* %name or %name#2. */
bool parse_read_value(parser *p, ir_value *out) {
  text_slice name;
  TRY(parse_value_name(p, &name));
  int64_t number = 0;
  if (text_take(&p->text, "#")) TRY(text_integer(&p->text, &number));
  for (int32_t i = p->buckets[bucket_of(name)]; i >= 0; i = p->bindings[i].next) {
    const binding *b = &p->bindings[i];
    if (b->frame != p->frame || b->name.length != name.length || memcmp(b->name.data, name.data, name.length)) continue;
    if (number < 0 || number >= b->count) FAIL("%%%.*s has %u results", (int)name.length, name.data, b->count);
    *out = b->list ? b->list[number] : b->first + (ir_value)number;
    return true;
  }
  FAIL("%%%.*s is not defined here", (int)(name.length > 60 ? 60 : name.length), name.data);
}

bool parse_push(parser *p, void **data, uint32_t count, uint32_t *capacity, size_t size) {
  if (count < *capacity) return true;
  uint32_t more = *capacity ? 2 * *capacity : 8;
  void *memory = parse_room(p, more * size);
  if (!memory) return false;
  if (count) memcpy(memory, *data, count * size);
  *data = memory;
  *capacity = more;
  return true;
}

bool parse_push_value(parser *p, values *list, ir_value v) {
  TRY(parse_push(p, (void **)&list->data, list->count, &list->capacity, sizeof *list->data));
  list->data[list->count++] = v;
  return true;
}

bool parse_push_type(parser *p, types *list, text_type type) {
  TRY(parse_push(p, (void **)&list->data, list->count, &list->capacity, sizeof *list->data));
  list->data[list->count++] = type;
  return true;
}

bool parse_read_operands(parser *p, values *out) {
  if (!text_peek(&p->text, "%")) return text_ok(&p->text);
  do {
    ir_value v;
    TRY(parse_read_value(p, &v));
    TRY(parse_push_value(p, out, v));
  } while (text_take(&p->text, ","));
  return true;
}

static bool read_type(parser *p, types *out) {
  text_type type;
  return text_read_type(&p->text, &type, 0) && parse_push_type(p, out, type);
}

bool parse_read_type_list(parser *p, types *out) {
  do TRY(read_type(p, out));
  while (text_take(&p->text, ","));
  return true;
}

/* A type, or types in parentheses, perhaps with attributes. */
bool parse_read_types(parser *p, types *out) {
  text_reader *t = &p->text;
  if (!text_take(t, "(")) return read_type(p, out);
  if (text_take(t, ")")) return true;
  do {
    node ignored = {0};
    TRY(read_type(p, out));
    if (text_peek(t, "{")) TRY(text_dict(t, "{", "}", &ignored, 0));
  } while (text_take(t, ","));
  return text_expect(t, ")");
}

/* ---- written types and values --------------------------------------------------------------- */

const char *parse_show(parser *p, const text_type *type) {
  if (type->tuple) return "a tuple";
  char *text = parse_room(p, IR_TYPE_TEXT);
  if (!text) return "a tensor";
  size_t at = (size_t)snprintf(text, IR_TYPE_TEXT, "tensor<%s", type->unranked ? "*x" : "");
  for (uint32_t i = 0; i < type->type.rank && at < IR_TYPE_TEXT; ++i) {
    if (type->type.dims[i] == TEXT_ANY) at += (size_t)snprintf(text + at, IR_TYPE_TEXT - at, "?x");
    else at += (size_t)snprintf(text + at, IR_TYPE_TEXT - at, "%lldx", (long long)type->type.dims[i]);
  }
  if (at < IR_TYPE_TEXT) snprintf(text + at, IR_TYPE_TEXT - at, "%s>", base_dtypes[type->type.dtype].hlo_name);
  return text;
}

bool parse_resolve(parser *p, const text_type *written, ir_type like, ir_type *out) {
  if (written->tuple) return false;
  *out = written->type;
  if (written->unranked) {
    out->rank = like.rank, out->dims = like.dims;
    return true;
  }
  if (!written->dynamic) return true;
  if (like.rank != written->type.rank) return false;
  int64_t *dims = parse_room(p, like.rank * sizeof *dims);
  if (!dims) return false;
  for (uint32_t i = 0; i < like.rank; ++i)
    dims[i] = written->type.dims[i] == TEXT_ANY ? like.dims[i] : written->type.dims[i];
  out->dims = dims;
  return true;
}

bool parse_value_matches(parser *p, ir_value v, const text_type *type) {
  if (!(v & TUPLE_VALUE)) {
    ir_type is = ir_type_of(p->b.func, v), want;
    return parse_resolve(p, type, is, &want) && ir_type_equal(is, want);
  }
  const values *tuple = &p->tuples[v & ~(uint32_t)TUPLE_VALUE];
  if (!type->tuple || type->count != tuple->count) return false;
  for (uint32_t i = 0; i < tuple->count; ++i)
    if (!parse_value_matches(p, tuple->data[i], &type->elements[i])) return false;
  return true;
}

static const char *show_value(parser *p, ir_value v) {
  if (v & TUPLE_VALUE) return "a tuple";
  text_type type = {.type = ir_type_of(p->b.func, v)};
  return parse_show(p, &type);
}

/* ---- operations ----------------------------------------------------------------------------- */

static bool read_block(parser *p, values *returned, bool *done);

/* ^bb0(%a: type, %b: type): or nothing. */
static bool read_block_head(parser *p, types *arguments, text_slice **names) {
  text_reader *t = &p->text;
  uint32_t capacity = 0;
  text_slice label;
  if (!text_take(t, "^")) return text_ok(t);
  TRY(text_word(t, &label));
  if (text_take(t, "(") && !text_take(t, ")")) {
    do {
      TRY(parse_push(p, (void **)names, arguments->count, &capacity, sizeof **names));
      TRY(parse_value_name(p, &(*names)[arguments->count]));
      TRY(text_expect(t, ":"));
      TRY(read_type(p, arguments));
      TRY(text_skip_location(t));
    } while (text_take(t, ","));
    TRY(text_expect(t, ")"));
  }
  return text_expect(t, ":");
}

bool parse_argument_types(parser *p, const values *like, const types *arguments, ir_type **out) {
  ir_type *types = *out = parse_room(p, arguments->count * sizeof *types);
  if (!types) return false;
  for (uint32_t i = 0; i < arguments->count; ++i) {
    const text_type *written = &arguments->data[i];
    bool known = !written->dynamic && !written->unranked && !written->tuple;
    ir_value operand = !known && like && like->count == arguments->count ? like->data[i] : 0;
    types[i] = written->type;
    if (known) continue;
    if (operand == 0 || operand & TUPLE_VALUE || !parse_resolve(p, written, ir_type_of(p->b.func, operand), &types[i]))
      UNSUPPORTED("argument %u of the region is %s: its sizes are not known", i, parse_show(p, written));
  }
  return true;
}

/* The rest of a region, from behind its arguments. */
static bool read_region_rest(parser *p, const values *like, const types *arguments, const text_slice *names,
                             ir_region **out) {
  uint32_t mark = p->binding_count;
  ir_type *types;
  TRY(parse_argument_types(p, like, arguments, &types));
  ir_region *outer;
  *out = ir_region_begin(&p->b, arguments->count, types, &outer);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < arguments->count; ++i) {
    TRY(parse_bind(p, names[i], (*out)->first_arg + i, NULL, 1));
    TRY(parse_set_quantization(p, (*out)->first_arg + i, arguments->data[i].quantized));
  }
  values returned = {0};
  bool done = false;
  TRY(read_block(p, &returned, &done));
  if (!done) FAIL("a region does not end with a return");
  for (uint32_t i = 0; i < returned.count; ++i)
    if (returned.data[i] & TUPLE_VALUE) UNSUPPORTED("a region that returns a tuple");
  ir_region_end(&p->b, outer, returned.count, returned.data);
  TRY(parse_check_builder(p));
  TRY(text_expect(&p->text, "}"));
  parse_unbind_to(p, mark);
  return true;
}

bool parse_read_region(parser *p, const values *like, ir_region **out) {
  types arguments = {0};
  text_slice *names = NULL;
  if (++p->depth > DEEPEST) FAIL("regions nested more than %d deep", DEEPEST);
  TRY(text_expect(&p->text, "{"));
  TRY(read_block_head(p, &arguments, &names));
  TRY(read_region_rest(p, like, &arguments, names, out));
  --p->depth;
  return true;
}

bool parse_read_region_body(parser *p, const types *arguments, const text_slice *names, ir_region **out) {
  if (++p->depth > DEEPEST) FAIL("regions nested more than %d deep", DEEPEST);
  TRY(text_expect(&p->text, "{"));
  TRY(read_region_rest(p, NULL, arguments, names, out));
  --p->depth;
  return true;
}

bool parse_add_region(parser *p, statement *s, ir_region *region) {
  TRY(parse_push(p, (void **)&s->regions, s->region_count, &s->region_capacity, sizeof *s->regions));
  s->regions[s->region_count++] = region;
  return true;
}

bool parse_merge_attrs(parser *p, statement *s, const node *more) {
  entry *both = parse_room(p, (s->attrs.count + more->count) * sizeof *both);
  if (!both) return false;
  if (s->attrs.count) memcpy(both, s->attrs.entries, s->attrs.count * sizeof *both);
  if (more->count) memcpy(both + s->attrs.count, more->entries, more->count * sizeof *both);
  s->attrs.kind = NODE_DICT;
  s->attrs.entries = both;
  s->attrs.count += more->count;
  return true;
}

/* Everything behind the name: operands, attributes, regions, types. */
static bool read_parts(parser *p, statement *s) {
  text_reader *t = &p->text;
  TRY(text_expect(t, "("));
  TRY(parse_read_operands(p, &s->operands));
  TRY(text_expect(t, ")"));
  if (text_peek(t, "<{")) TRY(text_dict(t, "<{", "}>", &s->attrs, 0));
  s->attrs.kind = NODE_DICT;
  if (text_take(t, "(")) {
    do {
      ir_region *region;
      TRY(parse_read_region(p, &s->operands, &region));
      TRY(parse_add_region(p, s, region));
    } while (text_take(t, ","));
    TRY(text_expect(t, ")"));
  }
  if (text_peek(t, "{")) { /* attributes of both places, looked up as one; the properties come first */
    node more = {0};
    TRY(text_dict(t, "{", "}", &more, 0));
    TRY(parse_merge_attrs(p, s, &more));
  }
  TRY(text_expect(t, ":"));
  if (!text_peek(t, "(")) FAIL("expected the operands' types in parentheses");
  TRY(parse_read_types(p, &s->operand_types));
  TRY(text_expect(t, "->"));
  return parse_read_types(p, &s->result_types);
}

static bool check_operand_types(parser *p, const statement *s) {
  if (s->operand_types.count != s->operands.count)
    FAIL("%u operands, but %u types", s->operands.count, s->operand_types.count);
  for (uint32_t i = 0; i < s->operands.count; ++i)
    if (!parse_value_matches(p, s->operands.data[i], &s->operand_types.data[i]))
      FAIL("operand %u is %s, but its type is written as %s", i, show_value(p, s->operands.data[i]),
           parse_show(p, &s->operand_types.data[i]));
  return true;
}

/* ---- statements ----------------------------------------------------------------------------- */

static bool read_result_names(parser *p, statement *s) {
  text_reader *t = &p->text;
  if (!text_peek(t, "%")) return text_ok(t);
  do {
    if (s->result_names == 16) FAIL("more than 16 names for one operation's results");
    TRY(parse_value_name(p, &s->results[s->result_names]));
    int64_t count = 1;
    if (text_take(t, ":")) TRY(text_integer(t, &count));
    if (count < 1 || count > 1 << 20) FAIL("%lld results", (long long)count);
    s->counts[s->result_names++] = (uint32_t)count;
  } while (text_take(t, ","));
  return text_expect(t, "=");
}

static bool bind_results(parser *p, const statement *s) {
  uint64_t total = 0, at = 0;
  for (uint32_t i = 0; i < s->result_names; ++i) total += s->counts[i];
  if (total != s->result_types.count && s->result_names)
    FAIL("%u results, but names for %u", s->result_types.count, (unsigned)total);
  for (uint32_t i = 0; i < s->result_names; ++i) {
    TRY(parse_bind(p, s->results[i], s->first + (ir_value)at, s->all ? s->all + at : NULL, s->counts[i]));
    at += s->counts[i];
  }
  return true;
}

/* return %a, %b : types */
static bool read_pretty_return(parser *p, values *returned) {
  types ignored = {0};
  TRY(parse_read_operands(p, returned));
  if (returned->count) TRY(text_expect(&p->text, ":") && parse_read_type_list(p, &ignored));
  return text_skip_location(&p->text);
}

static bool is_return(text_slice name) {
  return text_is(name, "func.return") || text_is(name, "stablehlo.return") || text_is(name, "return") ||
         text_is(name, "sdy.return");
}

static bool read_statement(parser *p, values *returned, bool *done) {
  text_reader *t = &p->text;
  statement *s = parse_room(p, sizeof *s);
  if (!s) return false;
  TRY(read_result_names(p, s));
  text_space(t);
  bool quoted = t->at < t->end && *t->at == '"';
  TRY(quoted ? text_string(t, &s->name) : text_word(t, &s->name));
  t->operation = s->name;
  s->attrs.kind = NODE_DICT;
  *done = is_return(s->name);
  if (*done && !quoted) return read_pretty_return(p, returned);
  TRY(quoted ? read_parts(p, s) : parse_read_pretty(p, s));
  TRY(text_skip_location(t));
  t->operation = s->name; /* a region's operations have overwritten it */
  if (p->b.func->value_count > MOST_VALUES) UNSUPPORTED("more than %d values", MOST_VALUES);
  if (quoted || s->operand_types.count) TRY(check_operand_types(p, s));
  if (*done) {
    *returned = s->operands;
    return true;
  }
  TRY(parse_run(p, s));
  return bind_results(p, s);
}

/* Operations up to the return. */
static bool read_block(parser *p, values *returned, bool *done) {
  while (!*done && !text_peek(&p->text, "}")) TRY(read_statement(p, returned, done));
  return text_ok(&p->text);
}

/* ---- functions ------------------------------------------------------------------------------ */

bool parse_donates(const node *attrs) {
  const node *donor = node_find(attrs, "jax.buffer_donor");
  return node_find(attrs, "tf.aliasing_output") || (donor && donor->kind == NODE_BOOL && donor->i) ||
         (donor && donor->kind == NODE_UNIT);
}

/* The parameters, either form, up to the first operation: their names, types and whether they are donated. */
static bool read_parameters(parser *p, function *f, text_slice **names, types *parameters, bool **donate) {
  text_reader *t = &p->text;
  uint32_t name_capacity = 0, donate_capacity = 0;
  text_slice label;
  bool listed = true;
  t->at = f->at;
  if (f->generic) {
    TRY(text_expect(t, "("));
    TRY(text_expect(t, "{"));
    listed = text_take(t, "^");
    if (listed) TRY(text_word(t, &label));
    listed = listed && text_take(t, "(");
  } else {
    TRY(text_expect(t, "("));
  }
  if (listed && !text_take(t, ")")) {
    do {
      node attrs = {.kind = NODE_DICT};
      TRY(parse_push(p, (void **)names, parameters->count, &name_capacity, sizeof **names));
      TRY(parse_push(p, (void **)donate, parameters->count, &donate_capacity, sizeof **donate));
      TRY(parse_value_name(p, &(*names)[parameters->count]));
      TRY(text_expect(t, ":"));
      TRY(read_type(p, parameters));
      if (text_peek(t, "{")) TRY(text_dict(t, "{", "}", &attrs, 0));
      TRY(text_skip_location(t));
      (*donate)[parameters->count - 1] = parse_donates(&attrs);
    } while (text_take(t, ","));
    TRY(text_expect(t, ")"));
  }
  if (f->generic) {
    const node *attrs = node_find(&f->attrs, "arg_attrs");
    for (uint32_t i = 0; attrs && attrs->kind == NODE_ARRAY && i < attrs->count && i < parameters->count; ++i)
      (*donate)[i] = parse_donates(&attrs->entries[i].value);
    return text_take(t, ":") || text_ok(t);
  }
  types ignored = {0};
  node skipped = {0};
  if (text_take(t, "->")) TRY(parse_read_types(p, &ignored));
  if (text_take(t, "attributes")) TRY(text_dict(t, "{", "}", &skipped, 0));
  return text_expect(t, "{");
}

function *parse_find_function(parser *p, text_slice name) {
  for (uint32_t i = 0; i < p->function_count; ++i)
    if (p->functions[i].name.length == name.length && memcmp(p->functions[i].name.data, name.data, name.length) == 0)
      return &p->functions[i];
  return NULL;
}

/* Reads a function's body here, its parameters being these operands. */
bool parse_inline(parser *p, text_slice name, const values *operands, values *returned) {
  text_reader *t = &p->text;
  if (p->bytecode) return bytecode_call(p, name, operands, returned);
  function *f = parse_find_function(p, name);
  if (!f) FAIL("no function @%.*s", (int)(name.length > 60 ? 60 : name.length), name.data);
  if (f->open) FAIL("@%.*s calls itself", (int)(name.length > 60 ? 60 : name.length), name.data);
  if (++p->depth > DEEPEST) FAIL("calls nested more than %d deep", DEEPEST);
  if (p->frames >= MOST_CALLS) UNSUPPORTED("more than %d calls", MOST_CALLS);
  const char *back = t->at;
  uint32_t mark = p->binding_count, frame = p->frame;
  text_slice *names = NULL, operation = t->operation;
  types parameters = {0};
  bool *donate = NULL, done = false;
  f->open = true;
  TRY(read_parameters(p, f, &names, &parameters, &donate));
  if (parameters.count != operands->count)
    FAIL("@%.*s takes %u values, not %u", (int)name.length, name.data, parameters.count, operands->count);
  p->frame = ++p->frames;
  for (uint32_t i = 0; i < parameters.count; ++i) {
    if (!parse_value_matches(p, operands->data[i], &parameters.data[i]))
      FAIL("@%.*s takes %s, not %s", (int)name.length, name.data, parse_show(p, &parameters.data[i]),
           show_value(p, operands->data[i]));
    TRY(parse_bind(p, names[i], operands->data[i], NULL, 1));
  }
  TRY(read_block(p, returned, &done));
  if (!done) FAIL("@%.*s has no return", (int)name.length, name.data);
  parse_unbind_to(p, mark);
  f->open = false;
  p->frame = frame;
  t->at = back;
  t->operation = operation;
  --p->depth;
  return true;
}

bool parse_parameter(parser *p, const text_type *type, uint32_t *number, ir_value *out) {
  if (type->tuple) {
    values list = {0};
    for (uint32_t i = 0; i < type->count; ++i) {
      ir_value v;
      TRY(parse_parameter(p, &type->elements[i], number, &v));
      TRY(parse_push_value(p, &list, v));
    }
    TRY(parse_push(p, (void **)&p->tuples, p->tuple_count, &p->tuple_capacity, sizeof *p->tuples));
    p->tuples[p->tuple_count] = list;
    *out = TUPLE_VALUE | p->tuple_count++;
    return true;
  }
  const ir_parse_options *o = p->options;
  ir_type is = type->type;
  uint32_t i = (*number)++;
  if (type->dynamic || type->unranked) {
    if (i >= o->argument_count || type->type.dtype != o->arguments[i].dtype ||
        !parse_resolve(p, type, o->arguments[i], &is))
      UNSUPPORTED("argument %u is %s, with a dynamic dimension: sizes must be known", i, parse_show(p, type));
  }
  *out = ir_param(&p->b, is);
  TRY(parse_check_builder(p));
  if (i < o->argument_count && o->known && o->known[i])
    TRY(parse_set_known(p, *out, (uint32_t)ir_numel(is), o->known[i]));
  return parse_set_quantization(p, *out, type->quantized);
}

/* The values without tuples around them. */
static bool flatten(parser *p, const values *list, values *out) {
  for (uint32_t i = 0; i < list->count; ++i) {
    ir_value v = list->data[i];
    TRY(v & TUPLE_VALUE ? flatten(p, &p->tuples[v & ~(uint32_t)TUPLE_VALUE], out) : parse_push_value(p, out, v));
  }
  return true;
}

bool parse_return(parser *p, const values *returned) {
  values flat = {0};
  TRY(flatten(p, returned, &flat));
  for (uint32_t i = 0; i < p->options->check_count; ++i) {
    p->options->checks[i].actual += flat.count;
    p->options->checks[i].expected += flat.count;
  }
  for (uint32_t i = 0; i < p->options->parallel_count; ++i) p->options->parallels[i].first_operand += flat.count;
  TRY(flatten(p, &p->checked, &flat));
  ir_return(&p->b, flat.count, flat.data);
  return parse_check_builder(p);
}

static bool read_main(parser *p, function *f) {
  text_slice *names = NULL;
  types parameters = {0};
  bool *donate = NULL, any = false, done = false;
  values returned = {0}, bound = {0};
  uint32_t number = 0;
  f->open = true;
  TRY(read_parameters(p, f, &names, &parameters, &donate));
  for (uint32_t i = 0; i < parameters.count; ++i) {
    ir_value v;
    TRY(parse_parameter(p, &parameters.data[i], &number, &v));
    TRY(parse_push_value(p, &bound, v));
    any |= donate[i] && !(v & TUPLE_VALUE);
  }
  for (uint32_t i = 0; i < parameters.count; ++i) TRY(parse_bind(p, names[i], bound.data[i], NULL, 1));
  if (any && number == parameters.count) {
    p->b.func->donate = base_arena_dup(p->b.func->arena, donate, parameters.count * sizeof *donate);
    if (!p->b.func->donate) return no_memory(p);
  }
  TRY(read_block(p, &returned, &done));
  if (!done) FAIL("the function has no return");
  return parse_return(p, &returned) && text_expect(&p->text, "}");
}

/* ---- the module ----------------------------------------------------------------------------- */

bool parse_add_function(parser *p, function f) {
  if (parse_find_function(p, f.name))
    FAIL("@%.*s is defined twice", (int)(f.name.length > 60 ? 60 : f.name.length), f.name.data);
  if (!BASE_GROW(p->functions, p->function_count, p->function_capacity)) return no_memory(p);
  p->functions[p->function_count++] = f;
  return true;
}

/* func.func public @name(...) -> ... {...} */
static bool find_pretty_function(parser *p) {
  text_reader *t = &p->text;
  function f = {0};
  node skipped = {0};
  if (text_take(t, "private")) f.private = true;
  else if (!text_take(t, "public")) text_take(t, "nested");
  TRY(text_symbol(t, &f.name));
  text_space(t);
  f.at = t->at;
  if (t->at >= t->end || *t->at != '(') FAIL("expected '(' after the function's name");
  TRY(text_skip_balanced(t));
  if (text_take(t, "->")) { /* of any type: it is read when the function is */
    node result = {0};
    if (text_peek(t, "(")) TRY(text_skip_balanced(t));
    else TRY(text_attribute(t, &result, 0));
  }
  if (text_take(t, "attributes")) TRY(text_dict(t, "{", "}", &skipped, 0));
  if (!text_peek(t, "{")) return text_skip_location(t); /* a declaration */
  TRY(text_skip_balanced(t));
  TRY(text_skip_location(t));
  return parse_add_function(p, f);
}

static const char *keep_text(parser *p, text_slice s) {
  char *copy = base_arena_alloc(p->arena, s.length + 1);
  if (!copy) return no_memory(p), NULL;
  memcpy(copy, s.data, s.length);
  copy[s.length] = 0;
  return copy;
}

bool parse_add_mesh(parser *p, const node *attrs) {
  const node *name = node_find(attrs, "sym_name"), *mesh = node_find(attrs, "mesh");
  if (!name || name->kind != NODE_STRING || !mesh) FAIL("expected a mesh with sym_name");
  if (!BASE_GROW(p->meshes, p->mesh_count, p->mesh_capacity)) return no_memory(p);
  ir_mesh *m = &p->meshes[p->mesh_count++];
  *m = (ir_mesh){keep_text(p, name->value), keep_text(p, mesh->text)};
  return m->name && m->text;
}

/* The sharding among the attributes of each parameter, or result. */
static bool read_shardings(parser *p, const node *all, uint32_t count, bool *any, const char *const **out) {
  const char **list = base_arena_zalloc(p->arena, (count + 1) * sizeof *list);
  if (!list) return no_memory(p);
  for (uint32_t i = 0; all && all->kind == NODE_ARRAY && i < all->count && i < count; ++i) {
    const node *attrs = &all->entries[i].value, *sharding = node_find(attrs, "sdy.sharding");
    if (!sharding) sharding = node_find(attrs, "mhlo.sharding");
    if (!sharding) continue;
    list[i] = keep_text(p, sharding->kind == NODE_STRING ? sharding->value : sharding->text);
    if (!list[i]) return false;
    *any = true;
  }
  *out = list;
  return true;
}

/* What the main function's attributes say about several chips. */
static bool set_shardings(parser *p, const function *f) {
  const ir_region *body = &p->b.func->body;
  ir_shardings s = {.mesh_count = p->mesh_count}, *copy;
  bool any = p->mesh_count > 0;
  TRY(read_shardings(p, node_find(&f->attrs, "arg_attrs"), body->arg_count, &any, &s.parameters));
  TRY(read_shardings(p, node_find(&f->attrs, "res_attrs"), body->ops[body->count - 1]->operand_count, &any,
                     &s.results));
  if (!any) return true;
  s.meshes = base_arena_dup(p->arena, p->meshes, p->mesh_count * sizeof *p->meshes);
  copy = base_arena_dup(p->arena, &s, sizeof s);
  if ((p->mesh_count && !s.meshes) || !copy) return no_memory(p);
  p->b.func->shardings = copy;
  return true;
}

/* "func.func"() <{sym_name = "main", ...}> ({...}) {...} : () -> (), or another dialect's operation, which is ignored
 * (a mesh, say). */
static bool find_generic_function(parser *p) {
  text_reader *t = &p->text;
  function f = {.generic = true, .attrs = {.kind = NODE_DICT}};
  types ignored = {0};
  text_slice operation;
  TRY(text_string(t, &operation));
  TRY(text_expect(t, "("));
  TRY(text_expect(t, ")"));
  if (text_peek(t, "<{")) TRY(text_dict(t, "<{", "}>", &f.attrs, 0));
  text_space(t);
  f.at = t->at;
  bool body = text_peek(t, "(");
  if (body) TRY(text_skip_balanced(t));
  if (text_peek(t, "{")) {
    node more = {0};
    TRY(text_dict(t, "{", "}", &more, 0));
    if (!node_find(&f.attrs, "sym_name")) f.attrs = more; /* how it was written before properties */
  }
  TRY(text_expect(t, ":"));
  TRY(parse_read_types(p, &ignored));
  TRY(text_expect(t, "->"));
  TRY(parse_read_types(p, &ignored));
  TRY(text_skip_location(t));
  if (text_is(operation, "sdy.mesh")) return parse_add_mesh(p, &f.attrs);
  if (!text_is(operation, "func.func")) return true;
  const node *name = node_find(&f.attrs, "sym_name"), *visibility = node_find(&f.attrs, "sym_visibility");
  if (!name || name->kind != NODE_STRING) FAIL("a function has no sym_name");
  f.name = name->value;
  f.private = visibility && visibility->kind == NODE_STRING && text_is(visibility->value, "private");
  return body ? parse_add_function(p, f) : true;
}

/* #name = value */
static bool read_alias(parser *p) {
  text_reader *t = &p->text;
  entry alias = {0};
  TRY(text_expect(t, "#"));
  TRY(text_word(t, &alias.name));
  TRY(text_expect(t, "="));
  if (text_peek(t, "loc")) return text_skip_location(t);
  TRY(text_attribute(t, &alias.value, 0));
  if (!BASE_GROW(t->aliases, t->alias_count, t->alias_capacity)) return no_memory(p);
  t->aliases[t->alias_count++] = alias;
  return true;
}

/* !name = type */
static bool read_type_alias(parser *p) {
  text_reader *t = &p->text;
  type_alias alias = {0};
  TRY(text_expect(t, "!") && text_word(t, &alias.name) && text_expect(t, "="));
  TRY(text_read_type(t, &alias.type, 0));
  if (!BASE_GROW(t->types, t->type_count, t->type_capacity)) return no_memory(p);
  t->types[t->type_count++] = alias;
  return true;
}

/* {-# dialect_resources: { builtin: { name: "0x..." } } #-}: every string with a name in front is kept. */
static bool read_resources(parser *p) {
  text_reader *t = &p->text;
  text_slice name = {0};
  TRY(text_expect(t, "{-#"));
  while (!text_take(t, "#-}")) {
    if (text_take(t, "{") || text_take(t, "}") || text_take(t, ",") || text_take(t, ":")) continue;
    if (!text_peek(t, "\"")) {
      TRY(text_word(t, &name));
      continue;
    }
    entry resource = {.name = name, .value = {.kind = NODE_STRING}};
    TRY(text_string(t, &resource.value.value));
    if (text_peek(t, ":")) { /* a name in quotes */
      name = resource.value.value;
      continue;
    }
    if (!BASE_GROW(t->resources, t->resource_count, t->resource_capacity)) return no_memory(p);
    t->resources[t->resource_count++] = resource;
  }
  return text_ok(t);
}

/* Texts of attributes are kept as C strings: a zero inside of the text would cut them. One at its end does no harm. */
static bool refuse_zeros(parser *p) {
  text_reader *t = &p->text;
  while (t->end > t->start && t->end[-1] == 0) --t->end;
  const char *zero = memchr(t->start, 0, (size_t)(t->end - t->start));
  if (!zero) return true;
  t->at = zero;
  FAIL("a character 0");
}

/* Everything at the top: functions are noted, the rest is gone over. */
static bool find_functions(parser *p) {
  text_reader *t = &p->text;
  int open = 0;
  bool generic = false;
  node skipped = {0};
  types ignored = {0};
  text_slice name;
  TRY(refuse_zeros(p));
  for (;;) {
    text_space(t);
    if (!text_ok(t)) return false;
    if (t->at >= t->end) break;
    if (text_peek(t, "#")) {
      TRY(read_alias(p));
    } else if (text_peek(t, "!")) {
      TRY(read_type_alias(p));
    } else if (text_peek(t, "{-#")) {
      TRY(read_resources(p));
    } else if (text_peek(t, "loc")) {
      TRY(text_skip_location(t));
    } else if (text_take(t, "module")) {
      if (text_peek(t, "@")) TRY(text_symbol(t, &name));
      if (text_take(t, "attributes")) TRY(text_dict(t, "{", "}", &skipped, 0));
      TRY(text_expect(t, "{"));
      ++open;
    } else if (text_take(t, "\"builtin.module\"")) {
      TRY(text_expect(t, "(") && text_expect(t, ")"));
      if (text_peek(t, "<{")) TRY(text_dict(t, "<{", "}>", &skipped, 0));
      TRY(text_expect(t, "(") && text_expect(t, "{"));
      if (text_take(t, "^")) TRY(text_word(t, &name) && text_expect(t, ":"));
      ++open;
      generic = true;
    } else if (text_peek(t, "\"")) {
      TRY(find_generic_function(p));
    } else if (text_take(t, "func.func") || text_take(t, "func")) {
      TRY(find_pretty_function(p));
    } else if (open && text_take(t, "}")) {
      --open;
      if (!generic) continue;
      TRY(text_expect(t, ")"));
      if (text_peek(t, "{")) TRY(text_dict(t, "{", "}", &skipped, 0));
      TRY(text_expect(t, ":"));
      TRY(parse_read_types(p, &ignored));
      TRY(text_expect(t, "->"));
      TRY(parse_read_types(p, &ignored));
    } else {
      FAIL("expected a module or a function");
    }
  }
  if (open) FAIL("the module is not closed");
  return true;
}

static function *find_entry(parser *p) {
  if (p->options->entry) return parse_find_function(p, (text_slice){p->options->entry, strlen(p->options->entry)});
  function *f = parse_find_function(p, (text_slice){"main", 4});
  for (uint32_t i = 0; !f && i < p->function_count; ++i)
    if (!p->functions[i].private) f = &p->functions[i];
  return f;
}

/* @main, or the function that was asked for, or the first one that others may call. */
static bool begin_main(parser *p, function **out) {
  function *f = *out = find_entry(p);
  if (!f) FAIL("there is no function");
  char *name = parse_room(p, f->name.length + 1);
  if (!name) return false;
  memcpy(name, f->name.data, f->name.length);
  ir_func *func = ir_func_new(p->b.func->arena, name);
  if (!func) return no_memory(p);
  p->b = ir_builder_on(func);
  return true;
}

static bool read_module(parser *p) {
  function *f;
  if (bytecode_begins(p->text.start, (size_t)(p->text.end - p->text.start)))
    return bytecode_open(p) && begin_main(p, &f) && bytecode_read_main(p, f) && set_shardings(p, f);
  return find_functions(p) && begin_main(p, &f) && read_main(p, f) && set_shardings(p, f);
}

/* ---- the way in ----------------------------------------------------------------------------- */

static parser *parser_new(base_arena *scratch, const char *text, size_t length, ir_parse_options *options) {
  parser *p = base_calloc(1, sizeof *p);
  if (!p) return NULL;
  p->text = (text_reader){.start = text, .at = text, .end = text + length, .scratch = scratch};
  p->options = options;
  for (uint32_t i = 0; i < BUCKETS; ++i) p->buckets[i] = -1;
  return p;
}

static void parser_free(parser *p) {
  bytecode_close(p);
  base_free(p->functions);
  base_free(p->bindings);
  base_free(p->meshes);
  base_free(p->text.aliases);
  base_free(p->text.types);
  base_free(p->text.resources);
  base_free(p);
}

ttpu_status ir_parse_with(base_arena *arena, const char *text, size_t length, ir_parse_options *options,
                          ir_func **out) {
  base_arena scratch;
  *out = NULL;
  base_arena_init(&scratch);
  ir_func placeholder = {.arena = arena};
  parser *p = parser_new(&scratch, text, length, options);
  if (!p) return base_no_memory(sizeof *p);
  p->b.func = &placeholder;
  p->arena = arena;
  bool read = read_module(p);
  if (!read && text_ok(&p->text)) text_fail(&p->text, TTPU_INVALID_ARGUMENT, "something is missing or wrong here");
  ttpu_status status = p->text.status;
  if (status == TTPU_OK) status = ir_func_verify(p->b.func);
  if (status == TTPU_OK) *out = p->b.func;
  parser_free(p);
  base_arena_free(&scratch);
  return status;
}

ttpu_status ir_parse(base_arena *arena, const char *text, size_t length, ir_func **out) {
  return ir_parse_with(arena, text, length, &(ir_parse_options){0}, out);
}

/* Functions with parameters of types that are no StableHLO are passed over. */
static bool list_function(parser *p, function *f, void (*each)(void *, const ir_listed *), void *context) {
  text_slice *names = NULL;
  types parameters = {0};
  bool *donate = NULL;
  if (!read_parameters(p, f, &names, &parameters, &donate)) {
    bool other = p->text.status == TTPU_UNIMPLEMENTED;
    if (other) p->text.status = TTPU_OK;
    return other;
  }
  char *name = parse_room(p, f->name.length + 1);
  ir_type *types = parse_room(p, parameters.count * sizeof *types);
  if (!name || !types) return false;
  memcpy(name, f->name.data, f->name.length);
  for (uint32_t i = 0; i < parameters.count; ++i) types[i] = parameters.data[i].type;
  const ir_listed listed = {name, f->private, parameters.count, types};
  each(context, &listed);
  return true;
}

ttpu_status ir_parse_list(const char *text, size_t length, void (*each)(void *, const ir_listed *), void *context) {
  base_arena scratch;
  base_arena_init(&scratch);
  parser *p = parser_new(&scratch, text, length, &(ir_parse_options){0});
  if (!p) return base_no_memory(sizeof *p);
  bool ok = find_functions(p);
  for (uint32_t i = 0; ok && i < p->function_count; ++i) ok = list_function(p, &p->functions[i], each, context);
  ttpu_status status = ok ? TTPU_OK : p->text.status;
  parser_free(p);
  base_arena_free(&scratch);
  return status;
}
