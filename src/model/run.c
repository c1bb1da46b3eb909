/* ttpu-run MODEL [options]: runs a saved model once on tensors from files. `ttpu run` is this program. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/model.h"
#include "model/npy.h"
#include "model/safetensors.h"

static const char usage[] =
    "usage: ttpu run MODEL [--input NAME=FILE | --input FILE.safetensors]... [--output PATH] [options]\n"
    "\n"
    "Runs a model that torch.tpu.export saved, without Python.\n"
    "\n"
    "  --input NAME=FILE    an input from a .npy file, or the tensor of its name from a .safetensors file\n"
    "  --input FILE         every tensor of a .safetensors file, by its name\n"
    "  --output PATH        a folder, which gets NAME.npy for each output; or a .safetensors file for all of them\n"
    "  --describe           print inputs and outputs, and run nothing\n"
    "  --repeat N           run N times, with the state going on; time and results are those of the last one\n"
    "  --seed N             of the model's random operators (0)\n"
    "  --device N           (0)\n"
    "  --plugin PATH        a PJRT plugin, or soft; TTPU_PLUGIN by default\n"
    "  --plugin-options T   name=value,name=value; TTPU_PLUGIN_OPTIONS by default\n";

typedef struct settings {
  const char *model, *output, *plugin, *plugin_options;
  const char **inputs;
  uint32_t input_count;
  unsigned long long seed, repeat, device;
  bool describe;
} settings;

/* Tensors from files, and the files that hold them. */
typedef struct inputs {
  base_arena arena;
  ttpu_tensor *tensors;
  uint32_t count, capacity;
  safetensors *files;
  uint32_t file_count, file_capacity;
} inputs;

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* ---- arguments ---- */

static bool read_count(const char *name, const char *text, unsigned long long *out) {
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  if (errno == 0 && *text >= '0' && *text <= '9' && !*end) return true;
  fprintf(stderr, "ttpu run: --%s %s: expected a number\n", name, text);
  return false;
}

/* False: not to be run; *status is what the program exits with. */
static bool read_settings(int argc, char **argv, settings *s, int *status) {
  enum { INPUT = 256, OUTPUT, DESCRIBE, REPEAT, SEED, DEVICE, PLUGIN, PLUGIN_OPTIONS };
  static const struct option options[] = {{"input", required_argument, NULL, INPUT},
                                          {"output", required_argument, NULL, OUTPUT},
                                          {"describe", no_argument, NULL, DESCRIBE},
                                          {"repeat", required_argument, NULL, REPEAT},
                                          {"seed", required_argument, NULL, SEED},
                                          {"device", required_argument, NULL, DEVICE},
                                          {"plugin", required_argument, NULL, PLUGIN},
                                          {"plugin-options", required_argument, NULL, PLUGIN_OPTIONS},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  *status = 2;
  for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
    switch (c) {
      case INPUT: s->inputs[s->input_count++] = optarg; break;
      case OUTPUT: s->output = optarg; break;
      case DESCRIBE: s->describe = true; break;
      case PLUGIN: s->plugin = optarg; break;
      case PLUGIN_OPTIONS: s->plugin_options = optarg; break;
      case REPEAT:
        if (!read_count("repeat", optarg, &s->repeat)) return false;
        break;
      case SEED:
        if (!read_count("seed", optarg, &s->seed)) return false;
        break;
      case DEVICE:
        if (!read_count("device", optarg, &s->device)) return false;
        break;
      case 'h':
        fputs(usage, stdout);
        *status = 0;
        return false;
      default: fputs("try ttpu run --help\n", stderr); return false;
    }
  }
  if (optind + 1 != argc) {
    fprintf(stderr, optind == argc ? "ttpu run: a model's folder is missing\n%s" : "ttpu run: one model at a time\n%s",
            usage);
    return false;
  }
  s->model = argv[optind];
  return true;
}

/* ---- inputs ---- */

static ttpu_status add_tensor(inputs *in, const ttpu_tensor *t, const char *name) {
  if (!BASE_GROW(in->tensors, in->count, in->capacity)) return base_no_memory(sizeof *t);
  in->tensors[in->count] = *t;
  in->tensors[in->count++].name = name;
  return TTPU_OK;
}

/* name NULL: all tensors of the file. */
static ttpu_status add_safetensors(inputs *in, const char *path, const char *name) {
  if (!BASE_GROW(in->files, in->file_count, in->file_capacity)) return base_no_memory(sizeof *in->files);
  safetensors *file = &in->files[in->file_count++];
  BASE_TRY(safetensors_open(path, file));
  for (uint32_t i = 0; !name && i < file->count; ++i)
    BASE_TRY(add_tensor(in, &file->tensors[i], file->tensors[i].name));
  if (!name) return TTPU_OK;
  const ttpu_tensor *t = safetensors_find(file, name);
  if (!t) return base_fail(TTPU_NOT_FOUND, "%s has no tensor \"%s\"", path, name);
  return add_tensor(in, t, name);
}

