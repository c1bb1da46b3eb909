/* Topologies by name, and executables compiled for them without a client. */
#include "pjrt/ahead.h"

#include "pjrt/pjrt_int.h"

struct pjrt_compiler {
  const PJRT_Api *api;
  PJRT_TopologyDescription *topology;
  char *platform_version, *device_kind;
  pjrt_compiler_info info;
};

struct pjrt_compiled {
  const PJRT_Api *api;
  PJRT_Executable *executable;
};

static ttpu_status missing(const PJRT_Api *api, const char *function) {
  return base_fail(TTPU_UNIMPLEMENTED, "the plugin (PJRT %d.%d) has no PJRT_%s", api->pjrt_api_version.major_version,
                   api->pjrt_api_version.minor_version, function);
}

/* ---- topologies ------------------------------------------------------------------------------------------------ */

static ttpu_status read_version(pjrt_compiler *c) {
  if (!API_HAS(c->api, TopologyDescription_PlatformVersion))
    return missing(c->api, "TopologyDescription_PlatformVersion");
  PJRT_TopologyDescription_PlatformVersion_Args version =
      ARGS(TopologyDescription_PlatformVersion, .topology = c->topology);
  BASE_TRY(pjrt_status(c->api, c->api->TopologyDescription_PlatformVersion(&version)));
  c->info.platform_version = c->platform_version =
      pjrt_copy_text(version.platform_version, version.platform_version_size);
  return c->platform_version ? TTPU_OK : base_no_memory(version.platform_version_size);
}

static ttpu_status read_devices(pjrt_compiler *c) {
  if (!API_HAS(c->api, TopologyDescription_GetDeviceDescriptions))
    return missing(c->api, "TopologyDescription_GetDeviceDescriptions");
  PJRT_TopologyDescription_GetDeviceDescriptions_Args devices =
      ARGS(TopologyDescription_GetDeviceDescriptions, .topology = c->topology);
  BASE_TRY(pjrt_status(c->api, c->api->TopologyDescription_GetDeviceDescriptions(&devices)));
  if (devices.num_descriptions == 0) return base_fail(TTPU_INVALID_ARGUMENT, "the topology has no devices");
  PJRT_DeviceDescription_Kind_Args kind = ARGS(DeviceDescription_Kind, .device_description = devices.descriptions[0]);
  BASE_TRY(pjrt_status(c->api, c->api->DeviceDescription_Kind(&kind)));
  c->info.device_count = (uint32_t)devices.num_descriptions;
  c->info.device_kind = c->device_kind = pjrt_copy_text(kind.device_kind, kind.device_kind_size);
  return c->device_kind ? TTPU_OK : base_no_memory(kind.device_kind_size);
}

static ttpu_status make_topology(pjrt_compiler *c, const char *name, const PJRT_NamedValue *options, size_t count) {
  if (!API_HAS(c->api, TopologyDescription_Create)) return missing(c->api, "TopologyDescription_Create");
  if (!API_HAS(c->api, TopologyDescription_Destroy)) return missing(c->api, "TopologyDescription_Destroy");
  PJRT_TopologyDescription_Create_Args create =
      ARGS(TopologyDescription_Create, .topology_name = name, .topology_name_size = strlen(name),
           .create_options = options, .num_options = count);
  ttpu_status status = pjrt_status(c->api, c->api->TopologyDescription_Create(&create));
  if (status != TTPU_OK) return base_fail_context(status, "topology %s", name);
  c->topology = create.topology;
  return TTPU_OK;
}

void pjrt_compiler_free(pjrt_compiler *c) {
  if (!c) return;
  if (c->topology) {
    PJRT_TopologyDescription_Destroy_Args destroy = ARGS(TopologyDescription_Destroy, .topology = c->topology);
    if (pjrt_status(c->api, c->api->TopologyDescription_Destroy(&destroy)) != TTPU_OK)
      base_log(LOG_WARN, "freeing a topology: %s", base_message());
  }
  base_free(c->platform_version);
  base_free(c->device_kind);
  base_free(c);
}

/* An empty name would silently mean a v2. */
ttpu_status pjrt_plugin_load(const char *path, const PJRT_Api **out) {
  const PJRT_Api *api;
  BASE_TRY(pjrt_plugin_open(path, &api));
  BASE_TRY(pjrt_plugin_check(path, api));
  BASE_TRY(pjrt_plugin_initialize(api));
  *out = api;
  return TTPU_OK;
}

