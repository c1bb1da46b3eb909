/* Activations and their gradients. Each gradient takes what its forward kept, as the schema says. Comparisons are
 * written the way round that PyTorch's kernels have them, because that decides where NaN goes. */
#include "aten/nn_int.h"

#define TWO_OVER_SQRT_PI 1.12837916709551257390
#define SQRT_HALF 0.70710678118654752440
#define SQRT_TWO 1.41421356237309504880

/* Of equal operands maximum gives the second: the bound first, then, and -0 stays what it is, as on CPU. */
void lower_relu(aten_lowering *c) {
  ir_value x = aten_in(c, 0);
  aten_out(c, 0, ir_maximum(c->b, nn_const(c, x, 0), x));
}

/* ---- GELU ------------------------------------------------------------------------------------------ */

static bool is_tanh(const aten_lowering *c, uint32_t arg) {
  const char *text = aten_text(c, arg);
  return text && text[0] == 't'; /* "none" or "tanh": others were refused with the metadata */
}

/* tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) */
static ir_value gelu_tanh(aten_lowering *c, ir_value x) {
  ir_value cube = ir_multiply(c->b, ir_multiply(c->b, x, x), x);
  ir_value inner = ir_add(c->b, x, nn_mul_f64(c, cube, 0.044715));
  return ir_tanh(c->b, nn_mul_f64(c, inner, SQRT_TWO * TWO_OVER_SQRT_PI * 0.5));
}

void lower_gelu(aten_lowering *c) { /* self, approximate */
  ir_value x = nn_in(c, 0);
  ir_value curve = is_tanh(c, 1) ? gelu_tanh(c, x) : ir_erf(c->b, nn_mul_f64(c, x, SQRT_HALF));
  aten_out(c, 0, ir_multiply(c->b, nn_mul_f64(c, x, 0.5), nn_add_f64(c, curve, 1)));
}

static ir_value gelu_slope(aten_lowering *c, ir_value x) {
  ir_value cdf = nn_mul_f64(c, nn_add_f64(c, ir_erf(c->b, nn_mul_f64(c, x, SQRT_HALF)), 1), 0.5);
  ir_value density = ir_exponential(c->b, nn_mul_f64(c, ir_multiply(c->b, x, x), -0.5));
  density = nn_mul_f64(c, density, TWO_OVER_SQRT_PI * SQRT_HALF * 0.5);
  return ir_add(c->b, cdf, ir_multiply(c->b, x, density));
}

static ir_value gelu_tanh_slope(aten_lowering *c, ir_value x) {
  ir_value t = gelu_tanh(c, x), square = ir_multiply(c->b, x, x);
  ir_value left = nn_mul_f64(c, nn_add_f64(c, t, 1), 0.5);
  ir_value tanh_slope = ir_subtract(c->b, nn_const(c, t, 1), ir_multiply(c->b, t, t));
  ir_value inner = nn_add_f64(c, nn_mul_f64(c, square, 3 * 0.044715), 1);
  inner = nn_mul_f64(c, inner, SQRT_TWO * TWO_OVER_SQRT_PI * 0.5);
  ir_value right = ir_multiply(c->b, ir_multiply(c->b, nn_mul_f64(c, x, 0.5), tanh_slope), inner);
  return ir_add(c->b, left, right);
}

void lower_gelu_backward(aten_lowering *c) { /* grad, self, approximate */
  ir_value x = nn_in(c, 1);
  aten_out(c, 0, nn_mul(c, nn_in(c, 0), is_tanh(c, 2) ? gelu_tanh_slope(c, x) : gelu_slope(c, x)));
}

/* ---- SiLU, Mish, sigmoid, tanh ---------------------------------------------------------------------- */

void lower_silu(aten_lowering *c) { /* x / (1 + exp(-x)) */
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, ir_divide(c->b, x, nn_add_f64(c, ir_exponential(c->b, ir_negate(c->b, x)), 1)));
}

