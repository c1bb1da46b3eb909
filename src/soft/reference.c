/* The scalar reference: dispatch, regions, control flow, whole functions. */
#include <string.h>

#include "soft/custom.h"
#include "soft/host.h"
#include "soft/link/link.h"
#include "soft/reference_int.h"

/* ---- regions ----------------------------------------------------------------------------------- */

static bool region_is_inside(const ir_op *op, const ir_region *region) {
  for (uint32_t r = 0; r < op->region_count; ++r) {
    if (op->regions[r] == region) return true;
    for (uint32_t i = 0; i < op->regions[r]->count; ++i)
      if (region_is_inside(op->regions[r]->ops[i], region)) return true;
  }
  return false;
}

static bool list_contains(const ir_value *list, uint32_t count, ir_value v) {
  for (uint32_t i = 0; i < count; ++i)
    if (list[i] == v) return true;
  return false;
}

/* Adds what the regions of `inner`, a part of `op`, take from outside of `op`. */
static uint32_t collect_captures(const ir_func *f, const ir_op *op, const ir_op *inner, ir_value *out, uint32_t n) {
  for (uint32_t r = 0; r < inner->region_count; ++r)
    for (uint32_t i = 0; i < inner->regions[r]->count; ++i) {
      const ir_op *user = inner->regions[r]->ops[i];
      for (uint32_t k = 0; k < user->operand_count; ++k) {
        ir_value v = user->operands[k];
        if (region_is_inside(op, f->values[v].region) || list_contains(out, n, v)) continue;
        out[n++] = v;
      }
      n = collect_captures(f, op, user, out, n);
    }
  return n;
}

/* How many operands all operations inside have: no more values than that can be captured. */
static uint32_t count_inner_operands(const ir_op *op) {
  uint32_t n = 0;
  for (uint32_t r = 0; r < op->region_count; ++r)
    for (uint32_t i = 0; i < op->regions[r]->count; ++i)
      n += op->regions[r]->ops[i]->operand_count + count_inner_operands(op->regions[r]->ops[i]);
  return n;
}

uint32_t soft_op_captures(const ir_func *f, const ir_op *op, ir_value *out) {
  if (op->region_count == 0) return 0;
  if (out) return collect_captures(f, op, op, out, 0);
  ir_value few[64], *list = few;
  uint32_t most = count_inner_operands(op);
  if (most > 64 && !(list = base_alloc(most * sizeof *list))) return 0;
  uint32_t n = collect_captures(f, op, op, list, 0);
  if (list != few) base_free(list);
  return n;
}

/* The lowest and one past the highest value defined in op's regions, inner regions included. */
static void find_range(const ir_op *op, ir_value *low, ir_value *high) {
  for (uint32_t r = 0; r < op->region_count; ++r) {
    const ir_region *region = op->regions[r];
    if (region->arg_count && region->first_arg < *low) *low = region->first_arg;
    if (region->arg_count && region->first_arg + region->arg_count > *high)
      *high = region->first_arg + region->arg_count;
    for (uint32_t i = 0; i < region->count; ++i) {
      const ir_op *inner = region->ops[i];
      if (inner->result_count && inner->first_result < *low) *low = inner->first_result;
      if (inner->result_count && inner->first_result + inner->result_count > *high)
        *high = inner->first_result + inner->result_count;
      find_range(inner, low, high);
    }
  }
}

static size_t value_bytes(ir_type t) {
  return (base_dtype_bytes((ttpu_dtype)t.dtype) * (size_t)ir_numel(t) + 15) & ~(size_t)15;
}

ttpu_status ref_frame_open(ref_frame *frame, const ir_func *f, const ir_op *op, const soft_view *operands) {
  ir_value low = UINT32_MAX, high = 0;
  find_range(op, &low, &high);
  *frame =
      (ref_frame){.f = f, .first = low, .count = high > low ? high - low : 0, .captured = operands + op->operand_count};
  size_t bytes = 0, most = count_inner_operands(op);
  for (uint32_t i = 0; i < frame->count; ++i) bytes += value_bytes(ir_type_of(f, low + i));
  frame->views = base_alloc(frame->count * sizeof *frame->views + 1);
  frame->captures = base_alloc(most * sizeof *frame->captures + 1);
  frame->data = base_alloc(bytes + 1);
  if (!frame->views || !frame->captures || !frame->data) {
    ref_frame_close(frame);
    return base_no_memory(bytes);
  }
  frame->capture_count = soft_op_captures(f, op, frame->captures);
  char *next = frame->data;
  for (uint32_t i = 0; i < frame->count; ++i) {
    ir_type t = ir_type_of(f, low + i);
    frame->views[i] = soft_view_dense((ttpu_dtype)t.dtype, t.rank, t.dims, next);
    next += value_bytes(t);
  }
  return TTPU_OK;
}

