/* Inference: the result types of every operation, and the constraints that StableHLO's spec puts on it. This file has
 * the frame, the elementwise rules and those whose result type is given; infer_int.h says where the others are. */
#include <stdarg.h>
#include <stdio.h>

#include "ir/infer_int.h"

__attribute__((cold, noinline, format(printf, 2, 3))) bool infer_fail(ir_inference *in, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(in->message, in->message_size, format, args);
  va_end(args);
  in->status = TTPU_INVALID_ARGUMENT;
  return false;
}

__attribute__((cold, noinline)) bool infer_no_memory(ir_inference *in) {
  infer_fail(in, "out of memory");
  in->status = TTPU_RESOURCE_EXHAUSTED;
  return false;
}

/* ---- small tools ---------------------------------------------------------------------------- */

/* Makes room for `count` results. */
bool infer_results(ir_inference *in, uint32_t count) {
  in->result_count = count;
  in->results = in->few;
  if (count > 2) in->results = base_arena_alloc(in->arena, count * sizeof *in->results);
  return in->results || infer_no_memory(in);
}

bool infer_result(ir_inference *in, ir_type type) {
  in->result_count = 1;
  in->results = in->few;
  in->few[0] = type;
  return true;
}

/* Dims that no operand has: into the arena, with the bounds that every tensor keeps. */
bool infer_fresh(ir_inference *in, uint32_t rank, const int64_t *dims, ttpu_dtype dtype, ir_type *out) {
  CHECK(dtype > TTPU_NO_DTYPE && dtype < TTPU_DTYPE_COUNT, "%d is not a dtype", (int)dtype);
  CHECK(rank <= TTPU_MAX_RANK, "rank %u is more than %d", rank, TTPU_MAX_RANK);
  CHECK(rank == 0 || dims, "a result type of rank %u has no dims", rank);
  int64_t bytes = (int64_t)base_dtype_bytes(dtype);
  bool overflow = false;
  for (uint32_t i = 0; i < rank; ++i) {
    CHECK(dims[i] >= 0, "dimension %u of the result is %lld", i, (long long)dims[i]);
    /* empty dimensions do not excuse the others: strides are computed from them */
    overflow |= __builtin_mul_overflow(bytes, dims[i] ? dims[i] : 1, &bytes);
  }
  CHECK(!overflow, "the result %s is larger than 2^63 bytes",
        IR_SHOW(((ir_type){(uint8_t)dtype, (uint8_t)rank, dims})));
  const int64_t *copy = ir_no_dims;
  if (rank) {
    copy = base_arena_dup(in->arena, dims, rank * sizeof *dims);
    if (!copy) return infer_no_memory(in);
  }
  *out = (ir_type){(uint8_t)dtype, (uint8_t)rank, copy};
  return true;
}

bool infer_result_dims(ir_inference *in, uint32_t rank, const int64_t *dims, ttpu_dtype dtype) {
  ir_type type = {0, 0, NULL};
  TRY(infer_fresh(in, rank, dims, dtype, &type));
  return infer_result(in, type);
}

/* A list of distinct dimension numbers below rank. */
bool infer_check_dims(ir_inference *in, const char *what, ir_i64s dims, uint32_t rank) {
  uint32_t seen = 0;
  for (uint32_t i = 0; i < dims.count; ++i) {
    int64_t d = dims.data[i];
    CHECK(d >= 0 && d < rank, "%s[%u] is %lld, expected [0, %u)", what, i, (long long)d, rank);
    CHECK(!(seen >> d & 1), "%s names dimension %lld twice", what, (long long)d);
    seen |= 1u << d;
  }
  return true;
}

bool infer_check_sorted(ir_inference *in, const char *what, ir_i64s dims) {
  for (uint32_t i = 1; i < dims.count; ++i) CHECK(dims.data[i - 1] < dims.data[i], "%s is not sorted", what);
  return true;
}

bool infer_check_dim(ir_inference *in, const char *what, int64_t d, uint32_t rank) {
  CHECK(d >= 0 && d < rank, "%s is %lld, expected [0, %u)", what, (long long)d, rank);
  return true;
}

