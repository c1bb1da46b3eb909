/* The memory plan: what is updated in place, and where each temporary lies in the slab. */
#include <string.h>

#include "soft/opt/opt.h"

static uint32_t root_of(const soft_executable *e, uint32_t buffer) {
  while (e->buffers[buffer].same != buffer) buffer = e->buffers[buffer].same;
  return buffer;
}

static bool is_whole(const soft_executable *e, ir_type t, const opt_place *p) {
  int64_t expected = 1;
  for (uint32_t d = t.rank; d-- > 0;) {
    if (t.dims[d] != 1 && p->strides[d] != expected) return false;
    expected *= t.dims[d];
  }
  return p->offset == 0 && expected > 0 && (size_t)expected * base_dtype_bytes(t.dtype) == e->buffers[p->buffer].bytes;
}

/* ---- in place --------------------------------------------------------------------------------- */

/* Lets buffer `to`, first written by step s, have the memory of `from`, which is read for the last time there. */
static bool share(soft_executable *e, uint32_t s, uint32_t to, uint32_t from) {
  to = root_of(e, to), from = root_of(e, from);
  opt_buffer *t = &e->buffers[to], *f = &e->buffers[from];
  if (to == from || f->last != s || t->first != s || t->bytes != f->bytes) return false;
  if (f->kind == BUFFER_TEMP) {
    f->same = to;
    t->first = f->first;
    return true;
  }
  if (f->kind == BUFFER_PARAM && t->kind == BUFFER_RESULT && t->donor == OPT_NO_BUFFER && !f->written && e->f->donate &&
      e->f->donate[f->number]) {
    t->donor = from;
    f->written = true;
    return true;
  }
  return false;
}

/* Elementwise: an output over a leaf of the same place, if no other leaf looks at that memory in another way. */
static void share_tile(soft_executable *e, uint32_t s, const soft_step *step) {
  const tile_prog *p = step->prog;
  for (uint32_t o = 0; o < p->out_count; ++o) {
    ir_type t = ir_type_of(e->f, p->outs[o].value);
    for (uint32_t l = 0; l < p->leaf_count; ++l) {
      ir_type from = ir_type_of(e->f, p->leaves[l].value);
      if (e->buffers[root_of(e, step->leaves[l].buffer)].last != s ||
          base_dtype_bytes(from.dtype) != base_dtype_bytes(t.dtype))
        continue;
      if (!is_whole(e, from, &step->leaves[l]) || !tile_may_overwrite(p, o, l)) continue;
      bool alone = true;
      for (uint32_t k = 0; k < p->leaf_count; ++k)
        if (k != l && root_of(e, step->leaves[k].buffer) == root_of(e, step->leaves[l].buffer)) alone = false;
      if (alone && share(e, s, step->outs[o].buffer, step->leaves[l].buffer)) break;
    }
  }
}

/* Updates write into their operand 0 when nobody needs its old value. */
static bool updates_in_place(const soft_step *step) {
  if (step->kind == RUN_UPDATE) return true;
  return step->kind == RUN_OP &&
         (step->op->kind == IR_DYNAMIC_UPDATE_SLICE || (step->op->kind == IR_SCATTER && step->result_count == 1));
}

static void share_update(soft_executable *e, uint32_t s, const soft_step *step) {
  const soft_operand *x = &step->operands[0];
  if (!is_whole(e, x->type, &x->place)) return;
  for (uint32_t i = 1; i < step->operand_count; ++i)
    if (root_of(e, step->operands[i].place.buffer) == root_of(e, x->place.buffer)) return;
  share(e, s, step->results[0].place.buffer, x->place.buffer);
}

/* ---- the slab --------------------------------------------------------------------------------- */

typedef struct span {
  size_t offset, bytes;
  uint32_t last;
} span;

/* The smallest gap among the live spans (sorted by offset) that holds `bytes`. */
static uint32_t best_gap(const span *live, uint32_t count, size_t bytes, size_t *offset) {
  size_t best = SIZE_MAX, end = 0;
  uint32_t at = count;
  for (uint32_t i = 0; i < count; ++i) {
    size_t gap = live[i].offset - end;
    if (gap >= bytes && gap < best) best = gap, at = i, *offset = end;
    end = live[i].offset + live[i].bytes;
  }
  if (best == SIZE_MAX) *offset = end;
  return at;
}

static ttpu_status place_temporaries(soft_executable *e, base_arena *scratch) {
  uint32_t *head = base_arena_alloc(scratch, (e->step_count + 1u) * sizeof *head);
  uint32_t *next = base_arena_alloc(scratch, (e->buffer_count + 1u) * sizeof *next);
  span *live = base_arena_alloc(scratch, (e->buffer_count + 1u) * sizeof *live);
  if (!head || !next || !live) return base_no_memory(e->buffer_count * sizeof *live);
  memset(head, 0xff, (e->step_count + 1u) * sizeof *head);
  for (uint32_t i = 0; i < e->buffer_count; ++i) {
    opt_buffer *b = &e->buffers[i];
    if (b->kind != BUFFER_TEMP || b->same != i || b->first == UINT32_MAX) continue;
    next[i] = head[b->first];
    head[b->first] = i;
  }
  uint32_t count = 0;
  for (uint32_t s = 0; s < e->step_count; ++s) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i)
      if (live[i].last >= s) live[kept++] = live[i];
    count = kept;
    for (uint32_t i = head[s]; i != UINT32_MAX; i = next[i]) {
      opt_buffer *b = &e->buffers[i];
      size_t bytes = (b->bytes + 63) & ~(size_t)63, offset = 0;
      uint32_t at = best_gap(live, count, bytes, &offset);
      memmove(live + at + 1, live + at, (count - at) * sizeof *live);
      live[at] = (span){offset, bytes, b->last};
      ++count;
      b->offset = (int64_t)offset;
      if (offset + bytes > e->slab_bytes) e->slab_bytes = offset + bytes;
    }
  }
  return TTPU_OK;
}

ttpu_status opt_plan_memory(soft_executable *e) {
  /* From the last step to the first: memory of a result is claimed before the temporaries that lead to it. */
  for (uint32_t s = e->step_count; s-- > 0;) {
    const soft_step *step = &e->steps[s];
    if (step->kind == RUN_TILE) share_tile(e, s, step);
    else if (updates_in_place(step)) share_update(e, s, step);
  }
  base_arena scratch;
  base_arena_init(&scratch);
  ttpu_status status = place_temporaries(e, &scratch);
  base_arena_free(&scratch);
  for (uint32_t i = 0; i < e->buffer_count; ++i)
    if (e->buffers[i].kind == BUFFER_RESULT && e->buffers[i].donor != OPT_NO_BUFFER)
      e->stats.alias_bytes += e->buffers[i].bytes;
  e->stats.temp_bytes = e->slab_bytes;
  return status;
}
