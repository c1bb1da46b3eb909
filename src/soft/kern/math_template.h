/* Elementary functions as straight-line C that gcc turns into vector code: no branch, no call, no table.
 * Integer steps on bits are unsigned: of NaNs and infinities they make numbers that nobody uses, but no overflow.
 * Included once per instruction set (MATH_FMA says whether fma is an instruction there). Errors are the maxima that
 * tests/c/test_soft_tile_math.c finds against libm in a wider type.
 *
 * Sources of the coefficients:
 *   exp, log, sin, cos, tanh (f32)  Cephes single precision library, S. Moshier, netlib.org/cephes
 *   exp, log (f64)                  FreeBSD msun e_exp.c, e_log.c (Sun Microsystems, 1993)
 *   sin, cos (f64 kernels)          FreeBSD msun k_sin.c, k_cos.c
 *   asin, acos, atan, atan2         FreeBSD msun e_asin.c, s_atan.c, e_atan2.c
 *   erfc, erf_inv, lgamma (f32)     Chebyshev fits made with mpmath, of the forms that stand at each
 *   erf (f32)                       N. Juffa, "my_erff", forums.developer.nvidia.com and stackoverflow.com/q/35148198
 *   erf_inv (f64 start)             M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011
 *   digamma                         asymptotic series, DLMF 5.11.2, after the recurrence 5.5.2
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
static const float log2_e_f32 = 1.44269504088896341f, ln2_high_f32 = 0.693359375f, ln2_low_f32 = -2.12194440e-4f;
static const float exp_least_f32 = -104.0f, exp_most_f32 = 89.0f; /* beyond, exp is 0 and infinity */
static const float exp_terms_f32[6] = {1.9875691500E-4f, 1.3981999507E-3f, 8.3334519073E-3f,
                                       4.1665795894E-2f, 1.6666665459E-1f, 5.0000001201E-1f};
static const float tanh_low_f32 = 0.625f; /* below, tanh is a polynomial */
static const float tanh_terms_f32[5] = {-5.70498872745E-3f, 2.06390887954E-2f, -5.37397155531E-2f, 1.33314422036E-1f,
                                        -3.33332819422E-1f};
/* (erf(x) - x) / x by x^2, up to 0.93 */
static const float erf_near_f32[6] = {-5.96761703e-4f, 4.99119423e-3f,  -2.67681349e-2f,
                                      1.12819925e-1f,  -3.76125336e-1f, 1.28379166e-1f};
static const double round_f64 = 6755399441055744.0; /* 1.5 * 2^52 */

MATH_INLINE float pow2_f32(int32_t n) { return f32_bits((int32_t)(((uint32_t)n + 127u) << 23)); } /* -126 <= n <= 127 */

/* 2^n * y for any n that exp meets, in two exact steps and one rounding. */
MATH_INLINE float scale_f32(float y, int32_t n) {
  int32_t half = n >> 1;
  return y * pow2_f32(half) * pow2_f32(n - half);
}

/* exp(r) - 1 for |r| <= ln(2)/2. */
MATH_INLINE float expm1_core_f32(float r) {
  float p = exp_terms_f32[0];
  p = fma_f32(p, r, exp_terms_f32[1]);
  p = fma_f32(p, r, exp_terms_f32[2]);
  p = fma_f32(p, r, exp_terms_f32[3]);
  p = fma_f32(p, r, exp_terms_f32[4]);
  p = fma_f32(p, r, exp_terms_f32[5]);
  return fma_f32(p * r, r, r);
}
/* x = n*ln(2) + r. A NaN stays one in r, and n is then some integer. */
MATH_INLINE float exp_reduce_f32(float x, int32_t *n) {
  float shifted = fma_f32(x, log2_e_f32, round_f32);
  float k = shifted - round_f32;
  *n = (int32_t)((uint32_t)bits_f32(shifted) - (uint32_t)bits_f32(round_f32));
  float r = fma_f32(k, -ln2_high_f32, x);
  return fma_f32(k, -ln2_low_f32, r);
}

