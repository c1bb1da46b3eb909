/* What soft_compile promises beyond right numbers: fusion, structures, memory in place, threads, failures. */
#include "check.h"
#include "soft/soft_int.h"

/* A function under construction, and how it is run. */
typedef struct program {
  base_arena *arena;
  ir_func *f;
  ir_builder b;
  soft_executable *e;
} program;

static program program_begin(void) {
  program p = {.arena = base_alloc(sizeof *p.arena)};
  base_arena_init(p.arena);
  p.f = ir_func_new(p.arena, "main");
  p.b = ir_builder_on(p.f);
  return p;
}
static ir_value param(program *p, ttpu_dtype t, uint32_t rank, const int64_t *dims) {
  return ir_param(&p->b, ir_tensor(&p->b, t, rank, dims));
}
static ir_value param2(program *p, int64_t n, int64_t m) { return param(p, TTPU_F32, 2, (int64_t[]){n, m}); }

static bool program_compile(program *p, bool donate, uint32_t count, const ir_value *results) {
  ir_return(&p->b, count, results);
  bool *flags = base_arena_zalloc(p->arena, p->f->body.arg_count + 1);
  for (uint32_t i = 0; i < p->f->body.arg_count; ++i) flags[i] = donate;
  p->f->donate = flags;
  if (!CHECK(p->b.status == TTPU_OK)) fprintf(stderr, "    %s\n", p->b.message);
  if (p->b.status == TTPU_OK && CHECK_OK(soft_compile(p->arena, p->f, NULL, &p->e))) return true;
  base_arena_free(p->arena);
  base_free(p->arena);
  return false;
}

static soft_hbm *hbm;
static soft_block *block_of(const program *p, uint32_t i, double scale) {
  ir_type t = ir_type_of(p->f, p->f->body.first_arg + i);
  soft_block *b = NULL;
  if (!hbm) CHECK_OK(soft_hbm_new((size_t)1 << 32, &hbm));
  if (!CHECK_OK(soft_block_new(hbm, (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype), &b))) return NULL;
  for (int64_t k = 0; k < ir_numel(t); ++k) {
    base_scalar v = {.d = {scale * (double)((k * 37 + i * 11) % 23 - 9)}};
    if (base_dtype_is_integer((ttpu_dtype)t.dtype)) v = (base_scalar){.i = (k * 5 + i) % 7};
    base_scalar_store((ttpu_dtype)t.dtype, (char *)b->data + (size_t)k * base_dtype_bytes((ttpu_dtype)t.dtype), v);
  }
  return b;
}

/* Runs it on made-up data and compares with the reference; out[i] are the results' blocks if wanted. */
static void program_check(program *p, double tolerance) {
  const ir_op *ret = p->f->body.ops[p->f->body.count - 1];
  soft_block *in[16], *out[16];
  void *raw[16], *expected[16];
  for (uint32_t i = 0; i < p->f->body.arg_count; ++i) {
    in[i] = block_of(p, i, 0.25);
    raw[i] = in[i]->data;
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i) {
    ir_type t = ir_type_of(p->f, ret->operands[i]);
    expected[i] = malloc((size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype) + 1);
  }
  CHECK_OK(soft_reference_run(p->f, raw, expected));
  if (CHECK_OK(soft_execute(p->e, hbm, in, NULL, out, NULL)))
    for (uint32_t i = 0; i < ret->operand_count; ++i) {
      ir_type t = ir_type_of(p->f, ret->operands[i]);
      size_t size = base_dtype_bytes((ttpu_dtype)t.dtype);
      for (int64_t k = 0; k < ir_numel(t); ++k) {
        base_scalar x = base_scalar_load((ttpu_dtype)t.dtype, (char *)out[i]->data + (size_t)k * size);
        base_scalar y = base_scalar_load((ttpu_dtype)t.dtype, (char *)expected[i] + (size_t)k * size);
        if (base_dtype_is_float((ttpu_dtype)t.dtype)) CHECK_NEAR(x.d[0], y.d[0], tolerance * (1 + fabs(y.d[0])));
        else CHECK_EQ(x.i, y.i);
      }
      soft_block_free(out[i]);
    }
  for (uint32_t i = 0; i < p->f->body.arg_count; ++i) soft_block_free(in[i]);
  for (uint32_t i = 0; i < ret->operand_count; ++i) free(expected[i]);
}

