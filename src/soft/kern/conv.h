/* kern/conv: convolution of up to three spatial dimensions, in StableHLO's terms, over strided operands. Takes pointers,
 * sizes and strides; gives
 *
 *     out[n,o,x] = bias[o] + sum over c, w of in[n, c, (x*window_stride + w*rhs_dilation - pad) / lhs_dilation] * kernel[o,c,w]
 *
 * where a term counts only when the division is exact and the index lies inside the input. A layout is a choice of
 * strides, so NCHW, NHWC, and the swapped dimensions of backward passes are all the same to the caller. Sums and
 * dtypes are gemm.h's. Results do not depend on the number of threads.
 *
 * How (conv.c): an implicit matrix product, output features against output positions, in which the packing reads the input
 * through the window, so no im2col buffer exists; a dilated input is split into its phases first, so no zero is
 * multiplied; 1x1 convolutions hand the input over as a matrix; depthwise ones have their own kernel.
 */
#ifndef TTPU_SOFT_KERN_CONV_H
#define TTPU_SOFT_KERN_CONV_H

#include "soft/kern/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERN_CONV_SPATIAL = 3 };

/* Called once per tile, before it is rounded and stored, with accumulators: element (feature0 + f, position0 + p) at
 * tile[f*feature_stride + p*position_stride]. A position counts images and output pixels in row-major order. */
typedef void (*kern_conv_epilogue)(void *ctx, int64_t feature0, int64_t features, int64_t position0, int64_t positions,
                                   void *tile, int64_t feature_stride, int64_t position_stride);

typedef struct kern_conv {
  ttpu_dtype dtype, kernel_dtype, out_dtype; /* kernel_dtype 0: dtype */
  int precision;                             /* as in kern_gemm */
  int spatial;                               /* 0 to 3; arrays below have one entry each, outermost first */
  int64_t batch, in_features, out_features;  /* of the whole operands: batch is the input's */
  int64_t in_size[KERN_CONV_SPATIAL], kernel_size[KERN_CONV_SPATIAL], out_size[KERN_CONV_SPATIAL];
  int64_t window_stride[KERN_CONV_SPATIAL]; /* >= 1, as the dilations */
  int64_t pad_low[KERN_CONV_SPATIAL];       /* may be negative; the high padding follows from out_size */
  int64_t lhs_dilation[KERN_CONV_SPATIAL], rhs_dilation[KERN_CONV_SPATIAL];
  bool reversal[KERN_CONV_SPATIAL]; /* window_reversal */
  int64_t groups;                   /* feature_group_count: kernel has in_features/groups input features */
  int64_t batch_groups;             /* batch_group_count: out has batch/batch_groups images */
  /* strides in elements; kernel_in steps over the kernel's input features, kernel_out over its output features */
  const void *in;
  int64_t in_batch, in_feature, in_spatial[KERN_CONV_SPATIAL];
  const void *kernel;
  int64_t kernel_in, kernel_out, kernel_spatial[KERN_CONV_SPATIAL];
  void *out;
  int64_t out_batch, out_feature, out_spatial[KERN_CONV_SPATIAL];
  const void *kernel_packed; /* kern_conv_pack's; NULL: none */
  const void *bias;          /* out_features elements, contiguous; NULL: none */
  ttpu_dtype bias_dtype;
  kern_conv_epilogue epilogue; /* NULL: none */
  void *epilogue_ctx;
  void *workspace; /* kern_conv_workspace bytes, 64-byte aligned; NULL: taken from base_alloc */
} kern_conv;

/* INVALID_ARGUMENT for sizes or dtypes that do not go together, RESOURCE_EXHAUSTED when memory is out. */
ttpu_status kern_conv_run(const kern_conv *c);
size_t kern_conv_workspace(const kern_conv *c);

/* The kernel in the micro-kernel's panels, to keep beside a weight and pass as kernel_packed in later convolutions with the
 * same key. 0 bytes: this convolution has no use for them. The key does not say where the kernel lies. */
size_t kern_conv_packed_bytes(const kern_conv *c, base_hash128 *key);
ttpu_status kern_conv_pack(const kern_conv *c, void *packed);

#ifdef __cplusplus
}
#endif
#endif
