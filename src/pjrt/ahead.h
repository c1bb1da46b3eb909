/* ahead: compiling ahead of time for a topology by name, without its chips and so without a client.
 *
 * What works so is libtpu's PJRT_Compile with no client; a plugin that cannot says so with UNIMPLEMENTED. A bad program
 * may end the process instead of failing: whoever cannot have that compiles in a process of its own (src/aot).
 */
#ifndef TTPU_PJRT_AHEAD_H
#define TTPU_PJRT_AHEAD_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pjrt_compiler pjrt_compiler; /* one topology of a loaded plugin */
typedef struct pjrt_compiled
    pjrt_compiled; /* an executable without devices; owned by who asked, lives within its compiler */

/* Loads a plugin: dlopen, version check, Plugin_Initialize. Once a process and plugin; it is never unloaded. */
struct PJRT_Api;
ttpu_status pjrt_plugin_load(const char *path, const struct PJRT_Api **out);
/* A topology by the plugin's name for it: "v6e:2x2". */
ttpu_status pjrt_compiler_new(const struct PJRT_Api *api, const char *topology, pjrt_compiler **out);
void pjrt_compiler_free(pjrt_compiler *c);
typedef struct pjrt_compiler_info {
  int api_major, api_minor;
  const char *platform_version, *device_kind; /* owned by the compiler; end with NUL */
  uint32_t device_count;
} pjrt_compiler_info;
const pjrt_compiler_info *pjrt_compiler_get_info(const pjrt_compiler *c);

/* How many devices a client of the software TPU with these options would have (as of pjrt_client_new), without making
 * one; UNIMPLEMENTED for a plugin that has not our extension. */
ttpu_status pjrt_devices_ahead(const char *plugin_path, const char *options, uint32_t *count);

/* Compiles a program: StableHLO as text or a portable artifact ("mlir"), or HLO ("hlo"). `options` is a serialized
 * CompileOptionsProto. A failure's message can be far longer than base_message keeps: all of it is put into *message. */
ttpu_status pjrt_compiler_compile(pjrt_compiler *c, const char *format, const void *code, size_t code_bytes,
                                  const void *options, size_t options_bytes, base_text *message, pjrt_compiled **out);
void pjrt_compiled_free(pjrt_compiled *e);

/* Bytes on one device. peak: of all that is alive at once, 0 where the plugin does not say. */
typedef struct pjrt_compiled_memory {
  int64_t code, arguments, outputs, alias, temporaries, peak;
} pjrt_compiled_memory;
ttpu_status pjrt_compiled_get_memory(pjrt_compiled *e, pjrt_compiled_memory *out);
/* Calls visit(context, name, value) for each number that the plugin's cost analysis gives ("flops", ...). */
ttpu_status pjrt_compiled_visit_costs(pjrt_compiled *e, void (*visit)(void *context, const char *name, double value),
                                      void *context);
/* What the plugin makes of its executable to be stored, a hash of it, and the optimised program (its format is put
 * into *format). The texts are filled and to be freed. */
ttpu_status pjrt_compiled_serialize(pjrt_compiled *e, base_text *out);
ttpu_status pjrt_compiled_fingerprint(pjrt_compiled *e, base_text *out);
ttpu_status pjrt_compiled_optimized(pjrt_compiled *e, base_text *format, base_text *out);

#ifdef __cplusplus
}
#endif
#endif
