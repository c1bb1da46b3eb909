/* Runs bound tile programs: for each tile the addresses of what is used in place, then a kernel an instruction. */
#include <alloca.h>
#include <math.h>
#include <string.h>

#include "soft/reference_int.h"
#include "soft/tile/bound.h"

void tile_kernels_portable(tile_kernels *t);
void tile_kernels_avx2(tile_kernels *t);
void tile_kernels_avx512(tile_kernels *t);

static tile_kernels kernels;
__attribute__((constructor)) static void choose_kernels(void) {
#if defined(__x86_64__)
  if (base_cpu()->avx512) return tile_kernels_avx512(&kernels);
  if (base_cpu()->avx2) return tile_kernels_avx2(&kernels);
#endif
  tile_kernels_portable(&kernels);
}
const tile_kernels *tile_kernels_get(void) { return &kernels; }

/* A worker's state: its registers and the current tile. */
typedef struct frame {
  const tile_bound *b;
  void *const *buffers;
  uint8_t *registers;
  void **slots;              /* registers, then ports */
  int64_t at[TTPU_MAX_RANK]; /* index of the tile's first segment along the outer axes */
  int64_t lane;              /* and its first lane */
  int64_t rows, inner, len;  /* the tile's shape; a segment each of rows * inner */
  int64_t lanes[3];          /* by level */
  bool fresh;                /* accumulators start anew */
} frame;

static int log2_bytes(uint8_t bytes) { return __builtin_ctz(bytes); }

/* ---- segments --------------------------------------------------------------------------------- */

/* Visits the segments of the tile that a port of this level has: row ports skip the reduced axes. */
typedef struct walk {
  const tile_bound *b;
  const tile_port *port;
  int64_t at[TTPU_MAX_RANK];
  uint32_t axes;
  uint8_t *p;
} walk;

static walk walk_begin(const frame *t, const tile_port *port, uint32_t axes) {
  walk w = {.b = t->b, .port = port, .axes = axes};
  w.p = t->slots[t->b->slot_count + (uint32_t)(port - t->b->ports)];
  for (uint32_t a = 0; a < axes; ++a) w.at[a] = t->at[a];
  return w;
}
static void walk_next(walk *w) {
  for (uint32_t a = w->axes; a-- > 0;) {
    w->p += w->port->strides[a];
    if (++w->at[a] < w->b->dims[a]) return;
    w->p -= w->port->strides[a] * w->b->dims[a];
    w->at[a] = 0;
  }
}

static void gather_lanes(uint8_t *d, const uint8_t *s, int64_t n, int64_t stride, int bytes) {
  switch (bytes) {
    case 1:
      for (int64_t i = 0; i < n; ++i, s += stride) d[i] = *s;
      return;
    case 2:
      for (int64_t i = 0; i < n; ++i, s += stride) memcpy(d + 2 * i, s, 2);
      return;
    case 4:
      for (int64_t i = 0; i < n; ++i, s += stride) memcpy(d + 4 * i, s, 4);
      return;
    case 8:
      for (int64_t i = 0; i < n; ++i, s += stride) memcpy(d + 8 * i, s, 8);
      return;
    default:
      for (int64_t i = 0; i < n; ++i, s += stride) memcpy(d + 16 * i, s, 16);
      return;
  }
}
static void scatter_lanes(uint8_t *d, const uint8_t *s, int64_t n, int64_t stride, int bytes) {
  switch (bytes) {
    case 1:
      for (int64_t i = 0; i < n; ++i, d += stride) *d = s[i];
      return;
    case 2:
      for (int64_t i = 0; i < n; ++i, d += stride) memcpy(d, s + 2 * i, 2);
      return;
    case 4:
      for (int64_t i = 0; i < n; ++i, d += stride) memcpy(d, s + 4 * i, 4);
      return;
    case 8:
      for (int64_t i = 0; i < n; ++i, d += stride) memcpy(d, s + 8 * i, 8);
      return;
    default:
      for (int64_t i = 0; i < n; ++i, d += stride) memcpy(d, s + 16 * i, 16);
      return;
  }
}

