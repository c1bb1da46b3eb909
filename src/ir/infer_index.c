/* Inference of index maps: slices, transpositions, views, gather and scatter. */
#include <stdlib.h>

#include "ir/infer_int.h"

/* ---- index maps ----------------------------------------------------------------------------- */

bool infer_slice(ir_inference *in) {
  const ir_slice_attrs *a = in->attrs;
  ir_type t = T(0);
  int64_t dims[TTPU_MAX_RANK];
  TRY(infer_check_count(in, "start_indices", a->start_indices.count, t.rank));
  TRY(infer_check_count(in, "limit_indices", a->limit_indices.count, t.rank));
  TRY(infer_check_count(in, "strides", a->strides.count, t.rank));
  for (uint32_t i = 0; i < t.rank; ++i) {
    int64_t start = a->start_indices.data[i], limit = a->limit_indices.data[i], stride = a->strides.data[i];
    CHECK(start >= 0 && start <= limit && limit <= t.dims[i], "dimension %u: [%lld, %lld) does not lie in %s", i,
          (long long)start, (long long)limit, IR_SHOW(t));
    CHECK(stride > 0, "dimension %u: stride %lld, expected > 0", i, (long long)stride);
    dims[i] = (limit - start) / stride + ((limit - start) % stride != 0);
  }
  return infer_result_dims(in, t.rank, dims, (ttpu_dtype)t.dtype);
}

bool infer_transpose(ir_inference *in) {
  const ir_transpose_attrs *a = in->attrs;
  ir_type t = T(0);
  int64_t dims[TTPU_MAX_RANK];
  TRY(infer_check_count(in, "permutation", a->permutation.count, t.rank));
  TRY(infer_check_dims(in, "permutation", a->permutation, t.rank));
  for (uint32_t i = 0; i < t.rank; ++i) dims[i] = t.dims[a->permutation.data[i]];
  return infer_result_dims(in, t.rank, dims, (ttpu_dtype)t.dtype);
}

bool infer_concatenate(ir_inference *in) {
  const ir_dim_attrs *a = in->attrs;
  CHECK(in->operand_count > 0, "no operands");
  ir_type t = T(0);
  int64_t dims[TTPU_MAX_RANK];
  TRY(infer_check_dim(in, "dimension", a->dimension, t.rank));
  memcpy(dims, t.dims, t.rank * sizeof *dims);
  for (uint32_t i = 1; i < in->operand_count; ++i) {
    ir_type u = T(i);
    bool fits = u.dtype == t.dtype && u.rank == t.rank;
    for (uint32_t d = 0; fits && d < t.rank; ++d) fits = d == a->dimension || u.dims[d] == t.dims[d];
    CHECK(fits, "operand %u is %s, but operand 0 is %s (dimension %lld)", i, IR_SHOW(u), IR_SHOW(t),
          (long long)a->dimension);
    CHECK(!__builtin_add_overflow(dims[a->dimension], u.dims[a->dimension], &dims[a->dimension]),
          "the result is too large");
  }
  return infer_result_dims(in, t.rank, dims, (ttpu_dtype)t.dtype);
}

bool infer_pad(ir_inference *in) {
  const ir_pad_attrs *a = in->attrs;
  ir_type t = T(0);
  int64_t dims[TTPU_MAX_RANK];
  CHECK(is_scalar(T(1), (ttpu_dtype)t.dtype), "padding value is %s, expected a scalar of %s", IR_SHOW(T(1)),
        IR_SHOW(t));
  TRY(infer_check_count(in, "edge_padding_low", a->edge_padding_low.count, t.rank));
  TRY(infer_check_count(in, "edge_padding_high", a->edge_padding_high.count, t.rank));
  TRY(infer_check_count(in, "interior_padding", a->interior_padding.count, t.rank));
  for (uint32_t i = 0; i < t.rank; ++i) {
    int64_t inside = a->interior_padding.data[i], gaps = t.dims[i] > 0 ? t.dims[i] - 1 : 0, d = 0;
    CHECK(inside >= 0, "interior_padding[%u] is %lld, expected >= 0", i, (long long)inside);
    bool overflow = __builtin_mul_overflow(gaps, inside, &d) || __builtin_add_overflow(d, t.dims[i], &d) ||
                    __builtin_add_overflow(d, a->edge_padding_low.data[i], &d) ||
                    __builtin_add_overflow(d, a->edge_padding_high.data[i], &d);
    CHECK(!overflow && d >= 0, "dimension %u of %s becomes %lld", i, IR_SHOW(t), (long long)d);
    dims[i] = d;
  }
  return infer_result_dims(in, t.rank, dims, (ttpu_dtype)t.dtype);
}

