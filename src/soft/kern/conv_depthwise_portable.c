/* Depthwise convolution's loops, portable. */
#include "soft/kern/simd_portable.h"
#include "soft/kern/conv_int.h"
#include "soft/kern/conv_depthwise.inc"
