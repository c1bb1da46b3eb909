// The numbers in base/dtypes.def are PyTorch's c10::ScalarType: checked against the headers that the glue is built with.
#include <torch/headeronly/core/ScalarType.h>

namespace {
using Type = c10::ScalarType;
constexpr Type BOOL = Type::Bool, I8 = Type::Char, I16 = Type::Short, I32 = Type::Int, I64 = Type::Long,
               U8 = Type::Byte, U16 = Type::UInt16, U32 = Type::UInt32, U64 = Type::UInt64, F16 = Type::Half,
               F32 = Type::Float, F64 = Type::Double, BF16 = Type::BFloat16, C64 = Type::ComplexFloat,
               C128 = Type::ComplexDouble, F8E5M2 = Type::Float8_e5m2, F8E4M3FN = Type::Float8_e4m3fn,
               C32 = Type::ComplexHalf;
#define DTYPE(ENUM, torch, bytes, scalar_type, hlo, pjrt, cls) \
  static_assert(int(ENUM) == scalar_type, torch ": wrong c10::ScalarType in base/dtypes.def");
#define TENSOR_DTYPE(ENUM, torch, bytes, scalar_type, cls, stored, computed) \
  static_assert(int(ENUM) == scalar_type, torch ": wrong c10::ScalarType in base/dtypes.def");
#include "base/dtypes.def"
#undef DTYPE
} // namespace
