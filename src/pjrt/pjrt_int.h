/* The client's inside.
 *
 * A client speaks to one plugin. What the plugin's table has is asked with PLUGIN_HAS (its size covers the entry and
 * the entry is not NULL); what every plugin must have is checked once, in pjrt_client_new. Argument structs are made
 * with ARGS, which clears them and sets their size.
 *
 * A pjrt_buffer holds one PJRT_Buffer and is counted, so that several owners may share a handle. Its size is known
 * without asking the plugin. Nothing here takes a lock.
 */
#ifndef TTPU_PJRT_INT_H
#define TTPU_PJRT_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "pjrt/abi.h"
#include "pjrt/extension.h"
#include "pjrt/pjrt.h"

struct pjrt_device {
  pjrt_client *client;
  PJRT_Device *device;
  pjrt_device_info info;
};

struct pjrt_client {
  char *path;
  const PJRT_Api *api;
  PJRT_Client *client;
  const PJRT_Ttpu_Extension *extension; /* NULL: not our plugin, or of another build */
  char *platform, *platform_version;
  unsigned stablehlo; /* that it reads: major * 100 + minor; 0: it does not say */
  uint32_t device_count;
  pjrt_device *devices;
};

struct pjrt_buffer {
  atomic_uint refs;
  atomic_bool ready; /* known to be ready, and no failure */
  ttpu_dtype dtype;
  pjrt_device *device;
  PJRT_Buffer *buffer;
  size_t bytes;
  struct pjrt_doubts *doubts; /* what its worth depends on besides the plugin's own word; NULL: nothing */
};

typedef struct pjrt_output {
  ttpu_dtype dtype;
  size_t bytes;
} pjrt_output;

struct pjrt_executable {
  pjrt_device *device;
  PJRT_LoadedExecutable *loaded;
  uint32_t chips;             /* that run it together: the client's first devices; 1: it runs on `device` */
  uint32_t output_count;      /* without the verdict */
  struct pjrt_checks *checks; /* NULL with our extension, whose programs check themselves */
  pjrt_output *outputs;
};

