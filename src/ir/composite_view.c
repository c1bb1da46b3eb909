/* as_strided and its update in terms of index maps.
 *
 * A strided view is a slice of its operand if the operand can be seen as a row-major shape in which every dimension of
 * the view moves along one axis. Two such shapes are tried: the operand's own, which fits all basic indexing and
 * transposition, and one made from the view's strides, which fits what crosses dimensions (a diagonal, a flattened
 * part). Dimensions of stride 0 are broadcast. What is left (overlapping windows) gathers computed indices. */
#include <string.h>

#include "ir/ir_int.h"

#define TYPE(v) ir_type_of(b->func, v)

/* The operand's elements [from, from + count), padded with zeros to a whole shape where it is longer, seen as
 * `shape`, then sliced; axis i is dimension view_dim[i] of the view, or none (-1, one index taken). */
typedef struct plan {
  uint32_t rank;
  int64_t from, count;
  int64_t shape[TTPU_MAX_RANK], start[TTPU_MAX_RANK], size[TTPU_MAX_RANK], step[TTPU_MAX_RANK];
  int view_dim[TTPU_MAX_RANK];
} plan;

/* The view's dimensions that move, largest stride first. */
static uint32_t moving_dims(ir_type view, const int64_t *strides, uint32_t *order) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.dims[i] == 1 || strides[i] == 0) continue;
    uint32_t at = n++;
    for (; at > 0 && strides[order[at - 1]] < strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  return n;
}

/* Along the operand's own dimensions. */
static bool plan_own(ir_type operand, ir_type view, const ir_as_strided_attrs *a, plan *p) {
  uint32_t order[TTPU_MAX_RANK], n = moving_dims(view, a->strides.data, order);
  int64_t row_major[TTPU_MAX_RANK], rest = a->offset;
  base_row_major(operand.rank, operand.dims, row_major);
  *p = (plan){.rank = operand.rank, .count = ir_numel(operand)};
  for (uint32_t j = 0; j < operand.rank; ++j) {
    p->shape[j] = operand.dims[j];
    p->start[j] = rest / row_major[j];
    rest %= row_major[j];
    p->size[j] = p->step[j] = 1;
    p->view_dim[j] = -1;
  }
  for (uint32_t i = 0; i < n; ++i) {
    int64_t stride = a->strides.data[order[i]], size = view.dims[order[i]];
    uint32_t j = 0;
    for (; j < operand.rank; ++j) {
      bool fits = p->view_dim[j] < 0 && operand.dims[j] > 1 && stride % row_major[j] == 0;
      if (fits && p->start[j] + (size - 1) * (stride / row_major[j]) < operand.dims[j]) break;
    }
    if (j == operand.rank) return false;
    p->view_dim[j] = (int)order[i];
    p->size[j] = size;
    p->step[j] = stride / row_major[j];
  }
  return true;
}

static int64_t gcd(int64_t x, int64_t y) {
  while (y) {
    int64_t r = x % y;
    x = y;
    y = r;
  }
  return x;
}

/* Along axes made from the strides: axis i has stride t[i], each a divisor of the one before; the first is as long as
 * need be. Tried on the whole operand, then from the view's first element on. */
static bool plan_made(ir_type operand, ir_type view, const ir_as_strided_attrs *a, bool whole, plan *p) {
  uint32_t order[TTPU_MAX_RANK], n = moving_dims(view, a->strides.data, order);
  int64_t t[TTPU_MAX_RANK + 1], total = ir_numel(operand);
  *p = (plan){.from = whole ? 0 : a->offset};
  for (uint32_t i = 0; i < n; ++i) t[i] = i ? gcd(t[i - 1], a->strides.data[order[i]]) : a->strides.data[order[i]];
  p->rank = n;
  if (n == 0 || t[n - 1] != 1) t[p->rank++] = 1; /* the axis of elements between */
  if (p->rank > TTPU_MAX_RANK) return false;
  if (whole && total % t[0] != 0) return false;
  int64_t rest = whole ? a->offset : 0;
  for (uint32_t i = 0; i < p->rank; ++i) {
    bool moves = i < n;
    p->size[i] = moves ? view.dims[order[i]] : 1;
    p->step[i] = moves ? a->strides.data[order[i]] / t[i] : 1;
    p->view_dim[i] = moves ? (int)order[i] : -1;
    p->start[i] = rest / t[i];
    rest %= t[i];
    p->shape[i] = i ? t[i - 1] / t[i] : whole ? total / t[0] : p->size[0];
    if (p->start[i] + (p->size[i] - 1) * p->step[i] >= p->shape[i]) return false;
  }
  int64_t wanted = base_numel(p->rank, p->shape);
  p->count = wanted < total - p->from ? wanted : total - p->from;
  return true;
}

