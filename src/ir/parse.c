/* The reader of modules: generic MLIR text to an ir_func. It takes what print.c writes and what other tools print in
 * generic form: both spellings of functions, properties in <{...}>, locations, aliases.
 *
 * Functions are found first, by skipping over their bodies. @main is then read into the result; a call reads the
 * callee's text again, in place, with its parameters bound to the call's operands. A stablehlo.composite of ours
 * becomes the operation it names, any other its decomposition. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ir/parse_int.h"

#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)

#define FAIL(...) return text_fail(&p->text, TTPU_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(...) return text_fail(&p->text, TTPU_UNIMPLEMENTED, __VA_ARGS__)

static bool no_memory(parser *p) { return text_no_memory(&p->text); }

static void *take(parser *p, size_t bytes) { return text_room(&p->text, bytes); }

/* The builder's failure, told with the position. */
bool parse_check_builder(parser *p) {
  return p->b.status == TTPU_OK || text_fail(&p->text, p->b.status, "%s", p->b.message);
}

/* ---- names ---------------------------------------------------------------------------------- */

static uint32_t bucket_of(text_slice name) { return (uint32_t)(base_hash(0, name.data, name.length) % BUCKETS); }

static bool bind(parser *p, text_slice name, ir_value first, const ir_value *list, uint32_t count) {
  if (!BASE_GROW(p->bindings, p->binding_count, p->binding_capacity)) return no_memory(p);
  uint32_t bucket = bucket_of(name);
  p->bindings[p->binding_count] = (binding){name, first, list, count, p->frame, p->buckets[bucket]};
  p->buckets[bucket] = (int32_t)p->binding_count++;
  return true;
}

static void unbind_to(parser *p, uint32_t count) {
  while (p->binding_count > count) {
    binding *b = &p->bindings[--p->binding_count];
    p->buckets[bucket_of(b->name)] = b->next;
  }
}

static bool value_name(parser *p, text_slice *out) { return text_expect(&p->text, "%") && text_word(&p->text, out); }

/* %name or %name#2. */
static bool read_value(parser *p, ir_value *out) {
  text_slice name;
  TRY(value_name(p, &name));
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
  void *memory = take(p, more * size);
  if (!memory) return false;
  if (count) memcpy(memory, *data, count * size);
  *data = memory;
  *capacity = more;
  return true;
}

static bool read_operands(parser *p, values *out) {
  if (!text_peek(&p->text, "%")) return text_ok(&p->text);
  do {
    TRY(parse_push(p, (void **)&out->data, out->count, &out->capacity, sizeof *out->data));
    TRY(read_value(p, &out->data[out->count++]));
  } while (text_take(&p->text, ","));
  return true;
}

static bool read_type(parser *p, types *out) {
  TRY(parse_push(p, (void **)&out->data, out->count, &out->capacity, sizeof *out->data));
  return text_type(&p->text, &out->data[out->count++]);
}

/* A type, or types in parentheses, perhaps with attributes. */
static bool read_types(parser *p, types *out) {
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

/* ---- operations ----------------------------------------------------------------------------- */

static bool read_block(parser *p, values *returned, bool *done);
static bool inline_function(parser *p, text_slice name, const values *operands, values *returned);

static bool read_region(parser *p, ir_region **out) {
  text_reader *t = &p->text;
  uint32_t mark = p->binding_count;
  types arg_types = {0};
  text_slice *names = NULL, label;
  uint32_t name_capacity = 0;
  if (++p->depth > DEEPEST) FAIL("regions nested more than %d deep", DEEPEST);
  TRY(text_expect(t, "{"));
  if (text_take(t, "^")) {
    TRY(text_word(t, &label));
    if (text_take(t, "(") && !text_take(t, ")")) {
      do {
        TRY(parse_push(p, (void **)&names, arg_types.count, &name_capacity, sizeof *names));
        TRY(value_name(p, &names[arg_types.count]));
        TRY(text_expect(t, ":"));
        TRY(read_type(p, &arg_types));
        TRY(text_skip_location(t));
      } while (text_take(t, ","));
      TRY(text_expect(t, ")"));
    }
    TRY(text_expect(t, ":"));
  }
  ir_region *outer;
  *out = ir_region_begin(&p->b, arg_types.count, arg_types.data, &outer);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < arg_types.count; ++i) TRY(bind(p, names[i], (*out)->first_arg + i, NULL, 1));
  values returned = {0};
  bool done = false;
  TRY(read_block(p, &returned, &done));
  if (!done) FAIL("a region does not end with a return");
  ir_region_end(&p->b, outer, returned.count, returned.data);
  TRY(parse_check_builder(p));
  TRY(text_expect(t, "}"));
  unbind_to(p, mark);
  --p->depth;
  return true;
}

