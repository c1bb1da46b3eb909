/* One small function for every kind of operation, for tests that go over all of them. */
#ifndef TTPU_IR_EXAMPLES_H
#define TTPU_IR_EXAMPLES_H

#include <math.h>

#include "ir/ir.h"

#define DIMS(...) \
  (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define LIST(...) ((ir_i64s){(const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

static inline ir_value example_param(ir_builder *b, ttpu_dtype t, uint32_t rank, const int64_t *dims) {
  return ir_param(b, ir_tensor(b, t, rank, dims));
}

static inline ir_region *example_reducer(ir_builder *b, ir_kind kind, ttpu_dtype t) {
  ir_type s = ir_tensor(b, t, 0, NULL);
  ir_region *outer, *r = ir_region_begin(b, 2, (ir_type[2]){s, s}, &outer);
  ir_value y = kind == IR_COMPARE ? ir_compare(b, IR_GE, r->first_arg, r->first_arg + 1)
                                  : ir_binary(b, kind, r->first_arg, r->first_arg + 1);
  ir_region_end(b, outer, 1, &y);
  return r;
}

/* A region without arguments that returns x + x or x * x. */
static inline ir_region *example_branch(ir_builder *b, ir_kind kind, ir_value x) {
  ir_region *outer, *r = ir_region_begin(b, 0, NULL, &outer);
  ir_value y = ir_binary(b, kind, x, x);
  ir_region_end(b, outer, 1, &y);
  return r;
}

/* while (i < 5) { i += 1; x += x } */
static inline ir_value example_while(ir_builder *b) {
  ir_value x = example_param(b, TTPU_F32, DIMS(3)), zero = ir_scalar_i64(b, TTPU_I32, 0), values[2] = {zero, x};
  ir_type types[2] = {ir_type_of(b->func, zero), ir_type_of(b->func, x)};
  ir_region *outer, *regions[2];
  regions[0] = ir_region_begin(b, 2, types, &outer);
  ir_value go = ir_compare(b, IR_LT, regions[0]->first_arg, ir_scalar_i64(b, TTPU_I32, 5));
  ir_region_end(b, outer, 1, &go);
  regions[1] = ir_region_begin(b, 2, types, &outer);
  ir_value i = regions[1]->first_arg, next[2];
  next[0] = ir_add(b, i, ir_scalar_i64(b, TTPU_I32, 1));
  next[1] = ir_add(b, i + 1, i + 1);
  ir_region_end(b, outer, 2, next);
  return ir_append(b, IR_WHILE, 2, values, NULL, 0, NULL, 2, regions);
}

static inline ir_value example_convolution(ir_builder *b) {
  ir_value x = example_param(b, TTPU_F32, DIMS(2, 5, 6, 4)),
           w = example_param(b, TTPU_F32, DIMS(3, 3, 2, 8)); /* NHWC, HWIO */
  const bool reversal[2] = {true, false};
  const ir_convolution_attrs a = {.window_strides = LIST(1, 2),
                                  .padding = LIST(1, 1, 0, 2),
                                  .lhs_dilation = LIST(1, 1),
                                  .rhs_dilation = LIST(1, 1),
                                  .input_batch_dimension = 0,
                                  .input_feature_dimension = 3,
                                  .input_spatial_dimensions = LIST(1, 2),
                                  .kernel_input_feature_dimension = 2,
                                  .kernel_output_feature_dimension = 3,
                                  .kernel_spatial_dimensions = LIST(0, 1),
                                  .output_batch_dimension = 0,
                                  .output_feature_dimension = 1,
                                  .output_spatial_dimensions = LIST(2, 3),
                                  .window_reversal = {reversal, 2},
                                  .feature_group_count = 2,
                                  .batch_group_count = 1,
                                  .precision = IR_PRECISION_HIGH};
  return ir_convolution(b, x, w, &a, TTPU_F32);
}

static inline ir_value example_collective(ir_builder *b, ir_kind kind) {
  ir_value x = example_param(b, TTPU_F32, DIMS(4, 6));
  ir_type t = ir_type_of(b->func, x);
  ir_replica_groups_attrs a = {
      .group_count = 1, .replica_groups = LIST(0, 1), .channel_id = 1, .use_global_device_ids = true};
  ir_region *r;
  switch (kind) {
    case IR_ALL_REDUCE: r = example_reducer(b, IR_ADD, TTPU_F32); return ir_append(b, kind, 1, &x, &a, 0, NULL, 1, &r);
    case IR_ALL_GATHER:
      a.dimension = 1;
      t = ir_tensor(b, TTPU_F32, DIMS(4, 12));
      return ir_append(b, kind, 1, &x, &a, 1, &t, 0, NULL);
    case IR_REDUCE_SCATTER:
      a.dimension = 0;
      t = ir_tensor(b, TTPU_F32, DIMS(2, 6));
      r = example_reducer(b, IR_ADD, TTPU_F32);
      return ir_append(b, kind, 1, &x, &a, 1, &t, 1, &r);
    case IR_ALL_TO_ALL:
      a.dimension = 0, a.concat_dimension = 1, a.split_count = 2, a.use_global_device_ids = false;
      t = ir_tensor(b, TTPU_F32, DIMS(2, 12));
      return ir_append(b, kind, 1, &x, &a, 1, &t, 0, NULL);
    case IR_COLLECTIVE_REDUCE: {
      ir_value operands[2] = {x, example_param(b, TTPU_I32, DIMS(1))};
      a.has_dynamic_root = true;
      r = example_reducer(b, IR_ADD, TTPU_F32);
      return ir_append(b, kind, 2, operands, &a, 0, NULL, 1, &r);
    }
    default:
      a = (ir_replica_groups_attrs){.group_count = 2, .replica_groups = LIST(0, 1, 1, 0), .channel_id = 1};
      if (kind == IR_COLLECTIVE_BROADCAST) a.group_count = 1, a.replica_groups.count = 2;
      return ir_append(b, kind, 1, &x, &a, 0, NULL, 0, NULL);
  }
}

/* The first result of an operation of `kind` on fresh parameters. */
static inline ir_value example_value(ir_builder *b, ir_kind kind) {
  ir_value x, y, z, operands[5];
  ir_region *regions[3];
  switch (kind) {
    case IR_COUNT_LEADING_ZEROS:
    case IR_POPCNT: return ir_unary(b, kind, example_param(b, TTPU_I32, DIMS(2, 3)));
    case IR_NOT: return ir_unary(b, kind, example_param(b, TTPU_BOOL, DIMS(2, 3)));
    case IR_REAL:
    case IR_IMAG: return ir_unary(b, kind, example_param(b, TTPU_C64, DIMS(2, 3)));
    case IR_CONVERT: return ir_convert(b, example_param(b, TTPU_F32, DIMS(2, 3)), TTPU_BF16);
    case IR_BITCAST_CONVERT: return ir_bitcast_convert(b, example_param(b, TTPU_F32, DIMS(2, 3)), TTPU_U32);
    case IR_REDUCE_PRECISION:
      x = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_append(b, kind, 1, &x, &(ir_reduce_precision_attrs){5, 10}, 0, NULL, 0, NULL);
    case IR_AND:
    case IR_OR:
    case IR_XOR:
    case IR_SHIFT_LEFT:
    case IR_SHIFT_RIGHT_ARITHMETIC:
    case IR_SHIFT_RIGHT_LOGICAL:
      x = example_param(b, TTPU_U8, DIMS(2, 3));
      return ir_binary(b, kind, x, example_param(b, TTPU_U8, DIMS(2, 3)));
    case IR_COMPARE:
      x = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_compare(b, IR_LE, x, example_param(b, TTPU_F32, DIMS(2, 3)));
    case IR_SELECT:
      x = example_param(b, TTPU_BOOL, 0, NULL), y = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_select(b, x, y, example_param(b, TTPU_F32, DIMS(2, 3)));
    case IR_CLAMP:
      x = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_clamp(b, ir_scalar_f64(b, TTPU_F32, -1), x, ir_scalar_f64(b, TTPU_F32, 1));
    case IR_BROADCAST_IN_DIM:
      return ir_broadcast_in_dim(b, example_param(b, TTPU_F32, DIMS(3, 1)), DIMS(2, 3, 4), (int64_t[]){1, 2});
    case IR_RESHAPE: return ir_reshape(b, example_param(b, TTPU_F32, DIMS(2, 6)), DIMS(3, 4));
    case IR_REVERSE: return ir_reverse(b, example_param(b, TTPU_F32, DIMS(2, 6)), DIMS(1));
    case IR_SLICE:
      return ir_slice(b, example_param(b, TTPU_F32, DIMS(5, 6)), (int64_t[]){1, 0}, (int64_t[]){4, 6},
                      (int64_t[]){1, 2});
    case IR_TRANSPOSE: return ir_transpose(b, example_param(b, TTPU_F32, DIMS(2, 3, 4)), (int64_t[]){2, 0, 1});
    case IR_CONCATENATE:
      operands[0] = example_param(b, TTPU_F32, DIMS(2, 3)), operands[1] = example_param(b, TTPU_F32, DIMS(2, 0));
      operands[2] = example_param(b, TTPU_F32, DIMS(2, 2));
      return ir_concatenate(b, 3, operands, 1);
    case IR_PAD:
      x = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_pad(b, x, ir_scalar_f64(b, TTPU_F32, 0.5), (int64_t[]){1, -1}, (int64_t[]){0, 2}, (int64_t[]){2, 0});
    case IR_DYNAMIC_SLICE:
      x = example_param(b, TTPU_F32, DIMS(5, 6)), operands[0] = example_param(b, TTPU_I32, 0, NULL),
      operands[1] = operands[0];
      return ir_dynamic_slice(b, x, operands, (int64_t[]){2, 3});
    case IR_DYNAMIC_UPDATE_SLICE:
      x = example_param(b, TTPU_F32, DIMS(5, 6)), y = example_param(b, TTPU_F32, DIMS(2, 3));
      operands[0] = example_param(b, TTPU_I32, 0, NULL), operands[1] = operands[0];
      return ir_dynamic_update_slice(b, x, y, operands);
    case IR_GATHER:
      x = example_param(b, TTPU_F32, DIMS(5, 6));
      return ir_take_along(b, x, example_param(b, TTPU_I64, DIMS(5, 2)), 1);
    case IR_SCATTER: {
      const ir_scatter_attrs a = {.update_window_dims = LIST(1),
                                  .inserted_window_dims = LIST(0),
                                  .scatter_dims_to_operand_dims = LIST(0),
                                  .index_vector_dim = 1};
      x = example_param(b, TTPU_F32, DIMS(5, 6)), y = example_param(b, TTPU_I32, DIMS(3));
      return ir_scatter(b, x, y, example_param(b, TTPU_F32, DIMS(3, 6)), &a, IR_ADD);
    }
    case IR_CONSTANT:
      return ir_constant(b, ir_tensor(b, TTPU_F32, DIMS(2, 2)), (ir_data){(float[]){1, -2.5f, 1e-30f, NAN}, false});
    case IR_IOTA: return ir_iota(b, TTPU_I32, DIMS(2, 3), 1);
    case IR_RNG_BIT_GENERATOR: return ir_philox(b, example_param(b, TTPU_U64, DIMS(2)), TTPU_U32, DIMS(4, 3)) - 1;
    case IR_DOT_GENERAL:
      x = example_param(b, TTPU_BF16, DIMS(2, 3, 4));
      return ir_matmul(b, x, example_param(b, TTPU_BF16, DIMS(2, 4, 5)), IR_PRECISION_HIGHEST, TTPU_F32);
    case IR_CONVOLUTION: return example_convolution(b);
    case IR_REDUCE: ir_reduce_arg(b, true, example_param(b, TTPU_F32, DIMS(3, 4)), 1, &x); return x;
    case IR_REDUCE_WINDOW: {
      const ir_window_attrs a = {
          .window_dimensions = LIST(2, 3), .window_strides = LIST(1, 2), .padding = LIST(0, 0, 1, 1)};
      return ir_reduce_window(b, IR_MAXIMUM, example_param(b, TTPU_F32, DIMS(4, 6)), &a);
    }
    case IR_SELECT_AND_SCATTER: {
      const ir_window_attrs a = {.window_dimensions = LIST(2, 2), .window_strides = LIST(2, 2)};
      operands[0] = example_param(b, TTPU_F32, DIMS(4, 6)), operands[1] = example_param(b, TTPU_F32, DIMS(2, 3));
      operands[2] = ir_scalar_f64(b, TTPU_F32, 0);
      regions[0] = example_reducer(b, IR_COMPARE, TTPU_F32), regions[1] = example_reducer(b, IR_ADD, TTPU_F32);
      return ir_append(b, kind, 3, operands, &a, 0, NULL, 2, regions);
    }
    case IR_SORT:
      operands[0] = example_param(b, TTPU_F32, DIMS(3, 4)), operands[1] = ir_iota(b, TTPU_I64, DIMS(3, 4), 1);
      return ir_sort(b, 2, operands, 1, true);
    case IR_FFT:
      x = example_param(b, TTPU_F32, DIMS(3, 8));
      return ir_append(b, kind, 1, &x, &(ir_fft_attrs){IR_FFT_RFFT, LIST(8)}, 0, NULL, 0, NULL);
    case IR_CHOLESKY:
      x = example_param(b, TTPU_F32, DIMS(3, 3));
      return ir_append(b, kind, 1, &x, &(ir_cholesky_attrs){true}, 0, NULL, 0, NULL);
    case IR_TRIANGULAR_SOLVE:
      operands[0] = example_param(b, TTPU_F32, DIMS(3, 3)), operands[1] = example_param(b, TTPU_F32, DIMS(3, 2));
      return ir_append(b, kind, 2, operands, &(ir_triangular_solve_attrs){true, true, false, IR_ADJOINT}, 0, NULL, 0,
                       NULL);
    case IR_IF:
      x = example_param(b, TTPU_BOOL, 0, NULL), y = example_param(b, TTPU_F32, DIMS(3));
      regions[0] = example_branch(b, IR_ADD, y), regions[1] = example_branch(b, IR_MULTIPLY, y);
      return ir_append(b, kind, 1, &x, NULL, 0, NULL, 2, regions);
    case IR_CASE:
      x = example_param(b, TTPU_I32, 0, NULL), y = example_param(b, TTPU_F32, DIMS(3));
      for (int i = 0; i < 3; ++i) regions[i] = example_branch(b, i == 1 ? IR_ADD : IR_MULTIPLY, y);
      return ir_append(b, kind, 1, &x, NULL, 0, NULL, 3, regions);
    case IR_WHILE: return example_while(b);
    case IR_OPTIMIZATION_BARRIER:
      operands[0] = example_param(b, TTPU_F32, DIMS(3)), operands[1] = example_param(b, TTPU_I8, DIMS(2));
      return ir_append(b, kind, 2, operands, NULL, 0, NULL, 0, NULL);
    case IR_CUSTOM_CALL: {
      ir_type t = ir_tensor(b, TTPU_F32, DIMS(2, 2));
      x = example_param(b, TTPU_F32, DIMS(3));
      return ir_append(b, kind, 1, &x, &(ir_custom_call_attrs){"a \"quoted\" target", "back\\slash\n\x01", true}, 1, &t,
                       0, NULL);
    }
    case IR_PARTITION_ID:
    case IR_REPLICA_ID: return ir_append(b, kind, 0, NULL, NULL, 0, NULL, 0, NULL);
    case IR_ALL_REDUCE:
    case IR_ALL_GATHER:
    case IR_REDUCE_SCATTER:
    case IR_ALL_TO_ALL:
    case IR_COLLECTIVE_PERMUTE:
    case IR_COLLECTIVE_BROADCAST:
    case IR_COLLECTIVE_REDUCE: return example_collective(b, kind);
    case IR_MAP:
      operands[0] = example_param(b, TTPU_F32, DIMS(2, 3)), operands[1] = example_param(b, TTPU_F32, DIMS(2, 3));
      regions[0] = example_reducer(b, IR_MULTIPLY, TTPU_F32);
      return ir_append(b, kind, 2, operands, &(ir_dims_attrs){LIST(0, 1)}, 0, NULL, 1, regions);
    case IR_CREATE_TOKEN: return ir_append(b, kind, 0, NULL, NULL, 0, NULL, 0, NULL);
    case IR_AFTER_ALL:
      operands[0] = example_param(b, TTPU_TOKEN, 0, NULL), operands[1] = example_param(b, TTPU_TOKEN, 0, NULL);
      return ir_append(b, kind, 2, operands, NULL, 0, NULL, 0, NULL);
    case IR_SEND:
    case IR_OUTFEED: {
      const ir_transfer_attrs channel = {3, 2, true};
      const ir_outfeed_attrs config = {"out"};
      operands[0] = example_param(b, TTPU_F32, DIMS(2)), operands[1] = example_param(b, TTPU_TOKEN, 0, NULL);
      const void *attrs = kind == IR_SEND ? (const void *)&channel : &config;
      return ir_append(b, kind, 2, operands, attrs, 0, NULL, 0, NULL);
    }
    case IR_RECV:
    case IR_INFEED: {
      const ir_transfer_attrs channel = {3, 3, true};
      const ir_infeed_attrs config = {"in"};
      const ir_type given[2] = {ir_tensor(b, TTPU_F32, DIMS(2)), ir_tensor(b, TTPU_TOKEN, 0, NULL)};
      x = example_param(b, TTPU_TOKEN, 0, NULL);
      const void *attrs = kind == IR_RECV ? (const void *)&channel : &config;
      return ir_append(b, kind, 1, &x, attrs, 2, given, 0, NULL);
    }
    case IR_AS_STRIDED:
      return ir_as_strided(b, example_param(b, TTPU_F32, DIMS(4, 6)), DIMS(3, 2, 2), (int64_t[]){2, 12, 0}, 1);
    case IR_AS_STRIDED_UPDATE:
      x = example_param(b, TTPU_F32, DIMS(4, 6));
      return ir_as_strided_update(b, x, example_param(b, TTPU_F32, DIMS(3, 2)), (int64_t[]){2, 12}, 1);
    case IR_CHECK_INDEX:
      return ir_check_index(b, example_param(b, TTPU_I64, DIMS(4)), -3, 3, IR_BAD_INDEX, "index_select");
    case IR_ATTENTION:
      operands[0] = example_param(b, TTPU_F32, DIMS(2, 4, 3, 8)),
      operands[1] = example_param(b, TTPU_F32, DIMS(2, 2, 5, 8));
      operands[2] = example_param(b, TTPU_F32, DIMS(2, 2, 5, 6)), operands[3] = example_param(b, TTPU_F32, 0, NULL);
      operands[4] = example_param(b, TTPU_F32, DIMS(1, 3, 5));
      return ir_append(b, kind, 5, operands, &(ir_attention_attrs){true}, 0, NULL, 0, NULL);
    case IR_SCAN:
      x = example_param(b, TTPU_F32, DIMS(3, 7));
      return ir_append(b, kind, 1, &x, &(ir_scan_attrs){1, true, IR_CUMMAX}, 0, NULL, 0, NULL);
    case IR_PATH_SCAN:
      operands[0] = example_param(b, TTPU_F32, DIMS(4, 2, 5)), operands[1] = example_param(b, TTPU_BOOL, DIMS(2, 5));
      operands[2] = example_param(b, TTPU_I64, DIMS(2));
      return ir_append(b, kind, 3, operands, NULL, 0, NULL, 0, NULL);
    case IR_MANUAL_COMPUTATION: {
      ir_type t = ir_tensor(b, TTPU_F32, DIMS(2)), part = ir_tensor(b, TTPU_F32, DIMS(1));
      ir_region *outer, *r;
      x = ir_param(b, t);
      r = ir_region_begin(b, 1, &part, &outer);
      ir_value y = ir_negate(b, r->first_arg);
      ir_region_end(b, outer, 1, &y);
      const char *shardings = "#sdy.sharding_per_value<[<@mesh, [{\"x\"}]>]>";
      return ir_append(b, kind, 1, &x, &(ir_manual_computation_attrs){shardings, shardings, "#sdy<manual_axes{\"x\"}>"},
                       1, &t, 1, &r);
    }
    case IR_TOP_K:
      x = example_param(b, TTPU_F32, DIMS(3, 7));
      return ir_append(b, kind, 1, &x, &(ir_top_k_attrs){3, true, true}, 0, NULL, 0, NULL);
    default:
      x = example_param(b, TTPU_F32, DIMS(2, 3));
      if (ir_ops[kind].operands == 1) return ir_unary(b, kind, x);
      z = example_param(b, TTPU_F32, DIMS(2, 3));
      return ir_binary(b, kind, x, z);
  }
}

/* A function that returns all results of one operation of `kind` (two for RETURN's sake). */
static inline ir_func *example_build(ir_builder *b, base_arena *arena, ir_kind kind) {
  ir_func *f = ir_func_new(arena, "main");
  *b = ir_builder_on(f);
  if (kind == IR_RETURN) {
    ir_value two[2] = {example_param(b, TTPU_F32, DIMS(2)), example_param(b, TTPU_I8, 0, NULL)};
    ir_return(b, 2, two);
    return f;
  }
  ir_value first = example_value(b, kind), results[4];
  uint32_t count = b->status ? 0 : ir_def(f, first)->result_count;
  for (uint32_t i = 0; i < count && i < 4; ++i) results[i] = first + i;
  ir_return(b, count, results);
  return f;
}

#endif
