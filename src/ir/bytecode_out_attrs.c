/* Attributes and types of a portable artifact, written: see bytecode_out.h. */
#include <stdio.h>
#include <string.h>

#include "ir/bytecode_out.h"

static uint32_t take(writer *w, base_text *bytes) { return out_take(w, &w->attributes, OUT_VHLO, bytes); }

/* ---- types ---------------------------------------------------------------------------------- */

static uint32_t simple_type(writer *w, uint64_t code) {
  base_text bytes = {0};
  out_varint(&bytes, code);
  return out_take(w, &w->types, OUT_VHLO, &bytes);
}

static uint32_t named_type(writer *w, const char *name, size_t length) {
  for (uint64_t code = 0; code < VHLO_TYPE_CODES; ++code) {
    const char *known = vhlo_type_name(code);
    if (known && strlen(known) == length && memcmp(known, name, length) == 0) return simple_type(w, code);
  }
  out_fail(w, TTPU_UNIMPLEMENTED, "a portable artifact has no type %.*s", (int)length, name);
  return 0;
}

static uint32_t element_type(writer *w, ttpu_dtype dtype) {
  static const char complex[] = "complex<";
  const char *name = base_dtypes[dtype].hlo_name;
  size_t prefix = sizeof complex - 1, length = strlen(name);
  if (strncmp(name, complex, prefix) != 0) return named_type(w, name, length);
  uint32_t part = named_type(w, name + prefix, length - prefix - 1);
  base_text bytes = {0};
  out_varint(&bytes, VHLO_COMPLEX);
  out_varint(&bytes, part);
  return out_take(w, &w->types, OUT_VHLO, &bytes);
}

uint32_t out_type(writer *w, ir_type type) {
  uint32_t element = element_type(w, (ttpu_dtype)type.dtype);
  if (*base_dtypes[type.dtype].hlo_name == '!') return element; /* a token is no tensor */
  base_text bytes = {0};
  out_varint(&bytes, VHLO_RANKED_TENSOR);
  out_varint(&bytes, type.rank);
  for (uint32_t i = 0; i < type.rank; ++i) out_svarint(&bytes, type.dims[i]);
  out_varint(&bytes, element);
  return out_take(w, &w->types, OUT_VHLO, &bytes);
}

uint32_t out_function_type(writer *w, uint32_t inputs, const ir_value *input, uint32_t results,
                           const ir_value *result) {
  base_text bytes = {0};
  out_varint(&bytes, VHLO_FUNCTION);
  out_varint(&bytes, inputs);
  for (uint32_t i = 0; i < inputs; ++i) out_varint(&bytes, out_type(w, ir_type_of(w->func, input[i])));
  out_varint(&bytes, results);
  for (uint32_t i = 0; i < results; ++i) out_varint(&bytes, out_type(w, ir_type_of(w->func, result[i])));
  return out_take(w, &w->types, OUT_VHLO, &bytes);
}

/* ---- values --------------------------------------------------------------------------------- */

static uint32_t pair(writer *w, uint64_t code, uint64_t value) {
  base_text bytes = {0};
  out_varint(&bytes, code);
  out_varint(&bytes, value);
  return take(w, &bytes);
}

uint32_t out_text(writer *w, const char *text) { return pair(w, VHLO_STRING, out_string(w, text ? text : "")); }
uint32_t out_boolean(writer *w, bool value) { return pair(w, VHLO_BOOLEAN, value); }
uint32_t out_type_attribute(writer *w, uint32_t type) { return pair(w, VHLO_TYPE, type); }

uint32_t out_array(writer *w, uint32_t count, const uint32_t *attributes) {
  base_text bytes = {0};
  out_varint(&bytes, VHLO_ARRAY);
  out_varint(&bytes, count);
  for (uint32_t i = 0; i < count; ++i) out_varint(&bytes, attributes[i]);
  return take(w, &bytes);
}

uint32_t out_dictionary(writer *w, uint32_t count, const uint32_t *names_and_values) {
  base_text bytes = {0};
  out_varint(&bytes, VHLO_DICTIONARY);
  out_varint(&bytes, count);
  for (uint32_t i = 0; i < 2 * count; ++i) out_varint(&bytes, names_and_values[i]);
  return take(w, &bytes);
}

