/* pjrt: a client of the PJRT C API. Takes ir functions, host data and a plugin's path; gives buffers and
 * executables on a plugin's devices. Stands on base, ir and abi.h (the ABI, declared by us).
 *
 * Our own plugin offers an extension (extension.h) that compiles an ir_func by pointer and reports counters; every other
 * plugin gets StableHLO, as a portable artifact or text, with our composites decomposed, and checks as one more result of the program.
 *
 *   choose.c     which plugin
 *   load.c       opening one: versions, what it must have; errors and events
 *   options.c    options from text
 *   client.c     clients and devices
 *   executable.c compiling and running
 *   grid.c       programs on several devices at once
 *   mailbox.c    what programs send to the host and receive from it
 *   checks.c     checks as a result; which results depend on them
 *   doubt.c      results whose checks are not read yet
 *   serialize.c  executables as bytes
 *   buffer.c     buffers and transfers
 *   report.c     what a plugin offers and lacks
 *
 * All functions may be called from any thread. Objects are counted or owned as said; errors are ttpu_status with
 * base_fail's message, the plugin's own text in it.
 */
#ifndef TTPU_PJRT_H
#define TTPU_PJRT_H

#include "base/base.h"
#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pjrt_client pjrt_client;
typedef struct pjrt_device pjrt_device; /* owned by its client */
typedef struct pjrt_buffer pjrt_buffer;
typedef struct pjrt_executable pjrt_executable;

/* TPU chips of this machine, found without starting anything. */
typedef struct pjrt_chips {
  uint32_t count;
  const char *generation; /* "v5e"; NULL: none */
  bool usable;            /* they are open to this process, as far as files tell */
} pjrt_chips;
pjrt_chips pjrt_chips_find(const char *root); /* root: "", or a folder that stands for / in tests */

/* Which plugin to use, and why: TTPU_PLUGIN ("soft" is ours); else, where there are chips, TPU_LIBRARY_PATH or
 * libtpu_path (an installed libtpu; NULL or "" where there is none); else soft_path. Logs the choice. */
typedef struct pjrt_choice {
  char path[4096], reason[256];
} pjrt_choice;
ttpu_status pjrt_choose(const char *root, const char *soft_path, const char *libtpu_path, pjrt_choice *out);

/* What a plugin offers and lacks, as JSON; INVALID_ARGUMENT and the like where it is no plugin at all. A client that
 * cannot be made is part of the report. */
ttpu_status pjrt_plugin_report(const char *path, const char *options, base_text *json);

/* Loads a plugin (dlopen, version check, Plugin_Initialize) and makes a client. options: "name=value,name:type=value"
 * (options.c), or NULL. */
ttpu_status pjrt_client_new(const char *plugin_path, const char *options, pjrt_client **out);
void pjrt_client_free(pjrt_client *c);
const char *pjrt_client_platform(const pjrt_client *c); /* "tpu" */
const char *pjrt_client_platform_version(const pjrt_client *c);
const char *pjrt_client_plugin_path(const pjrt_client *c);
void pjrt_client_api_version(const pjrt_client *c, int *major, int *minor);
bool pjrt_client_is_soft(const pjrt_client *c); /* has our extension */

uint32_t pjrt_client_device_count(const pjrt_client *c); /* addressable ones */
pjrt_device *pjrt_client_device(const pjrt_client *c, uint32_t index);
typedef struct pjrt_device_info {
  int64_t id;
  int process_index, local_hardware_id;
  const char *kind; /* "TPU v5 lite" */
  int64_t coords[3];
  int64_t core_on_chip;
  int64_t memory_limit; /* bytes; 0 unknown */
} pjrt_device_info;
const pjrt_device_info *pjrt_device_get_info(const pjrt_device *d);
typedef struct pjrt_memory_stats {
  int64_t bytes_in_use, peak_bytes_in_use, bytes_limit, largest_alloc, num_allocs, bytes_reserved; /* -1: not known */
} pjrt_memory_stats;
ttpu_status pjrt_device_memory_stats(pjrt_device *d, pjrt_memory_stats *out);
void pjrt_device_reset_peak(pjrt_device *d); /* no effect where the plugin cannot */
void pjrt_device_trim(pjrt_device *d);       /* gives recycled memory back where the plugin can */

/* Compiles f for one device. Takes `arena`, in which f lives and which base_alloc made, whatever the outcome. */
ttpu_status pjrt_compile(pjrt_client *c, pjrt_device *d, base_arena *arena, ir_func *f, pjrt_executable **out);
void pjrt_executable_free(pjrt_executable *e);
uint32_t pjrt_executable_output_count(const pjrt_executable *e);
pjrt_device *pjrt_executable_device(const pjrt_executable *e);
typedef struct pjrt_cost {
  double flops, bytes_accessed; /* of one run; -1 where the plugin does not say */
  int64_t temporaries;          /* bytes; -1 likewise */
  int64_t host_bytes;           /* of the program itself, in the host's memory; -1 likewise */
} pjrt_cost;
ttpu_status pjrt_executable_get_cost(const pjrt_executable *e, pjrt_cost *out);
/* Enqueues and returns at once. donated[i]: the argument's buffer is consumed (still free the handle). Outputs are
 * new buffers, ready later; an error at run time is met by whoever awaits those that it spoils, and by
 * done(context, status), called once all has run (perhaps at once, on this thread; NULL: nobody to tell; not called
 * where this fails). */
