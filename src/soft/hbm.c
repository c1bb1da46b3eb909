/* A chip's memory: a limit, statistics, and recycling, over the host's memory.
 *
 * Fresh pages are the expensive part: the system clears them when they are first touched, about 20 ms per 64 MB,
 * more than most kernels take. So freed blocks are kept in free lists by size class and given out again, the one
 * freed last first (it may still be in a cache).
 *
 *   class       8 per power of two, at least 64 bytes: at most 12.5% of a block is unused
 *   small       up to 64 KiB: carved from 1 MiB slabs, never given back to the system
 *   large       a mapping of its own, on 2 MiB boundaries with huge pages from 4 MiB on; a request also takes a
 *               block of the next two classes. Given back when the limit, the host or soft_hbm_trim ask for it
 *
 * Counted against the limit is what was asked for, rounded up to 512 bytes: the same on every run, whatever was
 * recycled. What is kept for reuse is bounded by that (check_host), so that resident memory stays flat.
 */
#include "soft/hbm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft/forms.h"
#include "soft/kern/scratch.h"
#include "soft/queue.h"

enum {
  GRANULE = 512,
  SMALL = 64 << 10,
  SLAB = 1 << 20,
  CLASSES = 8 * 64,
  HEADERS = 64,                /* small blocks' headers come this many at a time */
  CHECK_HOST_EVERY = 64 << 20, /* fresh bytes between two looks at the host's memory */
  KEEP_ALWAYS = 256 << 20,     /* bytes that may be kept however little was in use */
};

typedef struct block {
  soft_block b;
  struct block *next; /* in a free list */
  size_t capacity;
  uint32_t class;
  void (*release)(void *data, void *context); /* wrapped memory */
  void *context;
} block;

typedef struct chunk { /* what small blocks are carved from, for the end */
  struct chunk *next;
  void *memory;
} chunk;

struct soft_hbm {
  pthread_mutex_t lock;
  soft_hbm_stats stats;
  size_t live;   /* blocks out; the last one destroys a closed hbm */
  size_t mapped; /* bytes from the system: slabs, and large blocks out or kept */
  size_t fresh;  /* of those, since the last look at the host's memory */
  size_t high;   /* the most that was ever in use */
  bool closed;
  uint8_t *slab, *slab_end;
  block *headers; /* unused ones */
  chunk *chunks;
  uint32_t top; /* classes above have no free block */
  block *free[CLASSES];
};

/* ---- the host's memory --------------------------------------------------------------------------- */

static size_t read_number(const char *path, const char *name) {
  char line[128];
  size_t value = SIZE_MAX;
  FILE *file = fopen(path, "re");
  if (!file) return SIZE_MAX;
  while (fgets(line, sizeof line, file)) {
    unsigned long long number;
    if (strncmp(line, name, strlen(name)) != 0) continue;
    if (sscanf(line + strlen(name), "%llu", &number) == 1) value = (size_t)number; /* "max" is none */
    break;
  }
  fclose(file);
  return value;
}

/* The control group's files, of either version, and what in memory.stat is given up first. */
static const struct {
  const char *limit, *used, *stat, *cache;
} groups[2] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file "},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file "},
};

size_t soft_host_memory_available(void) {
  size_t kib = read_number("/proc/meminfo", "MemAvailable:");
  size_t bytes = kib == SIZE_MAX ? SIZE_MAX : kib << 10;
  for (int i = 0; i < 2; ++i) {
    size_t limit = read_number(groups[i].limit, ""), used = read_number(groups[i].used, "");
    if (limit == SIZE_MAX || used == SIZE_MAX) continue;
    size_t cache = read_number(groups[i].stat, groups[i].cache);
    if (cache != SIZE_MAX) used -= cache < used ? cache : used;
    size_t left = limit > used ? limit - used : 0;
    if (left < bytes) bytes = left;
  }
  return bytes;
}

size_t soft_host_memory_total(void) {
  size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < 2; ++i) {
    size_t limit = read_number(groups[i].limit, "");
    if (limit < bytes) bytes = limit;
  }
  return bytes;
}

/* ---- sizes ----------------------------------------------------------------------------------------- */

/* Class c holds blocks of (8 + c % 8) << (c / 8 + 3) bytes: 64, 72, 80, ... The least one that holds `bytes`. */
static uint32_t class_of(size_t bytes) {
  if (bytes <= 64) return 0;
  uint32_t shift = 63 - (uint32_t)__builtin_clzll(bytes - 1) - 3; /* bytes - 1 has its 4 leading bits above */
  return (shift - 3) * 8 + (uint32_t)((bytes - 1) >> shift) - 8 + 1;
}

static size_t class_bytes(uint32_t class) { return (size_t)(8 + class % 8) << (class / 8 + 3); }

static size_t charge(size_t bytes) { return (bytes + GRANULE - 1) / GRANULE * GRANULE; }

