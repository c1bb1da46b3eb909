/* The plugin's functions, called as a framework calls them. */
#include <unistd.h>

#include "check.h"
#include "pjrt/abi.h"

static const PJRT_Api *api;
static PJRT_Client *client;
static PJRT_Device *const *devices;

#define ARGS(name, ...) \
  (PJRT_##name##_Args) { .struct_size = sizeof(PJRT_##name##_Args), __VA_ARGS__ }

/* An error's status, with its message as this thread's; destroys it. */
static ttpu_status status_of(PJRT_Error *error) {
  if (!error) return TTPU_OK;
  PJRT_Error_GetCode_Args code = ARGS(Error_GetCode, .error = error);
  CHECK(api->Error_GetCode(&code) == NULL);
  PJRT_Error_Message_Args message = ARGS(Error_Message, .error = error);
  api->Error_Message(&message);
  const PJRT_Error_FunctionTable *table = *(const PJRT_Error_FunctionTable *const *)error; /* both ways agree */
  const char *text;
  size_t length;
  table->message(error, &text, &length);
  CHECK(text == message.message && length == message.message_size && table->get_code(error) == code.code);
  ttpu_status status = base_fail((ttpu_status)code.code, "%.*s", (int)message.message_size, message.message);
  PJRT_Error_Destroy_Args destroy = ARGS(Error_Destroy, .error = error);
  api->Error_Destroy(&destroy);
  return status;
}
#define CALL(name, args) status_of(api->name(args))

static bool open_client(const char *topology) {
  api = GetPjrtApi();
  PJRT_NamedValue options[2] = {{.struct_size = sizeof *options,
                                 .name = "topology",
                                 .name_size = 8,
                                 .type = PJRT_NamedValue_kString,
                                 .string_value = topology,
                                 .value_size = strlen(topology)},
                                {.struct_size = sizeof *options,
                                 .name = "hbm_bytes",
                                 .name_size = 9,
                                 .type = PJRT_NamedValue_kInt64,
                                 .int64_value = 64 << 20,
                                 .value_size = 1}};
  PJRT_Client_Create_Args create = ARGS(Client_Create, .create_options = options, .num_options = 2);
  if (!CHECK_OK(CALL(Client_Create, &create))) return false;
  client = create.client;
  PJRT_Client_AddressableDevices_Args list = ARGS(Client_AddressableDevices, .client = client);
  CHECK_OK(CALL(Client_AddressableDevices, &list));
  devices = list.addressable_devices;
  return true;
}

static void close_client(void) {
  PJRT_Client_Destroy_Args destroy = ARGS(Client_Destroy, .client = client);
  CHECK_OK(CALL(Client_Destroy, &destroy));
}

static void free_buffer(PJRT_Buffer *b) {
  PJRT_Buffer_Destroy_Args destroy = ARGS(Buffer_Destroy, .buffer = b);
  CHECK_OK(CALL(Buffer_Destroy, &destroy));
}

static void free_event(PJRT_Event *e) {
  PJRT_Event_Destroy_Args destroy = ARGS(Event_Destroy, .event = e);
  CHECK_OK(CALL(Event_Destroy, &destroy));
}

static ttpu_status await_event(PJRT_Event *e) {
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = e);
  ttpu_status status = CALL(Event_Await, &await);
  free_event(e);
  return status;
}

static ttpu_status upload(PJRT_Device *d, PJRT_Memory *m, PJRT_Buffer_Type type, size_t rank, const int64_t *dims,
                          const int64_t *byte_strides, const void *data, int semantics, PJRT_Buffer **out) {
  PJRT_Client_BufferFromHostBuffer_Args from =
      ARGS(Client_BufferFromHostBuffer, .client = client, .data = data, .type = type, .dims = dims, .num_dims = rank,
           .byte_strides = byte_strides, .num_byte_strides = byte_strides ? rank : 0,
           .host_buffer_semantics = semantics, .device = d, .memory = m);
  BASE_TRY(CALL(Client_BufferFromHostBuffer, &from));
  *out = from.buffer;
  return await_event(from.done_with_host_buffer);
}

static ttpu_status download(PJRT_Buffer *b, PJRT_Buffer_MemoryLayout *layout, void *to, size_t bytes) {
  PJRT_Buffer_ToHostBuffer_Args copy =
      ARGS(Buffer_ToHostBuffer, .src = b, .host_layout = layout, .dst = to, .dst_size = bytes);
  BASE_TRY(CALL(Buffer_ToHostBuffer, &copy));
  return await_event(copy.event);
}

