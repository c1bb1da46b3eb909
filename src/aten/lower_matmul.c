/* Matrix products. Half types accumulate in f32 and are rounded once, after beta * self was added; integers are
 * exact modulo their width. beta and alpha are static: a beta of 0 must not read self (which may hold NaN), and 1, the
 * usual value, should cost nothing. */
#include "aten/nn_int.h"

/* The product of two operands, with leading dims equal, in the math dtype of the operands. */
static ir_value product(aten_lowering *c, ir_value x, ir_value y) {
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  return ir_matmul(c->b, x, y, nn_precision(c, t), aten_math_dtype(t));
}

/* x times a Scalar argument. */
static ir_value scaled(aten_lowering *c, uint32_t arg, ir_value x) {
  return nn_static_is(c, arg, 1) ? x : ir_multiply(c->b, x, nn_number(c, arg, x));
}

/* beta * self + alpha * x, with self broadcast to x. */
static ir_value add_scaled(aten_lowering *c, ir_value x, uint32_t self, uint32_t beta, uint32_t alpha) {
  x = scaled(c, alpha, x);
  if (nn_static_is(c, beta, 0)) return x;
  ir_value s = nn_broadcast_like(c, nn_in_as(c, self, (ttpu_dtype)nn_type(c, x).dtype), x);
  return ir_add(c->b, scaled(c, beta, s), x);
}

void lower_mm(aten_lowering *c) { aten_out(c, 0, product(c, aten_in(c, 0), aten_in(c, 1))); }

void lower_addmm(aten_lowering *c) { /* self, mat1, mat2, beta, alpha; baddbmm too */
  aten_out(c, 0, add_scaled(c, product(c, aten_in(c, 1), aten_in(c, 2)), 0, 3, 4));
}

void lower_addmm_dtype(aten_lowering *c) { /* self, mat1, mat2, out_dtype, beta, alpha */
  aten_out(c, 0, add_scaled(c, product(c, aten_in(c, 1), aten_in(c, 2)), 0, 4, 5));
}

void lower_addbmm(aten_lowering *c) { /* the sum over the batch is one more contracted dimension */
  ir_value x = aten_in(c, 1), y = aten_in(c, 2);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  int64_t x_dims[] = {0, 2}, y_dims[] = {0, 1};
  ir_dot_general_attrs attrs = {.lhs_contracting_dimensions = {x_dims, 2},
                                .rhs_contracting_dimensions = {y_dims, 2},
                                .precision = nn_precision(c, t)};
  aten_out(c, 0, add_scaled(c, ir_dot_general(c->b, x, y, &attrs, aten_math_dtype(t)), 0, 3, 4));
}

/* [M, K] or [K] times [K]. */
static ir_value times_vector(aten_lowering *c, ir_value x, ir_value y) {
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  int64_t x_dim = (int64_t)nn_type(c, x).rank - 1, y_dim = 0;
  ir_dot_general_attrs attrs = {.lhs_contracting_dimensions = {&x_dim, 1},
                                .rhs_contracting_dimensions = {&y_dim, 1},
                                .precision = nn_precision(c, t)};
  return ir_dot_general(c->b, x, y, &attrs, aten_math_dtype(t));
}

void lower_mv(aten_lowering *c) { aten_out(c, 0, times_vector(c, aten_in(c, 0), aten_in(c, 1))); }

void lower_vdot(aten_lowering *c) { aten_out(c, 0, times_vector(c, nn_conj(c, aten_in(c, 0)), aten_in(c, 1))); }

void lower_addmv(aten_lowering *c) { /* self, mat, vec, beta, alpha */
  aten_out(c, 0, add_scaled(c, times_vector(c, aten_in(c, 1), aten_in(c, 2)), 0, 3, 4));
}

void lower_addr(aten_lowering *c) { /* self, vec1, vec2, beta, alpha: self * beta + outer(vec1, vec2) * alpha */
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)c->outs[0].dtype);
  ir_value x = nn_in_as(c, 1, t), y = nn_in_as(c, 2, t);
  x = nn_reshape2(c, x, nn_type(c, x).dims[0], 1);
  if (t != TTPU_BOOL) {
    aten_out(c, 0, add_scaled(c, nn_mul(c, x, y), 0, 3, 4));
    return;
  }
  ir_value r = nn_binary(c, IR_AND, x, y);
  r = ir_and_bits(c->b, r, nn_number(c, 4, r));
  if (!nn_static_is(c, 3, 0)) r = ir_or_bits(c->b, r, nn_broadcast_like(c, nn_in_as(c, 0, t), r));
  aten_out(c, 0, r);
}

