/* Packing and storing for every dtype: what is not a plain copy in the panel's own dtype is converted a chunk at a time,
 * then packed by the instruction set's routines. */
#include <string.h>

#include "soft/kern/gemm_int.h"

enum { CHUNK_BYTES = 16384 }; /* a chunk of converted lines; stays in L1 */

static bool same_bits(ttpu_dtype from, ttpu_dtype packed) {
  if (from == packed) return true;
  return base_dtype_is_integer(from) && base_dtype_is_integer(packed) &&
         base_dtype_bytes(from) == base_dtype_bytes(packed);
}

/* Integers widen by their own sign and are then taken modulo the target's width. */
#define WIDEN(T, U)                                          \
  {                                                          \
    const T *s = src;                                        \
    U *d = dst;                                              \
    for (int64_t i = 0; i < n; ++i) d[i] = (U)s[i * stride]; \
    return;                                                  \
  }
#define WIDEN_TO(U)                   \
  switch (from) {                     \
    case TTPU_I8: WIDEN(int8_t, U)    \
    case TTPU_I16: WIDEN(int16_t, U)  \
    case TTPU_I32: WIDEN(int32_t, U)  \
    case TTPU_I64: WIDEN(int64_t, U)  \
    case TTPU_BOOL:                   \
    case TTPU_U8: WIDEN(uint8_t, U)   \
    case TTPU_U16: WIDEN(uint16_t, U) \
    case TTPU_U32: WIDEN(uint32_t, U) \
    case TTPU_U64: WIDEN(uint64_t, U) \
    default: break;                   \
  }

void gemm_convert_row(ttpu_dtype from, ttpu_dtype to, int64_t n, const void *src, int64_t stride, void *dst) {
  const size_t from_bytes = base_dtype_bytes(from), to_bytes = base_dtype_bytes(to);
  if (same_bits(from, to)) {
    if (stride == 1) {
      memcpy(dst, src, (size_t)n * from_bytes);
      return;
    }
    switch (from_bytes) {
      case 1: WIDEN(uint8_t, uint8_t)
      case 2: WIDEN(uint16_t, uint16_t)
      case 4: WIDEN(uint32_t, uint32_t)
      case 8: WIDEN(uint64_t, uint64_t)
      default: break;
    }
  }
  if (stride == 1 && to == TTPU_F32) {
    if (from == TTPU_BF16) {
      gemm_isa_get()->f32_from_bf16(n, src, dst);
      return;
    }
    if (from == TTPU_F16) {
      gemm_isa_get()->f32_from_f16(n, src, dst);
      return;
    }
  }
  if (stride == 1 && from == TTPU_F32) {
    if (to == TTPU_BF16) {
      gemm_isa_get()->bf16_from_f32(n, src, dst);
      return;
    }
    if (to == TTPU_F16) {
      gemm_isa_get()->f16_from_f32(n, src, dst);
      return;
    }
  }
  if (to == TTPU_F32 && from == TTPU_BF16) {
    const uint16_t *s = src;
    float *d = dst;
    for (int64_t i = 0; i < n; ++i) d[i] = base_f32_from_bf16(s[i * stride]);
    return;
  }
  switch (base_dtype_is_integer(to) ? to : TTPU_NO_DTYPE) {
    case TTPU_U16:
    case TTPU_I16: WIDEN_TO(uint16_t) break;
    case TTPU_U32:
    case TTPU_I32: WIDEN_TO(uint32_t) break;
    case TTPU_U64:
    case TTPU_I64: WIDEN_TO(uint64_t) break;
    default: break;
  }
  for (int64_t i = 0; i < n; ++i) {
    base_scalar v = base_scalar_load(from, (const char *)src + i * stride * (int64_t)from_bytes);
    base_scalar_store(to, (char *)dst + i * (int64_t)to_bytes, base_scalar_convert(from, to, v));
  }
}

#define SCATTER(T)                                        \
  {                                                       \
    const T *s = src;                                     \
    T *d = dst;                                           \
    for (int64_t i = 0; i < n; ++i) d[i * stride] = s[i]; \
    return;                                               \
  }

