/* simd, AVX2 with FMA and F16C: see simd_portable.h for what the names mean. */
#ifndef TTPU_SOFT_KERN_SIMD_H
#define TTPU_SOFT_KERN_SIMD_H

#include <math.h>
#include <string.h>

#include "base/base.h"

#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#include <immintrin.h>

#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#define SIMD_MASKS 0 /* load_n and store_n cost no more than load and store */
#define SIMD_NAME(x) x##_avx2
#define SIMD_AVX2 1
enum { F32_LANES = 8, F64_LANES = 4, SIMD_REGISTERS = 16 };

typedef float f32v __attribute__((vector_size(32)));
typedef double f64v __attribute__((vector_size(32)));
typedef uint32_t u32v __attribute__((vector_size(32)));
typedef uint64_t u64v __attribute__((vector_size(32)));

#define SIMD_BASICS(p, T, V, LANES)                                                        \
  SIMD_INLINE V p##_load(const T *x) {                                                     \
    V v;                                                                                   \
    memcpy(&v, x, sizeof v);                                                               \
    return v;                                                                              \
  }                                                                                        \
  SIMD_INLINE void p##_store(T *x, V v) { memcpy(x, &v, sizeof v); }                       \
  SIMD_INLINE V p##_load_n(const T *x, int n) {                                            \
    T t[LANES] = {0};                                                                      \
    memcpy(t, x, (size_t)n * sizeof(T));                                                   \
    return p##_load(t);                                                                    \
  }                                                                                        \
  SIMD_INLINE void p##_store_n(T *x, V v, int n) { memcpy(x, &v, (size_t)n * sizeof(T)); } \
  SIMD_INLINE V p##_zero(void) { return (V){0}; }                                          \
  SIMD_INLINE V p##_add(V a, V b) { return a + b; }
SIMD_BASICS(f32, float, f32v, 8)
SIMD_BASICS(f64, double, f64v, 4)
SIMD_BASICS(u32, uint32_t, u32v, 8)
SIMD_BASICS(u64, uint64_t, u64v, 4)
#undef SIMD_BASICS

SIMD_INLINE f32v f32_fma(f32v a, f32v b, f32v c) { return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
SIMD_INLINE f32v f32_fnma(f32v a, f32v b, f32v c) { return (f32v)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
SIMD_INLINE f64v f64_fma(f64v a, f64v b, f64v c) { return (f64v)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
SIMD_INLINE f64v f64_fnma(f64v a, f64v b, f64v c) { return (f64v)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
SIMD_INLINE u32v u32_fma(u32v a, u32v b, u32v c) { return a * b + c; }
SIMD_INLINE u64v u64_fma(u64v a, u64v b, u64v c) { return a * b + c; }
SIMD_INLINE f32v f32_set1(float x) { return (f32v)_mm256_set1_ps(x); }
SIMD_INLINE f64v f64_set1(double x) { return (f64v)_mm256_set1_pd(x); }
SIMD_INLINE u32v u32_set1(uint32_t x) { return (u32v)_mm256_set1_epi32((int)x); }
SIMD_INLINE u64v u64_set1(uint64_t x) { return (u64v)_mm256_set1_epi64x((long long)x); }
SIMD_INLINE f32v f32_max(f32v a, f32v b) { return (f32v)_mm256_max_ps((__m256)a, (__m256)b); }
SIMD_INLINE f64v f64_max(f64v a, f64v b) { return (f64v)_mm256_max_pd((__m256d)a, (__m256d)b); }
SIMD_INLINE float f32_top(f32v v) {
  __m128 t = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}
SIMD_INLINE double f64_top(f64v v) {
  double a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}
/* x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial of degree 6 (Cephes expf), scaled by adding n to the exponent. */
SIMD_INLINE f32v f32_exp(f32v x_) {
  const __m256 x = (__m256)x_, lowest = _mm256_set1_ps(-87.33654f);
  __m256 c = _mm256_max_ps(lowest, x); /* NaN stays */
  __m256 n =
      _mm256_round_ps(_mm256_mul_ps(c, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), c);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1));
  p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  p = _mm256_andnot_ps(_mm256_cmp_ps(x, lowest, _CMP_LT_OQ), p);
  return (f32v)_mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
SIMD_INLINE f64v f64_exp(f64v x) {
  for (int i = 0; i < F64_LANES; ++i) x[i] = exp(x[i]);
  return x;
}
SIMD_INLINE float f32_sum(f32v v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
SIMD_INLINE double f64_sum(f64v v) { return (v[0] + v[2]) + (v[1] + v[3]); }

SIMD_INLINE f32v f32_load_bf16(const uint16_t *x) {
  return (f32v)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)), 16);
}
SIMD_INLINE f32v f32_load_f16(const uint16_t *x) {
  return (f32v)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}
/* Round to nearest even on the upper half, NaN kept quiet: base_bf16_from_f32, 8 lanes at once. */
SIMD_INLINE void f32_store_bf16(uint16_t *x, f32v v) {
  __m256i u = (__m256i)v;
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  __m256 nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
  r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(nan));
  __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  _mm_storeu_si128((__m128i *)(void *)x, packed);
}
SIMD_INLINE void f32_store_f16(uint16_t *x, f32v v) {
  _mm_storeu_si128((__m128i *)(void *)x, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE f32v f32_load_bf16_n(const uint16_t *x, int n) {
  uint16_t t[8] = {0};
  memcpy(t, x, (size_t)n * 2);
  return f32_load_bf16(t);
}
SIMD_INLINE f32v f32_load_f16_n(const uint16_t *x, int n) {
  uint16_t t[8] = {0};
  memcpy(t, x, (size_t)n * 2);
  return f32_load_f16(t);
}
#endif
