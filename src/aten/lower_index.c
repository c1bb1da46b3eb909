/* Indexing. Every index is checked where it is used (ir_check_index) and PyTorch's sign rules are kept: index, take,
 * put and index_fill count from the end for negatives, the others refuse them. Updates of f16 and bf16 that add up do
 * so in f32. Boolean masks have become integers before they come here. */
#include "aten/nn_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- x[i, j, ..] -------------------------------------------------------------------------------------- */

/* What index.Tensor and index_put share: the indexed dims, and the indices stacked along a last dimension. */
typedef struct indexed {
  uint32_t rank, count, batch_rank; /* of x; indexed dims; of the broadcast indices */
  int64_t dims[TTPU_MAX_RANK];      /* indexed, ascending */
  int64_t slice[TTPU_MAX_RANK];     /* of one window: 1 at indexed dims */
  int64_t batch[TTPU_MAX_RANK];     /* sizes of the broadcast indices */
  int64_t window[TTPU_MAX_RANK];    /* which dims of the result are x's own */
  uint32_t windows;
  int64_t result[2 * TTPU_MAX_RANK]; /* the result's sizes */
  uint32_t result_rank;
  bool hollow;      /* an indexed dim of size 0, or nothing to read: no gather is possible */
  ir_value indices; /* [batch.., count] */
} indexed;

/* Finds the indexed dims and the indices' broadcast sizes; false when these do not broadcast. */
static bool broadcast_indices(const aten_call *call, uint32_t arg, uint32_t rank_of_self, indexed *x) {
  const aten_arg *list = &call->args[arg];
  *x = (indexed){.rank = rank_of_self};
  for (uint32_t i = 0; i < list->count && i < rank_of_self; ++i) {
    const aten_tensor *t = &call->tensors[list->first + i];
    if (t->flags & ATEN_UNDEFINED) continue;
    x->dims[x->count++] = i;
    int64_t sizes[TTPU_MAX_RANK];
    uint32_t rank = t->rank > x->batch_rank ? t->rank : x->batch_rank;
    for (uint32_t k = 0; k < rank; ++k) { /* from the last */
      int64_t a = k < t->rank ? t->sizes[t->rank - 1 - k] : 1,
              b = k < x->batch_rank ? x->batch[x->batch_rank - 1 - k] : 1;
      if (a != b && a != 1 && b != 1) return false;
      sizes[rank - 1 - k] = a == 1 ? b : a;
    }
    x->batch_rank = rank;
    for (uint32_t k = 0; k < rank; ++k) x->batch[k] = sizes[k];
  }
  return true;
}

/* The indices' dims stand where the indexed dims were when those are neighbours, else in front. */
static void place_dims(indexed *x, const int64_t *sizes) {
  bool neighbours = x->dims[x->count - 1] - x->dims[0] + 1 == (int64_t)x->count;
  uint32_t before = neighbours ? (uint32_t)x->dims[0] : 0, next = 0;
  x->windows = x->result_rank = 0;
  for (uint32_t i = 0; i <= x->rank; ++i) {
    if (i == before)
      for (uint32_t k = 0; k < x->batch_rank; ++k) x->result[x->result_rank++] = x->batch[k];
    if (i == x->rank) break;
    if (next < x->count && x->dims[next] == (int64_t)i) {
      ++next;
      continue;
    }
    x->window[x->windows++] = x->result_rank;
    x->result[x->result_rank++] = sizes[i];
  }
}

/* Reads the list at `arg` for a tensor of these sizes. False when no dim is indexed or the builder failed. */
static bool indexed_of(aten_lowering *c, uint32_t arg, uint32_t rank, const int64_t *sizes, bool checked, indexed *x) {
  if (!broadcast_indices(c->call, arg, rank, x)) {
    aten_fail(c, "shape mismatch: indexing tensors could not be broadcast together");
    return false;
  }
  if (x->count == 0) return false;
  place_dims(x, sizes);
  for (uint32_t i = 0; i < rank; ++i) x->slice[i] = sizes[i];
  x->hollow = base_numel(x->result_rank, x->result) == 0;
  int64_t column[TTPU_MAX_RANK + 1];
  ir_value columns[TTPU_MAX_RANK];
  for (uint32_t k = 0; k < x->batch_rank; ++k) column[k] = x->batch[k];
  column[x->batch_rank] = 1;
  for (uint32_t i = 0; i < x->count; ++i) {
    uint32_t dim = (uint32_t)x->dims[i];
    char *what = base_arena_printf(c->b->func->arena, "index is out of bounds for dimension %u", dim);
    ir_value v = ir_convert(c->b, aten_list_in(c, arg, dim), TTPU_I64);
    if (checked) {
      v = nn_index(c, v, sizes[dim], true, IR_BAD_INDEX, what ? what : "index is out of bounds");
    } else {
      v = ir_select(c->b, nn_compare_f64(c, IR_LT, v, 0), nn_add_f64(c, v, (double)sizes[dim]), v);
    }
    x->slice[dim] = 1;
    x->hollow = x->hollow || sizes[dim] == 0;
    columns[i] = ir_reshape(c->b, ir_broadcast_to(c->b, v, x->batch_rank, x->batch), x->batch_rank + 1, column);
  }
  x->indices = x->count == 1 ? columns[0] : ir_concatenate(c->b, x->count, columns, x->batch_rank);
  return true;
}

