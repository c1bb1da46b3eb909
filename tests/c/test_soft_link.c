/* Collectives between chips, each on a thread of its own: values in every group mode, many meetings, failures. */
#include <pthread.h>

#include "check.h"
#include "soft/link/link.h"

enum { MOST_CHIPS = 8, MOST_NUMBERS = 64 };

/* ---- a program on all chips of a grid ------------------------------------------------------------------------- */

typedef struct fleet {
  link_grid grid;
  base_arena *arena;
  ir_func *f;
  soft_executable *e;
  soft_hbm *hbm;
  link_run *run;
  bool reference;
  uint32_t numbers; /* of the argument, f32 */
  float in[MOST_CHIPS][MOST_NUMBERS], out[MOST_CHIPS][MOST_NUMBERS];
  ttpu_status status[MOST_CHIPS];
  char message[MOST_CHIPS][512];
} fleet;

typedef struct rider {
  fleet *fleet;
  uint32_t chip;
} rider;

static ttpu_status execute(fleet *f, uint32_t chip) {
  if (f->reference) return soft_reference_run(f->f, (void *[]){f->in[chip]}, (void *[]){f->out[chip]});
  soft_block *in = NULL, *out = NULL;
  BASE_TRY(soft_block_new(f->hbm, f->numbers * sizeof(float), &in));
  memcpy(in->data, f->in[chip], f->numbers * sizeof(float));
  ttpu_status status = soft_execute(f->e, f->hbm, &in, NULL, &out, NULL);
  if (status == TTPU_OK) memcpy(f->out[chip], out->data, out->bytes);
  soft_block_free(in);
  soft_block_free(out);
  return status;
}

static void *ride(void *context) {
  const rider *r = context;
  fleet *f = r->fleet;
  link_chip chip;
  link_enter(&chip, f->run, r->chip);
  ttpu_status status = execute(f, r->chip);
  f->status[r->chip] = status;
  snprintf(f->message[r->chip], sizeof f->message[0], "%s", status == TTPU_OK ? "" : base_message());
  link_leave(&chip, status);
  return NULL;
}

static uint32_t chips_of(const fleet *f) { return f->grid.replicas * f->grid.partitions; }

static bool fleet_open(fleet *f, link_grid grid, bool reference, const char *text) {
  *f = (fleet){.grid = grid, .reference = reference, .arena = base_alloc(sizeof *f->arena)};
  base_arena_init(f->arena);
  if (!CHECK_OK(ir_parse(f->arena, text, strlen(text), &f->f)) || !CHECK_OK(link_check(f->f, grid)) ||
      !CHECK_OK(soft_hbm_new(1 << 24, &f->hbm)) || !CHECK_OK(soft_compile(f->arena, f->f, NULL, &f->e)))
    return false;
  f->numbers = (uint32_t)ir_numel(ir_type_of(f->f, f->f->body.first_arg));
  for (uint32_t c = 0; c < chips_of(f); ++c)
    for (uint32_t i = 0; i < f->numbers; ++i) f->in[c][i] = (float)(100 * c + i);
  return true;
}

/* Starts the chips in an order of its own each time; those in `absent` (bits) never come. */
static void fleet_run(fleet *f, uint32_t absent) {
  static uint32_t turn;
  pthread_t threads[MOST_CHIPS];
  rider riders[MOST_CHIPS];
  uint32_t n = chips_of(f), first = turn++ % n;
  if (!CHECK_OK(link_run_new(f->grid, &f->run))) return;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t chip = (first + i) % n;
    riders[i] = (rider){f, chip};
    if (absent >> chip & 1) link_abandon(f->run, chip, base_fail(TTPU_ABORTED, "it was never built"));
    else pthread_create(&threads[i], NULL, ride, &riders[i]);
  }
  for (uint32_t i = 0; i < n; ++i)
    if (!(absent >> riders[i].chip & 1)) pthread_join(threads[i], NULL);
}

