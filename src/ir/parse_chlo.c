/* CHLO: what frontends write above StableHLO, said with StableHLO or with our composites of the same meaning. */
#include <math.h>
#include <string.h>

#include "ir/parse_op.h"

/* ---- names that are ours too ----------------------------------------------------------------- */

/* CHLO's operations mean what ours of the same name do; its top_k gives 32-bit indices. XLA's tools write the same as
 * custom calls to "mhlo.<name>", with attributes in a dictionary of their own. */
bool parse_run_composite(parser *p, statement *s, ir_kind kind, const node *attrs) {
  if (kind != IR_TOP_K) return parse_append(p, s, kind, attrs);
  const node *k = node_find(attrs, "k"), *largest = node_find(attrs, "largest");
  if (!k || k->kind != NODE_INT || s->operands.count != 1 || s->result_types.count != 2)
    FAIL("expected one operand, k and two results");
  const ir_top_k_attrs top = {k->i, !largest || largest->kind != NODE_BOOL || largest->i, true};
  ir_value both = ir_append(&p->b, IR_TOP_K, 1, s->operands.data, &top, 0, NULL, 0, NULL);
  const ir_value results[2] = {both, both ? ir_convert(&p->b, both + 1, TTPU_I32) : 0};
  return parse_results(p, s, 2, results);
}

/* chlo.broadcast_add: NumPy's broadcasting in front of the operation. */
static bool run_broadcasting(parser *p, statement *s, text_slice name) {
  ir_kind kind = ir_kind_from_name(name.data, name.length);
  int64_t dims[TTPU_MAX_RANK];
  uint32_t rank = 0;
  if (kind == IR_NO_OP) UNSUPPORTED("this operation is not supported");
  if (node_find(&s->attrs, "broadcast_dimensions")) UNSUPPORTED("broadcast_dimensions");
  for (uint32_t i = 0; i < s->operands.count; ++i)
    if (type_of(p, operand(s, i)).rank > rank) rank = type_of(p, operand(s, i)).rank;
  for (uint32_t d = 0; d < rank; ++d) dims[d] = 1;
  for (uint32_t i = 0; i < s->operands.count; ++i) {
    ir_type x = type_of(p, operand(s, i));
    for (uint32_t d = 0; d < x.rank; ++d)
      if (x.dims[d] != 1) dims[rank - x.rank + d] = x.dims[d];
  }
  for (uint32_t i = 0; i < s->operands.count; ++i)
    s->operands.data[i] = ir_broadcast_to(&p->b, operand(s, i), rank, dims);
  return parse_check_builder(p) && parse_append(p, s, kind, &s->attrs);
}

/* (a + ib)^2 = (a - b)(a + b) + 2ab i, with a real part of 0 for |a| = |b| however large. */
static bool run_square(parser *p, statement *s) {
  ir_builder *b = &p->b;
  TRY(parse_expect_counts(p, s, 1, 1));
  ir_value x = operand(s, 0);
  if (!base_dtype_is_complex((ttpu_dtype)type_of(p, x).dtype)) return parse_result(p, s, ir_multiply(b, x, x));
  ir_value re = ir_real(b, x), im = ir_imag(b, x);
  ir_value product = ir_multiply(b, ir_subtract(b, re, im), ir_add(b, re, im));
  ir_value same = ir_compare(b, IR_EQ, ir_abs(b, re), ir_abs(b, im)), half = ir_multiply(b, re, im);
  product = ir_select(b, ir_and_bits(b, same, ir_is_finite(b, re)), ir_zeros_like(b, re), product);
  return parse_result(p, s, ir_complex(b, product, ir_add(b, half, half)));
}

static bool run_conj(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
  ir_value x = operand(s, 0);
  ir_builder *b = &p->b;
  if (!base_dtype_is_complex((ttpu_dtype)type_of(p, x).dtype)) return parse_result(p, s, x);
  return parse_result(p, s, ir_complex(b, ir_real(b, x), ir_negate(b, ir_imag(b, x))));
}

static bool run_infinity(parser *p, statement *s, ir_value x, double value) {
  return parse_result(p, s, ir_compare(&p->b, IR_EQ, x, ir_like_f64(&p->b, x, value)));
}
static bool run_is_inf(parser *p, statement *s) {
  return parse_expect_counts(p, s, 1, 1) && run_infinity(p, s, ir_abs(&p->b, operand(s, 0)), INFINITY);
}
static bool run_is_pos_inf(parser *p, statement *s) {
  return parse_expect_counts(p, s, 1, 1) && run_infinity(p, s, operand(s, 0), INFINITY);
}
static bool run_is_neg_inf(parser *p, statement *s) {
  return parse_expect_counts(p, s, 1, 1) && run_infinity(p, s, operand(s, 0), -INFINITY);
}

