/* One ATen call, pushed argument by argument through ctypes, then lowered by its row and run by the scalar reference.
 * oracle.py compiles and drives this; there is one call at a time, in static storage. */
#include <stdio.h>
#include <string.h>

#include "aten/aten.h"
#include "soft/soft_int.h"

enum { MOST = 4096, MOST_ARGS = 64 };

static aten_call call;
static aten_arg args[MOST_ARGS];
static aten_tensor tensors[MOST], outs[MOST];
static void *tensor_data[MOST], *out_data[MOST];
static int64_t sizes_store[64 * MOST], ints[MOST];
static uint32_t sizes_used, out_count;
static aten_number numbers[MOST];
static char text_store[MOST_ARGS][256];
static const char *texts[MOST_ARGS];
static uint64_t generator[2];
static char message[2048];
static aten_shape shapes[MOST];

void call_begin(const char *row) {
  memset(&call, 0, sizeof call);
  call.row = aten_row_find(row);
  call.args = args;
  call.tensors = tensors;
  call.ints = ints;
  call.numbers = numbers;
  call.texts = texts;
  out_count = sizes_used = 0;
}

static const int64_t *keep(int rank, const int64_t *numbers_in) {
  int64_t *copy = sizes_store + sizes_used;
  if (rank) memcpy(copy, numbers_in, (size_t)rank * sizeof *copy);
  sizes_used += (uint32_t)rank;
  return copy;
}

static aten_tensor describe(int dtype, int rank, const int64_t *sizes, const int64_t *strides, int flags) {
  return (aten_tensor){.dtype = (uint8_t)dtype,
                       .rank = (uint8_t)rank,
                       .flags = (uint8_t)flags,
                       .sizes = keep(rank, sizes),
                       .strides = keep(rank, strides)};
}

/* Each gives the index of what it pushed. `data`: dense, row-major. */
int call_tensor(int dtype, int rank, const int64_t *sizes, const int64_t *strides, int flags, void *data) {
  tensors[call.tensor_count] = describe(dtype, rank, sizes, strides, flags);
  tensor_data[call.tensor_count] = data;
  return (int)call.tensor_count++;
}
int call_int(int64_t value) {
  ints[call.int_count] = value;
  return (int)call.int_count++;
}
int call_number(int dtype, int64_t whole, double re, double im) {
  aten_number *n = &numbers[call.number_count];
  *n = (aten_number){.dtype = (ttpu_dtype)dtype, .value = {.i = whole}};
  if (dtype == TTPU_F64 || dtype == TTPU_C128) n->value = (base_scalar){.d = {re, im}};
  return (int)call.number_count++;
}
int call_text(const char *text) {
  snprintf(text_store[call.text_count], sizeof *text_store, "%s", text);
  texts[call.text_count] = text_store[call.text_count];
  return (int)call.text_count++;
}
void call_arg(int kind, int first, int count) {
  args[call.arg_count++] = (aten_arg){.kind = (uint8_t)kind, .first = (uint32_t)first, .count = (uint16_t)count};
}
void call_result(int dtype, int rank, const int64_t *sizes, const int64_t *strides, void *data) {
  outs[out_count] = describe(dtype, rank, sizes, strides, 0);
  out_data[out_count++] = data;
}
void call_seed(uint64_t seed, uint64_t offset) {
  generator[0] = seed;
  generator[1] = offset;
}

const char *row_name(int i) { return (uint32_t)i < aten_row_count ? aten_rows[i].name : NULL; }
int row_units(const char *name) { return (int)aten_row_find(name)->units; }
int row_flags(const char *name) { return (int)aten_row_find(name)->flags; }

/* ---- metadata ------------------------------------------------------------------------------------ */

/* -1: the row has no shape function; 0: it declined; 1: it answered. */
int call_shape(void) {
  if (!call.row->shape) return -1;
  memset(shapes, 0xee, 16 * sizeof *shapes);
  return call.row->shape(&call, shapes);
}
int shape_dtype(int i) { return shapes[i].dtype; }
int shape_rank(int i) { return shapes[i].rank; }
const int64_t *shape_sizes(int i) { return shapes[i].sizes; }
const int64_t *shape_strides(int i) { return shapes[i].strides; }

/* ---- values -------------------------------------------------------------------------------------- */

static ir_value operands[MOST], results[MOST], state;

static ir_value operand(aten_lowering *c, uint32_t tensor) {
  (void)c;
  return operands[tensor];
}
static ir_value number(aten_lowering *c, uint32_t i, ttpu_dtype dtype) {
  uint64_t bytes[2];
  base_scalar_store(dtype, bytes, base_scalar_convert(numbers[i].dtype, dtype, numbers[i].value));
  return ir_constant(c->b, ir_tensor(c->b, dtype, 0, NULL), (ir_data){bytes, true});
}
static ir_value bits(aten_lowering *c) {
  (void)c;
  return state;
}

static ttpu_status check_results(const ir_func *f) {
  for (uint32_t i = 0; i < out_count; ++i) {
    if (!results[i]) return base_fail(TTPU_INTERNAL, "result %u was not given", i);
    ir_type t = ir_type_of(f, results[i]), want = {outs[i].dtype, outs[i].rank, outs[i].sizes};
    if (!ir_type_equal(t, want)) return base_fail(TTPU_INTERNAL, "result %u has another type", i);
  }
  return TTPU_OK;
}

static ttpu_status run(base_arena *arena, bool print) {
  void *parameters[MOST];
  uint32_t count = 0;
  ir_func *f = ir_func_new(arena, "main");
  if (!f) return base_no_memory(0);
  ir_builder b = ir_builder_on(f);
  b.source = call.row->name;
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    if (tensors[i].flags & ATEN_UNDEFINED) continue;
    operands[i] = ir_param(&b, ir_tensor(&b, (ttpu_dtype)tensors[i].dtype, tensors[i].rank, tensors[i].sizes));
    parameters[count++] = tensor_data[i];
  }
  const int64_t two = 2;
  state = ir_param(&b, ir_tensor(&b, TTPU_U64, 1, &two));
  parameters[count++] = generator;
  memset(results, 0, sizeof results);
  aten_lowering c = {.b = &b,
                     .call = &call,
                     .outs = outs,
                     .out_count = out_count,
                     .results = results,
                     .operand = operand,
                     .number = number,
                     .random = bits,
                     .precision = IR_PRECISION_HIGHEST};
  call.row->lower(&c);
  if (b.status != TTPU_OK) return base_fail(b.status, "%s", b.message);
  BASE_TRY(check_results(f));
  ir_return(&b, out_count, results);
  BASE_TRY(ir_func_verify(f));
  if (print) {
    base_text text = {0};
    BASE_TRY(ir_func_print(f, &text));
    fprintf(stderr, "%s\n", text.data);
    base_text_free(&text);
  }
  return soft_reference_run(f, parameters, out_data);
}

int call_run(int print) {
  base_arena arena;
  base_arena_init(&arena);
  ttpu_status status = run(&arena, print);
  snprintf(message, sizeof message, "%s", status == TTPU_OK ? "" : base_message());
  base_arena_free(&arena);
  return (int)status;
}
const char *call_message(void) { return message; }
