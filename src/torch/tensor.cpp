// The operators that need PyTorch's own types: creation, views, set_, resize_, copies, reading a number.
#include "torch/glue.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace ttpu {

// ---- making tensors ----

c10::Storage wrap_storage(c10::DeviceIndex device, rt_storage *s) {
  c10::DataPtr data(rt_storage_address(s), s, &free_storage, c10::Device(kTpu, device));
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            static_cast<int64_t>(rt_storage_bytes(s)), std::move(data),
                                                            allocator(), /*resizable=*/true));
}

c10::Storage make_storage(c10::DeviceIndex device, size_t bytes) {
  rt_storage *s = nullptr;
  check(rt_storage_new(static_cast<uint32_t>(device), bytes, &s));
  return wrap_storage(device, s);
}

at::Tensor make_tensor(c10::DeviceIndex device, ttpu_dtype dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::Storage storage =
      make_storage(device, at::detail::computeStorageNbytes(sizes, strides, base_dtype_bytes(dtype)));
  at::Tensor t =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                               c10::scalarTypeToTypeMeta(scalar_type_of(dtype)));
  if (sizes.size() != 1 || sizes[0] != 0) t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

at::Tensor empty_like_shape(c10::DeviceIndex device, const aten_shape &shape) {
  return make_tensor(device, static_cast<ttpu_dtype>(shape.dtype), {shape.sizes, shape.rank},
                     {shape.strides, shape.rank});
}

static c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  return device.has_value() && device->has_index() ? device->index() : current_device();
}

static void check_options(const char *name, std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, name, ": tpu tensors are strided, got layout ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

static at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                                std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                std::optional<bool> pin_memory) {
  initialize();
  check_options("empty_strided", layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "empty_strided: dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  c10::DeviceIndex index = index_of(device);
  TORCH_CHECK(index < static_cast<int>(rt_device_count()), "invalid device ordinal tpu:", static_cast<int>(index),
              "; there are ", rt_device_count(), " devices");
  return make_tensor(index, dtype_of(dtype.value_or(c10::get_default_dtype_as_scalartype())), sizes, strides);
}

static at::Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                                      std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                      std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  c10::SmallVector<int64_t, 8> strides(sizes.size(), 0);
  c10::MemoryFormat f = format.value_or(c10::MemoryFormat::Contiguous);
  if (f == c10::MemoryFormat::ChannelsLast) {
    TORCH_CHECK(sizes.size() == 4, "required rank 4 tensor to use channels_last format");
    auto cl = c10::get_channels_last_strides_2d(sizes);
    std::copy(cl.begin(), cl.end(), strides.begin());
  } else if (f == c10::MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(sizes.size() == 5, "required rank 5 tensor to use channels_last_3d format");
    auto cl = c10::get_channels_last_strides_3d(sizes);
    std::copy(cl.begin(), cl.end(), strides.begin());
  } else {
    at::detail::check_size_nonnegative(sizes);
    base_row_major(static_cast<uint32_t>(sizes.size()), sizes.data(), strides.data());
  }
  return empty_strided(sizes, strides, dtype, layout, device, pin_memory);
}

// ---- storage and sizes ----

static void grow_storage(c10::TensorImpl *t, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, t->dtype().itemsize(), static_cast<size_t>(t->storage_offset()));
  if (t->numel() > 0 || bytes > t->storage().nbytes())
    if (bytes > t->storage().nbytes()) resize_storage(t->storage(), bytes);
}

void resize_tensor(const at::Tensor &t, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::TensorImpl *impl = t.unsafeGetTensorImpl();
  grow_storage(impl, sizes, strides);
  impl->set_sizes_and_strides(sizes, strides);
}

