/* Connectionist temporal classification (Graves et al. 2006): the negative logarithm of the sum over all paths through
 * the states blank, label, blank, label, .., blank that spell a target, and its gradient. The sums are `path_scan`s:
 * alpha forwards over time, beta backwards, which is forwards over reversed times and states.
 *
 * The lengths are data: a batch of other lengths is the same program unless its longest target differs. */
#include "aten/nn_int.h"

#include <math.h>

typedef struct ctc {
  aten_lowering *c;
  int64_t steps, batch, labels, states; /* T, N, C and S = 2 * the longest target + 1 */
  ttpu_dtype math;
  ir_value log_probs; /* [T, N, C] */
  ir_value inputs;    /* [N]: how many of the steps count */
  ir_value last;      /* [N]: the last state, twice the target's length */
  ir_value target;    /* [N, S]: each state's label */
} ctc;

/* A vector [N] along dimension 1 of [T, N, S], or along dimension 0 of [N, S]. */
static ir_value along_batch(const ctc *k, ir_value vector, ir_value like) {
  return nn_along(k->c, vector, nn_type(k->c, like).rank == 3 ? 1 : 0, like);
}

static ir_value minus_infinity(const ctc *k, ir_value like) { return nn_const(k->c, like, -INFINITY); }

/* The labels of each target [N, (S - 1) / 2], with blanks beyond its end, from rows or from one after the other. */
static ir_value labels_in(const ctc *k, uint32_t arg, ir_value lengths, int64_t blank) {
  aten_lowering *c = k->c;
  const int64_t dims[2] = {k->batch, (k->states - 1) / 2};
  ir_value place = ir_iota(c->b, TTPU_I64, 2, dims, 1), labels = nn_in_as(c, arg, TTPU_I64);
  ir_value valid = ir_compare(c->b, IR_LT, place, along_batch(k, lengths, place));
  if (aten_meta(c, arg)->rank == 1) {
    ir_value start = ir_subtract(c->b, nn_cumsum(c, lengths, 0), lengths);
    place = ir_add(c->b, place, along_batch(k, start, place));
    labels = nn_take(c, labels, ir_select(c->b, valid, place, nn_const(c, place, 0)), 0);
  } else {
    labels = ir_slice_dim(c->b, labels, 1, 0, dims[1], 1);
  }
  labels = ir_select(c->b, valid, labels, nn_const(c, labels, (double)blank));
  return nn_index(c, labels, k->labels, false, IR_BAD_VALUE, "ctc_loss: a target outside the labels");
}

/* From the arguments log_probs, targets, input_lengths, target_lengths at `first`. */
static ctc ctc_in(aten_lowering *c, uint32_t first, int64_t states, int64_t blank) {
  const aten_tensor *probs = aten_meta(c, first);
  ctc k = {.c = c,
           .steps = probs->sizes[0],
           .batch = probs->sizes[1],
           .labels = probs->sizes[2],
           .states = states,
           .math = aten_math_dtype((ttpu_dtype)probs->dtype)};
  k.log_probs = nn_in(c, first);
  k.inputs = aten_vector_in(c, first + 2);
  ir_value lengths = aten_vector_in(c, first + 3), fill = ir_scalar_i64(c->b, TTPU_I64, blank);
  k.last = ir_add(c->b, lengths, lengths);
  if (states > 1) k.target = nn_pad_dim(c, labels_in(&k, first + 1, lengths, blank), 1, fill, 1, 1, 1);
  else k.target = ir_broadcast_to(c->b, fill, 2, (int64_t[]){k.batch, 1});
  return k;
}

/* What each state emits: [T, N, S]. */
static ir_value emissions(const ctc *k) {
  const int64_t batch = 1, labels = 2, rows = 0, slice[3] = {k->steps, 1, 1};
  const ir_gather_attrs attrs = {.offset_dims = {(int64_t[]){0}, 1},
                                 .collapsed_slice_dims = {&labels, 1},
                                 .operand_batching_dims = {&batch, 1},
                                 .start_indices_batching_dims = {&rows, 1},
                                 .start_index_map = {&labels, 1},
                                 .index_vector_dim = 2,
                                 .slice_sizes = {slice, 3}};
  return ir_gather(k->c->b, k->log_probs, nn_reshape3(k->c, k->target, k->batch, k->states, 1), &attrs);
}

