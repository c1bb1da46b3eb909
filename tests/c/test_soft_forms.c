/* Forms kept with a value: when they are made, when they go, and that a product with them has the same bits. */
#include "check.h"
#include "soft/forms.h"

static int made;
static bool refuse;
static ttpu_status make(void *context, void *data) {
  ++made;
  if (refuse) return base_fail(TTPU_INTERNAL, "refused");
  memcpy(data, context, 8);
  return TTPU_OK;
}

static const void *get(soft_block *b, uint64_t key, soft_form **form) {
  const void *data = NULL;
  static uint64_t content = 42;
  *form = soft_form_get(b, (base_hash128){key, 1}, 4096, make, &content, &data);
  return *form ? data : NULL;
}

static soft_hbm *hbm;
static soft_block *open_block(void) {
  soft_block *b = NULL;
  if (!hbm) CHECK_OK(soft_hbm_new((size_t)1 << 30, &hbm));
  CHECK_OK(soft_block_new(hbm, 4096, &b));
  made = 0, refuse = false;
  return b;
}

TEST(made_at_the_third_use) {
  soft_block *b = open_block();
  soft_form *form;
  CHECK(!get(b, 1, &form));
  CHECK(!get(b, 1, &form));
  CHECK(!get(b, 2, &form)); /* another key counts for itself */
  CHECK_EQ(made, 0);
  const void *data = get(b, 1, &form);
  REQUIRE(data);
  CHECK_EQ(*(const uint64_t *)data, 42);
  CHECK_EQ((uintptr_t)data % 64, 0);
  soft_form_put(form);
  CHECK(get(b, 1, &form) == data);
  soft_form_put(form);
  CHECK_EQ(made, 1);
  CHECK_EQ(soft_forms_bytes(), 4096);
  soft_block_free(b);
  CHECK_EQ(soft_forms_bytes(), 0);
}

static void use_three_times(soft_block *b, uint64_t key, soft_form **form) {
  for (int i = 0; i < 3; ++i) {
    bool there = get(b, key, form) != NULL;
    CHECK_EQ(there, i == 2);
  }
}

TEST(goes_with_the_value) {
  soft_block *b = open_block();
  soft_form *form, *again;
  use_three_times(b, 1, &form);
  soft_block_forget(b);
  CHECK(!get(b, 1, &again));          /* it starts anew */
  CHECK_EQ(soft_forms_bytes(), 4096); /* still held */
  soft_form_put(form);
  CHECK_EQ(soft_forms_bytes(), 0);
  CHECK(!get(b, 1, &again));
  REQUIRE(get(b, 1, &again));
  soft_forms_trim();
  soft_form_put(again);
  CHECK_EQ(soft_forms_bytes(), 0);
  soft_block_free(b);
}

TEST(few_for_each_block) {
  soft_block *b = open_block();
  soft_form *form;
  for (uint64_t key = 1; key <= 20; ++key) {
    use_three_times(b, key, &form);
    soft_form_put(form);
  }
  CHECK_EQ(made, 20);
  CHECK_EQ(soft_forms_bytes(), 8 * 4096);
  soft_block_free(b);
  CHECK_EQ(soft_forms_bytes(), 0);
}

TEST(failures_go_without) {
  soft_block *b = open_block();
  soft_form *form;
  refuse = true;
  get(b, 1, &form), get(b, 1, &form);
  CHECK(!get(b, 1, &form));
  CHECK_EQ(soft_forms_bytes(), 0);
  refuse = false;
  base_alloc_fail_after(1);
  CHECK(!get(b, 2, &form));
  base_alloc_fail_after(0);
  get(b, 2, &form), get(b, 2, &form);
  base_alloc_fail_after(1);
  CHECK(!get(b, 2, &form));
  base_alloc_fail_after(0);
  REQUIRE(get(b, 2, &form));
  soft_form_put(form);
  const void *data;
  for (int i = 0; i < 4; ++i) /* more than all forms may take */
    CHECK(!soft_form_get(b, (base_hash128){9, 9}, SIZE_MAX / 2, make, NULL, &data));
  soft_block_free(b);
}

/* y = x w in a program whose w is a parameter, donated or not. */
typedef struct product {
  soft_executable *e;
  soft_block *x, *w;
} product;

enum { M = 40, N = 96, K = 200 };

static product open_product(bool transposed) {
  product p = {.x = NULL};
  base_arena *arena = base_alloc(sizeof *arena);
  base_arena_init(arena);
  ir_func *f = ir_func_new(arena, "main");
  ir_builder b = ir_builder_on(f);
  ir_value x = ir_param(&b, ir_tensor(&b, TTPU_F32, 2, (int64_t[]){M, K}));
  ir_value w = ir_param(&b, ir_tensor(&b, TTPU_F32, 2, transposed ? (int64_t[]){N, K} : (int64_t[]){K, N}));
  int64_t last = 1, inner = transposed;
  ir_dot_general_attrs attrs = {.lhs_contracting_dimensions = {&last, 1},
                                .rhs_contracting_dimensions = {&inner, 1},
                                .precision = IR_PRECISION_HIGHEST};
  ir_value y = ir_dot_general(&b, x, w, &attrs, TTPU_F32);
  ir_return(&b, 1, &y);
  CHECK_EQ(b.status, TTPU_OK);
  CHECK_OK(soft_compile(arena, f, NULL, &p.e));
  if (!hbm) CHECK_OK(soft_hbm_new((size_t)1 << 30, &hbm));
  CHECK_OK(soft_block_new(hbm, M * K * 4, &p.x));
  CHECK_OK(soft_block_new(hbm, N * K * 4, &p.w));
  for (int i = 0; i < M * K; ++i) ((float *)p.x->data)[i] = (float)sin(i);
  for (int i = 0; i < N * K; ++i) ((float *)p.w->data)[i] = (float)cos(i);
  return p;
}

static void close_product(product *p) {
  soft_executable_free(p->e);
  soft_block_free(p->x);
  soft_block_free(p->w);
}

static void run_product(product *p, float *out) {
  soft_block *result = NULL;
  CHECK_OK(soft_execute(p->e, hbm, (soft_block *[]){p->x, p->w}, NULL, &result, NULL));
  memcpy(out, result->data, M * N * sizeof *out);
  soft_block_free(result);
}

TEST(products_keep_their_bits) {
  static float first[M * N], later[M * N];
  for (int transposed = 0; transposed < 2; ++transposed) {
    product p = open_product(transposed);
    run_product(&p, first);
    CHECK_EQ(soft_forms_bytes(), 0);
    for (int i = 0; i < 4; ++i) {
      run_product(&p, later);
      CHECK_EQ(memcmp(first, later, sizeof first), 0);
    }
    CHECK(soft_forms_bytes() >= N * K * 4);
    /* Another value in the same block, after it was given away. */
    soft_block_forget(p.w);
    for (int i = 0; i < N * K; ++i) ((float *)p.w->data)[i] *= 2;
    run_product(&p, later);
    for (int i = 0; i < M * N; ++i) CHECK_NEAR(later[i], 2 * first[i], 0);
    close_product(&p);
    CHECK_EQ(soft_forms_bytes(), 0);
  }
}

TEST(nothing_is_left_in_use) {
  CHECK_EQ(soft_hbm_get_stats(hbm).in_use, 0);
  soft_hbm_free(hbm);
}
