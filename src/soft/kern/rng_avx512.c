/* Philox with AVX-512. */
#include <immintrin.h>
#include <stdint.h>

#define PHILOX_FILL philox_fill_avx512
#define VECTOR __m512i
#define VECTOR_U64 8
#define SET(x) _mm512_set1_epi64((int64_t)(x))
#define COUNT_UP _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)
#define ADD _mm512_add_epi64
#define XOR _mm512_xor_si512
#define AND _mm512_and_si512
#define MULTIPLY _mm512_mul_epu32
#define SHIFT_RIGHT_32(v) _mm512_srli_epi64(v, 32)
#define SHIFT_LEFT_32(v) _mm512_slli_epi64(v, 32)
#define STORE_PAIRS(p, low, high) store_pairs(p, low, high)

static inline void store_pairs(uint64_t *p, __m512i low, __m512i high) {
  const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  _mm512_storeu_si512(p, _mm512_permutex2var_epi64(low, first, high));
  _mm512_storeu_si512(p + 8, _mm512_permutex2var_epi64(low, second, high));
}

#include "soft/kern/rng_template.h"
