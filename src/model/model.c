/* Loading and running a saved model. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/manifest.h"
#include "model/safetensors.h"

/* Each argument but the inputs has its buffer here. A run takes a reference of all of them under the lock, and puts the
 * states' next values in their place before it lets go, so that runs see the states in one order. */
struct ttpu_model {
  base_arena arena;
  pjrt_device *device;
  pjrt_executable *executable;
  model_manifest manifest;
  safetensors weights;  /* stays open: ttpu_model_reset reads it again */
  pthread_mutex_t lock; /* of all below */
  pjrt_buffer **buffers;
  bool lost; /* a failed run took the state with it */
  uint64_t seed, offset, reset_count;
};

struct ttpu_results {
  uint32_t count;
  ttpu_tensor *tensors; /* of the model, with data of their own */
  base_arena arena;     /* names and dims: results may outlive the model */
};

/* ---- types ---- */

ttpu_dtype model_dtype(const char *name) {
  for (int i = 1; name && i < TTPU_TOKEN; ++i)
    if (strcmp(base_dtypes[i].name, name) == 0) return (ttpu_dtype)i;
  return TTPU_NO_DTYPE;
}

bool model_tensor_bytes(const ttpu_tensor *t, size_t *bytes) {
  size_t size = base_dtype_bytes(model_dtype(t->dtype));
  for (uint32_t i = 0; i < t->rank; ++i)
    if (t->dims[i] < 0 || __builtin_mul_overflow(size, (uint64_t)t->dims[i], &size)) return false;
  *bytes = size;
  return size <= PTRDIFF_MAX;
}

void model_put_type(base_text *text, const ttpu_tensor *t) {
  base_text_printf(text, "%s[", t->dtype ? t->dtype : "(no dtype)");
  for (uint32_t i = 0; i < t->rank; ++i) base_text_printf(text, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
  base_text_printf(text, "]");
}

ttpu_status model_open_code(int error) {
  return error == ENOENT || error == ENOTDIR ? TTPU_NOT_FOUND
         : error == EACCES                   ? TTPU_PERMISSION_DENIED
                                             : TTPU_UNAVAILABLE;
}

/* ---- loading ---- */

/* A whole file in an arena. */
static ttpu_status read_file(base_arena *arena, const char *path, char **out, size_t *length) {
  struct stat info;
  FILE *file = fopen(path, "rbe");
  if (!file) return base_fail(model_open_code(errno), "%s cannot be opened: %s", path, strerror(errno));
  ttpu_status status = TTPU_OK;
  if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode))
    status = base_fail(TTPU_INVALID_ARGUMENT, "%s is no file", path);
  *length = status == TTPU_OK ? (size_t)info.st_size : 0;
  *out = status == TTPU_OK ? base_arena_alloc(arena, *length + 1) : NULL;
  if (status == TTPU_OK && !*out) status = base_no_memory(*length);
  if (status == TTPU_OK && fread(*out, 1, *length, file) != *length)
    status = base_fail(TTPU_UNAVAILABLE, "%s could not be read whole", path);
  fclose(file);
  return status;
}

static char *join(base_arena *arena, const char *folder, const char *name) {
  return base_arena_printf(arena, "%s/%s", folder, name);
}

static ttpu_status compile_program(ttpu_model *m, pjrt_client *client, const char *path) {
  base_arena *arena = base_arena_new(); /* pjrt_compile takes it */
  char *bytes;
  size_t length;
  ir_func *f = NULL;
  if (!arena) return base_no_memory(sizeof *arena);
  ttpu_status status = read_file(arena, path, &bytes, &length);
  if (status == TTPU_OK) {
    status = ir_parse(arena, bytes, length, &f);
    if (status != TTPU_OK) base_fail_context(status, "%s", path);
  }
  if (status == TTPU_OK) status = model_manifest_check(&m->manifest, f);
  if (status == TTPU_OK) return pjrt_compile(client, m->device, arena, f, &m->executable);
  base_arena_delete(arena);
  return status;
}

