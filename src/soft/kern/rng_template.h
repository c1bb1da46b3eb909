/* Philox 4x32-10, several counters at once. Include after defining
 *   PHILOX_FILL         the function's name
 *   VECTOR, VECTOR_U64  a vector of 64-bit lanes, and how many; a lane holds a 32-bit word, its upper half is rubbish
 *   SET(x), ADD, XOR, AND, SHIFT_RIGHT_32(v), SHIFT_LEFT_32(v), MULTIPLY(a, b)   MULTIPLY: 32 x 32 -> 64 bits
 *   COUNT_UP            a vector of 0, 1, 2, ...
 *   STORE_PAIRS(p, low, high)   stores low[0], high[0], low[1], high[1], ...
 * Key: {seed low, seed high}. Counter of block b: {(offset + b) low, high, 0, 0}. A block is 16 bytes of the result. */
#include <string.h>

#include "soft/kern/rng.h"

enum { PHILOX_UNROLL = 4, PHILOX_BLOCKS = PHILOX_UNROLL * VECTOR_U64 };

/* PHILOX_BLOCKS blocks; independent vectors hide the multiplications' latency. */
static inline void philox_blocks(uint64_t seed, uint64_t counter, uint64_t *out) {
  VECTOR c0[PHILOX_UNROLL], c1[PHILOX_UNROLL], c2[PHILOX_UNROLL], c3[PHILOX_UNROLL];
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  const VECTOR m0 = SET(0xD2511F53u), m1 = SET(0xCD9E8D57u), word = SET(0xFFFFFFFFu);
  for (int i = 0; i < PHILOX_UNROLL; ++i) {
    c0[i] = ADD(SET(counter + (uint64_t)(i * VECTOR_U64)), COUNT_UP);
    c1[i] = SHIFT_RIGHT_32(c0[i]), c2[i] = c3[i] = SET(0);
  }
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const VECTOR k0 = SET(key0), k1 = SET(key1);
    for (int i = 0; i < PHILOX_UNROLL; ++i) {
      VECTOR a = MULTIPLY(c0[i], m0), b = MULTIPLY(c2[i], m1);
      c0[i] = XOR(XOR(SHIFT_RIGHT_32(b), c1[i]), k0), c2[i] = XOR(XOR(SHIFT_RIGHT_32(a), c3[i]), k1);
      c1[i] = b, c3[i] = a;
    }
  }
  for (int i = 0; i < PHILOX_UNROLL; ++i) {
    VECTOR low = XOR(AND(c0[i], word), SHIFT_LEFT_32(c1[i])), high = XOR(AND(c2[i], word), SHIFT_LEFT_32(c3[i]));
    STORE_PAIRS(out + 2 * VECTOR_U64 * i, low, high);
  }
}

void PHILOX_FILL(uint64_t seed, uint64_t counter, char *out, size_t bytes) {
  uint64_t words[2 * PHILOX_BLOCKS];
  for (size_t at = 0; at < bytes; at += sizeof words, counter += PHILOX_BLOCKS) {
    philox_blocks(seed, counter, words);
    memcpy(out + at, words, bytes - at < sizeof words ? bytes - at : sizeof words);
  }
}
