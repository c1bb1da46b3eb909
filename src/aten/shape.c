/* Shape functions: what PyTorch's Meta kernels say about results, in C and in a tenth of a microsecond, for the
 * operators that loops run with changing sizes. Meta is the oracle; tests/aten/oracle.py compares. A function
 * returns false for what it is not sure of and for what is wrong: then Meta is asked, and raises PyTorch's error.
 *
 * The default dtype (torch.set_default_dtype) is not known here, so that a result that depends on it goes to Meta.
 */
#include <math.h>
#include <string.h>

#include "aten/aten_int.h"

enum { FORMAT_CONTIGUOUS = 0, FORMAT_PRESERVE = 1, FORMAT_CHANNELS_LAST = 2 }; /* c10::MemoryFormat */

/* memcpy and memcmp on the numbers of a rank: a rank of 0 may come with null pointers. */
static void copy_numbers(int64_t *to, const int64_t *from, uint32_t rank) {
  if (rank) memcpy(to, from, rank * sizeof *to);
}
static bool same_numbers(const int64_t *a, const int64_t *b, uint32_t rank) {
  return rank == 0 || memcmp(a, b, rank * sizeof *a) == 0;
}

/* ---- memory layouts ------------------------------------------------------------------------------ */

void aten_shape_contiguous(aten_shape *out) { base_row_major(out->rank, out->sizes, out->strides); }

bool aten_is_contiguous(const aten_tensor *t) {
  int64_t expected = 1;
  if (base_numel(t->rank, t->sizes) == 0) return true;
  for (uint32_t i = t->rank; i-- > 0;) {
    if (t->sizes[i] == 1) continue;
    if (t->strides[i] != expected) return false;
    expected *= t->sizes[i];
  }
  return true;
}

void aten_shape_channels_last(aten_shape *out) {
  int64_t next = 1;
  for (uint32_t i = 0; i < out->rank; ++i) {
    uint32_t d = i == 0                ? 1
                 : i == out->rank - 1u ? 0
                                       : out->rank - i; /* channels, the image's dims from the last, batch */
    out->strides[d] = next;
    next *= out->sizes[d] > 1 ? out->sizes[d] : 1;
  }
}

bool aten_is_channels_last(const aten_tensor *t) {
  static const int order[4] = {1, 3, 2, 0};
  int64_t expected = 1;
  if (t->rank != 4) return false;
  for (int i = 0; i < 4; ++i) {
    int d = order[i];
    if (t->sizes[d] == 1) continue;
    if (t->strides[d] != expected) return false;
    expected *= t->sizes[d];
  }
  return true;
}

/* PyTorch's test for "strides like channels last", by which operators choose their result's layout. */
bool aten_prefers_channels_last(const aten_tensor *t) {
  static const uint32_t order[2][5] = {{1, 3, 2, 0}, {1, 4, 3, 2, 0}};
  if (t->rank != 4 && t->rank != 5) return false;
  int64_t least = 0;
  if (t->strides[1] == 0) return false;
  for (uint32_t i = 0; i < t->rank; ++i) {
    uint32_t d = order[t->rank - 4][i];
    if (t->sizes[d] == 0 || t->strides[d] < least) return false;
    if (d == 0 && least == t->strides[1]) return false;
    least = t->strides[d] * (t->sizes[d] > 1 ? t->sizes[d] : 1);
  }
  return true;
}

/* Some order of its dimensions is contiguous. */
bool aten_is_dense(const aten_tensor *t) {
  uint32_t order[TTPU_MAX_RANK];
  if (aten_is_contiguous(t)) return true;  /* an empty tensor is, whatever its strides */
  for (uint32_t i = 0; i < t->rank; ++i) { /* by stride, sizes 0 and 1 last, as c10 sorts them */
    uint32_t j = i;
    order[i] = i;
    for (; j > 0; --j) {
      uint32_t a = order[j - 1], d = order[j];
      if (t->sizes[d] < 2 || (t->sizes[a] >= 2 && t->strides[a] <= t->strides[d])) break;
      order[j - 1] = d;
      order[j] = a;
    }
  }
  int64_t expected = 1;
  for (uint32_t i = 0; i < t->rank; ++i) {
    int64_t size = t->sizes[order[i]];
    if (size < 2) return true;
    if (t->strides[order[i]] != expected) return false;
    expected *= size;
  }
  return true;
}

