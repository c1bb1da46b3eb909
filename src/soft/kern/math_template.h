/* Elementary functions as straight-line C that gcc turns into vector code: no branch, no call, no table.
 * Integer steps on bits are unsigned: of NaNs and infinities they make numbers that nobody uses, but no overflow.
 * Included once per instruction set (MATH_FMA says whether fma is an instruction there). Errors are the maxima that
 * tests/c/test_soft_tile_math.c finds against libm in a wider type.
 *
 * Sources of the coefficients:
 *   exp, log, sin, cos, tanh (f32)  Cephes single precision library, S. Moshier, netlib.org/cephes
 *   exp, log (f64)                  FreeBSD msun e_exp.c, e_log.c (Sun Microsystems, 1993)
 *   sin, cos (f64 kernels)          FreeBSD msun k_sin.c, k_cos.c
 *   erf (f32)                       N. Juffa, "my_erff", forums.developer.nvidia.com and stackoverflow.com/q/35148198
 *   erf_inv (f64 start)             M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011
 *   lgamma                          libm; digamma: asymptotic series, DLMF 5.11.2, after the recurrence 5.5.2
 */
#ifndef MATH_FMA
#error "math_template.h wants MATH_FMA: 0 or 1"
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MATH_INLINE static inline __attribute__((always_inline, unused))

MATH_INLINE int32_t bits_f32(float x) {
  int32_t i;
  memcpy(&i, &x, 4);
  return i;
}
MATH_INLINE float f32_bits(int32_t i) {
  float x;
  memcpy(&x, &i, 4);
  return x;
}
MATH_INLINE int64_t bits_f64(double x) {
  int64_t i;
  memcpy(&i, &x, 8);
  return i;
}
MATH_INLINE double f64_bits(int64_t i) {
  double x;
  memcpy(&x, &i, 8);
  return x;
}
MATH_INLINE float fma_f32(float a, float b, float c) { return MATH_FMA ? __builtin_fmaf(a, b, c) : a * b + c; }
MATH_INLINE double fma_f64(double a, double b, double c) { return MATH_FMA ? __builtin_fma(a, b, c) : a * b + c; }

/* ---- float ------------------------------------------------------------------------------------ */

static const float round_f32 = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
static const double round_f64 = 6755399441055744.0; /* 1.5 * 2^52 */

MATH_INLINE float pow2_f32(int32_t n) { return f32_bits((int32_t)(((uint32_t)n + 127u) << 23)); } /* -126 <= n <= 127 */

/* 2^n * y for any n that exp meets, in two exact steps and one rounding. */
MATH_INLINE float scale_f32(float y, int32_t n) {
  int32_t half = n >> 1;
  return y * pow2_f32(half) * pow2_f32(n - half);
}

/* exp(r) - 1 for |r| <= ln(2)/2. */
MATH_INLINE float expm1_core_f32(float r) {
  float p = 1.9875691500E-4f;
  p = fma_f32(p, r, 1.3981999507E-3f);
  p = fma_f32(p, r, 8.3334519073E-3f);
  p = fma_f32(p, r, 4.1665795894E-2f);
  p = fma_f32(p, r, 1.6666665459E-1f);
  p = fma_f32(p, r, 5.0000001201E-1f);
  return fma_f32(p * r, r, r);
}
/* x = n*ln(2) + r. A NaN stays one in r, and n is then some integer. */
MATH_INLINE float exp_reduce_f32(float x, int32_t *n) {
  float shifted = fma_f32(x, 1.44269504088896341f, round_f32);
  float k = shifted - round_f32;
  *n = (int32_t)((uint32_t)bits_f32(shifted) - (uint32_t)bits_f32(round_f32));
  float r = fma_f32(k, -0.693359375f, x);
  return fma_f32(k, 2.12194440e-4f, r);
}

MATH_INLINE float exp_f32(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  int32_t n;
  float r = exp_reduce_f32(x, &n);
  return scale_f32(1.0f + expm1_core_f32(r), n);
}

MATH_INLINE float expm1_f32(float x) {
  float y = x > 89.0f ? 89.0f : x;
  y = y < -18.0f ? -18.0f : y;
  int32_t n;
  float p = expm1_core_f32(exp_reduce_f32(y, &n));
  int32_t small = n > 40 ? 40 : n; /* beyond, 2^-n is lost in 1 - 2^-n */
  float t = pow2_f32((int32_t)(0u - (uint32_t)small));
  float e = scale_f32((1.0f - t) + p, n);
  return x == 0.0f ? x : e;
}

