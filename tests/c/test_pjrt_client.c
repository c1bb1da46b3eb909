/* The client over the software TPU: what the runtime does with it. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "pjrt/pjrt.h"

static pjrt_client *open_client(const char *options) {
  pjrt_client *c = NULL;
  CHECK_OK(pjrt_client_new(TTPU_SOFT_PATH, options, &c));
  return c;
}

typedef ir_value (*make_body)(ir_builder *b, const ir_value *arguments);

/* A function of `count` float32 arguments of one size with one result. donate: bit i for argument i. */
static pjrt_executable *compile_floats(pjrt_device *d, pjrt_client *c, int64_t size, uint32_t count, unsigned donate,
                                       make_body body) {
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  ir_value arguments[8];
  bool *flags = base_arena_zalloc(arena, 8);
  for (uint32_t i = 0; i < count; ++i) {
    arguments[i] = ir_param(&b, ir_tensor(&b, TTPU_F32, 1, &size));
    flags[i] = donate >> i & 1;
  }
  ir_value result = body(&b, arguments);
  ir_return(&b, 1, &result);
  f->donate = flags;
  CHECK_EQ(b.status, TTPU_OK);
  pjrt_executable *e = NULL;
  CHECK_OK(pjrt_compile(c, d, arena, f, &e));
  return e;
}

static ir_value add_both(ir_builder *b, const ir_value *a) { return ir_binary(b, IR_ADD, a[0], a[1]); }
static ir_value negate(ir_builder *b, const ir_value *a) { return ir_unary(b, IR_NEGATE, a[0]); }
static ir_value itself(ir_builder *b, const ir_value *a) {
  (void)b;
  return a[0];
}
static ir_value bad_index(ir_builder *b, const ir_value *a) {
  ir_value index = ir_scalar_i64(b, TTPU_I64, 7);
  int64_t one = 1;
  index = ir_broadcast_to(b, index, 1, &one);
  index = ir_check_index(b, index, 0, 3, IR_BAD_INDEX, "index 7");
  ir_value real = ir_broadcast_to(b, ir_convert(b, index, TTPU_F32), 1, ir_type_of(b->func, a[0]).dims);
  return ir_binary(b, IR_ADD, a[0], real);
}

static pjrt_buffer *upload(pjrt_device *d, int64_t size, float first) {
  float *data = malloc((size_t)size * sizeof *data + 1);
  for (int64_t i = 0; i < size; ++i) data[i] = first + (float)i;
  pjrt_buffer *b = NULL;
  CHECK_OK(pjrt_buffer_from_host(d, TTPU_F32, 1, &size, data, NULL, NULL, &b));
  free(data);
  return b;
}

static float read_at(pjrt_buffer *b, int64_t index) {
  float *data = malloc(pjrt_buffer_bytes(b) + 1);
  float value = NAN;
  if (CHECK_OK(pjrt_buffer_to_host(b, data, pjrt_buffer_bytes(b)))) value = data[index];
  free(data);
  return value;
}

TEST(client_and_devices) {
  pjrt_client *c = open_client("topology=v5e:2x2,hbm_bytes=64M");
  REQUIRE(c);
  int major, minor;
  pjrt_client_api_version(c, &major, &minor);
  CHECK_EQ(major, 0);
  CHECK_EQ(minor, 114);
  CHECK_STR(pjrt_client_platform(c), "tpu");
  CHECK_HAS(pjrt_client_platform_version(c), "software TPU");
  CHECK_STR(pjrt_client_plugin_path(c), TTPU_SOFT_PATH);
  CHECK(pjrt_client_is_soft(c));
  CHECK_EQ(pjrt_client_device_count(c), 4);
  const pjrt_device_info *info = pjrt_device_get_info(pjrt_client_device(c, 3));
  CHECK_EQ(info->id, 3);
  CHECK_STR(info->kind, "TPU v5 lite");
  CHECK_EQ(info->coords[0], 1);
  CHECK_EQ(info->coords[1], 1);
  CHECK_EQ(info->coords[2], 0);
  CHECK_EQ(info->core_on_chip, 0);
  CHECK_EQ(info->memory_limit, 64 << 20);
  CHECK(!pjrt_client_device(c, 4));
  pjrt_counters counters;
  CHECK(pjrt_client_counters(c, &counters));
  pjrt_client_set_threads(c, 2);
  pjrt_client_free(c);
  pjrt_client_free(NULL);
}

