/* Operations that move elements: index maps, slices, gather, scatter, and the sources. */
#include <string.h>

#include "soft/reference_int.h"

#define UNUSED(f) (void)(f)

static void move(const soft_view *to, const int64_t *to_index, const soft_view *from, const int64_t *from_index) {
  memcpy(ref_at(to, to_index), ref_at(from, from_index), base_dtype_bytes(to->dtype));
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* ---- index maps -------------------------------------------------------------------------------- */

ttpu_status ref_broadcast_in_dim(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_i64s map = IR_ATTRS(op, broadcast_in_dim)->broadcast_dimensions;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK];
    for (uint32_t d = 0; d < x->rank; ++d) from[d] = x->dims[d] == 1 ? 0 : i.at[map.data[d]];
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

ttpu_status ref_reshape(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(op);
  ref_index from = ref_index_begin(x->rank, x->dims);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i), ref_index_next(&from))
    move(y, i.at, x, from.at);
  return TTPU_OK;
}

ttpu_status ref_reverse(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_i64s dims = IR_ATTRS(op, dims)->dimensions;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK];
    for (uint32_t d = 0; d < x->rank; ++d) from[d] = ref_contains(dims, d) ? x->dims[d] - 1 - i.at[d] : i.at[d];
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

ttpu_status ref_slice(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_slice_attrs *a = IR_ATTRS(op, slice);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK];
    for (uint32_t d = 0; d < x->rank; ++d) from[d] = a->start_indices.data[d] + i.at[d] * ref_get(a->strides, d, 1);
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

ttpu_status ref_transpose(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_i64s permutation = IR_ATTRS(op, transpose)->permutation;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK];
    for (uint32_t d = 0; d < x->rank; ++d) from[permutation.data[d]] = i.at[d];
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

/* Between sizes, the wider side loses its last dimension, whose elements are the low bits first. */
/* Between types of which one has less than a byte: bit by bit, the lowest ones first. */
static ttpu_status bitcast_narrow(const soft_view *x, const soft_view *y) {
  int from = base_dtype_bits(x->dtype), to = base_dtype_bits(y->dtype), least = from < to ? from : to;
  const soft_view *walked = from < to ? x : y;
  for (ref_index i = ref_index_begin(walked->rank, walked->dims); i.more; ref_index_next(&i)) {
    int64_t part = from == to ? 0 : i.at[walked->rank - 1] * least;
    uint64_t source = 0, target = 0, mask = least == 64 ? ~0ull : (1ull << least) - 1;
    memcpy(&source, ref_at(x, i.at), base_dtype_bytes(x->dtype));
    memcpy(&target, ref_at(y, i.at), base_dtype_bytes(y->dtype));
    uint64_t moved = source >> (from > to ? part : 0) & mask;
    target = from >= to ? moved : (part ? target : 0) | moved << part;
    memcpy(ref_at(y, i.at), &target, base_dtype_bytes(y->dtype));
    if (from >= to) ref_store(y, i.at, ref_load(y, i.at)); /* integers are extended to their byte */
  }
  return TTPU_OK;
}

ttpu_status ref_bitcast_convert(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(op);
  bool narrow = base_dtype_bits(x->dtype) < 8 || base_dtype_bits(y->dtype) < 8;
  if (narrow && base_dtype_bytes(x->dtype) <= 8 && base_dtype_bytes(y->dtype) <= 8) return bitcast_narrow(x, y);
  size_t from = base_dtype_bytes(x->dtype), to = base_dtype_bytes(y->dtype), small = from < to ? from : to;
  const soft_view *walked = from < to ? x : y; /* the one with more dimensions */
  for (ref_index i = ref_index_begin(walked->rank, walked->dims); i.more; ref_index_next(&i)) {
    size_t part = from == to ? 0 : (size_t)i.at[walked->rank - 1] * small;
    char *target = ref_at(y, i.at);
    const char *source = ref_at(x, i.at);
    memcpy(target + (from < to ? part : 0), source + (from > to ? part : 0), small);
  }
  return TTPU_OK;
}

/* ---- concatenate, pad, slices at run-time places ------------------------------------------------ */

ttpu_status ref_concatenate(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  int64_t dim = IR_ATTRS(op, dim)->dimension, start = 0;
  for (uint32_t k = 0; k < op->operand_count; ++k) {
    for (ref_index i = ref_index_begin(x[k].rank, x[k].dims); i.more; ref_index_next(&i)) {
      int64_t to[TTPU_MAX_RANK];
      memcpy(to, i.at, sizeof to);
      to[dim] += start;
      move(y, to, &x[k], i.at);
    }
    start += x[k].dims[dim];
  }
  return TTPU_OK;
}

