/* Type promotion, against what torch.promote_types and torch.result_type say. */
#include "aten/aten.h"
#include "check.h"

static aten_tensor tensor(ttpu_dtype dtype, uint32_t rank, uint32_t flags) {
  static const int64_t sizes[4] = {2, 2, 2, 2}, strides[4] = {8, 4, 2, 1};
  return (aten_tensor){
      .dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .flags = (uint8_t)flags, .sizes = sizes, .strides = strides};
}

/* result_type of two tensors. */
static ttpu_dtype both(aten_tensor a, aten_tensor b) {
  aten_promotion p = {0};
  aten_promotion_add(&p, &a);
  aten_promotion_add(&p, &b);
  return aten_promotion_result(&p);
}

TEST(promotes_pairs_of_dtypes) {
  CHECK_EQ(aten_promote(TTPU_I8, TTPU_U8), TTPU_I16);
  CHECK_EQ(aten_promote(TTPU_U8, TTPU_I64), TTPU_I64);
  CHECK_EQ(aten_promote(TTPU_BOOL, TTPU_U8), TTPU_U8);
  CHECK_EQ(aten_promote(TTPU_I64, TTPU_F16), TTPU_F16);
  CHECK_EQ(aten_promote(TTPU_F16, TTPU_BF16), TTPU_F32);
  CHECK_EQ(aten_promote(TTPU_F64, TTPU_C64), TTPU_C128);
  CHECK_EQ(aten_promote(TTPU_F32, TTPU_C64), TTPU_C64);
  CHECK_EQ(aten_promote(TTPU_NO_DTYPE, TTPU_I8), TTPU_I8);
  CHECK_EQ(aten_promote(TTPU_C32, TTPU_I64), TTPU_C32);
  CHECK_EQ(aten_promote(TTPU_F16, TTPU_C32), TTPU_C32);
  CHECK_EQ(aten_promote(TTPU_C32, TTPU_BF16), TTPU_C64);
  CHECK_EQ(aten_promote(TTPU_C32, TTPU_F64), TTPU_C128);
}

TEST(promotion_commutes) {
  for (int a = 1; a < TTPU_TENSOR_DTYPE_COUNT; ++a)
    for (int b = 1; b < TTPU_TENSOR_DTYPE_COUNT; ++b) {
      if (base_dtype_is_rare((ttpu_dtype)a) || base_dtype_is_rare((ttpu_dtype)b)) continue;
      CHECK_EQ(aten_promote((ttpu_dtype)a, (ttpu_dtype)b), aten_promote((ttpu_dtype)b, (ttpu_dtype)a));
    }
}

TEST(dimensions_outrank_scalars_of_one_category) {
  CHECK_EQ(both(tensor(TTPU_F16, 2, 0), tensor(TTPU_F64, 0, 0)), TTPU_F16);
  CHECK_EQ(both(tensor(TTPU_I32, 2, 0), tensor(TTPU_F64, 0, 0)), TTPU_F64);
  CHECK_EQ(both(tensor(TTPU_F64, 0, 0), tensor(TTPU_F32, 0, 0)), TTPU_F64);
  CHECK_EQ(both(tensor(TTPU_I8, 1, 0), tensor(TTPU_I64, 0, 0)), TTPU_I8);
  CHECK_EQ(both(tensor(TTPU_F16, 1, 0), tensor(TTPU_C128, 0, 0)), TTPU_C32);
  CHECK_EQ(both(tensor(TTPU_BF16, 1, 0), tensor(TTPU_C32, 0, 0)), TTPU_C64);
  CHECK_EQ(both(tensor(TTPU_C32, 1, 0), tensor(TTPU_C128, 0, 0)), TTPU_C32);
}

TEST(wide_unsigned_types_go_with_floats_alone) {
  CHECK_EQ(both(tensor(TTPU_U16, 1, 0), tensor(TTPU_U16, 0, 0)), TTPU_U16);
  CHECK_EQ(both(tensor(TTPU_U32, 1, 0), tensor(TTPU_F16, 1, 0)), TTPU_F16);
  CHECK_EQ(both(tensor(TTPU_U16, 1, 0), tensor(TTPU_I8, 0, 0)), TTPU_U16); /* outranked, not promoted */
  CHECK_EQ(both(tensor(TTPU_U64, 1, 0), tensor(TTPU_I64, 1, 0)), TTPU_NO_DTYPE);
  CHECK_EQ(both(tensor(TTPU_BOOL, 1, 0), tensor(TTPU_U16, 1, 0)), TTPU_NO_DTYPE);
  CHECK_EQ(both(tensor(TTPU_BOOL, 1, 0), tensor(TTPU_U16, 0, 0)), TTPU_NO_DTYPE);
  CHECK_EQ(both(tensor(TTPU_U32, 1, 0), tensor(TTPU_C64, 1, 0)), TTPU_NO_DTYPE);
  CHECK_EQ(both(tensor(TTPU_U32, 1, 0), tensor(TTPU_C64, 0, 0)), TTPU_C64);
}

TEST(python_numbers_have_the_lowest_priority) {
  CHECK_EQ(both(tensor(TTPU_BF16, 1, 0), tensor(TTPU_F64, 0, ATEN_WRAPPED | ATEN_NUMBER)), TTPU_BF16);
  CHECK_EQ(both(tensor(TTPU_I64, 1, 0), tensor(TTPU_F64, 0, ATEN_WRAPPED | ATEN_NUMBER)),
           TTPU_F32); /* the default float */
  CHECK_EQ(both(tensor(TTPU_BOOL, 1, 0), tensor(TTPU_I64, 0, ATEN_WRAPPED | ATEN_NUMBER)), TTPU_I64);
  CHECK_EQ(both(tensor(TTPU_F64, 1, 0), tensor(TTPU_C128, 0, ATEN_WRAPPED | ATEN_NUMBER)), TTPU_C128);
  CHECK_EQ(both(tensor(TTPU_F16, 1, 0), tensor(TTPU_C128, 0, ATEN_WRAPPED | ATEN_NUMBER)), TTPU_C32);
  CHECK_EQ(both(tensor(TTPU_C32, 0, 0), tensor(TTPU_C128, 0, ATEN_WRAPPED | ATEN_NUMBER)), TTPU_C32);
  CHECK_EQ(both(tensor(TTPU_F32, 1, 0), tensor(TTPU_F32, 0, ATEN_UNDEFINED)), TTPU_F32);
}
