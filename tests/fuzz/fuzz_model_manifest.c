/* The reader of JSON, and of manifests made of it. What it takes is of the counts that it says, and its names are UTF-8
 * that JSON can hold: written as JSON they are read as the same. */
#include "fuzz.h"
#include "model/json.h"
#include "model/manifest.h"

#define ARGUMENT(name, role, dtype, shape) \
  "{\"name\": \"" name "\", \"role\": \"" role "\", \"dtype\": \"" dtype "\", \"shape\": " shape "}"
#define HEAD \
  "{\"format\": \"ttpu model\", \"version\": 1, \"program\": \"program.mlirbc\", \"weights\": \"w.safetensors\", "

static const char *const manifests[] = {
    HEAD "\"arguments\": [], \"results\": []}",
    HEAD "\"arguments\": [" ARGUMENT("linear.weight", "weight", "float32", "[4, 4]") ", " ARGUMENT(
        "x", "input", "bfloat16", "[2, 4]") "], \"results\": [" ARGUMENT("logits", "output", "float32", "[2, 4]") "]}",
    HEAD "\"arguments\": [" ARGUMENT("mean", "state", "float64", "[]") ", " ARGUMENT("random", "random", "int64", "[6]")
        "], \"results\": [" ARGUMENT("mean", "state", "float64", "[]")
            "], \"random\": {\"slots\": [0, 2, 4], \"drawn\": 100}, \"metadata\": {\"author\": \"\\u00e9\\ud83d\\ude00\"}}",
    "[1, -2.5e1, true, false, null, {\"a\": [[], {}]}, \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\", 9223372036854775807]",
};

bool fuzz_seed(uint32_t number, base_text *out) {
  if (number >= sizeof manifests / sizeof *manifests) return false;
  base_text_put(out, manifests[number], strlen(manifests[number]));
  return true;
}

/* Written as JSON, the text is read as itself. */
static void check_text(base_arena *arena, const char *text) {
  base_text json = {0};
  const json_value *again;
  if (!text) return;
  base_text_put_json(&json, text, strlen(text));
  FUZZ_MUST(!json.failed && json_parse(arena, json.data, json.length, &again) == TTPU_OK);
  FUZZ_MUST(json_text(again) && strcmp(json_text(again), text) == 0);
  base_text_free(&json);
}

static void check_value(base_arena *arena, const json_value *v) {
  uint32_t count = 0;
  check_text(arena, v->name);
  check_text(arena, json_text(v));
  for (const json_value *item = v->first; item; item = item->next, ++count) check_value(arena, item);
  FUZZ_MUST(count == v->count);
  FUZZ_MUST(!v->is_integer || v->kind == JSON_NUMBER);
}

static void check_manifest(const model_manifest *m) {
  uint32_t inputs = 0, states = 0, outputs = 0;
  int64_t length = 0; /* of the random numbers */
  for (uint32_t i = 0; i < m->argument_count; ++i) {
    size_t bytes;
    inputs += m->arguments[i].role == MODEL_INPUT;
    if (m->arguments[i].role == MODEL_RANDOM) length = m->arguments[i].type.dims[0];
    states += m->arguments[i].role == MODEL_STATE;
    FUZZ_MUST(model_tensor_bytes(&m->arguments[i].type, &bytes) && bytes == m->arguments[i].type.bytes);
  }
  for (uint32_t i = 0; i < m->result_count; ++i) {
    outputs += m->results[i].state < 0;
    FUZZ_MUST(m->results[i].state < (int32_t)m->argument_count);
  }
  FUZZ_MUST(inputs == m->input_count && states == m->state_count && outputs == m->output_count);
  for (uint32_t i = 0; i < m->random_count; ++i) FUZZ_MUST(m->random_slots[i] < length - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  base_arena arena;
  const json_value *v;
  model_manifest m;
  base_arena_init(&arena);
  ttpu_status status = json_parse(&arena, (const char *)bytes, size, &v);
  FUZZ_MUST(status == TTPU_OK || status == TTPU_INVALID_ARGUMENT);
  if (status == TTPU_OK) check_value(&arena, v);
  status = model_manifest_read(&arena, (const char *)bytes, size, &m);
  FUZZ_MUST(status == TTPU_OK || status == TTPU_INVALID_ARGUMENT);
  if (status == TTPU_OK) check_manifest(&m);
  base_arena_free(&arena);
  return 0;
}
