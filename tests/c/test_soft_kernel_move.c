/* Kernels that move elements, against the reference. */
#include "soft_compare.h"

static const ttpu_dtype some_dtypes[] = {TTPU_BOOL, TTPU_I8,  TTPU_I16, TTPU_BF16, TTPU_F32,
                                         TTPU_I32,  TTPU_I64, TTPU_F64, TTPU_C64,  TTPU_C128};
enum { SOME_DTYPES = sizeof some_dtypes / sizeof *some_dtypes };

static ttpu_dtype random_dtype(void) { return some_dtypes[random_below(SOME_DTYPES)]; }

/* Mostly small sizes, now and then a long one, a 1 or a 0. */
static void random_dims(uint32_t rank, int64_t *dims) {
  for (uint32_t d = 0; d < rank; ++d) {
    int64_t kind = random_below(20);
    dims[d] = kind == 0 ? 0 : kind < 4 ? 1 : kind < 6 ? random_from(20, 70) : random_from(2, 9);
  }
}

TEST(copies_any_layout) {
  for (int round = 0; round < 1500; ++round) {
    int64_t dims[5];
    uint32_t rank = (uint32_t)random_below(6);
    random_dims(rank, dims);
    ttpu_dtype t = random_dtype();
    test_view x = test_view_new(t, rank, dims, LAYOUT_ANY), y = test_view_new(t, rank, dims, LAYOUT_STRIDED);
    fill_random(&x.v, false);
    base_pool_resize(1 + (int)random_below(4));
    kern_copy(&y.v, &x.v);
    check_views(&x.v, &y.v, -1, "copy");
    free(x.memory), free(y.memory);
  }
}

TEST(transposes_large_matrices) {
  for (size_t k = 0; k < SOME_DTYPES; ++k) {
    int64_t dims[3] = {3, 67, 133};
    test_view x = test_view_new(some_dtypes[k], 3, dims, LAYOUT_DENSE),
              y = test_view_new(some_dtypes[k], 3, dims, LAYOUT_DENSE);
    x.v.strides[1] = 1, x.v.strides[2] = 67;
    fill_random(&x.v, false);
    base_pool_resize(4);
    kern_copy(&y.v, &x.v);
    check_views(&x.v, &y.v, -1, "transposed copy");
    free(x.memory), free(y.memory);
  }
}

