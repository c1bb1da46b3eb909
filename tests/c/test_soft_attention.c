/* Attention against a plain loop in double: grouped heads, causal, additive and boolean biases with every broadcast, any
 * strides, rows with nothing to attend to, all dtypes, on every instruction set of the machine. */
#include "check.h"

#include "soft/kern/attention.h"

static int64_t pick(uint64_t *seed, int64_t low, int64_t high) {
  return low + (int64_t)(check_random(seed) % (uint64_t)(high - low + 1));
}

/* A 4-d tensor whose memory order is a permutation of its dimensions, sometimes with a gap; the last stays innermost in
 * half of the cases. `dims` of 1 in `broadcast` get stride 0. */
typedef struct tensor {
  char *memory;
  int64_t strides[4];
} tensor;

static tensor tensor_new(uint64_t *seed, ttpu_dtype dtype, const int64_t *dims, double size) {
  int order[4] = {0, 1, 2, 3};
  const int free_dims = pick(seed, 0, 1) ? 3 : 4;
  for (int i = free_dims - 1; i > 0; --i) {
    int j = (int)pick(seed, 0, i), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
  tensor t;
  int64_t total = 1;
  for (int i = 3; i >= 0; --i) {
    t.strides[order[i]] = dims[order[i]] == 1 ? 0 : total;
    total *= dims[order[i]] > 0 ? dims[order[i]] : 1;
    if (i == 3) total += pick(seed, 0, 1) * 2;
  }
  const int64_t bytes = (int64_t)base_dtype_bytes(dtype);
  t.memory = malloc((size_t)(total * bytes));
  for (int64_t i = 0; i < total; ++i) {
    base_scalar v = {.d = {(check_uniform(seed) - 0.5) * size, 0}};
    if (dtype == TTPU_BOOL) v.i = pick(seed, 0, 3) > 0;
    base_scalar_store(dtype, t.memory + i * bytes, v);
  }
  return t;
}

static double load(ttpu_dtype dtype, const void *p, const int64_t *strides, int64_t a, int64_t b, int64_t c,
                   int64_t d) {
  base_scalar v =
      base_scalar_load(dtype, (const char *)p + (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) *
                                                    (int64_t)base_dtype_bytes(dtype));
  return dtype == TTPU_BOOL ? (v.i ? 0 : -INFINITY) : v.d[0];
}

static bool same(const kern_attention *a, double tolerance) {
  double *score = malloc(sizeof(double) * (size_t)(a->n + 1));
  bool ok = true;
  for (int64_t b = 0; b < a->batch && ok; ++b)
    for (int64_t h = 0; h < a->heads && ok; ++h)
      for (int64_t i = 0; i < a->m && ok; ++i) {
        const int64_t g = h / (a->heads / a->kv_heads), keys = a->causal && i + 1 < a->n ? i + 1 : a->n;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < a->d; ++d)
            s += load(a->dtype, a->q, a->q_strides, b, h, i, d) * load(a->dtype, a->k, a->k_strides, b, g, j, d);
          score[j] = s * a->scale + (a->bias ? load(a->bias_dtype, a->bias, a->bias_strides, b, h, i, j) : 0);
          max = fmax(max, score[j]);
        }
        for (int64_t j = 0; j < keys; ++j) sum += score[j] = max == -INFINITY ? 0 : exp(score[j] - max);
        double lse = sum == 0 ? -INFINITY : max + log(sum);
        if (a->logsumexp) {
          double got =
              (double)
                  a->logsumexp[b * a->logsumexp_strides[0] + h * a->logsumexp_strides[1] + i * a->logsumexp_strides[2]];
          ok &= CHECK_NEAR(got, lse, 1e-5 * (1 + fabs(lse)));
        }
        for (int64_t e = 0; e < a->e && ok; ++e) {
          double want = 0;
          for (int64_t j = 0; j < keys; ++j) want += score[j] * load(a->dtype, a->v, a->v_strides, b, g, j, e);
          if (sum > 0) want /= sum;
          double got = load(a->dtype, a->out, a->out_strides, b, h, i, e);
          if (!check_near(got, want, tolerance))
            ok = check_fail(__FILE__, __LINE__,
                            "%s B%d H%d G%d M%d N%d D%d E%d causal %d bias %d: [%d,%d,%d,%d] is %g, not %g",
                            base_dtypes[a->dtype].name, (int)a->batch, (int)a->heads, (int)a->kv_heads, (int)a->m,
                            (int)a->n, (int)a->d, (int)a->e, a->causal, a->bias ? (int)a->bias_dtype : 0, (int)b,
                            (int)h, (int)i, (int)e, got, want);
        }
      }
  free(score);
  return ok;
}

