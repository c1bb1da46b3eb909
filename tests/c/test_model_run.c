/* The C API on a saved model that this test writes: y = x * weight + state, then state + x. */
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "ir/ir.h"
#include "model/safetensors.h"
#include "ttpu.h"

static const int64_t dims[] = {4};
static char folder[64];
static ttpu_runtime *runtime;

/* ---- the model's files ---- */

static void write_file(const char *name, const void *bytes, size_t length) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, length, file) == length);
  if (file) fclose(file);
}

static void write_program(void) {
  base_arena arena;
  base_text bytes = {0};
  base_arena_init(&arena);
  ir_func *f = ir_func_new(&arena, "main");
  ir_builder b = ir_builder_on(f);
  ir_type type = ir_tensor(&b, TTPU_F32, 1, dims);
  ir_value weight = ir_param(&b, type), state = ir_param(&b, type), x = ir_param(&b, type);
  ir_value results[] = {ir_add(&b, ir_multiply(&b, x, weight), state), ir_add(&b, state, x)};
  static const bool donate[] = {false, true, false};
  ir_return(&b, 2, results);
  f->donate = donate;
  CHECK(b.status == TTPU_OK);
  CHECK_OK(ir_func_write(f, 0, &bytes));
  write_file("program.mlirbc", bytes.data, bytes.length);
  base_text_free(&bytes);
  base_arena_free(&arena);
}

#define VALUE(name, role) "{\"name\":\"" name "\",\"role\":\"" role "\",\"dtype\":\"float32\",\"shape\":[4]}"

static bool open_all(void) {
  static const char manifest[] =
      "{\"format\":\"ttpu model\",\"version\":1,\"program\":\"program.mlirbc\",\"weights\":\"weights.safetensors\","
      "\"arguments\":[" VALUE("w", "weight") "," VALUE("s", "state") "," VALUE("x", "input") "],\"results\":[" VALUE(
          "y", "output") "," VALUE("s", "state") "],\"metadata\":{\"a\":\"b\"}}";
  static const float weight[] = {1, 2, 3, 4}, state[] = {10, 20, 30, 40};
  const ttpu_tensor tensors[] = {{"w", "float32", 1, dims, weight, 16}, {"s", "float32", 1, dims, state, 16}};
  char path[128];
  if (runtime) return true;
  strcpy(folder, "/tmp/test_model_XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return false;
  write_program();
  write_file("manifest.json", manifest, sizeof manifest - 1);
  snprintf(path, sizeof path, "%s/weights.safetensors", folder);
  return CHECK_OK(safetensors_write(path, 2, tensors)) &&
         CHECK_OK((ttpu_status)ttpu_runtime_open(TTPU_SOFT_PATH, NULL, &runtime));
}

static ttpu_model *load(void) {
  ttpu_model *model = NULL;
  if (open_all()) CHECK_OK((ttpu_status)ttpu_model_load(runtime, folder, 0, &model));
  return model;
}

/* y[0] of a run on four equal numbers; -1: it failed. */
static float run(ttpu_model *model, float number) {
  const float numbers[] = {number, number, number, number};
  const ttpu_tensor x = {"x", "float32", 1, dims, numbers, sizeof numbers};
  ttpu_results *results;
  if (!CHECK_OK((ttpu_status)ttpu_model_run(model, 1, &x, &results))) return -1;
  const ttpu_tensor *y = ttpu_results_find(results, "y");
  float first = y ? *(const float *)y->data : -1;
  CHECK(ttpu_results_count(results) == 1 && ttpu_results_at(results, 0) == y && !ttpu_results_at(results, 1));
  CHECK(!ttpu_results_find(results, "s"));
  ttpu_results_free(results);
  return first;
}

/* ---- tests ---- */

TEST(descriptions) {
  ttpu_model *model = load();
  REQUIRE(model);
  CHECK(ttpu_model_input_count(model) == 1 && ttpu_model_output_count(model) == 1);
  const ttpu_tensor *x = ttpu_model_input(model, 0);
  CHECK_STR(x->name, "x");
  CHECK_STR(x->dtype, "float32");
  CHECK(x->rank == 1 && x->dims[0] == 4 && x->bytes == 16 && !x->data && ttpu_model_find_input(model, "x") == x);
  CHECK(!ttpu_model_input(model, 1) && !ttpu_model_find_input(model, "w") && !ttpu_model_find_output(model, "s"));
  CHECK_STR(ttpu_model_find_output(model, "y")->name, "y");
  CHECK_STR(ttpu_model_metadata(model, "a"), "b");
  CHECK(ttpu_model_metadata(model, "b") == NULL);
  CHECK(ttpu_runtime_device_count(runtime) == 1 && strstr(ttpu_runtime_plugin(runtime), "libttpu_soft"));
  CHECK(ttpu_dtype_bytes("bfloat16") == 2 && ttpu_dtype_bytes("float7") == 0 && ttpu_dtype_bytes(NULL) == 0);
  ttpu_model_free(model);
}

TEST(state_goes_on_and_comes_back) {
  ttpu_model *model = load();
  REQUIRE(model);
  CHECK_NEAR(run(model, 1), 11, 0);
  CHECK_NEAR(run(model, 2), 13, 0);
  CHECK_NEAR(run(model, 0), 13, 0);
  CHECK_OK((ttpu_status)ttpu_model_reset(model));
  CHECK_NEAR(run(model, 1), 11, 0);
  ttpu_model *other = load(); /* with a state of its own */
  CHECK_NEAR(run(other, 0), 10, 0);
  ttpu_model_free(other);
  ttpu_model_free(model);
}

TEST(wrong_inputs) {
  static const float numbers[8];
  static const int64_t wide[] = {8}, deep[] = {4, 1};
  const ttpu_tensor good = {"x", "float32", 1, dims, numbers, 16}, twice[] = {good, good};
  const struct {
    ttpu_tensor tensor;
    const char *message;
  } cases[] = {{{"z", "float32", 1, dims, numbers, 16}, "no input \"z\"; its inputs are: \"x\" float32[4]"},
               {{NULL, "float32", 1, dims, numbers, 16}, "no input \"(no name)\""},
               {{"x", "float64", 1, dims, numbers, 16}, "is float64[4]; the model was exported for float32[4]"},
               {{"x", NULL, 1, dims, numbers, 16}, "is (no dtype)[4]"},
               {{"x", "float32", 1, wide, numbers, 32}, "is float32[8]"},
               {{"x", "float32", 2, deep, numbers, 16}, "is float32[4, 1]"},
               {{"x", "float32", 0, NULL, numbers, 4}, "is float32[]"},
               {{"x", "float32", 1, dims, numbers, 12}, "comes with 12 bytes; its shape and dtype take 16"},
               {{"x", "float32", 1, dims, NULL, 16}, "comes with 0 bytes"}};
  ttpu_model *model = load();
  ttpu_results *results;
  REQUIRE(model);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, cases[i].message,
                (ttpu_status)ttpu_model_run(model, 1, &cases[i].tensor, &results));
    CHECK(results == NULL);
  }
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "given twice", (ttpu_status)ttpu_model_run(model, 2, twice, &results));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "\"x\" is missing: float32[4]",
              (ttpu_status)ttpu_model_run(model, 0, NULL, &results));
  CHECK_NEAR(run(model, 0), 10, 0); /* nothing of it touched the state */
  ttpu_model_free(model);
}