/* "[2, 3]" */
static const char *sizes_text(uint32_t rank, const int64_t *sizes, size_t room, char *text) {
  size_t at = (size_t)snprintf(text, room, "[");
  for (uint32_t i = 0; i < rank && at < room; ++i)
    at += (size_t)snprintf(text + at, room - at, "%s%lld", i ? ", " : "", (long long)sizes[i]);
  if (at < room) snprintf(text + at, room - at, "]");
  return text;
}

static ttpu_status refuse_indices(const aten_call *call) {
  char all[512] = "", one[128];
  const aten_arg *list = &call->args[1];
  for (uint32_t i = 0; i < list->count; ++i) {
    const aten_tensor *t = &call->tensors[list->first + i];
    size_t at = strlen(all);
    if (!(t->flags & ATEN_UNDEFINED))
      snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "", sizes_text(t->rank, t->sizes, sizeof one, one));
  }
  return base_fail(TTPU_OUT_OF_RANGE, "shape mismatch: indexing tensors could not be broadcast together with shapes %s",
                   all);
}

ttpu_status aten_index_put_check(const aten_call *call) { /* self, indices, values */
  const aten_tensor *self = aten_call_tensor(call, 0), *values = aten_call_tensor(call, 2);
  indexed x;
  if (self == NULL || values == NULL) return TTPU_OK;
  if (!broadcast_indices(call, 1, self->rank, &x)) return refuse_indices(call);
  if (x.count > 0) place_dims(&x, self->sizes);
  uint32_t rank = x.count > 0 ? x.result_rank : self->rank;
  const int64_t *sizes = x.count > 0 ? x.result : self->sizes;
  bool fits = values->rank <= rank;
  for (uint32_t i = 0; fits && i < values->rank; ++i)
    fits = values->sizes[i] == 1 || values->sizes[i] == sizes[rank - values->rank + i];
  char from[256], to[256];
  if (fits) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT,
                   "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
                   sizes_text(values->rank, values->sizes, sizeof from, from), sizes_text(rank, sizes, sizeof to, to));
}

static void lower_index_of(aten_lowering *c, bool checked) { /* self, indices */
  ir_value v = aten_in(c, 0);
  ir_type t = nn_type(c, v);
  indexed x;
  if (!indexed_of(c, 1, t.rank, t.dims, checked, &x)) {
    aten_out(c, 0, v);
    return;
  }
  if (x.hollow) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)t.dtype));
    return;
  }
  ir_gather_attrs attrs = {.offset_dims = {x.window, x.windows},
                           .collapsed_slice_dims = {x.dims, x.count},
                           .start_index_map = {x.dims, x.count},
                           .index_vector_dim = x.batch_rank,
                           .slice_sizes = {x.slice, x.rank}};
  aten_out(c, 0, ir_gather(c->b, v, x.indices, &attrs));
}

void lower_index(aten_lowering *c) { lower_index_of(c, true); }
void lower_unsafe_index(aten_lowering *c) { lower_index_of(c, false); }

static void lower_index_put_of(aten_lowering *c, bool checked) { /* self, indices, values, accumulate */
  bool accumulate = aten_int(c, 3) != 0;
  ir_value v = accumulate ? nn_in(c, 0) : aten_in(c, 0);
  ir_type t = nn_type(c, v);
  ir_value values = nn_in_as(c, 2, (ttpu_dtype)t.dtype);
  indexed x;
  if (!indexed_of(c, 1, t.rank, t.dims, checked, &x)) {
    values = ir_broadcast_to(c->b, values, t.rank, t.dims);
    if (accumulate) values = ir_binary(c->b, nn_combine_add((ttpu_dtype)t.dtype), v, values);
    aten_out(c, 0, values);
    return;
  }
  if (x.hollow) {
    aten_out(c, 0, v);
    return;
  }
  values = ir_broadcast_to(c->b, values, x.result_rank, x.result);
  ir_scatter_attrs attrs = {.update_window_dims = {x.window, x.windows},
                            .inserted_window_dims = {x.dims, x.count},
                            .scatter_dims_to_operand_dims = {x.dims, x.count},
                            .index_vector_dim = x.batch_rank};
  aten_out(c, 0,
           ir_scatter(c->b, v, x.indices, values, &attrs, accumulate ? nn_combine_add((ttpu_dtype)t.dtype) : IR_NO_OP));
}

