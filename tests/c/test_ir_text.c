/* The text form: print and parse give the same function again; what is not that form is refused with a position. */
#include "check.h"
#include "ir_examples.h"

static base_text print(const ir_func *f) {
  base_text text = {0};
  CHECK_OK(ir_func_print(f, &text));
  return text;
}

TEST(every_operation_survives_text) {
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind) {
    base_arena arena;
    base_arena_init(&arena);
    ir_builder b;
    ir_func *f = example_build(&b, &arena, (ir_kind)kind), *again = NULL;
    if (b.status) {
      check_fail(__FILE__, __LINE__, "%s: %s", ir_ops[kind].name, b.message);
    } else {
      CHECK_OK(ir_func_verify(f));
      bool there = kind == IR_RETURN;
      for (uint32_t i = 0; i < f->body.count; ++i) there |= f->body.ops[i]->kind == kind;
      if (!there) check_fail(__FILE__, __LINE__, "the example of %s has none", ir_ops[kind].name);
      base_text first = print(f);
      if (CHECK_OK(ir_parse(&arena, first.data, first.length, &again))) {
        base_text second = print(again);
        CHECK_STR(second.data, first.data);
        base_hash128 a = ir_func_hash(f), c = ir_func_hash(again);
        CHECK(a.a == c.a && a.b == c.b);
        base_text_free(&second);
      } else {
        fprintf(stderr, "%s\n", first.data);
      }
      base_text_free(&first);
    }
    base_arena_free(&arena);
  }
}

/* Elements of every dtype, as list, splat and hexadecimal. */
TEST(constants_survive_text) {
  static const int64_t sizes[] = {0, 1, 3, 16, 17, 70};
  uint64_t seed = 7;
  for (int t = 1; t < TTPU_TOKEN; ++t)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
      for (int splat = 0; splat < 2; ++splat) {
        base_arena arena;
        base_arena_init(&arena);
        ir_func *f = ir_func_new(&arena, "main"), *again = NULL;
        ir_builder b = ir_builder_on(f);
        uint8_t bytes[70 * 16];
        for (size_t i = 0; i < sizeof bytes; ++i)
          bytes[i] = (uint8_t)(t == TTPU_BOOL ? check_random(&seed) & 1 : check_random(&seed));
        const int64_t dims[2] = {sizes[s], 1};
        ir_value v = ir_constant(&b, (ir_type){(uint8_t)t, 2, dims}, (ir_data){bytes, splat});
        ir_return(&b, 1, &v);
        CHECK_EQ(b.status, TTPU_OK);
        base_text text = print(f);
        if (CHECK_OK(ir_parse(&arena, text.data, text.length, &again))) {
          const ir_data *data = &IR_ATTRS(again->body.ops[0], constant)->value;
          size_t length = base_dtype_bytes((ttpu_dtype)t) * (size_t)(data->splat || splat ? 1 : sizes[s]);
          if (sizes[s] > 0 && memcmp(data->bytes, bytes, length) != 0)
            check_fail(__FILE__, __LINE__, "%s x %lld: other elements\n%s", base_dtypes[t].name, (long long)sizes[s],
                       text.data);
          if (sizes[s] > 1) CHECK_EQ(data->splat, splat);
        }
        base_text_free(&text);
        base_arena_free(&arena);
      }
}

static ttpu_status parse(const char *text, ir_func **out, base_arena *arena) {
  return ir_parse(arena, text, strlen(text), out);
}

