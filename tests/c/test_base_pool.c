/* The thread pool: every piece runs exactly once, on legal worker numbers, whatever the sizes and whoever else calls;
 * nesting, several host threads, resizing, forking; and what handing work over costs. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { COSTLY = 1000 * 1000 }; /* a cost that wakes sleepers */

typedef struct job {
  int64_t count, grain;
  int size;          /* worker numbers are below this */
  _Atomic int *hits; /* per element */
  _Atomic int bad;
  _Atomic uint64_t workers; /* bit per worker seen, of the first 64 */
  int spin;
} job;

static void spin(int turns) {
  for (volatile int i = 0; i < turns; ++i) {}
}

static void count_hits(void *ctx, int64_t begin, int64_t end, int worker) {
  job *j = ctx;
  bool cut = begin % j->grain == 0 && (end - begin == j->grain || end == j->count) && begin < end;
  if (!cut || worker < 0 || worker >= j->size) atomic_fetch_add(&j->bad, 1);
  if (worker < 64) atomic_fetch_or(&j->workers, (uint64_t)1 << worker);
  for (int64_t i = begin; i < end; ++i) atomic_fetch_add(&j->hits[i], 1);
  spin(j->spin);
}

/* One run over `count` elements; true when each was visited once. */
static bool run_once(int64_t count, int64_t grain, int64_t cost, int turns, uint64_t *workers) {
  job j = {.count = count, .grain = grain, .size = base_pool_size(), .spin = turns};
  j.hits = calloc((size_t)(count > 0 ? count : 1), sizeof *j.hits);
  base_pool_run(count, grain, cost, count_hits, &j);
  int wrong = atomic_load(&j.bad);
  for (int64_t i = 0; i < count; ++i) wrong += atomic_load(&j.hits[i]) != 1;
  free(j.hits);
  if (workers) *workers |= atomic_load(&j.workers);
  return CHECK_EQ(wrong, 0);
}

TEST(every_piece_once_at_any_size) {
  static const int sizes[] = {1, 2, 3, 4, 7, 16, 40};
  uint64_t seed = 3;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    base_pool_resize(sizes[s]);
    CHECK_EQ(base_pool_size(), sizes[s]);
    for (int i = 0; i < 300; ++i) {
      int64_t count = (int64_t)(check_random(&seed) % 2000), grain = 1 + (int64_t)(check_random(&seed) % 70);
      int64_t cost = i % 3 == 0 ? 0 : i % 3 == 1 ? 50 * 1000 : COSTLY;
      run_once(count, grain, cost, 0, NULL);
    }
  }
}

static void never(void *ctx, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end, (void)worker;
  *(bool *)ctx = true;
}

static void add_up(void *ctx, int64_t begin, int64_t end, int worker) {
  (void)worker;
  atomic_fetch_add((_Atomic int64_t *)ctx, end - begin);
}

TEST(edges_of_count_and_grain) {
  base_pool_resize(2);
  bool called = false;
  base_pool_run(0, 1, COSTLY, never, &called);
  base_pool_run(-5, 1, COSTLY, never, &called);
  CHECK(!called);
  _Atomic int64_t sum = 0;
  base_pool_run(10, 0, COSTLY, add_up, (void *)&sum); /* a grain below 1 is 1 */
  CHECK_EQ(sum, 10);
  sum = 0;
  base_pool_run(INT64_MAX, INT64_MAX / 5, COSTLY, add_up, (void *)&sum);
  CHECK_EQ(sum, INT64_MAX);
  run_once(1, 1, COSTLY, 0, NULL);
  run_once(5, 100, COSTLY, 0, NULL);
}

TEST(several_threads_take_part) {
  base_pool_resize(4);
  uint64_t workers = 0;
  for (int i = 0; i < 200 && workers != 15; ++i) run_once(64, 1, COSTLY, 100000, &workers);
  CHECK_EQ(workers, 15);
}

