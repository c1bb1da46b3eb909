/* The reader of MLIR's syntax below operations: see parse_int.h. */
#include <ctype.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/parse_int.h"

#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)

bool text_fail(text_reader *t, ttpu_status code, const char *format, ...) {
  if (t->status) return false;
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  int shown = t->operation.length > 60 ? 60 : (int)t->operation.length;
  if (t->binary) {
    t->status = base_fail(code, "byte %zu%s%.*s: %s", (size_t)(t->at - t->start), shown ? ", " : "", shown,
                          shown ? t->operation.data : "", message);
    return false;
  }
  unsigned line = 1;
  const char *line_start = t->start;
  for (const char *c = t->start; c < t->at; ++c)
    if (*c == '\n') ++line, line_start = c + 1;
  t->status = base_fail(code, "line %u, column %u%s%.*s: %s", line, (unsigned)(t->at - line_start) + 1,
                        shown ? ", " : "", shown, shown ? t->operation.data : "", message);
  return false;
}

bool text_no_memory(text_reader *t) { return text_fail(t, TTPU_RESOURCE_EXHAUSTED, "out of host memory"); }

void *text_room(text_reader *t, size_t bytes) {
  void *memory = base_arena_zalloc(t->scratch, bytes ? bytes : 1);
  if (!memory) text_no_memory(t);
  return memory;
}

#define FAIL(...) return text_fail(t, TTPU_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- characters ----------------------------------------------------------------------------- */

static bool is_word_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.'; }

bool text_is(text_slice s, const char *literal) {
  return strlen(literal) == s.length && memcmp(s.data, literal, s.length) == 0;
}

void text_space(text_reader *t) {
  while (t->at < t->end) {
    char c = *t->at;
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++t->at;
    } else if (c == '/' && t->end - t->at > 1 && t->at[1] == '/') {
      const char *line_end = memchr(t->at, '\n', (size_t)(t->end - t->at));
      t->at = line_end ? line_end : t->end;
    } else {
      return;
    }
  }
}

bool text_peek(text_reader *t, const char *literal) {
  text_space(t);
  size_t n = strlen(literal);
  if (!text_ok(t) || (size_t)(t->end - t->at) < n || memcmp(t->at, literal, n) != 0) return false;
  bool word = is_word_char(literal[n - 1]);
  return !(word && t->at + n < t->end && is_word_char(t->at[n]));
}

bool text_take(text_reader *t, const char *literal) {
  if (!text_peek(t, literal)) return false;
  t->at += strlen(literal);
  return true;
}

bool text_expect(text_reader *t, const char *literal) {
  if (text_take(t, literal)) return true;
  if (t->at >= t->end) FAIL("expected '%s', but the text ends", literal);
  FAIL("expected '%s', found '%c'", literal, isprint((unsigned char)*t->at) ? *t->at : '?');
}

bool text_word(text_reader *t, text_slice *out) {
  text_space(t);
  const char *from = t->at;
  while (t->at < t->end && is_word_char(*t->at)) ++t->at;
  *out = (text_slice){from, (size_t)(t->at - from)};
  if (t->at == from) FAIL("expected a name");
  return text_ok(t);
}

bool text_string(text_reader *t, text_slice *out) {
  TRY(text_expect(t, "\""));
  const char *from = t->at, *close = from;
  while (close < t->end && *close != '"') close += *close == '\\' && close + 1 < t->end ? 2 : 1;
  if (close >= t->end) FAIL("a string does not end");
  char *copy = base_arena_alloc(t->scratch, (size_t)(close - from) + 1);
  if (!copy) return text_no_memory(t);
  size_t n = 0;
  for (const char *c = from; c < close; ++c) {
    if (*c != '\\') {
      copy[n++] = *c;
    } else if (close - c > 2 && isxdigit((unsigned char)c[1]) && isxdigit((unsigned char)c[2])) {
      const char digits[3] = {c[1], c[2], 0};
      copy[n++] = (char)strtol(digits, NULL, 16);
      c += 2;
    } else {
      ++c;
      copy[n++] = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
    }
  }
  copy[n] = 0;
  *out = (text_slice){copy, n};
  t->at = close + 1;
  return true;
}

bool text_symbol(text_reader *t, text_slice *out) {
  TRY(text_expect(t, "@"));
  return t->at < t->end && *t->at == '"' ? text_string(t, out) : text_word(t, out);
}