void lower_silu_backward(aten_lowering *c) { /* grad, self: g * s * (1 + x * (1 - s)) */
  ir_value x = nn_in(c, 1), s = ir_logistic(c->b, x);
  ir_value rest = ir_multiply(c->b, x, ir_subtract(c->b, nn_const(c, s, 1), s));
  aten_out(c, 0, nn_mul(c, nn_in(c, 0), ir_multiply(c->b, s, nn_add_f64(c, rest, 1))));
}

static ir_value tanh_softplus(aten_lowering *c, ir_value x) {
  return ir_tanh(c->b, ir_log_plus_one(c->b, ir_exponential(c->b, x)));
}

void lower_mish(aten_lowering *c) {
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, ir_multiply(c->b, x, tanh_softplus(c, x)));
}

void lower_mish_backward(aten_lowering *c) { /* grad, self: g * (t + x * s * (1 - t^2)) */
  ir_value x = nn_in(c, 1), t = tanh_softplus(c, x), s = ir_logistic(c->b, x);
  ir_value rest = ir_subtract(c->b, nn_const(c, t, 1), ir_multiply(c->b, t, t));
  rest = ir_multiply(c->b, ir_multiply(c->b, x, s), rest);
  aten_out(c, 0, nn_mul(c, nn_in(c, 0), ir_add(c->b, t, rest)));
}

void lower_sigmoid_backward(aten_lowering *c) { /* grad, output: g * conj((1 - y) * y) */
  ir_value y = nn_in(c, 1);
  ir_value slope = ir_multiply(c->b, ir_subtract(c->b, nn_const(c, y, 1), y), y);
  aten_out(c, 0, nn_mul(c, nn_in(c, 0), nn_conj(c, slope)));
}

void lower_tanh_backward(aten_lowering *c) { /* grad, output: g * conj(1 - y^2) */
  ir_value y = nn_in(c, 1);
  ir_value slope = ir_subtract(c->b, nn_const(c, y, 1), ir_multiply(c->b, y, y));
  aten_out(c, 0, nn_mul(c, nn_in(c, 0), nn_conj(c, slope)));
}

/* ---- ELU and the leaky ones -------------------------------------------------------------------------- */

void lower_elu(aten_lowering *c) { /* self, alpha, scale, input_scale */
  ir_value x = nn_in(c, 0), scale = nn_number(c, 2, x);
  ir_value below = ir_exponential_minus_one(c->b, ir_multiply(c->b, x, nn_number(c, 3, x)));
  below = ir_multiply(c->b, below, ir_multiply(c->b, nn_number(c, 1, x), scale));
  aten_out(c, 0, ir_select(c->b, nn_compare_f64(c, IR_LT, x, 0), below, ir_multiply(c->b, x, scale)));
}

void lower_elu_backward(aten_lowering *c) { /* grad, alpha, scale, input_scale, is_result, self_or_result */
  ir_value g = nn_in(c, 0), v = nn_in(c, 5), scale = nn_number(c, 2, v), input_scale = nn_number(c, 3, v);
  ir_value negative = ir_multiply(c->b, nn_number(c, 1, v), scale), slope;
  if (aten_int(c, 4)) {
    slope = ir_multiply(c->b, input_scale, ir_add(c->b, v, negative));
  } else {
    slope = ir_exponential(c->b, ir_multiply(c->b, v, input_scale));
    slope = ir_multiply(c->b, ir_multiply(c->b, input_scale, negative), slope);
  }
  slope = ir_select(c->b, nn_compare_f64(c, IR_GT, v, 0), scale, slope);
  aten_out(c, 0, nn_mul(c, g, slope));
}

void lower_leaky_relu(aten_lowering *c) { /* self, negative_slope */
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, ir_select(c->b, nn_compare_f64(c, IR_GT, x, 0), x, ir_multiply(c->b, x, nn_number(c, 1, x))));
}

void lower_leaky_relu_backward(aten_lowering *c) { /* grad, self, negative_slope, self_is_result */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1);
  aten_out(c, 0, nn_select(c, nn_compare_f64(c, IR_GT, x, 0), g, nn_mul(c, g, nn_number(c, 2, x))));
}

void lower_prelu(aten_lowering *c) { /* self, weight */
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, nn_select(c, nn_compare_f64(c, IR_GT, x, 0), x, nn_mul(c, nn_in(c, 1), x)));
}

