/* Shardings as text. The forms (sources: shardy's dialect documentation, XLA's hlo_sharding.h):
 *
 *   #sdy.sharding<@mesh, [{"x", "y"}, {}, {"z":(2)4, ?}], replicated={"w"}>   axes that cut each dimension, major first;
 *                                           "z":(2)4 is the part of axis z, of size 4, behind a part of size 2
 *   #sdy.mesh<["x"=2, "y"=4], device_ids=[1, 0, ...]>   axes, row-major; without ids position i is partition i
 *   {replicated}  {manual}  {maximal device=3}
 *   {devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}    tiles, and the partition at each position, row-major
 *   {devices=[2,2]<=[2,2]T(1,0)}                         the same with ids from a transposed iota
 *   {devices=[2,1,2]<=[4] last_tile_dims={replicated, manual}}
 */
#include "soft/link/sharding.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AXES = 16 };

/* ---- reading ------------------------------------------------------------------------------------------------- */

typedef struct reader {
  const char *at, *all; /* NUL-terminated */
} reader;

static void skip_space(reader *r) {
  while (isspace((unsigned char)*r->at)) ++r->at;
}

static bool take(reader *r, const char *word) {
  skip_space(r);
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) != 0) return false;
  r->at += n;
  return true;
}

static ttpu_status fail_text(const reader *r, const char *why) {
  return base_fail(TTPU_INVALID_ARGUMENT, "sharding %.200s: %s at character %zu", r->all, why,
                   (size_t)(r->at - r->all));
}

static ttpu_status expect(reader *r, const char *word) {
  if (take(r, word)) return TTPU_OK;
  char why[64];
  snprintf(why, sizeof why, "expected %s", word);
  return fail_text(r, why);
}

static ttpu_status read_number(reader *r, uint32_t *out) {
  skip_space(r);
  char *end;
  if (!isdigit((unsigned char)*r->at)) return fail_text(r, "expected a number");
  unsigned long value = strtoul(r->at, &end, 10);
  if (value > 1u << 20) return fail_text(r, "the number is too large");
  r->at = end;
  *out = (uint32_t)value;
  return TTPU_OK;
}

/* A list of numbers up to `close`, at most `most` of them. */
static ttpu_status read_numbers(reader *r, const char *close, uint32_t most, uint32_t *numbers, uint32_t *count) {
  *count = 0;
  while (!take(r, close)) {
    if (*count == most) return fail_text(r, "too many numbers");
    BASE_TRY(read_number(r, &numbers[(*count)++]));
    take(r, ",");
  }
  return TTPU_OK;
}

/* "name" */
static ttpu_status read_name(reader *r, const char **name, size_t *length) {
  BASE_TRY(expect(r, "\""));
  const char *end = strchr(r->at, '"');
  if (!end) return fail_text(r, "a name does not end");
  *name = r->at;
  *length = (size_t)(end - r->at);
  r->at = end + 1;
  return TTPU_OK;
}

/* Goes to behind the bracket that closes the one before r->at. */
static void skip_to_close(reader *r) {
  for (int depth = 1; *r->at && depth > 0; ++r->at) {
    if (strchr("<[{(", *r->at)) ++depth;
    if (strchr(">]})", *r->at)) --depth;
  }
}

/* ---- meshes -------------------------------------------------------------------------------------------------- */

typedef struct mesh {
  uint32_t axis_count;
  struct {
    const char *name;
    size_t length;
    uint32_t size;
  } axes[MOST_AXES];
  uint32_t positions;      /* the product of the axes */
  const uint32_t *numbers; /* [partition]: its position */
} mesh;

static ttpu_status read_axes(reader *r, mesh *m) {
  BASE_TRY(expect(r, "["));
  m->positions = 1;
  while (!take(r, "]")) {
    if (m->axis_count == MOST_AXES) return fail_text(r, "too many axes");
    BASE_TRY(read_name(r, &m->axes[m->axis_count].name, &m->axes[m->axis_count].length));
    BASE_TRY(expect(r, "="));
    BASE_TRY(read_number(r, &m->axes[m->axis_count].size));
    if (__builtin_mul_overflow(m->positions, m->axes[m->axis_count++].size, &m->positions))
      return fail_text(r, "the mesh is too large");
    take(r, ",");
  }
  return TTPU_OK;
}

