/* Buffers that the host fills piece by piece. The manager allocates them at once; each piece is copied in the call, and the
 * last one of a buffer keeps its promise. A buffer can be retrieved, and computed with, before it is full. */
#include "soft/plugin_int.h"

typedef struct filling {
  soft_value *value;
  size_t received; /* bytes */
  bool retrieved, ended;
} filling;

struct PJRT_AsyncHostToDeviceTransferManager {
  pthread_mutex_t lock;
  PJRT_Memory *memory;
  uint32_t count;
  filling buffers[];
};

typedef PJRT_AsyncHostToDeviceTransferManager manager;

/* A buffer that nobody will fill any more fails those who wait for it. */
static void end_unfilled(filling *f) {
  static const char message[] = "the transfer manager was destroyed before the buffer was full";
  if (f->value && !f->ended) soft_done_set(f->value->done, TTPU_CANCELLED, message);
  f->ended = true;
}

static void manager_free(manager *m) {
  if (!m) return;
  for (uint32_t i = 0; i < m->count; ++i) {
    end_unfilled(&m->buffers[i]);
    plugin_value_free(m->buffers[i].value);
  }
  pthread_mutex_destroy(&m->lock);
  base_free(m);
}

static ttpu_status manager_new(PJRT_Memory *memory, const PJRT_ShapeSpec *specs, size_t count, manager **out) {
  manager *m = base_calloc(1, sizeof *m + count * sizeof m->buffers[0]);
  if (!m) return base_no_memory(count * sizeof m->buffers[0]);
  pthread_mutex_init(&m->lock, NULL);
  m->memory = memory;
  m->count = (uint32_t)count;
  ttpu_status status = TTPU_OK;
  for (size_t i = 0; i < count && status == TTPU_OK; ++i)
    status =
        plugin_value_from_shape(memory, specs[i].element_type, specs[i].num_dims, specs[i].dims, &m->buffers[i].value);
  if (status == TTPU_OK) *out = m;
  else manager_free(m);
  return status;
}

PJRT_Error *plugin_Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args) {
  PLUGIN_ARGS(Client_CreateBuffersForAsyncHostToDevice, transfer_manager);
  if (!args->memory) PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "CreateBuffersForAsyncHostToDevice: no memory was given");
  for (size_t i = 0; i < args->num_device_layouts; ++i)
    if (args->device_layouts && args->device_layouts[i])
      PLUGIN_TRY(plugin_check_device_layout(args->device_layouts[i], args->shape_specs[i].num_dims));
  return plugin_error(manager_new(args->memory, args->shape_specs, args->num_shape_specs, &args->transfer_manager));
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_Destroy, transfer_manager);
  manager_free(args->transfer_manager);
  return NULL;
}

static ttpu_status check_index(const manager *m, int index) {
  if (index >= 0 && (uint32_t)index < m->count) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "there is no buffer %d; the transfer manager has %u", index, m->count);
}

/* Counts `bytes` more; *done: to be kept outside of the lock, since callbacks may come here. */
static ttpu_status receive(manager *m, int index, size_t bytes, bool last, soft_done **done) {
  filling *f = &m->buffers[index];
  pthread_mutex_lock(&m->lock);
  bool ended = f->ended;
  f->received += bytes;
  bool full = f->received >= f->value->bytes;
  if (last && !ended) f->ended = true;
  pthread_mutex_unlock(&m->lock);
  if (ended) return base_fail(TTPU_FAILED_PRECONDITION, "buffer %d has had its last transfer", index);
  *done = last ? f->value->done : NULL;
  if (last && !full)
    return base_fail(TTPU_INVALID_ARGUMENT, "the last transfer of buffer %d leaves %zu of %zu bytes unset", index,
                     f->value->bytes - f->received, f->value->bytes);
  return TTPU_OK;
}

