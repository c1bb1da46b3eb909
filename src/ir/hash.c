/* Two hashes of a function. The full one is a program's identity: equal hashes are taken for equal programs, so it
 * sees everything that a plugin's compiler sees. The structural one is the identity of compiled code that binds
 * sizes at run time. Values are numbered in order of definition, so handles can be mixed in as they are. Names
 * (the function's, and where an operation came from) are in neither. */
#include <string.h>

#include "ir/ir_int.h"

typedef struct hasher {
  const ir_func *func;
  base_hash128 h;
  bool structure;
} hasher;

static void mix(hasher *s, uint64_t v) { s->h = base_mix128(s->h, v); }

/* What a size may tell compiled code: whether it is negative, 0, 1 or more. */
static uint64_t size_class(int64_t v) { return v < 0 ? 3 : v > 1 ? 2 : (uint64_t)v; }

/* A list of numbers: exact, or their classes, 32 to a word. */
static void mix_list(hasher *s, ir_i64s list, bool classes) {
  mix(s, list.count);
  uint64_t word = 0;
  for (uint32_t i = 0; i < list.count; ++i) {
    if (!classes) {
      mix(s, (uint64_t)list.data[i]);
      continue;
    }
    word = word << 2 | size_class(list.data[i]);
    if (i % 32 == 31 || i + 1 == list.count) mix(s, word), word = 0;
  }
}

static void mix_type(hasher *s, ir_type t) {
  if (!s->structure) {
    mix(s, (uint64_t)t.dtype | (uint64_t)t.rank << 8);
    for (uint32_t i = 0; i < t.rank; ++i) mix(s, (uint64_t)t.dims[i]);
    return;
  }
  uint64_t word = (uint64_t)t.dtype | (uint64_t)t.rank << 8;
  for (uint32_t i = 0; i < t.rank; ++i) word |= size_class(t.dims[i]) << (16 + 2 * i); /* rank <= 16: 32 bits */
  mix(s, word);
}

static void mix_bytes(hasher *s, const void *bytes, size_t length) {
  mix(s, length);
  s->h = base_hash128_bytes(s->h, bytes, length);
}

static void mix_field(hasher *s, const ir_field *field, const void *at, ir_type type) {
  switch ((ir_field_kind)field->kind) {
    case FIELD_DIMS: mix_list(s, *(const ir_i64s *)at, false); break;
    case FIELD_SIZES: mix_list(s, *(const ir_i64s *)at, s->structure); break;
    case FIELD_I64: mix(s, *(const uint64_t *)at); break;
    case FIELD_SIZE: mix(s, s->structure ? size_class(*(const int64_t *)at) : *(const uint64_t *)at); break;
    case FIELD_F64:
      if (!s->structure) mix(s, *(const uint64_t *)at);
      break;
    case FIELD_FLAG: mix(s, *(const bool *)at); break;
    case FIELD_FLAGS: {
      const ir_flags *flags = at;
      mix_bytes(s, flags->data, flags->count * sizeof *flags->data);
      break;
    }
    case FIELD_ENUM: mix(s, *(const unsigned *)at); break;
    case FIELD_DATA: {
      const ir_data *data = at;
      mix(s, data->splat);
      if (!s->structure) mix_bytes(s, data->bytes, ir_data_bytes(type, *data));
      break;
    }
    case FIELD_TEXT: {
      const char *text = *(const char *const *)at;
      mix_bytes(s, text ? text : "", text ? strlen(text) : 0);
      break;
    }
  }
}

static void mix_region(hasher *s, const ir_region *r);

static void mix_op(hasher *s, const ir_op *op) {
  mix(s, (uint64_t)op->kind | (uint64_t)op->operand_count << 16 | (uint64_t)op->region_count << 48);
  for (uint32_t i = 0; i < op->operand_count; i += 2) /* two handles to a word */
    mix(s, (uint64_t)op->operands[i] << 32 | (i + 1 < op->operand_count ? op->operands[i + 1] : 0));
  mix(s, op->result_count);
  for (uint32_t i = 0; i < op->result_count; ++i) mix_type(s, ir_type_of(s->func, op->first_result + i));
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[op->kind].attrs];
  ir_type type = op->result_count ? ir_type_of(s->func, op->first_result) : (ir_type){0, 0, NULL};
  for (uint32_t i = 0; i < info->field_count; ++i)
    mix_field(s, &info->fields[i], (const uint8_t *)op->attrs + info->fields[i].offset, type);
  for (uint32_t i = 0; i < op->region_count; ++i) mix_region(s, op->regions[i]);
}

static void mix_region(hasher *s, const ir_region *r) {
  mix(s, (uint64_t)r->arg_count << 32 | r->count);
  mix(s, r->first_arg);
  for (uint32_t i = 0; i < r->arg_count; ++i) mix_type(s, ir_type_of(s->func, r->first_arg + i));
  for (uint32_t i = 0; i < r->count; ++i) mix_op(s, r->ops[i]);
}

static base_hash128 hash(const ir_func *f, bool structure) {
  hasher s = {f, {0x7474707569723031ull, structure}, structure};
  mix_region(&s, &f->body);
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    if (f->donate && f->donate[i]) mix(&s, i);
  return s.h;
}

base_hash128 ir_func_hash(const ir_func *f) { return hash(f, false); }
base_hash128 ir_func_structure(const ir_func *f) { return hash(f, true); }
