/* Programs that run on several devices at once, and that talk to the host. */
#include "pjrt/pjrt_int.h"

ttpu_status pjrt_compile_grid(pjrt_client *c, uint32_t replicas, uint32_t partitions, base_arena *arena, ir_func *f,
                              pjrt_executable **out) {
  uint64_t chips = (uint64_t)replicas * partitions;
  if (chips >= 1 && chips <= c->device_count)
    return pjrt_compile_on(c, &c->devices[0], replicas, partitions, arena, f, out);
  base_arena_delete(arena);
  return base_fail(TTPU_INVALID_ARGUMENT, "the program wants %llu devices, there are %u; TTPU_TOPOLOGY=v5e:2x4 has 8",
                   (unsigned long long)chips, c->device_count);
}

/* Pointers to the buffers of all chips, chip by chip. */
typedef struct grid_call {
  PJRT_Buffer **arguments, **results;
  PJRT_Buffer *const **argument_lists;
  PJRT_Buffer ***result_lists;
  PJRT_Event **events;
  PJRT_SendCallbackInfo **sends;
  PJRT_RecvCallbackInfo **receives;
  int64_t *kept;
} grid_call;

static void free_call(grid_call *g) {
  base_free(g->arguments);
  base_free(g->results);
  base_free(g->argument_lists);
  base_free(g->result_lists);
  base_free(g->events);
  base_free(g->sends);
  base_free(g->receives);
  base_free(g->kept);
}

static ttpu_status make_call(grid_call *g, uint32_t chips, uint32_t count, uint32_t outputs) {
  *g = (grid_call){.arguments = base_calloc(chips * count + 1, sizeof *g->arguments),
                   .results = base_calloc(chips * outputs + 1, sizeof *g->results),
                   .argument_lists = base_calloc(chips, sizeof *g->argument_lists),
                   .result_lists = base_calloc(chips, sizeof *g->result_lists),
                   .events = base_calloc(chips, sizeof *g->events),
                   .sends = base_calloc(chips, sizeof *g->sends),
                   .receives = base_calloc(chips, sizeof *g->receives),
                   .kept = base_calloc(count + 1, sizeof *g->kept)};
  if (g->kept && g->arguments && g->results && g->argument_lists && g->result_lists && g->events && g->sends &&
      g->receives)
    return TTPU_OK;
  free_call(g);
  return base_no_memory(chips * (count + outputs) * sizeof(void *));
}

static ttpu_status make_outputs(const pjrt_executable *e, pjrt_buffer **outputs) {
  for (uint32_t i = 0; i < e->chips * e->output_count; ++i) {
    const pjrt_output *o = &e->outputs[i % e->output_count];
    pjrt_device *d = e->chips == 1 ? e->device : &e->device->client->devices[i / e->output_count];
    outputs[i] = pjrt_buffer_new(d, o->dtype, o->bytes);
    if (!outputs[i]) return base_no_memory(sizeof *outputs[i]);
  }
  return TTPU_OK;
}

/* Where a run finds its arguments, its callbacks and room for its results. */
static void fill_call(grid_call *g, const pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments,
                      pjrt_mailbox *mailbox, PJRT_ExecuteOptions *options) {
  for (uint32_t i = 0; i < e->chips * count; ++i) g->arguments[i] = arguments[i]->buffer;
  for (uint32_t i = 0; i < count; ++i) g->kept[i] = i; /* nothing is donated */
  options->non_donatable_input_indices = g->kept;
  options->num_non_donatable_input_indices = count;
  for (uint32_t i = 0; i < e->chips; ++i) {
    g->argument_lists[i] = g->arguments + i * count;
    g->result_lists[i] = g->results + i * e->output_count;
    if (!mailbox) continue;
    g->sends[i] = pjrt_mailbox_sends(mailbox, &options->num_send_ops);
    g->receives[i] = pjrt_mailbox_receives(mailbox, &options->num_recv_ops);
    options->send_callbacks = g->sends;
    options->recv_callbacks = g->receives;
  }
}

ttpu_status pjrt_execute_grid(pjrt_executable *e, uint32_t count, pjrt_buffer *const *arguments, pjrt_buffer **outputs,
                              pjrt_mailbox *mailbox) {
  const pjrt_client *c = e->device->client;
  grid_call g;
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  memset(outputs, 0, e->chips * e->output_count * sizeof *outputs);
  if (e->checks && e->checks->count)
    return base_fail(TTPU_UNIMPLEMENTED, "a program that checks indices, on several devices or with transfers");
  BASE_TRY(make_call(&g, e->chips, count, e->output_count));
  ttpu_status status = make_outputs(e, outputs);
  if (status == TTPU_OK) {
    fill_call(&g, e, count, arguments, mailbox, &options);
    PJRT_LoadedExecutable_Execute_Args execute = ARGS(
        LoadedExecutable_Execute, .executable = e->loaded, .options = &options, .argument_lists = g.argument_lists,
        .num_devices = e->chips, .num_args = count, .output_lists = g.result_lists, .device_complete_events = g.events);
    status = CALL(c, LoadedExecutable_Execute, &execute);
  }
  for (uint32_t i = 0; i < e->chips * e->output_count; ++i) {
    if (status == TTPU_OK) outputs[i]->buffer = g.results[i];
    else pjrt_buffer_free(outputs[i]), outputs[i] = NULL;
  }
  for (uint32_t i = 0; status == TTPU_OK && i < e->chips; ++i) {
    if (mailbox) pjrt_mailbox_enter(mailbox);
    if (mailbox) pjrt_event_call(c, g.events[i], pjrt_mailbox_leave, mailbox);
    else pjrt_event_free(c, g.events[i]);
  }
  free_call(&g);
  return status;
}
