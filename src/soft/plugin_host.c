/* The host's side of programs that send and receive: the callbacks that come with an execution, and the streams through
 * which the host answers.
 *
 * A chip that receives makes a stream, gives it to the callback and waits until it is full. The host may fill it at
 * once or later, from any thread. It belongs to both; who is last frees it. */
#include "soft/plugin_int.h"

struct PJRT_CopyToDeviceStream {
  uint32_t refs;
  char *to; /* NULL: the chip is not there any more */
  size_t total, current;
  bool ended; /* the host has let go of it */
};

typedef PJRT_CopyToDeviceStream stream;

/* Of all streams: what is done under it is short, but for copies of single transfers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool process_ends;

static void release(stream *s) {
  if (--s->refs == 0) base_free(s);
}

void soft_host_end_all(void) {
  pthread_mutex_lock(&lock);
  process_ends = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* ---- the chip's side --------------------------------------------------------------------------------------- */

struct plugin_host {
  soft_host base;
  uint32_t send_count, receive_count;
  PJRT_SendCallbackInfo *sends; /* copies: the caller's arrays may end with the call */
  PJRT_RecvCallbackInfo *receives;
};

static PJRT_Error *callback_error(PJRT_Error_Code code, const char *message, size_t length) {
  return plugin_error_new((ttpu_status)code, message, length);
}

static void free_data(void *data, void *unused) {
  (void)unused;
  base_free(data);
}

static ttpu_status no_callback(int64_t channel) {
  return base_fail(TTPU_FAILED_PRECONDITION, "channel %lld: the execution was given no callback for it",
                   (long long)channel);
}

/* The callback gets a copy, which it frees when it likes. */
static ttpu_status send(soft_host *base, int64_t channel, const void *bytes, size_t size) {
  plugin_host *h = (plugin_host *)base;
  uint32_t i = 0;
  while (i < h->send_count && h->sends[i].channel_id != channel) ++i;
  if (i == h->send_count) return no_callback(channel);
  void *copy = base_alloc(size + 1);
  if (!copy) return base_no_memory(size);
  memcpy(copy, bytes, size);
  PJRT_Chunk chunk = {copy, size, free_data, NULL};
  PJRT_CallbackError make_error = callback_error;
  PJRT_Error *error = h->sends[i].send_callback(&chunk, &make_error, size, true, h->sends[i].user_arg);
  if (!error) return TTPU_OK;
  PJRT_Error_GetCode_Args code = {.struct_size = sizeof code, .error = error};
  PJRT_Error_Message_Args message = {.struct_size = sizeof message, .error = error};
  PJRT_Error_Destroy_Args destroy = {.struct_size = sizeof destroy, .error = error};
  plugin_Error_GetCode(&code);
  plugin_Error_Message(&message);
  ttpu_status status = base_fail((ttpu_status)code.code, "channel %lld: %.*s", (long long)channel,
                                 (int)(message.message_size < 800 ? message.message_size : 800), message.message);
  plugin_Error_Destroy(&destroy);
  return status;
}

/* Waits for the host to fill the stream; with the lock held. */
static ttpu_status await_full(stream *s, int64_t channel) {
  while (s->current < s->total && !s->ended && !process_ends) pthread_cond_wait(&changed, &lock);
  s->to = NULL;
  if (s->current == s->total) return TTPU_OK;
  if (process_ends) return base_fail(TTPU_UNAVAILABLE, "channel %lld: the process ends", (long long)channel);
  return base_fail(TTPU_CANCELLED, "channel %lld: the host ended the transfer after %zu of %zu bytes",
                   (long long)channel, s->current, s->total);
}

static ttpu_status receive(soft_host *base, int64_t channel, void *to, size_t size) {
  plugin_host *h = (plugin_host *)base;
  uint32_t i = 0;
  while (i < h->receive_count && h->receives[i].channel_id != channel) ++i;
  if (i == h->receive_count) return no_callback(channel);
  stream *s = base_calloc(1, sizeof *s);
  if (!s) return base_no_memory(sizeof *s);
  *s = (stream){.refs = 2, .to = to, .total = size};
  h->receives[i].recv_callback(s, h->receives[i].user_arg);
  pthread_mutex_lock(&lock);
  ttpu_status status = await_full(s, channel);
  release(s);
  pthread_mutex_unlock(&lock);
  return status;
}