void ref_frame_close(ref_frame *frame) {
  base_free(frame->views);
  base_free(frame->captures);
  base_free(frame->data);
}

const soft_view *ref_frame_view(const ref_frame *frame, ir_value v) {
  for (uint32_t i = 0; i < frame->capture_count; ++i)
    if (frame->captures[i] == v) return &frame->captured[i];
  return &frame->views[v - frame->first];
}

/* A pointwise operation on rank 0, without the detour over views that larger shapes need. */
static bool run_scalar(const ref_frame *frame, const ir_op *op) {
  if (!(ir_ops[op->kind].flags & IR_POINTWISE) || op->operand_count > 3) return false;
  const soft_view *y = ref_frame_view(frame, op->first_result);
  if (y->rank != 0) return false;
  ttpu_dtype types[3];
  base_scalar x[3], result;
  for (uint32_t i = 0; i < op->operand_count; ++i) {
    const soft_view *v = ref_frame_view(frame, op->operands[i]);
    types[i] = v->dtype;
    x[i] = base_scalar_load(v->dtype, v->data);
  }
  if (!ref_pointwise(op, types, x, y->dtype, &result)) return false;
  base_scalar_store(y->dtype, y->data, result);
  return true;
}

/* Runs op with views looked up in the frame, what its own regions capture included. */
static ttpu_status run_inner(const ref_frame *frame, const ir_op *op) {
  if (run_scalar(frame, op)) return TTPU_OK;
  uint32_t captures = soft_op_captures(frame->f, op, NULL), inputs = op->operand_count + captures;
  soft_view few[6], *views = few;
  ir_value *captured = NULL;
  ttpu_status status = TTPU_OK;
  if (inputs + op->result_count > 6) views = base_alloc((inputs + op->result_count) * sizeof *views);
  if (captures) captured = base_alloc(captures * sizeof *captured);
  if (!views || (captures && !captured)) {
    status = base_no_memory((inputs + op->result_count) * sizeof *views);
    goto out;
  }
  if (captures) soft_op_captures(frame->f, op, captured);
  for (uint32_t i = 0; i < op->operand_count; ++i) views[i] = *ref_frame_view(frame, op->operands[i]);
  for (uint32_t i = 0; i < captures; ++i) views[op->operand_count + i] = *ref_frame_view(frame, captured[i]);
  for (uint32_t i = 0; i < op->result_count; ++i) views[inputs + i] = *ref_frame_view(frame, op->first_result + i);
  status = soft_reference_op(frame->f, op, views, views + inputs);
out:
  if (views != few) base_free(views);
  base_free(captured);
  return status;
}

ttpu_status ref_region_run(const ref_frame *frame, const ir_region *region) {
  for (uint32_t i = 0; i + 1 < region->count; ++i) BASE_TRY(run_inner(frame, region->ops[i]));
  return TTPU_OK;
}

ttpu_status ref_region_call(const ref_frame *frame, const ir_region *region, const base_scalar *arguments,
                            uint32_t result_count, base_scalar *results) {
  for (uint32_t i = 0; i < region->arg_count; ++i) {
    const soft_view *v = ref_frame_view(frame, region->first_arg + i);
    base_scalar_store(v->dtype, v->data, arguments[i]);
  }
  BASE_TRY(ref_region_run(frame, region));
  const ir_op *end = ref_region_return(region);
  for (uint32_t i = 0; i < result_count; ++i) {
    const soft_view *v = ref_frame_view(frame, end->operands[i]);
    results[i] = base_scalar_load(v->dtype, v->data);
  }
  return TTPU_OK;
}

/* ---- control flow ------------------------------------------------------------------------------ */