/* Which states can be reached past the one before them: those whose label is not that of two states before. */
static ir_value skips(const ctc *k, ir_value target) {
  aten_lowering *c = k->c;
  if (k->states < 3) return ir_fill_i64(c->b, TTPU_BOOL, 2, (int64_t[]){k->batch, k->states}, 0);
  ir_value before = ir_slice_dim(c->b, target, 1, 0, k->states - 2, 1);
  ir_value differs = ir_compare(c->b, IR_NE, ir_slice_dim(c->b, target, 1, 2, k->states, 1), before);
  return nn_pad_dim(c, differs, 1, ir_scalar_i64(c->b, TTPU_BOOL, 0), 2, 0, 0);
}

/* The positions [T, N, S] along a dimension. */
static ir_value positions(const ctc *k, uint32_t dim) {
  return ir_iota(k->c->b, TTPU_I64, 3, (int64_t[]){k->steps, k->batch, k->states}, dim);
}

static ir_value path_scan(const ctc *k, ir_value x, ir_value target, ir_value start) {
  return ir_append(k->c->b, IR_PATH_SCAN, 3, (ir_value[]){x, skips(k, target), start}, NULL, 0, NULL, 0, NULL);
}

/* alpha [T, N, S] where a sequence ends, in state last - back: [N]. */
static ir_value at_end(const ctc *k, ir_value alpha, int64_t back) {
  aten_lowering *c = k->c;
  ir_value state = nn_add_f64(c, k->last, (double)-back), step = nn_add_f64(c, k->inputs, -1);
  ir_value zero = nn_const(c, state, 0), row = ir_iota(c->b, TTPU_I64, 1, &k->batch, 0);
  state = ir_maximum(c->b, state, zero);
  step = ir_maximum(c->b, step, zero);
  row = ir_add(c->b, nn_mul_f64(c, step, (double)k->batch), row);
  return nn_take(c, nn_flatten(c, alpha), ir_add(c->b, nn_mul_f64(c, row, (double)k->states), state), 0);
}

/* -log(exp(alpha of the last state) + exp(alpha of the one before)). */
static ir_value negative_log_likelihood(const ctc *k, ir_value alpha) {
  aten_lowering *c = k->c;
  ir_value x = at_end(k, alpha, 0), y = at_end(k, alpha, 1), high = ir_maximum(c->b, x, y), zero = nn_const(c, x, 0);
  high = ir_select(c->b, ir_compare(c->b, IR_EQ, high, minus_infinity(k, high)), zero, high);
  ir_value sum =
      ir_add(c->b, ir_exponential(c->b, ir_subtract(c->b, x, high)), ir_exponential(c->b, ir_subtract(c->b, y, high)));
  ir_value empty = nn_compare_f64(c, IR_EQ, k->last, 0);
  ir_value loss = ir_negate(c->b, ir_select(c->b, empty, x, ir_add(c->b, ir_log(c->b, sum), high)));
  ir_value unheard = ir_select(c->b, empty, zero, nn_const(c, x, INFINITY));
  return ir_select(c->b, nn_compare_f64(c, IR_EQ, k->inputs, 0), unheard, loss);
}

void lower_ctc_loss(aten_lowering *c) { /* log_probs, targets, input_lengths, target_lengths, blank, zero_infinity */
  ctc k = ctc_in(c, 0, c->outs[1].sizes[2], aten_int(c, 4));
  ir_value x = emissions(&k), state = positions(&k, 2);
  /* A path begins in one of the first two states. */
  ir_value later = ir_and_bits(c->b, nn_compare_f64(c, IR_EQ, positions(&k, 0), 0), nn_compare_f64(c, IR_GT, state, 1));
  ir_value out = ir_or_bits(c->b, later, ir_compare(c->b, IR_GT, state, along_batch(&k, k.last, state)));
  x = ir_select(c->b, out, minus_infinity(&k, x), x);
  ir_value zero = nn_const(c, k.inputs, 0), unheard = ir_compare(c->b, IR_EQ, k.inputs, zero);
  ir_value start = ir_select(c->b, unheard, nn_const(c, zero, (double)k.steps), zero);
  ir_value alpha = path_scan(&k, x, k.target, start);
  aten_out(c, 0, negative_log_likelihood(&k, alpha));
  aten_out(c, 1, nn_swap(c, alpha, 0, 1));
}

/* ---- gradient ------------------------------------------------------------------------------------ */

