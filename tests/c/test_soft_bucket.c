/* ir_bucket, through the scalar reference: whatever the padding of the parameters holds, the real part of each result is the
 * exact function's. Each program below is built for many sizes, with all that can be padded padded, and again as the second
 * program of its structure; the padding is NaN, or an integer's extremes. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "ir/bucket.h"
#include "soft/soft_int.h"
#include "soft_programs.h"

enum { MOST_PARAMS = 6, MOST_RESULTS = 8 };

/* A program for size n: appends to b and returns how many results it put into `results`. */
typedef struct program {
  const char *name;
  uint32_t (*build)(ir_builder *b, int64_t n, ir_value *results);
  double tolerance;  /* of sums over what is padded, relative; 0: equal to the bit */
  int texts;         /* how many the sizes 9 to 16 have, two buckets and more where there are n + 1 and its like */
  int64_t index_end; /* integer parameters are indices below it; 0: below n */
} program;

static uint64_t state = 88172645463325252ull;
static uint64_t bits(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state * 0x2545F4914F6CDD1Dull >> 8;
}

/* ---- values ------------------------------------------------------------------------------------ */

static void put_random(ttpu_dtype t, void *at, int64_t index_end) {
  base_scalar v = {0};
  if (base_dtype_is_float(t)) v.d[0] = (double)((int64_t)(bits() % 257) - 128) / 16;
  else if (t == TTPU_BOOL) v.i = (int64_t)(bits() & 1);
  else v.i = (int64_t)(bits() % (uint64_t)index_end);
  base_scalar_store(t, at, v);
}

static void put_worst(ttpu_dtype t, void *at) {
  base_scalar v = {0};
  if (base_dtype_is_float(t) || base_dtype_is_complex(t)) v.d[0] = v.d[1] = NAN;
  else if (t == TTPU_BOOL) v.i = 1;
  else v.i = (const int64_t[]){INT64_MAX, INT64_MIN, 0, 3}[bits() % 4]; /* indices outside, and others' */
  base_scalar_store(t, at, v);
}

/* Where element `flat` of the exact value lies in the padded one. */
static int64_t padded_place(const ir_layout *l, int64_t flat) {
  int64_t at = 0, stride = 1;
  for (uint32_t i = l->rank; i-- > 0;) {
    at += flat % l->sizes[i] * stride;
    flat /= l->sizes[i];
    stride *= l->padded_sizes[i];
  }
  return at;
}

static void *pad_value(const ir_layout *l, const void *exact) {
  ttpu_dtype t = (ttpu_dtype)l->exact.dtype;
  size_t bytes = base_dtype_bytes(t);
  char *padded = malloc((size_t)ir_numel(l->padded) * bytes + 1);
  for (int64_t i = 0; i < ir_numel(l->padded); ++i) put_worst(t, padded + (size_t)i * bytes);
  for (int64_t i = 0; i < ir_numel(l->exact); ++i)
    memcpy(padded + (size_t)padded_place(l, i) * bytes, (const char *)exact + (size_t)i * bytes, bytes);
  return padded;
}

/* NaNs of any kind are equal, and so are zeros of either sign. */
static bool is_near(ttpu_dtype t, const void *x, const void *y, double tolerance) {
  if (memcmp(x, y, base_dtype_bytes(t)) == 0) return true;
  base_scalar a = base_scalar_load(t, x), b = base_scalar_load(t, y);
  if (!base_dtype_is_float(t) && !base_dtype_is_complex(t)) return false;
  for (int k = 0; k < (base_dtype_is_complex(t) ? 2 : 1); ++k)
    if (!(isnan(a.d[k]) && isnan(b.d[k])) && !(a.d[k] == b.d[k]) &&
        !(fabs(a.d[k] - b.d[k]) <= tolerance * (1 + fabs(a.d[k]))))
      return false;
  return true;
}

/* ---- one program, one size ----------------------------------------------------------------------- */

typedef struct exact {
  base_arena arena;
  ir_func *f;
  void *params[MOST_PARAMS + 1], *results[MOST_RESULTS];
  uint32_t param_count, result_count;
} exact;

