/* Where programs that send and receive meet: the host's side of their transfers is that what is sent on a channel is
 * received on it, in order.
 *
 * A receiver that comes before its letter leaves its stream here. When all chips that have not ended wait so, nobody can
 * write any more and all streams are let go of, which fails the chips. */
#include "pjrt/pjrt_int.h"

typedef struct letter {
  struct letter *next;
  int64_t channel;
  PJRT_Chunk chunk; /* the plugin's own, given to the receiver as it is; or ours */
} letter;

typedef struct reader {
  struct reader *next;
  int64_t channel;
  PJRT_CopyToDeviceStream *stream;
} reader;

typedef struct mail_channel {
  pjrt_mailbox *mailbox;
  int64_t number;
} mail_channel;

struct pjrt_mailbox {
  pthread_mutex_t lock;
  const pjrt_client *client;
  uint32_t refs;    /* the owner's, and one for each chip that runs */
  uint32_t running; /* chips that have not ended, those that were not started yet among them */
  bool closed;
  letter *letters;
  reader *readers;
  uint32_t channel_count;
  mail_channel *channels;
  PJRT_SendCallbackInfo *sends;
  PJRT_RecvCallbackInfo *receives;
};

/* ---- letters and readers: with the lock held ---------------------------------------------------------------- */

static void free_chunk(const PJRT_Chunk *chunk) {
  if (chunk->deleter) chunk->deleter(chunk->data, chunk->deleter_arg);
}

static void end_stream(const pjrt_client *c, PJRT_CopyToDeviceStream *stream) {
  PJRT_CopyToDeviceStream_Destroy_Args destroy = ARGS(CopyToDeviceStream_Destroy, .stream = stream);
  if (CALL(c, CopyToDeviceStream_Destroy, &destroy) != TTPU_OK)
    base_log(LOG_WARN, "ending a transfer: %s", base_message());
}

/* Gives the letter to the reader: the stream takes the chunk, and one that does not fit fails its chip. */
static void hand_over(const pjrt_client *c, letter *l, reader *r) {
  PJRT_CopyToDeviceStream_AddChunk_Args add =
      ARGS(CopyToDeviceStream_AddChunk, .stream = r->stream, .chunk = &l->chunk);
  if (CALL(c, CopyToDeviceStream_AddChunk, &add) == TTPU_OK) pjrt_event_free(c, add.transfer_complete);
  else base_log(LOG_WARN, "channel %lld: %s", (long long)l->channel, base_message());
  end_stream(c, r->stream);
  base_free(l);
  base_free(r);
}

static letter *take_letter(pjrt_mailbox *m, int64_t channel) {
  for (letter **at = &m->letters; *at; at = &(*at)->next) {
    letter *l = *at;
    if (l->channel != channel) continue;
    *at = l->next;
    return l;
  }
  return NULL;
}

static uint32_t count_readers(const pjrt_mailbox *m) {
  uint32_t count = 0;
  for (const reader *r = m->readers; r; r = r->next) ++count;
  return count;
}

static void close_streams(pjrt_mailbox *m) {
  m->closed = true;
  while (m->readers) {
    reader *r = m->readers;
    m->readers = r->next;
    end_stream(m->client, r->stream);
    base_free(r);
  }
}

static void deliver(pjrt_mailbox *m) {
  for (reader **at = &m->readers; *at;) {
    reader *r = *at;
    letter *l = take_letter(m, r->channel);
    if (!l) {
      at = &r->next;
      continue;
    }
    *at = r->next;
    hand_over(m->client, l, r);
  }
  if (m->readers && (m->closed || count_readers(m) >= m->running)) close_streams(m);
}

/* Takes the chunk, whatever the outcome. */
static ttpu_status post(pjrt_mailbox *m, int64_t channel, PJRT_Chunk chunk) {
  letter *l = base_calloc(1, sizeof *l), **last = &m->letters;
  if (!l) {
    free_chunk(&chunk);
    return base_no_memory(sizeof *l);
  }
  *l = (letter){NULL, channel, chunk};
  pthread_mutex_lock(&m->lock);
  while (*last) last = &(*last)->next;
  *last = l;
  deliver(m);
  pthread_mutex_unlock(&m->lock);
  return TTPU_OK;
}

/* ---- the callbacks: on the plugin's threads ---------------------------------------------------------------- */

static PJRT_Error *on_send(PJRT_Chunk *chunk, PJRT_CallbackError *callback_error, size_t total, bool done,
                           void *user_arg) {
  const mail_channel *channel = user_arg;
  static const char text[] = "the client takes values in one piece";
  if (!done || total != chunk->size) {
    free_chunk(chunk);
    return (*callback_error)(TTPU_UNIMPLEMENTED, text, sizeof text - 1);
  }
  if (post(channel->mailbox, channel->number, *chunk) == TTPU_OK) return NULL;
  return (*callback_error)(TTPU_RESOURCE_EXHAUSTED, base_message(), strlen(base_message()));
}

