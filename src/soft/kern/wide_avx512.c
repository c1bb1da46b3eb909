/* Wide values with AVX-512. */
#define WIDE_TABLE wide_avx512
#include "soft/kern/wide_template.h"
