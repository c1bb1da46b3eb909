/* Parallel runs of a test. Where all chips have the same function they run it as one program, and may meet in collectives;
 * functions that differ are a program each, and may send to each other. */
#include <stdio.h>
#include <string.h>

#include "check/program.h"

typedef struct source {
  const char *text;
  size_t length;
} source;

typedef struct party {
  source source;
  pjrt_client *client;
  ir_parallel *run;
  uint32_t chips, count; /* count: of programs, 1 or chips */
  check_program *programs;
  pjrt_mailbox *mailbox;
} party;

/* ---- programs ------------------------------------------------------------------------------------------ */

/* Reads and compiles the function `name`; for one chip, device number `first`, or for more of them. */
static ttpu_status make_program(const source *source, pjrt_client *client, const char *name, uint32_t first,
                                uint32_t replicas, uint32_t partitions, check_program *p) {
  ir_parse_options options = {.entry = name, .precision = IR_PRECISION_HIGHEST};
  base_arena *arena = base_arena_new();
  ir_func *f = NULL;
  if (!arena) return base_no_memory(sizeof *arena);
  ttpu_status status = ir_parse_with(arena, source->text, source->length, &options, &f);
  if (status == TTPU_OK) status = check_program_open(client, f, p);
  if (status == TTPU_OK) return check_program_compile(p, first, replicas, partitions, arena, f);
  base_arena_delete(arena);
  return status;
}

static ttpu_status make_programs(party *p) {
  const ir_parallel *run = p->run;
  bool same = true;
  for (uint32_t i = 1; i < p->chips; ++i) same = same && strcmp(run->programs[i], run->programs[0]) == 0;
  p->count = same ? 1 : p->chips;
  p->programs = base_calloc(p->count, sizeof *p->programs);
  if (!p->programs) return base_no_memory(p->count * sizeof *p->programs);
  for (uint32_t i = 0; i < p->count; ++i)
    BASE_TRY(make_program(&p->source, p->client, run->programs[i], i, same ? run->replicas : 1,
                          same ? run->partitions : 1, &p->programs[i]));
  return TTPU_OK;
}

static ttpu_status check_counts(const party *p) {
  uint64_t arguments = 0, results = 0;
  for (uint32_t i = 0; i < p->count; ++i) {
    arguments += (uint64_t)p->programs[i].chips * p->programs[i].argument_count;
    results += (uint64_t)p->programs[i].chips * p->programs[i].result_count;
  }
  if (arguments != p->run->operand_count || results != p->run->result_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "%u operands and %u results for programs that take %llu and give %llu",
                     p->run->operand_count, p->run->result_count, (unsigned long long)arguments,
                     (unsigned long long)results);
  return TTPU_OK;
}

/* The operands go to their chips. */
static ttpu_status give_arguments(party *p, pjrt_buffer *const *operands) {
  for (uint32_t i = 0; i < p->count; ++i) {
    check_program *program = &p->programs[i];
    for (uint32_t k = 0; k < program->chips * program->argument_count; ++k) {
      pjrt_device *device = pjrt_client_device(p->client, program->first + k / program->argument_count);
      BASE_TRY(pjrt_buffer_copy_to_device(*operands++, device, &program->argument_buffers[k]));
    }
  }
  return TTPU_OK;
}

/* ---- the host's side -------------------------------------------------------------------------------------- */

/* Runs the function of an infeed, and puts what it gives on channel 0. */
static ttpu_status feed(party *p, const char *name) {
  check_program program = {0};
  ttpu_status status = make_program(&p->source, p->client, name, 0, 1, 1, &program);
  if (status == TTPU_OK && (program.argument_count || program.result_count != 1))
    status = base_fail(TTPU_INVALID_ARGUMENT, "@%s feeds the chips: it is to take nothing and to give one array", name);
  if (status == TTPU_OK) status = check_program_start(&program, NULL);
  void *bytes = status == TTPU_OK ? check_fetch(program.result_buffers[0], program.results[0]) : NULL;
  if (status == TTPU_OK && !bytes) status = TTPU_UNKNOWN; /* with the message set */
  if (status == TTPU_OK) status = pjrt_mailbox_put(p->mailbox, 0, bytes, check_bytes(program.results[0]));
  base_free(bytes);
  check_program_close(&program);
  return status;
}

