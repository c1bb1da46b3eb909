/* gemm: which kernel, which way, and the public entry points. The blocked engine is gemm_blocked.c. */
#include "soft/kern/gemm.h"

#include <string.h>

#include "soft/kern/gemm_int.h"

const gemm_isa *gemm_isa_get(void) {
#if defined(__x86_64__)
  const base_cpu_features *cpu = base_cpu();
  if (cpu->avx512) return &gemm_isa_avx512;
  if (cpu->avx2) return &gemm_isa_avx2;
#endif
  return &gemm_isa_portable;
}

static bool small_float(ttpu_dtype t) {
  return t == TTPU_F32 || t == TTPU_BF16 || t == TTPU_F16 || t == TTPU_F8E5M2 || t == TTPU_F8E4M3FN;
}

ttpu_dtype kern_gemm_accumulator(ttpu_dtype in, ttpu_dtype out) {
  if (in <= TTPU_NO_DTYPE || in >= TTPU_DTYPE_COUNT || out <= TTPU_NO_DTYPE || out >= TTPU_DTYPE_COUNT)
    return TTPU_NO_DTYPE;
  if (base_dtype_is_integer(in) && base_dtype_is_integer(out)) return base_dtype_bytes(out) <= 4 ? TTPU_U32 : TTPU_U64;
  if (base_dtype_is_complex(in) && base_dtype_is_complex(out)) return in;
  if (small_float(in) && base_dtype_is_float(out)) return TTPU_F32;
  if (in == TTPU_F64 && base_dtype_is_float(out)) return TTPU_F64;
  return TTPU_NO_DTYPE;
}

/* Do products of 16-bit values, summed modulo 2^32, give `t` right in 32 bits? u16 does not fit the signed pairs. */
static bool fits_i16(ttpu_dtype t) { return t == TTPU_I8 || t == TTPU_U8 || t == TTPU_I16; }

const gemm_kernel *gemm_kernel_get(ttpu_dtype a, ttpu_dtype b, ttpu_dtype out, int precision) {
  const gemm_isa *isa = gemm_isa_get();
  const gemm_kernel *bf16 = gemm_bf16_get();
  const ttpu_dtype acc = kern_gemm_accumulator(a, out);
  if (acc != kern_gemm_accumulator(b, out)) return NULL;
  switch (acc) {
    case TTPU_F32:
      if (bf16 && a == TTPU_BF16 && b == TTPU_BF16) return bf16;
      if (bf16 && a == TTPU_F32 && b == TTPU_F32 && precision == KERN_PRECISION_DEFAULT) return bf16;
      return isa->f32;
    case TTPU_F64: return isa->f64;
    case TTPU_C64: return isa->c64;
    case TTPU_C128: return isa->c128;
    case TTPU_U32: {
      const gemm_kernel *pairs = gemm_i16_get();
      return pairs && fits_i16(a) && fits_i16(b) ? pairs : isa->u32;
    }
    case TTPU_U64: return isa->u64;
    default: return NULL;
  }
}

/* ---- from the public struct to a job ---------------------------------------------------------- */

static ttpu_status check(const kern_gemm *g, ttpu_dtype b_dtype) {
  if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "gemm: negative size: batch %lld, m %lld, n %lld, k %lld",
                     (long long)g->batch, (long long)g->m, (long long)g->n, (long long)g->k);
  if (!gemm_kernel_get(g->a_dtype, b_dtype, g->out, g->precision))
    return base_fail(TTPU_INVALID_ARGUMENT, "gemm: no product of dtypes %d and %d into %d", (int)g->a_dtype,
                     (int)b_dtype, (int)g->out);
  if (g->bias && (g->bias_dtype <= TTPU_NO_DTYPE || g->bias_dtype >= TTPU_DTYPE_COUNT))
    return base_fail(TTPU_INVALID_ARGUMENT, "gemm: the bias has no dtype");
  return TTPU_OK;
}

