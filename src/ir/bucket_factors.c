/* Factors: the sizes of dimensions, which operations join and reshapes take apart. */
#include "ir/bucket_int.h"

static uint32_t find(bucket *s, uint32_t i) {
  while (s->factors[i].parent != i) i = s->factors[i].parent = s->factors[s->factors[i].parent].parent;
  return i;
}

static uint32_t collect(bucket *s, uint32_t factor, uint32_t *roots, uint32_t count) {
  uint32_t i = find(s, factor);
  const bucket_factor *x = &s->factors[i];
  if (x->is_split) return collect(s, x->parts[1], roots, collect(s, x->parts[0], roots, count));
  if (x->before == 1 && x->size == 1) return count;
  if (count < BUCKET_FACTORS) roots[count] = i;
  else s->failed = true;
  return count + (count < BUCKET_FACTORS);
}

uint32_t bucket_roots(bucket *s, uint32_t factor, uint32_t *roots) { return collect(s, factor, roots, 0); }

void bucket_pin(bucket *s, uint32_t factor) {
  uint32_t i = find(s, factor);
  if (s->factors[i].is_pinned && !s->factors[i].is_split) return;
  s->factors[i].is_pinned = true;
  if (!s->factors[i].is_split) return;
  bucket_pin(s, s->factors[i].parts[0]);
  bucket_pin(s, s->factors[i].parts[1]);
}

static void join(bucket *s, uint32_t x, uint32_t y) {
  if (x == y) return;
  uint32_t low = x < y ? x : y; /* the first one stays: parameters come first */
  bucket_factor *to = &s->factors[low], *from = &s->factors[x + y - low];
  from->parent = low;
  to->is_pinned |= from->is_pinned;
  to->is_whole |= from->is_whole;
  to->varies |= from->varies;
}

/* Root x as `high` times what is left, which is a new root; BUCKET_NONE where that cannot be. */
static uint32_t split(bucket *s, uint32_t x, uint32_t high) {
  const bucket_factor a = s->factors[x], b = s->factors[high];
  if (a.is_whole || b.size == 0 || b.before == 0 || a.size % b.size != 0 || a.before % b.before != 0)
    return BUCKET_NONE;
  if (!BASE_GROW(s->factors, s->factor_count, s->factor_capacity)) {
    s->failed = true;
    return BUCKET_NONE;
  }
  uint32_t rest = s->factor_count++;
  s->factors[rest] =
      (bucket_factor){.parent = rest, .before = a.before / b.before, .size = a.size / b.size, .is_pinned = a.is_pinned};
  s->factors[x].is_split = true;
  s->factors[x].parts[0] = high;
  s->factors[x].parts[1] = rest;
  if (a.is_pinned) bucket_pin(s, high);
  return rest;
}

static bool equal(const bucket *s, uint32_t x, uint32_t y) {
  return s->factors[x].size == s->factors[y].size && s->factors[x].before == s->factors[y].before;
}

void bucket_tie_lists(bucket *s, uint32_t x_count, const uint32_t *x, uint32_t y_count, const uint32_t *y) {
  uint32_t roots[2][TTPU_MAX_RANK * BUCKET_FACTORS], count[2] = {0, 0}, at[2] = {0, 0};
  for (uint32_t i = 0; i < x_count; ++i) count[0] += bucket_roots(s, x[i], roots[0] + count[0]);
  for (uint32_t i = 0; i < y_count; ++i) count[1] += bucket_roots(s, y[i], roots[1] + count[1]);
  while (at[0] < count[0] && at[1] < count[1]) {
    uint32_t a = find(s, roots[0][at[0]]), b = find(s, roots[1][at[1]]);
    /* Joining earlier roots may have taken these apart: begin anew with what they are by now. */
    if (s->factors[a].is_split || s->factors[b].is_split) {
      bucket_tie_lists(s, count[0] - at[0], roots[0] + at[0], count[1] - at[1], roots[1] + at[1]);
      return;
    }
    if (equal(s, a, b)) {
      join(s, a, b);
      ++at[0], ++at[1];
      continue;
    }
    int longer = s->factors[a].size < s->factors[b].size;
    uint32_t rest = longer ? split(s, b, a) : split(s, a, b);
    if (rest == BUCKET_NONE) break;
    roots[longer][at[longer]] = rest;
    ++at[!longer];
  }
  for (int k = 0; k < 2; ++k)
    for (uint32_t i = at[k]; i < count[k]; ++i) bucket_pin(s, roots[k][i]);
}

void bucket_tie(bucket *s, uint32_t x, uint32_t y) { bucket_tie_lists(s, 1, &x, 1, &y); }

void bucket_keep_whole(bucket *s, uint32_t factor) {
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots);
  if (count > 1) bucket_pin(s, factor);
  if (count == 1) s->factors[roots[0]].is_whole = true;
}

bool bucket_root_is_padded(const bucket *s, uint32_t root) {
  const bucket_factor *x = &s->factors[root];
  if (x->is_pinned || x->size < 2) return false;
  return s->options->all || x->varies || x->before != x->size;
}

bool bucket_is_padded(bucket *s, uint32_t factor) {
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots);
  bool padded = false;
  for (uint32_t i = 0; i < count; ++i) padded |= bucket_root_is_padded(s, roots[i]);
  return padded;
}

int64_t bucket_padded_size(bucket *s, uint32_t factor) {
  uint32_t roots[BUCKET_FACTORS], count = bucket_roots(s, factor, roots);
  int64_t size = 1;
  for (uint32_t i = 0; i < count; ++i) {
    int64_t n = s->factors[roots[i]].size;
    size *= bucket_root_is_padded(s, roots[i]) ? ir_bucket_size(n) : n;
  }
  return size;
}
