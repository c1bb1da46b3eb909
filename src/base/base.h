/* base: what every other room stands on. Takes nothing, knows nothing of tensors' meaning.
 *
 *   status    codes and a per-thread message          status.c
 *   memory    one allocation hook, arenas, arrays     alloc.c
 *   text      a text that grows                       text.c
 *   dtypes    the element types, from dtypes.def      dtype.c
 *   hash      64- and 128-bit mixing                  hash.c
 *   log       TTPU_LOG, TTPU_DUMP                     log.c
 *   clock     nanoseconds                             clock.c
 *   cpu       instruction sets found and allowed      cpu.c
 *   pool      the thread pool                         pool.c
 *
 * The library is linked statically, with hidden symbols, into both torch_tpu/_C and libttpu_soft.so:
 * each has its own copy of the state here.
 */
#ifndef TTPU_BASE_H
#define TTPU_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------- */

/* The codes of PJRT (absl), so that an error crosses the plugin border unchanged. */
typedef enum ttpu_status {
  TTPU_OK = 0,
  TTPU_CANCELLED = 1,
  TTPU_UNKNOWN = 2,
  TTPU_INVALID_ARGUMENT = 3,
  TTPU_DEADLINE_EXCEEDED = 4,
  TTPU_NOT_FOUND = 5,
  TTPU_ALREADY_EXISTS = 6,
  TTPU_PERMISSION_DENIED = 7,
  TTPU_RESOURCE_EXHAUSTED = 8, /* device or host memory */
  TTPU_FAILED_PRECONDITION = 9,
  TTPU_ABORTED = 10,      /* a matrix that cannot be factored */
  TTPU_OUT_OF_RANGE = 11, /* an index outside its tensor */
  TTPU_UNIMPLEMENTED = 12,
  TTPU_INTERNAL = 13,
  TTPU_UNAVAILABLE = 14,
  TTPU_DATA_LOSS = 15,
  TTPU_UNAUTHENTICATED = 16,
} ttpu_status;

/* Sets this thread's message and returns `code`: `return base_fail(TTPU_INVALID_ARGUMENT, "...")`.
 * Never fails and never allocates; a message longer than 2,047 bytes is cut. */
