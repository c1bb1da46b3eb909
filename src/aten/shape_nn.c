/* Shape functions of aten_nn.def's rows: of what runs in loops whose sizes change (products, convolutions, norms,
 * softmax, attention, lookups, losses), and of rows that PyTorch has no Meta kernel for. They give exactly what Meta
 * gives, and false wherever they are not sure, so each begins with what it covers. A call with wrong sizes is
 * not covered: Meta raises the error. */
#include "aten/nn_int.h"

#include <string.h>

/* ---- small things -------------------------------------------------------------------------------- */

static bool is_index_dtype(uint8_t t) { return t == TTPU_I64 || t == TTPU_I32; }

static bool has_matrix_dtype(const aten_tensor *t) { return t->dtype != TTPU_BOOL && t->dtype < TTPU_F8E5M2; }

/* Row-major to the letter. A tensor may be contiguous with other strides in dims of size 1 (and what PyTorch makes of
 * those depends on the operator): Meta is asked about such. */
static bool is_canonical(const aten_tensor *t) {
  int64_t strides[TTPU_MAX_RANK];
  base_row_major(t->rank, t->sizes, strides);
  return t->rank == 0 || memcmp(strides, t->strides, t->rank * sizeof *strides) == 0;
}

static bool has_single(const aten_tensor *t) {
  for (uint32_t i = 0; i < t->rank; ++i)
    if (t->sizes[i] == 1) return true;
  return false;
}

static bool is_odd(const aten_tensor *t) { return aten_is_contiguous(t) && !is_canonical(t); }

/* ---- products ------------------------------------------------------------------------------------ */

static bool matrices(const aten_tensor *x, const aten_tensor *y, uint32_t rank) {
  if (!x || !y || x->rank != rank || y->rank != rank || x->dtype != y->dtype || !has_matrix_dtype(x)) return false;
  if (rank == 3 && x->sizes[0] != y->sizes[0]) return false;
  return x->sizes[rank - 1] == y->sizes[rank - 2];
}

bool shape_mm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  if (!matrices(x, y, 2)) return false;
  shape_of(outs, x->dtype, 2, (int64_t[]){x->sizes[0], y->sizes[1]});
  return true;
}

bool shape_bmm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  if (!matrices(x, y, 3)) return false;
  shape_of(outs, x->dtype, 3, (int64_t[]){x->sizes[0], x->sizes[1], y->sizes[2]});
  return true;
}

/* self + x y, self broadcasting to the product. */
static bool shape_added(const aten_call *call, aten_shape *outs, uint32_t rank) {
  const aten_tensor *self = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *y = aten_call_tensor(call, 2);
  if (!self || !matrices(x, y, rank) || self->dtype != x->dtype || self->rank > rank) return false;
  int64_t sizes[3] = {x->sizes[0], x->sizes[1], y->sizes[rank - 1]};
  sizes[rank - 1] = y->sizes[rank - 1];
  for (uint32_t i = 0; i < self->rank; ++i) {
    int64_t n = self->sizes[self->rank - 1 - i];
    if (n != 1 && n != sizes[rank - 1 - i]) return false;
  }
  for (uint32_t i = 3; i <= 4; ++i) { /* a float beta for integers is an error of Meta's */
    const aten_number *number = aten_call_number(call, i);
    if (number && number->dtype != TTPU_I64 && !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  }
  shape_of(outs, x->dtype, rank, sizes);
  return true;
}

bool shape_addmm(const aten_call *call, aten_shape *outs) { return shape_added(call, outs, 2); }
bool shape_baddbmm(const aten_call *call, aten_shape *outs) { return shape_added(call, outs, 3); }

bool shape_mv(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  if (!x || !y || x->rank != 2 || y->rank != 1 || x->dtype != y->dtype || x->sizes[1] != y->sizes[0] ||
      !has_matrix_dtype(x))
    return false;
  shape_of(outs, x->dtype, 1, x->sizes);
  return true;
}

bool shape_dot(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  if (!x || !y || x->rank != 1 || y->rank != 1 || x->dtype != y->dtype || x->sizes[0] != y->sizes[0] ||
      !has_matrix_dtype(x))
    return false;
  shape_of(outs, x->dtype, 0, NULL);
  return true;
}

static bool is_float8(const aten_tensor *x) { return x->dtype == TTPU_F8E4M3FN || x->dtype == TTPU_F8E5M2; }

/* One f32 scale for all. */
static bool scales_tensor(const aten_tensor *scale) { return scale->dtype == TTPU_F32 && numel(scale) == 1; }

/* An f32 scale for each of `count` places of dimension dim, in a row or column. */
static bool scales_rows(const aten_tensor *scale, uint32_t dim, int64_t count) {
  if (scale->dtype != TTPU_F32 || scale->rank != 2 || (scale->flags & ATEN_NUMBER)) return false;
  return scale->sizes[dim] == count && scale->sizes[1 - dim] == 1 && (count <= 1 || scale->strides[dim] == 1);
}

/* The CPU takes any sizes; Meta wants what one kernel of another device wants, multiples of 16. An out argument is the
 * last argument, after `inputs` others, and names the dtype when out_dtype does not. */
static bool scaled_shape(const aten_call *call, aten_shape *outs, uint32_t bias_arg, uint32_t dtype_arg,
                         uint32_t inputs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1),
                    *bias = aten_call_tensor(call, bias_arg);
  if (!x || !y || x->rank != 2 || y->rank != 2 || !is_float8(x) || !is_float8(y)) return false;
  if (x->sizes[1] != y->sizes[0] || (bias && numel(bias) != y->sizes[1])) return false;
  if (bias && !base_dtype_is_float((ttpu_dtype)bias->dtype)) return false;
  const aten_tensor *out = call->arg_count > inputs ? aten_call_tensor(call, inputs) : NULL;
  int64_t dtype = aten_call_int(call, dtype_arg, out ? out->dtype : x->dtype);
  shape_of(outs, (uint8_t)dtype, 2, (int64_t[]){x->sizes[0], y->sizes[1]});
  return true;
}