/* Two arguments, their sum and the second negated. */
static const char add_text[] =
    "module {\n"
    "  func.func @main(%0: tensor<4xf32>, %1: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {\n"
    "    %2 = \"stablehlo.add\"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n"
    "    %3 = \"stablehlo.negate\"(%1) : (tensor<4xf32>) -> tensor<4xf32>\n"
    "    \"func.return\"(%2, %3) : (tensor<4xf32>, tensor<4xf32>) -> ()\n"
    "  }\n"
    "}\n";

static ttpu_status compile(const char *text, const char *options, size_t option_bytes, PJRT_LoadedExecutable **out) {
  PJRT_Program program = {.struct_size = sizeof program,
                          .code = (char *)text,
                          .code_size = strlen(text),
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args args = ARGS(Client_Compile, .client = client, .program = &program,
                                       .compile_options = options, .compile_options_size = option_bytes);
  BASE_TRY(CALL(Client_Compile, &args));
  *out = args.executable;
  return TTPU_OK;
}

static void free_loaded(PJRT_LoadedExecutable *e) {
  PJRT_LoadedExecutable_Destroy_Args destroy = ARGS(LoadedExecutable_Destroy, .executable = e);
  CHECK_OK(CALL(LoadedExecutable_Destroy, &destroy));
}

static const float numbers[4] = {1, 2, 3, 4};
static const int64_t four = 4;
static PJRT_Buffer *upload_numbers(PJRT_Device *d) {
  PJRT_Buffer *b = NULL;
  CHECK_OK(upload(d, NULL, 11, 1, &four, NULL, numbers, 0, &b));
  return b;
}

static void check_numbers(PJRT_Buffer *b, float factor) {
  float got[4];
  if (!CHECK_OK(download(b, NULL, got, sizeof got))) return;
  for (int i = 0; i < 4; ++i) CHECK_EQ(got[i], factor * numbers[i]);
}

TEST(strides_and_layouts) {
  if (!open_client("v5e:1x1")) return;
  int32_t data[2][3] = {{1, 2, 3}, {4, 5, 6}}, got[6];
  int64_t transposed[2] = {3, 2}, strides[2] = {4, 12};
  PJRT_Buffer *b;
  REQUIRE_OK(upload(devices[0], NULL, 4, 2, transposed, strides, data, 0, &b));
  REQUIRE_OK(download(b, NULL, got, sizeof got));
  const int32_t want[6] = {1, 4, 2, 5, 3, 6};
  CHECK(memcmp(got, want, sizeof got) == 0);
  int64_t column_major[2] = {0, 1}; /* the first dimension is the fastest */
  PJRT_Buffer_MemoryLayout layout = {.struct_size = sizeof layout,
                                     .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
                                     .tiled = {.minor_to_major = column_major, .minor_to_major_size = 2}};
  REQUIRE_OK(download(b, &layout, got, sizeof got));
  CHECK(memcmp(got, data, sizeof got) == 0);
  int64_t repeated[2] = {1, 1};
  layout.tiled.minor_to_major = repeated;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "permutation", download(b, &layout, got, sizeof got));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "20 bytes", download(b, NULL, got, 20));
  free_buffer(b);

  int64_t six = 6, backwards = -4; /* the last element first */
  REQUIRE_OK(upload(devices[0], NULL, 4, 1, &six, &backwards, &data[1][2], 0, &b));
  REQUIRE_OK(download(b, NULL, got, sizeof got));
  for (int i = 0; i < 6; ++i) CHECK_EQ(got[i], 6 - i);
  PJRT_Buffer_CopyRawToHost_Args raw =
      ARGS(Buffer_CopyRawToHost, .buffer = b, .dst = got, .offset = 4, .transfer_size = 8);
  REQUIRE_OK(CALL(Buffer_CopyRawToHost, &raw));
  CHECK_OK(await_event(raw.event));
  CHECK(got[0] == 5 && got[1] == 4);
  raw.offset = 20;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "of a buffer of 24", CALL(Buffer_CopyRawToHost, &raw));
  free_buffer(b);

  CHECK_FAILS(TTPU_UNIMPLEMENTED, "element type 99", upload(devices[0], NULL, 99, 1, &six, NULL, data, 0, &b));
  int64_t negative = -1, huge[3] = {1ll << 40, 1ll << 40, 4}, wide[17];
  for (int i = 0; i < 17; ++i) wide[i] = 1;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "negative", upload(devices[0], NULL, 4, 1, &negative, NULL, data, 0, &b));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "2^63", upload(devices[0], NULL, 4, 3, huge, NULL, data, 0, &b));
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "rank 17", upload(devices[0], NULL, 4, 17, wide, NULL, data, 0, &b));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "neither a device nor a memory",
              upload(NULL, NULL, 4, 1, &six, NULL, data, 0, &b));
  close_client();
}

