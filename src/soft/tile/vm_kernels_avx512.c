/* The tile kernels for AVX-512 F, BW, DQ and VL. */
#define KERNELS tile_kernels_avx512
#define MATH_FMA 1
#include "soft/tile/vm_kernels.inc.c"
