/* Loading a plugin; clients and devices. */
#include <dlfcn.h>
#include <stdlib.h>

#include "pjrt/ahead.h"
#include "pjrt/pjrt_int.h"

enum { OLDEST_MINOR = 29, MAX_OPTIONS = 32 };

/* What we cannot do without. All of them are older than OLDEST_MINOR. */
/* clang-format off */
#define REQUIRED(X)                                                                               \
  X(Error_Destroy) X(Error_Message) X(Error_GetCode)                                              \
  X(Event_Destroy) X(Event_IsReady) X(Event_Await) X(Event_OnReady)                               \
  X(Client_Create) X(Client_Destroy) X(Client_PlatformName) X(Client_PlatformVersion)             \
  X(Client_AddressableDevices) X(Client_Compile) X(Client_BufferFromHostBuffer)                   \
  X(Device_GetDescription)                                                                        \
  X(DeviceDescription_Id) X(DeviceDescription_ProcessIndex) X(DeviceDescription_Kind)             \
  X(LoadedExecutable_Destroy) X(LoadedExecutable_GetExecutable) X(LoadedExecutable_Execute)       \
  X(Executable_Destroy) X(Executable_NumOutputs)                                                  \
  X(Buffer_Destroy) X(Buffer_ToHostBuffer) X(Buffer_ReadyEvent)
/* clang-format on */

/* ---- errors and events ------------------------------------------------------------------------------------- */

ttpu_status pjrt_status(const PJRT_Api *api, PJRT_Error *error) {
  if (!error) return TTPU_OK;
  PJRT_Error_GetCode_Args code = ARGS(Error_GetCode, .error = error);
  PJRT_Error *second = api->Error_GetCode(&code);
  if (second) code.code = TTPU_UNKNOWN;
  if (code.code <= TTPU_OK || code.code > TTPU_UNAUTHENTICATED) code.code = TTPU_UNKNOWN;
  PJRT_Error_Message_Args message = ARGS(Error_Message, .error = error);
  api->Error_Message(&message);
  size_t length = message.message_size < 1900 ? message.message_size : 1900; /* base_fail cuts there as well */
  ttpu_status status = base_fail((ttpu_status)code.code, "%.*s", (int)length, message.message ? message.message : "");
  PJRT_Error *errors[2] = {error, second};
  for (int i = 0; i < 2; ++i) {
    PJRT_Error_Destroy_Args destroy = ARGS(Error_Destroy, .error = errors[i]);
    if (errors[i]) api->Error_Destroy(&destroy);
  }
  return status;
}

ttpu_status pjrt_missing(const pjrt_client *c, const char *function) {
  return base_fail(TTPU_UNIMPLEMENTED, "the plugin %s (PJRT %d.%d) has no PJRT_%s", c->path,
                   c->api->pjrt_api_version.major_version, c->api->pjrt_api_version.minor_version, function);
}

void pjrt_event_free(const pjrt_client *c, PJRT_Event *event) {
  if (!event) return;
  PJRT_Event_Destroy_Args destroy = ARGS(Event_Destroy, .event = event);
  PJRT_Error *error = c->api->Event_Destroy(&destroy);
  PJRT_Error_Destroy_Args destroy_error = ARGS(Error_Destroy, .error = error);
  if (error) c->api->Error_Destroy(&destroy_error); /* nothing follows from it */
}

ttpu_status pjrt_event_await(const pjrt_client *c, PJRT_Event *event) {
  if (!event) return TTPU_OK;
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = event);
  ttpu_status status = CALL(c, Event_Await, &await);
  pjrt_event_free(c, event);
  return status;
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

static ttpu_status check_api(const char *path, const PJRT_Api *api) {
  if (!api) return base_fail(TTPU_FAILED_PRECONDITION, "%s: GetPjrtApi gave no table", path);
  int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR || minor < OLDEST_MINOR)
    return base_fail(TTPU_FAILED_PRECONDITION, "%s speaks PJRT %d.%d; this build needs %d.%d or newer", path, major,
                     minor, PJRT_API_MAJOR, OLDEST_MINOR);
#define CHECK_FUNCTION(name)              \
  if (!PJRT_HAS(api, name) || !api->name) \
    return base_fail(TTPU_FAILED_PRECONDITION, "%s (PJRT %d.%d) lacks PJRT_" #name, path, major, minor);
  REQUIRED(CHECK_FUNCTION)
#undef CHECK_FUNCTION
  return TTPU_OK;
}

