/* Writes the tile program of a group. In two steps: first the instructions of all groups, which finds what each group
 * reads from memory; then, when it is known which values others need, the stores, passes and registers. */
#include <string.h>

#include "soft/opt/opt.h"

enum { MOST_INSTRS = 1500 };

typedef struct writer {
  opt_analysis *a;
  const ir_func *f;
  uint32_t group; /* 0: the program of one scalar */
  tile_prog *p;
  uint8_t slot_pass[TILE_MAX_SLOTS]; /* FULL: first pass; ROW: passes before it is known */
  uint16_t expanded[TILE_MAX_SLOTS]; /* ROW slot -> its EXPAND */
  ir_value values[TILE_MAX_SLOTS];   /* what was computed, to find it again */
  uint16_t value_slots[TILE_MAX_SLOTS];
  uint32_t value_count;
  bool full; /* out of room: a group was too large */
} writer;

/* ---- slots and instructions ------------------------------------------------------------------- */

static uint16_t new_slot(writer *w, uint8_t level, ttpu_dtype type) {
  if (w->p->slot_count >= TILE_MAX_SLOTS) {
    w->full = true;
    return 0;
  }
  w->p->slots[w->p->slot_count] = (tile_slot){.level = level, .type = (uint8_t)type};
  w->slot_pass[w->p->slot_count] = 0;
  w->expanded[w->p->slot_count] = UINT16_MAX;
  return w->p->slot_count++;
}

/* Appends an instruction over the given operand slots; its pass follows from theirs. */
static void add(writer *w, tile_instr in) {
  if (w->p->instr_count >= MOST_INSTRS) {
    w->full = true;
    return;
  }
  const uint16_t operands[3] = {in.a, in.b, in.c};
  uint8_t pass = 0;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const tile_slot *s = &w->p->slots[operands[i]];
    if (s->level != TILE_UNIFORM && w->slot_pass[operands[i]] > pass) pass = w->slot_pass[operands[i]];
  }
  in.passes = pass;
  if (in.op == TILE_REDUCE) w->slot_pass[in.dst] = (uint8_t)(pass + 1);
  else if (in.op != TILE_STORE && pass > w->slot_pass[in.dst]) w->slot_pass[in.dst] = pass;
  w->p->instrs[w->p->instr_count++] = in;
}

static void map_into(writer *w, uint16_t dst, tile_map_table table, ttpu_dtype type, uint32_t extra, uint32_t count,
                     uint16_t a, uint16_t b, uint16_t c) {
  add(w, (tile_instr){.op = TILE_MAP,
                      .level = w->p->slots[dst].level,
                      .type = (uint8_t)type,
                      .extra = (uint8_t)extra,
                      .dst = dst,
                      .a = a,
                      .b = b,
                      .c = c,
                      .operands = (uint8_t)count,
                      .table = (uint8_t)table});
}

static uint16_t map1(writer *w, uint8_t level, ttpu_dtype result, tile_map_table table, ttpu_dtype type, uint32_t extra,
                     uint16_t a) {
  uint16_t dst = new_slot(w, level, result);
  map_into(w, dst, table, type, extra, 1, a, 0, 0);
  return dst;
}

static void map_kind(writer *w, uint16_t dst, ir_kind kind, ttpu_dtype type, uint32_t count, const uint16_t *x) {
  map_into(w, dst, TILE_MAP_KIND, type, 0, count, x[0], count > 1 ? x[1] : 0, count > 2 ? x[2] : 0);
  if (!w->full) w->p->instrs[w->p->instr_count - 1].kind = (uint16_t)kind;
}

/* Rounds a register to what a small float holds. */
static void round_to(writer *w, uint16_t slot, ttpu_dtype dtype) {
  if (tile_is_small_float(dtype)) map_into(w, slot, TILE_MAP_ROUND, dtype, 0, 1, slot, 0, 0);
}

/* ---- operands --------------------------------------------------------------------------------- */

static uint16_t leaf(writer *w, ir_value v, uint8_t level) {
  tile_prog *p = w->p;
  ttpu_dtype dtype = ir_type_of(w->f, v).dtype;
  for (uint32_t i = 0; i < p->leaf_count; ++i)
    if (p->leaves[i].value == v && p->leaves[i].level == level)
      return p->leaves[i].last_use; /* its slot, until finished */
  if (p->leaf_count + 1 >= TILE_MAX_PORTS) {
    w->full = true;
    return 0;
  }
  opt_need(w->a, v);
  uint16_t slot = new_slot(w, level, tile_type(dtype));
  p->leaves[p->leaf_count] = (tile_leaf){.value = v, .dtype = (uint8_t)dtype, .level = level, .last_use = slot};
  add(w, (tile_instr){.op = TILE_LOAD, .level = level, .type = (uint8_t)dtype, .dst = slot, .a = p->leaf_count++});
  return slot;
}

