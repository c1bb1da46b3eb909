/* Sorting and order statistics. NaN is the greatest value. Sorts are stable always. */
#include "aten/nn_int.h"

typedef struct sorted {
  ir_value values, indices;
} sorted;

/* x (rank 1 at least) sorted along dim, with the i64 indices of where elements came from. */
static sorted sort_along(aten_lowering *c, ir_value x, uint32_t dim, bool descending) {
  ir_type t = nn_type(c, x);
  bool is_bool = t.dtype == TTPU_BOOL; /* ordered as numbers */
  ir_value pair[2] = {is_bool ? ir_convert(c->b, x, TTPU_U8) : x, ir_iota(c->b, TTPU_I64, t.rank, t.dims, dim)};
  ir_value first = ir_sort(c->b, 2, pair, dim, descending);
  if (first == 0) return (sorted){0, 0};
  return (sorted){is_bool ? ir_convert(c->b, first, TTPU_BOOL) : first, first + 1};
}

static void out_both(aten_lowering *c, sorted s) {
  for (uint32_t i = 0; i < 2; ++i)
    aten_out(c, i, ir_reshape(c->b, i ? s.indices : s.values, c->outs[i].rank, c->outs[i].sizes));
}

void lower_sort(aten_lowering *c) { /* self, stable, dim, descending */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  out_both(c, sort_along(c, x, aten_dim(c, 2, nn_type(c, x).rank), aten_int(c, 3) != 0));
}

void lower_topk(aten_lowering *c) { /* self, k, dim, largest, sorted */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 2, t.rank), last = t.rank ? t.rank - 1 : 0;
  if (base_numel(c->outs[0].rank, c->outs[0].sizes) == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)t.dtype));
    aten_out(c, 1, nn_zeros_out(c, 1, TTPU_I64));
    return;
  }
  ir_value moved = dim == last ? x : nn_swap(c, x, dim, last);
  ir_top_k_attrs attrs = {.k = aten_int(c, 1), .largest = aten_int(c, 3) != 0, .sorted = aten_int(c, 4) != 0};
  ir_value first = ir_append(c->b, IR_TOP_K, 1, &moved, &attrs, 0, NULL, 0, NULL);
  if (first == 0) return;
  sorted s = {first, first + 1};
  if (dim != last) s = (sorted){nn_swap(c, s.values, dim, last), nn_swap(c, s.indices, dim, last)};
  out_both(c, s);
}
