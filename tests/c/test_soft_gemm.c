/* Matrix products against a plain loop in double (or in integers), on every instruction set that the machine has (ctest runs it
 * under each TTPU_CPU). Data are small whole numbers, so that float sums are exact and results are compared bit by bit;
 * rounding has a test of its own. */
#include "check.h"

#include "soft/kern/gemm.h"

/* ---- tensors with any strides ---------------------------------------------------------------- */

typedef struct matrix {
  ttpu_dtype dtype;
  char *memory, *data; /* data: element [0,0,0] */
  int64_t batch_stride, row, col;
  int64_t elements;
} matrix;

static int64_t pick(uint64_t *seed, int64_t low, int64_t high) {
  return low + (int64_t)(check_random(seed) % (uint64_t)(high - low + 1));
}

enum { ROW_MAJOR, COL_MAJOR, PADDED, GAPS, NEGATIVE, ZERO_ROW, ZERO_COL, LAYOUTS };

static matrix matrix_new(uint64_t *seed, ttpu_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int layout) {
  matrix m = {.dtype = dtype};
  switch (layout) {
    case ROW_MAJOR:
      m.row = cols;
      m.col = 1;
      break;
    case COL_MAJOR:
      m.row = 1;
      m.col = rows;
      break;
    case PADDED:
      m.row = cols + 3;
      m.col = 1;
      break;
    case GAPS:
      m.row = cols * 2 + 1;
      m.col = 2;
      break;
    case NEGATIVE:
      m.row = -cols;
      m.col = pick(seed, 0, 1) ? -1 : 1;
      break;
    case ZERO_ROW:
      m.row = 0;
      m.col = 1;
      break;
    default:
      m.row = 1;
      m.col = 0;
      break;
  }
  int64_t span = llabs(m.row) * (rows - 1) + llabs(m.col) * (cols - 1) + 1;
  if (rows == 0 || cols == 0) span = 1;
  m.batch_stride = batch > 1 && layout >= ZERO_ROW ? 0 : span;
  m.elements = span * batch;
  int64_t offset = (m.row < 0 ? -m.row * (rows - 1) : 0) + (m.col < 0 ? -m.col * (cols - 1) : 0);
  if (offset < 0) offset = 0;
  const int64_t bytes = (int64_t)base_dtype_bytes(dtype);
  m.memory = malloc((size_t)(m.elements * bytes));
  m.data = m.memory + offset * bytes;
  for (int64_t i = 0; i < m.elements; ++i) {
    base_scalar v = {.d = {(double)pick(seed, -3, 3), (double)pick(seed, -3, 3)}};
    if (base_dtype_is_integer(dtype)) v.i = pick(seed, -100, 100);
    base_scalar_store(dtype, m.memory + i * bytes, v);
  }
  return m;
}

static char *element(const matrix *m, int64_t b, int64_t i, int64_t j) {
  return m->data + (b * m->batch_stride + i * m->row + j * m->col) * (int64_t)base_dtype_bytes(m->dtype);
}

/* ---- reference ------------------------------------------------------------------------------- */

static base_scalar multiply_add(ttpu_dtype acc, base_scalar sum, base_scalar x, base_scalar y) {
  if (base_dtype_is_integer(acc)) {
    sum.u += x.u * y.u;
  } else if (base_dtype_is_complex(acc)) {
    double re = x.d[0] * y.d[0] - x.d[1] * y.d[1], im = x.d[0] * y.d[1] + x.d[1] * y.d[0];
    sum.d[0] += re;
    sum.d[1] += im;
  } else {
    sum.d[0] += x.d[0] * y.d[0];
  }
  return sum;
}

static base_scalar reference(const kern_gemm *g, const matrix *a, const matrix *b, const matrix *old, int64_t batch,
                             int64_t i, int64_t j) {
  const ttpu_dtype in = g->a_dtype;
  base_scalar sum = {.d = {0, 0}};
  for (int64_t p = 0; p < g->k; ++p)
    sum = multiply_add(in, sum, base_scalar_load(in, element(a, batch, i, p)),
                       base_scalar_load(b->dtype, element(b, batch, p, j)));
  base_scalar beta = {.d = {g->beta, 0}};
  if (base_dtype_is_integer(in)) beta.i = (int64_t)g->beta;
  if (g->beta != 0) sum = multiply_add(in, sum, beta, base_scalar_load(g->out, element(old, batch, i, j)));
  if (g->bias) {
    base_scalar one = {.d = {1, 0}};
    if (base_dtype_is_integer(in)) one.i = 1;
    sum = multiply_add(
        in, sum, one,
        base_scalar_load(g->bias_dtype, (const char *)g->bias + j * (int64_t)base_dtype_bytes(g->bias_dtype)));
  }
  if (g->epilogue) {
    if (base_dtype_is_integer(in)) sum.i = sum.i * 2 + batch + 3 * i + j;
    else sum.d[0] = sum.d[0] * 2 + (double)(batch + 3 * i + j);
  }
  return sum;
}

