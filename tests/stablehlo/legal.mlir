// Operations that are said with others: deprecated ones, CHLO's, tuples, calls, dynamic shapes.
func.func @deprecated() {
  %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %v = stablehlo.constant dense<[10.0, 1.0]> : tensor<2xf32>
  %0 = stablehlo.dot %a, %v, precision = [HIGHEST, HIGHEST] : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2xf32>
  check.expect_eq_const %0, dense<[12.0, 34.0]> : tensor<2xf32>
  %1 = stablehlo.broadcast %v, sizes = [2] : (tensor<2xf32>) -> tensor<2x2xf32>
  check.expect_eq_const %1, dense<[[10.0, 1.0], [10.0, 1.0]]> : tensor<2x2xf32>
  %2 = stablehlo.einsum %a, %a, config = "ab,cb->ca" : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_eq_const %2, dense<[[5.0, 11.0], [11.0, 25.0]]> : tensor<2x2xf32>
  %3 = stablehlo.unary_einsum %a, config = "ab->b" : (tensor<2x2xf32>) -> tensor<2xf32>
  check.expect_eq_const %3, dense<[4.0, 6.0]> : tensor<2xf32>
  %i = stablehlo.constant dense<[1, 0, 1]> : tensor<3xi32>
  %4 = "stablehlo.torch_index_select"(%a, %i) {dim = 1 : i64, batch_dims = 0 : i64} : (tensor<2x2xf32>, tensor<3xi32>) -> tensor<2x3xf32>
  check.expect_eq_const %4, dense<[[2.0, 1.0, 2.0], [4.0, 3.0, 4.0]]> : tensor<2x3xf32>
  func.return
}

// -----

func.func @batch_norm() {
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 6.0]]> : tensor<2x2xf32>
  %scale = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %offset = stablehlo.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %0:3 = "stablehlo.batch_norm_training"(%x, %scale, %offset) {epsilon = 0.0 : f32, feature_index = 1 : i64} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
  check.expect_almost_eq_const %0#0, dense<[[-1.0, -1.0], [1.0, 3.0]]> : tensor<2x2xf32>
  check.expect_almost_eq_const %0#1, dense<[2.0, 4.0]> : tensor<2xf32>
  check.expect_almost_eq_const %0#2, dense<[1.0, 4.0]> : tensor<2xf32>
  %1 = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %0#1, %0#2) {epsilon = 0.0 : f32, feature_index = 1 : i64} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq_const %1, dense<[[-1.0, -1.0], [1.0, 3.0]]> : tensor<2x2xf32>
  %g = stablehlo.constant dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>
  %2:3 = "stablehlo.batch_norm_grad"(%x, %scale, %0#1, %0#2, %g) {epsilon = 0.0 : f32, feature_index = 1 : i64} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
  check.expect_almost_eq_const %2#0, dense<0.0> : tensor<2x2xf32>
  check.expect_almost_eq_const %2#1, dense<[-1.0, 1.0]> : tensor<2xf32>
  check.expect_almost_eq_const %2#2, dense<[1.0, 1.0]> : tensor<2xf32>
  func.return
}

// -----

func.func @random() {
  %low = stablehlo.constant dense<3> : tensor<i32>
  %high = stablehlo.constant dense<4> : tensor<i32>
  %shape = stablehlo.constant dense<[2, 2]> : tensor<2xi64>
  %0 = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<i32>, tensor<i32>, tensor<2xi64>) -> tensor<2x2xi32>
  check.expect_eq_const %0, dense<3> : tensor<2x2xi32>
  %mean = stablehlo.constant dense<7.0> : tensor<f32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.rng %mean, %none, %shape, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x2xf32>
  check.expect_eq_const %1, dense<7.0> : tensor<2x2xf32>
  %state = stablehlo.constant dense<[1, 2]> : tensor<2xui64>
  %2:2 = stablehlo.rng_bit_generator %state, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xui32>)
  check.expect_eq_const %2#0, dense<[1, 3]> : tensor<2xui64>
  func.return
}

// -----

module @calls attributes {mhlo.num_replicas = 1 : i32} {
  func.func @main() {
    %a = stablehlo.constant dense<2> : tensor<i32>
    %0:2 = call @both(%a, %a) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
    check.expect_eq_const %0#0, dense<4> : tensor<i32>
    %1 = stablehlo.composite "ours.double" %0#1 {decomposition = @double, version = 1 : i32} : (tensor<i32>) -> tensor<i32>
    check.expect_eq_const %1, dense<8> : tensor<i32>
    %t = stablehlo.tuple %0#0, %1 : tuple<tensor<i32>, tensor<i32>>
    %2 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<i32>, tensor<i32>>) -> tensor<i32>
    check.expect_eq_const %2, dense<8> : tensor<i32>
    %token = stablehlo.create_token : !stablehlo.token
    %3 = stablehlo.after_all %token, %token : !stablehlo.token
    func.return
  }
  func.func private @both(%x: tensor<i32>, %y: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
    %0 = func.call @double(%x) : (tensor<i32>) -> tensor<i32>
    %1 = stablehlo.multiply %y, %y : tensor<i32>
    func.return %0, %1 : tensor<i32>, tensor<i32>
  }
  func.func private @double(%x: tensor<i32>) -> tensor<i32> {
    %0 = stablehlo.add %x, %x : tensor<i32>
    return %0 : tensor<i32>
  }
}

