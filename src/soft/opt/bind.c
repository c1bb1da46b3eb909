/* Binds a structure to the sizes of one function: where every value lies, and the steps with their loops. */
#include <string.h>

#include "soft/opt/opt.h"

typedef struct binder {
  soft_executable *e;
  base_arena *arena;
  const ir_func *f;
  opt_place *places; /* by value */
} binder;

/* ---- buffers and places ----------------------------------------------------------------------- */

static size_t type_bytes(ir_type t) { return (size_t)ir_numel(t) * base_dtype_bytes(t.dtype); }

static ttpu_status new_buffer(binder *b, opt_buffer buffer, uint32_t *out) {
  soft_executable *e = b->e;
  if (!BASE_GROW(e->buffers, e->buffer_count, e->buffer_capacity)) return base_no_memory(sizeof buffer);
  buffer.first = UINT32_MAX, buffer.same = e->buffer_count, buffer.donor = OPT_NO_BUFFER;
  e->buffers[ *out = e->buffer_count++] = buffer;
  return TTPU_OK;
}

static ttpu_status dense_strides(binder *b, ir_type t, const int64_t **out) {
  int64_t *strides = base_arena_alloc(b->arena, (t.rank + 1u) * sizeof *strides);
  if (!strides) return base_no_memory(t.rank * sizeof *strides);
  base_row_major(t.rank, t.dims, strides);
  *out = strides;
  return TTPU_OK;
}

/* A fresh dense buffer for a value of type t. */
static ttpu_status new_place(binder *b, ir_type t, opt_place *out) {
  *out = (opt_place){0};
  BASE_TRY(new_buffer(b, (opt_buffer){.kind = BUFFER_TEMP, .bytes = type_bytes(t)}, &out->buffer));
  return dense_strides(b, t, &out->strides);
}

static bool is_dense(ir_type t, const int64_t *strides) {
  int64_t expected = 1;
  if (ir_numel(t) == 0) return true;
  for (uint32_t d = t.rank; d-- > 0;) {
    if (t.dims[d] != 1 && strides[d] != expected) return false;
    expected *= t.dims[d];
  }
  return true;
}
/* The value is its buffer, from the first byte to the last. */
static bool is_whole(const soft_executable *e, ir_type t, const opt_place *p) {
  return p->offset == 0 && is_dense(t, p->strides) && e->buffers[p->buffer].bytes == type_bytes(t);
}

static void touch(soft_executable *e, uint32_t buffer) {
  opt_buffer *b = &e->buffers[buffer];
  if (b->first == UINT32_MAX) b->first = e->step_count;
  if (b->last != UINT32_MAX) b->last = e->step_count; /* a result lives on */
}

static ttpu_status place_constant(binder *b, ir_value v) {
  const ir_data data = IR_ATTRS(ir_def(b->f, v), constant)->value;
  ir_type t = ir_type_of(b->f, v);
  opt_place *p = &b->places[v];
  BASE_TRY(new_buffer(b, (opt_buffer){.kind = BUFFER_CONSTANT, .data = data.bytes}, &p->buffer));
  if (!data.splat) return dense_strides(b, t, &p->strides);
  p->strides = base_arena_zalloc(b->arena, (t.rank + 1u) * sizeof *p->strides);
  return p->strides ? TTPU_OK : base_no_memory(t.rank * sizeof *p->strides);
}

