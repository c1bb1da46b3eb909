/* Lowerings of aten_nn.def, run by the software TPU's scalar reference: one plain case of each kind, and the corners
 * where a mistake is likely. */
#include "aten_nn_calls.h"

#define SIZES(...) \
  (const int64_t[]) { __VA_ARGS__ }
#define VALUES(...) \
  (const double[]) { __VA_ARGS__ }

TEST(mm_multiplies) {
  call c;
  call_begin(&c, "mm");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  call_tensor(&c, TTPU_F32, 2, SIZES(3, 2), VALUES(1, 0, 0, 1, 1, 1));
  call_result(&c, TTPU_F32, 2, SIZES(2, 2));
  call_expect(&c, 0, VALUES(4, 5, 10, 11), 0);
  call_end(&c);
}

TEST(mm_over_nothing_is_zero) {
  call c;
  call_begin(&c, "mm");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 0), NULL);
  call_tensor(&c, TTPU_F32, 2, SIZES(0, 2), NULL);
  call_result(&c, TTPU_F32, 2, SIZES(2, 2));
  call_expect(&c, 0, VALUES(0, 0, 0, 0), 0);
  call_end(&c);
}

static void addmm(double beta, double alpha, const double *self, const double *want) {
  call c;
  call_begin(&c, "addmm");
  call_tensor(&c, TTPU_F32, 1, SIZES(2), self);
  call_tensor(&c, TTPU_F32, 2, SIZES(1, 2), VALUES(1, 2));
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 2), VALUES(1, 2, 3, 4));
  call_scalar(&c, beta);
  call_scalar(&c, alpha);
  call_result(&c, TTPU_F32, 2, SIZES(1, 2));
  call_expect(&c, 0, want, 0);
  call_end(&c);
}

TEST(addmm_scales) {
  addmm(1, 1, VALUES(1, 1), VALUES(8, 11));
  addmm(2, 0.5, VALUES(1, 1), VALUES(5.5, 7));
  addmm(1, 0, VALUES(1, 2), VALUES(1, 2));
}

TEST(addmm_with_beta_0_reads_no_nan) { addmm(0, 1, VALUES(NAN, INFINITY), VALUES(7, 10)); }

TEST(addmm_rounds_half_types_once) { /* 256 + 1 + 1 is 258 in f32; bf16 would lose each 1 */
  call c;
  call_begin(&c, "addmm");
  call_tensor(&c, TTPU_BF16, 1, SIZES(1), VALUES(1));
  call_tensor(&c, TTPU_BF16, 2, SIZES(1, 2), VALUES(256, 1));
  call_tensor(&c, TTPU_BF16, 2, SIZES(2, 1), VALUES(1, 1));
  call_scalar(&c, 1);
  call_scalar(&c, 1);
  call_result(&c, TTPU_BF16, 2, SIZES(1, 1));
  call_expect(&c, 0, VALUES(258), 0);
  call_end(&c);
}

static void softmax(const char *name, uint32_t rank, const int64_t *sizes, const double *x, const double *want) {
  call c;
  call_begin(&c, name);
  call_tensor(&c, TTPU_F64, rank, sizes, x);
  call_int(&c, -1);
  call_int(&c, 0);
  call_result(&c, TTPU_F64, rank, sizes);
  call_expect(&c, 0, want, 1e-15);
  call_end(&c);
}

TEST(softmax_survives_large_numbers) {
  softmax("_softmax", 2, SIZES(2, 2), VALUES(1000, 1000, -INFINITY, 3), VALUES(0.5, 0.5, 0, 1));
  softmax("_log_softmax", 1, SIZES(2), VALUES(1000, 1000), VALUES(-log(2), -log(2)));
}
TEST(softmax_of_nothing_finite_is_nan) {
  softmax("_softmax", 1, SIZES(2), VALUES(-INFINITY, -INFINITY), VALUES(NAN, NAN));
}
TEST(softmax_of_a_number_is_1) { softmax("_softmax", 0, NULL, VALUES(7), VALUES(1)); }

