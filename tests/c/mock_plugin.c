/* A plugin for tests of the client: see mock_plugin.h. */
#include "mock_plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_DEVICES = 8, MOST_RANK = 8, MOST_OUTPUTS = 64 };

static mock_config config;
static atomic_long live;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

struct PJRT_Error {
  int code;
  const char *message;
  size_t size;
};
struct PJRT_Event {
  bool ready;
  bool failed; /* with the configured failure */
  int refs;    /* the holder's, and one a callback */
  PJRT_Event_OnReadyCallback callbacks[8];
  void *contexts[8];
  int callback_count;
  PJRT_Event *next; /* among those that are not ready */
  void *copy_to;    /* to be written when it becomes ready */
  void *copy_from;
  size_t copy_bytes;
};
struct PJRT_Device {
  int id;
};
struct PJRT_Client {
  PJRT_Device devices[MOST_DEVICES];
  PJRT_Device *pointers[MOST_DEVICES];
};
struct PJRT_Buffer {
  int type;
  size_t rank, bytes;
  int64_t dims[MOST_RANK];
  PJRT_Device *device;
  bool failed;
  uint8_t *data;
};
typedef struct output_type {
  int type;
  size_t rank, bytes;
  int64_t dims[MOST_RANK];
} output_type;
struct PJRT_LoadedExecutable {
  size_t count;
  output_type outputs[MOST_OUTPUTS];
};
struct PJRT_Executable {
  PJRT_LoadedExecutable *loaded; /* borrowed */
};

static PJRT_Event *waiting; /* events that are not ready */

/* ---- controls ------------------------------------------------------------------------------------------------------------ */

EXPORT mock_config *mock_get_config(void) { return &config; }
EXPORT int64_t mock_live(void) { return live; }
EXPORT void mock_reset(void) {
  memset(&config, 0, sizeof config);
  config.minor = 81;
  config.devices = 1;
}

static void *make(size_t bytes) {
  ++live;
  return calloc(1, bytes);
}

static void unmake(void *object) {
  --live;
  free(object);
}

static PJRT_Error *error_new(int code, const char *message, size_t size) {
  PJRT_Error *e = make(sizeof *e);
  *e = (PJRT_Error){code, message, size};
  return e;
}

static PJRT_Error *configured_error(void) {
  const char *message = config.message;
  return error_new(config.code, message, config.message_size || !message ? config.message_size : strlen(message));
}

/* What every function begins with: its failure, if it is this one's turn. */
static PJRT_Error *begin(const char *function, size_t struct_size, size_t known_size) {
  if (struct_size < known_size) return error_new(3, "struct too small", 16);
  if (config.grown && strcmp(config.grown, function) == 0)
    return error_new(3, "Unexpected args size: expected more. Check installed software versions.", 70);
  if (!config.fails || strcmp(config.fails, function) != 0 || --config.fails_at != 0) return NULL;
  return configured_error();
}
#define BEGIN(name, last_known)                                                                               \
  do {                                                                                                        \
    PJRT_Error *begin_error =                                                                                 \
        begin(#name, args->struct_size, offsetof(PJRT_##name##_Args, last_known) + sizeof(args->last_known)); \
    if (begin_error) return begin_error;                                                                      \
  } while (0)

/* ---- errors and events ------------------------------------------------------------------------------------------------------ */

static void mock_Error_Destroy(PJRT_Error_Destroy_Args *args) { unmake(args->error); }

static void mock_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->message;
  args->message_size = args->error->size;
}

static PJRT_Error *mock_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  if (config.error_without_code) return error_new(13, "no code", 7);
  args->code = args->error->code;
  return NULL;
}

static PJRT_Event *event_new(bool failed) {
  PJRT_Event *e = make(sizeof *e);
  e->ready = !config.late;
  e->failed = failed;
  e->refs = 1;
  if (e->ready) return e;
  pthread_mutex_lock(&lock);
  e->next = waiting;
  waiting = e;
  ++e->refs;
  pthread_mutex_unlock(&lock);
  return e;
}

static void event_drop(PJRT_Event *e) {
  pthread_mutex_lock(&lock);
  bool last = --e->refs == 0;
  pthread_mutex_unlock(&lock);
  if (last) unmake(e);
}

static PJRT_Error *event_error(const PJRT_Event *e) { return e->failed ? configured_error() : NULL; }

