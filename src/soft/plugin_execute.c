/* Execution. */
#include <stdio.h>

#include "soft/plugin_int.h"

struct PJRT_ExecuteContext {
  char nothing;
};

PJRT_Error *plugin_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args) {
  PLUGIN_ARGS(ExecuteContext_Create, context);
  args->context = base_alloc(sizeof *args->context);
  return args->context ? NULL : plugin_error(base_no_memory(sizeof *args->context));
}

PJRT_Error *plugin_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args) {
  PLUGIN_ARGS(ExecuteContext_Destroy, context);
  base_free(args->context);
  return NULL;
}

/* ---- execution --------------------------------------------------------------------------------------------- */

/* One run on one device: a job with its arrays behind it. The results share its promise, but have their own where the
 * program checks indices or an argument may be lost to such a check. A linked program's jobs share a run, in which they
 * meet. */
typedef struct execute_job {
  soft_job job;
  soft_done *done;
  soft_program *program;
  soft_hbm *hbm;
  link_run *run;                     /* NULL: not linked, or left */
  plugin_host *host;                 /* NULL: it needs none */
  uint32_t number;                   /* the chip's in the run */
  soft_value **arguments, **results; /* a reference of each; one array */
  soft_block **blocks;               /* of the arguments, then of the results */
  soft_done **promises;              /* a partial job's: of the lost arguments, then of the results; one array */
  bool *donated, *lost;
  bool partial, has_lost;
} execute_job;

static void job_release(execute_job *j) {
  for (uint32_t i = 0; i < j->program->parameters + j->program->outputs; ++i) { /* results lie behind arguments */
    plugin_value_free(j->arguments[i]);
    j->arguments[i] = NULL;
  }
}

static void job_free(execute_job *j) {
  if (j->run) link_abandon(j->run, j->number, base_fail(TTPU_CANCELLED, "the execution was not started"));
  job_release(j);
  soft_done_free(j->done);
  plugin_host_free(j->host);
  plugin_program_free(j->program);
  base_free(j);
}

static ttpu_status job_new(soft_program *p, PJRT_Device *d, execute_job **out) {
  size_t pointers = 3 * ((size_t)p->parameters + p->outputs);
  execute_job *j = base_calloc(1, sizeof *j + pointers * sizeof(void *) + 2 * p->parameters);
  if (!j) return base_no_memory(sizeof *j + pointers * sizeof(void *));
  j->arguments = (soft_value **)(j + 1);
  j->results = j->arguments + p->parameters;
  j->blocks = (soft_block **)(j->results + p->outputs);
  j->promises = (soft_done **)(j->blocks + p->parameters + p->outputs);
  j->donated = (bool *)(j->promises + p->parameters + p->outputs);
  j->lost = j->donated + p->parameters;
  j->partial = p->partial;
  j->program = plugin_program_share(p);
  j->hbm = d->memories[MEMORY_DEVICE].hbm;
  j->job.cost = p->cost;
  j->done = soft_done_new(d->queue);
  *out = j;
  if (j->done) return TTPU_OK;
  job_free(j);
  return base_no_memory(sizeof *j->done);
}

/* The first failure among the arguments, with its message set; in a partial job they are only marked as lost. */
static ttpu_status await_arguments(execute_job *j) {
  for (uint32_t i = 0; i < j->program->parameters; ++i) {
    ttpu_status status = soft_done_await(j->arguments[i]->done);
    if (status == TTPU_OK) continue;
    if (!j->partial) return status;
    j->lost[i] = j->has_lost = true;
  }
  return TTPU_OK;
}

/* Blocks of ready arguments. A donated one gives its reference away: the value's own if nobody else holds the
 * value, so that the count is 1 and the block may be overwritten, else a new one. */
static void gather_blocks(execute_job *j) {
  for (uint32_t i = 0; i < j->program->parameters; ++i) {
    soft_value *v = j->arguments[i];
    j->blocks[i] = v->block;
    if (!j->donated[i] || j->lost[i]) continue; /* a lost one has no block */
    if (atomic_load_explicit(&v->refs, memory_order_acquire) == 1) v->block = NULL;
    else soft_block_share(v->block);
  }
}

