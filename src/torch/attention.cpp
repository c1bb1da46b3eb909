// Which implementation torch.nn.functional.scaled_dot_product_attention takes for tpu tensors.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

namespace {

// Ours, as one operation, wherever it has that meaning: batched heads of one floating dtype without dropout. Else
// PyTorch's composition of products and softmax.
int64_t choose(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
               const std::optional<at::Tensor> &mask, double dropout, bool causal, std::optional<double>,
               bool grouped) {
  bool heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  bool plain = heads && dropout == 0.0 && query.is_floating_point() && query.dtype() == key.dtype() &&
               query.dtype() == value.dtype() && !(causal && mask.has_value());
  if (plain) { // sizes may be symbols, of a graph for any length
    c10::SymIntArrayRef q = query.sym_sizes(), k = key.sym_sizes(), v = value.sym_sizes();
    plain = query.sym_numel() > 0 && key.sym_numel() > 0 && value.sym_numel() > 0 && q[0] == k[0] && q[0] == v[0] &&
            k[1] == v[1] && q[3] == k[3] && k[2] == v[2] && (q[1] == k[1] || (grouped && q[1] % k[1] == 0));
  }
  plain = plain && (!mask.has_value() || mask->dim() <= 4);
  return static_cast<int64_t>(plain ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

// Could a padding mask's rows become a nested tensor? There are none here: nn.TransformerEncoder then masks as it does
// in training.
bool is_left_aligned(const at::Tensor &, const at::Tensor &) { return false; }

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fused_sdp_choice", choose);
  library.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
}

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose)
}
