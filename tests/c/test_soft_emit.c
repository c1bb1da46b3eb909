/* The emitter against the VM's kernels, bit by bit but for NaNs: random chains of what it can say, on every kind of bits, in rows of every
 * length, with scalars, bools, row values and results on the way. */
#include <math.h>

#include "check.h"
#include "soft/soft_int.h"
#include "soft/tile/emit.h"

enum { MOST_VALUES = 64, MOST_RESULTS = 8 };

typedef struct chain {
  uint64_t seed;
  base_arena *arena;
  ir_func *f;
  ir_builder b;
  ttpu_dtype dtype;
  ir_value floats[MOST_VALUES], bools[MOST_VALUES];
  uint32_t float_count, bool_count, rank;
  int64_t dims[2];
} chain;

static uint32_t draw(chain *c, uint32_t n) { return (uint32_t)(check_random(&c->seed) >> 33) % n; }
static ir_value a_float(chain *c) { return c->floats[c->float_count - 1 - draw(c, draw(c, 2) ? c->float_count : 1)]; }
static void keep(chain *c, ir_value v) {
  bool is_bool = ir_type_of(c->f, v).dtype == TTPU_BOOL;
  ir_value *list = is_bool ? c->bools : c->floats;
  uint32_t *count = is_bool ? &c->bool_count : &c->float_count;
  if (*count < MOST_VALUES) list[(*count)++] = v;
}

/* A number of the first parameter, in all lanes. */
static ir_value a_number(chain *c) {
  int64_t start = draw(c, 4), limit = start + 1;
  ir_value s = ir_reshape(&c->b, ir_slice(&c->b, c->f->body.first_arg, &start, &limit, NULL), 0, NULL);
  return ir_broadcast_to(&c->b, ir_convert(&c->b, s, c->dtype), c->rank, c->dims);
}

static ir_value a_row_value(chain *c) {
  int64_t last = c->rank - 1, map = 0;
  ir_kind kind = draw(c, 2) ? IR_MAXIMUM : IR_ADD;
  return ir_broadcast_in_dim(&c->b, ir_reduce(&c->b, kind, a_float(c), 1, &last), c->rank, c->dims, &map);
}

static ir_value a_result(chain *c) {
  ir_value x = a_float(c), y = draw(c, 4) ? a_float(c) : a_number(c);
  switch (draw(c, 25)) {
    case 0: return ir_abs(&c->b, x);
    case 1: return ir_negate(&c->b, x);
    case 2: return ir_sqrt(&c->b, x);
    case 3: return ir_rsqrt(&c->b, x);
    case 4: return ir_floor(&c->b, x);
    case 5: return ir_ceil(&c->b, x);
    case 6: return ir_round_nearest_even(&c->b, x);
    case 7: return ir_exponential(&c->b, x);
    case 8: return ir_tanh(&c->b, x);
    case 9: return ir_logistic(&c->b, x);
    case 10: return ir_maximum(&c->b, x, y);
    case 11: return ir_minimum(&c->b, x, y);
    case 12: return ir_divide(&c->b, x, y);
    case 13:
    case 14: return ir_multiply(&c->b, x, y);
    case 15: return ir_subtract(&c->b, x, y);
    case 16: return ir_subtract(&c->b, a_number(c), x);
    case 17: return ir_compare(&c->b, (ir_direction)draw(c, 6), x, y);
    case 18: return c->bool_count ? ir_select(&c->b, c->bools[draw(c, c->bool_count)], x, y) : ir_add(&c->b, x, y);
    case 19: return c->bool_count ? ir_convert(&c->b, c->bools[draw(c, c->bool_count)], c->dtype) : ir_abs(&c->b, y);
    case 20:
      return c->bool_count ? ir_not_bits(&c->b, c->bools[draw(c, c->bool_count)]) : ir_convert(&c->b, x, TTPU_BOOL);
    case 21: {
      if (!c->bool_count) return ir_convert(&c->b, x, TTPU_BOOL);
      ir_value p = c->bools[draw(c, c->bool_count)], q = c->bools[draw(c, c->bool_count)];
      return draw(c, 3) == 0 ? ir_and_bits(&c->b, p, q)
             : draw(c, 2)    ? ir_or_bits(&c->b, p, q)
                             : ir_xor_bits(&c->b, p, q);
    }
    case 22: return c->rank == 2 && draw(c, 2) ? a_row_value(c) : ir_log(&c->b, x); /* the VM's own */
    case 23: return ir_erf(&c->b, x);
    default: return ir_add(&c->b, x, y);
  }
}

static ir_func *build(chain *c, uint32_t *result_count) {
  static const ttpu_dtype dtypes[] = {TTPU_F32, TTPU_F32, TTPU_BF16, TTPU_BF16, TTPU_F16};
  static const int64_t lengths[] = {1, 3, 15, 16, 17, 31, 32, 33, 64, 100, 257, 2000};
  base_arena_init(c->arena);
  c->f = ir_func_new(c->arena, "main");
  c->b = ir_builder_on(c->f);
  c->dtype = dtypes[draw(c, 5)];
  c->rank = 1 + draw(c, 2);
  c->dims[0] = c->rank == 1 ? lengths[draw(c, 12)] : 1 + draw(c, 40);
  c->dims[1] = lengths[draw(c, 12)];
  int64_t four = 4;
  ir_param(&c->b, ir_tensor(&c->b, TTPU_F64, 1, &four));
  for (uint32_t i = 0, n = 1 + draw(c, 3); i < n; ++i)
    keep(c, ir_param(&c->b, ir_tensor(&c->b, c->dtype, c->rank, c->dims)));
  if (draw(c, 3) == 0) keep(c, ir_param(&c->b, ir_tensor(&c->b, TTPU_BOOL, c->rank, c->dims)));
  for (uint32_t i = 0, n = 2 + draw(c, 30); i < n; ++i) keep(c, a_result(c));
  ir_value results[MOST_RESULTS];
  uint32_t count = 0;
  results[count++] = c->floats[c->float_count - 1];
  for (uint32_t n = draw(c, 3); count <= n;) results[count++] = a_float(c);
  if (c->bool_count && draw(c, 2)) results[count++] = c->bools[c->bool_count - 1];
  ir_return(&c->b, count, results);
  *result_count = count;
  return c->f;
}