static uint16_t expand(writer *w, uint16_t slot) {
  if (w->expanded[slot] != UINT16_MAX) return w->expanded[slot];
  uint16_t dst = new_slot(w, TILE_FULL, w->p->slots[slot].type);
  add(w,
      (tile_instr){
          .op = TILE_EXPAND, .level = TILE_FULL, .type = w->p->slots[slot].type, .dst = dst, .a = slot, .operands = 1});
  return w->expanded[slot] = dst;
}

static bool find_value(const writer *w, ir_value v, uint16_t *slot) {
  for (uint32_t i = w->value_count; i-- > 0;)
    if (w->values[i] == v) {
      *slot = w->value_slots[i];
      return true;
    }
  return false;
}
static void keep_value(writer *w, ir_value v, uint16_t slot) {
  if (w->value_count >= TILE_MAX_SLOTS) {
    w->full = true;
    return;
  }
  w->values[w->value_count] = v, w->value_slots[w->value_count++] = slot;
}

static void write_op(writer *w, const ir_op *op, uint8_t level);

/* The slot that holds operand `v` for an operation at `level`. */
static uint16_t operand(writer *w, ir_value v, uint8_t level) {
  opt_analysis *a = w->a;
  opt_ref r = opt_resolve(a, v);
  uint16_t slot = 0;
  if (w->full) return 0;
  if (r.sight == SEES_UNIFORM) {
    const opt_note *n = &a->notes[r.value];
    if (n->home != HOME_SCALAR || n->solid) return leaf(w, r.value, TILE_UNIFORM);
    if (!find_value(w, r.value, &slot)) {
      write_op(w, ir_def(w->f, r.value), TILE_UNIFORM);
      find_value(w, r.value, &slot);
    }
    return slot;
  }
  bool ours = w->group && r.sight != SEES_LEAF && r.group == w->group && find_value(w, r.value, &slot);
  if (!ours) {
    /* A value of another group: its own dims where nothing is broadcast, so that uses through reshapes share a leaf. */
    ir_value from = r.sight == SEES_EXPANDED ? v : r.value;
    return leaf(w, from, opt_is_scalar(ir_type_of(w->f, from)) ? TILE_UNIFORM : level);
  }
  return w->p->slots[slot].level == TILE_ROW && level == TILE_FULL ? expand(w, slot) : slot;
}

/* ---- operations ------------------------------------------------------------------------------- */

/* Results that are exact in a small float when the operands are. */
static bool is_exact(ir_kind kind) {
  switch (kind) {
    case IR_ABS:
    case IR_NEGATE:
    case IR_CEIL:
    case IR_FLOOR:
    case IR_ROUND_NEAREST_EVEN:
    case IR_ROUND_NEAREST_AFZ:
    case IR_SIGN:
    case IR_MAXIMUM:
    case IR_MINIMUM:
    case IR_REAL: return true;
    default: return false;
  }
}

/* A slot of the operation's own level that holds the same elements. */
static uint16_t at_level(writer *w, uint16_t slot, uint8_t level) {
  ttpu_dtype type = w->p->slots[slot].type;
  return w->p->slots[slot].level == level ? slot : map1(w, level, type, TILE_MAP_COPY, type, 0, slot);
}

static uint16_t write_convert(writer *w, uint16_t x, ttpu_dtype from, ttpu_dtype to, uint8_t level) {
  ttpu_dtype source = tile_type(from), target = tile_type(to);
  if (source != target) {
    uint16_t y = map1(w, level, target, TILE_MAP_CONVERT, source, target, x);
    round_to(w, y, to);
    return y;
  }
  if (!tile_is_small_float(to) || from == to) return at_level(w, x, level);
  return map1(w, level, target, TILE_MAP_ROUND, to, 0, x);
}

/* Small floats show their bits by packing. */
static uint16_t write_bitcast(writer *w, uint16_t x, ttpu_dtype from, ttpu_dtype to, uint8_t level) {
  if (tile_is_small_float(from)) {
    ttpu_dtype bits = base_dtype_bytes(from) == 2 ? TTPU_U16 : TTPU_U8;
    x = map1(w, level, bits, TILE_MAP_PACK, from, 0, x);
  }
  if (tile_is_small_float(to)) return map1(w, level, TTPU_F32, TILE_MAP_UNPACK, to, 0, x);
  return map1(w, level, to, TILE_MAP_COPY, to, 0, x);
}

