/* The scalar reference against values worked out by hand, from C's libm and from PyTorch. */
#include <complex.h>

#include "soft_compare.h"

/* ---- one operation on scalars -------------------------------------------------------------------------- */

static base_scalar run_scalar(ir_kind kind, const void *attrs, ttpu_dtype result, uint32_t count,
                              const ttpu_dtype *types, const base_scalar *x) {
  test_op t;
  test_begin(&t);
  ir_value operands[3], v;
  for (uint32_t i = 0; i < count; ++i) operands[i] = test_param(&t, types[i], 0, NULL);
  ir_type given = ir_tensor(&t.b, result, 0, NULL);
  v = ir_append(&t.b, kind, count, operands, attrs, kind == IR_CONVERT || kind == IR_BITCAST_CONVERT, &given, 0, NULL);
  base_scalar y = {.d = {12345, 54321}};
  if (test_operands(&t, v, false)) {
    soft_view in[3];
    for (uint32_t i = 0; i < count; ++i) base_scalar_store(types[i], t.operands[i].v.data, x[i]);
    views_of(t.operands, count, in);
    test_view out = test_view_new(result, 0, NULL, LAYOUT_DENSE);
    CHECK_OK(soft_reference_op(t.f, t.op, in, &out.v));
    y = base_scalar_load(result, out.v.data);
    free(out.memory);
  }
  test_end(&t);
  return y;
}

static double real1(ir_kind kind, ttpu_dtype t, double x) {
  return run_scalar(kind, NULL, t, 1, &t, &(base_scalar){.d = {x}}).d[0];
}
static double real2(ir_kind kind, ttpu_dtype t, double x, double y) {
  return run_scalar(kind, NULL, t, 2, (ttpu_dtype[]){t, t}, (base_scalar[]){{.d = {x}}, {.d = {y}}}).d[0];
}
static int64_t int1(ir_kind kind, ttpu_dtype t, int64_t x) {
  return run_scalar(kind, NULL, t, 1, &t, &(base_scalar){.i = x}).i;
}
static int64_t int2(ir_kind kind, ttpu_dtype t, int64_t x, int64_t y) {
  return run_scalar(kind, NULL, t, 2, (ttpu_dtype[]){t, t}, (base_scalar[]){{.i = x}, {.i = y}}).i;
}
static double complex complex1(ir_kind kind, double complex x) {
  base_scalar y =
      run_scalar(kind, NULL, TTPU_C128, 1, (ttpu_dtype[]){TTPU_C128}, &(base_scalar){.d = {creal(x), cimag(x)}});
  return CMPLX(y.d[0], y.d[1]);
}
static double complex complex2(ir_kind kind, double complex a, double complex b) {
  base_scalar y = run_scalar(kind, NULL, TTPU_C128, 2, (ttpu_dtype[]){TTPU_C128, TTPU_C128},
                             (base_scalar[]){{.d = {creal(a), cimag(a)}}, {.d = {creal(b), cimag(b)}}});
  return CMPLX(y.d[0], y.d[1]);
}

