/* The plugin's function table, its attributes, and our extension. */
#include <stdio.h>

#include "soft/plugin_int.h"

/* ---- what is not offered ---------------------------------------------------------------------------------- */

/* A table's entry is never NULL: callers test versions, not pointers. */
#define NOT_OFFERED(name)                                                           \
  PJRT_Error *plugin_##name(PJRT_##name##_Args *args) {                             \
    (void)args;                                                                     \
    PLUGIN_FAIL(TTPU_UNIMPLEMENTED, "the software TPU does not offer PJRT_" #name); \
  }
NOT_OFFERED(AsyncTrackingEvent_Destroy)
NOT_OFFERED(Buffer_Bitcast)
NOT_OFFERED(Buffer_CopyRawToHostFuture)
NOT_OFFERED(Buffer_DonateWithControlDependency)
NOT_OFFERED(Client_CreateAliasBuffer)
NOT_OFFERED(Client_FulfillAliasBuffer)
NOT_OFFERED(Device_CreateAsyncTrackingEvent)
NOT_OFFERED(Device_PoisonExecution)
NOT_OFFERED(TopologyDescription_MakeCanonicalShapeForMemorySpace)

/* ---- the plugin -------------------------------------------------------------------------------------------- */

PJRT_Error *plugin_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* The StableHLO versions that the reader takes, as text; frameworks convert down to the current one. */
PJRT_Error *plugin_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args) {
  static const int64_t current[3] = {1, 13, 0}, minimum[3] = {0, 9, 0};
#define VALUE(text) .struct_size = sizeof(PJRT_NamedValue), .name = text, .name_size = sizeof text - 1
  static const PJRT_NamedValue attributes[] = {
      {VALUE("stablehlo_current_version"), .type = PJRT_NamedValue_kInt64List, .int64_array_value = current,
       .value_size = 3},
      {VALUE("stablehlo_minimum_version"), .type = PJRT_NamedValue_kInt64List, .int64_array_value = minimum,
       .value_size = 3},
  };
#undef VALUE
  PLUGIN_ARGS(Plugin_Attributes, num_attributes);
  args->attributes = attributes;
  args->num_attributes = sizeof attributes / sizeof attributes[0];
  return NULL;
}

/* ---- our extension ------------------------------------------------------------------------------------------- */

static PJRT_Error *counters(PJRT_Ttpu_Counters_Args *args) {
  PLUGIN_ARGS(Ttpu_Counters, executions);
  soft_counters c = soft_get_counters();
  args->structures_compiled = c.structures_compiled;
  args->executables_bound = c.executables_bound;
  args->executions = c.executions;
  return NULL;
}

static PJRT_Error *set_threads(PJRT_Ttpu_SetThreads_Args *args) {
  PLUGIN_ARGS(Ttpu_SetThreads, threads);
  if (args->threads < 1 || args->threads > BASE_POOL_MAX)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "%d threads; the software TPU takes 1 to %d", args->threads, (int)BASE_POOL_MAX);
  base_pool_resize(args->threads);
  return NULL;
}

static PJRT_Error *trim(PJRT_Ttpu_Trim_Args *args) {
  PLUGIN_ARGS(Ttpu_Trim, device);
  for (int kind = 0; kind < MEMORY_KINDS; ++kind) soft_hbm_trim(args->device->memories[kind].hbm);
  return NULL;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Ttpu_Extension extension = {
      .base = {sizeof extension, PJRT_Extension_Type_Ttpu, NULL},
      .compile = plugin_compile_func,
      .counters = counters,
      .set_threads = set_threads,
      .trim = trim,
  };
  static const PJRT_Api api = {
      .struct_size = sizeof api,
      .extension_start = &extension.base,
      .pjrt_api_version = {sizeof api.pjrt_api_version, NULL, PJRT_API_MAJOR, PJRT_API_MINOR},
#define FUNCTION(name) .name = plugin_##name,
#define VOID_FUNCTION(name) .name = plugin_##name,
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION
  };
  extension.ir_layout = pjrt_ttpu_ir_layout(); /* the same number each time, so no matter who writes it */
  extension.base.next = &plugin_layouts_extension.base;
  return &api;
}
