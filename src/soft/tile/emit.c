/* Which instructions become one loop, and the machine code of it (AVX-512).
 *
 * The code of a run is a function (rows, lanes, slots): for each row, for each 16 of its lanes, all instructions. The tile's rows
 * follow each other, so one index counts elements through all of them. In a run without expanded row values there is one row.
 *
 * An instruction is done for two vectors before the next one, as long as there are two: its latency is that of neither.
 *
 *   rdi rows   rsi lanes of a row   rdx slots   r8 element, rcx that of the second vector   r9 row   r10 the row's end
 *   r11 where the last whole vector, or pair, begins   rax, rcx scratch    k1 the lanes of a row's last, partial vector    k7 scratch    k2-k6 bools
 *   zmm from 0 up: values, from 31 down: what is the same for all elements (scalars, constants) or those of a row */
#include "soft/tile/emit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <sys/mman.h>
#include <unistd.h>

#define MATH_FMA 1
#include "soft/kern/math_template.h" /* its constants */
#include "soft/tile/x86.h"

enum { LANES = 16, VECTORS = 32, TAIL_MASK = 1, SCRATCH_MASK = 7, LAST_BOOL_MASK = 6, FIRST_BOOL_MASK = 2 };
enum { UNITS = 2, MOST_INSTRS = 96, MOST_FIXED = 16, NO_REGISTER = 0xff, CODE_BYTES = 24 << 10 };

/* What is known of a float: it is a bf16 exactly; where it is a NaN, that is quiet; and of that the 16 low bits are 0, so
 * that rounding needs no care for it. */
enum { TRAIT_BF16 = 1, TRAIT_QUIET = 2, TRAIT_SHORT = 4, TRAIT_ALL = 7 };

/* What is loaded before the loop: a scalar, the row's element of a row value (before each row), a constant. */
typedef enum { FIXED_SCALAR, FIXED_ROW, FIXED_CONSTANT, FIXED_TRUTH } fixed_kind;
typedef struct fixed {
  fixed_kind kind;
  uint8_t reg; /* FIXED_TRUTH: a mask */
  uint32_t of; /* slot, or bits */
} fixed;

/* A run under way. */
typedef struct emitter {
  const tile_bound *b;
  const tile_bound_instr *instrs[MOST_INSTRS];
  bool stores[MOST_INSTRS]; /* the result is written to its slot */
  uint32_t count;
  bool has_rows; /* expands a row value */
  x86_code code;
  x86_constants constants;
  fixed fixed[MOST_FIXED];
  uint32_t fixed_count;
  bool is_tail;  /* the vector is a partial one */
  unsigned unit; /* which of two vectors */
  bool failed;   /* registers or code are used up */
  uint32_t used_vectors, used_masks;
  uint8_t homes[UNITS][TILE_MAX_SLOTS + TILE_MAX_PORTS];  /* by slot: where its value is now */
  uint8_t traits[UNITS][TILE_MAX_SLOTS + TILE_MAX_PORTS]; /* and what is known of it */
  bool rounds;                                            /* there is rounding to bf16 */
} emitter;

/* ---- what can be emitted ---------------------------------------------------------------------- */

typedef enum { NOT_EMITTED, EMIT_LOAD, EMIT_STORE, EMIT_EXPAND, EMIT_MAP } emit_class;

static bool is_half(uint32_t dtype) { return dtype == TTPU_BF16 || dtype == TTPU_F16; }

static bool emits_kind(const tile_instr *in) {
  if (in->type == TTPU_BOOL) return in->kind == IR_AND || in->kind == IR_OR || in->kind == IR_XOR || in->kind == IR_NOT;
  if (in->type != TTPU_F32) return false;
  switch (in->kind) {
    case IR_ABS:
    case IR_ADD:
    case IR_CEIL:
    case IR_DIVIDE:
    case IR_ERF:
    case IR_EXPONENTIAL:
    case IR_FLOOR:
    case IR_LOGISTIC:
    case IR_MAXIMUM:
    case IR_MINIMUM:
    case IR_MULTIPLY:
    case IR_NEGATE:
    case IR_ROUND_NEAREST_EVEN:
    case IR_RSQRT:
    case IR_SQRT:
    case IR_SUBTRACT:
    case IR_TANH: return true;
    default: return false;
  }
}

static bool emits_map(const tile_instr *in) {
  switch (in->table) {
    case TILE_MAP_KIND: return emits_kind(in);
    case TILE_MAP_COMPARE: return in->type == TTPU_F32;
    case TILE_MAP_SELECT: return in->type == TTPU_F32;
    case TILE_MAP_COPY: return in->type == TTPU_F32;
    case TILE_MAP_ROUND: return is_half(in->type);
    case TILE_MAP_CONVERT:
      return (in->type == TTPU_BOOL && in->extra == TTPU_F32) || (in->type == TTPU_F32 && in->extra == TTPU_BOOL);
    default: return false;
  }
}

static emit_class class_of(const tile_bound *b, const tile_bound_instr *in) {
  if (in->level != TILE_FULL) return NOT_EMITTED;
  const tile_port *port;
  switch (in->op) {
    case TILE_MAP: return emits_map(in->source) ? EMIT_MAP : NOT_EMITTED;
    case TILE_LOAD:
      port = &b->ports[in->a];
      return !in->scalar && port->level == TILE_FULL && port->mode == PORT_DIRECT && is_half(port->dtype) ? EMIT_LOAD
                                                                                                          : NOT_EMITTED;
    case TILE_STORE:
      port = &b->ports[b->prog->leaf_count + in->dst];
      return !in->scalar && port->level == TILE_FULL && port->mode == PORT_DIRECT &&
                     (is_half(port->dtype) || port->dtype == TTPU_F32)
                 ? EMIT_STORE
                 : NOT_EMITTED;
    case TILE_EXPAND: return b->layout == LAYOUT_ROWS && in->source->type == TTPU_F32 ? EMIT_EXPAND : NOT_EMITTED;
    default: return NOT_EMITTED;
  }
}

/* The slots that an instruction reads, but for a LOAD's and a STORE's memory. */
static uint32_t reads(const tile_bound_instr *in, uint16_t slots[3]) {
  slots[0] = in->a, slots[1] = in->b, slots[2] = in->c;
  return in->op == TILE_LOAD                                                      ? 0
         : in->op == TILE_STORE || in->op == TILE_REDUCE || in->op == TILE_EXPAND ? 1
                                                                                  : in->source->operands;
}