void gemm_store_row(ttpu_dtype from, ttpu_dtype to, int64_t n, const void *src, void *dst, int64_t stride) {
  if (stride == 1) {
    gemm_convert_row(from, to, n, src, 1, dst);
    return;
  }
  const size_t from_bytes = base_dtype_bytes(from), to_bytes = base_dtype_bytes(to);
  if (!same_bits(from, to)) { /* a chunk converted, then scattered */
    char chunk[512] __attribute__((aligned(16)));
    const int64_t step = (int64_t)(sizeof chunk / to_bytes);
    for (int64_t i = 0; i < n; i += step) {
      int64_t count = n - i < step ? n - i : step;
      gemm_convert_row(from, to, count, (const char *)src + i * (int64_t)from_bytes, 1, chunk);
      gemm_store_row(to, to, count, chunk, (char *)dst + i * stride * (int64_t)to_bytes, stride);
    }
    return;
  }
  switch (to_bytes) {
    case 1: SCATTER(uint8_t)
    case 2: SCATTER(uint16_t)
    case 4: SCATTER(uint32_t)
    case 8: SCATTER(uint64_t)
    default:
      for (int64_t i = 0; i < n; ++i)
        memcpy((char *)dst + i * stride * (int64_t)to_bytes, (const char *)src + i * (int64_t)to_bytes, to_bytes);
  }
}

/* Complex: real parts of all lines, then imaginary parts, for every k. */
#define PACK_COMPLEX(name, T)                                                                            \
  static void name(int lines, int width, int64_t count, const T *src, int64_t line, int64_t k, T *dst) { \
    for (int64_t p = 0; p < count; ++p, src += 2 * k, dst += 2 * width) {                                \
      for (int i = 0; i < lines; ++i) {                                                                  \
        dst[i] = src[2 * i * line];                                                                      \
        dst[width + i] = src[2 * i * line + 1];                                                          \
      }                                                                                                  \
      for (int i = lines; i < width; ++i) dst[i] = dst[width + i] = 0;                                   \
    }                                                                                                    \
  }
PACK_COMPLEX(pack_c64, float)
PACK_COMPLEX(pack_c128, double)

/* Pairs of 2-byte elements with neither stride 1. */
static void pack_pairs_strided(int lines, int width, int64_t count, const uint16_t *src, int64_t line, int64_t k,
                               uint16_t *dst) {
  for (int64_t p = 0; p < count; p += 2, dst += 2 * width) {
    for (int i = 0; i < lines; ++i) {
      dst[2 * i] = src[i * line + p * k];
      dst[2 * i + 1] = p + 1 < count ? src[i * line + (p + 1) * k] : 0;
    }
    for (int i = 2 * lines; i < 2 * width; ++i) dst[i] = 0;
  }
}

/* Pairs of 2-byte elements. With unit k a pair is one 4-byte element, so the 4-byte transpose does it; an odd last value
 * is packed alone. */
static void pack_pairs(int lines, int width, int64_t count, const uint16_t *src, int64_t line, int64_t k,
                       uint16_t *dst) {
  const gemm_isa *isa = gemm_isa_get();
  if (line == 1) {
    isa->pack_2_pairs(lines, width, count, src, k, dst);
  } else if (k == 1 && line % 2 == 0) {
    int64_t pairs = count / 2;
    isa->pack_4(lines, width, pairs, src, line / 2, 1, dst);
    if (count & 1) pack_pairs_strided(lines, width, 1, src + 2 * pairs, line, 1, dst + 2 * pairs * width);
  } else {
    pack_pairs_strided(lines, width, count, src, line, k, dst);
  }
}

/* Fours of bytes, of whatever strides; what is missing is 0. */
static void pack_fours_strided(int lines, int width, int64_t count, const uint8_t *src, int64_t line, int64_t k,
                               uint8_t *dst) {
  for (int64_t p = 0; p < count; p += 4, dst += 4 * width) {
    const int n = count - p < 4 ? (int)(count - p) : 4;
    memset(dst, 0, (size_t)(4 * width));
    for (int i = 0; i < lines; ++i)
      for (int q = 0; q < n; ++q) dst[4 * i + q] = src[i * line + (p + q) * k];
  }
}

/* Of four rows of bytes, line is 1, one of words. */
static void interleave_fours(int lines, int width, int64_t groups, const uint8_t *src, int64_t k, uint8_t *dst) {
  for (int64_t p = 0; p < groups; ++p, src += 4 * k, dst += 4 * width) {
    uint32_t words[GEMM_NR_MAX];
    for (int i = 0; i < lines; ++i)
      words[i] = src[i] | (uint32_t)src[i + k] << 8 | (uint32_t)src[i + 2 * k] << 16 | (uint32_t)src[i + 3 * k] << 24;
    memcpy(dst, words, (size_t)(4 * lines));
    memset(dst + 4 * lines, 0, (size_t)(4 * (width - lines)));
  }
}

static void pack_fours(int lines, int width, int64_t count, const uint8_t *src, int64_t line, int64_t k, uint8_t *dst) {
  int64_t groups = 0;
  if (line == 1) interleave_fours(lines, width, groups = count / 4, src, k, dst);
  else if (k == 1 && line % 4 == 0) gemm_isa_get()->pack_4(lines, width, groups = count / 4, src, line / 4, 1, dst);
  pack_fours_strided(lines, width, count - 4 * groups, src + 4 * groups * k, line, k, dst + 4 * groups * width);
}