ttpu_status pjrt_compiler_new(const PJRT_Api *api, const char *topology, pjrt_compiler **out) {
  if (!topology[0]) return base_fail(TTPU_INVALID_ARGUMENT, "a topology's name is empty; give one such as v6e:2x2");
  pjrt_compiler *c = base_calloc(1, sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  c->api = api;
  ttpu_status status = API_HAS(api, Compile) ? make_topology(c, topology, NULL, 0) : missing(api, "Compile");
  if (status == TTPU_OK) status = read_version(c);
  if (status == TTPU_OK) status = read_devices(c);
  if (status != TTPU_OK) {
    pjrt_compiler_free(c);
    return status;
  }
  c->info.api_major = c->api->pjrt_api_version.major_version;
  c->info.api_minor = c->api->pjrt_api_version.minor_version;
  *out = c;
  return TTPU_OK;
}

static ttpu_status count_devices(pjrt_compiler *c, const char *options, uint32_t *count) {
  base_arena arena;
  base_arena_init(&arena);
  PJRT_NamedValue *values;
  size_t n;
  ttpu_status status = pjrt_options_parse(options, &arena, &values, &n);
  if (status == TTPU_OK) status = make_topology(c, "", values, n); /* no name: a client's */
  if (status == TTPU_OK) status = read_devices(c);
  if (status == TTPU_OK) *count = c->info.device_count;
  base_arena_free(&arena);
  return status;
}

ttpu_status pjrt_devices_ahead(const char *plugin_path, const char *options, uint32_t *count) {
  const PJRT_Api *api;
  BASE_TRY(pjrt_plugin_load(plugin_path, &api));
  if (!pjrt_plugin_extension(api))
    return base_fail(TTPU_UNIMPLEMENTED, "the plugin %s cannot tell its devices without a client", plugin_path);
  pjrt_compiler *c = base_calloc(1, sizeof *c);
  if (!c) return base_no_memory(sizeof *c);
  c->api = api;
  ttpu_status status = count_devices(c, options, count);
  pjrt_compiler_free(c);
  return status;
}

const pjrt_compiler_info *pjrt_compiler_get_info(const pjrt_compiler *c) { return &c->info; }

/* ---- compiling ---------------------------------------------------------------------------------------------------- */

/* pjrt_status, with the whole message put into *message. */
static ttpu_status status_with_message(const PJRT_Api *api, PJRT_Error *error, base_text *message) {
  if (!error) return TTPU_OK;
  PJRT_Error_Message_Args whole = ARGS(Error_Message, .error = error);
  api->Error_Message(&whole);
  if (whole.message_size) base_text_put(message, whole.message, whole.message_size);
  return pjrt_status(api, error);
}

ttpu_status pjrt_compiler_compile(pjrt_compiler *c, const char *format, const void *code, size_t code_bytes,
                                  const void *options, size_t options_bytes, base_text *message, pjrt_compiled **out) {
  pjrt_compiled *e = base_calloc(1, sizeof *e);
  if (!e) return base_no_memory(sizeof *e);
  PJRT_Program program = {.struct_size = sizeof program,
                          .code = (char *)code, /* read only; the ABI has no const here */
                          .code_size = code_bytes,
                          .format = format,
                          .format_size = strlen(format)};
  PJRT_Compile_Args compile = ARGS(Compile, .topology = c->topology, .program = &program, .compile_options = options,
                                   .compile_options_size = options_bytes);
  ttpu_status status = status_with_message(c->api, c->api->Compile(&compile), message);
  if (status != TTPU_OK) {
    base_free(e);
    return status;
  }
  *e = (pjrt_compiled){.api = c->api, .executable = compile.executable};
  *out = e;
  return TTPU_OK;
}

void pjrt_compiled_free(pjrt_compiled *e) {
  if (!e) return;
  PJRT_Executable_Destroy_Args destroy = ARGS(Executable_Destroy, .executable = e->executable);
  if (pjrt_status(e->api, e->api->Executable_Destroy(&destroy)) != TTPU_OK)
    base_log(LOG_WARN, "freeing an executable: %s", base_message());
  base_free(e);
}

/* ---- what an executable says of itself ---------------------------------------------------------------------------- */

ttpu_status pjrt_compiled_get_memory(pjrt_compiled *e, pjrt_compiled_memory *out) {
  if (!API_HAS(e->api, Executable_GetCompiledMemoryStats)) return missing(e->api, "Executable_GetCompiledMemoryStats");
  PJRT_Executable_GetCompiledMemoryStats_Args m = ARGS(Executable_GetCompiledMemoryStats, .executable = e->executable);
  BASE_TRY(pjrt_status(e->api, e->api->Executable_GetCompiledMemoryStats(&m)));
  *out = (pjrt_compiled_memory){
      .code = m.generated_code_size_in_bytes,
      .arguments = m.argument_size_in_bytes,
      .outputs = m.output_size_in_bytes,
      .alias = m.alias_size_in_bytes,
      .temporaries = m.temp_size_in_bytes,
      .peak = m.peak_memory_in_bytes,
  };
  return TTPU_OK;
}

ttpu_status pjrt_compiled_visit_costs(pjrt_compiled *e, void (*visit)(void *context, const char *name, double value),
                                      void *context) {
  if (!API_HAS(e->api, Executable_GetCostAnalysis)) return missing(e->api, "Executable_GetCostAnalysis");
  PJRT_Executable_GetCostAnalysis_Args costs = ARGS(Executable_GetCostAnalysis, .executable = e->executable);
  BASE_TRY(pjrt_status(e->api, e->api->Executable_GetCostAnalysis(&costs)));
  for (size_t i = 0; i < costs.num_properties; ++i) {
    const PJRT_NamedValue *v = &costs.properties[i];
    bool is_float = v->type == PJRT_NamedValue_kFloat;
    if (!is_float && v->type != PJRT_NamedValue_kInt64) continue;
    char *name = pjrt_copy_text(v->name, v->name_size);
    if (!name) return base_no_memory(v->name_size);
    visit(context, name, is_float ? (double)v->float_value : (double)v->int64_value);
    base_free(name);
  }
  return TTPU_OK;
}

ttpu_status pjrt_compiled_serialize(pjrt_compiled *e, base_text *out) {
  if (!API_HAS(e->api, Executable_Serialize)) return missing(e->api, "Executable_Serialize");
  PJRT_Executable_Serialize_Args s = ARGS(Executable_Serialize, .executable = e->executable);
  BASE_TRY(pjrt_status(e->api, e->api->Executable_Serialize(&s)));
  base_text_put(out, s.serialized_bytes, s.serialized_bytes_size);
  if (s.serialized_executable_deleter) s.serialized_executable_deleter(s.serialized_executable);
  return out->failed ? base_no_memory(s.serialized_bytes_size) : TTPU_OK;
}

ttpu_status pjrt_compiled_fingerprint(pjrt_compiled *e, base_text *out) {
  if (!API_HAS(e->api, Executable_Fingerprint)) return missing(e->api, "Executable_Fingerprint");
  PJRT_Executable_Fingerprint_Args f = ARGS(Executable_Fingerprint, .executable = e->executable);
  BASE_TRY(pjrt_status(e->api, e->api->Executable_Fingerprint(&f)));
  base_text_put(out, f.executable_fingerprint, f.executable_fingerprint_size);
  return out->failed ? base_no_memory(f.executable_fingerprint_size) : TTPU_OK;
}

/* Asked twice: for the size, then into memory of ours. */
ttpu_status pjrt_compiled_optimized(pjrt_compiled *e, base_text *format, base_text *out) {
  if (!API_HAS(e->api, Executable_OptimizedProgram)) return missing(e->api, "Executable_OptimizedProgram");
  PJRT_Program program = {.struct_size = sizeof program};
  PJRT_Executable_OptimizedProgram_Args ask =
      ARGS(Executable_OptimizedProgram, .executable = e->executable, .program = &program);
  BASE_TRY(pjrt_status(e->api, e->api->Executable_OptimizedProgram(&ask)));
  base_text_put(format, program.format, program.format_size);
  char *code = base_alloc(program.code_size + 1);
  if (!code) return base_no_memory(program.code_size);
  program.code = code;
  ttpu_status status = pjrt_status(e->api, e->api->Executable_OptimizedProgram(&ask));
  if (status == TTPU_OK) base_text_put(out, code, program.code_size);
  base_free(code);
  if (status == TTPU_OK && (format->failed || out->failed)) status = base_no_memory(program.code_size);
  return status;
}
