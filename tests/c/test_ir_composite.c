/* Decompositions, against libm and against loops that say what each composite means. */
#include "ir_eval.h"
#include "ir_examples.h"

typedef struct world {
  base_arena arena;
  ir_func *f, *plain;
  ir_builder b;
} world;

static void open_world(world *w) {
  base_arena_init(&w->arena);
  w->f = ir_func_new(&w->arena, "main");
  w->plain = NULL;
  w->b = ir_builder_on(w->f);
}

/* Returns `count` results from first, decomposes, verifies, and evaluates on args. */
static eval_state finish(world *w, ir_value first, uint32_t count, base_scalar *const *args) {
  ir_value results[2] = {first, first + 1};
  ir_return(&w->b, count, results);
  if (w->b.status) check_fail(__FILE__, __LINE__, "%s", w->b.message);
  CHECK_OK(ir_decompose(w->f, &w->arena, NULL, &w->plain));
  CHECK_OK(ir_func_verify(w->plain));
  return eval_run(w->plain, args);
}

/* ---- elementwise ---------------------------------------------------------------------------- */

static double reference(ir_kind kind, double x) {
  switch (kind) {
    case IR_ERF: return erf(x);
    case IR_ERFC: return erfc(x);
    case IR_LGAMMA: return lgamma(x);
    case IR_ASIN: return asin(x);
    case IR_ACOS: return acos(x);
    case IR_ATAN: return atan(x);
    case IR_SINH: return sinh(x);
    case IR_COSH: return cosh(x);
    case IR_ASINH: return asinh(x);
    case IR_ACOSH: return acosh(x);
    default: return atanh(x);
  }
}

static double eval_scalar_function(ir_kind kind, ttpu_dtype t, double x, double y) {
  world w;
  open_world(&w);
  ir_value p = example_param(&w.b, t, 0, NULL);
  ir_value v =
      kind == IR_NEXT_AFTER ? ir_binary(&w.b, kind, p, example_param(&w.b, t, 0, NULL)) : ir_unary(&w.b, kind, p);
  base_scalar a = eval_round(t, (base_scalar){.d = {x, 0}}), b = eval_round(t, (base_scalar){.d = {y, 0}}),
              *args[2] = {&a, &b};
  eval_state s = finish(&w, v, 1, args);
  double result = eval_result(&s, 0)->d[0];
  eval_free(&s);
  base_arena_free(&w.arena);
  return result;
}

/* Within `ulps` of libm's at 400 points of [low, high] and at the special ones; `absolute` is allowed as well, in units
 * of the dtype's epsilon, where a function has zeros or underflows. */
static void check_function(ir_kind kind, double low, double high, double ulps, double absolute) {
  static const double special[] = {0,    -0.0,  INFINITY, -INFINITY, NAN,   1, -1, 0.5,
                                   -0.5, 1e-20, -1e-20,   1e20,      -1e20, 2, 3};
  static const struct {
    ttpu_dtype t;
    double epsilon;
  } dtypes[] = {{TTPU_F32, 0x1p-23}, {TTPU_F64, 0x1p-52}, {TTPU_BF16, 0x1p-7}, {TTPU_F16, 0x1p-10}};
  uint64_t seed = (uint64_t)kind;
  for (size_t d = 0; d < 4; ++d)
    for (size_t i = 0; i < 400; ++i) {
      double x = i < sizeof special / sizeof *special ? special[i] : low + (high - low) * check_uniform(&seed);
      x = eval_round(dtypes[d].t, (base_scalar){.d = {x, 0}}).d[0];
      double got = eval_scalar_function(kind, dtypes[d].t, x, 0), want = reference(kind, x);
      double rounded = eval_round(dtypes[d].t, (base_scalar){.d = {want, 0}}).d[0];
      double allowed = dtypes[d].epsilon * (ulps * fabs(want) + absolute) + (dtypes[d].t == TTPU_F16 ? 0x1p-24 : 0);
      if (got == rounded || check_near(got, want, allowed)) continue;
      check_fail(__FILE__, __LINE__, "%s(%.17g) of %s is %.17g, expected %.17g: %.1f ulp", ir_ops[kind].name, x,
                 base_dtypes[dtypes[d].t].name, got, want, fabs(got - want) / fabs(want) / dtypes[d].epsilon);
    }
}

