/* Rows of lanes with masked loads: a segment costs one load in every vector that it touches, and masked lanes are never
 * read, so padding needs no branch. */
#include "soft/kern/simd_avx512.h"
#include "soft/kern/conv_int.h"

/* The part of a segment in one vector. Lane l of the mask reads the source at offset + l*step. */
typedef struct vector_part {
  int64_t offset;
  uint32_t mask;
} vector_part;

enum { VECTORS = 4, PARTS = GEMM_NR_MAX + 4 };

/* Cuts segments at vectors of `lanes` lanes; parts of vector v are ends[v-1] .. ends[v]. */
static void cut(const conv_segment *segments, int count, int64_t step, int lanes, int vectors, vector_part *parts,
                int ends[VECTORS]) {
  int n = 0, i = 0;
  for (int v = 0; v < vectors; ++v) {
    const int begin = v * lanes, end = begin + lanes;
    for (; i < count && segments[i].lane < end; ++i) {
      const int from = segments[i].lane > begin ? segments[i].lane : begin;
      const int stop = segments[i].lane + segments[i].length < end ? segments[i].lane + segments[i].length : end;
      const uint64_t bits = ((1ull << (stop - begin)) - 1) & ~((1ull << (from - begin)) - 1);
      if (stop > from)
        parts[n++] = (vector_part){segments[i].offset - (segments[i].lane - begin) * step, (uint32_t)bits};
      if (segments[i].lane + segments[i].length > end) break; /* goes on in the next vector */
    }
    ends[v] = n;
  }
}

SIMD_INLINE __m512 load_part_4(const float *at, __mmask16 mask, int64_t step, __m512i lanes, __m512 old) {
  if (step == 1) return _mm512_mask_loadu_ps(old, mask, at);
  if (step == 2) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const uint32_t spread = _pdep_u32(mask, 0x55555555u);
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)spread, at);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(spread >> 16), at + 16);
    return _mm512_mask_mov_ps(old, mask, _mm512_permutex2var_ps(low, even, high));
  }
  return _mm512_mask_i32gather_ps(old, mask, lanes, at, 4);
}

/* Always inlined with a constant step, so that its branches are decided outside of the loops. */
SIMD_INLINE void fill_4(const vector_part *parts, const int *ends, int vectors, int64_t step, int width, int64_t rows,
                        const float *src, int64_t src_step, float *dst, int64_t dst_step) {
  __m512i lanes = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                     _mm512_set1_epi32((int)step));
  for (int64_t r = 0; r < rows; ++r, src += src_step, dst += dst_step) {
    int i = 0;
    for (int v = 0; v < vectors; ++v) {
      __m512 x = _mm512_setzero_ps();
      for (; i < ends[v]; ++i) x = load_part_4(src + parts[i].offset, (__mmask16)parts[i].mask, step, lanes, x);
      if (width - 16 * v >= 16) _mm512_storeu_ps(dst + 16 * v, x);
      else _mm512_mask_storeu_ps(dst + 16 * v, first16(width - 16 * v), x);
    }
  }
}

void conv_fill_rows_avx512_4(const conv_segment *segments, int count, int64_t step, int width, int64_t rows,
                             const void *src, int64_t src_step, void *dst, int64_t dst_step) {
  vector_part parts[PARTS];
  int ends[VECTORS];
  const int vectors = (width + 15) / 16;
  cut(segments, count, step, 16, vectors, parts, ends);
  if (step == 1) fill_4(parts, ends, vectors, 1, width, rows, src, src_step, dst, dst_step);
  else if (step == 2) fill_4(parts, ends, vectors, 2, width, rows, src, src_step, dst, dst_step);
  else fill_4(parts, ends, vectors, step, width, rows, src, src_step, dst, dst_step);
}

/* a[0] b[0] a[1] b[1] ..., n of each. */
void conv_pair_rows_avx512(int64_t n, const uint16_t *a, const uint16_t *b, uint16_t *to) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int64_t i = 0; i < n; i += 32) {
    const __mmask32 mask = n - i >= 32 ? ~0u : _bzhi_u32(~0u, (unsigned)(n - i));
    const __m512i x = _mm512_maskz_loadu_epi16(mask, a + i), y = _mm512_maskz_loadu_epi16(mask, b + i);
    const __m512i even = _mm512_unpacklo_epi16(x, y), odd = _mm512_unpackhi_epi16(x, y); /* of each 128 bits */
    const uint64_t spread = n - i >= 32 ? ~0ull : _bzhi_u64(~0ull, (unsigned)(2 * (n - i)));
    _mm512_mask_storeu_epi16(to + 2 * i, (__mmask32)spread, _mm512_permutex2var_epi64(even, low, odd));
    if (n - i > 16)
      _mm512_mask_storeu_epi16(to + 2 * i + 32, (__mmask32)(spread >> 32), _mm512_permutex2var_epi64(even, high, odd));
  }
}

void conv_pair_taps_avx512(int64_t pairs, int n, const uint16_t *from, uint16_t *to) {
  uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = (uint16_t)(i / 2 + i % 2 * n);
  const __m512i index = _mm512_loadu_si512(order);
  const __mmask32 mask = _bzhi_u32(~0u, (unsigned)(2 * n));
  for (int64_t i = 0; i < pairs; ++i, from += 2 * n, to += 2 * n)
    _mm512_mask_storeu_epi16(to, mask, _mm512_permutexvar_epi16(index, _mm512_maskz_loadu_epi16(mask, from)));
}

SIMD_INLINE __m512i load_part_2(const uint16_t *at, __mmask32 mask, int64_t step, __m512i old) {
  if (step == 1) return _mm512_mask_loadu_epi16(old, mask, at);
  /* 4-byte lanes whose low halves are wanted: mask them, drop the high halves */
  const uint64_t spread = _pdep_u64(mask, 0x5555555555555555ull);
  __m512i low = _mm512_maskz_loadu_epi16((__mmask32)spread, at);
  __m512i high = _mm512_maskz_loadu_epi16((__mmask32)(spread >> 32), at + 32);
  __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
  return _mm512_mask_mov_epi16(old, mask, both);
}

SIMD_INLINE void fill_2(const vector_part *parts, const int *ends, int vectors, int64_t step, int width, int64_t rows,
                        const uint16_t *src, int64_t src_step, uint16_t *dst, int64_t dst_step) {
  for (int64_t r = 0; r < rows; ++r, src += src_step, dst += dst_step) {
    int i = 0;
    for (int v = 0; v < vectors; ++v) {
      __m512i x = _mm512_setzero_si512();
      for (; i < ends[v]; ++i) x = load_part_2(src + parts[i].offset, parts[i].mask, step, x);
      if (width - 32 * v >= 32) _mm512_storeu_si512(dst + 32 * v, x);
      else _mm512_mask_storeu_epi16(dst + 32 * v, _bzhi_u32(~0u, (unsigned)(width - 32 * v)), x);
    }
  }
}

void conv_fill_rows_avx512_2(const conv_segment *segments, int count, int64_t step, int width, int64_t rows,
                             const void *src, int64_t src_step, void *dst, int64_t dst_step) {
  vector_part parts[PARTS];
  int ends[VECTORS];
  const int vectors = (width + 31) / 32;
  cut(segments, count, step, 32, vectors, parts, ends);
  if (step == 1) fill_2(parts, ends, vectors, 1, width, rows, src, src_step, dst, dst_step);
  else fill_2(parts, ends, vectors, 2, width, rows, src, src_step, dst, dst_step);
}
