// Moving, products, reductions, windows, order, control flow.
func.func @moves() {
  %a = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi64>
  %z = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xi64>) -> tensor<3x2xi64>
  check.expect_eq_const %0, dense<[[1, 4], [2, 5], [3, 6]]> : tensor<3x2xi64>
  %1 = stablehlo.reshape %a : (tensor<2x3xi64>) -> tensor<6xi64>
  check.expect_eq_const %1, dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi64>
  %2 = stablehlo.slice %a [0:2:1, 0:3:2] : (tensor<2x3xi64>) -> tensor<2x2xi64>
  check.expect_eq_const %2, dense<[[1, 3], [4, 6]]> : tensor<2x2xi64>
  %3 = stablehlo.reverse %a, dims = [1] : tensor<2x3xi64>
  check.expect_eq_const %3, dense<[[3, 2, 1], [6, 5, 4]]> : tensor<2x3xi64>
  %4 = stablehlo.concatenate %a, %3, dim = 0 : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<4x3xi64>
  check.expect_eq_const %4, dense<[[1, 2, 3], [4, 5, 6], [3, 2, 1], [6, 5, 4]]> : tensor<4x3xi64>
  %5 = stablehlo.pad %2, %z, low = [0, 1], high = [1, 0], interior = [0, 1] : (tensor<2x2xi64>, tensor<i64>) -> tensor<3x4xi64>
  check.expect_eq_const %5, dense<[[0, 1, 0, 3], [0, 4, 0, 6], [0, 0, 0, 0]]> : tensor<3x4xi64>
  %6 = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<i64>) -> tensor<2x2xi64>
  check.expect_eq_const %6, dense<1> : tensor<2x2xi64>
  %7 = stablehlo.dynamic_slice %a, %one, %one, sizes = [1, 2] : (tensor<2x3xi64>, tensor<i64>, tensor<i64>) -> tensor<1x2xi64>
  check.expect_eq_const %7, dense<[[5, 6]]> : tensor<1x2xi64>
  %8 = stablehlo.dynamic_update_slice %a, %6, %z, %one : (tensor<2x3xi64>, tensor<2x2xi64>, tensor<i64>, tensor<i64>) -> tensor<2x3xi64>
  check.expect_eq_const %8, dense<[[1, 1, 1], [4, 1, 1]]> : tensor<2x3xi64>
  %9 = stablehlo.iota dim = 1 : tensor<2x3xi32>
  check.expect_eq_const %9, dense<[[0, 1, 2], [0, 1, 2]]> : tensor<2x3xi32>
  %i = stablehlo.constant dense<[[1], [0]]> : tensor<2x1xi64>
  %10 = "stablehlo.gather"(%a, %i) <{
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 3>}> : (tensor<2x3xi64>, tensor<2x1xi64>) -> tensor<2x3xi64>
  check.expect_eq_const %10, dense<[[4, 5, 6], [1, 2, 3]]> : tensor<2x3xi64>
  %11 = "stablehlo.scatter"(%a, %i, %3) ({
  ^bb0(%x: tensor<i64>, %y: tensor<i64>):
    %s = stablehlo.add %x, %y : tensor<i64>
    stablehlo.return %s : tensor<i64>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<2x3xi64>, tensor<2x1xi64>, tensor<2x3xi64>) -> tensor<2x3xi64>
  check.expect_eq_const %11, dense<[[7, 7, 7], [7, 7, 7]]> : tensor<2x3xi64>
  %12:2 = stablehlo.optimization_barrier %z, %one : tensor<i64>, tensor<i64>
  check.expect_eq_const %12#1, dense<1> : tensor<i64>
  func.return
}

// -----