static bool reads_slot(const tile_bound_instr *in, uint16_t slot) {
  uint16_t slots[3];
  uint32_t count = reads(in, slots);
  for (uint32_t i = 0; i < count; ++i)
    if (slots[i] == slot) return true;
  return false;
}

static bool writes_slot(const tile_bound_instr *in, uint16_t slot) { return in->op != TILE_STORE && in->dst == slot; }

/* ---- registers -------------------------------------------------------------------------------- */

static unsigned take_vector(emitter *e) {
  for (unsigned i = 0; i < VECTORS; ++i)
    if (!(e->used_vectors >> i & 1)) {
      e->used_vectors |= 1u << i;
      return i;
    }
  e->failed = true;
  return 0;
}

static unsigned take_mask(emitter *e) {
  for (unsigned i = FIRST_BOOL_MASK; i <= LAST_BOOL_MASK; ++i)
    if (!(e->used_masks >> i & 1)) {
      e->used_masks |= 1u << i;
      return i;
    }
  e->failed = true;
  return FIRST_BOOL_MASK;
}

static void leave_vector(emitter *e, unsigned reg) { e->used_vectors &= ~(1u << reg); }

static unsigned take_fixed(emitter *e, fixed_kind kind, uint32_t of) {
  for (uint32_t i = 0; i < e->fixed_count; ++i)
    if (e->fixed[i].kind == kind && e->fixed[i].of == of) return e->fixed[i].reg;
  bool mask = kind == FIXED_TRUTH;
  unsigned top = mask ? LAST_BOOL_MASK : VECTORS - 1;
  uint32_t *used = mask ? &e->used_masks : &e->used_vectors;
  while (top > (mask ? FIRST_BOOL_MASK : 0) && *used >> top & 1) --top;
  if (e->fixed_count == MOST_FIXED || *used >> top & 1) {
    e->failed = true;
    return top;
  }
  *used |= 1u << top;
  e->fixed[e->fixed_count++] = (fixed){kind, (uint8_t)top, of};
  return top;
}

/* ---- instructions of the machine -------------------------------------------------------------- */

static const x86_opcode VADDPS = {1, 0, 0x58, 2}, VMULPS = {1, 0, 0x59, 2}, VSUBPS = {1, 0, 0x5c, 2},
                        VMINPS = {1, 0, 0x5d, 2}, VDIVPS = {1, 0, 0x5e, 2}, VMAXPS = {1, 0, 0x5f, 2},
                        VSQRTPS = {1, 0, 0x51, 2}, VCMPPS = {1, 0, 0xc2, 2}, VMOVAPS = {1, 0, 0x28, 2},
                        VMOVUPS_LOAD = {1, 0, 0x10, 2}, VMOVUPS_STORE = {1, 0, 0x11, 2}, VPANDD = {1, 1, 0xdb, 2},
                        VPORD = {1, 1, 0xeb, 2}, VPXORD = {1, 1, 0xef, 2}, VPADDD = {1, 1, 0xfe, 2},
                        VPSHIFTD = {1, 1, 0x72, 2}, VBLENDMPS = {2, 1, 0x65, 2}, VBROADCASTSS = {2, 1, 0x18, 2},
                        VFMADD213PS = {2, 1, 0xa8, 2}, VFMADD231PS = {2, 1, 0xb8, 2}, VSCALEFPS = {2, 1, 0x2c, 2},
                        VPMOVZXWD = {2, 1, 0x33, 2}, VPMOVDW = {2, 2, 0x33, 2}, VCVTPH2PS = {2, 1, 0x13, 2},
                        VCVTPS2PH = {3, 1, 0x1d, 2}, VRNDSCALEPS = {3, 1, 0x08, 2}, VMOVDQU8_LOAD = {1, 3, 0x6f, 0},
                        VMOVDQU8_STORE = {1, 3, 0x7f, 0}, VPTESTMB = {2, 1, 0x26, 0}, VPMOVM2B = {2, 2, 0x28, 0},
                        VPABSB = {2, 1, 0x1c, 0}, VCVTTPS2DQ = {1, 2, 0x5b, 2}, VCVTDQ2PS = {1, 0, 0x5b, 2},
                        VPERMT2PS = {2, 1, 0x7f, 2};
enum { KAND = 0x41, KOR = 0x45, KXNOR = 0x46, KXOR = 0x47 };
enum { CMP_EQ = 0, CMP_UNORDERED = 3, CMP_NE = 4, CMP_LT = 0x11, CMP_LE = 0x12, CMP_GE = 0x1d, CMP_GT = 0x1e };
enum { CMP_EQ_UNORDERED = 8 };

static void op(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b) {
  x86_evex(&e->code, &e->constants, o, dst, a, b, 0, false);
}
static void op_masked(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b, unsigned mask) {
  x86_evex(&e->code, &e->constants, o, dst, a, b, mask, false);
}
static void op_imm(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b, unsigned immediate) {
  x86_evex_imm(&e->code, &e->constants, o, dst, a, b, 0, false, (uint8_t)immediate);
}
static void compare(emitter *e, unsigned mask, unsigned a, x86_operand b, unsigned predicate) {
  op_imm(e, VCMPPS, mask, a, b, predicate);
}
static void shift(emitter *e, bool left, unsigned dst, unsigned a, unsigned bits) {
  op_imm(e, VPSHIFTD, left ? 6 : 2, dst, x86_reg(a), bits);
}
static void move(emitter *e, unsigned dst, unsigned a) { op(e, VMOVAPS, dst, 0, x86_reg(a)); }

static uint32_t bits_of(float x) { return (uint32_t)bits_f32(x); }
static x86_operand number(float x) { return x86_everywhere(bits_of(x)); }
static unsigned fixed_number(emitter *e, float x) { return take_fixed(e, FIXED_CONSTANT, bits_of(x)); }

/* mov rax, [rdx + 8 * slot] */
static void load_pointer(emitter *e, uint32_t slot) {
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0x8b, 0x82}, 3);
  x86_word(&e->code, 8 * slot);
}

/* Loads and stores of the vector at element r8 of elements of 2^scale bytes, partial at the end of a row. */
static x86_operand here(const emitter *e, unsigned scale) {
  return x86_at(X86_RAX, e->unit == 0 ? X86_R8 : X86_RCX, scale);
}
static void load(emitter *e, x86_opcode o, unsigned dst, unsigned scale) {
  x86_evex(&e->code, &e->constants, o, dst, 0, here(e, scale), e->is_tail ? TAIL_MASK : 0, e->is_tail);
}
static void store(emitter *e, x86_opcode o, unsigned src, unsigned scale) {
  x86_evex(&e->code, &e->constants, o, src, 0, here(e, scale), e->is_tail ? TAIL_MASK : 0, false);
}

