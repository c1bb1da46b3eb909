/* program: one function of a test, compiled for some chips, with its arguments and results there. */
#ifndef TTPU_CHECK_PROGRAM_H
#define TTPU_CHECK_PROGRAM_H

#include "ir/ir.h"
#include "pjrt/pjrt.h"

typedef struct check_program {
  pjrt_client *client;
  uint32_t first, chips;                 /* which devices of the client it runs on */
  uint32_t argument_count, result_count; /* of one chip */
  ir_type *arguments, *results;
  uint32_t channel_count, channel_capacity; /* that it sends or receives on */
  int64_t *channels;                        /* base_free frees it */
  base_arena types;
  pjrt_executable *executable;
  pjrt_buffer **argument_buffers, **result_buffers; /* chip by chip */
} check_program;

/* Notes what f takes, gives and says to the host; nothing is compiled. Close it whatever the outcome. */
ttpu_status check_program_open(pjrt_client *client, const ir_func *f, check_program *p);
/* For one chip, device number `first`, or replicas x partitions of them, from device 0 on. Takes the arena of f. */
ttpu_status check_program_compile(check_program *p, uint32_t first, uint32_t replicas, uint32_t partitions,
                                  base_arena *arena, ir_func *f);
/* Starts it on its argument_buffers, all of which are set. mailbox: for its transfers. */
ttpu_status check_program_start(check_program *p, pjrt_mailbox *mailbox);
ttpu_status check_program_await(check_program *p);
void check_program_close(check_program *p);

/* The bytes of an array of this type, to be freed with base_free; NULL: base_message says why. */
void *check_fetch(pjrt_buffer *buffer, ir_type type);
size_t check_bytes(ir_type type);

/* Runs what an interpreter.run_parallel of the text says on the client's devices, with operands on the first one, and
 * sets run->results, in `kept`. */
ttpu_status check_run_parallel(pjrt_client *client, const char *text, size_t length, ir_parallel *run,
                               pjrt_buffer *const *operands, base_arena *kept);

#endif
