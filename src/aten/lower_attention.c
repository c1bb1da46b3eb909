/* Scaled dot product attention, forward and backward, and the fused cells of recurrent networks.
 *
 * Without dropout the forward is one ATTENTION operation, except in f64, whose logsumexp would be cut to f32. With
 * dropout it is written out; seed and offset are results, and the backward draws the same numbers again. The backward
 * recomputes the probabilities from the logsumexp (FlashAttention, Dao et al. 2022, section B.4), products in the
 * operands' dtype with f32 sums. */
#include "aten/nn_int.h"

#include <math.h>

/* ---- geometry ----------------------------------------------------------------------------------------- */

/* q [B, H, M, D], k [B, G, N, D], v [B, G, N, E]; H / G query heads share a key head. Products see them as
 * [B G, (H / G) M, ..] and [B G, N, ..]. */
typedef struct attention {
  aten_lowering *c;
  int64_t batch, heads, groups, m, n, d, e;
  ttpu_dtype dtype, math;
  ir_value scale; /* rank 0, math */
  bool causal;
} attention;

static attention attention_of(aten_lowering *c, uint32_t query, uint32_t scale, bool causal) {
  const aten_tensor *q = aten_meta(c, query), *k = aten_meta(c, query + 1), *v = aten_meta(c, query + 2);
  attention a = {.c = c, .batch = q->rank > 3 ? q->sizes[0] : 1, .dtype = (ttpu_dtype)q->dtype, .causal = causal};
  a.heads = q->sizes[q->rank - 3];
  a.groups = k->sizes[k->rank - 3];
  a.m = q->sizes[q->rank - 2];
  a.n = k->sizes[k->rank - 2];
  a.d = q->sizes[q->rank - 1];
  a.e = v->sizes[v->rank - 1];
  a.math = aten_math_dtype(a.dtype);
  a.scale = aten_has(c, scale) ? aten_number_in(c, scale, a.math) : ir_scalar_f64(c->b, a.math, 1 / sqrt((double)a.d));
  return a;
}

/* A query, key or value operand as [B, heads, length, width]: PyTorch lets the batch be left out. */
static ir_value operand_in(const attention *a, uint32_t arg) {
  ir_value x = aten_in(a->c, arg);
  ir_type t = nn_type(a->c, x);
  return t.rank == 3 ? ir_reshape(a->c->b, x, 4, (int64_t[]){1, t.dims[0], t.dims[1], t.dims[2]}) : x;
}

/* Result i in its own rank. */
static void out_as(aten_lowering *c, uint32_t i, ir_value v) {
  aten_out(c, i, ir_reshape(c->b, v, c->outs[i].rank, c->outs[i].sizes));
}

static ir_value rows_of(const attention *a, ir_value x, int64_t width) { /* of query heads */
  int64_t shared = a->groups ? a->heads / a->groups : 0;
  return nn_reshape3(a->c, x, a->batch * a->groups, shared * a->m, width);
}

static ir_value keys_of(const attention *a, ir_value x, int64_t width) {
  return nn_reshape3(a->c, x, a->batch * a->groups, a->n, width);
}

static ir_value full(const attention *a, ir_value x, int64_t width) {
  return ir_reshape(a->c->b, x, 4, (int64_t[]){a->batch, a->heads, a->m, width});
}

/* Contracts dim x_dim of x with y_dim of y (1 or 2), batch dim 0, f32 sums: [batch, x's other, y's other]. */
static ir_value contract(const attention *a, ir_value x, ir_value y, int64_t x_dim, int64_t y_dim) {
  int64_t batch = 0;
  ir_dot_general_attrs attrs = {.lhs_batching_dimensions = {&batch, 1},
                                .rhs_batching_dimensions = {&batch, 1},
                                .lhs_contracting_dimensions = {&x_dim, 1},
                                .rhs_contracting_dimensions = {&y_dim, 1},
                                .precision = nn_precision(a->c, a->dtype)};
  return ir_dot_general(a->c->b, x, y, &attrs, a->math);
}

