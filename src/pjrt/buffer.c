/* Buffers and transfers. */
#include "pjrt/pjrt_int.h"

pjrt_buffer *pjrt_buffer_new(pjrt_device *d, ttpu_dtype dtype, size_t bytes) {
  pjrt_buffer *b = base_alloc(sizeof *b);
  if (!b) return NULL;
  atomic_init(&b->refs, 1);
  atomic_init(&b->ready, false);
  b->dtype = dtype;
  b->device = d;
  b->buffer = NULL;
  b->bytes = bytes;
  b->doubts = NULL;
  return b;
}

pjrt_buffer *pjrt_buffer_share(pjrt_buffer *b) {
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return b;
}

void pjrt_buffer_free(pjrt_buffer *b) {
  if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  if (b->buffer) {
    PJRT_Buffer_Destroy_Args destroy = ARGS(Buffer_Destroy, .buffer = b->buffer);
    if (CALL(b->device->client, Buffer_Destroy, &destroy) != TTPU_OK)
      base_log(LOG_WARN, "freeing a buffer: %s", base_message());
  }
  pjrt_doubts_free(b->doubts);
  base_free(b);
}

size_t pjrt_buffer_bytes(const pjrt_buffer *b) { return b->bytes; }
pjrt_device *pjrt_buffer_device(const pjrt_buffer *b) { return b->device; }

/* ---- from the host ------------------------------------------------------------------------------------------- */

/* A caller's function, to be called once when an event is ready. */
typedef struct pending_call {
  const pjrt_client *client;
  PJRT_Event *event;
  void (*release)(void *context);
  void (*done)(void *context, ttpu_status status);
  void *context;
} pending_call;

static void call_pending(PJRT_Error *error, void *user_arg) {
  pending_call p = *(pending_call *)user_arg;
  base_free(user_arg);
  ttpu_status status = pjrt_status(p.client->api, error);
  if (p.release) p.release(p.context);
  else p.done(p.context, status); /* with the message set */
  pjrt_event_free(p.client, p.event);
}

/* Calls what `call` says once its event is ready, and takes the event. On failure it waits and calls it itself. */
static void call_when_ready(pending_call call) {
  const pjrt_client *c = call.client;
  pending_call *p = base_alloc(sizeof *p);
  if (p) {
    *p = call;
    if (pjrt_event_on_ready(c, call.event, call_pending, p) == TTPU_OK) return;
    base_free(p);
  }
  ttpu_status status = pjrt_event_await(c, call.event);
  if (call.release) call.release(call.context);
  else call.done(call.context, status);
}

void pjrt_event_call(const pjrt_client *c, PJRT_Event *event, void (*done)(void *context, ttpu_status status),
                     void *context) {
  if (event) call_when_ready((pending_call){c, event, NULL, done, context});
  else done(context, TTPU_OK);
}

