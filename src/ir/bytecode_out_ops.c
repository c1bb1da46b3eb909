/* Operations of a portable artifact, written: see bytecode_out.h. */
#include <stdio.h>
#include <string.h>

#include "ir/bytecode_out.h"

/* ---- which form ----------------------------------------------------------------------------- */

static const char *vhlo_name(const ir_op *op) {
  return ir_ops[op->kind].flags & IR_COMPOSITE ? "composite" : ir_ops[op->kind].name;
}

static bool has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; (at = strstr(at, word)); at += length)
    if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  return false;
}

/* Does it say anything in a list that this form lacks? Batching dimensions, in the first forms of gather and scatter. */
static bool form_holds(const vhlo_op *form, const ir_op *op) {
  bool composite = ir_ops[op->kind].flags & IR_COMPOSITE;
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[op->kind].attrs];
  for (uint32_t i = 0; i < info->field_count && !composite; ++i) {
    const ir_field *field = &info->fields[i];
    const ir_i64s *list = (const void *)((const uint8_t *)op->attrs + field->offset);
    if (field->kind == FIELD_DIMS && list->count && !has_word(form->attributes, field->name)) return false;
  }
  bool collective = op->kind == IR_ALL_GATHER || op->kind == IR_ALL_REDUCE || op->kind == IR_ALL_TO_ALL ||
                    op->kind == IR_COLLECTIVE_BROADCAST;
  return !(collective && form->version == 1 && op->operand_count != 1); /* the second form takes several */
}

static unsigned needed_by_type(ir_type type) { return vhlo_type_since(base_dtypes[type.dtype].hlo_name); }

static unsigned needed_by_region(const ir_func *f, const ir_region *r) {
  unsigned needed = VHLO_OLDEST_WRITTEN;
#define AT_LEAST(version)                     \
  do {                                        \
    unsigned version_ = (version);            \
    if (version_ > needed) needed = version_; \
  } while (0)
  for (uint32_t i = 0; i < r->arg_count; ++i) AT_LEAST(needed_by_type(ir_type_of(f, r->first_arg + i)));
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    const vhlo_op *form = vhlo_op_first(vhlo_name(op));
    while (form && form->last && !form_holds(form, op)) ++form; /* versions of one operation follow each other */
    if (form) AT_LEAST(form->first);
    for (uint32_t k = 0; k < op->result_count; ++k) AT_LEAST(needed_by_type(ir_type_of(f, op->first_result + k)));
    for (uint32_t k = 0; k < op->region_count; ++k) AT_LEAST(needed_by_region(f, op->regions[k]));
  }
#undef AT_LEAST
  return needed;
}

unsigned vhlo_version_needed(const ir_func *f) { return needed_by_region(f, &f->body); }

/* ---- operations ----------------------------------------------------------------------------- */

enum { HAS_RESULTS = 2, HAS_OPERANDS = 4, HAS_REGIONS = 16, HAS_PROPERTIES = 64 };

/* The one location, unknown: builtin attribute 15 without parts. */
static uint32_t location(writer *w) {
  base_text bytes = {0};
  out_varint(&bytes, 15);
  return out_take(w, &w->attributes, OUT_BUILTIN, &bytes);
}

/* Name, parts and location of an operation. */
static void put_head(writer *w, base_text *out, uint32_t dialect, const char *name, unsigned parts) {
  out_varint(out, out_name(w, dialect, name));
  out_byte(out, parts);
  out_varint(out, location(w));
}

static void put_vhlo_head(writer *w, base_text *out, const vhlo_op *form, unsigned parts) {
  char name[80];
  snprintf(name, sizeof name, "%s_v%u", form->name, form->version);
  put_head(w, out, OUT_VHLO, name, parts);
}

static void put_region(writer *w, base_text *out, const ir_region *r, uint32_t first);