/* log(1 + z) for 1 + z in [sqrt(1/2), sqrt(2)), plus e*ln(2). */
MATH_INLINE float log_core_f32(float z, float e) {
  float s = z * z;
  float p = 7.0376836292E-2f;
  p = fma_f32(p, z, -1.1514610310E-1f);
  p = fma_f32(p, z, 1.1676998740E-1f);
  p = fma_f32(p, z, -1.2420140846E-1f);
  p = fma_f32(p, z, 1.4249322787E-1f);
  p = fma_f32(p, z, -1.6668057665E-1f);
  p = fma_f32(p, z, 2.0000714765E-1f);
  p = fma_f32(p, z, -2.4999993993E-1f);
  p = fma_f32(p, z, 3.3333331174E-1f);
  p = p * z * s;
  p = fma_f32(e, -2.12194440e-4f, p);
  p = fma_f32(s, -0.5f, p);
  return fma_f32(e, 0.693359375f, z + p);
}
/* x = 2^e * m with m in [sqrt(1/2), sqrt(2)); x positive and normal. */
MATH_INLINE float log_split_f32(float x, int32_t *e) {
  int32_t i = (int32_t)((uint32_t)bits_f32(x) - 0x3f3504f3u);
  *e = i >> 23;
  return f32_bits((i & 0x007fffff) + 0x3f3504f3);
}
MATH_INLINE float log_f32(float x) {
  float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;
  float y = tiny != 0.0f ? x * 8388608.0f : x;
  int32_t e;
  float m = log_split_f32(y, &e);
  float r = log_core_f32(m - 1.0f, (float)e - 23.0f * tiny);
  r = x == INFINITY ? x : r;
  r = x == 0.0f ? -INFINITY : r;
  return x >= 0.0f ? r : NAN;
}
MATH_INLINE float log1p_f32(float x) {
  float u = 1.0f + x;
  float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x); /* u + lost is 1 + x exactly */
  int32_t e;
  float m = log_split_f32(u, &e);
  int32_t bounded = e > 60 ? 60 : e < -60 ? -60 : e; /* at e > 24 nothing was lost */
  float z = fma_f32(lost, pow2_f32(-bounded), m - 1.0f);
  float r = log_core_f32(z, (float)e);
  r = x == INFINITY ? x : r;
  r = x == -1.0f ? -INFINITY : r;
  r = x == 0.0f ? x : r;
  return x >= -1.0f ? r : NAN;
}

MATH_INLINE float tanh_f32(float x) {
  float a = fabsf(x), z = x * x;
  float p = -5.70498872745E-3f;
  p = fma_f32(p, z, 2.06390887954E-2f);
  p = fma_f32(p, z, -5.37397155531E-2f);
  p = fma_f32(p, z, 1.33314422036E-1f);
  p = fma_f32(p, z, -3.33332819422E-1f);
  float small = fma_f32(p * z, x, x);
  float large = copysignf(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);
  large = (x != x) | (x == 0.0f) ? x : large;
  return (a < 0.625f) & (x != 0.0f) ? small : large;
}

MATH_INLINE float logistic_f32(float x) {
  float e = exp_f32(-fabsf(x));
  float r = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
  return x != x ? x : r;
}

MATH_INLINE float erf_f32(float a) {
  float t = fabsf(a), s = a * a;
  float r = fma_f32(-1.72853470e-5f, t, 3.83197126e-4f);
  float u = fma_f32(-3.88396438e-3f, t, 2.42546219e-2f);
  r = fma_f32(r, s, u);
  r = fma_f32(r, t, -1.06777877e-1f);
  r = fma_f32(r, t, -6.34846687e-1f);
  r = fma_f32(r, t, -1.28717512e-1f);
  r = fma_f32(r, t, -t);
  r = t > 10.0f ? -104.0f : r;
  float large = copysignf(1.0f - exp_f32(r), a);
  float p = -5.96761703e-4f;
  p = fma_f32(p, s, 4.99119423e-3f);
  p = fma_f32(p, s, -2.67681349e-2f);
  p = fma_f32(p, s, 1.12819925e-1f);
  p = fma_f32(p, s, -3.76125336e-1f);
  p = fma_f32(p, s, 1.28379166e-1f);
  float small = fma_f32(p, a, a);
  return t > 0.927734375f ? large : small;
}