/* self, mat2, scale_a, scale_b, bias?, scale_result?, out_dtype?, use_fast_accum */
bool shape_scaled_mm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *a = aten_call_tensor(call, 2), *b = aten_call_tensor(call, 3), *r = aten_call_tensor(call, 5);
  if (!scaled_shape(call, outs, 4, 6, 8) || !a || !b || (r && !scales_tensor(r))) return false;
  if (scales_tensor(a) && scales_tensor(b)) return true;
  return scales_rows(a, 0, outs->sizes[0]) && scales_rows(b, 1, outs->sizes[1]);
}

/* The only element of a list argument; -1 when there is not exactly one. */
static int64_t single_int(const aten_call *call, uint32_t arg) {
  ir_i64s list = aten_call_ints(call, arg);
  return list.count == 1 ? list.data[0] : -1;
}

static const aten_tensor *single_tensor(const aten_call *call, uint32_t arg) {
  const aten_arg *a = &call->args[arg];
  return a->kind == ATEN_TENSORS && a->count == 1 ? &call->tensors[a->first] : NULL;
}

/* self, mat2, scale_a[], recipe_a, swizzle_a, scale_b[], recipe_b, swizzle_b, bias?, out_dtype?, contraction_dim,
 * use_fast_accum: recipes 0 (a scale for the tensor) and 1 (for each row), without swizzling. */
bool shape_scaled_mm_v2(const aten_call *call, aten_shape *outs) {
  if (call->arg_count < 12 || !scaled_shape(call, outs, 8, 9, 12)) return false;
  const aten_tensor *a = single_tensor(call, 2), *b = single_tensor(call, 5), *bias = aten_call_tensor(call, 8);
  int64_t recipe = single_int(call, 3);
  if (!a || !b || single_int(call, 6) != recipe || single_int(call, 4) != 0 || single_int(call, 7) != 0) return false;
  ir_i64s contracted = aten_call_ints(call, 10);
  if (bias && bias->dtype == TTPU_F64) return false;
  if (contracted.count != 0 && (contracted.count != 2 || contracted.data[0] != 1 || contracted.data[1] != 0))
    return false;
  if (recipe == 0) return scales_tensor(a) && scales_tensor(b);
  return recipe == 1 && scales_rows(a, 0, outs->sizes[0]) && scales_rows(b, 1, outs->sizes[1]);
}

/* ---- segments ------------------------------------------------------------------------------------ */

/* The dimension that lengths (offsets, where they are given) cut; false unless these are what the CPU takes. */
static bool segment_axis(const aten_call *call, const aten_tensor *data, uint32_t lengths, uint32_t offsets,
                         uint32_t axis_arg, uint32_t *axis, int64_t *count) {
  const aten_tensor *by_offset = aten_call_tensor(call, offsets),
                    *given = by_offset ? by_offset : aten_call_tensor(call, lengths);
  if (!data || !given || given->rank == 0 || given->rank > data->rank || !is_index_dtype(given->dtype)) return false;
  if (!base_dtype_is_float((ttpu_dtype)data->dtype) || data->dtype >= TTPU_F8E5M2) return false;
  if (!wrap_dim(aten_call_int(call, axis_arg, 0), data->rank, axis) || *axis != given->rank - 1u) return false;
  for (uint32_t i = 0; i < *axis; ++i)
    if (given->sizes[i] != data->sizes[i]) return false;
  *count = given->sizes[*axis] - (by_offset ? 1 : 0);
  return *count >= 0;
}

static bool is_segment_reduction(const aten_call *call, uint32_t arg) {
  static const char *const names[] = {"sum", "mean", "prod", "max", "min", "amax", "amin"};
  const char *name = call->texts[call->args[arg].first];
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

/* data, reduce, lengths?, indices?, offsets?, axis, unsafe, initial?. Meta looks at nothing; and the CPU cannot be asked
 * with made-up lengths, which it refuses. */
bool shape_segment_reduce(const aten_call *call, aten_shape *outs) {
  const aten_tensor *data = aten_call_tensor(call, 0), *lengths = aten_call_tensor(call, 2);
  uint32_t axis;
  int64_t count;
  if (!segment_axis(call, data, 2, 4, 5, &axis, &count) || aten_call_has(call, 3)) return false;
  if (!aten_call_has(call, 4) && numel(lengths) == 0 && !aten_call_int(call, 6, 0)) return false;
  if (!is_segment_reduction(call, 1)) return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < data->rank; ++i) sizes[i] = i == axis ? count : data->sizes[i];
  shape_of(outs, data->dtype, data->rank, sizes);
  return true;
}

