/* Streams: order, who runs the work, waiting, callbacks, fork. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "soft/queue.h"

typedef struct note_job {
  soft_job job;
  soft_done *done, *wait_for;
  int number, *log;
  atomic_int *count;
  int sleep_us;
  pthread_t *who;
} note_job;

static void run_note(soft_job *job) {
  note_job *n = (note_job *)job;
  ttpu_status status = n->wait_for ? soft_done_await(n->wait_for) : TTPU_OK;
  if (n->sleep_us) usleep((unsigned)n->sleep_us);
  int at = atomic_fetch_add(n->count, 1);
  if (n->log) n->log[at] = n->number;
  if (n->who) *n->who = pthread_self();
  soft_done_set(n->done, status, base_message());
  soft_done_free(n->done);
  soft_done_free(n->wait_for);
  base_free(n);
}

static soft_done *push(soft_queue *q, note_job what) {
  note_job *n = base_alloc(sizeof *n);
  *n = what;
  n->job.run = run_note;
  n->done = soft_done_new(q);
  soft_done *done = soft_done_share(n->done);
  CHECK_OK(soft_queue_push(q, &n->job));
  return done;
}

static void await(soft_done *d) {
  CHECK_OK(soft_done_await(d));
  soft_done_free(d);
}

TEST(runs_in_order) {
  enum { COUNT = 1000 };
  static int log[COUNT];
  atomic_int count = 0;
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  soft_done *last = NULL;
  for (int i = 0; i < COUNT; ++i) {
    soft_done_free(last);
    last = push(q, (note_job){.number = i, .log = log, .count = &count, .job.cost = i % 7 * 10000});
  }
  await(last);
  CHECK_EQ(count, COUNT);
  for (int i = 0; i < COUNT; ++i) CHECK_EQ(log[i], i);
  soft_queue_free(q);
}

TEST(a_waiting_thread_runs_small_work) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  atomic_int count = 0;
  int mine = 0;
  for (int i = 0; i < 100; ++i) {
    pthread_t who;
    await(push(q, (note_job){.count = &count, .who = &who, .job.cost = 1000}));
    mine += pthread_equal(who, pthread_self()) != 0;
  }
  CHECK(mine > 50); /* the worker takes it only where this thread lost the processor in between */
  soft_queue_free(q);
}

TEST(work_goes_on_without_a_waiter) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  atomic_int count = 0;
  for (int pause = 0; pause <= 200000; pause = pause ? pause * 10 : 2000) { /* awake, dozing, asleep */
    int before = count;
    soft_done *d = push(q, (note_job){.count = &count, .job.cost = 100});
    for (int i = 0; i < 5000 && !soft_done_is_ready(d); ++i) usleep(100);
    CHECK(soft_done_is_ready(d));
    CHECK_EQ(count, before + 1);
    soft_done_free(d);
    usleep((unsigned)pause);
  }
  soft_queue_free(q);
}

TEST(freeing_runs_what_is_left) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  atomic_int count = 0;
  for (int i = 0; i < 50; ++i) soft_done_free(push(q, (note_job){.count = &count, .sleep_us = 100}));
  soft_queue_free(q);
  CHECK_EQ(count, 50);
}

TEST(flush_waits_for_all) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  atomic_int count = 0;
  for (int i = 0; i < 20; ++i) soft_done_free(push(q, (note_job){.count = &count, .sleep_us = 200}));
  CHECK_OK(soft_queue_flush(q));
  CHECK_EQ(count, 20);
  soft_queue_free(q);
}

static void *await_in_thread(void *d) {
  await(d);
  return NULL;
}

TEST(many_threads_wait) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  for (int round = 0; round < 50; ++round) {
    atomic_int count = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) {
      soft_done *d = push(q, (note_job){.count = &count, .sleep_us = round % 2 ? 0 : 300});
      pthread_create(&threads[i], NULL, await_in_thread, d);
    }
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
    CHECK_EQ(count, 4);
  }
  soft_queue_free(q);
}

static void *push_in_thread(void *q) {
  atomic_int count = 0;
  for (int i = 0; i < 300; ++i) {
    soft_done *d = push(q, (note_job){.count = &count});
    if (i % 3) soft_done_free(d);
    else await(d);
  }
  CHECK_OK(soft_queue_flush(q));
  CHECK_EQ(count, 300);
  return NULL;
}

TEST(many_threads_push) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, push_in_thread, q);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  soft_queue_free(q);
}

TEST(queues_wait_for_each_other) {
  soft_queue *a, *b;
  REQUIRE_OK(soft_queue_new(&a));
  REQUIRE_OK(soft_queue_new(&b));
  atomic_int count = 0;
  soft_done *last = NULL;
  for (int i = 0; i < 500; ++i) { /* each job waits for the one before it, on the other queue */
    soft_done *next =
        push(i % 2 ? a : b,
             (note_job){.count = &count, .wait_for = last ? soft_done_share(last) : NULL, .job.cost = i % 5 * 30000});
    soft_done_free(last);
    last = next;
  }
  await(last);
  CHECK_EQ(count, 500);
  soft_queue_free(a);
  soft_queue_free(b);
}

TEST(failures_keep_status_and_message) {
  soft_done *d = soft_done_new(NULL);
  soft_done_set(d, TTPU_OUT_OF_RANGE, "index 7 of 3");
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7 of 3", soft_done_await(d));
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7 of 3", soft_done_status(d));
  soft_done_free(d);
}