TEST(error_functions) {
  check_function(IR_ERF, -5, 5, 6, 0);
  check_function(IR_ERFC, -5, 5, 30, 0);
}
TEST(log_gamma) { check_function(IR_LGAMMA, -10, 40, 16, 24); }
TEST(inverse_trigonometric) {
  check_function(IR_ASIN, -1, 1, 4, 0);
  check_function(IR_ACOS, -1, 1, 4, 0);
  check_function(IR_ATAN, -20, 20, 2, 0);
}
TEST(hyperbolic) {
  check_function(IR_SINH, -40, 40, 4, 0);
  check_function(IR_COSH, -40, 40, 4, 0);
}
TEST(inverse_hyperbolic) {
  check_function(IR_ASINH, -100, 100, 4, 0);
  check_function(IR_ACOSH, 1, 100, 4, 0);
  check_function(IR_ATANH, -1, 1, 4, 0);
}

TEST(inverse_error_function) {
  uint64_t seed = 5;
  for (int i = 0; i < 400; ++i) {
    double x = 2 * check_uniform(&seed) - 1;
    CHECK_NEAR(erf(eval_scalar_function(IR_ERF_INV, TTPU_F64, x, 0)), x, 4e-16);
    CHECK_NEAR(erf(eval_scalar_function(IR_ERF_INV, TTPU_F32, x, 0)), (float)x, 3e-7);
  }
  CHECK(eval_scalar_function(IR_ERF_INV, TTPU_F64, 1, 0) == INFINITY &&
        eval_scalar_function(IR_ERF_INV, TTPU_F32, -1, 0) == -INFINITY);
  CHECK(isnan(eval_scalar_function(IR_ERF_INV, TTPU_F64, 1.5, 0)));
}

TEST(digamma_by_its_recurrence) {
  uint64_t seed = 6;
  CHECK_NEAR(eval_scalar_function(IR_DIGAMMA, TTPU_F64, 1, 0), -0.57721566490153286061, 1e-14);
  for (int i = 0; i < 300; ++i) {
    double x = 30 * check_uniform(&seed) - 10, psi = eval_scalar_function(IR_DIGAMMA, TTPU_F64, x, 0);
    CHECK_NEAR(eval_scalar_function(IR_DIGAMMA, TTPU_F64, x + 1, 0) - psi, 1 / x,
               1e-11 * (1 + fabs(psi) + 1 / (x * x)));
  }
  CHECK(isnan(eval_scalar_function(IR_DIGAMMA, TTPU_F32, -3, 0)));
}

TEST(next_after_steps_bits) {
  static const double values[] = {0,        -0.0,      1,   -1,     0.1,  1e-45, -1e-45, 3.4028234663852886e38,
                                  INFINITY, -INFINITY, NAN, 5e-324, 1e300};
  for (size_t i = 0; i < sizeof values / sizeof *values; ++i)
    for (size_t k = 0; k < sizeof values / sizeof *values; ++k) {
      double x = values[i], y = values[k];
      CHECK_NEAR(eval_scalar_function(IR_NEXT_AFTER, TTPU_F64, x, y), nextafter(x, y), 0);
      CHECK_NEAR(eval_scalar_function(IR_NEXT_AFTER, TTPU_F32, x, y), nextafterf((float)x, (float)y), 0);
    }
}

