/* The thread pool.
 *
 * A run cuts [0, count) into pieces of `grain` and deals them out: participant w gets the w-th run of consecutive pieces,
 * the same one each time, so that an operator finds in its core's cache what the operator before left there. Who is
 * done early takes from the others.
 *
 * One `slot` a participant holds a ticket: how many participants the run has, and the pieces still to be taken. Taking a
 * piece is a compare-and-swap of the ticket to one less. That makes stragglers harmless: a worker that still walks through
 * the slots of an old run finds them empty, or takes a piece of the new one, and only after taking does it read the run's
 * fields (`job`), which cannot change until that piece is finished. For the same reason it does not matter that a ticket
 * may come to the same value again: equal tickets say the same.
 *
 *   caller:  fills job, then the tickets, then raises `signal`; works; waits until `unfinished` is 0
 *   worker:  spins on `signal` for SPIN_NS, then sleeps on it (futex); works through the slots from its own on
 *
 * Who spins offers his core to others again and again (sched_yield): the host thread, the device's stream and the workers are more
 * threads than cores, and one that only watches would hold up one that works for a whole time slice.
 *
 * One caller owns the pool at a time (`busy`). A second one, from another host thread, runs its pieces itself: with both
 * busy there are no idle cores to win, and waiting could deadlock when the owner waits for it. Nested runs likewise.
 *
 * Workers are started at the first run that wants them and never end; those beyond the wanted size sleep on `size`. They
 * block all signals, so that handlers run on the program's own threads. A forked child has none of the workers:
 * the fork handler forgets them and the next run starts new ones.
 *
 * Measured on two cores (test_base_pool, "dispatch"): an empty run on spinning workers 0.5 to 1 us, waking a sleeper 50 to
 * 120 us of which the caller spends 10 to 20. Hence the limits below.
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

enum {
  SPIN_NS = 200 * 1000,        /* a worker watches this long for the next run before it sleeps */
  INLINE_BELOW_NS = 20 * 1000, /* less work than this is not worth handing over */
  WAKE_FROM_NS = 150 * 1000,   /* less than this is not worth waking a sleeper */
  WAKE_SHARE_NS = 75 * 1000,   /* wake one sleeper per so much work */
  STREAM_GAP_NS = 1000 * 1000, /* runs further apart than this do not add up */
  SHARE_NS = 5 * 1000,         /* and use at most one participant per so much */
  FINISH_SPINS = 4000,         /* the caller's watch over the last pieces, ~100 us, before it sleeps too */
};

typedef struct pool_slot {
  _Alignas(64) _Atomic uint64_t ticket; /* participants << 32 | pieces left */
} pool_slot;

static struct {
  /* Of the current run: written by its caller while nothing is taken, read by those who took a piece. */
  struct {
    base_pool_fn fn;
    void *ctx;
    int64_t count, grain;
    uint64_t pieces, participants;
  } job;
  int started;                              /* workers that exist, 1 .. started; the owning caller's, as the next two */
  int64_t missed_ns;                        /* work done lately while workers slept */
  int64_t last_run_ns;                      /* when the last run began, for the same */
  _Alignas(64) _Atomic uint32_t signal;     /* changes with every run */
  _Atomic uint32_t participants;            /* job.participants for those who hold no piece: a hint */
  _Alignas(64) _Atomic uint32_t unfinished; /* pieces of the current run not finished; the caller sleeps on it */
  _Atomic uint32_t caller_sleeps;
  _Alignas(64) _Atomic uint32_t sleepers; /* workers in futex_wait on `signal` */
  atomic_bool busy;                       /* some caller owns the pool */
  _Atomic uint32_t size;                  /* wanted; 0: not asked for yet */
  pool_slot slots[BASE_POOL_MAX];
} pool;

static _Thread_local int thread_worker;    /* this thread's number within a run; 0 outside of one */
static _Thread_local bool thread_in_run;   /* a run from here is nested */
static _Thread_local int thread_size_told; /* base_pool_size's last answer to this thread, until its next run */

/* ---- waiting ---- */

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *word, int threads) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Returns once `signal` is no longer `seen`. */
static void wait_for_signal(uint32_t seen) {
  int64_t until = base_now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < 64; ++i) {
      if (atomic_load_explicit(&pool.signal, memory_order_acquire) != seen) return;
      cpu_relax();
    }
    sched_yield();
  } while (base_now_ns() < until);
  atomic_fetch_add(&pool.sleepers, 1);
  while (atomic_load(&pool.signal) == seen) futex_wait(&pool.signal, seen);
  atomic_fetch_sub(&pool.sleepers, 1);
}

