/* Operations that combine many elements into one: products, reductions, windows, scans, orders. */
#include <math.h>
#include <string.h>

#include "soft/reference_int.h"

#define UNUSED(f) (void)(f)

static int64_t offset_of(const soft_view *v, const int64_t *index) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < v->rank; ++d) offset += index[d] * v->strides[d];
  return offset;
}
static base_scalar load_offset(const soft_view *v, int64_t offset) {
  return base_scalar_load(v->dtype, (char *)v->data + offset * (int64_t)base_dtype_bytes(v->dtype));
}
static base_scalar scalar_at(const soft_view *v) { return base_scalar_load(v->dtype, v->data); }

/* ---- products ---------------------------------------------------------------------------------- */

/* What a product is computed in: operands of one class as they are, others (integers with floats) as the result. */
static ttpu_dtype product_dtype(const soft_view *x, const soft_view *y) {
  return base_dtypes[x[0].dtype].cls == base_dtypes[x[1].dtype].cls ? x[0].dtype : y->dtype;
}

static base_scalar load_factor(const soft_view *v, int64_t offset, ttpu_dtype product) {
  base_scalar x = load_offset(v, offset);
  return base_dtypes[v->dtype].cls == base_dtypes[product].cls ? x : base_scalar_convert(v->dtype, product, x);
}

/* A sum of products: floats in double, complex in double, integers modulo 2^64. */
typedef struct product_sum {
  ttpu_dtype_class cls;
  int passes; /* bf16 passes over f32 operands: 1, 3, or 0 for exact products */
  base_scalar total;
} product_sum;

static product_sum product_begin(ttpu_dtype operand, ir_precision precision) {
  product_sum s = {.cls = base_dtypes[operand].cls};
  if (operand == TTPU_F32) s.passes = precision == IR_PRECISION_DEFAULT ? 1 : precision == IR_PRECISION_HIGH ? 3 : 0;
  return s;
}

static double bf16_part(double x) { return base_f32_from_bf16(base_bf16_from_f32((float)x)); }

/* What a product of f32 is in passes over bf16 parts: high*high, then also high*low and low*high. */
static double product_in_passes(int passes, double x, double y) {
  double x_high = bf16_part(x), y_high = bf16_part(y);
  if (passes == 1 || !isfinite(x_high) || !isfinite(y_high)) return x_high * y_high;
  return x_high * y_high + (x_high * bf16_part(y - y_high) + bf16_part(x - x_high) * y_high);
}

static void product_add(product_sum *s, base_scalar x, base_scalar y) {
  switch (s->cls) {
    case DTYPE_FLOAT:
      s->total.d[0] += s->passes ? product_in_passes(s->passes, x.d[0], y.d[0]) : x.d[0] * y.d[0];
      return;
    case DTYPE_COMPLEX:
      s->total.d[0] += x.d[0] * y.d[0] - x.d[1] * y.d[1];
      s->total.d[1] += x.d[0] * y.d[1] + x.d[1] * y.d[0];
      return;
    case DTYPE_BOOL: s->total.u |= x.u & y.u; return;
    default: s->total.u += x.u * y.u; return;
  }
}

/* The total was kept wide; integers are brought into the operands' kind by the store. */
static void product_store(const product_sum *s, ttpu_dtype operand, const soft_view *y, const int64_t *at) {
  ttpu_dtype wide = s->cls == DTYPE_FLOAT      ? TTPU_F64
                    : s->cls == DTYPE_COMPLEX  ? TTPU_C128
                    : s->cls == DTYPE_UNSIGNED ? TTPU_U64
                    : s->cls == DTYPE_BOOL     ? operand
                                               : TTPU_I64;
  ref_store(y, at, base_scalar_convert(wide, y->dtype, s->total));
}

