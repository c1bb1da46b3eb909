/* Shardings as text: which piece each partition has, in Shardy's form and in that of mhlo.sharding; and bad text. */
#include "check.h"
#include "soft/link/sharding.h"

static const ir_mesh meshes[] = {
    {"mesh", "#sdy.mesh<[\"a\"=2, \"b\"=4]>"},
    {"turned", "#sdy.mesh<[\"x\"=2, \"y\"=2], device_ids=[3, 1, 0, 2]>"},
    {"one", "#sdy.mesh<[], device_ids=[0]>"},
};
static const ir_shardings all_meshes = {.mesh_count = 3, .meshes = meshes};

typedef struct sharding_case {
  uint32_t partitions;
  const char *text, *axes;
  int64_t dims[2];
  uint32_t tiles[2];
  const char *pieces; /* "row column" digits of each partition */
  const char *again;  /* as a string of mhlo.sharding */
} sharding_case;

static const sharding_case cases[] = {
    {8, NULL, NULL, {8, 8}, {1, 1}, "00 00 00 00 00 00 00 00", "{replicated}"},
    {8, "{replicated}", NULL, {8, 8}, {1, 1}, "00 00 00 00 00 00 00 00", "{replicated}"},
    {8, "{maximal device=3}", NULL, {8, 8}, {1, 1}, "00 00 00 00 00 00 00 00", "{replicated}"},
    {8, "#sdy.sharding<@one, [{}, {}]>", NULL, {8, 8}, {1, 1}, "00 00 00 00 00 00 00 00", "{replicated}"},
    {8,
     "#sdy.sharding<@mesh, [{\"a\"}, {\"b\"}]>",
     NULL,
     {8, 8},
     {2, 4},
     "00 01 02 03 10 11 12 13",
     "{devices=[2,4]0,1,2,3,4,5,6,7}"},
    {8,
     "<@mesh, [{\"b\", ?}, {}], replicated={\"a\"}>",
     NULL,
     {8, 8},
     {4, 1},
     "00 10 20 30 00 10 20 30",
     "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"},
    {8, /* the minor half of b, then a */
     "#sdy.sharding<@mesh, [{\"b\":(2)2, \"a\"}p1, {\"b\":(1)2}]>",
     NULL,
     {8, 8},
     {4, 2},
     "00 20 01 21 10 30 11 31",
     "{devices=[4,2]0,2,4,6,1,3,5,7}"},
    {8, /* only a is the manual computation's */
     "<@mesh, [{\"a\", \"b\"}, {}]>",
     "#sdy<manual_axes{\"a\"}>",
     {8, 8},
     {2, 1},
     "00 00 00 00 10 10 10 10",
     "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"},
    {4, "#sdy.sharding<@turned, [{\"x\"}, {\"y\"}]>", NULL, {4, 4}, {2, 2}, "10 01 11 00", "{devices=[2,2]3,1,0,2}"},
    {4, "#sdy.sharding<mesh<[\"q\"=4]>, [{\"q\"}, {}]>", NULL, {4, 4}, {4, 1}, "00 10 20 30", "{devices=[4,1]0,1,2,3}"},
    {4,
     "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
     NULL,
     {4, 4},
     {2, 1},
     "00 10 00 10",
     "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"},
    {4, "{devices=[2,2]<=[4]}", NULL, {4, 4}, {2, 2}, "00 01 10 11", "{devices=[2,2]0,1,2,3}"},
    {4, "{devices=[2,2]<=[2,2]T(1,0)}", NULL, {4, 4}, {2, 2}, "00 10 01 11", "{devices=[2,2]0,2,1,3}"},
    {4,
     "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={replicated}}",
     NULL,
     {4, 4},
     {1, 2},
     "00 01 00 01",
     "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"},
};

TEST(pieces) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const sharding_case *c = &cases[i];
    base_arena arena;
    base_arena_init(&arena);
    link_sharding s, again;
    ir_type t = {TTPU_F32, 2, c->dims};
    if (CHECK_OK(link_sharding_parse(&arena, c->text, &all_meshes, c->partitions, t, c->axes, &s))) {
      char pieces[64] = "";
      for (uint32_t p = 0; p < c->partitions; ++p)
        snprintf(pieces + strlen(pieces), sizeof pieces - strlen(pieces), "%s%u%u", p ? " " : "", s.pieces[2 * p],
                 s.pieces[2 * p + 1]);
      CHECK_STR(pieces, c->pieces);
      CHECK(s.tiles[0] == c->tiles[0] && s.tiles[1] == c->tiles[1]);
      const char *text = link_sharding_text(&arena, &s);
      CHECK_STR(text, c->again);
      CHECK_OK(link_sharding_parse(&arena, text, NULL, c->partitions, t, NULL, &again));
      CHECK(link_sharding_equal(&s, &again));
    }
    base_arena_free(&arena);
  }
}

TEST(lists) {
  base_arena arena;
  base_arena_init(&arena);
  const char *list = "#sdy.sharding_per_value<[<@mesh, [{\"a\"}, {}]>, #sdy.sharding<@mesh, []>]>";
  CHECK_STR(link_sharding_entry(&arena, list, 0), "<@mesh, [{\"a\"}, {}]>");
  CHECK_STR(link_sharding_entry(&arena, list, 1), "<@mesh, []>");
  CHECK(link_sharding_entry(&arena, list, 2) == NULL);
  CHECK(link_sharding_entry(&arena, "nothing", 0) == NULL);
  base_arena_free(&arena);
}

static ttpu_status parse(const char *text, uint32_t partitions) {
  static const int64_t dims[2] = {8, 6};
  base_arena arena;
  base_arena_init(&arena);
  link_sharding s;
  ttpu_status status =
      link_sharding_parse(&arena, text, &all_meshes, partitions, (ir_type){TTPU_F32, 2, dims}, NULL, &s);
  base_arena_free(&arena);
  return status;
}

TEST(bad_text) {
  static const char *const bad[] = {
      "",
      "{",
      "{devices=[2,2]",
      "{devices=[2,2]0,1,2}",
      "{devices=[2,2]0,1,2,9}",
      "{devices=[3,2]<=[6]}",
      "{devices=[2,2]<=[2,3]}",
      "{devices=[2,2]<=[2,2]T(0,0)}",
      "{devices=[2,0]<=[4]}",
      "{devices=[4294967295,4294967295]<=[4]}",
      "{devices=[2,1,2]0,1,2,3}",
      "{something}",
      "#sdy.sharding<@nowhere, [{}, {}]>",
      "#sdy.sharding<@mesh, [{\"a\"}, {}]>", /* of 8 devices */
      "#sdy.sharding<@turned, [{\"z\"}, {}]>",
      "#sdy.sharding<@turned, [{\"x\":(2)2}, {}]>",
      "#sdy.sharding<@turned, [{\"x\"}, {}, {}]>",
      "#sdy.sharding<@turned, [{\"x",
      "#sdy.sharding<mesh<[\"q\"=99999999999]>, [{\"q\"}, {}]>",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
    if (parse(bad[i], 4) != TTPU_INVALID_ARGUMENT) check_fail(__FILE__, __LINE__, "%s: no error", bad[i]);
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "dimension 1 of size 6 does not split into 4",
              parse("#sdy.sharding<mesh<[\"q\"=4]>, [{}, {\"q\"}]>", 4));
  CHECK_FAILS(TTPU_UNIMPLEMENTED, "unreduced", parse("#sdy.sharding<@turned, [{\"x\"}, {}], unreduced={\"y\"}>", 4));
}