EXPORT void mock_release(void) {
  pthread_mutex_lock(&lock);
  PJRT_Event *list = waiting;
  waiting = NULL;
  for (PJRT_Event *e = list; e; e = e->next) {
    if (e->copy_to && !e->failed) memcpy(e->copy_to, e->copy_from, e->copy_bytes);
    e->ready = true;
  }
  pthread_cond_broadcast(&released);
  pthread_mutex_unlock(&lock);
  while (list) {
    PJRT_Event *e = list;
    list = e->next;
    for (int i = 0; i < e->callback_count; ++i) e->callbacks[i](event_error(e), e->contexts[i]);
    free(e->copy_from);
    event_drop(e);
  }
}

static PJRT_Error *mock_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  BEGIN(Event_Destroy, event);
  event_drop(args->event);
  return NULL;
}

static PJRT_Error *mock_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  BEGIN(Event_IsReady, is_ready);
  pthread_mutex_lock(&lock);
  args->is_ready = args->event->ready;
  pthread_mutex_unlock(&lock);
  return NULL;
}

static PJRT_Error *mock_Event_Await(PJRT_Event_Await_Args *args) {
  BEGIN(Event_Await, event);
  pthread_mutex_lock(&lock);
  while (!args->event->ready) pthread_cond_wait(&released, &lock);
  pthread_mutex_unlock(&lock);
  return event_error(args->event);
}

static PJRT_Error *mock_Event_OnReady(PJRT_Event_OnReady_Args *args) {
  BEGIN(Event_OnReady, user_arg);
  PJRT_Event *e = args->event;
  pthread_mutex_lock(&lock);
  bool later = !e->ready;
  if (later) {
    e->callbacks[e->callback_count] = args->callback;
    e->contexts[e->callback_count++] = args->user_arg;
  }
  pthread_mutex_unlock(&lock);
  if (!later) args->callback(event_error(e), args->user_arg);
  return NULL;
}

/* ---- clients and devices ------------------------------------------------------------------------------------------------------ */

static PJRT_Error *mock_Client_Create(PJRT_Client_Create_Args *args) {
  BEGIN(Client_Create, client);
  PJRT_Client *c = make(sizeof *c);
  for (int i = 0; i < MOST_DEVICES; ++i) {
    c->devices[i].id = i;
    c->pointers[i] = &c->devices[i];
  }
  args->client = c;
  return NULL;
}

static PJRT_Error *mock_Client_Destroy(PJRT_Client_Destroy_Args *args) {
  BEGIN(Client_Destroy, client);
  unmake(args->client);
  return NULL;
}

static PJRT_Error *mock_Client_PlatformName(PJRT_Client_PlatformName_Args *args) {
  BEGIN(Client_PlatformName, platform_name_size);
  args->platform_name = "mock, and no more of this";
  args->platform_name_size = 4;
  return NULL;
}

static PJRT_Error *mock_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args) {
  BEGIN(Client_PlatformVersion, platform_version_size);
  args->platform_version = "\"0.1\"";
  args->platform_version_size = 5;
  return NULL;
}

static PJRT_Error *mock_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args) {
  BEGIN(Client_AddressableDevices, num_addressable_devices);
  args->addressable_devices = args->client->pointers;
  args->num_addressable_devices = config.devices;
  return NULL;
}

static PJRT_Error *mock_Device_GetDescription(PJRT_Device_GetDescription_Args *args) {
  BEGIN(Device_GetDescription, device_description);
  args->device_description = (PJRT_DeviceDescription *)args->device;
  return NULL;
}

static PJRT_Error *mock_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args) {
  BEGIN(DeviceDescription_Id, id);
  args->id = ((PJRT_Device *)args->device_description)->id;
  return NULL;
}

static PJRT_Error *mock_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args) {
  BEGIN(DeviceDescription_ProcessIndex, process_index);
  args->process_index = 0;
  return NULL;
}

static PJRT_Error *mock_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args) {
  BEGIN(DeviceDescription_Kind, device_kind_size);
  args->device_kind = "mock device";
  args->device_kind_size = strlen(args->device_kind);
  return NULL;
}

/* ---- buffers ---------------------------------------------------------------------------------------------------------------------- */

static size_t bytes_of(int type) {
  static const struct {
    const char *name;
    int type, bytes;
  } types[] = {
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) {hlo, pjrt, bytes},
#include "base/dtypes.def"
#undef DTYPE
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i)
    if (types[i].type == type) return (size_t)types[i].bytes;
  return 1;
}

