/* chlo.ragged_dot: a product of which one dimension of lhs is cut into groups, one behind the other, whose sizes are an
 * operand. Said with products of whole arrays, one a group, and masks.
 *
 * What the ragged dimension is decides (CHLO's three modes):
 *   its own      lhs [b, m, k] x rhs [g, b, k, n] -> [b, m, n]: rows of group i take rhs[i]; rows behind all groups are 0
 *   contracted   lhs [b, m, k] x rhs [b, k, n] -> [g, b, m, n]: result i sums over group i alone
 *   batch        the groups make no difference: a product */
#include <string.h>

#include "ir/parse_op.h"

enum { MOST_GROUPS = 4096 };

typedef struct ragged {
  ir_value lhs, rhs, sizes;
  int64_t dim, group_count;
  ir_i64s group_dims; /* of rhs */
  ir_dot_general_attrs dot;
  ttpu_dtype result;
} ragged;

static bool read_list(parser *p, const node *numbers, const char *name, ir_i64s *out) {
  const node *n = node_find(numbers, name);
  *out = (ir_i64s){0};
  return !n || text_list(&p->text, name, n, out);
}

static bool read_ragged(parser *p, const statement *s, ragged *r) {
  const node *numbers = node_find(&s->attrs, "ragged_dot_dimension_numbers");
  ir_i64s ragged_dims;
  TRY(parse_expect_counts(p, s, 3, 1));
  if (!numbers || numbers->kind != NODE_DICT) FAIL("no ragged_dot_dimension_numbers");
  *r = (ragged){.lhs = operand(s, 0), .rhs = operand(s, 1), .sizes = operand(s, 2), .result = result_dtype(s)};
  TRY(read_list(p, numbers, "lhs_batching_dimensions", &r->dot.lhs_batching_dimensions));
  TRY(read_list(p, numbers, "rhs_batching_dimensions", &r->dot.rhs_batching_dimensions));
  TRY(read_list(p, numbers, "lhs_contracting_dimensions", &r->dot.lhs_contracting_dimensions));
  TRY(read_list(p, numbers, "rhs_contracting_dimensions", &r->dot.rhs_contracting_dimensions));
  TRY(read_list(p, numbers, "lhs_ragged_dimensions", &ragged_dims));
  TRY(read_list(p, numbers, "rhs_group_dimensions", &r->group_dims));
  r->dot.precision = p->options->precision;
  ir_type lhs = type_of(p, r->lhs), sizes = type_of(p, r->sizes);
  if (ragged_dims.count != 1 || ragged_dims.data[0] < 0 || ragged_dims.data[0] >= lhs.rank)
    FAIL("lhs_ragged_dimensions names no one dimension of %s", IR_SHOW(lhs));
  if (sizes.rank != 1 || !base_dtype_is_integer((ttpu_dtype)sizes.dtype) || sizes.dims[0] > MOST_GROUPS)
    FAIL("group_sizes is %s, expected a list of at most %d integers", IR_SHOW(sizes), MOST_GROUPS);
  r->dim = ragged_dims.data[0];
  r->group_count = sizes.dims[0];
  return true;
}

static bool contains(ir_i64s list, int64_t dim) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == dim) return true;
  return false;
}

/* The bounds of group i: bounds[i] <= position < bounds[i + 1]. */
static bool make_bounds(parser *p, const ragged *r, ir_value **out) {
  ir_builder *b = &p->b;
  ir_value *bounds = *out = parse_room(p, (uint64_t)(r->group_count + 1) * sizeof *bounds);
  if (!bounds) return false;
  bounds[0] = ir_scalar_i64(b, TTPU_I64, 0);
  for (int64_t i = 0; i < r->group_count; ++i) {
    ir_value size = ir_reshape(b, ir_slice_dim(b, r->sizes, 0, i, i + 1, 1), 0, NULL);
    bounds[i + 1] = ir_add(b, bounds[i], ir_convert(b, size, TTPU_I64));
  }
  return parse_check_builder(p);
}

/* x where its position along dim lies in the group, else `otherwise`. */
static ir_value in_group(parser *p, ir_value x, uint32_t dim, const ir_value *bounds, ir_value otherwise) {
  ir_builder *b = &p->b;
  ir_type t = type_of(p, x);
  ir_value at = ir_iota(b, TTPU_I64, t.rank, t.dims, dim);
  ir_value low = ir_broadcast_to(b, bounds[0], t.rank, t.dims), high = ir_broadcast_to(b, bounds[1], t.rank, t.dims);
  ir_value inside = ir_and_bits(b, ir_compare(b, IR_GE, at, low), ir_compare(b, IR_LT, at, high));
  return ir_select(b, inside, x, otherwise);
}