static uint16_t write_reduce(writer *w, const ir_op *op, const uint16_t *x) {
  ttpu_dtype dtype = ir_type_of(w->f, op->first_result).dtype, type = tile_type(dtype);
  ir_kind kind = opt_reduction(w->f, op);
  ttpu_dtype accumulator = tile_accumulator(kind, type);
  uint16_t sum = new_slot(w, TILE_ROW, accumulator);
  add(w, (tile_instr){.op = TILE_REDUCE,
                      .level = TILE_FULL,
                      .type = (uint8_t)type,
                      .extra = (uint8_t)tile_fold_index(kind),
                      .dst = sum,
                      .a = at_level(w, x[0], TILE_FULL),
                      .operands = 1,
                      .kind = (uint16_t)kind});
  if (accumulator != type) sum = map1(w, TILE_ROW, type, TILE_MAP_CONVERT, accumulator, type, sum);
  uint16_t both[2] = {x[1], sum}, y = new_slot(w, TILE_ROW, type);
  map_kind(w, y, kind, type, 2, both);
  return y;
}

static uint16_t write_pointwise(writer *w, const ir_op *op, uint8_t level, const uint16_t *x) {
  const tile_kernels *k = tile_kernels_get();
  ir_kind kind = op->kind == IR_REDUCE ? opt_reduction(w->f, op) : op->kind;
  ttpu_dtype from = ir_type_of(w->f, op->operands[op->operand_count > 1 ? 1 : 0]).dtype;
  ttpu_dtype result = ir_type_of(w->f, op->first_result).dtype, type = tile_type(from);
  uint16_t y = new_slot(w, level, tile_type(result));
  switch (kind) {
    case IR_SELECT: map_into(w, y, TILE_MAP_SELECT, tile_type(result), 0, 3, x[0], x[1], x[2]); return y;
    case IR_COMPARE: {
      ir_direction direction = IR_ATTRS(op, compare)->comparison_direction;
      if (!k->compare[direction][type]) break;
      map_into(w, y, TILE_MAP_COMPARE, type, direction, 2, x[0], x[1], 0);
      return y;
    }
    case IR_CLAMP: {
      if (!k->map[IR_MAXIMUM][type]) break;
      uint16_t low[2] = {x[1], x[0]}, high[2] = {y, x[2]};
      map_kind(w, y, IR_MAXIMUM, type, 2, low);
      map_kind(w, y, IR_MINIMUM, type, 2, high);
      return y;
    }
    default:
      if (!k->map[kind][type]) break;
      map_kind(w, y, kind, type, op->operand_count, x);
      if (!is_exact(kind)) round_to(w, y, result);
      return y;
  }
  add(w, (tile_instr){.op = TILE_GENERIC,
                      .level = level,
                      .type = (uint8_t)type,
                      .dst = y,
                      .a = x[0],
                      .b = x[1],
                      .c = x[2],
                      .operands = (uint8_t)op->operand_count,
                      .kind = (uint16_t)kind,
                      .ir_op = op->index});
  return y;
}

static void write_op(writer *w, const ir_op *op, uint8_t level) {
  uint16_t x[3] = {0, 0, 0}, y;
  bool reduces = op->kind == IR_REDUCE && w->group && level == TILE_ROW &&
                 opt_axes(ir_type_of(w->f, op->operands[0])) != opt_axes(ir_type_of(w->f, op->first_result));
  for (uint32_t k = 0; k < op->operand_count; ++k) x[k] = operand(w, op->operands[k], reduces ? TILE_FULL : level);
  if (w->full) return;
  ttpu_dtype from = ir_type_of(w->f, op->operands[0]).dtype, to = ir_type_of(w->f, op->first_result).dtype;
  if (reduces) y = write_reduce(w, op, x);
  else if (op->kind == IR_CONVERT) y = write_convert(w, x[0], from, to, level);
  else if (op->kind == IR_BITCAST_CONVERT) y = write_bitcast(w, x[0], from, to, level);
  else y = write_pointwise(w, op, level, x);
  keep_value(w, op->first_result, y);
}

/* Bits over the axes, as bits over the dims of the space's value. */
static uint32_t mask_dims(ir_type space, uint32_t axes) {
  uint32_t mask = 0, axis = 0;
  for (uint32_t d = 0; d < space.rank; ++d)
    if (space.dims[d] != 1) mask |= (axes >> axis++ & 1) << d;
  return mask;
}

