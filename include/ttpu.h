/* ttpu: running saved models from C, without Python and without PyTorch.
 *
 *   ttpu_runtime *runtime;
 *   ttpu_model *model;
 *   ttpu_results *results;
 *   int64_t tokens[64] = {...}, dims[] = {1, 64};
 *   ttpu_tensor input = {"tokens", "int64", 2, dims, tokens, sizeof tokens};
 *   if (ttpu_runtime_open(NULL, NULL, &runtime) || ttpu_model_load(runtime, "model", 0, &model) ||
 *       ttpu_model_run(model, 1, &input, &results))
 *     fprintf(stderr, "%s\n", ttpu_message());
 *   const ttpu_tensor *logits = ttpu_results_find(results, "logits");
 *
 * A model is the folder that torch.tpu.export writes (docs/export.md). It runs on the software TPU or on any other PJRT
 * plugin. Link with -lttpu; libttpu_soft.so is looked for beside libttpu.so.
 *
 * Errors: functions that return an int return 0, or a code (PJRT's, which are absl's: 3 INVALID_ARGUMENT, 5 NOT_FOUND,
 * 8 RESOURCE_EXHAUSTED, ...) whose name ttpu_code_name tells; ttpu_message has the text. Nothing aborts or exits.
 *
 * Threads: all functions may be called from any thread. Runs of one model may overlap; those of a model with state
 * follow one another in the order in which they began.
 *
 * Ownership: what a function of open, load or run makes is the caller's, who ends it with close or free; everything
 * else is borrowed from the object that it was asked of, and lives as long as that. Free a model before its runtime. */
#ifndef TTPU_H
#define TTPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ttpu_runtime ttpu_runtime;
typedef struct ttpu_model ttpu_model;
typedef struct ttpu_results ttpu_results;

/* A dense row-major tensor. dtype is PyTorch's name: "float32", "bfloat16", "int64", "bool" (a byte of 0 or 1 an
 * element), "complex64" (two floats), "float8_e4m3fn", ... A scalar has rank 0. */
typedef struct ttpu_tensor {
  const char *name;
  const char *dtype;
  uint32_t rank;
  const int64_t *dims;
  const void *data; /* NULL in descriptions */
  size_t bytes;     /* of the data: the product of dims times the element's size */
} ttpu_tensor;

const char *ttpu_version(void); /* "0.1.0" */
/* Text of this thread's last failure; valid until its next one. Never NULL. */
const char *ttpu_message(void);
const char *ttpu_code_name(int code); /* "INVALID_ARGUMENT" */
/* Bytes of an element; 0: no dtype has that name. */
size_t ttpu_dtype_bytes(const char *dtype);

/* ---- runtimes: a plugin and its devices ---- */

/* plugin: a PJRT plugin's path, or "soft" for the software TPU. NULL: what TTPU_PLUGIN names, else libtpu
 * (TPU_LIBRARY_PATH) on a machine with TPU chips, else the software TPU.
 * options: the plugin's, "name=value,name=value"; NULL: those of TTPU_PLUGIN_OPTIONS, or none. */
int ttpu_runtime_open(const char *plugin, const char *options, ttpu_runtime **out);
void ttpu_runtime_close(ttpu_runtime *runtime); /* NULL is fine, here and for all that frees */
uint32_t ttpu_runtime_device_count(const ttpu_runtime *runtime);
const char *ttpu_runtime_platform(const ttpu_runtime *runtime); /* "tpu" */
const char *ttpu_runtime_plugin(const ttpu_runtime *runtime);   /* its path */

/* ---- models ---- */

/* Reads a model's folder, copies its weights to the device and compiles its program for it. */
int ttpu_model_load(ttpu_runtime *runtime, const char *folder, uint32_t device, ttpu_model **out);
void ttpu_model_free(ttpu_model *model);

/* Descriptions (data is NULL), in the order of the exported program. find: NULL where there is none of that name. */
uint32_t ttpu_model_input_count(const ttpu_model *model);
const ttpu_tensor *ttpu_model_input(const ttpu_model *model, uint32_t index);
const ttpu_tensor *ttpu_model_find_input(const ttpu_model *model, const char *name);
uint32_t ttpu_model_output_count(const ttpu_model *model);
const ttpu_tensor *ttpu_model_output(const ttpu_model *model, uint32_t index);
const ttpu_tensor *ttpu_model_find_output(const ttpu_model *model, const char *name);
/* What was given to torch.tpu.export as metadata under that name; NULL: nothing. */
const char *ttpu_model_metadata(const ttpu_model *model, const char *name);

/* Runs the model once on all its inputs, in any order, and waits for the results. INVALID_ARGUMENT: a name that the
 * model has not, twice or left out, a wrong dtype, shape or size; the message names it and says what would be right.
 * Inputs are copied before this returns.
 *
 * A model may have state, the buffers that its program writes: it is kept on the device from run to run. A run that
 * fails after it began loses it; later runs are then FAILED_PRECONDITION until ttpu_model_reset. */
int ttpu_model_run(ttpu_model *model, uint32_t count, const ttpu_tensor *inputs, ttpu_results **out);
/* Puts the state back to what was saved, and the random numbers to the beginning of their sequence. */
int ttpu_model_reset(ttpu_model *model);
/* The seed of the model's random operators, from their beginning; it is 0 before. No effect where it has none. */
void ttpu_model_seed(ttpu_model *model, uint64_t seed);

/* ---- results ---- */

uint32_t ttpu_results_count(const ttpu_results *results);
const ttpu_tensor *ttpu_results_at(const ttpu_results *results, uint32_t index); /* in the order of the outputs */
const ttpu_tensor *ttpu_results_find(const ttpu_results *results, const char *name);
void ttpu_results_free(ttpu_results *results);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