#define EPILOGUE(T)                                           \
  for (int64_t i = 0; i < rows; ++i)                          \
    for (int64_t j = 0; j < cols; ++j) {                      \
      T *at = (T *)tile + i * stride + j;                     \
      *at = *at * 2 + (T)(batch + 3 * (row0 + i) + col0 + j); \
    }
static void twice_plus_index(void *ctx, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                             void *tile, int64_t stride) {
  switch (*(ttpu_dtype *)ctx) {
    case TTPU_F32: EPILOGUE(float) break;
    case TTPU_F64: EPILOGUE(double) break;
    case TTPU_U32: EPILOGUE(uint32_t) break;
    default: EPILOGUE(uint64_t) break;
  }
}

/* Every element of `out` as the reference has it, rounded once. */
static bool same(const kern_gemm *g, const matrix *a, const matrix *b, const matrix *old, const matrix *c) {
  for (int64_t batch = 0; batch < g->batch; ++batch)
    for (int64_t i = 0; i < g->m; ++i)
      for (int64_t j = 0; j < g->n; ++j) {
        base_scalar want = reference(g, a, b, old, batch, i, j);
        char bytes[16] = {0};
        base_scalar_store(g->out, bytes, base_scalar_convert(g->a_dtype, g->out, want));
        base_scalar x = base_scalar_load(g->out, bytes), y = base_scalar_load(g->out, element(c, batch, i, j));
        bool ok = base_dtype_is_integer(g->out) ? x.i == y.i
                                                : check_near(x.d[0], y.d[0], 0) &&
                                                      (!base_dtype_is_complex(g->out) || check_near(x.d[1], y.d[1], 0));
        if (!ok)
          return check_fail(
              __FILE__, __LINE__,
              "%s x %s -> %s, batch %d, %dx%dx%d, a (%d,%d) b (%d,%d) c (%d,%d) beta %g bias %d epilogue %d "
              "packed %d: [%d,%d,%d] is %g (%lld), not %g (%lld)",
              base_dtypes[g->a_dtype].name, base_dtypes[b->dtype].name, base_dtypes[g->out].name, (int)g->batch,
              (int)g->m, (int)g->n, (int)g->k, (int)g->a_row, (int)g->a_col, (int)g->b_row, (int)g->b_col,
              (int)g->c_row, (int)g->c_col, g->beta, g->bias != NULL, g->epilogue != NULL, g->b_packed != NULL,
              (int)batch, (int)i, (int)j, y.d[0], (long long)y.i, x.d[0], (long long)x.i);
      }
  return true;
}

typedef struct shape {
  int64_t batch, m, n, k;
} shape;

