/* Dtypes: the table, the small floats against definitions that share no code with them, one element's conversions.
 * TTPU_TEST_LONG=1 tries all 2^32 f32 instead of a sample and the neighbourhood of every rounding boundary. */
#include "check.h"

TEST(table) {
  static const struct {
    ttpu_dtype t;
    const char *name, *hlo;
    int bytes, scalar_type, pjrt;
  } rows[] = {
      {TTPU_BOOL, "bool", "i1", 1, 11, 1},
      {TTPU_I8, "int8", "i8", 1, 1, 2},
      {TTPU_U64, "uint64", "ui64", 8, 29, 9},
      {TTPU_F32, "float32", "f32", 4, 6, 11},
      {TTPU_BF16, "bfloat16", "bf16", 2, 15, 13},
      {TTPU_C128, "complex128", "complex<f64>", 16, 10, 15},
      {TTPU_F8E5M2, "float8_e5m2", "f8E5M2", 1, 23, 16},
      {TTPU_F8E4M3FN, "float8_e4m3fn", "f8E4M3FN", 1, 24, 17},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    const base_dtype_info *info = &base_dtypes[rows[i].t];
    CHECK_STR(info->name, rows[i].name);
    CHECK_STR(info->hlo_name, rows[i].hlo);
    CHECK_EQ(info->bytes, rows[i].bytes);
    CHECK_EQ(info->scalar_type, rows[i].scalar_type);
    CHECK_EQ(info->pjrt_type, rows[i].pjrt);
  }
  CHECK_EQ(TTPU_TOKEN, 18); /* the first of the rare ones */
  CHECK_EQ(TTPU_DTYPE_COUNT, 32);
}

TEST(lookups_invert_the_table) {
  for (int t = 1; t < TTPU_DTYPE_COUNT; ++t) {
    const base_dtype_info *info = &base_dtypes[t];
    CHECK_EQ(base_dtype_from_hlo(info->hlo_name, strlen(info->hlo_name)), t);
    CHECK_EQ(base_dtype_from_scalar_type(info->scalar_type), base_dtype_is_rare((ttpu_dtype)t) ? TTPU_NO_DTYPE : t);
    CHECK_EQ(base_dtype_from_pjrt(info->pjrt_type), info->pjrt_type ? t : TTPU_NO_DTYPE);
    CHECK_EQ(base_dtype_bytes((ttpu_dtype)t), info->bytes);
  }
  CHECK_EQ(base_dtype_from_hlo("f3", 2), TTPU_NO_DTYPE);
  CHECK_EQ(base_dtype_from_hlo("f32x", 4), TTPU_NO_DTYPE);
  CHECK_EQ(base_dtype_from_hlo("f32x", 3), TTPU_F32);
  CHECK_EQ(base_dtype_from_hlo("", 0), TTPU_NO_DTYPE);
  CHECK_EQ(base_dtype_from_scalar_type(-1), TTPU_NO_DTYPE);
  CHECK_EQ(base_dtype_from_pjrt(0), TTPU_NO_DTYPE);
  CHECK_EQ(base_dtype_from_pjrt(99), TTPU_NO_DTYPE);
  CHECK(base_dtype_is_integer(TTPU_U8) && base_dtype_is_integer(TTPU_I64) && !base_dtype_is_integer(TTPU_BOOL));
}

/* complex32 is a dtype of tensors alone: neither StableHLO nor PJRT has it, and others stand for it. */
TEST(dtypes_of_tensors_alone_have_others_that_stand_for_them) {
  CHECK_EQ(base_dtype_from_scalar_type(8), TTPU_C32);
  CHECK_EQ(base_dtype_from_hlo("complex<f16>", 12), TTPU_NO_DTYPE);
  for (int i = 1; i < TTPU_TENSOR_DTYPE_COUNT; ++i) {
    ttpu_dtype t = (ttpu_dtype)i, stored = base_dtype_stored(t), computed = base_dtype_computed(t);
    CHECK_EQ(base_dtype_bytes(stored), base_dtype_bytes(t));
    CHECK_EQ(base_dtypes[computed].cls, base_dtypes[t].cls);
    CHECK(stored < TTPU_DTYPE_COUNT && computed < TTPU_DTYPE_COUNT);
    CHECK((i < TTPU_DTYPE_COUNT) == (stored == t && computed == t));
  }
  uint16_t halves[2] = {0x3e00, 0xc000}; /* 1.5 - 2i */
  base_scalar v = base_scalar_load(TTPU_C32, halves);
  CHECK(v.d[0] == 1.5 && v.d[1] == -2);
  v = base_scalar_convert(TTPU_C128, TTPU_C32, (base_scalar){.d = {0.1, 70000}});
  CHECK(v.d[0] == 0x1.998p-4 && v.d[1] == INFINITY);
  base_scalar_store(TTPU_C32, halves, v);
  CHECK(halves[0] == 0x2e66 && halves[1] == 0x7c00);
}