/* The library stays loaded: plugins have threads, and none supports being closed. */
ttpu_status pjrt_plugin_load(const char *path, const PJRT_Api **out) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return base_fail(TTPU_NOT_FOUND, "the PJRT plugin %s cannot be loaded: %s", path, dlerror());
  const PJRT_Api *(*get)(void);
  *(void **)&get = dlsym(library, "GetPjrtApi");
  if (!get) return base_fail(TTPU_FAILED_PRECONDITION, "%s is no PJRT plugin: it does not export GetPjrtApi", path);
  const PJRT_Api *api = get();
  BASE_TRY(check_api(path, api));
  PJRT_Plugin_Initialize_Args initialize = ARGS(Plugin_Initialize, .extension_start = NULL);
  if (PJRT_HAS(api, Plugin_Initialize) && api->Plugin_Initialize)
    BASE_TRY(pjrt_status(api, api->Plugin_Initialize(&initialize)));
  *out = api;
  return TTPU_OK;
}

static const PJRT_Ttpu_Extension *find_extension(const PJRT_Api *api) {
  for (const PJRT_Extension_Base *e = api->extension_start; e; e = e->next) {
    if (e->type != PJRT_Extension_Type_Ttpu || e->struct_size < sizeof(PJRT_Ttpu_Extension)) continue;
    const PJRT_Ttpu_Extension *ours = (const PJRT_Ttpu_Extension *)e;
    if (ours->ir_layout == pjrt_ttpu_ir_layout()) return ours;
    base_log(LOG_WARN, "the software TPU is of another build than this library; programs go to it as text");
  }
  return NULL;
}

/* ---- options: "name=value,name=value" -------------------------------------------------------------------------- */

static char *copy_text(const char *text, size_t length) {
  char *copy = base_alloc(length + 1);
  if (!copy) return NULL;
  if (length) memcpy(copy, text, length);
  copy[length] = 0;
  return copy;
}

/* An integer, a float, true or false, or a string, by its form. `text` ends with NUL and stays. */
static void set_option(PJRT_NamedValue *v, const char *text) {
  char *end;
  v->value_size = 1;
  v->int64_value = strtoll(text, &end, 10);
  v->type = PJRT_NamedValue_kInt64;
  if (*text && !*end) return;
  v->float_value = strtof(text, &end);
  v->type = PJRT_NamedValue_kFloat;
  if (*text && !*end) return;
  v->bool_value = strcmp(text, "true") == 0;
  v->type = PJRT_NamedValue_kBool;
  if (v->bool_value || strcmp(text, "false") == 0) return;
  v->type = PJRT_NamedValue_kString;
  v->string_value = text;
  v->value_size = strlen(text);
}

/* Cuts `text` in place; the values point into it. */
static ttpu_status parse_options(char *text, PJRT_NamedValue values[MAX_OPTIONS], size_t *count) {
  char *rest = text;
  *count = 0;
  while (rest && *rest) {
    char *item = rest, *comma = strchr(rest, ',');
    rest = comma ? comma + 1 : NULL;
    if (comma) *comma = 0;
    char *equal = strchr(item, '=');
    if (!equal || equal == item)
      return base_fail(TTPU_INVALID_ARGUMENT, "client option \"%s\": expected name=value,name=value", item);
    if (*count == MAX_OPTIONS) return base_fail(TTPU_INVALID_ARGUMENT, "more than %d client options", (int)MAX_OPTIONS);
    *equal = 0;
    PJRT_NamedValue *v = &values[(*count)++];
    *v = (PJRT_NamedValue){.struct_size = sizeof *v, .name = item, .name_size = strlen(item)};
    set_option(v, equal + 1);
  }
  return TTPU_OK;
}

/* ---- devices ------------------------------------------------------------------------------------------------------ */

static void read_attributes(pjrt_device_info *info, const PJRT_NamedValue *values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue *v = &values[i];
    if (v->type == PJRT_NamedValue_kInt64List && v->name_size == 6 && memcmp(v->name, "coords", 6) == 0)
      for (size_t k = 0; k < v->value_size && k < 3; ++k) info->coords[k] = v->int64_array_value[k];
    if (v->type == PJRT_NamedValue_kInt64 && v->name_size == 12 && memcmp(v->name, "core_on_chip", 12) == 0)
      info->core_on_chip = v->int64_value;
  }
}

