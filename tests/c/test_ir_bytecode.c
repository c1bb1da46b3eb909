/* Portable artifacts, assembled by hand: every version of the container gives the same function, and whatever is wrong
 * with the bytes is an error that says where. */
#include "check.h"
#include "ir/ir.h"

/* ---- an assembler: sections grow in texts, tables are in the order of their additions -------- */

enum { MOST = 64 };

typedef struct assembler {
  int version;
  const char *strings[MOST];
  base_text entries, offsets, types, type_offsets, properties, ir;
  uint32_t string_count, attribute_count, type_count, property_count;
} assembler;

static void put_byte(base_text *t, unsigned byte) { base_text_put(t, &(char){(char)byte}, 1); }

static void put_varint(base_text *t, uint64_t v) {
  int bytes = 1;
  while (bytes < 9 && v >> (7 * bytes)) ++bytes;
  if (bytes == 9) {
    put_byte(t, 0);
    base_text_put(t, (const char *)&v, 8);
    return;
  }
  v = (v << 1 | 1) << (bytes - 1);
  base_text_put(t, (const char *)&v, (size_t)bytes);
}

static void put_text(base_text *to, const base_text *t) { base_text_put(to, t->data, t->length); }

static uint32_t string(assembler *a, const char *text) {
  for (uint32_t i = 0; i < a->string_count; ++i)
    if (strcmp(a->strings[i], text) == 0) return i;
  a->strings[a->string_count] = text;
  return a->string_count++;
}

enum { BUILTIN, VHLO }; /* dialects, in this order in every file here */

/* An attribute or a type: numbers, each a varint. */
static uint32_t entry(assembler *a, bool type, uint32_t dialect, uint32_t count, const uint64_t *numbers) {
  base_text bytes = {0}, *offsets = type ? &a->type_offsets : &a->offsets;
  for (uint32_t i = 0; i < count; ++i) put_varint(&bytes, numbers[i]);
  put_text(type ? &a->types : &a->entries, &bytes);
  put_varint(offsets, dialect);
  put_varint(offsets, 1);
  put_varint(offsets, bytes.length << 1 | 1);
  base_text_free(&bytes);
  return type ? a->type_count++ : a->attribute_count++;
}
#define NUMBERS(...) \
  sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]) { __VA_ARGS__ }
#define ATTRIBUTE(dialect, ...) entry(a, false, dialect, NUMBERS(__VA_ARGS__))
#define TYPE(dialect, ...) entry(a, true, dialect, NUMBERS(__VA_ARGS__))

static void put_section(base_text *out, unsigned id, const base_text *bytes) {
  put_byte(out, id);
  put_varint(out, bytes->length);
  put_text(out, bytes);
}

static base_text finish(assembler *a, uint32_t op_count, const char *const *op_names) {
  base_text out = {0}, strings = {0}, dialects = {0}, offsets = {0}, body = {0};
  uint32_t names[MOST], builtin = string(a, "builtin"), vhlo = string(a, "vhlo");
  for (uint32_t i = 0; i < op_count; ++i) names[i] = string(a, op_names[i]);
  put_varint(&strings, a->string_count);
  for (uint32_t i = a->string_count; i-- > 0;) put_varint(&strings, strlen(a->strings[i]) + 1);
  for (uint32_t i = 0; i < a->string_count; ++i) base_text_put(&strings, a->strings[i], strlen(a->strings[i]) + 1);
  put_varint(&dialects, 2);
  put_varint(&dialects, a->version >= 1 ? builtin << 1 : builtin);
  put_varint(&dialects, a->version >= 1 ? vhlo << 1 : vhlo);
  if (a->version >= 4) put_varint(&dialects, op_count);
  for (uint32_t i = 0; i < op_count; ++i) { /* "module" first, then VHLO's */
    if (i < 2) put_varint(&dialects, i ? VHLO : BUILTIN), put_varint(&dialects, i ? op_count - 1 : 1);
    put_varint(&dialects, a->version >= 5 ? names[i] << 1 | 1 : names[i]);
  }
  put_varint(&offsets, a->attribute_count);
  put_varint(&offsets, a->type_count);
  put_text(&offsets, &a->offsets);
  put_text(&offsets, &a->type_offsets);
  put_text(&a->entries, &a->types);
  base_text_put(&out, "ML\xefR", 4);
  put_varint(&out, (uint64_t)a->version);
  base_text_put(&out, "hand", 5);
  put_section(&out, 0, &strings);
  put_section(&out, 1, &dialects);
  put_section(&out, 2, &a->entries);
  put_section(&out, 3, &offsets);
  put_section(&out, 4, &a->ir);
  if (a->version >= 5) {
    put_varint(&body, a->property_count);
    put_text(&body, &a->properties);
    put_section(&out, 8, &body);
  }
  base_text *all[] = {&strings,  &dialects,        &offsets,       &body,  &a->entries,
                      &a->types, &a->type_offsets, &a->properties, &a->ir, &a->offsets};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) base_text_free(all[i]);
  return out;
}

