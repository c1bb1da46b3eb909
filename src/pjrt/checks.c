/* Checks on plugins that know nothing of them.
 *
 * A program may promise that an index lies in its range, or that a condition does not hold (CHECK_INDEX); the software
 * TPU stops at a broken promise. StableHLO has no such operation, so for other plugins each check becomes two numbers,
 * whether it failed and the first element that broke it, and all of them together one more result of the program, the
 * *verdict*, which is copied to the host after each run (doubt.c).
 *
 * What a failed check spoils is decided here, once a program: the results that depend on what its operator made. For
 * each result a row of bits says on which parameters it depends, and on which checks. */
#include "pjrt/pjrt_int.h"

enum { WORD_BITS = 64 };

static void set_bit(uint64_t *row, uint32_t bit) { row[bit / WORD_BITS] |= (uint64_t)1 << bit % WORD_BITS; }
static bool get_bit(const uint64_t *row, uint32_t bit) { return row[bit / WORD_BITS] >> bit % WORD_BITS & 1; }

/* ---- the object --------------------------------------------------------------------------------------------------- */

/* With room for as many results, parameters and checks; the checks are to be filled. */
pjrt_checks *pjrt_checks_new(uint32_t params, uint32_t outputs, uint32_t count) {
  uint64_t words = ((uint64_t)params + count + WORD_BITS - 1) / WORD_BITS;
  pjrt_checks *c = base_calloc(1, sizeof *c);
  if (!c) return NULL;
  atomic_init(&c->refs, 1);
  c->params = params;
  c->outputs = outputs;
  c->count = count;
  c->words = (uint32_t)words;
  c->rows = base_calloc((size_t)outputs * words + 1, sizeof *c->rows);
  c->checks = base_calloc((size_t)count + 1, sizeof *c->checks);
  if (c->rows && c->checks) return c;
  pjrt_checks_free(c);
  return NULL;
}

pjrt_checks *pjrt_checks_share(pjrt_checks *c) {
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  return c;
}

void pjrt_checks_free(pjrt_checks *c) {
  if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; c->checks && i < c->count; ++i) base_free(c->checks[i].what);
  base_free(c->checks);
  base_free(c->rows);
  base_free(c);
}

bool pjrt_checks_needs_param(const pjrt_checks *c, uint32_t output, uint32_t param) {
  return get_bit(c->rows + (size_t)output * c->words, param);
}

bool pjrt_checks_needs_check(const pjrt_checks *c, uint32_t output, uint32_t check) {
  return get_bit(c->rows + (size_t)output * c->words, c->params + check);
}

ttpu_status pjrt_check_fail(const pjrt_check *check, int64_t found) {
  const ir_check_index_attrs attrs = {check->low, check->high, check->error, check->what};
  return ir_check_fail(&attrs, check->is_condition, found);
}

/* The message's beginning: the operator's name as far as it is known, and what the check says. */
static ttpu_status fill_check(const ir_func *f, const ir_op *op, pjrt_check *check) {
  const ir_check_index_attrs *a = IR_ATTRS(op, check_index);
  base_text text = {0};
  if (op->source) base_text_printf(&text, "%s: ", op->source);
  base_text_printf(&text, "%s", a->what ? a->what : "index");
  if (text.failed) {
    base_text_free(&text);
    return base_no_memory(text.length);
  }
  *check = (pjrt_check){.what = text.data,
                        .low = a->low,
                        .high = a->high,
                        .error = a->error,
                        .is_condition = ir_type_of(f, op->operands[0]).dtype == TTPU_BOOL};
  return TTPU_OK;
}

/* ---- what depends on what ------------------------------------------------------------------------------------------ */

/* The rows of all values of a function. */
typedef struct dependence {
  const ir_func *f;
  uint32_t words;
  uint64_t *rows; /* value_count of them */
  uint64_t *own;  /* of each operation of the body: the checks that spoil what it makes */
} dependence;

static uint64_t *row_of(const dependence *d, ir_value v) { return d->rows + (size_t)v * d->words; }

static void merge(const dependence *d, uint64_t *into, const uint64_t *row) {
  for (uint32_t i = 0; i < d->words; ++i) into[i] |= row[i];
}

/* What op's operands depend on, and those of the operations in its regions; their own results' rows are empty. */
static void merge_operands(const dependence *d, uint64_t *into, const ir_op *op) {
  for (uint32_t i = 0; i < op->operand_count; ++i) merge(d, into, row_of(d, op->operands[i]));
  for (uint32_t r = 0; r < op->region_count; ++r)
    for (uint32_t i = 0; i < op->regions[r]->count; ++i) merge_operands(d, into, op->regions[r]->ops[i]);
}

static bool same_operator(const ir_region *body, uint32_t position, const char *source) {
  return position < body->count && source && body->ops[position]->source == source;
}

/* A check stands beside what it guards and not always before it: a failed one spoils all that its operator made, which
 * are the operations around it with the same source. */
static void mark_operator(const dependence *d, uint32_t position, uint32_t bit) {
  const ir_region *body = &d->f->body;
  const char *source = body->ops[position]->source;
  set_bit(d->own + (size_t)position * d->words, bit);
  for (uint32_t i = position - 1; same_operator(body, i, source); --i) set_bit(d->own + (size_t)i * d->words, bit);
  for (uint32_t i = position + 1; same_operator(body, i, source); ++i) set_bit(d->own + (size_t)i * d->words, bit);
}

static bool is_check(const ir_func *f, const ir_op *op) {
  return op->kind == IR_CHECK_INDEX && ir_numel(ir_type_of(f, op->operands[0])) > 0;
}