/* grad, output, data, reduce, lengths?, offsets?, axis, initial? */
bool shape_segment_reduce_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1), *data = aten_call_tensor(call, 2);
  uint32_t axis;
  int64_t count;
  if (!g || !y || !segment_axis(call, data, 4, 5, 6, &axis, &count) || !is_segment_reduction(call, 3)) return false;
  if (g->dtype != data->dtype || y->dtype != data->dtype || !same_sizes(g, y) || g->rank != data->rank) return false;
  for (uint32_t i = 0; i < g->rank; ++i)
    if (g->sizes[i] != (i == axis ? count : data->sizes[i])) return false;
  shape_of(outs, g->dtype, data->rank, data->sizes);
  return true;
}

/* ---- connectionist temporal classification ------------------------------------------------------- */

/* Element i of a list whose integers may be data. */
static int64_t list_value(const aten_call *call, const aten_arg *list, uint32_t i) {
  return list->kind == ATEN_INTS ? call->ints[list->first + i] : call->numbers[list->first + i].value.i;
}

/* Whether all of a list's `count` integers are in [0, most]; their sum and the largest of them. */
static bool lengths_are(const aten_call *call, uint32_t arg, int64_t count, int64_t most, int64_t *sum,
                        int64_t *largest) {
  const aten_arg *list = &call->args[arg];
  if ((list->kind != ATEN_INTS && list->kind != ATEN_SCALARS) || list->count != count) return false;
  *sum = *largest = 0;
  for (uint32_t i = 0; i < list->count; ++i) {
    int64_t length = list_value(call, list, i);
    if (length < 0 || length > most) return false;
    *sum += length;
    if (length > *largest) *largest = length;
  }
  return true;
}

/* log_probs [T, N, C], targets [N, ..] or all in a row, input_lengths, target_lengths, blank, zero_infinity */
bool shape_ctc_loss(const aten_call *call, aten_shape *outs) {
  const aten_tensor *probs = aten_call_tensor(call, 0), *targets = aten_call_tensor(call, 1);
  int64_t blank = aten_call_int(call, 4, 0), sum, longest, ignored;
  if (!probs || !targets || probs->rank != 3 || !is_index_dtype(targets->dtype)) return false;
  if ((probs->dtype != TTPU_F32 && probs->dtype != TTPU_F64) || numel(probs) == 0) return false;
  int64_t steps = probs->sizes[0], batch = probs->sizes[1];
  if (blank < 0 || blank >= probs->sizes[2] || (targets->rank != 1 && targets->rank != 2)) return false;
  if (!lengths_are(call, 2, batch, steps, &ignored, &ignored)) return false;
  if (!lengths_are(call, 3, batch, numel(targets), &sum, &longest)) return false;
  if (targets->rank == 1 ? targets->sizes[0] != sum : targets->sizes[0] != batch || targets->sizes[1] < longest)
    return false;
  shape_of(&outs[0], probs->dtype, 1, &batch);
  shape_of(&outs[1], probs->dtype, 3, (int64_t[]){batch, steps, 2 * longest + 1});
  return true;
}

/* grad, log_probs, targets, ..: the lowering looks at the sizes of the others, since the CPU does not. */
bool shape_ctc_loss_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *probs = aten_call_tensor(call, 1);
  if (!probs || probs->rank != 3 || (probs->dtype != TTPU_F32 && probs->dtype != TTPU_F64)) return false;
  shape_of(outs, probs->dtype, 3, probs->sizes);
  return true;
}

/* ---- norms --------------------------------------------------------------------------------------- */

/* The row statistics' sizes: x's, with 1 in the normalised dims. False unless `normalized` are x's last sizes. */
static bool row_sizes(const aten_tensor *x, ir_i64s normalized, int64_t sizes[TTPU_MAX_RANK]) {
  if (!x || normalized.count == 0 || normalized.count > x->rank || !is_canonical(x) || numel(x) == 0) return false;
  uint32_t lead = x->rank - normalized.count;
  for (uint32_t i = 0; i < x->rank; ++i) {
    if (i >= lead && normalized.data[i - lead] != x->sizes[i]) return false;
    sizes[i] = i < lead ? x->sizes[i] : 1;
  }
  return true;
}

static bool fits_row(const aten_tensor *w, const aten_tensor *x, ir_i64s normalized) {
  if (!w) return true;
  return w->dtype == x->dtype && w->rank == normalized.count &&
         memcmp(w->sizes, normalized.data, w->rank * sizeof *w->sizes) == 0;
}