/* at::infer_dense_strides for a tensor that is not dense. */
void aten_shape_preserve(const aten_tensor *t, aten_shape *out) {
  out->rank = t->rank;
  copy_numbers(out->sizes, t->sizes, t->rank);
  if (aten_is_dense(t)) {
    copy_numbers(out->strides, t->strides, t->rank);
    return;
  }
  uint32_t order[TTPU_MAX_RANK], n = t->rank;
  for (uint32_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  for (uint32_t i = 1; i < n; ++i)
    for (uint32_t at = i, j = i; j-- > 0;) {
      int64_t a = t->strides[order[j]], b = t->strides[order[at]];
      bool ambiguous = a == 0 || b == 0 || (a == b && t->sizes[order[j]] <= t->sizes[order[at]]);
      if (ambiguous) continue;
      if (a < b) break;
      uint32_t kept = order[j];
      order[j] = order[at];
      order[at] = kept;
      at = j;
    }
  int64_t next = 1;
  for (uint32_t i = 0; i < n; ++i) {
    out->strides[order[i]] = next;
    next *= t->sizes[order[i]] > 1 ? t->sizes[order[i]] : 1;
  }
}

/* ---- TensorIterator ------------------------------------------------------------------------------ */

static bool broadcast_sizes(uint32_t count, const aten_tensor *const *operands, aten_shape *out, bool *same) {
  *same = true;
  out->rank = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const aten_tensor *t = operands[k];
    if (k && (t->rank != out->rank || !same_numbers(t->sizes, out->sizes, t->rank))) *same = false;
    uint32_t rank = t->rank > out->rank ? t->rank : out->rank;
    int64_t sizes[TTPU_MAX_RANK];
    for (uint32_t i = 0; i < rank; ++i) {
      int64_t a = i < out->rank ? out->sizes[out->rank - 1 - i] : 1, b = i < t->rank ? t->sizes[t->rank - 1 - i] : 1;
      if (a != b && a != 1 && b != 1) return false;
      sizes[rank - 1 - i] = a == 1 ? b : a;
    }
    out->rank = (uint8_t)rank;
    copy_numbers(out->sizes, sizes, rank);
  }
  return true;
}

/* The stride of t along dimension dim of out: 0 where t is broadcast. */
static int64_t stride_in(const aten_tensor *t, const aten_shape *out, uint32_t dim) {
  uint32_t lead = out->rank - t->rank;
  if (dim < lead) return 0;
  return t->sizes[dim - lead] == 1 && out->sizes[dim] != 1 ? 0 : t->strides[dim - lead];
}