bool infer_check_count(ir_inference *in, const char *what, uint32_t count, uint32_t expected) {
  CHECK(count == expected, "%s has %u entries, expected %u", what, count, expected);
  return true;
}

/* The operands' types equal operand 0's. */
bool infer_check_equal_operands(ir_inference *in, uint32_t first) {
  ir_type t = T(first);
  for (uint32_t i = first + 1; i < in->operand_count; ++i)
    CHECK(ir_type_equal(t, T(i)), "operand %u is %s, but operand %u is %s", i, IR_SHOW(T(i)), first, IR_SHOW(t));
  return true;
}

/* ---- regions -------------------------------------------------------------------------------- */

ir_type infer_region_arg(const ir_inference *in, uint32_t region, uint32_t i) {
  return ir_type_of(in->func, in->regions[region]->first_arg + i);
}

/* The RETURN of a region, with `count` operands. */
bool infer_region_return(ir_inference *in, uint32_t region, int64_t count, const ir_op **out) {
  const ir_region *r = in->regions[region];
  CHECK(r && r->count && r->ops[r->count - 1]->kind == IR_RETURN, "region %u does not end with a return", region);
  *out = r->ops[r->count - 1];
  CHECK(count < 0 || (*out)->operand_count == count, "region %u returns %u values, expected %lld", region,
        (*out)->operand_count, (long long)count);
  return true;
}

bool infer_region_args(ir_inference *in, uint32_t region, uint32_t count) {
  CHECK(in->regions[region] && in->regions[region]->arg_count == count, "region %u takes %u arguments, expected %u",
        region, in->regions[region] ? in->regions[region]->arg_count : 0, count);
  return true;
}

/* A reducer of n tensors: (n accumulators, n elements) -> n, all scalars of the inputs' dtypes. `first` is the
 * operand that has the first dtype. */
bool infer_check_reducer(ir_inference *in, uint32_t region, uint32_t n, uint32_t first) {
  const ir_op *ret = NULL;
  TRY(infer_region_args(in, region, 2 * n));
  TRY(infer_region_return(in, region, n, &ret));
  for (uint32_t i = 0; i < 2 * n; ++i) {
    ir_type arg = infer_region_arg(in, region, i), want = T(first + i % n);
    CHECK(is_scalar(arg, (ttpu_dtype)want.dtype), "argument %u of region %u is %s, expected a scalar of %s", i, region,
          IR_SHOW(arg), base_dtypes[want.dtype].hlo_name);
    if (i >= n) continue;
    ir_type back = ir_type_of(in->func, ret->operands[i]);
    CHECK(is_scalar(back, (ttpu_dtype)want.dtype), "result %u of region %u is %s, expected a scalar of %s", i, region,
          IR_SHOW(back), base_dtypes[want.dtype].hlo_name);
  }
  return true;
}

/* A comparator or selector: (args...) -> i1. */
bool infer_check_predicate_region(ir_inference *in, uint32_t region) {
  const ir_op *ret = NULL;
  TRY(infer_region_return(in, region, 1, &ret));
  ir_type back = ir_type_of(in->func, ret->operands[0]);
  CHECK(is_scalar(back, TTPU_BOOL), "region %u returns %s, expected tensor<i1>", region, IR_SHOW(back));
  return true;
}

/* ---- elementwise ---------------------------------------------------------------------------- */

enum {
  B = 1 << DTYPE_BOOL,
  U = 1 << DTYPE_UNSIGNED,
  S = 1 << DTYPE_SIGNED,
  F = 1 << DTYPE_FLOAT,
  C = 1 << DTYPE_COMPLEX,
  INT = U | S,
  NUMBER = U | S | F | C,
  ANY = NUMBER | B
};

