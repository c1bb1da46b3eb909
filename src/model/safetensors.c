#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/json.h"
#include "model/model.h"

enum { LONGEST_HEADER = 100 << 20 }; /* the format's own limit is 100 MB */

static const struct {
  const char *name;
  ttpu_dtype dtype;
} dtypes[] = {{"BOOL", TTPU_BOOL}, {"U8", TTPU_U8},   {"I8", TTPU_I8},          {"I16", TTPU_I16},
              {"U16", TTPU_U16},   {"I32", TTPU_I32}, {"U32", TTPU_U32},        {"I64", TTPU_I64},
              {"U64", TTPU_U64},   {"F16", TTPU_F16}, {"BF16", TTPU_BF16},      {"F32", TTPU_F32},
              {"F64", TTPU_F64},   {"C64", TTPU_C64}, {"F8_E5M2", TTPU_F8E5M2}, {"F8_E4M3", TTPU_F8E4M3FN}};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

static const char *dtype_from_name(const char *name) {
  for (int i = 0; name && i < DTYPE_COUNT; ++i)
    if (strcmp(dtypes[i].name, name) == 0) return base_dtypes[dtypes[i].dtype].name;
  return NULL;
}

static const char *name_of_dtype(ttpu_dtype dtype) {
  for (int i = 0; i < DTYPE_COUNT; ++i)
    if (dtypes[i].dtype == dtype) return dtypes[i].name;
  return NULL;
}

/* ---- reading ---- */

static ttpu_status map_file(const char *path, safetensors *s) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (fd < 0) return base_fail(model_open_code(errno), "%s cannot be opened: %s", path, strerror(errno));
  ttpu_status status = TTPU_OK;
  if (fstat(fd, &info) != 0 || info.st_size < (off_t)sizeof(uint64_t)) {
    status = base_fail(TTPU_INVALID_ARGUMENT, "%s is no safetensors file: it is too short", path);
  } else {
    void *mapped = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) status = base_fail(TTPU_UNAVAILABLE, "%s cannot be mapped: %s", path, strerror(errno));
    else s->mapped = mapped, s->length = (size_t)info.st_size;
  }
  close(fd);
  return status;
}

/* A list of integers from 0 on, in the arena. */
static bool read_list(base_arena *arena, const json_value *v, uint32_t most, const int64_t **out, uint32_t *count) {
  if (!v || v->kind != JSON_ARRAY || v->count > most) return false;
  int64_t *list = base_arena_alloc(arena, v->count * sizeof *list + 1);
  *count = 0;
  for (const json_value *item = v->first; list && item; item = item->next) {
    if (!item->is_integer || item->integer < 0) return false;
    list[(*count)++] = item->integer;
  }
  *out = list;
  return list != NULL;
}

static ttpu_status read_tensor(safetensors *s, const json_value *v, const uint8_t *data, size_t bytes) {
  ttpu_tensor *t = &s->tensors[s->count];
  const int64_t *offsets;
  uint32_t offset_count;
  size_t wanted;
  t->name = v->name;
  t->dtype = dtype_from_name(json_text(json_member(v, "dtype")));
  if (!t->dtype)
    return base_fail(TTPU_INVALID_ARGUMENT, "the tensor %s has no dtype that is known: %s", v->name,
                     json_text(json_member(v, "dtype")) ? json_text(json_member(v, "dtype")) : "(none)");
  if (!read_list(&s->arena, json_member(v, "shape"), TTPU_MAX_RANK, &t->dims, &t->rank))
    return base_fail(TTPU_INVALID_ARGUMENT, "the tensor %s has no shape of at most %d sizes", v->name, TTPU_MAX_RANK);
  if (!read_list(&s->arena, json_member(v, "data_offsets"), 2, &offsets, &offset_count) || offset_count != 2 ||
      offsets[0] > offsets[1] || (uint64_t)offsets[1] > bytes)
    return base_fail(TTPU_INVALID_ARGUMENT, "the tensor %s lies outside of the file's data", v->name);
  t->bytes = (size_t)(offsets[1] - offsets[0]);
  t->data = data + offsets[0];
  if (!model_tensor_bytes(t, &wanted) || wanted != t->bytes)
    return base_fail(TTPU_INVALID_ARGUMENT, "the tensor %s has %zu bytes, which its shape and dtype do not take",
                     v->name, t->bytes);
  ++s->count;
  return TTPU_OK;
}

