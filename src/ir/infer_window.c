/* Inference of products, reductions and windows, and of what has regions or rules of its own. */
#include "ir/infer_int.h"

/* ---- products ------------------------------------------------------------------------------- */

/* The result's dtype: given, else the left operand's. */
static ttpu_dtype product_dtype(const ir_inference *in) {
  return (ttpu_dtype)(in->given_count ? in->given[0].dtype : T(0).dtype);
}

bool infer_dot_general(ir_inference *in) {
  const ir_dot_general_attrs *a = in->attrs;
  ir_type x = T(0), y = T(1);
  ir_i64s xb = a->lhs_batching_dimensions, yb = a->rhs_batching_dimensions;
  ir_i64s xc = a->lhs_contracting_dimensions, yc = a->rhs_contracting_dimensions;
  int64_t dims[2 * TTPU_MAX_RANK];
  uint32_t rank = 0;
  TRY(infer_check_dims(in, "lhs_batching_dimensions", xb, x.rank));
  TRY(infer_check_dims(in, "rhs_batching_dimensions", yb, y.rank));
  TRY(infer_check_dims(in, "lhs_contracting_dimensions", xc, x.rank));
  TRY(infer_check_dims(in, "rhs_contracting_dimensions", yc, y.rank));
  TRY(infer_check_count(in, "rhs_batching_dimensions", yb.count, xb.count));
  TRY(infer_check_count(in, "rhs_contracting_dimensions", yc.count, xc.count));
  for (uint32_t i = 0; i < xb.count; ++i) {
    CHECK(!has(xc, xb.data[i]) && !has(yc, yb.data[i]), "a dimension is both batching and contracting");
    CHECK(x.dims[xb.data[i]] == y.dims[yb.data[i]], "batching dimensions %lld of %s and %lld of %s differ",
          (long long)xb.data[i], IR_SHOW(x), (long long)yb.data[i], IR_SHOW(y));
    dims[rank++] = x.dims[xb.data[i]];
  }
  for (uint32_t i = 0; i < xc.count; ++i)
    CHECK(x.dims[xc.data[i]] == y.dims[yc.data[i]], "contracting dimensions %lld of %s and %lld of %s differ",
          (long long)xc.data[i], IR_SHOW(x), (long long)yc.data[i], IR_SHOW(y));
  for (uint32_t i = 0; i < x.rank; ++i)
    if (!has(xb, i) && !has(xc, i)) dims[rank++] = x.dims[i];
  for (uint32_t i = 0; i < y.rank; ++i)
    if (!has(yb, i) && !has(yc, i)) dims[rank++] = y.dims[i];
  CHECK(rank <= TTPU_MAX_RANK, "the result's rank %u is more than %d", rank, TTPU_MAX_RANK);
  return infer_result_dims(in, rank, dims, product_dtype(in));
}

/* How many windows of `size` fit: the spec's (x - w) / stride + 1, none when the window is larger. */
static int64_t windows(int64_t padded, int64_t size, int64_t stride) {
  return padded < size ? 0 : (padded - size) / stride + 1;
}
static int64_t dilate(int64_t size, int64_t dilation) { return size > 0 ? (size - 1) * dilation + 1 : 0; }
static int64_t at_or(ir_i64s list, uint32_t i, int64_t otherwise) { return list.count ? list.data[i] : otherwise; }

/* Each entry lies in [low, 2^31]: windows of real programs do, and sums of products then cannot overflow. */
static bool check_sizes(ir_inference *in, const char *what, ir_i64s list, uint32_t count, int64_t low,
                        bool may_be_empty) {
  if (may_be_empty && list.count == 0) return true;
  TRY(infer_check_count(in, what, list.count, count));
  for (uint32_t i = 0; i < count; ++i)
    CHECK(list.data[i] >= low && list.data[i] <= (int64_t)1 << 31, "%s[%u] is %lld, expected [%lld, 2^31]", what, i,
          (long long)list.data[i], (long long)low);
  return true;
}

