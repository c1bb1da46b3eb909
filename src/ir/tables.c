/* The tables made from ops.def and attrs.def, and the walks over attributes that need nothing else. */
#include <stdio.h>
#include <string.h>

#include "ir/ir_int.h"

enum { POINTWISE = IR_POINTWISE, COMMUTES = IR_COMMUTES, VIEW = IR_VIEW, EFFECT = IR_EFFECT, COMPOSITE = IR_COMPOSITE };

const ir_op_info ir_ops[IR_KIND_COUNT] = {
    [IR_NO_OP] = {"no_op", 0, 0, 0, 0, IR_ATTRS_none},
#define OP(ENUM, name, operands, results, regions, infer, attrs, flags) \
  [IR_##ENUM] = {name, operands, results, regions, flags, IR_ATTRS_##attrs},
#include "ir/ops.def"
#undef OP
};

static const char ir_direction_tag[] = "comparison_direction", ir_precision_tag[] = "precision",
                  ir_rng_algorithm_tag[] = "rng_algorithm", ir_fft_type_tag[] = "fft_type",
                  ir_transpose_kind_tag[] = "transpose";
#define ir_scan_kind_tag NULL
#define ir_check_error_tag NULL
static const char *const ir_direction_names[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
static const char *const ir_precision_names[] = {"DEFAULT", "HIGH", "HIGHEST"};
static const char *const ir_rng_algorithm_names[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
static const char *const ir_fft_type_names[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
static const char *const ir_transpose_kind_names[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
static const char *const ir_check_error_names[] = {"BAD_INDEX", "BAD_VALUE", "BAD_MATRIX"};
static const char *const ir_scan_kind_names[] = {"CUMSUM", "CUMPROD", "CUMMAX", "CUMMIN", "LOGCUMSUMEXP"};

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FIELD(s, f, kind) {#f, kind, offsetof(ir_##s##_attrs, f), 0, NULL, NULL},
#define DIMS(s, f) FIELD(s, f, FIELD_DIMS)
#define SIZES(s, f) FIELD(s, f, FIELD_SIZES)
#define I64(s, f) FIELD(s, f, FIELD_I64)
#define SIZE(s, f) FIELD(s, f, FIELD_SIZE)
#define F64(s, f) FIELD(s, f, FIELD_F64)
#define FLAG(s, f) FIELD(s, f, FIELD_FLAG)
#define FLAGS(s, f) FIELD(s, f, FIELD_FLAGS)
#define ENUM(s, f, e) {#f, FIELD_ENUM, offsetof(ir_##s##_attrs, f), COUNT(e##_names), e##_names, e##_tag},
#define DATA(s, f) FIELD(s, f, FIELD_DATA)
#define TEXT(s, f) FIELD(s, f, FIELD_TEXT)
#define ATTRS(name, fields) static const ir_field name##_fields[] = {fields};
#include "ir/attrs.def"
#undef ATTRS

const ir_attrs_info ir_attrs_infos[IR_ATTRS_COUNT] = {
    [IR_ATTRS_none] = {"none", 0, 0, NULL},
#define ATTRS(name, fields) [IR_ATTRS_##name] = {#name, sizeof(ir_##name##_attrs), COUNT(name##_fields), name##_fields},
#include "ir/attrs.def"
#undef ATTRS
};

const ir_record ir_records[3] = {
    {IR_ATTRS_dot_general, 0, 4, "dot_dimension_numbers", "dot"},
    {IR_ATTRS_gather, 0, 6, "dimension_numbers", "gather"},
    {IR_ATTRS_scatter, 0, 6, "scatter_dimension_numbers", "scatter"},
};

const ir_record *ir_record_of(uint16_t attrs, uint32_t field) {
  for (size_t i = 0; i < COUNT(ir_records); ++i)
    if (ir_records[i].attrs == attrs && field >= ir_records[i].first && field < ir_records[i].end)
      return &ir_records[i];
  return NULL;
}

const char *ir_field_text_name(ir_kind kind, const ir_field *field) {
  bool dimension = strcmp(field->name, "dimension") == 0;
  switch (kind) {
    case IR_ALL_GATHER: return dimension ? "all_gather_dim" : field->name;
    case IR_REDUCE_SCATTER: return dimension ? "scatter_dimension" : field->name;
    case IR_ALL_TO_ALL: return dimension ? "split_dimension" : field->name;
    case IR_COLLECTIVE_PERMUTE: return strcmp(field->name, "replica_groups") == 0 ? "source_target_pairs" : field->name;
    default: return field->name;
  }
}

const int64_t ir_no_dims[TTPU_MAX_RANK];

/* Where a field's array lies, how many bytes it has, and where its pointer is. Only fields with an array. */
static bool field_array(const ir_field *field, const uint8_t *at, ir_type type, const void **data, size_t *bytes) {
  switch (field->kind) {
    case FIELD_DIMS:
    case FIELD_SIZES: {
      const ir_i64s *list = (const void *)at;
      *data = list->data;
      *bytes = list->count * sizeof *list->data;
      return true;
    }
    case FIELD_FLAGS: {
      const ir_flags *list = (const void *)at;
      *data = list->data;
      *bytes = list->count * sizeof *list->data;
      return true;
    }
    case FIELD_DATA: {
      const ir_data *list = (const void *)at;
      *data = list->bytes;
      *bytes = ir_data_bytes(type, *list);
      return true;
    }
    case FIELD_TEXT: {
      const char *const *text = (const void *)at;
      *data = *text;
      *bytes = *text ? strlen(*text) + 1 : 0;
      return true;
    }
    default: return false;
  }
}

static size_t round16(size_t n) { return (n + 15) & ~(size_t)15; }

const void *ir_attrs_copy(base_arena *arena, ir_kind kind, const void *attrs, ir_type type) {
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[kind].attrs];
  size_t total = round16(info->size), bytes;
  const void *data;
  for (uint32_t i = 0; i < info->field_count; ++i)
    if (field_array(&info->fields[i], (const uint8_t *)attrs + info->fields[i].offset, type, &data, &bytes))
      total += round16(bytes);
  uint8_t *copy = base_arena_alloc(arena, total ? total : 1);
  if (!copy) return NULL;
  memcpy(copy, attrs, info->size);
  uint8_t *next = copy + round16(info->size);
  for (uint32_t i = 0; i < info->field_count; ++i) {
    uint8_t *at = copy + info->fields[i].offset;
    if (!field_array(&info->fields[i], at, type, &data, &bytes)) continue;
    if (!data && info->fields[i].kind == FIELD_TEXT) continue; /* no text stays no text */
    if (bytes) memcpy(next, data, bytes);
    const void *moved = next;
    memcpy(at, &moved, sizeof moved); /* the pointer is the first member of all four */
    next += round16(bytes);
  }
  return copy;
}

static bool field_equal(const ir_field *field, const uint8_t *a, const uint8_t *b, ir_type type) {
  static const uint8_t sizes[] = {[FIELD_I64] = 8,
                                  [FIELD_SIZE] = 8,
                                  [FIELD_F64] = 8,
                                  [FIELD_FLAG] = sizeof(bool),
                                  [FIELD_ENUM] = sizeof(ir_direction),
                                  [FIELD_TEXT] = 0};
  const void *data[2];
  size_t bytes[2];
  if (!field_array(field, a, type, &data[0], &bytes[0])) return memcmp(a, b, sizes[field->kind]) == 0;
  field_array(field, b, type, &data[1], &bytes[1]);
  return bytes[0] == bytes[1] && (bytes[0] == 0 || memcmp(data[0], data[1], bytes[0]) == 0);
}

bool ir_attrs_equal(ir_kind kind, const void *a, const void *b, ir_type type) {
  if (a == b) return true;
  if (!a || !b) return false;
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[kind].attrs];
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const ir_field *field = &info->fields[i];
    if (!field_equal(field, (const uint8_t *)a + field->offset, (const uint8_t *)b + field->offset, type)) return false;
  }
  return true;
}

ir_kind ir_kind_from_name(const char *name, size_t length) {
  for (int k = 1; k < IR_KIND_COUNT; ++k)
    if (strlen(ir_ops[k].name) == length && memcmp(ir_ops[k].name, name, length) == 0) return (ir_kind)k;
  return IR_NO_OP;
}

bool ir_same_dims(ir_type a, ir_type b) {
  return a.rank == b.rank && (a.dims == b.dims || a.rank == 0 || memcmp(a.dims, b.dims, a.rank * sizeof *a.dims) == 0);
}

bool ir_type_equal(ir_type a, ir_type b) { return a.dtype == b.dtype && ir_same_dims(a, b); }

const char *ir_type_text(char *buffer, ir_type type) {
  size_t at = (size_t)snprintf(buffer, IR_TYPE_TEXT, "tensor<");
  for (uint32_t i = 0; i < type.rank && at < IR_TYPE_TEXT; ++i)
    at += (size_t)snprintf(buffer + at, IR_TYPE_TEXT - at, "%lldx", (long long)type.dims[i]);
  const char *dtype = type.dtype ? base_dtypes[type.dtype].hlo_name : "?";
  if (at < IR_TYPE_TEXT) snprintf(buffer + at, IR_TYPE_TEXT - at, "%s>", dtype);
  return buffer;
}