TEST(refuses_what_it_cannot_open) {
  pjrt_client *c;
  CHECK_FAILS(TTPU_NOT_FOUND, "cannot be loaded", pjrt_client_new("/nowhere/lib.so", NULL, &c));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "expected a generation", pjrt_client_new(TTPU_SOFT_PATH, "topology=v9:1x1", &c));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "\"colour\" is unknown", pjrt_client_new(TTPU_SOFT_PATH, "colour=red", &c));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "name=value", pjrt_client_new(TTPU_SOFT_PATH, "topology", &c));
  setenv("TTPU_TOPOLOGY", "v5e:banana", 1);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "v5e:banana", pjrt_client_new(TTPU_SOFT_PATH, NULL, &c));
  setenv("TTPU_TOPOLOGY", "v6e:1x2", 1);
  setenv("TTPU_HBM_BYTES", "1M", 1);
  c = open_client(NULL);
  REQUIRE(c);
  CHECK_EQ(pjrt_client_device_count(c), 2);
  CHECK_EQ(pjrt_device_get_info(pjrt_client_device(c, 0))->memory_limit, 1 << 20);
  pjrt_client_free(c);
  unsetenv("TTPU_TOPOLOGY");
  unsetenv("TTPU_HBM_BYTES");
}

TEST(runs_an_add) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 5, 2, 0, add_both);
  REQUIRE(e);
  CHECK_EQ(pjrt_executable_output_count(e), 1);
  CHECK(pjrt_executable_device(e) == d);
  pjrt_cost cost;
  if (CHECK_OK(pjrt_executable_get_cost(e, &cost))) {
    CHECK(cost.flops >= 5); /* an addition an element, and what reading them takes */
    CHECK(cost.bytes_accessed == 3 * 20);
    CHECK_EQ(cost.temporaries, 0);
  }
  pjrt_buffer *in[2] = {upload(d, 5, 1), upload(d, 5, 10)}, *out;
  REQUIRE_OK(pjrt_execute(e, 2, in, NULL, &out, NULL, NULL));
  CHECK_EQ(pjrt_buffer_bytes(out), 20);
  CHECK(pjrt_buffer_device(out) == d);
  CHECK_EQ(read_at(out, 4), 5 + 14);
  CHECK(pjrt_buffer_is_ready(out));
  CHECK_EQ(read_at(in[0], 4), 5); /* arguments are as they were */
  float small[2];
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "read of 8 bytes", pjrt_buffer_to_host(out, small, sizeof small));
  for (int i = 0; i < 2; ++i) pjrt_buffer_free(in[i]);
  pjrt_buffer_free(out);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

TEST(shapes_of_all_kinds) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  for (int t = 1; t < TTPU_TOKEN; ++t) { /* every dtype; empty, rank 0 and rank 3 */
    const struct {
      uint32_t rank;
      int64_t dims[3];
    } shapes[] = {{0, {0}}, {1, {0}}, {3, {2, 3, 5}}, {2, {0, 4}}, {1, {100000}}};
    for (int k = 0; k < 5; ++k) {
      size_t bytes = (size_t)base_numel(shapes[k].rank, shapes[k].dims) * base_dtype_bytes((ttpu_dtype)t);
      uint8_t *from = malloc(bytes + 1), *to = calloc(bytes + 1, 1);
      uint64_t seed = (uint64_t)t;
      for (size_t i = 0; i < bytes; ++i) from[i] = (uint8_t)check_random(&seed);
      pjrt_buffer *b = NULL;
      CHECK_OK(
          pjrt_buffer_from_host(d, (ttpu_dtype)t, shapes[k].rank, shapes[k].dims, bytes ? from : NULL, NULL, NULL, &b));
      CHECK_EQ(pjrt_buffer_bytes(b), bytes);
      CHECK_OK(pjrt_buffer_to_host(b, to, bytes));
      CHECK(memcmp(from, to, bytes) == 0);
      pjrt_buffer_free(b);
      free(from);
      free(to);
    }
  }
  pjrt_client_free(c);
}