TEST(layer_norm_gives_its_statistics) {
  call c;
  call_begin(&c, "native_layer_norm");
  call_tensor(&c, TTPU_F64, 2, SIZES(2, 2), VALUES(1, 3, 2, 2));
  call_ints(&c, 1, SIZES(2));
  call_tensor(&c, TTPU_F64, 1, SIZES(2), VALUES(2, 1));
  call_tensor(&c, TTPU_F64, 1, SIZES(2), VALUES(0, 5));
  call_float(&c, 0.25);
  call_result(&c, TTPU_F64, 2, SIZES(2, 2));
  call_result(&c, TTPU_F64, 2, SIZES(2, 1));
  call_result(&c, TTPU_F64, 2, SIZES(2, 1));
  double r = 1 / sqrt(1.25);
  call_expect(&c, 0, VALUES(-2 * r, 5 + r, 0, 5), 1e-15);
  call_expect(&c, 1, VALUES(2, 2), 0);
  call_expect(&c, 2, VALUES(r, 2), 1e-15);
  call_end(&c);
}

TEST(batch_norm_updates_what_runs) {
  call c;
  call_begin(&c, "native_batch_norm");
  call_tensor(&c, TTPU_F64, 2, SIZES(2, 1), VALUES(1, 3));
  call_none(&c);
  call_none(&c);
  call_tensor(&c, TTPU_F64, 1, SIZES(1), VALUES(10));
  call_tensor(&c, TTPU_F64, 1, SIZES(1), VALUES(4));
  call_int(&c, 1);
  call_float(&c, 0.5);
  call_float(&c, 0);
  call_result(&c, TTPU_F64, 2, SIZES(2, 1));
  for (int i = 0; i < 4; ++i) call_result(&c, TTPU_F64, 1, SIZES(1));
  call_expect(&c, 0, VALUES(-1, 1), 0);
  call_expect(&c, 1, VALUES(2), 0);
  call_expect(&c, 2, VALUES(1), 0);
  call_expect(&c, 3, VALUES(6), 0); /* 10 / 2 + 2 / 2 */
  call_expect(&c, 4, VALUES(3), 0); /* 4 / 2 + 2 / 2: the unbiased variance */
  call_end(&c);
}

TEST(index_places_dims_as_numpy_does) {
  /* x[:, [1, -1], :, [0, 1]] of [1, 2, 2, 2]: the indexed dims are no neighbours, so the index's dim comes first */
  call c;
  call_begin(&c, "index.Tensor");
  call_tensor(&c, TTPU_I64, 4, SIZES(1, 2, 2, 2), VALUES(0, 1, 2, 3, 4, 5, 6, 7));
  call_list(&c, 4);
  call_undefined(&c);
  call_element(&c, TTPU_I64, 1, SIZES(2), VALUES(1, -1));
  call_undefined(&c);
  call_element(&c, TTPU_I64, 1, SIZES(2), VALUES(0, 1));
  call_result(&c, TTPU_I64, 3, SIZES(2, 1, 2));
  call_expect(&c, 0, VALUES(4, 6, 5, 7), 0);
  call_end(&c);
}

static void index_put(int64_t accumulate, const double *want) {
  call c;
  call_begin(&c, "index_put");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 2), VALUES(1, 2, 3, 4));
  call_list(&c, 1);
  call_element(&c, TTPU_I64, 1, SIZES(2), VALUES(1, 1));
  call_tensor(&c, TTPU_F32, 0, NULL, VALUES(10));
  call_int(&c, accumulate);
  call_result(&c, TTPU_F32, 2, SIZES(2, 2));
  call_expect(&c, 0, want, 0);
  call_end(&c);
}

TEST(index_put_replaces_or_adds) {
  index_put(0, VALUES(1, 2, 10, 10));
  index_put(1, VALUES(1, 2, 23, 24));
}

TEST(scatter_changes_a_corner_alone) {
  call c;
  call_begin(&c, "scatter_add");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 3), VALUES(0, 0, 0, 0, 0, 0));
  call_int(&c, 1);
  call_tensor(&c, TTPU_I64, 2, SIZES(1, 2), VALUES(2, 2));
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 2), VALUES(1, 2, 3, 4));
  call_result(&c, TTPU_F32, 2, SIZES(2, 3));
  call_expect(&c, 0, VALUES(0, 0, 3, 0, 0, 0), 0);
  call_end(&c);
}

