/* What a plugin offers and lacks, as JSON for `ttpu plugin`.
 *
 *   path, pjrt_api_version, client_api_version, table_bytes, extensions [name], attributes {name: value}, software
 *   missing_required [function], missing [{function, without}], missing_unused [function], unknown_functions
 *   usable, error (why not, or null)
 *   platform, platform_version, devices [{id, kind, process_index, local_hardware_id, memory_limit, attributes, memories}]
 *
 * The last line only where a client could be made. */
#include <inttypes.h>
#include <math.h>

#include "pjrt/pjrt_int.h"

#define PUT(...) base_text_printf(t, __VA_ARGS__)

static void put_text(base_text *t, const char *text) { base_text_put_json(t, text, strlen(text)); }

static void put_value(base_text *t, const PJRT_NamedValue *v) {
  switch (v->type) {
    case PJRT_NamedValue_kString: base_text_put_json(t, v->string_value, v->value_size); break;
    case PJRT_NamedValue_kInt64: PUT("%" PRId64, v->int64_value); break;
    case PJRT_NamedValue_kFloat:
      if (isfinite(v->float_value)) PUT("%.9g", (double)v->float_value);
      else PUT("null");
      break;
    case PJRT_NamedValue_kBool: PUT(v->bool_value ? "true" : "false"); break;
    case PJRT_NamedValue_kInt64List:
      PUT("[");
      for (size_t i = 0; i < v->value_size; ++i) PUT("%s%" PRId64, i ? ", " : "", v->int64_array_value[i]);
      PUT("]");
      break;
    default: PUT("null"); break; /* of a newer version */
  }
}

/* Entries are as large as their writer says, which may be more than we know. */
static void put_values(base_text *t, const PJRT_NamedValue *values, size_t count) {
  PUT("{");
  for (size_t i = 0; i < count; ++i) {
    size_t bytes = values->struct_size >= sizeof *values ? values->struct_size : sizeof *values;
    const PJRT_NamedValue *v = (const PJRT_NamedValue *)((const char *)values + i * bytes);
    if (i) PUT(", ");
    base_text_put_json(t, v->name, v->name_size);
    PUT(": ");
    put_value(t, v);
  }
  PUT("}");
}

/* ---- the table ------------------------------------------------------------------------------------------------------------ */