/* ---- a program ------------------------------------------------------------------------------ */

enum { OP_MODULE, OP_FUNC, OP_ADD, OP_CALL, OP_RETURN, OP_COUNT };
static const char *const op_names[OP_COUNT] = {"module", "func_v1", "add_v1", "call_v1", "return_v1"};
enum { LOCATION = 0, TENSOR_TYPE = 1 };

/* Attributes of an operation by name, the names in alphabetical order: properties, or a dictionary in older versions. */
static void put_attributes(assembler *a, base_text *ir, uint32_t count, const char *const *names,
                           const uint32_t *values) {
  base_text bytes = {0};
  if (a->version >= 5) {
    for (uint32_t i = 0; i < count; ++i) put_varint(&bytes, values[i]);
    put_varint(&a->properties, bytes.length);
    put_text(&a->properties, &bytes);
    put_varint(ir, a->property_count++);
    base_text_free(&bytes);
    return;
  }
  uint64_t numbers[2 + 2 * 5] = {1, count}; /* DictionaryAttr */
  for (uint32_t i = 0; i < count; ++i) {
    numbers[2 + 2 * i] = ATTRIBUTE(BUILTIN, 2, string(a, names[i]));
    numbers[3 + 2 * i] = values[i];
  }
  put_varint(ir, entry(a, false, BUILTIN, 2 + 2 * count, numbers));
}

static void put_head(base_text *ir, unsigned name, unsigned parts) {
  put_varint(ir, name);
  put_byte(ir, parts);
  put_varint(ir, LOCATION);
}

static void put_list(base_text *ir, uint32_t count, const uint64_t *numbers) {
  put_varint(ir, count);
  for (uint32_t i = 0; i < count; ++i) put_varint(ir, numbers[i]);
}
#define LIST(ir, ...) put_list(ir, NUMBERS(__VA_ARGS__))

/* How many values the function's region has, how many parameters and operations. */
static void begin_function(assembler *a, base_text *ir, const char *name, bool private, uint32_t values,
                           uint32_t parameters, uint32_t operations) {
  static const char *const names[] = {"arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility"};
  uint32_t none = ATTRIBUTE(VHLO, 1, 0); /* an array */
  uint32_t donor = ATTRIBUTE(VHLO, 14, string(a, "jax.buffer_donor")), yes = ATTRIBUTE(VHLO, 2, 1),
           dict = ATTRIBUTE(VHLO, 6, 1, donor, yes), arguments = ATTRIBUTE(VHLO, 1, 1, dict),
           type = ATTRIBUTE(VHLO, 17, TENSOR_TYPE), symbol = ATTRIBUTE(VHLO, 14, string(a, name)),
           visible = ATTRIBUTE(VHLO, 14, string(a, private ? "private" : "public"));
  put_head(ir, OP_FUNC, 16 | (a->version >= 5 ? 64 : 1));
  put_attributes(a, ir, 5, names, (uint32_t[]){private ? none : arguments, type, none, symbol, visible});
  put_varint(ir, 1 << 1); /* one region, not isolated */
  put_varint(ir, 1);      /* one block */
  put_varint(ir, values);
  put_varint(ir, operations << 1 | 1);
  put_varint(ir, parameters);
  for (uint32_t i = 0; i < parameters; ++i) {
    put_varint(ir, a->version >= 4 ? TENSOR_TYPE << 1 : TENSOR_TYPE);
    if (a->version < 4) put_varint(ir, LOCATION);
  }
  if (a->version >= 3) put_byte(ir, 0); /* no use list's order */
}