static bool exact_new(const program *p, int64_t n, exact *e) {
  ir_value results[MOST_RESULTS];
  memset(e, 0, sizeof *e);
  base_arena_init(&e->arena);
  ir_func *f = ir_func_new(&e->arena, "main");
  ir_builder b = ir_builder_on(f);
  e->result_count = p->build(&b, n, results);
  ir_return(&b, e->result_count, results);
  if (b.status) return check_fail(__FILE__, __LINE__, "%s of %lld: %s", p->name, (long long)n, b.message);
  CHECK_OK(ir_decompose(f, &e->arena, ir_bucket_keeps, &e->f));
  e->param_count = e->f->body.arg_count;
  for (uint32_t i = 0; i < e->param_count; ++i) {
    ir_type t = ir_type_of(e->f, e->f->body.first_arg + i);
    size_t bytes = base_dtype_bytes((ttpu_dtype)t.dtype);
    e->params[i] = malloc((size_t)ir_numel(t) * bytes + 1);
    for (int64_t k = 0; k < ir_numel(t); ++k)
      put_random((ttpu_dtype)t.dtype, (char *)e->params[i] + (size_t)k * bytes, p->index_end ? p->index_end : n);
  }
  for (uint32_t i = 0; i < e->result_count; ++i) {
    ir_type t = ir_type_of(e->f, e->f->body.ops[e->f->body.count - 1]->operands[i]);
    e->results[i] = malloc((size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype) + 1);
  }
  CHECK_OK(soft_reference_run(e->f, e->params, e->results));
  return true;
}

static void exact_free(exact *e) {
  for (uint32_t i = 0; i < e->param_count; ++i) free(e->params[i]);
  for (uint32_t i = 0; i < e->result_count; ++i) free(e->results[i]);
  base_arena_free(&e->arena);
}

static void compare(const program *p, int64_t n, const exact *e, const ir_bucketed *made, void *const *padded) {
  for (uint32_t i = 0; i < e->result_count; ++i) {
    const ir_layout *l = &made->results[i];
    ttpu_dtype t = (ttpu_dtype)l->exact.dtype;
    size_t bytes = base_dtype_bytes(t);
    for (int64_t k = 0; k < ir_numel(l->exact); ++k) {
      const char *want = (const char *)e->results[i] + (size_t)k * bytes;
      const char *got = (const char *)padded[i] + (size_t)padded_place(l, k) * bytes;
      if (is_near(t, want, got, p->tolerance)) continue;
      check_fail(__FILE__, __LINE__, "%s of %lld: result %u, element %lld is %g (%lld), should be %g (%lld)", p->name,
                 (long long)n, i, (long long)k, base_scalar_load(t, got).d[0], (long long)base_scalar_load(t, got).i,
                 base_scalar_load(t, want).d[0], (long long)base_scalar_load(t, want).i);
      return;
    }
  }
}

static void run_padded(const program *p, int64_t n, const exact *e, const ir_bucketed *made) {
  void *params[MOST_PARAMS + 1] = {0}, *results[MOST_RESULTS] = {0};
  for (uint32_t i = 0; i < e->param_count; ++i) params[i] = pad_value(&made->params[i], e->params[i]);
  if (made->number_count) {
    params[e->param_count] = malloc(made->number_count * sizeof(int64_t));
    memcpy(params[e->param_count], made->numbers, made->number_count * sizeof(int64_t));
  }
  for (uint32_t i = 0; i < e->result_count; ++i) {
    ir_type t = made->results[i].padded;
    results[i] = malloc((size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype) + 1);
  }
  CHECK_OK(ir_func_verify(made->func));
  if (CHECK_OK(soft_reference_run(made->func, params, results))) compare(p, n, e, made, results);
  for (uint32_t i = 0; i <= e->param_count; ++i) free(params[i]);
  for (uint32_t i = 0; i < e->result_count; ++i) free(results[i]);
}

/* The border's programs do what pad_value does, but for what is in the padding, and back. */
static void check_border(const ir_layout *l, void *value) {
  base_arena arena;
  base_arena_init(&arena);
  ir_func *enter, *leave;
  size_t bytes = base_dtype_bytes((ttpu_dtype)l->exact.dtype);
  void *padded = malloc((size_t)ir_numel(l->padded) * bytes + 1),
       *back = malloc((size_t)ir_numel(l->exact) * bytes + 1);
  CHECK_OK(ir_layout_enter(l, &arena, &enter));
  CHECK_OK(ir_layout_leave(l, &arena, &leave));
  CHECK_OK(soft_reference_run(enter, &value, &padded));
  for (int64_t i = 0; i < ir_numel(l->exact); ++i)
    CHECK(memcmp((char *)padded + (size_t)padded_place(l, i) * bytes, (char *)value + (size_t)i * bytes, bytes) == 0);
  CHECK_OK(soft_reference_run(leave, &padded, &back));
  CHECK(memcmp(back, value, (size_t)ir_numel(l->exact) * bytes) == 0);
  free(padded);
  free(back);
  base_arena_free(&arena);
}

