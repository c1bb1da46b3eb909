// One call of an operator: pack the arguments, find the results' metadata, record.
#include "torch/glue.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <c10/core/DefaultDtype.h>

namespace ttpu {

ttpu_dtype dtype_of(c10::ScalarType t) {
  ttpu_dtype d = base_dtype_from_scalar_type(static_cast<int>(t));
  TORCH_CHECK_TYPE(d != TTPU_NO_DTYPE, "tpu tensors cannot have dtype ", toString(t));
  return d;
}

c10::ScalarType scalar_type_of(ttpu_dtype t) { return static_cast<c10::ScalarType>(base_dtypes[t].scalar_type); }

// ---- operators ----

static ArgKind kind_of(const c10::Argument &arg) {
  c10::TypePtr type = arg.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (auto list = type->cast<c10::ListType>()) {
    c10::TypePtr element = list->getElementType();
    if (auto optional = element->cast<c10::OptionalType>()) element = optional->getElementType();
    switch (element->kind()) {
      case c10::TypeKind::TensorType: return ArgKind::TensorList;
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType: return ArgKind::IntList;
      case c10::TypeKind::FloatType: return ArgKind::FloatList;
      case c10::TypeKind::BoolType: return ArgKind::BoolList;
      case c10::TypeKind::NumberType: return ArgKind::ScalarList;
      default: return ArgKind::Other;
    }
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return ArgKind::Tensor;
    case c10::TypeKind::ScalarTypeType: return ArgKind::Dtype;
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return ArgKind::Int;
    case c10::TypeKind::BoolType: return ArgKind::Bool;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType: return ArgKind::Float;
    case c10::TypeKind::NumberType: return ArgKind::Scalar;
    case c10::TypeKind::StringType: return ArgKind::Text;
    case c10::TypeKind::GeneratorType: return ArgKind::Generator;
    default: return ArgKind::Other;
  }
}

static bool is_written(const c10::Argument &arg) { return arg.alias_info() != nullptr && arg.alias_info()->isWrite(); }

Operator::Operator(const aten_row *row, const c10::OperatorHandle &handle_) : handle(handle_) {
  const c10::FunctionSchema &schema = handle.schema();
  name = schema.name().substr(schema.name().find("::") + 2);
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  op = rt_op{row, name.c_str(), base_hash(0, name.data(), name.size())};
  const auto &args = schema.arguments();
  std::vector<bool> returned(args.size(), false);
  for (const auto &ret : schema.returns()) {
    int alias = -1;
    if (is_written(ret)) {
      for (size_t i = 0; i < args.size(); ++i)
        if (is_written(args[i]) && args[i].alias_info()->beforeSets() == ret.alias_info()->beforeSets())
          alias = static_cast<int>(i);
      if (alias >= 0) returned[alias] = true;
    }
    return_alias.push_back(alias);
    return_is_list.push_back(ret.type()->kind() == c10::TypeKind::ListType);
    return_is_int.push_back(ret.type()->kind() == c10::TypeKind::IntType ||
                            ret.type()->kind() == c10::TypeKind::SymIntType);
  }
  for (size_t i = 0; i < args.size(); ++i) {
    kinds.push_back(kind_of(args[i]));
    bool by_row = i < 32 && (row->mutates >> i & 1);
    if ((is_written(args[i]) && !returned[i]) || by_row) mutated.push_back(static_cast<uint32_t>(i));
    if (args[i].is_out()) is_out = true;
    else inputs = static_cast<uint32_t>(i + 1);
    if (kinds.back() == ArgKind::Text) has_text = true;
  }
}

// ---- packing ----

namespace {

struct Packed {
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
  bool has_bits = false; // a tensor whose conjugate or negative bit is set