/* `first`: the number that the first value of an inner region gets. */
static void put_op(writer *w, base_text *out, const ir_op *op, uint32_t first) {
  const vhlo_op *form = vhlo_op_at(vhlo_name(op), w->version);
  bool composite = ir_ops[op->kind].flags & IR_COMPOSITE;
  if (!form) {
    out_fail(w, TTPU_UNIMPLEMENTED, "%s is no operation of StableHLO %u.%u", ir_ops[op->kind].name, w->version / 100,
             w->version % 100);
    return;
  }
  unsigned parts = (op->result_count ? HAS_RESULTS : 0) | (op->operand_count ? HAS_OPERANDS : 0) |
                   (op->region_count ? HAS_REGIONS : 0) | (*form->attributes ? HAS_PROPERTIES : 0);
  put_vhlo_head(w, out, form, parts);
  if (parts & HAS_PROPERTIES)
    out_varint(out, composite ? out_composite_properties(w, op) : out_properties(w, op, form));
  if (parts & HAS_RESULTS) {
    out_varint(out, op->result_count);
    for (uint32_t i = 0; i < op->result_count; ++i)
      out_varint(out, out_type(w, ir_type_of(w->func, op->first_result + i)));
  }
  if (parts & HAS_OPERANDS) {
    out_varint(out, op->operand_count);
    for (uint32_t i = 0; i < op->operand_count; ++i) out_varint(out, w->numbers[op->operands[i]]);
  }
  if (parts & HAS_REGIONS) out_varint(out, (uint64_t)op->region_count << 1); /* not isolated */
  for (uint32_t i = 0; i < op->region_count; ++i) put_region(w, out, op->regions[i], first);
}

/* Numbers its values from `first` on, and writes its one block. */
static void put_region(writer *w, base_text *out, const ir_region *r, uint32_t first) {
  uint32_t next = first;
  for (uint32_t i = 0; i < r->arg_count; ++i) w->numbers[r->first_arg + i] = next++;
  for (uint32_t i = 0; i < r->count; ++i)
    for (uint32_t k = 0; k < r->ops[i]->result_count; ++k) w->numbers[r->ops[i]->first_result + k] = next++;
  out_varint(out, 1);
  out_varint(out, next - first);
  out_varint(out, (uint64_t)r->count << 1 | (r->arg_count > 0));
  if (r->arg_count) {
    out_varint(out, r->arg_count);
    for (uint32_t i = 0; i < r->arg_count; ++i)
      out_varint(out, (uint64_t)out_type(w, ir_type_of(w->func, r->first_arg + i)) << 1); /* no location */
    out_byte(out, 0);                                                                     /* nor an order of uses */
  }
  for (uint32_t i = 0; i < r->count && !w->status; ++i) put_op(w, out, r->ops[i], next);
}

/* ---- functions ------------------------------------------------------------------------------ */

/* {jax.buffer_donor = true, mhlo.sharding = "..."}, each where there is something to say. */
static uint32_t value_attributes(writer *w, bool donated, const char *sharding) {
  uint32_t pairs[4], count = 0;
  if (donated) {
    pairs[2 * count] = out_text(w, "jax.buffer_donor");
    pairs[2 * count++ + 1] = out_boolean(w, true);
  }
  if (sharding && *sharding != '{') /* Shardy's are attributes of its own dialect */
    out_fail(w, TTPU_UNIMPLEMENTED, "the sharding %.100s cannot be written: only mhlo.sharding can", sharding);
  if (sharding) {
    pairs[2 * count] = out_text(w, "mhlo.sharding");
    pairs[2 * count++ + 1] = out_text(w, sharding);
  }
  return out_dictionary(w, count, pairs);
}

/* An array of them, one for each parameter or result. */
static uint32_t all_attributes(writer *w, uint32_t count, const bool *donate, const char *const *shardings) {
  uint32_t *all = base_calloc(count + 1, sizeof *all);
  if (!all) out_fail(w, TTPU_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; all && i < count; ++i)
    all[i] = value_attributes(w, donate && donate[i], shardings ? shardings[i] : NULL);
  uint32_t array = all ? out_array(w, count, all) : 0;
  base_free(all);
  return array;
}