/* ---- small floats ---- */

/* A format by its definition: the value of a code in long double, computed from the fields. */
typedef struct format {
  const char *name;
  int exponent_bits, mantissa_bits;
  bool infinities; /* else the code of all ones is NaN, the rest of the top exponent finite, and overflow saturates */
  float (*widen)(uint32_t);
  uint32_t (*narrow)(float);
} format;

static float widen_f16(uint32_t x) { return base_f32_from_f16((uint16_t)x); }
static float widen_bf16(uint32_t x) { return base_f32_from_bf16((uint16_t)x); }
static float widen_e4m3fn(uint32_t x) { return base_f32_from_f8e4m3fn((uint8_t)x); }
static float widen_e5m2(uint32_t x) { return base_f32_from_f8e5m2((uint8_t)x); }
static uint32_t narrow_f16(float x) { return base_f16_from_f32(x); }
static uint32_t narrow_bf16(float x) { return base_bf16_from_f32(x); }
static uint32_t narrow_e4m3fn(float x) { return base_f8e4m3fn_from_f32(x); }
static uint32_t narrow_e5m2(float x) { return base_f8e5m2_from_f32(x); }

static const format formats[] = {
    {"f16", 5, 10, true, widen_f16, narrow_f16},
    {"bf16", 8, 7, true, widen_bf16, narrow_bf16},
    {"f8e4m3fn", 4, 3, false, widen_e4m3fn, narrow_e4m3fn},
    {"f8e5m2", 5, 2, true, widen_e5m2, narrow_e5m2},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* The magnitude's value; the first code above the finite ones counts as the power of two that it would be, which is
 * what rounding compares with. */
static double code_value(const format *f, uint32_t magnitude) {
  int bias = (1 << (f->exponent_bits - 1)) - 1;
  int exponent = (int)(magnitude >> f->mantissa_bits);
  double fraction = magnitude & ((1u << f->mantissa_bits) - 1);
  if (exponent == 0) return ldexp(fraction, 1 - bias - f->mantissa_bits);
  return ldexp(fraction + (1 << f->mantissa_bits), exponent - bias - f->mantissa_bits);
}
static uint32_t sign_bit(const format *f) { return 1u << (f->exponent_bits + f->mantissa_bits); }
static uint32_t first_infinite(const format *f) { /* or NaN, without infinities */
  return f->infinities ? sign_bit(f) - (1u << f->mantissa_bits) : sign_bit(f) - 1;
}
static bool code_is_nan(const format *f, uint32_t magnitude) {
  return f->infinities ? magnitude > first_infinite(f) : magnitude == sign_bit(f) - 1;
}

TEST(every_code_widens_to_its_value) {
  for (int i = 0; i < FORMATS; ++i) {
    const format *f = &formats[i];
    for (uint32_t code = 0; code < 2 * sign_bit(f); ++code) {
      uint32_t magnitude = code & (sign_bit(f) - 1);
      float x = f->widen(code);
      CHECK_EQ(!!signbit(x), !!(code & sign_bit(f)));
      if (code_is_nan(f, magnitude)) {
        CHECK(isnan(x));
      } else if (magnitude == first_infinite(f)) {
        CHECK(isinf(x));
      } else {
        CHECK_EQ(fabs((double)x) == code_value(f, magnitude), true);
      }
      /* And back: the same code; a NaN stays one, with its sign. */
      uint32_t back = f->narrow(x);
      if (!isnan(x)) CHECK_EQ(back, code);
      else CHECK(code_is_nan(f, back & (sign_bit(f) - 1)) && (back & sign_bit(f)) == (code & sign_bit(f)));
    }
  }
}

/* The nearest code to x by search among the values; ties go to the even code. */
static uint32_t nearest_code(const format *f, float x) {
  uint32_t sign = signbit(x) ? sign_bit(f) : 0, low = 0, high = first_infinite(f);
  double magnitude = fabs((double)x);
  if (isnan(x)) return sign | (sign_bit(f) - 1);
  if (!f->infinities) --high;
  if (magnitude >= code_value(f, high)) return sign | high;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (code_value(f, middle) <= magnitude) low = middle;
    else high = middle;
  }
  double below = magnitude - code_value(f, low), above = code_value(f, high) - magnitude;
  bool up = below > above || (below == above && (low & 1));
  return sign | (up ? high : low);
}

