/* Views: pointer, dims, strides over memory that somebody else owns. */
#include "soft/soft_int.h"

soft_view soft_view_dense(ttpu_dtype dtype, uint32_t rank, const int64_t *dims, void *data) {
  soft_view v = {.data = data, .dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; ++i) v.dims[i] = dims[i];
  base_row_major(rank, dims, v.strides);
  return v;
}

/* Strides of dimensions of size 1 do not matter, and none does where there are no elements. */
bool soft_view_is_dense(const soft_view *v) {
  if (base_numel(v->rank, v->dims) == 0) return true;
  int64_t stride = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    if (v->dims[i] != 1 && v->strides[i] != stride) return false;
    stride *= v->dims[i];
  }
  return true;
}

/* ---- views of views --------------------------------------------------------------------------------- */

static bool contains(ir_i64s list, int64_t x) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == x) return true;
  return false;
}

/* Moves the view's first element by `elements`. */
static void *shifted(const soft_view *x, int64_t elements) {
  return (char *)x->data + elements * (int64_t)base_dtype_bytes(x->dtype);
}

/* x's dimensions are merged where they run on (sizes of 1 aside); each such run is then split into the dimensions of y
 * that it must hold, from the last one up. */
static bool view_reshape(const soft_view *x, soft_view *y) {
  int64_t sizes[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
  uint32_t runs = 0, k = y->rank; /* k: dimensions of y that have no stride yet */
  base_row_major(y->rank, y->dims, y->strides);
  if (base_numel(y->rank, y->dims) == 0) return true;
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (x->dims[d] == 1) continue;
    bool joins = runs > 0 && strides[runs - 1] == x->strides[d] * x->dims[d];
    if (!joins) sizes[runs++] = 1;
    sizes[runs - 1] *= x->dims[d], strides[runs - 1] = x->strides[d];
  }
  for (uint32_t r = runs; r-- > 0;) {
    int64_t size = sizes[r], step = strides[r];
    while (size > 1) {
      --k;
      if (size % y->dims[k] != 0) return false;
      y->strides[k] = step;
      step *= y->dims[k], size /= y->dims[k];
    }
  }
  return true;
}

static bool view_as_strided(const ir_as_strided_attrs *a, const soft_view *x, soft_view *y) {
  if (!soft_view_is_dense(x)) return false;
  int64_t low = a->offset, high = a->offset;
  for (uint32_t d = 0; d < y->rank; ++d) {
    int64_t reach = (y->dims[d] - 1) * a->strides.data[d];
    if (reach < 0) low += reach;
    else high += reach;
    y->strides[d] = a->strides.data[d];
  }
  if (base_numel(y->rank, y->dims) > 0 && (low < 0 || high >= base_numel(x->rank, x->dims))) return false;
  y->data = shifted(x, a->offset);
  return true;
}

bool soft_view_of(const ir_op *op, const soft_view *x, soft_view *y) {
  int64_t shift = 0;
  y->data = x->data;
  switch ((ir_kind)op->kind) {
    case IR_BROADCAST_IN_DIM: {
      const ir_i64s map = IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions;
      for (uint32_t d = 0; d < y->rank; ++d) y->strides[d] = 0;
      for (uint32_t d = 0; d < x->rank; ++d) y->strides[map.data[d]] = x->dims[d] == 1 ? 0 : x->strides[d];
      return true;
    }
    case IR_RESHAPE: return view_reshape(x, y);
    case IR_REVERSE:
      for (uint32_t d = 0; d < y->rank; ++d) {
        bool reversed = contains(IR_ATTRS(op, dims)->dimensions, d) && x->dims[d] > 0;
        y->strides[d] = reversed ? -x->strides[d] : x->strides[d];
        if (reversed) shift += (x->dims[d] - 1) * x->strides[d];
      }
      y->data = shifted(x, shift);
      return true;
    case IR_SLICE: {
      const ir_slice_attrs *a = IR_ATTRS(op, slice);
      for (uint32_t d = 0; d < y->rank; ++d) {
        y->strides[d] = x->strides[d] * (d < a->strides.count ? a->strides.data[d] : 1);
        shift += a->start_indices.data[d] * x->strides[d];
      }
      if (base_numel(y->rank, y->dims) > 0) y->data = shifted(x, shift);
      return true;
    }
    case IR_TRANSPOSE:
      for (uint32_t d = 0; d < y->rank; ++d) y->strides[d] = x->strides[IR_ATTRS(op, transpose)->permutation.data[d]];
      return true;
    case IR_AS_STRIDED: return view_as_strided(IR_ATTRS(op, as_strided), x, y);
    default: return false;
  }
}