/* Which dtype classes the spec allows as operands. */
static int allowed_classes(ir_kind kind) {
  switch (kind) {
    case IR_ABS: return S | F | C;
    case IR_NEGATE:
    case IR_SUBTRACT:
    case IR_DIVIDE:
    case IR_POWER:
    case IR_REMAINDER: return NUMBER;
    case IR_SIGN: return S | F | C;
    case IR_CBRT:
    case IR_COSINE:
    case IR_EXPONENTIAL:
    case IR_EXPONENTIAL_MINUS_ONE:
    case IR_LOG:
    case IR_LOG_PLUS_ONE:
    case IR_LOGISTIC:
    case IR_RSQRT:
    case IR_SINE:
    case IR_SQRT:
    case IR_TAN:
    case IR_TANH:
    case IR_ATAN2:
    case IR_CHOLESKY:
    case IR_TRIANGULAR_SOLVE:
    case IR_REAL:
    case IR_IMAG:
    case IR_ASIN:
    case IR_ACOS:
    case IR_ATAN:
    case IR_SINH:
    case IR_COSH:
    case IR_ASINH:
    case IR_ACOSH:
    case IR_ATANH: return F | C;
    case IR_CEIL:
    case IR_FLOOR:
    case IR_IS_FINITE:
    case IR_ROUND_NEAREST_AFZ:
    case IR_ROUND_NEAREST_EVEN:
    case IR_REDUCE_PRECISION:
    case IR_ERF:
    case IR_ERFC:
    case IR_ERF_INV:
    case IR_LGAMMA:
    case IR_DIGAMMA:
    case IR_NEXT_AFTER: return F;
    case IR_COUNT_LEADING_ZEROS:
    case IR_POPCNT:
    case IR_SHIFT_LEFT:
    case IR_SHIFT_RIGHT_ARITHMETIC:
    case IR_SHIFT_RIGHT_LOGICAL: return INT;
    case IR_CHECK_INDEX:
    case IR_AND:
    case IR_OR:
    case IR_XOR:
    case IR_NOT: return B | INT;
    default: return ANY;
  }
}

bool infer_check_class(ir_inference *in, ir_type t) {
  static const char *const names[] = {"bool", "unsigned", "signed", "float", "complex"};
  int allowed = allowed_classes(in->kind);
  if (__builtin_expect(allowed >> base_dtypes[t.dtype].cls & 1, 1)) return true;
  char list[64];
  size_t at = 0;
  for (int i = 0; i < 5; ++i)
    if (allowed >> i & 1) at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", names[i]);
  FAIL("operand is %s, expected a dtype of: %s", IR_SHOW(t), list);
}

bool infer_same(ir_inference *in) {
  ir_type t = T(0);
  TRY(infer_check_class(in, t));
  if (in->operand_count > 1) TRY(infer_check_equal_operands(in, 0));
  switch (in->kind) {
    case IR_COLLECTIVE_PERMUTE: TRY(infer_check_pairs(in)); break;
    case IR_REVERSE:
      TRY(infer_check_dims(in, "dimensions", ((const ir_dims_attrs *)in->attrs)->dimensions, t.rank));
      break;
    case IR_CHOLESKY:
      CHECK(t.rank >= 2 && t.dims[t.rank - 1] == t.dims[t.rank - 2], "operand is %s, expected square matrices",
            IR_SHOW(t));
      break;
    case IR_REDUCE_PRECISION: {
      const ir_reduce_precision_attrs *a = in->attrs;
      CHECK(a->exponent_bits >= 1 && a->mantissa_bits >= 0,
            "exponent_bits %lld and mantissa_bits %lld, expected >= 1 and >= 0", (long long)a->exponent_bits,
            (long long)a->mantissa_bits);
      break;
    }
    case IR_CHECK_INDEX: {
      const ir_check_index_attrs *a = in->attrs;
      CHECK(a->what, "no text says what is indexed");
      break;
    }
    default: break;
  }
  return infer_result(in, t);
}

bool infer_abs(ir_inference *in) {
  TRY(infer_check_class(in, T(0)));
  return infer_result(in, with_dtype(T(0), part_of((ttpu_dtype)T(0).dtype)));
}

bool infer_real_part(ir_inference *in) { return infer_abs(in); }

