#include "soft/queue.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "soft/host.h"
#include "soft/link/link.h"

enum {
  SPIN_NS = 200000,       /* an idle worker spins this long */
  GRACE_NS = 5000,        /* and leaves a little work alone this long */
  LITTLE_NS = 20000,      /* which is less than this much */
  WAKE_NS = 50000,        /* work that is worth waking a dozing worker */
  DOZE_NS = 1000000,      /* a dozing worker looks this often */
  DOZES = 100,            /* and falls asleep after this many looks */
  WAITER_SPIN_NS = 20000, /* a waiting host thread spins this long before it sleeps */
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void futex_wait(atomic_uint *word, unsigned expected, int64_t timeout_ns) {
  struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? NULL : &t, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Spinning helps only if somebody else can run meanwhile. */
static int64_t spin_ns(int64_t ns) { return base_cpu()->cores > 1 ? ns : 0; }

/* ---- fork and exit ----------------------------------------------------------------------------- */

static atomic_bool forked;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static soft_queue *all; /* every queue, for the exit handler */

bool soft_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

ttpu_status soft_fail_forked(void) {
  return base_fail(TTPU_UNAVAILABLE,
                   "the TPU was in use before this process was forked and cannot be used in the child; "
                   "use the \"spawn\" start method, or touch the device in the child only");
}

static void after_fork(void) { atomic_store(&forked, true); }

/* ---- promises ---------------------------------------------------------------------------------- */

struct soft_done_callback {
  soft_done_callback *next;
  soft_done_fn fn;
  void *context;
};

static soft_done_callback called; /* the mark: callbacks were called */
static soft_done always = {.refs = 1, .state = SOFT_READY, .callbacks = &called};

void soft_done_init(soft_done *d, soft_queue *queue) {
  memset(d, 0, sizeof *d);
  atomic_init(&d->refs, 1);
  atomic_init(&d->state, SOFT_PENDING);
  atomic_init(&d->callbacks, NULL);
  d->queue = queue;
}

soft_done *soft_done_new(soft_queue *queue) {
  soft_done *d = base_alloc(sizeof *d);
  if (d) soft_done_init(d, queue);
  return d;
}

soft_done *soft_done_ok(void) { return &always; }

soft_done *soft_done_share(soft_done *d) {
  if (d != &always) atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void soft_done_free(soft_done *d) {
  if (!d || d == &always) return;
  if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1) return;
  soft_done_callback *c = atomic_load_explicit(&d->callbacks, memory_order_relaxed);
  while (c && c != &called) { /* a promise that nobody kept */
    soft_done_callback *next = c->next;
    base_free(c);
    c = next;
  }
  base_free(d->message);
  base_free(d);
}

void soft_done_set(soft_done *d, ttpu_status status, const char *message) {
  d->status = status;
  if (status != TTPU_OK && message) {
    size_t length = strlen(message) + 1;
    d->message = base_alloc(length);
    if (d->message) memcpy(d->message, message, length);
  }
  if (atomic_exchange_explicit(&d->state, SOFT_READY, memory_order_acq_rel) == SOFT_WAITED)
    futex_wake(&d->state, INT_MAX);
  soft_done_callback *list = atomic_exchange_explicit(&d->callbacks, &called, memory_order_acq_rel), *order = NULL;
  while (list) { /* oldest first */
    soft_done_callback *next = list->next;
    list->next = order;
    order = list;
    list = next;
  }
  while (order) {
    soft_done_callback *next = order->next;
    order->fn(order->context, d);
    base_free(order);
    order = next;
  }
}

ttpu_status soft_done_status(const soft_done *d) {
  if (d->status == TTPU_OK) return TTPU_OK;
  return base_fail(d->status, "%s", d->message ? d->message : "the message was lost: out of memory");
}

ttpu_status soft_done_on_ready(soft_done *d, soft_done_fn fn, void *context) {
  soft_done_callback *head = atomic_load_explicit(&d->callbacks, memory_order_acquire);
  if (head != &called) {
    soft_done_callback *c = base_alloc(sizeof *c);
    if (!c) return base_no_memory(sizeof *c);
    c->fn = fn;
    c->context = context;
    while (head != &called) {
      c->next = head;
      if (atomic_compare_exchange_weak_explicit(&d->callbacks, &head, c, memory_order_acq_rel, memory_order_acquire))
        return TTPU_OK;
    }
    base_free(c);
  }
  fn(context, d);
  return TTPU_OK;
}

/* ---- queues ------------------------------------------------------------------------------------ */

typedef enum { WORKER_NONE, WORKER_AWAKE, WORKER_DOZING, WORKER_ASLEEP } worker_state;

struct soft_queue {
  pthread_mutex_t lock; /* guards all that follows, save what is atomic and the batch */
  soft_job *first, **last;
  atomic_uint count;   /* jobs from `first` on; written under the lock */
  atomic_llong cost;   /* of those; the same */
  atomic_bool running; /* somebody takes jobs from the front; the same */
  const char *runner;  /* who: the address of his `self` */
  uint32_t waiters;    /* threads asleep on a promise while somebody runs the queue */
  worker_state worker;
  atomic_bool stop;
  atomic_uint wake; /* counts wakes; the worker sleeps on it */
  pthread_t thread;
  soft_queue *all_next;
  /* What the runner took from the front, and only he touches; empty while nobody runs. Taking all there is at once
   * keeps him and who pushes from meeting at the lock for each job. */
  _Alignas(64) soft_job *batch, **batch_last;
  uint32_t batch_count;
  int64_t batch_cost;
};

static _Thread_local char self; /* its address tells threads apart */

static void set_totals(soft_queue *q, uint32_t count, int64_t cost) {
  atomic_store_explicit(&q->count, count, memory_order_relaxed);
  atomic_store_explicit(&q->cost, cost, memory_order_relaxed);
}

static void take_batch(soft_queue *q) {
  q->batch = q->first;
  q->batch_last = q->last;
  q->batch_count = atomic_load_explicit(&q->count, memory_order_relaxed);
  q->batch_cost = atomic_load_explicit(&q->cost, memory_order_relaxed);
  q->first = NULL;
  q->last = &q->first;
  set_totals(q, 0, 0);
}

static void put_batch_back(soft_queue *q) {
  *q->batch_last = q->first;
  if (!q->first) q->last = q->batch_last;
  q->first = q->batch;
  q->batch = NULL;
  set_totals(q, atomic_load_explicit(&q->count, memory_order_relaxed) + q->batch_count,
             atomic_load_explicit(&q->cost, memory_order_relaxed) + q->batch_cost);
}

/* Is a runner through: `until` is ready, or (a worker) the queue is stopped? */
static bool is_through(soft_queue *q, soft_done *until, bool worker) {
  return until ? soft_done_is_ready(until) : worker && atomic_load_explicit(&q->stop, memory_order_relaxed);
}

/* Runs jobs until none is left or is_through. Called and left with the lock held; no other thread runs. A callback of
 * a job may come here again, on the same thread; it goes on with the same batch. */
static void run_jobs(soft_queue *q, soft_done *until, bool worker) {
  const char *outer = q->runner;
  atomic_store_explicit(&q->running, true, memory_order_relaxed);
  q->runner = &self;
  while ((q->batch || q->first) && !is_through(q, until, worker)) {
    if (!q->batch) take_batch(q);
    pthread_mutex_unlock(&q->lock);
    while (q->batch && !is_through(q, until, worker)) {
      soft_job *job = q->batch;
      q->batch = job->next;
      q->batch_count--;
      q->batch_cost -= job->cost;
      job->run(job);
    }
    pthread_mutex_lock(&q->lock);
  }
  q->runner = outer;
  if (outer) return;
  if (q->batch) put_batch_back(q);
  atomic_store_explicit(&q->running, false, memory_order_release);
}

/* Should the worker be woken for what is queued? With the lock held. */
static bool worth_waking(const soft_queue *q) {
  if (!q->first || atomic_load_explicit(&q->running, memory_order_relaxed)) return false;
  if (q->worker == WORKER_ASLEEP) return true;
  return q->worker == WORKER_DOZING && (q->waiters || atomic_load_explicit(&q->cost, memory_order_relaxed) > WAKE_NS);
}

static void wake_worker(soft_queue *q) {
  atomic_fetch_add_explicit(&q->wake, 1, memory_order_release);
  futex_wake(&q->wake, 1);
}

/* Spins until there is work that nobody runs, or for `ns`. */
static void spin_for_work(soft_queue *q, int64_t ns) {
  int64_t start = base_now_ns(), seen = 0;
  for (uint32_t i = 1;; ++i) {
    bool work = atomic_load_explicit(&q->count, memory_order_relaxed) > 0 &&
                !atomic_load_explicit(&q->running, memory_order_relaxed);
    if (atomic_load_explicit(&q->stop, memory_order_relaxed)) return;
    if (work && atomic_load_explicit(&q->cost, memory_order_relaxed) >= LITTLE_NS) return;
    relax();
    if (!work) seen = 0;
    if (i % 16 && !(work && !seen)) continue;
    if (!work) sched_yield();
    int64_t now = base_now_ns();
    if (work && !seen) seen = now;
    if (work ? now - seen >= GRACE_NS : now - start >= ns) return;
  }
}

static void *worker_main(void *argument) {
  soft_queue *q = argument;
  int64_t spin = spin_ns(SPIN_NS);
  int dozes = 0;
  pthread_mutex_lock(&q->lock);
  while (!atomic_load_explicit(&q->stop, memory_order_relaxed)) {
    if (q->first && !atomic_load_explicit(&q->running, memory_order_relaxed)) {
      q->worker = WORKER_AWAKE;
      run_jobs(q, NULL, true);
      dozes = 0;
      pthread_mutex_unlock(&q->lock);
      spin_for_work(q, spin);
      pthread_mutex_lock(&q->lock);
      continue;
    }
    q->worker = dozes++ < DOZES ? WORKER_DOZING : WORKER_ASLEEP;
    if (atomic_load_explicit(&q->running, memory_order_relaxed)) q->worker = WORKER_DOZING;
    bool asleep = q->worker == WORKER_ASLEEP;
    unsigned seen = atomic_load_explicit(&q->wake, memory_order_relaxed);
    pthread_mutex_unlock(&q->lock);
    futex_wait(&q->wake, seen, asleep ? -1 : DOZE_NS);
    pthread_mutex_lock(&q->lock);
    if (asleep) dozes = 0;
  }
  q->worker = WORKER_NONE;
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

/* Starts the worker; signals stay with the process's own threads. With the lock held. */
static void start_worker(soft_queue *q) {
  sigset_t none, before;
  sigfillset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &before);
  if (pthread_create(&q->thread, NULL, worker_main, q) == 0) {
    q->worker = WORKER_AWAKE;
    pthread_setname_np(q->thread, "ttpu-stream");
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Ends the worker after the job it runs now. What is queued stays queued. */
static void stop_worker(soft_queue *q) {
  pthread_mutex_lock(&q->lock);
  bool there = q->worker != WORKER_NONE && !atomic_load(&q->stop);
  atomic_store(&q->stop, true);
  pthread_mutex_unlock(&q->lock);
  if (!there) return;
  wake_worker(q);
  pthread_join(q->thread, NULL);
}

static void at_exit(void) {
  if (soft_forked()) return;
  link_end_all(); /* a worker that waits for another chip, or for the host, would not end */
  soft_host_end_all();
  pthread_mutex_lock(&all_lock);
  for (soft_queue *q = all; q; q = q->all_next) stop_worker(q);
  pthread_mutex_unlock(&all_lock);
}

static void register_handlers(void) {
  pthread_atfork(NULL, NULL, after_fork);
  atexit(at_exit);
}

ttpu_status soft_queue_new(soft_queue **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (soft_forked()) return soft_fail_forked();
  soft_queue *q = base_alloc_aligned(_Alignof(soft_queue), sizeof *q);
  if (!q) return base_no_memory(sizeof *q);
  memset(q, 0, sizeof *q);
  pthread_once(&once, register_handlers);
  pthread_mutex_init(&q->lock, NULL);
  q->last = &q->first;
  pthread_mutex_lock(&all_lock);
  q->all_next = all;
  all = q;
  pthread_mutex_unlock(&all_lock);
  *out = q;
  return TTPU_OK;
}

void soft_queue_free(soft_queue *q) {
  if (!q || soft_forked()) return;
  pthread_mutex_lock(&all_lock);
  for (soft_queue **at = &all; *at; at = &(*at)->all_next)
    if (*at == q) {
      *at = q->all_next;
      break;
    }
  pthread_mutex_unlock(&all_lock);
  stop_worker(q);
  pthread_mutex_lock(&q->lock);
  run_jobs(q, NULL, false);
  pthread_mutex_unlock(&q->lock);
  pthread_mutex_destroy(&q->lock);
  base_free(q);
}

ttpu_status soft_queue_start(soft_queue *q) {
  if (soft_forked()) return soft_fail_forked();
  pthread_mutex_lock(&q->lock);
  bool stopped = atomic_load_explicit(&q->stop, memory_order_relaxed);
  if (q->worker == WORKER_NONE && !stopped) start_worker(q);
  bool there = q->worker != WORKER_NONE;
  pthread_mutex_unlock(&q->lock);
  if (stopped) return base_fail(TTPU_UNAVAILABLE, "the process ends");
  return there ? TTPU_OK : base_fail(TTPU_RESOURCE_EXHAUSTED, "the system gives no more threads");
}

ttpu_status soft_queue_push(soft_queue *q, soft_job *job) {
  if (soft_forked()) return soft_fail_forked();
  job->next = NULL;
  pthread_mutex_lock(&q->lock);
  *q->last = job;
  q->last = &job->next;
  set_totals(q, atomic_load_explicit(&q->count, memory_order_relaxed) + 1,
             atomic_load_explicit(&q->cost, memory_order_relaxed) + job->cost);
  bool stopped = atomic_load_explicit(&q->stop, memory_order_relaxed);
  if (q->worker == WORKER_NONE && !stopped) start_worker(q);
  bool wake = worth_waking(q);
  /* Without a worker (the process ends, or has no more threads) the pusher does the work. */
  if (q->worker == WORKER_NONE && !atomic_load_explicit(&q->running, memory_order_relaxed)) run_jobs(q, NULL, false);
  pthread_mutex_unlock(&q->lock);
  if (wake) wake_worker(q);
  return TTPU_OK;
}

/* Sleeps until d is ready, after a short spin; comes back early when the queue has jobs that nobody runs. */
static void wait_for(soft_done *d, soft_queue *q) {
  int64_t limit = spin_ns(WAITER_SPIN_NS), start = limit ? base_now_ns() : 0;
  for (uint32_t i = 1; limit; ++i) {
    if (soft_done_is_ready(d)) return;
    if (q && !atomic_load_explicit(&q->running, memory_order_relaxed) &&
        atomic_load_explicit(&q->count, memory_order_relaxed) > 0)
      return;
    relax();
    if (i % 16) continue;
    sched_yield();
    if (base_now_ns() - start >= limit) break;
  }
  if (q) { /* who runs the queue sees `waiters` when he leaves it */
    pthread_mutex_lock(&q->lock);
    if (!atomic_load_explicit(&q->running, memory_order_relaxed) && q->first) {
      pthread_mutex_unlock(&q->lock);
      return;
    }
    q->waiters++;
    pthread_mutex_unlock(&q->lock);
  }
  unsigned expected = SOFT_PENDING;
  if (atomic_compare_exchange_strong(&d->state, &expected, SOFT_WAITED) || expected == SOFT_WAITED)
    futex_wait(&d->state, SOFT_WAITED, -1);
  if (q) {
    pthread_mutex_lock(&q->lock);
    q->waiters--;
    pthread_mutex_unlock(&q->lock);
  }
}

typedef enum { HELPED, NOT_MINE, MINE_BUT_EMPTY } help_result;

/* Runs the queue up to d, unless another thread does. */
static help_result help(soft_queue *q, soft_done *d) {
  pthread_mutex_lock(&q->lock);
  bool mine = q->runner == &self; /* a callback of a job that waits for a later one */
  help_result result = mine ? MINE_BUT_EMPTY : NOT_MINE;
  bool wake = false;
  if ((mine && q->batch) || (q->first && (mine || !atomic_load_explicit(&q->running, memory_order_relaxed)))) {
    run_jobs(q, d, false);
    wake = worth_waking(q);
    result = HELPED;
  }
  pthread_mutex_unlock(&q->lock);
  if (wake) wake_worker(q);
  return result;
}

ttpu_status soft_done_await(soft_done *d) {
  while (!soft_done_is_ready(d)) {
    if (soft_forked()) return soft_fail_forked();
    help_result result = d->queue ? help(d->queue, d) : NOT_MINE;
    if (result == MINE_BUT_EMPTY) return base_fail(TTPU_INTERNAL, "a job of the device's stream waits for itself");
    if (result == NOT_MINE) wait_for(d, d->queue);
  }
  return soft_done_status(d);
}

typedef struct flush_job {
  soft_job job;
  soft_done *done;
} flush_job;

static void run_flush(soft_job *job) {
  flush_job *flush = (flush_job *)job;
  soft_done_set(flush->done, TTPU_OK, NULL);
  soft_done_free(flush->done);
  base_free(flush);
}

ttpu_status soft_queue_flush(soft_queue *q) {
  soft_done *done = soft_done_new(q);
  flush_job *flush = base_alloc(sizeof *flush);
  ttpu_status status = TTPU_OK;
  if (!done || !flush) {
    status = base_no_memory(sizeof *flush);
    goto out;
  }
  *flush = (flush_job){{NULL, run_flush, 0}, soft_done_share(done)};
  status = soft_queue_push(q, &flush->job);
  if (status != TTPU_OK) {
    soft_done_free(done);
    goto out;
  }
  flush = NULL;
  status = soft_done_await(done);
out:
  base_free(flush);
  soft_done_free(done);
  return status;
}
