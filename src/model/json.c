#include "model/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTED = 64 };

typedef struct reader {
  base_arena *arena;
  const char *begin, *at, *end;
  uint32_t depth;
  ttpu_status status; /* of the first failure */
} reader;

static bool fail(reader *r, const char *what) {
  if (r->status == TTPU_OK)
    r->status = base_fail(TTPU_INVALID_ARGUMENT, "no JSON at byte %zu: %s", (size_t)(r->at - r->begin), what);
  return false;
}

static bool no_memory(reader *r) {
  if (r->status == TTPU_OK) r->status = base_no_memory(sizeof(json_value));
  return false;
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) ++r->at;
}

static bool take(reader *r, char c) {
  if (r->at == r->end || *r->at != c) return false;
  ++r->at;
  return true;
}

static bool take_word(reader *r, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return fail(r, "a value is expected");
  r->at += length;
  return true;
}

/* ---- strings ---- */

/* The four digits behind \u; -1: they are none. */
static int32_t read_hex4(reader *r) {
  int32_t v = 0;
  if (r->end - r->at < 4) return -1;
  for (int i = 0; i < 4; ++i) {
    char c = *r->at++;
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    v = v << 4 | digit;
  }
  return v;
}

/* Writes a code point as UTF-8 and returns the next place. */
static char *put_utf8(char *to, uint32_t c) {
  if (c < 0x80) *to++ = (char)c;
  else if (c < 0x800) *to++ = (char)(0xC0 | c >> 6);
  else if (c < 0x10000) *to++ = (char)(0xE0 | c >> 12);
  else *to++ = (char)(0xF0 | c >> 18);
  if (c >= 0x10000) *to++ = (char)(0x80 | (c >> 12 & 0x3F));
  if (c >= 0x800) *to++ = (char)(0x80 | (c >> 6 & 0x3F));
  if (c >= 0x80) *to++ = (char)(0x80 | (c & 0x3F));
  return to;
}

/* Behind \u: a code point, of two halves where the first is a high surrogate. */
static bool read_code_point(reader *r, uint32_t *out) {
  int32_t high = read_hex4(r);
  if (high < 0) return fail(r, "\\u needs four hexadecimal digits");
  *out = (uint32_t)high;
  if (high == 0) return fail(r, "a string with the character 0");
  if (high >= 0xDC00 && high <= 0xDFFF) return fail(r, "half of a surrogate pair");
  if (high < 0xD800 || high > 0xDBFF) return true;
  int32_t low = take(r, '\\') && take(r, 'u') ? read_hex4(r) : -1;
  if (low < 0xDC00 || low > 0xDFFF) return fail(r, "half of a surrogate pair");
  *out = 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
  return true;
}

/* Checks one character of UTF-8 (RFC 3629: no overlong forms, no surrogates) and copies it. */
static bool copy_character(reader *r, char **to) {
  const uint8_t *s = (const uint8_t *)r->at;
  size_t left = (size_t)(r->end - r->at), length = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
  if (s[0] < 0x20) return fail(r, "a control character in a string");
  bool good = length == 1 || (s[0] >= 0xC2 && s[0] <= 0xF4 && length <= left);
  for (size_t i = 1; good && i < length; ++i) good = (s[i] & 0xC0) == 0x80;
  if (good && length > 2)
    good = !(s[0] == 0xE0 && s[1] < 0xA0) && !(s[0] == 0xED && s[1] > 0x9F) && !(s[0] == 0xF0 && s[1] < 0x90) &&
           !(s[0] == 0xF4 && s[1] > 0x8F);
  if (!good) return fail(r, "a string that is not UTF-8");
  memcpy(*to, s, length);
  *to += length;
  r->at += length;
  return true;
}

