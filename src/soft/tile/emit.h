/* The emitter: runs of a tile program's instructions as machine code.
 *
 * The VM calls a kernel an instruction, and each kernel reads and writes registers that are memory (in the first cache). The
 * emitter makes one loop of consecutive elementwise instructions, with values in vector registers. What it cannot say stays with
 * the VM: reductions, strided loads, other types than float and bool, rare functions. Results are the kernels' to the bit, but for
 * which of two NaNs is handed on. */
#ifndef TTPU_SOFT_TILE_EMIT_H
#define TTPU_SOFT_TILE_EMIT_H

#include "soft/tile/bound.h"

/* Replaces runs in the list by TILE_EMITTED instructions, in place; nothing where the machine or TTPU_SOFT=vm forbids it. */
void tile_emit(tile_bound *b, tile_list *list);

/* For tests: whether programs bound from now on are emitted. Returns whether they can be at all. */
bool tile_emit_allow(bool allow);

#endif