static ttpu_status init_device(pjrt_client *c, pjrt_device *d, PJRT_Device *device) {
  d->client = c;
  d->device = device;
  PJRT_Device_GetDescription_Args get = ARGS(Device_GetDescription, .device = device);
  BASE_TRY(CALL(c, Device_GetDescription, &get));
  PJRT_DeviceDescription *description = get.device_description;
  PJRT_DeviceDescription_Id_Args id = ARGS(DeviceDescription_Id, .device_description = description);
  BASE_TRY(CALL(c, DeviceDescription_Id, &id));
  PJRT_DeviceDescription_ProcessIndex_Args process =
      ARGS(DeviceDescription_ProcessIndex, .device_description = description);
  BASE_TRY(CALL(c, DeviceDescription_ProcessIndex, &process));
  PJRT_DeviceDescription_Kind_Args kind = ARGS(DeviceDescription_Kind, .device_description = description);
  BASE_TRY(CALL(c, DeviceDescription_Kind, &kind));
  d->info.id = id.id;
  d->info.process_index = process.process_index;
  d->info.local_hardware_id = -1;
  d->info.kind = copy_text(kind.device_kind, kind.device_kind_size);
  if (!d->info.kind) return base_no_memory(kind.device_kind_size);

  /* The rest is optional: what the plugin cannot say stays 0 or -1. */
  PJRT_DeviceDescription_Attributes_Args attributes =
      ARGS(DeviceDescription_Attributes, .device_description = description);
  if (PLUGIN_HAS(c, DeviceDescription_Attributes) && CALL(c, DeviceDescription_Attributes, &attributes) == TTPU_OK)
    read_attributes(&d->info, attributes.attributes, attributes.num_attributes);
  PJRT_Device_LocalHardwareId_Args hardware = ARGS(Device_LocalHardwareId, .device = device);
  if (PLUGIN_HAS(c, Device_LocalHardwareId) && CALL(c, Device_LocalHardwareId, &hardware) == TTPU_OK)
    d->info.local_hardware_id = hardware.local_hardware_id;
  pjrt_memory_stats stats;
  if (pjrt_device_memory_stats(d, &stats) == TTPU_OK && stats.bytes_limit > 0) d->info.memory_limit = stats.bytes_limit;
  return TTPU_OK;
}

static ttpu_status init_devices(pjrt_client *c) {
  PJRT_Client_AddressableDevices_Args list = ARGS(Client_AddressableDevices, .client = c->client);
  BASE_TRY(CALL(c, Client_AddressableDevices, &list));
  if (!list.num_addressable_devices)
    return base_fail(TTPU_NOT_FOUND, "the plugin %s has no device in this process", c->path);
  c->devices = base_calloc(list.num_addressable_devices, sizeof *c->devices);
  if (!c->devices) return base_no_memory(list.num_addressable_devices * sizeof *c->devices);
  c->device_count = (uint32_t)list.num_addressable_devices;
  for (uint32_t i = 0; i < c->device_count; ++i) BASE_TRY(init_device(c, &c->devices[i], list.addressable_devices[i]));
  return TTPU_OK;
}

/* ---- clients ------------------------------------------------------------------------------------------------------- */

static ttpu_status create_client(pjrt_client *c, const char *options) {
  PJRT_NamedValue values[MAX_OPTIONS];
  size_t count = 0;
  char *text = copy_text(options ? options : "", options ? strlen(options) : 0);
  if (!text) return base_no_memory(strlen(options));
  ttpu_status status = parse_options(text, values, &count);
  if (status == TTPU_OK) {
    PJRT_Client_Create_Args create = ARGS(Client_Create, .create_options = values, .num_options = count);
    status = CALL(c, Client_Create, &create);
    c->client = create.client;
  }
  base_free(text);
  return status;
}

static ttpu_status read_names(pjrt_client *c) {
  PJRT_Client_PlatformName_Args name = ARGS(Client_PlatformName, .client = c->client);
  BASE_TRY(CALL(c, Client_PlatformName, &name));
  PJRT_Client_PlatformVersion_Args version = ARGS(Client_PlatformVersion, .client = c->client);
  BASE_TRY(CALL(c, Client_PlatformVersion, &version));
  c->platform = copy_text(name.platform_name, name.platform_name_size);
  c->platform_version = copy_text(version.platform_version, version.platform_version_size);
  if (!c->platform || !c->platform_version) return base_no_memory(version.platform_version_size);
  return TTPU_OK;
}

