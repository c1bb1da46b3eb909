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
};

typedef struct pjrt_output {
  ttpu_dtype dtype;
  size_t bytes;
} pjrt_output;

struct pjrt_executable {
  pjrt_device *device;
  PJRT_LoadedExecutable *loaded;
  uint32_t output_count;
  pjrt_output *outputs;
};

#define PLUGIN_HAS(client, name) (PJRT_HAS((client)->api, name) && (client)->api->name)
#define ARGS(name, ...) \
  (PJRT_##name##_Args) { .struct_size = sizeof(PJRT_##name##_Args), __VA_ARGS__ }
/* Calls a function that takes *args; its error becomes a status with the plugin's message. */
#define CALL(client, name, args) pjrt_status((client)->api, (client)->api->name(args))

/* Destroys the error. */
ttpu_status pjrt_status(const PJRT_Api *api, PJRT_Error *error);
/* UNIMPLEMENTED: the plugin (of this version) has no such function. */
ttpu_status pjrt_missing(const pjrt_client *c, const char *function);
/* Waits for the event and destroys it. */
ttpu_status pjrt_event_await(const pjrt_client *c, PJRT_Event *event);
void pjrt_event_free(const pjrt_client *c, PJRT_Event *event);
/* Calls done once the event is ready, and takes the event; NULL is ready. */
void pjrt_event_call(const pjrt_client *c, PJRT_Event *event, void (*done)(void *context, ttpu_status status),
                     void *context);
/* A handle over `buffer`, which the caller sets; NULL: out of memory. */
pjrt_buffer *pjrt_buffer_new(pjrt_device *d, ttpu_dtype dtype, size_t bytes);

#endif
