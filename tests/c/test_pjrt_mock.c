/* The client over a plugin that misbehaves: old, with gaps, failing at chosen calls. Every failure is an error with a
 * message, and nothing is left behind. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mock_plugin.h"
#include "pjrt/abi.h"
#include "pjrt/pjrt.h"

static struct {
  mock_config *(*get_config)(void);
  void (*reset)(void);
  void (*release)(void);
  int64_t (*live)(void);
} mock;

static mock_config *start(void) {
  if (!mock.reset) {
    void *library = dlopen(TTPU_MOCK_PATH, RTLD_NOW);
    *(void **)&mock.get_config = dlsym(library, "mock_get_config");
    *(void **)&mock.reset = dlsym(library, "mock_reset");
    *(void **)&mock.release = dlsym(library, "mock_release");
    *(void **)&mock.live = dlsym(library, "mock_live");
  }
  mock.reset();
  return mock.get_config();
}

static pjrt_client *open_mock(void) {
  pjrt_client *c = NULL;
  CHECK_OK(pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  return c;
}

static void end(pjrt_client *c) {
  pjrt_client_free(c);
  CHECK_EQ(mock.live(), 0);
}

/* ---- programs: (x, index) -> (x + 1, x[index]) with a check of the index ------------------------------------------------- */

enum { SIZE = 6 };

static ttpu_status compile_checked(pjrt_device *d, pjrt_client *c, bool check, pjrt_executable **out) {
  static const char add_source[] = "aten::add", take_source[] = "aten::take";
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  int64_t size = SIZE, two = 2;
  ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 1, &size));
  ir_value index = ir_param(&b, ir_tensor(&b, TTPU_I32, 1, &two)), results[2];
  bool *donate = base_arena_zalloc(arena, 2);
  donate[0] = true;
  b.source = add_source;
  results[0] = ir_add(&b, x, ir_like_f64(&b, x, 1));
  b.source = take_source;
  if (check) index = ir_check_index(&b, index, 0, SIZE, IR_BAD_INDEX, "take");
  results[1] = ir_take(&b, x, index, 0);
  ir_return(&b, 2, results);
  f->donate = donate;
  CHECK_EQ(b.status, TTPU_OK);
  return pjrt_compile(c, d, arena, f, out);
}

static ttpu_status upload(pjrt_device *d, ttpu_dtype dtype, int64_t size, pjrt_buffer **out) {
  static const uint8_t zeros[64];
  return pjrt_buffer_from_host(d, dtype, 1, &size, zeros, NULL, NULL, out);
}

/* A client with the program and its arguments. */
typedef struct setup {
  pjrt_client *client;
  pjrt_device *device;
  pjrt_executable *program;
  pjrt_buffer *in[2], *out[2];
} setup;

static bool prepare(setup *s, bool check) {
  *s = (setup){.client = open_mock()};
  if (!s->client) return false;
  s->device = pjrt_client_device(s->client, 0);
  return CHECK_OK(compile_checked(s->device, s->client, check, &s->program)) &&
         CHECK_OK(upload(s->device, TTPU_F32, SIZE, &s->in[0])) && CHECK_OK(upload(s->device, TTPU_I32, 2, &s->in[1]));
}

static void finish(setup *s) {
  for (int i = 0; i < 2; ++i) {
    pjrt_buffer_free(s->in[i]);
    pjrt_buffer_free(s->out[i]);
  }
  pjrt_executable_free(s->program);
  end(s->client);
}

static void note(void *context, ttpu_status status) { *(int *)context = (int)status; }

/* ---- versions ------------------------------------------------------------------------------------------------------------------- */