static ttpu_status run_ready(execute_job *j, soft_damage *damage) {
  soft_program *p = j->program;
  gather_blocks(j);
  if (j->has_lost) damage->lost = j->lost;
  soft_block **results = j->blocks + p->parameters;
  BASE_TRY(soft_execute(p->executable, j->hbm, j->blocks, j->donated, results, j->partial ? damage : NULL));
  for (uint32_t i = 0; i < p->outputs; ++i) j->results[i]->block = results[i];
  return TTPU_OK;
}

static ttpu_status run_program(execute_job *j, soft_damage *damage) {
  link_chip chip;
  if (j->run) link_enter(&chip, j->run, j->number);
  if (j->host) soft_host_enter(plugin_host_base(j->host));
  ttpu_status status = await_arguments(j);
  if (status == TTPU_OK) status = run_ready(j, damage);
  if (j->host) soft_host_leave(plugin_host_base(j->host));
  if (j->run) link_leave(&chip, status);
  j->run = NULL;
  return status;
}

/* Keeps result i's promise: what it depends on has gone well, or is a lost argument or a failed check. */
static void keep_promise(execute_job *j, uint32_t i, const soft_damage *damage) {
  uint32_t cause = damage->causes[i], parameters = j->program->parameters;
  soft_done *promise = j->promises[parameters + i];
  if (cause == 0) {
    soft_done_set(promise, TTPU_OK, NULL);
  } else if (cause <= parameters) {
    const soft_done *lost = j->promises[cause - 1];
    soft_done_set(promise, lost->status, lost->message);
  } else {
    const soft_failed_check *check = &damage->checks[cause - 1 - parameters];
    soft_done_set(promise, check->status, check->message);
  }
}

/* The promise of the execution as a whole fails with its first failure. */
static void keep_whole(execute_job *j, const soft_damage *damage) {
  if (damage->check_count > 0) return soft_done_set(j->done, damage->checks[0].status, damage->checks[0].message);
  for (uint32_t i = 0; j->has_lost && i < j->program->parameters; ++i)
    if (j->lost[i]) return soft_done_set(j->done, j->promises[i]->status, j->promises[i]->message);
  soft_done_set(j->done, TTPU_OK, NULL);
}

static void run_partial(execute_job *j) {
  const soft_program *p = j->program;
  soft_damage damage = {.causes = base_calloc(p->outputs + 1u, sizeof(uint32_t))};
  ttpu_status status = damage.causes ? run_program(j, &damage) : base_no_memory(p->outputs * sizeof(uint32_t));
  char message[1024]; /* callbacks of one promise may set this thread's own */
  snprintf(message, sizeof message, "%s", status == TTPU_OK ? "" : base_message());
  for (uint32_t i = 0; i < p->parameters; ++i)
    if (j->lost[i]) j->promises[i] = soft_done_share(j->arguments[i]->done);
  for (uint32_t i = 0; i < p->outputs; ++i) j->promises[p->parameters + i] = soft_done_share(j->results[i]->done);
  job_release(j);
  for (uint32_t i = 0; i < p->outputs; ++i) {
    if (status == TTPU_OK) keep_promise(j, i, &damage);
    else soft_done_set(j->promises[p->parameters + i], status, message);
  }
  if (status == TTPU_OK) keep_whole(j, &damage);
  else soft_done_set(j->done, status, message);
  for (uint32_t i = 0; i < p->parameters + p->outputs; ++i) soft_done_free(j->promises[i]);
  soft_damage_free(&damage);
  base_free(damage.causes);
}

static void run_execute(soft_job *job) {
  execute_job *j = (execute_job *)job;
  soft_damage none = {0};
  if (j->partial) {
    run_partial(j);
  } else {
    ttpu_status status = run_program(j, &none);
    /* Our references end before the promise is kept: who waits for it then finds the memory free. */
    job_release(j);
    soft_done_set(j->done, status, status == TTPU_OK ? NULL : base_message());
  }
  job_free(j);
}

