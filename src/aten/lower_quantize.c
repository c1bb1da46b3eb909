/* Fake quantisation, for training that knows of quantisation: floats become those that a quantised tensor could hold,
 * (q - zero) * scale for an integer q in [low, high]. As in PyTorch's CPU kernels the divisor 1 / scale and the result are
 * of f32 whatever the operand is. */
#include "aten/nn_int.h"

typedef struct quantiser {
  ir_value scale, zero; /* f32, of the operand's sizes */
  double low, high;
} quantiser;

/* Of one scale and zero for all elements: arguments 1 and 2 are numbers, or tensors of one element. */
static ir_value one_for_all(aten_lowering *c, ir_value v, ir_value x) {
  ir_type t = nn_type(c, x);
  return ir_broadcast_to(c->b, ir_reshape(c->b, ir_convert(c->b, v, TTPU_F32), 0, NULL), t.rank, t.dims);
}

/* Of one a slice along `axis`. */
static ir_value one_a_slice(aten_lowering *c, ir_value v, ir_value x, uint32_t axis) {
  ir_type t = nn_type(c, x);
  int64_t map = axis;
  return ir_broadcast_in_dim(c->b, nn_flatten(c, ir_convert(c->b, v, TTPU_F32)), t.rank, t.dims, &map);
}

/* A zero that is learned: rounded, and kept between the ends. */
static ir_value whole_zero(aten_lowering *c, ir_value zero, double low, double high) {
  zero = ir_round_nearest_even(c->b, ir_convert(c->b, zero, TTPU_F32));
  return ir_clamp(c->b, ir_scalar_f64(c->b, TTPU_F32, low), zero, ir_scalar_f64(c->b, TTPU_F32, high));
}

/* The integer of each element, as a float of x's dtype and not yet within [low, high]. A zero that is no integer is added
 * before rounding. */
static ir_value integers(aten_lowering *c, ir_value x, const quantiser *q, bool fractional_zero) {
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value inverse = ir_convert(c->b, ir_divide(c->b, nn_const(c, q->scale, 1), q->scale), t);
  ir_value steps = ir_multiply(c->b, x, inverse), zero = ir_convert(c->b, q->zero, t);
  if (fractional_zero) return ir_round_nearest_even(c->b, ir_add(c->b, steps, zero));
  return ir_add(c->b, ir_round_nearest_even(c->b, steps), zero);
}

static ir_value is_inside(aten_lowering *c, ir_value steps, const quantiser *q) { /* never for NaN */
  return ir_and_bits(c->b, nn_compare_f64(c, IR_GE, steps, q->low), nn_compare_f64(c, IR_LE, steps, q->high));
}

/* What the integers stand for, f32. NaN becomes the lowest. */
static ir_value represented(aten_lowering *c, ir_value steps, const quantiser *q) {
  ir_value low = nn_const(c, steps, q->low), kept = ir_minimum(c->b, steps, nn_const(c, steps, q->high));
  kept = ir_select(c->b, nn_is_nan(c, steps), low, ir_maximum(c->b, kept, low));
  return ir_multiply(c->b, ir_subtract(c->b, ir_convert(c->b, kept, TTPU_F32), q->zero), q->scale);
}

static quantiser between(aten_lowering *c, uint32_t low) { /* the arguments quant_min and quant_max */
  return (quantiser){.low = (double)aten_int(c, low), .high = (double)aten_int(c, low + 1)};
}

void lower_fake_quantize(aten_lowering *c) { /* self, scale, zero_point, quant_min, quant_max; results: output, mask */
  ir_value x = nn_in(c, 0);
  quantiser q = between(c, 3);
  q.scale = one_for_all(c, aten_number_in(c, 1, TTPU_F32), x);
  q.zero = nn_const(c, q.scale, (double)aten_int(c, 2));
  ir_value steps = integers(c, x, &q, false);
  aten_out(c, 0, represented(c, steps, &q));
  aten_out(c, 1, is_inside(c, steps, &q));
}

/* self, scale, zero_point, fake_quant_enabled (a tensor: 0 leaves self as it is), quant_min, quant_max */
void lower_fake_quantize_by_tensors(aten_lowering *c) {
  ir_value x = nn_in(c, 0), on = one_for_all(c, aten_in(c, 3), x);
  quantiser q = between(c, 4);
  q.scale = one_for_all(c, aten_in(c, 1), x);
  q.zero = one_for_all(c, ir_convert(c->b, aten_in(c, 2), TTPU_I64), x);
  ir_value steps = integers(c, x, &q, false), off = nn_compare_f64(c, IR_EQ, on, 0);
  ir_value y = ir_convert(c->b, represented(c, steps, &q), (ttpu_dtype)nn_type(c, x).dtype);
  aten_out(c, 0, ir_select(c->b, off, x, y));
  aten_out(c, 1, ir_or_bits(c->b, off, is_inside(c, steps, &q)));
}