static bool plan_view(ir_type operand, ir_type view, const ir_as_strided_attrs *a, plan *p) {
  for (uint32_t i = 0; i < view.rank; ++i)
    if (view.dims[i] > 1 && a->strides.data[i] < 0) return false; /* PyTorch has none; indices can do it */
  return plan_own(operand, view, a, p) || plan_made(operand, view, a, true, p) || plan_made(operand, view, a, false, p);
}

/* ---- the operand in the plan's shape, and back ---------------------------------------------- */

static ir_value enter(ir_builder *b, ir_value x, const plan *p) {
  int64_t total = ir_numel(TYPE(x)), wanted = base_numel(p->rank, p->shape);
  if (p->from == 0 && p->count == total && wanted == total) return ir_reshape(b, x, p->rank, p->shape);
  const int64_t limit = p->from + p->count, missing = wanted - p->count;
  ttpu_dtype dtype = (ttpu_dtype)TYPE(x).dtype;
  x = ir_slice(b, ir_reshape(b, x, 1, &total), &p->from, &limit, NULL);
  x = ir_pad(b, x, ir_scalar_i64(b, dtype, 0), NULL, &missing, NULL);
  return ir_reshape(b, x, p->rank, p->shape);
}

/* The operand x with its planned part replaced by `part`, which has the plan's shape. */
static ir_value leave(ir_builder *b, ir_value x, ir_value part, const plan *p) {
  ir_type type = TYPE(x);
  int64_t total = ir_numel(type), wanted = base_numel(p->rank, p->shape);
  if (p->from != 0 || p->count != total || wanted != total) {
    const int64_t zero = 0;
    part = ir_slice(b, ir_reshape(b, part, 1, &wanted), &zero, &p->count, NULL);
    const ir_value start = ir_scalar_i64(b, TTPU_I64, p->from);
    part = ir_dynamic_update_slice(b, ir_reshape(b, x, 1, &total), part, &start);
  }
  return ir_reshape(b, part, type.rank, type.dims);
}

/* Index of every element of the view in the flat operand. */
static ir_value flat_indices(ir_builder *b, ir_type operand, ir_type view, const ir_as_strided_attrs *a) {
  ttpu_dtype dtype = ir_numel(operand) <= INT32_MAX ? TTPU_I32 : TTPU_I64;
  ir_value index = ir_fill_i64(b, dtype, view.rank, view.dims, a->offset);
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.dims[i] == 1 || a->strides.data[i] == 0) continue;
    ir_value stride = ir_fill_i64(b, dtype, view.rank, view.dims, a->strides.data[i]);
    index = ir_add(b, index, ir_multiply(b, ir_iota(b, dtype, view.rank, view.dims, i), stride));
  }
  return index;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Sliced axes to the view: axes without a dimension go, the others into the view's order, the rest is broadcast. */
static ir_value arrange(ir_builder *b, ir_value x, const plan *p, ir_type view) {
  int64_t kept[TTPU_MAX_RANK], permutation[TTPU_MAX_RANK], map[TTPU_MAX_RANK];
  int axis_of[TTPU_MAX_RANK];
  uint32_t n = 0, m = 0;
  for (uint32_t d = 0; d < view.rank; ++d) axis_of[d] = -1;
  for (uint32_t i = 0; i < p->rank; ++i) {
    if (p->view_dim[i] < 0) continue;
    axis_of[p->view_dim[i]] = (int)n;
    kept[n++] = p->size[i];
  }
  for (uint32_t d = 0; d < view.rank; ++d) {
    if (axis_of[d] < 0) continue;
    map[m] = d;
    permutation[m++] = axis_of[d];
  }
  x = ir_transpose(b, ir_reshape(b, x, n, kept), permutation);
  bool expands = false;
  for (uint32_t d = 0; d < view.rank; ++d) expands |= axis_of[d] < 0 && view.dims[d] > 1;
  return expands ? ir_broadcast_in_dim(b, x, view.rank, view.dims, map) : ir_reshape(b, x, view.rank, view.dims);
}

