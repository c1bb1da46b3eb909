/* Results that are in doubt until a verdict is read.
 *
 * After a run of a program with checks its verdict is on its way to the host. Until then nobody knows which of the
 * run's results are worth anything; they may well be arguments of the next run, which is not held up. So a buffer
 * carries a list of what its worth depends on: pairs of a verdict and a result's number in the run that it belongs to.
 * A run's results inherit the pairs of the arguments that they depend on. Whoever waits for a buffer waits for its
 * verdicts too, and gets the first failed check as an error.
 *
 * A list never changes once made, and holds no list: a long chain of runs does not keep its beginning alive. Pairs whose
 * verdict is known to be good are not inherited. */
#include "pjrt/pjrt_int.h"

enum { MOST_DOUBTS = 256 }; /* a longer list is settled before it is inherited */

enum { VERDICT_UNREAD, VERDICT_GOOD, VERDICT_BAD };

struct pjrt_verdict {
  atomic_uint refs;
  const pjrt_client *client;
  pjrt_checks *checks;
  pjrt_buffer *buffer; /* the verdict on the device, until it is read */
  PJRT_Event *event;   /* of its copy */
  pthread_mutex_t lock;
  atomic_int state;
  ttpu_status status; /* not OK: the run or the copy failed; the words mean nothing */
  char *message;
  int64_t words[]; /* two a check */
};

typedef struct pjrt_doubt {
  pjrt_verdict *verdict;
  uint32_t output;
} pjrt_doubt;

struct pjrt_doubts {
  atomic_uint refs;
  uint32_t count;
  pjrt_doubt items[];
};

/* ---- verdicts -------------------------------------------------------------------------------------------------------- */

static pjrt_verdict *verdict_share(pjrt_verdict *v) {
  atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
  return v;
}

void pjrt_verdict_free(pjrt_verdict *v) {
  if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
  /* The plugin may still be writing the words: nobody is left who would have waited. */
  if (v->event && atomic_load(&v->state) == VERDICT_UNREAD) {
    PJRT_Event_Await_Args await = ARGS(Event_Await, .event = v->event);
    (void)CALL(v->client, Event_Await, &await);
  }
  pjrt_event_free(v->client, v->event);
  pjrt_buffer_free(v->buffer);
  pjrt_checks_free(v->checks);
  pthread_mutex_destroy(&v->lock);
  base_free(v->message);
  base_free(v);
}

ttpu_status pjrt_verdict_new(pjrt_checks *checks, pjrt_buffer *buffer, pjrt_verdict **out) {
  const pjrt_client *c = buffer->device->client;
  size_t bytes = 2 * (size_t)checks->count * sizeof(int64_t);
  pjrt_verdict *v = base_calloc(1, sizeof *v + bytes);
  if (!v) {
    pjrt_buffer_free(buffer);
    return base_no_memory(sizeof *v + bytes);
  }
  atomic_init(&v->refs, 1);
  atomic_init(&v->state, VERDICT_UNREAD);
  pthread_mutex_init(&v->lock, NULL);
  v->client = c;
  v->checks = pjrt_checks_share(checks);
  v->buffer = buffer;
  PJRT_Buffer_ToHostBuffer_Args copy =
      ARGS(Buffer_ToHostBuffer, .src = buffer->buffer, .dst = v->words, .dst_size = bytes);
  ttpu_status status = CALL(c, Buffer_ToHostBuffer, &copy);
  if (status == TTPU_OK) {
    v->event = copy.event;
    *out = v;
  } else {
    pjrt_verdict_free(v);
  }
  return status;
}

/* Waits for the words and says whether all is well. The lock is not held while waiting: a plugin may use the time to
 * call back. */
