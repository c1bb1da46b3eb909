#include "model/manifest.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 1 << 20 };

static const char *const roles[] = {"input", "weight", "state", "random"};

static ttpu_status wrong(const char *what) { return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: %s", what); }

/* ---- types ---- */

/* {"name", "dtype", "shape"} */
static ttpu_status read_type(base_arena *arena, const json_value *v, ttpu_tensor *t, ttpu_dtype *dtype) {
  const char *name = json_text(json_member(v, "name")), *dtype_name = json_text(json_member(v, "dtype"));
  const json_value *shape = json_member(v, "shape");
  if (!name) return wrong("an argument or result has no name");
  *dtype = model_dtype(dtype_name);
  if (*dtype == TTPU_NO_DTYPE)
    return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: %s has no dtype that is known: %s", name,
                     dtype_name ? dtype_name : "(none)");
  if (!shape || shape->kind != JSON_ARRAY || shape->count > TTPU_MAX_RANK)
    return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: %s has no shape of at most %d sizes", name, TTPU_MAX_RANK);
  int64_t *dims = base_arena_alloc(arena, shape->count * sizeof *dims + 1);
  if (!dims) return base_no_memory(shape->count * sizeof *dims);
  uint32_t rank = 0;
  for (const json_value *size = shape->first; size; size = size->next) {
    if (!size->is_integer) return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: a size of %s is no integer", name);
    dims[rank++] = size->integer;
  }
  *t = (ttpu_tensor){.name = name, .dtype = base_dtypes[*dtype].name, .rank = rank, .dims = dims};
  if (!model_tensor_bytes(t, &t->bytes))
    return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: the shape of %s is none", name);
  return TTPU_OK;
}

static int find_role(const char *name) {
  for (int i = 0; name && i <= MODEL_RANDOM; ++i)
    if (strcmp(roles[i], name) == 0) return i;
  return -1;
}

/* ---- arguments and results ---- */

static ttpu_status read_arguments(base_arena *arena, const json_value *list, model_manifest *m) {
  if (!list || list->kind != JSON_ARRAY || list->count > MOST_VALUES) return wrong("there is no list of arguments");
  m->arguments = base_arena_zalloc(arena, list->count * sizeof *m->arguments + 1);
  m->inputs = base_arena_zalloc(arena, list->count * sizeof *m->inputs + 1);
  if (!m->arguments || !m->inputs) return base_no_memory(list->count * sizeof *m->arguments);
  for (const json_value *v = list->first; v; v = v->next) {
    model_argument *a = &m->arguments[m->argument_count++];
    BASE_TRY(read_type(arena, v, &a->type, &a->dtype));
    int role = find_role(json_text(json_member(v, "role")));
    if (role < 0)
      return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: the argument %s has no role that is known", a->type.name);
    a->role = (model_role)role;
    if (role == MODEL_INPUT) m->inputs[m->input_count++] = a->type;
    m->state_count += role == MODEL_STATE;
  }
  return TTPU_OK;
}

/* ---- names, sorted: a manifest may have a million of them ---- */

typedef struct named {
  const ttpu_tensor *type;
  uint32_t number;
} named;

static int compare_names(const void *a, const void *b) {
  return strcmp(((const named *)a)->type->name, ((const named *)b)->type->name);
}

/* The first of the sorted whose name is not less. */
static uint32_t find_name(const named *sorted, uint32_t count, const char *name) {
  uint32_t low = 0;
  while (count > 0) {
    uint32_t half = count / 2;
    bool less = strcmp(sorted[low + half].type->name, name) < 0;
    low = less ? low + half + 1 : low;
    count = less ? count - half - 1 : half;
  }
  return low;
}

/* A name that two of them have; NULL: there is none. Sorts them. */
static const char *find_twice(named *list, uint32_t count) {
  qsort(list, count, sizeof *list, compare_names);
  for (uint32_t i = 1; i < count; ++i)
    if (compare_names(&list[i - 1], &list[i]) == 0) return list[i].type->name;
  return NULL;
}

static named *sort_states(base_arena *arena, const model_manifest *m) {
  named *list = base_arena_alloc(arena, m->state_count * sizeof *list + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; list && i < m->argument_count; ++i)
    if (m->arguments[i].role == MODEL_STATE) list[count++] = (named){&m->arguments[i].type, i};
  if (list) qsort(list, count, sizeof *list, compare_names);
  return list;
}

static bool same_type(const ttpu_tensor *a, const ttpu_tensor *b) {
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

static int32_t find_state(const named *states, uint32_t count, const ttpu_tensor *type) {
  for (uint32_t i = find_name(states, count, type->name); i < count; ++i) {
    if (strcmp(states[i].type->name, type->name) != 0) return -1;
    if (same_type(states[i].type, type)) return (int32_t)states[i].number;
  }
  return -1;
}

static ttpu_status read_results(base_arena *arena, const json_value *list, model_manifest *m) {
  if (!list || list->kind != JSON_ARRAY || list->count > MOST_VALUES) return wrong("there is no list of results");
  m->results = base_arena_zalloc(arena, list->count * sizeof *m->results + 1);
  m->outputs = base_arena_zalloc(arena, list->count * sizeof *m->outputs + 1);
  const named *states = sort_states(arena, m);
  if (!m->results || !m->outputs || !states) return base_no_memory(list->count * sizeof *m->results);
  for (const json_value *v = list->first; v; v = v->next) {
    model_result *r = &m->results[m->result_count++];
    BASE_TRY(read_type(arena, v, &r->type, &r->dtype));
    const char *role = json_text(json_member(v, "role"));
    bool is_state = role && strcmp(role, "state") == 0;
    r->state = is_state ? find_state(states, m->state_count, &r->type) : -1;
    if (is_state && r->state < 0)
      return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: the result %s is the next value of no state of its type",
                       r->type.name);
    if (!is_state) m->outputs[m->output_count++] = r->type;
  }
  return TTPU_OK;
}

