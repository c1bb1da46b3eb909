/* StableHLO's deprecated operations, and those that only say how random numbers are distributed, said with others. */
#include <ctype.h>
#include <string.h>

#include "ir/parse_op.h"

static bool run_broadcast(parser *p, statement *s) {
  TRY(parse_expect_counts(p, s, 1, 1));
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
  TRY(parse_expect_counts(p, s, 2, 1));
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
  TRY(parse_expect_counts(p, s, 1, 1));
  TRY(read_einsum(p, s, 1, in, &out));
  ir_value x = sum_alone(p, operand(s, 0), &in[0], NULL, &out);
  return arrange(p, s, x, &in[0], &out);
}

static bool run_einsum(parser *p, statement *s) {
  labels in[2] = {{.count = 0}, {.count = 0}}, out = {.count = 0}, have = {.count = 0};
  int64_t batch[2][TTPU_MAX_RANK], contract[2][TTPU_MAX_RANK];
  uint32_t batches = 0, contracts = 0;
  TRY(parse_expect_counts(p, s, 2, 1));
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
  uint32_t dim, batch = (uint32_t)parse_integer_attr(s, "batch_dims", 0);
  int64_t offset[TTPU_MAX_RANK], batching[TTPU_MAX_RANK], sizes[TTPU_MAX_RANK];
  TRY(parse_expect_counts(p, s, 2, 1));
  ir_type x = type_of(p, operand(s, 0)), index = type_of(p, operand(s, 1));
  TRY(parse_dimension_attr(p, s, "dim", x.rank, &dim));
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
  TRY(parse_dimension_attr(p, s, "feature_index", n->type.rank, &n->feature));
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
  TRY(parse_expect_counts(p, s, 5, 1));
  TRY(open_batch_norm(p, s, &n));
  return parse_result(p, s, normalize(p, &n, s, operand(s, 3), operand(s, 4)));
}

static bool run_batch_norm_training(parser *p, statement *s) {
  batch_norm n;
  ir_builder *b = &p->b;
  TRY(parse_expect_counts(p, s, 3, 3));
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
  TRY(parse_expect_counts(p, s, 5, 3));
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
  TRY(parse_expect_counts(p, s, 3, 1));
  TRY(parse_known_shape(p, s, 2, &dims, &rank));
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

/* ---- which is which ------------------------------------------------------------------------- */

const parse_row *parse_find_deprecated(text_slice name) {
  static const parse_row rows[] = {
      {"stablehlo.broadcast", run_broadcast},
      {"stablehlo.dot", run_dot},
      {"stablehlo.einsum", run_einsum},
      {"stablehlo.unary_einsum", run_unary_einsum},
      {"stablehlo.torch_index_select", run_torch_index_select},
      {"stablehlo.batch_norm_inference", run_batch_norm_inference},
      {"stablehlo.batch_norm_training", run_batch_norm_training},
      {"stablehlo.batch_norm_grad", run_batch_norm_grad},
      {"stablehlo.rng", run_rng},
  };
  return parse_find(rows, sizeof rows / sizeof *rows, name);
}