TEST(wrong_places) {
  ttpu_model *model;
  ttpu_runtime *none;
  REQUIRE(open_all());
  CHECK_FAILS(TTPU_NOT_FOUND, "is no saved model", (ttpu_status)ttpu_model_load(runtime, "/tmp", 0, &model));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no device 1: the runtime has 1",
              (ttpu_status)ttpu_model_load(runtime, folder, 1, &model));
  CHECK(model == NULL);
  CHECK(ttpu_runtime_open("/no/plugin.so", NULL, &none) != 0 && none == NULL);
  CHECK_HAS(ttpu_message(), "/no/plugin.so");
  CHECK_STR(ttpu_code_name(5), "NOT_FOUND");
  ttpu_model_free(NULL);
  ttpu_results_free(NULL);
  ttpu_runtime_close(NULL);
}

enum { THREADS = 4, RUNS = 25 };

static void *run_often(void *model) {
  for (int i = 0; i < RUNS; ++i) CHECK(run(model, 1) >= 11);
  return NULL;
}

TEST(threads_share_a_state) {
  ttpu_model *model = load();
  pthread_t threads[THREADS];
  REQUIRE(model);
  for (int i = 0; i < THREADS; ++i) CHECK_EQ(pthread_create(&threads[i], NULL, run_often, model), 0);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  CHECK_NEAR(run(model, 0), 10 + THREADS * RUNS, 0); /* every run saw the one before it */
  ttpu_model_free(model);
}

TEST(the_end) { /* leaves nothing behind */
  char path[128];
  static const char *const files[] = {"program.mlirbc", "manifest.json", "weights.safetensors"};
  for (int i = 0; i < 3; ++i) {
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    unlink(path);
  }
  rmdir(folder);
  ttpu_runtime_close(runtime);
}