/* Result dimensions: batching, then free dimensions of the left, then of the right operand. */
ttpu_status ref_dot_general(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_dot_general_attrs *a = IR_ATTRS(op, dot_general);
  const soft_view *l = &x[0], *r = &x[1];
  const ttpu_dtype type = product_dtype(x, y);
  const ir_i64s lb = a->lhs_batching_dimensions, rb = a->rhs_batching_dimensions;
  const ir_i64s lc = a->lhs_contracting_dimensions, rc = a->rhs_contracting_dimensions;
  int64_t contracted[TTPU_MAX_RANK];
  for (uint32_t k = 0; k < lc.count; ++k) contracted[k] = l->dims[lc.data[k]];
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t left = 0, right = 0;
    uint32_t d = 0;
    for (uint32_t k = 0; k < lb.count; ++k, ++d) {
      left += i.at[d] * l->strides[lb.data[k]];
      right += i.at[d] * r->strides[rb.data[k]];
    }
    for (uint32_t k = 0; k < l->rank; ++k)
      if (!ref_contains(lb, k) && !ref_contains(lc, k)) left += i.at[d++] * l->strides[k];
    for (uint32_t k = 0; k < r->rank; ++k)
      if (!ref_contains(rb, k) && !ref_contains(rc, k)) right += i.at[d++] * r->strides[k];
    product_sum sum = product_begin(type, a->precision);
    for (ref_index c = ref_index_begin(lc.count, contracted); c.more; ref_index_next(&c)) {
      int64_t from_left = left, from_right = right;
      for (uint32_t k = 0; k < lc.count; ++k) {
        from_left += c.at[k] * l->strides[lc.data[k]];
        from_right += c.at[k] * r->strides[rc.data[k]];
      }
      product_add(&sum, load_factor(l, from_left, type), load_factor(r, from_right, type));
    }
    product_store(&sum, type, y, i.at);
  }
  return TTPU_OK;
}

/* The input position under kernel position `k` of output position `o`, in one spatial dimension; false: padding. */
static bool convolution_position(const ir_convolution_attrs *a, uint32_t d, int64_t o, int64_t k, int64_t kernel_size,
                                 int64_t input_size, int64_t *position) {
  bool reversed = a->window_reversal.count && a->window_reversal.data[d];
  int64_t p = o * ref_get(a->window_strides, d, 1) +
              (reversed ? kernel_size - 1 - k : k) * ref_get(a->rhs_dilation, d, 1) - ref_get(a->padding, 2 * d, 0);
  int64_t dilation = ref_get(a->lhs_dilation, d, 1);
  *position = p / dilation;
  return p >= 0 && p % dilation == 0 && *position < input_size;
}

ttpu_status ref_convolution(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_convolution_attrs *a = IR_ATTRS(op, convolution);
  const soft_view *input = &x[0], *kernel = &x[1];
  const ttpu_dtype type = product_dtype(x, y);
  uint32_t spatial = a->input_spatial_dimensions.count;
  int64_t features = kernel->dims[a->kernel_input_feature_dimension]; /* of one group */
  int64_t outputs = kernel->dims[a->kernel_output_feature_dimension];
  int64_t outputs_per_group = outputs / a->feature_group_count, batch_groups = a->batch_group_count;
  int64_t outputs_per_batch_group = outputs / batch_groups,
          batch = input->dims[a->input_batch_dimension] / batch_groups;
  int64_t window[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < spatial; ++d) window[d] = kernel->dims[a->kernel_spatial_dimensions.data[d]];
  window[spatial] = features;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t feature = i.at[a->output_feature_dimension], at[TTPU_MAX_RANK] = {0}, tap[TTPU_MAX_RANK] = {0};
    product_sum sum = product_begin(type, a->precision);
    at[a->input_batch_dimension] =
        i.at[a->output_batch_dimension] + (batch_groups > 1 ? feature / outputs_per_batch_group * batch : 0);
    tap[a->kernel_output_feature_dimension] = feature;
    for (ref_index w = ref_index_begin(spatial + 1, window); w.more; ref_index_next(&w)) {
      bool inside = true;
      for (uint32_t d = 0; d < spatial && inside; ++d) {
        int64_t dim = a->input_spatial_dimensions.data[d];
        tap[a->kernel_spatial_dimensions.data[d]] = w.at[d];
        inside = convolution_position(a, d, i.at[a->output_spatial_dimensions.data[d]], w.at[d], window[d],
                                      input->dims[dim], &at[dim]);
      }
      if (!inside) continue;
      at[a->input_feature_dimension] = w.at[spatial] + feature / outputs_per_group * features;
      tap[a->kernel_input_feature_dimension] = w.at[spatial];
      product_add(&sum, load_factor(input, offset_of(input, at), type),
                  load_factor(kernel, offset_of(kernel, tap), type));
    }
    product_store(&sum, type, y, i.at);
  }
  return TTPU_OK;
}

