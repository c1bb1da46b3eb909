/* Accuracy of the tile kernels' functions, in units in the last place against libm in a wider type, and their special values. */
#include <float.h>

#include "check.h"
#include "soft/tile/prog.h"

void tile_kernels_portable(tile_kernels *t);
void tile_kernels_avx2(tile_kernels *t);
void tile_kernels_avx512(tile_kernels *t);

static tile_kernels tables[3];
static const char *const levels[] = {"portable", "avx2", "avx512"};

static int level_count(void) {
  tile_kernels_portable(&tables[0]);
#if defined(__x86_64__)
  if (base_cpu()->avx2) tile_kernels_avx2(&tables[1]);
  if (base_cpu()->avx512) tile_kernels_avx512(&tables[2]);
  return base_cpu()->avx512 ? 3 : base_cpu()->avx2 ? 2 : 1;
#else
  return 1;
#endif
}

/* Distance of y from the true value in units of f32's last place there. */
static double ulps_f32(float y, double truth) {
  if (isnan(truth)) return isnan(y) ? 0 : INFINITY;
  if (fabs(truth) > (double)FLT_MAX * (1 + 0x1p-25))
    return isinf(y) && !signbit(y) == !signbit(truth) ? 0 : fabs((double)y) >= (double)FLT_MAX ? 1 : INFINITY;
  if (isnan(y) || isinf(y)) return INFINITY;
  int e;
  frexp(truth, &e);
  double unit = ldexp(1, (e < -125 ? -125 : e) - 24);
  return fabs((double)y - truth) / unit;
}
static double ulps_f64(double y, long double truth) {
  if (isnan(truth)) return isnan(y) ? 0 : INFINITY;
  if (fabsl(truth) > (long double)DBL_MAX) return isinf(y) ? 0 : INFINITY;
  if (isnan(y) || isinf(y)) return INFINITY;
  int e;
  frexpl(truth, &e);
  long double unit = ldexpl(1, (e < -1021 ? -1021 : e) - 53);
  return (double)(fabsl((long double)y - truth) / unit);
}