func.func @products() {
  %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_eq_const %0, dense<[[7.0, 10.0], [15.0, 22.0]]> : tensor<2x2xf32>
  %1 = stablehlo.dot_general %a, %a, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2xf32>
  check.expect_eq_const %1, dense<[5.0, 25.0]> : tensor<2xf32>
  %x = stablehlo.constant dense<[[[1.0], [2.0], [3.0], [4.0]]]> : tensor<1x4x1xf32>
  %w = stablehlo.constant dense<[[[1.0]], [[10.0]]]> : tensor<2x1x1xf32>
  %2 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2], pad = [[0, 0]], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x2x1xf32>
  check.expect_eq_const %2, dense<[[[21.0], [43.0]]]> : tensor<1x2x1xf32>
  %l = stablehlo.constant dense<[[4.0, 0.0], [2.0, 3.0]]> : tensor<2x2xf32>
  %3 = stablehlo.dot_general %l, %l, contracting_dims = [1] x [1] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %4 = stablehlo.cholesky %3, lower = true : tensor<2x2xf32>
  %upper = stablehlo.constant dense<[[true, false], [true, true]]> : tensor<2x2xi1>
  %none = stablehlo.constant dense<0.0> : tensor<2x2xf32>
  %5 = stablehlo.select %upper, %4, %none : tensor<2x2xi1>, tensor<2x2xf32>
  check.expect_almost_eq_const %5, dense<[[4.0, 0.0], [2.0, 3.0]]> : tensor<2x2xf32>
  %6 = "stablehlo.triangular_solve"(%l, %3) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq_const %6, dense<[[4.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %c = stablehlo.constant dense<[(1.0, 0.0), (2.0, 0.0)]> : tensor<2xcomplex<f32>>
  %7 = stablehlo.fft %c, type = FFT, length = [2] : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  check.expect_almost_eq_const %7, dense<[(3.0, 0.0), (-1.0, 0.0)]> : tensor<2xcomplex<f32>>
  func.return
}

// -----

func.func @reductions() {
  %a = stablehlo.constant dense<[[1, 5, 3], [4, 2, 6]]> : tensor<2x3xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
  check.expect_eq_const %0, dense<[9, 12]> : tensor<2xi32>
  %1:2 = stablehlo.reduce(%a init: %z), (%a init: %z) across dimensions = [0] : (tensor<2x3xi32>, tensor<2x3xi32>, tensor<i32>, tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>)
    reducer(%x: tensor<i32>, %y: tensor<i32>) (%u: tensor<i32>, %v: tensor<i32>) {
    %m = stablehlo.maximum %x, %y : tensor<i32>
    %s = stablehlo.add %u, %v : tensor<i32>
    stablehlo.return %m, %s : tensor<i32>, tensor<i32>
  }
  check.expect_eq_const %1#0, dense<[4, 5, 6]> : tensor<3xi32>
  check.expect_eq_const %1#1, dense<[5, 7, 9]> : tensor<3xi32>
  %2 = "stablehlo.reduce_window"(%a, %z) <{window_dimensions = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %s = stablehlo.add %x, %y : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<2x3xi32>, tensor<i32>) -> tensor<2x3xi32>
  check.expect_eq_const %2, dense<[[1, 6, 8], [4, 6, 8]]> : tensor<2x3xi32>
  %g = stablehlo.constant dense<[[10, 20]]> : tensor<1x2xi32>
  %3 = "stablehlo.select_and_scatter"(%a, %g, %z) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %c = stablehlo.compare GE, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %s = stablehlo.add %x, %y : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 1>} : (tensor<2x3xi32>, tensor<1x2xi32>, tensor<i32>) -> tensor<2x3xi32>
  check.expect_eq_const %3, dense<[[0, 10, 0], [0, 0, 20]]> : tensor<2x3xi32>
  %4 = "stablehlo.sort"(%a) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %c = stablehlo.compare GT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<2x3xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %4, dense<[[5, 3, 1], [6, 4, 2]]> : tensor<2x3xi32>
  %5 = "stablehlo.map"(%a, %4) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %m = stablehlo.multiply %x, %y : tensor<i32>
    stablehlo.return %m : tensor<i32>
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %5, dense<[[5, 15, 3], [24, 8, 12]]> : tensor<2x3xi32>
  func.return
}

// -----

// A reducer may work in a wider type than its operands have.
func.func @wider_reducer() {
  %a = stablehlo.constant dense<[100, 100, 100]> : tensor<3xi8>
  %z = stablehlo.constant dense<0> : tensor<i8>
  %0 = "stablehlo.reduce"(%a, %z) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%s) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<3xi8>, tensor<i8>) -> tensor<i32>
  check.expect_eq_const %0, dense<300> : tensor<i32>
  func.return
}

// -----

func.func @control() {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<5> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %sum = %z) : tensor<i32>, tensor<i32>
   cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %t = stablehlo.add %sum, %j : tensor<i32>
    stablehlo.return %j, %t : tensor<i32>, tensor<i32>
  }
  check.expect_eq_const %0#1, dense<15> : tensor<i32>
  %p = stablehlo.compare GT, %0#1, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %1 = "stablehlo.if"(%p) ({
    stablehlo.return %n : tensor<i32>
  }, {
    stablehlo.return %z : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  check.expect_eq_const %1, dense<5> : tensor<i32>
  %2 = "stablehlo.case"(%n) ({
    stablehlo.return %z : tensor<i32>
  }, {
    stablehlo.return %n : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %2, dense<5> : tensor<i32>
  func.return
}