ttpu_status base_fail(ttpu_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "<prefix>: " before this thread's message, to say where a failure was met. */
ttpu_status base_fail_context(ttpu_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The message of this thread's last base_fail; valid until its next one. Never NULL. */
const char *base_message(void);
const char *base_status_name(ttpu_status code); /* "RESOURCE_EXHAUSTED" */

#define BASE_TRY(expr)                                        \
  do {                                                        \
    ttpu_status base_try_status_ = (expr);                    \
    if (base_try_status_ != TTPU_OK) return base_try_status_; \
  } while (0)

/* ---- memory -------------------------------------------------------------------------------- */

/* Every allocation of the C core goes through these. They return NULL when memory is out (the
 * caller fails with base_no_memory) or when a test injects a failure. */
void *base_alloc(size_t bytes);                /* 16-byte aligned, not cleared */
void *base_calloc(size_t count, size_t bytes); /* cleared; overflow gives NULL */
void *base_realloc(void *p, size_t bytes);
void *base_alloc_aligned(size_t alignment, size_t bytes); /* freed with base_free as well */
/* The same, 64-byte aligned, for what is read again and again: from 1 MiB on in huge pages where the system has them. */
enum { BASE_HUGE_PAGE = 2 << 20 }; /* bytes */
void *base_alloc_large(size_t bytes);
void base_free(void *p);                  /* NULL is fine */
ttpu_status base_no_memory(size_t bytes); /* sets the message, returns RESOURCE_EXHAUSTED */

/* Test hook: the `nth` allocation from now on (1 = the next) fails, once; 0 switches it off.
 * base_alloc_count counts all since start: a test runs a function once per n until it succeeds. */
void base_alloc_fail_after(uint64_t nth);
uint64_t base_alloc_count(void);

/* An arena: allocations that die together. Not thread-safe; cheap to make. */
typedef struct base_arena {
  struct base_arena_chunk *head; /* newest first */
  uint8_t *next, *end;
} base_arena;

void base_arena_init(base_arena *a);
void *base_arena_alloc(base_arena *a, size_t bytes);  /* 16-byte aligned; NULL when out of memory */
void *base_arena_zalloc(base_arena *a, size_t bytes); /* the same, cleared */
void *base_arena_dup(base_arena *a, const void *from, size_t bytes);
char *base_arena_printf(base_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t base_arena_bytes(const base_arena *a); /* what it holds, used or not */
void base_arena_reset(base_arena *a);         /* forgets what was in it and keeps one chunk of at most 1 MB */
void base_arena_free(base_arena *a);
base_arena *base_arena_new(void); /* an arena on the heap, for who is to own it; NULL when out of memory */
void base_arena_delete(base_arena *a);

/* Growable arrays of plain values: BASE_GROW makes room for one more in `ptr[count]`, capacity in
 * `cap`; yields false when out of memory, leaving the array as it was. */
bool base_grow(void **ptr, uint32_t *cap, uint32_t need, size_t item_bytes);
#define BASE_GROW(ptr, count, cap) base_grow((void **)&(ptr), &(cap), (uint32_t)(count) + 1, sizeof *(ptr))

/* A text that grows: printer, log, error pages. `failed` is sticky. */
typedef struct base_text {
  char *data; /* NUL-terminated once anything was added */
  size_t length, capacity;
  bool failed;
} base_text;
void base_text_printf(base_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void base_text_put(base_text *t, const char *bytes, size_t length);
/* As a JSON string, in quotes; bytes of 128 and more are put as they are. */
void base_text_put_json(base_text *t, const char *text, size_t length);
void base_text_free(base_text *t);

/* ---- dtypes -------------------------------------------------------------------------------- */

/* dtypes.def is the list: DTYPE(ENUM, torch name, bytes, torch ScalarType number, StableHLO name,
 * PJRT_Buffer_Type number, class). 0 is no dtype. Those below TTPU_DTYPE_COUNT are what programs and buffers know; the
 * others are dtypes of PyTorch's tensors alone, which aten and rt replace by those that stand for them. */
typedef enum ttpu_dtype {
  TTPU_NO_DTYPE = 0,
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) TTPU_##ENUM,
#define RARE(ENUM, hlo, pjrt, cls) TTPU_##ENUM,
#include "base/dtypes.def"
#undef DTYPE
  TTPU_DTYPE_COUNT,
  TTPU_LAST_DTYPE = TTPU_DTYPE_COUNT - 1,
#define DTYPE(...)
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) TTPU_##ENUM,
#include "base/dtypes.def"
#undef DTYPE
} ttpu_dtype;
enum {
  TTPU_TENSOR_DTYPE_COUNT = TTPU_DTYPE_COUNT
#define DTYPE(...)
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) +1
#include "base/dtypes.def"
#undef DTYPE
};

typedef enum { DTYPE_BOOL, DTYPE_UNSIGNED, DTYPE_SIGNED, DTYPE_FLOAT, DTYPE_COMPLEX, DTYPE_TOKEN } ttpu_dtype_class;

typedef struct base_dtype_info {
  const char *name;     /* PyTorch's: "float32" */
  const char *hlo_name; /* StableHLO's: "f32" */
  uint8_t bytes;
  int8_t scalar_type; /* c10::ScalarType */
  uint8_t pjrt_type;  /* PJRT_Buffer_Type */
  ttpu_dtype_class cls;
} base_dtype_info;
extern const base_dtype_info base_dtypes[TTPU_TENSOR_DTYPE_COUNT];

ttpu_dtype base_dtype_from_hlo(const char *name, size_t length);
ttpu_dtype base_dtype_from_scalar_type(int scalar_type);
ttpu_dtype base_dtype_from_pjrt(int pjrt_type);
static inline size_t base_dtype_bytes(ttpu_dtype t) { return base_dtypes[t].bytes; }
/* The dtype of the elements in which storages hold a tensor of t, and that in which programs compute with it. */
static inline ttpu_dtype base_dtype_stored(ttpu_dtype t) {
  switch ((int)t) {
#define DTYPE(...)
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) \
  case TTPU_##ENUM: return TTPU_##stored;
#include "base/dtypes.def"
#undef DTYPE
    default: return t;
  }
}
static inline ttpu_dtype base_dtype_computed(ttpu_dtype t) {
  switch ((int)t) {
#define DTYPE(...)
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) \
  case TTPU_##ENUM: return TTPU_##computed;
#include "base/dtypes.def"
#undef DTYPE
    default: return t;
  }
}
static inline bool base_dtype_is_float(ttpu_dtype t) { return base_dtypes[t].cls == DTYPE_FLOAT; }
static inline bool base_dtype_is_complex(ttpu_dtype t) { return base_dtypes[t].cls == DTYPE_COMPLEX; }
static inline bool base_dtype_is_signed(ttpu_dtype t) { return base_dtypes[t].cls == DTYPE_SIGNED; }
/* The rows RARE of dtypes.def. */
static inline bool base_dtype_is_rare(ttpu_dtype t) { return t >= TTPU_TOKEN && t < TTPU_DTYPE_COUNT; }
/* Bits that an element has, which are fewer than 8 * bytes for the narrow types. 0 for a token. */
int base_dtype_bits(ttpu_dtype t);
/* Bits of the exponent and of the mantissa of a float type. */
void base_dtype_float_format(ttpu_dtype t, int *exponent, int *mantissa);
/* Integers, not bool. */
static inline bool base_dtype_is_integer(ttpu_dtype t) {
  return base_dtypes[t].cls == DTYPE_SIGNED || base_dtypes[t].cls == DTYPE_UNSIGNED;
}

