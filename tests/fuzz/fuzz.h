/* Fuzz targets: a file each, with libFuzzer's entry point and the inputs that are right, from which the wrong ones are
 * made. clang builds them with -DTTPU_FUZZ=ON for libFuzzer; driver.c mutates by itself, for a bounded time, wherever the
 * tests run. A target ends the process when something is wrong that a sanitizer would not see. */
#ifndef TTPU_FUZZ_H
#define TTPU_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
/* Right input number `number`, in *out (which is empty); false when there are no more. */
bool fuzz_seed(uint32_t number, base_text *out);

#define FUZZ_MUST(condition)                                                              \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, base_message()); \
      abort();                                                                            \
    }                                                                                     \
  } while (0)

#endif