  aten_call view(const aten_row *row) const {
    aten_call c{};
    c.row = row;
    c.arg_count = static_cast<uint32_t>(args.size());
    c.tensor_count = static_cast<uint32_t>(tensors.size());
    c.int_count = static_cast<uint32_t>(ints.size());
    c.number_count = static_cast<uint32_t>(numbers.size());
    c.text_count = static_cast<uint32_t>(texts.size());
    c.args = args.data();
    c.tensors = tensors.data();
    c.ints = ints.data();
    c.numbers = numbers.data();
    c.texts = texts.data();
    return c;
  }
};

[[noreturn]] void raise_device(const Operator &op, size_t arg, const at::Tensor &t, c10::DeviceIndex device) {
  const std::string &name = op.handle.schema().arguments()[arg].name();
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ", name, " is on ", t.device(),
              ", different from other tensors on tpu:", static_cast<int>(device),
              " (when checking argument in method wrapper_TPU_", op.name, ")");
}

void push_tensor(Packed &p, const Operator &op, size_t arg, const at::Tensor &t) {
  aten_tensor m{};
  rt_storage *storage = nullptr;
  if (!t.defined()) {
    m.flags = ATEN_UNDEFINED;
  } else {
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    TORCH_CHECK(impl->dim() <= TTPU_MAX_RANK, op.name, ": tensors of more than ", static_cast<int>(TTPU_MAX_RANK),
                " dimensions are not supported on tpu, got ", impl->dim());
    m.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    m.rank = static_cast<uint8_t>(impl->dim());
    constexpr c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
    p.has_bits = p.has_bits || impl->key_set().has_any(bits);
    if (t.device().type() == kTpu) {
      if (p.device < 0) p.device = t.device().index();
      else if (p.device != t.device().index()) raise_device(op, arg, t, p.device);
      m.sizes = impl->sizes().data();
      m.strides = impl->strides().data();
      m.offset = impl->storage_offset();
      storage = storage_of(t);
    } else {
      if (!t.device().is_cpu() || impl->dim() != 0) {
        for (const auto *other : p.originals)
          if (p.device < 0 && other->defined() && other->device().type() == kTpu) p.device = other->device().index();
        raise_device(op, arg, t, p.device < 0 ? current_device() : p.device);
      }
      m.flags = static_cast<uint8_t>(ATEN_NUMBER | (impl->is_wrapped_number() ? ATEN_WRAPPED : 0));
      m.number = base_scalar_load(static_cast<ttpu_dtype>(m.dtype), t.const_data_ptr());
    }
  }
  p.tensors.push_back(m);
  p.storages.push_back(storage);
  p.originals.push_back(&t);
}

aten_number number_of(const c10::IValue &v) {
  aten_number n{};
  if (v.isDouble()) {
    n.dtype = TTPU_F64;
    n.value.d[0] = v.toDouble();
  } else if (v.isInt()) {
    n.dtype = TTPU_I64;
    n.value.i = v.toInt();
  } else if (v.isBool()) {
    n.dtype = TTPU_BOOL;
    n.value.i = v.toBool();
  } else if (v.isComplexDouble()) {
    n.dtype = TTPU_C128;
    n.value.d[0] = v.toComplexDouble().real();
    n.value.d[1] = v.toComplexDouble().imag();
  } else if (v.isSymInt()) {
    n.dtype = TTPU_I64;
    n.value.i = v.toSymInt().guard_int(__FILE__, __LINE__);
  } else if (v.isSymFloat()) {
    n.dtype = TTPU_F64;
    n.value.d[0] = v.toSymFloat().guard_float(__FILE__, __LINE__);
  } else {
    TORCH_CHECK_TYPE(false, "expected a number, got ", v.tagKind());
  }
  return n;
}

// An exact 1 that its row wants left out, such as an alpha.
bool is_one(const c10::IValue &v) { return v.isInt() ? v.toInt() == 1 : v.isDouble() && v.toDouble() == 1; }

int64_t int_of(const c10::IValue &v) {
  if (v.isInt()) return v.toInt();
  if (v.isBool()) return v.toBool();
  if (v.isSymInt()) return v.toSymInt().guard_int(__FILE__, __LINE__);
  return v.toInt();
}

void push_list(Packed &p, const Operator &op, size_t i, const c10::IValue &v, aten_arg &arg) {
  if (v.isTensorList()) {
    // The list's elements are IValues that live on the stack: no tensor is copied.
    for (const c10::IValue &e : v.toListRef()) push_tensor(p, op, i, e.toTensor());
  } else {
    static const at::Tensor undefined;
    for (const c10::IValue &e : v.toListRef()) push_tensor(p, op, i, e.isNone() ? undefined : e.toTensor());
  }
  arg.count = static_cast<uint16_t>(p.tensors.size() - arg.first);
}

void pack(Packed &p, const Operator &op, const torch::jit::Stack &stack) {
  size_t n = op.kinds.size(), base = stack.size() - n;
  if (op.has_text) p.text_owners.reserve(n); // the texts' addresses must not move
  for (size_t i = 0; i < n; ++i) {
    const c10::IValue &v = stack[base + i];
    aten_arg arg{};
    if (v.isNone() && op.kinds[i] != ArgKind::Other) {
      arg.kind = ATEN_NONE;
      p.args.push_back(arg);
      continue;
    }
    switch (op.kinds[i]) {
      case ArgKind::Tensor:
        arg.kind = ATEN_TENSOR;
        arg.first = static_cast<uint32_t>(p.tensors.size());
        arg.count = 1;
        push_tensor(p, op, i, v.toTensor());
        break;
      case ArgKind::TensorList:
        arg.kind = ATEN_TENSORS;
        arg.first = static_cast<uint32_t>(p.tensors.size());
        push_list(p, op, i, v, arg);
        break;
      case ArgKind::Int:
      case ArgKind::Bool:
        arg.kind = ATEN_INT;
        arg.first = static_cast<uint32_t>(p.ints.size());
        p.ints.push_back(int_of(v));
        break;
      case ArgKind::Dtype:
        arg.kind = ATEN_INT;
        arg.first = static_cast<uint32_t>(p.ints.size());
        p.ints.push_back(dtype_of(v.toScalarType()));
        break;
      case ArgKind::IntList:
        arg.kind = ATEN_INTS;
        arg.first = static_cast<uint32_t>(p.ints.size());
        if (v.isIntList()) {
          for (int64_t e : v.toIntList()) p.ints.push_back(e);
        } else {
          for (const c10::IValue &e : v.toListRef()) p.ints.push_back(int_of(e));
        }
        arg.count = static_cast<uint16_t>(p.ints.size() - arg.first);
        break;
      case ArgKind::BoolList:
        arg.kind = ATEN_INTS;
        arg.first = static_cast<uint32_t>(p.ints.size());
        for (bool e : v.toBoolList()) p.ints.push_back(e);
        arg.count = static_cast<uint16_t>(p.ints.size() - arg.first);
        break;
      case ArgKind::Float:
      case ArgKind::Scalar:
        if (i < 32 && (op.op.row->units >> i & 1) && is_one(v)) {
          arg.kind = ATEN_NONE;
          break;
        }
        arg.kind = op.kinds[i] == ArgKind::Float ? ATEN_FLOAT : ATEN_SCALAR;
        arg.first = static_cast<uint32_t>(p.numbers.size());
        p.numbers.push_back(number_of(v));
        break;
      case ArgKind::FloatList:
      case ArgKind::ScalarList:
        arg.kind = op.kinds[i] == ArgKind::FloatList ? ATEN_FLOATS : ATEN_SCALARS;
        arg.first = static_cast<uint32_t>(p.numbers.size());
        if (v.isDoubleList()) {
          for (double e : v.toDoubleList()) p.numbers.push_back(number_of(e));
        } else {
          for (const c10::IValue &e : v.toListRef()) p.numbers.push_back(number_of(e));
        }
        arg.count = static_cast<uint16_t>(p.numbers.size() - arg.first);
        break;
      case ArgKind::Text:
        arg.kind = ATEN_TEXT;
        arg.first = static_cast<uint32_t>(p.texts.size());
        p.text_owners.emplace_back(v.toStringView());
        p.texts.push_back(p.text_owners.back().c_str());
        break;
      case ArgKind::Generator:
        arg.kind = ATEN_OTHER;
        if (v.toGenerator().defined()) p.generator = v.toGenerator();
        break;
      case ArgKind::Other:
        arg.kind = ATEN_OTHER;
        if (v.isDevice() && v.toDevice().type() == kTpu && p.device < 0)
          p.device = v.toDevice().has_index() ? v.toDevice().index() : current_device();
        break;
    }
    p.args.push_back(arg);
  }
  if (p.device < 0) p.device = current_device();
}

// ---- metadata ----

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

at::Tensor to_meta(const at::Tensor &t) {
  if (!t.defined() || t.device().type() != kTpu) return t;
  return at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
}

c10::IValue to_meta(const c10::IValue &v) {
  if (v.isTensor()) return to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue &e : v.toListRef()) list.push_back(to_meta(e.toTensor()));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue &e : v.toListRef())
      list.push_back(e.isNone() ? std::optional<at::Tensor>() : to_meta(e.toTensor()));
    return list;
  }
  if (v.isDevice()) return c10::Device(c10::kMeta);
  if (v.isGenerator()) return c10::IValue();
  return v;
}

