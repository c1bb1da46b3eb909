/* A bound tile program, shared by bind.c, which makes it, and vm.c, which runs it.
 *
 * The loop nest has outer axes and one innermost axis of `len` lanes. Outer axes come in this order:
 *
 *   rows      kept axes (a row each combination), then reduced axes (`runs` pieces of a row); the last reduced axis is
 *             innermost. Without reductions all axes but the last are kept and the last is innermost.
 *   columns   kept axes (`blocks` of columns are taken from the innermost), then reduced axes (a line each combination);
 *             the last kept axis is innermost.
 *
 * Adjacent axes of one group are merged where every leaf and output allows it, so most nests have one or two. A *segment*
 * is one combination of outer axes: `len` lanes or a part of them. A tile is some segments; its FULL registers hold
 * [segment][lane].
 *
 * Leaves and outputs are *ports*: where their memory is, and the strides in bytes along the nest's axes. */
#ifndef TTPU_SOFT_TILE_BOUND_H
#define TTPU_SOFT_TILE_BOUND_H

#include "soft/tile/prog.h"

typedef enum { LAYOUT_ROWS, LAYOUT_COLUMNS } tile_layout;
/* PORT_SCALAR: one element for the whole tile; PORT_DIRECT: the tile's elements lie one after the other. */
typedef enum { PORT_COPY, PORT_DIRECT, PORT_SCALAR } tile_port_mode;

typedef struct tile_port {
  uint32_t buffer;
  uint8_t dtype, level, mode, bytes;
  int64_t offset;         /* bytes */
  int64_t lane;           /* bytes from lane to lane */
  const int64_t *strides; /* bytes, of the outer axes */
} tile_port;

/* A run of instructions as machine code (emit.c): over `rows` rows of `lanes` elements. */
typedef void (*tile_code_fn)(int64_t rows, int64_t lanes, void *const *slots);
enum { TILE_EMITTED = TILE_OP_COUNT }; /* a bound instruction's op: such a run. `scalar`: row by row */

extern const float tile_erf_32[5][32], tile_erf_8[8][8]; /* coefficients of erf (vm_lanes_avx512.h, vm_lanes_avx2.h) */

/* An instruction with its kernel and final slots (ports in place, aliases resolved). */
typedef struct tile_bound_instr {
  union {
    tile_fn map;
    tile_fold_fn fold;
    tile_code_fn code;
  } kernel;
  uint16_t dst, a, b, c;
  uint8_t op, level, scalar;
  const tile_instr *source;
} tile_bound_instr;

typedef struct tile_list {
  tile_bound_instr *instrs;
  uint32_t count;
} tile_list;

struct tile_bound {
  const tile_prog *prog;
  const ir_func *f;
  const tile_kernels *kernels;
  tile_layout layout;
  uint32_t axis_count, kept_axes; /* outer axes; the first `kept_axes` are not reduced */
  const int64_t *dims;            /* of the outer axes */
  int64_t kept, inner;            /* products of the dims of the kept and of the other outer axes */
  int64_t len;
  /* The tile. rows: `tile_rows` complete rows, or a part of one; columns: `tile_len` columns of `tile_inner` lines. */
  int64_t tile_rows, tile_inner, tile_len, tile_lanes;
  bool complete; /* a tile holds whole rows (columns): one run over all instructions */
  bool split;    /* few rows, long ones: the chunks of a row run in parallel and their accumulators are folded */
  int64_t units, chunks; /* independent pieces of work; chunks of each, when not complete */
  tile_port *ports;      /* leaves, then outputs */
  uint32_t port_count, slot_count;
  uint32_t *slot_offsets; /* into a worker's registers, per register slot; ports in place come after the registers */
  uint16_t *moving;       /* ports whose address is followed from tile to tile */
  uint32_t moving_count;
  tile_list uniform; /* once per worker */
  tile_list body;    /* complete: everything */
  tile_list rows[TILE_MAX_PASSES + 1],
      pass[TILE_MAX_PASSES]; /* else: rows[p], then pass[p] over the chunks, then rows[p+1] */
  uint32_t shared_bytes;     /* the part of the registers that holds uniform and row values, first */
  uint32_t register_bytes;
  uint32_t row_stride; /* bytes of one row register */
  double nanoseconds;  /* estimated, per element */
};

#endif
