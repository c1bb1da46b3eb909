/* Softmax and log-softmax, their gradients, and softmax under a mask. */
#include "aten/nn_int.h"

typedef struct shifted {
  ir_value x, exponential, sum; /* x - max, its exponential, and that summed along dim (kept) */
} shifted;

static shifted shift(aten_lowering *c, ir_value x, uint32_t dim) {
  shifted s;
  s.x = nn_sub(c, x, nn_reduce_dim(c, IR_MAXIMUM, x, dim, true));
  s.exponential = ir_exponential(c->b, s.x);
  s.sum = nn_reduce_dim(c, IR_ADD, s.exponential, dim, true);
  return s;
}

/* The result has the operand's sizes, which for a 0-d operand are none. */
static void out_unflattened(aten_lowering *c, ir_value v) {
  aten_out(c, 0, ir_reshape(c->b, v, c->outs[0].rank, c->outs[0].sizes));
}

void lower_softmax(aten_lowering *c) { /* self, dim, half_to_float */
  shifted s = shift(c, nn_at_least_1d(c, nn_in(c, 0)), aten_dim(c, 1, aten_meta(c, 0)->rank));
  out_unflattened(c, nn_div(c, s.exponential, s.sum));
}

void lower_log_softmax(aten_lowering *c) {
  shifted s = shift(c, nn_at_least_1d(c, nn_in(c, 0)), aten_dim(c, 1, aten_meta(c, 0)->rank));
  out_unflattened(c, nn_sub(c, s.x, ir_log(c->b, s.sum)));
}

void lower_softmax_backward(aten_lowering *c) { /* grad_output, output, dim, input_dtype */
  ir_value g = nn_at_least_1d(c, nn_in(c, 0)), y = nn_at_least_1d(c, nn_in(c, 1));
  uint32_t dim = aten_dim(c, 2, aten_meta(c, 0)->rank);
  ir_value gy = ir_multiply(c->b, g, y);
  out_unflattened(c, nn_sub(c, gy, nn_mul(c, y, nn_reduce_dim(c, IR_ADD, gy, dim, true))));
}

void lower_log_softmax_backward(aten_lowering *c) {
  ir_value g = nn_at_least_1d(c, nn_in(c, 0)), y = nn_at_least_1d(c, nn_in(c, 1));
  uint32_t dim = aten_dim(c, 2, aten_meta(c, 0)->rank);
  ir_value sum = nn_reduce_dim(c, IR_ADD, g, dim, true);
  out_unflattened(c, nn_sub(c, g, nn_mul(c, ir_exponential(c->b, y), sum)));
}

/* The mask (true: left out) with x's sizes. mask_type 0: [L, L] of attention, 1: [B, L] of padded keys, x being
 * [B, H, L, L] for both; else x's own sizes. */
static ir_value mask_in(aten_lowering *c, uint32_t arg, int64_t mask_type, ir_value x) {
  ir_value mask = nn_in_as(c, arg, TTPU_BOOL);
  ir_type t = nn_type(c, mask);
  if (mask_type == 1 && t.rank == 2) mask = ir_reshape(c->b, mask, 4, (int64_t[]){t.dims[0], 1, 1, t.dims[1]});
  return nn_broadcast_like(c, mask, x);
}

void lower_masked_softmax(aten_lowering *c) { /* self, mask, dim?, mask_type? */
  ir_value x = nn_at_least_1d(c, nn_in(c, 0));
  uint32_t rank = nn_type(c, x).rank, dim = aten_has(c, 2) ? aten_dim(c, 2, rank) : rank - 1;
  ir_value masked = mask_in(c, 1, aten_int_or(c, 3, 2), x);
  ir_value low = nn_broadcast_like(c, ir_lowest(c->b, (ttpu_dtype)nn_type(c, x).dtype), x);
  ir_value top = nn_reduce_dim(c, IR_MAXIMUM, ir_select(c->b, masked, low, x), dim, true);
  ir_value e = ir_select(c->b, masked, nn_const(c, x, 0), ir_exponential(c->b, nn_sub(c, x, top)));
  /* Where everything is masked the sum is 0 and the result NaN, as on CPU. */
  out_unflattened(c, nn_div(c, e, nn_reduce_dim(c, IR_ADD, e, dim, true)));
}

void lower_masked_softmax_backward(aten_lowering *c) { /* grad_output, output, mask, dim? */
  ir_value g = nn_at_least_1d(c, nn_in(c, 0)), y = nn_at_least_1d(c, nn_in(c, 1));
  uint32_t rank = nn_type(c, g).rank, dim = aten_has(c, 3) ? aten_dim(c, 3, rank) : rank - 1;
  ir_value masked = mask_in(c, 2, 2, g), zero = nn_const(c, g, 0);
  ir_value gy = ir_select(c->b, masked, zero, ir_multiply(c->b, g, y));
  ir_value r = nn_sub(c, gy, nn_mul(c, y, nn_reduce_dim(c, IR_ADD, gy, dim, true)));
  out_unflattened(c, ir_select(c->b, masked, zero, r));
}