TEST(functions_of_one_real) {
  static const struct {
    ir_kind kind;
    double (*f)(double);
    double low, high;
  } cases[] = {{IR_CBRT, cbrt, -9, 9},
               {IR_CEIL, ceil, -3, 3},
               {IR_COSINE, cos, -9, 9},
               {IR_EXPONENTIAL, exp, -9, 9},
               {IR_EXPONENTIAL_MINUS_ONE, expm1, -1, 1},
               {IR_FLOOR, floor, -3, 3},
               {IR_LOG, log, 0.1, 9},
               {IR_LOG_PLUS_ONE, log1p, -0.5, 1},
               {IR_ROUND_NEAREST_AFZ, round, -3, 3},
               {IR_ROUND_NEAREST_EVEN, rint, -3, 3},
               {IR_SINE, sin, -9, 9},
               {IR_SQRT, sqrt, 0, 9},
               {IR_TAN, tan, -1.5, 1.5},
               {IR_TANH, tanh, -3, 3},
               {IR_ERF, erf, -3, 3},
               {IR_ERFC, erfc, -3, 3},
               {IR_LGAMMA, lgamma, 0.1, 9},
               {IR_ASIN, asin, -1, 1},
               {IR_ACOS, acos, -1, 1},
               {IR_ATAN, atan, -9, 9},
               {IR_SINH, sinh, -3, 3},
               {IR_COSH, cosh, -3, 3},
               {IR_ASINH, asinh, -9, 9},
               {IR_ACOSH, acosh, 1, 9},
               {IR_ATANH, atanh, -0.9, 0.9}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    for (int k = 0; k <= 12; ++k) {
      double x = cases[i].low + (cases[i].high - cases[i].low) * k / 12, narrow = (double)(float)x;
      CHECK_NEAR(real1(cases[i].kind, TTPU_F64, x), cases[i].f(x), 0);
      CHECK_NEAR(real1(cases[i].kind, TTPU_F32, narrow), (float)cases[i].f(narrow), 0);
      double half = (double)base_f32_from_bf16(base_bf16_from_f32((float)x));
      CHECK_NEAR(real1(cases[i].kind, TTPU_BF16, half), base_f32_from_bf16(base_bf16_from_f32((float)cases[i].f(half))),
                 0);
    }
  CHECK_NEAR(real1(IR_RSQRT, TTPU_F64, 4), 0.5, 0);
  CHECK_NEAR(real1(IR_LOGISTIC, TTPU_F64, 0), 0.5, 0);
  CHECK_NEAR(real1(IR_LOGISTIC, TTPU_F32, -200), 0, 1e-30);
  CHECK_NEAR(real1(IR_SIGN, TTPU_F32, -3), -1, 0);
  CHECK(isnan(real1(IR_SIGN, TTPU_F32, NAN)) && signbit(real1(IR_SIGN, TTPU_F32, -0.0)));
}

/* Values from PyTorch 2.13 in double. */
TEST(special_functions) {
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, 1), -0.57721566490153286, 1e-15);
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, 0.5), -1.9635100260214235, 1e-14);
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, -1.5), 0.70315664064524319, 1e-14);
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, 100), 4.6001618527380874, 1e-14);
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, 0.0), -INFINITY, 0);
  CHECK_NEAR(real1(IR_DIGAMMA, TTPU_F64, -0.0), INFINITY, 0);
  CHECK(isnan(real1(IR_DIGAMMA, TTPU_F64, -3)));
  for (double x = -0.999; x < 1; x += 0.037) CHECK_NEAR(erf(real1(IR_ERF_INV, TTPU_F64, x)), x, 2e-16);
  CHECK_NEAR(real1(IR_ERF_INV, TTPU_F64, 1 - 1e-15), 5.6758637, 1e-2); /* 1 - erf(y) = 1e-15 */
  CHECK_NEAR(erfc(real1(IR_ERF_INV, TTPU_F64, 1 - 0x1p-50)), 0x1p-50, 1e-27);
  CHECK_NEAR(real1(IR_ERF_INV, TTPU_F64, 1), INFINITY, 0);
  CHECK_NEAR(real1(IR_ERF_INV, TTPU_F64, -1), -INFINITY, 0);
  CHECK(isnan(real1(IR_ERF_INV, TTPU_F64, 1.5)));
  CHECK_NEAR(real2(IR_NEXT_AFTER, TTPU_F32, 1, 2), (double)nextafterf(1, 2), 0);
  CHECK_NEAR(real2(IR_NEXT_AFTER, TTPU_F32, 0, -1), (double)nextafterf(0, -1), 0);
  CHECK_NEAR(real2(IR_NEXT_AFTER, TTPU_F64, -1, 0), nextafter(-1, 0), 0);
  CHECK_NEAR(real2(IR_NEXT_AFTER, TTPU_BF16, 1, 2), 1.0078125, 0);
}

TEST(functions_of_two_reals) {
  CHECK_NEAR(real2(IR_REMAINDER, TTPU_F64, -7, 3), -1, 0);
  CHECK_NEAR(real2(IR_REMAINDER, TTPU_F64, 7.5, -2), 1.5, 0);
  CHECK_NEAR(real2(IR_POWER, TTPU_F64, -8, 3), -512, 0);
  CHECK(isnan(real2(IR_POWER, TTPU_F64, -8, 0.5)));
  CHECK_NEAR(real2(IR_POWER, TTPU_F32, 0, 0), 1, 0);
  CHECK_NEAR(real2(IR_ATAN2, TTPU_F64, 1, -1), atan2(1, -1), 0);
  CHECK_NEAR(real2(IR_DIVIDE, TTPU_F32, 1, 0), INFINITY, 0);
  for (int k = 0; k < 2; ++k) {
    ir_kind kind = k ? IR_MINIMUM : IR_MAXIMUM;
    CHECK(isnan(real2(kind, TTPU_F32, NAN, 1)) && isnan(real2(kind, TTPU_F32, 1, NAN)));
    CHECK_NEAR(real2(kind, TTPU_F32, -2, 5), k ? -2 : 5, 0);
  }
  CHECK_NEAR(real2(IR_ADD, TTPU_F32, 16777216, 1), 16777216, 0);
  CHECK_NEAR(real2(IR_ADD, TTPU_BF16, 256, 1), 256, 0);
  CHECK_NEAR(real2(IR_MULTIPLY, TTPU_F16, 300, 300), INFINITY, 0);
}

