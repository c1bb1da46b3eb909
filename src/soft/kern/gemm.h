/* kern/gemm: matrix products of every dtype over strided operands. Takes pointers, sizes and strides; gives
 *
 *     C[b,i,j] = epilogue(beta * C[b,i,j] + sum over p of A[b,i,p] * B[b,p,j] + bias[j])
 *
 * Strides are in elements and may be anything, 0 and negative included (C's must not make two elements
 * share an address). Nothing of C is read when beta is 0. k = 0 gives beta * C + bias.
 *
 * Accumulation: f32 for f32, bf16, f16 and the f8 types; f64 for f64; complex in its own precision;
 * integers wrap modulo 2^32 when the output has 32 bits or fewer, else modulo 2^64, so the output is the exact
 * sum modulo its own width. Every element of C is summed in an order that depends on the shape, the strides and
 * the kind of CPU alone, never on the number of threads.
 *
 * Which way a product goes (gemm.c decides):
 *   direct   small: the micro-kernel reads A and B where they lie
 *   skinny   m or n up to 8: B is streamed once, at memory speed
 *   blocked  everything else: packed panels, tasks of C tiles, micro-kernels per instruction set
 *
 * The micro-kernels' private contract is gemm_int.h.
 */
#ifndef TTPU_SOFT_KERN_GEMM_H
#define TTPU_SOFT_KERN_GEMM_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The precision of f32 products; the values are ir_precision's. The other dtypes ignore it. DEFAULT and HIGH
 * allow fewer bits where that is faster (one bf16 pass, three bf16 passes); HIGHEST is true f32. */
enum { KERN_PRECISION_DEFAULT = 0, KERN_PRECISION_HIGH = 1, KERN_PRECISION_HIGHEST = 2 };

/* Called once per tile of C, before it is rounded to the output dtype and stored: `tile` holds `rows` x `cols`
 * elements of the accumulator's dtype (kern_gemm_accumulator), `tile_stride` elements from row to row, and may
 * be rewritten in place. Tiles may come in any order and from several threads at once. */
typedef void (*kern_gemm_epilogue)(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                   void *tile, int64_t tile_stride);

typedef struct kern_gemm {
  ttpu_dtype a_dtype, b_dtype; /* b_dtype 0: a_dtype */
  ttpu_dtype out;
  int precision;
  int64_t m, n, k;
  const void *a;
  int64_t a_row, a_col; /* element [i,p] at a_row*i + a_col*p */
  const void *b;
  int64_t b_row, b_col; /* element [p,j] at b_row*p + b_col*j */
  void *c;
  int64_t c_row, c_col;
  int64_t batch; /* 0 is an empty product; a single one is 1 */
  int64_t a_batch, b_batch, c_batch;
  double beta;
  const void *bias; /* n elements, contiguous; NULL: none */
  ttpu_dtype bias_dtype;
  kern_gemm_epilogue epilogue; /* NULL: none */
  void *epilogue_ctx;
  const void *b_packed; /* what kern_gemm_pack_b wrote; then b is not read (batch b_batch ignored: one B) */
  void *workspace;      /* kern_gemm_workspace bytes, 64-byte aligned; NULL: taken from base_alloc */
} kern_gemm;

/* The dtype in which products of `in` giving `out` are summed; TTPU_NO_DTYPE when there is no such product. */
ttpu_dtype kern_gemm_accumulator(ttpu_dtype in, ttpu_dtype out);

/* Runs the product on the pool. INVALID_ARGUMENT for negative sizes or dtypes that do not go together,
 * RESOURCE_EXHAUSTED when a workspace is needed and memory is out. */
ttpu_status kern_gemm_run(const kern_gemm *g);

/* Bytes of workspace that kern_gemm_run wants for g (pointers and workspace are not looked at, NULL or not,
 * save b_packed); valid as long as the pool's size does not grow. 0: none. */
size_t kern_gemm_workspace(const kern_gemm *g);

/* B in the micro-kernel's panels, to keep beside a weight and pass as b_packed in later products with the same
 * k, n, dtypes and precision (m, A, C and the epilogue are free). The layout is this machine's: never stored
 * on disk. `packed` is 64-byte aligned and holds kern_gemm_packed_b_bytes(g). Runs on the pool. */
bool kern_gemm_wants_packed_b(const kern_gemm *g); /* would kern_gemm_run pack B of its own accord? */
size_t kern_gemm_packed_b_bytes(const kern_gemm *g);
ttpu_status kern_gemm_pack_b(const kern_gemm *g, void *packed);

#ifdef __cplusplus
}
#endif
#endif
