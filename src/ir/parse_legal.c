/* What a statement means: the row of ops.def that it names, or, for operations that are not rows, the same said with
 * rows. Those are the deprecated ones, the dynamic ones (whose shapes are known numbers here), CHLO's, calls, tuples, and
 * the checks of test files. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
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

static bool expect_counts(parser *p, const statement *s, uint32_t operands, uint32_t results) {
  if (s->operands.count != operands || s->result_types.count != results)
    FAIL("%u operands and %u results, expected %u and %u", s->operands.count, s->result_types.count, operands, results);
  return true;
}

static ir_value operand(const statement *s, uint32_t i) { return s->operands.data[i]; }
static ir_type type_of(const parser *p, ir_value v) { return ir_type_of(p->b.func, v); }
static ttpu_dtype result_dtype(const statement *s) { return (ttpu_dtype)s->result_types.data[0].type.dtype; }

/* An attribute that is an integer, or `otherwise`. */
static int64_t integer_attr(const statement *s, const char *name, int64_t otherwise) {
  const node *n = node_find(&s->attrs, name);
  return n && n->kind == NODE_INT ? n->i : otherwise;
}

static bool dimension_attr(parser *p, const statement *s, const char *name, uint32_t rank, uint32_t *out) {
  int64_t d = integer_attr(s, name, -1);
  if (d < 0 || d >= rank) FAIL("%s is %lld, expected [0, %u)", name, (long long)d, rank);
  *out = (uint32_t)d;
  return true;
}

/* The numbers of an operand that is a shape or a list of positions. */
static bool known_operand(parser *p, const statement *s, uint32_t i, const int64_t **numbers, uint32_t *count) {
  *numbers = parse_known(p, operand(s, i), count);
  if (!*numbers) UNSUPPORTED("operand %u is not known before the program runs", i);
  return true;
}