/* Everything behind the name: operands, attributes, regions, types. */
static bool read_parts(parser *p, statement *s) {
  text_reader *t = &p->text;
  TRY(text_expect(t, "("));
  TRY(read_operands(p, &s->operands));
  TRY(text_expect(t, ")"));
  s->attrs.kind = NODE_DICT;
  if (text_peek(t, "<{")) TRY(text_dict(t, "<{", "}>", &s->attrs, 0));
  if (text_take(t, "(")) {
    do {
      TRY(parse_push(p, (void **)&s->regions, s->region_count, &s->region_capacity, sizeof *s->regions));
      TRY(read_region(p, &s->regions[s->region_count]));
      ++s->region_count;
    } while (text_take(t, ","));
    TRY(text_expect(t, ")"));
  }
  if (text_peek(t, "{")) {
    /* attributes of both places, looked up as one; the properties come first */
    node more = {0};
    TRY(text_dict(t, "{", "}", &more, 0));
    entry *both = take(p, (s->attrs.count + more.count) * sizeof *both);
    if (!both) return false;
    if (s->attrs.count) memcpy(both, s->attrs.entries, s->attrs.count * sizeof *both);
    if (more.count) memcpy(both + s->attrs.count, more.entries, more.count * sizeof *both);
    s->attrs.entries = both;
    s->attrs.count += more.count;
  }
  TRY(text_expect(t, ":"));
  if (!text_peek(t, "(")) FAIL("expected the operands' types in parentheses");
  TRY(read_types(p, &s->operand_types));
  TRY(text_expect(t, "->"));
  TRY(read_types(p, &s->result_types));
  return text_skip_location(t);
}

static bool check_operand_types(parser *p, const statement *s) {
  if (p->bytecode) return true; /* which writes no operand's type */
  if (s->operand_types.count != s->operands.count)
    FAIL("%u operands, but %u types", s->operands.count, s->operand_types.count);
  for (uint32_t i = 0; i < s->operands.count; ++i) {
    ir_type is = ir_type_of(p->b.func, s->operands.data[i]);
    if (!ir_type_equal(is, s->operand_types.data[i]))
      FAIL("operand %u is %s, but its type is written as %s", i, IR_SHOW(is), IR_SHOW(s->operand_types.data[i]));
  }
  return true;
}

/* TOTALORDER on floats: as integers, with the negative ones turned round. */
static ir_value total_order_key(parser *p, ir_value x) {
  ir_builder *b = &p->b;
  if (b->status) return 0;
  ir_type type = ir_type_of(b->func, x);
  if (!base_dtype_is_float((ttpu_dtype)type.dtype)) return x;
  static const ttpu_dtype integers[] = {[1] = TTPU_I8, [2] = TTPU_I16, [4] = TTPU_I32, [8] = TTPU_I64};
  size_t bytes = base_dtype_bytes((ttpu_dtype)type.dtype);
  ttpu_dtype integer = integers[bytes];
  ir_value bits = ir_bitcast_convert(b, x, integer);
  ir_value high = ir_fill_i64(b, integer, type.rank, type.dims, (int64_t)(UINT64_MAX >> (65 - 8 * bytes)));
  ir_value negative = ir_compare(b, IR_LT, bits, ir_fill_i64(b, integer, type.rank, type.dims, 0));
  return ir_select(b, negative, ir_xor_bits(b, bits, high), bits);
}