static ir_value last(program *p, ir_kind kind, ir_value x) {
  int64_t dim = ir_type_of(p->f, x).rank - 1;
  return ir_reduce(&p->b, kind, x, 1, &dim);
}
/* A row value back over x, through dims of size 1 as PyTorch's keepdim gives. */
static ir_value spread(program *p, ir_value row, ir_value x) {
  ir_type t = ir_type_of(p->f, x);
  int64_t dims[4], map[4];
  for (uint32_t d = 0; d < t.rank; ++d) dims[d] = d + 1 == t.rank ? 1 : t.dims[d], map[d] = d;
  return ir_broadcast_in_dim(&p->b, ir_reshape(&p->b, row, t.rank, dims), t.rank, t.dims, map);
}
static ir_value softmax(program *p, ir_value x) {
  ir_value e = ir_exponential(&p->b, ir_subtract(&p->b, x, spread(p, last(p, IR_MAXIMUM, x), x)));
  return ir_divide(&p->b, e, spread(p, last(p, IR_ADD, e), x));
}

TEST(softmax_and_its_gradient_are_one_step_each) {
  const int64_t sizes[][2] = {{5, 7}, {3, 1000}, {2, 20000}, {300, 64}, {1, 100000}, {4, 1}, {0, 8}};
  for (int k = 0; k < 7; ++k) {
    program p = program_begin();
    ir_value y = softmax(&p, param2(&p, sizes[k][0], sizes[k][1]));
    if (!program_compile(&p, false, 1, &y)) return;
    CHECK_EQ(soft_executable_get_stats(p.e).steps, 1);
    program_check(&p, 1e-5);
    soft_executable_free(p.e);
    p = program_begin();
    ir_value s = param2(&p, sizes[k][0], sizes[k][1]), g = param2(&p, sizes[k][0], sizes[k][1]);
    ir_value r = ir_multiply(&p.b, s, ir_subtract(&p.b, g, spread(&p, last(&p, IR_ADD, ir_multiply(&p.b, g, s)), g)));
    if (!program_compile(&p, false, 1, &r)) return;
    CHECK_EQ(soft_executable_get_stats(p.e).steps, 1);
    program_check(&p, 2e-5);
    soft_executable_free(p.e);
  }
}

static ir_value layer_norm(program *p, ir_value x, ir_value w, ir_value c) {
  ir_type t = ir_type_of(p->f, x);
  int64_t n = t.dims[1], one = 1;
  ir_value sum = last(p, IR_ADD, x), mean = ir_divide(&p->b, sum, ir_like_f64(&p->b, sum, (double)n));
  ir_value d = ir_subtract(&p->b, x, spread(p, mean, x)), v = last(p, IR_ADD, ir_multiply(&p->b, d, d));
  ir_value r = ir_rsqrt(
      &p->b, ir_add(&p->b, ir_divide(&p->b, v, ir_like_f64(&p->b, v, (double)n)), ir_like_f64(&p->b, v, 1e-5)));
  ir_value y =
      ir_multiply(&p->b, ir_multiply(&p->b, d, spread(p, r, x)), ir_broadcast_in_dim(&p->b, w, 2, t.dims, &one));
  return ir_add(&p->b, y, ir_broadcast_in_dim(&p->b, c, 2, t.dims, &one));
}
TEST(layer_norm_is_one_step_in_every_dtype) {
  const ttpu_dtype types[] = {TTPU_F32, TTPU_F64, TTPU_BF16, TTPU_F16};
  const double tolerance[] = {2e-5, 1e-12, 2e-2, 3e-3};
  for (int k = 0; k < 4; ++k) {
    program p = program_begin();
    int64_t dims[2] = {37, 96}, n = 96;
    ir_value x = param(&p, types[k], 2, dims),
             y = layer_norm(&p, x, param(&p, types[k], 1, &n), param(&p, types[k], 1, &n));
    if (!program_compile(&p, false, 1, &y)) return;
    CHECK_EQ(soft_executable_get_stats(p.e).steps, 1);
    program_check(&p, tolerance[k]);
    soft_executable_free(p.e);
  }
}

