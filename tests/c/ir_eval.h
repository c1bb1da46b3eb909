/* The meaning of the operations that decompositions are made of, element by element, with libm: slow, short, and
 * independent of the software TPU. Every result is rounded to its dtype. */
#ifndef TTPU_IR_EVAL_H
#define TTPU_IR_EVAL_H

#include <complex.h>
#undef I

#include "check.h"
#include "ir/ir.h"

typedef struct eval_state {
  const ir_func *f;
  base_scalar **values; /* by handle: the elements, row-major; integers in i, floats in d[0], complex in d */
} eval_state;

typedef struct eval_index {
  int64_t at[TTPU_MAX_RANK];
} eval_index;

static inline eval_index eval_unflatten(ir_type t, int64_t flat) {
  eval_index x = {{0}};
  for (uint32_t i = t.rank; i-- > 0; flat /= t.dims[i]) x.at[i] = flat % t.dims[i];
  return x;
}
static inline int64_t eval_flatten(ir_type t, eval_index x) {
  int64_t flat = 0;
  for (uint32_t i = 0; i < t.rank; ++i) flat = flat * t.dims[i] + x.at[i];
  return flat;
}

static base_scalar eval_round(ttpu_dtype t, base_scalar v) {
  uint64_t bytes[2];
  base_scalar_store(t, bytes, v);
  return base_scalar_load(t, bytes);
}

static double complex eval_complex(base_scalar v) { return CMPLX(v.d[0], v.d[1]); }

static base_scalar eval_unary(ir_kind kind, ttpu_dtype t, base_scalar x) {
  base_scalar y = {.u = 0};
  double v = x.d[0];
  if (base_dtype_is_complex(t)) {
    double complex z = kind == IR_SQRT ? csqrt(eval_complex(x)) : kind == IR_NEGATE ? -eval_complex(x) : NAN;
    y = (base_scalar){.d = {creal(z), cimag(z)}};
    if (kind == IR_REAL || kind == IR_IMAG) y = (base_scalar){.d = {x.d[kind == IR_IMAG], 0}};
    return y;
  }
  if (!base_dtype_is_float(t)) {
    check_fail(__FILE__, __LINE__, "no meaning for %s of integers", ir_ops[kind].name);
    return y;
  }
  switch (kind) {
    case IR_ABS: y.d[0] = fabs(v); break;
    case IR_NEGATE: y.d[0] = -v; break;
    case IR_SIGN: y.d[0] = v > 0 ? 1 : v < 0 ? -1 : v; break;
    case IR_FLOOR: y.d[0] = floor(v); break;
    case IR_EXPONENTIAL: y.d[0] = exp(v); break;
    case IR_EXPONENTIAL_MINUS_ONE: y.d[0] = expm1(v); break;
    case IR_LOG: y.d[0] = log(v); break;
    case IR_LOG_PLUS_ONE: y.d[0] = log1p(v); break;
    case IR_SQRT: y.d[0] = sqrt(v); break;
    case IR_SINE: y.d[0] = sin(v); break;
    case IR_COSINE: y.d[0] = cos(v); break;
    case IR_IS_FINITE: y.i = isfinite(v) != 0; break;
    default: check_fail(__FILE__, __LINE__, "no meaning for %s", ir_ops[kind].name);
  }
  return y;
}

static base_scalar eval_binary(ir_kind kind, ttpu_dtype t, base_scalar x, base_scalar y) {
  base_scalar z = {.u = 0};
  bool real = base_dtype_is_float(t);
  double a = x.d[0], b = y.d[0];
  switch (kind) {
    case IR_ADD: real ? (z.d[0] = a + b) : (z.i = (int64_t)(x.u + y.u)); break;
    case IR_SUBTRACT: real ? (z.d[0] = a - b) : (z.i = (int64_t)(x.u - y.u)); break;
    case IR_MULTIPLY: real ? (z.d[0] = a * b) : (z.i = (int64_t)(x.u * y.u)); break;
    case IR_DIVIDE: z.d[0] = a / b; break;
    case IR_ATAN2: z.d[0] = atan2(a, b); break;
    case IR_MAXIMUM: z.d[0] = isnan(a) || isnan(b) ? NAN : fmax(a, b); break;
    case IR_MINIMUM: z.d[0] = isnan(a) || isnan(b) ? NAN : fmin(a, b); break;
    case IR_COMPLEX: z = (base_scalar){.d = {a, b}}; break;
    case IR_AND: z.u = x.u & y.u; break;
    case IR_OR: z.u = x.u | y.u; break;
    case IR_XOR: z.u = x.u ^ y.u; break;
    default: check_fail(__FILE__, __LINE__, "no meaning for %s", ir_ops[kind].name);
  }
  return z;
}