/* A constant's elements are as many, and as large, as its result's. */
static bool check_elements(parser *p, const statement *s, const node *value) {
  if (s->result_types.count != 1) FAIL("expected one result");
  if (!value || ir_type_equal(value->type, s->result_types.data[0])) return true;
  FAIL("the value is %s, the result %s", IR_SHOW(value->type), IR_SHOW(s->result_types.data[0]));
}

static bool append(parser *p, statement *s, ir_kind kind, const node *attrs) {
  const void *values = NULL;
  if (ir_ops[kind].attrs) TRY(text_attrs(&p->text, kind, attrs, &values));
  if (kind == IR_CONSTANT) TRY(check_elements(p, s, node_find(attrs, "value")));
  if (kind == IR_SORT && s->operands.count) {
    ir_sort_attrs *a = (ir_sort_attrs *)values;
    if (a->dimension < 0) a->dimension += ir_type_of(p->b.func, s->operands.data[0]).rank;
  }
  if (kind == IR_COMPARE && s->operands.count == 2) {
    const node *type = node_find(attrs, "compare_type");
    if (type && type->kind == NODE_ENUM && text_is(type->value, "TOTALORDER"))
      for (uint32_t i = 0; i < 2; ++i) s->operands.data[i] = total_order_key(p, s->operands.data[i]);
  }
  s->first = ir_append(&p->b, kind, s->operands.count, s->operands.data, values, s->result_types.count,
                       s->result_types.data, s->region_count, s->regions);
  return parse_check_builder(p);
}

/* ---- calls and composites ------------------------------------------------------------------- */

/* Our composite of that name, "ttpu.erf"; else IR_NO_OP. */
static ir_kind composite_kind(text_slice name, const char *dialect) {
  size_t prefix = strlen(dialect);
  if (name.length <= prefix || memcmp(name.data, dialect, prefix)) return IR_NO_OP;
  ir_kind kind = ir_kind_from_name(name.data + prefix, name.length - prefix);
  return ir_ops[kind].flags & IR_COMPOSITE ? kind : IR_NO_OP;
}

/* A plain call to "ttpu.erf.3", as passes make that replace composites by calls: the operation again, where nothing but
 * the name is needed to say which. */
static ir_kind called_composite(text_slice name) {
  while (name.length && isdigit((unsigned char)name.data[name.length - 1])) --name.length;
  if (name.length && name.data[name.length - 1] == '.') --name.length;
  ir_kind kind = composite_kind(name, "ttpu.");
  return ir_ops[kind].attrs == IR_ATTRS_none ? kind : IR_NO_OP;
}

static bool append_call(parser *p, statement *s, const node *callee) {
  if (!callee || callee->kind != NODE_SYMBOL) FAIL("no function to call");
  ir_kind ours = called_composite(callee->value);
  if (ours != IR_NO_OP) return append(p, s, ours, &s->attrs);
  values returned = {0};
  TRY(inline_function(p, callee->value, &s->operands, &returned));
  if (returned.count != s->result_types.count)
    FAIL("the function returns %u values, expected %u", returned.count, s->result_types.count);
  for (uint32_t i = 0; i < returned.count; ++i)
    if (!ir_type_equal(ir_type_of(p->b.func, returned.data[i]), s->result_types.data[i]))
      FAIL("result %u is %s, but its type is written as %s", i, IR_SHOW(ir_type_of(p->b.func, returned.data[i])),
           IR_SHOW(s->result_types.data[i]));
  s->all = returned.data;
  return true;
}

