/* Micro-kernels over pairs and fours of k, AVX-512: gemm_bf16_avx512bf16_14x32 (vdpbf16ps: products exact, subnormals flushed
 * to zero), gemm_i16_avx512vnni_14x32 (vpdpwssd) and gemm_i8_avx512vnni_14x32 (vpdpbusd; both exact modulo 2^32). A pair
 * or four is one 4-byte element. */
#include "soft/kern/simd_avx512.h"
#include "soft/kern/gemm_int.h"

#pragma GCC target("avx512bf16,avx512vnni")

SIMD_INLINE f32v dot_bf16(u32v a, u32v b, f32v c) {
  return (f32v)_mm512_dpbf16_ps((__m512)c, (__m512bh)(__m512i)a, (__m512bh)(__m512i)b);
}
SIMD_INLINE u32v dot_i16(u32v a, u32v b, u32v c) {
  return (u32v)_mm512_dpwssd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
}
SIMD_INLINE u32v dot_i8(u32v a, u32v b, u32v c) { /* a without sign */
  return (u32v)_mm512_dpbusd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
}

#define K_MR 14
#define K_NV 2
#define K_LANES F32_LANES
#define K_PACKED uint32_t
#define K_PV u32v
#define K_P(op) u32_##op
#define K_DIRECT 0
#define K_WINDOW 1
#define K_HEAD 0

#define K_NAME(x) bf16_##x
#define K_ACC float
#define K_AV f32v
#define K_A(op) f32_##op
#define K_FMA dot_bf16
#include "soft/kern/gemm_real.inc"
#undef K_NAME
#undef K_ACC
#undef K_AV
#undef K_A
#undef K_FMA
#undef K_WINDOW
#define K_WINDOW 0

#define K_NAME(x) i16_##x
#define K_ACC uint32_t
#define K_AV u32v
#define K_A(op) u32_##op
#define K_FMA dot_i16
#include "soft/kern/gemm_real.inc"
#undef K_NAME
#undef K_FMA
#undef K_HEAD
#define K_HEAD 1

#define K_NAME(x) i8_##x
#define K_FMA dot_i8
#include "soft/kern/gemm_real.inc"

static void bf16_pairs_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                           bool accumulate) {
  bf16_run((k + 1) / 2, rows, cols, a, b, c, c_row, accumulate);
}
static void bf16_pairs_window(int64_t k, int rows, int cols, const void *a, int64_t a_row, const int32_t *offsets,
                              const void *b, void *c, int64_t c_row, bool accumulate) {
  bf16_window((k + 1) / 2, rows, cols, a, a_row, offsets, b, c, c_row, accumulate);
}
static void i16_pairs_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                          bool accumulate) {
  i16_run((k + 1) / 2, rows, cols, a, b, c, c_row, accumulate);
}

static void i8_fours_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                         bool accumulate) {
  i8_run((k + 3) / 4, rows, cols, a, b, c, c_row, accumulate);
}

/* columns is a multiple of the lanes. */
static void sum_columns(int columns, int64_t groups, const void *values, void *sums) {
  const uint32_t *b = values;
  uint32_t *to = sums;
  for (int j = 0; j < columns; j += F32_LANES) {
    u32v total = u32_zero();
    for (int64_t p = 0; p < groups; ++p) total = dot_i8(u32_set1(0x80808080), u32_load(b + p * columns + j), total);
    u32_store(to + j, u32_load(to + j) - total);
  }
}

extern const gemm_kernel gemm_bf16_avx512bf16_14x32, gemm_i16_avx512vnni_14x32, gemm_i8_avx512vnni_14x32;
const gemm_kernel gemm_bf16_avx512bf16_14x32 = {.name = "gemm_bf16_avx512bf16_14x32",
                                                .mr = 14,
                                                .nr = 32,
                                                .kr = 2,
                                                .lanes = F32_LANES,
                                                .packed = TTPU_BF16,
                                                .acc = TTPU_F32,
                                                .run = bf16_pairs_run,
                                                .window = bf16_pairs_window};
const gemm_kernel gemm_i16_avx512vnni_14x32 = {.name = "gemm_i16_avx512vnni_14x32",
                                               .mr = 14,
                                               .nr = 32,
                                               .kr = 2,
                                               .lanes = F32_LANES,
                                               .packed = TTPU_I16,
                                               .acc = TTPU_U32,
                                               .run = i16_pairs_run};
const gemm_kernel gemm_i8_avx512vnni_14x32 = {.name = "gemm_i8_avx512vnni_14x32",
                                              .mr = 14,
                                              .nr = 32,
                                              .kr = 4,
                                              .lanes = F32_LANES,
                                              .packed = TTPU_I8,
                                              .acc = TTPU_U32,
                                              .run = i8_fours_run,
                                              .sum_columns = sum_columns};

/* Products with few rows: a pair is an element of A and of the weight, and fma multiplies both of its halves. */
#undef K_NAME
#undef K_A
SIMD_INLINE f32v pair_fma(f32v a, f32v w, f32v sum) { return dot_bf16((u32v)a, (u32v)w, sum); }
#define pair_zero f32_zero
#define pair_load f32_load
#define pair_load_n f32_load_n
#define pair_add f32_add
#define pair_sum f32_sum
#define K_NAME(x) bf16_skinny_##x
#define K_A(op) pair_##op
#define K_T float
#define K_V f32v
#define K_W float
#define K_WLOAD f32_load
#define K_WLOAD_N f32_load_n
#define K_AXPY 0
#include "soft/kern/gemm_skinny.inc"

extern const gemm_skinny gemm_bf16_avx512bf16_skinny;
const gemm_skinny gemm_bf16_avx512bf16_skinny = {
    .weight = TTPU_BF16, .acc = TTPU_F32, .dot = bf16_skinny_dot, .pairs = true};