/* Round to nearest even; NaN stays NaN (quiet). Overflow as in PyTorch 2.13: e4m3fn saturates to 448, infinity too; the
 * others go to infinity. */
float base_f32_from_f16(uint16_t x);
uint16_t base_f16_from_f32(float x);
static inline float base_f32_from_bf16(uint16_t x) {
  union {
    uint32_t u;
    float f;
  } v = {(uint32_t)x << 16};
  return v.f;
}
static inline uint16_t base_bf16_from_f32(float x) {
  union {
    float f;
    uint32_t u;
  } v = {x};
  if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((v.u >> 16) | 0x40);
  return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1)) >> 16);
}
float base_f32_from_f8e4m3fn(uint8_t x);
uint8_t base_f8e4m3fn_from_f32(float x);
float base_f32_from_f8e5m2(uint8_t x);
uint8_t base_f8e5m2_from_f32(float x);

/* One element of any dtype, for scalars and the reference executor. Complex uses d[0], d[1]. */
typedef union base_scalar {
  int64_t i;
  uint64_t u;
  double d[2];
} base_scalar;
/* Reads or writes one element at `p`: bool and integers through i (u for unsigned), floats d[0]. */
base_scalar base_scalar_load(ttpu_dtype t, const void *p);
void base_scalar_store(ttpu_dtype t, void *p, base_scalar v);
/* Value conversion as C and PyTorch do it: float to int truncates, anything to bool is `!= 0`, complex to real drops the
 * imaginary part, integers wrap. The result is rounded to what `to` can hold. A float outside of the integer's range gives
 * what PyTorch gives on x86: int64, uint64 and uint8 by the 64-bit conversion, the others by the 32-bit one, whose answer
 * to NaN and overflow is its minimum. */
base_scalar base_scalar_convert(ttpu_dtype from, ttpu_dtype to, base_scalar v);

/* ---- shapes -------------------------------------------------------------------------------- */

enum { TTPU_MAX_RANK = 16 }; /* a tensor of higher rank is an error that says so */

static inline int64_t base_numel(uint32_t rank, const int64_t *dims) {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; ++i) n *= dims[i];
  return n;
}
/* Row-major strides in elements; a dimension of size 0 counts as 1, as in PyTorch. */
static inline void base_row_major(uint32_t rank, const int64_t *dims, int64_t *strides) {
  int64_t s = 1;
  for (uint32_t i = rank; i-- > 0;) {
    strides[i] = s;
    s *= dims[i] > 0 ? dims[i] : 1;
  }
}

