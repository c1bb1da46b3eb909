/* Status codes and the message that goes with the last failure of each thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char message[MESSAGE_BYTES];

/* Shortens `text` by a broken character at its end: Python refuses messages that are not UTF-8. */
static void drop_partial_character(char *text) {
  size_t length = strlen(text), back = 0;
  while (back < 3 && back < length && ((unsigned char)text[length - 1 - back] & 0xC0) == 0x80) ++back;
  if (back == length) return;
  unsigned char lead = (unsigned char)text[length - 1 - back];
  size_t needed = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  if (needed > back) text[length - 1 - back] = '\0';
}

/* How many bytes the character at s has (RFC 3629: no overlong forms, no surrogates); 0: it is none. */
static size_t character_length(const unsigned char *s) {
  if (s[0] < 0x80) return 1;
  size_t length = s[0] < 0xC2 || s[0] > 0xF4 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i)
    if ((s[i] & 0xC0) != 0x80) return 0;
  if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
      (s[0] == 0xF4 && s[1] > 0x8F))
    return 0;
  return length;
}

/* Names come from files that may be damaged. */
static void replace_broken_characters(char *text) {
  for (size_t i = 0; text[i] != '\0';) {
    size_t length = character_length((const unsigned char *)text + i);
    if (length == 0) text[i] = '?';
    i += length == 0 ? 1 : length;
  }
}

/* Formats into a buffer aside first, because an argument may be the old message itself. */
__attribute__((format(printf, 3, 0))) static void message_set(const char *tail_mark, const char *tail,
                                                              const char *format, va_list args) {
  char text[MESSAGE_BYTES];
  int written = vsnprintf(text, sizeof text, format, args);
  if (written < 0) snprintf(text, sizeof text, "(a message that could not be formatted: %s)", format);
  size_t length = strlen(text);
  snprintf(text + length, sizeof text - length, "%s%s", tail_mark, tail);
  if (strlen(text) == sizeof text - 1) drop_partial_character(text);
  replace_broken_characters(text);
  memcpy(message, text, sizeof message);
}

ttpu_status base_fail(ttpu_status code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  message_set("", "", format, args);
  va_end(args);
  return code;
}

ttpu_status base_fail_context(ttpu_status code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  message_set(": ", message, format, args);
  va_end(args);
  return code;
}

const char *base_message(void) { return message; }

const char *base_status_name(ttpu_status code) {
  static const char *const names[] = {
      "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED",
  };
  if ((unsigned)code >= sizeof names / sizeof *names) return "(unknown status)";
  return names[code];
}