void push_shape(Shapes &shapes, const at::Tensor &t) {
  aten_shape s{};
  if (t.defined()) {
    TORCH_CHECK(t.dim() <= TTPU_MAX_RANK, "a result of ", t.dim(), " dimensions is not supported on tpu");
    s.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    s.rank = static_cast<uint8_t>(t.dim());
    std::copy(t.sizes().begin(), t.sizes().end(), s.sizes);
    std::copy(t.strides().begin(), t.strides().end(), s.strides);
  }
  shapes.push(s);
}

void push_shapes(Shapes &shapes, const c10::IValue &v) {
  if (v.isNone()) {
    shapes.push(aten_shape{});
  } else if (v.isTensor()) {
    push_shape(shapes, v.toTensor());
  } else if (v.isInt() || v.isSymInt()) {
    aten_shape number{}; // no dtype, rank 1: the integer stands as its size
    number.rank = 1;
    number.sizes[0] = v.isInt() ? v.toInt() : v.toSymInt().guard_int(__FILE__, __LINE__);
    shapes.push(number);
  } else {
    for (const c10::IValue &e : v.toListRef()) push_shape(shapes, e.toTensor());
  }
}

// Stand-ins on the host for a call's tensors: zeros of their sizes; or ones of at most two elements a dimension, with the
// floats of fewer bits as floats of 32 if `wide`.
struct HostArguments {
  bool small, wide;