void lower_index_put(aten_lowering *c) { lower_index_put_of(c, true); }
void lower_unsafe_index_put(aten_lowering *c) { lower_index_put_of(c, false); }

/* ---- slices along one dim ------------------------------------------------------------------------------ */

/* Operand `arg` with at least one dimension, and a result back in self's own rank. */
static void out_like_self(aten_lowering *c, ir_value v) {
  aten_out(c, 0, ir_reshape(c->b, v, c->outs[0].rank, c->outs[0].sizes));
}

void lower_index_select(aten_lowering *c) { /* self, dim, index */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 1, t.rank);
  ir_value index = nn_index(c, nn_flatten(c, aten_in(c, 2)), t.dims[dim], false, IR_BAD_INDEX,
                            "index_select(): index out of range in self");
  out_like_self(c, nn_take(c, x, index, dim));
}

/* source as slices of x: a 0-d source is one slice of a vector. */
static ir_value slices_in(aten_lowering *c, uint32_t arg, ir_value x) {
  return nn_at_least_1d(c, nn_in_as(c, arg, (ttpu_dtype)nn_type(c, x).dtype));
}

void lower_index_add(aten_lowering *c) { /* self, dim, index, source, alpha */
  ir_value x = nn_at_least_1d(c, nn_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 1, t.rank);
  ir_value index = nn_index(c, nn_flatten(c, aten_in(c, 2)), t.dims[dim], false,
                            t.rank > 1 ? IR_BAD_VALUE : IR_BAD_INDEX, "index_add(): index out of range in self");
  ir_value source = slices_in(c, 3, x);
  if (!nn_static_is(c, 4, 1)) {
    ir_value alpha = nn_number(c, 4, source);
    source = t.dtype == TTPU_BOOL ? ir_and_bits(c->b, source, alpha) : ir_multiply(c->b, source, alpha);
  }
  out_like_self(c, nn_index_update(c, x, index, source, dim, nn_combine_add((ttpu_dtype)t.dtype)));
}

void lower_index_copy(aten_lowering *c) { /* self, dim, index, source */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 1, t.rank);
  ir_value index =
      nn_index(c, nn_flatten(c, aten_in(c, 2)), t.dims[dim], false, IR_BAD_INDEX, "index_copy_(): index out of bounds");
  out_like_self(c, nn_index_update(c, x, index, slices_in(c, 3, x), dim, IR_NO_OP));
}

static void index_fill(aten_lowering *c, ir_value value) { /* self, dim, index */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 1, t.rank);
  ir_value index =
      nn_index(c, nn_flatten(c, aten_in(c, 2)), t.dims[dim], true, IR_BAD_INDEX, "index_fill_(): index out of bounds");
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) sizes[i] = i == dim ? nn_type(c, index).dims[0] : t.dims[i];
  ir_value slices = ir_broadcast_to(c->b, ir_reshape(c->b, value, 0, NULL), t.rank, sizes);
  out_like_self(c, nn_index_update(c, x, index, slices, dim, IR_NO_OP));
}

void lower_index_fill_scalar(aten_lowering *c) {
  index_fill(c, aten_number_in(c, 3, (ttpu_dtype)aten_meta(c, 0)->dtype));
}
void lower_index_fill_tensor(aten_lowering *c) { index_fill(c, nn_in_as(c, 3, (ttpu_dtype)aten_meta(c, 0)->dtype)); }

/* ---- reductions by index --------------------------------------------------------------------------------- */

typedef enum { REDUCE_SUM, REDUCE_PROD, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_UNKNOWN } index_reduction;

static index_reduction reduction_of(aten_lowering *c, uint32_t arg) {
  static const struct {
    const char *name;
    index_reduction kind;
  } names[] = {{"sum", REDUCE_SUM},   {"add", REDUCE_SUM},  {"prod", REDUCE_PROD}, {"multiply", REDUCE_PROD},
               {"mean", REDUCE_MEAN}, {"amax", REDUCE_MAX}, {"amin", REDUCE_MIN}};
  const char *text = aten_text(c, arg);
  for (uint32_t i = 0; text && i < sizeof names / sizeof *names; ++i)
    if (strcmp(text, names[i].name) == 0) return names[i].kind;
  ir_fail(c->b, TTPU_INVALID_ARGUMENT, "%s: unknown reduce argument '%s'", c->call->row->name, text ? text : "None");
  return REDUCE_UNKNOWN;
}

/* How updates reach x: by slices (index_reduce) or by elements (scatter_reduce). */
typedef ir_value (*update_fn)(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                              ir_kind combine);

static ir_kind combine_of(index_reduction r, ttpu_dtype t) {
  switch (r) {
    case REDUCE_PROD: return nn_combine_multiply(t);
    case REDUCE_MAX: return IR_MAXIMUM;
    case REDUCE_MIN: return IR_MINIMUM;
    default: return nn_combine_add(t);
  }
}

