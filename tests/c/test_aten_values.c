/* Lowerings by hand-made cases, run by the scalar reference; tests/aten compares them with PyTorch over its own samples. */
#include "aten_nn_calls.h"

static const int64_t four[1] = {4};

static void binary(const char *name, ttpu_dtype t, const double *x, const double *y, ttpu_dtype result,
                   const double *want) {
  call c;
  call_begin(&c, name);
  call_tensor(&c, t, 1, four, x);
  call_tensor(&c, t, 1, four, y);
  call_result(&c, result, 1, four);
  call_expect(&c, 0, want, 1e-6);
  call_end(&c);
}

TEST(every_row_is_found_and_named_once) {
  for (uint32_t i = 0; i < aten_row_count; ++i) {
    CHECK(aten_row_find(aten_rows[i].name) == &aten_rows[i]);
    CHECK(aten_rows[i].lower != NULL);
    CHECK(!(aten_rows[i].flags & ATEN_DYNAMIC) || aten_rows[i].shape);
  }
  CHECK(aten_row_find("no.such_operator") == NULL);
  CHECK(aten_row_find("") == NULL);
}

TEST(integer_division_rounds_down) {
  binary("floor_divide", TTPU_I32, (double[]){-7, 7, -7, 6}, (double[]){2, -2, -2, 3}, TTPU_I32,
         (double[]){-4, -4, 3, 2});
  binary("remainder.Tensor", TTPU_I32, (double[]){-7, 7, -7, 6}, (double[]){2, -2, -2, 3}, TTPU_I32,
         (double[]){1, -1, -1, 0});
  binary("fmod.Tensor", TTPU_I32, (double[]){-7, 7, -7, 6}, (double[]){2, -2, -2, 3}, TTPU_I32,
         (double[]){-1, 1, -1, 0});
}

TEST(true_division_of_integers_gives_floats) {
  binary("div.Tensor", TTPU_I64, (double[]){1, 3, -5, 0}, (double[]){2, 4, 2, 7}, TTPU_F32,
         (double[]){0.5, 0.75, -2.5, 0});
}

TEST(float_floor_division_is_pythons) {
  binary("floor_divide", TTPU_F64, (double[]){1, -1, 6.1, 0.7}, (double[]){0.1, 0.1, -2, 0.1}, TTPU_F64,
         (double[]){9, -10, -4, 6});
}

TEST(integer_powers_with_negative_exponents) {
  binary("pow.Tensor_Tensor", TTPU_I64, (double[]){2, -1, 1, 3}, (double[]){-1, -3, -5, 4}, TTPU_I64,
         (double[]){0, -1, 1, 81});
}

TEST(shifts_by_the_width_and_more) {
  binary("bitwise_left_shift.Tensor", TTPU_I8, (double[]){5, 1, 1, -1}, (double[]){9, 3, -1, 1}, TTPU_I8,
         (double[]){0, 8, 0, -2});
  binary("bitwise_right_shift.Tensor", TTPU_I8, (double[]){-5, 8, -8, 127}, (double[]){100, 1, -1, 8}, TTPU_I8,
         (double[]){-1, 4, -1, 0});
}

TEST(halves_are_rounded_once) { /* 1 + 2^-8 is no bf16; alpha * y is not rounded before the sum */
  call c;
  call_begin(&c, "add.Tensor");
  call_tensor(&c, TTPU_BF16, 1, four, (double[]){1, 256, 1, -1});
  call_tensor(&c, TTPU_BF16, 1, four, (double[]){1, 1, 0.00390625, 1});
  call_scalar(&c, 3);
  call_result(&c, TTPU_BF16, 1, four);
  call_expect(&c, 0, (double[]){4, 260, 1.015625, 2}, 0);
  call_end(&c);
}

TEST(clamp_keeps_nan_and_lets_the_upper_bound_win) {
  call c;
  call_begin(&c, "clamp");
  call_tensor(&c, TTPU_F32, 1, four, (double[]){NAN, 5, -5, 0});
  call_scalar(&c, 2);
  call_scalar(&c, 1);
  call_result(&c, TTPU_F32, 1, four);
  CHECK(isnan(call_value(&c, 0, 0)));
  for (int i = 1; i < 4; ++i) CHECK_NEAR(call_value(&c, 0, i), 1, 0);
  call_end(&c);
}

TEST(reductions_keep_dimensions_when_asked) {
  call c;
  call_begin(&c, "mean.dim");
  call_tensor(&c, TTPU_F32, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 6});
  call_ints(&c, 1, (int64_t[]){1});
  call_int(&c, 1);
  call_none(&c);
  call_result(&c, TTPU_F32, 2, (int64_t[]){2, 1});
  call_expect(&c, 0, (double[]){1.5, 4.5}, 1e-6);
  call_end(&c);
}

