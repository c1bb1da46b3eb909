/* Tile programs: a group of pointwise operations, broadcasts and reductions as straight-line code over small tiles.
 *
 * A group has an iteration *space*: the dims (other than 1) of its full values, called axes. Reductions of the group all
 * reduce the same axes; the others are kept. Each value has a level:
 *
 *   TILE_UNIFORM   one element (a scalar operand: a learning rate, an epsilon)
 *   TILE_ROW       one element per combination of kept axes (a reduction's result, and what is computed from it)
 *   TILE_FULL      one element per point of the space
 *
 * A tile is a few thousand bytes of the space, small enough that every register (one tile of values) stays in the first
 * cache. The executor (vm.c) loops over tiles and calls one kernel per instruction, so the dispatch of a few nanoseconds
 * is spread over ~1,000 elements.
 *
 * The *program* (tile_prog) is the part that knows no size; it is made once per structure (opt/program.c). The *binding*
 * (tile_bound, made by bind.c) has the loop nest, which kernels run, and for each leaf and output whether it is used in
 * place. Two layouts exist, chosen by the binding:
 *
 *   rows      kept axes outside, reduced axes inside: a tile is some rows, each complete or a piece of one
 *   columns   reduced axes outside, the last kept axis inside: a tile is some lines of a block of columns, and the
 *             accumulators are a vector (bias gradients)
 *
 * If a row fits into a tile, all instructions run once in their order. If not, the program runs in *passes* over the row:
 * pass p computes the reductions that depend on those of passes before p, recomputing the elementwise prefix, which
 * costs less than memory would. Each instruction has the set of passes that need it.
 *
 * Small floats (bf16, f16, f8) are f32 in registers, rounded to their own precision after each operation, so the results
 * equal those of one operation at a time. */
#ifndef TTPU_SOFT_TILE_PROG_H
#define TTPU_SOFT_TILE_PROG_H

#include "ir/ir.h"
#include "soft/soft_int.h"

typedef enum tile_level { TILE_UNIFORM, TILE_ROW, TILE_FULL } tile_level;

typedef enum tile_op {
#define INSTRUCTION(ENUM, name) TILE_##ENUM,
#include "soft/tile/prog.def"
#undef INSTRUCTION
  TILE_OP_COUNT
} tile_op;

enum {
  TILE_MAX_PASSES = 8,
  TILE_MAX_SLOTS = 900, /* values of one program; opt/group.c closes a group before it needs more */
  TILE_MAX_PORTS = 100, /* leaves and outputs */
  TILE_BYTES = 4096,    /* of one register: measured best at 2-4 KiB (docs/design.md) */
};