static double logistic(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

static const struct {
  ir_kind kind;
  const char *name;
  double (*truth)(double);
  double low, high, allowed;
} functions[] = {
    {IR_EXPONENTIAL, "exp", exp, -110, 100, 1.5},
    {IR_LOG, "log", log, 0, 1e38, 2},
    {IR_LOG, "log near 1", log, 0.3, 3, 2},
    {IR_LOG_PLUS_ONE, "log1p", log1p, -1, 10, 2},
    {IR_LOG_PLUS_ONE, "log1p small", log1p, -1e-3, 1e-3, 2},
    {IR_LOG_PLUS_ONE, "log1p large", log1p, 1, 1e38, 2},
    {IR_EXPONENTIAL_MINUS_ONE, "expm1", expm1, -20, 95, 2},
    {IR_EXPONENTIAL_MINUS_ONE, "expm1 small", expm1, -1, 1, 2},
    {IR_TANH, "tanh", tanh, -12, 12, 2},
    {IR_TANH, "tanh small", tanh, -0.7, 0.7, 2},
    {IR_LOGISTIC, "logistic", logistic, -105, 105, 2.5},
    {IR_ERF, "erf", erf, -5, 5, 2},
    {IR_SINE, "sin", sin, -100, 100, 2},
    {IR_SINE, "sin far", sin, -1e6, 1e6, 2},
    {IR_SINE, "sin very far", sin, -1e20, 1e20, 2},
    {IR_COSINE, "cos", cos, -100, 100, 2},
    {IR_COSINE, "cos far", cos, -1e6, 1e6, 2},
    {IR_TAN, "tan", tan, -100, 100, 2},
    {IR_TAN, "tan far", tan, -1e6, 1e6, 2},
    {IR_RSQRT, "rsqrt", rsqrt, 0, 1e30, 2},
    {IR_SQRT, "sqrt", sqrt, 0, 1e30, 0.51},
    {IR_CBRT, "cbrt", cbrt, -1e30, 1e30, 1},
    {IR_ERFC, "erfc", erfc, -5, 10, 1},
    {IR_ASIN, "asin", asin, -1, 1, 2},
    {IR_ACOS, "acos", acos, -1, 1, 2},
    {IR_ATAN, "atan", atan, -100, 100, 2},
    {IR_ERFC, "erfc near 0", erfc, -0.1, 0.1, 1},
    {IR_ASIN, "asin small", asin, -1e-3, 1e-3, 1},
    {IR_ACOS, "acos near 1", acos, 0.99, 1, 1},
    {IR_ATAN, "atan near 0", atan, -2, 2, 1},
    {IR_ATAN, "atan far", atan, -1e30, 1e30, 1},
    {IR_SINH, "sinh", sinh, -90, 90, 1},
    {IR_SINH, "sinh small", sinh, -0.02, 0.02, 1},
    {IR_COSH, "cosh", cosh, -90, 90, 1},
    {IR_ASINH, "asinh", asinh, -100, 100, 1},
    {IR_ASINH, "asinh small", asinh, -0.02, 0.02, 1},
    {IR_ASINH, "asinh far", asinh, -1e38, 1e38, 1},
    {IR_ACOSH, "acosh", acosh, 1, 100, 1},
    {IR_ACOSH, "acosh near 1", acosh, 1, 1.01, 1},
    {IR_ACOSH, "acosh far", acosh, 1, 1e38, 1},
    {IR_ATANH, "atanh", atanh, -1, 1, 1},
    {IR_ATANH, "atanh small", atanh, -0.02, 0.02, 1},
    {IR_LGAMMA, "lgamma", lgamma, 0, 20, 1},
    {IR_LGAMMA, "lgamma near 1", lgamma, 0.99, 1.01, 1},
    {IR_LGAMMA, "lgamma near 2", lgamma, 1.99, 2.01, 1},
    {IR_LGAMMA, "lgamma far", lgamma, 1, 1e36, 1},
    {IR_LGAMMA, "lgamma left", lgamma, -30, 0, 4},
};

TEST(f32_functions_are_accurate_on_every_level) {
  int count = level_count();
  enum { N = 1024 };
  for (int level = 0; level < count; ++level)
    for (size_t k = 0; k < sizeof functions / sizeof *functions; ++k) {
      uint64_t seed = k + 1;
      double worst = 0, at = 0;
      tile_fn fn = tables[level].map[functions[k].kind][TTPU_F32];
      for (int round = 0; round < 100; ++round) {
        float x[N], y[N];
        for (int i = 0; i < N; ++i)
          x[i] = (float)(functions[k].low + (functions[k].high - functions[k].low) * check_uniform(&seed));
        if (functions[k].low == 0 && round % 2)
          for (int i = 0; i < N; ++i)
            x[i] = (float)exp(-103 + 190 * check_uniform(&seed)); /* all magnitudes, subnormals too */
        fn(N, y, x, NULL, NULL, 0);
        for (int i = 0; i < N; ++i) {
          double u = ulps_f32(y[i], functions[k].truth((double)x[i]));
          if (u > worst) worst = u, at = (double)x[i];
        }
      }
      if (getenv("MATH_PRINT")) printf("  %-8s %-12s %.2f ulp at %.9g\n", levels[level], functions[k].name, worst, at);
      if (!(worst <= functions[k].allowed))
        check_fail(__FILE__, __LINE__, "%s %s: %.2f ulp at %.9g, allowed %.2f", levels[level], functions[k].name, worst,
                   at, functions[k].allowed);
    }
}

static long double logisticl(long double x) { return 1 / (1 + expl(-x)); }
static const struct {
  ir_kind kind;
  const char *name;
  long double (*truth)(long double);
  double low, high, allowed;
} wide_functions[] = {
    {IR_EXPONENTIAL, "exp", expl, -740, 705, 1.5},
    {IR_LOG, "log", logl, 0, 1e300, 1.5},
    {IR_LOG, "log near 1", logl, 0.5, 2, 1.5},
    {IR_TANH, "tanh", tanhl, -20, 20, 2.2},
    {IR_LOGISTIC, "logistic", logisticl, -30, 30, 3},
    {IR_ERF, "erf", erfl, -5, 5, 2},
    {IR_SINE, "sin", sinl, -1e5, 1e5, 1},
    {IR_SINE, "sin far", sinl, -1e9, 1e9, 1},
    {IR_COSINE, "cos", cosl, -1e6, 1e6, 1},
    {IR_TAN, "tan", tanl, -1e5, 1e5, 2.5},
    {IR_EXPONENTIAL_MINUS_ONE, "expm1", expm1l, -50, 700, 1.5},
    {IR_EXPONENTIAL_MINUS_ONE, "expm1 small", expm1l, -1, 1, 1.5},
    {IR_LOG_PLUS_ONE, "log1p", log1pl, -1, 10, 1.5},
    {IR_LOG_PLUS_ONE, "log1p small", log1pl, -1e-3, 1e-3, 1.5},
    {IR_LOG_PLUS_ONE, "log1p far", log1pl, 1, 1e300, 1.5},
    {IR_ASIN, "asin", asinl, -1, 1, 2.5},
    {IR_ACOS, "acos", acosl, -1, 1, 1.5},
    {IR_ATAN, "atan", atanl, -100, 100, 1},
    {IR_SINH, "sinh", sinhl, -700, 700, 2.5},
    {IR_SINH, "sinh small", sinhl, -1, 1, 2},
    {IR_COSH, "cosh", coshl, -700, 700, 2.5},
    {IR_ASINH, "asinh", asinhl, -100, 100, 2.5},
    {IR_ACOSH, "acosh", acoshl, 1, 100, 2.5},
    {IR_ATANH, "atanh", atanhl, -1, 1, 2},
    {IR_LGAMMA, "lgamma", lgammal, 0.1, 20, 10},
};
TEST(f64_functions_are_accurate_on_every_level) {
  int count = level_count();
  enum { N = 512 };
  for (int level = 0; level < count; ++level)
    for (size_t k = 0; k < sizeof wide_functions / sizeof *wide_functions; ++k) {
      uint64_t seed = k + 1;
      double worst = 0, at = 0;
      for (int round = 0; round < 50; ++round) {
        double x[N], y[N];
        for (int i = 0; i < N; ++i)
          x[i] = wide_functions[k].low + (wide_functions[k].high - wide_functions[k].low) * check_uniform(&seed);
        if (wide_functions[k].low == 0 && round % 2)
          for (int i = 0; i < N; ++i) x[i] = exp(-744 + 1450 * check_uniform(&seed));
        tables[level].map[wide_functions[k].kind][TTPU_F64](N, y, x, NULL, NULL, 0);
        for (int i = 0; i < N; ++i) {
          double u = ulps_f64(y[i], wide_functions[k].truth((long double)x[i]));
          if (u > worst) worst = u, at = x[i];
        }
      }
      if (!(worst <= wide_functions[k].allowed))
        check_fail(__FILE__, __LINE__, "%s %s: %.2f ulp at %.17g, allowed %.2f", levels[level], wide_functions[k].name,
                   worst, at, wide_functions[k].allowed);
    }
}

TEST(special_values) {
  int count = level_count();
  const float special[] = {0.0f,    -0.0f,       INFINITY,     -INFINITY,    NAN,     1.0f,     -1.0f,
                           FLT_MIN, FLT_MIN / 8, -FLT_MIN / 8, FLT_TRUE_MIN, FLT_MAX, -FLT_MAX, 88.73f,
                           88.72f,  -103.9f,     -104.1f,      1e-20f,       -1e-20f, 2.0f,     0.5f};
  enum { N = sizeof special / sizeof *special };
  for (int level = 0; level < count; ++level)
    for (size_t k = 0; k < sizeof functions / sizeof *functions; ++k) {
      float y[N], one;
      tile_fn fn = tables[level].map[functions[k].kind][TTPU_F32];
      fn(N, y, special, NULL, NULL, 0);
      for (int i = 0; i < N; ++i) {
        double truth = functions[k].truth((double)special[i]);
        fn(1, &one, &special[i], NULL, NULL, 1);
        CHECK(memcmp(&one, &y[i], 4) == 0 || (isnan(one) && isnan(y[i])) ||
              ulps_f32(one, truth) <= functions[k].allowed);
        bool sign_ok = truth != 0 || fabs((double)y[i]) > 0 || !signbit(truth) == !signbit(y[i]);
        if (!(ulps_f32(y[i], truth) <= functions[k].allowed) || !sign_ok)
          check_fail(__FILE__, __LINE__, "%s %s(%g) is %g, expected %g", levels[level], functions[k].name,
                     (double)special[i], (double)y[i], truth);
      }
    }
}

/* The kernels of two operands against libm, on every pair of special values and on random ones. */
static double remainder_of(double x, double y) { return fmod(x, y); }
static const struct {
  ir_kind kind;
  const char *name;
  double (*truth)(double, double);
  double allowed, allowed_wide;
} functions_of_two[] = {
    {IR_ATAN2, "atan2", atan2, 1, 2},
    {IR_REMAINDER, "remainder", remainder_of, 0, 0},
};
TEST(functions_of_two_are_accurate_and_special) {
  int count = level_count();
  static const float s[] = {0.0f,   -0.0f, 1.0f,     -1.0f,     2.0f,    -2.5f,        0.3f, 1e30f, -1e30f,
                            1e-30f, NAN,   INFINITY, -INFINITY, FLT_MAX, FLT_TRUE_MIN, 7.0f, -7.0f, 16777217.0f};
  enum { N = sizeof s / sizeof *s, M = 4096 };
  static float a[N * N + M], b[N * N + M], y[N * N + M];
  static double wide_a[N * N + M], wide_b[N * N + M], wide_y[N * N + M];
  uint64_t seed = 11;
  for (int i = 0; i < N * N; ++i) a[i] = s[i / N], b[i] = s[i % N];
  for (int i = N * N; i < N * N + M; ++i)
    a[i] = (float)(200 * check_uniform(&seed) - 100), b[i] = (float)(20 * check_uniform(&seed) - 10);
  for (int i = 0; i < N * N + M; ++i) wide_a[i] = (double)a[i], wide_b[i] = (double)b[i];
  for (int level = 0; level < count; ++level)
    for (size_t k = 0; k < sizeof functions_of_two / sizeof *functions_of_two; ++k) {
      tables[level].map[functions_of_two[k].kind][TTPU_F32](N * N + M, y, a, b, NULL, 0);
      tables[level].map[functions_of_two[k].kind][TTPU_F64](N * N + M, wide_y, wide_a, wide_b, NULL, 0);
      for (int i = 0; i < N * N + M; ++i) {
        double truth = functions_of_two[k].truth(wide_a[i], wide_b[i]);
        bool sign = isnan(truth) || (!signbit(truth) == !signbit(y[i]) && !signbit(truth) == !signbit(wide_y[i]));
        if (ulps_f32(y[i], truth) <= functions_of_two[k].allowed &&
            ulps_f64(wide_y[i], (long double)truth) <= functions_of_two[k].allowed_wide && sign)
          continue;
        check_fail(__FILE__, __LINE__, "%s %s(%g, %g) is %.9g and %.17g, expected %.17g", levels[level],
                   functions_of_two[k].name, wide_a[i], wide_b[i], (double)y[i], wide_y[i], truth);
      }
    }
}

TEST(power_is_accurate_and_special) {
  int count = level_count();
  const float s[] = {0.0f,  -0.0f, 1.0f,   -1.0f,       2.0f,       -2.0f,  0.5f,
                     -0.5f, 3.0f,  -3.0f,  INFINITY,    -INFINITY,  NAN,    2.5f,
                     -2.5f, 1e30f, -1e30f, 16777217.0f, 8388609.0f, 1e-30f, FLT_TRUE_MIN};
  enum { N = sizeof s / sizeof *s, M = 4096 };
  for (int level = 0; level < count; ++level) {
    tile_fn fn = tables[level].map[IR_POWER][TTPU_F32];
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) {
        float y;
        fn(1, &y, &s[i], &s[j], NULL, 0);
        double truth = pow((double)s[i], (double)s[j]);
        bool sign_ok = truth != 0 || !signbit(truth) == !signbit(y);
        if (!(ulps_f32(y, truth) <= 2) || !sign_ok)
          check_fail(__FILE__, __LINE__, "%s pow(%g, %g) is %g, expected %g", levels[level], (double)s[i], (double)s[j],
                     (double)y, truth);
      }
    static float a[M], b[M], y[M];
    uint64_t seed = 7;
    for (int i = 0; i < M; ++i)
      a[i] = (float)exp(20 * check_uniform(&seed) - 10), b[i] = (float)(16 * check_uniform(&seed) - 8);
    fn(M, y, a, b, NULL, 0);
    for (int i = 0; i < M; ++i) CHECK(ulps_f32(y[i], pow((double)a[i], (double)b[i])) <= 1);
  }
}

