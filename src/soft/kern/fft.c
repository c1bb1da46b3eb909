/* Fourier transforms of any length, in double.
 *
 * A length whose prime factors are small is a sequence of Stockham passes (radix 4, 2, 3, 5, and a general one), which
 * go back and forth between two buffers and leave the result in order. A length with a large prime factor is
 * turned into a convolution of a power of two (Bluestein 1970). Several dimensions are transformed one after the other in a
 * dense complex copy of the operand, lines in parallel. Real transforms are complex ones of which half is kept.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"

typedef struct cpx {
  double re, im;
} cpx;

static inline cpx add(cpx a, cpx b) { return (cpx){a.re + b.re, a.im + b.im}; }
static inline cpx sub(cpx a, cpx b) { return (cpx){a.re - b.re, a.im - b.im}; }
static inline cpx mul(cpx a, cpx b) { return (cpx){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
static inline cpx scaled(cpx a, double s) { return (cpx){a.re * s, a.im * s}; }
static inline cpx turned(cpx a, double sign) { return (cpx){-sign * a.im, sign * a.re}; } /* a * sign i */

enum { LARGEST_RADIX = 50, MOST_PASSES = 64 };

typedef struct plan {
  int64_t n;
  double sign; /* of the exponent: -1 forward */
  cpx *roots;  /* exp(sign 2 pi i k / n) */
  uint32_t passes;
  int64_t radix[MOST_PASSES];
  /* Bluestein */
  struct plan *forward, *backward; /* of length >= 2n - 1 */
  cpx *chirp, *kernel;             /* exp(sign pi i k² / n); the transform of its conjugate, scaled */
} plan;

/* exp(sign 2 pi i k / n) from the first eighth of the circle, so that symmetric points are symmetric to the bit. */
static cpx root(int64_t k, int64_t n, double sign) {
  int64_t eighth = 8 * k / n;
  double angle;
  cpx z;
  switch (eighth) {
    case 0: angle = 2 * M_PI * (double)k / (double)n, z = (cpx){cos(angle), sin(angle)}; break;
    case 1: angle = 2 * M_PI * (double)(n - 4 * k) / (double)(4 * n), z = (cpx){sin(angle), cos(angle)}; break;
    case 2: angle = 2 * M_PI * (double)(4 * k - n) / (double)(4 * n), z = (cpx){-sin(angle), cos(angle)}; break;
    case 3: angle = 2 * M_PI * (double)(n - 2 * k) / (double)(2 * n), z = (cpx){-cos(angle), sin(angle)}; break;
    case 4: angle = 2 * M_PI * (double)(2 * k - n) / (double)(2 * n), z = (cpx){-cos(angle), -sin(angle)}; break;
    case 5: angle = 2 * M_PI * (double)(3 * n - 4 * k) / (double)(4 * n), z = (cpx){-sin(angle), -cos(angle)}; break;
    case 6: angle = 2 * M_PI * (double)(4 * k - 3 * n) / (double)(4 * n), z = (cpx){sin(angle), -cos(angle)}; break;
    default: angle = 2 * M_PI * (double)(n - k) / (double)n, z = (cpx){cos(angle), -sin(angle)}; break;
  }
  z.im *= sign;
  return z;
}

/* ---- passes --------------------------------------------------------------------------------------- */

