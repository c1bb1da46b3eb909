/* Inside of the emitter: a run under way, its registers, and the machine's instructions.
 *
 *   emit.c          which instructions of a tile program become a run, and where the code of runs lives
 *   emit_code.c     the loop of a run, instruction by instruction
 *   emit_math.c     rounding and functions
 *   emit_machine.c  registers, and all in which AVX-512 and AVX2 (`narrow` code) differ but for two functions
 *
 * The code of a run is a function (rows, lanes, slots): for each row, for each vector of its lanes, all instructions. The tile's
 * rows follow each other, so one index counts elements through all of them. In a run without expanded row values there is one row.
 *
 * An instruction is done for two vectors before the next one, as long as there are two and registers for both: its latency is
 * that of neither.
 *
 *   rdi rows   rsi lanes of a row   rdx slots   r8 element, rcx that of the second vector   r9 row   r10 the row's end
 *   r11 where the last whole vector, or pair, begins   rax, rcx scratch
 *
 *                                 AVX-512                          AVX2
 *   a vector                      16 lanes, 32 registers           8 lanes, 16 registers
 *   a bool                        k2-k7                            a vector of zeros and ones in all bits
 *   the same for all elements     zmm from 31 down, or read into   vectors on the stack or behind the code, where an
 *   or those of a row ("fixed")   all lanes from behind the code   instruction's last operand may be
 *   a row's last lanes            one vector, masked by k1         four in half a register, then one by one */
#ifndef TTPU_SOFT_TILE_EMIT_INT_H
#define TTPU_SOFT_TILE_EMIT_INT_H

#include <string.h>

#define MATH_FMA 1
#include "soft/kern/math_template.h" /* its constants */
#include "soft/tile/bound.h"
#include "soft/tile/x86.h"

enum { TAIL_MASK = 1, FIRST_BOOL_MASK = 2, LAST_BOOL_MASK = 7 };
enum { UNITS = 2, MOST_INSTRS = 96, MOST_FIXED = 16, NO_REGISTER = 0xff, CODE_BYTES = 24 << 10 };

/* What is known of a float: it is a bf16 exactly; where it is a NaN, that is quiet; and of that the 16 low bits are 0, so
 * that rounding needs no care for it. */
enum { TRAIT_BF16 = 1, TRAIT_QUIET = 2, TRAIT_SHORT = 4, TRAIT_ALL = 7 };

/* What is loaded before the loop: a scalar, the row's element of a row value (before each row), a constant. */
typedef enum { FIXED_SCALAR, FIXED_ROW, FIXED_CONSTANT, FIXED_TRUTH } fixed_kind;
typedef struct fixed {
  fixed_kind kind;
  uint8_t reg; /* FIXED_TRUTH: a mask; in narrow code none, but the place on the stack has the entry's number */
  uint32_t of; /* slot, or bits */
} fixed;

/* A run under way. */
typedef struct emitter {
  const tile_bound *b;
  const tile_bound_instr *instrs[MOST_INSTRS];
  bool stores[MOST_INSTRS]; /* the result is written to its slot */
  uint32_t count;
  bool has_rows; /* expands a row value */
  x86_code code; /* code.narrow: of AVX2 */
  x86_constants constants;
  fixed fixed[MOST_FIXED];
  uint32_t fixed_count;
  bool is_tail;                                           /* the vector is a partial one, masked */
  uint8_t lanes;                                          /* of the vector; in narrow code 8, 4 or 1 */
  unsigned unit;                                          /* which of two vectors */
  bool failed;                                            /* registers or code are used up */
  uint32_t used_vectors, used_masks;                      /* in narrow code bools are vectors */
  uint8_t homes[UNITS][TILE_MAX_SLOTS + TILE_MAX_PORTS];  /* by slot: where its value is now */
  uint8_t traits[UNITS][TILE_MAX_SLOTS + TILE_MAX_PORTS]; /* and what is known of it */
  bool rounds;                                            /* there is rounding to bf16 */
} emitter;

/* ---- emit_machine.c --------------------------------------------------------------------------- */

/* A register for a float or a bool that nothing is in; without one the run has failed, and which it is does not matter. */
unsigned emit_take(emitter *e, bool truth);
void emit_leave(emitter *e, unsigned reg, bool truth);
/* The value that is there before the loop. */
x86_operand emit_take_fixed(emitter *e, fixed_kind kind, uint32_t of);
void emit_load_fixed(emitter *e, bool rows); /* those of a row, or the others */
/* The operand's register; of what is in memory, `spare` with it. */
unsigned emit_in_register(emitter *e, x86_operand o, unsigned spare);
void emit_load_pointer(emitter *e, uint32_t slot); /* to rax */
/* From and to the element at rax. */
void emit_load(emitter *e, uint32_t dtype, unsigned dst);
void emit_store(emitter *e, uint32_t dtype, unsigned src);
void emit_compare(emitter *e, unsigned truth, unsigned a, x86_operand b, unsigned predicate);
/* dst = a op b where truth holds, else it stays. */
void emit_where(emitter *e, unsigned truth, x86_opcode o, unsigned dst, unsigned a, x86_operand b);
void emit_choose(emitter *e, unsigned dst, unsigned truth, x86_operand yes, unsigned no);
void emit_logic(emitter *e, uint32_t kind, unsigned dst, unsigned a, x86_operand b); /* of bools; NOT has no b */
void emit_float_of_truth(emitter *e, unsigned dst, x86_operand truth);               /* 1 or 0 */
void emit_prologue(emitter *e);
void emit_epilogue(emitter *e);
void emit_tail_mask(emitter *e); /* r8 elements of r10 are done */

