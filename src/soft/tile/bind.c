/* Binds a tile program to sizes: the loop nest, the shape of a tile, what is used in place, which kernels run. */
#include <string.h>

#include "soft/tile/bound.h"
#include "soft/tile/emit.h"

int tile_fold_index(ir_kind kind) {
  switch (kind) {
    case IR_ADD: return 0;
    case IR_MULTIPLY: return 1;
    case IR_MAXIMUM: return 2;
    case IR_MINIMUM: return 3;
    case IR_AND: return 4;
    case IR_OR: return 5;
    default: return -1;
  }
}

/* The binding under construction. */
typedef struct binder {
  base_arena *arena;
  const tile_prog *p;
  const ir_func *f;
  tile_bound *b;
  uint32_t axes; /* of the space, before the nest is made */
  int64_t dims[TTPU_MAX_RANK];
  bool reduced[TTPU_MAX_RANK];
  int64_t (*strides)[TTPU_MAX_RANK]; /* per port, bytes, along the space's axes */
  uint16_t *alias;                   /* per slot: what stands for it */
  bool *scalar, *whole;              /* per slot: is one element for a tile; must be a full register */
} binder;

static void *take(binder *x, size_t bytes) { return base_arena_zalloc(x->arena, bytes ? bytes : 1); }

/* ---- the nest --------------------------------------------------------------------------------- */

static void find_axes(binder *x) {
  ir_type space = ir_type_of(x->f, x->p->space);
  for (uint32_t d = 0; d < space.rank; ++d) {
    if (space.dims[d] == 1) continue;
    x->dims[x->axes] = space.dims[d];
    x->reduced[x->axes++] = x->p->reduced >> d & 1;
  }
}

/* A value's strides along the axes: its dims other than 1 are the space's axes, or the kept ones of them. */
static ttpu_status place_port(binder *x, uint32_t index, ir_value value, uint32_t dtype, uint32_t level,
                              const tile_place *place) {
  tile_port *port = &x->b->ports[index];
  int64_t bytes = (int64_t)base_dtype_bytes(dtype);
  *port = (tile_port){.buffer = place->buffer,
                      .dtype = (uint8_t)dtype,
                      .level = (uint8_t)level,
                      .bytes = (uint8_t)bytes,
                      .offset = place->offset * bytes};
  if (level == TILE_UNIFORM) return TTPU_OK;
  ir_type t = ir_type_of(x->f, value);
  uint32_t axis = 0;
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (t.dims[d] == 1) continue;
    while (level == TILE_ROW && axis < x->axes && x->reduced[axis]) ++axis;
    if (axis == x->axes || x->dims[axis] != t.dims[d])
      return base_fail(TTPU_INTERNAL, "tile program: value %u does not fit the group's space", value);
    x->strides[index][axis++] = place->strides[d] * bytes;
  }
  return TTPU_OK;
}

static bool can_merge(const binder *x, uint32_t outer, uint32_t inner) {
  for (uint32_t i = 0; i < x->b->port_count; ++i)
    if (x->strides[i][outer] != x->strides[i][inner] * x->dims[inner]) return false;
  return true;
}

/* Orders the axes (kept and reduced, and which is innermost), then merges neighbours of one group. */
static ttpu_status make_nest(binder *x) {
  tile_bound *b = x->b;
  uint32_t order[TTPU_MAX_RANK], n = 0, kept = 0;
  for (uint32_t i = 0; i < x->axes; ++i)
    if (!x->reduced[i]) order[n++] = i, ++kept;
  for (uint32_t i = 0; i < x->axes; ++i)
    if (x->reduced[i]) order[n++] = i;

  uint32_t merged[TTPU_MAX_RANK], count = 0, merged_kept = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t axis = order[i];
    if (count && x->reduced[merged[count - 1]] == x->reduced[axis] && can_merge(x, merged[count - 1], axis)) {
      x->dims[axis] *= x->dims[merged[count - 1]];
      merged[count - 1] = axis;
    } else {
      merged[count++] = axis;
      if (i < kept) ++merged_kept;
    }
  }
  bool reduces = count > merged_kept;
  b->layout = reduces && merged_kept && !x->reduced[x->axes - 1] && x->dims[merged[merged_kept - 1]] >= 8
                  ? LAYOUT_COLUMNS
                  : LAYOUT_ROWS;
  uint32_t innermost = b->layout == LAYOUT_COLUMNS ? merged_kept - 1 : count - 1;
  b->len = count ? x->dims[merged[innermost]] : 1;
  if (count) {
    uint32_t axis = merged[innermost];
    for (uint32_t i = innermost; i + 1 < count; ++i) merged[i] = merged[i + 1];
    if (innermost < merged_kept) --merged_kept;
    --count;
    for (uint32_t i = 0; i < b->port_count; ++i) b->ports[i].lane = x->strides[i][axis];
  }

  b->axis_count = count, b->kept_axes = merged_kept;
  int64_t *dims = take(x, count * sizeof *dims), *strides = take(x, count * b->port_count * sizeof *strides);
  if (!dims || !strides) return base_no_memory(count * (b->port_count + 1) * sizeof *dims);
  b->dims = dims, b->kept = b->inner = 1;
  for (uint32_t a = 0; a < count; ++a) {
    dims[a] = x->dims[merged[a]];
    *(a < merged_kept ? &b->kept : &b->inner) *= dims[a];
    for (uint32_t i = 0; i < b->port_count; ++i) strides[i * count + a] = x->strides[i][merged[a]];
  }
  for (uint32_t i = 0; i < b->port_count; ++i) b->ports[i].strides = strides + i * count;
  return TTPU_OK;
}