TEST(an_old_plugin_runs) {
  start();
  setup s;
  if (prepare(&s, false)) {
    int major, minor, ended = -1;
    pjrt_client_api_version(s.client, &major, &minor);
    CHECK_EQ(minor, 81);
    CHECK_STR(pjrt_client_platform(s.client), "mock");
    CHECK(!pjrt_client_is_soft(s.client));
    CHECK_OK(pjrt_execute(s.program, 2, s.in, (bool[]){true, false}, s.out, note, &ended));
    CHECK_EQ(ended, TTPU_OK);
    CHECK_EQ(mock.get_config()->donated, 1);
    CHECK_EQ(pjrt_buffer_bytes(s.out[1]), 8);
    CHECK_OK(pjrt_buffer_await(s.out[1]));
    pjrt_memory_stats stats;
    CHECK_FAILS(TTPU_UNIMPLEMENTED, "PJRT 0.81) has no PJRT_Device_MemoryStats",
                pjrt_device_memory_stats(s.device, &stats));
    pjrt_device_reset_peak(s.device);
    pjrt_device_trim(s.device);
  }
  finish(&s);
}

TEST(versions_that_cannot_be_spoken_to) {
  pjrt_client *c;
  mock_config *m = start();
  m->minor = 12;
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "speaks PJRT 0.12; this build needs 0.29 or newer",
              pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  m = start();
  m->major = 1;
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "speaks PJRT 1.81", pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  m = start();
  m->table_bytes = 16;
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "no table of functions", pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  m = start();
  m->table_bytes = offsetof(PJRT_Api, Buffer_ToHostBuffer);
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "lacks PJRT_Buffer_ToHostBuffer, PJRT_Buffer_ReadyEvent",
              pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  m = start();
  m->table_bytes = sizeof(PJRT_Api) + 24; /* a newer one */
  m->minor = 130;
  end(open_mock());
  m = start();
  m->grown = "Client_Create";
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "Unexpected args size", pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  CHECK_EQ(mock.live(), 0);
}

TEST(what_is_missing_matters_when_it_is_needed) {
  pjrt_client *c;
  mock_config *m = start();
  m->missing = "Error_GetCode Buffer_Destroy";
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "lacks PJRT_Error_GetCode, PJRT_Buffer_Destroy",
              pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  m = start();
  m->missing = "Event_OnReady Event_IsReady Client_PlatformVersion Executable_Serialize";
  setup s;
  if (prepare(&s, true)) {
    int ended = -1;
    void *bytes;
    size_t length;
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended));
    CHECK_EQ(ended, TTPU_OK); /* by waiting */
    CHECK(pjrt_buffer_is_ready(s.out[0]));
    ended = -1;
    pjrt_buffer_on_ready(s.out[1], note, &ended);
    CHECK_EQ(ended, TTPU_OK);
    CHECK_FAILS(TTPU_UNIMPLEMENTED, "no PJRT_Executable_Serialize",
                pjrt_executable_serialize(s.program, &bytes, &length));
    CHECK_STR(pjrt_client_platform_version(s.client), "");
  }
  finish(&s);
}