TEST(a_chain_runs_in_order) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 1000, 2, 0, add_both);
  pjrt_buffer *sum = upload(d, 1000, 0), *step = upload(d, 1000, 0);
  for (int i = 0; i < 2000; ++i) { /* inputs are freed long before their readers run */
    pjrt_buffer *in[2] = {sum, step}, *out = NULL;
    if (!CHECK_OK(pjrt_execute(e, 2, in, NULL, &out, NULL, NULL))) break;
    pjrt_buffer_free(sum);
    sum = out;
  }
  CHECK_EQ(read_at(sum, 3), 3 * 2001);
  pjrt_memory_stats s;
  CHECK_OK(pjrt_device_memory_stats(d, &s));
  CHECK_EQ(s.bytes_in_use, 2 * 4096);
  pjrt_buffer_free(sum);
  pjrt_buffer_free(step);
  CHECK_OK(pjrt_device_memory_stats(d, &s));
  CHECK_EQ(s.bytes_in_use, 0);
  CHECK(s.peak_bytes_in_use >= 3 * 4096);
  pjrt_device_reset_peak(d);
  CHECK_OK(pjrt_device_memory_stats(d, &s));
  CHECK_EQ(s.peak_bytes_in_use, 0);
  pjrt_device_trim(d);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

TEST(donation) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 1000, 1, 1, negate), *keep = compile_floats(d, c, 1000, 1, 0, negate);
  pjrt_buffer *x = upload(d, 1000, 1), *y, *z;
  bool yes = true, no = false;
  REQUIRE_OK(pjrt_execute(e, 1, &x, &no, &y, NULL, NULL)); /* compiled to donate, not now */
  CHECK_EQ(read_at(x, 0), 1);
  REQUIRE_OK(pjrt_execute(keep, 1, &x, &yes, &z, NULL, NULL)); /* the other way round */
  CHECK_EQ(read_at(x, 0), 1);
  pjrt_buffer_free(z);
  pjrt_memory_stats before, after;
  CHECK_OK(pjrt_buffer_await(y));
  CHECK_OK(pjrt_device_memory_stats(d, &before));
  REQUIRE_OK(pjrt_execute(e, 1, &x, &yes, &z, NULL, NULL));
  CHECK_EQ(read_at(z, 999), -1000);
  CHECK_OK(pjrt_device_memory_stats(d, &after));
  CHECK_EQ(after.bytes_in_use, before.bytes_in_use); /* x became z */
  pjrt_buffer *again;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "argument 0 was deleted or donated",
              pjrt_execute(e, 1, &x, NULL, &again, NULL, NULL));
  CHECK(!again);
  float f[1000];
  CHECK_FAILS(TTPU_FAILED_PRECONDITION, "deleted or donated", pjrt_buffer_to_host(x, f, sizeof f));
  pjrt_buffer_free(x);

  x = upload(d, 1000, 5); /* a reader before, not yet run, still sees the old value */
  pjrt_buffer *first;
  REQUIRE_OK(pjrt_execute(keep, 1, &x, NULL, &first, NULL, NULL));
  pjrt_buffer_free(z);
  REQUIRE_OK(pjrt_execute(e, 1, &x, &yes, &z, NULL, NULL));
  CHECK_EQ(read_at(z, 0), -5);
  CHECK_EQ(read_at(first, 0), -5);
  pjrt_buffer_free(x);
  pjrt_buffer_free(y);
  pjrt_buffer_free(z);
  pjrt_buffer_free(first);
  pjrt_executable_free(e);
  pjrt_executable_free(keep);
  pjrt_client_free(c);
}

TEST(one_buffer_twice_donated) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 10, 2, 3, add_both);
  pjrt_buffer *x = upload(d, 10, 1), *in[2] = {x, x}, *out;
  bool yes[2] = {true, true};
  REQUIRE_OK(pjrt_execute(e, 2, in, yes, &out, NULL, NULL));
  CHECK_EQ(read_at(out, 9), 20);
  pjrt_buffer_free(x);
  pjrt_buffer_free(out);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

