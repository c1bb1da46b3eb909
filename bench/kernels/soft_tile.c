/* Time of fused programs on the software TPU: compile (a structure hit: the bind), then execute, for the chains that
 * training and inference are made of. bench/kernels/soft_tile.py times the same in PyTorch.
 *
 *   soft_tile [name]     prints: name, operations, microseconds of the first compilation, of a bind, of an execution
 *
 * TTPU_THREADS=1 measures this thread's CPU time, which a busy machine does not disturb. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soft/soft_int.h"

static double now(void) {
  struct timespec t;
  clock_gettime(base_pool_size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                &t); /* alone: blind to other processes */
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ir_value param(ir_builder *b, ttpu_dtype t, int64_t rows, int64_t columns) {
  int64_t dims[2] = {rows, columns};
  return ir_param(b, ir_tensor(b, t, 2, dims));
}
static ir_value vector(ir_builder *b, ttpu_dtype t, int64_t n) { return ir_param(b, ir_tensor(b, t, 1, &n)); }
static ir_value over_rows(ir_builder *b, ir_value row, ir_value like) {
  ir_type t = ir_type_of(b->func, like);
  int64_t map = 0;
  return ir_broadcast_in_dim(b, row, 2, t.dims, &map);
}
static ir_value over_columns(ir_builder *b, ir_value column, ir_value like) {
  ir_type t = ir_type_of(b->func, like);
  int64_t map = 1;
  return ir_broadcast_in_dim(b, column, 2, t.dims, &map);
}
static ir_value reduce_last(ir_builder *b, ir_kind kind, ir_value x) {
  int64_t dim = 1;
  return ir_reduce(b, kind, x, 1, &dim);
}
/* Python numbers come as one parameter: number i of them, as dtype of x, spread over x. */
static ir_value number(ir_builder *b, ir_value numbers, int64_t i, ir_value x) {
  int64_t limit = i + 1;
  ir_type t = ir_type_of(b->func, x);
  ir_value s = ir_reshape(b, ir_slice(b, numbers, &i, &limit, NULL), 0, NULL);
  return ir_broadcast_in_dim(b, ir_convert(b, s, (ttpu_dtype)t.dtype), t.rank, t.dims, NULL);
}

