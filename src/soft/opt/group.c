/* Fusion: assigns every live operation to a step. The rules are in opt.h. */
#include <string.h>

#include "soft/opt/opt.h"

/* ---- what operations are ---------------------------------------------------------------------- */

bool opt_is_scalar(ir_type t) {
  for (uint32_t d = 0; d < t.rank; ++d)
    if (t.dims[d] != 1) return false;
  return true;
}
uint32_t opt_axes(ir_type t) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < t.rank; ++d) n += t.dims[d] != 1;
  return n;
}

bool opt_is_pointwise(const ir_func *f, const ir_op *op) {
  if (op->kind == IR_BITCAST_CONVERT)
    return base_dtype_bytes(ir_type_of(f, op->operands[0]).dtype) ==
           base_dtype_bytes(ir_type_of(f, op->first_result).dtype);
  return ir_ops[op->kind].flags & IR_POINTWISE;
}

bool opt_is_view(const ir_op *op) {
  return (ir_ops[op->kind].flags & IR_VIEW) || op->kind == IR_OPTIMIZATION_BARRIER || op->kind == IR_CHECK_INDEX;
}

bool opt_reshape_keeps(const ir_func *f, const ir_op *op) {
  ir_type from = ir_type_of(f, op->operands[0]), to = ir_type_of(f, op->first_result);
  uint32_t i = 0, j = 0;
  for (;;) {
    while (i < from.rank && from.dims[i] == 1) ++i;
    while (j < to.rank && to.dims[j] == 1) ++j;
    if (i == from.rank || j == to.rank) return i == from.rank && j == to.rank;
    if (from.dims[i++] != to.dims[j++]) return false;
  }
}

ir_kind opt_reduction(const ir_func *f, const ir_op *op) {
  if (op->kind != IR_REDUCE || op->operand_count != 2) return IR_NO_OP;
  ir_kind kind = ir_region_reducer(f, op->regions[0]);
  ir_type x = ir_type_of(f, op->operands[0]);
  if (x.dtype != ir_type_of(f, op->first_result).dtype) return IR_NO_OP;
  int fold = tile_fold_index(kind);
  return fold >= 0 && tile_kernels_get()->fold_rows[fold][tile_type(x.dtype)] ? kind : IR_NO_OP;
}

/* Bit a: axis a (among dims other than 1) of x is reduced. */
static uint32_t reduced_axes(const ir_func *f, const ir_op *op) {
  ir_type x = ir_type_of(f, op->operands[0]);
  ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  uint32_t mask = 0, axis = 0;
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (x.dims[d] == 1) continue;
    for (uint32_t i = 0; i < dims.count; ++i)
      if (dims.data[i] == d) mask |= 1u << axis;
    ++axis;
  }
  return mask;
}

/* ---- groups and references -------------------------------------------------------------------- */

uint32_t opt_find(opt_analysis *a, uint32_t g) {
  while (a->groups[g].parent != g) g = a->groups[g].parent = a->groups[a->groups[g].parent].parent;
  return g;
}

/* The operand that a view's result number `n` stands for. */
static ir_value view_source(const ir_func *f, ir_value v) {
  const ir_op *op = ir_def(f, v);
  return op->operands[op->kind == IR_OPTIMIZATION_BARRIER ? f->values[v].number : 0];
}

/* Does broadcast `op` put the kept axes of group g back where they were in its space? */
static bool broadcast_restores(opt_analysis *a, const ir_op *op, uint32_t g) {
  ir_type from = ir_type_of(a->f, op->operands[0]), to = ir_type_of(a->f, op->first_result);
  const opt_group *group = &a->groups[g];
  if (opt_axes(to) != group->axes) return false;
  ir_i64s map = IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions;
  uint32_t kept = 0; /* the next kept axis of the group */
  for (uint32_t d = 0; d < from.rank; ++d) {
    if (from.dims[d] == 1) continue;
    while (kept < group->axes && group->reduced >> kept & 1) ++kept;
    uint32_t axis = 0;
    for (int64_t t = 0; t < map.data[d]; ++t) axis += to.dims[t] != 1;
    if (axis != kept++) return false;
  }
  while (kept < group->axes && group->reduced >> kept & 1) ++kept;
  return kept == group->axes;
}