MATH_INLINE float exp_f32(float x) {
  x = x > exp_most_f32 ? exp_most_f32 : x;
  x = x < exp_least_f32 ? exp_least_f32 : x;
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
  float p = tanh_terms_f32[0];
  p = fma_f32(p, z, tanh_terms_f32[1]);
  p = fma_f32(p, z, tanh_terms_f32[2]);
  p = fma_f32(p, z, tanh_terms_f32[3]);
  p = fma_f32(p, z, tanh_terms_f32[4]);
  float small = fma_f32(p * z, x, x);
  float large = copysignf(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);
  large = (x != x) | (x == 0.0f) ? x : large;
  return (a < tanh_low_f32) & (x != 0.0f) ? small : large;
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
  float p = erf_near_f32[0];
  p = fma_f32(p, s, erf_near_f32[1]);
  p = fma_f32(p, s, erf_near_f32[2]);
  p = fma_f32(p, s, erf_near_f32[3]);
  p = fma_f32(p, s, erf_near_f32[4]);
  p = fma_f32(p, s, erf_near_f32[5]);
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
/* sin(r + low) and cos(r + low) for |r| <= pi/4 and a low part within r's last place. */
MATH_INLINE double sin_core_f64(double r, double low) {
  double z = r * r, cube = z * r;
  double p = fma_f64(1.58969099521155010221e-10, z, -2.50507602534068634195e-08);
  p = fma_f64(p, z, 2.75573137070700676789e-06);
  p = fma_f64(p, z, -1.98412698298579493134e-04);
  p = fma_f64(p, z, 8.33333333332248946124e-03);
  return r - ((z * (0.5 * low - cube * p) - low) - cube * -1.66666666666666324348e-01);
}
MATH_INLINE double cos_core_f64(double r, double low) {
  double z = r * r;
  double p = fma_f64(-1.13596475577881948265e-11, z, 2.08757232129817482790e-09);
  p = fma_f64(p, z, -2.75573143513906633035e-07);
  p = fma_f64(p, z, 2.48015872894767294178e-05);
  p = fma_f64(p, z, -1.38888888888741095749e-03);
  p = fma_f64(p, z, 4.16666666666666019037e-02);
  double half = 0.5 * z, w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * (z * p) - r * low));
}
MATH_INLINE float tan_f32(float x) {
  int64_t q;
  double r = trig_reduce((double)x, &q);
  double s = sin_core_f64(r, 0), c = cos_core_f64(r, 0);
  double y = (q & 1) != 0 ? -c / s : s / c;
  return x == 0.0f ? x : (float)y;
}
MATH_INLINE int trig_far_f32(float x) { return !(fabsf(x) <= 1048576.0f); }

/* ---- double ----------------------------------------------------------------------------------- */

MATH_INLINE double pow2_f64(int64_t n) { return f64_bits((int64_t)(((uint64_t)n + 1023u) << 52)); }
/* exp(x) = 2^n * (1 + what is returned). */
MATH_INLINE double exp_split_f64(double x, int64_t *n) {
  double shifted = x * 1.44269504088896338700e+00 + round_f64;
  double k = shifted - round_f64;
  *n = (int64_t)((uint64_t)bits_f64(shifted) - (uint64_t)bits_f64(round_f64));
  double high = x - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10;
  double r = high - low, t = r * r;
  double p = fma_f64(4.13813679705723846039e-08, t, -1.65339022054652515390e-06);
  p = fma_f64(p, t, 6.61375632143793436117e-05);
  p = fma_f64(p, t, -2.77777777770155933842e-03);
  p = fma_f64(p, t, 1.66666666666666019037e-01);
  double c = r - t * p;
  return high - (low - (r * c) / (2.0 - c));
}
MATH_INLINE double scale_f64(double y, int64_t n) {
  int64_t half = n >> 1;
  return y * pow2_f64(half) * pow2_f64(n - half);
}
MATH_INLINE double exp_f64(double x) {
  x = x > 710.0 ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  int64_t n;
  double p = exp_split_f64(x, &n);
  return scale_f64(1.0 + p, n);
}
MATH_INLINE double expm1_f64(double x) {
  double y = x > 710.0 ? 710.0 : x;
  y = y < -40.0 ? -40.0 : y;
  int64_t n;
  double p = exp_split_f64(y, &n);
  int64_t small = n > 60 ? 60 : n; /* beyond, 2^-n is lost in 1 - 2^-n */
  double e = scale_f64((1.0 - pow2_f64((int64_t)(0u - (uint64_t)small))) + p, n);
  return x == 0.0 ? x : e;
}