/* operands first.. : one integer scalar per dimension, all of one dtype. */
static bool check_starts(ir_inference *in, uint32_t first, uint32_t rank) {
  CHECK(in->operand_count == first + rank, "%u start indices for rank %u", in->operand_count - first, rank);
  for (uint32_t i = first; i < in->operand_count; ++i)
    CHECK(is_integer_scalar(T(i)) && T(i).dtype == T(first).dtype,
          "start index %u is %s, expected integer scalars of one dtype", i - first, IR_SHOW(T(i)));
  return true;
}

bool infer_dynamic_slice(ir_inference *in) {
  const ir_dynamic_slice_attrs *a = in->attrs;
  CHECK(in->operand_count >= 1, "no operand");
  ir_type t = T(0);
  TRY(check_starts(in, 1, t.rank));
  TRY(infer_check_count(in, "slice_sizes", a->slice_sizes.count, t.rank));
  for (uint32_t i = 0; i < t.rank; ++i)
    CHECK(a->slice_sizes.data[i] >= 0 && a->slice_sizes.data[i] <= t.dims[i], "slice_sizes[%u] is %lld for %s", i,
          (long long)a->slice_sizes.data[i], IR_SHOW(t));
  return infer_result_dims(in, t.rank, a->slice_sizes.data, (ttpu_dtype)t.dtype);
}

bool infer_check_strided(ir_inference *in, ir_type operand, ir_type view) {
  const ir_as_strided_attrs *a = in->attrs;
  TRY(infer_check_count(in, "strides", a->strides.count, view.rank));
  int64_t low = a->offset, high = a->offset, extent = 0;
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.dims[i] == 0) return true; /* reads nothing */
    bool overflow = __builtin_mul_overflow(view.dims[i] - 1, a->strides.data[i], &extent);
    overflow |= __builtin_add_overflow(extent < 0 ? low : high, extent, extent < 0 ? &low : &high);
    CHECK(!overflow, "strides[%u] is %lld", i, (long long)a->strides.data[i]);
  }
  CHECK(low >= 0 && high < ir_numel(operand), "elements %lld to %lld of %s are asked for, which has %lld",
        (long long)low, (long long)high, IR_SHOW(operand), (long long)ir_numel(operand));
  return true;
}

/* Two indices of the view name one element, unless the dims sorted by stride each step over all smaller ones.
 * Sufficient, not necessary: what PyTorch's views of distinct elements look like. */
static bool check_no_overlap(ir_inference *in, ir_type view) {
  const ir_as_strided_attrs *a = in->attrs;
  uint32_t order[TTPU_MAX_RANK], n = 0;
  if (ir_numel(view) == 0) return true;
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.dims[i] == 1) continue;
    uint32_t at = n++;
    for (; at > 0 && llabs(a->strides.data[order[at - 1]]) > llabs(a->strides.data[i]); --at) order[at] = order[at - 1];
    order[at] = i;
  }
  int64_t reach = 0;
  for (uint32_t i = 0; i < n; ++i) {
    int64_t stride = llabs(a->strides.data[order[i]]);
    CHECK(stride > reach,
          "unsupported operation: more than one element of the written-to tensor refers to a single memory location "
          "(dimension %u has stride %lld). Please clone() the tensor before performing the operation.",
          order[i], (long long)a->strides.data[order[i]]);
    reach += (view.dims[order[i]] - 1) * stride;
  }
  return true;
}

/* The same number everywhere: then it does not matter that two elements of a view are one. */
static bool is_uniform(const ir_inference *in, ir_value v) {
  const ir_op *op = ir_def(in->func, v);
  if (op == NULL) return false;
  if (op->kind == IR_CONSTANT) return IR_ATTRS(op, constant)->value.splat;
  return op->kind == IR_BROADCAST_IN_DIM && ir_numel(ir_type_of(in->func, op->operands[0])) == 1;
}