/* ---- hash ---------------------------------------------------------------------------------- */

static inline uint64_t base_mix(uint64_t h, uint64_t v) { /* folded 64x64 multiplication */
  __uint128_t m = (__uint128_t)(h ^ 0x9e3779b97f4a7c15ull) * (v ^ 0xe7037ed1a0b428dbull);
  return (uint64_t)m ^ (uint64_t)(m >> 64);
}
uint64_t base_hash(uint64_t seed, const void *bytes, size_t length);

typedef struct base_hash128 {
  uint64_t a, b;
} base_hash128;
static inline base_hash128 base_mix128(base_hash128 h, uint64_t v) {
  base_hash128 r = {base_mix(h.a, v), base_mix(h.b + 0x8ebc6af09c88c6e3ull, v ^ h.a)};
  return r;
}
base_hash128 base_hash128_bytes(base_hash128 seed, const void *bytes, size_t length);

/* ---- log ----------------------------------------------------------------------------------- */

/* TTPU_LOG=debug|info|warn|error (default warn), to stderr. */
typedef enum { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR } base_log_level;
void base_log(base_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool base_log_enabled(base_log_level level);
/* TTPU_DUMP=name[,name]|all: does it name this stage? */
bool base_dump_enabled(const char *stage);

/* ---- clock --------------------------------------------------------------------------------- */

int64_t base_now_ns(void); /* of a clock that never goes back; where it began is nobody's business */

/* ---- cpu ----------------------------------------------------------------------------------- */

/* What the machine has and TTPU_CPU allows. TTPU_CPU=portable|avx2|avx512|amx caps the level, so
 * that the lower paths can be tested on any machine. */
typedef struct base_cpu_features {
  bool avx2;   /* with FMA, F16C and BMI2 */
  bool avx512; /* F, BW, DQ, VL */
  bool avx512_bf16;
  bool avx512_vnni;
  bool avx512_fp16;
  bool amx;                               /* TILE, BF16, INT8, and the kernel's permission was given */
  uint32_t l1d_bytes, l2_bytes, l3_bytes; /* per core, per core, shared */
  int cores; /* usable by this process: affinity, container quota; hyperthreads count once */
} base_cpu_features;
const base_cpu_features *base_cpu(void);
/* How many processes a launcher such as torchrun started on this machine for one job (LOCAL_WORLD_SIZE), else 1. */
int base_local_processes(void);

/* ---- pool ---------------------------------------------------------------------------------- */

/* The pool runs fn(ctx, begin, end, worker) over [0, count) cut into pieces of `grain` (the last may be shorter). The cut
 * depends on count and grain alone, so results do not depend on the number of threads; which thread runs a piece may
 * vary. The caller works too. Workers spin ~200 us, then sleep, and are woken only when it is worth it: `cost` is what
 * the whole run takes one thread, in nanoseconds; under 20 us it runs inline, from 150 us on (alone, or added up over
 * runs that follow each other closely) it wakes sleepers.
 * Nested runs, and those of a second host thread while a first one is using the pool, run inline on their thread.
 * `worker` is below base_pool_size() and distinct among the threads of one run, not between two runs at the same time.
 * After fork the child starts a new pool; fn itself must not fork and return. */
typedef void (*base_pool_fn)(void *ctx, int64_t begin, int64_t end, int worker);
void base_pool_run(int64_t count, int64_t grain, int64_t cost, base_pool_fn fn, void *ctx);
/* Threads, the caller included: TTPU_THREADS, else this process's part of base_cpu()->cores. This thread's next run has no worker of this number
 * or above, even if another thread resizes the pool in between: room for one state a worker may be made by it. */
int base_pool_size(void);
void base_pool_resize(int threads); /* 1 .. BASE_POOL_MAX, else clamped; takes effect at the next run */
enum { BASE_POOL_MAX = 256 };

#ifdef __cplusplus
}
#endif
#endif