typedef struct shape {
  int64_t batch, kv_heads, group, m, n, d, e;
} shape;

static bool run_case(uint64_t *seed, ttpu_dtype dtype, shape s) {
  const int64_t heads = s.kv_heads * s.group;
  kern_attention a = {.dtype = dtype,
                      .batch = s.batch,
                      .heads = heads,
                      .kv_heads = s.kv_heads,
                      .m = s.m,
                      .n = s.n,
                      .d = s.d,
                      .e = s.e,
                      .scale = pick(seed, 0, 1) ? 1 / sqrt((double)s.d + 1) : 0.7,
                      .causal = pick(seed, 0, 1)};
  tensor q = tensor_new(seed, dtype, (int64_t[]){s.batch, heads, s.m, s.d}, 4);
  tensor k = tensor_new(seed, dtype, (int64_t[]){s.batch, s.kv_heads, s.n, s.d}, 4);
  tensor v = tensor_new(seed, dtype, (int64_t[]){s.batch, s.kv_heads, s.n, s.e}, 2);
  tensor out = tensor_new(seed, dtype, (int64_t[]){s.batch, heads, s.m, s.e}, 2), bias = {0};
  a.q = q.memory, a.k = k.memory, a.v = v.memory, a.out = out.memory;
  memcpy(a.q_strides, q.strides, sizeof q.strides);
  memcpy(a.k_strides, k.strides, sizeof k.strides);
  memcpy(a.v_strides, v.strides, sizeof v.strides);
  memcpy(a.out_strides, out.strides, sizeof out.strides);
  const int kind = (int)pick(seed, 0, 3);
  if (kind > 0) {
    a.bias_dtype = kind == 1 ? dtype : kind == 2 ? TTPU_F32 : TTPU_BOOL;
    int64_t dims[4] = {s.batch, heads, s.m, s.n};
    for (int d = 0; d < 4; ++d)
      if (pick(seed, 0, 2) == 0) dims[d] = 1;
    bias = tensor_new(seed, a.bias_dtype, dims, 3);
    a.bias = bias.memory;
    memcpy(a.bias_strides, bias.strides, sizeof bias.strides);
  }
  float *lse = NULL;
  if (pick(seed, 0, 2)) {
    a.logsumexp = lse = malloc(sizeof(float) * (size_t)(s.batch * heads * s.m + 1));
    a.logsumexp_strides[0] = heads * s.m, a.logsumexp_strides[1] = s.m, a.logsumexp_strides[2] = 1;
  }
  void *workspace = NULL;
  if (pick(seed, 0, 1)) a.workspace = workspace = base_alloc_aligned(64, kern_attention_workspace(&a) + 64);
  const double tolerance = dtype == TTPU_F64 ? 1e-12 : dtype == TTPU_F32 ? 3e-6 : dtype == TTPU_F16 ? 2e-3 : 1.6e-2;
  bool ok = CHECK_OK(kern_attention_run(&a)) && same(&a, tolerance);
  base_free(workspace);
  free(q.memory);
  free(k.memory);
  free(v.memory);
  free(out.memory);
  free(bias.memory);
  free(lse);
  return ok;
}

static const ttpu_dtype dtypes[] = {TTPU_F32, TTPU_BF16, TTPU_F16, TTPU_F64};

TEST(small_and_odd) {
  uint64_t seed = 1;
  for (int i = 0; i < 300; ++i) {
    shape s = {pick(&seed, 1, 2),  pick(&seed, 1, 3),  pick(&seed, 1, 3), pick(&seed, 1, 40),
               pick(&seed, 0, 70), pick(&seed, 1, 70), pick(&seed, 1, 70)};
    run_case(&seed, dtypes[i % 4], s);
  }
}

TEST(several_blocks) {
  uint64_t seed = 2;
  for (int i = 0; i < 12; ++i) {
    shape s = {1,
               pick(&seed, 1, 2),
               pick(&seed, 1, 2),
               pick(&seed, 80, 200),
               pick(&seed, 200, 700),
               pick(&seed, 16, 80),
               pick(&seed, 16, 80)};
    run_case(&seed, dtypes[i % 4], s);
  }
}

TEST(decoding) {
  uint64_t seed = 3;
  for (int i = 0; i < 80; ++i) {
    shape s = {pick(&seed, 1, 2), pick(&seed, 1, 3), pick(&seed, 1, 4), pick(&seed, 1, 2), pick(&seed, 1, 1500), 64,
               pick(&seed, 1, 64)};
    run_case(&seed, dtypes[i % 4], s);
  }
}