/* The quadrant q and r = x - q*pi/2 in double, |x| <= 2^20: each product with the 33-bit parts is exact. */
MATH_INLINE double trig_reduce(double x, int64_t *quadrant) {
  double shifted = x * 0.63661977236758134308 + round_f64;
  double q = shifted - round_f64;
  *quadrant = bits_f64(shifted);
  double r = x - q * 1.57079632673412561417e+00;
  r -= q * 6.07710050630396597660e-11;
  return r - q * 2.02226624879595063154e-21;
}
MATH_INLINE float sin_core_f32(float r) {
  float z = r * r;
  float p = fma_f32(-1.9515295891E-4f, z, 8.3321608736E-3f);
  p = fma_f32(p, z, -1.6666654611E-1f);
  return fma_f32(p * z, r, r);
}
MATH_INLINE float cos_core_f32(float r) {
  float z = r * r;
  float p = fma_f32(2.443315711809948E-5f, z, -1.388731625493765E-3f);
  p = fma_f32(p, z, 4.166664568298827E-2f);
  return fma_f32(p * z, z, fma_f32(-0.5f, z, 1.0f));
}
/* sin(x + phase*pi/2); x beyond 2^20 is for libm (trig_far_f32 finds it). */
MATH_INLINE float sine_f32(float x, int64_t phase) {
  int64_t q;
  float r = (float)trig_reduce((double)x, &q);
  q += phase;
  float s = sin_core_f32(r), c = cos_core_f32(r);
  float y = (q & 1) != 0 ? c : s;
  y = (q & 2) != 0 ? -y : y;
  return (x == 0.0f) & (phase == 0) ? x : y;
}
MATH_INLINE double sin_core_f64(double r) {
  double z = r * r;
  double p = fma_f64(1.58969099521155010221e-10, z, -2.50507602534068634195e-08);
  p = fma_f64(p, z, 2.75573137070700676789e-06);
  p = fma_f64(p, z, -1.98412698298579493134e-04);
  p = fma_f64(p, z, 8.33333333332248946124e-03);
  p = fma_f64(p, z, -1.66666666666666324348e-01);
  return fma_f64(p * z, r, r);
}
MATH_INLINE double cos_core_f64(double r) {
  double z = r * r;
  double p = fma_f64(-1.13596475577881948265e-11, z, 2.08757232129817482790e-09);
  p = fma_f64(p, z, -2.75573143513906633035e-07);
  p = fma_f64(p, z, 2.48015872894767294178e-05);
  p = fma_f64(p, z, -1.38888888888741095749e-03);
  p = fma_f64(p, z, 4.16666666666666019037e-02);
  return fma_f64(p * z, z, fma_f64(-0.5, z, 1.0));
}
MATH_INLINE float tan_f32(float x) {
  int64_t q;
  double r = trig_reduce((double)x, &q);
  double s = sin_core_f64(r), c = cos_core_f64(r);
  double y = (q & 1) != 0 ? -c / s : s / c;
  return x == 0.0f ? x : (float)y;
}
MATH_INLINE int trig_far_f32(float x) { return !(fabsf(x) <= 1048576.0f); }

/* ---- double ----------------------------------------------------------------------------------- */

MATH_INLINE double pow2_f64(int64_t n) { return f64_bits((int64_t)(((uint64_t)n + 1023u) << 52)); }
MATH_INLINE double exp_f64(double x) {
  double y = x > 710.0 ? 710.0 : x;
  y = y < -746.0 ? -746.0 : y;
  double shifted = y * 1.44269504088896338700e+00 + round_f64;
  double k = shifted - round_f64;
  int64_t n = (int64_t)((uint64_t)bits_f64(shifted) - (uint64_t)bits_f64(round_f64));
  double high = y - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10;
  double r = high - low, t = r * r;
  double p = fma_f64(4.13813679705723846039e-08, t, -1.65339022054652515390e-06);
  p = fma_f64(p, t, 6.61375632143793436117e-05);
  p = fma_f64(p, t, -2.77777777770155933842e-03);
  p = fma_f64(p, t, 1.66666666666666019037e-01);
  double c = r - t * p;
  double e = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  int64_t half = n >> 1;
  return e * pow2_f64(half) * pow2_f64(n - half);
}
MATH_INLINE double log_f64(double x) {
  double tiny = x < 2.2250738585072014e-308 ? 1.0 : 0.0;
  double y = tiny != 0.0 ? x * 18014398509481984.0 : x; /* 2^54 */
  int64_t i = (int64_t)((uint64_t)bits_f64(y) - 0x3fe6a09e667f3bcdull);
  int64_t e = i >> 52;
  double f = f64_bits((i & 0x000fffffffffffffll) + 0x3fe6a09e667f3bcdll) - 1.0;
  /* e as a double: its low bits under the rounding constant, which needs no 64-bit conversion. */
  double k = f64_bits(bits_f64(round_f64) + e) - round_f64 - 54.0 * tiny;
  double s = f / (2.0 + f), z = s * s, w = z * z;
  double t1 = w * fma_f64(w, fma_f64(w, 1.531383769920937332e-01, 2.222219843214978396e-01), 3.999999999940941908e-01);
  double t2 =
      z * fma_f64(w,
                  fma_f64(w, fma_f64(w, 1.479819860511658591e-01, 1.818357216161805012e-01), 2.857142874366239149e-01),
                  6.666666666666735130e-01);
  double half = 0.5 * f * f;
  double r = k * 6.93147180369123816490e-01 - ((half - (s * (half + (t1 + t2)) + k * 1.90821492927058770002e-10)) - f);
  r = x == (double)INFINITY ? x : r;
  r = x == 0.0 ? -(double)INFINITY : r;
  return x >= 0.0 ? r : (double)NAN;
}