/* ---- taking and running pieces ---- */

static void run_piece(uint64_t piece, int worker) {
  int64_t begin = (int64_t)piece * pool.job.grain, end = pool.job.count;
  if (end - begin > pool.job.grain) end = begin + pool.job.grain;
  pool.job.fn(pool.job.ctx, begin, end, worker);
}

/* Takes a piece from the slot, unless the run has fewer participants than this worker's number; gives the number of
 * pieces that were left, this one included, or 0. */
static uint32_t take_piece(pool_slot *slot, uint32_t worker) {
  uint64_t ticket = atomic_load_explicit(&slot->ticket, memory_order_relaxed);
  while ((uint32_t)ticket != 0 && worker < (uint32_t)(ticket >> 32))
    if (atomic_compare_exchange_weak_explicit(&slot->ticket, &ticket, ticket - 1, memory_order_acquire,
                                              memory_order_relaxed))
      return (uint32_t)ticket;
  return 0;
}

/* The end of slot w's pieces; slot w begins where slot w - 1 ends. */
static uint64_t slot_end(uint64_t w) {
  return (uint64_t)((__uint128_t)pool.job.pieces * (w + 1) / pool.job.participants);
}

static void finish_pieces(uint32_t done) {
  if (atomic_fetch_sub(&pool.unfinished, done) == done && atomic_load(&pool.caller_sleeps))
    futex_wake(&pool.unfinished, 1);
}

/* Works through all slots, from the worker's own on. While pieces are unreported the run cannot end, so all that is taken
 * within one turn of the outer loop is of one run. */
static void work(uint32_t worker) {
  uint32_t participants = atomic_load_explicit(&pool.participants, memory_order_relaxed);
  for (uint32_t i = 0; i < participants; ++i) {
    uint32_t w = (worker + i) % participants, done = 0, left;
    while ((left = take_piece(&pool.slots[w], worker)) != 0) {
      run_piece(slot_end(w) - left, (int)worker);
      ++done;
    }
    if (done) finish_pieces(done);
  }
}

/* ---- workers ---- */

static void *worker_main(void *argument) {
  int worker = (int)(intptr_t)argument;
  thread_worker = worker;
  thread_in_run = true;
  uint32_t seen = atomic_load(&pool.signal) - 1; /* look at the slots once: the run that started us may be on */
  for (;;) {
    uint32_t size = atomic_load(&pool.size);
    if ((uint32_t)worker >= size) {
      futex_wait(&pool.size, size);
      continue;
    }
    wait_for_signal(seen);
    seen = atomic_load_explicit(&pool.signal, memory_order_acquire);
    work((uint32_t)worker);
  }
  return NULL;
}

/* The child has the memory as it was at the fork and this thread alone. */
static void forget_workers(void) {
  uint32_t size = atomic_load(&pool.size);
  memset(&pool, 0, sizeof pool);
  atomic_store(&pool.size, size);
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static void fork_handler_install(void) { pthread_atfork(NULL, NULL, forget_workers); }

static bool worker_start(int worker) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited by the worker */
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, worker_main, (void *)(intptr_t)worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error) {
    base_log(LOG_WARN, "thread %d of the pool could not be started (%s): going on with fewer", worker, strerror(error));
    return false;
  }
  return true;
}

/* The number of threads to run on, started if need be; the caller owns the pool. */
static int workers_ready(int wanted) {
  pthread_once(&fork_once, fork_handler_install);
  while (pool.started < wanted - 1) {
    if (!worker_start(pool.started + 1)) {
      atomic_store(&pool.size, (uint32_t)pool.started + 1); /* do not try again at every run */
      break;
    }
    ++pool.started;
  }
  return wanted < pool.started + 1 ? wanted : pool.started + 1;
}

/* ---- runs ---- */

static void run_inline(int64_t count, int64_t grain, base_pool_fn fn, void *ctx) {
  for (int64_t begin = 0; begin < count;) {
    int64_t end = count - begin > grain ? begin + grain : count;
    fn(ctx, begin, end, thread_worker);
    begin = end;
  }
}

