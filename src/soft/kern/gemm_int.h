/* Inside of gemm: the micro-kernels' contract, the tables of them, and the blocked engine that convolution
 * uses as well.
 *
 * A product is C[m,n] += A[m,k] B[k,n]. The k axis is cut into blocks of at most `kc`; within one, A is packed into
 * panels of up to `mr` rows and B into panels of `nr` columns:
 *
 *     A panel   for each group of kr values of k: kr elements of row 0, kr of row 1, ... `rows` rows in all; a last
 *               panel with fewer rows is packed that much tighter, so that no work is done on padding
 *     B panel   the same over columns, always `nr` wide, zeros beyond the last column
 *
 * Both are the same operation on *lines* (rows of A, columns of B), gemm_pack. A panel whose k is no multiple of kr ends with
 * zeros. Complex panels hold, for every k, all real parts, then all imaginary parts.
 *
 * A task is a tile of C with the whole of k: it packs its own A and B into its worker's part of the workspace, so
 * there is no barrier, and it accumulates either in C itself (when C has the accumulator's dtype, unit column stride
 * and nothing to apply) or in a tile of accumulators that is finished and stored at the end.
 */
#ifndef TTPU_SOFT_KERN_GEMM_INT_H
#define TTPU_SOFT_KERN_GEMM_INT_H

#include "soft/kern/gemm.h"

enum {
  GEMM_SKINNY = 8,       /* rows that a skinny kernel takes */
  GEMM_SKINNY_ROWS = 16, /* rows up to which products go that way */
  GEMM_NR_MAX = 64
};

typedef struct gemm_kernel {
  const char *name;
  int mr, nr, kr;
  int lanes;         /* of a vector of B */
  ttpu_dtype packed; /* an element of the panels */
  ttpu_dtype acc;    /* an element of the accumulator tile */
  /* c[rows, cols] = panel product (+ c if accumulate); 1 <= rows <= mr, 1 <= cols <= nr; a's panel has `rows` rows. */
  void (*run)(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row, bool accumulate);
  /* The same, from A with any strides and B with unit column stride, unpacked; NULL: the kernel has none. Whole vectors of B
   * are read, so `cols` is a multiple of `lanes` or B's rows go on that far. */
  void (*direct)(int64_t k, int rows, int cols, const void *a, int64_t a_row, int64_t a_col, const void *b,
                 int64_t b_row, void *c, int64_t c_row, bool accumulate);
  /* The same, with rows of A read where they lie: elements are groups of kr values, row i's group p is at
   * a + i*a_row + offsets[p]. NULL: the kernel has none. */
  void (*window)(int64_t k, int rows, int cols, const void *a, int64_t a_row, const int32_t *offsets, const void *b,
                 void *c, int64_t c_row, bool accumulate);
  /* Kernels on matrix tiles. Panels are zero up to a multiple of k_unit (0: kr); A's panel is a plain matrix, each row's
   * values of k together; `begin` and `end` stand around a thread's calls of `run`. */
  int k_unit;
  bool a_by_rows;
  void (*begin)(void), (*end)(void);
  /* Kernels of bytes multiply an A without sign: each of its bytes is packed with 128 added. B's panel then begins with as many
   * sums as it has columns, where other panels have a group of kr values: what this function makes of its `groups` groups,
   * less 128 for each, added to what is there. k is one block. */
  void (*sum_columns)(int columns, int64_t groups, const void *values, void *sums);
} gemm_kernel;

/* Values of k before the first in a panel. */
static inline int gemm_head(const gemm_kernel *kernel) { return kernel->sum_columns ? kernel->kr : 0; }

/* Values of k in a panel of `count`, padding and head included. */
static inline int64_t gemm_padded(const gemm_kernel *kernel, int64_t count) {
  const int64_t unit = kernel->k_unit ? kernel->k_unit : kernel->kr;
  return (count + unit - 1) / unit * unit + gemm_head(kernel);
}

/* Skinny kernels: `m` rows of A (accumulator dtype, contiguous, a_row apart) against w.
 * dot: w is [n,k] with unit k; c[i,j] = sum_p a[i,p] w[j,p]. axpy: w is [k,n] with unit n; c[i,j] += ... */
typedef void (*gemm_skinny_fn)(int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *w,
                               int64_t w_row, void *c, int64_t c_row);
typedef struct gemm_skinny {
  ttpu_dtype weight, acc;
  gemm_skinny_fn dot, axpy;
  bool pairs; /* dot alone: A has the weight's dtype, and k, a_row and w_row count pairs */
} gemm_skinny;