/* The sums over the paths from each state on, its own emission x included: [T, N, S]. */
static ir_value beta_of(const ctc *k, ir_value x) {
  aten_lowering *c = k->c;
  ir_value step = positions(k, 0), state = positions(k, 2), last = along_batch(k, k->last, state);
  ir_value final = ir_compare(c->b, IR_EQ, step, along_batch(k, nn_add_f64(c, k->inputs, -1), step));
  /* A path ends in one of the last two states. */
  ir_value early = ir_and_bits(c->b, final, ir_compare(c->b, IR_LT, state, nn_add_f64(c, last, -1)));
  x = ir_select(c->b, ir_or_bits(c->b, early, ir_compare(c->b, IR_GT, state, last)), minus_infinity(k, x), x);
  ir_value start = ir_subtract(c->b, nn_const(c, k->inputs, (double)k->steps), k->inputs);
  ir_value target = ir_reverse(c->b, k->target, 1, (int64_t[]){1});
  ir_value beta = path_scan(k, ir_reverse(c->b, x, 2, (int64_t[]){0, 2}), target, start);
  return ir_reverse(c->b, beta, 2, (int64_t[]){0, 2});
}

/* x [T, N, S] of the states added up by label: [T, N, C]. */
static ir_value by_label(const ctc *k, ir_value x) {
  aten_lowering *c = k->c;
  const int64_t rows = 0, labels = 1, steps = 2;
  const ir_scatter_attrs attrs = {.update_window_dims = {&steps, 1},
                                  .inserted_window_dims = {&labels, 1},
                                  .input_batching_dims = {&rows, 1},
                                  .scatter_indices_batching_dims = {&rows, 1},
                                  .scatter_dims_to_operand_dims = {&labels, 1},
                                  .index_vector_dim = 2};
  ir_value zero = ir_fill_i64(c->b, k->math, 3, (int64_t[]){k->batch, k->labels, k->steps}, 0);
  ir_value index = nn_reshape3(c, k->target, k->batch, k->states, 1);
  ir_value sum = ir_scatter(c->b, zero, index, nn_move(c, x, 0, 2), &attrs, IR_ADD);
  return nn_move(c, sum, 2, 0);
}

/* False, and a failed builder, where the saved tensors are not those of a forward call. */
static bool backward_fits(aten_lowering *c) {
  const aten_tensor *g = aten_meta(c, 0), *probs = aten_meta(c, 1), *nll = aten_meta(c, 5), *alpha = aten_meta(c, 6);
  int64_t n = probs->sizes[1];
  bool vectors = g->rank == 1 && g->sizes[0] == n && nll->rank == 1 && nll->sizes[0] == n;
  bool table = alpha->rank == 3 && alpha->sizes[0] == n && alpha->sizes[1] == probs->sizes[0] && alpha->sizes[2] % 2;
  if (!vectors || !table) aten_fail(c, "the gradient, the loss or log_alpha does not have log_probs' sizes");
  return vectors && table;
}

/* grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity.
 * Of log_probs' elements p with posteriors q it is exp(p) - q: the gradient of a softmax before them. */
void lower_ctc_loss_backward(aten_lowering *c) {
  if (!backward_fits(c)) return;
  ctc k = ctc_in(c, 1, aten_meta(c, 6)->sizes[2], aten_int(c, 7));
  ir_value p = k.log_probs, loss = nn_in(c, 5), x = emissions(&k), state = positions(&k, 2), zero = nn_const(c, p, 0);
  ir_value paths = ir_add(c->b, nn_swap(c, nn_in(c, 6), 0, 1), beta_of(&k, x)); /* x is in both */
  ir_value posterior = ir_exponential(c->b, ir_subtract(c->b, ir_add(c->b, paths, along_batch(&k, loss, x)), x));
  ir_value inside = ir_compare(c->b, IR_LE, state, along_batch(&k, k.last, state));
  ir_value step = positions(&k, 0);
  inside = ir_and_bits(c->b, inside, ir_compare(c->b, IR_LT, step, along_batch(&k, k.inputs, step)));
  ir_value q = by_label(&k, ir_select(c->b, inside, posterior, nn_const(c, posterior, 0)));
  /* Without a path, and where a label cannot be, the kernels subtract infinities. */
  ir_value none = nn_compare_f64(c, IR_EQ, loss, INFINITY), nan = ir_or_bits(c->b, none, nn_is_nan(c, loss));
  nan = ir_or_bits(c->b, along_batch(&k, nan, p), nn_compare_f64(c, IR_EQ, p, -INFINITY));
  q = ir_select(c->b, nan, nn_const(c, q, NAN), q);
  ir_value g = ir_multiply(c->b, ir_subtract(c->b, ir_exponential(c->b, p), q), along_batch(&k, nn_in(c, 0), p));
  step = aten_iota_like(c, p, TTPU_I64, 0);
  ir_value beyond = ir_compare(c->b, IR_GE, step, along_batch(&k, k.inputs, step));
  if (aten_int(c, 8)) beyond = ir_or_bits(c->b, beyond, along_batch(&k, none, p));
  aten_out(c, 0, ir_select(c->b, beyond, zero, g));
}
