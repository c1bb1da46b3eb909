/* Clients, devices, memories and topologies. */
#include <stdio.h>
#include <stdlib.h>

#include "soft/plugin_int.h"

#define VERSION_TEXT "software TPU, ttpu " TTPU_VERSION
#ifndef TTPU_VERSION
#define TTPU_VERSION "unknown"
#endif

const char *const plugin_memory_kinds[MEMORY_KINDS] = {"device", "pinned_host"};

static PJRT_NamedValue int_value(const char *name, int64_t value) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kInt64,
                           .int64_value = value,
                           .value_size = 1};
}

static PJRT_NamedValue list_value(const char *name, const int64_t *values, size_t count) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kInt64List,
                           .int64_array_value = values,
                           .value_size = count};
}

static PJRT_NamedValue string_value(const char *name, const char *value) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kString,
                           .string_value = value,
                           .value_size = strlen(value)};
}

/* ---- topologies ------------------------------------------------------------------------------------ */

static void describe_device(PJRT_DeviceDescription *d, const soft_topology *t, uint32_t id) {
  d->topology = t;
  d->id = (int)id;
  soft_topology_place(t, id, d->coords, &d->core_on_chip);
  d->attributes[0] = list_value("coords", d->coords, 3);
  d->attributes[1] = int_value("core_on_chip", d->core_on_chip);
  d->attributes[2] = int_value("num_cores", t->generation->cores_per_device);
  d->attributes[3] = int_value("slice_index", 0);
  d->attributes[4] = string_value("topology", t->name);
  snprintf(d->text, sizeof d->text, "TPU_%u(process=0,(%d,%d,%d,%d))", id, (int)d->coords[0], (int)d->coords[1],
           (int)d->coords[2], (int)d->core_on_chip);
}

static void topology_free(PJRT_TopologyDescription *t) {
  if (!t) return;
  base_free(t->descriptions);
  base_free(t->pointers);
  base_free(t);
}

static ttpu_status topology_new(const char *name, size_t length, PJRT_TopologyDescription **out) {
  soft_topology parsed;
  BASE_TRY(soft_topology_parse(name, length, &parsed));
  PJRT_TopologyDescription *t = base_calloc(1, sizeof *t);
  if (!t) return base_no_memory(sizeof *t);
  t->topology = parsed;
  t->descriptions = base_calloc(parsed.devices, sizeof *t->descriptions);
  t->pointers = base_calloc(parsed.devices, sizeof *t->pointers);
  if (!t->descriptions || !t->pointers) {
    topology_free(t);
    return base_no_memory(parsed.devices * sizeof *t->descriptions);
  }
  for (uint32_t i = 0; i < parsed.devices; ++i) {
    describe_device(&t->descriptions[i], &t->topology, i);
    t->pointers[i] = &t->descriptions[i];
  }
  for (int i = 0; i < 3; ++i) t->dims[i] = parsed.dims[i];
  t->attributes[0] = string_value("topology", t->topology.name);
  t->attributes[1] = list_value("bounds", t->dims, 3);
  t->attributes[2] = int_value("hbm_bytes", (int64_t)parsed.generation->hbm_bytes);
  *out = t;
  return TTPU_OK;
}

PJRT_Error *plugin_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Destroy, topology);
  topology_free(args->topology);
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args) {
  PLUGIN_ARGS(TopologyDescription_PlatformName, platform_name_size);
  args->platform_name = PLUGIN_PLATFORM;
  args->platform_name_size = strlen(PLUGIN_PLATFORM);
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args) {
  PLUGIN_ARGS(TopologyDescription_PlatformVersion, platform_version_size);
  args->platform_version = VERSION_TEXT;
  args->platform_version_size = strlen(VERSION_TEXT);
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args *args) {
  PLUGIN_ARGS(TopologyDescription_GetDeviceDescriptions, num_descriptions);
  args->descriptions = args->topology->pointers;
  args->num_descriptions = args->topology->topology.devices;
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Attributes, num_attributes);
  args->attributes = args->topology->attributes;
  args->num_attributes = sizeof args->topology->attributes / sizeof args->topology->attributes[0];
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Fingerprint, fingerprint);
  const char *name = args->topology->topology.name;
  args->fingerprint = base_hash(0, name, strlen(name));
  return NULL;
}

/* The name says it all. */
static void forget_serialized(PJRT_SerializedTopology *topology) { (void)topology; }