/* ---- functions, as the kernels compute them --------------------------------------------------- */

/* To nearest, ties to even; a NaN becomes quiet and keeps its upper half. dst may not be x. */
static void emit_round_bf16(emitter *e, unsigned dst, unsigned x, unsigned traits) {
  shift(e, false, dst, x, 16);
  op(e, VPANDD, dst, dst, x86_everywhere(1));
  op(e, VPADDD, dst, dst, x86_everywhere(0x7fff));
  op(e, VPADDD, dst, dst, x86_reg(x));
  if ((traits & (TRAIT_QUIET | TRAIT_SHORT)) != (TRAIT_QUIET | TRAIT_SHORT)) { /* else the sum leaves a NaN as it is */
    compare(e, SCRATCH_MASK, x, x86_reg(x), CMP_UNORDERED);
    op_masked(e, VPORD, dst, x, x86_everywhere(0x400000), SCRATCH_MASK);
  }
  op(e, VPANDD, dst, dst, x86_everywhere(0xffff0000));
}

static void emit_round_f16(emitter *e, unsigned dst, unsigned x) {
  op_imm(e, VCVTPS2PH, x, 0, x86_reg(dst), 8); /* the source is the first operand */
  op(e, VCVTPH2PS, dst, 0, x86_reg(dst));
}

/* A NaN in a is the result; one in b fails the comparison, and is it. */
static void emit_extreme(emitter *e, x86_opcode o, unsigned dst, unsigned a, unsigned b) {
  op(e, o, dst, a, x86_reg(b));
  compare(e, SCRATCH_MASK, a, x86_reg(a), CMP_UNORDERED);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(a), SCRATCH_MASK);
}

static void emit_exp(emitter *e, unsigned dst, unsigned x) {
  unsigned n = take_vector(e), p = take_vector(e), round = fixed_number(e, round_f32);
  op(e, VMINPS, dst, fixed_number(e, exp_most_f32), x86_reg(x)); /* a NaN remains */
  op(e, VMAXPS, dst, fixed_number(e, exp_least_f32), x86_reg(dst));
  move(e, n, round);
  op(e, VFMADD231PS, n, dst, number(log2_e_f32));
  op(e, VSUBPS, n, n, x86_reg(round));
  op(e, VFMADD231PS, dst, n, number(-ln2_high_f32)); /* dst: the rest r */
  op(e, VFMADD231PS, dst, n, number(-ln2_low_f32));
  move(e, p, fixed_number(e, exp_terms_f32[0]));
  for (int i = 1; i < 6; ++i) op(e, VFMADD213PS, p, dst, number(exp_terms_f32[i]));
  op(e, VMULPS, p, p, x86_reg(dst));
  op(e, VFMADD213PS, p, dst, x86_reg(dst));
  op(e, VADDPS, p, p, number(1));
  op(e, VSCALEFPS, dst, p, x86_reg(n));
  leave_vector(e, n), leave_vector(e, p);
}

/* dst = |size| with the sign of x; size is lost. */
static void emit_sign_of(emitter *e, unsigned dst, unsigned size, unsigned x) {
  op(e, VPANDD, size, size, x86_everywhere(0x7fffffff));
  op(e, VPANDD, dst, x, x86_everywhere(0x80000000));
  op(e, VPORD, dst, dst, x86_reg(size));
}

static void emit_tanh(emitter *e, unsigned dst, unsigned x) {
  unsigned size = take_vector(e), z = take_vector(e), p = take_vector(e);
  op(e, VPANDD, size, x, x86_everywhere(0x7fffffff));
  op(e, VMULPS, z, x, x86_reg(x));
  move(e, p, fixed_number(e, tanh_terms_f32[0]));
  for (int i = 1; i < 5; ++i) op(e, VFMADD213PS, p, z, number(tanh_terms_f32[i]));
  op(e, VMULPS, p, p, x86_reg(z));
  op(e, VFMADD213PS, p, x, x86_reg(x)); /* p: near 0 */
  op(e, VMULPS, z, size, number(2));
  emit_exp(e, dst, z);
  op(e, VADDPS, dst, dst, number(1));
  op(e, VDIVPS, z, fixed_number(e, 2), x86_reg(dst));
  op(e, VSUBPS, z, fixed_number(e, 1), x86_reg(z));
  emit_sign_of(e, dst, z, x);
  compare(e, SCRATCH_MASK, size, number(tanh_low_f32), CMP_LT);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(p), SCRATCH_MASK);
  compare(e, SCRATCH_MASK, x, number(0), CMP_EQ_UNORDERED); /* zeros and NaNs are themselves */
  op_masked(e, VMOVAPS, dst, 0, x86_reg(x), SCRATCH_MASK);
  leave_vector(e, size), leave_vector(e, z), leave_vector(e, p);
}

static void emit_logistic(emitter *e, unsigned dst, unsigned x) {
  unsigned t = take_vector(e), one = fixed_number(e, 1);
  op(e, VPORD, t, x, x86_everywhere(0x80000000));
  emit_exp(e, dst, t); /* of -|x| */
  op(e, VADDPS, t, one, x86_reg(dst));
  compare(e, SCRATCH_MASK, x, number(0), CMP_GE);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(one), SCRATCH_MASK);
  op(e, VDIVPS, dst, dst, x86_reg(t));
  compare(e, SCRATCH_MASK, x, x86_reg(x), CMP_UNORDERED);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(x), SCRATCH_MASK);
  leave_vector(e, t);
}

/* y = the words of these numbers of the 32 at rax; rax goes on to the 32 before. */
static void emit_coefficient(emitter *e, unsigned y, unsigned numbers, unsigned high) {
  op(e, VMOVUPS_LOAD, y, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0x83, 0xc0, 64}, 4); /* add rax, 64 */
  op(e, VMOVUPS_LOAD, high, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0x2d, 192, 0, 0, 0}, 6); /* sub rax, 192 */
  op(e, VPERMT2PS, y, numbers, x86_reg(high));
}

