// What must be refused; each function with a comment about an error.
func.func @types_differ(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{operand 1 is tensor<3xf32>}}
  %0 = "stablehlo.add"(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @group_twice(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{id 1 is named twice}}
  %0 = "stablehlo.all_reduce"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @group_incomplete(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{id 1 is left out}}
  %0 = "stablehlo.all_reduce"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 2]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @same_target(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{the targets: id 1 is named twice}}
  %0 = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @shape_does_not_fit(%a: tensor<4xf32>, %s: tensor<2xi32>) -> tensor<?x?xf32> {
  // expected-error@+1 {{tensor<4xf32> does not reshape to}}
  %0 = stablehlo.dynamic_reshape %a, %s : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

func.func @composite_without_namespace(%a: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{its name has no namespace}}
  %0 = stablehlo.composite "double" %a {decomposition = @twice} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @twice(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %x, %x : tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func @tuple_index(%a: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.tuple %a : tuple<tensor<f32>>
  // expected-error@+1 {{index is 1, expected [0, 1)}}
  %1 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<f32>>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

func.func @quantized_with_plain(%a: tensor<2xf32>, %b: tensor<2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x!quant.uniform<i8:f32, 0.5>> {
  // expected-error@+1 {{quantized and plain numbers are added}}
  %0 = "stablehlo.add"(%a, %b) : (tensor<2xf32>, tensor<2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x!quant.uniform<i8:f32, 0.5>>
  return %0 : tensor<2x!quant.uniform<i8:f32, 0.5>>
}

// -----

func.func @scale_of_zero(%a: tensor<2xf32>) {
  // expected-error@+1 {{a scale is not positive}}
  %0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.0>>
  return
}

// -----

func.func @not_commutative(%a: tensor<2xf32>, %z: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{'stablehlo.divide' reduces nothing}}
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.divide across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

func.func @token_missing(%a: tensor<2xf32>) -> !stablehlo.token {
  // expected-error@+1 {{operand 0 is tensor<2xf32>, expected a token}}
  %0 = "stablehlo.outfeed"(%a) : (tensor<2xf32>) -> !stablehlo.token
  return %0 : !stablehlo.token
}

// -----

func.func @accuracy(%a: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{has no tolerances}}
  %0 = "stablehlo.tanh"(%a) {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 0, mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @unknown_operation(%a: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{this operation is not supported}}
  %0 = stablehlo.frobnicate %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
