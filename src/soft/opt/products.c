/* The products: dot_general, convolution and attention as calls of their kernels over views. */
#include <string.h>

#include "soft/forms.h"
#include "soft/kern/attention.h"
#include "soft/kern/conv.h"
#include "soft/kern/gemm.h"
#include "soft/opt/opt.h"

/* Do the kernels know these dtypes together? The reference multiplies the others: bool, integers with floats. */
static bool has_product(const soft_view *x, const soft_view *y) {
  ttpu_dtype sum = kern_gemm_accumulator(x[0].dtype, y->dtype);
  return sum != TTPU_NO_DTYPE && sum == kern_gemm_accumulator(x[1].dtype, y->dtype);
}

/* ---- dot_general ------------------------------------------------------------------------------ */

/* Some dims of a product that are walked together: batch (in a, b and c), rows (a, c), columns (b, c) or the sum (a, b). */
typedef struct dim_group {
  uint32_t count;
  int64_t dims[TTPU_MAX_RANK], a[TTPU_MAX_RANK], b[TTPU_MAX_RANK], c[TTPU_MAX_RANK];
} dim_group;

static void group_add(dim_group *g, int64_t dim, int64_t a, int64_t b, int64_t c) {
  if (dim == 1) return;
  uint32_t n = g->count;
  if (n && g->a[n - 1] == a * dim && g->b[n - 1] == b * dim && g->c[n - 1] == c * dim) {
    --n; /* runs on from the dim before */
    dim *= g->dims[n];
  } else {
    ++g->count;
  }
  g->dims[n] = dim, g->a[n] = a, g->b[n] = b, g->c[n] = c;
}
/* The group as one dim; call it only with at most one. */
static int64_t group_dim(const dim_group *g) { return g->count ? g->dims[g->count - 1] : 1; }
static int64_t last_of(const dim_group *g, const int64_t *strides) { return g->count ? strides[g->count - 1] : 0; }

typedef struct product {
  dim_group batch, rows, columns, sum;
} product;

static bool contains(ir_i64s list, int64_t d) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] == d) return true;
  return false;
}

static void group_dims(const ir_dot_general_attrs *at, const soft_view *a, const soft_view *b, const soft_view *c,
                       product *p) {
  memset(p, 0, sizeof *p);
  uint32_t out = 0;
  for (uint32_t i = 0; i < at->lhs_batching_dimensions.count; ++i, ++out) {
    int64_t l = at->lhs_batching_dimensions.data[i], r = at->rhs_batching_dimensions.data[i];
    group_add(&p->batch, a->dims[l], a->strides[l], b->strides[r], c->strides[out]);
  }
  for (uint32_t d = 0; d < a->rank; ++d)
    if (!contains(at->lhs_batching_dimensions, d) && !contains(at->lhs_contracting_dimensions, d))
      group_add(&p->rows, a->dims[d], a->strides[d], 0, c->strides[out++]);
  for (uint32_t d = 0; d < b->rank; ++d)
    if (!contains(at->rhs_batching_dimensions, d) && !contains(at->rhs_contracting_dimensions, d))
      group_add(&p->columns, b->dims[d], 0, b->strides[d], c->strides[out++]);
  for (uint32_t i = 0; i < at->lhs_contracting_dimensions.count; ++i) {
    int64_t l = at->lhs_contracting_dimensions.data[i], r = at->rhs_contracting_dimensions.data[i];
    group_add(&p->sum, a->dims[l], a->strides[l], b->strides[r], 0);
  }
}

/* A dense copy of v with its dims as they are; the caller frees *memory. */
static ttpu_status densify(soft_view *v, void **memory) {
  size_t bytes = (size_t)base_numel(v->rank, v->dims) * base_dtype_bytes(v->dtype);
  *memory = base_alloc_aligned(64, bytes ? bytes : 1);
  if (!*memory) return base_no_memory(bytes);
  soft_view dense = soft_view_dense(v->dtype, v->rank, v->dims, *memory);
  kern_copy(&dense, v);
  *v = dense;
  return TTPU_OK;
}

/* v with the listed dims last (`last`) or first, in the list's order, and copied. */
static ttpu_status regroup(soft_view *v, ir_i64s batch, ir_i64s sum, void **memory, bool sum_last) {
  uint32_t order[TTPU_MAX_RANK], n = 0;
  for (uint32_t i = 0; i < batch.count; ++i) order[n++] = (uint32_t)batch.data[i];
  for (uint32_t i = 0; i < sum.count && !sum_last; ++i) order[n++] = (uint32_t)sum.data[i];
  for (uint32_t d = 0; d < v->rank; ++d)
    if (!contains(batch, d) && !contains(sum, d)) order[n++] = d;
  for (uint32_t i = 0; i < sum.count && sum_last; ++i) order[n++] = (uint32_t)sum.data[i];
  soft_view moved = *v;
  for (uint32_t i = 0; i < n; ++i) moved.dims[i] = v->dims[order[i]], moved.strides[i] = v->strides[order[i]];
  BASE_TRY(densify(&moved, memory));
  v->data = moved.data;
  for (uint32_t i = 0; i < n; ++i) v->strides[order[i]] = moved.strides[i];
  return TTPU_OK;
}

