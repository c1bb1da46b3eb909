/* Arguments that Meta kernels and shape functions let pass and the CPU's kernels refuse: numbers, texts and dtypes. */
#include <float.h>
#include <string.h>

#include "aten/aten_int.h"

/* c10's name of a float dtype. */
static const char *float_name(ttpu_dtype t) {
  return t == TTPU_F64 ? "Double" : t == TTPU_F32 ? "Float" : t == TTPU_F16 ? "Half" : "BFloat16";
}

static ttpu_status check_each(ir_i64s values, int64_t least, const char *message) {
  for (uint32_t i = 0; i < values.count; ++i)
    if (values.data[i] < least) return base_fail(TTPU_INVALID_ARGUMENT, "%s", message);
  return TTPU_OK;
}

static ttpu_status check_convolution(const aten_call *call) {
  ttpu_status status = check_each(aten_call_ints(call, 4), 0, "negative padding is not supported");
  if (status == TTPU_OK) status = check_each(aten_call_ints(call, 3), 1, "non-positive stride is not supported");
  if (status == TTPU_OK) status = check_each(aten_call_ints(call, 5), 1, "dilation should be greater than zero");
  const aten_tensor *x = aten_call_tensor(call, 0), *weight = aten_call_tensor(call, 1),
                    *bias = aten_call_tensor(call, 2);
  for (int i = 0; i < 2 && status == TTPU_OK; ++i) {
    const aten_tensor *other = i == 0 ? weight : bias;
    if (x != NULL && other != NULL && other->dtype != x->dtype)
      status = base_fail(TTPU_INVALID_ARGUMENT, "convolution: input type (%s) and %s type (%s) should be the same",
                         base_dtypes[x->dtype].name, i == 0 ? "weight" : "bias", base_dtypes[other->dtype].name);
  }
  return status;
}

static ttpu_status check_grid_sampler(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0), *grid = aten_call_tensor(call, 1);
  if (x == NULL || grid == NULL || x->dtype == grid->dtype) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT,
                   "grid_sampler(): expected input and grid to have same dtype, but input has %s and grid has %s",
                   base_dtypes[x->dtype].name, base_dtypes[grid->dtype].name);
}

/* Statistics and weights are of the input's dtype, or float32 beside a narrower one. */
static ttpu_status check_batch_norm(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  for (uint32_t i = 1; i < 5; ++i) {
    const aten_tensor *t = aten_call_tensor(call, i);
    if (x == NULL || t == NULL || t->dtype == x->dtype) continue;
    if (t->dtype == TTPU_F32 && (x->dtype == TTPU_BF16 || x->dtype == TTPU_F16)) continue;
    return base_fail(TTPU_INVALID_ARGUMENT, "batch_norm: expected scalar type %s but found %s",
                     float_name((ttpu_dtype)x->dtype), float_name((ttpu_dtype)t->dtype));
  }
  return TTPU_OK;
}

double aten_float_max(ttpu_dtype t) {
  return t == TTPU_F64 ? DBL_MAX : t == TTPU_F32 ? FLT_MAX : t == TTPU_F16 ? 65504.0 : 0x1.fep127;
}

static ttpu_status check_softshrink(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  double lambda = aten_call_real(call, 1, 1);
  if (x == NULL || !base_dtype_is_float((ttpu_dtype)x->dtype)) return TTPU_OK;
  double most = aten_float_max((ttpu_dtype)x->dtype);
  if (lambda >= 0 && lambda <= most) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "lambda must be in range [0, %g] for input dtype %s, but found %g", most,
                   float_name((ttpu_dtype)x->dtype), lambda);
}

static ttpu_status check_masked_fill(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0), *value = aten_call_tensor(call, 2);
  if (x == NULL || value == NULL || base_dtype_is_complex((ttpu_dtype)x->dtype)) return TTPU_OK;
  if (!base_dtype_is_complex((ttpu_dtype)value->dtype)) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "value cannot be converted to type %s without overflow",
                   base_dtypes[x->dtype].name);
}

static ttpu_status check_gelu(const aten_call *call, uint32_t arg) {
  const char *approximate = call->args[arg].kind == ATEN_TEXT ? call->texts[call->args[arg].first] : "none";
  if (strcmp(approximate, "none") == 0 || strcmp(approximate, "tanh") == 0) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "approximate argument must be either none or tanh.");
}

