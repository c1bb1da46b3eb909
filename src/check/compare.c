/* Comparing as StableHLO's CheckOps do:
 *   eq         equal values; of floats +0 equals -0, and NaN equals NaN: files of JAX's results mean it so
 *   almost_eq  a difference of at most `tolerance`; both NaN is equal; infinities are equal to themselves
 *   close      between min_ulp and max_ulp representable values apart, counted from 0 for signs that differ; NaN is 0
 *              from NaN, and any other pair with a NaN or infinity in it as far apart as can be
 * Complex numbers agree when both parts do. */
#include "check/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one element ---------------------------------------------------------------------------- */

static bool almost_equal(double a, double b, double tolerance) {
  if (a == b || (isnan(a) && isnan(b))) return true;
  return isfinite(a) && isfinite(b) && fabs(a - b) <= tolerance;
}

/* The bits without the sign, as a number. */
static uint64_t magnitude(ttpu_dtype t, const void *p) {
  uint64_t bits = 0;
  memcpy(&bits, p, base_dtype_bytes(t));
  return bits & (((uint64_t)1 << (base_dtype_bits(t) - 1)) - 1);
}

static uint64_t ulp_difference(ttpu_dtype t, const void *p, const void *q) {
  double a = base_scalar_load(t, p).d[0], b = base_scalar_load(t, q).d[0];
  if (memcmp(p, q, base_dtype_bytes(t)) == 0 || (isnan(a) && isnan(b))) return 0;
  if (!isfinite(a) || !isfinite(b)) return UINT64_MAX;
  uint64_t x = magnitude(t, p), y = magnitude(t, q);
  if (signbit(a) != signbit(b)) return x + y;
  return x > y ? x - y : y - x;
}

static bool part_agrees(const ir_check *check, ttpu_dtype t, const void *p, const void *q) {
  double a = base_scalar_load(t, p).d[0], b = base_scalar_load(t, q).d[0];
  switch (check->kind) {
    case IR_CHECK_EQ: return a == b || (isnan(a) && isnan(b));
    case IR_CHECK_ALMOST_EQ: return almost_equal(a, b, check->tolerance);
    case IR_CHECK_CLOSE: {
      uint64_t apart = ulp_difference(t, p, q);
      return apart >= check->min_ulp && apart <= check->max_ulp;
    }
  }
  return false;
}

static bool element_agrees(const ir_check *check, ttpu_dtype t, const uint8_t *p, const uint8_t *q) {
  if (base_dtype_is_float(t)) return part_agrees(check, t, p, q);
  if (!base_dtype_is_complex(t)) return base_scalar_load(t, p).i == base_scalar_load(t, q).i;
  ttpu_dtype part = t == TTPU_C64 ? TTPU_F32 : TTPU_F64;
  size_t half = base_dtype_bytes(part);
  return part_agrees(check, part, p, q) && part_agrees(check, part, p + half, q + half);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void show(ttpu_dtype t, const void *p, char *text, size_t size) {
  base_scalar v = base_scalar_load(t, p);
  if (base_dtype_is_float(t)) snprintf(text, size, "%.9g", v.d[0]);
  else if (base_dtype_is_complex(t)) snprintf(text, size, "(%.9g, %.9g)", v.d[0], v.d[1]);
  else snprintf(text, size, "%lld", (long long)v.i);
}

bool check_compare(const ir_check *check, ir_type type, const void *actual, const void *expected, char *message,
                   size_t size) {
  ttpu_dtype t = (ttpu_dtype)type.dtype;
  size_t bytes = base_dtype_bytes(t);
  int64_t count = ir_numel(type), wrong = 0, first = 0;
  for (int64_t i = 0; i < count; ++i) {
    size_t at = (size_t)i * bytes;
    if (element_agrees(check, t, (const uint8_t *)actual + at, (const uint8_t *)expected + at)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return true;
  char a[80], b[80];
  show(t, (const uint8_t *)actual + (size_t)first * bytes, a, sizeof a);
  show(t, (const uint8_t *)expected + (size_t)first * bytes, b, sizeof b);
  snprintf(message, size, "line %u: %lld of %lld elements of %s differ: element %lld is %s, expected %s", check->line,
           (long long)wrong, (long long)count, base_dtypes[t].hlo_name, (long long)first, a, b);
  return false;
}