/* ---- the tile --------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Nanoseconds for one element, roughly: it decides how many threads are worth waking. */
static double instr_cost(const tile_instr *in) {
  if (in->op == TILE_GENERIC) return 40;
  double bytes = (double)base_dtype_bytes(in->type);
  if (in->op != TILE_MAP) return 0.02 * bytes;
  bool wide = in->type == TTPU_F64;
  switch (in->kind) {
    case IR_EXPONENTIAL:
    case IR_LOG:
    case IR_LOGISTIC:
    case IR_TANH:
    case IR_ERF:
    case IR_SINE:
    case IR_COSINE:
    case IR_TAN:
    case IR_EXPONENTIAL_MINUS_ONE:
    case IR_LOG_PLUS_ONE: return wide ? 5 : 0.3;
    case IR_ASIN:
    case IR_ACOS:
    case IR_ATAN:
    case IR_ATAN2:
    case IR_SINH:
    case IR_COSH:
    case IR_ASINH:
    case IR_ACOSH:
    case IR_ATANH: return wide ? 3 : 1.5;
    case IR_POWER: return wide ? 20 : 1;
    case IR_REMAINDER: return wide ? 15 : 1;
    case IR_ERFC: return wide ? 15 : 2;
    case IR_ERF_INV: return wide ? 45 : 3;
    case IR_LGAMMA: return wide ? 40 : 6;
    case IR_CBRT: return 15;
    case IR_DIVIDE:
    case IR_SQRT:
    case IR_RSQRT: return 0.05 * bytes;
    default: return 0.015 * bytes;
  }
}

/* What the passes over a row compute again, in nanoseconds for one element. */
static double recomputed_cost(const tile_prog *p) {
  double cost = 0;
  for (uint32_t i = 0; i < p->instr_count; ++i)
    if (p->instrs[i].level == TILE_FULL && p->instrs[i].passes)
      cost += instr_cost(&p->instrs[i]) * (__builtin_popcount(p->instrs[i].passes) - 1);
  return cost;
}

/* Rows beyond the first cache are still taken whole when that saves an exponential and the second cache holds them. */
static bool row_fits(const binder *x, int64_t row, int64_t lanes) {
  enum { SECOND_CACHE = 512 << 10, PARALLEL = 16 };
  if (row <= 4 * lanes) return true;
  return x->b->kept >= PARALLEL && row * x->p->width * x->p->full_regs <= SECOND_CACHE && recomputed_cost(x->p) > 0.2;
}

