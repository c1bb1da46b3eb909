/* The text form: MLIR's generic syntax, which every StableHLO parser reads whatever its version, and which is the
 * same for all operations.
 *
 *   module {
 *     func.func public @main(%1: tensor<2xf32> {jax.buffer_donor = true}, %2: tensor<2xf32>) -> (tensor<2xf32>) {
 *       %3 = "stablehlo.add"(%1, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *       "func.return"(%3) : (tensor<2xf32>) -> ()
 *     }
 *   }
 *
 * A value's name is its handle; a second result of %5 is %5#1. Composites are calls to a private function that
 * holds their decomposition, one per distinct composite. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/ir_int.h"

typedef struct printer {
  base_text *out;
  const ir_func *func;
  ir_decompositions decompositions; /* private functions that were referred to, printed after @main */
} printer;

#define PUT(...) base_text_printf(p->out, __VA_ARGS__)

static void put(printer *p, const char *text) { base_text_put(p->out, text, strlen(text)); }

/* ---- types, values, strings ----------------------------------------------------------------- */

static void put_int(printer *p, int64_t v) {
  char digits[24];
  int at = sizeof digits;
  uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  do digits[--at] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (v < 0) digits[--at] = '-';
  base_text_put(p->out, digits + at, sizeof digits - (size_t)at);
}

static void put_type(printer *p, ir_type t) {
  if (t.dtype == TTPU_TOKEN) {
    put(p, base_dtypes[t.dtype].hlo_name);
    return;
  }
  put(p, "tensor<");
  for (uint32_t i = 0; i < t.rank; ++i) {
    put_int(p, t.dims[i]);
    put(p, "x");
  }
  put(p, base_dtypes[t.dtype].hlo_name);
  put(p, ">");
}

static void put_value(printer *p, ir_value v) {
  const ir_value_info *info = &p->func->values[v];
  put(p, "%");
  put_int(p, info->def ? info->def->first_result : v);
  if (info->def && info->def->result_count > 1) {
    put(p, "#");
    put_int(p, info->number);
  }
}

/* (a, b) -> c, or -> (c, d). */
static void put_types(printer *p, uint32_t count, const ir_value *values) {
  put(p, "(");
  for (uint32_t i = 0; i < count; ++i) {
    if (i) put(p, ", ");
    put_type(p, ir_type_of(p->func, values[i]));
  }
  put(p, ")");
}

static void put_result_types(printer *p, const ir_op *op) {
  if (op->result_count != 1) put(p, "(");
  for (uint32_t i = 0; i < op->result_count; ++i) {
    if (i) put(p, ", ");
    put_type(p, ir_type_of(p->func, op->first_result + i));
  }
  if (op->result_count != 1) put(p, ")");
}

static void put_string(printer *p, const char *text) {
  put(p, "\"");
  for (const char *c = text ? text : ""; *c; ++c) {
    unsigned char u = (unsigned char)*c;
    if (u == '"' || u == '\\' || u < 32 || u > 126) PUT("\\%02X", u);
    else base_text_put(p->out, c, 1);
  }
  put(p, "\"");
}

/* ---- dense elements ------------------------------------------------------------------------- */

static void put_float(printer *p, ttpu_dtype t, double v, const void *bytes) {
  char text[40];
  uint64_t bits = 0;
  if (!isfinite(v)) { /* only as bits, which keeps a NaN's payload */
    memcpy(&bits, bytes, base_dtype_bytes(t));
    PUT("0x%0*" PRIX64, (int)base_dtype_bytes(t) * 2, bits);
    return;
  }
  /* 9 digits name a float, 17 a double; all narrower types are floats too */
  snprintf(text, sizeof text, "%.*g", t == TTPU_F64 ? 17 : 9, v);
  char *point = strpbrk(text, ".,"), *exponent = strchr(text, 'e');
  if (point) *point = '.'; /* whatever the host program's locale */
  if (point) put(p, text);
  else if (exponent) PUT("%.*s.0%s", (int)(exponent - text), text, exponent); /* MLIR wants a point */
  else PUT("%s.0", text);
}

