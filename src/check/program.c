#include "check/program.h"

#include <string.h>

size_t check_bytes(ir_type type) { return base_dtype_bytes((ttpu_dtype)type.dtype) * (size_t)ir_numel(type); }

void *check_fetch(pjrt_buffer *buffer, ir_type type) {
  size_t bytes = check_bytes(type);
  void *data = base_alloc(bytes + 1);
  if (!data) base_no_memory(bytes);
  else if (pjrt_buffer_to_host(buffer, data, bytes) != TTPU_OK) {
    base_free(data);
    data = NULL;
  }
  return data;
}

/* ---- what a function takes and gives ------------------------------------------------------------ */

static ttpu_status copy_types(base_arena *arena, const ir_func *f, uint32_t count, const ir_value *values,
                              ir_type **out) {
  *out = base_arena_alloc(arena, count * sizeof **out + 1);
  if (!*out) return base_no_memory(count * sizeof **out);
  for (uint32_t i = 0; i < count; ++i) {
    ir_type type = ir_type_of(f, values ? values[i] : f->body.first_arg + i);
    type.dims = base_arena_dup(arena, type.dims, type.rank * sizeof *type.dims);
    if (!type.dims) return base_no_memory(type.rank * sizeof *type.dims);
    (*out)[i] = type;
  }
  return TTPU_OK;
}

static bool channel_of(const ir_op *op, int64_t *channel) {
  bool numbered = op->kind == IR_SEND || op->kind == IR_RECV;
  *channel = numbered ? IR_ATTRS(op, transfer)->channel_id : 0;
  return numbered || op->kind == IR_INFEED || op->kind == IR_OUTFEED;
}

static ttpu_status note_channels(check_program *p, const ir_region *r) {
  for (uint32_t i = 0; i < r->count; ++i) {
    int64_t channel;
    bool is_new = channel_of(r->ops[i], &channel);
    for (uint32_t k = 0; is_new && k < p->channel_count; ++k) is_new = p->channels[k] != channel;
    if (is_new && !BASE_GROW(p->channels, p->channel_count, p->channel_capacity)) return base_no_memory(sizeof channel);
    if (is_new) p->channels[p->channel_count++] = channel;
    for (uint32_t k = 0; k < r->ops[i]->region_count; ++k) BASE_TRY(note_channels(p, r->ops[i]->regions[k]));
  }
  return TTPU_OK;
}

ttpu_status check_program_open(pjrt_client *client, const ir_func *f, check_program *p) {
  const ir_op *end = f->body.ops[f->body.count - 1];
  *p = (check_program){.client = client, .argument_count = f->body.arg_count, .result_count = end->operand_count};
  base_arena_init(&p->types);
  BASE_TRY(copy_types(&p->types, f, p->argument_count, NULL, &p->arguments));
  BASE_TRY(copy_types(&p->types, f, p->result_count, end->operands, &p->results));
  return note_channels(p, &f->body);
}

/* ---- running ---------------------------------------------------------------------------------------- */

ttpu_status check_program_compile(check_program *p, uint32_t first, uint32_t replicas, uint32_t partitions,
                                  base_arena *arena, ir_func *f) {
  p->first = first;
  p->chips = replicas * partitions;
  p->argument_buffers = base_calloc(p->chips * p->argument_count + 1, sizeof *p->argument_buffers);
  p->result_buffers = base_calloc(p->chips * p->result_count + 1, sizeof *p->result_buffers);
  if (!p->argument_buffers || !p->result_buffers) {
    base_arena_delete(arena);
    return base_no_memory(p->chips * (p->argument_count + p->result_count) * sizeof(void *));
  }
  if (p->chips > 1) return pjrt_compile_grid(p->client, replicas, partitions, arena, f, &p->executable);
  return pjrt_compile(p->client, pjrt_client_device(p->client, first), arena, f, &p->executable);
}

ttpu_status check_program_start(check_program *p, pjrt_mailbox *mailbox) {
  if (p->chips > 1 || mailbox)
    return pjrt_execute_grid(p->executable, p->argument_count, p->argument_buffers, p->result_buffers, mailbox);
  return pjrt_execute(p->executable, p->argument_count, p->argument_buffers, NULL, p->result_buffers, NULL, NULL);
}

ttpu_status check_program_await(check_program *p) {
  ttpu_status status = TTPU_OK;
  for (uint32_t i = 0; i < p->chips * p->result_count && status == TTPU_OK; ++i)
    status = pjrt_buffer_await(p->result_buffers[i]);
  return status;
}

void check_program_close(check_program *p) {
  for (uint32_t i = 0; p->argument_buffers && i < p->chips * p->argument_count; ++i)
    pjrt_buffer_free(p->argument_buffers[i]);
  for (uint32_t i = 0; p->result_buffers && i < p->chips * p->result_count; ++i) pjrt_buffer_free(p->result_buffers[i]);
  pjrt_executable_free(p->executable);
  base_free(p->argument_buffers);
  base_free(p->result_buffers);
  base_free(p->channels);
  base_arena_free(&p->types);
  *p = (check_program){0};
}
