/* custom: the custom calls that JAX's lowerings for TPUs make where StableHLO has no operation: factorisations of matrices.
 * On a TPU the compiler knows them by name; their conventions are those of JAX's public source (jax/_src/lax/linalg.py,
 * jax/_src/tpu/linalg), which are LAPACK's:
 *
 *   Qr                                         a -> reflectors and R in one, taus       (geqrf)
 *   ProductOfElementaryHouseholderReflectors   reflectors, taus -> Q                    (orgqr)
 *   LuDecomposition                            a -> L and U in one, pivots, permutation (getrf, counted from 0)
 *   Eigh                                       a -> eigenvectors, eigenvalues           (heev; "lower,sort,...")
 *
 * Matrices are the last two dimensions. All is computed in double precision, by the textbook's algorithms. */
#ifndef TTPU_SOFT_CUSTOM_H
#define TTPU_SOFT_CUSTOM_H

#include "soft/soft_int.h"

/* UNIMPLEMENTED: a custom call in f that is none of these; INVALID_ARGUMENT: one with other operands or results. */
ttpu_status soft_custom_check(const ir_func *f);
ttpu_status soft_custom_call(const ir_op *op, const soft_view *x, const soft_view *y);

#endif
