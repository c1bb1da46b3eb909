/* host: what a running program says to its host and hears from it: send and recv by channel, and outfeed and infeed, for
 * which PJRT has no calls, as channel 0.
 *
 * Who runs a program gives its thread the host's two functions for that time; they may wait, and other chips run on. */
#ifndef TTPU_SOFT_HOST_H
#define TTPU_SOFT_HOST_H

#include "soft/soft_int.h"

typedef struct soft_host {
  /* The bytes are lent for the call. */
  ttpu_status (*send)(struct soft_host *host, int64_t channel, const void *bytes, size_t size);
  /* Returns once `to` is full. */
  ttpu_status (*receive)(struct soft_host *host, int64_t channel, void *to, size_t size);
  struct soft_host *outer; /* of a run that this thread does in between */
} soft_host;

void soft_host_enter(soft_host *host);
void soft_host_leave(soft_host *host);
void soft_host_end_all(void); /* the process ends: nobody waits for the host any longer (plugin_host.c) */

bool soft_host_is_transfer(const ir_op *op);
bool soft_host_needed(const ir_func *f); /* it has transfers */
/* UNIMPLEMENTED: some are between devices. */
ttpu_status soft_host_check(const ir_func *f);
/* Runs send, recv, outfeed or infeed. FAILED_PRECONDITION: this thread has no host. */
ttpu_status soft_host_transfer(const ir_op *op, const soft_view *operands, const soft_view *results);

#endif