/* pow through double: y*log|x| is good to 2^-52 of a product below 2^7, so the result is to 2^-44. */
MATH_INLINE float pow_f32(float x, float y) {
  float a = fabsf(x);
  double product = (double)y * log_f64((double)a);
  product = product > 200.0 ? 200.0 : product; /* keeps NaN, and exp_f64 within its cheap range */
  product = product < -200.0 ? -200.0 : product;
  float r = (float)exp_f64(product);
  float ay = fabsf(y);
  /* Bitwise logic: `&&` would be a branch, and no vector code. */
  float half = ay * 0.5f, rounded = (ay + 8388608.0f) - 8388608.0f, half_rounded = (half + 8388608.0f) - 8388608.0f;
  int whole = (ay >= 8388608.0f) | (rounded == ay);
  int odd = whole & (half < 8388608.0f) & (half_rounded != half);
  int one = (x == 1.0f) | (y == 0.0f) | ((a == 1.0f) & (ay == INFINITY));
  int none = (x < 0.0f) & !whole & (a != INFINITY);
  int negative = odd & (bits_f32(x) < 0);
  r = none ? NAN : r;
  r = negative ? -r : r;
  return one ? 1.0f : r;
}

/* ---- rare functions: one element at a time ------------------------------------------------------ */

static __attribute__((unused, noinline)) double digamma_f64(double x) {
  if (x == 0.0) return copysign(INFINITY, -x);
  double r = 0.0;
  if (x < 0.0) { /* reflection */
    if (x == floor(x)) return NAN;
    r = -M_PI / tan(M_PI * (x - floor(x)));
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) r -= 1.0 / x;
  double z = 1.0 / (x * x);
  double p =
      z * (8.33333333333333333e-2 -
           z * (8.33333333333333333e-3 -
                z * (3.96825396825396825e-3 -
                     z * (4.16666666666666667e-3 -
                          z * (7.57575757575757576e-3 - z * (2.10927960927960928e-2 - z * 8.33333333333333333e-2))))));
  return x == INFINITY ? x : r + log(x) - 0.5 / x - p;
}

static __attribute__((unused, noinline)) double erf_inv_f64(double y) {
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? INFINITY : y == -1.0 ? -INFINITY : NAN;
  double w = -log((1.0 - y) * (1.0 + y)), p;
  if (w < 5.0) {
    w -= 2.5;
    p = 2.81022636e-08;
    p = 3.43273939e-07 + p * w;
    p = -3.5233877e-06 + p * w;
    p = -4.39150654e-06 + p * w;
    p = 0.00021858087 + p * w;
    p = -0.00125372503 + p * w;
    p = -0.00417768164 + p * w;
    p = 0.246640727 + p * w;
    p = 1.50140941 + p * w;
  } else {
    w = sqrt(w) - 3.0;
    p = -0.000200214257;
    p = 0.000100950558 + p * w;
    p = 0.00134934322 + p * w;
    p = -0.00367342844 + p * w;
    p = 0.00573950773 + p * w;
    p = -0.0076224613 + p * w;
    p = 0.00943887047 + p * w;
    p = 1.00167406 + p * w;
    p = 2.83297682 + p * w;
  }
  /* The start has f32's digits for an f32, and hardly one for an f64 next to 1. Halley's iteration triples them; its
   * residual is that of erfc in the tail, where erf has lost its digits. */
  double x = fabs(p * y), step = x;
  for (int i = 0; i < 8 && fabs(step) > 1e-6 * x; ++i) {
    double error = fabs(y) < 0.5 ? erf(x) - fabs(y) : (1.0 - fabs(y)) - erfc(x);
    step = 0.886226925452758014 * exp(x * x) * error;
    step /= 1.0 + x * step;
    x -= step;
  }
  return y == 0.0 ? y : copysign(x, y);
}
