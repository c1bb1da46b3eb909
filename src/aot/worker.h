/* aot: the process that compiles for TPUs that are not there (torch_tpu/lib/ttpu-aot-worker).
 *
 * libtpu ends the process on some bad programs, so its compiler runs apart from whoever asks, who starts another worker
 * then. A worker takes requests one by one on its standard input and answers each on its standard output; standard error
 * is the compiler's own. It ends with its input, with its parent, or with the compiler.
 *
 *   worker.c    the process: reads a request, answers it; ends with the parent
 *   message.c   requests and answers on a pipe
 *   hlo.c       the collectives of an optimised program
 *
 * A message is a list of named byte strings, all numbers little-endian:
 *
 *   u32 count, then for each: u32 length of the name, u64 length of the value, the name, the value
 *
 * Numbers travel as decimal text. A request has "topology" and, to compile, "program", "format" ("mlir" or "hlo"),
 * "replicas", "partitions" and "shardy" (0 or 1); "want" names the large parts of the answer ("executable", "optimized").
 * An answer has "status" (0 or a code of ttpu_status, then "message") and what worker.c puts into it.
 */
#ifndef TTPU_AOT_WORKER_H
#define TTPU_AOT_WORKER_H

#include "base/base.h"

enum { AOT_MAX_FIELDS = 256 };

typedef struct aot_field {
  const char *name; /* ends with NUL */
  const void *value;
  uint64_t length;
} aot_field;

/* A message that was read; its fields lie in the arena. */
typedef struct aot_message {
  base_arena arena;
  aot_field fields[AOT_MAX_FIELDS];
  uint32_t count;
} aot_message;

/* CANCELLED at the end of the input, before a message's first byte. Free the message whatever the outcome. */
ttpu_status aot_message_read(int fd, aot_message *out);
void aot_message_free(aot_message *m);
const aot_field *aot_message_get(const aot_message *m, const char *name); /* NULL: not there */
/* The value as text (copied into the arena, ends with NUL), or `otherwise` where it is not there. */
const char *aot_message_text(aot_message *m, const char *name, const char *otherwise);
ttpu_status aot_message_number(aot_message *m, const char *name, int64_t low, int64_t high, int64_t *out);

/* A message to be written: fields are appended to `body`. */
typedef struct aot_answer {
  base_text body;
  uint32_t count;
} aot_answer;
void aot_answer_put(aot_answer *a, const char *name, const void *value, size_t length);
void aot_answer_printf(aot_answer *a, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
ttpu_status aot_answer_write(aot_answer *a, int fd); /* and empties it */

/* The collectives of a program as HloModuleProtoWithConfig bytes: fields "collective:<kind>" = "<count> <bytes>", the
 * bytes of their results on one device. INVALID_ARGUMENT where the bytes are not a message. */
ttpu_status aot_hlo_put_collectives(const void *program, size_t length, aot_answer *a);

#endif
