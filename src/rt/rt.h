/* rt: the runtime. Takes calls of operators on tensors (a storage and a view of it) and gives them meaning: it
 * records, cuts the record into pieces, turns a piece into a program through aten's lowerings, keeps programs,
 * and runs them through pjrt. Knows nothing of C10 or Python; src/torch is its only user.
 *
 *   storage.c   storages, values, addresses
 *   trace.c     recording, the rolling hash, cuts
 *   program.c   piece -> ir -> executable; the program cache
 *   bucket.c    programs of padded sizes, where compiling is expensive
 *   views.c     reading and writing views of a storage's value, as IR
 *   graph.c     a function recorded once and run again as one program
 *   diskcache.c programs on disk, for plugins that compile slowly
 *   turn.c      which thread's turn it is while a whole function is recorded
 *   capture.c   recording a whole function as one program that does not run, for compiling ahead of time
 *   opcache.c   results' metadata by call
 *   device.c    the client, devices, memory statistics, streams' order, events
 *
 * One lock guards recording (rt_lock in rt_int.h); nothing is called back with it held, it is never held while
 * waiting for a device, and no function here takes Python's GIL. All functions may be called from any thread.
 */
#ifndef TTPU_RT_H
#define TTPU_RT_H

#include "aten/aten.h"
#include "base/base.h"
#include "pjrt/pjrt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- process ---------------------------------------------------------------------------------- */

/* Chooses the plugin (pjrt_choose), loads it and makes the client, once; later calls return the first outcome.
 * `soft_path` is the software TPU's library, `libtpu_path` an installed libtpu or "". After fork a child gets
 * FAILED_PRECONDITION. */
ttpu_status rt_init(const char *soft_path, const char *libtpu_path);
const char *rt_plugin_reason(void); /* why this plugin; "" before rt_init */
/* What else a program on disk depends on (PyTorch's version); before rt_init. */
void rt_disk_set_salt(const char *text);
bool rt_is_initialized(void);
bool rt_in_bad_fork(void);
pjrt_client *rt_client(void);
uint32_t rt_device_count(void); /* 0 before rt_init */
/* The same count before rt_init, without starting anything: no thread, and so none that a fork would lose. Only a
 * plugin that is not ours has to be started for it. */
ttpu_status rt_count_devices(const char *soft_path, const char *libtpu_path, uint32_t *out);
/* Whether there would be a device, without starting any plugin. */
bool rt_is_available(const char *soft_path, const char *libtpu_path);

typedef enum { RT_FUSED, RT_EAGER, RT_BLOCKING } rt_mode; /* eager: an operator at a time */
void rt_set_mode(rt_mode mode);
rt_mode rt_get_mode(void);

typedef struct rt_counters {
  uint64_t ops_recorded, op_cache_hits, op_cache_misses;
  uint64_t programs_run, program_cache_hits, programs_built; /* built: a piece not met before, lowered to IR */
  uint64_t programs_compiled;   /* of these, compiled; the rest found their code and only bound new sizes */
  uint64_t programs_loaded;     /* from the disk cache, instead of being built */
  uint64_t programs_bucketed;   /* of those built, served by a program of padded sizes (bucket.c) */
  uint64_t compile_nanoseconds; /* lowering and compiling those that were built */
  uint64_t host_reads, uploads;
} rt_counters;
rt_counters rt_get_counters(void);
void rt_reset_counters(void);
/* While n > 0, compiling is an error at the next synchronisation that names the piece (torch.tpu.errors_on_compile). */
void rt_forbid_compile(int delta);
/* Forgets programs and metadata; bounds for both caches. */
void rt_clear_caches(void);

/* What is known of a program in the cache. */
typedef struct rt_program_info {
  uint64_t key, runs;
  uint64_t text; /* it is in TTPU_PROGRAM_DIR, in the file <row>-<text in 16 hexadecimal digits>.mlir; 0: it is not */
  uint32_t operators; /* calls that it was made of; 0, as `row` is NULL: it came from the disk */
  const char *row;    /* of the first of these */
  pjrt_cost cost;     /* of one run */
} rt_program_info;
/* All that the cache holds for a device, the one used last comes last. `visit` is called with the lock held: it calls
 * nothing here. A graph's program that the cache has dropped is left out. */
void rt_program_visit(uint32_t device, void (*visit)(void *context, const rt_program_info *info), void *context);

/* ---- storages --------------------------------------------------------------------------------- */

typedef struct rt_storage rt_storage;

/* RESOURCE_EXHAUSTED when the device's live storages would exceed its memory. Contents read as zero until written. */
ttpu_status rt_storage_new(uint32_t device, size_t bytes, rt_storage **out);
void rt_storage_free(rt_storage *s); /* NULL is fine */
/* Unique among live storages of a process, ordered, never readable; NULL for zero bytes. */
void *rt_storage_address(const rt_storage *s);
/* The live storage in which an address lies, by a search through all of them, and how many bytes into it; NULL: none.
 * A storage's end belongs to it too, for what is empty and lies there, unless another storage begins there. */
