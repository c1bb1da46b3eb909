/* Compiling and running programs. */
#include "pjrt/pjrt_int.h"

enum { MANY = 64 }; /* arguments and outputs up to here need no allocation of their own */

/* ---- compile options ---------------------------------------------------------------------------------------- */

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

/* CompileOptionsProto in protobuf's wire format: executable_build_options (3) with num_replicas (4) and
 * num_partitions (5) of 1, and a device_assignment (9) of that one device: replica_count (1), computation_count (2),
 * computation_devices (3) with replica_device_ids (1). Zero counts would abort XLA. */
static size_t compile_options(const pjrt_device *d, uint8_t out[64]) {
  uint8_t id[16], *id_end = put_varint(id + 1, (uint64_t)d->info.id);
  id[0] = 1 << 3;
  size_t id_bytes = (size_t)(id_end - id);
  uint8_t inside[48], *at = inside;
  *at++ = 4 << 3, *at++ = 1;
  *at++ = 5 << 3, *at++ = 1;
  *at++ = 9 << 3 | 2, *at++ = (uint8_t)(6 + id_bytes);
  *at++ = 1 << 3, *at++ = 1;
  *at++ = 2 << 3, *at++ = 1;
  *at++ = 3 << 3 | 2, *at++ = (uint8_t)id_bytes;
  memcpy(at, id, id_bytes);
  at += id_bytes;
  size_t bytes = (size_t)(at - inside);
  out[0] = 3 << 3 | 2;
  out[1] = (uint8_t)bytes;
  memcpy(out + 2, inside, bytes);
  return bytes + 2;
}

/* ---- compiling ------------------------------------------------------------------------------------------------ */

static void free_arena(base_arena *arena) {
  base_arena_free(arena);
  base_free(arena);
}

static void executable_destroy(pjrt_executable *e) {
  if (e->loaded) {
    PJRT_LoadedExecutable_Destroy_Args destroy = ARGS(LoadedExecutable_Destroy, .executable = e->loaded);
    if (CALL(e->device->client, LoadedExecutable_Destroy, &destroy) != TTPU_OK)
      base_log(LOG_WARN, "freeing an executable: %s", base_message());
  }
  base_free(e->outputs);
  base_free(e);
}

void pjrt_executable_free(pjrt_executable *e) {
  if (e) executable_destroy(e);
}

uint32_t pjrt_executable_output_count(const pjrt_executable *e) { return e->output_count; }

static ttpu_status executable_new(pjrt_device *d, uint32_t outputs, pjrt_executable **out) {
  pjrt_executable *e = base_calloc(1, sizeof *e);
  if (!e) return base_no_memory(sizeof *e);
  e->device = d;
  e->output_count = outputs;
  e->outputs = base_calloc(outputs + 1u, sizeof *e->outputs);
  *out = e;
  if (e->outputs) return TTPU_OK;
  executable_destroy(e);
  return base_no_memory(outputs * sizeof *e->outputs);
}

/* Our plugin takes the function itself, and the arena. */
static ttpu_status compile_pointer(pjrt_device *d, base_arena *arena, ir_func *f, PJRT_LoadedExecutable **out) {
  PJRT_Ttpu_Compile_Args compile = {
      .struct_size = sizeof compile, .client = d->client->client, .arena = arena, .func = f, .device = d->device};
  BASE_TRY(pjrt_status(d->client->api, d->client->extension->compile(&compile)));
  *out = compile.executable;
  return TTPU_OK;
}

static bool keep_none(ir_kind kind) {
  (void)kind;
  return false;
}

static ttpu_status compile_text(pjrt_device *d, base_arena *arena, const ir_func *f, PJRT_LoadedExecutable **out) {
  ir_func *plain;
  base_text text = {0};
  BASE_TRY(ir_decompose(f, arena, keep_none, &plain));
  ttpu_status status = ir_func_print(plain, &text);
  if (status == TTPU_OK && text.failed) status = base_no_memory(text.length);
  if (status == TTPU_OK) {
    uint8_t options[64];
    PJRT_Program program = {
        .struct_size = sizeof program, .code = text.data, .code_size = text.length, .format = "mlir", .format_size = 4};
    PJRT_Client_Compile_Args compile =
        ARGS(Client_Compile, .client = d->client->client, .program = &program, .compile_options = (const char *)options,
             .compile_options_size = compile_options(d, options));
    status = CALL(d->client, Client_Compile, &compile);
    *out = compile.executable;
  }
  base_text_free(&text);
  return status;
}