/* Digits with a sign, or 0x...; what does not fit 64 bits is an error. */
bool text_integer(text_reader *t, int64_t *out) {
  text_space(t);
  bool negative = t->at < t->end && *t->at == '-';
  if (negative) ++t->at;
  int base = 10;
  if (t->end - t->at > 2 && t->at[0] == '0' && t->at[1] == 'x' && isxdigit((unsigned char)t->at[2]))
    base = 16, t->at += 2;
  const char *from = t->at;
  uint64_t v = 0;
  for (; t->at < t->end; ++t->at) {
    char c = *t->at;
    int digit = c >= '0' && c <= '9' ? c - '0' : base == 16 && isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) break;
    if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)digit, &v))
      FAIL("a number does not fit 64 bits");
  }
  if (t->at == from) FAIL("expected an integer");
  if (negative && v > (uint64_t)INT64_MAX + 1) FAIL("a number does not fit 64 bits");
  *out = (int64_t)(negative ? 0 - v : v);
  return text_ok(t);
}

/* From a quote to behind the one that closes it. */
static void skip_quoted(text_reader *t) {
  for (++t->at; t->at < t->end && *t->at != '"'; ++t->at)
    if (*t->at == '\\' && t->end - t->at > 1) ++t->at;
  if (t->at < t->end) ++t->at;
}

bool text_skip_balanced(text_reader *t) {
  int depth = 0;
  text_space(t);
  do {
    text_space(t);
    if (t->at >= t->end) FAIL("a bracket is not closed");
    char c = *t->at;
    if (c == '"') {
      skip_quoted(t);
      continue;
    }
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
    if (t->at < t->end) ++t->at;
  } while (depth > 0);
  return true;
}

/* <...>, where `->` closes nothing. */
static bool skip_angles(text_reader *t) {
  int depth = 0;
  do {
    text_space(t);
    if (t->at >= t->end) FAIL("'<' is not closed");
    char c = *t->at;
    if (c == '"') {
      skip_quoted(t);
      continue;
    }
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (c == '-' && t->end - t->at > 1 && t->at[1] == '>') ++t->at;
    if (t->at < t->end) ++t->at;
  } while (depth > 0);
  return true;
}

bool text_skip_location(text_reader *t) {
  if (!text_take(t, "loc")) return text_ok(t);
  text_space(t);
  if (t->at >= t->end || *t->at != '(') FAIL("expected '(' after loc");
  return text_skip_balanced(t);
}

/* ---- types ---------------------------------------------------------------------------------- */

/* Digits, as far as they go. */
static bool read_size(text_reader *t, int64_t *out) {
  int64_t v = 0;
  for (; t->at < t->end && isdigit((unsigned char)*t->at); ++t->at)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *t->at - '0', &v))
      FAIL("a dimension does not fit 64 bits");
  *out = v;
  return true;
}

static ttpu_dtype dtype_of(text_slice name) {
  if (text_is(name, "index")) return TTPU_I64;                                                   /* of shapes */
  if (name.length > 2 && name.data[0] == 's' && name.data[1] == 'i') ++name.data, --name.length; /* si8 */
  return base_dtype_from_hlo(name.data, name.length);
}

static bool read_dtype(text_reader *t, ttpu_dtype *out) {
  text_space(t);
  const char *from = t->at;
  while (t->at < t->end && is_word_char(*t->at)) ++t->at;
  if (t->at < t->end && *t->at == '<') TRY(skip_angles(t)); /* complex<f32> */
  text_slice name = {from, (size_t)(t->at - from)};
  *out = dtype_of(name);
  if (*out == TTPU_NO_DTYPE) {
    t->at = from;
    return text_fail(t, TTPU_UNIMPLEMENTED, "element type '%.*s' is not supported",
                     (int)(name.length > 40 ? 40 : name.length), from);
  }
  return true;
}

static bool read_real(text_reader *t, double *out);

/* scale, scale:zero, or {scale:zero, ...}; per-axis lists grow in scratch. */
static bool read_scales(text_reader *t, quantization *q) {
  uint32_t capacity = 0;
  double *scales = NULL;
  int64_t *zeros = NULL;
  bool list = text_take(t, "{");
  if (list && q->axis < 0) FAIL("sub-channel quantization is not supported");
  do {
    if (q->count == capacity) {
      uint32_t more = capacity ? 2 * capacity : 4;
      double *new_scales = text_room(t, more * sizeof *new_scales);
      int64_t *new_zeros = text_room(t, more * sizeof *new_zeros);
      if (!new_scales || !new_zeros) return false;
      if (capacity) {
        memcpy(new_scales, scales, capacity * sizeof *scales);
        memcpy(new_zeros, zeros, capacity * sizeof *zeros);
      }
      scales = new_scales, zeros = new_zeros, capacity = more;
    }
    TRY(read_real(t, &scales[q->count]));
    if (!(scales[q->count] > 0)) FAIL("a scale is not positive");
    if (text_take(t, ":")) TRY(text_integer(t, &zeros[q->count]));
    if (zeros[q->count] < q->low || zeros[q->count] > q->high) FAIL("a zero point lies outside of the storage type");
    ++q->count;
  } while (list && text_take(t, ","));
  q->scales = scales;
  q->zeros = zeros;
  return !list || text_expect(t, "}");
}

