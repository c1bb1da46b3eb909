/* A file in memory, for readers that take a path. */
#ifndef TTPU_FUZZ_MEMORY_FILE_H
#define TTPU_FUZZ_MEMORY_FILE_H

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

typedef struct memory_file {
  int descriptor;
  char path[64];
} memory_file;

static inline memory_file memory_file_new(const void *bytes, size_t size) {
  memory_file f = {.descriptor = memfd_create("fuzz", MFD_CLOEXEC)};
  FUZZ_MUST(f.descriptor >= 0 && write(f.descriptor, bytes, size) == (ssize_t)size);
  snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.descriptor);
  return f;
}

/* What is in it, appended to *out. */
static inline void memory_file_read(const memory_file *f, base_text *out) {
  char piece[4096];
  ssize_t count;
  FUZZ_MUST(lseek(f->descriptor, 0, SEEK_SET) == 0);
  while ((count = read(f->descriptor, piece, sizeof piece)) > 0) base_text_put(out, piece, (size_t)count);
  FUZZ_MUST(count == 0);
}

static inline void memory_file_free(const memory_file *f) { close(f->descriptor); }

#endif
