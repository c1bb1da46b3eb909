/* Distinct elements and distinct slices. All sort, so that equal ones stand together, mark where a run of them begins, and
 * move what is there to the front; how many there are is the last result (ATEN_DYNAMIC). */
#include "aten/nn_int.h"

/* Results: 0 the values (rows along dimension 0) at which runs start, 1 inverse, 2 counts (_unique has none), and last how
 * many runs there are. `origin` says where each value came from (0: where it is). */
static void out_runs(aten_lowering *c, ir_value starts, ir_value values, ir_value origin, bool inverse, bool counts,
                     uint32_t dim) {
  ir_type t = nn_type(c, values);
  uint32_t last = c->out_count - 1;
  ir_value run = nn_add_f64(c, nn_ranks(c, starts), -1), back = run;
  ir_value first = nn_compact(c, starts, values, t.dims[0], ir_scalar_i64(c->b, (ttpu_dtype)t.dtype, 0));
  aten_out(c, 0, nn_move(c, first, 0, dim));
  if (inverse && origin) back = nn_index_update(c, nn_const(c, run, 0), origin, run, 0, IR_NO_OP);
  aten_out(c, 1, inverse ? ir_reshape(c->b, back, c->outs[1].rank, c->outs[1].sizes) : nn_zeros_out(c, 1, TTPU_I64));
  ir_value ones = nn_const(c, run, 1), sums = nn_index_update(c, nn_const(c, run, 0), run, ones, 0, IR_ADD);
  if (last == 3) aten_out(c, 2, counts ? sums : nn_zeros_out(c, 2, TTPU_I64));
  aten_out(c, last, nn_count(c, starts));
}

/* Nothing to look at: every result is empty, and their number is 0. */
static bool out_nothing(aten_lowering *c, ir_value x) {
  if (x != 0 && ir_numel(nn_type(c, x)) != 0) return false;
  nn_out_rest(c);
  return true;
}

/* Which rows of x (along dimension 0) differ from the row before, element by element; the first does. */
static ir_value differs_from_last(aten_lowering *c, ir_value x) {
  ir_type t = nn_type(c, x);
  int64_t n = t.dims[0], dims[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) dims[i] = i ? t.dims[i] : 1;
  ir_value first = ir_fill_i64(c->b, TTPU_BOOL, t.rank, dims, 1);
  if (n == 1) return first;
  ir_value differs = ir_compare(c->b, IR_NE, ir_slice_dim(c->b, x, 0, 1, n, 1), ir_slice_dim(c->b, x, 0, 0, n - 1, 1));
  return ir_concatenate(c->b, 2, (ir_value[]){first, differs}, 0);
}

/* bool is ordered as a number. */
static ir_value keys_of(aten_lowering *c, ir_value x) {
  return nn_type(c, x).dtype == TTPU_BOOL ? ir_convert(c->b, x, TTPU_U8) : x;
}

/* x sorted along dimension 0; the value after it says where each element came from. */
static ir_value sort_rows(aten_lowering *c, ir_value x) {
  ir_type t = nn_type(c, x);
  return ir_sort(c->b, 2, (ir_value[]){x, ir_iota(c->b, TTPU_I64, t.rank, t.dims, 0)}, 0, false);
}

/* ---- elements ------------------------------------------------------------------------------------------ */

static void sorted_unique(aten_lowering *c, bool inverse, bool counts) {
  ir_value x = keys_of(c, nn_flatten(c, aten_in(c, 0)));
  if (out_nothing(c, x)) return;
  ir_value sorted = sort_rows(c, x);
  if (sorted) out_runs(c, differs_from_last(c, sorted), sorted, sorted + 1, inverse, counts, 0);
}

/* self, sorted, return_inverse[, return_counts] */
void lower_unique(aten_lowering *c) { sorted_unique(c, aten_int(c, 2), false); }
void lower_unique2(aten_lowering *c) { sorted_unique(c, aten_int(c, 2), aten_int(c, 3)); }

