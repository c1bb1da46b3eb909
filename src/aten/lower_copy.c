/* Copies, and operators that move elements without computing. Where results lie in memory is the recorder's business:
 * a copy here is its operand, converted and broadcast. */
#include <string.h>

#include "aten/aten_int.h"

void lower_copy_of_self(aten_lowering *c) { aten_out(c, 0, aten_in(c, 0)); } /* clone */
void lower_copy_(aten_lowering *c) { aten_out(c, 0, aten_in(c, 1)); }        /* self, src */

void lower_foreach_clone(aten_lowering *c) {
  for (uint32_t i = 0; i < c->out_count; ++i) aten_out(c, i, aten_list_in(c, 0, i));
}
void lower_foreach_copy_(aten_lowering *c) {
  for (uint32_t i = 0; i < c->out_count; ++i) aten_out(c, i, aten_list_in(c, 1, i));
}

void lower_flip(aten_lowering *c) {
  int64_t dims[TTPU_MAX_RANK];
  uint32_t count = aten_ints(c, 1).count ? aten_dims(c, 1, aten_meta(c, 0)->rank, dims) : 0;
  ir_value x = aten_in(c, 0);
  aten_out(c, 0, count ? ir_reverse(c->b, x, count, dims) : x);
}

/* The last `shift` elements along dim come first. */
static ir_value roll_dim(aten_lowering *c, ir_value x, uint32_t dim, int64_t shift) {
  int64_t n = aten_type(c, x).dims[dim];
  if (n == 0) return x;
  shift = (shift % n + n) % n;
  if (shift == 0) return x;
  ir_value parts[2] = {ir_slice_dim(c->b, x, dim, n - shift, n, 1), ir_slice_dim(c->b, x, dim, 0, n - shift, 1)};
  return ir_concatenate(c->b, 2, parts, dim);
}

void lower_roll(aten_lowering *c) {
  ir_i64s shifts = aten_ints(c, 1), dims = aten_ints(c, 2);
  const aten_tensor *t = aten_meta(c, 0);
  ir_value x = aten_in(c, 0);
  if (dims.count == 0 && shifts.count && t->rank) { /* of the flattened tensor */
    const int64_t n = base_numel(t->rank, t->sizes);
    ir_value r = roll_dim(c, ir_reshape(c->b, x, 1, &n), 0, shifts.data[0]);
    x = ir_reshape(c->b, r, t->rank, t->sizes);
  }
  for (uint32_t i = 0; i < dims.count && i < shifts.count && t->rank; ++i) {
    int64_t dim = dims.data[i] < 0 ? dims.data[i] + t->rank : dims.data[i];
    x = roll_dim(c, x, (uint32_t)dim, shifts.data[i]);
  }
  aten_out(c, 0, x);
}

/* Keeps column - row <= diagonal (lower), or >= (upper), of the last two dimensions. */
static void keep_triangle(aten_lowering *c, ir_direction direction) {
  ir_builder *b = c->b;
  ir_value x = aten_in(c, 0);
  ir_type t = aten_type(c, x);
  if (t.rank < 2) return (void)aten_fail(c, "expected a matrix, got a tensor of rank %u", t.rank);
  const int64_t map[2] = {t.rank - 2, t.rank - 1};
  ir_value row = ir_iota(b, TTPU_I64, 2, t.dims + t.rank - 2, 0),
           column = ir_iota(b, TTPU_I64, 2, t.dims + t.rank - 2, 1);
  ir_value keep = ir_compare(b, direction, ir_subtract(b, column, row), aten_like_i64(c, row, aten_int(c, 1)));
  keep = ir_broadcast_in_dim(b, keep, t.rank, t.dims, map);
  aten_out(c, 0, ir_select(b, keep, x, ir_zeros_like(b, x)));
}
void lower_tril(aten_lowering *c) { keep_triangle(c, IR_LE); }
void lower_triu(aten_lowering *c) { keep_triangle(c, IR_GE); }

/* Each dimension n of x becomes [repeats, n], which together are one. */
void lower_repeat(aten_lowering *c) {
  ir_i64s repeats = aten_ints(c, 1);
  ir_value x = aten_in(c, 0);
  ir_type t = aten_type(c, x);
  uint32_t lead = repeats.count - t.rank, rank = 0;
  int64_t sizes[TTPU_MAX_RANK], map[TTPU_MAX_RANK], merged[TTPU_MAX_RANK];
  if (repeats.count < t.rank || repeats.count + t.rank > TTPU_MAX_RANK)
    return (void)aten_fail(c, "repeat of a tensor of rank %u by %u numbers", t.rank, repeats.count);
  for (uint32_t i = 0; i < repeats.count; ++i) {
    sizes[rank++] = repeats.data[i];
    merged[i] = repeats.data[i];
    if (i < lead) continue;
    map[i - lead] = rank;
    sizes[rank++] = t.dims[i - lead];
    merged[i] *= t.dims[i - lead];
  }
  ir_value spread = ir_broadcast_in_dim(c->b, x, rank, sizes, map);
  aten_out(c, 0, ir_reshape(c->b, spread, repeats.count, merged));
}

void lower_narrow_copy(aten_lowering *c) { /* self, dim, start, length */
  const aten_tensor *t = aten_meta(c, 0);
  uint32_t dim = aten_dim(c, 1, t->rank);
  int64_t start = aten_int(c, 2);
  if (start < 0) start += t->sizes[dim];
  aten_out(c, 0, ir_slice_dim(c->b, aten_in(c, 0), dim, start, start + aten_int(c, 3), 1));
}
