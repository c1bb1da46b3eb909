/* opt: the passes of soft_compile. They take an ir_func and annotate it; nothing is rewritten.
 *
 *   group.c      structure: which operations form a step (fusion), where each value lives
 *   program.c    structure: the tile program of each group
 *   structure.c  structure: the order of steps; the cache of structures
 *   bind.c       binding: views, loops, the steps of one executable
 *   memory.c     binding: which values share memory, what is updated in place
 *   products.c   execution: dot_general and convolution over views
 *   region.c     binding and execution: if, case, while, whose regions are executables of their own
 *   dump.c       TTPU_DUMP=steps
 *
 * A *structure* depends on kinds, dtypes, ranks, structural attributes and of every size only on whether it is 0, 1 or
 * more; plus one bit for each reshape (does it only insert or remove dims of size 1?), which is part of the key. Two
 * functions with one key have the same operations and value numbers, so a structure speaks of them by number.
 *
 * Fusion in one paragraph. Operations are visited in order. Every group has a *depth*, larger than that of all steps whose
 * results it reads from memory; an operation may join the group of an operand if everything else that it reads is of a
 * smaller depth, and groups of one depth may be joined into one. Edges between steps so always lead to a larger depth, and
 * no cycle can arise. A group that nobody has read from memory yet may still be moved to a larger depth. Scalars (all dims 1)
 * computed from scalars in memory belong to no group: each group that uses one computes it again, at one lane. */
#ifndef TTPU_SOFT_OPT_H
#define TTPU_SOFT_OPT_H

#include <stdatomic.h>

#include "soft/soft_int.h"
#include "soft/tile/prog.h"

/* ---- structure -------------------------------------------------------------------------------- */

typedef enum opt_home {
  HOME_NONE, /* dead, or not yet visited */
  HOME_PARAM,
  HOME_CONSTANT,
  HOME_VIEW,   /* the elements of operand `number`, through strides */
  HOME_BUFFER, /* the result of a kernel step */
  HOME_FUSED,  /* computed in a tile program; in memory only if `needed` */
  HOME_SCALAR  /* computed by whoever uses it; in memory only if `needed` */
} opt_home;

/* What the passes know of a value. */
typedef struct opt_note {
  uint8_t home;
  uint8_t level;    /* FUSED: TILE_ROW or TILE_FULL */
  uint8_t pass;     /* FUSED: FULL: first pass that can compute it; ROW: passes over before it is known */
  uint8_t cost;     /* SCALAR: operations to compute it again */
  bool needed;      /* read from memory by another step */
  bool solid;       /* SCALAR: needed, and read from memory by everybody */
  uint32_t group;   /* FUSED */
  uint32_t ready;   /* depth of the step after which it is in memory (FUSED: its group's) */
  uint32_t leaf_of; /* the last group that reads it element by element; 0: none */
} opt_note;

typedef struct opt_group {
  uint32_t parent; /* union-find */
  uint32_t depth;
  ir_value space;         /* a value whose dims other than 1 are the axes */
  uint32_t axes, reduced; /* bit a: axis a is reduced; 0: none yet */
  uint32_t weight;        /* bound of its values; ports: of its leaves and outputs */
  uint32_t ports;
  bool consumed; /* a value of it is read from memory: its depth is fixed */
  bool emitted;
  uint32_t first, last; /* its operations, linked by next_in_group: positions + 1 */
} opt_group;

/* The analysis of one function; lives during the making of its structure. */
typedef struct opt_analysis {
  base_arena *arena; /* scratch */
  const ir_func *f;
  opt_note *notes;   /* by value */
  opt_group *groups; /* [1 .. group_count] */
  uint32_t group_count, group_capacity;
  uint32_t *next_in_group; /* by position + 1: the next operation of its group, 0: none */
  bool *live;              /* by position */
} opt_analysis;

/* How an operation sees an operand. */
typedef enum opt_sight {
  SEES_LEAF,    /* memory, through a view */
  SEES_UNIFORM, /* a scalar: HOME_SCALAR to compute, or one element of memory */
  SEES_MEMBER,  /* a value of a group, at its own level */
  SEES_EXPANDED /* a ROW value of a group, repeated over the reduced axes */
} opt_sight;

typedef struct opt_ref {
  uint8_t sight;
  ir_value value; /* MEMBER, EXPANDED, UNIFORM: what is behind the views; LEAF: the view itself */
  uint32_t group; /* MEMBER, EXPANDED */
} opt_ref;

enum { OPT_GROUP_WEIGHT = 160, OPT_GROUP_PORTS = 96, OPT_SCALAR_COST = 8 };

ttpu_status opt_group_operations(opt_analysis *a);
opt_ref opt_resolve(opt_analysis *a, ir_value v);
uint32_t opt_find(opt_analysis *a, uint32_t group);
/* Pointwise for our purposes: the flag, or a bitcast between equal sizes. */
bool opt_is_pointwise(const ir_func *f, const ir_op *op);
bool opt_is_scalar(ir_type t);                             /* every dim is 1 */
bool opt_is_view(const ir_op *op);                         /* moves no element */
bool opt_reshape_keeps(const ir_func *f, const ir_op *op); /* only inserts or removes dims of size 1 */
uint32_t opt_axes(ir_type t);                              /* number of dims other than 1 */
/* The fold of a reduction that tile programs know, else IR_NO_OP. */
ir_kind opt_reduction(const ir_func *f, const ir_op *op);
void opt_need(opt_analysis *a, ir_value v); /* v is read from memory */