static void put_element(printer *p, ttpu_dtype t, const uint8_t *bytes) {
  base_scalar v = base_scalar_load(t, bytes);
  switch (base_dtypes[t].cls) {
    case DTYPE_TOKEN: break;
    case DTYPE_BOOL: put(p, v.i ? "true" : "false"); break;
    case DTYPE_UNSIGNED: PUT("%" PRIu64, v.u); break;
    case DTYPE_SIGNED: put_int(p, v.i); break;
    case DTYPE_FLOAT: put_float(p, t, v.d[0], bytes); break;
    case DTYPE_COMPLEX: {
      ttpu_dtype part = t == TTPU_C64 ? TTPU_F32 : TTPU_F64;
      put(p, "(");
      put_float(p, part, v.d[0], bytes);
      put(p, ", ");
      put_float(p, part, v.d[1], bytes + base_dtype_bytes(part));
      put(p, ")");
      break;
    }
  }
}

static const uint8_t *put_nested(printer *p, ir_type t, uint32_t dim, const uint8_t *bytes) {
  if (dim == t.rank) {
    put_element(p, (ttpu_dtype)t.dtype, bytes);
    return bytes + base_dtype_bytes((ttpu_dtype)t.dtype);
  }
  put(p, "[");
  for (int64_t i = 0; i < t.dims[dim]; ++i) {
    if (i) put(p, ", ");
    bytes = put_nested(p, t, dim + 1, bytes);
  }
  put(p, "]");
  return bytes;
}

static void put_hex(printer *p, const uint8_t *bytes, size_t length) {
  static const char digits[] = "0123456789ABCDEF";
  char chunk[512];
  put(p, "\"0x");
  for (size_t i = 0; i < length;) {
    size_t n = 0;
    for (; n < sizeof chunk && i < length; ++i) {
      chunk[n++] = digits[bytes[i] >> 4];
      chunk[n++] = digits[bytes[i] & 15];
    }
    base_text_put(p->out, chunk, n);
  }
  put(p, "\"");
}

/* dense<...> : type. Long lists go as hexadecimal; i1 never does, because MLIR packs its bits. */
static void put_dense(printer *p, ir_type t, ir_data d) {
  enum { LONGEST_LIST = 16 };
  int64_t count = ir_numel(t);
  put(p, "dense<");
  if (count == 0) {
  } else if (d.splat) {
    put_element(p, (ttpu_dtype)t.dtype, d.bytes);
  } else if (count <= LONGEST_LIST || t.dtype == TTPU_BOOL) {
    put_nested(p, t, 0, d.bytes);
  } else {
    put_hex(p, d.bytes, ir_data_bytes(t, d));
  }
  put(p, "> : ");
  put_type(p, t);
}

/* A list of numbers as rows of `columns`: dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>. */
static void put_rows(printer *p, ir_i64s list, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  put(p, "dense<");
  if (list.count) put_nested(p, (ir_type){TTPU_I64, 2, dims}, 0, (const uint8_t *)list.data);
  PUT("> : tensor<%" PRId64 "x%" PRId64 "xi64>", rows, columns);
}

/* ---- attributes ----------------------------------------------------------------------------- */

static void put_list(printer *p, ir_i64s list) {
  for (uint32_t i = 0; i < list.count; ++i) {
    if (i) put(p, ", ");
    put_int(p, list.data[i]);
  }
}

/* One group of dimension numbers of a convolution: [b, f, 0, 1]. */
static void put_conv_dims(printer *p, char first_name, int64_t first, char second_name, int64_t second,
                          ir_i64s spatial) {
  put(p, "[");
  for (int64_t i = 0; i < (int64_t)spatial.count + 2; ++i) {
    if (i) put(p, ", ");
    if (i == first || i == second) PUT("%c", i == first ? first_name : second_name);
    for (uint32_t k = 0; k < spatial.count; ++k)
      if (spatial.data[k] == i) put_int(p, k);
  }
  put(p, "]");
}

static void put_conv_numbers(printer *p, const ir_convolution_attrs *a) {
  put(p, "dimension_numbers = #stablehlo.conv<");
  put_conv_dims(p, 'b', a->input_batch_dimension, 'f', a->input_feature_dimension, a->input_spatial_dimensions);
  put(p, "x");
  put_conv_dims(p, 'i', a->kernel_input_feature_dimension, 'o', a->kernel_output_feature_dimension,
                a->kernel_spatial_dimensions);
  put(p, "->");
  put_conv_dims(p, 'b', a->output_batch_dimension, 'f', a->output_feature_dimension, a->output_spatial_dimensions);
  put(p, ">");
}