/* Of 32 or 64 bits; the former are not extended by their sign. */
static uint32_t integer(writer *w, bool wide, int64_t value) {
  base_text bytes = {0};
  out_varint(&bytes, VHLO_INTEGER);
  out_varint(&bytes, wide ? named_type(w, "i64", 3) : named_type(w, "i32", 3));
  out_svarint(&bytes, wide ? value : (int64_t)(uint32_t)value);
  return take(w, &bytes);
}

static uint32_t real(writer *w, double value) {
  int64_t bits;
  base_text bytes = {0};
  memcpy(&bits, &value, sizeof bits);
  out_varint(&bytes, VHLO_FLOAT);
  out_varint(&bytes, named_type(w, "f64", 3));
  out_svarint(&bytes, bits);
  return take(w, &bytes);
}

/* Booleans are packed, eight to a byte; one for all is 0xFF or 0. */
static void put_bools(base_text *bytes, const uint8_t *data, int64_t count, bool splat) {
  if (splat && count != 1) {
    out_varint(bytes, 1);
    out_byte(bytes, data[0] ? 0xFF : 0);
    return;
  }
  out_varint(bytes, ((uint64_t)count + 7) / 8);
  for (int64_t i = 0; i < count; i += 8) {
    unsigned byte = 0;
    for (int64_t k = i; k < count && k < i + 8; ++k) byte |= (unsigned)(data[k] != 0) << (k - i);
    out_byte(bytes, byte);
  }
}

static uint32_t tensor(writer *w, ir_type type, ir_data data) {
  int64_t count = ir_numel(type);
  size_t size = count ? ir_data_bytes(type, data) : 0;
  base_text bytes = {0};
  out_varint(&bytes, VHLO_TENSOR);
  out_varint(&bytes, out_type(w, type));
  if (type.dtype == TTPU_BOOL && count > 0) {
    put_bools(&bytes, data.bytes, count, data.splat);
  } else {
    out_varint(&bytes, size);
    if (size) base_text_put(&bytes, data.bytes, size);
  }
  return take(w, &bytes);
}

static uint32_t numbers(writer *w, uint32_t rank, const int64_t *dims, const int64_t *data) {
  return tensor(w, (ir_type){TTPU_I64, (uint8_t)rank, dims}, (ir_data){data, false});
}

static uint32_t list(writer *w, ir_i64s l) { return numbers(w, 1, (int64_t[]){l.count}, l.data); }

static uint32_t flags(writer *w, ir_flags l) {
  const int64_t dims[1] = {l.count};
  return tensor(w, (ir_type){TTPU_BOOL, 1, dims}, (ir_data){l.data, false});
}

/* The enumeration whose value `name` is, told by the tag of StableHLO's text form. */
static uint32_t enumeration(writer *w, const char *tag, const char *name) {
  static const struct {
    const char *tag;
    uint64_t code;
  } codes[] = {{"comparison_direction", VHLO_COMPARISON_DIRECTION},
               {"comparison_type", VHLO_COMPARISON_TYPE},
               {"precision", VHLO_PRECISION},
               {"rng_algorithm", VHLO_RNG_ALGORITHM},
               {"rng_distribution", VHLO_RNG_DISTRIBUTION},
               {"fft_type", VHLO_FFT_TYPE},
               {"transpose", VHLO_TRANSPOSE}};
  enum { MOST_VALUES_OF_ENUM = 8 };
  for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i)
    for (uint64_t value = 0; strcmp(tag, codes[i].tag) == 0 && value < MOST_VALUES_OF_ENUM; ++value) {
      const char *known = vhlo_enum_name(codes[i].code, value);
      if (known && strcmp(known, name) == 0) return pair(w, codes[i].code, value);
    }
  out_fail(w, TTPU_UNIMPLEMENTED, "a portable artifact has no %s %s", tag, name);
  return 0;
}

/* ---- what an operation's fields say, and what it means to say nothing ------------------------- */