/* The saved value of an argument that is no input. */
static ttpu_status upload_saved(const ttpu_model *m, const model_argument *a, pjrt_buffer **out) {
  const ttpu_tensor *saved = safetensors_find(&m->weights, a->type.name);
  if (!saved)
    return base_fail(TTPU_NOT_FOUND, "%s has no tensor %s, which the program needs", m->manifest.weights, a->type.name);
  if (saved->dtype != a->type.dtype || saved->rank != a->type.rank ||
      memcmp(saved->dims, a->type.dims, saved->rank * sizeof *saved->dims) != 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "%s: the tensor %s has another type than in the manifest",
                     m->manifest.weights, a->type.name);
  return pjrt_buffer_from_host(m->device, a->dtype, a->type.rank, a->type.dims, saved->data, NULL, NULL, out);
}

/* Uploads what has one of two roles, in place of what was there. */
static ttpu_status upload_all(ttpu_model *m, model_role role, model_role or_role) {
  for (uint32_t i = 0; i < m->manifest.argument_count; ++i) {
    const model_argument *a = &m->manifest.arguments[i];
    if (a->role != role && a->role != or_role) continue;
    pjrt_buffer *buffer;
    BASE_TRY(upload_saved(m, a, &buffer));
    pjrt_buffer_free(m->buffers[i]);
    m->buffers[i] = buffer;
  }
  return TTPU_OK;
}

static ttpu_status load(pjrt_client *client, const char *folder, ttpu_model *m) {
  char *text, *path = join(&m->arena, folder, "manifest.json");
  size_t length;
  if (!path) return base_no_memory(strlen(folder));
  ttpu_status status = read_file(&m->arena, path, &text, &length);
  if (status == TTPU_NOT_FOUND)
    return base_fail(status,
                     "%s is no saved model: it has no manifest.json (torch.tpu.export.to_stablehlo(...).save "
                     "makes one)",
                     folder);
  BASE_TRY(status);
  BASE_TRY(model_manifest_read(&m->arena, text, length, &m->manifest));
  m->buffers = base_arena_zalloc(&m->arena, m->manifest.argument_count * sizeof *m->buffers + 1);
  char *program = join(&m->arena, folder, m->manifest.program), *weights = join(&m->arena, folder, m->manifest.weights);
  if (!m->buffers || !program || !weights) return base_no_memory(m->manifest.argument_count * sizeof *m->buffers);
  BASE_TRY(compile_program(m, client, program));
  BASE_TRY(safetensors_open(weights, &m->weights));
  return upload_all(m, MODEL_WEIGHT, MODEL_STATE);
}

int ttpu_model_load(ttpu_runtime *runtime, const char *folder, uint32_t device, ttpu_model **out) {
  *out = NULL;
  ttpu_model *m = base_calloc(1, sizeof *m);
  if (!m) return base_no_memory(sizeof *m);
  base_arena_init(&m->arena);
  pthread_mutex_init(&m->lock, NULL);
  m->device = model_runtime_device(runtime, device);
  ttpu_status status = m->device ? load(model_runtime_client(runtime), folder, m)
                                 : base_fail(TTPU_INVALID_ARGUMENT, "there is no device %u: the runtime has %u", device,
                                             ttpu_runtime_device_count(runtime));
  if (status == TTPU_OK) *out = m;
  else ttpu_model_free(m);
  return status;
}

void ttpu_model_free(ttpu_model *m) {
  if (!m) return;
  for (uint32_t i = 0; m->buffers && i < m->manifest.argument_count; ++i) pjrt_buffer_free(m->buffers[i]);
  pjrt_executable_free(m->executable);
  safetensors_close(&m->weights);
  pthread_mutex_destroy(&m->lock);
  base_arena_free(&m->arena);
  base_free(m);
}

/* ---- describing ---- */

static const ttpu_tensor *find(uint32_t count, const ttpu_tensor *tensors, const char *name) {
  for (uint32_t i = 0; i < count; ++i)
    if (strcmp(tensors[i].name, name) == 0) return &tensors[i];
  return NULL;
}

