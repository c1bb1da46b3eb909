/* Operations: see bytecode_int.h. A function's region is gone over when the module is opened, and read where it is
 * called, as the text reader does. */
#include <inttypes.h>
#include <string.h>

#include "ir/bytecode_int.h"

#undef FAIL /* here a message names the byte */
#undef UNSUPPORTED
#define FAIL(...) return bytecode_fail(p, c, __VA_ARGS__), false
#define UNSUPPORTED(...) return text_fail(&p->text, TTPU_UNIMPLEMENTED, __VA_ARGS__), false

/* Which parts an operation has. */
enum { HAS_ATTRIBUTES = 1, HAS_RESULTS = 2, HAS_OPERANDS = 4, HAS_SUCCESSORS = 8, HAS_REGIONS = 16 };
enum { HAS_USE_LISTS = 32, HAS_PROPERTIES = 64, MOST_REGIONS = 1 << 16 };

/* An operation up to its regions; lists are left where they are. */
typedef struct head {
  const bytecode_name *name;
  const uint8_t *at; /* where it begins */
  uint32_t attributes, properties;
  bool has_attributes, has_properties, isolated;
  uint32_t result_count, operand_count, region_count;
  cursor results, operands;
} head;

/* The values that a region defines have the numbers [next, end) of the stack. */
typedef struct scope {
  uint32_t next, end, base;
} scope;

/* ---- heads ---------------------------------------------------------------------------------- */

/* Use lists' orders say nothing about what a program computes. */
static bool skip_use_lists(parser *p, cursor *c, uint32_t values) {
  uint64_t lists = 1, count, ignored;
  bool pairs;
  if (values > 1) TRY(cursor_varint(p, c, &lists));
  for (uint64_t i = 0; i < lists; ++i) {
    if (values > 1) TRY(cursor_varint(p, c, &ignored));
    TRY(cursor_flagged(p, c, &count, &pairs));
    for (uint64_t k = 0; k < count; ++k) TRY(cursor_varint(p, c, &ignored));
  }
  return true;
}

static bool skip_list(parser *p, cursor *c, uint32_t *count, cursor *out) {
  uint64_t ignored;
  TRY(cursor_count(p, c, count));
  *out = *c;
  for (uint32_t i = 0; i < *count; ++i) TRY(cursor_varint(p, c, &ignored));
  out->end = c->at;
  return true;
}

static bool read_head(parser *p, cursor *c, head *h) {
  const bytecode *b = p->bytecode;
  uint32_t name, location, ignored;
  uint64_t regions;
  uint8_t parts;
  cursor successors;
  *h = (head){.at = c->at};
  p->text.operation = (text_slice){0};
  p->text.at = (const char *)c->at; /* where a failure is told that has no place of its own */
  TRY(cursor_index(p, c, b->name_count, "operation name", &name));
  h->name = &b->names[name];
  p->text.operation = h->name->statement;
  TRY(cursor_byte(p, c, &parts));
  TRY(cursor_index(p, c, b->attribute_count, "attribute", &location));
  h->has_attributes = parts & HAS_ATTRIBUTES;
  if (h->has_attributes) TRY(cursor_index(p, c, b->attribute_count, "attribute", &h->attributes));
  h->has_properties = parts & HAS_PROPERTIES;
  if (h->has_properties) {
    uint64_t limit = h->name->registered ? b->property_count : b->attribute_count;
    TRY(cursor_index(p, c, limit, "properties", &h->properties));
  }
  if (parts & HAS_RESULTS) TRY(skip_list(p, c, &h->result_count, &h->results));
  if (parts & HAS_OPERANDS) TRY(skip_list(p, c, &h->operand_count, &h->operands));
  if (parts & HAS_SUCCESSORS) TRY(skip_list(p, c, &ignored, &successors));
  if (parts & HAS_USE_LISTS) TRY(skip_use_lists(p, c, h->result_count));
  if (parts & HAS_REGIONS) {
    TRY(cursor_flagged(p, c, &regions, &h->isolated));
    if (regions > cursor_left(c) || regions > MOST_REGIONS) FAIL("%" PRIu64 " regions", regions);
    h->region_count = (uint32_t)regions;
  }
  if (parts & HAS_SUCCESSORS) UNSUPPORTED("jumps between blocks are not supported");
  return true;
}