  at::Tensor of(const at::Tensor &t) const {
    if (!t.defined()) return t;
    c10::ScalarType dtype = t.scalar_type();
    if (wide && at::isFloatingType(dtype) && c10::elementSize(dtype) < 4) dtype = at::kFloat;
    c10::DimVector sizes(t.sizes());
    for (int64_t &n : sizes) n = small ? std::min<int64_t>(n, 2) : n;
    at::Tensor host = at::full(sizes, small ? 1 : 0, t.options().device(at::kCPU).dtype(dtype));
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
    return host;
  }

  c10::IValue of(const c10::IValue &v) const {
    if (v.isTensor()) return of(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue &e : v.toListRef()) list.push_back(of(e.toTensor()));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue &e : v.toListRef())
        list.push_back(e.isNone() ? std::optional<at::Tensor>() : of(e.toTensor()));
      return list;
    }
    if (v.isDevice()) return c10::Device(c10::kCPU);
    if (v.isGenerator()) return c10::IValue();
    return v;
  }
};

void call_on_host(const Operator &op, const torch::jit::Stack &stack, HostArguments arguments) {
  size_t n = op.kinds.size(), base = stack.size() - n;
  torch::jit::Stack host;
  for (size_t i = 0; i < n; ++i) host.push_back(arguments.of(stack[base + i]));
  at::AutoDispatchBelowADInplaceOrView below;
  op.handle.callBoxed(host);
}

