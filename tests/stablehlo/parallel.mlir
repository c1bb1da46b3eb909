// Functions that run together, one on each chip of a grid, and what programs say to the host.

// The root of each group is its first member; who is in no group gets zeros.
module @broadcast_and_reduce {
  func.func @both(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    %0 = "stablehlo.collective_broadcast"(%x) {
      replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>
    } : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "stablehlo.collective_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {
      replica_groups = dense<[[2, 0, 1]]> : tensor<1x3xi64>
    } : (tensor<2xf32>) -> tensor<2xf32>
    return %0, %1 : tensor<2xf32>, tensor<2xf32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
    %b = stablehlo.constant dense<[3.0, 4.0]> : tensor<2xf32>
    %c = stablehlo.constant dense<[5.0, 6.0]> : tensor<2xf32>
    %r:6 = "interpreter.run_parallel"(%a, %b, %c) {
      programs = [[@both], [@both], [@both]]
    } : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) ->
        (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
    check.expect_eq_const %r#0, dense<[3.0, 4.0]> : tensor<2xf32>
    check.expect_eq_const %r#1, dense<0.0> : tensor<2xf32>
    check.expect_eq_const %r#2, dense<[3.0, 4.0]> : tensor<2xf32>
    check.expect_eq_const %r#3, dense<0.0> : tensor<2xf32>
    check.expect_eq_const %r#4, dense<0.0> : tensor<2xf32>
    check.expect_eq_const %r#5, dense<[9.0, 12.0]> : tensor<2xf32>
    return
  }
}

// -----

// Roots that are known at run time alone, one for each value; and a second run with what the first one gave.
module @roots_at_run_time {
  func.func @reduce(%x: tensor<2xi32>, %y: tensor<i32>, %roots: tensor<2xi32>) -> (tensor<2xi32>, tensor<i32>) {
    %0:2 = "stablehlo.collective_reduce"(%x, %y, %roots) ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %s = stablehlo.maximum %a, %b : tensor<i32>
        stablehlo.return %s : tensor<i32>
    }) {
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      use_global_device_ids, has_dynamic_root
    } : (tensor<2xi32>, tensor<i32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<i32>)
    return %0#0, %0#1 : tensor<2xi32>, tensor<i32>
  }
  func.func @main() {
    %x = stablehlo.constant dense<[1, 9]> : tensor<2xi32>
    %z = stablehlo.constant dense<[7, 2]> : tensor<2xi32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %four = stablehlo.constant dense<4> : tensor<i32>
    %roots = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
    %r:4 = "interpreter.run_parallel"(%x, %one, %roots, %z, %four, %roots) {
      programs = [[@reduce, @reduce]]
    } : (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>) ->
        (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>)
    check.expect_eq_const %r#0, dense<0> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<4> : tensor<i32>
    check.expect_eq_const %r#2, dense<[7, 9]> : tensor<2xi32>
    check.expect_eq_const %r#3, dense<0> : tensor<i32>
    %t = stablehlo.add %r#2, %x : tensor<2xi32>
    %u:4 = "interpreter.run_parallel"(%t, %r#1, %roots, %z, %r#1, %roots) {
      programs = [[@reduce, @reduce]]
    } : (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>) ->
        (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>)
    check.expect_eq_const %u#2, dense<[8, 18]> : tensor<2xi32>
    return
  }
}

// -----

// Programs that differ send to each other by way of the host. The one that receives is started first.
module @send_and_receive {
  func.func @receiver(%token: !stablehlo.token) -> tensor<3xf32> {
    %0:2 = "stablehlo.recv"(%token) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 3>, is_host_transfer = true
    } : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
    %1:2 = "stablehlo.recv"(%0#1) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 3>, is_host_transfer = true
    } : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
    %2 = stablehlo.subtract %1#0, %0#0 : tensor<3xf32>
    return %2 : tensor<3xf32>
  }
  func.func @sender(%x: tensor<3xf32>, %token: !stablehlo.token) -> !stablehlo.token {
    %0 = "stablehlo.send"(%x, %token) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 2>, is_host_transfer = true
    } : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
    %1 = stablehlo.multiply %x, %x : tensor<3xf32>
    %2 = "stablehlo.send"(%1, %0) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 2>, is_host_transfer = true
    } : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
    return %2 : !stablehlo.token
  }
  func.func @main() {
    %x = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
    %token = stablehlo.create_token : !stablehlo.token
    %r:2 = "interpreter.run_parallel"(%token, %x, %token) {
      programs = [[@receiver], [@sender]]
    } : (!stablehlo.token, tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
    check.expect_eq_const %r#0, dense<[0.0, 2.0, 6.0]> : tensor<3xf32>
    return
  }
}

