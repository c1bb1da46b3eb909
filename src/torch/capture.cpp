// Capturing what Python code records as one program, for torch_tpu.aot.
#include "torch/capture.h"

#include "ir/select.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace ttpu {

std::vector<rt_storage *> storages_of(const py::list &tensors) {
  std::vector<rt_storage *> storages;
  for (const py::handle &t : tensors) {
    TORCH_CHECK_TYPE(THPVariable_Check(t.ptr()), "expected a list of tensors");
    const at::Tensor &tensor = THPVariable_Unpack(t.ptr());
    TORCH_CHECK(tensor.device().type() == kTpu, "expected a tensor on tpu, got one on ", tensor.device());
    storages.push_back(storage_of(tensor));
  }
  return storages;
}

namespace {

const std::string kRecording = "ttpu_recording"; // what PyTorch hands on from thread to thread, by name

void *pause_python() { return PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void resume_python(void *paused) {
  if (paused != nullptr) PyEval_RestoreThread(static_cast<PyThreadState *>(paused));
}

} // namespace

bool is_recording() { return at::impl::ThreadLocalPythonObjects::contains(kRecording); }

// Before waiting the runtime lets go of Python's lock.
static void follow_threads() {
  static const rt_thread_hooks hooks{is_recording, pause_python, resume_python};
  rt_set_thread_hooks(&hooks);
}

RecordingMark::RecordingMark() : set_(!is_recording()) {
  if (!set_) return;
  PyObject *none = py::none().release().ptr();
  at::impl::ThreadLocalPythonObjects::set(kRecording, std::make_shared<c10::SafePyObject>(none, getPyInterpreter()));
}

RecordingMark::~RecordingMark() {
  if (set_ && is_recording()) at::impl::ThreadLocalPythonObjects::erase(kRecording);
}

namespace {

// The text's bytes, which are freed; throws where it failed.
std::string take_text(ttpu_status status, base_text *text) {
  if (status == TTPU_OK && text->failed) status = base_no_memory(text->length);
  std::string result(text->data == nullptr ? "" : text->data, status == TTPU_OK ? text->length : 0);
  base_text_free(text);
  check(status);
  return result;
}

} // namespace

std::string select_text(const rt_captured &program, const Selection &wanted, std::string *artifact) {
  std::vector<ir_data> constants(program.argument_count, ir_data{nullptr, false});
  uint32_t at = program.argument_count - (program.f64_count > 0) - (program.i64_count > 0);
  if (program.f64_count > 0) constants[at++] = {program.f64s, false};
  if (program.i64_count > 0 && !wanted.random) constants[at] = {program.i64s, false};
  std::unique_ptr<bool[]> donate(new bool[program.argument_count + 1]());
  for (uint32_t i : wanted.donated) donate[i] = i < program.argument_count;
  std::vector<uint32_t> numbers;
  std::vector<ir_type> types;
  for (const auto &[number, sizes] : wanted.results) {
    TORCH_CHECK(number < program.result_count, "the program has no result ", number);
    numbers.push_back(number);
    types.push_back({program.results[number].type.dtype, static_cast<uint8_t>(sizes.size()), sizes.data()});
  }
  ir_selection selection{constants.data(), donate.get(), static_cast<uint32_t>(numbers.size()), numbers.data(),
                         types.data()};
  base_arena arena;
  base_arena_init(&arena);
  ir_func *func = nullptr;
  base_text text{}, bytes{};
  ttpu_status status = ir_func_select(program.func, &selection, &arena, &func);
  if (status == TTPU_OK) status = ir_func_print(func, &text);
  if (status == TTPU_OK && artifact != nullptr) status = ir_func_write(func, 0, &bytes);
  base_arena_free(&arena);
  if (status != TTPU_OK || bytes.failed) base_text_free(&text); // or it is lost when the next line throws
  std::string written = take_text(status, &bytes), printed = take_text(status, &text);
  if (artifact != nullptr) *artifact = std::move(written);
  return printed;
}

namespace {

// A captured program, for Python.
class Captured {
 public:
  Captured() = default;
  Captured(const Captured &) = delete;
  ~Captured() { rt_captured_free(&program); }

  // (address of the storage or 0, dtype, dims, the result that takes its place or -1) of each.
  static py::list values(uint32_t count, const rt_captured_value *values) {
    py::list list;
    for (uint32_t i = 0; i < count; ++i) {
      const rt_captured_value &v = values[i];
      list.append(py::make_tuple(reinterpret_cast<uintptr_t>(v.address), base_dtypes[v.type.dtype].name,
                                 std::vector<int64_t>(v.type.dims, v.type.dims + v.type.rank), v.alias));
    }
    return list;
  }