static void load_segment(const frame *t, uint8_t *d, const uint8_t *s, int64_t n, int64_t stride, int bytes) {
  if (stride == bytes) memcpy(d, s, (size_t)(n * bytes));
  else if (stride == 0) t->b->kernels->copy[log2_bytes((uint8_t)bytes)](n, d, s, NULL, NULL, 1);
  else gather_lanes(d, s, n, stride, bytes);
}

/* A matrix that lies across the tile (a transposed operand): runs down the segments, a cache line serves several. A vector
 * that is repeated over the lanes (a bias or scale of channels) is spread. */
static bool load_across(const frame *t, const tile_port *port, uint8_t *d, int64_t segments) {
  const tile_bound *b = t->b;
  if (b->axis_count == 0 || segments < 4 || t->len < 4) return false;
  uint32_t last = b->axis_count - 1;
  int64_t stride = port->strides[last];
  if (stride != port->bytes || port->lane == port->bytes || t->at[last] + segments > b->dims[last]) return false;
  const uint8_t *s = t->slots[b->slot_count + (uint32_t)(port - b->ports)];
  if (port->lane == 0) {
    b->kernels->expand[log2_bytes(port->bytes)](segments, t->len, d, s);
    return true;
  }
  for (int64_t l = 0; l < t->len; ++l)
    scatter_lanes(d + l * port->bytes, s + l * port->lane, segments, t->len * port->bytes, port->bytes);
  return true;
}

/* Brings a port's tile, in its memory dtype, one lane after the other to d. */
static void collect(const frame *t, const tile_port *port, uint8_t *d) {
  const tile_bound *b = t->b;
  if (port->level == TILE_UNIFORM || port->mode == PORT_SCALAR) {
    memcpy(d, t->slots[b->slot_count + (uint32_t)(port - b->ports)], port->bytes);
  } else if (port->level == TILE_FULL) {
    int64_t segments = t->rows * t->inner;
    if (load_across(t, port, d, segments)) return;
    walk w = walk_begin(t, port, b->axis_count);
    for (int64_t i = 0; i < segments; ++i, d += t->len * port->bytes, walk_next(&w))
      load_segment(t, d, w.p, t->len, port->lane, port->bytes);
  } else if (b->layout == LAYOUT_ROWS) {
    walk w = walk_begin(t, port, b->kept_axes);
    for (int64_t i = 0; i < t->rows; ++i, d += port->bytes, walk_next(&w)) memcpy(d, w.p, port->bytes);
  } else {
    load_segment(t, d, t->slots[b->slot_count + (uint32_t)(port - b->ports)], t->len, port->lane, port->bytes);
  }
}

static void distribute(const frame *t, const tile_port *port, const uint8_t *s) {
  const tile_bound *b = t->b;
  uint8_t *d = t->slots[b->slot_count + (uint32_t)(port - b->ports)];
  if (port->level == TILE_UNIFORM) {
    memcpy(d, s, port->bytes);
  } else if (port->level == TILE_FULL) {
    walk w = walk_begin(t, port, b->axis_count);
    for (int64_t i = 0; i < t->rows * t->inner; ++i, s += t->len * port->bytes, walk_next(&w)) {
      if (port->lane == port->bytes) memcpy(w.p, s, (size_t)(t->len * port->bytes));
      else scatter_lanes(w.p, s, t->len, port->lane, port->bytes);
    }
  } else if (b->layout == LAYOUT_ROWS) {
    walk w = walk_begin(t, port, b->kept_axes);
    for (int64_t i = 0; i < t->rows; ++i, s += port->bytes, walk_next(&w)) memcpy(w.p, s, port->bytes);
  } else {
    scatter_lanes(d, s, t->len, port->lane, port->bytes);
  }
}

/* ---- instructions ----------------------------------------------------------------------------- */

enum { SHORTEST_RUN = 32 };

/* Is a tile in memory in contiguous runs that are long enough to be converted one by one? */
static bool has_runs(const frame *t, const tile_port *port) {
  return port->level == TILE_FULL && port->mode != PORT_SCALAR && port->lane == port->bytes && t->len >= SHORTEST_RUN;
}

