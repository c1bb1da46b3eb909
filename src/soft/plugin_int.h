/* plugin: the PJRT functions of the software TPU.
 *
 *   plugin.c              the function table, plugin attributes, our extension
 *   plugin_event.c        errors and events
 *   plugin_client.c       clients, devices, memories, topologies
 *   plugin_buffer.c       buffers and transfers
 *   plugin_transfer.c     buffers that the host fills piece by piece
 *   plugin_layouts.c      the layouts extension
 *   plugin_compile.c      programs: compiled, loaded, serialized
 *   plugin_executable.c   what can be asked of an executable
 *   plugin_execute.c      execution
 *   plugin_host.c         what programs send to the host and receive from it
 *   compile_options.c     the few fields of CompileOptionsProto that matter here
 *
 * Objects. A PJRT_Buffer is the user's handle; what it stands for is a soft_value: an immutable array, its promise
 * (queue.h) and, once that is kept, its block of memory. Values are counted: the handle holds one reference until it
 * is deleted or donated, each job that reads or makes the value holds one. So a handle may be destroyed at
 * any time, and the memory lives exactly until the last job that needs it. A PJRT_Executable and a
 * PJRT_LoadedExecutable share a counted soft_program.
 *
 * An argument is donated when the program was compiled to donate it, the call does not list it among the
 * non-donatable, and it is not passed twice. Its handle is then deleted, and the block may be overwritten if nobody
 * else holds the value.
 *
 * Errors. A function that fails at the call returns a PJRT_Error. What fails later is the status of the promise. A
 * failed index check fails the values that depend on it and no others, and a job that reads a failed value fails those
 * of its results that need it: their promises are apart then. The promise of the execution itself (its device-complete
 * event) fails with the first of them.
 */
#ifndef TTPU_SOFT_PLUGIN_INT_H
#define TTPU_SOFT_PLUGIN_INT_H

#include <pthread.h>
#include <string.h>

#include "pjrt/abi.h"
#include "pjrt/extension.h"
#include "soft/hbm.h"
#include "soft/host.h"
#include "soft/link/link.h"
#include "soft/queue.h"
#include "soft/soft_int.h"
#include "soft/topology.h"

#define PLUGIN_PLATFORM "tpu"

/* Every function in our table, plugin_<name>. */
#define FUNCTION(name) PJRT_Error *plugin_##name(PJRT_##name##_Args *args);
#define VOID_FUNCTION(name) void plugin_##name(PJRT_##name##_Args *args);
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION

/* ---- errors and events (plugin_event.c) ---------------------------------------------------------- */

/* An error of this status with this thread's message; NULL for OK. Never fails: without memory it is a constant. */
PJRT_Error *plugin_error(ttpu_status status);
PJRT_Error *plugin_error_new(ttpu_status status, const char *message, size_t length);
/* The rest of a function, after a call that may fail. */
#define PLUGIN_TRY(expr)                                                        \
  do {                                                                          \
    ttpu_status plugin_try_status_ = (expr);                                    \
    if (plugin_try_status_ != TTPU_OK) return plugin_error(plugin_try_status_); \
  } while (0)
#define PLUGIN_FAIL(code, ...) return plugin_error(base_fail(code, __VA_ARGS__))

/* First line of every function: the struct must reach `last`, the newest field that we cannot do without. */
ttpu_status plugin_check_size(const char *function, size_t given, size_t needed);
#define PLUGIN_ARGS(function, last)                                                 \
  PLUGIN_TRY(PJRT_HAS(args, last) ? TTPU_OK                                         \
                                  : plugin_check_size(#function, args->struct_size, \
                                                      (size_t)((const char *)(&args->last + 1) - (const char *)args)))

/* An event over a promise, which it takes; NULL: out of memory (the promise is released). */
PJRT_Event *plugin_event_new(soft_done *done);
void plugin_event_free(PJRT_Event *e);

/* ---- clients (plugin_client.c) --------------------------------------------------------------------- */

enum { MEMORY_DEVICE, MEMORY_PINNED_HOST, MEMORY_KINDS };
extern const char *const plugin_memory_kinds[MEMORY_KINDS];

struct PJRT_DeviceDescription {
  const soft_topology *topology;
  int id;
  int64_t coords[3], core_on_chip;
  PJRT_NamedValue attributes[5];
  char text[96]; /* both the debug string and the short one */
};

struct PJRT_TopologyDescription {
  soft_topology topology;
  PJRT_DeviceDescription *descriptions; /* one a device */
  PJRT_DeviceDescription **pointers;
  PJRT_NamedValue attributes[3];
  int64_t dims[3];
};

