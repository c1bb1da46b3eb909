/* Random programs (soft_programs.h), compiled, against the scalar reference, bit by bit: whatever differs is a mistake in
 * fusion, views, loops, memory or dtypes, not rounding. Accuracy of inexact functions is test_soft_tile_math's matter. */
#include "soft_programs.h"

/* -0 and 0, and NaNs of any kind, count as equal. */
static bool same(ir_type t, const void *a, const void *b, int64_t *where) {
  size_t size = base_dtype_bytes((ttpu_dtype)t.dtype);
  for (int64_t i = 0, n = ir_numel(t); i < n; ++i) {
    const char *x = (const char *)a + (size_t)i * size, *y = (const char *)b + (size_t)i * size;
    if (memcmp(x, y, size) == 0) continue;
    base_scalar u = base_scalar_load((ttpu_dtype)t.dtype, x), v = base_scalar_load((ttpu_dtype)t.dtype, y);
    *where = i;
    if (!base_dtype_is_float((ttpu_dtype)t.dtype) && !base_dtype_is_complex((ttpu_dtype)t.dtype)) return false;
    for (int k = 0; k < 2; ++k)
      if (!(u.d[k] == v.d[k] || (isnan(u.d[k]) && isnan(v.d[k])))) return false;
  }
  return true;
}

static void print_func(const ir_func *f) {
  base_text text = {0};
  if (ir_func_print(f, &text) == TTPU_OK) fprintf(stderr, "%s\n", text.data);
  base_text_free(&text);
}

static void run_one(uint64_t seed, uint32_t ops, soft_hbm *hbm) {
  fuzz z = {.seed = seed};
  z.arena = base_alloc(sizeof *z.arena);
  base_arena_init(z.arena);
  z.f = ir_func_new(z.arena, "main");
  z.b = ir_builder_on(z.f);
  build(&z, ops);
  uint32_t params = z.f->body.arg_count;
  bool *donate = base_arena_zalloc(z.arena, params);
  for (uint32_t i = 0; i < params; ++i) donate[i] = draw(&z, 2);
  z.f->donate = donate;
  soft_executable *e = NULL;
  if (!CHECK(z.b.status == TTPU_OK)) fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, z.b.message);
  if (z.b.status != TTPU_OK || !CHECK_OK(soft_compile(z.arena, z.f, NULL, &e))) {
    base_arena_free(z.arena);
    base_free(z.arena);
    return;
  }
  const ir_op *ret = z.f->body.ops[z.f->body.count - 1];
  void *in[16], *expected[16];
  soft_block *arguments[16], *results[16];
  for (uint32_t i = 0; i < params; ++i) {
    ir_type t = ir_type_of(z.f, z.f->body.first_arg + i);
    in[i] = malloc(bytes_of(t) + 1);
    fill(&z.seed, t, in[i]);
    soft_block_new(hbm, bytes_of(t), &arguments[i]);
    memcpy(arguments[i]->data, in[i], bytes_of(t));
    if (!draw(&z, 4)) soft_block_share(arguments[i])->refs += 0; /* somebody else holds it: must not be written */
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i)
    expected[i] = malloc(bytes_of(ir_type_of(z.f, ret->operands[i])) + 1);
  bool shared[16];
  for (uint32_t i = 0; i < params; ++i) shared[i] = atomic_load(&arguments[i]->refs) > 1;
  CHECK_OK(soft_reference_run(z.f, in, expected));
  if (CHECK_OK(soft_execute(e, hbm, arguments, donate, results, NULL))) {
    bool bad = false;
    for (uint32_t i = 0; i < ret->operand_count; ++i) {
      ir_type t = ir_type_of(z.f, ret->operands[i]);
      int64_t where = 0;
      if (!same(t, results[i]->data, expected[i], &where)) {
        base_scalar x = base_scalar_load(
            (ttpu_dtype)t.dtype, (char *)results[i]->data + (size_t)where * base_dtype_bytes((ttpu_dtype)t.dtype));
        base_scalar y = base_scalar_load((ttpu_dtype)t.dtype,
                                         (char *)expected[i] + (size_t)where * base_dtype_bytes((ttpu_dtype)t.dtype));
        check_fail(__FILE__, __LINE__, "seed %llu: result %u (%s) differs at %lld: %g (%lld), expected %g (%lld)",
                   (unsigned long long)seed, i, base_dtypes[t.dtype].hlo_name, (long long)where, x.d[0], (long long)x.i,
                   y.d[0], (long long)y.i);
        bad = true;
      }
      for (uint32_t k = 0; k < i; ++k) CHECK(results[i] != results[k]);
    }
    for (uint32_t i = 0; i < params; ++i) /* what is not given up, or is held by others, is unchanged */
      if (!donate[i] || shared[i])
        CHECK(memcmp(arguments[i]->data, in[i], bytes_of(ir_type_of(z.f, z.f->body.first_arg + i))) == 0);
    if (bad && getenv("FUZZ_PRINT")) print_func(z.f);
    for (uint32_t i = 0; i < ret->operand_count; ++i) soft_block_free(results[i]);
  }
  for (uint32_t i = 0; i < params; ++i) {
    if (!donate[i]) soft_block_free(arguments[i]);
    if (shared[i]) soft_block_free(arguments[i]);
    free(in[i]);
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i) free(expected[i]);
  soft_executable_free(e);
}

TEST(random_programs_equal_the_reference) {
  soft_hbm *hbm;
  REQUIRE_OK(soft_hbm_new((size_t)1 << 32, &hbm));
  const char *one = getenv("FUZZ_SEED"), *many = getenv("FUZZ_COUNT"), *most = getenv("FUZZ_OPS");
  uint64_t first = one ? strtoull(one, NULL, 10) : 1, count = one ? 1 : many ? strtoull(many, NULL, 10) : 2000;
  for (uint64_t seed = first; seed < first + count && check_failures < 10; ++seed)
    run_one(seed, most ? (uint32_t)atoi(most) : 4 + (uint32_t)(seed % 40), hbm);
  CHECK_EQ(soft_hbm_get_stats(hbm).in_use, 0);
  soft_hbm_free(hbm);
}
