// Kernels of an operator's own C++ signature. The dispatcher calls them without putting the arguments into IValues, which
// saves a call its two allocations. One template serves every operator of a signature; the signatures of the operators
// that occur in loops stand in `forms`, and whatever has another one keeps the boxed kernel.
#include "torch/call.h"

namespace ttpu {

namespace {

// ---- arguments: a letter for each C++ type, and how it is pushed ----

using Tensor = const at::Tensor &;
using Written = at::Tensor &; // an in-place or out= argument
using Maybe = const std::optional<at::Tensor> &;
using Tensors = at::TensorList;
using StructuredTensors = const at::ITensorListRef &; // as the operators of PyTorch's structured kernels take them
using Scalar = const at::Scalar &;
using MaybeScalar = const std::optional<at::Scalar> &;
using Ints = at::IntArrayRef;
using MaybeInts = at::OptionalIntArrayRef;
using MaybeDtype = std::optional<at::ScalarType>;
using Text = std::string_view;

template <class T>
constexpr char letter = 0;
template <>
constexpr char letter<Tensor> = 't';
template <>
constexpr char letter<Written> = 'w';
template <>
constexpr char letter<Maybe> = 'T';
template <>
constexpr char letter<Tensors> = 'l';
template <>
constexpr char letter<StructuredTensors> = 'l';
template <>
constexpr char letter<Scalar> = 's';
template <>
constexpr char letter<MaybeScalar> = 'S';
template <>
constexpr char letter<Ints> = 'n';
template <>
constexpr char letter<MaybeInts> = 'N';
template <>
constexpr char letter<int64_t> = 'i';
template <>
constexpr char letter<bool> = 'b';
template <>
constexpr char letter<double> = 'f';
template <>
constexpr char letter<at::ScalarType> = 'd';
template <>
constexpr char letter<MaybeDtype> = 'D';
template <>
constexpr char letter<Text> = 'x';

void push(Packed &p, const at::Tensor &t) { p.tensor(t); }
void push(Packed &p, const std::optional<at::Tensor> &t) { t.has_value() ? p.tensor(*t) : p.none(); }
void push(Packed &p, at::TensorList list) { p.tensor_list(list); }
void push(Packed &p, const at::ITensorListRef &list) { p.tensor_list(list); }
void push(Packed &p, const at::Scalar &v) { p.number(ArgKind::Scalar, number_of(v)); }
void push(Packed &p, const std::optional<at::Scalar> &v) { v.has_value() ? push(p, *v) : p.none(); }
void push(Packed &p, at::IntArrayRef list) { p.integers(list); }
void push(Packed &p, const at::OptionalIntArrayRef &list) { list.has_value() ? p.integers(*list) : p.none(); }
void push(Packed &p, int64_t v) { p.integer(v); }
void push(Packed &p, bool v) { p.integer(v); }
void push(Packed &p, double v) { p.number(ArgKind::Float, number_of(v)); }
void push(Packed &p, at::ScalarType v) { p.integer(dtype_of(v)); }
void push(Packed &p, std::optional<at::ScalarType> v) { v.has_value() ? push(p, *v) : p.none(); }
void push(Packed &p, std::string_view v) { p.text(v); }

// The same letter for an argument of a schema; 0 for a type that has none.
char letter_of(const c10::Argument &argument, ArgKind kind) {
  bool optional = argument.real_type()->kind() == c10::TypeKind::OptionalType;
  bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  if (written && (kind != ArgKind::Tensor || optional)) return 0;
  switch (kind) {
    case ArgKind::Tensor: return written ? 'w' : optional ? 'T' : 't';
    case ArgKind::TensorList: return argument.type()->isSubtypeOf(*c10::ListType::ofTensors()) ? 'l' : 0;
    case ArgKind::Scalar: return optional ? 'S' : 's';
    case ArgKind::IntList: return optional ? 'N' : 'n';
    case ArgKind::Int: return !optional && argument.real_type()->kind() != c10::TypeKind::MemoryFormatType ? 'i' : 0;
    case ArgKind::Bool: return optional ? 0 : 'b';
    case ArgKind::Float: return optional ? 0 : 'f';
    case ArgKind::Dtype: return optional ? 'D' : 'd';
    case ArgKind::Text: return optional ? 0 : 'x';
    default: return 0;
  }
}

// Letters of the arguments, ">", a "t" for each new tensor; "" where something has no letter.
std::string signature_of(const Operator &op) {
  std::string signature;
  const auto &arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    char c = letter_of(arguments[i], op.kinds[i]);
    if (c == 0) return "";
    signature += c;
  }
  signature += '>';
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (op.return_is_list[i] || op.return_is_int[i]) return "";
    if (op.return_alias[i] >= 0 && op.return_alias.size() > 1) return "";
    if (op.return_alias[i] < 0) signature += 't';
  }
  return signature;
}

// ---- results ----

// What a kernel returns: one new tensor, several, or the argument that was written.
template <class Return>
struct Returned {
  static Return of(c10::SmallVectorImpl<at::Tensor> &results) {
    return tuple(results, std::make_index_sequence<std::tuple_size_v<Return>>());
  }
  template <size_t... i>
  static Return tuple(c10::SmallVectorImpl<at::Tensor> &results, std::index_sequence<i...>) {
    return Return(std::move(results[i])...);
  }
};
template <>
struct Returned<at::Tensor> {
  static at::Tensor of(c10::SmallVectorImpl<at::Tensor> &results) { return std::move(results[0]); }
};

