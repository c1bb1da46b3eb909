/* The reader of portable artifacts. What it takes must be written, and what was written be read as the same bytes. */
#include "fuzz.h"
#include "seeds.h"

enum { VERSIONS = 2 };

bool fuzz_seed(uint32_t number, base_text *out) {
  static const unsigned versions[VERSIONS] = {0, 120};
  base_arena arena;
  base_arena_init(&arena);
  const ir_func *f = seed_function(&arena, number / VERSIONS);
  ttpu_status status = f ? ir_func_write(f, versions[number % VERSIONS], out) : TTPU_OK;
  FUZZ_MUST(status == TTPU_OK || status == TTPU_UNIMPLEMENTED); /* no operation of StableHLO: an empty input */
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
  if (status == TTPU_OK && ir_func_write(f, 0, &first) == TTPU_OK) {
    FUZZ_MUST(ir_parse(&arena, first.data, first.length, &again) == TTPU_OK);
    FUZZ_MUST(ir_func_write(again, 0, &second) == TTPU_OK);
    FUZZ_MUST(first.length == second.length && memcmp(first.data, second.data, first.length) == 0);
  }
  base_text_free(&first);
  base_text_free(&second);
  base_arena_free(&arena);
  return 0;
}
