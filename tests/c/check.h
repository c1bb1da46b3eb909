/* The C tests' frame. A test program is one file:
 *
 *   #include "check.h"
 *   TEST(adds_two_numbers) {
 *     CHECK(1 + 1 == 2);
 *     CHECK_EQ(1 + 1, 2);
 *     CHECK_NEAR(0.1 + 0.2, 0.3, 1e-15);
 *     CHECK_STR(name, "float32");
 *     CHECK_OK(function_that_returns_a_status());
 *     CHECK_FAILS(TTPU_INVALID_ARGUMENT, "rank 17", function_that_must_fail());
 *   }
 *
 * main() is made here: it runs every TEST in the order of the file and exits with 0 when all pass. Arguments choose:
 * `test_base_pool fork` runs the tests whose name contains "fork". A failed CHECK counts and goes on, since later checks
 * often say more; REQUIRE leaves the test. Both may be used in functions that a test calls, CHECK from any thread.
 */
#ifndef TTPU_CHECK_H
#define TTPU_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* What the sanitizers' run-time libraries ask for: an impossible allocation gives NULL, as without them. */
#if defined(__SANITIZE_ADDRESS__)
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:detect_stack_use_after_return=1";
}
__attribute__((visibility("default"))) const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }
#elif defined(__SANITIZE_THREAD__)
__attribute__((visibility("default"))) const char *__tsan_default_options(void) {
  return "allocator_may_return_null=1:die_after_fork=0";
}
#endif

typedef struct check_test {
  const char *name;
  void (*run)(void);
  struct check_test *next;
} check_test;

static check_test *check_first, **check_last = &check_first;
static atomic_int check_failures; /* of the test that runs */

#define TEST(test_name)                                                      \
  static void test_##test_name(void);                                        \
  __attribute__((constructor)) static void test_register_##test_name(void) { \
    static check_test test = {#test_name, test_##test_name, NULL};           \
    *check_last = &test;                                                     \
    check_last = &test.next;                                                 \
  }                                                                          \
  static void test_##test_name(void)

/* Says where and what; only the first 20 failures of a test are printed. */
__attribute__((format(printf, 3, 4), unused)) static bool check_fail(const char *file, int line, const char *format,
                                                                     ...) {
  int n = atomic_fetch_add(&check_failures, 1);
  if (n == 20) fprintf(stderr, "    ... and more\n");
  if (n >= 20) return false;
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "    %s:%d: %s\n", file, line, text);
  return false;
}

/* NaN equals NaN; a difference of exactly `tolerance` is near. */
__attribute__((unused)) static bool check_near(double a, double b, double tolerance) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= tolerance;
}

#define CHECK(condition) ((condition) ? true : check_fail(__FILE__, __LINE__, "%s", #condition))

/* Integers, pointers cast to integers and enums; compared as 64-bit values. */
#define CHECK_EQ(a, b) check_eq_at((int64_t)(a), (int64_t)(b), #a, #b, __FILE__, __LINE__)
__attribute__((unused)) static bool check_eq_at(int64_t a, int64_t b, const char *a_text, const char *b_text,
                                                const char *file, int line) {
  if (a == b) return true;
  return check_fail(file, line, "%s == %s: %lld (%#llx) is not %lld (%#llx)", a_text, b_text, (long long)a,
                    (unsigned long long)a, (long long)b, (unsigned long long)b);
}

