/* Wide values for any machine, and the choice among the instruction sets. */
#define WIDE_TABLE wide_portable
#include "soft/kern/wide_template.h"

ir_kind wide_kind(ir_kind kind, ttpu_dtype t) {
  bool is_bool = t == TTPU_BOOL, integer = is_bool || base_dtype_is_integer(t), complex = base_dtype_is_complex(t);
  switch (kind) {
    case IR_ADD: return is_bool ? IR_OR : kind;
    case IR_MULTIPLY: return is_bool ? IR_AND : kind;
    case IR_MAXIMUM:
    case IR_MINIMUM: return complex ? IR_NO_OP : kind;
    case IR_AND:
    case IR_OR:
    case IR_XOR: return integer ? kind : IR_NO_OP;
    default: return IR_NO_OP;
  }
}

const wide_functions *wide_get(void) {
#if defined(__x86_64__)
  const base_cpu_features *cpu = base_cpu();
  if (cpu->avx512) return &wide_avx512;
  if (cpu->avx2) return &wide_avx2;
#endif
  return &wide_portable;
}