static bool append_composite(parser *p, statement *s) {
  const node *name = node_find(&s->attrs, "name"), *attributes = node_find(&s->attrs, "composite_attributes");
  static const node none = {.kind = NODE_DICT};
  ir_kind kind = name && name->kind == NODE_STRING ? composite_kind(name->value, "ttpu.") : IR_NO_OP;
  if (kind != IR_NO_OP) return append(p, s, kind, attributes ? attributes : &none);
  return append_call(p, s, node_find(&s->attrs, "decomposition"));
}

/* CHLO's operations mean what ours of the same name do; its top_k gives 32-bit indices. XLA's tools write the same as
 * custom calls to "mhlo.<name>", with attributes in a dictionary of their own. */
static bool append_chlo(parser *p, statement *s, ir_kind kind, const node *attrs) {
  if (kind != IR_TOP_K) return append(p, s, kind, attrs);
  const node *k = node_find(attrs, "k"), *largest = node_find(attrs, "largest");
  if (!k || k->kind != NODE_INT || s->operands.count != 1 || s->result_types.count != 2)
    FAIL("expected one operand, k and two results");
  const ir_top_k_attrs top = {k->i, !largest || largest->kind != NODE_BOOL || largest->i, true};
  ir_value both = ir_append(&p->b, IR_TOP_K, 1, s->operands.data, &top, 0, NULL, 0, NULL);
  s->all = take(p, 2 * sizeof *s->all);
  if (!s->all) return false;
  s->all[0] = both;
  s->all[1] = both ? ir_convert(&p->b, both + 1, TTPU_I32) : 0;
  return parse_check_builder(p);
}

/* Which of ours a custom call to "mhlo.<name>" means. */
static ir_kind mhlo_kind(const statement *s) {
  const node *target = node_find(&s->attrs, "call_target_name");
  if (!target || target->kind != NODE_STRING) return IR_NO_OP;
  return text_is(target->value, "mhlo.topk") ? IR_TOP_K : composite_kind(target->value, "mhlo.");
}

/* The same value: a wish where it should lie, about which the plugin decides for itself, or a cast between the types of
 * VHLO and those of another dialect, which are read alike. */
static bool is_the_same(const statement *s) {
  if (text_is(s->name, "builtin.unrealized_conversion_cast")) return true;
  if (s->operands.count != 1) return false;
  if (text_is(s->name, "sdy.sharding_constraint") || text_is(s->name, "sdy.reshard")) return true;
  const node *target = node_find(&s->attrs, "call_target_name");
  return text_is(s->name, "stablehlo.custom_call") && target && target->kind == NODE_STRING &&
         text_is(target->value, "Sharding");
}

bool parse_append(parser *p, statement *s) {
  static const char dialect[] = "stablehlo.";
  size_t prefix = sizeof dialect - 1;
  ir_kind kind = IR_NO_OP;
  TRY(check_operand_types(p, s));
  if (text_is(s->name, "stablehlo.composite")) return append_composite(p, s);
  if (text_is(s->name, "func.call")) return append_call(p, s, node_find(&s->attrs, "callee"));
  if ((kind = composite_kind(s->name, "chlo.")) != IR_NO_OP && kind != IR_SCAN)
    return append_chlo(p, s, kind, &s->attrs);
  if (text_is(s->name, "stablehlo.custom_call") && (kind = mhlo_kind(s)) != IR_NO_OP) {
    const node *attrs = node_find(&s->attrs, "mhlo.attributes");
    return append_chlo(p, s, kind, attrs ? attrs : &s->attrs);
  }
  if (text_is(s->name, "chlo.tan")) return append(p, s, IR_TAN, &s->attrs);
  if (text_is(s->name, "sdy.manual_computation")) return append(p, s, IR_MANUAL_COMPUTATION, &s->attrs);
  if (is_the_same(s) && s->operands.count == s->result_types.count) {
    s->all = s->operands.data;
    return true;
  }
  if (s->name.length > prefix && memcmp(s->name.data, dialect, prefix) == 0)
    kind = ir_kind_from_name(s->name.data + prefix, s->name.length - prefix);
  if (kind == IR_NO_OP || (ir_ops[kind].flags & IR_COMPOSITE)) UNSUPPORTED("this operation is not supported");
  return append(p, s, kind, &s->attrs);
}