static bool run_constant_like(parser *p, statement *s) {
  const node *value = node_find(&s->attrs, "value");
  TRY(parse_expect_counts(p, s, 1, 1));
  if (!value || (value->kind != NODE_FLOAT && value->kind != NODE_INT)) FAIL("no value");
  ir_type x = type_of(p, operand(s, 0));
  double number = value->kind == NODE_FLOAT ? value->d : (double)value->i;
  return parse_result(p, s, ir_fill_f64(&p->b, result_dtype(s), x.rank, x.dims, number));
}

static bool run_chlo_constant(parser *p, statement *s) { return parse_append(p, s, IR_CONSTANT, &s->attrs); }
static bool run_tan(parser *p, statement *s) { return parse_append(p, s, IR_TAN, &s->attrs); }

/* ---- the high half of a product ------------------------------------------------------------- */

/* Of 64-bit integers, from their halves; signed ones are corrected for what their signs add: a*b = (a + 2^64)*b - 2^64*b. */
static ir_value high_half_64(parser *p, ir_value x, ir_value y, bool is_signed) {
  ir_builder *b = &p->b;
  ir_type type = type_of(p, x);
  ir_value half = ir_fill_i64(b, TTPU_U64, type.rank, type.dims, 32), parts[2][2];
  ir_value low = ir_fill_i64(b, TTPU_U64, type.rank, type.dims, 0xffffffff);
  const ir_value whole[2] = {ir_convert(b, x, TTPU_U64), ir_convert(b, y, TTPU_U64)};
  for (int i = 0; i < 2; ++i) {
    parts[i][0] = ir_and_bits(b, whole[i], low);
    parts[i][1] = ir_shift_right_logical(b, whole[i], half);
  }
  ir_value ll = ir_multiply(b, parts[0][0], parts[1][0]), lh = ir_multiply(b, parts[0][0], parts[1][1]);
  ir_value hl = ir_multiply(b, parts[0][1], parts[1][0]), high = ir_multiply(b, parts[0][1], parts[1][1]);
  ir_value middle = ir_add(b, ir_shift_right_logical(b, ll, half), ir_and_bits(b, lh, low));
  middle = ir_add(b, middle, ir_and_bits(b, hl, low));
  high = ir_add(b, high, ir_shift_right_logical(b, lh, half));
  high = ir_add(b, high, ir_shift_right_logical(b, hl, half));
  high = ir_add(b, high, ir_shift_right_logical(b, middle, half));
  if (!is_signed) return high;
  ir_value none = ir_zeros_like(b, high);
  ir_value x_negative = ir_compare(b, IR_LT, x, ir_zeros_like(b, x)),
           y_negative = ir_compare(b, IR_LT, y, ir_zeros_like(b, y));
  high = ir_subtract(b, high, ir_select(b, x_negative, whole[1], none));
  return ir_convert(b, ir_subtract(b, high, ir_select(b, y_negative, whole[0], none)), TTPU_I64);
}

static bool run_mulhi(parser *p, statement *s) {
  ir_builder *b = &p->b;
  TRY(parse_expect_counts(p, s, 2, 1));
  ir_value x = operand(s, 0), y = operand(s, 1);
  ir_type type = type_of(p, x);
  ttpu_dtype dtype = (ttpu_dtype)type.dtype;
  if (!base_dtype_is_integer(dtype) || !ir_type_equal(type, type_of(p, y)))
    FAIL("operands are %s and %s, expected equal integers", IR_SHOW(type), IR_SHOW(type_of(p, y)));
  bool is_signed = base_dtype_is_signed(dtype);
  int bits = base_dtype_bits(dtype);
  if (bits == 64) return parse_result(p, s, high_half_64(p, x, y, is_signed));
  ttpu_dtype wide = is_signed ? TTPU_I64 : TTPU_U64;
  ir_value product = ir_multiply(b, ir_convert(b, x, wide), ir_convert(b, y, wide));
  ir_value by = ir_fill_i64(b, wide, type.rank, type.dims, bits);
  product = is_signed ? ir_shift_right_arithmetic(b, product, by) : ir_shift_right_logical(b, product, by);
  return parse_result(p, s, ir_convert(b, product, dtype));
}

