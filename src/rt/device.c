/* The client and its devices: start, synchronisation, errors that come late, events, memory statistics. */
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pjrt/ahead.h"
#include "rt/rt_int.h"

rt_runtime rt_global;

/* ---- the lock ---- */

void rt_mutex_wait(rt_mutex *m) {
  for (int i = 0; i < 100; ++i) { /* the holder is usually done within these */
    int free = 0;
    if (atomic_load_explicit(&m->state, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_weak_explicit(&m->state, &free, 1, memory_order_acquire, memory_order_relaxed))
      return;
  }
  while (atomic_exchange_explicit(&m->state, 2, memory_order_acquire) != 0)
    syscall(SYS_futex, &m->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void rt_mutex_wake(rt_mutex *m) { syscall(SYS_futex, &m->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

/* ---- start ---- */

static struct {
  pthread_mutex_t lock;
  bool done, bad_fork;
  ttpu_status status;
  char message[1024];
  pjrt_choice choice;
} start = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock_all(void) {
  pthread_mutex_lock(&start.lock);
  rt_lock();
}
static void unlock_all(void) {
  rt_unlock();
  pthread_mutex_unlock(&start.lock);
}
/* The child has the parent's memory but none of its threads: what exists may be freed, not used. */
static void enter_child(void) {
  start.bad_fork = start.done;
  unlock_all();
}

static ttpu_status make_devices(void) {
  uint32_t n = pjrt_client_device_count(rt_global.client);
  rt_global.devices = base_calloc(n, sizeof *rt_global.devices);
  if (rt_global.devices == NULL) return base_no_memory(n * sizeof *rt_global.devices);
  for (uint32_t i = 0; i < n; ++i) {
    rt_device *d = &rt_global.devices[i];
    d->index = i;
    d->pjrt = pjrt_client_device(rt_global.client, i);
    int64_t limit = pjrt_device_get_info(d->pjrt)->memory_limit;
    d->limit = limit > 0 ? (uint64_t)limit : 0;
    d->trace.epoch = 0x80000000u + i; /* replaced at the first cut; distinct from every epoch given there */
    d->trace.hash = (base_hash128){0x74747075, 1};
    base_arena_init(&d->trace.arena);
    pthread_mutex_init(&d->error_lock, NULL);
    pthread_cond_init(&d->noted, NULL);
  }
  rt_global.device_count = n;
  return TTPU_OK;
}

static rt_mode mode_from_environment(void) {
  const char *mode = getenv("TTPU_MODE");
  if (mode != NULL && strcmp(mode, "eager") == 0) return RT_EAGER;
  if (mode != NULL && strcmp(mode, "blocking") == 0) return RT_BLOCKING;
  return RT_FUSED;
}

ttpu_status rt_init(const char *soft_path, const char *libtpu_path) {
  pthread_mutex_lock(&start.lock);
  if (!start.done) {
    rt_global.mode = mode_from_environment();
    start.status = pjrt_choose("", soft_path, libtpu_path, &start.choice);
    if (start.status == TTPU_OK)
      start.status = pjrt_client_new(start.choice.path, getenv("TTPU_PLUGIN_OPTIONS"), &rt_global.client);
    if (start.status != TTPU_OK && start.choice.reason[0] != '\0')
      (void)base_fail_context(start.status, "plugin %s (%s)", start.choice.path, start.choice.reason);
    if (start.status == TTPU_OK) start.status = make_devices();
    if (start.status != TTPU_OK) snprintf(start.message, sizeof start.message, "%s", base_message());
    pthread_atfork(lock_all, unlock_all, enter_child);
    start.done = true;
  }
  ttpu_status status = start.status;
  bool bad_fork = start.bad_fork;
  pthread_mutex_unlock(&start.lock);
  if (bad_fork)
    return base_fail(TTPU_FAILED_PRECONDITION,
                     "Cannot re-initialize TPU in forked subprocess. To use TPU with multiprocessing, you must use the "
                     "'spawn' start method");
  return status == TTPU_OK ? TTPU_OK : base_fail(status, "%s", start.message);
}

/* UNIMPLEMENTED: the chosen plugin, which *choice names, does not tell without being started. */
static ttpu_status count_unstarted(const char *soft_path, const char *libtpu_path, pjrt_choice *choice, uint32_t *out) {
  BASE_TRY(pjrt_choose("", soft_path, libtpu_path, choice));
  if (strcmp(choice->path, soft_path) != 0) return base_fail(TTPU_UNIMPLEMENTED, "%s is not started", choice->path);
  return pjrt_devices_ahead(choice->path, getenv("TTPU_PLUGIN_OPTIONS"), out);
}

ttpu_status rt_count_devices(const char *soft_path, const char *libtpu_path, uint32_t *out) {
  pjrt_choice choice;
  if (!start.done) {
    ttpu_status status = count_unstarted(soft_path, libtpu_path, &choice, out);
    if (status != TTPU_UNIMPLEMENTED) return status;
  }
  BASE_TRY(rt_init(soft_path, libtpu_path));
  *out = rt_global.device_count;
  return TTPU_OK;
}

bool rt_is_available(const char *soft_path, const char *libtpu_path) {
  uint32_t count = 0;
  pjrt_choice choice;
  if (start.done) return rt_is_initialized() && rt_global.device_count > 0;
  ttpu_status status = count_unstarted(soft_path, libtpu_path, &choice, &count);
  /* Another plugin was chosen because its chips are there, or because somebody names it: starting it would take the
   * chips from the processes that this one is to launch. */
  return status == TTPU_OK ? count > 0 : status == TTPU_UNIMPLEMENTED && access(choice.path, R_OK) == 0;
}

const char *rt_plugin_reason(void) { return start.choice.reason; }
bool rt_is_initialized(void) { return start.done && start.status == TTPU_OK && !start.bad_fork; }
bool rt_in_bad_fork(void) { return start.bad_fork; }
pjrt_client *rt_client(void) { return rt_global.client; }
uint32_t rt_device_count(void) { return rt_global.device_count; }

void rt_set_mode(rt_mode mode) {
  for (uint32_t i = 0; i < rt_global.device_count; ++i) (void)rt_flush(i);
  rt_global.mode = mode;
}
rt_mode rt_get_mode(void) { return rt_global.mode; }

rt_counters rt_get_counters(void) {
  rt_lock();
  rt_counters c = rt_global.counters;
  rt_unlock();
  return c;
}

void rt_reset_counters(void) {
  for (uint32_t i = 0; i < rt_global.device_count; ++i) (void)rt_flush(i);
  rt_lock();
  rt_global.counters = (rt_counters){0};
  rt_unlock();
}

void rt_forbid_compile(int delta) {
  for (uint32_t i = 0; i < rt_global.device_count; ++i) (void)rt_flush(i);
  rt_lock();
  rt_global.forbid_compile += delta;
  rt_unlock();
}

void rt_clear_caches(void) {
  for (uint32_t i = 0; i < rt_global.device_count; ++i) (void)rt_synchronize(i);
  rt_lock();
  rt_program_clear();
  rt_unlock();
  rt_meta_clear();
}

/* ---- late errors, synchronisation ---- */

void rt_device_note_error(rt_device *d, ttpu_status code, const char *message) {
  pthread_mutex_lock(&d->error_lock);
  if (d->error == NULL) d->error = rt_error_new(code, message);
  pthread_mutex_unlock(&d->error_lock);
}

rt_error *rt_device_take_error(rt_device *d) {
  pthread_mutex_lock(&d->error_lock);
  while (d->running > 0) pthread_cond_wait(&d->noted, &d->error_lock);
  rt_error *e = d->error;
  d->error = NULL;
  pthread_mutex_unlock(&d->error_lock);
  return e;
}

/* Flushes, and shares what to wait for (NULL: nothing). */
static ttpu_status take_tail(rt_device *d, rt_value **tail) {
  *tail = NULL;
  rt_lock();
  ttpu_status status = rt_take_turn(d);
  if (status == TTPU_OK) {
    (void)rt_trace_cut(d); /* its failure is kept */
    if (d->tail != NULL) *tail = rt_value_share(d->tail);
  }
  rt_unlock();
  return status;
}

ttpu_status rt_synchronize(uint32_t device) {
  if (device >= rt_global.device_count) return TTPU_OK;
  rt_device *d = &rt_global.devices[device];
  rt_value *tail;
  BASE_TRY(take_tail(d, &tail));
  if (tail != NULL && tail->buffer != NULL) (void)pjrt_buffer_await(tail->buffer); /* its failure is noted as it ends */
  rt_lock();
  rt_value *done = NULL; /* nothing is left to wait for: the memory may go */
  if (tail != NULL && d->tail == tail) {
    done = d->tail;
    d->tail = NULL;
  }
  rt_unlock();
  rt_value_free(done);
  rt_value_free(tail);
  rt_error *e = rt_device_take_error(d);
  if (e == NULL) return TTPU_OK;
  ttpu_status status = base_fail(e->code, "%s", e->message);
  rt_error_free(e);
  return status;
}

/* ---- events ---- */

struct rt_event {
  atomic_uint refs; /* the user's, and one while a completion is outstanding */
  pthread_mutex_t lock;
  rt_value *value;    /* ready when the event is; NULL: was ready when recorded */
  uint64_t recording; /* which record call the completion time belongs to */
  bool recorded, timed;
  int64_t at_ns; /* of base_now_ns */
};

typedef struct event_wait {
  rt_event *event;
  uint64_t recording;
} event_wait;

ttpu_status rt_event_new(rt_event **out) {
  rt_event *e = base_calloc(1, sizeof *e);
  if (e == NULL) return base_no_memory(sizeof *e);
  atomic_init(&e->refs, 1);
  pthread_mutex_init(&e->lock, NULL);
  *out = e;
  return TTPU_OK;
}

void rt_event_free(rt_event *e) {
  if (e == NULL || atomic_fetch_sub(&e->refs, 1) != 1) return;
  rt_value_free(e->value);
  pthread_mutex_destroy(&e->lock);
  base_free(e);
}

static void event_done(void *context, ttpu_status status) {
  (void)status;
  event_wait *w = context;
  pthread_mutex_lock(&w->event->lock);
  if (w->event->recording == w->recording) {
    w->event->at_ns = base_now_ns();
    w->event->timed = true;
  }
  pthread_mutex_unlock(&w->event->lock);
  rt_event_free(w->event);
  base_free(w);
}

ttpu_status rt_event_record(rt_event *e, uint32_t device) {
  rt_value *tail = NULL;
  if (device < rt_global.device_count) BASE_TRY(take_tail(&rt_global.devices[device], &tail));
  bool waits = tail != NULL && tail->buffer != NULL;
  event_wait *w = waits ? base_alloc(sizeof *w) : NULL;
  if (waits && w == NULL) {
    rt_value_free(tail);
    return base_no_memory(sizeof *w);
  }
  pthread_mutex_lock(&e->lock);
  rt_value *old = e->value;
  e->value = tail;
  e->recorded = true;
  e->timed = !waits;
  if (!waits) e->at_ns = base_now_ns();
  uint64_t recording = ++e->recording;
  pthread_mutex_unlock(&e->lock);
  rt_value_free(old);
  if (waits) {
    atomic_fetch_add(&e->refs, 1);
    *w = (event_wait){.event = e, .recording = recording};
    pjrt_buffer_on_ready(tail->buffer, event_done, w);
  }
  return TTPU_OK;
}

static rt_value *event_value(rt_event *e) {
  pthread_mutex_lock(&e->lock);
  rt_value *v = e->value != NULL ? rt_value_share(e->value) : NULL;
  pthread_mutex_unlock(&e->lock);
  return v;
}

bool rt_event_query(rt_event *e) {
  rt_value *v = event_value(e);
  bool ready = v == NULL || v->buffer == NULL || pjrt_buffer_is_ready(v->buffer);
  rt_value_free(v);
  return ready;
}

ttpu_status rt_event_synchronize(rt_event *e) {
  rt_value *v = event_value(e);
  if (v != NULL && v->buffer != NULL)
    (void)pjrt_buffer_await(v->buffer); /* errors belong to the device's next synchronisation */
  rt_value_free(v);
  return TTPU_OK;
}

ttpu_status rt_event_elapsed(rt_event *start_event, rt_event *end_event, double *milliseconds) {
  if (!start_event->recorded || !end_event->recorded)
    return base_fail(TTPU_FAILED_PRECONDITION, "elapsed_time(): both events must be recorded first");
  BASE_TRY(rt_event_synchronize(start_event));
  BASE_TRY(rt_event_synchronize(end_event));
  while (!start_event->timed || !end_event->timed) { /* the completion callback is at most moments away */
    struct timespec moment = {0, 10000};
    nanosleep(&moment, NULL);
  }
  *milliseconds = 1e-6 * (double)(end_event->at_ns - start_event->at_ns);
  return TTPU_OK;
}

/* ---- memory ---- */

ttpu_status rt_memory_get_stats(uint32_t device, rt_memory_stats *out) {
  if (device >= rt_global.device_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "tpu:%u does not exist; there are %u devices", device,
                     rt_global.device_count);
  rt_device *d = &rt_global.devices[device];
  rt_lock();
  *out = (rt_memory_stats){.allocated = d->allocated,
                           .allocated_peak = d->peak,
                           .allocated_total = d->allocated_total - d->allocated_base,
                           .freed_total = d->freed_total - d->freed_base,
                           .allocations = d->allocations,
                           .frees = d->frees,
                           .active = d->active,
                           .active_peak = d->active_peak,
                           .oom_count = d->oom_count};
  rt_unlock();
  const pjrt_memory_stats unknown = {-1, -1, -1, -1, -1, -1};
  if (pjrt_device_memory_stats(d->pjrt, &out->device) != TTPU_OK) out->device = unknown;
  if (out->device.bytes_in_use < 0) out->device.bytes_in_use = (int64_t)out->allocated;
  if (out->device.peak_bytes_in_use < 0) out->device.peak_bytes_in_use = (int64_t)out->allocated_peak;
  return TTPU_OK;
}

void rt_memory_reset_peak(uint32_t device) {
  if (device >= rt_global.device_count) return;
  rt_device *d = &rt_global.devices[device];
  rt_lock();
  d->peak = d->allocated;
  d->active_peak = d->active;
  rt_unlock();
  pjrt_device_reset_peak(d->pjrt);
}

void rt_memory_reset_accumulated(uint32_t device) {
  if (device >= rt_global.device_count) return;
  rt_device *d = &rt_global.devices[device];
  rt_lock();
  d->allocated_base = d->allocated_total;
  d->freed_base = d->freed_total;
  d->allocations = d->frees = d->oom_count = 0;
  rt_unlock();
}

void rt_memory_trim(uint32_t device) {
  if (device >= rt_global.device_count) return;
  (void)rt_flush(device);
  pjrt_device_trim(rt_global.devices[device].pjrt);
}
