/* Programs for all chips, as programs of one. */
#include "soft/link/partition.h"

#include <string.h>

#include "ir/ir_int.h"
#include "soft/link/sharding.h"

/* What became of a value of the old function: a chip's part of it, the whole, or both. */
typedef struct placed {
  ir_value whole, part; /* of the new function; 0: not made */
  const link_sharding *sharding;
} placed;

typedef struct partitioner {
  base_arena *arena;
  const ir_func *from;
  const ir_shardings *shardings;
  link_grid grid;
  ir_builder b;
  placed *values;                     /* by the old function's values */
  const char **parameters, **results; /* what became of their shardings */
} partitioner;

static ttpu_status builder_status(const partitioner *p) {
  return p->b.status == TTPU_OK ? TTPU_OK : base_fail(p->b.status, "%s", p->b.message);
}

/* ---- wholes and parts ------------------------------------------------------------------------------------------ */

/* The chips that hold the pieces of dimension d one after another, the other dimensions and the copy being the same: a
 * row of flattened ids for each. Chips are looked at in order, so a row begins with piece 0 and the lowest chip. */
static ttpu_status gather_groups(partitioner *p, const link_sharding *s, uint32_t d, ir_replica_groups_attrs *out) {
  uint32_t n = s->partitions, width = s->tiles[d], rows = 0;
  int64_t *ids = base_arena_alloc(p->arena, p->grid.replicas * n * sizeof *ids);
  uint32_t *filled = base_arena_zalloc(p->arena, n * sizeof *filled); /* by row */
  uint32_t *first = base_arena_alloc(p->arena, n * sizeof *first);    /* a chip of the row, for its other dimensions */
  if (!ids || !filled || !first) return base_no_memory(n * sizeof *ids);
  memset(ids, 0xff, n * sizeof *ids);
  for (uint32_t chip = 0; chip < n; ++chip) {
    const uint32_t *piece = &s->pieces[chip * s->rank];
    uint32_t row = 0;
    for (; row < rows; ++row) {
      const uint32_t *other = &s->pieces[first[row] * s->rank];
      bool same = ids[row * width + piece[d]] < 0;
      for (uint32_t k = 0; same && k < s->rank; ++k) same = k == d || other[k] == piece[k];
      if (same) break;
    }
    if (row == rows && (rows + 1) * width > n)
      return base_fail(TTPU_UNIMPLEMENTED, "a sharding that holds some pieces more often than others");
    if (row == rows) first[rows++] = chip;
    ids[row * width + piece[d]] = chip;
    ++filled[row];
  }
  for (uint32_t replica = 1; replica < p->grid.replicas; ++replica)
    for (uint32_t i = 0; i < n; ++i) ids[replica * n + i] = replica * n + ids[i];
  *out = (ir_replica_groups_attrs){.group_count = (int64_t)rows * p->grid.replicas,
                                   .replica_groups = {ids, n * p->grid.replicas},
                                   .channel_id = 1,
                                   .use_global_device_ids = true,
                                   .dimension = d};
  return TTPU_OK;
}

static ttpu_status gather(partitioner *p, ir_value part, const link_sharding *s, ir_value *out) {
  for (uint32_t d = 0; d < s->rank; ++d) {
    if (s->tiles[d] == 1) continue;
    ir_replica_groups_attrs attrs;
    BASE_TRY(gather_groups(p, s, d, &attrs));
    ir_type t = ir_type_of(p->b.func, part);
    int64_t dims[TTPU_MAX_RANK];
    memcpy(dims, t.dims, t.rank * sizeof *dims);
    dims[d] *= s->tiles[d];
    const ir_type whole = {t.dtype, t.rank, dims};
    part = ir_append(&p->b, IR_ALL_GATHER, 1, &part, &attrs, 1, &whole, 0, NULL);
    BASE_TRY(builder_status(p));
  }
  *out = part;
  return TTPU_OK;
}

/* Where this chip's part begins in dimension d: its number's entry in a table. */
static ttpu_status start_of(partitioner *p, const link_sharding *s, uint32_t d, int64_t size, ir_value *out) {
  ir_builder *b = &p->b;
  if (s->tiles[d] == 1) {
    *out = ir_scalar_i64(b, TTPU_I64, 0);
    return builder_status(p);
  }
  int64_t *starts = base_arena_alloc(p->arena, s->partitions * sizeof *starts), count = s->partitions, one = 1;
  if (!starts) return base_no_memory(s->partitions * sizeof *starts);
  for (uint32_t i = 0; i < s->partitions; ++i) starts[i] = s->pieces[i * s->rank + d] * size;
  ir_value table = ir_constant(b, ir_tensor(b, TTPU_I64, 1, &count), (ir_data){starts, false});
  const ir_type number = ir_tensor(b, TTPU_U32, 0, NULL);
  ir_value me = ir_append(b, IR_PARTITION_ID, 0, NULL, NULL, 1, &number, 0, NULL);
  *out = ir_reshape(b, ir_dynamic_slice(b, table, &me, &one), 0, NULL);
  return builder_status(p);
}

