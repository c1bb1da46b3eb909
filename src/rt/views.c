/* Reading and writing views of a storage's value, as IR.
 *
 * A dtype that StableHLO has not (complex32) ends here: a storage holds its elements as those of another dtype, views
 * are read and written as such, and what comes out of a read, and what goes into a write, is of the dtype that programs
 * compute in. */
#include "rt/rt_int.h"

bool rt_view_is_dense(const aten_tensor *t, uint32_t order[TTPU_MAX_RANK]) {
  if (t->offset != 0) return false;
  /* Insertion sort by stride, descending; equal strides keep their order, size 1 does not matter. */
  for (uint32_t i = 0; i < t->rank; ++i) {
    uint32_t at = i;
    while (at > 0 && t->strides[order[at - 1]] < t->strides[i] && t->sizes[i] != 1) {
      order[at] = order[at - 1];
      --at;
    }
    order[at] = i;
  }
  int64_t expected = 1;
  for (uint32_t i = t->rank; i-- > 0;) {
    uint32_t d = order[i];
    if (t->sizes[d] == 0) return true;
    if (t->sizes[d] == 1) continue;
    if (t->strides[d] != expected) return false;
    expected *= t->sizes[d];
  }
  return true;
}

static ir_value flatten(ir_builder *b, ir_value v) {
  if (b->status != TTPU_OK) return 0;
  int64_t n = ir_numel(ir_type_of(b->func, v));
  return ir_reshape(b, v, 1, &n);
}

/* A flat value of real dtype read as another real dtype. */
static ir_value reinterpret_real(ir_builder *b, ir_value v, ttpu_dtype to) {
  if (b->status != TTPU_OK) return 0;
  ttpu_dtype from = (ttpu_dtype)ir_type_of(b->func, v).dtype;
  if (from == to) return v;
  if (from == TTPU_BOOL) return reinterpret_real(b, ir_convert(b, v, TTPU_U8), to);
  if (to == TTPU_BOOL) {
    ir_value bytes = reinterpret_real(b, v, TTPU_U8);
    return ir_compare(b, IR_NE, bytes, ir_zeros_like(b, bytes));
  }
  int64_t n = ir_type_of(b->func, v).dims[0];
  int64_t from_bytes = (int64_t)base_dtype_bytes(from), to_bytes = (int64_t)base_dtype_bytes(to);
  if (from_bytes == to_bytes) return ir_bitcast_convert(b, v, to);
  if (from_bytes > to_bytes) { /* [n] -> [n, ratio] -> [n * ratio] */
    int64_t dims[2] = {n, from_bytes / to_bytes};
    ir_type given = ir_tensor(b, to, 2, dims);
    return flatten(b, ir_append(b, IR_BITCAST_CONVERT, 1, &v, NULL, 1, &given, 0, NULL));
  }
  int64_t ratio = to_bytes / from_bytes, whole = n / ratio;
  v = ir_slice_dim(b, v, 0, 0, whole * ratio, 1);
  int64_t dims[2] = {whole, ratio};
  v = ir_reshape(b, v, 2, dims);
  ir_type given = ir_tensor(b, to, 1, dims);
  return ir_append(b, IR_BITCAST_CONVERT, 1, &v, NULL, 1, &given, 0, NULL);
}

static ttpu_dtype component(ttpu_dtype t) { return t == TTPU_C64 ? TTPU_F32 : t == TTPU_C128 ? TTPU_F64 : t; }

/* The bytes of v as another dtype, flat; v itself where the dtype already fits. StableHLO's bitcast knows no
 * complex numbers, so they go through their components. */