/* What the second step needs of the first. */
typedef struct draft {
  tile_prog prog; /* first, so that a tile_prog * is a draft * */
  writer *writer;
} draft;

ttpu_status opt_program_make(opt_analysis *a, base_arena *arena, uint32_t group, ir_value scalar, tile_prog **out) {
  draft *d = base_arena_zalloc(arena, sizeof *d);
  writer *w = base_arena_alloc(a->arena, sizeof *w);
  if (!d || !w) return base_no_memory(sizeof *d + sizeof *w);
  tile_prog *p = &d->prog;
  d->writer = w;
  w->a = a, w->f = a->f, w->group = group, w->p = p, w->value_count = 0, w->full = false;
  p->leaves = base_arena_alloc(a->arena, TILE_MAX_PORTS * sizeof *p->leaves);
  p->slots = base_arena_alloc(a->arena, TILE_MAX_SLOTS * sizeof *p->slots);
  p->instrs = base_arena_alloc(a->arena, MOST_INSTRS * sizeof *p->instrs);
  if (!p->leaves || !p->slots || !p->instrs) return base_no_memory(MOST_INSTRS * sizeof *p->instrs);
  if (group) {
    const opt_group *g = &a->groups[group];
    p->space = g->space;
    p->reduced = mask_dims(ir_type_of(a->f, g->space), g->reduced);
    for (uint32_t i = g->first; i; i = a->next_in_group[i]) {
      const ir_op *op = a->f->body.ops[i - 1];
      write_op(w, op, a->notes[op->first_result].level);
    }
  } else {
    p->space = scalar;
    write_op(w, ir_def(a->f, scalar), TILE_UNIFORM);
  }
  if (w->full) return base_fail(TTPU_INTERNAL, "a fused group needs more than %d values", TILE_MAX_SLOTS);
  *out = p;
  return TTPU_OK;
}

/* ---- stores, passes, registers ---------------------------------------------------------------- */

/* Inserts a STORE behind the last instruction that writes each needed value. */
static ttpu_status insert_stores(writer *w, uint32_t group, ir_value scalar) {
  opt_analysis *a = w->a;
  tile_prog *p = w->p;
  p->outs = base_arena_alloc(a->arena, TILE_MAX_PORTS * sizeof *p->outs);
  tile_instr *with = base_arena_alloc(a->arena, (MOST_INSTRS + TILE_MAX_PORTS) * sizeof *with);
  uint16_t *maker = base_arena_zalloc(a->arena, p->slot_count * sizeof *maker);
  if (!p->outs || !with || !maker) return base_no_memory(MOST_INSTRS * sizeof *with);
  for (uint32_t i = 0; i < p->instr_count; ++i) maker[p->instrs[i].dst] = (uint16_t)i;
  for (uint32_t i = 0; i < w->value_count; ++i) {
    ir_value v = w->values[i];
    bool ours = group ? a->notes[v].home == HOME_FUSED : v == scalar;
    if (!ours || !a->notes[v].needed) continue;
    if (p->leaf_count + p->out_count >= TILE_MAX_PORTS)
      return base_fail(TTPU_INTERNAL, "a fused group stores more than %d values", TILE_MAX_PORTS);
    p->outs[p->out_count++] = (tile_out){.value = v,
                                         .slot = w->value_slots[i],
                                         .dtype = ir_type_of(w->f, v).dtype,
                                         .level = group ? a->notes[v].level : TILE_UNIFORM};
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    with[n++] = p->instrs[i];
    for (uint32_t o = 0; o < p->out_count; ++o) {
      tile_out *out = &p->outs[o];
      if (maker[out->slot] != i) continue;
      out->defined = (uint16_t)n;
      with[n++] = (tile_instr){.op = TILE_STORE,
                               .level = out->level,
                               .type = out->dtype,
                               .dst = (uint16_t)o,
                               .a = out->slot,
                               .operands = 1,
                               .passes = w->slot_pass[out->slot]};
    }
  }
  p->instrs = with;
  p->instr_count = (uint16_t)n;
  return TTPU_OK;
}

/* Turns "first pass" into "set of passes" for FULL instructions, from the last to the first. */
static ttpu_status spread_passes(writer *w) {
  tile_prog *p = w->p;
  uint8_t *need = base_arena_zalloc(w->a->arena, p->slot_count);
  if (!need) return base_no_memory(p->slot_count);
  p->passes = 1;
  for (uint32_t i = p->instr_count; i-- > 0;) {
    tile_instr *in = &p->instrs[i];
    if (in->level != TILE_FULL) continue;
    bool sink = in->op == TILE_REDUCE || in->op == TILE_STORE;
    if (sink && in->passes >= p->passes) p->passes = (uint8_t)(in->passes + 1);
    in->passes = sink ? (uint8_t)(1u << in->passes) : need[in->dst];
    const uint16_t operands[3] = {in->a, in->b, in->c};
    for (uint32_t k = 0; k < in->operands; ++k)
      if (p->slots[operands[k]].level == TILE_FULL) need[operands[k]] |= in->passes;
  }
  return TTPU_OK;
}

