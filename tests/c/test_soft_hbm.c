/* A chip's memory: limit, statistics, recycling, threads. */
#include <pthread.h>

#include "check.h"
#include "soft/hbm.h"
#include "soft/topology.h"

enum { MIB = 1 << 20 };

TEST(counts_and_frees) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(64 * MIB, &h));
  soft_block *a, *b;
  REQUIRE_OK(soft_block_new(h, 1000, &a));
  REQUIRE_OK(soft_block_new(h, 3 * MIB, &b));
  CHECK_EQ(a->bytes, 1000);
  CHECK_EQ((uintptr_t)a->data % 64, 0);
  CHECK_EQ((uintptr_t)b->data % 64, 0);
  memset(a->data, 1, 1000);
  memset(b->data, 2, 3 * MIB);
  soft_hbm_stats s = soft_hbm_get_stats(h);
  CHECK_EQ(s.in_use, 1024 + 3 * MIB);
  CHECK_EQ(s.limit, 64 * MIB);
  CHECK_EQ(s.largest, 3 * MIB);
  CHECK_EQ(s.allocations, 2);
  soft_block_free(soft_block_share(b));
  CHECK_EQ(soft_hbm_get_stats(h).in_use, 1024 + 3 * MIB);
  soft_block_free(b);
  s = soft_hbm_get_stats(h);
  CHECK_EQ(s.in_use, 1024);
  CHECK_EQ(s.peak, 1024 + 3 * MIB);
  CHECK(s.recycled_bytes >= 3 * MIB);
  soft_hbm_reset_peak(h);
  CHECK_EQ(soft_hbm_get_stats(h).peak, 1024);
  soft_block_free(a);
  soft_block_free(NULL);
  soft_hbm_free(h);
}

TEST(keeps_the_limit_exactly) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(64 * MIB, &h));
  soft_block *blocks[4], *extra;
  for (int i = 0; i < 4; ++i) REQUIRE_OK(soft_block_new(h, 16 * MIB, &blocks[i]));
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "requested 1 bytes", soft_block_new(h, 1, &extra));
  CHECK_HAS(base_message(), "67108864 of 67108864");
  REQUIRE_OK(soft_block_new(h, 0, &extra)); /* nothing needs no room */
  soft_block_free(extra);
  soft_block_free(blocks[0]);
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "out of device memory", soft_block_new(h, 16 * MIB + 1, &extra));
  REQUIRE_OK(soft_block_new(h, 16 * MIB, &blocks[0]));
  for (int i = 0; i < 4; ++i) soft_block_free(blocks[i]);
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "", soft_block_new(h, SIZE_MAX, &extra));
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "", soft_block_new(h, SIZE_MAX - 700, &extra));
  CHECK_EQ(soft_hbm_get_stats(h).in_use, 0);
  soft_hbm_free(h);
}

TEST(recycles) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(256 * MIB, &h));
  soft_block *b;
  REQUIRE_OK(soft_block_new(h, 5 * MIB, &b));
  void *first = b->data;
  soft_block_free(b);
  REQUIRE_OK(soft_block_new(h, 5 * MIB - 100, &b));
  CHECK(b->data == first);
  soft_block_free(b);
  REQUIRE_OK(soft_block_new(h, 9 * MIB / 2, &b)); /* two classes smaller */
  CHECK(b->data == first);
  CHECK_EQ(soft_hbm_get_stats(h).in_use, 9 * MIB / 2);
  soft_block_free(b);
  soft_hbm_trim(h);
  CHECK_EQ(soft_hbm_get_stats(h).recycled_bytes, 0);
  soft_hbm_free(h);
}

TEST(what_is_kept_stays_within_the_limit) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(64 * MIB, &h));
  for (size_t bytes = MIB; bytes <= 48 * MIB; bytes += MIB) {
    soft_block *b;
    REQUIRE_OK(soft_block_new(h, bytes, &b));
    soft_block_free(b);
    CHECK(soft_hbm_get_stats(h).recycled_bytes <= 64 * MIB);
  }
  soft_hbm_free(h);
}

