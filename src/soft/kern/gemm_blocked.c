/* The engine: gemm_job_run. Small products go straight through the micro-kernel on the caller's thread, skinny ones
 * through the streaming kernels, the rest through packed panels. */
#include <string.h>

#include "soft/kern/gemm_int.h"
#include "soft/kern/scratch.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
/* `total` cut into the fewest pieces of at most `most`, as equal as multiples of `unit` allow. */
static int64_t even_piece(int64_t total, int64_t most, int64_t unit) {
  return round_up(ceil_div(total, max64(1, ceil_div(total, most))), unit);
}

static const char *at(const void *p, ttpu_dtype t, int64_t elements) {
  return (const char *)p + elements * (int64_t)base_dtype_bytes(t);
}

/* Do elements of `a` have `b`'s bits? Integers of one width do, whatever their sign. */
static bool same_kind(ttpu_dtype a, ttpu_dtype b) {
  return base_dtype_bytes(a) == base_dtype_bytes(b) && (a == b || base_dtype_is_integer(a));
}

/* Does the micro-kernel's own result belong in C as it is? */
static bool stores_directly(const gemm_job *j) {
  return !j->store && !j->epilogue && !j->bias && j->c_col == 1 && (j->beta == 0 || j->beta == 1) &&
         same_kind(j->out, j->kernel->acc);
}

/* ---- finishing a tile of accumulators -------------------------------------------------------- */

enum { FINISH_COLUMNS = 512 };

#define ADD_SCALED(T)                                                            \
  {                                                                              \
    T *t = tile;                                                                 \
    const T *x = add;                                                            \
    for (int64_t i = 0; i < n; ++i) t[i] += scale == 1 ? x[i] : (T)scale * x[i]; \
    return;                                                                      \
  }
/* tile[i] += scale * add[i], n elements of the accumulator's dtype. */
static void add_scaled(ttpu_dtype acc, int64_t n, void *tile, const void *add, double scale) {
  switch (acc) {
    case TTPU_C64: n *= 2; /* fall through */
    case TTPU_F32: ADD_SCALED(float)
    case TTPU_C128: n *= 2; /* fall through */
    case TTPU_F64: ADD_SCALED(double)
    case TTPU_U32: {
      uint32_t *t = tile, s = (uint32_t)(int64_t)scale;
      for (int64_t i = 0; i < n; ++i) t[i] += s * ((const uint32_t *)add)[i];
      return;
    }
    default: {
      uint64_t *t = tile, s = (uint64_t)(int64_t)scale;
      for (int64_t i = 0; i < n; ++i) t[i] += s * ((const uint64_t *)add)[i];
    }
  }
}

static void add_bias(const gemm_job *j, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                     char *tile, int64_t stride) {
  const ttpu_dtype acc = j->kernel->acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc);
  const char *bias = at(j->bias, j->bias_dtype, batch * j->bias_batch + (j->bias_rows ? row0 : col0));
  char row[FINISH_COLUMNS * 16] __attribute__((aligned(64)));
  for (int64_t c = 0; c < cols; c += FINISH_COLUMNS) {
    const int64_t n = min64(FINISH_COLUMNS, cols - c);
    if (!j->bias_rows) gemm_convert_row(j->bias_dtype, acc, n, at(bias, j->bias_dtype, c), 1, row);
    for (int64_t r = 0; r < rows; ++r) {
      if (j->bias_rows) gemm_convert_row(j->bias_dtype, acc, n, at(bias, j->bias_dtype, r), 0, row);
      add_scaled(acc, n, tile + (r * stride + c) * ab, row, 1);
    }
  }
}

static void add_old(const gemm_job *j, const char *c0, int64_t rows, int64_t cols, char *tile, int64_t stride) {
  const ttpu_dtype acc = j->kernel->acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc);
  char row[FINISH_COLUMNS * 16] __attribute__((aligned(64)));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += FINISH_COLUMNS) {
      const int64_t n = min64(FINISH_COLUMNS, cols - c);
      gemm_convert_row(j->out, acc, n, at(c0, j->out, r * j->c_row + c * j->c_col), j->c_col, row);
      add_scaled(acc, n, tile + (r * stride + c) * ab, row, j->beta);
    }
}

/* C's columns are contiguous: transposes blocks of 32x32 on the way. */
static void store_transposed(const gemm_job *j, char *c0, int64_t rows, int64_t cols, const char *tile,
                             int64_t stride) {
  const ttpu_dtype acc = j->kernel->acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc), ob = (int64_t)base_dtype_bytes(j->out);
  char block[32 * 32 * 8] __attribute__((aligned(64)));
  for (int64_t r = 0; r < rows; r += 32)
    for (int64_t c = 0; c < cols; c += 32) {
      const int nr = (int)min64(32, rows - r), nc = (int)min64(32, cols - c);
      const char *from = tile + (r * stride + c) * ab;
      if (ab == 4) gemm_isa_get()->pack_4(nr, nr, nc, from, stride, 1, block);
      else gemm_isa_get()->pack_8(nr, nr, nc, from, stride, 1, block);
      for (int i = 0; i < nc; ++i)
        gemm_store_row(acc, j->out, nr, block + i * nr * ab, c0 + (r * j->c_row + (c + i) * j->c_col) * ob, j->c_row);
    }
}