static bool eval_compare(ir_direction d, ttpu_dtype t, base_scalar x, base_scalar y) {
  bool real = base_dtype_is_float(t), less = real ? x.d[0] < y.d[0] : x.i < y.i,
       equal = real ? x.d[0] == y.d[0] : x.i == y.i;
  bool more = real ? x.d[0] > y.d[0] : x.i > y.i;
  switch (d) {
    case IR_EQ: return equal;
    case IR_NE: return !equal;
    case IR_GE: return more || equal;
    case IR_GT: return more;
    case IR_LE: return less || equal;
    default: return less;
  }
}

/* An element of a pointwise operation, an index map or a source. */
static base_scalar eval_element(eval_state *s, const ir_op *op, ir_type to, int64_t flat) {
  const ir_value *in = op->operands;
  base_scalar *x = op->operand_count ? s->values[in[0]] : NULL;
  ir_type t = op->operand_count ? ir_type_of(s->f, in[0]) : to;
  eval_index at = eval_unflatten(to, flat), from = {{0}};
  base_scalar y = {.u = 0};
  switch (op->kind) {
    case IR_CONSTANT: {
      ir_data data = IR_ATTRS(op, constant)->value;
      return base_scalar_load(
          (ttpu_dtype)to.dtype,
          (const char *)data.bytes + (data.splat ? 0 : flat * (int64_t)base_dtype_bytes((ttpu_dtype)to.dtype)));
    }
    case IR_IOTA:
      return base_scalar_convert(TTPU_I64, (ttpu_dtype)to.dtype,
                                 (base_scalar){.i = at.at[IR_ATTRS(op, iota)->iota_dimension]});
    case IR_CONVERT: return base_scalar_convert((ttpu_dtype)t.dtype, (ttpu_dtype)to.dtype, x[flat]);
    case IR_BITCAST_CONVERT: {
      uint64_t bytes[2] = {0, 0};
      base_scalar_store((ttpu_dtype)t.dtype, bytes, x[flat]);
      return base_scalar_load((ttpu_dtype)to.dtype, bytes);
    }
    case IR_COMPARE:
      y.i = eval_compare(IR_ATTRS(op, compare)->comparison_direction, (ttpu_dtype)t.dtype, x[flat],
                         s->values[in[1]][flat]);
      return y;
    case IR_SELECT: return s->values[in[x[t.rank ? flat : 0].i ? 1 : 2]][flat];
    case IR_CLAMP: {
      double v = s->values[in[1]][flat].d[0], low = x[flat].d[0], high = s->values[in[2]][flat].d[0];
      y.d[0] = isnan(v) ? v : v < low ? low : v > high ? high : v;
      return y;
    }
    case IR_RESHAPE: return x[flat];
    case IR_BROADCAST_IN_DIM:
      for (uint32_t i = 0; i < t.rank; ++i)
        from.at[i] = t.dims[i] == 1 ? 0 : at.at[IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions.data[i]];
      return x[eval_flatten(t, from)];
    case IR_TRANSPOSE:
      for (uint32_t i = 0; i < t.rank; ++i) from.at[IR_ATTRS(op, transpose)->permutation.data[i]] = at.at[i];
      return x[eval_flatten(t, from)];
    case IR_SLICE:
      for (uint32_t i = 0; i < t.rank; ++i)
        from.at[i] = IR_ATTRS(op, slice)->start_indices.data[i] + at.at[i] * IR_ATTRS(op, slice)->strides.data[i];
      return x[eval_flatten(t, from)];
    case IR_REVERSE:
      from = at;
      for (uint32_t i = 0; i < IR_ATTRS(op, dims)->dimensions.count; ++i) {
        int64_t d = IR_ATTRS(op, dims)->dimensions.data[i];
        from.at[d] = t.dims[d] - 1 - at.at[d];
      }
      return x[eval_flatten(t, from)];
    case IR_PAD:
      for (uint32_t i = 0; i < t.rank; ++i) {
        int64_t k = at.at[i] - IR_ATTRS(op, pad)->edge_padding_low.data[i],
                step = IR_ATTRS(op, pad)->interior_padding.data[i] + 1;
        if (k < 0 || k % step || k / step >= t.dims[i]) return s->values[in[1]][0];
        from.at[i] = k / step;
      }
      return x[eval_flatten(t, from)];
    case IR_CONCATENATE: {
      int64_t d = IR_ATTRS(op, dim)->dimension;
      for (uint32_t i = 0; i < op->operand_count; ++i) {
        ir_type part = ir_type_of(s->f, in[i]);
        if (at.at[d] < part.dims[d]) return s->values[in[i]][eval_flatten(part, at)];
        at.at[d] -= part.dims[d];
      }
      return y;
    }
    case IR_DYNAMIC_SLICE:
      for (uint32_t i = 0; i < t.rank; ++i) from.at[i] = at.at[i] + s->values[in[1 + i]][0].i;
      return x[eval_flatten(t, from)];
    case IR_DYNAMIC_UPDATE_SLICE: {
      ir_type part = ir_type_of(s->f, in[1]);
      for (uint32_t i = 0; i < t.rank; ++i) {
        from.at[i] = at.at[i] - s->values[in[2 + i]][0].i;
        if (from.at[i] < 0 || from.at[i] >= part.dims[i]) return x[flat];
      }
      return s->values[in[1]][eval_flatten(part, from)];
    }
    case IR_GATHER: return x[s->values[in[1]][flat].i]; /* of one dimension, as ir_take makes it */
    default:
      if (op->operand_count == 1) return eval_unary((ir_kind)op->kind, (ttpu_dtype)t.dtype, x[flat]);
      if (op->operand_count == 2 && op->kind != IR_SCATTER)
        return eval_binary((ir_kind)op->kind, (ttpu_dtype)t.dtype, x[flat], s->values[in[1]][flat]);
      check_fail(__FILE__, __LINE__, "no meaning for %s", ir_ops[op->kind].name);
      return y;
  }
}