static void fleet_close(fleet *f) {
  soft_executable_free(f->e);
  soft_hbm_free(f->hbm);
}

/* A function of one argument with one operation, whose text comes after the name. */
static const char *program_of(const char *type, const char *result, const char *operation) {
  static char text[2048];
  snprintf(text, sizeof text,
           "module {\n  func.func @main(%%0: tensor<%s>) -> (tensor<%s>) {\n    %%1 = %s : (tensor<%s>) -> tensor<%s>\n"
           "    \"func.return\"(%%1) : (tensor<%s>) -> ()\n  }\n}\n",
           type, result, operation, type, result, result);
  return text;
}

#define SUM                                                                                                       \
  "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %c = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> " \
  "tensor<f32>\n \"stablehlo.return\"(%c) : (tensor<f32>) -> ()\n})"
/* Not a reducer that is recognised: a + b + 1. */
#define ODD                                                                                                           \
  "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %one = \"stablehlo.constant\"() {value = dense<1.0> : tensor<f32>} " \
  ": () -> tensor<f32>\n %c = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n %d = "          \
  "\"stablehlo.add\"(%c, %one) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n \"stablehlo.return\"(%d) : "             \
  "(tensor<f32>) -> ()\n})"
#define CHANNEL ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"

/* ---- values -------------------------------------------------------------------------------------------------------- */

typedef float (*expectation)(uint32_t chip, uint32_t i); /* element i of the chip's result */

typedef struct value_case {
  const char *name;
  link_grid grid;
  const char *type, *result, *operation;
  uint32_t results;
  expectation expected;
} value_case;

static float pair_sum(uint32_t c, uint32_t i) { return (float)(100 * (c / 2 * 2) + i + 100 * (c / 2 * 2 + 1) + i); }
static float all_sum(uint32_t c, uint32_t i) { return (void)c, (float)(600 + 4 * i); }
static float all_sum_and_three(uint32_t c, uint32_t i) { return all_sum(c, i) + 3; }
static float even_odd_sum(uint32_t c, uint32_t i) { return (float)(100 * (c % 2) + 100 * (c % 2 + 2) + 2 * i); }
static float gathered(uint32_t c, uint32_t i) { return (void)c, (float)(100 * (i / 4) + i % 4); }
static float gathered_columns(uint32_t c, uint32_t i) { /* 2x2 of each pair, side by side; the pair is written [1, 0] */
  uint32_t row = i / 4, column = i % 4, from = c / 2 * 2 + (column < 2);
  return (float)(100 * from + row * 2 + column % 2);
}
static float scattered(uint32_t c, uint32_t i) { return (float)(600 + 4 * (c * 2 + i)); }
static float exchanged(uint32_t c, uint32_t i) {
  return (float)(100 * i + c);
} /* a transposition of chips and elements */
static float rotated(uint32_t c, uint32_t i) { return c == 0 ? 0 : (float)(100 * (c - 1) + i); }
static float flat_groups(uint32_t c, uint32_t i) { /* [[0, 3], [1, 2]] */
  static const uint32_t partner[4] = {3, 2, 1, 0};
  return (float)(100 * c + 100 * partner[c] + 2 * i);
}