static void finish_tile(const gemm_job *j, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                        char *tile, int64_t stride) {
  const ttpu_dtype acc = j->kernel->acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc), ob = (int64_t)base_dtype_bytes(j->out);
  char *c0 = j->store ? NULL : (char *)j->c + (batch * j->c_batch + row0 * j->c_row + col0 * j->c_col) * ob;
  if (j->beta != 0 && c0) add_old(j, c0, rows, cols, tile, stride);
  if (j->bias) add_bias(j, batch, row0, rows, col0, cols, tile, stride);
  if (j->epilogue) j->epilogue(j->epilogue_ctx, batch, row0, rows, col0, cols, tile, stride);
  if (j->store) {
    j->store(j->store_ctx, batch, row0, rows, col0, cols, tile, stride);
    return;
  }
  if (j->c_col != 1 && j->c_row == 1 && rows > 1 && ab <= 8) {
    store_transposed(j, c0, rows, cols, tile, stride);
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    gemm_store_row(acc, j->out, cols, tile + r * stride * ab, c0 + r * j->c_row * ob, j->c_col);
}

/* ---- blocking -------------------------------------------------------------------------------- */

typedef struct gemm_blocking {
  int64_t kc, mc; /* values of k and rows of A in one packed block */
  int64_t tile_rows, tile_cols;
  int64_t row_tiles, col_tiles;
  int64_t col_group;                    /* tiles side by side that are one task */
  bool whole_a;                         /* a task packs its rows of A once, for all of k and all of its tiles */
  int64_t a_bytes, b_bytes, tile_bytes; /* a worker's workspace, each a multiple of 64 */
  int64_t worker_bytes;
  bool direct; /* accumulate in C */
} gemm_blocking;

/* The block of k: a panel of B fills L1. Part of the result's rounding, so it depends on k and the CPU alone. */
static int64_t block_of_k(const gemm_kernel *kernel, int64_t k) {
  if (gemm_head(kernel) > 0) return max64(k, 1);
  const int64_t l1 = base_cpu()->l1d_bytes ? base_cpu()->l1d_bytes : 32768;
  const int64_t fit = l1 / (kernel->nr * (int64_t)base_dtype_bytes(kernel->packed));
  return even_piece(max64(k, 1), max64(64, min64(fit, 512)), max64(8, kernel->k_unit));
}

static double work(const gemm_job *j) {
  return 2.0 * (double)j->m * (double)j->n * (double)max64(j->k, 1) * (double)j->batch;
}

/* Nanoseconds on one thread, for the pool: a guess within a factor of three. */
static int64_t cost(const gemm_job *j) {
  const double rate = base_cpu()->avx512 ? 100 : base_cpu()->avx2 ? 50 : 8;
  const double ns = work(j) / rate * (double)base_dtype_bytes(j->kernel->packed) / 4;
  return ns > 1e15 ? (int64_t)1e15 : (int64_t)ns;
}

/* Rows in the panel that starts at row r of `rows`: as even as can be, so that a remainder of one row is not a panel
 * of its own. */
static int panel_rows(const gemm_kernel *kernel, int64_t rows) {
  return (int)ceil_div(rows, ceil_div(rows, kernel->mr));
}

/* What the rows of a tile are a multiple of. */
static int64_t row_unit(const gemm_job *j) {
  if (!j->a.window) return j->kernel->mr;
  const int64_t run = j->a.window->run;
  return run <= 4 * j->kernel->mr ? run : panel_rows(j->kernel, run);
}