static bool verdict_is_good(pjrt_verdict *v) {
  int state = atomic_load_explicit(&v->state, memory_order_acquire);
  if (state != VERDICT_UNREAD) return state == VERDICT_GOOD;
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = v->event);
  ttpu_status status = v->event ? CALL(v->client, Event_Await, &await) : TTPU_OK;
  pjrt_buffer *read = NULL;
  pthread_mutex_lock(&v->lock);
  state = atomic_load_explicit(&v->state, memory_order_relaxed);
  if (state == VERDICT_UNREAD) {
    v->status = status;
    if (status != TTPU_OK) v->message = pjrt_copy_text(base_message(), strlen(base_message()));
    state = status == TTPU_OK ? VERDICT_GOOD : VERDICT_BAD;
    for (uint32_t i = 0; i < v->checks->count; ++i)
      if (v->words[2 * i]) state = VERDICT_BAD;
    read = v->buffer;
    v->buffer = NULL;
    atomic_store_explicit(&v->state, state, memory_order_release);
  }
  pthread_mutex_unlock(&v->lock);
  pjrt_buffer_free(read);
  return state == VERDICT_GOOD;
}

static bool verdict_is_read(const pjrt_verdict *v) {
  if (atomic_load_explicit(&v->state, memory_order_acquire) != VERDICT_UNREAD) return true;
  return pjrt_event_is_ready(v->client, v->event);
}

/* What a verdict, which is bad, says of one result of its run; ALL_OUTPUTS: of the run. */
enum { ALL_OUTPUTS = UINT32_MAX };
static ttpu_status verdict_status(const pjrt_verdict *v, uint32_t output) {
  if (v->status != TTPU_OK) return base_fail(v->status, "%s", v->message ? v->message : "out of host memory");
  for (uint32_t i = 0; i < v->checks->count; ++i) {
    bool matters = output == ALL_OUTPUTS || pjrt_checks_needs_check(v->checks, output, i);
    if (v->words[2 * i] && matters) return pjrt_check_fail(&v->checks->checks[i], v->words[2 * i + 1]);
  }
  return TTPU_OK;
}

/* The verdict of a run, for whoever is told how the run ended. */
typedef struct run_end {
  pjrt_verdict *verdict;
  void (*done)(void *context, ttpu_status status);
  void *context;
} run_end;

static void tell_end(run_end end) {
  ttpu_status status = verdict_is_good(end.verdict) ? TTPU_OK : verdict_status(end.verdict, ALL_OUTPUTS);
  end.done(end.context, status);
  pjrt_verdict_free(end.verdict);
}

static void tell_end_later(PJRT_Error *error, void *user_arg) {
  run_end end = *(run_end *)user_arg;
  base_free(user_arg);
  (void)pjrt_status(end.verdict->client->api, error); /* the verdict asks again */
  tell_end(end);
}

void pjrt_verdict_call(pjrt_verdict *v, void (*done)(void *context, ttpu_status status), void *context) {
  run_end end = {verdict_share(v), done, context}, *later = v->event ? base_alloc(sizeof *later) : NULL;
  if (later) {
    *later = end;
    if (pjrt_event_on_ready(v->client, v->event, tell_end_later, later) == TTPU_OK) return;
    base_free(later);
  }
  tell_end(end);
}

/* ---- lists --------------------------------------------------------------------------------------------------------------- */

pjrt_doubts *pjrt_doubts_share(pjrt_doubts *d) {
  if (d) atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void pjrt_doubts_free(pjrt_doubts *d) {
  if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < d->count; ++i) pjrt_verdict_free(d->items[i].verdict);
  base_free(d);
}

ttpu_status pjrt_doubts_settle(const pjrt_doubts *d) {
  for (uint32_t i = 0; d && i < d->count; ++i)
    if (!verdict_is_good(d->items[i].verdict)) BASE_TRY(verdict_status(d->items[i].verdict, d->items[i].output));
  return TTPU_OK;
}

bool pjrt_doubts_are_read(const pjrt_doubts *d) {
  for (uint32_t i = 0; d && i < d->count; ++i)
    if (!verdict_is_read(d->items[i].verdict)) return false;
  return true;
}

/* Somebody who waits for a buffer and its verdicts. A thread of the plugin's that calls back must not be made to wait
 * for what it may have to do itself, so one event is waited for after the other. */
typedef struct waiting_call {
  pjrt_doubts *doubts;
  void (*done)(void *context, ttpu_status status);
  void *context;
} waiting_call;

static void call_or_wait(waiting_call *call);

