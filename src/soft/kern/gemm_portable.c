/* gemm for any machine, and the plain packing that the others fall back to. */
#include "soft/kern/simd_portable.h"
#include "soft/kern/gemm_int.h"
#include "soft/kern/pack_plain.inc"

#define ISA_NAME "portable"
#define PACK_4 pack_plain_4
#define PACK_8 pack_plain_8
#define PACK_2_PAIRS pack_plain_2_pairs
#include "soft/kern/gemm_isa.inc"
