/* Pooling: reduce_window, and the backward of max pooling.
 *
 * The last dimension is walked in lanes. For one position of the other dimensions, the rows of x under the window are
 * combined first, element by element; then the window in the last dimension is applied to what that gave. Max pooling's
 * backward takes the rows in their order, each with all offsets of the last dimension's window, so that the first of equal
 * elements is chosen. Any rank, padding, stride and window dilation; base dilation is declined. Padding takes no part.
 */
#include <math.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/kern/wide.h"

typedef struct window_job {
  const wide_functions *w;
  ir_kind kind;
  wide_class cls;
  uint32_t entries, rank;
  ttpu_dtype dtype;
  const soft_view *x, *y; /* y: the result, or select_and_scatter's source */
  int64_t window[TTPU_MAX_RANK], stride[TTPU_MAX_RANK], dilation[TTPU_MAX_RANK], low[TTPU_MAX_RANK];
  int64_t lanes, lane_blocks; /* of the last dimension in one piece, and pieces */
  wide init[2];
  /* select_and_scatter */
  ir_direction select;
  const soft_view *target;
  struct lane_range *ranges; /* of each lane block and offset of the last dimension's window */
  uint32_t independent;      /* leading dimensions along which windows do not overlap */
} window_job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void read_attrs(window_job *j, const ir_window_attrs *a) {
  for (uint32_t d = 0; d < j->rank; ++d) {
    j->window[d] = d < a->window_dimensions.count ? a->window_dimensions.data[d] : 1;
    j->stride[d] = d < a->window_strides.count ? a->window_strides.data[d] : 1;
    j->dilation[d] = d < a->window_dilations.count ? a->window_dilations.data[d] : 1;
    j->low[d] = 2 * d < a->padding.count ? a->padding.data[2 * d] : 0;
  }
}

/* Where window offset w of output position o lies in dimension d; false: in the padding. */
static bool position(const window_job *j, uint32_t d, int64_t o, int64_t w, int64_t *at) {
  *at = o * j->stride[d] + w * j->dilation[d] - j->low[d];
  return *at >= 0 && *at < j->x->dims[d];
}

/* The lanes [*begin, *end) of [lane, lane + n) whose element at window offset w exists. */
static void find_lanes(const window_job *j, uint32_t d, int64_t lane, int64_t n, int64_t w, int64_t *begin,
                       int64_t *end) {
  int64_t shift = w * j->dilation[d] - j->low[d], stride = j->stride[d];
  int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride; /* o * stride + shift >= 0 */
  int64_t last = (j->x->dims[d] - 1 - shift) < 0 ? -1 : (j->x->dims[d] - 1 - shift) / stride; /* ... < size */
  *begin = first > lane ? first : lane;
  *end = least(last + 1, lane + n);
}

/* How many lanes there are so that what they need of x's last dimension fits a row. */
static int64_t lanes_of_a_row(const window_job *j) {
  uint32_t last = j->rank - 1;
  return (KERN_ROW - 1 - (j->window[last] - 1) * j->dilation[last]) / j->stride[last] + 1;
}

/* The piece [*first, *end) of x's last dimension that lanes [lane, lane + n) look at. */
static void find_piece(const window_job *j, int64_t lane, int64_t n, int64_t *first, int64_t *end) {
  uint32_t last = j->rank - 1;
  *first = lane * j->stride[last] - j->low[last];
  *end = *first + (n - 1) * j->stride[last] + (j->window[last] - 1) * j->dilation[last] + 1;
  if (*first < 0) *first = 0;
  if (*end > j->x->dims[last]) *end = j->x->dims[last];
}

static bool next(int64_t *index, const int64_t *dims, uint32_t rank) {
  for (uint32_t d = rank; d-- > 0;) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}

static void unflatten(uint32_t rank, const int64_t *dims, int64_t flat, int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) {
    index[d] = flat % dims[d];
    flat /= dims[d];
  }
}

