// Narrow integers, small floats, quantized tensors, spellings of constants, aliases, locations.
func.func @narrow_integers() {
  %a = stablehlo.constant dense<[7, -8]> : tensor<2xi4>
  %b = stablehlo.constant dense<[1, -1]> : tensor<2xi4>
  %0 = stablehlo.add %a, %b : tensor<2xi4>
  check.expect_eq_const %0, dense<[-8, 7]> : tensor<2xi4>
  %c = stablehlo.constant dense<[3, 1]> : tensor<2xui2>
  %1 = stablehlo.multiply %c, %c : tensor<2xui2>
  check.expect_eq_const %1, dense<[1, 1]> : tensor<2xui2>
  %2 = stablehlo.bitcast_convert %a : (tensor<2xi4>) -> tensor<i8>
  check.expect_eq_const %2, dense<-121> : tensor<i8>
  %3 = stablehlo.convert %a : (tensor<2xi4>) -> tensor<2xi2>
  check.expect_eq_const %3, dense<[-1, 0]> : tensor<2xi2>
  %4 = stablehlo.convert %a : (tensor<2xi4>) -> tensor<2xui4>
  check.expect_eq_const %4, dense<[7, 8]> : tensor<2xui4>
  func.return
}

// -----

// 300 is beyond some of them, 0.1 between two values of each.
func.func @small_floats() {
  %a = stablehlo.constant dense<[0.1, 1.0, 300.0]> : tensor<3xf32>
  %0 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E4M3>
  %1 = stablehlo.convert %0 : (tensor<3xf8E4M3>) -> tensor<3xf32>
  check.expect_eq_const %1, dense<[0.1015625, 1.0, 0x7F800000]> : tensor<3xf32>
  %2 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E3M4>
  %3 = stablehlo.convert %2 : (tensor<3xf8E3M4>) -> tensor<3xf32>
  check.expect_eq_const %3, dense<[0.09375, 1.0, 0x7F800000]> : tensor<3xf32>
  %4 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E4M3FNUZ>
  %5 = stablehlo.convert %4 : (tensor<3xf8E4M3FNUZ>) -> tensor<3xf32>
  check.expect_eq_const %5, dense<[0.1015625, 1.0, 0x7FC00000]> : tensor<3xf32>
  %6 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E5M2FNUZ>
  %7 = stablehlo.convert %6 : (tensor<3xf8E5M2FNUZ>) -> tensor<3xf32>
  check.expect_eq_const %7, dense<[0.09375, 1.0, 320.0]> : tensor<3xf32>
  %8 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E4M3B11FNUZ>
  %9 = stablehlo.convert %8 : (tensor<3xf8E4M3B11FNUZ>) -> tensor<3xf32>
  check.expect_eq_const %9, dense<[0.1015625, 1.0, 0x7FC00000]> : tensor<3xf32>
  %10 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E8M0FNU>
  %11 = stablehlo.convert %10 : (tensor<3xf8E8M0FNU>) -> tensor<3xf32>
  check.expect_eq_const %11, dense<[0.125, 1.0, 256.0]> : tensor<3xf32>
  %12 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf4E2M1FN>
  %13 = stablehlo.convert %12 : (tensor<3xf4E2M1FN>) -> tensor<3xf32>
  check.expect_eq_const %13, dense<[0.0, 1.0, 6.0]> : tensor<3xf32>
  %14 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf6E2M3FN>
  %15 = stablehlo.convert %14 : (tensor<3xf6E2M3FN>) -> tensor<3xf32>
  check.expect_eq_const %15, dense<[0.125, 1.0, 7.5]> : tensor<3xf32>
  %16 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf6E3M2FN>
  %17 = stablehlo.convert %16 : (tensor<3xf6E3M2FN>) -> tensor<3xf32>
  check.expect_eq_const %17, dense<[0.125, 1.0, 28.0]> : tensor<3xf32>
  %18 = stablehlo.convert %a : (tensor<3xf32>) -> tensor<3xf8E5M2>
  %19 = stablehlo.convert %18 : (tensor<3xf8E5M2>) -> tensor<3xf32>
  check.expect_eq_const %19, dense<[0.09375, 1.0, 320.0]> : tensor<3xf32>
  func.return
}

// -----

!q = !quant.uniform<i8:f32, 0.5:-10>
!byaxis = tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.1:-30, 0.5:-20}>>
func.func @quantized() {
  %a = stablehlo.constant dense<[1.0, 2.25]> : tensor<2xf32>
  %0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> tensor<2x!q>
  %1 = stablehlo.add %0, %0 : tensor<2x!q>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<2x!q>) -> tensor<2xf32>
  check.expect_eq_const %2, dense<[2.0, 4.0]> : tensor<2xf32>
  %3 = stablehlo.bitcast_convert %1 : (tensor<2x!q>) -> tensor<2xi8>
  check.expect_eq_const %3, dense<[-6, -2]> : tensor<2xi8>
  %b = stablehlo.constant dense<[4.0, 15.0]> : tensor<2xf32>
  %4 = stablehlo.uniform_quantize %b : (tensor<2xf32>) -> !byaxis
  %5 = stablehlo.bitcast_convert %4 : (!byaxis) -> tensor<2xi8>
  check.expect_eq_const %5, dense<[10, 10]> : tensor<2xi8>
  %6 = stablehlo.uniform_dequantize %4 : (!byaxis) -> tensor<2xf32>
  check.expect_almost_eq_const %6, dense<[4.0, 15.0]> : tensor<2xf32>
  func.return
}

// -----

#map = {dims = [1, 0]}
module attributes {ours.note = #map} {
  func.func public @main() -> (tensor<2x2xf32> {jax.result_info = ""}) {
    %0 = stablehlo.constant dense<"0x0000803F000000400000404000008040"> : tensor<2x2xf32> loc(#loc1)
    %1 = stablehlo.constant dense_resource<blob> : tensor<2x2xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x2xf32> loc("here":1:2)
    check.expect_eq_const %2, dense<[[2.0, 4.0], [6.0, 8.0]]> : tensor<2x2xf32>
    stablehlo.custom_call @check.expect_eq(%0, %1) {has_side_effect = true} : (tensor<2x2xf32>, tensor<2x2xf32>) -> ()
    %3 = stablehlo.constant dense<"0x0B"> : tensor<4xi1>
    check.expect_eq_const %3, dense<[true, true, false, true]> : tensor<4xi1>
    %4 = stablehlo.constant dense<> : tensor<0x2xi32>
    %5 = stablehlo.add %4, %4 : tensor<0x2xi32>
    check.expect_eq_const %5, dense<> : tensor<0x2xi32>
    return %2 : tensor<2x2xf32>
  }
}
#loc1 = loc("there")

{-#
  dialect_resources: {
    builtin: {
      blob: "0x040000000000803F000000400000404000008040"
    }
  }
#-}