/* ---- exp(-|x|) I1(x) ------------------------------------------------------------------------ */

#define TABLE(name, ...) static const double name[] = {__VA_ARGS__};
#include "ir/cephes.def"
#undef TABLE
#define SERIES(b, x, table) chebyshev(b, x, sizeof table / sizeof *table, table)

/* Clenshaw's sum of a Chebyshev series. */
static ir_value chebyshev(ir_builder *b, ir_value x, size_t count, const double *table) {
  ir_value b0 = ir_like_f64(b, x, table[0]), b1 = ir_like_f64(b, x, 0), b2 = b1;
  for (size_t i = 1; i < count; ++i) {
    b2 = b1;
    b1 = b0;
    b0 = ir_add(b, ir_subtract(b, ir_multiply(b, x, b1), b2), ir_like_f64(b, x, table[i]));
  }
  return ir_multiply(b, ir_subtract(b, b0, b2), ir_like_f64(b, x, 0.5));
}

/* In f64, by the series of cephes.def: up to 8 in x/2 - 2, above it in 32/x - 2. */
static bool run_bessel_i1e(parser *p, statement *s) {
  ir_builder *b = &p->b;
  TRY(parse_expect_counts(p, s, 1, 1));
  ir_value x = ir_convert(b, operand(s, 0), TTPU_F64), size = ir_abs(b, x);
  ir_value two = ir_like_f64(b, x, 2), eight = ir_like_f64(b, x, 8);
  ir_value near = ir_minimum(b, size, eight), far = ir_maximum(b, size, eight);
  ir_value near_series = SERIES(b, ir_subtract(b, ir_divide(b, near, two), two), I1_A);
  ir_value far_series = SERIES(b, ir_subtract(b, ir_divide(b, ir_like_f64(b, x, 32), far), two), I1_B);
  ir_value below = ir_multiply(b, near_series, near), above = ir_divide(b, far_series, ir_sqrt(b, far));
  ir_value y = ir_select(b, ir_compare(b, IR_LE, size, eight), below, above);
  y = ir_select(b, ir_compare(b, IR_LT, x, ir_like_f64(b, x, 0)), ir_negate(b, y), y);
  return parse_result(p, s, ir_convert(b, y, result_dtype(s)));
}

/* ---- scan ----------------------------------------------------------------------------------- */

/* One step: the slices of the inputs at `at`, without the scanned dimension. */
static ir_value take_slice(parser *p, ir_value x, uint32_t dim, ir_value at) {
  ir_builder *b = &p->b;
  ir_type type = type_of(p, x);
  ir_value starts[TTPU_MAX_RANK], zero = ir_scalar_i64(b, TTPU_I64, 0);
  int64_t sizes[TTPU_MAX_RANK], kept[TTPU_MAX_RANK];
  uint32_t count = 0;
  for (uint32_t d = 0; d < type.rank; ++d) {
    starts[d] = d == dim ? at : zero;
    sizes[d] = d == dim ? 1 : type.dims[d];
    if (d != dim) kept[count++] = type.dims[d];
  }
  return ir_reshape(b, ir_dynamic_slice(b, x, starts, sizes), count, kept);
}

static ir_value put_slice(parser *p, ir_value whole, ir_value part, uint32_t dim, ir_value at) {
  ir_builder *b = &p->b;
  ir_type type = type_of(p, whole);
  ir_value starts[TTPU_MAX_RANK], zero = ir_scalar_i64(b, TTPU_I64, 0);
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < type.rank; ++d) {
    starts[d] = d == dim ? at : zero;
    sizes[d] = d == dim ? 1 : type.dims[d];
  }
  return ir_dynamic_update_slice(b, whole, ir_reshape(b, part, type.rank, sizes), starts);
}

bool parse_repeat_region(parser *p, const ir_region *region, const ir_value *arguments, ir_value *returned) {
  ir_value *map = parse_room(p, p->b.func->value_count * sizeof *map);
  if (!map) return false;
  for (ir_value v = 0; v < region->first_arg; ++v) map[v] = v; /* what it takes from outside is here as well */
  for (uint32_t i = 0; i < region->arg_count; ++i) map[region->first_arg + i] = arguments[i];
  for (uint32_t i = 0; i + 1 < region->count; ++i) ir_copy_op(&p->b, p->b.func, region->ops[i], map);
  const ir_op *end = region->ops[region->count - 1];
  for (uint32_t i = 0; i < end->operand_count; ++i) returned[i] = map[end->operands[i]];
  return parse_check_builder(p);
}

