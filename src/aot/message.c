/* Messages on a pipe. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/worker.h"

/* A name longer than a screen or a value that no program has is a broken stream. */
static const uint64_t longest_name = 256, longest_value = (uint64_t)1 << 33;

/* ---- reading ---- */

/* How many of the bytes came before the end of the input. */
static size_t read_all(int fd, void *to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = read(fd, (uint8_t *)to + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  return done;
}

static ttpu_status broken(void) {
  return base_fail(TTPU_INVALID_ARGUMENT, "the stream of messages is broken: this is no message");
}

/* `bytes` of the stream and a NUL. */
static ttpu_status read_bytes(int fd, aot_message *m, uint64_t bytes, const void **out) {
  char *to = base_arena_alloc(&m->arena, bytes + 1);
  if (!to) return base_no_memory(bytes);
  if (read_all(fd, to, bytes) != bytes) return broken();
  to[bytes] = 0;
  *out = to;
  return TTPU_OK;
}

static ttpu_status read_field(int fd, aot_message *m) {
  uint32_t name_length;
  aot_field *f = &m->fields[m->count];
  if (read_all(fd, &name_length, sizeof name_length) != sizeof name_length ||
      read_all(fd, &f->length, sizeof f->length) != sizeof f->length)
    return broken();
  if (name_length > longest_name || f->length > longest_value) return broken();
  const void *name;
  BASE_TRY(read_bytes(fd, m, name_length, &name));
  f->name = name;
  BASE_TRY(read_bytes(fd, m, f->length, &f->value));
  ++m->count;
  return TTPU_OK;
}

ttpu_status aot_message_read(int fd, aot_message *out) {
  uint32_t count;
  out->count = 0;
  base_arena_init(&out->arena);
  size_t got = read_all(fd, &count, sizeof count);
  if (got == 0) return base_fail(TTPU_CANCELLED, "end of input");
  if (got != sizeof count || count > AOT_MAX_FIELDS) return broken();
  while (out->count < count) BASE_TRY(read_field(fd, out));
  return TTPU_OK;
}

void aot_message_free(aot_message *m) { base_arena_free(&m->arena); }

const aot_field *aot_message_get(const aot_message *m, const char *name) {
  for (uint32_t i = 0; i < m->count; ++i)
    if (strcmp(m->fields[i].name, name) == 0) return &m->fields[i];
  return NULL;
}

const char *aot_message_text(aot_message *m, const char *name, const char *otherwise) {
  const aot_field *f = aot_message_get(m, name);
  return f ? f->value : otherwise;
}

ttpu_status aot_message_number(aot_message *m, const char *name, int64_t low, int64_t high, int64_t *out) {
  const char *text = aot_message_text(m, name, "");
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (!*text || *end || errno || v < low || v > high)
    return base_fail(TTPU_INVALID_ARGUMENT, "%s is \"%s\"; expected a number from %lld to %lld", name, text,
                     (long long)low, (long long)high);
  *out = v;
  return TTPU_OK;
}

/* ---- writing ---- */

void aot_answer_put(aot_answer *a, const char *name, const void *value, size_t length) {
  uint32_t name_length = (uint32_t)strlen(name);
  uint64_t value_length = length;
  base_text_put(&a->body, (const char *)&name_length, sizeof name_length);
  base_text_put(&a->body, (const char *)&value_length, sizeof value_length);
  base_text_put(&a->body, name, name_length);
  base_text_put(&a->body, value, length);
  ++a->count;
}

void aot_answer_printf(aot_answer *a, const char *name, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  size_t kept = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
  aot_answer_put(a, name, text, kept);
}

static bool write_all(int fd, const void *from, size_t bytes) {
  const uint8_t *at = from;
  while (bytes > 0) {
    ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

ttpu_status aot_answer_write(aot_answer *a, int fd) {
  ttpu_status status = TTPU_OK;
  if (a->body.failed) status = base_no_memory(a->body.length);
  else if (!write_all(fd, &a->count, sizeof a->count) || !write_all(fd, a->body.data, a->body.length))
    status = base_fail(TTPU_CANCELLED, "nobody reads the answer: %s", strerror(errno));
  base_text_free(&a->body);
  a->count = 0;
  return status;
}
