/* Rounding and functions of a register, as the VM's kernels compute them. */
#include "soft/tile/emit_int.h"

#if defined(__x86_64__)

/* To nearest, ties to even; a NaN becomes quiet and keeps its upper half. dst may not be x. */
void emit_round_bf16(emitter *e, unsigned dst, unsigned x, unsigned traits) {
  shift(e, SHIFT_RIGHT, dst, x, 16);
  op(e, VPANDD, dst, dst, x86_everywhere(1));
  op(e, VPADDD, dst, dst, x86_everywhere(0x7fff));
  op(e, VPADDD, dst, dst, x86_reg(x));
  if ((traits & (TRAIT_QUIET | TRAIT_SHORT)) != (TRAIT_QUIET | TRAIT_SHORT)) { /* else the sum leaves a NaN as it is */
    unsigned is_nan = emit_take(e, true);
    emit_compare(e, is_nan, x, x86_reg(x), CMP_UNORDERED);
    emit_where(e, is_nan, VPORD, dst, x, x86_everywhere(0x400000));
    emit_leave(e, is_nan, true);
  }
  op(e, VPANDD, dst, dst, x86_everywhere(0xffff0000));
}

void emit_round_f16(emitter *e, unsigned dst, unsigned x) {
  op_imm(e, VCVTPS2PH, x, 0, x86_reg(dst), 8); /* the source is the first operand */
  op(e, VCVTPH2PS, dst, 0, x86_reg(dst));
}

/* dst = y where x compares so with b. */
static void choose_where(emitter *e, unsigned dst, x86_operand y, unsigned x, x86_operand b, unsigned predicate) {
  unsigned truth = emit_take(e, true);
  emit_compare(e, truth, x, b, predicate);
  emit_choose(e, dst, truth, y, dst);
  emit_leave(e, truth, true);
}

/* A NaN in a is the result; one in b fails the comparison, and is it. */
void emit_extreme(emitter *e, x86_opcode o, unsigned dst, unsigned a, x86_operand b) {
  op(e, o, dst, a, b);
  choose_where(e, dst, x86_reg(a), a, x86_reg(a), CMP_UNORDERED);
}

/* dst = the polynomial of x whose terms these are, the highest first. */
static void polynomial(emitter *e, unsigned dst, unsigned x, const float *terms, uint32_t count) {
  move(e, dst, fixed_number(e, terms[0]));
  for (uint32_t i = 1; i < count; ++i) op(e, VFMADD213PS, dst, x, number(terms[i]));
}

/* dst = 2^n, an integer's power. */
static void power_of_2(emitter *e, unsigned dst, unsigned n) {
  op(e, VPADDD, dst, n, x86_everywhere(127));
  shift(e, SHIFT_LEFT, dst, dst, 23);
}

/* dst = p * 2^n, where n is an integer as a float; both are lost. AVX2 does it in two exact steps and one rounding. */
static void scale(emitter *e, unsigned dst, unsigned p, unsigned n) {
  if (!e->code.narrow) return op(e, VSCALEFPS, dst, p, x86_reg(n));
  op(e, VCVTPS2DQ, n, 0, x86_reg(n));
  shift(e, SHIFT_SIGNED, dst, n, 1);
  op(e, VPSUBD, n, n, x86_reg(dst));
  power_of_2(e, dst, dst);
  power_of_2(e, n, n);
  op(e, VMULPS, dst, dst, x86_reg(p));
  op(e, VMULPS, dst, dst, x86_reg(n));
}

void emit_exp(emitter *e, unsigned dst, unsigned x) {
  unsigned n = emit_take(e, false), p = emit_take(e, false);
  x86_operand round = fixed_number(e, round_f32), most = fixed_number(e, exp_most_f32);
  x86_operand least = fixed_number(e, exp_least_f32);
  op(e, VMINPS, dst, emit_in_register(e, most, dst), x86_reg(x)); /* a NaN remains */
  op(e, VMAXPS, dst, emit_in_register(e, least, n), x86_reg(dst));
  move(e, n, round);
  op(e, VFMADD231PS, n, dst, number(log2_e_f32));
  op(e, VSUBPS, n, n, round);
  op(e, VFMADD231PS, dst, n, number(-ln2_high_f32)); /* dst: the rest r */
  op(e, VFMADD231PS, dst, n, number(-ln2_low_f32));
  polynomial(e, p, dst, exp_terms_f32, 6);
  op(e, VMULPS, p, p, x86_reg(dst));
  op(e, VFMADD213PS, p, dst, x86_reg(dst));
  op(e, VADDPS, p, p, number(1));
  scale(e, dst, p, n);
  emit_leave(e, n, false), emit_leave(e, p, false);
}

/* dst = |size| with the sign of x; size is lost. */
static void emit_sign_of(emitter *e, unsigned dst, unsigned size, unsigned x) {
  op(e, VPANDD, size, size, x86_everywhere(0x7fffffff));
  op(e, VPANDD, dst, x, x86_everywhere(0x80000000));
  op(e, VPORD, dst, dst, x86_reg(size));
}

void emit_tanh(emitter *e, unsigned dst, unsigned x) {
  unsigned size = emit_take(e, false), z = emit_take(e, false), p = emit_take(e, false);
  op(e, VPANDD, size, x, x86_everywhere(0x7fffffff));
  op(e, VMULPS, z, x, x86_reg(x));
  polynomial(e, p, z, tanh_terms_f32, 5);
  op(e, VMULPS, p, p, x86_reg(z));
  op(e, VFMADD213PS, p, x, x86_reg(x)); /* p: near 0 */
  op(e, VMULPS, z, size, number(2));
  emit_exp(e, dst, z);
  op(e, VADDPS, dst, dst, number(1));
  op(e, VDIVPS, z, emit_in_register(e, fixed_number(e, 2), z), x86_reg(dst));
  op(e, VSUBPS, z, emit_in_register(e, fixed_number(e, 1), dst), x86_reg(z));
  emit_sign_of(e, dst, z, x);
  choose_where(e, dst, x86_reg(p), size, number(tanh_low_f32), CMP_LT);
  choose_where(e, dst, x86_reg(x), x, number(0), CMP_EQ_UNORDERED); /* zeros and NaNs are themselves */
  emit_leave(e, size, false), emit_leave(e, z, false), emit_leave(e, p, false);
}