void lower_int_mm(aten_lowering *c) {
  aten_out(c, 0, ir_matmul(c->b, aten_in(c, 0), aten_in(c, 1), IR_PRECISION_HIGHEST, TTPU_I32));
}

void lower_weight_int8_mm(aten_lowering *c) { /* x [M, K], weight (int8) [N, K], scales [N] */
  ir_value x = aten_in(c, 0), weight = nn_in_as(c, 1, (ttpu_dtype)nn_type(c, x).dtype);
  ir_value y = product(c, x, nn_swap(c, weight, 0, 1));
  aten_out(c, 0, nn_mul(c, y, nn_in_as(c, 2, (ttpu_dtype)nn_type(c, y).dtype)));
}

void lower_addmm_activation(aten_lowering *c) { /* self, mat1, mat2, beta, alpha, use_gelu */
  ttpu_dtype out = (ttpu_dtype)c->outs[0].dtype;
  ir_value x = add_scaled(c, product(c, aten_in(c, 1), aten_in(c, 2)), 0, 3, 4);
  x = ir_convert(c->b, ir_convert(c->b, x, out), aten_math_dtype(out)); /* two kernels, two roundings */
  if (!aten_int(c, 5)) {
    aten_out(c, 0, ir_maximum(c->b, x, nn_const(c, x, 0)));
    return;
  }
  ir_value cdf = nn_add_f64(c, ir_erf(c->b, nn_mul_f64(c, x, 0.70710678118654752440)), 1);
  aten_out(c, 0, ir_multiply(c->b, nn_mul_f64(c, x, 0.5), cdf));
}

/* ---- float8 with scales -------------------------------------------------------------------------- */

/* x y, with x's scale (one, or one a row [M, 1]), y's (one, or one a column [1, N]) and the bias [N] applied, in f32.
 * bf16 holds float8 exactly, so the product is one pass; scales come after it, where they round once. */
static ir_value scaled_product(aten_lowering *c, ir_value x_scale, ir_value y_scale, uint32_t bias) {
  ir_value x = nn_in_as(c, 0, TTPU_BF16), y = nn_in_as(c, 1, TTPU_BF16);
  ir_value r = ir_matmul(c->b, x, y, IR_PRECISION_DEFAULT, TTPU_F32);
  ir_value scales[2] = {x_scale, y_scale};
  for (uint32_t i = 0; i < 2; ++i) {
    bool single = ir_numel(nn_type(c, scales[i])) == 1;
    r = nn_mul(c, r, single ? ir_reshape(c->b, scales[i], 0, NULL) : scales[i]);
  }
  return aten_has(c, bias) ? nn_add(c, r, nn_flatten(c, nn_in_as(c, bias, TTPU_F32))) : r;
}

/* self, mat2, scale_a, scale_b, bias?, scale_result?, out_dtype?, .. : the result's scale is for float8 alone */
void lower_scaled_mm(aten_lowering *c) {
  ir_value r = scaled_product(c, aten_in(c, 2), aten_in(c, 3), 4);
  ttpu_dtype out = aten_dtype_or(c, 6, TTPU_BF16);
  if (aten_has(c, 5) && (out == TTPU_F8E4M3FN || out == TTPU_F8E5M2)) {
    ir_value scale = ir_reshape(c->b, aten_in(c, 5), 0, NULL);
    r = nn_mul(c, r, ir_divide(c->b, ir_scalar_i64(c->b, TTPU_F32, 1), scale));
  }
  aten_out(c, 0, r);
}

/* self, mat2, scale_a[], recipe_a, swizzle_a, scale_b[], recipe_b, swizzle_b, bias?, out_dtype?, .. */
void lower_scaled_mm_v2(aten_lowering *c) {
  if (aten_meta(c, 0)->sizes[1] == 0) { /* a sum of nothing, without its bias */
    aten_out(c, 0, nn_zeros_out(c, 0, TTPU_F32));
    return;
  }
  aten_out(c, 0, scaled_product(c, aten_list_in(c, 2, 0), aten_list_in(c, 5, 0), 8));
}
