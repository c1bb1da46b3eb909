/* aten, inside: what the lowerings share.
 *
 * A pointwise operator is a function over an aten_point, which is the operator applied to one tuple of operands: the
 * only one of "add.Tensor", or the i-th of "_foreach_add.List". Its arguments are named by their position in the
 * schema and arrive promoted, in the dtype that the CPU computes in, broadcast to the result's sizes. So one line
 *
 *   POINT(add, ARG(0) | ARG(1), ATEN_PROMOTE) { return ir_add(...); }
 *
 * serves tensor and Scalar overloads, in-place and out forms, and the foreach family.
 *
 * Two dtypes appear everywhere: `common`, which PyTorch's promotion gives and in which the result is defined, and
 * `math`, in which the CPU kernel computes: f32 for f16 and bf16, else common itself. A value that is rounded to a
 * half type in the middle of an operator is rounded there because the CPU kernel does so.
 */
#ifndef TTPU_ATEN_INT_H
#define TTPU_ATEN_INT_H

#include "aten/aten.h"

/* ---- arguments of a call, for shape functions, which have no lowering ---------------------------- */

bool aten_call_has(const aten_call *call, uint32_t arg);
const aten_tensor *aten_call_tensor(const aten_call *call, uint32_t arg); /* NULL: none or undefined */
const aten_number *aten_call_number(const aten_call *call, uint32_t arg); /* NULL: none */
double aten_call_real(const aten_call *call, uint32_t arg, double none);  /* a complex number's real part */
int64_t aten_call_int(const aten_call *call, uint32_t arg, int64_t none);
ir_i64s aten_call_ints(const aten_call *call, uint32_t arg);

/* ---- small things -------------------------------------------------------------------------------- */