bool infer_first(ir_inference *in) {
  CHECK(in->operand_count >= 1, "no operand");
  ir_type t = T(0);
  if (in->kind == IR_DYNAMIC_UPDATE_SLICE) {
    CHECK(in->operand_count >= 2, "no update");
    ir_type u = T(1);
    bool fits = u.dtype == t.dtype && u.rank == t.rank;
    for (uint32_t i = 0; fits && i < t.rank; ++i) fits = u.dims[i] <= t.dims[i];
    CHECK(fits, "update is %s, which does not fit into %s", IR_SHOW(u), IR_SHOW(t));
    TRY(check_starts(in, 2, t.rank));
  } else if (in->kind == IR_AS_STRIDED_UPDATE) {
    CHECK(T(1).dtype == t.dtype, "update is %s, operand is %s", IR_SHOW(T(1)), IR_SHOW(t));
    TRY(infer_check_strided(in, t, T(1)));
    if (!is_uniform(in, in->operands[1])) TRY(check_no_overlap(in, T(1)));
  } else if (in->kind == IR_SELECT_AND_SCATTER) {
    const ir_window_attrs *a = in->attrs;
    int64_t dims[TTPU_MAX_RANK];
    CHECK(a->base_dilations.count == 0 && a->window_dilations.count == 0, "this operation's windows have no dilations");
    TRY(infer_check_window(in, t, a, dims));
    ir_type source = {t.dtype, t.rank, dims};
    CHECK(ir_type_equal(T(1), source), "source is %s, expected %s", IR_SHOW(T(1)), IR_SHOW(source));
    CHECK(is_scalar(T(2), (ttpu_dtype)t.dtype), "init is %s, expected a scalar of %s", IR_SHOW(T(2)), IR_SHOW(t));
    TRY(infer_region_args(in, 0, 2));
    for (uint32_t i = 0; i < 2; ++i)
      CHECK(is_scalar(infer_region_arg(in, 0, i), (ttpu_dtype)t.dtype), "argument %u of region 0 is %s", i,
            IR_SHOW(infer_region_arg(in, 0, i)));
    TRY(infer_check_predicate_region(in, 0));
    TRY(infer_check_reducer(in, 1, 1, 0));
  }
  return infer_result(in, t);
}

/* The operand dims that a window still has: all but the collapsed (or inserted) and the batching ones. */
static bool check_indexed_dims(ir_inference *in, uint32_t rank, ir_i64s collapsed, const char *collapsed_name,
                               ir_i64s batching, const char *batching_name) {
  TRY(infer_check_dims(in, collapsed_name, collapsed, rank));
  TRY(infer_check_sorted(in, collapsed_name, collapsed));
  TRY(infer_check_dims(in, batching_name, batching, rank));
  TRY(infer_check_sorted(in, batching_name, batching));
  for (uint32_t i = 0; i < batching.count; ++i)
    CHECK(!has(collapsed, batching.data[i]), "dimension %lld is in both %s and %s", (long long)batching.data[i],
          collapsed_name, batching_name);
  return true;
}

/* What gather and scatter share: indices, the dims of the batch, and the maps. Fills `batch` with the dims of
 * indices but index_vector_dim. */
static bool check_indices(ir_inference *in, ir_type operand, ir_type indices, int64_t index_vector_dim, ir_i64s map,
                          const char *map_name, ir_i64s operand_batch, ir_i64s indices_batch,
                          const char *indices_batch_name, int64_t *batch, uint32_t *batch_count) {
  CHECK(base_dtype_is_integer((ttpu_dtype)indices.dtype), "indices are %s, expected integers", IR_SHOW(indices));
  CHECK(index_vector_dim >= 0 && index_vector_dim <= indices.rank, "index_vector_dim is %lld for indices %s",
        (long long)index_vector_dim, IR_SHOW(indices));
  int64_t per_index = index_vector_dim < indices.rank ? indices.dims[index_vector_dim] : 1;
  CHECK(map.count == per_index, "%s has %u entries, but an index has %lld", map_name, map.count, (long long)per_index);
  TRY(infer_check_dims(in, map_name, map, operand.rank));
  TRY(infer_check_dims(in, indices_batch_name, indices_batch, indices.rank));
  TRY(infer_check_count(in, indices_batch_name, indices_batch.count, operand_batch.count));
  for (uint32_t i = 0; i < indices_batch.count; ++i) {
    int64_t d = indices_batch.data[i];
    CHECK(d != index_vector_dim, "%s names index_vector_dim %lld", indices_batch_name, (long long)d);
    CHECK(!has(map, operand_batch.data[i]), "batching dimension %lld is in %s", (long long)operand_batch.data[i],
          map_name);
    CHECK(indices.dims[d] == operand.dims[operand_batch.data[i]],
          "batching dimension %lld of indices %s does not match %s", (long long)d, IR_SHOW(indices), IR_SHOW(operand));
  }
  *batch_count = 0;
  for (uint32_t i = 0; i < indices.rank; ++i)
    if (i != index_vector_dim) batch[(*batch_count)++] = indices.dims[i];
  return true;
}