/* run_load and run_store are not inlined: what they take from the stack must go when they return. */
static int64_t port_lanes(const frame *t, const tile_port *port) {
  return port->mode == PORT_SCALAR ? 1 : t->lanes[port->level];
}

__attribute__((noinline)) static void run_load(const frame *t, const tile_bound_instr *in) {
  const tile_port *port = &t->b->ports[in->a];
  void *d = t->slots[in->dst];
  if (!tile_is_small_float(port->dtype)) return collect(t, port, d);
  int64_t n = port_lanes(t, port);
  tile_fn unpack = t->b->kernels->unpack[port->dtype];
  if (port->mode == PORT_DIRECT) return unpack(n, d, t->slots[t->b->slot_count + in->a], NULL, NULL, 0);
  if (has_runs(t, port)) {
    float *to = d;
    walk w = walk_begin(t, port, t->b->axis_count);
    for (int64_t i = 0; i < t->rows * t->inner; ++i, to += t->len, walk_next(&w))
      unpack(t->len, to, w.p, NULL, NULL, 0);
    return;
  }
  uint8_t *packed = alloca((size_t)(n * port->bytes) + 16);
  collect(t, port, packed);
  unpack(n, d, packed, NULL, NULL, 0);
}

__attribute__((noinline)) static void run_store(const frame *t, const tile_bound_instr *in) {
  const tile_port *port = &t->b->ports[t->b->prog->leaf_count + in->dst];
  void *memory = t->slots[t->b->slot_count + t->b->prog->leaf_count + in->dst];
  const void *s = t->slots[in->a];
  int64_t n = t->lanes[port->level];
  bool small = tile_is_small_float(port->dtype);
  tile_fn convert = small ? t->b->kernels->pack[port->dtype] : t->b->kernels->copy[log2_bytes(port->bytes)];
  if (port->mode == PORT_DIRECT) return convert(n, memory, s, NULL, NULL, in->scalar);
  if (!small && !in->scalar) return distribute(t, port, s);
  if (has_runs(t, port)) {
    const int64_t step = in->scalar ? 0 : t->len;
    const float *from = s;
    walk w = walk_begin(t, port, t->b->axis_count);
    for (int64_t i = 0; i < t->rows * t->inner; ++i, from += step, walk_next(&w))
      convert(t->len, w.p, from, NULL, NULL, in->scalar);
    return;
  }
  uint8_t *packed = alloca((size_t)(n * port->bytes) + 16);
  convert(n, packed, s, NULL, NULL, in->scalar);
  distribute(t, port, packed);
}

/* Row values over the lanes of their rows, or (columns) repeated line after line. */
static void run_expand(const frame *t, const tile_bound_instr *in) {
  int64_t bytes = (int64_t)base_dtype_bytes(in->source->type), lanes = t->inner * t->len;
  uint8_t *d = t->slots[in->dst];
  const uint8_t *s = t->slots[in->a];
  if (t->b->layout == LAYOUT_COLUMNS) {
    for (int64_t i = 0; i < t->inner; ++i, d += t->len * bytes) memcpy(d, s, (size_t)(t->len * bytes));
    return;
  }
  t->b->kernels->expand[log2_bytes((uint8_t)bytes)](t->rows, lanes, d, s);
}

/* The neutral element of a fold: the accumulator of nothing. */
static base_scalar neutral(int fold, ttpu_dtype t) {
  bool real = base_dtype_is_float(t);
  uint32_t bits = 8 * (uint32_t)base_dtype_bytes(t);
  uint64_t top = 1ull << ((bits - 1) & 63), all = ~0ull >> (64 - (bits < 64 ? bits : 64));
  base_scalar zero = {.d = {0, 0}};
  switch (fold) {
    case 1: return real || base_dtype_is_complex(t) ? (base_scalar){.d = {1, 0}} : (base_scalar){.u = 1};
    case 2:
      return real                      ? (base_scalar){.d = {-INFINITY, 0}}
             : base_dtype_is_signed(t) ? (base_scalar){.u = ~all | top}
                                       : zero;
    case 3:
      return t == TTPU_BOOL ? (base_scalar){.u = 1}
             : real         ? (base_scalar){.d = {INFINITY, 0}}
                            : (base_scalar){.u = base_dtype_is_signed(t) ? all & ~top : all};
    case 4: return (base_scalar){.u = t == TTPU_BOOL ? 1 : ~0ull};
    default: return zero;
  }
}