opt_ref opt_resolve(opt_analysis *a, ir_value v) {
  const ir_func *f = a->f;
  const ir_op *broadcast = NULL;
  ir_value base = v;
  while (a->notes[base].home == HOME_VIEW) {
    const ir_op *op = ir_def(f, base);
    if (op->kind == IR_BROADCAST_IN_DIM && !broadcast) broadcast = op;
    else if (op->kind != IR_OPTIMIZATION_BARRIER && !(op->kind == IR_RESHAPE && opt_reshape_keeps(f, op))) break;
    base = view_source(f, base);
  }
  const opt_note *n = &a->notes[base];
  bool scalar = opt_is_scalar(ir_type_of(f, base));
  if (n->home == HOME_FUSED) {
    uint32_t g = opt_find(a, n->group);
    if (!broadcast) return (opt_ref){SEES_MEMBER, base, g};
    if (n->level == TILE_ROW && broadcast_restores(a, broadcast, g)) return (opt_ref){SEES_EXPANDED, base, g};
  }
  return scalar ? (opt_ref){SEES_UNIFORM, base, 0} : (opt_ref){SEES_LEAF, v, 0};
}

/* What lies in memory behind a view. */
static ir_value behind(const opt_analysis *a, ir_value v) {
  while (a->notes[v].home == HOME_VIEW) v = view_source(a->f, v);
  return v;
}

/* The depth after which v can be read from memory. */
static uint32_t ready_in_memory(opt_analysis *a, ir_value v) {
  v = behind(a, v);
  const opt_note *n = &a->notes[v];
  if (n->home == HOME_FUSED) return a->groups[opt_find(a, n->group)].depth;
  return n->home == HOME_SCALAR ? n->ready + 1 : n->ready;
}
/* The same for a reference of a tile program, which computes scalars itself. */
static uint32_t ready_for_tile(opt_analysis *a, opt_ref r) {
  const opt_note *n = &a->notes[r.value];
  if (r.sight == SEES_UNIFORM && n->home == HOME_SCALAR && !n->solid) return n->ready;
  return ready_in_memory(a, r.value);
}

void opt_need(opt_analysis *a, ir_value v) {
  v = behind(a, v);
  opt_note *n = &a->notes[v];
  n->needed = true;
  if (n->home == HOME_FUSED) a->groups[opt_find(a, n->group)].consumed = true;
}

static uint32_t group_of_memory(opt_analysis *a, ir_value v) {
  v = behind(a, v);
  return a->notes[v].home == HOME_FUSED ? opt_find(a, a->notes[v].group) : 0;
}

/* ---- joining ---------------------------------------------------------------------------------- */

enum { MOST_REFS = 3, MOST_JOINED = 6 };

/* An operation on its way into a group. */
typedef struct candidate {
  uint32_t position; /* + 1: 0 ends a group's list */
  uint32_t count;    /* references */
  opt_ref refs[MOST_REFS];
  ir_value result;
  uint8_t level;
  uint32_t reduced; /* axes that the operation reduces, 0: it is pointwise */
  uint32_t weight, ports;
} candidate;

/* Is reference r a value of group g that the operation may take from a register? */
static bool is_inside(const opt_analysis *a, const candidate *c, opt_ref r, uint32_t g) {
  if (r.group != g || (r.sight != SEES_MEMBER && r.sight != SEES_EXPANDED)) return false;
  bool full = r.sight == SEES_EXPANDED || a->notes[r.value].level == TILE_FULL;
  if (c->reduced) return full && r.sight == SEES_MEMBER;
  /* A ROW value of a group without kept axes is a scalar: good at either level. */
  if (!full && opt_is_scalar(ir_type_of(a->f, r.value))) return true;
  return full == (c->level == TILE_FULL);
}

static bool compatible(const opt_analysis *a, uint32_t g, uint32_t reduced) {
  return !reduced || !a->groups[g].reduced || a->groups[g].reduced == reduced;
}