/* log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)), plus k*ln(2). */
MATH_INLINE double log_core_f64(double f, double k) {
  double s = f / (2.0 + f), z = s * s, w = z * z;
  double t1 = w * fma_f64(w, fma_f64(w, 1.531383769920937332e-01, 2.222219843214978396e-01), 3.999999999940941908e-01);
  double t2 =
      z * fma_f64(w,
                  fma_f64(w, fma_f64(w, 1.479819860511658591e-01, 1.818357216161805012e-01), 2.857142874366239149e-01),
                  6.666666666666735130e-01);
  double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + (t1 + t2)) + k * 1.90821492927058770002e-10)) - f);
}
/* x = 2^e * m with m in [sqrt(1/2), sqrt(2)); x positive and normal. */
MATH_INLINE double log_split_f64(double x, int64_t *e) {
  int64_t i = (int64_t)((uint64_t)bits_f64(x) - 0x3fe6a09e667f3bcdull);
  *e = i >> 52;
  return f64_bits((i & 0x000fffffffffffffll) + 0x3fe6a09e667f3bcdll);
}
/* A small integer as a double: its low bits under the rounding constant, which needs no 64-bit conversion. */
MATH_INLINE double small_f64(int64_t e) { return f64_bits(bits_f64(round_f64) + e) - round_f64; }
MATH_INLINE double log_f64(double x) {
  double tiny = x < 2.2250738585072014e-308 ? 1.0 : 0.0;
  int64_t e;
  double m = log_split_f64(tiny != 0.0 ? x * 18014398509481984.0 : x, &e); /* 2^54 */
  double r = log_core_f64(m - 1.0, small_f64(e) - 54.0 * tiny);
  r = x == (double)INFINITY ? x : r;
  r = x == 0.0 ? -(double)INFINITY : r;
  return x >= 0.0 ? r : (double)NAN;
}
MATH_INLINE double log1p_f64(double x) {
  double u = 1.0 + x;
  double lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x); /* u + lost is 1 + x exactly */
  int64_t e;
  double m = log_split_f64(u, &e);
  int64_t bounded = e > 60 ? 60 : e < -60 ? -60 : e; /* at e > 53 nothing was lost */
  double r = log_core_f64(fma_f64(lost, pow2_f64((int64_t)(0u - (uint64_t)bounded)), m - 1.0), small_f64(e));
  r = x == (double)INFINITY ? x : r;
  r = x == -1.0 ? -(double)INFINITY : r;
  r = x == 0.0 ? x : r;
  return x >= -1.0 ? r : (double)NAN;
}

/* The quadrant q and r + low = x - q*pi/2, |x| <= 2^20: each product with the 33-bit parts is exact. */
MATH_INLINE double trig_reduce_f64(double x, int64_t *quadrant, double *low) {
  double shifted = x * 0.63661977236758134308 + round_f64;
  double q = shifted - round_f64;
  *quadrant = bits_f64(shifted);
  double a = x - q * 1.57079632673412561417e+00, b = q * 6.07710050630396597660e-11, c = q * 2.02226624871116645580e-21;
  double ab = a - b, part = ab - a, lost = (a - (ab - part)) - (b + part);
  double abc = ab - c;
  part = abc - ab;
  lost += ((ab - (abc - part)) - (c + part)) - q * 8.47842766036889956997e-32;
  double r = abc + lost;
  *low = (abc - r) + lost;
  return r;
}
MATH_INLINE double sine_f64(double x, int64_t phase) {
  int64_t q;
  double low, r = trig_reduce_f64(x, &q, &low);
  q += phase;
  double s = sin_core_f64(r, low), c = cos_core_f64(r, low);
  double y = (q & 1) != 0 ? c : s;
  y = (q & 2) != 0 ? -y : y;
  return (x == 0.0) & (phase == 0) ? x : y;
}
MATH_INLINE double tan_f64(double x) {
  int64_t q;
  double low, r = trig_reduce_f64(x, &q, &low);
  double s = sin_core_f64(r, low), c = cos_core_f64(r, low);
  double y = (q & 1) != 0 ? -c / s : s / c;
  return x == 0.0 ? x : y;
}
MATH_INLINE int trig_far_f64(double x) { return !(fabs(x) <= 1048576.0); }