static void run_reduce(const frame *t, const tile_bound_instr *in) {
  const tile_instr *source = in->source;
  void *accumulator = t->slots[in->dst];
  if (t->fresh) {
    ttpu_dtype type = t->b->prog->slots[source->dst].type;
    base_scalar first = neutral(source->extra, type);
    uint8_t one[16];
    base_scalar_store(type, one, first);
    t->b->kernels->copy[log2_bytes((uint8_t)base_dtype_bytes(type))](t->lanes[TILE_ROW], accumulator, one, NULL, NULL,
                                                                     1);
  }
  if (t->b->layout == LAYOUT_ROWS) in->kernel.fold(t->rows, t->inner * t->len, accumulator, t->slots[in->a]);
  else in->kernel.fold(t->inner, t->len, accumulator, t->slots[in->a]);
}

/* Loads an element of a register as one of `dtype`: small floats are f32 there. */
static base_scalar register_load(ttpu_dtype dtype, const void *p) { return base_scalar_load(tile_type(dtype), p); }

static void run_generic(const frame *t, const tile_bound_instr *in) {
  const ir_func *f = t->b->f;
  const ir_op *op = f->body.ops[in->source->ir_op];
  const uint16_t slots[3] = {in->a, in->b, in->c};
  ttpu_dtype types[3], result = ir_type_of(f, op->first_result).dtype;
  const uint8_t *s[3];
  int64_t step[3];
  for (uint32_t k = 0; k < in->source->operands; ++k) {
    types[k] = ir_type_of(f, op->operands[k]).dtype;
    s[k] = t->slots[slots[k]];
    step[k] = in->scalar >> k & 1 ? 0 : (int64_t)base_dtype_bytes(tile_type(types[k]));
  }
  uint8_t *d = t->slots[in->dst];
  int64_t bytes = (int64_t)base_dtype_bytes(tile_type(result)), n = t->lanes[in->level];
  for (int64_t i = 0; i < n; ++i) {
    base_scalar x[3], y = {.d = {0, 0}};
    for (uint32_t k = 0; k < in->source->operands; ++k) x[k] = register_load(types[k], s[k] + i * step[k]);
    ref_pointwise(op, types, x, result, &y);
    uint8_t rounded[16];
    base_scalar_store(result, rounded, y);
    base_scalar_store(tile_type(result), d + i * bytes, base_scalar_load(result, rounded));
  }
}

/* A tile without lanes touches no memory, but its accumulators start. */
static void run_list(const frame *t, const tile_list *list) {
  void **slots = t->slots;
  bool empty = t->lanes[TILE_FULL] == 0;
  for (const tile_bound_instr *in = list->instrs, *end = in + list->count; in < end; ++in) {
    if (empty && in->source->level == TILE_FULL && in->op != TILE_REDUCE) continue;
    switch (in->op) {
      case TILE_MAP:
        in->kernel.map(t->lanes[in->level], slots[in->dst], slots[in->a], slots[in->b], slots[in->c], in->scalar);
        break;
      case TILE_LOAD: run_load(t, in); break;
      case TILE_STORE: run_store(t, in); break;
      case TILE_EXPAND: run_expand(t, in); break;
      case TILE_REDUCE: run_reduce(t, in); break;
      case TILE_GENERIC: run_generic(t, in); break;
      case TILE_EMITTED: {
        int64_t rows = in->scalar ? t->rows : 1;
        in->kernel.code(rows, t->lanes[TILE_FULL] / rows, slots);
        break;
      }
    }
  }
}

/* ---- tiles ------------------------------------------------------------------------------------ */

static void split_index(int64_t flat, const int64_t *dims, uint32_t first, uint32_t end, int64_t *at) {
  for (uint32_t a = end; a-- > first;) {
    if (a == first || flat == 0) { /* 0 also where a dim is 0 */
      at[a] = flat;
      continue;
    }
    at[a] = flat % dims[a];
    flat /= dims[a];
  }
}