TEST(integers) {
  CHECK_EQ(int2(IR_ADD, TTPU_I8, 127, 1), -128);
  CHECK_EQ(int2(IR_SUBTRACT, TTPU_U8, 0, 1), 255);
  CHECK_EQ(int2(IR_MULTIPLY, TTPU_I64, INT64_MAX, 2), -2);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_I32, -7, 2), -3);
  CHECK_EQ(int2(IR_REMAINDER, TTPU_I32, -7, 2), -1);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_I32, 5, 0), -1);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_U32, 5, 0), UINT32_MAX);
  CHECK_EQ(int2(IR_REMAINDER, TTPU_I32, 5, 0), 5);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_I64, INT64_MIN, -1), INT64_MIN);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_I8, -128, -1), -128);
  CHECK_EQ(int2(IR_REMAINDER, TTPU_I64, INT64_MIN, -1), 0);
  CHECK_EQ(int2(IR_DIVIDE, TTPU_U64, -1, 2), INT64_MAX);
  CHECK_EQ(int2(IR_POWER, TTPU_I64, 3, 39), 4052555153018976267);
  CHECK_EQ(int2(IR_POWER, TTPU_I64, 2, -1), 0);
  CHECK_EQ(int2(IR_POWER, TTPU_I64, 1, -5), 1);
  CHECK_EQ(int2(IR_POWER, TTPU_I64, -1, -3), -1);
  CHECK_EQ(int2(IR_POWER, TTPU_I64, -1, -4), 1);
  CHECK_EQ(int2(IR_POWER, TTPU_I8, 3, 5), -13); /* 243 - 256 */
  CHECK_EQ(int2(IR_SHIFT_LEFT, TTPU_I32, 1, 31), INT32_MIN);
  CHECK_EQ(int2(IR_SHIFT_LEFT, TTPU_I32, 1, 32), 0);
  CHECK_EQ(int2(IR_SHIFT_LEFT, TTPU_I32, 1, -1), 0);
  CHECK_EQ(int2(IR_SHIFT_RIGHT_LOGICAL, TTPU_I8, -1, 4), 15);
  CHECK_EQ(int2(IR_SHIFT_RIGHT_LOGICAL, TTPU_I64, -1, 64), 0);
  CHECK_EQ(int2(IR_SHIFT_RIGHT_ARITHMETIC, TTPU_I8, -128, 3), -16);
  CHECK_EQ(int2(IR_SHIFT_RIGHT_ARITHMETIC, TTPU_I64, -5, 200), -1);
  CHECK_EQ(int2(IR_MAXIMUM, TTPU_U64, -1, 1), -1);
  CHECK_EQ(int2(IR_MAXIMUM, TTPU_I64, -1, 1), 1);
  CHECK_EQ(int2(IR_XOR, TTPU_U8, 0xF0, 0xFF), 0x0F);
  CHECK_EQ(int1(IR_NOT, TTPU_U16, 1), 0xFFFE);
  CHECK_EQ(int1(IR_NOT, TTPU_BOOL, 1), 0);
  CHECK_EQ(int1(IR_ABS, TTPU_I8, -128), -128);
  CHECK_EQ(int1(IR_NEGATE, TTPU_I32, 5), -5);
  CHECK_EQ(int1(IR_SIGN, TTPU_I16, -9), -1);
  CHECK_EQ(int1(IR_POPCNT, TTPU_I8, -1), 8);
  CHECK_EQ(int1(IR_COUNT_LEADING_ZEROS, TTPU_U16, 1), 15);
  CHECK_EQ(int1(IR_COUNT_LEADING_ZEROS, TTPU_I64, 0), 64);
  CHECK_EQ(int2(IR_ADD, TTPU_BOOL, 1, 1), 1);
  CHECK_EQ(int2(IR_MULTIPLY, TTPU_BOOL, 1, 0), 0);
}

static void check_complex(double complex a, double complex b, double tolerance) {
  CHECK_NEAR(creal(a), creal(b), tolerance);
  CHECK_NEAR(cimag(a), cimag(b), tolerance);
}

TEST(complex_numbers) {
  double complex z = CMPLX(1.5, -0.75), w = CMPLX(-0.25, 2);
  check_complex(complex2(IR_MULTIPLY, z, w), z * w, 1e-15);
  check_complex(complex2(IR_DIVIDE, z, w), z / w, 1e-15);
  check_complex(complex2(IR_DIVIDE, CMPLX(1e300, 1e300), CMPLX(1e300, 1e300)), 1, 1e-15);
  CHECK(isinf(creal(complex2(IR_DIVIDE, 1, 0))));
  check_complex(complex2(IR_POWER, z, w), cpow(z, w), 1e-14);
  check_complex(complex2(IR_POWER, 0, 0), 1, 0);
  check_complex(complex2(IR_POWER, 0, 2), 0, 0);
  check_complex(complex1(IR_EXPONENTIAL, z), cexp(z), 1e-15);
  check_complex(complex1(IR_LOG, z), clog(z), 1e-15);
  check_complex(complex1(IR_SQRT, z), csqrt(z), 1e-15);
  check_complex(complex1(IR_TANH, z), ctanh(z), 1e-15);
  check_complex(complex1(IR_RSQRT, z), 1 / csqrt(z), 1e-15);
  check_complex(complex1(IR_EXPONENTIAL_MINUS_ONE, z), cexp(z) - 1, 1e-14);
  check_complex(complex1(IR_EXPONENTIAL_MINUS_ONE, CMPLX(1e-12, 1e-12)), CMPLX(1e-12, 1e-12), 1e-23);
  check_complex(complex1(IR_LOG_PLUS_ONE, z), clog(1 + z), 1e-15);
  check_complex(complex1(IR_LOG_PLUS_ONE, CMPLX(1e-12, 1e-13)), CMPLX(1e-12, 1e-13), 1e-23);
  check_complex(complex1(IR_SIGN, CMPLX(3, 4)), CMPLX(0.6, 0.8), 1e-16);
  ttpu_dtype t = TTPU_C64;
  CHECK_NEAR(run_scalar(IR_ABS, NULL, TTPU_F32, 1, &t, &(base_scalar){.d = {3, 4}}).d[0], 5, 0);
  CHECK_NEAR(run_scalar(IR_IMAG, NULL, TTPU_F32, 1, &t, &(base_scalar){.d = {3, 4}}).d[0], 4, 0);
}

