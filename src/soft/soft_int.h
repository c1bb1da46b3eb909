/* soft: the software TPU. Takes PJRT calls (plugin.c), gives a TPU's behaviour on a CPU.
 *
 * It sees base, ir and pjrt/abi.h alone, and is a shared library of its own that exports GetPjrtApi.
 *
 *   plugin.c     the PJRT function table: clients, devices, buffers, events, executables
 *   topology.c   "v5e:2x2" -> chips with coordinates, cores, HBM size and peak rates
 *   hbm.c        a chip's memory: blocks, limit, statistics, recycling
 *   forms.c      what is derived from a block's value and kept with it: weights in panels
 *   queue.c      a chip's stream: work in order, run by its own thread or by whoever waits
 *   compile.c    ir_func -> soft_executable: the ordered list of passes (opt/), tile programs (tile/)
 *   execute.c    runs the steps of an executable
 *   reference.c  the scalar reference: every operation, one element at a time, slow and plainly right
 *   kernel.c     operations that are neither products nor fused: sort, gather, scatter, windows, ...
 *   kern/        the micro-kernels: gemm, conv, attention, sort, ...
 *   link/        collectives between the chips that run one executable, and shardings
 *
 * Memory is row-major. A value inside an executable is a *view*: pointer, dims, strides. Views cost nothing:
 * slice, transpose, broadcast, reshape (where strides allow), reverse and as_strided make no step; whoever
 * reads walks the strides. What leaves an executable is always dense row-major.
 *
 * Compiling has two halves. `structure` (which operations form a step, the tile programs' code) depends on
 * ir_func_structure(f) alone and is cached under it; `bind` fills in sizes, strides, constants' values and the
 * memory plan for one function. So a new size costs a bind (microseconds an operator), never a compilation;
 * statistics count both.
 *
 * Everything that reports failure returns ttpu_status with base_fail's message. Nothing here aborts.
 */
#ifndef TTPU_SOFT_INT_H
#define TTPU_SOFT_INT_H

#include <stdatomic.h>

#include "base/base.h"
#include "ir/ir.h"

/* ---- views ---------------------------------------------------------------------------------- */

typedef struct soft_view {
  void *data; /* of element [0, 0, ...] */
  ttpu_dtype dtype;
  uint32_t rank;
  int64_t dims[TTPU_MAX_RANK];
  int64_t strides[TTPU_MAX_RANK]; /* in elements; 0 repeats, negative runs backwards */
} soft_view;

soft_view soft_view_dense(ttpu_dtype dtype, uint32_t rank, const int64_t *dims, void *data);
bool soft_view_is_dense(const soft_view *v);
/* An IR_VIEW operation without moving anything: y's dtype, rank and dims are given and it gets x's data with new
 * strides. False where strides cannot say it: a reshape of strided data, or as_strided of data that is not dense. */
bool soft_view_of(const ir_op *op, const soft_view *x, soft_view *y);
/* Copies src to dst (same dims, same dtype), any strides, in parallel where it pays. kern/copy.c */
void kern_copy(const soft_view *dst, const soft_view *src);

/* ---- memory of a chip (hbm.c) ----------------------------------------------------------------- */

typedef struct soft_hbm soft_hbm;

/* A counted block of a chip's memory, 64-byte aligned. The last soft_block_free gives it back. */
typedef struct soft_block {
  void *data;
  size_t bytes;
  atomic_uint refs;
  soft_hbm *hbm;
  _Atomic(struct soft_form *) forms; /* forms.h */
} soft_block;

ttpu_status soft_hbm_new(size_t limit, soft_hbm **out);
void soft_hbm_free(soft_hbm *h);
/* RESOURCE_EXHAUSTED, naming requested, used and limit, when it does not fit; recycles freed blocks. */
ttpu_status soft_block_new(soft_hbm *h, size_t bytes, soft_block **out);
soft_block *soft_block_share(soft_block *b); /* +1 */
void soft_block_free(soft_block *b);         /* -1; NULL is fine */
void soft_block_forget(soft_block *b);       /* its value is about to change: what was derived from it goes */

typedef struct soft_hbm_stats {
  size_t limit, in_use, peak, largest, allocations, recycled_bytes; /* recycled: held free for reuse */
} soft_hbm_stats;
soft_hbm_stats soft_hbm_get_stats(soft_hbm *h);
void soft_hbm_reset_peak(soft_hbm *h);
void soft_hbm_trim(soft_hbm *h); /* returns recycled blocks to the system */

