/* check: runs StableHLO's own test files. Takes the text of one test (what stands between two `// -----`) and a PJRT client,
 * gives whether it does what it says. A test is a module with check.* operations, which compare values: they become results
 * of the function, which runs on the client's device, and are compared here on the host. A module without any is to be
 * read, verified, printed and read again; where it takes no arguments, or sizes make it one of known sizes, it is run too.
 *
 * The operations are those of StableHLO's CheckOps: expect_eq, expect_almost_eq, expect_close, their _const forms, and the
 * same as custom calls @check.<name>. */
#ifndef TTPU_CHECK_CHECK_H
#define TTPU_CHECK_CHECK_H

#include "ir/ir.h"
#include "pjrt/pjrt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum check_stage {
  CHECK_PASSED, /* as far as asked */
  CHECK_READ,   /* failed while reading or verifying */
  CHECK_COMPILE,
  CHECK_RUN,
  CHECK_VALUES /* ran, with other values than expected */
} check_stage;

typedef struct check_outcome {
  check_stage stage;
  bool ran;       /* on the device, rather than only read */
  uint32_t count; /* comparisons made */
  char message[512];
} check_outcome;

/* Runs the test. `client` NULL: it is only read. Never fails itself: what goes wrong is the outcome. */
void check_run(pjrt_client *client, const char *text, size_t length, check_outcome *out);
/* Reads the function named (NULL: the entry) with every `?` being `size`, and verifies it; for tests of what must be
 * refused. */
void check_read(const char *text, size_t length, const char *function, int64_t size, check_outcome *out);

#ifdef __cplusplus
}
#endif
#endif