/* ---- fresh memory ---------------------------------------------------------------------------------- */

static void *map_pages(size_t bytes) {
  bool huge = bytes >= 2 * BASE_HUGE_PAGE;
  size_t slack = huge ? BASE_HUGE_PAGE : 0;
  uint8_t *p = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  if (!huge) return p;
  size_t before = (size_t)(-(uintptr_t)p & (BASE_HUGE_PAGE - 1));
  if (before) munmap(p, before);
  if (slack - before) munmap(p + before + bytes, slack - before);
  madvise(p + before, bytes, MADV_HUGEPAGE);
  return p + before;
}

/* Gives kept large blocks back, the largest first, until no more than `keep` bytes are mapped. */
static void trim(soft_hbm *h, size_t keep) {
  for (uint32_t c = h->top; c-- > class_of(SMALL) + 1;) {
    while (h->free[c] && h->mapped > keep) {
      block *b = h->free[c];
      h->free[c] = b->next;
      munmap(b->b.data, b->capacity);
      h->mapped -= b->capacity;
      h->stats.recycled_bytes -= b->capacity;
      base_free(b);
    }
  }
}

/* Room for `bytes` more on the host? What is kept besides may be as much as was ever in use (programs of changing
 * sizes would else keep a set of blocks for each), and all together as much as the limit. */
static ttpu_status check_host(soft_hbm *h, size_t bytes) {
  size_t keep = h->stats.in_use + (h->high > KEEP_ALWAYS ? h->high : KEEP_ALWAYS);
  if (keep > h->stats.limit) keep = h->stats.limit;
  trim(h, bytes < keep ? keep - bytes : 0);
  h->fresh += bytes;
  if (h->fresh < CHECK_HOST_EVERY) return TTPU_OK;
  h->fresh = 0;
  size_t reserve = 128u << 20, available = soft_host_memory_available();
  if (available > bytes + reserve) return TTPU_OK;
  trim(h, 0);
  soft_forms_trim();
  kern_scratch_trim();
  h->fresh = CHECK_HOST_EVERY; /* look again next time */
  available = soft_host_memory_available();
  if (available > bytes + reserve) return TTPU_OK;
  return base_fail(TTPU_RESOURCE_EXHAUSTED,
                   "the host's memory is exhausted: %zu bytes of device memory were requested, %zu are available; the "
                   "software TPU keeps its HBM there (%zu bytes in use)",
                   bytes, available, h->stats.in_use);
}

static ttpu_status new_large(soft_hbm *h, uint32_t class, block **out) {
  size_t bytes = class_bytes(class);
  block *b = base_alloc(sizeof *b);
  if (!b) return base_no_memory(sizeof *b);
  ttpu_status status = check_host(h, bytes);
  b->b.data = status == TTPU_OK ? map_pages(bytes) : NULL;
  if (!b->b.data) {
    base_free(b);
    return status == TTPU_OK ? base_no_memory(bytes) : status;
  }
  b->capacity = bytes;
  h->mapped += bytes;
  *out = b;
  return TTPU_OK;
}

/* Remembers `memory`, to be freed with the hbm. */
static bool keep_chunk(soft_hbm *h, void *memory) {
  chunk *c = memory ? base_alloc(sizeof *c) : NULL;
  if (!c) {
    base_free(memory);
    return false;
  }
  *c = (chunk){h->chunks, memory};
  h->chunks = c;
  return true;
}

