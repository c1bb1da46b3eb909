/* Clients and their devices. */
#include "pjrt/pjrt_int.h"

char *pjrt_copy_text(const char *text, size_t length) {
  char *copy = base_alloc(length + 1);
  if (!copy) return NULL;
  if (length) memcpy(copy, text, length);
  copy[length] = 0;
  return copy;
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
  d->info.kind = pjrt_copy_text(kind.device_kind, kind.device_kind_size);
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
  base_arena arena;
  base_arena_init(&arena);
  PJRT_NamedValue *values;
  size_t count;
  ttpu_status status = pjrt_options_parse(options, &arena, &values, &count);
  if (status == TTPU_OK) {
    PJRT_Client_Create_Args create = ARGS(Client_Create, .create_options = values, .num_options = count);
    status = CALL(c, Client_Create, &create);
    c->client = create.client;
  }
  base_arena_free(&arena);
  return status;
}

static ttpu_status read_names(pjrt_client *c) {
  PJRT_Client_PlatformName_Args name = ARGS(Client_PlatformName, .client = c->client);
  BASE_TRY(CALL(c, Client_PlatformName, &name));
  PJRT_Client_PlatformVersion_Args version = ARGS(Client_PlatformVersion, .client = c->client);
  if (PLUGIN_HAS(c, Client_PlatformVersion)) BASE_TRY(CALL(c, Client_PlatformVersion, &version));
  c->platform = pjrt_copy_text(name.platform_name, name.platform_name_size);
  c->platform_version = pjrt_copy_text(version.platform_version, version.platform_version_size);
  if (!c->platform || !c->platform_version) return base_no_memory(version.platform_version_size);
  return TTPU_OK;
}

/* The newest StableHLO that the plugin reads. */
static void read_stablehlo_version(pjrt_client *c) {
  static const char name[] = "stablehlo_current_version";
  PJRT_Plugin_Attributes_Args args = ARGS(Plugin_Attributes, .attributes = NULL);
  if (!PLUGIN_HAS(c, Plugin_Attributes) || CALL(c, Plugin_Attributes, &args) != TTPU_OK) return;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue *v = &args.attributes[i];
    bool is = v->name_size == sizeof name - 1 && memcmp(v->name, name, sizeof name - 1) == 0;
    if (!is || v->type != PJRT_NamedValue_kInt64List || v->value_size < 2) continue;
    int64_t major = v->int64_array_value[0], minor = v->int64_array_value[1];
    if (major >= 0 && major < 100 && minor >= 0 && minor < 100) c->stablehlo = (unsigned)(major * 100 + minor);
  }
}

ttpu_status pjrt_client_new(const char *plugin_path, const char *options, pjrt_client **out) {
  pjrt_client *c = base_calloc(1, sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  c->path = pjrt_copy_text(plugin_path, strlen(plugin_path));
  ttpu_status status = c->path ? pjrt_plugin_open(plugin_path, &c->api) : base_no_memory(strlen(plugin_path));
  if (status == TTPU_OK) status = pjrt_plugin_check(plugin_path, c->api);
  if (status == TTPU_OK) status = pjrt_plugin_initialize(c->api);
  if (status == TTPU_OK) {
    c->extension = pjrt_plugin_extension(c->api);
    status = create_client(c, options);
  }
  if (status == TTPU_OK) status = read_names(c);
  if (status == TTPU_OK) status = init_devices(c);
  if (status == TTPU_OK) read_stablehlo_version(c);
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
