/* Random programs for tests that want two ways of running one to agree to the bit.
 *
 * The data are small whole numbers and the operations are exact on them or correctly rounded, so every order of
 * evaluation gives the same bits. A fuzz starts from a seed, with an arena, an empty function and a builder on it;
 * build() appends parameters, operations and the return. */
#ifndef TTPU_SOFT_PROGRAMS_H
#define TTPU_SOFT_PROGRAMS_H

#include "check.h"
#include "soft/soft_int.h"

enum { MOST_VALUES = 160, MOST_ELEMENTS = 20000 };

typedef struct fuzz {
  uint64_t seed;
  base_arena *arena;
  ir_func *f;
  ir_builder b;
  ir_value values[MOST_VALUES];
  uint32_t count;
  int64_t dims[4]; /* sizes to draw from */
  int64_t longer;  /* added to those above 1 */
} fuzz;

static uint32_t draw(fuzz *z, uint32_t n) { return (uint32_t)(check_random(&z->seed) >> 33) % n; }
static void keep(fuzz *z, ir_value v) {
  if (v && z->count < MOST_VALUES) z->values[z->count++] = v;
}
static ir_type type_of(const fuzz *z, ir_value v) { return ir_type_of(z->f, v); }
/* Recent values more often, so that chains arise. */
static ir_value pick(fuzz *z) {
  uint32_t n = draw(z, 3) ? (z->count < 6 ? z->count : 6) : z->count;
  return z->values[z->count - 1 - draw(z, n)];
}
static ir_value pick_like(fuzz *z, ir_value x) {
  ir_value found = x;
  for (uint32_t i = 0, seen = 0; i < z->count; ++i)
    if (ir_type_equal(type_of(z, z->values[i]), type_of(z, x)) && draw(z, ++seen) == 0) found = z->values[i];
  return found;
}

static const ttpu_dtype all_dtypes[] = {TTPU_F32, TTPU_F32,  TTPU_F32,  TTPU_BF16,   TTPU_F16,     TTPU_F64, TTPU_I32,
                                        TTPU_I64, TTPU_BOOL, TTPU_U8,   TTPU_I8,     TTPU_I16,     TTPU_U16, TTPU_U32,
                                        TTPU_U64, TTPU_C64,  TTPU_C128, TTPU_F8E5M2, TTPU_F8E4M3FN};
static ttpu_dtype draw_dtype(fuzz *z) { return all_dtypes[draw(z, sizeof all_dtypes / sizeof *all_dtypes)]; }

static void draw_shape(fuzz *z, uint32_t *rank, int64_t *dims) {
  *rank = draw(z, 4);
  for (uint32_t d = 0; d < *rank; ++d) dims[d] = draw(z, 5) ? z->dims[draw(z, 4)] : 1;
  for (uint32_t d = 0; d < *rank && base_numel(*rank, dims) > MOST_ELEMENTS; ++d) dims[d] = dims[d] > 16 ? 5 : dims[d];
}

/* ---- operations ------------------------------------------------------------------------------- */

static bool is_ordered(ttpu_dtype t) { return !base_dtype_is_complex(t); }

/* Keeps numbers small after products and sums. */
static ir_value bound(fuzz *z, ir_value x) {
  ttpu_dtype t = type_of(z, x).dtype;
  if (t == TTPU_BOOL) return x;
  if (!is_ordered(t)) return draw(z, 2) ? x : ir_negate(&z->b, x);
  bool natural = base_dtypes[t].cls == DTYPE_UNSIGNED;
  return ir_clamp(&z->b, ir_scalar_f64(&z->b, t, natural ? 0 : -7), x, ir_scalar_f64(&z->b, t, 7));
}

static ir_value op_unary(fuzz *z) {
  ir_value x = pick(z);
  ttpu_dtype t = type_of(z, x).dtype;
  switch (base_dtypes[t].cls) {
    case DTYPE_BOOL: return ir_not_bits(&z->b, x);
    case DTYPE_UNSIGNED: return draw(z, 2) ? ir_popcnt(&z->b, x) : ir_count_leading_zeros(&z->b, x);
    case DTYPE_SIGNED: return draw(z, 3) ? ir_negate(&z->b, x) : draw(z, 2) ? ir_abs(&z->b, x) : ir_sign(&z->b, x);
    case DTYPE_COMPLEX: return draw(z, 2) ? ir_negate(&z->b, x) : draw(z, 2) ? ir_real(&z->b, x) : ir_imag(&z->b, x);
    default:
      switch (draw(z, 7)) {
        case 0: return ir_abs(&z->b, x);
        case 1: return ir_floor(&z->b, x);
        case 2: return ir_sign(&z->b, x);
        case 3: return ir_round_nearest_even(&z->b, x);
        case 4: return ir_is_finite(&z->b, x);
        case 5: return ir_round_nearest_afz(&z->b, x);
        default: return ir_negate(&z->b, x);
      }
  }
}