bool shape_layer_norm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s normalized = aten_call_ints(call, 1);
  int64_t sizes[TTPU_MAX_RANK];
  if (!row_sizes(x, normalized, sizes) || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  if (!fits_row(aten_call_tensor(call, 2), x, normalized) || !fits_row(aten_call_tensor(call, 3), x, normalized))
    return false;
  shape_of(&outs[0], x->dtype, x->rank, x->sizes);
  for (uint32_t i = 1; i < 3; ++i) shape_of(&outs[i], (uint8_t)aten_math_dtype((ttpu_dtype)x->dtype), x->rank, sizes);
  return true;
}

/* Evaluation saves no statistics, as on the CPU (Meta gives them sizes); training is Meta's. */
bool shape_batch_norm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *mean = aten_call_tensor(call, 3), *var = aten_call_tensor(call, 4);
  if (aten_call_int(call, 5, 0) || !x || !mean || !var || x->rank < 2 || !base_dtype_is_float((ttpu_dtype)x->dtype))
    return false;
  for (uint32_t i = 1; i < 5; ++i) {
    const aten_tensor *t = aten_call_tensor(call, i);
    if (t && (t->rank != 1 || t->sizes[0] != x->sizes[1])) return false;
  }
  int64_t none = 0;
  shape_of(&outs[0], x->dtype, x->rank, x->sizes);
  if (!aten_is_contiguous(x)) {
    if (x->rank > 4) return false;
    if (aten_is_channels_last(x)) aten_shape_preserve(x, &outs[0]);
  }
  for (uint32_t i = 1; i < 3; ++i) shape_of(&outs[i], (uint8_t)aten_math_dtype((ttpu_dtype)x->dtype), 1, &none);
  return true;
}

bool shape_layer_norm_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *w = aten_call_tensor(call, 5),
                    *bias = aten_call_tensor(call, 6);
  ir_i64s normalized = aten_call_ints(call, 2), mask = aten_call_ints(call, 7);
  int64_t sizes[TTPU_MAX_RANK];
  if (!row_sizes(x, normalized, sizes) || !g || !is_canonical(g) || !same_sizes(g, x) || g->dtype != x->dtype ||
      mask.count != 3)
    return false;
  if (!fits_row(w, x, normalized) || !fits_row(bias, x, normalized)) return false;
  if ((mask.data[1] && !w) || (mask.data[2] && !bias)) return false;
  if (x->rank == normalized.count) return false; /* no rows to sum over: Meta has its own way */
  for (uint32_t i = 0; i < 3; ++i) no_result(&outs[i]);
  if (mask.data[0]) shape_of(&outs[0], x->dtype, x->rank, x->sizes);
  if (mask.data[1]) shape_of(&outs[1], w->dtype, w->rank, w->sizes);
  if (mask.data[2]) shape_of(&outs[2], bias->dtype, bias->rank, bias->sizes);
  return true;
}

bool shape_rms_norm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s normalized = aten_call_ints(call, 1);
  int64_t sizes[TTPU_MAX_RANK];
  if (!row_sizes(x, normalized, sizes) || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  if (!fits_row(aten_call_tensor(call, 2), x, normalized)) return false;
  shape_of(&outs[0], x->dtype, x->rank, x->sizes);
  shape_of(&outs[1], (uint8_t)aten_math_dtype((ttpu_dtype)x->dtype), x->rank, sizes);
  return true;
}

bool shape_rms_norm_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *w = aten_call_tensor(call, 4);
  ir_i64s normalized = aten_call_ints(call, 2), mask = aten_call_ints(call, 5);
  int64_t sizes[TTPU_MAX_RANK];
  if (!row_sizes(x, normalized, sizes) || !g || !is_canonical(g) || !same_sizes(g, x) || g->dtype != x->dtype ||
      mask.count != 2)
    return false;
  if (!fits_row(w, x, normalized) || (mask.data[1] && !w) || x->rank == normalized.count) return false;
  for (uint32_t i = 0; i < 2; ++i) no_result(&outs[i]);
  if (mask.data[0]) shape_of(&outs[0], x->dtype, x->rank, x->sizes);
  if (mask.data[1]) shape_of(&outs[1], w->dtype, w->rank, w->sizes);
  return true;
}

/* ---- softmax, activations ------------------------------------------------------------------------ */

bool shape_softmax(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  uint32_t dim;
  if (!x || is_odd(x) || !base_dtype_is_float((ttpu_dtype)x->dtype) || aten_call_int(call, 2, 0)) return false;
  if (!wrap_dim(aten_call_int(call, 1, 0), x->rank, &dim)) return false;
  shape_of(outs, x->dtype, x->rank, x->sizes);
  return true;
}

bool shape_softmax_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  uint32_t dim;
  if (!g || !y || !is_canonical(g) || !is_canonical(y) || !same_sizes(g, y) || g->dtype != y->dtype ||
      !base_dtype_is_float((ttpu_dtype)g->dtype))
    return false;
  if (aten_call_int(call, 3, 0) != g->dtype || !wrap_dim(aten_call_int(call, 2, 0), g->rank, &dim)) return false;
  shape_of(outs, g->dtype, g->rank, g->sizes);
  return true;
}