/* Do all joined groups and the operation fit together, and at which depth? 0: they do not. */
static uint32_t joined_depth(opt_analysis *a, const candidate *c, const uint32_t *joined, uint32_t count) {
  uint32_t depth = 0, weight = c->weight, ports = c->ports, reduced = c->reduced;
  for (uint32_t i = 0; i < count; ++i) {
    const opt_group *g = &a->groups[joined[i]];
    if (g->depth > depth) depth = g->depth;
    weight += g->weight;
    ports += g->ports;
    if (!compatible(a, joined[i], reduced)) return 0;
    reduced |= g->reduced;
  }
  if (weight > OPT_GROUP_WEIGHT || ports > OPT_GROUP_PORTS) return 0;
  for (uint32_t k = 0; k < c->count; ++k) {
    bool inside = false, own_memory = false;
    for (uint32_t i = 0; i < count; ++i) {
      inside |= is_inside(a, c, c->refs[k], joined[i]);
      own_memory |= group_of_memory(a, c->refs[k].value) == joined[i];
    }
    if (inside) continue;
    if (own_memory) return 0; /* it would have to read from memory what the group is about to compute */
    uint32_t need = ready_for_tile(a, c->refs[k]) + 1;
    if (need > depth) depth = need;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (a->groups[joined[i]].depth < depth && a->groups[joined[i]].consumed) return 0;
  return depth;
}

static void merge(opt_analysis *a, uint32_t into, uint32_t from) {
  opt_group *g = &a->groups[into], *h = &a->groups[from];
  h->parent = into;
  g->weight += h->weight;
  g->ports += h->ports;
  g->reduced |= h->reduced;
  g->consumed |= h->consumed;
  /* Merge the operations in order of position. */
  uint32_t i = g->first, j = h->first, head = i < j ? i : j, *link = &head;
  while (i && j) {
    uint32_t *least = i < j ? &i : &j;
    *link = *least;
    link = &a->next_in_group[*least];
    *least = *link;
  }
  *link = i ? i : j;
  g->first = head;
  g->last = g->last > h->last ? g->last : h->last;
}

static ttpu_status new_group(opt_analysis *a, ir_value space, uint32_t *out) {
  if (!BASE_GROW(a->groups, a->group_count + 1, a->group_capacity)) return base_no_memory(sizeof *a->groups);
  *out = ++a->group_count;
  a->groups[*out] = (opt_group){.parent = *out, .space = space, .axes = opt_axes(ir_type_of(a->f, space))};
  return TTPU_OK;
}

/* The pass in which the operation can be computed in group g. */
static uint32_t pass_in(const opt_analysis *a, const candidate *c, uint32_t g) {
  uint32_t pass = 0;
  for (uint32_t k = 0; k < c->count; ++k)
    if (is_inside(a, c, c->refs[k], g) && a->notes[c->refs[k].value].pass > pass)
      pass = a->notes[c->refs[k].value].pass;
  return c->reduced ? pass + 1 : pass;
}

static void append(opt_analysis *a, uint32_t g, const candidate *c, uint32_t depth) {
  opt_group *group = &a->groups[g];
  group->depth = depth;
  group->weight += c->weight;
  group->ports += c->ports;
  group->reduced |= c->reduced;
  if (!group->first) group->first = c->position;
  else a->next_in_group[group->last] = c->position;
  group->last = c->position;
  opt_note *n = &a->notes[c->result];
  *n = (opt_note){
      .home = HOME_FUSED, .group = g, .level = c->reduced ? TILE_ROW : c->level, .pass = (uint8_t)pass_in(a, c, g)};
  for (uint32_t k = 0; k < c->count; ++k) {
    if (is_inside(a, c, c->refs[k], g)) continue;
    ir_value v = c->refs[k].value;
    if (c->refs[k].sight != SEES_UNIFORM || a->notes[v].home != HOME_SCALAR || a->notes[v].solid) opt_need(a, v);
    bool element = c->refs[k].sight == SEES_LEAF || c->refs[k].sight == SEES_MEMBER;
    if (element && c->level == TILE_FULL) a->notes[v].leaf_of = g;
  }
}

static void add_unique(uint32_t *list, uint32_t *count, uint32_t g) {
  for (uint32_t i = 0; i < *count; ++i)
    if (list[i] == g) return;
  if (*count < MOST_JOINED) list[(*count)++] = g;
}

/* Groups that hold an operand in a register at the right level, and after those the ones that read the same memory. */
static uint32_t list_candidates(opt_analysis *a, const candidate *c, uint32_t *list) {
  uint32_t count = 0;
  bool full = c->level == TILE_FULL;
  for (uint32_t k = 0; k < c->count; ++k) {
    opt_ref r = c->refs[k];
    if (r.sight != SEES_MEMBER) continue;
    bool row_scalar = opt_is_scalar(ir_type_of(a->f, r.value));
    if ((a->notes[r.value].level == TILE_FULL) == full && (!row_scalar || !full)) add_unique(list, &count, r.group);
  }
  for (uint32_t k = 0; k < c->count && full; ++k) {
    opt_ref r = c->refs[k];
    if (r.sight != SEES_LEAF && r.sight != SEES_MEMBER) continue;
    uint32_t g = a->notes[r.value].leaf_of;
    /* A leaf behind a broadcast is not read element by element; only equal axes make the spaces one. */
    if (g && opt_axes(ir_type_of(a->f, r.value)) == a->groups[opt_find(a, g)].axes)
      add_unique(list, &count, opt_find(a, g));
  }
  return count;
}

/* Puts the operation into the best group there is, joining groups where it can. */
static ttpu_status place(opt_analysis *a, candidate *c, ir_value space) {
  uint32_t list[MOST_JOINED], count = list_candidates(a, c, list);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t joined[MOST_JOINED] = {list[i]}, n = 1;
    uint32_t depth = joined_depth(a, c, joined, 1);
    /* Another group first: what fails alone may work together with it (its values are then no memory). */
    for (uint32_t j = 0; j < count; ++j) {
      if (j == i || c->level != TILE_FULL) continue;
      joined[n] = list[j];
      uint32_t with = joined_depth(a, c, joined, n + 1);
      if (with) depth = with, ++n;
    }
    if (!depth) continue;
    uint32_t g = list[i];
    if (c->reduced) {
      uint32_t pass = pass_in(a, c, g);
      for (uint32_t j = 1; j < n; ++j) pass = pass_in(a, c, joined[j]) > pass ? pass_in(a, c, joined[j]) : pass;
      if (pass >= TILE_MAX_PASSES) continue;
    }
    for (uint32_t j = 1; j < n; ++j) merge(a, g, joined[j]);
    for (uint32_t k = 0; k < c->count; ++k)
      if (c->refs[k].group) c->refs[k].group = opt_find(a, c->refs[k].group);
    append(a, g, c, depth);
    return TTPU_OK;
  }
  uint32_t depth = 1;
  for (uint32_t k = 0; k < c->count; ++k) {
    uint32_t need = ready_for_tile(a, c->refs[k]) + 1;
    depth = need > depth ? need : depth;
  }
  uint32_t g = 0;
  BASE_TRY(new_group(a, space, &g));
  append(a, g, c, depth);
  return TTPU_OK;
}

