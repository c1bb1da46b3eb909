/* Portable artifacts as we write them: read again they are the same function, and the bytes are always the same. */
#include "check.h"
#include "ir_examples.h"

static base_text write(const ir_func *f, unsigned version) {
  base_text bytes = {0};
  CHECK_OK(ir_func_write(f, version, &bytes));
  return bytes;
}

/* Not every row of ops.def is an operation of StableHLO or a composite: another dialect's are refused. */
static bool is_refused(const ir_func *f) {
  base_text bytes = {0};
  bool refused =
      ir_func_write(f, 0, &bytes) == TTPU_UNIMPLEMENTED && strstr(base_message(), "no operation of StableHLO");
  base_text_free(&bytes);
  return refused;
}

/* Windows' lists that are left empty come back as the ones that they stand for. */
static bool has_defaults(ir_kind kind) {
  return kind == IR_CONVOLUTION || kind == IR_REDUCE_WINDOW || kind == IR_SELECT_AND_SCATTER;
}

/* Of another dialect, which no version of StableHLO has. */
static bool is_foreign(int kind) { return kind == IR_MANUAL_COMPUTATION; }

/* The version that brought an operation, where that is one of those tried, or later. */
static unsigned first_version(int kind) { return kind == IR_COLLECTIVE_REDUCE ? 119 : 0; }

TEST(every_operation_survives) {
  static const unsigned versions[] = {0, 104, 106, 110, 120};
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind)
    for (size_t v = 0; v < sizeof versions / sizeof *versions && !is_foreign(kind); ++v) {
      if (versions[v] && versions[v] < first_version(kind)) continue;
      base_arena arena;
      base_arena_init(&arena);
      ir_builder b;
      ir_func *f = example_build(&b, &arena, (ir_kind)kind), *again = NULL;
      REQUIRE(b.status == TTPU_OK);
      if (is_refused(f)) {
        base_arena_free(&arena);
        continue;
      }
      base_text bytes = write(f, versions[v]);
      if (CHECK_OK(ir_parse(&arena, bytes.data, bytes.length, &again))) {
        base_text twice = write(again, versions[v]);
        CHECK(twice.length == bytes.length && memcmp(twice.data, bytes.data, bytes.length) == 0);
        base_hash128 x = ir_func_hash(f), y = ir_func_hash(again);
        if (!has_defaults((ir_kind)kind) && (x.a != y.a || x.b != y.b))
          check_fail(__FILE__, __LINE__, "%s is another function", ir_ops[kind].name);
        base_text_free(&twice);
      } else {
        fprintf(stderr, "^ %s\n", ir_ops[kind].name);
      }
      base_text_free(&bytes);
      base_arena_free(&arena);
    }
}

TEST(constants_of_every_dtype_survive) {
  static const int64_t sizes[] = {0, 1, 3, 8, 9, 17, 70};
  uint64_t seed = 11;
  for (int t = 1; t < TTPU_DTYPE_COUNT; ++t)
    if (base_dtypes[t].cls != DTYPE_TOKEN)
      for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
        for (int splat = 0; splat < 2; ++splat) {
          base_arena arena;
          base_arena_init(&arena);
          ir_func *f = ir_func_new(&arena, "main"), *again = NULL;
          ir_builder b = ir_builder_on(f);
          uint8_t data[70 * 16];
          for (size_t i = 0; i < sizeof data; ++i)
            data[i] = (uint8_t)(t == TTPU_BOOL ? check_random(&seed) & 1 : check_random(&seed));
          const int64_t dims[2] = {sizes[s], 1};
          ir_value v = ir_constant(&b, (ir_type){(uint8_t)t, 2, dims}, (ir_data){data, splat});
          ir_return(&b, 1, &v);
          base_text bytes = write(f, 0);
          if (CHECK_OK(ir_parse(&arena, bytes.data, bytes.length, &again))) {
            const ir_data *back = &IR_ATTRS(again->body.ops[0], constant)->value;
            size_t each = base_dtype_bytes((ttpu_dtype)t);
            CHECK(sizes[s] < 2 || t == TTPU_BOOL || back->splat == splat); /* eight times true may be a splat */
            for (int64_t i = 0; i < sizes[s]; ++i)
              CHECK(memcmp((const uint8_t *)back->bytes + (back->splat ? 0 : (size_t)i * each),
                           data + (splat ? 0 : (size_t)i * each), each) == 0);
          }
          base_text_free(&bytes);
          base_arena_free(&arena);
        }
}