static gemm_blocking block(const gemm_job *j) {
  const gemm_kernel *kernel = j->kernel;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), ab = (int64_t)base_dtype_bytes(kernel->acc);
  const int64_t l2 = base_cpu()->l2_bytes ? base_cpu()->l2_bytes : 512 << 10;
  const int64_t unit = row_unit(j);
  const int threads = base_pool_size();
  gemm_blocking s = {.direct = stores_directly(j)};
  s.kc = block_of_k(kernel, j->k);
  const int64_t most_mc = max64(kernel->mr, l2 / 4 / (s.kc * pb) / kernel->mr * kernel->mr);
  /* With a window B's columns stay in L2, for all of k, while the lines of all batch entries pass by. */
  const int64_t b_lines = j->a.window ? gemm_padded(kernel, j->k) : s.kc;
  const int64_t most_cols = max64(kernel->nr, l2 / 2 / (b_lines * pb) / kernel->nr * kernel->nr);
  const int64_t most_rows = s.direct ? 2 * most_mc : max64(kernel->mr, min64(most_mc, l2 / 2 / (most_cols * ab)));
  s.tile_cols = even_piece(j->n, most_cols, kernel->nr);
  s.tile_rows = even_piece(j->m, most_rows, unit);
  /* Enough tasks for all threads, as long as a task is worth handing over. */
  const double task = work(j) / (double)j->batch;
  const int64_t plenty = (j->a.window ? 8 : 4) * threads; /* a window has no panels to make again for more tasks */
  for (;;) {
    s.row_tiles = ceil_div(j->m, s.tile_rows);
    s.col_tiles = ceil_div(j->n, s.tile_cols);
    const int64_t tasks = s.row_tiles * s.col_tiles * j->batch;
    const double each = task / (double)(s.row_tiles * s.col_tiles);
    if (threads == 1 || (tasks >= threads && (each < 5e7 || tasks >= plenty)) || each < 4e6) break;
    /* Columns that a function packs are packed again for each tile of rows: it stays one as long as there are columns. */
    const bool by_cols = s.tile_cols > kernel->nr && (s.tile_cols >= s.tile_rows || s.tile_rows <= unit || j->b.pack);
    if (!by_cols && (s.tile_rows <= unit || (j->b.pack && tasks >= threads))) break;
    if (by_cols) s.tile_cols = round_up(ceil_div(s.tile_cols, 2), kernel->nr);
    else s.tile_rows = round_up(ceil_div(s.tile_rows, 2), unit);
  }
  s.mc = j->a.window ? s.tile_rows : min64(most_mc, s.tile_rows);
  const int64_t kc = gemm_padded(kernel, s.kc), all_k = gemm_padded(kernel, j->k);
  s.whole_a = !j->a.window && s.col_tiles > 1 && s.tile_rows * all_k * pb <= l2 / 2;
  /* Two tasks for each thread are enough for balance: more would pack A more often. */
  s.col_group = !s.whole_a     ? 1
                : threads == 1 ? s.col_tiles
                               : max64(1, min64(s.col_tiles, s.row_tiles * s.col_tiles * j->batch / (2 * threads)));
  const int64_t overhang = kernel->a_by_rows ? kernel->mr * kc * pb : 64; /* tiles are loaded whole */
  s.a_bytes = j->a.window ? 0 : round_up((s.whole_a ? s.tile_rows * all_k : s.mc * kc) * pb + overhang, 64);
  s.b_bytes = j->b.panels ? 0 : round_up(s.tile_cols * kc * pb, 64);
  s.tile_bytes = s.direct ? 0 : round_up(s.tile_rows * s.tile_cols * ab, 64);
  s.worker_bytes = s.a_bytes + s.b_bytes + s.tile_bytes + 64; /* 64: workers' parts fall into different sets */
  return s;
}

/* ---- one task -------------------------------------------------------------------------------- */

static void pack_panel(const gemm_kernel *kernel, gemm_side side, const gemm_operand *o, int64_t batch, int64_t line0,
                       int lines, int width, int64_t k0, int64_t count, void *dst) {
  if (o->pack) o->pack(o->data, batch, line0, lines, width, k0, count, dst);
  else
    gemm_pack(kernel, side, o->dtype, lines, width, count,
              at(o->data, o->dtype, batch * o->batch + line0 * o->line + k0 * o->k), o->line, o->k, dst);
}

typedef struct gemm_task {
  const gemm_job *job;
  const gemm_blocking *s;
  char *workspace;
  char *a_panels; /* all of A packed ahead, tile by tile of rows; NULL: tasks pack it */
} gemm_task;

/* One block of k for `rows` packed rows against the packed columns of the tile. B's panel stays in L1 while A's
 * panels pass by. */
static void multiply_block(const gemm_kernel *kernel, int64_t count, int64_t rows, const char *a, int64_t cols,
                           const char *b, int64_t b_panel, char *c, int64_t c_row, bool accumulate) {
  const int64_t ab = (int64_t)base_dtype_bytes(kernel->acc), pb = (int64_t)base_dtype_bytes(kernel->packed);
  const int height = panel_rows(kernel, rows);
  const int64_t a_panel = height * gemm_padded(kernel, count) * pb;
  for (int64_t col = 0; col < cols; col += kernel->nr, b += b_panel) {
    const int wide = (int)min64(kernel->nr, cols - col);
    const char *ap = a;
    for (int64_t row = 0; row < rows; row += height, ap += a_panel)
      kernel->run(count, (int)min64(height, rows - row), wide, ap, b, c + (row * c_row + col) * ab, c_row, accumulate);
  }
}