/* An optional additive or boolean bias as rank-4 math values, else 0. */
static ir_value bias_in(const attention *a, uint32_t arg) {
  aten_lowering *c = a->c;
  if (!aten_has(c, arg)) return 0;
  ir_value v = aten_in(c, arg);
  if (nn_type(c, v).dtype != TTPU_BOOL) return ir_convert(c->b, v, a->math);
  return ir_select(c->b, v, ir_fill_f64(c->b, a->math, nn_type(c, v).rank, nn_type(c, v).dims, 0),
                   ir_fill_f64(c->b, a->math, nn_type(c, v).rank, nn_type(c, v).dims, -INFINITY));
}

/* scale * q k' + bias under the causal mask: [B, H, M, N]. */
static ir_value scores(const attention *a, ir_value q, ir_value k, ir_value bias) {
  aten_lowering *c = a->c;
  ir_value s = full(a, contract(a, rows_of(a, q, a->d), keys_of(a, k, a->d), 2, 2), a->n);
  s = nn_mul(c, s, a->scale);
  if (bias) s = nn_add(c, s, bias);
  if (!a->causal) return s;
  ir_type t = nn_type(c, s);
  ir_value row = ir_iota(c->b, TTPU_I64, 4, t.dims, 2), column = ir_iota(c->b, TTPU_I64, 4, t.dims, 3);
  return ir_select(c->b, ir_compare(c->b, IR_GE, row, column), s, nn_const(c, s, -INFINITY));
}

/* Softmax over the last dim by way of its logsumexp (kept dim); a row of -inf gives zeros. A bias of the least finite
 * number, with which Transformers masks, leaves no digits for the logarithm of the number of keys where it covers a whole
 * row, so that the logsumexp is the scores' maximum: what comes out is divided by its sum once more. */
static ir_value probabilities(const attention *a, ir_value s, ir_value lse, bool biased) {
  aten_lowering *c = a->c;
  ir_value nothing = nn_compare_f64(c, IR_EQ, lse, -INFINITY);
  ir_value p = ir_exponential(c->b, nn_sub(c, s, ir_select(c->b, nothing, nn_const(c, lse, 0), lse)));
  if (!biased) return p;
  ir_value sum = nn_reduce_dim(c, IR_ADD, p, 3, true);
  return nn_div(c, p, ir_select(c->b, nn_compare_f64(c, IR_EQ, sum, 0), nn_const(c, sum, 1), sum));
}

static ir_value logsumexp(const attention *a, ir_value s) {
  aten_lowering *c = a->c;
  ir_value top = nn_reduce_dim(c, IR_MAXIMUM, s, 3, true);
  top = ir_select(c->b, nn_compare_f64(c, IR_EQ, top, -INFINITY), nn_const(c, top, 0), top);
  ir_value sum = nn_reduce_dim(c, IR_ADD, ir_exponential(c->b, nn_sub(c, s, top)), 3, true);
  return ir_add(c->b, ir_log(c->b, sum), top);
}

/* 1 / (1 - p) where a draw keeps the element, else 0: [B, H, M, N]. */
static ir_value dropout_factor(const attention *a, ir_value state, double p) {
  aten_lowering *c = a->c;
  int64_t dims[4] = {a->batch, a->heads, a->m, a->n};
  ir_value bits = ir_philox(c->b, state, TTPU_U32, 4, dims);
  if (p >= 1) return ir_fill_f64(c->b, a->math, 4, dims, 0);
  ir_value drop = ir_compare(c->b, IR_LT, bits, ir_fill_i64(c->b, TTPU_U32, 4, dims, (int64_t)(p * 0x1p32)));
  return ir_select(c->b, drop, ir_fill_f64(c->b, a->math, 4, dims, 0),
                   ir_fill_f64(c->b, a->math, 4, dims, 1 / (1 - p)));
}

/* ---- forward -------------------------------------------------------------------------------------------- */

static void attend_written_out(const attention *a, ir_value q, ir_value k, ir_value v, ir_value bias, ir_value state,
                               double p) {
  aten_lowering *c = a->c;
  ir_value s = scores(a, q, k, bias), lse = logsumexp(a, s), w = probabilities(a, s, lse, bias != 0);
  if (state) w = ir_multiply(c->b, w, dropout_factor(a, state, p));
  int64_t keys = a->n;
  ir_value out = contract(a, rows_of(a, ir_convert(c->b, w, a->dtype), keys), keys_of(a, v, a->e), 2, 1);
  out_as(c, 0, out);
  out_as(c, 1, lse);
}

