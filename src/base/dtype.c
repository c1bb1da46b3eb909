/* The element types: the table made from dtypes.def, the small floats in software, one element's load, store and
 * conversion. These are the reference for every vectorised conversion elsewhere. */
#include <math.h>
#include <string.h>

#include "base/base.h"

const base_dtype_info base_dtypes[TTPU_TENSOR_DTYPE_COUNT] = {
    [TTPU_NO_DTYPE] = {"(no dtype)", "none", 0, -1, 0, DTYPE_BOOL},
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) \
  [TTPU_##ENUM] = {torch, hlo, bytes, scalar_type, pjrt, cls},
#define RARE(ENUM, hlo, pjrt, cls) [TTPU_##ENUM] = {hlo, hlo, 1, -1, pjrt, cls},
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) \
  [TTPU_##ENUM] = {torch, "(" torch ")", bytes, scalar_type, 0, cls},
#include "base/dtypes.def"
#undef DTYPE
};

ttpu_dtype base_dtype_from_hlo(const char *name, size_t length) {
  for (int t = TTPU_NO_DTYPE + 1; t < TTPU_DTYPE_COUNT; ++t)
    if (strlen(base_dtypes[t].hlo_name) == length && memcmp(base_dtypes[t].hlo_name, name, length) == 0)
      return (ttpu_dtype)t;
  return TTPU_NO_DTYPE;
}

/* Switches rather than loops: the first is on the path of every operator call. */
ttpu_dtype base_dtype_from_scalar_type(int scalar_type) {
  switch (scalar_type) {
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) \
  case scalar_type: return TTPU_##ENUM;
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) \
  case scalar_type: return TTPU_##ENUM;
#include "base/dtypes.def"
#undef DTYPE
    default: return TTPU_NO_DTYPE;
  }
}

ttpu_dtype base_dtype_from_pjrt(int pjrt_type) {
  if (pjrt_type == 0) return TTPU_NO_DTYPE;
  for (int t = TTPU_TOKEN; t < TTPU_DTYPE_COUNT; ++t)
    if (base_dtypes[t].pjrt_type == pjrt_type) return (ttpu_dtype)t;
  switch (pjrt_type) {
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) \
  case pjrt: return TTPU_##ENUM;
#include "base/dtypes.def"
#undef DTYPE
    default: return TTPU_NO_DTYPE;
  }
}

/* ---- small floats ----
 *
 * A small float has a sign, `exponent_bits` with the usual bias, and `mantissa_bits`. The two functions below know
 * finite values and let an overflow run on into the codes above the largest finite one; what those mean differs by
 * type and is settled by the callers. */

static uint32_t f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static float f32_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* v / 2^shift, to nearest, ties to even; 1 <= shift <= 31. */
static inline uint32_t shift_round(uint32_t v, uint32_t shift) {
  return (v + (1u << (shift - 1)) - 1 + ((v >> shift) & 1)) >> shift;
}

/* `magnitude`: the bits of |x|, x finite and small enough that the rebiased exponent does not wrap. */
static inline uint32_t narrow(uint32_t magnitude, uint32_t exponent_bits, uint32_t mantissa_bits) {
  uint32_t rebias = 127 - ((1u << (exponent_bits - 1)) - 1), drop = 23 - mantissa_bits;
  uint32_t exponent = magnitude >> 23;
  if (exponent > rebias) return shift_round(magnitude - (rebias << 23), drop);
  /* Subnormal in the small type. A subnormal f32 is far below its smallest value and gives 0. */
  uint32_t shift = drop + rebias + 1 - exponent;
  return shift > 24 ? 0 : shift_round((magnitude & 0x7fffff) | 0x800000, shift);
}

static inline float widen(uint32_t code, uint32_t exponent_bits, uint32_t mantissa_bits) {
  uint32_t sign = code >> (exponent_bits + mantissa_bits);
  uint32_t magnitude = code & ((1u << (exponent_bits + mantissa_bits)) - 1);
  uint32_t rebias = 127 - ((1u << (exponent_bits - 1)) - 1);
  if (magnitude >> mantissa_bits)
    return f32_from_bits(sign << 31 | ((magnitude << (23 - mantissa_bits)) + (rebias << 23)));
  float unit = f32_from_bits((rebias + 1 - mantissa_bits) << 23); /* the smallest subnormal: exact in f32 */
  return f32_from_bits(sign << 31 | f32_bits((float)magnitude * unit));
}

