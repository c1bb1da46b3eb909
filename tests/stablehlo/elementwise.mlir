// Elementwise operations, in StableHLO's own form and in MLIR's generic one.
func.func @integers() {
  %a = stablehlo.constant dense<[7, -8, 0]> : tensor<3xi32>
  %b = stablehlo.constant dense<[2, 3, 5]> : tensor<3xi32>
  %0 = stablehlo.add %a, %b : tensor<3xi32>
  check.expect_eq_const %0, dense<[9, -5, 5]> : tensor<3xi32>
  %1 = stablehlo.subtract %a, %b : tensor<3xi32>
  check.expect_eq_const %1, dense<[5, -11, -5]> : tensor<3xi32>
  %2 = stablehlo.multiply %a, %b : tensor<3xi32>
  check.expect_eq_const %2, dense<[14, -24, 0]> : tensor<3xi32>
  %3 = stablehlo.divide %a, %b : tensor<3xi32>
  check.expect_eq_const %3, dense<[3, -2, 0]> : tensor<3xi32>
  %4 = stablehlo.remainder %a, %b : tensor<3xi32>
  check.expect_eq_const %4, dense<[1, -2, 0]> : tensor<3xi32>
  %5 = stablehlo.maximum %a, %b : tensor<3xi32>
  check.expect_eq_const %5, dense<[7, 3, 5]> : tensor<3xi32>
  %6 = stablehlo.minimum %a, %b : tensor<3xi32>
  check.expect_eq_const %6, dense<[2, -8, 0]> : tensor<3xi32>
  %7 = stablehlo.and %a, %b : tensor<3xi32>
  check.expect_eq_const %7, dense<[2, 0, 0]> : tensor<3xi32>
  %8 = stablehlo.or %a, %b : tensor<3xi32>
  check.expect_eq_const %8, dense<[7, -5, 5]> : tensor<3xi32>
  %9 = stablehlo.xor %a, %b : tensor<3xi32>
  check.expect_eq_const %9, dense<[5, -5, 5]> : tensor<3xi32>
  %10 = stablehlo.not %a : tensor<3xi32>
  check.expect_eq_const %10, dense<[-8, 7, -1]> : tensor<3xi32>
  %11 = stablehlo.negate %a : tensor<3xi32>
  check.expect_eq_const %11, dense<[-7, 8, 0]> : tensor<3xi32>
  %12 = stablehlo.abs %a : tensor<3xi32>
  check.expect_eq_const %12, dense<[7, 8, 0]> : tensor<3xi32>
  %13 = stablehlo.sign %a : tensor<3xi32>
  check.expect_eq_const %13, dense<[1, -1, 0]> : tensor<3xi32>
  %14 = stablehlo.popcnt %b : tensor<3xi32>
  check.expect_eq_const %14, dense<[1, 2, 2]> : tensor<3xi32>
  %15 = stablehlo.count_leading_zeros %b : tensor<3xi32>
  check.expect_eq_const %15, dense<[30, 30, 29]> : tensor<3xi32>
  %16 = stablehlo.shift_left %a, %b : tensor<3xi32>
  check.expect_eq_const %16, dense<[28, -64, 0]> : tensor<3xi32>
  %17 = stablehlo.shift_right_arithmetic %a, %b : tensor<3xi32>
  check.expect_eq_const %17, dense<[1, -1, 0]> : tensor<3xi32>
  %18 = stablehlo.shift_right_logical %a, %b : tensor<3xi32>
  check.expect_eq_const %18, dense<[1, 536870911, 0]> : tensor<3xi32>
  %19 = stablehlo.power %b, %b : tensor<3xi32>
  check.expect_eq_const %19, dense<[4, 27, 3125]> : tensor<3xi32>
  %20 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
  check.expect_eq_const %20, dense<[false, true, true]> : tensor<3xi1>
  %21 = stablehlo.select %20, %a, %b : tensor<3xi1>, tensor<3xi32>
  check.expect_eq_const %21, dense<[2, -8, 0]> : tensor<3xi32>
  %22 = stablehlo.clamp %11, %b, %a : (tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %22, dense<[2, -8, 0]> : tensor<3xi32>
  func.return
}

// -----

func.func @floats() {
  %a = stablehlo.constant dense<[0.25, 1.0, 2.25]> : tensor<3xf32>
  %0 = stablehlo.sqrt %a : tensor<3xf32>
  check.expect_close %0, %0, max_ulp_difference = 0 : tensor<3xf32>, tensor<3xf32>
  check.expect_almost_eq_const %0, dense<[0.5, 1.0, 1.5]> : tensor<3xf32>
  %1 = stablehlo.rsqrt %a : tensor<3xf32>
  check.expect_almost_eq_const %1, dense<[2.0, 1.0, 0.6666667]> : tensor<3xf32>
  %2 = stablehlo.exponential %a : tensor<3xf32>
  check.expect_almost_eq_const %2, dense<[1.2840254, 2.7182817, 9.487736]> : tensor<3xf32>
  %3 = stablehlo.log %2 : tensor<3xf32>
  check.expect_almost_eq_const %3, dense<[0.25, 1.0, 2.25]> : tensor<3xf32>
  %4 = stablehlo.exponential_minus_one %a : tensor<3xf32>
  %5 = stablehlo.log_plus_one %4 : tensor<3xf32>
  check.expect_almost_eq_const %5, dense<[0.25, 1.0, 2.25]> : tensor<3xf32>
  %6 = stablehlo.sine %a : tensor<3xf32>
  check.expect_almost_eq_const %6, dense<[0.24740396, 0.84147096, 0.7780732]> : tensor<3xf32>
  %7 = stablehlo.cosine %a : tensor<3xf32>
  check.expect_almost_eq_const %7, dense<[0.9689124, 0.5403023, -0.62817365]> : tensor<3xf32>
  %8 = stablehlo.tan %a : tensor<3xf32>
  check.expect_almost_eq_const %8, dense<[0.25534192, 1.5574077, -1.2386276]> : tensor<3xf32>
  %9 = stablehlo.tanh %a : tensor<3xf32>
  check.expect_almost_eq_const %9, dense<[0.24491866, 0.7615942, 0.9780261]> : tensor<3xf32>
  %10 = stablehlo.logistic %a : tensor<3xf32>
  check.expect_almost_eq_const %10, dense<[0.5621765, 0.7310586, 0.9046505]> : tensor<3xf32>
  %11 = stablehlo.cbrt %a : tensor<3xf32>
  check.expect_almost_eq_const %11, dense<[0.6299605, 1.0, 1.3103707]> : tensor<3xf32>
  %12 = stablehlo.ceil %a : tensor<3xf32>
  check.expect_eq_const %12, dense<[1.0, 1.0, 3.0]> : tensor<3xf32>
  %13 = stablehlo.floor %a : tensor<3xf32>
  check.expect_eq_const %13, dense<[0.0, 1.0, 2.0]> : tensor<3xf32>
  %14 = stablehlo.constant dense<[0.5, 1.5, -2.5]> : tensor<3xf32>
  %15 = stablehlo.round_nearest_afz %14 : tensor<3xf32>
  check.expect_eq_const %15, dense<[1.0, 2.0, -3.0]> : tensor<3xf32>
  %16 = stablehlo.round_nearest_even %14 : tensor<3xf32>
  check.expect_eq_const %16, dense<[0.0, 2.0, -2.0]> : tensor<3xf32>
  %17 = stablehlo.atan2 %14, %a : tensor<3xf32>
  check.expect_almost_eq_const %17, dense<[1.1071488, 0.98279375, -0.83798122]> : tensor<3xf32>
  %18 = stablehlo.is_finite %a : (tensor<3xf32>) -> tensor<3xi1>
  check.expect_eq_const %18, dense<true> : tensor<3xi1>
  %19 = stablehlo.reduce_precision %8, format = e5m2 : tensor<3xf32>
  check.expect_eq_const %19, dense<[0.25, 1.5, -1.25]> : tensor<3xf32>
  %20 = "stablehlo.convert"(%a) : (tensor<3xf32>) -> tensor<3xi8>
  check.expect_eq_const %20, dense<[0, 1, 2]> : tensor<3xi8>
  %21 = stablehlo.bitcast_convert %a : (tensor<3xf32>) -> tensor<3xui32>
  check.expect_eq_const %21, dense<[1048576000, 1065353216, 1074790400]> : tensor<3xui32>
  %22 = stablehlo.compare GE, %14, %a, TOTALORDER : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
  check.expect_eq_const %22, dense<[true, true, false]> : tensor<3xi1>
  func.return
}

// -----

func.func @complex() {
  %re = stablehlo.constant dense<[3.0, 0.0]> : tensor<2xf64>
  %im = stablehlo.constant dense<[4.0, -2.0]> : tensor<2xf64>
  %0 = stablehlo.complex %re, %im : tensor<2xcomplex<f64>>
  %1 = stablehlo.abs %0 : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  check.expect_almost_eq_const %1, dense<[5.0, 2.0]> : tensor<2xf64>
  %2 = stablehlo.real %0 : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  check.expect_eq_const %2, dense<[3.0, 0.0]> : tensor<2xf64>
  %3 = stablehlo.imag %0 : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  check.expect_eq_const %3, dense<[4.0, -2.0]> : tensor<2xf64>
  %4 = stablehlo.multiply %0, %0 : tensor<2xcomplex<f64>>
  check.expect_almost_eq_const %4, dense<[(-7.0, 24.0), (-4.0, 0.0)]> : tensor<2xcomplex<f64>>
  %5 = stablehlo.convert %0 : (tensor<2xcomplex<f64>>) -> tensor<2xi1>
  check.expect_eq_const %5, dense<[true, false]> : tensor<2xi1>
  func.return
}

// -----

// e^-inf (cos inf + i sin inf) is not 0.
func.func @complex_exponential_of_infinity() {
  %0 = stablehlo.constant dense<(0xFF800000, 0x7F800000)> : tensor<complex<f32>>
  %1 = stablehlo.exponential %0 : tensor<complex<f32>>
  check.expect_eq_const %1, dense<(0x7FC00000, 0x7FC00000)> : tensor<complex<f32>>
  func.return
}