/* A shape: of the result as it is written, where that says it. */
static bool known_shape(parser *p, const statement *s, uint32_t i, const int64_t **dims, uint32_t *rank) {
  const text_type *written = &s->result_types.data[0];
  bool is_written = s->result_types.count == 1 && !written->dynamic && !written->unranked && !written->tuple;
  ir_type shape = type_of(p, operand(s, i));
  if (shape.rank != 1 || !base_dtype_is_integer((ttpu_dtype)shape.dtype))
    FAIL("operand %u is %s, expected a list of integers", i, IR_SHOW(shape));
  const int64_t *known = parse_known(p, operand(s, i), rank);
  if (!known && is_written) {
    *dims = written->type.dims, *rank = written->type.rank;
    return true;
  }
  TRY(known_operand(p, s, i, dims, rank));
  if (*rank > TTPU_MAX_RANK) FAIL("a shape of %u dimensions: at most %d are possible", *rank, TTPU_MAX_RANK);
  for (uint32_t d = 0; d < *rank; ++d)
    if ((*dims)[d] < 0) FAIL("dimension %u of the shape is %lld", d, (long long)(*dims)[d]);
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
                 kind == IR_REDUCE_SCATTER || kind == IR_SELECT_AND_SCATTER;
  if (!reduces || s->region_count == 0) return true;
  const ir_region *region = s->regions[s->region_count - 1];
  uint32_t pairs = region->arg_count / 2, indices = kind == IR_SCATTER ? pairs : UINT32_MAX;
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
  TRY(expect_counts(p, s, 1, 1));
  if (!(operand(s, 0) & TUPLE_VALUE)) FAIL("the operand is no tuple");
  const values *tuple = &p->tuples[operand(s, 0) & ~(uint32_t)TUPLE_VALUE];
  int64_t index = integer_attr(s, "index", -1);
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

/* ---- deprecated operations ------------------------------------------------------------------ */

static bool run_broadcast(parser *p, statement *s) {
  TRY(expect_counts(p, s, 1, 1));
  const ir_type x = type_of(p, operand(s, 0));
  const node *sizes = node_find(&s->attrs, "broadcast_sizes");
  ir_i64s list = {NULL, 0};
  if (!sizes) FAIL("no attribute broadcast_sizes");
  TRY(text_list(&p->text, "broadcast_sizes", sizes, &list));
  int64_t dims[TTPU_MAX_RANK], map[TTPU_MAX_RANK];
  if (list.count + x.rank > TTPU_MAX_RANK) FAIL("a tensor of more than %d dimensions", TTPU_MAX_RANK);
  for (uint32_t d = 0; d < list.count; ++d) dims[d] = list.data[d];
  for (uint32_t d = 0; d < x.rank; ++d) dims[list.count + d] = x.dims[d], map[d] = list.count + d;
  return parse_result(p, s, ir_broadcast_in_dim(&p->b, operand(s, 0), list.count + x.rank, dims, map));
}

static ir_precision precision_of(const parser *p, const statement *s) {
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
  const node *config = node_find(&s->attrs, "precision_config");
  int finest = 0;
  for (uint32_t i = 0; config && config->kind == NODE_ARRAY && i < config->count; ++i)
    for (int k = 0; k < 3; ++k) {
      const node *one = &config->entries[i].value;
      if ((text_is(one->value, names[k]) || text_is(one->text, names[k])) && k > finest) finest = k;
    }
  return (ir_precision)(finest > (int)p->options->precision ? finest : (int)p->options->precision);
}

/* Vectors and matrices: the last dimension of the left with the first of the right. */
static bool run_dot(parser *p, statement *s) {
  TRY(expect_counts(p, s, 2, 1));
  uint32_t left = type_of(p, operand(s, 0)).rank, right = type_of(p, operand(s, 1)).rank;
  if (left < 1 || left > 2 || right < 1 || right > 2) FAIL("operands of rank %u and %u, expected 1 or 2", left, right);
  const int64_t last[1] = {left - 1}, first[1] = {0};
  const ir_dot_general_attrs attrs = {.lhs_contracting_dimensions = {last, 1},
                                      .rhs_contracting_dimensions = {first, 1},
                                      .precision = precision_of(p, s)};
  return parse_result(p, s, ir_dot_general(&p->b, operand(s, 0), operand(s, 1), &attrs, result_dtype(s)));
}

/* ---- einsum --------------------------------------------------------------------------------- */

/* The letters of one operand or of the result. */
typedef struct labels {
  char at[TTPU_MAX_RANK];
  uint32_t count;
} labels;

static bool has_label(const labels *l, char c) { return memchr(l->at, c, l->count) != NULL; }

/* "ab,bc->ac" */
static bool read_einsum(parser *p, const statement *s, uint32_t operands, labels *in, labels *out) {
  const node *config = node_find(&s->attrs, "einsum_config");
  if (!config || config->kind != NODE_STRING) FAIL("no einsum_config");
  const char *c = config->value.data;
  labels *list[3] = {&in[0], operands == 2 ? &in[1] : out, out};
  uint32_t part = 0;
  for (; *c; ++c) {
    if (*c == ' ') continue;
    if (*c == ',' || (c[0] == '-' && c[1] == '>')) {
      if (++part > operands || (*c == ',') != (part == 1 && operands == 2))
        FAIL("'%s' is no einsum of %u operands", config->value.data, operands);
      c += *c == '-';
      continue;
    }
    if (!isalpha((unsigned char)*c)) UNSUPPORTED("'%c' in einsum_config", *c);
    if (list[part]->count == TTPU_MAX_RANK || has_label(list[part], *c))
      UNSUPPORTED("a repeated label in einsum_config");
    list[part]->at[list[part]->count++] = *c;
  }
  if (part != operands) FAIL("'%s' is no einsum of %u operands", config->value.data, operands);
  for (uint32_t i = 0; i < operands; ++i)
    if (in[i].count != type_of(p, operand(s, i)).rank) FAIL("operand %u has another rank than einsum_config", i);
  return true;
}

/* Sums over the labels that nobody else has. */
static ir_value sum_alone(parser *p, ir_value x, labels *own, const labels *other, const labels *out) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = 0;
  labels kept = {.count = 0};
  for (uint32_t i = 0; i < own->count; ++i) {
    if (has_label(out, own->at[i]) || (other && has_label(other, own->at[i]))) kept.at[kept.count++] = own->at[i];
    else dims[count++] = i;
  }
  *own = kept;
  return count ? ir_reduce(&p->b, IR_ADD, x, count, dims) : x;
}