bool infer_predicate(ir_inference *in) {
  TRY(infer_check_class(in, T(0)));
  if (in->operand_count > 1) TRY(infer_check_equal_operands(in, 0));
  if (in->kind == IR_COMPARE && base_dtype_is_complex((ttpu_dtype)T(0).dtype)) {
    ir_direction d = ((const ir_compare_attrs *)in->attrs)->comparison_direction;
    CHECK(d == IR_EQ || d == IR_NE, "complex numbers have no order (%s)", IR_SHOW(T(0)));
  }
  return infer_result(in, with_dtype(T(0), TTPU_BOOL));
}

bool infer_complex(ir_inference *in) {
  ir_type t = T(0);
  CHECK(t.dtype == TTPU_F32 || t.dtype == TTPU_F64, "operand 0 is %s, expected f32 or f64", IR_SHOW(t));
  TRY(infer_check_equal_operands(in, 0));
  return infer_result(in, with_dtype(t, t.dtype == TTPU_F32 ? TTPU_C64 : TTPU_C128));
}

bool infer_select(ir_inference *in) {
  ir_type pred = T(0), t = T(1);
  CHECK(pred.dtype == TTPU_BOOL, "pred is %s, expected i1", IR_SHOW(pred));
  CHECK(ir_type_equal(t, T(2)), "on_true is %s, but on_false is %s", IR_SHOW(t), IR_SHOW(T(2)));
  CHECK(pred.rank == 0 || ir_same_dims(pred, t), "pred is %s, expected a scalar or the dims of %s", IR_SHOW(pred),
        IR_SHOW(t));
  return infer_result(in, t);
}

bool infer_clamp(ir_inference *in) {
  ir_type t = T(1);
  CHECK(!base_dtype_is_complex((ttpu_dtype)t.dtype), "operand is %s: complex numbers have no order", IR_SHOW(t));
  for (uint32_t i = 0; i < 3; i += 2)
    CHECK(T(i).dtype == t.dtype && (T(i).rank == 0 || ir_same_dims(T(i), t)),
          "%s is %s, expected a scalar of, or exactly, %s", i ? "max" : "min", IR_SHOW(T(i)), IR_SHOW(t));
  return infer_result(in, t);
}

/* ---- the result type is given --------------------------------------------------------------- */

static bool check_bitcast(ir_inference *in, ir_type t, ir_type to) {
  bool either_complex = base_dtype_is_complex((ttpu_dtype)t.dtype) || base_dtype_is_complex((ttpu_dtype)to.dtype);
  CHECK(!either_complex || (base_dtype_is_complex((ttpu_dtype)t.dtype) && base_dtype_is_complex((ttpu_dtype)to.dtype)),
        "%s to %s: complex on one side only", IR_SHOW(t), IR_SHOW(to));
  int from_bits = base_dtype_bits((ttpu_dtype)t.dtype), to_bits = base_dtype_bits((ttpu_dtype)to.dtype);
  ir_type wide = from_bits >= to_bits ? t : to, narrow = from_bits >= to_bits ? to : t;
  int most = from_bits >= to_bits ? from_bits : to_bits, least = from_bits >= to_bits ? to_bits : from_bits;
  CHECK(least && most % least == 0, "%s to %s: %d bits and %d", IR_SHOW(t), IR_SHOW(to), from_bits, to_bits);
  int64_t ratio = most / least;
  bool fits = ratio == 1 ? ir_same_dims(t, to)
                         : narrow.rank == wide.rank + 1 && narrow.dims[wide.rank] == ratio &&
                               ir_same_dims(wide, (ir_type){0, wide.rank, narrow.dims});
  CHECK(fits, "%s cannot be read as %s", IR_SHOW(t), IR_SHOW(to));
  return true;
}

static bool check_broadcast(ir_inference *in, ir_type t, ir_type to) {
  ir_i64s map = ((const ir_broadcast_in_dim_attrs *)in->attrs)->broadcast_dimensions;
  CHECK(t.dtype == to.dtype, "operand is %s, result is %s", IR_SHOW(t), IR_SHOW(to));
  TRY(infer_check_count(in, "broadcast_dimensions", map.count, t.rank));
  TRY(infer_check_dims(in, "broadcast_dimensions", map, to.rank));
  for (uint32_t i = 0; i < t.rank; ++i)
    CHECK(t.dims[i] == 1 || t.dims[i] == to.dims[map.data[i]],
          "dimension %u of %s does not expand to dimension %lld of %s", i, IR_SHOW(t), (long long)map.data[i],
          IR_SHOW(to));
  return true;
}