float base_f32_from_f16(uint16_t x) {
  uint32_t payload = x & 0x3ffu;
  if ((x & 0x7c00) == 0x7c00)
    return f32_from_bits((x & 0x8000u) << 16 | 0x7f800000 | payload << 13 | (payload ? 0x400000 : 0));
  return widen(x, 5, 10);
}

uint16_t base_f16_from_f32(float x) {
  uint32_t bits = f32_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 65536 and more */
  return (uint16_t)(sign | narrow(magnitude, 5, 10));
}

/* S.EEEE.MMM without infinities: 0x7f is NaN, 0x7e 448, which is also what overflow and infinity give. */
float base_f32_from_f8e4m3fn(uint8_t x) {
  if ((x & 0x7f) == 0x7f) return f32_from_bits((x & 0x80u) << 24 | 0x7fc00000);
  return widen(x, 4, 3);
}

uint8_t base_f8e4m3fn_from_f32(float x) {
  uint32_t bits = f32_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
  if (magnitude > 0x43e00000) return (uint8_t)(sign | 0x7e); /* above 448 */
  return (uint8_t)(sign | narrow(magnitude, 4, 3));
}

/* S.EEEEE.MM: the upper byte of an f16. */
float base_f32_from_f8e5m2(uint8_t x) { return base_f32_from_f16((uint16_t)(x << 8)); }

uint8_t base_f8e5m2_from_f32(float x) {
  uint32_t bits = f32_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
  if (magnitude >= 0x47800000) return (uint8_t)(sign | 0x7c);
  return (uint8_t)(sign | narrow(magnitude, 5, 2));
}

/* ---- rare floats ----
 *
 * One description for all: value of a code = (-1)^sign * mantissa * 2^(exponent - bias). What the codes at the top mean is
 * told by `top`: infinities and NaNs as IEEE has them, one NaN per sign, one NaN in the place of -0 (FNUZ), or nothing but
 * numbers. Formats: https://github.com/jax-ml/ml_dtypes and the OCP microscaling specification. */

typedef struct small_float {
  int exponent_bits, mantissa_bits, bias;
  enum { TOP_IEEE, TOP_NAN, TOP_UNSIGNED_ZERO, TOP_NUMBERS } top;
} small_float;

static const small_float small_floats[TTPU_DTYPE_COUNT] = {
    [TTPU_F16] = {5, 10, 15, TOP_IEEE},
    [TTPU_BF16] = {8, 7, 127, TOP_IEEE},
    [TTPU_F8E5M2] = {5, 2, 15, TOP_IEEE},
    [TTPU_F8E4M3FN] = {4, 3, 7, TOP_NAN},
    [TTPU_F4E2M1FN] = {2, 1, 1, TOP_NUMBERS},
    [TTPU_F6E2M3FN] = {2, 3, 1, TOP_NUMBERS},
    [TTPU_F6E3M2FN] = {3, 2, 3, TOP_NUMBERS},
    [TTPU_F8E3M4] = {3, 4, 3, TOP_IEEE},
    [TTPU_F8E4M3] = {4, 3, 7, TOP_IEEE},
    [TTPU_F8E4M3B11FNUZ] = {4, 3, 11, TOP_UNSIGNED_ZERO},
    [TTPU_F8E4M3FNUZ] = {4, 3, 8, TOP_UNSIGNED_ZERO},
    [TTPU_F8E5M2FNUZ] = {5, 2, 16, TOP_UNSIGNED_ZERO},
    [TTPU_F8E8M0FNU] = {8, 0, 127, TOP_NAN},
};

int base_dtype_bits(ttpu_dtype t) {
  switch (t) {
    case TTPU_TOKEN: return 0;
    case TTPU_BOOL: return 1;
    case TTPU_I2:
    case TTPU_U2: return 2;
    case TTPU_I4:
    case TTPU_U4:
    case TTPU_F4E2M1FN: return 4;
    case TTPU_F6E2M3FN:
    case TTPU_F6E3M2FN: return 6;
    default: return 8 * base_dtypes[t].bytes;
  }
}

void base_dtype_float_format(ttpu_dtype t, int *exponent, int *mantissa) {
  *exponent = t == TTPU_F64 ? 11 : small_floats[t].exponent_bits ? small_floats[t].exponent_bits : 8;
  *mantissa = t == TTPU_F64 ? 52 : small_floats[t].exponent_bits ? small_floats[t].mantissa_bits : 23;
}