/* Moves the ports to the tile whose first kept index, inner index and lane are given. */
static void move_ports(frame *t, int64_t kept, int64_t inner, int64_t lane) {
  const tile_bound *b = t->b;
  split_index(kept, b->dims, 0, b->kept_axes, t->at);
  split_index(inner, b->dims, b->kept_axes, b->axis_count, t->at);
  t->lane = lane;
  for (uint32_t i = 0; i < b->moving_count; ++i) {
    const tile_port *port = &b->ports[b->moving[i]];
    int64_t offset = port->offset + lane * port->lane;
    for (uint32_t a = 0; a < b->axis_count; ++a) offset += t->at[a] * port->strides[a];
    t->slots[b->slot_count + b->moving[i]] = (uint8_t *)t->buffers[port->buffer] + offset;
  }
}

static void set_shape(frame *t, int64_t rows, int64_t inner, int64_t len) {
  t->rows = rows, t->inner = inner, t->len = len;
  t->lanes[TILE_UNIFORM] = 1;
  t->lanes[TILE_ROW] = t->b->layout == LAYOUT_ROWS ? rows : len;
  t->lanes[TILE_FULL] = rows * inner * len;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The kept index and the first lane of a unit, and its number of lanes (columns). */
static void unit_start(const tile_bound *b, int64_t unit, int64_t *kept, int64_t *lane, int64_t *len) {
  if (b->layout == LAYOUT_ROWS) {
    *kept = unit * b->tile_rows, *lane = 0, *len = b->tile_len;
    return;
  }
  int64_t blocks = (b->len + b->tile_len - 1) / b->tile_len;
  *kept = unit / blocks, *lane = unit % blocks * b->tile_len;
  *len = smaller(b->tile_len, b->len - *lane);
}

/* Chunk `c` of a unit that is not complete. */
static void move_to_chunk(frame *t, int64_t unit, int64_t c) {
  const tile_bound *b = t->b;
  int64_t kept, lane, len;
  unit_start(b, unit, &kept, &lane, &len);
  if (b->layout == LAYOUT_COLUMNS || b->tile_inner > 1 || b->tile_len == b->len) {
    int64_t first = c * b->tile_inner;
    set_shape(t, 1, smaller(b->tile_inner, b->inner - first), len);
    return move_ports(t, kept, first, lane);
  }
  int64_t per_run = (b->len + b->tile_len - 1) / b->tile_len;
  lane = c % per_run * b->tile_len;
  set_shape(t, 1, 1, smaller(b->tile_len, b->len - lane));
  move_ports(t, kept, c / per_run, lane);
}
/* For the row instructions of a unit, no chunk in particular. */
static void move_to_unit(frame *t, int64_t unit) {
  int64_t kept, lane, len;
  unit_start(t->b, unit, &kept, &lane, &len);
  set_shape(t, 1, 0, len);
  move_ports(t, kept, 0, lane);
}

static void run_complete(frame *t, int64_t begin, int64_t end) {
  const tile_bound *b = t->b;
  t->fresh = true;
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t kept, lane, len;
    unit_start(b, unit, &kept, &lane, &len);
    set_shape(t, b->layout == LAYOUT_ROWS ? smaller(b->tile_rows, b->kept - kept) : 1, b->inner, len);
    move_ports(t, kept, 0, lane);
    run_list(t, &b->body);
  }
}

static void run_chunks(frame *t, uint32_t pass, int64_t unit, int64_t begin, int64_t end) {
  t->fresh = true;
  if (t->b->chunks == 0) { /* nothing to reduce: the accumulators still start */
    move_to_unit(t, unit);
    run_list(t, &t->b->pass[pass]);
  }
  for (int64_t c = begin; c < end; ++c) {
    move_to_chunk(t, unit, c);
    run_list(t, &t->b->pass[pass]);
    t->fresh = false;
  }
}