/* FULL registers by last use; ROW and UNIFORM values keep one each, since they live from pass to pass. */
static ttpu_status allocate_registers(writer *w) {
  tile_prog *p = w->p;
  uint16_t *last = base_arena_zalloc(w->a->arena, p->slot_count * sizeof *last);
  bool *placed = base_arena_zalloc(w->a->arena, p->slot_count);
  uint16_t *spare = base_arena_alloc(w->a->arena, p->slot_count * sizeof *spare), spares = 0;
  if (!last || !placed || !spare) return base_no_memory(p->slot_count * sizeof *last);
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    const uint16_t operands[3] = {in->a, in->b, in->c};
    for (uint32_t k = 0; k < in->operands; ++k) last[operands[k]] = (uint16_t)i;
    if (in->op != TILE_STORE && i > last[in->dst]) last[in->dst] = (uint16_t)i;
  }
  p->width = 1;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    const uint16_t operands[3] = {in->a, in->b, in->c};
    tile_slot *d = in->op == TILE_STORE ? NULL : &p->slots[in->dst];
    bool same_width = d && in->op == TILE_MAP; /* then the result may be written over an operand */
    for (uint32_t k = 0; k < in->operands && same_width; ++k)
      same_width = base_dtype_bytes(p->slots[operands[k]].type) == base_dtype_bytes(d->type);
    for (int late = same_width ? 0 : 1; late < 2; ++late) {
      if (late == 1 && d && !placed[in->dst]) {
        placed[in->dst] = true;
        if (d->level == TILE_FULL) {
          d->reg = spares ? spare[--spares] : p->full_regs++;
          uint8_t bytes = (uint8_t)base_dtype_bytes(d->type);
          p->width = bytes > p->width ? bytes : p->width;
        } else {
          d->reg = d->level == TILE_ROW ? p->row_regs++ : p->uniform_regs++;
        }
      }
      if (late == 1 && same_width) break;
      for (uint32_t k = 0; k < in->operands; ++k) {
        uint16_t s = operands[k];
        bool repeated = (k > 0 && operands[0] == s) || (k > 1 && operands[1] == s);
        if (p->slots[s].level == TILE_FULL && last[s] == i && !repeated && !(d && s == in->dst))
          spare[spares++] = p->slots[s].reg;
      }
    }
    if (d && d->level == TILE_FULL && last[in->dst] == i) spare[spares++] = d->reg; /* never read */
  }
  return TTPU_OK;
}

static ttpu_status copy_out(base_arena *arena, tile_prog *p) {
  p->leaves = base_arena_dup(arena, p->leaves, p->leaf_count * sizeof *p->leaves);
  p->outs = base_arena_dup(arena, p->outs, p->out_count * sizeof *p->outs);
  p->slots = base_arena_dup(arena, p->slots, p->slot_count * sizeof *p->slots);
  p->instrs = base_arena_dup(arena, p->instrs, p->instr_count * sizeof *p->instrs);
  return p->leaves && p->outs && p->slots && p->instrs ? TTPU_OK : base_no_memory(p->instr_count * sizeof *p->instrs);
}

ttpu_status opt_program_finish(opt_analysis *a, base_arena *arena, tile_prog *p, uint32_t group, ir_value scalar) {
  (void)a;
  writer *w = ((draft *)(void *)p)->writer;
  BASE_TRY(insert_stores(w, group, scalar));
  BASE_TRY(spread_passes(w));
  BASE_TRY(allocate_registers(w));
  for (uint32_t l = 0; l < p->leaf_count; ++l) {
    uint16_t slot = p->leaves[l].last_use;
    for (uint32_t i = 0; i < p->instr_count; ++i) {
      const tile_instr *in = &p->instrs[i];
      const uint16_t operands[3] = {in->a, in->b, in->c};
      bool reads = in->op == TILE_LOAD && in->a == l;
      for (uint32_t k = 0; k < in->operands; ++k) reads |= operands[k] == slot;
      if (reads) p->leaves[l].last_use = (uint16_t)i;
    }
  }
  return copy_out(arena, p);
}