/* chlo.scan(inputs) inits(carries): the region maps slices and carries to slices and carries, position after position. It
 * becomes a while over (position, outputs..., carries...). */
static bool run_scan(parser *p, statement *s) {
  ir_builder *b = &p->b;
  const node *dim_node = node_find(&s->attrs, "dimension"), *reverse = node_find(&s->attrs, "is_reverse");
  if (s->region_count != 1 || !dim_node || dim_node->kind != NODE_INT) FAIL("no dimension, or no region");
  const ir_region *step = s->regions[0];
  uint32_t results = s->result_types.count, carries = 0, dim = (uint32_t)dim_node->i;
  const node *inputs_node = node_find(&s->attrs, "scan.inputs");
  uint32_t inputs = inputs_node ? (uint32_t)inputs_node->i : s->operands.count / 2;
  if (inputs == 0 || inputs >= s->operands.count) FAIL("no inputs, or no initial values");
  carries = s->operands.count - inputs;
  const ir_op *end = step->ops[step->count - 1];
  if (results < carries || step->arg_count != s->operands.count || end->operand_count != results)
    FAIL("the region takes %u values and gives %u, expected %u and %u", step->arg_count, end->operand_count,
         s->operands.count, results);
  ir_type first = type_of(p, operand(s, 0));
  if (dim >= first.rank) FAIL("dimension is %u, expected [0, %u)", dim, first.rank);
  uint32_t outputs = results - carries, state_count = 1 + results;
  bool backwards = reverse && (reverse->kind == NODE_UNIT || (reverse->kind == NODE_BOOL && reverse->i));
  ir_value *state = parse_room(p, state_count * sizeof *state),
           *arguments = parse_room(p, s->operands.count * sizeof *arguments);
  ir_value *returned = parse_room(p, state_count * sizeof *returned);
  ir_type *types = parse_room(p, state_count * sizeof *types);
  if (!state || !arguments || !returned || !types) return false;
  state[0] = ir_scalar_i64(b, TTPU_I64, 0);
  for (uint32_t i = 0; i < outputs; ++i) {
    const text_type *type = &s->result_types.data[i];
    if (type->dynamic || type->unranked || type->tuple) UNSUPPORTED("a scan of sizes that are not known");
    state[1 + i] = ir_fill_i64(b, (ttpu_dtype)type->type.dtype, type->type.rank, type->type.dims, 0);
  }
  for (uint32_t i = 0; i < carries; ++i) state[1 + outputs + i] = operand(s, inputs + i);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < state_count; ++i) types[i] = type_of(p, state[i]);
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, state_count, types, &outer);
  ir_value more = ir_compare(b, IR_LT, regions[0]->first_arg, ir_scalar_i64(b, TTPU_I64, first.dims[dim]));
  ir_region_end(b, outer, 1, &more);
  regions[1] = ir_region_begin(b, state_count, types, &outer);
  ir_value count = regions[1]->first_arg, at = count;
  if (backwards) at = ir_subtract(b, ir_scalar_i64(b, TTPU_I64, first.dims[dim] - 1), count);
  for (uint32_t i = 0; i < inputs; ++i) arguments[i] = take_slice(p, operand(s, i), dim, at);
  for (uint32_t i = 0; i < carries; ++i) arguments[inputs + i] = count + 1 + outputs + i;
  TRY(parse_check_builder(p));
  TRY(parse_repeat_region(p, step, arguments, returned + 1));
  for (uint32_t i = 0; i < outputs; ++i) returned[1 + i] = put_slice(p, count + 1 + i, returned[1 + i], dim, at);
  returned[0] = ir_add(b, count, ir_scalar_i64(b, TTPU_I64, 1));
  ir_region_end(b, outer, state_count, returned);
  ir_value all = ir_append(b, IR_WHILE, state_count, state, NULL, 0, NULL, 2, regions);
  for (uint32_t i = 0; i < results; ++i) returned[i] = all + 1 + i;
  return parse_results(p, s, results, returned);
}

/* ---- ApproxTopK -------------------------------------------------------------------------------- */