static void copy_view(const soft_view *to, const soft_view *from) {
  for (ref_index i = ref_index_begin(to->rank, to->dims); i.more; ref_index_next(&i))
    memcpy(ref_at(to, i.at), ref_at(from, i.at), base_dtype_bytes(to->dtype));
}

static void copy_results(const ref_frame *frame, const ir_region *region, const soft_view *results) {
  const ir_op *end = ref_region_return(region);
  for (uint32_t i = 0; i < end->operand_count; ++i) copy_view(&results[i], ref_frame_view(frame, end->operands[i]));
}

/* `if` takes its first region when the predicate holds; `case` its last one for an index out of range. */
static ttpu_status run_branch(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  int64_t chosen = ref_integer(x[0].dtype, base_scalar_load(x[0].dtype, x[0].data));
  if (op->kind == IR_IF) chosen = !chosen;
  else if (chosen < 0 || chosen >= op->region_count) chosen = op->region_count - 1;
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, x));
  ttpu_status status = ref_region_run(&frame, op->regions[chosen]);
  if (status == TTPU_OK) copy_results(&frame, op->regions[chosen], y);
  ref_frame_close(&frame);
  return status;
}

/* The state lives in y. It is copied into the region's arguments before each run, so a body may return its
 * arguments in another order. */
static ttpu_status run_while(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_region *condition = op->regions[0], *body = op->regions[1];
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, x));
  for (uint32_t i = 0; i < op->result_count; ++i) copy_view(&y[i], &x[i]);
  ttpu_status status;
  for (;;) {
    for (uint32_t i = 0; i < op->result_count; ++i) copy_view(ref_frame_view(&frame, condition->first_arg + i), &y[i]);
    if ((status = ref_region_run(&frame, condition)) != TTPU_OK) break;
    if (!*(const uint8_t *)ref_frame_view(&frame, ref_region_return(condition)->operands[0])->data) break;
    for (uint32_t i = 0; i < op->result_count; ++i) copy_view(ref_frame_view(&frame, body->first_arg + i), &y[i]);
    if ((status = ref_region_run(&frame, body)) != TTPU_OK) break;
    copy_results(&frame, body, y);
  }
  ref_frame_close(&frame);
  return status;
}

/* The region over the elements at each index. */
static ttpu_status run_map(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  ref_frame frame;
  base_scalar *arguments = base_alloc(op->operand_count * sizeof *arguments + 1), result;
  if (!arguments) return base_no_memory(op->operand_count * sizeof *arguments);
  ttpu_status status = ref_frame_open(&frame, f, op, x);
  if (status == TTPU_OK) {
    for (ref_index i = ref_index_begin(y->rank, y->dims); i.more && status == TTPU_OK; ref_index_next(&i)) {
      for (uint32_t k = 0; k < op->operand_count; ++k) arguments[k] = ref_load(&x[k], i.at);
      status = ref_region_call(&frame, op->regions[0], arguments, 1, &result);
      if (status == TTPU_OK) ref_store(y, i.at, result);
    }
    ref_frame_close(&frame);
  }
  base_free(arguments);
  return status;
}

/* ---- dispatch ---------------------------------------------------------------------------------- */

ttpu_status ref_copy(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  (void)f;
  for (uint32_t i = 0; i < op->result_count; ++i) copy_view(&y[i], &x[i]);
  return TTPU_OK;
}

static ttpu_status unsupported(const ir_op *op, const soft_view *x, const char *why) {
  const char *name = ir_ops[op->kind].name;
  if (op->operand_count == 0) return base_fail(TTPU_UNIMPLEMENTED, "%s: %s", name, why);
  return base_fail(TTPU_UNIMPLEMENTED, "%s: %s (first operand: rank %u, %s)", name, why, x[0].rank,
                   base_dtypes[x[0].dtype].name);
}

static ttpu_status run_pointwise(const ir_op *op, const soft_view *x, const soft_view *y) {
  ttpu_dtype types[3];
  base_scalar in[3], out;
  for (uint32_t k = 0; k < op->operand_count; ++k) types[k] = x[k].dtype;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    for (uint32_t k = 0; k < op->operand_count; ++k) in[k] = ref_load(&x[k], i.at); /* rank 0 reads element 0 */
    if (!ref_pointwise(op, types, in, y->dtype, &out)) return unsupported(op, x, "not defined for this dtype");
    ref_store(y, i.at, out);
  }
  return TTPU_OK;
}