/* ---- operations ------------------------------------------------------------------------------- */

static uint32_t scalar_cost(const opt_analysis *a, opt_ref r) {
  const opt_note *n = &a->notes[r.value];
  return r.sight == SEES_UNIFORM && n->home == HOME_SCALAR && !n->solid ? n->cost : 0;
}

/* A scalar of scalars: computed wherever it is used, unless that would be too much. */
static void place_scalar(opt_analysis *a, const candidate *c) {
  uint32_t cost = 1, ready = 0;
  for (uint32_t k = 0; k < c->count; ++k) cost += scalar_cost(a, c->refs[k]);
  for (uint32_t k = 0; k < c->count; ++k) {
    opt_note *n = &a->notes[c->refs[k].value];
    if (n->home == HOME_SCALAR && cost > OPT_SCALAR_COST) n->solid = n->needed = true;
    if (n->home != HOME_SCALAR) opt_need(a, c->refs[k].value);
    uint32_t r = ready_for_tile(a, c->refs[k]);
    ready = r > ready ? r : ready;
  }
  a->notes[c->result] =
      (opt_note){.home = HOME_SCALAR, .cost = (uint8_t)(cost > OPT_SCALAR_COST ? 1 : cost), .ready = ready};
}

static ttpu_status visit_tile(opt_analysis *a, const ir_op *op, uint32_t position) {
  candidate c = {.position = position + 1,
                 .count = op->operand_count,
                 .result = op->first_result,
                 .level = TILE_FULL,
                 .weight = 2,
                 .ports = 1};
  ir_type result = ir_type_of(a->f, c.result);
  if (op->kind == IR_REDUCE) c.reduced = reduced_axes(a->f, op);
  bool scalar = opt_is_scalar(result) && !c.reduced, row_scalar = false, row = false, full = false;
  for (uint32_t k = 0; k < c.count; ++k) {
    opt_ref r = c.refs[k] = opt_resolve(a, op->operands[k]);
    c.weight += 1 + scalar_cost(a, r);
    if (r.sight != SEES_MEMBER && r.sight != SEES_EXPANDED)
      c.ports += 1 + scalar_cost(a, r); /* a leaf, or a scalar's leaves */
    bool member_row = r.sight == SEES_MEMBER && a->notes[r.value].level == TILE_ROW;
    if (member_row && opt_is_scalar(ir_type_of(a->f, r.value))) row_scalar = true;
    else if (member_row) row = true;
    else if (r.sight == SEES_MEMBER) full = true;
  }
  if (scalar && !row_scalar) {
    place_scalar(a, &c);
    return TTPU_OK;
  }
  /* A ROW value without a FULL one beside it: the operation works on rows. */
  if (!c.reduced && (scalar || (row && !full))) {
    c.level = TILE_ROW;
    uint32_t list[MOST_JOINED], count = list_candidates(a, &c, list);
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t depth = joined_depth(a, &c, &list[i], 1);
      if (!depth) continue;
      append(a, list[i], &c, depth);
      return TTPU_OK;
    }
    if (scalar) {
      place_scalar(a, &c);
      return TTPU_OK;
    }
    c.level = TILE_FULL;
  }
  return place(a, &c, c.reduced ? op->operands[0] : c.result);
}

