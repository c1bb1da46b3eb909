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

/* ---- one instruction -------------------------------------------------------------------------- */

/* The slot's value; from memory it is read once. */
static x86_operand value_of_slot(emitter *e, uint16_t slot, bool truth, bool scalar) {
  if (scalar) return emit_take_fixed(e, truth ? FIXED_TRUTH : FIXED_SCALAR, slot);
  uint8_t *home = &e->homes[e->unit][slot];
  if (*home == NO_REGISTER) {
    *home = (uint8_t)emit_take(e, truth);
    emit_load_pointer(e, slot);
    emit_load(e, truth ? TTPU_BOOL : TTPU_F32, *home);
  }
  return x86_reg(*home);
}

static x86_operand operand(emitter *e, const tile_bound_instr *in, uint32_t i) {
  const uint16_t slots[3] = {in->a, in->b, in->c};
  return value_of_slot(e, slots[i], emit_takes_truth(in, i), in->scalar >> i & 1);
}

/* The operand's register, taken for it where it is in memory; the second function leaves that one. */
static unsigned take_register(emitter *e, x86_operand o) {
  return o.form == X86_REGISTER ? o.reg : emit_in_register(e, o, emit_take(e, false));
}
static void leave_register(emitter *e, x86_operand o, unsigned reg) {
  if (o.form != X86_REGISTER) emit_leave(e, reg, false);
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
  x86_operand a = operand(e, in, 0), b = s->operands > 1 ? operand(e, in, 1) : a;
  unsigned x = take_register(e, a);
  if (s->table == TILE_MAP_COMPARE) emit_compare(e, dst, x, b, predicates[s->extra]);
  else if (s->table == TILE_MAP_CONVERT) emit_compare(e, dst, x, number(0), CMP_NE);
  else emit_logic(e, s->kind, dst, x, b);
  leave_register(e, a, x);
}