static const at::Tensor &resize_(const at::Tensor &self, c10::IntArrayRef size,
                                 std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  if (self.sizes() != size) {
    c10::SmallVector<int64_t, 8> strides(size.size(), 0);
    base_row_major(static_cast<uint32_t>(size.size()), size.data(), strides.data());
    resize_tensor(self, size, strides);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

static at::Tensor &set_storage_offset(at::Tensor &self, c10::Storage source, int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride) {
  c10::SmallVector<int64_t, 8> row_major(size.size(), 0);
  if (stride.data() == nullptr) {
    base_row_major(static_cast<uint32_t>(size.size()), size.data(), row_major.data());
    stride = row_major;
  }
  at::native::checkSetStorage(self, source, offset, size, stride, /*check_offset_in_bounds=*/false);
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  size_t bytes = at::detail::computeStorageNbytes(size, stride, impl->dtype().itemsize(), static_cast<size_t>(offset));
  if (self.numel() > 0 && bytes > impl->storage().nbytes()) resize_storage(impl->storage(), bytes);
  return self;
}

static at::Tensor &set_storage(at::Tensor &self, c10::Storage source) {
  int64_t size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {size}, c10::IntArrayRef{});
}

static at::Tensor &set_tensor(at::Tensor &self, const at::Tensor &source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

static at::Tensor &set_nothing(at::Tensor &self) {
  c10::Storage storage(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, allocator(), true));
  return set_storage_offset(self, std::move(storage), 0, {0}, c10::IntArrayRef{});
}

static bool is_set_to(const at::Tensor &self, const at::Tensor &source) {
  return self.storage().unsafeGetStorageImpl() == source.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

// ---- copies ----

// The storage's elements in memory order, when t is exactly its storage: then order[i] is the i-th dim in memory.
static bool covers_storage(const at::Tensor &t, std::vector<int64_t> &order) {
  if (!is_whole_storage(t.storage().data_ptr()) || !t.is_non_overlapping_and_dense() || t.storage_offset() != 0 ||
      static_cast<size_t>(t.numel()) * t.element_size() != t.storage().nbytes())
    return false;
  order.resize(static_cast<size_t>(t.dim()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); });
  return true;
}

// Conjugation and negation that PyTorch keeps as a bit of a view, carried out.
static at::Tensor without_bits(at::Tensor t) {
  if (t.is_conj()) t = at::_conj_physical(t.conj());
  if (t.is_neg()) t = at::neg(t._neg_view());
  return t;
}

static void record_copy(const at::Tensor &self, const at::Tensor &src) {
  at::Tensor to = self, from = without_bits(src);
  if (to.is_conj()) {
    from = at::_conj_physical(from);
    to = to.conj();
  }
  if (to.is_neg()) {
    from = at::neg(from);
    to = to._neg_view();
  }
  torch::jit::Stack stack{to, from, false};
  call(copy_operator(), &stack);
}

static void upload(const at::Tensor &self, const at::Tensor &src) {
  std::vector<int64_t> order;
  bool direct = self.sizes() == src.sizes() && covers_storage(self, order);
  at::Tensor target = direct ? self : at::empty(src.sizes(), self.options());
  if (!direct) covers_storage(target, order);
  at::Tensor host = src.to(self.scalar_type()).resolve_conj().resolve_neg().permute(order).contiguous();
  if (host.dim() > TTPU_MAX_RANK) host = host.view(-1);
  check(rt_storage_upload(storage_of(target), dtype_of(self.scalar_type()), static_cast<uint32_t>(host.dim()),
                          host.sizes().data(), host.const_data_ptr(), nullptr, nullptr));
  if (!direct) record_copy(self, target);
}

static void download(const at::Tensor &self, const at::Tensor &src) {
  at::Tensor from = without_bits(src);
  std::vector<int64_t> order;
  if (!covers_storage(from, order)) {
    at::Tensor dense = at::empty(from.sizes(), from.options());
    record_copy(dense, from);
    from = dense;
    covers_storage(from, order);
  }
  at::Tensor in_order = self.permute(order);
  size_t bytes = from.storage().nbytes();
  if (self.sizes() == src.sizes() && self.scalar_type() == src.scalar_type() && in_order.is_contiguous() &&
      !self.is_conj() && !self.is_neg()) {
    check(rt_storage_read(storage_of(from), 0, in_order.mutable_data_ptr(), bytes));
    return;
  }
  at::Tensor host = at::empty(from.permute(order).sizes(), from.options().device(at::kCPU));
  check(rt_storage_read(storage_of(from), 0, host.mutable_data_ptr(), bytes));
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  self.copy_(host.permute(back));
}

static void copy_between(const at::Tensor &self, const at::Tensor &src) { // two tpu devices
  at::Tensor from = at::empty(src.sizes(), src.options());
  record_copy(from, src);
  at::Tensor moved = at::empty(src.sizes(), src.options().device(self.device()));
  check(rt_storage_assign(storage_of(moved), storage_of(from)));
  record_copy(self, moved);
}

// The same values without the conjugate and the negative bit.
at::Tensor materialise(const at::Tensor &t) {
  if (t.is_neg()) return materialise(at::neg(at::_neg_view(t)));
  if (t.is_conj()) return at::conj_physical(t.conj());
  return t;
}

static at::Tensor &copy_(at::Tensor &self, const at::Tensor &src, bool) {
  TORCH_CHECK(self.defined() && src.defined(), "copy_(): undefined tensor");
  if (self.is_same(src)) return self;
  if (self.device().type() == kTpu &&
      (self.is_conj() || self.is_neg())) { // write the conjugate or negative of src instead
    at::Tensor target = self.is_conj() ? self.conj() : at::_neg_view(self);
    copy_(target, self.is_conj() ? src.conj() : at::_neg_view(src), false);
    return self;
  }
  if (src.device().type() == kTpu && (src.is_conj() || src.is_neg())) return copy_(self, materialise(src), false);
  TORCH_CHECK(at::is_expandable_to(src.sizes(), self.sizes()), "The size of tensor a (", self.sizes(),
              ") must match the size of tensor b (", src.sizes(), "): output with shape ", self.sizes(),
              " doesn't match the broadcast shape");
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  if (self.device().type() != kTpu) {
    at::Tensor expanded = src.sizes() == self.sizes() ? src : src.expand(self.sizes());
    download(self, expanded);
  } else if (src.device().type() != kTpu) {
    if (src.device().is_meta()) return self;
    upload(self, src.device().is_cpu() ? src : src.to(at::kCPU));
  } else if (src.device() != self.device()) {
    copy_between(self, src);
  } else {
    record_copy(self, src);
  }
  return self;
}

static at::Tensor copy_from(const at::Tensor &self, const at::Tensor &dst, bool non_blocking) {
  at::Tensor to = dst;
  copy_(to, self, non_blocking);
  return dst;
}

static at::Tensor copy_from_and_resize(const at::Tensor &self, const at::Tensor &dst) {
  at::Tensor to = dst;
  if (to.sizes() != self.sizes()) resize_tensor(to, self.sizes(), self.strides());
  copy_(to, self, false);
  return dst;
}

// One number: read where it lies, unless the plugin would send too much of the storage for it. A program that picks the
// element takes longer than to read some kilobytes.
static c10::Scalar local_scalar_dense(const at::Tensor &self) {
  constexpr size_t most = 1 << 16;
  Place place = place_of(self.unsafeGetTensorImpl());
  at::Tensor host = at::empty({}, self.options().device(at::kCPU));
  bool is_short = rt_storage_bytes(place.storage) <= most || pjrt_client_is_soft(rt_client());
  if (is_short && !self.is_conj() && !self.is_neg()) {
    size_t bytes = self.element_size();
    size_t offset = static_cast<size_t>(offset_in(place, self.unsafeGetTensorImpl())) * bytes;
    check(rt_storage_read(place.storage, offset, host.mutable_data_ptr(), bytes));
    return host.item();
  }
  download(host, self.reshape({}));
  return host.item();
}

static bool equal(const at::Tensor &self, const at::Tensor &other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  return at::eq(self, other).all().item().toBool();
}

// May one become the other's data (`parameter.data = moved`)? As between CPU and CUDA; it keeps tied weights tied in Module.to.
static bool has_compatible_type(const at::Tensor &self, const at::Tensor &from) {
  auto plain = [](const at::Tensor &t) {
    return t.layout() == c10::kStrided && (t.is_cpu() || t.device().type() == kTpu);
  };
  return plain(self) && plain(from);
}

// Zeros that take no memory on other devices; here zeros are a constant of the program that reads them.
static at::Tensor efficient_zeros(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                                  std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                  std::optional<bool> pin_memory) {
  return at::zeros(sizes, at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin_memory));
}