static ttpu_status finish(manager *m, int index, size_t bytes, bool last, PJRT_Event **event) {
  soft_done *done = NULL;
  ttpu_status status = receive(m, index, bytes, last, &done);
  if (done) soft_done_set(done, status, status == TTPU_OK ? NULL : base_message());
  if (status != TTPU_OK) return status;
  *event = plugin_event_new(soft_done_ok());
  return *event ? TTPU_OK : base_no_memory(sizeof(void *));
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_TransferData(
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_TransferData, done_with_h2d_transfer);
  manager *m = args->transfer_manager;
  PLUGIN_TRY(check_index(m, args->buffer_index));
  soft_value *v = m->buffers[args->buffer_index].value;
  if (args->offset < 0 || args->transfer_size < 0 || (size_t)args->offset > v->bytes ||
      (size_t)args->transfer_size > v->bytes - (size_t)args->offset)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "TransferData: %lld bytes at %lld of a buffer of %zu",
                (long long)args->transfer_size, (long long)args->offset, v->bytes);
  if (args->transfer_size) memcpy((char *)v->block->data + args->offset, args->data, (size_t)args->transfer_size);
  return plugin_error(finish(m, args->buffer_index, (size_t)args->transfer_size, args->is_last_transfer,
                             &args->done_with_h2d_transfer));
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_TransferLiteral(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_TransferLiteral, done_with_h2d_transfer);
  manager *m = args->transfer_manager;
  PLUGIN_TRY(check_index(m, args->buffer_index));
  soft_value *v = m->buffers[args->buffer_index].value;
  bool same = args->shape_element_type == base_dtypes[v->dtype].pjrt_type && args->shape_num_dims == v->rank;
  for (uint32_t d = 0; same && d < v->rank; ++d) same = args->shape_dims[d] == v->dims[d];
  if (!same) PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "TransferLiteral: buffer %d has another shape", args->buffer_index);
  PLUGIN_TRY(plugin_copy_in(v, args->data, args->shape_layout));
  return plugin_error(finish(m, args->buffer_index, v->bytes, true, &args->done_with_h2d_transfer));
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_RetrieveBuffer(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_RetrieveBuffer, buffer_out);
  manager *m = args->transfer_manager;
  PLUGIN_TRY(check_index(m, args->buffer_index));
  filling *f = &m->buffers[args->buffer_index];
  pthread_mutex_lock(&m->lock);
  bool before = f->retrieved;
  f->retrieved = true;
  pthread_mutex_unlock(&m->lock);
  if (before) PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "buffer %d was retrieved before", args->buffer_index);
  args->buffer_out = plugin_buffer_new(m->memory, plugin_value_share(f->value));
  if (args->buffer_out) return NULL;
  plugin_value_free(f->value);
  return plugin_error(base_no_memory(sizeof(void *)));
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_Device, device_out);
  args->device_out = args->transfer_manager->memory->device;
  return NULL;
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_BufferCount(
    PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_BufferCount, buffer_count);
  args->buffer_count = args->transfer_manager->count;
  return NULL;
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_BufferSize(
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_BufferSize, buffer_size);
  PLUGIN_TRY(check_index(args->transfer_manager, args->buffer_index));
  args->buffer_size = args->transfer_manager->buffers[args->buffer_index].value->bytes;
  return NULL;
}

PJRT_Error *plugin_AsyncHostToDeviceTransferManager_SetBufferError(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args) {
  PLUGIN_ARGS(AsyncHostToDeviceTransferManager_SetBufferError, error_message_size);
  manager *m = args->transfer_manager;
  PLUGIN_TRY(check_index(m, args->buffer_index));
  filling *f = &m->buffers[args->buffer_index];
  pthread_mutex_lock(&m->lock);
  bool before = f->ended;
  f->ended = true;
  pthread_mutex_unlock(&m->lock);
  if (before) PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "buffer %d has had its last transfer", args->buffer_index);
  char text[1024];
  size_t length = args->error_message_size < sizeof text - 1 ? args->error_message_size : sizeof text - 1;
  if (length) memcpy(text, args->error_message, length);
  text[length] = 0;
  bool known = args->error_code > TTPU_OK && args->error_code <= TTPU_UNAUTHENTICATED;
  soft_done_set(f->value->done, known ? (ttpu_status)args->error_code : TTPU_UNKNOWN, text);
  return NULL;
}

/* Notes for a profiler, of which there is none. */
PJRT_Error *plugin_AsyncHostToDeviceTransferManager_AddMetadata(
    PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args *args) {
  (void)args;
  return NULL;
}