/* ---- reductions --------------------------------------------------------------------------------- */

/* How the region of a reduction is applied. A lone known operation on one input runs without the interpreter;
 * sums and products of floats then keep their running value in double. */
typedef struct reducer {
  ir_kind kind;     /* IR_NO_OP: interpret */
  ttpu_dtype dtype; /* one input: its dtype, or the wide one of its class */
  uint32_t inputs;
  ref_frame frame;
  const ir_region *region;
  base_scalar *scalars; /* inputs: accumulators, then current values, then results */
} reducer;

static ttpu_dtype wide_dtype(ttpu_dtype t) {
  return base_dtype_is_float(t) ? TTPU_F64 : base_dtype_is_complex(t) ? TTPU_C128 : t;
}

static ttpu_status reducer_open(reducer *r, const ir_func *f, const ir_op *op, const soft_view *x, uint32_t inputs) {
  *r = (reducer){.inputs = inputs, .region = op->regions[0]};
  if (inputs == 1) r->kind = ir_region_reducer(f, op->regions[0]);
  r->dtype = x[0].dtype;
  if (r->kind == IR_ADD || r->kind == IR_MULTIPLY) r->dtype = wide_dtype(r->dtype);
  base_scalar probe;
  if (r->kind && !ref_binary(r->kind, r->dtype, (base_scalar){0}, (base_scalar){0}, &probe)) r->kind = IR_NO_OP;
  r->scalars = base_alloc(3 * inputs * sizeof *r->scalars + 1);
  if (!r->scalars) return base_no_memory(3 * inputs * sizeof *r->scalars);
  ttpu_status status = ref_frame_open(&r->frame, f, op, x);
  if (status != TTPU_OK) base_free(r->scalars);
  return status;
}

static void reducer_close(reducer *r) {
  ref_frame_close(&r->frame);
  base_free(r->scalars);
}

/* accumulators = region(accumulators, values) */
static ttpu_status reducer_step(reducer *r) {
  base_scalar *accumulators = r->scalars, *results = r->scalars + 2 * r->inputs;
  if (r->kind) {
    ref_binary(r->kind, r->dtype, accumulators[0], r->scalars[1], accumulators);
    return TTPU_OK;
  }
  BASE_TRY(ref_region_call(&r->frame, r->region, r->scalars, r->inputs, results));
  memcpy(accumulators, results, r->inputs * sizeof *results);
  return TTPU_OK;
}

static ttpu_status reduce_one(reducer *r, ir_i64s dims, const soft_view *x, const soft_view *y, const int64_t *at) {
  int64_t from[TTPU_MAX_RANK] = {0}, inner[TTPU_MAX_RANK];
  for (uint32_t d = 0, k = 0; d < x->rank; ++d)
    if (!ref_contains(dims, d)) from[d] = at[k++];
  uint32_t n = 0;
  for (uint32_t d = 0; d < x->rank; ++d)
    if (ref_contains(dims, d)) inner[n++] = x->dims[d];
  for (uint32_t k = 0; k < r->inputs; ++k) r->scalars[k] = scalar_at(&x[r->inputs + k]);
  for (ref_index i = ref_index_begin(n, inner); i.more; ref_index_next(&i)) {
    for (uint32_t d = 0, k = 0; d < x->rank; ++d)
      if (ref_contains(dims, d)) from[d] = i.at[k++];
    for (uint32_t k = 0; k < r->inputs; ++k) r->scalars[r->inputs + k] = ref_load(&x[k], from);
    BASE_TRY(reducer_step(r));
  }
  for (uint32_t k = 0; k < r->inputs; ++k) ref_store(&y[k], at, r->scalars[k]);
  return TTPU_OK;
}

