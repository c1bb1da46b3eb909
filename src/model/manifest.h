/* manifest: manifest.json, which says what a saved program's arguments and results are.
 *
 *   {"format": "ttpu model", "version": 1, "program": "program.mlirbc", "weights": "weights.safetensors",
 *    "arguments": [{"name": "linear.weight", "role": "weight", "dtype": "float32", "shape": [4, 4]}, ...],
 *    "results": [{"name": "logits", "role": "output", "dtype": "float32", "shape": [2, 4]}, ...],
 *    "random": {"slots": [0], "drawn": 100}, "metadata": {"author": "..."}}
 *
 * An argument is an input of each run, a weight, a state (a weight that the program writes; the result of role state and
 * the same name is its next value) or random: the vector of integers in which random operators have a seed at each of
 * `slots` and an offset behind it, which grows by `drawn` from run to run. What else is in the object is for people. */
#ifndef TTPU_MODEL_MANIFEST_H
#define TTPU_MODEL_MANIFEST_H

#include "ir/ir.h"
#include "model/json.h"
#include "model/model.h"

typedef enum { MODEL_INPUT, MODEL_WEIGHT, MODEL_STATE, MODEL_RANDOM } model_role;

typedef struct model_argument {
  ttpu_tensor type; /* with its name */
  ttpu_dtype dtype;
  model_role role;
} model_argument;

typedef struct model_result {
  ttpu_tensor type;
  ttpu_dtype dtype;
  int32_t state; /* the argument whose next value it is; -1: an output */
} model_result;

typedef struct model_manifest {
  const char *program, *weights; /* names of files */
  uint32_t argument_count, result_count, input_count, output_count, state_count, random_count;
  model_argument *arguments;
  model_result *results;
  ttpu_tensor *inputs, *outputs; /* those arguments and results */
  const uint32_t *random_slots;
  uint64_t random_drawn;
  const json_value *metadata;
} model_manifest;

/* Reads the text; all is in the arena. INVALID_ARGUMENT names what is wrong. */
ttpu_status model_manifest_read(base_arena *arena, const char *text, size_t length, model_manifest *out);
/* Does the program have these arguments and results? */
ttpu_status model_manifest_check(const model_manifest *m, const ir_func *f);

#endif