static ir_value op_binary(fuzz *z) {
  ir_value x = pick(z), y = pick_like(z, x);
  ttpu_dtype t = type_of(z, x).dtype;
  bool integral = base_dtype_is_integer(t) || t == TTPU_BOOL;
  switch (is_ordered(t) ? draw(z, 8) : 7) {
    case 0: return bound(z, ir_multiply(&z->b, x, y));
    case 1: return t == TTPU_BOOL ? ir_xor_bits(&z->b, x, y) : bound(z, ir_subtract(&z->b, x, y));
    case 2: return ir_maximum(&z->b, x, y);
    case 3: return ir_minimum(&z->b, x, y);
    case 4: return integral ? ir_and_bits(&z->b, x, y) : bound(z, ir_add(&z->b, x, y));
    case 5: return base_dtype_is_integer(t) ? ir_shift_right_arithmetic(&z->b, x, y) : ir_add(&z->b, x, y);
    case 6:
      return base_dtype_is_integer(t) ? (draw(z, 2) ? ir_divide(&z->b, x, y) : ir_remainder(&z->b, x, y))
                                      : ir_maximum(&z->b, x, y);
    default: return bound(z, ir_add(&z->b, x, y));
  }
}

static ir_value op_compare_select(fuzz *z) {
  ir_value x = pick(z), y = pick_like(z, x);
  bool ordered = is_ordered(type_of(z, x).dtype);
  ir_value p = ir_compare(&z->b, (ir_direction)(ordered ? draw(z, 6) : draw(z, 2)), x, y);
  if (draw(z, 3) == 0) keep(z, p);
  return draw(z, 4) ? ir_select(&z->b, p, x, y) : p;
}

static ir_value op_convert(fuzz *z) {
  ir_value x = pick(z);
  ttpu_dtype from = type_of(z, x).dtype, to = draw_dtype(z);
  if (base_dtype_is_complex(from) && !base_dtype_is_complex(to)) x = ir_real(&z->b, x);
  if (base_dtypes[to].cls == DTYPE_UNSIGNED && !(base_dtypes[from].cls == DTYPE_UNSIGNED) && from != TTPU_BOOL)
    x = type_of(z, x).dtype == TTPU_BOOL ? x : ir_abs(&z->b, x);
  return ir_convert(&z->b, x, to);
}

static const ir_kind folds[] = {IR_ADD, IR_MAXIMUM, IR_MINIMUM, IR_MULTIPLY, IR_AND, IR_OR};
static ir_value op_reduce(fuzz *z) {
  ir_value x = pick(z);
  ir_type t = type_of(z, x);
  if (t.rank == 0) return 0;
  int64_t dims[4];
  uint32_t count = 0, style = draw(z, 3); /* trailing, leading, any */
  uint32_t k = 1 + draw(z, t.rank);
  for (uint32_t d = 0; d < t.rank; ++d)
    if (style == 0 ? d >= t.rank - k : style == 1 ? d < k : draw(z, 2)) dims[count++] = d;
  if (!count) return 0;
  ir_kind kind = folds[draw(z, 6)];
  bool integral = base_dtype_is_integer((ttpu_dtype)t.dtype) || t.dtype == TTPU_BOOL;
  if ((kind == IR_AND || kind == IR_OR) && !integral) kind = IR_ADD;
  if (base_dtype_is_complex((ttpu_dtype)t.dtype) || (kind == IR_MULTIPLY && base_dtype_is_float((ttpu_dtype)t.dtype)))
    kind = IR_ADD;
  ir_value r = bound(z, ir_reduce(&z->b, kind, x, count, dims));
  if (draw(z, 2)) return r;
  keep(z, r);
  /* Back over the reduced dims, with or without a reshape to dims of size 1 in between: the softmax pattern. */
  int64_t map[4], ones[4];
  uint32_t n = 0;
  for (uint32_t d = 0; d < t.rank; ++d) {
    bool gone = false;
    for (uint32_t i = 0; i < count; ++i) gone |= dims[i] == d;
    ones[d] = gone ? 1 : t.dims[d];
    if (!gone) map[n++] = d;
  }
  if (draw(z, 2)) {
    r = ir_reshape(&z->b, r, t.rank, ones);
    for (uint32_t d = 0; d < t.rank; ++d) map[d] = d;
  }
  ir_value back = ir_broadcast_in_dim(&z->b, r, t.rank, t.dims, map);
  return t.dtype == TTPU_BOOL ? ir_and_bits(&z->b, x, back) : bound(z, ir_subtract(&z->b, x, back));
}