TEST(sums_are_exact_to_the_last_bits) {
  const int64_t n = 3000001;
  program p = program_begin();
  ir_value x = param(&p, TTPU_F32, 1, &n), s = last(&p, IR_ADD, x);
  if (!program_compile(&p, false, 1, &s)) return;
  soft_block *in = block_of(&p, 0, 0.1), *out;
  double truth = 0;
  for (int64_t i = 0; i < n; ++i) truth += (double)((float *)in->data)[i];
  CHECK_OK(soft_execute(p.e, hbm, &in, NULL, &out, NULL));
  CHECK_NEAR(*(float *)out->data, truth, fabs(truth) * 2e-7 + 1e-2);
  soft_block_free(in);
  soft_block_free(out);
  soft_executable_free(p.e);
}

TEST(a_new_size_compiles_nothing) {
  soft_counters before = {0};
  for (int64_t n = 5; n < 40; ++n) {
    program p = program_begin();
    ir_value y = softmax(&p, param2(&p, n, 2 * n + 1));
    if (!program_compile(&p, false, 1, &y)) return;
    if (n == 5) before = soft_get_counters();
    else CHECK(soft_executable_get_stats(p.e).structure_hit);
    program_check(&p, 1e-5);
    soft_executable_free(p.e);
  }
  CHECK_EQ(soft_get_counters().structures_compiled, before.structures_compiled);
  CHECK_EQ(soft_get_counters().executables_bound, before.executables_bound + 34);
}

TEST(donated_parameters_become_results) {
  program p = program_begin();
  ir_value w = param2(&p, 64, 64), g = param2(&p, 64, 64);
  ir_value r = ir_subtract(&p.b, w, ir_multiply(&p.b, g, ir_like_f64(&p.b, g, 0.5)));
  if (!program_compile(&p, true, 1, &r)) return;
  CHECK_EQ(soft_executable_get_stats(p.e).alias_bytes, 64 * 64 * 4);
  soft_block *in[2] = {block_of(&p, 0, 1), block_of(&p, 1, 1)}, *out;
  void *memory[2] = {in[0]->data, in[1]->data};
  bool donated[2] = {true, true};
  CHECK_OK(soft_execute(p.e, hbm, in, donated, &out, NULL));
  CHECK(out->data == memory[0] || out->data == memory[1]);
  soft_block_free(out);
  /* Held by somebody else: not written. */
  soft_block *kept[2] = {block_of(&p, 0, 1), block_of(&p, 1, 1)};
  float first = ((float *)kept[0]->data)[5], second = ((float *)kept[1]->data)[5];
  soft_block_share(kept[0]), soft_block_share(kept[1]);
  CHECK_OK(soft_execute(p.e, hbm, kept, donated, &out, NULL));
  CHECK(out->data != kept[0]->data && out->data != kept[1]->data);
  CHECK(((float *)kept[0]->data)[5] == first && ((float *)kept[1]->data)[5] == second);
  CHECK_NEAR(((float *)out->data)[5], first - second * 0.5f, 1e-6);
  soft_block_free(out), soft_block_free(kept[0]), soft_block_free(kept[1]);
  soft_executable_free(p.e);
}