void emit_logistic(emitter *e, unsigned dst, unsigned x) {
  unsigned t = emit_take(e, false);
  x86_operand one = fixed_number(e, 1);
  op(e, VPORD, t, x, x86_everywhere(0x80000000));
  emit_exp(e, dst, t); /* of -|x| */
  op(e, VADDPS, t, dst, one);
  choose_where(e, dst, one, x, number(0), CMP_GE);
  op(e, VDIVPS, dst, dst, x86_reg(t));
  choose_where(e, dst, x86_reg(x), x, x86_reg(x), CMP_UNORDERED);
  emit_leave(e, t, false);
}

/* y = the words of these numbers of the 32 at rax; rax goes on to the 32 before. */
static void emit_coefficient(emitter *e, unsigned y, unsigned numbers, unsigned high) {
  op(e, VMOVUPS, y, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  PUT(e, 0x48, 0x83, 0xc0, 64); /* add rax, 64 */
  op(e, VMOVUPS, high, 0, x86_at(X86_RAX, X86_NO_INDEX, 0));
  PUT(e, 0x48, 0x2d, 192, 0, 0, 0); /* sub rax, 192 */
  op(e, VPERMT2PS, y, numbers, x86_reg(high));
}

/* Which interval of [0, 4) the size is in, of `count` to a unit, and t: where in it, from -1/2 to 1/2. c is lost. */
static void split(emitter *e, unsigned size, unsigned t, unsigned interval, unsigned c, float count) {
  op(e, VMINPS, t, emit_in_register(e, fixed_number(e, 0x1.fffffep1f), t), x86_reg(size)); /* a NaN remains */
  op(e, VMULPS, t, t, number(count));
  op(e, VCVTTPS2DQ, interval, 0, x86_reg(t));
  op(e, VCVTDQ2PS, c, 0, x86_reg(interval));
  op(e, VSUBPS, t, t, x86_reg(c));
  op(e, VSUBPS, t, t, number(0.5f));
}

static void row_to_rax(emitter *e, const float *row) {
  PUT(e, 0x48, 0xb8); /* mov rax, imm64 */
  x86_bytes(&e->code, &row, sizeof row);
}

/* dst, the size of erf, with the sign of x, and below the limit x and a polynomial instead. t and c are lost. */
static void erf_near_zero(emitter *e, unsigned dst, unsigned x, unsigned size, unsigned t, unsigned c,
                          const float *terms, uint32_t count, float limit) {
  move(e, c, x86_reg(dst));
  emit_sign_of(e, dst, c, x);
  op(e, VMULPS, t, x, x86_reg(x));
  polynomial(e, c, t, terms, count);
  op(e, VFMADD213PS, c, x, x86_reg(x));
  choose_where(e, dst, x86_reg(c), size, number(limit), CMP_LT);
}

/* As erf_16 of vm_lanes_avx512.h. */
static void erf_wide(emitter *e, unsigned dst, unsigned x) {
  static const float near_terms[] = {-0.02622226f, 0.11281288f, -0.37612608f, 0.12837917f};
  unsigned size = emit_take(e, false), t = emit_take(e, false), interval = emit_take(e, false), c = emit_take(e, false);
  unsigned high = emit_take(e, false);
  op(e, VPANDD, size, x, x86_everywhere(0x7fffffff));
  split(e, size, t, interval, c, 8);
  row_to_rax(e, tile_erf_32[4]);
  emit_coefficient(e, dst, interval, high);
  for (int i = 3; i >= 0; --i) {
    emit_coefficient(e, c, interval, high);
    op(e, VFMADD213PS, dst, t, x86_reg(c));
  }
  erf_near_zero(e, dst, x, size, t, c, near_terms, 4, 0.25f);
  emit_leave(e, size, false), emit_leave(e, t, false), emit_leave(e, interval, false), emit_leave(e, c, false),
      emit_leave(e, high, false);
}

/* As erf_8 of vm_lanes_avx2.h. */
static void erf_narrow(emitter *e, unsigned dst, unsigned x) {
  unsigned size = emit_take(e, false), t = emit_take(e, false), interval = emit_take(e, false), c = emit_take(e, false);
  op(e, VPANDD, size, x, x86_everywhere(0x7fffffff));
  split(e, size, t, interval, c, 2);
  row_to_rax(e, tile_erf_8[7]);
  op(e, VPERMPS, dst, interval, x86_at(X86_RAX, X86_NO_INDEX, 0));
  for (int i = 6; i >= 0; --i) {
    PUT(e, 0x48, 0x83, 0xe8, 32); /* sub rax, 32: the row before */
    op(e, VPERMPS, c, interval, x86_at(X86_RAX, X86_NO_INDEX, 0));
    op(e, VFMADD213PS, dst, t, x86_reg(c));
  }
  erf_near_zero(e, dst, x, size, t, c, erf_near_f32, 6, 0.5f);
  emit_leave(e, size, false), emit_leave(e, t, false), emit_leave(e, interval, false), emit_leave(e, c, false);
}

void emit_erf(emitter *e, unsigned dst, unsigned x) { (e->code.narrow ? erf_narrow : erf_wide)(e, dst, x); }

#endif