ttpu_status ref_reduce(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  reducer r;
  BASE_TRY(reducer_open(&r, f, op, x, op->result_count));
  ttpu_status status = TTPU_OK;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more && status == TTPU_OK; ref_index_next(&i))
    status = reduce_one(&r, IR_ATTRS(op, dims)->dimensions, x, y, i.at);
  reducer_close(&r);
  return status;
}

/* The element under window position `w` of output position `o`; false: padding or a hole of the dilation. */
static bool window_position(const ir_window_attrs *a, const soft_view *x, const int64_t *o, const int64_t *w,
                            int64_t *at) {
  for (uint32_t d = 0; d < x->rank; ++d) {
    int64_t p = o[d] * ref_get(a->window_strides, d, 1) + w[d] * ref_get(a->window_dilations, d, 1) -
                ref_get(a->padding, 2 * d, 0);
    int64_t dilation = ref_get(a->base_dilations, d, 1);
    if (p < 0 || p % dilation != 0 || p / dilation >= x->dims[d]) return false;
    at[d] = p / dilation;
  }
  return true;
}

/* Padding takes no part: with a neutral initial value it is the same as padding with that. */
ttpu_status ref_reduce_window(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_window_attrs *a = IR_ATTRS(op, window);
  uint32_t n = op->result_count;
  reducer r;
  BASE_TRY(reducer_open(&r, f, op, x, n));
  ttpu_status status = TTPU_OK;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more && status == TTPU_OK; ref_index_next(&i)) {
    for (uint32_t k = 0; k < n; ++k) r.scalars[k] = scalar_at(&x[n + k]);
    for (ref_index w = ref_index_begin(x->rank, a->window_dimensions.data); w.more; ref_index_next(&w)) {
      int64_t at[TTPU_MAX_RANK];
      if (!window_position(a, x, i.at, w.at, at)) continue;
      for (uint32_t k = 0; k < n; ++k) r.scalars[n + k] = ref_load(&x[k], at);
      if ((status = reducer_step(&r)) != TTPU_OK) break;
    }
    for (uint32_t k = 0; k < n; ++k) ref_store(&y[k], i.at, r.scalars[k]);
  }
  reducer_close(&r);
  return status;
}

/* Of each window the element that `select` keeps against all later ones gets the window's source value. */
static ttpu_status select_and_scatter(const ref_frame *frame, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_window_attrs *a = IR_ATTRS(op, window);
  const soft_view *source = &x[1];
  for (ref_index i = ref_index_begin(source->rank, source->dims); i.more; ref_index_next(&i)) {
    int64_t chosen[TTPU_MAX_RANK], at[TTPU_MAX_RANK];
    bool any = false;
    for (ref_index w = ref_index_begin(x->rank, a->window_dimensions.data); w.more; ref_index_next(&w)) {
      if (!window_position(a, x, i.at, w.at, at)) continue;
      base_scalar pair[2], keep = {.i = 0};
      if (any) {
        pair[0] = ref_load(x, chosen), pair[1] = ref_load(x, at);
        BASE_TRY(ref_region_call(frame, op->regions[0], pair, 1, &keep));
      }
      if (!keep.i) memcpy(chosen, at, sizeof at);
      any = true;
    }
    if (!any) continue;
    base_scalar pair[2] = {ref_load(y, chosen), ref_load(source, i.at)}, sum;
    BASE_TRY(ref_region_call(frame, op->regions[1], pair, 1, &sum));
    ref_store(y, chosen, sum);
  }
  return TTPU_OK;
}

ttpu_status ref_select_and_scatter(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, x));
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i))
    ref_store(y, i.at, scalar_at(&x[2]));
  ttpu_status status = select_and_scatter(&frame, op, x, y);
  ref_frame_close(&frame);
  return status;
}

/* ---- orders ------------------------------------------------------------------------------------- */

/* Sorts positions of one line by an interpreted comparator. */
typedef struct line_sort {
  const ref_frame *frame;
  const ir_op *op;
  const soft_view *x;
  int64_t *at; /* index of the line, its dimension `dim` free */
  int64_t dim;
  base_scalar *scalars; /* left 0, right 0, left 1, right 1, ... */
} line_sort;