/* Every f16 and bf16 bit pattern goes through unpack and pack unchanged (NaNs stay NaN), and rounding equals base's. */
TEST(small_floats_convert_exactly) {
  int count = level_count();
  static uint16_t bits[65536], back[65536];
  static float wide[65536], rounded[65536];
  const ttpu_dtype types[] = {TTPU_BF16, TTPU_F16};
  for (int level = 0; level < count; ++level)
    for (int t = 0; t < 2; ++t) {
      for (int i = 0; i < 65536; ++i) bits[i] = (uint16_t)i;
      tables[level].unpack[types[t]](65536, wide, bits, NULL, NULL, 0);
      tables[level].pack[types[t]](65536, back, wide, NULL, NULL, 0);
      uint64_t seed = 3;
      for (int i = 0; i < 65536; ++i) {
        float truth = t ? base_f32_from_f16((uint16_t)i) : base_f32_from_bf16((uint16_t)i);
        CHECK(isnan(truth) ? isnan(wide[i]) : wide[i] == truth && back[i] == i);
        wide[i] = (float)ldexp(check_uniform(&seed) - 0.5, (int)(check_random(&seed) % 60) - 40);
      }
      tables[level].round[types[t]](65536, rounded, wide, NULL, NULL, 0);
      for (int i = 0; i < 65536; ++i)
        CHECK(rounded[i] ==
              (t ? base_f32_from_f16(base_f16_from_f32(wide[i])) : base_f32_from_bf16(base_bf16_from_f32(wide[i]))));
    }
}