TEST(updates_of_donated_memory_are_in_place) {
  program p = program_begin();
  int64_t n = 100000, m = 3, one = 1;
  ir_value cache = param(&p, TTPU_F32, 1, &n), row = param(&p, TTPU_F32, 1, &m);
  ir_value doubled = ir_add(&p.b, row, row), r = ir_as_strided_update(&p.b, cache, doubled, &one, 50);
  r = ir_as_strided_update(&p.b, r, row, &one, 60);
  if (!program_compile(&p, true, 1, &r)) return;
  soft_block *in[2] = {block_of(&p, 0, 1), block_of(&p, 1, 1)}, *out;
  void *memory = in[0]->data;
  float a = ((float *)in[1]->data)[0], untouched = ((float *)in[0]->data)[70];
  bool donated[2] = {true, false};
  CHECK_OK(soft_execute(p.e, hbm, in, donated, &out, NULL));
  CHECK(out->data == memory);
  CHECK(((float *)out->data)[50] == 2 * a && ((float *)out->data)[60] == a && ((float *)out->data)[70] == untouched);
  soft_block_free(out), soft_block_free(in[1]);
  soft_executable_free(p.e);
}

TEST(a_result_that_is_a_parameter_shares_its_block) {
  program p = program_begin();
  ir_value x = param2(&p, 4, 4),
           r[3] = {x, ir_transpose(&p.b, x, (int64_t[]){1, 0}), ir_reshape(&p.b, x, 1, (int64_t[]){16})};
  if (!program_compile(&p, false, 3, r)) return;
  soft_block *in = block_of(&p, 0, 1), *out[3];
  CHECK_OK(soft_execute(p.e, hbm, &in, NULL, out, NULL));
  CHECK(out[0] == in && out[1] != in && out[2] != in);
  CHECK(((float *)out[1]->data)[1] == ((float *)in->data)[4]);
  for (int i = 0; i < 3; ++i) soft_block_free(out[i]);
  soft_block_free(in);
  soft_executable_free(p.e);
}

TEST(threads_do_not_change_a_bit) {
  const int64_t shapes[][2] = {{1, 1000000}, {700, 1000}, {3, 200000}};
  for (int k = 0; k < 3; ++k)
    for (int columns = 0; columns < 2; ++columns) {
      program p = program_begin();
      int64_t dim = 0;
      ir_value x = param2(&p, columns ? shapes[k][1] : shapes[k][0], columns ? shapes[k][0] : shapes[k][1]);
      ir_value e = ir_exponential(&p.b, ir_multiply(&p.b, x, ir_like_f64(&p.b, x, 0.01)));
      ir_value r[2] = {columns ? ir_reduce(&p.b, IR_ADD, e, 1, &dim) : last(&p, IR_ADD, e), e};
      if (!program_compile(&p, false, 2, r)) return;
      soft_block *in = block_of(&p, 0, 0.3), *out[3][2];
      const int threads[3] = {1, 2, 3};
      for (int t = 0; t < 3; ++t) {
        base_pool_resize(threads[t]);
        CHECK_OK(soft_execute(p.e, hbm, &in, NULL, out[t], NULL));
      }
      for (int t = 1; t < 3; ++t)
        for (int i = 0; i < 2; ++i) CHECK(memcmp(out[0][i]->data, out[t][i]->data, out[0][i]->bytes) == 0);
      for (int t = 0; t < 3; ++t) soft_block_free(out[t][0]), soft_block_free(out[t][1]);
      soft_block_free(in);
      soft_executable_free(p.e);
    }
}

TEST(products_of_every_view) {
  program p = program_begin();
  int64_t dims[4] = {2, 5, 3, 8};
  ir_value x = param(&p, TTPU_F32, 4, dims), y = param(&p, TTPU_F32, 4, dims); /* [B, T, H, D] */
  int64_t bht[4] = {0, 2, 1, 3};
  ir_value q = ir_transpose(&p.b, x, bht), k = ir_transpose(&p.b, y, bht);
  int64_t batch[2] = {0, 1}, last_dim = 3, both[2] = {1, 3};
  ir_dot_general_attrs scores = {.lhs_batching_dimensions = {batch, 2},
                                 .rhs_batching_dimensions = {batch, 2},
                                 .lhs_contracting_dimensions = {&last_dim, 1},
                                 .rhs_contracting_dimensions = {&last_dim, 1},
                                 .precision = IR_PRECISION_HIGHEST};
  int64_t zero = 0;
  ir_dot_general_attrs two = {.lhs_batching_dimensions = {&zero, 1},
                              .rhs_batching_dimensions = {&zero, 1},
                              .lhs_contracting_dimensions = {both, 2},
                              .rhs_contracting_dimensions = {both, 2},
                              .precision = IR_PRECISION_HIGHEST};
  ir_value r[2] = {ir_dot_general(&p.b, q, k, &scores, TTPU_F32), ir_dot_general(&p.b, x, y, &two, TTPU_F32)};
  if (!program_compile(&p, false, 2, r)) return;
  program_check(&p, 1e-5);
  soft_executable_free(p.e);
}