TEST(result_is_an_argument) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 10, 1, 0, itself);
  pjrt_buffer *x = upload(d, 10, 1), *out;
  REQUIRE_OK(pjrt_execute(e, 1, &x, NULL, &out, NULL, NULL));
  pjrt_buffer_free(x);
  CHECK_EQ(read_at(out, 9), 10);
  pjrt_buffer_free(out);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

TEST(bad_calls) {
  pjrt_client *c = open_client("topology=v5e:1x2");
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 10, 2, 0, add_both);
  pjrt_buffer *a = upload(d, 10, 1), *b = upload(d, 11, 1), *far = upload(pjrt_client_device(c, 1), 10, 1), *out;
  pjrt_buffer *wrong[2] = {a, b}, *apart[2] = {a, far};
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "argument 1 is tensor<11xf32>, the program takes tensor<10xf32>",
              pjrt_execute(e, 2, wrong, NULL, &out, NULL, NULL));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "takes 2 arguments, 1 were given",
              pjrt_execute(e, 1, wrong, NULL, &out, NULL, NULL));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "argument 1 is on TPU_1", pjrt_execute(e, 2, apart, NULL, &out, NULL, NULL));
  pjrt_buffer_free(a);
  pjrt_buffer_free(b);
  pjrt_buffer_free(far);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

static void note_status(void *context, ttpu_status status) { *(int *)context = (int)status; }

TEST(failures_travel) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *bad = compile_floats(d, c, 10, 1, 0, bad_index), *good = compile_floats(d, c, 10, 2, 0, add_both);
  pjrt_buffer *x = upload(d, 10, 1), *y, *z;
  REQUIRE_OK(pjrt_execute(bad, 1, &x, NULL, &y, NULL, NULL));
  pjrt_buffer *in[2] = {x, y};
  REQUIRE_OK(pjrt_execute(good, 2, in, NULL, &z, NULL, NULL));
  float f[10];
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7", pjrt_buffer_to_host(z, f, sizeof f));
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7", pjrt_buffer_await(y));
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7", pjrt_buffer_await(y)); /* the same each time */
  int seen = -1;
  pjrt_buffer_on_ready(z, note_status, &seen);
  CHECK_EQ(seen, TTPU_OUT_OF_RANGE);
  pjrt_buffer_free(y);
  pjrt_buffer_free(z);
  REQUIRE_OK(pjrt_execute(good, 2, (pjrt_buffer *[]){x, x}, NULL, &z, NULL, NULL)); /* and the device goes on */
  CHECK_EQ(read_at(z, 0), 2);
  pjrt_buffer_on_ready(z, note_status, &seen);
  CHECK_EQ(seen, TTPU_OK);
  pjrt_buffer_free(x);
  pjrt_buffer_free(z);
  pjrt_executable_free(bad);
  pjrt_executable_free(good);
  pjrt_client_free(c);
}

TEST(memory_runs_out_and_comes_back) {
  pjrt_client *c = open_client("hbm_bytes=8M");
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  int64_t million = 1 << 20;
  pjrt_executable *e = compile_floats(d, c, million / 2, 1, 0, negate);
  pjrt_buffer *a = upload(d, million, 0), *b = upload(d, million / 2, 0), *more = NULL, *out;
  void *zeros = calloc(4, (size_t)million);
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "out of device memory",
              pjrt_buffer_from_host(d, TTPU_F32, 1, &million, zeros, NULL, NULL, &more));
  REQUIRE_OK(pjrt_execute(e, 1, &b, NULL, &out, NULL, NULL));
  CHECK_OK(pjrt_buffer_await(out)); /* exactly full */
  pjrt_buffer *second;
  REQUIRE_OK(pjrt_execute(e, 1, &b, NULL, &second, NULL, NULL));
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "8388608", pjrt_buffer_await(second)); /* at run time, named when awaited */
  pjrt_buffer_free(second);
  pjrt_buffer_free(a);
  REQUIRE_OK(pjrt_execute(e, 1, &b, NULL, &second, NULL, NULL));
  CHECK_EQ(read_at(second, 3), -3);
  pjrt_buffer_free(second);
  pjrt_buffer_free(out);
  pjrt_buffer_free(b);
  pjrt_executable_free(e);
  free(zeros);

  int64_t large = 2 << 20; /* a program that never fits fails to compile */
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder builder = ir_builder_on(f);
  ir_value result = ir_unary(&builder, IR_NEGATE, ir_param(&builder, ir_tensor(&builder, TTPU_F32, 1, &large)));
  ir_return(&builder, 1, &result);
  CHECK_FAILS(TTPU_RESOURCE_EXHAUSTED, "the program needs", pjrt_compile(c, d, arena, f, &e));
  pjrt_client_free(c);
}