static ttpu_status cut(partitioner *p, ir_value whole, const link_sharding *s, ir_value *out) {
  ir_type t = ir_type_of(p->b.func, whole);
  int64_t sizes[TTPU_MAX_RANK];
  ir_value starts[TTPU_MAX_RANK];
  *out = whole;
  if (link_sharding_is_whole(s)) return TTPU_OK;
  link_sharding_part(s, t.dims, sizes);
  for (uint32_t d = 0; d < t.rank; ++d) BASE_TRY(start_of(p, s, d, sizes[d], &starts[d]));
  *out = ir_dynamic_slice(&p->b, whole, starts, sizes);
  return builder_status(p);
}

static ttpu_status whole_of(partitioner *p, ir_value old, ir_value *out) {
  placed *v = &p->values[old];
  if (!v->whole) BASE_TRY(gather(p, v->part, v->sharding, &v->whole));
  *out = v->whole;
  return TTPU_OK;
}

static ttpu_status part_of(partitioner *p, ir_value old, const link_sharding *s, ir_value *out) {
  const placed *v = &p->values[old];
  if (v->part && link_sharding_equal(v->sharding, s)) {
    *out = v->part;
    return TTPU_OK;
  }
  ir_value whole;
  BASE_TRY(whole_of(p, old, &whole));
  return cut(p, whole, s, out);
}

static void place_part(partitioner *p, ir_value old, ir_value part, const link_sharding *s) {
  p->values[old] = (placed){link_sharding_is_whole(s) ? part : 0, part, s};
}

static ttpu_status sharding_of(partitioner *p, const char *text, ir_type t, const char *axes,
                               const link_sharding **out) {
  link_sharding *s = base_arena_alloc(p->arena, sizeof *s);
  if (!s) return base_no_memory(sizeof *s);
  *out = s;
  return link_sharding_parse(p->arena, text, p->shardings, p->grid.partitions, t, axes, s);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static ttpu_status copy_ops(partitioner *p, const ir_region *r);

/* The sharding in which a pointwise operation runs on parts: that of the operands of which there is no whole; NULL: there
 * are none, or they differ. The other operands are cut, which costs less than to gather these. */
static const link_sharding *common_sharding(const partitioner *p, const ir_op *op) {
  const link_sharding *common = NULL;
  if (!(ir_ops[op->kind].flags & IR_POINTWISE)) return NULL;
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    const placed *v = &p->values[op->operands[i]];
    if (v->whole) continue;
    if (common && !link_sharding_equal(common, v->sharding)) return NULL;
    common = v->sharding;
  }
  return common;
}

static ttpu_status copy_in_parts(partitioner *p, const ir_op *op, const link_sharding *s) {
  ir_value operands[4];
  if (op->operand_count > 4) return base_fail(TTPU_INTERNAL, "%u operands, pointwise", op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    bool scalar = ir_type_of(p->from, op->operands[i]).rank == 0;
    BASE_TRY(scalar ? whole_of(p, op->operands[i], &operands[i]) : part_of(p, op->operands[i], s, &operands[i]));
  }
  ir_type t = ir_type_of(p->from, op->first_result);
  int64_t dims[TTPU_MAX_RANK];
  link_sharding_part(s, t.dims, dims);
  const ir_type part = {t.dtype, t.rank, dims};
  p->b.source = op->source;
  ir_value y = ir_append(&p->b, (ir_kind)op->kind, op->operand_count, operands, op->attrs, 1, &part, 0, NULL);
  place_part(p, op->first_result, y, s);
  return builder_status(p);
}

/* What an operation's regions take from outside is made whole before it: what is made inside is not seen behind it. */
static ttpu_status make_captures_whole(partitioner *p, const ir_op *op) {
  uint32_t count = soft_op_captures(p->from, op, NULL);
  ir_value ignored, *captures = base_arena_alloc(p->arena, count * sizeof *captures + 1);
  if (!captures) return base_no_memory(count * sizeof *captures);
  if (count) soft_op_captures(p->from, op, captures);
  for (uint32_t i = 0; i < count; ++i) BASE_TRY(whole_of(p, captures[i], &ignored));
  return TTPU_OK;
}

