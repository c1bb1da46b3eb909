/* The AMX kernels' logic on machines without AMX: gemm_amx.c compiled with its tile instructions emulated in C, run
 * through the blocked engine against a plain loop. (The real instructions are covered by test_soft_gemm where base_cpu()
 * finds them.) Needs AVX-512 for the kernel's edges. */
#include "check.h"

#include "soft/kern/gemm_int.h"

#if defined(__x86_64__)
#define GEMM_AMX_EMULATE
#define gemm_bf16_amx_32x32 gemm_bf16_amx_emulated
#define gemm_i8_amx_32x32 gemm_i8_amx_emulated
#include "soft/kern/gemm_amx.c"

static int64_t pick(uint64_t *seed, int64_t low, int64_t high) {
  return low + (int64_t)(check_random(seed) % (uint64_t)(high - low + 1));
}

static void check_product(uint64_t *seed, int64_t m, int64_t n, int64_t k) {
  const bool a_transposed = pick(seed, 0, 1), b_transposed = pick(seed, 0, 1), accumulate = pick(seed, 0, 1);
  uint16_t *a = malloc((size_t)(m * k + 1) * 2), *b = malloc((size_t)(n * k + 1) * 2);
  float *c = malloc((size_t)(m * n) * 4);
  for (int64_t i = 0; i < m * k; ++i) a[i] = base_bf16_from_f32((float)pick(seed, -4, 4));
  for (int64_t i = 0; i < n * k; ++i) b[i] = base_bf16_from_f32((float)pick(seed, -4, 4));
  for (int64_t i = 0; i < m * n; ++i) c[i] = 7;
  gemm_job job = {.kernel = &gemm_bf16_amx_emulated,
                  .m = m,
                  .n = n,
                  .k = k,
                  .batch = 1,
                  .out = TTPU_F32,
                  .c = c,
                  .c_row = n,
                  .c_col = 1,
                  .beta = accumulate,
                  .a = {.dtype = TTPU_BF16, .data = a, .line = a_transposed ? 1 : k, .k = a_transposed ? m : 1},
                  .b = {.dtype = TTPU_BF16, .data = b, .line = b_transposed ? k : 1, .k = b_transposed ? 1 : n}};
  CHECK_OK(gemm_job_run(&job, NULL));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = accumulate ? 7 : 0;
      for (int64_t p = 0; p < k; ++p)
        sum +=
            base_f32_from_bf16(a[i * job.a.line + p * job.a.k]) * base_f32_from_bf16(b[j * job.b.line + p * job.b.k]);
      if (c[i * n + j] != sum) {
        check_fail(__FILE__, __LINE__, "%dx%dx%d: [%d,%d] is %g, not %g", (int)m, (int)n, (int)k, (int)i, (int)j,
                   (double)c[i * n + j], (double)sum);
        i = m;
        break;
      }
    }
  free(a);
  free(b);
  free(c);
}

static void check_bytes(uint64_t *seed, int64_t m, int64_t n, int64_t k) {
  const bool a_transposed = pick(seed, 0, 1), b_transposed = pick(seed, 0, 1), accumulate = pick(seed, 0, 1);
  int8_t *a = malloc((size_t)(m * k + 1)), *b = malloc((size_t)(n * k + 1));
  int32_t *c = malloc((size_t)(m * n) * 4);
  for (int64_t i = 0; i < m * k; ++i) a[i] = (int8_t)pick(seed, -128, 127);
  for (int64_t i = 0; i < n * k; ++i) b[i] = (int8_t)pick(seed, -128, 127);
  for (int64_t i = 0; i < m * n; ++i) c[i] = 7;
  gemm_job job = {.kernel = &gemm_i8_amx_emulated,
                  .m = m,
                  .n = n,
                  .k = k,
                  .batch = 1,
                  .out = TTPU_I32,
                  .c = c,
                  .c_row = n,
                  .c_col = 1,
                  .beta = accumulate,
                  .a = {.dtype = TTPU_I8, .data = a, .line = a_transposed ? 1 : k, .k = a_transposed ? m : 1},
                  .b = {.dtype = TTPU_I8, .data = b, .line = b_transposed ? k : 1, .k = b_transposed ? 1 : n}};
  CHECK_OK(gemm_job_run(&job, NULL));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = accumulate ? 7 : 0;
      for (int64_t p = 0; p < k; ++p) sum += a[i * job.a.line + p * job.a.k] * b[j * job.b.line + p * job.b.k];
      if (!CHECK_EQ(c[i * n + j], sum)) i = m, j = n;
    }
  free(a);
  free(b);
  free(c);
}

TEST(emulated_tiles_of_bytes) {
  if (!base_cpu()->avx512) return;
  uint64_t seed = 2;
  for (int i = 0; i < 150; ++i) check_bytes(&seed, pick(&seed, 17, 70), pick(&seed, 1, 70), pick(&seed, 0, 200));
  check_bytes(&seed, 150, 90, 1100);
}

TEST(emulated_tiles) {
  if (!base_cpu()->avx512) return;
  uint64_t seed = 1;
  for (int i = 0; i < 150; ++i) check_product(&seed, pick(&seed, 17, 70), pick(&seed, 1, 70), pick(&seed, 0, 100));
  check_product(&seed, 150, 90, 1100);
}
#else
TEST(emulated_tiles_of_bytes) {}
TEST(emulated_tiles) {}
#endif