/* The same for rows that are read through a window: a panel ends where their run does. */
static void multiply_window(const gemm_job *j, int64_t batch, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                            int64_t cols, const char *b, int64_t b_panel, char *c, int64_t c_row, bool accumulate) {
  const gemm_kernel *kernel = j->kernel;
  const gemm_window *w = j->a.window;
  const int64_t ab = (int64_t)base_dtype_bytes(kernel->acc), height = panel_rows(kernel, w->run);
  for (int64_t col = 0; col < cols; col += kernel->nr, b += b_panel)
    for (int64_t row = 0; row < rows;) {
      const int64_t x = (row0 + row) % w->run;
      const int64_t lines = min64(min64(height - x % height, w->run - x), rows - row);
      kernel->window(count, (int)lines, (int)min64(kernel->nr, cols - col), w->line(w->ctx, batch, row0 + row), w->step,
                     w->offsets + k0 / kernel->kr, b, c + (row * c_row + col) * ab, c_row, accumulate);
      row += lines;
    }
}

/* Rows row0 .. row0+rows of A for one block of k, in panels. */
static void pack_rows(const gemm_job *j, int64_t batch, int64_t row0, int64_t rows, int64_t k0, int64_t count,
                      char *to) {
  const gemm_kernel *kernel = j->kernel;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), padded = gemm_padded(kernel, count);
  const int height = panel_rows(kernel, rows);
  for (int64_t i = 0; i < rows; i += height) {
    const int lines = (int)min64(height, rows - i);
    pack_panel(kernel, GEMM_A, &j->a, batch, row0 + i, lines, lines, k0, count, to + i * padded * pb);
  }
}

/* Bytes into the panels of a tile of `rows` rows, all of k, at which row r's for this block of k begin. (Blocks of k but the
 * last have no padding.) */
static int64_t offset_in_a(const gemm_kernel *kernel, int64_t rows, int64_t r, int64_t k0, int64_t count) {
  return (k0 * rows + r * gemm_padded(kernel, count)) * (int64_t)base_dtype_bytes(kernel->packed);
}

/* All of A, on the pool: a task is a tile's rows for one block of k. */
static void pack_a_tasks(void *ctx, int64_t begin, int64_t end, int worker) {
  const gemm_task *t = ctx;
  const gemm_job *j = t->job;
  const gemm_blocking *s = t->s;
  const gemm_kernel *kernel = j->kernel;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), blocks = ceil_div(j->k, s->kc);
  (void)worker;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row0 = i / blocks * s->tile_rows, rows = min64(s->tile_rows, j->m - row0);
    const int64_t k0 = i % blocks * s->kc, count = min64(s->kc, j->k - k0);
    char *to = t->a_panels + row0 * gemm_padded(kernel, j->k) * pb;
    for (int64_t r = 0; r < rows; r += s->mc)
      pack_rows(j, 0, row0 + r, min64(s->mc, rows - r), k0, count, to + offset_in_a(kernel, rows, r, k0, count));
  }
}

/* The panels of B for columns col0 .. col0+cols and one block of k: those packed ahead, or made in `own`. */
static const char *panels_of_b(const gemm_job *j, int64_t batch, int64_t col0, int64_t cols, int64_t k0, int64_t count,
                               char *own) {
  const gemm_kernel *kernel = j->kernel;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), padded = gemm_padded(kernel, count);
  const int64_t nr = kernel->nr;
  if (j->b.panels) return (const char *)j->b.panels + (k0 * ceil_div(j->n, nr) * nr + col0 / nr * nr * padded) * pb;
  for (int64_t col = 0; col < cols; col += nr)
    pack_panel(kernel, GEMM_B, &j->b, batch, col0 + col, (int)min64(nr, cols - col), kernel->nr, k0, count,
               own + col * padded * pb);
  return own;
}