static base_scalar *eval_room(eval_state *s, ir_value v) {
  int64_t n = ir_numel(ir_type_of(s->f, v));
  free(s->values[v]);
  return s->values[v] = calloc((size_t)n + 1, sizeof(base_scalar));
}

/* Over one dimension set, with a plain reducer. */
static void eval_reduce(eval_state *s, const ir_op *op) {
  ir_type t = ir_type_of(s->f, op->operands[0]), to = ir_type_of(s->f, op->first_result);
  base_scalar *y = eval_room(s, op->first_result);
  for (int64_t i = 0; i < ir_numel(to); ++i) y[i] = s->values[op->operands[1]][0];
  for (int64_t i = 0; i < ir_numel(t); ++i) {
    eval_index at = eval_unflatten(t, i), kept = {{0}};
    uint32_t n = 0;
    for (uint32_t d = 0; d < t.rank; ++d) {
      bool gone = false;
      for (uint32_t k = 0; k < IR_ATTRS(op, dims)->dimensions.count; ++k)
        gone |= IR_ATTRS(op, dims)->dimensions.data[k] == d;
      if (!gone) kept.at[n++] = at.at[d];
    }
    base_scalar *to_element = &y[eval_flatten(to, kept)];
    *to_element = eval_binary(ir_region_reducer(s->f, op->regions[0]), (ttpu_dtype)t.dtype, *to_element,
                              s->values[op->operands[0]][i]);
    *to_element = eval_round((ttpu_dtype)to.dtype, *to_element);
  }
}

static void eval_dot(eval_state *s, const ir_op *op) {
  const ir_dot_general_attrs *a = IR_ATTRS(op, dot_general);
  ir_type x = ir_type_of(s->f, op->operands[0]), y = ir_type_of(s->f, op->operands[1]),
          to = ir_type_of(s->f, op->first_result);
  base_scalar *z = eval_room(s, op->first_result);
  int64_t depth = 1;
  for (uint32_t i = 0; i < a->lhs_contracting_dimensions.count; ++i)
    depth *= x.dims[a->lhs_contracting_dimensions.data[i]];
  for (int64_t flat = 0; flat < ir_numel(to); ++flat) {
    eval_index at = eval_unflatten(to, flat), ix = {{0}}, iy = {{0}};
    uint32_t n = 0, used_x = 0, used_y = 0;
    for (; n < a->lhs_batching_dimensions.count; ++n) {
      ix.at[a->lhs_batching_dimensions.data[n]] = iy.at[a->rhs_batching_dimensions.data[n]] = at.at[n];
      used_x |= 1u << a->lhs_batching_dimensions.data[n], used_y |= 1u << a->rhs_batching_dimensions.data[n];
    }
    for (uint32_t i = 0; i < a->lhs_contracting_dimensions.count; ++i)
      used_x |= 1u << a->lhs_contracting_dimensions.data[i], used_y |= 1u << a->rhs_contracting_dimensions.data[i];
    for (uint32_t d = 0; d < x.rank; ++d)
      if (!(used_x >> d & 1)) ix.at[d] = at.at[n++];
    for (uint32_t d = 0; d < y.rank; ++d)
      if (!(used_y >> d & 1)) iy.at[d] = at.at[n++];
    for (int64_t k = 0; k < depth; ++k) {
      int64_t rest = k;
      for (uint32_t i = a->lhs_contracting_dimensions.count; i-- > 0;) {
        int64_t dx = a->lhs_contracting_dimensions.data[i], dy = a->rhs_contracting_dimensions.data[i];
        ix.at[dx] = iy.at[dy] = rest % x.dims[dx];
        rest /= x.dims[dx];
      }
      z[flat].d[0] +=
          s->values[op->operands[0]][eval_flatten(x, ix)].d[0] * s->values[op->operands[1]][eval_flatten(y, iy)].d[0];
    }
    z[flat] = eval_round((ttpu_dtype)to.dtype, z[flat]);
  }
}