static double rare_widen(ttpu_dtype t, uint8_t code) {
  const small_float *f = &small_floats[t];
  if (t == TTPU_F8E8M0FNU) return code == 0xff ? NAN : ldexp(1, code - f->bias);
  int magnitude_bits = f->exponent_bits + f->mantissa_bits;
  unsigned magnitude = code & ((1u << magnitude_bits) - 1), sign = code >> magnitude_bits & 1;
  int exponent = (int)(magnitude >> f->mantissa_bits);
  unsigned mantissa = magnitude & ((1u << f->mantissa_bits) - 1), all = (1u << magnitude_bits) - 1;
  if (f->top == TOP_UNSIGNED_ZERO && sign && !magnitude) return NAN;
  if (f->top == TOP_NAN && magnitude == all) return sign ? -NAN : NAN;
  if (f->top == TOP_IEEE && exponent == (1 << f->exponent_bits) - 1)
    return mantissa ? (sign ? -NAN : NAN) : sign ? -INFINITY : INFINITY;
  double value = exponent ? ldexp((double)(mantissa | 1u << f->mantissa_bits), exponent - f->bias - f->mantissa_bits)
                          : ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
  return sign ? -value : value;
}

/* A power of two that is nearest, ties to the even code; there is no zero and no sign. */
static uint8_t exponent_only_narrow(double x) {
  if (!(x > 0) || isinf(x)) return x == 0 ? 0 : 0xff;
  int exponent;
  double part = frexp(x, &exponent); /* x = part * 2^exponent, part in [0.5, 1) */
  int code = exponent - 1 + 127;
  if (part > 0.75 || (part == 0.75 && (code & 1))) ++code;
  return (uint8_t)(code < 0 ? 0 : code > 254 ? 0xff : code);
}

/* To nearest, ties to even. What is too large becomes infinity, else NaN, else the largest number, whichever there is. */
static uint8_t rare_narrow(ttpu_dtype t, double x) {
  const small_float *f = &small_floats[t];
  if (t == TTPU_F8E8M0FNU) return exponent_only_narrow(x);
  int magnitude_bits = f->exponent_bits + f->mantissa_bits, lowest = 1 - f->bias;
  unsigned sign = signbit(x) ? 1u << magnitude_bits : 0, all = (1u << magnitude_bits) - 1;
  unsigned infinity = all & ~((1u << f->mantissa_bits) - 1), largest = all - (f->top == TOP_NAN);
  unsigned overflow = f->top == TOP_IEEE ? infinity : f->top == TOP_NAN ? all : largest;
  bool nan_is_negative_zero = f->top == TOP_UNSIGNED_ZERO;
  if (f->top == TOP_IEEE) largest = infinity - 1;
  if (isnan(x)) {
    if (nan_is_negative_zero) return (uint8_t)(1u << magnitude_bits);
    return (uint8_t)(sign | (f->top == TOP_IEEE ? infinity | 1u << (f->mantissa_bits - 1) : overflow));
  }
  int exponent = lowest;
  if (x != 0 && isfinite(x)) exponent = ilogb(x) < lowest ? lowest : ilogb(x);
  double steps = isinf(x) ? INFINITY : rint(ldexp(fabs(x), f->mantissa_bits - exponent));
  /* a number of `steps` smallest units of its binade; rounding up into the next binade needs no correction */
  double code = steps + ldexp((double)(exponent - lowest), f->mantissa_bits);
  if (!(code <= largest)) return (uint8_t)(nan_is_negative_zero ? 1u << magnitude_bits : sign | overflow);
  if (code == 0 && nan_is_negative_zero) return 0;
  return (uint8_t)(sign | (unsigned)code);
}

/* ---- one element ---- */

#define LOAD(type, field)    \
  do {                       \
    type x;                  \
    memcpy(&x, p, sizeof x); \
    v.field = x;             \
  } while (0)
#define LOAD_SMALL(type, to_f32) \
  do {                           \
    type x;                      \
    memcpy(&x, p, sizeof x);     \
    v.d[0] = (double)to_f32(x);  \
  } while (0)

