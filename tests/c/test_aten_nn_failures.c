/* Lowerings of aten_nn.def when memory runs out or the builder has failed before, and their shape functions. */
#include "aten_nn_calls.h"

#define SIZES(...) \
  (const int64_t[]) { __VA_ARGS__ }

/* ---- calls that build much ----------------------------------------------------------------------------- */

static void make_convolution(call *c) {
  call_begin(c, "convolution");
  call_tensor(c, TTPU_BF16, 4, SIZES(2, 4, 5, 6), NULL);
  call_tensor(c, TTPU_BF16, 4, SIZES(4, 3, 3, 2), NULL);
  call_tensor(c, TTPU_BF16, 1, SIZES(6), NULL);
  for (int i = 0; i < 3; ++i) call_ints(c, 2, i == 0 ? SIZES(2, 1) : SIZES(1, 1));
  call_int(c, 1);
  call_ints(c, 2, SIZES(1, 0));
  call_int(c, 2);
  call_result(c, TTPU_BF16, 4, SIZES(2, 6, 10, 5));
}

static void make_max_pool(call *c) {
  call_begin(c, "max_pool3d_with_indices");
  call_tensor(c, TTPU_F16, 5, SIZES(1, 2, 4, 4, 4), NULL);
  call_ints(c, 1, SIZES(2));
  call_ints(c, 0, SIZES(0));
  call_ints(c, 1, SIZES(1));
  call_ints(c, 1, SIZES(1));
  call_int(c, 0);
  call_result(c, TTPU_F16, 5, SIZES(1, 2, 3, 3, 3));
  call_result(c, TTPU_I64, 5, SIZES(1, 2, 3, 3, 3));
}

static void make_adaptive_pool(call *c) {
  call_begin(c, "_adaptive_avg_pool2d_backward");
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 3, 2), NULL);
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 7, 4), NULL);
  call_result(c, TTPU_F32, 4, SIZES(1, 2, 7, 4));
}

static void make_batch_norm(call *c) {
  call_begin(c, "native_batch_norm_backward");
  call_tensor(c, TTPU_BF16, 4, SIZES(2, 3, 4, 5), NULL);
  call_tensor(c, TTPU_BF16, 4, SIZES(2, 3, 4, 5), NULL);
  for (int i = 0; i < 5; ++i) call_tensor(c, TTPU_F32, 1, SIZES(3), NULL);
  call_int(c, 1);
  call_float(c, 1e-5);
  call_ints(c, 3, SIZES(1, 1, 1));
  call_result(c, TTPU_BF16, 4, SIZES(2, 3, 4, 5));
  call_result(c, TTPU_F32, 1, SIZES(3));
  call_result(c, TTPU_F32, 1, SIZES(3));
}

static void make_index_put(call *c) {
  call_begin(c, "index_put");
  call_tensor(c, TTPU_F16, 4, SIZES(3, 4, 5, 6), NULL);
  call_list(c, 3);
  call_element(c, TTPU_I64, 1, SIZES(2), NULL);
  call_undefined(c);
  call_element(c, TTPU_I32, 2, SIZES(3, 1), NULL);
  call_tensor(c, TTPU_F16, 0, NULL, NULL);
  call_int(c, 1);
  call_result(c, TTPU_F16, 4, SIZES(3, 4, 5, 6));
}

static void make_unique(call *c) {
  call_begin(c, "_unique2");
  call_tensor(c, TTPU_BOOL, 2, SIZES(3, 4), NULL);
  for (int i = 0; i < 3; ++i) call_int(c, 1);
  call_result(c, TTPU_BOOL, 1, SIZES(12));
  call_result(c, TTPU_I64, 2, SIZES(3, 4));
  call_result(c, TTPU_I64, 1, SIZES(12));
  call_result(c, TTPU_I64, 0, NULL);
}

static void make_embedding_bag(call *c) {
  call_begin(c, "_embedding_bag");
  call_tensor(c, TTPU_F32, 2, SIZES(5, 3), NULL);
  call_tensor(c, TTPU_I64, 1, SIZES(7), NULL);
  call_tensor(c, TTPU_I64, 1, SIZES(2), NULL);
  call_int(c, 0);
  call_int(c, 2);
  call_int(c, 0);
  call_none(c);
  call_int(c, 0);
  call_int(c, 1);
  call_result(c, TTPU_F32, 2, SIZES(2, 3));
  call_result(c, TTPU_I64, 1, SIZES(7));
  call_result(c, TTPU_I64, 1, SIZES(2));
  call_result(c, TTPU_I64, 2, SIZES(2, 3));
}