TEST(an_index_out_of_range_is_found) {
  program p = program_begin();
  int64_t n = 50;
  ir_value i = param(&p, TTPU_I64, 1, &n), c = ir_check_index(&p.b, i, 0, 6, IR_BAD_INDEX, "index_select"),
           r = ir_add(&p.b, c, c);
  if (!program_compile(&p, false, 1, &r)) return;
  soft_block *in = block_of(&p, 0, 1), *out = NULL;
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index_select", soft_execute(p.e, hbm, &in, NULL, &out, NULL));
  CHECK(out == NULL);
  soft_block_free(in);
  soft_executable_free(p.e);
}

/* Two checks, a result of neither, one of each, and one of a check whose result nobody uses. */
TEST(a_failed_check_spoils_only_what_needs_it) {
  program p = program_begin();
  int64_t n = 50;
  ir_value i = param(&p, TTPU_I64, 1, &n), x = param(&p, TTPU_F32, 1, &n);
  p.b.source = "free";
  ir_value free_of = ir_add(&p.b, x, x);
  p.b.source = "first";
  ir_value a = ir_check_index(&p.b, i, 0, 6, IR_BAD_INDEX, "first"), first = ir_add(&p.b, a, a);
  p.b.source = "second";
  ir_check_index(&p.b, i, 0, 7, IR_BAD_INDEX, "second");
  ir_value second = ir_multiply(&p.b, x, x);
  p.b.source = "third";
  ir_check_index(&p.b, i, 0, 1000, IR_BAD_INDEX, "third");
  ir_value third = ir_negate(&p.b, x), both = ir_add(&p.b, ir_convert(&p.b, first, TTPU_F32), second);
  if (!program_compile(&p, false, 5, (ir_value[]){free_of, first, second, third, both})) return;
  CHECK(soft_executable_can_fail_in_part(p.e));
  soft_block *in[2] = {block_of(&p, 0, 1), block_of(&p, 1, 1)}, *out[5];
  for (int64_t k = 0; k < n; ++k) ((int64_t *)in[0]->data)[k] = k % 10, ((float *)in[1]->data)[k] = (float)k;
  uint32_t causes[5];
  soft_damage damage = {.causes = causes};
  CHECK_OK(soft_execute(p.e, hbm, in, NULL, out, &damage));
  CHECK_EQ(damage.check_count, 2);
  if (damage.check_count == 2)
    CHECK(strstr(damage.checks[0].message, "first") && strstr(damage.checks[1].message, "second"));
  const uint32_t want[5] = {0, 1 + 2, 1 + 2 + 1, 0, 1 + 2};
  for (int k = 0; k < 5; ++k) CHECK_EQ(causes[k], want[k]), CHECK_EQ(out[k] == NULL, want[k] != 0);
  if (out[0] && out[3]) CHECK_EQ(((float *)out[0]->data)[7], 14), CHECK_EQ(((float *)out[3]->data)[7], -7);
  for (int k = 0; k < 5; ++k) soft_block_free(out[k]);
  soft_damage_free(&damage);
  soft_block_free(in[0]);

  /* Now x never comes, and every index is good. */
  soft_block *good[2] = {block_of(&p, 0, 1), NULL};
  memset(good[0]->data, 0, good[0]->bytes);
  damage.lost = (bool[]){false, true};
  CHECK_OK(soft_execute(p.e, hbm, good, NULL, out, &damage));
  CHECK_EQ(damage.check_count, 0);
  for (int k = 0; k < 5; ++k)
    CHECK_EQ(causes[k], k == 1 ? 0 : 2), CHECK_EQ(out[k] == NULL, k != 1), soft_block_free(out[k]);
  soft_damage_free(&damage);
  soft_block_free(good[0]);
  soft_block_free(in[1]);
  soft_executable_free(p.e);
}