/* n times the same number, as a list. */
static uint32_t repeated(writer *w, int64_t value, uint32_t rank, const int64_t *dims) {
  int64_t data[2 * TTPU_MAX_RANK], count = base_numel(rank, dims);
  for (int64_t i = 0; i < count && i < 2 * TTPU_MAX_RANK; ++i) data[i] = value;
  return numbers(w, rank, dims, data);
}

/* A window's list that is empty, which stands for 1 (0 for paddings, false for reversals) in each of n dimensions. */
static uint32_t default_list(writer *w, const char *name, int64_t n) {
  static const bool never[TTPU_MAX_RANK];
  if (strcmp(name, "padding") == 0) return repeated(w, 0, 2, (int64_t[]){n, 2});
  if (strcmp(name, "window_reversal") == 0) return flags(w, (ir_flags){never, (uint32_t)n});
  return repeated(w, 1, 1, &n);
}

/* The list with its shape: rows of two for paddings, of a group for replica groups. */
static uint32_t shaped_list(writer *w, const ir_op *op, const ir_field *field, ir_i64s l) {
  uint16_t attrs = ir_ops[op->kind].attrs;
  bool window = attrs == IR_ATTRS_window, convolution = attrs == IR_ATTRS_convolution;
  int64_t n = window        ? IR_ATTRS(op, window)->window_dimensions.count
              : convolution ? IR_ATTRS(op, convolution)->input_spatial_dimensions.count
                            : 0;
  if (field->kind == FIELD_SIZES && l.count == 0 && n > 0) return default_list(w, field->name, n);
  if ((window || convolution) && strcmp(field->name, "padding") == 0)
    return numbers(w, 2, (int64_t[]){l.count / 2, 2}, l.data);
  if (attrs != IR_ATTRS_replica_groups) return list(w, l);
  int64_t groups = IR_ATTRS(op, replica_groups)->group_count;
  return numbers(w, 2, (int64_t[]){groups, groups ? l.count / groups : 0}, l.data);
}

static uint32_t field_value(writer *w, const ir_op *op, const ir_field *field) {
  const void *at = (const uint8_t *)op->attrs + field->offset;
  bool ours = ir_ops[op->kind].flags & IR_COMPOSITE, narrow = ir_ops[op->kind].attrs == IR_ATTRS_reduce_precision;
  switch ((ir_field_kind)field->kind) {
    case FIELD_DIMS:
    case FIELD_SIZES: return shaped_list(w, op, field, *(const ir_i64s *)at);
    case FIELD_I64:
    case FIELD_SIZE: return integer(w, !narrow, *(const int64_t *)at);
    case FIELD_F64: return real(w, *(const double *)at);
    case FIELD_FLAG: return out_boolean(w, *(const bool *)at);
    case FIELD_FLAGS: {
      const ir_flags *l = at;
      if (l->count == 0 && ir_ops[op->kind].attrs == IR_ATTRS_convolution)
        return default_list(w, field->name, IR_ATTRS(op, convolution)->input_spatial_dimensions.count);
      return flags(w, *l);
    }
    case FIELD_ENUM: {
      const char *name = field->names[*(const unsigned *)at];
      return ours || !field->tag ? out_text(w, name) : enumeration(w, field->tag, name);
    }
    case FIELD_DATA: return tensor(w, ir_type_of(w->func, op->first_result), *(const ir_data *)at);
    case FIELD_TEXT: return out_text(w, *(const char *const *)at);
  }
  return 0;
}