/* TensorIteratorBase::reorder_dimensions' should_swap, for dimensions a (faster so far) and b. */
static int order_of(uint32_t count, const aten_tensor *const *operands, const aten_shape *out, uint32_t a, uint32_t b) {
  for (uint32_t k = 0; k < count; ++k) {
    int64_t stride_a = stride_in(operands[k], out, a), stride_b = stride_in(operands[k], out, b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
    if (out->sizes[a] > out->sizes[b]) return 1;
  }
  return 0;
}

static void iterator_strides(uint32_t count, const aten_tensor *const *operands, aten_shape *out) {
  uint32_t order[TTPU_MAX_RANK], n = out->rank;
  bool reversed = true;
  for (uint32_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  for (uint32_t i = 1; i < n; ++i)
    for (uint32_t at = i, j = i; j-- > 0;) {
      int which = order_of(count, operands, out, order[j], order[at]);
      if (which < 0) break;
      if (which == 0) continue;
      uint32_t kept = order[j];
      order[j] = order[at];
      order[at] = kept;
      at = j;
    }
  for (uint32_t i = 0; i < n; ++i) reversed &= order[i] == n - 1 - i;
  if (reversed) return aten_shape_contiguous(out);
  int64_t next = 1;
  for (uint32_t i = 0; i < n; ++i) {
    out->strides[order[i]] = next;
    next *= out->sizes[order[i]];
  }
}

bool aten_shape_broadcast(uint32_t count, const aten_tensor *const *operands, aten_shape *out) {
  bool same, contiguous = true, channels_last = true, dense = true;
  if (count == 0 || !broadcast_sizes(count, operands, out, &same)) return false;
  if (!same) return iterator_strides(count, operands, out), true;
  for (uint32_t k = 0; k < count; ++k) {
    const aten_tensor *t = operands[k];
    contiguous = contiguous && aten_is_contiguous(t);
    channels_last = channels_last && aten_is_channels_last(t);
    dense = dense && aten_is_dense(t) && same_numbers(t->strides, operands[0]->strides, t->rank);
  }
  if (contiguous) aten_shape_contiguous(out);
  else if (channels_last) aten_shape_channels_last(out);
  else if (dense) copy_numbers(out->strides, operands[0]->strides, out->rank);
  else iterator_strides(count, operands, out);
  return true;
}

/* ---- pointwise ----------------------------------------------------------------------------------- */

/* Collects arguments [0, args) of a pointwise call: its tensors, and the promotion of those in `promoted`. Most Scalar
 * overloads make a 0-d tensor of their number, which then takes part in the iteration (`operands`). False where the
 * promotion rests on the default dtype. */
typedef struct pointwise {
  const aten_tensor *tensors[8];
  uint32_t count;
  ttpu_dtype dtype;
} pointwise;

static bool collect(const aten_call *call, uint32_t args, uint32_t promoted, uint32_t operands, pointwise *p) {
  static const int64_t no_sizes[1] = {1};
  static const aten_tensor zero_dimensional = {.sizes = no_sizes, .strides = no_sizes};
  aten_promotion types = {0};
  bool from_tensor = false;
  p->count = 0;
  for (uint32_t i = 0; i < args && i < call->arg_count && i < 8; ++i) {
    const aten_tensor *t = aten_call_tensor(call, i);
    const aten_number *n = aten_call_number(call, i);
    if (t) p->tensors[p->count++] = t;
    if (n && (operands >> i & 1)) p->tensors[p->count++] = &zero_dimensional;
    if (!(promoted >> i & 1)) continue;
    if (t) {
      aten_promotion_add(&types, t);
      from_tensor |= !(t->flags & ATEN_WRAPPED) &&
                     (base_dtype_is_float((ttpu_dtype)t->dtype) || base_dtype_is_complex((ttpu_dtype)t->dtype));
    } else if (n) {
      aten_promotion_add_number(&types, n->dtype);
    }
  }
  p->dtype = aten_promotion_result(&types);
  bool fractional = base_dtype_is_float(p->dtype) || base_dtype_is_complex(p->dtype);
  return p->count > 0 && p->dtype != TTPU_NO_DTYPE && (from_tensor || !fractional);
}

static bool pointwise_shape(const aten_call *call, uint32_t args, uint32_t promoted, uint32_t operands, bool to_float,
                            aten_shape *outs) {
  pointwise p;
  if (!collect(call, args, promoted, operands, &p)) return false;
  if (to_float && !base_dtype_is_float(p.dtype) && !base_dtype_is_complex(p.dtype)) return false;
  outs->dtype = (uint8_t)p.dtype;
  return aten_shape_broadcast(p.count, p.tensors, outs);
}

static bool predicate_shape(const aten_call *call, uint32_t args, uint32_t promoted, aten_shape *outs) {
  pointwise p;
  collect(call, args, promoted, promoted, &p);
  outs->dtype = TTPU_BOOL;
  return p.count > 0 && p.dtype != TTPU_NO_DTYPE && aten_shape_broadcast(p.count, p.tensors, outs);
}

static bool any_complex(const aten_call *call) {
  for (uint32_t i = 0; i < call->tensor_count; ++i)
    if (base_dtype_is_complex((ttpu_dtype)call->tensors[i].dtype)) return true;
  for (uint32_t i = 0; i < call->number_count; ++i)
    if (call->numbers[i].dtype == TTPU_C128) return true;
  return false;
}
static bool any_bool(const aten_call *call) {
  for (uint32_t i = 0; i < call->tensor_count; ++i)
    if (call->tensors[i].dtype == TTPU_BOOL) return true;
  return false;
}

bool shape_unary(const aten_call *call, aten_shape *outs) { return pointwise_shape(call, 1, 1, 0, false, outs); }
bool shape_unary_float(const aten_call *call, aten_shape *outs) { return pointwise_shape(call, 1, 1, 0, true, outs); }
/* For functions of real numbers, and those that refuse bool: Meta raises. */
bool shape_unary_real(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && !any_bool(call) && shape_unary(call, outs);
}
bool shape_unary_float_real(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && shape_unary_float(call, outs);
}
bool shape_unary_number(const aten_call *call, aten_shape *outs) { return !any_bool(call) && shape_unary(call, outs); }
bool shape_unary_bool(const aten_call *call, aten_shape *outs) { return predicate_shape(call, 1, 1, outs); }
bool shape_unary_bool_real(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && shape_unary_bool(call, outs);
}

bool shape_binary(const aten_call *call, aten_shape *outs) { return pointwise_shape(call, 2, 3, 3, false, outs); }
bool shape_binary_float(const aten_call *call, aten_shape *outs) { return pointwise_shape(call, 2, 3, 3, true, outs); }
/* add and sub: an alpha that is no integer needs floats, which Meta looks at; sub refuses bool. */
bool shape_add(const aten_call *call, aten_shape *outs) {
  const aten_number *alpha = aten_call_number(call, 2);
  if (!shape_binary(call, outs)) return false;
  bool whole = !base_dtype_is_float((ttpu_dtype)outs->dtype) && !base_dtype_is_complex((ttpu_dtype)outs->dtype);
  if (!alpha || alpha->dtype == TTPU_I64) return true;
  return alpha->dtype == TTPU_F64 ? !whole : false;
}
bool shape_sub(const aten_call *call, aten_shape *outs) { return !any_bool(call) && shape_add(call, outs); }
bool shape_binary_real(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && shape_binary(call, outs);
}
/* Division with a remainder: of bools there is none. */
bool shape_binary_number(const aten_call *call, aten_shape *outs) {
  return shape_binary_real(call, outs) && outs->dtype != TTPU_BOOL;
}
bool shape_binary_float_real(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && shape_binary_float(call, outs);
}
/* Integers only: the result is what Meta would refuse to make of floats. */
bool shape_bitwise(const aten_call *call, aten_shape *outs) {
  if (!shape_binary(call, outs)) return false;
  return !base_dtype_is_float((ttpu_dtype)outs->dtype) && !base_dtype_is_complex((ttpu_dtype)outs->dtype);
}
bool shape_compare(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && predicate_shape(call, 2, 3, outs);
}
bool shape_equal(const aten_call *call, aten_shape *outs) { return predicate_shape(call, 2, 3, outs); }

/* div with a rounding mode: without one it is true division. */
bool shape_div_mode(const aten_call *call, aten_shape *outs) {
  if (any_complex(call)) return false;
  bool rounds = call->arg_count >= 3 && call->args[2].kind == ATEN_TEXT;
  return pointwise_shape(call, 2, 3, 3, !rounds, outs) && outs->dtype != TTPU_BOOL;
}

/* A float base: integers with a negative exponent are refused, bools are promoted. */
bool shape_pow(const aten_call *call, aten_shape *outs) {
  return pointwise_shape(call, 2, 3, 0, false, outs) && base_dtype_is_float((ttpu_dtype)outs->dtype);
}

bool shape_addcmul(const aten_call *call, aten_shape *outs) {
  return pointwise_shape(call, 3, 7, 0, false, outs) && base_dtype_is_float((ttpu_dtype)outs->dtype);
}
/* lerp wants one dtype in all its tensors. */
bool shape_lerp(const aten_call *call, aten_shape *outs) {
  const aten_tensor *x = aten_call_tensor(call, 0), *y = aten_call_tensor(call, 1), *w = aten_call_tensor(call, 2);
  if (!x || !y || x->dtype != y->dtype || (w && w->dtype != x->dtype) || !base_dtype_is_float((ttpu_dtype)x->dtype))
    return false;
  return pointwise_shape(call, 3, 3, 0, false, outs);
}

bool shape_where(const aten_call *call, aten_shape *outs) {
  const aten_tensor *pred = aten_call_tensor(call, 0);
  return pred && pred->dtype == TTPU_BOOL && pointwise_shape(call, 3, 6, 0, false, outs);
}

bool shape_clamp(const aten_call *call, aten_shape *outs) {
  if (any_complex(call) || (!aten_call_has(call, 1) && !aten_call_has(call, 2))) return false;
  return pointwise_shape(call, 3, 7, 0, false, outs);
}

/* clamp_min and clamp_max, whose number is no operand. */
bool shape_clamp_bound(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && !any_bool(call) && pointwise_shape(call, 2, 3, 0, false, outs);
}

/* ---- reductions ---------------------------------------------------------------------------------- */

/* Drops (or keeps as 1) the dims of a mask; results of reductions are contiguous. */
static void reduced_shape(const aten_tensor *t, uint32_t mask, bool keep, aten_shape *out) {
  out->rank = 0;
  for (uint32_t i = 0; i < t->rank; ++i) {
    bool reduced = mask >> i & 1;
    if (!reduced || keep) out->sizes[out->rank++] = reduced ? 1 : t->sizes[i];
  }
  aten_shape_contiguous(out);
}

/* The dims that a list names; false for one outside, or named twice. */
static bool dims_mask(const aten_call *call, uint32_t arg, uint32_t rank, uint32_t *mask) {
  ir_i64s list = aten_call_ints(call, arg);
  int64_t n = rank ? rank : 1;
  *mask = 0;
  for (uint32_t i = 0; i < list.count; ++i) {
    int64_t dim = list.data[i] < 0 ? list.data[i] + n : list.data[i];
    if (dim < 0 || dim >= n || (*mask >> dim & 1)) return false;
    *mask |= 1u << dim;
  }
  if (list.count == 0) *mask = ~0u;
  return true;
}

static bool reduce_dims(const aten_call *call, uint32_t keep_arg, bool nonempty, aten_shape *out) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  uint32_t mask;
  if (!t || !dims_mask(call, 1, t->rank, &mask)) return false;
  if (nonempty && base_numel(t->rank, t->sizes) == 0) return false;
  reduced_shape(t, mask, aten_call_int(call, keep_arg, 0) != 0, out);
  return true;
}

static bool sum_dtype(const aten_call *call, uint32_t dtype_arg, aten_shape *out) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  int64_t asked = aten_call_int(call, dtype_arg, TTPU_NO_DTYPE);
  ttpu_dtype own = (ttpu_dtype)t->dtype;
  bool whole = !base_dtype_is_float(own) && !base_dtype_is_complex(own);
  out->dtype = (uint8_t)(asked ? asked : whole ? TTPU_I64 : own);
  return true;
}

