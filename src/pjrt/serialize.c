/* Executables as bytes, for the disk cache.
 *
 *   "TTPUEXE1" | outputs, parameters, checks, flags (u32 each)
 *   | of each output: dtype (u32), bytes (u64)
 *   | with CHECKED: the rows of bits (u64), of each check: low, high (i64), condition, length (u32), text
 *   | what the plugin serialized, to the end
 *
 * in the machine's byte order: a cache is not moved to another. The plugin's part comes back as it went; what is before
 * it is read as anything from outside is. */
#include "pjrt/pjrt_int.h"

static const char magic[8] = {'T', 'T', 'P', 'U', 'E', 'X', 'E', '1'};
enum { CHECKED = 1, MOST_OUTPUTS = 1 << 20 };

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static void put(base_text *t, const void *bytes, size_t length) { base_text_put(t, bytes, length); }
static void put_u32(base_text *t, uint32_t v) { put(t, &v, sizeof v); }
static void put_u64(base_text *t, uint64_t v) { put(t, &v, sizeof v); }

static void put_head(base_text *t, const pjrt_executable *e) {
  const pjrt_checks *c = e->checks;
  put(t, magic, sizeof magic);
  put_u32(t, e->output_count);
  put_u32(t, c ? c->params : 0);
  put_u32(t, c ? c->count : 0);
  put_u32(t, c ? CHECKED : 0);
  for (uint32_t i = 0; i < e->output_count; ++i) {
    put_u32(t, e->outputs[i].dtype);
    put_u64(t, e->outputs[i].bytes);
  }
  if (!c) return;
  put(t, c->rows, (size_t)c->outputs * c->words * sizeof *c->rows);
  for (uint32_t i = 0; i < c->count; ++i) {
    const pjrt_check *check = &c->checks[i];
    uint32_t length = (uint32_t)strlen(check->what);
    put_u64(t, (uint64_t)check->low);
    put_u64(t, (uint64_t)check->high);
    put_u32(t, (uint32_t)check->error);
    put_u32(t, check->is_condition);
    put_u32(t, length);
    put(t, check->what, length);
  }
}

/* The executable behind a loaded one, to be destroyed by the caller. */
static ttpu_status put_plugin_part(base_text *t, const pjrt_executable *e) {
  const pjrt_client *c = e->device->client;
  PJRT_LoadedExecutable_GetExecutable_Args get = ARGS(LoadedExecutable_GetExecutable, .loaded_executable = e->loaded);
  BASE_TRY(CALL(c, LoadedExecutable_GetExecutable, &get));
  PJRT_Executable_Serialize_Args serialize = ARGS(Executable_Serialize, .executable = get.executable);
  ttpu_status status = CALL(c, Executable_Serialize, &serialize);
  if (status == TTPU_OK) {
    put(t, serialize.serialized_bytes, serialize.serialized_bytes_size);
    if (serialize.serialized_executable_deleter)
      serialize.serialized_executable_deleter(serialize.serialized_executable);
  }
  PJRT_Executable_Destroy_Args destroy = ARGS(Executable_Destroy, .executable = get.executable);
  PJRT_Error *error = c->api->Executable_Destroy(&destroy);
  PJRT_Error_Destroy_Args forget = ARGS(Error_Destroy, .error = error);
  if (error) c->api->Error_Destroy(&forget); /* the first failure is the one to report */
  return status;
}

