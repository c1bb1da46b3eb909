/* Chooses the kernel for an operation; the reference runs what has none.
 *
 * Regions are recognised by their shape: a lone reducer (ir_region_reducer), the comparator that ir_sort makes and
 * the pair reducer that ir_reduce_arg makes. Anything else in a region is interpreted; control flow is opt/region.c's.
 */
#include <string.h>

#include "soft/kern/data.h"
#include "soft/host.h"
#include "soft/link/link.h"
#include "soft/opt/opt.h"
#include "soft/reference_int.h"

/* ---- recognising regions ------------------------------------------------------------------------- */

static const ir_op *defined_by(const ir_func *f, ir_value v, ir_kind kind) {
  const ir_op *op = ir_def(f, v);
  return op && op->kind == kind ? op : NULL;
}

static bool is_compare(const ir_func *f, ir_value v, ir_direction direction, ir_value x, ir_value y) {
  const ir_op *op = defined_by(f, v, IR_COMPARE);
  return op && IR_ATTRS(op, compare)->comparison_direction == direction && op->operands[0] == x && op->operands[1] == y;
}

/* v says that `first` is NaN and `second` is not. */
static bool is_only_nan(const ir_func *f, ir_value v, ir_value first, ir_value second) {
  const ir_op *op = defined_by(f, v, IR_AND);
  return op && is_compare(f, op->operands[0], IR_NE, first, first) &&
         is_compare(f, op->operands[1], IR_EQ, second, second);
}

/* v is x < y (descending: x > y), with NaN last (descending: first) where the dtype has it. */
static bool is_before(const ir_func *f, ir_value v, ir_value x, ir_value y, bool *descending) {
  const ir_op *either = defined_by(f, v, IR_OR);
  ir_value plain = either ? either->operands[0] : v;
  *descending = is_compare(f, plain, IR_GT, x, y);
  if (!*descending && !is_compare(f, plain, IR_LT, x, y)) return false;
  if (!base_dtype_is_float((ttpu_dtype)ir_type_of(f, x).dtype)) return !either;
  return either && is_only_nan(f, either->operands[1], *descending ? x : y, *descending ? y : x);
}

/* The comparator of ir_sort. */
static bool is_sort_by_key(const ir_func *f, const ir_region *r, bool *descending) {
  return is_before(f, ref_region_return(r)->operands[0], r->first_arg, r->first_arg + 1, descending);
}

/* The reducer of ir_reduce_arg: select(take, x, y), select(take, i, j) with take = before or (equal and i < j), where
 * before puts NaN first whichever extreme is sought. */
static bool is_arg_reducer(const ir_func *f, const ir_region *r, bool *largest) {
  const ir_op *end = ref_region_return(r);
  if (r->arg_count != 4 || end->operand_count != 2) return false;
  ir_value x = r->first_arg, i = x + 1, y = x + 2, j = x + 3;
  const ir_op *value = defined_by(f, end->operands[0], IR_SELECT), *index = defined_by(f, end->operands[1], IR_SELECT);
  if (!value || !index || value->operands[0] != index->operands[0]) return false;
  if (value->operands[1] != x || value->operands[2] != y || index->operands[1] != i || index->operands[2] != j)
    return false;
  const ir_op *take = defined_by(f, value->operands[0], IR_OR);
  const ir_op *tie = take ? defined_by(f, take->operands[1], IR_AND) : NULL;
  if (!tie || !is_compare(f, tie->operands[1], IR_LT, i, j)) return false;
  const ir_op *either = defined_by(f, take->operands[0], IR_OR);
  ir_value plain = either ? either->operands[0] : take->operands[0];
  *largest = is_compare(f, plain, IR_GT, x, y);
  if (!*largest && !is_compare(f, plain, IR_LT, x, y)) return false;
  if (!base_dtype_is_float((ttpu_dtype)ir_type_of(f, x).dtype))
    return !either && is_compare(f, tie->operands[0], IR_EQ, x, y);
  const ir_op *equal = defined_by(f, tie->operands[0], IR_OR),
              *both = equal ? defined_by(f, equal->operands[1], IR_AND) : NULL;
  return either && is_only_nan(f, either->operands[1], x, y) && both &&
         is_compare(f, equal->operands[0], IR_EQ, x, y) && is_compare(f, both->operands[0], IR_NE, x, x) &&
         is_compare(f, both->operands[1], IR_NE, y, y);
}

/* The region gives its second argument: the update replaces. */
static bool is_replace(const ir_region *r) {
  return r->arg_count == 2 && r->count == 1 && r->ops[0]->operands[0] == r->first_arg + 1;
}