TEST(the_report_tells_what_is_missing) {
  mock_config *m = start();
  m->missing = "Event_OnReady";
  base_text text = {0};
  CHECK_OK(pjrt_plugin_report(TTPU_MOCK_PATH, NULL, &text));
  CHECK_HAS(text.data, "\"pjrt_api_version\": [0, 81]");
  CHECK_HAS(text.data, "{\"function\": \"Event_OnReady\", \"without\": \"each run is waited for\"}");
  CHECK_HAS(text.data, "\"missing_required\": []");
  CHECK_HAS(text.data, "\"usable\": true, \"error\": null");
  CHECK_HAS(text.data, "\"platform_version\": \"\\\"0.1\\\"\"");
  CHECK_HAS(text.data, "\"kind\": \"mock device\"");
  base_text_free(&text);
  m->missing = "Buffer_ReadyEvent";
  CHECK_OK(pjrt_plugin_report(TTPU_MOCK_PATH, NULL, &text));
  CHECK_HAS(text.data, "\"missing_required\": [\"Buffer_ReadyEvent\"]");
  CHECK_HAS(text.data, "\"usable\": false, \"error\": \"");
  CHECK_HAS(text.data, "lacks PJRT_Buffer_ReadyEvent");
  base_text_free(&text);
  CHECK_FAILS(TTPU_NOT_FOUND, "cannot be loaded", pjrt_plugin_report("/nowhere.so", NULL, &text));
  base_text_free(&text);
  CHECK_EQ(mock.live(), 0);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------------------- */

TEST(error_objects_of_all_kinds) {
  static char long_message[5000];
  memset(long_message, 'x', sizeof long_message);
  static const struct {
    int code;
    const char *message;
    size_t size;
    bool without_code;
    ttpu_status expected;
    const char *part;
  } kinds[] = {
      {TTPU_NOT_FOUND, "no such thing", 0, false, TTPU_NOT_FOUND, "no such thing"},
      {TTPU_INTERNAL, "cut here, not there", 8, false, TTPU_INTERNAL, "cut here"},
      {TTPU_OK, "an error that says it is none", 0, false, TTPU_UNKNOWN, "says it is none"},
      {17, "beyond the list", 0, false, TTPU_UNKNOWN, "beyond the list"},
      {-5, NULL, 0, false, TTPU_UNKNOWN, ""},
      {99999, long_message, sizeof long_message, false, TTPU_UNKNOWN, "xxxxxxxx"},
      {TTPU_ABORTED, "nobody knows the code", 0, true, TTPU_UNKNOWN, "nobody knows"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    mock_config *m = start();
    pjrt_client *c;
    m->fails = "Client_Create";
    m->fails_at = 1;
    m->code = kinds[i].code;
    m->message = kinds[i].message;
    m->message_size = kinds[i].size;
    m->error_without_code = kinds[i].without_code;
    CHECK_FAILS(kinds[i].expected, kinds[i].part, pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
    CHECK_EQ(mock.live(), 0);
  }
}

/* All that a user does, with one call of the plugin failing. True if it came to that call. */
static bool run_with_failure(const char *function, int at, bool check) {
  mock_config *m = start();
  m->fails = function;
  m->fails_at = at;
  m->code = TTPU_UNAVAILABLE;
  m->message = "as told";
  setup s = {0};
  int ended = -1;
  ttpu_status status = pjrt_client_new(TTPU_MOCK_PATH, NULL, &s.client);
  if (status == TTPU_OK) {
    s.device = pjrt_client_device(s.client, 0);
    status = compile_checked(s.device, s.client, check, &s.program);
  }
  if (status == TTPU_OK) status = upload(s.device, TTPU_F32, SIZE, &s.in[0]);
  if (status == TTPU_OK) status = upload(s.device, TTPU_I32, 2, &s.in[1]);
  if (status == TTPU_OK) status = pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended);
  float values[2];
  if (status == TTPU_OK) status = pjrt_buffer_to_host(s.out[1], values, sizeof values);
  if (status != TTPU_OK) CHECK_HAS(base_message(), "as told");
  for (int i = 0; i < 2; ++i) {
    pjrt_buffer_free(s.in[i]);
    pjrt_buffer_free(s.out[i]);
  }
  pjrt_executable_free(s.program);
  pjrt_client_free(s.client);
  bool reached = m->fails_at <= 0;
  bool destroys = strstr(function, "Destroy") != NULL; /* what could not be destroyed stays */
  if (!destroys && !CHECK_EQ(mock.live(), 0)) fprintf(stderr, "    after failure %d of %s\n", at, function);
  return reached;
}

TEST(any_call_may_fail) {
  static const char *const functions[] = {
      "Client_PlatformName",
      "Client_PlatformVersion",
      "Client_AddressableDevices",
      "Device_GetDescription",
      "DeviceDescription_Id",
      "DeviceDescription_Kind",
      "DeviceDescription_ProcessIndex",
      "Client_Compile",
      "LoadedExecutable_Execute",
      "Client_BufferFromHostBuffer",
      "Buffer_Dimensions",
      "Buffer_ReadyEvent",
      "Buffer_ToHostBuffer",
      "Event_OnReady",
      "Event_Await",
      "Event_IsReady",
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
    for (int check = 0; check < 2; ++check)
      for (int at = 1; at < 20 && run_with_failure(functions[i], at, check); ++at) {}
}

TEST(memory_may_run_out) {
  mock_config *m = start();
  for (uint64_t nth = 1;; ++nth) { /* from the start to the last read, one allocation after the other */
    setup s = {0};
    int ended = -1;
    float values[2];
    CHECK_EQ(mock.live(), 0);
    base_alloc_fail_after(nth);
    ttpu_status status = pjrt_client_new(TTPU_MOCK_PATH, NULL, &s.client);
    base_alloc_fail_after(0);
    if (status == TTPU_OK) {
      s.device = pjrt_client_device(s.client, 0);
      CHECK_OK(compile_checked(s.device, s.client, true, &s.program));
      CHECK_OK(upload(s.device, TTPU_F32, SIZE, &s.in[0]));
      CHECK_OK(upload(s.device, TTPU_I32, 2, &s.in[1]));
      base_alloc_fail_after(nth);
      status = pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended);
      if (status == TTPU_OK) status = pjrt_buffer_to_host(s.out[1], values, sizeof values);
      base_alloc_fail_after(0);
    }
    if (status != TTPU_OK) CHECK_EQ(status, TTPU_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 2; ++i) {
      pjrt_buffer_free(s.in[i]);
      pjrt_buffer_free(s.out[i]);
    }
    pjrt_executable_free(s.program);
    pjrt_client_free(s.client);
    if (status == TTPU_OK && nth > 40) break;
  }
  CHECK_EQ(mock.live(), 0);
  (void)m;
}

TEST(a_type_that_the_plugin_has_not) {
  mock_config *m = start();
  m->lacking_type = base_dtypes[TTPU_F64].pjrt_type;
  pjrt_client *c = open_mock();
  REQUIRE(c);
  pjrt_buffer *b = NULL;
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "not for this device", upload(pjrt_client_device(c, 0), TTPU_F64, 2, &b));
  CHECK(!b);
  end(c);
}

TEST(no_devices) {
  mock_config *m = start();
  m->devices = 0;
  pjrt_client *c;
  CHECK_FAILS(TTPU_NOT_FOUND, "has no device in this process", pjrt_client_new(TTPU_MOCK_PATH, NULL, &c));
  CHECK_EQ(mock.live(), 0);
}

/* ---- checks ------------------------------------------------------------------------------------------------------------------------- */

TEST(checks_become_a_result) {
  static const int64_t fine[2] = {0, 3}, broken[2] = {1, 77};
  mock_config *m = start();
  m->words = fine;
  m->word_count = 2;
  setup s;
  if (prepare(&s, true)) {
    int ended = -1;
    CHECK_EQ(pjrt_executable_output_count(s.program), 2);
    CHECK_HAS(m->program, "tensor<2xf32>, tensor<2xi64>) {"); /* the second result, and the verdict */
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended));
    CHECK_EQ(ended, TTPU_OK);
    CHECK_OK(pjrt_buffer_await(s.out[1]));
    for (int i = 0; i < 2; ++i) pjrt_buffer_free(s.out[i]);
    m->words = broken;
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended));
    CHECK_EQ(ended, TTPU_OUT_OF_RANGE);
    CHECK_OK(pjrt_buffer_await(s.out[0])); /* does not depend on the index */
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "aten::take: take: index 77 is out of range [0, 6)", pjrt_buffer_await(s.out[1]));
    float two[2];
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 77", pjrt_buffer_to_host(s.out[1], two, sizeof two));
    pjrt_buffer_on_ready(s.out[1], note, &ended);
    CHECK_EQ(ended, TTPU_OUT_OF_RANGE);
  }
  finish(&s);
}

