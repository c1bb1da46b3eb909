/* The tile kernels for AVX2 with FMA and F16C. */
#define KERNELS tile_kernels_avx2
#define MATH_FMA 1
#include "soft/tile/vm_kernels.inc.c"