/* Runs over all but the innermost batch dim; that one is the product's own batch. */
static ttpu_status run_batches(kern_gemm *g, const product *p, uint32_t dim, const char *a, const char *b, char *c) {
  if (dim + 1 >= p->batch.count) {
    g->a = a, g->b = b, g->c = c;
    return kern_gemm_run(g);
  }
  int64_t a_bytes = (int64_t)base_dtype_bytes(g->a_dtype), b_bytes = (int64_t)base_dtype_bytes(g->b_dtype),
          c_bytes = (int64_t)base_dtype_bytes(g->out);
  for (int64_t i = 0; i < p->batch.dims[dim]; ++i)
    BASE_TRY(run_batches(g, p, dim + 1, a + i * p->batch.a[dim] * a_bytes, b + i * p->batch.b[dim] * b_bytes,
                         c + i * p->batch.c[dim] * c_bytes));
  return TTPU_OK;
}

static ttpu_status pack_weight(void *product, void *data) { return kern_gemm_pack_b(product, data); }

/* The panels of g's B, which lies in this block, if they are worth having. */
static soft_form *packed_weight(kern_gemm *g, soft_block *weight) {
  if (!kern_gemm_wants_packed_b(g)) return NULL;
  const int64_t words[] = {(const char *)g->b - (const char *)weight->data,
                           g->b_row,
                           g->b_col,
                           g->n,
                           g->k,
                           (int64_t)g->a_dtype << 32 | (int64_t)g->b_dtype << 16 | (int64_t)g->out << 8 | g->precision};
  base_hash128 key = base_hash128_bytes((base_hash128){0, 0}, words, sizeof words);
  return soft_form_get(weight, key, kern_gemm_packed_b_bytes(g), pack_weight, g, &g->b_packed);
}

ttpu_status opt_run_dot(const ir_op *op, const soft_view *x, const soft_view *y, soft_block *weight) {
  const ir_dot_general_attrs *at = IR_ATTRS(op, dot_general);
  if (!has_product(x, y)) return soft_reference_op(NULL, op, x, y);
  soft_view a = x[0], b = x[1], c = y[0];
  void *a_memory = NULL, *b_memory = NULL;
  ttpu_status status = TTPU_OK;
  product p;
  group_dims(at, &a, &b, &c, &p);
  if (p.sum.count > 1 || p.rows.count > 1) {
    status = regroup(&a, at->lhs_batching_dimensions, at->lhs_contracting_dimensions, &a_memory, true);
    if (status != TTPU_OK) goto out;
    group_dims(at, &a, &b, &c, &p);
  }
  if (p.sum.count > 1 || p.columns.count > 1) {
    status = regroup(&b, at->rhs_batching_dimensions, at->rhs_contracting_dimensions, &b_memory, false);
    if (status != TTPU_OK) goto out;
    group_dims(at, &a, &b, &c, &p);
  }
  kern_gemm g = {.a_dtype = a.dtype,
                 .b_dtype = b.dtype,
                 .out = c.dtype,
                 .precision = (int)at->precision,
                 .m = group_dim(&p.rows),
                 .n = group_dim(&p.columns),
                 .k = group_dim(&p.sum),
                 .a_row = last_of(&p.rows, p.rows.a),
                 .a_col = last_of(&p.sum, p.sum.a),
                 .b_row = last_of(&p.sum, p.sum.b),
                 .b_col = last_of(&p.columns, p.columns.b),
                 .c_row = last_of(&p.rows, p.rows.c),
                 .c_col = last_of(&p.columns, p.columns.c),
                 .batch = group_dim(&p.batch),
                 .a_batch = last_of(&p.batch, p.batch.a),
                 .b_batch = last_of(&p.batch, p.batch.b),
                 .c_batch = last_of(&p.batch, p.batch.c)};
  g.a = a.data, g.b = b.data, g.c = c.data;
  soft_form *form = weight && !b_memory && p.batch.count == 0 ? packed_weight(&g, weight) : NULL;
  status = run_batches(&g, &p, 0, a.data, b.data, c.data);
  soft_form_put(form);
out:
  base_free(a_memory);
  base_free(b_memory);
  return status;
}

/* ---- convolution ------------------------------------------------------------------------------ */

static ttpu_status pack_kernel(void *convolution, void *data) { return kern_conv_pack(convolution, data); }

