/* ir_bucket: a function of exact sizes as one of padded sizes, and the small programs on its borders. */
#include <string.h>

#include "ir/bucket_int.h"

int64_t ir_bucket_size(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  int64_t between = power / 4 * 3; /* one and a half of the power below */
  return between >= n ? between : power;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* The sizes among an operation's attributes, and what fills a constant; `to` NULL: only counts them. */
static uint32_t op_numbers(const ir_func *f, const ir_op *op, int64_t *to) {
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[op->kind].attrs];
  uint32_t count = 0;
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const void *at = (const uint8_t *)op->attrs + info->fields[i].offset;
    if (info->fields[i].kind == FIELD_SIZES) {
      const ir_i64s *list = at;
      if (to && list->count) memcpy(to + count, list->data, list->count * sizeof *to);
      count += list->count;
    } else if (info->fields[i].kind == FIELD_SIZE || info->fields[i].kind == FIELD_F64) {
      if (to) memcpy(to + count, at, sizeof *to);
      ++count;
    } else if (info->fields[i].kind == FIELD_DATA && ((const ir_data *)at)->splat) {
      size_t bytes = base_dtype_bytes((ttpu_dtype)ir_type_of(f, op->first_result).dtype), words = (bytes + 7) / 8;
      if (to) {
        memset(to + count, 0, words * sizeof *to);
        memcpy(to + count, ((const ir_data *)at)->bytes, bytes);
      }
      count += (uint32_t)words;
    }
  }
  return count;
}

ttpu_status ir_func_numbers(const ir_func *f, base_arena *arena, uint32_t *count, const int64_t **numbers) {
  uint32_t n = 0;
  for (ir_value v = 1; v < f->value_count; ++v) n += f->values[v].type.rank;
  for (uint32_t i = 0; i < f->body.count; ++i) n += op_numbers(f, f->body.ops[i], NULL);
  int64_t *list = base_arena_alloc(arena, n * sizeof *list + 1), *at = list;
  if (!list) return base_no_memory(n * sizeof *list);
  for (ir_value v = 1; v < f->value_count; ++v)
    for (uint32_t d = 0; d < f->values[v].type.rank; ++d) *at++ = f->values[v].type.dims[d];
  for (uint32_t i = 0; i < f->body.count; ++i) at += op_numbers(f, f->body.ops[i], at);
  *count = n;
  *numbers = list;
  return TTPU_OK;
}

static bool open_slots(bucket *s) {
  const ir_func *f = s->f;
  s->value_slots = base_arena_alloc(s->arena, f->value_count * sizeof *s->value_slots);
  s->op_slots = base_arena_alloc(s->arena, f->body.count * sizeof *s->op_slots + 1);
  s->slot_number = base_arena_alloc(s->arena, s->number_count * sizeof *s->slot_number + 1);
  s->map = base_arena_zalloc(s->arena, f->value_count * sizeof *s->map);
  if (!s->value_slots || !s->op_slots || !s->slot_number || !s->map) return false;
  uint32_t n = 0;
  for (ir_value v = 1; v < f->value_count; ++v) {
    s->value_slots[v] = n;
    n += f->values[v].type.rank;
  }
  s->factor_count = n;
  for (uint32_t i = 0; i < f->body.count; ++i) {
    s->op_slots[i] = n;
    n += op_numbers(f, f->body.ops[i], NULL);
  }
  return true;
}

/* A factor for each dimension of each value. */
static bool open_factors(bucket *s) {
  uint32_t count = s->factor_count;
  if (!base_grow((void **)&s->factors, &s->factor_capacity, count + 1, sizeof *s->factors)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    s->factors[i] = (bucket_factor){.parent = i, .before = s->before[i], .size = s->numbers[i]};
    s->factors[i].varies = s->options->varies && s->options->varies[i];
    s->factors[i].is_pinned = s->before[i] == 0 || s->numbers[i] == 0;
  }
  return true;
}

/* ---- whether ------------------------------------------------------------------------------- */

/* A number that varies and would be in the text: each size would have a program of its own all the same. */
static bool text_varies(const bucket *s, const ir_op *op) {
  uint32_t slot = s->op_slots[op->index], count = op_numbers(s->f, op, NULL), first, run;
  if (op->kind == IR_SLICE || op->kind == IR_PAD || op->kind == IR_DYNAMIC_SLICE || op->kind == IR_GATHER)
    return false; /* starts are numbers of the run, steps pin, and the rest follows from the sizes of the result */
  bucket_run_slots(s->f, op, &first, &run);
  for (uint32_t i = 0; i < count; ++i)
    if ((i < first || i >= first + run) && bucket_varies(s, slot + i)) return true;
  return false;
}

