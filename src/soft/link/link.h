/* link: what several chips of one process do together. Takes a collective operation of one chip and gives it its
 * results when the others of its group have come to the same operation.
 *
 *   groups.c      which chips meet: StableHLO's process groups
 *   meet.c        where they meet: runs, chips, waiting, failing
 *   collective.c  what each collective makes of the operands of all
 *   sharding.c    shardings as text, and which part of an array each chip has
 *   partition.c   a program with shardings becomes the program of one chip
 *
 * A *run* is one execution of an executable on replicas x partitions chips, numbered replica by replica. Each chip
 * executes on a thread of its own (its queue's, or one that waits for it) and says so with link_enter; collectives,
 * replica_id and partition_id find their run through that thread. Without one they behave as a run of a single chip.
 *
 * A *meeting* is one execution of one collective by one group. Who comes first waits; who comes last computes the results
 * of the whole group, from the operands of all and straight into the results of all, since the others stand still. So the
 * order of a sum is the order of the group, whoever comes last and however many threads compute.
 *
 * No chip waits for ever. A chip that fails, or ends without coming, fails all meetings that wait for it and all later
 * ones; when all chips that are left wait for each other at different operations (which a program may do whose conditions
 * differ between chips), all of them fail. At the end of the process every meeting fails. Chips that are not there
 * yet are in their queues: plugin_execute.c pushes the jobs of one run to all queues at once, so that two runs have one
 * order on all chips, and makes sure that each queue has a thread.
 */
#ifndef TTPU_SOFT_LINK_H
#define TTPU_SOFT_LINK_H

#include "soft/soft_int.h"

typedef struct link_grid {
  uint32_t replicas, partitions; /* chip = replica * partitions + partition */
} link_grid;

/* ---- groups (groups.c) ------------------------------------------------------------------------------- */

/* The group in which a chip executes a collective: `size` members, the chip being member `mine`. Members of the groups of
 * one operation have the same number if and only if they are in one group. Of size 0: it is in none, and gets zeros. */
typedef struct link_group {
  uint32_t number, size, mine;
} link_group;

bool link_is_collective(const ir_op *op); /* with a meeting, or replica_id and partition_id */
/* INVALID_ARGUMENT where the chip is in no group. */
ttpu_status link_group_find(const ir_op *op, link_grid grid, uint32_t chip, link_group *out);
/* Whether every collective of f makes sense on the grid: numbers in range, each chip in one group, sizes that fit. */
ttpu_status link_check(const ir_func *f, link_grid grid);
bool link_has_collectives(const ir_func *f);

/* ---- meetings (meet.c) --------------------------------------------------------------------------------- */

typedef struct link_run link_run;

/* A run, with a reference for each chip, which link_leave or link_abandon gives up. */
ttpu_status link_run_new(link_grid grid, link_run **out);

/* The execution of one chip on this thread; on its stack between enter and leave. Executions may nest: a thread
 * that waits for another chip's result may run that one. */
typedef struct link_chip {
  link_run *run;
  uint32_t number;
  struct link_chip *outer;
} link_chip;
void link_enter(link_chip *chip, link_run *run, uint32_t number);
/* With what the execution gave; a failure's message is this thread's. */
void link_leave(link_chip *chip, ttpu_status status);
/* Instead of both: chip `number` will never execute. */
void link_abandon(link_run *run, uint32_t number, ttpu_status status);
void link_end_all(void); /* the process ends: fails all meetings, now and later */

/* Where this thread is: its grid and its number in it; a grid of one chip outside of a run. */
link_grid link_grid_here(void);
uint32_t link_chip_here(void);

/* ---- collectives (collective.c) -------------------------------------------------------------------------- */

/* y = parts[0] (op's region) parts[1] ... parts[count - 1], element by element, in this order. */
typedef ttpu_status (*link_fold_fn)(const ir_func *f, const ir_op *op, const soft_view *captured, uint32_t count,
                                    const soft_view *parts, const soft_view *y);
/* Fast where the region is a known reducer of one operation, else link_fold_reference. */
ttpu_status link_fold(const ir_func *f, const ir_op *op, const soft_view *captured, uint32_t count,
                      const soft_view *parts, const soft_view *y);
ttpu_status link_fold_reference(const ir_func *f, const ir_op *op, const soft_view *captured, uint32_t count,
                                const soft_view *parts, const soft_view *y);

/* One chip's operands and results; captured values of regions follow the operands. */
typedef struct link_seat {
  const soft_view *operands, *results;
} link_seat;
/* The results of all members of a group, by member. */
ttpu_status link_compute(const ir_func *f, const ir_op *op, link_fold_fn fold, uint32_t count, const link_seat *seats);

/* Executes a collective on this thread's chip: waits for the others of its group. */
ttpu_status link_collective(const ir_func *f, const ir_op *op, link_fold_fn fold, const soft_view *operands,
                            const soft_view *results);

#endif