bool shape_sum(const aten_call *call, aten_shape *outs) {
  if (!aten_call_tensor(call, 0)) return false;
  outs->rank = 0;
  return sum_dtype(call, 1, outs);
}
bool shape_sum_dim(const aten_call *call, aten_shape *outs) {
  return reduce_dims(call, 2, false, outs) && sum_dtype(call, 3, outs);
}

bool shape_nansum(const aten_call *call, aten_shape *outs) { return !any_complex(call) && shape_sum_dim(call, outs); }

static bool is_fractional(ttpu_dtype t) { return base_dtype_is_float(t) || base_dtype_is_complex(t); }

bool shape_mean(const aten_call *call, aten_shape *outs) {
  return shape_sum(call, outs) && is_fractional((ttpu_dtype)outs->dtype);
}
bool shape_mean_dim(const aten_call *call, aten_shape *outs) {
  return shape_sum_dim(call, outs) && is_fractional((ttpu_dtype)outs->dtype);
}

static bool self_dtype(const aten_call *call, aten_shape *out) {
  out->dtype = aten_call_tensor(call, 0)->dtype;
  return true;
}

bool shape_amax(const aten_call *call, aten_shape *outs) {
  return !any_complex(call) && reduce_dims(call, 2, true, outs) && self_dtype(call, outs);
}

