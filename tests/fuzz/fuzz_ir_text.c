/* The reader of StableHLO text. What it takes must print, and the print must be read as the same program. */
#include "fuzz.h"
#include "seeds.h"

bool fuzz_seed(uint32_t number, base_text *out) {
  base_arena arena;
  base_arena_init(&arena);
  const ir_func *f = seed_function(&arena, number);
  if (f) FUZZ_MUST(ir_func_print(f, out) == TTPU_OK);
  base_arena_free(&arena);
  return f != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f, *again;
  base_text first = {0}, second = {0};
  ttpu_status status = ir_parse(&arena, (const char *)bytes, size, &f);
  FUZZ_MUST(status != TTPU_RESOURCE_EXHAUSTED && status != TTPU_INTERNAL);
  if (status == TTPU_OK && ir_func_print(f, &first) == TTPU_OK) {
    FUZZ_MUST(ir_parse(&arena, first.data, first.length, &again) == TTPU_OK);
    FUZZ_MUST(ir_func_print(again, &second) == TTPU_OK);
    FUZZ_MUST(strcmp(first.data, second.data) == 0);
  }
  base_text_free(&first);
  base_text_free(&second);
  base_arena_free(&arena);
  return 0;
}