static ir_value neutral_of(aten_lowering *c, index_reduction r, ttpu_dtype t) {
  switch (r) {
    case REDUCE_PROD: return ir_scalar_i64(c->b, t, 1);
    case REDUCE_MAX: return ir_lowest(c->b, t);
    case REDUCE_MIN: return ir_highest(c->b, t);
    default: return ir_scalar_i64(c->b, t, 0);
  }
}

/* sum / count; integers round down (floor). */
static ir_value divide_floor(aten_lowering *c, ir_value sum, ir_value count) {
  ttpu_dtype t = (ttpu_dtype)nn_type(c, sum).dtype;
  if (t == TTPU_BOOL) return sum;
  ir_value n = ir_convert(c->b, count, t), q = ir_divide(c->b, sum, n);
  if (!base_dtype_is_signed(t)) return q;
  ir_value rest = ir_subtract(c->b, sum, ir_multiply(c->b, q, n));
  return ir_select(c->b, nn_compare_f64(c, IR_LT, rest, 0), nn_add_f64(c, q, -1), q);
}

static ir_value reduce_updates(aten_lowering *c, ir_value x, ir_value index, ir_value updates, uint32_t dim,
                               index_reduction r, bool include_self, update_fn update) {
  ir_type t = nn_type(c, x);
  ttpu_dtype dtype = (ttpu_dtype)t.dtype;
  if (!include_self) {
    ir_value neutral = nn_broadcast_like(c, neutral_of(c, r, dtype), updates);
    x = update(c, x, index, neutral, dim, IR_NO_OP);
  }
  ir_value y = update(c, x, index, updates, dim, combine_of(r, dtype));
  if (r != REDUCE_MEAN) return y;
  ir_type u = nn_type(c, updates);
  ttpu_dtype counter = base_dtype_is_integer(dtype) ? dtype == TTPU_I64 ? TTPU_I64 : TTPU_I32 : TTPU_I64;
  ir_value count = ir_fill_i64(c->b, counter, t.rank, t.dims, include_self ? 1 : 0);
  count = update(c, count, index, ir_fill_i64(c->b, counter, u.rank, u.dims, 1), dim, IR_ADD);
  count = ir_maximum(c->b, count, nn_const(c, count, 1));
  return divide_floor(c, y, count);
}

/* Half types are rounded after every element, as on the CPU. */
void lower_index_reduce(aten_lowering *c) { /* self, dim, index, source, reduce, include_self */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0));
  ir_type t = nn_type(c, x);
  uint32_t dim = aten_dim(c, 1, t.rank);
  ir_value index = nn_index(c, nn_flatten(c, aten_in(c, 2)), t.dims[dim], false, IR_BAD_INDEX,
                            "index_reduce(): index out of range in self");
  out_like_self(
      c, reduce_updates(c, x, index, slices_in(c, 3, x), dim, reduction_of(c, 4), aten_int(c, 5), nn_index_update));
}

/* ---- gather and scatter --------------------------------------------------------------------------------- */

/* The corner of x that covers index in every dim but `dim`. */
static ir_value corner(aten_lowering *c, ir_value x, ir_type index, uint32_t dim, bool cut_dim) {
  ir_type t = nn_type(c, x);
  int64_t start[TTPU_MAX_RANK] = {0}, limit[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; ++i) limit[i] = i == dim && !cut_dim ? t.dims[i] : index.dims[i];
  return ir_slice(c->b, x, start, limit, NULL);
}

void lower_gather(aten_lowering *c) { /* self, dim, index */
  ir_value x = nn_at_least_1d(c, aten_in(c, 0)), index = nn_at_least_1d(c, aten_in(c, 2));
  ir_type t = nn_type(c, x), n = nn_type(c, index);
  uint32_t dim = aten_dim(c, 1, t.rank);
  if (x == 0 || index == 0) return;
  if (ir_numel(n) == 0) { /* may then have another rank */
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)t.dtype));
    return;
  }
  index = nn_index(c, index, t.dims[dim], false, IR_BAD_VALUE, "gather(): index is out of bounds");
  out_like_self(c, nn_take_along(c, corner(c, x, n, dim, false), index, dim));
}

typedef struct scattering {
  ir_value x, index, updates;
  uint32_t dim;
} scattering;

/* self, dim, index from arguments 0..2. False when index is empty: the result is self. `math` for half types. */
static bool scattering_of(aten_lowering *c, bool math, scattering *s) {
  s->x = nn_at_least_1d(c, math ? nn_in(c, 0) : aten_in(c, 0));
  s->index = nn_at_least_1d(c, aten_in(c, 2));
  ir_type t = nn_type(c, s->x);
  s->dim = aten_dim(c, 1, t.rank);
  if (s->x == 0 || s->index == 0 || ir_numel(nn_type(c, s->index)) == 0) {
    aten_out(c, 0, aten_in(c, 0));
    return false;
  }
  s->index = nn_index(c, s->index, t.dims[s->dim], false, IR_BAD_VALUE, "scatter(): index is out of bounds");
  return true;
}