static ttpu_status copy_region(partitioner *p, const ir_region *r, ir_region **out) {
  ir_type *types = base_arena_alloc(p->arena, r->arg_count * sizeof *types + 1);
  if (!types) return base_no_memory(r->arg_count * sizeof *types);
  for (uint32_t i = 0; i < r->arg_count; ++i) types[i] = ir_type_of(p->from, r->first_arg + i);
  ir_region *outer;
  *out = ir_region_begin(&p->b, r->arg_count, types, &outer);
  BASE_TRY(builder_status(p));
  for (uint32_t i = 0; i < r->arg_count; ++i) p->values[r->first_arg + i] = (placed){.whole = (*out)->first_arg + i};
  BASE_TRY(copy_ops(p, r));
  const ir_op *end = r->ops[r->count - 1];
  ir_value *results = base_arena_alloc(p->arena, end->operand_count * sizeof *results + 1);
  if (!results) return base_no_memory(end->operand_count * sizeof *results);
  for (uint32_t i = 0; i < end->operand_count; ++i) BASE_TRY(whole_of(p, end->operands[i], &results[i]));
  ir_region_end(&p->b, outer, end->operand_count, results);
  return builder_status(p);
}

static ttpu_status copy_whole(partitioner *p, const ir_op *op) {
  base_arena *arena = p->arena;
  ir_value *operands = base_arena_alloc(arena, op->operand_count * sizeof *operands + 1);
  ir_type *types = base_arena_alloc(arena, op->result_count * sizeof *types + 1);
  ir_region **regions = base_arena_alloc(arena, op->region_count * sizeof *regions + 1);
  if (!operands || !types || !regions) return base_no_memory(op->operand_count * sizeof *operands);
  if (op->region_count) BASE_TRY(make_captures_whole(p, op));
  for (uint32_t i = 0; i < op->operand_count; ++i) BASE_TRY(whole_of(p, op->operands[i], &operands[i]));
  for (uint32_t i = 0; i < op->result_count; ++i) types[i] = ir_type_of(p->from, op->first_result + i);
  for (uint32_t i = 0; i < op->region_count; ++i) BASE_TRY(copy_region(p, op->regions[i], &regions[i]));
  p->b.source = op->source;
  ir_value first = ir_append(&p->b, (ir_kind)op->kind, op->operand_count, operands, op->attrs, op->result_count, types,
                             op->region_count, regions);
  BASE_TRY(builder_status(p));
  for (uint32_t i = 0; i < op->result_count; ++i) p->values[op->first_result + i] = (placed){.whole = first + i};
  return TTPU_OK;
}

/* The n-th sharding of a manual computation's list, for a value of type t. */
static ttpu_status manual_sharding(partitioner *p, const char *list, uint32_t n, ir_type t, const char *axes,
                                   const link_sharding **out) {
  const char *text = link_sharding_entry(p->arena, list, n);
  if (!text) return base_fail(TTPU_INVALID_ARGUMENT, "manual_computation: %.200s has no entry %u", list, n);
  return sharding_of(p, text, t, axes, out);
}

/* The body in place of the operation: its arguments are the chip's parts of the operands, what it returns those of
 * the results. */
static ttpu_status inline_manual(partitioner *p, const ir_op *op) {
  const ir_manual_computation_attrs *a = IR_ATTRS(op, manual_computation);
  const ir_region *body = op->regions[0];
  const ir_op *end = body->ops[body->count - 1];
  if (body->arg_count != op->operand_count || end->operand_count != op->result_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "manual_computation: its region does not fit its operands and results");
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    const link_sharding *s = NULL;
    ir_value part;
    BASE_TRY(manual_sharding(p, a->in_shardings, i, ir_type_of(p->from, op->operands[i]), a->manual_axes, &s));
    BASE_TRY(part_of(p, op->operands[i], s, &part));
    ir_type is = ir_type_of(p->b.func, part), want = ir_type_of(p->from, body->first_arg + i);
    if (!ir_type_equal(is, want))
      return base_fail(TTPU_INVALID_ARGUMENT, "manual_computation: argument %u is %s of the region, its part is %s", i,
                       IR_SHOW(want), IR_SHOW(is));
    p->values[body->first_arg + i] = (placed){.whole = part};
  }
  BASE_TRY(copy_ops(p, body));
  for (uint32_t i = 0; i < op->result_count; ++i) {
    const link_sharding *s = NULL;
    ir_value part;
    ir_type t = ir_type_of(p->from, op->first_result + i);
    BASE_TRY(manual_sharding(p, a->out_shardings, i, t, a->manual_axes, &s));
    BASE_TRY(whole_of(p, end->operands[i], &part));
    int64_t dims[TTPU_MAX_RANK];
    link_sharding_part(s, t.dims, dims);
    if (!ir_type_equal(ir_type_of(p->b.func, part), (ir_type){t.dtype, t.rank, dims}))
      return base_fail(TTPU_INVALID_ARGUMENT, "manual_computation: result %u is %s, which is no part of %s", i,
                       IR_SHOW(ir_type_of(p->b.func, part)), IR_SHOW(t));
    place_part(p, op->first_result + i, part, s);
  }
  return TTPU_OK;
}

