/* Operations whose shapes are operands: numbers that are known before the program runs (parse_known.c), so that they become
 * the static ones. */
#include <string.h>

#include "ir/parse_op.h"

bool parse_known_operand(parser *p, const statement *s, uint32_t i, const int64_t **numbers, uint32_t *count) {
  *numbers = parse_known(p, operand(s, i), count);
  if (!*numbers) UNSUPPORTED("operand %u is not known before the program runs", i);
  return true;
}

bool parse_known_shape(parser *p, const statement *s, uint32_t i, const int64_t **dims, uint32_t *rank) {
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
  TRY(parse_known_operand(p, s, i, dims, rank));
  if (*rank > TTPU_MAX_RANK) FAIL("a shape of %u dimensions: at most %d are possible", *rank, TTPU_MAX_RANK);
  for (uint32_t d = 0; d < *rank; ++d)
    if ((*dims)[d] < 0) FAIL("dimension %u of the shape is %lld", d, (long long)(*dims)[d]);
  return true;
}

static bool run_get_dimension_size(parser *p, statement *s) {
  uint32_t dim;
  TRY(parse_expect_counts(p, s, 1, 1));
  ir_type x = type_of(p, operand(s, 0));
  TRY(parse_dimension_attr(p, s, "dimension", x.rank, &dim));
  return parse_result(p, s, ir_scalar_i64(&p->b, TTPU_I32, x.dims[dim]));
}

/* A tensor of which the first `size` along a dimension count is those. */
static bool run_set_dimension_size(parser *p, statement *s) {
  uint32_t dim, count;
  const int64_t *size;
  TRY(parse_expect_counts(p, s, 2, 1));
  ir_type x = type_of(p, operand(s, 0));
  TRY(parse_dimension_attr(p, s, "dimension", x.rank, &dim));
  TRY(parse_known_operand(p, s, 1, &size, &count));
  if (count != 1 || size[0] < 0 || size[0] > x.dims[dim])
    FAIL("size is %lld, expected [0, %lld]", (long long)size[0], (long long)x.dims[dim]);
  return parse_result(p, s, ir_slice_dim(&p->b, operand(s, 0), dim, 0, size[0], 1));
}

static bool run_dynamic_reshape(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank;
  TRY(parse_expect_counts(p, s, 2, 1));
  TRY(parse_known_shape(p, s, 1, &dims, &rank));
  return parse_result(p, s, ir_reshape(&p->b, operand(s, 0), rank, dims));
}

static bool run_dynamic_iota(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank, dim;
  TRY(parse_expect_counts(p, s, 1, 1));
  TRY(parse_known_shape(p, s, 0, &dims, &rank));
  TRY(parse_dimension_attr(p, s, "iota_dimension", rank, &dim));
  return parse_result(p, s, ir_iota(&p->b, result_dtype(s), rank, dims, dim));
}

static bool run_dynamic_broadcast_in_dim(parser *p, statement *s) {
  const int64_t *dims;
  uint32_t rank;
  ir_i64s map = {NULL, 0};
  TRY(parse_expect_counts(p, s, 2, 1));
  TRY(parse_known_shape(p, s, 1, &dims, &rank));
  const node *n = node_find(&s->attrs, "broadcast_dimensions");
  if (!n) FAIL("no broadcast_dimensions");
  TRY(text_list(&p->text, "broadcast_dimensions", n, &map));
  if (map.count != type_of(p, operand(s, 0)).rank) FAIL("%u broadcast_dimensions", map.count);
  return parse_result(p, s, ir_broadcast_in_dim(&p->b, operand(s, 0), rank, dims, map.data));
}

static bool run_dynamic_pad(parser *p, statement *s) {
  const int64_t *edges[3];
  uint32_t count;
  TRY(parse_expect_counts(p, s, 5, 1));
  uint32_t rank = type_of(p, operand(s, 0)).rank;
  for (uint32_t i = 0; i < 3; ++i) {
    TRY(parse_known_operand(p, s, 2 + i, &edges[i], &count));
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
  TRY(parse_expect_counts(p, s, 4, 1));
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
  TRY(parse_known_operand(p, s, i, &numbers, &count));
  entry one = {{attribute, strlen(attribute)}, {.kind = NODE_LIST, .numbers = {numbers, count}}};
  const node dict = {.kind = NODE_DICT, .entries = &one, .count = 1};
  TRY(parse_merge_attrs(p, s, &dict));
  --s->operands.count;
  return parse_append(p, s, ir_kind_from_name(name, strlen(name)), &s->attrs);
}

static bool run_dynamic_gather(parser *p, statement *s) {
  return parse_expect_counts(p, s, 3, 1) && run_with_known(p, s, 2, "slice_sizes", "gather");
}
static bool run_dynamic_conv(parser *p, statement *s) {
  return parse_expect_counts(p, s, 3, 1) && run_with_known(p, s, 2, "padding", "convolution");
}

const parse_row *parse_find_dynamic(text_slice name) {
  static const parse_row rows[] = {
      {"stablehlo.get_dimension_size", run_get_dimension_size},
      {"stablehlo.set_dimension_size", run_set_dimension_size},
      {"stablehlo.dynamic_reshape", run_dynamic_reshape},
      {"stablehlo.dynamic_iota", run_dynamic_iota},
      {"stablehlo.dynamic_broadcast_in_dim", run_dynamic_broadcast_in_dim},
      {"stablehlo.dynamic_pad", run_dynamic_pad},
      {"stablehlo.real_dynamic_slice", run_real_dynamic_slice},
      {"stablehlo.dynamic_gather", run_dynamic_gather},
      {"stablehlo.dynamic_conv", run_dynamic_conv},
  };
  return parse_find(rows, sizeof rows / sizeof *rows, name);
}