static void put_missing(base_text *t, const PJRT_Api *api) {
  const char *comma = "";
  bool asked = false; /* of the function at hand: is it in needs.def? */
  PUT(",\n \"missing_required\": [");
#define REQUIRED(function) \
  if (!API_HAS(api, function)) PUT("%s\"%s\"", comma, #function), comma = ", ";
#define WANTED(function, without)
#include "pjrt/needs.def"
#undef REQUIRED
#undef WANTED
  PUT("],\n \"missing\": [");
  comma = "";
#define REQUIRED(function)
#define WANTED(function, what) \
  if (!API_HAS(api, function)) \
    PUT("%s{\"function\": \"%s\", \"without\": \"%s\"}", comma, #function, what), comma = ", ";
#include "pjrt/needs.def"
#undef REQUIRED
#undef WANTED
  PUT("],\n \"missing_unused\": [");
  comma = "";
  static const char asked_for[] =
#define REQUIRED(function) " " #function " "
#define WANTED(function, without) " " #function " "
#include "pjrt/needs.def"
#undef REQUIRED
#undef WANTED
      ;
#define FUNCTION(function)                              \
  asked = strstr(asked_for, " " #function " ") != NULL; \
  if (!API_HAS(api, function) && !asked) PUT("%s\"%s\"", comma, #function), comma = ", ";
#define VOID_FUNCTION(function) FUNCTION(function)
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION
  size_t more = api->struct_size > sizeof *api ? (api->struct_size - sizeof *api) / sizeof(void *) : 0;
  PUT("],\n \"unknown_functions\": %zu", more);
}

static const char *extension_name(uint32_t type) {
  switch (type) {
#define EXTENSION(number, name) \
  case number: return name;
#include "pjrt/extensions.def"
#undef EXTENSION
    default: return NULL;
  }
}

static void put_extensions(base_text *t, const PJRT_Api *api) {
  PUT(",\n \"extensions\": [");
  for (const PJRT_Extension_Base *e = api->extension_start; e; e = e->next) {
    const char *name = extension_name(e->type);
    if (e != api->extension_start) PUT(", ");
    if (name) put_text(t, name);
    else PUT("\"%u\"", e->type);
  }
  PUT("]");
}

static void put_plugin(base_text *t, const char *path, const PJRT_Api *api) {
  PUT("{\"path\": ");
  put_text(t, path);
  PUT(",\n \"pjrt_api_version\": [%d, %d], \"client_api_version\": [%d, %d], \"table_bytes\": %zu",
      api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version, PJRT_API_MAJOR, PJRT_API_MINOR,
      api->struct_size);
  PUT(", \"software\": %s", pjrt_plugin_extension(api) ? "true" : "false");
  put_extensions(t, api);
  put_missing(t, api);
}

static void put_attributes(base_text *t, const PJRT_Api *api) {
  PJRT_Plugin_Attributes_Args args = ARGS(Plugin_Attributes, .attributes = NULL);
  if (!API_HAS(api, Plugin_Attributes) || pjrt_status(api, api->Plugin_Attributes(&args)) != TTPU_OK) return;
  PUT(",\n \"attributes\": ");
  put_values(t, args.attributes, args.num_attributes);
}

/* ---- devices ---------------------------------------------------------------------------------------------------------------- */

static void put_memories(base_text *t, const pjrt_client *c, PJRT_Device *device) {
  PJRT_Device_AddressableMemories_Args list = ARGS(Device_AddressableMemories, .device = device);
  if (!PLUGIN_HAS(c, Device_AddressableMemories) || !PLUGIN_HAS(c, Memory_Kind)) return;
  if (CALL(c, Device_AddressableMemories, &list) != TTPU_OK) return;
  PUT(", \"memories\": [");
  for (size_t i = 0; i < list.num_memories; ++i) {
    PJRT_Memory_Kind_Args kind = ARGS(Memory_Kind, .memory = list.memories[i]);
    if (CALL(c, Memory_Kind, &kind) != TTPU_OK) kind.kind_size = 0;
    if (i) PUT(", ");
    base_text_put_json(t, kind.kind, kind.kind_size);
  }
  PUT("]");
}

static void put_device(base_text *t, const pjrt_client *c, const pjrt_device *d) {
  PUT("{\"id\": %" PRId64 ", \"kind\": ", d->info.id);
  put_text(t, d->info.kind);
  PUT(", \"process_index\": %d, \"local_hardware_id\": %d, \"memory_limit\": %" PRId64, d->info.process_index,
      d->info.local_hardware_id, d->info.memory_limit);
  put_memories(t, c, d->device);
  PJRT_Device_GetDescription_Args get = ARGS(Device_GetDescription, .device = d->device);
  if (PLUGIN_HAS(c, DeviceDescription_Attributes) && CALL(c, Device_GetDescription, &get) == TTPU_OK) {
    PJRT_DeviceDescription_Attributes_Args list =
        ARGS(DeviceDescription_Attributes, .device_description = get.device_description);
    if (CALL(c, DeviceDescription_Attributes, &list) == TTPU_OK) {
      PUT(", \"attributes\": ");
      put_values(t, list.attributes, list.num_attributes);
    }
  }
  PUT("}");
}

static void put_client(base_text *t, const pjrt_client *c) {
  PUT(",\n \"platform\": ");
  put_text(t, c->platform);
  PUT(", \"platform_version\": ");
  put_text(t, c->platform_version);
  PUT(",\n \"devices\": [");
  for (uint32_t i = 0; i < c->device_count; ++i) {
    PUT("%s\n  ", i ? "," : "");
    put_device(t, c, &c->devices[i]);
  }
  PUT("]");
}

ttpu_status pjrt_plugin_report(const char *path, const char *options, base_text *t) {
  const PJRT_Api *api;
  BASE_TRY(pjrt_plugin_open(path, &api));
  put_plugin(t, path, api);
  pjrt_client *c = NULL;
  ttpu_status status = pjrt_client_new(path, options, &c); /* initializes the plugin, where it can be used at all */
  PUT(",\n \"usable\": %s, \"error\": ", c ? "true" : "false");
  if (c) PUT("null");
  else put_text(t, base_message());
  if (c || status != TTPU_FAILED_PRECONDITION) put_attributes(t, api);
  if (c) put_client(t, c);
  PUT("}\n");
  pjrt_client_free(c);
  return t->failed ? base_no_memory(t->length) : TTPU_OK;
}
