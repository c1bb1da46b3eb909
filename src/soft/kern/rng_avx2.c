/* Philox with AVX2. */
#include <immintrin.h>
#include <stdint.h>

#define PHILOX_FILL philox_fill_avx2
#define VECTOR __m256i
#define VECTOR_U64 4
#define SET(x) _mm256_set1_epi64x((int64_t)(x))
#define COUNT_UP _mm256_setr_epi64x(0, 1, 2, 3)
#define ADD _mm256_add_epi64
#define XOR _mm256_xor_si256
#define AND _mm256_and_si256
#define MULTIPLY _mm256_mul_epu32
#define SHIFT_RIGHT_32(v) _mm256_srli_epi64(v, 32)
#define SHIFT_LEFT_32(v) _mm256_slli_epi64(v, 32)
#define STORE_PAIRS(p, low, high) store_pairs(p, low, high)

static inline void store_pairs(uint64_t *p, __m256i low, __m256i high) {
  __m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
  _mm256_storeu_si256((__m256i *)p, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256((__m256i *)(p + 4), _mm256_permute2x128_si256(even, odd, 0x31));
}

#include "soft/kern/rng_template.h"