/* ---- reduce_window --------------------------------------------------------------------------------- */

/* acc: all elements of x under the window offsets of row `o` in every dimension but the last, for positions [first,
 * first + n) of the last. False: the row lies wholly in the padding. */
static bool reduce_outer(const window_job *j, const int64_t *o, int64_t first, int64_t n, wide *acc) {
  uint32_t last = j->rank - 1;
  int64_t bytes = (int64_t)base_dtype_bytes(j->dtype), offsets[TTPU_MAX_RANK] = {0}, step = j->x->strides[last] * bytes;
  wide_row row;
  bool any = false;
  do {
    int64_t base = 0, at;
    bool inside = true;
    for (uint32_t d = 0; d < last && inside; ++d) {
      inside = position(j, d, o[d], offsets[d], &at);
      base += at * j->x->strides[d];
    }
    if (!inside) continue;
    j->w->load(j->dtype, (const char *)j->x->data + base * bytes + first * step, step, n, any ? row : acc);
    if (any) j->w->combine(j->kind, j->cls, acc, row, n);
    any = true;
  } while (next(offsets, j->window, last));
  return any;
}

/* acc, lanes [lane, lane + n) of row `o`: first over the other dimensions, for the piece of x's last dimension that
 * those lanes need, then over the last one, from the buffer. */
static void reduce_row(const window_job *j, const int64_t *o, int64_t lane, int64_t n, wide *acc) {
  uint32_t last = j->rank - 1, entries = j->entries;
  int64_t stride = j->stride[last], first, end;
  wide_row outer, row;
  find_piece(j, lane, n, &first, &end);
  if (first >= end || !reduce_outer(j, o, first, end - first, outer)) return;
  for (int64_t w = 0; w < j->window[last]; ++w) {
    int64_t begin, stop;
    find_lanes(j, last, lane, n, w, &begin, &stop);
    const wide *from = outer + (begin * stride + w * j->dilation[last] - j->low[last] - first) * entries;
    if (begin >= stop) continue;
    if (stride > 1) { /* wide values are moved as f64 */
      j->w->load(entries == 2 ? TTPU_C128 : TTPU_F64, from, stride * entries * (int64_t)sizeof(wide), stop - begin,
                 row);
      from = row;
    }
    j->w->combine(j->kind, j->cls, acc + (begin - lane) * entries, from, stop - begin);
  }
}

static void reduce_rows(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const window_job *j = context;
  uint32_t last = j->rank - 1;
  int64_t bytes = (int64_t)base_dtype_bytes(j->dtype), step = j->y->strides[last] * bytes;
  wide_row acc;
  for (int64_t item = begin; item < end; ++item) {
    int64_t o[TTPU_MAX_RANK], lane = item % j->lane_blocks * j->lanes, n = least(j->lanes, j->y->dims[last] - lane),
                              y = 0;
    unflatten(last, j->y->dims, item / j->lane_blocks, o);
    for (uint32_t d = 0; d < last; ++d) y += o[d] * j->y->strides[d];
    for (int64_t i = 0; i < n; ++i)
      for (uint32_t e = 0; e < j->entries; ++e) acc[i * j->entries + e] = j->init[e];
    reduce_row(j, o, lane, n, acc);
    j->w->store(j->dtype, (char *)j->y->data + y * bytes + lane * step, step, n, acc);
  }
}

static bool all_ones(ir_i64s list) {
  for (uint32_t i = 0; i < list.count; ++i)
    if (list.data[i] != 1) return false;
  return true;
}

/* What one result needs of x's last dimension must fit a row. */
static bool fits_a_row(const ir_window_attrs *a) {
  uint32_t n = a->window_dimensions.count;
  int64_t dilation = n && n <= a->window_dilations.count ? a->window_dilations.data[n - 1] : 1;
  return n == 0 || (a->window_dimensions.data[n - 1] - 1) * dilation < KERN_ROW;
}

