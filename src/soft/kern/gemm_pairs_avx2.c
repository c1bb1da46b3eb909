/* gemm_i16_avx2_6x16: pairs of i16 by vpmaddwd, exact modulo 2^32. A pair is one 4-byte element. */
#include "soft/kern/simd_avx2.h"
#include "soft/kern/gemm_int.h"

SIMD_INLINE u32v dot_i16(u32v a, u32v b, u32v c) {
  return (u32v)_mm256_add_epi32((__m256i)c, _mm256_madd_epi16((__m256i)a, (__m256i)b));
}

#define K_MR 6
#define K_NV 2
#define K_LANES F32_LANES
#define K_PACKED uint32_t
#define K_PV u32v
#define K_P(op) u32_##op
#define K_DIRECT 0
#define K_WINDOW 0
#define K_HEAD 0
#define K_NAME(x) i16_##x
#define K_ACC uint32_t
#define K_AV u32v
#define K_A(op) u32_##op
#define K_FMA dot_i16
#include "soft/kern/gemm_real.inc"

static void i16_pairs_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                          bool accumulate) {
  i16_run((k + 1) / 2, rows, cols, a, b, c, c_row, accumulate);
}

extern const gemm_kernel gemm_i16_avx2_6x16;
const gemm_kernel gemm_i16_avx2_6x16 = {.name = "gemm_i16_avx2_6x16",
                                        .mr = 6,
                                        .nr = 16,
                                        .kr = 2,
                                        .lanes = F32_LANES,
                                        .packed = TTPU_I16,
                                        .acc = TTPU_U32,
                                        .run = i16_pairs_run};