void lower_fake_quantize_channels(aten_lowering *c) { /* self, scale, zero_point, axis, quant_min, quant_max */
  ir_value x = nn_in(c, 0);
  uint32_t axis = aten_dim(c, 3, nn_type(c, x).rank);
  quantiser q = between(c, 4);
  q.scale = one_a_slice(c, aten_in(c, 1), x, axis);
  q.zero = one_a_slice(c, aten_in(c, 2), x, axis);
  ir_value steps = integers(c, x, &q, base_dtype_is_float((ttpu_dtype)aten_meta(c, 2)->dtype));
  aten_out(c, 0, represented(c, steps, &q));
  aten_out(c, 1, is_inside(c, steps, &q));
}

/* ---- with a scale and a zero that are learned ----------------------------------------------------------- */

/* x is argument `self`; scale and zero_point follow it, then axis where there is one, quant_min, quant_max. */
static quantiser learned(aten_lowering *c, ir_value x, uint32_t self, bool channels) {
  uint32_t next = self + 3 + channels;
  quantiser q = between(c, next);
  ir_value scale = aten_in(c, self + 1), zero = whole_zero(c, aten_in(c, self + 2), q.low, q.high);
  uint32_t axis = channels ? aten_dim(c, self + 3, nn_type(c, x).rank) : 0;
  q.scale = channels ? one_a_slice(c, scale, x, axis) : one_for_all(c, scale, x);
  q.zero = channels ? one_a_slice(c, zero, x, axis) : one_for_all(c, zero, x);
  return q;
}

static void fake_quantize_learned(aten_lowering *c, bool channels) {
  ir_value x = nn_in(c, 0);
  quantiser q = learned(c, x, 0, channels);
  aten_out(c, 0, represented(c, integers(c, x, &q, false), &q));
}
void lower_fake_quantize_learned(aten_lowering *c) { fake_quantize_learned(c, false); }
void lower_fake_quantize_learned_channels(aten_lowering *c) { fake_quantize_learned(c, true); }

/* Sums a gradient over all that one scale or zero served, as result i. */
static void out_summed(aten_lowering *c, uint32_t i, ir_value g, bool channels, uint32_t factor) {
  if (channels) g = nn_sum_to_dim(c, g, aten_dim(c, 4, nn_type(c, g).rank));
  else g = nn_reduce_dim(c, IR_ADD, nn_flatten(c, g), 0, true);
  aten_out(c, i, ir_multiply(c->b, g, nn_number(c, factor, g)));
}

/* grad, self, scale, zero_point, [axis], quant_min, quant_max, grad_factor. Rounding counts as the identity; what was
 * cut off moves with the end, (end - zero) * scale. */
static void fake_quantize_learned_backward(aten_lowering *c, bool channels) {
  ir_builder *b = c->b;
  ir_value g = nn_in(c, 0), x = nn_in(c, 1);
  uint32_t factor = 6 + channels;
  quantiser q = learned(c, x, 1, channels);
  ir_value steps = integers(c, x, &q, false), inside = is_inside(c, steps, &q), none = nn_const(c, g, 0);
  aten_out(c, 0, ir_select(b, inside, g, none));
  ir_value error = ir_divide(b, ir_subtract(b, represented(c, steps, &q), x), q.scale);
  ir_value end =
      ir_select(b, nn_compare_f64(c, IR_LT, steps, q.low), nn_const(c, steps, q.low), nn_const(c, steps, q.high));
  ir_value slope = ir_select(b, inside, error, ir_subtract(b, end, q.zero));
  out_summed(c, 1, ir_multiply(b, g, slope), channels, factor);
  ir_value away = ir_negate(b, ir_multiply(b, g, q.scale));
  out_summed(c, 2, ir_select(b, inside, none, away), channels, factor);
}
void lower_fake_quantize_learned_backward(aten_lowering *c) { fake_quantize_learned_backward(c, false); }
void lower_fake_quantize_learned_channels_backward(aten_lowering *c) { fake_quantize_learned_backward(c, true); }