/* The region is one comparison of its arguments. */
static bool is_selection(const ir_func *f, const ir_region *r, ir_direction *direction) {
  const ir_op *op = defined_by(f, ref_region_return(r)->operands[0], IR_COMPARE);
  if (!op || op->operands[0] != r->first_arg || op->operands[1] != r->first_arg + 1) return false;
  *direction = IR_ATTRS(op, compare)->comparison_direction;
  return true;
}

static bool is_position(const ir_func *f, ir_value v, int64_t dim) {
  const ir_op *op = defined_by(f, v, IR_IOTA);
  return op && IR_ATTRS(op, iota)->iota_dimension == dim;
}

/* A reduction that kern_reduce_arg runs. */
static bool is_arg_reduction(const ir_func *f, const ir_op *op, bool *largest) {
  if (op->kind != IR_REDUCE || op->operand_count != 4 || IR_ATTRS(op, dims)->dimensions.count != 1) return false;
  return is_position(f, op->operands[1], IR_ATTRS(op, dims)->dimensions.data[0]) &&
         ir_type_of(f, op->operands[1]).dtype == TTPU_I64 && is_arg_reducer(f, op->regions[0], largest) &&
         kern_reduce_arg_supports((ttpu_dtype)ir_type_of(f, op->operands[0]).dtype);
}

static bool is_key_sort(const ir_func *f, const ir_op *op, bool *descending) {
  return op->kind == IR_SORT && is_sort_by_key(f, op->regions[0], descending) &&
         ir_type_of(f, op->operands[0]).rank > 0 &&
         kern_sort_supports((ttpu_dtype)ir_type_of(f, op->operands[0]).dtype);
}

bool soft_kernel_reads(const ir_func *f, const ir_op *op, uint32_t operand) {
  bool order;
  if (op->kind == IR_REDUCE) return operand != 1 || !is_arg_reduction(f, op, &order);
  if (op->kind != IR_SORT || operand == 0 || !is_key_sort(f, op, &order)) return true;
  return !is_position(f, op->operands[operand], IR_ATTRS(op, sort)->dimension);
}

/* ---- moving -------------------------------------------------------------------------------------- */

/* A view operation whose result must be memory of its own. */
static ttpu_status run_view(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  soft_view source = *y;
  if (soft_view_of(op, x, &source)) {
    kern_copy(y, &source);
    return TTPU_OK;
  }
  if (op->kind == IR_RESHAPE && soft_view_is_dense(y)) {
    soft_view target = soft_view_dense(y->dtype, x->rank, x->dims, y->data);
    kern_copy(&target, x);
    return TTPU_OK;
  }
  return soft_reference_op(f, op, x, y);
}

static void run_concatenate(const ir_op *op, const soft_view *x, const soft_view *y) {
  uint32_t dim = (uint32_t)IR_ATTRS(op, dim)->dimension;
  int64_t start = 0;
  for (uint32_t k = 0; k < op->operand_count; ++k) {
    soft_view part = kern_slice(y, dim, start, x[k].dims[dim]);
    kern_copy(&part, &x[k]);
    start += x[k].dims[dim];
  }
}

/* Where elements of x land in y along d: the first and one past the last index of x that is kept, and the
 * position of the first one. */
static void pad_range(const ir_pad_attrs *a, uint32_t d, const soft_view *x, const soft_view *y, int64_t *first,
                      int64_t *end, int64_t *at) {
  int64_t low = a->edge_padding_low.data[d], step = 1 + ref_get(a->interior_padding, d, 0);
  *first = low < 0 ? (-low + step - 1) / step : 0;
  int64_t fit = y->dims[d] - low; /* x index i fits where i * step < fit */
  *end = fit <= 0 ? 0 : (fit + step - 1) / step;
  if (*end > x->dims[d]) *end = x->dims[d];
  if (*end < *first) *end = *first;
  *at = low + *first * step;
}