static void check_narrow(const format *f, float x) {
  uint32_t code = f->narrow(x), expected = nearest_code(f, x);
  if (isnan(x)) {
    CHECK(code_is_nan(f, code & (sign_bit(f) - 1)) && (code & sign_bit(f)) == (expected & sign_bit(f)));
    return;
  }
  if (code != expected)
    check_fail(__FILE__, __LINE__, "%s from %a: %#x, expected %#x", f->name, (double)x, code, expected);
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

TEST(narrowing_rounds_to_nearest_even) {
  for (int i = 0; i < FORMATS; ++i) {
    const format *f = &formats[i];
    for (uint32_t code = 0; code < first_infinite(f); ++code) { /* each value, each midpoint, and their neighbours */
      double values[2] = {code_value(f, code), (code_value(f, code) + code_value(f, code + 1)) / 2};
      for (int v = 0; v < 2; ++v) {
        float x = (float)values[v];
        float around[3] = {x, nextafterf(x, INFINITY), nextafterf(x, -INFINITY)};
        for (int k = 0; k < 3; ++k) check_narrow(f, around[k]), check_narrow(f, -around[k]);
      }
    }
    static const uint32_t special[] = {0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
                                       0x7f7fffff, 1,          0x007fffff, 0x00800000};
    for (size_t k = 0; k < sizeof special / sizeof *special; ++k)
      check_narrow(f, float_of(special[k])), check_narrow(f, float_of(special[k] | 0x80000000));
    uint64_t seed = 7;
    for (int k = 0; k < 200000; ++k) check_narrow(f, float_of((uint32_t)check_random(&seed)));
  }
}

#if defined(__FLT16_MAX__)
static uint16_t compiler_f16(float x) {
  _Float16 h = (_Float16)x;
  uint16_t bits;
  memcpy(&bits, &h, sizeof bits);
  return bits;
}
TEST(f16_agrees_with_the_compiler) {
  bool all = getenv("TTPU_TEST_LONG") != NULL;
  uint64_t different = 0;
  for (uint64_t bits = 0; bits < 1ull << 32; bits += all ? 1 : 2557) {
    float x = float_of((uint32_t)bits);
    uint16_t ours = base_f16_from_f32(x);
    if (isnan(x)) different += (ours & 0x7fff) <= 0x7c00;
    else different += ours != compiler_f16(x);
  }
  CHECK_EQ(different, 0);
}
#endif

TEST(all_f32_by_the_definition) {
  if (!getenv("TTPU_TEST_LONG")) return;
  for (int i = 0; i < FORMATS; ++i)
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 101) check_narrow(&formats[i], float_of((uint32_t)bits));
}

/* ---- one element ---- */

static base_scalar of_i(int64_t i) {
  base_scalar v = {.d = {0, 0}};
  v.i = i;
  return v;
}
static base_scalar of_d(double re, double im) { return (base_scalar){.d = {re, im}}; }

/* Every code of every narrow type is stored as what it was loaded from, NaN aside; numbers that lie between two codes go
 * to the nearer one, ties to the even one. */