/* Into the order of `out`. */
static bool arrange(parser *p, statement *s, ir_value x, const labels *have, const labels *out) {
  int64_t permutation[TTPU_MAX_RANK];
  if (have->count != out->count) FAIL("a label of the result comes from no operand");
  for (uint32_t i = 0; i < out->count; ++i) {
    const char *found = memchr(have->at, out->at[i], have->count);
    if (!found) FAIL("the label '%c' of the result comes from no operand", out->at[i]);
    permutation[i] = found - have->at;
  }
  return parse_result(p, s, ir_transpose(&p->b, x, permutation));
}

static bool run_unary_einsum(parser *p, statement *s) {
  labels in[1] = {{.count = 0}}, out = {.count = 0};
  TRY(expect_counts(p, s, 1, 1));
  TRY(read_einsum(p, s, 1, in, &out));
  ir_value x = sum_alone(p, operand(s, 0), &in[0], NULL, &out);
  return arrange(p, s, x, &in[0], &out);
}

static bool run_einsum(parser *p, statement *s) {
  labels in[2] = {{.count = 0}, {.count = 0}}, out = {.count = 0}, have = {.count = 0};
  int64_t batch[2][TTPU_MAX_RANK], contract[2][TTPU_MAX_RANK];
  uint32_t batches = 0, contracts = 0;
  TRY(expect_counts(p, s, 2, 1));
  TRY(read_einsum(p, s, 2, in, &out));
  ir_value x = sum_alone(p, operand(s, 0), &in[0], &in[1], &out), y = sum_alone(p, operand(s, 1), &in[1], &in[0], &out);
  for (uint32_t i = 0; i < in[0].count; ++i) {
    const char *other = memchr(in[1].at, in[0].at[i], in[1].count);
    if (!other) continue;
    bool kept = has_label(&out, in[0].at[i]);
    int64_t (*lists)[TTPU_MAX_RANK] = kept ? batch : contract;
    uint32_t at = kept ? batches++ : contracts++;
    lists[0][at] = i, lists[1][at] = other - in[1].at;
    if (kept) have.at[have.count++] = in[0].at[i];
  }
  for (int side = 0; side < 2; ++side)
    for (uint32_t i = 0; i < in[side].count; ++i)
      if (!has_label(&in[!side], in[side].at[i]) && have.count < TTPU_MAX_RANK) have.at[have.count++] = in[side].at[i];
  const ir_dot_general_attrs attrs = {
      {batch[0], batches}, {batch[1], batches}, {contract[0], contracts}, {contract[1], contracts}, precision_of(p, s)};
  return arrange(p, s, ir_dot_general(&p->b, x, y, &attrs, result_dtype(s)), &have, &out);
}

/* ---- selecting ------------------------------------------------------------------------------ */

/* Slices of the operand along `dim`, one for each index; the first batch_dims dimensions are walked together. */
static bool run_torch_index_select(parser *p, statement *s) {
  uint32_t dim, batch = (uint32_t)integer_attr(s, "batch_dims", 0);
  int64_t offset[TTPU_MAX_RANK], batching[TTPU_MAX_RANK], sizes[TTPU_MAX_RANK];
  TRY(expect_counts(p, s, 2, 1));
  ir_type x = type_of(p, operand(s, 0)), index = type_of(p, operand(s, 1));
  TRY(dimension_attr(p, s, "dim", x.rank, &dim));
  if (batch > dim || batch > index.rank) FAIL("batch_dims is %u", batch);
  uint32_t offsets = 0;
  for (uint32_t d = 0; d < batch; ++d) batching[d] = d;
  for (uint32_t d = 0; d < x.rank; ++d) {
    sizes[d] = d < batch || d == dim ? (x.dims[d] ? 1 : 0) : x.dims[d];
    if (d < batch || d == dim) continue;
    offset[offsets++] = d < dim ? d : d - 1 + index.rank - batch;
  }
  const int64_t collapsed[1] = {dim};
  const ir_gather_attrs attrs = {.offset_dims = {offset, offsets},
                                 .collapsed_slice_dims = {collapsed, 1},
                                 .operand_batching_dims = {batching, batch},
                                 .start_indices_batching_dims = {batching, batch},
                                 .start_index_map = {collapsed, 1},
                                 .index_vector_dim = index.rank,
                                 .slice_sizes = {sizes, x.rank}};
  return parse_result(p, s, ir_gather(&p->b, operand(s, 0), operand(s, 1), &attrs));
}