static ttpu_status fail_twice(const char *what, const char *name) {
  return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: two %s are named %s", what, name);
}

/* Each state has one result, each name of an input and of an output is there once. */
static ttpu_status check_names(base_arena *arena, const model_manifest *m) {
  uint32_t most = m->argument_count > m->result_count ? m->argument_count : m->result_count, updates = 0, count = 0;
  named *list = base_arena_alloc(arena, most * sizeof *list + 1);
  bool *updated = base_arena_zalloc(arena, m->argument_count + 1);
  if (!list || !updated) return base_no_memory(most * sizeof *list);
  for (uint32_t i = 0; i < m->result_count; ++i) {
    const model_result *r = &m->results[i];
    if (r->state < 0) list[count++] = (named){&r->type, i};
    else if (updated[r->state]) return fail_twice("results", r->type.name);
    else updated[r->state] = true, ++updates;
  }
  const char *twice = find_twice(list, count);
  if (twice) return fail_twice("results", twice);
  if (updates != m->state_count) return wrong("a state has no result");
  for (uint32_t i = 0; i < m->input_count; ++i) list[i] = (named){&m->inputs[i], i};
  twice = find_twice(list, m->input_count);
  return twice ? fail_twice("inputs", twice) : TTPU_OK;
}

/* ---- random numbers ---- */

static const model_argument *random_argument(const model_manifest *m, uint32_t *count) {
  const model_argument *found = NULL;
  *count = 0;
  for (uint32_t i = 0; i < m->argument_count; ++i)
    if (m->arguments[i].role == MODEL_RANDOM) found = &m->arguments[i], ++*count;
  return found;
}

static ttpu_status read_random(base_arena *arena, const json_value *v, model_manifest *m) {
  uint32_t count;
  const model_argument *a = random_argument(m, &count);
  if (count == 0) return TTPU_OK;
  const json_value *slots = json_member(v, "slots"), *drawn = json_member(v, "drawn");
  bool good = count == 1 && a->dtype == TTPU_I64 && a->type.rank == 1 && slots && slots->kind == JSON_ARRAY &&
              slots->count <= MOST_VALUES && drawn && drawn->is_integer && drawn->integer >= 0;
  uint32_t *list = good ? base_arena_alloc(arena, slots->count * sizeof *list + 1) : NULL;
  if (good && !list) return base_no_memory(slots->count * sizeof *list);
  for (const json_value *slot = good ? slots->first : NULL; slot; slot = slot->next) {
    good = good && slot->is_integer && slot->integer >= 0 && slot->integer < a->type.dims[0] - 1 &&
           slot->integer <= INT32_MAX;
    if (good) list[m->random_count++] = (uint32_t)slot->integer;
  }
  if (!good) return wrong("the places of random numbers do not fit the argument of role random");
  m->random_slots = list;
  m->random_drawn = (uint64_t)drawn->integer;
  return TTPU_OK;
}

/* ---- the whole ---- */

/* A file's name in the model's folder, and nowhere else. */
static ttpu_status read_file_name(const json_value *top, const char *member, const char **out) {
  *out = json_text(json_member(top, member));
  if (*out && **out && **out != '.' && !strchr(*out, '/')) return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: \"%s\" is no name of a file in this folder", member);
}

ttpu_status model_manifest_read(base_arena *arena, const char *text, size_t length, model_manifest *m) {
  const json_value *top;
  *m = (model_manifest){0};
  ttpu_status status = json_parse(arena, text, length, &top);
  if (status != TTPU_OK) return base_fail_context(status, "manifest.json");
  const char *format = json_text(json_member(top, "format"));
  const json_value *version = json_member(top, "version");
  if (!format || strcmp(format, "ttpu model") != 0) return wrong("\"format\" is not \"ttpu model\"");
  if (!version || !version->is_integer || version->integer != 1)
    return wrong("its version is not 1, the one that is known here: export the model again, or use a newer ttpu");
  BASE_TRY(read_file_name(top, "program", &m->program));
  BASE_TRY(read_file_name(top, "weights", &m->weights));
  BASE_TRY(read_arguments(arena, json_member(top, "arguments"), m));
  BASE_TRY(read_results(arena, json_member(top, "results"), m));
  BASE_TRY(check_names(arena, m));
  m->metadata = json_member(top, "metadata");
  return read_random(arena, json_member(top, "random"), m);
}

static ttpu_status check_type(const char *what, const ttpu_tensor *says, ttpu_dtype dtype, ir_type is) {
  if (is.dtype == dtype && is.rank == says->rank && memcmp(is.dims, says->dims, is.rank * sizeof *is.dims) == 0)
    return TTPU_OK;
  return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: the %s %s has another type than in the program", what,
                   says->name);
}

ttpu_status model_manifest_check(const model_manifest *m, const ir_func *f) {
  const ir_op *ret = f->body.ops[f->body.count - 1];
  if (f->body.arg_count != m->argument_count || ret->operand_count != m->result_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: it has %u arguments and %u results, the program %u and %u",
                     m->argument_count, m->result_count, f->body.arg_count, ret->operand_count);
  for (uint32_t i = 0; i < m->argument_count; ++i)
    BASE_TRY(
        check_type("argument", &m->arguments[i].type, m->arguments[i].dtype, ir_type_of(f, f->body.first_arg + i)));
  for (uint32_t i = 0; i < m->result_count; ++i)
    BASE_TRY(check_type("result", &m->results[i].type, m->results[i].dtype, ir_type_of(f, ret->operands[i])));
  return TTPU_OK;
}
