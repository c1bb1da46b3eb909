/* Kernels that reduce, order, scan and transform, against the reference; control flow. */
#include "soft_compare.h"

static void random_dims(uint32_t rank, int64_t *dims) {
  for (uint32_t d = 0; d < rank; ++d) {
    int64_t kind = random_below(20);
    dims[d] = kind == 0 ? 0 : kind < 4 ? 1 : kind < 6 ? random_from(20, 70) : random_from(2, 9);
  }
}
/* How far a kernel may be from the reference: a rounding of the dtype. */
static double rounding(ttpu_dtype t) {
  switch (t) {
    case TTPU_F64:
    case TTPU_C128: return 1e-13;
    case TTPU_F32:
    case TTPU_C64: return 2e-7;
    case TTPU_F16: return 1e-3;
    case TTPU_BF16: return 8e-3;
    case TTPU_F8E5M2:
    case TTPU_F8E4M3FN: return 0.26;
    default: return 0;
  }
}
static ttpu_dtype any_dtype(void) { return (ttpu_dtype)random_from(1, TTPU_TOKEN - 1); }
static ttpu_dtype ordered_dtype(void) {
  for (;;) {
    ttpu_dtype t = any_dtype();
    if (!base_dtype_is_complex(t)) return t;
  }
}

static ttpu_dtype number_dtype(void) { return (ttpu_dtype)random_from(TTPU_BOOL + 1, TTPU_TOKEN - 1); }

TEST(reduce) {
  static const ir_kind kinds[] = {IR_ADD, IR_MULTIPLY, IR_MINIMUM, IR_MAXIMUM, IR_AND, IR_OR, IR_XOR};
  for (int round = 0; round < 800; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4], reduced[4];
    uint32_t rank = (uint32_t)random_from(1, 4), count = 0;
    random_dims(rank, dims);
    if (random_below(30) == 0) dims[random_below(rank)] = 3000;
    for (uint32_t d = 0; d < rank; ++d)
      if (random_below(2)) reduced[count++] = d;
    ttpu_dtype dtype = any_dtype();
    ir_kind kind = kinds[random_below(base_dtype_is_float(dtype) ? 4 : base_dtype_is_complex(dtype) ? 2 : 7)];
    if (kind == IR_MULTIPLY && base_numel(rank, dims) > 100)
      kind = IR_ADD; /* a product that overflows depends on its order */
    ir_value x = test_param(&t, dtype, rank, dims), v = ir_reduce(&t.b, kind, x, count, reduced);
    if (v != x && test_operands(&t, v, kind != IR_MULTIPLY && random_below(3) == 0))
      compare(&t, kind == IR_MULTIPLY ? 10 * rounding(dtype) : rounding(dtype));
    test_end(&t);
  }
}

TEST(reduce_to_few_results_in_parts) {
  for (int round = 0; round < 6; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[2] = {round & 1 ? 3 : 200000, round & 1 ? 200000 : 3}, along[2] = {0, 1};
    ir_value x = test_param(&t, TTPU_F32, 2, dims);
    ir_value v = round < 2   ? ir_reduce(&t.b, IR_ADD, x, 1, &along[0])
                 : round < 4 ? ir_reduce(&t.b, IR_ADD, x, 1, &along[1])
                             : ir_reduce(&t.b, IR_MAXIMUM, x, 2, along);
    if (test_operands(&t, v, false)) compare(&t, 1e-7);
    test_end(&t);
  }
}

TEST(reduce_arg) {
  for (int round = 0; round < 400; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4];
    uint32_t rank = (uint32_t)random_from(1, 4), dim = (uint32_t)random_below(rank);
    random_dims(rank, dims);
    if (random_below(20) == 0) dims[dim] = 1000;
    ir_value x = test_param(&t, ordered_dtype(), rank, dims);
    ir_value v = ir_reduce_arg(&t.b, random_below(2), x, dim, NULL);
    if (test_operands(&t, v, random_below(2))) {
      CHECK(!soft_kernel_reads(t.f, t.op, 1));
      compare(&t, 0);
    }
    test_end(&t);
  }
}