static base_hash128 check_bucketed(const program *p, int64_t n, exact *e, const ir_bucket_options *options) {
  base_arena arena;
  base_arena_init(&arena);
  ir_bucketed made;
  base_hash128 hash = {0, 0};
  if (CHECK_OK(ir_bucket(e->f, &arena, options, &made)) && made.func) {
    run_padded(p, n, e, &made);
    for (uint32_t i = 0; i < e->param_count; ++i) check_border(&made.params[i], e->params[i]);
    hash = ir_func_hash(made.func);
  } else {
    check_fail(__FILE__, __LINE__, "%s of %lld is not padded", p->name, (long long)n);
  }
  base_arena_free(&arena);
  return hash;
}

static int count_texts(const base_hash128 *hashes, int64_t low, int64_t high) {
  int count = 0;
  for (int64_t n = low; n <= high; ++n) {
    bool met = false;
    for (int64_t k = low; k < n; ++k) met |= hashes[k].a == hashes[n].a;
    count += !met;
  }
  return count;
}

static void check_program(const program *p) {
  exact first;
  enum { FIRST = 5, LAST = 17 };
  if (!exact_new(p, FIRST, &first)) return;
  uint32_t count;
  const int64_t *numbers;
  CHECK_OK(ir_func_numbers(first.f, &first.arena, &count, &numbers));
  bool *varies = base_arena_zalloc(&first.arena, count + 1);
  base_hash128 hashes[LAST + 1] = {0};
  for (int round = 0; round < 2; ++round) { /* in the second one all that varies has been seen to */
    for (int64_t n = FIRST + 1; n <= LAST; ++n) {
      exact e;
      if (!exact_new(p, n, &e)) return;
      uint32_t own_count;
      const int64_t *own;
      CHECK_OK(ir_func_numbers(e.f, &e.arena, &own_count, &own));
      check_bucketed(p, n, &e, &(ir_bucket_options){NULL, NULL, true});
      base_hash128 a = ir_func_structure(first.f), b = ir_func_structure(e.f);
      if (p->texts && CHECK(a.a == b.a && a.b == b.b && own_count == count)) {
        for (uint32_t i = 0; i < count; ++i) varies[i] |= numbers[i] != own[i];
        hashes[n] = check_bucketed(p, n, &e, &(ir_bucket_options){numbers, varies, false});
      }
      exact_free(&e);
    }
  }
  if (p->texts && count_texts(hashes, 9, 16) != p->texts)
    check_fail(__FILE__, __LINE__, "%s has %d texts, should have %d", p->name, count_texts(hashes, 9, 16), p->texts);
  exact_free(&first);
}

/* ---- programs -------------------------------------------------------------------------------------- */

static ir_value param(ir_builder *b, ttpu_dtype t, uint32_t rank, const int64_t *dims) {
  return ir_param(b, ir_tensor(b, t, rank, dims));
}
#define DIMS(...) \
  (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

static uint32_t elementwise(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(3, n)), y = param(b, TTPU_F32, DIMS(n));
  results[0] = ir_tanh(b, ir_add(b, x, ir_broadcast_to(b, y, DIMS(3, n))));
  results[1] = ir_select(b, ir_compare(b, IR_LT, x, ir_like_f64(b, x, 0.25)), x, results[0]);
  return 2;
}

static uint32_t softmax(ir_builder *b, int64_t n, ir_value *results) {
  static const int64_t last = 2, map[2] = {0, 1};
  ir_value x = param(b, TTPU_F32, DIMS(2, n, n));
  ir_value top = ir_broadcast_in_dim(b, ir_reduce(b, IR_MAXIMUM, x, 1, &last), DIMS(2, n, n), map);
  ir_value e = ir_exponential(b, ir_subtract(b, x, top));
  ir_value sum = ir_broadcast_in_dim(b, ir_reduce(b, IR_ADD, e, 1, &last), DIMS(2, n, n), map);
  results[0] = ir_divide(b, e, sum);
  return 1;
}