/* The spellings of other tools. */
TEST(reads_other_spellings) {
  static const char *const texts[] = {
      /* everything generic, properties, locations, aliases */
      "#loc = loc(\"a.py\":1:2)\n#alias = array<i64: 1, 0>\n"
      "\"builtin.module\"() <{sym_name = \"m\"}> ({\n"
      "  \"func.func\"() <{arg_attrs = [{jax.buffer_donor = true}], function_type = (tensor<2x3xf32>) -> "
      "tensor<3x2xf32>, "
      "sym_name = \"main\", sym_visibility = \"public\"}> ({\n"
      "  ^bb0(%arg0: tensor<2x3xf32> loc(\"x\")):\n"
      "    %0 = \"stablehlo.transpose\"(%arg0) <{permutation = #alias}> : (tensor<2x3xf32>) -> tensor<3x2xf32> "
      "loc(#loc)\n"
      "    \"func.return\"(%0) : (tensor<3x2xf32>) -> () loc(#loc1)\n"
      "  }) {mhlo.x = 1 : i32} : () -> () loc(#loc)\n"
      "}) {mhlo.num_partitions = 1 : i32} : () -> () loc(#loc)\n#loc1 = loc(callsite(#loc at #loc))\n",
      /* a call to a function, twice, with two results, and a decomposition that is not ours */
      "module @m attributes {a.b = \"}\"} { // }\n"
      "  func.func private @f(%a: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {\n"
      "    return %b, %a : tensor<2xf32>, tensor<2xf32>\n  }\n"
      "  func.func private @g(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }\n"
      "  func.func public @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32> {jax.result_info = "
      "\"\"}) {\n"
      "    %0 = \"stablehlo.abs\"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "    %1:2 = func.call @f(%a, %0) : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)\n"
      "    %2:2 = \"func.call\"(%1#1, %1#0) <{callee = @f}> : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, "
      "tensor<2xf32>)\n"
      "    %3 = \"stablehlo.composite\"(%2#0) {name = \"their.g\", composite_attributes = {n = 1 : i64}, decomposition "
      "= @g} : "
      "(tensor<2xf32>) -> tensor<2xf32>\n"
      "    return %3 : tensor<2xf32>\n  }\n}\n",
      /* CHLO, the total order, hexadecimal floats, a default dimension */
      "module {\nfunc.func @main(%x: tensor<4xbf16>) -> (tensor<2xbf16>, tensor<2xi32>, tensor<4xbf16>) {\n"
      "  %e = \"chlo.erf\"(%x) : (tensor<4xbf16>) -> tensor<4xbf16>\n"
      "  %v, %i = \"chlo.top_k\"(%e) <{k = 2 : i64}> : (tensor<4xbf16>) -> (tensor<2xbf16>, tensor<2xi32>)\n"
      "  %s = \"stablehlo.sort\"(%x) ({\n  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):\n"
      "    %c = \"stablehlo.compare\"(%a, %b) <{compare_type = #stablehlo<comparison_type TOTALORDER>, "
      "comparison_direction = "
      "#stablehlo<comparison_direction LT>}> : (tensor<bf16>, tensor<bf16>) -> tensor<i1>\n"
      "    \"stablehlo.return\"(%c) : (tensor<i1>) -> ()\n  }) : (tensor<4xbf16>) -> tensor<4xbf16>\n"
      "  return %v, %i, %s : tensor<2xbf16>, tensor<2xi32>, tensor<4xbf16>\n}\n}\n",
      /* custom calls that mean ours, calls to our decompositions, operations of other dialects at the top */
      "\"builtin.module\"() ({\n\"sdy.mesh\"() <{mesh = #sdy.mesh<[\"x\"=2]>, sym_name = \"mesh\"}> : () -> ()\n"
      "\"func.func\"() <{function_type = () -> (), sym_name = \"main\"}> ({\n^bb0(%x: tensor<4xf32>):\n"
      "  %0 = \"stablehlo.custom_call\"(%x) <{call_target_name = \"mhlo.erf\", has_side_effect = false}> {mhlo.version "
      "= 1 : i64} : "
      "(tensor<4xf32>) -> tensor<4xf32>\n"
      "  %1:2 = \"stablehlo.custom_call\"(%0) {call_target_name = \"mhlo.topk\", mhlo.attributes = {k = 3 : i64, "
      "largest = false}} : "
      "(tensor<4xf32>) -> (tensor<3xf32>, tensor<3xi32>)\n"
      "  %2 = \"func.call\"(%1#0) <{callee = @ttpu.atan.7}> : (tensor<3xf32>) -> tensor<3xf32>\n"
      "  \"func.return\"(%2, %1#1) : (tensor<3xf32>, tensor<3xi32>) -> ()\n}) : () -> ()\n}) : () -> ()\n",
      /* convolution's raw numbers, padding as a splat, a bare function */
      "func.func @main(%x: tensor<1x4x4x1xf32>, %w: tensor<3x3x1x1xf32>) -> tensor<1x4x4x1xf32> {\n"
      "  %0 = \"stablehlo.convolution\"(%x, %w) {dimension_numbers = #stablehlo.conv<raw input_batch_dimension = 0, "
      "input_feature_dimension = 3, input_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 2, "
      "kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1], output_batch_dimension = 0, "
      "output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>, padding = dense<1> : tensor<2x2xi64>, "
      "batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x1xf32>, tensor<3x3x1x1xf32>) -> "
      "tensor<1x4x4x1xf32>\n"
      "  return %0 : tensor<1x4x4x1xf32>\n}\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    base_arena arena;
    base_arena_init(&arena);
    ir_func *f = NULL, *again = NULL;
    if (CHECK_OK(parse(texts[i], &f, &arena))) {
      base_text text = print(f);
      CHECK_OK(ir_parse(&arena, text.data, text.length, &again));
      if (i < 2) CHECK(f->donate && f->donate[0]);
      if (i == 1) CHECK_EQ(f->body.count, 2); /* abs, return: calls are gone */
      if (i == 3) CHECK_EQ(f->body.ops[0]->kind, IR_ERF);
      if (i == 3) CHECK(!IR_ATTRS(f->body.ops[1], top_k)->largest);
      if (i == 3) CHECK_EQ(f->body.ops[3]->kind, IR_ATAN);
      if (i == 1) CHECK_EQ(f->body.ops[1]->operands[0], f->body.ops[0]->first_result);
      base_text_free(&text);
    }
    base_arena_free(&arena);
  }
}