static double complex reference_complex(ir_kind kind, double complex z) {
  switch (kind) {
    case IR_ASIN: return casin(z);
    case IR_ACOS: return cacos(z);
    case IR_ATAN: return catan(z);
    case IR_SINH: return csinh(z);
    case IR_COSH: return ccosh(z);
    case IR_ASINH: return casinh(z);
    case IR_ACOSH: return cacosh(z);
    default: return catanh(z);
  }
}

/* Both parts together, and the side of each branch cut. */
TEST(complex_functions) {
  static const ir_kind kinds[] = {IR_ASIN, IR_ACOS, IR_ATAN, IR_SINH, IR_COSH, IR_ASINH, IR_ACOSH, IR_ATANH};
  uint64_t seed = 9;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k)
    for (int i = 0; i < 200; ++i) {
      world w;
      open_world(&w);
      double complex z = CMPLX(6 * check_uniform(&seed) - 3, 6 * check_uniform(&seed) - 3);
      if (i < 8) z = CMPLX(i & 1 ? 2 : -2, i & 2 ? 0.0 : -0.0);
      if (i >= 4 && i < 8) z = CMPLX(i & 2 ? 0.0 : -0.0, i & 1 ? 2 : -2);
      ttpu_dtype t = i % 2 ? TTPU_C64 : TTPU_C128;
      base_scalar a = eval_round(t, (base_scalar){.d = {creal(z), cimag(z)}}), *args[1] = {&a};
      double complex want = reference_complex(kinds[k], eval_complex(a));
      eval_state s = finish(&w, ir_unary(&w.b, kinds[k], example_param(&w.b, t, 0, NULL)), 1, args);
      double complex got = eval_complex(*eval_result(&s, 0));
      if (cabs(got - want) > (t == TTPU_C64 ? 1e-6 : 2e-15) * (1 + cabs(want)))
        check_fail(__FILE__, __LINE__, "%s(%g + %g i) is %g + %g i, expected %g + %g i", ir_ops[kinds[k]].name, a.d[0],
                   a.d[1], creal(got), cimag(got), creal(want), cimag(want));
      eval_free(&s);
      base_arena_free(&w.arena);
    }
}

/* ---- views ---------------------------------------------------------------------------------- */

typedef struct view_case {
  uint32_t rank, view_rank;
  int64_t dims[4], sizes[4], strides[4], offset;
  int gathers;
} view_case;

/* Read, then written; where elements of the view overlap, only one number for all may be written. gathers: -1 either
 * way, else whether computed indices may be needed. */
static void check_view(view_case c) {
  int64_t n = base_numel(c.rank, c.dims), m = base_numel(c.view_rank, c.sizes);
  base_scalar *x = calloc((size_t)n + 1, sizeof *x), *u = calloc((size_t)m + 1, sizeof *u), *args[2] = {x, u};
  for (int64_t i = 0; i < n; ++i) x[i].i = i;
  for (int64_t i = 0; i < m; ++i) u[i].i = 1000 + i;
  ir_type view = {TTPU_I32, (uint8_t)c.view_rank, c.sizes};
  bool overlaps = false;
  for (int write = 0; write < 2 + overlaps; ++write) {
    world w;
    open_world(&w);
    ir_value p = example_param(&w.b, TTPU_I32, c.rank, c.dims), v;
    if (write == 0) {
      v = ir_as_strided(&w.b, p, c.view_rank, c.sizes, c.strides, c.offset);
    } else {
      ir_value update = example_param(&w.b, TTPU_I32, write == 2 ? 0 : c.view_rank, c.sizes);
      if (write == 2) update = ir_broadcast_to(&w.b, update, c.view_rank, c.sizes);
      v = ir_as_strided_update(&w.b, p, update, c.strides, c.offset);
    }
    if (write == 1 && w.b.status && strstr(w.b.message, "single memory location")) {
      overlaps = true;
      for (int64_t i = 0; i < m; ++i) u[i].i = 1000;
      base_arena_free(&w.arena);
      continue;
    }
    eval_state s = finish(&w, v, 1, args);
    bool computed = false;
    for (uint32_t i = 0; i < w.plain->body.count; ++i)
      computed |= w.plain->body.ops[i]->kind == IR_GATHER || w.plain->body.ops[i]->kind == IR_SCATTER;
    if (c.gathers >= 0 && write < 2) CHECK_EQ(computed, c.gathers);
    const base_scalar *y = eval_result(&s, 0);
    for (int64_t i = 0; i < m; ++i) {
      eval_index at = eval_unflatten(view, i);
      int64_t flat = c.offset;
      for (uint32_t d = 0; d < c.view_rank; ++d) flat += at.at[d] * c.strides[d];
      CHECK_EQ(y[write ? flat : i].i, write ? u[i].i : flat);
      if (write) x[flat].i = u[i].i;
    }
    for (int64_t i = 0; write && i < n; ++i) CHECK_EQ(y[i].i, x[i].i); /* nothing else moved */
    eval_free(&s);
    base_arena_free(&w.arena);
  }
  free(x);
  free(u);
}