TEST(large_transfers_run_on_the_stream) {
  if (!open_client("v5e:1x1")) return;
  int64_t count = 1 << 20;
  float *data = malloc((size_t)count * 4), *got = malloc((size_t)count * 4);
  for (int64_t i = 0; i < count; ++i) data[i] = (float)i;
  for (int semantics = 0; semantics < 4; ++semantics) {
    PJRT_Client_BufferFromHostBuffer_Args from =
        ARGS(Client_BufferFromHostBuffer, .client = client, .data = data, .type = 11, .dims = &count, .num_dims = 1,
             .host_buffer_semantics = semantics, .device = devices[0]);
    REQUIRE_OK(CALL(Client_BufferFromHostBuffer, &from));
    PJRT_Buffer_ToHostBuffer_Args copy =
        ARGS(Buffer_ToHostBuffer, .src = from.buffer, .dst = got, .dst_size = (size_t)count * 4);
    REQUIRE_OK(CALL(Buffer_ToHostBuffer, &copy));
    free_buffer(from.buffer); /* both copies still pending */
    CHECK_OK(await_event(copy.event));
    PJRT_Event_IsReady_Args ready = ARGS(Event_IsReady, .event = from.done_with_host_buffer);
    CHECK_OK(CALL(Event_IsReady, &ready));
    CHECK(ready.is_ready); /* it came first */
    free_event(from.done_with_host_buffer);
    CHECK(memcmp(data, got, (size_t)count * 4) == 0);
    memset(got, 0, (size_t)count * 4);
  }
  free(data);
  free(got);
  close_client();
}

TEST(memories) {
  if (!open_client("v5e:1x2")) return;
  PJRT_Device_AddressableMemories_Args list = ARGS(Device_AddressableMemories, .device = devices[1]);
  REQUIRE_OK(CALL(Device_AddressableMemories, &list));
  REQUIRE(list.num_memories == 2);
  PJRT_Memory_Kind_Args kind = ARGS(Memory_Kind, .memory = list.memories[1]);
  CHECK_OK(CALL(Memory_Kind, &kind));
  CHECK(kind.kind_size == 11 && memcmp(kind.kind, "pinned_host", 11) == 0);
  CHECK(*(void **)list.memories[1] == NULL); /* the place of a function table */
  PJRT_Buffer *host, *device;
  REQUIRE_OK(upload(NULL, list.memories[1], 11, 1, &four, NULL, numbers, 2, &host));
  PJRT_Device_MemoryStats_Args stats = ARGS(Device_MemoryStats, .device = devices[1]);
  CHECK_OK(CALL(Device_MemoryStats, &stats));
  CHECK_EQ(stats.bytes_in_use, 0); /* not the device's memory */
  CHECK(stats.bytes_limit_is_set && stats.bytes_limit == 64 << 20);
  PJRT_Buffer_CopyToMemory_Args copy = ARGS(Buffer_CopyToMemory, .buffer = host, .dst_memory = list.memories[0]);
  REQUIRE_OK(CALL(Buffer_CopyToMemory, &copy));
  device = copy.dst_buffer;
  free_buffer(host);
  check_numbers(device, 1);
  CHECK_OK(CALL(Device_MemoryStats, &stats));
  CHECK_EQ(stats.bytes_in_use, 512);
  free_buffer(device);
  PJRT_Device_MemoryStats_Args old = {.struct_size = offsetof(PJRT_Device_MemoryStats_Args, peak_bytes_in_use) + 8,
                                      .device = devices[1],
                                      .bytes_limit = 77};
  CHECK_OK(CALL(Device_MemoryStats, &old));
  CHECK_EQ(old.bytes_limit, 77); /* a caller that knows less gets less */
  close_client();
}