static ttpu_status read_header(safetensors *s) {
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= (uint64_t)s->mapped[i] << 8 * i;
  if (length > LONGEST_HEADER || length > s->length - 8)
    return base_fail(TTPU_INVALID_ARGUMENT, "a header of %llu bytes in a file of %zu", (unsigned long long)length,
                     s->length);
  const json_value *header;
  BASE_TRY(json_parse(&s->arena, (const char *)s->mapped + 8, (size_t)length, &header));
  if (header->kind != JSON_OBJECT) return base_fail(TTPU_INVALID_ARGUMENT, "the header is no object");
  s->tensors = base_arena_zalloc(&s->arena, header->count * sizeof *s->tensors + 1);
  if (!s->tensors) return base_no_memory(header->count * sizeof *s->tensors);
  for (const json_value *v = header->first; v; v = v->next)
    if (strcmp(v->name, "__metadata__") != 0)
      BASE_TRY(read_tensor(s, v, s->mapped + 8 + length, s->length - 8 - (size_t)length));
  return TTPU_OK;
}

ttpu_status safetensors_open(const char *path, safetensors *s) {
  *s = (safetensors){0};
  base_arena_init(&s->arena);
  BASE_TRY(map_file(path, s));
  ttpu_status status = read_header(s);
  return status == TTPU_OK ? status : base_fail_context(status, "%s", path);
}

void safetensors_close(safetensors *s) {
  if (s->mapped) munmap((void *)s->mapped, s->length);
  base_arena_free(&s->arena);
  *s = (safetensors){0};
}

const ttpu_tensor *safetensors_find(const safetensors *s, const char *name) {
  for (uint32_t i = 0; i < s->count; ++i)
    if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
  return NULL;
}

/* ---- writing ---- */

static ttpu_status put_header(base_text *header, uint32_t count, const ttpu_tensor *tensors) {
  size_t at = 0;
  base_text_put(header, "{", 1);
  for (uint32_t i = 0; i < count; ++i) {
    const char *dtype = name_of_dtype(model_dtype(tensors[i].dtype));
    if (!dtype)
      return base_fail(TTPU_UNIMPLEMENTED, "%s: safetensors has no dtype for %s", tensors[i].name, tensors[i].dtype);
    if (i) base_text_put(header, ",", 1);
    base_text_put_json(header, tensors[i].name, strlen(tensors[i].name));
    base_text_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (uint32_t d = 0; d < tensors[i].rank; ++d)
      base_text_printf(header, "%s%lld", d ? "," : "", (long long)tensors[i].dims[d]);
    base_text_printf(header, "],\"data_offsets\":[%zu,%zu]}", at, at + tensors[i].bytes);
    at += tensors[i].bytes;
  }
  base_text_put(header, "}", 1);
  while (!header->failed && header->length % 8) base_text_put(header, " ", 1); /* so that the data is aligned */
  return header->failed ? base_no_memory(header->length) : TTPU_OK;
}

ttpu_status safetensors_write(const char *path, uint32_t count, const ttpu_tensor *tensors) {
  base_text header = {0};
  ttpu_status status = put_header(&header, count, tensors);
  FILE *file = status == TTPU_OK ? fopen(path, "wbe") : NULL;
  if (status == TTPU_OK && !file)
    status = base_fail(model_open_code(errno), "%s cannot be written: %s", path, strerror(errno));
  if (file) {
    uint8_t length[8];
    for (int i = 0; i < 8; ++i) length[i] = (uint8_t)(header.length >> 8 * i);
    bool good = fwrite(length, 1, 8, file) == 8 && fwrite(header.data, 1, header.length, file) == header.length;
    for (uint32_t i = 0; i < count && good; ++i)
      good = fwrite(tensors[i].data, 1, tensors[i].bytes, file) == tensors[i].bytes;
    good = fclose(file) == 0 && good;
    if (!good) status = base_fail(TTPU_UNAVAILABLE, "%s could not be written whole: %s", path, strerror(errno));
  }
  base_text_free(&header);
  return status;
}
