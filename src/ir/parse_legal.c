/* What a statement means: the row of ops.def that it names, or, for operations that are not rows, the same said with
 * rows. Here calls and tuples; others in parse_deprecated.c, parse_dynamic.c, parse_chlo.c, parse_quant.c and, of test
 * files, parse_check.c. */
#include <ctype.h>
#include <string.h>

#include "ir/parse_op.h"

/* ---- results -------------------------------------------------------------------------------- */

bool parse_results(parser *p, statement *s, uint32_t count, const ir_value *values) {
  TRY(parse_check_builder(p));
  s->all = parse_room(p, count * sizeof *s->all);
  if (!s->all) return false;
  if (count) memcpy(s->all, values, count * sizeof *values);
  if (count != s->result_types.count) FAIL("%u results, expected %u", s->result_types.count, count);
  for (uint32_t i = 0; i < count; ++i)
    if (!parse_value_matches(p, values[i], &s->result_types.data[i]))
      FAIL("result %u does not have the type that is written: %s", i, parse_show(p, &s->result_types.data[i]));
  return true;
}

bool parse_result(parser *p, statement *s, ir_value v) { return parse_results(p, s, 1, &v); }

/* ---- what is asked of many statements ----------------------------------------------------------- */

bool parse_expect_counts(parser *p, const statement *s, uint32_t operands, uint32_t results) {
  if (s->operands.count != operands || s->result_types.count != results)
    FAIL("%u operands and %u results, expected %u and %u", s->operands.count, s->result_types.count, operands, results);
  return true;
}

int64_t parse_integer_attr(const statement *s, const char *name, int64_t otherwise) {
  const node *n = node_find(&s->attrs, name);
  return n && n->kind == NODE_INT ? n->i : otherwise;
}

bool parse_dimension_attr(parser *p, const statement *s, const char *name, uint32_t rank, uint32_t *out) {
  int64_t d = parse_integer_attr(s, name, -1);
  if (d < 0 || d >= rank) FAIL("%s is %lld, expected [0, %u)", name, (long long)d, rank);
  *out = (uint32_t)d;
  return true;
}

/* ---- one row -------------------------------------------------------------------------------- */

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

/* A `?` of a broadcast's result is the size of the operand's dimension that goes there. */
static bool resolve_broadcast(parser *p, const text_type *written, ir_type x, const node *map, ir_type *out) {
  ir_i64s list = {NULL, 0};
  int64_t *dims = parse_room(p, written->type.rank * sizeof *dims);
  if (!dims || !text_list(&p->text, "broadcast_dimensions", map, &list)) return false;
  for (uint32_t d = 0; d < written->type.rank; ++d) dims[d] = written->type.dims[d];
  for (uint32_t i = 0; i < list.count && i < x.rank; ++i)
    if (list.data[i] >= 0 && list.data[i] < written->type.rank && dims[list.data[i]] == TEXT_ANY)
      dims[list.data[i]] = x.dims[i];
  for (uint32_t d = 0; d < written->type.rank; ++d)
    if (dims[d] == TEXT_ANY) UNSUPPORTED("the result is %s: its sizes are not known", parse_show(p, written));
  *out = (ir_type){written->type.dtype, written->type.rank, dims};
  return true;
}

/* Which type of the written result a row whose result type is given takes its `?` from. */
static bool resolve_given(parser *p, const statement *s, ir_kind kind, const text_type *written, ir_type *out) {
  ir_type x = s->operands.count ? type_of(p, operand(s, 0)) : (ir_type){0, 0, ir_no_dims};
  if (!written->dynamic && !written->unranked) {
    *out = written->type;
    return true;
  }
  if (kind == IR_RESHAPE && written->dynamic) { /* one `?` is what the others leave */
    int64_t *dims = parse_room(p, written->type.rank * sizeof *dims), rest = ir_numel(x), at = -1;
    if (!dims) return false;
    for (uint32_t d = 0; d < written->type.rank; ++d) {
      dims[d] = written->type.dims[d];
      if (dims[d] == TEXT_ANY && at >= 0) UNSUPPORTED("two dimensions of the result are not known");
      if (dims[d] == TEXT_ANY) at = d;
      else if (dims[d] == 0 || rest % dims[d]) FAIL("%s does not reshape to it", IR_SHOW(x));
      else rest /= dims[d];
    }
    dims[at] = rest;
    *out = (ir_type){written->type.dtype, written->type.rank, dims};
    return true;
  }
  const node *map = kind == IR_BROADCAST_IN_DIM ? node_find(&s->attrs, "broadcast_dimensions") : NULL;
  if (map && written->dynamic) return resolve_broadcast(p, written, x, map, out);
  if (parse_resolve(p, written, x, out)) return true;
  UNSUPPORTED("the result is %s: its sizes are not known", parse_show(p, written));
}