/* The tile program of a group, or (group 0) of one scalar. */
ttpu_status opt_program_make(opt_analysis *a, base_arena *arena, uint32_t group, ir_value scalar, tile_prog **out);
ttpu_status opt_program_finish(opt_analysis *a, base_arena *arena, tile_prog *p, uint32_t group, ir_value scalar);

typedef enum opt_step_kind { STEP_TILE, STEP_VIEW, STEP_KERNEL } opt_step_kind;
typedef struct opt_step {
  uint8_t kind;
  uint32_t position;     /* VIEW, KERNEL: of the operation */
  const tile_prog *prog; /* TILE */
} opt_step;

typedef struct opt_structure {
  base_hash128 key;
  base_arena arena;
  atomic_uint refs; /* the cache's and each executable's */
  uint32_t step_count;
  opt_step *steps;
  struct opt_structure *newer, *older; /* the cache's order of use */
} opt_structure;

/* The structure for f, from the cache or made; *hit says which. */
ttpu_status opt_structure_get(const ir_func *f, opt_structure **out, bool *hit);
void opt_structure_release(opt_structure *s);
uint64_t opt_structures_compiled(void);

/* ---- binding ---------------------------------------------------------------------------------- */

/* A buffer of an execution. */
typedef enum opt_buffer_kind { BUFFER_PARAM, BUFFER_CONSTANT, BUFFER_TEMP, BUFFER_RESULT } opt_buffer_kind;
enum { OPT_NO_BUFFER = UINT32_MAX };

typedef struct opt_buffer {
  uint8_t kind;
  uint32_t number;  /* PARAM, RESULT: which */
  const void *data; /* CONSTANT */
  size_t bytes;
  int64_t offset;       /* TEMP: in the slab */
  uint32_t first, last; /* steps that write and read it first and last; first > last: never */
  uint32_t same;        /* shares the memory of this buffer; itself if none */
  uint32_t donor;       /* RESULT: a donated parameter whose memory it may take; OPT_NO_BUFFER: none */
  bool written;         /* PARAM: some result takes its memory */
} opt_buffer;

/* Where a value lies. Strides over its dims, in elements. */
typedef struct opt_place {
  uint32_t buffer; /* OPT_NO_BUFFER: nowhere */
  int64_t offset;
  const int64_t *strides;
} opt_place;

typedef enum soft_step_kind {
  RUN_TILE,
  RUN_OP,     /* soft_kernel_op and the products */
  RUN_COPY,   /* operand 0 to result 0, both of one shape */
  RUN_UPDATE, /* operand 0 copied to result 0 unless they are one; then operand 1 copied into a view of it (result 1) */
  RUN_RAMP,   /* 0, 1, 2, ... for an iota */
  RUN_CONTROL /* if, case, while: `regions` */
} soft_step_kind;

typedef struct soft_operand {
  opt_place place;
  ir_type type;
} soft_operand;

/* A step of an executable. */
typedef struct soft_step {
  uint8_t kind;
  const ir_op *op; /* OP, UPDATE */
  const tile_bound *tile;
  const tile_prog *prog;
  const opt_place *leaves, *outs; /* TILE: of prog */
  uint32_t operand_count, result_count;
  soft_operand *operands, *results; /* OP, COPY, UPDATE, RAMP, CONTROL */
  soft_executable **regions;        /* CONTROL: by region, then NULL */
} soft_step;

struct soft_executable {
  base_arena *arena; /* owned, the struct (from base_alloc) too: f and everything bound */
  const ir_func *f;
  opt_structure *structure;
  bool reference;
  uint32_t buffer_count, buffer_capacity;
  opt_buffer *buffers;
  uint32_t step_count, step_capacity;
  soft_step *steps;
  uint32_t param_count, result_count;
  uint32_t *result_buffers; /* by result: RESULT, or PARAM (shared) */
  size_t slab_bytes;
  soft_executable_stats stats;
};

ttpu_status opt_bind(soft_executable *e);
ttpu_status opt_plan_memory(soft_executable *e);
void opt_dump_steps(const soft_executable *e);
void opt_count_execution(void);
/* products.c: operands and results as soft_kernel_op has them. */
/* `weight`: the block of a parameter in which operand 1 lies, its value good beyond this run; NULL: it is none. */
ttpu_status opt_run_dot(const ir_op *op, const soft_view *x, const soft_view *y, soft_block *weight);
ttpu_status opt_run_attention(const ir_op *op, const soft_view *x, const soft_view *y);
ttpu_status opt_run_convolution(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y,
                                soft_block *weight);
/* region.c */
bool opt_is_control(const ir_op *op); /* its regions run as a whole, not element by element */
/* What op's regions use of the values around, of control flow without constants, of which its regions have their own. */
uint32_t opt_captures(const ir_func *f, const ir_op *op, ir_value *out);
ttpu_status opt_compile_regions(const ir_func *f, const ir_op *op, base_arena *arena, soft_executable ***out);
void opt_free_regions(soft_executable **regions);
ttpu_status opt_run_control(const soft_step *s, soft_hbm *hbm, const soft_view *x, const soft_view *y);
/* execute.c: runs e on dense memory. Result i goes to results[i], unless it is a parameter (result_buffers). */
ttpu_status opt_run_inner(const soft_executable *e, soft_hbm *hbm, void *slab, void *const *params,
                          void *const *results);

#endif