TEST(compare_select_clamp) {
  static const bool want[6][3] = {{0, 1, 0}, {1, 0, 1}, {0, 1, 1},
                                  {0, 0, 1}, {1, 1, 0}, {1, 0, 0}}; /* EQ NE GE GT LE LT; 1?2 2?2 3?2 */
  for (int d = 0; d < 6; ++d) {
    const ir_compare_attrs a = {(ir_direction)d};
    for (int k = 0; k < 3; ++k)
      CHECK_EQ(run_scalar(IR_COMPARE, &a, TTPU_BOOL, 2, (ttpu_dtype[]){TTPU_F32, TTPU_F32},
                          (base_scalar[]){{.d = {k + 1}}, {.d = {2}}})
                   .i,
               want[d][k]);
    CHECK_EQ(run_scalar(IR_COMPARE, &a, TTPU_BOOL, 2, (ttpu_dtype[]){TTPU_F32, TTPU_F32},
                        (base_scalar[]){{.d = {NAN}}, {.d = {2}}})
                 .i,
             d == IR_NE);
  }
  const ir_compare_attrs greater = {IR_GT};
  CHECK_EQ(run_scalar(IR_COMPARE, &greater, TTPU_BOOL, 2, (ttpu_dtype[]){TTPU_U64, TTPU_U64},
                      (base_scalar[]){{.i = -1}, {.i = 1}})
               .i,
           1);
  CHECK_EQ(run_scalar(IR_SELECT, NULL, TTPU_I32, 3, (ttpu_dtype[]){TTPU_BOOL, TTPU_I32, TTPU_I32},
                      (base_scalar[]){{.i = 1}, {.i = 7}, {.i = 9}})
               .i,
           7);
  ttpu_dtype f[3] = {TTPU_F32, TTPU_F32, TTPU_F32};
  CHECK_NEAR(run_scalar(IR_CLAMP, NULL, TTPU_F32, 3, f, (base_scalar[]){{.d = {-1}}, {.d = {5}}, {.d = {2}}}).d[0], 2,
             0);
  CHECK(isnan(run_scalar(IR_CLAMP, NULL, TTPU_F32, 3, f, (base_scalar[]){{.d = {-1}}, {.d = {NAN}}, {.d = {2}}}).d[0]));
}

TEST(reduce_precision_and_convert) {
  ttpu_dtype t = TTPU_F32;
  const ir_reduce_precision_attrs bf16 = {8, 7}, f16 = {5, 10};
  CHECK_NEAR(run_scalar(IR_REDUCE_PRECISION, &bf16, t, 1, &t, &(base_scalar){.d = {1.00390625}}).d[0], 1,
             0); /* a tie, to even */
  CHECK_NEAR(run_scalar(IR_REDUCE_PRECISION, &bf16, t, 1, &t, &(base_scalar){.d = {3.0e38}}).d[0],
             (double)base_f32_from_bf16(base_bf16_from_f32(3.0e38f)), 0);
  CHECK_NEAR(run_scalar(IR_REDUCE_PRECISION, &f16, t, 1, &t, &(base_scalar){.d = {-70000}}).d[0], -INFINITY, 0);
  CHECK_NEAR(run_scalar(IR_REDUCE_PRECISION, &f16, t, 1, &t, &(base_scalar){.d = {1e-7}}).d[0], 0, 0);
  CHECK_EQ(run_scalar(IR_CONVERT, NULL, TTPU_I32, 1, &t, &(base_scalar){.d = {-2.9}}).i, -2);
  CHECK_EQ(run_scalar(IR_CONVERT, NULL, TTPU_BOOL, 1, &t, &(base_scalar){.d = {0.25}}).i, 1);
  CHECK_NEAR(run_scalar(IR_CONVERT, NULL, TTPU_BF16, 1, &t, &(base_scalar){.d = {1.00390625}}).d[0], 1, 0);
  ttpu_dtype wide = TTPU_I64;
  CHECK_EQ(run_scalar(IR_CONVERT, NULL, TTPU_I8, 1, &wide, &(base_scalar){.i = 300}).i, 44);
  CHECK_EQ(run_scalar(IR_BITCAST_CONVERT, NULL, TTPU_I32, 1, &t, &(base_scalar){.d = {1}}).i, 0x3F800000);
}