TEST(says_what_and_where) {
  static const struct {
    ttpu_status code;
    const char *part, *text;
  } cases[] = {
      {TTPU_INVALID_ARGUMENT, "no function", ""},
      {TTPU_INVALID_ARGUMENT, "not closed", "module {\n"},
      {TTPU_INVALID_ARGUMENT, "expected a module", "modul {}"},
      {TTPU_INVALID_ARGUMENT, "line 1, column 29", "func.func @main(%a: tensor<2f32>) -> tensor<2xf32> {}"},
      {TTPU_UNIMPLEMENTED, "dynamic", "func.func @main(%a: tensor<?xf32>) -> () {\n \"func.return\"() : () -> ()\n}"},
      {TTPU_UNIMPLEMENTED, "'i3'", "func.func @main(%a: tensor<2xi3>) -> () {\n \"func.return\"() : () -> ()\n}"},
      {TTPU_INVALID_ARGUMENT, "%b is not defined",
       "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n return %b : tensor<f32>\n}"},
      {TTPU_UNIMPLEMENTED, "stablehlo.nothing",
       "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n %0 = \"stablehlo.nothing\"(%a) : (tensor<f32>) -> "
       "tensor<f32>\n}"},
      {TTPU_INVALID_ARGUMENT, "'fast' is not expected here",
       "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n %0 = stablehlo.abs %a, fast : tensor<f32>\n}"},
      {TTPU_UNIMPLEMENTED, "checks belong to test files",
       "func.func @main(%a: tensor<f32>) {\n check.expect_eq %a, %a : tensor<f32>\n return\n}"},
      {TTPU_INVALID_ARGUMENT, "stablehlo.add: add: operand 1 is tensor<3xf32>, but operand 0 is tensor<2xf32>",
       "func.func @main(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<2xf32> {\n"
       " %0 = \"stablehlo.add\"(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>\n}"},
      {TTPU_INVALID_ARGUMENT, "is written as tensor<4xf32>",
       "func.func @main(%a: tensor<2xf32>) -> () {\n %0 = \"stablehlo.abs\"(%a) : (tensor<4xf32>) -> tensor<4xf32>\n}"},
      {TTPU_INVALID_ARGUMENT, "tensor<4xf32> was given",
       "func.func @main(%a: tensor<2xf32>) -> () {\n %0 = \"stablehlo.abs\"(%a) : (tensor<2xf32>) -> tensor<4xf32>\n}"},
      {TTPU_INVALID_ARGUMENT, "calls itself",
       "module {\nfunc.func private @f(%a: tensor<f32>) -> tensor<f32> {\n %0 = func.call @f(%a) : (tensor<f32>) -> "
       "tensor<f32>\n"
       " return %0 : tensor<f32>\n}\nfunc.func @main(%a: tensor<f32>) -> tensor<f32> {\n %0 = func.call @f(%a) : "
       "(tensor<f32>) -> tensor<f32>\n"
       " return %0 : tensor<f32>\n}\n}"},
      {TTPU_INVALID_ARGUMENT, "no attribute permutation",
       "func.func @main(%a: tensor<2x2xf32>) -> () {\n %0 = \"stablehlo.transpose\"(%a) : (tensor<2x2xf32>) -> "
       "tensor<2x2xf32>\n}"},
      {TTPU_INVALID_ARGUMENT, "256 does not fit ui8",
       "func.func @main() -> () {\n %0 = \"stablehlo.constant\"() {value = dense<256> : tensor<ui8>} "
       ": () -> tensor<ui8>\n}"},
      {TTPU_INVALID_ARGUMENT, "too few elements",
       "func.func @main() -> () {\n %0 = \"stablehlo.constant\"() {value = dense<[1]> : "
       "tensor<1000000000000xi8>} : () -> tensor<1000000000000xi8>\n}"},
      {TTPU_INVALID_ARGUMENT, "no return", "func.func @main() -> () {\n}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    base_arena arena;
    base_arena_init(&arena);
    ir_func *f = NULL;
    CHECK_FAILS(cases[i].code, cases[i].part, parse(cases[i].text, &f, &arena));
    CHECK(f == NULL);
    base_arena_free(&arena);
  }
}

/* Damaged text never does more than fail: cut, with bytes changed, with parts of other texts inside. */
TEST(garbage_is_refused) {
  uint64_t seed = 11;
  base_text texts[IR_KIND_COUNT] = {{0}};
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind) {
    base_arena arena;
    base_arena_init(&arena);
    ir_builder b;
    texts[kind] = print(example_build(&b, &arena, (ir_kind)kind));
    base_arena_free(&arena);
  }
  static const char bits[] = "<>(){}[]\"%#@:,=-0x19 \n\\";
  for (int round = 0; round < 6000; ++round) {
    const base_text *text = &texts[1 + check_random(&seed) % (IR_KIND_COUNT - 1)];
    const base_text *other = &texts[1 + check_random(&seed) % (IR_KIND_COUNT - 1)];
    size_t length = text->length;
    char *copy = malloc(length + 1); /* exact, so that the sanitizer sees a read beyond */
    memcpy(copy, text->data, length);
    int changes = 1 + (int)(check_random(&seed) % 4);
    for (int i = 0; i < changes; ++i) {
      size_t at = check_random(&seed) % length;
      switch (check_random(&seed) % 4) {
        case 0: copy[at] = (char)check_random(&seed); break;
        case 1: copy[at] = bits[check_random(&seed) % (sizeof bits - 1)]; break;
        case 2: length = at + 1; break;
        default: {
          size_t from = check_random(&seed) % other->length, n = check_random(&seed) % 40;
          for (size_t k = 0; k < n && at + k < length && from + k < other->length; ++k)
            copy[at + k] = other->data[from + k];
        }
      }
    }
    char *exact = malloc(length);
    memcpy(exact, copy, length);
    base_arena arena;
    base_arena_init(&arena);
    ir_func *f = NULL;
    ttpu_status status = ir_parse(&arena, exact, length, &f);
    CHECK((status == TTPU_OK) == (f != NULL));
    base_arena_free(&arena);
    free(exact);
    free(copy);
  }
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind) base_text_free(&texts[kind]);
}