ttpu_status pjrt_buffer_from_host(pjrt_device *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims,
                                  const void *data, void (*release)(void *context), void *context, pjrt_buffer **out) {
  pjrt_buffer *b = pjrt_buffer_new(d, dtype, (size_t)base_numel(rank, dims) * base_dtype_bytes(dtype));
  if (!b) return base_no_memory(sizeof *b);
  static const char nothing; /* empty arrays may come with NULL, which some plugins refuse */
  PJRT_Client_BufferFromHostBuffer_Args from =
      ARGS(Client_BufferFromHostBuffer, .client = d->client->client, .data = data ? data : &nothing,
           .type = base_dtypes[dtype].pjrt_type, .dims = dims, .num_dims = rank, .device = d->device,
           .host_buffer_semantics = release ? PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes
                                            : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  ttpu_status status = CALL(d->client, Client_BufferFromHostBuffer, &from);
  if (status != TTPU_OK) {
    pjrt_buffer_free(b);
    return status;
  }
  b->buffer = from.buffer;
  if (release && from.done_with_host_buffer)
    call_when_ready((pending_call){d->client, from.done_with_host_buffer, release, NULL, context});
  else if (release) release(context);
  else pjrt_event_free(d->client, from.done_with_host_buffer);
  *out = b;
  return TTPU_OK;
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static ttpu_status ready_event(pjrt_buffer *b, PJRT_Event **out) {
  PJRT_Buffer_ReadyEvent_Args ready = ARGS(Buffer_ReadyEvent, .buffer = b->buffer);
  BASE_TRY(CALL(b->device->client, Buffer_ReadyEvent, &ready));
  *out = ready.event;
  return TTPU_OK;
}

bool pjrt_buffer_is_ready(pjrt_buffer *b) {
  if (atomic_load_explicit(&b->ready, memory_order_relaxed)) return true;
  const pjrt_client *c = b->device->client;
  PJRT_Event *event = NULL;
  if (ready_event(b, &event) != TTPU_OK) return true; /* deleted: nothing to wait for */
  bool is = pjrt_event_is_ready(c, event);
  pjrt_event_free(c, event);
  return is && pjrt_doubts_are_read(b->doubts);
}

ttpu_status pjrt_buffer_await(pjrt_buffer *b) {
  if (atomic_load_explicit(&b->ready, memory_order_acquire)) return TTPU_OK;
  PJRT_Event *event;
  BASE_TRY(ready_event(b, &event));
  BASE_TRY(pjrt_event_await(b->device->client, event));
  BASE_TRY(pjrt_doubts_settle(b->doubts));
  atomic_store_explicit(&b->ready, true, memory_order_release);
  return TTPU_OK;
}

void pjrt_buffer_on_ready(pjrt_buffer *b, void (*done)(void *context, ttpu_status status), void *context) {
  PJRT_Event *event;
  ttpu_status status = ready_event(b, &event);
  if (status != TTPU_OK) done(context, status);
  else if (b->doubts) pjrt_doubts_call(b->doubts, b->device->client, event, done, context);
  else pjrt_event_call(b->device->client, event, done, context);
}

/* ---- to the host ----------------------------------------------------------------------------------------------- */

/* The strides in bytes of a buffer as the plugin keeps it. A tiled one has none. */
static ttpu_status device_strides(const pjrt_buffer *b, uint32_t rank, const int64_t *dims, int64_t *strides) {
  const pjrt_client *c = b->device->client;
  PJRT_Buffer_GetMemoryLayout_Args get = ARGS(Buffer_GetMemoryLayout, .buffer = b->buffer);
  if (!PLUGIN_HAS(c, Buffer_GetMemoryLayout)) return pjrt_missing(c, "Buffer_GetMemoryLayout");
  BASE_TRY(CALL(c, Buffer_GetMemoryLayout, &get));
  if (get.layout.type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    if (get.layout.strides.num_byte_strides != rank)
      return base_fail(TTPU_INTERNAL, "the plugin's buffer of rank %u has %zu strides", rank,
                       get.layout.strides.num_byte_strides);
    if (rank) memcpy(strides, get.layout.strides.byte_strides, rank * sizeof *strides);
    return TTPU_OK;
  }
  const PJRT_Buffer_MemoryLayout_Tiled *t = &get.layout.tiled;
  if (t->num_tiles > 0 || t->minor_to_major_size != rank)
    return base_fail(TTPU_UNIMPLEMENTED, "the plugin gives a buffer back in tiles alone");
  int64_t stride = (int64_t)base_dtype_bytes(b->dtype);
  for (uint32_t i = 0; i < rank; ++i) {
    int64_t dim = t->minor_to_major[i];
    if (dim < 0 || dim >= rank)
      return base_fail(TTPU_INTERNAL, "the plugin's layout names dimension %lld", (long long)dim);
    strides[dim] = stride;
    stride *= dims[dim];
  }
  return TTPU_OK;
}

/* Row-major from strided; fails where the strides lead out of the bytes. */
static ttpu_status gather_rows(uint8_t *to, const uint8_t *from, size_t bytes, size_t element, uint32_t rank,
                               const int64_t *dims, const int64_t *strides) {
  int64_t at[TTPU_MAX_RANK] = {0}, place = 0, last = 0;
  for (uint32_t i = 0; i < rank; ++i) {
    if (strides[i] < 0) return base_fail(TTPU_UNIMPLEMENTED, "the plugin's buffer has a negative stride");
    last += (dims[i] - 1) * strides[i];
  }
  if ((uint64_t)last + element > bytes) return base_fail(TTPU_INTERNAL, "the plugin's strides do not fit its buffer");
  for (size_t done = 0; done < bytes; done += element) {
    memcpy(to + done, from + place, element);
    for (uint32_t i = rank; i-- > 0;) {
      place += strides[i];
      if (++at[i] < dims[i]) break;
      place -= dims[i] * strides[i];
      at[i] = 0;
    }
  }
  return TTPU_OK;
}

static ttpu_status read_bytes(pjrt_buffer *b, PJRT_Buffer_MemoryLayout *layout, void *to) {
  PJRT_Buffer_ToHostBuffer_Args copy =
      ARGS(Buffer_ToHostBuffer, .src = b->buffer, .host_layout = layout, .dst = to, .dst_size = b->bytes);
  BASE_TRY(CALL(b->device->client, Buffer_ToHostBuffer, &copy));
  return pjrt_event_await(b->device->client, copy.event);
}

/* From a plugin that gives a buffer in its own layout alone. */
static ttpu_status read_and_arrange(pjrt_buffer *b, uint32_t rank, const int64_t *dims, void *to) {
  int64_t strides[TTPU_MAX_RANK];
  BASE_TRY(device_strides(b, rank, dims, strides));
  uint8_t *bytes = base_alloc(b->bytes);
  if (!bytes) return base_no_memory(b->bytes);
  ttpu_status status = read_bytes(b, NULL, bytes);
  if (status == TTPU_OK) status = gather_rows(to, bytes, b->bytes, base_dtype_bytes(b->dtype), rank, dims, strides);
  base_free(bytes);
  return status;
}

/* The layout is given although it is row-major: without it a TPU answers in its own, tiled. */
ttpu_status pjrt_buffer_to_host(pjrt_buffer *b, void *to, size_t bytes) {
  const pjrt_client *c = b->device->client;
  if (bytes != b->bytes)
    return base_fail(TTPU_INVALID_ARGUMENT, "a read of %zu bytes from a buffer of %zu", bytes, b->bytes);
  BASE_TRY(pjrt_buffer_await(b));
  if (bytes == 0) return TTPU_OK;
  int64_t minor_to_major[TTPU_MAX_RANK];
  PJRT_Buffer_Dimensions_Args shape = ARGS(Buffer_Dimensions, .buffer = b->buffer);
  BASE_TRY(CALL(c, Buffer_Dimensions, &shape));
  if (shape.num_dims > TTPU_MAX_RANK)
    return base_fail(TTPU_UNIMPLEMENTED, "a buffer of rank %zu; the largest rank is %d", shape.num_dims,
                     (int)TTPU_MAX_RANK);
  for (size_t i = 0; i < shape.num_dims; ++i) minor_to_major[i] = (int64_t)(shape.num_dims - 1 - i);
  PJRT_Buffer_MemoryLayout layout = {
      .struct_size = sizeof layout,
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
      .tiled = {.struct_size = sizeof layout.tiled,
                .minor_to_major = minor_to_major,
                .minor_to_major_size = shape.num_dims},
  };
  ttpu_status status = read_bytes(b, &layout, to);
  if (status != TTPU_UNIMPLEMENTED) return status;
  return read_and_arrange(b, (uint32_t)shape.num_dims, shape.dims, to);
}

ttpu_status pjrt_buffer_part_to_host(pjrt_buffer *b, size_t offset, void *to, size_t bytes) {
  const pjrt_client *c = b->device->client;
  if (offset > b->bytes || bytes > b->bytes - offset)
    return base_fail(TTPU_INVALID_ARGUMENT, "a read of bytes %zu to %zu from a buffer of %zu", offset, offset + bytes,
                     b->bytes);
  if (bytes == b->bytes) return pjrt_buffer_to_host(b, to, bytes);
  if (pjrt_client_is_soft(c)) { /* whose buffers lie in memory as they are described */
    PJRT_Buffer_CopyRawToHost_Args copy = ARGS(Buffer_CopyRawToHost, .buffer = b->buffer, .dst = to,
                                               .offset = (int64_t)offset, .transfer_size = (int64_t)bytes);
    BASE_TRY(pjrt_buffer_await(b));
    BASE_TRY(CALL(c, Buffer_CopyRawToHost, &copy));
    return pjrt_event_await(c, copy.event);
  }
  char *all = base_alloc(b->bytes);
  if (!all) return base_no_memory(b->bytes);
  ttpu_status status = pjrt_buffer_to_host(b, all, b->bytes);
  if (status == TTPU_OK) memcpy(to, all + offset, bytes);
  base_free(all);
  return status;
}

/* For plugins that cannot copy between devices. Waits. */
static ttpu_status copy_through_host(pjrt_buffer *b, pjrt_device *d, pjrt_buffer **out) {
  PJRT_Buffer_Dimensions_Args shape = ARGS(Buffer_Dimensions, .buffer = b->buffer);
  BASE_TRY(CALL(d->client, Buffer_Dimensions, &shape));
  void *bytes = base_alloc(b->bytes + 1);
  if (!bytes) return base_no_memory(b->bytes);
  ttpu_status status = pjrt_buffer_to_host(b, bytes, b->bytes);
  if (status == TTPU_OK)
    status = pjrt_buffer_from_host(d, b->dtype, (uint32_t)shape.num_dims, shape.dims, bytes, NULL, NULL, out);
  base_free(bytes);
  return status;
}

ttpu_status pjrt_buffer_copy_to_device(pjrt_buffer *b, pjrt_device *d, pjrt_buffer **out) {
  if (d->client != b->device->client)
    return base_fail(TTPU_INVALID_ARGUMENT, "a copy between two plugins goes through the host");
  if (d == b->device && !d->client->extension) { /* which XLA's plugins refuse; values never change */
    *out = pjrt_buffer_share(b);
    return TTPU_OK;
  }
  if (!PLUGIN_HAS(d->client, Buffer_CopyToDevice)) return copy_through_host(b, d, out);
  pjrt_buffer *copy = pjrt_buffer_new(d, b->dtype, b->bytes);
  if (!copy) return base_no_memory(sizeof *copy);
  PJRT_Buffer_CopyToDevice_Args args = ARGS(Buffer_CopyToDevice, .buffer = b->buffer, .dst_device = d->device);
  ttpu_status status = CALL(d->client, Buffer_CopyToDevice, &args);
  if (status != TTPU_OK) {
    pjrt_buffer_free(copy);
    return status;
  }
  copy->buffer = args.dst_buffer;
  copy->doubts = pjrt_doubts_share(b->doubts);
  *out = copy;
  return TTPU_OK;
}