TEST(strided_views) {
  static const view_case cases[] = {
      {2, 1, {4, 6}, {6}, {1}, 6, 0},                 /* a row */
      {2, 1, {4, 6}, {4}, {6}, 2, 0},                 /* a column */
      {2, 2, {4, 6}, {6, 4}, {1, 6}, 0, 0},           /* transposed */
      {2, 2, {4, 7}, {4, 4}, {7, 2}, 0, 0},           /* every second of an odd width */
      {2, 1, {5, 5}, {5}, {6}, 0, 0},                 /* a diagonal */
      {2, 1, {4, 6}, {3}, {7}, 1, 0},                 /* one beside it */
      {2, 1, {4, 6}, {10}, {1}, 3, 0},                /* flat, across rows */
      {1, 2, {24}, {3, 4}, {8, 2}, 1, 0},             /* axes made from strides */
      {1, 2, {23}, {3, 4}, {8, 2}, 0, 0},             /* the same, with a part of the last row missing */
      {3, 3, {2, 3, 4}, {4, 2, 3}, {1, 12, 4}, 0, 0}, /* permuted */
      {2, 3, {4, 6}, {1, 4, 1}, {99, 6, 55}, 5, 0},   /* strides of size 1 say nothing */
      {2, 0, {4, 6}, {0}, {0}, 13, 0},                /* one element */
      {0, 2, {0}, {3, 2}, {0, 0}, 0, 0},              /* a scalar, expanded */
      {2, 3, {4, 6}, {4, 3, 2}, {6, 0, 3}, 1, 0},     /* expanded in the middle */
      {1, 2, {10}, {8, 3}, {1, 1}, 0, 1},             /* overlapping windows */
      {1, 2, {40}, {3, 3}, {7, 5}, 2, 1},             /* strides with nothing in common, colliding axes */
      {2, 2, {4, 6}, {0, 3}, {6, 1}, 0, 0},           /* empty */
      {1, 1, {10}, {4}, {-2}, 9, 1},                  /* backwards */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) check_view(cases[i]);
}

TEST(random_views) {
  uint64_t seed = 21;
  for (int round = 0; round < 3000; ++round) {
    view_case c = {
        .rank = (uint32_t)(check_random(&seed) % 4), .view_rank = (uint32_t)(check_random(&seed) % 4), .gathers = -1};
    int64_t n = 1, reach = 0;
    for (uint32_t i = 0; i < c.rank; ++i) n *= c.dims[i] = 1 + (int64_t)(check_random(&seed) % 5);
    for (uint32_t i = 0; i < c.view_rank; ++i) {
      c.sizes[i] = (int64_t)(check_random(&seed) % 4) + (check_random(&seed) % 8 != 0);
      c.strides[i] = (int64_t)(check_random(&seed) % 9);
      if (c.sizes[i] > 0) reach += (c.sizes[i] - 1) * c.strides[i];
    }
    if (reach >= n) continue;
    c.offset = (int64_t)(check_random(&seed) % (uint64_t)(n - reach));
    check_view(c);
  }
}