/* Is element a before element b? */
static ttpu_status line_before(line_sort *s, int64_t a, int64_t b, bool *before) {
  for (uint32_t k = 0; k < s->op->operand_count; ++k) {
    s->at[s->dim] = a;
    s->scalars[2 * k] = ref_load(&s->x[k], s->at);
    s->at[s->dim] = b;
    s->scalars[2 * k + 1] = ref_load(&s->x[k], s->at);
  }
  base_scalar result;
  BASE_TRY(ref_region_call(s->frame, s->op->regions[0], s->scalars, 1, &result));
  *before = result.i != 0;
  return TTPU_OK;
}

/* Stable merge sort of order[0 .. n); `spare` has room for n. */
static ttpu_status line_merge_sort(line_sort *s, int64_t *order, int64_t *spare, int64_t n) {
  if (n < 2) return TTPU_OK;
  int64_t half = n / 2, i = 0, j = half, out = 0;
  BASE_TRY(line_merge_sort(s, order, spare, half));
  BASE_TRY(line_merge_sort(s, order + half, spare, n - half));
  while (i < half && j < n) {
    bool later_first;
    BASE_TRY(line_before(s, order[j], order[i], &later_first));
    spare[out++] = later_first ? order[j++] : order[i++];
  }
  while (i < half) spare[out++] = order[i++];
  memcpy(order, spare, (size_t)out * sizeof *order);
  return TTPU_OK;
}

static ttpu_status sort_lines(const ref_frame *frame, const ir_op *op, const soft_view *x, const soft_view *y) {
  int64_t dim = IR_ATTRS(op, sort)->dimension, n = x->dims[dim], lines[TTPU_MAX_RANK];
  int64_t *order = base_alloc((size_t)(2 * n) * sizeof *order + 1);
  base_scalar *scalars = base_alloc(2 * op->operand_count * sizeof *scalars);
  ttpu_status status = order && scalars ? TTPU_OK : base_no_memory((size_t)n * 16);
  for (uint32_t d = 0; d < x->rank; ++d) lines[d] = d == dim ? 1 : x->dims[d];
  for (ref_index i = ref_index_begin(x->rank, lines); i.more && status == TTPU_OK; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK], to[TTPU_MAX_RANK];
    memcpy(from, i.at, sizeof from), memcpy(to, i.at, sizeof to);
    line_sort s = {frame, op, x, from, dim, scalars};
    for (int64_t k = 0; k < n; ++k) order[k] = k;
    status = line_merge_sort(&s, order, order + n, n);
    for (int64_t k = 0; k < n; ++k)
      for (uint32_t v = 0; v < op->operand_count; ++v) {
        from[dim] = order[k], to[dim] = k;
        memcpy(ref_at(&y[v], to), ref_at(&x[v], from), base_dtype_bytes(x[v].dtype));
      }
  }
  base_free(order);
  base_free(scalars);
  return status;
}

ttpu_status ref_sort(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  if (x->rank == 0) return ref_copy(f, op, x, y);
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, x));
  ttpu_status status = sort_lines(&frame, op, x, y);
  ref_frame_close(&frame);
  return status;
}

/* a before b when looking for the largest (or smallest): NaN counts as the largest, as in PyTorch. */
static bool ahead(ttpu_dtype t, bool largest, base_scalar a, base_scalar b) {
  base_scalar big = largest ? a : b, small = largest ? b : a;
  if (base_dtype_is_float(t)) return isnan(big.d[0]) ? !isnan(small.d[0]) : big.d[0] > small.d[0];
  return base_dtype_is_signed(t) ? big.i > small.i : big.u > small.u;
}