static void make_attention(call *c) {
  call_begin(c, "_scaled_dot_product_fused_attention_overrideable");
  call_tensor(c, TTPU_BF16, 4, SIZES(1, 4, 3, 8), NULL);
  for (int i = 0; i < 2; ++i) call_tensor(c, TTPU_BF16, 4, SIZES(1, 2, 5, 8), NULL);
  call_tensor(c, TTPU_BOOL, 4, SIZES(1, 1, 3, 5), NULL);
  call_float(c, 0.5);
  call_int(c, 1);
  call_int(c, 0);
  call_none(c);
  call_result(c, TTPU_BF16, 4, SIZES(1, 4, 3, 8));
  call_result(c, TTPU_F32, 3, SIZES(1, 4, 3));
  for (int i = 0; i < 4; ++i) call_result(c, TTPU_NO_DTYPE, 0, NULL);
  for (int i = 0; i < 2; ++i) call_result(c, TTPU_I64, 0, NULL);
  call_result(c, TTPU_NO_DTYPE, 0, NULL);
}

static void make_grid_sampler(call *c) {
  call_begin(c, "grid_sampler_2d_backward");
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 2, 2), NULL);
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 3, 4), NULL);
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 2, 2), NULL);
  call_int(c, 2);
  call_int(c, 2);
  call_int(c, 0);
  call_ints(c, 2, SIZES(1, 1));
  call_result(c, TTPU_F32, 4, SIZES(1, 2, 3, 4));
  call_result(c, TTPU_F32, 4, SIZES(1, 2, 2, 2));
}

static void make_fft(call *c) {
  call_begin(c, "_fft_c2r");
  call_tensor(c, TTPU_C64, 3, SIZES(2, 4, 3), NULL);
  call_ints(c, 2, SIZES(1, 0));
  call_int(c, 1);
  call_int(c, 3);
  call_result(c, TTPU_F32, 3, SIZES(3, 4, 3));
}

static void make_cholesky(call *c) {
  call_begin(c, "linalg_cholesky_ex");
  call_tensor(c, TTPU_C64, 3, SIZES(2, 3, 3), NULL);
  call_int(c, 1);
  call_int(c, 1);
  call_result(c, TTPU_C64, 3, SIZES(2, 3, 3));
  call_result(c, TTPU_I32, 1, SIZES(2));
}

static void make_upsample(call *c) {
  call_begin(c, "_upsample_bicubic2d_aa_backward");
  call_tensor(c, TTPU_F32, 4, SIZES(1, 2, 3, 4), NULL);
  call_ints(c, 2, SIZES(3, 4));
  call_ints(c, 4, SIZES(1, 2, 7, 5));
  call_int(c, 0);
  call_none(c);
  call_none(c);
  call_result(c, TTPU_F32, 4, SIZES(1, 2, 7, 5));
}

static void (*const makers[])(call *) = {make_convolution,  make_max_pool, make_adaptive_pool, make_batch_norm,
                                         make_index_put,    make_unique,   make_embedding_bag, make_attention,
                                         make_grid_sampler, make_fft,      make_cholesky,      make_upsample};
enum { MAKERS = sizeof makers / sizeof *makers };

TEST(each_builds_and_verifies) {
  for (uint32_t i = 0; i < MAKERS; ++i) {
    call c;
    makers[i](&c);
    if (!CHECK_OK(call_build(&c))) fprintf(stderr, "    in %s\n", c.call.row->name);
    for (uint32_t k = 0; k < c.out_count; ++k)
      if (c.outs[k].dtype != TTPU_NO_DTYPE) CHECK(c.results[k] != 0);
    call_end(&c);
  }
}

static ttpu_status build_again(void *context) {
  call *c = context;
  base_arena_free(&c->arena);
  return call_build(c);
}