static ir_window_attrs random_window(uint32_t rank, const int64_t *dims, int64_t window[], int64_t stride[],
                                     int64_t dilation[], int64_t padding[]) {
  for (uint32_t d = 0; d < rank; ++d) {
    bool plain = d < 2 && random_below(3) > 0;
    window[d] = plain ? 1 : random_from(1, 4);
    dilation[d] = plain ? 1 : random_from(1, 2);
    stride[d] = plain ? 1 : random_from(1, 3);
    padding[2 * d] = plain ? 0 : random_below(window[d]), padding[2 * d + 1] = plain ? 0 : random_below(window[d] + 2);
    int64_t needed = (window[d] - 1) * dilation[d] + 1;
    if (dims[d] + padding[2 * d] + padding[2 * d + 1] < needed) padding[2 * d + 1] = needed;
  }
  return (ir_window_attrs){.window_dimensions = {window, rank},
                           .window_strides = {stride, rank},
                           .window_dilations = {dilation, rank},
                           .padding = {padding, 2 * rank}};
}

TEST(reduce_window) {
  static const ir_kind kinds[] = {IR_ADD, IR_MAXIMUM, IR_MINIMUM, IR_MULTIPLY};
  for (int round = 0; round < 1000; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4], window[4], stride[4], dilation[4], padding[8];
    uint32_t rank = (uint32_t)random_from(1, 4);
    random_dims(rank, dims);
    for (uint32_t d = 0; d < rank; ++d) dims[d] = dims[d] > 20 ? 21 : dims[d] + 1;
    if (random_below(20) == 0) dims[rank - 1] = 600;
    const ir_window_attrs a = random_window(rank, dims, window, stride, dilation, padding);
    ttpu_dtype dtype = ordered_dtype();
    ir_kind kind = kinds[random_below(4)];
    if (test_operands(&t, ir_reduce_window(&t.b, kind, test_param(&t, dtype, rank, dims), &a),
                      kind != IR_MULTIPLY && random_below(4) == 0))
      compare(&t, kind == IR_MULTIPLY ? 10 * rounding(dtype) : rounding(dtype));
    test_end(&t);
  }
}

/* select_and_scatter as max pooling's backward builds it. */
static ir_value append_select_and_scatter(ir_builder *b, ir_value x, ir_value source, ir_value init,
                                          const ir_window_attrs *a, ir_direction direction) {
  ir_type scalar = ir_type_of(b->func, init);
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 2, (ir_type[2]){scalar, scalar}, &outer);
  ir_value keep = ir_compare(b, direction, regions[0]->first_arg, regions[0]->first_arg + 1);
  ir_region_end(b, outer, 1, &keep);
  regions[1] = ir_region_begin(b, 2, (ir_type[2]){scalar, scalar}, &outer);
  ir_value sum = ir_binary(b, IR_ADD, regions[1]->first_arg, regions[1]->first_arg + 1);
  ir_region_end(b, outer, 1, &sum);
  return ir_append(b, IR_SELECT_AND_SCATTER, 3, (ir_value[3]){x, source, init}, a, 0, NULL, 2, regions);
}

TEST(select_and_scatter) {
  static const ir_direction directions[] = {IR_GE, IR_GT, IR_LE, IR_LT};
  for (int round = 0; round < 600; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[4], window[4], stride[4], dilation[4], padding[8], out[4];
    uint32_t rank = (uint32_t)random_from(1, 4);
    random_dims(rank, dims);
    for (uint32_t d = 0; d < rank; ++d) dims[d] = dims[d] > 20 ? 21 : dims[d] + 1;
    ir_window_attrs a = random_window(rank, dims, window, stride, dilation, padding);
    for (uint32_t d = 0; d < rank; ++d) dilation[d] = 1;
    a.window_dilations.count = 0;
    for (uint32_t d = 0; d < rank; ++d)
      out[d] = (dims[d] + padding[2 * d] + padding[2 * d + 1] - window[d]) / stride[d] + 1;
    ttpu_dtype dtype = random_below(2) ? TTPU_F32 : random_below(2) ? TTPU_BF16 : TTPU_I32;
    ir_value x = test_param(&t, dtype, rank, dims), source = test_param(&t, dtype, rank, out),
             init = test_param(&t, dtype, 0, NULL);
    if (test_operands(&t, append_select_and_scatter(&t.b, x, source, init, &a, directions[random_below(4)]), false))
      compare(&t, 0);
    test_end(&t);
  }
}