/* The least and the largest, of everything or along the dim that argument 1 names. */
bool shape_aminmax(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  uint32_t mask = ~0u;
  if (!t || base_numel(t->rank, t->sizes) == 0 || any_complex(call)) return false;
  if (aten_call_has(call, 1)) {
    int64_t n = t->rank ? t->rank : 1, dim = aten_call_int(call, 1, 0);
    if (dim < -n || dim >= n) return false;
    mask = 1u << (dim < 0 ? dim + n : dim);
  }
  reduced_shape(t, mask, aten_call_int(call, 2, 0) != 0, outs);
  outs->dtype = t->dtype;
  outs[1] = outs[0];
  return true;
}

/* max and min of everything; any and all. */
bool shape_extreme(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  if (!t || base_numel(t->rank, t->sizes) == 0 || any_complex(call)) return false;
  outs->rank = 0;
  return self_dtype(call, outs);
}
static bool truth_dtype(const aten_call *call, aten_shape *out) {
  out->dtype = aten_call_tensor(call, 0)->dtype == TTPU_U8 ? TTPU_U8 : TTPU_BOOL;
  return true;
}
bool shape_any(const aten_call *call, aten_shape *outs) {
  if (!aten_call_tensor(call, 0)) return false;
  outs->rank = 0;
  return truth_dtype(call, outs);
}
bool shape_any_dim(const aten_call *call, aten_shape *outs) {
  if (aten_call_ints(call, 1).count == 0) return false;
  return reduce_dims(call, 2, false, outs) && truth_dtype(call, outs);
}

