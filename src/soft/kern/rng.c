/* Philox random bits. Element i of a result of 32-bit elements is word i % 4 of the block of counter offset + i / 4, one
 * of 64-bit elements words 2 (i % 2) and 2 (i % 2) + 1 of that of offset + i / 2, low word first: in memory both are the
 * same stream of bytes. */
#include "soft/kern/data.h"

#define PHILOX_FILL philox_fill_portable
#define VECTOR uint64_t
#define VECTOR_U64 1
#define SET(x) ((uint64_t)(x))
#define COUNT_UP ((uint64_t)0)
#define ADD(a, b) ((a) + (b))
#define XOR(a, b) ((a) ^ (b))
#define AND(a, b) ((a) & (b))
#define MULTIPLY(a, b) (((a) & UINT32_MAX) * ((b) & UINT32_MAX))
#define SHIFT_RIGHT_32(v) ((v) >> 32)
#define SHIFT_LEFT_32(v) ((v) << 32)
#define STORE_PAIRS(p, low, high) ((p)[0] = (low), (p)[1] = (high))
#include "soft/kern/rng_template.h"

typedef struct philox_job {
  void (*fill)(uint64_t, uint64_t, char *, size_t);
  uint64_t seed, offset;
  char *out;
  int64_t bytes;
} philox_job;

static void fill_blocks(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const philox_job *j = context;
  int64_t last = end * 16 < j->bytes ? end * 16 : j->bytes;
  j->fill(j->seed, j->offset + (uint64_t)begin, j->out + begin * 16, (size_t)(last - begin * 16));
}

void kern_philox(uint64_t seed, uint64_t offset, const soft_view *bits) {
  philox_job j = {.fill = philox_fill_portable, .seed = seed, .offset = offset, .out = bits->data};
#if defined(__x86_64__)
  if (base_cpu()->avx2) j.fill = philox_fill_avx2;
  if (base_cpu()->avx512) j.fill = philox_fill_avx512;
#endif
  j.bytes = base_numel(bits->rank, bits->dims) * (int64_t)base_dtype_bytes(bits->dtype);
  int64_t blocks = (j.bytes + 15) / 16;
  base_pool_run(blocks, 8192, blocks * 5, fill_blocks, &j);
}