/* ["x"=2, "y"=2], device_ids=[...]> */
static ttpu_status read_mesh(base_arena *arena, reader *r, uint32_t partitions, mesh *m) {
  uint32_t *numbers = base_arena_zalloc(arena, partitions * sizeof *numbers);
  if (!numbers) return base_no_memory(partitions * sizeof *numbers);
  m->numbers = numbers;
  BASE_TRY(read_axes(r, m));
  bool listed = take(r, ",") && take(r, "device_ids");
  if (m->axis_count == 0) return TTPU_OK; /* one device, or none: nothing is cut */
  if (m->positions != partitions) return fail_text(r, "the mesh has another number of devices than the program");
  for (uint32_t i = 0; i < partitions; ++i) numbers[i] = i;
  if (!listed) return TTPU_OK;
  BASE_TRY(expect(r, "="));
  BASE_TRY(expect(r, "["));
  for (uint32_t position = 0; position < partitions; ++position) {
    uint32_t id;
    BASE_TRY(read_number(r, &id));
    if (id >= partitions) return fail_text(r, "no such device");
    numbers[id] = position;
    take(r, ",");
  }
  return TTPU_OK;
}

/* @name, or mesh<[...]> in place. */
static ttpu_status find_mesh(base_arena *arena, reader *r, const ir_shardings *s, uint32_t partitions, mesh *m) {
  *m = (mesh){0};
  if (take(r, "#sdy.mesh<") || take(r, "mesh<")) {
    BASE_TRY(read_mesh(arena, r, partitions, m));
    return expect(r, ">");
  }
  BASE_TRY(expect(r, "@"));
  bool quoted = take(r, "\"");
  size_t length = strcspn(r->at, quoted ? "\"" : ", >");
  for (uint32_t i = 0; s && i < s->mesh_count; ++i) {
    if (strlen(s->meshes[i].name) != length || memcmp(s->meshes[i].name, r->at, length) != 0) continue;
    reader text = {s->meshes[i].text, s->meshes[i].text};
    r->at += length + quoted;
    if (!take(&text, "#sdy.mesh<")) BASE_TRY(expect(&text, "<"));
    return read_mesh(arena, &text, partitions, m);
  }
  return fail_text(r, "no such mesh");
}

/* ---- Shardy -------------------------------------------------------------------------------------------------------- */

/* Is the axis among #sdy<manual_axes{"x", "y"}>? */
static bool is_listed(const char *axes, const char *name, size_t length) {
  if (!axes) return true;
  for (const char *at = strchr(axes, '"'); at;) {
    const char *end = strchr(at + 1, '"');
    if (!end) return false;
    if ((size_t)(end - at - 1) == length && memcmp(at + 1, name, length) == 0) return true;
    at = strchr(end + 1, '"');
  }
  return false;
}

/* One axis, or part of one, cuts dimension d: the pieces so far are cut further. */
static ttpu_status cut_by_axis(reader *r, const mesh *m, const char *axes, link_sharding *s, uint32_t d,
                               uint32_t *pieces) {
  const char *name;
  size_t length;
  BASE_TRY(read_name(r, &name, &length));
  uint32_t axis = 0, behind = 1, before = 1;
  while (axis < m->axis_count && (m->axes[axis].length != length || memcmp(m->axes[axis].name, name, length))) ++axis;
  if (axis == m->axis_count) return fail_text(r, "the mesh has no such axis");
  uint32_t size = m->axes[axis].size;
  for (uint32_t i = axis + 1; i < m->axis_count; ++i) behind *= m->axes[i].size;
  if (take(r, ":")) {
    BASE_TRY(expect(r, "("));
    BASE_TRY(read_number(r, &before));
    BASE_TRY(expect(r, ")"));
    BASE_TRY(read_number(r, &size));
    if (!before || !size || m->axes[axis].size % (before * size)) return fail_text(r, "the axis has no such part");
    behind *= m->axes[axis].size / (before * size);
  }
  if (!is_listed(axes, name, length)) return TTPU_OK;
  for (uint32_t p = 0; p < s->partitions; ++p) {
    uint32_t *piece = &pieces[p * s->rank + d];
    *piece = *piece * size + m->numbers[p] / behind % size;
  }
  s->tiles[d] *= size;
  return TTPU_OK;
}