static void run_pad(const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_pad_attrs *a = IR_ATTRS(op, pad);
  soft_view from = *x, rest = *y; /* rest: what is not filled yet */
  bool holes = false, empty = false;
  for (uint32_t d = 0; d < x->rank; ++d) holes = holes || ref_get(a->interior_padding, d, 0) != 0;
  if (holes) kern_fill(y, x[1].data);
  for (uint32_t d = 0; d < x->rank; ++d) {
    int64_t first, end, at;
    pad_range(a, d, x, y, &first, &end, &at);
    empty = empty || first == end;
    from = kern_slice(&from, d, first, end - first);
    if (first == end) continue;
    if (holes) {
      rest = kern_slice(&rest, d, at, end - first);
      rest.strides[d] *= 1 + ref_get(a->interior_padding, d, 0);
      continue;
    }
    soft_view below = kern_slice(&rest, d, 0, at),
              above = kern_slice(&rest, d, at + end - first, y->dims[d] - at - (end - first));
    kern_fill(&below, x[1].data), kern_fill(&above, x[1].data);
    rest = kern_slice(&rest, d, at, end - first);
  }
  if (!empty) kern_copy(&rest, &from);
  else if (!holes) kern_fill(y, x[1].data);
}

/* The part of `whole` of `sizes` that starts at the run-time indices, moved so that it fits. */
static soft_view dynamic_part(const soft_view *whole, const soft_view *starts, const int64_t *sizes) {
  soft_view part = *whole;
  for (uint32_t d = 0; d < whole->rank; ++d) {
    int64_t start = kern_integer_at(starts[d].dtype, starts[d].data), most = whole->dims[d] - sizes[d];
    part = kern_slice(&part, d, start < 0 ? 0 : start > most ? most : start, sizes[d]);
  }
  return part;
}

static void run_dynamic_update_slice(const soft_view *x, const soft_view *y) {
  kern_update(y, x);
  soft_view part = dynamic_part(y, x + 2, x[1].dims);
  kern_copy(&part, &x[1]);
}

static ttpu_status run_as_strided_update(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_as_strided_attrs *a = IR_ATTRS(op, as_strided);
  const ir_op view = {.kind = IR_AS_STRIDED, .attrs = a};
  soft_view part = x[1];
  if (!soft_view_of(&view, y, &part)) return soft_reference_op(f, op, x, y);
  kern_update(y, x);
  kern_copy(&part, &x[1]);
  return TTPU_OK;
}

/* Between sizes, the side of wider elements is seen as one dimension more of the narrow ones. */
static ttpu_status run_bitcast(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  if ((x->dtype == TTPU_BOOL) != (y->dtype == TTPU_BOOL)) return soft_reference_op(f, op, x, y); /* one bit each */
  size_t from = base_dtype_bytes(x->dtype), to = base_dtype_bytes(y->dtype);
  soft_view source = *x, target = *y, *wide = from > to ? &source : &target;
  int64_t ratio = (int64_t)(from > to ? from / to : to / from);
  source.dtype = target.dtype = from > to ? y->dtype : x->dtype;
  if (ratio > 1) {
    for (uint32_t d = 0; d < wide->rank; ++d) wide->strides[d] *= ratio;
    wide->dims[wide->rank] = ratio, wide->strides[wide->rank] = 1;
    ++wide->rank;
  }
  kern_copy(&target, &source);
  return TTPU_OK;
}

static ttpu_status run_scatter(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_scatter_attrs *a = IR_ATTRS(op, scatter);
  ir_kind combine = op->result_count == 1 ? ir_region_reducer(f, op->regions[0]) : IR_NO_OP;
  bool known = op->result_count == 1 && (combine != IR_NO_OP || is_replace(op->regions[0]));
  if (!known || !kern_scatter_supports(a, combine, y, &x[2])) return soft_reference_op(f, op, x, y);
  kern_update(y, x);
  return kern_scatter(a, combine, &x[1], &x[2], y);
}

/* ---- sources and checks ---------------------------------------------------------------------------- */

static void run_constant(const ir_op *op, const soft_view *y) {
  const ir_data value = IR_ATTRS(op, constant)->value;
  if (value.splat) {
    kern_fill(y, value.bytes);
    return;
  }
  soft_view source = soft_view_dense(y->dtype, y->rank, y->dims, (void *)value.bytes); /* read only */
  kern_copy(y, &source);
}