/* ---- operations on arrays ------------------------------------------------------------------------------ */

/* Runs the operation that gives v on f32 or i64 data, operand after operand, and compares its first result. */
static void check_array(test_op *t, ir_value v, const double *const *data, const double *want, double tolerance) {
  if (!test_operands(t, v, false)) return;
  test_view out[MOST_RESULTS];
  soft_view x[20], y[MOST_RESULTS];
  make_results(t, LAYOUT_DENSE, out);
  for (uint32_t i = 0; i < t->operand_count; ++i) {
    soft_view *in = &t->operands[i].v;
    if (!data[i]) continue; /* a constant */
    free(t->operands[i].memory);
    t->operands[i] = test_view_new(in->dtype, in->rank, in->dims, LAYOUT_STRIDED);
    for (int64_t e = 0; e < base_numel(in->rank, in->dims); ++e)
      base_scalar_store(in->dtype, test_element(in, e),
                        base_scalar_convert(TTPU_F64, in->dtype, (base_scalar){.d = {data[i][e]}}));
  }
  views_of(t->operands, t->operand_count, x), views_of(out, t->op->result_count, y);
  CHECK_OK(soft_reference_op(t->f, t->op, x, y));
  for (int64_t e = 0; e < base_numel(y->rank, y->dims); ++e) {
    base_scalar got = base_scalar_convert(y->dtype, TTPU_F64, base_scalar_load(y->dtype, test_element(y, e)));
    if (!CHECK_NEAR(got.d[0], want[e], tolerance)) break;
  }
  free_results(t, out);
}
#define DATA(...) ((const double *const[]){__VA_ARGS__})
#define LIST(...) ((const double[]){__VA_ARGS__})
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

TEST(products) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F32, 2, DIMS(2, 3)), y = test_param(&t, TTPU_F32, 2, DIMS(3, 2));
  check_array(&t, ir_matmul(&t.b, x, y, IR_PRECISION_HIGHEST, TTPU_F32),
              DATA(LIST(1, 2, 3, 4, 5, 6), LIST(1, 0, 0, 1, 2, 2)), LIST(7, 8, 16, 17), 0);
  test_end(&t);
  /* 1 + 2^-9 has no bf16: one pass drops the tail, three passes keep it. */
  for (int precision = 0; precision < 3; ++precision) {
    test_begin(&t);
    x = test_param(&t, TTPU_F32, 2, DIMS(1, 1)), y = test_param(&t, TTPU_F32, 2, DIMS(1, 1));
    double a = 1 + 0x1p-9;
    check_array(&t, ir_matmul(&t.b, x, y, (ir_precision)precision, TTPU_F32), DATA(&a, &a),
                LIST(precision == 0   ? 1
                     : precision == 1 ? 1 + 0x1p-8
                                      : (double)(float)(a * a)),
                0);
    test_end(&t);
  }
  test_begin(&t); /* batch dimension second on the left, contracting dimension first on the right */
  x = test_param(&t, TTPU_I64, 2, DIMS(2, 2)), y = test_param(&t, TTPU_I64, 2, DIMS(2, 2));
  const ir_dot_general_attrs a = {{DIMS(1), 1}, {DIMS(1), 1}, {DIMS(0), 1}, {DIMS(0), 1}, IR_PRECISION_DEFAULT};
  check_array(&t, ir_dot_general(&t.b, x, y, &a, TTPU_I64), DATA(LIST(1, 2, 3, 4), LIST(5, 6, 7, 8)),
              LIST(1 * 5 + 3 * 7, 2 * 6 + 4 * 8), 0);
  test_end(&t);
}

static ir_convolution_attrs convolution_1d(const int64_t *stride, const int64_t *padding, const int64_t *lhs,
                                           const int64_t *rhs) {
  static const int64_t two[] = {2};
  return (ir_convolution_attrs){.window_strides = {stride, 1},
                                .padding = {padding, 2},
                                .lhs_dilation = {lhs, 1},
                                .rhs_dilation = {rhs, 1},
                                .input_batch_dimension = 0,
                                .input_feature_dimension = 1,
                                .input_spatial_dimensions = {two, 1},
                                .kernel_output_feature_dimension = 0,
                                .kernel_input_feature_dimension = 1,
                                .kernel_spatial_dimensions = {two, 1},
                                .output_batch_dimension = 0,
                                .output_feature_dimension = 1,
                                .output_spatial_dimensions = {two, 1},
                                .feature_group_count = 1,
                                .batch_group_count = 1,
                                .precision = IR_PRECISION_HIGHEST};
}