PJRT_Error *plugin_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Serialize, serialized_topology_deleter);
  args->serialized_bytes = args->topology->topology.name;
  args->serialized_bytes_size = strlen(args->topology->topology.name);
  args->serialized_topology = (PJRT_SerializedTopology *)args->topology;
  args->serialized_topology_deleter = forget_serialized;
  return NULL;
}

PJRT_Error *plugin_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Deserialize, topology);
  return plugin_error(topology_new(args->serialized_topology, args->serialized_topology_size, &args->topology));
}

PJRT_Error *plugin_TopologyDescription_GetMemorySpaceKindIds(
    PJRT_TopologyDescription_GetMemorySpaceKindIds_Args *args) {
  static const int ids[MEMORY_KINDS] = {MEMORY_DEVICE, MEMORY_PINNED_HOST};
  PLUGIN_ARGS(TopologyDescription_GetMemorySpaceKindIds, num_memory_space_kind_ids);
  args->memory_space_kind_ids = ids;
  args->num_memory_space_kind_ids = MEMORY_KINDS;
  return NULL;
}

/* ---- clients --------------------------------------------------------------------------------------- */

typedef struct client_options {
  const char *topology;
  size_t topology_length;
  size_t hbm_bytes;    /* 0: the generation's */
  char by_default[32]; /* the topology if nobody names one */
} client_options;

static bool name_is(const PJRT_NamedValue *v, const char *name) {
  return v->name_size == strlen(name) && memcmp(v->name, name, v->name_size) == 0;
}

/* What frameworks pass to any plugin, and means nothing to this one. */
static bool is_ignored(const PJRT_NamedValue *v) {
  static const char *const names[] = {"ml_framework_name",
                                      "ml_framework_version",
                                      "max_inflight_computations",
                                      "preallocate",
                                      "memory_fraction",
                                      "allocator",
                                      "node_id",
                                      "num_nodes"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (name_is(v, names[i])) return true;
  return false;
}

/* The environment first, then what the call says. */
static ttpu_status read_options(const PJRT_NamedValue *values, size_t count, client_options *o) {
  const char *topology = getenv("TTPU_TOPOLOGY"), *hbm = getenv("TTPU_HBM_BYTES");
  /* A chip for each of a launcher's processes, which choose theirs by LOCAL_RANK. */
  snprintf(o->by_default, sizeof o->by_default, "v5e:%dx1", base_local_processes());
  o->topology = topology && *topology ? topology : o->by_default;
  o->topology_length = strlen(o->topology);
  if (hbm && *hbm) BASE_TRY(soft_bytes_parse(hbm, strlen(hbm), "TTPU_HBM_BYTES", &o->hbm_bytes));
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue *v = &values[i];
    bool string = v->type == PJRT_NamedValue_kString;
    if (name_is(v, "topology") && string) {
      o->topology = v->string_value;
      o->topology_length = v->value_size;
    } else if (name_is(v, "hbm_bytes") && string) {
      BASE_TRY(soft_bytes_parse(v->string_value, v->value_size, "hbm_bytes", &o->hbm_bytes));
    } else if (name_is(v, "hbm_bytes") && v->type == PJRT_NamedValue_kInt64 && v->int64_value > 0) {
      o->hbm_bytes = (size_t)v->int64_value;
    } else if (!is_ignored(v)) {
      return base_fail(TTPU_INVALID_ARGUMENT,
                       "client option \"%.*s\" is unknown or has a value of the wrong type; the software TPU takes "
                       "topology (a string) and hbm_bytes (an integer or a string such as 16G)",
                       (int)(v->name_size < 64 ? v->name_size : 64), v->name);
    }
  }
  return TTPU_OK;
}

/* Without a name it is the topology that a client with the same options would have. */
PJRT_Error *plugin_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args) {
  PLUGIN_ARGS(TopologyDescription_Create, topology);
  client_options options = {.topology = args->topology_name, .topology_length = args->topology_name_size};
  if (args->topology_name_size == 0) PLUGIN_TRY(read_options(args->create_options, args->num_options, &options));
  return plugin_error(topology_new(options.topology, options.topology_length, &args->topology));
}