ttpu_status pjrt_client_new(const char *plugin_path, const char *options, pjrt_client **out) {
  pjrt_client *c = base_calloc(1, sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  c->path = copy_text(plugin_path, strlen(plugin_path));
  ttpu_status status = c->path ? pjrt_plugin_load(plugin_path, &c->api) : base_no_memory(strlen(plugin_path));
  if (status == TTPU_OK) {
    c->extension = find_extension(c->api);
    status = create_client(c, options);
  }
  if (status == TTPU_OK) status = read_names(c);
  if (status == TTPU_OK) status = init_devices(c);
  if (status == TTPU_OK) *out = c;
  else pjrt_client_free(c);
  return status;
}

void pjrt_client_free(pjrt_client *c) {
  if (!c) return;
  for (uint32_t i = 0; i < c->device_count; ++i) base_free((void *)c->devices[i].info.kind);
  if (c->client) {
    PJRT_Client_Destroy_Args destroy = ARGS(Client_Destroy, .client = c->client);
    if (CALL(c, Client_Destroy, &destroy) != TTPU_OK) base_log(LOG_WARN, "closing %s: %s", c->path, base_message());
  }
  base_free(c->devices);
  base_free(c->platform);
  base_free(c->platform_version);
  base_free(c->path);
  base_free(c);
}

const char *pjrt_client_platform(const pjrt_client *c) { return c->platform; }
const char *pjrt_client_platform_version(const pjrt_client *c) { return c->platform_version; }
const char *pjrt_client_plugin_path(const pjrt_client *c) { return c->path; }

void pjrt_client_api_version(const pjrt_client *c, int *major, int *minor) {
  *major = c->api->pjrt_api_version.major_version;
  *minor = c->api->pjrt_api_version.minor_version;
}

bool pjrt_client_is_soft(const pjrt_client *c) { return c->extension != NULL; }
uint32_t pjrt_client_device_count(const pjrt_client *c) { return c->device_count; }

pjrt_device *pjrt_client_device(const pjrt_client *c, uint32_t index) {
  return index < c->device_count ? &c->devices[index] : NULL;
}

const pjrt_device_info *pjrt_device_get_info(const pjrt_device *d) { return &d->info; }

ttpu_status pjrt_device_memory_stats(pjrt_device *d, pjrt_memory_stats *out) {
  if (!PLUGIN_HAS(d->client, Device_MemoryStats)) return pjrt_missing(d->client, "Device_MemoryStats");
  PJRT_Device_MemoryStats_Args s = ARGS(Device_MemoryStats, .device = d->device);
  BASE_TRY(CALL(d->client, Device_MemoryStats, &s));
  *out = (pjrt_memory_stats){
      .bytes_in_use = s.bytes_in_use,
      .peak_bytes_in_use = s.peak_bytes_in_use_is_set ? s.peak_bytes_in_use : -1,
      .bytes_limit = s.bytes_limit_is_set ? s.bytes_limit : -1,
      .largest_alloc = s.largest_alloc_size_is_set ? s.largest_alloc_size : -1,
      .num_allocs = s.num_allocs_is_set ? s.num_allocs : -1,
      .bytes_reserved = s.bytes_reserved_is_set ? s.bytes_reserved : -1,
  };
  return TTPU_OK;
}

void pjrt_device_reset_peak(pjrt_device *d) {
  if (!PLUGIN_HAS(d->client, Device_ClearMemoryStats)) return;
  PJRT_Device_ClearMemoryStats_Args clear = ARGS(Device_ClearMemoryStats, .device = d->device);
  if (CALL(d->client, Device_ClearMemoryStats, &clear) != TTPU_OK)
    base_log(LOG_DEBUG, "reset peak: %s", base_message());
}

void pjrt_device_trim(pjrt_device *d) {
  if (!d->client->extension) return;
  PJRT_Ttpu_Trim_Args trim = {.struct_size = sizeof trim, .device = d->device};
  if (pjrt_status(d->client->api, d->client->extension->trim(&trim)) != TTPU_OK)
    base_log(LOG_DEBUG, "trim: %s", base_message());
}

bool pjrt_client_counters(const pjrt_client *c, pjrt_counters *out) {
  if (!c->extension) return false;
  PJRT_Ttpu_Counters_Args counters = {.struct_size = sizeof counters};
  if (pjrt_status(c->api, c->extension->counters(&counters)) != TTPU_OK) return false;
  *out = (pjrt_counters){counters.structures_compiled, counters.executables_bound, counters.executions};
  return true;
}

void pjrt_client_set_threads(pjrt_client *c, int threads) {
  if (!c->extension) return;
  PJRT_Ttpu_SetThreads_Args set = {.struct_size = sizeof set, .threads = threads};
  if (pjrt_status(c->api, c->extension->set_threads(&set)) != TTPU_OK) base_log(LOG_WARN, "%s", base_message());
}
