/* The collectives of an optimised program.
 *
 * PJRT gives it as HloModuleProtoWithConfig, of which little is needed, so the wire format of protobuf is walked here
 * rather than the whole of XLA's messages declared. The field numbers are those of xla/service/hlo.proto and
 * xla/xla_data.proto. Every computation is counted once, those that a loop runs many times as well. */
#include <stdio.h>
#include <string.h>

#include "aot/worker.h"

enum {
  MODULE_WITH_CONFIG_MODULE = 1,
  MODULE_COMPUTATIONS = 3,
  COMPUTATION_INSTRUCTIONS = 2,
  INSTRUCTION_OPCODE = 2,
  INSTRUCTION_SHAPE = 3,
  SHAPE_ELEMENT_TYPE = 2,
  SHAPE_DIMENSIONS = 3,
  SHAPE_TUPLE_SHAPES = 4
};

/* HLO's names of what moves data between devices. The compiler splits them into `-start` and `-done`. */
static const char *const kinds[] = {"all-reduce",         "all-gather",           "reduce-scatter",   "all-to-all",
                                    "collective-permute", "collective-broadcast", "ragged-all-to-all"};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct bytes {
  const uint8_t *at, *end;
} bytes;

typedef struct field { /* of wire type 0 (value) or 2 (inside); fixed-size fields have neither */
  uint32_t number;
  uint64_t value;
  bytes inside;
} field;

static bool read_varint(bytes *b, uint64_t *out) {
  *out = 0;
  for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
    uint8_t byte = *b->at++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

static bool skip(bytes *b, uint64_t length) {
  if (length > (uint64_t)(b->end - b->at)) return false;
  b->at += length;
  return true;
}

/* The next field; false at the end and, with *bad set, where there is none. */
static bool next_field(bytes *b, field *f, bool *bad) {
  uint64_t key, length;
  if (b->at == b->end) return false;
  *f = (field){0};
  bool ok = read_varint(b, &key);
  f->number = (uint32_t)(key >> 3);
  switch (ok ? key & 7 : 7) {
    case 0: ok = read_varint(b, &f->value); break;
    case 1: ok = skip(b, 8); break;
    case 2:
      ok = read_varint(b, &length);
      f->inside.at = b->at;
      ok = ok && skip(b, length);
      f->inside.end = b->at;
      break;
    case 5: ok = skip(b, 4); break;
    default: ok = false; break;
  }
  if (!ok) *bad = true;
  return ok;
}

typedef struct walk {
  struct {
    uint64_t count, bytes;
  } found[KINDS];
  bool bad;
} walk;

/* Bits of an element, by xla_data.proto's PrimitiveType. */
static uint64_t element_bits(uint64_t type) {
  static const uint8_t bits[] = {[1] = 8,    [2] = 8,  [3] = 16,  [4] = 32,  [5] = 64,  [6] = 8,   [7] = 16,
                                 [8] = 32,   [9] = 64, [10] = 16, [11] = 32, [12] = 64, [15] = 64, [16] = 16,
                                 [18] = 128, [19] = 8, [20] = 8,  [21] = 4,  [22] = 4,  [23] = 8,  [24] = 8,
                                 [25] = 8,   [26] = 2, [27] = 2,  [28] = 8,  [29] = 8,  [32] = 4,  [33] = 8};
  return type < sizeof bits ? bits[type] : 0;
}

static uint64_t shape_bytes(walk *w, bytes shape, int depth) {
  uint64_t type = 0, elements = 1, inside = 0;
  field f;
  while (next_field(&shape, &f, &w->bad)) {
    if (f.number == SHAPE_ELEMENT_TYPE) type = f.value;
    if (f.number == SHAPE_DIMENSIONS && !f.inside.at) elements *= f.value;
    if (f.number == SHAPE_DIMENSIONS)
      for (uint64_t v; f.inside.at != f.inside.end && !w->bad;) {
        if (read_varint(&f.inside, &v)) elements *= v;
        else w->bad = true;
      }
    if (f.number == SHAPE_TUPLE_SHAPES && depth < 8) inside += shape_bytes(w, f.inside, depth + 1);
  }
  return inside + elements * element_bits(type) / 8;
}

/* The result of a `-start` of a gather or a permutation is (operand, result, ...): what moves is the second. */
static uint64_t started_bytes(walk *w, bytes shape) {
  field f;
  bytes rest = shape;
  for (int seen = 0; next_field(&rest, &f, &w->bad);)
    if (f.number == SHAPE_TUPLE_SHAPES && seen++ == 1) return shape_bytes(w, f.inside, 0);
  return shape_bytes(w, shape, 0);
}

static void visit_instruction(walk *w, bytes instruction) {
  bytes opcode = {0}, shape = {0};
  field f;
  while (next_field(&instruction, &f, &w->bad)) {
    if (f.number == INSTRUCTION_OPCODE) opcode = f.inside;
    if (f.number == INSTRUCTION_SHAPE) shape = f.inside;
  }
  size_t length = (size_t)(opcode.end - opcode.at);
  bool started = length > 6 && memcmp(opcode.end - 6, "-start", 6) == 0;
  if (started) length -= 6;
  for (int i = 0; i < KINDS; ++i) {
    if (strlen(kinds[i]) != length || memcmp(kinds[i], opcode.at, length) != 0) continue;
    bool pair = started && i != 0; /* an all-reduce's start gives its result alone */
    ++w->found[i].count;
    w->found[i].bytes += pair ? started_bytes(w, shape) : shape_bytes(w, shape, 0);
  }
}

static void visit(walk *w, bytes message, const int *path) {
  field f;
  while (next_field(&message, &f, &w->bad)) {
    if (f.number != (uint32_t)*path || !f.inside.at) continue;
    if (path[1]) visit(w, f.inside, path + 1);
    else visit_instruction(w, f.inside);
  }
}

ttpu_status aot_hlo_put_collectives(const void *program, size_t length, aot_answer *a) {
  static const int path[] = {MODULE_WITH_CONFIG_MODULE, MODULE_COMPUTATIONS, COMPUTATION_INSTRUCTIONS, 0};
  walk w = {0};
  visit(&w, (bytes){program, (const uint8_t *)program + length}, path);
  if (w.bad) return base_fail(TTPU_INVALID_ARGUMENT, "the optimised program is no HloModuleProtoWithConfig");
  for (int i = 0; i < KINDS; ++i) {
    char name[64];
    snprintf(name, sizeof name, "collective:%s", kinds[i]);
    if (w.found[i].count)
      aot_answer_printf(a, name, "%llu %llu", (unsigned long long)w.found[i].count,
                        (unsigned long long)w.found[i].bytes);
  }
  return TTPU_OK;
}