ttpu_status pjrt_compile(pjrt_client *c, pjrt_device *d, base_arena *arena, ir_func *f, pjrt_executable **out) {
  pjrt_executable *e = NULL;
  const ir_op *result = f->body.count ? f->body.ops[f->body.count - 1] : NULL;
  ttpu_status status = TTPU_OK;
  if (!result || result->kind != IR_RETURN)
    status = base_fail(TTPU_INVALID_ARGUMENT, "the function %s does not end with a return", f->name);
  if (status == TTPU_OK) status = executable_new(d, result->operand_count, &e);
  if (status != TTPU_OK) {
    free_arena(arena);
    return status;
  }
  for (uint32_t i = 0; i < e->output_count; ++i) {
    ir_type t = ir_type_of(f, result->operands[i]);
    e->outputs[i] = (pjrt_output){(ttpu_dtype)t.dtype, (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype)};
  }
  if (c->extension) {
    status = compile_pointer(d, arena, f, &e->loaded);
  } else {
    status = compile_text(d, arena, f, &e->loaded);
    free_arena(arena);
  }
  if (status == TTPU_OK) *out = e;
  else executable_destroy(e);
  return status;
}

/* ---- serialized ------------------------------------------------------------------------------------------------ */

/* The executable behind a loaded one, to be destroyed with free_inner. */
static ttpu_status get_inner(const pjrt_client *c, PJRT_LoadedExecutable *loaded, PJRT_Executable **out) {
  PJRT_LoadedExecutable_GetExecutable_Args get = ARGS(LoadedExecutable_GetExecutable, .loaded_executable = loaded);
  BASE_TRY(CALL(c, LoadedExecutable_GetExecutable, &get));
  *out = get.executable;
  return TTPU_OK;
}

static void free_inner(const pjrt_client *c, PJRT_Executable *inner) {
  PJRT_Executable_Destroy_Args destroy = ARGS(Executable_Destroy, .executable = inner);
  if (CALL(c, Executable_Destroy, &destroy) != TTPU_OK) base_log(LOG_WARN, "freeing an executable: %s", base_message());
}

ttpu_status pjrt_executable_serialize(pjrt_executable *e, void **bytes, size_t *length) {
  const pjrt_client *c = e->device->client;
  if (!PLUGIN_HAS(c, Executable_Serialize)) return pjrt_missing(c, "Executable_Serialize");
  PJRT_Executable *inner;
  BASE_TRY(get_inner(c, e->loaded, &inner));
  PJRT_Executable_Serialize_Args serialize = ARGS(Executable_Serialize, .executable = inner);
  ttpu_status status = CALL(c, Executable_Serialize, &serialize);
  if (status == TTPU_OK) {
    *length = serialize.serialized_bytes_size;
    *bytes = base_alloc(*length + 1);
    if (*bytes) memcpy(*bytes, serialize.serialized_bytes, *length);
    else status = base_no_memory(*length);
    if (serialize.serialized_executable_deleter)
      serialize.serialized_executable_deleter(serialize.serialized_executable);
  }
  free_inner(c, inner);
  return status;
}

static ttpu_status read_outputs(const pjrt_client *c, PJRT_Executable *inner, pjrt_device *d, pjrt_executable **out) {
  if (!PLUGIN_HAS(c, Executable_OutputElementTypes)) return pjrt_missing(c, "Executable_OutputElementTypes");
  if (!PLUGIN_HAS(c, Executable_OutputDimensions)) return pjrt_missing(c, "Executable_OutputDimensions");
  PJRT_Executable_OutputElementTypes_Args types = ARGS(Executable_OutputElementTypes, .executable = inner);
  BASE_TRY(CALL(c, Executable_OutputElementTypes, &types));
  PJRT_Executable_OutputDimensions_Args dims = ARGS(Executable_OutputDimensions, .executable = inner);
  BASE_TRY(CALL(c, Executable_OutputDimensions, &dims));
  if (dims.num_outputs != types.num_output_types)
    return base_fail(TTPU_INTERNAL, "the plugin names %zu output types and %zu shapes", types.num_output_types,
                     dims.num_outputs);
  pjrt_executable *e;
  BASE_TRY(executable_new(d, (uint32_t)types.num_output_types, &e));
  const int64_t *at = dims.dims;
  for (uint32_t i = 0; i < e->output_count; ++i) {
    ttpu_dtype dtype = base_dtype_from_pjrt(types.output_types[i]);
    e->outputs[i] = (pjrt_output){dtype, (size_t)base_numel((uint32_t)dims.dim_sizes[i], at) * base_dtype_bytes(dtype)};
    at += dims.dim_sizes[i];
  }
  *out = e;
  return TTPU_OK;
}

