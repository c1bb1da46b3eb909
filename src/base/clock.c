/* The one clock that durations and waits are measured with. */
#include <time.h>

#include "base/base.h"

int64_t base_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
