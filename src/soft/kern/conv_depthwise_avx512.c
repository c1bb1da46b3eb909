/* Depthwise convolution's loops, avx512. */
#include "soft/kern/simd_avx512.h"
#include "soft/kern/conv_int.h"
#include "soft/kern/conv_depthwise.inc"