static void on_receive(PJRT_CopyToDeviceStream *stream, void *user_arg) {
  const mail_channel *channel = user_arg;
  pjrt_mailbox *m = channel->mailbox;
  reader *r = base_calloc(1, sizeof *r), **last = &m->readers;
  if (!r) return end_stream(m->client, stream);
  *r = (reader){NULL, channel->number, stream};
  pthread_mutex_lock(&m->lock);
  while (*last) last = &(*last)->next;
  *last = r;
  deliver(m);
  pthread_mutex_unlock(&m->lock);
}

/* ---- mailboxes ---------------------------------------------------------------------------------------------- */

static void release(pjrt_mailbox *m) { /* opens the lock, which is held */
  bool last = --m->refs == 0;
  if (last) close_streams(m);
  pthread_mutex_unlock(&m->lock);
  if (!last) return;
  while (m->letters) {
    letter *l = m->letters;
    m->letters = l->next;
    free_chunk(&l->chunk);
    base_free(l);
  }
  pthread_mutex_destroy(&m->lock);
  base_free(m);
}

ttpu_status pjrt_mailbox_new(const pjrt_client *c, uint32_t chips, uint32_t count, const int64_t *channels,
                             pjrt_mailbox **out) {
  size_t each = sizeof(mail_channel) + sizeof(PJRT_SendCallbackInfo) + sizeof(PJRT_RecvCallbackInfo);
  pjrt_mailbox *m = base_calloc(1, sizeof *m + count * each);
  if (!m) return base_no_memory(count * each);
  pthread_mutex_init(&m->lock, NULL);
  m->client = c;
  m->refs = 1;
  m->running = chips;
  m->channel_count = count;
  m->channels = (mail_channel *)(m + 1);
  m->sends = (PJRT_SendCallbackInfo *)(m->channels + count);
  m->receives = (PJRT_RecvCallbackInfo *)(m->sends + count);
  for (uint32_t i = 0; i < count; ++i) {
    m->channels[i] = (mail_channel){m, channels[i]};
    m->sends[i] = (PJRT_SendCallbackInfo){channels[i], &m->channels[i], on_send};
    m->receives[i] = (PJRT_RecvCallbackInfo){channels[i], &m->channels[i], on_receive};
  }
  *out = m;
  return TTPU_OK;
}

void pjrt_mailbox_free(pjrt_mailbox *m) {
  if (!m) return;
  pthread_mutex_lock(&m->lock);
  release(m);
}

static void free_bytes(void *data, void *unused) {
  (void)unused;
  base_free(data);
}

ttpu_status pjrt_mailbox_put(pjrt_mailbox *m, int64_t channel, const void *bytes, size_t size) {
  void *copy = base_alloc(size + 1);
  if (!copy) return base_no_memory(size);
  memcpy(copy, bytes, size);
  return post(m, channel, (PJRT_Chunk){copy, size, free_bytes, NULL});
}

bool pjrt_mailbox_look(pjrt_mailbox *m, int64_t channel, uint32_t number, const void **bytes, size_t *size) {
  pthread_mutex_lock(&m->lock);
  const letter *l = m->letters;
  while (l && (l->channel != channel || number-- > 0)) l = l->next;
  if (l) *bytes = l->chunk.data, *size = l->chunk.size;
  pthread_mutex_unlock(&m->lock);
  return l;
}

void pjrt_mailbox_end(pjrt_mailbox *m, uint32_t chips) {
  pthread_mutex_lock(&m->lock);
  m->running -= chips;
  deliver(m);
  pthread_mutex_unlock(&m->lock);
}

/* ---- for execution ------------------------------------------------------------------------------------------ */

PJRT_SendCallbackInfo *pjrt_mailbox_sends(pjrt_mailbox *m, size_t *count) {
  *count = m->channel_count;
  return m->sends;
}

PJRT_RecvCallbackInfo *pjrt_mailbox_receives(pjrt_mailbox *m, size_t *count) {
  *count = m->channel_count;
  return m->receives;
}

void pjrt_mailbox_enter(pjrt_mailbox *m) {
  pthread_mutex_lock(&m->lock);
  ++m->refs;
  pthread_mutex_unlock(&m->lock);
}

void pjrt_mailbox_leave(void *mailbox, ttpu_status status) {
  pjrt_mailbox *m = mailbox;
  (void)status; /* whoever reads the results learns it */
  pthread_mutex_lock(&m->lock);
  --m->running;
  deliver(m);
  release(m);
}