TEST(older_and_broken_callers) {
  if (!open_client("v5e:1x1")) return;
  PJRT_Client_PlatformName_Args name = {.struct_size = 24, .client = client};
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "PJRT_Client_PlatformName: the argument struct has 24 bytes, at least 40",
              CALL(Client_PlatformName, &name));
  PJRT_Buffer_Bitcast_Args bitcast = ARGS(Buffer_Bitcast, .buffer = NULL);
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "PJRT_Buffer_Bitcast", CALL(Buffer_Bitcast, &bitcast));
  PJRT_LoadedExecutable *e;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "line", compile("module {", NULL, 0, &e));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "bytecode", compile("ML\xefR", NULL, 0, &e));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "CompileOptionsProto", compile(add_text, "\x1a\x7f\x20", 3, &e));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "do not fit on 1 devices", compile(add_text, "\x1a\x04\x20\x02\x28\x01", 6, &e));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "names device 5",
              compile(add_text, "\x1a\x0e\x20\x01\x28\x01\x4a\x08\x08\x01\x10\x01\x1a\x02\x08\x05", 16, &e));
  PJRT_Program program = {.struct_size = sizeof program, .code = "", .format = "hlo", .format_size = 3};
  PJRT_Client_Compile_Args args = ARGS(Client_Compile, .client = client, .program = &program);
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "\"hlo\"", CALL(Client_Compile, &args));
  PJRT_Client_LookupDevice_Args look = ARGS(Client_LookupDevice, .client = client, .id = 1);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no device 1", CALL(Client_LookupDevice, &look));
  close_client();
}

TEST(any_bytes_as_compile_options) {
  if (!open_client("v5e:1x1")) return;
  uint64_t seed = 1;
  int good = 0;
  for (int i = 0; i < 3000; ++i) { /* valid bytes with a few changed, and cut */
    char options[16] = "\x1a\x0e\x20\x01\x28\x01\x4a\x08\x08\x01\x10\x01\x1a\x02\x08";
    for (int k = (int)(check_random(&seed) % 4); k > 0; --k)
      options[check_random(&seed) % 16] = (char)check_random(&seed);
    size_t length = i % 2 ? 16 : check_random(&seed) % 17;
    char *copy = malloc(length + 1); /* of this very size, for AddressSanitizer */
    memcpy(copy, options, length);
    PJRT_LoadedExecutable *e;
    ttpu_status status = compile(add_text, copy, length, &e);
    if (status == TTPU_OK) free_loaded(e), ++good;
    else CHECK(status == TTPU_INVALID_ARGUMENT);
    free(copy);
  }
  CHECK(good > 100);
  close_client();
}

