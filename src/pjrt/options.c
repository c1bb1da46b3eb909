/* Options of a client, from text: "topology=v6e:2x2,wrap:ints=1;0;0,name:string=17,note=\"a, b\"".
 *
 * Items are separated by commas; a value with a comma stands in double quotes. A value is an integer, a float, true or
 * false, or a string by its form, or what a type after the name says: int, float, bool, string, ints (a list separated
 * by semicolons). */
#include <errno.h>
#include <stdlib.h>

#include "pjrt/pjrt_int.h"

typedef struct cursor {
  char *at; /* the rest; cut in place, and what is read points into it */
  base_arena *arena;
} cursor;

static ttpu_status fail_value(const char *name, const char *text, const char *type) {
  return base_fail(TTPU_INVALID_ARGUMENT, "plugin option \"%s\": \"%s\" is no %s", name, text, type);
}

/* The next value, without its quotes; moves on past the comma. */
static ttpu_status cut_value(cursor *c, const char *name, char **out, bool *quoted) {
  char *begin = c->at, *end;
  *quoted = *begin == '"';
  if (*quoted) {
    end = strchr(++begin, '"');
    if (!end || (end[1] && end[1] != ','))
      return base_fail(TTPU_INVALID_ARGUMENT, "plugin option \"%s\": a value that begins with a quote ends with one",
                       name);
    c->at = end[1] ? end + 2 : end + 1;
  } else {
    end = begin + strcspn(begin, ",");
    c->at = *end ? end + 1 : end;
  }
  *end = 0;
  *out = begin;
  return TTPU_OK;
}

/* ---- values by type ------------------------------------------------------------------------------------------------------- */

static bool read_int(const char *text, char stop, int64_t *out, const char **end) {
  char *after;
  errno = 0;
  *out = strtoll(text, &after, 10);
  *end = after;
  return after != text && errno == 0 && (!*after || *after == stop);
}

static bool set_int(PJRT_NamedValue *v, const char *text) {
  const char *end;
  v->type = PJRT_NamedValue_kInt64;
  v->value_size = 1;
  return read_int(text, 0, &v->int64_value, &end);
}

static bool set_float(PJRT_NamedValue *v, const char *text) {
  char *end;
  v->type = PJRT_NamedValue_kFloat;
  v->value_size = 1;
  v->float_value = strtof(text, &end);
  return *text && !*end;
}

static bool set_bool(PJRT_NamedValue *v, const char *text) {
  v->type = PJRT_NamedValue_kBool;
  v->value_size = 1;
  v->bool_value = strcmp(text, "true") == 0;
  return v->bool_value || strcmp(text, "false") == 0;
}

static bool set_string(PJRT_NamedValue *v, const char *text) {
  v->type = PJRT_NamedValue_kString;
  v->string_value = text;
  v->value_size = strlen(text);
  return true;
}

static bool set_ints(PJRT_NamedValue *v, const char *text, base_arena *arena) {
  size_t count = *text != 0;
  for (const char *c = text; *c; ++c) count += *c == ';';
  int64_t *list = base_arena_alloc(arena, count * sizeof *list + 1);
  if (!list) return false;
  v->type = PJRT_NamedValue_kInt64List;
  v->int64_array_value = list;
  v->value_size = count;
  const char *end = text;
  for (size_t i = 0; i < count; ++i) {
    if (!read_int(i ? end + 1 : end, ';', &list[i], &end)) return false;
    if (!*end != (i + 1 == count)) return false;
  }
  return true;
}

/* By the type's name, or by form where it is NULL. */
static ttpu_status set_value(PJRT_NamedValue *v, const char *type, const char *text, bool quoted, base_arena *arena) {
  if (!type) {
    (void)((!quoted && (set_int(v, text) || set_float(v, text) || set_bool(v, text))) || set_string(v, text));
    return TTPU_OK;
  }
  bool ok;
  if (strcmp(type, "int") == 0) ok = set_int(v, text);
  else if (strcmp(type, "float") == 0) ok = set_float(v, text);
  else if (strcmp(type, "bool") == 0) ok = set_bool(v, text);
  else if (strcmp(type, "string") == 0) ok = set_string(v, text);
  else if (strcmp(type, "ints") == 0) ok = set_ints(v, text, arena);
  else
    return base_fail(TTPU_INVALID_ARGUMENT, "plugin option \"%s\": no type \"%s\"; int, float, bool, string or ints",
                     v->name, type);
  return ok ? TTPU_OK : fail_value(v->name, text, type);
}

/* ---- the list --------------------------------------------------------------------------------------------------------------- */

static ttpu_status read_option(cursor *c, PJRT_NamedValue *v) {
  size_t before = strcspn(c->at, "=,");
  if (before == 0 || c->at[before] != '=')
    return base_fail(TTPU_INVALID_ARGUMENT, "plugin option \"%.*s\": expected name=value,name=value", (int)before,
                     c->at);
  char *name = c->at, *text = NULL;
  bool quoted;
  name[before] = 0;
  c->at += before + 1;
  char *type = strchr(name, ':');
  if (type) *type++ = 0;
  *v = (PJRT_NamedValue){.struct_size = sizeof *v, .name = name, .name_size = strlen(name)};
  BASE_TRY(cut_value(c, name, &text, &quoted));
  return set_value(v, type, text, quoted, c->arena);
}

ttpu_status pjrt_options_parse(const char *text, base_arena *arena, PJRT_NamedValue **out, size_t *count) {
  size_t length = text ? strlen(text) : 0, most = 1;
  for (size_t i = 0; i < length; ++i) most += text[i] == ',';
  *count = 0;
  char *copy = base_arena_dup(arena, text ? text : "", length + 1);
  PJRT_NamedValue *values = base_arena_zalloc(arena, most * sizeof *values);
  if (!copy || !values) return base_no_memory(most * sizeof *values);
  for (cursor c = {copy, arena}; *c.at;) BASE_TRY(read_option(&c, &values[(*count)++]));
  *out = values;
  return TTPU_OK;
}