static ttpu_status init_device(PJRT_Client *c, uint32_t index, size_t hbm_bytes) {
  PJRT_Device *d = &c->devices[index];
  d->client = c;
  d->description = &c->topology->descriptions[index];
  c->device_pointers[index] = d;
  for (int kind = 0; kind < MEMORY_KINDS; ++kind) {
    PJRT_Memory *m = &d->memories[kind];
    m->id = (int)index * MEMORY_KINDS + kind;
    m->kind = kind;
    m->device = d;
    snprintf(m->text, sizeof m->text, "%s memory of %s", plugin_memory_kinds[kind], d->description->text);
    d->pointers[kind] = c->memory_pointers[m->id] = m;
    BASE_TRY(soft_hbm_new(kind == MEMORY_DEVICE ? hbm_bytes : soft_host_memory_total(), &m->hbm));
  }
  return soft_queue_new(&d->queue);
}

static void client_free(PJRT_Client *c) {
  if (!c) return;
  for (uint32_t i = 0; c->devices && i < c->device_count; ++i) {
    soft_queue_free(c->devices[i].queue);
    for (int kind = 0; kind < MEMORY_KINDS; ++kind) soft_hbm_free(c->devices[i].memories[kind].hbm);
  }
  topology_free(c->topology);
  pthread_mutex_destroy(&c->launching);
  base_free(c->devices);
  base_free(c->device_pointers);
  base_free(c->memory_pointers);
  base_free(c);
}

static ttpu_status client_new(const client_options *o, PJRT_Client **out) {
  PJRT_Client *c = base_calloc(1, sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  pthread_mutex_init(&c->launching, NULL);
  ttpu_status status = topology_new(o->topology, o->topology_length, &c->topology);
  if (status != TTPU_OK) goto fail;
  const soft_topology *t = &c->topology->topology;
  c->device_count = t->devices;
  c->devices = base_calloc(t->devices, sizeof *c->devices);
  c->device_pointers = base_calloc(t->devices, sizeof *c->device_pointers);
  c->memory_pointers = base_calloc(t->devices * MEMORY_KINDS, sizeof *c->memory_pointers);
  if (!c->devices || !c->device_pointers || !c->memory_pointers) {
    status = base_no_memory(t->devices * sizeof *c->devices);
    goto fail;
  }
  size_t hbm_bytes = o->hbm_bytes ? o->hbm_bytes : t->generation->hbm_bytes;
  for (uint32_t i = 0; i < t->devices; ++i) {
    status = init_device(c, i, hbm_bytes);
    if (status != TTPU_OK) goto fail;
  }
  *out = c;
  return TTPU_OK;
fail:
  client_free(c);
  return status;
}

PJRT_Error *plugin_Client_Create(PJRT_Client_Create_Args *args) {
  PLUGIN_ARGS(Client_Create, client);
  if (soft_forked()) return plugin_error(soft_fail_forked());
  client_options options = {0};
  PLUGIN_TRY(read_options(args->create_options, args->num_options, &options));
  return plugin_error(client_new(&options, &args->client));
}

PJRT_Error *plugin_Client_Destroy(PJRT_Client_Destroy_Args *args) {
  PLUGIN_ARGS(Client_Destroy, client);
  if (!soft_forked()) client_free(args->client);
  return NULL;
}

PJRT_Error *plugin_Client_PlatformName(PJRT_Client_PlatformName_Args *args) {
  PLUGIN_ARGS(Client_PlatformName, platform_name_size);
  args->platform_name = PLUGIN_PLATFORM;
  args->platform_name_size = strlen(PLUGIN_PLATFORM);
  return NULL;
}

PJRT_Error *plugin_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args) {
  PLUGIN_ARGS(Client_ProcessIndex, process_index);
  args->process_index = 0;
  return NULL;
}

PJRT_Error *plugin_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args) {
  PLUGIN_ARGS(Client_PlatformVersion, platform_version_size);
  args->platform_version = VERSION_TEXT;
  args->platform_version_size = strlen(VERSION_TEXT);
  return NULL;
}

PJRT_Error *plugin_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args) {
  PLUGIN_ARGS(Client_TopologyDescription, topology);
  args->topology = args->client->topology;
  return NULL;
}

PJRT_Error *plugin_Client_Devices(PJRT_Client_Devices_Args *args) {
  PLUGIN_ARGS(Client_Devices, num_devices);
  args->devices = args->client->device_pointers;
  args->num_devices = args->client->device_count;
  return NULL;
}

