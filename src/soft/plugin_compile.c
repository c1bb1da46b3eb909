/* Compiling, loading and serializing programs. */
#include <stdio.h>
#include <stdlib.h>

#include "soft/custom.h"
#include "soft/link/partition.h"
#include "soft/plugin_int.h"

/* ---- programs ------------------------------------------------------------------------------------------------ */

soft_program *plugin_program_share(soft_program *p) {
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  return p;
}

void plugin_program_free(soft_program *p) {
  if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
  soft_executable_free(p->executable);
  base_free(p->output_types);
  base_free(p->output_dims);
  base_free(p->output_ranks);
  base_free(p->memory_kinds);
  base_free(p->memory_kind_sizes);
  base_free(p->layouts);
  base_free(p->options);
  base_free(p);
}

static PJRT_NamedValue float_value(const char *name, double value) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kFloat,
                           .float_value = (float)value,
                           .value_size = 1};
}

static ttpu_status fill_outputs(soft_program *p) {
  size_t dims = 0, kinds = p->parameters > p->outputs ? p->parameters : p->outputs;
  for (uint32_t i = 0; i < p->outputs; ++i) dims += plugin_output_type(p, i).rank;
  p->output_types = base_calloc(p->outputs + 1, sizeof *p->output_types);
  p->output_dims = base_calloc(dims + 1, sizeof *p->output_dims);
  p->output_ranks = base_calloc(p->outputs + 1, sizeof *p->output_ranks);
  p->memory_kinds = base_calloc(kinds + 1, sizeof *p->memory_kinds);
  p->memory_kind_sizes = base_calloc(kinds + 1, sizeof *p->memory_kind_sizes);
  p->layouts = base_calloc(p->parameters + p->outputs + 1, sizeof *p->layouts);
  if (!p->layouts || !p->output_types || !p->output_dims || !p->output_ranks || !p->memory_kinds ||
      !p->memory_kind_sizes)
    return base_no_memory((dims + kinds + p->outputs) * sizeof(size_t));
  int64_t *at = p->output_dims;
  for (uint32_t i = 0; i < p->parameters; ++i) p->layouts[i] = plugin_layout(plugin_parameter_type(p, i).rank);
  for (uint32_t i = 0; i < p->outputs; ++i)
    p->layouts[p->parameters + i] = plugin_layout(plugin_output_type(p, i).rank);
  for (uint32_t i = 0; i < p->outputs; ++i) {
    ir_type t = plugin_output_type(p, i);
    p->output_types[i] = base_dtypes[t.dtype].pjrt_type;
    p->output_ranks[i] = t.rank;
    for (uint32_t d = 0; d < t.rank; ++d) *at++ = t.dims[d];
  }
  for (size_t i = 0; i < kinds; ++i) {
    p->memory_kinds[i] = plugin_memory_kinds[MEMORY_DEVICE];
    p->memory_kind_sizes[i] = strlen(p->memory_kinds[i]);
  }
  return TTPU_OK;
}

/* Nanoseconds of one run at 50 GF/s and 10 GB/s, with 300 ns a step: to tell tiny from not. */
static void fill_cost(soft_program *p) {
  p->transfers = soft_host_needed(p->func);
  p->linked = p->replicas * p->partitions > 1 && link_has_collectives(p->func);
  p->partial = !p->linked && soft_executable_can_fail_in_part(p->executable);
  soft_executable_stats s = p->stats = soft_executable_get_stats(p->executable);
  double ns = s.flops / 50 + s.bytes_accessed / 10 + 300.0 * s.steps;
  p->cost = ns < 1e15 ? (int64_t)ns : (int64_t)1e15;
  p->cost_properties[0] = float_value("flops", s.flops);
  p->cost_properties[1] = float_value("bytes accessed", s.bytes_accessed);
  p->cost_properties[2] = float_value("optimal_seconds", ns * 1e-9);
}