/* Nothing here may depend on the number of threads: it decides the order of sums. */
static void shape_tile(binder *x) {
  tile_bound *b = x->b;
  enum {
    MOST_BYTES = 128 << 10
  }; /* of registers of a kind: they lie on a worker's stack (a complete row: 4 times that) */
  int64_t lanes = TILE_BYTES / x->p->width;
  while (lanes > 64 && lanes * x->p->width * x->p->full_regs > MOST_BYTES) lanes /= 2;
  int64_t most_rows = larger(MOST_BYTES / (16 * larger(x->p->row_regs, 1)), 1);
  bool reduces = x->p->reduced != 0 && x->p->row_regs > 0;
  if (b->layout == LAYOUT_ROWS) {
    int64_t row = b->inner * b->len;
    b->complete = reduces ? row_fits(x, row, lanes) : row <= lanes;
    if (b->complete) {
      b->tile_rows = smaller(smaller(larger(lanes / larger(row, 1), 1), most_rows), larger(b->kept, 1));
      b->tile_inner = b->inner, b->tile_len = b->len;
      b->units = pieces(b->kept, b->tile_rows), b->chunks = 1;
    } else {
      b->tile_rows = 1;
      b->tile_len = smaller(b->len, lanes);
      b->tile_inner = b->len >= lanes ? 1 : smaller(b->inner, lanes / b->len);
      b->chunks = pieces(b->inner, b->tile_inner) * pieces(b->len, b->tile_len);
      b->units = b->kept;
      b->split = reduces && b->units < 16 && row >= 32 * lanes;
    }
  } else {
    b->tile_rows = 1;
    int64_t len = larger(b->len, 1), width = smaller(len, larger(lanes / larger(b->inner, 1), 64));
    b->complete = b->inner * width <= 4 * lanes;
    /* Lines as wide as possible run on from one to the next and are read in place; four, since folds take four at a time. */
    b->tile_len = b->complete ? width : smaller(len, lanes);
    b->tile_inner = b->complete ? b->inner : smaller(b->inner, larger(lanes / b->tile_len, 4));
    b->chunks = pieces(b->inner, larger(b->tile_inner, 1));
    b->units = b->kept * pieces(b->len, b->tile_len);
    b->split = !b->complete && b->units < 16 && b->inner * b->tile_len >= 32 * lanes;
  }
  b->tile_lanes = larger(b->tile_rows * b->tile_inner * b->tile_len, 1);
}

/* ---- what is used in place -------------------------------------------------------------------- */

/* The axes from `first` on that vary inside a tile. */
static uint32_t first_tile_axis(const tile_bound *b) {
  if (b->layout == LAYOUT_COLUMNS) return b->tile_inner > 1 ? b->kept_axes : b->axis_count;
  if (b->complete && b->tile_rows > 1) return 0;
  return b->tile_inner > 1 ? b->kept_axes : b->axis_count;
}

static tile_port_mode mode_full(const tile_bound *b, const tile_port *port) {
  uint32_t first = first_tile_axis(b);
  bool constant = port->lane == 0 || b->tile_len == 1, dense = port->lane == port->bytes || b->len == 1;
  int64_t expected = b->tile_len * port->bytes; /* segments that are cut (tile_len < len) do not run on */
  for (uint32_t a = b->axis_count; a-- > first;) {
    if (port->strides[a] != 0) constant = false;
    if (port->strides[a] != expected) dense = false;
    expected *= b->dims[a];
  }
  return constant ? PORT_SCALAR : dense ? PORT_DIRECT : PORT_COPY;
}

static tile_port_mode mode_row(const tile_bound *b, const tile_port *port) {
  if (b->layout == LAYOUT_COLUMNS) return port->lane == port->bytes || b->tile_len == 1 ? PORT_DIRECT : PORT_COPY;
  if (b->tile_rows == 1) return PORT_DIRECT;
  int64_t expected = port->bytes;
  for (uint32_t a = b->kept_axes; a-- > 0;) {
    if (port->strides[a] != expected) return PORT_COPY;
    expected *= b->dims[a];
  }
  /* Without reductions there are no rows; with them the innermost axis is a reduced one. */
  return PORT_DIRECT;
}

static tile_port_mode choose_mode(const tile_bound *b, const tile_port *port) {
  if (port->level == TILE_UNIFORM) return PORT_SCALAR;
  return port->level == TILE_ROW ? mode_row(b, port) : mode_full(b, port);
}

/* Leaves: LOAD is dropped and its register stands for the memory. Row values: EXPAND is dropped when a tile has one row. */
static void drop_loads(binder *x) {
  tile_bound *b = x->b;
  const tile_prog *p = x->p;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    if (in->op == TILE_REDUCE || in->op == TILE_STORE) x->whole[in->a] = true;
  }
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    if (in->op == TILE_LOAD) {
      tile_port *port = &b->ports[in->a];
      port->mode = (uint8_t)choose_mode(b, port);
      if (port->mode == PORT_SCALAR && x->whole[in->dst] && port->level != TILE_UNIFORM) port->mode = PORT_COPY;
      x->scalar[in->dst] = port->mode == PORT_SCALAR;
      if (tile_is_small_float(port->dtype)) continue; /* it is converted into its register */
      if (port->mode != PORT_COPY) x->alias[in->dst] = (uint16_t)(p->slot_count + in->a);
    } else if (in->op == TILE_EXPAND && !x->whole[in->dst]) {
      bool one = b->layout == LAYOUT_ROWS ? b->tile_rows == 1 : b->tile_inner == 1;
      if (!one) continue;
      x->alias[in->dst] = in->a;
      x->scalar[in->dst] = b->layout == LAYOUT_ROWS;
    }
  }
}