TEST(rare_types) {
  for (int t = TTPU_TOKEN + 1; t < TTPU_DTYPE_COUNT; ++t) {
    ttpu_dtype dtype = (ttpu_dtype)t;
    int codes = 1 << base_dtype_bits(dtype);
    for (int code = 0; code < codes; ++code) {
      uint8_t from = (uint8_t)code, to = 0;
      base_scalar v = base_scalar_load(dtype, &from);
      base_scalar_store(dtype, &to, v);
      if (base_dtype_is_float(dtype) && isnan(v.d[0])) CHECK(isnan(base_scalar_load(dtype, &to).d[0]));
      else CHECK_EQ(to & (codes - 1), code);
    }
  }
  static const struct {
    ttpu_dtype t;
    double x, y;
  } cases[] = {{TTPU_F4E2M1FN, 2.5, 2},     {TTPU_F4E2M1FN, 3.5, 4},  {TTPU_F4E2M1FN, -100, -6},
               {TTPU_F6E3M2FN, 29, 28},     {TTPU_F8E8M0FNU, 3, 2},   {TTPU_F8E8M0FNU, 6, 8},
               {TTPU_F8E5M2FNUZ, -0.0, 0},  {TTPU_F8E4M3, 248, 256},  {TTPU_F8E4M3, 1e9, INFINITY},
               {TTPU_F8E4M3FNUZ, 240, 240}, {TTPU_F8E3M4, 15.75, 16}, {TTPU_F8E4M3B11FNUZ, 30, 30}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    uint8_t code;
    base_scalar_store(cases[i].t, &code, (base_scalar){.d = {cases[i].x, 0}});
    double got = base_scalar_load(cases[i].t, &code).d[0];
    if (got != cases[i].y && !(cases[i].t == TTPU_F8E3M4 && isinf(got)) && !(cases[i].t == TTPU_F8E4M3 && isinf(got)))
      check_fail(__FILE__, __LINE__, "%g of %s is %g", cases[i].x, base_dtypes[cases[i].t].name, got);
  }
}

TEST(store_and_load) {
  uint8_t room[17];
  for (int t = 1; t < TTPU_TOKEN; ++t)
    for (int value = -3; value <= 3; ++value) {
      ttpu_dtype dtype = (ttpu_dtype)t;
      base_scalar v = base_scalar_convert(TTPU_I64, dtype, of_i(value));
      memset(room, 0xAA, sizeof room);
      base_scalar_store(dtype, room + 1, v); /* unaligned on purpose */
      base_scalar w = base_scalar_load(dtype, room + 1);
      CHECK_EQ(room[0], 0xAA);
      for (size_t i = 1 + base_dtype_bytes(dtype); i < sizeof room; ++i) CHECK_EQ(room[i], 0xAA);
      int64_t back = base_scalar_convert(dtype, TTPU_I64, w).i;
      int64_t expected = value;
      if (dtype == TTPU_BOOL) expected = value != 0;
      if (base_dtypes[t].cls == DTYPE_UNSIGNED && base_dtypes[t].bytes < 8)
        expected &= ((int64_t)1 << 8 * base_dtypes[t].bytes) - 1;
      CHECK_EQ(back, expected);
    }
  room[1] = 2; /* any nonzero byte is true */
  CHECK_EQ(base_scalar_load(TTPU_BOOL, room + 1).i, 1);
  base_scalar_store(TTPU_C64, room + 1, of_d(1.5, -2.5));
  CHECK_NEAR(base_scalar_load(TTPU_C64, room + 1).d[1], -2.5, 0);
  base_scalar_store(TTPU_C128, room + 1, of_d(0.1, 0.2));
  CHECK_NEAR(base_scalar_load(TTPU_C128, room + 1).d[1], 0.2, 0);
}

#define CONVERT(from, to, v) base_scalar_convert(TTPU_##from, TTPU_##to, v)

TEST(integers_wrap) {
  CHECK_EQ(CONVERT(I64, I8, of_i(300)).i, 44);
  CHECK_EQ(CONVERT(I64, I8, of_i(200)).i, -56);
  CHECK_EQ(CONVERT(I64, U8, of_i(-1)).u, 255);
  CHECK_EQ(CONVERT(I32, U64, of_i(-1)).i, -1);
  CHECK_EQ(CONVERT(U64, I32, of_i(-1)).i, -1);
  CHECK_EQ(CONVERT(I64, I32, of_i((int64_t)1 << 31)).i, INT32_MIN);
  CHECK_EQ(CONVERT(I64, BOOL, of_i(256)).i, 1);
}

