/* kern/scratch: memory for the length of one kernel's call, when its caller gives none.
 *
 * Fresh pages cost more than most kernels (hbm.c), and the system's allocator gives large blocks back at once. So the last
 * few are kept for the next call. Thread-safe. */
#ifndef TTPU_SOFT_KERN_SCRATCH_H
#define TTPU_SOFT_KERN_SCRATCH_H

#include "base/base.h"

void *kern_scratch_new(size_t bytes); /* 64-byte aligned, NULL when memory is out */
void kern_scratch_free(void *memory); /* NULL is fine */
void kern_scratch_trim(void);         /* gives back what is kept */

#endif
