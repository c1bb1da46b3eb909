/* Depthwise convolution's loops, avx2. */
#include "soft/kern/simd_avx2.h"
#include "soft/kern/conv_int.h"
#include "soft/kern/conv_depthwise.inc"
