/* The kernels over pairs and fours of k, chosen at run time: bf16 into f32, i16 and i8 into i32. */
#include "soft/kern/gemm_int.h"

#if defined(__x86_64__)
extern const gemm_kernel gemm_bf16_amx_32x32, gemm_i8_amx_32x32, gemm_bf16_avx512bf16_14x32, gemm_i16_avx512vnni_14x32,
    gemm_i16_avx2_6x16, gemm_i8_avx512vnni_14x32;

const gemm_kernel *gemm_bf16_get(void) {
  if (base_cpu()->amx) return &gemm_bf16_amx_32x32;
  /* Intel's vdpbf16ps runs at half the rate of f32 FMA, AMD's at twice. */
  if (base_cpu()->avx512_bf16 && __builtin_cpu_is("amd")) return &gemm_bf16_avx512bf16_14x32;
  return NULL;
}
extern const gemm_skinny gemm_bf16_avx512bf16_skinny;
const gemm_skinny *gemm_bf16_skinny_get(void) {
  return gemm_bf16_get() == &gemm_bf16_avx512bf16_14x32 ? &gemm_bf16_avx512bf16_skinny : NULL;
}
const gemm_kernel *gemm_i16_get(void) {
  if (base_cpu()->avx512_vnni) return &gemm_i16_avx512vnni_14x32;
  return base_cpu()->avx2 ? &gemm_i16_avx2_6x16 : NULL;
}
const gemm_kernel *gemm_i8_get(void) {
  if (base_cpu()->amx) return &gemm_i8_amx_32x32;
  return base_cpu()->avx512_vnni ? &gemm_i8_avx512vnni_14x32 : NULL;
}
#else
const gemm_kernel *gemm_bf16_get(void) { return NULL; }
const gemm_skinny *gemm_bf16_skinny_get(void) { return NULL; }
const gemm_kernel *gemm_i16_get(void) { return NULL; }
const gemm_kernel *gemm_i8_get(void) { return NULL; }
#endif
