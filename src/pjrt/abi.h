/* abi: the binary interface of PJRT, version 0.114, declared for C.
 *
 * PJRT is how a framework talks to a device: a shared library (the plugin) exports GetPjrtApi, which gives a table
 * of functions (functions.def), each taking one pointer to a struct of arguments. Both sides evolve: a table or a
 * struct may grow at its end, so each begins with the size its writer knew.
 *
 *   A caller sets struct_size to the size of the struct it knows and clears the rest.
 *   A callee reads and writes a field only if struct_size covers it: PJRT_HAS(args, field).
 *   A caller uses a table's entry only if the table's struct_size covers it and it is not NULL.
 *   Errors are objects; NULL is success. Whoever gets one destroys it.
 *
 * Names, order and layout are those of the public interface; tests/c/test_pjrt_abi.c checks sizes and offsets.
 * Strings have a size and no terminating NUL, unless a comment says so.
 */
#ifndef TTPU_PJRT_ABI_H
#define TTPU_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PJRT_API_MAJOR = 0, PJRT_API_MINOR = 114 };

/* Does the writer of *s know `field`? */
#define PJRT_HAS(s, field) ((s)->struct_size >= (size_t)((const char *)(&(s)->field + 1) - (const char *)(s)))

typedef struct PJRT_Extension_Base {
  size_t struct_size;
  uint32_t type;
  struct PJRT_Extension_Base *next;
} PJRT_Extension_Base;

/* Every struct but a few begins with these two. */
#define PJRT_HEADER   \
  size_t struct_size; \
  PJRT_Extension_Base *extension_start;

typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_Memory PJRT_Memory; /* its first word is a table of functions or NULL, since 0.105 */
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;
typedef struct PJRT_AsyncTrackingEvent PJRT_AsyncTrackingEvent;
typedef struct PJRT_AsyncHostToDeviceTransferManager PJRT_AsyncHostToDeviceTransferManager;
typedef struct PJRT_CopyToDeviceStream PJRT_CopyToDeviceStream;
typedef struct PJRT_TransferMetadata PJRT_TransferMetadata;
typedef struct PJRT_FulfillAliasBufferCallback PJRT_FulfillAliasBufferCallback;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_SerializedCompileOptions PJRT_SerializedCompileOptions;
typedef struct PJRT_SerializedTopology PJRT_SerializedTopology;
typedef struct PJRT_SerializedShape PJRT_SerializedShape;
typedef struct PJRT_DeviceAssignmentSerialized PJRT_DeviceAssignmentSerialized;
typedef struct PJRT_Device_Attributes PJRT_Device_Attributes;

typedef int PJRT_Error_Code;  /* ttpu_status has the same numbers */
typedef int PJRT_Buffer_Type; /* base/dtypes.def has the numbers */

/* An error's first word, since 0.107. */
typedef struct PJRT_Error PJRT_Error;
typedef void (*PJRT_Error_PayloadVisitor)(const char *key, size_t key_size, const char *value, size_t value_size,
                                          void *user_arg);
typedef struct PJRT_Error_FunctionTable {
  size_t struct_size;
  size_t instance_size;
  PJRT_Extension_Base *extension_start;
  void (*destroy)(PJRT_Error *error);
  void (*message)(const PJRT_Error *error, const char **message, size_t *message_size);
  PJRT_Error_Code (*get_code)(const PJRT_Error *error);
  void (*for_each_payload)(const PJRT_Error *error, PJRT_Error_PayloadVisitor visitor, void *user_arg);
} PJRT_Error_FunctionTable;

typedef PJRT_Error *(*PJRT_CallbackError)(PJRT_Error_Code code, const char *message, size_t message_size);

enum {
  PJRT_NamedValue_kString,
  PJRT_NamedValue_kInt64,
  PJRT_NamedValue_kInt64List,
  PJRT_NamedValue_kFloat,
  PJRT_NamedValue_kBool
};
typedef struct PJRT_NamedValue {
  PJRT_HEADER
  const char *name;
  size_t name_size;
  int type;
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; /* characters, elements, or 1 */
} PJRT_NamedValue;

typedef struct PJRT_Program {
  PJRT_HEADER
  char *code;
  size_t code_size;
  const char *format; /* "mlir", "hlo", "hlo_with_config" */
  size_t format_size;
} PJRT_Program;

enum { PJRT_Buffer_MemoryLayout_Type_Tiled, PJRT_Buffer_MemoryLayout_Type_Strides };
typedef struct PJRT_Buffer_MemoryLayout_Tiled {
  PJRT_HEADER
  const int64_t *minor_to_major; /* dimension numbers, the fastest first */
  size_t minor_to_major_size;
  const int64_t *tile_dims;
  const size_t *tile_dim_sizes;
  size_t num_tiles;
} PJRT_Buffer_MemoryLayout_Tiled;
typedef struct PJRT_Buffer_MemoryLayout_Strides {
  PJRT_HEADER
  const int64_t *byte_strides;
  size_t num_byte_strides;
} PJRT_Buffer_MemoryLayout_Strides;
typedef struct PJRT_Buffer_MemoryLayout {
  PJRT_HEADER
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  int type;
} PJRT_Buffer_MemoryLayout;