/* One line is counted by the reference, the others are copies of it. */
static ttpu_status run_iota(const ir_func *f, const ir_op *op, const soft_view *y) {
  if (base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  uint32_t dim = (uint32_t)IR_ATTRS(op, iota)->iota_dimension;
  soft_view line = *y;
  for (uint32_t d = 0; d < y->rank; ++d)
    if (d != dim) line.dims[d] = 1;
  size_t bytes = base_dtype_bytes(y->dtype);
  if (y->dtype == TTPU_I64 || y->dtype == TTPU_I32)
    for (int64_t i = 0; i < y->dims[dim]; ++i) {
      void *p = (char *)y->data + i * y->strides[dim] * (int64_t)bytes;
      if (y->dtype == TTPU_I64) *(int64_t *)p = i;
      else *(int32_t *)p = (int32_t)i;
    }
  else BASE_TRY(soft_reference_op(f, op, NULL, &line));
  for (uint32_t d = 0; d < y->rank; ++d) {
    if (d == dim || y->dims[d] == 1) continue;
    soft_view source = line; /* doubled: [0, n) to [n, 2n) */
    for (int64_t n = 1; n < y->dims[d]; n *= 2) {
      int64_t more = n < y->dims[d] - n ? n : y->dims[d] - n;
      source.dims[d] = n;
      soft_view from = kern_slice(&source, d, 0, more), to = kern_slice(&source, d, n, more);
      kern_copy(&to, &from);
    }
    line.dims[d] = y->dims[d];
  }
  return TTPU_OK;
}

static ttpu_status run_rng(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const soft_view *bits = &y[1];
  size_t bytes = base_dtype_bytes(bits->dtype);
  bool threefry = IR_ATTRS(op, rng_bit_generator)->rng_algorithm == IR_RNG_THREE_FRY;
  bool plain = x->dtype == TTPU_U64 && x->rank == 1 && base_dtype_is_integer(bits->dtype);
  if (!plain || threefry || (bytes != 4 && bytes != 8) || !soft_view_is_dense(bits))
    return soft_reference_op(f, op, x, y);
  uint64_t state[2];
  for (int64_t i = 0; i < 2; ++i) state[i] = ref_load(x, &i).u;
  kern_philox(state[0], state[1], bits);
  state[1] += ((uint64_t)base_numel(bits->rank, bits->dims) * bytes + 15) / 16;
  for (int64_t i = 0; i < 2; ++i) ref_store(y, &i, (base_scalar){.u = state[i]});
  return TTPU_OK;
}

typedef struct check_job {
  const kern_loop *loop;
  const soft_view *x;
  int64_t low, high;
  atomic_bool bad;
} check_job;

static void check_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  check_job *j = context;
  kern_walk w = kern_walk_begin(j->loop, j->loop->rank, begin);
  bool bad = false;
  for (int64_t i = begin; i < end; ++i, kern_walk_next(&w)) {
    int64_t v = kern_integer_at(j->x->dtype, (char *)j->x->data + w.offsets[0]);
    bad |= v < j->low || v >= j->high;
  }
  if (bad) atomic_store(&j->bad, true);
}

/* The reference words the message about a bad index. */
static ttpu_status run_check_index(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_check_index_attrs *a = IR_ATTRS(op, check_index);
  size_t bytes = base_dtype_bytes(x->dtype);
  kern_loop loop;
  kern_loop_make(&loop, x->rank, x->dims, 1, (const int64_t *const[]){x->strides}, &bytes);
  check_job j = {.loop = &loop, .x = x, .low = a->low, .high = a->high};
  int64_t n = kern_loop_numel(&loop);
  base_pool_run(n, 16384, n * 3, check_items, &j);
  if (atomic_load(&j.bad)) return soft_reference_op(f, op, x, y);
  kern_update(y, x);
  return TTPU_OK;
}

/* ---- reductions and orders ------------------------------------------------------------------------- */

static ttpu_status run_reduce(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  bool largest;
  if (op->result_count == 1) {
    ir_kind kind = ir_region_reducer(f, op->regions[0]);
    if (kind != IR_NO_OP && kern_reduce_supports(kind, x->dtype)) return kern_reduce(kind, dims, x, x[1].data, y);
  } else if (is_arg_reduction(f, op, &largest)) {
    return kern_reduce_arg(largest, (uint32_t)dims.data[0], x, x[2].data, *(const int64_t *)x[3].data, &y[0], &y[1]);
  }
  return soft_reference_op(f, op, x, y);
}

static ttpu_status run_reduce_window(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_window_attrs *a = IR_ATTRS(op, window);
  ir_kind kind = op->result_count == 1 ? ir_region_reducer(f, op->regions[0]) : IR_NO_OP;
  if (kind == IR_NO_OP || !kern_reduce_window_supports(kind, a, x->dtype)) return soft_reference_op(f, op, x, y);
  return kern_reduce_window(kind, a, x, x[1].data, y);
}

static ttpu_status run_select_and_scatter(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_window_attrs *a = IR_ATTRS(op, window);
  ir_direction select;
  bool known = is_selection(f, op->regions[0], &select) && ir_region_reducer(f, op->regions[1]) == IR_ADD;
  if (!known || !kern_select_and_add_supports(select, a, x->dtype)) return soft_reference_op(f, op, x, y);
  kern_fill(y, x[2].data);
  return kern_select_and_add(select, a, x, &x[1], y);
}