static ttpu_status fail_argument(uint32_t index, const PJRT_Buffer *b, ir_type want) {
  char text[2][256];
  const uint32_t ranks[2] = {b->rank, want.rank};
  const int64_t *dims[2] = {b->dims, want.dims};
  const char *names[2] = {base_dtypes[b->dtype].hlo_name, base_dtypes[want.dtype].hlo_name};
  for (int k = 0; k < 2; ++k) {
    size_t n = 0;
    for (uint32_t d = 0; d < ranks[k] && n < sizeof text[k] - 32; ++d)
      n += (size_t)snprintf(text[k] + n, sizeof text[k] - n, "%lldx", (long long)dims[k][d]);
    snprintf(text[k] + n, sizeof text[k] - n, "%s", names[k]);
  }
  return base_fail(TTPU_INVALID_ARGUMENT, "argument %u is tensor<%s>, the program takes tensor<%s>", index, text[0],
                   text[1]);
}

static ttpu_status set_argument(execute_job *j, uint32_t i, PJRT_Buffer *b, PJRT_Device *d) {
  ir_type want = plugin_parameter_type(j->program, i);
  bool same = b->dtype == want.dtype && b->rank == want.rank;
  for (uint32_t k = 0; same && k < want.rank; ++k) same = b->dims[k] == want.dims[k];
  if (!same && want.dtype != TTPU_TOKEN) return fail_argument(i, b, want); /* for a token JAX passes an empty array */
  if (b->memory->device != d)
    return base_fail(TTPU_INVALID_ARGUMENT, "argument %u is on %s, the program runs on %s", i,
                     b->memory->device->description->text, d->description->text);
  if (plugin_buffer_value(b, "execute", &j->arguments[i]) != TTPU_OK)
    return base_fail(TTPU_INVALID_ARGUMENT, "argument %u was deleted or donated", i);
  soft_done *done = j->arguments[i]->done;
  if (done->partial && !j->program->linked && !(soft_done_is_ready(done) && done->status == TTPU_OK)) j->partial = true;
  return TTPU_OK;
}

static void set_donated(execute_job *j, const PJRT_ExecuteOptions *o) {
  const bool *donate = j->program->func->donate;
  if (!donate) return;
  memcpy(j->donated, donate, j->program->parameters);
  if (!o || !PJRT_HAS(o, num_non_donatable_input_indices)) return;
  for (size_t i = 0; i < o->num_non_donatable_input_indices; ++i) {
    int64_t index = o->non_donatable_input_indices[i];
    if (index >= 0 && index < j->program->parameters) j->donated[index] = false;
  }
}

/* Everything that can fail at the call, for one device: the job, and the handles of its results. */
static ttpu_status prepare(soft_program *p, PJRT_Device *d, PJRT_Buffer *const *arguments,
                           const PJRT_ExecuteOptions *options, PJRT_Buffer **results, execute_job **out) {
  execute_job *j = NULL;
  BASE_TRY(job_new(p, d, &j));
  ttpu_status status = TTPU_OK;
  uint32_t made = 0;
  for (uint32_t i = 0; i < p->parameters && status == TTPU_OK; ++i) status = set_argument(j, i, arguments[i], d);
  for (; made < p->outputs && status == TTPU_OK; ++made) {
    ir_type t = plugin_output_type(p, made);
    soft_done *done = j->partial ? soft_done_new(d->queue) : soft_done_share(j->done);
    if (done && j->partial) done->partial = true;
    soft_value *v = done ? plugin_value_new((ttpu_dtype)t.dtype, t.rank, t.dims, done) : NULL;
    if (!v) soft_done_free(done);
    results[made] = v ? plugin_buffer_new(&d->memories[MEMORY_DEVICE], v) : NULL;
    j->results[made] = v;
    if (results[made]) plugin_value_share(v);
    else status = base_no_memory(sizeof *v);
  }
  if (status == TTPU_OK) {
    set_donated(j, options);
    j->job.run = run_execute;
    *out = j;
    return TTPU_OK;
  }
  for (uint32_t i = 0; i < made; ++i) {
    if (!results[i]) continue;
    plugin_value_free(results[i]->value);
    base_free(results[i]);
    results[i] = NULL;
  }
  job_free(j);
  return status;
}

