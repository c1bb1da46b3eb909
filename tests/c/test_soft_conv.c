/* Convolutions against a plain loop, with every parameter drawn at random: dtype, layout, stride, padding (negative too),
 * both dilations, reversal, groups, bias, epilogue; on every instruction set of the machine. Data are small whole numbers
 * so that sums are exact and compared bit by bit. */
#include "check.h"

#include "soft/kern/conv.h"

static int64_t pick(uint64_t *seed, int64_t low, int64_t high) {
  return low + (int64_t)(check_random(seed) % (uint64_t)(high - low + 1));
}

/* A tensor of 2 + spatial dims whose memory order is a permutation, sometimes with gaps, sometimes reversed. */
typedef struct tensor {
  char *memory, *data;
  int64_t strides[5];
} tensor;

static tensor tensor_new(uint64_t *seed, ttpu_dtype dtype, int rank, const int64_t *dims) {
  int order[5];
  const int kind = (int)pick(seed, 0, 5); /* 0, 1, 2: as written; 3: channels last; 4: any; 5: any, reversed */
  for (int i = 0; i < rank; ++i) order[i] = i;
  if (kind == 3)
    for (int i = 1; i < rank; ++i) order[i] = i == rank - 1 ? 1 : i + 1;
  if (kind >= 4)
    for (int i = rank - 1; i > 0; --i) {
      int j = (int)pick(seed, 0, i), t = order[i];
      order[i] = order[j];
      order[j] = t;
    }
  tensor t = {0};
  int64_t size = kind == 4 ? 2 : 1, offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    t.strides[order[i]] = size;
    size *= dims[order[i]] > 0 ? dims[order[i]] : 1;
    if (kind == 4 && i == 1) ++size;
  }
  if (kind == 5)
    for (int i = 0; i < rank; ++i) {
      if (dims[i] > 0) offset += t.strides[i] * (dims[i] - 1);
      t.strides[i] = -t.strides[i];
    }
  const int64_t bytes = (int64_t)base_dtype_bytes(dtype);
  t.memory = malloc((size_t)((size + 1) * bytes));
  t.data = t.memory + offset * bytes;
  for (int64_t i = 0; i < size; ++i) {
    base_scalar v = {.d = {(double)pick(seed, -3, 3), (double)pick(seed, -3, 3)}};
    if (base_dtype_is_integer(dtype)) v.i = pick(seed, -20, 20);
    base_scalar_store(dtype, t.memory + i * bytes, v);
  }
  return t;
}

static int64_t offset_of(int64_t first, int64_t second, int64_t s0, int64_t s1, const int64_t *x,
                         const int64_t *strides, int spatial) {
  int64_t at = first * s0 + second * s1;
  for (int d = 0; d < spatial; ++d) at += x[d] * strides[d];
  return at;
}

static base_scalar multiply_add(ttpu_dtype t, base_scalar sum, base_scalar x, base_scalar y) {
  if (base_dtype_is_integer(t)) {
    sum.u += x.u * y.u;
  } else if (base_dtype_is_complex(t)) {
    double re = x.d[0] * y.d[0] - x.d[1] * y.d[1], im = x.d[0] * y.d[1] + x.d[1] * y.d[0];
    sum.d[0] += re;
    sum.d[1] += im;
  } else {
    sum.d[0] += x.d[0] * y.d[0];
  }
  return sum;
}

/* Counts x through the box of `sizes`; false after the last. */
static bool next(int rank, const int64_t *sizes, int64_t *x) {
  for (int d = rank - 1; d >= 0; --d) {
    if (++x[d] < sizes[d]) return true;
    x[d] = 0;
  }
  return false;
}