enum {
  PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
  PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
  PJRT_HostBufferSemantics_kImmutableZeroCopy,
  PJRT_HostBufferSemantics_kMutableZeroCopy
};

typedef struct PJRT_ShapeSpec {
  PJRT_HEADER
  const int64_t *dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
} PJRT_ShapeSpec;

typedef struct PJRT_ProcessInfo {
  size_t struct_size;
  int task_id;
  uint64_t incarnation_id;
  int state;
  int error_code;
  const char *error_message;
  size_t error_message_size;
} PJRT_ProcessInfo;

typedef struct PJRT_LogicalDeviceIds {
  int replica;
  int partition;
} PJRT_LogicalDeviceIds;

typedef struct PJRT_Chunk {
  void *data;
  size_t size;
  void (*deleter)(void *data, void *deleter_arg);
  void *deleter_arg;
} PJRT_Chunk;

typedef struct PJRT_SendCallbackInfo {
  int64_t channel_id;
  void *user_arg;
  PJRT_Error *(*send_callback)(PJRT_Chunk *chunk, PJRT_CallbackError *callback_error, size_t total_size_in_bytes,
                               bool done, void *user_arg);
} PJRT_SendCallbackInfo;
typedef struct PJRT_RecvCallbackInfo {
  int64_t channel_id;
  void *user_arg;
  void (*recv_callback)(PJRT_CopyToDeviceStream *stream, void *user_arg);
} PJRT_RecvCallbackInfo;

typedef struct PJRT_ExecuteOptions {
  PJRT_HEADER
  PJRT_SendCallbackInfo **send_callbacks;
  PJRT_RecvCallbackInfo **recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  PJRT_ExecuteContext *context;
  const char *call_location; /* ends with NUL */
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
  void *multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void *hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
} PJRT_ExecuteOptions;

typedef struct PJRT_KeyValueGetCallback_Args {
  PJRT_HEADER
  const char *key;
  size_t key_size;
  int timeout_in_ms;
  PJRT_CallbackError *callback_error;
  void *user_arg;
  char *value; /* out */
  size_t value_size;
  void (*value_deleter_callback)(char *value);
} PJRT_KeyValueGetCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args *args);
typedef struct PJRT_KeyValueTryGetCallback_Args {
  PJRT_HEADER
  const char *key;
  size_t key_size;
  PJRT_CallbackError *callback_error;
  void *user_arg;
  char *value; /* out */
  size_t value_size;
  void (*value_deleter_callback)(char *value);
} PJRT_KeyValueTryGetCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(PJRT_KeyValueTryGetCallback_Args *args);
typedef struct PJRT_KeyValuePutCallback_Args {
  PJRT_HEADER
  const char *key;
  size_t key_size;
  const char *value;
  size_t value_size;
  PJRT_CallbackError *callback_error;
  void *user_arg;
} PJRT_KeyValuePutCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args *args);

typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg); /* owns the error */

#define PJRT_ARGS(name, fields)       \
  typedef struct PJRT_##name##_Args { \
    PJRT_HEADER                       \
    fields                            \
  } PJRT_##name##_Args;
#include "pjrt/arguments.def"
#undef PJRT_ARGS

typedef struct PJRT_Api_Version {
  PJRT_HEADER
  int major_version;
  int minor_version;
} PJRT_Api_Version;

typedef struct PJRT_Api {
  PJRT_HEADER
  PJRT_Api_Version pjrt_api_version;
#define FUNCTION(name) PJRT_Error *(*name)(PJRT_##name##_Args * args);
#define VOID_FUNCTION(name) void (*name)(PJRT_##name##_Args * args);
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION
} PJRT_Api;

#ifdef __cplusplus
#define PJRT_ASSERT static_assert
#else
#define PJRT_ASSERT _Static_assert
#endif
PJRT_ASSERT(sizeof(PJRT_Api) == 1144, "138 functions after 40 bytes");
PJRT_ASSERT(offsetof(PJRT_Api, pjrt_api_version.major_version) == 32, "the version's place never moves");
PJRT_ASSERT(offsetof(PJRT_Api, pjrt_api_version.minor_version) == 36, "the version's place never moves");
PJRT_ASSERT(offsetof(PJRT_Api, LoadedExecutable_Execute) == 480, "order of functions.def");
PJRT_ASSERT(offsetof(PJRT_Api, Event_Create) == 1048, "order of functions.def");
PJRT_ASSERT(sizeof(PJRT_NamedValue) == 56, "");
PJRT_ASSERT(sizeof(PJRT_Buffer_MemoryLayout) == 80, "");
PJRT_ASSERT(sizeof(PJRT_ExecuteOptions) == 144, "");
PJRT_ASSERT(sizeof(PJRT_LoadedExecutable_Execute_Args) == 80, "");
PJRT_ASSERT(sizeof(PJRT_Client_BufferFromHostBuffer_Args) == 120, "");
PJRT_ASSERT(sizeof(PJRT_Device_MemoryStats_Args) == 208, "");

const PJRT_Api *GetPjrtApi(void);

#ifdef __cplusplus
}
#endif
#endif
