#include "soft/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const soft_generation generations[] = {
#define GENERATION(name, aliases, kind, hbm, devices, cores, torus, bf16, int8, gbps, vmem, mxu, ici) \
  {name, aliases, kind, (size_t)(hbm), devices, cores, torus, bf16, int8, gbps, vmem, mxu, ici},
#include "soft/generations.def"
#undef GENERATION
};
enum { GENERATION_COUNT = sizeof generations / sizeof generations[0], MAX_EXTENT = 4096, MAX_DEVICES = 32768 };

static bool word_is(const char *word, const char *name, size_t length) {
  return strlen(word) == length && strncmp(word, name, length) == 0;
}

/* Is `name` one of the space-separated words? */
static bool among(const char *words, const char *name, size_t length) {
  while (*words) {
    size_t n = strcspn(words, " ");
    if (n == length && length && strncmp(words, name, n) == 0) return true;
    words += n + (words[n] == ' ');
  }
  return false;
}

static ttpu_status fail_name(const char *name, size_t length, const char *why) {
  return base_fail(TTPU_INVALID_ARGUMENT,
                   "topology \"%.*s\": %s; expected a generation and its extent, such as v5e:1x1, v5e:2x2, v6e:4x4, "
                   "v4:2x2x1, v5p:2x2x1 or tpu7x:2x2x1",
                   (int)(length < 64 ? length : 64), name, why);
}

ttpu_status soft_topology_parse(const char *name, size_t length, soft_topology *out) {
  soft_topology t = {.dims = {1, 1, 1}};
  const char *colon = memchr(name, ':', length);
  size_t head = colon ? (size_t)(colon - name) : length;
  for (int i = 0; i < GENERATION_COUNT; ++i)
    if (word_is(generations[i].name, name, head) || among(generations[i].aliases, name, head))
      t.generation = &generations[i];
  if (!t.generation) return fail_name(name, length, "no such TPU generation");

  uint32_t rank = 0;
  for (size_t at = head; at < length;) {
    ++at; /* ':' or 'x' */
    uint32_t value = 0, digits = 0;
    for (; at < length && name[at] >= '0' && name[at] <= '9' && digits < 6; ++at, ++digits)
      value = value * 10 + (uint32_t)(name[at] - '0');
    if (!digits || (at < length && name[at] != 'x')) return fail_name(name, length, "its extent is no list of numbers");
    if (value < 1 || value > MAX_EXTENT) return fail_name(name, length, "an extent is 1 to 4096");
    if (rank == 3) return fail_name(name, length, "it has more than three dimensions");
    if (rank >= t.generation->torus && value != 1)
      return fail_name(name, length, "this generation is a two-dimensional torus");
    t.dims[rank++] = value;
  }
  uint64_t devices = (uint64_t)t.dims[0] * t.dims[1] * t.dims[2] * t.generation->devices_per_chip;
  if (devices > MAX_DEVICES) return fail_name(name, length, "it has more than 32,768 devices");
  t.devices = (uint32_t)devices;
  snprintf(t.name, sizeof t.name, t.generation->torus == 2 ? "%s:%ux%u" : "%s:%ux%ux%u", t.generation->name, t.dims[0],
           t.dims[1], t.dims[2]);
  *out = t;
  return TTPU_OK;
}

void soft_topology_place(const soft_topology *t, uint32_t id, int64_t coords[3], int64_t *core_on_chip) {
  uint32_t chip = id / t->generation->devices_per_chip;
  *core_on_chip = id % t->generation->devices_per_chip;
  coords[0] = chip % t->dims[0];
  coords[1] = chip / t->dims[0] % t->dims[1];
  coords[2] = chip / t->dims[0] / t->dims[1];
}

ttpu_status soft_bytes_parse(const char *text, size_t length, const char *what, size_t *out) {
  uint64_t value = 0;
  size_t at = 0;
  uint32_t shift = 0;
  for (; at < length && text[at] >= '0' && text[at] <= '9'; ++at)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(text[at] - '0'), &value))
      goto bad;
  if (at == 0) goto bad;
  if (at < length) {
    static const char units[] = "KMGTkmgt";
    const char *unit = memchr(units, text[at], 8);
    if (!unit) goto bad;
    shift = (uint32_t)(10 * ((unit - units) % 4 + 1));
    ++at;
    if (at < length && text[at] == 'i') ++at;
    if (at < length && (text[at] == 'B' || text[at] == 'b')) ++at;
  }
  if (at != length || value > SIZE_MAX >> shift) goto bad;
  *out = (size_t)value << shift;
  return TTPU_OK;
bad:
  return base_fail(TTPU_INVALID_ARGUMENT, "%s=%.*s: expected a number of bytes, such as 17179869184, 16G, 512M or 64K",
                   what, (int)(length < 64 ? length : 64), text);
}