static uint32_t attention(ir_builder *b, int64_t n, ir_value *results) {
  ir_value q = param(b, TTPU_F32, DIMS(2, 4, n, 8)), k = param(b, TTPU_F32, DIMS(2, 2, n, 8)),
           v = param(b, TTPU_F32, DIMS(2, 2, n, 8));
  const ir_value operands[4] = {q, k, v, ir_scalar_f64(b, TTPU_F32, 0.25)};
  const ir_attention_attrs attrs = {true};
  results[0] = ir_append(b, IR_ATTENTION, 4, operands, &attrs, 0, NULL, 0, NULL);
  results[1] = results[0] + 1;
  return b->status ? 1 : 2;
}

/* A flat batch of sequences, as linear layers see it: [2 * n, 3]. */
static uint32_t flat_batch(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(2, n, 3)), w = param(b, TTPU_F32, DIMS(3, 4)),
           y = param(b, TTPU_F32, DIMS(2 * n, 4));
  ir_value flat = ir_matmul(b, ir_reshape(b, x, DIMS(2 * n, 3)), w, IR_PRECISION_HIGHEST, TTPU_F32);
  flat = ir_add(b, flat, y);
  static const int64_t all[2] = {0, 1}, rows = 0;
  results[0] = ir_reshape(b, flat, DIMS(2, n, 4));
  results[1] = ir_divide(b, ir_reduce(b, IR_ADD, flat, 2, all), ir_scalar_f64(b, TTPU_F32, (double)(8 * n)));
  results[2] = ir_reduce(b, IR_MAXIMUM, flat, 1, &rows);
  results[3] = ir_iota(b, TTPU_I64, DIMS(2 * n), 0);
  results[3] = ir_reshape(b, results[3], DIMS(2, n));
  return 4;
}

static uint32_t products(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 3, n)), y = param(b, TTPU_F32, DIMS(n, n, 2));
  ir_value k = param(b, TTPU_I64, DIMS(n, n));
  results[0] = ir_matmul(b, x, y, IR_PRECISION_HIGHEST, TTPU_F32);
  static const int64_t zero = 0, one = 1;
  const ir_dot_general_attrs a = {{NULL, 0}, {NULL, 0}, {&one, 1}, {&zero, 1}, IR_PRECISION_HIGHEST};
  results[1] = ir_dot_general(b, k, k, &a, TTPU_I64);
  return 2;
}

static uint32_t reductions(ir_builder *b, int64_t n, ir_value *results) {
  static const int64_t first = 0;
  ir_value x = param(b, TTPU_F32, DIMS(n, 3)), k = param(b, TTPU_I64, DIMS(n, 3));
  results[0] = ir_reduce_arg(b, true, x, 0, NULL);
  results[1] = ir_reduce(b, IR_MINIMUM, k, 1, &first);
  results[2] = ir_reduce(b, IR_AND, ir_compare(b, IR_LT, k, ir_fill_i64(b, TTPU_I64, DIMS(n, 3), n)), 1, &first);
  results[3] = ir_reduce(b, IR_MULTIPLY, x, 1, &first);
  return 4;
}

static uint32_t slices(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 6)), table = param(b, TTPU_F32, DIMS(40, 6));
  results[0] = ir_slice_dim(b, x, 0, 0, n - 1, 1);               /* all but the last */
  results[1] = ir_slice_dim(b, x, 0, n - 1, n, 1);               /* the last */
  results[2] = ir_add(b, x, ir_slice_dim(b, table, 0, 0, n, 1)); /* positions */
  results[3] = ir_slice_dim(b, ir_slice_dim(b, x, 1, 1, 6, 2), 0, 1, n, 1);
  return 4;
}

static uint32_t strided(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(2, n, 24)); /* queries, keys and values of two heads of four */
  ir_value part = param(b, TTPU_F32, DIMS(2, 2, n, 4));
  const int64_t strides[4] = {24 * n, 4, 24, 1}, columns[3] = {24 * n, 1, 24};
  results[0] = ir_as_strided(b, x, DIMS(2, 2, n, 4), strides, 8);
  results[1] = ir_as_strided(b, x, DIMS(2, 24, n), columns, 0);
  results[2] = ir_as_strided_update(b, x, part, strides, 16);
  return 3;
}