static uint32_t function_type(writer *w, const ir_func *f, const ir_op *ret) {
  uint32_t count = f->body.arg_count;
  ir_value *parameters = base_calloc(count + 1, sizeof *parameters);
  if (!parameters) out_fail(w, TTPU_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; parameters && i < count; ++i) parameters[i] = f->body.first_arg + i;
  uint32_t type = parameters ? out_function_type(w, count, parameters, ret->operand_count, ret->operands) : 0;
  base_free(parameters);
  return type;
}

static void put_function(writer *w, base_text *out, const ir_func *f, const char *name, bool is_public) {
  const vhlo_op *form = vhlo_op_at("func", w->version);
  const ir_op *ret = f->body.count ? f->body.ops[f->body.count - 1] : NULL;
  const ir_shardings *s = f->shardings;
  if (!ret || ret->kind != IR_RETURN) {
    out_fail(w, TTPU_INVALID_ARGUMENT, "@%s does not return", name);
    return;
  }
  w->func = f;
  base_free(w->numbers);
  w->numbers = base_calloc(f->value_count, sizeof *w->numbers);
  if (!w->numbers) {
    out_fail(w, TTPU_RESOURCE_EXHAUSTED, "out of host memory");
    return;
  }
  base_text properties = {0};
  out_varint(&properties, all_attributes(w, f->body.arg_count, f->donate, s ? s->parameters : NULL)); /* arg_attrs */
  out_varint(&properties, out_type_attribute(w, function_type(w, f, ret)));                    /* function_type */
  out_varint(&properties, all_attributes(w, ret->operand_count, NULL, s ? s->results : NULL)); /* res_attrs */
  out_varint(&properties, out_text(w, name));                                                  /* sym_name */
  out_varint(&properties, out_text(w, is_public ? "public" : "private"));                      /* sym_visibility */
  put_vhlo_head(w, out, form, HAS_PROPERTIES | HAS_REGIONS);
  out_varint(out, out_take(w, &w->properties, 0, &properties));
  out_varint(out, 1 << 1);
  put_region(w, out, &f->body, 0);
}

/* The decompositions of composites, which may have composites again: the list grows while it is walked. */
static void put_decompositions(writer *w, base_text *out, base_arena *arena, uint32_t *count) {
  for (uint32_t i = 0; i < w->decompositions.count && !w->status; ++i) {
    ir_func *f = NULL;
    char name[80];
    w->status = ir_decomposition_build(&w->decompositions, i, arena, &f);
    if (w->status) return;
    snprintf(name, sizeof name, "ttpu.%s.%u", f->name, i);
    put_function(w, out, f, name, false);
    ++*count;
  }
}

/* The file's block has one operation, the module, which is isolated: its region is a section of its own. */
void out_module(writer *w, const ir_func *f) {
  base_text functions = {0}, module = {0};
  base_arena arena;
  uint32_t count = 1;
  base_arena_init(&arena);
  put_function(w, &functions, f, f->name, true);
  put_decompositions(w, &functions, &arena, &count);
  out_varint(&module, 1);
  out_varint(&module, 0);
  out_varint(&module, (uint64_t)count << 1);
  base_text_put(&module, functions.data, functions.length);
  out_varint(&w->ir, 1 << 1);
  put_head(w, &w->ir, OUT_BUILTIN, "module", HAS_REGIONS);
  out_varint(&w->ir, 1 << 1 | 1);
  out_section(&w->ir, SECTION_IR, &module);
  if (functions.failed || module.failed || w->decompositions.failed)
    out_fail(w, TTPU_RESOURCE_EXHAUSTED, "out of host memory");
  base_text_free(&functions);
  base_text_free(&module);
  base_arena_free(&arena);
}
