/* The builder: types that follow, constraints that refuse, the sticky error, helpers that change nothing. */
#include "check.h"
#include "ir_examples.h"

typedef struct world {
  base_arena arena;
  ir_func *f;
  ir_builder b;
} world;

static void open_world(world *w) {
  base_arena_init(&w->arena);
  w->f = ir_func_new(&w->arena, "main");
  w->b = ir_builder_on(w->f);
}
static void close_world(world *w) { base_arena_free(&w->arena); }

static ir_value f32(ir_builder *b, uint32_t rank, const int64_t *dims) {
  return example_param(b, TTPU_F32, rank, dims);
}

static void check_type(const ir_builder *b, ir_value v, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  CHECK_EQ(b->status, TTPU_OK);
  if (b->status) fprintf(stderr, "    %s\n", b->message);
  ir_type t = ir_type_of(b->func, v);
  CHECK_EQ(t.dtype, dtype);
  CHECK_EQ(t.rank, rank);
  for (uint32_t i = 0; i < rank && i < t.rank; ++i) CHECK_EQ(t.dims[i], dims[i]);
}

TEST(result_types) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  ir_value x = f32(b, DIMS(2, 3, 4)), i = example_param(b, TTPU_I64, DIMS(5, 6)),
           z = example_param(b, TTPU_C64, DIMS(2, 3));
  ir_value image = f32(b, DIMS(2, 5, 6, 4)), empty = f32(b, DIMS(0, 3)), none = example_param(b, TTPU_I64, DIMS(0));
  check_type(b, ir_abs(b, z), TTPU_F32, DIMS(2, 3));
  check_type(b, ir_is_finite(b, x), TTPU_BOOL, DIMS(2, 3, 4));
  check_type(b, ir_take(b, x, i, 1), TTPU_F32, DIMS(2, 5, 6, 4));
  check_type(b, ir_take(b, empty, none, 0), TTPU_F32, DIMS(0, 3));
  check_type(b, ir_reduce(b, IR_ADD, x, DIMS(0, 2)), TTPU_F32, DIMS(3));
  check_type(b, ir_reduce(b, IR_MAXIMUM, empty, DIMS(0)), TTPU_F32, DIMS(3));
  check_type(b, ir_broadcast_to(b, x, DIMS(7, 2, 3, 4)), TTPU_F32, DIMS(7, 2, 3, 4));
  check_type(b, ir_slice(b, x, (int64_t[]){0, 1, 0}, (int64_t[]){2, 3, 4}, (int64_t[]){1, 2, 3}), TTPU_F32,
             DIMS(2, 1, 2));
  check_type(b, ir_pad(b, x, ir_scalar_f64(b, TTPU_F32, 0), (int64_t[]){-1, 0, 1}, NULL, (int64_t[]){0, 2, 0}),
             TTPU_F32, DIMS(1, 7, 5));
  check_type(b, ir_convert(b, x, TTPU_I8), TTPU_I8, DIMS(2, 3, 4));
  check_type(b, ir_matmul(b, x, ir_transpose(b, x, (int64_t[]){0, 2, 1}), IR_PRECISION_DEFAULT, TTPU_BF16), TTPU_BF16,
             DIMS(2, 3, 3));
  const ir_window_attrs window = {.window_dimensions = LIST(1, 3, 2, 1),
                                  .window_strides = LIST(1, 2, 1, 1),
                                  .window_dilations = LIST(1, 1, 3, 1),
                                  .padding = LIST(0, 0, 1, 0, 0, 0, 0, 0)};
  check_type(b, ir_reduce_window(b, IR_ADD, image, &window), TTPU_F32, DIMS(2, 2, 3, 4));
  ir_value value, index = ir_reduce_arg(b, false, x, 1, &value);
  check_type(b, index, TTPU_I64, DIMS(2, 4));
  check_type(b, value, TTPU_F32, DIMS(2, 4));
  close_world(&w);
}

