/* ir_int: what the files of src/ir share.
 *
 * Everything that depends on which operations and attributes exist is a table made from ops.def and attrs.def
 * (tables.c). An attribute struct is described by its fields in order; the generic walks (copy, equality, hash,
 * print, parse) go over that description, so that adding a line to a list is enough for all of them.
 *
 * Inference (infer.c) is a pure function of kind, operand types, attributes, regions and the given result
 * types. The builder calls it on the way in, verify.c calls it again and compares. Its result types share the
 * dims of an operand wherever they are equal, so that most operations allocate nothing for their type. */
#ifndef TTPU_IR_INT_H
#define TTPU_IR_INT_H

#include "ir/ir.h"

typedef enum ir_field_kind {
  FIELD_DIMS,
  FIELD_SIZES,
  FIELD_I64,
  FIELD_SIZE,
  FIELD_F64,
  FIELD_FLAG,
  FIELD_FLAGS,
  FIELD_ENUM,
  FIELD_DATA,
  FIELD_TEXT
} ir_field_kind;

typedef struct ir_field {
  const char *name; /* StableHLO's */
  uint8_t kind;     /* ir_field_kind */
  uint16_t offset;
  uint16_t name_count;      /* ENUM: how many values */
  const char *const *names; /* ENUM: StableHLO's spelling of each */
  const char *tag;          /* ENUM: `#stablehlo<tag NAME>`; NULL where StableHLO has no such enum */
} ir_field;

typedef struct ir_attrs_info {
  const char *name;
  uint16_t size, field_count;
  const ir_field *fields;
} ir_attrs_info;

/* Indices of the attribute tables: ir_op_info.attrs. */
enum {
  IR_ATTRS_none = 0,
#define ATTRS(name, fields) IR_ATTRS_##name,
#include "ir/attrs.def"
#undef ATTRS
  IR_ATTRS_COUNT
};
extern const ir_attrs_info ir_attrs_infos[IR_ATTRS_COUNT];

/* Fields that the text form writes as one record: `name = #stablehlo.<mnemonic><field = value, ...>`. */
typedef struct ir_record {
  uint16_t attrs;      /* IR_ATTRS_* */
  uint16_t first, end; /* fields [first, end) */
  const char *name, *mnemonic;
} ir_record;
extern const ir_record ir_records[3];
const ir_record *ir_record_of(uint16_t attrs, uint32_t field); /* NULL: a plain field */
/* What the text form calls a field: its own name, but for the collectives' dimensions. */
const char *ir_field_text_name(ir_kind kind, const ir_field *field);

/* A deep copy in one allocation; NULL: out of memory. `type` is the result's, which says how long a DATA is. */
const void *ir_attrs_copy(base_arena *arena, ir_kind kind, const void *attrs, ir_type type);
static inline size_t ir_data_bytes(ir_type t, ir_data d) {
  return base_dtype_bytes((ttpu_dtype)t.dtype) * (d.splat ? 1 : (size_t)ir_numel(t));
}
ir_kind ir_kind_from_name(const char *name, size_t length); /* IR_NO_OP: unknown */

/* "tensor<2x3xf32>", cut when longer than the buffer. IR_SHOW gives a buffer that lives to the block's end. */
enum { IR_TYPE_TEXT = 128 };
const char *ir_type_text(char *buffer, ir_type type);
#define IR_SHOW(type) ir_type_text((char[IR_TYPE_TEXT]){0}, type)

/* One question to infer.c, and its answer. */
typedef struct ir_inference {
  const ir_func *func;
  base_arena *arena; /* for result types that no operand has */
  ir_kind kind;
  uint32_t operand_count;
  const ir_value *operands;
  const void *attrs;
  uint32_t given_count; /* 0, or the number of results */
  const ir_type *given; /* one with dims NULL fixes the dtype alone */
  uint32_t region_count;
  ir_region *const *regions;
  /* the answer */
  uint32_t result_count;
  ir_type *results; /* `few`, or in the arena */
  ir_type few[2];
  ttpu_status status;
  char *message; /* what was wrong, without the operation's name in front */
  size_t message_size;
} ir_inference;
bool ir_infer(ir_inference *in); /* false: status and message are set */

extern const int64_t ir_no_dims[TTPU_MAX_RANK]; /* zeros: what dims points to at rank 0 */

/* ir_copy_op that decomposes composites (those in regions too) for which keep(kind) is false; keep NULL keeps all. */
ir_value ir_copy_op_keeping(ir_builder *b, const ir_func *from, const ir_op *op, ir_value *map, bool (*keep)(ir_kind));
/* The same of a region, whose arguments keep their types; `b` stands where the region's operation will. */
ir_region *ir_region_copy(ir_builder *b, const ir_func *from, const ir_region *r, ir_value *map, bool (*keep)(ir_kind));
/* Emits the decomposition of a composite on the given operands; writes its results (2 at most). `types` are theirs. */
void ir_composite_expand(ir_builder *b, ir_kind kind, const void *attrs, uint32_t operand_count,
                         const ir_value *operands, uint32_t result_count, const ir_type *types, ir_value *results);
/* The distinct composites of a module, which are written as calls to a private function each: its decomposition. */
typedef struct ir_decompositions {
  struct ir_decomposition {
    const ir_func *user;
    const ir_op *op;
  } *list; /* heap */
  uint32_t count, capacity;
  bool failed; /* out of memory */
} ir_decompositions;
uint32_t ir_decomposition_of(ir_decompositions *d, const ir_func *f, const ir_op *op); /* the number of op's */
ttpu_status ir_decomposition_build(const ir_decompositions *d, uint32_t number, base_arena *arena, ir_func **out);
/* The elementwise ones (composite_math.c); y is 0 where there is one operand. */
ir_value ir_math_expand(ir_builder *b, ir_kind kind, ir_value x, ir_value y);
/* as_strided and its update (composite_view.c). */
ir_value ir_view_read(ir_builder *b, ir_value x, const ir_as_strided_attrs *attrs, ir_type view);
ir_value ir_view_write(ir_builder *b, ir_value x, ir_value update, const ir_as_strided_attrs *attrs);

#endif