#define CHECK_NEAR(a, b, tolerance) \
  check_near_at((double)(a), (double)(b), (double)(tolerance), #a, #b, __FILE__, __LINE__)
__attribute__((unused)) static bool check_near_at(double a, double b, double tolerance, const char *a_text,
                                                  const char *b_text, const char *file, int line) {
  if (check_near(a, b, tolerance)) return true;
  return check_fail(file, line, "%s near %s: %.17g and %.17g differ by %g, allowed %g", a_text, b_text, a, b,
                    fabs(a - b), tolerance);
}

#define CHECK_STR(a, b) check_str_at((a), (b), #a, __FILE__, __LINE__)
__attribute__((unused)) static bool check_str_at(const char *a, const char *b, const char *a_text, const char *file,
                                                 int line) {
  if (a && b && strcmp(a, b) == 0) return true;
  return check_fail(file, line, "%s: \"%s\" is not \"%s\"", a_text, a ? a : "(null)", b ? b : "(null)");
}

/* The text contains `part`. */
#define CHECK_HAS(text, part) check_has_at((text), (part), #text, __FILE__, __LINE__)
__attribute__((unused)) static bool check_has_at(const char *text, const char *part, const char *name, const char *file,
                                                 int line) {
  if (text && strstr(text, part)) return true;
  return check_fail(file, line, "%s: \"%s\" does not contain \"%s\"", name, text ? text : "(null)", part);
}

#define CHECK_OK(expr) check_ok_at((expr), #expr, __FILE__, __LINE__)
__attribute__((unused)) static bool check_ok_at(ttpu_status status, const char *text, const char *file, int line) {
  if (status == TTPU_OK) return true;
  return check_fail(file, line, "%s: %s: %s", text, base_status_name(status), base_message());
}

/* The expression fails with this code and its message contains `part`. */
#define CHECK_FAILS(code, part, expr) check_fails_at((code), (part), (expr), #expr, __FILE__, __LINE__)
__attribute__((unused)) static bool check_fails_at(ttpu_status code, const char *part, ttpu_status status,
                                                   const char *text, const char *file, int line) {
  if (status == code && strstr(base_message(), part)) return true;
  return check_fail(file, line, "%s: %s: \"%s\", expected %s with \"%s\"", text, base_status_name(status),
                    status == TTPU_OK ? "" : base_message(), base_status_name(code), part);
}

/* Leaves the current function, which returns void, when the condition does not hold. */
#define REQUIRE(condition)         \
  do {                             \
    if (!CHECK(condition)) return; \
  } while (0)
#define REQUIRE_OK(expr)         \
  do {                           \
    if (!CHECK_OK(expr)) return; \
  } while (0)

/* Runs `body(ctx)` once per allocation it makes, with that allocation failing, until a run succeeds. Each failing run
 * must give RESOURCE_EXHAUSTED; leaks and broken state are for the sanitizers and `body` to find. Returns the number of
 * failures injected. */
__attribute__((unused)) static int check_out_of_memory(ttpu_status (*body)(void *ctx), void *ctx) {
  for (int nth = 1; nth < 100000; ++nth) {
    base_alloc_fail_after((uint64_t)nth);
    ttpu_status status = body(ctx);
    base_alloc_fail_after(0);
    if (status == TTPU_OK) return nth - 1;
    if (status != TTPU_RESOURCE_EXHAUSTED) {
      check_fail(__FILE__, __LINE__, "allocation %d failed and gave %s: %s", nth, base_status_name(status),
                 base_message());
      return nth;
    }
  }
  check_fail(__FILE__, __LINE__, "still failing after 100,000 allocations");
  return 0;
}

/* A small generator for test data: the same numbers on every machine. */
__attribute__((unused)) static uint64_t check_random(uint64_t *state) {
  *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__attribute__((unused)) static double check_uniform(uint64_t *state) { /* [0, 1) */
  return (double)(check_random(state) >> 11) * 0x1p-53;
}

__attribute__((unused)) static double check_seconds(void) { return 1e-9 * (double)base_now_ns(); }

static bool check_chosen(const char *name, int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (strstr(name, argv[i])) return true;
  return argc <= 1;
}

int main(int argc, char **argv) {
  int passed = 0, failed = 0;
  for (check_test *test = check_first; test; test = test->next) {
    if (!check_chosen(test->name, argc, argv)) continue;
    atomic_store(&check_failures, 0);
    double start = check_seconds();
    test->run();
    double seconds = check_seconds() - start;
    bool ok = atomic_load(&check_failures) == 0;
    ok ? ++passed : ++failed;
    printf("%s %s", ok ? "ok    " : "FAILED", test->name);
    if (seconds >= 0.1) printf(" (%.1f s)", seconds);
    printf("\n");
    fflush(stdout);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

#endif