static PJRT_Buffer *buffer_new(int type, size_t rank, const int64_t *dims, PJRT_Device *device) {
  PJRT_Buffer *b = make(sizeof *b);
  b->type = type;
  b->rank = rank;
  b->device = device;
  b->bytes = bytes_of(type);
  for (size_t i = 0; i < rank && i < MOST_RANK; ++i) b->bytes *= (size_t)(b->dims[i] = dims[i]);
  b->data = calloc(1, b->bytes + 1);
  return b;
}

static PJRT_Error *mock_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  BEGIN(Client_BufferFromHostBuffer, buffer);
  if (args->type == config.lacking_type) return error_new(12, "this type is not for this device", 32);
  args->buffer = buffer_new(args->type, args->num_dims, args->dims, args->device);
  memcpy(args->buffer->data, args->data, args->buffer->bytes);
  args->done_with_host_buffer = event_new(false);
  return NULL;
}

static PJRT_Error *mock_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  BEGIN(Buffer_Destroy, buffer);
  free(args->buffer->data);
  unmake(args->buffer);
  return NULL;
}

static PJRT_Error *mock_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args) {
  BEGIN(Buffer_Dimensions, num_dims);
  args->dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

static PJRT_Error *mock_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  BEGIN(Buffer_ReadyEvent, event);
  args->event = event_new(args->buffer->failed);
  return NULL;
}

static PJRT_Error *mock_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args) {
  BEGIN(Buffer_GetMemoryLayout, layout);
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.minor_to_major = config.own_layout;
  args->layout.tiled.minor_to_major_size = args->buffer->rank;
  return NULL;
}

/* A late copy takes the bytes aside, so that the buffer may go before. */
static PJRT_Error *mock_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  BEGIN(Buffer_ToHostBuffer, event);
  if (config.own_layout && args->host_layout) return error_new(12, "no layouts here", 15);
  if (args->dst_size < args->src->bytes) return error_new(3, "destination too small", 21);
  args->event = event_new(args->src->failed);
  if (args->event->ready) {
    memcpy(args->dst, args->src->data, args->src->bytes);
  } else {
    args->event->copy_to = args->dst;
    args->event->copy_from = malloc(args->src->bytes + 1);
    args->event->copy_bytes = args->src->bytes;
    memcpy(args->event->copy_from, args->src->data, args->src->bytes);
  }
  return NULL;
}

/* ---- programs ----------------------------------------------------------------------------------------------------------------------- */

static int type_from_name(const char *name, size_t length) {
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) \
  if (strlen(hlo) == length && strncmp(name, hlo, length) == 0) return pjrt;
#include "base/dtypes.def"
#undef DTYPE
  return -1;
}

/* Reads "tensor<2x3xf32>"; moves past it. */
static bool read_type(const char **at, output_type *t) {
  const char *p = strstr(*at, "tensor<");
  if (!p) return false;
  p += strlen("tensor<");
  t->rank = 0;
  while (*p >= '0' && *p <= '9') {
    char *end;
    t->dims[t->rank++] = strtoll(p, &end, 10);
    p = end + 1; /* the x */
  }
  size_t length = strcspn(p, ">");
  t->type = type_from_name(p, length);
  *at = p + length + 1;
  return t->type >= 0;
}

static PJRT_Error *mock_Client_Compile(PJRT_Client_Compile_Args *args) {
  BEGIN(Client_Compile, executable);
  const PJRT_Program *p = args->program;
  if (p->format_size != 4 || memcmp(p->format, "mlir", 4) != 0) return error_new(12, "not mlir", 8);
  if (args->compile_options_size == 0) return error_new(3, "no compile options", 18);
  char *text = calloc(1, p->code_size + 1);
  memcpy(text, p->code, p->code_size);
  snprintf(config.program, sizeof config.program, "%s", text);
  PJRT_Error *error = NULL;
  if (strstr(text, "?x") || strstr(text, "<?") || strstr(text, "bounds"))
    error = error_new(12, "static shapes only", 18);
  if (strstr(text, "stablehlo.composite") || strstr(text, "ttpu.")) error = error_new(12, "what is this composite", 22);
  const char *at = strstr(text, "-> ("), *end = at ? strchr(at, '{') : NULL;
  if (!end) error = error_new(3, "no results", 10);
  if (!error) {
    PJRT_LoadedExecutable *e = make(sizeof *e);
    for (output_type t; e->count < MOST_OUTPUTS && read_type(&at, &t) && at < end;) e->outputs[e->count++] = t;
    args->executable = e;
  }
  free(text);
  return error;
}

static PJRT_Error *mock_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  BEGIN(LoadedExecutable_Destroy, executable);
  unmake(args->executable);
  return NULL;
}