uint32_t ttpu_model_input_count(const ttpu_model *m) { return m->manifest.input_count; }
const ttpu_tensor *ttpu_model_input(const ttpu_model *m, uint32_t index) {
  return index < m->manifest.input_count ? &m->manifest.inputs[index] : NULL;
}
const ttpu_tensor *ttpu_model_find_input(const ttpu_model *m, const char *name) {
  return find(m->manifest.input_count, m->manifest.inputs, name);
}
uint32_t ttpu_model_output_count(const ttpu_model *m) { return m->manifest.output_count; }
const ttpu_tensor *ttpu_model_output(const ttpu_model *m, uint32_t index) {
  return index < m->manifest.output_count ? &m->manifest.outputs[index] : NULL;
}
const ttpu_tensor *ttpu_model_find_output(const ttpu_model *m, const char *name) {
  return find(m->manifest.output_count, m->manifest.outputs, name);
}
const char *ttpu_model_metadata(const ttpu_model *m, const char *name) {
  return json_text(json_member(m->manifest.metadata, name));
}

/* ---- a run's inputs ---- */

static ttpu_status fail_text(base_text *text) {
  ttpu_status status = text->failed ? base_no_memory(text->length) : base_fail(TTPU_INVALID_ARGUMENT, "%s", text->data);
  base_text_free(text);
  return status;
}

static ttpu_status fail_unknown(const ttpu_model *m, const char *name) {
  base_text text = {0};
  base_text_printf(&text, "the model has no input \"%s\"; its inputs are:", name);
  for (uint32_t i = 0; i < m->manifest.input_count; ++i) {
    base_text_printf(&text, "%s \"%s\" ", i ? "," : "", m->manifest.inputs[i].name);
    model_put_type(&text, &m->manifest.inputs[i]);
  }
  if (m->manifest.input_count == 0) base_text_printf(&text, " none");
  return fail_text(&text);
}

static ttpu_status fail_type(const ttpu_tensor *given, const ttpu_tensor *wanted) {
  base_text text = {0};
  base_text_printf(&text, "the input \"%s\" is ", wanted->name);
  model_put_type(&text, given);
  base_text_printf(&text, "; the model was exported for ");
  model_put_type(&text, wanted);
  return fail_text(&text);
}

static ttpu_status check_input(const ttpu_tensor *given, const ttpu_tensor *wanted) {
  if (!given->dtype || strcmp(given->dtype, wanted->dtype) != 0 || given->rank != wanted->rank ||
      (given->rank && memcmp(given->dims, wanted->dims, given->rank * sizeof *given->dims) != 0))
    return fail_type(given, wanted);
  if (given->bytes != wanted->bytes || (!given->data && wanted->bytes))
    return base_fail(TTPU_INVALID_ARGUMENT, "the input \"%s\" comes with %zu bytes; its shape and dtype take %zu",
                     wanted->name, given->data ? given->bytes : 0, wanted->bytes);
  return TTPU_OK;
}

/* Which of the given tensors is each input. */
static ttpu_status match_inputs(const ttpu_model *m, uint32_t count, const ttpu_tensor *given,
                                const ttpu_tensor **by_input) {
  for (uint32_t i = 0; i < count; ++i) {
    const ttpu_tensor *wanted = given[i].name ? ttpu_model_find_input(m, given[i].name) : NULL;
    if (!wanted) return fail_unknown(m, given[i].name ? given[i].name : "(no name)");
    const ttpu_tensor **place = &by_input[wanted - m->manifest.inputs];
    if (*place) return base_fail(TTPU_INVALID_ARGUMENT, "the input \"%s\" is given twice", wanted->name);
    BASE_TRY(check_input(&given[i], wanted));
    *place = &given[i];
  }
  for (uint32_t i = 0; i < m->manifest.input_count; ++i) {
    if (by_input[i]) continue;
    base_text text = {0};
    base_text_printf(&text, "the input \"%s\" is missing: ", m->manifest.inputs[i].name);
    model_put_type(&text, &m->manifest.inputs[i]);
    return fail_text(&text);
  }
  return TTPU_OK;
}

/* ---- running ---- */

/* Everything that one run moves about, in its arena. */
typedef struct run {
  base_arena arena;
  const ttpu_tensor **given; /* by input */
  pjrt_buffer **arguments;   /* the run's own references */
  bool *donated;
  pjrt_buffer **results;
  uint64_t reset_count; /* the model's when it began */
} run;