/* Isolated regions lie in a section of their own from version 2 on. */
static bool enter_regions(parser *p, cursor *c, const head *h, cursor *inner) {
  uint8_t id;
  if (!h->region_count || !h->isolated || p->bytecode->version < 2) {
    *inner = *c;
    return true;
  }
  TRY(cursor_section(p, c, &id, inner));
  if (id != SECTION_IR) FAIL("the regions lie in section %u", id);
  return true;
}

static bool leave_regions(parser *p, cursor *c, const head *h, cursor *inner) {
  bool section = h->region_count && h->isolated && p->bytecode->version >= 2;
  if (!section) c->at = inner->at;
  else if (inner->at != inner->end) return bytecode_fail(p, inner, "%zu bytes behind the regions", cursor_left(inner));
  return true;
}

/* ---- regions -------------------------------------------------------------------------------- */

/* A region's one block: how many operations, and the arguments' types (arguments NULL: gone over). */
static bool read_block_head(parser *p, cursor *c, uint64_t *operations, types *arguments) {
  const bytecode *b = p->bytecode;
  bool has_arguments, has_location = true;
  uint32_t count = 0, location;
  uint64_t type;
  uint8_t use_lists = 0;
  TRY(cursor_flagged(p, c, operations, &has_arguments));
  if (!has_arguments) return true;
  TRY(cursor_count(p, c, &count));
  if (arguments) {
    arguments->data = text_room(&p->text, count * sizeof *arguments->data);
    if (!arguments->data) return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (b->version >= 4) TRY(cursor_flagged(p, c, &type, &has_location));
    else TRY(cursor_varint(p, c, &type));
    if (type >= b->type_count) FAIL("type %" PRIu64 " of %u", type, b->type_count);
    if (has_location) TRY(cursor_index(p, c, b->attribute_count, "attribute", &location));
    if (!arguments) continue;
    const text_type *read;
    TRY(bytecode_type(p, (uint32_t)type, &read));
    arguments->data[arguments->count++] = *read;
  }
  if (b->version >= 3) TRY(cursor_byte(p, c, &use_lists));
  return !use_lists || skip_use_lists(p, c, count);
}

static bool read_region_head(parser *p, cursor *c, uint32_t *values) {
  const cursor before = *c;
  uint64_t blocks, defined;
  TRY(cursor_varint(p, c, &blocks));
  if (blocks > 1) UNSUPPORTED("a region of %" PRIu64 " blocks", blocks);
  if (blocks == 0) {
    *c = before;
    FAIL("a region without a block");
  }
  TRY(cursor_varint(p, c, &defined));
  if (defined > cursor_left(c)) FAIL("%" PRIu64 " values in %zu bytes", defined, cursor_left(c));
  *values = (uint32_t)defined;
  return true;
}

static bool skip_regions(parser *p, cursor *c, const head *h);

static bool skip_region(parser *p, cursor *c) {
  uint32_t values;
  uint64_t operations;
  if (++p->depth > DEEPEST) FAIL("regions nested more than %d deep", DEEPEST);
  TRY(read_region_head(p, c, &values));
  TRY(read_block_head(p, c, &operations, NULL));
  for (uint64_t i = 0; i < operations; ++i) {
    head h;
    TRY(read_head(p, c, &h) && skip_regions(p, c, &h));
  }
  --p->depth;
  return true;
}

static bool skip_regions(parser *p, cursor *c, const head *h) {
  cursor inner;
  if (h->isolated && p->bytecode->version >= 2) return enter_regions(p, c, h, &inner);
  for (uint32_t i = 0; i < h->region_count; ++i) TRY(skip_region(p, c));
  return true;
}

