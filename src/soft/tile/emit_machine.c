/* What AVX-512 and AVX2 do each in its way: registers, what is fixed, loads and stores, bools. */
#include "soft/tile/emit_int.h"

#if defined(__x86_64__)

static const x86_opcode VMOVUPS_STORE = {1, 0, 0x11, 2}, VBROADCASTSS = {2, 1, 0x18, 2}, VPMOVZXWD = {2, 1, 0x33, 2},
                        VCMPPS = {1, 0, 0xc2, 2}, VPABSB = {2, 1, 0x1c, 0};
/* AVX-512 alone */
static const x86_opcode VBLENDMPS = {2, 1, 0x65, 2}, VPMOVDW = {2, 2, 0x33, 2}, VMOVDQU8_LOAD = {1, 3, 0x6f, 0},
                        VMOVDQU8_STORE = {1, 3, 0x7f, 0}, VPTESTMB = {2, 1, 0x26, 0}, VPMOVM2B = {2, 2, 0x28, 0};
enum { KAND = 0x41, KOR = 0x45, KXNOR = 0x46, KXOR = 0x47 };
/* narrow code alone */
static const x86_opcode VBLENDVPS = {3, 1, 0x4a, 2}, VEXTRACTI128 = {3, 1, 0x39, 2}, VPACKUSDW = {2, 1, 0x2b, 0},
                        VPACKSSDW = {1, 1, 0x6b, 0}, VPACKSSWB = {1, 1, 0x63, 0}, VPMOVZXBD = {2, 1, 0x31, 2},
                        VPCMPGTD = {1, 1, 0x66, 2}, VMOVQ_STORE = {1, 1, 0xd6, 0}, VMOVD = {1, 1, 0x6e, 0},
                        VMOVD_STORE = {1, 1, 0x7e, 0}, VMOVDQU_STORE = {1, 2, 0x7f, 0}, VPEXTRW = {3, 1, 0x15, 0},
                        VPEXTRB = {3, 1, 0x14, 0}, VPBROADCASTD = {2, 1, 0x58, 2};

/* ---- registers -------------------------------------------------------------------------------- */

static uint32_t *used_registers(emitter *e, bool truth) {
  return truth && !e->code.narrow ? &e->used_masks : &e->used_vectors;
}
/* All that there are. */
static uint32_t registers(const emitter *e, bool truth) {
  if (e->code.narrow) return 0xffff;
  return truth ? (2u << LAST_BOOL_MASK) - (1u << FIRST_BOOL_MASK) : 0xffffffff;
}

unsigned emit_take(emitter *e, bool truth) {
  uint32_t *used = used_registers(e, truth), usable = registers(e, truth), left = usable & ~*used;
  e->failed |= left == 0;
  unsigned reg = (unsigned)__builtin_ctz(left ? left : usable);
  *used |= 1u << reg;
  return reg;
}

void emit_leave(emitter *e, unsigned reg, bool truth) { *used_registers(e, truth) &= ~(1u << reg); }

static x86_operand fixed_operand(const emitter *e, uint32_t i) {
  return e->code.narrow ? x86_on_stack(32 * i) : x86_reg(e->fixed[i].reg);
}

x86_operand emit_take_fixed(emitter *e, fixed_kind kind, uint32_t of) {
  if (kind == FIXED_CONSTANT && e->code.narrow) return x86_everywhere(of);
  for (uint32_t i = 0; i < e->fixed_count; ++i)
    if (e->fixed[i].kind == kind && e->fixed[i].of == of) return fixed_operand(e, i);
  bool truth = kind == FIXED_TRUTH;
  uint32_t *used = used_registers(e, truth), usable = registers(e, truth), left = usable & ~*used;
  e->failed |= e->fixed_count == MOST_FIXED || (left == 0 && !e->code.narrow);
  if (e->failed) return x86_reg(FIRST_BOOL_MASK);
  unsigned top = e->code.narrow ? NO_REGISTER : 31u - (unsigned)__builtin_clz(left);
  if (!e->code.narrow) *used |= 1u << top;
  e->fixed[e->fixed_count] = (fixed){kind, (uint8_t)top, of};
  return fixed_operand(e, e->fixed_count++);
}