/* Negative low or high padding cuts elements off. */
ttpu_status ref_pad(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_pad_attrs *a = IR_ATTRS(op, pad);
  const int64_t origin[TTPU_MAX_RANK] = {0};
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) move(y, i.at, &x[1], origin);
  for (ref_index i = ref_index_begin(x->rank, x->dims); i.more; ref_index_next(&i)) {
    int64_t to[TTPU_MAX_RANK];
    bool inside = true;
    for (uint32_t d = 0; d < x->rank; ++d) {
      to[d] = a->edge_padding_low.data[d] + i.at[d] * (1 + ref_get(a->interior_padding, d, 0));
      inside = inside && to[d] >= 0 && to[d] < y->dims[d];
    }
    if (inside) move(y, to, x, i.at);
  }
  return TTPU_OK;
}

/* Start indices are moved so that the slice fits. */
static void read_starts(const soft_view *starts, const soft_view *whole, const int64_t *sizes, int64_t *start) {
  for (uint32_t d = 0; d < whole->rank; ++d) {
    int64_t s = ref_integer(starts[d].dtype, base_scalar_load(starts[d].dtype, starts[d].data));
    start[d] = clamp(s, 0, whole->dims[d] - sizes[d]);
  }
}

ttpu_status ref_dynamic_slice(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(op);
  int64_t start[TTPU_MAX_RANK], from[TTPU_MAX_RANK];
  read_starts(x + 1, x, y->dims, start);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    for (uint32_t d = 0; d < x->rank; ++d) from[d] = start[d] + i.at[d];
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

ttpu_status ref_dynamic_update_slice(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(op);
  int64_t start[TTPU_MAX_RANK], to[TTPU_MAX_RANK];
  read_starts(x + 2, x, x[1].dims, start);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) move(y, i.at, x, i.at);
  for (ref_index i = ref_index_begin(x[1].rank, x[1].dims); i.more; ref_index_next(&i)) {
    for (uint32_t d = 0; d < x->rank; ++d) to[d] = start[d] + i.at[d];
    move(y, to, &x[1], i.at);
  }
  return TTPU_OK;
}

/* ---- gather and scatter ------------------------------------------------------------------------- */

/* Element k of the index vector that belongs to the batch position `batch` (of all dimensions of `indices` but
 * index_vector_dim, in order). */
static int64_t read_index(const soft_view *indices, int64_t vector_dim, const int64_t *batch, int64_t k) {
  int64_t at[TTPU_MAX_RANK];
  for (uint32_t d = 0, b = 0; d < indices->rank; ++d) at[d] = d == vector_dim ? k : batch[b++];
  return ref_integer(indices->dtype, ref_load(indices, at));
}

/* Where dimension `dim` of `indices` is among the batch dimensions. */
static int64_t batch_position(int64_t dim, int64_t vector_dim) { return dim > vector_dim ? dim - 1 : dim; }

