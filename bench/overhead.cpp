// A PrivateUse1 kernel that does nothing, to be put in the place of any operator's own while overhead.py measures it:
// what it costs is PyTorch's part of a call, from Python through the dispatcher and back.
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include <memory>
#include <string>

namespace {

at::Tensor first_tensor(const torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor()) return stack[i].toTensor();
    if (stack[i].isTensorList()) return stack[i].toTensorList().get(0);
  }
  TORCH_CHECK(false, "an operator without tensors");
}

// Gives the first tensor among the arguments as every result.
void nothing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size();
  at::Tensor first = first_tensor(*stack, count);
  torch::jit::drop(*stack, count);
  for (size_t i = 0; i < op.schema().returns().size(); ++i) torch::jit::push(*stack, first);
}

at::Tensor nothing_binary(const at::Tensor& a, const at::Tensor&) { return a; }

struct Nowhere final : c10::Allocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, c10::Device(c10::DeviceType::PrivateUse1, 0)}; }
  void copy_data(void*, const void*, size_t) const override {}
};

// Gives a new tensor of the first one's sizes that has no memory: what every kernel with a result has to do.
at::Tensor fresh_binary(const at::Tensor& a, const at::Tensor&) {
  static Nowhere nowhere;
  return at::detail::empty_generic(a.sizes(), &nowhere, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   a.scalar_type(), std::nullopt);
}

std::unique_ptr<torch::Library> replaced;

void replace(const std::string& name, const std::string& by) {
  replaced = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  if (by == "unboxed") replaced->impl(name.c_str(), nothing_binary);
  else if (by == "fresh") replaced->impl(name.c_str(), fresh_binary);
  else replaced->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&nothing>());
}

void restore() { replaced.reset(); }

}  // namespace

TORCH_LIBRARY(ttpu_bench, m) {
  m.def("replace(str name, str by) -> ()", &replace);
  m.def("restore() -> ()", &restore);
}