/* Compiles f, which lives in arena. Takes the arena whatever the outcome. */
static ttpu_status program_new(base_arena *arena, ir_func *f, const plugin_compile_options *options,
                               const void *option_bytes, size_t option_length, soft_program **out) {
  const char *mode = getenv("TTPU_SOFT");
  soft_compile_options how = {.reference = mode && strcmp(mode, "reference") == 0};
  soft_program *p = base_calloc(1, sizeof *p);
  ttpu_status status = soft_custom_check(f);
  if (status == TTPU_OK) status = soft_host_check(f);
  if (status == TTPU_OK) status = link_check(f, (link_grid){options->replicas, options->partitions});
  if (status == TTPU_OK) status = p ? soft_compile(arena, f, &how, &p->executable) : base_no_memory(sizeof *p);
  if (status != TTPU_OK) {
    base_arena_delete(arena);
    base_free(p);
    return status;
  }
  atomic_init(&p->refs, 1);
  p->func = soft_executable_func(p->executable);
  p->replicas = options->replicas;
  p->partitions = options->partitions;
  p->parameters = p->func->body.arg_count;
  p->outputs = p->func->body.ops[p->func->body.count - 1]->operand_count;
  p->host_bytes = base_arena_bytes(arena);
  fill_cost(p);
  base_hash128 hash = ir_func_hash(p->func);
  snprintf(p->fingerprint, sizeof p->fingerprint, "%016llx%016llx", (unsigned long long)hash.a,
           (unsigned long long)hash.b);
  status = fill_outputs(p);
  if (status == TTPU_OK && option_length) {
    p->options = base_alloc(option_length);
    if (p->options) memcpy(p->options, option_bytes, option_length);
    else status = base_no_memory(option_length);
    p->options_length = option_length;
  }
  if (status == TTPU_OK) *out = p;
  else plugin_program_free(p);
  return status;
}

static ttpu_status program_from_text(const char *text, size_t length, const void *option_bytes, size_t option_length,
                                     soft_program **out) {
  plugin_compile_options options;
  BASE_TRY(plugin_compile_options_parse(option_bytes, option_length, &options));
  base_arena *arena = base_arena_new();
  if (!arena) return base_no_memory(sizeof *arena);
  ir_func *f;
  ttpu_status status = ir_parse(arena, text, length, &f);
  if (status == TTPU_OK && link_needs_partition(f))
    status = link_partition(arena, f, (link_grid){options.replicas, options.partitions}, &f);
  if (status == TTPU_OK) return program_new(arena, f, &options, option_bytes, option_length, out);
  base_arena_delete(arena);
  return status;
}

static ttpu_status program_from_pjrt(const PJRT_Program *program, const void *option_bytes, size_t option_length,
                                     soft_program **out) {
  if (program->format_size != 4 || memcmp(program->format, "mlir", 4) != 0)
    return base_fail(TTPU_UNIMPLEMENTED,
                     "program format \"%.*s\"; the software TPU compiles \"mlir\" (StableHLO, as text or bytecode)",
                     (int)(program->format_size < 32 ? program->format_size : 32), program->format);
  return program_from_text(program->code, program->code_size, option_bytes, option_length, out);
}

/* ---- loading ------------------------------------------------------------------------------------------- */

void plugin_loaded_free(PJRT_LoadedExecutable *e) {
  if (!e) return;
  plugin_program_free(e->program);
  base_free(e->devices);
  base_free(e->ids);
  base_free(e);
}

/* Does it fit the devices' memory at all? What else is there then shows at run time. */
static ttpu_status check_memory(const soft_program *p, const PJRT_Device *d) {
  size_t limit = soft_hbm_get_stats(d->memories[MEMORY_DEVICE].hbm).limit;
  size_t alias = p->stats.alias_bytes;
  size_t needed = p->stats.argument_bytes + p->stats.output_bytes - alias + p->stats.temp_bytes;
  if (needed <= limit) return TTPU_OK;
  return base_fail(TTPU_RESOURCE_EXHAUSTED,
                   "the program needs %zu bytes of device memory (arguments %zu, results %zu of which %zu reuse "
                   "arguments, temporaries %zu); the device has %zu",
                   needed, p->stats.argument_bytes, p->stats.output_bytes, alias, p->stats.temp_bytes, limit);
}