/* One product with layouts, beta, bias, epilogue, packing and workspace chosen by the seed. */
static bool run_case(uint64_t *seed, ttpu_dtype a_dtype, ttpu_dtype b_dtype, ttpu_dtype out, shape s) {
  matrix a = matrix_new(seed, a_dtype, s.batch, s.m, s.k, (int)pick(seed, 0, LAYOUTS - 1));
  matrix b = matrix_new(seed, b_dtype, s.batch, s.k, s.n, (int)pick(seed, 0, LAYOUTS - 1));
  uint64_t same_seed = *seed;
  int c_layout = (int)pick(seed, 0, NEGATIVE);
  uint64_t one = same_seed, two = same_seed;
  matrix c = matrix_new(&one, out, s.batch, s.m, s.n, c_layout),
         old = matrix_new(&two, out, s.batch, s.m, s.n, c_layout);
  matrix bias = matrix_new(seed, pick(seed, 0, 1) ? out : a_dtype, 1, 1, s.n, ROW_MAJOR);
  ttpu_dtype acc = kern_gemm_accumulator(a_dtype, out);
  kern_gemm g = {.a_dtype = a_dtype,
                 .b_dtype = b_dtype,
                 .out = out,
                 .precision = (int)pick(seed, 0, 2),
                 .m = s.m,
                 .n = s.n,
                 .k = s.k,
                 .batch = s.batch,
                 .a = a.data,
                 .a_row = a.row,
                 .a_col = a.col,
                 .a_batch = a.batch_stride,
                 .b = b.data,
                 .b_row = b.row,
                 .b_col = b.col,
                 .b_batch = b.batch_stride,
                 .c = c.data,
                 .c_row = c.row,
                 .c_col = c.col,
                 .c_batch = c.batch_stride,
                 .beta = pick(seed, 0, 3) ? 0 : (double)pick(seed, 1, 2)};
  if (pick(seed, 0, 2) == 0) {
    g.bias = bias.data;
    g.bias_dtype = bias.dtype;
  }
  if (pick(seed, 0, 3) == 0 && !base_dtype_is_complex(acc)) {
    g.epilogue = twice_plus_index;
    g.epilogue_ctx = &acc;
  }
  void *packed = NULL, *workspace = NULL;
  if (pick(seed, 0, 3) == 0 && b.batch_stride * (s.batch - 1) == 0) {
    packed = base_alloc_aligned(64, kern_gemm_packed_b_bytes(&g) + 64);
    CHECK_OK(kern_gemm_pack_b(&g, packed));
    g.b_packed = packed;
    g.b = NULL;
  }
  size_t bytes = kern_gemm_workspace(&g);
  if (bytes && pick(seed, 0, 1)) g.workspace = workspace = base_alloc_aligned(64, bytes);
  bool ok = CHECK_OK(kern_gemm_run(&g)) && same(&g, &a, &b, &old, &c);
  base_free(packed);
  base_free(workspace);
  free(a.memory);
  free(b.memory);
  free(c.memory);
  free(old.memory);
  free(bias.memory);
  return ok;
}

static const struct {
  ttpu_dtype in, out;
} pairs[] = {
    {TTPU_F32, TTPU_F32},    {TTPU_F32, TTPU_BF16},      {TTPU_BF16, TTPU_BF16}, {TTPU_BF16, TTPU_F32},
    {TTPU_F16, TTPU_F16},    {TTPU_F16, TTPU_F32},       {TTPU_F64, TTPU_F64},   {TTPU_I8, TTPU_I32},
    {TTPU_U8, TTPU_I32},     {TTPU_I8, TTPU_I8},         {TTPU_I16, TTPU_I16},   {TTPU_I16, TTPU_I32},
    {TTPU_U16, TTPU_U32},    {TTPU_I32, TTPU_I32},       {TTPU_U32, TTPU_U32},   {TTPU_I64, TTPU_I64},
    {TTPU_U64, TTPU_U64},    {TTPU_I32, TTPU_I64},       {TTPU_C64, TTPU_C64},   {TTPU_C128, TTPU_C128},
    {TTPU_F8E5M2, TTPU_F32}, {TTPU_F8E4M3FN, TTPU_BF16},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

TEST(odd_sizes_of_every_dtype) {
  uint64_t seed = 1;
  static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 9, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 64, 65, 70};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  for (int i = 0; i < 60 * PAIRS; ++i) {
    shape s = {pick(&seed, 1, 3), sizes[pick(&seed, 0, SIZES - 1)], sizes[pick(&seed, 0, SIZES - 1)],
               sizes[pick(&seed, 0, SIZES - 1)]};
    run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].in, pairs[i % PAIRS].out, s);
  }
}

TEST(larger_than_a_block) {
  uint64_t seed = 2;
  for (int i = 0; i < PAIRS; ++i) {
    shape s = {1, pick(&seed, 90, 260), pick(&seed, 90, 200), pick(&seed, 130, 700)};
    run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].in, pairs[i % PAIRS].out, s);
  }
}

TEST(skinny) {
  uint64_t seed = 3;
  for (int i = 0; i < 6 * PAIRS; ++i) {
    shape s = {pick(&seed, 1, 2), pick(&seed, 1, 17), pick(&seed, 16, 600), pick(&seed, 16, 300)};
    if (pick(&seed, 0, 1)) {
      int64_t m = s.m;
      s.m = s.n;
      s.n = m;
    }
    run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].in, pairs[i % PAIRS].out, s);
  }
}