/* Fields whose text is not `name = value`. Sets *skip when nothing is to be printed for it. */
static bool put_special(printer *p, const ir_op *op, const ir_field *field, const void *at, bool *skip) {
  const ir_i64s *list = at;
  uint16_t attrs = ir_ops[op->kind].attrs;
  bool padding = strcmp(field->name, "padding") == 0;
  *skip = false;
  if (strcmp(field->name, "precision") == 0) {
    const char *name = field->names[*(const unsigned *)at];
    PUT("precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]", name, name);
    return true;
  }
  if (attrs == IR_ATTRS_convolution || attrs == IR_ATTRS_window) {
    bool is_list = field->kind == FIELD_SIZES || field->kind == FIELD_FLAGS;
    bool required = strcmp(field->name, "window_dimensions") == 0; /* empty at rank 0 */
    if (is_list && list->count == 0 && !required) return *skip = true;
    if (padding) {
      put(p, "padding = ");
      put_rows(p, *list, list->count / 2, 2);
      return true;
    }
  }
  if (attrs == IR_ATTRS_convolution) {
    if (strcmp(field->name, "input_batch_dimension") == 0) return put_conv_numbers(p, IR_ATTRS(op, convolution)), true;
    if (strstr(field->name, "_dimension")) return *skip = true;
  }
  if (attrs == IR_ATTRS_reduce_precision) {
    PUT("%s = %" PRId64 " : i32", field->name, *(const int64_t *)at);
    return true;
  }
  if (attrs == IR_ATTRS_manual_computation) { /* attributes of another dialect, kept as text */
    PUT("%s = %s", field->name, *(const char *const *)at);
    return true;
  }
  if (field->kind == FIELD_TEXT && !*(const char *const *)at && !(ir_ops[op->kind].flags & IR_COMPOSITE))
    return *skip = true;
  if (attrs == IR_ATTRS_transfer && field->kind == FIELD_I64) {
    const ir_transfer_attrs *a = IR_ATTRS(op, transfer);
    if (strcmp(field->name, "channel_type") == 0) return *skip = true;
    PUT("channel_handle = #stablehlo.channel_handle<handle = %" PRId64 ", type = %" PRId64 ">", a->channel_id,
        a->channel_type);
    return true;
  }
  if (attrs == IR_ATTRS_replica_groups) {
    const ir_replica_groups_attrs *a = IR_ATTRS(op, replica_groups);
    if (field->kind == FIELD_SIZES) {
      PUT("%s = ", ir_field_text_name((ir_kind)op->kind, field));
      put_rows(p, *list, a->group_count, a->group_count ? list->count / a->group_count : 0);
      return true;
    }
    if (strcmp(field->name, "channel_id") == 0 && a->channel_id > 0) {
      PUT("channel_handle = #stablehlo.channel_handle<handle = %" PRId64 ", type = 1>", a->channel_id);
      return true;
    }
    if (field->kind == FIELD_FLAG && *(const bool *)at) return put(p, field->name), true;
    bool one = strcmp(field->name, "dimension") == 0 && ir_field_text_name((ir_kind)op->kind, field) != field->name;
    bool all = op->kind == IR_ALL_TO_ALL &&
               (strcmp(field->name, "concat_dimension") == 0 || strcmp(field->name, "split_count") == 0);
    if (!one && !all) return *skip = true;
  }
  return false;
}