static void eval_ops(eval_state *s, const ir_region *r);

/* Along the last dimension, stable, by insertion: the comparator says whether the later of two comes first. */
static void eval_sort(eval_state *s, const ir_op *op) {
  ir_type t = ir_type_of(s->f, op->operands[0]);
  int64_t n = t.dims[t.rank - 1], count = ir_numel(t);
  const ir_region *r = op->regions[0];
  for (uint32_t k = 0; k < op->operand_count; ++k)
    memcpy(eval_room(s, op->first_result + k), s->values[op->operands[k]], (size_t)count * sizeof(base_scalar));
  for (int64_t row = 0; row < count; row += n)
    for (int64_t i = row + 1; i < row + n; ++i)
      for (int64_t at = i; at > row; --at) {
        for (uint32_t k = 0; k < op->operand_count; ++k) {
          eval_room(s, r->first_arg + 2 * k)[0] = s->values[op->first_result + k][at];
          eval_room(s, r->first_arg + 2 * k + 1)[0] = s->values[op->first_result + k][at - 1];
        }
        eval_ops(s, r);
        if (!s->values[r->ops[r->count - 1]->operands[0]][0].i) break;
        for (uint32_t k = 0; k < op->operand_count; ++k) {
          base_scalar *y = s->values[op->first_result + k], keep = y[at];
          y[at] = y[at - 1], y[at - 1] = keep;
        }
      }
}

static void eval_copy(eval_state *s, ir_value to, ir_value from) {
  base_scalar *y = eval_room(s, to);
  memcpy(y, s->values[from], (size_t)ir_numel(ir_type_of(s->f, to)) * sizeof *y);
}

static void eval_while(eval_state *s, const ir_op *op) {
  const ir_region *condition = op->regions[0], *body = op->regions[1];
  for (uint32_t k = 0; k < op->result_count; ++k) eval_copy(s, op->first_result + k, op->operands[k]);
  for (;;) {
    for (uint32_t k = 0; k < op->result_count; ++k) {
      eval_copy(s, condition->first_arg + k, op->first_result + k);
      eval_copy(s, body->first_arg + k, op->first_result + k);
    }
    eval_ops(s, condition);
    if (!s->values[condition->ops[condition->count - 1]->operands[0]][0].i) return;
    eval_ops(s, body);
    for (uint32_t k = 0; k < op->result_count; ++k)
      eval_copy(s, op->first_result + k, body->ops[body->count - 1]->operands[k]);
  }
}

static void eval_ops(eval_state *s, const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    const ir_op *op = r->ops[i];
    if (op->kind == IR_RETURN) return;
    if (op->kind == IR_REDUCE) eval_reduce(s, op);
    else if (op->kind == IR_DOT_GENERAL) eval_dot(s, op);
    else if (op->kind == IR_SORT) eval_sort(s, op);
    else if (op->kind == IR_WHILE) eval_while(s, op);
    else {
      ir_type to = ir_type_of(s->f, op->first_result);
      base_scalar *y = eval_room(s, op->first_result);
      if (op->kind == IR_SCATTER) { /* of one dimension, replacing */
        memcpy(y, s->values[op->operands[0]], (size_t)ir_numel(to) * sizeof *y);
        for (int64_t k = 0; k < ir_numel(ir_type_of(s->f, op->operands[1])); ++k)
          y[s->values[op->operands[1]][k].i] = s->values[op->operands[2]][k];
        continue;
      }
      for (int64_t k = 0; k < ir_numel(to); ++k) y[k] = eval_round((ttpu_dtype)to.dtype, eval_element(s, op, to, k));
    }
  }
}

/* Runs f on `args` (its parameters' elements). The results are read through eval_result; eval_free ends it. */
static eval_state eval_run(const ir_func *f, base_scalar *const *args) {
  eval_state s = {f, calloc(f->value_count, sizeof(base_scalar *))};
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    memcpy(eval_room(&s, f->body.first_arg + i), args[i],
           (size_t)ir_numel(ir_type_of(f, f->body.first_arg + i)) * sizeof(base_scalar));
  eval_ops(&s, &f->body);
  return s;
}
static const base_scalar *eval_result(const eval_state *s, uint32_t i) {
  return s->values[s->f->body.ops[s->f->body.count - 1]->operands[i]];
}
static void eval_free(eval_state *s) {
  for (uint32_t i = 0; i < s->f->value_count; ++i) free(s->values[i]);
  free(s->values);
}

#endif