/* One pass: n = r * m is the length still to be split, s the distance of a line's elements (s * n is constant). */
static void pass(const plan *p, int64_t r, int64_t n, int64_t s, const cpx *restrict x, cpx *restrict y) {
  int64_t m = n / r;
  const double sign = p->sign;
  for (int64_t k = 0; k < m; ++k) {
    const cpx *w = p->roots;
    const cpx *in = x + s * k;
    cpx *out = y + s * r * k;
    cpx w1 = w[s * k], w2 = r > 2 ? w[2 * s * k] : w1, w3 = r > 3 ? w[3 * s * k] : w1, w4 = r > 4 ? w[4 * s * k] : w1;
    if (r == 4) {
      for (int64_t q = 0; q < s; ++q) {
        cpx a = in[q], b = in[q + s * m], c = in[q + 2 * s * m], d = in[q + 3 * s * m];
        cpx ac = add(a, c), ac_ = sub(a, c), bd = add(b, d), bd_ = turned(sub(b, d), sign);
        out[q] = add(ac, bd);
        out[q + s] = mul(add(ac_, bd_), w1);
        out[q + 2 * s] = mul(sub(ac, bd), w2);
        out[q + 3 * s] = mul(sub(ac_, bd_), w3);
      }
    } else if (r == 2) {
      for (int64_t q = 0; q < s; ++q) {
        cpx a = in[q], b = in[q + s * m];
        out[q] = add(a, b);
        out[q + s] = mul(sub(a, b), w1);
      }
    } else if (r == 3) {
      for (int64_t q = 0; q < s; ++q) {
        cpx a = in[q], b = in[q + s * m], c = in[q + 2 * s * m], sum = add(b, c);
        cpx half = sub(a, scaled(sum, 0.5)), turn = turned(scaled(sub(b, c), 0.86602540378443864676), sign);
        out[q] = add(a, sum);
        out[q + s] = mul(add(half, turn), w1);
        out[q + 2 * s] = mul(sub(half, turn), w2);
      }
    } else { /* 5: cos and sin of 72 and 144 degrees */
      const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410, s1 = 0.95105651629515357212,
                   s2 = 0.58778525229247312917;
      for (int64_t q = 0; q < s; ++q) {
        cpx a = in[q], b = in[q + s * m], c = in[q + 2 * s * m], d = in[q + 3 * s * m], e = in[q + 4 * s * m];
        cpx be = add(b, e), cd = add(c, d), be_ = sub(b, e), cd_ = sub(c, d);
        cpx r1 = add(a, add(scaled(be, c1), scaled(cd, c2))), r2 = add(a, add(scaled(be, c2), scaled(cd, c1)));
        cpx i1 = turned(add(scaled(be_, s1), scaled(cd_, s2)), sign),
            i2 = turned(sub(scaled(be_, s2), scaled(cd_, s1)), sign);
        out[q] = add(a, add(be, cd));
        out[q + s] = mul(add(r1, i1), w1);
        out[q + 2 * s] = mul(add(r2, i2), w2);
        out[q + 3 * s] = mul(sub(r2, i2), w3);
        out[q + 4 * s] = mul(sub(r1, i1), w4);
      }
    }
  }
}

static void pass_general(const plan *p, int64_t r, int64_t n, int64_t s, const cpx *restrict x, cpx *restrict y) {
  int64_t m = n / r, unit = p->n / r; /* roots[unit * j] is the j-th of the r-th roots */
  for (int64_t k = 0; k < m; ++k)
    for (int64_t j = 0; j < r; ++j)
      for (int64_t q = 0; q < s; ++q) {
        cpx sum = {0, 0};
        for (int64_t i = 0; i < r; ++i) sum = add(sum, mul(x[q + s * (k + m * i)], p->roots[i * j % r * unit]));
        y[q + s * (r * k + j)] = mul(sum, p->roots[s * k * j]);
      }
}

/* Transforms x in place; `work` has room for n more, or plan_work(p). */
static void run_passes(const plan *p, cpx *x, cpx *work) {
  cpx *from = x, *to = work;
  int64_t n = p->n, s = 1;
  for (uint32_t i = 0; i < p->passes; ++i) {
    int64_t r = p->radix[i];
    if (r <= 5) pass(p, r, n, s, from, to);
    else pass_general(p, r, n, s, from, to);
    n /= r, s *= r;
    cpx *swap = from;
    from = to, to = swap;
  }
  if (from != x) memcpy(x, from, (size_t)p->n * sizeof *x);
}

static int64_t plan_work(const plan *p) { return p->forward ? 2 * p->forward->n : p->n; }

/* X[k] = chirp[k] * sum over j of (x[j] chirp[j]) conj(chirp[k - j]) */
static void run_plan(const plan *p, cpx *x, cpx *work) {
  if (!p->forward) {
    run_passes(p, x, work);
    return;
  }
  int64_t m = p->forward->n;
  for (int64_t i = 0; i < p->n; ++i) work[i] = mul(x[i], p->chirp[i]);
  memset(work + p->n, 0, (size_t)(m - p->n) * sizeof *work);
  run_passes(p->forward, work, work + m);
  for (int64_t i = 0; i < m; ++i) work[i] = mul(work[i], p->kernel[i]);
  run_passes(p->backward, work, work + m);
  for (int64_t i = 0; i < p->n; ++i) x[i] = mul(work[i], p->chirp[i]);
}

