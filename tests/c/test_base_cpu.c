/* What base_cpu says must be true: each instruction set is used in a child, at each cap that TTPU_CPU can set. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "check.h"

/* The exit code of `body` in a child with TTPU_CPU set; 128 + signal if it died. */
static int run_capped(const char *cap, int (*body)(void)) {
  pid_t child = fork();
  if (child == 0) {
    cap ? setenv("TTPU_CPU", cap, 1) : unsetenv("TTPU_CPU");
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int features_as_bits(void) {
  const base_cpu_features *f = base_cpu();
  return f->avx2 | f->avx512 << 1 | f->avx512_bf16 << 2 | f->avx512_vnni << 3 | f->avx512_fp16 << 4 | f->amx << 5;
}

TEST(caps_only_take_away) {
  int all = run_capped(NULL, features_as_bits);
  CHECK(all < 64);
  CHECK_EQ(run_capped("portable", features_as_bits), 0);
  CHECK_EQ(run_capped("avx2", features_as_bits), all & 1);
  CHECK_EQ(run_capped("avx512", features_as_bits), all & 31);
  CHECK_EQ(run_capped("amx", features_as_bits), all);
  CHECK_EQ(run_capped("nonsense", features_as_bits), all);
  if (all & ~1) CHECK(all & 1); /* each level stands on the one below */
  if (all & ~3) CHECK(all & 2);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma,f16c,bmi2"))) static int use_avx2(void) {
  if (!base_cpu()->avx2) return 0;
  volatile float two = 2;
  __m256 v = _mm256_fmadd_ps(_mm256_set1_ps(two), _mm256_set1_ps(3), _mm256_set1_ps(4));
  v = _mm256_cvtph_ps(_mm256_cvtps_ph(v, 0));
  volatile unsigned shift = 3;
  return _mm256_cvtss_f32(v) == 10 && _bzhi_u32(255, shift) == 7 ? 0 : 1;
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static int use_avx512(void) {
  if (!base_cpu()->avx512) return 0;
  volatile short two = 2;
  __m512i v = _mm512_add_epi16(_mm512_set1_epi16(two), _mm512_set1_epi16(3));
  __m256i w = _mm256_maskz_mullo_epi64(15, _mm256_set1_epi64x(two), _mm256_set1_epi64x(4));
  return _mm512_cmpeq_epi16_mask(v, _mm512_set1_epi16(5)) == 0xffffffffu && _mm256_extract_epi64(w, 3) == 8 ? 0 : 1;
}
/* Tile load and release in our own assembly: the compiler's intrinsics for them are not to be trusted in gcc 12. */
static int use_amx(void) {
  if (!base_cpu()->amx) return 0;
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  config.row_bytes[0] = 64, config.rows[0] = 16;
  __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttilerelease" : : "m"(config));
  return 0;
}
#else
static int use_avx2(void) { return base_cpu()->avx2; }
static int use_avx512(void) { return base_cpu()->avx512; }
static int use_amx(void) { return base_cpu()->amx; }
#endif

TEST(what_is_claimed_works) {
  CHECK_EQ(run_capped(NULL, use_avx2), 0);
  CHECK_EQ(run_capped(NULL, use_avx512), 0);
  CHECK_EQ(run_capped(NULL, use_amx), 0);
}

static int pinned_to_one_core(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return 1;
  unsetenv("TTPU_THREADS");
  return base_cpu()->cores == 1 && base_pool_size() == 1 ? 1 : 0;
}

TEST(cores_and_caches) {
  CHECK_EQ(run_capped(NULL, pinned_to_one_core), 1);
  const base_cpu_features *f = base_cpu(); /* only now: a child would inherit the answer */
  CHECK(f->cores >= 1 && f->cores <= BASE_POOL_MAX);
  CHECK(f->l1d_bytes >= 8 << 10 && f->l2_bytes >= 128 << 10 && f->l3_bytes >= 1 << 20);
  printf("  cores %d, L1d %u KB, L2 %u KB, L3 %u MB, avx2 %d avx512 %d bf16 %d vnni %d fp16 %d amx %d\n", f->cores,
         f->l1d_bytes >> 10, f->l2_bytes >> 10, f->l3_bytes >> 20, f->avx2, f->avx512, f->avx512_bf16, f->avx512_vnni,
         f->avx512_fp16, f->amx);
}
