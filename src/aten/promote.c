/* PyTorch's type promotion: c10/core/ScalarType's table, and at::native::result_type. */
#include "aten/aten.h"
#include "aten/aten_int.h"

/* Rank of a category: bool < integer < float < complex. A higher one wins whatever its width. */
static int category(ttpu_dtype t) {
  switch (base_dtypes[t].cls) {
    case DTYPE_BOOL: return 0;
    case DTYPE_UNSIGNED:
    case DTYPE_SIGNED: return 1;
    case DTYPE_FLOAT: return 2;
    case DTYPE_COMPLEX: return 3;
    case DTYPE_TOKEN: break;
  }
  return 0;
}

static bool is_wide_unsigned(ttpu_dtype t) { return t == TTPU_U16 || t == TTPU_U32 || t == TTPU_U64; }

/* uint8 has a common type with every signed one, the wider unsigned types with floats alone. */
static bool have_common(ttpu_dtype a, ttpu_dtype b) {
  if (a == b || a == TTPU_NO_DTYPE || b == TTPU_NO_DTYPE) return true;
  if (is_wide_unsigned(a)) return category(b) == 2;
  return !is_wide_unsigned(b) || category(a) == 2;
}

/* (For pairs that have none, some type: aten_promotion refuses them.) */
static ttpu_dtype promote_integers(ttpu_dtype a, ttpu_dtype b) {
  static const ttpu_dtype by_bytes[9] = {[1] = TTPU_I8, [2] = TTPU_I16, [4] = TTPU_I32, [8] = TTPU_I64};
  bool signed_a = base_dtype_is_signed(a), signed_b = base_dtype_is_signed(b);
  size_t bytes_a = base_dtype_bytes(a), bytes_b = base_dtype_bytes(b);
  if (signed_a == signed_b) return bytes_a >= bytes_b ? a : b;
  size_t signed_bytes = signed_a ? bytes_a : bytes_b, unsigned_bytes = signed_a ? bytes_b : bytes_a;
  size_t bytes = signed_bytes > unsigned_bytes ? signed_bytes : 2 * unsigned_bytes;
  return by_bytes[bytes > 8 ? 8 : bytes];
}

static ttpu_dtype promote_floats(ttpu_dtype a, ttpu_dtype b) {
  size_t bytes_a = base_dtype_bytes(a), bytes_b = base_dtype_bytes(b);
  if (bytes_a == bytes_b) return TTPU_F32; /* f16 with bf16; the 8-bit ones have no common type */
  return bytes_a > bytes_b ? a : b;
}

/* The narrowest complex dtype that a number of t promotes to. */
static ttpu_dtype complex_with(ttpu_dtype t) {
  if (t == TTPU_F64 || t == TTPU_C128) return TTPU_C128;
  return t == TTPU_F32 || t == TTPU_BF16 || t == TTPU_C64 ? TTPU_C64 : TTPU_C32;
}

ttpu_dtype aten_promote(ttpu_dtype a, ttpu_dtype b) {
  if (a == b || b == TTPU_NO_DTYPE) return a;
  if (a == TTPU_NO_DTYPE) return b;
  int of_a = category(a), of_b = category(b);
  if (of_a == 3 || of_b == 3) { /* the wider of the complex types that go with a and with b */
    ttpu_dtype with_a = complex_with(a), with_b = complex_with(b);
    return base_dtype_bytes(with_a) > base_dtype_bytes(with_b) ? with_a : with_b;
  }
  if (of_a != of_b) return of_a > of_b ? a : b;
  return of_a == 1 ? promote_integers(a, b) : promote_floats(a, b);
}

static void add_to(aten_promotion *p, ttpu_dtype *sum, ttpu_dtype t) {
  p->refused |= !have_common(*sum, t);
  *sum = aten_promote(*sum, t);
}

void aten_promotion_add(aten_promotion *p, const aten_tensor *t) {
  if (t->flags & ATEN_UNDEFINED) return;
  if (t->flags & ATEN_WRAPPED) aten_promotion_add_number(p, t->dtype);
  else add_to(p, t->rank == 0 ? &p->zero : &p->dim, t->dtype);
}

/* A Python float counts as the default float, which is taken to be f32 (the caller looks at the result's dtype where
 * it matters). */
void aten_promotion_add_number(aten_promotion *p, ttpu_dtype number) {
  if (number == TTPU_F64) number = TTPU_F32;
  if (number == TTPU_C128) number = TTPU_C64;
  add_to(p, &p->wrapped, number);
}

static ttpu_dtype combine(ttpu_dtype higher, ttpu_dtype lower, bool *refused) {
  if (higher == TTPU_NO_DTYPE) return lower;
  if (lower == TTPU_NO_DTYPE) return higher;
  if (category(higher) >= category(lower)) return higher;
  *refused |= category(lower) < 3 && !have_common(higher, lower); /* a complex number of lower priority goes with all */
  /* A complex number of lower priority takes the precision of the floating tensor. */
  if (category(lower) == 3 && category(higher) == 2) return complex_with(higher);
  return lower;
}

ttpu_dtype aten_promotion_result(const aten_promotion *p) {
  bool refused = p->refused;
  ttpu_dtype t = combine(p->dim, combine(p->zero, p->wrapped, &refused), &refused);
  return refused ? TTPU_NO_DTYPE : t;
}