static ir_value scatter_source(aten_lowering *c, uint32_t arg, const scattering *s) {
  ir_value src = nn_at_least_1d(c, nn_in_as(c, arg, (ttpu_dtype)nn_type(c, s->x).dtype));
  return corner(c, src, nn_type(c, s->index), s->dim, true);
}

static ir_value scatter_value(aten_lowering *c, uint32_t arg, const scattering *s) {
  return nn_broadcast_like(c, aten_number_in(c, arg, (ttpu_dtype)nn_type(c, s->x).dtype), s->index);
}

void lower_scatter_src(aten_lowering *c) { /* self, dim, index, src */
  scattering s;
  if (scattering_of(c, false, &s))
    out_like_self(c, nn_scatter_along(c, s.x, s.index, scatter_source(c, 3, &s), s.dim, IR_NO_OP));
}

void lower_scatter_value(aten_lowering *c) { /* self, dim, index, value */
  scattering s;
  if (scattering_of(c, false, &s))
    out_like_self(c, nn_scatter_along(c, s.x, s.index, scatter_value(c, 3, &s), s.dim, IR_NO_OP));
}

void lower_scatter_add(aten_lowering *c) { /* self, dim, index, src */
  scattering s;
  if (!scattering_of(c, true, &s)) return;
  ir_kind add = nn_combine_add((ttpu_dtype)nn_type(c, s.x).dtype);
  out_like_self(c, nn_scatter_along(c, s.x, s.index, scatter_source(c, 3, &s), s.dim, add));
}

static void scatter_reduced(aten_lowering *c, bool value,
                            bool include_self) { /* self, dim, index, src or value, reduce */
  scattering s;
  if (!scattering_of(c, true, &s)) return;
  ir_value updates = value ? scatter_value(c, 3, &s) : scatter_source(c, 3, &s);
  out_like_self(c, reduce_updates(c, s.x, s.index, updates, s.dim, reduction_of(c, 4), include_self, nn_scatter_along));
}

void lower_scatter_src_reduce(aten_lowering *c) { scatter_reduced(c, false, true); }
void lower_scatter_value_reduce(aten_lowering *c) { scatter_reduced(c, true, true); }
void lower_scatter_reduce(aten_lowering *c) { scatter_reduced(c, false, aten_int(c, 5) != 0); }

/* ---- flat ------------------------------------------------------------------------------------------------- */

void lower_take(aten_lowering *c) { /* self, index */
  ir_value x = nn_flatten(c, aten_in(c, 0));
  ir_value index = nn_index(c, aten_in(c, 1), nn_type(c, x).dims[0], true, IR_BAD_INDEX, "take(): index out of range");
  aten_out(c, 0, nn_take(c, x, index, 0));
}

void lower_put(aten_lowering *c) { /* self, index, source, accumulate */
  bool accumulate = aten_int(c, 3) != 0;
  ir_value x = nn_flatten(c, accumulate ? nn_in(c, 0) : aten_in(c, 0));
  ir_type t = nn_type(c, x);
  ir_value index =
      nn_index(c, nn_flatten(c, aten_in(c, 1)), t.dims[0], true, IR_BAD_INDEX, "put_(): index out of range");
  ir_value source = nn_flatten(c, nn_in_as(c, 2, (ttpu_dtype)t.dtype));
  out_like_self(c,
                nn_index_update(c, x, index, source, 0, accumulate ? nn_combine_add((ttpu_dtype)t.dtype) : IR_NO_OP));
}

/* ---- masks -------------------------------------------------------------------------------------------------- */

void lower_masked_fill_scalar(aten_lowering *c) { /* self, mask, value */
  ir_value x = aten_in(c, 0);
  aten_out(c, 0, nn_select(c, nn_in_as(c, 1, TTPU_BOOL), nn_number(c, 2, x), x));
}

void lower_masked_fill_tensor(aten_lowering *c) { /* self, mask, value (0-d) */
  ir_value x = aten_in(c, 0);
  ir_value value = ir_reshape(c->b, nn_in_as(c, 2, (ttpu_dtype)nn_type(c, x).dtype), 0, NULL);
  aten_out(c, 0, nn_select(c, nn_in_as(c, 1, TTPU_BOOL), nn_broadcast_like(c, value, x), x));
}

ir_value nn_ranks(aten_lowering *c, ir_value mask) {
  return nn_cumsum(c, ir_convert(c->b, nn_flatten(c, mask), TTPU_I64), 0);
}