#define API_HAS(api, name) (PJRT_HAS(api, name) && (api)->name)
#define PLUGIN_HAS(client, name) API_HAS((client)->api, name)
#define ARGS(name, ...) \
  (PJRT_##name##_Args) { .struct_size = sizeof(PJRT_##name##_Args), __VA_ARGS__ }
/* Calls a function that takes *args; its error becomes a status with the plugin's message. */
#define CALL(client, name, args) pjrt_status((client)->api, (client)->api->name(args))

/* ---- a plugin (load.c), options.c ---- */

ttpu_status pjrt_plugin_open(const char *path, const PJRT_Api **out);
/* Is its version one that we speak, and is everything there without which nothing works? */
ttpu_status pjrt_plugin_check(const char *path, const PJRT_Api *api);
ttpu_status pjrt_plugin_initialize(const PJRT_Api *api);
const PJRT_Ttpu_Extension *pjrt_plugin_extension(const PJRT_Api *api); /* NULL: none, of another build, or off */
/* "name=value,name:type=value" as PJRT has it; NULL is empty. All is in the arena. */
ttpu_status pjrt_options_parse(const char *text, base_arena *arena, PJRT_NamedValue **out, size_t *count);

/* Destroys the error. */
ttpu_status pjrt_status(const PJRT_Api *api, PJRT_Error *error);
/* UNIMPLEMENTED: the plugin (of this version) has no such function. */
ttpu_status pjrt_missing(const pjrt_client *c, const char *function);
/* Waits for the event and destroys it. */
ttpu_status pjrt_event_await(const pjrt_client *c, PJRT_Event *event);
void pjrt_event_free(const pjrt_client *c, PJRT_Event *event);
/* Has a function called once the event is ready; fails where the plugin cannot. The event stays the caller's. */
ttpu_status pjrt_event_on_ready(const pjrt_client *c, PJRT_Event *event, PJRT_Event_OnReadyCallback callback,
                                void *user_arg);
bool pjrt_event_is_ready(const pjrt_client *c, PJRT_Event *event); /* waits where the plugin cannot say */
/* Calls done once the event is ready, and takes the event; NULL is ready. */
void pjrt_event_call(const pjrt_client *c, PJRT_Event *event, void (*done)(void *context, ttpu_status status),
                     void *context);
/* CompileOptions as bytes: for one program on the device, or for more, on the client's first devices. */
enum { PJRT_COMPILE_OPTIONS = 64 };
size_t pjrt_compile_options(const pjrt_device *d, uint32_t replicas, uint32_t partitions,
                            uint8_t out[PJRT_COMPILE_OPTIONS]);
/* pjrt_compile, for several chips. */
ttpu_status pjrt_compile_on(pjrt_client *c, pjrt_device *d, uint32_t replicas, uint32_t partitions, base_arena *arena,
                            ir_func *f, pjrt_executable **out);

/* ---- mailbox.c, for grid.c: the callbacks, and chips that begin and end */
PJRT_SendCallbackInfo *pjrt_mailbox_sends(pjrt_mailbox *m, size_t *count);
PJRT_RecvCallbackInfo *pjrt_mailbox_receives(pjrt_mailbox *m, size_t *count);
void pjrt_mailbox_enter(pjrt_mailbox *m);
void pjrt_mailbox_leave(void *mailbox, ttpu_status status);

/* Without a program of the plugin's; the caller fills in what it computes. */
ttpu_status pjrt_executable_new(pjrt_device *d, uint32_t outputs, pjrt_executable **out);

/* ---- checks (checks.c, doubt.c), for plugins without our extension ---- */

typedef struct pjrt_check {
  char *what; /* its own */
  int64_t low, high;
  ir_check_error error;
  bool is_condition; /* of a bool */
} pjrt_check;

/* The checks of a program, and what its results depend on. Counted, and the same for all of its runs. */
typedef struct pjrt_checks {
  atomic_uint refs;
  uint32_t params, outputs, count;
  uint32_t words; /* of a row */
  uint64_t *rows; /* one a result: bits of the parameters, then of the checks */
  pjrt_check *checks;
} pjrt_checks;

pjrt_checks *pjrt_checks_new(uint32_t params, uint32_t outputs, uint32_t count); /* cleared; NULL: out of memory */
pjrt_checks *pjrt_checks_share(pjrt_checks *c);
void pjrt_checks_free(pjrt_checks *c);
bool pjrt_checks_needs_param(const pjrt_checks *c, uint32_t output, uint32_t param);
bool pjrt_checks_needs_check(const pjrt_checks *c, uint32_t output, uint32_t check);
ttpu_status pjrt_check_fail(const pjrt_check *check, int64_t found);
/* *out: f with a verdict of 2 x count i64 as its last result instead of its checks (f itself where it has none). */
ttpu_status pjrt_checks_extract(const ir_func *f, base_arena *arena, const ir_func **out, pjrt_checks **checks);

/* The verdict of one run, counted. new takes the buffer whatever the outcome, and begins to copy it. */
typedef struct pjrt_verdict pjrt_verdict;
ttpu_status pjrt_verdict_new(pjrt_checks *checks, pjrt_buffer *buffer, pjrt_verdict **out);
void pjrt_verdict_free(pjrt_verdict *v);
/* Calls done with the run's end once it is known. */
void pjrt_verdict_call(pjrt_verdict *v, void (*done)(void *context, ttpu_status status), void *context);

typedef struct pjrt_doubts pjrt_doubts;
/* The list of result `output` of a run with these arguments; own: its verdict or NULL. *out NULL: no doubt. */
ttpu_status pjrt_doubts_new(const pjrt_checks *checks, uint32_t output, pjrt_verdict *own, uint32_t count,
                            pjrt_buffer *const *arguments, pjrt_doubts **out);
pjrt_doubts *pjrt_doubts_share(pjrt_doubts *d); /* NULL is fine, here and below */
void pjrt_doubts_free(pjrt_doubts *d);
ttpu_status pjrt_doubts_settle(const pjrt_doubts *d); /* waits; the first failed check */
bool pjrt_doubts_are_read(const pjrt_doubts *d);      /* settle would not wait */
/* Calls done once the event is ready, which is taken, and the list's verdicts are read; never waits. */
void pjrt_doubts_call(pjrt_doubts *d, const pjrt_client *c, PJRT_Event *event,
                      void (*done)(void *context, ttpu_status status), void *context);

char *pjrt_copy_text(const char *text, size_t length); /* ends with NUL; NULL: out of memory */

/* A handle over `buffer`, which the caller sets; NULL: out of memory. */
pjrt_buffer *pjrt_buffer_new(pjrt_device *d, ttpu_dtype dtype, size_t bytes);

#endif