static base_scalar reference(const kern_conv *c, int64_t n, int64_t o, const int64_t *x) {
  base_scalar sum = {.d = {0, 0}};
  const int64_t channels = c->in_features / c->groups, per_group = c->out_features / (c->groups * c->batch_groups);
  const int64_t group = o / per_group;
  const int64_t image = c->batch_groups > 1 ? group * (c->batch / c->batch_groups) + n : n;
  const int64_t channel0 = c->groups > 1 ? group * channels : 0;
  const int64_t bytes = (int64_t)base_dtype_bytes(c->dtype);
  for (int d = 0; d < c->spatial; ++d)
    if (c->kernel_size[d] == 0) return sum;
  int64_t w[3] = {0};
  do {
    int64_t i[3];
    bool inside = true;
    for (int d = 0; d < c->spatial; ++d) {
      i[d] = x[d] * c->window_stride[d] + w[d] * c->rhs_dilation[d] - c->pad_low[d];
      inside &= i[d] % c->lhs_dilation[d] == 0;
      i[d] = i[d] / c->lhs_dilation[d];
      inside &= i[d] >= 0 && i[d] < c->in_size[d] &&
                x[d] * c->window_stride[d] + w[d] * c->rhs_dilation[d] - c->pad_low[d] >= 0;
    }
    if (!inside) continue;
    int64_t tap[3];
    for (int d = 0; d < c->spatial; ++d) tap[d] = c->reversal[d] ? c->kernel_size[d] - 1 - w[d] : w[d];
    for (int64_t ch = 0; ch < channels; ++ch)
      sum = multiply_add(
          c->dtype, sum,
          base_scalar_load(c->dtype,
                           (const char *)c->in + bytes * offset_of(image, channel0 + ch, c->in_batch, c->in_feature, i,
                                                                   c->in_spatial, c->spatial)),
          base_scalar_load(c->dtype, (const char *)c->kernel + bytes * offset_of(ch, o, c->kernel_in, c->kernel_out,
                                                                                 tap, c->kernel_spatial, c->spatial)));
  } while (next(c->spatial, c->kernel_size, w));
  return sum;
}

static int64_t whole_pixels;
static void plus_index(void *ctx, int64_t feature0, int64_t features, int64_t position0, int64_t positions, void *tile,
                       int64_t feature_stride, int64_t position_stride) {
  (void)ctx;
  for (int64_t f = 0; f < features; ++f)
    for (int64_t p = 0; p < positions; ++p)
      ((float *)tile)[f * feature_stride + p * position_stride] += (float)(feature0 + f) +
                                                                   10 * (float)((position0 + p) % whole_pixels) +
                                                                   (float)((position0 + p) / whole_pixels);
}

/* WINDOWED: of those that conv_window.c does (and what is next to them): whole vectors of features, several taps, no groups. */
typedef enum { SMALL, LARGE, WINDOWED } case_kind;