void lower_masked_scatter(aten_lowering *c) { /* self, mask, source: the k-th set element takes source[k] */
  ir_value x = aten_in(c, 0), mask = nn_in_as(c, 1, TTPU_BOOL);
  const aten_tensor *out = &c->outs[0];
  x = ir_broadcast_to(c->b, x, out->rank, out->sizes);
  mask = nn_flatten(c, ir_broadcast_to(c->b, mask, out->rank, out->sizes));
  ir_value source = nn_flatten(c, nn_in_as(c, 2, (ttpu_dtype)out->dtype)), at = nn_add_f64(c, nn_ranks(c, mask), -1);
  at = ir_select(c->b, mask, at, nn_const(c, at, 0));
  int64_t available = nn_type(c, source).dims[0];
  ir_check_not(c->b, ir_and_bits(c->b, mask, nn_compare_f64(c, IR_GE, at, (double)available)), IR_BAD_VALUE,
               "masked_scatter: expected source to have at least as many elements as the mask has ones");
  if (available == 0) return aten_out(c, 0, x);
  ir_value r = ir_select(c->b, mask, nn_take(c, source, at, 0), nn_flatten(c, x));
  aten_out(c, 0, ir_reshape(c->b, r, out->rank, out->sizes));
}

ir_value nn_compact(aten_lowering *c, ir_value mask, ir_value values, int64_t room, ir_value rest) {
  ir_type t = nn_type(c, values);
  int64_t dims[TTPU_MAX_RANK], start[TTPU_MAX_RANK] = {0};
  for (uint32_t i = 0; i < t.rank; ++i) dims[i] = t.dims[i];
  dims[0] = room + 1; /* one row more takes what is not wanted */
  ir_value at = nn_add_f64(c, nn_ranks(c, mask), -1), spare = nn_const(c, at, (double)room);
  at = ir_select(c->b, mask, ir_minimum(c->b, at, spare), spare);
  ir_value r = ir_broadcast_to(c->b, rest, t.rank, dims);
  r = nn_index_update(c, r, at, values, 0, IR_NO_OP);
  dims[0] = room;
  return ir_slice(c->b, r, start, dims, NULL);
}

ir_value nn_count(aten_lowering *c, ir_value mask) {
  return nn_reduce_dim(c, IR_ADD, ir_convert(c->b, nn_flatten(c, mask), TTPU_I64), 0, false);
}

/* The coordinates of all of x's elements: [numel, rank]. */
static ir_value coordinates(aten_lowering *c, uint32_t rank, const int64_t *sizes) {
  ir_value columns[TTPU_MAX_RANK];
  int64_t n = base_numel(rank, sizes), zero[2] = {n, 0};
  if (rank == 0) return ir_fill_i64(c->b, TTPU_I64, 2, zero, 0);
  for (uint32_t i = 0; i < rank; ++i) columns[i] = nn_reshape2(c, ir_iota(c->b, TTPU_I64, rank, sizes, i), n, 1);
  return rank == 1 ? columns[0] : ir_concatenate(c->b, rank, columns, 1);
}

static ir_value is_nonzero(aten_lowering *c, ir_value x) {
  return nn_type(c, x).dtype == TTPU_BOOL ? x : nn_compare_f64(c, IR_NE, x, 0);
}

void lower_nonzero(aten_lowering *c) { /* self; results: [numel, rank], and the count */
  const aten_tensor *x = aten_meta(c, 0);
  ir_value mask = is_nonzero(c, aten_in(c, 0));
  int64_t n = base_numel(x->rank, x->sizes);
  aten_out(c, 0,
           nn_compact(c, nn_flatten(c, mask), coordinates(c, x->rank, x->sizes), n, ir_scalar_i64(c->b, TTPU_I64, 0)));
  aten_out(c, 1, nn_count(c, mask));
}

void lower_nonzero_static(aten_lowering *c) { /* self, size, fill_value */
  const aten_tensor *x = aten_meta(c, 0);
  ir_value mask = is_nonzero(c, aten_in(c, 0)), fill = ir_scalar_i64(c->b, TTPU_I64, aten_int_or(c, 2, -1));
  aten_out(c, 0, nn_compact(c, nn_flatten(c, mask), coordinates(c, x->rank, x->sizes), aten_int(c, 1), fill));
}

void lower_masked_select(aten_lowering *c) { /* self, mask; results: [numel of both broadcast], and the count */
  ir_value x = aten_in(c, 0), mask = nn_in_as(c, 1, TTPU_BOOL);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_type a = nn_type(c, x), b = nn_type(c, mask);
  ir_value zeros = ir_fill_i64(c->b, TTPU_BOOL, a.rank, a.dims, 0);
  mask = nn_binary(c, IR_OR, mask, zeros); /* broadcast to the common sizes */
  b = nn_type(c, mask);
  x = ir_broadcast_to(c->b, x, b.rank, b.dims);
  aten_out(c, 0, nn_compact(c, nn_flatten(c, mask), nn_flatten(c, x), ir_numel(b), ir_scalar_i64(c->b, t, 0)));
  aten_out(c, 1, nn_count(c, mask));
}