static void build_add(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  ir_value x = param(b, t, n, m), y = param(b, t, n, m), r = ir_add(b, x, y);
  ir_return(b, 1, &r);
}
static void build_gelu(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) { /* tanh form, 8 operations */
  ir_value x = param(b, t, n, m), numbers = vector(b, TTPU_F64, 4);
  ir_value cube = ir_multiply(b, ir_multiply(b, x, x), x);
  ir_value inner =
      ir_multiply(b, number(b, numbers, 0, x), ir_add(b, x, ir_multiply(b, number(b, numbers, 1, x), cube)));
  ir_value r = ir_multiply(b, ir_multiply(b, number(b, numbers, 2, x), x),
                           ir_add(b, number(b, numbers, 3, x), ir_tanh(b, inner)));
  ir_return(b, 1, &r);
}
static void build_gelu_erf(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  ir_value x = param(b, t, n, m), numbers = vector(b, TTPU_F64, 4);
  ir_value e = ir_erf(b, ir_multiply(b, x, number(b, numbers, 0, x)));
  ir_value r = ir_multiply(b, ir_multiply(b, x, number(b, numbers, 1, x)), ir_add(b, e, number(b, numbers, 2, x)));
  ir_return(b, 1, &r);
}
static void build_softmax(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  ir_value x = param(b, t, n, m);
  ir_value e = ir_exponential(b, ir_subtract(b, x, over_rows(b, reduce_last(b, IR_MAXIMUM, x), x)));
  ir_value r = ir_divide(b, e, over_rows(b, reduce_last(b, IR_ADD, e), x));
  ir_return(b, 1, &r);
}
static void build_layer_norm(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  ir_value x = param(b, t, n, m), w = vector(b, t, m), c = vector(b, t, m), numbers = vector(b, TTPU_F64, 4);
  ir_value sum = reduce_last(b, IR_ADD, x);
  ir_value mean = ir_multiply(b, sum, number(b, numbers, 0, sum));
  ir_value d = ir_subtract(b, x, over_rows(b, mean, x));
  ir_value variance = reduce_last(b, IR_ADD, ir_multiply(b, d, d));
  ir_value scale =
      ir_rsqrt(b, ir_add(b, ir_multiply(b, variance, number(b, numbers, 0, sum)), number(b, numbers, 1, sum)));
  ir_value r[3] = {ir_add(b, ir_multiply(b, ir_multiply(b, d, over_rows(b, scale, x)), over_columns(b, w, x)),
                          over_columns(b, c, x)),
                   mean, scale};
  ir_return(b, 3, r);
}
static void build_column_sum(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  int64_t dim = 0;
  ir_value x = param(b, t, n, m), r = ir_reduce(b, IR_ADD, x, 1, &dim);
  ir_return(b, 1, &r);
}
static void build_sum(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) {
  int64_t dims[2] = {0, 1};
  ir_value x = param(b, t, n, m), r = ir_reduce(b, IR_ADD, x, 2, dims);
  ir_return(b, 1, &r);
}
static void build_adamw(ir_builder *b, ttpu_dtype t, int64_t n, int64_t m) { /* 15 operations; everything donated */
  ir_value p = param(b, t, n, m), g = param(b, t, n, m), m1 = param(b, t, n, m), m2 = param(b, t, n, m),
           c = vector(b, TTPU_F64, 8);
  ir_value decayed = ir_multiply(b, p, number(b, c, 0, p));
  ir_value first = ir_add(b, ir_multiply(b, m1, number(b, c, 1, p)), ir_multiply(b, g, number(b, c, 2, p)));
  ir_value second =
      ir_add(b, ir_multiply(b, m2, number(b, c, 3, p)), ir_multiply(b, ir_multiply(b, g, g), number(b, c, 4, p)));
  ir_value denominator = ir_add(b, ir_divide(b, ir_sqrt(b, second), number(b, c, 5, p)), number(b, c, 6, p));
  ir_value r[3] = {ir_subtract(b, decayed, ir_multiply(b, ir_divide(b, first, denominator), number(b, c, 7, p))), first,
                   second};
  ir_return(b, 3, r);
}

typedef void (*build_fn)(ir_builder *, ttpu_dtype, int64_t, int64_t);
static const struct {
  const char *name;
  build_fn build;
  ttpu_dtype dtype;
  int64_t rows, columns;
  bool donated;
} cases[] = {
    {"gelu_tanh 16", build_gelu, TTPU_F32, 1, 16, false},
    {"add 4M", build_add, TTPU_F32, 2048, 2048, false},
    {"gelu_tanh 64K", build_gelu, TTPU_F32, 64, 1024, false},
    {"gelu_tanh 4M", build_gelu, TTPU_F32, 2048, 2048, false},
    {"gelu_erf 4M", build_gelu_erf, TTPU_F32, 2048, 2048, false},
    {"gelu_tanh 4M bf16", build_gelu, TTPU_BF16, 2048, 2048, false},
    {"softmax 1024x1024", build_softmax, TTPU_F32, 1024, 1024, false},
    {"softmax 12288x64", build_softmax, TTPU_F32, 12288, 64, false},
    {"softmax 64x50257", build_softmax, TTPU_F32, 64, 50257, false},
    {"layer_norm 4096x768", build_layer_norm, TTPU_F32, 4096, 768, false},
    {"layer_norm 1x768", build_layer_norm, TTPU_F32, 1, 768, false},
    {"column_sum 4096x768", build_column_sum, TTPU_F32, 4096, 768, false},
    {"sum 4M", build_sum, TTPU_F32, 2048, 2048, false},
    {"adamw 1M", build_adamw, TTPU_F32, 1024, 1024, true},
    {"adamw 768", build_adamw, TTPU_F32, 1, 768, true},
};