static void count_release(void *context) { atomic_fetch_add((atomic_int *)context, 1); }

TEST(host_memory_is_released) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  for (int64_t size = 0; size <= 4 << 20; size = size ? size * 8 : 1) {
    float *data = malloc((size_t)size * sizeof *data + 1);
    for (int64_t i = 0; i < size; ++i) data[i] = (float)i;
    atomic_int released = 0;
    pjrt_buffer *b;
    REQUIRE_OK(pjrt_buffer_from_host(d, TTPU_F32, 1, &size, data, count_release, &released, &b));
    CHECK_OK(pjrt_buffer_await(b));
    for (int i = 0; i < 1000 && !released; ++i) usleep(100);
    CHECK_EQ(released, 1);
    memset(data, 0xff, (size_t)size * sizeof *data);
    if (size) CHECK_EQ(read_at(b, size - 1), size - 1);
    pjrt_buffer_free(b);
    free(data);
  }
  pjrt_client_free(c);
}

TEST(copies_between_devices) {
  pjrt_client *c = open_client("topology=v5e:2x1");
  REQUIRE(c);
  pjrt_device *d[2] = {pjrt_client_device(c, 0), pjrt_client_device(c, 1)};
  pjrt_executable *e[2] = {compile_floats(d[0], c, 100, 2, 0, add_both), compile_floats(d[1], c, 100, 2, 0, add_both)};
  pjrt_buffer *x = upload(d[0], 100, 1);
  for (int i = 0; i < 20; ++i) { /* doubled, moved to the other device, doubled there, ... */
    pjrt_buffer *in[2] = {x, x}, *out, *moved;
    REQUIRE_OK(pjrt_execute(e[i % 2], 2, in, NULL, &out, NULL, NULL));
    pjrt_buffer_free(x);
    REQUIRE_OK(pjrt_buffer_copy_to_device(out, d[(i + 1) % 2], &moved));
    CHECK(pjrt_buffer_device(moved) == d[(i + 1) % 2]);
    pjrt_buffer_free(out);
    x = moved;
  }
  CHECK_EQ(read_at(x, 0), 1 << 20);
  pjrt_buffer *same;
  REQUIRE_OK(pjrt_buffer_copy_to_device(x, d[0], &same));
  pjrt_buffer_free(x);
  CHECK_EQ(read_at(same, 1), 2 << 20);
  pjrt_buffer_free(same);
  pjrt_executable_free(e[0]);
  pjrt_executable_free(e[1]);
  pjrt_client_free(c);
}

TEST(serialized_executables) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 10, 1, 1, negate), *copy = NULL;
  void *bytes;
  size_t length;
  REQUIRE_OK(pjrt_executable_serialize(e, &bytes, &length));
  pjrt_executable_free(e);
  REQUIRE_OK(pjrt_executable_deserialize(c, d, bytes, length, &copy));
  pjrt_buffer *x = upload(d, 10, 1), *out;
  bool yes = true;
  REQUIRE_OK(pjrt_execute(copy, 1, &x, &yes, &out, NULL, NULL));
  CHECK_EQ(read_at(out, 9), -10);
  CHECK(pjrt_buffer_await(x) == TTPU_FAILED_PRECONDITION); /* still compiled to donate */
  pjrt_buffer_free(x);
  pjrt_buffer_free(out);
  pjrt_executable_free(copy);
  for (size_t cut = 0; cut < length; cut += 1 + length / 50) { /* a damaged file is an error, no more */
    ttpu_status status = pjrt_executable_deserialize(c, d, bytes, cut, &copy);
    if (!CHECK(status != TTPU_OK)) pjrt_executable_free(copy);
  }
  base_free(bytes);
  pjrt_client_free(c);
}

