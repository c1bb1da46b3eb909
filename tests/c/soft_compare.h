/* Compares soft_kernel_op with soft_reference_op: what the kernel tests share.
 *
 * A test builds a function of parameters and one operation at the end; compare() makes operands with random layouts
 * (permuted, padded, reversed, broadcast), runs the operation through the reference, then through the kernels on 1 and on 4
 * threads into dense memory and into strided memory, and wants the last three equal to the bit and all near the
 * first. */
#ifndef TTPU_SOFT_COMPARE_H
#define TTPU_SOFT_COMPARE_H

#include "check.h"
#include "soft/soft_int.h"

static uint64_t random_state = 88172645463325252ull;
__attribute__((unused)) static uint64_t random_bits(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545F4914F6CDD1Dull >> 8;
}
__attribute__((unused)) static int64_t random_below(int64_t n) {
  return n > 0 ? (int64_t)(random_bits() % (uint64_t)n) : 0;
}
__attribute__((unused)) static int64_t random_from(int64_t low, int64_t high) {
  return low + random_below(high - low + 1);
}

/* ---- views with random layouts --------------------------------------------------------------------- */

typedef struct test_view {
  soft_view v;
  void *memory;
} test_view;

enum { LAYOUT_DENSE, LAYOUT_STRIDED, LAYOUT_ANY }; /* ANY: broadcast too, for what is only read */

__attribute__((unused)) static test_view test_view_new(ttpu_dtype t, uint32_t rank, const int64_t *dims, int layout) {
  test_view r = {.v = soft_view_dense(t, rank, dims, NULL)};
  uint32_t order[TTPU_MAX_RANK];
  int64_t stride = 1, lowest = 0;
  for (uint32_t i = 0; i < rank; ++i) order[i] = i;
  for (uint32_t i = rank; layout && i-- > 1;) {
    uint32_t k = (uint32_t)random_below(i + 1), swap = order[i];
    order[i] = order[k], order[k] = swap;
  }
  for (uint32_t i = rank; i-- > 0;) {
    uint32_t d = order[i];
    int64_t size = dims[d] > 0 ? dims[d] : 1;
    if (layout && random_below(4) == 0) stride *= random_from(1, 3);
    r.v.strides[d] = stride;
    if (layout == LAYOUT_ANY && random_below(6) == 0) {
      r.v.strides[d] = 0;
      continue;
    }
    stride *= size;
    if (layout && random_below(5) == 0) r.v.strides[d] = -r.v.strides[d], lowest += (size - 1) * r.v.strides[d];
  }
  size_t bytes = base_dtype_bytes(t);
  r.memory = calloc((size_t)stride + 1, bytes);
  r.v.data = (char *)r.memory - lowest * (int64_t)bytes;
  return r;
}

__attribute__((unused)) static void *test_element(const soft_view *v, int64_t flat) {
  int64_t offset = 0;
  for (uint32_t d = v->rank; d-- > 0; flat /= v->dims[d]) offset += flat % v->dims[d] * v->strides[d];
  return (char *)v->data + offset * (int64_t)base_dtype_bytes(v->dtype);
}

/* Small values, so that there are equal ones; `special` mixes NaN, infinities and zeros of both signs in. */
__attribute__((unused)) static base_scalar random_scalar(ttpu_dtype t, bool special) {
  static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
  base_scalar x = {0};
  switch (base_dtypes[t].cls) {
    case DTYPE_BOOL: x.i = random_below(2); return x;
    case DTYPE_UNSIGNED: x.i = random_below(10); return x;
    case DTYPE_SIGNED: x.i = random_from(-10, 10); return x;
    default:
      for (int k = 0; k < 2; ++k) x.d[k] = (double)random_from(-64, 64) / 16;
      if (special && random_below(4) == 0) x.d[0] = specials[random_below(5)];
      if (t == TTPU_F8E4M3FN && isinf(x.d[0])) x.d[0] = 1; /* has none */
      if (!base_dtype_is_complex(t)) x.d[1] = 0;
      return x;
  }
}

__attribute__((unused)) static void fill_random(const soft_view *v, bool special) {
  int64_t n = base_numel(v->rank, v->dims);
  for (int64_t i = 0; i < n; ++i) base_scalar_store(v->dtype, test_element(v, i), random_scalar(v->dtype, special));
}
__attribute__((unused)) static void fill_indices(const soft_view *v, int64_t low, int64_t high) {
  int64_t n = base_numel(v->rank, v->dims);
  for (int64_t i = 0; i < n; ++i) {
    int64_t x = random_from(low, high);
    if (!base_dtype_is_signed(v->dtype) && x < 0) x = 0;
    base_scalar_store(v->dtype, test_element(v, i), (base_scalar){.i = x});
  }
}

/* ---- a function with one operation ------------------------------------------------------------------ */

typedef struct test_op {
  base_arena arena;
  ir_func *f;
  ir_builder b;
  const ir_op *op;
  test_view operands[20];
  uint32_t operand_count;
  bool in_place; /* also with result 0 in operand 0's memory */
} test_op;

__attribute__((unused)) static void test_begin(test_op *t) {
  memset(t, 0, sizeof *t);
  base_arena_init(&t->arena);
  t->f = ir_func_new(&t->arena, "main");
  t->b = ir_builder_on(t->f);
}
__attribute__((unused)) static ir_value test_param(test_op *t, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  return ir_param(&t->b, ir_tensor(&t->b, dtype, rank, dims));
}

