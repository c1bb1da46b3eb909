/* What saved models are read from: JSON, safetensors, .npy and manifests. */
#include <unistd.h>

#include "check.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/npy.h"
#include "model/safetensors.h"

static base_arena arena;

static const json_value *parse(const char *text) {
  const json_value *v = NULL;
  base_arena_reset(&arena);
  return json_parse(&arena, text, strlen(text), &v) == TTPU_OK ? v : NULL;
}

/* ---- JSON ---- */

TEST(json_values) {
  const json_value *v = parse(" {\"a\": [1, -2.5e1, true, false, null], \"b\": {\"c\": \"x\"}, \"d\": 0} ");
  REQUIRE(v);
  CHECK_EQ(v->count, 3);
  const json_value *a = json_member(v, "a");
  CHECK_EQ(a->count, 5);
  CHECK(a->first->is_integer && a->first->integer == 1);
  CHECK(!a->first->next->is_integer);
  CHECK_NEAR(a->first->next->number, -25, 0);
  CHECK(a->first->next->next->is_true);
  CHECK_STR(json_text(json_member(json_member(v, "b"), "c")), "x");
  CHECK(json_member(v, "e") == NULL && json_member(a, "a") == NULL && json_text(a) == NULL);
}

TEST(json_strings) {
  CHECK_STR(json_text(parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"")), "\"\\/\b\f\n\r\tA");
  CHECK_STR(json_text(parse("\"\\u00e9\\u20ac\\ud83d\\ude00\"")), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK_STR(json_text(parse("\"\xc3\xa9\xf0\x9f\x98\x80\"")), "\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(json_numbers) {
  CHECK_EQ(parse("9223372036854775807")->integer, INT64_MAX);
  CHECK_EQ(parse("-9223372036854775808")->integer, INT64_MIN);
  CHECK(!parse("9223372036854775808")->is_integer);
  CHECK(!parse("1.0")->is_integer && !parse("1e3")->is_integer);
  CHECK_NEAR(parse("1.5E+2")->number, 150, 0);
}

TEST(json_refuses) {
  static const char *const wrong[] = {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "[1 2]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{\"a\":1,}",
                                      "01",
                                      "1.",
                                      ".5",
                                      "-",
                                      "1e",
                                      "+1",
                                      "nul",
                                      "tru",
                                      "\"",
                                      "\"\\",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u0000\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\x01\"",
                                      "\"\xff\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xe2\x82\"",
                                      "1 2",
                                      "[1]]",
                                      "NaN",
                                      "Infinity",
                                      "'a'",
                                      "[\"a\" \"b\"]"};
  const json_value *v;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    base_arena_reset(&arena);
    if (!CHECK(json_parse(&arena, wrong[i], strlen(wrong[i]), &v) == TTPU_INVALID_ARGUMENT))
      fprintf(stderr, "    it was %s\n", wrong[i]);
  }
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "byte 3", json_parse(&arena, "[1,x]", 5, &v));
  char deep[200];
  memset(deep, '[', sizeof deep);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "inside of each other", json_parse(&arena, deep, sizeof deep, &v));
}

/* ---- safetensors and npy ---- */

static char path[64];

static const char *temporary(void) {
  strcpy(path, "/tmp/test_model_XXXXXX");
  int fd = mkstemp(path);
  if (fd >= 0) close(fd);
  return path;
}

static void write_bytes(const char *to, const void *bytes, size_t length) {
  FILE *file = fopen(to, "wb");
  CHECK(file && fwrite(bytes, 1, length, file) == length);
  if (file) fclose(file);
}

TEST(safetensors_round_trip) {
  const float f[] = {1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {2, 3}, scalar = 7, none[] = {0, 5};
  const ttpu_tensor tensors[] = {{"a\"\\\n\xc3\xa9", "float32", 2, dims, f, sizeof f},
                                 {"b", "int64", 0, NULL, &scalar, sizeof scalar},
                                 {"c", "bfloat16", 2, none, f, 0}};
  safetensors s;
  CHECK_OK(safetensors_write(temporary(), 3, tensors));
  CHECK_OK(safetensors_open(path, &s));
  CHECK_EQ(s.count, 3);
  const ttpu_tensor *a = safetensors_find(&s, "a\"\\\n\xc3\xa9");
  REQUIRE(a && a->rank == 2 && a->dims[1] == 3);
  CHECK_STR(a->dtype, "float32");
  CHECK(memcmp(a->data, f, sizeof f) == 0);
  CHECK(safetensors_find(&s, "b")->rank == 0 && safetensors_find(&s, "c")->bytes == 0 && !safetensors_find(&s, "d"));
  safetensors_close(&s);
  const ttpu_tensor wide = {"d", "complex128", 0, NULL, f, 16};
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "complex128", safetensors_write(path, 1, &wide));
  unlink(path);
}