PJRT_Error *plugin_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args) {
  PLUGIN_ARGS(Client_AddressableDevices, num_addressable_devices);
  args->addressable_devices = args->client->device_pointers;
  args->num_addressable_devices = args->client->device_count;
  return NULL;
}

static ttpu_status find_device(PJRT_Client *c, int id, PJRT_Device **out) {
  if (id < 0 || (uint32_t)id >= c->device_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "there is no device %d; %s has devices 0 to %u", id,
                     c->topology->topology.name, c->device_count - 1);
  *out = &c->devices[id];
  return TTPU_OK;
}

PJRT_Error *plugin_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args) {
  PLUGIN_ARGS(Client_LookupDevice, device);
  return plugin_error(find_device(args->client, args->id, &args->device));
}

PJRT_Error *plugin_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args) {
  PLUGIN_ARGS(Client_LookupAddressableDevice, addressable_device);
  return plugin_error(find_device(args->client, args->local_hardware_id, &args->addressable_device));
}

PJRT_Error *plugin_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args) {
  PLUGIN_ARGS(Client_AddressableMemories, num_addressable_memories);
  args->addressable_memories = args->client->memory_pointers;
  args->num_addressable_memories = args->client->device_count * MEMORY_KINDS;
  return NULL;
}

PJRT_Error *plugin_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args) {
  PLUGIN_ARGS(Client_DefaultDeviceAssignment, default_assignment);
  int64_t count = (int64_t)args->num_replicas * args->num_partitions;
  if (args->num_replicas < 1 || args->num_partitions < 1 || count > args->client->device_count)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "%d replicas of %d partitions do not fit on %u devices", args->num_replicas,
                args->num_partitions, args->client->device_count);
  if ((size_t)count > args->default_assignment_size)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "the array for the device assignment holds %zu ids, %lld are needed",
                args->default_assignment_size, (long long)count);
  for (int i = 0; i < (int)count; ++i) args->default_assignment[i] = i;
  return NULL;
}

/* One process: nothing to learn about the others. */
PJRT_Error *plugin_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args) {
  (void)args;
  return NULL;
}

/* Host memory needs no registration to be read fast. */
PJRT_Error *plugin_Client_DmaMap(PJRT_Client_DmaMap_Args *args) {
  (void)args;
  return NULL;
}

PJRT_Error *plugin_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *args) {
  (void)args;
  return NULL;
}

/* ---- device descriptions ---------------------------------------------------------------------------- */

PJRT_Error *plugin_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args) {
  PLUGIN_ARGS(DeviceDescription_Id, id);
  args->id = args->device_description->id;
  return NULL;
}

PJRT_Error *plugin_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args) {
  PLUGIN_ARGS(DeviceDescription_ProcessIndex, process_index);
  args->process_index = 0;
  return NULL;
}

PJRT_Error *plugin_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args) {
  PLUGIN_ARGS(DeviceDescription_Attributes, attributes);
  args->attributes = args->device_description->attributes;
  args->num_attributes = sizeof args->device_description->attributes / sizeof args->device_description->attributes[0];
  return NULL;
}

PJRT_Error *plugin_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args) {
  PLUGIN_ARGS(DeviceDescription_Kind, device_kind_size);
  args->device_kind = args->device_description->topology->generation->kind;
  args->device_kind_size = strlen(args->device_kind);
  return NULL;
}

PJRT_Error *plugin_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args) {
  PLUGIN_ARGS(DeviceDescription_DebugString, debug_string_size);
  args->debug_string = args->device_description->text;
  args->debug_string_size = strlen(args->device_description->text);
  return NULL;
}

PJRT_Error *plugin_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args) {
  PLUGIN_ARGS(DeviceDescription_ToString, to_string_size);
  args->to_string = args->device_description->text;
  args->to_string_size = strlen(args->device_description->text);
  return NULL;
}

/* ---- devices ----------------------------------------------------------------------------------------- */

PJRT_Error *plugin_Device_GetDescription(PJRT_Device_GetDescription_Args *args) {
  PLUGIN_ARGS(Device_GetDescription, device_description);
  args->device_description = args->device->description;
  return NULL;
}

PJRT_Error *plugin_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args) {
  PLUGIN_ARGS(Device_IsAddressable, is_addressable);
  args->is_addressable = true;
  return NULL;
}