static void put_plain(printer *p, const ir_op *op, const char *name, const ir_field *field, const void *at) {
  bool ours = ir_ops[op->kind].flags & IR_COMPOSITE;
  PUT("%s = ", name);
  switch ((ir_field_kind)field->kind) {
    case FIELD_DIMS:
    case FIELD_SIZES: {
      const ir_i64s *list = at;
      if (ours) { /* composites' attributes become VHLO, which knows no array<> outside its own operations */
        const int64_t dims[1] = {list->count};
        put_dense(p, (ir_type){TTPU_I64, 1, dims}, (ir_data){list->data, false});
        break;
      }
      put(p, list->count ? "array<i64: " : "array<i64");
      put_list(p, *list);
      put(p, ">");
      break;
    }
    case FIELD_I64:
    case FIELD_SIZE: PUT("%" PRId64 " : i64", *(const int64_t *)at); break;
    case FIELD_F64:
      put_float(p, TTPU_F64, *(const double *)at, at);
      put(p, " : f64");
      break;
    case FIELD_FLAG: put(p, *(const bool *)at ? "true" : "false"); break;
    case FIELD_FLAGS: {
      const ir_flags *flags = at;
      put(p, flags->count ? "array<i1: " : "array<i1");
      for (uint32_t i = 0; i < flags->count; ++i) PUT("%s%s", i ? ", " : "", flags->data[i] ? "true" : "false");
      put(p, ">");
      break;
    }
    case FIELD_ENUM: {
      const char *value = field->names[*(const unsigned *)at];
      if (field->tag) PUT("#stablehlo<%s %s>", field->tag, value);
      else put_string(p, value);
      break;
    }
    case FIELD_DATA: put_dense(p, ir_type_of(p->func, op->first_result), *(const ir_data *)at); break;
    case FIELD_TEXT: put_string(p, *(const char *const *)at); break;
  }
}

static void put_record(printer *p, const ir_op *op, const ir_attrs_info *info, const ir_record *record) {
  PUT("%s = #stablehlo.%s<", record->name, record->mnemonic);
  for (uint32_t i = record->first; i < record->end; ++i) {
    const ir_field *field = &info->fields[i];
    const void *at = (const uint8_t *)op->attrs + field->offset;
    PUT("%s%s = ", i > record->first ? ", " : "", field->name);
    if (field->kind == FIELD_I64) {
      put_int(p, *(const int64_t *)at);
    } else {
      put(p, "[");
      put_list(p, *(const ir_i64s *)at);
      put(p, "]");
    }
  }
  put(p, ">");
}

/* The fields, separated by commas, without braces. */
static void put_fields(printer *p, const ir_op *op) {
  uint16_t attrs = ir_ops[op->kind].attrs;
  const ir_attrs_info *info = &ir_attrs_infos[attrs];
  bool first = true;
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const ir_field *field = &info->fields[i];
    const void *at = (const uint8_t *)op->attrs + field->offset;
    const ir_record *record = ir_record_of(attrs, i);
    if (record && i > record->first) continue;
    size_t before = p->out->length;
    if (!first) put(p, ", ");
    bool skip = false;
    if (record) put_record(p, op, info, record);
    else if (!put_special(p, op, field, at, &skip))
      put_plain(p, op, ir_field_text_name((ir_kind)op->kind, field), field, at);
    if (skip && !p->out->failed) {
      p->out->length = before; /* takes the comma back */
      if (p->out->data) p->out->data[before] = 0;
    }
    first &= skip;
  }
}

/* ---- composites ----------------------------------------------------------------------------- */

static void put_composite(printer *p, const ir_op *op) {
  const char *name = ir_ops[op->kind].name;
  PUT(" {name = \"ttpu.%s\", composite_attributes = {", name);
  put_fields(p, op);
  PUT("}, decomposition = @ttpu.%s.%u, version = 1 : i32}", name, ir_decomposition_of(&p->decompositions, p->func, op));
}

/* ---- operations, regions, functions --------------------------------------------------------- */

static void put_region(printer *p, const ir_region *r, int depth);

static void put_indent(printer *p, int depth) {
  for (int i = 0; i < depth; ++i) put(p, "  ");
}

static const char *dialect_of(const ir_op *op, bool at_top) {
  if (op->kind == IR_RETURN && at_top) return "func";
  return op->kind == IR_MANUAL_COMPUTATION ? "sdy" : "stablehlo";
}

static void put_op(printer *p, const ir_op *op, int depth, bool at_top) {
  bool composite = ir_ops[op->kind].flags & IR_COMPOSITE;
  put_indent(p, depth);
  if (op->result_count) {
    put(p, "%");
    put_int(p, op->first_result);
    if (op->result_count > 1) PUT(":%u", op->result_count);
    put(p, " = ");
  }
  if (composite) put(p, "\"stablehlo.composite\"(");
  else PUT("\"%s.%s\"(", dialect_of(op, at_top), ir_ops[op->kind].name);
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    if (i) put(p, ", ");
    put_value(p, op->operands[i]);
  }
  put(p, ")");
  for (uint32_t i = 0; i < op->region_count; ++i) {
    put(p, i ? ", {\n" : " ({\n");
    put_region(p, op->regions[i], depth + 1);
    put_indent(p, depth);
    put(p, "}");
  }
  if (op->region_count) put(p, ")");
  if (composite) {
    put_composite(p, op);
  } else if (ir_ops[op->kind].attrs) {
    size_t before = p->out->length;
    put(p, " {");
    put_fields(p, op);
    if (!p->out->failed && p->out->length == before + 2) p->out->length = before; /* all were left at their defaults */
    else put(p, "}");
  }
  put(p, " : ");
  put_types(p, op->operand_count, op->operands);
  put(p, " -> ");
  put_result_types(p, op);
  put(p, "\n");
}