/* One tile of C. `packed`: A's panels for all of k lie in the workspace already. */
static void run_tile(const gemm_task *t, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                     bool packed, char *workspace) {
  const gemm_job *j = t->job;
  const gemm_blocking *s = t->s;
  const gemm_kernel *kernel = j->kernel;
  const int64_t ab = (int64_t)base_dtype_bytes(kernel->acc), pb = (int64_t)base_dtype_bytes(kernel->packed);
  char *own_b = workspace + s->a_bytes, *tile = own_b + s->b_bytes;
  char *c = s->direct ? (char *)j->c + (batch * j->c_batch + row0 * j->c_row + col0) * ab : tile;
  const int64_t c_row = s->direct ? j->c_row : s->tile_cols;
  int64_t k0 = 0;
  do {
    const int64_t count = min64(s->kc, j->k - k0), b_panel = kernel->nr * gemm_padded(kernel, count) * pb;
    const char *b = panels_of_b(j, batch, col0, cols, k0, count, own_b);
    char *all_a = t->a_panels ? t->a_panels + row0 * gemm_padded(kernel, j->k) * pb : s->whole_a ? workspace : NULL;
    for (int64_t r = 0; r < rows; r += s->mc) {
      const int64_t block_rows = min64(s->mc, rows - r);
      const bool accumulate = k0 > 0 || (s->direct && j->beta == 1);
      if (j->a.window) {
        multiply_window(j, batch, row0 + r, block_rows, k0, count, cols, b, b_panel, c + r * c_row * ab, c_row,
                        accumulate);
        continue;
      }
      char *a = all_a ? all_a + offset_in_a(kernel, rows, r, k0, count) : workspace;
      if (!packed) pack_rows(j, batch, row0 + r, block_rows, k0, count, a);
      multiply_block(kernel, count, block_rows, a, cols, b, b_panel, c + r * c_row * ab, c_row, accumulate);
    }
    k0 += count;
  } while (k0 < j->k);
  if (!s->direct) finish_tile(j, batch, row0, rows, col0, cols, tile, c_row);
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int worker) {
  const gemm_task *t = ctx;
  const gemm_job *j = t->job;
  const gemm_blocking *s = t->s;
  const int64_t groups = ceil_div(s->col_tiles, s->col_group);
  if (j->kernel->begin) j->kernel->begin();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row0 = i % s->row_tiles * s->tile_rows, rest = i / s->row_tiles;
    const int64_t batch = j->a.window ? rest % j->batch : rest / groups;
    const int64_t first = (j->a.window ? rest / j->batch : rest % groups) * s->col_group,
                  last = min64(s->col_tiles, first + s->col_group);
    for (int64_t col = first; col < last; ++col)
      run_tile(t, batch, row0, min64(s->tile_rows, j->m - row0), col * s->tile_cols,
               min64(s->tile_cols, j->n - col * s->tile_cols), t->a_panels || (s->whole_a && col > first),
               t->workspace + worker * s->worker_bytes);
  }
  if (j->kernel->end) j->kernel->end();
}

static int64_t task_count(const gemm_job *j, const gemm_blocking *s) {
  return s->row_tiles * ceil_div(s->col_tiles, s->col_group) * j->batch;
}

typedef struct pack_task {
  const gemm_kernel *kernel;
  gemm_operand b;
  int64_t n, k, kc, panels;
  char *to;
} pack_task;

static void pack_b_tasks(void *ctx, int64_t begin, int64_t end, int worker) {
  const pack_task *t = ctx;
  const int nr = t->kernel->nr;
  const int64_t pb = (int64_t)base_dtype_bytes(t->kernel->packed);
  (void)worker;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t k0 = 0; k0 < t->k; k0 += t->kc) {
      const int64_t count = min64(t->kc, t->k - k0);
      pack_panel(t->kernel, GEMM_B, &t->b, 0, i * nr, (int)min64(nr, t->n - i * nr), nr, k0, count,
                 t->to + (k0 * t->panels * nr + i * nr * gemm_padded(t->kernel, count)) * pb);
    }
}

void gemm_pack_whole_b(const gemm_job *j, void *to) {
  const pack_task t = {.kernel = j->kernel,
                       .b = j->b,
                       .n = j->n,
                       .k = j->k,
                       .kc = block_of_k(j->kernel, j->k),
                       .panels = ceil_div(j->n, j->kernel->nr),
                       .to = to};
  base_pool_run(t.panels, 1, j->n * j->k, pack_b_tasks, (void *)(uintptr_t)&t);
}

size_t gemm_whole_b_bytes(const gemm_kernel *kernel, int64_t n, int64_t k) {
  /* Only the last block of k has padding: block_of_k gives multiples of the unit. */
  return (size_t)(round_up(n, kernel->nr) * gemm_padded(kernel, k)) * base_dtype_bytes(kernel->packed);
}

/* Would every row of tiles pack the same B again, in a product that is long enough for a barrier? */
static bool packs_b_first(const gemm_job *j, const gemm_blocking *s) {
  return !j->b.panels && !j->b.pack && j->batch == 1 && j->k > 0 && s->row_tiles > 1 && work(j) > 1e8;
}

/* Would several tasks pack the same rows of A, in a product that is long enough for a barrier? */
static bool packs_a_first(const gemm_job *j, const gemm_blocking *s) {
  const int64_t sharers = ceil_div(s->col_tiles, s->col_group) * j->batch;
  return !j->a.pack && !j->a.window && (j->batch == 1 || j->a.batch == 0) && j->k > 0 && sharers > 1 && work(j) > 1e8;
}

static ttpu_status pack_whole_a(gemm_task *t) {
  const gemm_job *j = t->job;
  const gemm_kernel *kernel = j->kernel;
  const int64_t overhang =
      kernel->a_by_rows ? kernel->mr * gemm_padded(kernel, t->s->kc) : 0; /* tiles are loaded whole */
  const size_t bytes = (size_t)(j->m * gemm_padded(kernel, j->k) + overhang) * base_dtype_bytes(kernel->packed);
  if (!(t->a_panels = kern_scratch_new(bytes))) return base_no_memory(bytes);
  base_pool_run(t->s->row_tiles * ceil_div(j->k, t->s->kc), 1, j->m * j->k, pack_a_tasks, t);
  return TTPU_OK;
}

