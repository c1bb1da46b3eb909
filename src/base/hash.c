/* Hashing of byte strings over base_mix. The values go into the keys of the disk cache: a change of these functions is a
 * change of its format. Little-endian, as everything this project runs on. */
#include <string.h>

#include "base/base.h"

static uint64_t read8(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* The last 0 to 7 bytes as a number; the length is mixed in elsewhere, so zero bytes at the end still count. */
static uint64_t read_tail(const uint8_t *p, size_t length) {
  uint64_t v = 0;
  if (length) memcpy(&v, p, length);
  return v;
}

uint64_t base_hash(uint64_t seed, const void *bytes, size_t length) {
  const uint8_t *p = bytes;
  uint64_t h = base_mix(seed, length);
  size_t left = length;
  if (left >= 32) { /* two chains in flight hide the multiplication's latency */
    uint64_t other = h ^ 0xa0761d6478bd642full;
    for (; left >= 32; left -= 32, p += 32) {
      h = base_mix(base_mix(h, read8(p)), read8(p + 8));
      other = base_mix(base_mix(other, read8(p + 16)), read8(p + 24));
    }
    h = base_mix(h, other);
  }
  for (; left >= 8; left -= 8, p += 8) h = base_mix(h, read8(p));
  return base_mix(h, read_tail(p, left));
}

base_hash128 base_hash128_bytes(base_hash128 seed, const void *bytes, size_t length) {
  const uint8_t *p = bytes;
  base_hash128 h = base_mix128(seed, length);
  size_t left = length;
  for (; left >= 8; left -= 8, p += 8) h = base_mix128(h, read8(p));
  return base_mix128(h, read_tail(p, left));
}
