/* Process groups, as StableHLO's specification defines them ("Collective ops"). */
#include "soft/link/link.h"

/* How the numbers of replica_groups are read. */
typedef enum group_mode {
  CROSS_REPLICA,               /* replicas; a group for each partition */
  CROSS_PARTITION,             /* partitions; a group for each replica */
  CROSS_REPLICA_AND_PARTITION, /* replicas, with all of their partitions */
  FLATTENED_IDS                /* replica * partitions + partition */
} group_mode;

bool link_is_collective(const ir_op *op) {
  switch ((ir_kind)op->kind) {
    case IR_ALL_REDUCE:
    case IR_ALL_GATHER:
    case IR_REDUCE_SCATTER:
    case IR_ALL_TO_ALL:
    case IR_COLLECTIVE_BROADCAST:
    case IR_COLLECTIVE_REDUCE:
    case IR_COLLECTIVE_PERMUTE:
    case IR_PARTITION_ID:
    case IR_REPLICA_ID: return true;
    default: return false;
  }
}

static group_mode mode_of(const ir_op *op) {
  const ir_replica_groups_attrs *a = IR_ATTRS(op, replica_groups);
  bool channel = a->channel_id > 0;
  switch ((ir_kind)op->kind) {
    case IR_ALL_REDUCE:
    case IR_ALL_GATHER:
    case IR_REDUCE_SCATTER:
    case IR_COLLECTIVE_REDUCE:
      if (a->use_global_device_ids) return FLATTENED_IDS;
      return channel ? CROSS_REPLICA_AND_PARTITION : CROSS_REPLICA;
    default: return channel ? CROSS_PARTITION : CROSS_REPLICA;
  }
}

/* Every replica, or partition, of a permutation meets: who sends nothing may receive. */
static bool all_meet(const ir_op *op) { return op->kind == IR_COLLECTIVE_PERMUTE; }

/* Who is in no group of these gets zeros. */
static bool may_be_outside(const ir_op *op) {
  return op->kind == IR_COLLECTIVE_BROADCAST || op->kind == IR_COLLECTIVE_REDUCE;
}

/* How many numbers the mode knows, and which one the chip has. */
static uint32_t id_count(group_mode mode, link_grid grid) {
  if (mode == FLATTENED_IDS) return grid.replicas * grid.partitions;
  return mode == CROSS_PARTITION ? grid.partitions : grid.replicas;
}

static uint32_t id_of(group_mode mode, link_grid grid, uint32_t chip) {
  if (mode == FLATTENED_IDS) return chip;
  return mode == CROSS_PARTITION ? chip % grid.partitions : chip / grid.partitions;
}

/* The row of replica_groups with `id`, its length without padding, and the place there; false: it is in none. */
static bool find_row(const ir_replica_groups_attrs *a, uint32_t ids, uint32_t id, link_group *out) {
  if (a->group_count == 0) {
    *out = (link_group){0, ids, id};
    return true;
  }
  uint32_t width = a->replica_groups.count / (uint32_t)a->group_count;
  for (uint32_t row = 0; row < (uint32_t)a->group_count; ++row) {
    bool found = false;
    link_group g = {.number = row};
    for (uint32_t i = 0; i < width; ++i) {
      int64_t member = a->replica_groups.data[row * width + i];
      if (member < 0) continue; /* padding of groups that differ in size */
      if (member == id) found = true, g.mine = g.size;
      ++g.size;
    }
    if (found) {
      *out = g;
      return true;
    }
  }
  return false;
}

