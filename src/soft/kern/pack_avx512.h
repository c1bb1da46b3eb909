/* Packing with AVX-512: transposes of 16x16 four-byte and 8x8 eight-byte elements, row copies, pairs of 2-byte rows.
 * dst[p*width + i] = src(line i, value p), i < lines, zeros up to width. */
#ifndef TTPU_SOFT_KERN_PACK_AVX512_H
#define TTPU_SOFT_KERN_PACK_AVX512_H

#include "soft/kern/simd_avx512.h"

SIMD_INLINE void transpose_16x16(__m512 r[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) { /* pairs of rows: 2x2 blocks */
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) { /* 4x4 blocks */
    r[4 * i] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 1] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 2] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
    r[4 * i + 3] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) { /* 128-bit lanes, first half of the 4x4 transpose of lanes */
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

SIMD_INLINE void transpose_8x8(__m512d r[8]) {
  __m512d t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_pd(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_pd(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) { /* i: even or odd columns */
    u[i] = _mm512_shuffle_f64x2(t[i], t[2 + i], 0x88);
    u[2 + i] = _mm512_shuffle_f64x2(t[i], t[2 + i], 0xdd);
    u[4 + i] = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0x88);
    u[6 + i] = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0xdd);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[i] = _mm512_shuffle_f64x2(u[i], u[4 + i], 0x88);
    r[4 + i] = _mm512_shuffle_f64x2(u[i], u[4 + i], 0xdd);
    r[2 + i] = _mm512_shuffle_f64x2(u[2 + i], u[6 + i], 0x88);
    r[6 + i] = _mm512_shuffle_f64x2(u[2 + i], u[6 + i], 0xdd);
  }
}

/* k is unit stride. */
static inline __attribute__((unused)) void pack_4_transpose(int lines, int width, int64_t count, const float *src,
                                                            int64_t line, float *dst) {
  for (int i0 = 0; i0 < width; i0 += 16) {
    const int have = lines - i0 < 0 ? 0 : lines - i0 < 16 ? lines - i0 : 16;
    const int room = width - i0 < 16 ? width - i0 : 16;
    const __mmask16 store = first16(room);
    for (int64_t p = 0; p < count; p += 16) {
      const int values = count - p < 16 ? (int)(count - p) : 16;
      const __mmask16 load = first16(values);
      const float *at = src + i0 * line + p;
      __m512 r[16];
      if (have == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = _mm512_maskz_loadu_ps(load, at + i * line);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = i < have ? _mm512_maskz_loadu_ps(load, at + i * line) : _mm512_setzero_ps();
      }
      transpose_16x16(r);
      float *to = dst + p * width + i0;
      if (values == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_mask_storeu_ps(to + i * width, store, r[i]);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          if (i < values) _mm512_mask_storeu_ps(to + i * width, store, r[i]);
      }
    }
  }
}

static inline __attribute__((unused)) void pack_8_transpose(int lines, int width, int64_t count, const double *src,
                                                            int64_t line, double *dst) {
  for (int i0 = 0; i0 < width; i0 += 8) {
    const int have = lines - i0 < 0 ? 0 : lines - i0 < 8 ? lines - i0 : 8;
    const __mmask8 store = first8(width - i0 < 8 ? width - i0 : 8);
    for (int64_t p = 0; p < count; p += 8) {
      const int values = count - p < 8 ? (int)(count - p) : 8;
      const __mmask8 load = first8(values);
      __m512d r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        r[i] = i < have ? _mm512_maskz_loadu_pd(load, src + (i0 + i) * line + p) : _mm512_setzero_pd();
      transpose_8x8(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        if (i < values) _mm512_mask_storeu_pd(dst + (p + i) * width + i0, store, r[i]);
    }
  }
}

/* line is unit stride. */
static inline __attribute__((unused)) void pack_4_copy(int lines, int width, int64_t count, const float *src, int64_t k,
                                                       float *dst) {
  if (lines == 32 && width == 32) {
    for (int64_t p = 0; p < count; ++p, src += k, dst += 32) {
      _mm512_storeu_ps(dst, _mm512_loadu_ps(src));
      _mm512_storeu_ps(dst + 16, _mm512_loadu_ps(src + 16));
    }
    return;
  }
  for (int64_t p = 0; p < count; ++p, src += k, dst += width)
    for (int i = 0; i < width; i += 16) {
      int have = lines - i < 0 ? 0 : lines - i < 16 ? lines - i : 16;
      _mm512_mask_storeu_ps(dst + i, first16(width - i < 16 ? width - i : 16),
                            _mm512_maskz_loadu_ps(first16(have), src + i));
    }
}
static inline __attribute__((unused)) void pack_8_copy(int lines, int width, int64_t count, const double *src,
                                                       int64_t k, double *dst) {
  for (int64_t p = 0; p < count; ++p, src += k, dst += width)
    for (int i = 0; i < width; i += 8) {
      int have = lines - i < 0 ? 0 : lines - i < 8 ? lines - i : 8;
      _mm512_mask_storeu_pd(dst + i, first8(width - i < 8 ? width - i : 8),
                            _mm512_maskz_loadu_pd(first8(have), src + i));
    }
}

/* Rows p and p+1 of 2-byte elements become 4-byte pairs. */
static inline __attribute__((unused)) void pack_2_pairs(int lines, int width, int64_t count, const void *src_,
                                                        int64_t k, void *dst_) {
  const uint16_t *src = src_;
  uint32_t *dst = dst_;
  for (int64_t p = 0; p < count; p += 2, src += 2 * k, dst += width)
    for (int i = 0; i < width; i += 16) {
      const __mmask16 load = first16(lines - i < 0 ? 0 : lines - i < 16 ? lines - i : 16);
      __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(load, src + i));
      __m512i high = _mm512_setzero_si512();
      if (p + 1 < count) high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(load, src + k + i));
      _mm512_mask_storeu_epi32(dst + i, first16(width - i < 16 ? width - i : 16),
                               _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}
#endif