static bool is_possible(bucket *s) {
  bool pads = false;
  for (uint32_t i = 0; i < s->factor_count; ++i) {
    const bucket_factor *x = &s->factors[i];
    if (x->parent != i || x->is_split) continue;
    if (!s->options->all && x->is_pinned && (x->varies || x->before != x->size)) return false;
    pads |= bucket_root_is_padded(s, i);
  }
  for (uint32_t i = 0; i < s->f->body.count && !s->options->all; ++i)
    if (text_varies(s, s->f->body.ops[i])) return false;
  return pads;
}

/* ---- numbers of a run ------------------------------------------------------------------------ */

static void list_root(bucket *s, uint32_t root) {
  if (!bucket_root_is_padded(s, root) || s->factors[root].number != BUCKET_NONE) return;
  s->factors[root].number = s->run_count;
  s->run_values[s->run_count++] = s->factors[root].size;
}

static bool list_run_numbers(bucket *s) {
  uint32_t roots[BUCKET_FACTORS], dims = s->op_slots[0]; /* there is a return at least */
  s->run_values = base_arena_alloc(s->arena, (s->factor_count + s->number_count + 1) * sizeof *s->run_values);
  if (!s->run_values) return false;
  for (uint32_t i = 0; i < s->factor_count; ++i) s->factors[i].number = BUCKET_NONE;
  for (uint32_t i = 0; i < dims; ++i) {
    uint32_t count = bucket_roots(s, i, roots);
    for (uint32_t k = 0; k < count; ++k) list_root(s, roots[k]);
  }
  for (uint32_t i = 0; i < s->number_count; ++i) s->slot_number[i] = BUCKET_NONE;
  for (uint32_t i = 0; i < s->f->body.count; ++i) {
    uint32_t first, count, slot = s->op_slots[i];
    bucket_run_slots(s->f, s->f->body.ops[i], &first, &count);
    for (uint32_t k = slot + first; k < slot + first + count; ++k) {
      if (!bucket_varies(s, k)) continue;
      s->slot_number[k] = s->run_count;
      s->run_values[s->run_count++] = s->numbers[k];
    }
  }
  return true;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The padded type of a value of f. */
static ir_type padded_type(bucket *s, ir_value v) {
  ir_type t = ir_type_of(s->f, v);
  int64_t *dims = base_arena_alloc(s->arena, t.rank * sizeof *dims + 1);
  if (!dims) {
    s->failed = true;
    return t;
  }
  for (uint32_t d = 0; d < t.rank; ++d) dims[d] = bucket_padded_size(s, bucket_dim(s, v, d));
  t.dims = dims;
  return t;
}

/* Equal places have equal layouts, so that a value that is padded already is known as such: only what is longer counts as
 * padded. False: it has more factors than a tensor has dimensions. */
static bool make_layout(bucket *s, ir_value v, ir_layout *out) {
  uint32_t roots[BUCKET_FACTORS], rank = 0;
  int64_t *sizes = base_arena_alloc(s->arena, 2 * TTPU_MAX_RANK * sizeof *sizes), *padded = sizes + TTPU_MAX_RANK;
  if (!sizes) return !(s->failed = true);
  bool merge = false; /* the last one is not padded: the next one that is not either belongs to it */
  for (uint32_t d = 0; d < ir_type_of(s->f, v).rank; ++d) {
    uint32_t count = bucket_roots(s, bucket_dim(s, v, d), roots);
    for (uint32_t k = 0; k < count; ++k) {
      int64_t n = s->factors[roots[k]].size;
      bool is_padded = bucket_root_is_padded(s, roots[k]) && ir_bucket_size(n) != n;
      if (merge && !is_padded) {
        sizes[rank - 1] *= n;
        padded[rank - 1] *= n;
        continue;
      }
      if (rank == TTPU_MAX_RANK) return false;
      sizes[rank] = n;
      padded[rank++] = is_padded ? ir_bucket_size(n) : n;
      merge = !is_padded;
    }
  }
  *out = (ir_layout){ir_type_of(s->f, v), padded_type(s, v), rank, sizes, padded};
  return true;
}

static bool make_layouts(bucket *s, uint32_t count, ir_value (*value)(const ir_func *f, uint32_t i), ir_layout **out) {
  ir_layout *list = *out = base_arena_alloc(s->arena, count * sizeof *list + 1);
  if (!list) return !(s->failed = true);
  for (uint32_t i = 0; i < count; ++i)
    if (!make_layout(s, value(s->f, i), &list[i])) return false;
  return true;
}

static ir_value param_at(const ir_func *f, uint32_t i) { return f->body.first_arg + i; }
static ir_value result_at(const ir_func *f, uint32_t i) { return f->body.ops[f->body.count - 1]->operands[i]; }

static ttpu_status close_border(const ir_builder *b, ir_func *f, ir_value v, ir_func **out) {
  ir_builder end = *b;
  ir_return(&end, 1, &v);
  if (end.status) return base_fail(end.status, "%s", end.message);
  *out = f;
  return TTPU_OK;
}

ttpu_status ir_layout_enter(const ir_layout *l, base_arena *arena, ir_func **out) {
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  int64_t high[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < l->rank; ++i) high[i] = l->padded_sizes[i] - l->sizes[i];
  ir_value v = ir_reshape(&b, ir_param(&b, l->exact), l->rank, l->sizes);
  v = ir_pad(&b, v, ir_scalar_i64(&b, (ttpu_dtype)l->exact.dtype, 0), NULL, high, NULL);
  return close_border(&b, f, ir_reshape(&b, v, l->padded.rank, l->padded.dims), out);
}

ttpu_status ir_layout_leave(const ir_layout *l, base_arena *arena, ir_func **out) {
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  ir_value v = ir_reshape(&b, ir_param(&b, l->padded), l->rank, l->padded_sizes);
  v = ir_slice(&b, v, ir_no_dims, l->sizes, NULL);
  return close_border(&b, f, ir_reshape(&b, v, l->exact.rank, l->exact.dims), out);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static ttpu_status build(bucket *s, ir_bucketed *out) {
  const ir_region *body = &s->f->body;
  ir_func *to = ir_func_new(s->arena, s->f->name);
  s->b = ir_builder_on(to);
  for (uint32_t i = 0; i < body->arg_count; ++i) s->map[body->first_arg + i] = ir_param(&s->b, out->params[i].padded);
  const int64_t count = s->run_count;
  if (count > 0) s->run_numbers = ir_param(&s->b, ir_tensor(&s->b, TTPU_I64, 1, &count));
  for (uint32_t i = 0; i < body->count && !s->b.status; ++i) bucket_emit_op(s, body->ops[i]);
  if (s->b.status) return base_fail(s->b.status, "buckets: %s", s->b.message);
  if (s->f->donate) {
    bool *donate = base_arena_zalloc(s->arena, body->arg_count + 1);
    if (!donate) return base_no_memory(body->arg_count);
    memcpy(donate, s->f->donate, body->arg_count * sizeof *donate);
    to->donate = donate;
  }
  out->func = to;
  out->number_count = s->run_count;
  out->numbers = s->run_values;
  return TTPU_OK;
}

static ttpu_status bucket_all(bucket *s, ir_bucketed *out) {
  const ir_region *body = &s->f->body;
  BASE_TRY(ir_func_numbers(s->f, s->arena, &s->number_count, &s->numbers));
  s->before = s->options->before ? s->options->before : s->numbers;
  if (!open_slots(s) || !open_factors(s)) return base_no_memory(s->number_count * sizeof *s->factors);
  for (uint32_t i = 0; i < body->count; ++i) bucket_tie_op(s, body->ops[i]);
  bool possible = !s->failed && is_possible(s);
  if (possible && !list_run_numbers(s)) return base_no_memory(s->number_count * sizeof *s->run_values);
  possible = possible && make_layouts(s, body->arg_count, param_at, &out->params) &&
             make_layouts(s, body->ops[body->count - 1]->operand_count, result_at, &out->results);
  if (s->failed) return base_no_memory(s->number_count * sizeof *s->factors);
  return possible ? build(s, out) : TTPU_OK;
}

ttpu_status ir_bucket(const ir_func *f, base_arena *arena, const ir_bucket_options *options, ir_bucketed *out) {
  bucket s = {.f = f, .arena = arena, .options = options};
  *out = (ir_bucketed){0};
  if (f->body.count == 0 || f->shardings) return TTPU_OK; /* several chips have layouts of their own */
  ttpu_status status = bucket_all(&s, out);
  base_free(s.factors);
  return status;
}