static const value_case value_cases[] = {
    {"all_reduce, all replicas",
     {4, 1},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<> : tensor<0x0xi64>}",
     4,
     all_sum},
    {"all_reduce, pairs of replicas",
     {4, 1},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}",
     4,
     pair_sum},
    {"all_reduce, cross replica of 2 x 2",
     {2, 2},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}",
     4,
     even_odd_sum},
    {"all_reduce, replicas and partitions",
     {2, 2},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>" CHANNEL "}",
     4,
     pair_sum},
    {"all_reduce, flattened ids",
     {2, 2},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " SUM
     " {replica_groups = dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>, use_global_device_ids" CHANNEL "}",
     4,
     flat_groups},
    {"all_reduce, any region",
     {1, 4},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_reduce\"(%0) " ODD
     " {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids" CHANNEL "}",
     4,
     all_sum_and_three},
    {"all_gather",
     {4, 1},
     "4xf32",
     "16xf32",
     "\"stablehlo.all_gather\"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : "
     "tensor<1x4xi64>}",
     16,
     gathered},
    {"all_gather, columns",
     {1, 4},
     "2x2xf32",
     "2x4xf32",
     "\"stablehlo.all_gather\"(%0) {all_gather_dim = 1 : i64, replica_groups = dense<[[1, 0], [3, 2]]> : "
     "tensor<2x2xi64>, use_global_device_ids" CHANNEL "}",
     8,
     gathered_columns},
    {"reduce_scatter",
     {4, 1},
     "8xf32",
     "2xf32",
     "\"stablehlo.reduce_scatter\"(%0) " SUM
     " {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}",
     2,
     scattered},
    {"all_to_all, partitions",
     {1, 4},
     "4xf32",
     "4xf32",
     "\"stablehlo.all_to_all\"(%0) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, "
     "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>" CHANNEL "}",
     4,
     exchanged},
    {"collective_permute",
     {4, 1},
     "4xf32",
     "4xf32",
     "\"stablehlo.collective_permute\"(%0) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3]]> : tensor<3x2xi64>}",
     4,
     rotated},
};

TEST(values) {
  for (size_t k = 0; k < sizeof value_cases / sizeof value_cases[0]; ++k)
    for (int reference = 0; reference < 2; ++reference) {
      const value_case *v = &value_cases[k];
      fleet f;
      if (!fleet_open(&f, v->grid, reference, program_of(v->type, v->result, v->operation))) continue;
      for (int repeat = 0; repeat < 20; ++repeat) {
        fleet_run(&f, 0);
        for (uint32_t c = 0; c < chips_of(&f); ++c) {
          CHECK_EQ(f.status[c], TTPU_OK);
          for (uint32_t i = 0; i < v->results; ++i)
            if (f.out[c][i] != v->expected(c, i))
              check_fail(__FILE__, __LINE__, "%s: chip %u, element %u is %g, not %g", v->name, c, i, f.out[c][i],
                         v->expected(c, i));
        }
      }
      fleet_close(&f);
    }
}

TEST(numbers_of_the_chip) {
  fleet f;
  const char *text =
      "module {\n  func.func @main(%0: tensor<2xf32>) -> (tensor<2xf32>) {\n"
      "    %1 = \"stablehlo.replica_id\"() : () -> tensor<ui32>\n    %2 = \"stablehlo.partition_id\"() : () -> "
      "tensor<ui32>\n"
      "    %3 = \"stablehlo.reshape\"(%1) : (tensor<ui32>) -> tensor<1xui32>\n"
      "    %4 = \"stablehlo.reshape\"(%2) : (tensor<ui32>) -> tensor<1xui32>\n"
      "    %5 = \"stablehlo.concatenate\"(%3, %4) {dimension = 0 : i64} : (tensor<1xui32>, tensor<1xui32>) -> "
      "tensor<2xui32>\n    %6 = \"stablehlo.convert\"(%5) : (tensor<2xui32>) -> tensor<2xf32>\n"
      "    \"func.return\"(%6) : (tensor<2xf32>) -> ()\n  }\n}\n";
  if (!fleet_open(&f, (link_grid){3, 2}, false, text)) return;
  fleet_run(&f, 0);
  for (uint32_t c = 0; c < 6; ++c) {
    CHECK_EQ(f.out[c][0], (float)(c / 2));
    CHECK_EQ(f.out[c][1], (float)(c % 2));
  }
  fleet_close(&f);
}

