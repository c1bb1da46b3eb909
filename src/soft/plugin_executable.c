/* What can be asked of executables. */
#include "soft/plugin_int.h"

/* ---- executables ----------------------------------------------------------------------------------------- */

PJRT_Error *plugin_Executable_Destroy(PJRT_Executable_Destroy_Args *args) {
  PLUGIN_ARGS(Executable_Destroy, executable);
  if (args->executable) plugin_program_free(args->executable->program);
  base_free(args->executable);
  return NULL;
}

PJRT_Error *plugin_Executable_Name(PJRT_Executable_Name_Args *args) {
  PLUGIN_ARGS(Executable_Name, executable_name_size);
  args->executable_name = args->executable->program->func->name;
  args->executable_name_size = strlen(args->executable_name);
  return NULL;
}

PJRT_Error *plugin_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args) {
  PLUGIN_ARGS(Executable_NumReplicas, num_replicas);
  args->num_replicas = args->executable->program->replicas;
  return NULL;
}

PJRT_Error *plugin_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args) {
  PLUGIN_ARGS(Executable_NumPartitions, num_partitions);
  args->num_partitions = args->executable->program->partitions;
  return NULL;
}

PJRT_Error *plugin_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args) {
  PLUGIN_ARGS(Executable_NumOutputs, num_outputs);
  args->num_outputs = args->executable->program->outputs;
  return NULL;
}

PJRT_Error *plugin_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args) {
  PLUGIN_ARGS(Executable_SizeOfGeneratedCodeInBytes, size_in_bytes);
  args->size_in_bytes = 0; /* none of it is in device memory */
  return NULL;
}

PJRT_Error *plugin_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args) {
  PLUGIN_ARGS(Executable_Fingerprint, executable_fingerprint_size);
  args->executable_fingerprint = args->executable->program->fingerprint;
  args->executable_fingerprint_size = strlen(args->executable_fingerprint);
  return NULL;
}

PJRT_Error *plugin_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args) {
  PLUGIN_ARGS(Executable_GetCostAnalysis, properties);
  args->properties = args->executable->program->cost_properties;
  args->num_properties = 3;
  return NULL;
}

PJRT_Error *plugin_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args) {
  PLUGIN_ARGS(Executable_GetCompiledMemoryStats, temp_size_in_bytes);
  const soft_executable_stats *s = &args->executable->program->stats;
  size_t known = args->struct_size < sizeof *args ? args->struct_size : sizeof *args;
  size_t head = offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, generated_code_size_in_bytes);
  memset((char *)args + head, 0, known - head);
  args->argument_size_in_bytes = (int64_t)s->argument_bytes;
  args->output_size_in_bytes = (int64_t)s->output_bytes;
  args->alias_size_in_bytes = (int64_t)s->alias_bytes;
  args->temp_size_in_bytes = (int64_t)s->temp_bytes;
  if (PJRT_HAS(args, host_generated_code_size_in_bytes))
    args->host_generated_code_size_in_bytes = (int64_t)args->executable->program->host_bytes;
  int64_t total = (int64_t)(s->argument_bytes + s->output_bytes - s->alias_bytes + s->temp_bytes);
  if (PJRT_HAS(args, peak_memory_in_bytes)) args->peak_memory_in_bytes = total;
  if (PJRT_HAS(args, total_size_in_bytes)) args->total_size_in_bytes = total;
  if (PJRT_HAS(args, total_allocation_bytes)) args->total_allocation_bytes = total;
  return NULL;
}

PJRT_Error *plugin_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args) {
  PLUGIN_ARGS(Executable_OutputElementTypes, num_output_types);
  args->output_types = args->executable->program->output_types;
  args->num_output_types = args->executable->program->outputs;
  return NULL;
}

PJRT_Error *plugin_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args) {
  PLUGIN_ARGS(Executable_OutputDimensions, dim_sizes);
  args->num_outputs = args->executable->program->outputs;
  args->dims = args->executable->program->output_dims;
  args->dim_sizes = args->executable->program->output_ranks;
  return NULL;
}

PJRT_Error *plugin_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args) {
  PLUGIN_ARGS(Executable_OutputMemoryKinds, memory_kind_sizes);
  args->num_outputs = args->executable->program->outputs;
  args->memory_kinds = args->executable->program->memory_kinds;
  args->memory_kind_sizes = args->executable->program->memory_kind_sizes;
  return NULL;
}

PJRT_Error *plugin_Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args *args) {
  PLUGIN_ARGS(Executable_ParameterMemoryKinds, memory_kind_sizes);
  args->num_parameters = args->executable->program->parameters;
  args->memory_kinds = args->executable->program->memory_kinds;
  args->memory_kind_sizes = args->executable->program->memory_kind_sizes;
  return NULL;
}

/* How the parts of parameters and results make the whole, as attributes of the module: what XLA's partitioner leaves
 * there, from which frameworks learn the shardings that they did not ask for. */
static void print_shardings(const soft_program *p, base_text *text) {
  const ir_shardings *s = p->func->shardings;
  bool tuple = p->outputs != 1;
  base_text_printf(text, "module attributes {mhlo.spmd_output_sharding = \"%s", tuple ? "{" : "");
  for (uint32_t i = 0; i < p->outputs; ++i) base_text_printf(text, "%s%s", i ? ", " : "", s->results[i]);
  base_text_printf(text, "%s\", mhlo.spmd_parameters_shardings = [", tuple ? "}" : "");
  for (uint32_t i = 0; i < p->parameters; ++i) base_text_printf(text, "%s\"%s\"", i ? ", " : "", s->parameters[i]);
  base_text_printf(text, "]} {\n");
}