static ir_value reinterpret(ir_builder *b, ir_value v, ttpu_dtype to) {
  if (b->status != TTPU_OK) return 0;
  ttpu_dtype from = (ttpu_dtype)ir_type_of(b->func, v).dtype;
  if (from == to) return v;
  v = flatten(b, v);
  if (base_dtype_is_complex(from)) {
    int64_t pair[2] = {b->status == TTPU_OK ? ir_type_of(b->func, v).dims[0] : 0, 1};
    ir_value parts[2] = {ir_reshape(b, ir_real(b, v), 2, pair), ir_reshape(b, ir_imag(b, v), 2, pair)};
    v = flatten(b, ir_concatenate(b, 2, parts, 1));
  }
  v = reinterpret_real(b, v, component(to));
  if (base_dtype_is_complex(to) && b->status == TTPU_OK) {
    int64_t whole = ir_type_of(b->func, v).dims[0] / 2;
    v = ir_slice_dim(b, v, 0, 0, whole * 2, 1);
    ir_value real = ir_slice_dim(b, v, 0, 0, whole * 2, 2);
    ir_value imaginary = ir_slice_dim(b, v, 0, whole > 0 ? 1 : 0, whole * 2, 2);
    v = ir_complex(b, real, imaginary);
  }
  return v;
}

/* ---- elements of dtypes that StableHLO has not ---- */

/* The f16 in bits [shift, shift + 16) of each ui32, as f32. */
static ir_value half_at(ir_builder *b, ir_value v, int64_t shift) {
  if (b->status != TTPU_OK) return 0;
  ir_type t = ir_type_of(b->func, v);
  if (shift > 0) v = ir_shift_right_logical(b, v, ir_fill_i64(b, TTPU_U32, t.rank, t.dims, shift));
  else v = ir_and_bits(b, v, ir_fill_i64(b, TTPU_U32, t.rank, t.dims, 0xffff));
  return ir_convert(b, ir_bitcast_convert(b, ir_convert(b, v, TTPU_U16), TTPU_F16), TTPU_F32);
}

/* The bits of x rounded to f16, as ui32. */
static ir_value half_bits(ir_builder *b, ir_value x) {
  return ir_convert(b, ir_bitcast_convert(b, ir_convert(b, x, TTPU_F16), TTPU_U16), TTPU_U32);
}

/* Pairs of f16 in the halves of an integer, the real part in the lower one, as it lies in memory. Element by element, so
 * that it becomes part of what reads or makes the value; a last dimension of 2 would not. */
static ir_value unpack(ir_builder *b, ttpu_dtype dtype, ir_value v) {
  return dtype == TTPU_C32 ? ir_complex(b, half_at(b, v, 0), half_at(b, v, 16)) : v;
}

ir_value rt_view_pack(ir_builder *b, ttpu_dtype dtype, ir_value v) {
  if (dtype != TTPU_C32 || b->status != TTPU_OK) return v;
  ir_type t = ir_type_of(b->func, v);
  ir_value shift = ir_fill_i64(b, TTPU_U32, t.rank, t.dims, 16);
  return ir_or_bits(b, half_bits(b, ir_real(b, v)), ir_shift_left(b, half_bits(b, ir_imag(b, v)), shift));
}

/* ---- views ---- */

ir_value rt_view_to_memory(ir_builder *b, const aten_tensor *t, const uint32_t *order, ir_value v) {
  int64_t permutation[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; ++i) permutation[i] = order[i];
  return ir_transpose(b, v, permutation);
}

static ir_value read_stored(ir_builder *b, ir_value base, const aten_tensor *t) {
  base = reinterpret(b, base, base_dtype_stored((ttpu_dtype)t->dtype));
  if (b->status != TTPU_OK) return 0;
  uint32_t order[TTPU_MAX_RANK];
  if (!rt_view_is_dense(t, order) || ir_numel(ir_type_of(b->func, base)) != base_numel(t->rank, t->sizes))
    return ir_as_strided(b, base, t->rank, t->sizes, t->strides, t->offset);
  int64_t dims[TTPU_MAX_RANK], permutation[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; ++i) {
    dims[i] = t->sizes[order[i]];
    permutation[order[i]] = i;
  }
  return ir_transpose(b, ir_reshape(b, base, t->rank, dims), permutation);
}

ir_value rt_view_read(ir_builder *b, ir_value base, const aten_tensor *t) {
  return unpack(b, (ttpu_dtype)t->dtype, read_stored(b, base, t));
}

ir_value rt_view_write(ir_builder *b, ir_value base, const aten_tensor *t, ir_value update) {
  base = reinterpret(b, base, base_dtype_stored((ttpu_dtype)t->dtype));
  return ir_as_strided_update(b, base, update, t->strides, t->offset);
}
