/* Inside of conv. kern_conv_run reduces every convolution to conv_plain: one group's sizes, three spatial
 * dimensions (missing ones have size 1), no input dilation, no reversal; groups remain as offsets from one to the next.
 *
 * As a matrix product, lines of one operand are output features, lines of the other *positions* (image, then output
 * pixel, row-major), and k runs over input features and window taps. Where features are contiguous in the input k has them
 * innermost, else taps are innermost. One panel of positions is filled by conv_pack.c in one of two ways, whichever
 * has longer contiguous runs: by lanes (for one k, a row of neighbouring pixels) or by k (for one position, a run
 * of features or of taps). conv_window.c does without panels.
 */
#ifndef TTPU_SOFT_KERN_CONV_INT_H
#define TTPU_SOFT_KERN_CONV_INT_H

#include "soft/kern/conv.h"
#include "soft/kern/gemm_int.h"

typedef struct conv_plain {
  ttpu_dtype dtype, kernel_dtype, out_dtype;
  int precision;
  int64_t groups, images, channels, features; /* images, channels, features of one group */
  int64_t in_size[3], taps[3], out_size[3];
  int64_t stride[3], pad[3], dilation[3];
  const char *in, *kernel;
  const void *kernel_packed;
  char *out;
  int64_t in_group, in_image, in_channel, in_spatial[3];
  int64_t kernel_group, kernel_channel, kernel_feature, kernel_spatial[3];
  int64_t out_group, out_image, out_feature, out_spatial[3];
  const void *bias; /* `features` of each group in turn */
  ttpu_dtype bias_dtype;
  kern_conv_epilogue epilogue;
  void *epilogue_ctx;
  /* Where the output positions lie among those of the whole convolution, for the epilogue: phases of a dilated
   * input have a step and an offset. */
  int64_t whole_size[3], phase_offset[3], phase_step[3];
} conv_plain;

/* Context of conv_pack_positions. */
typedef struct conv_patches {
  const conv_plain *conv;
  const gemm_kernel *kernel;
  gemm_side side; /* which operand of the product the positions are */
  bool channels_inner, by_k;
  bool per_image; /* a batch entry is one image of one group, else all images of one group */
} conv_patches;

void conv_pack_positions(const void *patches, int64_t batch, int64_t line0, int lines, int width, int64_t k0,
                         int64_t count, void *dst);

/* Positions that are read without panels, from a field (conv_window.c). Strides are in groups of kr values. */
typedef struct conv_window {
  const conv_plain *conv;
  const gemm_kernel *kernel;
  bool channels_inner;
  bool in_place;           /* the input is the field */
  int64_t channel_groups;  /* of kr channels */
  int64_t low[3], size[3]; /* the input positions that the field holds */
  int64_t images;          /* that a field holds */
  int64_t image, group, spatial[3];
  const char *field;
  gemm_window window;
} conv_window;

/* Does the convolution go that way? k's order: with channels_inner tap, channel; else group of channels, tap, channel. */
bool conv_window_plan(const conv_plain *c, const gemm_kernel *kernel, bool channels_inner, conv_window *w);
size_t conv_window_workspace(const conv_window *w);
void conv_window_start(conv_window *w, void *workspace);                    /* makes w->window.offsets */
void conv_window_fill(conv_window *w, int64_t first_image, int64_t images); /* at most w->images */
void conv_pair_rows_avx512(int64_t n, const uint16_t *a, const uint16_t *b, uint16_t *to);
/* Pairs of rows of n, one behind the other, interleaved: of each pair to[2*i] = from[i], to[2*i + 1] = from[n + i]; n <= 16. */
void conv_pair_taps_avx512(int64_t pairs, int n, const uint16_t *from, uint16_t *to);

/* Neighbouring lanes that read the input `step` elements apart. */
typedef struct conv_segment {
  int lane, length;
  int64_t offset; /* elements from the source to the first lane's */
} conv_segment;

/* Fills `rows` rows of `width` elements: row r takes its lanes from src + r*src_step, zeros elsewhere. Elements are
 * 4 or 2 bytes; steps are in elements. */
void conv_fill_rows_avx512_4(const conv_segment *segments, int count, int64_t step, int width, int64_t rows,
                             const void *src, int64_t src_step, void *dst, int64_t dst_step);
void conv_fill_rows_avx512_2(const conv_segment *segments, int count, int64_t step, int width, int64_t rows,
                             const void *src, int64_t src_step, void *dst, int64_t dst_step);

/* conv_depthwise.inc says what they compute. */
typedef struct conv_depthwise_kernels {
  void (*rows)(int rows, int64_t n, int taps, const int64_t *offsets, const float *weights, const float *from,
               int64_t from_step, float *out, int64_t out_step);
  void (*pixel)(ttpu_dtype dtype, int64_t n, int taps, const int64_t *offsets, const int32_t *rows,
                const float *weights, int64_t pitch, const void *from, float *out);
} conv_depthwise_kernels;
extern const conv_depthwise_kernels conv_depthwise_portable, conv_depthwise_avx2, conv_depthwise_avx512;

/* Depthwise (one input and one output channel a group), floats. */
bool conv_depthwise_fits(const conv_plain *c);
size_t conv_depthwise_workspace(const conv_plain *c);
ttpu_status conv_depthwise_run(const conv_plain *c, void *workspace);

#endif