/* By selection: k times the best of what is left, the lowest index among equals. */
ttpu_status ref_top_k(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_top_k_attrs *a = IR_ATTRS(op, top_k);
  uint32_t last = x->rank ? x->rank - 1 : 0;
  int64_t n = x->rank ? x->dims[last] : 1, lines[TTPU_MAX_RANK] = {0};
  bool *taken = base_alloc((size_t)n + 1);
  if (!taken) return base_no_memory((size_t)n);
  for (uint32_t d = 0; d < x->rank; ++d) lines[d] = d == last ? 1 : x->dims[d];
  for (ref_index i = ref_index_begin(x->rank, lines); i.more; ref_index_next(&i)) {
    memset(taken, 0, (size_t)n);
    for (int64_t k = 0; k < a->k; ++k) {
      int64_t best = -1;
      base_scalar value = {0};
      for (int64_t j = 0; j < n; ++j) {
        if (taken[j]) continue;
        i.at[last] = j;
        base_scalar candidate = ref_load(x, i.at);
        if (best < 0 || ahead(x->dtype, a->largest, candidate, value)) best = j, value = candidate;
      }
      taken[best] = true;
      i.at[last] = k;
      ref_store(&y[0], i.at, value);
      ref_store(&y[1], i.at, (base_scalar){.i = best});
    }
    i.at[last] = 0;
  }
  base_free(taken);
  return TTPU_OK;
}

/* ---- scans -------------------------------------------------------------------------------------- */

static double log_add_exp(double a, double b) {
  if (isnan(a) || isnan(b)) return NAN;
  double high = a > b ? a : b, low = a > b ? b : a;
  if (high == low && isinf(high)) return high;
  return high + log1p(exp(low - high));
}

/* Complex: log(exp(a) + exp(b)) around the larger real part. */
static base_scalar log_add_exp_complex(base_scalar a, base_scalar b) {
  double high = a.d[0] > b.d[0] ? a.d[0] : b.d[0];
  if (high == -INFINITY) return a;
  double re = exp(a.d[0] - high) * cos(a.d[1]) + exp(b.d[0] - high) * cos(b.d[1]);
  double im = exp(a.d[0] - high) * sin(a.d[1]) + exp(b.d[0] - high) * sin(b.d[1]);
  return (base_scalar){.d = {high + log(hypot(re, im)), atan2(im, re)}};
}

static bool is_nan(ttpu_dtype t, base_scalar x) { return base_dtype_is_float(t) && isnan(x.d[0]); }

/* PyTorch's rule for cummax and cummin: a later equal element takes over, and NaN stays. */
static bool takes_over(ir_scan_kind kind, ttpu_dtype t, base_scalar next, base_scalar current) {
  if (is_nan(t, next)) return true;
  return !is_nan(t, current) && !ahead(t, kind == IR_CUMMAX, current, next);
}

static base_scalar scan_step(ir_scan_kind kind, ttpu_dtype t, base_scalar total, base_scalar next) {
  base_scalar result = next;
  switch (kind) {
    case IR_CUMSUM: ref_binary(IR_ADD, wide_dtype(t), total, next, &result); return result;
    case IR_CUMPROD: ref_binary(IR_MULTIPLY, wide_dtype(t), total, next, &result); return result;
    case IR_LOGCUMSUMEXP:
      if (base_dtype_is_complex(t)) return log_add_exp_complex(total, next);
      return (base_scalar){.d = {log_add_exp(total.d[0], next.d[0])}};
    default: return takes_over(kind, t, next, total) ? next : total;
  }
}

/* Sums, products and logarithms run in double and are rounded as they are written. */
ttpu_status ref_scan(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_scan_attrs *a = IR_ATTRS(op, scan);
  int64_t dim = x->rank ? a->dimension : 0, n = x->rank ? x->dims[dim] : 1, lines[TTPU_MAX_RANK];
  for (uint32_t d = 0; d < x->rank; ++d) lines[d] = d == dim && n > 0 ? 1 : x->dims[d];
  for (ref_index i = ref_index_begin(x->rank, lines); i.more; ref_index_next(&i)) {
    base_scalar total = {0};
    int64_t chosen = 0;
    for (int64_t k = 0; k < n; ++k) {
      i.at[dim] = a->reverse ? n - 1 - k : k;
      base_scalar next = ref_load(x, i.at);
      if (op->result_count == 2 && (k == 0 || takes_over(a->kind, x->dtype, next, total))) chosen = i.at[dim];
      total = k == 0 ? next : scan_step(a->kind, x->dtype, total, next);
      ref_store(&y[0], i.at, total);
      if (op->result_count == 2) ref_store(&y[1], i.at, (base_scalar){.i = chosen});
    }
    i.at[dim] = 0;
  }
  return TTPU_OK;
}

