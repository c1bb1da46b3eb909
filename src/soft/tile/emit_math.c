/* Registers of a run, and functions of them as the VM's kernels compute them. */
#include "soft/tile/emit_int.h"

#if defined(__x86_64__)

/* ---- registers -------------------------------------------------------------------------------- */

unsigned emit_take_vector(emitter *e) {
  for (unsigned i = 0; i < VECTORS; ++i)
    if (!(e->used_vectors >> i & 1)) {
      e->used_vectors |= 1u << i;
      return i;
    }
  e->failed = true;
  return 0;
}

unsigned emit_take_mask(emitter *e) {
  for (unsigned i = FIRST_BOOL_MASK; i <= LAST_BOOL_MASK; ++i)
    if (!(e->used_masks >> i & 1)) {
      e->used_masks |= 1u << i;
      return i;
    }
  e->failed = true;
  return FIRST_BOOL_MASK;
}

void emit_leave_vector(emitter *e, unsigned reg) { e->used_vectors &= ~(1u << reg); }

unsigned emit_take_fixed(emitter *e, fixed_kind kind, uint32_t of) {
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

/* ---- functions, as the kernels compute them --------------------------------------------------- */

/* To nearest, ties to even; a NaN becomes quiet and keeps its upper half. dst may not be x. */
void emit_round_bf16(emitter *e, unsigned dst, unsigned x, unsigned traits) {
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

void emit_round_f16(emitter *e, unsigned dst, unsigned x) {
  op_imm(e, VCVTPS2PH, x, 0, x86_reg(dst), 8); /* the source is the first operand */
  op(e, VCVTPH2PS, dst, 0, x86_reg(dst));
}

/* A NaN in a is the result; one in b fails the comparison, and is it. */
void emit_extreme(emitter *e, x86_opcode o, unsigned dst, unsigned a, unsigned b) {
  op(e, o, dst, a, x86_reg(b));
  compare(e, SCRATCH_MASK, a, x86_reg(a), CMP_UNORDERED);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(a), SCRATCH_MASK);
}

void emit_exp(emitter *e, unsigned dst, unsigned x) {
  unsigned n = emit_take_vector(e), p = emit_take_vector(e), round = fixed_number(e, round_f32);
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
  emit_leave_vector(e, n), emit_leave_vector(e, p);
}

/* dst = |size| with the sign of x; size is lost. */
static void emit_sign_of(emitter *e, unsigned dst, unsigned size, unsigned x) {
  op(e, VPANDD, size, size, x86_everywhere(0x7fffffff));
  op(e, VPANDD, dst, x, x86_everywhere(0x80000000));
  op(e, VPORD, dst, dst, x86_reg(size));
}

void emit_tanh(emitter *e, unsigned dst, unsigned x) {
  unsigned size = emit_take_vector(e), z = emit_take_vector(e), p = emit_take_vector(e);
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
  emit_leave_vector(e, size), emit_leave_vector(e, z), emit_leave_vector(e, p);
}

void emit_logistic(emitter *e, unsigned dst, unsigned x) {
  unsigned t = emit_take_vector(e), one = fixed_number(e, 1);
  op(e, VPORD, t, x, x86_everywhere(0x80000000));
  emit_exp(e, dst, t); /* of -|x| */
  op(e, VADDPS, t, one, x86_reg(dst));
  compare(e, SCRATCH_MASK, x, number(0), CMP_GE);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(one), SCRATCH_MASK);
  op(e, VDIVPS, dst, dst, x86_reg(t));
  compare(e, SCRATCH_MASK, x, x86_reg(x), CMP_UNORDERED);
  op_masked(e, VMOVAPS, dst, 0, x86_reg(x), SCRATCH_MASK);
  emit_leave_vector(e, t);
}

/* y = the words of these numbers of the 32 at rax; rax goes on to the 32 before. */
static void emit_coefficient(emitter *e, unsigned y, unsigned numbers, unsigned high) {
  op(e, VMOVUPS_LOAD, y, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0x83, 0xc0, 64}, 4); /* add rax, 64 */
  op(e, VMOVUPS_LOAD, high, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  x86_bytes(&e->code, (const uint8_t[]){0x48, 0x2d, 192, 0, 0, 0}, 6); /* sub rax, 192 */
  op(e, VPERMT2PS, y, numbers, x86_reg(high));
}

void emit_erf(emitter *e, unsigned dst, unsigned x) {
  static const float near_terms[] = {-0.02622226f, 0.11281288f, -0.37612608f, 0.12837917f};
  unsigned size = emit_take_vector(e), t = emit_take_vector(e), numbers = emit_take_vector(e), c = emit_take_vector(e);
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
  unsigned high = emit_take_vector(e);
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
  emit_leave_vector(e, size), emit_leave_vector(e, t), emit_leave_vector(e, numbers), emit_leave_vector(e, c),
      emit_leave_vector(e, high);
}

#endif
