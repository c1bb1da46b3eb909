/* The kernels of tile programs: plain loops over expressions, which gcc makes vector code of. Compiled once per
 * instruction set by vm_kernels_<isa>.c, which define KERNELS (the table's name) and MATH_FMA.
 *
 * Each expression below is <type>_<KIND>(x) or (a, b); prog.def says which exist. */
#include <complex.h>
#include <float.h>

#include "soft/kern/math_template.h"
#include "soft/tile/prog.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
#include "soft/tile/vm_lanes_avx512.h"
#elif defined(__AVX2__)
#include "soft/tile/vm_lanes_avx2.h"
#endif

#define FOR_LANES(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); ++i)

typedef float _Complex c64;
typedef double _Complex c128;

/* X(name, element, unsigned type in which it wraps, bits) */
#define SIGNED_TYPES(X) X(I8, int8_t, uint32_t, 8) X(I16, int16_t, uint32_t, 16) X(I32, int32_t, uint32_t, 32) X(I64, int64_t, uint64_t, 64)
#define UNSIGNED_TYPES(X) X(U8, uint8_t, uint32_t, 8) X(U16, uint16_t, uint32_t, 16) X(U32, uint32_t, uint32_t, 32) X(U64, uint64_t, uint64_t, 64)

/* ---- expressions: floats ---------------------------------------------------------------------- */

#define SIGN(x) ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))
/* A NaN in b fails the comparison, and b it is. (As one condition GCC 12 makes branches of several in a row.) */
#define EXTREMES(T, name)                                                                                              \
  MATH_INLINE T larger_##name(T a, T b) {                                                                              \
    T more = a > b ? a : b;                                                                                            \
    return a != a ? a : more;                                                                                          \
  }                                                                                                                    \
  MATH_INLINE T smaller_##name(T a, T b) {                                                                             \
    T less = a < b ? a : b;                                                                                            \
    return a != a ? a : less;                                                                                          \
  }
EXTREMES(float, f32)
EXTREMES(double, f64)

#define F32_ABS(x) fabsf(x)
#define F32_CEIL(x) ceilf(x)
#define F32_EXPONENTIAL(x) exp_f32(x)
#define F32_FLOOR(x) floorf(x)
#define F32_LOG(x) log_f32(x)
#define F32_LOGISTIC(x) logistic_f32(x)
#define F32_NEGATE(x) (-(x))
#define F32_REAL(x) (x)
#define F32_ROUND_NEAREST_EVEN(x) rintf(x)
#define F32_RSQRT(x) (1.0f / sqrtf(x))
#define F32_SIGN(x) SIGN(x)
#define F32_SQRT(x) sqrtf(x)
#define F32_TANH(x) tanh_f32(x)
#define F32_EXPONENTIAL_MINUS_ONE(x) expm1_f32(x)
#define F32_LOG_PLUS_ONE(x) log1p_f32(x)
#define F32_ERF(x) erf_f32(x)
#define F32_ERFC(x) erfc_f32(x)
#define F32_ERF_INV(x) erf_inv_f32(x)
#define F32_ASIN(x) (float)asin_f64((double)(x))
#define F32_ACOS(x) (float)acos_f64((double)(x))
#define F32_ATAN(x) (float)atan_f64((double)(x))
#define F32_SINH(x) sinh_f32(x)
#define F32_COSH(x) cosh_f32(x)
#define F32_ASINH(x) asinh_f32(x)
#define F32_ACOSH(x) acosh_f32(x)
#define F32_ATANH(x) atanh_f32(x)
#define F32_LGAMMA(x) lgamma_f32(x)
#define F32_CBRT(x) (float)cbrt((double)(x))
#define F32_ADD(a, b) ((a) + (b))
#define F32_ATAN2(a, b) atan2_f32(a, b)
#define F32_DIVIDE(a, b) ((a) / (b))
#define F32_MAXIMUM(a, b) larger_f32(a, b)
#define F32_MINIMUM(a, b) smaller_f32(a, b)
#define F32_MULTIPLY(a, b) ((a) * (b))
#define F32_POWER(a, b) pow_f32(a, b)
#define F32_SUBTRACT(a, b) ((a) - (b))

#define F64_ABS(x) fabs(x)
#define F64_CEIL(x) ceil(x)
#define F64_EXPONENTIAL(x) exp_f64(x)
#define F64_FLOOR(x) floor(x)
#define F64_LOG(x) log_f64(x)
#define F64_LOGISTIC(x) logistic_f64(x)
#define F64_NEGATE(x) (-(x))
#define F64_REAL(x) (x)
#define F64_ROUND_NEAREST_EVEN(x) rint(x)
#define F64_RSQRT(x) (1.0 / sqrt(x))
#define F64_SIGN(x) SIGN(x)
#define F64_SQRT(x) sqrt(x)
#define F64_TANH(x) tanh_f64(x)
#define F64_EXPONENTIAL_MINUS_ONE(x) expm1_f64(x)
#define F64_LOG_PLUS_ONE(x) log1p_f64(x)
#define F64_ERF(x) erf(x)
#define F64_ERFC(x) erfc(x)
#define F64_ERF_INV(x) erf_inv_f64(x)
#define F64_ASIN(x) asin_f64(x)
#define F64_ACOS(x) acos_f64(x)
#define F64_ATAN(x) atan_f64(x)
#define F64_SINH(x) sinh_f64(x)
#define F64_COSH(x) cosh_f64(x)
#define F64_ASINH(x) asinh_f64(x)
#define F64_ACOSH(x) acosh_f64(x)
#define F64_ATANH(x) atanh_f64(x)
#define F64_LGAMMA(x) lgamma_r(x, &(int){0})
#define F64_CBRT(x) cbrt(x)
#define F64_ADD(a, b) ((a) + (b))
#define F64_ATAN2(a, b) atan2_f64(a, b)
#define F64_DIVIDE(a, b) ((a) / (b))
#define F64_MAXIMUM(a, b) larger_f64(a, b)
#define F64_MINIMUM(a, b) smaller_f64(a, b)
#define F64_MULTIPLY(a, b) ((a) * (b))
#define F64_POWER(a, b) pow(a, b)
#define F64_SUBTRACT(a, b) ((a) - (b))

/* ---- expressions: complex --------------------------------------------------------------------- */

/* Products and quotients as PyTorch has them: plain formulas, the divisor scaled by its larger part. Differences are
 * written as sums with a negated factor: of a sum beside a difference GCC 12 makes vfmaddsub in spite of
 * -ffp-contract=off, and the product then depends on the instruction set. */