TEST(convolution) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 5)), w = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 3));
  ir_convolution_attrs a = convolution_1d(DIMS(2), DIMS(1, 1), DIMS(1), DIMS(1));
  check_array(&t, ir_convolution(&t.b, x, w, &a, TTPU_F32), DATA(LIST(1, 2, 3, 4, 5), LIST(1, 10, 100)),
              LIST(210, 432, 54), 0);
  test_end(&t);
  test_begin(&t); /* dilated kernel: taps 0 and 2 */
  x = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 5)), w = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 2));
  a = convolution_1d(DIMS(1), DIMS(0, 0), DIMS(1), DIMS(2));
  check_array(&t, ir_convolution(&t.b, x, w, &a, TTPU_F32), DATA(LIST(1, 2, 3, 4, 5), LIST(1, 10)), LIST(31, 42, 53),
              0);
  test_end(&t);
  test_begin(&t); /* dilated input, reversed kernel: a transposed convolution */
  x = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 2)), w = test_param(&t, TTPU_F32, 3, DIMS(1, 1, 2));
  a = convolution_1d(DIMS(1), DIMS(1, 1), DIMS(2), DIMS(1));
  a.window_reversal = (ir_flags){(const bool[]){true}, 1};
  check_array(&t, ir_convolution(&t.b, x, w, &a, TTPU_F32), DATA(LIST(1, 2), LIST(1, 10)), LIST(1, 10, 2, 20), 0);
  test_end(&t);
  test_begin(&t); /* two groups of one feature each */
  x = test_param(&t, TTPU_F32, 3, DIMS(1, 2, 2)), w = test_param(&t, TTPU_F32, 3, DIMS(2, 1, 1));
  a = convolution_1d(DIMS(1), DIMS(0, 0), DIMS(1), DIMS(1));
  a.feature_group_count = 2;
  check_array(&t, ir_convolution(&t.b, x, w, &a, TTPU_F32), DATA(LIST(1, 2, 3, 4), LIST(5, 7)), LIST(5, 10, 21, 28), 0);
  test_end(&t);
  test_begin(&t); /* two batch groups: output feature k reads the k-th half of the batch */
  x = test_param(&t, TTPU_F32, 3, DIMS(2, 1, 2)), w = test_param(&t, TTPU_F32, 3, DIMS(2, 1, 1));
  a.feature_group_count = 1, a.batch_group_count = 2;
  check_array(&t, ir_convolution(&t.b, x, w, &a, TTPU_F32), DATA(LIST(1, 2, 3, 4), LIST(5, 7)), LIST(5, 10, 21, 28), 0);
  test_end(&t);
}

TEST(reductions_and_windows) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F32, 2, DIMS(2, 3));
  check_array(&t, ir_reduce(&t.b, IR_ADD, x, 1, DIMS(0)), DATA(LIST(1, 2, 3, 4, 5, 6), NULL), LIST(5, 7, 9), 0);
  test_end(&t);
  test_begin(&t);
  x = test_param(&t, TTPU_F32, 2, DIMS(2, 3));
  ir_value value, index = ir_reduce_arg(&t.b, true, x, 1, &value);
  CHECK(index == value + 1);
  check_array(&t, value, DATA(LIST(1, 7, 7, 4, NAN, 6), NULL, NULL, NULL), LIST(7, NAN), 0);
  test_end(&t);
  test_begin(&t);
  x = test_param(&t, TTPU_F32, 1, DIMS(5));
  const ir_window_attrs a = {
      .window_dimensions = {DIMS(3), 1}, .window_strides = {DIMS(2), 1}, .padding = {DIMS(1, 1), 2}};
  check_array(&t, ir_reduce_window(&t.b, IR_MAXIMUM, x, &a), DATA(LIST(1, 5, 2, 2, -3), NULL), LIST(5, 5, 2), 0);
  test_end(&t);
}