static ttpu_status check_huber(const aten_call *call) {
  double delta = aten_call_real(call, 3, 1);
  if (delta > 0) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "huber_loss does not support non-positive values for delta.");
}

static ttpu_status check_nll_loss(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0), *weight = aten_call_tensor(call, 2);
  if (x == NULL || weight == NULL || x->dtype == weight->dtype) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "expected scalar type %s but found %s", float_name((ttpu_dtype)x->dtype),
                   float_name((ttpu_dtype)weight->dtype));
}

static ttpu_status check_leaky_relu_backward(const aten_call *call) {
  if (!aten_call_int(call, 3, 0) || aten_call_real(call, 2, 1) >= 0) return TTPU_OK;
  return base_fail(
      TTPU_INVALID_ARGUMENT,
      "In-place leakyReLu backward calculation is triggered with a negative slope which is not supported. "
      "This is caused by calling in-place forward function with a negative slope, please call out-of-place "
      "version instead.");
}

static ttpu_status check_kthvalue(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0);
  int64_t k = aten_call_int(call, 1, 1), dim = aten_call_int(call, 2, -1);
  if (x == NULL || dim < -(int64_t)x->rank || dim >= (int64_t)x->rank)
    return TTPU_OK; /* a wrong dim is Meta's to refuse */
  if (dim < 0) dim += x->rank;
  if (k >= 1 && k <= (x->rank > 0 ? x->sizes[dim] : 1)) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "kthvalue(): selected number k out of range for dimension %lld",
                   (long long)dim);
}

static ttpu_status check_multinomial(const aten_call *call) {
  const aten_tensor *x = aten_call_tensor(call, 0), *out = call->arg_count > 4 ? aten_call_tensor(call, 4) : NULL;
  if (x != NULL && !base_dtype_is_float((ttpu_dtype)x->dtype))
    return base_fail(TTPU_INVALID_ARGUMENT, "multinomial only supports floating-point dtypes for input, got: %s",
                     base_dtypes[x->dtype].name);
  if (out != NULL && out->dtype != TTPU_I64)
    return base_fail(TTPU_INVALID_ARGUMENT, "multinomial expects Long tensor out, got: %s",
                     base_dtypes[out->dtype].name);
  if (x == NULL || x->rank == 0 || x->rank > 2) return TTPU_OK; /* Meta refuses it */
  int64_t samples = aten_call_int(call, 1, 0), categories = x->sizes[x->rank - 1];
  if (samples <= 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "multinomial: cannot sample n_sample <= 0 samples, got %lld",
                     (long long)samples);
  if (!aten_call_int(call, 2, 0) && samples > categories)
    return base_fail(
        TTPU_INVALID_ARGUMENT,
        "multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement, got %lld of %lld",
        (long long)samples, (long long)categories);
  if (categories > 1 << 24)
    return base_fail(TTPU_INVALID_ARGUMENT, "multinomial: number of categories cannot exceed 2^24, got %lld",
                     (long long)categories);
  return TTPU_OK;
}

ttpu_status aten_call_check(const aten_call *call) {
  aten_lower_fn lower = call->row->lower;
  if (lower == lower_convolution) return check_convolution(call);
  if (lower == lower_grid_sampler_2d || lower == lower_grid_sampler_3d) return check_grid_sampler(call);
  if (lower == lower_batch_norm) return check_batch_norm(call);
  if (lower == lower_masked_fill_tensor) return check_masked_fill(call);
  if (lower == lower_softshrink) return check_softshrink(call);
  if (lower == lower_gelu) return check_gelu(call, 1);
  if (lower == lower_gelu_backward) return check_gelu(call, 2);
  if (lower == lower_huber_loss) return check_huber(call);
  if (lower == lower_nll_loss_forward) return check_nll_loss(call);
  if (lower == lower_leaky_relu_backward) return check_leaky_relu_backward(call);
  if (lower == lower_kthvalue) return check_kthvalue(call);
  if (lower == lower_multinomial) return check_multinomial(call);
  if (lower == lower_index_put) return aten_index_put_check(call);
  return TTPU_OK;
}