/* A MAP over the whole tile; the others need, or give, every lane. */
static bool maps_lanes(const tile_instr *in) { return in->op == TILE_MAP && in->level == TILE_FULL; }

/* What is computed from scalars alone is a scalar: one lane of it is computed and its users repeat that. Slots begin as
 * scalars and cease to be so until nothing changes: some are written twice. */
static void spread_scalars(binder *x) {
  const tile_prog *p = x->p;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    if (maps_lanes(in) && !x->whole[in->dst]) x->scalar[in->dst] = true;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < p->instr_count; ++i) {
      const tile_instr *in = &p->instrs[i];
      const uint16_t operands[3] = {in->a, in->b, in->c};
      if (in->op == TILE_STORE || in->op == TILE_LOAD || in->op == TILE_EXPAND || !x->scalar[in->dst]) continue;
      bool scalar = maps_lanes(in);
      for (uint32_t k = 0; k < in->operands; ++k)
        scalar &= x->scalar[operands[k]] || p->slots[operands[k]].level == TILE_UNIFORM;
      if (scalar) continue;
      x->scalar[in->dst] = false;
      changed = true;
    }
  }
}

static bool single_bit(unsigned x) { return x && !(x & (x - 1)); }

/* Outputs: the instruction that makes the value writes into memory, and STORE is dropped. */
static void drop_stores(binder *x) {
  const tile_prog *p = x->p;
  for (uint32_t i = 0; i < p->out_count; ++i) {
    tile_port *port = &x->b->ports[p->leaf_count + i];
    uint16_t slot = p->outs[i].slot;
    port->mode = (uint8_t)choose_mode(x->b, port);
    if (port->mode == PORT_SCALAR)
      port->mode = port->level == TILE_UNIFORM || x->b->tile_lanes == 1 ? PORT_DIRECT : PORT_COPY;
    if (port->mode != PORT_DIRECT || tile_is_small_float(port->dtype)) continue;
    if (x->alias[slot] != slot || x->scalar[slot]) continue; /* a leaf or a row value read in place: a copy after all */
    const tile_instr *store = &p->instrs[p->outs[i].defined], *maker = store - 1;
    if (maker->op == TILE_STORE || maker->op == TILE_REDUCE || maker->dst != slot) continue;
    if (port->level == TILE_FULL && !x->b->complete && !single_bit(maker->passes)) continue;
    x->alias[slot] = (uint16_t)(p->slot_count + p->leaf_count + i);
  }
}

bool tile_may_overwrite(const tile_prog *p, uint32_t out, uint32_t leaf) {
  const tile_out *o = &p->outs[out];
  const tile_leaf *l = &p->leaves[leaf];
  if (o->level != TILE_FULL || l->level != TILE_FULL || l->last_use > o->defined) return false;
  if (p->passes == 1) return true;
  const tile_instr *store = &p->instrs[o->defined];
  if (!single_bit(store->passes) || !single_bit(store[-1].passes)) return false;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    if (in->op == TILE_LOAD && in->a == leaf && in->passes >= 2 * store->passes)
      return false; /* read again in a later pass */
  }
  return true;
}

/* ---- instructions ----------------------------------------------------------------------------- */

static int log2_bytes(ttpu_dtype t) { return __builtin_ctz((unsigned)base_dtype_bytes(t)); }

static tile_fn map_kernel(const tile_kernels *k, const tile_instr *in) {
  switch (in->table) {
    case TILE_MAP_COMPARE: return k->compare[in->extra][in->type];
    case TILE_MAP_CONVERT: return k->convert[in->type][in->extra];
    case TILE_MAP_SELECT: return k->select[log2_bytes(in->type)];
    case TILE_MAP_COPY: return k->copy[log2_bytes(in->type)];
    case TILE_MAP_ROUND: return k->round[in->type];
    case TILE_MAP_PACK: return k->pack[in->type];
    case TILE_MAP_UNPACK: return k->unpack[in->type];
    default: return k->map[in->kind][in->type];
  }
}