TEST(moves) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_I64, 1, DIMS(3)), fill = test_param(&t, TTPU_I64, 0, NULL);
  check_array(&t, ir_pad(&t.b, x, fill, DIMS(-1), DIMS(2), DIMS(1)), DATA(LIST(1, 2, 3), LIST(9)),
              LIST(9, 2, 9, 3, 9, 9), 0);
  test_end(&t);
  test_begin(&t);
  x = test_param(&t, TTPU_I64, 1, DIMS(6));
  check_array(&t, ir_as_strided(&t.b, x, 2, DIMS(2, 3), DIMS(1, 2), 0), DATA(LIST(0, 1, 2, 3, 4, 5)),
              LIST(0, 2, 4, 1, 3, 5), 0);
  test_end(&t);
  test_begin(&t); /* indices are clamped */
  x = test_param(&t, TTPU_I64, 2, DIMS(3, 2));
  check_array(&t, ir_take(&t.b, x, test_param(&t, TTPU_I64, 1, DIMS(3)), 0),
              DATA(LIST(1, 2, 3, 4, 5, 6), LIST(2, -5, 99)), LIST(5, 6, 1, 2, 5, 6), 0);
  test_end(&t);
  test_begin(&t); /* updates outside are dropped, duplicates add up */
  x = test_param(&t, TTPU_I64, 1, DIMS(3));
  const ir_scatter_attrs a = {
      .inserted_window_dims = {DIMS(0), 1}, .scatter_dims_to_operand_dims = {DIMS(0), 1}, .index_vector_dim = 1};
  ir_value indices = test_param(&t, TTPU_I64, 1, DIMS(4)), updates = test_param(&t, TTPU_I64, 1, DIMS(4));
  check_array(&t, ir_scatter(&t.b, x, indices, updates, &a, IR_ADD),
              DATA(LIST(1, 2, 3), LIST(1, 1, 7, -1), LIST(10, 20, 30, 40)), LIST(1, 32, 3), 0);
  test_end(&t);
  test_begin(&t); /* a window that hangs over the edge loses only what hangs over */
  x = test_param(&t, TTPU_I64, 1, DIMS(3));
  const ir_scatter_attrs w = {
      .update_window_dims = {DIMS(0), 1}, .scatter_dims_to_operand_dims = {DIMS(0), 1}, .index_vector_dim = 0};
  indices = test_param(&t, TTPU_I64, 1, DIMS(1)), updates = test_param(&t, TTPU_I64, 1, DIMS(2));
  check_array(&t, ir_scatter(&t.b, x, indices, updates, &w, IR_NO_OP), DATA(LIST(1, 2, 3), LIST(2), LIST(8, 9)),
              LIST(1, 2, 8), 0);
  test_end(&t);
}

TEST(orders) {
  test_op t;
  test_begin(&t);
  ir_value xs[2] = {test_param(&t, TTPU_F32, 1, DIMS(5)), test_param(&t, TTPU_F32, 1, DIMS(5))};
  check_array(&t, ir_sort(&t.b, 2, xs, 0, false), DATA(LIST(3, NAN, -1, 3, -INFINITY), LIST(0, 1, 2, 3, 4)),
              LIST(-INFINITY, -1, 3, 3, NAN), 0);
  test_end(&t);
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F32, 1, DIMS(5));
  const ir_top_k_attrs top = {3, true, true};
  check_array(&t, ir_append(&t.b, IR_TOP_K, 1, &x, &top, 0, NULL, 0, NULL), DATA(LIST(3, NAN, -1, 7, 2)),
              LIST(NAN, 7, 3), 0);
  test_end(&t);
  test_begin(&t);
  x = test_param(&t, TTPU_F32, 1, DIMS(4));
  const ir_scan_attrs scan = {0, false, IR_LOGCUMSUMEXP};
  check_array(&t, ir_append(&t.b, IR_SCAN, 1, &x, &scan, 0, NULL, 0, NULL), DATA(LIST(-INFINITY, 0, 0, 1000)),
              LIST(-INFINITY, 0, log(2), 1000), 1e-7);
  test_end(&t);
}

/* cummax's indices are those of the last of equal values; NaN stays. */
TEST(cummax_indices) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F32, 1, DIMS(6));
  const ir_scan_attrs a = {0, false, IR_CUMMAX};
  ir_value v = ir_append(&t.b, IR_SCAN, 1, &x, &a, 0, NULL, 0, NULL);
  if (test_operands(&t, v, false)) {
    float data[] = {1, 3, 3, 2, NAN, 5}, values[6];
    int64_t indices[6], n = 6;
    static const int64_t want[] = {0, 1, 2, 2, 4, 4};
    soft_view in = soft_view_dense(TTPU_F32, 1, &n, data),
              out[2] = {soft_view_dense(TTPU_F32, 1, &n, values), soft_view_dense(TTPU_I64, 1, &n, indices)};
    CHECK_OK(soft_reference_op(t.f, t.op, &in, out));
    for (int i = 0; i < 6; ++i) CHECK_EQ(indices[i], want[i]);
    CHECK(values[3] == 3 && isnan(values[5]));
  }
  test_end(&t);
}