static ttpu_status run_blocked(const gemm_job *given, void *workspace) {
  gemm_job job = *given, *j = &job;
  gemm_blocking s = block(j);
  gemm_task t = {.job = j, .s = &s};
  char small[32768] __attribute__((aligned(64)));
  void *own = NULL, *panels = NULL;
  ttpu_status status = TTPU_OK;
  if (packs_b_first(j, &s)) {
    panels = kern_scratch_new(gemm_whole_b_bytes(j->kernel, j->n, j->k));
    if (!panels) return base_no_memory(gemm_whole_b_bytes(j->kernel, j->n, j->k));
    gemm_pack_whole_b(j, panels);
    j->b.panels = panels;
    s = block(j);
  }
  if (packs_a_first(j, &s)) {
    status = pack_whole_a(&t);
    s.col_group = 1; /* and nothing is lost by more tasks, which threads share more evenly */
  }
  const int64_t tasks = task_count(j, &s);
  const size_t bytes = (size_t)(s.worker_bytes * (tasks == 1 ? 1 : base_pool_size()));
  if (!workspace && bytes <= sizeof small) workspace = small;
  if (!workspace && status == TTPU_OK && !(workspace = own = kern_scratch_new(bytes))) status = base_no_memory(bytes);
  t.workspace = workspace;
  if (status == TTPU_OK && tasks == 1) run_tasks(&t, 0, 1, 0);
  else if (status == TTPU_OK)
    base_pool_run(tasks, max64(1, (int64_t)(20000 / max64(1, cost(j) / tasks))), cost(j), run_tasks, &t);
  kern_scratch_free(own);
  kern_scratch_free(panels);
  kern_scratch_free(t.a_panels);
  return status;
}

/* ---- small: no packing of A, B only where its columns are not contiguous ----------------------- */

enum { SMALL_TILE_BYTES = 16384, SMALL_B_BYTES = 32768 };

static bool is_small(const gemm_job *j) {
  const gemm_kernel *kernel = j->kernel;
  if (!kernel->direct || j->a.pack || j->a.window || j->b.pack || j->b.panels) return false;
  if (!same_kind(j->a.dtype, kernel->packed) || !same_kind(j->b.dtype, kernel->packed)) return false;
  if (j->m > 96 || j->n > 96 || j->k > 128) return false;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed);
  if (kernel->nr * j->k * pb > SMALL_B_BYTES) return false;
  return stores_directly(j) || j->m * j->n * pb <= SMALL_TILE_BYTES;
}

static void run_small(const gemm_job *j, int64_t batch) {
  const gemm_kernel *kernel = j->kernel;
  const int64_t pb = (int64_t)base_dtype_bytes(kernel->packed), nr = kernel->nr;
  char tile[SMALL_TILE_BYTES] __attribute__((aligned(64)));
  char packed[SMALL_B_BYTES] __attribute__((aligned(64)));
  const bool direct = stores_directly(j);
  char *c = direct ? (char *)j->c + batch * j->c_batch * pb : tile;
  const int64_t c_row = direct ? j->c_row : j->n;
  const char *a = at(j->a.data, j->a.dtype, batch * j->a.batch), *b = at(j->b.data, j->b.dtype, batch * j->b.batch);
  const int height = panel_rows(kernel, j->m);
  for (int64_t col = 0; col < j->n; col += nr) {
    const int wide = (int)min64(nr, j->n - col);
    const char *panel = b + col * pb;
    int64_t b_row = j->b.k;
    if (j->b.line != 1 || wide % kernel->lanes) {
      gemm_pack(kernel, GEMM_B, j->b.dtype, wide, (int)nr, j->k, b + col * j->b.line * pb, j->b.line, j->b.k, packed);
      panel = packed;
      b_row = nr;
    }
    for (int64_t row = 0; row < j->m; row += height)
      kernel->direct(j->k, (int)min64(height, j->m - row), wide, a + row * j->a.line * pb, j->a.line, j->a.k, panel,
                     b_row, c + (row * c_row + col) * pb, c_row, direct && j->beta == 1);
  }
  if (!direct) finish_tile(j, batch, 0, j->m, 0, j->n, tile, c_row);
}

static void run_small_tasks(void *ctx, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t i = begin; i < end; ++i) run_small(ctx, i);
}

/* ---- skinny: B is read once, where it lies ----------------------------------------------------- */

enum { SKINNY_COLUMNS = 2048, SKINNY_TILE_BYTES = 32768 }; /* a task's columns and its sums */