/* A comparator of `pairs` pairs of scalars, from the function that says it. */
static bool read_comparator(parser *p, const statement *s, uint32_t pairs, ir_region **out) {
  const node *called = node_find(&s->attrs, "called_computations");
  bool one = called && called->kind == NODE_ARRAY && called->count == 1;
  const node *name = one ? &called->entries[0].value : NULL; /* a string in bytecode */
  if (!one || (name->kind != NODE_SYMBOL && name->kind != NODE_STRING))
    FAIL("called_computations names no one function");
  ir_type *types = parse_room(p, 2 * pairs * sizeof *types);
  if (!types) return false;
  for (uint32_t i = 0; i < 2 * pairs; ++i) types[i] = (ir_type){type_of(p, operand(s, i / 2)).dtype, 0, ir_no_dims};
  ir_region *outer;
  values arguments = {0}, returned = {0};
  *out = ir_region_begin(&p->b, 2 * pairs, types, &outer);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < 2 * pairs; ++i) TRY(parse_push_value(p, &arguments, (*out)->first_arg + i));
  TRY(parse_inline(p, name->value, &arguments, &returned));
  if (returned.count != 1 || returned.data[0] & TUPLE_VALUE) FAIL("the comparator returns %u values", returned.count);
  ir_region_end(&p->b, outer, 1, returned.data);
  return parse_check_builder(p);
}

/* What frontends ask a TPU's compiler for: some of the largest along a dimension, by a comparator, quickly. The exact ones
 * are an answer: values... and inits... sorted, and as many as the results have. */
bool parse_approx_top_k(parser *p, statement *s) {
  const node *config = node_find(&s->attrs, "mhlo.backend_config");
  if (!config) config = node_find(&s->attrs, "backend_config");
  const node *dim = config && config->kind == NODE_DICT ? node_find(config, "reduction_dim") : NULL;
  uint32_t count = s->result_types.count;
  if (count == 0 || s->operands.count != 2 * count) FAIL("%u results of %u operands", count, s->operands.count);
  if (!dim || dim->kind != NODE_INT) FAIL("no reduction_dim");
  ir_type first = type_of(p, operand(s, 0));
  for (uint32_t i = 0; i < count; ++i) {
    ir_type x = type_of(p, operand(s, i));
    const text_type *y = &s->result_types.data[i];
    if (dim->i < 0 || dim->i >= x.rank || !ir_same_dims(x, first)) FAIL("operand %u is %s", i, IR_SHOW(x));
    if (y->tuple || y->unranked || y->type.rank != x.rank || y->type.dims[dim->i] > x.dims[dim->i])
      FAIL("result %u is %s", i, parse_show(p, y));
  }
  ir_region *comparator;
  ir_value *results = parse_room(p, count * sizeof *results);
  if (!results) return false;
  TRY(read_comparator(p, s, count, &comparator));
  const ir_sort_attrs attrs = {dim->i, true};
  ir_value sorted = ir_append(&p->b, IR_SORT, count, s->operands.data, &attrs, 0, NULL, 1, &comparator);
  TRY(parse_check_builder(p));
  for (uint32_t i = 0; i < count; ++i)
    results[i] = ir_slice_dim(&p->b, sorted + i, (uint32_t)dim->i, 0, s->result_types.data[i].type.dims[dim->i], 1);
  return parse_results(p, s, count, results);
}

/* ---- which is which ------------------------------------------------------------------------- */

static const struct {
  const char *name;
  bool (*run)(parser *p, statement *s);
} rows[] = {
    {"tan", run_tan},
    {"square", run_square},
    {"conj", run_conj},
    {"is_inf", run_is_inf},
    {"is_pos_inf", run_is_pos_inf},
    {"is_neg_inf", run_is_neg_inf},
    {"constant", run_chlo_constant},
    {"constant_like", run_constant_like},
    {"mulhi", run_mulhi},
    {"bessel_i1e", run_bessel_i1e},
    {"scan", run_scan},
    {"ragged_dot", parse_ragged_dot},
};

bool parse_run_chlo(parser *p, statement *s, text_slice name) {
  static const char broadcasting[] = "broadcast_";
  size_t prefix = sizeof broadcasting - 1;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    if (text_is(name, rows[i].name)) return rows[i].run(p, s);
  if (name.length > prefix && memcmp(name.data, broadcasting, prefix) == 0)
    return run_broadcasting(p, s, (text_slice){name.data + prefix, name.length - prefix});
  ir_kind kind = ir_kind_from_name(name.data, name.length);
  if (!(ir_ops[kind].flags & IR_COMPOSITE)) UNSUPPORTED("this operation is not supported");
  return parse_run_composite(p, s, kind, &s->attrs);
}
