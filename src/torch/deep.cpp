// Tensors of more dimensions than a program's may have (TTPU_MAX_RANK), as operands of operators that treat all elements
// alike: neighbouring dimensions that lie alike in every operand become one.
#include <ATen/ExpandUtils.h>

#include "torch/call.h"

namespace ttpu {

namespace {

using Sizes = std::vector<int64_t>;

// Pointwise operators, and those that fill what they write without asking where an element is.
bool treats_elements_alike(const Operator &op) {
  if (op.handle.hasTag(at::Tag::pointwise) || op.handle.hasTag(at::Tag::nondeterministic_seeded)) return true;
  bool writes_first = op.return_alias.size() == 1 && op.return_alias[0] == 0;
  auto numbers_dimensions = [](ArgKind kind) { return kind == ArgKind::Int || kind == ArgKind::IntList; };
  return writes_first && std::none_of(op.kinds.begin(), op.kinds.end(), numbers_dimensions);
}

// The sizes that all operands broadcast to. A tensor that is written is never broadcast.
Sizes broadcast_sizes(const std::vector<at::Tensor> &operands) {
  Sizes sizes;
  for (const at::Tensor &t : operands) sizes = at::infer_size(sizes, t.sizes());
  return sizes;
}

struct Merged {
  Sizes sizes;
  std::vector<Sizes> strides; // of each operand
};

Merged merge(const Sizes &sizes, const std::vector<at::Tensor> &operands) {
  std::vector<at::Tensor> expanded;
  for (const at::Tensor &t : operands) expanded.push_back(t.expand(sizes));
  Merged m{{}, std::vector<Sizes>(operands.size())};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool joins = !m.sizes.empty();
    for (size_t i = 0; i < operands.size() && joins; ++i)
      joins = m.strides[i].back() == sizes[d] * expanded[i].stride(static_cast<int64_t>(d));
    if (joins) m.sizes.back() *= sizes[d];
    else m.sizes.push_back(sizes[d]);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!joins) m.strides[i].push_back(0);
      m.strides[i].back() = expanded[i].stride(static_cast<int64_t>(d));
    }
  }
  return m;
}

} // namespace

void call_deep(const Operator &op, torch::jit::Stack *stack) {
  size_t n = op.kinds.size(), base = stack->size() - n;
  std::vector<at::Tensor> operands;
  auto is_operand = [](const at::Tensor &t) { return t.defined() && t.device().type() == kTpu; };
  for (size_t i = 0; i < n; ++i)
    map_tensors((*stack)[base + i], std::nullopt, [&](const at::Tensor &t) {
      if (is_operand(t)) operands.push_back(t);
      return t;
    });
  bool alike = treats_elements_alike(op);
  Sizes sizes = broadcast_sizes(operands);
  TORCH_CHECK(alike || sizes.size() <= 64, op.name, ": only tensors with up to 64 dims are supported");
  Merged merged = merge(sizes, operands);
  TORCH_CHECK(alike && merged.sizes.size() <= TTPU_MAX_RANK, op.name, ": tensors of more than ",
              static_cast<int>(TTPU_MAX_RANK), " dimensions are not supported on tpu, got ", sizes.size());
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < operands.size(); ++i)
    views.push_back(operands[i].as_strided(merged.sizes, merged.strides[i], operands[i].storage_offset()));
  size_t next = 0;
  for (size_t i = 0; i < n; ++i) {
    c10::IValue &v = (*stack)[base + i];
    v = map_tensors(v, std::nullopt, [&](const at::Tensor &t) { return is_operand(t) ? views[next++] : t; });
    if (op.handle.schema().arguments()[i].real_type()->kind() == c10::TypeKind::MemoryFormatType) v = c10::IValue();
  }
  call(op, stack);
  for (size_t i = base; i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor()) continue;
    const at::Tensor result = (*stack)[i].toTensor();
    auto written = std::find_if(views.begin(), views.end(), [&](const at::Tensor &t) { return t.is_same(result); });
    (*stack)[i] = written == views.end() ? result.view(sizes) : operands[static_cast<size_t>(written - views.begin())];
  }
}

} // namespace ttpu
