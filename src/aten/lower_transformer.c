/* The fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation, which PyTorch takes on this
 * device too: whole blocks as one operator. Between the kernels that PyTorch runs for them values are rounded to the
 * operands' dtype, and so they are here. */
#include "aten/nn_int.h"

#include <math.h>

typedef struct block {
  aten_lowering *c;
  ttpu_dtype dtype, math;
} block;

static ir_value rounded(const block *s, ir_value x) { return ir_convert(s->c->b, x, s->dtype); }

/* Contracts the last dim of x [.., K] with the last of w [N, K]: [.., N]. */
static ir_value times_transposed(const block *s, ir_value x, ir_value w) {
  int64_t x_dim = (int64_t)nn_type(s->c, x).rank - 1, w_dim = 1;
  ir_dot_general_attrs attrs = {.lhs_contracting_dimensions = {&x_dim, 1},
                                .rhs_contracting_dimensions = {&w_dim, 1},
                                .precision = nn_precision(s->c, s->dtype)};
  return ir_dot_general(s->c->b, x, w, &attrs, s->math);
}

static ir_value linear(const block *s, ir_value x, ir_value w, ir_value bias) {
  return rounded(s, nn_add(s->c, times_transposed(s, x, w), ir_convert(s->c->b, bias, s->math)));
}

/* Rows [part * e, (part + 1) * e) of a weight or bias that holds query's, key's and value's. */
static ir_value third(const block *s, ir_value w, uint32_t part, int64_t e) {
  return ir_slice_dim(s->c->b, w, 0, part * e, (part + 1) * e, 1);
}

/* [B, T, E] -> [B, heads, T, E / heads] */
static ir_value split_heads(const block *s, ir_value x, int64_t heads) {
  ir_type t = nn_type(s->c, x);
  x = ir_reshape(s->c->b, x, 4, (int64_t[]){t.dims[0], t.dims[1], heads, heads ? t.dims[2] / heads : 0});
  return nn_swap(s->c, x, 1, 2);
}

/* x y over the last two dims of 4, y transposed or not. */
static ir_value batched(const block *s, ir_value x, ir_value y, int64_t y_dim) {
  int64_t batch[2] = {0, 1}, x_dim = 3;
  ir_dot_general_attrs attrs = {.lhs_batching_dimensions = {batch, 2},
                                .rhs_batching_dimensions = {batch, 2},
                                .lhs_contracting_dimensions = {&x_dim, 1},
                                .rhs_contracting_dimensions = {&y_dim, 1},
                                .precision = nn_precision(s->c, s->dtype)};
  return ir_dot_general(s->c->b, x, y, &attrs, s->math);
}

/* The mask (true or not 0: left out) for scores [B, heads, T, S]. Type 0: [T, S]; 1: padded keys [B, S]; 2: full. */
static ir_value mask_for(const block *s, ir_value mask, int64_t type, ir_value scores) {
  aten_lowering *c = s->c;
  ir_type t = nn_type(c, mask);
  if (t.dtype != TTPU_BOOL) mask = nn_compare_f64(c, IR_NE, mask, 0);
  if (type == 1 && t.rank == 2) mask = ir_reshape(c->b, mask, 4, (int64_t[]){t.dims[0], 1, 1, t.dims[1]});
  return nn_broadcast_like(c, mask, scores);
}

static ir_value softmax(const block *s, ir_value x, ir_value mask) {
  aten_lowering *c = s->c;
  ir_value low = nn_const(c, x, -INFINITY);
  if (mask) x = ir_select(c->b, mask, low, x);
  ir_value e = ir_exponential(c->b, nn_sub(c, x, nn_reduce_dim(c, IR_MAXIMUM, x, 3, true)));
  return nn_div(c, e, nn_reduce_dim(c, IR_ADD, e, 3, true));
}

typedef struct attention_weights {
  ir_value qkv, qkv_bias, out, out_bias, mask; /* mask: 0 when none */
  int64_t embed, heads, mask_type;
} attention_weights;

/* query [B, T, E], key and value [B, S, E]. *weights: [B, heads, T, S]. */
static ir_value attend(const block *s, ir_value query, ir_value key, ir_value value, attention_weights w,
                       ir_value *weights) {
  aten_lowering *c = s->c;
  ir_value inputs[3] = {query, key, value}, heads[3];
  for (uint32_t i = 0; i < 3; ++i)
    heads[i] =
        split_heads(s, linear(s, inputs[i], third(s, w.qkv, i, w.embed), third(s, w.qkv_bias, i, w.embed)), w.heads);
  double per_head = w.heads ? (double)(w.embed / w.heads) : 1;
  ir_value q = ir_convert(c->b, heads[0], s->math);
  heads[0] = rounded(s, ir_divide(c->b, q, nn_const(c, q, sqrt(per_head))));
  ir_value scores = batched(s, heads[0], heads[1], 3);
  *weights = softmax(s, scores, w.mask ? mask_for(s, w.mask, w.mask_type, scores) : 0);
  ir_value context = nn_swap(c, rounded(s, batched(s, rounded(s, *weights), heads[2], 2)), 1, 2);
  ir_type t = nn_type(c, query);
  return linear(s, nn_reshape3(c, context, t.dims[0], t.dims[1], w.embed), w.out, w.out_bias);
}

