/* What collectives compute, from the operands of all members of a group. */
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"
#include "soft/link/link.h"
#include "soft/reference_int.h"

/* ---- folding ------------------------------------------------------------------------------------------------- */

ttpu_status link_fold_reference(const ir_func *f, const ir_op *op, const soft_view *captured, uint32_t count,
                                const soft_view *parts, const soft_view *y) {
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, captured - op->operand_count)); /* it looks for them behind the operands */
  ttpu_status status = TTPU_OK;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more && status == TTPU_OK; ref_index_next(&i)) {
    base_scalar both[2] = {ref_load(&parts[0], i.at)};
    for (uint32_t k = 1; k < count && status == TTPU_OK; ++k) {
      both[1] = ref_load(&parts[k], i.at);
      status = ref_region_call(&frame, op->regions[0], both, 1, both);
    }
    ref_store(y, i.at, both[0]);
  }
  ref_frame_close(&frame);
  return status;
}

typedef struct fold_job {
  const wide_functions *w;
  ir_kind kind;
  wide_class cls;
  size_t bytes;
  uint32_t count;
  const soft_view *parts, *y; /* dense */
} fold_job;

static void fold_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const fold_job *j = context;
  wide_row total, next;
  for (int64_t at = begin; at < end; at += KERN_ROW) {
    int64_t n = end - at < KERN_ROW ? end - at : KERN_ROW, offset = at * (int64_t)j->bytes;
    j->w->load(j->y->dtype, (const char *)j->parts[0].data + offset, (int64_t)j->bytes, n, total);
    for (uint32_t k = 1; k < j->count; ++k) {
      j->w->load(j->y->dtype, (const char *)j->parts[k].data + offset, (int64_t)j->bytes, n, next);
      j->w->combine(j->kind, j->cls, total, next, n);
    }
    j->w->store(j->y->dtype, (char *)j->y->data + offset, (int64_t)j->bytes, n, total);
  }
}

ttpu_status link_fold(const ir_func *f, const ir_op *op, const soft_view *captured, uint32_t count,
                      const soft_view *parts, const soft_view *y) {
  ir_kind kind = ir_region_reducer(f, op->regions[0]);
  bool fast = kind != IR_NO_OP && wide_kind(kind, y->dtype) != IR_NO_OP && soft_view_is_dense(y);
  for (uint32_t k = 0; k < count; ++k) fast = fast && soft_view_is_dense(&parts[k]);
  if (!fast) return link_fold_reference(f, op, captured, count, parts, y);
  fold_job j = {.w = wide_get(),
                .kind = wide_kind(kind, y->dtype),
                .cls = wide_class_of(y->dtype),
                .bytes = base_dtype_bytes(y->dtype),
                .count = count,
                .parts = parts,
                .y = y};
  int64_t n = base_numel(y->rank, y->dims);
  base_pool_run(n, 16 * KERN_ROW, n * count / 2, fold_items, &j);
  return TTPU_OK;
}

/* ---- the collectives ------------------------------------------------------------------------------------------- */

typedef struct gathering {
  const ir_func *f;
  const ir_op *op;
  link_fold_fn fold;
  uint32_t count;
  const link_seat *seats;
  soft_view *parts; /* one a member */
} gathering;

/* Piece `number` of `count` equal ones along a dimension. */
static soft_view piece(const soft_view *whole, int64_t dim, uint32_t number, int64_t count) {
  int64_t size = whole->dims[dim] / count;
  return kern_slice(whole, (uint32_t)dim, size * number, size);
}

static ttpu_status fold_parts(const gathering *g, const soft_view *y) {
  return g->fold(g->f, g->op, g->seats[0].operands + g->op->operand_count, g->count, g->parts, y);
}

/* One member's result is computed, the others' are copies of it. */
static ttpu_status all_reduce(const gathering *g, uint32_t k) {
  for (uint32_t m = 0; m < g->count; ++m) g->parts[m] = g->seats[m].operands[k];
  BASE_TRY(fold_parts(g, &g->seats[0].results[k]));
  for (uint32_t m = 1; m < g->count; ++m) kern_copy(&g->seats[m].results[k], &g->seats[0].results[k]);
  return TTPU_OK;
}

static ttpu_status reduce_scatter(const gathering *g, uint32_t k) {
  int64_t dim = IR_ATTRS(g->op, replica_groups)->dimension;
  for (uint32_t to = 0; to < g->count; ++to) {
    for (uint32_t m = 0; m < g->count; ++m) g->parts[m] = piece(&g->seats[m].operands[k], dim, to, g->count);
    BASE_TRY(fold_parts(g, &g->seats[to].results[k]));
  }
  return TTPU_OK;
}