static void emit_erf(emitter *e, unsigned dst, unsigned x) {
  static const float near_terms[] = {-0.02622226f, 0.11281288f, -0.37612608f, 0.12837917f};
  unsigned size = take_vector(e), t = take_vector(e), numbers = take_vector(e), c = take_vector(e);
  op(e, VPANDD, size, x, x86_everywhere(0x7fffffff));
  op(e, VMINPS, t, fixed_number(e, 0x1.fffffep1f), x86_reg(size)); /* a NaN remains */
  op(e, VMULPS, t, t, number(8));
  op(e, VCVTTPS2DQ, numbers, 0, x86_reg(t));
  op(e, VCVTDQ2PS, c, 0, x86_reg(numbers));
  op(e, VSUBPS, t, t, x86_reg(c));
  op(e, VSUBPS, t, t, number(0.5f));
  const float *last = tile_erf_coefficients[4];
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0xb8}, 2); /* mov rax, the last row */
  x86_bytes(&e->code, &last, sizeof last);
  unsigned high = take_vector(e);
  emit_coefficient(e, dst, numbers, high);
  for (int i = 3; i >= 0; --i) {
    emit_coefficient(e, c, numbers, high);
    op(e, VFMADD213PS, dst, t, x86_reg(c));
  }
  move(e, c, dst);
  emit_sign_of(e, dst, c, x);
  op(e, VMULPS, t, x, x86_reg(x));
  move(e, c, fixed_number(e, near_terms[0]));
  for (int i = 1; i < 4; ++i) op(e, VFMADD213PS, c, t, number(near_terms[i]));
  op(e, VFMADD213PS, c, x, x86_reg(x));
  compare(e, SCRATCH_MASK, size, number(0.25f), CMP_LT);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(c), SCRATCH_MASK);
  leave_vector(e, size), leave_vector(e, t), leave_vector(e, numbers), leave_vector(e, c), leave_vector(e, high);
}

/* ---- one instruction -------------------------------------------------------------------------- */

static unsigned float_of_slot(emitter *e, uint16_t slot, bool scalar) {
  if (scalar) return take_fixed(e, FIXED_SCALAR, slot);
  if (e->homes[e->unit][slot] == NO_REGISTER) {
    e->homes[e->unit][slot] = (uint8_t)take_vector(e);
    load_pointer(e, slot);
    load(e, VMOVUPS_LOAD, e->homes[e->unit][slot], 2);
  }
  return e->homes[e->unit][slot];
}

static unsigned truth_of_slot(emitter *e, uint16_t slot, bool scalar) {
  if (scalar) return take_fixed(e, FIXED_TRUTH, slot);
  if (e->homes[e->unit][slot] == NO_REGISTER) {
    unsigned bytes = take_vector(e);
    e->homes[e->unit][slot] = (uint8_t)take_mask(e);
    load_pointer(e, slot);
    load(e, VMOVDQU8_LOAD, bytes, 0);
    op(e, VPTESTMB, e->homes[e->unit][slot], bytes, x86_reg(bytes));
    leave_vector(e, bytes);
  }
  return e->homes[e->unit][slot];
}

static unsigned float_operand(emitter *e, const tile_bound_instr *in, uint32_t i) {
  const uint16_t slots[3] = {in->a, in->b, in->c};
  return float_of_slot(e, slots[i], in->scalar >> i & 1);
}
static unsigned truth_operand(emitter *e, const tile_bound_instr *in, uint32_t i) {
  const uint16_t slots[3] = {in->a, in->b, in->c};
  return truth_of_slot(e, slots[i], in->scalar >> i & 1);
}

static bool gives_truth(const tile_bound_instr *in) {
  const tile_instr *s = in->source;
  if (in->op != TILE_MAP) return false;
  return s->table == TILE_MAP_COMPARE || (s->table == TILE_MAP_CONVERT && s->extra == TTPU_BOOL) ||
         (s->table == TILE_MAP_KIND && s->type == TTPU_BOOL);
}

static void emit_truth(emitter *e, const tile_bound_instr *in, unsigned dst) {
  static const uint8_t predicates[] = {[IR_EQ] = CMP_EQ, [IR_NE] = CMP_NE, [IR_GE] = CMP_GE,
                                       [IR_GT] = CMP_GT, [IR_LE] = CMP_LE, [IR_LT] = CMP_LT};
  const tile_instr *s = in->source;
  if (s->table == TILE_MAP_COMPARE) {
    unsigned a = float_operand(e, in, 0), b = float_operand(e, in, 1);
    compare(e, dst, a, x86_reg(b), predicates[s->extra]);
  } else if (s->table == TILE_MAP_CONVERT) {
    compare(e, dst, float_operand(e, in, 0), number(0), CMP_NE);
  } else {
    unsigned a = truth_operand(e, in, 0);
    if (s->kind == IR_NOT) { /* a xnor (a xor a) */
      x86_mask(&e->code, KXOR, SCRATCH_MASK, a, a);
      x86_mask(&e->code, KXNOR, dst, a, SCRATCH_MASK);
      return;
    }
    uint8_t code = s->kind == IR_AND ? KAND : s->kind == IR_OR ? KOR : KXOR;
    x86_mask(&e->code, code, dst, a, truth_operand(e, in, 1));
  }
}

static void emit_kind(emitter *e, const tile_bound_instr *in, unsigned dst) {
  unsigned a = float_operand(e, in, 0), b = in->source->operands > 1 ? float_operand(e, in, 1) : 0;
  switch (in->source->kind) {
    case IR_ABS: op(e, VPANDD, dst, a, x86_everywhere(0x7fffffff)); break;
    case IR_ADD: op(e, VADDPS, dst, a, x86_reg(b)); break;
    case IR_CEIL: op_imm(e, VRNDSCALEPS, dst, 0, x86_reg(a), 10); break;
    case IR_DIVIDE: op(e, VDIVPS, dst, a, x86_reg(b)); break;
    case IR_ERF: emit_erf(e, dst, a); break;
    case IR_EXPONENTIAL: emit_exp(e, dst, a); break;
    case IR_FLOOR: op_imm(e, VRNDSCALEPS, dst, 0, x86_reg(a), 9); break;
    case IR_LOGISTIC: emit_logistic(e, dst, a); break;
    case IR_MAXIMUM: emit_extreme(e, VMAXPS, dst, a, b); break;
    case IR_MINIMUM: emit_extreme(e, VMINPS, dst, a, b); break;
    case IR_MULTIPLY: op(e, VMULPS, dst, a, x86_reg(b)); break;
    case IR_NEGATE: op(e, VPXORD, dst, a, x86_everywhere(0x80000000)); break;
    case IR_ROUND_NEAREST_EVEN: op_imm(e, VRNDSCALEPS, dst, 0, x86_reg(a), 8); break;
    case IR_RSQRT:
      op(e, VSQRTPS, dst, 0, x86_reg(a));
      op(e, VDIVPS, dst, fixed_number(e, 1), x86_reg(dst));
      break;
    case IR_SQRT: op(e, VSQRTPS, dst, 0, x86_reg(a)); break;
    case IR_SUBTRACT: op(e, VSUBPS, dst, a, x86_reg(b)); break;
    default: emit_tanh(e, dst, a); break;
  }
}

