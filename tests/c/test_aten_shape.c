/* Shape functions by hand-made cases; tests/aten compares them with PyTorch itself. */
#include "aten_nn_calls.h"

/* The strides of the tensor argument given last. */
static void set_strides(call *c, const int64_t *strides) {
  uint32_t i = c->call.tensor_count - 1;
  memcpy(c->strides[i], strides, c->tensors[i].rank * sizeof *strides);
}

static void expect(call *c, ttpu_dtype dtype, uint32_t rank, const int64_t *sizes, const int64_t *strides) {
  aten_shape outs[4];
  REQUIRE(c->call.row->shape);
  REQUIRE(c->call.row->shape(&c->call, outs));
  CHECK_EQ(outs[0].dtype, dtype);
  REQUIRE(outs[0].rank == rank);
  for (uint32_t i = 0; i < rank; ++i) {
    CHECK_EQ(outs[0].sizes[i], sizes[i]);
    CHECK_EQ(outs[0].strides[i], strides[i]);
  }
}

TEST(pointwise_results_keep_the_order_of_dimensions) {
  call c;
  call_begin(&c, "exp");
  call_tensor(&c, TTPU_F32, 2, (int64_t[]){2, 3}, NULL);
  set_strides(&c, (int64_t[]){1, 2}); /* transposed */
  expect(&c, TTPU_F32, 2, (int64_t[]){2, 3}, (int64_t[]){1, 2});
  set_strides(&c, (int64_t[]){1, 4}); /* and with gaps, which the result does not keep */
  expect(&c, TTPU_F32, 2, (int64_t[]){2, 3}, (int64_t[]){1, 2});
  call_end(&c);
}

TEST(pointwise_broadcasts) {
  call c;
  call_begin(&c, "mul.Tensor");
  call_tensor(&c, TTPU_F32, 3, (int64_t[]){4, 1, 3}, NULL);
  call_tensor(&c, TTPU_I64, 2, (int64_t[]){5, 1}, NULL);
  expect(&c, TTPU_F32, 3, (int64_t[]){4, 5, 3}, (int64_t[]){15, 3, 1});
  call_end(&c);
}

TEST(sizes_that_do_not_broadcast_go_to_meta) {
  call c;
  aten_shape outs[2];
  call_begin(&c, "mul.Tensor");
  call_tensor(&c, TTPU_F32, 1, (int64_t[]){4}, NULL);
  call_tensor(&c, TTPU_F32, 1, (int64_t[]){3}, NULL);
  CHECK(!c.call.row->shape(&c.call, outs));
  call_end(&c);
}

TEST(what_depends_on_the_default_dtype_goes_to_meta) {
  call c;
  aten_shape outs[2];
  call_begin(&c, "div.Tensor");
  call_tensor(&c, TTPU_I64, 1, (int64_t[]){4}, NULL);
  call_tensor(&c, TTPU_I64, 1, (int64_t[]){4}, NULL);
  CHECK(!c.call.row->shape(&c.call, outs));
  call_end(&c);
}

TEST(reductions_are_contiguous) {
  call c;
  call_begin(&c, "sum.dim_IntList");
  call_tensor(&c, TTPU_BOOL, 3, (int64_t[]){2, 3, 4}, NULL);
  call_ints(&c, 1, (int64_t[]){-2});
  call_int(&c, 1);
  call_none(&c);
  expect(&c, TTPU_I64, 3, (int64_t[]){2, 1, 4}, (int64_t[]){4, 4, 1});
  call_end(&c);
}

TEST(a_dim_named_twice_goes_to_meta) {
  call c;
  aten_shape outs[2];
  call_begin(&c, "sum.dim_IntList");
  call_tensor(&c, TTPU_F32, 2, (int64_t[]){2, 3}, NULL);
  call_ints(&c, 2, (int64_t[]){1, -1});
  call_int(&c, 0);
  call_none(&c);
  CHECK(!c.call.row->shape(&c.call, outs));
  call_end(&c);
}

TEST(clone_of_an_expanded_tensor_is_dense) {
  call c;
  call_begin(&c, "clone");
  call_tensor(&c, TTPU_F32, 2, (int64_t[]){3, 4}, NULL);
  set_strides(&c, (int64_t[]){0, 1});
  call_none(&c);
  expect(&c, TTPU_F32, 2, (int64_t[]){3, 4}, (int64_t[]){4, 1});
  call_end(&c);
}

TEST(arange_counts_up_and_down) {
  call c;
  call_begin(&c, "arange.start_step");
  for (int i = 0; i < 3; ++i) {
    c.numbers[i] = (aten_number){.dtype = TTPU_I64, .value = {.i = (int64_t[]){10, 1, -3}[i]}};
    call_arg_of(&c, ATEN_SCALAR, (uint32_t)i, 0);
  }
  expect(&c, TTPU_I64, 1, (int64_t[]){3}, (int64_t[]){1});
  c.numbers[2].value.i = 3; /* away from the end: PyTorch's error */
  aten_shape outs[1];
  CHECK(!c.call.row->shape(&c.call, outs));
  call_end(&c);
}
