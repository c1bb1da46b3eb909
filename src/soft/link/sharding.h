/* sharding: which part of an array each chip has.
 *
 * Takes a sharding's text, Shardy's or the older strings of mhlo.sharding, and gives a table: into how many equal pieces
 * each dimension is cut, and which piece of each dimension every partition has. Two partitions with the same pieces hold
 * the same part. */
#ifndef TTPU_SOFT_LINK_SHARDING_H
#define TTPU_SOFT_LINK_SHARDING_H

#include "soft/link/link.h"

typedef struct link_sharding {
  uint32_t rank, partitions;
  uint32_t tiles[TTPU_MAX_RANK]; /* pieces of each dimension, >= 1 */
  const uint32_t *pieces;        /* [partition][rank] */
} link_sharding;

/* The sharding of a value of type t. text NULL: everybody has all of it. `axes` (#sdy<manual_axes{"x"}>): only these
 * axes cut, the others are none of a manual computation's business; NULL: all do. INVALID_ARGUMENT for text that makes no
 * sense on the meshes and partitions, UNIMPLEMENTED where pieces would differ in size. */
ttpu_status link_sharding_parse(base_arena *arena, const char *text, const ir_shardings *meshes, uint32_t partitions,
                                ir_type t, const char *axes, link_sharding *out);
/* The n-th of a list, #sdy.sharding_per_value<[<...>, <...>]>, as text for link_sharding_parse; NULL: out of memory, or no
 * such entry. */
const char *link_sharding_entry(base_arena *arena, const char *list, uint32_t n);

/* As a string of mhlo.sharding. NULL: out of memory. */
const char *link_sharding_text(base_arena *arena, const link_sharding *s);

bool link_sharding_is_whole(const link_sharding *s); /* nothing is cut */
bool link_sharding_equal(const link_sharding *a, const link_sharding *b);
/* The dims of a part. */
void link_sharding_part(const link_sharding *s, const int64_t *dims, int64_t *part);

#endif