static bool open_scope(parser *p, uint32_t count, scope *out) {
  bytecode *b = p->bytecode;
  uint32_t base = b->value_count;
  if (count > UINT32_MAX / 8 - base) return bytecode_fail(p, NULL, "%u values", count);
  if (count && !base_grow((void **)&b->values, &b->value_capacity, base + count, sizeof *b->values))
    return text_no_memory(&p->text);
  if (count) memset(b->values + base, 0, count * sizeof *b->values);
  b->value_count = base + count;
  *out = (scope){base, base + count, base};
  return true;
}

static void close_scope(parser *p, const scope *s) { p->bytecode->value_count = s->base; }

static bool define(parser *p, scope *s, ir_value v) {
  if (s->next == s->end) return bytecode_fail(p, NULL, "the region defines more values than it says");
  p->bytecode->values[s->next++] = v;
  return true;
}

static bool read_operations(parser *p, cursor *c, uint64_t count, scope *s, values *returned);

/* `like`: the operands, whose sizes the arguments have where their types leave them open. */
static bool read_region(parser *p, cursor *c, const values *like, ir_region **out) {
  uint32_t count;
  uint64_t operations;
  scope s;
  types arguments = {0};
  values returned = {0};
  ir_region *outer;
  ir_type *argument_types;
  if (++p->depth > DEEPEST) FAIL("regions nested more than %d deep", DEEPEST);
  TRY(read_region_head(p, c, &count));
  TRY(read_block_head(p, c, &operations, &arguments));
  TRY(open_scope(p, count, &s));
  TRY(parse_argument_types(p, like, &arguments, &argument_types));
  *out = ir_region_begin(&p->b, arguments.count, argument_types, &outer);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < arguments.count; ++i) {
    TRY(define(p, &s, (*out)->first_arg + i));
    TRY(parse_set_quantization(p, (*out)->first_arg + i, arguments.data[i].quantized));
  }
  TRY(read_operations(p, c, operations, &s, &returned));
  ir_region_end(&p->b, outer, returned.count, returned.data);
  TRY(parse_check_builder(p));
  close_scope(p, &s);
  --p->depth;
  return true;
}

/* ---- attributes of an operation ------------------------------------------------------------- */

static bool add(parser *p, node *dict, uint32_t *capacity, text_slice name, const node *value) {
  TRY(parse_push(p, (void **)&dict->entries, dict->count, capacity, sizeof *dict->entries));
  dict->entries[dict->count++] = (entry){name, *value};
  return true;
}