TEST(replicas_run_on_their_devices) {
  if (!open_client("v5e:2x2")) return;
  PJRT_LoadedExecutable *e; /* two replicas, on devices 3 and 1 */
  const char options[] = "\x1a\x10\x20\x02\x28\x01\x4a\x0a\x08\x02\x10\x01\x1a\x04\x08\x03\x08\x01";
  REQUIRE_OK(compile(add_text, options, sizeof options - 1, &e));
  PJRT_LoadedExecutable_AddressableDevices_Args list = ARGS(LoadedExecutable_AddressableDevices, .executable = e);
  REQUIRE_OK(CALL(LoadedExecutable_AddressableDevices, &list));
  REQUIRE(list.num_addressable_devices == 2);
  CHECK(list.addressable_devices[0] == devices[3] && list.addressable_devices[1] == devices[1]);
  PJRT_LoadedExecutable_GetDeviceAssignment_Args get = ARGS(LoadedExecutable_GetDeviceAssignment, .executable = e);
  REQUIRE_OK(CALL(LoadedExecutable_GetDeviceAssignment, &get));
  CHECK(get.serialized_bytes_size == 10 && memcmp(get.serialized_bytes, options + 8, 10) == 0);
  get.serialized_device_assignment_deleter(get.serialized_device_assignment);

  PJRT_Buffer *x3 = upload_numbers(devices[3]), *x1 = upload_numbers(devices[1]);
  PJRT_Buffer *in3[2] = {x3, x3}, *in1[2] = {x1, x1}, *out3[2], *out1[2];
  PJRT_Buffer *const *in[2] = {in3, in1};
  PJRT_Buffer **out[2] = {out3, out1};
  PJRT_Event *events[2];
  PJRT_ExecuteOptions execute_options = {.struct_size = sizeof execute_options};
  PJRT_LoadedExecutable_Execute_Args run =
      ARGS(LoadedExecutable_Execute, .executable = e, .options = &execute_options, .argument_lists = in,
           .num_devices = 2, .num_args = 2, .output_lists = out, .device_complete_events = events);
  REQUIRE_OK(CALL(LoadedExecutable_Execute, &run));
  for (int i = 0; i < 2; ++i) CHECK_OK(await_event(events[i]));
  for (int i = 0; i < 2; ++i) {
    check_numbers(out[i][0], 2);
    check_numbers(out[i][1], -1);
    PJRT_Buffer_Device_Args where = ARGS(Buffer_Device, .buffer = out[i][0]);
    CHECK_OK(CALL(Buffer_Device, &where));
    CHECK(where.device == list.addressable_devices[i]);
    for (int k = 0; k < 2; ++k) free_buffer(out[i][k]);
  }
  in1[1] = x3; /* one bad argument: nothing runs */
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "argument 1 is on TPU_3", CALL(LoadedExecutable_Execute, &run));
  run.num_devices = 1;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "runs on 2 devices", CALL(LoadedExecutable_Execute, &run));
  free_buffer(x1);
  free_buffer(x3);
  PJRT_LoadedExecutable_Delete_Args delete = ARGS(LoadedExecutable_Delete, .executable = e);
  CHECK_OK(CALL(LoadedExecutable_Delete, &delete));
  run.num_devices = 2;
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "the executable was deleted", CALL(LoadedExecutable_Execute, &run));
  free_loaded(e);
  close_client();
}

typedef struct seen_error {
  int calls;
  ttpu_status status;
  PJRT_Event *event;
} seen_error;

static void see(PJRT_Error *error, void *user_arg) {
  seen_error *s = user_arg;
  s->calls++;
  s->status = status_of(error);
  if (s->event) free_event(s->event); /* as jaxlib does */
}

TEST(events) {
  api = GetPjrtApi();
  PJRT_Event_Create_Args create = ARGS(Event_Create, .event = NULL);
  REQUIRE_OK(CALL(Event_Create, &create));
  PJRT_Event_Error_Args error = ARGS(Event_Error, .event = create.event);
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "not ready", CALL(Event_Error, &error));
  seen_error first = {0}, last = {.event = create.event};
  PJRT_Event_OnReady_Args on_ready = ARGS(Event_OnReady, .event = create.event, .callback = see, .user_arg = &first);
  CHECK_OK(CALL(Event_OnReady, &on_ready));
  PJRT_Event_Set_Args set = ARGS(Event_Set, .event = create.event, .error_code = TTPU_ABORTED,
                                 .error_message = "enough", .error_message_size = 6);
  CHECK_OK(CALL(Event_Set, &set));
  CHECK(first.calls == 1 && first.status == TTPU_ABORTED);
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "set before", CALL(Event_Set, &set));
  CHECK_FAILS(TTPU_ABORTED, "enough", CALL(Event_Error, &error));
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = create.event);
  CHECK_FAILS(TTPU_ABORTED, "enough", CALL(Event_Await, &await));
  on_ready.user_arg = &last;
  CHECK_OK(CALL(Event_OnReady, &on_ready));
  CHECK(last.calls == 1);
}

