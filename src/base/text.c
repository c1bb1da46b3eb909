/* A text that grows. Once an addition failed the text takes no more, and `failed` tells at the end. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Room for `more` bytes and the NUL. */
static bool text_reserve(base_text *t, size_t more) {
  if (t->failed) return false;
  if (t->capacity - t->length > more) return true;
  size_t wanted;
  if (__builtin_add_overflow(t->length, more, &wanted) || wanted > PTRDIFF_MAX / 2) {
    t->failed = true;
    return false;
  }
  wanted += wanted / 2 + 64;
  char *data = base_realloc(t->data, wanted);
  if (!data) {
    t->failed = true;
    return false;
  }
  t->data = data;
  t->capacity = wanted;
  return true;
}

void base_text_put(base_text *t, const char *bytes, size_t length) {
  if (!text_reserve(t, length)) return;
  if (length) memcpy(t->data + t->length, bytes, length);
  t->length += length;
  t->data[t->length] = '\0';
}

void base_text_printf(base_text *t, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  if (text_reserve(t, 63)) { /* most additions are short: format once, straight into place */
    size_t space = t->capacity - t->length;
    int length = vsnprintf(t->data + t->length, space, format, args);
    if (length < 0) {
      t->failed = true;
    } else if ((size_t)length < space) {
      t->length += (size_t)length;
    } else if (text_reserve(t, (size_t)length)) {
      vsnprintf(t->data + t->length, (size_t)length + 1, format, again);
      t->length += (size_t)length;
    }
    t->data[t->length] = '\0';
  }
  va_end(again);
  va_end(args);
}

void base_text_put_json(base_text *t, const char *text, size_t length) {
  base_text_put(t, "\"", 1);
  for (size_t i = 0; i < length; ++i) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\') base_text_printf(t, "\\%c", c);
    else if (c < 32) base_text_printf(t, "\\u%04x", c);
    else base_text_put(t, text + i, 1);
  }
  base_text_put(t, "\"", 1);
}

void base_text_free(base_text *t) {
  base_free(t->data);
  *t = (base_text){0};
}
