/* Buffers and transfers. */
#include "soft/plugin_int.h"

enum { ASYNC_BYTES = 1 << 20 }; /* transfers from this size on leave the caller's thread where they may */

/* ---- values ------------------------------------------------------------------------------------------ */

soft_value *plugin_value_new(ttpu_dtype dtype, uint32_t rank, const int64_t *dims, soft_done *done) {
  soft_value *v = base_alloc(sizeof *v + rank * sizeof *dims);
  if (!v) return NULL;
  atomic_init(&v->refs, 1);
  v->dtype = (uint8_t)dtype;
  v->rank = (uint8_t)rank;
  v->bytes = (size_t)base_numel(rank, dims) * base_dtype_bytes(dtype);
  v->done = done;
  v->block = NULL;
  for (uint32_t i = 0; i < rank; ++i) v->dims[i] = dims[i];
  return v;
}

soft_value *plugin_value_share(soft_value *v) {
  atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
  return v;
}

void plugin_value_free(soft_value *v) {
  if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
  soft_block_free(v->block);
  soft_done_free(v->done);
  base_free(v);
}

/* ---- handles ----------------------------------------------------------------------------------------- */

PJRT_Buffer *plugin_buffer_new(PJRT_Memory *memory, soft_value *v) {
  PJRT_Buffer *b = base_alloc(sizeof *b + 2 * v->rank * sizeof *b->dims);
  if (!b) return NULL;
  b->memory = memory;
  atomic_flag_clear(&b->lock);
  b->value = v;
  b->external = NULL;
  b->external_count = 0;
  b->dtype = v->dtype;
  b->rank = v->rank;
  b->bytes = v->bytes;
  for (uint32_t i = 0; i < v->rank; ++i) {
    b->dims[i] = v->dims[i];
    b->dims[v->rank + i] = v->rank - 1 - (int64_t)i;
  }
  return b;
}

static void lock_buffer(PJRT_Buffer *b) {
  while (atomic_flag_test_and_set_explicit(&b->lock, memory_order_acquire)) {}
}

static void unlock_buffer(PJRT_Buffer *b) { atomic_flag_clear_explicit(&b->lock, memory_order_release); }

ttpu_status plugin_buffer_value(PJRT_Buffer *b, const char *what, soft_value **out) {
  lock_buffer(b);
  soft_value *v = b->value ? plugin_value_share(b->value) : NULL;
  unlock_buffer(b);
  *out = v;
  return v ? TTPU_OK : base_fail(TTPU_FAILED_PRECONDITION, "%s: the buffer was deleted or donated", what);
}

soft_value *plugin_buffer_take(PJRT_Buffer *b) {
  lock_buffer(b);
  soft_value *v = b->value;
  b->value = NULL;
  unlock_buffer(b);
  return v;
}

PJRT_Error *plugin_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  PLUGIN_ARGS(Buffer_Destroy, buffer);
  PJRT_Buffer *b = args->buffer;
  if (!b) return NULL;
  plugin_value_free(b->value);
  plugin_value_free(b->external);
  base_free(b);
  return NULL;
}

PJRT_Error *plugin_Buffer_Delete(PJRT_Buffer_Delete_Args *args) {
  PLUGIN_ARGS(Buffer_Delete, buffer);
  plugin_value_free(plugin_buffer_take(args->buffer));
  return NULL;
}

PJRT_Error *plugin_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args) {
  PLUGIN_ARGS(Buffer_IsDeleted, is_deleted);
  lock_buffer(args->buffer);
  args->is_deleted = args->buffer->value == NULL;
  unlock_buffer(args->buffer);
  return NULL;
}

PJRT_Error *plugin_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args) {
  PLUGIN_ARGS(Buffer_ElementType, type);
  args->type = base_dtypes[args->buffer->dtype].pjrt_type;
  return NULL;
}

PJRT_Error *plugin_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args) {
  PLUGIN_ARGS(Buffer_Dimensions, num_dims);
  args->dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

PJRT_Error *plugin_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args) {
  PLUGIN_ARGS(Buffer_UnpaddedDimensions, num_dims);
  args->unpadded_dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

PJRT_Error *plugin_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args) {
  PLUGIN_ARGS(Buffer_DynamicDimensionIndices, num_dynamic_dims);
  args->dynamic_dim_indices = NULL;
  args->num_dynamic_dims = 0;
  return NULL;
}

