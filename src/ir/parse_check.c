/* The checks of StableHLO's own test files: what they compare becomes further results of the function. What is probed in
 * a region is sent to the host each time, and the arguments of parallel runs are results too, since who reads the function
 * runs them. */
#include <string.h>

#include "ir/parse_op.h"

enum { FIRST_PROBE_CHANNEL = 1 << 20, CHANNEL_TO_HOST = 2, MOST_CHIPS = 1 << 12 };

static double number_attr(const statement *s, const char *name, double otherwise) {
  const node *n = node_find(&s->attrs, name);
  return !n ? otherwise : n->kind == NODE_FLOAT ? n->d : n->kind == NODE_INT ? (double)n->i : otherwise;
}

/* Defaults as in StableHLO's CheckOps: a tolerance of 0.001, 3 units in the last place. */
static bool add_check(parser *p, const statement *s, ir_check_kind kind, ir_value actual, ir_value expected) {
  ir_parse_options *o = p->options;
  if (!o->take_checks) UNSUPPORTED("checks belong to test files: see ttpu check-stablehlo");
  if (p->b.region != &p->b.func->body) UNSUPPORTED("a check inside of a region");
  if (!ir_type_equal(type_of(p, actual), type_of(p, expected)))
    FAIL("%s is compared with %s", IR_SHOW(type_of(p, actual)), IR_SHOW(type_of(p, expected)));
  if (!BASE_GROW(o->checks, o->check_count, o->check_capacity)) return text_no_memory(&p->text);
  ir_check check = {.kind = kind, .actual = p->checked.count, .expected = p->checked.count + 1, .line = 1};
  check.tolerance = number_attr(s, "tolerance", 0.001);
  check.min_ulp = (uint64_t)parse_integer_attr(s, "min_ulp_difference", 0);
  check.max_ulp = (uint64_t)parse_integer_attr(s, "max_ulp_difference", 3);
  for (const char *c = p->text.start; c < p->text.at; ++c) check.line += *c == '\n';
  o->checks[o->check_count++] = check;
  return parse_push_value(p, &p->checked, actual) && parse_push_value(p, &p->checked, expected);
}

static bool check_probe(parser *p, const statement *s) {
  const node *name = node_find(&s->attrs, "probe_id");
  int64_t iteration = parse_integer_attr(s, "iter", parse_integer_attr(s, "iteration", 0));
  if (!name || name->kind != NODE_STRING) FAIL("no probe_id");
  if (iteration < 0 || iteration > UINT32_MAX) FAIL("iteration %lld", (long long)iteration);
  for (uint32_t i = 0; i < p->probe_count; ++i) {
    const probe *found = &p->probes[i];
    bool same =
        found->name.length == name->value.length && memcmp(found->name.data, name->value.data, name->value.length) == 0;
    if (!same || (found->channel == 0 && iteration-- > 0)) continue;
    TRY(add_check(p, s, IR_CHECK_EQ, operand(s, 0), found->channel ? operand(s, 0) : found->value));
    ir_check *check = &p->options->checks[p->options->check_count - 1];
    check->channel = found->channel;
    check->letter = (uint32_t)iteration;
    return true;
  }
  FAIL("nothing was probed as \"%s\"", name->value.data);
}

/* check.expect_eq and its like; `name` is without the dialect. */
bool parse_run_check(parser *p, statement *s, text_slice name) {
  static const struct {
    const char *name;
    ir_check_kind kind;
  } kinds[] = {{"expect_eq", IR_CHECK_EQ},
               {"eq", IR_CHECK_EQ},
               {"expect_almost_eq", IR_CHECK_ALMOST_EQ},
               {"expect_close", IR_CHECK_CLOSE},
               {"expect_eq_const", IR_CHECK_EQ},
               {"expect_almost_eq_const", IR_CHECK_ALMOST_EQ}};
  const node *value = node_find(&s->attrs, "value");
  if (s->operands.count == 0) FAIL("nothing to check");
  if (text_is(name, "expect_serialized_eq")) return check_probe(p, s);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (!text_is(name, kinds[i].name)) continue;
    ir_value expected;
    if (value && value->kind == NODE_DENSE) expected = ir_constant(&p->b, value->type, value->data);
    else if (s->operands.count == 2) expected = operand(s, 1);
    else FAIL("nothing to compare with");
    TRY(parse_check_builder(p));
    TRY(add_check(p, s, kinds[i].kind, operand(s, 0), expected));
    /* as a custom call it has a result, which nobody looks at */
    return s->result_types.count == 0 || parse_result(p, s, ir_scalar_i64(&p->b, TTPU_BOOL, 1));
  }
  UNSUPPORTED("this operation is not supported");
}

bool parse_probe(parser *p, statement *s) {
  const node *name = node_find(&s->attrs, "probe_id");
  TRY(parse_expect_counts(p, s, 1, 1));
  if (!name || name->kind != NODE_STRING) FAIL("no probe_id");
  if (!p->options->take_checks) return parse_result(p, s, operand(s, 0));
  TRY(parse_push(p, (void **)&p->probes, p->probe_count, &p->probe_capacity, sizeof *p->probes));
  bool inside = p->b.region != &p->b.func->body;
  p->probes[p->probe_count] = (probe){name->value, operand(s, 0), inside ? FIRST_PROBE_CHANNEL + p->probe_count : 0};
  const ir_transfer_attrs attrs = {p->probes[p->probe_count++].channel, CHANNEL_TO_HOST, true};
  if (inside) {
    ir_value token = ir_append(&p->b, IR_CREATE_TOKEN, 0, NULL, NULL, 0, NULL, 0, NULL);
    ir_append(&p->b, IR_SEND, 2, (const ir_value[]){operand(s, 0), token}, &attrs, 0, NULL, 0, NULL);
  }
  return parse_result(p, s, operand(s, 0));
}