ttpu_status pjrt_executable_serialize(pjrt_executable *e, void **bytes, size_t *length) {
  const pjrt_client *c = e->device->client;
  base_text text = {0};
  if (!PLUGIN_HAS(c, Executable_Serialize)) return pjrt_missing(c, "Executable_Serialize");
  if (!PLUGIN_HAS(c, Executable_DeserializeAndLoad)) return pjrt_missing(c, "Executable_DeserializeAndLoad");
  put_head(&text, e);
  ttpu_status status = put_plugin_part(&text, e);
  if (status == TTPU_OK && text.failed) status = base_no_memory(text.length);
  if (status == TTPU_OK) {
    *bytes = text.data;
    *length = text.length;
  } else {
    base_text_free(&text);
  }
  return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

typedef struct reader {
  const uint8_t *at;
  size_t left;
  bool failed; /* the bytes ended early */
} reader;

static bool get(reader *r, void *to, size_t length) {
  r->failed |= length > r->left;
  if (r->failed) return false;
  if (length) memcpy(to, r->at, length);
  r->at += length;
  r->left -= length;
  return true;
}

static uint32_t get_u32(reader *r) {
  uint32_t v = 0;
  return get(r, &v, sizeof v) ? v : 0;
}

static uint64_t get_u64(reader *r) {
  uint64_t v = 0;
  return get(r, &v, sizeof v) ? v : 0;
}

static ttpu_status fail_bytes(void) {
  return base_fail(TTPU_INVALID_ARGUMENT, "these bytes are no serialized executable of this version");
}

static ttpu_status get_check(reader *r, pjrt_check *check) {
  check->low = (int64_t)get_u64(r);
  check->high = (int64_t)get_u64(r);
  check->error = (ir_check_error)get_u32(r);
  if (check->error > IR_BAD_MATRIX) return fail_bytes();
  check->is_condition = get_u32(r) != 0;
  size_t length = get_u32(r);
  if (r->failed || length > r->left) return fail_bytes();
  check->what = pjrt_copy_text((const char *)r->at, length);
  if (!check->what) return base_no_memory(length);
  r->at += length;
  r->left -= length;
  return TTPU_OK;
}

static ttpu_status get_checks(reader *r, uint32_t params, uint32_t outputs, uint32_t count, pjrt_checks **out) {
  uint64_t row = ((uint64_t)params + count + 63) / 64;
  if (count > r->left || (row && (uint64_t)outputs * row > r->left / sizeof(uint64_t))) return fail_bytes();
  pjrt_checks *c = pjrt_checks_new(params, outputs, count);
  if (!c) return base_no_memory(sizeof *c);
  ttpu_status status = get(r, c->rows, (size_t)outputs * c->words * sizeof *c->rows) ? TTPU_OK : fail_bytes();
  for (uint32_t i = 0; i < count && status == TTPU_OK; ++i) status = get_check(r, &c->checks[i]);
  if (status == TTPU_OK) *out = c;
  else pjrt_checks_free(c);
  return status;
}

static ttpu_status get_head(reader *r, pjrt_device *d, pjrt_executable **out) {
  char found[sizeof magic];
  if (!get(r, found, sizeof found) || memcmp(found, magic, sizeof magic) != 0) return fail_bytes();
  uint32_t outputs = get_u32(r), params = get_u32(r), count = get_u32(r), flags = get_u32(r);
  if (r->failed || outputs > MOST_OUTPUTS || outputs > r->left || flags > CHECKED) return fail_bytes();
  if (!(flags & CHECKED) != !!d->client->extension) return fail_bytes();
  pjrt_executable *e;
  BASE_TRY(pjrt_executable_new(d, outputs, &e));
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0; i < outputs; ++i) {
    uint32_t dtype = get_u32(r);
    uint64_t bytes = get_u64(r);
    if (r->failed || dtype >= TTPU_DTYPE_COUNT) status = fail_bytes();
    e->outputs[i] = (pjrt_output){(ttpu_dtype)dtype, (size_t)bytes};
  }
  if (status == TTPU_OK && (flags & CHECKED)) status = get_checks(r, params, outputs, count, &e->checks);
  if (status == TTPU_OK) *out = e;
  else pjrt_executable_free(e);
  return status;
}

ttpu_status pjrt_executable_deserialize(pjrt_client *c, pjrt_device *d, const void *bytes, size_t length,
                                        pjrt_executable **out) {
  if (!PLUGIN_HAS(c, Executable_DeserializeAndLoad)) return pjrt_missing(c, "Executable_DeserializeAndLoad");
  reader r = {bytes, length, false};
  pjrt_executable *e = NULL;
  BASE_TRY(get_head(&r, d, &e));
  uint8_t options[PJRT_COMPILE_OPTIONS];
  PJRT_Executable_DeserializeAndLoad_Args load =
      ARGS(Executable_DeserializeAndLoad, .client = c->client, .serialized_executable = (const char *)r.at,
           .serialized_executable_size = r.left, .overridden_serialized_compile_options = (const char *)options,
           .overridden_serialized_compile_options_size = pjrt_compile_options(d, 1, 1, options));
  ttpu_status status = CALL(c, Executable_DeserializeAndLoad, &load);
  if (status == TTPU_OK) {
    e->loaded = load.loaded_executable;
    *out = e;
  } else {
    pjrt_executable_free(e);
  }
  return status;
}
