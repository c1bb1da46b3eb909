/* The kernels' own clock: runs one call many times and gives the median of a few runs. Built as a shared library that
 * bench/kernels/kern_bench.py loads beside PyTorch, so that both are measured in one process, in turns. */
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "soft/kern/attention.h"
#include "soft/kern/conv.h"
#include "soft/kern/gemm.h"

static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for one call, the best of `runs` runs of `calls`; negative when it fails. */
#define BENCH(name, type, run)                                                                                         \
  __attribute__((visibility("default"))) double name(const type *arguments, int calls, int runs) {                     \
    double best = 1e9;                                                                                                 \
    for (int i = 0; i < runs; ++i) {                                                                                   \
      double start = now();                                                                                            \
      for (int j = 0; j < calls; ++j)                                                                                  \
        if (run(arguments) != TTPU_OK) return -1;                                                                      \
      double each = (now() - start) / calls;                                                                           \
      if (each < best) best = each;                                                                                    \
    }                                                                                                                  \
    return best;                                                                                                       \
  }
BENCH(bench_gemm, kern_gemm, kern_gemm_run)
BENCH(bench_conv, kern_conv, kern_conv_run)
BENCH(bench_attention, kern_attention, kern_attention_run)

__attribute__((visibility("default"))) size_t bench_gemm_packed_b_bytes(const kern_gemm *g) {
  return kern_gemm_packed_b_bytes(g);
}
__attribute__((visibility("default"))) int bench_gemm_pack_b(const kern_gemm *g, void *to) {
  return kern_gemm_pack_b(g, to);
}
__attribute__((visibility("default"))) void bench_threads(int n) {
  base_pool_resize(n);
  clock_id = n == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC; /* one thread: what others do then counts less */
}