static unsigned traits_of(const emitter *e, const tile_bound_instr *in, uint32_t i) {
  const uint16_t slots[3] = {in->a, in->b, in->c};
  if (in->scalar >> i & 1) return e->rounds ? TRAIT_QUIET | TRAIT_SHORT : 0;
  return e->traits[e->unit][slots[i]];
}

/* Of the result before it is rounded. Arithmetic quiets a NaN and otherwise hands it on; these two functions do not touch it. */
static unsigned traits_of_result(const emitter *e, const tile_bound_instr *in) {
  const tile_instr *s = in->source;
  uint32_t first = s->table == TILE_MAP_SELECT; /* the float operands */
  unsigned all = TRAIT_ALL;
  if (s->table == TILE_MAP_CONVERT) return all;
  for (uint32_t i = first; i < s->operands; ++i) all &= traits_of(e, in, i);
  bool chooses = s->table != TILE_MAP_KIND || s->kind == IR_ABS || s->kind == IR_NEGATE || s->kind == IR_MAXIMUM ||
                 s->kind == IR_MINIMUM;
  bool keeps_nan = s->kind == IR_TANH || s->kind == IR_LOGISTIC;
  if (chooses) return all;
  return (all & ~(unsigned)TRAIT_BF16) | (keeps_nan ? 0 : TRAIT_QUIET);
}

static bool rounds_result(const emitter *e, const tile_bound_instr *in) {
  const tile_instr *s = in->source;
  return in->op == TILE_MAP && s->table == TILE_MAP_KIND && in->kernel.map == e->b->kernels->rounded[s->kind];
}

static void emit_rounding(emitter *e, const tile_bound_instr *in, unsigned dst) {
  unsigned x = float_operand(e, in, 0), traits = traits_of(e, in, 0);
  if (in->source->type != TTPU_BF16) return emit_round_f16(e, dst, x);
  if ((traits & (TRAIT_BF16 | TRAIT_QUIET)) == (TRAIT_BF16 | TRAIT_QUIET)) return move(e, dst, x);
  emit_round_bf16(e, dst, x, traits);
}

static void emit_float(emitter *e, const tile_bound_instr *in, unsigned dst) {
  const tile_instr *s = in->source;
  switch (s->table) {
    case TILE_MAP_KIND: emit_kind(e, in, dst); break;
    case TILE_MAP_SELECT: {
      unsigned mask = truth_operand(e, in, 0), yes = float_operand(e, in, 1), no = float_operand(e, in, 2);
      op_masked(e, VBLENDMPS, dst, no, x86_reg(yes), mask);
      break;
    }
    case TILE_MAP_COPY: move(e, dst, float_operand(e, in, 0)); break;
    case TILE_MAP_ROUND: emit_rounding(e, in, dst); break;
    default: /* bool to float */
      op(e, VPXORD, dst, dst, x86_reg(dst));
      op_masked(e, VBLENDMPS, dst, dst, number(1), truth_operand(e, in, 0));
      break;
  }
}

/* The float that the instruction gives, in a register that was taken for it; what is known of it goes to *traits. */
static unsigned emit_result(emitter *e, const tile_bound_instr *in, unsigned *traits) {
  unsigned dst = take_vector(e);
  *traits = traits_of_result(e, in);
  emit_float(e, in, dst);
  if (in->source->table == TILE_MAP_ROUND) *traits = in->source->type == TTPU_BF16 ? TRAIT_ALL : TRAIT_QUIET;
  if (!rounds_result(e, in)) return dst;
  unsigned rounded = take_vector(e);
  emit_round_bf16(e, rounded, dst, *traits);
  leave_vector(e, dst);
  *traits = TRAIT_ALL;
  return rounded;
}

static void emit_load(emitter *e, const tile_bound_instr *in, unsigned dst) {
  bool bf16 = e->b->ports[in->a].dtype == TTPU_BF16;
  load_pointer(e, e->b->slot_count + in->a);
  load(e, bf16 ? VPMOVZXWD : VCVTPH2PS, dst, 1);
  if (bf16) shift(e, true, dst, dst, 16);
}

static void emit_store(emitter *e, const tile_bound_instr *in) {
  uint32_t dtype = e->b->ports[e->b->prog->leaf_count + in->dst].dtype;
  unsigned x = float_of_slot(e, in->a, false), t = take_vector(e);
  unsigned traits = e->traits[e->unit][in->a], exact = TRAIT_BF16 | TRAIT_QUIET;
  if (dtype == TTPU_BF16) {
    bool is_exact = (traits & exact) == exact;
    if (!is_exact) emit_round_bf16(e, t, x, traits);
    shift(e, false, t, is_exact ? x : t, 16);
  }
  load_pointer(e, e->b->slot_count + e->b->prog->leaf_count + in->dst);
  if (dtype == TTPU_BF16) store(e, VPMOVDW, t, 1);
  else if (dtype == TTPU_F32) store(e, VMOVUPS_STORE, x, 2);
  else x86_evex_imm(&e->code, &e->constants, VCVTPS2PH, x, 0, here(e, 1), e->is_tail ? TAIL_MASK : 0, false, 8);
  leave_vector(e, t);
}

static void store_result(emitter *e, const tile_bound_instr *in, unsigned reg) {
  if (!gives_truth(in)) {
    load_pointer(e, in->dst);
    store(e, VMOVUPS_STORE, reg, 2);
    return;
  }
  unsigned bytes = take_vector(e);
  op(e, VPMOVM2B, bytes, 0, x86_reg(reg));
  op(e, VPABSB, bytes, 0, x86_reg(bytes));
  load_pointer(e, in->dst);
  store(e, VMOVDQU8_STORE, bytes, 0);
  leave_vector(e, bytes);
}

