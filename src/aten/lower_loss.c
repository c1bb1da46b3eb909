/* Losses and their gradients. `reduction` is 0 none, 1 mean, 2 sum, and static. */
#include "aten/nn_int.h"

/* Arguments x and y broadcast against each other, in one math dtype. */
static void pair_in(aten_lowering *c, uint32_t a, uint32_t b, ir_value *x, ir_value *y) {
  ttpu_dtype t = aten_math_dtype(aten_promote((ttpu_dtype)aten_meta(c, a)->dtype, (ttpu_dtype)aten_meta(c, b)->dtype));
  *x = nn_in_as(c, a, t);
  *y = nn_in_as(c, b, t);
}

/* 1 / count for a mean, else 1. */
static double mean_factor(int64_t reduction, int64_t count) {
  return reduction == NN_REDUCTION_MEAN ? 1.0 / (double)(count ? count : 1) : 1.0;
}

static int64_t numel_of(const aten_tensor *t) { return base_numel(t->rank, t->sizes); }

/* ---- pointwise losses ------------------------------------------------------------------------------- */

void lower_mse_loss(aten_lowering *c) { /* self, target, reduction */
  ir_value x, y;
  pair_in(c, 0, 1, &x, &y);
  ir_value d = nn_sub(c, x, y);
  aten_out(c, 0, nn_reduce_loss(c, ir_multiply(c->b, d, d), aten_int(c, 2)));
}

void lower_mse_loss_backward(aten_lowering *c) { /* grad, self, target, reduction */
  ir_value x, y, g = nn_in(c, 0);
  pair_in(c, 1, 2, &x, &y);
  ir_value d = nn_sub(c, x, y);
  aten_out(c, 0, nn_mul(c, nn_mul_f64(c, d, 2 * mean_factor(aten_int(c, 3), numel_of(aten_meta(c, 1)))), g));
}

void lower_smooth_l1_loss(aten_lowering *c) { /* self, target, reduction, beta */
  ir_value x, y;
  pair_in(c, 0, 1, &x, &y);
  ir_value z = ir_abs(c->b, nn_sub(c, x, y)), beta = nn_number(c, 3, z);
  ir_value near = ir_divide(c->b, ir_multiply(c->b, nn_mul_f64(c, z, 0.5), z), beta);
  ir_value far = ir_subtract(c->b, z, nn_mul_f64(c, beta, 0.5));
  aten_out(c, 0, nn_reduce_loss(c, ir_select(c->b, ir_compare(c->b, IR_LT, z, beta), near, far), aten_int(c, 2)));
}

/* Below -limit: low, at or above limit: high, else middle; NaN is in the middle. */
static ir_value three_ways(aten_lowering *c, ir_value d, ir_value limit, ir_value low, ir_value middle, ir_value high) {
  ir_value r = ir_select(c->b, ir_compare(c->b, IR_GE, d, limit), high, middle);
  return ir_select(c->b, ir_compare(c->b, IR_LE, d, ir_negate(c->b, limit)), low, r);
}

void lower_smooth_l1_loss_backward(aten_lowering *c) { /* grad, self, target, reduction, beta */
  ir_value x, y, g = nn_in(c, 0);
  pair_in(c, 1, 2, &x, &y);
  ir_value d = nn_sub(c, x, y), beta = nn_number(c, 4, d);
  double norm = mean_factor(aten_int(c, 3), numel_of(aten_meta(c, 1)));
  ir_value slope = three_ways(c, d, beta, nn_const(c, d, -1), ir_divide(c->b, d, beta), nn_const(c, d, 1));
  aten_out(c, 0, nn_mul(c, nn_mul_f64(c, slope, norm), g));
}

void lower_huber_loss(aten_lowering *c) { /* self, target, reduction, delta */
  ir_value x, y;
  pair_in(c, 0, 1, &x, &y);
  ir_value z = ir_abs(c->b, nn_sub(c, x, y)), delta = nn_number(c, 3, z);
  ir_value near = ir_multiply(c->b, nn_mul_f64(c, z, 0.5), z);
  ir_value far = ir_multiply(c->b, delta, ir_subtract(c->b, z, nn_mul_f64(c, delta, 0.5)));
  aten_out(c, 0, nn_reduce_loss(c, ir_select(c->b, ir_compare(c->b, IR_LE, z, delta), near, far), aten_int(c, 2)));
}