TEST(mixed_inputs) {
  uint64_t seed = 4;
  for (int i = 0; i < 40; ++i) {
    shape s = {1, pick(&seed, 1, 70), pick(&seed, 1, 70), pick(&seed, 0, 200)};
    run_case(&seed, TTPU_F32, TTPU_BF16, TTPU_F32, s);
    run_case(&seed, TTPU_BF16, TTPU_F32, TTPU_F32, s);
    run_case(&seed, TTPU_U8, TTPU_I8, TTPU_I32, s);
    run_case(&seed, TTPU_I64, TTPU_I32, TTPU_I32, s);
  }
}

/* Error against double, relative to the sum of the absolute products. */
static double worst_error(ttpu_dtype t, int64_t m, int64_t n, int64_t k, int precision) {
  uint64_t seed = 5;
  const int64_t bytes = (int64_t)base_dtype_bytes(t);
  char *a = malloc((size_t)(m * k * bytes)), *b = malloc((size_t)(k * n * bytes));
  ttpu_dtype out = t == TTPU_F64 ? TTPU_F64 : TTPU_F32;
  char *c = malloc((size_t)(m * n * 8));
  for (int64_t i = 0; i < m * k; ++i)
    base_scalar_store(t, a + i * bytes, (base_scalar){.d = {check_uniform(&seed) - 0.5, 0}});
  for (int64_t i = 0; i < n * k; ++i)
    base_scalar_store(t, b + i * bytes, (base_scalar){.d = {check_uniform(&seed) - 0.5, 0}});
  kern_gemm g = {.a_dtype = t,
                 .out = out,
                 .precision = precision,
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = 1,
                 .a = a,
                 .a_row = k,
                 .a_col = 1,
                 .b = b,
                 .b_row = 1,
                 .b_col = k,
                 .c = c,
                 .c_row = n,
                 .c_col = 1};
  CHECK_OK(kern_gemm_run(&g));
  double worst = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; ++p) {
        double x =
            base_scalar_load(t, a + (i * k + p) * bytes).d[0] * base_scalar_load(t, b + (j * k + p) * bytes).d[0];
        sum += x;
        size += fabs(x);
      }
      double got = out == TTPU_F64 ? ((double *)c)[i * n + j] : (double)((float *)c)[i * n + j];
      worst = fmax(worst, fabs(got - sum) / size);
    }
  free(a);
  free(b);
  free(c);
  return worst;
}

TEST(rounding) {
  static const shape shapes[] = {{1, 33, 40, 100}, {1, 1, 64, 1000}, {1, 130, 140, 900}, {1, 5, 64, 777}};
  for (int i = 0; i < 4; ++i) {
    const shape *s = &shapes[i];
    CHECK_NEAR(worst_error(TTPU_F32, s->m, s->n, s->k, KERN_PRECISION_HIGHEST), 0, 1e-6);
    CHECK_NEAR(worst_error(TTPU_F32, s->m, s->n, s->k, KERN_PRECISION_HIGH), 0, 1e-5);
    CHECK_NEAR(worst_error(TTPU_F32, s->m, s->n, s->k, KERN_PRECISION_DEFAULT), 0, 4e-3);
    CHECK_NEAR(worst_error(TTPU_BF16, s->m, s->n, s->k, KERN_PRECISION_HIGHEST), 0, 1e-6);
    CHECK_NEAR(worst_error(TTPU_F16, s->m, s->n, s->k, KERN_PRECISION_HIGHEST), 0, 1e-6);
    CHECK_NEAR(worst_error(TTPU_F64, s->m, s->n, s->k, KERN_PRECISION_HIGHEST), 0, 2e-15);
  }
}

/* A NaN or an infinity reaches exactly its row and column, and padding of panels makes none. */
TEST(not_a_number_stays_in_its_row) {
  static const shape shapes[] = {{1, 3, 5, 7}, {1, 1, 300, 100}, {1, 150, 130, 300}};
  for (int kind = 0; kind < 2; ++kind)
    for (int which = 0; which < 3; ++which) {
      shape s = shapes[which];
      float *a = calloc((size_t)(s.m * s.k), 4), *b = calloc((size_t)(s.k * s.n), 4),
            *c = calloc((size_t)(s.m * s.n), 4);
      for (int64_t i = 0; i < s.m * s.k; ++i) a[i] = 1;
      for (int64_t i = 0; i < s.k * s.n; ++i) b[i] = 1;
      a[(s.m - 1) * s.k + s.k - 1] = kind ? NAN : INFINITY;
      kern_gemm g = {.a_dtype = TTPU_F32,
                     .out = TTPU_F32,
                     .precision = KERN_PRECISION_HIGHEST,
                     .m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .batch = 1,
                     .a = a,
                     .a_row = s.k,
                     .a_col = 1,
                     .b = b,
                     .b_row = s.n,
                     .b_col = 1,
                     .c = c,
                     .c_row = s.n,
                     .c_col = 1};
      CHECK_OK(kern_gemm_run(&g));
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          float want = i < s.m - 1 ? (float)s.k : kind ? NAN : INFINITY;
          CHECK(check_near(c[i * s.n + j], want, 0));
        }
      free(a);
      free(b);
      free(c);
    }
}

