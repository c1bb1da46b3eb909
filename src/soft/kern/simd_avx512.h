/* simd, AVX-512 (F, BW, DQ, VL): see simd_portable.h for what the names mean. */
#ifndef TTPU_SOFT_KERN_SIMD_H
#define TTPU_SOFT_KERN_SIMD_H

#include <math.h>
#include <string.h>

#include "base/base.h"

#pragma GCC target("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl")
#include <immintrin.h>

#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#define SIMD_MASKS 1 /* load_n and store_n cost no more than load and store */
#define SIMD_NAME(x) x##_avx512
#define SIMD_AVX512 1
enum { F32_LANES = 16, F64_LANES = 8, SIMD_REGISTERS = 32 };

typedef float f32v __attribute__((vector_size(64)));
typedef double f64v __attribute__((vector_size(64)));
typedef uint32_t u32v __attribute__((vector_size(64)));
typedef uint64_t u64v __attribute__((vector_size(64)));

SIMD_INLINE __mmask16 first16(int n) { return (__mmask16)_bzhi_u32(0xffffu, (unsigned)n); }
SIMD_INLINE __mmask8 first8(int n) { return (__mmask8)_bzhi_u32(0xffu, (unsigned)n); }

#define SIMD_BASICS(p, T, V, I, s, first)                                                        \
  SIMD_INLINE V p##_load(const T *x) { return (V)_mm512_loadu_##s(x); }                          \
  SIMD_INLINE void p##_store(T *x, V v) { _mm512_storeu_##s(x, (I)v); }                          \
  SIMD_INLINE V p##_load_n(const T *x, int n) { return (V)_mm512_maskz_loadu_##s(first(n), x); } \
  SIMD_INLINE void p##_store_n(T *x, V v, int n) { _mm512_mask_storeu_##s(x, first(n), (I)v); }  \
  SIMD_INLINE V p##_zero(void) { return (V){0}; }                                                \
  SIMD_INLINE V p##_add(V a, V b) { return a + b; }
SIMD_BASICS(f32, float, f32v, __m512, ps, first16)
SIMD_BASICS(f64, double, f64v, __m512d, pd, first8)
SIMD_BASICS(u32, uint32_t, u32v, __m512i, epi32, first16)
SIMD_BASICS(u64, uint64_t, u64v, __m512i, epi64, first8)
#undef SIMD_BASICS

SIMD_INLINE f32v f32_fma(f32v a, f32v b, f32v c) { return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
SIMD_INLINE f32v f32_fnma(f32v a, f32v b, f32v c) { return (f32v)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
SIMD_INLINE f64v f64_fma(f64v a, f64v b, f64v c) { return (f64v)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
SIMD_INLINE f64v f64_fnma(f64v a, f64v b, f64v c) { return (f64v)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
SIMD_INLINE u32v u32_fma(u32v a, u32v b, u32v c) { return a * b + c; }
SIMD_INLINE u64v u64_fma(u64v a, u64v b, u64v c) { return a * b + c; }
SIMD_INLINE f32v f32_set1(float x) { return (f32v)_mm512_set1_ps(x); }
SIMD_INLINE f64v f64_set1(double x) { return (f64v)_mm512_set1_pd(x); }
SIMD_INLINE u32v u32_set1(uint32_t x) { return (u32v)_mm512_set1_epi32((int)x); }
SIMD_INLINE u64v u64_set1(uint64_t x) { return (u64v)_mm512_set1_epi64((long long)x); }
SIMD_INLINE f32v f32_max(f32v a, f32v b) { return (f32v)_mm512_max_ps((__m512)a, (__m512)b); }
SIMD_INLINE f64v f64_max(f64v a, f64v b) { return (f64v)_mm512_max_pd((__m512d)a, (__m512d)b); }
SIMD_INLINE float f32_top(f32v v) { return _mm512_reduce_max_ps((__m512)v); }
SIMD_INLINE double f64_top(f64v v) { return _mm512_reduce_max_pd((__m512d)v); }
/* x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial of degree 6 (Cephes expf), times 2^n. */
SIMD_INLINE f32v f32_exp(f32v x_) {
  const __m512 x = _mm512_max_ps(_mm512_set1_ps(-104), (__m512)x_); /* -inf would make inf - inf below; NaN stays */
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1));
  return (f32v)_mm512_scalef_ps(p, n);
}
SIMD_INLINE f64v f64_exp(f64v x) {
  for (int i = 0; i < F64_LANES; ++i) x[i] = exp(x[i]);
  return x;
}
SIMD_INLINE float f32_sum(f32v v) { return _mm512_reduce_add_ps((__m512)v); }
SIMD_INLINE double f64_sum(f64v v) { return _mm512_reduce_add_pd((__m512d)v); }

SIMD_INLINE f32v f32_load_bf16(const uint16_t *x) {
  return (f32v)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x)), 16);
}
SIMD_INLINE f32v f32_load_f16(const uint16_t *x) {
  return (f32v)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}
/* Round to nearest even on the upper half, NaN kept quiet: base_bf16_from_f32, 16 lanes at once. (The
 * instruction vcvtneps2bf16 would flush subnormals.) */
SIMD_INLINE void f32_store_bf16(uint16_t *x, f32v v) {
  __m512i u = (__m512i)v;
  __m512i high = _mm512_srli_epi32(u, 16);
  __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256((__m256i *)(void *)x, _mm512_cvtepi32_epi16(r));
}
SIMD_INLINE void f32_store_f16(uint16_t *x, f32v v) {
  _mm256_storeu_si256((__m256i *)(void *)x, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE f32v f32_load_bf16_n(const uint16_t *x, int n) {
  return (f32v)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first16(n), x)), 16);
}
SIMD_INLINE f32v f32_load_f16_n(const uint16_t *x, int n) {
  return (f32v)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first16(n), x));
}
#endif