ir_value ir_view_read(ir_builder *b, ir_value x, const ir_as_strided_attrs *a, ir_type view) {
  if (b->status) return 0;
  plan p;
  ir_type operand = TYPE(x);
  if (ir_numel(view) == 0) return ir_fill_i64(b, (ttpu_dtype)view.dtype, view.rank, view.dims, 0);
  if (plan_view(operand, view, a, &p)) {
    int64_t limit[TTPU_MAX_RANK];
    for (uint32_t i = 0; i < p.rank; ++i) limit[i] = p.start[i] + (p.size[i] - 1) * p.step[i] + 1;
    return arrange(b, ir_slice(b, enter(b, x, &p), p.start, limit, p.step), &p, view);
  }
  const int64_t total = ir_numel(operand);
  return ir_take(b, ir_reshape(b, x, 1, &total), flat_indices(b, operand, view, a), 0);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The update in the plan's order of axes, with axes of size 1 where no dimension moves. */
static ir_value disarrange(ir_builder *b, ir_value update, const plan *p) {
  ir_type view = TYPE(update);
  int64_t permutation[TTPU_MAX_RANK];
  bool placed[TTPU_MAX_RANK] = {false};
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->rank; ++i)
    if (p->view_dim[i] >= 0) permutation[n++] = p->view_dim[i], placed[p->view_dim[i]] = true;
  for (uint32_t d = 0; d < view.rank; ++d) {
    if (placed[d]) continue;
    if (view.dims[d] > 1) update = ir_slice_dim(b, update, d, 0, 1, 1); /* one element many times: one number for all */
    permutation[n++] = d;
  }
  return ir_reshape(b, ir_transpose(b, update, permutation), p->rank, p->size);
}

/* `update` in `whole` at the plan's places: itself, a block, or spread by its steps and selected by a mask. */
static ir_value place(ir_builder *b, ir_value whole, ir_value update, const plan *p) {
  bool all = true, unit = true;
  int64_t low[TTPU_MAX_RANK], high[TTPU_MAX_RANK], interior[TTPU_MAX_RANK];
  ir_value starts[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < p->rank; ++i) {
    all &= p->size[i] == p->shape[i];
    unit &= p->step[i] == 1 || p->size[i] == 1;
    low[i] = p->start[i];
    high[i] = p->shape[i] - p->start[i] - (p->size[i] - 1) * p->step[i] - 1;
    interior[i] = p->step[i] - 1;
  }
  if (all) return update;
  if (unit) {
    for (uint32_t i = 0; i < p->rank; ++i) starts[i] = ir_scalar_i64(b, TTPU_I64, p->start[i]);
    return ir_dynamic_update_slice(b, whole, update, starts);
  }
  ttpu_dtype dtype = (ttpu_dtype)TYPE(whole).dtype;
  ir_value mask =
      ir_pad(b, ir_fill_i64(b, TTPU_BOOL, p->rank, p->size, 1), ir_scalar_i64(b, TTPU_BOOL, 0), low, high, interior);
  ir_value spread = ir_pad(b, update, ir_scalar_i64(b, dtype, 0), low, high, interior);
  return ir_select(b, mask, spread, whole);
}

ir_value ir_view_write(ir_builder *b, ir_value x, ir_value update, const ir_as_strided_attrs *a) {
  if (b->status) return 0;
  plan p;
  ir_type operand = TYPE(x), view = TYPE(update);
  if (ir_numel(view) == 0) return x;
  if (plan_view(operand, view, a, &p)) {
    ir_value part = disarrange(b, update, &p);
    return leave(b, x, place(b, enter(b, x, &p), part, &p), &p);
  }
  const int64_t total = ir_numel(operand), count = ir_numel(view), zero = 0;
  const ir_i64s first = {&zero, 1};
  const ir_scatter_attrs attrs = {
      .inserted_window_dims = first,
      .scatter_dims_to_operand_dims = first,
      .index_vector_dim = 1,
      .unique_indices = false}; /* one number for all may be written to views that overlap */
  ir_value indices = ir_reshape(b, flat_indices(b, operand, view, a), 1, &count);
  ir_value y = ir_scatter(b, ir_reshape(b, x, 1, &total), indices, ir_reshape(b, update, 1, &count), &attrs, IR_NO_OP);
  return ir_reshape(b, y, operand.rank, operand.dims);
}
