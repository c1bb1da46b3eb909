// Rows of aten.def to dispatcher kernels, with their in-place and out variants; the fallback; what runs on the
// host by design.
#include "torch/call.h"

#include <ATen/native/CPUFallback.h>
#include <ATen/native/IndexingUtils.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

namespace ttpu {

namespace {

struct Functor final : c10::OperatorKernel {
  explicit Functor(const Operator *op) : op_(op) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) { call(*op_, stack); }
  const Operator *op_;
};

// An index argument that is a mask becomes the positions of its true elements; CPU indices move to the device. TorchScript
// hands out a list of another type than eager mode does: what comes back is always one of optional tensors.
c10::IValue expand_indices(const at::Tensor &self, const c10::IValue &indices) {
  c10::List<std::optional<at::Tensor>> given;
  bool masks = false, moves = false;
  for (const c10::IValue &index : indices.toListRef()) {
    if (index.isNone() || !index.toTensor().defined()) {
      given.push_back(std::nullopt);
      continue;
    }
    at::Tensor t = index.toTensor();
    masks = masks || t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
    if (t.device() != self.device()) {
      TORCH_CHECK(t.device().is_cpu(), "indices should be either on cpu or on the same device as the indexed tensor (",
                  self.device(), ")");
      t = t.to(self.device());
      moves = true;
    }
    given.push_back(t);
  }
  if (!masks && !moves && indices.isOptionalTensorList()) return indices;
  if (!masks) return given;
  c10::List<std::optional<at::Tensor>> expanded;
  for (at::Tensor &t : at::native::expandTensors(self, given))
    expanded.push_back(t.defined() ? std::optional<at::Tensor>(t) : std::nullopt);
  return expanded;
}

struct IndexFunctor final : c10::OperatorKernel {
  explicit IndexFunctor(const Operator *op) : op_(op) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    size_t base = stack->size() - op_->kinds.size();
    (*stack)[base + 1] = expand_indices((*stack)[base].toTensor(), (*stack)[base + 1]);
    call(*op_, stack);
  }
  const Operator *op_;
};

// repeat_interleave without output_size: the sum of the repeats, which only the device knows, is read.
struct RepeatFunctor final : c10::OperatorKernel {
  explicit RepeatFunctor(const Operator *op) : op_(op) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    size_t base = stack->size() - op_->kinds.size();
    at::Tensor repeats = (*stack)[base].toTensor();
    TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
    TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
                "repeats has to be Long or Int tensor");
    if ((*stack)[base + 1].isNone()) {
      at::Tensor host = repeats.cpu();
      TORCH_CHECK(host.numel() == 0 || host.min().item<int64_t>() >= 0, "repeats can not be negative");
      (*stack)[base + 1] = host.sum().item<int64_t>();
    }
    call(*op_, stack);
  }
  const Operator *op_;
};

std::vector<std::unique_ptr<Operator>> operators;
std::unordered_map<std::string, const Operator *> by_name;

bool takes_indices(const c10::OperatorHandle &handle) {
  const auto &args = handle.schema().arguments();
  return args.size() > 1 && args[1].name() == "indices" && args[1].real_type()->kind() == c10::TypeKind::ListType &&
         args[0].real_type()->kind() == c10::TypeKind::TensorType;
}

// Does PyTorch compose the operator for whatever device its argument names? Then it must stay PyTorch's: that device
// need not be ours (zeros_like(x, device="cpu")).
bool chooses_device(const c10::OperatorHandle &handle) {
  if (!handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) return false;
  for (const c10::Argument &arg : handle.schema().arguments()) {
    c10::TypePtr type = arg.type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::DeviceObjType) return true;
  }
  return false;
}

void register_variant(torch::Library &library, const aten_row *row, const c10::OperatorHandle &handle) {
  if (chooses_device(handle)) return;
  auto op = std::make_unique<Operator>(row, handle);
  if (by_name.count(op->name) > 0) return;
  const Operator *kept = op.get();
  by_name[op->name] = kept;
  operators.push_back(std::move(op));
  if (kept->name == "copy_") return; // tensor.cpp's copy_ records it
  std::string name = "aten::" + kept->name;
  if (kept->name == "repeat_interleave.Tensor") {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RepeatFunctor>(kept)));
  } else if (takes_indices(handle)) {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<IndexFunctor>(kept)));
  } else if (std::optional<torch::CppFunction> unboxed = unboxed_kernel(*kept)) {
    library.impl(name.c_str(), std::move(*unboxed));
  } else {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Functor>(kept)));
  }
}