static ttpu_status open_run(run *r, const model_manifest *m) {
  base_arena_init(&r->arena);
  r->given = base_arena_zalloc(&r->arena, m->input_count * sizeof *r->given + 1);
  r->arguments = base_arena_zalloc(&r->arena, m->argument_count * sizeof *r->arguments + 1);
  r->donated = base_arena_zalloc(&r->arena, m->argument_count + 1);
  r->results = base_arena_zalloc(&r->arena, m->result_count * sizeof *r->results + 1);
  return r->given && r->arguments && r->donated && r->results ? TTPU_OK : base_no_memory(m->argument_count);
}

static void close_run(run *r, const model_manifest *m) {
  for (uint32_t i = 0; r->arguments && i < m->argument_count; ++i) pjrt_buffer_free(r->arguments[i]);
  for (uint32_t i = 0; r->results && i < m->result_count; ++i) pjrt_buffer_free(r->results[i]);
  base_arena_free(&r->arena);
}

/* The seed and the offset of this run, in the vector that was saved with offsets from 0. */
static ttpu_status upload_random(ttpu_model *m, const model_argument *a, pjrt_buffer **out) {
  const ttpu_tensor *saved = safetensors_find(&m->weights, a->type.name);
  if (!saved || saved->bytes != a->type.bytes || saved->dtype != a->type.dtype)
    return base_fail(TTPU_INVALID_ARGUMENT, "%s: the tensor %s is missing, or is another one", m->manifest.weights,
                     a->type.name);
  int64_t *numbers = base_alloc(saved->bytes + 1);
  if (!numbers) return base_no_memory(saved->bytes);
  memcpy(numbers, saved->data, saved->bytes);
  for (uint32_t i = 0; i < m->manifest.random_count; ++i) {
    uint32_t slot = m->manifest.random_slots[i];
    numbers[slot] = (int64_t)m->seed;
    numbers[slot + 1] = (int64_t)((uint64_t)numbers[slot + 1] + m->offset);
  }
  ttpu_status status = pjrt_buffer_from_host(m->device, TTPU_I64, a->type.rank, a->type.dims, numbers, NULL, NULL, out);
  base_free(numbers);
  if (status == TTPU_OK) m->offset += m->manifest.random_drawn;
  return status;
}

static ttpu_status upload_inputs(const ttpu_model *m, run *r) {
  for (uint32_t i = 0, input = 0; i < m->manifest.argument_count; ++i) {
    const model_argument *a = &m->manifest.arguments[i];
    if (a->role != MODEL_INPUT) continue;
    BASE_TRY(pjrt_buffer_from_host(m->device, a->dtype, a->type.rank, a->type.dims, r->given[input++]->data, NULL, NULL,
                                   &r->arguments[i]));
  }
  return TTPU_OK;
}

/* With the lock held: takes the other arguments, starts the program and moves the states on. From then on they are the
 * model's alone, as the next run may donate them at once: who waits for this run waits for its outputs, or, where it has
 * none, here. */
static ttpu_status start(ttpu_model *m, run *r) {
  const model_manifest *a = &m->manifest;
  if (m->lost)
    return base_fail(TTPU_FAILED_PRECONDITION,
                     "the model's state was lost in a run that failed: ttpu_model_reset puts back what was saved");
  for (uint32_t i = 0; i < a->argument_count; ++i) {
    if (a->arguments[i].role == MODEL_RANDOM) BASE_TRY(upload_random(m, &a->arguments[i], &r->arguments[i]));
    if (a->arguments[i].role == MODEL_WEIGHT) r->arguments[i] = pjrt_buffer_share(m->buffers[i]);
  }
  for (uint32_t i = 0; i < a->argument_count; ++i) {
    r->donated[i] = a->arguments[i].role == MODEL_STATE;
    if (!r->donated[i]) continue;
    r->arguments[i] = m->buffers[i]; /* all of it, or it could not be donated */
    m->buffers[i] = NULL;
  }
  ttpu_status status = pjrt_execute(m->executable, a->argument_count, r->arguments, r->donated, r->results, NULL, NULL);
  for (uint32_t i = 0; status == TTPU_OK && i < a->result_count; ++i) {
    if (a->results[i].state < 0) continue;
    if (a->output_count == 0) status = pjrt_buffer_await(r->results[i]);
    m->buffers[a->results[i].state] = r->results[i];
    r->results[i] = NULL;
  }
  m->lost = status != TTPU_OK && a->state_count > 0;
  r->reset_count = m->reset_count;
  return status;
}

