/* Messages on a pipe, and the reading of collectives out of a serialized program. */
#include <string.h>
#include <unistd.h>

#include "aot/worker.h"
#include "check.h"

/* ---- a program in protobuf's wire format, built inside out ---- */

static void put_field(base_text *t, unsigned number, const base_text *inside) {
  char head[8];
  size_t n = 0;
  head[n++] = (char)(number << 3 | 2);
  size_t length = inside->length;
  for (; length >= 0x80; length >>= 7) head[n++] = (char)(length | 0x80);
  head[n++] = (char)length;
  base_text_put(t, head, n);
  base_text_put(t, inside->data ? inside->data : "", inside->length);
}

static base_text message_of(const char *bytes, size_t length) {
  base_text t = {0};
  base_text_put(&t, bytes, length);
  return t;
}

/* f32[4,n] */
static base_text shape_of(char n) {
  const char bytes[] = {2 << 3, 11, 3 << 3 | 2, 2, 4, n};
  return message_of(bytes, sizeof bytes);
}

static void add_instruction(base_text *computation, const char *opcode, const base_text *shape) {
  base_text name = message_of(opcode, strlen(opcode)), instruction = {0};
  put_field(&instruction, 2, &name);
  put_field(&instruction, 3, shape);
  put_field(computation, 2, &instruction);
  base_text_free(&name);
  base_text_free(&instruction);
}

/* An all-reduce of 64 bytes, twice; the start of a gather from 64 to 128 bytes; what is no collective. */
static base_text make_program(void) {
  base_text computation = {0}, module = {0}, program = {0}, tuple = {0};
  base_text small = shape_of(4), large = shape_of(8);
  put_field(&tuple, 4, &small);
  put_field(&tuple, 4, &large);
  add_instruction(&computation, "all-reduce", &small);
  add_instruction(&computation, "add", &small);
  add_instruction(&computation, "all-reduce-start", &small);
  add_instruction(&computation, "all-reduce-done", &small);
  add_instruction(&computation, "all-gather-start", &tuple);
  put_field(&module, 3, &computation);
  put_field(&program, 1, &module);
  base_text_free(&computation);
  base_text_free(&module);
  base_text_free(&tuple);
  base_text_free(&small);
  base_text_free(&large);
  return program;
}

static void send(aot_answer *a, aot_message *m) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  CHECK_OK(aot_answer_write(a, ends[1]));
  CHECK_OK(aot_message_read(ends[0], m));
  close(ends[0]);
  close(ends[1]);
}

TEST(reads_collectives) {
  base_text program = make_program();
  aot_answer a = {0};
  CHECK_OK(aot_hlo_put_collectives(program.data, program.length, &a));
  static aot_message m;
  send(&a, &m);
  CHECK_EQ(m.count, 2);
  CHECK_STR(aot_message_text(&m, "collective:all-reduce", ""), "2 128");
  CHECK_STR(aot_message_text(&m, "collective:all-gather", ""), "1 128");
  aot_message_free(&m);
  for (size_t length = 0; length < program.length; ++length) { /* cut anywhere: an error or less of it, never more */
    aot_answer cut = {0};
    (void)aot_hlo_put_collectives(program.data, length, &cut);
    base_text_free(&cut.body);
  }
  base_text_free(&program);
}

TEST(passes_messages) {
  aot_answer a = {0};
  aot_answer_put(&a, "bytes", "a\0b", 3);
  aot_answer_printf(&a, "number", "%d", 42);
  static aot_message m;
  send(&a, &m);
  CHECK_EQ(aot_message_get(&m, "bytes")->length, 3);
  int64_t number = 0;
  CHECK_OK(aot_message_number(&m, "number", 0, 50, &number));
  CHECK_EQ(number, 42);
  CHECK_EQ(aot_message_number(&m, "number", 0, 10, &number), TTPU_INVALID_ARGUMENT);
  CHECK_EQ(aot_message_number(&m, "missing", 0, 10, &number), TTPU_INVALID_ARGUMENT);
  aot_message_free(&m);
}

/* The end of the input is no error; an end within a message is. */
TEST(refuses_broken_streams) {
  static const uint8_t bytes[] = {1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0};
  static aot_message m;
  for (size_t length = 0; length <= sizeof bytes; ++length) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(write(ends[1], bytes, length), (ssize_t)length);
    close(ends[1]);
    CHECK_EQ(aot_message_read(ends[0], &m), length == 0 ? TTPU_CANCELLED : TTPU_INVALID_ARGUMENT);
    aot_message_free(&m);
    close(ends[0]);
  }
}