/* Takes p whatever the outcome. */
static ttpu_status loaded_new(PJRT_Client *c, soft_program *p, const plugin_compile_options *o,
                              PJRT_LoadedExecutable **out) {
  PJRT_LoadedExecutable *e = base_calloc(1, sizeof *e);
  ttpu_status status = TTPU_OK;
  uint32_t count = p->replicas * p->partitions;
  if (!e) {
    plugin_program_free(p);
    return base_no_memory(sizeof *e);
  }
  e->program = p;
  e->client = c;
  e->count = count;
  if (count > c->device_count) {
    status = base_fail(TTPU_INVALID_ARGUMENT, "%u replicas of %u partitions do not fit on %u devices", p->replicas,
                       p->partitions, c->device_count);
    goto out;
  }
  e->devices = base_calloc(count, sizeof *e->devices);
  e->ids = base_calloc(count, sizeof *e->ids);
  if (!e->devices || !e->ids) {
    status = base_no_memory(count * sizeof *e->devices);
    goto out;
  }
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t replica = i / p->partitions, partition = i % p->partitions;
    int64_t id = i;
    if (o->assigned) id = o->devices[partition * p->replicas + replica];
    else if (count == 1 && o->device_ordinal >= 0) id = o->device_ordinal;
    if (id < 0 || id >= c->device_count) {
      status = base_fail(TTPU_INVALID_ARGUMENT, "the device assignment names device %lld; there are %u", (long long)id,
                         c->device_count);
      goto out;
    }
    e->devices[i] = &c->devices[id];
    e->ids[i] = (PJRT_LogicalDeviceIds){(int)replica, (int)partition};
  }
  status = check_memory(p, e->devices[0]);
out:
  if (status == TTPU_OK) *out = e;
  else plugin_loaded_free(e);
  return status;
}

PJRT_Error *plugin_Client_Compile(PJRT_Client_Compile_Args *args) {
  PLUGIN_ARGS(Client_Compile, executable);
  plugin_compile_options options;
  soft_program *p;
  if (soft_forked()) return plugin_error(soft_fail_forked());
  PLUGIN_TRY(plugin_compile_options_parse(args->compile_options, args->compile_options_size, &options));
  PLUGIN_TRY(program_from_pjrt(args->program, args->compile_options, args->compile_options_size, &p));
  return plugin_error(loaded_new(args->client, p, &options, &args->executable));
}

PJRT_Error *plugin_compile_func(PJRT_Ttpu_Compile_Args *args) {
  if (!PJRT_HAS(args, executable)) /* the arena cannot be read either, then */
    return plugin_error(plugin_check_size("Ttpu_Compile", args->struct_size, sizeof *args));
  plugin_compile_options options = {.replicas = 1, .partitions = 1, .assigned = 1};
  options.devices[0] = args->device->description->id;
  soft_program *p;
  if (soft_forked()) {
    base_arena_delete(args->arena);
    return plugin_error(soft_fail_forked());
  }
  PLUGIN_TRY(program_new(args->arena, args->func, &options, NULL, 0, &p));
  return plugin_error(loaded_new(args->client, p, &options, &args->executable));
}

/* Without a client: for a topology, to be loaded later. */
PJRT_Error *plugin_Compile(PJRT_Compile_Args *args) {
  PLUGIN_ARGS(Compile, executable);
  soft_program *p;
  PLUGIN_TRY(program_from_pjrt(args->program, args->compile_options, args->compile_options_size, &p));
  args->executable = base_alloc(sizeof *args->executable);
  if (args->executable) {
    args->executable->program = p;
    return NULL;
  }
  plugin_program_free(p);
  return plugin_error(base_no_memory(sizeof *args->executable));
}