bool shape_max_dim(const aten_call *call, aten_shape *outs) {
  if (any_complex(call) || !reduce_dims(call, 2, true, outs) || !self_dtype(call, outs)) return false;
  outs[1] = outs[0];
  outs[1].dtype = TTPU_I64;
  return true;
}

bool shape_argmax(const aten_call *call, aten_shape *outs) {
  if (any_complex(call) || any_bool(call) || !reduce_dims(call, 2, true, outs)) return false;
  outs->dtype = TTPU_I64;
  return true;
}

static bool variance_shape(const aten_call *call, uint32_t results, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  if (!t || !base_dtype_is_float((ttpu_dtype)t->dtype) || !reduce_dims(call, 3, true, outs)) return false;
  self_dtype(call, outs);
  if (results == 2) outs[1] = outs[0];
  return true;
}
bool shape_var(const aten_call *call, aten_shape *outs) { return variance_shape(call, 1, outs); }
bool shape_var_mean(const aten_call *call, aten_shape *outs) { return variance_shape(call, 2, outs); }

bool shape_vector_norm(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  uint32_t mask;
  if (!t || !base_dtype_is_float((ttpu_dtype)t->dtype) || aten_call_has(call, 4)) return false;
  if (base_numel(t->rank, t->sizes) == 0 || !dims_mask(call, 2, t->rank, &mask)) return false;
  reduced_shape(t, mask, aten_call_int(call, 3, 0) != 0, outs);
  return self_dtype(call, outs);
}

bool shape_logsumexp(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  if (!t || !base_dtype_is_float((ttpu_dtype)t->dtype) || aten_call_ints(call, 1).count == 0) return false;
  return reduce_dims(call, 2, true, outs) && self_dtype(call, outs);
}