static ttpu_status open_mailbox(party *p) {
  uint32_t count = 0, capacity = 0;
  int64_t *channels = NULL;
  for (uint32_t i = 0; i < p->count; ++i)
    for (uint32_t k = 0; k < p->programs[i].channel_count; ++k) {
      if (!BASE_GROW(channels, count, capacity)) {
        base_free(channels);
        return base_no_memory(sizeof *channels);
      }
      channels[count++] = p->programs[i].channels[k]; /* twice does no harm: the first one is found */
    }
  ttpu_status status = TTPU_OK;
  if (count || p->run->infeed_count) status = pjrt_mailbox_new(p->client, p->chips, count, channels, &p->mailbox);
  base_free(channels);
  for (uint32_t i = 0; i < p->run->infeed_count && status == TTPU_OK; ++i) status = feed(p, p->run->infeed[i]);
  return status;
}

/* ---- running ---------------------------------------------------------------------------------------------- */

/* All start before anybody is waited for; of the failures the first that explains itself is told. */
static ttpu_status start_and_await(party *p) {
  ttpu_status status = TTPU_OK;
  char message[512] = "";
  uint32_t started = 0;
  while (started < p->count && status == TTPU_OK) {
    status = check_program_start(&p->programs[started], p->mailbox);
    if (status == TTPU_OK) ++started;
  }
  snprintf(message, sizeof message, "%s", base_message());
  for (uint32_t i = started; p->mailbox && i < p->count; ++i) pjrt_mailbox_end(p->mailbox, p->programs[i].chips);
  for (uint32_t i = 0; i < started; ++i) {
    ttpu_status one = check_program_await(&p->programs[i]);
    if (one == TTPU_OK || (status != TTPU_OK && (status != TTPU_CANCELLED || one == TTPU_CANCELLED))) continue;
    status = one;
    snprintf(message, sizeof message, "%s", base_message());
  }
  return status == TTPU_OK ? status : base_fail(status, "%s", message);
}

static ttpu_status take_results(party *p, base_arena *kept) {
  ir_parallel *run = p->run;
  void **results = base_arena_zalloc(kept, (run->result_count + 1) * sizeof *results);
  if (!results) return base_no_memory(run->result_count * sizeof *results);
  uint32_t at = 0;
  for (uint32_t i = 0; i < p->count; ++i) {
    const check_program *program = &p->programs[i];
    for (uint32_t k = 0; k < program->chips * program->result_count; ++k, ++at) {
      ir_type type = program->results[k % program->result_count];
      if (!ir_type_equal(type, run->types[at]))
        return base_fail(TTPU_INVALID_ARGUMENT, "result %u is no %s of %u dimensions, as it is written", at,
                         base_dtypes[run->types[at].dtype].hlo_name, run->types[at].rank);
      void *bytes = check_fetch(program->result_buffers[k], type);
      if (!bytes) return TTPU_UNKNOWN;
      results[at] = base_arena_dup(kept, bytes, check_bytes(type));
      base_free(bytes);
      if (!results[at]) return base_no_memory(check_bytes(type));
    }
  }
  run->results = results;
  return TTPU_OK;
}

ttpu_status check_run_parallel(pjrt_client *client, const char *text, size_t length, ir_parallel *run,
                               pjrt_buffer *const *operands, base_arena *kept) {
  party p = {.source = {text, length}, .client = client, .run = run, .chips = run->replicas * run->partitions};
  uint32_t there = pjrt_client_device_count(client);
  if (p.chips > there)
    return base_fail(TTPU_INVALID_ARGUMENT, "a run on %u chips, there are %u; TTPU_TOPOLOGY=v5e:2x4 has 8", p.chips,
                     there);
  ttpu_status status = make_programs(&p);
  if (status == TTPU_OK) status = check_counts(&p);
  if (status == TTPU_OK) status = give_arguments(&p, operands);
  if (status == TTPU_OK) status = open_mailbox(&p);
  if (status == TTPU_OK) status = start_and_await(&p);
  if (status == TTPU_OK) status = take_results(&p, kept);
  for (uint32_t i = 0; p.programs && i < p.count; ++i) check_program_close(&p.programs[i]);
  base_free(p.programs);
  pjrt_mailbox_free(p.mailbox);
  return status;
}
