/* An assembler for the vector instructions that the emitter needs, of AVX-512 (F, BW, DQ, VL) or of AVX2; names are those of
 * Intel's manual, and so are the encodings (volume 2): EVEX prefixes, or, `narrow`, VEX prefixes, which have the same opcodes. It
 * appends to a buffer of fixed size and remembers that it was full. */
#ifndef TTPU_SOFT_TILE_X86_H
#define TTPU_SOFT_TILE_X86_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct x86_code {
  uint8_t *bytes;
  size_t length, capacity;
  bool is_full, narrow;
} x86_code;

enum { X86_RAX, X86_RCX, X86_RDX, X86_RBX, X86_RSP, X86_RBP, X86_RSI, X86_RDI, X86_R8, X86_R9, X86_R10, X86_R11 };

/* An instruction's last operand: a register, memory at [base + index * 2^scale] or [rsp + distance], or a constant behind the
 * code. `broadcast`: the element there is read into all lanes; narrow code has no such reading, and there the constant stands
 * in all lanes itself. */
typedef enum { X86_REGISTER, X86_MEMORY, X86_STACK, X86_CONSTANT } x86_form;
enum { X86_NO_INDEX = 4 }; /* rsp's number, which is none */
typedef struct x86_operand {
  x86_form form;
  uint8_t reg, index, scale;
  bool broadcast;
  uint32_t number; /* the distance, or the constant's bits */
} x86_operand;

static inline x86_operand x86_reg(unsigned reg) { return (x86_operand){.form = X86_REGISTER, .reg = (uint8_t)reg}; }
static inline x86_operand x86_at(unsigned base, unsigned index, unsigned scale) {
  return (x86_operand){.form = X86_MEMORY, .reg = (uint8_t)base, .index = (uint8_t)index, .scale = (uint8_t)scale};
}
static inline x86_operand x86_on_stack(uint32_t distance) {
  return (x86_operand){.form = X86_STACK, .number = distance};
}
static inline x86_operand x86_word_behind(uint32_t bits) { return (x86_operand){.form = X86_CONSTANT, .number = bits}; }
static inline x86_operand x86_everywhere(uint32_t bits) { /* these bits in all lanes */
  return (x86_operand){.form = X86_CONSTANT, .number = bits, .broadcast = true};
}

/* A row of the manual: map (1: 0F, 2: 0F38, 3: 0F3A), prefix (0: none, 1: 66, 2: F3, 3: F2), opcode, vector length (0: 128 bits,
 * 2: all that a register has). */
typedef struct x86_opcode {
  uint8_t map, prefix, opcode, length;
} x86_opcode;

typedef struct x86_constants { /* of the code so far: each is one 32-bit word behind it, narrow eight of them */
  uint32_t words[64];
  uint32_t count;
  struct {
    size_t at; /* of the four bytes of a distance */
    uint32_t word;
    uint8_t trailing; /* bytes of the instruction behind them */
  } uses[1024];
  uint32_t use_count;
} x86_constants;

/* op reg{mask}{z}, vvvv, operand. mask 0: none, as always in narrow code. */
void x86_vector(x86_code *c, x86_constants *k, x86_opcode op, unsigned reg, unsigned vvvv, x86_operand operand,
                unsigned mask, bool zero);
/* The same with an immediate byte. */
void x86_vector_imm(x86_code *c, x86_constants *k, x86_opcode op, unsigned reg, unsigned vvvv, x86_operand operand,
                    unsigned mask, bool zero, uint8_t immediate);
void x86_mask(x86_code *c, uint8_t opcode, unsigned dst, unsigned a, unsigned b); /* kandw and its like: dst = a op b */
void x86_bytes(x86_code *c, const void *bytes, size_t count);
void x86_byte(x86_code *c, unsigned byte);
void x86_word(x86_code *c, uint32_t word);
/* Puts the constants behind the code and fills the distances in. */
void x86_finish(x86_code *c, const x86_constants *k);

#endif