ttpu_status plugin_host_new(const PJRT_ExecuteOptions *o, size_t device, plugin_host **out) {
  bool given = o && PJRT_HAS(o, num_recv_ops);
  size_t sends = given && o->send_callbacks ? o->num_send_ops : 0;
  size_t receives = given && o->recv_callbacks ? o->num_recv_ops : 0;
  plugin_host *h = base_calloc(1, sizeof *h + sends * sizeof *h->sends + receives * sizeof *h->receives);
  if (!h) return base_no_memory(sizeof *h);
  h->base = (soft_host){.send = send, .receive = receive};
  h->send_count = (uint32_t)sends;
  h->receive_count = (uint32_t)receives;
  h->sends = (PJRT_SendCallbackInfo *)(h + 1);
  h->receives = (PJRT_RecvCallbackInfo *)(h->sends + sends);
  if (sends) memcpy(h->sends, o->send_callbacks[device], sends * sizeof *h->sends);
  if (receives) memcpy(h->receives, o->recv_callbacks[device], receives * sizeof *h->receives);
  *out = h;
  return TTPU_OK;
}

void plugin_host_free(plugin_host *h) { base_free(h); }
soft_host *plugin_host_base(plugin_host *h) { return &h->base; }

/* ---- the host's side --------------------------------------------------------------------------------------- */

PJRT_Error *plugin_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args *args) {
  PLUGIN_ARGS(CopyToDeviceStream_Destroy, stream);
  pthread_mutex_lock(&lock);
  args->stream->ended = true;
  pthread_cond_broadcast(&changed);
  release(args->stream);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static ttpu_status add_chunk(stream *s, const PJRT_Chunk *chunk) {
  pthread_mutex_lock(&lock);
  bool there = s->to, fits = chunk->size <= s->total - s->current;
  if (there && fits && chunk->size) memcpy(s->to + s->current, chunk->data, chunk->size);
  if (there && fits) s->current += chunk->size;
  size_t left = s->total - s->current;
  if (s->current == s->total) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  if (!there && left) return base_fail(TTPU_CANCELLED, "AddChunk: nobody waits for the transfer any more");
  if (fits) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "AddChunk: a chunk of %zu bytes, of a transfer that wants %zu more",
                   chunk->size, left);
}

PJRT_Error *plugin_CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args *args) {
  PLUGIN_ARGS(CopyToDeviceStream_AddChunk, transfer_complete);
  PJRT_Chunk *chunk = args->chunk;
  ttpu_status status = add_chunk(args->stream, chunk);
  PJRT_Error *error = plugin_error(status); /* before foreign code, which may set this thread's message */
  if (chunk->deleter) chunk->deleter(chunk->data, chunk->deleter_arg);
  if (error) return error;
  args->transfer_complete = plugin_event_new(soft_done_ok());
  return args->transfer_complete ? NULL : plugin_error(base_no_memory(sizeof(void *)));
}

PJRT_Error *plugin_CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args *args) {
  PLUGIN_ARGS(CopyToDeviceStream_TotalBytes, total_bytes);
  args->total_bytes = (int64_t)args->stream->total;
  return NULL;
}

PJRT_Error *plugin_CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args *args) {
  PLUGIN_ARGS(CopyToDeviceStream_GranuleSize, granule_size_in_bytes);
  args->granule_size_in_bytes = 1;
  return NULL;
}

PJRT_Error *plugin_CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args *args) {
  PLUGIN_ARGS(CopyToDeviceStream_CurrentBytes, current_bytes);
  pthread_mutex_lock(&lock);
  args->current_bytes = (int64_t)args->stream->current;
  pthread_mutex_unlock(&lock);
  return NULL;
}