/* rhs of group i, without the dimension of groups. */
static ir_value take_group(parser *p, const ragged *r, int64_t i) {
  uint32_t dim = (uint32_t)r->group_dims.data[0], rank = 0;
  ir_type t = type_of(p, r->rhs);
  int64_t dims[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < t.rank; ++d)
    if (d != dim) dims[rank++] = t.dims[d];
  return ir_reshape(&p->b, ir_slice_dim(&p->b, r->rhs, dim, i, i + 1, 1), rank, dims);
}

/* The dimensions of rhs where that of groups is taken away. */
static bool without_groups(parser *p, const ragged *r, ir_i64s from, ir_i64s *out) {
  int64_t *list = parse_room(p, from.count * sizeof *list + 1);
  if (!list) return false;
  for (uint32_t i = 0; i < from.count; ++i) list[i] = from.data[i] - (from.data[i] > r->group_dims.data[0]);
  *out = (ir_i64s){list, from.count};
  return true;
}

static bool run_rows(parser *p, statement *s, const ragged *r, const ir_value *bounds) {
  ir_type rhs = type_of(p, r->rhs);
  ir_dot_general_attrs dot = r->dot;
  if (r->group_dims.count != 1 || r->group_dims.data[0] < 0 || r->group_dims.data[0] >= rhs.rank ||
      rhs.dims[r->group_dims.data[0]] != r->group_count)
    FAIL("rhs_group_dimensions names no one dimension of %s that is as long as there are groups", IR_SHOW(rhs));
  TRY(without_groups(p, r, r->dot.rhs_batching_dimensions, &dot.rhs_batching_dimensions));
  TRY(without_groups(p, r, r->dot.rhs_contracting_dimensions, &dot.rhs_contracting_dimensions));
  uint32_t row = r->dot.lhs_batching_dimensions.count; /* the ragged dimension's place in the result */
  for (int64_t d = 0; d < r->dim; ++d)
    row += !contains(r->dot.lhs_batching_dimensions, d) && !contains(r->dot.lhs_contracting_dimensions, d);
  if (r->group_count == 0) UNSUPPORTED("a product of no groups");
  ir_value sum = 0;
  for (int64_t i = 0; i < r->group_count; ++i) {
    ir_value one = ir_dot_general(&p->b, r->lhs, take_group(p, r, i), &dot, r->result);
    TRY(parse_check_builder(p));
    sum = in_group(p, one, row, &bounds[i], sum ? sum : ir_zeros_like(&p->b, one));
  }
  return parse_result(p, s, sum);
}

/* Both sides are masked: 0 times an infinity of another group would not be 0. */
static bool run_contracted(parser *p, statement *s, const ragged *r, const ir_value *bounds) {
  ir_builder *b = &p->b;
  uint32_t at = 0;
  while (r->dot.lhs_contracting_dimensions.data[at] != r->dim) ++at;
  if (at >= r->dot.rhs_contracting_dimensions.count) FAIL("the contracting dimensions do not match");
  int64_t rhs_dim = r->dot.rhs_contracting_dimensions.data[at];
  if (rhs_dim < 0 || rhs_dim >= type_of(p, r->rhs).rank) FAIL("rhs has no dimension %lld", (long long)rhs_dim);
  if (r->group_count == 0) UNSUPPORTED("a product of no groups");
  ir_value *parts = parse_room(p, (uint64_t)r->group_count * sizeof *parts);
  if (!parts) return false;
  for (int64_t i = 0; i < r->group_count; ++i) {
    ir_value lhs = in_group(p, r->lhs, (uint32_t)r->dim, &bounds[i], ir_zeros_like(b, r->lhs));
    ir_value rhs = in_group(p, r->rhs, (uint32_t)rhs_dim, &bounds[i], ir_zeros_like(b, r->rhs));
    ir_value one = ir_dot_general(b, lhs, rhs, &r->dot, r->result);
    TRY(parse_check_builder(p));
    ir_type t = type_of(p, one);
    int64_t dims[TTPU_MAX_RANK + 1] = {1};
    if (t.rank == TTPU_MAX_RANK) FAIL("the result has more than %d dimensions", TTPU_MAX_RANK);
    memcpy(dims + 1, t.dims, t.rank * sizeof *dims);
    parts[i] = ir_reshape(b, one, t.rank + 1u, dims);
  }
  return parse_result(p, s, ir_concatenate(b, (uint32_t)r->group_count, parts, 0));
}

bool parse_ragged_dot(parser *p, statement *s) {
  ragged r;
  ir_value *bounds;
  TRY(read_ragged(p, s, &r));
  TRY(make_bounds(p, &r, &bounds));
  if (contains(r.dot.lhs_contracting_dimensions, r.dim)) return run_contracted(p, s, &r, bounds);
  if (!contains(r.dot.lhs_batching_dimensions, r.dim)) return run_rows(p, s, &r, bounds);
  return parse_result(p, s, ir_dot_general(&p->b, r.lhs, r.rhs, &r.dot, r.result));
}
