/* The checks of StableHLO's own test files: what they compare becomes further results of the function. */
#include <string.h>

#include "ir/parse_op.h"

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
  int64_t iteration = parse_integer_attr(s, "iteration", 0);
  if (!name || name->kind != NODE_STRING) FAIL("no probe_id");
  for (uint32_t i = 0; i < p->probe_count; ++i)
    if (p->probes[i].name.length == name->value.length &&
        memcmp(p->probes[i].name.data, name->value.data, name->value.length) == 0 && iteration-- == 0)
      return add_check(p, s, IR_CHECK_EQ, operand(s, 0), p->probes[i].value);
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
  if (p->b.region == &p->b.func->body) {
    TRY(parse_push(p, (void **)&p->probes, p->probe_count, &p->probe_capacity, sizeof *p->probes));
    p->probes[p->probe_count++] = (probe){name->value, operand(s, 0)};
  }
  return parse_result(p, s, operand(s, 0));
}