typedef struct thread_work {
  pjrt_device *device;
  pjrt_executable *executable;
} thread_work;

static void *run_in_thread(void *argument) {
  thread_work *w = argument;
  for (int i = 0; i < 200; ++i) {
    pjrt_buffer *x = upload(w->device, 100, (float)i), *in[2] = {x, x}, *out;
    if (!CHECK_OK(pjrt_execute(w->executable, 2, in, NULL, &out, NULL, NULL))) break;
    pjrt_buffer_free(x);
    CHECK_EQ(read_at(out, 7), 2 * (i + 7));
    pjrt_buffer_free(out);
  }
  return NULL;
}

TEST(many_threads) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  thread_work work = {d, compile_floats(d, c, 100, 2, 0, add_both)};
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, run_in_thread, &work);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  pjrt_executable_free(work.executable);
  pjrt_client_free(c);
}

TEST(forked_child) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  pjrt_executable *e = compile_floats(d, c, 10, 2, 0, add_both);
  pjrt_buffer *x = upload(d, 10, 1), *in[2] = {x, x}, *out, *other;
  REQUIRE_OK(pjrt_execute(e, 2, in, NULL, &out, NULL, NULL));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool ok = pjrt_execute(e, 2, in, NULL, &other, NULL, NULL) == TTPU_UNAVAILABLE && strstr(base_message(), "forked");
    pjrt_buffer_free(x);
    pjrt_buffer_free(out);
    pjrt_executable_free(e);
    pjrt_client_free(c);
    _exit(ok ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_EQ(read_at(out, 0), 2);
  pjrt_buffer_free(x);
  pjrt_buffer_free(out);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}

/* ---- as any other plugin: programs as text, checks as one more result ------------------------------------------------ */

/* (x, index [3], ok [4]) -> x taken at index, x + 1, x * 2 with a condition beside it, and their first elements' sum. */
static pjrt_executable *compile_with_checks(pjrt_client *c, pjrt_device *d) {
  static const char take[] = "take", add[] = "add", twice[] = "twice", sum[] = "sum";
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  int64_t size = 5, three = 3, four = 4, none = 0;
  ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 1, &size)),
           index = ir_param(&b, ir_tensor(&b, TTPU_I64, 1, &three));
  ir_value wrong = ir_param(&b, ir_tensor(&b, TTPU_BOOL, 1, &four)), empty = ir_fill_i64(&b, TTPU_I64, 1, &none, 0),
           r[4];
  b.source = take;
  r[0] = ir_take(&b, x, ir_check_index(&b, index, 0, size, IR_BAD_INDEX, "take()"), 0);
  b.source = add;
  ir_check_index(&b, empty, 0, 1, IR_BAD_INDEX, "nothing to check");
  r[1] = ir_add(&b, x, ir_like_f64(&b, x, 1));
  b.source = twice;
  r[2] = ir_add(&b, x, x);
  ir_check_not(&b, wrong, IR_BAD_VALUE, "twice() does not like this");
  b.source = sum;
  r[3] = ir_add(&b, ir_slice_dim(&b, r[0], 0, 0, 1, 1), ir_slice_dim(&b, r[2], 0, 0, 1, 1));
  ir_return(&b, 4, r);
  CHECK_EQ(b.status, TTPU_OK);
  pjrt_executable *e = NULL;
  CHECK_OK(pjrt_compile(c, d, arena, f, &e));
  return e;
}

static pjrt_buffer *upload_as(pjrt_device *d, ttpu_dtype dtype, int64_t size, const void *data) {
  pjrt_buffer *b = NULL;
  CHECK_OK(pjrt_buffer_from_host(d, dtype, 1, &size, data, NULL, NULL, &b));
  return b;
}

