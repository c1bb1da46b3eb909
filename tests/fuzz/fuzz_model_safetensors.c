/* The reader of safetensors. What it takes lies in the file, and written again is read as the same. */
#include "memory_file.h"
#include "model/model.h"
#include "model/safetensors.h"

static const int64_t dims[] = {2, 3, 0, 1};
static const uint8_t data[48] = {0, 1, 2, 3, 254, 255};

static const ttpu_tensor tensors[] = {
    {.name = "linear.weight", .dtype = "float32", .rank = 2, .dims = dims, .data = (void *)data, .bytes = 24},
    {.name = "e\xcc\x81 \"quoted\"", .dtype = "bfloat16", .rank = 1, .dims = dims, .data = (void *)data, .bytes = 4},
    {.name = "empty", .dtype = "int64", .rank = 3, .dims = dims, .data = (void *)data, .bytes = 0},
    {.name = "scalar", .dtype = "bool", .rank = 0, .dims = dims, .data = (void *)data, .bytes = 1},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

bool fuzz_seed(uint32_t number, base_text *out) {
  if (number > TENSORS) return false;
  memory_file f = memory_file_new("", 0);
  FUZZ_MUST(safetensors_write(f.path, number, tensors) == TTPU_OK);
  memory_file_read(&f, out);
  memory_file_free(&f);
  return true;
}

static void check_same(const safetensors *a, const safetensors *b) {
  FUZZ_MUST(a->count == b->count);
  for (uint32_t i = 0; i < a->count; ++i) {
    const ttpu_tensor *x = &a->tensors[i], *y = &b->tensors[i];
    FUZZ_MUST(strcmp(x->name, y->name) == 0 && strcmp(x->dtype, y->dtype) == 0 && x->rank == y->rank);
    FUZZ_MUST(memcmp(x->dims, y->dims, x->rank * sizeof *x->dims) == 0 && x->bytes == y->bytes);
    FUZZ_MUST(x->bytes == 0 || memcmp(x->data, y->data, x->bytes) == 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  memory_file f = memory_file_new(bytes, size), copy = memory_file_new("", 0);
  safetensors s, again;
  ttpu_status status = safetensors_open(f.path, &s);
  FUZZ_MUST(status == TTPU_OK || status == TTPU_INVALID_ARGUMENT);
  if (status == TTPU_OK) {
    for (uint32_t i = 0; i < s.count; ++i) {
      const uint8_t *at = s.tensors[i].data;
      FUZZ_MUST(at >= s.mapped && s.tensors[i].bytes <= s.length - (size_t)(at - s.mapped));
    }
    FUZZ_MUST(safetensors_write(copy.path, s.count, s.tensors) == TTPU_OK);
    FUZZ_MUST(safetensors_open(copy.path, &again) == TTPU_OK);
    check_same(&s, &again);
    safetensors_close(&again);
  }
  safetensors_close(&s);
  memory_file_free(&f);
  memory_file_free(&copy);
  return 0;
}