/* ---- executables (compile.c, execute.c) -------------------------------------------------------- */

typedef struct soft_executable soft_executable;

typedef struct soft_compile_options {
  bool reference; /* run everything through reference.c (TTPU_SOFT=reference) */
} soft_compile_options;

/* Compiles f. On success the executable owns `arena`, in which f lives (it keeps reading f); on failure the
 * caller still does. The base_arena itself was made with base_alloc: whoever owns it does base_arena_free and then
 * base_free on it. */
ttpu_status soft_compile(base_arena *arena, const ir_func *f, const soft_compile_options *options,
                         soft_executable **out);
void soft_executable_free(soft_executable *e);
const ir_func *soft_executable_func(const soft_executable *e);

typedef struct soft_executable_stats {
  size_t argument_bytes, output_bytes, alias_bytes, temp_bytes; /* alias: outputs that reuse donated arguments */
  double flops, bytes_accessed;
  uint32_t steps;
  bool structure_hit; /* only bound, not compiled */
} soft_executable_stats;
soft_executable_stats soft_executable_get_stats(const soft_executable *e);

typedef struct soft_failed_check {
  ttpu_status status;
  char *message; /* NULL: it was lost */
} soft_failed_check;

/* What went wrong in an execution that gives its other results all the same. */
typedef struct soft_damage {
  const bool *lost; /* in: parameters whose values never came; their arguments are NULL. NULL: all came */
  /* out: by result, as many as the caller made room for: 0 when it depends on nothing that failed, else
   * 1 + the lost parameter, or 1 + the number of parameters + the failed check */
  uint32_t *causes;
  uint32_t check_count; /* out: checks that failed */
  soft_failed_check *checks;
} soft_damage;
void soft_damage_free(soft_damage *d); /* what soft_execute put there */

/* Runs e now, on this thread and the pool. arguments[i]: dense row-major data of parameter i. donated[i]: the
 * caller gives up its reference on success or failure alike, and the block may be written or become a result
 * when its count is 1; other arguments are only read. results[i] get new references. RESOURCE_EXHAUSTED: no result is
 * set. A failed index check, and a lost argument, make no result of what depends on it and leave the others as they
 * are; without `damage` the failed check is the outcome, OUT_OF_RANGE for an index, FAILED_PRECONDITION for a condition,
 * and no result is set. */
ttpu_status soft_execute(const soft_executable *e, soft_hbm *hbm, soft_block *const *arguments, const bool *donated,
                         soft_block **results, soft_damage *damage);
bool soft_executable_can_fail_in_part(const soft_executable *e); /* it checks something */

/* Process-wide counts, for tests and torch.tpu.counters(). */
typedef struct soft_counters {
  uint64_t structures_compiled, executables_bound, executions;
} soft_counters;
soft_counters soft_get_counters(void);

/* ---- operations ------------------------------------------------------------------------------- */

/* The values that op's regions take from outside, each once, in order of first use (0 for most operations).
 * Returns their number; `out` may be NULL to count. They are uses of those values as much as operands are, and
 * whoever runs op appends their views to `operands`, behind the op->operand_count ordinary ones. */
uint32_t soft_op_captures(const ir_func *f, const ir_op *op, ir_value *out);

/* Runs one operation over views, one element at a time; regions are interpreted. The slow truth. */
ttpu_status soft_reference_op(const ir_func *f, const ir_op *op, const soft_view *operands, const soft_view *results);
/* A whole function on dense data, through soft_reference_op; allocates its temporaries itself. */
ttpu_status soft_reference_run(const ir_func *f, void *const *arguments, void *const *results);
/* The same contract, fast: picks a kernel of kern/, or the reference where there is none. Handles every
 * operation that is not fused into a tile program, not a view, and not DOT_GENERAL, CONVOLUTION, ATTENTION
 * (execute.c calls those kernels itself). Result 0 may be the very memory and layout of operand 0, then
 * updated in place, for DYNAMIC_UPDATE_SLICE, SCATTER, AS_STRIDED_UPDATE, CHECK_INDEX, OPTIMIZATION_BARRIER and WHILE (all
 * results of the last two); else results overlap nothing. */
ttpu_status soft_kernel_op(const ir_func *f, const ir_op *op, const soft_view *operands, const soft_view *results);
/* Whether soft_kernel_op reads the data of this operand. It does not for an iota that argmax, argmin or argsort
 * carries along: such an iota need not be computed, and its view's data may be NULL. */
bool soft_kernel_reads(const ir_func *f, const ir_op *op, uint32_t operand);

#endif