/* All operations but the return. */
static ttpu_status copy_ops(partitioner *p, const ir_region *r) {
  for (uint32_t i = 0; i + 1 < r->count; ++i) {
    const ir_op *op = r->ops[i];
    const link_sharding *s = common_sharding(p, op);
    if (op->kind == IR_MANUAL_COMPUTATION) BASE_TRY(inline_manual(p, op));
    else if (s) BASE_TRY(copy_in_parts(p, op, s));
    else BASE_TRY(copy_whole(p, op));
  }
  return TTPU_OK;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static ttpu_status make_parameters(partitioner *p) {
  const ir_region *body = &p->from->body;
  for (uint32_t i = 0; i < body->arg_count; ++i) {
    ir_type t = ir_type_of(p->from, body->first_arg + i);
    const link_sharding *s = NULL;
    int64_t dims[TTPU_MAX_RANK];
    BASE_TRY(sharding_of(p, p->shardings ? p->shardings->parameters[i] : NULL, t, NULL, &s));
    link_sharding_part(s, t.dims, dims);
    if (!(p->parameters[i] = link_sharding_text(p->arena, s))) return base_no_memory(64);
    place_part(p, body->first_arg + i, ir_param(&p->b, ir_tensor(&p->b, (ttpu_dtype)t.dtype, t.rank, dims)), s);
  }
  return builder_status(p);
}

static ttpu_status make_results(partitioner *p) {
  const ir_op *end = p->from->body.ops[p->from->body.count - 1];
  ir_value *results = base_arena_alloc(p->arena, end->operand_count * sizeof *results + 1);
  if (!results) return base_no_memory(end->operand_count * sizeof *results);
  for (uint32_t i = 0; i < end->operand_count; ++i) {
    const link_sharding *s = NULL;
    const char *text = p->shardings ? p->shardings->results[i] : NULL;
    if (!text && p->values[end->operands[i]].part) s = p->values[end->operands[i]].sharding;
    else BASE_TRY(sharding_of(p, text, ir_type_of(p->from, end->operands[i]), NULL, &s));
    if (!(p->results[i] = link_sharding_text(p->arena, s))) return base_no_memory(64);
    BASE_TRY(part_of(p, end->operands[i], s, &results[i]));
  }
  ir_return(&p->b, end->operand_count, results);
  return builder_status(p);
}

ttpu_status link_partition(base_arena *arena, const ir_func *f, link_grid grid, ir_func **out) {
  partitioner p = {.arena = arena, .from = f, .shardings = f->shardings, .grid = grid};
  ir_func *func = ir_func_new(arena, f->name);
  p.values = base_arena_zalloc(arena, f->value_count * sizeof *p.values);
  uint32_t results = f->body.ops[f->body.count - 1]->operand_count;
  p.parameters = base_arena_zalloc(arena, (f->body.arg_count + 1) * sizeof *p.parameters);
  p.results = base_arena_zalloc(arena, (results + 1) * sizeof *p.results);
  if (!func || !p.values || !p.parameters || !p.results) return base_no_memory(f->value_count * sizeof *p.values);
  p.b = ir_builder_on(func);
  BASE_TRY(make_parameters(&p));
  BASE_TRY(copy_ops(&p, &f->body));
  BASE_TRY(make_results(&p));
  func->donate = f->donate;
  const ir_shardings shardings = {.parameters = p.parameters, .results = p.results};
  func->shardings = base_arena_dup(arena, &shardings, sizeof shardings);
  if (!func->shardings) return base_no_memory(sizeof shardings);
  *out = func;
  return TTPU_OK;
}

static bool has_manual(const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    if (r->ops[i]->kind == IR_MANUAL_COMPUTATION) return true;
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k)
      if (has_manual(r->ops[i]->regions[k])) return true;
  }
  return false;
}

bool link_needs_partition(const ir_func *f) { return f->shardings || has_manual(&f->body); }
