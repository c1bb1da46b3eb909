/* TTPU_LOG and TTPU_DUMP, which are read once a process: each case is a child. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* What `body` writes to stderr in a child with these variables set (NULL: unset). */
static const char *output_of(const char *log, const char *dump, void (*body)(void)) {
  static char text[8192];
  int ends[2];
  if (pipe(ends) != 0) return "(no pipe)";
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    log ? setenv("TTPU_LOG", log, 1) : unsetenv("TTPU_LOG");
    dump ? setenv("TTPU_DUMP", dump, 1) : unsetenv("TTPU_DUMP");
    body();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) length += (size_t)n;
  text[length] = '\0';
  close(ends[0]);
  waitpid(child, NULL, 0);
  return text;
}

static void log_all(void) {
  base_log(LOG_DEBUG, "d%d", 1);
  base_log(LOG_INFO, "i");
  base_log(LOG_WARN, "w");
  base_log(LOG_ERROR, "e");
}

TEST(levels) {
  CHECK_STR(output_of(NULL, NULL, log_all), "ttpu: warn: w\nttpu: error: e\n");
  CHECK_STR(output_of("", NULL, log_all), "ttpu: warn: w\nttpu: error: e\n");
  CHECK_STR(output_of("debug", NULL, log_all), "ttpu: debug: d1\nttpu: info: i\nttpu: warn: w\nttpu: error: e\n");
  CHECK_STR(output_of("error", NULL, log_all), "ttpu: error: e\n");
  CHECK_HAS(output_of("loud", NULL, log_all), "TTPU_LOG=loud is none of");
}

static void log_long(void) {
  char text[5000];
  memset(text, 'x', sizeof text);
  text[4999] = '\0';
  base_log(LOG_ERROR, "%s", text);
}

TEST(a_long_line_is_cut_and_ends) {
  const char *text = output_of(NULL, NULL, log_long);
  size_t length = strlen(text);
  CHECK(length > 2000 && length < 2400);
  CHECK(text[length - 1] == '\n');
}

static void dump_some(void) {
  fprintf(stderr, "%d%d%d%d", base_dump_enabled("fuse"), base_dump_enabled("plan"), base_dump_enabled("fus"),
          base_dump_enabled("fuse2"));
}

TEST(stages) {
  CHECK_STR(output_of(NULL, NULL, dump_some), "0000");
  CHECK_STR(output_of(NULL, "", dump_some), "0000");
  CHECK_STR(output_of(NULL, "fuse", dump_some), "1000");
  CHECK_STR(output_of(NULL, ",plan,,fuse,", dump_some), "1100");
  CHECK_STR(output_of(NULL, "plan,all", dump_some), "1111");
}
