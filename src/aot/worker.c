/* ttpu-aot-worker LIBRARY: compiles what it is asked to with that plugin, until its input ends. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/worker.h"
#include "pjrt/ahead.h"

enum { KEPT_TOPOLOGIES = 32 };

typedef struct worker {
  const struct PJRT_Api *api;
  struct {
    char name[64];
    pjrt_compiler *compiler;
  } kept[KEPT_TOPOLOGIES];
  uint32_t kept_count;
} worker;

/* ---- topologies ---- */

static ttpu_status get_compiler(worker *w, const char *name, pjrt_compiler **out) {
  for (uint32_t i = 0; i < w->kept_count; ++i)
    if (strcmp(w->kept[i].name, name) == 0) {
      *out = w->kept[i].compiler;
      return TTPU_OK;
    }
  if (strlen(name) >= sizeof w->kept[0].name) return base_fail(TTPU_INVALID_ARGUMENT, "no topology is named %s", name);
  pjrt_compiler *c;
  BASE_TRY(pjrt_compiler_new(w->api, name, &c));
  if (w->kept_count == KEPT_TOPOLOGIES) pjrt_compiler_free(w->kept[--w->kept_count].compiler);
  snprintf(w->kept[w->kept_count].name, sizeof w->kept[0].name, "%s", name);
  w->kept[w->kept_count++].compiler = *out = c;
  return TTPU_OK;
}

/* What is published of a chip whose devices are of a kind; memory is that of one device. */
static void put_chip(aot_answer *a, const char *kind) {
#define GENERATION(name, others, device_kind, hbm, devices, cores, dims, bf16, int8, bandwidth, vmem, mxu, ici) \
  if (strcmp(kind, device_kind) == 0) {                                                                         \
    aot_answer_printf(a, "chip:hbm_bytes", "%.0f", (double)(hbm));                                              \
    aot_answer_printf(a, "chip:flops_per_second", "%.0f", (bf16) * 1e12);                                       \
    aot_answer_printf(a, "chip:bytes_per_second", "%.0f", (bandwidth) * 1e9);                                   \
    aot_answer_printf(a, "chip:link_bytes_per_second", "%.0f", (double)(ici) * 1e9);                            \
    aot_answer_printf(a, "chip:links", "%d", 2 * (dims));                                                       \
  }
#include "soft/generations.def"
#undef GENERATION
}

static void put_topology(aot_answer *a, const pjrt_compiler *c) {
  const pjrt_compiler_info *info = pjrt_compiler_get_info(c);
  aot_answer_printf(a, "api_version", "%d.%d", info->api_major, info->api_minor);
  aot_answer_put(a, "platform_version", info->platform_version, strlen(info->platform_version));
  aot_answer_put(a, "device_kind", info->device_kind, strlen(info->device_kind));
  aot_answer_printf(a, "devices", "%u", info->device_count);
  put_chip(a, info->device_kind);
}

/* ---- compiling ---- */

static size_t put_varint(uint8_t *to, uint64_t value) {
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) to[n++] = (uint8_t)(value | 0x80);
  to[n++] = (uint8_t)value;
  return n;
}

/* CompileOptionsProto: executable_build_options (3) with num_replicas (4), num_partitions (5), use_spmd_partitioning (6)
 * where there are several, use_shardy_partitioner (19), and allow_spmd_sharding_propagation_to_output (12): without it a
 * result whose sharding is not said is gathered whole on every device. */
static ttpu_status make_options(aot_message *request, uint8_t out[64], size_t *length) {
  int64_t replicas, partitions, shardy;
  BASE_TRY(aot_message_number(request, "replicas", 1, 1 << 20, &replicas));
  BASE_TRY(aot_message_number(request, "partitions", 1, 1 << 20, &partitions));
  BASE_TRY(aot_message_number(request, "shardy", 0, 1, &shardy));
  uint8_t inside[48];
  size_t n = 0;
  inside[n++] = 4 << 3;
  n += put_varint(inside + n, (uint64_t)replicas);
  inside[n++] = 5 << 3;
  n += put_varint(inside + n, (uint64_t)partitions);
  if (partitions > 1) {
    inside[n++] = 6 << 3;
    inside[n++] = 1;
    inside[n++] = 12 << 3 | 2; /* a packed list: one for all results */
    inside[n++] = 1;
    inside[n++] = 1;
  }
  if (shardy) {
    n += put_varint(inside + n, 19 << 3);
    inside[n++] = 1;
  }
  out[0] = 3 << 3 | 2;
  out[1] = (uint8_t)n;
  memcpy(out + 2, inside, n);
  *length = n + 2;
  return TTPU_OK;
}

static void put_cost(void *context, const char *name, double value) {
  aot_answer *a = context;
  char field[128];
  /* libtpu gives hundreds by operand and place; these two and its estimate are of the whole */
  bool whole =
      strcmp(name, "flops") == 0 || strcmp(name, "bytes accessed") == 0 || strcmp(name, "optimal_seconds") == 0;
  if (!whole) return;
  snprintf(field, sizeof field, "cost:%s", name);
  aot_answer_printf(a, field, "%.17g", value);
}

static ttpu_status put_optimized(pjrt_compiled *e, bool wanted, aot_answer *a) {
  base_text format = {0}, program = {0};
  ttpu_status status = pjrt_compiled_optimized(e, &format, &program);
  if (status == TTPU_OK && format.length == 15 && memcmp(format.data, "hlo_with_config", 15) == 0)
    status = aot_hlo_put_collectives(program.data, program.length, a);
  if (status == TTPU_OK && wanted) aot_answer_put(a, "optimized", program.data, program.length);
  base_text_free(&format);
  base_text_free(&program);
  return status;
}