base_scalar base_scalar_load(ttpu_dtype t, const void *p) {
  base_scalar v = {.d = {0, 0}};
  switch (t) {
    case TTPU_BOOL: v.i = *(const uint8_t *)p != 0; break;
    case TTPU_I8: LOAD(int8_t, i); break;
    case TTPU_I16: LOAD(int16_t, i); break;
    case TTPU_I32: LOAD(int32_t, i); break;
    case TTPU_I64: LOAD(int64_t, i); break;
    case TTPU_U8: LOAD(uint8_t, u); break;
    case TTPU_U16: LOAD(uint16_t, u); break;
    case TTPU_U32: LOAD(uint32_t, u); break;
    case TTPU_U64: LOAD(uint64_t, u); break;
    case TTPU_F16: LOAD_SMALL(uint16_t, base_f32_from_f16); break;
    case TTPU_BF16: LOAD_SMALL(uint16_t, base_f32_from_bf16); break;
    case TTPU_F8E4M3FN: LOAD_SMALL(uint8_t, base_f32_from_f8e4m3fn); break;
    case TTPU_F8E5M2: LOAD_SMALL(uint8_t, base_f32_from_f8e5m2); break;
    case TTPU_F32: LOAD_SMALL(float, ); break;
    case TTPU_F64: LOAD(double, d[0]); break;
    case TTPU_C64: {
      float x[2];
      memcpy(x, p, sizeof x);
      v.d[0] = (double)x[0];
      v.d[1] = (double)x[1];
      break;
    }
    case TTPU_C128: memcpy(v.d, p, sizeof v.d); break;
    case TTPU_I2: v.i = (int8_t)(*(const uint8_t *)p << 6) >> 6; break;
    case TTPU_I4: v.i = (int8_t)(*(const uint8_t *)p << 4) >> 4; break;
    case TTPU_U2: v.u = *(const uint8_t *)p & 3; break;
    case TTPU_U4: v.u = *(const uint8_t *)p & 15; break;
    case TTPU_F4E2M1FN:
    case TTPU_F6E2M3FN:
    case TTPU_F6E3M2FN:
    case TTPU_F8E3M4:
    case TTPU_F8E4M3:
    case TTPU_F8E4M3B11FNUZ:
    case TTPU_F8E4M3FNUZ:
    case TTPU_F8E5M2FNUZ:
    case TTPU_F8E8M0FNU: v.d[0] = rare_widen(t, *(const uint8_t *)p); break;
    case TTPU_C32: {
      uint16_t x[2];
      memcpy(x, p, sizeof x);
      v.d[0] = (double)base_f32_from_f16(x[0]);
      v.d[1] = (double)base_f32_from_f16(x[1]);
      break;
    }
    case TTPU_TOKEN:
    case TTPU_NO_DTYPE: break;
  }
  return v;
}

#define STORE(type, value)   \
  do {                       \
    type x = (type)(value);  \
    memcpy(p, &x, sizeof x); \
  } while (0)

void base_scalar_store(ttpu_dtype t, void *p, base_scalar v) {
  switch (t) {
    case TTPU_BOOL: *(uint8_t *)p = v.i != 0; break;
    case TTPU_I8:
    case TTPU_U8: STORE(uint8_t, v.u); break;
    case TTPU_I16:
    case TTPU_U16: STORE(uint16_t, v.u); break;
    case TTPU_I32:
    case TTPU_U32: STORE(uint32_t, v.u); break;
    case TTPU_I64:
    case TTPU_U64: STORE(uint64_t, v.u); break;
    /* By way of f32, two roundings, as PyTorch's c10::Half and its like do it. */
    case TTPU_F16: STORE(uint16_t, base_f16_from_f32((float)v.d[0])); break;
    case TTPU_BF16: STORE(uint16_t, base_bf16_from_f32((float)v.d[0])); break;
    case TTPU_F8E4M3FN: STORE(uint8_t, base_f8e4m3fn_from_f32((float)v.d[0])); break;
    case TTPU_F8E5M2: STORE(uint8_t, base_f8e5m2_from_f32((float)v.d[0])); break;
    case TTPU_F32: STORE(float, v.d[0]); break;
    case TTPU_F64: STORE(double, v.d[0]); break;
    case TTPU_C64: {
      float x[2] = {(float)v.d[0], (float)v.d[1]};
      memcpy(p, x, sizeof x);
      break;
    }
    case TTPU_C128: memcpy(p, v.d, sizeof v.d); break;
    case TTPU_I2: *(int8_t *)p = (int8_t)((int8_t)(v.u << 6) >> 6); break;
    case TTPU_I4: *(int8_t *)p = (int8_t)((int8_t)(v.u << 4) >> 4); break;
    case TTPU_U2: *(uint8_t *)p = v.u & 3; break;
    case TTPU_U4: *(uint8_t *)p = v.u & 15; break;
    case TTPU_F4E2M1FN:
    case TTPU_F6E2M3FN:
    case TTPU_F6E3M2FN:
    case TTPU_F8E3M4:
    case TTPU_F8E4M3:
    case TTPU_F8E4M3B11FNUZ:
    case TTPU_F8E4M3FNUZ:
    case TTPU_F8E5M2FNUZ:
    case TTPU_F8E8M0FNU: *(uint8_t *)p = rare_narrow(t, v.d[0]); break;
    case TTPU_TOKEN: *(uint8_t *)p = 0; break;
    case TTPU_C32: {
      uint16_t x[2] = {base_f16_from_f32((float)v.d[0]), base_f16_from_f32((float)v.d[1])};
      memcpy(p, x, sizeof x);
      break;
    }
    case TTPU_NO_DTYPE: break;
  }
}