/* From two rows on it is arithmetic that bounds, and of that pairs need half. */
static bool fits_pairs(const gemm_job *j) {
  return j->m >= 2 && j->a.dtype == TTPU_BF16 && j->b.dtype == TTPU_BF16 && j->kernel->packed == TTPU_BF16 &&
         j->b.k == 1 && j->k % 2 == 0 && j->b.line % 2 == 0 && j->b.batch % 2 == 0;
}

static const gemm_skinny *skinny_for(const gemm_job *j) {
  /* With pairs the blocked way multiplies twice as fast, which pays for packing B from here on. */
  if (j->kernel->kr > 1 && j->m > GEMM_SKINNY) return NULL;
  if (j->m > GEMM_SKINNY_ROWS || j->b.pack || j->b.panels || j->a.pack || j->a.window || j->k == 0) return NULL;
  const bool dot = j->b.k == 1, axpy = j->b.line == 1;
  if ((!dot && !axpy) || j->n * j->k < 2048 || (axpy && !dot && j->n < 16) || (dot && !axpy && j->k < 16)) return NULL;
  if (j->kernel->packed != TTPU_F32 && j->kernel->packed != TTPU_F64 && j->kernel->packed != TTPU_BF16) return NULL;
  const gemm_skinny *pairs = gemm_bf16_skinny_get();
  if (pairs && fits_pairs(j)) return pairs;
  const gemm_isa *isa = gemm_isa_get();
  for (int i = 0; i < isa->skinny_count; ++i)
    if (isa->skinny[i].weight == j->b.dtype && isa->skinny[i].acc == j->kernel->acc) return &isa->skinny[i];
  return NULL;
}

typedef struct skinny_task {
  const gemm_job *job;
  const gemm_skinny *kernel;
  const char *a; /* all rows of A of all batches in `dtype`, contiguous along k */
  ttpu_dtype dtype;
  int64_t a_row, a_batch;
  int64_t columns, strips; /* a task's columns; tasks per batch */
} skinny_task;

/* Lines in groups that stay in L2 while groups of rows pass by. */
static void skinny_dot(const skinny_task *t, const char *a, const char *w, int64_t cols, char *tile) {
  const gemm_job *j = t->job;
  const int64_t ab = (int64_t)base_dtype_bytes(j->kernel->acc), wb = (int64_t)base_dtype_bytes(j->b.dtype);
  const int64_t eb = (int64_t)base_dtype_bytes(t->dtype), unit = t->kernel->pairs ? 2 : 1;
  for (int64_t c = 0; c < cols; c += 16)
    for (int64_t r = 0; r < j->m; r += GEMM_SKINNY)
      t->kernel->dot(min64(GEMM_SKINNY, j->m - r), min64(16, cols - c), j->k / unit, a + r * t->a_row * eb,
                     t->a_row / unit, w + c * j->b.line * wb, j->b.line / unit, tile + (r * t->columns + c) * ab,
                     t->columns);
}

static void skinny_axpy(const skinny_task *t, const char *a, const char *w, int64_t cols, char *tile) {
  const gemm_job *j = t->job;
  const int64_t ab = (int64_t)base_dtype_bytes(j->kernel->acc), wb = (int64_t)base_dtype_bytes(j->b.dtype);
  memset(tile, 0, (size_t)(j->m * t->columns * ab));
  for (int64_t p = 0; p < j->k; p += 64)
    for (int64_t r = 0; r < j->m; r += GEMM_SKINNY)
      t->kernel->axpy(min64(GEMM_SKINNY, j->m - r), cols, min64(64, j->k - p), a + (r * t->a_row + p) * ab, t->a_row,
                      w + p * j->b.k * wb, j->b.k, tile + r * t->columns * ab, t->columns);
}

static void run_skinny_tasks(void *ctx, int64_t begin, int64_t end, int worker) {
  const skinny_task *t = ctx;
  const gemm_job *j = t->job;
  const int64_t eb = (int64_t)base_dtype_bytes(t->dtype);
  char tile[SKINNY_TILE_BYTES] __attribute__((aligned(64)));
  (void)worker;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t batch = i / t->strips, col0 = i % t->strips * t->columns;
    const int64_t cols = min64(t->columns, j->n - col0);
    const char *a = t->a + batch * t->a_batch * eb;
    const char *w = at(j->b.data, j->b.dtype, batch * j->b.batch + col0 * j->b.line);
    if (j->b.k == 1) skinny_dot(t, a, w, cols, tile);
    else skinny_axpy(t, a, w, cols, tile);
    finish_tile(j, batch, 0, j->m, col0, cols, tile, t->columns);
  }
}