static void run_units(frame *t, int64_t begin, int64_t end) {
  const tile_bound *b = t->b;
  for (int64_t unit = begin; unit < end; ++unit) {
    move_to_unit(t, unit);
    run_list(t, &b->rows[0]);
    for (uint32_t pass = 0; pass < b->prog->passes; ++pass) {
      run_chunks(t, pass, unit, 0, b->chunks);
      if (b->rows[pass + 1].count == 0) continue;
      move_to_unit(t, unit);
      run_list(t, &b->rows[pass + 1]);
    }
  }
}

/* Elementwise rows longer than a tile: every chunk is on its own, so units are chunks of rows. */
static void run_pieces(frame *t, int64_t begin, int64_t end) {
  const tile_bound *b = t->b;
  t->fresh = true;
  int64_t unit = begin / b->chunks, c = begin % b->chunks;
  for (int64_t i = begin; i < end; ++i) {
    move_to_chunk(t, unit, c);
    run_list(t, &b->pass[0]);
    if (++c == b->chunks) ++unit, c = 0;
  }
}

/* ---- workers ---------------------------------------------------------------------------------- */

static void *aligned(void *p) { return (void *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

/* Memory for a worker's frame comes from its stack: at most a few hundred KiB, and it cannot fail. */
#define FRAME_OPEN(t, bound, memory)                                               \
  frame t = {.b = (bound), .buffers = (memory)};                                   \
  t.registers = aligned(alloca((bound)->register_bytes + 64));                     \
  t.slots = alloca(((bound)->slot_count + (bound)->port_count) * sizeof *t.slots); \
  frame_start(&t)

static void frame_start(frame *t) {
  const tile_bound *b = t->b;
  for (uint32_t i = 0; i < b->slot_count; ++i) t->slots[i] = t->registers + b->slot_offsets[i];
  for (uint32_t i = 0; i < b->port_count; ++i)
    if (b->ports[i].level == TILE_UNIFORM)
      t->slots[b->slot_count + i] = (uint8_t *)t->buffers[b->ports[i].buffer] + b->ports[i].offset;
  set_shape(t, 1, 1, 1);
  run_list(t, &b->uniform);
}

typedef struct job {
  const tile_bound *b;
  void *const *buffers;
} job;

static void work(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const job *j = context;
  FRAME_OPEN(t, j->b, j->buffers);
  if (j->b->complete) run_complete(&t, begin, end);
  else if (!j->b->prog->row_regs) run_pieces(&t, begin, end);
  else run_units(&t, begin, end);
}

/* One long row: blocks of chunks run in parallel, each with accumulators of its own, which are then folded in order. */
typedef struct split_job {
  const tile_bound *b;
  void *const *buffers;
  const frame *main;
  uint32_t pass;
  int64_t unit, block_chunks;
  uint8_t *partial; /* [reduction of the pass][block][lanes], in row_stride */
  int64_t blocks;
} split_job;

static void work_block(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const split_job *j = context;
  const tile_bound *b = j->b;
  FRAME_OPEN(t, b, j->buffers);
  for (int64_t block = begin; block < end; ++block) {
    memcpy(t.registers, j->main->registers, b->shared_bytes); /* row values of earlier passes */
    run_chunks(&t, j->pass, j->unit, block * j->block_chunks, smaller((block + 1) * j->block_chunks, b->chunks));
    uint8_t *to = j->partial;
    for (uint32_t i = 0; i < b->pass[j->pass].count; ++i) {
      const tile_bound_instr *in = &b->pass[j->pass].instrs[i];
      if (in->op != TILE_REDUCE) continue;
      size_t bytes = (size_t)t.lanes[TILE_ROW] * base_dtype_bytes(b->prog->slots[in->source->dst].type);
      memcpy(to + block * (int64_t)bytes, t.slots[in->dst], bytes);
      to += j->blocks * b->row_stride;
    }
  }
}

static void fold_blocks(frame *t, const split_job *j) {
  const uint8_t *from = j->partial;
  const tile_list *list = &t->b->pass[j->pass];
  move_to_unit(t, j->unit);
  for (uint32_t i = 0; i < list->count; ++i) {
    const tile_bound_instr *in = &list->instrs[i];
    if (in->op != TILE_REDUCE) continue;
    ttpu_dtype type = t->b->prog->slots[in->source->dst].type;
    size_t bytes = (size_t)t->lanes[TILE_ROW] * base_dtype_bytes(type);
    memcpy(t->slots[in->dst], from, bytes);
    t->b->kernels->fold_columns[in->source->extra][type](j->blocks - 1, t->lanes[TILE_ROW], t->slots[in->dst],
                                                         from + bytes);
    from += j->blocks * t->b->row_stride;
  }
}

static uint32_t count_reductions(const tile_list *list) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < list->count; ++i) n += list->instrs[i].op == TILE_REDUCE;
  return n;
}