static void emit_kind(emitter *e, const tile_bound_instr *in, unsigned dst) {
  x86_operand a = operand(e, in, 0), b = in->source->operands > 1 ? operand(e, in, 1) : a;
  uint32_t kind = in->source->kind;
  if ((kind == IR_ADD || kind == IR_MULTIPLY) && a.form != X86_REGISTER) {
    x86_operand first = b;
    b = a, a = first;
  }
  unsigned x = take_register(e, a);
  switch (kind) {
    case IR_ABS: op(e, VPANDD, dst, x, x86_everywhere(0x7fffffff)); break;
    case IR_ADD: op(e, VADDPS, dst, x, b); break;
    case IR_CEIL: op_imm(e, VROUNDPS, dst, 0, x86_reg(x), 10); break;
    case IR_DIVIDE: op(e, VDIVPS, dst, x, b); break;
    case IR_ERF: emit_erf(e, dst, x); break;
    case IR_EXPONENTIAL: emit_exp(e, dst, x); break;
    case IR_FLOOR: op_imm(e, VROUNDPS, dst, 0, x86_reg(x), 9); break;
    case IR_LOGISTIC: emit_logistic(e, dst, x); break;
    case IR_MAXIMUM: emit_extreme(e, VMAXPS, dst, x, b); break;
    case IR_MINIMUM: emit_extreme(e, VMINPS, dst, x, b); break;
    case IR_MULTIPLY: op(e, VMULPS, dst, x, b); break;
    case IR_NEGATE: op(e, VPXORD, dst, x, x86_everywhere(0x80000000)); break;
    case IR_ROUND_NEAREST_EVEN: op_imm(e, VROUNDPS, dst, 0, x86_reg(x), 8); break;
    case IR_RSQRT: {
      unsigned one = emit_take(e, false);
      op(e, VSQRTPS, dst, 0, x86_reg(x));
      op(e, VDIVPS, dst, emit_in_register(e, fixed_number(e, 1), one), x86_reg(dst));
      emit_leave(e, one, false);
      break;
    }
    case IR_SQRT: op(e, VSQRTPS, dst, 0, x86_reg(x)); break;
    case IR_SUBTRACT: op(e, VSUBPS, dst, x, b); break;
    default: emit_tanh(e, dst, x); break;
  }
  leave_register(e, a, x);
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

/* Does rounding to bf16 leave it as it is? */
static bool is_exact(unsigned traits) { return (traits & TRAIT_BF16) && (traits & TRAIT_QUIET); }

static void emit_rounding(emitter *e, const tile_bound_instr *in, unsigned dst) {
  x86_operand a = operand(e, in, 0);
  unsigned traits = traits_of(e, in, 0);
  if (in->source->type == TTPU_BF16 && is_exact(traits)) return move(e, dst, a);
  unsigned x = take_register(e, a);
  if (in->source->type == TTPU_BF16) emit_round_bf16(e, dst, x, traits);
  else emit_round_f16(e, dst, x);
  leave_register(e, a, x);
}

static void emit_select(emitter *e, const tile_bound_instr *in, unsigned dst) {
  x86_operand where = operand(e, in, 0), yes = operand(e, in, 1), no = operand(e, in, 2);
  unsigned truth = take_register(e, where), otherwise = take_register(e, no);
  emit_choose(e, dst, truth, yes, otherwise);
  leave_register(e, where, truth);
  leave_register(e, no, otherwise);
}

static void emit_float(emitter *e, const tile_bound_instr *in, unsigned dst) {
  const tile_instr *s = in->source;
  switch (s->table) {
    case TILE_MAP_KIND: emit_kind(e, in, dst); break;
    case TILE_MAP_SELECT: emit_select(e, in, dst); break;
    case TILE_MAP_COPY: move(e, dst, operand(e, in, 0)); break;
    case TILE_MAP_ROUND: emit_rounding(e, in, dst); break;
    default: emit_float_of_truth(e, dst, operand(e, in, 0)); break;
  }
}

/* The float that the instruction gives, in a register that was taken for it; what is known of it goes to *traits. */
static unsigned emit_result(emitter *e, const tile_bound_instr *in, unsigned *traits) {
  unsigned dst = emit_take(e, false);
  *traits = traits_of_result(e, in);
  emit_float(e, in, dst);
  if (in->source->table == TILE_MAP_ROUND) *traits = in->source->type == TTPU_BF16 ? TRAIT_ALL : TRAIT_QUIET;
  if (!emit_rounds_result(e, in)) return dst;
  unsigned rounded = emit_take(e, false);
  emit_round_bf16(e, rounded, dst, *traits);
  emit_leave(e, dst, false);
  *traits = TRAIT_ALL;
  return rounded;
}

static void store_output(emitter *e, const tile_bound_instr *in) {
  uint32_t dtype = e->b->ports[e->b->prog->leaf_count + in->dst].dtype;
  unsigned x = value_of_slot(e, in->a, false, false).reg, rounded = x;
  unsigned traits = e->traits[e->unit][in->a];
  if (dtype == TTPU_BF16 && !is_exact(traits)) {
    rounded = emit_take(e, false);
    emit_round_bf16(e, rounded, x, traits);
  }
  emit_load_pointer(e, e->b->slot_count + e->b->prog->leaf_count + in->dst);
  emit_store(e, dtype, rounded);
  if (rounded != x) emit_leave(e, rounded, false);
}

static void store_result(emitter *e, const tile_bound_instr *in, unsigned reg) {
  emit_load_pointer(e, in->dst);
  emit_store(e, emit_gives_truth(in) ? TTPU_BOOL : TTPU_F32, reg);
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
    emit_leave(e, home, emit_takes_truth(in, i));
    e->homes[e->unit][slots[i]] = NO_REGISTER;
  }
}

/* A value takes the place of the slot's last one. */
static void settle(emitter *e, uint32_t at, unsigned reg) {
  const tile_bound_instr *in = e->instrs[at];
  bool truth = emit_gives_truth(in);
  uint8_t *home = &e->homes[e->unit][in->dst];
  if (*home != NO_REGISTER) emit_leave(e, *home, truth);
  *home = (uint8_t)reg;
  if (is_read_later(e, in->dst, at + 1)) return;
  emit_leave(e, reg, truth);
  *home = NO_REGISTER;
}

