/* npy: NumPy's file of one array (numpy.org/doc/stable/reference/generated/numpy.lib.format.html), versions 1 to 3.
 *
 *   "\x93NUMPY" major minor | header's length (u16, from version 2 on u32) | header | data
 *
 * The header is a Python dict of 'descr' ('<f4'), 'fortran_order' and 'shape'. Arrays of the byte order and the types
 * that tensors have, in C order, are taken; others are refused. */
#ifndef TTPU_MODEL_NPY_H
#define TTPU_MODEL_NPY_H

#include "base/base.h"
#include "ttpu.h"

/* dims and data are in the arena; the name is left as it is. */
ttpu_status npy_read(base_arena *arena, const char *path, ttpu_tensor *out);
/* UNIMPLEMENTED for dtypes that NumPy has not: bfloat16, float8_*. */
ttpu_status npy_write(const char *path, const ttpu_tensor *t);

#endif