ttpu_status link_group_find(const ir_op *op, link_grid grid, uint32_t chip, link_group *out) {
  const ir_replica_groups_attrs *a = IR_ATTRS(op, replica_groups);
  group_mode mode = mode_of(op);
  uint32_t ids = id_count(mode, grid), id = id_of(mode, grid, chip);
  uint32_t partition = chip % grid.partitions, replica = chip / grid.partitions;
  *out = (link_group){0, all_meet(op) ? ids : 0, id};
  if (!all_meet(op) && !find_row(a, ids, id, out) && !may_be_outside(op))
    return base_fail(TTPU_INVALID_ARGUMENT, "%s: %s %u is in no group", ir_ops[op->kind].name,
                     mode == FLATTENED_IDS ? "chip" : (mode == CROSS_PARTITION ? "partition" : "replica"), id);
  switch (mode) {
    case CROSS_REPLICA: out->number = out->number * grid.partitions + partition; break;
    case CROSS_PARTITION: out->number = out->number * grid.replicas + replica; break;
    case CROSS_REPLICA_AND_PARTITION:
      out->mine += partition * out->size;
      out->size *= grid.partitions;
      break;
    case FLATTENED_IDS: break;
  }
  return TTPU_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

#define FAIL(op, ...) \
  return base_fail_context(base_fail(TTPU_INVALID_ARGUMENT, __VA_ARGS__), "%s", ir_ops[(op)->kind].name)

static ttpu_status check_ids(const ir_op *op, link_grid grid) {
  const ir_i64s ids = IR_ATTRS(op, replica_groups)->replica_groups;
  uint32_t count = id_count(mode_of(op), grid);
  for (uint32_t i = 0; i < ids.count; ++i)
    if (ids.data[i] >= count || ids.data[i] < (all_meet(op) ? 0 : -1))
      FAIL(op, "it names %lld; the program runs on %u replicas of %u partitions", (long long)ids.data[i], grid.replicas,
           grid.partitions);
  for (uint32_t i = 0; i < ids.count; ++i)
    for (uint32_t k = i + 1; k < ids.count; ++k) {
      bool compared = !all_meet(op) || (k - i) % 2 == 0; /* sources with sources, targets with targets */
      if (compared && ids.data[i] >= 0 && ids.data[i] == ids.data[k])
        FAIL(op, "%lld occurs twice", (long long)ids.data[i]);
    }
  return TTPU_OK;
}

/* The dimension that grows, shrinks or is cut must do so by the number of members. */
static ttpu_status check_sizes(const ir_func *f, const ir_op *op, link_group g) {
  const ir_replica_groups_attrs *a = IR_ATTRS(op, replica_groups);
  if (op->kind == IR_ALL_TO_ALL && a->split_count != g.size)
    FAIL(op, "split_count is %lld in a group of %u", (long long)a->split_count, g.size);
  if (op->kind != IR_ALL_GATHER && op->kind != IR_REDUCE_SCATTER) return TTPU_OK;
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    int64_t x = ir_type_of(f, op->operands[i]).dims[a->dimension];
    int64_t y = ir_type_of(f, op->first_result + i).dims[a->dimension];
    int64_t part = op->kind == IR_ALL_GATHER ? x : y, whole = op->kind == IR_ALL_GATHER ? y : x;
    if (whole != part * g.size)
      FAIL(op, "dimension %lld is %lld in all and %lld a part, in a group of %u", (long long)a->dimension,
           (long long)whole, (long long)part, g.size);
  }
  return TTPU_OK;
}

static ttpu_status check_op(const ir_func *f, const ir_op *op, link_grid grid) {
  if (!link_is_collective(op) || op->kind == IR_PARTITION_ID || op->kind == IR_REPLICA_ID) return TTPU_OK;
  BASE_TRY(check_ids(op, grid));
  for (uint32_t chip = 0; chip < grid.replicas * grid.partitions; ++chip) {
    link_group g;
    BASE_TRY(link_group_find(op, grid, chip, &g));
    BASE_TRY(check_sizes(f, op, g));
  }
  return TTPU_OK;
}

static ttpu_status check_region(const ir_func *f, const ir_region *r, link_grid grid) {
  for (uint32_t i = 0; i < r->count; ++i) {
    BASE_TRY(check_op(f, r->ops[i], grid));
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k) BASE_TRY(check_region(f, r->ops[i]->regions[k], grid));
  }
  return TTPU_OK;
}

ttpu_status link_check(const ir_func *f, link_grid grid) { return check_region(f, &f->body, grid); }

static bool region_has_collectives(const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    if (link_is_collective(r->ops[i])) return true;
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k)
      if (region_has_collectives(r->ops[i]->regions[k])) return true;
  }
  return false;
}

bool link_has_collectives(const ir_func *f) { return region_has_collectives(&f->body); }