PJRT_Error *plugin_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args) {
  PLUGIN_ARGS(Buffer_GetMemoryLayout, layout);
  PJRT_Buffer *b = args->buffer;
  args->layout = (PJRT_Buffer_MemoryLayout){
      .struct_size = sizeof args->layout,
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
      .tiled = {.struct_size = sizeof args->layout.tiled,
                .minor_to_major = b->dims + b->rank,
                .minor_to_major_size = b->rank},
  };
  return NULL;
}

PJRT_Error *plugin_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args) {
  PLUGIN_ARGS(Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes);
  args->on_device_size_in_bytes = args->buffer->bytes;
  return NULL;
}

PJRT_Error *plugin_Buffer_Device(PJRT_Buffer_Device_Args *args) {
  PLUGIN_ARGS(Buffer_Device, device);
  args->device = args->buffer->memory->device;
  return NULL;
}

PJRT_Error *plugin_Buffer_Memory(PJRT_Buffer_Memory_Args *args) {
  PLUGIN_ARGS(Buffer_Memory, memory);
  args->memory = args->buffer->memory;
  return NULL;
}

/* Host memory it is, but a program that knows it would bypass the stream. */
PJRT_Error *plugin_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args) {
  PLUGIN_ARGS(Buffer_IsOnCpu, is_on_cpu);
  args->is_on_cpu = false;
  return NULL;
}

PJRT_Error *plugin_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  PLUGIN_ARGS(Buffer_ReadyEvent, event);
  soft_value *v;
  PLUGIN_TRY(plugin_buffer_value(args->buffer, "ReadyEvent", &v));
  args->event = plugin_event_new(soft_done_share(v->done));
  plugin_value_free(v);
  return args->event ? NULL : plugin_error(base_no_memory(sizeof(void *)));
}

/* Waits; the pointer is good as long as the value is. */
static ttpu_status data_pointer(PJRT_Buffer *b, void **out) {
  soft_value *v;
  BASE_TRY(plugin_buffer_value(b, "data pointer", &v));
  ttpu_status status = soft_done_await(v->done);
  if (status == TTPU_OK) *out = v->block->data;
  plugin_value_free(v);
  return status;
}

PJRT_Error *plugin_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args) {
  PLUGIN_ARGS(Buffer_UnsafePointer, buffer_pointer);
  void *data = NULL;
  PLUGIN_TRY(data_pointer(args->buffer, &data));
  args->buffer_pointer = (uintptr_t)data;
  return NULL;
}

PJRT_Error *plugin_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args) {
  PLUGIN_ARGS(Buffer_OpaqueDeviceMemoryDataPointer, device_memory_ptr);
  return plugin_error(data_pointer(args->buffer, &args->device_memory_ptr));
}

PJRT_Error *plugin_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args) {
  PLUGIN_ARGS(Buffer_IncreaseExternalReferenceCount, buffer);
  PJRT_Buffer *b = args->buffer;
  lock_buffer(b);
  bool there = b->external || b->value;
  if (there && b->external_count++ == 0) b->external = plugin_value_share(b->value);
  unlock_buffer(b);
  if (!there) PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "external reference: the buffer was deleted or donated");
  return NULL;
}

PJRT_Error *plugin_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args) {
  PLUGIN_ARGS(Buffer_DecreaseExternalReferenceCount, buffer);
  PJRT_Buffer *b = args->buffer;
  soft_value *last = NULL;
  lock_buffer(b);
  bool there = b->external_count > 0;
  if (there && --b->external_count == 0) {
    last = b->external;
    b->external = NULL;
  }
  unlock_buffer(b);
  plugin_value_free(last);
  if (!there) PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "the buffer has no external reference");
  return NULL;
}

/* ---- shapes and layouts from outside ----------------------------------------------------------------------- */

static ttpu_status check_shape(PJRT_Buffer_Type type, size_t rank, const int64_t *dims, ttpu_dtype *dtype,
                               size_t *bytes) {
  *dtype = base_dtype_from_pjrt(type);
  if (*dtype == TTPU_NO_DTYPE)
    return base_fail(TTPU_UNIMPLEMENTED, "the software TPU has no arrays of PJRT element type %d", (int)type);
  if (rank > TTPU_MAX_RANK)
    return base_fail(TTPU_UNIMPLEMENTED, "an array of rank %zu; the largest rank is %d", rank, (int)TTPU_MAX_RANK);
  int64_t total = (int64_t)base_dtype_bytes(*dtype);
  bool empty = false;
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return base_fail(TTPU_INVALID_ARGUMENT, "dimension %zu is negative: %lld", i, (long long)dims[i]);
    if (dims[i] == 0) empty = true;
    else if (__builtin_mul_overflow(total, dims[i], &total))
      return base_fail(TTPU_INVALID_ARGUMENT, "the array's size exceeds 2^63 bytes");
  }
  *bytes = empty ? 0 : (size_t)total;
  return TTPU_OK;
}