static uint32_t concatenations(ir_builder *b, int64_t n, ir_value *results) {
  ir_value past = param(b, TTPU_F32, DIMS(2, n, 3)), new = param(b, TTPU_F32, DIMS(2, 1, 3)),
           more = param(b, TTPU_F32, DIMS(2, n, 3));
  results[0] = ir_concatenate(b, 2, (ir_value[]){past, new}, 1);
  results[1] = ir_concatenate(b, 4, (ir_value[]){new, past, new, more}, 1);
  results[2] = ir_concatenate(b, 2, (ir_value[]){past, more}, 2);
  return 3;
}

static uint32_t paddings(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 3)), fill = ir_scalar_f64(b, TTPU_F32, 7);
  results[0] = ir_pad(b, x, fill, (int64_t[]){0, 1}, (int64_t[]){2, 0}, NULL);
  results[1] = ir_pad(b, x, fill, (int64_t[]){3, 0}, (int64_t[]){1, 0}, NULL);
  results[2] = ir_pad(b, ir_slice_dim(b, x, 0, n - 2, n, 1), fill, (int64_t[]){n - 2, 0}, (int64_t[]){0, 0}, NULL);
  results[3] = ir_pad(b, x, fill, (int64_t[]){0, 0}, (int64_t[]){-1, 0}, NULL);
  return 4;
}

static uint32_t reversals(ir_builder *b, int64_t n, ir_value *results) {
  static const int64_t both[2] = {0, 1};
  results[0] = ir_reverse(b, param(b, TTPU_F32, DIMS(n, 4)), 2, both);
  return 1;
}

static uint32_t moving_slices(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 4)), at = param(b, TTPU_I64, 0, NULL);
  ir_value most = param(b, TTPU_F32, DIMS(n - 2, 4)), few = param(b, TTPU_F32, DIMS(2, 4));
  ir_value zero = ir_scalar_i64(b, TTPU_I64, 0);
  ir_value big = ir_multiply(b, at, ir_scalar_i64(b, TTPU_I64, 3)); /* often beyond the end: clamped */
  results[0] = ir_dynamic_slice(b, x, (ir_value[]){big, zero}, (int64_t[]){2, 4});
  results[1] = ir_dynamic_slice(b, x, (ir_value[]){at, zero}, (int64_t[]){n - 3, 4});
  results[2] = ir_dynamic_update_slice(b, x, most, (ir_value[]){big, zero});
  results[3] = ir_dynamic_update_slice(b, x, few, (ir_value[]){big, zero});
  return 4;
}

static uint32_t gathers(ir_builder *b, int64_t n, ir_value *results) {
  ir_value table = param(b, TTPU_F32, DIMS(50, n)), ids = param(b, TTPU_I64, DIMS(2, n)),
           x = param(b, TTPU_F32, DIMS(n, 3));
  results[0] = ir_take(b, table, ids, 0);
  results[1] = ir_take(b, x, ids, 0); /* indices beyond the end are clamped to it */
  results[2] = ir_take_along(b, x, ir_reshape(b, ir_slice_dim(b, ids, 0, 0, 1, 1), DIMS(n, 1)), 1);
  results[3] = ir_check_index(b, ids, 0, 50, IR_BAD_INDEX, "ids");
  return 4;
}

static uint32_t scatters(ir_builder *b, int64_t n, ir_value *results) {
  ir_value table = param(b, TTPU_F32, DIMS(50, n)), square = param(b, TTPU_F32, DIMS(n, n));
  ir_value ids = param(b, TTPU_I64, DIMS(n)), g = param(b, TTPU_F32, DIMS(n, n));
  static const int64_t zero = 0, one = 1;
  const ir_scatter_attrs rows = {.update_window_dims = {&one, 1},
                                 .inserted_window_dims = {&zero, 1},
                                 .scatter_dims_to_operand_dims = {&zero, 1},
                                 .index_vector_dim = 1};
  results[0] = ir_scatter(b, table, ids, g, &rows, IR_ADD);
  results[1] = ir_scatter(b, square, ids, g, &rows, IR_NO_OP); /* outside: left out */
  return 2;
}