static ir_value op_view(fuzz *z) {
  ir_value x = pick(z);
  ir_type t = type_of(z, x);
  int64_t a[8], c[8], s[8];
  switch (draw(z, 7)) {
    case 0: { /* transpose */
      if (t.rank < 2) return 0;
      for (uint32_t d = 0; d < t.rank; ++d) a[d] = (d + 1) % t.rank;
      return ir_transpose(&z->b, x, a);
    }
    case 1: /* slice */
      for (uint32_t d = 0; d < t.rank; ++d) {
        a[d] = t.dims[d] > 1 ? draw(z, 2) : 0;
        c[d] = t.dims[d], s[d] = 1 + draw(z, 2);
      }
      return ir_slice(&z->b, x, a, c, s);
    case 2: { /* reverse */
      if (!t.rank) return 0;
      a[0] = draw(z, t.rank);
      return ir_reverse(&z->b, x, 1, a);
    }
    case 3: { /* reshape to fewer dims */
      if (t.rank < 2) return 0;
      uint32_t at = draw(z, t.rank - 1), n = 0;
      for (uint32_t d = 0; d < t.rank; ++d) {
        if (d == at + 1) a[n - 1] *= t.dims[d];
        else a[n++] = t.dims[d];
      }
      return ir_reshape(&z->b, x, n, a);
    }
    case 4: { /* a new dim in front or behind */
      bool front = draw(z, 2);
      a[0] = z->dims[draw(z, 4)];
      if (t.rank > 3 || ir_numel(t) * a[0] > MOST_ELEMENTS) return 0;
      for (uint32_t d = 0; d < t.rank; ++d) a[d + 1] = t.dims[d], c[d] = d + 1;
      if (!front) {
        for (uint32_t d = 0; d < t.rank; ++d) c[d] = d, s[d] = t.dims[d];
        s[t.rank] = a[0];
        return ir_broadcast_in_dim(&z->b, x, t.rank + 1, s, c);
      }
      return ir_broadcast_in_dim(&z->b, x, t.rank + 1, a, c);
    }
    case 5: { /* as_strided: every second element, flat */
      int64_t n = ir_numel(t);
      if (n < 4 || t.rank > 3) return 0;
      a[0] = (n - 1) / 2, s[0] = 2;
      return ir_as_strided(&z->b, x, 1, a, s, 1);
    }
    default: { /* insert a 1 */
      if (t.rank > 3) return 0;
      uint32_t at = draw(z, t.rank + 1);
      for (uint32_t d = 0; d <= t.rank; ++d) a[d] = d < at ? t.dims[d] : d == at ? 1 : t.dims[d - 1];
      return ir_reshape(&z->b, x, t.rank + 1, a);
    }
  }
}

static ir_value op_move(fuzz *z) {
  ir_value x = pick(z);
  ir_type t = type_of(z, x);
  switch (draw(z, 4)) {
    case 0: {
      if (!t.rank) return 0;
      if (2 * ir_numel(t) > MOST_ELEMENTS) return 0;
      ir_value both[2] = {x, pick_like(z, x)};
      return ir_concatenate(&z->b, 2, both, draw(z, t.rank));
    }
    case 1: {
      int64_t n = ir_numel(t), size = n / 2, stride = 1;
      if (n < 2) return 0;
      ir_value update = ir_as_strided(&z->b, x, 1, &size, &stride, n - size);
      return ir_as_strided_update(&z->b, pick_like(z, x), draw(z, 2) ? ir_maximum(&z->b, update, update) : update,
                                  &stride, n - size > size ? 1 : 0);
    }
    case 2: {
      if (t.rank == 0 || t.rank > 3 || t.dtype != TTPU_I32) return 0;
      return ir_check_index(&z->b, x, -(1ll << 40), 1ll << 40, IR_BAD_INDEX, "fuzz");
    }
    default: {
      int64_t dims[4];
      if (t.rank == 0) return 0;
      memcpy(dims, t.dims, t.rank * sizeof *dims);
      ir_value i = ir_iota(&z->b, TTPU_I32, t.rank, dims, draw(z, t.rank));
      ir_value limited = ir_remainder(&z->b, i, ir_fill_i64(&z->b, TTPU_I32, t.rank, dims, 5));
      return ir_convert(&z->b, limited, (ttpu_dtype)t.dtype);
    }
  }
}