static bool needs_given(ir_kind kind) {
  switch (kind) {
    case IR_CONVERT:
    case IR_BITCAST_CONVERT:
    case IR_BROADCAST_IN_DIM:
    case IR_RESHAPE:
    case IR_CONSTANT:
    case IR_IOTA:
    case IR_RNG_BIT_GENERATOR:
    case IR_CUSTOM_CALL:
    case IR_MANUAL_COMPUTATION:
    case IR_ALL_GATHER:
    case IR_ALL_TO_ALL:
    case IR_REDUCE_SCATTER: return true;
    default: return false;
  }
}

/* The result types to give: as written, or, where `?` is written, nothing for rows that infer them. */
static bool given_types(parser *p, statement *s, ir_kind kind, uint32_t *count, ir_type **out) {
  bool dynamic = false, product = kind == IR_DOT_GENERAL || kind == IR_CONVOLUTION;
  *count = s->result_types.count;
  *out = parse_room(p, *count * sizeof **out);
  if (!*out) return false;
  for (uint32_t i = 0; i < *count; ++i) {
    const text_type *written = &s->result_types.data[i];
    if (written->tuple) UNSUPPORTED("a tuple as a result");
    dynamic |= written->dynamic || written->unranked;
    if (needs_given(kind)) TRY(resolve_given(p, s, kind, written, &(*out)[i]));
    else (*out)[i] = written->type;
  }
  if (!dynamic || needs_given(kind)) return true;
  if (product) (*out)[0] = (ir_type){(*out)[0].dtype, 0, NULL};
  else *count = 0;
  return true;
}

/* A reducer may work in a wider type than its operands have: then they are converted in front of it. */
static bool widen_to_reducer(parser *p, statement *s, ir_kind kind) {
  bool reduces = kind == IR_REDUCE || kind == IR_REDUCE_WINDOW || kind == IR_SCATTER || kind == IR_ALL_REDUCE ||
                 kind == IR_REDUCE_SCATTER || kind == IR_COLLECTIVE_REDUCE || kind == IR_SELECT_AND_SCATTER;
  if (!reduces || s->region_count == 0) return true;
  const ir_region *region = s->regions[s->region_count - 1];
  uint32_t pairs = region->arg_count / 2, indices = kind == IR_SCATTER ? pairs : UINT32_MAX;
  if (kind == IR_COLLECTIVE_REDUCE && node_find(&s->attrs, "has_dynamic_root")) indices = s->operands.count - 1;
  for (uint32_t i = 0, at = 0; i < s->operands.count && pairs; ++i) {
    if (i == indices) continue;
    ttpu_dtype has = (ttpu_dtype)type_of(p, operand(s, i)).dtype;
    ttpu_dtype wants = (ttpu_dtype)type_of(p, region->first_arg + at++ % pairs).dtype;
    bool promotes = base_dtypes[has].cls == base_dtypes[wants].cls && base_dtype_bits(has) < base_dtype_bits(wants);
    if (promotes) s->operands.data[i] = ir_convert(&p->b, operand(s, i), wants);
  }
  return parse_check_builder(p);
}

/* Products that ask for less than the options' precision get that. */
static void raise_precision(const parser *p, ir_kind kind, const void *values) {
  ir_precision *precision = kind == IR_DOT_GENERAL   ? &((ir_dot_general_attrs *)values)->precision
                            : kind == IR_CONVOLUTION ? &((ir_convolution_attrs *)values)->precision
                                                     : NULL;
  if (precision && *precision < p->options->precision) *precision = p->options->precision;
}