/* Every `step`-th number from `first` on is used once: -1 is no number where `padded`; with `all` none is left out. */
static bool check_ids(ir_inference *in, const char *what, ir_i64s ids, uint32_t first, uint32_t step, bool padded,
                      bool all) {
  enum { MOST_IDS = 1 << 20 };
  int64_t most = 0;
  uint32_t used = 0;
  for (uint32_t i = first; i < ids.count; i += step) {
    CHECK((ids.data[i] >= 0 && ids.data[i] < MOST_IDS) || (padded && ids.data[i] == -1), "%s: %lld is no id", what,
          (long long)ids.data[i]);
    if (ids.data[i] > most) most = ids.data[i];
  }
  bool *seen = base_calloc((size_t)most + 1, sizeof *seen), ok = true;
  if (!seen) return infer_no_memory(in);
  for (uint32_t i = first; i < ids.count && ok; i += step) {
    int64_t id = ids.data[i];
    if (id < 0) continue;
    if (seen[id]) ok = infer_fail(in, "%s: id %lld is named twice", what, (long long)id);
    else seen[id] = true, ++used;
  }
  for (uint32_t id = 0; all && id < used && ok; ++id)
    if (!seen[id]) ok = infer_fail(in, "%s: id %u is left out", what, id);
  base_free(seen);
  return ok;
}

bool infer_check_pairs(ir_inference *in) {
  const ir_replica_groups_attrs *a = in->attrs;
  CHECK(a->replica_groups.count == 2 * (uint64_t)a->group_count, "source_target_pairs are not pairs");
  return check_ids(in, "the sources", a->replica_groups, 0, 2, false, false) &&
         check_ids(in, "the targets", a->replica_groups, 1, 2, false, false);
}

bool infer_check_groups(ir_inference *in, int64_t *size) {
  const ir_replica_groups_attrs *a = in->attrs;
  int64_t count = a->group_count;
  bool padded = in->kind == IR_ALL_REDUCE || in->kind == IR_COLLECTIVE_REDUCE,
       partial = in->kind == IR_COLLECTIVE_BROADCAST;
  CHECK(!a->use_global_device_ids || a->channel_id > 0, "use_global_device_ids needs a channel, channel_id is %lld",
        (long long)a->channel_id);
  TRY(check_ids(in, "replica_groups", a->replica_groups, 0, 1, padded, !partial));
  CHECK(count >= 0 && (count == 0 ? a->replica_groups.count == 0 : a->replica_groups.count % count == 0),
        "%u replica ids in %lld groups", a->replica_groups.count, (long long)count);
  *size = count ? a->replica_groups.count / count : 0; /* 0: all replicas, however many */
  return true;
}

