/* The loops of wide.h; include after defining WIDE_TABLE, the name of the table that this makes. */

// clang-format off: lists of rows, which it takes for statements
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "soft/kern/wide.h"

/* ---- load and store ------------------------------------------------------------------------------- */

#define LOAD(T, FIELD, EXPR)                                                                                       \
  do {                                                                                                             \
    if (step == (int64_t)sizeof(T))                                                                                \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        T v = ((const T *)from)[i];                                                                                \
        to[i].FIELD = EXPR;                                                                                        \
      }                                                                                                            \
    else                                                                                                           \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        T v = *(const T *)((const char *)from + i * step);                                                         \
        to[i].FIELD = EXPR;                                                                                        \
      }                                                                                                            \
    return;                                                                                                        \
  } while (0)

#define LOAD_COMPLEX(T)                                                                                            \
  for (int64_t i = 0; i < n; ++i) {                                                                                \
    const T *v = (const T *)((const char *)from + i * step);                                                       \
    to[2 * i].f = v[0], to[2 * i + 1].f = v[1];                                                                    \
  }                                                                                                                \
  return

static inline float f16_load(uint16_t v) {
#if defined(__F16C__)
  return _cvtsh_ss(v);
#else
  return base_f32_from_f16(v);
#endif
}
static inline uint16_t f16_store(float v) {
#if defined(__F16C__)
  return _cvtss_sh(v, 0);
#else
  return base_f16_from_f32(v);
#endif
}

static void load(ttpu_dtype t, const void *from, int64_t step, int64_t n, wide *to) {
  switch (t) {
  case TTPU_F32: LOAD(float, f, (double)v);
  case TTPU_F64: LOAD(double, f, v);
  case TTPU_BF16: LOAD(uint16_t, f, (double)base_f32_from_bf16(v));
  case TTPU_F16: LOAD(uint16_t, f, (double)f16_load(v));
  case TTPU_F8E5M2: LOAD(uint8_t, f, (double)base_f32_from_f8e5m2(v));
  case TTPU_F8E4M3FN: LOAD(uint8_t, f, (double)base_f32_from_f8e4m3fn(v));
  case TTPU_I8: LOAD(int8_t, i, v);
  case TTPU_I16: LOAD(int16_t, i, v);
  case TTPU_I32: LOAD(int32_t, i, v);
  case TTPU_I64: LOAD(int64_t, i, v);
  case TTPU_BOOL: LOAD(uint8_t, u, v != 0);
  case TTPU_U8: LOAD(uint8_t, u, v);
  case TTPU_U16: LOAD(uint16_t, u, v);
  case TTPU_U32: LOAD(uint32_t, u, v);
  case TTPU_U64: LOAD(uint64_t, u, v);
  case TTPU_C64: LOAD_COMPLEX(float);
  case TTPU_C128: LOAD_COMPLEX(double);
  default: return;
  }
}

#define STORE(T, EXPR)                                                                                             \
  do {                                                                                                             \
    if (step == (int64_t)sizeof(T))                                                                                \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        wide v = from[i];                                                                                          \
        ((T *)to)[i] = (T)(EXPR);                                                                                  \
      }                                                                                                            \
    else                                                                                                           \
      for (int64_t i = 0; i < n; ++i) {                                                                            \
        wide v = from[i];                                                                                          \
        *(T *)((char *)to + i * step) = (T)(EXPR);                                                                 \
      }                                                                                                            \
    return;                                                                                                        \
  } while (0)

#define STORE_COMPLEX(T)                                                                                           \
  for (int64_t i = 0; i < n; ++i) {                                                                                \
    T *v = (T *)((char *)to + i * step);                                                                           \
    v[0] = (T)from[2 * i].f, v[1] = (T)from[2 * i + 1].f;                                                          \
  }                                                                                                                \
  return