/* ---- embeddings ---------------------------------------------------------------------------------------------- */

void lower_embedding(aten_lowering *c) { /* weight, indices, padding_idx, .. */
  ir_value weight = aten_in(c, 0);
  ir_value index = nn_index(c, aten_in(c, 1), nn_type(c, weight).dims[0], false, IR_BAD_INDEX,
                            "embedding: index out of range in self");
  aten_out(c, 0, nn_take(c, weight, index, 0));
}

void lower_embedding_dense_backward(
    aten_lowering *c) { /* grad, indices, num_weights, padding_idx, scale_grad_by_freq */
  ir_value g = nn_in(c, 0), index = nn_flatten(c, nn_in_as(c, 1, TTPU_I64));
  ttpu_dtype t = (ttpu_dtype)nn_type(c, g).dtype;
  int64_t n = nn_type(c, index).dims[0], rows = aten_int(c, 2);
  const int64_t *sizes = c->outs[0].sizes;
  ir_value padding = nn_compare_f64(c, IR_EQ, index, (double)aten_int(c, 3));
  index = nn_index(c, index, rows, false, IR_BAD_INDEX, "embedding_dense_backward: index out of range");
  g = nn_reshape2(c, g, n, sizes[1]);
  if (aten_int(c, 4)) {
    ir_value counts =
        nn_index_update(c, ir_fill_i64(c->b, t, 1, &rows, 0), index, ir_fill_i64(c->b, t, 1, &n, 1), 0, IR_ADD);
    g = nn_div(c, g, nn_reshape2(c, nn_take(c, counts, index, 0), n, 1));
  }
  if (aten_int(c, 3) >= 0) g = nn_select(c, nn_reshape2(c, padding, n, 1), nn_const(c, g, 0), g);
  aten_out(c, 0, nn_index_update(c, ir_fill_i64(c->b, t, 2, sizes, 0), index, g, 0, IR_ADD));
}

void lower_embedding_renorm(aten_lowering *c) { /* self (written), indices, max_norm, norm_type */
  ir_value x = nn_in(c, 0);
  ir_type t = nn_type(c, x);
  ir_value index = nn_index(c, nn_flatten(c, aten_in(c, 1)), t.dims[0], false, IR_BAD_INDEX,
                            "embedding_renorm_: index out of range");
  ir_value named = ir_fill_i64(c->b, TTPU_I32, 1, t.dims, 0);
  named = nn_index_update(c, named, index, nn_const(c, ir_convert(c->b, index, TTPU_I32), 1), 0, IR_NO_OP);
  ir_value size = ir_abs(c->b, x), norm;
  double p = aten_static(c, 3);
  if (p == 2) {
    norm = ir_sqrt(c->b, nn_reduce_dim(c, IR_ADD, ir_multiply(c->b, size, size), 1, false));
  } else if (p == INFINITY) {
    norm = nn_reduce_dim(c, IR_MAXIMUM, size, 1, false);
  } else {
    norm = nn_reduce_dim(c, IR_ADD, ir_power(c->b, size, nn_const(c, size, p)), 1, false);
    norm = ir_power(c->b, norm, nn_const(c, norm, 1 / p));
  }
  ir_value limit = nn_number(c, 2, norm), scale = ir_divide(c->b, limit, nn_add_f64(c, norm, 1e-7));
  ir_value applies = ir_and_bits(c->b, nn_compare_f64(c, IR_NE, named, 0), ir_compare(c->b, IR_GT, norm, limit));
  scale = ir_select(c->b, applies, scale, nn_const(c, scale, 1));
  aten_out(c, 0, ir_multiply(c->b, x, nn_along(c, scale, 0, x)));
}

/* ---- searching ---------------------------------------------------------------------------------------------- */

/* The binary search of torch's kernels, unrolled: a boundary b is before v when !(b >= v), or, from the right, !(b > v);
 * so NaN comes last. */
ir_value nn_search(aten_lowering *c, ir_value sorted, ir_value values, bool right) {
  int64_t n = nn_type(c, sorted).dims[1];
  ir_type v = nn_type(c, values);
  ir_value low = ir_fill_i64(c->b, TTPU_I64, v.rank, v.dims, 0), high = ir_fill_i64(c->b, TTPU_I64, v.rank, v.dims, n);
  for (int64_t span = n; span > 0; span /= 2) {
    ir_value middle = ir_shift_right_logical(c->b, ir_add(c->b, low, high), nn_const(c, low, 1));
    ir_value open = ir_compare(c->b, IR_LT, low, high), last = nn_const(c, middle, (double)(n - 1));
    ir_value b = nn_take_along(c, sorted, ir_minimum(c->b, middle, last), 1);
    ir_value before = ir_not_bits(c->b, ir_compare(c->b, right ? IR_GT : IR_GE, b, values));
    low = ir_select(c->b, ir_and_bits(c->b, open, before), nn_add_f64(c, middle, 1), low);
    high = ir_select(c->b, ir_and_bits(c->b, open, ir_not_bits(c->b, before)), middle, high);
  }
  return low;
}

