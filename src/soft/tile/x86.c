#include "soft/tile/x86.h"

#include <string.h>

void x86_bytes(x86_code *c, const void *bytes, size_t count) {
  if (c->length + count > c->capacity) {
    c->is_full = true;
    return;
  }
  memcpy(c->bytes + c->length, bytes, count);
  c->length += count;
}
void x86_byte(x86_code *c, unsigned byte) { x86_bytes(c, &(uint8_t){(uint8_t)byte}, 1); }
void x86_word(x86_code *c, uint32_t word) { x86_bytes(c, &word, sizeof word); } /* little-endian, as this machine is */

static uint32_t find_constant(x86_code *c, x86_constants *k, uint32_t bits) {
  for (uint32_t i = 0; i < k->count; ++i)
    if (k->words[i] == bits) return i;
  if (k->count == sizeof k->words / sizeof *k->words) {
    c->is_full = true;
    return 0;
  }
  k->words[k->count] = bits;
  return k->count++;
}

/* ModRM and SIB, without a displacement: the base is neither rbp nor r13. */
static void put_memory(x86_code *c, unsigned reg, x86_operand o) {
  x86_byte(c, (reg & 7u) << 3 | 4u);
  x86_byte(c, (unsigned)o.scale << 6 | (o.index & 7u) << 3 | (o.reg & 7u));
}

static void put_constant(x86_code *c, x86_constants *k, unsigned reg, uint32_t bits, uint8_t trailing) {
  x86_byte(c, (reg & 7u) << 3 | 5u); /* [rip + distance] */
  uint32_t word = find_constant(c, k, bits);
  if (k->use_count == sizeof k->uses / sizeof *k->uses) {
    c->is_full = true;
    return;
  }
  k->uses[k->use_count].at = c->length;
  k->uses[k->use_count].word = word;
  k->uses[k->use_count++].trailing = trailing;
  x86_word(c, 0);
}

/* The prefixes; the high bits of register numbers are stored inverted. */
static void put_evex(x86_code *c, x86_opcode op, unsigned reg, unsigned vvvv, unsigned index, unsigned base,
                     unsigned last) {
  x86_byte(c, 0x62);
  x86_byte(c,
           (~reg >> 3 & 1u) << 7 | (~index >> 3 & 1u) << 6 | (~base >> 3 & 1u) << 5 | (~reg >> 4 & 1u) << 4 | op.map);
  x86_byte(c, (~vvvv & 15u) << 3 | 4u | op.prefix);
  x86_byte(c, last | (unsigned)op.length << 5 | (~vvvv >> 4 & 1u) << 3);
}
static void put_vex(x86_code *c, x86_opcode op, unsigned reg, unsigned vvvv, unsigned index, unsigned base) {
  x86_byte(c, 0xc4);
  x86_byte(c, (~reg >> 3 & 1u) << 7 | (~index >> 3 & 1u) << 6 | (~base >> 3 & 1u) << 5 | op.map);
  x86_byte(c, (~vvvv & 15u) << 3 | (op.length ? 4u : 0) | op.prefix);
}

static void encode(x86_code *c, x86_constants *k, x86_opcode op, unsigned reg, unsigned vvvv, x86_operand o,
                   unsigned mask, bool zero, uint8_t trailing) {
  bool addressed = o.form == X86_MEMORY || o.form == X86_REGISTER;
  unsigned base = addressed ? o.reg : 0, index = o.form == X86_MEMORY ? o.index : base >> 1u;
  if (c->narrow) put_vex(c, op, reg, vvvv, index, base);
  else put_evex(c, op, reg, vvvv, index, base, (unsigned)zero << 7 | (unsigned)o.broadcast << 4 | mask);
  x86_byte(c, op.opcode);
  switch (o.form) {
    case X86_REGISTER: x86_byte(c, 0xc0u | (reg & 7u) << 3 | (o.reg & 7u)); break;
    case X86_MEMORY: put_memory(c, reg, o); break;
    case X86_STACK: /* ModRM and SIB of rsp */
      x86_bytes(c, (const uint8_t[]){(uint8_t)(0x84u | (reg & 7u) << 3), 0x24}, 2);
      x86_word(c, o.number);
      break;
    case X86_CONSTANT: put_constant(c, k, reg, o.number, trailing); break;
  }
}

void x86_vector(x86_code *c, x86_constants *k, x86_opcode op, unsigned reg, unsigned vvvv, x86_operand operand,
                unsigned mask, bool zero) {
  encode(c, k, op, reg, vvvv, operand, mask, zero, 0);
}

void x86_vector_imm(x86_code *c, x86_constants *k, x86_opcode op, unsigned reg, unsigned vvvv, x86_operand operand,
                    unsigned mask, bool zero, uint8_t immediate) {
  encode(c, k, op, reg, vvvv, operand, mask, zero, 1);
  x86_byte(c, immediate);
}

void x86_mask(x86_code *c, uint8_t opcode, unsigned dst, unsigned a, unsigned b) {
  const uint8_t bytes[4] = {0xc5, (uint8_t)(0x80u | (~a & 15u) << 3 | 4u), opcode, (uint8_t)(0xc0u | dst << 3 | b)};
  x86_bytes(c, bytes, sizeof bytes);
}

void x86_finish(x86_code *c, const x86_constants *k) {
  uint32_t copies = c->narrow ? 8 : 1, bytes = 4 * copies;
  while (c->length % bytes != 0) x86_byte(c, 0x90);
  size_t first = c->length;
  for (uint32_t i = 0; i < k->count * copies; ++i) x86_word(c, k->words[i / copies]);
  if (c->is_full) return;
  for (uint32_t i = 0; i < k->use_count; ++i) {
    size_t at = k->uses[i].at, target = first + (size_t)bytes * k->uses[i].word;
    int32_t distance = (int32_t)((int64_t)target - (int64_t)(at + 4 + k->uses[i].trailing));
    memcpy(c->bytes + at, &distance, sizeof distance);
  }
}