/* The four results' outcomes for an index and a condition. */
static void check_outcomes(pjrt_executable *e, pjrt_device *d, int64_t index, bool wrong, const char *const parts[4],
                           ttpu_status end) {
  const float x[5] = {0, 10, 20, 30, 40};
  const int64_t places[3] = {1, index, index - 1};
  const bool conditions[4] = {false, false, wrong, false};
  const float expected[4] = {10, 1, 0, 10};
  pjrt_buffer *in[3] = {upload_as(d, TTPU_F32, 5, x), upload_as(d, TTPU_I64, 3, places),
                        upload_as(d, TTPU_BOOL, 4, conditions)},
              *out[4];
  int last = -1;
  REQUIRE_OK(pjrt_execute(e, 3, in, NULL, out, note_status, &last));
  for (int i = 0; i < 4; ++i) {
    float first[5];
    ttpu_status status = pjrt_buffer_to_host(out[i], first, pjrt_buffer_bytes(out[i]));
    if (parts[i]) CHECK(status != TTPU_OK && strstr(base_message(), parts[i]));
    else if (CHECK_EQ(status, TTPU_OK)) CHECK_EQ(first[0], expected[i]);
    pjrt_buffer_free(out[i]);
  }
  for (int i = 0; i < 3; ++i) pjrt_buffer_free(in[i]);
  for (int i = 0; i < 1000 && last == -1; ++i) usleep(100);
  CHECK_EQ(last, end);
}

TEST(checks_with_and_without_the_extension) {
  static const char taken[] = "take: take(): index 7 is out of range [0, 5)", liked[] = "twice: twice() does not like";
  for (int with = 0; with < 2; ++with) {
    setenv("TTPU_EXTENSION", with ? "on" : "off", 1);
    pjrt_client *c = open_client(NULL);
    REQUIRE(c);
    CHECK_EQ(pjrt_client_is_soft(c), with);
    pjrt_device *d = pjrt_client_device(c, 0);
    pjrt_executable *e = compile_with_checks(c, d);
    REQUIRE(e);
    check_outcomes(e, d, 2, false, (const char *const[]){NULL, NULL, NULL, NULL}, TTPU_OK);
    check_outcomes(e, d, 7, false, (const char *const[]){taken, NULL, NULL, taken}, TTPU_OUT_OF_RANGE);
    check_outcomes(e, d, 3, true, (const char *const[]){NULL, NULL, liked, liked}, TTPU_FAILED_PRECONDITION);
    check_outcomes(e, d, 7, true, (const char *const[]){taken, NULL, liked, taken}, TTPU_OUT_OF_RANGE);
    pjrt_executable_free(e);
    pjrt_client_free(c);
  }
  unsetenv("TTPU_EXTENSION");
}

/* Numbers to look at. */
TEST(cost_of_calls) {
  pjrt_client *c = open_client(NULL);
  REQUIRE(c);
  pjrt_device *d = pjrt_client_device(c, 0);
  enum { COUNT = 5000 };
  pjrt_executable *e = compile_floats(d, c, 4, 2, 0, add_both);
  pjrt_buffer *x = upload(d, 4, 1), *in[2] = {x, x};
  double run = 1, up = 1, down = 1;
  for (int round = 0; round < 5; ++round) {
    double start = check_seconds();
    for (int i = 0; i < COUNT; ++i) {
      pjrt_buffer *out;
      REQUIRE_OK(pjrt_execute(e, 2, in, NULL, &out, NULL, NULL));
      pjrt_buffer_await(out);
      pjrt_buffer_free(out);
    }
    run = fmin(run, (check_seconds() - start) / COUNT);
    float data[4] = {0};
    int64_t size = 4;
    start = check_seconds();
    for (int i = 0; i < COUNT; ++i) {
      pjrt_buffer *b;
      REQUIRE_OK(pjrt_buffer_from_host(d, TTPU_F32, 1, &size, data, NULL, NULL, &b));
      pjrt_buffer_free(b);
    }
    up = fmin(up, (check_seconds() - start) / COUNT);
    start = check_seconds();
    for (int i = 0; i < COUNT; ++i) pjrt_buffer_to_host(x, data, sizeof data);
    down = fmin(down, (check_seconds() - start) / COUNT);
  }
  printf("       execute and await %.0f ns, upload %.0f ns, download %.0f ns\n", run * 1e9, up * 1e9, down * 1e9);
  pjrt_buffer_free(x);
  pjrt_executable_free(e);
  pjrt_client_free(c);
}