/* Row 1's mask is all false, row 0's all true; NaN in one query stays in its row. */
TEST(nothing_to_attend_to) {
  for (int64_t m = 2; m <= 20; m += 18) {
    float q[20 * 4], k[3 * 4], v[3 * 4], out[20 * 4], lse[20];
    uint8_t mask[20 * 3];
    for (int i = 0; i < 80; ++i) q[i] = 1, out[i] = NAN;
    for (int i = 0; i < 12; ++i) k[i] = 1, v[i] = (float)(i / 4);
    for (int i = 0; i < 60; ++i) mask[i] = i / 3 != 1;
    kern_attention a = {.dtype = TTPU_F32,
                        .batch = 1,
                        .heads = 1,
                        .kv_heads = 1,
                        .m = m,
                        .n = 3,
                        .d = 4,
                        .e = 4,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .scale = 1,
                        .bias = mask,
                        .bias_dtype = TTPU_BOOL,
                        .logsumexp = lse,
                        .q_strides = {0, 0, 4, 1},
                        .k_strides = {0, 0, 4, 1},
                        .v_strides = {0, 0, 4, 1},
                        .out_strides = {0, 0, 4, 1},
                        .bias_strides = {0, 0, 3, 1},
                        .logsumexp_strides = {0, 0, 1}};
    if (m > 2) q[4 * 2 + 1] = NAN;
    CHECK_OK(kern_attention_run(&a));
    for (int e = 0; e < 4; ++e) {
      CHECK_NEAR(out[e], 1, 1e-6);
      CHECK(out[4 + e] == 0);
      if (m > 2) CHECK(isnan(out[8 + e]) && !isnan(out[12 + e]));
    }
    CHECK(lse[1] == -INFINITY);
    CHECK_NEAR(lse[0], 4 + log(3), 1e-5);
  }
}

TEST(threads_do_not_change_bits) {
  static const shape shapes[] = {{2, 3, 1, 130, 300, 64, 64}, {1, 2, 2, 1, 3000, 64, 64}};
  for (int which = 0; which < 2; ++which) {
    const shape s = shapes[which];
    const int64_t heads = s.kv_heads * s.group, qn = s.batch * heads * s.m * 64, kn = s.batch * s.kv_heads * s.n * 64;
    float *q = malloc((size_t)qn * 4), *k = malloc((size_t)kn * 4), *v = malloc((size_t)kn * 4), *out[2];
    uint64_t seed = 4;
    for (int64_t i = 0; i < qn; ++i) q[i] = (float)check_uniform(&seed);
    for (int64_t i = 0; i < kn; ++i) k[i] = (float)check_uniform(&seed), v[i] = (float)check_uniform(&seed);
    const int threads = base_pool_size();
    for (int run = 0; run < 2; ++run) {
      base_pool_resize(run ? 5 : 1);
      out[run] = malloc((size_t)qn * 4);
      kern_attention a = {.dtype = TTPU_F32,
                          .batch = s.batch,
                          .heads = heads,
                          .kv_heads = s.kv_heads,
                          .m = s.m,
                          .n = s.n,
                          .d = 64,
                          .e = 64,
                          .q = q,
                          .k = k,
                          .v = v,
                          .out = out[run],
                          .scale = 0.125,
                          .q_strides = {heads * s.m * 64, s.m * 64, 64, 1},
                          .k_strides = {s.kv_heads * s.n * 64, s.n * 64, 64, 1},
                          .v_strides = {s.kv_heads * s.n * 64, s.n * 64, 64, 1},
                          .out_strides = {heads * s.m * 64, s.m * 64, 64, 1}};
      CHECK_OK(kern_attention_run(&a));
    }
    base_pool_resize(threads);
    CHECK(memcmp(out[0], out[1], (size_t)qn * 4) == 0);
    free(q);
    free(k);
    free(v);
    free(out[0]);
    free(out[1]);
  }
}

TEST(bad_input_is_a_status) {
  kern_attention a = {.dtype = TTPU_I32, .batch = 1, .heads = 3, .kv_heads = 2, .m = 1, .n = 1, .d = 1, .e = 1};
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "is not f32", kern_attention_run(&a));
  a.dtype = TTPU_F32;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no multiple", kern_attention_run(&a));
  a.kv_heads = 3;
  a.bias = &a;
  a.bias_dtype = TTPU_I32;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "neither float nor bool", kern_attention_run(&a));
}