static void run_split(const tile_bound *b, void *const *buffers) {
  enum { PARTIAL_BYTES = 256 << 10 }; /* of stack */
  FRAME_OPEN(t, b, buffers);
  int64_t most = 1;
  for (uint32_t pass = 0; pass < b->prog->passes; ++pass) {
    int64_t n = count_reductions(&b->pass[pass]);
    most = n > most ? n : most;
  }
  int64_t blocks = smaller(64, PARTIAL_BYTES / (most * b->row_stride));
  blocks = smaller(blocks < 1 ? 1 : blocks, b->chunks);
  int64_t block_chunks = (b->chunks + blocks - 1) / blocks;
  blocks = (b->chunks + block_chunks - 1) / block_chunks;
  uint8_t *partial = alloca((size_t)(blocks * most * b->row_stride));
  double cost = b->nanoseconds * tile_bound_elements(b) / (double)(b->units * b->prog->passes);
  for (int64_t unit = 0; unit < b->units; ++unit) {
    move_to_unit(&t, unit);
    run_list(&t, &b->rows[0]);
    for (uint32_t pass = 0; pass < b->prog->passes; ++pass) {
      split_job j = {b, buffers, &t, pass, unit, block_chunks, partial, blocks};
      base_pool_run(blocks, 1, (int64_t)cost, work_block, &j);
      fold_blocks(&t, &j);
      run_list(&t, &b->rows[pass + 1]);
    }
  }
}

void tile_run(const tile_bound *b, void *const *buffers) {
  job j = {b, buffers};
  int64_t units = b->units;
  if (b->split) return run_split(b, buffers);
  if (!b->complete && !b->prog->row_regs) units *= b->chunks;
  if (units <= 0) return;
  double cost = b->nanoseconds * tile_bound_elements(b);
  if (units == 1 || cost < 20000) return work(&j, 0, units, 0);
  double piece = 10000 / (cost / (double)units); /* pieces of about 10 us */
  int64_t grain = piece < 1 ? 1 : (int64_t)piece;
  base_pool_run(units, grain, (int64_t)cost, work, &j);
}

/* ---- ramps ------------------------------------------------------------------------------------ */

typedef struct ramp_job {
  ttpu_dtype dtype;
  uint8_t *out;
} ramp_job;

/* 0, 1, 2, ... converted from i64, a stack-full at a time. */
static void work_ramp(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  enum { LANES = 256 };
  const ramp_job *j = context;
  ttpu_dtype type = tile_type(j->dtype);
  int64_t bytes = (int64_t)base_dtype_bytes(j->dtype);
  for (int64_t i = begin; i < end; i += LANES) {
    int64_t numbers[LANES], n = smaller(LANES, end - i);
    uint8_t converted[LANES * 16];
    for (int64_t k = 0; k < n; ++k) numbers[k] = i + k;
    if (!tile_is_small_float(j->dtype)) {
      kernels.convert[TTPU_I64][type](n, j->out + i * bytes, numbers, NULL, NULL, 0);
      continue;
    }
    kernels.convert[TTPU_I64][type](n, converted, numbers, NULL, NULL, 0);
    kernels.pack[j->dtype](n, j->out + i * bytes, converted, NULL, NULL, 0);
  }
}

void tile_ramp(ttpu_dtype dtype, int64_t count, void *out) {
  ramp_job j = {dtype, out};
  base_pool_run(count, 16384, count / 2, work_ramp, &j);
}