/* ---- batch normalization: the formulas of the specification ---------------------------------- */

typedef struct batch_norm {
  ir_type type;
  uint32_t feature;
  int64_t dims[TTPU_MAX_RANK]; /* all but the feature */
  double count;                /* elements of a feature */
  ir_value epsilon;            /* of the operand's type */
} batch_norm;

static bool open_batch_norm(parser *p, const statement *s, batch_norm *n) {
  n->type = type_of(p, operand(s, 0));
  TRY(dimension_attr(p, s, "feature_index", n->type.rank, &n->feature));
  const node *epsilon = node_find(&s->attrs, "epsilon");
  if (!epsilon || (epsilon->kind != NODE_FLOAT && epsilon->kind != NODE_INT)) FAIL("no epsilon");
  double value = epsilon->kind == NODE_FLOAT ? epsilon->d : (double)epsilon->i;
  n->epsilon = ir_like_f64(&p->b, operand(s, 0), value);
  n->count = 1;
  for (uint32_t d = 0, at = 0; d < n->type.rank; ++d)
    if (d != n->feature) n->dims[at++] = d, n->count *= (double)n->type.dims[d];
  return parse_check_builder(p);
}

static ir_value by_feature(parser *p, const batch_norm *n, ir_value v) {
  const int64_t map[1] = {n->feature};
  return ir_broadcast_in_dim(&p->b, v, n->type.rank, n->type.dims, map);
}

static ir_value feature_sum(parser *p, const batch_norm *n, ir_value v) {
  return ir_reduce(&p->b, IR_ADD, v, n->type.rank - 1u, n->dims);
}

static ir_value feature_mean(parser *p, const batch_norm *n, ir_value v) {
  ir_value sum = feature_sum(p, n, v);
  return p->b.status ? 0 : ir_divide(&p->b, sum, ir_like_f64(&p->b, sum, n->count));
}

/* (x - mean) / sqrt(variance + epsilon) * scale + offset, all of x's type. */
static ir_value normalize(parser *p, const batch_norm *n, const statement *s, ir_value mean, ir_value variance) {
  ir_builder *b = &p->b;
  ir_value deviation = ir_sqrt(b, ir_add(b, by_feature(p, n, variance), n->epsilon));
  ir_value normal = ir_divide(b, ir_subtract(b, operand(s, 0), by_feature(p, n, mean)), deviation);
  return ir_add(b, ir_multiply(b, normal, by_feature(p, n, operand(s, 1))), by_feature(p, n, operand(s, 2)));
}

static bool run_batch_norm_inference(parser *p, statement *s) {
  batch_norm n;
  TRY(expect_counts(p, s, 5, 1));
  TRY(open_batch_norm(p, s, &n));
  return parse_result(p, s, normalize(p, &n, s, operand(s, 3), operand(s, 4)));
}

static bool run_batch_norm_training(parser *p, statement *s) {
  batch_norm n;
  ir_builder *b = &p->b;
  TRY(expect_counts(p, s, 3, 3));
  TRY(open_batch_norm(p, s, &n));
  ir_value mean = feature_mean(p, &n, operand(s, 0));
  ir_value centered = ir_subtract(b, operand(s, 0), by_feature(p, &n, mean));
  ir_value variance = feature_mean(p, &n, ir_multiply(b, centered, centered));
  const ir_value results[3] = {normalize(p, &n, s, mean, variance), mean, variance};
  return parse_results(p, s, 3, results);
}