static void wait_until_finished(void) {
  for (int i = 0; i < FINISH_SPINS; ++i) {
    if (atomic_load_explicit(&pool.unfinished, memory_order_acquire) == 0) return;
    cpu_relax();
    if (i % 64 == 63) sched_yield();
  }
  atomic_store(&pool.caller_sleeps, 1);
  for (uint32_t left; (left = atomic_load(&pool.unfinished)) != 0;) futex_wait(&pool.unfinished, left);
  atomic_store(&pool.caller_sleeps, 0);
}

/* Wakes sleepers for a long run, and for short ones that follow each other closely and add up: those that come after
 * find the workers spinning. */
static void wake_sleepers(int64_t cost, int64_t participants) {
  if (atomic_load(&pool.sleepers) == 0) return;
  int64_t now = base_now_ns();
  if (now - pool.last_run_ns > STREAM_GAP_NS) pool.missed_ns = 0;
  pool.last_run_ns = now;
  pool.missed_ns += cost;
  if (pool.missed_ns < WAKE_FROM_NS) return;
  int64_t worth = pool.missed_ns / WAKE_SHARE_NS;
  pool.missed_ns = 0;
  futex_wake(&pool.signal, (int)(worth < participants ? worth : participants - 1));
}

static void run_shared(int64_t count, int64_t grain, uint64_t pieces, int64_t cost, uint64_t participants,
                       base_pool_fn fn, void *ctx) {
  pool.job.fn = fn;
  pool.job.ctx = ctx;
  pool.job.count = count;
  pool.job.grain = grain;
  pool.job.pieces = pieces;
  pool.job.participants = participants;
  atomic_store_explicit(&pool.unfinished, (uint32_t)pieces, memory_order_relaxed);
  atomic_store_explicit(&pool.participants, (uint32_t)participants, memory_order_relaxed);
  uint64_t begin = 0;
  for (uint64_t w = 0; w < participants; ++w) {
    uint64_t end = slot_end(w);
    atomic_store_explicit(&pool.slots[w].ticket, participants << 32 | (end - begin), memory_order_release);
    begin = end;
  }
  atomic_fetch_add(&pool.signal, 1);
  wake_sleepers(cost, (int64_t)participants);
  thread_in_run = true;
  work(0);
  thread_in_run = false;
  wait_until_finished();
}

void base_pool_run(int64_t count, int64_t grain, int64_t cost, base_pool_fn fn, void *ctx) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t pieces = count / grain + (count % grain != 0);
  int told = thread_size_told;
  if (!thread_in_run) thread_size_told = 0;
  if (pieces == 1 || pieces > INT32_MAX || cost < INLINE_BELOW_NS || thread_in_run ||
      atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) {
    run_inline(count, grain, fn, ctx);
    return;
  }
  int64_t wanted = base_pool_size();
  thread_size_told = 0;
  if (told && wanted > told) wanted = told;
  int64_t participants = wanted > 1 ? workers_ready((int)wanted) : 1;
  if (participants > pieces) participants = pieces;
  if (participants > cost / SHARE_NS) participants = cost / SHARE_NS;
  if (participants > 1) run_shared(count, grain, (uint64_t)pieces, cost, (uint64_t)participants, fn, ctx);
  atomic_store_explicit(&pool.busy, false, memory_order_release);
  if (participants <= 1) run_inline(count, grain, fn, ctx);
}

/* ---- size ---- */

static int size_by_default(void) {
  const char *text = getenv("TTPU_THREADS");
  if (text && *text) {
    char *end;
    long threads = strtol(text, &end, 10);
    if (*end == '\0' && threads >= 1) return threads > BASE_POOL_MAX ? BASE_POOL_MAX : (int)threads;
    base_log(LOG_WARN, "TTPU_THREADS=%s is not a number of threads: ignored", text);
  }
  int share = base_cpu()->cores / base_local_processes();
  return share < 1 ? 1 : share;
}

int base_pool_size(void) {
  uint32_t size = atomic_load_explicit(&pool.size, memory_order_relaxed), unset = 0;
  if (size == 0) {
    size = (uint32_t)size_by_default();
    if (!atomic_compare_exchange_strong(&pool.size, &unset, size)) size = unset;
  }
  if (!thread_in_run) thread_size_told = (int)size;
  return (int)size;
}

void base_pool_resize(int threads) {
  if (threads < 1) threads = 1;
  if (threads > BASE_POOL_MAX) threads = BASE_POOL_MAX;
  atomic_store(&pool.size, (uint32_t)threads);
  futex_wake(&pool.size, INT_MAX); /* those that the new size calls back */
}