/* atan(n / d) of n and d from 0 on, not both 0 or both infinite, as angle + atan(tan(atan(n / d) - angle)) with the
 * nearest angle of 0, atan(1/2), pi/4, atan(3/2) and pi/2. */
MATH_INLINE double atan_quotient(double n, double d) {
  int a = n >= 0.4375 * d, b = n >= 0.6875 * d, c = n >= 1.1875 * d, e = n >= 2.4375 * d;
  double top = a ? 2.0 * n - d : n, bottom = a ? 2.0 * d + n : d;
  top = b ? n - d : top, bottom = b ? d + n : bottom;
  top = c ? n - 1.5 * d : top, bottom = c ? d + 1.5 * n : bottom;
  top = e ? -d : top, bottom = e ? n : bottom;
  double high = a ? 4.63647609000806093515e-01 : 0.0, low = a ? 2.26987774529616870924e-17 : 0.0;
  high = b ? 7.85398163397448278999e-01 : high, low = b ? 3.06161699786838301793e-17 : low;
  high = c ? 9.82793723247329054082e-01 : high, low = c ? 1.39033110312309984516e-17 : low;
  high = e ? 1.57079632679489655800e+00 : high, low = e ? 6.12323399573676603587e-17 : low;
  double t = top / bottom, z = t * t;
  double p = fma_f64(1.62858201153657823623e-02, z, -3.65315727442169155270e-02);
  p = fma_f64(p, z, 4.97687799461593236017e-02);
  p = fma_f64(p, z, -5.83357013379057348645e-02);
  p = fma_f64(p, z, 6.66107313738753120669e-02);
  p = fma_f64(p, z, -7.69187620504482999495e-02);
  p = fma_f64(p, z, 9.09088713343650656196e-02);
  p = fma_f64(p, z, -1.11111104054623557880e-01);
  p = fma_f64(p, z, 1.42857142725034663711e-01);
  p = fma_f64(p, z, -1.99999999998764832476e-01);
  p = fma_f64(p, z, 3.33333333333329318027e-01);
  return high - ((t * (z * p) - low) - t);
}
MATH_INLINE double atan_f64(double x) {
  double r = atan_quotient(fabs(x), 1.0);
  return x != x ? x : copysign(r, x);
}
/* The angle of (x, y) from that of (|x|, |y|). */
MATH_INLINE double atan2_quadrant(double angle, double y, double x) {
  angle = bits_f64(x) < 0 ? 3.1415926535897931160e+00 - (angle - 1.2246467991473531772e-16) : angle;
  return (x != x) | (y != y) ? x + y : copysign(angle, y);
}
MATH_INLINE double atan2_f64(double y, double x) {
  double n = fabs(y), d = fabs(x), q = n / d;
  int alike = ((n == 0.0) & (d == 0.0)) | ((n == (double)INFINITY) & (d == (double)INFINITY));
  q = alike ? (n == 0.0 ? 0.0 : 1.0) : q;
  return atan2_quadrant(atan_quotient(q, 1.0), y, x);
}
/* No quotient first: an f32's products with d and n are exact. */
MATH_INLINE float atan2_f32(float y, float x) {
  double n = fabs((double)y), d = fabs((double)x);
  int both = (n == (double)INFINITY) & (d == (double)INFINITY), none = (n == 0.0) & (d == 0.0);
  n = both ? 1.0 : n;
  d = both | none ? 1.0 : d;
  return (float)atan2_quadrant(atan_quotient(n, d), (double)y, (double)x);
}