template <class... Args>
at::Tensor &written_of(Args &...args) {
  at::Tensor *written = nullptr;
  (
      [&] {
        if constexpr (std::is_same_v<Args, at::Tensor>) written = &args;
      }(),
      ...);
  return *written;
}

template <class Return, class... Args>
struct Kernel {
  const Operator *op;
  Return operator()(Args... args) const {
    initialize();
    Packed p(*op);
    (push(p, args), ...);
    auto box = [&] { return c10::impl::boxArgs<Args...>(args...); };
    Results r;
    if (p.is_special) {
      torch::jit::Stack stack = box();
      call(*op, &stack);
      for (const c10::IValue &v : stack) r.owned.push_back(v.toTensor());
    } else {
      record(p, box, r);
    }
    if constexpr (std::is_same_v<Return, at::Tensor &>) return written_of(args...);
    else return Returned<Return>::of(r.owned);
  }
};

// ---- signatures ----

struct Form {
  std::string signature;
  bool (*fits)(const Operator &op); // is it the C++ signature of PyTorch's own kernels too?
  torch::CppFunction (*make)(const Operator &op);
};

template <class Return, class... Args>
bool fits(const Operator &op) {
  try {
    op.handle.typed<Return(Args...)>();
    return true;
  } catch (const c10::Error &) {
    return false;
  }
}

template <class Return>
constexpr const char *returned_letters = "tttt";
template <>
constexpr const char *returned_letters<at::Tensor> = "t";
template <>
constexpr const char *returned_letters<at::Tensor &> = "";
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
template <>
constexpr const char *returned_letters<Two> = "tt";
template <>
constexpr const char *returned_letters<Three> = "ttt";

template <class Return, class... Args>
Form form() {
  return {std::string{letter<Args>..., '>'} + returned_letters<Return>, &fits<Return, Args...>,
          [](const Operator &op) { return torch::CppFunction(Kernel<Return, Args...>{&op}); }};
}

const std::vector<Form> &forms() {
  static const std::vector<Form> all = {
      form<at::Tensor, Tensor>(),                                  // neg, rsqrt, silu, ...
      form<at::Tensor &, Written>(),                               // relu_, zero_
      form<at::Tensor &, Tensor, Written>(),                       // exp.out
      form<at::Tensor, Tensor, Tensor>(),                          // mul.Tensor, mm, bmm, silu_backward
      form<at::Tensor &, Written, Tensor>(),                       // mul_.Tensor
      form<at::Tensor &, Tensor, Tensor, Written>(),               // mul.out, mm.out
      form<at::Tensor, Tensor, Tensor, Scalar>(),                  // add.Tensor, threshold_backward
      form<at::Tensor &, Written, Tensor, Scalar>(),               // add_.Tensor, lerp_.Scalar
      form<at::Tensor &, Tensor, Tensor, Scalar, Written>(),       // add.out
      form<at::Tensor, Tensor, Scalar>(),                          // pow.Tensor_Scalar, lt.Scalar
      form<at::Tensor &, Written, Scalar>(),                       // fill_.Scalar, mul_.Scalar
      form<at::Tensor, Tensor, Scalar, Scalar>(),                  // add.Scalar, hardtanh
      form<at::Tensor, Scalar, Tensor>(),                          // pow.Scalar
      form<at::Tensor, Tensor, MaybeScalar, MaybeScalar>(),        // clamp
      form<at::Tensor, Tensor, Tensor, Tensor>(),                  // where.self
      form<at::Tensor, Tensor, Tensor, Tensor, Scalar>(),          // addcmul, addcdiv
      form<at::Tensor &, Written, Tensor, Tensor, Scalar>(),       // addcmul_, addcdiv_
      form<at::Tensor, Tensor, Tensor, Tensor, Scalar, Scalar>(),  // addmm, baddbmm
      form<at::Tensor, Tensor, Text>(),                            // gelu
      form<at::Tensor, Tensor, Tensor, Text>(),                    // gelu_backward
      form<at::Tensor, Tensor, MaybeDtype>(),                      // sum
      form<at::Tensor, Tensor, MaybeInts, bool, MaybeDtype>(),     // sum.dim_IntList, mean.dim
      form<at::Tensor, Tensor, Ints, bool>(),                      // amax, amin
      form<at::Tensor, Tensor, int64_t, bool>(),                   // _softmax, _log_softmax
      form<at::Tensor, Tensor, Tensor, int64_t, at::ScalarType>(), // _softmax_backward_data
      form<Two, Tensor, int64_t, bool>(),                          // max.dim
      form<at::Tensor, Tensors, int64_t>(),                        // stack
      form<at::Tensor, StructuredTensors, int64_t>(),              // cat
      form<at::Tensor, Tensor, int64_t, Tensor>(),                 // index_select
      form<at::Tensor, Tensor, int64_t, Tensor, bool>(),           // gather
      form<at::Tensor, Tensor, Tensor, int64_t, bool, bool>(),     // embedding
      form<Three, Tensor, Ints, Maybe, Maybe, double>(),           // native_layer_norm
  };
  return all;
}

} // namespace

std::optional<torch::CppFunction> unboxed_kernel(const Operator &op) {
  std::string signature = signature_of(op);
  for (const Form &f : forms())
    if (f.signature == signature && f.fits(op)) return f.make(op);
  return std::nullopt;
}

} // namespace ttpu