typedef struct call_log {
  int calls[4], count;
  soft_queue *queue;
  soft_done *next;
} call_log;

static void log_first(void *context, soft_done *d) {
  call_log *l = context;
  l->calls[l->count++] = 1;
  CHECK(soft_done_is_ready(d));
}
static void log_second(void *context, soft_done *d) {
  (void)d;
  call_log *l = context;
  l->calls[l->count++] = 2;
}

TEST(callbacks_in_order_and_at_once) {
  call_log l = {.count = 0};
  soft_done *d = soft_done_new(NULL);
  CHECK_OK(soft_done_on_ready(d, log_first, &l));
  CHECK_OK(soft_done_on_ready(d, log_second, &l));
  CHECK_EQ(l.count, 0);
  soft_done_set(d, TTPU_OK, NULL);
  CHECK_EQ(l.count, 2);
  CHECK_EQ(l.calls[0], 1);
  CHECK_EQ(l.calls[1], 2);
  CHECK_OK(soft_done_on_ready(d, log_first, &l));
  CHECK_EQ(l.count, 3);
  soft_done_free(d);
  d = soft_done_new(NULL); /* a promise that nobody keeps frees its callbacks */
  CHECK_OK(soft_done_on_ready(d, log_first, &l));
  soft_done_free(d);
  CHECK_EQ(l.count, 3);
}

static void await_next(void *context, soft_done *d) {
  (void)d;
  call_log *l = context;
  CHECK_OK(soft_done_await(l->next));
  l->count = 1;
}

TEST(a_callback_may_wait_for_later_work) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  for (int i = 0; i < 100; ++i) {
    atomic_int count = 0;
    soft_done *gate = soft_done_new(NULL);
    soft_done *first = push(q, (note_job){.count = &count, .wait_for = soft_done_share(gate)});
    call_log l = {.queue = q, .next = push(q, (note_job){.count = &count})};
    CHECK_OK(soft_done_on_ready(first, await_next, &l));
    soft_done_set(gate, TTPU_OK, NULL);
    CHECK_OK(soft_queue_flush(q));
    CHECK_EQ(l.count, 1);
    CHECK_EQ(count, 2);
    soft_done_free(first);
    soft_done_free(gate);
    soft_done_free(l.next);
  }
  soft_queue_free(q);
}

/* What the child of the next test does: it exits with work left, its worker alive. */
TEST(leave_work_behind) {
  if (!getenv("TTPU_TEST_LEAVE_WORK")) return;
  static atomic_int count;
  soft_queue *q;
  alarm(20);
  REQUIRE_OK(soft_queue_new(&q));
  for (int i = 0; i < 1000; ++i) soft_done_free(push(q, (note_job){.count = &count, .sleep_us = 100000}));
  usleep(1000);
  exit(0); /* the worker is stopped after the job it runs */
}

TEST(exits_with_work_left) {
  pid_t child = fork();
  if (child == 0) {
    setenv("TTPU_TEST_LEAVE_WORK", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* what is left is lost with the process */
    execl("/proc/self/exe", "test_soft_queue", "leave_work_behind", (char *)NULL);
    _exit(1);
  }
  int status;
  double start = check_seconds();
  waitpid(child, &status, 0);
  CHECK(check_seconds() - start < 10);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(forked_child_does_not_hang) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  atomic_int count = 0;
  soft_done *pending = push(q, (note_job){.count = &count, .sleep_us = 50000});
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    note_job job = {.count = &count, .job.run = run_note};
    bool ok = soft_forked() && soft_queue_push(q, &job.job) == TTPU_UNAVAILABLE;
    ok = ok && strstr(base_message(), "forked");
    ok = ok && (soft_done_is_ready(pending) || soft_done_await(pending) == TTPU_UNAVAILABLE);
    soft_queue_free(q);
    exit(ok ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(!soft_forked());
  await(pending);
  soft_queue_free(q);
}

static ttpu_status push_one(void *context) {
  atomic_int *count = context;
  soft_queue *q;
  BASE_TRY(soft_queue_new(&q));
  ttpu_status status = soft_queue_flush(q);
  atomic_fetch_add(count, 1);
  soft_queue_free(q);
  return status;
}

TEST(survives_without_memory) {
  atomic_int count = 0;
  CHECK(check_out_of_memory(push_one, &count) >= 3);
}

static void run_nothing(soft_job *job) { (void)job; }

/* Not a limit that a busy machine could miss, only a number to look at. */
TEST(cost_of_a_job) {
  soft_queue *q;
  REQUIRE_OK(soft_queue_new(&q));
  enum { COUNT = 100000 };
  double best = 1;
  for (int round = 0; round < 5; ++round) {
    double start = check_seconds();
    for (int i = 0; i < COUNT / 10; ++i) {
      note_job job = {.job.run = run_nothing};
      soft_queue_push(q, &job.job);
      soft_done *d = soft_done_new(q);
      soft_done_set(d, TTPU_OK, NULL);
      soft_done_free(d);
      soft_queue_flush(q);
    }
    double seconds = (check_seconds() - start) / (COUNT / 10);
    if (seconds < best) best = seconds;
  }
  printf("       two jobs and a wait: %.0f ns\n", best * 1e9);
  soft_queue_free(q);
}