TEST(what_is_kept_stays_within_use) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new((size_t)8 << 30, &h));
  for (size_t bytes = 100 << 10; bytes <= 300 * MIB; bytes += bytes / 10) { /* sizes that never come again */
    soft_block *b;
    REQUIRE_OK(soft_block_new(h, bytes, &b));
    soft_block_free(b);
  }
  CHECK(soft_hbm_get_stats(h).recycled_bytes <= 700 * MIB); /* all of them would be 3 GiB */
  soft_hbm_free(h);
}

TEST(every_size_is_whole_and_apart) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new((size_t)4 << 30, &h));
  enum { COUNT = 3000 };
  static soft_block *blocks[COUNT];
  uint64_t seed = 1;
  size_t in_use = 0;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < COUNT; ++i) {
      size_t bytes = round == 0 ? (size_t)i : (size_t)(check_random(&seed) % (1u << (check_random(&seed) % 18)));
      REQUIRE_OK(soft_block_new(h, bytes, &blocks[i]));
      memset(blocks[i]->data, i & 0xff, bytes);
      in_use += (bytes + 511) / 512 * 512;
    }
    CHECK_EQ(soft_hbm_get_stats(h).in_use, in_use);
    for (int i = 0; i < COUNT; ++i) {
      const uint8_t *p = blocks[i]->data;
      size_t n = blocks[i]->bytes;
      if (n) CHECK(p[0] == (i & 0xff) && p[n - 1] == (i & 0xff) && p[n / 2] == (i & 0xff));
      soft_block_free(blocks[i]);
    }
    in_use = 0;
  }
  soft_hbm_free(h);
}

TEST(outlives_its_owner) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(64 * MIB, &h));
  soft_block *a, *b;
  REQUIRE_OK(soft_block_new(h, 100, &a));
  REQUIRE_OK(soft_block_new(h, MIB, &b));
  soft_hbm_free(h);
  memset(a->data, 1, 100);
  memset(b->data, 1, MIB);
  soft_block_free(a);
  soft_block_free(b);
}

static void release_flag(void *data, void *context) { *(void **)context = data; }

TEST(wraps_foreign_memory) {
  float data[4];
  void *released = NULL;
  soft_block *b;
  REQUIRE_OK(soft_block_wrap(data, sizeof data, release_flag, &released, &b));
  soft_block_free(soft_block_share(b));
  CHECK(!released);
  soft_block_free(b);
  CHECK(released == data);
}

typedef struct thread_work {
  soft_hbm *hbm;
  uint64_t seed;
} thread_work;

static void *allocate_in_thread(void *argument) {
  thread_work *w = argument;
  soft_block *held[16] = {0};
  for (int i = 0; i < 20000; ++i) {
    uint64_t r = check_random(&w->seed);
    soft_block **at = &held[r % 16];
    soft_block_free(*at);
    *at = NULL;
    if (!CHECK_OK(soft_block_new(w->hbm, (r >> 8) % (r & 64 ? 1000 : 100000), at))) break;
    if ((*at)->bytes) ((uint8_t *)(*at)->data)[(*at)->bytes - 1] = (uint8_t)i;
  }
  for (int i = 0; i < 16; ++i) soft_block_free(held[i]);
  return NULL;
}

TEST(threads) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new(256 * MIB, &h));
  pthread_t threads[4];
  thread_work work[4];
  for (int i = 0; i < 4; ++i) {
    work[i] = (thread_work){h, (uint64_t)i};
    pthread_create(&threads[i], NULL, allocate_in_thread, &work[i]);
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  CHECK_EQ(soft_hbm_get_stats(h).in_use, 0);
  CHECK_EQ(soft_hbm_get_stats(h).allocations, 80000);
  soft_hbm_free(h);
}

static ttpu_status allocate_some(void *context) {
  (void)context;
  soft_hbm *h;
  soft_block *a = NULL, *b = NULL;
  BASE_TRY(soft_hbm_new(64 * MIB, &h));
  ttpu_status status = soft_block_new(h, 100, &a);
  if (status == TTPU_OK) status = soft_block_new(h, MIB, &b);
  soft_block_free(a);
  soft_block_free(b);
  soft_hbm_free(h);
  return status;
}

TEST(survives_without_memory) { CHECK(check_out_of_memory(allocate_some, NULL) >= 4); }

