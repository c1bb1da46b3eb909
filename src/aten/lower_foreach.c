/* Optimizers over lists of parameters, and what mixed precision asks of lists. The results of an operator that writes
 * several lists are those lists, one after the other (aten.h). The pointwise foreach operators are made in
 * lower_pointwise.c, beside the plain ones.
 *
 * The step's bias corrections are scalars in f64, as on CPU: 1 - beta2^step in f32 has lost four digits at step 1. */
#include "aten/aten_int.h"

/* A list that an optimizer reads, element i in the dtype to compute in. */
static ir_value item(aten_lowering *c, uint32_t arg, uint32_t i) {
  ttpu_dtype t = aten_math_dtype((ttpu_dtype)aten_list_meta(c, arg, i)->dtype);
  return aten_convert(c, aten_list_in(c, arg, i), t);
}

static ir_value add(aten_lowering *c, ir_value x, ir_value y) { return ir_add(c->b, x, y); }
static ir_value sub(aten_lowering *c, ir_value x, ir_value y) { return ir_subtract(c->b, x, y); }
static ir_value mul(aten_lowering *c, ir_value x, ir_value y) { return ir_multiply(c->b, x, y); }
static ir_value over(aten_lowering *c, ir_value x, ir_value y) { return ir_divide(c->b, x, y); }
static ir_value one_minus(aten_lowering *c, ir_value x) { return sub(c, aten_like(c, x, 1), x); }
/* A rank-0 value in like's dtype and sizes. */
static ir_value spread(aten_lowering *c, ir_value scalar, ir_value like) {
  return aten_spread(c, aten_convert(c, scalar, aten_type(c, like).dtype), like);
}
/* A learning rate: a float, or a tensor of one element. */
static ir_value rate(aten_lowering *c, uint32_t arg) {
  if (aten_number_of(c, arg)) return aten_number_in(c, arg, TTPU_F64);
  return ir_reshape(c->b, aten_in_as(c, arg, TTPU_F64), 0, NULL);
}
static ir_value scalar(aten_lowering *c, uint32_t arg) { return aten_number_in(c, arg, TTPU_F64); }
static ir_value first_element(aten_lowering *c, uint32_t arg, ttpu_dtype t) {
  return ir_reshape(c->b, aten_in_as(c, arg, t), 0, NULL);
}

/* What the fused optimizers have in common: scaled gradients, a flag that calls the step off, ascent. */
typedef struct step {
  aten_lowering *c;
  uint32_t count;      /* parameters */
  ir_value scale;      /* rank 0, 0: none */
  ir_value called_off; /* rank 0 bool, 0: never */
  bool maximize;
} step;

static step step_begin(aten_lowering *c, uint32_t maximize, uint32_t grad_scale, uint32_t found_inf) {
  step s = {.c = c, .count = aten_list_count(c, 0), .maximize = aten_int(c, maximize) != 0};
  if (aten_has(c, grad_scale)) s.scale = first_element(c, grad_scale, TTPU_F32);
  if (aten_has(c, found_inf)) {
    ir_value found = first_element(c, found_inf, TTPU_F32);
    s.called_off = ir_compare(c->b, IR_EQ, found, aten_like(c, found, 1));
  }
  return s;
}

/* Gradient i, unscaled; *ascent is what the step goes against: negated to maximize. */
static ir_value step_gradient(step *s, uint32_t i, ir_value *ascent) {
  aten_lowering *c = s->c;
  ir_value grad = item(c, 1, i);
  if (s->scale) grad = over(c, grad, spread(c, s->scale, grad));
  *ascent = s->maximize ? ir_negate(c->b, grad) : grad;
  return grad;
}

/* Result list `list`, element i: the new value, or what was there if the step is called off. */
static void step_result(step *s, uint32_t list, uint32_t arg, uint32_t i, ir_value v) {
  aten_lowering *c = s->c;
  uint32_t out = list * s->count + i;
  if (out >= c->out_count) return;
  v = aten_convert(c, v, (ttpu_dtype)c->outs[out].dtype);
  if (s->called_off) {
    ir_value old = aten_convert(c, aten_list_in(c, arg, i), (ttpu_dtype)c->outs[out].dtype);
    v = ir_select(c->b, s->called_off, old, v);
  }
  aten_out(c, out, v);
}

/* The gradients are results too: unscaled where there is a scale, else as they came. */
static void step_gradient_result(step *s, uint32_t i, ir_value grad) {
  if (s->scale) step_result(s, 1, 1, i, grad);
  else aten_out(s->c, s->count + i, aten_list_in(s->c, 1, i));
}