static ttpu_status add_input(inputs *in, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals && ends_with(text, ".safetensors")) return add_safetensors(in, text, NULL);
  if (!equals) return base_fail(TTPU_INVALID_ARGUMENT, "--input %s: expected NAME=FILE, or a .safetensors file", text);
  char *name = base_arena_printf(&in->arena, "%.*s", (int)(equals - text), text);
  if (!name) return base_no_memory(strlen(text));
  if (ends_with(equals + 1, ".safetensors")) return add_safetensors(in, equals + 1, name);
  ttpu_tensor t;
  BASE_TRY(npy_read(&in->arena, equals + 1, &t));
  return add_tensor(in, &t, name);
}

/* ---- outputs ---- */

static void print_type(const char *what, const ttpu_tensor *t) {
  base_text text = {0};
  model_put_type(&text, t);
  printf("%s %s %s\n", what, t->name, text.failed ? "" : text.data);
  base_text_free(&text);
}

static void describe(const ttpu_model *m) {
  for (uint32_t i = 0; i < ttpu_model_input_count(m); ++i) print_type("input ", ttpu_model_input(m, i));
  for (uint32_t i = 0; i < ttpu_model_output_count(m); ++i) print_type("output", ttpu_model_output(m, i));
}

static ttpu_status write_folder(const char *folder, const ttpu_results *r) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return base_fail(model_open_code(errno), "%s cannot be made: %s", folder, strerror(errno));
  base_arena arena;
  base_arena_init(&arena);
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0; i < ttpu_results_count(r) && status == TTPU_OK; ++i) {
    const ttpu_tensor *t = ttpu_results_at(r, i);
    char *path = base_arena_printf(&arena, "%s/%s.npy", folder, t->name);
    for (char *c = path ? path + strlen(folder) + 1 : NULL; c && *c; ++c)
      if (*c == '/') *c = '_';
    status = path ? npy_write(path, t) : base_no_memory(strlen(folder));
  }
  base_arena_free(&arena);
  return status;
}

static ttpu_status write_results(const char *path, const ttpu_results *r) {
  if (!path) return TTPU_OK;
  if (!ends_with(path, ".safetensors")) return write_folder(path, r);
  return safetensors_write(path, ttpu_results_count(r), ttpu_results_count(r) ? ttpu_results_at(r, 0) : NULL);
}

/* ---- all of it ---- */

static ttpu_status run(const settings *s, ttpu_model *m, inputs *in) {
  ttpu_results *results = NULL;
  ttpu_status status = TTPU_OK;
  int64_t start = 0, end = 0;
  ttpu_model_seed(m, s->seed);
  for (uint32_t i = 0; i < s->input_count && status == TTPU_OK; ++i) status = add_input(in, s->inputs[i]);
  for (unsigned long long i = 0; i < s->repeat && status == TTPU_OK; ++i) {
    ttpu_results_free(results);
    start = base_now_ns();
    status = (ttpu_status)ttpu_model_run(m, in->count, in->tensors, &results);
    end = base_now_ns();
  }
  if (status == TTPU_OK && results) status = write_results(s->output, results);
  for (uint32_t i = 0; status == TTPU_OK && results && i < ttpu_results_count(results); ++i)
    print_type("output", ttpu_results_at(results, i));
  if (status == TTPU_OK && results) printf("%.3f ms\n", 1e-6 * (double)(end - start));
  ttpu_results_free(results);
  return status;
}

int main(int argc, char **argv) {
  const char **listed = base_calloc((size_t)argc, sizeof *listed);
  settings s = {.inputs = listed, .repeat = 1};
  inputs in = {0};
  int exit_status = 1;
  if (!listed || !read_settings(argc, argv, &s, &exit_status)) {
    base_free(listed);
    return exit_status;
  }
  base_arena_init(&in.arena);
  ttpu_runtime *runtime = NULL;
  ttpu_model *model = NULL;
  int status = ttpu_runtime_open(s.plugin, s.plugin_options, &runtime);
  if (!status) status = ttpu_model_load(runtime, s.model, (uint32_t)s.device, &model);
  if (!status && s.describe) describe(model);
  if (!status && !s.describe) status = run(&s, model, &in);
  if (status) fprintf(stderr, "ttpu run: %s: %s\n", ttpu_code_name(status), ttpu_message());
  ttpu_model_free(model);
  ttpu_runtime_close(runtime);
  for (uint32_t i = 0; i < in.file_count; ++i) safetensors_close(&in.files[i]);
  base_free(in.files);
  base_free(in.tensors);
  base_arena_free(&in.arena);
  base_free(listed);
  return status ? 1 : 0;
}