unsigned emit_in_register(emitter *e, x86_operand o, unsigned spare) {
  if (o.form == X86_REGISTER) return o.reg;
  move(e, spare, o);
  return spare;
}

/* ---- what is fixed ---------------------------------------------------------------------------- */

/* Where results are rounded to bf16, a NaN without the bits that they would lose: rounding then needs no care for it. */
static void load_scalar(emitter *e, unsigned reg) {
  op(e, VBROADCASTSS, reg, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  if (!e->rounds) return;
  unsigned is_nan = emit_take(e, true);
  emit_compare(e, is_nan, reg, x86_reg(reg), CMP_UNORDERED);
  emit_where(e, is_nan, VPORD, reg, reg, x86_everywhere(0x400000));
  emit_where(e, is_nan, VPANDD, reg, reg, x86_everywhere(0xffff0000));
  emit_leave(e, is_nan, true);
}

static void load_truth(emitter *e, unsigned reg) {
  PUT(e, 0x80, 0x38, 1, 0x19, 0xc9, 0xf7, 0xd1); /* cmp byte [rax], 1; sbb ecx, ecx; not ecx */
  if (!e->code.narrow) {
    PUT(e, 0xc5, 0xf8, 0x92, (uint8_t)(0xc1u | reg << 3)); /* kmovw reg, ecx */
    return;
  }
  op(e, VMOVD, reg, 0, x86_reg(X86_RCX));
  op(e, VPBROADCASTD, reg, 0, x86_reg(reg));
}

void emit_load_fixed(emitter *e, bool rows) {
  for (uint32_t i = 0; i < e->fixed_count; ++i) {
    const fixed *f = &e->fixed[i];
    if ((f->kind == FIXED_ROW) != rows) continue;
    unsigned reg = e->code.narrow ? emit_take(e, false) : f->reg;
    if (f->kind != FIXED_CONSTANT) emit_load_pointer(e, f->of);
    switch (f->kind) {
      case FIXED_SCALAR: load_scalar(e, reg); break;
      case FIXED_ROW: op(e, VBROADCASTSS, reg, 0, x86_at(X86_RAX, X86_R9, 2)); break;
      case FIXED_CONSTANT: op(e, VBROADCASTSS, reg, 0, x86_word_behind(f->of)); break;
      case FIXED_TRUTH: load_truth(e, reg); break;
    }
    if (!e->code.narrow) continue;
    op(e, VMOVUPS_STORE, reg, 0, fixed_operand(e, i));
    emit_leave(e, reg, false);
  }
}

void emit_prologue(emitter *e) {
  if (!e->code.narrow) return;
  PUT(e, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0); /* push rbp; mov rbp, rsp; and rsp, -32 */
  PUT(e, 0x48, 0x81, 0xec);                               /* sub rsp, the fixed vectors' bytes */
  x86_word(&e->code, 32 * e->fixed_count);
}

void emit_epilogue(emitter *e) {
  if (e->code.narrow) PUT(e, 0xc9); /* leave */
  PUT(e, 0xc5, 0xf8, 0x77, 0xc3);   /* vzeroupper; ret */
}

/* ---- loads and stores ------------------------------------------------------------------------- */

void emit_load_pointer(emitter *e, uint32_t slot) { /* mov rax, [rdx + 8 * slot] */
  PUT(e, 0x48, 0x8b, 0x82);
  x86_word(&e->code, 8 * slot);
}

void emit_tail_mask(emitter *e) {
  PUT(e, 0x44, 0x89, 0xd1);       /* mov ecx, r10d */
  PUT(e, 0x44, 0x29, 0xc1);       /* sub ecx, r8d */
  PUT(e, 0xb8, 1, 0, 0, 0);       /* mov eax, 1 */
  PUT(e, 0xd3, 0xe0, 0xff, 0xc8); /* shl eax, cl; dec eax */
  PUT(e, 0xc5, 0xf8, 0x92, 0xc8); /* kmovw k1, eax */
}

/* The element in memory. */
static x86_operand here(const emitter *e, uint32_t dtype) {
  unsigned scale = dtype == TTPU_BOOL ? 0 : dtype == TTPU_F32 ? 2 : 1;
  return x86_at(X86_RAX, e->unit == 0 ? X86_R8 : X86_RCX, scale);
}

static void load_wide(emitter *e, uint32_t dtype, unsigned dst) {
  bool is_bool = dtype == TTPU_BOOL;
  x86_opcode o = is_bool ? VMOVDQU8_LOAD : dtype == TTPU_F32 ? VMOVUPS : dtype == TTPU_BF16 ? VPMOVZXWD : VCVTPH2PS;
  unsigned to = is_bool ? emit_take(e, false) : dst;
  x86_vector(&e->code, &e->constants, o, to, 0, here(e, dtype), e->is_tail ? TAIL_MASK : 0, e->is_tail);
  if (!is_bool) return;
  op(e, VPTESTMB, dst, to, x86_reg(to));
  emit_leave(e, to, false);
}

/* The instruction for as many lanes as there are: of four it takes half a register. */
static x86_opcode of_lanes(const emitter *e, x86_opcode o) {
  if (e->lanes == 4) o.length = 0;
  return o;
}

/* One element, to the first lane; the others are 0. */
static void load_one(emitter *e, uint32_t dtype, unsigned dst) {
  if (dtype == TTPU_F32) return op(e, VMOVD, dst, 0, here(e, dtype));
  if (dtype == TTPU_BOOL) PUT(e, 0x42, 0x0f, 0xb6, 0x04, 0x00); /* movzx eax, byte [rax + r8] */
  else PUT(e, 0x42, 0x0f, 0xb7, 0x04, 0x40);                    /* movzx eax, word [rax + 2 * r8] */
  op(e, VMOVD, dst, 0, x86_reg(X86_RAX));
  if (dtype == TTPU_F16) op(e, VCVTPH2PS, dst, 0, x86_reg(dst));
}

static void load_narrow(emitter *e, uint32_t dtype, unsigned dst) {
  if (e->lanes == 1) load_one(e, dtype, dst);
  else if (dtype == TTPU_BOOL) op(e, of_lanes(e, VPMOVZXBD), dst, 0, here(e, dtype));
  else if (dtype == TTPU_F32) op(e, of_lanes(e, VMOVUPS), dst, 0, here(e, dtype));
  else op(e, of_lanes(e, dtype == TTPU_BF16 ? VPMOVZXWD : VCVTPH2PS), dst, 0, here(e, dtype));
  if (dtype == TTPU_BOOL) op(e, VPCMPGTD, dst, dst, x86_everywhere(0));
}

void emit_load(emitter *e, uint32_t dtype, unsigned dst) {
  if (e->code.narrow) load_narrow(e, dtype, dst);
  else load_wide(e, dtype, dst);
  if (dtype == TTPU_BF16) shift(e, SHIFT_LEFT, dst, dst, 16);
}

static void store_wide(emitter *e, uint32_t dtype, unsigned src, unsigned scratch) {
  unsigned mask = e->is_tail ? TAIL_MASK : 0;
  if (dtype == TTPU_F16) {
    x86_vector_imm(&e->code, &e->constants, VCVTPS2PH, src, 0, here(e, dtype), mask, false, 8);
    return;
  }
  if (dtype == TTPU_BOOL) {
    op(e, VPMOVM2B, scratch, 0, x86_reg(src));
    op(e, VPABSB, scratch, 0, x86_reg(scratch));
  }
  if (dtype == TTPU_BF16) shift(e, SHIFT_RIGHT, scratch, src, 16);
  x86_opcode o = dtype == TTPU_BOOL ? VMOVDQU8_STORE : dtype == TTPU_BF16 ? VPMOVDW : VMOVUPS_STORE;
  x86_vector(&e->code, &e->constants, o, dtype == TTPU_F32 ? src : scratch, 0, here(e, dtype), mask, false);
}

static void store_one(emitter *e, uint32_t dtype, unsigned src, unsigned scratch) {
  switch (dtype) {
    case TTPU_F32: op(e, VMOVD_STORE, src, 0, here(e, dtype)); return;
    case TTPU_BOOL: op(e, VPABSB, scratch, 0, x86_reg(src)); break; /* in each of its bytes */
    case TTPU_BF16: shift(e, SHIFT_RIGHT, scratch, src, 16); break;
    default: op_imm(e, VCVTPS2PH, src, 0, x86_reg(scratch), 8); break;
  }
  if (dtype == TTPU_BOOL) op_imm(e, VPEXTRB, scratch, 0, here(e, dtype), 0);
  else op_imm(e, VPEXTRW, scratch, 0, here(e, dtype), 0);
}

/* scratch = src's lanes as 16-bit ones: they fit. */
static void pack(emitter *e, x86_opcode o, unsigned scratch, unsigned src) {
  if (e->lanes == 4) return op(e, o, scratch, src, x86_reg(src));
  unsigned high = emit_take(e, false);
  op_imm(e, VEXTRACTI128, src, 0, x86_reg(high), 1); /* the source is the first operand */
  op(e, o, scratch, src, x86_reg(high));
  emit_leave(e, high, false);
}

static void store_narrow(emitter *e, uint32_t dtype, unsigned src, unsigned scratch) {
  bool half = e->lanes == 4;
  if (e->lanes == 1) return store_one(e, dtype, src, scratch);
  if (dtype == TTPU_F32) return op(e, of_lanes(e, VMOVUPS_STORE), src, 0, here(e, dtype));
  if (dtype == TTPU_F16) return op_imm(e, of_lanes(e, VCVTPS2PH), src, 0, here(e, dtype), 8);
  if (dtype == TTPU_BF16) {
    shift(e, SHIFT_RIGHT, scratch, src, 16);
    pack(e, VPACKUSDW, scratch, scratch);
    return op(e, half ? VMOVQ_STORE : VMOVDQU_STORE, scratch, 0, here(e, dtype));
  }
  pack(e, VPACKSSDW, scratch, src);
  op(e, VPACKSSWB, scratch, scratch, x86_reg(scratch));
  op(e, VPABSB, scratch, 0, x86_reg(scratch));
  op(e, half ? VMOVD_STORE : VMOVQ_STORE, scratch, 0, here(e, dtype));
}

void emit_store(emitter *e, uint32_t dtype, unsigned src) {
  unsigned scratch = emit_take(e, false);
  (e->code.narrow ? store_narrow : store_wide)(e, dtype, src, scratch);
  emit_leave(e, scratch, false);
}

/* ---- bools ------------------------------------------------------------------------------------ */

void emit_compare(emitter *e, unsigned truth, unsigned a, x86_operand b, unsigned predicate) {
  op_imm(e, VCMPPS, truth, a, b, predicate);
}

void emit_choose(emitter *e, unsigned dst, unsigned truth, x86_operand yes, unsigned no) {
  if (e->code.narrow) op_imm(e, VBLENDVPS, dst, no, yes, truth << 4);
  else x86_vector(&e->code, &e->constants, VBLENDMPS, dst, no, yes, truth, false);
}

void emit_where(emitter *e, unsigned truth, x86_opcode o, unsigned dst, unsigned a, x86_operand b) {
  if (!e->code.narrow) return x86_vector(&e->code, &e->constants, o, dst, a, b, truth, false);
  unsigned changed = emit_take(e, false);
  op(e, o, changed, a, b);
  emit_choose(e, dst, truth, x86_reg(changed), dst);
  emit_leave(e, changed, false);
}

void emit_logic(emitter *e, uint32_t kind, unsigned dst, unsigned a, x86_operand b) {
  if (e->code.narrow) {
    if (kind == IR_NOT) op(e, VPXORD, dst, a, x86_everywhere(0xffffffff));
    else op(e, kind == IR_AND ? VPANDD : kind == IR_OR ? VPORD : VPXORD, dst, a, b);
    return;
  }
  if (kind == IR_NOT) { /* a xnor (a xor a) */
    unsigned zero = emit_take(e, true);
    x86_mask(&e->code, KXOR, zero, a, a);
    x86_mask(&e->code, KXNOR, dst, a, zero);
    return emit_leave(e, zero, true);
  }
  x86_mask(&e->code, kind == IR_AND ? KAND : kind == IR_OR ? KOR : KXOR, dst, a, b.reg);
}

void emit_float_of_truth(emitter *e, unsigned dst, x86_operand truth) {
  if (e->code.narrow) return op(e, VPANDD, dst, emit_in_register(e, truth, dst), number(1));
  op(e, VPXORD, dst, dst, x86_reg(dst));
  emit_choose(e, dst, truth.reg, number(1), dst);
}

#endif
