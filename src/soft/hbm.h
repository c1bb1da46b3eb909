/* hbm: what plugin.c needs of a chip's memory beside soft_int.h. */
#ifndef TTPU_SOFT_HBM_H
#define TTPU_SOFT_HBM_H

#include "soft/soft_int.h"

/* A block over memory that somebody else owns, outside every limit; release(data, context) ends it. */
ttpu_status soft_block_wrap(void *data, size_t bytes, void (*release)(void *data, void *context), void *context,
                            soft_block **out);
/* What the host could still give: the system's free memory and the control group's, whichever is less. */
size_t soft_host_memory_available(void);
size_t soft_host_memory_total(void);

#endif