/* One instruction set. */
typedef struct gemm_isa {
  const char *name;
  const gemm_kernel *f32, *f64, *u32, *u64, *c64, *c128;
  const gemm_skinny *skinny;
  int skinny_count;
  /* Packing of 4- and 8-byte elements: dst[p*width + i] = src[i*line + p*k], i < lines, zero up to width. */
  void (*pack_4)(int lines, int width, int64_t count, const void *src, int64_t line, int64_t k, void *dst);
  void (*pack_8)(int lines, int width, int64_t count, const void *src, int64_t line, int64_t k, void *dst);
  /* The same for 2-byte elements in pairs of k, where line is 1. */
  void (*pack_2_pairs)(int lines, int width, int64_t count, const void *src, int64_t k, void *dst);
  /* Rows: conversion between f32 and the 16-bit floats. */
  void (*f32_from_bf16)(int64_t n, const uint16_t *src, float *dst);
  void (*f32_from_f16)(int64_t n, const uint16_t *src, float *dst);
  void (*bf16_from_f32)(int64_t n, const float *src, uint16_t *dst);
  void (*f16_from_f32)(int64_t n, const float *src, uint16_t *dst);
} gemm_isa;

extern const gemm_isa gemm_isa_portable, gemm_isa_avx2, gemm_isa_avx512;
const gemm_isa *gemm_isa_get(void); /* the best that base_cpu() allows */

/* The kernel for pairs of bf16 summed in f32, and of i16 in i32; NULL where widening to f32 or u32 is as fast. */
const gemm_kernel *gemm_bf16_get(void);
const gemm_kernel *gemm_i16_get(void);
/* The skinny kernel for pairs of bf16, on machines where gemm_bf16_get's multiplies vectors; NULL: none. */
const gemm_skinny *gemm_bf16_skinny_get(void);
/* The kernel for fours of i8 summed in i32, for plain matrices alone; NULL: none. */
const gemm_kernel *gemm_i8_get(void);

/* The kernel for inputs and output; NULL when there is no such product. */
const gemm_kernel *gemm_kernel_get(ttpu_dtype a, ttpu_dtype b, ttpu_dtype out, int precision);
/* The same for a product of matrices, which may have another for bytes. */
const gemm_kernel *gemm_kernel_of_product(const kern_gemm *g);

/* Packs `lines` lines of `count` elements of dtype `from` into a panel `width` lines wide. gemm_pack_chunk packs the values
 * k0 .. k0+n of a panel of `total` in all, in order; chunks but the last are of even length. */
typedef enum { GEMM_A, GEMM_B } gemm_side;
void gemm_pack(const gemm_kernel *kernel, gemm_side side, ttpu_dtype from, int lines, int width, int64_t count,
               const void *src, int64_t line, int64_t k, void *dst);
void gemm_pack_chunk(const gemm_kernel *kernel, gemm_side side, ttpu_dtype from, int lines, int width, int64_t k0,
                     int64_t n, int64_t total, const void *src, int64_t line, int64_t k, void *panel);
/* Converts a row of n elements, `stride` apart, into contiguous elements of dtype `to`: as base_scalar_convert. */
void gemm_convert_row(ttpu_dtype from, ttpu_dtype to, int64_t n, const void *src, int64_t stride, void *dst);
/* The other direction: n contiguous elements of `from` to elements of `to`, `stride` apart. */
void gemm_store_row(ttpu_dtype from, ttpu_dtype to, int64_t n, const void *src, void *dst, int64_t stride);

enum { GEMM_AHEAD = 24 }; /* how many offsets of a window are readable behind the last: their lines are fetched ahead */
/* Lines of A that need no panels: convolution's windows. Elements are the kernel's groups of kr values. */
typedef struct gemm_window {
  int64_t run, step;      /* lines in a row that lie `step` apart; the line after them lies elsewhere */
  const int32_t *offsets; /* of the groups of a line from its first */
  const void *(*line)(const void *ctx, int64_t batch, int64_t line);
  const void *ctx;
} gemm_window;

/* Where panels come from. */
typedef struct gemm_operand {
  ttpu_dtype dtype;
  const void *data; /* a strided matrix */
  int64_t line, k, batch;
  const void *panels;        /* or panels of a whole B, packed before */
  const gemm_window *window; /* or an A that is read through kernel->window */
  /* or a function that packs one panel; data is its context */
  void (*pack)(const void *ctx, int64_t batch, int64_t line0, int lines, int width, int64_t k0, int64_t count,
               void *dst);
} gemm_operand;

typedef struct gemm_job {
  const gemm_kernel *kernel;
  int64_t m, n, k, batch;
  gemm_operand a, b;
  ttpu_dtype out;
  void *c;
  int64_t c_row, c_col, c_batch;
  double beta;
  const void *bias;
  ttpu_dtype bias_dtype;
  bool bias_rows;     /* the bias runs along rows of C, not along columns */
  int64_t bias_batch; /* elements from one batch entry's bias to the next */
  kern_gemm_epilogue epilogue;
  void *epilogue_ctx;
  /* When set, finished tiles go here instead of to c. */
  void (*store)(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void *tile,
                int64_t tile_stride);
  void *store_ctx;
} gemm_job;

bool gemm_job_is_blocked(const gemm_job *job); /* through packed panels: neither small nor skinny */
size_t gemm_job_workspace(const gemm_job *job);
/* All of B into panels, on the pool, for `panels`. */
size_t gemm_whole_b_bytes(const gemm_kernel *kernel, int64_t n, int64_t k);
void gemm_pack_whole_b(const gemm_job *job, void *to);
ttpu_status gemm_job_run(const gemm_job *job, void *workspace);

#endif
