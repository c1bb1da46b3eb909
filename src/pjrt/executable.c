/* Compiling and running programs. */
#include <stdlib.h>

#include "pjrt/pjrt_int.h"

enum { MANY = 64 }; /* arguments and outputs up to here need no allocation of their own */

/* ---- compile options ---------------------------------------------------------------------------------------- */

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

/* CompileOptionsProto in protobuf's wire format: executable_build_options (3) with num_replicas (4) and
 * num_partitions (5), and, for one program, a device_assignment (9) of that one device: replica_count (1), computation_count (2),
 * computation_devices (3) with replica_device_ids (1). Zero counts would abort XLA. */
size_t pjrt_compile_options(const pjrt_device *d, uint32_t replicas, uint32_t partitions,
                            uint8_t out[PJRT_COMPILE_OPTIONS]) {
  uint8_t id[16], *id_end = put_varint(id + 1, (uint64_t)d->info.id);
  id[0] = 1 << 3;
  size_t id_bytes = (size_t)(id_end - id);
  uint8_t inside[48], *at = inside;
  *at++ = 4 << 3, at = put_varint(at, replicas);
  *at++ = 5 << 3, at = put_varint(at, partitions);
  if (replicas == 1 && partitions == 1) {
    *at++ = 9 << 3 | 2, *at++ = (uint8_t)(6 + id_bytes);
    *at++ = 1 << 3, *at++ = 1;
    *at++ = 2 << 3, *at++ = 1;
    *at++ = 3 << 3 | 2, *at++ = (uint8_t)id_bytes;
    memcpy(at, id, id_bytes);
    at += id_bytes;
  }
  size_t bytes = (size_t)(at - inside);
  out[0] = 3 << 3 | 2;
  out[1] = (uint8_t)bytes;
  memcpy(out + 2, inside, bytes);
  return bytes + 2;
}

/* ---- compiling ------------------------------------------------------------------------------------------------ */

void pjrt_executable_free(pjrt_executable *e) {
  if (!e) return;
  if (e->loaded) {
    PJRT_LoadedExecutable_Destroy_Args destroy = ARGS(LoadedExecutable_Destroy, .executable = e->loaded);
    if (CALL(e->device->client, LoadedExecutable_Destroy, &destroy) != TTPU_OK)
      base_log(LOG_WARN, "freeing an executable: %s", base_message());
  }
  pjrt_checks_free(e->checks);
  base_free(e->outputs);
  base_free(e);
}

uint32_t pjrt_executable_output_count(const pjrt_executable *e) { return e->output_count; }
pjrt_device *pjrt_executable_device(const pjrt_executable *e) { return e->device; }

static void read_costs(const PJRT_Executable_GetCostAnalysis_Args *costs, pjrt_cost *out) {
  for (size_t i = 0; i < costs->num_properties; ++i) {
    const PJRT_NamedValue *v = &costs->properties[i];
    if (v->type != PJRT_NamedValue_kFloat && v->type != PJRT_NamedValue_kInt64) continue;
    double value = v->type == PJRT_NamedValue_kFloat ? (double)v->float_value : (double)v->int64_value;
    if (v->name_size == 5 && memcmp(v->name, "flops", 5) == 0) out->flops = value;
    if (v->name_size == 14 && memcmp(v->name, "bytes accessed", 14) == 0) out->bytes_accessed = value;
  }
}

/* What the plugin says; what it does not implement is no failure. */
static ttpu_status ask_costs(const pjrt_client *c, PJRT_Executable *executable, pjrt_cost *out) {
  ttpu_status status = TTPU_OK;
  if (PLUGIN_HAS(c, Executable_GetCostAnalysis)) {
    PJRT_Executable_GetCostAnalysis_Args costs = ARGS(Executable_GetCostAnalysis, .executable = executable);
    status = CALL(c, Executable_GetCostAnalysis, &costs);
    if (status == TTPU_OK) read_costs(&costs, out);
    if (status != TTPU_OK && status != TTPU_UNIMPLEMENTED) return status;
  }
  if (!PLUGIN_HAS(c, Executable_GetCompiledMemoryStats)) return TTPU_OK;
  PJRT_Executable_GetCompiledMemoryStats_Args memory =
      ARGS(Executable_GetCompiledMemoryStats, .executable = executable);
  status = CALL(c, Executable_GetCompiledMemoryStats, &memory);
  if (status == TTPU_OK) {
    out->temporaries = memory.temp_size_in_bytes;
    out->host_bytes = memory.host_generated_code_size_in_bytes;
  }
  return status == TTPU_UNIMPLEMENTED ? TTPU_OK : status;
}

ttpu_status pjrt_executable_get_cost(const pjrt_executable *e, pjrt_cost *out) {
  const pjrt_client *c = e->device->client;
  *out = (pjrt_cost){-1, -1, -1, -1};
  if (!PLUGIN_HAS(c, LoadedExecutable_GetExecutable) || !PLUGIN_HAS(c, Executable_Destroy)) return TTPU_OK;
  PJRT_LoadedExecutable_GetExecutable_Args get = ARGS(LoadedExecutable_GetExecutable, .loaded_executable = e->loaded);
  BASE_TRY(CALL(c, LoadedExecutable_GetExecutable, &get));
  ttpu_status status = ask_costs(c, get.executable, out);
  PJRT_Executable_Destroy_Args destroy = ARGS(Executable_Destroy, .executable = get.executable);
  ttpu_status destroyed = CALL(c, Executable_Destroy, &destroy);
  return status != TTPU_OK ? status : destroyed;
}