TEST(helpers_that_change_nothing) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  ir_value x = f32(b, DIMS(2, 3));
  CHECK_EQ(ir_convert(b, x, TTPU_F32), x);
  CHECK_EQ(ir_bitcast_convert(b, x, TTPU_F32), x);
  CHECK_EQ(ir_reshape(b, x, DIMS(2, 3)), x);
  CHECK_EQ(ir_transpose(b, x, (int64_t[]){0, 1}), x);
  CHECK_EQ(ir_broadcast_to(b, x, DIMS(2, 3)), x);
  CHECK_EQ(ir_slice(b, x, (int64_t[]){0, 0}, (int64_t[]){2, 3}, NULL), x);
  CHECK_EQ(ir_slice_dim(b, x, 1, 0, 3, 1), x);
  CHECK_EQ(ir_pad(b, x, x, NULL, NULL, NULL), x);
  CHECK_EQ(ir_concatenate(b, 1, &x, 0), x);
  CHECK_EQ(ir_reverse(b, x, 0, NULL), x);
  CHECK_EQ(ir_reduce(b, IR_ADD, x, 0, NULL), x);
  CHECK_EQ(ir_as_strided(b, x, DIMS(2, 3), (int64_t[]){3, 1}, 0), x);
  CHECK_EQ(ir_as_strided_update(b, x, x, (int64_t[]){3, 1}, 0), x);
  CHECK_EQ(w.f->body.count, 0);
  CHECK_EQ(ir_def(w.f, ir_as_strided(b, x, DIMS(1, 6), (int64_t[]){17, 1}, 0))->kind,
           IR_RESHAPE); /* a stride of size 1 says nothing */
  CHECK_EQ(b->status, TTPU_OK);
  close_world(&w);
}

TEST(extremes_and_scalars) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  for (int t = 1; t < TTPU_TOKEN; ++t) {
    if (base_dtype_is_complex((ttpu_dtype)t)) continue;
    base_scalar s[2];
    for (int i = 0; i < 2; ++i) {
      ir_value v = i ? ir_highest(b, (ttpu_dtype)t) : ir_lowest(b, (ttpu_dtype)t);
      s[i] = base_scalar_load((ttpu_dtype)t, IR_ATTRS(ir_def(w.f, v), constant)->value.bytes);
    }
    int bits = (int)base_dtype_bytes((ttpu_dtype)t) * 8;
    double low = s[0].d[0], high = s[1].d[0];
    switch (base_dtypes[t].cls) {
      case DTYPE_BOOL: CHECK(s[0].i == 0 && s[1].i == 1); break;
      case DTYPE_UNSIGNED: CHECK(s[0].u == 0 && s[1].u == UINT64_MAX >> (64 - bits)); break;
      case DTYPE_SIGNED: CHECK(s[0].i == -s[1].i - 1 && s[1].i == (int64_t)(UINT64_MAX >> (65 - bits))); break;
      default: CHECK(t == TTPU_F8E4M3FN ? low == -448 && high == 448 : isinf(low) && isinf(high) && low < high);
    }
  }
  CHECK_EQ(b->status, TTPU_OK);
  ir_lowest(b, TTPU_C64);
  CHECK_HAS(b->message, "complex64 has no order");
  close_world(&w);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static ir_value append(ir_builder *b, ir_kind kind, uint32_t n, const ir_value *operands, const void *attrs) {
  return ir_append(b, kind, n, operands, attrs, 0, NULL, 0, NULL);
}

