/* The kernels that move, order and scan data, beside those that multiply (gemm.h) and those of tile programs.
 *
 * All take views with any strides, run on the pool where it pays, and give the same bits for any number of
 * threads: work is split by result, never by what is summed, and whatever order matters (duplicates in a scatter,
 * equal keys in a sort) is the order of the operand. They allocate with base_alloc and say so when that fails.
 * kernel.c chooses among them; what a kernel cannot do it declines beforehand (the `_supports` functions).
 *
 *   copy.c     kern_copy, kern_fill; kern_loop, the shape that most kernels walk
 *   gather.c   gather                scatter.c  scatter
 *   reduce.c   reductions of one input, argmax and argmin
 *   window.c   reduce_window and the backward of max pooling
 *   sort.c     sort by key, top-k    scan.c     cumulative sums and the like
 *   rng.c      Philox                fft.c      Fourier transforms
 *   linalg.c   Cholesky, triangular solve
 *   path_scan.c  sums over paths
 *   wide.h     rows of elements as double or 64-bit integers, which reduce, window, scan and fft compute in
 */
#ifndef TTPU_SOFT_KERN_DATA_H
#define TTPU_SOFT_KERN_DATA_H

#include "soft/soft_int.h"

/* ---- loops over several views -------------------------------------------------------------------- */

enum { KERN_LOOP_VIEWS = 4 };

/* The common index space of views of one shape: dimensions of size 1 left out, neighbours merged where all views
 * run on. Strides are in bytes. The last dimension is the fastest. An empty shape has rank 1 and size 0. */
typedef struct kern_loop {
  uint32_t rank, views;
  int64_t dims[TTPU_MAX_RANK];
  int64_t strides[KERN_LOOP_VIEWS][TTPU_MAX_RANK];
} kern_loop;

/* From raw parts: strides[v] in elements of bytes[v]. */
void kern_loop_make(kern_loop *loop, uint32_t rank, const int64_t *dims, uint32_t views, const int64_t *const *strides,
                    const size_t *bytes);
/* Sorts the dimensions so that view 0's strides fall, then merges again. For loops whose order does not matter. */
void kern_loop_sort(kern_loop *loop);
static inline int64_t kern_loop_numel(const kern_loop *loop) { return base_numel(loop->rank, loop->dims); }

/* A position in a loop's first `rank` dimensions, with each view's byte offset. */
typedef struct kern_walk {
  const kern_loop *loop;
  uint32_t rank;
  int64_t at[TTPU_MAX_RANK];
  int64_t offsets[KERN_LOOP_VIEWS];
} kern_walk;

kern_walk kern_walk_begin(const kern_loop *loop, uint32_t rank, int64_t flat);
static inline void kern_walk_next(kern_walk *w) {
  const kern_loop *l = w->loop;
  for (uint32_t d = w->rank; d-- > 0;) {
    for (uint32_t v = 0; v < l->views; ++v) w->offsets[v] += l->strides[v][d];
    if (++w->at[d] < l->dims[d]) return;
    for (uint32_t v = 0; v < l->views; ++v) w->offsets[v] -= l->strides[v][d] * l->dims[d];
    w->at[d] = 0;
  }
}

/* Nanoseconds that moving so many bytes takes one thread, for base_pool_run. */
static inline int64_t kern_move_cost(int64_t bytes) { return bytes / 8; }
/* How many of `count` equal pieces of work make one task of about 50 us, at `cost` ns each; at least 1. */
static inline int64_t kern_grain(int64_t cost_each) {
  int64_t grain = cost_each > 0 ? 50000 / cost_each : 50000;
  return grain < 1 ? 1 : grain;
}

/* ---- copy.c -------------------------------------------------------------------------------------- */

void kern_fill(const soft_view *dst, const void *element);
/* `size` elements of v from `start` in dimension `dim`. */
soft_view kern_slice(const soft_view *v, uint32_t dim, int64_t start, int64_t size);
/* The same memory and layout: a copy between them would change nothing. */
bool kern_same(const soft_view *a, const soft_view *b);
/* dst = a copy of src unless they are the same memory already. */
static inline void kern_update(const soft_view *dst, const soft_view *src) {
  if (!kern_same(dst, src)) kern_copy(dst, src);
}
/* Reads an integer view into dst (dense, numel elements). */
void kern_read_integers(const soft_view *src, int64_t *dst);
/* Element `offset` bytes into an integer view's data. */
int64_t kern_integer_at(ttpu_dtype t, const void *p);

/* ---- the operations ------------------------------------------------------------------------------ */

ttpu_status kern_gather(const ir_gather_attrs *a, const soft_view *x, const soft_view *indices, const soft_view *y);

/* combine: IR_NO_OP replaces. y holds the operand already. */
bool kern_scatter_supports(const ir_scatter_attrs *a, ir_kind combine, const soft_view *y, const soft_view *updates);
ttpu_status kern_scatter(const ir_scatter_attrs *a, ir_kind combine, const soft_view *indices, const soft_view *updates,
                         const soft_view *y);

bool kern_reduce_supports(ir_kind kind, ttpu_dtype t);
ttpu_status kern_reduce(ir_kind kind, ir_i64s dims, const soft_view *x, const void *init, const soft_view *y);
bool kern_reduce_arg_supports(ttpu_dtype t);
/* Value and index of the extreme along dim; NaN wins, the first among equals. An empty dim gives the inits. */
ttpu_status kern_reduce_arg(bool largest, uint32_t dim, const soft_view *x, const void *init, int64_t init_index,
                            const soft_view *values, const soft_view *indices);

bool kern_reduce_window_supports(ir_kind kind, const ir_window_attrs *a, ttpu_dtype t);
ttpu_status kern_reduce_window(ir_kind kind, const ir_window_attrs *a, const soft_view *x, const void *init,
                               const soft_view *y);
/* Adds each source element to the window's element that wins `select`(it, later one). y was filled. */
bool kern_select_and_add_supports(ir_direction select, const ir_window_attrs *a, ttpu_dtype t);
ttpu_status kern_select_and_add(ir_direction select, const ir_window_attrs *a, const soft_view *x,
                                const soft_view *source, const soft_view *y);

bool kern_sort_supports(ttpu_dtype key);
/* Sorts by x[0]; iota[i]: operand i is the position along dim and is not read. */
ttpu_status kern_sort(bool descending, uint32_t dim, uint32_t count, const soft_view *x, const bool *iota,
                      const soft_view *y);
ttpu_status kern_top_k(const ir_top_k_attrs *a, const soft_view *x, const soft_view *values, const soft_view *indices);

bool kern_scan_supports(ir_scan_kind kind, ttpu_dtype t);
ttpu_status kern_scan(const ir_scan_attrs *a, const soft_view *x, const soft_view *values, const soft_view *indices);

ttpu_status kern_path_scan(const soft_view *x, const soft_view *skip, const soft_view *start, const soft_view *y);

/* bits: u32 or u64 (or any type of 4 or 8 bytes), dense. */
void kern_philox(uint64_t seed, uint64_t offset, const soft_view *bits);

bool kern_fft_supports(const ir_fft_attrs *a, ttpu_dtype t);
ttpu_status kern_fft(const ir_fft_attrs *a, const soft_view *x, const soft_view *y);

bool kern_linalg_supports(ttpu_dtype t);
ttpu_status kern_cholesky(bool lower, const soft_view *x, const soft_view *y);
ttpu_status kern_triangular_solve(const ir_triangular_solve_attrs *t, const soft_view *a, const soft_view *b,
                                  const soft_view *y);

#endif