/* ---- statements ----------------------------------------------------------------------------- */

static bool read_result_names(parser *p, statement *s) {
  text_reader *t = &p->text;
  if (!text_peek(t, "%")) return text_ok(t);
  do {
    if (s->result_names == 16) FAIL("more than 16 names for one operation's results");
    TRY(value_name(p, &s->results[s->result_names]));
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
    TRY(bind(p, s->results[i], s->first + (ir_value)at, s->all ? s->all + at : NULL, s->counts[i]));
    at += s->counts[i];
  }
  return true;
}

/* return %a, %b : types (the pretty form, which even generic printers of functions may use) */
static bool read_pretty_return(parser *p, values *returned) {
  types ignored = {0};
  TRY(read_operands(p, returned));
  if (returned->count) {
    TRY(text_expect(&p->text, ":"));
    do TRY(read_type(p, &ignored));
    while (text_take(&p->text, ","));
  }
  return text_skip_location(&p->text);
}

static bool read_statement(parser *p, values *returned, bool *done) {
  text_reader *t = &p->text;
  statement *s = take(p, sizeof *s);
  if (!s) return false;
  TRY(read_result_names(p, s));
  text_space(t);
  bool quoted = t->at < t->end && *t->at == '"';
  TRY(quoted ? text_string(t, &s->name) : text_word(t, &s->name));
  t->operation = s->name;
  bool is_return = text_is(s->name, "func.return") || text_is(s->name, "stablehlo.return") ||
                   text_is(s->name, "return") || text_is(s->name, "sdy.return");
  if (is_return) *done = true;
  if (!quoted && is_return) return read_pretty_return(p, returned);
  if (!quoted && (text_is(s->name, "func.call") || text_is(s->name, "call"))) {
    node *callee = take(p, sizeof *callee);
    if (!callee) return false;
    TRY(text_attribute(t, callee, 0));
    TRY(read_parts(p, s));
    TRY(check_operand_types(p, s));
    TRY(append_call(p, s, callee));
    return bind_results(p, s);
  }
  if (!quoted) UNSUPPORTED("only the generic form of operations is read: \"dialect.name\"(...)");
  TRY(read_parts(p, s));
  t->operation = s->name; /* a region's operations have overwritten it */
  if (p->b.func->value_count > MOST_VALUES) UNSUPPORTED("more than %d values", MOST_VALUES);
  if (is_return) {
    *returned = s->operands;
    return check_operand_types(p, s);
  }
  TRY(parse_append(p, s));
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
      TRY(value_name(p, &(*names)[parameters->count]));
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
  if (text_take(t, "->")) TRY(read_types(p, &ignored));
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
static bool inline_function(parser *p, text_slice name, const values *operands, values *returned) {
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
    if (!ir_type_equal(parameters.data[i], ir_type_of(p->b.func, operands->data[i])))
      FAIL("@%.*s takes %s, not %s", (int)name.length, name.data, IR_SHOW(parameters.data[i]),
           IR_SHOW(ir_type_of(p->b.func, operands->data[i])));
    TRY(bind(p, names[i], operands->data[i], NULL, 1));
  }
  TRY(read_block(p, returned, &done));
  if (!done) FAIL("@%.*s has no return", (int)name.length, name.data);
  unbind_to(p, mark);
  f->open = false;
  p->frame = frame;
  t->at = back;
  t->operation = operation;
  --p->depth;
  return true;
}