/* (x [2]) -> x + 1, for what is done with a result. */
static pjrt_executable *compile_next(setup *s) {
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  int64_t two = 2;
  ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 1, &two)), y = ir_add(&b, x, ir_like_f64(&b, x, 1));
  ir_return(&b, 1, &y);
  pjrt_executable *e = NULL;
  CHECK_OK(pjrt_compile(s->client, s->device, arena, f, &e));
  return e;
}

static void *release_until(void *stop) {
  while (!atomic_load((atomic_bool *)stop)) {
    usleep(2000);
    mock.release();
  }
  return NULL;
}

TEST(doubt_travels_and_is_settled_late) {
  static const int64_t broken[2] = {1, -9};
  mock_config *m = start();
  setup s;
  if (prepare(&s, true)) {
    pjrt_executable *next = compile_next(&s);
    m->late = true;
    m->words = broken;
    m->word_count = 2;
    int ended = -1, chained = -1, ready = -1;
    pjrt_buffer *chain = NULL;
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended));
    CHECK_OK(pjrt_execute(next, 1, &s.out[1], NULL, &chain, note, &chained));
    for (int i = 0; i < 20; ++i) { /* a long chain does not hold on to its beginning */
      pjrt_buffer *longer = NULL;
      CHECK_OK(pjrt_execute(next, 1, &chain, NULL, &longer, NULL, NULL));
      pjrt_buffer_free(chain);
      chain = longer;
    }
    CHECK_EQ(ended, -1);
    CHECK(!pjrt_buffer_is_ready(s.out[1]));
    pjrt_buffer_on_ready(chain, note, &ready);
    CHECK_EQ(ready, -1);
    mock.release(); /* the run, and the verdict's copy */
    CHECK_EQ(ended, TTPU_OUT_OF_RANGE);
    CHECK_EQ(chained, TTPU_OK); /* its own run went well; whoever reads the result hears of the check */
    CHECK_EQ(ready, TTPU_OUT_OF_RANGE);
    pthread_t thread;
    atomic_bool stop = false;
    pthread_create(&thread, NULL, release_until, &stop);
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "index -9", pjrt_buffer_await(chain));
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    m->late = false;
    CHECK_OK(pjrt_buffer_await(s.out[0]));
    pjrt_buffer_free(chain);
    pjrt_executable_free(next);
  }
  mock.release();
  finish(&s);
}