/* Is the slot's present value read by an instruction of the run from `next` on? */
static bool is_read_later(const emitter *e, uint16_t slot, uint32_t next) {
  for (uint32_t i = next; i < e->count; ++i) {
    if (reads_slot(e->instrs[i], slot)) return true;
    if (writes_slot(e->instrs[i], slot)) return false;
  }
  return false;
}

static bool is_fixed(const emitter *e, const tile_bound_instr *in, uint32_t operand) {
  (void)e;
  return in->scalar >> operand & 1;
}

/* Forgets what the instruction read for the last time. The homes of its operands tell floats from bools. */
static void leave_operands(emitter *e, const tile_bound_instr *in, uint32_t next) {
  uint16_t slots[3];
  uint32_t count = reads(in, slots);
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t home = e->homes[e->unit][slots[i]];
    if (home == NO_REGISTER || is_fixed(e, in, i) || is_read_later(e, slots[i], next)) continue;
    bool truth =
        in->op == TILE_MAP && ((in->source->table == TILE_MAP_SELECT && i == 0) || in->source->type == TTPU_BOOL);
    if (truth) e->used_masks &= ~(1u << home);
    else leave_vector(e, home);
    e->homes[e->unit][slots[i]] = NO_REGISTER;
  }
}

/* A value takes the place of the slot's last one. */
static void settle(emitter *e, uint32_t at, unsigned reg) {
  const tile_bound_instr *in = e->instrs[at];
  bool truth = gives_truth(in);
  uint32_t *used = truth ? &e->used_masks : &e->used_vectors;
  uint8_t *home = &e->homes[e->unit][in->dst];
  if (*home != NO_REGISTER) *used &= ~(1u << *home);
  *home = (uint8_t)reg;
  if (is_read_later(e, in->dst, at + 1)) return;
  *used &= ~(1u << reg);
  *home = NO_REGISTER;
}

static void emit_instr(emitter *e, uint32_t at) {
  const tile_bound_instr *in = e->instrs[at];
  unsigned dst, traits = 0;
  if (in->op == TILE_STORE) {
    emit_store(e, in);
    leave_operands(e, in, at + 1);
    return;
  }
  if (gives_truth(in)) {
    dst = take_mask(e);
    emit_truth(e, in, dst);
  } else if (in->op == TILE_EXPAND) {
    dst = take_vector(e);
    move(e, dst, take_fixed(e, FIXED_ROW, in->a));
  } else if (in->op == TILE_LOAD) {
    dst = take_vector(e);
    emit_load(e, in, dst);
    traits = e->b->ports[in->a].dtype == TTPU_BF16 ? TRAIT_BF16 | TRAIT_SHORT : 0;
  } else {
    dst = emit_result(e, in, &traits);
  }
  if (e->stores[at]) store_result(e, in, dst);
  if (in->op != TILE_EXPAND) leave_operands(e, in, at + 1);
  settle(e, at, dst);
  e->traits[e->unit][in->dst] = (uint8_t)traits;
}

/* ---- the loop --------------------------------------------------------------------------------- */

/* The code for `units` vectors; a partial one is alone. */
static void emit_body(emitter *e, unsigned units, bool is_tail) {
  e->is_tail = is_tail;
  memset(e->homes, NO_REGISTER, sizeof e->homes);
  memset(e->traits, 0, sizeof e->traits);
  e->used_vectors = e->used_masks = 0;
  for (uint32_t i = 0; i < e->fixed_count; ++i)
    *(e->fixed[i].kind == FIXED_TRUTH ? &e->used_masks : &e->used_vectors) |= 1u << e->fixed[i].reg;
  for (uint32_t i = 0; i < e->count && !e->failed; ++i)
    for (e->unit = 0; e->unit < units; ++e->unit) emit_instr(e, i);
  e->unit = 0;
}