TEST(sort) {
  for (int round = 0; round < 400; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3];
    uint32_t rank = (uint32_t)random_from(1, 3), dim = (uint32_t)random_below(rank),
             count = (uint32_t)random_from(1, 3);
    random_dims(rank, dims);
    if (random_below(20) == 0) dims[dim] = random_from(200, 900);
    ir_value xs[3] = {test_param(&t, ordered_dtype(), rank, dims)};
    bool order = count > 1 && random_below(2);
    for (uint32_t k = 1 + order; k < count; ++k) xs[k] = test_param(&t, any_dtype(), rank, dims);
    if (order) xs[1] = ir_iota(&t.b, TTPU_I64, rank, dims, dim);
    if (test_operands(&t, ir_sort(&t.b, count, xs, dim, random_below(2)), random_below(2))) {
      if (order) CHECK(!soft_kernel_reads(t.f, t.op, 1));
      compare(&t, -1);
    }
    test_end(&t);
  }
}

TEST(sort_of_a_long_line) {
  static const ttpu_dtype dtypes[] = {TTPU_F32, TTPU_F64, TTPU_I64, TTPU_I8};
  for (int round = 0; round < 8; ++round) {
    test_op t;
    test_begin(&t);
    int64_t n = 200000 + round * 333;
    ir_value xs[2] = {test_param(&t, dtypes[round % 4], 1, &n), ir_iota(&t.b, TTPU_I64, 1, &n, 0)};
    if (test_operands(&t, ir_sort(&t.b, 2, xs, 0, round & 1), true)) {
      soft_view *x = &t.operands[0].v;
      for (int64_t i = 0; round > 3 && i < n; ++i)
        base_scalar_store(x->dtype, test_element(x, i),
                          base_scalar_convert(TTPU_I64, x->dtype, (base_scalar){.u = random_bits() << 7}));
      test_view y[2][2];
      soft_view in[2] = {t.operands[0].v, t.operands[1].v}, out[2];
      for (int k = 0; k < 2; ++k) {
        make_results(&t, LAYOUT_DENSE, y[k]);
        views_of(y[k], 2, out);
        base_pool_resize(k ? 4 : 1);
        CHECK_OK(soft_kernel_op(t.f, t.op, in, out));
      }
      for (int k = 0; k < 2; ++k) check_views(&y[0][k].v, &y[1][k].v, -1, "sort");
      const int64_t *order = y[0][1].v.data; /* stable, and a permutation of the operand */
      for (int64_t i = 0; i < n; ++i) {
        if (memcmp(test_element(&out[0], i), test_element(x, order[i]), base_dtype_bytes(x->dtype)) == 0) continue;
        check_fail(__FILE__, __LINE__, "element %lld is not where it says", (long long)i);
        break;
      }
      for (int64_t i = 1; i < n; ++i) {
        base_scalar a = base_scalar_load(x->dtype, test_element(&out[0], i - 1)),
                    b = base_scalar_load(x->dtype, test_element(&out[0], i));
        bool real = base_dtype_is_float(x->dtype), up = round % 2 == 0;
        bool equal = real ? a.d[0] == b.d[0] || (isnan(a.d[0]) && isnan(b.d[0])) : a.i == b.i;
        bool less = real ? a.d[0] < b.d[0] || (isnan(b.d[0]) && !isnan(a.d[0])) : a.i < b.i;
        if (equal ? order[i - 1] < order[i] : less == up) continue;
        check_fail(__FILE__, __LINE__, "round %d: elements %lld and the next are out of order", round,
                   (long long)i - 1);
        break;
      }
      for (int k = 0; k < 2; ++k) free_results(&t, y[k]);
    }
    test_end(&t);
  }
}