TEST(a_run_that_fails_late) {
  mock_config *m = start();
  setup s;
  if (prepare(&s, true)) {
    m->late_failure = true;
    m->fails = "LoadedExecutable_Execute";
    m->fails_at = 1;
    m->code = TTPU_RESOURCE_EXHAUSTED;
    m->message = "no room on the device";
    int ended = -1;
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, note, &ended));
    CHECK_EQ(ended, TTPU_RESOURCE_EXHAUSTED);
    CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "no room on the device", pjrt_buffer_await(s.out[0]));
    CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "no room on the device", pjrt_buffer_await(s.out[1]));
  }
  finish(&s);
}

TEST(serialized_with_its_checks) {
  static const int64_t broken[2] = {1, 6};
  mock_config *m = start();
  setup s;
  if (prepare(&s, true)) {
    void *bytes;
    size_t length;
    pjrt_executable *copy = NULL;
    REQUIRE_OK(pjrt_executable_serialize(s.program, &bytes, &length));
    REQUIRE_OK(pjrt_executable_deserialize(s.client, s.device, bytes, length, &copy));
    pjrt_executable_free(s.program);
    s.program = copy;
    m->words = broken;
    m->word_count = 2;
    CHECK_OK(pjrt_execute(s.program, 2, s.in, NULL, s.out, NULL, NULL));
    CHECK_OK(pjrt_buffer_await(s.out[0]));
    CHECK_FAILS(TTPU_OUT_OF_RANGE, "take: index 6 is out of range", pjrt_buffer_await(s.out[1]));
    for (size_t cut = 0; cut < length; cut += 1 + cut / 40) {
      if (!CHECK(pjrt_executable_deserialize(s.client, s.device, bytes, cut, &copy) != TTPU_OK))
        pjrt_executable_free(copy);
    }
    uint64_t seed = 1;
    for (int i = 0; i < 2000; ++i) { /* and with a byte of the head changed: an error or an executable */
      uint8_t *damaged = malloc(length);
      memcpy(damaged, bytes, length);
      damaged[check_random(&seed) % 200] = (uint8_t)check_random(&seed);
      if (pjrt_executable_deserialize(s.client, s.device, damaged, length, &copy) == TTPU_OK)
        pjrt_executable_free(copy);
      free(damaged);
    }
    base_free(bytes);
  }
  finish(&s);
}