/* ---- scan, top_k, attention ----------------------------------------------------------------- */

static void scan_by_loop(const ir_scan_attrs *a, int64_t n, const double *x, double *y, int64_t *where) {
  double sum = 0;
  int64_t at = 0;
  for (int64_t k = 0; k < n; ++k) {
    int64_t i = a->reverse ? n - 1 - k : k;
    double v = x[i];
    bool first = k == 0;
    switch (a->kind) {
      case IR_CUMSUM: sum = first ? v : sum + v; break;
      case IR_CUMPROD: sum = first ? v : sum * v; break;
      case IR_LOGCUMSUMEXP: {
        double high = fmax(sum, v), low = fmin(sum, v);
        sum = first ? v : isinf(high) ? high : high + log1p(exp(low - high));
        break;
      }
      default:
        if (first || isnan(v) || (!isnan(sum) && (a->kind == IR_CUMMAX ? v >= sum : v <= sum))) sum = v, at = i;
    }
    y[i] = sum;
    where[i] = at;
  }
}

TEST(scans) {
  enum { N = 13 };
  uint64_t seed = 3;
  for (int kind = IR_CUMSUM; kind <= IR_LOGCUMSUMEXP; ++kind)
    for (int reverse = 0; reverse < 2; ++reverse)
      for (int64_t n = 0; n <= N; ++n) {
        world w;
        open_world(&w);
        base_scalar x[N * 2] = {{0}}, *args[1] = {x};
        double column[N], y[N];
        int64_t where[N];
        for (int i = 0; i < N * 2; ++i) x[i].d[0] = (double)(check_random(&seed) % 7) - 3;
        if (n > 4 && kind >= IR_CUMMAX) x[2].d[0] = kind == IR_LOGCUMSUMEXP ? -INFINITY : NAN;
        const ir_scan_attrs a = {0, reverse, (ir_scan_kind)kind};
        ir_value p = example_param(&w.b, TTPU_F64, DIMS(n, 2)),
                 v = ir_append(&w.b, IR_SCAN, 1, &p, &a, 0, NULL, 0, NULL);
        bool extreme = kind == IR_CUMMAX || kind == IR_CUMMIN;
        eval_state s = finish(&w, v, extreme ? 2 : 1, args);
        for (int c = 0; c < 2; ++c) {
          for (int64_t i = 0; i < n; ++i) column[i] = x[2 * i + c].d[0];
          scan_by_loop(&a, n, column, y, where);
          for (int64_t i = 0; i < n; ++i) {
            CHECK_NEAR(eval_result(&s, 0)[2 * i + c].d[0], y[i], 1e-12 * (1 + fabs(y[i])));
            if (extreme) CHECK_EQ(eval_result(&s, 1)[2 * i + c].i, where[i]);
          }
        }
        eval_free(&s);
        base_arena_free(&w.arena);
      }
}