struct PJRT_Memory {
  const void *table; /* NULL: we offer no user data on memories */
  int id, kind;
  PJRT_Device *device;
  soft_hbm *hbm;
  char text[128];
};

struct PJRT_Device {
  PJRT_Client *client;
  PJRT_DeviceDescription *description;
  soft_queue *queue;
  PJRT_Memory memories[MEMORY_KINDS];
  PJRT_Memory *pointers[MEMORY_KINDS];
};

struct PJRT_Client {
  PJRT_TopologyDescription *topology;
  uint32_t device_count;
  PJRT_Device *devices;
  PJRT_Device **device_pointers;
  PJRT_Memory **memory_pointers; /* MEMORY_KINDS a device */
  pthread_mutex_t launching;     /* held while the jobs of one run go to all queues */
};

/* ---- values and buffers (plugin_buffer.c) ------------------------------------------------------------ */

typedef struct soft_value {
  atomic_uint refs;
  uint8_t dtype, rank;
  size_t bytes;
  soft_done *done;
  soft_block *block; /* written before `done` is ready; NULL if it failed */
  int64_t dims[];
} soft_value;

soft_value *plugin_value_new(ttpu_dtype dtype, uint32_t rank, const int64_t *dims, soft_done *done); /* takes done */
soft_value *plugin_value_share(soft_value *v);
void plugin_value_free(soft_value *v); /* NULL is fine */

struct PJRT_Buffer {
  PJRT_Memory *memory;
  atomic_flag lock;     /* of the next three; held for a few instructions */
  soft_value *value;    /* NULL: deleted or donated */
  soft_value *external; /* kept for external references */
  uint32_t external_count;
  uint8_t dtype, rank;
  size_t bytes;
  int64_t dims[]; /* then minor_to_major, as many */
};

/* A handle for v, which it takes on success. NULL: out of memory. */
PJRT_Buffer *plugin_buffer_new(PJRT_Memory *memory, soft_value *v);
/* The buffer's value with a new reference; FAILED_PRECONDITION, naming `what`, if it was deleted or donated. */
ttpu_status plugin_buffer_value(PJRT_Buffer *b, const char *what, soft_value **out);
/* Takes the value from its handle; NULL if somebody was faster. */
soft_value *plugin_buffer_take(PJRT_Buffer *b);

/* For buffers that are filled later (plugin_transfer.c): a value of the shape with its block and an open promise. */
ttpu_status plugin_value_from_shape(PJRT_Memory *memory, PJRT_Buffer_Type type, size_t rank, const int64_t *dims,
                                    soft_value **out);
/* Host data in a layout (NULL: row-major) into the value's block. */
ttpu_status plugin_copy_in(soft_value *v, const void *data, const PJRT_Buffer_MemoryLayout *layout);
/* The layout that somebody wants on the device: ours is row-major. */
ttpu_status plugin_check_device_layout(const PJRT_Buffer_MemoryLayout *layout, size_t rank);

/* ---- the layouts extension (plugin_layouts.c) -------------------------------------------------------- */

/* Its structs, as xla/pjrt/c/pjrt_c_api_layouts_extension.h of openxla/xla declares them. */
enum { PJRT_Extension_Type_Layouts = 4 };
typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
#define LAYOUTS_ARGS(name, ...)               \
  typedef struct PJRT_Layouts_##name##_Args { \
    PJRT_HEADER __VA_ARGS__                   \
  } PJRT_Layouts_##name##_Args;
LAYOUTS_ARGS(MemoryLayout_Destroy, PJRT_Layouts_MemoryLayout *layout;)
LAYOUTS_ARGS(MemoryLayout_Serialize, PJRT_Layouts_MemoryLayout *layout; const char *serialized_bytes;
             size_t serialized_bytes_size; PJRT_Layouts_SerializedLayout * serialized_layout;
             void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout *layout);)
LAYOUTS_ARGS(PJRT_Client_GetDefaultLayout, PJRT_Client *client; PJRT_Buffer_Type type; const int64_t *dims;
             size_t num_dims; PJRT_Layouts_MemoryLayout * layout;)
LAYOUTS_ARGS(PJRT_Buffer_MemoryLayout, PJRT_Buffer *buffer; PJRT_Layouts_MemoryLayout * layout;)
LAYOUTS_ARGS(PJRT_Topology_GetDefaultLayout, PJRT_TopologyDescription *topology; PJRT_Buffer_Type type;
             const int64_t *dims; size_t num_dims; PJRT_Layouts_MemoryLayout * layout;)