/* ---- control flow -------------------------------------------------------------------------------- */

/* for (i = 0; i < runs; ++i) table[i] = row = (row * w^T + bias) / 2, swap(a, b), and bias stays. */
static void loop_check(int64_t runs, int64_t n) {
  program p = program_begin();
  ir_builder *b = &p.b;
  ir_value wt = param2(&p, n, n), table = param2(&p, 8, n), row = param2(&p, 1, n), bias = param(&p, TTPU_F32, 1, &n);
  ir_value first = param2(&p, 3, 4), second = param2(&p, 3, 4);
  ir_value w = ir_transpose(b, wt, (int64_t[]){1, 0}), limit = ir_scalar_i64(b, TTPU_I64, runs);
  ir_value state[6] = {ir_scalar_i64(b, TTPU_I64, 0), table, row, bias, first, second};
  ir_type types[6];
  for (int i = 0; i < 6; ++i) types[i] = ir_type_of(p.f, state[i]);
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 6, types, &outer);
  ir_value more = ir_compare(b, IR_LT, regions[0]->first_arg, limit);
  ir_region_end(b, outer, 1, &more);
  regions[1] = ir_region_begin(b, 6, types, &outer);
  ir_value in = regions[1]->first_arg, zero = ir_scalar_i64(b, TTPU_I64, 0);
  row = ir_matmul(b, in + 2, w, IR_PRECISION_HIGHEST, TTPU_F32);
  row = ir_add(b, row, ir_broadcast_in_dim(b, in + 3, 2, types[2].dims, (int64_t[]){1}));
  row = ir_multiply(b, row, ir_like_f64(b, row, 0.5));
  ir_value written = ir_dynamic_update_slice(b, in + 1, row, (ir_value[]){in, zero});
  ir_value next[6] = {ir_add(b, in, ir_scalar_i64(b, TTPU_I64, 1)), written, row, in + 3, in + 5, in + 4};
  ir_region_end(b, outer, 6, next);
  ir_value v = ir_append(b, IR_WHILE, 6, state, NULL, 0, NULL, 2, regions);
  ir_value results[6];
  for (uint32_t i = 0; i < 6; ++i) results[i] = v + i;
  if (!program_compile(&p, false, 6, results)) return;
  program_check(&p, 1e-4);
  soft_executable_free(p.e);
}
TEST(while_updates_swaps_and_leaves_its_state) {
  for (int64_t runs = 0; runs <= 8; ++runs) loop_check(runs, runs == 4 ? 300 : 5);
}

/* f(x) of an inner loop in a branch of a loop: 1 + 2 + ... of what is captured two regions out. */
TEST(control_flow_nests) {
  program p = program_begin();
  ir_builder *b = &p.b;
  int64_t n = 33;
  ir_value x = param(&p, TTPU_F32, 1, &n), third = ir_fill_f64(b, TTPU_F32, 1, &n, 1. / 3);
  ir_value start[2] = {ir_scalar_i64(b, TTPU_I32, 0), x};
  ir_type types[2] = {ir_type_of(p.f, start[0]), ir_type_of(p.f, start[1])};
  ir_region *outer, *middle, *regions[2], *branches[3];
  regions[0] = ir_region_begin(b, 2, types, &outer);
  ir_value more = ir_compare(b, IR_LT, regions[0]->first_arg, ir_scalar_i64(b, TTPU_I32, 7));
  ir_region_end(b, outer, 1, &more);
  regions[1] = ir_region_begin(b, 2, types, &outer);
  ir_value i = regions[1]->first_arg, y = i + 1;
  for (int k = 0; k < 3; ++k) {
    branches[k] = ir_region_begin(b, 0, NULL, &middle);
    ir_value r = k == 0 ? y : k == 1 ? ir_add(b, y, third) : ir_multiply(b, x, ir_add(b, y, third));
    ir_region_end(b, middle, 1, &r);
  }
  ir_value chosen = ir_append(b, IR_CASE, 1, &i, NULL, 0, NULL, 3, branches);
  ir_value next[2] = {ir_add(b, i, ir_scalar_i64(b, TTPU_I32, 1)), chosen};
  ir_region_end(b, outer, 2, next);
  ir_value v = ir_append(b, IR_WHILE, 2, start, NULL, 0, NULL, 2, regions), results[3] = {v, v + 1, x};
  if (!program_compile(&p, false, 3, results)) return;
  program_check(&p, 1e-4);
  soft_executable_free(p.e);
}

