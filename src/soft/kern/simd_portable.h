/* simd: the vectors that the kernel templates (*.inc) are written in, one header per instruction set with the
 * same names: types f32v, f64v, u32v, u64v of F32_LANES and F64_LANES lanes; per type load, store, load_n and
 * store_n (the first n lanes; the rest are zero, or left alone), set1, zero, add, fma (a*b+c), sum, max, top, exp.
 * max(a, b) is b where a is NaN; top is the largest lane; exp is for x <= 0 (or NaN), within 1.5 ULP, 0 below the
 * smallest normal number.
 * This one: 16-byte vectors of the compiler's own, any machine; its fma rounds twice. */
#ifndef TTPU_SOFT_KERN_SIMD_H
#define TTPU_SOFT_KERN_SIMD_H

#include <math.h>
#include <string.h>

#include "base/base.h"

#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#define SIMD_MASKS 0 /* load_n and store_n cost no more than load and store */
#define SIMD_NAME(x) x##_portable
enum { F32_LANES = 4, F64_LANES = 2, SIMD_REGISTERS = 16 };

typedef float f32v __attribute__((vector_size(16)));
typedef double f64v __attribute__((vector_size(16)));
typedef uint32_t u32v __attribute__((vector_size(16)));
typedef uint64_t u64v __attribute__((vector_size(16)));

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
  SIMD_INLINE V p##_add(V a, V b) { return a + b; }                                        \
  SIMD_INLINE V p##_fma(V a, V b, V c) { return a * b + c; }                               \
  SIMD_INLINE V p##_fnma(V a, V b, V c) { return c - a * b; }
SIMD_BASICS(f32, float, f32v, 4)
SIMD_BASICS(f64, double, f64v, 2)
SIMD_BASICS(u32, uint32_t, u32v, 4)
SIMD_BASICS(u64, uint64_t, u64v, 2)
#undef SIMD_BASICS

SIMD_INLINE f32v f32_set1(float x) { return (f32v){x, x, x, x}; }
SIMD_INLINE f64v f64_set1(double x) { return (f64v){x, x}; }
SIMD_INLINE u32v u32_set1(uint32_t x) { return (u32v){x, x, x, x}; }
SIMD_INLINE u64v u64_set1(uint64_t x) { return (u64v){x, x}; }
SIMD_INLINE f32v f32_max(f32v a, f32v b) {
  for (int i = 0; i < 4; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
  return b;
}
SIMD_INLINE f64v f64_max(f64v a, f64v b) {
  for (int i = 0; i < 2; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
  return b;
}
SIMD_INLINE float f32_top(f32v v) {
  float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}
SIMD_INLINE double f64_top(f64v v) { return v[0] > v[1] ? v[0] : v[1]; }
SIMD_INLINE f32v f32_exp(f32v x) {
  for (int i = 0; i < 4; ++i) x[i] = expf(x[i]);
  return x;
}
SIMD_INLINE f64v f64_exp(f64v x) {
  for (int i = 0; i < F64_LANES; ++i) x[i] = exp(x[i]);
  return x;
}
SIMD_INLINE float f32_sum(f32v v) { return (v[0] + v[2]) + (v[1] + v[3]); }
SIMD_INLINE double f64_sum(f64v v) { return v[0] + v[1]; }

SIMD_INLINE f32v f32_load_bf16(const uint16_t *x) {
  f32v v = {0};
  for (int i = 0; i < 4; ++i) v[i] = base_f32_from_bf16(x[i]);
  return v;
}
SIMD_INLINE f32v f32_load_f16(const uint16_t *x) {
  f32v v = {0};
  for (int i = 0; i < 4; ++i) v[i] = base_f32_from_f16(x[i]);
  return v;
}
SIMD_INLINE void f32_store_bf16(uint16_t *x, f32v v) {
  for (int i = 0; i < 4; ++i) x[i] = base_bf16_from_f32(v[i]);
}
SIMD_INLINE void f32_store_f16(uint16_t *x, f32v v) {
  for (int i = 0; i < 4; ++i) x[i] = base_f16_from_f32(v[i]);
}
SIMD_INLINE f32v f32_load_bf16_n(const uint16_t *x, int n) {
  uint16_t t[4] = {0};
  memcpy(t, x, (size_t)n * 2);
  return f32_load_bf16(t);
}
SIMD_INLINE f32v f32_load_f16_n(const uint16_t *x, int n) {
  uint16_t t[4] = {0};
  memcpy(t, x, (size_t)n * 2);
  return f32_load_f16(t);
}
#endif
