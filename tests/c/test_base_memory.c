/* The allocation hook, arenas, growable arrays, texts; each with failing allocations. */
#include "check.h"

TEST(allocations_are_aligned_and_usable) {
  for (size_t bytes = 0; bytes < 300; bytes += 7) {
    char *p = base_alloc(bytes);
    REQUIRE(p != NULL);
    CHECK_EQ((uintptr_t)p % 16, 0);
    memset(p, 1, bytes);
    p = base_realloc(p, 2 * bytes);
    REQUIRE(p != NULL);
    for (size_t i = 0; i < bytes; ++i) CHECK_EQ(p[i], 1);
    base_free(p);
  }
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    void *p = base_alloc_aligned(alignment, 100);
    REQUIRE(p != NULL);
    CHECK_EQ((uintptr_t)p % alignment, 0);
    memset(p, 1, 100);
    base_free(p);
  }
  base_free(NULL);
}

TEST(calloc_clears_and_sees_overflow) {
  uint64_t *p = base_calloc(1000, sizeof *p);
  REQUIRE(p != NULL);
  for (int i = 0; i < 1000; ++i) CHECK_EQ(p[i], 0);
  base_free(p);
  volatile size_t huge = SIZE_MAX / 2; /* volatile: the compiler knows what calloc thinks of it */
  CHECK(base_calloc(huge, 3) == NULL);
  p = base_calloc(0, 8);
  CHECK(p != NULL);
  base_free(p);
}

TEST(the_nth_allocation_fails_once) {
  uint64_t before = base_alloc_count();
  base_alloc_fail_after(3);
  void *a = base_alloc(1), *b = base_calloc(1, 1), *c = base_alloc(1), *d = base_alloc_aligned(64, 1);
  CHECK(a && b && !c && d);
  CHECK_EQ(base_alloc_count() - before, 4);
  base_alloc_fail_after(1);
  CHECK(base_realloc(a, 100) == NULL); /* a is still ours */
  base_alloc_fail_after(1);
  CHECK(base_alloc_aligned(64, 1) == NULL);
  base_alloc_fail_after(1);
  CHECK(base_calloc(1, 1) == NULL);
  base_alloc_fail_after(1);
  base_alloc_fail_after(0);
  void *e = base_alloc(1);
  CHECK(e != NULL);
  base_free(a), base_free(b), base_free(d), base_free(e);
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "12345 bytes", base_no_memory(12345));
}

TEST(arena_allocations_keep_their_bytes) {
  base_arena a;
  base_arena_init(&a);
  enum { N = 3000 };
  static uint8_t *p[N];
  static size_t bytes[N];
  uint64_t seed = 1;
  for (int i = 0; i < N; ++i) {
    uint64_t r = check_random(&seed);
    bytes[i] = r % 100 == 0 ? r / 128 % 300000 : r / 128 % 200; /* some larger than any chunk so far */
    p[i] = base_arena_alloc(&a, bytes[i]);
    REQUIRE(p[i] != NULL);
    CHECK_EQ((uintptr_t)p[i] % 16, 0);
    memset(p[i], i & 255, bytes[i]);
  }
  for (int i = 0; i < N; ++i) {
    size_t wrong = 0;
    for (size_t j = 0; j < bytes[i]; ++j) wrong += p[i][j] != (i & 255);
    CHECK_EQ(wrong, 0);
  }
  CHECK(base_arena_alloc(&a, SIZE_MAX) == NULL);
  CHECK(base_arena_alloc(&a, SIZE_MAX - 31) == NULL);
  base_arena_free(&a);
  CHECK(a.head == NULL);
}

TEST(arena_helpers) {
  base_arena a;
  base_arena_init(&a);
  base_arena_reset(&a); /* nothing yet: fine */
  uint8_t *zeros = base_arena_zalloc(&a, 5000);
  REQUIRE(zeros != NULL);
  for (int i = 0; i < 5000; ++i) CHECK_EQ(zeros[i], 0);
  int numbers[3] = {1, 2, 3}, *copy = base_arena_dup(&a, numbers, sizeof numbers);
  REQUIRE(copy != NULL);
  CHECK_EQ(copy[2], 3);
  CHECK(base_arena_dup(&a, NULL, 0) != NULL);
  CHECK_STR(base_arena_printf(&a, "%s-%d", "tensor", 42), "tensor-42");
  CHECK_STR(base_arena_printf(&a, "%s", ""), "");
  base_arena_free(&a);
}

