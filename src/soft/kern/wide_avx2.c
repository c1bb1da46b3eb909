/* Wide values with AVX2 and F16C. */
#define WIDE_TABLE wide_avx2
#include "soft/kern/wide_template.h"