static void refuse_header(const char *header, uint64_t says, const char *message) {
  uint8_t bytes[512];
  safetensors s;
  size_t length = strlen(header);
  for (int i = 0; i < 8; ++i) bytes[i] = (uint8_t)(says >> 8 * i);
  memcpy(bytes + 8, header, length);
  memset(bytes + 8 + length, 0, 8); /* eight bytes of data */
  write_bytes(temporary(), bytes, length + 16);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, message, safetensors_open(path, &s));
  safetensors_close(&s);
  unlink(path);
}

static void refuse_tensor(const char *tensor, const char *message) {
  char header[256];
  snprintf(header, sizeof header, "{\"a\":%s}", tensor);
  refuse_header(header, strlen(header), message);
}

TEST(safetensors_refuses) {
  refuse_header("{}", UINT64_MAX, "a header of");
  refuse_header("{}", 11, "a header of 11 bytes in a file of 18");
  refuse_header("[]", 2, "no object");
  refuse_tensor("1", "no dtype that is known: (none)");
  refuse_tensor("{\"dtype\":\"F7\",\"shape\":[],\"data_offsets\":[0,4]}", "no dtype that is known: F7");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}", "no shape");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}", "no shape");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}", "outside of the file's data");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", "outside of the file's data");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", "outside of the file's data");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}", "has 8 bytes");
  refuse_tensor("{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}", "has 0 bytes");
  safetensors s;
  CHECK_FAILS(TTPU_NOT_FOUND, "/no/such", safetensors_open("/no/such", &s));
  safetensors_close(&s);
}

TEST(npy_round_trip) {
  const int16_t numbers[] = {1, -2, 3, -4, 5, -6};
  const int64_t dims[] = {1, 6};
  for (uint32_t rank = 0; rank <= 2; ++rank) {
    ttpu_tensor t = {"x", "int16", rank, rank == 1 ? dims + 1 : dims, numbers, rank ? sizeof numbers : 2}, back = {0};
    CHECK_OK(npy_write(temporary(), &t));
    base_arena_reset(&arena);
    CHECK_OK(npy_read(&arena, path, &back));
    CHECK(back.rank == rank && back.bytes == t.bytes && memcmp(back.data, numbers, t.bytes) == 0);
    CHECK_STR(back.dtype, "int16");
    unlink(path);
  }
  const ttpu_tensor half = {"x", "bfloat16", 0, NULL, numbers, 2};
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "bfloat16", npy_write("/tmp/never", &half));
}

TEST(npy_refuses) {
  static const char *const headers[] = {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
                                        "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, x), }",
                                        "{'descr': '<f4', 'fortran_order': False}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
                                        "{}",
                                        ""};
  static const char *const messages[] = {"its type",  "Fortran's",  "its shape", "its shape", "ends early",
                                         "its shape", "ends early", "its type",  "its type"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; ++i) {
    uint8_t bytes[256] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)strlen(headers[i]), 0};
    memcpy(bytes + 10, headers[i], strlen(headers[i]));
    write_bytes(temporary(), bytes, 14 + strlen(headers[i]));
    ttpu_tensor t;
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, messages[i], npy_read(&arena, path, &t));
    unlink(path);
  }
}

/* ---- manifests ---- */

#define HEAD "{\"format\":\"ttpu model\",\"version\":1,\"program\":\"p\",\"weights\":\"w\","
#define VALUE(name, role) "{\"name\":\"" name "\",\"role\":\"" role "\",\"dtype\":\"int64\",\"shape\":[4]}"

static ttpu_status read_manifest(const char *text, model_manifest *m) {
  base_arena_reset(&arena);
  return model_manifest_read(&arena, text, strlen(text), m);
}