void lower_huber_loss_backward(aten_lowering *c) { /* grad, self, target, reduction, delta */
  ir_value x, y, g = nn_in(c, 0);
  pair_in(c, 1, 2, &x, &y);
  ir_value d = nn_sub(c, x, y), delta = nn_number(c, 4, d);
  double norm = mean_factor(aten_int(c, 3), numel_of(aten_meta(c, 1)));
  ir_value slope = three_ways(c, d, delta, ir_negate(c->b, delta), d, delta);
  aten_out(c, 0, nn_mul(c, nn_mul_f64(c, slope, norm), g));
}

/* Fails the execution unless every element of x lies in [0, 1]. */
static ir_value check_probability(aten_lowering *c, ir_value x) {
  ir_value inside = ir_and_bits(c->b, nn_compare_f64(c, IR_GE, x, 0), nn_compare_f64(c, IR_LE, x, 1));
  ir_check_not(c->b, ir_not_bits(c->b, inside), IR_BAD_VALUE, "all elements of input should be between 0 and 1");
  return x;
}

void lower_binary_cross_entropy(aten_lowering *c) { /* self, target, weight?, reduction */
  ir_value x, y;
  pair_in(c, 0, 1, &x, &y);
  check_probability(c, x);
  ir_value low = nn_const(c, x, -100); /* log's clamp, PyTorch's */
  ir_value log_x = ir_maximum(c->b, ir_log(c->b, x), low);
  ir_value log_rest = ir_maximum(c->b, ir_log_plus_one(c->b, ir_negate(c->b, x)), low);
  ir_value loss = ir_subtract(c->b, ir_multiply(c->b, nn_add_f64(c, y, -1), log_rest), ir_multiply(c->b, y, log_x));
  if (aten_has(c, 2)) loss = nn_mul(c, loss, nn_in_as(c, 2, (ttpu_dtype)nn_type(c, loss).dtype));
  aten_out(c, 0, nn_reduce_loss(c, loss, aten_int(c, 3)));
}

void lower_binary_cross_entropy_backward(aten_lowering *c) { /* grad, self, target, weight?, reduction */
  ir_value x, y, g = nn_in(c, 0);
  pair_in(c, 1, 2, &x, &y);
  ir_value spread = ir_multiply(c->b, ir_subtract(c->b, nn_const(c, x, 1), x), x);
  spread = ir_maximum(c->b, spread, nn_const(c, x, 1e-12)); /* EPSILON of PyTorch's kernel */
  ir_value r = ir_divide(c->b, nn_mul(c, ir_subtract(c->b, x, y), g), spread);
  if (aten_has(c, 3)) r = nn_mul(c, r, nn_in_as(c, 3, (ttpu_dtype)nn_type(c, r).dtype));
  if (aten_int(c, 4) == NN_REDUCTION_MEAN) r = ir_divide(c->b, r, nn_const(c, r, (double)ir_numel(nn_type(c, r))));
  aten_out(c, 0, r);
}

void lower_binary_cross_entropy_with_logits(aten_lowering *c) { /* self, target, weight?, pos_weight?, reduction */
  ir_value x, y;
  pair_in(c, 0, 1, &x, &y);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value zero = nn_const(c, x, 0);
  /* log(1 + exp(-x)) without overflow: max(-x, 0) + log1p(exp(-|x|)) */
  ir_value log1p = ir_log_plus_one(c->b, ir_exponential(c->b, ir_negate(c->b, ir_abs(c->b, x))));
  ir_value soft = ir_add(c->b, log1p, ir_maximum(c->b, ir_negate(c->b, x), zero));
  if (aten_has(c, 3)) {
    ir_value weight = nn_add_f64(c, nn_mul(c, y, nn_add_f64(c, nn_in_as(c, 3, t), -1)), 1);
    soft = nn_mul(c, soft, weight);
  }
  ir_value loss = nn_add(c, nn_mul(c, nn_sub(c, nn_const(c, y, 1), y), x), soft);
  if (aten_has(c, 2)) loss = nn_mul(c, loss, nn_in_as(c, 2, t));
  aten_out(c, 0, nn_reduce_loss(c, loss, aten_int(c, 4)));
}

/* ---- negative log likelihood ------------------------------------------------------------------------- */

/* self as [N, C, S], target as [N, 1, S]: S is 1 for class vectors, the pixels for nll_loss2d. */
typedef struct likelihood {
  int64_t n, classes, area;
  ttpu_dtype math;
  ir_value target;  /* i64, checked, 0 where ignored */
  ir_value counted; /* bool: not ignored */
  ir_value weight;  /* [N, 1, S]: the target class's, 0 where ignored */
} likelihood;