bool infer_gather(ir_inference *in) {
  const ir_gather_attrs *a = in->attrs;
  ir_type t = T(0), indices = T(1);
  int64_t batch[TTPU_MAX_RANK], dims[TTPU_MAX_RANK], window[TTPU_MAX_RANK];
  uint32_t batch_count = 0, window_count = 0;
  TRY(check_indexed_dims(in, t.rank, a->collapsed_slice_dims, "collapsed_slice_dims", a->operand_batching_dims,
                         "operand_batching_dims"));
  TRY(check_indices(in, t, indices, a->index_vector_dim, a->start_index_map, "start_index_map",
                    a->operand_batching_dims, a->start_indices_batching_dims, "start_indices_batching_dims", batch,
                    &batch_count));
  TRY(infer_check_count(in, "slice_sizes", a->slice_sizes.count, t.rank));
  for (uint32_t i = 0; i < t.rank; ++i) {
    int64_t size = a->slice_sizes.data[i];
    bool gone = has(a->collapsed_slice_dims, i) || has(a->operand_batching_dims, i);
    CHECK(size >= 0 && size <= t.dims[i] && !(gone && size > 1), "slice_sizes[%u] is %lld for %s%s", i, (long long)size,
          IR_SHOW(t), gone ? ", expected at most 1" : "");
    if (!gone) window[window_count++] = size;
  }
  TRY(infer_check_count(in, "offset_dims", a->offset_dims.count, window_count));
  uint32_t rank = batch_count + window_count;
  CHECK(rank <= TTPU_MAX_RANK, "the result's rank %u is more than %d", rank, TTPU_MAX_RANK);
  TRY(infer_check_dims(in, "offset_dims", a->offset_dims, rank));
  TRY(infer_check_sorted(in, "offset_dims", a->offset_dims));
  for (uint32_t i = 0, w = 0, b = 0; i < rank; ++i) dims[i] = has(a->offset_dims, i) ? window[w++] : batch[b++];
  return infer_result_dims(in, rank, dims, (ttpu_dtype)t.dtype);
}

bool infer_scatter(ir_inference *in) {
  const ir_scatter_attrs *a = in->attrs;
  CHECK(in->operand_count >= 3 && in->operand_count % 2 == 1, "%u operands, expected inputs, indices, updates",
        in->operand_count);
  uint32_t n = in->operand_count / 2;
  ir_type t = T(0), u = T(n + 1);
  int64_t batch[TTPU_MAX_RANK];
  uint32_t batch_count = 0, w = 0, b = 0;
  for (uint32_t i = 0; i < n; ++i) {
    CHECK(ir_same_dims(T(i), t), "input %u is %s, but input 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(t));
    CHECK(ir_same_dims(T(n + 1 + i), u) && T(n + 1 + i).dtype == T(i).dtype,
          "update %u is %s, expected dims of %s and dtype of %s", i, IR_SHOW(T(n + 1 + i)), IR_SHOW(u), IR_SHOW(T(i)));
  }
  TRY(check_indexed_dims(in, t.rank, a->inserted_window_dims, "inserted_window_dims", a->input_batching_dims,
                         "input_batching_dims"));
  TRY(check_indices(in, t, T(n), a->index_vector_dim, a->scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims",
                    a->input_batching_dims, a->scatter_indices_batching_dims, "scatter_indices_batching_dims", batch,
                    &batch_count));
  TRY(infer_check_dims(in, "update_window_dims", a->update_window_dims, u.rank));
  TRY(infer_check_sorted(in, "update_window_dims", a->update_window_dims));
  TRY(infer_check_count(in, "update_window_dims", a->update_window_dims.count,
                        t.rank - a->inserted_window_dims.count - a->input_batching_dims.count));
  CHECK(u.rank == batch_count + a->update_window_dims.count, "updates are %s, expected rank %u", IR_SHOW(u),
        batch_count + a->update_window_dims.count);
  for (uint32_t i = 0; i < u.rank; ++i) {
    if (!has(a->update_window_dims, i)) {
      CHECK(u.dims[i] == batch[b], "dimension %u of updates %s does not match indices %s", i, IR_SHOW(u),
            IR_SHOW(T(n)));
      ++b;
      continue;
    }
    while (has(a->inserted_window_dims, w) || has(a->input_batching_dims, w)) ++w;
    CHECK(u.dims[i] <= t.dims[w], "dimension %u of updates %s is larger than dimension %u of %s", i, IR_SHOW(u), w,
          IR_SHOW(t));
    ++w;
  }
  TRY(infer_check_reducer(in, 0, n, 0));
  TRY(infer_results(in, n));
  for (uint32_t i = 0; i < n; ++i) in->results[i] = T(i);
  return true;
}