bool shape_cumsum(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  uint32_t mask;
  if (!t || !dims_mask(call, 1, t->rank, &mask)) return false;
  outs->rank = t->rank;
  copy_numbers(outs->sizes, t->sizes, t->rank);
  aten_shape_contiguous(outs);
  return sum_dtype(call, 2, outs);
}

/* ---- copies and new tensors ---------------------------------------------------------------------- */

static bool like_shape(const aten_call *call, uint32_t dtype_arg, uint32_t format_arg, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  if (!t) return false;
  outs->dtype = (uint8_t)aten_call_int(call, dtype_arg, t->dtype);
  aten_shape_preserve(t, outs);
  switch (aten_call_int(call, format_arg, FORMAT_PRESERVE)) {
    case FORMAT_PRESERVE: return true;
    case FORMAT_CONTIGUOUS: aten_shape_contiguous(outs); return true;
    case FORMAT_CHANNELS_LAST:
      if (t->rank != 4) return false;
      aten_shape_channels_last(outs);
      return true;
    default: return false;
  }
}

static const uint32_t none = ~0u;
bool shape_clone(const aten_call *call, aten_shape *outs) { return like_shape(call, none, 1, outs); }
bool shape_preserve(const aten_call *call, aten_shape *outs) { return like_shape(call, none, none, outs); }
bool shape_flip(const aten_call *call, aten_shape *outs) {
  uint32_t mask;
  return dims_mask(call, 1, aten_call_tensor(call, 0)->rank, &mask) && shape_preserve(call, outs);
}
bool shape_like(const aten_call *call, aten_shape *outs) { return like_shape(call, 1, 5, outs); }
bool shape_full_like(const aten_call *call, aten_shape *outs) { return like_shape(call, 2, 6, outs); }

static bool shape_contiguous(const aten_call *call, aten_shape *outs) {
  if (!shape_preserve(call, outs)) return false;
  aten_shape_contiguous(outs);
  return true;
}

bool shape_matrix(const aten_call *call, aten_shape *outs) { return shape_contiguous(call, outs) && outs->rank >= 2; }

/* Output and mask; without training too, where Meta hands out the input itself. */
bool shape_native_dropout(const aten_call *call, aten_shape *outs) {
  if (!shape_preserve(call, outs) || !base_dtype_is_float((ttpu_dtype)outs->dtype)) return false;
  outs[1] = outs[0];
  outs[1].dtype = TTPU_BOOL;
  return true;
}
bool shape_native_dropout_backward(const aten_call *call, aten_shape *outs) {
  const aten_tensor *grad = aten_call_tensor(call, 0);
  return grad && aten_is_contiguous(grad) && base_dtype_is_float((ttpu_dtype)grad->dtype) &&
         shape_contiguous(call, outs);
}

static bool sized(const aten_call *call, uint32_t sizes_arg, int64_t dtype, aten_shape *out) {
  ir_i64s sizes = aten_call_ints(call, sizes_arg);
  if (dtype == TTPU_NO_DTYPE || sizes.count > TTPU_MAX_RANK) return false;
  for (uint32_t i = 0; i < sizes.count; ++i)
    if (sizes.data[i] < 0) return false;
  out->rank = (uint8_t)sizes.count;
  out->dtype = (uint8_t)dtype;
  copy_numbers(out->sizes, sizes.data, sizes.count);
  aten_shape_contiguous(out);
  return true;
}
bool shape_zeros(const aten_call *call, aten_shape *outs) { return sized(call, 0, aten_call_int(call, 1, 0), outs); }
bool shape_full(const aten_call *call, aten_shape *outs) { return sized(call, 0, aten_call_int(call, 2, 0), outs); }
bool shape_new_zeros(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  return t && sized(call, 1, aten_call_int(call, 2, t->dtype), outs);
}
bool shape_new_full(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  return t && sized(call, 1, aten_call_int(call, 3, t->dtype), outs);
}