static ttpu_status find_memory(PJRT_Device *device, PJRT_Memory *memory, PJRT_Memory **out) {
  if (!memory && !device) return base_fail(TTPU_INVALID_ARGUMENT, "neither a device nor a memory was given");
  *out = memory ? memory : &device->memories[MEMORY_DEVICE];
  return TTPU_OK;
}

/* Byte strides as element strides. */
static ttpu_status set_strides(soft_view *view, const int64_t *byte_strides, size_t count) {
  int64_t bytes = (int64_t)base_dtype_bytes(view->dtype);
  if (count != view->rank)
    return base_fail(TTPU_INVALID_ARGUMENT, "%zu byte strides for an array of rank %u", count, view->rank);
  for (uint32_t i = 0; i < view->rank; ++i) {
    if (byte_strides[i] % bytes && view->dims[i] > 1)
      return base_fail(TTPU_UNIMPLEMENTED, "byte stride %lld is no multiple of the element's %lld bytes",
                       (long long)byte_strides[i], (long long)bytes);
    view->strides[i] = byte_strides[i] / bytes;
  }
  return TTPU_OK;
}

/* The strides that a layout asks for; NULL is row-major. */
static ttpu_status set_layout(soft_view *view, const PJRT_Buffer_MemoryLayout *layout) {
  if (!layout) return TTPU_OK;
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides)
    return set_strides(view, layout->strides.byte_strides, layout->strides.num_byte_strides);
  const PJRT_Buffer_MemoryLayout_Tiled *tiled = &layout->tiled;
  if (tiled->num_tiles) return base_fail(TTPU_UNIMPLEMENTED, "host layouts with tiles are not offered");
  if (tiled->minor_to_major_size != view->rank)
    return base_fail(TTPU_INVALID_ARGUMENT, "a layout of %zu dimensions for an array of rank %u",
                     tiled->minor_to_major_size, view->rank);
  int64_t stride = 1;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < view->rank; ++i) {
    int64_t d = tiled->minor_to_major[i];
    if (d < 0 || d >= view->rank || (seen >> d & 1))
      return base_fail(TTPU_INVALID_ARGUMENT, "minor_to_major is no permutation of 0 to %u", view->rank - 1);
    seen |= 1u << d;
    view->strides[d] = stride;
    stride *= view->dims[d] > 0 ? view->dims[d] : 1;
  }
  return TTPU_OK;
}

static void copy_view(const soft_view *dst, const soft_view *src) {
  size_t bytes = (size_t)base_numel(src->rank, src->dims) * base_dtype_bytes(src->dtype);
  if (bytes == 0) return;
  if (bytes < ASYNC_BYTES && soft_view_is_dense(dst) && soft_view_is_dense(src)) memcpy(dst->data, src->data, bytes);
  else kern_copy(dst, src);
}

/* ---- new buffers ------------------------------------------------------------------------------------------- */

/* A value with memory of its own. Takes `done`, also on failure. */
static ttpu_status new_value(PJRT_Memory *memory, ttpu_dtype dtype, size_t rank, const int64_t *dims, soft_done *done,
                             soft_value **out) {
  soft_value *v = plugin_value_new(dtype, (uint32_t)rank, dims, done);
  if (!v) {
    soft_done_free(done);
    return base_no_memory(sizeof *v);
  }
  ttpu_status status = soft_block_new(memory->hbm, v->bytes, &v->block);
  if (status == TTPU_OK) *out = v;
  else plugin_value_free(v);
  return status;
}

ttpu_status plugin_value_from_shape(PJRT_Memory *memory, PJRT_Buffer_Type type, size_t rank, const int64_t *dims,
                                    soft_value **out) {
  ttpu_dtype dtype;
  size_t bytes;
  BASE_TRY(check_shape(type, rank, dims, &dtype, &bytes));
  soft_done *done = soft_done_new(NULL);
  return done ? new_value(memory, dtype, rank, dims, done, out) : base_no_memory(sizeof *done);
}