bool same_type(const c10::Argument &a, const c10::Argument &b) { return *a.real_type() == *b.real_type(); }

// Is `variant` the in-place or out form of `base`: the same arguments, then nothing or only outputs?
bool is_form_of(const c10::FunctionSchema &base, const c10::FunctionSchema &variant, bool in_place) {
  const auto &a = base.arguments(), &b = variant.arguments();
  if (in_place ? a.size() != b.size() : a.size() >= b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_type(a[i], b[i]) || (!in_place && b[i].is_out())) return false;
  if (in_place) return !b.empty() && b[0].alias_info() != nullptr && b[0].alias_info()->isWrite();
  for (size_t i = a.size(); i < b.size(); ++i)
    if (!b[i].is_out()) return false;
  return true;
}

using Overloads = std::unordered_map<std::string, std::vector<c10::OperatorName>>;

void register_row(torch::Library &library, const aten_row *row, const Overloads &overloads) {
  auto base = find_operator(row->name);
  if (!base.has_value()) return; // another PyTorch version's operator
  // What PyTorch composes, with its gradient, stays PyTorch's; but that says nothing of its other forms.
  if (!base->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    register_variant(library, row, *base);
  for (bool in_place : {true, false}) {
    auto found = overloads.find(base->schema().name() + (in_place ? "_" : ""));
    if (found == overloads.end()) continue;
    for (const c10::OperatorName &candidate : found->second) {
      auto handle = c10::Dispatcher::singleton().findSchema(candidate);
      if (!handle.has_value() || handle->operator_name() == base->operator_name()) continue;
      if (handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
      if (is_form_of(base->schema(), handle->schema(), in_place)) register_variant(library, row, *handle);
    }
  }
}

// ---- lengths ----

// Forms of operators with lists of lengths that take them as tensors. The lengths decide sizes of results: they are read,
// and the form with lists is called.
constexpr const char *lengths_operators[] = {"_ctc_loss", "_ctc_loss_backward"};

void call_with_lists(const c10::OperatorHandle &handle, torch::jit::Stack *stack) {
  const auto &args = handle.schema().arguments();
  size_t base = stack->size() - args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name() != "input_lengths" && args[i].name() != "target_lengths") continue;
    at::Tensor given = (*stack)[base + i].toTensor();
    TORCH_CHECK(at::isIntegralType(given.scalar_type(), /*includeBool=*/false), args[i].name(), " must be integral");
    at::Tensor host = given.to(at::kCPU, at::kLong).contiguous();
    const int64_t *data = host.const_data_ptr<int64_t>();
    (*stack)[base + i] = std::vector<int64_t>(data, data + host.numel());
  }
  const std::string &name = handle.schema().name();
  call(*by_name.at(name.substr(name.find("::") + 2)), stack);
}

void register_lengths(torch::Library &library, const char *name) {
  std::string full = std::string("aten::") + name;
  if (by_name.count(name) == 0 || !c10::Dispatcher::singleton().findSchema({full, "Tensor"}).has_value()) return;
  library.impl((full + ".Tensor").c_str(), torch::CppFunction::makeFromBoxedFunction<&call_with_lists>());
}

// ---- fallback ----

// Calls that ran on the CPU, by operator.
class Counts {
 public:
  void add(const std::string &name) {
    std::lock_guard<std::mutex> guard(lock_);
    ++counts_[name];
  }
  NamedCounts all() {
    std::lock_guard<std::mutex> guard(lock_);
    return {counts_.begin(), counts_.end()};
  }
  void reset() {
    std::lock_guard<std::mutex> guard(lock_);
    counts_.clear();
  }

 private:
  std::mutex lock_;
  std::map<std::string, uint64_t> counts_;
};

std::atomic<bool> fallback_is_allowed{false};
Counts fallbacks, host_calls;