ttpu_status ref_gather(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  const ir_gather_attrs *a = IR_ATTRS(op, gather);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t batch[TTPU_MAX_RANK], from[TTPU_MAX_RANK] = {0};
    uint32_t batches = 0, offset = 0;
    for (uint32_t d = 0; d < y->rank; ++d)
      if (!ref_contains(a->offset_dims, d)) batch[batches++] = i.at[d];
    for (uint32_t k = 0; k < a->start_index_map.count; ++k) {
      int64_t d = a->start_index_map.data[k];
      from[d] = clamp(read_index(&x[1], a->index_vector_dim, batch, k), 0, x->dims[d] - a->slice_sizes.data[d]);
    }
    for (uint32_t k = 0; k < a->operand_batching_dims.count; ++k)
      from[a->operand_batching_dims.data[k]] =
          batch[batch_position(a->start_indices_batching_dims.data[k], a->index_vector_dim)];
    for (uint32_t d = 0; d < x->rank; ++d)
      if (!ref_contains(a->collapsed_slice_dims, d) && !ref_contains(a->operand_batching_dims, d))
        from[d] += i.at[a->offset_dims.data[offset++]];
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

/* Where update element `at` goes; false: outside, so that it is dropped. */
static bool scatter_target(const ir_scatter_attrs *a, const soft_view *whole, const soft_view *indices,
                           const soft_view *updates, const int64_t *at, int64_t *to) {
  int64_t batch[TTPU_MAX_RANK];
  uint32_t batches = 0, window = 0;
  for (uint32_t d = 0; d < updates->rank; ++d)
    if (!ref_contains(a->update_window_dims, d)) batch[batches++] = at[d];
  memset(to, 0, TTPU_MAX_RANK * sizeof *to);
  for (uint32_t k = 0; k < a->scatter_dims_to_operand_dims.count; ++k)
    to[a->scatter_dims_to_operand_dims.data[k]] = read_index(indices, a->index_vector_dim, batch, k);
  for (uint32_t k = 0; k < a->input_batching_dims.count; ++k)
    to[a->input_batching_dims.data[k]] =
        batch[batch_position(a->scatter_indices_batching_dims.data[k], a->index_vector_dim)];
  for (uint32_t d = 0; d < whole->rank; ++d) {
    to[d] = clamp(to[d], -whole->dims[d], whole->dims[d]); /* far outside stays outside, and sums cannot overflow */
    if (!ref_contains(a->inserted_window_dims, d) && !ref_contains(a->input_batching_dims, d))
      to[d] += at[a->update_window_dims.data[window++]];
    if (to[d] < 0 || to[d] >= whole->dims[d]) return false;
  }
  return true;
}

/* Updates apply in row-major order. The region's arguments: current values, then the updates' values. */
static ttpu_status scatter_elements(const ref_frame *frame, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_scatter_attrs *a = IR_ATTRS(op, scatter);
  uint32_t n = op->result_count;
  const soft_view *indices = x + n, *updates = x + n + 1;
  base_scalar *scalars = base_alloc(3 * n * sizeof *scalars);
  if (!scalars) return base_no_memory(3 * n * sizeof *scalars);
  ttpu_status status = TTPU_OK;
  for (ref_index i = ref_index_begin(updates->rank, updates->dims); i.more && status == TTPU_OK; ref_index_next(&i)) {
    int64_t to[TTPU_MAX_RANK];
    if (!scatter_target(a, y, indices, updates, i.at, to)) continue;
    for (uint32_t k = 0; k < n; ++k) {
      scalars[k] = ref_load(&y[k], to);
      scalars[n + k] = ref_load(&updates[k], i.at);
    }
    status = ref_region_call(frame, op->regions[0], scalars, n, scalars + 2 * n);
    for (uint32_t k = 0; k < n && status == TTPU_OK; ++k) ref_store(&y[k], to, scalars[2 * n + k]);
  }
  base_free(scalars);
  return status;
}

ttpu_status ref_scatter(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  ref_frame frame;
  BASE_TRY(ref_frame_open(&frame, f, op, x));
  for (uint32_t k = 0; k < op->result_count; ++k)
    for (ref_index i = ref_index_begin(y[k].rank, y[k].dims); i.more; ref_index_next(&i))
      move(&y[k], i.at, &x[k], i.at);
  ttpu_status status = scatter_elements(&frame, op, x, y);
  ref_frame_close(&frame);
  return status;
}

/* ---- ours: PyTorch's strided views ---------------------------------------------------------------- */

/* The index in x, read flat, of the element that a view's index `at` names. */
static bool strided_index(const ir_as_strided_attrs *a, const soft_view *x, uint32_t rank, const int64_t *at,
                          int64_t *index) {
  int64_t flat = a->offset;
  for (uint32_t d = 0; d < rank; ++d) flat += at[d] * a->strides.data[d];
  if (flat < 0 || flat >= base_numel(x->rank, x->dims)) return false;
  ref_unflatten(x->rank, x->dims, flat, index);
  return true;
}

static ttpu_status outside(const ir_op *op, const soft_view *x) {
  return base_fail(TTPU_OUT_OF_RANGE, "%s: the view reaches outside of its storage of %lld elements",
                   ir_ops[op->kind].name, (long long)base_numel(x->rank, x->dims));
}

ttpu_status ref_as_strided(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) {
    int64_t from[TTPU_MAX_RANK];
    if (!strided_index(IR_ATTRS(op, as_strided), x, y->rank, i.at, from)) return outside(op, x);
    move(y, i.at, x, from);
  }
  return TTPU_OK;
}

ttpu_status ref_as_strided_update(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i)) move(y, i.at, x, i.at);
  for (ref_index i = ref_index_begin(x[1].rank, x[1].dims); i.more; ref_index_next(&i)) {
    int64_t to[TTPU_MAX_RANK];
    if (!strided_index(IR_ATTRS(op, as_strided), y, x[1].rank, i.at, to)) return outside(op, x);
    move(y, to, &x[1], i.at);
  }
  return TTPU_OK;
}