static void emit_instr(emitter *e, uint32_t at) {
  const tile_bound_instr *in = e->instrs[at];
  unsigned dst, traits = 0;
  if (in->op == TILE_STORE) {
    store_output(e, in);
    leave_operands(e, in, at + 1);
    return;
  }
  if (emit_gives_truth(in)) {
    dst = emit_take(e, true);
    emit_truth(e, in, dst);
  } else if (in->op == TILE_EXPAND) {
    dst = emit_take(e, false);
    move(e, dst, emit_take_fixed(e, FIXED_ROW, in->a));
  } else if (in->op == TILE_LOAD) {
    dst = emit_take(e, false);
    emit_load_pointer(e, e->b->slot_count + in->a);
    emit_load(e, e->b->ports[in->a].dtype, dst);
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

/* Leaves all registers but those of what is fixed. */
static void leave_all(emitter *e) {
  memset(e->homes, NO_REGISTER, sizeof e->homes);
  memset(e->traits, 0, sizeof e->traits);
  e->used_vectors = e->used_masks = 0;
  for (uint32_t i = 0; i < e->fixed_count && !e->code.narrow; ++i)
    *(e->fixed[i].kind == FIXED_TRUTH ? &e->used_masks : &e->used_vectors) |= 1u << e->fixed[i].reg;
}

/* The code for `units` vectors of so many lanes. */
static void emit_body(emitter *e, unsigned units, unsigned lanes) {
  e->lanes = (uint8_t)lanes;
  leave_all(e);
  for (uint32_t i = 0; i < e->count && !e->failed; ++i)
    for (e->unit = 0; e->unit < units; ++e->unit) emit_instr(e, i);
  e->unit = 0;
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

/* A loop over as many times `units` vectors as are left. */
static void emit_loop(emitter *e, unsigned units, unsigned lanes) {
  PUT(e, 0x4d, 0x8d, 0x5a, (uint8_t)-(lanes * units)); /* lea r11, [r10 - lanes * units] */
  PUT(e, 0x4d, 0x39, 0xd8);                            /* cmp r8, r11 */
  size_t over = jump(e, IF_GREATER), loop = e->code.length;
  if (units > 1) PUT(e, 0x49, 0x8d, 0x48, (uint8_t)lanes); /* lea rcx, [r8 + lanes] */
  emit_body(e, units, lanes);
  PUT(e, 0x49, 0x83, 0xc0, (uint8_t)(lanes * units)); /* add r8, lanes * units */
  PUT(e, 0x4d, 0x39, 0xd8);                           /* cmp r8, r11 */
  land(e, jump(e, IF_NOT_GREATER), loop);
  land(e, over, e->code.length);
}

static void emit_masked_vector(emitter *e, unsigned lanes) {
  PUT(e, 0x4d, 0x39, 0xd0); /* cmp r8, r10 */
  size_t over = jump(e, IF_NOT_LESS);
  emit_tail_mask(e);
  e->is_tail = true;
  emit_body(e, 1, lanes);
  e->is_tail = false;
  PUT(e, 0x4d, 0x89, 0xd0); /* mov r8, r10 */
  land(e, over, e->code.length);
}

void emit_function(emitter *e, unsigned units) {
  unsigned lanes = e->code.narrow ? 8 : 16;
  emit_body(e, units, lanes); /* to know what has to be there before the loop */
  e->code.length = 0;
  e->constants.count = e->constants.use_count = 0;
  leave_all(e);
  emit_prologue(e);
  emit_load_fixed(e, false);
  PUT(e, 0x45, 0x31, 0xc0); /* xor r8d, r8d */
  PUT(e, 0x45, 0x31, 0xc9); /* xor r9d, r9d */
  size_t row = e->code.length;
  emit_load_fixed(e, true);
  PUT(e, 0x4d, 0x8d, 0x14, 0x30); /* lea r10, [r8 + rsi] */
  if (units > 1) emit_loop(e, units, lanes);
  emit_loop(e, 1, lanes);
  if (e->code.narrow) {
    emit_loop(e, 1, 4);
    emit_loop(e, 1, 1);
  } else {
    emit_masked_vector(e, lanes);
  }
  PUT(e, 0x49, 0xff, 0xc1); /* inc r9 */
  PUT(e, 0x49, 0x39, 0xf9); /* cmp r9, rdi */
  land(e, jump(e, IF_LESS), row);
  emit_epilogue(e);
  x86_finish(&e->code, &e->constants);
  e->failed |= e->code.is_full;
}

#endif
