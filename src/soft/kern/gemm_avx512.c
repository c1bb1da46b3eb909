/* gemm for AVX-512: f32 14x32, f64 14x16. Pairs of bf16 and i16 are in gemm_pairs_avx512.c. */
#include "soft/kern/simd_avx512.h"
#include "soft/kern/gemm_int.h"
#include "soft/kern/pack_plain.inc"
#include "soft/kern/pack_avx512.h"

static void pack_4(int lines, int width, int64_t count, const void *src, int64_t line, int64_t k, void *dst) {
  if (k == 1 && line != 1) pack_4_transpose(lines, width, count, src, line, dst);
  else if (line == 1) pack_4_copy(lines, width, count, src, k, dst);
  else pack_plain_4(lines, width, count, src, line, k, dst);
}
static void pack_8(int lines, int width, int64_t count, const void *src, int64_t line, int64_t k, void *dst) {
  if (k == 1 && line != 1) pack_8_transpose(lines, width, count, src, line, dst);
  else if (line == 1) pack_8_copy(lines, width, count, src, k, dst);
  else pack_plain_8(lines, width, count, src, line, k, dst);
}

#define ISA_NAME "avx512"
#define PACK_4 pack_4
#define PACK_8 pack_8
#define PACK_2_PAIRS pack_2_pairs
#include "soft/kern/gemm_isa.inc"