TEST(path_scan) {
  enum { T = 6, N = 3, S = 5 };
  world w;
  open_world(&w);
  uint64_t seed = 11;
  static const int64_t starts[N] = {0, 2, T};
  base_scalar x[T * N * S] = {{0}}, skip[N * S] = {{0}}, start[N] = {{0}}, *args[3] = {x, skip, start};
  double y[T][N][S];
  for (int i = 0; i < T * N * S; ++i) x[i].d[0] = i % 7 ? -(double)(check_random(&seed) % 50) / 10 : -INFINITY;
  for (int i = 0; i < N * S; ++i) skip[i].i = check_random(&seed) % 2;
  for (int n = 0; n < N; ++n) start[n].i = starts[n];
  for (int t = 0; t < T; ++t)
    for (int n = 0; n < N; ++n)
      for (int s = 0; s < S; ++s) {
        double own = x[(t * N + n) * S + s].d[0], paths = 0;
        for (int back = 0; back <= 2 && back <= s && t > starts[n]; ++back)
          if (back < 2 || skip[n * S + s].i) paths += exp(y[t - 1][n][s - back]);
        y[t][n][s] = t < starts[n] ? -INFINITY : t == starts[n] ? own : own + log(paths);
      }
  ir_value operands[3] = {example_param(&w.b, TTPU_F64, DIMS(T, N, S)), example_param(&w.b, TTPU_BOOL, DIMS(N, S)),
                          example_param(&w.b, TTPU_I64, DIMS(N))};
  eval_state s = finish(&w, ir_append(&w.b, IR_PATH_SCAN, 3, operands, NULL, 0, NULL, 0, NULL), 1, args);
  for (int i = 0; i < T * N * S; ++i) {
    double expected = ((double *)y)[i], got = eval_result(&s, 0)[i].d[0];
    if (isinf(expected)) CHECK(got == expected);
    else CHECK_NEAR(got, expected, 1e-12 * (1 + fabs(expected)));
  }
  eval_free(&s);
  base_arena_free(&w.arena);
}

TEST(top_k_takes_the_first_of_equal) {
  static const double row[8] = {3, NAN, -1, 3, 7, -INFINITY, NAN, 7};
  static const int64_t largest[5] = {1, 6, 4, 7, 0}, smallest[5] = {5, 2, 0, 3, 4};
  for (int up = 0; up < 2; ++up) {
    world w;
    open_world(&w);
    base_scalar x[8], *args[1] = {x};
    for (int i = 0; i < 8; ++i) x[i].d[0] = row[i];
    ir_value p = example_param(&w.b, TTPU_F32, DIMS(1, 8)),
             v = ir_append(&w.b, IR_TOP_K, 1, &p, &(ir_top_k_attrs){5, up, true}, 0, NULL, 0, NULL);
    eval_state s = finish(&w, v, 2, args);
    for (int i = 0; i < 5; ++i) {
      CHECK_EQ(eval_result(&s, 1)[i].i, (up ? largest : smallest)[i]);
      CHECK_NEAR(eval_result(&s, 0)[i].d[0], row[(up ? largest : smallest)[i]], 0);
    }
    eval_free(&s);
    base_arena_free(&w.arena);
  }
}

TEST(attention_by_its_definition) {
  enum { B = 2, H = 4, G = 2, M = 3, N = 5, D = 4, E = 3 };
  uint64_t seed = 4;
  for (int mode = 0; mode < 4; ++mode) {
    bool causal = mode & 1, biased = mode & 2;
    world w;
    open_world(&w);
    base_scalar q[B * H * M * D], k[B * G * N * D], v[B * G * N * E], scale = {.d = {0.5, 0}}, bias[M * N],
                                                                      *args[5] = {q, k, v, &scale, bias};
    for (int i = 0; i < B * H * M * D; ++i) q[i].d[0] = check_uniform(&seed) * 4 - 2;
    for (int i = 0; i < B * G * N * D; ++i) k[i].d[0] = check_uniform(&seed) * 4 - 2;
    for (int i = 0; i < B * G * N * E; ++i) v[i].d[0] = check_uniform(&seed) * 4 - 2;
    for (int i = 0; i < M * N; ++i)
      bias[i].d[0] = i / N == 1 ? -INFINITY : check_uniform(&seed); /* row 1 attends to nothing */
    ir_value operands[5] = {example_param(&w.b, TTPU_F64, DIMS(B, H, M, D)),
                            example_param(&w.b, TTPU_F64, DIMS(B, G, N, D)),
                            example_param(&w.b, TTPU_F64, DIMS(B, G, N, E)), example_param(&w.b, TTPU_F64, 0, NULL), 0};
    if (biased) operands[4] = example_param(&w.b, TTPU_F64, DIMS(M, N));
    ir_value both =
        ir_append(&w.b, IR_ATTENTION, biased ? 5 : 4, operands, &(ir_attention_attrs){causal}, 0, NULL, 0, NULL);
    eval_state s = finish(&w, both, 2, args);
    for (int bh = 0; bh < B * H; ++bh)
      for (int m = 0; m < M; ++m) {
        double p[N], sum = 0, out[E] = {0};
        int bg = bh / H * G + bh % H / (H / G);
        for (int n = 0; n < N; ++n) {
          double score = 0;
          for (int d = 0; d < D; ++d) score += q[(bh * M + m) * D + d].d[0] * k[(bg * N + n) * D + d].d[0];
          score = score * 0.5 + (biased ? bias[m * N + n].d[0] : 0);
          sum += p[n] = causal && n > m ? 0 : exp(score);
          for (int e = 0; e < E; ++e) out[e] += p[n] * v[(bg * N + n) * E + e].d[0];
        }
        for (int e = 0; e < E; ++e)
          CHECK_NEAR(eval_result(&s, 0)[(bh * M + m) * E + e].d[0], sum == 0 ? 0 : out[e] / sum, 1e-12);
        CHECK_NEAR(eval_result(&s, 1)[bh * M + m].d[0], sum == 0 ? -INFINITY : log(sum), 1e-6);
      }
    eval_free(&s);
    base_arena_free(&w.arena);
  }
}