// A call on the CPU with zeros: raises the CPU's exception, which is not always of Meta's type. False where that would
// take too much memory.
bool raise_as_cpu(const Operator &op, const torch::jit::Stack &stack) {
  constexpr int64_t most = 1 << 24;
  for (size_t i = stack.size() - op.kinds.size(); i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().numel() > most) return false;
  call_on_host(op, stack, {false, false});
  return true;
}

// What an ATEN_CHECKED row's Meta kernel lets pass, on the CPU with a few ones: they show what dtypes, ranks and dims decide.
// That the CPU has no kernel for a short float type is no refusal, nor what it refuses for the ones' sizes or values
// alone, which zeros of the call's own sizes tell.
void check_as_cpu(const Operator &op, const torch::jit::Stack &stack) {
  if (!op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  try {
    try {
      return call_on_host(op, stack, {true, false});
    } catch (const c10::NotImplementedError &) {
      return call_on_host(op, stack, {true, true});
    }
  } catch (const c10::Error &) {
    if (!raise_as_cpu(op, stack)) throw;
  }
}

// PyTorch's own Meta kernel on stand-ins without storage: it finds the results' metadata and raises PyTorch's errors.
void ask_meta(const Operator &op, const torch::jit::Stack &stack, Shapes &shapes) {
  size_t n = op.kinds.size(), base = stack.size() - n;
  torch::jit::Stack meta;
  meta.reserve(n);
  for (size_t i = 0; i < n; ++i) meta.push_back(to_meta(stack[base + i]));
  torch::jit::Stack arguments(meta);
  try {
    at::AutoDispatchBelowADInplaceOrView below;
    op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  } catch (...) {
    raise_as_cpu(op, stack);
    throw;
  }
  if (op.op.row->flags & ATEN_CHECKED) check_as_cpu(op, stack);
  for (const c10::IValue &v : meta) push_shapes(shapes, v);
  for (uint32_t arg : op.mutated) push_shapes(shapes, arguments[arg]);
}

// The row's own shape function speaks of the functional form; results that are arguments must fit it. Arguments that are
// mutated but not returned keep their sizes.
bool ask_row(const Operator &op, const aten_call &call, const Packed &p, Shapes &shapes) {
  if (op.op.row->shape == nullptr) return false;
  size_t n = op.return_alias.size() + (op.op.row->flags & ATEN_DYNAMIC ? 1 : 0);
  for (bool is_list : op.return_is_list)
    if (is_list) return false;
  if (!op.op.row->shape(&call, shapes.expect(static_cast<uint32_t>(n)))) {
    shapes.clear();
    return false;
  }
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (op.return_alias[i] < 0) continue;
    const aten_tensor &t = p.tensors[p.args[op.return_alias[i]].first];
    if (t.dtype != shapes[i].dtype || t.rank != shapes[i].rank ||
        !std::equal(t.sizes, t.sizes + t.rank, shapes[i].sizes)) {
      shapes.clear();
      return false;
    }
    // Writing to a tensor whose elements share memory is for Meta to refuse.
    for (uint32_t d = 0; d < t.rank; ++d)
      if (t.strides[d] == 0 && t.sizes[d] > 1) {
        shapes.clear();
        return false;
      }
    std::copy(t.strides, t.strides + t.rank, shapes[i].strides);
  }
  for (uint32_t arg : op.mutated) {
    const aten_arg &a = call.args[arg];
    if (a.kind == ATEN_NONE) shapes.push(aten_shape{});
    else if (a.kind == ATEN_TENSORS)
      for (uint32_t k = 0; k < a.count; ++k) push_shape(shapes, *p.originals[a.first + k]);
    else push_shape(shapes, *p.originals[a.first]);
  }
  return true;
}