/* Sums of floats of very different sizes: the same bits whoever comes last and however many threads compute. */
TEST(order_of_a_sum_is_the_groups) {
  fleet f;
  float first[MOST_NUMBERS];
  int threads = base_pool_size();
  if (!fleet_open(&f, (link_grid){8, 1}, false,
                  program_of("64xf32", "64xf32",
                             "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<> : tensor<0x0xi64>}")))
    return;
  for (uint32_t c = 0; c < 8; ++c)
    for (uint32_t i = 0; i < 64; ++i) f.in[c][i] = (float)pow(-7.3, (double)((c * 5 + i) % 17)) / 3;
  for (int repeat = 0; repeat < 50; ++repeat) {
    base_pool_resize(1 + repeat % 4);
    fleet_run(&f, 0);
    if (repeat == 0) memcpy(first, f.out[0], sizeof first);
    for (uint32_t c = 0; c < 8; ++c) CHECK(memcmp(first, f.out[c], sizeof first) == 0);
  }
  base_pool_resize(threads);
  fleet_close(&f);
}

/* 200 meetings of one operation in a loop: x <- rotate(x). */
static const char loop_text[] =
    "module {\n  func.func @main(%0: tensor<4xf32>) -> (tensor<4xf32>) {\n"
    "    %1 = \"stablehlo.constant\"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>\n"
    "    %2:2 = \"stablehlo.while\"(%1, %0) ({\n    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):\n"
    "      %n = \"stablehlo.constant\"() {value = dense<200> : tensor<i32>} : () -> tensor<i32>\n"
    "      %p = \"stablehlo.compare\"(%i, %n) {comparison_direction = #stablehlo<comparison_direction LT>} : "
    "(tensor<i32>, "
    "tensor<i32>) -> tensor<i1>\n      \"stablehlo.return\"(%p) : (tensor<i1>) -> ()\n    }, {\n"
    "    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):\n"
    "      %one = \"stablehlo.constant\"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>\n"
    "      %j = \"stablehlo.add\"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>\n"
    "      %y = \"stablehlo.collective_permute\"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : "
    "tensor<4x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>\n"
    "      \"stablehlo.return\"(%j, %y) : (tensor<i32>, tensor<4xf32>) -> ()\n"
    "    }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)\n"
    "    \"func.return\"(%2#1) : (tensor<4xf32>) -> ()\n  }\n}\n";

TEST(many_meetings_in_a_loop) {
  for (int reference = 0; reference < 2; ++reference) {
    fleet f;
    if (!fleet_open(&f, (link_grid){4, 1}, reference, loop_text)) return;
    for (int repeat = 0; repeat < 10; ++repeat) {
      fleet_run(&f, 0);
      for (uint32_t c = 0; c < 4; ++c) /* 200 is a multiple of 4 */
        for (uint32_t i = 0; i < 4; ++i) CHECK_EQ(f.out[c][i], (float)(100 * c + i));
    }
    fleet_close(&f);
  }
}

/* ---- failures ------------------------------------------------------------------------------------------------------ */

TEST(a_chip_that_never_comes_fails_the_others) {
  fleet f;
  if (!fleet_open(&f, (link_grid){4, 1}, false, loop_text)) return;
  for (uint32_t repeat = 0; repeat < 20; ++repeat) {
    uint32_t absent = repeat % 4;
    fleet_run(&f, 1u << absent);
    for (uint32_t c = 0; c < 4; ++c) {
      if (c == absent) continue;
      CHECK_EQ(f.status[c], TTPU_ABORTED);
      CHECK(strstr(f.message[c], "it was never built") != NULL);
    }
  }
  fleet_close(&f);
}

/* Chip 0 has no memory for its result; chips 2 and 3 are another group and see nothing of it. */
TEST(a_failure_stays_in_its_group) {
  fleet f;
  if (!fleet_open(&f, (link_grid){4, 1}, false,
                  program_of("4xf32", "4xf32",
                             "\"stablehlo.all_reduce\"(%0) " SUM
                             " {replica_groups = dense<[[0], [1], [2], [3]]> : tensor<4x1xi64>}")))
    return;
  fleet_run(&f, 1);
  for (uint32_t c = 1; c < 4; ++c) CHECK_EQ(f.status[c], TTPU_OK);
  fleet_close(&f);
}