static ttpu_status new_small(soft_hbm *h, uint32_t class, block **out) {
  size_t bytes = class_bytes(class);
  bytes = (bytes + 63) / 64 * 64; /* the next block is aligned as well */
  if (!h->headers) {
    block *headers = base_calloc(HEADERS, sizeof *headers);
    if (!keep_chunk(h, headers)) return base_no_memory(HEADERS * sizeof *headers);
    for (int i = 0; i < HEADERS; ++i) {
      headers[i].next = h->headers;
      h->headers = &headers[i];
    }
  }
  if ((size_t)(h->slab_end - h->slab) < bytes) { /* the rest of the old slab is lost: under 64 KiB of 1 MiB */
    BASE_TRY(check_host(h, SLAB));
    uint8_t *slab = base_alloc_aligned(4096, SLAB);
    if (!keep_chunk(h, slab)) return base_no_memory(SLAB);
    h->slab = slab;
    h->slab_end = slab + SLAB;
    h->mapped += SLAB;
  }
  block *b = h->headers;
  h->headers = b->next;
  b->b.data = h->slab;
  b->capacity = bytes;
  h->slab += bytes;
  *out = b;
  return TTPU_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------------- */

static block *take_free(soft_hbm *h, uint32_t class, bool large) {
  for (uint32_t c = class; c <= class + (large ? 2 : 0) && c < h->top; ++c) {
    block *b = h->free[c];
    if (!b) continue;
    h->free[c] = b->next;
    h->stats.recycled_bytes -= b->capacity;
    return b;
  }
  return NULL;
}

static ttpu_status fail_limit(const soft_hbm *h, size_t bytes) {
  size_t limit = h->stats.limit, used = h->stats.in_use;
  return base_fail(TTPU_RESOURCE_EXHAUSTED,
                   "out of device memory: requested %zu bytes, %zu of %zu are in use, %zu are free", bytes, used, limit,
                   limit - used);
}

ttpu_status soft_block_new(soft_hbm *h, size_t bytes, soft_block **out) {
  if (soft_forked()) return soft_fail_forked();
  size_t charged = charge(bytes);
  bool large = bytes > SMALL;
  block *b = NULL;
  ttpu_status status = TTPU_OK;
  pthread_mutex_lock(&h->lock);
  if (charged < bytes || charged > h->stats.limit - h->stats.in_use) { /* the sum never exceeds the limit */
    status = fail_limit(h, bytes);
    goto out;
  }
  uint32_t class = class_of(bytes);
  b = take_free(h, class, large);
  if (!b) {
    status = large ? new_large(h, class, &b) : new_small(h, class, &b);
    if (status != TTPU_OK) goto out;
    b->class = class;
    b->release = NULL;
    b->b.hbm = h;
    atomic_init(&b->b.forms, NULL);
  }
  b->b.bytes = bytes;
  atomic_store_explicit(&b->b.refs, 1, memory_order_relaxed);
  h->live++;
  h->stats.allocations++;
  h->stats.in_use += charged;
  if (h->stats.in_use > h->stats.peak) h->stats.peak = h->stats.in_use;
  if (h->stats.in_use > h->high) h->high = h->stats.in_use;
  if (charged > h->stats.largest) h->stats.largest = charged;
  *out = &b->b;
out:
  pthread_mutex_unlock(&h->lock);
  return status;
}

ttpu_status soft_block_wrap(void *data, size_t bytes, void (*release)(void *data, void *context), void *context,
                            soft_block **out) {
  block *b = base_calloc(1, sizeof *b);
  if (!b) return base_no_memory(sizeof *b);
  b->b.data = data;
  b->b.bytes = bytes;
  atomic_init(&b->b.refs, 1);
  b->release = release;
  b->context = context;
  *out = &b->b;
  return TTPU_OK;
}

soft_block *soft_block_share(soft_block *b) {
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return b;
}

static void destroy(soft_hbm *h) {
  trim(h, 0);
  while (h->chunks) {
    chunk *c = h->chunks;
    h->chunks = c->next;
    base_free(c->memory);
    base_free(c);
  }
  pthread_mutex_destroy(&h->lock);
  base_free(h);
}

void soft_block_free(soft_block *shared) {
  if (!shared || soft_forked()) return;
  if (atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) != 1) return;
  block *b = (block *)shared;
  soft_hbm *h = shared->hbm;
  soft_block_forget(shared);
  if (!h) {
    if (b->release) b->release(shared->data, b->context);
    base_free(b);
    return;
  }
  pthread_mutex_lock(&h->lock);
  h->stats.in_use -= charge(shared->bytes);
  h->stats.recycled_bytes += b->capacity;
  b->next = h->free[b->class];
  h->free[b->class] = b;
  if (h->top <= b->class) h->top = b->class + 1;
  bool last = --h->live == 0 && h->closed;
  pthread_mutex_unlock(&h->lock);
  if (last) destroy(h);
}

/* ---- the whole --------------------------------------------------------------------------------------- */

ttpu_status soft_hbm_new(size_t limit, soft_hbm **out) {
  soft_hbm *h = base_calloc(1, sizeof *h);
  if (!h) return base_no_memory(sizeof *h);
  pthread_mutex_init(&h->lock, NULL);
  h->stats.limit = limit;
  *out = h;
  return TTPU_OK;
}

void soft_hbm_free(soft_hbm *h) {
  if (!h || soft_forked()) return;
  pthread_mutex_lock(&h->lock);
  h->closed = true;
  bool last = h->live == 0;
  pthread_mutex_unlock(&h->lock);
  if (last) destroy(h);
}

soft_hbm_stats soft_hbm_get_stats(soft_hbm *h) {
  if (soft_forked()) return h->stats;
  pthread_mutex_lock(&h->lock);
  soft_hbm_stats stats = h->stats;
  pthread_mutex_unlock(&h->lock);
  return stats;
}

void soft_hbm_reset_peak(soft_hbm *h) {
  if (soft_forked()) return;
  pthread_mutex_lock(&h->lock);
  h->stats.peak = h->stats.in_use;
  pthread_mutex_unlock(&h->lock);
}

void soft_hbm_trim(soft_hbm *h) {
  if (soft_forked()) return;
  soft_forms_trim();
  kern_scratch_trim();
  pthread_mutex_lock(&h->lock);
  trim(h, 0);
  pthread_mutex_unlock(&h->lock);
}