static uint32_t orders(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 3));
  ir_value first = ir_sort(b, 2, (ir_value[]){x, ir_iota(b, TTPU_I64, DIMS(n, 3), 0)}, 0, true);
  const ir_scan_attrs forward = {0, false, IR_CUMSUM}, backward = {0, true, IR_CUMSUM};
  results[0] = first;
  results[1] = first + 1;
  results[2] = ir_append(b, IR_SCAN, 1, &x, &forward, 0, NULL, 0, NULL);
  results[3] = ir_append(b, IR_SCAN, 1, &x, &backward, 0, NULL, 0, NULL);
  return 4;
}

/* An element's bits depend on its place in the exact result. */
static uint32_t random_bits(ir_builder *b, int64_t n, ir_value *results) {
  ir_value seed = param(b, TTPU_U64, DIMS(1, 2)), x = param(b, TTPU_F32, DIMS(3, n, 5));
  ir_value state = ir_reshape(b, seed, DIMS(2));
  ir_value bits = ir_philox(b, state, TTPU_U32, DIMS(3, n, 5));
  results[0] = ir_select(b, ir_compare(b, IR_LT, bits, ir_fill_i64(b, TTPU_U32, DIMS(3, n, 5), 1 << 30)), x,
                         ir_zeros_like(b, x));
  results[1] = ir_philox(b, state, TTPU_U64, DIMS(n));
  results[2] = ir_philox(b, state, TTPU_U32, DIMS(0, n));
  return 3;
}

/* Windows have no rule: their dimensions keep their sizes, the batch is padded. */
static uint32_t pooling(ir_builder *b, int64_t n, ir_value *results) {
  ir_value x = param(b, TTPU_F32, DIMS(n, 2, 6));
  const ir_window_attrs a = {.window_dimensions = {(int64_t[]){1, 1, 2}, 3},
                             .window_strides = {(int64_t[]){1, 1, 2}, 3}};
  results[0] = ir_reduce_window(b, IR_MAXIMUM, x, &a);
  return 1;
}

static const program programs[] = {
    {"elementwise", elementwise, 0, 2, 0},
    {"softmax", softmax, 1e-6, 2, 0},
    {"attention", attention, 1e-5, 2, 0},
    {"flat batch", flat_batch, 1e-5, 2, 0},
    {"products", products, 1e-5, 2, 0},
    {"reductions", reductions, 1e-5, 2, 0},
    {"slices", slices, 0, 4, 0},
    {"strided", strided, 0, 2, 0},
    {"concatenations", concatenations, 0, 4, 0},
    {"paddings", paddings, 0, 6, 0},
    {"reversals", reversals, 0, 2, 0},
    {"moving slices", moving_slices, 0, 7, 0},
    {"gathers", gathers, 0, 2, 50},
    {"scatters", scatters, 1e-5, 2, 50},
    {"orders", orders, 1e-5, 2, 0},
    {"random bits", random_bits, 0, 2, 1000},
    {"pooling", pooling, 0, 2, 0},
};

TEST(padding_is_harmless) {
  for (size_t i = 0; i < sizeof programs / sizeof *programs; ++i) check_program(&programs[i]);
}

TEST(buckets) {
  static const int64_t sizes[] = {1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16};
  for (int64_t n = 1; n <= 13; ++n) CHECK(ir_bucket_size(n) == sizes[n - 1]);
  CHECK(ir_bucket_size(1000) == 1024 && ir_bucket_size(1025) == 1536);
}

/* A random program, its sizes above 1 longer by as much, with what it gives. */
static bool random_new(uint64_t seed, int64_t longer, exact *e) {
  memset(e, 0, sizeof *e);
  base_arena_init(&e->arena);
  fuzz z = {.seed = seed, .arena = &e->arena, .f = ir_func_new(&e->arena, "main"), .longer = longer};
  z.b = ir_builder_on(z.f);
  build(&z, 4 + (uint32_t)(seed % 40));
  if (!CHECK(z.b.status == TTPU_OK) || !CHECK_OK(ir_decompose(z.f, &e->arena, ir_bucket_keeps, &e->f))) return false;
  const ir_op *ret = e->f->body.ops[e->f->body.count - 1];
  e->param_count = e->f->body.arg_count;
  e->result_count = ret->operand_count;
  for (uint32_t i = 0; i < e->param_count; ++i) {
    ir_type t = ir_type_of(e->f, e->f->body.first_arg + i);
    e->params[i] = malloc(bytes_of(t) + 1);
    fill(&z.seed, t, e->params[i]);
  }
  for (uint32_t i = 0; i < e->result_count; ++i)
    e->results[i] = malloc(bytes_of(ir_type_of(e->f, ret->operands[i])) + 1);
  return CHECK_OK(soft_reference_run(e->f, e->params, e->results));
}