static void store(ttpu_dtype t, void *to, int64_t step, int64_t n, const wide *from) {
  switch (t) {
  case TTPU_F32: STORE(float, v.f);
  case TTPU_F64: STORE(double, v.f);
  case TTPU_BF16: STORE(uint16_t, base_bf16_from_f32((float)v.f));
  case TTPU_F16: STORE(uint16_t, f16_store((float)v.f));
  case TTPU_F8E5M2: STORE(uint8_t, base_f8e5m2_from_f32((float)v.f));
  case TTPU_F8E4M3FN: STORE(uint8_t, base_f8e4m3fn_from_f32((float)v.f));
  case TTPU_BOOL: STORE(uint8_t, v.u != 0);
  case TTPU_I8: case TTPU_U8: STORE(uint8_t, v.u);
  case TTPU_I16: case TTPU_U16: STORE(uint16_t, v.u);
  case TTPU_I32: case TTPU_U32: STORE(uint32_t, v.u);
  case TTPU_I64: case TTPU_U64: STORE(uint64_t, v.u);
  case TTPU_C64: STORE_COMPLEX(float);
  case TTPU_C128: STORE_COMPLEX(double);
  default: return;
  }
}

/* ---- combining ------------------------------------------------------------------------------------ */

typedef double field_f;
typedef int64_t field_i;
typedef uint64_t field_u;

/* A row is combined a piece at a time, in a buffer: were results written over the operand at once, the compiler would leave
 * out the stores that change nothing, and so make a branch of what should be a vector operation. */
enum { PIECE = 64 };

/* NaN propagates: a NaN first operand stays, a NaN second one fails the comparison. */
static inline double f_maximum(double a, double b) { return (a >= b) | (a != a) ? a : b; }
static inline double f_minimum(double a, double b) { return (a <= b) | (a != a) ? a : b; }

/* Each operation for each class: EACH(class letter, field, kind, expression of a and b). */
#define EACH_REAL(X)                                                                                               \
  X(F, f, ADD, a + b) X(F, f, MULTIPLY, a * b) X(F, f, MAXIMUM, f_maximum(a, b)) X(F, f, MINIMUM, f_minimum(a, b)) \
  X(I, i, ADD, (int64_t)((uint64_t)a + (uint64_t)b)) X(I, i, MULTIPLY, (int64_t)((uint64_t)a * (uint64_t)b))       \
  X(I, i, MAXIMUM, a < b ? b : a) X(I, i, MINIMUM, b < a ? b : a)                                                  \
  X(U, u, ADD, a + b) X(U, u, MULTIPLY, a * b) X(U, u, MAXIMUM, a < b ? b : a) X(U, u, MINIMUM, b < a ? b : a)     \
  X(U, u, AND, a & b) X(U, u, OR, a | b) X(U, u, XOR, a ^ b)

/* The wide forms of and, or, xor are the same bits for signed integers. */
static inline int table_class(ir_kind kind, wide_class c) {
  return c == WIDE_I && (kind == IR_AND || kind == IR_OR || kind == IR_XOR) ? WIDE_U : (int)c;
}

static inline void complex_step(ir_kind kind, wide *a, const wide *x) {
  double re = a[0].f, im = a[1].f;
  if (kind == IR_ADD) a[0].f = re + x[0].f, a[1].f = im + x[1].f;
  else a[0].f = re * x[0].f - im * x[1].f, a[1].f = re * x[1].f + im * x[0].f;
}

#define COMBINE(C, FIELD, KIND, EXPR)                                                                              \
  case WIDE_##C << 16 | IR_##KIND:                                                                                 \
    for (int64_t at = 0; at < n; at += PIECE) {                                                                    \
      field_##FIELD piece[PIECE];                                                                                  \
      int64_t m = n - at < PIECE ? n - at : PIECE;                                                                 \
      for (int64_t i = 0; i < m; ++i) {                                                                            \
        field_##FIELD a = acc[at + i].FIELD, b = x[at + i].FIELD;                                                  \
        piece[i] = EXPR;                                                                                           \
      }                                                                                                            \
      memcpy(acc + at, piece, (size_t)m * sizeof *piece);                                                          \
    }                                                                                                              \
    return;