void lower_prelu_backward(aten_lowering *c) { /* grad, self, weight: both gradients in self's sizes */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1), positive = nn_compare_f64(c, IR_GT, x, 0);
  aten_out(c, 0, nn_select(c, positive, g, nn_mul(c, nn_in(c, 2), g)));
  ir_value gw = nn_mul(c, x, g);
  aten_out(c, 1, nn_select(c, positive, nn_const(c, gw, 0), gw));
}

/* self, noise, lower, upper, training: results are the output and the noise used. */
void lower_rrelu_with_noise(aten_lowering *c) {
  ir_value x = nn_in(c, 0), lower = nn_number(c, 2, x), upper = nn_number(c, 3, x);
  if (!aten_int(c, 4)) {
    ir_value slope = nn_mul_f64(c, ir_add(c->b, lower, upper), 0.5);
    aten_out(c, 0, ir_select(c->b, nn_compare_f64(c, IR_LE, x, 0), ir_multiply(c->b, x, slope), x));
    aten_out(c, 1, aten_in(c, 1));
    return;
  }
  ir_type t = nn_type(c, x);
  aten_draws draws = {.c = c};
  ir_value r = aten_draw_uniform(&draws, (ttpu_dtype)t.dtype, t.rank, t.dims);
  r = ir_add(c->b, ir_multiply(c->b, r, ir_subtract(c->b, upper, lower)), lower);
  r = ir_select(c->b, nn_compare_f64(c, IR_LE, x, 0), r, nn_const(c, x, 1));
  aten_out(c, 0, ir_multiply(c->b, x, r));
  aten_out(c, 1, r);
}

/* ---- piecewise linear --------------------------------------------------------------------------------- */

void lower_hardtanh(aten_lowering *c) { /* self, min_val, max_val */
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, ir_minimum(c->b, nn_number(c, 2, x), ir_maximum(c->b, nn_number(c, 1, x), x)));
}

void lower_hardtanh_backward(aten_lowering *c) { /* grad, self, min_val, max_val */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1);
  ir_value inside =
      ir_and_bits(c->b, ir_compare(c->b, IR_GT, x, nn_number(c, 2, x)), ir_compare(c->b, IR_LT, x, nn_number(c, 3, x)));
  aten_out(c, 0, nn_select(c, inside, g, nn_const(c, g, 0)));
}

/* min(max(x + 3, 0), 6) */
static ir_value ramp(aten_lowering *c, ir_value x) {
  ir_value r = ir_maximum(c->b, nn_add_f64(c, x, 3), nn_const(c, x, 0));
  return ir_minimum(c->b, r, nn_const(c, x, 6));
}

void lower_hardsigmoid(aten_lowering *c) {
  ir_value r = ramp(c, nn_in(c, 0));
  aten_out(c, 0, ir_divide(c->b, r, nn_const(c, r, 6)));
}

void lower_hardsigmoid_backward(aten_lowering *c) { /* grad, self */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1);
  ir_value inside = ir_and_bits(c->b, nn_compare_f64(c, IR_GT, x, -3), nn_compare_f64(c, IR_LT, x, 3));
  aten_out(c, 0,
           nn_select(c, inside, nn_mul_f64(c, g, 1.0f / 6.0f), nn_const(c, g, 0))); /* a float in CPU's kernel too */
}

void lower_hardswish(aten_lowering *c) {
  ir_value x = nn_in(c, 0), r = ir_multiply(c->b, x, ramp(c, x));
  aten_out(c, 0, ir_divide(c->b, r, nn_const(c, r, 6)));
}

void lower_hardswish_backward(aten_lowering *c) { /* grad, self */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1);
  ir_value middle = nn_mul(c, g, nn_add_f64(c, ir_divide(c->b, x, nn_const(c, x, 3)), 0.5));
  ir_value r = nn_select(c, nn_compare_f64(c, IR_GE, x, 3), g, middle);
  aten_out(c, 0, nn_select(c, nn_compare_f64(c, IR_LE, x, -3), nn_const(c, g, 0), r));
}