TEST(views) {
  for (int round = 0; round < 1500; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4], a[4], b[4], c[4];
    uint32_t rank = (uint32_t)random_below(5);
    random_dims(rank, dims);
    ir_value x = test_param(&t, random_dtype(), rank, dims), v = 0;
    for (uint32_t d = 0; d < rank; ++d) a[d] = d;
    for (uint32_t d = rank; d-- > 1;) {
      int64_t k = random_below(d + 1), swap = a[d];
      a[d] = a[k], a[k] = swap;
    }
    switch (random_below(5)) {
      case 0: v = ir_transpose(&t.b, x, a); break;
      case 1: v = ir_reverse(&t.b, x, (uint32_t)random_below(rank + 1), a); break;
      case 2:
        for (uint32_t d = 0; d < rank; ++d)
          a[d] = random_below(dims[d] + 1), b[d] = random_from(a[d], dims[d]), c[d] = random_from(1, 3);
        v = ir_slice(&t.b, x, a, b, c);
        break;
      case 3: {
        int64_t flat[2] = {base_numel(rank, dims), 1};
        if (rank >= 2 && random_below(2)) flat[0] = dims[0], flat[1] = base_numel(rank - 1, dims + 1);
        v = ir_reshape(&t.b, x, 2, flat);
        break;
      }
      default: {
        int64_t wide[5] = {3};
        for (uint32_t d = 0; d < rank; ++d) wide[d + 1] = dims[d] == 1 ? random_from(1, 4) : dims[d], a[d] = d + 1;
        v = ir_broadcast_in_dim(&t.b, x, rank + 1, wide, a);
      }
    }
    if (v != x && test_operands(&t, v, false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(as_strided) {
  for (int round = 0; round < 500; ++round) {
    test_op t;
    test_begin(&t);
    int64_t whole = random_from(1, 200), rows = random_from(0, 9), columns = random_from(1, 9),
            offset = random_below(whole);
    int64_t room = whole - 1 - offset, steps[2] = {rows > 1 ? random_below(room / 2 / (rows - 1) + 1) : 3,
                                                   columns > 1 ? random_below(room / 2 / (columns - 1) + 1) : 1};
    ir_value x = test_param(&t, random_dtype(), 1, &whole);
    ir_value v = ir_as_strided(&t.b, x, 2, (int64_t[]){rows, columns}, steps, offset);
    if (v != x && ir_def(t.f, v)->kind == IR_AS_STRIDED && test_operands(&t, v, false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(as_strided_update) {
  for (int round = 0; round < 500; ++round) {
    test_op t;
    test_begin(&t);
    int64_t rows = random_from(0, 9), columns = random_from(1, 40), gap = random_below(3), step = random_from(1, 3),
            offset = random_below(5);
    int64_t whole[2] = {random_from(1, 3), 0}, dims[2] = {rows, columns}, strides[2] = {columns * step + gap, step};
    bool turned = random_below(2);
    if (turned) strides[0] = step, strides[1] = (rows ? rows : 1) * step + gap;
    whole[1] = offset + rows * strides[0] + columns * strides[1] + 1;
    ttpu_dtype dtype = random_dtype();
    ir_value x = test_param(&t, dtype, 2, whole), u = test_param(&t, dtype, 2, dims);
    ir_value v = ir_as_strided_update(&t.b, x, u, strides, offset);
    t.in_place = true;
    if (ir_def(t.f, v)->kind == IR_AS_STRIDED_UPDATE && test_operands(&t, v, false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(concatenate) {
  for (int round = 0; round < 600; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4];
    uint32_t rank = (uint32_t)random_from(1, 4), dim = (uint32_t)random_below(rank),
             count = (uint32_t)random_from(2, 5);
    random_dims(rank, dims);
    ttpu_dtype dtype = random_dtype();
    ir_value xs[5];
    for (uint32_t k = 0; k < count; ++k) {
      dims[dim] = random_below(12);
      xs[k] = test_param(&t, dtype, rank, dims);
    }
    if (test_operands(&t, ir_concatenate(&t.b, count, xs, dim), false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(pad) {
  for (int round = 0; round < 1500; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4], low[4], high[4], interior[4];
    uint32_t rank = (uint32_t)random_from(1, 4);
    bool holes = random_below(2);
    random_dims(rank, dims);
    for (uint32_t d = 0; d < rank; ++d) {
      if (dims[d] > 20) dims[d] = 11;
      interior[d] = holes ? random_below(3) : 0;
      low[d] = random_from(-3, 4), high[d] = random_from(-3, 4);
      int64_t spread = dims[d] > 0 ? dims[d] + (dims[d] - 1) * interior[d] : 0;
      if (spread + low[d] + high[d] < 0) low[d] = high[d] = 0;
    }
    ttpu_dtype dtype = random_dtype();
    ir_value x = test_param(&t, dtype, rank, dims), fill = test_param(&t, dtype, 0, NULL);
    ir_value v = ir_pad(&t.b, x, fill, low, high, interior);
    if (v != x && test_operands(&t, v, false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(dynamic_slices) {
  for (int round = 0; round < 600; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3], sizes[3];
    uint32_t rank = (uint32_t)random_below(4);
    bool update = random_below(2);
    random_dims(rank, dims);
    for (uint32_t d = 0; d < rank; ++d) sizes[d] = random_below(dims[d] + 1);
    ttpu_dtype dtype = random_dtype(), index = random_below(2) ? TTPU_I64 : TTPU_I32;
    ir_value x = test_param(&t, dtype, rank, dims), u = update ? test_param(&t, dtype, rank, sizes) : 0, starts[3];
    for (uint32_t d = 0; d < rank; ++d) starts[d] = test_param(&t, index, 0, NULL);
    ir_value v = update ? ir_dynamic_update_slice(&t.b, x, u, starts) : ir_dynamic_slice(&t.b, x, starts, sizes);
    t.in_place = update;
    if (test_operands(&t, v, false)) {
      for (uint32_t d = 0; d < rank; ++d) fill_indices(&t.operands[1 + update + d].v, -3, 10);
      compare(&t, 0);
    }
    test_end(&t);
  }
}

/* ---- gather and scatter ------------------------------------------------------------------------------ */

/* Random dimension numbers for an operand: each dimension is a batching, an indexed, or a plain window one. */
typedef struct numbers {
  uint32_t rank, index_rank, result_rank, components;
  int64_t dims[5], sizes[5], index_dims[8], result_dims[10];
  int64_t batching[5], index_batching[5], collapsed[5], map[5], offset[10];
  uint32_t batching_count, collapsed_count, offset_count;
  int64_t vector_dim;
} numbers;

/* `whole`: indexed dimensions have window size 1 and vanish (what scatter kernels support). */
static void random_numbers(numbers *n, bool whole) {
  memset(n, 0, sizeof *n);
  n->rank = (uint32_t)random_from(1, 4);
  int64_t batch_dims[8];
  uint32_t batch_rank = 0, batch_of[5];
  for (uint32_t d = 0; d < n->rank; ++d) {
    n->dims[d] = random_from(1, 7);
    n->sizes[d] = n->dims[d];
    if (random_below(12) == 0) n->dims[d] = n->sizes[d] = 40;
    switch (random_below(4)) {
      case 0: /* batching */
        n->sizes[d] = 1;
        n->batching[n->batching_count] = d;
        batch_of[n->batching_count++] = batch_rank;
        batch_dims[batch_rank++] = n->dims[d];
        break;
      case 1: /* a window */ break;
      default:
        n->map[n->components++] = d;
        if (whole || random_below(2)) n->sizes[d] = 1, n->collapsed[n->collapsed_count++] = d;
        else n->sizes[d] = random_from(1, n->dims[d]);
    }
  }
  for (int64_t extra = random_below(3); extra > 0; --extra) batch_dims[batch_rank++] = random_from(1, 9);
  n->vector_dim = random_below(batch_rank + 1);
  bool no_vector = n->components == 1 && random_below(2);
  if (no_vector) n->vector_dim = batch_rank;
  for (uint32_t b = 0; b <= batch_rank; ++b) {
    if (b == n->vector_dim && !no_vector) n->index_dims[n->index_rank++] = n->components;
    if (b < batch_rank) n->index_dims[n->index_rank++] = batch_dims[b];
  }
  for (uint32_t k = 0; k < n->batching_count; ++k) n->index_batching[k] = batch_of[k] + (batch_of[k] >= n->vector_dim);
  /* the result: batch dimensions in order with window dimensions sprinkled in */
  uint32_t window[5], windows = 0, w = 0, b = 0;
  for (uint32_t d = 0; d < n->rank; ++d) {
    bool gone = false;
    for (uint32_t k = 0; k < n->batching_count; ++k) gone |= n->batching[k] == d;
    for (uint32_t k = 0; k < n->collapsed_count; ++k) gone |= n->collapsed[k] == d;
    if (!gone) window[windows++] = d;
  }
  while (w < windows || b < batch_rank) {
    bool take_window = w < windows && (b == batch_rank || random_below(2));
    if (take_window)
      n->offset[n->offset_count++] = n->result_rank, n->result_dims[n->result_rank++] = n->sizes[window[w++]];
    else n->result_dims[n->result_rank++] = batch_dims[b++];
  }
}

TEST(gather) {
  for (int round = 0; round < 1500; ++round) {
    test_op t;
    numbers n;
    test_begin(&t);
    random_numbers(&n, false);
    const ir_gather_attrs a = {.offset_dims = {n.offset, n.offset_count},
                               .collapsed_slice_dims = {n.collapsed, n.collapsed_count},
                               .operand_batching_dims = {n.batching, n.batching_count},
                               .start_indices_batching_dims = {n.index_batching, n.batching_count},
                               .start_index_map = {n.map, n.components},
                               .index_vector_dim = n.vector_dim,
                               .slice_sizes = {n.sizes, n.rank}};
    static const ttpu_dtype index_types[] = {TTPU_I64, TTPU_I32, TTPU_U8, TTPU_I16, TTPU_U64};
    ir_value x = test_param(&t, random_dtype(), n.rank, n.dims);
    ir_value indices = test_param(&t, index_types[random_below(5)], n.index_rank, n.index_dims);
    if (test_operands(&t, ir_gather(&t.b, x, indices, &a), false)) {
      fill_indices(&t.operands[1].v, -2, 9);
      compare(&t, 0);
    }
    test_end(&t);
  }
}

TEST(takes) {
  for (int round = 0; round < 400; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3] = {random_from(1, 30), random_from(1, 30), random_from(1, 30)};
    uint32_t dim = (uint32_t)random_below(3);
    ir_value x = test_param(&t, random_dtype(), 3, dims), v;
    if (random_below(2)) {
      dims[dim] = random_below(50);
      v = ir_take_along(&t.b, x, test_param(&t, TTPU_I64, 3, dims), dim);
    } else {
      int64_t by[2] = {random_from(0, 30), random_from(1, 30)};
      v = ir_take(&t.b, x, test_param(&t, TTPU_I32, 2, by), dim);
    }
    if (test_operands(&t, v, false)) {
      fill_indices(&t.operands[1].v, -3, 33);
      compare(&t, 0);
    }
    test_end(&t);
  }
}

TEST(scatter) {
  static const ir_kind kinds[] = {IR_NO_OP, IR_ADD, IR_MULTIPLY, IR_MINIMUM, IR_MAXIMUM, IR_AND, IR_OR, IR_XOR};
  for (int round = 0; round < 2000; ++round) {
    test_op t;
    numbers n;
    test_begin(&t);
    random_numbers(&n, random_below(8) != 0);
    const ir_scatter_attrs a = {.update_window_dims = {n.offset, n.offset_count},
                                .inserted_window_dims = {n.collapsed, n.collapsed_count},
                                .input_batching_dims = {n.batching, n.batching_count},
                                .scatter_indices_batching_dims = {n.index_batching, n.batching_count},
                                .scatter_dims_to_operand_dims = {n.map, n.components},
                                .index_vector_dim = n.vector_dim};
    ttpu_dtype dtype = (ttpu_dtype)random_from(1, TTPU_TOKEN - 1);
    ir_kind kind = kinds[random_below(base_dtype_is_float(dtype) ? 5 : base_dtype_is_complex(dtype) ? 3 : 8)];
    ir_value x = test_param(&t, dtype, n.rank, n.dims);
    ir_value indices = test_param(&t, random_below(2) ? TTPU_I64 : TTPU_I32, n.index_rank, n.index_dims);
    ir_value updates = test_param(&t, dtype, n.result_rank, n.result_dims);
    t.in_place = true;
    if (test_operands(&t, ir_scatter(&t.b, x, indices, updates, &a, kind), random_below(2))) {
      fill_indices(&t.operands[1].v, -2, 9);
      /* Complex products are rounded in the tensor's precision; the reference rounds once from complex128. */
      bool product = kind == IR_MULTIPLY && base_dtype_is_complex(dtype);
      compare(&t, !product ? 0 : dtype == TTPU_C64 ? 1e-3 : 1e-11);
    }
    test_end(&t);
  }
}

TEST(embedding_gradient) {
  for (int round = 0; round < 6; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[2] = {50, round & 1 ? 1 : 40}, count = 3000, rows[2] = {count, dims[1]}, zero = 0, one = 1;
    const ir_scatter_attrs a = {.update_window_dims = {&one, 1},
                                .inserted_window_dims = {&zero, 1},
                                .scatter_dims_to_operand_dims = {&zero, 1},
                                .index_vector_dim = 1};
    ttpu_dtype dtype = round < 2 ? TTPU_F32 : round < 4 ? TTPU_BF16 : TTPU_I64;
    ir_value x = test_param(&t, dtype, 2, dims), indices = test_param(&t, TTPU_I64, 1, &count);
    if (test_operands(&t, ir_scatter(&t.b, x, indices, test_param(&t, dtype, 2, rows), &a, IR_ADD), false)) {
      fill_indices(&t.operands[1].v, -1, 50);
      compare(&t, 0);
    }
    test_end(&t);
  }
}

/* ---- sources, bits, checks ---------------------------------------------------------------------------- */

TEST(iota_and_constants) {
  for (int round = 0; round < 300; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3];
    random_dims(3, dims);
    ttpu_dtype dtype = (ttpu_dtype)random_from(2, TTPU_TOKEN - 1);
    ir_value v =
        round & 1 ? ir_iota(&t.b, dtype, 3, dims, (uint32_t)random_below(3)) : ir_fill_i64(&t.b, dtype, 3, dims, 7);
    if (test_operands(&t, v, false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(philox) {
  for (int round = 0; round < 60; ++round) {
    test_op t;
    test_begin(&t);
    int64_t two = 2, dims[2] = {random_below(5), random_below(round < 50 ? 90 : 30000)};
    ir_value state = test_param(&t, TTPU_U64, 1, &two);
    ir_value v = ir_philox(&t.b, state, round & 1 ? TTPU_U32 : TTPU_U64, 2, dims);
    if (test_operands(&t, v, false)) {
      for (int k = 0; k < 2; ++k) *(uint64_t *)test_element(&t.operands[0].v, k) = random_bits() << (8 * k);
      if (round == 3)
        *(uint64_t *)test_element(&t.operands[0].v, 1) = 0xFFFFFFFEull; /* the carry into the counter's high word */
      compare(&t, 0);
    }
    test_end(&t);
  }
}

TEST(bitcast) {
  static const ttpu_dtype pairs[][2] = {{TTPU_F32, TTPU_I32}, {TTPU_F64, TTPU_U64}, {TTPU_BF16, TTPU_I16},
                                        {TTPU_F32, TTPU_U8},  {TTPU_U8, TTPU_F32},  {TTPU_I64, TTPU_U32},
                                        {TTPU_U16, TTPU_F64}};
  for (int round = 0; round < 200; ++round) {
    test_op t;
    test_begin(&t);
    const ttpu_dtype *p = pairs[random_below(7)];
    int64_t from = (int64_t)base_dtype_bytes(p[0]), to = (int64_t)base_dtype_bytes(p[1]),
            dims[3] = {random_from(1, 5), random_from(0, 5), 1};
    uint32_t rank = 2, result_rank = 2;
    if (from > to) dims[2] = from / to, result_rank = 3;
    if (from < to) dims[2] = to / from, rank = 3;
    ir_value x = test_param(&t, p[0], rank, dims);
    ir_type given = ir_tensor(&t.b, p[1], result_rank, dims);
    if (test_operands(&t, ir_append(&t.b, IR_BITCAST_CONVERT, 1, &x, NULL, 1, &given, 0, NULL), false)) compare(&t, 0);
    test_end(&t);
  }
}

TEST(check_index) {
  test_op t;
  test_begin(&t);
  int64_t dims[2] = {7, 9};
  ir_value v = ir_check_index(&t.b, test_param(&t, TTPU_I64, 2, dims), -3, 5, IR_BAD_INDEX, "index_select()");
  if (test_operands(&t, v, false)) {
    fill_indices(&t.operands[0].v, -3, 4);
    compare(&t, 0);
    soft_view x = t.operands[0].v;
    test_view y = test_view_new(TTPU_I64, 2, dims, LAYOUT_DENSE);
    *(int64_t *)test_element(&x, 60) = 5;
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "index_select(): index 5 is out of range [-3, 5)",
                soft_kernel_op(t.f, t.op, &x, &y.v));
    *(int64_t *)test_element(&x, 60) = -4;
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "index -4", soft_kernel_op(t.f, t.op, &x, &y.v));
    free(y.memory);
  }
  test_end(&t);
}

TEST(check_of_a_condition) { /* of bools: no index is named */
  test_op t;
  test_begin(&t);
  int64_t dims[2] = {7, 9};
  ir_value v = ir_check_index(&t.b, test_param(&t, TTPU_BOOL, 2, dims), 0, 1, IR_BAD_VALUE, "elements lie outside");
  if (test_operands(&t, v, false)) {
    soft_view x = t.operands[0].v;
    for (int i = 0; i < 63; ++i) *(uint8_t *)test_element(&x, i) = 0;
    compare(&t, 0);
    test_view y = test_view_new(TTPU_BOOL, 2, dims, LAYOUT_DENSE);
    *(uint8_t *)test_element(&x, 60) = 1;
    CHECK_FAILS(TTPU_FAILED_PRECONDITION, "elements lie outside", soft_kernel_op(t.f, t.op, &x, &y.v));
    free(y.memory);
  }
  test_end(&t);
}