/* ---- Adam ---------------------------------------------------------------------------------------- */

/* self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad,
 * maximize, grad_scale, found_inf. Written: the first five lists. Decoupled weight decay is AdamW's. */
static void adam(aten_lowering *c, bool decoupled) {
  ir_builder *b = c->b;
  step s = step_begin(c, 12, 13, 14);
  bool amsgrad = aten_int(c, 11) != 0;
  ir_value lr = rate(c, 6), beta1 = scalar(c, 7), beta2 = scalar(c, 8), decay = scalar(c, 9), eps = scalar(c, 10);
  for (uint32_t i = 0; i < s.count; ++i) {
    ir_value param = item(c, 0, i), ascent, grad = step_gradient(&s, i, &ascent);
    ascent = aten_convert(c, ascent, aten_type(c, param).dtype);
    ir_value count = aten_convert(c, ir_reshape(b, aten_list_in(c, 5, i), 0, NULL), TTPU_F64);
    ir_value correction1 = one_minus(c, ir_power(b, beta1, count));
    ir_value correction2 = ir_sqrt(b, one_minus(c, ir_power(b, beta2, count)));

    if (decoupled) param = mul(c, param, spread(c, one_minus(c, mul(c, lr, decay)), param));
    else ascent = add(c, ascent, mul(c, param, spread(c, decay, param)));
    ir_value mean = item(c, 2, i), square = item(c, 3, i);
    ir_value to_mean = aten_convert(c, ascent, aten_type(c, mean).dtype);
    mean = add(c, mean, mul(c, sub(c, to_mean, mean), spread(c, one_minus(c, beta1), mean)));
    ir_value to_square = aten_convert(c, ascent, aten_type(c, square).dtype);
    square = add(c, mul(c, square, spread(c, beta2, square)),
                 mul(c, mul(c, to_square, to_square), spread(c, one_minus(c, beta2), square)));
    ir_value largest = amsgrad ? ir_maximum(b, item(c, 4, i), square) : square;

    ir_value root = aten_convert(c, ir_sqrt(b, largest), aten_type(c, param).dtype);
    ir_value below = add(c, over(c, root, spread(c, correction2, root)), spread(c, eps, root));
    ir_value size = spread(c, over(c, lr, correction1), param);
    ir_value way = over(c, aten_convert(c, mean, aten_type(c, param).dtype), below);
    step_result(&s, 0, 0, i, sub(c, param, mul(c, size, way)));
    step_gradient_result(&s, i, grad);
    step_result(&s, 2, 2, i, mean);
    step_result(&s, 3, 3, i, square);
    if (amsgrad) step_result(&s, 4, 4, i, largest);
  }
  if (!amsgrad) /* the list of maxima may be there all the same */
    for (uint32_t i = 0; 4 * s.count + i < c->out_count; ++i) aten_out(c, 4 * s.count + i, aten_list_in(c, 4, i));
}
void lower_fused_adam(aten_lowering *c) { adam(c, false); }
void lower_fused_adamw(aten_lowering *c) { adam(c, true); }

/* ---- SGD and Adagrad ----------------------------------------------------------------------------- */

/* self, grads, momentum_buffers (none: no momentum), weight_decay, momentum, lr, dampening, nesterov, maximize,
 * is_first_step, grad_scale, found_inf. Written: the three lists. */
void lower_fused_sgd(aten_lowering *c) {
  step s = step_begin(c, 8, 10, 11);
  bool has_momentum = aten_list_count(c, 2) > 0, nesterov = aten_int(c, 7) != 0, first = aten_int(c, 9) != 0;
  ir_value decay = scalar(c, 3), momentum = scalar(c, 4), lr = rate(c, 5), dampening = scalar(c, 6);
  for (uint32_t i = 0; i < s.count; ++i) {
    ir_value param = item(c, 0, i), ascent, grad = step_gradient(&s, i, &ascent);
    ascent = aten_convert(c, ascent, aten_type(c, param).dtype);
    ascent = add(c, ascent, mul(c, param, spread(c, decay, param)));
    if (has_momentum) {
      ir_value buffer = ascent;
      if (!first) {
        ir_value old = aten_convert(c, item(c, 2, i), aten_type(c, param).dtype);
        buffer =
            add(c, mul(c, old, spread(c, momentum, old)), mul(c, ascent, spread(c, one_minus(c, dampening), ascent)));
      }
      ascent = nesterov ? add(c, ascent, mul(c, buffer, spread(c, momentum, buffer))) : buffer;
      step_result(&s, 2, 2, i, buffer);
    }
    step_result(&s, 0, 0, i, sub(c, param, mul(c, ascent, spread(c, lr, param))));
    step_gradient_result(&s, i, grad);
  }
}