static void pack_same(const gemm_kernel *kernel, int lines, int width, int64_t count, const void *src, int64_t line,
                      int64_t k, void *dst) {
  const gemm_isa *isa = gemm_isa_get();
  if (kernel->packed == TTPU_C64) pack_c64(lines, width, count, src, line, k, dst);
  else if (kernel->packed == TTPU_C128) pack_c128(lines, width, count, src, line, k, dst);
  else if (kernel->kr == 2) pack_pairs(lines, width, count, src, line, k, dst);
  else if (kernel->kr == 4) pack_fours(lines, width, count, src, line, k, dst);
  else if (base_dtype_bytes(kernel->packed) == 4) isa->pack_4(lines, width, count, src, line, k, dst);
  else isa->pack_8(lines, width, count, src, line, k, dst);
}

static void pack_converted(const gemm_kernel *kernel, ttpu_dtype from, int lines, int width, int64_t count,
                           const void *src, int64_t line, int64_t k, void *dst) {
  const ttpu_dtype packed = kernel->packed;
  const int64_t pb = (int64_t)base_dtype_bytes(packed), fb = (int64_t)base_dtype_bytes(from);
  if (same_bits(from, packed)) {
    pack_same(kernel, lines, width, count, src, line, k, dst);
    return;
  }
  char chunk[CHUNK_BYTES] __attribute__((aligned(64)));
  int64_t step = CHUNK_BYTES / (lines * pb) / 32 * 32; /* even, for pairs; lines <= 64 */
  if (step < 2) step = 2;
  for (int64_t p = 0; p < count; p += step) {
    const int64_t n = count - p < step ? count - p : step;
    const char *at = (const char *)src + p * k * fb;
    char *to = (char *)dst + p * width * pb;
    if (k != 1 && line == 1) { /* convert across lines: the chunk is [n][lines] */
      for (int64_t q = 0; q < n; ++q) gemm_convert_row(from, packed, lines, at + q * k * fb, 1, chunk + q * lines * pb);
      pack_same(kernel, lines, width, n, chunk, 1, lines, to);
    } else { /* along k: [lines][step] */
      for (int i = 0; i < lines; ++i) gemm_convert_row(from, packed, n, at + i * line * fb, k, chunk + i * step * pb);
      pack_same(kernel, lines, width, n, chunk, step, 1, to);
    }
  }
}

/* Bytes of A have 128 added; B's panel begins with the sums of its columns. */
static void finish_bytes(const gemm_kernel *kernel, gemm_side side, int width, int64_t k0, int64_t n, char *panel,
                         char *values) {
  const int64_t groups = (n + 3) / 4;
  if (side == GEMM_A) {
    uint8_t *bytes = (uint8_t *)values;
    for (int64_t i = 0; i < 4 * groups * width; ++i) bytes[i] ^= 0x80;
    return;
  }
  if (k0 == 0) memset(panel, 0, (size_t)(4 * width));
  kernel->sum_columns(width, groups, values, panel);
}

void gemm_pack_chunk(const gemm_kernel *kernel, gemm_side side, ttpu_dtype from, int lines, int width, int64_t k0,
                     int64_t n, int64_t total, const void *src, int64_t line, int64_t k, void *panel) {
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), padded = gemm_padded(kernel, total);
  const bool last = k0 + n == total;
  if (side == GEMM_A && kernel->a_by_rows) {
    for (int i = 0; i < lines; ++i) {
      char *row = (char *)panel + i * padded * pb;
      gemm_convert_row(from, kernel->packed, n, (const char *)src + i * line * (int64_t)base_dtype_bytes(from), k,
                       row + k0 * pb);
      if (last) memset(row + total * pb, 0, (size_t)((padded - total) * pb));
    }
    return;
  }
  const int head = gemm_head(kernel);
  char *values = (char *)panel + ((side == GEMM_B ? head : 0) + k0) * width * pb;
  pack_converted(kernel, from, lines, width, n, src, line, k, values);
  if (head > 0) finish_bytes(kernel, side, width, k0, n, panel, values);
  const int64_t written = (total + kernel->kr - 1) / kernel->kr * kernel->kr;
  if (last && padded - head > written)
    memset((char *)panel + written * width * pb, 0, (size_t)((padded - written) * width * pb));
}

void gemm_pack(const gemm_kernel *kernel, gemm_side side, ttpu_dtype from, int lines, int width, int64_t count,
               const void *src, int64_t line, int64_t k, void *dst) {
  gemm_pack_chunk(kernel, side, from, lines, width, 0, count, count, src, line, k, dst);
}