ttpu_status pjrt_executable_deserialize(pjrt_client *c, pjrt_device *d, const void *bytes, size_t length,
                                        pjrt_executable **out) {
  if (!PLUGIN_HAS(c, Executable_DeserializeAndLoad)) return pjrt_missing(c, "Executable_DeserializeAndLoad");
  uint8_t options[64];
  PJRT_Executable_DeserializeAndLoad_Args load =
      ARGS(Executable_DeserializeAndLoad, .client = c->client, .serialized_executable = bytes,
           .serialized_executable_size = length, .overridden_serialized_compile_options = (const char *)options,
           .overridden_serialized_compile_options_size = compile_options(d, options));
  BASE_TRY(CALL(c, Executable_DeserializeAndLoad, &load));
  PJRT_Executable *inner = NULL;
  pjrt_executable *e = NULL;
  ttpu_status status = get_inner(c, load.loaded_executable, &inner);
  if (status == TTPU_OK) status = read_outputs(c, inner, d, &e);
  if (inner) free_inner(c, inner);
  if (status == TTPU_OK) {
    e->loaded = load.loaded_executable;
    *out = e;
    return TTPU_OK;
  }
  PJRT_LoadedExecutable_Destroy_Args destroy = ARGS(LoadedExecutable_Destroy, .executable = load.loaded_executable);
  PJRT_Error *error = c->api->LoadedExecutable_Destroy(&destroy);
  PJRT_Error_Destroy_Args forget = ARGS(Error_Destroy, .error = error);
  if (error) c->api->Error_Destroy(&forget); /* the first failure is the one to report */
  return status;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Arrays for one call, on the stack where they are small. */
typedef struct call_arrays {
  PJRT_Buffer *arguments[MANY], *results[MANY];
  int64_t kept[MANY]; /* arguments that must not be donated */
} call_arrays;

ttpu_status pjrt_execute(pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments, const bool *donated,
                         pjrt_buffer **outputs, void (*done)(void *context, ttpu_status status), void *context) {
  const pjrt_client *c = e->device->client;
  call_arrays small;
  PJRT_Buffer **in = small.arguments, **results = small.results;
  int64_t *kept = small.kept;
  void *large = NULL;
  uint32_t made = 0, kept_count = 0;
  ttpu_status status = TTPU_OK;
  if (count > MANY || e->output_count > MANY) {
    size_t bytes = (count + e->output_count) * sizeof(void *) + count * sizeof *kept;
    large = base_alloc(bytes);
    if (!large) return base_no_memory(bytes);
    in = large;
    results = in + count;
    kept = (int64_t *)(results + e->output_count);
  }
  for (uint32_t i = 0; i < count; ++i) {
    in[i] = arguments[i]->buffer;
    if (!donated || !donated[i]) kept[kept_count++] = i;
  }
  for (; made < e->output_count; ++made) {
    outputs[made] = pjrt_buffer_new(e->device, e->outputs[made].dtype, e->outputs[made].bytes);
    if (!outputs[made]) {
      status = base_no_memory(sizeof *outputs[made]);
      goto out;
    }
  }
  PJRT_ExecuteOptions options = {.struct_size = sizeof options,
                                 .non_donatable_input_indices = kept,
                                 .num_non_donatable_input_indices = kept_count};
  PJRT_Buffer *const *argument_list = in;
  PJRT_Buffer **output_list = results;
  PJRT_Event *complete = NULL;
  PJRT_LoadedExecutable_Execute_Args execute =
      ARGS(LoadedExecutable_Execute, .executable = e->loaded, .options = &options, .argument_lists = &argument_list,
           .num_devices = 1, .num_args = count, .output_lists = &output_list,
           .device_complete_events = done ? &complete : NULL);
  status = CALL(c, LoadedExecutable_Execute, &execute);
  if (status == TTPU_OK) {
    for (uint32_t i = 0; i < made; ++i) outputs[i]->buffer = results[i];
    if (done) pjrt_event_call(c, complete, done, context);
  }
out:
  for (uint32_t i = 0; status != TTPU_OK && i < made; ++i) {
    pjrt_buffer_free(outputs[i]);
    outputs[i] = NULL;
  }
  base_free(large);
  return status;
}