#define COMPLEX_KERNELS(name, type, real, CMPLX_, creal_, cimag_, fabs_)                                               \
  MATH_INLINE type multiply_##name(type x, type y) {                                                                   \
    real a = creal_(x), b = cimag_(x), c = creal_(y), d = cimag_(y);                                                   \
    return CMPLX_(a * c + -b * d, a * d + b * c);                                                                      \
  }                                                                                                                    \
  MATH_INLINE type divide_##name(type x, type y) {                                                                     \
    real a = creal_(x), b = cimag_(x), c = creal_(y), d = cimag_(y);                                                   \
    if (fabs_(c) >= fabs_(d)) {                                                                                        \
      if (c == 0 && d == 0) return CMPLX_(a / fabs_(c), b / fabs_(d));                                                 \
      real ratio = d / c, scale = 1 / (c + d * ratio);                                                                 \
      return CMPLX_((a + b * ratio) * scale, (b + -a * ratio) * scale);                                                \
    }                                                                                                                  \
    real ratio = c / d, scale = 1 / (d + c * ratio);                                                                   \
    return CMPLX_((a * ratio + b) * scale, (b * ratio + -a) * scale);                                                  \
  }
COMPLEX_KERNELS(C64, c64, float, CMPLXF, crealf, cimagf, fabsf)
COMPLEX_KERNELS(C128, c128, double, CMPLX, creal, cimag, fabs)

#define C64_NEGATE(x) CMPLXF(-crealf(x), -cimagf(x))
#define C64_ADD(a, b) ((a) + (b))
#define C64_SUBTRACT(a, b) ((a) - (b))
#define C64_MULTIPLY(a, b) multiply_C64(a, b)
#define C64_DIVIDE(a, b) divide_C64(a, b)
#define C128_NEGATE(x) CMPLX(-creal(x), -cimag(x))
#define C128_ADD(a, b) ((a) + (b))
#define C128_SUBTRACT(a, b) ((a) - (b))
#define C128_MULTIPLY(a, b) multiply_C128(a, b)
#define C128_DIVIDE(a, b) divide_C128(a, b)

/* ---- expressions: integers, which wrap -------------------------------------------------------- */

#define INTEGER_KERNELS(name, type, wide, bits)                                                                        \
  MATH_INLINE type ADD_##name(type a, type b) { return (type)((wide)a + (wide)b); }                                    \
  MATH_INLINE type SUBTRACT_##name(type a, type b) { return (type)((wide)a - (wide)b); }                               \
  MATH_INLINE type MULTIPLY_##name(type a, type b) { return (type)((wide)a * (wide)b); }                               \
  MATH_INLINE type NEGATE_##name(type x) { return (type)(0 - (wide)x); }                                               \
  MATH_INLINE type NOT_##name(type x) { return (type)~(wide)x; }                                                       \
  MATH_INLINE type AND_##name(type a, type b) { return (type)(a & b); }                                                \
  MATH_INLINE type OR_##name(type a, type b) { return (type)(a | b); }                                                 \
  MATH_INLINE type XOR_##name(type a, type b) { return (type)(a ^ b); }                                                \
  MATH_INLINE type MAXIMUM_##name(type a, type b) { return a > b ? a : b; }                                            \
  MATH_INLINE type MINIMUM_##name(type a, type b) { return a < b ? a : b; }                                            \
  MATH_INLINE type POPCNT_##name(type x) { return (type)__builtin_popcountll((unsigned long long)x & (~0ull >> (64 - bits))); } \
  MATH_INLINE type COUNT_LEADING_ZEROS_##name(type x) {                                                                \
    unsigned long long u = (unsigned long long)x & (~0ull >> (64 - bits));                                             \
    return (type)(u ? __builtin_clzll(u) - (64 - bits) : bits);                                                        \
  }                                                                                                                    \
  MATH_INLINE type SHIFT_LEFT_##name(type a, type b) {                                                                 \
    return (wide)b < bits ? (type)((wide)a << ((wide)b & (bits - 1))) : (type)0;                                       \
  }                                                                                                                    \
  MATH_INLINE type SHIFT_RIGHT_LOGICAL_##name(type a, type b) {                                                        \
    return (wide)b < bits ? (type)(((wide)a & ((wide)~(wide)0 >> (sizeof(wide) * 8 - bits))) >> ((wide)b & (bits - 1))) : (type)0; \
  }
SIGNED_TYPES(INTEGER_KERNELS)
UNSIGNED_TYPES(INTEGER_KERNELS)

#define SIGNED_KERNELS(name, type, wide, bits)                                                                         \
  MATH_INLINE type ABS_##name(type x) { return x < 0 ? (type)(0 - (wide)x) : x; }                                      \
  MATH_INLINE type SIGN_##name(type x) { return (type)((x > 0) - (x < 0)); }                                           \
  MATH_INLINE type DIVIDE_##name(type a, type b) {                                                                     \
    return b == 0 ? (type)-1 : b == -1 ? (type)(0 - (wide)a) : (type)(a / b);                                          \
  }                                                                                                                    \
  MATH_INLINE type REMAINDER_##name(type a, type b) { return b == 0 ? a : b == -1 ? (type)0 : (type)(a % b); }         \
  MATH_INLINE type SHIFT_RIGHT_ARITHMETIC_##name(type a, type b) {                                                     \
    return (type)(a >> ((wide)b < bits ? (wide)b : (wide)(bits - 1)));                                                 \
  }                                                                                                                    \
  MATH_INLINE type POWER_##name(type a, type b) {                                                                      \
    if (b < 0) return a == 1 ? (type)1 : a == -1 ? (type)(b & 1 ? -1 : 1) : (type)0;                                   \
    wide base = (wide)a, y = 1;                                                                                        \
    for (type e = b; e; e = (type)(e >> 1), base *= base) y = e & 1 ? y * base : y;                                    \
    return (type)y;                                                                                                    \
  }
SIGNED_TYPES(SIGNED_KERNELS)

#define UNSIGNED_KERNELS(name, type, wide, bits)                                                                       \
  MATH_INLINE type ABS_##name(type x) { return x; }                                                                    \
  MATH_INLINE type SIGN_##name(type x) { return (type)(x != 0); }                                                      \
  MATH_INLINE type DIVIDE_##name(type a, type b) { return b == 0 ? (type)~(type)0 : (type)(a / b); }                   \
  MATH_INLINE type REMAINDER_##name(type a, type b) { return b == 0 ? a : (type)(a % b); }                             \
  MATH_INLINE type SHIFT_RIGHT_ARITHMETIC_##name(type a, type b) {                                                     \
    wide top = (wide)a >> (bits - 1), amount = (wide)b < bits ? (wide)b : (wide)(bits - 1);                            \
    wide high = top ? (wide)~(wide)0 << (bits - 1 - amount) : 0;                                                       \
    return (type)((wide)a >> amount | high);                                                                           \
  }                                                                                                                    \
  MATH_INLINE type POWER_##name(type a, type b) {                                                                      \
    wide base = a, y = 1;                                                                                              \
    for (type e = b; e; e = (type)(e >> 1), base *= base) y = e & 1 ? y * base : y;                                    \
    return (type)y;                                                                                                    \
  }
UNSIGNED_TYPES(UNSIGNED_KERNELS)