/* An alias may have one itself: an EXPAND of a row value that is written to its output, for one. */
static uint16_t resolve(const binder *x, uint16_t slot) {
  while (slot < x->p->slot_count && x->alias[slot] != slot) slot = x->alias[slot];
  return slot;
}

static bool is_dropped(const binder *x, const tile_instr *in) {
  switch (in->op) {
    case TILE_LOAD: return x->alias[in->dst] == x->p->slot_count + in->a;
    case TILE_EXPAND: return x->alias[in->dst] == in->a;
    case TILE_STORE: return x->alias[in->a] == x->p->slot_count + x->p->leaf_count + in->dst;
    default: return false;
  }
}

/* Do this instruction and the next make one: an operation and the rounding of its result? */
static bool rounds_next(const binder *x, const tile_instr *in) {
  const tile_instr *next = in + 1;
  if (next == x->p->instrs + x->p->instr_count || in->op != TILE_MAP || next->op != TILE_MAP) return false;
  if (in->table != TILE_MAP_KIND || in->type != TTPU_F32 || !x->b->kernels->rounded[in->kind]) return false;
  return next->table == TILE_MAP_ROUND && next->type == TTPU_BF16 && next->a == in->dst && next->dst == in->dst &&
         next->level == in->level && next->passes == in->passes;
}

static void bind_instr(binder *x, const tile_instr *in, tile_bound_instr *to) {
  const tile_prog *p = x->p;
  *to = (tile_bound_instr){.op = in->op, .level = in->level, .source = in};
  if (in->op == TILE_LOAD) {
    to->dst = resolve(x, in->dst), to->a = in->a;
    if (x->scalar[in->dst] && in->level == TILE_FULL) to->scalar = 1;
    return;
  }
  uint16_t slots[3] = {in->a, in->b, in->c};
  for (uint32_t i = 0; i < in->operands; ++i) {
    uint16_t slot = slots[i];
    if (x->scalar[slot] || p->slots[slot].level < in->level) to->scalar |= (uint8_t)(1u << i);
    slots[i] = resolve(x, slot);
  }
  to->a = slots[0], to->b = slots[1], to->c = slots[2];
  to->dst = in->op == TILE_STORE ? in->dst : resolve(x, in->dst);
  const tile_kernels *k = x->b->kernels;
  if (maps_lanes(in) && x->scalar[in->dst]) to->level = TILE_UNIFORM;
  if (in->op == TILE_MAP) to->kernel.map = rounds_next(x, in) ? k->rounded[in->kind] : map_kernel(k, in);
  if (in->op == TILE_REDUCE)
    to->kernel.fold = (x->b->layout == LAYOUT_ROWS ? k->fold_rows : k->fold_columns)[in->extra][in->type];
}

static tile_list *list_of(tile_bound *b, const tile_instr *in, uint32_t pass) {
  if (in->level == TILE_UNIFORM) return pass == 0 ? &b->uniform : NULL;
  if (b->complete) return pass == 0 ? &b->body : NULL;
  if (in->level == TILE_FULL) return in->passes >> pass & 1 ? &b->pass[pass] : NULL;
  if (pass == 0 && in->passes == 0) return &b->rows[0];
  return in->passes == pass + 1 ? &b->rows[pass + 1] : NULL;
}

static ttpu_status bind_instrs(binder *x) {
  tile_bound *b = x->b;
  const tile_prog *p = x->p;
  uint32_t passes = b->complete ? 1 : p->passes, total = 0;
  for (int fill = 0; fill < 2; ++fill) {
    for (uint32_t pass = 0; pass < passes; ++pass)
      for (uint32_t i = 0; i < p->instr_count; ++i) {
        const tile_instr *in = &p->instrs[i];
        if (is_dropped(x, in)) continue;
        if (rounds_next(x, in)) ++i;
        tile_list *list = list_of(b, in, pass);
        if (!list) continue;
        if (fill) bind_instr(x, in, &list->instrs[list->count++]);
        else ++list->count, ++total;
        if (!fill && in->level == TILE_FULL && !(maps_lanes(in) && x->scalar[in->dst]))
          b->nanoseconds += instr_cost(in);
      }
    if (fill) break;
    tile_bound_instr *all = take(x, total * sizeof *all);
    if (!all) return base_no_memory(total * sizeof *all);
    tile_list *lists[3 + 2 * TILE_MAX_PASSES] = {&b->uniform, &b->body};
    uint32_t count = 2;
    for (uint32_t i = 0; i <= TILE_MAX_PASSES; ++i) lists[count++] = &b->rows[i];
    for (uint32_t i = 0; i < TILE_MAX_PASSES; ++i) lists[count++] = &b->pass[i];
    for (uint32_t i = 0; i < count; ++i) {
      lists[i]->instrs = all;
      all += lists[i]->count;
      lists[i]->count = 0;
    }
  }
  return TTPU_OK;
}