static bool check_random_program(uint64_t seed, exact *e, const ir_bucket_options *options) {
  static const program p = {.name = "random program"};
  ir_bucketed made;
  if (!CHECK_OK(ir_bucket(e->f, &e->arena, options, &made)) || !made.func) return false;
  run_padded(&p, (int64_t)seed, e, &made);
  return true;
}

/* Random programs' numbers are small and whole, so that all is equal to the bit: with all sizes padded, and as the second
 * program of a structure with what differs padded. */
TEST(random_programs) {
  uint32_t all = 0, pairs = 0;
  enum { COUNT = 1000 };
  for (uint64_t seed = 1; seed <= COUNT && check_failures < 10; ++seed) {
    exact first, second;
    uint32_t counts[2];
    const int64_t *numbers[2];
    bool ran = random_new(seed, 0, &first) && random_new(seed, 3, &second);
    REQUIRE(ran);
    all += check_random_program(seed, &second, &(ir_bucket_options){NULL, NULL, true});
    base_hash128 a = ir_func_structure(first.f), b = ir_func_structure(second.f);
    CHECK_OK(ir_func_numbers(first.f, &first.arena, &counts[0], &numbers[0]));
    CHECK_OK(ir_func_numbers(second.f, &second.arena, &counts[1], &numbers[1]));
    if (a.a == b.a && a.b == b.b && counts[0] == counts[1])
      pairs += check_random_program(seed, &second, &(ir_bucket_options){numbers[0], NULL, false});
    exact_free(&first);
    exact_free(&second);
  }
  CHECK(all > COUNT * 9 / 10);
  CHECK(pairs > COUNT / 2);
}

/* Memory that is out at any place is a status, and the next try succeeds. */
TEST(memory_may_run_out) {
  for (size_t i = 0; i < sizeof programs / sizeof *programs; ++i) {
    exact e;
    if (!exact_new(&programs[i], 7, &e)) return;
    ttpu_status status = TTPU_RESOURCE_EXHAUSTED;
    for (uint64_t nth = 1; status != TTPU_OK; ++nth) {
      base_arena arena;
      ir_bucketed made;
      base_arena_init(&arena);
      base_alloc_fail_after(nth);
      status = ir_bucket(e.f, &arena, &(ir_bucket_options){NULL, NULL, true}, &made);
      base_alloc_fail_after(0);
      if (status != TTPU_OK) CHECK_EQ(status, TTPU_RESOURCE_EXHAUSTED);
      else CHECK(made.func != NULL && ir_func_verify(made.func) == TTPU_OK);
      base_arena_free(&arena);
    }
    exact_free(&e);
  }
}

/* A factorisation has no rule: what varies would stay in the text, so the function is left alone. */
TEST(what_has_no_rule_is_left_alone) {
  base_arena arena;
  base_arena_init(&arena);
  const int64_t *numbers[2];
  uint32_t count;
  ir_func *f[2];
  for (int k = 0; k < 2; ++k) {
    const int64_t dims[2] = {6 + k, 6 + k};
    f[k] = ir_func_new(&arena, "main");
    ir_builder b = ir_builder_on(f[k]);
    const ir_cholesky_attrs lower = {true};
    ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 2, dims));
    ir_value y = ir_append(&b, IR_CHOLESKY, 1, &x, &lower, 0, NULL, 0, NULL);
    ir_return(&b, 1, &y);
    CHECK_OK(ir_func_numbers(f[k], &arena, &count, &numbers[k]));
  }
  ir_bucketed made;
  CHECK_OK(ir_bucket(f[1], &arena, &(ir_bucket_options){numbers[0], NULL, false}, &made));
  CHECK(made.func == NULL);
  CHECK_OK(ir_bucket(f[1], &arena, &(ir_bucket_options){NULL, NULL, true}, &made));
  CHECK(made.func == NULL);
  base_arena_free(&arena);
}
