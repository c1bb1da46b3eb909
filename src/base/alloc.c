/* The one allocation hook, with failure injection for tests, and what stands on it: arenas and growable arrays. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, bytes) ASAN_POISON_MEMORY_REGION(p, bytes)
#define UNPOISON(p, bytes) ASAN_UNPOISON_MEMORY_REGION(p, bytes)
enum { RED_ZONE = 16 }; /* between two arena allocations, so that AddressSanitizer sees overruns */
#else
#define POISON(p, bytes) ((void)(p), (void)(bytes))
#define UNPOISON(p, bytes) ((void)(p), (void)(bytes))
enum { RED_ZONE = 0 };
#endif

/* ---- the hook ---- */

static _Atomic uint64_t alloc_total;
static _Atomic uint64_t alloc_fail_in; /* allocations left up to and with the one that fails; 0: none */

void base_alloc_fail_after(uint64_t nth) { atomic_store(&alloc_fail_in, nth); }
uint64_t base_alloc_count(void) { return atomic_load(&alloc_total); }

/* Counts one allocation; false when it is the one that must fail. */
static bool alloc_allowed(void) {
  atomic_fetch_add_explicit(&alloc_total, 1, memory_order_relaxed);
  uint64_t left = atomic_load_explicit(&alloc_fail_in, memory_order_relaxed);
  while (left != 0)
    if (atomic_compare_exchange_weak(&alloc_fail_in, &left, left - 1)) return left != 1;
  return true;
}

void *base_alloc(size_t bytes) { return alloc_allowed() ? malloc(bytes ? bytes : 1) : NULL; }

void *base_calloc(size_t count, size_t bytes) {
  size_t total;
  if (!alloc_allowed() || __builtin_mul_overflow(count, bytes, &total)) return NULL;
  return total ? calloc(count, bytes) : calloc(1, 1);
}

void *base_realloc(void *p, size_t bytes) { return alloc_allowed() ? realloc(p, bytes ? bytes : 1) : NULL; }

void *base_alloc_aligned(size_t alignment, size_t bytes) {
  void *p = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  if (!alloc_allowed() || posix_memalign(&p, alignment, bytes ? bytes : 1) != 0) return NULL;
  return p;
}

void *base_alloc_large(size_t bytes) {
  enum { ALIGNMENT = 64 };
  size_t rest = bytes % BASE_HUGE_PAGE, whole = bytes - rest;
  if (rest >= BASE_HUGE_PAGE / 2) whole += BASE_HUGE_PAGE; /* less than half of a page is not worth one */
  if (whole == 0 || whole < bytes - rest) return base_alloc_aligned(ALIGNMENT, bytes);
  void *p = base_alloc_aligned(BASE_HUGE_PAGE, whole > bytes ? whole : bytes);
  if (p) madvise(p, whole, MADV_HUGEPAGE); /* advice: failing is no error */
  return p;
}

void base_free(void *p) { free(p); }

ttpu_status base_no_memory(size_t bytes) {
  return base_fail(TTPU_RESOURCE_EXHAUSTED, "out of host memory: %zu bytes could not be allocated", bytes);
}

/* ---- arenas ---- */

/* Chunks double from 4 KB to 1 MB. An allocation larger than the next chunk would be gets a chunk of its own, put
 * behind the head, so that the space left in the head is still used. */
enum { CHUNK_FIRST = 4096, CHUNK_LARGEST = 1 << 20 };

typedef struct base_arena_chunk {
  struct base_arena_chunk *older;
  size_t bytes; /* of data */
  _Alignas(16) uint8_t data[];
} base_arena_chunk;

void base_arena_init(base_arena *a) { *a = (base_arena){0}; }

static base_arena_chunk *chunk_new(size_t bytes) {
  base_arena_chunk *chunk = base_alloc(sizeof *chunk + bytes);
  if (!chunk) return NULL;
  chunk->bytes = bytes;
  POISON(chunk->data, bytes);
  return chunk;
}

static void chunk_free(base_arena_chunk *chunk) {
  UNPOISON(chunk->data, chunk->bytes);
  base_free(chunk);
}

