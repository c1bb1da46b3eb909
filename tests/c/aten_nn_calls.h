/* Calls of lowerings for tests: arguments one after the other in the schema's order, results by type, then
 *
 *   call_begin(&c, "mm");
 *   call_tensor(&c, TTPU_F32, 2, (int64_t[]){2, 3}, values);     (values NULL: only the metadata matters)
 *   call_tensor(&c, TTPU_F32, 2, (int64_t[]){3, 2}, more);
 *   call_result(&c, TTPU_F32, 2, (int64_t[]){2, 2});
 *   call_expect(&c, 0, wanted, 1e-6);                            (run by the software TPU's scalar reference)
 *   call_end(&c);
 */
#ifndef TTPU_ATEN_NN_CALLS_H
#define TTPU_ATEN_NN_CALLS_H

#include "aten/aten.h"
#include "check.h"
#include "soft/soft_int.h"

enum { CALL_MOST = 24 };

typedef struct call {
  aten_call call;
  aten_arg args[CALL_MOST];
  aten_tensor tensors[CALL_MOST], outs[CALL_MOST];
  uint8_t *data[CALL_MOST]; /* dense row-major, by tensor */
  int64_t sizes[2 * CALL_MOST][TTPU_MAX_RANK], strides[2 * CALL_MOST][TTPU_MAX_RANK], ints[8 * CALL_MOST];
  aten_number numbers[CALL_MOST];
  const char *texts[CALL_MOST];
  uint32_t out_count;
  /* of a build */
  base_arena arena;
  ir_func *func;
  ir_value operands[CALL_MOST], results[CALL_MOST], state;
  uint8_t *got[CALL_MOST]; /* by result, once run */
  bool ran;
} call;

static void call_begin(call *c, const char *name) {
  memset(c, 0, sizeof *c);
  c->call.row = aten_row_find(name);
  if (!c->call.row) check_fail(__FILE__, __LINE__, "no row %s", name);
  c->call.args = c->args;
  c->call.tensors = c->tensors;
  c->call.ints = c->ints;
  c->call.numbers = c->numbers;
  c->call.texts = c->texts;
}

static aten_arg *call_arg_of(call *c, aten_kind kind, uint32_t first, uint32_t count) {
  aten_arg *a = &c->args[c->call.arg_count++];
  *a = (aten_arg){.kind = (uint8_t)kind, .first = first, .count = (uint16_t)count};
  return a;
}

static void call_metadata(call *c, aten_tensor *t, uint32_t slot, ttpu_dtype dtype, uint32_t rank,
                          const int64_t *sizes) {
  for (uint32_t i = 0; i < rank; ++i) c->sizes[slot][i] = sizes[i];
  base_row_major(rank, c->sizes[slot], c->strides[slot]);
  *t = (aten_tensor){
      .dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .sizes = c->sizes[slot], .strides = c->strides[slot]};
}

/* One tensor more, without an argument: of a list. */
__attribute__((unused)) static void call_element(call *c, ttpu_dtype dtype, uint32_t rank, const int64_t *sizes,
                                                 const double *values) {
  uint32_t i = c->call.tensor_count++;
  call_metadata(c, &c->tensors[i], i, dtype, rank, sizes);
  int64_t n = base_numel(rank, sizes);
  size_t bytes = base_dtype_bytes(dtype);
  c->data[i] = calloc((size_t)n + 1, bytes);
  for (int64_t k = 0; values && k < n; ++k)
    base_scalar_store(dtype, c->data[i] + (size_t)k * bytes,
                      base_scalar_convert(TTPU_F64, dtype, (base_scalar){.d = {values[k], 0}}));
}

__attribute__((unused)) static void call_tensor(call *c, ttpu_dtype dtype, uint32_t rank, const int64_t *sizes,
                                                const double *values) {
  call_arg_of(c, ATEN_TENSOR, c->call.tensor_count, 0);
  call_element(c, dtype, rank, sizes, values);
}

/* The next `count` elements are a list. */
__attribute__((unused)) static void call_list(call *c, uint32_t count) {
  call_arg_of(c, ATEN_TENSORS, c->call.tensor_count, count);
}
__attribute__((unused)) static void call_undefined(call *c) {
  c->tensors[c->call.tensor_count++] = (aten_tensor){.flags = ATEN_UNDEFINED};
}
__attribute__((unused)) static void call_none(call *c) { call_arg_of(c, ATEN_NONE, 0, 0); }
__attribute__((unused)) static void call_int(call *c, int64_t v) {
  call_arg_of(c, ATEN_INT, c->call.int_count, 0);
  c->ints[c->call.int_count++] = v;
}
__attribute__((unused)) static void call_ints(call *c, uint32_t count, const int64_t *v) {
  call_arg_of(c, ATEN_INTS, c->call.int_count, count);
  for (uint32_t i = 0; i < count; ++i) c->ints[c->call.int_count++] = v[i];
}
__attribute__((unused)) static void call_scalar(call *c, double v) {
  call_arg_of(c, ATEN_SCALAR, c->call.number_count, 0);
  c->numbers[c->call.number_count++] = (aten_number){.dtype = TTPU_F64, .value = {.d = {v, 0}}};
}
__attribute__((unused)) static void call_float(call *c, double v) {
  call_scalar(c, v);
  c->args[c->call.arg_count - 1].kind = ATEN_FLOAT;
}
__attribute__((unused)) static void call_text(call *c, const char *v) {
  call_arg_of(c, ATEN_TEXT, c->call.text_count, 0);
  c->texts[c->call.text_count++] = v;
}
__attribute__((unused)) static void call_result(call *c, ttpu_dtype dtype, uint32_t rank, const int64_t *sizes) {
  uint32_t i = c->out_count++;
  call_metadata(c, &c->outs[i], CALL_MOST + i, dtype, rank, sizes);
}

