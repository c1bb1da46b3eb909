/* infer_int: what the rules of inference share. A rule has the name that ops.def gives it, reads operand types through
 * T(i) and answers through infer_result(). A check returns false after the first message, which says what was expected
 * and what came; the caller puts the operation's name in front.
 *
 *   infer.c          the frame: result types, lists of dimensions, regions; elementwise rules; types that are given
 *   infer_index.c    slices, transpositions, gather and scatter
 *   infer_window.c   products, convolutions, reductions, windows; sort, control flow, linear algebra, our composites
 */
#ifndef TTPU_IR_INFER_INT_H
#define TTPU_IR_INFER_INT_H

#include <string.h>

#include "ir/ir_int.h"

#define T(i) ir_type_of(in->func, in->operands[i])
#define FAIL(...) return infer_fail(in, __VA_ARGS__)
#define CHECK(condition, ...)                                 \
  do {                                                        \
    if (__builtin_expect(!(condition), 0)) FAIL(__VA_ARGS__); \
  } while (0)
#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)

#define OP(ENUM, name, operands, results, regions, infer, attrs, flags) bool infer_##infer(ir_inference *in);
#include "ir/ops.def"
#undef OP

bool infer_fail(ir_inference *in, const char *format, ...) __attribute__((cold, noinline, format(printf, 2, 3)));
bool infer_no_memory(ir_inference *in) __attribute__((cold, noinline));

/* Makes room for `count` results. */
bool infer_results(ir_inference *in, uint32_t count);
bool infer_result(ir_inference *in, ir_type type);
/* Dims that no operand has: into the arena, with the bounds that every tensor keeps. */
bool infer_fresh(ir_inference *in, uint32_t rank, const int64_t *dims, ttpu_dtype dtype, ir_type *out);
bool infer_result_dims(ir_inference *in, uint32_t rank, const int64_t *dims, ttpu_dtype dtype);

bool infer_check_class(ir_inference *in, ir_type t); /* the kind allows its dtype */
/* A list of distinct dimension numbers below rank; one in ascending order; one dimension; a list's length. */
bool infer_check_dims(ir_inference *in, const char *what, ir_i64s dims, uint32_t rank);
bool infer_check_sorted(ir_inference *in, const char *what, ir_i64s dims);
bool infer_check_dim(ir_inference *in, const char *what, int64_t d, uint32_t rank);
bool infer_check_count(ir_inference *in, const char *what, uint32_t count, uint32_t expected);
bool infer_check_equal_operands(ir_inference *in, uint32_t first); /* all from `first` on have its type */

ir_type infer_region_arg(const ir_inference *in, uint32_t region, uint32_t i);
bool infer_region_args(ir_inference *in, uint32_t region, uint32_t count);
/* The RETURN of a region, with `count` operands; count < 0: any. */
bool infer_region_return(ir_inference *in, uint32_t region, int64_t count, const ir_op **out);
/* A reducer of n tensors: (n accumulators, n elements) -> n, all scalars of the dtypes of operands first, ... */
bool infer_check_reducer(ir_inference *in, uint32_t region, uint32_t n, uint32_t first);
bool infer_check_predicate_region(ir_inference *in, uint32_t region); /* (args...) -> i1 */

/* Every element that the as_strided attributes ask for exists in the operand (infer_index.c). */
bool infer_check_strided(ir_inference *in, ir_type operand, ir_type view);
/* Windows over t, whose counts go to dims (infer_window.c). */
bool infer_check_window(ir_inference *in, ir_type t, const ir_window_attrs *a, int64_t *dims);
/* Replica groups are rows of one length, *size; 0: all replicas, however many. */
bool infer_check_groups(ir_inference *in, int64_t *size);
bool infer_check_pairs(ir_inference *in); /* source_target_pairs */

static inline bool has(ir_i64s list, int64_t v) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == v) return true;
  return false;
}

static inline ir_type with_dtype(ir_type t, ttpu_dtype dtype) {
  t.dtype = (uint8_t)dtype;
  return t;
}

static inline bool is_scalar(ir_type t, ttpu_dtype dtype) { return t.rank == 0 && t.dtype == dtype; }
static inline bool is_integer_scalar(ir_type t) { return t.rank == 0 && base_dtype_is_integer((ttpu_dtype)t.dtype); }

static inline ttpu_dtype part_of(ttpu_dtype complex) {
  return complex == TTPU_C64 ? TTPU_F32 : complex == TTPU_C128 ? TTPU_F64 : complex;
}

#endif
