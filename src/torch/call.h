// What the boxed and the unboxed form of an operator's call share: its arguments, its results, and recording it.
#pragma once

#include "torch/glue.h"

#include <c10/util/FunctionRef.h>
#include <torch/library.h>

namespace ttpu {

// A call's arguments as an aten_call, pushed in the schema's order. Keeps pointers to the tensors it is given.
struct Packed {
  explicit Packed(const Operator &op_);

  void none() { push(ATEN_NONE, 0, 0); }
  void other() { push(ATEN_OTHER, 0, 0); }
  void tensor(const at::Tensor &t);
  template <class Tensors>
  void tensor_list(const Tensors &list) { // of at::Tensor
    size_t first = tensors.size();
    for (const at::Tensor &t : list) add_tensor(t);
    push(ATEN_TENSORS, first, tensors.size() - first);
  }
  void tensor_ivalues(c10::ArrayRef<c10::IValue> list); // of tensors and None
  void integer(int64_t v);
  void integers(c10::ArrayRef<int64_t> list);
  void number(ArgKind kind, const aten_number &n);
  bool is_one(const aten_number &n) const;
  void text(std::string_view v);
  void device_argument(c10::Device d);
  void push(aten_kind kind, size_t first, size_t count) {
    args.push_back(aten_arg{static_cast<uint8_t>(kind), 0, static_cast<uint16_t>(count), static_cast<uint32_t>(first)});
  }
  aten_call view() const;

  const Operator &op;
  c10::SmallVector<aten_arg, 12> args;
  c10::SmallVector<aten_tensor, 8> tensors;
  c10::SmallVector<rt_storage *, 8> storages;
  c10::SmallVector<const at::Tensor *, 8> originals;
  c10::SmallVector<int64_t, 16> ints;
  c10::SmallVector<aten_number, 4> numbers;
  c10::SmallVector<const char *, 2> texts;
  c10::SmallVector<std::string, 1> text_owners;
  std::optional<at::Generator> generator;
  c10::DeviceIndex device = -1;
  bool is_special = false; // a tensor whose conjugate or negative bit is set, or of more than TTPU_MAX_RANK dimensions

 private:
  void add_tensor(const at::Tensor &t);
};

aten_number number_of(const at::Scalar &v);

// Results' metadata: usually a few, kept on the stack and not cleared.
class Shapes {
 public:
  Shapes() {}
  static constexpr uint32_t kSmall = 16;
  uint32_t count = 0;
  aten_shape *data() { return count <= kSmall ? small_ : large_.data(); }
  aten_shape &operator[](size_t i) { return data()[i]; }
  void clear() { count = 0; }
  void push(const aten_shape &s) {
    if (count == kSmall) large_.assign(small_, small_ + kSmall);
    if (count >= kSmall) large_.push_back(s);
    else small_[count] = s;
    ++count;
  }
  aten_shape *expect(uint32_t n) { // room for n results, zeroed
    count = n;
    if (n > kSmall) large_.assign(n, aten_shape{});
    else std::fill(small_, small_ + n, aten_shape{});
    return data();
  }
  aten_shape *room() { return small_; }

 private:
  union {
    aten_shape small_[kSmall];
  };
  std::vector<aten_shape> large_;
};

struct Results {
  Shapes shapes;
  c10::SmallVector<rt_tensor, 4> tensors;
  c10::SmallVector<at::Tensor, 4> owned; // in order, as the schema's returns
};

// The call's arguments as IValues, made only when PyTorch itself has to be asked.
using Box = c10::function_ref<torch::jit::Stack()>;

// metadata.cpp: the results' metadata from the cache, the row's shape function, or PyTorch's Meta kernel, which raises
// PyTorch's errors. Returns the cache's key.
base_hash128 find_shapes(const Packed &p, const aten_call &call, Box box, Shapes &shapes);
// register.cpp: ATen's operator of a name such as a row's, "add.Tensor"; none in a PyTorch that lacks it.
std::optional<c10::OperatorHandle> find_operator(const std::string &name);
// metadata.cpp: v with f(t) in the place of each tensor t, and `device` in that of a device.
c10::IValue map_tensors(const c10::IValue &v, std::optional<c10::Device> device,
                        c10::function_ref<at::Tensor(const at::Tensor &)> f);
// deep.cpp: the call on views of its tensors that have fewer dimensions; raises where there are none.
void call_deep(const Operator &op, torch::jit::Stack *stack);
// call.cpp: makes the results and records the call.
void record(Packed &p, Box box, Results &r);
// unboxed.cpp: a kernel of the operator's C++ signature, without IValues; none for rare signatures.
std::optional<torch::CppFunction> unboxed_kernel(const Operator &op);

} // namespace ttpu