TEST(deep_nesting_is_refused) {
  static const char *const openings[] = {"[", "{a = ", "dense<[", "#x<", "(", "{a = [{b = "};
  for (size_t i = 0; i < sizeof openings / sizeof *openings; ++i) {
    base_text text = {0};
    base_text_printf(&text, "func.func @main() -> () {\n\"stablehlo.constant\"() {value = ");
    for (int k = 0; k < 100000; ++k) base_text_printf(&text, "%s", openings[i]);
    base_arena arena;
    base_arena_init(&arena);
    ir_func *f = NULL;
    CHECK(ir_parse(&arena, text.data, text.length, &f) != TTPU_OK);
    base_text_free(&text);
    base_arena_free(&arena);
  }
  base_text text = {0}; /* regions */
  base_text_printf(&text, "func.func @main(%%p: tensor<i1>) -> () {\n");
  for (int k = 0; k < 100000; ++k) base_text_printf(&text, "\"stablehlo.if\"(%%p) ({\n");
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f = NULL;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "not closed", ir_parse(&arena, text.data, text.length, &f));
  for (int k = 0; k < 100000; ++k) base_text_printf(&text, "})\n");
  base_text_printf(&text, "}\n");
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "nested more than", ir_parse(&arena, text.data, text.length, &f));
  base_text_free(&text);
  base_arena_free(&arena);
}