void lower_softshrink(aten_lowering *c) { /* self, lambd */
  ir_value x = nn_in(c, 0), lambda = nn_number(c, 1, x);
  /* x * 0 keeps NaN. */
  ir_value low = ir_select(c->b, ir_compare(c->b, IR_LT, x, ir_negate(c->b, lambda)), ir_add(c->b, x, lambda),
                           nn_mul_f64(c, x, 0));
  aten_out(c, 0, ir_select(c->b, ir_compare(c->b, IR_GT, x, lambda), ir_subtract(c->b, x, lambda), low));
}

/* -lambd <= x <= lambd */
static ir_value within(aten_lowering *c, ir_value x, uint32_t arg) {
  ir_value lambda = nn_number(c, arg, x);
  return ir_and_bits(c->b, ir_compare(c->b, IR_GE, x, ir_negate(c->b, lambda)), ir_compare(c->b, IR_LE, x, lambda));
}

void lower_shrink_backward(aten_lowering *c) { /* grad, self, lambd: soft and hard alike */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1), lambda = nn_number(c, 2, x);
  ir_value outside =
      ir_or_bits(c->b, ir_compare(c->b, IR_LT, x, ir_negate(c->b, lambda)), ir_compare(c->b, IR_GT, x, lambda));
  aten_out(c, 0, nn_select(c, outside, g, nn_const(c, g, 0)));
}

void lower_hardshrink(aten_lowering *c) { /* self, lambd */
  ir_value x = nn_in(c, 0);
  aten_out(c, 0, ir_select(c->b, within(c, x, 1), nn_const(c, x, 0), x));
}

void lower_threshold(aten_lowering *c) { /* self, threshold, value */
  ir_value x = nn_in(c, 0);              /* of a half type too, the threshold is not rounded to it */
  aten_out(c, 0, ir_select(c->b, ir_compare(c->b, IR_LE, x, nn_number(c, 1, x)), nn_number(c, 2, x), x));
}

void lower_threshold_backward(aten_lowering *c) { /* grad, self, threshold */
  ttpu_dtype t = (ttpu_dtype)c->outs[0].dtype;
  ir_value g = nn_in_as(c, 0, t), x = nn_in_as(c, 1, t);
  aten_out(c, 0, nn_select(c, nn_compare(c, IR_LE, x, nn_number(c, 2, x)), nn_const(c, g, 0), g));
}

/* ---- softplus, log-sigmoid, GLU ------------------------------------------------------------------------ */

void lower_softplus(aten_lowering *c) { /* self, beta, threshold */
  ir_value x = nn_in(c, 0), beta = nn_number(c, 1, x), scaled = ir_multiply(c->b, x, beta);
  ir_value soft = ir_divide(c->b, ir_log_plus_one(c->b, ir_exponential(c->b, scaled)), beta);
  aten_out(c, 0, ir_select(c->b, ir_compare(c->b, IR_GT, scaled, nn_number(c, 2, x)), x, soft));
}

void lower_softplus_backward(aten_lowering *c) { /* grad, self, beta, threshold: g * z / (z + 1), z = exp(beta x) */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1), scaled = ir_multiply(c->b, x, nn_number(c, 2, x));
  ir_value z = ir_exponential(c->b, scaled);
  ir_value soft = ir_divide(c->b, nn_mul(c, g, z), nn_add_f64(c, z, 1));
  aten_out(c, 0, nn_select(c, ir_compare(c->b, IR_GT, scaled, nn_number(c, 3, x)), g, soft));
}

/* exp(-|x|) */
static ir_value decay(aten_lowering *c, ir_value x) { return ir_exponential(c->b, ir_negate(c->b, ir_abs(c->b, x))); }

void lower_log_sigmoid_forward(aten_lowering *c) { /* results: min(x, 0) - log1p(z), and z = exp(-|x|) */
  ir_value x = nn_in(c, 0), z = decay(c, x);
  aten_out(c, 0, ir_subtract(c->b, ir_minimum(c->b, x, nn_const(c, x, 0)), ir_log_plus_one(c->b, z)));
  bool keeps = base_numel(c->outs[1].rank, c->outs[1].sizes) == base_numel(c->outs[0].rank, c->outs[0].sizes);
  aten_out(c, 1, keeps ? z : nn_zeros_out(c, 1, (ttpu_dtype)c->outs[1].dtype));
}