ttpu_status plugin_copy_in(soft_value *v, const void *data, const PJRT_Buffer_MemoryLayout *layout) {
  soft_view src = soft_view_dense((ttpu_dtype)v->dtype, v->rank, v->dims, (void *)(uintptr_t)data);
  BASE_TRY(set_layout(&src, layout));
  soft_view dst = soft_view_dense((ttpu_dtype)v->dtype, v->rank, v->dims, v->block->data);
  copy_view(&dst, &src);
  return TTPU_OK;
}

ttpu_status plugin_check_device_layout(const PJRT_Buffer_MemoryLayout *layout, size_t rank) {
  const PJRT_Buffer_MemoryLayout_Tiled *t = &layout->tiled;
  bool ours =
      layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled && t->num_tiles == 0 && t->minor_to_major_size == rank;
  for (size_t i = 0; ours && i < rank; ++i) ours = t->minor_to_major[i] == (int64_t)(rank - 1 - i);
  return ours ? TTPU_OK
              : base_fail(TTPU_UNIMPLEMENTED, "arrays on the software TPU are row-major; another layout was asked for");
}

/* Takes v, also on failure. */
static ttpu_status new_buffer(PJRT_Memory *memory, soft_value *v, PJRT_Buffer **out) {
  *out = plugin_buffer_new(memory, v);
  if (*out) return TTPU_OK;
  plugin_value_free(v);
  return base_no_memory(sizeof **out);
}

/* A copy that runs on a stream: from `from`, or from host memory, to `to`, or to host memory. */
typedef struct copy_job {
  soft_job job;
  soft_done *done;
  soft_value *from, *to; /* NULL: the host's side */
  soft_view src, dst;    /* data is set by the job where it is a value's */
  size_t offset;         /* bytes into src */
} copy_job;

static void run_copy(soft_job *job) {
  copy_job *c = (copy_job *)job;
  ttpu_status status = c->from ? soft_done_await(c->from->done) : TTPU_OK;
  if (status == TTPU_OK) {
    if (c->from) c->src.data = (uint8_t *)c->from->block->data + c->offset;
    if (c->to) c->dst.data = c->to->block->data;
    copy_view(&c->dst, &c->src);
  }
  plugin_value_free(c->from);
  plugin_value_free(c->to);
  soft_done_set(c->done, status, status == TTPU_OK ? NULL : base_message());
  soft_done_free(c->done);
  base_free(c);
}

/* Pushes a copy; takes references of its own. */
static ttpu_status push_copy(soft_queue *queue, const copy_job *what) {
  copy_job *c = base_alloc(sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  *c = *what;
  c->job.run = run_copy;
  c->job.cost = (int64_t)((double)base_numel(c->src.rank, c->src.dims) * (double)base_dtype_bytes(c->src.dtype) / 5);
  soft_done_share(c->done);
  if (c->from) plugin_value_share(c->from);
  if (c->to) plugin_value_share(c->to);
  ttpu_status status = soft_queue_push(queue, &c->job);
  if (status == TTPU_OK) return TTPU_OK;
  plugin_value_free(c->from);
  plugin_value_free(c->to);
  soft_done_free(c->done);
  base_free(c);
  return status;
}

PJRT_Error *plugin_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  PLUGIN_ARGS(Client_BufferFromHostBuffer, buffer);
  ttpu_dtype dtype;
  size_t bytes;
  PJRT_Memory *memory = NULL;
  PLUGIN_TRY(check_shape(args->type, args->num_dims, args->dims, &dtype, &bytes));
  PLUGIN_TRY(find_memory(args->device, args->memory, &memory));
  soft_view src = soft_view_dense(dtype, (uint32_t)args->num_dims, args->dims, (void *)args->data);
  if (args->num_byte_strides) PLUGIN_TRY(set_strides(&src, args->byte_strides, args->num_byte_strides));

  soft_queue *queue = memory->device->queue;
  bool later = bytes >= ASYNC_BYTES && args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  soft_done *done = later ? soft_done_new(queue) : soft_done_ok();
  if (!done) return plugin_error(base_no_memory(sizeof *done));
  soft_value *v;
  PLUGIN_TRY(new_value(memory, dtype, args->num_dims, args->dims, done, &v));
  soft_view dst = soft_view_dense(dtype, (uint32_t)args->num_dims, args->dims, v->block->data);
  PJRT_Event *event = plugin_event_new(soft_done_share(done));
  PJRT_Buffer *b = event ? plugin_buffer_new(memory, v) : NULL;
  ttpu_status status = b ? TTPU_OK : base_no_memory(sizeof *b);
  if (status == TTPU_OK && later) status = push_copy(queue, &(copy_job){.done = done, .to = v, .src = src, .dst = dst});
  else if (status == TTPU_OK) copy_view(&dst, &src);
  if (status != TTPU_OK) {
    PJRT_Error *error = plugin_error(status);
    plugin_value_free(v);
    base_free(b);
    if (event) plugin_event_free(event);
    return error;
  }
  args->buffer = b;
  args->done_with_host_buffer = event;
  return NULL;
}