static ttpu_status read_shardy(base_arena *arena, reader *r, const ir_shardings *meshes, const char *axes,
                               link_sharding *s, uint32_t *pieces) {
  mesh m;
  BASE_TRY(find_mesh(arena, r, meshes, s->partitions, &m));
  BASE_TRY(expect(r, ","));
  BASE_TRY(expect(r, "["));
  for (uint32_t d = 0; !take(r, "]"); ++d) {
    if (d == s->rank) return fail_text(r, "it has more dimensions than the value");
    BASE_TRY(expect(r, "{"));
    while (!take(r, "}")) {
      if (take(r, "?")) continue; /* others may be added, which nobody does here */
      BASE_TRY(cut_by_axis(r, &m, axes, s, d, pieces));
      take(r, ",");
    }
    if (take(r, "p")) { /* a priority */
      uint32_t ignored;
      BASE_TRY(read_number(r, &ignored));
    }
    take(r, ",");
  }
  if (strstr(r->at, "unreduced"))
    return base_fail(TTPU_UNIMPLEMENTED, "sharding %.200s: unreduced values are not offered", r->all);
  return TTPU_OK;
}

/* ---- mhlo.sharding --------------------------------------------------------------------------------------------------- */

/* The partition at each position: a list, or <=[dims]T(permutation). */
static ttpu_status read_ids(reader *r, uint32_t count, uint32_t *ids) {
  uint32_t dims[TTPU_MAX_RANK], order[TTPU_MAX_RANK], rank, given, total = 1;
  if (!take(r, "<=")) {
    for (uint32_t i = 0; i < count; ++i) {
      BASE_TRY(read_number(r, &ids[i]));
      take(r, ",");
    }
    return TTPU_OK;
  }
  BASE_TRY(expect(r, "["));
  BASE_TRY(read_numbers(r, "]", TTPU_MAX_RANK, dims, &rank));
  for (uint32_t i = 0; i < rank; ++i) order[i] = i, total *= dims[i];
  if (total != count) return fail_text(r, "the ids are another number than the tiles");
  if (take(r, "T(")) {
    BASE_TRY(read_numbers(r, ")", TTPU_MAX_RANK, order, &given));
    uint32_t seen = 0;
    for (uint32_t i = 0; i < given; ++i) seen |= order[i] < rank ? 1u << order[i] : 0;
    if (given != rank || seen != (rank == 32 ? ~0u : (1u << rank) - 1)) return fail_text(r, "no permutation");
  }
  for (uint32_t i = 0; i < count; ++i) { /* position i of the transposed array, the last dimension fastest */
    uint32_t at[TTPU_MAX_RANK] = {0}, rest = i, id = 0;
    for (uint32_t k = rank; k-- > 0;) {
      at[order[k]] = rest % dims[order[k]];
      rest /= dims[order[k]];
    }
    for (uint32_t k = 0; k < rank; ++k) id = id * dims[k] + at[k];
    ids[i] = id;
  }
  return TTPU_OK;
}

