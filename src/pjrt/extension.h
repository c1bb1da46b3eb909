/* extension: what our own plugin offers beside PJRT, to our own client.
 *
 * It hangs in the list at PJRT_Api.extension_start under a type number of ours ("ttpu" in ASCII, far outside the
 * public range). Its main part is compiling an ir_func by pointer: no text is printed or parsed. That is safe only
 * while both sides were built from one definition of the IR, so the extension carries a fingerprint of it, and a
 * client that computes another one treats the plugin as any other (text).
 */
#ifndef TTPU_PJRT_EXTENSION_H
#define TTPU_PJRT_EXTENSION_H

#include "ir/ir.h"
#include "pjrt/abi.h"

enum { PJRT_Extension_Type_Ttpu = 0x74747075 };

typedef struct PJRT_Ttpu_Compile_Args {
  PJRT_HEADER
  PJRT_Client *client;
  base_arena *arena; /* made with base_alloc, as func in it; the callee's from now on, whatever the outcome */
  ir_func *func;
  PJRT_Device *device;
  PJRT_LoadedExecutable *executable; /* out */
} PJRT_Ttpu_Compile_Args;

typedef struct PJRT_Ttpu_Counters_Args {
  PJRT_HEADER
  uint64_t structures_compiled, executables_bound, executions; /* out */
} PJRT_Ttpu_Counters_Args;

typedef struct PJRT_Ttpu_SetThreads_Args {
  PJRT_HEADER
  int threads;
} PJRT_Ttpu_SetThreads_Args;

typedef struct PJRT_Ttpu_Trim_Args {
  PJRT_HEADER
  PJRT_Device *device;
} PJRT_Ttpu_Trim_Args;

typedef struct PJRT_Ttpu_Extension {
  PJRT_Extension_Base base;
  uint64_t ir_layout; /* pjrt_ttpu_ir_layout() of the plugin */
  PJRT_Error *(*compile)(PJRT_Ttpu_Compile_Args *args);
  PJRT_Error *(*counters)(PJRT_Ttpu_Counters_Args *args);
  PJRT_Error *(*set_threads)(PJRT_Ttpu_SetThreads_Args *args);
  PJRT_Error *(*trim)(PJRT_Ttpu_Trim_Args *args); /* recycled memory goes back to the system */
} PJRT_Ttpu_Extension;

/* A hash of everything that the two sides must agree on to share an ir_func: the lists, as text, and the structs'
 * sizes. */
static inline uint64_t pjrt_ttpu_ir_layout(void) {
  static const char lists[] =
#define DTYPE(...) #__VA_ARGS__ ";"
#include "base/dtypes.def"
#undef DTYPE
#define OP(ENUM, ...) #ENUM "," #__VA_ARGS__ ";"
#include "ir/ops.def"
#undef OP
#define ATTRS(name, ...) #name "," #__VA_ARGS__ ";"
#include "ir/attrs.def"
#undef ATTRS
      ;
  const uint64_t sizes[] = {sizeof(base_arena),        sizeof(ir_func),         sizeof(ir_op),
                            sizeof(ir_region),         sizeof(ir_type),         sizeof(ir_value_info),
                            offsetof(ir_func, donate), offsetof(ir_op, source), TTPU_MAX_RANK};
  return base_hash(base_hash(1, lists, sizeof lists), sizes, sizeof sizes);
}

#endif