base_hash128 find_shapes(const Operator &op, const Packed &p, const aten_call &call, const torch::jit::Stack &stack,
                         Shapes &shapes) {
  base_hash128 key = rt_meta_key(&op.op, &call, static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  shapes.clear();
  uint32_t count = 0;
  if (rt_meta_get(key, &count, shapes.room(), Shapes::kSmall)) {
    shapes.count = count;
    return key;
  }
  if (count > 0 && rt_meta_get(key, &count, shapes.expect(count), count)) return key;
  shapes.clear();
  if (!ask_row(op, call, p, shapes)) ask_meta(op, stack, shapes);
  rt_meta_put(key, shapes.count, shapes.data());
  return key;
}

// ---- results ----

struct Results {
  c10::SmallVector<rt_tensor, 4> tensors;
  c10::SmallVector<at::Tensor, 4> owned; // in order, for the stack
};

void push_result(Results &r, const at::Tensor &t) {
  rt_tensor out{};
  if (t.defined()) {
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    out.storage = storage_of(t);
    out.meta.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    out.meta.rank = static_cast<uint8_t>(impl->dim());
    out.meta.sizes = impl->sizes().data();
    out.meta.strides = impl->strides().data();
    out.meta.offset = impl->storage_offset();
  } else {
    out.meta.flags = ATEN_UNDEFINED;
  }
  r.tensors.push_back(out);
  r.owned.push_back(t);
}

// An argument that receives a result: resized to the result's sizes where it is an out= argument of others.
void push_argument(Results &r, const Operator &op, const at::Tensor &t, const aten_shape &shape) {
  if (t.defined()) {
    if (op.is_out && shape.dtype != TTPU_NO_DTYPE && t.sizes() != c10::IntArrayRef(shape.sizes, shape.rank))
      resize_tensor(t, c10::IntArrayRef(shape.sizes, shape.rank), c10::IntArrayRef(shape.strides, shape.rank));
    TORCH_CHECK(t.device().type() == kTpu, op.name, ": a result cannot be written to a tensor on ", t.device());
  }
  push_result(r, t);
}

// What a lowering sees of a call: not its out= arguments, the last of the schema. What they held and which sizes they had
// before has no part in the results.
void drop_outputs(const Operator &op, aten_call &c) {
  if (!op.is_out) return;
  c.arg_count = op.inputs;
  c.tensor_count = c.args[op.inputs].first;
}

// Refuses a written argument that shares some but not all of its elements with one that is read, as the CPU does.
void check_overlap(const Packed &p, const at::Tensor &written) {
  if (!written.defined()) return;
  const rt_storage *storage = storage_of(written);
  for (size_t i = 0; i < p.storages.size(); ++i)
    if (p.storages[i] == storage && p.originals[i] != &written) at::assert_no_partial_overlap(written, *p.originals[i]);
}

void make_results(Results &r, const Operator &op, const Packed &p, Shapes &shapes) {
  size_t at = 0, fixed = 0;
  for (bool is_list : op.return_is_list) fixed += !is_list;
  for (uint32_t arg : op.mutated) fixed += p.args[arg].kind == ATEN_TENSORS ? p.args[arg].count : 1;
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    size_t count = op.return_is_list[i] ? shapes.count - fixed : 1;
    for (size_t k = 0; k < count; ++k, ++at) {
      if (op.return_alias[i] >= 0) {
        if (!op.return_is_list[i]) check_overlap(p, *p.originals[p.args[op.return_alias[i]].first]);
        push_argument(r, op, *p.originals[p.args[op.return_alias[i]].first + k], shapes[at]);
      } else {
        push_result(r, shapes[at].dtype == TTPU_NO_DTYPE ? at::Tensor() : empty_like_shape(p.device, shapes[at]));
      }
    }
  }
  for (uint32_t arg : op.mutated) {
    if (p.args[arg].kind == ATEN_NONE) {
      push_result(r, at::Tensor());
      ++at;
      continue;
    }
    for (size_t k = 0; k < (p.args[arg].kind == ATEN_TENSORS ? p.args[arg].count : 1u); ++k, ++at)
      push_argument(r, op, *p.originals[p.args[arg].first + k], shapes[at]);
  }
  if (op.op.row->flags & ATEN_DYNAMIC) push_result(r, make_tensor(p.device, TTPU_I64, {}, {}));
}