/* ---- slices -------------------------------------------------------------------------------------------- */

/* self with `dim` in front, and as a matrix of which each row is a slice. */
static ir_value slices_along(aten_lowering *c, uint32_t dim, ir_value *rows) {
  ir_value x = nn_move(c, aten_in(c, 0), dim, 0);
  ir_type t = nn_type(c, x);
  *rows = keys_of(c, nn_reshape2(c, x, t.dims[0], base_numel(t.rank - 1u, t.dims + 1)));
  return x;
}

static void unique_slices_in_a_row(aten_lowering *c, uint32_t dim) {
  ir_value rows, x = slices_along(c, dim, &rows);
  if (out_nothing(c, x)) return;
  ir_value starts = nn_reduce_dim(c, IR_OR, differs_from_last(c, rows), 1, false);
  out_runs(c, starts, x, 0, true, true, dim);
}

/* Each column's elements replaced by their rank among its distinct ones. `sorted` is sort_rows of it. */
static ir_value ranks_in_columns(aten_lowering *c, ir_value sorted) {
  ir_value run = nn_cumsum(c, ir_convert(c->b, differs_from_last(c, sorted), TTPU_I64), 0);
  return nn_scatter_along(c, nn_const(c, run, 0), sorted + 1, run, 0, IR_NO_OP);
}

/* Columns 2i and 2i + 1 as one, whose order is that of the pairs. A last one without a neighbour stays. */
static ir_value join_columns(aten_lowering *c, ir_value ranks) {
  ir_type t = nn_type(c, ranks);
  int64_t n = t.dims[0], columns = t.dims[1], even = columns - columns % 2;
  ir_value high = ir_slice_dim(c->b, ranks, 1, 0, even, 2), low = ir_slice_dim(c->b, ranks, 1, 1, columns, 2);
  ir_value joined = ir_add(c->b, nn_mul_f64(c, high, (double)(n + 1)), low); /* ranks are at most n */
  if (even == columns) return joined;
  return ir_concatenate(c->b, 2, (ir_value[]){joined, ir_slice_dim(c->b, ranks, 1, even, columns, 1)}, 1);
}

/* Rows in lexicographic order: by sorting the columns, and then, as often as it takes, pairs of columns by the pairs of
 * their ranks. That is twice the work of sorting each column once. */
static void unique_slices(aten_lowering *c, uint32_t dim) {
  ir_value keys, x = slices_along(c, dim, &keys);
  if (out_nothing(c, x)) return;
  ir_value sorted = sort_rows(c, keys);
  while (sorted != 0 && nn_type(c, sorted).dims[1] > 1)
    sorted = sort_rows(c, join_columns(c, ranks_in_columns(c, sorted)));
  if (sorted == 0) return;
  ir_value origin = nn_flatten(c, sorted + 1), starts = differs_from_last(c, nn_flatten(c, sorted));
  out_runs(c, starts, nn_take(c, x, origin, 0), origin, true, true, dim);
}

/* self, dim, sorted, return_inverse, return_counts: the CPU gives all results whatever the flags say. */
void lower_unique_dim(aten_lowering *c) { unique_slices(c, aten_dim(c, 1, aten_meta(c, 0)->rank)); }
/* self, dim, return_inverse, return_counts */
void lower_unique_dim_consecutive(aten_lowering *c) {
  unique_slices_in_a_row(c, aten_dim(c, 1, aten_meta(c, 0)->rank));
}

void lower_unique_consecutive(aten_lowering *c) { /* self, return_inverse, return_counts, dim? */
  if (aten_has(c, 3)) return unique_slices_in_a_row(c, aten_dim(c, 3, aten_meta(c, 0)->rank));
  ir_value x = keys_of(c, nn_flatten(c, aten_in(c, 0)));
  if (out_nothing(c, x)) return;
  out_runs(c, differs_from_last(c, x), x, 0, aten_int(c, 1), aten_int(c, 2), 0);
}