static ir_value call_operand(aten_lowering *l, uint32_t tensor) { return ((call *)l->context)->operands[tensor]; }
static ir_value call_random(aten_lowering *l) { return ((call *)l->context)->state; }
static ir_value call_number(aten_lowering *l, uint32_t number, ttpu_dtype dtype) {
  uint64_t bytes[2];
  const aten_number *n = &l->call->numbers[number];
  base_scalar_store(dtype, bytes, base_scalar_convert(n->dtype, dtype, n->value));
  return ir_constant(l->b, ir_tensor(l->b, dtype, 0, NULL), (ir_data){.bytes = bytes});
}

/* Lowers into c->func: parameters are the tensors, in order, then the generator's state for rows that draw. */
__attribute__((unused)) static ttpu_status call_build(void *context) {
  call *c = context;
  base_arena_init(&c->arena);
  c->func = ir_func_new(&c->arena, "main");
  if (!c->func) return base_no_memory(0);
  ir_builder b = ir_builder_on(c->func);
  b.source = c->call.row->name;
  memset(c->results, 0, sizeof c->results);
  for (uint32_t i = 0; i < c->call.tensor_count; ++i)
    if (!(c->tensors[i].flags & ATEN_UNDEFINED))
      c->operands[i] =
          ir_param(&b, ir_tensor(&b, (ttpu_dtype)c->tensors[i].dtype, c->tensors[i].rank, c->tensors[i].sizes));
  if (c->call.row->flags & ATEN_RNG) c->state = ir_param(&b, ir_tensor(&b, TTPU_U64, 1, (int64_t[]){2}));
  aten_lowering l = {.b = &b,
                     .call = &c->call,
                     .outs = c->outs,
                     .out_count = c->out_count,
                     .results = c->results,
                     .operand = call_operand,
                     .number = call_number,
                     .random = call_random,
                     .precision = IR_PRECISION_HIGHEST,
                     .context = c};
  c->call.row->lower(&l);
  ir_value returned[CALL_MOST];
  uint32_t count = 0;
  for (uint32_t i = 0; i < c->out_count; ++i)
    if (c->results[i]) returned[count++] = c->results[i];
  ir_return(&b, count, returned);
  if (b.status != TTPU_OK) return base_fail(b.status, "%s", b.message);
  return ir_func_verify(c->func);
}

/* Builds, checks the results' types, runs. */
__attribute__((unused)) static bool call_run(call *c) {
  if (c->ran || !CHECK_OK(call_build(c))) return c->ran;
  void *arguments[CALL_MOST], *results[CALL_MOST];
  uint32_t argument_count = 0, result_count = 0;
  for (uint32_t k = 0; k < c->call.tensor_count; ++k)
    if (!(c->tensors[k].flags & ATEN_UNDEFINED)) arguments[argument_count++] = c->data[k];
  for (uint32_t k = 0; k < c->out_count; ++k) {
    ir_type t = ir_type_of(c->func, c->results[k]);
    if (!CHECK(c->results[k] != 0) || !CHECK_EQ(t.dtype, c->outs[k].dtype) || !CHECK_EQ(t.rank, c->outs[k].rank))
      return false;
    for (uint32_t i = 0; i < t.rank; ++i) CHECK_EQ(t.dims[i], c->outs[k].sizes[i]);
    c->got[k] = calloc((size_t)ir_numel(t) + 1, base_dtype_bytes((ttpu_dtype)t.dtype));
    results[result_count++] = c->got[k];
  }
  return c->ran = CHECK_OK(soft_reference_run(c->func, arguments, results));
}

/* Element k of result i, as a double. */
__attribute__((unused)) static double call_value(call *c, uint32_t i, int64_t k) {
  if (!call_run(c)) return NAN;
  ttpu_dtype t = (ttpu_dtype)c->outs[i].dtype;
  return base_scalar_convert(t, TTPU_F64, base_scalar_load(t, c->got[i] + (size_t)k * base_dtype_bytes(t))).d[0];
}

__attribute__((unused)) static void call_expect(call *c, uint32_t i, const double *want, double tolerance) {
  int64_t n = base_numel(c->outs[i].rank, c->outs[i].sizes);
  if (!call_run(c)) return;
  for (int64_t k = 0; k < n; ++k) CHECK_NEAR(call_value(c, i, k), want[k], tolerance);
}

static void call_end(call *c) {
  for (uint32_t i = 0; i < CALL_MOST; ++i) {
    free(c->data[i]);
    free(c->got[i]);
  }
  base_arena_free(&c->arena);
}

#endif