TEST(gather_takes_a_smaller_index) {
  call c;
  call_begin(&c, "gather");
  call_tensor(&c, TTPU_I32, 2, SIZES(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  call_int(&c, -1);
  call_tensor(&c, TTPU_I64, 2, SIZES(1, 2), VALUES(2, 0));
  call_int(&c, 0);
  call_result(&c, TTPU_I32, 2, SIZES(1, 2));
  call_expect(&c, 0, VALUES(3, 1), 0);
  call_end(&c);
}

TEST(scatter_reduce_means_floor_integers) {
  call c; /* without self: -7 / 2 rounds down */
  call_begin(&c, "scatter_reduce.two");
  call_tensor(&c, TTPU_I64, 1, SIZES(2), VALUES(100, 5));
  call_int(&c, 0);
  call_tensor(&c, TTPU_I64, 1, SIZES(2), VALUES(0, 0));
  call_tensor(&c, TTPU_I64, 1, SIZES(2), VALUES(-3, -4));
  call_text(&c, "mean");
  call_int(&c, 0);
  call_result(&c, TTPU_I64, 1, SIZES(2));
  call_expect(&c, 0, VALUES(-4, 5), 0);
  call_end(&c);
}

TEST(embedding_gradient_leaves_padding_out) {
  call c;
  call_begin(&c, "embedding_dense_backward");
  call_tensor(&c, TTPU_F32, 2, SIZES(3, 1), VALUES(1, 2, 4));
  call_tensor(&c, TTPU_I64, 1, SIZES(3), VALUES(1, 0, 1));
  call_int(&c, 2);
  call_int(&c, 0);
  call_int(&c, 0);
  call_result(&c, TTPU_F32, 2, SIZES(2, 1));
  call_expect(&c, 0, VALUES(0, 5), 0);
  call_end(&c);
}

TEST(nll_loss_ignores_a_class) {
  call c;
  call_begin(&c, "nll_loss_forward");
  call_tensor(&c, TTPU_F32, 2, SIZES(3, 2), VALUES(-1, -2, -3, -4, -INFINITY, -6));
  call_tensor(&c, TTPU_I64, 1, SIZES(3), VALUES(1, 0, -100));
  call_none(&c);
  call_int(&c, 1);
  call_int(&c, -100);
  call_result(&c, TTPU_F32, 0, NULL);
  call_result(&c, TTPU_F32, 0, NULL);
  call_expect(&c, 0, VALUES(2.5), 0);
  call_expect(&c, 1, VALUES(2), 0);
  call_end(&c);
}

TEST(cat_leaves_empty_vectors_out) {
  call c;
  call_begin(&c, "cat");
  call_list(&c, 3);
  call_element(&c, TTPU_F32, 2, SIZES(1, 2), VALUES(1, 2));
  call_element(&c, TTPU_F32, 1, SIZES(0), NULL);
  call_element(&c, TTPU_I64, 2, SIZES(1, 2), VALUES(3, 4));
  call_int(&c, -2);
  call_result(&c, TTPU_F32, 2, SIZES(2, 2));
  call_expect(&c, 0, VALUES(1, 2, 3, 4), 0);
  call_end(&c);
}

TEST(pad_crops_with_negative_amounts) {
  call c;
  call_begin(&c, "constant_pad_nd");
  call_tensor(&c, TTPU_I32, 2, SIZES(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  call_ints(&c, 4, SIZES(-1, 1, 0, 1));
  call_scalar(&c, 9);
  call_result(&c, TTPU_I32, 2, SIZES(3, 3));
  call_expect(&c, 0, VALUES(2, 3, 9, 5, 6, 9, 9, 9, 9), 0);
  call_end(&c);
}

TEST(max_pool_prefers_the_first_and_skips_padding) {
  call c; /* all -inf, padding 1: the index is the first real element of the window */
  call_begin(&c, "max_pool2d_with_indices");
  call_tensor(&c, TTPU_F32, 3, SIZES(1, 1, 3), VALUES(-INFINITY, -INFINITY, 2));
  call_ints(&c, 2, SIZES(1, 2));
  call_ints(&c, 2, SIZES(1, 2));
  call_ints(&c, 2, SIZES(0, 1));
  call_ints(&c, 1, SIZES(1));
  call_int(&c, 0);
  call_result(&c, TTPU_F32, 3, SIZES(1, 1, 2));
  call_result(&c, TTPU_I64, 3, SIZES(1, 1, 2));
  call_expect(&c, 0, VALUES(-INFINITY, 2), 0);
  call_expect(&c, 1, VALUES(0, 2), 0);
  call_end(&c);
}

TEST(average_pool_counts_padding_or_not) {
  for (int64_t include = 0; include < 2; ++include) {
    call c;
    call_begin(&c, "avg_pool2d");
    call_tensor(&c, TTPU_F32, 3, SIZES(1, 1, 3), VALUES(2, 4, 6));
    call_ints(&c, 2, SIZES(1, 2));
    call_ints(&c, 2, SIZES(1, 2));
    call_ints(&c, 2, SIZES(0, 1));
    call_int(&c, 0);
    call_int(&c, include);
    call_none(&c);
    call_result(&c, TTPU_F32, 3, SIZES(1, 1, 2));
    call_expect(&c, 0, include ? VALUES(1, 5) : VALUES(2, 5), 0);
    call_end(&c);
  }
}

TEST(masked_select_gives_values_and_count) {
  call c;
  call_begin(&c, "masked_select");
  call_tensor(&c, TTPU_F32, 1, SIZES(3), VALUES(5, 6, 7));
  call_tensor(&c, TTPU_BOOL, 1, SIZES(3), VALUES(1, 0, 1));
  call_result(&c, TTPU_F32, 1, SIZES(3));
  call_result(&c, TTPU_I64, 0, NULL);
  CHECK_NEAR(call_value(&c, 0, 0), 5, 0);
  CHECK_NEAR(call_value(&c, 0, 1), 7, 0);
  call_expect(&c, 1, VALUES(2), 0);
  call_end(&c);
}

TEST(reflection_mirrors_without_the_edge) {
  call c;
  call_begin(&c, "reflection_pad1d");
  call_tensor(&c, TTPU_F32, 2, SIZES(1, 3), VALUES(1, 2, 3));
  call_ints(&c, 2, SIZES(2, 1));
  call_result(&c, TTPU_F32, 2, SIZES(1, 6));
  call_expect(&c, 0, VALUES(3, 2, 1, 2, 3, 2), 0);
  call_end(&c);
}

TEST(nearest_upsample_floors) {
  call c;
  call_begin(&c, "upsample_nearest1d");
  call_tensor(&c, TTPU_F32, 3, SIZES(1, 1, 2), VALUES(1, 2));
  call_ints(&c, 1, SIZES(5));
  call_none(&c);
  call_result(&c, TTPU_F32, 3, SIZES(1, 1, 5));
  call_expect(&c, 0, VALUES(1, 1, 1, 2, 2), 0);
  call_end(&c);
}

TEST(searchsorted_takes_sides) {
  for (int64_t right = 0; right < 2; ++right) {
    call c;
    call_begin(&c, "bucketize.Tensor");
    call_tensor(&c, TTPU_F32, 1, SIZES(4), VALUES(0, 2, 9, NAN));
    call_tensor(&c, TTPU_F32, 1, SIZES(3), VALUES(1, 2, 3));
    call_int(&c, 0);
    call_int(&c, right);
    call_result(&c, TTPU_I64, 1, SIZES(4));
    call_expect(&c, 0, right ? VALUES(0, 2, 3, 3) : VALUES(0, 1, 3, 3), 0);
    call_end(&c);
  }
}

TEST(an_index_out_of_range_fails_the_run) {
  call c;
  call_begin(&c, "index_select");
  call_tensor(&c, TTPU_F32, 2, SIZES(2, 2), VALUES(1, 2, 3, 4));
  call_int(&c, 0);
  call_tensor(&c, TTPU_I64, 1, SIZES(1), VALUES(2));
  call_result(&c, TTPU_F32, 2, SIZES(1, 2));
  REQUIRE_OK(call_build(&c));
  float result[2];
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index_select(): index out of range",
              soft_reference_run(c.func, (void *[]){c.data[0], c.data[1]}, (void *[]){result}));
  call_end(&c);
}

TEST(attention_ignores_what_the_causal_mask_hides) {
  call c; /* the first query sees the first key alone */
  call_begin(&c, "_scaled_dot_product_fused_attention_overrideable");
  call_tensor(&c, TTPU_F64, 4, SIZES(1, 1, 1, 1), VALUES(3));
  call_tensor(&c, TTPU_F64, 4, SIZES(1, 1, 2, 1), VALUES(2, 50));
  call_tensor(&c, TTPU_F64, 4, SIZES(1, 1, 2, 1), VALUES(7, NAN));
  call_none(&c);
  call_float(&c, 0);
  call_int(&c, 1);
  call_int(&c, 0);
  call_float(&c, 0.5);
  call_result(&c, TTPU_F64, 4, SIZES(1, 1, 1, 1));
  call_result(&c, TTPU_F32, 3, SIZES(1, 1, 1));
  REQUIRE_OK(call_build(&c));
  double query = 3, keys[2] = {2, 50}, values[2] = {7, 8}, out = 0;
  uint64_t state[2] = {0, 0};
  float lse = 0;
  CHECK_OK(soft_reference_run(c.func, (void *[]){&query, keys, values, state}, (void *[]){&out, &lse}));
  CHECK_NEAR(out, 7, 1e-12);
  CHECK_NEAR(lse, 3, 1e-6);
  call_end(&c);
}