/* Case by case: builds something wrong. The message that each must give is in the list below. */
static void build_wrong(ir_builder *b, int number) {
  ir_value x = f32(b, DIMS(2, 3)), y = f32(b, DIMS(3, 2)), i = example_param(b, TTPU_I64, DIMS(4)),
           p = example_param(b, TTPU_BOOL, DIMS(2, 3));
  ir_value z = example_param(b, TTPU_C64, DIMS(2, 3)), square = f32(b, DIMS(2, 2)), wide = f32(b, DIMS(1, 4));
  ir_value s = ir_scalar_f64(b, TTPU_F32, 0);
  ir_value operands[5] = {x, y, i, p, z};
  ir_type t = {TTPU_F32, 2, (const int64_t[]){5, 5}};
  ir_region *r;
  switch (number) {
    case 0: ir_add(b, x, y); break;
    case 1: ir_sine(b, i); break;
    case 2: ir_negate(b, p); break;
    case 3: ir_shift_left(b, x, x); break;
    case 4: ir_compare(b, IR_LT, z, z); break;
    case 5: ir_select(b, x, x, x); break;
    case 6: ir_clamp(b, z, z, z); break;
    case 7: ir_reshape(b, x, DIMS(5)); break;
    case 8: ir_transpose(b, x, (int64_t[]){0, 0}); break;
    case 9: ir_slice_dim(b, x, 1, 2, 5, 1); break;
    case 10: ir_broadcast_in_dim(b, x, DIMS(2, 4), (int64_t[]){0, 1}); break;
    case 11: ir_broadcast_to(b, x, DIMS(3)); break;
    case 12: ir_concatenate(b, 2, operands, 0); break;
    case 13: ir_pad(b, x, s, (int64_t[]){-3, 0}, NULL, NULL); break;
    case 14: ir_as_strided(b, x, DIMS(3, 3), (int64_t[]){1, 2}, 0); break;
    case 15: ir_as_strided_update(b, x, square, (int64_t[]){1, 1}, 0); break;
    case 16: ir_take(b, x, x, 0); break;
    case 17: ir_take_along(b, x, i, 0); break;
    case 18: ir_matmul(b, x, x, IR_PRECISION_DEFAULT, TTPU_F32); break;
    case 19: ir_reduce(b, IR_DIVIDE, x, DIMS(0)); break;
    case 20: ir_reduce(b, IR_ADD, x, DIMS(2)); break;
    case 21: ir_iota(b, TTPU_I32, DIMS(2, 3), 2); break;
    case 22: append(b, IR_TRANSPOSE, 1, &x, NULL); break;
    case 23: append(b, IR_ADD, 1, &x, NULL); break;
    case 24: ir_append(b, IR_ADD, 2, (ir_value[]){x, x}, NULL, 1, &t, 0, NULL); break;
    case 25: append(b, IR_ABS, 1, (ir_value[]){0}, NULL); break;
    case 26: append(b, IR_ABS, 1, (ir_value[]){12345}, NULL); break;
    case 27: append(b, (ir_kind)999, 1, &x, NULL); break;
    case 28:
      ir_return(b, 1, &x);
      ir_abs(b, x);
      break;
    case 29:
      ir_abs(b, x);
      ir_param(b, t);
      break;
    case 30: ir_tensor(b, TTPU_F32, 17, NULL); break;
    case 31: ir_fill_f64(b, TTPU_F32, DIMS(-1), 0); break;
    case 32: ir_fill_f64(b, TTPU_F32, DIMS(1ll << 40, 1ll << 30), 0); break;
    case 33: ir_bitcast_convert(b, x, TTPU_F64); break;
    case 34: append(b, IR_FFT, 1, &x, &(ir_fft_attrs){IR_FFT_FFT, LIST(3)}); break;
    case 35: append(b, IR_CHOLESKY, 1, &x, &(ir_cholesky_attrs){true}); break;
    case 36: append(b, IR_TOP_K, 1, &x, &(ir_top_k_attrs){4, true, true}); break;
    case 37: append(b, IR_SCAN, 1, &p, &(ir_scan_attrs){1, false, IR_CUMSUM}); break;
    case 38: append(b, IR_COMPARE, 2, (ir_value[]){x, x}, &(ir_compare_attrs){(ir_direction)9}); break;
    case 39: ir_dynamic_slice(b, x, (ir_value[]){s, s}, (int64_t[]){1, 1}); break;
    case 40:
      ir_dynamic_update_slice(b, x, wide, (ir_value[]){ir_scalar_i64(b, TTPU_I32, 0), ir_scalar_i64(b, TTPU_I32, 0)});
      break;
    case 41: /* a reducer of another dtype */
      r = example_reducer(b, IR_ADD, TTPU_F64);
      ir_append(b, IR_REDUCE, 2, (ir_value[]){x, s}, &(ir_dims_attrs){LIST(0)}, 0, NULL, 1, &r);
      break;
    case 42: /* a comparator that returns no predicate */
      r = example_reducer(b, IR_ADD, TTPU_F32);
      ir_append(b, IR_SORT, 1, &x, &(ir_sort_attrs){1, false}, 0, NULL, 1, &r);
      break;
    case 43: /* branches that differ */
      ir_append(b, IR_IF, 1, (ir_value[]){ir_scalar_i64(b, TTPU_BOOL, 1)}, NULL, 0, NULL, 2,
                (ir_region *[]){example_branch(b, IR_ADD, x), example_branch(b, IR_ADD, y)});
      break;
    case 44: ir_philox(b, i, TTPU_U32, DIMS(3)); break;
    case 45:
      ir_convolution(b, x, x, &(ir_convolution_attrs){.feature_group_count = 1, .batch_group_count = 1}, TTPU_F32);
      break;
    case 46: append(b, IR_ATTENTION, 4, (ir_value[]){x, x, x, s}, &(ir_attention_attrs){false}); break;
    case 47: ir_erf(b, i); break;
    default: ir_fail(b, TTPU_UNIMPLEMENTED, "%d", number);
  }
}