static void attend(const attention *a, ir_value q, ir_value k, ir_value v, ir_value bias) {
  aten_lowering *c = a->c;
  ir_value operands[5] = {q, k, v, a->scale, bias};
  ir_attention_attrs attrs = {.causal = a->causal};
  ir_value out = ir_append(c->b, IR_ATTENTION, bias ? 5 : 4, operands, &attrs, 0, NULL, 0, NULL);
  if (out == 0) return;
  out_as(c, 0, out);
  out_as(c, 1, out + 1);
}

/* query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, scale?. Results: output, logsumexp, two
 * cumulative lengths, max_q, max_k, philox_seed, philox_offset, debug mask. */
void lower_attention(aten_lowering *c) {
  attention a = attention_of(c, 0, 7, aten_int(c, 5) != 0);
  double p = aten_static(c, 4);
  ir_value q = operand_in(&a, 0), k = operand_in(&a, 1), v = operand_in(&a, 2), bias = bias_in(&a, 3);
  ir_value seed = ir_scalar_i64(c->b, TTPU_I64, 0), offset = seed;
  if (p > 0) {
    ir_value state = c->random(c), words = ir_bitcast_convert(c->b, state, TTPU_I64);
    seed = ir_reshape(c->b, ir_slice_dim(c->b, words, 0, 0, 1, 1), 0, NULL);
    offset = ir_reshape(c->b, ir_slice_dim(c->b, words, 0, 1, 2, 1), 0, NULL);
    attend_written_out(&a, q, k, v, bias, state, p);
  } else if (a.math == TTPU_F64 || a.m == 0 || a.n == 0) {
    attend_written_out(&a, q, k, v, bias, 0, 0);
  } else {
    attend(&a, q, k, v, bias);
  }
  if (c->out_count > 7) {
    aten_out(c, 6, seed);
    aten_out(c, 7, offset);
  }
  nn_out_rest(c); /* cumulative lengths and the debug mask, where they are tensors at all */
}

/* ---- backward --------------------------------------------------------------------------------------------- */

/* grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
 * dropout_p, is_causal, philox_seed, philox_offset, scale? */
void lower_attention_backward(aten_lowering *c) {
  if (!aten_has(c, 0)) { /* nobody asked for the output's gradient */
    for (uint32_t i = 0; i < 4; ++i)
      if (c->outs[i].dtype != TTPU_NO_DTYPE) aten_out(c, i, nn_zeros_out(c, i, (ttpu_dtype)c->outs[i].dtype));
    return;
  }
  attention a = attention_of(c, 1, 16, aten_int(c, 13) != 0);
  double p = aten_static(c, 12);
  ir_value g = operand_in(&a, 0), q = operand_in(&a, 1), k = operand_in(&a, 2), v = operand_in(&a, 3),
           bias = bias_in(&a, 4);
  ir_value s = scores(&a, q, k, bias), lse;
  if (a.math == TTPU_F64) lse = logsumexp(&a, s); /* the given one is f32 */
  else lse = ir_reshape(c->b, nn_in_as(c, 7, a.math), 4, (int64_t[]){a.batch, a.heads, a.m, 1});
  ir_value w = probabilities(&a, s, lse, bias != 0), factor = 0;
  if (p > 0) {
    ir_value words[2];
    for (uint32_t i = 0; i < 2; ++i) words[i] = ir_reshape(c->b, nn_in_as(c, 14 + i, TTPU_I64), 1, (int64_t[]){1});
    ir_value state = ir_bitcast_convert(c->b, ir_concatenate(c->b, 2, words, 0), TTPU_U64);
    factor = dropout_factor(&a, state, p);
  }
  ir_value g_rows = rows_of(&a, g, a.e), kept = factor ? ir_multiply(c->b, w, factor) : w;
  if (nn_mask_at(c, 5, 2)) {
    ir_value gv = contract(&a, rows_of(&a, ir_convert(c->b, kept, a.dtype), a.n), g_rows, 1, 1);
    out_as(c, 2, gv);
  }
  ir_value gw = full(&a, contract(&a, g_rows, keys_of(&a, v, a.e), 2, 2), a.n);
  if (factor) gw = ir_multiply(c->b, gw, factor);
  ir_value product = ir_multiply(c->b, ir_convert(c->b, g, a.math), ir_convert(c->b, operand_in(&a, 6), a.math));
  ir_value delta = nn_reduce_dim(c, IR_ADD, product, 3, true);
  ir_value gs = ir_multiply(c->b, w, nn_sub(c, gw, delta));
  ir_value gs_rows = rows_of(&a, ir_convert(c->b, gs, a.dtype), a.n);
  if (nn_mask_at(c, 5, 0)) out_as(c, 0, nn_mul(c, contract(&a, gs_rows, keys_of(&a, k, a.d), 2, 1), a.scale));
  if (nn_mask_at(c, 5, 1)) {
    ir_value gk = nn_mul(c, contract(&a, gs_rows, rows_of(&a, q, a.d), 1, 1), a.scale);
    out_as(c, 1, gk);
  }
  if (nn_mask_at(c, 5, 3) && aten_has(c, 4)) {
    const aten_tensor *b = aten_meta(c, 4);
    aten_out(c, 3, nn_sum_to_sizes(c, gs, b->rank, b->sizes));
  }
  nn_out_rest(c);
}