static bool like_argument(const aten_call *call, uint32_t arg, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, arg);
  if (!x) return false;
  outs->dtype = x->dtype;
  aten_shape_preserve(x, outs);
  return true;
}

bool shape_like_first(const aten_call *call, aten_shape *outs) { return like_argument(call, 0, outs); }
bool shape_like_second(const aten_call *call, aten_shape *outs) { return like_argument(call, 1, outs); }

bool shape_pointwise_first(const aten_call *call, aten_shape *outs) { /* not bool, which relu and its kin refuse */
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!x || is_odd(x) || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  outs->dtype = x->dtype;
  return aten_shape_broadcast(1, &x, outs);
}

bool shape_pointwise_float(const aten_call *call, aten_shape *outs) { return shape_pointwise_first(call, outs); }

bool shape_pointwise_two(const aten_call *call, aten_shape *outs) {
  const aten_tensor *operands[2] = {aten_call_tensor(call, 0), aten_call_tensor(call, 1)};
  if (!operands[0] || !operands[1] || operands[0]->dtype != operands[1]->dtype) return false;
  if (!base_dtype_is_float((ttpu_dtype)operands[0]->dtype) || !same_sizes(operands[0], operands[1])) return false;
  if (!is_canonical(operands[0]) || !is_canonical(operands[1])) { /* else operands' order decides, and dims of size 1 */
    if (memcmp(operands[0]->strides, operands[1]->strides, operands[0]->rank * sizeof(int64_t))) return false;
    if (has_single(operands[0])) return false;
  }
  outs->dtype = operands[0]->dtype;
  return aten_shape_broadcast(2, operands, outs);
}

/* ---- losses -------------------------------------------------------------------------------------- */

bool shape_loss(const aten_call *call, aten_shape *outs) { /* self, target, reduction; a reduced one only */
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1);
  if (!x || !y || x->dtype != y->dtype || !same_sizes(x, y) || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  if (aten_call_int(call, 2, 1) == NN_REDUCTION_NONE) return false;
  shape_of(outs, x->dtype, 0, NULL);
  return true;
}

/* self [N, C] or [C], target of its sizes, reduction; results: loss, is_target. The loss of [C] has no dimension, as on
 * the CPU: Meta gives it one. One of self and target may be 0-d where the other is [1]. */
bool shape_multilabel_margin_loss(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *target = aten_call_tensor(call, 1);
  if (!x || !target || target->dtype != TTPU_I64 || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  bool fits = same_sizes(x, target) || (x->rank < 2 && target->rank < 2 && numel(x) == numel(target));
  if (x->rank > 2 || !fits || numel(x) == 0) return false;
  bool each = aten_call_int(call, 2, 1) == NN_REDUCTION_NONE && x->rank == 2;
  shape_of(&outs[0], x->dtype, each ? 1 : 0, x->sizes);
  shape_of(&outs[1], x->dtype, target->rank, target->sizes);
  return true;
}

/* self [N, C] or [C] or 0-d, target [N] or 0-d, p, margin, weight?, reduction. The loss of a 0-d target is 0-d, as on the CPU:
 * Meta gives it a dimension. */
bool shape_multi_margin_loss(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *target = aten_call_tensor(call, 1);
  const aten_number *p = aten_call_number(call, 2);
  if (!x || !target || target->dtype != TTPU_I64 || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  const aten_tensor *weight = aten_call_tensor(call, 4);
  int64_t n = x->rank == 2 ? x->sizes[0] : 1, classes = x->rank ? x->sizes[x->rank - 1] : 1;
  if (x->rank > 2 || numel(x) == 0 || target->rank > 1 || numel(target) != n) return false;
  if (weight && (weight->dtype != x->dtype || weight->rank != 1 || weight->sizes[0] != classes)) return false;
  if (!p || p->dtype != TTPU_I64 || (p->value.i != 1 && p->value.i != 2)) return false;
  bool each = aten_call_int(call, 5, 1) == NN_REDUCTION_NONE && target->rank == 1;
  shape_of(outs, x->dtype, each ? 1 : 0, &n);
  return true;
}

/* self [N, C] (or [C]) and class numbers for it. */
static bool classified(const aten_tensor *x, const aten_tensor *target, const aten_tensor *weight) {
  if (!x || !target || !base_dtype_is_float((ttpu_dtype)x->dtype)) return false;
  if (target->dtype != TTPU_I64 && target->dtype != TTPU_U8) return false; /* bytes, which Meta refuses */
  if (x->rank != 2 || target->rank != 1 || target->sizes[0] != x->sizes[0]) return false;
  return !weight || (weight->rank == 1 && weight->sizes[0] == x->sizes[1] && weight->dtype == x->dtype);
}

bool shape_nll_loss(const aten_call *call, aten_shape *outs) { /* self, target, weight?, reduction, ignore_index */
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!classified(x, aten_call_tensor(call, 1), aten_call_tensor(call, 2))) return false;
  bool none = aten_call_int(call, 3, 1) == NN_REDUCTION_NONE;
  shape_of(&outs[0], x->dtype, none ? 1 : 0, x->sizes);
  shape_of(&outs[1], x->dtype, 0, NULL);
  return true;
}

bool shape_nll_loss_backward(const aten_call *call,
                             aten_shape *outs) { /* grad, self, target, weight?, reduction, ignore_index, total */
  const aten_tensor *g = aten_call_tensor(call, 0), *x = aten_call_tensor(call, 1), *total = aten_call_tensor(call, 6);
  if (!classified(x, aten_call_tensor(call, 2), aten_call_tensor(call, 3)) || !g || !total || numel(total) != 1)
    return false;
  bool none = aten_call_int(call, 4, 1) == NN_REDUCTION_NONE;
  if (none ? g->rank != 1 || g->sizes[0] != x->sizes[0] : g->rank != 0) return false;
  if (!aten_is_contiguous(x)) return false;
  shape_of(outs, x->dtype, 2, x->sizes);
  return true;
}

/* ---- indexing ------------------------------------------------------------------------------------ */

/* One index for one dim of a row-major tensor: what models do. */
bool shape_index(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *index = NULL;
  if (!x || call->arg_count < 2 || call->args[1].kind != ATEN_TENSORS || !is_canonical(x)) return false;
  const aten_arg *list = &call->args[1];
  uint32_t dim = 0, rank = 0;
  if (list->count > x->rank) return false;
  for (uint32_t i = 0; i < list->count; ++i) {
    const aten_tensor *t = &call->tensors[list->first + i];
    if (t->flags & ATEN_UNDEFINED) continue;
    if (index || !is_index_dtype(t->dtype)) return false;
    index = t;
    dim = i;
  }
  if (!index || !aten_is_contiguous(index) || index->rank == 0 || x->rank + index->rank - 1 > TTPU_MAX_RANK)
    return false;
  if (numel(x) == 0 || numel(index) == 0) return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < dim; ++i) sizes[rank++] = x->sizes[i];
  for (uint32_t i = 0; i < index->rank; ++i) sizes[rank++] = index->sizes[i];
  for (uint32_t i = dim + 1; i < x->rank; ++i) sizes[rank++] = x->sizes[i];
  if (dim > 0) return false; /* Meta transposes the dim to the front, which its strides show */
  shape_of(outs, x->dtype, rank, sizes);
  return true;
}

