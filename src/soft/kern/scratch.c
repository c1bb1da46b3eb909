#include "soft/kern/scratch.h"

#include <stdatomic.h>

enum { KEPT = 4, HEADER = 64, KEPT_BYTES = 64 << 20 }; /* blocks, bytes before one's data, the largest that is kept */

typedef struct block {
  size_t capacity;
} block;

static _Atomic(block *) kept[KEPT];

void *kern_scratch_new(size_t bytes) {
  for (int i = 0; i < KEPT; ++i) {
    block *b = atomic_exchange(&kept[i], NULL);
    if (b && b->capacity >= bytes) return (char *)b + HEADER;
    if (b) kern_scratch_free((char *)b + HEADER);
  }
  const size_t capacity = (bytes + 4095) / 4096 * 4096;
  block *b = capacity < bytes ? NULL : base_alloc_large(HEADER + capacity);
  if (!b) return NULL;
  b->capacity = capacity;
  return (char *)b + HEADER;
}

/* Into the first place that is empty or has a smaller block, which then looks for a place of its own. */
void kern_scratch_free(void *memory) {
  block *b = memory ? (block *)(void *)((char *)memory - HEADER) : NULL;
  for (int i = 0; b && i < KEPT && b->capacity <= KEPT_BYTES; ++i) {
    block *there = atomic_exchange(&kept[i], NULL);
    block *larger = !there || b->capacity >= there->capacity ? b : there;
    b = larger == b ? there : b;
    there = atomic_exchange(&kept[i], larger);
    if (there && !b) b = there; /* another thread put it there meanwhile */
    else if (there) base_free(there);
  }
  base_free(b);
}

void kern_scratch_trim(void) {
  for (int i = 0; i < KEPT; ++i) base_free(atomic_exchange(&kept[i], NULL));
}