TEST(special_buffers) {
  if (!open_client("v5e:1x1")) return;
  PJRT_Device_DefaultMemory_Args memory = ARGS(Device_DefaultMemory, .device = devices[0]);
  REQUIRE_OK(CALL(Device_DefaultMemory, &memory));
  PJRT_Client_CreateErrorBuffer_Args failed =
      ARGS(Client_CreateErrorBuffer, .client = client, .error_code = TTPU_DATA_LOSS, .error_message = "gone",
           .error_message_size = 4, .shape_dims = &four, .shape_num_dims = 1, .shape_element_type = 11,
           .memory = memory.memory);
  REQUIRE_OK(CALL(Client_CreateErrorBuffer, &failed));
  float got[4];
  CHECK_FAILS(TTPU_DATA_LOSS, "gone", download(failed.buffer, NULL, got, sizeof got));
  PJRT_LoadedExecutable *e;
  REQUIRE_OK(compile(add_text, NULL, 0, &e));
  PJRT_Buffer *x = upload_numbers(devices[0]), *in_list[2] = {x, failed.buffer}, *out_list[2];
  PJRT_Buffer *const *in = in_list;
  PJRT_Buffer **out = out_list;
  PJRT_LoadedExecutable_Execute_Args run = ARGS(LoadedExecutable_Execute, .executable = e, .argument_lists = &in,
                                                .num_devices = 1, .num_args = 2, .output_lists = &out);
  REQUIRE_OK(CALL(LoadedExecutable_Execute, &run));
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(TTPU_DATA_LOSS, "gone", download(out_list[i], NULL, got, sizeof got));
    free_buffer(out_list[i]);
  }
  free_buffer(failed.buffer);

  float mine[4] = {1, 2, 3, 4}; /* memory of our own, as an argument */
  PJRT_Client_CreateViewOfDeviceBuffer_Args view =
      ARGS(Client_CreateViewOfDeviceBuffer, .client = client, .device_buffer_ptr = mine, .dims = &four, .num_dims = 1,
           .element_type = 11, .device = devices[0]);
  REQUIRE_OK(CALL(Client_CreateViewOfDeviceBuffer, &view));
  in_list[1] = view.buffer;
  REQUIRE_OK(CALL(LoadedExecutable_Execute, &run));
  check_numbers(out_list[0], 2);
  for (int i = 0; i < 2; ++i) free_buffer(out_list[i]);
  free_buffer(view.buffer);

  PJRT_Buffer_IncreaseExternalReferenceCount_Args more = ARGS(Buffer_IncreaseExternalReferenceCount, .buffer = x);
  PJRT_Buffer_DecreaseExternalReferenceCount_Args less = ARGS(Buffer_DecreaseExternalReferenceCount, .buffer = x);
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "no external reference", CALL(Buffer_DecreaseExternalReferenceCount, &less));
  CHECK_OK(CALL(Buffer_IncreaseExternalReferenceCount, &more));
  PJRT_Buffer_UnsafePointer_Args pointer = ARGS(Buffer_UnsafePointer, .buffer = x);
  CHECK_OK(CALL(Buffer_UnsafePointer, &pointer));
  PJRT_Buffer_Delete_Args delete = ARGS(Buffer_Delete, .buffer = x);
  CHECK_OK(CALL(Buffer_Delete, &delete));
  CHECK_EQ(((float *)pointer.buffer_pointer)[3], 4); /* held by the external reference */
  CHECK_OK(CALL(Buffer_DecreaseExternalReferenceCount, &less));
  PJRT_Buffer_IsDeleted_Args deleted = ARGS(Buffer_IsDeleted, .buffer = x);
  CHECK_OK(CALL(Buffer_IsDeleted, &deleted));
  CHECK(deleted.is_deleted);
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "deleted", download(x, NULL, got, sizeof got));
  free_buffer(x);
  free_loaded(e);
  PJRT_Device_MemoryStats_Args stats = ARGS(Device_MemoryStats, .device = devices[0]);
  CHECK_OK(CALL(Device_MemoryStats, &stats));
  CHECK_EQ(stats.bytes_in_use, 0);
  close_client();
}

