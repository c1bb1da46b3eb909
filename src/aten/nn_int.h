/* nn_int.h: what the lowerings of aten_nn.def share.
 *
 * Conventions. A lowering reads its operands with nn_in, which already converts f16 and bf16 to f32 (PyTorch's
 * kernels compute in f32 and round once), works on values whose types must be equal operation by operation (StableHLO
 * broadcasts nothing), and leaves rounding to aten_out. nn_binary and its short forms broadcast as NumPy does. Sizes
 * are static, so lowerings are free to make tables of indices on the host and take them in as constants.
 *
 * After a failure the builder gives 0 for every value; nn_type(0) then is a scalar whose dims may be read at any
 * position, so that a lowering needs no checks of its own.
 *
 *   nn.c               this header
 *   aten_nn.def        the rows
 *   lower_*.c          the families, one file each: matmul, conv, pool, norm, softmax, activation, loss, index,
 *                      quantize, unique, histogram, ctc, embedding_bag, segment, shape, sort, attention, transformer,
 *                      upsample, grid_sampler, distance, linear_algebra
 *   shape_nn.c         shape functions of these rows
 *   shape_no_meta.c    those of rows for which PyTorch has no Meta kernel
 */
#ifndef TTPU_ATEN_NN_INT_H
#define TTPU_ATEN_NN_INT_H

#include <string.h>

#include "aten/aten_int.h"

enum { NN_REDUCTION_NONE = 0, NN_REDUCTION_MEAN = 1, NN_REDUCTION_SUM = 2 };

/* ---- metadata ------------------------------------------------------------------------------------ */

static inline int64_t numel(const aten_tensor *t) { return base_numel(t->rank, t->sizes); }
static inline bool same_sizes(const aten_tensor *a, const aten_tensor *b) {
  return a->rank == b->rank && memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) == 0;
}
static inline void no_result(aten_shape *out) { *out = (aten_shape){.dtype = TTPU_NO_DTYPE}; }
/* dim wrapped; false when outside. */
static inline bool wrap_dim(int64_t dim, uint32_t rank, uint32_t *out) {
  int64_t n = rank ? rank : 1;
  if (dim < -n || dim >= n) return false;
  *out = (uint32_t)(dim < 0 ? dim + n : dim);
  return true;
}

/* A row-major result of these sizes. */
static inline void shape_of(aten_shape *out, uint8_t dtype, uint32_t rank, const int64_t *sizes) {
  out->dtype = dtype;
  out->rank = (uint8_t)rank;
  for (uint32_t i = 0; i < rank; ++i) out->sizes[i] = sizes[i];
  aten_shape_contiguous(out);
}

/* ---- operands ------------------------------------------------------------------------------------ */

ir_type nn_type(const aten_lowering *c, ir_value v);
/* Argument `arg` in the dtype its kernels compute in (f32 for f16 and bf16), or in exactly `dtype`. */
ir_value nn_in(aten_lowering *c, uint32_t arg);
ir_value nn_in_as(aten_lowering *c, uint32_t arg, ttpu_dtype dtype);
/* A float or Scalar argument, as a value of the type of `like`. */
ir_value nn_number(aten_lowering *c, uint32_t arg, ir_value like);
/* A static argument of exactly this value (never so for complex numbers). */
bool nn_static_is(const aten_lowering *c, uint32_t arg, double value);
/* Element i of an int list in which one element may stand for all. */
int64_t nn_int_at(const aten_lowering *c, uint32_t arg, uint32_t i);
/* Whether bit i of a bool[] argument is set. */
bool nn_mask_at(const aten_lowering *c, uint32_t arg, uint32_t i);
/* Products of f32 (and complex64) follow torch.set_float32_matmul_precision, others are exact. */
ir_precision nn_precision(const aten_lowering *c, ttpu_dtype operands);

/* ---- arithmetic with broadcasting ------------------------------------------------------------------ */

ir_value nn_binary(aten_lowering *c, ir_kind kind, ir_value x, ir_value y);
ir_value nn_compare(aten_lowering *c, ir_direction direction, ir_value x, ir_value y);
ir_value nn_select(aten_lowering *c, ir_value pred, ir_value on_true, ir_value on_false);
static inline ir_value nn_add(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_ADD, x, y); }
static inline ir_value nn_sub(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_SUBTRACT, x, y); }
static inline ir_value nn_mul(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_MULTIPLY, x, y); }
static inline ir_value nn_div(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_DIVIDE, x, y); }
static inline ir_value nn_max(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_MAXIMUM, x, y); }
static inline ir_value nn_min(aten_lowering *c, ir_value x, ir_value y) { return nn_binary(c, IR_MINIMUM, x, y); }
/* The constant `value` in x's type; x with it added, multiplied, compared. */
ir_value nn_const(aten_lowering *c, ir_value x, double value);
ir_value nn_add_f64(aten_lowering *c, ir_value x, double value);
ir_value nn_mul_f64(aten_lowering *c, ir_value x, double value);
ir_value nn_compare_f64(aten_lowering *c, ir_direction direction, ir_value x, double value);
ir_value nn_is_nan(aten_lowering *c, ir_value x); /* constant false for integers */
ir_value nn_conj(aten_lowering *c, ir_value x);   /* x itself when real */
ir_value nn_sigmoid(aten_lowering *c, ir_value x);