#define BOOL_NOT(x) (!(x))
#define BOOL_ADD(a, b) ((a) | (b))
#define BOOL_AND(a, b) ((a) & (b))
#define BOOL_MAXIMUM(a, b) ((a) | (b))
#define BOOL_MINIMUM(a, b) ((a) & (b))
#define BOOL_MULTIPLY(a, b) ((a) & (b))
#define BOOL_OR(a, b) ((a) | (b))
#define BOOL_SUBTRACT(a, b) ((a) ^ (b))
#define BOOL_XOR(a, b) ((a) ^ (b))

/* ---- elementwise loops ------------------------------------------------------------------------ */

#define UNUSED(x) (void)(x)

/* y = EXPR of x: TA in, TR out. */
#define MAP1(name, TA, TR, EXPR)                                                                                       \
  static void name(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {              \
    UNUSED(pb), UNUSED(pc);                                                                                            \
    TR *r = d;                                                                                                         \
    const TA *a = pa;                                                                                                  \
    if (scalar & 1) {                                                                                                  \
      TA x = *a;                                                                                                       \
      TR y = (TR)(EXPR);                                                                                               \
      FOR_LANES(i, n) r[i] = y;                                                                                        \
      return;                                                                                                          \
    }                                                                                                                  \
    FOR_LANES(i, n) {                                                                                                  \
      TA x = a[i];                                                                                                     \
      r[i] = (TR)(EXPR);                                                                                               \
    }                                                                                                                  \
  }

/* r = EXPR of x and y. */
#define MAP2(name, TA, TR, EXPR)                                                                                       \
  static void name(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {              \
    UNUSED(pc);                                                                                                        \
    TR *r = d;                                                                                                         \
    const TA *a = pa, *b = pb;                                                                                         \
    switch (scalar & 3) {                                                                                              \
    case 0:                                                                                                            \
      FOR_LANES(i, n) {                                                                                                \
        TA x = a[i], y = b[i];                                                                                         \
        r[i] = (TR)(EXPR);                                                                                             \
      }                                                                                                                \
      return;                                                                                                          \
    case 1: {                                                                                                          \
      const TA x = *a;                                                                                                 \
      FOR_LANES(i, n) {                                                                                                \
        TA y = b[i];                                                                                                   \
        r[i] = (TR)(EXPR);                                                                                             \
      }                                                                                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    case 2: {                                                                                                          \
      const TA y = *b;                                                                                                 \
      FOR_LANES(i, n) {                                                                                                \
        TA x = a[i];                                                                                                   \
        r[i] = (TR)(EXPR);                                                                                             \
      }                                                                                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    default: {                                                                                                         \
      const TA x = *a, y = *b;                                                                                         \
      TR z = (TR)(EXPR);                                                                                               \
      FOR_LANES(i, n) r[i] = z;                                                                                        \
    }                                                                                                                  \
    }                                                                                                                  \
  }

#define ONE_FLOAT(K) MAP1(map_##K##_F32, float, float, F32_##K(x)) MAP1(map_##K##_F64, double, double, F64_##K(x))
#define ONE_COMPLEX(K) MAP1(map_##K##_C64, c64, c64, C64_##K(x)) MAP1(map_##K##_C128, c128, c128, C128_##K(x))
#define ONE_BOOL(K) MAP1(map_##K##_BOOL, uint8_t, uint8_t, BOOL_##K(x))
#define ONE_INTEGER(K)                                                                                                 \
  MAP1(map_##K##_I8, int8_t, int8_t, K##_I8(x)) MAP1(map_##K##_I16, int16_t, int16_t, K##_I16(x))                      \
  MAP1(map_##K##_I32, int32_t, int32_t, K##_I32(x)) MAP1(map_##K##_I64, int64_t, int64_t, K##_I64(x))                  \
  MAP1(map_##K##_U8, uint8_t, uint8_t, K##_U8(x)) MAP1(map_##K##_U16, uint16_t, uint16_t, K##_U16(x))                  \
  MAP1(map_##K##_U32, uint32_t, uint32_t, K##_U32(x)) MAP1(map_##K##_U64, uint64_t, uint64_t, K##_U64(x))
#define TWO_FLOAT(K) MAP2(map_##K##_F32, float, float, F32_##K(x, y)) MAP2(map_##K##_F64, double, double, F64_##K(x, y))
#define TWO_COMPLEX(K) MAP2(map_##K##_C64, c64, c64, C64_##K(x, y)) MAP2(map_##K##_C128, c128, c128, C128_##K(x, y))
#define TWO_BOOL(K) MAP2(map_##K##_BOOL, uint8_t, uint8_t, BOOL_##K(x, y))
#define TWO_INTEGER(K)                                                                                                 \
  MAP2(map_##K##_I8, int8_t, int8_t, K##_I8(x, y)) MAP2(map_##K##_I16, int16_t, int16_t, K##_I16(x, y))                \
  MAP2(map_##K##_I32, int32_t, int32_t, K##_I32(x, y)) MAP2(map_##K##_I64, int64_t, int64_t, K##_I64(x, y))            \
  MAP2(map_##K##_U8, uint8_t, uint8_t, K##_U8(x, y)) MAP2(map_##K##_U16, uint16_t, uint16_t, K##_U16(x, y))            \
  MAP2(map_##K##_U32, uint32_t, uint32_t, K##_U32(x, y)) MAP2(map_##K##_U64, uint64_t, uint64_t, K##_U64(x, y))

/* Kernels that are vector loops for most arguments: libm takes those that FAR finds, and only then is it asked. */
#define F32_SINE(x) sine_f32(x, 0)
#define F32_COSINE(x) sine_f32(x, 1)
#define F32_TAN(x) tan_f32(x)
#define F64_SINE(x) sine_f64(x, 0)
#define F64_COSINE(x) sine_f64(x, 1)
#define F64_TAN(x) tan_f64(x)
#define FAR_F32_SINE sinf
#define FAR_F32_COSINE cosf
#define FAR_F32_TAN tanf
#define FAR_F64_SINE sin
#define FAR_F64_COSINE cos
#define FAR_F64_TAN tan
#define NEAR_AND_FAR1(name, T, FAR, NEAR, LIBM)                                                                        \
  MAP1(near_##name, T, T, NEAR(x))                                                                                     \
  MAP1(far_##name, T, T, FAR(x) ? LIBM(x) : NEAR(x))                                                                   \
  static void map_##name(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {        \
    const T *a = pa;                                                                                                   \
    int far = 0;                                                                                                       \
    for (int64_t i = 0; i < (scalar & 1 ? 1 : n); ++i) far |= FAR(a[i]);                                               \
    (far ? far_##name : near_##name)(n, d, pa, pb, pc, scalar);                                                        \
  }
#define NEAR_AND_FAR2(name, T, FAR, NEAR, LIBM)                                                                        \
  MAP2(near_##name, T, T, NEAR(x, y))                                                                                  \
  MAP2(far_##name, T, T, FAR(x, y) ? LIBM(x, y) : NEAR(x, y))                                                          \
  static void map_##name(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {        \
    const T *a = pa, *b = pb;                                                                                          \
    int far = 0;                                                                                                       \
    for (int64_t i = 0; i < n; ++i) far |= FAR(a[scalar & 1 ? 0 : i], b[scalar & 2 ? 0 : i]);                          \
    (far ? far_##name : near_##name)(n, d, pa, pb, pc, scalar);                                                        \
  }
#define ONE_TRIG(K)                                                                                                    \
  NEAR_AND_FAR1(K##_F32, float, trig_far_f32, F32_##K, FAR_F32_##K)                                                    \
  NEAR_AND_FAR1(K##_F64, double, trig_far_f64, F64_##K, FAR_F64_##K)
#define TWO_MOD(K)                                                                                                     \
  NEAR_AND_FAR2(K##_F32, float, fmod_far_f32, fmod_f32, fmodf) MAP2(map_##K##_F64, double, double, fmod(x, y))

#define ONE_LANES(K)                                                                                                   \
  static void map_##K##_F32(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {     \
    UNUSED(pb), UNUSED(pc);                                                                                            \
    float *r = d;                                                                                                      \
    K##_lanes(scalar & 1 && n > 1 ? 1 : n, r, pa);                                                                     \
    if (scalar & 1) FOR_LANES(i, n - 1) r[i + 1] = r[0];                                                               \
  }                                                                                                                    \
  MAP1(map_##K##_F64, double, double, F64_##K(x))
#if defined(__AVX512F__)
#define ONE_WIDE(K) ONE_LANES(K)
#else
#define ONE_WIDE(K) ONE_FLOAT(K)
#endif
#if defined(__AVX2__)
#define ONE_OWN(K) ONE_LANES(K)
#else
#define ONE_OWN(K) ONE_FLOAT(K)
#endif

#define ONE(class, K) ONE_##class(K)
#define TWO(class, K) TWO_##class(K)
#include "soft/tile/prog.def"
#undef ONE
#undef TWO

MAP1(map_REAL_C64, c64, float, crealf(x))
MAP1(map_IMAG_C64, c64, float, cimagf(x))
MAP1(map_REAL_C128, c128, double, creal(x))
MAP1(map_IMAG_C128, c128, double, cimag(x))
MAP1(map_ABS_C64, c64, float, hypot_f32(crealf(x), cimagf(x)))
MAP1(map_ABS_C128, c128, double, hypot_f64(creal(x), cimag(x)))
MAP1(map_IS_FINITE_F32, float, uint8_t, fabsf(x) <= FLT_MAX)
MAP1(map_IS_FINITE_F64, double, uint8_t, fabs(x) <= DBL_MAX)
MAP2(map_COMPLEX_F32, float, c64, CMPLXF(x, y))
MAP2(map_COMPLEX_F64, double, c128, CMPLX(x, y))

/* ---- compare, select, copy -------------------------------------------------------------------- */

#define COMPARE(name, type, wide, bits)                                                                                \
  MAP2(compare_EQ_##name, type, uint8_t, x == y) MAP2(compare_NE_##name, type, uint8_t, x != y)                        \
  MAP2(compare_GE_##name, type, uint8_t, x >= y) MAP2(compare_GT_##name, type, uint8_t, x > y)                         \
  MAP2(compare_LE_##name, type, uint8_t, x <= y) MAP2(compare_LT_##name, type, uint8_t, x < y)
SIGNED_TYPES(COMPARE)
UNSIGNED_TYPES(COMPARE)
COMPARE(BOOL, uint8_t, , )
COMPARE(F32, float, , )
COMPARE(F64, double, , )
MAP2(compare_EQ_C64, c64, uint8_t, x == y)
MAP2(compare_NE_C64, c64, uint8_t, x != y)
MAP2(compare_EQ_C128, c128, uint8_t, x == y)
MAP2(compare_NE_C128, c128, uint8_t, x != y)

typedef struct wide16 { uint64_t low, high; } wide16;

/* d = a ? b : c; any of them may be one element. */
#define SELECT(bytes, type)                                                                                            \
  static void select_##bytes(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {    \
    const uint8_t *a = pa;                                                                                             \
    const type *b = pb, *c = pc;                                                                                       \
    type *r = d;                                                                                                       \
    if (scalar & 1) {                                                                                                  \
      const type *from = *a ? b : c;                                                                                   \
      if (scalar & (*a ? 2u : 4u)) {                                                                                   \
        type x = *from;                                                                                                \
        FOR_LANES(i, n) r[i] = x;                                                                                      \
      } else if (from != r) memmove(r, from, (size_t)n * sizeof(type));                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    switch (scalar >> 1 & 3) {                                                                                         \
    case 0: FOR_LANES(i, n) { type x = b[i], y = c[i]; r[i] = a[i] ? x : y; } return;                                  \
    case 1: { type x = *b; FOR_LANES(i, n) { type y = c[i]; r[i] = a[i] ? x : y; } return; }                           \
    case 2: { type y = *c; FOR_LANES(i, n) { type x = b[i]; r[i] = a[i] ? x : y; } return; }                           \
    default: { type x = *b, y = *c; FOR_LANES(i, n) r[i] = a[i] ? x : y; }                                             \
    }                                                                                                                  \
  }                                                                                                                    \
  MAP1(copy_##bytes, type, type, x)
/* Each of `rows` elements over `len` lanes. */
#define EXPAND(bytes, type)                                                                                            \
  static void expand_##bytes(int64_t rows, int64_t len, void *d, const void *s) {                                      \
    type *r = d;                                                                                                       \
    const type *from = s;                                                                                              \
    for (int64_t row = 0; row < rows; ++row, r += len) {                                                               \
      type x = from[row];                                                                                              \
      FOR_LANES(i, len) r[i] = x;                                                                                      \
    }                                                                                                                  \
  }
EXPAND(1, uint8_t)
EXPAND(2, uint16_t)
EXPAND(4, uint32_t)
EXPAND(8, uint64_t)
EXPAND(16, wide16)
SELECT(1, uint8_t)
SELECT(2, uint16_t)
SELECT(4, uint32_t)
SELECT(8, uint64_t)
static void select_16(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {
  const uint8_t *a = pa;
  const wide16 *b = pb, *c = pc;
  wide16 *r = d;
  for (int64_t i = 0; i < n; ++i) {
    const wide16 *x = scalar & 2 ? b : b + i, *y = scalar & 4 ? c : c + i;
    r[i] = a[scalar & 1 ? 0 : i] ? *x : *y;
  }
}
static void copy_16(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {
  UNUSED(pb), UNUSED(pc);
  const wide16 *a = pa;
  wide16 *r = d;
  for (int64_t i = 0; i < n; ++i) r[i] = a[scalar & 1 ? 0 : i];
}

/* ---- conversions ------------------------------------------------------------------------------ */

/* Float to integer truncates. What does not fit becomes what base_scalar_convert says: the most negative number of the
 * conversion used, which is the 64-bit one for i64, u64 and u8, else the 32-bit one; u32 and u64 take the upper half of
 * their range apart. */
MATH_INLINE int32_t i32_of_f32(float x) { return (x >= -2147483648.0f) & (x < 2147483648.0f) ? (int32_t)x : INT32_MIN; }
MATH_INLINE int32_t i32_of_f64(double x) { return (x > -2147483649.0) & (x < 2147483648.0) ? (int32_t)x : INT32_MIN; }
MATH_INLINE int64_t i64_of_f64(double x) {
  return (x >= -9223372036854775808.0) & (x < 9223372036854775808.0) ? (int64_t)x : INT64_MIN;
}
MATH_INLINE int64_t i64_of_f32(float x) { return i64_of_f64((double)x); }
MATH_INLINE uint64_t u64_of_f64(double x) {
  int upper = x >= 9223372036854775808.0;
  return (uint64_t)i64_of_f64(upper ? x - 9223372036854775808.0 : x) ^ (uint64_t)upper << 63;
}
MATH_INLINE uint64_t u64_of_f32(float x) { return u64_of_f64((double)x); }
MATH_INLINE uint32_t u32_of_f64(double x) {
  int upper = x >= 2147483648.0;
  return (uint32_t)i32_of_f64(upper ? x - 2147483648.0 : x) ^ (uint32_t)upper << 31;
}
MATH_INLINE uint32_t u32_of_f32(float x) { return u32_of_f64((double)x); }

/* CONVERT_TO(type, its element, expression of an integer x, of f32, of f64). */
#define CONVERT_TO(to, T, of_integer, of_f32, of_f64)                                                                  \
  MAP1(convert_BOOL_##to, uint8_t, T, of_integer)                                                                      \
  MAP1(convert_I8_##to, int8_t, T, of_integer) MAP1(convert_I16_##to, int16_t, T, of_integer)                          \
  MAP1(convert_I32_##to, int32_t, T, of_integer) MAP1(convert_I64_##to, int64_t, T, of_integer)                        \
  MAP1(convert_U8_##to, uint8_t, T, of_integer) MAP1(convert_U16_##to, uint16_t, T, of_integer)                        \
  MAP1(convert_U32_##to, uint32_t, T, of_integer) MAP1(convert_U64_##to, uint64_t, T, of_integer)                      \
  MAP1(convert_F32_##to, float, T, of_f32) MAP1(convert_F64_##to, double, T, of_f64)
#define CONVERT_COMPLEX(to, T, of_c64, of_c128)                                                                        \
  MAP1(convert_C64_##to, c64, T, of_c64) MAP1(convert_C128_##to, c128, T, of_c128)
CONVERT_TO(BOOL, uint8_t, x != 0, x != 0, x != 0)
CONVERT_COMPLEX(BOOL, uint8_t, x != 0, x != 0)
#define TO_NARROW(name, T)                                                                                             \
  CONVERT_TO(name, T, x, (uint32_t)i32_of_f32(x), (uint32_t)i32_of_f64(x))                                             \
  CONVERT_COMPLEX(name, T, (uint32_t)i32_of_f32(crealf(x)), (uint32_t)i32_of_f64(creal(x)))
TO_NARROW(I8, int8_t)
TO_NARROW(I16, int16_t)
/* An f32 beyond 32 bits is a multiple of 256: its low byte is 0 by either conversion. */
CONVERT_TO(U8, uint8_t, x, (uint32_t)i32_of_f32(x), (uint64_t)i64_of_f64(x))
CONVERT_COMPLEX(U8, uint8_t, (uint32_t)i32_of_f32(crealf(x)), (uint64_t)i64_of_f64(creal(x)))
TO_NARROW(U16, uint16_t)
TO_NARROW(I32, int32_t)
CONVERT_TO(U32, uint32_t, x, u32_of_f32(x), u32_of_f64(x))
CONVERT_COMPLEX(U32, uint32_t, u32_of_f32(crealf(x)), u32_of_f64(creal(x)))
CONVERT_TO(I64, int64_t, x, i64_of_f32(x), i64_of_f64(x))
CONVERT_COMPLEX(I64, int64_t, i64_of_f32(crealf(x)), i64_of_f64(creal(x)))
CONVERT_TO(U64, uint64_t, x, u64_of_f32(x), u64_of_f64(x))
CONVERT_COMPLEX(U64, uint64_t, u64_of_f32(crealf(x)), u64_of_f64(creal(x)))
CONVERT_TO(F32, float, x, x, x)
CONVERT_COMPLEX(F32, float, crealf(x), creal(x))
CONVERT_TO(F64, double, x, x, x)
CONVERT_COMPLEX(F64, double, crealf(x), creal(x))
CONVERT_TO(C64, c64, CMPLXF((float)x, 0), CMPLXF(x, 0), CMPLXF((float)x, 0))
CONVERT_COMPLEX(C64, c64, x, CMPLXF((float)creal(x), (float)cimag(x)))
CONVERT_TO(C128, c128, CMPLX((double)x, 0), CMPLX(x, 0), CMPLX(x, 0))
CONVERT_COMPLEX(C128, c128, CMPLX(crealf(x), cimagf(x)), x)

/* ---- small floats ----------------------------------------------------------------------------- */

MATH_INLINE uint32_t bf16_of_f32(float x) {
  uint32_t u = (uint32_t)bits_f32(x);
  uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return x != x ? (u >> 16 | 0x40) : rounded;
}
MATH_INLINE float f32_of_bf16(uint32_t u) { return f32_bits((int32_t)(u << 16)); }
MAP1(round_BF16, float, float, f32_of_bf16(bf16_of_f32(x)))
#define ROUNDED(K) MAP2(rounded_##K, float, float, f32_of_bf16(bf16_of_f32(F32_##K(x, y))))
#include "soft/tile/prog.def"
#undef ROUNDED
MAP1(pack_BF16, float, uint16_t, bf16_of_f32(x))
MAP1(unpack_BF16, uint16_t, float, f32_of_bf16(x))
MAP1(round_F8E5M2, float, float, base_f32_from_f8e5m2(base_f8e5m2_from_f32(x)))
MAP1(pack_F8E5M2, float, uint8_t, base_f8e5m2_from_f32(x))
MAP1(unpack_F8E5M2, uint8_t, float, base_f32_from_f8e5m2(x))
MAP1(round_F8E4M3FN, float, float, base_f32_from_f8e4m3fn(base_f8e4m3fn_from_f32(x)))
MAP1(pack_F8E4M3FN, float, uint8_t, base_f8e4m3fn_from_f32(x))
MAP1(unpack_F8E4M3FN, uint8_t, float, base_f32_from_f8e4m3fn(x))
#if defined(__F16C__)
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
MATH_INLINE float f32_of_f16(uint16_t x) { return _cvtsh_ss(x); }
MATH_INLINE uint16_t f16_of_f32(float x) { return (uint16_t)_cvtss_sh(x, NEAREST); }
MAP1(round_tail_F16, float, float, f32_of_f16(f16_of_f32(x)))
MAP1(pack_tail_F16, float, uint16_t, f16_of_f32(x))
MAP1(unpack_tail_F16, uint16_t, float, f32_of_f16(x))
/* gcc 12 does not vectorise these conversions by itself. `step` handles 8 lanes at i, the tail loop the rest. */
#define F16_MAP(name, TA, TR, step)                                                                                    \
  static void name##_F16(int64_t n, void *d, const void *pa, const void *pb, const void *pc, unsigned scalar) {        \
    TR *r = d;                                                                                                         \
    const TA *a = pa;                                                                                                  \
    int64_t i = 0;                                                                                                     \
    if (!(scalar & 1))                                                                                                 \
      for (; i + 8 <= n; i += 8) step;                                                                                 \
    name##_tail_F16(n - i, r + i, a + i, pb, pc, scalar);                                                              \
  }
F16_MAP(round, float, float, _mm256_storeu_ps(r + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(a + i), NEAREST))))
F16_MAP(pack, float, uint16_t, _mm_storeu_si128((__m128i *)(r + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), NEAREST)))
F16_MAP(unpack, uint16_t, float, _mm256_storeu_ps(r + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i)))))
#else
MAP1(round_F16, float, float, base_f32_from_f16(base_f16_from_f32(x)))
MAP1(pack_F16, float, uint16_t, base_f16_from_f32(x))
MAP1(unpack_F16, uint16_t, float, base_f32_from_f16(x))
#endif

/* ---- folds ------------------------------------------------------------------------------------ */

/* OP(x, y) on T; accumulators of type A. A row is summed in LANES interleaved sums, which the compiler keeps in vector
 * registers, then these pairwise. A column's chunk (a tile has few lines) goes straight into the accumulator. */
#define FOLD_KERNELS(name, T, A, OP, lanes)                                                                   \
  static void rows_##name(int64_t rows, int64_t len, void *accumulator, const void *px) {                              \
    A *restrict to = accumulator;                                                                                      \
    const T *restrict x = px;                                                                                          \
    for (int64_t row = 0; row < rows; ++row, x += len) {                                                               \
      int64_t i = 0;                                                                                                   \
      A total = to[row];                                                                                               \
      if (len >= lanes) {                                                                                              \
        T part[lanes];                                                                                                 \
        for (int j = 0; j < lanes; ++j) part[j] = x[j];                                                                \
        for (i = lanes; i + lanes <= len; i += lanes)                                                                  \
          for (int j = 0; j < lanes; ++j) part[j] = (T)OP(part[j], x[i + j]);                                          \
        for (int width = lanes / 2; width >= 1; width /= 2)                                                            \
          for (int j = 0; j < width; ++j) part[j] = (T)OP(part[j], part[j + width]);                                   \
        total = (A)OP(total, (A)part[0]);                                                                              \
      }                                                                                                                \
      if (i < len) {                                                                                                   \
        T rest = x[i];                                                                                                 \
        for (++i; i < len; ++i) rest = (T)OP(rest, x[i]);                                                              \
        total = (A)OP(total, (A)rest);                                                                                 \
      }                                                                                                                \
      to[row] = total;                                                                                                 \
    }                                                                                                                  \
  }                                                                                                                    \
  static void columns_##name(int64_t rows, int64_t len, void *accumulator, const void *px) {                           \
    A *restrict to = accumulator;                                                                                      \
    const T *restrict x = px;                                                                                          \
    int64_t row = 0;                                                                                                   \
    for (; row + 4 <= rows; row += 4, x += 4 * len)                                                                    \
      FOR_LANES(i, len) {                                                                                              \
        T x0 = x[i], x1 = x[len + i], x2 = x[2 * len + i], x3 = x[3 * len + i]; /* OP may name its operands twice */       \
        T low = (T)OP(x0, x1), high = (T)OP(x2, x3), both = (T)OP(low, high);                                          \
        A old = to[i];                                                                                                 \
        to[i] = (A)OP(old, (A)both);                                                                                   \
      }                                                                                                                \
    for (; row < rows; ++row, x += len)                                                                                \
      FOR_LANES(i, len) {                                                                                              \
        T x0 = x[i];                                                                                                   \
        A old = to[i];                                                                                                 \
        to[i] = (A)OP(old, (A)x0);                                                                                     \
      }                                                                                                                \
  }
/* Rows of f32 and f64, the folds that models consist of: four vectors of 64 bytes, whatever the machine's are, so that
 * sums are the same everywhere. A vector's parts have names so that they stay in registers (an array of partial sums goes
 * through memory each time, and of comparisons of vectors that the machine lacks GCC 12 makes branches). */
#if defined(__AVX512F__)
#define PART_BYTES 64
#define EACH_PART(X, ...) X(0, __VA_ARGS__)
#define FOLD_PARTS(OP, a) a.part0[0]
#define LANES_f32 {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#define LANES_f64 {0, 1, 2, 3, 4, 5, 6, 7}
#elif defined(__AVX2__)
#define PART_BYTES 32
#define EACH_PART(X, ...) X(0, __VA_ARGS__) X(1, __VA_ARGS__)
#define FOLD_PARTS(OP, a) OP(a.part0[0], a.part1[0])
#define LANES_f32 {0, 1, 2, 3, 4, 5, 6, 7}
#define LANES_f64 {0, 1, 2, 3}
#else
#define PART_BYTES 16
#define EACH_PART(X, ...) X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__)
#define FOLD_PARTS(OP, a) OP(OP(a.part0[0], a.part1[0]), OP(a.part2[0], a.part3[0]))
#define LANES_f32 {0, 1, 2, 3}
#define LANES_f64 {0, 1}
#endif
#define PART_ADD(I, x, y) ((x) + (y))
#define PART_CHOOSE(mask, x, y) (((mask) & (x)) | (~(mask) & (y)))
#define PART_MAXIMUM(I, x, y) (__typeof__(x))PART_CHOOSE((I)((x) > (y)) | (I)((x) != (x)), (I)(x), (I)(y))
#define PART_MINIMUM(I, x, y) (__typeof__(x))PART_CHOOSE((I)((x) < (y)) | (I)((x) != (x)), (I)(x), (I)(y))
#define PART_FIELD(i, name) name##_part part##i;
#define PART_LOAD(i, name) v.part##i = *(const name##_part *)(x + i * (PART_BYTES / (int)sizeof *x));
#define PART_COMBINE(i, name, OP) a.part##i = OP(name##_lanes, a.part##i, b.part##i);
/* Each lane with the neighbour at that distance. */
#define PART_NEIGHBOURS(i, name, OP, distance)                                                                         \
  if ((distance) < PART_BYTES / (int)sizeof a.part##i[0])                                                              \
    a.part##i = OP(name##_lanes, a.part##i, __builtin_shuffle(a.part##i, (name##_lanes)LANES_##name ^ (distance)));
#define VECTORS(name, T, I)                                                                                            \
  typedef T name##_part __attribute__((vector_size(PART_BYTES), aligned(sizeof(T)), may_alias));                       \
  typedef I name##_lanes __attribute__((vector_size(PART_BYTES), may_alias));                                          \
  typedef struct name##_vector {                                                                                       \
    EACH_PART(PART_FIELD, name)                                                                                        \
  } name##_vector;                                                                                                     \
  MATH_INLINE name##_vector name##_load(const T *x) {                                                                  \
    name##_vector v;                                                                                                   \
    EACH_PART(PART_LOAD, name)                                                                                         \
    return v;                                                                                                          \
  }
VECTORS(f32, float, int32_t)
VECTORS(f64, double, int64_t)
/* OP is PART_OP of single elements. A vector's lanes are folded as neighbours, neighbouring pairs, fours, eights. */
#define FOLD_VECTORS(name, vector, T, A, OP, PART_OP)                                                                  \
  MATH_INLINE vector##_vector combined_##name(vector##_vector a, vector##_vector b) {                                  \
    EACH_PART(PART_COMBINE, vector, PART_OP)                                                                           \
    return a;                                                                                                          \
  }                                                                                                                    \
  MATH_INLINE T folded_##name(vector##_vector a) {                                                                     \
    EACH_PART(PART_NEIGHBOURS, vector, PART_OP, 1)                                                                     \
    EACH_PART(PART_NEIGHBOURS, vector, PART_OP, 2)                                                                     \
    EACH_PART(PART_NEIGHBOURS, vector, PART_OP, 4)                                                                     \
    EACH_PART(PART_NEIGHBOURS, vector, PART_OP, 8)                                                                     \
    return FOLD_PARTS(OP, a);                                                                                          \
  }                                                                                                                    \
  static void vectors_##name(int64_t rows, int64_t len, void *accumulator, const void *px) {                           \
    enum { LANES = 64 / sizeof(T) };                                                                                   \
    A *restrict to = accumulator;                                                                                      \
    const T *restrict x = px;                                                                                          \
    if (len < LANES) {                                                                                                 \
      rows_##name(rows, len, accumulator, px);                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    for (int64_t row = 0; row < rows; ++row, x += len) {                                                               \
      int64_t i = LANES;                                                                                               \
      vector##_vector a = vector##_load(x);                                                                            \
      if (len >= 4 * LANES) {                                                                                          \
        vector##_vector b = vector##_load(x + LANES), c = vector##_load(x + 2 * LANES), d = vector##_load(x + 3 * LANES); \
        for (i = 4 * LANES; i + 4 * LANES <= len; i += 4 * LANES) {                                                    \
          a = combined_##name(a, vector##_load(x + i)), b = combined_##name(b, vector##_load(x + i + LANES));          \
          c = combined_##name(c, vector##_load(x + i + 2 * LANES)), d = combined_##name(d, vector##_load(x + i + 3 * LANES)); \
        }                                                                                                              \
        a = combined_##name(combined_##name(a, b), combined_##name(c, d));                                             \
      }                                                                                                                \
      for (; i + LANES <= len; i += LANES) a = combined_##name(a, vector##_load(x + i));                               \
      A sum = (A)OP(to[row], (A)folded_##name(a));                                                                     \
      if (i < len) {                                                                                                   \
        T rest = x[i];                                                                                                 \
        for (++i; i < len; ++i) rest = OP(rest, x[i]);                                                                 \
        sum = (A)OP(sum, (A)rest);                                                                                     \
      }                                                                                                                \
      to[row] = sum;                                                                                                   \
    }                                                                                                                  \
  }
#define ADD(x, y) ((x) + (y))
#define MULTIPLY(x, y) ((x) * (y))
#define BITS_AND(x, y) ((x) & (y))
#define BITS_OR(x, y) ((x) | (y))
FOLD_KERNELS(ADD_F32, float, double, ADD, 64)
FOLD_KERNELS(MULTIPLY_F32, float, double, MULTIPLY, 64)
FOLD_KERNELS(MAXIMUM_F32, float, float, larger_f32, 64)
FOLD_KERNELS(MINIMUM_F32, float, float, smaller_f32, 64)
FOLD_KERNELS(ADD_F64, double, double, ADD, 32)
FOLD_KERNELS(MULTIPLY_F64, double, double, MULTIPLY, 32)
FOLD_KERNELS(MAXIMUM_F64, double, double, larger_f64, 32)
FOLD_KERNELS(MINIMUM_F64, double, double, smaller_f64, 32)
FOLD_VECTORS(ADD_F32, f32, float, double, ADD, PART_ADD)
FOLD_VECTORS(MAXIMUM_F32, f32, float, float, larger_f32, PART_MAXIMUM)
FOLD_VECTORS(MINIMUM_F32, f32, float, float, smaller_f32, PART_MINIMUM)
FOLD_VECTORS(ADD_F64, f64, double, double, ADD, PART_ADD)
FOLD_VECTORS(MAXIMUM_F64, f64, double, double, larger_f64, PART_MAXIMUM)
FOLD_VECTORS(MINIMUM_F64, f64, double, double, smaller_f64, PART_MINIMUM)
FOLD_KERNELS(ADD_C64, c64, c128, ADD, 8)
FOLD_KERNELS(MULTIPLY_C64, c64, c128, multiply_C128, 8)
FOLD_KERNELS(ADD_C128, c128, c128, ADD, 8)
FOLD_KERNELS(MULTIPLY_C128, c128, c128, multiply_C128, 8)
#define FOLD_INTEGER(name, T, wide, bits)                                                                              \
  FOLD_KERNELS(ADD_##name, T, T, ADD_##name, 256 / (int)sizeof(T))                                                  \
  FOLD_KERNELS(MULTIPLY_##name, T, T, MULTIPLY_##name, 64 / (int)sizeof(T))                                         \
  FOLD_KERNELS(MAXIMUM_##name, T, T, MAXIMUM_##name, 256 / (int)sizeof(T))                                          \
  FOLD_KERNELS(MINIMUM_##name, T, T, MINIMUM_##name, 256 / (int)sizeof(T))                                          \
  FOLD_KERNELS(AND_##name, T, T, BITS_AND, 256 / (int)sizeof(T))                                                    \
  FOLD_KERNELS(OR_##name, T, T, BITS_OR, 256 / (int)sizeof(T))
SIGNED_TYPES(FOLD_INTEGER)
UNSIGNED_TYPES(FOLD_INTEGER)
FOLD_KERNELS(AND_BOOL, uint8_t, uint8_t, BITS_AND, 256)
FOLD_KERNELS(OR_BOOL, uint8_t, uint8_t, BITS_OR, 256)

/* ---- the table -------------------------------------------------------------------------------- */

/* A kind occurs for several classes, so its row is filled by assignments, not by an initialiser. */
#define SET(K, T) t->map[IR_##K][TTPU_##T] = map_##K##_##T;
#define SET_FLOAT(K) SET(K, F32) SET(K, F64)
#define SET_TRIG(K) SET_FLOAT(K)
#define SET_WIDE(K) SET_FLOAT(K)
#define SET_OWN(K) SET_FLOAT(K)
#define SET_MOD(K) SET_FLOAT(K)
#define SET_COMPLEX(K) SET(K, C64) SET(K, C128)
#define SET_BOOL(K) SET(K, BOOL)
#define SET_INTEGER(K) SET(K, I8) SET(K, I16) SET(K, I32) SET(K, I64) SET(K, U8) SET(K, U16) SET(K, U32) SET(K, U64)
#define ONE(class, K) SET_##class(K)
#define TWO(class, K) SET_##class(K)
#define FOLD_INDEX_ADD 0
#define FOLD_INDEX_MULTIPLY 1
#define FOLD_INDEX_MAXIMUM 2
#define FOLD_INDEX_MINIMUM 3
#define FOLD_INDEX_AND 4
#define FOLD_INDEX_OR 5
#define SET_FOLD(K, T) t->fold_rows[FOLD_INDEX_##K][TTPU_##T] = rows_##K##_##T, t->fold_columns[FOLD_INDEX_##K][TTPU_##T] = columns_##K##_##T;
#define SET_FOLD_FLOAT(K) SET_FOLD(K, F32) SET_FOLD(K, F64)
#define SET_FOLD_COMPLEX(K) SET_FOLD(K, C64) SET_FOLD(K, C128)
#define SET_FOLD_INTEGER(K) SET_FOLD(K, I8) SET_FOLD(K, I16) SET_FOLD(K, I32) SET_FOLD(K, I64) SET_FOLD(K, U8) SET_FOLD(K, U16) SET_FOLD(K, U32) SET_FOLD(K, U64)
#define SET_FOLD_BOOL(K)
#define FOLD(class, K) SET_FOLD_##class(K)
#define SET_COMPARE(T)                                                                                                 \
  t->compare[IR_EQ][TTPU_##T] = compare_EQ_##T, t->compare[IR_NE][TTPU_##T] = compare_NE_##T;                          \
  t->compare[IR_GE][TTPU_##T] = compare_GE_##T, t->compare[IR_GT][TTPU_##T] = compare_GT_##T;                          \
  t->compare[IR_LE][TTPU_##T] = compare_LE_##T, t->compare[IR_LT][TTPU_##T] = compare_LT_##T;
#define SET_CONVERT(to)                                                                                                \
  t->convert[TTPU_BOOL][TTPU_##to] = convert_BOOL_##to, t->convert[TTPU_I8][TTPU_##to] = convert_I8_##to;              \
  t->convert[TTPU_I16][TTPU_##to] = convert_I16_##to, t->convert[TTPU_I32][TTPU_##to] = convert_I32_##to;              \
  t->convert[TTPU_I64][TTPU_##to] = convert_I64_##to, t->convert[TTPU_U8][TTPU_##to] = convert_U8_##to;                \
  t->convert[TTPU_U16][TTPU_##to] = convert_U16_##to, t->convert[TTPU_U32][TTPU_##to] = convert_U32_##to;              \
  t->convert[TTPU_U64][TTPU_##to] = convert_U64_##to, t->convert[TTPU_F32][TTPU_##to] = convert_F32_##to;              \
  t->convert[TTPU_F64][TTPU_##to] = convert_F64_##to, t->convert[TTPU_C64][TTPU_##to] = convert_C64_##to;              \
  t->convert[TTPU_C128][TTPU_##to] = convert_C128_##to;
#define SET_SMALL(T) t->round[TTPU_##T] = round_##T, t->pack[TTPU_##T] = pack_##T, t->unpack[TTPU_##T] = unpack_##T;

#define ROUNDED(K) t->rounded[IR_##K] = rounded_##K;

void KERNELS(tile_kernels *t);
void KERNELS(tile_kernels *t) {
#include "soft/tile/prog.def"
  SET(REAL, C64) SET(ABS, C64) SET(ABS, C128) SET(REAL, C128) SET(IMAG, C64) SET(IMAG, C128) SET(IS_FINITE, F32) SET(IS_FINITE, F64)
  SET(COMPLEX, F32) SET(COMPLEX, F64)
  SET_COMPARE(BOOL) SET_COMPARE(I8) SET_COMPARE(I16) SET_COMPARE(I32) SET_COMPARE(I64) SET_COMPARE(U8)
  SET_COMPARE(U16) SET_COMPARE(U32) SET_COMPARE(U64) SET_COMPARE(F32) SET_COMPARE(F64)
  t->compare[IR_EQ][TTPU_C64] = compare_EQ_C64, t->compare[IR_NE][TTPU_C64] = compare_NE_C64;
  t->compare[IR_EQ][TTPU_C128] = compare_EQ_C128, t->compare[IR_NE][TTPU_C128] = compare_NE_C128;
  SET_CONVERT(BOOL) SET_CONVERT(I8) SET_CONVERT(I16) SET_CONVERT(I32) SET_CONVERT(I64) SET_CONVERT(U8)
  SET_CONVERT(U16) SET_CONVERT(U32) SET_CONVERT(U64) SET_CONVERT(F32) SET_CONVERT(F64) SET_CONVERT(C64) SET_CONVERT(C128)
  SET_SMALL(BF16) SET_SMALL(F16) SET_SMALL(F8E5M2) SET_SMALL(F8E4M3FN)
  t->select[0] = select_1, t->select[1] = select_2, t->select[2] = select_4, t->select[3] = select_8, t->select[4] = select_16;
  t->expand[0] = expand_1, t->expand[1] = expand_2, t->expand[2] = expand_4, t->expand[3] = expand_8, t->expand[4] = expand_16;
  t->copy[0] = copy_1, t->copy[1] = copy_2, t->copy[2] = copy_4, t->copy[3] = copy_8, t->copy[4] = copy_16;
  t->fold_rows[FOLD_INDEX_ADD][TTPU_F32] = vectors_ADD_F32, t->fold_rows[FOLD_INDEX_ADD][TTPU_F64] = vectors_ADD_F64;
  t->fold_rows[FOLD_INDEX_MAXIMUM][TTPU_F32] = vectors_MAXIMUM_F32, t->fold_rows[FOLD_INDEX_MAXIMUM][TTPU_F64] = vectors_MAXIMUM_F64;
  t->fold_rows[FOLD_INDEX_MINIMUM][TTPU_F32] = vectors_MINIMUM_F32, t->fold_rows[FOLD_INDEX_MINIMUM][TTPU_F64] = vectors_MINIMUM_F64;
  /* bool adds as `or` and multiplies as `and`. */
  static const uint8_t bool_or[] = {FOLD_INDEX_ADD, FOLD_INDEX_MAXIMUM, FOLD_INDEX_OR};
  static const uint8_t bool_and[] = {FOLD_INDEX_MULTIPLY, FOLD_INDEX_MINIMUM, FOLD_INDEX_AND};
  for (int i = 0; i < 3; ++i) {
    t->fold_rows[bool_or[i]][TTPU_BOOL] = rows_OR_BOOL, t->fold_columns[bool_or[i]][TTPU_BOOL] = columns_OR_BOOL;
    t->fold_rows[bool_and[i]][TTPU_BOOL] = rows_AND_BOOL, t->fold_columns[bool_and[i]][TTPU_BOOL] = columns_AND_BOOL;
  }
}