// Cuts the results of a dynamic row to the count that the device found: the one host read of such operators.
void cut_dynamic(const Operator &op, Results &r) {
  int64_t count = 0;
  check(rt_storage_read(r.tensors.back().storage, &count, sizeof count));
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (!(op.op.row->dynamic >> i & 1) || r.owned[i].size(0) == 0) continue; // counts that nobody asked for
    at::Tensor narrowed = r.owned[i].narrow(0, 0, count);
    if (op.return_alias[i] >= 0) {
      r.owned[i].resize_(narrowed.sizes());
    } else {
      r.owned[i] = count == r.owned[i].size(0) ? r.owned[i] : narrowed.clone();
    }
  }
}

ir_precision product_precision() {
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::MEDIUM: return IR_PRECISION_DEFAULT;
    case at::Float32MatmulPrecision::HIGH: return IR_PRECISION_HIGH;
    default: return IR_PRECISION_HIGHEST;
  }
}

void replace_stack(const Operator &op, Results &r, Shapes &shapes, torch::jit::Stack *stack) {
  torch::jit::drop(*stack, op.kinds.size());
  size_t lists = 0, fixed = 0;
  for (bool is_list : op.return_is_list) (is_list ? lists : fixed) += 1;
  size_t extra = r.owned.size();
  if (lists > 0) { // one list return: everything that is not another return or an argument
    TORCH_INTERNAL_ASSERT(lists == 1 && op.mutated.empty());
    extra -= fixed;
  }
  size_t at = 0;
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (op.return_is_list[i]) {
      c10::List<at::Tensor> list;
      for (size_t k = 0; k < extra; ++k) list.push_back(std::move(r.owned[at++]));
      torch::jit::push(*stack, std::move(list));
    } else if (op.return_is_int[i]) {
      torch::jit::push(*stack, shapes[at++].sizes[0]);
    } else {
      torch::jit::push(*stack, std::move(r.owned[at++]));
    }
  }
}

// A call on tensors whose conjugate or negative bit is set, of an operator before which PyTorch does not resolve them:
// the call on their resolved copies, and what it wrote copied back.
void call_resolved(const Operator &op, torch::jit::Stack *stack) {
  size_t n = op.kinds.size(), base = stack->size() - n;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < n; ++i) {
    c10::IValue &v = (*stack)[base + i];
    if (v.isTensor() && v.toTensor().defined()) {
      at::Tensor given = v.toTensor(), resolved = materialise(given);
      if (is_written(op.handle.schema().arguments()[i]) && !resolved.is_same(given))
        written.emplace_back(given, resolved);
      v = resolved;
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue &e : v.toListRef()) list.push_back(materialise(e.toTensor()));
      v = list;
    }
  }
  call(op, stack);
  for (auto &[given, resolved] : written) {
    given.copy_(resolved);
    for (size_t i = base; i < stack->size(); ++i)
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().is_same(resolved)) (*stack)[i] = given;
  }
}

} // namespace

void call(const Operator &op, torch::jit::Stack *stack) {
  initialize();
  Packed p;
  pack(p, op, *stack);
  if (p.has_bits) return call_resolved(op, stack);
  aten_call c = p.view(op.op.row);
  Shapes shapes;
  base_hash128 key = find_shapes(op, p, c, *stack, shapes);
  Results r;
  make_results(r, op, p, shapes);
  drop_outputs(op, c);
  rt_call request{};
  request.call = c;
  request.storages = p.storages.data();
  request.key = key;
  if (op.op.row->flags & ATEN_PRODUCT) request.precision = product_precision();
  if (op.op.row->flags & ATEN_RNG) {
    check(aten_random_check(&c));
    c10::SmallVector<aten_tensor, 4> metas;
    for (const rt_tensor &t : r.tensors) metas.push_back(t.meta);
    request.random = draw(p.generator, p.device, aten_random_counters(&c, metas.data()));
  }
  check(rt_record(static_cast<uint32_t>(p.device), &op.op, &request, static_cast<uint32_t>(r.tensors.size()),
                  r.tensors.data()));
  if (op.op.row->flags & ATEN_DYNAMIC) {
    cut_dynamic(op, r);
    r.owned.pop_back();
  }
  replace_stack(op, r, shapes, stack);
}

} // namespace ttpu