/* main(a donated, b) = twice(a + b); twice(x) = x + x. */
static base_text assemble(int version) {
  assembler assembling = {.version = version}, *a = &assembling;
  base_text functions = {0}, module = {0}, *ir = &functions;
  ATTRIBUTE(BUILTIN, 15);       /* LOCATION: unknown */
  TYPE(VHLO, 4);                /* f32 */
  TYPE(VHLO, 20, 1, 2 << 1, 0); /* TENSOR_TYPE: tensor<2xf32> */

  begin_function(a, ir, "main", false, 4, 2, 3);
  put_head(ir, OP_ADD, 2 | 4);
  LIST(ir, TENSOR_TYPE);
  LIST(ir, 0, 1);
  put_head(ir, OP_CALL, 2 | 4 | (version >= 5 ? 64 : 1));
  put_attributes(a, ir, 1, (const char *[]){"callee"}, (uint32_t[]){ATTRIBUTE(VHLO, 14, string(a, "twice"))});
  LIST(ir, TENSOR_TYPE);
  LIST(ir, 2);
  put_head(ir, OP_RETURN, 4);
  LIST(ir, 3);

  begin_function(a, ir, "twice", true, 2, 1, 2);
  put_head(ir, OP_ADD, 2 | 4 | (version >= 3 ? 32 : 0));
  LIST(ir, TENSOR_TYPE);
  LIST(ir, 0, 0);
  if (version >= 3) LIST(ir, 0, 1), ir->data[ir->length - 3] = (char)(2 << 1 << 1 | 1); /* an order of two uses */
  put_head(ir, OP_RETURN, 4);
  LIST(ir, 1);

  put_varint(&module, 1); /* one block */
  put_varint(&module, 0); /* no values */
  put_varint(&module, 2 << 1);
  put_text(&module, &functions);
  put_varint(&a->ir, 1 << 1); /* the file's block: one operation, the module */
  put_head(&a->ir, OP_MODULE, 16);
  put_varint(&a->ir, 1 << 1 | 1); /* one region, isolated */
  if (version >= 2) put_section(&a->ir, 4, &module);
  else put_text(&a->ir, &module);
  base_text_free(&functions);
  base_text_free(&module);
  return finish(a, OP_COUNT, op_names);
}

static const char expected[] =
    "module {\n"
    "  func.func public @main(%1: tensor<2xf32> {jax.buffer_donor = true}, %2: tensor<2xf32>) -> (tensor<2xf32>) {\n"
    "    %3 = \"stablehlo.add\"(%1, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
    "    %4 = \"stablehlo.add\"(%3, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
    "    \"func.return\"(%4) : (tensor<2xf32>) -> ()\n"
    "  }\n"
    "}\n";

TEST(every_version_of_the_container_is_read) {
  for (int version = 0; version <= 6; ++version) {
    base_arena arena;
    base_arena_init(&arena);
    base_text bytes = assemble(version), text = {0};
    ir_func *f;
    if (CHECK_OK(ir_parse(&arena, bytes.data, bytes.length, &f)) && CHECK_OK(ir_func_print(f, &text)))
      CHECK_STR(text.data, expected);
    base_text_free(&text);
    base_text_free(&bytes);
    base_arena_free(&arena);
  }
}

TEST(a_newer_container_is_refused) {
  base_arena arena;
  base_arena_init(&arena);
  base_text bytes = assemble(6);
  ir_func *f;
  bytes.data[4] = 7 << 1 | 1;
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "version 7", ir_parse(&arena, bytes.data, bytes.length, &f));
  base_text_free(&bytes);
  base_arena_free(&arena);
}

/* Reads a copy that ends where the bytes do, so that a sanitizer sees any step behind it. */
static ttpu_status parse_copy(const char *bytes, size_t length) {
  base_arena arena;
  base_arena_init(&arena);
  char *copy = malloc(length ? length : 1);
  ir_func *f;
  memcpy(copy, bytes, length);
  ttpu_status status = ir_parse(&arena, copy, length, &f);
  free(copy);
  base_arena_free(&arena);
  return status;
}