// -----

func.func @chlo() {
  %a = stablehlo.constant dense<[[3.0, 1.0, 2.0]]> : tensor<1x3xf32>
  %b = stablehlo.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  %0 = chlo.broadcast_add %a, %b : (tensor<1x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  check.expect_eq_const %0, dense<[[4.0, 2.0, 3.0], [5.0, 3.0, 4.0]]> : tensor<2x3xf32>
  %1:2 = chlo.top_k(%a, k = 2) : tensor<1x3xf32> -> (tensor<1x2xf32>, tensor<1x2xi32>)
  check.expect_eq_const %1#0, dense<[[3.0, 2.0]]> : tensor<1x2xf32>
  check.expect_eq_const %1#1, dense<[[0, 2]]> : tensor<1x2xi32>
  %2 = chlo.erf %b : tensor<2x1xf32> -> tensor<2x1xf32>
  check.expect_almost_eq_const %2, dense<[[0.8427008], [0.9953223]]> : tensor<2x1xf32>
  %3 = chlo.bessel_i1e %b : tensor<2x1xf32> -> tensor<2x1xf32>
  check.expect_almost_eq_const %3, dense<[[0.20791042], [0.2152693]]> : tensor<2x1xf32>
  %4 = chlo.is_inf %b : tensor<2x1xf32> -> tensor<2x1xi1>
  check.expect_eq_const %4, dense<false> : tensor<2x1xi1>
  %5 = chlo.square %b : tensor<2x1xf32> -> tensor<2x1xf32>
  check.expect_eq_const %5, dense<[[1.0], [4.0]]> : tensor<2x1xf32>
  %x = stablehlo.constant dense<[4611686018427387904, -1]> : tensor<2xi64>
  %y = stablehlo.constant dense<[8, 3]> : tensor<2xi64>
  %6 = chlo.mulhi %x, %y : tensor<2xi64>, tensor<2xi64> -> tensor<2xi64>
  check.expect_eq_const %6, dense<[2, -1]> : tensor<2xi64>
  %n = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %7:2 = chlo.scan(%n) inits(%z) dimension=0 attributes {is_reverse = true} {
  ^bb0(%e: tensor<i32>, %c: tensor<i32>):
    %s = stablehlo.add %e, %c : tensor<i32>
    stablehlo.return %s, %s : tensor<i32>, tensor<i32>
  } : (tensor<3xi32>, tensor<i32>) -> (tensor<3xi32>, tensor<i32>)
  check.expect_eq_const %7#0, dense<[6, 5, 3]> : tensor<3xi32>
  func.return
}

// -----

func.func @dynamic_shapes_that_are_known() {
  %a = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %n = stablehlo.get_dimension_size %a, dim = 0 : (tensor<4xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %half = stablehlo.divide %n, %two : tensor<i32>
  %h = stablehlo.reshape %half : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %h, %h, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %0 = stablehlo.dynamic_reshape %a, %shape : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %1 = stablehlo.add %0, %0 : tensor<?x?xf32>
  %2 = stablehlo.reshape %1 : (tensor<?x?xf32>) -> tensor<4xf32>
  check.expect_eq_const %2, dense<[2.0, 4.0, 6.0, 8.0]> : tensor<4xf32>
  %3 = stablehlo.dynamic_iota %shape, dim = 1 : (tensor<2xi32>) -> tensor<2x2xi32>
  check.expect_eq_const %3, dense<[[0, 1], [0, 1]]> : tensor<2x2xi32>
  %v = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
  %4 = stablehlo.dynamic_broadcast_in_dim %v, %shape, dims = [0] : (tensor<2xi32>, tensor<2xi32>) -> tensor<2x2xi32>
  check.expect_eq_const %4, dense<[[5, 5], [6, 6]]> : tensor<2x2xi32>
  %lo = stablehlo.constant dense<1> : tensor<1xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %5 = stablehlo.dynamic_pad %a, %z, %lo, %h, %lo : (tensor<4xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<10xf32>
  check.expect_eq_const %5, dense<[0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0]> : tensor<10xf32>
  %limit = stablehlo.constant dense<4> : tensor<1xi32>
  %6 = stablehlo.real_dynamic_slice %a, %lo, %limit, %h : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xf32>
  check.expect_eq_const %6, dense<[2.0, 4.0]> : tensor<2xf32>
  %i = stablehlo.constant dense<[[3]]> : tensor<1x1xi32>
  %7 = "stablehlo.dynamic_gather"(%a, %i, %lo) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>} : (tensor<4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> tensor<1xf32>
  check.expect_eq_const %7, dense<[4.0]> : tensor<1xf32>
  %8 = stablehlo.set_dimension_size %a, %half, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
  check.expect_eq_const %8, dense<[1.0, 2.0]> : tensor<2xf32>
  func.return
}

// -----

// No checks: it is run for some sizes.
func.func @any_size(%n: tensor<i32>, %x: tensor<?x2xf32>) -> tensor<?xf32> {
  %two = stablehlo.constant dense<2> : tensor<i32>
  %0 = stablehlo.multiply %n, %two : tensor<i32>
  %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %2 = stablehlo.dynamic_reshape %x, %1 : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %2 : tensor<?xf32>
}