static bool run_case(uint64_t *seed, ttpu_dtype dtype, ttpu_dtype out, case_kind kind) {
  const bool large = kind != SMALL, windowed = kind == WINDOWED;
  kern_conv c = {
      .dtype = dtype, .out_dtype = out, .precision = (int)pick(seed, 0, 2), .spatial = (int)pick(seed, 0, 3)};
  if (kind == LARGE) c.spatial = 2;
  if (windowed) c.spatial = (int)pick(seed, 1, 3);
  const int groups = windowed ? 3 : (int)pick(seed, 0, 5);
  c.groups = c.batch_groups = 1;
  if (groups == 0) c.groups = pick(seed, 1, 4);
  if (groups == 1) c.batch_groups = pick(seed, 1, 3);
  int64_t channels = pick(seed, pick(seed, 0, 9) ? 1 : 0, large ? 40 : 6), features = pick(seed, 1, large ? 40 : 12);
  if (windowed) channels = pick(seed, 1, 9), features = pick(seed, 1, 3) * 16 - pick(seed, 0, 1);
  if (groups == 2) c.groups = channels ? channels : 1, channels = 1, features = pick(seed, 1, 2); /* depthwise */
  c.in_features = channels * c.groups;
  c.out_features = features * c.groups * c.batch_groups;
  const int64_t images = pick(seed, 1, large ? 2 : 3);
  c.batch = images * c.batch_groups;
  for (int d = 0; d < c.spatial; ++d) {
    c.in_size[d] = pick(seed, 1, large ? 24 : 9);
    c.kernel_size[d] = pick(seed, pick(seed, 0, 19) ? 1 : 0, pick(seed, 0, 3) ? 3 : 6);
    c.window_stride[d] = pick(seed, 0, 1) ? 1 : pick(seed, 1, 3);
    c.pad_low[d] = pick(seed, 0, 1) ? pick(seed, -1, 3) : c.kernel_size[d] / 2;
    c.lhs_dilation[d] = windowed || pick(seed, 0, 2) ? 1 : pick(seed, 1, 4);
    c.rhs_dilation[d] = pick(seed, 0, 2) ? 1 : pick(seed, 1, 3);
    if (pick(seed, 0, 4) == 0) c.in_size[d] = c.kernel_size[d] = 1, c.pad_low[d] = 0; /* says nothing */
    c.reversal[d] = pick(seed, 0, 3) == 0;
    if (pick(seed, 0, 5) == 0) c.kernel_size[d] = c.window_stride[d] = 1, c.pad_low[d] = 0;
    c.out_size[d] = pick(seed, 1, kind == LARGE ? 26 : 9);
    if (windowed && d == c.spatial - 1) {
      c.out_size[d] = pick(seed, 4, 18);
      c.kernel_size[d] = pick(seed, 2, 4);
    }
  }
  int64_t in_dims[5] = {c.batch, c.in_features}, kernel_dims[5] = {c.out_features, channels};
  int64_t out_dims[5] = {images, c.out_features};
  for (int d = 0; d < c.spatial; ++d) {
    in_dims[2 + d] = c.in_size[d];
    kernel_dims[2 + d] = c.kernel_size[d];
    out_dims[2 + d] = c.out_size[d];
  }
  tensor in = tensor_new(seed, dtype, 2 + c.spatial, in_dims),
         kernel = tensor_new(seed, dtype, 2 + c.spatial, kernel_dims);
  tensor result = tensor_new(seed, out, 2 + c.spatial, out_dims);
  c.in = in.data, c.in_batch = in.strides[0], c.in_feature = in.strides[1];
  c.kernel = kernel.data, c.kernel_out = kernel.strides[0], c.kernel_in = kernel.strides[1];
  c.out = result.data, c.out_batch = result.strides[0], c.out_feature = result.strides[1];
  whole_pixels = 1;
  for (int d = 0; d < c.spatial; ++d) {
    c.in_spatial[d] = in.strides[2 + d];
    c.kernel_spatial[d] = kernel.strides[2 + d];
    c.out_spatial[d] = result.strides[2 + d];
    whole_pixels *= c.out_size[d];
  }
  int64_t bias_dims[1] = {c.out_features};
  tensor bias = {0};
  if (pick(seed, 0, 2) == 0) {
    bias = tensor_new(seed, out, 1, bias_dims);
    c.bias = bias.memory;
    c.bias_dtype = out;
  }
  const bool epilogue = pick(seed, 0, 3) == 0 && kern_gemm_accumulator(dtype, out) == TTPU_F32;
  if (epilogue) c.epilogue = plus_index;
  void *workspace = NULL;
  if (pick(seed, 0, 1)) {
    size_t bytes = kern_conv_workspace(&c);
    if (bytes) c.workspace = workspace = base_alloc_aligned(64, bytes);
  }
  bool ok = CHECK_OK(kern_conv_run(&c));
  const int64_t ob = (int64_t)base_dtype_bytes(out);
  for (int64_t n = 0; n < images && ok; ++n)
    for (int64_t o = 0; o < c.out_features && ok; ++o) {
      int64_t x[3] = {0}, pixel = 0;
      do {
        base_scalar want = reference(&c, n, o, x), one = {.d = {1, 0}};
        if (base_dtype_is_integer(dtype)) one.i = 1;
        if (c.bias) want = multiply_add(dtype, want, one, base_scalar_load(out, bias.memory + o * ob));
        if (epilogue) want.d[0] += (double)(o + 10 * pixel + n);
        char bytes[16] = {0};
        base_scalar_store(out, bytes, base_scalar_convert(dtype, out, want));
        base_scalar a = base_scalar_load(out, bytes);
        base_scalar b = base_scalar_load(
            out, result.data + ob * offset_of(n, o, c.out_batch, c.out_feature, x, c.out_spatial, c.spatial));
        ok = base_dtype_is_integer(out)
                 ? a.i == b.i
                 : check_near(a.d[0], b.d[0], 0) && (!base_dtype_is_complex(out) || check_near(a.d[1], b.d[1], 0));
        if (!ok)
          check_fail(
              __FILE__, __LINE__,
              "%s to %s, spatial %d, groups %d/%d, batch %d, features %d to %d, in %d,%d,%d kernel "
              "%d,%d,%d out %d,%d,%d stride %d,%d,%d pad %d,%d,%d lhs %d,%d,%d rhs %d,%d,%d bias %d epilogue %d: "
              "[%d,%d,(%d,%d,%d)] is %g, not %g",
              base_dtypes[dtype].name, base_dtypes[out].name, c.spatial, (int)c.groups, (int)c.batch_groups,
              (int)c.batch, (int)c.in_features, (int)c.out_features, (int)c.in_size[0], (int)c.in_size[1],
              (int)c.in_size[2], (int)c.kernel_size[0], (int)c.kernel_size[1], (int)c.kernel_size[2],
              (int)c.out_size[0], (int)c.out_size[1], (int)c.out_size[2], (int)c.window_stride[0],
              (int)c.window_stride[1], (int)c.window_stride[2], (int)c.pad_low[0], (int)c.pad_low[1], (int)c.pad_low[2],
              (int)c.lhs_dilation[0], (int)c.lhs_dilation[1], (int)c.lhs_dilation[2], (int)c.rhs_dilation[0],
              (int)c.rhs_dilation[1], (int)c.rhs_dilation[2], c.bias != NULL, epilogue, (int)n, (int)o, (int)x[0],
              (int)x[1], (int)x[2], b.d[0], a.d[0]);
        ++pixel;
      } while (ok && next(c.spatial, c.out_size, x));
    }
  base_free(workspace);
  free(in.memory);
  free(kernel.memory);
  free(result.memory);
  free(bias.memory);
  return ok;
}