static double number_of(const node *dict, const char *name) {
  const node *n = node_find(dict, name);
  return !n ? 0 : n->kind == NODE_FLOAT ? n->d : n->kind == NODE_INT ? (double)n->i : 0;
}

/* Attributes that say how, not what: nothing follows from them here, but they have their rules. */
static bool check_hints(parser *p, const node *attrs) {
  const node *accuracy = node_find(attrs, "result_accuracy"), *algorithm = node_find(attrs, "algorithm");
  const node *mode = accuracy ? node_find(accuracy, "mode") : NULL;
  if (mode && memmem(mode->text.data, mode->text.length, "HIGHEST", 7) &&
      (number_of(accuracy, "atol") != 0 || number_of(accuracy, "rtol") != 0 || number_of(accuracy, "ulps") != 0))
    FAIL("result_accuracy of mode HIGHEST has no tolerances");
  static const char *const counts[] = {"lhs_component_count", "rhs_component_count", "num_primitive_operations"};
  for (int i = 0; algorithm && algorithm->kind == NODE_DICT && i < 3; ++i)
    if (number_of(algorithm, counts[i]) < 1) FAIL("the algorithm's %s is not positive", counts[i]);
  return true;
}

/* A constant's elements are as many, and as large, as its result's. */
static bool check_elements(parser *p, const statement *s, const node *value) {
  if (s->result_types.count != 1) FAIL("expected one result");
  if (!value || value->kind != NODE_DENSE) return true; /* told by whoever reads the attribute */
  const text_type is = {.type = value->type};
  if (text_type_equal(&is, &s->result_types.data[0])) return true;
  FAIL("the value is %s, the result %s", IR_SHOW(value->type), parse_show(p, &s->result_types.data[0]));
}

bool parse_append(parser *p, statement *s, ir_kind kind, const node *attrs) {
  const void *values = NULL;
  if (kind == IR_CONSTANT) TRY(check_elements(p, s, node_find(attrs, "value")));
  TRY(check_hints(p, attrs));
  ir_type *given;
  uint32_t given_count;
  for (uint32_t i = 0; i < s->operands.count; ++i)
    if (operand(s, i) & TUPLE_VALUE) FAIL("operand %u is a tuple", i);
  if (ir_ops[kind].attrs) TRY(text_attrs(&p->text, kind, attrs, &values));
  if (kind == IR_SORT && s->operands.count) {
    ir_sort_attrs *a = (ir_sort_attrs *)values;
    if (a->dimension < 0) a->dimension += type_of(p, operand(s, 0)).rank;
  }
  if (kind == IR_COMPARE && s->operands.count == 2) {
    const node *type = node_find(attrs, "compare_type");
    if (type && (text_is(type->value, "TOTALORDER") || text_is(type->text, "TOTALORDER")))
      for (uint32_t i = 0; i < 2; ++i) s->operands.data[i] = total_order_key(p, operand(s, i));
  }
  raise_precision(p, kind, values);
  if (kind == IR_CONVOLUTION && s->operands.count == 2 &&
      type_of(p, operand(s, 0)).dtype != type_of(p, operand(s, 1)).dtype)
    FAIL("operands are %s and %s", IR_SHOW(type_of(p, operand(s, 0))), IR_SHOW(type_of(p, operand(s, 1))));
  TRY(widen_to_reducer(p, s, kind));
  TRY(given_types(p, s, kind, &given_count, &given));
  s->first = ir_append(&p->b, kind, s->operands.count, s->operands.data, values, given_count, given, s->region_count,
                       s->regions);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < s->result_types.count && given_count == 0; ++i)
    if (!parse_value_matches(p, s->first + i, &s->result_types.data[i]))
      FAIL("result %u is %s, but its type is written as %s", i, IR_SHOW(type_of(p, s->first + i)),
           parse_show(p, &s->result_types.data[i]));
  return true;
}

/* ---- calls, composites, tuples -------------------------------------------------------------- */

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