PJRT_Error *plugin_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args) {
  PLUGIN_ARGS(Client_CreateUninitializedBuffer, buffer);
  ttpu_dtype dtype;
  size_t bytes;
  PJRT_Memory *memory = NULL;
  soft_value *v;
  PLUGIN_TRY(check_shape(args->shape_element_type, args->shape_num_dims, args->shape_dims, &dtype, &bytes));
  PLUGIN_TRY(find_memory(args->device, args->memory, &memory));
  PLUGIN_TRY(new_value(memory, dtype, args->shape_num_dims, args->shape_dims, soft_done_ok(), &v));
  return plugin_error(new_buffer(memory, v, &args->buffer));
}

PJRT_Error *plugin_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args) {
  PLUGIN_ARGS(Client_CreateErrorBuffer, buffer);
  ttpu_dtype dtype;
  size_t bytes;
  PLUGIN_TRY(check_shape(args->shape_element_type, args->shape_num_dims, args->shape_dims, &dtype, &bytes));
  if (args->error_code <= TTPU_OK || args->error_code > TTPU_UNAUTHENTICATED)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "%d is no error code", (int)args->error_code);
  soft_done *done = soft_done_new(NULL);
  soft_value *v = done ? plugin_value_new(dtype, (uint32_t)args->shape_num_dims, args->shape_dims, done) : NULL;
  if (!v) {
    soft_done_free(done);
    return plugin_error(base_no_memory(sizeof *v));
  }
  char text[2048];
  size_t length = args->error_message_size < sizeof text - 1 ? args->error_message_size : sizeof text - 1;
  if (length) memcpy(text, args->error_message, length);
  text[length] = 0;
  soft_done_set(done, (ttpu_status)args->error_code, text);
  return plugin_error(new_buffer(args->memory, v, &args->buffer));
}

typedef struct view_release {
  void (*callback)(void *device_buffer_ptr, void *user_arg);
  void *user_arg;
} view_release;

static void release_view(void *data, void *context) {
  view_release *r = context;
  if (r->callback) r->callback(data, r->user_arg);
  base_free(r);
}

PJRT_Error *plugin_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args) {
  PLUGIN_ARGS(Client_CreateViewOfDeviceBuffer, buffer);
  ttpu_dtype dtype;
  size_t bytes;
  PJRT_Memory *memory = NULL;
  PLUGIN_TRY(check_shape(args->element_type, args->num_dims, args->dims, &dtype, &bytes));
  PLUGIN_TRY(find_memory(args->device, PJRT_HAS(args, memory) ? args->memory : NULL, &memory));
  view_release *r = base_alloc(sizeof *r);
  soft_value *v = r ? plugin_value_new(dtype, (uint32_t)args->num_dims, args->dims, soft_done_ok()) : NULL;
  PJRT_Buffer *b = v ? plugin_buffer_new(memory, v) : NULL;
  ttpu_status status = b ? TTPU_OK : base_no_memory(sizeof *b);
  if (status == TTPU_OK) {
    *r = (view_release){args->on_delete_callback, args->on_delete_callback_arg};
    status = soft_block_wrap(args->device_buffer_ptr, bytes, release_view, r, &v->block);
  }
  if (status == TTPU_OK) {
    args->buffer = b;
    return NULL;
  }
  PJRT_Error *error = plugin_error(status);
  base_free(b);
  plugin_value_free(v);
  base_free(r);
  return error;
}

/* ---- out of the device --------------------------------------------------------------------------------------- */