/* Where a value lies; constants are placed at their first use. */
static ttpu_status place_of(binder *b, ir_value v, opt_place *out) {
  if (b->places[v].buffer == OPT_NO_BUFFER) {
    const ir_op *op = ir_def(b->f, v);
    if (!op || op->kind != IR_CONSTANT) return base_fail(TTPU_INTERNAL, "value %u is used before it is computed", v);
    BASE_TRY(place_constant(b, v));
  }
  *out = b->places[v];
  return TTPU_OK;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static ttpu_status push_step(binder *b, const soft_step *step) {
  soft_executable *e = b->e;
  if (!BASE_GROW(e->steps, e->step_count, e->step_capacity)) return base_no_memory(sizeof *step);
  for (uint32_t i = 0; i < step->operand_count; ++i) touch(e, step->operands[i].place.buffer);
  for (uint32_t i = 0; i < step->result_count; ++i) touch(e, step->results[i].place.buffer);
  if (step->kind == RUN_TILE) {
    for (uint32_t i = 0; i < step->prog->leaf_count; ++i) touch(e, step->leaves[i].buffer);
    for (uint32_t i = 0; i < step->prog->out_count; ++i) touch(e, step->outs[i].buffer);
  }
  e->steps[e->step_count++] = *step;
  return TTPU_OK;
}

static ttpu_status new_operands(binder *b, soft_step *step, uint32_t operands, uint32_t results) {
  step->operand_count = operands, step->result_count = results;
  step->operands = base_arena_zalloc(b->arena, (operands + results + 1u) * sizeof *step->operands);
  if (!step->operands) return base_no_memory((operands + results) * sizeof *step->operands);
  step->results = step->operands + operands;
  return TTPU_OK;
}

/* A dense copy of a value of type t that lies at `from`. */
static ttpu_status push_copy(binder *b, ir_type t, const opt_place *from, opt_place *to) {
  soft_step step = {.kind = RUN_COPY};
  BASE_TRY(new_operands(b, &step, 1, 1));
  step.operands[0] = (soft_operand){*from, t}; /* first: `to` may be `from` */
  BASE_TRY(new_place(b, t, to));
  step.results[0] = (soft_operand){*to, t};
  b->e->stats.bytes_accessed += 2 * (double)type_bytes(t);
  return push_step(b, &step);
}

static ttpu_status bind_tile(binder *b, const tile_prog *p) {
  opt_place *places = base_arena_zalloc(b->arena, (size_t)(p->leaf_count + p->out_count + 1) * sizeof *places);
  if (!places) return base_no_memory(p->leaf_count * sizeof *places);
  soft_step step = {.kind = RUN_TILE, .prog = p, .leaves = places, .outs = places + p->leaf_count};
  tile_place tile[TILE_MAX_PORTS];
  for (uint32_t i = 0; i < p->leaf_count; ++i) {
    BASE_TRY(place_of(b, p->leaves[i].value, &places[i]));
    b->e->stats.bytes_accessed += (double)type_bytes(ir_type_of(b->f, p->leaves[i].value));
  }
  for (uint32_t i = 0; i < p->out_count; ++i) {
    opt_place *out = &places[p->leaf_count + i];
    BASE_TRY(new_place(b, ir_type_of(b->f, p->outs[i].value), out));
    b->places[p->outs[i].value] = *out;
    b->e->stats.bytes_accessed += (double)type_bytes(ir_type_of(b->f, p->outs[i].value));
  }
  for (uint32_t i = 0; i < (uint32_t)(p->leaf_count + p->out_count); ++i)
    tile[i] = (tile_place){places[i].buffer, places[i].offset, places[i].strides};
  BASE_TRY(tile_bind(b->arena, p, b->f, tile, tile + p->leaf_count, &step.tile));
  b->e->stats.flops += tile_bound_elements(step.tile) * p->instr_count;
  return push_step(b, &step);
}

/* ---- views ------------------------------------------------------------------------------------ */

/* Strides of a reshape that moves nothing, if there are such: each run of merged dims must be one stride. */
static bool reshape_strides(ir_type from, const int64_t *s, ir_type to, int64_t *out) {
  int32_t i = (int32_t)from.rank - 1, j = (int32_t)to.rank - 1;
  while (j >= 0) {
    while (i >= 0 && from.dims[i] == 1) --i;
    if (to.dims[j] == 1) {
      out[j--] = 1;
      continue;
    }
    if (i < 0) return false;
    /* One run: source dims (i, down) that can be walked with one stride, and the target dims that they make. */
    int64_t stride = s[i], source = from.dims[i], target = 1, expected = s[i] * from.dims[i];
    --i;
    for (;;) {
      if (target < source) {
        if (j < 0) return false;
        out[j] = stride * target;
        target *= to.dims[j--];
      } else if (source < target) {
        while (i >= 0 && from.dims[i] == 1) --i;
        if (i < 0 || s[i] != expected) return false;
        source *= from.dims[i];
        expected *= from.dims[i--];
      } else {
        break;
      }
    }
  }
  return true;
}

static ttpu_status bind_reshape(binder *b, ir_type from, opt_place *p, ir_type to, int64_t *strides) {
  if (ir_numel(to) == 0) {
    base_row_major(to.rank, to.dims, strides);
    return TTPU_OK;
  }
  if (reshape_strides(from, p->strides, to, strides)) return TTPU_OK;
  opt_place dense;
  BASE_TRY(push_copy(b, from, p, &dense));
  *p = dense;
  base_row_major(to.rank, to.dims, strides);
  return TTPU_OK;
}

static ttpu_status bind_as_strided(binder *b, const ir_op *op, ir_type from, opt_place *p, ir_type to,
                                   int64_t *strides) {
  const ir_as_strided_attrs *attrs = IR_ATTRS(op, as_strided);
  if (!is_dense(from, p->strides)) {
    opt_place dense;
    BASE_TRY(push_copy(b, from, p, &dense));
    *p = dense;
  }
  p->offset += attrs->offset;
  for (uint32_t d = 0; d < to.rank; ++d) strides[d] = attrs->strides.data[d];
  return TTPU_OK;
}

static void bind_slice(const ir_slice_attrs *a, ir_type from, opt_place *p, ir_type to, int64_t *strides) {
  for (uint32_t d = 0; d < from.rank; ++d) {
    int64_t step = d < a->strides.count ? a->strides.data[d] : 1;
    if (to.dims[d] > 0) p->offset += a->start_indices.data[d] * p->strides[d];
    strides[d] = p->strides[d] * step;
  }
}

static void bind_reverse(const ir_dims_attrs *a, ir_type t, opt_place *p, int64_t *strides) {
  memcpy(strides, p->strides, t.rank * sizeof *strides);
  for (uint32_t i = 0; i < a->dimensions.count; ++i) {
    int64_t d = a->dimensions.data[i];
    if (t.dims[d] == 0) continue;
    p->offset += (t.dims[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
}

static ttpu_status bind_check(binder *b, const ir_op *op, const opt_place *p) {
  soft_step step = {.kind = RUN_OP, .op = op};
  BASE_TRY(new_operands(b, &step, 1, 1));
  step.operands[0] = step.results[0] = (soft_operand){*p, ir_type_of(b->f, op->operands[0])};
  return push_step(b, &step);
}

static ttpu_status bind_view(binder *b, const ir_op *op) {
  if (op->kind == IR_OPTIMIZATION_BARRIER) {
    for (uint32_t i = 0; i < op->operand_count; ++i)
      BASE_TRY(place_of(b, op->operands[i], &b->places[op->first_result + i]));
    return TTPU_OK;
  }
  ir_type from = ir_type_of(b->f, op->operands[0]), to = ir_type_of(b->f, op->first_result);
  opt_place p;
  BASE_TRY(place_of(b, op->operands[0], &p));
  if (op->kind == IR_CHECK_INDEX) {
    b->places[op->first_result] = p;
    return bind_check(b, op, &p);
  }
  int64_t *strides = base_arena_zalloc(b->arena, (to.rank + 1u) * sizeof *strides);
  if (!strides) return base_no_memory(to.rank * sizeof *strides);
  switch (op->kind) {
    case IR_BROADCAST_IN_DIM:
      for (uint32_t d = 0; d < from.rank; ++d)
        strides[IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions.data[d]] = from.dims[d] == 1 ? 0 : p.strides[d];
      break;
    case IR_TRANSPOSE:
      for (uint32_t d = 0; d < to.rank; ++d) strides[d] = p.strides[IR_ATTRS(op, transpose)->permutation.data[d]];
      break;
    case IR_SLICE: bind_slice(IR_ATTRS(op, slice), from, &p, to, strides); break;
    case IR_REVERSE: bind_reverse(IR_ATTRS(op, dims), from, &p, strides); break;
    case IR_RESHAPE: BASE_TRY(bind_reshape(b, from, &p, to, strides)); break;
    case IR_AS_STRIDED: BASE_TRY(bind_as_strided(b, op, from, &p, to, strides)); break;
    default: return base_fail(TTPU_INTERNAL, "%s is not a view", ir_ops[op->kind].name);
  }
  p.strides = strides;
  b->places[op->first_result] = p;
  return TTPU_OK;
}

/* ---- other operations ------------------------------------------------------------------------- */

/* An iota is a ramp along one dimension, repeated over the others. */
static ttpu_status bind_iota(binder *b, const ir_op *op) {
  ir_type t = ir_type_of(b->f, op->first_result);
  int64_t d = IR_ATTRS(op, iota)->iota_dimension;
  soft_step step = {.kind = RUN_RAMP, .op = op};
  BASE_TRY(new_operands(b, &step, 0, 1));
  ir_type ramp = {t.dtype, 1, &t.dims[d]};
  opt_place *p = &b->places[op->first_result];
  BASE_TRY(new_place(b, ramp, p));
  step.results[0] = (soft_operand){*p, ramp};
  int64_t *strides = base_arena_zalloc(b->arena, t.rank * sizeof *strides);
  if (!strides) return base_no_memory(t.rank * sizeof *strides);
  strides[d] = 1;
  p->strides = strides;
  return push_step(b, &step);
}

/* as_strided_update: result 1 is the view of result 0 that operand 1 goes into. */
static ttpu_status bind_update(binder *b, const ir_op *op) {
  const ir_as_strided_attrs *attrs = IR_ATTRS(op, as_strided);
  ir_type whole = ir_type_of(b->f, op->first_result), part = ir_type_of(b->f, op->operands[1]);
  soft_step step = {.kind = RUN_UPDATE, .op = op};
  BASE_TRY(new_operands(b, &step, 2, 2));
  opt_place *to = &b->places[op->first_result];
  BASE_TRY(new_place(b, whole, to));
  for (uint32_t i = 0; i < 2; ++i) {
    step.operands[i].type = ir_type_of(b->f, op->operands[i]);
    BASE_TRY(place_of(b, op->operands[i], &step.operands[i].place));
  }
  step.results[0] = (soft_operand){*to, whole};
  step.results[1] = (soft_operand){{to->buffer, attrs->offset, attrs->strides.data}, part};
  b->e->stats.bytes_accessed += 2 * (double)type_bytes(part);
  return push_step(b, &step);
}

static void count_flops(binder *b, const ir_op *op) {
  if (op->kind == IR_DOT_GENERAL) {
    ir_type x = ir_type_of(b->f, op->operands[0]);
    ir_i64s k = IR_ATTRS(op, dot_general)->lhs_contracting_dimensions;
    double flops = 2 * (double)ir_numel(ir_type_of(b->f, op->first_result));
    for (uint32_t i = 0; i < k.count; ++i) flops *= (double)x.dims[k.data[i]];
    b->e->stats.flops += flops;
  } else if (op->kind == IR_CONVOLUTION) {
    const ir_convolution_attrs *a = IR_ATTRS(op, convolution);
    ir_type w = ir_type_of(b->f, op->operands[1]);
    double features = (double)w.dims[a->kernel_output_feature_dimension];
    b->e->stats.flops +=
        2 * (double)ir_numel(ir_type_of(b->f, op->first_result)) * (double)ir_numel(w) / (features > 0 ? features : 1);
  }
  for (uint32_t i = 0; i < op->operand_count; ++i)
    b->e->stats.bytes_accessed += (double)type_bytes(ir_type_of(b->f, op->operands[i]));
  for (uint32_t i = 0; i < op->result_count; ++i)
    b->e->stats.bytes_accessed += (double)type_bytes(ir_type_of(b->f, op->first_result + i));
}

static ttpu_status bind_operand(binder *b, soft_operand *to, ir_value v) {
  to->type = ir_type_of(b->f, v);
  return place_of(b, v, &to->place);
}

/* What the regions of op use of the body follows the operands, as soft_kernel_op wants it. */
static ttpu_status bind_kernel(binder *b, const ir_op *op) {
  if (op->kind == IR_IOTA) return bind_iota(b, op);
  if (op->kind == IR_AS_STRIDED_UPDATE) return bind_update(b, op);
  soft_step step = {.kind = RUN_OP, .op = op};
  uint32_t captures = opt_captures(b->f, op, NULL);
  BASE_TRY(new_operands(b, &step, op->operand_count + captures, op->result_count));
  for (uint32_t i = 0; i < op->operand_count; ++i) BASE_TRY(bind_operand(b, &step.operands[i], op->operands[i]));
  if (captures) {
    ir_value *values = base_arena_alloc(b->arena, soft_op_captures(b->f, op, NULL) * sizeof *values);
    if (!values) return base_no_memory(captures * sizeof *values);
    opt_captures(b->f, op, values);
    for (uint32_t i = 0; i < captures; ++i) BASE_TRY(bind_operand(b, &step.operands[op->operand_count + i], values[i]));
  }
  for (uint32_t i = 0; i < op->result_count; ++i) {
    ir_value v = op->first_result + i;
    step.results[i].type = ir_type_of(b->f, v);
    BASE_TRY(new_place(b, step.results[i].type, &b->places[v]));
    step.results[i].place = b->places[v];
  }
  count_flops(b, op);
  BASE_TRY(push_step(b, &step));
  if (!opt_is_control(op)) return TTPU_OK;
  soft_step *pushed = &b->e->steps[b->e->step_count - 1]; /* what it holds is freed with the steps */
  pushed->kind = RUN_CONTROL;
  return opt_compile_regions(b->f, op, b->arena, &pushed->regions);
}

/* ---- results ---------------------------------------------------------------------------------- */

/* A result is its parameter, or the buffer that was computed, or a dense copy. */
static ttpu_status bind_result(binder *b, uint32_t i, ir_value v) {
  soft_executable *e = b->e;
  opt_place p;
  BASE_TRY(place_of(b, v, &p));
  ir_type t = ir_type_of(b->f, v);
  e->stats.output_bytes += type_bytes(t);
  if (is_whole(e, t, &p) && e->buffers[p.buffer].kind == BUFFER_PARAM && e->buffers[p.buffer].last != UINT32_MAX) {
    e->result_buffers[i] = p.buffer;        /* the first time; results are distinct blocks */
    e->buffers[p.buffer].last = UINT32_MAX; /* others may not overwrite it */
    return TTPU_OK;
  }
  if (!is_whole(e, t, &p) || e->buffers[p.buffer].kind != BUFFER_TEMP) BASE_TRY(push_copy(b, t, &p, &p));
  opt_buffer *buffer = &e->buffers[e->result_buffers[i] = p.buffer];
  buffer->kind = BUFFER_RESULT, buffer->number = i, buffer->last = UINT32_MAX;
  return TTPU_OK;
}

ttpu_status opt_bind(soft_executable *e) {
  const ir_func *f = e->f;
  binder b = {.e = e, .arena = e->arena, .f = f};
  const ir_region *body = &f->body;
  const ir_op *ret = body->ops[body->count - 1];
  b.places = base_arena_alloc(b.arena, (f->value_count + 1) * sizeof *b.places);
  e->result_buffers = base_arena_zalloc(b.arena, (ret->operand_count + 1) * sizeof *e->result_buffers);
  if (!b.places || !e->result_buffers) return base_no_memory(f->value_count * sizeof *b.places);
  for (uint32_t v = 0; v <= f->value_count; ++v) b.places[v] = (opt_place){.buffer = OPT_NO_BUFFER};
  for (uint32_t i = 0; i < body->arg_count; ++i) {
    ir_type t = ir_type_of(f, body->first_arg + i);
    opt_place *p = &b.places[body->first_arg + i];
    p->offset = 0;
    BASE_TRY(new_buffer(&b, (opt_buffer){.kind = BUFFER_PARAM, .number = i, .bytes = type_bytes(t)}, &p->buffer));
    BASE_TRY(dense_strides(&b, t, &p->strides));
    e->stats.argument_bytes += type_bytes(t);
  }
  for (uint32_t i = 0; i < e->structure->step_count; ++i) {
    const opt_step *s = &e->structure->steps[i];
    if (s->kind == STEP_TILE) BASE_TRY(bind_tile(&b, s->prog));
    else if (s->kind == STEP_VIEW) BASE_TRY(bind_view(&b, body->ops[s->position]));
    else BASE_TRY(bind_kernel(&b, body->ops[s->position]));
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i) BASE_TRY(bind_result(&b, i, ret->operands[i]));
  e->stats.steps = e->step_count;
  return opt_plan_memory(e);
}
