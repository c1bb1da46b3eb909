/* Wide values: what kernels that combine elements compute in, whatever the dtype in memory.
 *
 *   floats    double      sums of f32 and less are exact to the last rounding for any length that occurs
 *   signed    int64_t     integers wrap as they are stored
 *   unsigned  uint64_t    bool too, whose sum is `or` and whose product is `and`
 *   complex   double[2]   real and imaginary parts side by side
 *
 * Rows of elements are brought into a buffer of wide values, combined there, and stored again. So a kernel needs no
 * version for each dtype, and the loops that matter are in one file, wide_template.h, compiled for each instruction set. A row
 * is at most KERN_ROW elements.
 */
#ifndef TTPU_SOFT_KERN_WIDE_H
#define TTPU_SOFT_KERN_WIDE_H

#include "soft/soft_int.h"

enum { KERN_ROW = 256 };

typedef enum { WIDE_F, WIDE_I, WIDE_U, WIDE_C } wide_class;
typedef union wide {
  double f;
  int64_t i;
  uint64_t u;
} wide;
/* A row; complex takes two entries for an element. */
typedef wide wide_row[2 * KERN_ROW];

static inline wide_class wide_class_of(ttpu_dtype t) {
  switch (base_dtypes[t].cls) {
    case DTYPE_FLOAT: return WIDE_F;
    case DTYPE_SIGNED: return WIDE_I;
    case DTYPE_COMPLEX: return WIDE_C;
    default: return WIDE_U;
  }
}
static inline uint32_t wide_entries(wide_class c) { return c == WIDE_C ? 2 : 1; }
/* Reducers there are for a class, bool's sums and products mapped to logic; IR_NO_OP: none. */
ir_kind wide_kind(ir_kind kind, ttpu_dtype t);

typedef struct wide_functions {
  /* n elements `step` bytes apart. */
  void (*load)(ttpu_dtype t, const void *from, int64_t step, int64_t n, wide *to);
  void (*store)(ttpu_dtype t, void *to, int64_t step, int64_t n, const wide *from);
  /* a[i] = kind(a[i], x[i]) */
  void (*combine)(ir_kind kind, wide_class c, wide *a, const wide *x, int64_t n);
  /* a[0] = kind(a[0], x[0], x[1], ...): long rows in 32 interleaved parts, which are combined in order. */
  void (*fold)(ir_kind kind, wide_class c, wide *a, const wide *x, int64_t n);
  /* x[i] = kind(carry, x[0], ..., x[i]); carry = the last of them. */
  void (*prefix)(ir_kind kind, wide_class c, wide *carry, wide *x, int64_t n);
  /* best[i] and index[i] become x[i] and `at` when x[i] is beyond best[i]: larger or smaller, NaN beyond all; equal
   * elements take over when `last`. Not for complex. */
  void (*take)(bool largest, bool last, wide_class c, wide *best, int64_t *index, const wide *x, int64_t at, int64_t n);
  /* Along a line: x[i] becomes the extreme of carry, x[0], ..., x[i], index[i] its place (at, at + step, ... for x); the later
   * of equal elements. carry and *place go on. */
  void (*prefix_take)(bool largest, wide_class c, wide *carry, int64_t *place, wide *x, int64_t *index, int64_t at,
                      int64_t step, int64_t n);
  /* best[i] stays where best[i] (select) x[i * step] holds and place[i] >= 0; else that and its place at + i * step take over. */
  void (*select)(ir_direction select, wide_class c, wide *best, int64_t *place, const wide *x, int64_t at, int64_t step,
                 int64_t n);
} wide_functions;

extern const wide_functions wide_portable, wide_avx2, wide_avx512;
const wide_functions *wide_get(void); /* the best that base_cpu() allows */

#endif