/* ---- several devices ------------------------------------------------------------------------------------------------------------------ */

TEST(copies_without_a_copy_function) {
  mock_config *m = start();
  m->devices = 3;
  pjrt_client *c = open_mock();
  REQUIRE(c);
  CHECK_EQ(pjrt_client_device_count(c), 3);
  pjrt_buffer *b = NULL, *copy = NULL, *same = NULL;
  CHECK_OK(upload(pjrt_client_device(c, 0), TTPU_F32, 3, &b));
  CHECK_OK(pjrt_buffer_copy_to_device(b, pjrt_client_device(c, 2), &copy));
  CHECK(pjrt_buffer_device(copy) == pjrt_client_device(c, 2));
  CHECK_EQ(pjrt_buffer_bytes(copy), 12);
  CHECK_OK(pjrt_buffer_copy_to_device(b, pjrt_client_device(c, 0), &same));
  CHECK(same == b);
  pjrt_buffer_free(same);
  pjrt_buffer_free(copy);
  pjrt_buffer_free(b);
  end(c);
}

TEST(a_layout_of_its_own) {
  static const int64_t first_fastest[2] = {0, 1}, nonsense[2] = {0, 7}, dims[2] = {2, 3};
  mock_config *m = start();
  pjrt_client *c = open_mock();
  REQUIRE(c);
  const float kept[6] = {1, 2, 3, 4, 5, 6}; /* columns [1 2] [3 4] [5 6] */
  float rows[6];
  pjrt_buffer *b = NULL;
  CHECK_OK(pjrt_buffer_from_host(pjrt_client_device(c, 0), TTPU_F32, 2, dims, kept, NULL, NULL, &b));
  m->own_layout = first_fastest;
  if (CHECK_OK(pjrt_buffer_to_host(b, rows, sizeof rows)))
    for (int i = 0; i < 6; ++i) CHECK_EQ(rows[i], kept[i % 3 * 2 + i / 3]);
  m->own_layout = nonsense;
  CHECK_FAILS(TTPU_INTERNAL, "names dimension 7", pjrt_buffer_to_host(b, rows, sizeof rows));
  pjrt_buffer_free(b);
  end(c);
}

TEST(a_shared_buffer_is_not_donated) {
  mock_config *m = start();
  setup s;
  if (prepare(&s, false)) {
    pjrt_buffer *other = pjrt_buffer_share(s.in[0]);
    bool donated[2] = {true, false};
    CHECK_OK(pjrt_execute(s.program, 2, s.in, donated, s.out, NULL, NULL));
    CHECK_EQ(m->donated, 0);
    pjrt_buffer_free(other);
  }
  finish(&s);
}

/* ---- options and the choice ---------------------------------------------------------------------------------------------------------- */