/* An attribute that no field has: what StableHLO takes its absence for. */
static uint32_t absent(writer *w, const ir_op *op, const char *name) {
  static const char *const empty_arrays[] = {"called_computations",    "operand_layouts", "result_layouts",
                                             "output_operand_aliases", "result_tilings",  "layout"};
  static const char *const algorithm[] = {
      "lhs_precision_type",  "rhs_precision_type",       "accumulation_type",           "lhs_component_count",
      "rhs_component_count", "num_primitive_operations", "allow_imprecise_accumulation"};
  for (size_t i = 0; i < sizeof empty_arrays / sizeof *empty_arrays; ++i)
    if (strcmp(name, empty_arrays[i]) == 0) return out_array(w, 0, NULL);
  for (size_t i = 0; i < sizeof algorithm / sizeof *algorithm; ++i)
    if (strcmp(name, algorithm[i]) == 0) return out_type_attribute(w, named_type(w, "none", 4));
  if (strcmp(name, "compare_type") == 0) return enumeration(w, "comparison_type", "NOTYPE");
  if (strcmp(name, "api_version") == 0) return pair(w, VHLO_API_VERSION, 1); /* API_VERSION_ORIGINAL */
  if (strcmp(name, "backend_config") == 0) return out_text(w, "");
  if (strcmp(name, "source_target_pairs") == 0) return numbers(w, 2, (const int64_t[]){0, 2}, NULL);
  if (strcmp(name, "channel_id") == 0) return integer(w, true, 0);
  if (strcmp(name, "use_global_device_ids") == 0 || strcmp(name, "has_dynamic_root") == 0) return out_boolean(w, false);
  if (strcmp(name, "result_accuracy") == 0) { /* no tolerances; mode DEFAULT */
    uint32_t mode = pair(w, VHLO_RESULT_ACCURACY_MODE, 0);
    base_text bytes = {0};
    out_varint(&bytes, VHLO_RESULT_ACCURACY);
    for (int i = 0; i < 3; ++i) out_svarint(&bytes, 0);
    out_varint(&bytes, mode);
    return take(w, &bytes);
  }
  out_fail(w, TTPU_UNIMPLEMENTED, "%s: nothing to write for %s", ir_ops[op->kind].name, name);
  return 0;
}

static uint32_t precisions(writer *w, const ir_op *op, const ir_field *field) {
  const void *at = (const uint8_t *)op->attrs + field->offset;
  uint32_t one = enumeration(w, field->tag, field->names[*(const unsigned *)at]);
  return out_array(w, 2, (uint32_t[]){one, one});
}

/* The value of one attribute of the row. */
static uint32_t value_of(writer *w, const ir_op *op, const char *name) {
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[op->kind].attrs];
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const ir_field *field = &info->fields[i];
    if (strcmp(ir_field_text_name((ir_kind)op->kind, field), name) == 0) return field_value(w, op, field);
    if (strcmp(name, "precision_config") == 0 && strcmp(field->name, "precision") == 0) return precisions(w, op, field);
  }
  return absent(w, op, name);
}

uint32_t out_properties(writer *w, const ir_op *op, const vhlo_op *form) {
  base_text bytes = {0};
  char name[64];
  for (const char *at = form->attributes; *at && !w->status;) {
    size_t length = strcspn(at, " ");
    if (length >= sizeof name) break;
    memcpy(name, at, length);
    name[length] = 0;
    out_varint(&bytes, value_of(w, op, name));
    at += length + (at[length] == ' ');
  }
  return out_take(w, &w->properties, 0, &bytes);
}

/* composite_attributes, decomposition, name, version. */
uint32_t out_composite_properties(writer *w, const ir_op *op) {
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[op->kind].attrs];
  enum { MOST_FIELDS = 32 };
  uint32_t fields[2 * MOST_FIELDS], number = ir_decomposition_of(&w->decompositions, w->func, op);
  char name[64], symbol[80];
  for (uint32_t i = 0; i < info->field_count && i < MOST_FIELDS; ++i) {
    fields[2 * i] = out_text(w, info->fields[i].name);
    fields[2 * i + 1] = field_value(w, op, &info->fields[i]);
  }
  snprintf(name, sizeof name, "ttpu.%s", ir_ops[op->kind].name);
  snprintf(symbol, sizeof symbol, "%s.%u", name, number);
  base_text bytes = {0};
  out_varint(&bytes, out_dictionary(w, info->field_count, fields));
  out_varint(&bytes, out_text(w, symbol));
  out_varint(&bytes, out_text(w, name));
  out_varint(&bytes, integer(w, false, 1));
  return out_take(w, &w->properties, 0, &bytes);
}
