/* Inside of attention: the softmax of one row against one block of keys, per instruction set. */
#ifndef TTPU_SOFT_KERN_ATTENTION_INT_H
#define TTPU_SOFT_KERN_ATTENTION_INT_H

#include "soft/kern/attention.h"
#include "soft/kern/gemm_int.h"

/* Turns `seen` products of s into probabilities relative to the row's running maximum; s[seen .. count] become 0. `max` and
 * `sum` are the row's state, -inf and 0 at first. Returns what earlier sums of the row must be multiplied by. A NaN in s
 * reaches the sum, not the maximum. */
typedef struct attention_kernels {
  float (*softmax_f32)(float *s, int64_t seen, int64_t count, float scale, const float *bias, float *max, float *sum);
  double (*softmax_f64)(double *s, int64_t seen, int64_t count, double scale, const double *bias, double *max,
                        double *sum);
  void (*scale_f32)(float *x, int64_t n, float by);
  void (*scale_f64)(double *x, int64_t n, double by);
} attention_kernels;

extern const attention_kernels attention_kernels_portable, attention_kernels_avx2, attention_kernels_avx512;

#endif
