// Graphs of torch.compile: a Python function over tensors, recorded as one program for each sizes it is called with.
#include "torch/capture.h"
#include "torch/glue.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <bit>
#include <list>
#include <unordered_map>

namespace py = pybind11;

namespace ttpu {
namespace {

// A tensor over a storage that exists.
struct Shape {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  bool conjugate, negative;
};

Shape shape_of(const at::Tensor &t) {
  return {t.scalar_type(), t.sizes().vec(), t.strides().vec(), t.storage_offset(), t.is_conj(), t.is_neg()};
}

at::Tensor tensor_over(const c10::Storage &storage, const Shape &s) {
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(s.dtype));
  t.unsafeGetTensorImpl()->set_storage_offset(s.offset);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(s.sizes, s.strides);
  if (s.conjugate) t._set_conj(true);
  if (s.negative) t._set_neg(true);
  return t;
}

// One of the function's results: a tensor over a storage, by number among the arguments' storages and then the new ones;
// an argument itself; or any other object, the same each time.
struct Result {
  enum { Tensor, Argument, Object } kind;
  uint32_t number = 0;
  Shape shape;
  py::object object;
};

// The function for arguments of one kind.
struct Variant {
  rt_graph *graph = nullptr; // null: it has to be called each time
  c10::DeviceIndex device = 0;
  std::vector<size_t> new_storages; // bytes
  std::vector<Result> results;
  std::vector<uint32_t> written; // arguments
  ~Variant() {
    if (graph != nullptr) rt_graph_free(graph);
  }
};

struct KeyHash {
  size_t operator()(const std::pair<uint64_t, uint64_t> &key) const { return key.first; }
};

// The call's arguments: tensors with their storages, and a hash of everything else. A new number is recorded anew and
// compiles nothing: numbers are no part of a program.
struct Arguments {
  explicit Arguments(const py::list &list) {
    for (const py::handle &item : list) add(item);
    if (!fits || storages.empty()) return;
    base_hash128 values = rt_graph_key(static_cast<uint32_t>(storages.size()), storages.data());
    key = base_mix128(base_mix128(key, values.a), values.b);
  }

  std::vector<at::Tensor> tensors, numbers; // on the device; 0-d on the CPU
  std::vector<rt_storage *> storages;
  c10::DeviceIndex device = -1;
  base_hash128 key{1, 2};
  bool fits = true; // nothing that would have to be read each time

 private:
  void add(const py::handle &item) {
    if (THPVariable_Check(item.ptr())) return add_tensor(THPVariable_Unpack(item.ptr()));
    if (item.is_none()) return mix(0);
    if (PyLong_Check(item.ptr())) return mix(static_cast<uint64_t>(PyLong_AsLongLong(item.ptr())));
    if (PyFloat_Check(item.ptr())) return mix(std::bit_cast<uint64_t>(PyFloat_AsDouble(item.ptr())));
    fits = false;
  }

  // A 0-d tensor on the CPU is a number like Python's; a larger one would have to be copied each time.
  void add_number(const at::Tensor &t) {
    mix(static_cast<uint64_t>(t.scalar_type()) | 1u << 20);
    uint64_t words[2] = {0, 0};
    memcpy(words, t.const_data_ptr(), t.element_size());
    mix(words[0]), mix(words[1]);
    numbers.push_back(t);
  }

  void add_tensor(const at::Tensor &t) {
    if (t.defined() && t.is_cpu() && t.dim() == 0 && t.layout() == c10::kStrided && t.element_size() <= 16)
      return add_number(t);
    bool ours = t.defined() && t.device().type() == kTpu && t.layout() == c10::kStrided &&
                (device < 0 || device == t.device().index()) && is_whole_storage(t.storage().data_ptr());
    fits = fits && ours;
    if (!fits) return;
    device = t.device().index();
    mix(static_cast<uint64_t>(t.scalar_type()) | static_cast<uint64_t>(t.dim()) << 8 |
        static_cast<uint64_t>(t.is_conj()) << 16 | static_cast<uint64_t>(t.is_neg()) << 17);
    for (int64_t n : t.sizes()) mix(static_cast<uint64_t>(n));
    for (int64_t n : t.strides()) mix(static_cast<uint64_t>(n));
    mix(static_cast<uint64_t>(t.storage_offset()));
    mix(t.storage().nbytes());
    storages.push_back(storage_of(t));
    tensors.push_back(t);
  }