TEST(options_have_types) {
  pjrt_client *c = NULL;
  start();
  CHECK_OK(pjrt_client_new(TTPU_MOCK_PATH, "a=1,b=2.5,c=true,d=text,e:string=17,f:ints=1;-2;3,g=\"a, b\",h:ints=", &c));
  end(c);
  static const struct {
    const char *text, *part;
  } wrong[] = {
      {"a", "expected name=value"},   {"=1", "expected name=value"},        {"a=1,,b=2", "expected name=value"},
      {"a:int=x", "\"x\" is no int"}, {"a:bool=1", "\"1\" is no bool"},     {"a:ints=1;;2", "is no ints"},
      {"a:ints=1;2;", "is no ints"},  {"a:colour=1", "no type \"colour\""}, {"a=\"b", "ends with one"},
      {"a=\"b\"c", "ends with one"},  {"a:float=", "is no float"},          {"a:int=99999999999999999999", "is no int"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, wrong[i].part, pjrt_client_new(TTPU_MOCK_PATH, wrong[i].text, &c));
  CHECK_EQ(mock.live(), 0);
}

/* A folder that stands for /, with chips or without. */
static void write_file(const char *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s/%s", root, path);
  for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); ++slash) {
    *slash = 0;
    mkdir(full, 0700);
    *slash = '/';
  }
  FILE *file = fopen(full, "w");
  if (CHECK(file)) {
    fputs(text, file);
    fclose(file);
  }
}

TEST(the_choice_of_a_plugin) {
  static const char *const names[] = {"TTPU_PLUGIN", "TPU_LIBRARY_PATH"};
  for (int i = 0; i < 2; ++i) unsetenv(names[i]);
  char root[] = "/tmp/ttpu-choice-XXXXXX", libtpu[600];
  REQUIRE(mkdtemp(root));
  snprintf(libtpu, sizeof libtpu, "%s/libtpu.so", root);
  write_file(root, "libtpu.so", "");
  write_file(root, "sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n");
  write_file(root, "sys/bus/pci/devices/0000:00:01.0/device", "0x0063\n");
  write_file(root, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x1ae0\n"); /* Google's network device */
  write_file(root, "sys/bus/pci/devices/0000:00:02.0/device", "0x0042\n");
  pjrt_choice choice;
  CHECK_EQ(pjrt_chips_find(root).count, 0);
  setenv("TPU_LIBRARY_PATH", "/somewhere/libtpu.so", 1);
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice)); /* never on a machine without chips */
  CHECK_STR(choice.path, "soft.so");
  CHECK_HAS(choice.reason, "no TPU chips");

  write_file(root, "sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n");
  write_file(root, "sys/bus/pci/devices/0000:00:05.0/device", "0x0063\n");
  CHECK_EQ(pjrt_chips_find(root).count, 1);
  CHECK_STR(pjrt_chips_find(root).generation, "v5e");
  CHECK(!pjrt_chips_find(root).usable);
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice));
  CHECK_STR(choice.path, "soft.so");
  CHECK_HAS(choice.reason, "cannot open");

  write_file(root, "dev/vfio/vfio", "");
  CHECK(!pjrt_chips_find(root).usable);
  write_file(root, "dev/vfio/0", "");
  CHECK(pjrt_chips_find(root).usable);
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice));
  CHECK_STR(choice.path, "/somewhere/libtpu.so");
  unsetenv("TPU_LIBRARY_PATH");
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice));
  CHECK_STR(choice.path, libtpu);
  CHECK_HAS(choice.reason, "installed libtpu, on a machine with TPU chips (v5e)");
  CHECK_OK(pjrt_choose(root, "soft.so", "", &choice));
  CHECK_STR(choice.path, "soft.so");
  CHECK_HAS(choice.reason, "no libtpu is installed");
  setenv("TTPU_PLUGIN", "/other.so", 1);
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice));
  CHECK_STR(choice.path, "/other.so");
  setenv("TTPU_PLUGIN", "soft", 1);
  CHECK_OK(pjrt_choose(root, "soft.so", libtpu, &choice));
  CHECK_STR(choice.path, "soft.so");
  unsetenv("TTPU_PLUGIN");
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "path is empty", pjrt_choose("", "", "", &choice));
  char command[600];
  snprintf(command, sizeof command, "rm -r %s", root);
  CHECK_EQ(system(command), 0);
}