/* The operation that gives `v`; makes its operands, with random values. Constants and iotas are computed. */
__attribute__((unused)) static bool test_operands(test_op *t, ir_value v, bool special) {
  if (t->b.status != TTPU_OK || v == 0) return check_fail(__FILE__, __LINE__, "builder: %s", t->b.message);
  t->op = ir_def(t->f, v);
  t->operand_count = t->op->operand_count;
  for (uint32_t i = 0; i < t->operand_count; ++i) {
    ir_type type = ir_type_of(t->f, t->op->operands[i]);
    const ir_op *def = ir_def(t->f, t->op->operands[i]);
    t->operands[i] = test_view_new((ttpu_dtype)type.dtype, type.rank, type.dims, def ? LAYOUT_DENSE : LAYOUT_ANY);
    if (def) CHECK_OK(soft_reference_op(t->f, def, NULL, &t->operands[i].v));
    else fill_random(&t->operands[i].v, special);
  }
  return true;
}

__attribute__((unused)) static void test_end(test_op *t) {
  for (uint32_t i = 0; i < t->operand_count; ++i) free(t->operands[i].memory);
  base_arena_free(&t->arena);
}

/* ---- running and comparing -------------------------------------------------------------------------- */

enum { MOST_RESULTS = 20 };

__attribute__((unused)) static void make_results(const test_op *t, int layout, test_view *out) {
  for (uint32_t i = 0; i < t->op->result_count; ++i) {
    ir_type type = ir_type_of(t->f, t->op->first_result + i);
    out[i] = test_view_new((ttpu_dtype)type.dtype, type.rank, type.dims, layout);
  }
}
__attribute__((unused)) static void free_results(const test_op *t, test_view *views) {
  for (uint32_t i = 0; i < t->op->result_count; ++i) free(views[i].memory);
}

__attribute__((unused)) static void views_of(const test_view *from, uint32_t count, soft_view *to) {
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i].v;
}

__attribute__((unused)) static void check_views(const soft_view *a, const soft_view *b, double tolerance,
                                                const char *what) {
  int64_t n = base_numel(a->rank, a->dims);
  size_t bytes = base_dtype_bytes(a->dtype);
  bool real = base_dtype_is_float(a->dtype) || base_dtype_is_complex(a->dtype);
  for (int64_t i = 0; i < n; ++i) {
    const void *p = test_element(a, i), *q = test_element(b, i);
    if (memcmp(p, q, bytes) == 0) continue;
    base_scalar x = base_scalar_load(a->dtype, p), y = base_scalar_load(a->dtype, q);
    int parts = base_dtype_is_complex(a->dtype) ? 2 : 1;
    bool near = real; /* NaN may have any sign */
    for (int k = 0; near && k < parts; ++k)
      near = tolerance < 0 ? memcmp(&x.d[k], &y.d[k], sizeof x.d[k]) == 0 || (isnan(x.d[k]) && isnan(y.d[k]))
                           : check_near(x.d[k], y.d[k], tolerance * (1 + fabs(x.d[k])));
    if (near) continue;
    check_fail(__FILE__, __LINE__, "%s, %s, element %lld of %lld: %.9g %.9g is not %.9g %.9g (%lld, %lld)", what,
               base_dtypes[a->dtype].name, (long long)i, (long long)n, real ? x.d[0] : 0, real ? x.d[1] : 0,
               real ? y.d[0] : 0, real ? y.d[1] : 0, (long long)x.i, (long long)y.i);
    return;
  }
}

/* tolerance: relative to 1 + |value|; 0 allows only another NaN or zero, less than 0 only another NaN. */
__attribute__((unused)) static void compare(const test_op *t, double tolerance) {
  test_view want[MOST_RESULTS], got[3][MOST_RESULTS];
  soft_view x[20], y[MOST_RESULTS];
  const char *name = ir_ops[t->op->kind].name;
  uint32_t n = t->op->result_count;
  views_of(t->operands, t->operand_count, x);
  make_results(t, LAYOUT_DENSE, want);
  views_of(want, n, y);
  CHECK_OK(soft_reference_op(t->f, t->op, x, y));
  for (int run = 0; run < 3; ++run) {
    make_results(t, run == 2 ? LAYOUT_STRIDED : LAYOUT_DENSE, got[run]);
    views_of(got[run], n, y);
    base_pool_resize(run == 1 ? 4 : 1);
    CHECK_OK(soft_kernel_op(t->f, t->op, x, y));
  }
  for (uint32_t i = 0; i < n; ++i) {
    check_views(&want[i].v, &got[0][i].v, tolerance, name);
    check_views(&got[0][i].v, &got[1][i].v, -1, name);
    check_views(&got[0][i].v, &got[2][i].v, -1, name);
  }
  if (t->in_place) { /* operand 0 becomes result 0 */
    test_view copy = test_view_new(x[0].dtype, x[0].rank, x[0].dims, LAYOUT_STRIDED);
    for (int64_t i = 0; i < base_numel(x[0].rank, x[0].dims); ++i)
      memcpy(test_element(&copy.v, i), test_element(&x[0], i), base_dtype_bytes(x[0].dtype));
    x[0] = copy.v;
    CHECK_OK(soft_kernel_op(t->f, t->op, x, &copy.v));
    check_views(&got[0][0].v, &copy.v, -1, name);
    free(copy.memory);
  }
  free_results(t, want);
  for (int run = 0; run < 3; ++run) free_results(t, got[run]);
}

#endif
