// One call of an operator: pack the arguments, make the results, record.
#include "torch/call.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

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
    if (row->flags & ATEN_DYNAMIC && args[i].name() == "dim") cut_dim_argument = static_cast<int>(i);
    if (args[i].is_out()) is_out = true;
    else inputs = static_cast<uint32_t>(i + 1);
    if (kinds.back() == ArgKind::Text) has_text = true;
  }
}

// ---- packing ----

Packed::Packed(const Operator &op_) : op(op_) {
  if (op.has_text) text_owners.reserve(op.kinds.size()); // the texts' addresses must not move
}

aten_call Packed::view() const {
  aten_call c{};
  c.row = op.op.row;
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

[[noreturn]] static void raise_device(const Operator &op, size_t arg, const at::Tensor &t, c10::DeviceIndex device) {
  const std::string &name = op.handle.schema().arguments()[arg].name();
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ", name, " is on ", t.device(),
              ", different from other tensors on tpu:", static_cast<int>(device),
              " (when checking argument in method wrapper_TPU_", op.name, ")");
}

void Packed::add_tensor(const at::Tensor &t) {
  aten_tensor m{};
  rt_storage *storage = nullptr;
  if (!t.defined()) {
    m.flags = ATEN_UNDEFINED;
  } else {
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    is_special = is_special || impl->dim() > TTPU_MAX_RANK;
    m.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    m.rank = static_cast<uint8_t>(impl->dim());
    constexpr c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
    is_special = is_special || impl->key_set().has_any(bits);
    c10::Device where = impl->device();
    if (where.type() == kTpu) {
      if (device < 0) device = where.index();
      else if (device != where.index()) raise_device(op, args.size(), t, device);
      m.sizes = impl->sizes().data();
      m.strides = impl->strides().data();
      Place place = place_of(impl);
      m.offset = offset_in(place, impl);
      storage = place.storage;
    } else {
      if (!where.is_cpu() || impl->dim() != 0) {
        for (const auto *other : originals)
          if (device < 0 && other->defined() && other->device().type() == kTpu) device = other->device().index();
        raise_device(op, args.size(), t, device < 0 ? current_device() : device);
      }
      m.flags = static_cast<uint8_t>(ATEN_NUMBER | (impl->is_wrapped_number() ? ATEN_WRAPPED : 0));
      m.number = base_scalar_load(static_cast<ttpu_dtype>(m.dtype), t.const_data_ptr());
    }
  }
  tensors.push_back(m);
  storages.push_back(storage);
  originals.push_back(&t);
}

void Packed::tensor(const at::Tensor &t) {
  size_t first = tensors.size();
  add_tensor(t);
  push(ATEN_TENSOR, first, 1);
}

void Packed::tensor_ivalues(c10::ArrayRef<c10::IValue> list) {
  static const at::Tensor undefined;
  size_t first = tensors.size();
  // The elements live on the stack: no tensor is copied.
  for (const c10::IValue &e : list) add_tensor(e.isNone() ? undefined : e.toTensor());
  push(ATEN_TENSORS, first, tensors.size() - first);
}

void Packed::integer(int64_t v) {
  push(ATEN_INT, ints.size(), 0);
  ints.push_back(v);
}

void Packed::integers(c10::ArrayRef<int64_t> list) {
  if (op.op.row->flags & ATEN_LISTS) { // numbers like its Scalars
    push(ATEN_SCALARS, numbers.size(), list.size());
    for (int64_t e : list) numbers.push_back(number_of(e));
    return;
  }
  push(ATEN_INTS, ints.size(), list.size());
  ints.append(list.begin(), list.end());
}

// An exact 1 that its row wants left out, such as an alpha. Integers may refuse 1.0, so beside them it stays.
bool Packed::is_one(const aten_number &n) const {
  if (n.dtype == TTPU_I64) return n.value.i == 1;
  bool among_integers = !tensors.empty() && base_dtype_is_integer(static_cast<ttpu_dtype>(tensors[0].dtype));
  return n.dtype == TTPU_F64 && n.value.d[0] == 1 && !among_integers;
}

void Packed::number(ArgKind kind, const aten_number &n) {
  size_t i = args.size();
  if (i < 32 && (op.op.row->units >> i & 1) && is_one(n)) return none();
  push(kind == ArgKind::Float ? ATEN_FLOAT : ATEN_SCALAR, numbers.size(), 0);
  numbers.push_back(n);
}

void Packed::text(std::string_view v) {
  push(ATEN_TEXT, texts.size(), 0);
  text_owners.emplace_back(v);
  texts.push_back(text_owners.back().c_str());
}