bool shape_index_select(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *index = aten_call_tensor(call, 2);
  uint32_t dim;
  if (!x || !index || !is_index_dtype(index->dtype) || index->rank > 1 || x->rank == 0) return false;
  if (!wrap_dim(aten_call_int(call, 1, 0), x->rank, &dim)) return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) sizes[i] = i == dim ? numel(index) : x->sizes[i];
  if (!aten_is_contiguous(x)) return false;
  shape_of(outs, x->dtype, x->rank, sizes);
  return true;
}

bool shape_gather(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *index = aten_call_tensor(call, 2);
  uint32_t dim;
  if (!x || !index || index->dtype != TTPU_I64 || index->rank != x->rank ||
      !wrap_dim(aten_call_int(call, 1, 0), x->rank, &dim))
    return false;
  for (uint32_t i = 0; i < x->rank; ++i)
    if (i != dim && index->sizes[i] > x->sizes[i]) return false;
  shape_of(outs, x->dtype, index->rank, index->sizes);
  return true;
}

bool shape_masked_fill(const aten_call *call, aten_shape *outs) { /* self of the result's sizes, row-major */
  const aten_tensor *x = aten_call_tensor(call, 0), *mask = aten_call_tensor(call, 1);
  if (!x || !mask || mask->dtype != TTPU_BOOL || mask->rank > x->rank || !is_canonical(x) || !is_canonical(mask))
    return false;
  const aten_number *value = aten_call_number(call, 2);
  if (!value || !base_dtype_is_float((ttpu_dtype)x->dtype) || value->dtype == TTPU_C128) return false;
  for (uint32_t i = 0; i < mask->rank; ++i) {
    int64_t n = mask->sizes[mask->rank - 1 - i];
    if (n != 1 && n != x->sizes[x->rank - 1 - i]) return false;
  }
  shape_of(outs, x->dtype, x->rank, x->sizes);
  return true;
}

bool shape_masked_select(const aten_call *call, aten_shape *outs) { /* upper bound: the common sizes' elements */
  const aten_tensor *operands[2] = {aten_call_tensor(call, 0), aten_call_tensor(call, 1)};
  aten_shape common = {0};
  if (!operands[0] || !operands[1] || operands[1]->dtype != TTPU_BOOL || !aten_shape_broadcast(2, operands, &common))
    return false;
  int64_t n = base_numel(common.rank, common.sizes);
  shape_of(&outs[0], operands[0]->dtype, 1, &n);
  shape_of(&outs[1], TTPU_I64, 0, NULL);
  return true;
}