/* Copies v (from `offset`) to the host now if it is ready and small, else on the stream. */
static ttpu_status copy_out(PJRT_Buffer *b, soft_value *v, soft_view src, soft_view dst, size_t offset,
                            PJRT_Event **out) {
  size_t bytes = (size_t)base_numel(src.rank, src.dims) * base_dtype_bytes(src.dtype);
  soft_queue *queue = b->memory->device->queue;
  bool now = bytes < ASYNC_BYTES && soft_done_is_ready(v->done) && v->done->status == TTPU_OK;
  soft_done *done = now ? soft_done_ok() : soft_done_new(queue);
  PJRT_Event *event = done ? plugin_event_new(soft_done_share(done)) : NULL;
  ttpu_status status = event ? TTPU_OK : base_no_memory(sizeof *done);
  if (status == TTPU_OK && !now)
    status = push_copy(queue, &(copy_job){.done = done, .from = v, .src = src, .dst = dst, .offset = offset});
  if (status == TTPU_OK && now) {
    src.data = (uint8_t *)v->block->data + offset;
    copy_view(&dst, &src);
  }
  soft_done_free(done);
  if (status == TTPU_OK) *out = event;
  else if (event) plugin_event_free(event);
  return status;
}

PJRT_Error *plugin_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  PLUGIN_ARGS(Buffer_ToHostBuffer, event);
  PJRT_Buffer *b = args->src;
  if (!args->dst) {
    args->dst_size = b->bytes;
    args->event = NULL;
    return NULL;
  }
  if (args->dst_size < b->bytes)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "ToHostBuffer: the destination has %zu bytes, the buffer %zu", args->dst_size,
                b->bytes);
  soft_view src = soft_view_dense((ttpu_dtype)b->dtype, b->rank, b->dims, NULL);
  soft_view dst = soft_view_dense((ttpu_dtype)b->dtype, b->rank, b->dims, args->dst);
  PLUGIN_TRY(set_layout(&dst, args->host_layout));
  soft_value *v;
  PLUGIN_TRY(plugin_buffer_value(b, "ToHostBuffer", &v));
  PJRT_Error *error = plugin_error(copy_out(b, v, src, dst, 0, &args->event));
  plugin_value_free(v);
  return error;
}

PJRT_Error *plugin_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args) {
  PLUGIN_ARGS(Buffer_CopyRawToHost, event);
  PJRT_Buffer *b = args->buffer;
  if (args->offset < 0 || args->transfer_size < 0 || (size_t)args->offset > b->bytes ||
      (size_t)args->transfer_size > b->bytes - (size_t)args->offset)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "CopyRawToHost: bytes %lld to %lld of a buffer of %zu", (long long)args->offset,
                (long long)(args->offset + args->transfer_size), b->bytes);
  soft_view bytes = soft_view_dense(TTPU_U8, 1, &args->transfer_size, NULL), dst = bytes;
  dst.data = args->dst;
  soft_value *v;
  PLUGIN_TRY(plugin_buffer_value(b, "CopyRawToHost", &v));
  PJRT_Error *error = plugin_error(copy_out(b, v, bytes, dst, (size_t)args->offset, &args->event));
  plugin_value_free(v);
  return error;
}

/* Values never change, so a copy in the same memory is the same value. */
static ttpu_status copy_to(PJRT_Buffer *b, PJRT_Memory *memory, PJRT_Buffer **out) {
  soft_value *from, *to = NULL;
  BASE_TRY(plugin_buffer_value(b, "copy", &from));
  if (memory == b->memory) return new_buffer(memory, from, out);
  soft_queue *queue = b->memory->device->queue;
  soft_done *done = soft_done_new(queue);
  ttpu_status status =
      done ? new_value(memory, (ttpu_dtype)b->dtype, b->rank, b->dims, done, &to) : base_no_memory(sizeof *done);
  PJRT_Buffer *copy = NULL;
  if (status == TTPU_OK) {
    soft_view view = soft_view_dense((ttpu_dtype)b->dtype, b->rank, b->dims, NULL);
    copy = plugin_buffer_new(memory, to);
    status = copy ? push_copy(queue, &(copy_job){.done = done, .from = from, .to = to, .src = view, .dst = view})
                  : base_no_memory(sizeof *copy);
  }
  if (status == TTPU_OK) {
    *out = copy;
  } else {
    plugin_value_free(to);
    base_free(copy);
  }
  plugin_value_free(from);
  return status;
}

PJRT_Error *plugin_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args) {
  PLUGIN_ARGS(Buffer_CopyToDevice, dst_buffer);
  return plugin_error(copy_to(args->buffer, &args->dst_device->memories[MEMORY_DEVICE], &args->dst_buffer));
}

PJRT_Error *plugin_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args) {
  PLUGIN_ARGS(Buffer_CopyToMemory, dst_buffer);
  return plugin_error(copy_to(args->buffer, args->dst_memory, &args->dst_buffer));
}
