/* The tile kernels for any machine. */
#define KERNELS tile_kernels_portable
#define MATH_FMA 0
#include "soft/tile/vm_kernels.inc.c"