static bool copy_type(base_arena *arena, const ttpu_tensor *from, ttpu_tensor *to) {
  *to = *from;
  to->name = base_arena_dup(arena, from->name, strlen(from->name) + 1);
  to->dims = base_arena_dup(arena, from->dims, from->rank * sizeof *from->dims);
  return to->name && to->dims;
}

/* Waits for the outputs. */
static ttpu_status fetch(const ttpu_model *m, const run *r, ttpu_results *out) {
  out->tensors = base_arena_zalloc(&out->arena, m->manifest.output_count * sizeof *out->tensors + 1);
  if (!out->tensors) return base_no_memory(m->manifest.output_count * sizeof *out->tensors);
  for (uint32_t i = 0; i < m->manifest.result_count; ++i) {
    if (m->manifest.results[i].state >= 0) continue;
    ttpu_tensor *t = &out->tensors[out->count];
    if (!copy_type(&out->arena, &m->manifest.results[i].type, t)) return base_no_memory(64);
    void *data = base_alloc(t->bytes + 1);
    if (!data) return base_no_memory(t->bytes);
    t->data = data;
    ++out->count;
    BASE_TRY(pjrt_buffer_to_host(r->results[i], data, t->bytes));
  }
  return TTPU_OK;
}

int ttpu_model_run(ttpu_model *m, uint32_t count, const ttpu_tensor *inputs, ttpu_results **out) {
  run r = {0};
  *out = base_calloc(1, sizeof **out);
  ttpu_status status = *out ? open_run(&r, &m->manifest) : base_no_memory(sizeof **out);
  if (*out) base_arena_init(&(*out)->arena);
  if (status == TTPU_OK) status = match_inputs(m, count, inputs, r.given);
  if (status == TTPU_OK) status = upload_inputs(m, &r);
  if (status == TTPU_OK) {
    pthread_mutex_lock(&m->lock);
    status = start(m, &r);
    pthread_mutex_unlock(&m->lock);
    bool started = status == TTPU_OK;
    if (started) status = fetch(m, &r, *out);
    if (started && status != TTPU_OK && m->manifest.state_count > 0) {
      pthread_mutex_lock(&m->lock);
      if (r.reset_count == m->reset_count) m->lost = true; /* else another thread has put the state back since */
      pthread_mutex_unlock(&m->lock);
    }
  }
  close_run(&r, &m->manifest);
  if (status == TTPU_OK) return 0;
  ttpu_results_free(*out);
  *out = NULL;
  return status;
}

int ttpu_model_reset(ttpu_model *m) {
  pthread_mutex_lock(&m->lock);
  ttpu_status status = upload_all(m, MODEL_STATE, MODEL_STATE);
  m->lost = status != TTPU_OK;
  ++m->reset_count;
  m->offset = 0;
  pthread_mutex_unlock(&m->lock);
  return status;
}

void ttpu_model_seed(ttpu_model *m, uint64_t seed) {
  pthread_mutex_lock(&m->lock);
  m->seed = seed;
  m->offset = 0;
  pthread_mutex_unlock(&m->lock);
}

/* ---- results ---- */

uint32_t ttpu_results_count(const ttpu_results *r) { return r->count; }
const ttpu_tensor *ttpu_results_at(const ttpu_results *r, uint32_t index) {
  return index < r->count ? &r->tensors[index] : NULL;
}
const ttpu_tensor *ttpu_results_find(const ttpu_results *r, const char *name) {
  return find(r->count, r->tensors, name);
}

void ttpu_results_free(ttpu_results *r) {
  if (!r) return;
  for (uint32_t i = 0; i < r->count; ++i) base_free((void *)r->tensors[i].data);
  base_arena_free(&r->arena);
  base_free(r);
}