static void put_region(printer *p, const ir_region *r, int depth) {
  if (r->arg_count) {
    put_indent(p, depth - 1);
    put(p, "^bb0(");
    for (uint32_t i = 0; i < r->arg_count; ++i) {
      PUT("%s%%%u: ", i ? ", " : "", r->first_arg + i);
      put_type(p, ir_type_of(p->func, r->first_arg + i));
    }
    put(p, "):\n");
  }
  for (uint32_t i = 0; i < r->count; ++i) put_op(p, r->ops[i], depth, false);
}

static void put_annotation(printer *p, const char *const *annotations, uint32_t i) {
  if (annotations && annotations[i] && annotations[i][0]) PUT(" {%s}", annotations[i]);
}

static void put_func(printer *p, const ir_func *f, bool public, const char *name, int number,
                     const ir_annotations *annotations) {
  const ir_region *r = &f->body;
  p->func = f;
  PUT("  func.func %s @", public ? "public" : "private");
  bool plain = *name && !(*name >= '0' && *name <= '9') &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.") == strlen(name);
  if (plain) put(p, name);
  else put_string(p, name);
  if (number >= 0) PUT(".%d", number);
  put(p, "(");
  for (uint32_t i = 0; i < r->arg_count; ++i) {
    PUT("%s%%%u: ", i ? ", " : "", r->first_arg + i);
    put_type(p, ir_type_of(f, r->first_arg + i));
    if (f->donate && f->donate[i]) put(p, " {jax.buffer_donor = true}");
    put_annotation(p, annotations->arguments, i);
  }
  put(p, ") -> (");
  const ir_op *ret = r->count ? r->ops[r->count - 1] : NULL;
  for (uint32_t i = 0; ret && i < ret->operand_count; ++i) {
    if (i) put(p, ", ");
    put_type(p, ir_type_of(f, ret->operands[i]));
    put_annotation(p, annotations->results, i);
  }
  put(p, ") {\n");
  for (uint32_t i = 0; i < r->count; ++i) put_op(p, r->ops[i], 2, true);
  put(p, "  }\n");
}

ttpu_status ir_func_print(const ir_func *f, base_text *out) {
  return ir_func_print_annotated(f, &(ir_annotations){0}, out);
}

ttpu_status ir_func_print_annotated(const ir_func *f, const ir_annotations *annotations, base_text *out) {
  printer printer = {.out = out}, *p = &printer;
  ttpu_status status = TTPU_OK;
  base_arena arena;
  base_arena_init(&arena);
  if (annotations->module) PUT("module attributes {%s} {\n", annotations->module);
  else put(p, "module {\n");
  put_func(p, f, true, f->name, -1, annotations);
  for (uint32_t i = 0; i < p->decompositions.count && status == TTPU_OK;
       ++i) { /* the list may grow while it is walked */
    ir_func *body = NULL;
    char name[64];
    status = ir_decomposition_build(&p->decompositions, i, &arena, &body);
    if (status) break;
    snprintf(name, sizeof name, "ttpu.%s", body->name);
    put_func(p, body, false, name, (int)i, &(ir_annotations){0});
  }
  put(p, "}\n");
  if (status == TTPU_OK && (p->decompositions.failed || out->failed)) status = base_no_memory(out->length);
  base_free(p->decompositions.list);
  base_arena_free(&arena);
  return status;
}

void ir_dump(const ir_func *f, const char *stage) {
  if (!base_dump_enabled(stage)) return;
  base_text text = {0};
  ttpu_status status = ir_func_print(f, &text);
  fprintf(stderr, "// ---- %s\n%s", stage, status == TTPU_OK ? text.data : "");
  if (status != TTPU_OK) fprintf(stderr, "// %s\n", base_message());
  base_text_free(&text);
}
