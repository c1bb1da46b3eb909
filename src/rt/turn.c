/* Whose turn it is to record.
 *
 * A function that is recorded whole (a graph, a capture, a region) belongs to the threads that record it. What another thread
 * does with the device meanwhile would become part of its program; so that one waits until the recording has ended. */
#include <errno.h>
#include <time.h>

#include "rt/rt_int.h"

enum { LONGEST_SECONDS = 120 }; /* beyond, the two probably wait for each other */

static struct {
  const rt_thread_hooks *hooks;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint64_t ends; /* how many recordings have ended; guarded by lock */
} turn = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

void rt_set_thread_hooks(const rt_thread_hooks *hooks) { turn.hooks = hooks; }

bool rt_records_here(void) { return turn.hooks == NULL || turn.hooks->records(); }

void rt_end_turn(void) {
  pthread_mutex_lock(&turn.lock);
  ++turn.ends;
  pthread_cond_broadcast(&turn.ended);
  pthread_mutex_unlock(&turn.lock);
}

static uint64_t count_ends(void) {
  pthread_mutex_lock(&turn.lock);
  uint64_t ends = turn.ends;
  pthread_mutex_unlock(&turn.lock);
  return ends;
}

/* For one more recording than those to end. False: it took too long. */
static bool wait_for_end(uint64_t ends, const struct timespec *limit) {
  int code = 0;
  pthread_mutex_lock(&turn.lock);
  while (turn.ends == ends && code != ETIMEDOUT) code = pthread_cond_timedwait(&turn.ended, &turn.lock, limit);
  pthread_mutex_unlock(&turn.lock);
  return code != ETIMEDOUT;
}

ttpu_status rt_wait_turn(rt_device *d) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += LONGEST_SECONDS;
  bool ended = true;
  while (ended && (d->whole || d->capturing) && !rt_records_here()) {
    uint64_t ends = count_ends(); /* with rt_lock: the recording cannot end before this is known */
    rt_unlock();
    void *paused = turn.hooks->pause();
    ended = wait_for_end(ends, &limit);
    turn.hooks->resume(paused); /* without the lock, for which a thread that has Python's may wait */
    rt_lock();
  }
  if (ended) return TTPU_OK;
  return base_fail(TTPU_FAILED_PRECONDITION,
                   "tpu:%u: another thread has been recording a program for %d seconds, and nothing else can use the "
                   "device meanwhile",
                   d->index, LONGEST_SECONDS);
}