/* asin(s) = s + s * asin_core(s^2) for s to 1/2; beyond by asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). */
MATH_INLINE double asin_core_f64(double z) {
  double p = fma_f64(3.47933107596021167570e-05, z, 7.91534994289814532176e-04);
  p = fma_f64(p, z, -4.00555345006794114027e-02);
  p = fma_f64(p, z, 2.01212532134862925881e-01);
  p = fma_f64(p, z, -3.25565818622400915405e-01);
  p = fma_f64(p, z, 1.66666666666666657415e-01);
  double q = fma_f64(7.70381505559019352791e-02, z, -6.88283971605453293030e-01);
  q = fma_f64(q, z, 2.02094576023350569471e+00);
  q = fma_f64(q, z, -2.40339491173441421878e+00);
  return z * p / fma_f64(q, z, 1.0);
}
MATH_INLINE double asin_f64(double x) {
  double a = fabs(x), z = a > 0.5 ? (1.0 - a) * 0.5 : a * a, s = a > 0.5 ? sqrt(z) : a;
  double r = fma_f64(s, asin_core_f64(z), s);
  r = a > 0.5 ? 1.57079632679489655800e+00 - (2.0 * r - 6.12323399573676603587e-17) : r;
  return copysign(r, x);
}
MATH_INLINE double acos_f64(double x) {
  double a = fabs(x), z = a > 0.5 ? (1.0 - a) * 0.5 : a * a, s = a > 0.5 ? sqrt(z) : x, r = s * asin_core_f64(z);
  double right = 2.0 * (s + r), left = 3.1415926535897931160e+00 - 2.0 * (s + (r - 6.12323399573676603587e-17));
  double middle = 1.57079632679489655800e+00 - (s - (6.12323399573676603587e-17 - r));
  return a > 0.5 ? (x > 0.0 ? right : left) : middle;
}

MATH_INLINE double tanh_f64(double x) {
  double a = fabs(x), b = a > 22.0 ? 22.0 : a;
  double t = expm1_f64(2.0 * b), q = (a >= 1.0 ? 2.0 : t) / (t + 2.0);
  return x != x ? x : copysign(a >= 1.0 ? 1.0 - q : q, x);
}
MATH_INLINE double logistic_f64(double x) { return 1.0 / (1.0 + exp_f64(-x)); }
/* exp(a) / 2 of a from 0 on, which is finite a little longer than exp(a). */
MATH_INLINE double half_exp_f64(double a) {
  double root = exp_f64(0.5 * a);
  return (0.5 * root) * root;
}
MATH_INLINE double sinh_f64(double x) {
  double a = fabs(x), t = expm1_f64(a > 22.0 ? 22.0 : a), small = 0.5 * (t + t / (t + 1.0));
  return x != x ? x : copysign(a > 22.0 ? half_exp_f64(a) : small, x);
}
MATH_INLINE double cosh_f64(double x) {
  double a = fabs(x), e = exp_f64(a > 22.0 ? 22.0 : a), small = 0.5 * e + 0.5 / e;
  return x != x ? x : a > 22.0 ? half_exp_f64(a) : small;
}
/* Beyond 2^500 the square would overflow, and 1 is lost in it long before. */
MATH_INLINE double asinh_f64(double x) {
  double a = fabs(x), far = a > 0x1p500 ? 1.0 : 0.0, b = far != 0.0 ? 1.0 : a, s = b * b;
  double r = log1p_f64(far != 0.0 ? a : b + s / (sqrt(s + 1.0) + 1.0));
  return x != x ? x : copysign(r + far * M_LN2, x);
}
MATH_INLINE double acosh_f64(double x) {
  double far = x > 0x1p500 ? 1.0 : 0.0, t = x - 1.0, b = far != 0.0 ? 1.0 : t;
  double r = log1p_f64(far != 0.0 ? t : b + sqrt(b * (b + 2.0)));
  return x < 1.0 ? (double)NAN : r + far * M_LN2;
}
MATH_INLINE double atanh_f64(double x) {
  double a = fabs(x), r = 0.5 * log1p_f64(2.0 * a / (1.0 - a));
  return a <= 1.0 ? copysign(r, x) : (double)NAN;
}