/* Float to integer is undefined in C outside the target's range. Here it is what PyTorch's kernels give on x86: int64,
 * uint64 and uint8 by the 64-bit conversion, the others by the 32-bit one, of which NaN and overflow give the minimum. The
 * unsigned types of full width take values from half their range on apart, as compilers do it. */
static int64_t i64_from_f64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }
static int64_t i32_from_f64(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int64_t)x : INT32_MIN; }
static int64_t integer_from_f64(ttpu_dtype to, double x) {
  switch (to) {
    case TTPU_I64:
    case TTPU_U8: return i64_from_f64(x);
    case TTPU_U64: return x >= 0x1p63 ? i64_from_f64(x - 0x1p63) ^ INT64_MIN : i64_from_f64(x);
    case TTPU_U32: return x >= 0x1p31 ? i32_from_f64(x - 0x1p31) ^ INT32_MIN : i32_from_f64(x);
    default: return i32_from_f64(x);
  }
}

/* An integer wrapped to the width of `to`. */
static base_scalar integer_wrap(ttpu_dtype to, int64_t i) {
  base_scalar v = {.d = {0, 0}};
  uint8_t bytes[8];
  v.i = i;
  base_scalar_store(to, bytes, v);
  return base_scalar_load(to, bytes);
}

/* A float rounded to `to`, a float or complex type; the parts of a complex64 are f32 and so on. */
static double float_round(ttpu_dtype to, double x) {
  switch (to) {
    case TTPU_F64:
    case TTPU_C128: return x;
    case TTPU_F16:
    case TTPU_C32: return (double)base_f32_from_f16(base_f16_from_f32((float)x));
    case TTPU_BF16: return (double)base_f32_from_bf16(base_bf16_from_f32((float)x));
    case TTPU_F8E4M3FN: return (double)base_f32_from_f8e4m3fn(base_f8e4m3fn_from_f32((float)x));
    case TTPU_F8E5M2: return (double)base_f32_from_f8e5m2(base_f8e5m2_from_f32((float)x));
    default: return base_dtype_is_rare(to) ? rare_widen(to, rare_narrow(to, x)) : (double)(float)x;
  }
}

base_scalar base_scalar_convert(ttpu_dtype from, ttpu_dtype to, base_scalar v) {
  ttpu_dtype_class source = base_dtypes[from].cls, target = base_dtypes[to].cls;
  bool from_float = source == DTYPE_FLOAT || source == DTYPE_COMPLEX;
  base_scalar r = {.d = {0, 0}};
  if (target == DTYPE_BOOL) {
    r.i = from_float ? v.d[0] != 0 || (source == DTYPE_COMPLEX && v.d[1] != 0) : v.i != 0;
    return r;
  }
  if (target == DTYPE_SIGNED || target == DTYPE_UNSIGNED)
    return integer_wrap(to, from_float ? integer_from_f64(to, v.d[0]) : v.i);
  if (from_float) {
    r.d[0] = float_round(to, v.d[0]);
    if (target == DTYPE_COMPLEX && source == DTYPE_COMPLEX) r.d[1] = float_round(to, v.d[1]);
    return r;
  }
  /* An integer goes to f32 in one rounding: by way of f64 there would be two. */
  bool wide = to == TTPU_F64 || to == TTPU_C128;
  if (source == DTYPE_UNSIGNED) r.d[0] = wide ? (double)v.u : (double)(float)v.u;
  else r.d[0] = wide ? (double)v.i : (double)(float)v.i;
  r.d[0] = float_round(to, r.d[0]);
  return r;
}
