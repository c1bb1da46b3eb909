/* Functions from which inputs are made: an example of every operation, and constants of every dtype. */
#ifndef TTPU_FUZZ_SEEDS_H
#define TTPU_FUZZ_SEEDS_H

#include "fuzz.h"
#include "ir_examples.h"

/* NULL: there are no more. */
static const ir_func *seed_function(base_arena *arena, uint32_t number) {
  enum { EXAMPLES = IR_KIND_COUNT - 1, CONSTANTS = TTPU_DTYPE_COUNT - 1, ELEMENTS = 6, MOST_BYTES_EACH = 16 };
  ir_builder b;
  if (number < EXAMPLES) {
    const ir_func *f = example_build(&b, arena, (ir_kind)(number + 1));
    FUZZ_MUST(b.status == TTPU_OK);
    return f;
  }
  if (number >= EXAMPLES + CONSTANTS) return NULL;
  static const int64_t dims[2] = {2, ELEMENTS / 2};
  uint8_t data[ELEMENTS * MOST_BYTES_EACH];
  ttpu_dtype dtype = (ttpu_dtype)(number - EXAMPLES + 1);
  for (size_t i = 0; i < sizeof data; ++i) data[i] = (uint8_t)(i & 1);
  ir_func *f = ir_func_new(arena, "main");
  b = ir_builder_on(f);
  ir_value v = ir_constant(&b, (ir_type){(uint8_t)dtype, 2, dims}, (ir_data){data, false});
  ir_return(&b, 1, &v);
  FUZZ_MUST(b.status == TTPU_OK);
  return f;
}

#endif