TEST(arena_reset_recycles) {
  base_arena a;
  base_arena_init(&a);
  for (int round = 0; round < 5; ++round) {
    uint64_t before = base_alloc_count();
    for (int i = 0; i < 100; ++i) {
      uint8_t *p = base_arena_alloc(&a, 1000);
      REQUIRE(p != NULL);
      memset(p, round, 1000);
    }
    if (round >= 2) CHECK_EQ(base_alloc_count(), before);
    base_arena_reset(&a);
  }
  CHECK(base_arena_alloc(&a, 10 << 20) != NULL);
  base_arena_reset(&a);
  CHECK(!a.head || (a.head && a.end - a.next <= 1 << 20)); /* 10 MB are not kept */
  base_arena_free(&a);
}

static ttpu_status use_arena(void *unused) {
  (void)unused;
  base_arena a;
  base_arena_init(&a);
  ttpu_status status = TTPU_OK;
  for (int i = 0; i < 20 && status == TTPU_OK; ++i) {
    char *text = base_arena_printf(&a, "%d: %0*d", i, 3000, i);
    void *p = base_arena_zalloc(&a, 2000), *q = base_arena_dup(&a, "abc", 4);
    if (!text || !p || !q) status = base_no_memory(2000);
  }
  base_arena_free(&a);
  return status;
}

static ttpu_status use_array_and_text(void *unused) {
  (void)unused;
  int64_t *items = NULL;
  uint32_t count = 0, cap = 0;
  base_text t = {0};
  ttpu_status status = TTPU_OK;
  for (int i = 0; i < 1000; ++i) {
    if (!BASE_GROW(items, count, cap)) {
      status = base_no_memory(sizeof *items);
      break;
    }
    items[count++] = i;
    base_text_printf(&t, "%d,", i);
  }
  for (uint32_t i = 0; i < count; ++i) CHECK_EQ(items[i], i); /* also after a failure */
  if (t.failed) status = base_no_memory(t.capacity);
  base_free(items);
  base_text_free(&t);
  return status;
}

TEST(every_failing_allocation_is_a_status) {
  CHECK(check_out_of_memory(use_arena, NULL) >= 3);
  CHECK(check_out_of_memory(use_array_and_text, NULL) >= 8);
}

TEST(arrays_refuse_to_wrap_around) {
  void *p = NULL;
  uint32_t cap = 0;
  CHECK(!base_grow(&p, &cap, 0, 8));
  CHECK(!base_grow(&p, &cap, UINT32_MAX, SIZE_MAX / 2));
  CHECK(p == NULL && cap == 0);
}

TEST(text_grows) {
  base_text t = {0};
  base_text_free(&t);
  CHECK(t.data == NULL);
  base_text_put(&t, "", 0);
  CHECK_STR(t.data, "");
  base_text_printf(&t, "%s %d", "abc", 5);
  base_text_put(&t, "xyz", 2);
  CHECK_STR(t.data, "abc 5xy");
  CHECK_EQ(t.length, 7);
  char longer[5000];
  memset(longer, 'q', sizeof longer);
  longer[4999] = '\0';
  base_text_printf(&t, "%s", longer);
  CHECK_EQ(t.length, 7 + 4999);
  CHECK_EQ(strlen(t.data), t.length);
  for (int width = 0; width < 200; ++width) base_text_printf(&t, "%*s", width, ""); /* around each boundary */
  CHECK_EQ(t.length, 7 + 4999 + 199 * 200 / 2);
  CHECK_EQ(strlen(t.data), t.length);
  base_text_free(&t);
}

TEST(a_failed_text_takes_no_more) {
  base_text t = {0};
  base_text_put(&t, "kept", 4);
  base_alloc_fail_after(1);
  char longer[500] = {0};
  base_text_put(&t, longer, sizeof longer);
  CHECK(t.failed);
  base_text_put(&t, "x", 1);
  base_text_printf(&t, "y");
  CHECK_STR(t.data, "kept");
  base_text_free(&t);
  CHECK(!t.failed);
}