/* all_gather, all_to_all, reduce_scatter: only named dimensions change, by the group's size. */
static bool check_collective(ir_inference *in) {
  const ir_replica_groups_attrs *a = in->attrs;
  int64_t size = 0;
  TRY(infer_check_groups(in, &size));
  TRY(infer_check_count(in, "results", in->given_count, in->operand_count));
  for (uint32_t i = 0; i < in->operand_count; ++i) {
    ir_type t = T(i), to = in->given[i];
    TRY(infer_check_dim(in, "dimension", a->dimension, t.rank));
    CHECK(to.dtype == t.dtype && to.rank == t.rank, "operand %u is %s, result is %s", i, IR_SHOW(t), IR_SHOW(to));
    int64_t dims[TTPU_MAX_RANK];
    memcpy(dims, t.dims, t.rank * sizeof *dims);
    if (in->kind == IR_ALL_TO_ALL) {
      TRY(infer_check_dim(in, "concat_dimension", a->concat_dimension, t.rank));
      CHECK(!size || size == a->split_count, "split_count is %lld, but groups have %lld", (long long)a->split_count,
            (long long)size);
      CHECK(a->split_count > 0 && dims[a->dimension] % a->split_count == 0,
            "dimension %lld of %s does not split into %lld", (long long)a->dimension, IR_SHOW(t),
            (long long)a->split_count);
      dims[a->dimension] /= a->split_count;
      bool overflow = __builtin_mul_overflow(dims[a->concat_dimension], a->split_count, &dims[a->concat_dimension]);
      CHECK(!overflow, "the result is too large");
    } else {
      int64_t whole = in->kind == IR_ALL_GATHER ? to.dims[a->dimension] : t.dims[a->dimension];
      int64_t part = in->kind == IR_ALL_GATHER ? t.dims[a->dimension] : to.dims[a->dimension];
      /* groups of replica ids with a channel are joined over the partitions, of which types say nothing */
      bool joined = a->channel_id > 0 && !a->use_global_device_ids && size;
      bool fits = part ? whole % part == 0 : whole == 0;
      if (fits && part && size) fits = joined ? whole / part % size == 0 : whole / part == size;
      CHECK(fits, "dimension %lld: %s does not become %s over groups of %lld", (long long)a->dimension, IR_SHOW(t),
            IR_SHOW(to), (long long)size);
      dims[a->dimension] = to.dims[a->dimension];
    }
    CHECK(ir_type_equal(to, (ir_type){t.dtype, t.rank, dims}), "operand %u is %s, result is %s", i, IR_SHOW(t),
          IR_SHOW(to));
  }
  if (in->kind == IR_REDUCE_SCATTER) TRY(infer_check_reducer(in, 0, 1, 0));
  return true;
}

bool infer_given(ir_inference *in) {
  if (in->kind == IR_PARTITION_ID || in->kind == IR_REPLICA_ID)
    return infer_result(in, (ir_type){TTPU_U32, 0, ir_no_dims});
  CHECK(in->given_count || in->kind == IR_CUSTOM_CALL, "the result type must be given");
  ir_type t = in->operand_count ? T(0) : (ir_type){0, 0, NULL};
  if (in->kind == IR_CONVERT && in->given[0].rank == t.rank && in->given[0].dims && ir_same_dims(t, in->given[0])) {
    CHECK(in->given[0].dtype > TTPU_NO_DTYPE && in->given[0].dtype < TTPU_DTYPE_COUNT, "%d is not a dtype",
          in->given[0].dtype);
    return infer_result(in, with_dtype(t, (ttpu_dtype)in->given[0].dtype)); /* shares the operand's dims */
  }
  TRY(infer_results(in, in->given_count));
  for (uint32_t i = 0; i < in->given_count; ++i)
    TRY(infer_fresh(in, in->given[i].rank, in->given[i].dims, (ttpu_dtype)in->given[i].dtype, &in->results[i]));
  ir_type to = in->given_count ? in->results[0] : t;
  switch (in->kind) {
    case IR_CONVERT: CHECK(ir_same_dims(t, to), "operand is %s, result is %s", IR_SHOW(t), IR_SHOW(to)); break;
    case IR_BITCAST_CONVERT: return check_bitcast(in, t, to);
    case IR_BROADCAST_IN_DIM: return check_broadcast(in, t, to);
    case IR_RESHAPE:
      CHECK(t.dtype == to.dtype && ir_numel(t) == ir_numel(to), "%s does not reshape to %s", IR_SHOW(t), IR_SHOW(to));
      break;
    case IR_AS_STRIDED:
      CHECK(t.dtype == to.dtype, "operand is %s, result is %s", IR_SHOW(t), IR_SHOW(to));
      return infer_check_strided(in, t, to);
    case IR_CONSTANT:
      CHECK(((const ir_constant_attrs *)in->attrs)->value.bytes || ir_numel(to) == 0, "no elements for %s",
            IR_SHOW(to));
      break;
    case IR_IOTA:
      CHECK(to.dtype != TTPU_BOOL, "an iota of i1");
      return infer_check_dim(in, "iota_dimension", ((const ir_iota_attrs *)in->attrs)->iota_dimension, to.rank);
    case IR_ALL_GATHER:
    case IR_ALL_TO_ALL:
    case IR_REDUCE_SCATTER: return check_collective(in);
    case IR_CUSTOM_CALL:
      CHECK(((const ir_custom_call_attrs *)in->attrs)->call_target_name, "no call_target_name");
      break;
    case IR_RECV:
    case IR_INFEED:
      CHECK(T(0).dtype == TTPU_TOKEN, "operand is %s, expected a token", IR_SHOW(T(0)));
      for (uint32_t i = 0; i + 1 < in->result_count; ++i)
        CHECK(in->results[i].dtype != TTPU_TOKEN, "result %u is a token", i);
      CHECK(in->result_count && in->results[in->result_count - 1].dtype == TTPU_TOKEN, "the last result is no token");
      break;
    default: break;
  }
  return true;
}

