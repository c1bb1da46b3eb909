/* json: reads JSON (RFC 8259) strictly into a tree in an arena. */
#ifndef TTPU_MODEL_JSON_H
#define TTPU_MODEL_JSON_H

#include "base/base.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json_value {
  json_kind kind;
  bool is_true;
  bool is_integer; /* a number without fraction and exponent that fits `integer` */
  int64_t integer;
  double number;
  const char *text;         /* a string: UTF-8, NUL-terminated; one with a NUL inside is refused */
  const char *name;         /* of an object's member */
  uint32_t count;           /* of an array's or object's items */
  struct json_value *first; /* its items, in order, by `next` */
  struct json_value *next;
} json_value;

/* INVALID_ARGUMENT with the byte where it stops being JSON. */
ttpu_status json_parse(base_arena *arena, const char *text, size_t length, const json_value **out);
/* An object's first member of that name; NULL: there is none, or v is no object, or NULL. */
const json_value *json_member(const json_value *v, const char *name);
/* The text of a string; NULL: v is none, or NULL. */
const char *json_text(const json_value *v);

#endif