/* sqrt(x^2 + y^2), scaled where squares overflow or vanish. */
MATH_INLINE double hypot_f64(double x, double y) {
  double a = fabs(x), b = fabs(y), m = a > b ? a : b;
  double scale = m > 0x1p500 ? 0x1p-600 : m < 0x1p-400 ? 0x1p600 : 1.0;
  double back = m > 0x1p500 ? 0x1p600 : m < 0x1p-400 ? 0x1p-600 : 1.0;
  a *= scale, b *= scale;
  double r = sqrt(a * a + b * b) * back;
  return (fabs(x) == (double)INFINITY) | (fabs(y) == (double)INFINITY) ? (double)INFINITY : r;
}
MATH_INLINE float hypot_f32(float x, float y) {
  float r = (float)sqrt((double)x * (double)x + (double)y * (double)y);
  return (fabsf(x) == INFINITY) | (fabsf(y) == INFINITY) ? INFINITY : r;
}

/* ---- float through double --------------------------------------------------------------------- */

/* c[0] x^(n-1) + ... + c[n-1] */
MATH_INLINE double polynomial_f64(double x, int n, const double *c) {
  double p = c[0];
#pragma GCC unroll 32
  for (int i = 1; i < n; ++i) p = fma_f64(p, x, c[i]);
  return p;
}
#define POLYNOMIAL(x, ...) \
  polynomial_f64(x, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (const double[]){__VA_ARGS__})

/* These differences lose what lies beyond a double's digits: near 0 the first terms of the series are better. */
MATH_INLINE float sinh_f32(float x) {
  double a = fabs((double)x), e = exp_f64(a > 100.0 ? 100.0 : a), z = a * a;
  double r = a < 0.01 ? a + a * z * (1.0 / 6 + z * (1.0 / 120)) : 0.5 * (e - 1.0 / e);
  return x != x ? x : copysignf((float)r, x);
}
MATH_INLINE float cosh_f32(float x) {
  double a = fabs((double)x), e = exp_f64(a > 100.0 ? 100.0 : a);
  return x != x ? x : (float)(0.5 * (e + 1.0 / e));
}
MATH_INLINE float asinh_f32(float x) {
  double a = fabs((double)x), z = a * a;
  double r = a < 0.01 ? a + a * z * (-1.0 / 6 + z * (3.0 / 40)) : log_f64(a + sqrt(z + 1.0));
  return copysignf((float)r, x);
}
MATH_INLINE float acosh_f32(float x) {
  double a = (double)x;
  return x < 1.0f ? NAN : (float)log_f64(a + sqrt((a - 1.0) * (a + 1.0)));
}
MATH_INLINE float atanh_f32(float x) {
  double a = fabs((double)x), z = a * a;
  double r = a < 0.01 ? a + a * z * (1.0 / 3 + z * (1.0 / 5)) : 0.5 * log_f64((1.0 + a) / (1.0 - a));
  return copysignf((float)r, x);
}

/* exp(-a^2) P(t) / (a + 2) with t = (a - 2) / (a + 2), which is within 0.68 to where the result is 0. */
MATH_INLINE float erfc_f32(float x) {
  double a = fabs((double)x), b = a > 10.5 ? 10.5 : a, share = 1.0 / (b + 2.0);
  double p = POLYNOMIAL((1.0 - 4.0 * share + 0.16) / 0.84, 4.57078526369042632e-6, 0.0000113528088122430949,
                        -0.0000256765520947510775, -0.000141763425171789783, -7.02924501978576586e-6,
                        0.0012499348110328542, 0.00134423763128021135, -0.0126545726722331507, -0.0126158664719239491,
                        0.207041976688919982, -0.654375862375970914, 1.13881744503535531);
  double r = exp_f64(-b * b) * p * share;
  return x != x ? x : (float)(x < 0.0f ? 2.0 - r : r);
}