static void all_gather(const gathering *g, uint32_t k) {
  int64_t dim = IR_ATTRS(g->op, replica_groups)->dimension;
  for (uint32_t to = 0; to < g->count; ++to)
    for (uint32_t from = 0; from < g->count; ++from) {
      soft_view part = piece(&g->seats[to].results[k], dim, from, g->count);
      kern_copy(&part, &g->seats[from].operands[k]);
    }
}

/* Member `to` gets piece `to` of each operand, one beside the other. */
static void all_to_all(const gathering *g, uint32_t k) {
  const ir_replica_groups_attrs *a = IR_ATTRS(g->op, replica_groups);
  for (uint32_t to = 0; to < g->count; ++to)
    for (uint32_t from = 0; from < g->count; ++from) {
      soft_view target = piece(&g->seats[to].results[k], a->concat_dimension, from, g->count);
      soft_view source = piece(&g->seats[from].operands[k], a->dimension, to, g->count);
      kern_copy(&target, &source);
    }
}

/* Who is no target gets zeros. */
static void collective_permute(const gathering *g, uint32_t k) {
  static const char zero[16];
  const ir_i64s pairs = IR_ATTRS(g->op, replica_groups)->replica_groups;
  for (uint32_t to = 0; to < g->count; ++to) {
    int64_t from = -1;
    for (uint32_t i = 0; i + 1 < pairs.count; i += 2)
      if (pairs.data[i + 1] == to) from = pairs.data[i];
    if (from < 0) kern_fill(&g->seats[to].results[k], zero);
    else kern_copy(&g->seats[to].results[k], &g->seats[from].operands[k]);
  }
}

/* By place in the group, for result k, as the member has it. */
static ttpu_status root_of(const gathering *g, uint32_t member, uint32_t k, uint32_t *root) {
  *root = 0;
  if (!IR_ATTRS(g->op, replica_groups)->has_dynamic_root) return TTPU_OK;
  int64_t at = ref_load(&g->seats[member].operands[g->op->operand_count - 1], &(const int64_t){k}).i;
  *root = (uint32_t)at;
  if (at >= 0 && at < g->count) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "%s: the root of result %u is %lld, in a group of %u",
                   ir_ops[g->op->kind].name, k, (long long)at, g->count);
}

static ttpu_status collective_broadcast(const gathering *g, uint32_t k) {
  for (uint32_t to = 0; to < g->count; ++to) {
    uint32_t root;
    BASE_TRY(root_of(g, to, k, &root));
    kern_copy(&g->seats[to].results[k], &g->seats[root].operands[k]);
  }
  return TTPU_OK;
}

/* All but the root get zeros. */
static ttpu_status collective_reduce(const gathering *g, uint32_t k) {
  static const char zero[16];
  for (uint32_t m = 0; m < g->count; ++m) g->parts[m] = g->seats[m].operands[k];
  for (uint32_t to = 0; to < g->count; ++to) {
    uint32_t root;
    BASE_TRY(root_of(g, to, k, &root));
    if (root == to) BASE_TRY(fold_parts(g, &g->seats[to].results[k]));
    else kern_fill(&g->seats[to].results[k], zero);
  }
  return TTPU_OK;
}

ttpu_status link_compute(const ir_func *f, const ir_op *op, link_fold_fn fold, uint32_t count, const link_seat *seats) {
  gathering g = {f, op, fold, count, seats, base_alloc(count * sizeof *g.parts)};
  if (!g.parts) return base_no_memory(count * sizeof *g.parts);
  ttpu_status status = TTPU_OK;
  for (uint32_t k = 0; k < op->result_count && status == TTPU_OK; ++k) {
    switch ((ir_kind)op->kind) {
      case IR_ALL_REDUCE: status = all_reduce(&g, k); break;
      case IR_REDUCE_SCATTER: status = reduce_scatter(&g, k); break;
      case IR_ALL_GATHER: all_gather(&g, k); break;
      case IR_ALL_TO_ALL: all_to_all(&g, k); break;
      case IR_COLLECTIVE_BROADCAST: status = collective_broadcast(&g, k); break;
      case IR_COLLECTIVE_REDUCE: status = collective_reduce(&g, k); break;
      case IR_COLLECTIVE_PERMUTE: collective_permute(&g, k); break;
      default: status = base_fail(TTPU_INTERNAL, "%s is no collective", ir_ops[op->kind].name);
    }
  }
  base_free(g.parts);
  return status;
}