/* !quant.uniform<i8<-128:127>:f32:0, {0.1:-30, 0.5:-20}>, from behind `quant.uniform`. */
static bool read_quantized(text_reader *t, const quantization **out) {
  quantization *q = text_room(t, sizeof *q);
  text_slice storage, expressed;
  if (!q) return false;
  TRY(text_expect(t, "<") && text_word(t, &storage));
  q->storage = dtype_of(storage);
  if (q->storage == TTPU_NO_DTYPE || !base_dtype_is_integer(q->storage)) FAIL("the storage type is no integer");
  int bits = base_dtype_bits(q->storage);
  bool is_signed = base_dtype_is_signed(q->storage);
  if (bits > 32) FAIL("a storage type of %d bits: at most 32 are possible", bits);
  q->high = ((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1;
  q->low = is_signed ? -q->high - 1 : 0;
  if (text_take(t, "<")) {
    int64_t low, high;
    TRY(text_integer(t, &low) && text_expect(t, ":") && text_integer(t, &high) && text_expect(t, ">"));
    if (low < q->low || high > q->high || low >= high) FAIL("the storage range does not fit the storage type");
    q->low = low, q->high = high;
  }
  TRY(text_expect(t, ":") && text_word(t, &expressed));
  q->expressed = dtype_of(expressed);
  if (!base_dtype_is_float(q->expressed)) FAIL("the expressed type is no float");
  q->axis = -1;
  if (text_take(t, ":")) {
    if (text_peek(t, "{")) return text_fail(t, TTPU_UNIMPLEMENTED, "sub-channel quantization is not supported");
    TRY(text_integer(t, &q->axis));
    if (q->axis < 0 || q->axis >= TTPU_MAX_RANK) FAIL("a quantization dimension of %lld", (long long)q->axis);
  }
  TRY(text_expect(t, ",") && read_scales(t, q));
  *out = q;
  return text_expect(t, ">");
}

/* What stands behind the dimensions: f32, complex<f32>, !quant.uniform<...>, an alias of either. */
static bool read_element_type(text_reader *t, text_type *out) {
  ttpu_dtype dtype;
  text_space(t);
  if (text_take(t, "!quant.uniform")) {
    TRY(read_quantized(t, &out->quantized));
    out->type.dtype = (uint8_t)out->quantized->storage;
    if (out->quantized->axis >= 0 && !out->unranked) {
      if (out->quantized->axis >= out->type.rank) FAIL("the quantization dimension is outside of the tensor");
      int64_t size = out->type.dims[out->quantized->axis];
      if (size != TEXT_ANY && size != out->quantized->count)
        FAIL("%u scales for a dimension of %lld", out->quantized->count, (long long)size);
    }
    return true;
  }
  if (t->at < t->end && *t->at == '!') {
    text_type element = {0};
    TRY(text_read_type(t, &element, 1));
    if (element.tuple || element.type.rank) FAIL("a tensor of tensors");
    out->quantized = element.quantized;
    out->type.dtype = element.type.dtype;
    return true;
  }
  TRY(read_dtype(t, &dtype));
  out->type.dtype = (uint8_t)dtype;
  return true;
}

/* The dimensions, each with its `x`. */
static bool read_dims(text_reader *t, text_type *out, int64_t *dims) {
  uint32_t rank = 0;
  for (;;) {
    text_space(t);
    bool any = t->at < t->end && *t->at == '?';
    if (t->at < t->end && *t->at == '*') {
      out->unranked = true;
      ++t->at;
      return text_expect(t, "x");
    }
    if (!any && (t->at >= t->end || !isdigit((unsigned char)*t->at))) break;
    if (rank == TTPU_MAX_RANK) FAIL("a tensor of more than %d dimensions", TTPU_MAX_RANK);
    if (any) dims[rank] = TEXT_ANY, ++t->at, out->dynamic = true;
    else TRY(read_size(t, &dims[rank]));
    ++rank;
    if (t->at >= t->end || *t->at != 'x') FAIL("expected 'x' after a dimension");
    ++t->at;
  }
  out->type.rank = (uint8_t)rank;
  return true;
}

static bool read_tensor(text_reader *t, text_type *out) {
  int64_t dims[TTPU_MAX_RANK];
  TRY(text_expect(t, "<"));
  out->type = (ir_type){0, 0, dims};
  TRY(read_dims(t, out, dims));
  TRY(read_element_type(t, out));
  if (text_take(t, ",")) { /* an encoding: bounds and the like say nothing about sizes that are known */
    node ignored;
    TRY(text_attribute(t, &ignored, 1));
  }
  TRY(text_expect(t, ">"));
  int64_t bytes = (int64_t)base_dtype_bytes((ttpu_dtype)out->type.dtype);
  for (uint32_t i = 0; i < out->type.rank; ++i)
    if (__builtin_mul_overflow(bytes, dims[i] > 0 ? dims[i] : 1, &bytes)) FAIL("a tensor of more than 2^63 bytes");
  out->type.dims = ir_no_dims;
  if (out->type.rank) out->type.dims = base_arena_dup(t->scratch, dims, out->type.rank * sizeof *dims);
  return out->type.dims || text_no_memory(t);
}

/* tuple<...>, from behind the word. */
static bool read_tuple(text_reader *t, text_type *out, int depth) {
  uint32_t capacity = 0;
  out->tuple = true;
  TRY(text_expect(t, "<"));
  if (text_take(t, ">")) return true;
  do {
    if (out->count == capacity) {
      text_type *more = text_room(t, (capacity ? 2 * capacity : 4) * sizeof *more);
      if (!more) return false;
      if (capacity) memcpy(more, out->elements, capacity * sizeof *more);
      out->elements = more, capacity = capacity ? 2 * capacity : 4;
    }
    TRY(text_read_type(t, &out->elements[out->count++], depth + 1));
  } while (text_take(t, ","));
  return text_expect(t, ">");
}

static bool find_alias(text_reader *t, text_type *out) {
  text_slice name;
  TRY(text_expect(t, "!") && text_word(t, &name));
  for (uint32_t i = 0; i < t->type_count; ++i)
    if (t->types[i].name.length == name.length && memcmp(t->types[i].name.data, name.data, name.length) == 0) {
      *out = t->types[i].type;
      return true;
    }
  return text_fail(t, TTPU_UNIMPLEMENTED, "the type !%.*s is not supported", (int)(name.length > 40 ? 40 : name.length),
                   name.data);
}

bool text_read_type(text_reader *t, text_type *out, int depth) {
  enum { DEEPEST = 32 };
  *out = (text_type){.type = {0, 0, ir_no_dims}};
  if (depth > DEEPEST) FAIL("types nested more than %d deep", DEEPEST);
  if (text_take(t, "tensor")) return read_tensor(t, out);
  if (text_take(t, "tuple") || text_take(t, "!stablehlo.future")) return read_tuple(t, out, depth);
  if (text_peek(t, "!quant.uniform")) return read_element_type(t, out);
  if (text_take(t, "!stablehlo.token")) {
    out->type.dtype = TTPU_TOKEN;
    return true;
  }
  if (text_peek(t, "!")) return find_alias(t, out);
  return text_fail(t, TTPU_UNIMPLEMENTED, "expected a tensor type");
}

bool text_type_equal(const text_type *a, const text_type *b) {
  if (a->tuple != b->tuple || a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; ++i)
    if (!text_type_equal(&a->elements[i], &b->elements[i])) return false;
  if (a->tuple) return true;
  if (a->type.dtype != b->type.dtype) return false;
  if (a->unranked || b->unranked) return true;
  bool equal = a->type.rank == b->type.rank;
  for (uint32_t i = 0; equal && i < a->type.rank; ++i)
    equal = a->type.dims[i] == b->type.dims[i] || a->type.dims[i] == TEXT_ANY || b->type.dims[i] == TEXT_ANY;
  return equal;
}

/* ---- dense elements ------------------------------------------------------------------------- */

/* A number with a point or an exponent, or the bits of one as 0x... */
static bool read_float(text_reader *t, ttpu_dtype dtype, uint8_t *to) {
  text_space(t);
  if (t->end - t->at > 2 && t->at[0] == '0' && t->at[1] == 'x') {
    int64_t bits;
    TRY(text_integer(t, &bits));
    size_t bytes = base_dtype_bytes(dtype);
    if (bytes < 8 && (uint64_t)bits >> (8 * bytes))
      FAIL("0x%llX has too many bits for %s", (long long)bits, base_dtypes[dtype].hlo_name);
    memcpy(to, &bits, bytes);
    return true;
  }
  char number[64];
  size_t n = 0;
  while (n + 1 < sizeof number && t->at < t->end && (isdigit((unsigned char)*t->at) || strchr("+-.eE", *t->at)) &&
         *t->at)
    number[n++] = *t->at++;
  number[n] = 0;
  char *point = strchr(number, '.'), *stop;
  if (point) *point = *localeconv()->decimal_point; /* the host program's locale decides what strtod wants */
  base_scalar v = {.d = {strtod(number, &stop), 0}};
  if (n == 0 || *stop) FAIL("expected a number");
  base_scalar_store(dtype, to, base_scalar_convert(TTPU_F64, dtype, v));
  return true;
}

static bool read_real(text_reader *t, double *out) { return read_float(t, TTPU_F64, (uint8_t *)out); }

static bool read_element(text_reader *t, ttpu_dtype dtype, uint8_t *to) {
  int bits = base_dtype_bits(dtype);
  ttpu_dtype part = dtype == TTPU_C64 ? TTPU_F32 : TTPU_F64;
  base_scalar v = {.i = 0};
  switch (base_dtypes[dtype].cls) {
    case DTYPE_TOKEN: FAIL("a token has no elements");
    case DTYPE_FLOAT: return read_float(t, dtype, to);
    case DTYPE_COMPLEX:
      TRY(text_expect(t, "("));
      TRY(read_float(t, part, to));
      TRY(text_expect(t, ","));
      TRY(read_float(t, part, to + base_dtype_bytes(part)));
      return text_expect(t, ")");
    case DTYPE_BOOL:
      if (text_take(t, "true")) v.i = 1;
      else if (!text_take(t, "false")) {
        TRY(text_integer(t, &v.i));
        if (v.i < -1 || v.i > 1) FAIL("%lld is not an i1", (long long)v.i);
        v.i = v.i != 0;
      }
      break;
    default: {
      text_space(t);
      bool negative = t->at < t->end && *t->at == '-';
      TRY(text_integer(t, &v.i));
      bool fits = bits == 64;
      if (!fits && negative) fits = base_dtype_is_signed(dtype) && v.i >= -((int64_t)1 << (bits - 1));
      else if (!fits) fits = (uint64_t)v.i >> (base_dtype_is_signed(dtype) ? bits - 1 : bits) == 0;
      if (!fits) FAIL("%lld does not fit %s", (long long)v.i, base_dtypes[dtype].hlo_name);
    }
  }
  base_scalar_store(dtype, to, v);
  return true;
}

static bool read_nested(text_reader *t, ir_type type, uint32_t dim, uint8_t **to) {
  if (dim == type.rank) {
    TRY(read_element(t, (ttpu_dtype)type.dtype, *to));
    *to += base_dtype_bytes((ttpu_dtype)type.dtype);
    return true;
  }
  TRY(text_expect(t, "["));
  for (int64_t i = 0; i < type.dims[dim]; ++i) {
    if (i) TRY(text_expect(t, ","));
    TRY(read_nested(t, type, dim + 1, to));
  }
  return text_expect(t, "]");
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* "0x...": the elements' bytes, or one element's for all. MLIR packs i1 eight to a byte, all ones being a splat. */
static bool read_hex(text_reader *t, ir_type type, ir_data *out) {
  const char *from = t->at + 1, *close = memchr(from, '"', (size_t)(t->end - from));
  if (!close || close - from < 2 || from[0] != '0' || from[1] != 'x' || (close - from) % 2)
    FAIL("expected \"0x\" and pairs of digits");
  from += 2;
  size_t length = (size_t)(close - from) / 2, count = (size_t)ir_numel(type),
         size = base_dtype_bytes((ttpu_dtype)type.dtype);
  bool packed = type.dtype == TTPU_BOOL && (length == (count + 7) / 8 || length == 1);
  if (!packed && length != count * size && length != size) FAIL("%zu bytes of elements for %s", length, IR_SHOW(type));
  uint8_t *bytes = base_arena_alloc(t->scratch, (packed ? count : length) + 16);
  uint8_t *raw = packed ? base_arena_alloc(t->scratch, length + 16) : bytes;
  if (!bytes || !raw) return text_no_memory(t);
  for (size_t i = 0; i < length; ++i) {
    int high = hex_digit(from[2 * i]), low = hex_digit(from[2 * i + 1]);
    if (high < 0 || low < 0) FAIL("'%c%c' is not hexadecimal", from[2 * i], from[2 * i + 1]);
    raw[i] = (uint8_t)(high << 4 | low);
  }
  t->at = close + 1;
  bool splat = length == size && count != 1;
  if (packed) {
    splat = length == 1 && (count > 8 || raw[0] == 0xFF || raw[0] == 0);
    if (splat) bytes[0] = raw[0] & 1;
    for (size_t i = 0; !splat && i < count; ++i) bytes[i] = raw[i / 8] >> (i % 8) & 1;
  }
  if (base_dtype_is_rare((ttpu_dtype)type.dtype)) /* a byte holds more than such an element: bring it into form */
    for (size_t i = 0; i < length; ++i)
      base_scalar_store((ttpu_dtype)type.dtype, bytes + i, base_scalar_load((ttpu_dtype)type.dtype, bytes + i));
  *out = (ir_data){bytes, splat};
  return true;
}

bool text_static_type(text_reader *t, ir_type *out) {
  text_type type;
  TRY(text_read_type(t, &type, 0));
  if (type.tuple || type.dynamic || type.unranked || type.type.dtype == TTPU_TOKEN)
    FAIL("elements need a tensor type of known sizes");
  *out = type.type;
  return true;
}

/* dense_resource<name> : type. A resource's bytes begin with its alignment, in four bytes. */
static bool read_resource(text_reader *t, node *out) {
  text_slice name;
  TRY(text_expect(t, "<"));
  TRY(text_peek(t, "\"") ? text_string(t, &name) : text_word(t, &name));
  TRY(text_expect(t, ">") && text_expect(t, ":"));
  TRY(text_static_type(t, &out->type));
  out->kind = NODE_DENSE;
  const text_slice *value = NULL;
  for (uint32_t i = 0; i < t->resource_count && !value; ++i)
    if (t->resources[i].name.length == name.length && memcmp(t->resources[i].name.data, name.data, name.length) == 0)
      value = &t->resources[i].value.value;
  if (!value) FAIL("no resource %.*s", (int)(name.length > 60 ? 60 : name.length), name.data);
  enum { ALIGNMENT_DIGITS = 8 };
  if (value->length < 2 + ALIGNMENT_DIGITS) FAIL("a resource without an alignment");
  char *quoted = text_room(t, value->length + 2);
  if (!quoted) return false;
  size_t digits = value->length - 2 - ALIGNMENT_DIGITS;
  memcpy(quoted, "\"0x", 3);
  memcpy(quoted + 3, value->data + 2 + ALIGNMENT_DIGITS, digits);
  quoted[3 + digits] = '"';
  const char *at = t->at, *end = t->end;
  t->at = quoted, t->end = quoted + digits + 4;
  bool ok = read_hex(t, out->type, &out->data);
  t->end = end;
  if (ok) t->at = at;
  return ok;
}

/* dense<elements> : type. The elements can be read only when the type behind them is known. */
static bool read_dense(text_reader *t, node *out) {
  TRY(text_expect(t, "<"));
  const char *from = t->at;
  bool quoted = false;
  for (; t->at < t->end && (quoted || *t->at != '>'); ++t->at) quoted ^= *t->at == '"';
  const char *close = t->at;
  TRY(text_expect(t, ">"));
  TRY(text_expect(t, ":"));
  TRY(text_static_type(t, &out->type));
  const char *behind = t->at, *end = t->end;
  out->kind = NODE_DENSE;
  int64_t count = ir_numel(out->type);
  size_t size = base_dtype_bytes((ttpu_dtype)out->type.dtype);
  t->at = from;
  t->end = close;
  text_space(t);
  out->data = (ir_data){ir_no_dims, false};
  bool ok = true;
  if (t->at < t->end && *t->at == '"') {
    ok = read_hex(t, out->type, &out->data);
  } else if (t->at < t->end) {
    bool nested = *t->at == '[';
    /* every element of a list takes a character and a comma: a short text cannot ask for much memory */
    if (nested && count > close - from)
      ok = text_fail(t, TTPU_INVALID_ARGUMENT, "too few elements for %s", IR_SHOW(out->type));
    uint8_t *bytes = ok ? base_arena_zalloc(t->scratch, nested ? (size_t)count * size + 16 : 16) : NULL, *to = bytes;
    if (ok && !bytes) ok = text_no_memory(t);
    ok = ok && (nested ? read_nested(t, out->type, 0, &to) : read_element(t, (ttpu_dtype)out->type.dtype, bytes));
    out->data = (ir_data){bytes, !nested};
  } else if (count) {
    ok = text_fail(t, TTPU_INVALID_ARGUMENT, "no elements for %s", IR_SHOW(out->type));
  }
  if (count == 0) out->data = (ir_data){ir_no_dims, false}; /* a splat of nothing is nothing */
  text_space(t);
  if (ok && t->at != t->end) ok = text_fail(t, TTPU_INVALID_ARGUMENT, "more elements than %s has", IR_SHOW(out->type));
  t->end = end;
  if (ok) t->at = behind;
  return ok;
}

/* ---- attribute values ----------------------------------------------------------------------- */

static entry *add_entry(text_reader *t, node *list, uint32_t *capacity) {
  if (list->count == *capacity) {
    uint32_t more = *capacity ? *capacity * 2 : 4;
    entry *entries = base_arena_alloc(t->scratch, more * sizeof *entries);
    if (!entries) return text_no_memory(t), NULL;
    if (list->count) memcpy(entries, list->entries, list->count * sizeof *entries);
    list->entries = entries;
    *capacity = more;
  }
  entry *e = &list->entries[list->count++];
  memset(e, 0, sizeof *e);
  return e;
}

static bool read_array(text_reader *t, node *out, int depth);

static bool read_entries(text_reader *t, const char *close, node *out, int depth) {
  uint32_t capacity = out->count;
  out->kind = NODE_DICT;
  while (!text_take(t, close)) {
    entry *e = add_entry(t, out, &capacity);
    if (!e) return false;
    text_space(t);
    TRY(t->at < t->end && *t->at == '"' ? text_string(t, &e->name) : text_word(t, &e->name));
    e->value.kind = NODE_UNIT;
    if (text_take(t, "=")) TRY(text_attribute(t, &e->value, depth + 1));
    if (!text_take(t, ",") && !text_peek(t, close)) FAIL("expected ',' or '%s'", close);
  }
  return true;
}

bool text_nested_list(text_reader *t, node *out, int depth) { return read_array(t, out, depth); }

bool text_dict(text_reader *t, const char *open, const char *close, node *out, int depth) {
  return text_expect(t, open) && read_entries(t, close, out, depth);
}

static bool read_array(text_reader *t, node *out, int depth) {
  uint32_t capacity = 0;
  out->kind = NODE_ARRAY;
  TRY(text_expect(t, "["));
  while (!text_take(t, "]")) {
    entry *e = add_entry(t, out, &capacity);
    if (!e) return false;
    TRY(text_attribute(t, &e->value, depth + 1));
    if (!text_take(t, ",") && !text_peek(t, "]")) FAIL("expected ',' or ']'");
  }
  return true;
}

/* array<i64: 1, 2>, array<i1: true>. */
static bool read_list(text_reader *t, node *out) {
  text_slice type;
  uint32_t capacity = 8;
  int64_t *numbers = base_arena_alloc(t->scratch, capacity * sizeof *numbers);
  TRY(text_expect(t, "<"));
  TRY(text_word(t, &type));
  out->kind = NODE_LIST;
  if (text_take(t, ":")) {
    do {
      if (!numbers) return text_no_memory(t);
      if (out->numbers.count == capacity) {
        int64_t *more = base_arena_alloc(t->scratch, 2 * capacity * sizeof *more);
        if (!more) return text_no_memory(t);
        memcpy(more, numbers, capacity * sizeof *more);
        numbers = more;
        capacity *= 2;
      }
      int64_t *to = &numbers[out->numbers.count];
      if (text_take(t, "true")) *to = 1;
      else if (text_take(t, "false")) *to = 0;
      else TRY(text_integer(t, to));
      ++out->numbers.count;
    } while (text_take(t, ","));
  }
  out->numbers.data = numbers ? numbers : ir_no_dims;
  return text_expect(t, ">");
}

/* 12, -1.5e3, 0x7F; with a type behind, or without. */
static bool read_number(text_reader *t, node *out) {
  const char *from = t->at;
  bool hex = t->end - t->at > 1 && t->at[0] == '0' && t->at[1] == 'x', real = false;
  for (const char *c = from; c < t->end && (isalnum((unsigned char)*c) || *c == '.' || *c == '-' || *c == '+'); ++c)
    real |= !hex && (*c == '.' || *c == 'e' || *c == 'E');
  if (real) {
    TRY(read_float(t, TTPU_F64, (uint8_t *)&out->d));
    out->kind = NODE_FLOAT;
  } else {
    TRY(text_integer(t, &out->i));
    out->kind = NODE_INT;
  }
  if (!t->bare && text_take(t, ":")) {
    text_slice type;
    if (text_peek(t, "tensor")) return text_read_type(t, &(text_type){0}, 0); /* a splat, as older printers wrote it */
    TRY(text_word(t, &type));
    if (type.length && type.data[0] == 'f') {
      if (out->kind == NODE_INT && hex) memcpy(&out->d, &out->i, sizeof out->d); /* f64 bits */
      else if (out->kind == NODE_INT) out->d = (double)out->i;
      out->kind = NODE_FLOAT;
    }
  }
  return true;
}

/* #stablehlo<tag NAME>, #stablehlo.record<...>, #alias, or another dialect's, which is kept as text. */
static bool read_dialect_attribute(text_reader *t, node *out, int depth) {
  text_slice name, tag;
  TRY(text_expect(t, "#"));
  TRY(text_word(t, &name));
  bool angle = t->at < t->end && *t->at == '<';
  if (!angle) {
    for (uint32_t i = 0; i < t->alias_count; ++i) {
      if (t->aliases[i].name.length != name.length || memcmp(t->aliases[i].name.data, name.data, name.length)) continue;
      *out = t->aliases[i].value;
      return true;
    }
    out->kind = NODE_OTHER;
    return true;
  }
  if (text_is(name, "stablehlo") || text_is(name, "chlo")) {
    TRY(text_expect(t, "<"));
    TRY(text_word(t, &tag));
    out->kind = NODE_ENUM;
    TRY(text_word(t, &out->value));
    return text_expect(t, ">");
  }
  const char *from = t->at;
  if (text_is(name, "stablehlo.conv")) {
    t->at += 1;
    if (text_take(t, "raw")) return read_entries(t, ">", out, depth);
    t->at = from;
    TRY(skip_angles(t));
    out->kind = NODE_CONV;
    out->value = (text_slice){from + 1, (size_t)(t->at - from) - 2};
    return true;
  }
  if (text_is(name, "stablehlo.dot") || text_is(name, "stablehlo.gather") || text_is(name, "stablehlo.scatter") ||
      text_is(name, "stablehlo.channel_handle") || text_is(name, "stablehlo.dot_algorithm") ||
      text_is(name, "chlo.ragged_dot") || text_is(name, "stablehlo.result_accuracy"))
    return text_dict(t, "<", ">", out, depth);
  out->kind = NODE_OTHER;
  return skip_angles(t);
}

/* Types and whatever else stands as a value: a word with angle brackets, or a function type. */
static bool skip_other(text_reader *t, node *out) {
  out->kind = NODE_OTHER;
  if (t->at < t->end && *t->at == '(') {
    TRY(text_skip_balanced(t));
    if (!text_take(t, "->")) return true;
    text_space(t);
    if (t->at < t->end && *t->at == '(') return text_skip_balanced(t);
  }
  if (t->at < t->end && *t->at == '!') ++t->at;
  text_slice word;
  TRY(text_word(t, &word));
  return t->at < t->end && *t->at == '<' ? skip_angles(t) : true;
}

bool text_attribute(text_reader *t, node *out, int depth) {
  enum { DEEPEST = 64 };
  memset(out, 0, sizeof *out);
  text_space(t);
  if (!text_ok(t)) return false;
  if (t->at >= t->end) FAIL("expected an attribute, but the text ends");
  if (depth > DEEPEST) FAIL("attributes nested more than %d deep", DEEPEST);
  const char *from = t->at;
  char c = *from;
  bool ok;
  if (c == '"') out->kind = NODE_STRING, ok = text_string(t, &out->value);
  else if (c == '@') out->kind = NODE_SYMBOL, ok = text_symbol(t, &out->value);
  else if (c == '[') ok = read_array(t, out, depth);
  else if (c == '{') ok = text_dict(t, "{", "}", out, depth);
  else if (c == '#') ok = read_dialect_attribute(t, out, depth);
  else if (isdigit((unsigned char)c) || c == '-') ok = read_number(t, out);
  else if (text_take(t, "dense")) ok = read_dense(t, out);
  else if (text_take(t, "dense_resource")) ok = read_resource(t, out);
  else if (c == '<') ok = text_dict(t, "<", ">", out, depth);
  else if (text_take(t, "array")) ok = read_list(t, out);
  else if (text_take(t, "true")) out->kind = NODE_BOOL, out->i = 1, ok = true;
  else if (text_take(t, "false")) out->kind = NODE_BOOL, ok = true;
  else if (text_take(t, "unit")) out->kind = NODE_UNIT, ok = true;
  else ok = skip_other(t, out);
  while (ok && out->kind == NODE_SYMBOL && text_take(t, "::")) ok = text_symbol(t, &out->value); /* @a::@b: the last */
  if (ok && !out->text.data) out->text = (text_slice){from, (size_t)(t->at - from)};
  return ok && text_ok(t);
}

const node *node_find(const node *dict, const char *name) {
  for (uint32_t i = 0; dict && i < dict->count; ++i)
    if (text_is(dict->entries[i].name, name)) return &dict->entries[i].value;
  return NULL;
}