PJRT_Error *plugin_Client_Load(PJRT_Client_Load_Args *args) {
  PLUGIN_ARGS(Client_Load, loaded_executable);
  soft_program *p = args->executable->program;
  bool given = args->compile_options_size > 0;
  plugin_compile_options options;
  PLUGIN_TRY(plugin_compile_options_parse(given ? args->compile_options : p->options,
                                          given ? args->compile_options_size : p->options_length, &options));
  if (options.replicas != p->replicas || options.partitions != p->partitions)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "the executable was compiled for %u replicas of %u partitions", p->replicas,
                p->partitions);
  return plugin_error(loaded_new(args->client, plugin_program_share(p), &options, &args->loaded_executable));
}

/* ---- serialized: a line, the donated parameters, the compile options, shardings, then text ---------------------- */

#define SERIAL_MAGIC "ttpu executable 2\n"

static ttpu_status serialize(const soft_program *p, base_text *text) {
  base_text_printf(text, SERIAL_MAGIC "donate ");
  for (uint32_t i = 0; i < p->parameters; ++i) base_text_printf(text, "%d", p->func->donate && p->func->donate[i]);
  base_text_printf(text, "\noptions ");
  for (size_t i = 0; i < p->options_length; ++i) base_text_printf(text, "%02x", (uint8_t)p->options[i]);
  base_text_printf(text, "\n");
  const ir_shardings *s = p->func->shardings;
  for (uint32_t i = 0; s && i < p->parameters; ++i) base_text_printf(text, "parameter %s\n", s->parameters[i]);
  for (uint32_t i = 0; s && i < p->outputs; ++i) base_text_printf(text, "result %s\n", s->results[i]);
  BASE_TRY(ir_func_print(p->func, text));
  return text->failed ? base_no_memory(text->length) : TTPU_OK;
}

static void serialized_free(PJRT_SerializedExecutable *executable) {
  base_text_free((base_text *)executable);
  base_free(executable);
}