TEST(each_survives_a_lack_of_memory) {
  for (uint32_t i = 0; i < MAKERS; ++i) {
    call c;
    makers[i](&c);
    base_arena_init(&c.arena);
    CHECK(check_out_of_memory(build_again, &c) > 0);
    call_end(&c);
  }
}

TEST(each_survives_a_failed_builder) {
  for (uint32_t i = 0; i < MAKERS; ++i) {
    call c;
    makers[i](&c);
    base_arena_init(&c.arena);
    ir_func *f = ir_func_new(&c.arena, "main");
    REQUIRE(f != NULL);
    ir_builder b = ir_builder_on(f);
    ir_fail(&b, TTPU_INTERNAL, "failed before");
    aten_lowering l = {.b = &b,
                       .call = &c.call,
                       .outs = c.outs,
                       .out_count = c.out_count,
                       .results = c.results,
                       .operand = call_operand,
                       .number = call_number,
                       .random = call_random,
                       .precision = IR_PRECISION_HIGHEST,
                       .context = &c};
    c.call.row->lower(&l);
    CHECK_STR(b.message, "failed before");
    call_end(&c);
  }
}

TEST(an_unknown_reduction_is_an_error) {
  call c;
  call_begin(&c, "scatter_reduce.two");
  call_tensor(&c, TTPU_F32, 1, SIZES(2), NULL);
  call_int(&c, 0);
  call_tensor(&c, TTPU_I64, 1, SIZES(1), NULL);
  call_tensor(&c, TTPU_F32, 1, SIZES(1), NULL);
  call_text(&c, "median");
  call_int(&c, 1);
  call_result(&c, TTPU_F32, 1, SIZES(2));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "unknown reduce argument 'median'", call_build(&c));
  call_end(&c);
}

/* ---- shapes ------------------------------------------------------------------------------------------------ */

static bool shape_is(const aten_shape *s, ttpu_dtype dtype, uint32_t rank, const int64_t *sizes) {
  return s->dtype == dtype && s->rank == rank && (rank == 0 || memcmp(s->sizes, sizes, rank * sizeof *sizes) == 0);
}

static void matrices(call *c, const char *name, int64_t inner, ttpu_dtype second) {
  call_begin(c, name);
  call_tensor(c, TTPU_F32, 2, SIZES(2, 3), NULL);
  call_tensor(c, second, 2, SIZES(inner, 4), NULL);
}

TEST(shape_of_mm) {
  aten_shape s[1];
  call c;
  matrices(&c, "mm", 3, TTPU_F32);
  CHECK(c.call.row->shape(&c.call, s));
  CHECK(shape_is(&s[0], TTPU_F32, 2, SIZES(2, 4)));
  CHECK_EQ(s[0].strides[0], 4);
  call_end(&c);
  matrices(&c, "mm", 2, TTPU_F32); /* PyTorch's error, not ours */
  CHECK(!c.call.row->shape(&c.call, s));
  call_end(&c);
  matrices(&c, "mm", 3, TTPU_F64);
  CHECK(!c.call.row->shape(&c.call, s));
  call_end(&c);
}

TEST(shape_of_rows_that_find_their_size) {
  aten_shape s[4];
  call c;
  make_unique(&c);
  CHECK(c.call.row->shape(&c.call, s));
  CHECK(shape_is(&s[0], TTPU_BOOL, 1, SIZES(12)));
  CHECK(shape_is(&s[1], TTPU_I64, 2, SIZES(3, 4)));
  CHECK(shape_is(&s[3], TTPU_I64, 0, NULL));
  call_end(&c);
  call_begin(&c, "nonzero");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 3), NULL);
  CHECK(c.call.row->shape(&c.call, s));
  CHECK(shape_is(&s[0], TTPU_I64, 2, SIZES(6, 2)));
  call_end(&c);
}

TEST(shape_of_cat) {
  aten_shape s[1];
  call c;
  call_begin(&c, "cat");
  call_list(&c, 2);
  call_element(&c, TTPU_BF16, 3, SIZES(1, 2, 3), NULL);
  call_element(&c, TTPU_BF16, 3, SIZES(1, 5, 3), NULL);
  call_int(&c, -2);
  CHECK(c.call.row->shape(&c.call, s));
  CHECK(shape_is(&s[0], TTPU_BF16, 3, SIZES(1, 7, 3)));
  call_end(&c);
}