/* ---- plans ---------------------------------------------------------------------------------------- */

/* The radices of n; false: a prime factor is too large. */
static bool factor(plan *p) {
  static const int64_t first[] = {4, 2, 3, 5};
  int64_t n = p->n;
  for (int i = 0; i < 4; ++i)
    for (; n % first[i] == 0 && n > 1; n /= first[i]) p->radix[p->passes++] = first[i];
  for (int64_t r = 7; n > 1; r += 2) {
    if (r > LARGEST_RADIX) return false;
    for (; n % r == 0; n /= r) p->radix[p->passes++] = r;
  }
  return true;
}

static plan *plan_new(base_arena *arena, int64_t n, double sign) {
  plan *p = base_arena_zalloc(arena, sizeof *p);
  if (!p) return NULL;
  p->n = n, p->sign = sign;
  if (factor(p)) {
    if (!(p->roots = base_arena_alloc(arena, (size_t)n * sizeof *p->roots))) return NULL;
    for (int64_t k = 0; k < n; ++k) p->roots[k] = root(k, n, sign);
    return p;
  }
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  p->forward = plan_new(arena, m, -1), p->backward = plan_new(arena, m, 1);
  p->chirp = base_arena_alloc(arena, (size_t)n * sizeof *p->chirp);
  p->kernel = base_arena_zalloc(arena, (size_t)m * sizeof *p->kernel);
  cpx *work = base_arena_alloc(arena, (size_t)m * sizeof *work);
  if (!p->forward || !p->backward || !p->chirp || !p->kernel || !work) return NULL;
  for (int64_t k = 0; k < n; ++k) {
    p->chirp[k] = root((int64_t)((__int128)k * k % (2 * n)), 2 * n, sign);
    cpx c = scaled((cpx){p->chirp[k].re, -p->chirp[k].im}, 1 / (double)m);
    p->kernel[k] = c;
    if (k > 0) p->kernel[m - k] = c;
  }
  run_passes(p->forward, p->kernel, work);
  return p;
}

/* ---- all lines of a dimension ------------------------------------------------------------------------ */

typedef struct lines_job {
  const plan *p;
  cpx *data;
  int64_t n, inner; /* data is [outer, n, inner] */
  cpx *work;        /* for each worker: a line and the plan's room */
  int64_t room;
} lines_job;

static void transform_lines(void *context, int64_t begin, int64_t end, int worker) {
  const lines_job *j = context;
  cpx *line = j->work + (int64_t)worker * j->room, *work = line + j->n;
  for (int64_t i = begin; i < end; ++i) {
    cpx *x = j->data + i / j->inner * j->n * j->inner + i % j->inner;
    if (j->inner == 1) {
      run_plan(j->p, x, work);
      continue;
    }
    for (int64_t k = 0; k < j->n; ++k) line[k] = x[k * j->inner];
    run_plan(j->p, line, work);
    for (int64_t k = 0; k < j->n; ++k) x[k * j->inner] = line[k];
  }
}

static ttpu_status transform_dim(cpx *data, uint32_t rank, const int64_t *dims, uint32_t dim, double sign) {
  base_arena arena;
  base_arena_init(&arena);
  lines_job j = {.data = data, .n = dims[dim], .inner = base_numel(rank - dim - 1, dims + dim + 1)};
  int64_t lines = base_numel(dim, dims) * j.inner;
  ttpu_status status = TTPU_OK;
  plan *p = plan_new(&arena, j.n, sign);
  if (p) {
    j.p = p, j.room = j.n + plan_work(p);
    j.work = base_arena_alloc(&arena, (size_t)(j.room * base_pool_size()) * sizeof *j.work);
  }
  if (!p || !j.work) {
    status = base_no_memory((size_t)j.n * 4 * sizeof(cpx));
  } else {
    int64_t cost = j.n * (p->forward ? 60 : 10 + 2 * (int64_t)p->passes);
    base_pool_run(lines, kern_grain(cost), lines * cost, transform_lines, &j);
  }
  base_arena_free(&arena);
  return status;
}

/* ---- in and out ---------------------------------------------------------------------------------------- */

