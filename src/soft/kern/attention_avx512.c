/* Attention's softmax, avx512. */
#include "soft/kern/simd_avx512.h"
#include "soft/kern/attention_int.h"

#define R_NAME(x) x##_f32
#define R_T float
#define R_V f32v
#define R_OP(op) f32_##op
#define R_LANES F32_LANES
#include "soft/kern/attention_rows.inc"
#undef R_NAME
#undef R_T
#undef R_V
#undef R_OP
#undef R_LANES

#define R_NAME(x) x##_f64
#define R_T double
#define R_V f64v
#define R_OP(op) f64_##op
#define R_LANES F64_LANES
#include "soft/kern/attention_rows.inc"

const attention_kernels SIMD_NAME(attention_kernels) = {softmax_f32, softmax_f64, scale_f32, scale_f64};
