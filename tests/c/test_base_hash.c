/* Hashing: sensitivity to every bit and to length, stability across runs (the disk cache's keys), no collisions. */
#include "check.h"

TEST(values_are_fixed) { /* a change here is a change of the disk cache's format */
  CHECK_EQ(base_hash(0, "", 0), (int64_t)0xa6b7704c12976dau);
  CHECK_EQ(base_hash(1, "stablehlo.dot_general(%0, %1) : tensor<128x256xf32>", 51), (int64_t)0x5ffb82248613d31du);
  base_hash128 h = base_hash128_bytes((base_hash128){1, 2}, "stablehlo", 9);
  CHECK_EQ(h.a, (int64_t)0x4391d8f057523a95u);
  CHECK_EQ(h.b, (int64_t)0xaafc62e8aeb44013u);
}

TEST(every_bit_changes_half_of_the_result) {
  static const size_t lengths[] = {1, 7, 8, 9, 16, 31, 32, 33, 64, 100};
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
    uint8_t bytes[100];
    uint64_t seed = l;
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (uint8_t)check_random(&seed);
    uint64_t h = base_hash(5, bytes, lengths[l]);
    base_hash128 g = base_hash128_bytes((base_hash128){5, 6}, bytes, lengths[l]);
    double flips = 0, flips128 = 0;
    for (size_t bit = 0; bit < 8 * lengths[l]; ++bit) {
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
      int changed = __builtin_popcountll(h ^ base_hash(5, bytes, lengths[l]));
      base_hash128 k = base_hash128_bytes((base_hash128){5, 6}, bytes, lengths[l]);
      int changed128 = __builtin_popcountll(g.a ^ k.a) + __builtin_popcountll(g.b ^ k.b);
      CHECK(changed >= 8);
      CHECK(changed128 >= 30);
      flips += changed, flips128 += changed128;
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK_NEAR(flips / (double)(8 * lengths[l]), 32, 6);
    CHECK_NEAR(flips128 / (double)(8 * lengths[l]), 64, 9);
  }
}

TEST(length_and_seed_count) {
  static const uint8_t zeros[256];
  for (size_t i = 0; i < 256; ++i)
    for (size_t j = 0; j < i; ++j) {
      CHECK(base_hash(0, zeros, i) != base_hash(0, zeros, j));
      base_hash128 a = base_hash128_bytes((base_hash128){0, 0}, zeros, i);
      base_hash128 b = base_hash128_bytes((base_hash128){0, 0}, zeros, j);
      CHECK(a.a != b.a && a.b != b.b);
    }
  CHECK(base_hash(0, "a", 1) != base_hash(1, "a", 1));
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

TEST(small_numbers_do_not_collide) { /* sizes and handles are what gets mixed most */
  enum { N = 400 };
  static uint64_t h[N * N], g[N * N], bytes[N * N];
  for (uint64_t i = 0; i < N; ++i)
    for (uint64_t j = 0; j < N; ++j) {
      uint64_t both[2] = {i, j};
      h[i * N + j] = base_mix(base_mix(0, i), j);
      base_hash128 m = base_mix128(base_mix128((base_hash128){0, 0}, i), j);
      g[i * N + j] = m.a ^ m.b;
      bytes[i * N + j] = base_hash(0, both, sizeof both);
    }
  qsort(h, N * N, sizeof *h, compare), qsort(g, N * N, sizeof *g, compare);
  qsort(bytes, N * N, sizeof *bytes, compare);
  int same = 0;
  for (int i = 1; i < N * N; ++i) same += (h[i] == h[i - 1]) + (g[i] == g[i - 1]) + (bytes[i] == bytes[i - 1]);
  CHECK_EQ(same, 0);
}