LAYOUTS_ARGS(PJRT_Executable_GetOutputLayouts, PJRT_Executable *executable; size_t num_outputs;
             PJRT_Layouts_MemoryLayout * *layouts;)
LAYOUTS_ARGS(PJRT_Executable_GetParameterLayouts, PJRT_Executable *executable; size_t num_parameters;
             PJRT_Layouts_MemoryLayout * *layouts;)
#undef LAYOUTS_ARGS

typedef struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*memory_layout_destroy)(PJRT_Layouts_MemoryLayout_Destroy_Args *args);
  PJRT_Error *(*memory_layout_serialize)(PJRT_Layouts_MemoryLayout_Serialize_Args *args);
  PJRT_Error *(*client_get_default_layout)(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args);
  PJRT_Error *(*buffer_memory_layout)(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args);
  PJRT_Error *(*topology_get_default_layout)(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args);
  PJRT_Error *(*executable_get_output_layouts)(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args);
  PJRT_Error *(*executable_get_parameter_layouts)(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args);
} PJRT_Layouts_Extension;
extern PJRT_Layouts_Extension plugin_layouts_extension;
PJRT_Layouts_MemoryLayout *plugin_layout(uint32_t rank); /* constant; nobody frees it */

/* ---- the host (plugin_host.c) ------------------------------------------------------------------------ */

typedef struct plugin_host plugin_host;
/* Of the execution's device number `device`, from its callbacks. */
ttpu_status plugin_host_new(const PJRT_ExecuteOptions *options, size_t device, plugin_host **out);
void plugin_host_free(plugin_host *h); /* NULL is fine */
soft_host *plugin_host_base(plugin_host *h);

/* ---- compile options (compile_options.c) ----------------------------------------------------------- */

typedef struct plugin_compile_options {
  uint32_t replicas, partitions; /* >= 1 */
  int64_t device_ordinal;        /* -1: not given */
  uint32_t assigned;             /* device ids given: 0 or replicas * partitions */
  int32_t devices[4096];
} plugin_compile_options;

/* Reads a serialized CompileOptionsProto; unknown fields are skipped. */
ttpu_status plugin_compile_options_parse(const void *bytes, size_t length, plugin_compile_options *out);

/* ---- programs (plugin_compile.c) ----------------------------------------------------------------------- */

/* What a PJRT_Executable and the PJRT_LoadedExecutables made from it share. Immutable. */
typedef struct soft_program {
  atomic_uint refs;
  soft_executable *executable;
  const ir_func *func; /* the executable's */
  uint32_t replicas, partitions;
  uint32_t parameters, outputs;
  int64_t cost;      /* estimate of one run, nanoseconds */
  size_t host_bytes; /* of the executable, in the host's memory */
  bool partial;      /* a run may fail in part */
  bool transfers;    /* it talks to the host while it runs */
  bool linked;       /* its chips meet in collectives: they fail together, and in whole */
  PJRT_Buffer_Type *output_types;
  int64_t *output_dims; /* of all outputs, one after another */
  size_t *output_ranks;
  const char **memory_kinds; /* "device", as often as needed */
  size_t *memory_kind_sizes;
  PJRT_Layouts_MemoryLayout **layouts; /* of the parameters, then of the outputs */
  PJRT_NamedValue cost_properties[3];
  char fingerprint[33];
  char *options; /* CompileOptionsProto, as given */
  size_t options_length;
  soft_executable_stats stats;
} soft_program;

struct PJRT_Executable {
  soft_program *program;
};

struct PJRT_LoadedExecutable {
  soft_program *program; /* NULL: deleted */
  PJRT_Client *client;
  uint32_t count; /* devices: replicas x partitions, replica by replica */
  PJRT_Device **devices;
  PJRT_LogicalDeviceIds *ids;
};

soft_program *plugin_program_share(soft_program *p);
void plugin_program_free(soft_program *p); /* NULL is fine */
void plugin_loaded_free(PJRT_LoadedExecutable *e);
/* Its program, borrowed; FAILED_PRECONDITION once deleted. plugin_executable.c */
ttpu_status plugin_loaded_program(const PJRT_LoadedExecutable *e, soft_program **out);
PJRT_Error *plugin_compile_func(PJRT_Ttpu_Compile_Args *args); /* our extension's */

static inline ir_type plugin_parameter_type(const soft_program *p, uint32_t i) {
  return ir_type_of(p->func, p->func->body.first_arg + i);
}

static inline ir_type plugin_output_type(const soft_program *p, uint32_t i) {
  return ir_type_of(p->func, p->func->body.ops[p->func->body.count - 1]->operands[i]);
}

#endif