rt_storage *rt_storage_find(const void *address, size_t *begin);
size_t rt_storage_bytes(const rt_storage *s);
uint32_t rt_storage_device(const rt_storage *s);
/* Keeps what fits, fills the rest with zeros; the address changes when it grows. */
ttpu_status rt_storage_resize(rt_storage *s, size_t bytes);
/* The whole storage from host memory, dense, as `dtype`. release as in pjrt_buffer_from_host. */
ttpu_status rt_storage_upload(rt_storage *s, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, const void *data,
                              void (*release)(void *), void *context);
/* Makes dst the same value as src (same bytes, another storage); no copy is made. Same or another device. */
ttpu_status rt_storage_assign(rt_storage *dst, rt_storage *src);

/* ---- recording -------------------------------------------------------------------------------- */

/* A variant of a row under which it was registered: "add_.Tensor" over row "add.Tensor". */
typedef struct rt_op {
  const aten_row *row;
  const char *name;
  uint64_t id; /* hash of the name: same in every process */
} rt_op;

typedef struct rt_tensor { /* a result: a view of a storage that is to be written */
  rt_storage *storage;     /* NULL: a result that does not exist (meta.flags: ATEN_UNDEFINED) */
  aten_tensor meta;
} rt_tensor;

typedef struct rt_random {
  uint64_t seed, offset;
} rt_random;

typedef struct rt_call {
  aten_call call;
  rt_storage *const *storages; /* per tensor of the call; NULL where it has none */
  base_hash128 key;            /* its rt_meta_key */
  ir_precision precision;
  rt_random random;
} rt_call;

/* Appends a call; each result's storage holds its new value when this returns (pending). The arrays are copied. */
ttpu_status rt_record(uint32_t device, const rt_op *op, const rt_call *call, uint32_t result_count,
                      const rt_tensor *results);
/* Where in the user's program this thread's next calls come from, for messages of failures at run time ("model.py:12");
 * NULL: not known. It is copied with each call. Programs that are kept on disk do without, since lines move. */
void rt_set_location(const char *location);
/* Sends what is recorded on its way. The error, if any, is that of building or compiling. */
ttpu_status rt_flush(uint32_t device);
/* Flush and wait for all; returns the first error since the last synchronisation, and forgets it. */
ttpu_status rt_synchronize(uint32_t device);
/* Waits for the storage, and reads `bytes` from `offset` on into `to`; what was never written is 0. */
ttpu_status rt_storage_read(rt_storage *s, size_t offset, void *to, size_t bytes);
bool rt_storage_is_ready(rt_storage *s); /* computed, not only recorded */
/* The live storages of at least so many bytes, the newest first. `visit` is called with the lock held: it calls nothing
 * here. */
void rt_storage_visit(uint32_t device, size_t least, void (*visit)(void *context, const void *address, size_t bytes),
                      void *context);

/* ---- graphs ----------------------------------------------------------------------------------- */

/* From begin to end all that is recorded on the device is one piece, which runs at the end; the graph can run it again. */
typedef struct rt_recording rt_recording;
typedef struct rt_graph rt_graph;
/* FAILED_PRECONDITION: another one is being recorded on the device. */
ttpu_status rt_graph_begin(uint32_t device, uint32_t count, rt_storage *const *arguments, bool keep_text,
                           rt_recording **out);
/* Moves the graph's program out as StableHLO text; empty where it was not kept. */
void rt_graph_take_text(rt_graph *g, base_text *out);
/* storages: the arguments', then those of the results. random_after: the generator's offset, in counters, behind the
 * piece. *out is NULL when what was recorded is not one piece that could run again: a value was read on the way, nothing was
 * recorded, or a result is on another device. The error is that of running. The recording is freed whatever the outcome. */
ttpu_status rt_graph_end(rt_recording *r, uint32_t count, rt_storage *const *storages, uint64_t random_after,
                         rt_graph **out);
void rt_graph_free(rt_graph *g);
/* What has to be equal for a graph to fit: the types of the arguments' values, and which of them share a storage. */
base_hash128 rt_graph_key(uint32_t count, rt_storage *const *arguments);
uint64_t rt_graph_random_drawn(const rt_graph *g); /* counters that a run draws from the generator */
/* Runs it on other storages in the same order. A failure is also that of the results. */
ttpu_status rt_graph_run(rt_graph *g, rt_storage *const *storages, rt_random random);
/* ---- capture ---------------------------------------------------------------------------------- */

/* From begin to end all that is recorded on the device becomes one program, and nothing runs: reading a value on the host
 * fails with FAILED_PRECONDITION. At the end the storages that existed at begin hold again what they held then, and those
 * made since hold nothing that could be read.
 *
 * The program's arguments are the values of `arguments` in order, whether it reads them or not, then what else it reads
 * of storages that existed before, then the vectors of its numbers (f64, i64). Its results are the values of `returned`
 * in order, then those of all other storages that were written and still live. */
