/* gemm_bf16_amx_32x32 and gemm_i8_amx_32x32: pairs of bf16 into f32 and fours of i8 into i32 on matrix tiles, 2x2 tiles of
 * 16x16 sums. In bytes both are alike; a *word* is a pair or a four, of 4 bytes.
 *
 *   A panel  32 rows of k values (a multiple of 16 words), a tile is 16 rows x 16 words = 64 bytes a row
 *   B panel  rows of 32 words, one word of k each, a tile is 16 rows x 16 words
 *
 * tdpbf16ps multiplies exactly, adds the two products of a pair and the sum in f32, and flushes subnormals to zero;
 * tdpbssd is exact modulo 2^32. Rows of A beyond `rows` are read and multiplied (they are the next panel or slack) but never
 * stored.
 *
 * The tile instructions are written as assembly with memory clobbers: gcc 12's intrinsics declare neither what
 * ldtilecfg nor what tile loads read, and stores before them were dropped. Tiles are configured by begin() and released by
 * end(), in the same task: other libraries on the thread (oneDNN) release them at their own time.
 *
 * With GEMM_AMX_EMULATE the instructions are C functions, for tests on machines without them.
 */
#include <string.h>

#include "soft/kern/simd_avx512.h"
#include "soft/kern/gemm_int.h"

enum { C00, C01, C10, C11, A0, A1, B0, B1 }; /* tile registers */

#ifndef GEMM_AMX_EMULATE

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
} tile_config;

static void tiles_begin(void) {
  tile_config config = {.palette = 1};
  for (int i = 0; i < 8; ++i) {
    config.bytes_per_row[i] = 64;
    config.rows[i] = 16;
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
static void tiles_end(void) { __asm__ volatile("tilerelease" ::: "memory"); }

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm%c0" ::"i"(t))
#define TILE_LOAD(t, p, stride) \
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(t), "r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, p, stride) \
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(t), "r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_MULTIPLY_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b))
#define TILE_MULTIPLY_I8(c, a, b) __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b))

#else

static _Thread_local unsigned char tile_bytes[8][16][64];
static void tiles_begin(void) {}
static void tiles_end(void) {}
#define TILE_ZERO(t) memset(tile_bytes[t], 0, sizeof tile_bytes[t])
#define TILE_LOAD(t, p, stride)                     \
  for (int tile_row = 0; tile_row < 16; ++tile_row) \
  memcpy(tile_bytes[t][tile_row], (const char *)(p) + tile_row * (stride), 64)
#define TILE_STORE(t, p, stride)                    \
  for (int tile_row = 0; tile_row < 16; ++tile_row) \
  memcpy((char *)(p) + tile_row * (stride), tile_bytes[t][tile_row], 64)
static void TILE_MULTIPLY_I8(int c, int a, int b) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      uint32_t sum;
      memcpy(&sum, tile_bytes[c][i] + 4 * j, 4);
      for (int p = 0; p < 64; ++p)
        sum += (uint32_t)((int8_t)tile_bytes[a][i][p] * (int8_t)tile_bytes[b][p / 4][4 * j + p % 4]);
      memcpy(tile_bytes[c][i] + 4 * j, &sum, 4);
    }
}
static void TILE_MULTIPLY_BF16(int c, int a, int b) {
  for (int i = 0; i < 16; ++i)
    for (int p = 0; p < 16; ++p)
      for (int j = 0; j < 16; ++j) {
        float sum;
        uint16_t x[2], y[2];
        memcpy(&sum, tile_bytes[c][i] + 4 * j, 4);
        memcpy(x, tile_bytes[a][i] + 4 * p, 4);
        memcpy(y, tile_bytes[b][p] + 4 * j, 4);
        sum +=
            base_f32_from_bf16(x[0]) * base_f32_from_bf16(y[0]) + base_f32_from_bf16(x[1]) * base_f32_from_bf16(y[1]);
        memcpy(tile_bytes[c][i] + 4 * j, &sum, 4);
      }
}

#endif

#define TILE_MULTIPLY(c, a, b)            \
  do {                                    \
    if (bytes) TILE_MULTIPLY_I8(c, a, b); \
    else TILE_MULTIPLY_BF16(c, a, b);     \
  } while (0)

