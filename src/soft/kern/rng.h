/* rng: what the versions of rng_template.h for each instruction set are called. */
#ifndef TTPU_SOFT_KERN_RNG_H
#define TTPU_SOFT_KERN_RNG_H

#include <stddef.h>
#include <stdint.h>

/* `bytes` of the stream of seed, from the block of `counter` on. */
void philox_fill_portable(uint64_t seed, uint64_t counter, char *out, size_t bytes);
void philox_fill_avx2(uint64_t seed, uint64_t counter, char *out, size_t bytes);
void philox_fill_avx512(uint64_t seed, uint64_t counter, char *out, size_t bytes);

#endif