TEST(what_is_refused) {
  static const char *const messages[] = {
      "add: operand 1 is tensor<3x2xf32>, but operand 0 is tensor<2x3xf32>",
      "sine: operand is tensor<4xi64>, expected a dtype of: float, complex",
      "negate: operand is tensor<2x3xi1>",
      "shift_left: operand is tensor<2x3xf32>, expected a dtype of: unsigned, signed",
      "compare: complex numbers have no order",
      "select: pred is tensor<2x3xf32>, expected i1",
      "clamp: operand is tensor<2x3xcomplex<f32>>",
      "reshape: tensor<2x3xf32> does not reshape to tensor<5xf32>",
      "transpose: permutation names dimension 0 twice",
      "slice: dimension 1: [2, 5) does not lie in tensor<2x3xf32>",
      "broadcast_in_dim: dimension 1 of tensor<2x3xf32> does not expand to dimension 1 of tensor<2x4xf32>",
      "broadcast: tensor<2x3xf32> has more dimensions than the 1 asked for",
      "concatenate: operand 1 is tensor<3x2xf32>, but operand 0",
      "pad: dimension 0 of tensor<2x3xf32> becomes -1",
      "as_strided: elements 0 to 6 of tensor<2x3xf32> are asked for, which has 6",
      "as_strided_update: unsupported operation: more than one element",
      "gather: indices are tensor<2x3xf32>, expected integers",
      "take_along: dimension 0 of tensor<2x3xf32>",
      "dot_general: contracting dimensions 1 of tensor<2x3xf32> and 0 of tensor<2x3xf32> differ",
      "divide is not a reduction",
      "reduce: dimensions[0] is 2, expected [0, 2)",
      "iota: iota_dimension is 2",
      "transpose: no attributes",
      "add: the operand list has 1 entries",
      "add: result 0 is tensor<2x3xf32>, but tensor<5x5xf32> was given",
      "abs: an operand is not a value",
      "abs: an operand is not a value",
      "not an operation",
      "abs: appended after the region's return",
      "parameters come before",
      "rank 17: at most 16",
      "dimension 0 of the result is -1",
      "larger than 2^63 bytes",
      "bitcast_convert: tensor<2x3xf32> cannot be read as tensor<2x3xf64>",
      "fft: operand is tensor<2x3xf32>, expected complex",
      "cholesky: operand is tensor<2x3xf32>, expected square",
      "top_k: k is 4 for tensor<2x3xf32>",
      "scan: operand is tensor<2x3xi1>",
      "compare: comparison_direction is 9",
      "dynamic_slice: start index 0 is tensor<f32>",
      "dynamic_update_slice: update is tensor<1x4xf32>",
      "reduce: argument 0 of region 0 is tensor<f64>, expected a scalar of f32",
      "sort: region 0 returns tensor<f32>, expected tensor<i1>",
      "if: branch 1 returns tensor<3x2xf32> as result 0, branch 0 returns tensor<2x3xf32>",
      "rng_bit_generator: initial state is tensor<4xi64>",
      "convolution: input dimensions names dimension 0 twice",
      "attention: q is",
      "erf: operand is tensor<4xi64>, expected a dtype of: float"};
  int count = (int)(sizeof messages / sizeof *messages);
  for (int i = 0; i < count; ++i) {
    world w;
    open_world(&w);
    w.b.source = "aten::op";
    build_wrong(&w.b, i);
    if (!CHECK_HAS(w.b.message, messages[i])) {
      fprintf(stderr, "    case %d\n", i);
    }
    CHECK_EQ(w.b.status, TTPU_INVALID_ARGUMENT);
    CHECK(strncmp(w.b.message, "aten::op: ", 10) == 0);
    close_world(&w);
  }
  world w;
  open_world(&w);
  build_wrong(&w.b, count);
  CHECK_EQ(w.b.status, TTPU_UNIMPLEMENTED); /* the list and the switch end together */
  close_world(&w);
}