bool shape_nonzero(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  if (!x) return false;
  shape_of(&outs[0], TTPU_I64, 2, (int64_t[]){numel(x), x->rank});
  outs[0].strides[0] = 1; /* a column after the other, as the CPU and Meta have it */
  outs[0].strides[1] = numel(x) > 1 ? numel(x) : 1;
  shape_of(&outs[1], TTPU_I64, 0, NULL);
  return true;
}

bool shape_embedding(const aten_call *call, aten_shape *outs) {
  const aten_tensor *w = aten_call_tensor(call, 0), *index = aten_call_tensor(call, 1);
  if (!w || !index || w->rank != 2 || !is_index_dtype(index->dtype) || index->rank >= TTPU_MAX_RANK ||
      !aten_is_contiguous(w))
    return false;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < index->rank; ++i) sizes[i] = index->sizes[i];
  sizes[index->rank] = w->sizes[1];
  shape_of(outs, w->dtype, index->rank + 1u, sizes);
  return true;
}

bool shape_embedding_dense_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *index = aten_call_tensor(call, 1);
  if (!g || !index || !is_index_dtype(index->dtype) || g->rank != index->rank + 1 || aten_call_int(call, 4, 0))
    return false;
  if (!base_dtype_is_float((ttpu_dtype)g->dtype)) return false;
  shape_of(outs, g->dtype, 2, (int64_t[]){aten_call_int(call, 2, 0), g->sizes[g->rank - 1]});
  return true;
}

/* repeats, output_size. Without an output_size the result's size is data and has no bound. */
bool shape_repeat_interleave(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  int64_t size = aten_call_int(call, 1, -1);
  if (!x || x->rank != 1 || !is_index_dtype(x->dtype) || size < 0) return false;
  shape_of(outs, x->dtype, 1, &size);
  return true;
}

/* ---- moving elements ----------------------------------------------------------------------------- */

/* Tensors of one dtype and rank, whatever their strides: the result is row-major. */
bool shape_cat(const aten_call *call, aten_shape *outs) {
  if (call->arg_count < 1 || call->args[0].kind != ATEN_TENSORS || call->args[0].count == 0) return false;
  const aten_tensor *xs = &call->tensors[call->args[0].first], *x = &xs[0];
  uint32_t dim;
  if (x->rank == 0 || !wrap_dim(aten_call_int(call, 1, 0), x->rank, &dim)) return false;
  int64_t sizes[TTPU_MAX_RANK];
  memcpy(sizes, x->sizes, x->rank * sizeof *sizes);
  sizes[dim] = 0;
  for (uint32_t i = 0; i < call->args[0].count; ++i) {
    const aten_tensor *y = &xs[i];
    if (y->flags || y->rank != x->rank || y->dtype != x->dtype || numel(y) == 0 || aten_prefers_channels_last(y))
      return false;
    for (uint32_t k = 0; k < x->rank; ++k)
      if (k != dim && y->sizes[k] != x->sizes[k]) return false;
    sizes[dim] += y->sizes[dim];
  }
  shape_of(outs, x->dtype, x->rank, sizes);
  return true;
}

bool shape_stack(const aten_call *call, aten_shape *outs) {
  if (call->arg_count < 1 || call->args[0].kind != ATEN_TENSORS || call->args[0].count == 0) return false;
  const aten_tensor *xs = &call->tensors[call->args[0].first];
  uint32_t dim;
  if (xs->rank + 1u > TTPU_MAX_RANK || !wrap_dim(aten_call_int(call, 1, 0), xs->rank + 1u, &dim)) return false;
  ttpu_dtype t = (ttpu_dtype)xs->dtype;
  for (uint32_t i = 1; i < call->args[0].count; ++i) {
    if (!same_sizes(&xs[i], xs) || xs[i].flags) return false;
    t = aten_promote(t, (ttpu_dtype)xs[i].dtype);
  }
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i <= xs->rank; ++i) sizes[i] = i == dim ? call->args[0].count : xs->sizes[i - (i > dim)];
  shape_of(outs, (uint8_t)t, xs->rank + 1u, sizes);
  return true;
}

bool shape_constant_pad(const aten_call *call, aten_shape *outs) { /* row-major */
  const aten_tensor *x = aten_call_tensor(call, 0);
  ir_i64s pad = aten_call_ints(call, 1);
  if (!x || pad.count % 2 || pad.count / 2 > x->rank || !aten_is_contiguous(x) || aten_prefers_channels_last(x))
    return false;
  int64_t sizes[TTPU_MAX_RANK];
  bool grows = false; /* else PyTorch clones a slice, whose strides are its own */
  for (uint32_t i = 0; i < pad.count; ++i) grows = grows || pad.data[i] > 0;
  if (!grows) return false;
  for (uint32_t i = 0; i < x->rank; ++i) {
    uint32_t at = 2 * (x->rank - 1 - i);
    sizes[i] = x->sizes[i] + (at < pad.count ? pad.data[at] + pad.data[at + 1] : 0);
    if (sizes[i] <= 0) return false;
  }
  shape_of(outs, x->dtype, x->rank, sizes);
  return true;
}

