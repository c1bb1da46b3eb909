/* The mock plugin's controls: tests dlopen it, set these and then open it as any plugin.
 *
 * It is a plugin of an old minor version with no extension, a few functions and static shapes only. It computes nothing:
 * a program's results have the types that its text says, filled with zeros; i64 ones begin with `words`, which stands for
 * a verdict. It counts its objects, so that a leak shows. */
#ifndef TTPU_MOCK_PLUGIN_H
#define TTPU_MOCK_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mock_config {
  int major, minor;
  size_t table_bytes;      /* as if the table ended there; 0: all of it */
  const char *missing;     /* functions that are NULL: "Event_OnReady Plugin_Attributes" */
  const char *fails;       /* a function that fails ... */
  int fails_at;            /* ... at its n-th call from now on (1: the next) */
  int code;                /* the failure's code */
  const char *message;     /* may be NULL */
  size_t message_size;     /* 0: as long as message */
  bool error_without_code; /* Error_GetCode fails */
  const char *grown;       /* a function whose arguments are larger than the client knows */
  uint32_t devices;
  int lacking_type;          /* a PJRT_Buffer_Type that it has not */
  bool late;                 /* events are not ready before mock_release */
  bool late_failure;         /* an execution's failure comes by event instead of from the call */
  const int64_t *own_layout; /* minor to major: buffers are kept so, and given to the host in no other layout */
  const int64_t *words;
  size_t word_count;
  uint32_t donated;      /* out: how many arguments the last execution could have consumed */
  char program[1 << 16]; /* out: the last program's text */
} mock_config;

mock_config *mock_get_config(void); /* set to its defaults by mock_reset */
void mock_reset(void);
void mock_release(void); /* all events become ready, and their callbacks are called */
int64_t mock_live(void); /* objects that nobody has destroyed */

#endif