static bool read_escape(reader *r, char **to) {
  static const char from[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
  if (take(r, 'u')) {
    uint32_t c;
    if (!read_code_point(r, &c)) return false;
    *to = put_utf8(*to, c);
    return true;
  }
  const char *found = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
  if (!found) return fail(r, "an unknown escape in a string");
  ++r->at;
  *(*to)++ = meaning[found - from];
  return true;
}

/* Behind the opening quote. What is read is never longer than its source. */
static bool read_string(reader *r, const char **out) {
  const char *close = r->at;
  while (close < r->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= r->end) return fail(r, "a string without an end");
  char *text = base_arena_alloc(r->arena, (size_t)(close - r->at) + 1), *to = text;
  if (!text) return no_memory(r);
  while (!take(r, '"'))
    if (!(take(r, '\\') ? read_escape(r, &to) : copy_character(r, &to))) return false;
  *to = '\0';
  *out = text;
  return true;
}

/* ---- numbers ---- */

static const char *skip_digits(const char *at, const char *end) {
  while (at < end && *at >= '0' && *at <= '9') ++at;
  return at;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static bool read_number(reader *r, json_value *v) {
  const char *at = r->at, *from;
  if (at < r->end && *at == '-') ++at;
  from = at;
  at = skip_digits(at, r->end);
  if (at == from) return fail(r, "a value is expected");
  if (*from == '0' && at > from + 1) return fail(r, "a number that begins with 0");
  bool integer = true;
  if (at < r->end && *at == '.') {
    integer = false;
    from = ++at;
    at = skip_digits(at, r->end);
    if (at == from) return fail(r, "a number without digits behind the point");
  }
  if (at < r->end && (*at == 'e' || *at == 'E')) {
    integer = false;
    if (++at < r->end && (*at == '+' || *at == '-')) ++at;
    from = at;
    at = skip_digits(at, r->end);
    if (at == from) return fail(r, "a number without an exponent's digits");
  }
  char digits[512]; /* strtod needs a NUL behind it */
  size_t length = (size_t)(at - r->at);
  if (length >= sizeof digits) return fail(r, "a number of more than 511 characters");
  memcpy(digits, r->at, length);
  digits[length] = '\0';
  v->kind = JSON_NUMBER;
  v->number = strtod(digits, NULL);
  errno = 0;
  v->integer = integer ? strtoll(digits, NULL, 10) : 0;
  v->is_integer = integer && errno == 0;
  r->at = at;
  return true;
}

/* ---- values ---- */

static bool read_value(reader *r, json_value *v);

/* Behind the opening bracket: items up to the closing one, with names in an object. */
static bool read_items(reader *r, json_value *v, char close) {
  json_value **last = &v->first;
  if (++r->depth > MOST_NESTED) return fail(r, "more than 64 values inside of each other");
  skip_space(r);
  bool more = !take(r, close);
  while (more) {
    json_value *item = base_arena_zalloc(r->arena, sizeof *item);
    if (!item) return no_memory(r);
    skip_space(r);
    if (close == '}') {
      if (!take(r, '"')) return fail(r, "a member's name is expected");
      if (!read_string(r, &item->name)) return false;
      skip_space(r);
      if (!take(r, ':')) return fail(r, "a colon is expected");
    }
    if (!read_value(r, item)) return false;
    *last = item;
    last = &item->next;
    ++v->count;
    skip_space(r);
    more = take(r, ',');
    if (!more && !take(r, close)) return fail(r, "a comma or a closing bracket is expected");
  }
  --r->depth;
  return true;
}

static bool read_value(reader *r, json_value *v) {
  skip_space(r);
  if (r->at == r->end) return fail(r, "it ends early");
  switch (*r->at) {
    case '{':
      ++r->at;
      v->kind = JSON_OBJECT;
      return read_items(r, v, '}');
    case '[':
      ++r->at;
      v->kind = JSON_ARRAY;
      return read_items(r, v, ']');
    case '"':
      ++r->at;
      v->kind = JSON_STRING;
      return read_string(r, &v->text);
    case 't':
      v->kind = JSON_BOOL;
      v->is_true = true;
      return take_word(r, "true");
    case 'f': v->kind = JSON_BOOL; return take_word(r, "false");
    case 'n': v->kind = JSON_NULL; return take_word(r, "null");
    default: return read_number(r, v);
  }
}

ttpu_status json_parse(base_arena *arena, const char *text, size_t length, const json_value **out) {
  reader r = {.arena = arena, .begin = text, .at = text, .end = text + length};
  json_value *v = base_arena_zalloc(arena, sizeof *v);
  *out = NULL;
  if (!v) return base_no_memory(sizeof *v);
  if (read_value(&r, v)) {
    skip_space(&r);
    if (r.at != r.end) fail(&r, "something follows the value");
  }
  if (r.status == TTPU_OK) *out = v;
  return r.status;
}

const json_value *json_member(const json_value *v, const char *name) {
  if (!v || v->kind != JSON_OBJECT) return NULL;
  for (const json_value *item = v->first; item; item = item->next)
    if (strcmp(item->name, name) == 0) return item;
  return NULL;
}

const char *json_text(const json_value *v) { return v && v->kind == JSON_STRING ? v->text : NULL; }