static likelihood likelihood_of(aten_lowering *c, uint32_t self, uint32_t target, uint32_t weight,
                                uint32_t ignore_index) {
  const aten_tensor *x = aten_meta(c, self);
  likelihood l = {.n = x->rank > 1 ? x->sizes[0] : 1, .area = 1, .math = aten_math_dtype((ttpu_dtype)x->dtype)};
  l.classes = x->rank > 1 ? x->sizes[1] : x->rank == 1 ? x->sizes[0] : 1;
  for (uint32_t i = 2; i < x->rank; ++i) l.area *= x->sizes[i];
  ir_value t = nn_reshape3(c, nn_in_as(c, target, TTPU_I64), l.n, 1, l.area);
  l.counted = nn_compare_f64(c, IR_NE, t, (double)aten_int(c, ignore_index));
  l.target = nn_index(c, ir_select(c->b, l.counted, t, nn_const(c, t, 0)), l.classes > 0 ? l.classes : 1, false,
                      IR_BAD_INDEX, "Target is out of bounds");
  ir_value one = ir_fill_f64(c->b, l.math, 3, (int64_t[]){l.n, 1, l.area}, 1);
  if (aten_has(c, weight)) one = nn_take(c, nn_in_as(c, weight, l.math), l.target, 0);
  l.weight = ir_select(c->b, l.counted, one, nn_const(c, one, 0));
  return l;
}

static ir_value sum_all(aten_lowering *c, ir_value x) { return nn_reduce_dim(c, IR_ADD, nn_flatten(c, x), 0, false); }

void lower_nll_loss_forward(aten_lowering *c) { /* self, target, weight?, reduction, ignore_index; 2-d as well */
  likelihood l = likelihood_of(c, 0, 1, 2, 4);
  ir_value x = nn_reshape3(c, nn_in(c, 0), l.n, l.classes, l.area);
  ir_value picked = nn_take_along(c, x, l.target, 1);
  ir_value loss = ir_multiply(c->b, ir_negate(c->b, picked), l.weight);
  loss = ir_select(c->b, l.counted, loss, nn_const(c, loss, 0)); /* an ignored infinity counts nothing */
  int64_t reduction = aten_int(c, 3);
  if (reduction == NN_REDUCTION_NONE) {
    aten_out(c, 0, ir_reshape(c->b, loss, c->outs[0].rank, c->outs[0].sizes));
    /* PyTorch fills the total for a single sample only. */
    aten_out(c, 1, aten_meta(c, 0)->rank == 1 ? sum_all(c, l.weight) : nn_zeros_out(c, 1, l.math));
    return;
  }
  ir_value total = sum_all(c, l.weight), sum = sum_all(c, loss);
  aten_out(c, 0, reduction == NN_REDUCTION_MEAN ? ir_divide(c->b, sum, total) : sum);
  aten_out(c, 1, total);
}

/* grad, self, target, weight?, reduction, ignore_index, total_weight. One-hot by comparison, no scatter: it fuses. */
void lower_nll_loss_backward(aten_lowering *c) {
  likelihood l = likelihood_of(c, 1, 2, 3, 5);
  int64_t reduction = aten_int(c, 4), dims[3] = {l.n, l.classes, l.area};
  ir_value g = nn_in_as(c, 0, l.math);
  if (reduction == NN_REDUCTION_NONE) {
    g = nn_reshape3(c, g, l.n, 1, l.area);
  } else {
    g = ir_reshape(c->b, g, 0, NULL);
    if (reduction == NN_REDUCTION_MEAN) g = ir_divide(c->b, g, ir_reshape(c->b, nn_in_as(c, 6, l.math), 0, NULL));
  }
  ir_value each = nn_mul(c, ir_negate(c->b, l.weight), g);
  ir_value hit = nn_compare(c, IR_EQ, ir_iota(c->b, TTPU_I64, 3, dims, 1), l.target);
  hit = nn_binary(c, IR_AND, hit, l.counted);
  ir_value r = nn_select(c, hit, each, nn_const(c, each, 0));
  aten_out(c, 0, ir_reshape(c->b, r, c->outs[0].rank, c->outs[0].sizes));
}

/* ---- margins ------------------------------------------------------------------------------------------ */

/* self as [N, C], target as [N, 1], both from arguments. */
typedef struct margin {
  int64_t n, classes;
  ir_value x, target, hit, hinge, weight; /* hit: one-hot [N, C]; hinge: margin - x[target] + x */
} margin;