static ttpu_status print_program(const soft_program *p, base_text *text) {
  static const char opening[] = "module {\n"; /* which ir_func_print begins with */
  base_text body = {0};
  ttpu_status status = ir_func_print(p->func, &body);
  if (status == TTPU_OK && p->func->shardings) {
    print_shardings(p, text);
    base_text_put(text, body.data + sizeof opening - 1, body.length - (sizeof opening - 1));
  } else if (status == TTPU_OK) {
    base_text_put(text, body.data, body.length);
  }
  base_text_free(&body);
  return status == TTPU_OK && text->failed ? base_no_memory(text->length) : status;
}

/* Asked twice: for the size, then for the bytes. Ours is the program as it was compiled, as text. */
PJRT_Error *plugin_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args) {
  PLUGIN_ARGS(Executable_OptimizedProgram, program);
  PJRT_Program *out = args->program;
  base_text text = {0};
  ttpu_status status = print_program(args->executable->program, &text);
  if (status == TTPU_OK && out->code && out->code_size < text.length)
    status = base_fail(TTPU_INVALID_ARGUMENT, "OptimizedProgram: %zu bytes are needed, there is room for %zu",
                       text.length, out->code_size);
  if (status == TTPU_OK) {
    if (out->code) memcpy(out->code, text.data, text.length);
    out->code_size = text.length;
    out->format = "mlir";
    out->format_size = 4;
  }
  PJRT_Error *error = plugin_error(status);
  base_text_free(&text);
  return error;
}

static void forget_options(PJRT_SerializedCompileOptions *options) { (void)options; }

PJRT_Error *plugin_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args) {
  PLUGIN_ARGS(Executable_GetCompileOptions, serialized_compile_options_deleter);
  soft_program *p = args->executable->program;
  args->serialized_bytes = p->options ? p->options : "";
  args->serialized_bytes_size = p->options_length;
  args->serialized_compile_options = (PJRT_SerializedCompileOptions *)p;
  args->serialized_compile_options_deleter = forget_options;
  return NULL;
}

/* ---- loaded executables ------------------------------------------------------------------------------------ */

ttpu_status plugin_loaded_program(const PJRT_LoadedExecutable *e, soft_program **out) {
  *out = e->program;
  return e->program ? TTPU_OK : base_fail(TTPU_FAILED_PRECONDITION, "the executable was deleted");
}

PJRT_Error *plugin_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_Destroy, executable);
  plugin_loaded_free(args->executable);
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_GetExecutable, executable);
  soft_program *p;
  PLUGIN_TRY(plugin_loaded_program(args->loaded_executable, &p));
  args->executable = base_alloc(sizeof *args->executable);
  if (!args->executable) return plugin_error(base_no_memory(sizeof *args->executable));
  args->executable->program = plugin_program_share(p);
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_AddressableDevices, num_addressable_devices);
  args->addressable_devices = args->executable->devices;
  args->num_addressable_devices = args->executable->count;
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_AddressableDeviceLogicalIds(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_AddressableDeviceLogicalIds, num_addressable_device_logical_ids);
  args->addressable_device_logical_ids = args->executable->ids;
  args->num_addressable_device_logical_ids = args->executable->count;
  return NULL;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

static void assignment_free(PJRT_DeviceAssignmentSerialized *assignment) { base_free(assignment); }

/* DeviceAssignmentProto (compile_options.c has the fields), one ComputationDevice a partition. */
PJRT_Error *plugin_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_GetDeviceAssignment, serialized_device_assignment_deleter);
  PJRT_LoadedExecutable *e = args->executable;
  soft_program *p;
  PLUGIN_TRY(plugin_loaded_program(e, &p));
  size_t bound = 24 + p->partitions * 12u + e->count * 6u; /* a varint of 32 bits has at most 5 bytes */
  uint8_t *bytes = base_alloc(bound), *scratch = base_alloc(bound);
  if (!bytes || !scratch) {
    base_free(bytes);
    base_free(scratch);
    return plugin_error(base_no_memory(bound));
  }
  uint8_t *at = bytes;
  *at++ = 1 << 3;
  at = put_varint(at, p->replicas);
  *at++ = 2 << 3;
  at = put_varint(at, p->partitions);
  for (uint32_t partition = 0; partition < p->partitions; ++partition) {
    uint8_t *inside = scratch;
    for (uint32_t replica = 0; replica < p->replicas; ++replica) {
      *inside++ = 1 << 3;
      inside = put_varint(inside, (uint64_t)e->devices[replica * p->partitions + partition]->description->id);
    }
    *at++ = 3 << 3 | 2;
    at = put_varint(at, (uint64_t)(inside - scratch));
    memcpy(at, scratch, (size_t)(inside - scratch));
    at += inside - scratch;
  }
  base_free(scratch);
  args->serialized_bytes = (const char *)bytes;
  args->serialized_bytes_size = (size_t)(at - bytes);
  args->serialized_device_assignment = (PJRT_DeviceAssignmentSerialized *)bytes;
  args->serialized_device_assignment_deleter = assignment_free;
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_Fingerprint, executable_fingerprint_size);
  soft_program *p;
  PLUGIN_TRY(plugin_loaded_program(args->executable, &p));
  args->executable_fingerprint = p->fingerprint;
  args->executable_fingerprint_size = strlen(p->fingerprint);
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_Delete, executable);
  plugin_program_free(args->executable->program);
  args->executable->program = NULL;
  return NULL;
}

PJRT_Error *plugin_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_IsDeleted, is_deleted);
  args->is_deleted = args->executable->program == NULL;
  return NULL;
}