TEST(top_k) {
  for (int round = 0; round < 200; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3];
    uint32_t rank = (uint32_t)random_from(1, 3);
    random_dims(rank, dims);
    if (random_below(8) == 0) dims[rank - 1] = random_from(500, 2500);
    int64_t n = dims[rank - 1];
    const ir_top_k_attrs a = {.k = random_below(3) ? random_below((n < 40 ? n : 40) + 1) : random_below(n + 1),
                              .largest = random_below(2),
                              .sorted = random_below(2)};
    ir_value x = test_param(&t, ordered_dtype(), rank, dims);
    if (test_operands(&t, ir_append(&t.b, IR_TOP_K, 1, &x, &a, 0, NULL, 0, NULL), random_below(2))) compare(&t, -1);
    test_end(&t);
  }
}

TEST(scan) {
  for (int round = 0; round < 1000; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3];
    uint32_t rank = (uint32_t)random_below(4);
    random_dims(rank, dims);
    if (rank && random_below(10) == 0) dims[random_below(rank)] = random_from(250, 600);
    const ir_scan_attrs a = {
        .dimension = rank ? random_below(rank) : 0, .reverse = random_below(2), .kind = (ir_scan_kind)random_below(5)};
    ttpu_dtype dtype = a.kind == IR_LOGCUMSUMEXP
                           ? (ttpu_dtype[]){TTPU_F32, TTPU_F64, TTPU_BF16, TTPU_F16}[random_below(4)]
                       : a.kind <= IR_CUMPROD ? number_dtype()
                                              : ordered_dtype();
    ir_value x = test_param(&t, dtype, rank, dims);
    bool special = a.kind != IR_CUMPROD && !base_dtype_is_complex(dtype) && random_below(3) == 0;
    if (rank > 0 && test_operands(&t, ir_append(&t.b, IR_SCAN, 1, &x, &a, 0, NULL, 0, NULL), special)) {
      if (a.kind == IR_CUMPROD) /* keeps the product in range */
        for (int64_t i = 0; i < base_numel(rank, dims); ++i)
          base_scalar_store(dtype, test_element(&t.operands[0].v, i),
                            base_scalar_convert(TTPU_F64, dtype, (base_scalar){.d = {(double)random_from(3, 5) / 4}}));
      compare(&t, rounding(dtype));
    }
    test_end(&t);
  }
}

TEST(path_scan) {
  for (int round = 0; round < 200; ++round) {
    test_op t;
    test_begin(&t);
    int64_t steps = random_below(9), batch = random_from(1, 4), states = random_below(20) ? random_from(1, 9) : 300;
    ttpu_dtype dtype = (ttpu_dtype[]){TTPU_F32, TTPU_F64, TTPU_BF16, TTPU_F16}[random_below(4)];
    ir_value operands[3] = {test_param(&t, dtype, 3, (int64_t[]){steps, batch, states}),
                            test_param(&t, TTPU_BOOL, 2, (int64_t[]){batch, states}),
                            test_param(&t, TTPU_I64, 1, (int64_t[]){batch})};
    if (test_operands(&t, ir_append(&t.b, IR_PATH_SCAN, 3, operands, NULL, 0, NULL, 0, NULL), random_below(3) == 0)) {
      for (int64_t i = 0; i < batch; ++i)
        base_scalar_store(TTPU_I64, test_element(&t.operands[2].v, i), (base_scalar){.i = random_below(steps + 2)});
      /* a row is rounded as it is stored, and the reference goes on from there */
      compare(&t, dtype == TTPU_F64 ? 1e-12 : dtype == TTPU_F32 ? 1e-5 : dtype == TTPU_F16 ? 0.02 : 0.1);
    }
    test_end(&t);
  }
}

/* ---- fft and linear algebra ----------------------------------------------------------------------------- */

