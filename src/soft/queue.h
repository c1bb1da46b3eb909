/* queue: a chip's stream of work, and the promises that it keeps.
 *
 * soft_done is a promise: pending, then once and for all ready, with a status and a message. Counted. Buffers,
 * events and waiting jobs share the one of the job that they depend on.
 *
 * soft_queue runs jobs one after another, in the order of soft_queue_push. There is no thread that must be woken for
 * a job to run: whoever waits for a promise of a queue that nobody runs at that moment runs it himself, up to the job
 * he waits for. So a small computation and the read of its result take place on the caller's thread, with no
 * switch between threads (which costs 5 to 50 us). Beside that, a worker thread of the queue sees to it
 * that work is also done while the host does something else:
 *
 *   awake    runs jobs, then spins for 200 us. A little work that was just pushed is left alone for 5 us, since
 *            its pusher often waits for it at once
 *   dozing   looks every millisecond, for 100 ms; a push wakes it when more than 50 us of work is queued
 *   asleep   costs nothing; any push wakes it
 *
 * A job may wait for a promise of another queue (it then runs that queue, or waits for who does). That cannot
 * deadlock as long as a job waits only for jobs that were pushed before it, on whatever queue.
 *
 * After fork the child has no workers and perhaps locks that nobody will open: there, soft_forked() is true, pushing
 * fails with UNAVAILABLE and everything that frees does nothing.
 */
#ifndef TTPU_SOFT_QUEUE_H
#define TTPU_SOFT_QUEUE_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct soft_queue soft_queue;

/* ---- promises ------------------------------------------------------------------------------------ */

typedef struct soft_done soft_done;
typedef void (*soft_done_fn)(void *context, soft_done *done);
typedef struct soft_done_callback soft_done_callback;

enum { SOFT_PENDING, SOFT_WAITED, SOFT_READY }; /* WAITED: pending, with a thread asleep on it */

struct soft_done {
  atomic_uint refs;
  atomic_uint state;
  _Atomic(soft_done_callback *) callbacks; /* newest first; a mark once they were called */
  soft_queue *queue;                       /* who keeps the promise; NULL: somebody outside */
  bool partial;       /* its job may fail in part: other promises of the same job may end otherwise */
  ttpu_status status; /* these two are constant once READY */
  char *message;      /* NULL when OK or out of memory */
};

void soft_done_init(soft_done *d, soft_queue *queue); /* one reference */
soft_done *soft_done_new(soft_queue *queue);          /* NULL: out of memory */
soft_done *soft_done_ok(void);                        /* ready, OK; counting it costs nothing */
soft_done *soft_done_share(soft_done *d);
void soft_done_free(soft_done *d); /* NULL is fine */
static inline bool soft_done_is_ready(soft_done *d) {
  return atomic_load_explicit(&d->state, memory_order_acquire) == SOFT_READY;
}
/* Keeps the promise and calls the callbacks, on this thread and without locks. */
void soft_done_set(soft_done *d, ttpu_status status, const char *message);
/* Its status, with the message set; only when ready. */
ttpu_status soft_done_status(const soft_done *d);
/* Waits, running the queue's work if nobody else does. */
ttpu_status soft_done_await(soft_done *d);
/* Calls fn once ready, at once if it is. RESOURCE_EXHAUSTED: not registered. */
ttpu_status soft_done_on_ready(soft_done *d, soft_done_fn fn, void *context);

/* ---- queues -------------------------------------------------------------------------------------- */

/* A job of this cost or more wakes the worker at once: what other queues wait for has it at least. */
enum { SOFT_COST_WAKES = 100000 };

typedef struct soft_job {
  struct soft_job *next;
  void (*run)(struct soft_job *job); /* owns the job from here; sets its promise */
  int64_t cost;                      /* estimate, nanoseconds */
} soft_job;

ttpu_status soft_queue_new(soft_queue **out);
void soft_queue_free(soft_queue *q); /* runs what is queued, ends the worker */
/* Sees to it that the queue has a worker, which a job that waits for one of another queue needs; UNAVAILABLE at the end
 * of the process, RESOURCE_EXHAUSTED when there are no more threads. */
ttpu_status soft_queue_start(soft_queue *q);
/* On failure the job is still the caller's. */
ttpu_status soft_queue_push(soft_queue *q, soft_job *job);
ttpu_status soft_queue_flush(soft_queue *q); /* waits for all that was pushed before */

bool soft_forked(void);
ttpu_status soft_fail_forked(void);

#endif