ttpu_status soft_reference_op(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  if (ir_ops[op->kind].flags & IR_POINTWISE) return run_pointwise(op, x, y);
  switch ((ir_kind)op->kind) {
    case IR_BITCAST_CONVERT: return ref_bitcast_convert(f, op, x, y);
    case IR_BROADCAST_IN_DIM: return ref_broadcast_in_dim(f, op, x, y);
    case IR_RESHAPE: return ref_reshape(f, op, x, y);
    case IR_REVERSE: return ref_reverse(f, op, x, y);
    case IR_SLICE: return ref_slice(f, op, x, y);
    case IR_TRANSPOSE: return ref_transpose(f, op, x, y);
    case IR_CONCATENATE: return ref_concatenate(f, op, x, y);
    case IR_PAD: return ref_pad(f, op, x, y);
    case IR_DYNAMIC_SLICE: return ref_dynamic_slice(f, op, x, y);
    case IR_DYNAMIC_UPDATE_SLICE: return ref_dynamic_update_slice(f, op, x, y);
    case IR_GATHER: return ref_gather(f, op, x, y);
    case IR_SCATTER: return ref_scatter(f, op, x, y);
    case IR_CONSTANT: return ref_constant(f, op, x, y);
    case IR_IOTA: return ref_iota(f, op, x, y);
    case IR_RNG_BIT_GENERATOR: return ref_rng_bit_generator(f, op, x, y);
    case IR_DOT_GENERAL: return ref_dot_general(f, op, x, y);
    case IR_CONVOLUTION: return ref_convolution(f, op, x, y);
    case IR_REDUCE: return ref_reduce(f, op, x, y);
    case IR_REDUCE_WINDOW: return ref_reduce_window(f, op, x, y);
    case IR_SELECT_AND_SCATTER: return ref_select_and_scatter(f, op, x, y);
    case IR_SORT: return ref_sort(f, op, x, y);
    case IR_FFT: return ref_fft(f, op, x, y);
    case IR_CHOLESKY: return ref_cholesky(f, op, x, y);
    case IR_TRIANGULAR_SOLVE: return ref_triangular_solve(f, op, x, y);
    case IR_IF:
    case IR_CASE: return run_branch(f, op, x, y);
    case IR_WHILE: return run_while(f, op, x, y);
    case IR_MAP: return run_map(f, op, x, y);
    case IR_RETURN: return TTPU_OK;
    case IR_AFTER_ALL: /* operations run in order as it is */
    case IR_CREATE_TOKEN: base_scalar_store(TTPU_TOKEN, y->data, (base_scalar){.u = 0}); return TTPU_OK;
    case IR_OPTIMIZATION_BARRIER: return ref_copy(f, op, x, y);
    case IR_CUSTOM_CALL: return soft_custom_call(op, x, y);
    case IR_AS_STRIDED: return ref_as_strided(f, op, x, y);
    case IR_AS_STRIDED_UPDATE: return ref_as_strided_update(f, op, x, y);
    case IR_CHECK_INDEX: return ref_check_index(f, op, x, y);
    case IR_ATTENTION: return ref_attention(f, op, x, y);
    case IR_SCAN: return ref_scan(f, op, x, y);
    case IR_TOP_K: return ref_top_k(f, op, x, y);
    case IR_PATH_SCAN: return ref_path_scan(f, op, x, y);
    case IR_SEND:
    case IR_RECV:
    case IR_INFEED:
    case IR_OUTFEED: return soft_host_transfer(op, x, y);
    case IR_PARTITION_ID:
    case IR_REPLICA_ID:
    case IR_ALL_REDUCE:
    case IR_ALL_GATHER:
    case IR_REDUCE_SCATTER:
    case IR_ALL_TO_ALL:
    case IR_COLLECTIVE_BROADCAST:
    case IR_COLLECTIVE_REDUCE:
    case IR_COLLECTIVE_PERMUTE: return link_collective(f, op, link_fold_reference, x, y);
    default: return unsupported(op, x, "the software TPU does not know this operation");
  }
}

/* ---- whole functions --------------------------------------------------------------------------- */