void lower_log_sigmoid_backward(aten_lowering *c) { /* grad, self, buffer (which some devices leave empty) */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1), z = decay(c, x), zero = nn_const(c, x, 0), one = nn_const(c, x, 1);
  ir_value negative = ir_compare(c->b, IR_LT, x, zero), fraction = ir_divide(c->b, z, ir_add(c->b, one, z));
  ir_value slope = ir_select(c->b, negative, ir_subtract(c->b, one, fraction), fraction);
  aten_out(c, 0, nn_mul(c, g, slope));
}

/* x's two halves along dim. */
static void halves(aten_lowering *c, ir_value x, uint32_t dim, ir_value *a, ir_value *b) {
  int64_t size = nn_type(c, x).dims[dim];
  *a = ir_slice_dim(c->b, x, dim, 0, size / 2, 1);
  *b = ir_slice_dim(c->b, x, dim, size / 2, size, 1);
}

void lower_glu(aten_lowering *c) { /* self, dim */
  ir_value x = nn_in(c, 0), a, b;
  halves(c, x, aten_dim(c, 1, nn_type(c, x).rank), &a, &b);
  aten_out(c, 0, ir_multiply(c->b, a, ir_logistic(c->b, b)));
}

void lower_glu_backward(aten_lowering *c) { /* grad, self, dim */
  ir_value g = nn_in(c, 0), x = nn_in(c, 1), a, b;
  uint32_t dim = aten_dim(c, 2, nn_type(c, x).rank);
  halves(c, x, dim, &a, &b);
  ir_value s = ir_logistic(c->b, b), gs = ir_multiply(c->b, g, s);
  ir_value slope = ir_multiply(c->b, ir_subtract(c->b, nn_const(c, s, 1), s), a);
  aten_out(c, 0, ir_concatenate(c->b, 2, (ir_value[]){gs, ir_multiply(c->b, gs, slope)}, dim));
}

void lower_glu_jvp(aten_lowering *c) { /* glu, x, dx, dim */
  ir_builder *ir = c->b;
  ir_value y = nn_in(c, 0), x = nn_in(c, 1), a, b, da, db;
  uint32_t dim = aten_dim(c, 3, nn_type(c, x).rank);
  halves(c, x, dim, &a, &b);
  halves(c, nn_in(c, 2), dim, &da, &db);
  ir_value s = ir_logistic(ir, b), rest = ir_subtract(ir, nn_const(c, s, 1), s);
  aten_out(c, 0, ir_add(ir, ir_multiply(ir, da, s), ir_multiply(ir, ir_multiply(ir, y, rest), db)));
}

/* With s = sigmoid(b), the gradient is (g s, g a s (1 - s)); this is its differential in g, a and b. */
void lower_glu_backward_jvp(aten_lowering *c) { /* grad_x, grad_glu, x, dgrad_glu, dx, dim */
  ir_builder *ir = c->b;
  ir_value g = nn_in(c, 1), x = nn_in(c, 2), dg = nn_in(c, 3), a, b, da, db;
  uint32_t dim = aten_dim(c, 5, nn_type(c, x).rank);
  halves(c, x, dim, &a, &b);
  halves(c, nn_in(c, 4), dim, &da, &db);
  ir_value s = ir_logistic(ir, b), one = nn_const(c, s, 1), slope = ir_multiply(ir, s, ir_subtract(ir, one, s));
  ir_value bend = ir_multiply(ir, slope, ir_subtract(ir, one, ir_add(ir, s, s))); /* of s in b, twice */
  ir_value first = ir_add(ir, ir_multiply(ir, dg, s), ir_multiply(ir, ir_multiply(ir, g, slope), db));
  ir_value by_a = ir_multiply(ir, ir_add(ir, ir_multiply(ir, dg, a), ir_multiply(ir, g, da)), slope);
  ir_value by_b = ir_multiply(ir, ir_multiply(ir, ir_multiply(ir, g, a), bend), db);
  aten_out(c, 0, ir_concatenate(ir, 2, (ir_value[]){first, ir_add(ir, by_a, by_b)}, dim));
}
