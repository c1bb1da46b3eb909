/* partition: a program that is written for all chips becomes the program of one.
 *
 * Takes a function whose parameters, results and values have their whole sizes, with shardings, and gives the function that
 * every chip runs: its parameters and results are a chip's parts. Inside, every chip computes whole values, each for
 * itself; parts are gathered where a whole value is wanted and cut out where a part is. A manual computation is written
 * for one chip already, and is put in place of its call. What passes from a parameter to a manual computation, from there
 * to the next one or to a result in the same sharding, and through operations element by element, stays in parts. Results
 * without a sharding lie as they come. */
#ifndef TTPU_SOFT_LINK_PARTITION_H
#define TTPU_SOFT_LINK_PARTITION_H

#include "soft/link/link.h"

/* f has shardings, or manual computations. The new function is in the same arena; its shardings, as strings of
 * mhlo.sharding, say how the parts of each parameter and result make the whole. */
ttpu_status link_partition(base_arena *arena, const ir_func *f, link_grid grid, ir_func **out);
bool link_needs_partition(const ir_func *f);

#endif
