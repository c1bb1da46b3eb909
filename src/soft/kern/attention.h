/* kern/attention: scaled dot-product attention, forward, in one pass over keys (no score matrix in memory). Takes
 * q [B,H,M,D], k [B,G,N,D], v [B,G,N,E] by strides, H a multiple of G (head h reads key head h / (H/G)); gives
 *
 *     s[i,j] = scale * sum over d of q[i,d] k[j,d] + bias[i,j]     (-inf where the mask is false, or causal and j > i)
 *     out[i] = sum over j of softmax(s[i])[j] * v[j]               [B,H,M,E]
 *     logsumexp[i] = log(sum over j of exp(s[i,j]))                [B,H,M], f32
 *
 * A row in which nothing is left to attend to gives out 0 and logsumexp -inf. Sums are f32 (f64 for f64); with
 * bf16 inputs the probabilities are rounded to bf16 before they meet v where the machine multiplies bf16.
 * Results do not depend on the number of threads.
 */
#ifndef TTPU_SOFT_KERN_ATTENTION_H
#define TTPU_SOFT_KERN_ATTENTION_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kern_attention {
  ttpu_dtype dtype; /* f32, bf16, f16, f64: of q, k, v and out */
  int64_t batch, heads, kv_heads;
  int64_t m, n, d, e; /* queries, keys, size of q and k, size of v */
  const void *q, *k, *v;
  int64_t q_strides[4], k_strides[4], v_strides[4]; /* in elements, any value */
  double scale;
  bool causal;             /* key j is seen by query i when j <= i: aligned at the top left, PyTorch's is_causal */
  const void *bias;        /* NULL: none */
  ttpu_dtype bias_dtype;   /* any float: added; BOOL: a mask, true is seen */
  int64_t bias_strides[4]; /* over [B,H,M,N]; 0 where it is broadcast */
  void *out;
  int64_t out_strides[4];
  float *logsumexp; /* NULL: not wanted */
  int64_t logsumexp_strides[3];
  void *workspace; /* kern_attention_workspace bytes, 64-byte aligned; NULL: taken from base_alloc */
} kern_attention;

/* INVALID_ARGUMENT for sizes or dtypes that do not go together, RESOURCE_EXHAUSTED when memory is out. */
ttpu_status kern_attention_run(const kern_attention *a);
size_t kern_attention_workspace(const kern_attention *a);

#ifdef __cplusplus
}
#endif
#endif