TEST(beta_zero_does_not_read) {
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1}, c[4] = {NAN, NAN, NAN, NAN};
  kern_gemm g = {.a_dtype = TTPU_F32,
                 .out = TTPU_F32,
                 .m = 2,
                 .n = 2,
                 .k = 2,
                 .batch = 1,
                 .a = a,
                 .a_row = 2,
                 .a_col = 1,
                 .b = b,
                 .b_row = 2,
                 .b_col = 1,
                 .c = c,
                 .c_row = 2,
                 .c_col = 1};
  CHECK_OK(kern_gemm_run(&g));
  for (int i = 0; i < 4; ++i) CHECK(c[i] == a[i]);
}

/* The same bits from one thread and from several. */
TEST(threads_do_not_change_bits) {
  static const shape shapes[] = {{1, 300, 500, 700}, {1, 1, 3000, 900}, {7, 33, 65, 200}, {1, 2000, 20, 300}};
  for (int which = 0; which < 4; ++which) {
    shape s = shapes[which];
    uint64_t seed = 6;
    int64_t an = s.batch * s.m * s.k, bn = s.batch * s.k * s.n, cn = s.batch * s.m * s.n;
    float *a = malloc((size_t)an * 4), *b = malloc((size_t)bn * 4), *c[2];
    for (int64_t i = 0; i < an; ++i) a[i] = (float)check_uniform(&seed);
    for (int64_t i = 0; i < bn; ++i) b[i] = (float)check_uniform(&seed);
    int threads = base_pool_size();
    for (int run = 0; run < 2; ++run) {
      base_pool_resize(run ? 5 : 1);
      c[run] = malloc((size_t)cn * 4);
      kern_gemm g = {.a_dtype = TTPU_F32,
                     .out = TTPU_F32,
                     .precision = KERN_PRECISION_HIGHEST,
                     .m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .batch = s.batch,
                     .a = a,
                     .a_row = s.k,
                     .a_col = 1,
                     .a_batch = s.m * s.k,
                     .b = b,
                     .b_row = s.n,
                     .b_col = 1,
                     .b_batch = s.k * s.n,
                     .c = c[run],
                     .c_row = s.n,
                     .c_col = 1,
                     .c_batch = s.m * s.n};
      CHECK_OK(kern_gemm_run(&g));
    }
    base_pool_resize(threads);
    CHECK(memcmp(c[0], c[1], (size_t)cn * 4) == 0);
    for (int run = 0; run < 2; ++run) free(c[run]);
    free(a);
    free(b);
  }
}

TEST(bad_input_is_a_status) {
  float x[4] = {0};
  kern_gemm g = {.a_dtype = TTPU_F32, .out = TTPU_F32, .m = -1, .n = 2, .k = 2, .batch = 1, .a = x, .b = x, .c = x};
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "negative size", kern_gemm_run(&g));
  g.m = 2;
  g.out = TTPU_I32;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no product", kern_gemm_run(&g));
  g.out = TTPU_NO_DTYPE;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no product", kern_gemm_run(&g));
}

static ttpu_status run_large(void *ctx) {
  (void)ctx;
  static float a[200 * 200], b[200 * 200], c[200 * 200];
  kern_gemm g = {.a_dtype = TTPU_F32,
                 .out = TTPU_F32,
                 .precision = KERN_PRECISION_HIGHEST,
                 .m = 200,
                 .n = 200,
                 .k = 200,
                 .batch = 1,
                 .a = a,
                 .a_row = 200,
                 .a_col = 1,
                 .b = b,
                 .b_row = 200,
                 .b_col = 1,
                 .c = c,
                 .c_row = 200,
                 .c_col = 1};
  return kern_gemm_run(&g);
}
TEST(out_of_memory_is_a_status) { CHECK(check_out_of_memory(run_large, NULL) <= 2); }