static bool run_call_of(parser *p, statement *s, const node *callee) {
  if (!callee || callee->kind != NODE_SYMBOL) FAIL("no function to call");
  ir_kind ours = called_composite(callee->value);
  if (ours != IR_NO_OP) return parse_append(p, s, ours, &s->attrs);
  values returned = {0};
  TRY(parse_inline(p, callee->value, &s->operands, &returned));
  if (returned.count != s->result_types.count)
    FAIL("the function returns %u values, expected %u", returned.count, s->result_types.count);
  return parse_results(p, s, returned.count, returned.data);
}

static bool run_call(parser *p, statement *s) { return run_call_of(p, s, node_find(&s->attrs, "callee")); }

/* "dialect.name": words of letters, digits, _ and $ with points between. */
static bool is_namespaced(text_slice name) {
  bool begins = true, point = false;
  for (size_t i = 0; i < name.length; ++i) {
    unsigned char c = (unsigned char)name.data[i];
    if (c == '.' ? begins : !(isalpha(c) || c == '_' || (!begins && (isdigit(c) || c == '$')))) return false;
    point |= c == '.';
    begins = c == '.';
  }
  return point && !begins;
}

static bool run_composite(parser *p, statement *s) {
  const node *name = node_find(&s->attrs, "name"), *attributes = node_find(&s->attrs, "composite_attributes");
  static const node none = {.kind = NODE_DICT};
  ir_kind kind = name && name->kind == NODE_STRING ? composite_kind(name->value, "ttpu.") : IR_NO_OP;
  if (kind != IR_NO_OP) return parse_append(p, s, kind, attributes ? attributes : &none);
  if (!name || name->kind != NODE_STRING || !is_namespaced(name->value)) FAIL("its name has no namespace");
  return run_call_of(p, s, node_find(&s->attrs, "decomposition"));
}

static bool run_tuple(parser *p, statement *s) {
  TRY(parse_push(p, (void **)&p->tuples, p->tuple_count, &p->tuple_capacity, sizeof *p->tuples));
  p->tuples[p->tuple_count] = s->operands;
  return parse_result(p, s, TUPLE_VALUE | p->tuple_count++);
}

static bool run_get_tuple_element(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
  if (!(operand(s, 0) & TUPLE_VALUE)) FAIL("the operand is no tuple");
  const values *tuple = &p->tuples[operand(s, 0) & ~(uint32_t)TUPLE_VALUE];
  int64_t index = parse_integer_attr(s, "index", -1);
  if (index < 0 || index >= tuple->count) FAIL("index is %lld, expected [0, %u)", (long long)index, tuple->count);
  return parse_result(p, s, tuple->data[index]);
}

/* What runs beside the rest of a program runs at once here, and its future is a tuple of what it gave. */
static bool run_async_start(parser *p, statement *s) {
  if (s->region_count != 1 || s->result_types.count != 1) FAIL("expected a region and one result");
  const ir_region *region = s->regions[0];
  const ir_op *end = region->ops[region->count - 1];
  ir_kind only = region->count == 2 ? (ir_kind)region->ops[0]->kind : IR_NO_OP;
  bool collective = ir_ops[only].attrs == IR_ATTRS_replica_groups;
  if (!collective && only != IR_SLICE && only != IR_DYNAMIC_SLICE && only != IR_DYNAMIC_UPDATE_SLICE)
    FAIL("the region holds no single collective operation or slice");
  if (region->arg_count != s->operands.count)
    FAIL("the region takes %u values, not %u", region->arg_count, s->operands.count);
  for (uint32_t i = 0; i < region->arg_count; ++i)
    if (!ir_type_equal(type_of(p, region->first_arg + i), type_of(p, operand(s, i))))
      FAIL("argument %u of the region is %s, the operand %s", i, IR_SHOW(type_of(p, region->first_arg + i)),
           IR_SHOW(type_of(p, operand(s, i))));
  ir_value *returned = parse_room(p, end->operand_count * sizeof *returned);
  if (!returned) return false;
  TRY(parse_repeat_region(p, region, s->operands.data, returned));
  s->operands = (values){returned, end->operand_count, end->operand_count};
  return run_tuple(p, s);
}