/* Where results are rounded to bf16, a NaN without the bits that they would lose: rounding then needs no care for it. */
static void emit_scalar(emitter *e, unsigned reg) {
  op(e, VBROADCASTSS, reg, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  if (!e->rounds) return;
  compare(e, SCRATCH_MASK, reg, x86_reg(reg), CMP_UNORDERED);
  op_masked(e, VPORD, reg, reg, x86_everywhere(0x400000), SCRATCH_MASK);
  op_masked(e, VPANDD, reg, reg, x86_everywhere(0xffff0000), SCRATCH_MASK);
}

static void emit_fixed(emitter *e, bool rows) {
  for (uint32_t i = 0; i < e->fixed_count; ++i) {
    const fixed *f = &e->fixed[i];
    if ((f->kind == FIXED_ROW) != rows) continue;
    if (f->kind == FIXED_CONSTANT) {
      op(e, VBROADCASTSS, f->reg, 0, x86_word_behind(f->of));
      continue;
    }
    load_pointer(e, f->of);
    if (f->kind == FIXED_SCALAR) emit_scalar(e, f->reg);
    else if (f->kind == FIXED_ROW) op(e, VBROADCASTSS, f->reg, 0, x86_at(X86_RAX, X86_R9, 2));
    else { /* cmp byte [rax], 1; sbb ecx, ecx; not ecx; kmovw k, ecx */
      const uint8_t code[] = {0x80, 0x38, 1, 0x19, 0xc9, 0xf7, 0xd1, 0xc5, 0xf8, 0x92, (uint8_t)(0xc1u | f->reg << 3)};
      x86_bytes(&e->code, code, sizeof code);
    }
  }
}

/* jcc rel32; returns where the distance stands. */
static size_t jump(emitter *e, unsigned condition) {
  x86_byte(&e->code, 0x0f);
  x86_byte(&e->code, 0x80u | condition);
  x86_word(&e->code, 0);
  return e->code.length;
}
static void land(emitter *e, size_t from, size_t at) {
  int32_t distance = (int32_t)((int64_t)at - (int64_t)from);
  if (!e->code.is_full) memcpy(e->code.bytes + from - 4, &distance, sizeof distance);
}
enum { IF_LESS = 0xc, IF_NOT_LESS = 0xd, IF_NOT_GREATER = 0xe, IF_GREATER = 0xf };
#define PUT(e, ...) x86_bytes(&(e)->code, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* A loop over as many whole vectors as are left, `units` at a time. */
static void emit_loop(emitter *e, unsigned units) {
  PUT(e, 0x4d, 0x8d, 0x5a, (uint8_t)-(LANES * units)); /* lea r11, [r10 - 16 * units] */
  PUT(e, 0x4d, 0x39, 0xd8);                            /* cmp r8, r11 */
  size_t over = jump(e, IF_GREATER), loop = e->code.length;
  if (units > 1) PUT(e, 0x49, 0x8d, 0x48, LANES); /* lea rcx, [r8 + 16] */
  emit_body(e, units, false);
  PUT(e, 0x49, 0x83, 0xc0, (uint8_t)(LANES * units)); /* add r8, 16 * units */
  PUT(e, 0x4d, 0x39, 0xd8);                           /* cmp r8, r11 */
  land(e, jump(e, IF_NOT_GREATER), loop);
  land(e, over, e->code.length);
}

static void emit_tail(emitter *e) {
  PUT(e, 0x4d, 0x39, 0xd0); /* cmp r8, r10 */
  size_t over = jump(e, IF_NOT_LESS);
  PUT(e, 0x44, 0x89, 0xd1);       /* mov ecx, r10d */
  PUT(e, 0x44, 0x29, 0xc1);       /* sub ecx, r8d */
  PUT(e, 0xb8, 1, 0, 0, 0);       /* mov eax, 1 */
  PUT(e, 0xd3, 0xe0, 0xff, 0xc8); /* shl eax, cl; dec eax */
  PUT(e, 0xc5, 0xf8, 0x92, 0xc8); /* kmovw k1, eax */
  emit_body(e, 1, true);
  PUT(e, 0x4d, 0x89, 0xd0); /* mov r8, r10 */
  land(e, over, e->code.length);
}

static void emit_function(emitter *e, unsigned units) {
  emit_body(e, units, false); /* to know what has to be there before the loop */
  e->code.length = 0;
  e->constants.count = e->constants.use_count = 0;
  emit_fixed(e, false);
  PUT(e, 0x45, 0x31, 0xc0); /* xor r8d, r8d */
  PUT(e, 0x45, 0x31, 0xc9); /* xor r9d, r9d */
  size_t row = e->code.length;
  emit_fixed(e, true);
  PUT(e, 0x4d, 0x8d, 0x14, 0x30); /* lea r10, [r8 + rsi] */
  if (units > 1) emit_loop(e, units);
  emit_loop(e, 1);
  emit_tail(e);
  PUT(e, 0x49, 0xff, 0xc1); /* inc r9 */
  PUT(e, 0x49, 0x39, 0xf9); /* cmp r9, rdi */
  land(e, jump(e, IF_LESS), row);
  PUT(e, 0xc5, 0xf8, 0x77, 0xc3); /* vzeroupper; ret */
  x86_finish(&e->code, &e->constants);
  e->failed |= e->code.is_full;
}

/* ---- where code lives ------------------------------------------------------------------------- */

/* Code is written through one mapping of a memory file and run through another, so no page is ever both writable and
 * executable. It stays: runs that are equal share it, and a program's are few kinds. */
enum { REGION_BYTES = 16 << 20, TABLE_SIZE = 1 << 14 };
static struct {
  pthread_mutex_t lock;
  uint8_t *writable, *executable;
  size_t used;
  bool is_open, is_unusable, is_off;
  uint32_t count;
  struct {
    base_hash128 key;
    tile_code_fn code;
  } table[TABLE_SIZE];
} region = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget_after_fork(void) { region.is_unusable = true; } /* the parent goes on to write there */

static void open_region(void) {
  region.is_open = true;
  const char *mode = getenv("TTPU_SOFT");
  region.is_unusable = !base_cpu()->avx512 || (mode != NULL && strcmp(mode, "vm") == 0);
  if (region.is_unusable) return;
  int file = memfd_create("ttpu-code", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, REGION_BYTES) == 0) {
    void *writable = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *executable = mmap(NULL, REGION_BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    region.writable = writable != MAP_FAILED ? writable : NULL;
    region.executable = executable != MAP_FAILED ? executable : NULL;
  }
  if (file >= 0) close(file);
  region.is_unusable = !region.writable || !region.executable || pthread_atfork(NULL, NULL, forget_after_fork) != 0;
  if (region.is_unusable) base_log(LOG_INFO, "no memory for machine code: tile programs are interpreted");
}

static uint32_t find_place(base_hash128 key) {
  uint32_t at = (uint32_t)key.a % TABLE_SIZE;
  while (region.table[at].code && (region.table[at].key.a != key.a || region.table[at].key.b != key.b))
    at = (at + 1) % TABLE_SIZE;
  return at;
}

static tile_code_fn keep_code(const emitter *e, uint32_t place, base_hash128 key) {
  size_t length = (e->code.length + 63) & ~(size_t)63;
  if (region.used + length > REGION_BYTES || region.count > TABLE_SIZE / 2) return NULL;
  memcpy(region.writable + region.used, e->code.bytes, e->code.length);
  void *start = region.executable + region.used;
  region.used += length;
  ++region.count;
  region.table[place].key = key;
  memcpy(&region.table[place].code, &start, sizeof start); /* ISO C has no conversion for it */
  return region.table[place].code;
}

/* What the code depends on. */
static base_hash128 key_of(const emitter *e) {
  base_hash128 h = {e->count, e->has_rows};
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *in = e->instrs[i];
    const tile_instr *s = in->source;
    uint32_t dtype = in->op == TILE_LOAD    ? e->b->ports[in->a].dtype
                     : in->op == TILE_STORE ? e->b->ports[e->b->prog->leaf_count + in->dst].dtype
                                            : s->type;
    uint32_t memory = in->op == TILE_STORE  ? e->b->slot_count + e->b->prog->leaf_count + in->dst
                      : in->op == TILE_LOAD ? e->b->slot_count + in->a
                                            : 0;
    h = base_mix128(h, in->op | (uint64_t)s->table << 8 | (uint64_t)s->kind << 16 | (uint64_t)dtype << 32 |
                           (uint64_t)s->extra << 40 | (uint64_t)in->scalar << 48 | (uint64_t)e->stores[i] << 56 |
                           (uint64_t)rounds_result(e, in) << 57);
    h = base_mix128(h, in->dst | (uint64_t)in->a << 16 | (uint64_t)in->b << 32 | (uint64_t)in->c << 48);
    h = base_mix128(h, memory);
  }
  return h;
}