/* C^T = B^T A^T: turns a column-major C into a row-major one. */
static void swap_operands(gemm_job *j) {
  gemm_operand a = j->a;
  int64_t m = j->m, row = j->c_row;
  j->a = j->b;
  j->b = a;
  j->m = j->n;
  j->n = m;
  j->c_row = j->c_col;
  j->c_col = row;
  j->bias_rows = !j->bias_rows;
}

/* One B for all of the batch, and rows of A and C that go on from one batch to the next: one tall product. */
static void fold_batch(gemm_job *j) {
  if (j->batch == 1 || j->epilogue) return;
  if ((j->b.batch == 0 || j->b.panels) && j->a.batch == j->m * j->a.line && j->c_batch == j->m * j->c_row) {
    j->m *= j->batch;
    j->batch = 1;
  }
}

const gemm_kernel *gemm_kernel_of_product(const kern_gemm *g) {
  const ttpu_dtype b_dtype = g->b_dtype ? g->b_dtype : g->a_dtype;
  const gemm_kernel *kernel = gemm_kernel_get(g->a_dtype, b_dtype, g->out, g->precision), *bytes = gemm_i8_get();
  bool is_bytes = kernel && bytes && kernel->acc == bytes->acc && g->a_dtype == TTPU_I8 && b_dtype == TTPU_I8;
  return is_bytes ? bytes : kernel;
}

static void make_job(const kern_gemm *g, gemm_job *j) {
  const ttpu_dtype b_dtype = g->b_dtype ? g->b_dtype : g->a_dtype;
  *j = (gemm_job){
      .kernel = gemm_kernel_of_product(g),
      .m = g->m,
      .n = g->n,
      .k = g->k,
      .batch = g->batch,
      .a = {.dtype = g->a_dtype, .data = g->a, .line = g->a_row, .k = g->a_col, .batch = g->a_batch},
      .b =
          {.dtype = b_dtype, .data = g->b, .line = g->b_col, .k = g->b_row, .batch = g->b_batch, .panels = g->b_packed},
      .out = g->out,
      .c = g->c,
      .c_row = g->c_row,
      .c_col = g->c_col,
      .c_batch = g->c_batch,
      .beta = g->beta,
      .bias = g->bias,
      .bias_dtype = g->bias_dtype,
      .epilogue = g->epilogue,
      .epilogue_ctx = g->epilogue_ctx,
  };
  fold_batch(j);
  if (g->epilogue || g->b_packed) return;
  /* Which of the two orientations: C's rows should be contiguous; a product with few columns is better seen with
   * few rows, for the skinny kernels and because columns fill vectors. */
  const bool row_major = j->c_col == 1 || j->n == 1, column_major = j->c_row == 1 || j->m == 1;
  if (j->n <= GEMM_SKINNY_ROWS && j->m > GEMM_SKINNY_ROWS) swap_operands(j);
  else if (!row_major && column_major && !(j->m <= GEMM_SKINNY_ROWS && j->n > GEMM_SKINNY_ROWS)) swap_operands(j);
}

ttpu_status kern_gemm_run(const kern_gemm *g) {
  BASE_TRY(check(g, g->b_dtype ? g->b_dtype : g->a_dtype));
  if (g->m == 0 || g->n == 0 || g->batch == 0) return TTPU_OK;
  gemm_job job;
  make_job(g, &job);
  return gemm_job_run(&job, g->workspace);
}

bool kern_gemm_wants_packed_b(const kern_gemm *g) {
  if (g->m <= 0 || g->n <= 0 || g->k <= 0 || g->batch <= 0) return false;
  gemm_job job;
  make_job(g, &job);
  return job.kernel && job.batch == 1 && job.b.data == g->b && job.n == g->n && gemm_job_is_blocked(&job);
}

size_t kern_gemm_workspace(const kern_gemm *g) {
  if (g->m <= 0 || g->n <= 0 || g->batch <= 0 || g->k < 0) return 0;
  gemm_job job;
  make_job(g, &job);
  return job.kernel ? gemm_job_workspace(&job) : 0;
}