bool infer_rng_bit_generator(ir_inference *in) {
  ir_type state = T(0); /* which states there are is the executor's to say */
  CHECK(in->given_count == 1 || in->given_count == 2, "the type of the bits must be given");
  ir_type bits = in->given[in->given_count - 1];
  ttpu_dtype dtype = (ttpu_dtype)bits.dtype;
  CHECK(base_dtype_is_integer(dtype) || base_dtype_is_float(dtype), "bits are %s, expected numbers", IR_SHOW(bits));
  TRY(infer_results(in, 2));
  in->results[0] = state;
  return infer_fresh(in, bits.rank, bits.dims, (ttpu_dtype)bits.dtype, &in->results[1]);
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef bool (*rule)(ir_inference *in);
static const rule rules[IR_KIND_COUNT] = {
#define OP(ENUM, name, operands, results, regions, infer, attrs, flags) [IR_##ENUM] = infer_##infer,
#include "ir/ops.def"
#undef OP
};

/* ENUM fields hold one of their names, lists that are not empty have a pointer: what text or a careless caller could
 * break. */
static bool check_attrs(ir_inference *in) {
  const ir_attrs_info *info = &ir_attrs_infos[ir_ops[in->kind].attrs];
  if (info->field_count == 0) return true;
  CHECK(in->attrs, "no attributes were given");
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const ir_field *field = &info->fields[i];
    const void *at = (const uint8_t *)in->attrs + field->offset;
    if (field->kind == FIELD_ENUM) {
      unsigned value = *(const unsigned *)at; /* every enum here is an unsigned int */
      CHECK(value < field->name_count, "%s is %u, expected less than %u", field->name, value, field->name_count);
    } else if (field->kind == FIELD_DIMS || field->kind == FIELD_SIZES || field->kind == FIELD_FLAGS) {
      const ir_i64s *list = at; /* ir_flags is laid out alike */
      CHECK(list->count == 0 || list->data, "%s has no data", field->name);
    }
  }
  return true;
}

/* Given types agree with inferred ones. */
static bool check_given(ir_inference *in) {
  if (in->given_count == 0) return true;
  if (in->kind == IR_RNG_BIT_GENERATOR && in->given_count == 1) return true;
  TRY(infer_check_count(in, "result types", in->given_count, in->result_count));
  for (uint32_t i = 0; i < in->given_count; ++i) {
    ir_type given = in->given[i], found = in->results[i];
    CHECK(given.rank == 0 || given.dims, "given result %u of rank %u has no dims", i, given.rank);
    bool equal = given.dims ? ir_type_equal(given, found) : given.dtype == found.dtype;
    CHECK(equal, "result %u is %s, but %s was given", i, IR_SHOW(found), IR_SHOW(given));
  }
  return true;
}

bool ir_infer(ir_inference *in) {
  const ir_op_info *info = &ir_ops[in->kind];
  in->status = TTPU_OK;
  in->result_count = 0;
  in->results = in->few;
  if (info->operands >= 0) TRY(infer_check_count(in, "the operand list", in->operand_count, (uint32_t)info->operands));
  if (info->regions >= 0) TRY(infer_check_count(in, "the region list", in->region_count, (uint32_t)info->regions));
  if (info->attrs) TRY(check_attrs(in));
  TRY(rules[in->kind](in));
  return check_given(in);
}