std::string full_name(const c10::OperatorHandle &op) {
  const c10::FunctionSchema &schema = op.schema();
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  std::string name = full_name(op);
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_is_allowed, "The operator '", name, "' is not implemented for the tpu device. ",
      "torch.tpu.allow_fallback(True) runs such operators on the CPU (slowly, and counted in torch.tpu.counters()).");
  fallbacks.add(name);
  at::native::cpu_fallback(op, stack);
}

// ---- factorisations ----

// Long chains of small dependent steps, which LAPACK on the host does well and no lowering does: these copy their operands
// to the CPU and the results back, always. Cholesky and triangular systems are StableHLO's and have rows.
constexpr const char *host_operators[] = {
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_eigvals",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "geqrf",
    "linalg_eig",
    "linalg_eigvals",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_matrix_exp",
    "linalg_qr",
    "lu_unpack",
    "ormqr",
};

std::vector<std::string> host_names; // those registered

// Operands and out= arguments are to be on tpu: the CPU fallback itself takes either.
void check_devices(const c10::OperatorHandle &op, const torch::jit::Stack &stack) {
  const auto &args = op.schema().arguments();
  size_t base = stack.size() - args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    if (!stack[base + i].isTensor() || !stack[base + i].toTensor().defined()) continue;
    c10::Device device = stack[base + i].toTensor().device();
    TORCH_CHECK(device.type() == kTpu, full_name(op), ": Expected all tensors to be on the same device, but ",
                args[i].name(), " is on ", device, " and others are on tpu");
  }
}

// Kernels and their gradient formulas agree by is_contiguous() on whether a matrix or its transpose was factorised. A
// copy on the host is contiguous where the matrix has gaps, so such a matrix goes there column by column.
void keep_order(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &args = op.schema().arguments();
  size_t base = stack->size() - args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    c10::IValue &v = (*stack)[base + i];
    bool is_written = args[i].alias_info() != nullptr && args[i].alias_info()->isWrite();
    if (is_written || !v.isTensor() || !v.toTensor().defined() || v.toTensor().dim() < 2) continue;
    const at::Tensor &t = v.toTensor();
    if (!t.is_contiguous() && !t.is_non_overlapping_and_dense()) v = t.mT().contiguous().mT();
  }
}

void call_host(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  check_devices(op, *stack);
  keep_order(op, stack);
  host_calls.add(full_name(op));
  at::native::cpu_fallback(op, stack);
}

void register_host(torch::Library &library, const char *name, const Overloads &overloads) {
  auto found = overloads.find(std::string("aten::") + name);
  if (found == overloads.end()) return; // another PyTorch version's operator
  for (const c10::OperatorName &overload : found->second) {
    auto handle = c10::Dispatcher::singleton().findSchema(overload);
    if (!handle.has_value() || handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    std::string full = full_name(*handle);
    if (by_name.count(full.substr(full.find("::") + 2)) > 0) continue; // it has a row
    host_names.push_back(full.substr(full.find("::") + 2));
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&call_host>());
  }
}

} // namespace

std::optional<c10::OperatorHandle> find_operator(const std::string &name) {
  size_t dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload});
}

void allow_fallback(bool allow) { fallback_is_allowed = allow; }
bool fallback_allowed() { return fallback_is_allowed; }

NamedCounts fallback_counts() { return fallbacks.all(); }
NamedCounts host_counts() { return host_calls.all(); }

void reset_counts() {
  fallbacks.reset();
  host_calls.reset();
}

std::vector<std::string> registered_names() {
  std::vector<std::string> names;
  for (const auto &op : operators) names.push_back(op->name);
  return names;
}

std::vector<std::string> host_operator_names() { return host_names; }

const Operator &copy_operator() {
  static const Operator *op = by_name.at("copy_");
  return *op;
}

void register_operators() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static torch::Library everything(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  Overloads overloads;
  for (const c10::OperatorName &name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.rfind("aten::", 0) == 0) overloads[name.name].push_back(name);
  for (uint32_t i = 0; i < aten_row_count; ++i) register_row(library, &aten_rows[i], overloads);
  for (const char *name : lengths_operators) register_lengths(library, name);
  for (const char *name : host_operators) register_host(library, name, overloads);
  everything.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

} // namespace ttpu