/* ---- ir_decompose --------------------------------------------------------------------------- */

static bool keep_erf(ir_kind kind) { return kind == IR_ERF; }

TEST(decompose_keeps_what_is_asked_for) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  ir_value x = example_param(b, TTPU_F32, DIMS(3)), p = example_param(b, TTPU_BOOL, 0, NULL);
  static const bool donate[] = {true, false};
  w.f->donate = donate;
  ir_region *outer, *regions[2];
  for (int i = 0; i < 2; ++i) { /* composites inside regions too */
    regions[i] = ir_region_begin(b, 0, NULL, &outer);
    ir_value y = i ? ir_erf(b, x) : ir_asinh(b, x);
    ir_region_end(b, outer, 1, &y);
  }
  b->source = "aten::here";
  ir_value y = ir_lgamma(b, ir_append(b, IR_IF, 1, &p, NULL, 0, NULL, 2, regions));
  ir_return(b, 1, &y);
  REQUIRE_OK(ir_decompose(w.f, &w.arena, keep_erf, &w.plain));
  CHECK_OK(ir_func_verify(w.plain));
  const ir_op *branch = w.plain->body.ops[0];
  CHECK_EQ(branch->kind, IR_IF);
  CHECK_EQ(branch->regions[1]->ops[0]->kind, IR_ERF);
  CHECK(branch->regions[0]->count > 4);
  for (uint32_t i = 0; i < w.plain->body.count; ++i) CHECK(!(ir_ops[w.plain->body.ops[i]->kind].flags & IR_COMPOSITE));
  CHECK_STR(w.plain->body.ops[3]->source, "aten::here");
  CHECK(w.plain->donate && w.plain->donate[0] && !w.plain->donate[1]);
  base_arena_free(&w.arena);
}

TEST(every_decomposition_verifies) {
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind) {
    base_arena arena;
    base_arena_init(&arena);
    ir_builder b;
    ir_func *f = example_build(&b, &arena, (ir_kind)kind), *plain = NULL;
    if (CHECK_OK(ir_decompose(f, &arena, NULL, &plain))) {
      CHECK_OK(ir_func_verify(plain));
      for (uint32_t i = 0; i < plain->body.count; ++i) CHECK(!(ir_ops[plain->body.ops[i]->kind].flags & IR_COMPOSITE));
      base_hash128 a = ir_func_hash(f), c = ir_func_hash(plain);
      if (!(ir_ops[kind].flags & IR_COMPOSITE)) CHECK(a.a == c.a && a.b == c.b); /* a copy is the same program */
    }
    base_arena_free(&arena);
  }
}