TEST(floats_truncate_to_integers) {
  CHECK_EQ(CONVERT(F32, I32, of_d(-2.9, 0)).i, -2);
  CHECK_EQ(CONVERT(F64, I64, of_d(-0x1p63, 0)).i, INT64_MIN);
  CHECK_EQ(CONVERT(F64, I64, of_d(0x1p62, 0)).i, (int64_t)1 << 62);
  CHECK_EQ(CONVERT(F64, U64, of_d(0x1p63, 0)).i, INT64_MIN);
  CHECK_EQ(CONVERT(F64, U64, of_d(0x1.8p63, 0)).u, 0xc000000000000000u);
  CHECK_EQ(CONVERT(F64, U8, of_d(300.7, 0)).u, 44);
  CHECK_EQ(CONVERT(F64, U8, of_d(-1.5, 0)).u, 255);
  CHECK_EQ(CONVERT(F64, I32, of_d(2147483647.5, 0)).i, 2147483647);
  CHECK_EQ(CONVERT(F64, I32, of_d(-2147483648.9, 0)).i, INT32_MIN);
  CHECK_EQ(CONVERT(F64, BOOL, of_d(0.3, 0)).i, 1);
  CHECK_EQ(CONVERT(F64, BOOL, of_d(NAN, 0)).i, 1);
  CHECK_EQ(CONVERT(F64, BOOL, of_d(-0.0, 0)).i, 0);
  CHECK_EQ(CONVERT(C64, BOOL, of_d(0, 1)).i, 1);
  CHECK_EQ(CONVERT(C64, I8, of_d(3.9, 1)).i, 3);
}

TEST(floats_out_of_range_give_the_minimum) {
  static const double far_values[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300};
  for (int i = 0; i < 5; ++i) {
    CHECK_EQ(CONVERT(F64, I32, of_d(far_values[i], 0)).i, INT32_MIN);
    CHECK_EQ(CONVERT(F64, I64, of_d(far_values[i], 0)).i, INT64_MIN);
    CHECK_EQ(CONVERT(F64, I16, of_d(far_values[i], 0)).i, 0);
    CHECK_EQ(CONVERT(F64, I8, of_d(far_values[i], 0)).i, 0);
    CHECK_EQ(CONVERT(F64, U8, of_d(far_values[i], 0)).i, 0);
    CHECK_EQ(CONVERT(F64, U16, of_d(far_values[i], 0)).i, 0);
    CHECK_EQ(CONVERT(F64, U32, of_d(far_values[i], 0)).u, far_values[i] > 0 ? 0 : (uint32_t)INT32_MIN);
  }
  CHECK_EQ(CONVERT(F64, U32, of_d(4294967295.0, 0)).u, 4294967295u);
  CHECK_EQ(CONVERT(F64, U64, of_d(INFINITY, 0)).u, 0);
  CHECK_EQ(CONVERT(F64, U64, of_d(NAN, 0)).i, INT64_MIN);
}

TEST(to_floats) {
  CHECK_NEAR(CONVERT(F64, F32, of_d(0.1, 0)).d[0], (double)0.1f, 0);
  CHECK_NEAR(CONVERT(F64, F16, of_d(1.0 / 3, 0)).d[0], 0x1.554p-2, 0);
  CHECK_NEAR(CONVERT(F64, BF16, of_d(1.0 / 3, 0)).d[0], 0x1.56p-2, 0);
  CHECK_NEAR(CONVERT(F64, F8E4M3FN, of_d(1000, 0)).d[0], 448, 0);
  CHECK_NEAR(CONVERT(F64, F8E5M2, of_d(1e6, 0)).d[0], INFINITY, 0);
  CHECK_NEAR(CONVERT(F64, C64, of_d(0.1, 7)).d[0], (double)0.1f, 0);
  CHECK_NEAR(CONVERT(F64, C64, of_d(0.1, 7)).d[1], 0, 0);
  CHECK_NEAR(CONVERT(C128, C64, of_d(0.1, 0.2)).d[1], (double)0.2f, 0);
  CHECK_NEAR(CONVERT(C128, F32, of_d(0.1, 0.2)).d[0], (double)0.1f, 0);
  CHECK_NEAR(CONVERT(U64, F64, of_i(-1)).d[0], 0x1p64, 0);
  CHECK_NEAR(CONVERT(BOOL, F32, of_i(1)).d[0], 1, 0);
  /* One rounding from 64 bits to f32: by way of f64 this one would come out a unit lower. */
  int64_t i = ((int64_t)1 << 54) + ((int64_t)1 << 30) + 1;
  CHECK_NEAR(CONVERT(I64, F32, of_i(i)).d[0], (double)(float)i, 0);
  CHECK(CONVERT(I64, F32, of_i(i)).d[0] != (double)(float)(double)i);
}

TEST(shapes) {
  int64_t dims[] = {2, 0, 3}, strides[3], empty[1];
  CHECK_EQ(base_numel(3, dims), 0);
  CHECK_EQ(base_numel(0, empty), 1);
  base_row_major(3, dims, strides);
  CHECK(strides[0] == 3 && strides[1] == 3 && strides[2] == 1);
}