static bool window_count(ir_inference *in, uint32_t dim, int64_t size, int64_t window, int64_t stride, ir_i64s padding,
                         uint32_t pair, int64_t base_dilation, int64_t window_dilation, int64_t *out) {
  CHECK(size <= (int64_t)1 << 31, "dimension %u is %lld, too large for a window", dim, (long long)size);
  int64_t low = at_or(padding, 2 * pair, 0), high = at_or(padding, 2 * pair + 1, 0);
  int64_t padded = dilate(size, base_dilation) + low + high;
  CHECK(padded >= 0, "dimension %u is %lld after padding", dim, (long long)padded);
  *out = windows(padded, dilate(window, window_dilation), stride);
  return true;
}

static bool check_dim_partition(ir_inference *in, const char *what, int64_t first, int64_t second, ir_i64s spatial,
                                uint32_t rank) {
  int64_t all[TTPU_MAX_RANK + 2] = {first, second};
  CHECK(spatial.count + 2 == rank, "%s has %u spatial dimensions for rank %u", what, spatial.count, rank);
  for (uint32_t i = 0; i < spatial.count; ++i) all[2 + i] = spatial.data[i];
  return infer_check_dims(in, what, (ir_i64s){all, rank}, rank);
}

static bool check_convolution(ir_inference *in, const ir_convolution_attrs *a, ir_type x, ir_type w) {
  CHECK(x.rank >= 2 && x.rank == w.rank, "operands are %s and %s, expected equal ranks of 2 or more", IR_SHOW(x),
        IR_SHOW(w));
  uint32_t spatial = x.rank - 2u;
  TRY(check_dim_partition(in, "input dimensions", a->input_batch_dimension, a->input_feature_dimension,
                          a->input_spatial_dimensions, x.rank));
  TRY(check_dim_partition(in, "kernel dimensions", a->kernel_input_feature_dimension,
                          a->kernel_output_feature_dimension, a->kernel_spatial_dimensions, x.rank));
  TRY(check_dim_partition(in, "output dimensions", a->output_batch_dimension, a->output_feature_dimension,
                          a->output_spatial_dimensions, x.rank));
  TRY(check_sizes(in, "window_strides", a->window_strides, spatial, 1, true));
  TRY(check_sizes(in, "padding", a->padding, 2 * spatial, -((int64_t)1 << 31), true));
  TRY(check_sizes(in, "lhs_dilation", a->lhs_dilation, spatial, 1, true));
  TRY(check_sizes(in, "rhs_dilation", a->rhs_dilation, spatial, 1, true));
  if (a->window_reversal.count) TRY(infer_check_count(in, "window_reversal", a->window_reversal.count, spatial));
  int64_t fg = a->feature_group_count, bg = a->batch_group_count;
  CHECK(fg >= 1 && bg >= 1 && (fg == 1 || bg == 1),
        "feature_group_count %lld and batch_group_count %lld: at least 1, one of them 1", (long long)fg, (long long)bg);
  int64_t features = x.dims[a->input_feature_dimension], in_features = w.dims[a->kernel_input_feature_dimension];
  int64_t out_features = w.dims[a->kernel_output_feature_dimension];
  CHECK(features % fg == 0 && features / fg == in_features, "input features of %s over %lld groups do not match %s",
        IR_SHOW(x), (long long)fg, IR_SHOW(w));
  CHECK(out_features % fg == 0 && out_features % bg == 0, "output features of %s are no multiple of the group count",
        IR_SHOW(w));
  CHECK(x.dims[a->input_batch_dimension] % bg == 0, "batch of %s is no multiple of %lld", IR_SHOW(x), (long long)bg);
  return true;
}