/* After a failure every call returns 0, types can be looked at, regions can be opened, the first message stays. */
TEST(the_first_failure_stays) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  ir_value x = f32(b, DIMS(2, 3)), bad = ir_add(b, x, ir_scalar_f64(b, TTPU_F32, 0));
  CHECK_EQ(bad, 0);
  CHECK_EQ(ir_type_of(w.f, bad).rank, 0);
  CHECK_EQ(ir_type_of(w.f, bad).dims[3], 0);
  uint32_t count = w.f->body.count, values = w.f->value_count;
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind)
    if (kind != IR_RETURN && kind != IR_RNG_BIT_GENERATOR) CHECK_EQ(example_value(b, (ir_kind)kind), 0);
  ir_return(b, 1, &bad);
  CHECK_EQ(w.f->body.count, count);
  CHECK_EQ(w.f->value_count, values);
  CHECK_HAS(b->message, "add: operand 1 is tensor<f32>");
  close_world(&w);
  ir_builder dead = ir_builder_on(NULL);
  CHECK_EQ(dead.status, TTPU_RESOURCE_EXHAUSTED);
  CHECK_EQ(ir_add(&dead, 1, 2), 0);
}

/* ---- regions and verification --------------------------------------------------------------- */

TEST(reducers_are_recognised) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  CHECK_EQ(ir_region_reducer(w.f, example_reducer(b, IR_ADD, TTPU_F32)), IR_ADD);
  CHECK_EQ(ir_region_reducer(w.f, example_reducer(b, IR_DIVIDE, TTPU_F32)), IR_DIVIDE);
  ir_type s = ir_tensor(b, TTPU_F32, 0, NULL);
  for (int i = 0; i < 3; ++i) { /* swapped: fine for add; x - y swapped and x + x are not */
    ir_region *outer, *r = ir_region_begin(b, 2, (ir_type[2]){s, s}, &outer);
    ir_value x = r->first_arg, v = ir_binary(b, i == 1 ? IR_SUBTRACT : IR_ADD, x + 1, i == 2 ? x + 1 : x);
    ir_region_end(b, outer, 1, &v);
    CHECK_EQ(ir_region_reducer(w.f, r), i ? IR_NO_OP : IR_ADD);
  }
  close_world(&w);
}

TEST(verify_finds_damage) {
  for (int damage = 0; damage < 8; ++damage) {
    world w;
    open_world(&w);
    ir_builder *b = &w.b;
    ir_value x = f32(b, DIMS(2, 3)), y = ir_add(b, x, x), z = ir_multiply(b, y, y);
    ir_return(b, 1, &z);
    CHECK_OK(ir_func_verify(w.f));
    ir_op *add = w.f->body.ops[0], *multiply = w.f->body.ops[1];
    switch (damage) {
      case 0: add->operands[0] = z; break;                 /* used before its definition */
      case 1: multiply->kind = IR_COMPARE; break;          /* no attributes */
      case 2: w.f->values[y].type.dtype = TTPU_F64; break; /* another type than inferred */
      case 3: w.f->body.count = 2; break;                  /* no return */
      case 4: add->index = 1; break;
      case 5: add->operand_count = 1; break;
      case 6: w.f->values[z].def = add; break;
      default: multiply->first_result = y; break;
    }
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, "@main is not a valid function",
                ir_func_verify(w.f) == TTPU_OK ? TTPU_OK : TTPU_INVALID_ARGUMENT);
    close_world(&w);
  }
}

