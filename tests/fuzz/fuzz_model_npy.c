/* The reader of NumPy's files. What it takes has the bytes that its shape takes, and written again is read as the same. */
#include "memory_file.h"
#include "model/model.h"
#include "model/npy.h"

static const int64_t dims[] = {2, 3, 1, 0};
static const uint8_t data[48] = {0, 1, 2, 3, 254, 255};

static const ttpu_tensor arrays[] = {
    {.name = "", .dtype = "float32", .rank = 2, .dims = dims, .data = (void *)data, .bytes = 24},
    {.name = "", .dtype = "int64", .rank = 1, .dims = dims, .data = (void *)data, .bytes = 16},
    {.name = "", .dtype = "bool", .rank = 0, .dims = dims, .data = (void *)data, .bytes = 1},
    {.name = "", .dtype = "complex64", .rank = 4, .dims = dims, .data = (void *)data, .bytes = 0},
};
enum { ARRAYS = sizeof arrays / sizeof *arrays };

bool fuzz_seed(uint32_t number, base_text *out) {
  if (number >= ARRAYS) return false;
  memory_file f = memory_file_new("", 0);
  FUZZ_MUST(npy_write(f.path, &arrays[number]) == TTPU_OK);
  memory_file_read(&f, out);
  memory_file_free(&f);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  memory_file f = memory_file_new(bytes, size), copy = memory_file_new("", 0);
  base_arena arena;
  base_arena_init(&arena);
  ttpu_tensor t = {.name = ""}, again = {.name = ""};
  ttpu_status status = npy_read(&arena, f.path, &t);
  FUZZ_MUST(status == TTPU_OK || status == TTPU_INVALID_ARGUMENT || status == TTPU_UNIMPLEMENTED);
  if (status == TTPU_OK) {
    size_t wanted;
    FUZZ_MUST(model_tensor_bytes(&t, &wanted) && wanted == t.bytes && t.bytes <= size);
    FUZZ_MUST(npy_write(copy.path, &t) == TTPU_OK);
    FUZZ_MUST(npy_read(&arena, copy.path, &again) == TTPU_OK);
    FUZZ_MUST(strcmp(t.dtype, again.dtype) == 0 && t.rank == again.rank && t.bytes == again.bytes);
    FUZZ_MUST(memcmp(t.dims, again.dims, t.rank * sizeof *t.dims) == 0);
    FUZZ_MUST(t.bytes == 0 || memcmp(t.data, again.data, t.bytes) == 0);
  }
  base_arena_free(&arena);
  memory_file_free(&f);
  memory_file_free(&copy);
  return 0;
}