bool infer_convolution(ir_inference *in) {
  const ir_convolution_attrs *a = in->attrs;
  ir_type x = T(0), w = T(1);
  int64_t dims[TTPU_MAX_RANK];
  TRY(check_convolution(in, a, x, w));
  dims[a->output_batch_dimension] = x.dims[a->input_batch_dimension] / a->batch_group_count;
  dims[a->output_feature_dimension] = w.dims[a->kernel_output_feature_dimension];
  for (uint32_t i = 0; i + 2 < x.rank; ++i) {
    int64_t d = a->input_spatial_dimensions.data[i], window = w.dims[a->kernel_spatial_dimensions.data[i]];
    TRY(window_count(in, (uint32_t)d, x.dims[d], window, at_or(a->window_strides, i, 1), a->padding, i,
                     at_or(a->lhs_dilation, i, 1), at_or(a->rhs_dilation, i, 1),
                     &dims[a->output_spatial_dimensions.data[i]]));
  }
  return infer_result_dims(in, x.rank, dims, product_dtype(in));
}

/* ---- reductions and windows ----------------------------------------------------------------- */

/* n inputs of equal dims, n scalar inits of their dtypes. */
static bool check_inputs_and_inits(ir_inference *in, uint32_t *n) {
  CHECK(in->operand_count >= 2 && in->operand_count % 2 == 0, "%u operands, expected inputs and as many inits",
        in->operand_count);
  *n = in->operand_count / 2;
  for (uint32_t i = 0; i < *n; ++i) {
    CHECK(ir_same_dims(T(i), T(0)), "input %u is %s, but input 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(T(0)));
    CHECK(is_scalar(T(*n + i), (ttpu_dtype)T(i).dtype), "init %u is %s, expected a scalar of %s", i, IR_SHOW(T(*n + i)),
          IR_SHOW(T(i)));
  }
  return true;
}

bool infer_reduce(ir_inference *in) {
  ir_i64s reduced = ((const ir_dims_attrs *)in->attrs)->dimensions;
  uint32_t n = 0, rank = 0;
  TRY(check_inputs_and_inits(in, &n));
  ir_type t = T(0);
  int64_t dims[TTPU_MAX_RANK];
  TRY(infer_check_dims(in, "dimensions", reduced, t.rank));
  TRY(infer_check_reducer(in, 0, n, 0));
  for (uint32_t i = 0; i < t.rank; ++i)
    if (!has(reduced, i)) dims[rank++] = t.dims[i];
  TRY(infer_results(in, n));
  TRY(infer_fresh(in, rank, dims, (ttpu_dtype)t.dtype, &in->results[0]));
  for (uint32_t i = 1; i < n; ++i) in->results[i] = with_dtype(in->results[0], (ttpu_dtype)T(i).dtype);
  return true;
}

bool infer_check_window(ir_inference *in, ir_type t, const ir_window_attrs *a, int64_t *dims) {
  TRY(check_sizes(in, "window_dimensions", a->window_dimensions, t.rank, 1, false));
  TRY(check_sizes(in, "window_strides", a->window_strides, t.rank, 1, true));
  TRY(check_sizes(in, "base_dilations", a->base_dilations, t.rank, 1, true));
  TRY(check_sizes(in, "window_dilations", a->window_dilations, t.rank, 1, true));
  TRY(check_sizes(in, "padding", a->padding, 2u * t.rank, -((int64_t)1 << 31), true));
  for (uint32_t i = 0; i < t.rank; ++i)
    TRY(window_count(in, i, t.dims[i], a->window_dimensions.data[i], at_or(a->window_strides, i, 1), a->padding, i,
                     at_or(a->base_dilations, i, 1), at_or(a->window_dilations, i, 1), &dims[i]));
  return true;
}

bool infer_reduce_window(ir_inference *in) {
  uint32_t n = 0;
  int64_t dims[TTPU_MAX_RANK];
  TRY(check_inputs_and_inits(in, &n));
  ir_type t = T(0);
  TRY(infer_check_window(in, t, in->attrs, dims));
  TRY(infer_check_reducer(in, 0, n, 0));
  TRY(infer_results(in, n));
  TRY(infer_fresh(in, t.rank, dims, (ttpu_dtype)t.dtype, &in->results[0]));
  for (uint32_t i = 1; i < n; ++i) in->results[i] = with_dtype(in->results[0], (ttpu_dtype)T(i).dtype);
  return true;
}

static bool check_sort(ir_inference *in) {
  ir_type t = T(0);
  for (uint32_t i = 1; i < in->operand_count; ++i)
    CHECK(ir_same_dims(T(i), t), "operand %u is %s, but operand 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(t));
  TRY(infer_check_dim(in, "dimension", ((const ir_sort_attrs *)in->attrs)->dimension, t.rank));
  TRY(infer_region_args(in, 0, 2 * in->operand_count));
  for (uint32_t i = 0; i < 2 * in->operand_count; ++i)
    CHECK(is_scalar(infer_region_arg(in, 0, i), (ttpu_dtype)T(i / 2).dtype),
          "argument %u of the comparator is %s, expected a scalar of %s", i, IR_SHOW(infer_region_arg(in, 0, i)),
          IR_SHOW(T(i / 2)));
  return infer_check_predicate_region(in, 0);
}

static bool check_while(ir_inference *in) {
  const ir_op *ret = NULL;
  for (uint32_t r = 0; r < 2; ++r) {
    TRY(infer_region_args(in, r, in->operand_count));
    for (uint32_t i = 0; i < in->operand_count; ++i)
      CHECK(ir_type_equal(infer_region_arg(in, r, i), T(i)), "argument %u of region %u is %s, but operand %u is %s", i,
            r, IR_SHOW(infer_region_arg(in, r, i)), i, IR_SHOW(T(i)));
  }
  TRY(infer_check_predicate_region(in, 0));
  TRY(infer_region_return(in, 1, in->operand_count, &ret));
  for (uint32_t i = 0; i < in->operand_count; ++i) {
    ir_type back = ir_type_of(in->func, ret->operands[i]);
    CHECK(ir_type_equal(back, T(i)), "the body returns %s for operand %u, which is %s", IR_SHOW(back), i,
          IR_SHOW(T(i)));
  }
  return true;
}

bool infer_all_same(ir_inference *in) {
  int64_t size = 0;
  switch (in->kind) {
    case IR_SORT:
      CHECK(in->operand_count > 0, "no operands");
      TRY(check_sort(in));
      break;
    case IR_WHILE: TRY(check_while(in)); break;
    case IR_ALL_REDUCE:
      TRY(infer_check_groups(in, &size));
      for (uint32_t i = 0; i < in->operand_count; ++i)
        CHECK(T(i).dtype == T(0).dtype, "operand %u is %s, but operand 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(T(0)));
      if (in->operand_count) TRY(infer_check_reducer(in, 0, 1, 0));
      break;
    default: break;
  }
  TRY(infer_results(in, in->operand_count));
  for (uint32_t i = 0; i < in->operand_count; ++i) in->results[i] = T(i);
  return true;
}

/* Values, and behind them, where the root is said at run time, its place in the group for each of them. */
bool infer_rooted(ir_inference *in) {
  bool dynamic = ((const ir_replica_groups_attrs *)in->attrs)->has_dynamic_root;
  int64_t size = 0;
  CHECK(in->operand_count > dynamic, dynamic ? "there is no value besides the roots" : "no operands");
  uint32_t values = in->operand_count - dynamic;
  TRY(infer_check_groups(in, &size));
  if (dynamic)
    CHECK(T(values).dtype == TTPU_I32 && T(values).rank == 1 && T(values).dims[0] == values,
          "the roots are %s, expected tensor<%uxi32>", IR_SHOW(T(values)), values);
  if (in->kind == IR_COLLECTIVE_REDUCE) {
    for (uint32_t i = 0; i < values; ++i)
      CHECK(T(i).dtype == T(0).dtype, "operand %u is %s, but operand 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(T(0)));
    TRY(infer_check_reducer(in, 0, 1, 0));
  }
  TRY(infer_results(in, values));
  for (uint32_t i = 0; i < values; ++i) in->results[i] = T(i);
  return true;
}

bool infer_region_yield(ir_inference *in) {
  const ir_op *first = NULL, *other = NULL;
  if (in->kind == IR_IF) {
    CHECK(is_scalar(T(0), TTPU_BOOL), "pred is %s, expected tensor<i1>", IR_SHOW(T(0)));
  } else {
    CHECK(is_scalar(T(0), TTPU_I32), "index is %s, expected tensor<i32>", IR_SHOW(T(0)));
  }
  CHECK(in->region_count > 0, "no branches");
  TRY(infer_region_return(in, 0, -1, &first));
  for (uint32_t r = 0; r < in->region_count; ++r) {
    TRY(infer_region_args(in, r, 0));
    TRY(infer_region_return(in, r, first->operand_count, &other));
    for (uint32_t i = 0; i < first->operand_count; ++i) {
      ir_type a = ir_type_of(in->func, first->operands[i]), b = ir_type_of(in->func, other->operands[i]);
      CHECK(ir_type_equal(a, b), "branch %u returns %s as result %u, branch 0 returns %s", r, IR_SHOW(b), i,
            IR_SHOW(a));
    }
  }
  TRY(infer_results(in, first->operand_count));
  for (uint32_t i = 0; i < first->operand_count; ++i) in->results[i] = ir_type_of(in->func, first->operands[i]);
  return true;
}

bool infer_token(ir_inference *in) {
  bool values = in->kind == IR_SEND || in->kind == IR_OUTFEED; /* in front of the token */
  CHECK(!values || in->operand_count, "no token");
  for (uint32_t i = 0; values && i + 1 < in->operand_count; ++i)
    CHECK(T(i).dtype != TTPU_TOKEN, "operand %u is a token", i);
  for (uint32_t i = values ? in->operand_count - 1 : 0; i < in->operand_count; ++i)
    CHECK(T(i).dtype == TTPU_TOKEN, "operand %u is %s, expected a token", i, IR_SHOW(T(i)));
  return infer_result(in, (ir_type){TTPU_TOKEN, 0, ir_no_dims});
}

/* A region over scalars, run for every index; all dimensions are named. */
bool infer_map(ir_inference *in) {
  const ir_op *ret = NULL;
  ir_i64s dims = ((const ir_dims_attrs *)in->attrs)->dimensions;
  CHECK(in->operand_count >= 1, "no operand");
  ir_type t = T(0);
  CHECK(dims.count == t.rank, "%u dimensions, expected all of %s", dims.count, IR_SHOW(t));
  for (uint32_t i = 0; i < dims.count; ++i) CHECK(dims.data[i] == i, "dimensions are not 0, 1, 2, ...");
  TRY(infer_region_args(in, 0, in->operand_count));
  for (uint32_t i = 0; i < in->operand_count; ++i) {
    CHECK(ir_same_dims(T(i), t), "operand %u is %s, but operand 0 is %s", i, IR_SHOW(T(i)), IR_SHOW(t));
    ir_type arg = infer_region_arg(in, 0, i);
    CHECK(is_scalar(arg, (ttpu_dtype)T(i).dtype), "argument %u of the region is %s, expected a scalar of %s", i,
          IR_SHOW(arg), base_dtypes[T(i).dtype].hlo_name);
  }
  TRY(infer_region_return(in, 0, 1, &ret));
  ir_type back = ir_type_of(in->func, ret->operands[0]);
  CHECK(back.rank == 0, "the region returns %s, expected a scalar", IR_SHOW(back));
  return infer_result(in, (ir_type){back.dtype, t.rank, t.dims});
}

bool infer_nothing(ir_inference *in) { return infer_results(in, 0); }

/* ---- linear algebra, FFT -------------------------------------------------------------------- */

bool infer_fft(ir_inference *in) {
  const ir_fft_attrs *a = in->attrs;
  ir_type t = T(0);
  uint32_t n = a->fft_length.count;
  CHECK(n >= 1 && n <= 3 && n <= t.rank, "fft_length has %u entries for %s, expected 1 to 3", n, IR_SHOW(t));
  bool real_in = a->fft_type == IR_FFT_RFFT, real_out = a->fft_type == IR_FFT_IRFFT;
  CHECK(real_in ? t.dtype == TTPU_F32 || t.dtype == TTPU_F64 : base_dtype_is_complex((ttpu_dtype)t.dtype),
        "operand is %s, expected %s", IR_SHOW(t), real_in ? "f32 or f64" : "complex");
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, t.dims, t.rank * sizeof *dims);
  for (uint32_t i = 0; i < n; ++i) {
    int64_t length = a->fft_length.data[i], d = t.dims[t.rank - n + i];
    bool last = i + 1 == n;
    int64_t want = last && real_out ? (length > 0 ? length / 2 + 1 : 0) : length;
    CHECK(length >= 0 && d == want, "fft_length[%u] is %lld for %s", i, (long long)length, IR_SHOW(t));
    if (last) dims[t.rank - 1] = real_in ? (length > 0 ? length / 2 + 1 : 0) : length;
  }
  ttpu_dtype dtype = (ttpu_dtype)t.dtype;
  if (real_in) dtype = dtype == TTPU_F32 ? TTPU_C64 : TTPU_C128;
  if (real_out) dtype = part_of(dtype);
  return infer_result_dims(in, t.rank, dims, dtype);
}

/* triangular_solve: the type of b. */
bool infer_second(ir_inference *in) {
  const ir_triangular_solve_attrs *a = in->attrs;
  ir_type m = T(0), b = T(1);
  TRY(infer_check_class(in, m));
  CHECK(m.dtype == b.dtype && m.rank == b.rank && m.rank >= 2, "operands are %s and %s", IR_SHOW(m), IR_SHOW(b));
  int64_t n = m.dims[m.rank - 1];
  CHECK(m.dims[m.rank - 2] == n, "a is %s, expected square matrices", IR_SHOW(m));
  CHECK(b.dims[b.rank - (a->left_side ? 2 : 1)] == n, "b is %s, which does not match a %s", IR_SHOW(b), IR_SHOW(m));
  for (uint32_t i = 0; i + 2 < m.rank; ++i)
    CHECK(m.dims[i] == b.dims[i], "batch dimensions of %s and %s differ", IR_SHOW(m), IR_SHOW(b));
  return infer_result(in, b);
}

/* ---- composites with rules of their own ----------------------------------------------------- */

bool infer_attention(ir_inference *in) {
  CHECK(in->operand_count == 4 || in->operand_count == 5, "%u operands, expected q, k, v, scale and perhaps bias",
        in->operand_count);
  ir_type q = T(0), k = T(1), v = T(2), scale = T(3);
  CHECK(base_dtype_is_float((ttpu_dtype)q.dtype) && q.dtype == k.dtype && q.dtype == v.dtype,
        "q is %s, k is %s, v is %s, expected one float dtype", IR_SHOW(q), IR_SHOW(k), IR_SHOW(v));
  CHECK(q.rank == 4 && k.rank == 4 && v.rank == 4, "q is %s, k is %s, v is %s, expected rank 4", IR_SHOW(q), IR_SHOW(k),
        IR_SHOW(v));
  CHECK(q.dims[0] == k.dims[0] && q.dims[0] == v.dims[0] && q.dims[3] == k.dims[3] && k.dims[1] == v.dims[1] &&
            k.dims[2] == v.dims[2],
        "q %s, k %s and v %s do not match", IR_SHOW(q), IR_SHOW(k), IR_SHOW(v));
  CHECK(k.dims[1] == 0 ? q.dims[1] == 0 : q.dims[1] % k.dims[1] == 0, "%lld query heads are no multiple of %lld",
        (long long)q.dims[1], (long long)k.dims[1]);
  CHECK(scale.rank == 0 && base_dtype_is_float((ttpu_dtype)scale.dtype), "scale is %s, expected a float scalar",
        IR_SHOW(scale));
  if (in->operand_count == 5) {
    ir_type bias = T(4);
    const int64_t full[4] = {q.dims[0], q.dims[1], q.dims[2], k.dims[2]};
    bool fits = base_dtype_is_float((ttpu_dtype)bias.dtype) && bias.rank <= 4;
    for (uint32_t i = 0; fits && i < bias.rank; ++i)
      fits = bias.dims[i] == 1 || bias.dims[i] == full[4 - bias.rank + i];
    CHECK(fits, "bias is %s, which does not broadcast to %s", IR_SHOW(bias), IR_SHOW(((ir_type){q.dtype, 4, full})));
  }
  const int64_t out[4] = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
  TRY(infer_results(in, 2));
  TRY(infer_fresh(in, 4, out, (ttpu_dtype)q.dtype, &in->results[0]));
  in->results[1] = (ir_type){TTPU_F32, 3, in->results[0].dims};
  return true;
}

bool infer_scan(ir_inference *in) {
  const ir_scan_attrs *a = in->attrs;
  ir_type t = T(0);
  bool extreme = a->kind == IR_CUMMAX || a->kind == IR_CUMMIN;
  TRY(infer_check_dim(in, "dimension", a->dimension, t.rank));
  CHECK(a->kind != IR_LOGCUMSUMEXP || base_dtype_is_float((ttpu_dtype)t.dtype), "logcumsumexp of %s, expected floats",
        IR_SHOW(t));
  CHECK(!extreme || !base_dtype_is_complex((ttpu_dtype)t.dtype), "%s: complex numbers have no order", IR_SHOW(t));
  CHECK(extreme || t.dtype != TTPU_BOOL, "operand is %s, expected numbers", IR_SHOW(t));
  TRY(infer_results(in, extreme ? 2 : 1));
  in->results[0] = t;
  if (extreme) in->results[1] = with_dtype(t, TTPU_I64);
  return true;
}

bool infer_top_k(ir_inference *in) {
  const ir_top_k_attrs *a = in->attrs;
  ir_type t = T(0);
  CHECK(t.rank >= 1 && !base_dtype_is_complex((ttpu_dtype)t.dtype),
        "operand is %s, expected a real tensor of rank 1 or more", IR_SHOW(t));
  CHECK(a->k >= 0 && a->k <= t.dims[t.rank - 1], "k is %lld for %s", (long long)a->k, IR_SHOW(t));
  int64_t dims[TTPU_MAX_RANK];
  memcpy(dims, t.dims, t.rank * sizeof *dims);
  dims[t.rank - 1] = a->k;
  TRY(infer_results(in, 2));
  TRY(infer_fresh(in, t.rank, dims, (ttpu_dtype)t.dtype, &in->results[0]));
  in->results[1] = with_dtype(in->results[0], TTPU_I64);
  return true;
}

bool infer_path_scan(ir_inference *in) {
  ir_type x = T(0), skip = T(1), start = T(2);
  CHECK(x.rank == 3 && base_dtype_is_float((ttpu_dtype)x.dtype), "x is %s, expected floats of rank 3", IR_SHOW(x));
  CHECK(skip.dtype == TTPU_BOOL && skip.rank == 2 && skip.dims[0] == x.dims[1] && skip.dims[1] == x.dims[2],
        "skip is %s for %s", IR_SHOW(skip), IR_SHOW(x));
  CHECK(start.dtype == TTPU_I64 && start.rank == 1 && start.dims[0] == x.dims[1], "start is %s for %s", IR_SHOW(start),
        IR_SHOW(x));
  return infer_result(in, x);
}
