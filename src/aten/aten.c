#include "aten/aten.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aten/aten_int.h"

/* ---- the rows -------------------------------------------------------------------------------- */

#define shape_meta NULL
#define ROWX(name, lower, shape, flags, statics, mutates, dynamic, units) \
  {name, lower_##lower, shape_##shape, flags, statics, mutates, dynamic, units},
const aten_row aten_rows[] = {
#include "aten/aten.def"
#define ROWX(name, lower, shape, flags, statics, mutates, dynamic, units) \
  {name, lower_##lower, shape_##shape, flags, statics, mutates, dynamic, units},
#include "aten/aten_nn.def"
};
const uint32_t aten_row_count = sizeof aten_rows / sizeof *aten_rows;
#undef shape_meta

static const aten_row **sorted_rows; /* by name */
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;

static int compare_rows(const void *a, const void *b) {
  return strcmp((*(const aten_row *const *)a)->name, (*(const aten_row *const *)b)->name);
}

static void sort_rows(void) {
  static const aten_row *table[sizeof aten_rows / sizeof *aten_rows];
  for (uint32_t i = 0; i < aten_row_count; ++i) table[i] = &aten_rows[i];
  qsort(table, aten_row_count, sizeof *table, compare_rows);
  sorted_rows = table;
}

const aten_row *aten_row_find(const char *name) {
  pthread_once(&sorted_once, sort_rows);
  aten_row key = {.name = name};
  const aten_row *pointer = &key;
  const aten_row **found = bsearch(&pointer, sorted_rows, aten_row_count, sizeof *sorted_rows, compare_rows);
  return found ? *found : NULL;
}

/* ---- arguments of a call --------------------------------------------------------------------- */

static const aten_arg absent = {.kind = ATEN_NONE};

static const aten_arg *call_arg(const aten_call *call, uint32_t arg) {
  return arg < call->arg_count ? &call->args[arg] : &absent;
}

bool aten_call_has(const aten_call *call, uint32_t arg) {
  const aten_arg *a = call_arg(call, arg);
  if (a->kind == ATEN_TENSOR) return !(call->tensors[a->first].flags & ATEN_UNDEFINED);
  return a->kind != ATEN_NONE;
}

const aten_tensor *aten_call_tensor(const aten_call *call, uint32_t arg) {
  const aten_arg *a = call_arg(call, arg);
  if (a->kind != ATEN_TENSOR || (call->tensors[a->first].flags & ATEN_UNDEFINED)) return NULL;
  return &call->tensors[a->first];
}

const aten_number *aten_call_number(const aten_call *call, uint32_t arg) {
  const aten_arg *a = call_arg(call, arg);
  return a->kind == ATEN_FLOAT || a->kind == ATEN_SCALAR ? &call->numbers[a->first] : NULL;
}

double aten_call_real(const aten_call *call, uint32_t arg, double none) {
  const aten_number *n = aten_call_number(call, arg);
  return n ? base_scalar_convert(n->dtype, TTPU_F64, n->value).d[0] : none;
}

int64_t aten_call_int(const aten_call *call, uint32_t arg, int64_t none) {
  const aten_arg *a = call_arg(call, arg);
  return a->kind == ATEN_INT ? call->ints[a->first] : none;
}

ir_i64s aten_call_ints(const aten_call *call, uint32_t arg) {
  const aten_arg *a = call_arg(call, arg);
  if (a->kind == ATEN_INTS) return (ir_i64s){call->ints + a->first, a->count};
  if (a->kind == ATEN_INT) return (ir_i64s){call->ints + a->first, 1};
  return (ir_i64s){NULL, 0};
}

/* ---- accessors of a lowering ----------------------------------------------------------------- */

ir_value aten_fail(aten_lowering *c, const char *format, ...) {
  char text[384];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return ir_fail(c->b, TTPU_UNIMPLEMENTED, "%s: %s", c->call->row ? c->call->row->name : "?", text);
}

/* An argument is not of the kind that the lowering expects: the row is wrong for this schema. */
static ir_value wrong_kind(aten_lowering *c, uint32_t arg, const char *wanted) {
  return ir_fail(c->b, TTPU_INTERNAL, "%s: argument %u is not %s", c->call->row ? c->call->row->name : "?", arg,
                 wanted);
}

bool aten_has(const aten_lowering *c, uint32_t arg) { return aten_call_has(c->call, arg); }

ir_value aten_in(aten_lowering *c, uint32_t arg) {
  const aten_arg *a = call_arg(c->call, arg);
  if (a->kind != ATEN_TENSOR) return wrong_kind(c, arg, "a tensor");
  return c->operand(c, a->first);
}

const aten_tensor *aten_meta(const aten_lowering *c, uint32_t arg) {
  static const aten_tensor none = {.flags = ATEN_UNDEFINED};
  const aten_arg *a = call_arg(c->call, arg);
  return a->kind == ATEN_TENSOR ? &c->call->tensors[a->first] : &none;
}

uint32_t aten_list_count(const aten_lowering *c, uint32_t arg) {
  const aten_arg *a = call_arg(c->call, arg);
  return a->kind == ATEN_TENSORS || a->kind == ATEN_SCALARS || a->kind == ATEN_FLOATS || a->kind == ATEN_INTS ? a->count
                                                                                                              : 0;
}

bool aten_list_has(const aten_lowering *c, uint32_t arg, uint32_t i) {
  const aten_arg *a = call_arg(c->call, arg);
  return a->kind == ATEN_TENSORS && i < a->count && !(c->call->tensors[a->first + i].flags & ATEN_UNDEFINED);
}

ir_value aten_list_in(aten_lowering *c, uint32_t arg, uint32_t i) {
  const aten_arg *a = call_arg(c->call, arg);
  if (a->kind != ATEN_TENSORS || i >= a->count) return wrong_kind(c, arg, "a list with that many tensors");
  return c->operand(c, a->first + i);
}

const aten_tensor *aten_list_meta(const aten_lowering *c, uint32_t arg, uint32_t i) {
  static const aten_tensor none = {.flags = ATEN_UNDEFINED};
  const aten_arg *a = call_arg(c->call, arg);
  return a->kind == ATEN_TENSORS && i < a->count ? &c->call->tensors[a->first + i] : &none;
}

int64_t aten_int(const aten_lowering *c, uint32_t arg) { return aten_call_int(c->call, arg, 0); }

int64_t aten_int_or(const aten_lowering *c, uint32_t arg, int64_t none) { return aten_call_int(c->call, arg, none); }

ttpu_dtype aten_dtype_or(const aten_lowering *c, uint32_t arg, ttpu_dtype none) {
  return (ttpu_dtype)aten_call_int(c->call, arg, none);
}

ir_i64s aten_ints(const aten_lowering *c, uint32_t arg) { return aten_call_ints(c->call, arg); }

const char *aten_text(const aten_lowering *c, uint32_t arg) {
  const aten_arg *a = call_arg(c->call, arg);
  return a->kind == ATEN_TEXT ? c->call->texts[a->first] : NULL;
}

static uint32_t wrap_dim(int64_t dim, uint32_t rank) {
  int64_t n = rank ? rank : 1;
  if (dim < 0) dim += n;
  return dim >= 0 && dim < n ? (uint32_t)dim : 0; /* Meta has refused what is outside */
}

uint32_t aten_dim(const aten_lowering *c, uint32_t arg, uint32_t rank) { return wrap_dim(aten_int(c, arg), rank); }

uint32_t aten_dims(const aten_lowering *c, uint32_t arg, uint32_t rank, int64_t dims[TTPU_MAX_RANK]) {
  ir_i64s list = aten_ints(c, arg);
  uint32_t mask = 0, count = 0;
  for (uint32_t i = 0; i < list.count; ++i) mask |= 1u << wrap_dim(list.data[i], rank);
  if (list.count == 0) mask = ~0u;
  for (uint32_t i = 0; i < rank; ++i)
    if (mask >> i & 1) dims[count++] = i;
  return count;
}

const aten_number *aten_number_of(const aten_lowering *c, uint32_t arg) { return aten_call_number(c->call, arg); }

static bool is_static(const aten_lowering *c, uint32_t arg) {
  return c->call->row && arg < 32 && (c->call->row->static_args >> arg & 1);
}

/* A number whose value is known now, as a constant. */
static ir_value constant_number(aten_lowering *c, const aten_number *n, ttpu_dtype dtype) {
  if (base_dtype_is_complex(dtype)) {
    base_scalar v = base_scalar_convert(n->dtype, dtype, n->value);
    uint8_t bytes[16];
    base_scalar_store(dtype, bytes, v);
    return ir_constant(c->b, ir_tensor(c->b, dtype, 0, NULL), (ir_data){bytes, true});
  }
  if (n->dtype == TTPU_C128 || n->dtype == TTPU_F64) return ir_scalar_f64(c->b, dtype, n->value.d[0]);
  return ir_scalar_i64(c->b, dtype, n->value.i);
}

ir_value aten_number_in(aten_lowering *c, uint32_t arg, ttpu_dtype dtype) {
  const aten_arg *a = call_arg(c->call, arg);
  if (a->kind == ATEN_INT) return ir_scalar_i64(c->b, dtype, c->call->ints[a->first]);
  if (a->kind != ATEN_FLOAT && a->kind != ATEN_SCALAR) return wrong_kind(c, arg, "a number");
  if (is_static(c, arg)) return constant_number(c, &c->call->numbers[a->first], dtype);
  return c->number(c, a->first, dtype);
}

ttpu_dtype aten_number_dtype(const aten_lowering *c, uint32_t arg) {
  const aten_number *n = aten_number_of(c, arg);
  return n ? n->dtype : TTPU_I64;
}

double aten_static(const aten_lowering *c, uint32_t arg) {
  const aten_arg *a = call_arg(c->call, arg);
  if (a->kind == ATEN_INT) return (double)c->call->ints[a->first];
  return aten_call_real(c->call, arg, 0);
}

ir_value aten_vector_in(aten_lowering *c, uint32_t arg) {
  const aten_arg *a = call_arg(c->call, arg);
  int64_t count = a->count;
  if (count == 0) return ir_fill_i64(c->b, TTPU_I64, 1, &count, 0);
  ir_value *parts = base_arena_alloc(c->b->func->arena, (size_t)count * sizeof *parts);
  if (!parts) return ir_fail(c->b, TTPU_RESOURCE_EXHAUSTED, "%s: out of host memory", c->call->row->name);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t at = a->first + (uint32_t)i;
    ir_value v = a->kind == ATEN_INTS ? ir_scalar_i64(c->b, TTPU_I64, c->call->ints[at]) : c->number(c, at, TTPU_I64);
    parts[i] = ir_reshape(c->b, v, 1, (int64_t[]){1});
  }
  return count == 1 ? parts[0] : ir_concatenate(c->b, (uint32_t)count, parts, 0);
}

/* ---- values ---------------------------------------------------------------------------------- */

ir_type aten_type(const aten_lowering *c, ir_value v) {
  static const ir_type none = {.dtype = TTPU_F32};
  return v ? ir_type_of(c->b->func, v) : none; /* 0 after a failure: the builder ignores what follows */
}

ttpu_dtype aten_math_dtype(ttpu_dtype t) {
  return aten_is_half(t) || t == TTPU_F8E5M2 || t == TTPU_F8E4M3FN ? TTPU_F32 : base_dtype_computed(t);
}

ttpu_dtype aten_real_dtype(ttpu_dtype t) { return t == TTPU_C64 ? TTPU_F32 : t == TTPU_C128 ? TTPU_F64 : t; }

ttpu_dtype aten_complex_dtype(ttpu_dtype t) {
  return base_dtype_is_complex(t) ? t : t == TTPU_F64 ? TTPU_C128 : TTPU_C64;
}

ir_value aten_is_true(aten_lowering *c, ir_value v) {
  ir_type t = aten_type(c, v);
  if (t.dtype == TTPU_BOOL) return v;
  return ir_compare(c->b, IR_NE, v, ir_zeros_like(c->b, v));
}

ir_value aten_convert(aten_lowering *c, ir_value v, ttpu_dtype to) {
  ttpu_dtype from = aten_type(c, v).dtype;
  if (from == to) return v;
  if (base_dtype_is_complex(from) && to == TTPU_BOOL) return aten_is_true(c, v);
  if (base_dtype_is_complex(from) && !base_dtype_is_complex(to)) v = ir_real(c->b, v);
  return ir_convert(c->b, v, to);
}

ir_value aten_expand(aten_lowering *c, ir_value v, const aten_tensor *t) {
  return ir_broadcast_to(c->b, v, t->rank, t->sizes);
}

ir_value aten_spread(aten_lowering *c, ir_value scalar, ir_value like) {
  ir_type t = aten_type(c, like);
  return ir_broadcast_to(c->b, scalar, t.rank, t.dims);
}

ir_value aten_like(aten_lowering *c, ir_value v, double value) { return v ? ir_like_f64(c->b, v, value) : 0; }

ir_value aten_like_i64(aten_lowering *c, ir_value v, int64_t value) {
  ir_type t = aten_type(c, v);
  return ir_fill_i64(c->b, t.dtype, t.rank, t.dims, value);
}

ir_value aten_in_as(aten_lowering *c, uint32_t arg, ttpu_dtype dtype) {
  return aten_convert(c, aten_in(c, arg), dtype);
}

ir_value aten_in_math(aten_lowering *c, uint32_t arg) {
  return aten_in_as(c, arg, aten_math_dtype(aten_meta(c, arg)->dtype));
}

ir_value aten_iota_like(aten_lowering *c, ir_value x, ttpu_dtype dtype, uint32_t dim) {
  ir_type t = aten_type(c, x);
  return ir_iota(c->b, dtype, t.rank, t.dims, dim);
}

void aten_out(aten_lowering *c, uint32_t i, ir_value v) {
  if (i >= c->out_count) return;
  const aten_tensor *t = &c->outs[i];
  if (t->dtype != TTPU_NO_DTYPE && !(t->flags & ATEN_UNDEFINED) && v) {
    v = aten_convert(c, v, t->dtype);
    v = aten_expand(c, v, t);
  }
  c->results[i] = v;
}

void aten_out_reshaped(aten_lowering *c, uint32_t i, ir_value v) {
  if (i >= c->out_count) return;
  v = aten_convert(c, v, c->outs[i].dtype);
  c->results[i] = ir_reshape(c->b, v, c->outs[i].rank, c->outs[i].sizes);
}

/* ---- reductions ------------------------------------------------------------------------------ */

ir_value aten_reduce(aten_lowering *c, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims, bool keep) {
  ir_type t = aten_type(c, x);
  ir_value v = count ? ir_reduce(c->b, kind, x, count, dims) : x;
  if (!keep) return v;
  int64_t sizes[TTPU_MAX_RANK];
  if (t.rank) memcpy(sizes, t.dims, t.rank * sizeof *sizes);
  for (uint32_t i = 0; i < count; ++i) sizes[dims[i]] = 1;
  return ir_reshape(c->b, v, t.rank, sizes);
}

int64_t aten_reduced_count(aten_lowering *c, ir_value x, uint32_t count, const int64_t *dims) {
  ir_type t = aten_type(c, x);
  int64_t n = 1;
  for (uint32_t i = 0; i < count; ++i) n *= t.dims[dims[i]];
  return n;
}

/* ---- pointwise ------------------------------------------------------------------------------- */

/* What an argument of a point is: a tensor (with its index in the call) or a number. */
typedef struct point_arg {
  const aten_tensor *tensor;
  const aten_number *number;
  uint32_t index;
  bool element; /* the item-th element of the tensor (foreach with a tensor of scalars) */
} point_arg;

static point_arg find_point_arg(const aten_point *p, uint32_t arg) {
  const aten_call *call = p->c->call;
  const aten_arg *a = call_arg(call, arg);
  uint32_t item = a->kind == ATEN_TENSORS || a->kind == ATEN_SCALARS || a->kind == ATEN_FLOATS ? p->item : 0;
  point_arg r = {.index = a->first + item};
  if (item && item >= a->count) return r;
  if (a->kind == ATEN_TENSOR || a->kind == ATEN_TENSORS) {
    if (!(call->tensors[r.index].flags & ATEN_UNDEFINED)) r.tensor = &call->tensors[r.index];
  } else if (a->kind == ATEN_FLOAT || a->kind == ATEN_SCALAR || a->kind == ATEN_FLOATS || a->kind == ATEN_SCALARS) {
    r.number = &call->numbers[r.index];
  }
  r.element = p->foreach && a->kind == ATEN_TENSOR && r.tensor && r.tensor->rank == 1;
  return r;
}

bool aten_point_has(const aten_point *p, uint32_t arg) {
  point_arg a = find_point_arg(p, arg);
  return a.tensor || a.number;
}

const aten_number *aten_point_number_of(const aten_point *p, uint32_t arg) { return find_point_arg(p, arg).number; }

/* The argument in `dtype`, by way of `first` where a number or 0-d tensor is rounded to that before. */
static ir_value point_value(aten_point *p, uint32_t arg, ttpu_dtype first, ttpu_dtype dtype) {
  aten_lowering *c = p->c;
  point_arg a = find_point_arg(p, arg);
  if (!a.tensor && !a.number) return wrong_kind(c, arg, "a tensor or a number");
  ir_value v;
  if (a.number) {
    v = is_static(c, arg) ? constant_number(c, a.number, first) : c->number(c, a.index, first);
  } else {
    v = c->operand(c, a.index);
    if (a.element) v = ir_reshape(c->b, ir_slice_dim(c->b, v, 0, p->item, (int64_t)p->item + 1, 1), 0, NULL);
    if (aten_type(c, v).dtype != first) v = aten_convert(c, v, first);
  }
  v = aten_convert(c, v, dtype);
  return ir_broadcast_to(c->b, v, p->rank, p->sizes);
}

ir_value aten_point_in(aten_point *p, uint32_t arg) { return point_value(p, arg, p->common, p->math); }
ir_value aten_point_in_exact(aten_point *p, uint32_t arg) { return point_value(p, arg, p->math, p->math); }
ir_value aten_point_in_as(aten_point *p, uint32_t arg, ttpu_dtype dtype) { return point_value(p, arg, dtype, dtype); }
ir_value aten_point_number(aten_point *p, uint32_t arg) { return point_value(p, arg, p->math, p->math); }
ir_value aten_point_const(aten_point *p, double value) {
  return ir_fill_f64(p->c->b, p->math, p->rank, p->sizes, value);
}

/* The sizes to which a point's tensors broadcast. They do: Meta or the shape function has said so. */
static void add_sizes(aten_point *p, const aten_tensor *t) {
  uint32_t rank = t->rank > p->rank ? t->rank : p->rank;
  int64_t sizes[TTPU_MAX_RANK];
  for (uint32_t i = 0; i < rank; ++i) {
    int64_t a = i < p->rank ? p->sizes[p->rank - 1 - i] : 1, b = i < t->rank ? t->sizes[t->rank - 1 - i] : 1;
    sizes[rank - 1 - i] = a == 1 ? b : a;
  }
  p->rank = rank;
  if (rank) memcpy(p->sizes, sizes, rank * sizeof *sizes);
}

static void run_point(aten_point *p, uint32_t promoted_args, int promotion, aten_point_fn fn) {
  aten_lowering *c = p->c;
  aten_promotion types = {0};
  bool fractions = false; /* among the promoted arguments is a floating tensor: the default float plays no part */
  for (uint32_t arg = 0; arg < c->call->arg_count; ++arg) {
    point_arg a = find_point_arg(p, arg);
    bool promoted = promoted_args >> arg & 1;
    if (a.tensor && !a.element) add_sizes(p, a.tensor);
    if (!promoted) continue;
    if (a.element) {
      aten_tensor scalar = *a.tensor;
      scalar.rank = 0;
      aten_promotion_add(&types, &scalar);
    } else if (a.tensor) {
      aten_promotion_add(&types, a.tensor);
    } else if (a.number) {
      aten_promotion_add_number(&types, a.number->dtype);
    }
    if (a.tensor && !(a.tensor->flags & ATEN_WRAPPED))
      fractions |= base_dtype_is_float(a.tensor->dtype) || base_dtype_is_complex(a.tensor->dtype);
  }
  p->common = base_dtype_computed(aten_promotion_result(&types)); /* f16 with a complex number gives complex32 */
  if (promotion == ATEN_PROMOTE_FLOAT && !base_dtype_is_float(p->common) && !base_dtype_is_complex(p->common))
    p->common = TTPU_F32;
  /* A float that came from no tensor is the default dtype, which the result's dtype shows. */
  ttpu_dtype out = p->out ? (ttpu_dtype)p->out->dtype : TTPU_NO_DTYPE;
  if (!fractions && p->common == TTPU_F32 && out == TTPU_F64) p->common = TTPU_F64;
  if (!fractions && p->common == TTPU_C64 && out == TTPU_C128) p->common = TTPU_C128;
  p->math = aten_math_dtype(p->common);
  ir_value v = fn(p);
  /* A wider out= argument takes what the common dtype holds. */
  if (p->math != p->common && out != p->common && aten_type(c, v).dtype == p->math) v = aten_convert(c, v, p->common);
  aten_out(c, p->item, v);
}

void aten_pointwise(aten_lowering *c, uint32_t promoted_args, int promotion, aten_point_fn fn) {
  aten_point p = {.c = c, .out = c->out_count ? &c->outs[0] : NULL};
  run_point(&p, promoted_args, promotion, fn);
}

void aten_foreach(aten_lowering *c, uint32_t promoted_args, int promotion, aten_point_fn fn) {
  for (uint32_t i = 0; i < c->out_count; ++i) {
    aten_point p = {.c = c, .foreach = true, .item = i, .out = &c->outs[i]};
    run_point(&p, promoted_args, promotion, fn);
  }
}

/* ---- math ------------------------------------------------------------------------------------ */

/* Toward zero; keeps the sign of zero: ceil(-0.5) is -0. */
ir_value aten_trunc(aten_lowering *c, ir_value x) {
  ir_value negative = ir_compare(c->b, IR_LT, x, ir_zeros_like(c->b, x));
  return ir_select(c->b, negative, ir_ceil(c->b, x), ir_floor(c->b, x));
}

ir_value aten_is_nan(aten_lowering *c, ir_value x) { return ir_compare(c->b, IR_NE, x, x); }

ir_value aten_is_inf(aten_lowering *c, ir_value x) {
  return ir_compare(c->b, IR_EQ, ir_abs(c->b, x), aten_like(c, x, INFINITY));
}

ir_value aten_select_number(aten_lowering *c, ir_value pred, double on_true, ir_value on_false) {
  return ir_select(c->b, pred, aten_like(c, on_false, on_true), on_false);
}

ir_value aten_log_of_base(aten_lowering *c, ir_value x, double log_of_base) {
  ir_builder *b = c->b;
  ir_value v = ir_log(b, x);
  if (!base_dtype_is_complex((ttpu_dtype)aten_type(c, x).dtype)) return ir_divide(b, v, aten_like(c, v, log_of_base));
  ir_value re = ir_real(b, v), base = aten_like(c, re, log_of_base); /* by parts: inf / (base + 0i) would be NaN */
  return ir_complex(b, ir_divide(b, re, base), ir_divide(b, ir_imag(b, v), base));
}

/* Exact at powers of two (floor(log2(n)) is common), where the division alone is off by a rounding: there the mantissa
 * is 0 and the exponent is the answer. */
ir_value aten_log2(aten_lowering *c, ir_value x) {
  ir_builder *b = c->b;
  ir_value quotient = aten_log_of_base(c, x, 0x1.62e42fefa39efp-1 /* ln 2 */);
  ir_type t = aten_type(c, x);
  if (t.dtype != TTPU_F32 && t.dtype != TTPU_F64) return quotient;
  int mantissa_bits = t.dtype == TTPU_F32 ? 23 : 52, bias = t.dtype == TTPU_F32 ? 127 : 1023;
  ir_value bits = ir_bitcast_convert(b, x, t.dtype == TTPU_F32 ? TTPU_I32 : TTPU_I64);
  ir_value mantissa = ir_and_bits(b, bits, aten_like_i64(c, bits, ((int64_t)1 << mantissa_bits) - 1));
  ir_value exponent = ir_shift_right_arithmetic(b, bits, aten_like_i64(c, bits, mantissa_bits));
  ir_value exact = ir_compare(b, IR_EQ, mantissa, ir_zeros_like(b, mantissa));
  exact = ir_and_bits(b, exact, ir_compare(b, IR_GT, exponent, ir_zeros_like(b, exponent)));
  exact = ir_and_bits(b, exact, ir_compare(b, IR_LE, exponent, aten_like_i64(c, exponent, 2 * bias)));
  ir_value power = ir_convert(b, ir_subtract(b, exponent, aten_like_i64(c, exponent, bias)), t.dtype);
  return ir_select(b, exact, power, quotient);
}

ir_value aten_polynomial(aten_lowering *c, ir_value x, uint32_t count, const double *coefficients) {
  ir_value v = aten_like(c, x, coefficients[0]);
  for (uint32_t i = 1; i < count; ++i) v = ir_add(c->b, ir_multiply(c->b, v, x), aten_like(c, x, coefficients[i]));
  return v;
}