static void search_out(aten_lowering *c, ir_value sorted, ir_value values, bool right) {
  ir_value r = nn_search(c, sorted, values, right);
  r = ir_convert(c->b, r, (ttpu_dtype)c->outs[0].dtype);
  aten_out(c, 0, ir_reshape(c->b, r, c->outs[0].rank, c->outs[0].sizes));
}

/* The dtype in which a boundary meets a value. */
static ttpu_dtype meeting_dtype(aten_lowering *c, uint32_t boundaries, uint32_t value, bool is_tensor) {
  aten_promotion p = {0};
  aten_promotion_add(&p, aten_meta(c, boundaries));
  if (is_tensor) aten_promotion_add(&p, aten_meta(c, value));
  else aten_promotion_add_number(&p, aten_number_dtype(c, value));
  return aten_math_dtype(aten_promotion_result(&p));
}

static void bucketize(aten_lowering *c, uint32_t boundaries, uint32_t value, bool is_tensor, bool right) {
  ttpu_dtype t = meeting_dtype(c, boundaries, value, is_tensor);
  ir_value sorted = nn_in_as(c, boundaries, t), v = is_tensor ? nn_in_as(c, value, t) : aten_number_in(c, value, t);
  search_out(c, nn_reshape2(c, sorted, 1, ir_numel(nn_type(c, sorted))), nn_reshape2(c, v, 1, ir_numel(nn_type(c, v))),
             right);
}

void lower_bucketize_tensor(aten_lowering *c) { bucketize(c, 1, 0, true, aten_int(c, 3) != 0); }
void lower_bucketize_scalar(aten_lowering *c) { bucketize(c, 1, 0, false, aten_int(c, 3) != 0); }

static void searchsorted(aten_lowering *c,
                         bool is_tensor) { /* sorted_sequence, self, out_int32, right, side?, sorter? */
  const char *side = aten_text(c, 4);
  bool right = aten_int(c, 3) != 0 || (side && side[0] == 'r');
  ttpu_dtype t = meeting_dtype(c, 0, 1, is_tensor);
  ir_value sorted = nn_in_as(c, 0, t), v = is_tensor ? nn_in_as(c, 1, t) : aten_number_in(c, 1, t);
  ir_type s = nn_type(c, sorted);
  int64_t n = s.rank ? s.dims[s.rank - 1] : 1, rows = s.rank ? base_numel(s.rank - 1, s.dims) : 1;
  sorted = nn_reshape2(c, sorted, rows, n);
  if (aten_has(c, 5)) {
    ir_value order = nn_index(c, nn_reshape2(c, aten_in(c, 5), rows, n), n, false, IR_BAD_VALUE,
                              "torch.searchsorted(): sorter index out of range");
    sorted = nn_take_along(c, sorted, order, 1);
  }
  int64_t values = ir_numel(nn_type(c, v));
  if (base_numel(c->outs[0].rank, c->outs[0].sizes) == 0 || rows == 0) {
    aten_out(c, 0, nn_zeros_out(c, 0, (ttpu_dtype)c->outs[0].dtype));
    return;
  }
  search_out(c, sorted, nn_reshape2(c, v, rows, values / rows), right);
}

void lower_searchsorted_tensor(aten_lowering *c) { searchsorted(c, true); }
void lower_searchsorted_scalar(aten_lowering *c) { searchsorted(c, false); }

void lower_repeat_interleave(aten_lowering *c) { /* repeats, output_size (must be given): index i repeats[i] times */
  ir_value repeats = nn_in_as(c, 0, TTPU_I64);
  int64_t n = nn_type(c, repeats).dims[0], size = c->outs[0].sizes[0];
  ir_check_not(c->b, nn_compare_f64(c, IR_LT, repeats, 0), IR_BAD_VALUE, "repeats can not be negative");
  ir_value ends = nn_reshape2(c, nn_cumsum(c, repeats, 0), 1, n);
  ir_value total = nn_reduce_dim(c, IR_ADD, repeats, 0, false);
  ir_check_not(c->b, nn_compare_f64(c, IR_NE, total, (double)size), IR_BAD_VALUE,
               "allocated size does not match required size");
  ir_value at = nn_reshape2(c, ir_iota(c->b, TTPU_I64, 1, &size, 0), 1, size);
  search_out(c, ends, at, true);
}