/* A Python number: one element of a parameter of numbers, converted and spread. */
static ir_value op_number(fuzz *z) {
  ir_value x = pick(z);
  ir_type t = type_of(z, x);
  if (base_dtype_is_complex((ttpu_dtype)t.dtype) || t.dtype == TTPU_BOOL) return 0;
  int64_t start = draw(z, 4), limit = start + 1;
  ir_value s = ir_reshape(&z->b, ir_slice(&z->b, z->values[0], &start, &limit, NULL), 0, NULL);
  if (draw(z, 2)) s = ir_add(&z->b, s, ir_scalar_f64(&z->b, TTPU_F64, 1));
  s = ir_convert(&z->b, s, (ttpu_dtype)t.dtype);
  if (draw(z, 4) == 0) keep(z, s);
  int64_t dims[8];
  memcpy(dims, t.dims, t.rank * sizeof *dims);
  return bound(z, ir_add(&z->b, x, ir_broadcast_to(&z->b, s, t.rank, dims)));
}

static void build(fuzz *z, uint32_t ops) {
  static const int64_t sizes[] = {2, 3, 4, 7, 9, 16, 33, 70, 0};
  for (uint32_t i = 0; i < 4; ++i) z->dims[i] = sizes[draw(z, 20) == 0 ? 8 : draw(z, 8)];
  if (draw(z, 8) == 0) z->dims[3] = 3000 + draw(z, 3000);
  for (uint32_t i = 0; i < 4; ++i) z->dims[i] += z->dims[i] > 1 ? z->longer : 0;
  int64_t four = 4;
  keep(z, ir_param(&z->b, ir_tensor(&z->b, TTPU_F64, 1, &four)));
  uint32_t params = 1 + draw(z, 4);
  for (uint32_t i = 0; i < params; ++i) {
    uint32_t rank;
    int64_t dims[4];
    draw_shape(z, &rank, dims);
    keep(z, ir_param(&z->b, ir_tensor(&z->b, draw_dtype(z), rank, dims)));
  }
  for (uint32_t i = 0; i < ops && z->b.status == TTPU_OK; ++i) {
    ir_value v;
    switch (draw(z, 16)) {
      case 0:
      case 1:
      case 2: v = op_unary(z); break;
      case 3:
      case 4:
      case 5:
      case 6: v = op_binary(z); break;
      case 7: v = op_compare_select(z); break;
      case 8: v = op_convert(z); break;
      case 9:
      case 10:
      case 11: v = op_reduce(z); break;
      case 12:
      case 13: v = op_view(z); break;
      case 14: v = op_number(z); break;
      default: v = op_move(z); break;
    }
    if (v && ir_numel(type_of(z, v)) > MOST_ELEMENTS) v = 0;
    keep(z, v);
  }
  ir_value results[8];
  uint32_t n = 0;
  for (uint32_t i = 0; i < 8 && n < 6; ++i) {
    ir_value v = pick(z);
    results[n++] = v;
  }
  ir_return(&z->b, n, results);
}

/* ---- running ---------------------------------------------------------------------------------- */

static size_t bytes_of(ir_type t) { return (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype); }

static void fill(uint64_t *seed, ir_type t, void *p) {
  size_t size = base_dtype_bytes((ttpu_dtype)t.dtype);
  for (int64_t i = 0, n = ir_numel(t); i < n; ++i) {
    int64_t whole = (int64_t)(check_random(seed) % 9) - 4;
    base_scalar v = {.i = whole};
    if (t.dtype == TTPU_BOOL) v.i = whole & 1;
    else if (base_dtypes[t.dtype].cls == DTYPE_UNSIGNED) v.i = whole + 4;
    else if (base_dtype_is_float((ttpu_dtype)t.dtype)) v = (base_scalar){.d = {(double)whole}};
    else if (base_dtype_is_complex((ttpu_dtype)t.dtype)) v = (base_scalar){.d = {(double)whole, (double)(whole & 3)}};
    base_scalar_store((ttpu_dtype)t.dtype, (char *)p + (size_t)i * size, v);
  }
}

#endif