/* Registers: uniform ones of 16 bytes, then row ones, then full ones, each 64-byte aligned. */
static ttpu_status place_registers(binder *x) {
  tile_bound *b = x->b;
  const tile_prog *p = x->p;
  int64_t row_lanes = b->layout == LAYOUT_ROWS ? b->tile_rows : b->tile_len;
  b->row_stride = (uint32_t)(((row_lanes * 16) + 63) & ~(int64_t)63);
  uint32_t full_stride = (uint32_t)((b->tile_lanes * p->width + 63) & ~(int64_t)63);
  uint32_t rows_at = (p->uniform_regs * 16u + 63u) & ~63u;
  uint32_t full_at = rows_at + p->row_regs * b->row_stride;
  b->shared_bytes = full_at;
  b->register_bytes = full_at + p->full_regs * full_stride;
  b->slot_count = p->slot_count;
  b->slot_offsets = take(x, p->slot_count * sizeof *b->slot_offsets);
  b->moving = take(x, b->port_count * sizeof *b->moving);
  if (!b->slot_offsets || !b->moving) return base_no_memory(p->slot_count * sizeof *b->slot_offsets);
  for (uint32_t i = 0; i < p->slot_count; ++i) {
    const tile_slot *s = &p->slots[i];
    b->slot_offsets[i] = s->level == TILE_FULL  ? full_at + s->reg * full_stride
                         : s->level == TILE_ROW ? rows_at + s->reg * b->row_stride
                                                : s->reg * 16u;
  }
  for (uint32_t i = 0; i < b->port_count; ++i)
    if (b->ports[i].level != TILE_UNIFORM) b->moving[b->moving_count++] = (uint16_t)i;
  return TTPU_OK;
}

ttpu_status tile_bind(base_arena *arena, const tile_prog *p, const ir_func *f, const tile_place *leaves,
                      const tile_place *outs, const tile_bound **result) {
  binder x = {.arena = arena, .p = p, .f = f};
  tile_bound *b = x.b = take(&x, sizeof *b);
  if (!b) return base_no_memory(sizeof *b);
  int64_t strides[TILE_MAX_PORTS][TTPU_MAX_RANK];
  uint16_t alias[TILE_MAX_SLOTS];
  bool scalar[TILE_MAX_SLOTS], whole[TILE_MAX_SLOTS];
  b->prog = p, b->f = f, b->kernels = tile_kernels_get(), b->port_count = (uint32_t)(p->leaf_count + p->out_count);
  memset(strides, 0, b->port_count * sizeof *strides);
  memset(scalar, 0, p->slot_count), memset(whole, 0, p->slot_count);
  for (uint32_t i = 0; i < p->slot_count; ++i) alias[i] = (uint16_t)i;
  x.strides = strides, x.alias = alias, x.scalar = scalar, x.whole = whole;
  b->ports = take(&x, b->port_count * sizeof *b->ports);
  if (!b->ports) return base_no_memory(b->port_count * sizeof *b->ports);
  find_axes(&x);
  for (uint32_t i = 0; i < p->leaf_count; ++i)
    BASE_TRY(place_port(&x, i, p->leaves[i].value, p->leaves[i].dtype, p->leaves[i].level, &leaves[i]));
  for (uint32_t i = 0; i < p->out_count; ++i)
    BASE_TRY(place_port(&x, p->leaf_count + i, p->outs[i].value, p->outs[i].dtype, p->outs[i].level, &outs[i]));
  BASE_TRY(make_nest(&x));
  shape_tile(&x);
  drop_loads(&x);
  spread_scalars(&x);
  drop_stores(&x);
  BASE_TRY(bind_instrs(&x));
  BASE_TRY(place_registers(&x));
  tile_emit(b, &b->body);
  for (uint32_t pass = 0; pass < TILE_MAX_PASSES; ++pass) tile_emit(b, &b->pass[pass]);
  *result = b;
  return TTPU_OK;
}

double tile_bound_elements(const tile_bound *b) { return (double)b->kept * (double)b->inner * (double)b->len; }