static ttpu_status run_sort(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  bool descending, few[16], *iota = few;
  if (!is_key_sort(f, op, &descending)) return soft_reference_op(f, op, x, y);
  int64_t dim = IR_ATTRS(op, sort)->dimension;
  if (op->operand_count > 16 && !(iota = base_alloc(op->operand_count))) return base_no_memory(op->operand_count);
  for (uint32_t k = 0; k < op->operand_count; ++k) iota[k] = k > 0 && is_position(f, op->operands[k], dim);
  ttpu_status status = kern_sort(descending, (uint32_t)dim, op->operand_count, x, iota, y);
  if (iota != few) base_free(iota);
  return status;
}

static ttpu_status run_scan(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_scan_attrs *a = IR_ATTRS(op, scan);
  if (!kern_scan_supports(a->kind, x->dtype)) return soft_reference_op(f, op, x, y);
  return kern_scan(a, x, y, op->result_count == 2 ? &y[1] : NULL);
}

/* ---- dispatch -------------------------------------------------------------------------------------- */

ttpu_status soft_kernel_op(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  switch ((ir_kind)op->kind) {
    case IR_BROADCAST_IN_DIM:
    case IR_RESHAPE:
    case IR_REVERSE:
    case IR_SLICE:
    case IR_TRANSPOSE:
    case IR_AS_STRIDED: return run_view(f, op, x, y);
    case IR_BITCAST_CONVERT:
      return x->rank < TTPU_MAX_RANK && y->rank < TTPU_MAX_RANK ? run_bitcast(f, op, x, y)
                                                                : soft_reference_op(f, op, x, y);
    case IR_CONCATENATE: run_concatenate(op, x, y); return TTPU_OK;
    case IR_PAD: run_pad(op, x, y); return TTPU_OK;
    case IR_DYNAMIC_SLICE: {
      soft_view part = dynamic_part(x, x + 1, y->dims);
      kern_copy(y, &part);
      return TTPU_OK;
    }
    case IR_DYNAMIC_UPDATE_SLICE: run_dynamic_update_slice(x, y); return TTPU_OK;
    case IR_GATHER: return kern_gather(IR_ATTRS(op, gather), x, &x[1], y);
    case IR_SCATTER: return run_scatter(f, op, x, y);
    case IR_AS_STRIDED_UPDATE: return run_as_strided_update(f, op, x, y);
    case IR_CONSTANT: run_constant(op, y); return TTPU_OK;
    case IR_IOTA: return run_iota(f, op, y);
    case IR_RNG_BIT_GENERATOR: return run_rng(f, op, x, y);
    case IR_CHECK_INDEX: return run_check_index(f, op, x, y);
    case IR_REDUCE: return run_reduce(f, op, x, y);
    case IR_REDUCE_WINDOW: return run_reduce_window(f, op, x, y);
    case IR_SELECT_AND_SCATTER: return run_select_and_scatter(f, op, x, y);
    case IR_SORT: return run_sort(f, op, x, y);
    case IR_TOP_K: return kern_top_k(IR_ATTRS(op, top_k), x, &y[0], &y[1]);
    case IR_SCAN: return run_scan(f, op, x, y);
    case IR_PATH_SCAN: return kern_path_scan(&x[0], &x[1], &x[2], y);
    case IR_FFT:
      return kern_fft_supports(IR_ATTRS(op, fft), x->dtype) ? kern_fft(IR_ATTRS(op, fft), x, y)
                                                            : soft_reference_op(f, op, x, y);
    case IR_CHOLESKY:
      return kern_linalg_supports(x->dtype) ? kern_cholesky(IR_ATTRS(op, cholesky)->lower, x, y)
                                            : soft_reference_op(f, op, x, y);
    case IR_TRIANGULAR_SOLVE:
      if (!kern_linalg_supports(x->dtype)) return soft_reference_op(f, op, x, y);
      return kern_triangular_solve(IR_ATTRS(op, triangular_solve), &x[0], &x[1], y);
    case IR_OPTIMIZATION_BARRIER:
      for (uint32_t i = 0; i < op->result_count; ++i) kern_update(&y[i], &x[i]);
      return TTPU_OK;
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
    case IR_COLLECTIVE_PERMUTE: return link_collective(f, op, link_fold, x, y);
    default: return soft_reference_op(f, op, x, y);
  }
}