/* A loop reads what is computed before it, and an operation after it reads both: that one cannot be fused with the former. */
TEST(what_a_loop_captures_is_computed_before_it) {
  program p = program_begin();
  ir_builder *b = &p.b;
  ir_value x = param2(&p, 5, 5), product = ir_matmul(b, x, x, IR_PRECISION_HIGHEST, TTPU_F32);
  ir_value captured = ir_add(b, product, ir_like_f64(b, product, 0.25));
  ir_value start[2] = {ir_scalar_i64(b, TTPU_I32, 0), ir_fill_f64(b, TTPU_F32, 2, (int64_t[]){5, 5}, 0)};
  ir_type types[2] = {ir_type_of(p.f, start[0]), ir_type_of(p.f, start[1])};
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 2, types, &outer);
  ir_value more = ir_compare(b, IR_LT, regions[0]->first_arg, ir_scalar_i64(b, TTPU_I32, 3));
  ir_region_end(b, outer, 1, &more);
  regions[1] = ir_region_begin(b, 2, types, &outer);
  ir_value i = regions[1]->first_arg;
  ir_value next[2] = {ir_add(b, i, ir_scalar_i64(b, TTPU_I32, 1)), ir_add(b, i + 1, captured)};
  ir_region_end(b, outer, 2, next);
  ir_value v = ir_append(b, IR_WHILE, 2, start, NULL, 0, NULL, 2, regions);
  ir_value result = ir_multiply(b, v + 1, captured);
  if (!program_compile(&p, false, 1, &result)) return;
  program_check(&p, 1e-6);
  soft_executable_free(p.e);
}

TEST(if_and_case_choose) {
  for (int choice = -1; choice < 5; ++choice) {
    program p = program_begin();
    ir_builder *b = &p.b;
    int64_t n = 4, dims[2] = {4, 6};
    bool two = choice >= 0 && choice < 2;
    ir_value x = param(&p, TTPU_F32, 1, &n), wide = ir_broadcast_in_dim(b, x, 2, dims, (int64_t[]){0});
    ir_value index = two ? ir_compare(b, IR_EQ, ir_scalar_i64(b, TTPU_I32, choice), ir_scalar_i64(b, TTPU_I32, 1))
                         : ir_scalar_i64(b, TTPU_I32, choice);
    ir_region *outer, *regions[3];
    uint32_t count = two ? 2 : 3;
    for (uint32_t k = 0; k < count; ++k) {
      regions[k] = ir_region_begin(b, 0, NULL, &outer);
      ir_value y[2] = {ir_add(b, x, ir_like_f64(b, x, k + 1)), wide};
      ir_region_end(b, outer, 2, y);
    }
    ir_value v = ir_append(b, two ? IR_IF : IR_CASE, 1, &index, NULL, 0, NULL, count, regions);
    ir_value results[2] = {v, v + 1};
    if (!program_compile(&p, false, 2, results)) return;
    program_check(&p, 0);
    soft_executable_free(p.e);
  }
}