/* Random bits, so every class of floats; mostly numbers of a middle size, or else all is infinite soon. */
static void fill(uint64_t *seed, ir_type t, void *p) {
  size_t size = base_dtype_bytes((ttpu_dtype)t.dtype);
  for (int64_t i = 0, n = ir_numel(t); i < n; ++i) {
    uint64_t bits = check_random(seed) >> 8;
    void *at = (char *)p + (size_t)i * size;
    base_scalar number = {.d = {((double)(bits & 0xffff) - 0x8000) / 0x2000}};
    if (t.dtype == TTPU_BOOL) *(uint8_t *)at = bits & 1;
    else if (bits >> 40 & 3) base_scalar_store((ttpu_dtype)t.dtype, at, number);
    else memcpy(at, &bits, size);
  }
}

/* Which of two NaNs an operation hands on is the compiler's choice of the order of its operands. */
static void make_nans_equal(ir_type t, void *p) {
  size_t size = base_dtype_bytes((ttpu_dtype)t.dtype);
  for (int64_t i = 0, n = ir_numel(t); i < n && t.dtype != TTPU_BOOL; ++i) {
    void *at = (char *)p + (size_t)i * size;
    if (isnan(base_scalar_load((ttpu_dtype)t.dtype, at).d[0])) memset(at, 0xff, size);
  }
}

/* The results of one way, one after the other. */
static char *run(uint64_t seed, bool emitted, uint32_t tied, soft_hbm *hbm, size_t *length, ttpu_dtype *dtype) {
  chain c = {.seed = seed, .arena = base_alloc(sizeof *c.arena)};
  uint32_t count;
  ir_func *f = build(&c, &count);
  *dtype = c.dtype;
  *length = 0;
  bool donate[8] = {false};
  for (uint32_t i = 0; i < f->body.arg_count; ++i) donate[i] = tied >> i & 1;
  f->donate = donate;
  if (!CHECK(c.b.status == TTPU_OK)) fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, c.b.message);
  soft_executable *e;
  tile_emit_allow(emitted);
  if (c.b.status != TTPU_OK || !CHECK_OK(soft_compile(c.arena, f, NULL, &e))) {
    base_arena_free(c.arena);
    base_free(c.arena);
    return NULL;
  }
  soft_block *arguments[8], *results[MOST_RESULTS];
  for (uint32_t i = 0; i < f->body.arg_count; ++i) {
    ir_type t = ir_type_of(f, f->body.first_arg + i);
    size_t bytes = (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype);
    CHECK_OK(soft_block_new(hbm, bytes, &arguments[i]));
    fill(&c.seed, t, arguments[i]->data);
  }
  char *all = NULL;
  if (CHECK_OK(soft_execute(e, hbm, arguments, donate, results, NULL))) {
    const ir_op *end = f->body.ops[f->body.count - 1];
    for (uint32_t i = 0; i < count; ++i) {
      ir_type t = ir_type_of(f, end->operands[i]);
      size_t bytes = (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype);
      all = realloc(all, *length + bytes + 1);
      memcpy(all + *length, results[i]->data, bytes);
      make_nans_equal(t, all + *length);
      *length += bytes;
      soft_block_free(results[i]);
    }
  }
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    if (!donate[i]) soft_block_free(arguments[i]);
  soft_executable_free(e);
  return all;
}

TEST(chains_give_the_kernels_bits) {
  bool usable = tile_emit_allow(true);
  if (!usable) fprintf(stderr, "nothing is emitted on this machine\n");
  soft_hbm *hbm;
  REQUIRE_OK(soft_hbm_new((size_t)1 << 32, &hbm));
  const char *one = getenv("FUZZ_SEED"), *many = getenv("FUZZ_COUNT");
  uint64_t first = one ? strtoull(one, NULL, 10) : 1, count = one ? 1 : many ? strtoull(many, NULL, 10) : 3000;
  for (uint64_t seed = first; seed < first + count && check_failures < 10; ++seed) {
    size_t lengths[2];
    ttpu_dtype dtype;
    uint32_t tied = (uint32_t)(seed * 2654435761u >> 7);
    char *vm = run(seed, false, tied, hbm, &lengths[0], &dtype);
    char *emitted = run(seed, true, tied, hbm, &lengths[1], &dtype);
    if (vm && emitted && memcmp(vm, emitted, lengths[0]) != 0) {
      size_t at = 0;
      while (vm[at] == emitted[at]) ++at;
      at &= ~(size_t)3;
      uint32_t x, y;
      memcpy(&x, vm + at, 4), memcpy(&y, emitted + at, 4);
      check_fail(__FILE__, __LINE__, "seed %llu (%s): byte %zu of %zu: %08x, the VM %08x", (unsigned long long)seed,
                 base_dtypes[dtype].hlo_name, at, lengths[0], y, x);
    }
    free(vm), free(emitted);
  }
  tile_emit_allow(true);
  CHECK_EQ(soft_hbm_get_stats(hbm).in_use, 0);
  soft_hbm_free(hbm);
}