static void combine(ir_kind kind, wide_class c, wide *restrict acc, const wide *restrict x, int64_t n) {
  switch (table_class(kind, c) << 16 | (int)kind) {
  EACH_REAL(COMBINE)
  default:
    for (int64_t i = 0; i < n; ++i) complex_step(kind, acc + 2 * i, x + 2 * i);
  }
}

#define FOLD(C, FIELD, KIND, EXPR)                                                                                 \
  case WIDE_##C << 16 | IR_##KIND:                                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                                              \
      field_##FIELD a = acc->FIELD, b = x[i].FIELD;                                                                \
      acc->FIELD = EXPR;                                                                                           \
    }                                                                                                              \
    return;

static void fold_in_order(ir_kind kind, wide_class c, wide *restrict acc, const wide *restrict x, int64_t n) {
  switch (table_class(kind, c) << 16 | (int)kind) {
  EACH_REAL(FOLD)
  default:
    for (int64_t i = 0; i < n; ++i) complex_step(kind, acc, x + 2 * i);
  }
}

static void fold(ir_kind kind, wide_class c, wide *acc, const wide *x, int64_t n) {
  enum { PARTS = 32 };
  if (c != WIDE_C && n >= 2 * PARTS) {
    wide parts[PARTS];
    int64_t at = PARTS;
    memcpy(parts, x, sizeof parts);
    for (; at + PARTS <= n; at += PARTS) combine(kind, c, parts, x + at, PARTS);
    fold_in_order(kind, c, acc, parts, PARTS);
    x += at, n -= at;
  }
  fold_in_order(kind, c, acc, x, n);
}

#define PREFIX(C, FIELD, KIND, EXPR)                                                                               \
  case WIDE_##C << 16 | IR_##KIND: {                                                                               \
    field_##FIELD a = carry->FIELD;                                                                                \
    for (int64_t i = 0; i < n; ++i) {                                                                              \
      field_##FIELD b = x[i].FIELD;                                                                                \
      x[i].FIELD = a = EXPR;                                                                                       \
    }                                                                                                              \
    carry->FIELD = a;                                                                                              \
    return;                                                                                                        \
  }

static void prefix(ir_kind kind, wide_class c, wide *carry, wide *x, int64_t n) {
  switch (table_class(kind, c) << 16 | (int)kind) {
  EACH_REAL(PREFIX)
  default:
    for (int64_t i = 0; i < n; ++i) {
      complex_step(kind, carry, x + 2 * i);
      x[2 * i] = carry[0], x[2 * i + 1] = carry[1];
    }
  }
}

/* ---- extremes with their places -------------------------------------------------------------------- */

#define TAKE(FIELD, BEYOND)                                                                                        \
  for (int64_t from = 0; from < n; from += PIECE) {                                                                \
    field_##FIELD piece[PIECE];                                                                                    \
    int64_t places[PIECE], m = n - from < PIECE ? n - from : PIECE;                                                \
    for (int64_t i = 0; i < m; ++i) {                                                                              \
      field_##FIELD a = best[from + i].FIELD, b = x[from + i].FIELD;                                               \
      bool taken = BEYOND;                                                                                         \
      piece[i] = taken ? b : a;                                                                                    \
      places[i] = taken ? at : index[from + i];                                                                    \
    }                                                                                                              \
    memcpy(best + from, piece, (size_t)m * sizeof *piece), memcpy(index + from, places, (size_t)m * sizeof *places); \
  }                                                                                                                \
  return

static void take(bool largest, bool last, wide_class c, wide *restrict best, int64_t *restrict index,
                 const wide *restrict x, int64_t at, int64_t n) {
  switch ((int)c << 2 | largest << 1 | last) {
  case WIDE_F << 2 | 0: TAKE(f, (b < a) | ((b != b) & (a == a)));
  case WIDE_F << 2 | 1: TAKE(f, (b <= a) | (b != b));
  case WIDE_F << 2 | 2: TAKE(f, (b > a) | ((b != b) & (a == a)));
  case WIDE_F << 2 | 3: TAKE(f, (b >= a) | (b != b));
  case WIDE_I << 2 | 0: TAKE(i, b < a);
  case WIDE_I << 2 | 1: TAKE(i, b <= a);
  case WIDE_I << 2 | 2: TAKE(i, b > a);
  case WIDE_I << 2 | 3: TAKE(i, b >= a);
  case WIDE_U << 2 | 0: TAKE(u, b < a);
  case WIDE_U << 2 | 1: TAKE(u, b <= a);
  case WIDE_U << 2 | 2: TAKE(u, b > a);
  default: TAKE(u, b >= a);
  }
}