/* Each state of each step by the definition in ops.def, from the row before as it was stored. */
ttpu_status ref_path_scan(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(op);
  for (ref_index i = ref_index_begin(3, y->dims); i.more; ref_index_next(&i)) {
    int64_t t = i.at[0], n = i.at[1], s = i.at[2], start = ref_load(&x[2], &n).i;
    double paths[3], high = -INFINITY, sum = 0, own = t < start ? -INFINITY : ref_load(&x[0], i.at).d[0];
    int count = 0;
    for (int64_t back = 0; t > start && back < 3 && back <= s; ++back)
      if (back < 2 || ref_load(&x[1], (int64_t[]){n, s}).i)
        paths[count++] = ref_load(y, (int64_t[]){t - 1, n, s - back}).d[0];
    for (int k = 0; k < count; ++k)
      if (paths[k] > high || isnan(paths[k])) high = paths[k];
    for (int k = 0; k < count; ++k) sum += high == -INFINITY ? 0 : exp(paths[k] - high);
    ref_store(y, i.at, (base_scalar){.d = {t > start ? own + high + (high == -INFINITY ? 0 : log(sum)) : own}});
  }
  return TTPU_OK;
}

/* ---- attention ----------------------------------------------------------------------------------- */

/* scale * q·k + bias for query (b, h, m) and key n; -inf where masked. `bias` may be NULL. */
static double attention_score(const soft_view *x, const soft_view *bias, bool causal, const int64_t *at, int64_t n) {
  const soft_view *q = &x[0], *k = &x[1];
  if (causal && n > at[2]) return -INFINITY;
  int64_t group = at[1] / (q->dims[1] / k->dims[1]);
  double dot = 0;
  for (int64_t d = 0; d < q->dims[3]; ++d)
    dot += ref_load(q, (int64_t[]){at[0], at[1], at[2], d}).d[0] * ref_load(k, (int64_t[]){at[0], group, n, d}).d[0];
  dot *= scalar_at(&x[3]).d[0];
  if (!bias) return dot;
  int64_t full[4] = {at[0], at[1], at[2], n}, from[4];
  for (uint32_t d = 0; d < bias->rank; ++d) from[d] = bias->dims[d] == 1 ? 0 : full[d + 4 - bias->rank];
  base_scalar b = ref_load(bias, from);
  if (bias->dtype == TTPU_BOOL) return b.i ? dot : -INFINITY;
  return dot + b.d[0];
}

/* softmax(scale q kᵀ + bias) v, one query row at a time, all in double. */
ttpu_status ref_attention(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const soft_view *q = &x[0], *k = &x[1], *v = &x[2], *bias = op->operand_count > 4 ? &x[4] : NULL;
  int64_t keys = k->dims[2];
  double *weights = base_alloc((size_t)keys * sizeof *weights + 1);
  if (!weights) return base_no_memory((size_t)keys * sizeof *weights);
  for (ref_index i = ref_index_begin(3, q->dims); i.more; ref_index_next(&i)) {
    double high = -INFINITY, sum = 0;
    for (int64_t n = 0; n < keys; ++n) {
      weights[n] = attention_score(x, bias, IR_ATTRS(op, attention)->causal, i.at, n);
      if (weights[n] > high || isnan(weights[n])) high = weights[n];
    }
    for (int64_t n = 0; n < keys; ++n) sum += weights[n] = high == -INFINITY ? 0 : exp(weights[n] - high);
    for (int64_t e = 0; e < v->dims[3]; ++e) {
      double out = 0;
      int64_t group = i.at[1] / (q->dims[1] / k->dims[1]);
      for (int64_t n = 0; n < keys; ++n)
        if (weights[n] != 0) out += weights[n] * ref_load(v, (int64_t[]){i.at[0], group, n, e}).d[0];
      ref_store(&y[0], (int64_t[]){i.at[0], i.at[1], i.at[2], e}, (base_scalar){.d = {sum == 0 ? 0 : out / sum}});
    }
    ref_store(&y[1], i.at, (base_scalar){.d = {high + (sum > 0 ? log(sum) : 0)}});
  }
  base_free(weights);
  return TTPU_OK;
}