static block block_of(aten_lowering *c) {
  ttpu_dtype t = (ttpu_dtype)aten_meta(c, 0)->dtype;
  return (block){c, t, aten_math_dtype(t)};
}

/* query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask?, need_weights,
 * average_attn_weights, mask_type?. Results: output, weights (when needed). */
void lower_native_multi_head_attention(aten_lowering *c) {
  block s = block_of(c);
  attention_weights w = {.qkv = aten_in(c, 5),
                         .qkv_bias = aten_in(c, 6),
                         .out = aten_in(c, 7),
                         .out_bias = aten_in(c, 8),
                         .mask = aten_has(c, 9) ? aten_in(c, 9) : 0,
                         .embed = aten_int(c, 3),
                         .heads = aten_int(c, 4),
                         .mask_type = aten_int_or(c, 12, 2)};
  ir_value weights;
  aten_out(c, 0, attend(&s, aten_in(c, 0), aten_in(c, 1), aten_in(c, 2), w, &weights));
  if (aten_int(c, 10)) {
    if (aten_int(c, 11)) {
      weights = nn_reduce_dim(c, IR_ADD, weights, 1, false);
      weights = ir_divide(c->b, weights, nn_const(c, weights, (double)w.heads));
    }
    aten_out(c, 1, weights);
  }
  nn_out_rest(c);
}

static ir_value layer_norm(const block *s, ir_value x, uint32_t weight, uint32_t eps) {
  aten_lowering *c = s->c;
  x = ir_convert(c->b, x, s->math);
  uint32_t last = nn_type(c, x).rank ? nn_type(c, x).rank - 1u : 0;
  double n = (double)nn_type(c, x).dims[last];
  ir_value sum = nn_reduce_dim(c, IR_ADD, x, last, true),
           centred = nn_sub(c, x, ir_divide(c->b, sum, nn_const(c, sum, n)));
  ir_value square = nn_reduce_dim(c, IR_ADD, ir_multiply(c->b, centred, centred), last, true);
  ir_value variance = ir_divide(c->b, square, nn_const(c, square, n));
  ir_value deviation = ir_sqrt(c->b, ir_add(c->b, variance, nn_number(c, eps, variance)));
  ir_value y = nn_mul(c, nn_div(c, centred, deviation), nn_in_as(c, weight, s->math));
  return rounded(s, nn_add(c, y, nn_in_as(c, weight + 1, s->math)));
}

/* src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1,
 * norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask?, mask_type? */
void lower_transformer_encoder_layer(aten_lowering *c) {
  block s = block_of(c);
  bool norm_first = aten_int(c, 8) != 0;
  attention_weights w = {.qkv = aten_in(c, 3),
                         .qkv_bias = aten_in(c, 4),
                         .out = aten_in(c, 5),
                         .out_bias = aten_in(c, 6),
                         .mask = aten_has(c, 18) ? aten_in(c, 18) : 0,
                         .embed = aten_int(c, 1),
                         .heads = aten_int(c, 2),
                         .mask_type = aten_int_or(c, 19, 2)};
  ir_value src = aten_in(c, 0), weights, x = norm_first ? layer_norm(&s, src, 10, 9) : src;
  x = rounded(&s,
              ir_add(c->b, ir_convert(c->b, attend(&s, x, x, x, w, &weights), s.math), ir_convert(c->b, src, s.math)));
  if (!norm_first) x = layer_norm(&s, x, 10, 9);
  ir_value before = x;
  if (norm_first) x = layer_norm(&s, x, 12, 9);
  ir_value h = ir_convert(c->b, linear(&s, x, aten_in(c, 14), aten_in(c, 15)), s.math);
  if (aten_int(c, 7)) {
    ir_value cdf = nn_add_f64(c, ir_erf(c->b, nn_mul_f64(c, h, sqrt(0.5))), 1);
    h = ir_multiply(c->b, nn_mul_f64(c, h, 0.5), cdf);
  } else {
    h = ir_maximum(c->b, h, nn_const(c, h, 0));
  }
  x = linear(&s, rounded(&s, h), aten_in(c, 16), aten_in(c, 17));
  x = rounded(&s, ir_add(c->b, ir_convert(c->b, x, s.math), ir_convert(c->b, before, s.math)));
  aten_out(c, 0, norm_first ? x : layer_norm(&s, x, 12, 9));
}

/* qkv [B, T, 3 D], bias [3 D], heads; results: q, scaled by 1/sqrt(D / heads), k and v, each [B, heads, T, D / heads]. */
void lower_transform_bias_rescale_qkv(aten_lowering *c) {
  ir_value x = nn_in(c, 0);
  ir_type t = nn_type(c, x);
  const int64_t heads = aten_int(c, 2), width = t.dims[2] / 3 / (heads ? heads : 1);
  const int64_t sizes[5] = {t.dims[0], t.dims[1], 3, heads, width}, order[5] = {2, 0, 3, 1, 4};
  x = nn_add(c, x, nn_in_as(c, 1, (ttpu_dtype)t.dtype));
  x = ir_transpose(c->b, ir_reshape(c->b, x, 5, sizes), order);
  for (uint32_t i = 0; i < 3; ++i) {
    ir_value part = ir_reshape(c->b, ir_slice_dim(c->b, x, 0, i, i + 1, 1), 4, c->outs[i].sizes);
    aten_out(c, i, i == 0 ? nn_mul_f64(c, part, 1 / sqrt((double)width)) : part);
  }
}