static bool run_async_done(parser *p, statement *s) {
  if (s->operands.count != 1 || !(operand(s, 0) & TUPLE_VALUE)) FAIL("the operand is no future");
  const values *future = &p->tuples[operand(s, 0) & ~(uint32_t)TUPLE_VALUE];
  return parse_results(p, s, future->count, future->data);
}

/* ---- quantization --------------------------------------------------------------------------- */

static bool run_uniform_quantize(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
  const quantization *from = parse_quantization(p, operand(s, 0)), *to = s->result_types.data[0].quantized;
  if (!to) FAIL("the result is not quantized");
  ir_value x = from ? parse_dequantize(p, operand(s, 0), from) : operand(s, 0);
  TRY(parse_check_builder(p));
  if (type_of(p, x).dtype != to->expressed)
    FAIL("the operand is %s, the result expresses %s", IR_SHOW(type_of(p, x)), base_dtypes[to->expressed].hlo_name);
  ir_value y = parse_quantize(p, x, to);
  TRY(parse_check_builder(p));
  return parse_set_quantization(p, y, to) && parse_result(p, s, y);
}

static bool run_uniform_dequantize(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
  const quantization *from = parse_quantization(p, operand(s, 0));
  if (!from) FAIL("the operand is not quantized");
  return parse_result(p, s, parse_dequantize(p, operand(s, 0), from));
}

/* The stored integers under another type: nothing is rescaled. A constant's elements are stored integers too. */
static bool run_stored(parser *p, statement *s, ir_kind kind) {
  const quantization *to = s->result_types.count ? s->result_types.data[0].quantized : NULL;
  bool unchanged = kind == IR_BITCAST_CONVERT && s->result_types.count && s->operands.count == 1 &&
                   type_of(p, operand(s, 0)).dtype == s->result_types.data[0].type.dtype;
  if (unchanged) { /* a value of its own: the operand keeps what it is */
    ir_value y = ir_append(&p->b, IR_OPTIMIZATION_BARRIER, 1, s->operands.data, NULL, 0, NULL, 0, NULL);
    TRY(parse_result(p, s, y));
    return parse_set_quantization(p, y, to);
  }
  TRY(parse_append(p, s, kind, &s->attrs));
  return parse_set_quantization(p, s->first, to);
}

/* ---- conversions ----------------------------------------------------------------------------- */

/* A complex number is true where its real part is not 0. */
static bool run_convert(parser *p, statement *s) {
  if (s->operands.count == 1 && s->result_types.count == 1 && result_dtype(s) == TTPU_BOOL &&
      base_dtype_is_complex((ttpu_dtype)type_of(p, operand(s, 0)).dtype))
    s->operands.data[0] = ir_real(&p->b, operand(s, 0));
  return parse_append(p, s, IR_CONVERT, &s->attrs);
}

/* Complex numbers, which our clamp does not order: by their real parts, then by the imaginary ones, as maximum does. */
static bool run_clamp(parser *p, statement *s) {
  bool complex = s->operands.count == 3 && base_dtype_is_complex((ttpu_dtype)type_of(p, operand(s, 1)).dtype);
  if (!complex) return parse_append(p, s, IR_CLAMP, &s->attrs);
  ir_type x = type_of(p, operand(s, 1));
  ir_value bounds[2];
  for (uint32_t i = 0; i < 2; ++i) {
    ir_type t = type_of(p, operand(s, 2 * i));
    if (t.dtype != x.dtype || (t.rank && !ir_same_dims(t, x)))
      FAIL("%s is %s, expected a scalar of, or exactly, %s", i ? "max" : "min", IR_SHOW(t), IR_SHOW(x));
    bounds[i] = ir_broadcast_to(&p->b, operand(s, 2 * i), x.rank, x.dims);
  }
  return parse_result(p, s, ir_minimum(&p->b, ir_maximum(&p->b, operand(s, 1), bounds[0]), bounds[1]));
}

static bool run_nothing(parser *p, statement *s) {
  (void)p, (void)s;
  return true;
}

/* ---- which is which ------------------------------------------------------------------------- */

