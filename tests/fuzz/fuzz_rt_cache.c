/* Programs on disk. What is read was written like that: its hash is right. */
#include "rt/diskcache.c" /* its checks are private */

#include <sys/mman.h>

#include "fuzz.h"

enum { SEEDS = 24 };

bool fuzz_seed(uint32_t number, base_text *out) {
  if (number >= SEEDS) return false;
  uint8_t payload[1 << 10];
  size_t length = (size_t)number * number;
  for (size_t i = 0; i < length; ++i) payload[i] = (uint8_t)(i * number);
  file_header h = {.salt = disk.salt, .hash = base_hash(disk.salt, payload, length), .length = length};
  memcpy(h.magic, file_magic, sizeof file_magic);
  base_text_put(out, (const char *)&h, sizeof h);
  base_text_put(out, (const char *)payload, length);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  int descriptor = memfd_create("entry", MFD_CLOEXEC);
  FUZZ_MUST(descriptor >= 0 && write(descriptor, bytes, size) == (ssize_t)size && lseek(descriptor, 0, SEEK_SET) == 0);
  FILE *file = fdopen(descriptor, "rb");
  FUZZ_MUST(file);
  size_t length = 0;
  void *payload = read_payload(file, &length);
  if (payload) {
    FUZZ_MUST(length == size - sizeof(file_header) && memcmp(payload, bytes + sizeof(file_header), length) == 0);
    base_free(payload);
  }
  fclose(file);
  return 0;
}