bool kern_reduce_window_supports(ir_kind kind, const ir_window_attrs *a, ttpu_dtype t) {
  return wide_kind(kind, t) != IR_NO_OP && all_ones(a->base_dilations) && fits_a_row(a);
}

ttpu_status kern_reduce_window(ir_kind kind, const ir_window_attrs *a, const soft_view *x, const void *init,
                               const soft_view *y) {
  window_job j = {.w = wide_get(),
                  .kind = wide_kind(kind, x->dtype),
                  .cls = wide_class_of(x->dtype),
                  .rank = x->rank,
                  .dtype = x->dtype,
                  .x = x,
                  .y = y};
  int64_t count = base_numel(y->rank, y->dims);
  if (count == 0) return TTPU_OK;
  if (x->rank == 0) {
    wide one[2];
    j.w->load(x->dtype, init, 0, 1, j.init), j.w->load(x->dtype, x->data, 0, 1, one);
    j.w->combine(j.kind, j.cls, j.init, one, 1), j.w->store(x->dtype, y->data, 0, 1, j.init);
    return TTPU_OK;
  }
  j.entries = wide_entries(j.cls);
  read_attrs(&j, a);
  j.w->load(x->dtype, init, 0, 1, j.init);
  uint32_t last = x->rank - 1;
  j.lanes = lanes_of_a_row(&j);
  j.lane_blocks = (y->dims[last] + j.lanes - 1) / j.lanes;
  int64_t items = count / y->dims[last] * j.lane_blocks, cost = count * base_numel(x->rank, j.window) + items * 20;
  base_pool_run(items, kern_grain(cost / items), cost, reduce_rows, &j);
  return TTPU_OK;
}

/* ---- select_and_scatter ----------------------------------------------------------------------------- */

/* The lanes that each offset of the last dimension's window reaches, from `lane` on. */
typedef struct lane_range {
  int64_t begin, end;
} lane_range;

/* The chosen place of each lane, as an element offset in the space of x's dimensions, row-major; -1: none. */
static void choose_row(const window_job *j, const int64_t *o, const int64_t *flat, int64_t lane, int64_t n,
                       const lane_range *ranges, int64_t *place) {
  uint32_t last = j->rank - 1;
  int64_t bytes = (int64_t)base_dtype_bytes(j->dtype), offsets[TTPU_MAX_RANK] = {0}, step = j->x->strides[last] * bytes;
  int64_t first, end;
  wide_row row, best;
  find_piece(j, lane, n, &first, &end);
  for (int64_t i = 0; i < n; ++i) place[i] = -1, best[i].u = 0;
  if (first >= end) return;
  do {
    int64_t base = 0, number = 0, at;
    bool inside = true;
    for (uint32_t d = 0; d < last && inside; ++d) {
      inside = position(j, d, o[d], offsets[d], &at);
      base += at * j->x->strides[d], number += at * flat[d];
    }
    if (!inside) continue;
    j->w->load(j->dtype, (const char *)j->x->data + base * bytes + first * step, step, end - first, row);
    for (int64_t w = 0; w < j->window[last]; ++w) {
      int64_t begin = ranges[w].begin, from = begin * j->stride[last] + w * j->dilation[last] - j->low[last];
      if (begin < ranges[w].end)
        j->w->select(j->select, j->cls, best + (begin - lane), place + (begin - lane), row + (from - first),
                     number + from, j->stride[last], ranges[w].end - begin);
    }
  } while (next(offsets, j->window, last));
}

static void add_element(const window_job *j, char *to, const char *from) {
  if (j->dtype == TTPU_F32) {
    *(float *)to += *(const float *)from;
    return;
  }
  wide a[2], b[2];
  j->w->load(j->dtype, to, 0, 1, a), j->w->load(j->dtype, from, 0, 1, b);
  j->w->combine(j->kind, j->cls, a, b, 1);
  j->w->store(j->dtype, to, 0, 1, a);
}