/* What `get` tells of the executable, under a name. */
static ttpu_status put_bytes(pjrt_compiled *e, const char *name, ttpu_status (*get)(pjrt_compiled *, base_text *),
                             aot_answer *a) {
  base_text bytes = {0};
  ttpu_status status = get(e, &bytes);
  if (status == TTPU_OK) aot_answer_put(a, name, bytes.data, bytes.length);
  base_text_free(&bytes);
  return status;
}

static ttpu_status describe(pjrt_compiled *e, const char *want, aot_answer *a) {
  pjrt_compiled_memory m;
  BASE_TRY(pjrt_compiled_get_memory(e, &m));
  aot_answer_printf(a, "memory:code", "%lld", (long long)m.code);
  aot_answer_printf(a, "memory:arguments", "%lld", (long long)m.arguments);
  aot_answer_printf(a, "memory:outputs", "%lld", (long long)m.outputs);
  aot_answer_printf(a, "memory:alias", "%lld", (long long)m.alias);
  aot_answer_printf(a, "memory:temporaries", "%lld", (long long)m.temporaries);
  aot_answer_printf(a, "memory:peak", "%lld", (long long)m.peak);
  BASE_TRY(pjrt_compiled_visit_costs(e, put_cost, a));
  ttpu_status status = put_bytes(e, "fingerprint", pjrt_compiled_fingerprint, a);
  if (status != TTPU_OK && status != TTPU_UNIMPLEMENTED) return status;
  BASE_TRY(put_optimized(e, strstr(want, "optimized") != NULL, a));
  return strstr(want, "executable") ? put_bytes(e, "executable", pjrt_compiled_serialize, a) : TTPU_OK;
}

static ttpu_status compile(pjrt_compiler *c, aot_message *request, aot_answer *a, base_text *message) {
  const aot_field *program = aot_message_get(request, "program");
  const char *format = aot_message_text(request, "format", "mlir"), *want = aot_message_text(request, "want", "");
  uint8_t options[64];
  size_t options_bytes;
  BASE_TRY(make_options(request, options, &options_bytes));
  pjrt_compiled *e;
  BASE_TRY(pjrt_compiler_compile(c, format, program->value, program->length, options, options_bytes, message, &e));
  ttpu_status status = describe(e, want, a);
  pjrt_compiled_free(e);
  return status;
}

static void answer(worker *w, aot_message *request, aot_answer *a) {
  pjrt_compiler *c = NULL;
  base_text message = {0};
  ttpu_status status = get_compiler(w, aot_message_text(request, "topology", ""), &c);
  if (status == TTPU_OK) {
    put_topology(a, c);
    if (aot_message_get(request, "program")) status = compile(c, request, a, &message);
  }
  aot_answer_printf(a, "status", "%d", (int)status);
  if (status != TTPU_OK && message.length) aot_answer_put(a, "message", message.data, message.length);
  else if (status != TTPU_OK) aot_answer_put(a, "message", base_message(), strlen(base_message()));
  base_text_free(&message);
}

/* ---- the process ---- */

/* Ends the process with whoever started it, in the middle of a compilation too: that closes the input, or has died. (The
 * kernel's PR_SET_PDEATHSIG would be about the parent's thread.) */
static void *watch_parent(void *context) {
  pid_t parent = *(pid_t *)context;
  for (;;) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = 0};
    if (poll(&input, 1, 1000) > 0 && input.revents & (POLLHUP | POLLERR | POLLNVAL)) _exit(0);
    if (getppid() != parent) _exit(0);
  }
  return NULL;
}

/* The kernel's choice, before the parent, when memory is out. */
static void volunteer(void) {
  FILE *f = fopen("/proc/self/oom_score_adj", "w");
  if (!f) return;
  fputs("1000", f);
  fclose(f);
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: ttpu-aot-worker LIBRARY, with requests on standard input\n");
    return 2;
  }
  static pid_t parent;
  static aot_message request;
  parent = getppid();
  pthread_t watcher;
  if (pthread_create(&watcher, NULL, watch_parent, &parent) != 0) return 1;
  volunteer();
  int out = dup(STDOUT_FILENO); /* what the compiler prints must not come between the answers */
  dup2(STDERR_FILENO, STDOUT_FILENO);
  worker w = {0};
  ttpu_status loaded = pjrt_plugin_load(arguments[1], &w.api);
  char message[1024];
  snprintf(message, sizeof message, "%s", loaded == TTPU_OK ? "" : base_message());
  for (;;) {
    aot_answer a = {0};
    ttpu_status status = aot_message_read(STDIN_FILENO, &request);
    if (status == TTPU_OK && loaded == TTPU_OK) {
      answer(&w, &request, &a);
    } else if (status == TTPU_OK) {
      aot_answer_printf(&a, "status", "%d", (int)loaded);
      aot_answer_put(&a, "message", message, strlen(message));
    }
    aot_message_free(&request);
    if (status == TTPU_OK) status = aot_answer_write(&a, out);
    if (status == TTPU_CANCELLED) _exit(0); /* without the plugin's destructors, which may hang */
    if (status != TTPU_OK) {
      fprintf(stderr, "ttpu-aot-worker: %s\n", base_message());
      _exit(1);
    }
  }
}