static bool run_batch_norm_grad(parser *p, statement *s) {
  batch_norm n;
  ir_builder *b = &p->b;
  TRY(expect_counts(p, s, 5, 3));
  TRY(open_batch_norm(p, s, &n));
  ir_value gradient = operand(s, 4), centered = ir_subtract(b, operand(s, 0), by_feature(p, &n, operand(s, 2)));
  ir_value deviation = ir_sqrt(b, ir_add(b, by_feature(p, &n, operand(s, 3)), n.epsilon));
  ir_value count = ir_like_f64(b, operand(s, 0), n.count);
  ir_value offset = feature_sum(p, &n, gradient);
  ir_value product = feature_sum(p, &n, ir_multiply(b, gradient, centered));
  ir_value i1 = ir_multiply(b, gradient, count), i2 = by_feature(p, &n, offset);
  ir_value variance = ir_add(b, by_feature(p, &n, operand(s, 3)), n.epsilon);
  ir_value i3 = ir_divide(b, ir_multiply(b, by_feature(p, &n, product), centered), variance);
  ir_value rest = ir_subtract(b, ir_subtract(b, i1, i2), i3);
  ir_value factor = ir_divide(b, ir_divide(b, by_feature(p, &n, operand(s, 1)), deviation), count);
  ir_value scale = feature_sum(p, &n, ir_multiply(b, gradient, ir_divide(b, centered, deviation)));
  const ir_value results[3] = {ir_multiply(b, factor, rest), scale, offset};
  return parse_results(p, s, 3, results);
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* Each rng of a program has a stream of its own, numbered by its place; the same program gives the same numbers. */
static ir_value uniform_bits(parser *p, uint32_t rank, const int64_t *dims) {
  const uint64_t state[2] = {0x853c49e6748fea9bull, (uint64_t)p->b.func->value_count << 32};
  const int64_t two[1] = {2};
  ir_builder *b = &p->b;
  return ir_philox(b, ir_constant(b, ir_tensor(b, TTPU_U64, 1, two), (ir_data){state, false}), TTPU_U64, rank, dims);
}

/* In [0, 1), with as many bits as the mantissa of f64 has. */
static ir_value uniform_unit(parser *p, uint32_t rank, const int64_t *dims) {
  ir_builder *b = &p->b;
  ir_value bits = uniform_bits(p, rank, dims);
  bits = ir_shift_right_logical(b, bits, ir_fill_i64(b, TTPU_U64, rank, dims, 11));
  return ir_multiply(b, ir_convert(b, bits, TTPU_F64), ir_fill_f64(b, TTPU_F64, rank, dims, 0x1p-53));
}

static bool run_rng(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank;
  ir_builder *b = &p->b;
  TRY(expect_counts(p, s, 3, 1));
  TRY(known_shape(p, s, 2, &dims, &rank));
  const node *distribution = node_find(&s->attrs, "rng_distribution");
  bool normal = distribution && (text_is(distribution->value, "NORMAL") || text_is(distribution->text, "NORMAL"));
  ttpu_dtype dtype = (ttpu_dtype)type_of(p, operand(s, 0)).dtype;
  ir_value low = ir_broadcast_in_dim(b, operand(s, 0), rank, dims, NULL);
  ir_value high = ir_broadcast_in_dim(b, operand(s, 1), rank, dims, NULL);
  if (base_dtype_is_integer(dtype) || dtype == TTPU_BOOL) {
    if (normal) FAIL("a normal distribution of %s", base_dtypes[dtype].hlo_name);
    ir_value span =
        ir_convert(b, ir_subtract(b, ir_convert(b, high, TTPU_I64), ir_convert(b, low, TTPU_I64)), TTPU_U64);
    ir_value drawn = ir_convert(b, ir_remainder(b, uniform_bits(p, rank, dims), span), TTPU_I64);
    return parse_result(p, s, ir_convert(b, ir_add(b, drawn, ir_convert(b, low, TTPU_I64)), dtype));
  }
  ir_value unit = uniform_unit(p, rank, dims), scale;
  if (normal) { /* sqrt(2) erf_inv(2u - 1) */
    ir_value one = ir_fill_f64(b, TTPU_F64, rank, dims, 1), two = ir_fill_f64(b, TTPU_F64, rank, dims, 2);
    unit = ir_add(b, unit, ir_fill_f64(b, TTPU_F64, rank, dims, 0x1p-54));
    unit = ir_multiply(b, ir_erf_inv(b, ir_subtract(b, ir_multiply(b, unit, two), one)), ir_sqrt(b, two));
    scale = ir_convert(b, high, TTPU_F64);
  } else {
    scale = ir_subtract(b, ir_convert(b, high, TTPU_F64), ir_convert(b, low, TTPU_F64));
  }
  ir_value drawn = ir_add(b, ir_multiply(b, unit, scale), ir_convert(b, low, TTPU_F64));
  return parse_result(p, s, ir_convert(b, drawn, dtype));
}

/* ---- dynamic operations --------------------------------------------------------------------- */

static bool run_get_dimension_size(parser *p, statement *s) {
  uint32_t dim;
  TRY(expect_counts(p, s, 1, 1));
  ir_type x = type_of(p, operand(s, 0));
  TRY(dimension_attr(p, s, "dimension", x.rank, &dim));
  return parse_result(p, s, ir_scalar_i64(&p->b, TTPU_I32, x.dims[dim]));
}

/* A tensor of which the first `size` along a dimension count is those. */
static bool run_set_dimension_size(parser *p, statement *s) {
  uint32_t dim, count;
  const int64_t *size;
  TRY(expect_counts(p, s, 2, 1));
  ir_type x = type_of(p, operand(s, 0));
  TRY(dimension_attr(p, s, "dimension", x.rank, &dim));
  TRY(known_operand(p, s, 1, &size, &count));
  if (count != 1 || size[0] < 0 || size[0] > x.dims[dim])
    FAIL("size is %lld, expected [0, %lld]", (long long)size[0], (long long)x.dims[dim]);
  return parse_result(p, s, ir_slice_dim(&p->b, operand(s, 0), dim, 0, size[0], 1));
}

static bool run_dynamic_reshape(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank;
  TRY(expect_counts(p, s, 2, 1));
  TRY(known_shape(p, s, 1, &dims, &rank));
  return parse_result(p, s, ir_reshape(&p->b, operand(s, 0), rank, dims));
}

static bool run_dynamic_iota(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank, dim;
  TRY(expect_counts(p, s, 1, 1));
  TRY(known_shape(p, s, 0, &dims, &rank));
  TRY(dimension_attr(p, s, "iota_dimension", rank, &dim));
  return parse_result(p, s, ir_iota(&p->b, result_dtype(s), rank, dims, dim));
}

static bool run_dynamic_broadcast_in_dim(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank;
  ir_i64s map = {NULL, 0};
  TRY(expect_counts(p, s, 2, 1));
  TRY(known_shape(p, s, 1, &dims, &rank));
  const node *n = node_find(&s->attrs, "broadcast_dimensions");
  if (!n) FAIL("no broadcast_dimensions");
  TRY(text_list(&p->text, "broadcast_dimensions", n, &map));
  if (map.count != type_of(p, operand(s, 0)).rank) FAIL("%u broadcast_dimensions", map.count);
  return parse_result(p, s, ir_broadcast_in_dim(&p->b, operand(s, 0), rank, dims, map.data));
}

static bool run_dynamic_pad(parser *p, statement *s) {
  const int64_t *edges[3];
  uint32_t count;
  TRY(expect_counts(p, s, 5, 1));
  uint32_t rank = type_of(p, operand(s, 0)).rank;
  for (uint32_t i = 0; i < 3; ++i) {
    TRY(known_operand(p, s, 2 + i, &edges[i], &count));
    if (count != rank) FAIL("operand %u has %u elements, expected %u", 2 + i, count, rank);
  }
  return parse_result(p, s, ir_pad(&p->b, operand(s, 0), operand(s, 1), edges[0], edges[1], edges[2]));
}

/* Element i of a list, as a scalar. */
static ir_value element(parser *p, ir_value list, uint32_t i) {
  return ir_reshape(&p->b, ir_slice_dim(&p->b, list, 0, i, i + 1, 1), 0, ir_no_dims);
}

/* Sizes, limit - start, where limit is written as start + sizes and sizes are known. */
static const int64_t *known_extent(parser *p, const statement *s, uint32_t *count) {
  const ir_op *limit = ir_def(p->b.func, operand(s, 2));
  if (!limit || limit->kind != IR_ADD) return NULL;
  for (int side = 0; side < 2; ++side)
    if (parse_same(p, limit->operands[side], operand(s, 1), 0)) return parse_known(p, limit->operands[!side], count);
  return NULL;
}

/* start, limit and strides are operands. Where only the sizes are known it is a dynamic slice, which moves a start so that
 * the slice fits. */
static bool run_real_dynamic_slice(parser *p, statement *s) {
  uint32_t counts[3];
  TRY(expect_counts(p, s, 4, 1));
  ir_type x = type_of(p, operand(s, 0));
  const int64_t *strides = parse_known(p, operand(s, 3), &counts[2]),
                *start = parse_known(p, operand(s, 1), &counts[0]), *limit = parse_known(p, operand(s, 2), &counts[1]);
  if (!strides || counts[2] != x.rank) UNSUPPORTED("the strides are not known before the program runs");
  if (start && limit && counts[0] == x.rank && counts[1] == x.rank)
    return parse_result(p, s, ir_slice(&p->b, operand(s, 0), start, limit, strides));
  const int64_t *sizes = known_extent(p, s, &counts[1]);
  const text_type *written = &s->result_types.data[0];
  if (!sizes && !written->dynamic && !written->unranked) sizes = written->type.dims, counts[1] = written->type.rank;
  if (!sizes || counts[1] != x.rank) UNSUPPORTED("the size of the slice is not known before the program runs");
  ir_value starts[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (strides[d] != 1) UNSUPPORTED("a stride of %lld from a start that is not known", (long long)strides[d]);
    starts[d] = element(p, operand(s, 1), d);
  }
  return parse_result(p, s, ir_dynamic_slice(&p->b, operand(s, 0), starts, sizes));
}

/* The statement as another one, with an operand turned into an attribute. */
static bool run_with_known(parser *p, statement *s, uint32_t i, const char *attribute, const char *name) {
  const int64_t *numbers;
  uint32_t count;
  TRY(known_operand(p, s, i, &numbers, &count));
  entry one = {{attribute, strlen(attribute)}, {.kind = NODE_LIST, .numbers = {numbers, count}}};
  const node dict = {.kind = NODE_DICT, .entries = &one, .count = 1};
  TRY(parse_merge_attrs(p, s, &dict));
  --s->operands.count;
  return parse_append(p, s, ir_kind_from_name(name, strlen(name)), &s->attrs);
}

static bool run_dynamic_gather(parser *p, statement *s) {
  return expect_counts(p, s, 3, 1) && run_with_known(p, s, 2, "slice_sizes", "gather");
}
static bool run_dynamic_conv(parser *p, statement *s) {
  return expect_counts(p, s, 3, 1) && run_with_known(p, s, 2, "padding", "convolution");
}

/* ---- quantization --------------------------------------------------------------------------- */

static bool run_uniform_quantize(parser *p, statement *s) {
  TRY(expect_counts(p, s, 1, 1));
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
  TRY(expect_counts(p, s, 1, 1));
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

/* ---- checks of test files ------------------------------------------------------------------- */

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
  check.min_ulp = (uint64_t)integer_attr(s, "min_ulp_difference", 0);
  check.max_ulp = (uint64_t)integer_attr(s, "max_ulp_difference", 3);
  for (const char *c = p->text.start; c < p->text.at; ++c) check.line += *c == '\n';
  o->checks[o->check_count++] = check;
  return parse_push_value(p, &p->checked, actual) && parse_push_value(p, &p->checked, expected);
}

static bool check_probe(parser *p, const statement *s) {
  const node *name = node_find(&s->attrs, "probe_id");
  int64_t iteration = integer_attr(s, "iteration", 0);
  if (!name || name->kind != NODE_STRING) FAIL("no probe_id");
  for (uint32_t i = 0; i < p->probe_count; ++i)
    if (p->probes[i].name.length == name->value.length &&
        memcmp(p->probes[i].name.data, name->value.data, name->value.length) == 0 && iteration-- == 0)
      return add_check(p, s, IR_CHECK_EQ, operand(s, 0), p->probes[i].value);
  FAIL("nothing was probed as \"%s\"", name->value.data);
}

/* check.expect_eq and its like; `name` is without the dialect. */
static bool run_check(parser *p, statement *s, text_slice name) {
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

static bool run_probe(parser *p, statement *s) {
  const node *name = node_find(&s->attrs, "probe_id");
  TRY(expect_counts(p, s, 1, 1));
  if (!name || name->kind != NODE_STRING) FAIL("no probe_id");
  if (p->b.region == &p->b.func->body) {
    TRY(parse_push(p, (void **)&p->probes, p->probe_count, &p->probe_capacity, sizeof *p->probes));
    p->probes[p->probe_count++] = (probe){name->value, operand(s, 0)};
  }
  return parse_result(p, s, operand(s, 0));
}

static bool run_nothing(parser *p, statement *s) {
  (void)p, (void)s;
  return true;
}

/* ---- which is which ------------------------------------------------------------------------- */

static bool run_cross_replica_sum(parser *p, statement *s);

static const struct {
  const char *name;
  bool (*run)(parser *p, statement *s);
} legal[] = {
    {"call", run_call},
    {"func.call", run_call},
    {"stablehlo.composite", run_composite},
    {"stablehlo.tuple", run_tuple},
    {"stablehlo.get_tuple_element", run_get_tuple_element},
    {"stablehlo.async_start", run_async_start},
    {"stablehlo.async_done", run_async_done},
    {"stablehlo.convert", run_convert},
    {"stablehlo.cross-replica-sum", run_cross_replica_sum},
    {"stablehlo.broadcast", run_broadcast},
    {"stablehlo.dot", run_dot},
    {"stablehlo.einsum", run_einsum},
    {"stablehlo.unary_einsum", run_unary_einsum},
    {"stablehlo.torch_index_select", run_torch_index_select},
    {"stablehlo.batch_norm_inference", run_batch_norm_inference},
    {"stablehlo.batch_norm_training", run_batch_norm_training},
    {"stablehlo.batch_norm_grad", run_batch_norm_grad},
    {"stablehlo.rng", run_rng},
    {"stablehlo.get_dimension_size", run_get_dimension_size},
    {"stablehlo.set_dimension_size", run_set_dimension_size},
    {"stablehlo.dynamic_reshape", run_dynamic_reshape},
    {"stablehlo.dynamic_iota", run_dynamic_iota},
    {"stablehlo.dynamic_broadcast_in_dim", run_dynamic_broadcast_in_dim},
    {"stablehlo.dynamic_pad", run_dynamic_pad},
    {"stablehlo.real_dynamic_slice", run_real_dynamic_slice},
    {"stablehlo.dynamic_gather", run_dynamic_gather},
    {"stablehlo.dynamic_conv", run_dynamic_conv},
    {"stablehlo.uniform_quantize", run_uniform_quantize},
    {"stablehlo.uniform_dequantize", run_uniform_dequantize},
    {"interpreter.probe", run_probe},
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
  if (check.length) return run_check(p, s, check);
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
  TRY(expect_counts(p, s, 1, 1));
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

bool parse_run(parser *p, statement *s) {
  bool quantized = parse_is_quantized(p, s);
  text_slice plain = behind(s->name, "stablehlo."), check = behind(s->name, "check.");
  ir_kind kind = plain.length ? ir_kind_from_name(plain.data, plain.length) : IR_NO_OP;
  if (quantized && takes_stored(kind)) return run_stored(p, s, kind);
  bool calls = text_is(s->name, "call") || text_is(s->name, "func.call") || text_is(s->name, "stablehlo.composite");
  if (quantized && !calls && !text_is(s->name, "stablehlo.uniform_quantize") &&
      !text_is(s->name, "stablehlo.uniform_dequantize"))
    return parse_run_quantized(p, s);
  for (size_t i = 0; i < sizeof legal / sizeof *legal; ++i)
    if (text_is(s->name, legal[i].name)) return legal[i].run(p, s);
  if (check.length) return run_check(p, s, check);
  if (text_is(s->name, "sdy.manual_computation")) return parse_append(p, s, IR_MANUAL_COMPUTATION, &s->attrs);
  if (is_the_same(s) && s->operands.count == s->result_types.count)
    return parse_results(p, s, s->operands.count, s->operands.data);
  if (kind == IR_CUSTOM_CALL) return run_custom_call(p, s);
  text_slice chlo = behind(s->name, "chlo.");
  if (chlo.length) return parse_run_chlo(p, s, chlo);
  if (kind == IR_NO_OP || (ir_ops[kind].flags & IR_COMPOSITE)) UNSUPPORTED("this operation is not supported");
  return has_tuples(s) ? run_flat(p, s, kind) : parse_append(p, s, kind, &s->attrs);
}