/* Notes that v is read from memory, after *ready. */
static void need_in_memory(opt_analysis *a, ir_value v, uint32_t *ready) {
  opt_need(a, v);
  uint32_t r = ready_in_memory(a, v);
  if (r > *ready) *ready = r;
}

/* Values of the function that an operation's regions use. */
static void need_captures(opt_analysis *a, const ir_region *r, uint32_t *ready) {
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    for (uint32_t k = 0; k < op->operand_count; ++k)
      if (a->f->values[op->operands[k]].region == &a->f->body) need_in_memory(a, op->operands[k], ready);
    for (uint32_t k = 0; k < op->region_count; ++k) need_captures(a, op->regions[k], ready);
  }
}

static void visit_kernel(opt_analysis *a, const ir_op *op) {
  uint32_t ready = 0;
  for (uint32_t k = 0; k < op->operand_count; ++k) need_in_memory(a, op->operands[k], &ready);
  for (uint32_t i = 0; i < op->region_count; ++i) need_captures(a, op->regions[i], &ready);
  for (uint32_t i = 0; i < op->result_count; ++i)
    a->notes[op->first_result + i] = (opt_note){.home = HOME_BUFFER, .ready = ready + 1};
}

static ttpu_status visit(opt_analysis *a, const ir_op *op, uint32_t position) {
  if (op->kind == IR_CONSTANT) {
    a->notes[op->first_result].home = HOME_CONSTANT;
  } else if (opt_is_view(op)) {
    for (uint32_t i = 0; i < op->result_count; ++i) a->notes[op->first_result + i].home = HOME_VIEW;
    if (op->kind == IR_CHECK_INDEX) opt_need(a, op->operands[0]);
  } else if (opt_is_pointwise(a->f, op) || opt_reduction(a->f, op) != IR_NO_OP) {
    return visit_tile(a, op, position);
  } else {
    visit_kernel(a, op);
  }
  return TTPU_OK;
}

/* ---- the pass --------------------------------------------------------------------------------- */

static void mark_region(const ir_func *f, const ir_region *r, bool *used) {
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    for (uint32_t k = 0; k < op->operand_count; ++k) used[op->operands[k]] = true;
    for (uint32_t k = 0; k < op->region_count; ++k) mark_region(f, op->regions[k], used);
  }
}

/* Dead code: an operation lives if it has an effect or a result that a living one uses. */
static ttpu_status find_live(opt_analysis *a) {
  const ir_region *body = &a->f->body;
  bool *used = base_arena_zalloc(a->arena, a->f->value_count + 1);
  if (!used) return base_no_memory(a->f->value_count);
  for (uint32_t i = body->count; i-- > 0;) {
    const ir_op *op = body->ops[i];
    bool live = op->kind == IR_RETURN || ((ir_ops[op->kind].flags & IR_EFFECT) && op->kind != IR_OPTIMIZATION_BARRIER);
    for (uint32_t k = 0; k < op->result_count && !live; ++k) live = used[op->first_result + k];
    a->live[i] = live;
    if (!live) continue;
    for (uint32_t k = 0; k < op->operand_count; ++k) used[op->operands[k]] = true;
    for (uint32_t k = 0; k < op->region_count; ++k) mark_region(a->f, op->regions[k], used);
  }
  return TTPU_OK;
}

ttpu_status opt_group_operations(opt_analysis *a) {
  const ir_func *f = a->f;
  const ir_region *body = &f->body;
  size_t values = f->value_count + 1, count = body->count + 1;
  a->notes = base_arena_zalloc(a->arena, values * sizeof *a->notes);
  a->live = base_arena_zalloc(a->arena, count * sizeof *a->live);
  a->next_in_group = base_arena_zalloc(a->arena, count * sizeof *a->next_in_group);
  if (!a->notes || !a->live || !a->next_in_group) return base_no_memory(values * sizeof *a->notes);
  BASE_TRY(find_live(a));
  for (uint32_t i = 0; i < body->arg_count; ++i) a->notes[body->first_arg + i].home = HOME_PARAM;
  for (uint32_t i = 0; i + 1 < body->count; ++i)
    if (a->live[i]) BASE_TRY(visit(a, body->ops[i], i));
  const ir_op *ret = body->ops[body->count - 1];
  for (uint32_t k = 0; k < ret->operand_count; ++k) opt_need(a, ret->operands[k]);
  return TTPU_OK;
}