static ttpu_status compile_and_run(void *context) {
  (void)context;
  program p = {.arena = base_alloc(sizeof *p.arena)};
  if (!p.arena) return base_no_memory(sizeof *p.arena);
  base_arena_init(p.arena);
  p.f = ir_func_new(p.arena, "main");
  ttpu_status status = p.f ? TTPU_OK : base_no_memory(1);
  if (status == TTPU_OK) {
    p.b = ir_builder_on(p.f);
    static int64_t width = 40; /* another rank each time would be another structure; the first run compiles */
    ir_value x = param2(&p, 30, width), y = softmax(&p, x), z = ir_concatenate(&p.b, 2, (ir_value[]){y, x}, 0);
    ir_value r[2] = {z, ir_transpose(&p.b, y, (int64_t[]){1, 0})};
    ir_return(&p.b, 2, r);
    status = p.b.status == TTPU_OK ? TTPU_OK : base_fail(p.b.status, "%s", p.b.message);
  }
  if (status == TTPU_OK) status = soft_compile(p.arena, p.f, NULL, &p.e);
  if (status != TTPU_OK) {
    base_arena_free(p.arena);
    base_free(p.arena);
    return status;
  }
  soft_block *in = NULL, *out[2];
  status = soft_block_new(hbm, 30 * 40 * 4, &in);
  if (status == TTPU_OK) {
    memset(in->data, 0, in->bytes);
    status = soft_execute(p.e, hbm, &in, NULL, out, NULL);
  }
  if (status == TTPU_OK) soft_block_free(out[0]), soft_block_free(out[1]);
  soft_block_free(in);
  soft_executable_free(p.e);
  return status;
}
/* The gradients of slices: zeros with one slice written, added up. Each is added where it lies, and in place. */
TEST(slices_of_zeros_are_added_in_place) {
  enum { STEPS = 5 };
  program p = program_begin();
  ir_value parts[STEPS], sum = 0;
  for (int i = 0; i < STEPS; ++i) parts[i] = param2(&p, 4, 8);
  ir_value x = param(&p, TTPU_F32, 3, (int64_t[]){4, STEPS, 8});
  for (int i = 0; i < STEPS; ++i) {
    ir_value zeros = ir_fill_f64(&p.b, TTPU_F32, 3, (int64_t[]){4, STEPS, 8}, 0);
    ir_value one = ir_as_strided_update(&p.b, zeros, parts[i], (int64_t[]){STEPS * 8, 1}, i * 8);
    sum = i == 0 ? one : i % 2 ? ir_add(&p.b, sum, one) : ir_add(&p.b, one, sum);
    CHECK_EQ(ir_def(p.f, sum)->kind, IR_AS_STRIDED_UPDATE);
  }
  ir_value ones = ir_fill_f64(&p.b, TTPU_F32, 3, (int64_t[]){4, STEPS, 8}, 1); /* not zeros: a sum of two tensors */
  ir_value other = ir_as_strided_update(&p.b, ones, parts[0], (int64_t[]){STEPS * 8, 1}, 0);
  ir_value r[3] = {sum, ir_add(&p.b, x, sum), ir_add(&p.b, x, other)};
  CHECK_EQ(ir_def(p.f, r[1])->kind, IR_ADD);
  CHECK_EQ(ir_def(p.f, r[2])->kind, IR_ADD);
  if (!program_compile(&p, false, 3, r)) return;
  CHECK(soft_executable_get_stats(p.e).temp_bytes < 3 * 4 * STEPS * 8 * 4); /* one tensor, not one a step */
  program_check(&p, 0);
  soft_executable_free(p.e);
}

TEST(no_memory_is_a_status) {
  if (!hbm) CHECK_OK(soft_hbm_new((size_t)1 << 32, &hbm));
  size_t before = soft_hbm_get_stats(hbm).in_use;
  CHECK(check_out_of_memory(compile_and_run, NULL) > 3);
  CHECK_EQ(soft_hbm_get_stats(hbm).in_use, before);
}

TEST(nothing_is_left_in_use) { CHECK_EQ(soft_hbm_get_stats(hbm).in_use, 0); }