// The result is as long as the largest value says, which is read.
static at::Tensor bincount(const at::Tensor &self, const std::optional<at::Tensor> &weights, int64_t minimum) {
  bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(minimum >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(self.numel() == 0 || at::isIntegralType(self.scalar_type(), /*includeBool=*/false),
                              "bincount is not implemented for ", self.scalar_type());
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || weights->sizes() == self.sizes(), "weights should be 1-d and have the same length as input");
  at::TensorOptions options = self.options().dtype(!weighted                              ? at::kLong
                                                   : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                                          : at::kDouble);
  if (self.numel() == 0) return at::zeros({minimum}, self.options().dtype(at::kLong));
  at::Tensor bins = self.to(at::kLong), ends = at::stack({bins.min(), bins.max()}).cpu();
  TORCH_CHECK(ends[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  at::Tensor counts = at::zeros({std::max(minimum, ends[1].item<int64_t>() + 1)}, options);
  return counts.index_add(0, bins, weighted ? weights->to(options.dtype()) : at::ones_like(bins));
}

// Assertions are host reads here: a failure is raised at the call.
static void assert_async(const at::Tensor &self) {
  TORCH_CHECK(self.is_nonzero(), "Expected Tensor with single nonzero value, but got zero");
}
static void assert_async_message(const at::Tensor &self, c10::string_view message) {
  TORCH_CHECK(self.is_nonzero(), message.empty() ? "Assertion is failed" : message);
}
static at::Tensor functional_assert(const at::Tensor &self, c10::string_view message, const at::Tensor &token) {
  assert_async_message(self, message);
  return token.clone();
}
static at::Tensor dependency_token(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                                   std::optional<c10::Device> device, std::optional<bool> pin_memory,
                                   std::optional<c10::MemoryFormat> format) {
  return empty_memory_format({}, dtype, layout, device, pin_memory, format);
}

// ---- registration ----

void register_tensor_ops() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage_storage_offset", set_storage_offset);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
  library.impl("is_set_to", is_set_to);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("equal", equal);
  library.impl("_efficientzerotensor", efficient_zeros);
  library.impl("bincount", bincount);
  library.impl("_assert_async", assert_async);
  library.impl("_assert_async.msg", assert_async_message);
  library.impl("_functional_assert_async.msg", functional_assert);
  library.impl("_make_dep_token", dependency_token);
  library.impl("_has_compatible_shallow_copy_type", has_compatible_type);
  library.impl("record_stream", [](at::Tensor &, c10::Stream) {});
}

} // namespace ttpu