PJRT_Error *plugin_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args) {
  PLUGIN_ARGS(Device_LocalHardwareId, local_hardware_id);
  args->local_hardware_id = args->device->description->id;
  return NULL;
}

PJRT_Error *plugin_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args) {
  PLUGIN_ARGS(Device_AddressableMemories, num_memories);
  args->memories = args->device->pointers;
  args->num_memories = MEMORY_KINDS;
  return NULL;
}

PJRT_Error *plugin_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args) {
  PLUGIN_ARGS(Device_DefaultMemory, memory);
  args->memory = &args->device->memories[MEMORY_DEVICE];
  return NULL;
}

/* Sets one statistic and its flag, if the caller's struct reaches that far. */
#define SET_STATISTIC(field, value)       \
  do {                                    \
    if (PJRT_HAS(args, field##_is_set)) { \
      args->field = (int64_t)(value);     \
      args->field##_is_set = true;        \
    }                                     \
  } while (0)

PJRT_Error *plugin_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args) {
  PLUGIN_ARGS(Device_MemoryStats, bytes_in_use);
  soft_hbm_stats s = soft_hbm_get_stats(args->device->memories[MEMORY_DEVICE].hbm);
  memset(&args->bytes_in_use, 0,
         args->struct_size < sizeof *args ? args->struct_size - offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use)
                                          : sizeof *args - offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use));
  args->bytes_in_use = (int64_t)s.in_use;
  SET_STATISTIC(peak_bytes_in_use, s.peak);
  SET_STATISTIC(num_allocs, s.allocations);
  SET_STATISTIC(largest_alloc_size, s.largest);
  SET_STATISTIC(bytes_limit, s.limit);
  SET_STATISTIC(bytes_reserved, s.recycled_bytes);
  SET_STATISTIC(largest_free_block_bytes, s.limit - s.in_use); /* it never fragments */
  SET_STATISTIC(pool_bytes, s.in_use + s.recycled_bytes);
  return NULL;
}

PJRT_Error *plugin_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args *args) {
  PLUGIN_ARGS(Device_ClearMemoryStats, device);
  soft_hbm_reset_peak(args->device->memories[MEMORY_DEVICE].hbm);
  return NULL;
}

static void forget_attributes(PJRT_Device_Attributes *attributes) { (void)attributes; }

PJRT_Error *plugin_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args) {
  PLUGIN_ARGS(Device_GetAttributes, attributes_deleter);
  PJRT_DeviceDescription *d = args->device->description;
  args->attributes = d->attributes;
  args->num_attributes = sizeof d->attributes / sizeof d->attributes[0];
  args->device_attributes = (PJRT_Device_Attributes *)d;
  args->attributes_deleter = forget_attributes;
  return NULL;
}

/* ---- memories ----------------------------------------------------------------------------------------- */

PJRT_Error *plugin_Memory_Id(PJRT_Memory_Id_Args *args) {
  PLUGIN_ARGS(Memory_Id, id);
  args->id = args->memory->id;
  return NULL;
}

PJRT_Error *plugin_Memory_Kind(PJRT_Memory_Kind_Args *args) {
  PLUGIN_ARGS(Memory_Kind, kind_size);
  args->kind = plugin_memory_kinds[args->memory->kind];
  args->kind_size = strlen(args->kind);
  return NULL;
}

PJRT_Error *plugin_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args) {
  PLUGIN_ARGS(Memory_Kind_Id, kind_id);
  args->kind_id = args->memory->kind;
  return NULL;
}

PJRT_Error *plugin_Memory_DebugString(PJRT_Memory_DebugString_Args *args) {
  PLUGIN_ARGS(Memory_DebugString, debug_string_size);
  args->debug_string = args->memory->text;
  args->debug_string_size = strlen(args->memory->text);
  return NULL;
}

PJRT_Error *plugin_Memory_ToString(PJRT_Memory_ToString_Args *args) {
  PLUGIN_ARGS(Memory_ToString, to_string_size);
  args->to_string = args->memory->text;
  args->to_string_size = strlen(args->memory->text);
  return NULL;
}

PJRT_Error *plugin_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args) {
  PLUGIN_ARGS(Memory_AddressableByDevices, num_devices);
  PJRT_Device *d = args->memory->device;
  args->devices = &d->client->device_pointers[d->description->id];
  args->num_devices = 1;
  return NULL;
}