ttpu_status pjrt_execute(pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments, const bool *donated,
                         pjrt_buffer **outputs, void (*done)(void *context, ttpu_status status), void *context);
/* Compiles f for replicas x partitions chips, which run it together: partition p of replica r is the client's device number
 * r * partitions + p. Takes the arena as pjrt_compile does. */
ttpu_status pjrt_compile_grid(pjrt_client *c, uint32_t replicas, uint32_t partitions, base_arena *arena, ir_func *f,
                              pjrt_executable **out);
/* What programs send to the host on these channels others receive, in order. `chips` will run with it, or are taken back
 * with pjrt_mailbox_end: when all that have not ended wait for letters that nobody can send any more, they fail. */
typedef struct pjrt_mailbox pjrt_mailbox;
ttpu_status pjrt_mailbox_new(const pjrt_client *c, uint32_t chips, uint32_t count, const int64_t *channels,
                             pjrt_mailbox **out);
void pjrt_mailbox_free(pjrt_mailbox *m); /* NULL is fine; chips that run keep it */
void pjrt_mailbox_end(pjrt_mailbox *m, uint32_t chips);
ttpu_status pjrt_mailbox_put(pjrt_mailbox *m, int64_t channel, const void *bytes, size_t size); /* as if sent */
/* The number-th letter on the channel that nobody has received, which stays there. */
bool pjrt_mailbox_look(pjrt_mailbox *m, int64_t channel, uint32_t number, const void **bytes, size_t *size);
/* Runs e on its chips: arguments and outputs are those of chip 0, then of chip 1, ..., `count` arguments each, on their
 * chips' devices; none is donated. mailbox: for the program's transfers, or NULL. */
ttpu_status pjrt_execute_grid(pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments, pjrt_buffer **outputs,
                              pjrt_mailbox *mailbox);
/* Serialized executables, for the disk cache; UNIMPLEMENTED where the plugin cannot (ours compiles faster than a
 * disk reads). *bytes is freed with base_free. */
ttpu_status pjrt_executable_serialize(pjrt_executable *e, void **bytes, size_t *length);
ttpu_status pjrt_executable_deserialize(pjrt_client *c, pjrt_device *d, const void *bytes, size_t length,
                                        pjrt_executable **out);

/* Host to device. With release NULL the bytes are copied before the call returns; else they must stay until
 * release(context) is called (from any thread, without locks held; never takes the GIL). Dense row-major. */
ttpu_status pjrt_buffer_from_host(pjrt_device *d, ttpu_dtype dtype, uint32_t rank, const int64_t *dims,
                                  const void *data, void (*release)(void *context), void *context, pjrt_buffer **out);
pjrt_buffer *pjrt_buffer_share(pjrt_buffer *b);
void pjrt_buffer_free(pjrt_buffer *b); /* NULL is fine; does not wait */
size_t pjrt_buffer_bytes(const pjrt_buffer *b);
pjrt_device *pjrt_buffer_device(const pjrt_buffer *b);
bool pjrt_buffer_is_ready(pjrt_buffer *b);
ttpu_status pjrt_buffer_await(pjrt_buffer *b); /* the error of the computation that makes it */
/* Waits, then copies all of it, dense row-major, to `to` (`bytes` must be its size). */
ttpu_status pjrt_buffer_to_host(pjrt_buffer *b, void *to, size_t bytes);
/* The same of the bytes from `offset` on. Only the software TPU sends no more than these. */
ttpu_status pjrt_buffer_part_to_host(pjrt_buffer *b, size_t offset, void *to, size_t bytes);
ttpu_status pjrt_buffer_copy_to_device(pjrt_buffer *b, pjrt_device *d, pjrt_buffer **out);
/* Calls done(context, status) once ready or failed; may call at once, on this thread. */
void pjrt_buffer_on_ready(pjrt_buffer *b, void (*done)(void *context, ttpu_status status), void *context);

typedef struct pjrt_counters {
  uint64_t structures_compiled, executables_bound, executions;
} pjrt_counters;
bool pjrt_client_counters(const pjrt_client *c, pjrt_counters *out); /* false where unknown */
void pjrt_client_set_threads(pjrt_client *c, int threads);           /* software TPU: pool size */

#ifdef __cplusplus
}
#endif
#endif