  void mix(uint64_t v) { key = base_mix128(key, v); }
};

// What decides about a program beside its arguments: matmul precision, the default dtype, deterministic algorithms.
base_hash128 with_settings(base_hash128 key) {
  const at::Context &c = at::globalContext();
  uint64_t settings = static_cast<uint64_t>(c.float32MatmulPrecision()) |
                      static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8 |
                      static_cast<uint64_t>(c.deterministicAlgorithms()) << 16;
  return base_mix128(key, settings);
}

// The function sets locations as it goes; afterwards there is none.
struct Locations {
  ~Locations() { rt_set_location(nullptr); }
};

class Graph {
 public:
  // watch: called with the StableHLO of each program that is made, or None.
  Graph(py::object function, py::object watch) : function_(std::move(function)), watch_(std::move(watch)) {}

  py::object call(py::list list) {
    initialize();
    Locations locations;
    Arguments a(list);
    if (!a.fits || a.tensors.empty() || rt_get_mode() != RT_FUSED) return function_(*list);
    if (rt_is_capturing(static_cast<uint32_t>(a.device))) return function_(*list); // into the larger program
    base_hash128 hash = with_settings(a.key);
    std::pair<uint64_t, uint64_t> key(hash.a, hash.b);
    auto found = variants_.find(key);
    if (found == variants_.end()) return record(key, list, a);
    order_.splice(order_.begin(), order_, found->second.second);
    Variant &v = *found->second.first;
    return v.graph == nullptr ? function_(*list) : run(v, list, a);
  }

  size_t variants() const { return variants_.size(); }

 private:
  using Key = std::pair<uint64_t, uint64_t>;
  static constexpr size_t kMostVariants = 256;

  py::object record(const Key &key, const py::list &list, Arguments &a);
  py::object run(Variant &v, const py::list &list, Arguments &a);
  void describe(Variant &v, const py::sequence &results, const py::list &list, std::vector<rt_storage *> &storages);
  void keep(const Key &key, std::unique_ptr<Variant> v);
  void show(rt_graph *graph);

  py::object function_, watch_;
  std::list<Key> order_; // by last use
  std::unordered_map<Key, std::pair<std::unique_ptr<Variant>, std::list<Key>::iterator>, KeyHash> variants_;
};

void Graph::keep(const Key &key, std::unique_ptr<Variant> v) {
  if (variants_.size() == kMostVariants) {
    variants_.erase(order_.back());
    order_.pop_back();
  }
  order_.push_front(key);
  variants_.emplace(key, std::make_pair(std::move(v), order_.begin()));
}

// How to make the results again. A tensor that is not on the device has to be computed each time.
void Graph::describe(Variant &v, const py::sequence &results, const py::list &list,
                     std::vector<rt_storage *> &storages) {
  for (const py::handle &item : results) {
    Result r{Result::Object, 0, {}, py::reinterpret_borrow<py::object>(item)};
    for (uint32_t i = 0; i < list.size(); ++i)
      if (THPVariable_Check(item.ptr()) && list[i].ptr() == item.ptr()) r = {Result::Argument, i, {}, {}};
    if (r.kind == Result::Object && THPVariable_Check(item.ptr())) {
      const at::Tensor &t = THPVariable_Unpack(item.ptr());
      if (t.device().type() != kTpu || t.layout() != c10::kStrided || !is_whole_storage(t.storage().data_ptr())) {
        storages.clear();
        return;
      }
      uint32_t number = 0;
      while (number < storages.size() && storages[number] != storage_of(t)) ++number;
      if (number == storages.size()) {
        storages.push_back(storage_of(t));
        v.new_storages.push_back(t.storage().nbytes());
      }
      r = {Result::Tensor, number, shape_of(t), {}};
    }
    v.results.push_back(std::move(r));
  }
}

void Graph::show(rt_graph *graph) {
  base_text text{};
  rt_graph_take_text(graph, &text);
  py::str shown = py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data == nullptr ? "" : text.data, static_cast<Py_ssize_t>(text.length), "replace"));
  base_text_free(&text);
  watch_(shown);
}

