/* Runtimes, and the small rest of the public API. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"

struct ttpu_runtime {
  pjrt_client *client;
  bool is_borrowed;
};

const char *ttpu_version(void) { return TTPU_VERSION; }
const char *ttpu_message(void) { return base_message(); }
const char *ttpu_code_name(int code) { return base_status_name((ttpu_status)code); }
size_t ttpu_dtype_bytes(const char *dtype) { return base_dtype_bytes(model_dtype(dtype)); }

/* ---- runtimes ---- */

/* libttpu_soft.so beside the library or the program that this code is in. */
static ttpu_status find_soft(char *path, size_t size) {
  Dl_info info;
  char program[4096];
  const char *own = dladdr((void *)ttpu_version, &info) != 0 ? info.dli_fname : NULL;
  if (own && !strchr(own, '/')) { /* a program's name, as it was called */
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    own = program;
  }
  const char *slash = own ? strrchr(own, '/') : NULL;
  int n = slash ? snprintf(path, size, "%.*s/libttpu_soft.so", (int)(slash - own), own)
                : snprintf(path, size, "libttpu_soft.so"); /* as the loader finds it */
  return n > 0 && (size_t)n < size ? TTPU_OK
                                   : base_fail(TTPU_INVALID_ARGUMENT, "the path of libttpu_soft.so is too long");
}

static ttpu_status choose(const char *plugin, pjrt_choice *out) {
  char soft[sizeof out->path];
  BASE_TRY(find_soft(soft, sizeof soft));
  if (!plugin) return pjrt_choose("", soft, NULL, out);
  const char *path = strcmp(plugin, "soft") == 0 ? soft : plugin;
  int n = snprintf(out->path, sizeof out->path, "%s", path);
  return n > 0 && (size_t)n < sizeof out->path
             ? TTPU_OK
             : base_fail(TTPU_INVALID_ARGUMENT, "the plugin's path is empty or too long");
}

static ttpu_status make_runtime(pjrt_client *client, bool is_borrowed, ttpu_runtime **out) {
  *out = base_calloc(1, sizeof **out);
  if (!*out) return base_no_memory(sizeof **out);
  **out = (ttpu_runtime){client, is_borrowed};
  return TTPU_OK;
}

int ttpu_runtime_open(const char *plugin, const char *options, ttpu_runtime **out) {
  pjrt_choice choice;
  pjrt_client *client;
  *out = NULL;
  BASE_TRY(choose(plugin, &choice));
  BASE_TRY(pjrt_client_new(choice.path, options ? options : getenv("TTPU_PLUGIN_OPTIONS"), &client));
  ttpu_status status = make_runtime(client, false, out);
  if (status != TTPU_OK) pjrt_client_free(client);
  return status;
}

ttpu_status model_runtime_borrow(pjrt_client *client, ttpu_runtime **out) { return make_runtime(client, true, out); }

void ttpu_runtime_close(ttpu_runtime *r) {
  if (!r) return;
  if (!r->is_borrowed) pjrt_client_free(r->client);
  base_free(r);
}

uint32_t ttpu_runtime_device_count(const ttpu_runtime *r) { return pjrt_client_device_count(r->client); }
const char *ttpu_runtime_platform(const ttpu_runtime *r) { return pjrt_client_platform(r->client); }
const char *ttpu_runtime_plugin(const ttpu_runtime *r) { return pjrt_client_plugin_path(r->client); }
pjrt_client *model_runtime_client(const ttpu_runtime *r) { return r->client; }
pjrt_device *model_runtime_device(const ttpu_runtime *r, uint32_t index) {
  return index < ttpu_runtime_device_count(r) ? pjrt_client_device(r->client, index) : NULL;
}
