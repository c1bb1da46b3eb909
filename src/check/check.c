/* One test: which functions it has, which of them are run, and with which sizes. */
#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/compare.h"
#include "check/program.h"

static void fail(check_outcome *out, check_stage stage, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(check_outcome *out, check_stage stage, const char *format, ...) {
  if (out->stage != CHECK_PASSED) return; /* the first failure is the one to tell */
  va_list args;
  va_start(args, format);
  vsnprintf(out->message, sizeof out->message, format, args);
  va_end(args);
  out->stage = stage;
}

/* ---- sizes for `?` -------------------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 64, PARSED_NUMBERS = 64 };

/* The arguments of a function with every `?` being `size`, as are the integer scalars that come first: JAX passes sizes so. */
typedef struct sized {
  ir_parse_options options;
  ir_type types[MOST_ARGUMENTS];
  int64_t dims[MOST_ARGUMENTS][TTPU_MAX_RANK];
  const int64_t *known[MOST_ARGUMENTS];
  int64_t size, all[PARSED_NUMBERS]; /* all: `size` in every place */
  bool dynamic;                      /* there was a `?` */
} sized;

/* With `run` false, where values do not matter, any list of integers may be a shape: all its numbers are `size`. */
static void size_arguments(sized *s, const ir_listed *f, int64_t size, bool run) {
  s->options.entry = f->name;
  s->size = size;
  s->dynamic = false;
  bool leading = true;
  for (uint32_t i = 0; i < f->argument_count && i < MOST_ARGUMENTS; ++i) {
    s->types[i] = f->arguments[i];
    for (uint32_t d = 0; d < f->arguments[i].rank; ++d) {
      bool any = f->arguments[i].dims[d] == IR_PARSE_ANY;
      s->dims[i][d] = any ? size : f->arguments[i].dims[d];
      s->dynamic |= any;
    }
    s->types[i].dims = s->dims[i];
    bool scalar = f->arguments[i].rank == 0 && base_dtype_is_integer((ttpu_dtype)f->arguments[i].dtype);
    leading &= scalar;
    bool list = !run && f->arguments[i].rank <= 2 && base_dtype_is_integer((ttpu_dtype)f->arguments[i].dtype) &&
                ir_numel(s->types[i]) <= PARSED_NUMBERS;
    s->known[i] = leading || list ? s->all : NULL;
  }
  s->options.argument_count = f->argument_count < MOST_ARGUMENTS ? f->argument_count : MOST_ARGUMENTS;
  s->options.arguments = s->types;
  for (int i = 0; i < PARSED_NUMBERS; ++i) s->all[i] = size;
  s->options.known = s->dynamic || !run ? s->known : NULL;
}

/* ---- arguments and results ------------------------------------------------------------------ */

/* Numbers for an argument that the test leaves open: small and different, so that positions can be told apart. */
static void fill_argument(ir_type type, int64_t size, uint8_t *to) {
  ttpu_dtype t = (ttpu_dtype)type.dtype;
  size_t bytes = base_dtype_bytes(t);
  for (int64_t i = 0; i < ir_numel(type); ++i) {
    double number = type.rank == 0 && base_dtype_is_integer(t) ? (double)size : (double)(i % 7) + 1;
    base_scalar v = {.d = {number, 0}};
    base_scalar_store(t, to + (size_t)i * bytes, base_scalar_convert(TTPU_F64, t, v));
  }
}

static pjrt_buffer *make_argument(pjrt_device *device, ir_type type, int64_t size) {
  pjrt_buffer *buffer = NULL;
  size_t bytes = base_dtype_bytes((ttpu_dtype)type.dtype) * (size_t)ir_numel(type);
  uint8_t *data = base_alloc(bytes + 1);
  if (!data) return NULL;
  fill_argument(type, size, data);
  pjrt_buffer_from_host(device, (ttpu_dtype)type.dtype, type.rank, type.dims, data, NULL, NULL, &buffer);
  base_free(data);
  return buffer;
}

static void compare(const ir_check *check, const check_program *p, pjrt_mailbox *mailbox, check_outcome *out) {
  char message[400];
  ir_type type = p->results[check->actual];
  void *actual = check_fetch(p->result_buffers[check->actual], type);
  void *expected = actual ? check_fetch(p->result_buffers[check->expected], type) : NULL;
  const void *letter = NULL;
  size_t bytes = 0;
  bool there = check->channel == 0 || pjrt_mailbox_look(mailbox, check->channel, check->letter, &letter, &bytes);
  if (!actual || !expected) fail(out, CHECK_RUN, "%s", base_message());
  else if (!there || (letter && bytes != check_bytes(type)))
    fail(out, CHECK_VALUES, "line %u: the probe was not met in iteration %u", check->line, check->letter);
  else if (!check_compare(check, type, actual, letter ? letter : expected, message, sizeof message))
    fail(out, CHECK_VALUES, "%s", message);
  ++out->count;
  base_free(actual);
  base_free(expected);
}

/* ---- running -------------------------------------------------------------------------------- */

/* Arguments, a mailbox where the program needs one, and the run. */
static ttpu_status execute(check_program *p, const sized *s, pjrt_mailbox **mailbox) {
  pjrt_device *device = pjrt_client_device(p->client, 0);
  if (p->channel_count) BASE_TRY(pjrt_mailbox_new(p->client, 1, p->channel_count, p->channels, mailbox));
  for (uint32_t i = 0; i < p->argument_count; ++i) {
    p->argument_buffers[i] = make_argument(device, p->arguments[i], s->size);
    if (!p->argument_buffers[i]) return TTPU_RESOURCE_EXHAUSTED;
  }
  BASE_TRY(check_program_start(p, *mailbox));
  return check_program_await(p);
}

static ttpu_status read_again(const base_text *text, base_text *out) {
  base_arena arena;
  ir_func *f = NULL;
  base_arena_init(&arena);
  ttpu_status status = ir_parse(&arena, text->data, text->length, &f);
  if (status == TTPU_OK) status = ir_func_print(f, out);
  base_arena_free(&arena);
  return status;
}

/* Prints f, reads that, and so once more: from the second time on values have the names that reading gives them. */
static void check_text(const ir_func *f, check_outcome *out) {
  base_text texts[3] = {{0}, {0}, {0}};
  ttpu_status status = ir_func_print(f, &texts[0]);
  for (int i = 0; i < 2 && status == TTPU_OK; ++i) status = read_again(&texts[i], &texts[i + 1]);
  if (status != TTPU_OK) fail(out, CHECK_READ, "its printed form: %s", base_message());
  else if (texts[1].length != texts[2].length || memcmp(texts[1].data, texts[2].data, texts[1].length) != 0)
    fail(out, CHECK_READ, "its printed form is read as another function");
  for (int i = 0; i < 3; ++i) base_text_free(&texts[i]);
}

/* The run whose results the function waits for; NULL: it has all. */
static ir_parallel *pending_run(const ir_parse_options *o) {
  ir_parallel *last = o->parallel_count ? &o->parallels[o->parallel_count - 1] : NULL;
  return last && !last->results ? last : NULL;
}

/* Runs what was read; then makes its comparisons, or, where it waits for a parallel run, that run. */
static void run_read(pjrt_client *client, const char *text, size_t length, sized *s, base_arena *arena, ir_func *f,
                     check_outcome *out) {
  check_program program = {0};
  pjrt_mailbox *mailbox = NULL;
  ir_parallel *pending = pending_run(&s->options);
  if (check_program_open(client, f, &program) != TTPU_OK) {
    fail(out, CHECK_READ, "%s", base_message());
    base_arena_delete(arena);
  } else if (check_program_compile(&program, 0, 1, 1, arena, f) != TTPU_OK) {
    fail(out, CHECK_COMPILE, "%s", base_message());
  } else {
    out->ran = true;
    if (execute(&program, s, &mailbox) != TTPU_OK) fail(out, CHECK_RUN, "%s", base_message());
    else if (pending) {
      if (check_run_parallel(client, text, length, pending, program.result_buffers + pending->first_operand,
                             s->options.kept) != TTPU_OK)
        fail(out, CHECK_RUN, "%s", base_message());
    } else {
      for (uint32_t i = 0; i < s->options.check_count; ++i) compare(&s->options.checks[i], &program, mailbox, out);
    }
  }
  pjrt_mailbox_free(mailbox);
  check_program_close(&program);
}

/* Reads it and runs it; true: a parallel run in it has come to its end, and it is to be read again with the results. */
static bool run_once(pjrt_client *client, const char *text, size_t length, sized *s, check_outcome *out) {
  base_arena *arena = base_arena_new();
  ir_func *f = NULL;
  if (!arena) return fail(out, CHECK_READ, "out of host memory"), false;
  s->options.check_count = 0;
  if (ir_parse_with(arena, text, length, &s->options, &f) != TTPU_OK) fail(out, CHECK_READ, "%s", base_message());
  else check_text(f, out);
  if (out->stage != CHECK_PASSED || !client) return base_arena_delete(arena), false;
  bool waits = pending_run(&s->options) != NULL;
  run_read(client, text, length, s, arena, f, out);
  return waits && out->stage == CHECK_PASSED;
}

static void run_function(pjrt_client *client, const char *text, size_t length, sized *s, check_outcome *out) {
  base_arena kept;
  base_arena_init(&kept);
  s->options.take_checks = true;
  s->options.kept = &kept;
  s->options.precision = IR_PRECISION_HIGHEST; /* the tests' own values are not those of a TPU's default */
  while (run_once(client, text, length, s, out)) continue;
  base_free(s->options.checks);
  base_free(s->options.parallels);
  s->options.checks = NULL;
  s->options.parallels = NULL;
  s->options.check_count = s->options.check_capacity = 0;
  s->options.parallel_count = s->options.parallel_capacity = 0;
  base_arena_free(&kept);
}

/* ---- the module ----------------------------------------------------------------------------- */

typedef struct listing {
  pjrt_client *client;
  const char *text, *only;
  size_t length;
  int64_t size;
  bool checks;   /* the text has check operations */
  bool has_main; /* then it is the one to run */
  uint32_t count;
  check_outcome *out;
} listing;

static void note_main(void *context, const ir_listed *f) {
  listing *l = context;
  l->has_main |= strcmp(f->name, "main") == 0;
  ++l->count;
}

/* Sizes that programs written for any size were seen to need: they divide, or differ from the fixed sizes. */
static const int64_t sizes[] = {4, 3, 2, 5, 6, 8, 12, 16, 1};

static void check_function(void *context, const ir_listed *f) {
  listing *l = context;
  if (l->out->stage != CHECK_PASSED) return;
  if (l->only ? strcmp(f->name, l->only) != 0 : l->has_main && strcmp(f->name, "main") != 0) return;
  if (!l->has_main && f->is_private && l->count > 1 && !l->only) return;
  check_outcome first = *l->out;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    sized s = {0};
    check_outcome one = *l->out;
    size_arguments(&s, f, l->size ? l->size : sizes[i], l->client != NULL);
    bool run = l->checks || s.dynamic || f->argument_count == 0;
    run_function(run ? l->client : NULL, l->text, l->length, &s, &one);
    if (i == 0 || one.stage == CHECK_PASSED) first = one;
    if (one.stage == CHECK_PASSED || one.stage == CHECK_VALUES || l->size || (!s.dynamic && l->client)) break;
  }
  *l->out = first;
}

static bool contains(const char *text, size_t length, const char *word) {
  return memmem(text, length, word, strlen(word)) != NULL;
}

static void check_module(listing *l) {
  if (ir_parse_list(l->text, l->length, note_main, l) != TTPU_OK ||
      ir_parse_list(l->text, l->length, check_function, l) != TTPU_OK)
    fail(l->out, CHECK_READ, "%s", base_message());
  if (l->count == 0) fail(l->out, CHECK_READ, "there is no function");
}

void check_run(pjrt_client *client, const char *text, size_t length, check_outcome *out) {
  *out = (check_outcome){.stage = CHECK_PASSED};
  listing l = {.client = client, .text = text, .length = length, .out = out};
  l.checks = contains(text, length, "check.");
  check_module(&l);
  if (out->stage == CHECK_PASSED && l.checks && out->count == 0) fail(out, CHECK_READ, "none of its checks was made");
}

void check_read(const char *text, size_t length, const char *function, int64_t size, check_outcome *out) {
  *out = (check_outcome){.stage = CHECK_PASSED};
  listing l = {.text = text, .only = function, .length = length, .size = size, .out = out};
  check_module(&l);
}