/* self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf. Written: the
 * first three lists; the schema says the steps too, which stay as they are. */
void lower_fused_adagrad(aten_lowering *c) {
  ir_builder *b = c->b;
  step s = step_begin(c, 8, 9, 10);
  ir_value lr = rate(c, 4), lr_decay = scalar(c, 5), decay = scalar(c, 6), eps = scalar(c, 7);
  for (uint32_t i = 0; i < s.count; ++i) {
    ir_value param = item(c, 0, i), ascent, grad = step_gradient(&s, i, &ascent);
    ascent = aten_convert(c, ascent, aten_type(c, param).dtype);
    ascent = add(c, ascent, mul(c, param, spread(c, decay, param)));
    ir_value count = aten_convert(c, ir_reshape(b, aten_list_in(c, 3, i), 0, NULL), TTPU_F64);
    ir_value done = sub(c, count, aten_like(c, count, 1));
    ir_value slower = over(c, lr, add(c, aten_like(c, done, 1), mul(c, done, lr_decay)));
    ir_value sum = aten_convert(c, item(c, 2, i), aten_type(c, param).dtype);
    sum = add(c, sum, mul(c, ascent, ascent));
    ir_value root = ir_sqrt(b, sum), way = over(c, ascent, add(c, root, spread(c, eps, root)));
    step_result(&s, 0, 0, i, sub(c, param, mul(c, way, spread(c, slower, param))));
    step_gradient_result(&s, i, grad);
    step_result(&s, 2, 2, i, sum);
    if (3 * s.count + i < c->out_count) aten_out(c, 3 * s.count + i, aten_list_in(c, 3, i));
  }
}

/* ---- mixed precision ----------------------------------------------------------------------------- */

/* self (a list), found_inf, inv_scale: scales the list, and sets found_inf to 1 if any element was no finite number. */
void lower_amp_unscale(aten_lowering *c) {
  ir_builder *b = c->b;
  uint32_t count = aten_list_count(c, 0);
  ir_value found = aten_in(c, 1), scale = first_element(c, 2, TTPU_F32);
  ir_value bad = ir_fill_i64(b, TTPU_BOOL, 0, NULL, 0);
  for (uint32_t i = 0; i < count; ++i) {
    ir_value x = item(c, 0, i);
    int64_t dims[TTPU_MAX_RANK];
    uint32_t rank = aten_type(c, x).rank;
    for (uint32_t d = 0; d < rank; ++d) dims[d] = d;
    ir_value wrong = ir_not_bits(b, ir_is_finite(b, x));
    bad = ir_or_bits(b, bad, aten_reduce(c, IR_OR, wrong, rank, dims, false));
    aten_out(c, i, mul(c, x, spread(c, scale, x)));
  }
  aten_out(c, count, ir_select(b, aten_spread(c, bad, found), aten_like(c, found, 1), found));
}

/* scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval: backs off after an overflow,
 * grows after an interval of steps without one, but not past the largest finite number. */
void lower_amp_update_scale(aten_lowering *c) {
  ir_builder *b = c->b;
  ir_value scale = aten_in(c, 0), tracker = aten_in(c, 1);
  ir_value found = spread(c, first_element(c, 2, TTPU_F32), scale);
  ir_value overflow = ir_compare(b, IR_GT, found, aten_like(c, found, 0));
  ttpu_dtype t = (ttpu_dtype)aten_type(c, scale).dtype;
  ir_value grown = mul(c, scale, aten_spread(c, aten_number_in(c, 3, t), scale));
  ir_value reduced = mul(c, scale, aten_spread(c, aten_number_in(c, 4, t), scale));
  ir_value good = ir_add(b, tracker, aten_like_i64(c, tracker, 1));
  ir_value due = ir_compare(b, IR_EQ, good, aten_like_i64(c, good, aten_int(c, 5)));
  ir_value steady = ir_select(b, ir_and_bits(b, due, ir_is_finite(b, grown)), grown, scale);
  ir_value restarts = ir_or_bits(b, overflow, due);
  aten_out(c, 0, ir_select(b, overflow, reduced, steady));
  aten_out(c, 1, ir_select(b, restarts, aten_like_i64(c, tracker, 0), good));
}