/* Donated handles are deleted before the job can run, so that it finds itself alone with their values. */
static ttpu_status launch(execute_job *j, PJRT_Device *d, PJRT_Buffer *const *arguments) {
  for (uint32_t i = 0; i < j->program->parameters; ++i)
    if (j->donated[i]) plugin_value_free(plugin_buffer_take(arguments[i]));
  ttpu_status status = soft_queue_push(d->queue, &j->job);
  if (status != TTPU_OK) { /* only after a fork */
    if (j->partial)
      for (uint32_t i = 0; i < j->program->outputs; ++i) soft_done_set(j->results[i]->done, status, base_message());
    soft_done_set(j->done, status, base_message());
    job_free(j);
  }
  return status;
}

/* One run for the jobs of all chips. */
static ttpu_status link_jobs(const soft_program *p, uint32_t count, execute_job *const *jobs) {
  link_run *run;
  BASE_TRY(link_run_new((link_grid){p->replicas, p->partitions}, &run));
  for (uint32_t i = 0; i < count; ++i) {
    jobs[i]->run = run;
    jobs[i]->number = i;
  }
  return TTPU_OK;
}

PJRT_Error *plugin_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  PLUGIN_ARGS(LoadedExecutable_Execute, device_complete_events);
  PJRT_LoadedExecutable *e = args->executable;
  soft_program *p;
  PLUGIN_TRY(plugin_loaded_program(e, &p));
  if (soft_forked()) return plugin_error(soft_fail_forked());
  PJRT_Device *only = PJRT_HAS(args, execute_device) ? args->execute_device : NULL;
  if (args->num_devices != e->count || (only && e->count != 1))
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "the program runs on %u devices, arguments came for %zu", e->count,
                args->num_devices);
  if (args->num_args != p->parameters)
    PLUGIN_FAIL(TTPU_INVALID_ARGUMENT, "the program takes %u arguments, %zu were given", p->parameters, args->num_args);

  bool awaited = p->linked || p->transfers; /* by other chips, or the host: worth a thread, and waking it */
  for (uint32_t i = 0; awaited && i < e->count; ++i) PLUGIN_TRY(soft_queue_start((only ? only : e->devices[i])->queue));
  execute_job *one = NULL, **jobs = &one;
  if (e->count > 1) {
    jobs = base_calloc(e->count, sizeof *jobs);
    if (!jobs) return plugin_error(base_no_memory(e->count * sizeof *jobs));
  }
  PJRT_Event **events = args->device_complete_events;
  ttpu_status status = TTPU_OK;
  uint32_t ready = 0;
  for (; ready < e->count && status == TTPU_OK; ++ready) {
    PJRT_Device *d = only ? only : e->devices[ready];
    status = prepare(p, d, p->parameters ? args->argument_lists[ready] : NULL, args->options, args->output_lists[ready],
                     &jobs[ready]);
    if (status == TTPU_OK && p->transfers) status = plugin_host_new(args->options, ready, &jobs[ready]->host);
    if (status == TTPU_OK && awaited && jobs[ready]->job.cost < SOFT_COST_WAKES)
      jobs[ready]->job.cost = SOFT_COST_WAKES;
    if (status != TTPU_OK || !events) continue;
    events[ready] = plugin_event_new(soft_done_share(jobs[ready]->done));
    if (!events[ready]) status = base_no_memory(sizeof(void *));
  }
  if (status == TTPU_OK && p->linked) status = link_jobs(p, e->count, jobs);
  if (p->linked) pthread_mutex_lock(&e->client->launching);
  for (uint32_t i = 0; i < e->count && status == TTPU_OK; ++i) {
    execute_job *j = jobs[i];
    jobs[i] = NULL;
    status = launch(j, only ? only : e->devices[i], p->parameters ? args->argument_lists[i] : NULL);
  }
  if (p->linked) pthread_mutex_unlock(&e->client->launching);
  PJRT_Error *error = plugin_error(status);
  for (uint32_t i = 0; error && i < ready; ++i) { /* nothing ran; nobody has seen the results */
    if (!jobs[i]) continue;
    for (uint32_t k = 0; k < p->outputs; ++k) {
      PJRT_Buffer_Destroy_Args destroy = {.struct_size = sizeof destroy, .buffer = args->output_lists[i][k]};
      plugin_Buffer_Destroy(&destroy);
      args->output_lists[i][k] = NULL;
    }
    if (events && events[i]) plugin_event_free(events[i]);
    job_free(jobs[i]);
  }
  if (jobs != &one) base_free(jobs);
  return error;
}
