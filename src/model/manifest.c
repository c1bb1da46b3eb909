#include "model/manifest.h"

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

static int32_t find_state(const model_manifest *m, const ttpu_tensor *type) {
  for (uint32_t i = 0; i < m->argument_count; ++i) {
    const ttpu_tensor *t = &m->arguments[i].type;
    if (m->arguments[i].role == MODEL_STATE && strcmp(t->name, type->name) == 0 && t->dtype == type->dtype &&
        t->rank == type->rank && memcmp(t->dims, type->dims, t->rank * sizeof *t->dims) == 0)
      return (int32_t)i;
  }
  return -1;
}

static ttpu_status read_results(base_arena *arena, const json_value *list, model_manifest *m) {
  if (!list || list->kind != JSON_ARRAY || list->count > MOST_VALUES) return wrong("there is no list of results");
  m->results = base_arena_zalloc(arena, list->count * sizeof *m->results + 1);
  m->outputs = base_arena_zalloc(arena, list->count * sizeof *m->outputs + 1);
  if (!m->results || !m->outputs) return base_no_memory(list->count * sizeof *m->results);
  for (const json_value *v = list->first; v; v = v->next) {
    model_result *r = &m->results[m->result_count++];
    BASE_TRY(read_type(arena, v, &r->type, &r->dtype));
    const char *role = json_text(json_member(v, "role"));
    bool is_state = role && strcmp(role, "state") == 0;
    r->state = is_state ? find_state(m, &r->type) : -1;
    if (is_state && r->state < 0)
      return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: the result %s is the next value of no state of its type",
                       r->type.name);
    if (!is_state) m->outputs[m->output_count++] = r->type;
  }
  return TTPU_OK;
}

/* Each state has one result, each name of an input and of an output is there once. */
static ttpu_status check_names(const model_manifest *m) {
  uint32_t updates = 0;
  for (uint32_t i = 0; i < m->result_count; ++i) {
    updates += m->results[i].state >= 0;
    for (uint32_t k = 0; k < i; ++k)
      if ((m->results[i].state >= 0 && m->results[k].state == m->results[i].state) ||
          (m->results[i].state < 0 && m->results[k].state < 0 &&
           strcmp(m->results[i].type.name, m->results[k].type.name) == 0))
        return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: two results are named %s", m->results[i].type.name);
  }
  if (updates != m->state_count) return wrong("a state has no result");
  for (uint32_t i = 0; i < m->input_count; ++i)
    for (uint32_t k = 0; k < i; ++k)
      if (strcmp(m->inputs[i].name, m->inputs[k].name) == 0)
        return base_fail(TTPU_INVALID_ARGUMENT, "manifest.json: two inputs are named %s", m->inputs[i].name);
  return TTPU_OK;
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
    good = good && slot->is_integer && slot->integer >= 0 && slot->integer + 1 < a->type.dims[0];
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
  BASE_TRY(check_names(m));
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