#define PREFIX_TAKE(FIELD, BEYOND)                                                                                 \
  do {                                                                                                             \
    field_##FIELD a = carry->FIELD;                                                                                \
    int64_t where = *place;                                                                                        \
    for (int64_t i = 0; i < n; ++i) {                                                                              \
      field_##FIELD b = x[i].FIELD;                                                                                \
      bool taken = BEYOND;                                                                                         \
      x[i].FIELD = a = taken ? b : a;                                                                              \
      index[i] = where = taken ? at + i * step : where;                                                            \
    }                                                                                                              \
    carry->FIELD = a, *place = where;                                                                              \
    return;                                                                                                        \
  } while (0)

static void prefix_take(bool largest, wide_class c, wide *carry, int64_t *place, wide *restrict x, int64_t *restrict index,
                        int64_t at, int64_t step, int64_t n) {
  switch ((int)c << 1 | largest) {
  case WIDE_F << 1: PREFIX_TAKE(f, (b <= a) | (b != b));
  case WIDE_F << 1 | 1: PREFIX_TAKE(f, (b >= a) | (b != b));
  case WIDE_I << 1: PREFIX_TAKE(i, b <= a);
  case WIDE_I << 1 | 1: PREFIX_TAKE(i, b >= a);
  case WIDE_U << 1: PREFIX_TAKE(u, b <= a);
  default: PREFIX_TAKE(u, b >= a);
  }
}

#define SELECT_STEPS(FIELD, OPERATOR, STEP)                                                                        \
  for (int64_t from = 0; from < n; from += PIECE) {                                                                \
    field_##FIELD piece[PIECE];                                                                                    \
    int64_t places[PIECE], m = n - from < PIECE ? n - from : PIECE;                                                \
    for (int64_t i = 0; i < m; ++i) {                                                                              \
      field_##FIELD a = best[from + i].FIELD, b = x[(from + i) * (STEP)].FIELD;                                    \
      bool stays = (place[from + i] >= 0) & (a OPERATOR b);                                                        \
      piece[i] = stays ? a : b;                                                                                    \
      places[i] = stays ? place[from + i] : at + (from + i) * (STEP);                                              \
    }                                                                                                              \
    memcpy(best + from, piece, (size_t)m * sizeof *piece), memcpy(place + from, places, (size_t)m * sizeof *places); \
  }
#define SELECT(FIELD, OPERATOR)                                                                                    \
  if (step == 1) { SELECT_STEPS(FIELD, OPERATOR, 1) }                                                              \
  else if (step == 2) { SELECT_STEPS(FIELD, OPERATOR, 2) }                                                         \
  else { SELECT_STEPS(FIELD, OPERATOR, step) }                                                                     \
  return
#define SELECT_CLASS(OPERATOR)                                                                                     \
  if (c == WIDE_F) { SELECT(f, OPERATOR); }                                                                        \
  if (c == WIDE_I) { SELECT(i, OPERATOR); }                                                                        \
  SELECT(u, OPERATOR)

static void select_best(ir_direction select, wide_class c, wide *restrict best, int64_t *restrict place,
                        const wide *restrict x, int64_t at, int64_t step, int64_t n) {
  switch (select) {
  case IR_GE: SELECT_CLASS(>=);
  case IR_GT: SELECT_CLASS(>);
  case IR_LE: SELECT_CLASS(<=);
  default: SELECT_CLASS(<);
  }
}

const wide_functions WIDE_TABLE = {load, store, combine, fold, prefix, take, prefix_take, select_best};