/* The run's code; NULL: registers or memory do not suffice. */
static tile_code_fn code_of(emitter *e) {
  base_hash128 key = key_of(e);
  uint32_t place = find_place(key);
  if (region.table[place].code) return region.table[place].code;
  uint8_t bytes[CODE_BYTES];
  e->failed = true;
  for (unsigned units = UNITS; units > 0 && e->failed; --units) {
    e->code = (x86_code){.bytes = bytes, .capacity = sizeof bytes};
    e->constants = (x86_constants){.count = 0};
    e->fixed_count = 0;
    e->failed = false;
    emit_function(e, units);
  }
  return e->failed ? NULL : keep_code(e, place, key);
}

/* ---- runs ------------------------------------------------------------------------------------- */

enum { FEWEST = 2 }; /* instructions that are worth a loop of their own */

/* Is the slot's value at position `from` of the list read there or later? Memory in place is read by others. */
static bool is_wanted(const tile_bound *b, const tile_list *list, uint32_t from, uint16_t slot) {
  if (slot >= b->slot_count) return true;
  for (uint32_t i = from; i < list->count; ++i) {
    if (reads_slot(&list->instrs[i], slot)) return true;
    if (writes_slot(&list->instrs[i], slot)) return false;
  }
  return false;
}

/* Where a register's elements begin; ports have places of their own. */
static bool same_place(const tile_bound *b, uint16_t x, uint16_t y) {
  return x < b->slot_count && y < b->slot_count && b->slot_offsets[x] == b->slot_offsets[y];
}

/* May `in`, which is not emitted, be moved before the run? It gives no lanes or loads them, and nothing of the run meets it. (An
 * output that lies over a leaf is written after the leaf's last load.) */
static bool can_go_before(const emitter *e, const tile_bound_instr *in) {
  if (in->op != TILE_LOAD && (in->level == TILE_FULL || in->op != TILE_MAP)) return false;
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *of = e->instrs[i];
    uint16_t slots[3];
    uint32_t count = reads(of, slots);
    for (uint32_t k = 0; k < count; ++k)
      if (same_place(e->b, slots[k], in->dst) || slots[k] == in->dst) return false;
    if (of->op == TILE_STORE) continue;
    if (same_place(e->b, of->dst, in->dst) || reads_slot(in, of->dst)) return false;
  }
  return true;
}

static uint32_t element_bytes(const tile_bound_instr *in) { return gives_truth(in) ? 1 : 4; }

/* Registers are shared by values that do not live together. Lane after lane that holds only for elements of one size: a
 * result that is stored may not lie over an operand of another size that is read from memory. */
static bool places_fit(const emitter *e) {
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *writer = e->instrs[i];
    if (!e->stores[i]) continue;
    for (uint32_t k = 0; k < e->count; ++k) {
      const tile_bound_instr *reader = e->instrs[k];
      uint16_t slots[3];
      uint32_t count = reader->op == TILE_EXPAND ? 0 : reads(reader, slots);
      for (uint32_t j = 0; j < count; ++j) {
        bool truth = reader->op == TILE_MAP &&
                     ((reader->source->table == TILE_MAP_SELECT && j == 0) || reader->source->type == TTPU_BOOL);
        if (same_place(e->b, slots[j], writer->dst) && (truth ? 1u : 4u) != element_bytes(writer)) return false;
      }
      if (e->stores[k] && same_place(e->b, reader->dst, writer->dst) && element_bytes(reader) != element_bytes(writer))
        return false;
    }
  }
  return true;
}

/* Makes one instruction of the run, whose last instruction is before position `end` of the list. */
static bool close_run(emitter *e, const tile_list *list, uint32_t end, tile_bound_instr *to) {
  if (e->count < FEWEST) return false;
  e->rounds = false;
  for (uint32_t i = 0; i < e->count; ++i) {
    const tile_bound_instr *in = e->instrs[i];
    e->rounds |= rounds_result(e, in) || (in->op == TILE_MAP && in->source->table == TILE_MAP_ROUND);
    e->stores[i] = false;
    if (in->op == TILE_STORE) continue;
    bool last = true;
    for (uint32_t k = i + 1; k < e->count; ++k) last &= !writes_slot(e->instrs[k], in->dst);
    e->stores[i] = last && is_wanted(e->b, list, end, in->dst);
  }
  if (!places_fit(e)) return false;
  tile_code_fn code = code_of(e);
  if (!code) return false;
  *to =
      (tile_bound_instr){.op = TILE_EMITTED, .level = TILE_FULL, .scalar = e->has_rows, .source = e->instrs[0]->source};
  to->kernel.code = code;
  return true;
}

void tile_emit(tile_bound *b, tile_list *list) {
  if (list->count < FEWEST) return;
  pthread_mutex_lock(&region.lock);
  if (!region.is_open) open_region();
  static emitter e; /* guarded by the lock: too large for a stack */
  bool usable = !region.is_unusable && !region.is_off;
  tile_bound_instr copy[MOST_INSTRS]; /* of a run, whose places in the list are written meanwhile */
  uint32_t out = 0;
  for (uint32_t at = 0; usable && at < list->count;) {
    e.b = b, e.count = 0, e.has_rows = false;
    uint32_t end = at, before = out; /* instructions that go before the run are put down at once */
    for (; end < list->count && e.count < MOST_INSTRS; ++end) {
      const tile_bound_instr *in = &list->instrs[end];
      emit_class class = class_of(b, in);
      if (class == NOT_EMITTED) {
        if (e.count == 0 || !can_go_before(&e, in)) break;
        list->instrs[before++] = *in;
        continue;
      }
      if (class == EMIT_EXPAND) e.has_rows = true;
      copy[e.count] = *in;
      e.instrs[e.count] = &copy[e.count];
      ++e.count;
    }
    if (e.count == 0) { /* not for us */
      list->instrs[out++] = list->instrs[at++];
      continue;
    }
    out = before;
    if (close_run(&e, list, end, &list->instrs[out])) ++out;
    else
      for (uint32_t i = 0; i < e.count; ++i) list->instrs[out++] = copy[i];
    at = end;
  }
  if (usable) list->count = out;
  pthread_mutex_unlock(&region.lock);
}

bool tile_emit_allow(bool allow) {
  pthread_mutex_lock(&region.lock);
  if (!region.is_open) open_region();
  region.is_off = !allow;
  bool usable = !region.is_unusable;
  pthread_mutex_unlock(&region.lock);
  return usable;
}

#else

void tile_emit(tile_bound *b, tile_list *list) {
  (void)b;
  (void)list;
}

bool tile_emit_allow(bool allow) {
  (void)allow;
  return false;
}

#endif