TEST(fft) {
  for (int round = 0; round < 500; ++round) {
    test_op t;
    test_begin(&t);
    int64_t dims[3], lengths[3];
    uint32_t rank = (uint32_t)random_from(1, 3), count = (uint32_t)random_from(1, rank);
    for (uint32_t d = 0; d < rank; ++d) dims[d] = random_from(1, 12);
    if (random_below(3) == 0) dims[rank - 1] = random_from(13, 240);
    ir_fft_attrs a = {.fft_type = (ir_fft_type)random_below(4)};
    for (uint32_t d = 0; d < count; ++d) lengths[d] = dims[rank - count + d];
    if (a.fft_type == IR_FFT_IRFFT) {
      if (random_below(2) && dims[rank - 1] > 1) --lengths[count - 1];
      dims[rank - 1] = lengths[count - 1] / 2 + 1;
    }
    a.fft_length = (ir_i64s){lengths, count};
    bool wide = random_below(2), real = a.fft_type == IR_FFT_RFFT;
    ttpu_dtype dtype = real ? (wide ? TTPU_F64 : TTPU_F32) : (wide ? TTPU_C128 : TTPU_C64);
    ir_value x = test_param(&t, dtype, rank, dims);
    if (test_operands(&t, ir_append(&t.b, IR_FFT, 1, &x, &a, 0, NULL, 0, NULL), false))
      compare(&t, wide ? 1e-11 : 1e-6);
    test_end(&t);
  }
}

/* Of long lines: the inverse of the transform is where it started. */
TEST(fft_of_long_lines) {
  static const int64_t lengths[] = {65536, 100000, 65537, 99999, 46189};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; ++k) {
    test_op t;
    test_begin(&t);
    ir_value x = test_param(&t, TTPU_C128, 1, &lengths[k]);
    const ir_fft_attrs there = {IR_FFT_FFT, {&lengths[k], 1}}, back = {IR_FFT_IFFT, {&lengths[k], 1}};
    ir_value y = ir_append(&t.b, IR_FFT, 1, &x, &there, 0, NULL, 0, NULL),
             z = ir_append(&t.b, IR_FFT, 1, &y, &back, 0, NULL, 0, NULL);
    test_view v[3];
    for (int i = 0; i < 3; ++i) v[i] = test_view_new(TTPU_C128, 1, &lengths[k], LAYOUT_DENSE);
    fill_random(&v[0].v, false);
    CHECK_OK(soft_kernel_op(t.f, ir_def(t.f, y), &v[0].v, &v[1].v));
    CHECK_OK(soft_kernel_op(t.f, ir_def(t.f, z), &v[1].v, &v[2].v));
    check_views(&v[0].v, &v[2].v, 1e-12, "there and back");
    double sum = 0, first = *(double *)v[1].v.data;
    for (int64_t i = 0; i < lengths[k]; ++i) sum += ((double *)v[0].v.data)[2 * i];
    CHECK_NEAR(sum, first, 1e-8);
    for (int i = 0; i < 3; ++i) free(v[i].memory);
    test_end(&t);
  }
}

/* Makes a batch of square matrices well conditioned: their symmetric part positive definite. */
static void make_definite(const soft_view *v) {
  int64_t n = v->dims[v->rank - 1], batch = base_numel(v->rank - 2, v->dims);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < n; ++k)
        base_scalar_store(v->dtype, test_element(v, (b * n + i) * n + k),
                          (base_scalar){.d = {i == k ? (double)n : 1 / (double)(2 + (i + k + b) % 7), 0}});
}

TEST(cholesky) {
  static const int64_t sizes[] = {0, 1, 2, 5, 17, 64, 65, 150};
  for (int round = 0; round < 80; ++round) {
    test_op t;
    test_begin(&t);
    int64_t n = sizes[random_below(round < 70 ? 5 : 8)], dims[3] = {random_from(1, 3), n, n};
    ttpu_dtype dtype = (ttpu_dtype[]){TTPU_F32, TTPU_F64, TTPU_C128}[random_below(n > 60 ? 2 : 3)];
    const ir_cholesky_attrs a = {random_below(2)};
    ir_value x = test_param(&t, dtype, 3, dims);
    if (test_operands(&t, ir_append(&t.b, IR_CHOLESKY, 1, &x, &a, 0, NULL, 0, NULL), false)) {
      free(t.operands[0].memory);
      t.operands[0] = test_view_new(dtype, 3, dims, LAYOUT_STRIDED);
      make_definite(&t.operands[0].v);
      compare(&t, dtype == TTPU_F32 ? 1e-6 : 1e-12);
    }
    test_end(&t);
  }
}