ttpu_status pjrt_executable_new(pjrt_device *d, uint32_t outputs, pjrt_executable **out) {
  pjrt_executable *e = base_calloc(1, sizeof *e);
  if (!e) return base_no_memory(sizeof *e);
  e->device = d;
  e->chips = 1;
  e->output_count = outputs;
  e->outputs = base_calloc(outputs + 1u, sizeof *e->outputs);
  *out = e;
  if (e->outputs) return TTPU_OK;
  pjrt_executable_free(e);
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

static bool is_check(ir_kind kind) { return kind == IR_CHECK_INDEX; }

/* The program for another plugin: a portable artifact of the StableHLO that it says it reads, which newer plugins read too;
 * text where it says none, where that version lacks something, or where TTPU_PROGRAM=text. */
static ttpu_status write_program(const pjrt_client *c, const ir_func *f, base_text *out) {
  enum { NEWEST = 120, OLDEST = 100 };
  const char *form = getenv("TTPU_PROGRAM");
  unsigned version = c->stablehlo < NEWEST ? c->stablehlo : NEWEST;
  if (version >= OLDEST && !(form && strcmp(form, "text") == 0)) {
    ttpu_status status = ir_func_write(f, version, out);
    if (status != TTPU_UNIMPLEMENTED) return status;
    base_text_free(out);
    *out = (base_text){0};
  }
  return ir_func_print(f, out);
}

/* Without our composites, and with its checks as one more result. */
static ttpu_status compile_program(pjrt_executable *e, uint32_t replicas, uint32_t partitions, base_arena *arena,
                                   const ir_func *f) {
  pjrt_device *d = e->device;
  ir_func *expanded;
  const ir_func *plain;
  base_text text = {0};
  BASE_TRY(ir_decompose(f, arena, is_check, &expanded));
  expanded->name = "main"; /* XLA's name of the entry */
  BASE_TRY(pjrt_checks_extract(expanded, arena, &plain, &e->checks));
  ir_dump(plain, "plugin");
  ttpu_status status = write_program(d->client, plain, &text);
  if (status == TTPU_OK && text.failed) status = base_no_memory(text.length);
  if (status == TTPU_OK) {
    uint8_t options[PJRT_COMPILE_OPTIONS];
    PJRT_Program program = {
        .struct_size = sizeof program, .code = text.data, .code_size = text.length, .format = "mlir", .format_size = 4};
    PJRT_Client_Compile_Args compile =
        ARGS(Client_Compile, .client = d->client->client, .program = &program, .compile_options = (const char *)options,
             .compile_options_size = pjrt_compile_options(d, replicas, partitions, options));
    status = CALL(d->client, Client_Compile, &compile);
    e->loaded = compile.executable;
  }
  base_text_free(&text);
  return status;
}

ttpu_status pjrt_compile_on(pjrt_client *c, pjrt_device *d, uint32_t replicas, uint32_t partitions, base_arena *arena,
                            ir_func *f, pjrt_executable **out) {
  pjrt_executable *e = NULL;
  const ir_op *result = f->body.count ? f->body.ops[f->body.count - 1] : NULL;
  ttpu_status status = TTPU_OK;
  if (!result || result->kind != IR_RETURN)
    status = base_fail(TTPU_INVALID_ARGUMENT, "the function %s does not end with a return", f->name);
  if (status == TTPU_OK) status = pjrt_executable_new(d, result->operand_count, &e);
  if (status != TTPU_OK) {
    base_arena_delete(arena);
    return status;
  }
  for (uint32_t i = 0; i < e->output_count; ++i) {
    ir_type t = ir_type_of(f, result->operands[i]);
    e->outputs[i] = (pjrt_output){(ttpu_dtype)t.dtype, (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype)};
  }
  e->chips = replicas * partitions;
  if (c->extension && e->chips == 1) {
    status = compile_pointer(d, arena, f, &e->loaded);
  } else {
    status = compile_program(e, replicas, partitions, arena, f);
    base_arena_delete(arena);
  }
  if (status == TTPU_OK) *out = e;
  else pjrt_executable_free(e);
  return status;
}

ttpu_status pjrt_compile(pjrt_client *c, pjrt_device *d, base_arena *arena, ir_func *f, pjrt_executable **out) {
  return pjrt_compile_on(c, d, 1, 1, arena, f, out);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Arrays for one call, on the stack where they are small. */
typedef struct call_arrays {
  PJRT_Buffer **arguments, **results;
  int64_t *kept; /* arguments that must not be donated */
  uint32_t kept_count;
  void *large; /* to be freed */
  PJRT_Buffer *few[2][MANY];
  int64_t few_kept[MANY];
} call_arrays;

static bool has_verdict(const pjrt_executable *e) { return e->checks && e->checks->count > 0; }

static ttpu_status make_arrays(call_arrays *a, uint32_t arguments, uint32_t results) {
  a->arguments = a->few[0];
  a->results = a->few[1];
  a->kept = a->few_kept;
  a->large = NULL;
  if (arguments <= MANY && results <= MANY) return TTPU_OK;
  size_t bytes = (arguments + results) * sizeof(void *) + arguments * sizeof *a->kept;
  a->large = base_alloc(bytes);
  if (!a->large) return base_no_memory(bytes);
  a->arguments = a->large;
  a->results = a->arguments + arguments;
  a->kept = (int64_t *)(a->results + results);
  return TTPU_OK;
}

/* The arguments, room for the results, and what may not be donated: a buffer that others hold too stays theirs. */
static void fill_arrays(call_arrays *a, uint32_t count, pjrt_buffer *const *arguments, const bool *donated) {
  a->kept_count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    a->arguments[i] = arguments[i]->buffer;
    bool shared =
        atomic_load_explicit(&arguments[i]->refs, memory_order_acquire) > 1 && !arguments[i]->device->client->extension;
    if (!donated || !donated[i] || shared) a->kept[a->kept_count++] = i;
  }
}

/* Handles for the results, without their buffers; the last is the verdict's, where the program has one. */
static ttpu_status make_outputs(const pjrt_executable *e, pjrt_buffer **outputs, pjrt_buffer **verdict) {
  for (uint32_t i = 0; i < e->output_count; ++i) {
    outputs[i] = pjrt_buffer_new(e->device, e->outputs[i].dtype, e->outputs[i].bytes);
    if (!outputs[i]) return base_no_memory(sizeof *outputs[i]);
  }
  if (!has_verdict(e)) return TTPU_OK;
  *verdict = pjrt_buffer_new(e->device, TTPU_I64, 2 * (size_t)e->checks->count * sizeof(int64_t));
  return *verdict ? TTPU_OK : base_no_memory(sizeof **verdict);
}

/* After a run has begun: its results' doubts, and who is to be told of its end. Takes verdict_buffer. */
static ttpu_status follow_run(const pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments,
                              pjrt_buffer **outputs, pjrt_buffer *verdict_buffer,
                              void (*done)(void *context, ttpu_status status), void *context) {
  pjrt_verdict *verdict = NULL;
  if (verdict_buffer) BASE_TRY(pjrt_verdict_new(e->checks, verdict_buffer, &verdict));
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0; e->checks && i < e->output_count && status == TTPU_OK; ++i)
    status = pjrt_doubts_new(e->checks, i, verdict, count, arguments, &outputs[i]->doubts);
  if (status == TTPU_OK && verdict && done) pjrt_verdict_call(verdict, done, context);
  pjrt_verdict_free(verdict);
  return status;
}