static ttpu_status read_tiles(base_arena *arena, reader *r, link_sharding *s, uint32_t *pieces) {
  uint32_t tiles[2 * TTPU_MAX_RANK], count, total = 1;
  BASE_TRY(expect(r, "["));
  BASE_TRY(read_numbers(r, "]", 2 * TTPU_MAX_RANK, tiles, &count));
  for (uint32_t i = 0; i < count; ++i)
    if (!tiles[i] || __builtin_mul_overflow(total, tiles[i], &total) || total > s->partitions)
      return fail_text(r, "the tiles are more than the program's partitions");
  if (total != s->partitions || count < s->rank) return fail_text(r, "the tiles do not fit the program");
  uint32_t *ids = base_arena_alloc(arena, total * sizeof *ids);
  if (!ids) return base_no_memory(total * sizeof *ids);
  BASE_TRY(read_ids(r, total, ids));
  /* dimensions behind the value's repeat it: last_tile_dim_replicate, last_tile_dims={...} */
  if (count > s->rank && !strstr(r->at, "last_tile_dim")) return fail_text(r, "it has more dimensions than the value");
  for (uint32_t position = 0; position < total; ++position) {
    if (ids[position] >= s->partitions) return fail_text(r, "no such partition");
    uint32_t rest = position;
    for (uint32_t k = count; k-- > 0; rest /= tiles[k])
      if (k < s->rank) pieces[ids[position] * s->rank + k] = rest % tiles[k];
  }
  for (uint32_t d = 0; d < s->rank; ++d) s->tiles[d] = tiles[d];
  return TTPU_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

ttpu_status link_sharding_parse(base_arena *arena, const char *text, const ir_shardings *meshes, uint32_t partitions,
                                ir_type t, const char *axes, link_sharding *out) {
  link_sharding s = {.rank = t.rank, .partitions = partitions};
  uint32_t *pieces = base_arena_zalloc(arena, (partitions * t.rank + 1) * sizeof *pieces);
  if (!pieces) return base_no_memory(partitions * t.rank * sizeof *pieces);
  for (uint32_t d = 0; d < t.rank; ++d) s.tiles[d] = 1;
  s.pieces = pieces;
  reader r = {text ? text : "{replicated}", text ? text : "{replicated}"};
  if (take(&r, "#sdy.sharding<") || take(&r, "<")) {
    BASE_TRY(read_shardy(arena, &r, meshes, axes, &s, pieces));
  } else {
    BASE_TRY(expect(&r, "{"));
    if (take(&r, "devices=")) BASE_TRY(read_tiles(arena, &r, &s, pieces));
    else if (!take(&r, "replicated") && !take(&r, "maximal") && !take(&r, "manual"))
      return fail_text(&r, "expected replicated, maximal, manual or devices=");
  }
  for (uint32_t d = 0; d < t.rank; ++d)
    if (t.dims[d] % s.tiles[d])
      return base_fail(TTPU_UNIMPLEMENTED,
                       "sharding %.200s: dimension %u of size %lld does not split into %u equal pieces", r.all, d,
                       (long long)t.dims[d], s.tiles[d]);
  *out = s;
  return TTPU_OK;
}

const char *link_sharding_entry(base_arena *arena, const char *list, uint32_t n) {
  reader r = {strchr(list, '['), list};
  if (!r.at) return NULL;
  ++r.at;
  for (uint32_t i = 0;; ++i) {
    take(&r, "#sdy.sharding");
    if (!take(&r, "<")) return NULL;
    const char *from = r.at - 1;
    skip_to_close(&r);
    if (i == n) {
      size_t length = (size_t)(r.at - from);
      char *copy = base_arena_zalloc(arena, length + 1);
      if (copy) memcpy(copy, from, length);
      return copy;
    }
    take(&r, ",");
  }
}

bool link_sharding_is_whole(const link_sharding *s) {
  for (uint32_t d = 0; d < s->rank; ++d)
    if (s->tiles[d] > 1) return false;
  return true;
}

bool link_sharding_equal(const link_sharding *a, const link_sharding *b) {
  if (a->rank != b->rank || a->partitions != b->partitions) return false;
  if (memcmp(a->tiles, b->tiles, a->rank * sizeof *a->tiles) != 0) return false;
  return memcmp(a->pieces, b->pieces, a->partitions * a->rank * sizeof *a->pieces) == 0;
}

void link_sharding_part(const link_sharding *s, const int64_t *dims, int64_t *part) {
  for (uint32_t d = 0; d < s->rank; ++d) part[d] = dims[d] / s->tiles[d];
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

/* The number of a partition's part, row-major over the tiles. */
static uint32_t part_number(const link_sharding *s, uint32_t partition) {
  uint32_t number = 0;
  for (uint32_t d = 0; d < s->rank; ++d) number = number * s->tiles[d] + s->pieces[partition * s->rank + d];
  return number;
}

const char *link_sharding_text(base_arena *arena, const link_sharding *s) {
  if (link_sharding_is_whole(s)) return "{replicated}";
  base_text text = {0};
  uint32_t parts = 1;
  base_text_printf(&text, "{devices=[");
  for (uint32_t d = 0; d < s->rank; ++d) {
    base_text_printf(&text, "%s%u", d ? "," : "", s->tiles[d]);
    parts *= s->tiles[d];
  }
  if (parts < s->partitions) base_text_printf(&text, ",%u", s->partitions / parts);
  for (uint32_t part = 0, first = 1; part < parts; ++part)
    for (uint32_t p = 0; p < s->partitions; ++p)
      if (part_number(s, p) == part) base_text_printf(&text, "%s%u", first ? "]" : ",", p), first = 0;
  base_text_printf(&text, parts < s->partitions ? " last_tile_dim_replicate}" : "}");
  const char *copy = text.failed ? NULL : base_arena_dup(arena, text.data, text.length + 1);
  base_text_free(&text);
  return copy;
}
