// The metadata of a call's results: from the cache, the row's shape function, or PyTorch's Meta kernel.
#include "torch/call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DefaultDtype.h>

namespace ttpu {

namespace {

at::Tensor to_meta(const at::Tensor &t) {
  if (!t.defined() || t.device().type() != kTpu) return t;
  return at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
}

// An out= argument for Meta: only its dtype counts, so that the results' own sizes and strides come out and nothing warns.
at::Tensor to_empty_meta(const at::Tensor &t) {
  if (!t.defined() || t.device().type() != kTpu) return t;
  return at::detail::empty_strided_meta({0}, {1}, t.scalar_type());
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

  at::Tensor operator()(const at::Tensor &t) const {
    if (!t.defined()) return t;
    c10::ScalarType dtype = t.scalar_type();
    if (wide && at::isFloatingType(dtype) && c10::elementSize(dtype) < 4) dtype = at::kFloat;
    c10::DimVector sizes(t.sizes());
    for (int64_t &n : sizes) n = small ? std::min<int64_t>(n, 2) : n;
    at::Tensor host = at::full(sizes, small ? 1 : 0, t.options().device(at::kCPU).dtype(dtype));
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
    return host;
  }
};

// Warnings of kernels that run on stand-ins are not the user's.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning &) override {}
};

// The results of a call on the CPU with such stand-ins; out= arguments are small (empty) or as they are.
torch::jit::Stack call_on_host(const Operator &op, const torch::jit::Stack &stack, HostArguments arguments) {
  size_t n = op.kinds.size(), base = stack.size() - n;
  torch::jit::Stack host;
  for (size_t i = 0; i < n; ++i) {
    const c10::IValue &v = stack[base + i];
    if (op.is_out && i >= op.inputs && v.isTensor()) {
      c10::DimVector sizes = arguments.small ? c10::DimVector{0} : c10::DimVector(v.toTensor().sizes());
      host.push_back(at::empty(sizes, v.toTensor().options().device(at::kCPU)));
    } else {
      host.push_back(map_tensors(v, c10::Device(c10::kCPU), arguments));
    }
  }
  at::AutoDispatchBelowADInplaceOrView below;
  op.handle.callBoxed(host);
  return host;
}

// A call on the CPU with zeros: raises the CPU's exception, which is not always of Meta's type, or gives its results. None
// where that would take too much memory or the CPU has no kernel.
std::optional<torch::jit::Stack> raise_as_cpu(const Operator &op, const torch::jit::Stack &stack) {
  if (!op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return {};
  constexpr int64_t most = 1 << 24;
  for (size_t i = stack.size() - op.kinds.size(); i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().numel() > most) return {};
  return call_on_host(op, stack, {false, false});
}

// What an ATEN_CHECKED row's Meta kernel lets pass, on the CPU with a few ones: they show what dtypes, ranks and dims decide.
// That the CPU has no kernel for a short float type is no refusal, nor what it refuses for the ones' sizes or values
// alone, which zeros of the call's own sizes tell.
void check_as_cpu(const Operator &op, const torch::jit::Stack &stack) {
  if (!op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  try {
    try {
      call_on_host(op, stack, {true, false});
    } catch (const c10::NotImplementedError &) {
      call_on_host(op, stack, {true, true});
    }
  } catch (const c10::Error &) {
    if (!raise_as_cpu(op, stack)) throw;
  }
}

// Has an out= argument a dtype that no operand has? Meta kernels let pass dtypes there that the CPU's refuse.
bool has_odd_output(const Packed &p) {
  if (!p.op.is_out) return false;
  size_t outputs = p.args[p.op.inputs].first;
  for (size_t i = outputs; i < p.tensors.size(); ++i) {
    bool known = false;
    for (size_t k = 0; k < outputs; ++k) known = known || p.tensors[k].dtype == p.tensors[i].dtype;
    if (!known && !(p.tensors[i].flags & ATEN_UNDEFINED)) return true;
  }
  return false;
}

// Such an out= argument on the CPU, with zeros or, where the tensors are large, a few ones. What the CPU refuses without
// out= as well, it refuses for the values.
void check_output_as_cpu(const Operator &op, const torch::jit::Stack &stack) {
  if (!op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  size_t base = stack.size() - op.kinds.size();
  HostArguments stand_ins{false, false};
  constexpr int64_t most = 1 << 16;
  for (size_t i = 0; i < op.inputs; ++i)
    if (stack[base + i].isTensor() && stack[base + i].toTensor().defined())
      stand_ins.small = stand_ins.small || stack[base + i].toTensor().numel() > most;
  try {
    call_on_host(op, stack, stand_ins);
  } catch (const c10::Error &) {
    auto plain = find_operator(op.op.row->name);
    if (!plain.has_value() || plain->schema().arguments().size() != op.inputs) return;
    torch::jit::Stack host;
    for (size_t i = 0; i < op.inputs; ++i)
      host.push_back(map_tensors(stack[base + i], c10::Device(c10::kCPU), stand_ins));
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      plain->callBoxed(host);
    } catch (const c10::Error &) {
      return;
    }
    throw;
  }
}

// Has it a Meta kernel of its own, not the one that raises for all that have none?
bool has_meta(const c10::OperatorHandle &handle) {
  return handle.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
         handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// Is a 0-d CPU tensor among the operands? Meta kernels in Python take them for operands of a wrong device.
bool has_host_number(const Packed &p) {
  for (const aten_tensor &t : p.tensors)
    if ((t.flags & (ATEN_NUMBER | ATEN_WRAPPED)) == ATEN_NUMBER) return true;
  return false;
}

// May Meta refuse what the CPU takes? Its kernels in Python also refuse what is not deterministic on CUDA.
bool is_meta_strict(const Packed &p) {
  return p.op.is_out || has_host_number(p) || !has_meta(p.op.handle) || at::globalContext().deterministicAlgorithms();
}

// PyTorch's own Meta kernel on stand-ins without storage: it finds the results' metadata and raises PyTorch's errors. Where
// only Meta refuses an out= argument, a 0-d CPU operand or an order, and where there is no Meta, the CPU's results say.
void ask_meta(const Packed &p, const torch::jit::Stack &stack, Shapes &shapes) {
  const Operator &op = p.op;
  size_t n = op.kinds.size(), base = stack.size() - n;
  if (op.return_alias.empty() && !has_meta(op.handle)) {
    for (uint32_t arg : op.mutated) push_shapes(shapes, stack[base + arg]); // it writes its arguments and nothing else
    return;
  }
  torch::jit::Stack meta, arguments;
  auto run = [&](bool empty_outputs) {
    meta.clear();
    meta.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      bool is_output = empty_outputs && i >= op.inputs;
      meta.push_back(map_tensors(stack[base + i], c10::Device(c10::kMeta), is_output ? to_empty_meta : to_meta));
    }
    arguments = meta;
    at::AutoDispatchBelowADInplaceOrView below;
    op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  };
  try {
    try {
      run(op.is_out);
    } catch (...) {
      if (!op.is_out) throw;
      run(false); // a few (normal.float_float_out) want their out= argument in the right size
    }
  } catch (...) {
    std::optional<torch::jit::Stack> results = raise_as_cpu(op, stack);
    if (!is_meta_strict(p) || !results.has_value()) throw;
    meta = *results;
  }
  if (op.op.row->flags & ATEN_CHECKED) check_as_cpu(op, stack);
  if (has_odd_output(p)) check_output_as_cpu(op, stack);
  for (const c10::IValue &v : meta) push_shapes(shapes, v);
  for (uint32_t arg : op.mutated) push_shapes(shapes, arguments[arg]);
}

// How many results a list of them has: one for each element of the call's first list.
size_t list_length(const aten_call &call) {
  for (uint32_t i = 0; i < call.arg_count; ++i)
    if (call.args[i].kind == ATEN_TENSORS || call.args[i].kind == ATEN_INTS) return call.args[i].count;
  return 0;
}

// The row's own shape function speaks of the functional form; results that are arguments must fit it, out= arguments in
// their dtype. Arguments that are mutated but not returned keep their sizes.
bool ask_row(const aten_call &call, const Packed &p, Shapes &shapes) {
  const Operator &op = p.op;
  if (op.op.row->shape == nullptr) return false;
  size_t n = op.return_alias.size() + (op.op.row->flags & ATEN_DYNAMIC ? 1 : 0);
  for (bool is_list : op.return_is_list)
    if (is_list) n += list_length(call) - 1;
  if (!op.op.row->shape(&call, shapes.expect(static_cast<uint32_t>(n)))) {
    shapes.clear();
    return false;
  }
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (op.return_alias[i] < 0) continue;
    const aten_tensor &t = p.tensors[p.args[op.return_alias[i]].first];
    bool fits = op.is_out || (t.rank == shapes[i].rank && std::equal(t.sizes, t.sizes + t.rank, shapes[i].sizes));
    if (t.dtype != shapes[i].dtype || !fits) {
      shapes.clear();
      return false;
    }
    if (!op.is_out) std::copy(t.strides, t.strides + t.rank, shapes[i].strides);
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

// Is a dtype among them that no program has (complex32)? Of most operators PyTorch's CPU has no kernel for it, which Meta and
// the rows do not know.
bool has_tensor_dtype(const Packed &p, Shapes &shapes) {
  for (const aten_tensor &t : p.tensors)
    if (t.dtype >= TTPU_DTYPE_COUNT) return true;
  return std::any_of(shapes.data(), shapes.data() + shapes.count,
                     [](const aten_shape &s) { return s.dtype >= TTPU_DTYPE_COUNT; });
}

// Calls on stand-ins draw no numbers of the user's.
struct KeptGenerator {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor state = generator.get_state();
  ~KeptGenerator() { generator.set_state(state); }
};

} // namespace

c10::IValue map_tensors(const c10::IValue &v, std::optional<c10::Device> device,
                        c10::function_ref<at::Tensor(const at::Tensor &)> f) {
  if (v.isTensor()) return f(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue &e : v.toListRef()) list.push_back(f(e.toTensor()));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue &e : v.toListRef())
      list.push_back(e.isNone() ? std::optional<at::Tensor>() : f(e.toTensor()));
    return list;
  }
  if (device.has_value() && v.isDevice()) return *device;
  if (device.has_value() && v.isGenerator()) return c10::IValue(); // it belongs to the device that was left
  return v;
}

static void ask(const Packed &p, const aten_call &call, Box box, Shapes &shapes) {
  shapes.clear();
  check(aten_call_check(&call));
  bool by_row = ask_row(call, p, shapes), tensors_alone = by_row && has_tensor_dtype(p, shapes);
  if (by_row && !tensors_alone) return;
  Silence silence;
  c10::WarningUtils::WarningHandlerGuard guard(&silence);
  torch::jit::Stack stack = box();
  if (!by_row) {
    if (p.op.op.row->flags & ATEN_COMPLETE) raise_as_cpu(p.op, stack);
    ask_meta(p, stack, shapes);
    tensors_alone = has_tensor_dtype(p, shapes);
  }
  if (!tensors_alone) return;
  KeptGenerator kept;
  check_as_cpu(p.op, stack);
}

// The key of a call whose lists are data: they decide sizes, which stand in the key for them. Nothing is kept.
static base_hash128 key_by_sizes(base_hash128 key, Shapes &shapes) {
  for (uint32_t i = 0; i < shapes.count; ++i)
    for (uint32_t d = 0; d < shapes[i].rank; ++d) key = base_mix128(key, static_cast<uint64_t>(shapes[i].sizes[d]));
  return key;
}

base_hash128 find_shapes(const Packed &p, const aten_call &call, Box box, Shapes &shapes) {
  base_hash128 key = rt_meta_key(&p.op.op, &call, static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  if (p.op.op.row->flags & ATEN_LISTS) {
    ask(p, call, box, shapes);
    return key_by_sizes(key, shapes);
  }
  shapes.clear();
  uint32_t count = 0;
  if (rt_meta_get(key, &count, shapes.room(), Shapes::kSmall)) {
    shapes.count = count;
    return key;
  }
  if (count > 0 && rt_meta_get(key, &count, shapes.expect(count), count)) return key;
  ask(p, call, box, shapes);
  rt_meta_put(key, shapes.count, shapes.data());
  return key;
}

} // namespace ttpu