// In Philox counters, of which PyTorch counts four as one offset.
uint64_t random_offset(c10::DeviceIndex device) { return (default_generator(device).get_offset() + 3) / 4; }

// By which one knows what the function has written.
std::vector<uint32_t> versions_of(const std::vector<at::Tensor> &tensors) {
  std::vector<uint32_t> versions;
  for (const at::Tensor &t : tensors) versions.push_back(t.is_inference() ? 0 : t._version());
  return versions;
}

py::object Graph::record(const Key &key, const py::list &list, Arguments &a) {
  auto v = std::make_unique<Variant>();
  v->device = a.device;
  rt_recording *recording = nullptr;
  uint32_t count = static_cast<uint32_t>(a.storages.size());
  ttpu_status status =
      rt_graph_begin(static_cast<uint32_t>(a.device), count, a.storages.data(), !watch_.is_none(), &recording);
  if (status == TTPU_FAILED_PRECONDITION) return function_(*list); // within a graph that is recorded
  check(status);
  std::optional<RecordingMark> mark(std::in_place);
  std::vector<rt_storage *> storages = a.storages;
  std::vector<uint32_t> before = versions_of(a.tensors), numbers_before = versions_of(a.numbers);
  py::object results;
  try {
    results = function_(*list);
    describe(*v, results, list, storages);
  } catch (...) {
    rt_graph *none = nullptr;
    (void)rt_graph_end(recording, 0, nullptr, 0, &none);
    if (none != nullptr) rt_graph_free(none);
    throw;
  }
  mark.reset();
  {
    py::gil_scoped_release release;
    status = rt_graph_end(recording, static_cast<uint32_t>(storages.size()), storages.data(), random_offset(a.device),
                          &v->graph);
  }
  check(status);
  if (v->graph != nullptr && !watch_.is_none()) show(v->graph);
  bool changes = storages.empty() || versions_of(a.numbers) != numbers_before; // what has to be computed each time
  if (changes && v->graph != nullptr) {
    rt_graph_free(v->graph);
    v->graph = nullptr;
  }
  std::vector<uint32_t> after = versions_of(a.tensors);
  for (uint32_t i = 0; i < count; ++i)
    if (after[i] != before[i]) v->written.push_back(i);
  keep(key, std::move(v));
  return results;
}

py::object Graph::run(Variant &v, const py::list &list, Arguments &a) {
  std::vector<rt_storage *> storages = a.storages;
  std::vector<c10::Storage> made;
  for (size_t bytes : v.new_storages) {
    made.push_back(make_storage(v.device, bytes));
    storages.push_back(static_cast<rt_storage *>(made.back().data_ptr().get_context()));
  }
  uint64_t drawn = rt_graph_random_drawn(v.graph);
  rt_random random = drawn > 0 ? draw(std::nullopt, v.device, drawn) : rt_random{};
  ttpu_status status;
  {
    py::gil_scoped_release release;
    status = rt_graph_run(v.graph, storages.data(), random);
  }
  check(status);
  for (uint32_t i : v.written)
    if (!a.tensors[i].is_inference()) a.tensors[i].unsafeGetTensorImpl()->bump_version();
  py::tuple results(v.results.size());
  for (size_t i = 0; i < v.results.size(); ++i) {
    const Result &r = v.results[i];
    const size_t given = a.tensors.size(); // their storages come first
    if (r.kind == Result::Argument) results[i] = list[r.number];
    else if (r.kind == Result::Object) results[i] = r.object;
    else {
      const c10::Storage &storage = r.number < given ? a.tensors[r.number].storage() : made[r.number - given];
      results[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor_over(storage, r.shape)));
    }
  }
  return results;
}

} // namespace

void register_graph(py::module_ &m) {
  m.def("set_location", [](const py::str &location) { // graphs name it as a constant, which lives as long as they
    const char *text = PyUnicode_AsUTF8(location.ptr());
    if (text == nullptr) throw py::error_already_set();
    rt_set_location(*text != '\0' ? text : nullptr);
  });
  py::class_<Graph>(m, "Graph")
      .def(py::init<py::object, py::object>(), py::arg("function"), py::arg("watch") = py::none())
      .def("__call__", &Graph::call)
      .def_property_readonly("variants", &Graph::variants);
}

} // namespace ttpu
