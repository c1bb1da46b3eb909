/* gemm for AVX2 with FMA: f32 6x16, f64 6x8. */
#include "soft/kern/simd_avx2.h"
#include "soft/kern/gemm_int.h"
#include "soft/kern/pack_plain.inc"

/* 8x8 transpose of 4-byte elements. */
SIMD_INLINE void transpose_8x8(__m256 r[8]) {
  __m256 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
    r[4 + i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
  }
}

/* Four bytes that may be a pair of halves, aligned to two. */
typedef float f32_unaligned __attribute__((aligned(1), may_alias));

/* k is unit stride: 8 lines x 8 values at a time. */
static void pack_4_transpose(int lines, int width, int64_t count, const f32_unaligned *src, int64_t line, float *dst) {
  for (int i0 = 0; i0 < width; i0 += 8) {
    int have = lines - i0 < 8 ? lines - i0 : 8, room = width - i0 < 8 ? width - i0 : 8;
    int64_t p = 0;
    for (; p + 8 <= count; p += 8) {
      __m256 r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        r[i] = i < have ? _mm256_loadu_ps((const float *)(src + (i0 + i) * line + p)) : _mm256_setzero_ps();
      transpose_8x8(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (room == 8) _mm256_storeu_ps(dst + (p + i) * width + i0, r[i]);
        else f32_store_n(dst + (p + i) * width + i0, (f32v)r[i], room);
      }
    }
    for (; p < count; ++p)
      for (int i = 0; i < room; ++i) dst[p * width + i0 + i] = i < have ? src[(i0 + i) * line + p] : 0;
  }
}

static void pack_4(int lines, int width, int64_t count, const void *src_, int64_t line, int64_t k, void *dst) {
  const f32_unaligned *src = src_;
  if (k == 1 && line != 1) pack_4_transpose(lines, width, count, src, line, dst);
  else if (line == 1 && lines == width && width == 16) pack_plain_4(16, 16, count, src, 1, k, dst);
  else pack_plain_4(lines, width, count, src, line, k, dst);
}
static void pack_8(int lines, int width, int64_t count, const void *src, int64_t line, int64_t k, void *dst) {
  if (line == 1 && lines == width && width == 8) pack_plain_8(8, 8, count, src, 1, k, dst);
  else pack_plain_8(lines, width, count, src, line, k, dst);
}
static void pack_2_pairs(int lines, int width, int64_t count, const void *src, int64_t k, void *dst) {
  pack_plain_2_pairs(lines, width, count, src, k, dst);
}

#define ISA_NAME "avx2"
#define PACK_4 pack_4
#define PACK_8 pack_8
#define PACK_2_PAIRS pack_2_pairs
#include "soft/kern/gemm_isa.inc"
