#include "soft/host.h"

#include "soft/kern/data.h"

static _Thread_local soft_host *here;

void soft_host_enter(soft_host *host) {
  host->outer = here;
  here = host;
}

void soft_host_leave(soft_host *host) { here = host->outer; }

bool soft_host_is_transfer(const ir_op *op) {
  return op->kind == IR_SEND || op->kind == IR_RECV || op->kind == IR_OUTFEED || op->kind == IR_INFEED;
}

/* Calls see(op) for all transfers until one fails. */
static ttpu_status each_transfer(const ir_region *r, ttpu_status (*see)(const ir_op *op)) {
  for (uint32_t i = 0; i < r->count; ++i) {
    if (soft_host_is_transfer(r->ops[i])) BASE_TRY(see(r->ops[i]));
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k) BASE_TRY(each_transfer(r->ops[i]->regions[k], see));
  }
  return TTPU_OK;
}

static ttpu_status found(const ir_op *op) {
  (void)op;
  return TTPU_CANCELLED;
}

bool soft_host_needed(const ir_func *f) { return each_transfer(&f->body, found) != TTPU_OK; }

static bool is_by_channel(const ir_op *op) { return op->kind == IR_SEND || op->kind == IR_RECV; }

static ttpu_status check(const ir_op *op) {
  if (!is_by_channel(op) || IR_ATTRS(op, transfer)->is_host_transfer) return TTPU_OK;
  return base_fail(TTPU_UNIMPLEMENTED,
                   "%s: the software TPU sends to its host and receives from it (is_host_transfer = true); between "
                   "devices use collective_permute",
                   ir_ops[op->kind].name);
}

ttpu_status soft_host_check(const ir_func *f) { return each_transfer(&f->body, check); }

static ttpu_status transfer_dense(const ir_op *op, int64_t channel, void *data, size_t bytes) {
  bool out = op->kind == IR_SEND || op->kind == IR_OUTFEED;
  return out ? here->send(here, channel, data, bytes) : here->receive(here, channel, data, bytes);
}

static ttpu_status transfer(const ir_op *op, int64_t channel, const soft_view *v) {
  size_t bytes = (size_t)base_numel(v->rank, v->dims) * base_dtype_bytes(v->dtype);
  if (soft_view_is_dense(v)) return transfer_dense(op, channel, v->data, bytes);
  void *data = base_alloc(bytes + 1);
  if (!data) return base_no_memory(bytes);
  soft_view dense = soft_view_dense(v->dtype, v->rank, v->dims, data);
  bool out = op->kind == IR_SEND || op->kind == IR_OUTFEED;
  if (out) kern_copy(&dense, v);
  ttpu_status status = transfer_dense(op, channel, data, bytes);
  if (!out && status == TTPU_OK) kern_copy(v, &dense);
  base_free(data);
  return status;
}

ttpu_status soft_host_transfer(const ir_op *op, const soft_view *operands, const soft_view *results) {
  bool out = op->kind == IR_SEND || op->kind == IR_OUTFEED;
  int64_t channel = is_by_channel(op) ? IR_ATTRS(op, transfer)->channel_id : 0;
  const soft_view *values = out ? operands : results; /* a token follows them */
  uint32_t count = (out ? op->operand_count : op->result_count) - 1;
  if (!here)
    return base_fail(TTPU_FAILED_PRECONDITION, "%s on channel %lld: the program runs without its host",
                     ir_ops[op->kind].name, (long long)channel);
  for (uint32_t i = 0; i < count; ++i) {
    ttpu_status status = transfer(op, channel, &values[i]);
    if (status != TTPU_OK) return base_fail_context(status, "%s", ir_ops[op->kind].name);
  }
  base_scalar_store(TTPU_TOKEN, results[op->result_count - 1].data, (base_scalar){.u = 0});
  return TTPU_OK;
}