/* ---- attention ----------------------------------------------------------------------------------- */

static bool attention_operands(const aten_tensor *q, const aten_tensor *k, const aten_tensor *v) {
  if (!q || !k || !v || q->rank != 4 || k->rank != 4 || v->rank != 4 || q->dtype != k->dtype || q->dtype != v->dtype)
    return false;
  if (!base_dtype_is_float((ttpu_dtype)q->dtype) || q->sizes[0] != k->sizes[0] || k->sizes[0] != v->sizes[0])
    return false;
  if (q->sizes[3] != k->sizes[3] || k->sizes[1] != v->sizes[1] || k->sizes[2] != v->sizes[2]) return false;
  return k->sizes[1] > 0 && q->sizes[1] % k->sizes[1] == 0 && q->sizes[3] == v->sizes[3] && aten_is_dense(q);
}

/* torch.empty_like, as Meta computes it. */
static bool shape_empty_like(const aten_tensor *t, aten_shape *out) {
  out->dtype = t->dtype;
  aten_shape_preserve(t, out);
  if (!aten_is_contiguous(t)) return aten_is_dense(t) && !has_single(t);
  if (!is_canonical(t) && t->sizes[t->rank - 1] == 1) return false; /* contiguous in more than one way */
  aten_shape_contiguous(out);
  return true;
}

/* Results 4 and 5 are integers: no dtype, rank 1, the value as the size. */
bool shape_attention(const aten_call *call, aten_shape *outs) {
  const aten_tensor *q = aten_call_tensor(call, 0), *k = aten_call_tensor(call, 1), *v = aten_call_tensor(call, 2);
  if (!attention_operands(q, k, v) || aten_call_int(call, 6, 0)) return false;
  for (uint32_t i = 0; i < 9; ++i) no_result(&outs[i]);
  if (!shape_empty_like(q, &outs[0])) return false;
  shape_of(&outs[1], TTPU_F32, 3, q->sizes);
  outs[4].rank = outs[5].rank = 1;
  outs[4].sizes[0] = q->sizes[2];
  outs[5].sizes[0] = k->sizes[2];
  shape_of(&outs[6], TTPU_I64, 0, NULL);
  shape_of(&outs[7], TTPU_I64, 0, NULL);
  return true;
}

bool shape_attention_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *bias = aten_call_tensor(call, 4);
  const aten_tensor *operands[3] = {aten_call_tensor(call, 1), aten_call_tensor(call, 2), aten_call_tensor(call, 3)};
  if (!attention_operands(operands[0], operands[1], operands[2])) return false;
  for (uint32_t i = 0; i < 3; ++i)
    if (!shape_empty_like(operands[i], &outs[i])) return false;
  no_result(&outs[3]);
  return !bias || shape_empty_like(bias, &outs[3]);
}

/* ---- recurrent cells ----------------------------------------------------------------------------- */

bool shape_lstm_cell(const aten_call *call, aten_shape *outs) { /* Meta fails without biases */
  const aten_tensor *x = aten_call_tensor(call, 0), *h = aten_call_tensor(call, 1), *cx = aten_call_tensor(call, 2);
  if (!x || !h || !cx || x->rank != 2 || cx->rank != 2 || !same_sizes(x, h) || x->sizes[0] != cx->sizes[0] ||
      x->sizes[1] != 4 * cx->sizes[1])
    return false;
  for (uint32_t i = 0; i < 2; ++i) shape_of(&outs[i], cx->dtype, 2, cx->sizes);
  shape_of(&outs[2], x->dtype, 2, x->sizes);
  return true;
}

bool shape_gru_cell(const aten_call *call, aten_shape *outs) { /* no Meta kernel exists */
  const aten_tensor *x = aten_call_tensor(call, 0), *h = aten_call_tensor(call, 1), *hx = aten_call_tensor(call, 2);
  if (!x || !h || !hx || x->rank != 2 || hx->rank != 2 || !same_sizes(x, h) || x->sizes[0] != hx->sizes[0] ||
      x->sizes[1] != 3 * hx->sizes[1])
    return false;
  shape_of(&outs[0], hx->dtype, 2, hx->sizes);
  shape_of(&outs[1], x->dtype, 2, (int64_t[]){hx->sizes[0], 5 * hx->sizes[1]});
  return true;
}

bool shape_gru_cell_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *g = aten_call_tensor(call, 0), *w = aten_call_tensor(call, 1);
  if (!g || !w || g->rank != 2 || w->rank != 2 || w->sizes[1] != 5 * g->sizes[1] || w->sizes[0] != g->sizes[0])
    return false;
  int64_t gates[2] = {g->sizes[0], 3 * g->sizes[1]};
  for (uint32_t i = 0; i < 2; ++i) shape_of(&outs[i], w->dtype, 2, gates);
  shape_of(&outs[2], g->dtype, 2, g->sizes);
  for (uint32_t i = 3; i < 5; ++i) {
    if (aten_call_int(call, 2, 0)) shape_of(&outs[i], w->dtype, 1, &gates[1]);
    else no_result(&outs[i]);
  }
  return true;
}