/* Chips with x[0] > 50 enter the branch with the collective, the others end without. */
static const char branch_text[] =
    "module {\n  func.func @main(%0: tensor<4xf32>) -> (tensor<4xf32>) {\n"
    "    %1 = \"stablehlo.slice\"(%0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = "
    "array<i64: "
    "1>} : (tensor<4xf32>) -> tensor<1xf32>\n    %2 = \"stablehlo.reshape\"(%1) : (tensor<1xf32>) -> tensor<f32>\n"
    "    %3 = \"stablehlo.constant\"() {value = dense<50.0> : tensor<f32>} : () -> tensor<f32>\n"
    "    %4 = \"stablehlo.compare\"(%2, %3) {comparison_direction = #stablehlo<comparison_direction GT>} : "
    "(tensor<f32>, "
    "tensor<f32>) -> tensor<i1>\n    %5 = \"stablehlo.if\"(%4) ({\n"
    "      %6 = \"stablehlo.all_reduce\"(%0) " SUM
    " {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>\n"
    "      \"stablehlo.return\"(%6) : (tensor<4xf32>) -> ()\n    }, {\n"
    "      \"stablehlo.return\"(%0) : (tensor<4xf32>) -> ()\n    }) : (tensor<i1>) -> tensor<4xf32>\n"
    "    \"func.return\"(%5) : (tensor<4xf32>) -> ()\n  }\n}\n";

TEST(chips_that_part_do_not_wait_for_ever) {
  fleet f;
  if (!fleet_open(&f, (link_grid){2, 1}, false, branch_text)) return;
  for (int repeat = 0; repeat < 20; ++repeat) {
    fleet_run(&f, 0);
    CHECK_EQ(f.status[0], TTPU_OK);
    CHECK_EQ(f.status[1], TTPU_INTERNAL);
    CHECK(strstr(f.message[1], "different branches") != NULL);
  }
  fleet_close(&f);
}

static ttpu_status check_on(link_grid grid, const char *text) {
  base_arena arena;
  ir_func *f;
  base_arena_init(&arena);
  ttpu_status status = ir_parse(&arena, text, strlen(text), &f);
  if (status == TTPU_OK) status = link_check(f, grid);
  base_arena_free(&arena);
  return status;
}

TEST(groups_that_do_not_fit_the_grid) {
#define REDUCE(groups, type)   \
  program_of("4xf32", "4xf32", \
             "\"stablehlo.all_reduce\"(%0) " SUM " {replica_groups = dense<" groups "> : tensor<" type ">}")
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "id 1 is left out", check_on((link_grid){4, 1}, REDUCE("[[0, 4]]", "1x2xi64")));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "id 1 is named twice",
              check_on((link_grid){2, 1}, REDUCE("[[0, 1, 1]]", "1x3xi64")));
  CHECK_FAILS(TTPU_INVALID_ARGUMENT, "replica 2 is in no group",
              check_on((link_grid){3, 1}, REDUCE("[[0, 1]]", "1x2xi64")));
  CHECK_OK(check_on((link_grid){3, 1}, REDUCE("[[0, 1], [2, -1]]", "2x2xi64")));
#undef REDUCE
}

/* Last, since nothing meets any more afterwards. */
TEST(zz_the_end_of_the_process) {
  fleet f;
  if (!fleet_open(&f, (link_grid){4, 1}, false, loop_text)) return;
  link_end_all();
  fleet_run(&f, 0);
  for (uint32_t c = 0; c < 4; ++c) CHECK_EQ(f.status[c], TTPU_UNAVAILABLE);
  fleet_close(&f);
}