// -----

// What is fed in comes in order, and what is fed out is nobody's.
module @feeds {
  func.func @program(%token: !stablehlo.token) -> tensor<2xi64> {
    %0:2 = "stablehlo.infeed"(%token) : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %1:2 = "stablehlo.infeed"(%0#1) : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %2 = "stablehlo.outfeed"(%0#0, %1#1) : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    %3 = stablehlo.subtract %0#0, %1#0 : tensor<2xi64>
    return %3 : tensor<2xi64>
  }
  func.func @first() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<[10, 20]> : tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @second() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    return %0 : tensor<2xi64>
  }
  func.func @main() {
    %token = stablehlo.create_token : !stablehlo.token
    %r = "interpreter.run_parallel"(%token) {
      infeed = [@first, @second], programs = [[@program]]
    } : (!stablehlo.token) -> tensor<2xi64>
    check.expect_eq_const %r, dense<[9, 18]> : tensor<2xi64>
    return
  }
}

// -----

// A probe in a loop is seen each time.
func.func @probe_in_a_loop() {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %four = stablehlo.constant dense<4> : tensor<i64>
  %nine = stablehlo.constant dense<9> : tensor<i64>
  %n, %square = stablehlo.while(%i = %zero, %s = %zero) : tensor<i64>, tensor<i64>
  cond {
    %more = stablehlo.compare LT, %i, %four : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %q = stablehlo.multiply %i, %i : tensor<i64>
    %p = interpreter.probe %q, probe_id = "square" : tensor<i64>
    %j = stablehlo.add %i, %one : tensor<i64>
    stablehlo.return %j, %p : tensor<i64>, tensor<i64>
  }
  check.expect_eq %square, %nine : tensor<i64>
  check.expect_serialized_eq %zero, probe_id = "square" : tensor<i64>
  check.expect_serialized_eq %four, probe_id = "square", iter = 2 : tensor<i64>
  check.expect_serialized_eq %nine, probe_id = "square", iter = 3 : tensor<i64>
  return
}

// -----

// Products over groups: of rows, of what is summed over, and of batches.
func.func @ragged() {
  %lhs = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %rhs = stablehlo.constant dense<[[[1.0], [1.0]], [[2.0], [0.0]]]> : tensor<2x2x1xf32>
  %sizes = stablehlo.constant dense<[1, 1]> : tensor<2xi32>
  %0 = "chlo.ragged_dot"(%lhs, %rhs, %sizes) {
    ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [],
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
      rhs_group_dimensions = [0]>
  } : (tensor<3x2xf32>, tensor<2x2x1xf32>, tensor<2xi32>) -> tensor<3x1xf32>
  check.expect_eq_const %0, dense<[[3.0], [6.0], [0.0]]> : tensor<3x1xf32>
  %right = stablehlo.constant dense<[[1.0], [10.0], [100.0]]> : tensor<3x1xf32>
  %two = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %1 = "chlo.ragged_dot"(%lhs, %right, %two) {
    ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [],
      lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0],
      rhs_group_dimensions = []>
  } : (tensor<3x2xf32>, tensor<3x1xf32>, tensor<2xi64>) -> tensor<2x2x1xf32>
  check.expect_eq_const %1, dense<[[[1.0], [2.0]], [[530.0], [640.0]]]> : tensor<2x2x1xf32>
  %2 = "chlo.ragged_dot"(%lhs, %lhs, %two) {
    ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0],
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
      rhs_group_dimensions = []>
  } : (tensor<3x2xf32>, tensor<3x2xf32>, tensor<2xi64>) -> tensor<3xf32>
  check.expect_eq_const %2, dense<[5.0, 25.0, 61.0]> : tensor<3xf32>
  return
}