/* ---- recurrent cells ----------------------------------------------------------------------------------------- */

/* input_gates + hidden_gates + biases, all [N, gates * H]. */
static ir_value gates_in(aten_lowering *c, uint32_t arg, uint32_t bias, ttpu_dtype t) {
  ir_value x = nn_in_as(c, arg, t);
  return aten_has(c, bias) ? nn_add(c, x, nn_in_as(c, bias, t)) : x;
}

static ir_value gate(aten_lowering *c, ir_value gates, uint32_t i, uint32_t count) {
  int64_t h = nn_type(c, gates).dims[1] / count;
  return ir_slice_dim(c->b, gates, 1, i * h, (i + 1) * h, 1);
}

/* slope of a sigmoid and of tanh where they gave y */
static ir_value sigmoid_slope(aten_lowering *c, ir_value y) {
  return ir_multiply(c->b, ir_subtract(c->b, nn_const(c, y, 1), y), y);
}
static ir_value tanh_slope(aten_lowering *c, ir_value y) {
  return ir_subtract(c->b, nn_const(c, y, 1), ir_multiply(c->b, y, y));
}

/* input_gates, hidden_gates, cx, input_bias?, hidden_bias?. Results: hy, cy, the activated gates (i, f, g, o). */
void lower_lstm_cell(aten_lowering *c) {
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)aten_meta(c, 0)->dtype);
  ir_value gates = nn_add(c, gates_in(c, 0, 3, t), gates_in(c, 1, 4, t)), cx = nn_in_as(c, 2, t);
  ir_value i = ir_logistic(c->b, gate(c, gates, 0, 4)), f = ir_logistic(c->b, gate(c, gates, 1, 4));
  ir_value g = ir_tanh(c->b, gate(c, gates, 2, 4)), o = ir_logistic(c->b, gate(c, gates, 3, 4));
  ir_value cy = ir_add(c->b, ir_multiply(c->b, f, cx), ir_multiply(c->b, i, g));
  aten_out(c, 0, ir_multiply(c->b, o, ir_tanh(c->b, cy)));
  aten_out(c, 1, cy);
  aten_out(c, 2, ir_concatenate(c->b, 4, (ir_value[]){i, f, g, o}, 1));
}