static void arena_use(base_arena *a, base_arena_chunk *chunk) {
  a->head = chunk;
  a->next = chunk->data;
  a->end = chunk->data + chunk->bytes;
}

static void *arena_alloc_slow(base_arena *a, size_t bytes, size_t taken) {
  size_t size = a->head ? 2 * a->head->bytes : CHUNK_FIRST;
  if (size > CHUNK_LARGEST) size = CHUNK_LARGEST;
  bool alone = taken > size && a->head;
  if (taken > size) size = taken;
  base_arena_chunk *chunk = chunk_new(size);
  if (!chunk) return NULL;
  UNPOISON(chunk->data, bytes);
  if (alone) {
    chunk->older = a->head->older;
    a->head->older = chunk;
    return chunk->data;
  }
  chunk->older = a->head;
  arena_use(a, chunk);
  a->next += taken;
  return chunk->data;
}

void *base_arena_alloc(base_arena *a, size_t bytes) {
  if (bytes > PTRDIFF_MAX / 2) return NULL;
  size_t taken = ((bytes + (bytes == 0) + 15) & ~(size_t)15) + RED_ZONE;
  if (taken > (size_t)(a->end - a->next)) return arena_alloc_slow(a, bytes, taken);
  void *p = a->next;
  a->next += taken;
  UNPOISON(p, bytes);
  return p;
}

void *base_arena_zalloc(base_arena *a, size_t bytes) {
  void *p = base_arena_alloc(a, bytes);
  if (p) memset(p, 0, bytes);
  return p;
}

void *base_arena_dup(base_arena *a, const void *from, size_t bytes) {
  void *p = base_arena_alloc(a, bytes);
  if (p && bytes) memcpy(p, from, bytes);
  return p;
}

char *base_arena_printf(base_arena *a, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = length < 0 ? NULL : base_arena_alloc(a, (size_t)length + 1);
  if (text) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

size_t base_arena_bytes(const base_arena *a) {
  size_t bytes = 0;
  for (const base_arena_chunk *chunk = a->head; chunk; chunk = chunk->older) bytes += sizeof *chunk + chunk->bytes;
  return bytes;
}

void base_arena_reset(base_arena *a) {
  base_arena_chunk *kept = a->head;
  if (!kept) return;
  if (kept->bytes > CHUNK_LARGEST) { /* one huge allocation made it: not worth holding */
    base_arena_free(a);
    return;
  }
  for (base_arena_chunk *chunk = kept->older, *older; chunk; chunk = older) {
    older = chunk->older;
    chunk_free(chunk);
  }
  kept->older = NULL;
  POISON(kept->data, kept->bytes);
  arena_use(a, kept);
}

void base_arena_free(base_arena *a) {
  for (base_arena_chunk *chunk = a->head, *older; chunk; chunk = older) {
    older = chunk->older;
    chunk_free(chunk);
  }
  base_arena_init(a);
}

base_arena *base_arena_new(void) {
  base_arena *a = base_alloc(sizeof *a);
  if (a) base_arena_init(a);
  return a;
}

void base_arena_delete(base_arena *a) {
  base_arena_free(a);
  base_free(a);
}

/* ---- growable arrays ---- */

bool base_grow(void **ptr, uint32_t *cap, uint32_t need, size_t item_bytes) {
  if (need == 0) return false; /* BASE_GROW on an array of 2^32 - 1 items wrapped around */
  if (need <= *cap) return true;
  uint64_t wanted = 2 * (uint64_t)*cap;
  if (wanted < need) wanted = need;
  if (wanted < 8) wanted = 8;
  if (wanted > UINT32_MAX) wanted = UINT32_MAX;
  size_t bytes;
  void *old, *grown; /* the caller's pointer has a type of its own: read and written by its bytes */
  memcpy(&old, ptr, sizeof old);
  if (__builtin_mul_overflow(wanted, item_bytes, &bytes) || !(grown = base_realloc(old, bytes))) return false;
  memcpy(ptr, &grown, sizeof grown);
  *cap = (uint32_t)wanted;
  return true;
}