static const struct {
  ttpu_dtype in, out;
} pairs[] = {
    {TTPU_F32, TTPU_F32}, {TTPU_BF16, TTPU_BF16}, {TTPU_F16, TTPU_F16},  {TTPU_F64, TTPU_F64},
    {TTPU_F32, TTPU_F32}, {TTPU_I8, TTPU_I32},    {TTPU_I32, TTPU_I32},  {TTPU_I64, TTPU_I64},
    {TTPU_C64, TTPU_C64}, {TTPU_C128, TTPU_C128}, {TTPU_BF16, TTPU_F32}, {TTPU_U8, TTPU_U8},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

TEST(small_convolutions_of_every_kind) {
  uint64_t seed = 1;
  for (int i = 0; i < 100 * PAIRS; ++i) run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].out, SMALL);
}

TEST(larger_convolutions) {
  uint64_t seed = 2;
  for (int i = 0; i < 4 * PAIRS; ++i) run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].out, LARGE);
}

TEST(windows_read_where_they_lie) {
  uint64_t seed = 3;
  for (int i = 0; i < 12 * PAIRS; ++i) run_case(&seed, pairs[i % PAIRS].in, pairs[i % PAIRS].out, WINDOWED);
}

TEST(bad_input_is_a_status) {
  float x[4] = {0};
  kern_conv c = {.dtype = TTPU_F32,
                 .out_dtype = TTPU_F32,
                 .spatial = 1,
                 .batch = 1,
                 .in_features = 3,
                 .out_features = 4,
                 .in_size = {1},
                 .kernel_size = {1},
                 .out_size = {1},
                 .window_stride = {1},
                 .lhs_dilation = {1},
                 .rhs_dilation = {1},
                 .groups = 2,
                 .batch_groups = 1,
                 .in = x,
                 .kernel = x,
                 .out = x};
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "do not divide", kern_conv_run(&c));
  c.in_features = 4;
  c.window_stride[0] = 0;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "must be positive", kern_conv_run(&c));
  c.window_stride[0] = 1;
  c.batch_groups = 2;
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "one of them is 1", kern_conv_run(&c));
  c.spatial = 4;
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "at most 3", kern_conv_run(&c));
}
