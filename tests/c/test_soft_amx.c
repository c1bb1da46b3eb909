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

/* What a product is made of: bfloat16 summed in f32, or bytes in i32. Both are exact for the values here. */
typedef struct sort {
  const gemm_kernel *kernel;
  ttpu_dtype in, out;
  int64_t low, high; /* of the values */
} sort;
static const sort floats = {&gemm_bf16_amx_emulated, TTPU_BF16, TTPU_F32, -4, 4};
static const sort bytes = {&gemm_i8_amx_emulated, TTPU_I8, TTPU_I32, -128, 127};

static void *random_matrix(uint64_t *seed, const sort *s, int64_t count) {
  void *data = malloc((size_t)(count + 1) * base_dtype_bytes(s->in));
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = pick(seed, s->low, s->high);
    if (s->in == TTPU_I8) ((int8_t *)data)[i] = (int8_t)value;
    else ((uint16_t *)data)[i] = base_bf16_from_f32((float)value);
  }
  return data;
}

static double element(ttpu_dtype t, const void *data, int64_t i) {
  switch ((int)t) {
    case TTPU_I8: return ((const int8_t *)data)[i];
    case TTPU_I32: return ((const int32_t *)data)[i];
    case TTPU_F32: return (double)((const float *)data)[i];
    default: return (double)base_f32_from_bf16(((const uint16_t *)data)[i]);
  }
}

static void fill(ttpu_dtype t, void *data, int64_t count, int value) {
  for (int64_t i = 0; i < count; ++i)
    if (t == TTPU_I32) ((int32_t *)data)[i] = value;
    else ((float *)data)[i] = (float)value;
}

static bool right(const gemm_job *job, int64_t i, int64_t j, double sum) {
  for (int64_t p = 0; p < job->k; ++p)
    sum += element(job->a.dtype, job->a.data, i * job->a.line + p * job->a.k) *
           element(job->b.dtype, job->b.data, j * job->b.line + p * job->b.k);
  double got = element(job->out, job->c, i * job->c_row + j);
  if (got == sum) return true;
  check_fail(__FILE__, __LINE__, "%s, %dx%dx%d: [%d,%d] is %g, not %g", job->kernel->name, (int)job->m, (int)job->n,
             (int)job->k, (int)i, (int)j, got, sum);
  return false;
}

static void check_product(uint64_t *seed, const sort *s, int64_t m, int64_t n, int64_t k) {
  enum { BEFORE = 7 };
  const bool a_transposed = pick(seed, 0, 1), b_transposed = pick(seed, 0, 1), accumulate = pick(seed, 0, 1);
  void *a = random_matrix(seed, s, m * k), *b = random_matrix(seed, s, n * k);
  void *c = malloc((size_t)(m * n) * base_dtype_bytes(s->out));
  fill(s->out, c, m * n, BEFORE);
  gemm_job job = {.kernel = s->kernel,
                  .m = m,
                  .n = n,
                  .k = k,
                  .batch = 1,
                  .out = s->out,
                  .c = c,
                  .c_row = n,
                  .c_col = 1,
                  .beta = accumulate,
                  .a = {.dtype = s->in, .data = a, .line = a_transposed ? 1 : k, .k = a_transposed ? m : 1},
                  .b = {.dtype = s->in, .data = b, .line = b_transposed ? k : 1, .k = b_transposed ? 1 : n}};
  CHECK_OK(gemm_job_run(&job, NULL));
  bool good = true;
  for (int64_t i = 0; i < m && good; ++i)
    for (int64_t j = 0; j < n && good; ++j) good = right(&job, i, j, accumulate ? BEFORE : 0);
  free(a);
  free(b);
  free(c);
}

TEST(emulated_tiles_of_bytes) {
  if (!base_cpu()->avx512) return;
  uint64_t seed = 2;
  for (int i = 0; i < 150; ++i)
    check_product(&seed, &bytes, pick(&seed, 17, 70), pick(&seed, 1, 70), pick(&seed, 0, 200));
  check_product(&seed, &bytes, 150, 90, 1100);
}

TEST(emulated_tiles) {
  if (!base_cpu()->avx512) return;
  uint64_t seed = 1;
  for (int i = 0; i < 150; ++i)
    check_product(&seed, &floats, pick(&seed, 17, 70), pick(&seed, 1, 70), pick(&seed, 0, 100));
  check_product(&seed, &floats, 150, 90, 1100);
}
#else
TEST(emulated_tiles_of_bytes) {}
TEST(emulated_tiles) {}
#endif