/* The attributes of the operations of Shardy that a program may hold beside VHLO's, in alphabetical order; NULL: unknown. */
static const char *shardy_attributes(const bytecode_name *name) {
  static const char *const known[][2] = {
      {"sdy.mesh", "mesh sym_name"},
      {"sdy.manual_computation", "in_shardings manual_axes out_shardings"},
      {"sdy.sharding_constraint", "sharding"},
      {"sdy.reshard", "sharding"},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (text_is(name->statement, known[i][0])) return known[i][1];
  return NULL;
}

static bool add_properties(parser *p, const head *h, node *dict, uint32_t *capacity) {
  if (!h->name->registered) { /* as one dictionary */
    const node *n;
    TRY(bytecode_attribute(p, h->properties, &n));
    for (uint32_t i = 0; n->kind == NODE_DICT && i < n->count; ++i)
      TRY(add(p, dict, capacity, n->entries[i].name, &n->entries[i].value));
    return true;
  }
  const char *names = h->name->vhlo ? h->name->vhlo->attributes : shardy_attributes(h->name);
  if (!names) UNSUPPORTED("this operation is not supported");
  cursor at = p->bytecode->properties[h->properties], *c = &at;
  for (const char *name = names; *name;) {
    size_t length = strcspn(name, " ");
    const node *value;
    TRY(cursor_attribute(p, c, &value) && add(p, dict, capacity, (text_slice){name, length}, value));
    name += length + (name[length] == ' ');
  }
  if (c->at != c->end) FAIL("%zu bytes behind the properties", cursor_left(c));
  return true;
}

/* What VHLO spells otherwise than StableHLO: symbols are strings, records lie flat beside the rest, an absent algorithm
 * is a type none, an absent mesh is no attribute. */
static bool from_vhlo(parser *p, node *dict, uint32_t *capacity) {
  uint32_t count = dict->count;
  const node *precision = node_find(dict, "lhs_precision_type");
  for (uint32_t i = 0; i < count; ++i) {
    entry *e = &dict->entries[i];
    bool symbol = text_is(e->name, "callee") || text_is(e->name, "decomposition");
    if (symbol && e->value.kind == NODE_STRING) e->value.kind = NODE_SYMBOL;
  }
  const node flat = {.kind = NODE_DICT, .text = {"", 0}, .entries = dict->entries, .count = count};
  static const char *const records[] = {"dot_dimension_numbers", "dimension_numbers", "scatter_dimension_numbers"};
  for (size_t i = 0; i < sizeof records / sizeof *records; ++i)
    TRY(add(p, dict, capacity, (text_slice){records[i], strlen(records[i])}, &flat));
  if (precision && !(precision->kind == NODE_OTHER && text_is(precision->text, "none")))
    TRY(add(p, dict, capacity, (text_slice){"algorithm", 9}, &flat));
  return true;
}

/* A field that is kept as text gets it where the attribute is none. */
static bool give_texts(parser *p, const head *h, node *dict) {
  if (!h->name->vhlo || strcmp(h->name->vhlo->name, "custom_call") != 0) return true;
  for (uint32_t i = 0; i < dict->count; ++i) {
    node *n = &dict->entries[i].value;
    if (text_is(dict->entries[i].name, "backend_config") && n->kind == NODE_DICT)
      TRY(bytecode_attribute_text(p, n, &n->text));
  }
  return true;
}

static bool read_attributes(parser *p, const head *h, node *dict) {
  uint32_t capacity = 0;
  *dict = (node){.kind = NODE_DICT, .text = {"", 0}};
  if (h->has_properties) TRY(add_properties(p, h, dict, &capacity));
  if (h->has_attributes) {
    const node *n;
    TRY(bytecode_attribute(p, h->attributes, &n));
    for (uint32_t i = 0; n->kind == NODE_DICT && i < n->count; ++i)
      TRY(add(p, dict, &capacity, n->entries[i].name, &n->entries[i].value));
  }
  return !h->name->vhlo || (give_texts(p, h, dict) && from_vhlo(p, dict, &capacity));
}

/* ---- operations ----------------------------------------------------------------------------- */

static bool read_operands(parser *p, const head *h, values *out) {
  const bytecode *b = p->bytecode;
  cursor at = h->operands, *c = &at;
  out->data = text_room(&p->text, h->operand_count * sizeof *out->data);
  if (!out->data) return false;
  for (uint32_t i = 0; i < h->operand_count; ++i) {
    uint32_t number;
    TRY(cursor_index(p, c, b->value_count - b->frame, "value", &number));
    ir_value v = b->values[b->frame + number];
    if (!v) FAIL("operand %u is value %u, which is not defined before", i, number);
    out->data[out->count++] = v;
  }
  return true;
}

static bool read_result_types(parser *p, const head *h, types *out) {
  cursor at = h->results, *c = &at;
  out->data = text_room(&p->text, h->result_count * sizeof *out->data);
  if (!out->data) return false;
  for (uint32_t i = 0; i < h->result_count; ++i) {
    const text_type *type;
    TRY(cursor_type(p, c, &type));
    out->data[out->count++] = *type;
  }
  return true;
}

static bool read_regions(parser *p, cursor *c, const head *h, statement *s) {
  uint32_t frame = p->bytecode->frame;
  cursor inner;
  s->regions = text_room(&p->text, h->region_count * sizeof *s->regions);
  if (!s->regions) return false;
  TRY(enter_regions(p, c, h, &inner));
  if (h->isolated) p->bytecode->frame = p->bytecode->value_count;
  for (uint32_t i = 0; i < h->region_count; ++i)
    TRY(read_region(p, &inner, &s->operands, &s->regions[s->region_count++]));
  p->bytecode->frame = frame;
  return leave_regions(p, c, h, &inner);
}

static bool is_return(const head *h) {
  text_slice name = h->name->statement;
  return text_is(name, "stablehlo.return") || text_is(name, "func.return") || text_is(name, "sdy.return");
}

static bool read_operation(parser *p, cursor *c, scope *s, values *returned, bool *done) {
  head h;
  TRY(read_head(p, c, &h));
  if (is_return(&h)) return *done = true, read_operands(p, &h, returned);
  statement *made = text_room(&p->text, sizeof *made);
  if (!made) return false;
  made->name = h.name->statement;
  if (text_is(h.name->dialect, "vhlo") && !h.name->vhlo) UNSUPPORTED("this operation is unknown");
  TRY(read_operands(p, &h, &made->operands));
  TRY(read_attributes(p, &h, &made->attrs));
  TRY(read_result_types(p, &h, &made->result_types));
  TRY(read_regions(p, c, &h, made));
  if (p->b.func->value_count > MOST_VALUES) UNSUPPORTED("more than %d values", MOST_VALUES);
  p->text.at = (const char *)h.at; /* its regions had places of their own */
  p->text.operation = made->name;
  TRY(parse_run(p, made));
  for (uint32_t i = 0; i < h.result_count; ++i) TRY(define(p, s, made->all ? made->all[i] : made->first + i));
  return true;
}

static bool read_operations(parser *p, cursor *c, uint64_t count, scope *s, values *returned) {
  bool done = false;
  for (uint64_t i = 0; i < count; ++i) {
    if (done) FAIL("an operation behind the return");
    TRY(read_operation(p, c, s, returned, &done));
  }
  if (!done) FAIL("a region does not end with a return");
  return true;
}

/* ---- functions ------------------------------------------------------------------------------ */

/* Notes a function; f.at is where its regions begin, f.generic whether they are isolated. */
static bool note_function(parser *p, cursor *c, const head *h) {
  function f = {.generic = h->isolated};
  TRY(read_attributes(p, h, &f.attrs));
  const node *name = node_find(&f.attrs, "sym_name"), *visibility = node_find(&f.attrs, "sym_visibility");
  if (!name || name->kind != NODE_STRING) FAIL("a function has no sym_name");
  if (h->region_count != 1) FAIL("a function has %u regions", h->region_count);
  f.name = name->value;
  f.private = visibility && visibility->kind == NODE_STRING && text_is(visibility->value, "private");
  cursor inner, declared;
  TRY(enter_regions(p, c, h, &inner));
  f.at = (const char *)inner.at;
  declared = inner;
  uint64_t blocks;
  TRY(cursor_varint(p, &declared, &blocks));
  if (blocks == 0) { /* a declaration */
    inner.at = declared.at;
    return leave_regions(p, c, h, &inner);
  }
  TRY(skip_region(p, &inner) && leave_regions(p, c, h, &inner));
  return parse_add_function(p, f);
}

/* The operations of a module, or of the file, where the module is one. */
static bool find_in_block(parser *p, cursor *c, bool nested) {
  uint64_t count;
  TRY(read_block_head(p, c, &count, NULL));
  for (uint64_t i = 0; i < count; ++i) {
    head h;
    cursor inner;
    uint32_t values;
    TRY(read_head(p, c, &h));
    if (text_is(h.name->statement, "builtin.module") && !nested && h.region_count == 1) {
      TRY(enter_regions(p, c, &h, &inner));
      TRY(read_region_head(p, &inner, &values));
      if (values) FAIL("a module that defines values");
      TRY(find_in_block(p, &inner, true));
      TRY(leave_regions(p, c, &h, &inner));
    } else if (text_is(h.name->statement, "func.func")) {
      TRY(note_function(p, c, &h));
    } else if (text_is(h.name->statement, "sdy.mesh")) {
      node attrs;
      TRY(read_attributes(p, &h, &attrs) && parse_add_mesh(p, &attrs));
      TRY(skip_regions(p, c, &h));
    } else { /* what another dialect notes about the module */
      TRY(skip_regions(p, c, &h));
    }
  }
  return true;
}

bool bytecode_find_functions(parser *p) {
  cursor *c = &p->bytecode->sections[SECTION_IR];
  return find_in_block(p, c, false);
}

/* The head of a function's region. The section's end is not kept: the file's bounds reading just as well. */
static bool enter_function(parser *p, const function *f, cursor *c, uint32_t *count, uint64_t *operations,
                           types *parameters) {
  *c = (cursor){(const uint8_t *)f->at, p->bytecode->sections[SECTION_IR].end};
  p->text.at = f->at;
  p->text.operation = (text_slice){"func.func", 9};
  return read_region_head(p, c, count) && read_block_head(p, c, operations, parameters);
}

bool bytecode_call(parser *p, text_slice name, const values *operands, values *returned) {
  bytecode *b = p->bytecode;
  int length = (int)(name.length > 60 ? 60 : name.length);
  function *f = parse_find_function(p, name);
  cursor at, *c = NULL;
  if (!f) FAIL("no function @%.*s", length, name.data);
  if (f->open) FAIL("@%.*s calls itself", length, name.data);
  if (++p->depth > DEEPEST) FAIL("calls nested more than %d deep", DEEPEST);
  if (p->frames >= MOST_CALLS) UNSUPPORTED("more than %d calls", MOST_CALLS);
  const char *back = p->text.at;
  text_slice operation = p->text.operation;
  uint32_t frame = b->frame, count;
  uint64_t operations;
  types parameters = {0};
  scope s;
  ++p->frames;
  f->open = true;
  TRY(enter_function(p, f, &at, &count, &operations, &parameters));
  if (parameters.count != operands->count)
    FAIL("@%.*s takes %u values, not %u", length, name.data, parameters.count, operands->count);
  b->frame = b->value_count;
  TRY(open_scope(p, count, &s));
  for (uint32_t i = 0; i < parameters.count; ++i) {
    if (!parse_value_matches(p, operands->data[i], &parameters.data[i]))
      FAIL("@%.*s takes %s as value %u", length, name.data, parse_show(p, &parameters.data[i]), i);
    TRY(define(p, &s, operands->data[i]));
  }
  TRY(read_operations(p, &at, operations, &s, returned));
  close_scope(p, &s);
  f->open = false;
  b->frame = frame;
  p->text.at = back;
  p->text.operation = operation;
  --p->depth;
  return true;
}

bool bytecode_read_main(parser *p, function *f) {
  cursor at;
  uint32_t count;
  uint64_t operations;
  types parameters = {0};
  values returned = {0};
  scope s;
  bool any = false;
  uint32_t number = 0;
  f->open = true;
  TRY(enter_function(p, f, &at, &count, &operations, &parameters));
  TRY(open_scope(p, count, &s));
  bool *donate = text_room(&p->text, parameters.count * sizeof *donate);
  if (!donate) return false;
  const node *attrs = node_find(&f->attrs, "arg_attrs");
  for (uint32_t i = 0; i < parameters.count; ++i) {
    ir_value v;
    TRY(parse_parameter(p, &parameters.data[i], &number, &v) && define(p, &s, v));
    donate[i] = attrs && attrs->kind == NODE_ARRAY && i < attrs->count && parse_donates(&attrs->entries[i].value);
    any |= donate[i];
  }
  if (any && number == parameters.count) {
    p->b.func->donate = base_arena_dup(p->b.func->arena, donate, parameters.count * sizeof *donate);
    if (!p->b.func->donate) return text_no_memory(&p->text);
  }
  TRY(read_operations(p, &at, operations, &s, &returned));
  return parse_return(p, &returned);
}