/* All of k for 16 or 32 rows and columns; the sums end in C00.. . `bytes`: of i8. */
SIMD_INLINE void multiply(const bool bytes, const bool two_rows, const bool two_cols, int64_t steps, const char *a,
                          int64_t a_pitch, const char *b) {
  TILE_ZERO(C00);
  if (two_cols) TILE_ZERO(C01);
  if (two_rows) TILE_ZERO(C10);
  if (two_rows && two_cols) TILE_ZERO(C11);
  for (int64_t s = 0; s < steps; ++s, a += 64, b += 16 * 128) {
    TILE_LOAD(A0, a, a_pitch);
    TILE_LOAD(B0, b, 128);
    TILE_MULTIPLY(C00, A0, B0);
    if (two_cols) {
      TILE_LOAD(B1, b + 64, 128);
      TILE_MULTIPLY(C01, A0, B1);
    }
    if (two_rows) {
      TILE_LOAD(A1, a + 16 * a_pitch, a_pitch);
      TILE_MULTIPLY(C10, A1, B0);
      if (two_cols) TILE_MULTIPLY(C11, A1, B1);
    }
  }
}

/* The part of the 32x32 sums that belongs to C. */
SIMD_INLINE void store_part(const bool bytes, const uint32_t *sums, int rows, int cols, uint32_t *c, int64_t c_row,
                            bool accumulate) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; j += 16) {
      const __mmask16 mask = first16(cols - j < 16 ? cols - j : 16);
      __m512i x = _mm512_loadu_si512(sums + i * 32 + j), old = _mm512_maskz_loadu_epi32(mask, c + i * c_row + j);
      if (accumulate && bytes) x = _mm512_add_epi32(old, x);
      else if (accumulate) x = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(old), _mm512_castsi512_ps(x)));
      _mm512_mask_storeu_epi32(c + i * c_row + j, mask, x);
    }
}

SIMD_INLINE void run_tiles(const bool bytes, int64_t steps, int rows, int cols, const char *a, const char *b,
                           uint32_t *c, int64_t c_row, bool accumulate) {
  const int64_t a_pitch = steps * 64;
  const bool two_rows = rows > 16, two_cols = cols > 16;
  if (two_rows && two_cols) multiply(bytes, true, true, steps, a, a_pitch, b);
  else if (two_rows) multiply(bytes, true, false, steps, a, a_pitch, b);
  else if (two_cols) multiply(bytes, false, true, steps, a, a_pitch, b);
  else multiply(bytes, false, false, steps, a, a_pitch, b);
  if (rows == 32 && cols == 32 && !accumulate) {
    TILE_STORE(C00, c, c_row * 4);
    TILE_STORE(C01, c + 16, c_row * 4);
    TILE_STORE(C10, c + 16 * c_row, c_row * 4);
    TILE_STORE(C11, c + 16 * c_row + 16, c_row * 4);
    return;
  }
  uint32_t sums[32 * 32] __attribute__((aligned(64)));
  TILE_STORE(C00, sums, 128);
  if (two_cols) TILE_STORE(C01, sums + 16, 128);
  if (two_rows) TILE_STORE(C10, sums + 16 * 32, 128);
  if (two_rows && two_cols) TILE_STORE(C11, sums + 16 * 32 + 16, 128);
  store_part(bytes, sums, rows, cols, c, c_row, accumulate);
}

static void bf16_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                     bool accumulate) {
  run_tiles(false, (k + 31) / 32, rows, cols, a, b, c, c_row, accumulate);
}
static void i8_run(int64_t k, int rows, int cols, const void *a, const void *b, void *c, int64_t c_row,
                   bool accumulate) {
  run_tiles(true, (k + 63) / 64, rows, cols, a, b, c, c_row, accumulate);
}

extern const gemm_kernel gemm_bf16_amx_32x32, gemm_i8_amx_32x32;
const gemm_kernel gemm_bf16_amx_32x32 = {
    .name = "gemm_bf16_amx_32x32",
    .mr = 32,
    .nr = 32,
    .kr = 2,
    .lanes = 16,
    .packed = TTPU_BF16,
    .acc = TTPU_F32,
    .run = bf16_run,
    .k_unit = 32,
    .a_by_rows = true,
    .begin = tiles_begin,
    .end = tiles_end,
};
const gemm_kernel gemm_i8_amx_32x32 = {
    .name = "gemm_i8_amx_32x32",
    .mr = 32,
    .nr = 32,
    .kr = 4,
    .lanes = 16,
    .packed = TTPU_I8,
    .acc = TTPU_U32,
    .run = i8_run,
    .k_unit = 64,
    .a_by_rows = true,
    .begin = tiles_begin,
    .end = tiles_end,
};