static bool read_main(parser *p, function *f) {
  text_slice *names = NULL;
  types parameters = {0};
  bool *donate = NULL, any = false, done = false;
  values returned = {0};
  f->open = true;
  TRY(read_parameters(p, f, &names, &parameters, &donate));
  for (uint32_t i = 0; i < parameters.count; ++i) {
    ir_value v = ir_param(&p->b, parameters.data[i]);
    TRY(parse_check_builder(p));
    TRY(bind(p, names[i], v, NULL, 1));
    any |= donate[i];
  }
  if (any) {
    p->b.func->donate = base_arena_dup(p->b.func->arena, donate, parameters.count * sizeof *donate);
    if (!p->b.func->donate) return no_memory(p);
  }
  TRY(read_block(p, &returned, &done));
  if (!done) FAIL("the function has no return");
  ir_return(&p->b, returned.count, returned.data);
  TRY(parse_check_builder(p));
  return text_expect(&p->text, "}");
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
  types ignored = {0};
  if (text_take(t, "private")) f.private = true;
  else if (!text_take(t, "public")) text_take(t, "nested");
  TRY(text_symbol(t, &f.name));
  text_space(t);
  f.at = t->at;
  if (t->at >= t->end || *t->at != '(') FAIL("expected '(' after the function's name");
  TRY(text_skip_balanced(t));
  if (text_take(t, "->")) {
    if (text_peek(t, "(")) TRY(text_skip_balanced(t));
    else TRY(read_type(p, &ignored));
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
  TRY(read_types(p, &ignored));
  TRY(text_expect(t, "->"));
  TRY(read_types(p, &ignored));
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

/* Everything at the top: functions are noted, the rest is gone over. */
static bool find_functions(parser *p) {
  text_reader *t = &p->text;
  int open = 0;
  bool generic = false;
  node skipped = {0};
  types ignored = {0};
  text_slice name;
  for (;;) {
    text_space(t);
    if (!text_ok(t)) return false;
    if (t->at >= t->end) break;
    if (text_peek(t, "#")) {
      TRY(read_alias(p));
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
      TRY(read_types(p, &ignored));
      TRY(text_expect(t, "->"));
      TRY(read_types(p, &ignored));
    } else {
      FAIL("expected a module or a function");
    }
  }
  if (open) FAIL("the module is not closed");
  return true;
}

/* @main, or the first function that others may call. */
static bool begin_main(parser *p, function **out) {
  function *f = parse_find_function(p, (text_slice){"main", 4});
  for (uint32_t i = 0; !f && i < p->function_count; ++i)
    if (!p->functions[i].private) f = &p->functions[i];
  if (!f) FAIL("there is no function");
  char *name = take(p, f->name.length + 1);
  if (!name) return false;
  memcpy(name, f->name.data, f->name.length);
  ir_func *func = ir_func_new(p->b.func->arena, name);
  if (!func) return no_memory(p);
  p->b = ir_builder_on(func);
  *out = f;
  return true;
}

static bool read_module(parser *p) {
  function *f;
  if (bytecode_begins(p->text.start, (size_t)(p->text.end - p->text.start)))
    return bytecode_open(p) && begin_main(p, &f) && bytecode_read_main(p, f) && set_shardings(p, f);
  TRY(find_functions(p));
  TRY(begin_main(p, &f));
  return read_main(p, f) && set_shardings(p, f);
}

ttpu_status ir_parse(base_arena *arena, const char *text, size_t length, ir_func **out) {
  base_arena scratch;
  *out = NULL;
  base_arena_init(&scratch);
  ir_func placeholder = {.arena = arena};
  parser *p = base_calloc(1, sizeof *p);
  if (!p) return base_no_memory(sizeof *p);
  p->text = (text_reader){.start = text, .at = text, .end = text + length, .scratch = &scratch};
  p->b.func = &placeholder;
  p->arena = arena;
  for (uint32_t i = 0; i < BUCKETS; ++i) p->buckets[i] = -1;
  ttpu_status status = read_module(p) ? TTPU_OK : p->text.status;
  if (status == TTPU_OK) status = ir_func_verify(p->b.func);
  if (status == TTPU_OK) *out = p->b.func;
  bytecode_close(p);
  base_free(p->functions);
  base_free(p->bindings);
  base_free(p->meshes);
  base_free(p->text.aliases);
  base_free(p);
  base_arena_free(&scratch);
  return status;
}