static void go_on_waiting(PJRT_Error *error, void *user_arg) {
  waiting_call *call = user_arg;
  (void)pjrt_status(call->doubts->items[0].verdict->client->api, error); /* its verdict asks again */
  call_or_wait(call);
}

static void call_or_wait(waiting_call *call) {
  const pjrt_doubts *d = call->doubts;
  for (uint32_t i = 0; i < d->count; ++i) {
    const pjrt_verdict *v = d->items[i].verdict;
    if (verdict_is_read(v)) continue;
    if (pjrt_event_on_ready(v->client, v->event, go_on_waiting, call) == TTPU_OK) return;
  }
  call->done(call->context, pjrt_doubts_settle(d));
  pjrt_doubts_free(call->doubts);
  base_free(call);
}

static void begin_waiting(void *context, ttpu_status status) {
  waiting_call *call = context;
  if (status == TTPU_OK) {
    call_or_wait(call);
    return;
  }
  call->done(call->context, status);
  pjrt_doubts_free(call->doubts);
  base_free(call);
}

void pjrt_doubts_call(pjrt_doubts *d, const pjrt_client *c, PJRT_Event *event,
                      void (*done)(void *context, ttpu_status status), void *context) {
  waiting_call *call = base_alloc(sizeof *call);
  if (call) {
    *call = (waiting_call){pjrt_doubts_share(d), done, context};
    pjrt_event_call(c, event, begin_waiting, call);
    return;
  }
  ttpu_status status = pjrt_event_await(c, event); /* no memory to remember the call with */
  done(context, status == TTPU_OK ? pjrt_doubts_settle(d) : status);
}

/* A list in the making. */
typedef struct doubt_list {
  pjrt_doubt *items;
  uint32_t count, capacity;
} doubt_list;

static bool add(doubt_list *list, pjrt_doubt doubt) {
  for (uint32_t i = 0; i < list->count; ++i)
    if (list->items[i].verdict == doubt.verdict && list->items[i].output == doubt.output) return true;
  if (!BASE_GROW(list->items, list->count, list->capacity)) return false;
  list->items[list->count++] = doubt;
  return true;
}

static bool is_known_good(const pjrt_doubt *d) {
  return atomic_load_explicit(&d->verdict->state, memory_order_acquire) == VERDICT_GOOD;
}

/* Waits for all: what is left is the first that fails, which is all that anybody will hear of. */
static void settle_list(doubt_list *list) {
  for (uint32_t i = 0; i < list->count; ++i) {
    pjrt_verdict *v = list->items[i].verdict;
    if (verdict_is_good(v) || verdict_status(v, list->items[i].output) == TTPU_OK) continue;
    list->items[0] = list->items[i];
    list->count = 1;
    return;
  }
  list->count = 0;
}

ttpu_status pjrt_doubts_new(const pjrt_checks *checks, uint32_t output, pjrt_verdict *own, uint32_t count,
                            pjrt_buffer *const *arguments, pjrt_doubts **out) {
  doubt_list list = {0};
  bool ok = true, guarded = false;
  *out = NULL;
  for (uint32_t i = 0; i < count && i < checks->params; ++i) {
    const pjrt_doubts *d = arguments[i]->doubts;
    if (!d || !pjrt_checks_needs_param(checks, output, i)) continue;
    for (uint32_t k = 0; k < d->count; ++k)
      if (!is_known_good(&d->items[k])) ok &= add(&list, d->items[k]);
  }
  if (list.count > MOST_DOUBTS) settle_list(&list);
  for (uint32_t i = 0; own && i < checks->count; ++i) guarded |= pjrt_checks_needs_check(checks, output, i);
  if (guarded) ok &= add(&list, (pjrt_doubt){own, output});
  if (ok && list.count > 0) {
    *out = base_alloc(sizeof **out + list.count * sizeof *list.items);
    ok = *out != NULL;
    if (ok) {
      atomic_init(&(*out)->refs, 1);
      (*out)->count = list.count;
      memcpy((*out)->items, list.items, list.count * sizeof *list.items);
      for (uint32_t i = 0; i < list.count; ++i) verdict_share(list.items[i].verdict);
    }
  }
  base_free(list.items);
  return ok ? TTPU_OK : base_no_memory(list.count * sizeof *list.items);
}