TEST(triangular_solve) {
  static const int64_t sizes[] = {0, 1, 2, 5, 17, 64, 65, 150};
  for (int round = 0; round < 200; ++round) {
    test_op t;
    test_begin(&t);
    const ir_triangular_solve_attrs a = {random_below(2), random_below(2), random_below(2),
                                         (ir_transpose_kind)random_below(3)};
    int64_t n = sizes[random_below(round < 180 ? 5 : 8)], m = random_below(9), batch = random_from(1, 3),
            dims[3] = {batch, n, n};
    int64_t right[3] = {batch, a.left_side ? n : m, a.left_side ? m : n};
    ttpu_dtype dtype = (ttpu_dtype[]){TTPU_F32, TTPU_F64, TTPU_C64}[random_below(n > 60 ? 2 : 3)];
    ir_value operands[2] = {test_param(&t, dtype, 3, dims), test_param(&t, dtype, 3, right)};
    if (test_operands(&t, ir_append(&t.b, IR_TRIANGULAR_SOLVE, 2, operands, &a, 0, NULL, 0, NULL), false)) {
      free(t.operands[0].memory);
      t.operands[0] = test_view_new(dtype, 3, dims, LAYOUT_STRIDED);
      make_definite(&t.operands[0].v);
      for (int64_t i = 0; a.unit_diagonal && i < batch * n * n;
           ++i) { /* small off-diagonal values keep the solution small */
        base_scalar v = base_scalar_load(dtype, test_element(&t.operands[0].v, i));
        v.d[0] /= (double)(n + 1);
        base_scalar_store(dtype, test_element(&t.operands[0].v, i), v);
      }
      compare(&t, dtype == TTPU_F64 ? 1e-12 : 1e-5);
    }
    test_end(&t);
  }
}

/* ---- control flow ------------------------------------------------------------------------------------- */

/* ---- memory that runs out ------------------------------------------------------------------------------ */

TEST(out_of_memory_is_a_status) {
  test_op t;
  test_begin(&t);
  int64_t dims[2] = {9, 300}, n = 65;
  const ir_top_k_attrs top = {.k = 7, .largest = true, .sorted = true};
  const ir_fft_attrs fft = {IR_FFT_RFFT, {&dims[1], 1}};
  int64_t square[2] = {n, n}, zero = 0;
  const ir_cholesky_attrs lower = {true};
  ir_value x = test_param(&t, TTPU_F32, 2, dims), matrix = test_param(&t, TTPU_F64, 2, square);
  ir_value xs[2] = {x, ir_iota(&t.b, TTPU_I64, 2, dims, 1)};
  ir_value ops[] = {ir_sort(&t.b, 2, xs, 1, false), ir_append(&t.b, IR_TOP_K, 1, &x, &top, 0, NULL, 0, NULL),
                    ir_reduce(&t.b, IR_ADD, x, 1, &zero), ir_append(&t.b, IR_FFT, 1, &x, &fft, 0, NULL, 0, NULL),
                    ir_append(&t.b, IR_CHOLESKY, 1, &matrix, &lower, 0, NULL, 0, NULL)};
  for (size_t k = 0; k < sizeof ops / sizeof *ops; ++k) {
    if (!test_operands(&t, ops[k], false)) break;
    test_view out[MOST_RESULTS];
    soft_view in[4], y[MOST_RESULTS];
    make_results(&t, LAYOUT_DENSE, out);
    views_of(t.operands, t.operand_count, in), views_of(out, t.op->result_count, y);
    for (uint64_t nth = 1; nth < 100; ++nth) {
      base_alloc_fail_after(nth);
      ttpu_status status = soft_kernel_op(t.f, t.op, in, y);
      base_alloc_fail_after(0);
      if (status == TTPU_OK) break;
      CHECK_EQ(status, TTPU_RESOURCE_EXHAUSTED);
      CHECK(nth < 99);
    }
    free_results(&t, out);
    for (uint32_t i = 0; i < t.operand_count; ++i) free(t.operands[i].memory);
  }
  t.operand_count = 0;
  test_end(&t);
}