TEST(cheap_runs_stay_on_the_caller) {
  base_pool_resize(4);
  uint64_t workers = 0;
  for (int i = 0; i < 100; ++i) run_once(1000, 1, 19000, 0, &workers);
  CHECK_EQ(workers, 1);
}

TEST(a_stream_of_short_runs_wakes_sleepers) {
  base_pool_resize(2);
  run_once(64, 1, COSTLY, 1000, NULL);
  usleep(50 * 1000); /* the worker sleeps */
  uint64_t workers = 0;
  double until = check_seconds() + 5;
  while (workers != 3 && check_seconds() < until) run_once(64, 1, 50 * 1000, 3000, &workers);
  CHECK_EQ(workers, 3);
}

/* ---- nesting ---- */

static void nested_inner(void *ctx, int64_t begin, int64_t end, int worker) {
  int *seen = ctx; /* the outer worker's alone: no race if the inner run is inline */
  seen[0] += (int)(end - begin);
  if (seen[1] != worker) seen[2]++;
}
static void nested_outer(void *ctx, int64_t begin, int64_t end, int worker) {
  _Atomic int *total = ctx;
  for (int64_t i = begin; i < end; ++i) {
    int seen[3] = {0, worker, 0};
    base_pool_run(100, 7, COSTLY, nested_inner, seen);
    CHECK_EQ(seen[0], 100);
    CHECK_EQ(seen[2], 0); /* nested pieces carry the number of the thread they run on */
    atomic_fetch_add(total, seen[0]);
  }
}

TEST(nested_runs_are_inline) {
  base_pool_resize(4);
  for (int i = 0; i < 200; ++i) {
    _Atomic int total = 0;
    base_pool_run(20, 1, COSTLY, nested_outer, (void *)&total);
    CHECK_EQ(total, 2000);
  }
}

/* ---- several host threads ---- */

static atomic_bool stop_resizing;

static void *host_thread(void *argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument;
  for (int i = 0; i < 2000; ++i) {
    int64_t count = (int64_t)(check_random(&seed) % 500);
    run_once(count, 1 + (int64_t)(check_random(&seed) % 20), COSTLY, 10, NULL);
  }
  return NULL;
}

static void *resizing_thread(void *unused) {
  (void)unused;
  for (int i = 0; !atomic_load(&stop_resizing); ++i) {
    base_pool_resize(1 + i % 9);
    usleep(200);
  }
  return NULL;
}

TEST(host_threads_at_once_while_another_resizes) {
  pthread_t threads[4], resizer;
  atomic_store(&stop_resizing, false);
  REQUIRE(pthread_create(&resizer, NULL, resizing_thread, NULL) == 0);
  for (int i = 0; i < 4; ++i) REQUIRE(pthread_create(&threads[i], NULL, host_thread, (void *)(uintptr_t)(i + 1)) == 0);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  atomic_store(&stop_resizing, true);
  pthread_join(resizer, NULL);
}

TEST(resize_clamps) {
  base_pool_resize(-3);
  CHECK_EQ(base_pool_size(), 1);
  run_once(100, 1, COSTLY, 0, NULL);
  base_pool_resize(100000);
  CHECK_EQ(base_pool_size(), BASE_POOL_MAX);
  base_pool_resize(2);
}

TEST(the_largest_pool) {
  base_pool_resize(BASE_POOL_MAX);
  for (int i = 0; i < 20; ++i) run_once(5000, 3, 100 * COSTLY, 10, NULL);
  base_pool_resize(2);
  run_once(5000, 3, COSTLY, 10, NULL);
}

/* ---- fork ---- */

/* All three threads take part sooner or later: on fewer cores, where one that spins makes room for one that works, later. */
static int child_works(void) {
  uint64_t workers = 0;
  for (int i = 0; i < 20000 && workers != 7; ++i)
    if (!run_once(64, 1, COSTLY, 20000, &workers)) return 1;
  return workers == 7 ? 0 : 2;
}

static int in_child(int (*body)(void)) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int grandchild_works(void) { return child_works() ? 3 : in_child(child_works); }

