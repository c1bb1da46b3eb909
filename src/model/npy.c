#include "model/npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "model/model.h"

static const struct {
  const char *descr;
  ttpu_dtype dtype;
} types[] = {{"|b1", TTPU_BOOL}, {"|i1", TTPU_I8},  {"<i2", TTPU_I16}, {"<i4", TTPU_I32},  {"<i8", TTPU_I64},
             {"|u1", TTPU_U8},   {"<u2", TTPU_U16}, {"<u4", TTPU_U32}, {"<u8", TTPU_U64},  {"<f2", TTPU_F16},
             {"<f4", TTPU_F32},  {"<f8", TTPU_F64}, {"<c8", TTPU_C64}, {"<c16", TTPU_C128}};
enum { TYPE_COUNT = sizeof types / sizeof *types, LONGEST_HEADER = 1 << 16 };

/* ---- the header's dict ---- */

/* What stands behind 'key': in the dict; NULL: the key is not there. */
static const char *find_value(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ') ++at;
  if (*at++ != ':') return NULL;
  while (*at == ' ') ++at;
  return at;
}

static bool read_dtype(const char *header, ttpu_tensor *t) {
  const char *at = find_value(header, "'descr'");
  if (!at || *at++ != '\'') return false;
  for (int i = 0; i < TYPE_COUNT; ++i) {
    size_t length = strlen(types[i].descr);
    if (strncmp(at, types[i].descr, length) != 0 || at[length] != '\'') continue;
    t->dtype = base_dtypes[types[i].dtype].name;
    return true;
  }
  return false;
}

/* (3, 4), (3,) or () */
static bool read_shape(const char *header, uint32_t *rank, int64_t dims[TTPU_MAX_RANK]) {
  const char *at = find_value(header, "'shape'");
  *rank = 0;
  if (!at || *at++ != '(') return false;
  for (;;) {
    while (*at == ' ' || *at == ',') ++at;
    if (*at == ')') return true;
    if (*at < '0' || *at > '9' || *rank == TTPU_MAX_RANK) return false;
    int64_t size = 0;
    for (; *at >= '0' && *at <= '9'; ++at)
      if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *at - '0', &size)) return false;
    dims[(*rank)++] = size;
  }
}

/* ---- files ---- */

static ttpu_status refuse(const char *path, const char *what) {
  return base_fail(TTPU_INVALID_ARGUMENT, "%s: %s", path, what);
}

/* The header, up to where the data begins. */
static ttpu_status read_header(FILE *file, const char *path, char *header) {
  uint8_t start[12];
  if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
    return refuse(path, "this is no .npy file");
  size_t length = start[8] | (size_t)start[9] << 8;
  if (start[6] < 1 || start[6] > 3) return refuse(path, "a version of .npy that is not known");
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, file) != 2) return refuse(path, "the file ends early");
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  if (length >= LONGEST_HEADER || fread(header, 1, length, file) != length) return refuse(path, "the file ends early");
  header[length] = '\0';
  return TTPU_OK;
}

/* Can that much follow? A header may say any size: no memory is asked for that the file has not. What is no plain file, a
 * pipe, has no size. */
static bool may_have(FILE *file, size_t bytes) {
  struct stat info;
  off_t at = ftello(file);
  if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) || at < 0) return true;
  return info.st_size >= at && bytes <= (size_t)(info.st_size - at);
}

static ttpu_status read_array(base_arena *arena, FILE *file, const char *path, char *header, ttpu_tensor *t) {
  int64_t dims[TTPU_MAX_RANK];
  BASE_TRY(read_header(file, path, header));
  if (!read_dtype(header, t))
    return refuse(path,
                  "its type is none of bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 and "
                  "complex128, little endian");
  const char *order = find_value(header, "'fortran_order'");
  if (!order || strncmp(order, "False", 5) != 0)
    return refuse(path, "the array is in Fortran's order: save numpy.ascontiguousarray of it");
  if (!read_shape(header, &t->rank, dims)) return refuse(path, "its shape is none of at most 16 sizes");
  t->dims = base_arena_dup(arena, dims, sizeof dims);
  if (!t->dims) return base_no_memory(sizeof dims);
  if (!model_tensor_bytes(t, &t->bytes)) return refuse(path, "its shape is none");
  if (!may_have(file, t->bytes)) return refuse(path, "the file ends early");
  void *data = base_arena_alloc(arena, t->bytes + 1);
  if (!data) return base_no_memory(t->bytes);
  if (fread(data, 1, t->bytes, file) != t->bytes) return refuse(path, "the file ends early");
  t->data = data;
  return TTPU_OK;
}

ttpu_status npy_read(base_arena *arena, const char *path, ttpu_tensor *t) {
  FILE *file = fopen(path, "rbe");
  if (!file) return base_fail(model_open_code(errno), "%s cannot be opened: %s", path, strerror(errno));
  char *header = base_alloc(LONGEST_HEADER);
  ttpu_status status = header ? read_array(arena, file, path, header, t) : base_no_memory(LONGEST_HEADER);
  base_free(header);
  fclose(file);
  return status;
}

ttpu_status npy_write(const char *path, const ttpu_tensor *t) {
  const char *descr = NULL;
  for (int i = 0; i < TYPE_COUNT; ++i)
    if (types[i].dtype == model_dtype(t->dtype)) descr = types[i].descr;
  if (!descr) return base_fail(TTPU_UNIMPLEMENTED, "%s: NumPy has no %s; write a .safetensors file", path, t->dtype);
  base_text header = {0};
  base_text_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (uint32_t i = 0; i < t->rank; ++i)
    base_text_printf(&header, "%lld%s", (long long)t->dims[i], i + 1 < t->rank ? ", " : t->rank == 1 ? "," : "");
  base_text_printf(&header, "), }");
  while (!header.failed && (header.length + 11) % 64) /* the data begins at a multiple of 64 */
    base_text_printf(&header, " ");
  base_text_printf(&header, "\n");
  FILE *file = header.failed ? NULL : fopen(path, "wbe");
  ttpu_status status = TTPU_OK;
  if (header.failed) status = base_no_memory(header.length);
  else if (!file) status = base_fail(model_open_code(errno), "%s cannot be written: %s", path, strerror(errno));
  if (file) {
    const uint8_t start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)header.length, (uint8_t)(header.length >> 8)};
    bool good = fwrite(start, 1, 10, file) == 10 && fwrite(header.data, 1, header.length, file) == header.length &&
                fwrite(t->data, 1, t->bytes, file) == t->bytes;
    good = fclose(file) == 0 && good;
    if (!good) status = base_fail(TTPU_UNAVAILABLE, "%s could not be written whole: %s", path, strerror(errno));
  }
  base_text_free(&header);
  return status;
}