/* The element type of registers: the dtype itself, f32 for small floats. */
static inline ttpu_dtype tile_type(ttpu_dtype t) {
  return t == TTPU_BF16 || t == TTPU_F16 || t == TTPU_F8E5M2 || t == TTPU_F8E4M3FN ? TTPU_F32 : t;
}
static inline bool tile_is_small_float(ttpu_dtype t) { return tile_type(t) != t; }
/* The accumulator of a reduction of `t` (a register type) by ADD, MULTIPLY, MAXIMUM, ... */
static inline ttpu_dtype tile_accumulator(ir_kind kind, ttpu_dtype t) {
  if (kind != IR_ADD && kind != IR_MULTIPLY) return t;
  if (t == TTPU_F32) return TTPU_F64;
  return t == TTPU_C64 ? TTPU_C128 : t;
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* d[i] = op(a[i], b[i], c[i]) for i < n. Bits 0, 1, 2 of `scalar`: a, b, c is one element. d may be a, b or c. */
typedef void (*tile_fn)(int64_t n, void *d, const void *a, const void *b, const void *c, unsigned scalar);
/* rows: accumulator[r] = fold(accumulator[r], x[r*len ..]); columns: accumulator[l] = fold(accumulator[l], x[r*len + l]). */
typedef void (*tile_fold_fn)(int64_t rows, int64_t len, void *accumulator, const void *x);

enum { TILE_FOLD_COUNT = 6 };      /* ADD MULTIPLY MAXIMUM MINIMUM AND OR */
int tile_fold_index(ir_kind kind); /* -1: no such reduction */

typedef struct tile_kernels {
  tile_fn map[IR_KIND_COUNT][TTPU_DTYPE_COUNT];
  tile_fn compare[6][TTPU_DTYPE_COUNT];
  tile_fn convert[TTPU_DTYPE_COUNT][TTPU_DTYPE_COUNT];      /* between register types */
  tile_fn select[5], copy[5];                               /* by log2 of the bytes */
  tile_fold_fn expand[5];                                   /* the other way: x[r] over accumulator[r*len ..] */
  tile_fn round[TTPU_DTYPE_COUNT];                          /* f32 -> f32 that the small float holds exactly */
  tile_fn rounded[IR_KIND_COUNT];                           /* map of F32, then round of BF16; NULL: not in one */
  tile_fn unpack[TTPU_DTYPE_COUNT], pack[TTPU_DTYPE_COUNT]; /* small float in memory <-> f32 */
  tile_fold_fn fold_rows[TILE_FOLD_COUNT][TTPU_DTYPE_COUNT], fold_columns[TILE_FOLD_COUNT][TTPU_DTYPE_COUNT];
} tile_kernels;
const tile_kernels *tile_kernels_get(void); /* for this machine and TTPU_CPU */

/* ---- programs --------------------------------------------------------------------------------- */

/* A value: a register, or what stands for one once bound (memory in place). */
typedef struct tile_slot {
  uint8_t level;
  uint8_t type; /* of its elements in the register */
  uint16_t reg; /* among the registers of its level; a FULL one is shared by values that do not live together */
} tile_slot;

typedef struct tile_instr {
  uint8_t op;            /* tile_op */
  uint8_t level;         /* how many lanes it runs over; REDUCE: FULL */
  uint8_t type;          /* of its operands: chooses the kernel. LOAD and STORE: the dtype in memory */
  uint8_t extra;         /* REDUCE: tile_fold_index; MAP: the direction of a compare, the target type of a convert */
  uint16_t dst, a, b, c; /* slots. LOAD: a is the leaf's number; STORE: dst is the output's */
  uint8_t passes;        /* FULL: bit p = needed in pass p. ROW: the number of passes that must be over before it */
  uint8_t operands;      /* how many of a, b, c are slots */
  uint16_t kind;         /* MAP, GENERIC: ir_kind, for dumps and costs; IR_NO_OP: rounding */
  uint32_t ir_op;        /* GENERIC: position of the operation in the function */
  uint8_t table;         /* MAP: tile_map_table */
} tile_instr;

/* Which table of tile_kernels a MAP uses. */
typedef enum tile_map_table {
  TILE_MAP_KIND,
  TILE_MAP_COMPARE,
  TILE_MAP_CONVERT,
  TILE_MAP_SELECT,
  TILE_MAP_COPY,
  TILE_MAP_ROUND,
  TILE_MAP_PACK,
  TILE_MAP_UNPACK
} tile_map_table;

typedef struct tile_leaf {
  ir_value value;
  uint8_t dtype, level;
  uint16_t last_use; /* the last instruction that reads its memory or what stands for it */
} tile_leaf;

typedef struct tile_out {
  ir_value value;
  uint16_t slot; /* the register stored */
  uint8_t dtype, level;
  uint16_t defined; /* the instruction that makes the slot */
} tile_out;

typedef struct tile_prog {
  ir_value space;   /* a full value: its dims are the space */
  uint32_t reduced; /* bit d: dim d of `space` is reduced */
  uint16_t leaf_count, out_count, slot_count, instr_count;
  uint16_t full_regs, row_regs, uniform_regs;
  uint8_t passes; /* at least 1 */
  uint8_t width;  /* bytes of the widest FULL register's element */
  tile_leaf *leaves;
  tile_out *outs;
  tile_slot *slots;
  tile_instr *instrs;
} tile_prog;

/* ---- bindings --------------------------------------------------------------------------------- */

/* Where a value lies: a buffer of the execution and strides over the value's own dims, both in elements. */
typedef struct tile_place {
  uint32_t buffer;
  int64_t offset; /* elements */
  const int64_t *strides;
} tile_place;

typedef struct tile_bound tile_bound;

/* Binds p to the sizes of f; leaves[i] and outs[i] say where those lie. Everything is allocated in `arena`. */
ttpu_status tile_bind(base_arena *arena, const tile_prog *p, const ir_func *f, const tile_place *leaves,
                      const tile_place *outs, const tile_bound **result);
/* May output `out` be written over leaf `leaf` (the same place, dense)? True if every read of the leaf comes first. */
bool tile_may_overwrite(const tile_prog *p, uint32_t out, uint32_t leaf);
/* Runs it on the pool. buffers[i] is the memory of buffer i. */
void tile_run(const tile_bound *b, void *const *buffers);
double tile_bound_elements(const tile_bound *b);
/* out[i] = i, for an iota. */
void tile_ramp(ttpu_dtype dtype, int64_t count, void *out);
void tile_prog_print(const tile_prog *p, const ir_func *f, base_text *out);

#endif
