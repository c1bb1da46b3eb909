/* select: a function made from another one, with some of its parameters known and some of its results wanted. */
#ifndef TTPU_IR_SELECT_H
#define TTPU_IR_SELECT_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ir_selection {
  const ir_data *constants; /* by parameter: what it always is; without bytes it stays a parameter. NULL: all stay */
  const bool *donate;       /* by parameter of f: its buffer may be consumed. NULL: none */
  uint32_t result_count;
  const uint32_t *results; /* which of f's, in the new order */
  const ir_type *types;    /* of each result: as many elements of the same dtype, else INVALID_ARGUMENT */
} ir_selection;

/* Nothing is simplified: operations that only results left out need stay. `arena` holds the new function, constants
 * included. */
ttpu_status ir_func_select(const ir_func *f, const ir_selection *s, base_arena *arena, ir_func **out);

#ifdef __cplusplus
}
#endif
#endif