TEST(compiled_for_a_topology) {
  if (!open_client("v5e:2x1")) return;
  PJRT_TopologyDescription_Create_Args create =
      ARGS(TopologyDescription_Create, .topology_name = "v5e:2x1", .topology_name_size = 7);
  REQUIRE_OK(CALL(TopologyDescription_Create, &create));
  PJRT_Program program = {.struct_size = sizeof program,
                          .code = (char *)add_text,
                          .code_size = strlen(add_text),
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Compile_Args compile_for =
      ARGS(Compile, .topology = create.topology, .program = &program,
           .compile_options = "\x1a\x06\x08\x01\x20\x01\x28\x01", .compile_options_size = 8);
  REQUIRE_OK(CALL(Compile, &compile_for));
  PJRT_Client_Load_Args load = ARGS(Client_Load, .client = client, .executable = compile_for.executable);
  REQUIRE_OK(CALL(Client_Load, &load));
  PJRT_LoadedExecutable_AddressableDevices_Args list =
      ARGS(LoadedExecutable_AddressableDevices, .executable = load.loaded_executable);
  CHECK_OK(CALL(LoadedExecutable_AddressableDevices, &list));
  CHECK(list.addressable_devices[0] == devices[1]); /* device_ordinal 1 */
  PJRT_Executable_OutputDimensions_Args dims = ARGS(Executable_OutputDimensions, .executable = compile_for.executable);
  CHECK_OK(CALL(Executable_OutputDimensions, &dims));
  CHECK(dims.num_outputs == 2 && dims.dims[1] == 4 && dims.dim_sizes[1] == 1);
  PJRT_Program text = {.struct_size = sizeof text};
  PJRT_Executable_OptimizedProgram_Args optimized =
      ARGS(Executable_OptimizedProgram, .executable = compile_for.executable, .program = &text);
  CHECK_OK(CALL(Executable_OptimizedProgram, &optimized));
  text.code = calloc(text.code_size + 1, 1);
  CHECK_OK(CALL(Executable_OptimizedProgram, &optimized));
  CHECK_HAS(text.code, "stablehlo.negate");
  free(text.code);
  PJRT_Executable_GetCompiledMemoryStats_Args stats =
      ARGS(Executable_GetCompiledMemoryStats, .executable = compile_for.executable);
  CHECK_OK(CALL(Executable_GetCompiledMemoryStats, &stats));
  CHECK_EQ(stats.argument_size_in_bytes, 32);
  CHECK_EQ(stats.output_size_in_bytes, 32);
  free_loaded(load.loaded_executable);
  PJRT_Executable_Destroy_Args destroy = ARGS(Executable_Destroy, .executable = compile_for.executable);
  CHECK_OK(CALL(Executable_Destroy, &destroy));
  PJRT_TopologyDescription_Destroy_Args done = ARGS(TopologyDescription_Destroy, .topology = create.topology);
  CHECK_OK(CALL(TopologyDescription_Destroy, &done));
  close_client();
}

/* Everything once, for the injection of failed allocations: no leak, no crash, the right code. */
static ttpu_status use_everything(void *context) {
  (void)context;
  PJRT_LoadedExecutable *e = NULL;
  PJRT_Buffer *x = NULL, *copy = NULL, *out_list[2] = {NULL, NULL};
  PJRT_Buffer **out = out_list;
  float got[4];
  PJRT_Client_Create_Args create = ARGS(Client_Create, .num_options = 0);
  BASE_TRY(CALL(Client_Create, &create));
  client = create.client;
  PJRT_Client_AddressableDevices_Args list = ARGS(Client_AddressableDevices, .client = client);
  ttpu_status status = CALL(Client_AddressableDevices, &list);
  PJRT_Device_AddressableMemories_Args memories =
      ARGS(Device_AddressableMemories, .device = list.addressable_devices[0]);
  if (status == TTPU_OK) status = CALL(Device_AddressableMemories, &memories);
  if (status == TTPU_OK) status = compile(add_text, "\x1a\x04\x20\x01\x28\x01", 6, &e);
  if (status == TTPU_OK) status = upload(list.addressable_devices[0], NULL, 11, 1, &four, NULL, numbers, 0, &x);
  if (status == TTPU_OK) {
    PJRT_Buffer *in_list[2] = {x, x};
    PJRT_Buffer *const *in = in_list;
    PJRT_LoadedExecutable_Execute_Args run = ARGS(LoadedExecutable_Execute, .executable = e, .argument_lists = &in,
                                                  .num_devices = 1, .num_args = 2, .output_lists = &out);
    status = CALL(LoadedExecutable_Execute, &run);
  }
  if (status == TTPU_OK) status = download(out_list[0], NULL, got, sizeof got);
  if (status == TTPU_OK) {
    PJRT_Buffer_CopyToMemory_Args to =
        ARGS(Buffer_CopyToMemory, .buffer = out_list[0], .dst_memory = memories.memories[1]);
    status = CALL(Buffer_CopyToMemory, &to);
    if (status == TTPU_OK) copy = to.dst_buffer;
  }
  if (status == TTPU_OK) status = download(copy, NULL, got, sizeof got);
  free_buffer(copy);
  free_buffer(x);
  for (int i = 0; i < 2; ++i) free_buffer(out_list[i]);
  free_loaded(e);
  close_client();
  return status;
}

TEST(survives_without_memory) {
  api = GetPjrtApi();
  CHECK(check_out_of_memory(use_everything, NULL) > 30);
}