/* ---- parallel runs --------------------------------------------------------------------------------- */

static void *keep(parser *p, size_t bytes) {
  void *room = base_arena_zalloc(p->options->kept, bytes + 1);
  if (!room) text_no_memory(&p->text);
  return room;
}

/* The names of functions in a list of symbols, appended to names[*count]. */
static bool add_names(parser *p, const node *list, const char **names, uint32_t *count) {
  for (uint32_t i = 0; i < list->count; ++i) {
    const node *symbol = &list->entries[i].value;
    if (symbol->kind != NODE_SYMBOL) FAIL("%.*s is no function", (int)symbol->text.length, symbol->text.data);
    if (!parse_find_function(p, symbol->value))
      FAIL("there is no function @%.*s", (int)symbol->value.length, symbol->value.data);
    char *name = keep(p, symbol->value.length);
    if (!name) return false;
    memcpy(name, symbol->value.data, symbol->value.length);
    names[(*count)++] = name;
  }
  return true;
}

/* programs = [[@a, @b], [@a, @b]]: a row for each replica, in it a function for each partition. */
static bool read_programs(parser *p, const statement *s, ir_parallel *run) {
  const node *rows = node_find(&s->attrs, "programs"), *infeed = node_find(&s->attrs, "infeed");
  if (!rows || rows->kind != NODE_ARRAY || rows->count == 0) FAIL("no programs");
  run->replicas = rows->count;
  run->partitions = rows->entries[0].value.count;
  for (uint32_t i = 0; i < rows->count; ++i) {
    const node *row = &rows->entries[i].value;
    if (row->kind != NODE_ARRAY || row->count == 0 || row->count != run->partitions)
      FAIL("row %u of the programs has %u, row 0 has %u", i, row->count, run->partitions);
  }
  uint64_t chips = (uint64_t)run->replicas * run->partitions;
  if (chips > MOST_CHIPS) FAIL("%llu programs: %d at most", (unsigned long long)chips, MOST_CHIPS);
  run->programs = keep(p, chips * sizeof *run->programs);
  uint32_t count = 0;
  for (uint32_t i = 0; run->programs && i < rows->count; ++i)
    TRY(add_names(p, &rows->entries[i].value, run->programs, &count));
  if (!run->programs || !infeed) return run->programs;
  if (infeed->kind != NODE_ARRAY || infeed->count == 0) FAIL("infeed is no list of functions");
  run->infeed = keep(p, infeed->count * sizeof *run->infeed);
  return run->infeed && add_names(p, infeed, run->infeed, &run->infeed_count);
}

static bool read_result_types(parser *p, const statement *s, ir_parallel *run) {
  run->result_count = s->result_types.count;
  run->types = keep(p, run->result_count * sizeof *run->types);
  for (uint32_t i = 0; run->types && i < run->result_count; ++i) {
    const text_type *written = &s->result_types.data[i];
    if (written->tuple || written->dynamic || written->unranked) UNSUPPORTED("result %u has no known sizes", i);
    run->types[i] = written->type;
    int64_t *dims = keep(p, written->type.rank * sizeof *dims);
    if (!dims) return false;
    if (written->type.rank) memcpy(dims, written->type.dims, written->type.rank * sizeof *dims);
    run->types[i].dims = dims;
  }
  return run->types;
}

/* The run's results as constants: what they are known to be, or zeros. */
static bool give_results(parser *p, statement *s, const ir_parallel *run) {
  ir_value *values = parse_room(p, run->result_count * sizeof *values);
  if (!values) return false;
  for (uint32_t i = 0; i < run->result_count; ++i) {
    ir_type t = run->types[i];
    if (t.dtype == TTPU_TOKEN) values[i] = ir_append(&p->b, IR_CREATE_TOKEN, 0, NULL, NULL, 0, NULL, 0, NULL);
    else if (run->results) values[i] = ir_constant(&p->b, t, (ir_data){run->results[i], false});
    else values[i] = ir_fill_i64(&p->b, (ttpu_dtype)t.dtype, t.rank, t.dims, 0);
  }
  return parse_results(p, s, run->result_count, values);
}

bool parse_run_parallel(parser *p, statement *s) {
  ir_parse_options *o = p->options;
  if (!o->take_checks || !o->kept) UNSUPPORTED("parallel runs belong to test files: see ttpu check-stablehlo");
  if (p->b.region != &p->b.func->body) UNSUPPORTED("a parallel run inside of a region");
  if (p->parallels < o->parallel_count && o->parallels[p->parallels].results)
    return give_results(p, s, &o->parallels[p->parallels++]);
  ir_parallel run = {.first_operand = p->checked.count, .operand_count = s->operands.count};
  TRY(read_programs(p, s, &run) && read_result_types(p, s, &run));
  if (p->parallels++ == o->parallel_count) {
    if (!BASE_GROW(o->parallels, o->parallel_count, o->parallel_capacity)) return text_no_memory(&p->text);
    for (uint32_t i = 0; i < s->operands.count; ++i) TRY(parse_push_value(p, &p->checked, operand(s, i)));
    o->parallels[o->parallel_count++] = run;
    ++p->parallels; /* those behind it may depend on it, and have their turn later */
  }
  return give_results(p, s, &run);
}