TEST(integers_do_not_trap) {
  int count = level_count();
  for (int level = 0; level < count; ++level) {
    const int32_t a[] = {5, INT32_MIN, -7, 7, 0}, b[] = {0, -1, 2, -2, 0};
    int32_t q[5], r[5];
    tables[level].map[IR_DIVIDE][TTPU_I32](5, q, a, b, NULL, 0);
    tables[level].map[IR_REMAINDER][TTPU_I32](5, r, a, b, NULL, 0);
    const int32_t eq[] = {-1, INT32_MIN, -3, -3, -1}, er[] = {5, 0, -1, 1, 0};
    for (int i = 0; i < 5; ++i) CHECK_EQ(q[i], eq[i]), CHECK_EQ(r[i], er[i]);
    const float f[] = {NAN, 1e20f, -1e20f, INFINITY, 3.9f, -3.9f};
    int32_t i32[6];
    int64_t i64[6];
    tables[level].convert[TTPU_F32][TTPU_I32](6, i32, f, NULL, NULL, 0);
    tables[level].convert[TTPU_F32][TTPU_I64](6, i64, f, NULL, NULL, 0);
    const int32_t e32[] = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 3, -3};
    for (int i = 0; i < 6; ++i) CHECK_EQ(i32[i], e32[i]);
    CHECK_EQ(i64[0], INT64_MIN), CHECK_EQ(i64[4], 3), CHECK_EQ(i64[5], -3);
    const int8_t shifts[] = {-1, 8, 7, 0}, ones[] = {-128, -128, -128, -128};
    int8_t out[4];
    tables[level].map[IR_SHIFT_RIGHT_ARITHMETIC][TTPU_I8](4, out, ones, shifts, NULL, 0);
    CHECK_EQ(out[0], -1), CHECK_EQ(out[1], -1), CHECK_EQ(out[2], -1), CHECK_EQ(out[3], -128);
    tables[level].map[IR_SHIFT_RIGHT_LOGICAL][TTPU_I8](4, out, ones, shifts, NULL, 0);
    CHECK_EQ(out[0], 0), CHECK_EQ(out[1], 0), CHECK_EQ(out[2], 1), CHECK_EQ(out[3], -128);
  }
}