void Packed::device_argument(c10::Device d) {
  other();
  if (d.type() == kTpu && device < 0) device = d.has_index() ? d.index() : current_device();
}

aten_number number_of(const at::Scalar &v) {
  aten_number n{};
  if (v.isFloatingPoint()) {
    n.dtype = TTPU_F64;
    n.value.d[0] = v.toDouble();
  } else if (v.isBoolean()) {
    n.dtype = TTPU_BOOL;
    n.value.i = v.toBool();
  } else if (v.isIntegral(false)) {
    n.dtype = TTPU_I64;
    n.value.i = v.isSymbolic() ? v.toSymInt().guard_int(__FILE__, __LINE__) : v.to<int64_t>();
  } else {
    TORCH_CHECK_TYPE(v.isComplex(), "expected a number, got ", v.type());
    n.dtype = TTPU_C128;
    n.value.d[0] = v.toComplexDouble().real();
    n.value.d[1] = v.toComplexDouble().imag();
  }
  return n;
}

namespace {

int64_t int_of(const c10::IValue &v) {
  if (v.isInt()) return v.toInt();
  if (v.isBool()) return v.toBool();
  if (v.isSymInt()) return v.toSymInt().guard_int(__FILE__, __LINE__);
  return v.toInt();
}

void pack_numbers(Packed &p, ArgKind kind, const c10::IValue &v) {
  size_t first = p.numbers.size();
  if (v.isDoubleList()) {
    for (double e : v.toDoubleList()) p.numbers.push_back(number_of(e));
  } else {
    for (const c10::IValue &e : v.toListRef()) p.numbers.push_back(number_of(e.toScalar()));
  }
  p.push(kind == ArgKind::FloatList ? ATEN_FLOATS : ATEN_SCALARS, first, p.numbers.size() - first);
}

void pack_ints(Packed &p, const c10::IValue &v) {
  c10::SmallVector<int64_t, 8> list;
  if (v.isIntList()) {
    for (int64_t e : v.toIntList()) list.push_back(e);
  } else if (v.isBoolList()) {
    for (bool e : v.toBoolList()) list.push_back(e);
  } else {
    for (const c10::IValue &e : v.toListRef()) list.push_back(int_of(e));
  }
  p.integers(list);
}

void pack(Packed &p, const torch::jit::Stack &stack) {
  size_t n = p.op.kinds.size(), base = stack.size() - n;
  for (size_t i = 0; i < n; ++i) {
    const c10::IValue &v = stack[base + i];
    ArgKind kind = p.op.kinds[i];
    if (v.isNone() && kind != ArgKind::Other) {
      p.none();
      continue;
    }
    switch (kind) {
      case ArgKind::Tensor: p.tensor(v.toTensor()); break;
      case ArgKind::TensorList: p.tensor_ivalues(v.toListRef()); break;
      case ArgKind::Int:
      case ArgKind::Bool: p.integer(int_of(v)); break;
      case ArgKind::Dtype: p.integer(dtype_of(v.toScalarType())); break;
      case ArgKind::IntList:
      case ArgKind::BoolList: pack_ints(p, v); break;
      case ArgKind::Float:
      case ArgKind::Scalar: p.number(kind, number_of(v.toScalar())); break;
      case ArgKind::FloatList:
      case ArgKind::ScalarList: pack_numbers(p, kind, v); break;
      case ArgKind::Text: p.text(v.toStringView()); break;
      case ArgKind::Generator:
        p.other();
        if (v.toGenerator().defined()) p.generator = v.toGenerator();
        break;
      case ArgKind::Other:
        if (v.isDevice()) p.device_argument(v.toDevice());
        else p.other();
        break;
    }
  }
}

// ---- results ----

void push_result(Results &r, at::Tensor t) {
  rt_tensor out{};
  if (t.defined()) {
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    Place place = place_of(impl);
    out.storage = place.storage;
    out.meta.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    out.meta.rank = static_cast<uint8_t>(impl->dim());
    out.meta.sizes = impl->sizes().data();
    out.meta.strides = impl->strides().data();
    out.meta.offset = offset_in(place, impl);
  } else {
    out.meta.flags = ATEN_UNDEFINED;
  }
  r.tensors.push_back(out);
  r.owned.push_back(std::move(t));
}

// An out= argument whose sizes are not the result's: resized, with PyTorch's warning if it had elements.
void resize_output(const Packed &p, const at::Tensor &t, const aten_shape &shape) {
  c10::IntArrayRef sizes(shape.sizes, shape.rank);
  for (size_t i = 0; i < p.args[p.op.inputs].first; ++i)
    TORCH_CHECK(!p.originals[i]->is_same(t), "output with shape ", t.sizes(), " doesn't match the broadcast shape ",
                sizes);
  if (p.op.op.row->flags & ATEN_COUNTED) {
    if (t.numel() > 0)
      TORCH_WARN(
          "The number of elements in the out tensor of shape ", t.sizes(), " is ", t.numel(),
          " which does not match the computed number of elements ", sizes[0],
          ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of "
          "shape (",
          sizes[0], ",).");
  } else {
    at::native::resize_output_check(t, sizes);
  }
  resize_tensor(t, sizes, c10::IntArrayRef(shape.strides, shape.rank));
}

// An argument that receives a result.
void push_argument(Results &r, const Packed &p, const at::Tensor &t, const aten_shape &shape) {
  const Operator &op = p.op;
  if (t.defined()) {
    TORCH_CHECK(t.device().type() == kTpu, op.name, ": a result cannot be written to a tensor on ", t.device());
    if (op.is_out && shape.dtype != TTPU_NO_DTYPE && t.sizes() != c10::IntArrayRef(shape.sizes, shape.rank))
      resize_output(p, t, shape);
    if (!(op.op.row->flags & ATEN_UNIFORM)) at::assert_no_internal_overlap(t);
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

// Refuses a written argument that shares some but not all of its elements with one that is read, as the CPU does; of
// ATEN_APART rows, any element with one that is not self.
void check_overlap(const Packed &p, const at::Tensor &written) {
  if (!written.defined()) return;
  const rt_storage *storage = storage_of(written);
  bool apart = (p.op.op.row->flags & ATEN_APART) != 0;
  for (size_t i = 0; i < p.storages.size(); ++i) {
    if (p.storages[i] != storage || p.originals[i] == &written) continue;
    if (apart && i > 0) at::assert_no_overlap(written, *p.originals[i]);
    else at::assert_no_partial_overlap(written, *p.originals[i]);
  }
}

// The same of what is written in place, before anything else is asked of the call: PyTorch's kernels look at memory first.
void check_overlaps(const Packed &p) {
  const Operator &op = p.op;
  if (op.is_out) return;
  for (size_t i = 0; i < op.return_alias.size(); ++i)
    if (op.return_alias[i] >= 0 && !op.return_is_list[i])
      check_overlap(p, *p.originals[p.args[op.return_alias[i]].first]);
}

// Refuses an out= argument of a dynamic row that shares any element with an operand, as the CPU does.
void check_disjoint(const Packed &p, const at::Tensor &out) {
  for (const at::Tensor *t : p.originals)
    if (t != &out && t->defined() && t->device() == out.device()) at::assert_no_overlap(out, *t);
}

// Is result i cut to a count that the device finds? An out= argument then receives a copy when the count is known.
bool is_dynamic(const Operator &op, size_t i) {
  return (op.op.row->flags & ATEN_DYNAMIC) != 0 && (op.op.row->dynamic >> i & 1) != 0;
}

void make_results(Results &r, const Packed &p) {
  const Operator &op = p.op;
  Shapes &shapes = r.shapes;
  size_t at = 0, fixed = 0;
  for (bool is_list : op.return_is_list) fixed += !is_list;
  for (uint32_t arg : op.mutated) fixed += p.args[arg].kind == ATEN_TENSORS ? p.args[arg].count : 1;
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    size_t count = op.return_is_list[i] ? shapes.count - fixed : 1;
    for (size_t k = 0; k < count; ++k, ++at) {
      if (op.return_alias[i] >= 0 && !is_dynamic(op, i)) {
        if (op.is_out && !op.return_is_list[i]) check_overlap(p, *p.originals[p.args[op.return_alias[i]].first]);
        push_argument(r, p, *p.originals[p.args[op.return_alias[i]].first + k], shapes[at]);
      } else {
        if (op.return_alias[i] >= 0) check_disjoint(p, *p.originals[p.args[op.return_alias[i]].first]);
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
      push_argument(r, p, *p.originals[p.args[arg].first + k], shapes[at]);
  }
  if (op.op.row->flags & ATEN_DYNAMIC) push_result(r, make_tensor(p.device, TTPU_I64, {}, {}));
}

// Cuts the results of a dynamic row to the count that the device found: the one host read of such operators. They are cut
// along their first dimension, or, slices of a tensor, along the call's `dim`.
void cut_dynamic(const Packed &p, Results &r) {
  const Operator &op = p.op;
  int64_t count = 0, dim = 0;
  if (op.cut_dim_argument >= 0 && p.args[op.cut_dim_argument].kind == ATEN_INT)
    dim = p.ints[p.args[op.cut_dim_argument].first];
  check(rt_storage_read(r.tensors.back().storage, 0, &count, sizeof count));
  for (size_t i = 0; i < op.return_alias.size(); ++i) {
    if (!is_dynamic(op, i)) continue;
    at::Tensor &most = r.owned[i];
    int64_t along = most.dim() > 1 ? dim : 0, size = most.size(along);
    bool unasked = size == 0; // counts that nobody asked for
    at::Tensor cut = unasked || count == size ? most : most.narrow(along, 0, count);
    if (op.return_alias[i] < 0) {
      if (!cut.is_same(most)) most = cut.clone();
      continue;
    }
    at::Tensor out = *p.originals[p.args[op.return_alias[i]].first];
    if (at::native::resize_output_check(out, cut.sizes())) resize_tensor(out, cut.sizes(), cut.strides());
    at::assert_no_internal_overlap(out);
    most = out.copy_(cut);
  }
}

ir_precision product_precision() {
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::MEDIUM: return IR_PRECISION_DEFAULT;
    case at::Float32MatmulPrecision::HIGH: return IR_PRECISION_HIGH;
    default: return IR_PRECISION_HIGHEST;
  }
}

void replace_stack(const Operator &op, Results &r, torch::jit::Stack *stack) {
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
      torch::jit::push(*stack, r.shapes[at++].sizes[0]);
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
    bool writes = is_written(op.handle.schema().arguments()[i]);
    v = map_tensors(v, std::nullopt, [&](const at::Tensor &given) {
      if (!given.defined()) return given;
      at::Tensor resolved = materialise(given);
      if (writes && !resolved.is_same(given)) written.emplace_back(given, resolved);
      return resolved;
    });
  }
  call(op, stack);
  for (auto &[given, resolved] : written) {
    given.copy_(resolved);
    for (size_t i = base; i < stack->size(); ++i)
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().is_same(resolved)) (*stack)[i] = given;
  }
}

// The call of which a tensor is special.
void call_special(const Operator &op, const Packed &p, torch::jit::Stack *stack) {
  bool has_bits = false;
  for (const at::Tensor *t : p.originals) has_bits |= t->defined() && (t->is_conj() || t->is_neg());
  if (has_bits) call_resolved(op, stack);
  else call_deep(op, stack);
}

// Written tensors of a list are new versions of themselves: PyTorch says so for single tensors, and leaves lists to the kernel.
void bump_versions(const Operator &op, const Packed &p) {
  for (uint32_t arg : op.mutated) {
    if (p.args[arg].kind != ATEN_TENSORS) continue;
    for (uint32_t k = 0; k < p.args[arg].count; ++k) {
      const at::Tensor &t = *p.originals[p.args[arg].first + k];
      if (t.defined() && !t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
    }
  }
}

} // namespace

void record(Packed &p, Box box, Results &r) {
  const Operator &op = p.op;
  if (p.device < 0) p.device = current_device();
  check_overlaps(p);
  aten_call c = p.view();
  base_hash128 key = find_shapes(p, c, box, r.shapes);
  make_results(r, p);
  drop_outputs(op, c);
  rt_call request{};
  request.call = c;
  request.storages = p.storages.data();
  request.key = key;
  if (op.op.row->flags & ATEN_PRODUCT) request.precision = product_precision();
  if (op.op.row->flags & ATEN_RNG) {
    c10::SmallVector<aten_tensor, 4> metas;
    for (const rt_tensor &t : r.tensors) metas.push_back(t.meta);
    char warning[ATEN_WARNING];
    check(aten_random_check(&c, metas.data(), warning));
    if (warning[0] != 0) TORCH_WARN(warning);
    request.random = draw(p.generator, p.device, aten_random_counters(&c, metas.data()));
  }
  check(rt_record(static_cast<uint32_t>(p.device), &op.op, &request, static_cast<uint32_t>(r.tensors.size()),
                  r.tensors.data()));
  bump_versions(op, p);
  if (op.op.row->flags & ATEN_DYNAMIC) {
    cut_dynamic(p, r);
    r.owned.pop_back();
  }
}

void call(const Operator &op, torch::jit::Stack *stack) {
  initialize();
  Packed p(op);
  pack(p, *stack);
  if (p.is_special) return call_special(op, p, stack);
  Results r;
  record(p, [stack] { return *stack; }, r);
  replace_stack(op, r, stack);
}

} // namespace ttpu