ttpu_status ref_check_index(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  const ir_check_index_attrs *a = IR_ATTRS(op, check_index);
  for (ref_index i = ref_index_begin(x->rank, x->dims); i.more; ref_index_next(&i)) {
    int64_t index = ref_integer(x->dtype, ref_load(x, i.at));
    if (index >= a->low && index < a->high) continue;
    return ir_check_fail(a, x->dtype == TTPU_BOOL, index);
  }
  return ref_copy(f, op, x, y);
}

/* ---- sources ------------------------------------------------------------------------------------- */

ttpu_status ref_constant(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(x);
  const ir_data value = IR_ATTRS(op, constant)->value;
  const char *next = value.bytes;
  size_t bytes = base_dtype_bytes(y->dtype);
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i), next += value.splat ? 0 : bytes)
    memcpy(ref_at(y, i.at), next, bytes);
  return TTPU_OK;
}

ttpu_status ref_iota(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f), UNUSED(x);
  int64_t dim = IR_ATTRS(op, iota)->iota_dimension;
  for (ref_index i = ref_index_begin(y->rank, y->dims); i.more; ref_index_next(&i))
    ref_store(y, i.at, base_scalar_convert(TTPU_I64, y->dtype, (base_scalar){.i = i.at[dim]}));
  return TTPU_OK;
}

/* Philox 4x32-10 (Salmon et al., SC 2011): key = {seed low, seed high}, counter = {c low, c high, 0, 0}. */
static void philox(uint64_t seed, uint64_t counter, uint32_t out[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key[1],
                        (uint32_t)a};
    memcpy(c, next, sizeof c);
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
  memcpy(out, c, sizeof c);
}

/* Threefry 2x32-20, for programs from elsewhere that ask for it. */
static void three_fry(uint64_t seed, uint64_t counter, uint32_t out[2]) {
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  uint32_t key[3] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0};
  key[2] = 0x1BD11BDAu ^ key[0] ^ key[1];
  uint32_t a = (uint32_t)counter + key[0], b = (uint32_t)(counter >> 32) + key[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int i = 0; i < 4; ++i) {
      int r = rotations[group & 1][i];
      a += b;
      b = ((b << r) | (b >> (32 - r))) ^ a;
    }
    a += key[(group + 1) % 3];
    b += key[(group + 2) % 3] + group + 1;
  }
  out[0] = a, out[1] = b;
}

/* The state is {seed, offset}. A counter value gives one block of 128 bits (Threefry: 64), which hold the next
 * elements, low bits first; an element takes 64 bits where it has 64, else 32. Counter `offset` holds the first.
 * The new state is {seed, offset + blocks used}. */
ttpu_status ref_rng_bit_generator(const ir_func *f, const ir_op *op, const soft_view *x, const soft_view *y) {
  UNUSED(f);
  uint64_t state[2];
  bool threefry = IR_ATTRS(op, rng_bit_generator)->rng_algorithm == IR_RNG_THREE_FRY;
  bool sized = x->dtype == TTPU_U64 && x->rank == 1 && (x->dims[0] == 2 || (!threefry && x->dims[0] == 3));
  if (!sized)
    return base_fail(TTPU_INVALID_ARGUMENT, "rng_bit_generator: the state is of rank %u and %s, expected 2%s ui64",
                     x->rank, base_dtypes[x->dtype].hlo_name, threefry ? "" : " or 3");
  if (!base_dtype_is_integer(y[1].dtype))
    return base_fail(TTPU_UNIMPLEMENTED, "rng_bit_generator: bits of %s", base_dtypes[y[1].dtype].hlo_name);
  for (int64_t i = 0; i < 2; ++i) state[i] = ref_load(x, &i).u;
  const soft_view *bits = &y[1];
  uint32_t words = base_dtype_bytes(bits->dtype) == 8 ? 2 : 1, block_words = threefry ? 2 : 4, used = block_words;
  uint32_t block[4];
  uint64_t blocks = 0;
  for (ref_index i = ref_index_begin(bits->rank, bits->dims); i.more; ref_index_next(&i), used += words) {
    if (used == block_words) {
      if (threefry) three_fry(state[0], state[1] + blocks, block);
      else philox(state[0], state[1] + blocks, block);
      ++blocks, used = 0;
    }
    uint64_t element = block[used] | (words == 2 ? (uint64_t)block[used + 1] << 32 : 0);
    memcpy(ref_at(bits, i.at), &element, base_dtype_bytes(bits->dtype));
  }
  state[1] += blocks;
  for (int64_t i = 0; i < 2; ++i) ref_store(y, &i, (base_scalar){.u = state[i]});
  return TTPU_OK;
}