static bool run_cross_replica_sum(parser *p, statement *s);

static const parse_row legal[] = {
    {"call", run_call},
    {"func.call", run_call},
    {"stablehlo.composite", run_composite},
    {"stablehlo.tuple", run_tuple},
    {"stablehlo.get_tuple_element", run_get_tuple_element},
    {"stablehlo.async_start", run_async_start},
    {"stablehlo.async_done", run_async_done},
    {"stablehlo.convert", run_convert},
    {"stablehlo.clamp", run_clamp},
    {"stablehlo.cross-replica-sum", run_cross_replica_sum},
    {"stablehlo.uniform_quantize", run_uniform_quantize},
    {"stablehlo.uniform_dequantize", run_uniform_dequantize},
    {"interpreter.probe", parse_probe},
    {"interpreter.run_parallel", parse_run_parallel},
    {"interpreter.print", run_nothing},
};

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

/* What follows `prefix` in the name; empty where it does not begin so. */
static text_slice behind(text_slice name, const char *prefix) {
  size_t length = strlen(prefix);
  if (name.length <= length || memcmp(name.data, prefix, length)) return (text_slice){name.data, 0};
  return (text_slice){name.data + length, name.length - length};
}

/* Which of ours a custom call to "mhlo.<name>" means. */
static ir_kind mhlo_kind(const statement *s) {
  const node *target = node_find(&s->attrs, "call_target_name");
  if (!target || target->kind != NODE_STRING) return IR_NO_OP;
  return text_is(target->value, "mhlo.topk") ? IR_TOP_K : composite_kind(target->value, "mhlo.");
}

static bool has_tuples(const statement *s);
static bool run_flat(parser *p, statement *s, ir_kind kind);

static bool run_custom_call(parser *p, statement *s) {
  const node *target = node_find(&s->attrs, "call_target_name");
  ir_kind kind = mhlo_kind(s);
  if (kind != IR_NO_OP) {
    const node *attrs = node_find(&s->attrs, "mhlo.attributes");
    return parse_run_composite(p, s, kind, attrs ? attrs : &s->attrs);
  }
  text_slice check = target && target->kind == NODE_STRING ? behind(target->value, "check.") : (text_slice){NULL, 0};
  if (check.length) return parse_run_check(p, s, check);
  if (target && target->kind == NODE_STRING && text_is(target->value, "ApproxTopK")) return parse_approx_top_k(p, s);
  return has_tuples(s) ? run_flat(p, s, IR_CUSTOM_CALL) : parse_append(p, s, IR_CUSTOM_CALL, &s->attrs);
}

static bool flatten_values(parser *p, const values *list, values *out) {
  for (uint32_t i = 0; i < list->count; ++i) {
    ir_value v = list->data[i];
    TRY(v & TUPLE_VALUE ? flatten_values(p, &p->tuples[v & ~(uint32_t)TUPLE_VALUE], out) : parse_push_value(p, out, v));
  }
  return true;
}

static bool flatten_types(parser *p, const types *list, types *out) {
  for (uint32_t i = 0; i < list->count; ++i) {
    const text_type *type = &list->data[i];
    const types elements = {type->elements, type->count, type->count};
    TRY(type->tuple ? flatten_types(p, &elements, out) : parse_push_type(p, out, *type));
  }
  return true;
}

/* The value of a type that has a tuple's shape, from flat values that are taken one after the other. */
static bool build_value(parser *p, const text_type *type, const ir_value **flat, ir_value *out) {
  if (!type->tuple) return *out = *(*flat)++, true;
  values elements = {0};
  for (uint32_t i = 0; i < type->count; ++i) {
    ir_value v;
    TRY(build_value(p, &type->elements[i], flat, &v) && parse_push_value(p, &elements, v));
  }
  TRY(parse_push(p, (void **)&p->tuples, p->tuple_count, &p->tuple_capacity, sizeof *p->tuples));
  p->tuples[p->tuple_count] = elements;
  *out = TUPLE_VALUE | p->tuple_count++;
  return true;
}