/* Between a view and rows of the dense copy, whose last dimension is as long as `dims` says; the view's may be shorter. */
typedef struct convert_job {
  const soft_view *v;
  cpx *data;
  int64_t row; /* the copy's last dimension */
  double scale;
  bool store;
} convert_job;

static void convert_rows(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const convert_job *j = context;
  const soft_view *v = j->v;
  const wide_functions *w = wide_get();
  bool complex = base_dtype_is_complex(v->dtype);
  uint32_t last = v->rank - 1;
  int64_t bytes = (int64_t)base_dtype_bytes(v->dtype), step = v->strides[last] * bytes, length = v->dims[last];
  wide_row row;
  for (int64_t r = begin; r < end; ++r) {
    int64_t offset = 0, rest = r;
    for (uint32_t d = last; d-- > 0; rest /= v->dims[d]) offset += rest % v->dims[d] * v->strides[d];
    char *p = (char *)v->data + offset * bytes;
    cpx *x = j->data + r * j->row;
    for (int64_t at = 0; at < length; at += KERN_ROW) {
      int64_t n = length - at < KERN_ROW ? length - at : KERN_ROW;
      if (!j->store) {
        w->load(v->dtype, p + at * step, step, n, row);
        for (int64_t i = 0; i < n; ++i)
          x[at + i] = complex ? (cpx){row[2 * i].f, row[2 * i + 1].f} : (cpx){row[i].f, 0};
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        cpx z = scaled(x[at + i], j->scale);
        if (complex) row[2 * i].f = z.re, row[2 * i + 1].f = z.im;
        else row[i].f = z.re;
      }
      w->store(v->dtype, p + at * step, step, n, row);
    }
  }
}

static void convert_all(convert_job *j) {
  int64_t rows = base_numel(j->v->rank - 1, j->v->dims), cost = j->v->dims[j->v->rank - 1] * 2 + 20;
  base_pool_run(rows, kern_grain(cost), rows * cost, convert_rows, j);
}

/* What of each row the half spectrum does not fill. */
static void clear_second_half(cpx *data, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = n / 2 + 1; k < n; ++k) data[r * n + k] = (cpx){0, 0};
}

/* X[n - k] = conj X[k] along the last dimension, of which half is there. */
static void complete_hermitian(cpx *data, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = n / 2 + 1; k < n; ++k) data[r * n + k] = (cpx){data[r * n + n - k].re, -data[r * n + n - k].im};
}

bool kern_fft_supports(const ir_fft_attrs *a, ttpu_dtype t) {
  return a->fft_length.count > 0 && (base_dtype_is_float(t) || base_dtype_is_complex(t));
}

ttpu_status kern_fft(const ir_fft_attrs *a, const soft_view *x, const soft_view *y) {
  uint32_t rank = x->rank, transformed = a->fft_length.count;
  bool inverse = a->fft_type == IR_FFT_IFFT || a->fft_type == IR_FFT_IRFFT;
  int64_t dims[TTPU_MAX_RANK], count = 1;
  memcpy(dims, x->dims, sizeof dims);
  for (uint32_t d = 0; d < transformed; ++d)
    dims[rank - transformed + d] = a->fft_length.data[d], count *= a->fft_length.data[d];
  if (base_numel(y->rank, y->dims) == 0) return TTPU_OK;
  size_t bytes = (size_t)base_numel(rank, dims) * sizeof(cpx);
  convert_job j = {
      .v = x, .data = base_alloc_aligned(64, bytes), .row = dims[rank - 1], .scale = inverse ? 1 / (double)count : 1};
  if (!j.data) return base_no_memory(bytes);
  ttpu_status status = TTPU_OK;
  convert_all(&j);
  if (a->fft_type == IR_FFT_IRFFT) clear_second_half(j.data, base_numel(rank - 1, dims), dims[rank - 1]);
  for (uint32_t d = 0; d + 1 < transformed && status == TTPU_OK; ++d)
    status = transform_dim(j.data, rank, dims, rank - transformed + d, inverse ? 1 : -1);
  if (a->fft_type == IR_FFT_IRFFT) complete_hermitian(j.data, base_numel(rank - 1, dims), dims[rank - 1]);
  if (status == TTPU_OK) status = transform_dim(j.data, rank, dims, rank - 1, inverse ? 1 : -1);
  j.v = y, j.store = true;
  if (status == TTPU_OK) convert_all(&j);
  base_free(j.data);
  return status;
}