static ttpu_status run_skinny(const gemm_job *j, const gemm_skinny *kernel, void *workspace) {
  const ttpu_dtype acc = j->kernel->acc, dtype = kernel->pairs ? kernel->weight : acc;
  const int64_t ab = (int64_t)base_dtype_bytes(acc), eb = (int64_t)base_dtype_bytes(dtype);
  const int64_t rows = j->m * (j->a.batch ? j->batch : 1);
  skinny_task t = {
      .job = j, .kernel = kernel, .a = j->a.data, .dtype = dtype, .a_row = j->a.line, .a_batch = j->a.batch};
  void *own = NULL;
  char small[8192] __attribute__((aligned(64)));
  const bool odd = kernel->pairs && (j->a.line % 2 || j->a.batch % 2);
  if (j->a.dtype != dtype || (j->a.k != 1 && j->k > 1) || odd) {
    const size_t bytes = (size_t)(rows * j->k * eb);
    if (!workspace) workspace = bytes <= sizeof small ? small : (own = kern_scratch_new(bytes));
    if (!workspace) return base_no_memory(bytes);
    for (int64_t r = 0; r < rows; ++r)
      gemm_convert_row(j->a.dtype, dtype, j->k, at(j->a.data, j->a.dtype, r / j->m * j->a.batch + r % j->m * j->a.line),
                       j->a.k, (char *)workspace + r * j->k * eb);
    t.a = workspace;
    t.a_row = j->k;
    t.a_batch = j->a.batch ? j->m * j->k : 0;
  }
  /* Tasks of at least 64 KB of B. When B's rows run along n, a strip is as wide as the sums in L1 allow, as long as there is
   * work for every thread: short pieces of rows are slow to fetch. */
  const int64_t line_bytes = j->k * (int64_t)base_dtype_bytes(j->b.dtype);
  const int64_t most = min64(SKINNY_COLUMNS, SKINNY_TILE_BYTES / (j->m * ab) / 16 * 16);
  const int64_t share = round_up(ceil_div(j->n * j->batch, 2 * base_pool_size()), 64);
  const int64_t fewest = round_up(65536 / max64(1, line_bytes), 16);
  t.columns = min64(most, j->b.k == 1 ? max64(16, fewest) : max64(128, max64(share, fewest)));
  t.strips = ceil_div(j->n, t.columns);
  /* Memory-bound: 20 GB/s; compute-bound beyond a few rows. */
  const int64_t bytes_cost = j->batch * j->n * line_bytes / 20;
  base_pool_run(j->batch * t.strips, 1, max64(bytes_cost, cost(j) * 2), run_skinny_tasks, &t);
  kern_scratch_free(own);
  return TTPU_OK;
}

/* ---- entry ----------------------------------------------------------------------------------- */

bool gemm_job_is_blocked(const gemm_job *j) { return !is_small(j) && !skinny_for(j); }

size_t gemm_job_workspace(const gemm_job *j) {
  if (is_small(j)) return 0;
  if (skinny_for(j)) {
    const bool copies = j->a.dtype != j->kernel->acc || j->a.k != 1;
    return copies ? (size_t)(j->m * (j->a.batch ? j->batch : 1) * j->k) * base_dtype_bytes(j->kernel->acc) : 0;
  }
  const gemm_blocking s = block(j);
  return (size_t)(s.worker_bytes * (task_count(j, &s) == 1 ? 1 : base_pool_size()));
}

ttpu_status gemm_job_run(const gemm_job *j, void *workspace) {
  const gemm_skinny *skinny;
  if (is_small(j)) {
    const int64_t each = max64(1, cost(j) / j->batch) + 100;
    if (j->batch == 1) run_small(j, 0);
    else base_pool_run(j->batch, max64(1, 10000 / each), each * j->batch, run_small_tasks, (void *)(uintptr_t)j);
    return TTPU_OK;
  }
  if ((skinny = skinny_for(j))) return run_skinny(j, skinny, workspace);
  return run_blocked(j, workspace);
}

/* ---- packing B ahead -------------------------------------------------------------------------- */

size_t kern_gemm_packed_b_bytes(const kern_gemm *g) {
  const gemm_kernel *kernel = gemm_kernel_of_product(g);
  if (!kernel || g->n <= 0 || g->k <= 0) return 0;
  return gemm_whole_b_bytes(kernel, g->n, g->k);
}

ttpu_status kern_gemm_pack_b(const kern_gemm *g, void *packed) {
  const ttpu_dtype b_dtype = g->b_dtype ? g->b_dtype : g->a_dtype;
  const gemm_job j = {.kernel = gemm_kernel_of_product(g),
                      .n = g->n,
                      .k = g->k,
                      .b = {.dtype = b_dtype, .data = g->b, .line = g->b_col, .k = g->b_row}};
  if (!j.kernel)
    return base_fail(TTPU_INVALID_ARGUMENT, "gemm: no product of dtypes %d and %d into %d", (int)g->a_dtype,
                     (int)b_dtype, (int)g->out);
  if (g->n > 0 && g->k > 0) gemm_pack_whole_b(&j, packed);
  return TTPU_OK;
}