/* Numbers to look at. */
TEST(cost_of_a_block) {
  soft_hbm *h;
  REQUIRE_OK(soft_hbm_new((size_t)1 << 30, &h));
  const size_t sizes[] = {16, 4096, MIB, 64 * MIB};
  for (int k = 0; k < 4; ++k) {
    double best = 1;
    for (int round = 0; round < 5; ++round) {
      double start = check_seconds();
      for (int i = 0; i < 10000; ++i) {
        soft_block *b;
        if (soft_block_new(h, sizes[k], &b) == TTPU_OK) soft_block_free(b);
      }
      double seconds = (check_seconds() - start) / 10000;
      if (seconds < best) best = seconds;
    }
    printf("       %zu bytes, new and free: %.0f ns\n", sizes[k], best * 1e9);
  }
  soft_block *b;
  soft_hbm_trim(h);
  double start = check_seconds();
  REQUIRE_OK(soft_block_new(h, 64 * MIB, &b));
  memset(b->data, 1, 64 * MIB);
  double fresh = check_seconds() - start;
  start = check_seconds();
  memset(b->data, 2, 64 * MIB);
  printf("       64 MiB written: fresh %.1f ms, again %.1f ms\n", fresh * 1e3, (check_seconds() - start) * 1e3);
  soft_block_free(b);
  soft_hbm_free(h);
}

/* ---- topology ---------------------------------------------------------------------------------- */

static ttpu_status parse(const char *name, soft_topology *t) { return soft_topology_parse(name, strlen(name), t); }

TEST(topology_names) {
  soft_topology t;
  REQUIRE_OK(parse("v5e:2x2", &t));
  CHECK_STR(t.name, "v5e:2x2");
  CHECK_STR(t.generation->kind, "TPU v5 lite");
  CHECK_EQ(t.devices, 4);
  REQUIRE_OK(parse("v5e", &t));
  CHECK_STR(t.name, "v5e:1x1");
  REQUIRE_OK(parse("v5:2x2x1", &t));
  CHECK_STR(t.name, "v5p:2x2x1");
  REQUIRE_OK(parse("v5litepod:4", &t));
  CHECK_STR(t.name, "v5e:4x1");
  REQUIRE_OK(parse("v6e:4x4x1", &t));
  CHECK_EQ(t.devices, 16);
  REQUIRE_OK(parse("tpu7x:16x24x24", &t));
  CHECK_EQ(t.devices, 18432);
  const char *bad[] = {"",           "v9:2x2", "v5e:",     "v5e:2x",        "v5e:x2",         "v5e:0x1", "v5e:2x2x2",
                       "v4:1x1x1x1", "v4:a",   "v5e:2 x2", "v5e:9999999x1", "v4:4096x4096x1", "lite",    " "};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i)
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, "expected a generation", parse(bad[i], &t));
}

TEST(topology_places) {
  soft_topology t;
  int64_t c[3], core;
  REQUIRE_OK(parse("tpu7x:2x3x1", &t));
  CHECK_EQ(t.devices, 12);
  soft_topology_place(&t, 7, c, &core); /* chip 3: the second row's second */
  CHECK_EQ(c[0], 1);
  CHECK_EQ(c[1], 1);
  CHECK_EQ(c[2], 0);
  CHECK_EQ(core, 1);
}

TEST(byte_sizes) {
  size_t n;
  REQUIRE_OK(soft_bytes_parse("16G", 3, "x", &n));
  CHECK_EQ(n, (size_t)16 << 30);
  REQUIRE_OK(soft_bytes_parse("512m", 4, "x", &n));
  CHECK_EQ(n, (size_t)512 << 20);
  REQUIRE_OK(soft_bytes_parse("64KiB", 5, "x", &n));
  CHECK_EQ(n, 65536);
  REQUIRE_OK(soft_bytes_parse("123", 3, "x", &n));
  CHECK_EQ(n, 123);
  const char *bad[] = {"", "G", "1.5G", "-1", "99999999999999999999", "99999999999T", "1Q", "1GBs"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i)
    CHECK_FAILS(TTPU_INVALID_ARGUMENT,
                "TTPU_HBM_BYTES=", soft_bytes_parse(bad[i], strlen(bad[i]), "TTPU_HBM_BYTES", &n));
}