/* The panels of c's kernel, which lies in this block, if they are worth having. */
static soft_form *packed_kernel(kern_conv *c, soft_block *weight) {
  base_hash128 key;
  size_t bytes = kern_conv_packed_bytes(c, &key);
  if (bytes == 0) return NULL;
  key = base_mix128(key, (uint64_t)((const char *)c->kernel - (const char *)weight->data));
  return soft_form_get(weight, key, bytes, pack_kernel, c, &c->kernel_packed);
}

ttpu_status opt_run_convolution(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y,
                                soft_block *weight) {
  const ir_convolution_attrs *at = IR_ATTRS(op, convolution);
  uint32_t spatial = at->input_spatial_dimensions.count;
  if (spatial > KERN_CONV_SPATIAL || !has_product(x, y)) return soft_reference_op(f, op, x, y);
  const soft_view *in = &x[0], *kernel = &x[1], *out = &y[0];
  int64_t ib = at->input_batch_dimension, ic = at->input_feature_dimension;
  int64_t ki = at->kernel_input_feature_dimension, ko = at->kernel_output_feature_dimension;
  int64_t ob = at->output_batch_dimension, oc = at->output_feature_dimension;
  kern_conv c = {.dtype = in->dtype,
                 .kernel_dtype = kernel->dtype,
                 .out_dtype = out->dtype,
                 .precision = (int)at->precision,
                 .spatial = (int)spatial,
                 .batch = in->dims[ib],
                 .in_features = in->dims[ic],
                 .out_features = kernel->dims[ko],
                 .groups = at->feature_group_count,
                 .batch_groups = at->batch_group_count,
                 .in = in->data,
                 .in_batch = in->strides[ib],
                 .in_feature = in->strides[ic],
                 .kernel = kernel->data,
                 .kernel_in = kernel->strides[ki],
                 .kernel_out = kernel->strides[ko],
                 .out = out->data,
                 .out_batch = out->strides[ob],
                 .out_feature = out->strides[oc]};
  for (uint32_t s = 0; s < spatial; ++s) {
    int64_t i = at->input_spatial_dimensions.data[s], k = at->kernel_spatial_dimensions.data[s],
            o = at->output_spatial_dimensions.data[s];
    c.in_size[s] = in->dims[i], c.in_spatial[s] = in->strides[i];
    c.kernel_size[s] = kernel->dims[k], c.kernel_spatial[s] = kernel->strides[k];
    c.out_size[s] = out->dims[o], c.out_spatial[s] = out->strides[o];
    c.window_stride[s] = s < at->window_strides.count ? at->window_strides.data[s] : 1;
    c.pad_low[s] = 2 * s < at->padding.count ? at->padding.data[2 * s] : 0;
    c.lhs_dilation[s] = s < at->lhs_dilation.count ? at->lhs_dilation.data[s] : 1;
    c.rhs_dilation[s] = s < at->rhs_dilation.count ? at->rhs_dilation.data[s] : 1;
    c.reversal[s] = s < at->window_reversal.count && at->window_reversal.data[s];
  }
  soft_form *form = weight ? packed_kernel(&c, weight) : NULL;
  ttpu_status status = kern_conv_run(&c);
  soft_form_put(form);
  return status;
}

/* ---- attention -------------------------------------------------------------------------------- */

/* Strides of a bias of any rank over [B, H, M, N]: trailing dims aligned, those of size 1 repeated. */
static void align_bias(const soft_view *bias, int64_t *strides) {
  for (uint32_t i = 0; i < 4; ++i) {
    int32_t d = (int32_t)bias->rank - 4 + (int32_t)i;
    strides[i] = d < 0 || bias->dims[d] == 1 ? 0 : bias->strides[d];
  }
}

ttpu_status opt_run_attention(const ir_op *op, const soft_view *x, const soft_view *y) {
  const soft_view *q = &x[0], *k = &x[1], *v = &x[2], *scale = &x[3];
  kern_attention a = {.dtype = q->dtype,
                      .batch = q->dims[0],
                      .heads = q->dims[1],
                      .kv_heads = k->dims[1],
                      .m = q->dims[2],
                      .n = k->dims[2],
                      .d = q->dims[3],
                      .e = v->dims[3],
                      .q = q->data,
                      .k = k->data,
                      .v = v->data,
                      .scale = base_scalar_load(scale->dtype, scale->data).d[0],
                      .causal = IR_ATTRS(op, attention)->causal,
                      .out = y[0].data,
                      .logsumexp = y[1].data};
  memcpy(a.q_strides, q->strides, sizeof a.q_strides);
  memcpy(a.k_strides, k->strides, sizeof a.k_strides);
  memcpy(a.v_strides, v->strides, sizeof a.v_strides);
  memcpy(a.out_strides, y[0].strides, sizeof a.out_strides);
  memcpy(a.logsumexp_strides, y[1].strides, sizeof a.logsumexp_strides);
  if (op->operand_count > 4) {
    a.bias = x[4].data, a.bias_dtype = x[4].dtype;
    align_bias(&x[4], a.bias_strides);
  }
  return kern_attention_run(&a);
}