PJRT_Error *plugin_Executable_Serialize(PJRT_Executable_Serialize_Args *args) {
  PLUGIN_ARGS(Executable_Serialize, serialized_executable_deleter);
  base_text *text = base_calloc(1, sizeof *text);
  if (!text) return plugin_error(base_no_memory(sizeof *text));
  ttpu_status status = serialize(args->executable->program, text);
  if (status != TTPU_OK) {
    serialized_free((PJRT_SerializedExecutable *)text);
    return plugin_error(status);
  }
  args->serialized_bytes = text->data;
  args->serialized_bytes_size = text->length;
  args->serialized_executable = (PJRT_SerializedExecutable *)text;
  args->serialized_executable_deleter = serialized_free;
  return NULL;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The rest of a line that begins with `word`; NULL if it does not. */
static const char *read_line(const char **at, const char *end, const char *word, size_t *length) {
  size_t n = strlen(word);
  const char *line = *at, *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
  if (!stop || (size_t)(stop - line) < n || memcmp(line, word, n) != 0) return NULL;
  *at = stop + 1;
  *length = (size_t)(stop - line) - n;
  return line + n;
}

static ttpu_status fail_serialized(void) {
  return base_fail(TTPU_INVALID_ARGUMENT, "these bytes are no executable of this software TPU");
}

typedef struct text_lines {
  const char **lines; /* heap; the texts are in the arena */
  uint32_t count, capacity;
} text_lines;

/* All lines that begin with `word`. */
static ttpu_status read_lines(base_arena *arena, const char **at, const char *end, const char *word, text_lines *out) {
  size_t length;
  for (const char *line; (line = read_line(at, end, word, &length));) {
    char *copy = base_arena_zalloc(arena, length + 1);
    if (!copy || !BASE_GROW(out->lines, out->count, out->capacity)) return base_no_memory(length);
    memcpy(copy, line, length);
    out->lines[out->count++] = copy;
  }
  return TTPU_OK;
}

/* How the parts of parameters and results make the whole, if that was written. */
static ttpu_status set_shardings(base_arena *arena, ir_func *f, const text_lines *parameters,
                                 const text_lines *results) {
  if (parameters->count + results->count == 0) return TTPU_OK;
  uint32_t outputs = f->body.ops[f->body.count - 1]->operand_count;
  if (parameters->count != f->body.arg_count || results->count != outputs) return fail_serialized();
  const ir_shardings s = {
      .parameters = base_arena_dup(arena, parameters->lines, parameters->count * sizeof *parameters->lines),
      .results = base_arena_dup(arena, results->lines, results->count * sizeof *results->lines)};
  f->shardings = base_arena_dup(arena, &s, sizeof s);
  return f->shardings ? TTPU_OK : base_no_memory(sizeof s);
}

static ttpu_status deserialize(const char *bytes, size_t length, soft_program **out, plugin_compile_options *options) {
  size_t magic = strlen(SERIAL_MAGIC), donated, digits;
  if (length < magic || memcmp(bytes, SERIAL_MAGIC, magic) != 0) return fail_serialized();
  const char *at = bytes + magic, *end = bytes + length;
  const char *donate = read_line(&at, end, "donate ", &donated);
  const char *hex = donate ? read_line(&at, end, "options ", &digits) : NULL;
  if (!hex || digits % 2) return fail_serialized();

  base_arena *arena = base_arena_new();
  if (!arena) return base_no_memory(sizeof *arena);
  ir_func *f = NULL;
  uint8_t *option_bytes = base_arena_alloc(arena, digits / 2 + 1);
  bool *flags = base_arena_zalloc(arena, donated + 1);
  ttpu_status status = option_bytes && flags ? TTPU_OK : base_no_memory(length);
  for (size_t i = 0; status == TTPU_OK && i < digits; i += 2) {
    int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) status = fail_serialized();
    option_bytes[i / 2] = (uint8_t)(high << 4 | low);
  }
  if (status == TTPU_OK) status = plugin_compile_options_parse(option_bytes, digits / 2, options);
  text_lines parameters = {0}, results = {0};
  if (status == TTPU_OK) status = read_lines(arena, &at, end, "parameter ", &parameters);
  if (status == TTPU_OK) status = read_lines(arena, &at, end, "result ", &results);
  if (status == TTPU_OK) status = ir_parse(arena, at, (size_t)(end - at), &f);
  if (status == TTPU_OK) status = set_shardings(arena, f, &parameters, &results);
  base_free(parameters.lines);
  base_free(results.lines);
  if (status == TTPU_OK && f->body.arg_count != donated) status = fail_serialized();
  if (status != TTPU_OK) {
    base_arena_delete(arena);
    return status;
  }
  for (size_t i = 0; i < donated; ++i) flags[i] = donate[i] == '1';
  f->donate = flags;
  return program_new(arena, f, options, option_bytes, digits / 2, out);
}

PJRT_Error *plugin_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args) {
  PLUGIN_ARGS(Executable_DeserializeAndLoad, loaded_executable);
  plugin_compile_options options;
  soft_program *p;
  if (soft_forked()) return plugin_error(soft_fail_forked());
  PLUGIN_TRY(deserialize(args->serialized_executable, args->serialized_executable_size, &p, &options));
  if (PJRT_HAS(args, overridden_serialized_compile_options_size) && args->overridden_serialized_compile_options_size) {
    plugin_compile_options given;
    ttpu_status status = plugin_compile_options_parse(args->overridden_serialized_compile_options,
                                                      args->overridden_serialized_compile_options_size, &given);
    if (status == TTPU_OK && (given.replicas != p->replicas || given.partitions != p->partitions))
      status = base_fail(TTPU_INVALID_ARGUMENT, "the executable was compiled for %u replicas of %u partitions",
                         p->replicas, p->partitions);
    if (status != TTPU_OK) {
      PJRT_Error *error = plugin_error(status);
      plugin_program_free(p);
      return error;
    }
    options = given;
  }
  return plugin_error(loaded_new(args->client, p, &options, &args->loaded_executable));
}