ttpu_status rt_capture_begin(uint32_t device, uint32_t count, rt_storage *const *arguments);
enum { RT_NO_ALIAS = -1 };
typedef struct rt_captured_value {
  const void *address; /* of the storage that holds it; NULL: none does */
  ir_type type;        /* in the captured arena */
  int32_t alias;       /* an argument's: the result that is its storage's next value, RT_NO_ALIAS: none */
} rt_captured_value;
typedef struct rt_captured {
  base_arena arena; /* of all that follows */
  ir_func *func;    /* with composites */
  uint32_t operators, argument_count, result_count;
  rt_captured_value *arguments, *results;
  /* What the vectors of numbers held, and the places in i64s of a seed and, behind it, an offset. */
  uint32_t f64_count, i64_count, random_count;
  const double *f64s;
  const int64_t *i64s;
  const uint32_t *random_slots;
} rt_captured;
/* The error is that of lowering, which names the operator. Free *out whatever the outcome. */
ttpu_status rt_capture_end(uint32_t device, uint32_t count, rt_storage *const *returned, rt_captured *out);
void rt_captured_free(rt_captured *c);
void rt_capture_cancel(uint32_t device); /* ends without a program */
bool rt_is_capturing(uint32_t device);   /* by this thread */

/* A function within what is recorded or captured, such as a loop's body: from begin to end all that is recorded on the
 * device is set apart as a program of its own, whose first `argument_count` arguments are those given and whose first
 * results are those returned, and nothing runs. Afterwards the recording goes on as if nothing had been. Regions nest; one
 * that draws random numbers or reads anything but its arguments is refused with FAILED_PRECONDITION. */
typedef struct rt_region rt_region;
ttpu_status rt_region_begin(uint32_t device, uint32_t count, rt_storage *const *arguments, rt_region **out);
/* Frees the region whatever the outcome; out NULL: nothing is wanted of it. Free *out like that of rt_capture_end. */
ttpu_status rt_region_end(rt_region *r, uint32_t count, rt_storage *const *returned, rt_captured *out);
/* A storage whose value has a type and no data, for captures: dense, dims in the order of memory. It counts for no memory,
 * so it may be larger than the device. */
ttpu_status rt_storage_new_absent(uint32_t device, ttpu_dtype dtype, uint32_t rank, const int64_t *dims,
                                  rt_storage **out);

/* ---- threads ---------------------------------------------------------------------------------- */

/* While a graph, a capture or a region is recorded, other threads wait before they use the device. Without hooks all threads
 * record the same function. */
typedef struct rt_thread_hooks {
  bool (*records)(void);        /* is this thread one of those that record? */
  void *(*pause)(void);         /* before waiting: let go of what the others may need meanwhile */
  void (*resume)(void *paused); /* afterwards, with what pause gave */
} rt_thread_hooks;
void rt_set_thread_hooks(const rt_thread_hooks *hooks); /* which stay */

/* ---- metadata cache --------------------------------------------------------------------------- */

/* Results' metadata of a call. The key covers the row's variant, dtypes, sizes, strides, flags and static arguments;
 * `salt` is what else decides (PyTorch's default dtype). */
base_hash128 rt_meta_key(const rt_op *op, const aten_call *call, uint64_t salt);
/* Copies the results' metadata and true; false when there are more than `capacity` (then *count says how many) or the
 * key is unknown (then *count is untouched). */
bool rt_meta_get(base_hash128 key, uint32_t *count, aten_shape *outs, uint32_t capacity);
void rt_meta_put(base_hash128 key, uint32_t count, const aten_shape *outs);

/* ---- events and memory ------------------------------------------------------------------------ */

/* All streams of a device share its one order of execution, so waiting on an event of another stream is free. */
typedef struct rt_event rt_event;
ttpu_status rt_event_new(rt_event **out);
void rt_event_free(rt_event *e);
ttpu_status rt_event_record(rt_event *e, uint32_t device); /* flushes */
bool rt_event_query(rt_event *e);
ttpu_status rt_event_synchronize(rt_event *e);
/* Milliseconds between two completed events; FAILED_PRECONDITION if one is not. */
ttpu_status rt_event_elapsed(rt_event *start, rt_event *end, double *milliseconds);

typedef struct rt_memory_stats {
  /* storages that tensors hold */
  uint64_t allocated, allocated_peak, allocated_total, freed_total, allocations, frees, active, active_peak;
  /* the device's own count; what the plugin does not tell is -1, and of use and peak what tensors hold */
  pjrt_memory_stats device;
  uint64_t oom_count;
} rt_memory_stats;
ttpu_status rt_memory_get_stats(uint32_t device, rt_memory_stats *out);
void rt_memory_reset_peak(uint32_t device);
void rt_memory_reset_accumulated(uint32_t device);
void rt_memory_trim(uint32_t device);

#ifdef __cplusplus
}
#endif
#endif