/* ---- emit_math.c ------------------------------------------------------------------------------ */

/* dst = the function of x, which stays; dst is another register. */
void emit_round_bf16(emitter *e, unsigned dst, unsigned x, unsigned traits);
void emit_round_f16(emitter *e, unsigned dst, unsigned x);
void emit_extreme(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b); /* of VMAXPS or VMINPS */
void emit_exp(emitter *e, unsigned dst, unsigned x);
void emit_tanh(emitter *e, unsigned dst, unsigned x);
void emit_logistic(emitter *e, unsigned dst, unsigned x);
void emit_erf(emitter *e, unsigned dst, unsigned x);

/* ---- emit_code.c ------------------------------------------------------------------------------ */

/* The slots that an instruction reads, but for a LOAD's and a STORE's memory; how many. */
uint32_t emit_reads(const tile_bound_instr *in, uint16_t slots[3]);
bool emit_reads_slot(const tile_bound_instr *in, uint16_t slot);
bool emit_writes_slot(const tile_bound_instr *in, uint16_t slot);
bool emit_gives_truth(const tile_bound_instr *in); /* a bool, not a float */
bool emit_takes_truth(const tile_bound_instr *in, uint32_t i);
bool emit_rounds_result(const emitter *e,
                        const tile_bound_instr *in); /* an operation with the rounding of its result */
/* The run's function, `units` vectors at a time; e->failed when registers or code do not suffice. */
void emit_function(emitter *e, unsigned units);

/* ---- instructions of the machine -------------------------------------------------------------- */

static const x86_opcode VADDPS = {1, 0, 0x58, 2}, VMULPS = {1, 0, 0x59, 2}, VSUBPS = {1, 0, 0x5c, 2},
                        VMINPS = {1, 0, 0x5d, 2}, VDIVPS = {1, 0, 0x5e, 2}, VMAXPS = {1, 0, 0x5f, 2},
                        VSQRTPS = {1, 0, 0x51, 2}, VMOVUPS = {1, 0, 0x10, 2}, VPANDD = {1, 1, 0xdb, 2},
                        VPORD = {1, 1, 0xeb, 2}, VPXORD = {1, 1, 0xef, 2}, VPADDD = {1, 1, 0xfe, 2},
                        VPSUBD = {1, 1, 0xfa, 2}, VPSHIFTD = {1, 1, 0x72, 2}, VFMADD213PS = {2, 1, 0xa8, 2},
                        VFMADD231PS = {2, 1, 0xb8, 2}, VCVTPH2PS = {2, 1, 0x13, 2}, VCVTPS2PH = {3, 1, 0x1d, 2},
                        VROUNDPS = {3, 1, 0x08, 2}, VCVTTPS2DQ = {1, 2, 0x5b, 2}, VCVTPS2DQ = {1, 1, 0x5b, 2},
                        VCVTDQ2PS = {1, 0, 0x5b, 2};
static const x86_opcode VSCALEFPS = {2, 1, 0x2c, 2}, VPERMT2PS = {2, 1, 0x7f, 2}; /* AVX-512 alone */
static const x86_opcode VPERMPS = {2, 1, 0x16, 2};                                /* narrow code alone */
enum { SHIFT_LEFT = 6, SHIFT_RIGHT = 2, SHIFT_SIGNED = 4 };
enum { CMP_EQ = 0, CMP_UNORDERED = 3, CMP_NE = 4, CMP_LT = 0x11, CMP_LE = 0x12, CMP_GE = 0x1d, CMP_GT = 0x1e };
enum { CMP_EQ_UNORDERED = 8 };

static inline void op(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b) {
  x86_vector(&e->code, &e->constants, o, dst, a, b, 0, false);
}
static inline void op_imm(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b, unsigned immediate) {
  x86_vector_imm(&e->code, &e->constants, o, dst, a, b, 0, false, (uint8_t)immediate);
}
static inline void shift(emitter *e, unsigned how, unsigned dst, unsigned a, unsigned bits) {
  op_imm(e, VPSHIFTD, how, dst, x86_reg(a), bits);
}
static inline void move(emitter *e, unsigned dst, x86_operand a) { op(e, VMOVUPS, dst, 0, a); }

static inline uint32_t bits_of(float x) { return (uint32_t)bits_f32(x); }
static inline x86_operand number(float x) { return x86_everywhere(bits_of(x)); }
/* The number for many uses, or as another operand than the last one. */
static inline x86_operand fixed_number(emitter *e, float x) { return emit_take_fixed(e, FIXED_CONSTANT, bits_of(x)); }
#define PUT(e, ...) x86_bytes(&(e)->code, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

#endif