static bool has_tuples(const statement *s) {
  bool any = false;
  for (uint32_t i = 0; i < s->operands.count; ++i) any |= (operand(s, i) & TUPLE_VALUE) != 0;
  for (uint32_t i = 0; i < s->result_types.count; ++i) any |= s->result_types.data[i].tuple;
  return any;
}

/* With tuples among operands and results: the same on their elements. */
static bool run_flat(parser *p, statement *s, ir_kind kind) {
  statement flat = *s;
  flat.operands = (values){0};
  flat.result_types = (types){0};
  TRY(flatten_values(p, &s->operands, &flat.operands) && flatten_types(p, &s->result_types, &flat.result_types));
  TRY(parse_append(p, &flat, kind, &s->attrs));
  ir_value *numbered = parse_room(p, flat.result_types.count * sizeof *numbered);
  s->all = parse_room(p, s->result_types.count * sizeof *s->all);
  if (!numbered || !s->all) return false;
  for (uint32_t i = 0; i < flat.result_types.count; ++i) numbered[i] = flat.first + i;
  const ir_value *next = numbered;
  for (uint32_t i = 0; i < s->result_types.count; ++i) TRY(build_value(p, &s->result_types.data[i], &next, &s->all[i]));
  return true;
}

/* The sum over replicas, before there was all_reduce. */
static bool run_cross_replica_sum(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
  ir_type scalar = {type_of(p, operand(s, 0)).dtype, 0, ir_no_dims};
  const ir_type arguments[2] = {scalar, scalar};
  ir_region *outer, *region = ir_region_begin(&p->b, 2, arguments, &outer);
  ir_value sum = ir_add(&p->b, region->first_arg, region->first_arg + 1);
  ir_region_end(&p->b, outer, 1, &sum);
  return parse_check_builder(p) && parse_add_region(p, s, region) && parse_append(p, s, IR_ALL_REDUCE, &s->attrs);
}

/* Operations that see a quantized tensor as what it is stored in. */
static bool takes_stored(ir_kind kind) {
  return kind == IR_BITCAST_CONVERT || kind == IR_CONSTANT || kind == IR_WHILE || kind == IR_IF || kind == IR_CASE;
}

const parse_row *parse_find(const parse_row *rows, size_t count, text_slice name) {
  for (size_t i = 0; i < count; ++i)
    if (text_is(name, rows[i].name)) return &rows[i];
  return NULL;
}

bool parse_run(parser *p, statement *s) {
  bool quantized = parse_is_quantized(p, s);
  text_slice plain = behind(s->name, "stablehlo."), check = behind(s->name, "check.");
  ir_kind kind = plain.length ? ir_kind_from_name(plain.data, plain.length) : IR_NO_OP;
  if (quantized && takes_stored(kind)) return run_stored(p, s, kind);
  bool calls = text_is(s->name, "call") || text_is(s->name, "func.call") || text_is(s->name, "stablehlo.composite");
  if (quantized && !calls && !text_is(s->name, "stablehlo.uniform_quantize") &&
      !text_is(s->name, "stablehlo.uniform_dequantize"))
    return parse_run_quantized(p, s);
  const parse_row *row = parse_find(legal, sizeof legal / sizeof *legal, s->name);
  if (!row) row = parse_find_deprecated(s->name);
  if (!row) row = parse_find_dynamic(s->name);
  if (row) return row->run(p, s);
  if (check.length) return parse_run_check(p, s, check);
  if (text_is(s->name, "sdy.manual_computation")) return parse_append(p, s, IR_MANUAL_COMPUTATION, &s->attrs);
  if (is_the_same(s) && s->operands.count == s->result_types.count)
    return parse_results(p, s, s->operands.count, s->operands.data);
  if (kind == IR_CUSTOM_CALL) return run_custom_call(p, s);
  text_slice chlo = behind(s->name, "chlo.");
  if (chlo.length) return parse_run_chlo(p, s, chlo);
  if (kind == IR_NO_OP || (ir_ops[kind].flags & IR_COMPOSITE)) UNSUPPORTED("this operation is not supported");
  return has_tuples(s) ? run_flat(p, s, kind) : parse_append(p, s, kind, &s->attrs);
}