static margin margin_of(aten_lowering *c, uint32_t self) { /* self, target, p, margin, weight? */
  const aten_tensor *meta = aten_meta(c, self);
  margin m = {.n = meta->rank > 1 ? meta->sizes[0] : 1};
  m.classes = meta->rank > 0 ? meta->sizes[meta->rank - 1] : 1;
  m.x = nn_reshape2(c, nn_in(c, self), m.n, m.classes);
  m.target = nn_index(c, nn_reshape2(c, aten_in(c, self + 1), m.n, 1), m.classes, false, IR_BAD_VALUE,
                      "multi_margin_loss: target out of range");
  m.hit = nn_compare(c, IR_EQ, ir_iota(c->b, TTPU_I64, 2, (int64_t[]){m.n, m.classes}, 1), m.target);
  ir_value picked = nn_take_along(c, m.x, m.target, 1);
  m.hinge = nn_add(c, nn_sub(c, nn_number(c, self + 3, picked), picked), m.x);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, m.x).dtype;
  m.weight = aten_has(c, self + 4) ? nn_take(c, nn_in_as(c, self + 4, t), m.target, 0) : nn_const(c, picked, 1);
  return m;
}

void lower_multi_margin_loss(aten_lowering *c) { /* self, target, p, margin, weight?, reduction */
  margin m = margin_of(c, 0);
  ir_value z = aten_static(c, 2) == 2 ? ir_multiply(c->b, m.hinge, m.hinge) : m.hinge, zero = nn_const(c, z, 0);
  z = nn_mul(c, z, m.weight);
  ir_value counts = ir_and_bits(c->b, nn_compare_f64(c, IR_GT, m.hinge, 0), ir_not_bits(c->b, m.hit));
  ir_value sum = nn_reduce_dim(c, IR_ADD, ir_select(c->b, counts, z, zero), 1, false);
  ir_value loss = ir_divide(c->b, sum, nn_const(c, sum, (double)m.classes));
  int64_t reduction = aten_int(c, 5);
  if (reduction == NN_REDUCTION_NONE) loss = ir_reshape(c->b, loss, c->outs[0].rank, c->outs[0].sizes);
  aten_out(c, 0, nn_reduce_loss(c, loss, reduction));
}

void lower_multi_margin_loss_backward(aten_lowering *c) { /* grad, self, target, p, margin, weight?, reduction */
  margin m = margin_of(c, 1);
  int64_t reduction = aten_int(c, 6);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, m.x).dtype;
  ir_value g = nn_in_as(c, 0, t);
  g = reduction == NN_REDUCTION_NONE ? nn_reshape2(c, g, m.n, 1) : ir_reshape(c->b, g, 0, NULL);
  double scale = mean_factor(reduction, m.n) / (double)(m.classes ? m.classes : 1);
  ir_value slope = aten_static(c, 3) == 2 ? nn_mul_f64(c, m.hinge, 2 * scale) : nn_const(c, m.hinge, scale);
  slope = nn_mul(c, slope, m.weight);
  ir_value zero = nn_const(c, slope, 0);
  ir_value counts = ir_and_bits(c->b, nn_compare_f64(c, IR_GT, m.hinge, 0), ir_not_bits(c->b, m.hit));
  slope = ir_select(c->b, counts, slope, zero);
  ir_value target = ir_negate(c->b, nn_reduce_dim(c, IR_ADD, slope, 1, true));
  ir_value r = nn_mul(c, nn_select(c, m.hit, target, slope), g);
  aten_out(c, 0, ir_reshape(c->b, r, c->outs[0].rank, c->outs[0].sizes));
}

/* How often each class is named in target's row before its first -1: i32 [N, C]. */
static ir_value times_named(aten_lowering *c, ir_value target, int64_t n, int64_t classes) {
  ir_value ended = ir_convert(c->b, nn_compare_f64(c, IR_LT, target, 0), TTPU_I32);
  ir_value live = nn_compare_f64(c, IR_EQ, nn_cumsum(c, ended, 1), 0);
  int64_t dims[3] = {n, classes, classes};
  ir_value each = ir_broadcast_in_dim(c->b, target, 3, dims, (int64_t[]){0, 1});
  ir_value names = ir_compare(c->b, IR_EQ, ir_iota(c->b, TTPU_I64, 3, dims, 2), each);
  names = ir_and_bits(c->b, names, ir_broadcast_in_dim(c->b, live, 3, dims, (int64_t[]){0, 1}));
  return nn_reduce_dim(c, IR_ADD, ir_convert(c->b, names, TTPU_I32), 1, false);
}

/* [N, C, C] of pairs (target class, other class): whether they count. */
static ir_value pairs_that_count(aten_lowering *c, ir_value hit, ir_value hinge, const int64_t dims[3]) {
  ir_value t = ir_broadcast_in_dim(c->b, hit, 3, dims, (int64_t[]){0, 1});
  ir_value o = ir_broadcast_in_dim(c->b, ir_not_bits(c->b, hit), 3, dims, (int64_t[]){0, 2});
  return ir_and_bits(c->b, ir_and_bits(c->b, t, o), nn_compare_f64(c, IR_GT, hinge, 0));
}