ttpu_status pjrt_execute(pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments, const bool *donated,
                         pjrt_buffer **outputs, void (*done)(void *context, ttpu_status status), void *context) {
  const pjrt_client *c = e->device->client;
  call_arrays arrays;
  pjrt_buffer *verdict = NULL;
  PJRT_Event *complete = NULL;
  memset(outputs, 0, e->output_count * sizeof *outputs);
  BASE_TRY(make_arrays(&arrays, count, e->output_count + has_verdict(e)));
  fill_arrays(&arrays, count, arguments, donated);
  ttpu_status status = make_outputs(e, outputs, &verdict);
  if (status != TTPU_OK) goto out;
  PJRT_ExecuteOptions options = {.struct_size = sizeof options,
                                 .non_donatable_input_indices = arrays.kept,
                                 .num_non_donatable_input_indices = arrays.kept_count};
  PJRT_Buffer *const *argument_list = arrays.arguments;
  PJRT_Buffer **output_list = arrays.results;
  bool tell_at_once = done && !has_verdict(e); /* else when the verdict is there, which is later */
  PJRT_LoadedExecutable_Execute_Args execute =
      ARGS(LoadedExecutable_Execute, .executable = e->loaded, .options = &options, .argument_lists = &argument_list,
           .num_devices = 1, .num_args = count, .output_lists = &output_list,
           .device_complete_events = tell_at_once ? &complete : NULL);
  status = CALL(c, LoadedExecutable_Execute, &execute);
  if (status != TTPU_OK) goto out;
  for (uint32_t i = 0; i < e->output_count; ++i) outputs[i]->buffer = arrays.results[i];
  if (verdict) verdict->buffer = arrays.results[e->output_count];
  status = follow_run(e, count, arguments, outputs, verdict, done, context);
  verdict = NULL;
  if (status == TTPU_OK && tell_at_once) pjrt_event_call(c, complete, done, context);
  else pjrt_event_free(c, complete);
out:
  pjrt_buffer_free(verdict);
  for (uint32_t i = 0; status != TTPU_OK && i < e->output_count; ++i) {
    pjrt_buffer_free(outputs[i]);
    outputs[i] = NULL;
  }
  base_free(arrays.large);
  return status;
}