/* A Scalar argument that has no tensor: its value, whether or not the row calls it static. */
const aten_number *aten_number_of(const aten_lowering *c, uint32_t arg);
/* Like ir_convert, with PyTorch's meaning for complex to bool (either part is not 0). */
ir_value aten_convert(aten_lowering *c, ir_value v, ttpu_dtype to);
ir_type aten_type(const aten_lowering *c, ir_value v);
/* v broadcast (trailing dimensions aligned) to the sizes of t. */
ir_value aten_expand(aten_lowering *c, ir_value v, const aten_tensor *t);
/* A constant or number of v's dtype, broadcast to v's sizes. */
ir_value aten_like(aten_lowering *c, ir_value v, double value);
ir_value aten_like_i64(aten_lowering *c, ir_value v, int64_t value);
ir_value aten_spread(aten_lowering *c, ir_value scalar, ir_value like);
/* Argument `arg` in the dtype in which the CPU computes for it. */
ir_value aten_in_math(aten_lowering *c, uint32_t arg);
ir_value aten_in_as(aten_lowering *c, uint32_t arg, ttpu_dtype dtype);
/* Result i with the elements of v in order: for results whose sizes keep reduced dimensions. */
void aten_out_reshaped(aten_lowering *c, uint32_t i, ir_value v);
/* v != 0 as bool; v itself when bool already. */
ir_value aten_is_true(aten_lowering *c, ir_value v);
/* Fails the builder: what the rest of the lowering then does is ignored. */
ir_value aten_fail(aten_lowering *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool aten_is_half(ttpu_dtype t) { return t == TTPU_F16 || t == TTPU_BF16; }
/* The dtype of a complex dtype's parts, of a real one itself; and back. */
ttpu_dtype aten_real_dtype(ttpu_dtype t);
ttpu_dtype aten_complex_dtype(ttpu_dtype t);
/* Do the indices of an index_put broadcast, and its values to what they select? (lower_index.c) */
ttpu_status aten_index_put_check(const aten_call *call);
double aten_float_max(ttpu_dtype t); /* a float dtype's largest number */

/* ---- pointwise ----------------------------------------------------------------------------------- */

typedef struct aten_point {
  aten_lowering *c;
  bool foreach;           /* lists stand where tensors and Scalars stand in the plain operator */
  uint32_t item;          /* which of the list */
  const aten_tensor *out; /* the result's metadata */
  ttpu_dtype common, math;
  uint32_t rank; /* of the broadcast operands */
  int64_t sizes[TTPU_MAX_RANK];
} aten_point;
typedef ir_value (*aten_point_fn)(aten_point *p);

enum {                     /* how `common` follows from the promoted arguments */
       ATEN_PROMOTE,       /* torch.result_type */
       ATEN_PROMOTE_FLOAT, /* the same, and integers give the default float */
       ATEN_COMPARE,       /* torch.result_type; the result is bool */
};
/* The value of an argument, promoted, in math dtype and broadcast. */
ir_value aten_point_in(aten_point *p, uint32_t arg);
/* The same without a rounding of numbers to a half type first: CPU's add, mul, div keep them in f32. */
ir_value aten_point_in_exact(aten_point *p, uint32_t arg);
/* The same in a dtype of the caller's. */
ir_value aten_point_in_as(aten_point *p, uint32_t arg, ttpu_dtype dtype);
bool aten_point_has(const aten_point *p, uint32_t arg);
/* A float or Scalar that does not take part in promotion (alpha, value, weight), in math dtype and broadcast. */
ir_value aten_point_number(aten_point *p, uint32_t arg);
const aten_number *aten_point_number_of(const aten_point *p, uint32_t arg); /* NULL: it is no number */
/* A constant of math dtype, broadcast. */
ir_value aten_point_const(aten_point *p, double value);
/* Runs fn for the one result (or for every item of the lists) and gives the results. */
void aten_pointwise(aten_lowering *c, uint32_t promoted_args, int promotion, aten_point_fn fn);
void aten_foreach(aten_lowering *c, uint32_t promoted_args, int promotion, aten_point_fn fn);

/* ---- reductions ---------------------------------------------------------------------------------- */

/* x reduced over dims. The dims vanish, or stay with size 1 (so that the result broadcasts against x). */
ir_value aten_reduce(aten_lowering *c, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims, bool keep);
/* The product of the sizes of dims. */
int64_t aten_reduced_count(aten_lowering *c, ir_value x, uint32_t count, const int64_t *dims);

/* ---- math that several families use -------------------------------------------------------------- */

ir_value aten_trunc(aten_lowering *c, ir_value x);
ir_value aten_is_nan(aten_lowering *c, ir_value x);
ir_value aten_is_inf(aten_lowering *c, ir_value x);
ir_value aten_log2(aten_lowering *c, ir_value x);
ir_value aten_log_of_base(aten_lowering *c, ir_value x, double log_of_base);
ir_value aten_logaddexp(aten_lowering *c, ir_value x, ir_value y);
ir_value aten_select_number(aten_lowering *c, ir_value pred, double on_true, ir_value on_false);
/* Horner's rule, coefficients from the highest power down. */
ir_value aten_polynomial(aten_lowering *c, ir_value x, uint32_t count, const double *coefficients);
/* The index along `dim` of every element, in the sizes of x. */
ir_value aten_iota_like(aten_lowering *c, ir_value x, ttpu_dtype dtype, uint32_t dim);

/* n numbers from start to end (rank 0), each taken from the nearer end, so that both are met exactly. */
ir_value aten_spaced(aten_lowering *c, ir_value start, ir_value end, int64_t n);

/* ---- random (lower_random.c) --------------------------------------------------------------------- */

/* Draws of one call, in order: each takes the Philox counters after those of the draw before it. */
typedef struct aten_draws {
  aten_lowering *c;
  uint64_t used; /* counters */
} aten_draws;
ir_value aten_draw_bits(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims); /* u32, u64 */
/* In [0, 1): 24 bits for f32, 53 for f64. In (0, 1): never 0, and never 1. */
ir_value aten_draw_uniform(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims);
ir_value aten_draw_open(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims);
ir_value aten_draw_normal(aten_draws *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims);

/* ---- strides of results (shape.c) ---------------------------------------------------------------- */

/* Sizes by broadcasting, strides by TensorIterator's rules, over `count` operands; false when they do not match. */
bool aten_shape_broadcast(uint32_t count, const aten_tensor *const *operands, aten_shape *out);
/* Row-major strides for out's sizes. */
void aten_shape_contiguous(aten_shape *out);
/* The strides that empty_like gives: those of a dense t, else a dense layout in the same order. */
void aten_shape_preserve(const aten_tensor *t, aten_shape *out);
void aten_shape_channels_last(aten_shape *out); /* strides of an image or a volume */
bool aten_is_contiguous(const aten_tensor *t);
bool aten_is_channels_last(const aten_tensor *t);
bool aten_prefers_channels_last(const aten_tensor *t); /* of an image or a volume */
bool aten_is_dense(const aten_tensor *t);              /* non-overlapping and dense */

/* ---- the rows' functions ------------------------------------------------------------------------- */

#define ARG(i) (1u << (i))
#define ROWX(name, lower, shape, flags, statics, mutates, dynamic, units) \
  void lower_##lower(aten_lowering *c);                                   \
  bool shape_##shape(const aten_call *call, aten_shape *outs);
#include "aten/aten.def"
#define ROWX(name, lower, shape, flags, statics, mutates, dynamic, units) \
  void lower_##lower(aten_lowering *c);                                   \
  bool shape_##shape(const aten_call *call, aten_shape *outs);
#include "aten/aten_nn.def"

#endif