static ttpu_status find_rows(const ir_func *f, pjrt_checks *c) {
  const ir_region *body = &f->body;
  const ir_op *ret = body->ops[body->count - 1];
  dependence d = {.f = f, .words = c->words};
  size_t words = ((size_t)f->value_count + body->count) * c->words + 1;
  d.rows = base_calloc(words, sizeof *d.rows);
  if (!d.rows) return base_no_memory(words * sizeof *d.rows);
  d.own = d.rows + (size_t)f->value_count * c->words;
  for (uint32_t i = 0; i < c->params; ++i) set_bit(row_of(&d, body->first_arg + i), i);
  for (uint32_t i = 0, bit = c->params; i < body->count; ++i)
    if (is_check(f, body->ops[i])) mark_operator(&d, i, bit++);
  for (uint32_t i = 0; i + 1 < body->count; ++i) {
    const ir_op *op = body->ops[i];
    uint64_t *row = d.own + (size_t)i * d.words;
    merge_operands(&d, row, op);
    for (uint32_t k = 0; k < op->result_count; ++k) merge(&d, row_of(&d, op->first_result + k), row);
  }
  for (uint32_t i = 0; i < c->outputs; ++i) merge(&d, c->rows + (size_t)i * c->words, row_of(&d, ret->operands[i]));
  base_free(d.rows);
  return TTPU_OK;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------------ */

/* [failed, element] as two tensors of one i64: element is the first one outside of [low, high). */
static void judge(ir_builder *b, ir_value x, const ir_check_index_attrs *a, ir_value parts[2]) {
  static const int64_t one = 1, zero = 0;
  const int64_t n = ir_numel(ir_type_of(b->func, x));
  ir_value index = ir_reshape(b, ir_convert(b, x, TTPU_I64), 1, &n);
  ir_value below = ir_compare(b, IR_LT, index, ir_fill_i64(b, TTPU_I64, 1, &n, a->low));
  ir_value above = ir_compare(b, IR_GE, index, ir_fill_i64(b, TTPU_I64, 1, &n, a->high));
  ir_value places = ir_select(b, ir_or_bits(b, below, above), ir_iota(b, TTPU_I64, 1, &n, 0),
                              ir_fill_i64(b, TTPU_I64, 1, &n, n)); /* n where all is well */
  ir_value first = ir_reduce(b, IR_MINIMUM, places, 1, &zero);
  ir_value failed = ir_compare(b, IR_LT, first, ir_scalar_i64(b, TTPU_I64, n));
  parts[0] = ir_reshape(b, ir_convert(b, failed, TTPU_I64), 1, &one);
  parts[1] = ir_dynamic_slice(b, index, &first, &one); /* a start beyond the end is moved to it */
}

/* f again with each check replaced by its operand, and the verdict as one more result. */
static ttpu_status add_verdict(const ir_func *f, base_arena *arena, uint32_t checks, const ir_func **out) {
  const ir_region *body = &f->body;
  const ir_op *ret = body->ops[body->count - 1];
  ir_func *to = ir_func_new(arena, f->name);
  ir_builder b = ir_builder_on(to);
  ir_value *map = base_calloc(f->value_count, sizeof *map);
  ir_value *parts = base_arena_alloc(arena, (2 * checks + 1) * sizeof *parts);
  ir_value *results = base_arena_alloc(arena, (ret->operand_count + 1) * sizeof *results);
  if (!to || !map || !parts || !results) {
    base_free(map);
    return base_no_memory(f->value_count * sizeof *map);
  }
  for (uint32_t i = 0; i < body->arg_count; ++i)
    map[body->first_arg + i] = ir_param(&b, ir_type_of(f, body->first_arg + i));
  for (uint32_t i = 0, k = 0; i + 1 < body->count && !b.status; ++i) {
    const ir_op *op = body->ops[i];
    if (op->kind != IR_CHECK_INDEX) {
      ir_copy_op(&b, f, op, map);
      continue;
    }
    map[op->first_result] = map[op->operands[0]];
    b.source = op->source;
    if (is_check(f, op)) judge(&b, map[op->operands[0]], IR_ATTRS(op, check_index), parts + 2 * k++);
    b.source = NULL;
  }
  for (uint32_t i = 0; i < ret->operand_count; ++i) results[i] = map[ret->operands[i]];
  base_free(map);
  if (checks > 0) results[ret->operand_count] = ir_concatenate(&b, 2 * checks, parts, 0);
  ir_return(&b, ret->operand_count + (checks > 0), results);
  if (b.status) return base_fail(b.status, "%s", b.message);
  to->donate = f->donate;
  *out = to;
  return TTPU_OK;
}

ttpu_status pjrt_checks_extract(const ir_func *f, base_arena *arena, const ir_func **out, pjrt_checks **checks) {
  const ir_region *body = &f->body;
  uint32_t count = 0;
  bool any = false; /* a check of no elements cannot fail and goes all the same */
  /* One inside of a loop or branch may run never or many times, which the verdict's fixed places cannot hold: it stays, and
   * is not made. */
  for (uint32_t i = 0; i < body->count; ++i) {
    any |= body->ops[i]->kind == IR_CHECK_INDEX;
    count += is_check(f, body->ops[i]);
  }
  pjrt_checks *c = pjrt_checks_new(body->arg_count, body->ops[body->count - 1]->operand_count, count);
  if (!c) return base_no_memory(sizeof *c);
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0, k = 0; i < body->count && status == TTPU_OK; ++i)
    if (is_check(f, body->ops[i])) status = fill_check(f, body->ops[i], &c->checks[k++]);
  if (status == TTPU_OK) status = find_rows(f, c);
  *out = f;
  if (status == TTPU_OK && any) status = add_verdict(f, arena, count, out);
  if (status == TTPU_OK) *checks = c;
  else pjrt_checks_free(c);
  return status;
}
