/* The machine code of a run: each instruction, and the loop around them. */
#include "soft/tile/emit_int.h"

#if defined(__x86_64__)

/* ---- operands ---------------------------------------------------------------------------------- */

uint32_t emit_reads(const tile_bound_instr *in, uint16_t slots[3]) {
  slots[0] = in->a, slots[1] = in->b, slots[2] = in->c;
  return in->op == TILE_LOAD                                                      ? 0
         : in->op == TILE_STORE || in->op == TILE_REDUCE || in->op == TILE_EXPAND ? 1
                                                                                  : in->source->operands;
}

bool emit_reads_slot(const tile_bound_instr *in, uint16_t slot) {
  uint16_t slots[3];
  uint32_t count = emit_reads(in, slots);
  for (uint32_t i = 0; i < count; ++i)
    if (slots[i] == slot) return true;
  return false;
}

bool emit_writes_slot(const tile_bound_instr *in, uint16_t slot) { return in->op != TILE_STORE && in->dst == slot; }

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

/* ---- one instruction -------------------------------------------------------------------------- */

static unsigned float_of_slot(emitter *e, uint16_t slot, bool scalar) {
  if (scalar) return emit_take_fixed(e, FIXED_SCALAR, slot);
  if (e->homes[e->unit][slot] == NO_REGISTER) {
    e->homes[e->unit][slot] = (uint8_t)emit_take_vector(e);
    load_pointer(e, slot);
    load(e, VMOVUPS_LOAD, e->homes[e->unit][slot], 2);
  }
  return e->homes[e->unit][slot];
}

static unsigned truth_of_slot(emitter *e, uint16_t slot, bool scalar) {
  if (scalar) return emit_take_fixed(e, FIXED_TRUTH, slot);
  if (e->homes[e->unit][slot] == NO_REGISTER) {
    unsigned bytes = emit_take_vector(e);
    e->homes[e->unit][slot] = (uint8_t)emit_take_mask(e);
    load_pointer(e, slot);
    load(e, VMOVDQU8_LOAD, bytes, 0);
    op(e, VPTESTMB, e->homes[e->unit][slot], bytes, x86_reg(bytes));
    emit_leave_vector(e, bytes);
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

bool emit_gives_truth(const tile_bound_instr *in) {
  const tile_instr *s = in->source;
  if (in->op != TILE_MAP) return false;
  return s->table == TILE_MAP_COMPARE || (s->table == TILE_MAP_CONVERT && s->extra == TTPU_BOOL) ||
         (s->table == TILE_MAP_KIND && s->type == TTPU_BOOL);
}

bool emit_takes_truth(const tile_bound_instr *in, uint32_t i) {
  return in->op == TILE_MAP && ((in->source->table == TILE_MAP_SELECT && i == 0) || in->source->type == TTPU_BOOL);
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

bool emit_rounds_result(const emitter *e, const tile_bound_instr *in) {
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
  unsigned dst = emit_take_vector(e);
  *traits = traits_of_result(e, in);
  emit_float(e, in, dst);
  if (in->source->table == TILE_MAP_ROUND) *traits = in->source->type == TTPU_BF16 ? TRAIT_ALL : TRAIT_QUIET;
  if (!emit_rounds_result(e, in)) return dst;
  unsigned rounded = emit_take_vector(e);
  emit_round_bf16(e, rounded, dst, *traits);
  emit_leave_vector(e, dst);
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
  unsigned x = float_of_slot(e, in->a, false), t = emit_take_vector(e);
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
  emit_leave_vector(e, t);
}

static void store_result(emitter *e, const tile_bound_instr *in, unsigned reg) {
  if (!emit_gives_truth(in)) {
    load_pointer(e, in->dst);
    store(e, VMOVUPS_STORE, reg, 2);
    return;
  }
  unsigned bytes = emit_take_vector(e);
  op(e, VPMOVM2B, bytes, 0, x86_reg(reg));
  op(e, VPABSB, bytes, 0, x86_reg(bytes));
  load_pointer(e, in->dst);
  store(e, VMOVDQU8_STORE, bytes, 0);
  emit_leave_vector(e, bytes);
}

/* Is the slot's present value read by an instruction of the run from `next` on? */
static bool is_read_later(const emitter *e, uint16_t slot, uint32_t next) {
  for (uint32_t i = next; i < e->count; ++i) {
    if (emit_reads_slot(e->instrs[i], slot)) return true;
    if (emit_writes_slot(e->instrs[i], slot)) return false;
  }
  return false;
}

/* Forgets what the instruction read for the last time. The homes of its operands tell floats from bools. */
static void leave_operands(emitter *e, const tile_bound_instr *in, uint32_t next) {
  uint16_t slots[3];
  uint32_t count = emit_reads(in, slots);
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t home = e->homes[e->unit][slots[i]];
    if (home == NO_REGISTER || (in->scalar >> i & 1) || is_read_later(e, slots[i], next)) continue;
    if (emit_takes_truth(in, i)) e->used_masks &= ~(1u << home);
    else emit_leave_vector(e, home);
    e->homes[e->unit][slots[i]] = NO_REGISTER;
  }
}

/* A value takes the place of the slot's last one. */
static void settle(emitter *e, uint32_t at, unsigned reg) {
  const tile_bound_instr *in = e->instrs[at];
  bool truth = emit_gives_truth(in);
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
  if (emit_gives_truth(in)) {
    dst = emit_take_mask(e);
    emit_truth(e, in, dst);
  } else if (in->op == TILE_EXPAND) {
    dst = emit_take_vector(e);
    move(e, dst, emit_take_fixed(e, FIXED_ROW, in->a));
  } else if (in->op == TILE_LOAD) {
    dst = emit_take_vector(e);
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

void emit_function(emitter *e, unsigned units) {
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

#endif