/* Two calls to a function of two calls to ...: 2^60 of them. */
/* Attributes are kept as C strings, which a zero would cut. Behind the module it does no harm. */
TEST(zeros_inside_are_refused) {
  char text[] = "func.func @main() {\n  return {a = \"?\"}\n}\n";
  base_arena arena;
  ir_func *f;
  base_arena_init(&arena);
  *strchr(text, '?') = 0;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "line 2, column 16: a character 0", ir_parse(&arena, text, sizeof text - 1, &f));
  static const char good[] = "func.func @main() {\n  return\n}\n";
  CHECK_OK(ir_parse(&arena, good, sizeof good, &f));
  base_arena_free(&arena);
}

TEST(explosive_calls_are_refused) {
  base_text text = {0};
  base_text_printf(&text, "module {\nfunc.func @main() -> () {\nfunc.call @f0() : () -> ()\nreturn\n}\n");
  for (int i = 0; i < 60; ++i)
    base_text_printf(
        &text,
        "func.func private @f%d() -> () {\nfunc.call @f%d() : () -> ()\nfunc.call @f%d() : () -> ()\nreturn\n}\n", i,
        i + 1, i + 1);
  base_text_printf(&text, "func.func private @f60() -> () {\nreturn\n}\n}\n");
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f = NULL;
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "calls", ir_parse(&arena, text.data, text.length, &f));
  base_text_free(&text);
  base_arena_free(&arena);
}

/* ---- out of memory -------------------------------------------------------------------------- */

TEST(a_missing_attribute_is_named) {
  static const char text[] =
      "func.func @main(%x: tensor<2xf32>) -> tensor<3x2xf32> {\n"
      "  %y = \"stablehlo.broadcast\"(%x) {broadcast_size = array<i64: 3>} : (tensor<2xf32>) -> tensor<3x2xf32>\n"
      "  \"func.return\"(%y) : (tensor<3x2xf32>) -> ()\n"
      "}\n";
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no attribute broadcast_sizes", ir_parse(&arena, text, sizeof text - 1, &f));
  base_arena_free(&arena);
}

/* The elements' type is written beside them, the result's behind the arrow: one that is larger would be read past the end. */
TEST(a_constant_is_as_large_as_its_elements) {
  static const char text[] =
      "func.func @main() -> tensor<1000xf32> {\n"
      "  %0 = \"stablehlo.constant\"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<1000xf32>\n"
      "  \"func.return\"(%0) : (tensor<1000xf32>) -> ()\n"
      "}\n";
  base_arena arena;
  base_arena_init(&arena);
  ir_func *f;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "the value is tensor<2xf32>", ir_parse(&arena, text, sizeof text - 1, &f));
  base_arena_free(&arena);
}

static ttpu_status build_print_parse(void *ctx) {
  ir_kind kind = *(ir_kind *)ctx;
  base_arena arena;
  base_arena_init(&arena);
  base_text text = {0};
  ir_builder b;
  ir_func *f = example_build(&b, &arena, kind), *again = NULL, *plain = NULL;
  ttpu_status status = b.status;
  if (status == TTPU_OK) status = ir_func_print(f, &text);
  if (status == TTPU_OK) status = ir_parse(&arena, text.data, text.length, &again);
  if (status == TTPU_OK) status = ir_decompose(again, &arena, NULL, &plain);
  base_text_free(&text);
  base_arena_free(&arena);
  return status;
}

TEST(out_of_memory_is_a_status) {
  for (ir_kind kind = 1; kind < IR_KIND_COUNT; ++kind) CHECK(check_out_of_memory(build_print_parse, &kind) > 0);
}