/* The first block is Random123's known answer (kat_vectors) of philox4x32-10 for a key and a counter of 0. */
TEST(philox_known_answers) {
  test_op t;
  test_begin(&t);
  ir_value state = test_param(&t, TTPU_U64, 1, DIMS(2)), v = ir_philox(&t.b, state, TTPU_U32, 1, DIMS(9));
  if (test_operands(&t, v, false)) {
    static const uint32_t want[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    uint64_t in[2] = {0, 0}, out_state[2];
    uint32_t bits[9];
    int64_t two = 2, nine = 9;
    soft_view x = soft_view_dense(TTPU_U64, 1, &two, in),
              y[2] = {soft_view_dense(TTPU_U64, 1, &two, out_state), soft_view_dense(TTPU_U32, 1, &nine, bits)};
    CHECK_OK(soft_reference_op(t.f, t.op, &x, y));
    for (int i = 0; i < 4; ++i) CHECK_EQ(bits[i], want[i]);
    CHECK_EQ(out_state[0], 0);
    CHECK_EQ(out_state[1], 3); /* nine words take three blocks */
    uint32_t second = bits[4];
    in[1] = 1; /* the next counter begins where the second block was */
    CHECK_OK(soft_reference_op(t.f, t.op, &x, y));
    CHECK_EQ(bits[0], second);
  }
  test_end(&t);
}

TEST(attention) {
  test_op t;
  test_begin(&t);
  ir_value in[4] = {test_param(&t, TTPU_F32, 4, DIMS(1, 2, 2, 1)), test_param(&t, TTPU_F32, 4, DIMS(1, 1, 2, 1)),
                    test_param(&t, TTPU_F32, 4, DIMS(1, 1, 2, 1)), test_param(&t, TTPU_F32, 0, NULL)};
  const ir_attention_attrs a = {.causal = true};
  double high = log(3); /* weights 1 and 3 */
  check_array(&t, ir_append(&t.b, IR_ATTENTION, 4, in, &a, 0, NULL, 0, NULL),
              DATA(LIST(1, 1, 2, 2), LIST(0, high), LIST(10, 20), LIST(1)), LIST(10, 17.5, 10, 19), 1e-5);
  test_end(&t);
}

TEST(linear_algebra) {
  test_op t;
  test_begin(&t);
  ir_value x = test_param(&t, TTPU_F64, 2, DIMS(2, 2));
  const ir_cholesky_attrs lower = {true};
  check_array(&t, ir_append(&t.b, IR_CHOLESKY, 1, &x, &lower, 0, NULL, 0, NULL), DATA(LIST(4, 99, 2, 10)),
              LIST(2, 0, 1, 3), 0);
  test_end(&t);
  test_begin(&t); /* x a = b with a upper: x = {1, 2} */
  ir_value ab[2] = {test_param(&t, TTPU_F64, 2, DIMS(2, 2)), test_param(&t, TTPU_F64, 2, DIMS(1, 2))};
  const ir_triangular_solve_attrs right = {.left_side = false, .lower = false, .transpose_a = IR_NO_TRANSPOSE};
  check_array(&t, ir_append(&t.b, IR_TRIANGULAR_SOLVE, 2, ab, &right, 0, NULL, 0, NULL),
              DATA(LIST(2, 3, 99, 4), LIST(2, 11)), LIST(1, 2), 0);
  test_end(&t);
  test_begin(&t);
  x = test_param(&t, TTPU_F64, 1, DIMS(4));
  const ir_fft_attrs fft = {IR_FFT_RFFT, {DIMS(4), 1}};
  check_array(&t, ir_append(&t.b, IR_FFT, 1, &x, &fft, 0, NULL, 0, NULL), DATA(LIST(1, 2, 3, 4)), LIST(10, -2, -2),
              1e-15);
  test_end(&t);
}

/* ---- whole functions -------------------------------------------------------------------------------------- */

TEST(a_whole_function) {
  test_op t;
  test_begin(&t);
  ir_builder *b = &t.b;
  ir_value x = test_param(&t, TTPU_F32, 2, DIMS(2, 2)), y = x;
  for (int i = 0; i < 40; ++i)
    y = ir_binary(b, IR_ADD, y, ir_like_f64(b, x, 1)); /* long enough for values to die on the way */
  ir_return(b, 2, (ir_value[2]){y, x});
  float in[4] = {1, 2, 3, 4}, out[2][4];
  CHECK_OK(soft_reference_run(t.f, (void *[]){in}, (void *[]){out[0], out[1]}));
  for (int i = 0; i < 4; ++i) CHECK(out[0][i] == in[i] + 40 && out[1][i] == in[i]);
  for (uint64_t nth = 1; nth < 300; ++nth) {
    base_alloc_fail_after(nth);
    ttpu_status status = soft_reference_run(t.f, (void *[]){in}, (void *[]){out[0], out[1]});
    base_alloc_fail_after(0);
    if (status == TTPU_OK) break;
    CHECK_EQ(status, TTPU_RESOURCE_EXHAUSTED);
  }
  test_end(&t);
}

TEST(what_is_not_here_says_so) {
  test_op t;
  test_begin(&t);
  ir_type type = ir_tensor(&t.b, TTPU_U32, 0, NULL);
  const ir_custom_call_attrs attrs = {.call_target_name = "somebody.else"};
  ir_value v = ir_append(&t.b, IR_CUSTOM_CALL, 0, NULL, &attrs, 1, &type, 0, NULL);
  if (test_operands(&t, v, false))
    CHECK_FAILS(TTPU_UNIMPLEMENTED, "somebody.else", soft_reference_op(t.f, t.op, NULL, NULL));
  test_end(&t);
}