static PJRT_Error *mock_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args) {
  BEGIN(LoadedExecutable_GetExecutable, executable);
  args->executable = make(sizeof *args->executable);
  args->executable->loaded = args->loaded_executable;
  return NULL;
}

static PJRT_Error *mock_Executable_Destroy(PJRT_Executable_Destroy_Args *args) {
  BEGIN(Executable_Destroy, executable);
  unmake(args->executable);
  return NULL;
}

static void delete_serialized(PJRT_SerializedExecutable *bytes) { unmake(bytes); }

static PJRT_Error *mock_Executable_Serialize(PJRT_Executable_Serialize_Args *args) {
  BEGIN(Executable_Serialize, serialized_executable_deleter);
  PJRT_LoadedExecutable *copy = make(sizeof *copy);
  *copy = *args->executable->loaded;
  args->serialized_bytes = (const char *)copy;
  args->serialized_bytes_size = sizeof *copy;
  args->serialized_executable = (PJRT_SerializedExecutable *)copy;
  args->serialized_executable_deleter = delete_serialized;
  return NULL;
}

static PJRT_Error *mock_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args) {
  BEGIN(Executable_DeserializeAndLoad, loaded_executable);
  if (args->serialized_executable_size != sizeof(PJRT_LoadedExecutable)) return error_new(3, "not mine", 8);
  args->loaded_executable = make(sizeof *args->loaded_executable);
  memcpy(args->loaded_executable, args->serialized_executable, sizeof *args->loaded_executable);
  return NULL;
}

static void fill_words(PJRT_Buffer *b) {
  size_t bytes = config.word_count * sizeof *config.words;
  if (config.words && bytes_of(b->type) == sizeof(int64_t))
    memcpy(b->data, config.words, bytes < b->bytes ? bytes : b->bytes);
}

static PJRT_Error *mock_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  bool failed = false;
  if (!config.late_failure) BEGIN(LoadedExecutable_Execute, device_complete_events);
  else if (config.fails && strcmp(config.fails, "LoadedExecutable_Execute") == 0) failed = --config.fails_at == 0;
  PJRT_LoadedExecutable *e = args->executable;
  config.donated = (uint32_t)(args->num_args - args->options->num_non_donatable_input_indices);
  for (size_t i = 0; i < e->count; ++i) {
    PJRT_Buffer *b = buffer_new(e->outputs[i].type, e->outputs[i].rank, e->outputs[i].dims, NULL);
    b->failed = failed;
    fill_words(b);
    args->output_lists[0][i] = b;
  }
  if (args->device_complete_events) args->device_complete_events[0] = event_new(failed);
  return NULL;
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  size_t offset;
} functions[] = {
#define FUNCTION(name) {#name, offsetof(PJRT_Api, name)},
#define VOID_FUNCTION(name) FUNCTION(name)
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION
};

static bool is_named(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  return false;
}

EXPORT const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  api = (PJRT_Api){
      .struct_size = config.table_bytes ? config.table_bytes : sizeof api,
      .pjrt_api_version = {sizeof api.pjrt_api_version, NULL, config.major, config.minor},
#define HAVE(name) .name = mock_##name
      HAVE(Error_Destroy),
      HAVE(Error_Message),
      HAVE(Error_GetCode),
      HAVE(Event_Destroy),
      HAVE(Event_IsReady),
      HAVE(Event_Await),
      HAVE(Event_OnReady),
      HAVE(Client_Create),
      HAVE(Client_Destroy),
      HAVE(Client_PlatformName),
      HAVE(Client_PlatformVersion),
      HAVE(Client_AddressableDevices),
      HAVE(Client_Compile),
      HAVE(Client_BufferFromHostBuffer),
      HAVE(Device_GetDescription),
      HAVE(DeviceDescription_Id),
      HAVE(DeviceDescription_ProcessIndex),
      HAVE(DeviceDescription_Kind),
      HAVE(LoadedExecutable_Destroy),
      HAVE(LoadedExecutable_GetExecutable),
      HAVE(LoadedExecutable_Execute),
      HAVE(Executable_Destroy),
      HAVE(Executable_Serialize),
      HAVE(Executable_DeserializeAndLoad),
      HAVE(Buffer_Destroy),
      HAVE(Buffer_Dimensions),
      HAVE(Buffer_GetMemoryLayout),
      HAVE(Buffer_ToHostBuffer),
      HAVE(Buffer_ReadyEvent),
#undef HAVE
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
    if (is_named(config.missing, functions[i].name)) memset((char *)&api + functions[i].offset, 0, sizeof(void *));
  return &api;
}