TEST(a_file_that_ends_early_is_an_error) {
  for (int version = 0; version <= 6; ++version) {
    base_text bytes = assemble(version);
    for (size_t length = 0; length < bytes.length; ++length) {
      ttpu_status status = parse_copy(bytes.data, length);
      if (status == TTPU_OK) check_fail(__FILE__, __LINE__, "version %d, %zu bytes: read", version, length);
      if (length > 4 && !strstr(base_message(), "byte ")) check_fail(__FILE__, __LINE__, "%s", base_message());
    }
    base_text_free(&bytes);
  }
}

/* Each bit turned over, and each byte made 0. */
TEST(a_wrong_byte_never_crashes) {
  for (int version = 0; version <= 6; ++version) {
    base_text bytes = assemble(version);
    for (size_t i = 0; i < bytes.length; ++i)
      for (int bit = 0; bit < 9; ++bit) {
        char was = bytes.data[i];
        bytes.data[i] = (char)(bit == 8 ? 0 : was ^ 1 << bit);
        parse_copy(bytes.data, bytes.length);
        bytes.data[i] = was;
      }
    base_text_free(&bytes);
  }
}

static ttpu_status parse_whole(void *argument) {
  const base_text *bytes = argument;
  return parse_copy(bytes->data, bytes->length);
}

TEST(out_of_memory_is_a_status) {
  base_text bytes = assemble(6);
  CHECK(check_out_of_memory(parse_whole, &bytes) > 0);
  base_text_free(&bytes);
}

/* A program whose one function returns a value of `type`, made of the entries that were added before. */
static ttpu_status parse_with_type(assembler *a, uint32_t type) {
  base_text functions = {0}, module = {0}, *ir = &functions;
  base_arena arena;
  base_arena_init(&arena);
  put_head(ir, OP_FUNC, 16 | 64);
  uint32_t name = ATTRIBUTE(VHLO, 14, string(a, "main"));
  put_attributes(a, ir, 5, NULL, (uint32_t[]){name, name, name, name, name});
  put_varint(ir, 1 << 1);
  put_varint(ir, 1);
  put_varint(ir, 1);
  put_varint(ir, 1 << 1 | 1);
  LIST(ir, type << 1);
  put_byte(ir, 0);
  put_head(ir, OP_RETURN, 4);
  LIST(ir, 0);
  put_varint(&module, 1);
  put_varint(&module, 0);
  put_varint(&module, 1 << 1);
  put_text(&module, &functions);
  put_varint(&a->ir, 1 << 1);
  put_head(&a->ir, OP_MODULE, 16);
  put_varint(&a->ir, 1 << 1 | 1);
  put_section(&a->ir, 4, &module);
  base_text bytes = finish(a, OP_COUNT, op_names);
  ir_func *f;
  ttpu_status status = ir_parse(&arena, bytes.data, bytes.length, &f);
  base_text_free(&bytes);
  base_text_free(&functions);
  base_text_free(&module);
  base_arena_free(&arena);
  return status;
}

TEST(a_type_inside_itself_is_an_error) {
  assembler assembling = {.version = 6}, *a = &assembling;
  ATTRIBUTE(BUILTIN, 15);
  TYPE(VHLO, 1, 1); /* complex of the next */
  TYPE(VHLO, 1, 0); /* complex of the one before */
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "a part of itself", parse_with_type(a, 0));
}

TEST(types_nested_deeply_are_an_error) {
  assembler assembling = {.version = 6}, *a = &assembling;
  ATTRIBUTE(BUILTIN, 15);
  for (uint64_t i = 0; i < 1000; ++i) TYPE(VHLO, 1, i + 1);
  TYPE(VHLO, 4);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "nested more than", parse_with_type(a, 0));
}

/* Each of these is twice as long as the one before. */
TEST(types_whose_text_explodes_are_an_error) {
  assembler assembling = {.version = 6}, *a = &assembling;
  ATTRIBUTE(BUILTIN, 15);
  TYPE(VHLO, 4);
  for (uint64_t i = 0; i < 60; ++i) TYPE(VHLO, 23, 2, i, i);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "too long", parse_with_type(a, 60));
}

TEST(an_unknown_type_names_its_code) {
  assembler assembling = {.version = 6}, *a = &assembling;
  ATTRIBUTE(BUILTIN, 15);
  TYPE(VHLO, 99);
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "VHLO type 99 is unknown", parse_with_type(a, 0));
}