static ir_func *batched_gather(base_arena *arena, bool batched) {
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  const int64_t dims[2] = {4, 3};
  ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 2, dims)), i = ir_param(&b, ir_tensor(&b, TTPU_I64, 2, dims));
  ir_value y = batched ? ir_take_along(&b, x, i, 1) : ir_tan(&b, x);
  ir_return(&b, 1, &y);
  CHECK_EQ(b.status, TTPU_OK);
  return f;
}

/* Batching dimensions came with 1.1, tan with 1.4. */
TEST(the_version_is_the_oldest_that_holds_the_program) {
  base_arena arena;
  base_arena_init(&arena);
  base_text bytes = write(batched_gather(&arena, true), 0), tan = write(batched_gather(&arena, false), 0), none = {0};
  CHECK_STR(bytes.data + 5, "StableHLO_v1.1.0");
  CHECK_STR(tan.data + 5, "StableHLO_v1.4.0");
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "1.1", ir_func_write(batched_gather(&arena, true), 100, &none));
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "9.9", ir_func_write(batched_gather(&arena, true), 909, &none));
  CHECK_EQ(none.length, 0);
  base_text_free(&bytes);
  base_text_free(&tan);
  base_text_free(&none);
  base_arena_free(&arena);
}

TEST(donated_parameters_survive) {
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f = batched_gather(&arena, true), *again;
  f->donate = (const bool[]){true, false};
  base_text bytes = write(f, 0);
  if (CHECK_OK(ir_parse(&arena, bytes.data, bytes.length, &again)))
    CHECK(again->donate && again->donate[0] && !again->donate[1]);
  base_text_free(&bytes);
  base_arena_free(&arena);
}

TEST(shardings_survive) {
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f = batched_gather(&arena, true), *again;
  const char *parameters[] = {"{devices=[2,1]<=[2]}", NULL}, *results[] = {"{replicated}"};
  f->shardings = &(const ir_shardings){.parameters = parameters, .results = results};
  base_text bytes = write(f, 0);
  if (CHECK_OK(ir_parse(&arena, bytes.data, bytes.length, &again)) && CHECK(again->shardings != NULL)) {
    CHECK_STR(again->shardings->parameters[0], parameters[0]);
    CHECK(again->shardings->parameters[1] == NULL);
    CHECK_STR(again->shardings->results[0], results[0]);
  }
  parameters[0] = "#sdy.sharding<@mesh, [{\"x\"}, {}]>";
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "#sdy.sharding", ir_func_write(f, 0, &bytes));
  base_text_free(&bytes);
  base_arena_free(&arena);
}

TEST(a_file_that_ends_early_is_an_error) {
  static const ir_kind kinds[] = {IR_CONVOLUTION, IR_WHILE, IR_CUSTOM_CALL, IR_TOP_K};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    base_arena arena;
    base_arena_init(&arena);
    ir_builder b;
    ir_func *f = example_build(&b, &arena, kinds[i]), *again;
    base_text bytes = write(f, 0);
    for (size_t length = 0; length < bytes.length; ++length)
      if (ir_parse(&arena, bytes.data, length, &again) == TTPU_OK || (length > 4 && !strstr(base_message(), "byte ")))
        check_fail(__FILE__, __LINE__, "%s, %zu bytes: %s", ir_ops[kinds[i]].name, length, base_message());
    base_text_free(&bytes);
    base_arena_free(&arena);
  }
}

static ttpu_status build_write_parse(void *kind) {
  base_arena arena;
  base_arena_init(&arena);
  ir_builder b;
  ir_func *f = example_build(&b, &arena, *(const ir_kind *)kind), *again;
  base_text bytes = {0};
  ttpu_status status = b.status ? b.status : ir_func_write(f, 0, &bytes);
  if (status == TTPU_OK) status = ir_parse(&arena, bytes.data, bytes.length, &again);
  base_text_free(&bytes);
  base_arena_free(&arena);
  return status;
}

TEST(out_of_memory_is_a_status) {
  static const ir_kind kinds[] = {IR_CONVOLUTION, IR_WHILE, IR_ATTENTION, IR_SCATTER};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    ir_kind kind = kinds[i];
    CHECK(check_out_of_memory(build_write_parse, &kind) > 0);
  }
}