/* Copies the operands of the function's RETURN out; a result may be an argument. */
static void return_results(const ir_func *f, const soft_view *values, void *const *results) {
  const ir_op *end = ref_region_return(&f->body);
  for (uint32_t i = 0; i < end->operand_count; ++i) {
    const soft_view *from = &values[end->operands[i]];
    soft_view to = soft_view_dense(from->dtype, from->rank, from->dims, results[i]);
    copy_view(&to, from);
  }
}

/* One operation of the body: memory for its results, its operands and captures gathered. */
static ttpu_status run_body_op(const ir_func *f, const ir_op *op, soft_view *values) {
  uint32_t captures = soft_op_captures(f, op, NULL), inputs = op->operand_count + captures;
  soft_view *views = base_alloc((inputs + op->result_count) * sizeof *views + captures * sizeof(ir_value) + 1);
  if (!views) return base_no_memory(inputs * sizeof *views);
  ir_value *captured = (ir_value *)(views + inputs + op->result_count);
  soft_op_captures(f, op, captured);
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0; i < inputs; ++i)
    views[i] = values[i < op->operand_count ? op->operands[i] : captured[i - op->operand_count]];
  for (uint32_t i = 0; i < op->result_count && status == TTPU_OK; ++i) {
    ir_type t = ir_type_of(f, op->first_result + i);
    void *data = base_alloc(value_bytes(t) + 1);
    if (!data) status = base_no_memory(value_bytes(t));
    else views[inputs + i] = values[op->first_result + i] = soft_view_dense((ttpu_dtype)t.dtype, t.rank, t.dims, data);
  }
  if (status == TTPU_OK) status = soft_reference_op(f, op, views, views + inputs);
  base_free(views);
  return status;
}

/* last[v] becomes the index of the last operation of the body that reads v, regions included. */
static void mark_uses(const ir_op *op, uint32_t at, uint32_t *last) {
  for (uint32_t i = 0; i < op->operand_count; ++i) last[op->operands[i]] = at;
  for (uint32_t r = 0; r < op->region_count; ++r)
    for (uint32_t i = 0; i < op->regions[r]->count; ++i) mark_uses(op->regions[r]->ops[i], at, last);
}

/* Frees what op `at` defined or read last. */
static void free_dead(const ir_func *f, uint32_t at, const uint32_t *last, soft_view *values) {
  for (ir_value v = f->body.first_arg + f->body.arg_count; v < f->value_count; ++v)
    if (last[v] == at && values[v].data) {
      base_free(values[v].data);
      values[v].data = NULL;
    }
}

ttpu_status soft_reference_run(const ir_func *f, void *const *arguments, void *const *results) {
  soft_view *values = base_calloc(f->value_count, sizeof *values);
  uint32_t *last = base_calloc(f->value_count, sizeof *last);
  ttpu_status status = TTPU_OK;
  if (!values || !last) {
    status = base_no_memory(f->value_count * sizeof *values);
    goto out;
  }
  for (uint32_t i = 0; i < f->body.arg_count; ++i) {
    ir_type t = ir_type_of(f, f->body.first_arg + i);
    values[f->body.first_arg + i] = soft_view_dense((ttpu_dtype)t.dtype, t.rank, t.dims, arguments[i]);
  }
  for (uint32_t i = 0; i < f->body.count; ++i) mark_uses(f->body.ops[i], i, last);
  for (uint32_t i = 0; i + 1 < f->body.count && status == TTPU_OK; ++i) {
    const ir_op *op = f->body.ops[i];
    for (uint32_t k = 0; k < op->result_count; ++k)
      if (last[op->first_result + k] < i) last[op->first_result + k] = i; /* unused: dies at once */
    status = run_body_op(f, op, values);
    if (status == TTPU_OK && (i & 15) == 15) /* every 16th: the list of values is long */
      for (uint32_t k = i - 15; k <= i; ++k) free_dead(f, k, last, values);
  }
  if (status == TTPU_OK) return_results(f, values, results);
out:
  for (ir_value v = 0; values && v < f->value_count; ++v) {
    bool is_argument = v >= f->body.first_arg && v < f->body.first_arg + f->body.arg_count;
    if (!is_argument) base_free(values[v].data);
  }
  base_free(values);
  base_free(last);
  return status;
}
