/* TTPU_LOG and TTPU_DUMP, both read once, at the first use. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static base_log_level lowest = LOG_WARN;
static char *stages; /* a copy: the environment may change under a running program */

static void settings_read(void) {
  const char *dump = getenv("TTPU_DUMP"), *level = getenv("TTPU_LOG");
  if (dump) stages = strdup(dump);
  if (!level || !*level) return;
  for (int i = 0; i < 4; ++i)
    if (strcmp(level, level_names[i]) == 0) {
      lowest = (base_log_level)i;
      return;
    }
  fprintf(stderr, "ttpu: warn: TTPU_LOG=%s is none of debug, info, warn, error\n", level);
}

bool base_log_enabled(base_log_level level) {
  pthread_once(&settings_once, settings_read);
  return level >= lowest;
}

void base_log(base_log_level level, const char *format, ...) {
  if (!base_log_enabled(level)) return;
  char line[2304];
  int head = snprintf(line, sizeof line, "ttpu: %s: ", level_names[level]);
  va_list args;
  va_start(args, format);
  int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
  va_end(args);
  if (body < 0) return;
  size_t length = strlen(line);
  line[length++] = '\n';
  /* One write a line, so that the lines of several threads and processes do not mix. */
  if (write(STDERR_FILENO, line, length) < 0) return; /* nowhere to complain */
}

bool base_dump_enabled(const char *stage) {
  pthread_once(&settings_once, settings_read);
  size_t length = strlen(stage);
  for (const char *p = stages; p && *p; p += strspn(p, ",")) {
    size_t n = strcspn(p, ",");
    if ((n == length && memcmp(p, stage, n) == 0) || (n == 3 && memcmp(p, "all", 3) == 0)) return true;
    p += n;
  }
  return false;
}