/* y P(s) with s^2 = -log(1 - y^2), which is below 4.05 for an f32 below 1. */
MATH_INLINE float erf_inv_f32(float x) {
  double y = (double)x, s = sqrt(-log_f64((1.0 - y) * (1.0 + y)));
  double p = POLYNOMIAL(s * (1.0 / 2.025) - 1.0, 0.0206102590749698269, 0.00951804410684058426, -0.127747713593733664,
                        -0.0528650092374873325, 0.36302804297212916, 0.125537661125823332, -0.639967501705341718,
                        -0.159130671219939998, 0.807945936170554705, 0.089927257702552094, -0.806276427984985072,
                        0.0640597639783100106, 0.679216380014339401, -0.237137521419693442, -0.48131157257837121,
                        0.377645731099488265, 0.250006582655318463, -0.576366904529628056, 0.441056248285531309,
                        1.86082894350823279, 1.88168399079412762);
  return fabsf(x) == 1.0f ? copysignf(INFINITY, x) : (float)(y * p);
}

/* log(gamma(a)) + log(divisor) for a from 0 on: from 3 on Stirling's series at a or a + 8 (DLMF 5.11.1), below
 * (x - 1)(x - 2) P(x - 2), which keeps its digits around the zeros; below 1 by x gamma(x) = gamma(x + 1). */
MATH_INLINE double lgamma_right(double a, double *divisor) {
  double z = a < 8.0 ? a + 8.0 : a, w = 1.0 / z, v = w * w;
  double product = a * (a + 1.0) * (a + 2.0) * (a + 3.0) * ((a + 4.0) * (a + 5.0) * (a + 6.0) * (a + 7.0));
  double series =
      w * POLYNOMIAL(v, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
  double stirling = (z - 0.5) * log_f64(z) - z + 9.18938533204672741780e-01 + series;
  double x = a < 1.0 ? a + 1.0 : a;
  double near =
      (x - 1.0) * (x - 2.0) *
      POLYNOMIAL(x - 2.0, 4.55724231986089221e-6, -9.63513228036091333e-6, 3.35335333415917927e-6,
                 -7.41938472611259426e-6, 0.0000421961700088446011, -0.0000915639300911546341, 0.000180829187398531011,
                 -0.000402083984655814882, 0.000915748674596721684, -0.00210891231415463034, 0.00499860622033525722,
                 -0.0123841187401662933, 0.0329650015629158006, -0.100317303653881068, 0.422784335098467139);
  *divisor = a < 1.0 ? a : a < 3.0 ? 1.0 : a < 8.0 ? product : 1.0;
  return a < 3.0 ? near : stirling;
}
/* Left of 0 by gamma(x) gamma(-x) = -pi / (x sin(pi x)). */
MATH_INLINE float lgamma_f32(float x) {
  double a = fabs((double)x), divisor, r = lgamma_right(a, &divisor);
  double f = fabs(a - ((a + round_f64) - round_f64)); /* beyond 2^23 there are integers alone */
  f = a > 8388608.0 ? 0.0 : f;
  double sine = f < 0.25 ? sin_core_f64(M_PI * f, 0) : cos_core_f64(M_PI * (0.5 - f), 0);
  double left = log_f64(x < 0.0f ? M_PI * divisor / (a * sine) : divisor);
  r = x < 0.0f ? left - r : r - left;
  r = a == (double)INFINITY ? a : r;
  return x != x ? x : (float)(x == 0.0f ? (double)INFINITY : r + 0.0); /* no -0 at 1 and 2 */
}

/* x - trunc(x / y) * y: quotient and product are exact in double while the quotient is below 2^28. */
MATH_INLINE float fmod_f32(float x, float y) {
  double q = trunc((double)x / (double)y), r = (double)x - q * (double)y;
  float z = copysignf((float)r, x);
  return (fabsf(y) == INFINITY) & (fabsf(x) < INFINITY) ? x : r != r ? NAN : z;
}
MATH_INLINE int fmod_far_f32(float x, float y) { return fabsf(x) > 268435456.0f * fabsf(y); }

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