static soft_executable *compile(build_fn build, ttpu_dtype t, int64_t rows, int64_t columns, bool donated,
                                double *seconds, uint32_t *ops) {
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  build(&b, t, rows, columns);
  if (b.status != TTPU_OK) fprintf(stderr, "%s\n", b.message), exit(1);
  bool *donate = base_arena_zalloc(arena, f->body.arg_count);
  for (uint32_t i = 0; i < f->body.arg_count; ++i)
    donate[i] = donated && ir_type_of(f, f->body.first_arg + i).rank == 2;
  f->donate = donate;
  soft_executable *e;
  double start = now();
  if (soft_compile(arena, f, NULL, &e) != TTPU_OK) fprintf(stderr, "%s\n", base_message()), exit(1);
  *seconds = now() - start;
  *ops = f->body.count;
  return e;
}

int main(int argc, char **argv) {
  soft_hbm *hbm;
  if (soft_hbm_new((size_t)8 << 30, &hbm) != TTPU_OK) return 1;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
    if (argc > 1 && !strstr(cases[k].name, argv[1])) continue;
    double first, bind = 1, seconds;
    uint32_t ops;
    soft_executable *e =
        compile(cases[k].build, cases[k].dtype, cases[k].rows + 1, cases[k].columns, cases[k].donated, &first, &ops);
    soft_executable_free(e);
    for (int i = 0; i < 20; ++i) {
      e = compile(cases[k].build, cases[k].dtype, cases[k].rows, cases[k].columns, cases[k].donated, &seconds, &ops);
      bind = seconds < bind ? seconds : bind;
      if (i < 19) soft_executable_free(e);
    }
    const ir_func *f = soft_executable_func(e);
    soft_block *in[8], *out[8];
    for (uint32_t i = 0; i < f->body.arg_count; ++i) {
      ir_type t = ir_type_of(f, f->body.first_arg + i);
      if (soft_block_new(hbm, (size_t)ir_numel(t) * base_dtype_bytes((ttpu_dtype)t.dtype), &in[i]) != TTPU_OK) return 1;
      for (int64_t j = 0; j < ir_numel(t); ++j) {
        base_scalar v = {.d = {(double)((j * 7919) % 1000) / 500 - 0.9}};
        base_scalar_store((ttpu_dtype)t.dtype, (char *)in[i]->data + (size_t)j * base_dtype_bytes((ttpu_dtype)t.dtype),
                          v);
      }
    }
    uint32_t results = f->body.ops[f->body.count - 1]->operand_count;
    double best = 1, total = now();
    for (int round = 0; now() - total < 0.4; ++round) {
      int times = cases[k].rows * cases[k].columns > 20000 ? 1 : 50;
      double start = now();
      for (int i = 0; i < times; ++i) {
        if (soft_execute(e, hbm, in, f->donate, out, NULL) != TTPU_OK) fprintf(stderr, "%s\n", base_message()), exit(1);
        if (cases[k].donated) { /* p, m1, m2 went in, and come out */
          in[0] = out[0], in[2] = out[1], in[3] = out[2];
          soft_block_new(hbm, (size_t)(cases[k].rows * cases[k].columns) * 4, &in[1]);
        } else {
          for (uint32_t r = 0; r < results; ++r) soft_block_free(out[r]);
        }
      }
      double took = (now() - start) / times;
      best = took < best ? took : best;
    }
    double elements = (double)cases[k].rows * (double)cases[k].columns;
    printf("%-22s %3u ops  compile %6.1f us  bind %5.2f us  run %9.2f us  %7.3f ns/element  %u steps\n", cases[k].name,
           ops, first * 1e6, bind * 1e6, best * 1e6, best * 1e9 / elements, soft_executable_get_stats(e).steps);
    for (uint32_t i = 0; i < f->body.arg_count; ++i) soft_block_free(in[i]);
    soft_executable_free(e);
  }
  soft_hbm_free(hbm);
  return 0;
}