TEST(many_results_and_operands) {
  world w;
  open_world(&w);
  ir_builder *b = &w.b;
  ir_value xs[300];
  for (int i = 0; i < 300; ++i) xs[i] = f32(b, DIMS(i % 4 + 1, 3));
  ir_value all = ir_concatenate(b, 300, xs, 0), first = append(b, IR_OPTIMIZATION_BARRIER, 300, xs, NULL);
  CHECK_EQ(ir_type_of(w.f, all).dims[0], 750);
  CHECK_EQ(ir_def(w.f, first + 299)->result_count, 300);
  CHECK_EQ(w.f->values[first + 299].number, 299);
  ir_return(b, 1, &all);
  CHECK_OK(ir_func_verify(w.f));
  close_world(&w);
}

/* ---- hashes --------------------------------------------------------------------------------- */

static bool same(base_hash128 a, base_hash128 b) { return a.a == b.a && a.b == b.b; }

/* Variants of one program: what changes which hash. */
static ir_func *variant(world *w, int which) {
  open_world(w);
  ir_builder *b = &w->b;
  const int64_t n = which == 1 ? 9 : which == 2 ? 1 : which == 3 ? 0 : 7;
  ir_value x = example_param(b, which == 4 ? TTPU_F64 : TTPU_F32, DIMS(n, 3));
  ttpu_dtype dtype = (ttpu_dtype)ir_type_of(w->f, x).dtype;
  ir_value c = ir_fill_f64(b, dtype, DIMS(n, 3), which == 5 ? 2.5 : 1.5);
  ir_value y = which == 6 ? ir_subtract(b, x, c) : which == 7 ? ir_add(b, c, x) : ir_add(b, x, c);
  y = ir_transpose(b, y, which == 8 ? (int64_t[]){0, 1} : (int64_t[]){1, 0});
  y = ir_reduce(b, IR_ADD, y, DIMS(0));
  b->source = which == 9 ? "elsewhere" : NULL;
  y = ir_negate(b, y);
  ir_return(b, 1, &y);
  CHECK_EQ(b->status, TTPU_OK);
  return w->f;
}

TEST(hashes_see_what_they_should) {
  static const bool full[] = {false, true, true, true, true, true, true, true, true, false};
  static const bool structure[] = {false, false, true, true, true, false, true, true, true, false};
  static bool donated[] = {true};
  world base, w;
  ir_func *f = variant(&base, 0);
  for (int i = 0; i < 10; ++i) {
    ir_func *g = variant(&w, i);
    if (same(ir_func_hash(f), ir_func_hash(g)) != !full[i]) check_fail(__FILE__, __LINE__, "variant %d: hash", i);
    if (same(ir_func_structure(f), ir_func_structure(g)) != !structure[i])
      check_fail(__FILE__, __LINE__, "variant %d: structure", i);
    close_world(&w);
  }
  base_hash128 before = ir_func_hash(f);
  f->donate = donated;
  CHECK(!same(before, ir_func_hash(f)));
  close_world(&base);
}

/* No two of the examples, of different operations all, have one hash or one structure. */
TEST(hashes_differ) {
  base_hash128 hashes[2 * IR_KIND_COUNT];
  int n = 0;
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind) {
    base_arena arena;
    base_arena_init(&arena);
    ir_builder b;
    ir_func *f = example_build(&b, &arena, (ir_kind)kind);
    hashes[n++] = ir_func_hash(f);
    hashes[n++] = ir_func_structure(f);
    base_arena_free(&arena);
  }
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < i; ++k) CHECK(!same(hashes[i], hashes[k]));
}