  py::bytes text(const std::string &module, const std::vector<std::string> &arguments,
                 const std::vector<std::string> &results) const {
    TORCH_CHECK(arguments.size() == program.argument_count && results.size() == program.result_count,
                "one annotation for each argument and result");
    std::vector<const char *> of_arguments, of_results;
    for (const std::string &a : arguments) of_arguments.push_back(a.c_str());
    for (const std::string &a : results) of_results.push_back(a.c_str());
    ir_annotations annotations{module.empty() ? nullptr : module.c_str(), of_arguments.data(), of_results.data()};
    base_text out{};
    base_arena arena;
    ir_func *plain = nullptr;
    base_arena_init(&arena);
    ttpu_status status = ir_decompose(program.func, &arena, nullptr, &plain);
    if (status == TTPU_OK) status = ir_func_print_annotated(plain, &annotations, &out);
    base_arena_free(&arena);
    return take_text(status, &out);
  }

  // A program for files: (StableHLO text, portable artifact). Numbers are constants in it, but, with `random`, the vector
  // that has those of random operators. `results` are (number, sizes) of those that are wanted, `donated` the arguments
  // whose place a result takes.
  py::tuple exported(const std::vector<std::pair<uint32_t, std::vector<int64_t>>> &results,
                     const std::vector<uint32_t> &donated, bool random) const {
    std::string artifact, text = select_text(program, {results, donated, random}, &artifact);
    return py::make_tuple(text, py::bytes(artifact));
  }

  std::vector<int64_t> i64s() const { return {program.i64s, program.i64s + program.i64_count}; }
  std::vector<uint32_t> random_slots() const {
    return {program.random_slots, program.random_slots + program.random_count};
  }

  rt_captured program{};
};

// A capture's time, from its making to end() or cancel(), or until nobody holds it.
class Capture {
 public:
  Capture(int device, const py::list &arguments) : device_(static_cast<uint32_t>(device)) {
    initialize();
    std::vector<rt_storage *> storages = storages_of(arguments);
    check(rt_capture_begin(device_, static_cast<uint32_t>(storages.size()), storages.data()));
    mark_.emplace();
  }
  Capture(const Capture &) = delete;
  ~Capture() { cancel(); }

  std::unique_ptr<Captured> end(const py::list &returned) {
    TORCH_CHECK(mark_, "the capture has ended");
    std::vector<rt_storage *> storages = storages_of(returned);
    auto captured = std::make_unique<Captured>();
    ttpu_status status =
        rt_capture_end(device_, static_cast<uint32_t>(storages.size()), storages.data(), &captured->program);
    mark_.reset();
    check(status);
    return captured;
  }

  void cancel() {
    if (mark_) rt_capture_cancel(device_);
    mark_.reset();
  }

 private:
  uint32_t device_;
  std::optional<RecordingMark> mark_; // as long as it is open
};

// A tensor on the current device like that one, of no data: with its strides where they are dense, else row-major.
py::object make_absent(const py::handle &handle) {
  initialize();
  const at::Tensor &like = THPVariable_Unpack(handle.ptr());
  c10::DimVector strides(like.strides());
  if (!like.is_non_overlapping_and_dense()) {
    strides.resize(static_cast<size_t>(like.dim()));
    base_row_major(static_cast<uint32_t>(like.dim()), like.sizes().data(), strides.data());
  }
  std::vector<size_t> order(strides.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  std::vector<int64_t> dims;
  for (size_t d : order) dims.push_back(like.sizes()[d]);
  TORCH_CHECK(dims.size() <= TTPU_MAX_RANK, "tensors of ", dims.size(), " dimensions are not supported on tpu");
  rt_storage *s = nullptr;
  check(rt_storage_new_absent(static_cast<uint32_t>(current_device()), dtype_of(like.scalar_type()),
                              static_cast<uint32_t>(dims.size()), dims.data(), &s));
  at::Tensor t = at::empty({0}, at::TensorOptions(like.dtype()).device(c10::Device(kTpu, current_device())));
  t.set_(wrap_storage(current_device(), s), 0, like.sizes(), strides);
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(t));
}

} // namespace

void bind_capture(py::module_ &m) {
  follow_threads();
  py::class_<Captured>(m, "Captured")
      .def_property_readonly(
          "arguments",
          [](const Captured &c) { return Captured::values(c.program.argument_count, c.program.arguments); })
      .def_property_readonly(
          "results", [](const Captured &c) { return Captured::values(c.program.result_count, c.program.results); })
      .def_property_readonly("operators", [](const Captured &c) { return c.program.operators; })
      .def_property_readonly("i64s", &Captured::i64s)
      .def_property_readonly("random_slots", &Captured::random_slots)
      .def("text", &Captured::text)
      .def("exported", &Captured::exported);
  py::class_<Capture>(m, "Capture")
      .def(py::init<int, const py::list &>())
      .def("end", &Capture::end)
      .def("cancel", &Capture::cancel);
  m.def("make_absent", &make_absent);
}

} // namespace ttpu