TEST(variance_of_one_number_is_nan) {
  call c;
  call_begin(&c, "var.correction");
  call_tensor(&c, TTPU_F32, 1, (int64_t[]){1}, (double[]){3});
  call_none(&c);
  call_scalar(&c, 1);
  call_int(&c, 0);
  call_result(&c, TTPU_F32, 0, NULL);
  CHECK(isnan(call_value(&c, 0, 0)));
  call_end(&c);
}

TEST(logsumexp_of_infinities) {
  call c;
  call_begin(&c, "logsumexp");
  call_tensor(&c, TTPU_F32, 2, (int64_t[]){2, 2}, (double[]){-INFINITY, -INFINITY, 1000, 1000});
  call_ints(&c, 1, (int64_t[]){1});
  call_int(&c, 0);
  call_result(&c, TTPU_F32, 1, (int64_t[]){2});
  CHECK(call_value(&c, 0, 0) == -INFINITY);
  CHECK_NEAR(call_value(&c, 0, 1), 1000.6931, 1e-3);
  call_end(&c);
}

TEST(foreach_gives_one_result_an_element) {
  call c;
  call_begin(&c, "_foreach_add.ScalarList");
  call_list(&c, 2);
  call_element(&c, TTPU_F32, 1, (int64_t[]){2}, (double[]){1, 2});
  call_element(&c, TTPU_F32, 0, NULL, (double[]){5});
  call_arg_of(&c, ATEN_SCALARS, 0, 2);
  for (uint32_t i = 0; i < 2; ++i) c.numbers[i] = (aten_number){.dtype = TTPU_F64, .value = {.d = {10.0 * (i + 1), 0}}};
  c.call.number_count = 2;
  call_result(&c, TTPU_F32, 1, (int64_t[]){2});
  call_result(&c, TTPU_F32, 0, NULL);
  call_expect(&c, 0, (double[]){11, 12}, 0);
  call_expect(&c, 1, (double[]){25}, 0);
  call_end(&c);
}

TEST(tril_indices_walk_rows) {
  call c;
  call_begin(&c, "tril_indices");
  call_int(&c, 3);
  call_int(&c, 3);
  call_int(&c, 0);
  call_result(&c, TTPU_I64, 2, (int64_t[]){2, 6});
  call_expect(&c, 0, (double[]){0, 1, 1, 2, 2, 2, 0, 0, 1, 0, 1, 2}, 0);
  call_end(&c);
}

/* Counters in a function: the draws that its bit generators make. */
static uint64_t counters_drawn(const ir_func *f) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < f->body.count; ++i) {
    const ir_op *op = f->body.ops[i];
    if (op->kind != IR_RNG_BIT_GENERATOR) continue;
    ir_type t = ir_type_of(f, op->first_result + 1);
    uint64_t each = t.dtype == TTPU_U64 ? 2 : 4;
    n += ((uint64_t)ir_numel(t) + each - 1) / each;
  }
  return n;
}

TEST(random_calls_stay_within_their_counters) {
  static const struct {
    const char *name;
    ttpu_dtype dtype;
    uint32_t floats;
  } rows[] = {{"uniform_", TTPU_F32, 2},        {"uniform_", TTPU_F64, 2},     {"normal_", TTPU_F32, 2},
              {"normal_", TTPU_C128, 2},        {"exponential_", TTPU_F64, 1}, {"random_", TTPU_I64, 0},
              {"_standard_gamma", TTPU_F64, 0}, {"poisson", TTPU_F32, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    for (int64_t n = 0; n < 40; ++n) {
      call c;
      call_begin(&c, rows[i].name);
      call_tensor(&c, rows[i].dtype, 1, &n, NULL);
      for (uint32_t k = 0; k < rows[i].floats; ++k) call_float(&c, k);
      call_result(&c, rows[i].dtype, 1, &n);
      if (CHECK_OK(call_build(&c))) {
        uint64_t allowed = aten_random_counters(&c.call, c.outs);
        if (counters_drawn(c.func) > allowed)
          check_fail(__FILE__, __LINE__, "%s of %d: too many counters", rows[i].name, (int)n);
      }
      call_end(&c);
    }
}

TEST(memory_failures_are_statuses) {
  for (uint64_t nth = 1; nth < 200; ++nth) {
    call c;
    call_begin(&c, "logsumexp");
    call_tensor(&c, TTPU_BF16, 2, (int64_t[]){2, 2}, NULL);
    call_ints(&c, 1, (int64_t[]){1});
    call_int(&c, 0);
    call_result(&c, TTPU_BF16, 1, (int64_t[]){2});
    base_alloc_fail_after(nth);
    ttpu_status status = call_build(&c);
    base_alloc_fail_after(0);
    call_end(&c);
    if (status == TTPU_OK) return;
    CHECK_EQ(status, TTPU_RESOURCE_EXHAUSTED);
  }
}