/* grad_hy?, grad_cy?, cx, cy, workspace, has_bias. Results: grad_gates, grad_cx, grad_bias. */
void lower_lstm_cell_backward(aten_lowering *c) {
  ir_value cx = nn_in(c, 2), cy = nn_in(c, 3), w = nn_in(c, 4);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, w).dtype;
  ir_value i = gate(c, w, 0, 4), f = gate(c, w, 1, 4), g = gate(c, w, 2, 4), o = gate(c, w, 3, 4);
  ir_value gh = aten_has(c, 0) ? nn_in_as(c, 0, t) : nn_const(c, cx, 0);
  ir_value gc = aten_has(c, 1) ? nn_in_as(c, 1, t) : nn_const(c, cx, 0);
  ir_value y = ir_tanh(c->b, cy);
  ir_value go = ir_multiply(c->b, ir_multiply(c->b, gh, y), sigmoid_slope(c, o));
  gc = ir_add(c->b, ir_multiply(c->b, ir_multiply(c->b, gh, o), tanh_slope(c, y)), gc);
  ir_value gi = ir_multiply(c->b, ir_multiply(c->b, gc, g), sigmoid_slope(c, i));
  ir_value gf = ir_multiply(c->b, ir_multiply(c->b, gc, cx), sigmoid_slope(c, f));
  ir_value gg = ir_multiply(c->b, ir_multiply(c->b, gc, i), tanh_slope(c, g));
  ir_value gates = ir_concatenate(c->b, 4, (ir_value[]){gi, gf, gg, go}, 1);
  aten_out(c, 0, gates);
  aten_out(c, 1, ir_multiply(c->b, gc, f));
  if (aten_int(c, 5)) aten_out(c, 2, nn_reduce_dim(c, IR_ADD, gates, 0, false));
  nn_out_rest(c);
}

/* input_gates, hidden_gates, hx, input_bias?, hidden_bias?. Results: hy, workspace (r, i, n, hx, hidden part of n). */
void lower_gru_cell(aten_lowering *c) {
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)aten_meta(c, 0)->dtype);
  ir_value x = gates_in(c, 0, 3, t), h = gates_in(c, 1, 4, t), hx = nn_in_as(c, 2, t);
  ir_value r = ir_logistic(c->b, ir_add(c->b, gate(c, x, 0, 3), gate(c, h, 0, 3)));
  ir_value i = ir_logistic(c->b, ir_add(c->b, gate(c, x, 1, 3), gate(c, h, 1, 3)));
  ir_value hn = gate(c, h, 2, 3);
  ir_value n = ir_tanh(c->b, ir_add(c->b, gate(c, x, 2, 3), ir_multiply(c->b, r, hn)));
  aten_out(c, 0, ir_add(c->b, n, ir_multiply(c->b, i, ir_subtract(c->b, hx, n))));
  aten_out(c, 1, ir_concatenate(c->b, 5, (ir_value[]){r, i, n, hx, hn}, 1));
}

/* grad_hy, workspace, has_bias. Results: the gradients of input_gates, hidden_gates, hx and both biases. */
void lower_gru_cell_backward(aten_lowering *c) {
  ir_value go = nn_in(c, 0), w = nn_in(c, 1);
  ir_value r = gate(c, w, 0, 5), i = gate(c, w, 1, 5), n = gate(c, w, 2, 5), hx = gate(c, w, 3, 5),
           hn = gate(c, w, 4, 5);
  ir_value gi = ir_multiply(c->b, ir_multiply(c->b, go, ir_subtract(c->b, hx, n)), sigmoid_slope(c, i));
  ir_value gn = ir_multiply(c->b, go, ir_subtract(c->b, nn_const(c, i, 1), i));
  gn = ir_multiply(c->b, gn, tanh_slope(c, n));
  ir_value gr = ir_multiply(c->b, ir_multiply(c->b, gn, hn), sigmoid_slope(c, r));
  ir_value x = ir_concatenate(c->b, 3, (ir_value[]){gr, gi, gn}, 1);
  ir_value h = ir_concatenate(c->b, 3, (ir_value[]){gr, gi, ir_multiply(c->b, gn, r)}, 1);
  aten_out(c, 0, x);
  aten_out(c, 1, h);
  aten_out(c, 2, ir_multiply(c->b, go, i));
  if (!aten_int(c, 2)) return;
  aten_out(c, 3, nn_reduce_dim(c, IR_ADD, x, 0, false));
  aten_out(c, 4, nn_reduce_dim(c, IR_ADD, h, 0, false));
}