/* 1 - x[target class] + x[other class] over all pairs. */
static ir_value pair_hinge(aten_lowering *c, ir_value x, const int64_t dims[3]) {
  ir_value t = ir_broadcast_in_dim(c->b, x, 3, dims, (int64_t[]){0, 1});
  ir_value o = ir_broadcast_in_dim(c->b, x, 3, dims, (int64_t[]){0, 2});
  return ir_add(c->b, ir_subtract(c->b, nn_const(c, t, 1), t), o);
}

void lower_multilabel_margin_loss_forward(aten_lowering *c) { /* self, target, reduction; results: loss, is_target */
  const aten_tensor *meta = aten_meta(c, 0);
  int64_t n = meta->rank > 1 ? meta->sizes[0] : 1, classes = meta->rank > 0 ? meta->sizes[meta->rank - 1] : 1;
  int64_t dims[3] = {n, classes, classes}, reduction = aten_int(c, 2);
  ir_value x = nn_reshape2(c, nn_in(c, 0), n, classes), target = nn_reshape2(c, nn_in_as(c, 1, TTPU_I64), n, classes);
  ir_check_index(c->b, target, -1, classes, IR_BAD_VALUE, "multilabel_margin_loss: target out of range");
  ir_value times = times_named(c, target, n, classes), hit = nn_compare_f64(c, IR_GT, times, 0);
  ir_value hinge = pair_hinge(c, x, dims);
  ir_value z = ir_select(c->b, pairs_that_count(c, hit, hinge, dims), hinge, nn_const(c, hinge, 0));
  ir_value weight = ir_convert(c->b, times, (ttpu_dtype)nn_type(c, z).dtype); /* a class named twice counts twice */
  z = ir_multiply(c->b, z, ir_broadcast_in_dim(c->b, weight, 3, dims, (int64_t[]){0, 1}));
  ir_value sum = nn_reduce(c, IR_ADD, z, 2, (int64_t[]){1, 2}, false);
  ir_value loss = ir_divide(c->b, sum, nn_const(c, sum, (double)classes));
  if (reduction == NN_REDUCTION_NONE) loss = ir_reshape(c->b, loss, c->outs[0].rank, c->outs[0].sizes);
  aten_out(c, 0, nn_reduce_loss(c, loss, reduction));
  hit = ir_convert(c->b, hit, (ttpu_dtype)c->outs[1].dtype);
  aten_out(c, 1, ir_reshape(c->b, hit, c->outs[1].rank, c->outs[1].sizes));
}

void lower_multilabel_margin_loss_backward(aten_lowering *c) { /* grad, self, target, reduction, .. */
  const aten_tensor *meta = aten_meta(c, 1);
  int64_t n = meta->rank > 1 ? meta->sizes[0] : 1, classes = meta->rank > 0 ? meta->sizes[meta->rank - 1] : 1;
  int64_t dims[3] = {n, classes, classes}, reduction = aten_int(c, 3);
  ir_value x = nn_reshape2(c, nn_in(c, 1), n, classes);
  ttpu_dtype t = (ttpu_dtype)nn_type(c, x).dtype;
  ir_value times = times_named(c, nn_reshape2(c, nn_in_as(c, 2, TTPU_I64), n, classes), n, classes);
  ir_value hit = nn_compare_f64(c, IR_GT, times, 0), hinge = pair_hinge(c, x, dims);
  ir_value counts = ir_convert(c->b, pairs_that_count(c, hit, hinge, dims), t);
  ir_value weight = ir_convert(c->b, times, t);
  counts = ir_multiply(c->b, counts, ir_broadcast_in_dim(c->b, weight, 3, dims, (int64_t[]){0, 1}));
  ir_value slope =
      ir_subtract(c->b, nn_reduce_dim(c, IR_ADD, counts, 1, false), nn_reduce_dim(c, IR_ADD, counts, 2, false));
  ir_value g = nn_in_as(c, 0, t);
  g = reduction == NN_REDUCTION_NONE ? nn_reshape2(c, g, n, 1) : ir_reshape(c->b, g, 0, NULL);
  slope = nn_mul_f64(c, slope, mean_factor(reduction, n) / (double)(classes ? classes : 1));
  aten_out(c, 0, ir_reshape(c->b, nn_mul(c, slope, g), c->outs[0].rank, c->outs[0].sizes));
}
