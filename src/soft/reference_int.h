/* The inside of the scalar reference: the slow truth that every kernel is compared with.
 *
 * It reads and writes elements one at a time as base_scalar, whatever their dtype and wherever the strides put
 * them, and follows the text of the StableHLO specification index by index. Numerics:
 *   integers      exact modulo 2^width; bool adds as `or` and multiplies as `and`
 *   f32 and less  each operation in double, rounded once to the result's dtype
 *   sums          of recognised reducers, products and scans accumulate in double and are rounded once, so that
 *                 the truth is nearer to the real number than any kernel
 *   f64, complex  as C99's libm, with PyTorch's complex division
 *
 *   reference.c            soft_reference_op, soft_reference_run, regions and control flow
 *   reference_pointwise.c  what a pointwise operation means for one element
 *   reference_math.c       functions that libm lacks
 *   reference_move.c       index maps, concatenate, pad, slices, gather, scatter, as_strided, sources
 *   reference_reduce.c     products, convolution, reductions, windows, sort, scan, top-k, attention
 *   reference_linalg.c     fft, cholesky, triangular solve
 *
 * Types were checked when the operation was built (ir/infer.c); what is checked here is what depends on values.
 */
// clang-format off: lists of rows, which it takes for statements
#ifndef TTPU_SOFT_REFERENCE_INT_H
#define TTPU_SOFT_REFERENCE_INT_H

#include "soft/soft_int.h"

/* ---- elements ---------------------------------------------------------------------------------- */

/* A walk over all indices of a shape, the last dimension fastest:
 *   for (ref_index i = ref_index_begin(rank, dims); i.more; ref_index_next(&i)) ... i.at[d] ... */
typedef struct ref_index {
  int64_t at[TTPU_MAX_RANK];
  uint32_t rank;
  const int64_t *dims;
  bool more;
} ref_index;

static inline ref_index ref_index_begin(uint32_t rank, const int64_t *dims) {
  ref_index i = {.rank = rank, .dims = dims, .more = base_numel(rank, dims) > 0};
  return i;
}
static inline void ref_index_next(ref_index *i) {
  for (uint32_t d = i->rank; d-- > 0;) {
    if (++i->at[d] < i->dims[d]) return;
    i->at[d] = 0;
  }
  i->more = false;
}

static inline void *ref_at(const soft_view *v, const int64_t *index) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < v->rank; ++d) offset += index[d] * v->strides[d];
  return (char *)v->data + offset * (int64_t)base_dtype_bytes(v->dtype);
}
static inline base_scalar ref_load(const soft_view *v, const int64_t *index) {
  return base_scalar_load(v->dtype, ref_at(v, index));
}
static inline void ref_store(const soft_view *v, const int64_t *index, base_scalar x) {
  base_scalar_store(v->dtype, ref_at(v, index), x);
}
/* An integer element as int64; u64 above INT64_MAX saturates, which no index reaches. */
static inline int64_t ref_integer(ttpu_dtype t, base_scalar x) {
  return t == TTPU_U64 && x.u > INT64_MAX ? INT64_MAX : x.i;
}
/* One past the last element of a flat, row-major numbering: the index of element `flat`. */
static inline void ref_unflatten(uint32_t rank, const int64_t *dims, int64_t flat, int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) {
    index[d] = flat % dims[d];
    flat /= dims[d];
  }
}
static inline bool ref_contains(ir_i64s list, int64_t x) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == x) return true;
  return false;
}
/* list[i], or `otherwise` where the attribute was left empty. */
static inline int64_t ref_get(ir_i64s list, uint32_t i, int64_t otherwise) {
  return i < list.count ? list.data[i] : otherwise;
}

/* ---- pointwise --------------------------------------------------------------------------------- */

/* One element: y = op(x...), operand i having dtype types[i]. False where op does not exist for the dtype. */
bool ref_pointwise(const ir_op *op, const ttpu_dtype *types, const base_scalar *x, ttpu_dtype result, base_scalar *y);
/* The same for a kind without attributes, both operands and the result of one dtype. */
bool ref_binary(ir_kind kind, ttpu_dtype t, base_scalar a, base_scalar b, base_scalar *y);
double ref_digamma(double x);
double ref_erf_inv(double x);

/* ---- regions ----------------------------------------------------------------------------------- */

/* The values of all regions of one operation, with memory for each; made once, run as often as needed. */
typedef struct ref_frame {
  const ir_func *f;
  ir_value first; /* the lowest value defined inside */
  uint32_t count;
  soft_view *views; /* of value first + i */
  uint32_t capture_count;
  ir_value *captures;
  const soft_view *captured;
  void *data;
} ref_frame;

ttpu_status ref_frame_open(ref_frame *frame, const ir_func *f, const ir_op *op, const soft_view *operands);
void ref_frame_close(ref_frame *frame);
const soft_view *ref_frame_view(const ref_frame *frame, ir_value v);
/* Runs the region over the arguments in the frame; its results are the views of its RETURN's operands. */
ttpu_status ref_region_run(const ref_frame *frame, const ir_region *region);
/* A region over scalars: arguments in, results out (as many as given). */
ttpu_status ref_region_call(const ref_frame *frame, const ir_region *region, const base_scalar *arguments,
                            uint32_t result_count, base_scalar *results);
static inline const ir_op *ref_region_return(const ir_region *region) { return region->ops[region->count - 1]; }

/* ---- operations, by family --------------------------------------------------------------------- */

#define REF_OP(name) ttpu_status ref_##name(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y);
REF_OP(broadcast_in_dim) REF_OP(reshape) REF_OP(reverse) REF_OP(slice) REF_OP(transpose) REF_OP(concatenate)
REF_OP(pad) REF_OP(dynamic_slice) REF_OP(dynamic_update_slice) REF_OP(gather) REF_OP(scatter) REF_OP(constant)
REF_OP(iota) REF_OP(rng_bit_generator) REF_OP(as_strided) REF_OP(as_strided_update) REF_OP(check_index)
REF_OP(bitcast_convert) REF_OP(copy)
REF_OP(dot_general) REF_OP(convolution) REF_OP(reduce) REF_OP(reduce_window) REF_OP(select_and_scatter)
REF_OP(sort) REF_OP(attention) REF_OP(scan) REF_OP(path_scan) REF_OP(top_k)
REF_OP(fft) REF_OP(cholesky) REF_OP(triangular_solve)
#undef REF_OP

#endif