/* ---- shapes ---------------------------------------------------------------------------------------- */

ir_value nn_reshape2(aten_lowering *c, ir_value x, int64_t d0, int64_t d1);
ir_value nn_reshape3(aten_lowering *c, ir_value x, int64_t d0, int64_t d1, int64_t d2);
ir_value nn_reshape_like(aten_lowering *c, ir_value x, ir_value like);
ir_value nn_flatten(aten_lowering *c, ir_value x); /* rank 1 */
/* A 0-d value as rank 1; others as they are. */
ir_value nn_at_least_1d(aten_lowering *c, ir_value x);
ir_value nn_broadcast_like(aten_lowering *c, ir_value x, ir_value like);
/* A vector along dimension `dim` of `like`, broadcast to its sizes. */
ir_value nn_along(aten_lowering *c, ir_value vector, uint32_t dim, ir_value like);
ir_value nn_swap(aten_lowering *c, ir_value x, uint32_t a, uint32_t b); /* transposes two dims */
/* Moves dimension `from` to position `to`, keeping the order of the others. */
ir_value nn_move(aten_lowering *c, ir_value x, uint32_t from, uint32_t to);
/* x padded along one dim; negative amounts crop. */
ir_value nn_pad_dim(aten_lowering *c, ir_value x, uint32_t dim, ir_value fill, int64_t low, int64_t high,
                    int64_t interior);
/* Zeros of result i's type; for results that hold nothing. */
ir_value nn_zeros_out(aten_lowering *c, uint32_t i, ttpu_dtype dtype);
/* Zeros for every result that exists and was not given: a gradient that the caller's mask leaves out is one for some
 * of PyTorch's Meta kernels and none for others. */
void nn_out_rest(aten_lowering *c);

/* ---- reductions ------------------------------------------------------------------------------------- */

/* Reduces dims; `keep` leaves them with size 1. */
ir_value nn_reduce(aten_lowering *c, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims, bool keep);
ir_value nn_reduce_dim(aten_lowering *c, ir_kind kind, ir_value x, uint32_t dim, bool keep);
/* Sums all but dimension `dim` (a channel), giving a vector. */
ir_value nn_sum_to_dim(aten_lowering *c, ir_value x, uint32_t dim);
/* Sums the dims over which `sizes` was broadcast to x's sizes. */
ir_value nn_sum_to_sizes(aten_lowering *c, ir_value x, uint32_t rank, const int64_t *sizes);
/* A loss reduced as `reduction` says (none, mean, sum) over all elements. */
ir_value nn_reduce_loss(aten_lowering *c, ir_value loss, int64_t reduction);
/* Inclusive sum along a dim. */
ir_value nn_cumsum(aten_lowering *c, ir_value x, uint32_t dim);

/* ---- tables and indexing ------------------------------------------------------------------------------ */

ir_value nn_table_i64(aten_lowering *c, uint32_t count, const int64_t *values);
ir_value nn_table_f64(aten_lowering *c, ttpu_dtype dtype, uint32_t count, const double *values);
/* Space for host tables, freed with the function that is built; NULL (and a failed builder) when out of memory. */
void *nn_scratch(aten_lowering *c, size_t count, size_t bytes);
/* An index operand as i64, checked against [0, size), or, where `wrap`, against [-size, size) and wrapped. */
ir_value nn_index(aten_lowering *c, ir_value index, int64_t size, bool wrap, ir_check_error error, const char *what);
/* x[.., index[..], ..] whose dimension `dim` may be empty: then the result is zeros and the check has failed or
 * there is nothing to read. */
ir_value nn_take(aten_lowering *c, ir_value x, ir_value index, uint32_t dim);
ir_value nn_take_along(aten_lowering *c, ir_value x, ir_value index, uint32_t dim);
/* x with update slices combined at index (rank 1) of dim: update's size along dim is index's. combine 0 replaces. */
ir_value nn_index_update(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim, ir_kind combine);
/* x with single elements combined: index and updates have one shape, no larger than x outside dim (torch.scatter). */
ir_value nn_scatter_along(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                          ir_kind combine);
/* How many of the mask's elements up to each one are set: i64, flat. How many are set in all: i64, rank 0. */
ir_value nn_ranks(aten_lowering *c, ir_value mask);
ir_value nn_count(aten_lowering *c, ir_value mask);
/* values' rows where the flat mask is set, moved to the front in order; behind them `rest`. room: the result's rows. */
ir_value nn_compact(aten_lowering *c, ir_value mask, ir_value values, int64_t room, ir_value rest);
/* For each value, how many boundaries come before it (from the right: at or before it). sorted [B, N], values [B, M]. */
ir_value nn_search(aten_lowering *c, ir_value sorted, ir_value values, bool right);
/* The combination that PyTorch's + and * mean for a dtype: bool uses maximum and minimum. */
ir_kind nn_combine_add(ttpu_dtype dtype);
ir_kind nn_combine_multiply(ttpu_dtype dtype);

#endif