/* The byte offset in the target of a flat place. */
static int64_t target_offset(const window_job *j, int64_t place) {
  int64_t offset = 0;
  for (uint32_t d = j->rank; d-- > 0;) {
    offset += place % j->target->dims[d] * j->target->strides[d];
    place /= j->target->dims[d];
  }
  return offset * (int64_t)base_dtype_bytes(j->dtype);
}

/* Items: positions of the independent dimensions. Within one, source elements are added in row-major order. */
static void select_items(void *context, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const window_job *j = context;
  uint32_t last = j->rank - 1;
  const soft_view *source = j->y;
  int64_t bytes = (int64_t)base_dtype_bytes(j->dtype), flat[TTPU_MAX_RANK], place[KERN_ROW];
  base_row_major(j->rank, j->x->dims, flat);
  bool dense = soft_view_is_dense(j->target);
  int64_t rows = base_numel(last - j->independent, source->dims + j->independent);
  for (int64_t r = begin * rows; r < end * rows; ++r) {
    int64_t o[TTPU_MAX_RANK], from = 0;
    unflatten(last, source->dims, r, o);
    for (uint32_t d = 0; d < last; ++d) from += o[d] * source->strides[d];
    for (int64_t block = 0; block < j->lane_blocks; ++block) {
      int64_t lane = block * j->lanes, n = least(j->lanes, source->dims[last] - lane);
      choose_row(j, o, flat, lane, n, j->ranges + block * j->window[last], place);
      for (int64_t i = 0; i < n; ++i) {
        if (place[i] < 0) continue;
        int64_t to = dense ? place[i] * bytes : target_offset(j, place[i]);
        add_element(j, (char *)j->target->data + to,
                    (const char *)source->data + (from + (lane + i) * source->strides[last]) * bytes);
      }
    }
  }
}

bool kern_select_and_add_supports(ir_direction select, const ir_window_attrs *a, ttpu_dtype t) {
  return select != IR_EQ && select != IR_NE && all_ones(a->base_dilations) && fits_a_row(a) &&
         !base_dtype_is_complex(t);
}

ttpu_status kern_select_and_add(ir_direction select, const ir_window_attrs *a, const soft_view *x,
                                const soft_view *source, const soft_view *y) {
  if (base_numel(source->rank, source->dims) == 0) return TTPU_OK;
  window_job j = {.w = wide_get(),
                  .kind = wide_kind(IR_ADD, x->dtype),
                  .cls = wide_class_of(x->dtype),
                  .entries = 1,
                  .rank = x->rank,
                  .dtype = x->dtype,
                  .x = x,
                  .y = source,
                  .select = select,
                  .target = y};
  read_attrs(&j, a);
  if (x->rank == 0) {
    add_element(&j, y->data, source->data);
    return TTPU_OK;
  }
  while (j.independent + 1 < j.rank && j.window[j.independent] == 1 && j.stride[j.independent] == 1 &&
         j.low[j.independent] == 0)
    ++j.independent;
  uint32_t last = j.rank - 1;
  j.lanes = lanes_of_a_row(&j);
  j.lane_blocks = (source->dims[last] + j.lanes - 1) / j.lanes;
  size_t bytes = (size_t)(j.lane_blocks * j.window[last]) * sizeof *j.ranges;
  if (!(j.ranges = base_alloc(bytes))) return base_no_memory(bytes);
  for (int64_t i = 0; i < j.lane_blocks * j.window[last]; ++i) {
    int64_t lane = i / j.window[last] * j.lanes, n = least(j.lanes, source->dims[last] - lane);
    find_lanes(&j, last, lane, n, i % j.window[last], &j.ranges[i].begin, &j.ranges[i].end);
  }
  int64_t items = base_numel(j.independent, source->dims), count = base_numel(source->rank, source->dims);
  int64_t cost = count * (base_numel(j.rank, j.window) + 5);
  base_pool_run(items, kern_grain(cost / items), cost, select_items, &j);
  base_free(j.ranges);
  return TTPU_OK;
}