TEST(manifest_roles) {
  model_manifest m;
  REQUIRE(CHECK_OK(read_manifest(
      HEAD "\"arguments\":[" VALUE("x", "input") "," VALUE("w", "weight") "," VALUE("s", "state") "," VALUE(
          "r", "random") "],\"results\":[" VALUE("s", "state") "," VALUE("y",
                                                                         "output") "],\"random\":{\"slots\":[0,2],"
                                                                                   "\"drawn\":5},\"metadata\":{\"a\":"
                                                                                   "\"b\"}}",
      &m)));
  CHECK(m.argument_count == 4 && m.input_count == 1 && m.state_count == 1 && m.output_count == 1);
  CHECK(m.results[0].state == 2 && m.results[1].state == -1);
  CHECK(m.random_count == 2 && m.random_slots[1] == 2 && m.random_drawn == 5);
  CHECK_STR(m.outputs[0].name, "y");
  CHECK_EQ(m.inputs[0].bytes, 32);
}

TEST(manifest_refuses) {
  model_manifest m;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "\"format\"", read_manifest("{}", &m));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "no list of arguments", read_manifest(HEAD "\"results\":[]}", &m));
  CHECK_FAILS(
      TTPU_INVALID_ARGUMENT, "two inputs are named x",
      read_manifest(HEAD "\"arguments\":[" VALUE("x", "input") "," VALUE("x", "input") "],\"results\":[]}", &m));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "a state has no result",
              read_manifest(HEAD "\"arguments\":[" VALUE("x", "state") "],\"results\":[]}", &m));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "random numbers",
              read_manifest(HEAD "\"arguments\":[" VALUE("x", "random") "],\"results\":[],\"random\":{\"slots\":[3],"
                                                                        "\"drawn\":1}}",
                            &m));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "random numbers",
              read_manifest(HEAD "\"arguments\":[" VALUE("x", "random") "],\"results\":[]}", &m));
  static const char *const far_slots[] = {"4294967296", "9223372036854775807"};
  for (int i = 0; i < 2; ++i) {
    char text[512];
    snprintf(text, sizeof text,
             HEAD
             "\"arguments\":[{\"name\":\"x\",\"role\":\"random\",\"dtype\":\"int64\",\"shape\":[1152921504606846975]}],"
             "\"results\":[],\"random\":{\"slots\":[%s],\"drawn\":1}}",
             far_slots[i]);
    CHECK_FAILS(TTPU_INVALID_ARGUMENT, "random numbers", read_manifest(text, &m));
  }
}

/* States by name and type, in an order of their own. */
TEST(manifest_of_many) {
  enum { MANY = 30000 };
  model_manifest m;
  base_text text = {0};
  base_text_printf(&text, HEAD "\"arguments\":[");
  for (int i = 0; i < MANY; ++i)
    base_text_printf(&text, "%s{\"name\":\"s%d\",\"role\":\"state\",\"dtype\":\"int64\",\"shape\":[]}", i ? "," : "",
                     i);
  base_text_printf(&text, "],\"results\":[");
  for (int i = MANY - 1; i >= 0; --i)
    base_text_printf(&text, "%s{\"name\":\"s%d\",\"role\":\"state\",\"dtype\":\"int64\",\"shape\":[]}",
                     i < MANY - 1 ? "," : "", i);
  base_text_printf(&text, "]}");
  REQUIRE(CHECK_OK(read_manifest(text.data, &m)));
  CHECK_EQ(m.state_count, MANY);
  for (int i = 0; i < MANY; ++i)
    if (m.results[i].state != MANY - 1 - i)
      check_fail(__FILE__, __LINE__, "result %d is state %d", i, m.results[i].state);
  base_text_free(&text);
}

/* ---- out of memory ---- */

TEST(allocation_failures) {
  static const char text[] = HEAD "\"arguments\":[" VALUE("x", "input") "],\"results\":[" VALUE("y", "output") "]}";
  ttpu_status status = TTPU_RESOURCE_EXHAUSTED;
  uint64_t nth = 1;
  for (; status != TTPU_OK && nth < 100; ++nth) {
    base_arena own;
    model_manifest m;
    base_arena_init(&own);
    base_alloc_fail_after(nth);
    status = model_manifest_read(&own, text, sizeof text - 1, &m);
    base_alloc_fail_after(0);
    base_arena_free(&own);
    CHECK(status == TTPU_OK || status == TTPU_RESOURCE_EXHAUSTED);
  }
  CHECK(status == TTPU_OK && nth > 1);
}