/* Integer ranges; with floats the number of elements is a matter of rounding, which is Meta's. */
static bool arange_shape(const aten_call *call, int64_t start, uint32_t end_arg, int64_t step, uint32_t dtype_arg,
                         aten_shape *out) {
  const aten_number *end = aten_call_number(call, end_arg);
  if (!end || end->dtype != TTPU_I64 || step == 0) return false;
  int64_t dtype = aten_call_int(call, dtype_arg, TTPU_I64), way = end->value.i - start;
  if (way != 0 && (way < 0) != (step < 0)) return false;
  out->rank = 1;
  out->dtype = (uint8_t)dtype;
  out->sizes[0] = way / step + (way % step != 0);
  out->strides[0] = 1;
  return dtype != TTPU_BOOL;
}
static bool integer(const aten_call *call, uint32_t arg, int64_t *value) {
  const aten_number *n = aten_call_number(call, arg);
  if (!n || n->dtype != TTPU_I64 || n->value.i > (1ll << 52) || n->value.i < -(1ll << 52)) return false;
  *value = n->value.i;
  return true;
}
bool shape_arange(const aten_call *call, aten_shape *outs) {
  int64_t end;
  return integer(call, 0, &end) && arange_shape(call, 0, 0, 1, 1, outs);
}
bool shape_arange_start(const aten_call *call, aten_shape *outs) {
  int64_t start, end;
  return integer(call, 0, &start) && integer(call, 1, &end) && arange_shape(call, start, 1, 1, 2, outs);
}
bool shape_arange_step(const aten_call *call, aten_shape *outs) {
  int64_t start, end, step = 1;
  if (!integer(call, 0, &start) || !integer(call, 1, &end)) return false;
  if (aten_call_has(call, 2) && !integer(call, 2, &step)) return false;
  return arange_shape(call, start, 1, step, 3, outs);
}

/* A range written to an out= argument that has as many elements leaves its sizes alone. Of others Meta knows more. */
static bool filled_shape(const aten_call *call, uint32_t out_arg, double count, aten_shape *out) {
  const aten_tensor *t = aten_call_tensor(call, out_arg);
  if (!t || (double)base_numel(t->rank, t->sizes) != count) return false;
  out->dtype = t->dtype;
  out->rank = t->rank;
  copy_numbers(out->sizes, t->sizes, t->rank);
  copy_numbers(out->strides, t->strides, t->rank);
  return t->dtype != TTPU_BOOL;
}
/* How many steps fit between start and end, arguments 0 and 1; NaN where the step leads the other way, and where out=,
 * argument 3, is complex. */
static double steps_between(const aten_call *call) {
  const aten_tensor *out = aten_call_tensor(call, 3);
  if (!out || base_dtype_is_complex((ttpu_dtype)out->dtype)) return NAN;
  double steps = (aten_call_real(call, 1, NAN) - aten_call_real(call, 0, NAN)) / aten_call_real(call, 2, 1);
  return steps >= 0 ? steps : NAN;
}
bool shape_arange_out(const aten_call *call, aten_shape *outs) {
  return filled_shape(call, 3, ceil(steps_between(call)), outs);
}
bool shape_range_out(const aten_call *call, aten_shape *outs) {
  return filled_shape(call, 3, floor(steps_between(call)) + 1, outs);
}
bool shape_linspace_out(const aten_call *call, aten_shape *outs) {
  return filled_shape(call, 3, (double)aten_call_int(call, 2, -1), outs);
}
bool shape_logspace_out(const aten_call *call, aten_shape *outs) {
  return filled_shape(call, 4, (double)aten_call_int(call, 2, -1), outs);
}

bool shape_repeat(const aten_call *call, aten_shape *outs) {
  const aten_tensor *t = aten_call_tensor(call, 0);
  ir_i64s repeats = aten_call_ints(call, 1);
  if (!t || !sized(call, 1, t->dtype, outs) || repeats.count < t->rank) return false;
  uint32_t lead = repeats.count - t->rank;
  for (uint32_t i = 0; i < t->rank; ++i) outs->sizes[lead + i] *= t->sizes[i];
  aten_shape_contiguous(outs);
  return true;
}