TEST(fork_starts_a_new_pool) {
  base_pool_resize(3);
  uint64_t workers = 0;
  for (int i = 0; i < 50; ++i) run_once(64, 1, COSTLY, 1000, &workers);
  for (int i = 0; i < 5; ++i) CHECK_EQ(in_child(grandchild_works), 0);
  run_once(64, 1, COSTLY, 1000, NULL);
}

static void *forking_thread(void *unused) {
  (void)unused;
  for (int i = 0; i < 20; ++i) CHECK_EQ(in_child(child_works), 0);
  return NULL;
}

TEST(fork_while_another_thread_runs) {
  base_pool_resize(3);
  pthread_t forker, runner;
  REQUIRE(pthread_create(&runner, NULL, host_thread, (void *)1) == 0);
  REQUIRE(pthread_create(&forker, NULL, forking_thread, NULL) == 0);
  pthread_join(forker, NULL);
  pthread_join(runner, NULL);
}

/* ---- settings ---- */

static int threads_from_environment(void) {
  setenv("TTPU_THREADS", "5", 1);
  return base_pool_size();
}
static int threads_from_nonsense(void) {
  setenv("TTPU_THREADS", "many", 1);
  return base_pool_size() == base_cpu()->cores;
}
static int threads_by_default(void) {
  unsetenv("TTPU_THREADS");
  return base_pool_size() == base_cpu()->cores;
}
static int threads_of_one_process_of_many(void) {
  unsetenv("TTPU_THREADS");
  setenv("LOCAL_WORLD_SIZE", "1000", 1);
  return base_pool_size();
}
/* The size is read once, and the tests above have set it: a new process each. */
TEST(environment) {
  const char *name = getenv("TEST_POOL_ENVIRONMENT");
  if (name) {
    int code = *name == '5'   ? threads_from_environment()
               : *name == 'x' ? threads_from_nonsense()
               : *name == 'm' ? threads_of_one_process_of_many()
                              : threads_by_default();
    _exit(code);
  }
  static const char *const cases[] = {"5", "x", "m", "d"};
  static const int codes[] = {5, 1, 1, 1};
  for (int i = 0; i < 4; ++i) {
    pid_t child = fork();
    if (child == 0) {
      setenv("TEST_POOL_ENVIRONMENT", cases[i], 1);
      execl("/proc/self/exe", "test_base_pool", "environment", (char *)NULL);
      _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_EQ(WEXITSTATUS(status), codes[i]);
  }
}

/* ---- cost ---- */

static void nothing(void *ctx, int64_t begin, int64_t end, int worker) {
  (void)ctx, (void)begin, (void)end, (void)worker;
}
static void some_work(void *ctx, int64_t begin, int64_t end, int worker) {
  (void)end, (void)worker, (void)begin;
  spin(*(int *)ctx);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median of 501 runs in microseconds, each after `idle_us` of doing nothing. */
static double microseconds(int64_t count, int64_t cost, base_pool_fn fn, void *ctx, int idle_us) {
  static double t[501];
  int n = idle_us ? 51 : 501;
  for (int i = 0; i < n; ++i) {
    if (idle_us) usleep((unsigned)idle_us);
    double start = check_seconds();
    base_pool_run(count, 1, cost, fn, ctx);
    t[i] = 1e6 * (check_seconds() - start);
  }
  qsort(t, (size_t)n, sizeof *t, compare);
  return t[n / 2];
}

TEST(dispatch_cost) { /* printed, not judged: other programs share the cores */
  base_pool_resize(2);
  int turns = 20000;
  double one = microseconds(1, 0, some_work, &turns, 0);
  printf(
      "  us: inline %.2f, handed to a spinning worker %.2f, the same of work (%.1f) on each of two: %.1f, "
      "on sleepers: %.1f\n",
      microseconds(2, 0, nothing, NULL, 0), microseconds(2, COSTLY, nothing, NULL, 0), one,
      microseconds(2, COSTLY, some_work, &turns, 0), microseconds(2, COSTLY, some_work, &turns, 2000));
}
