// torch.cond, scan and while_loop as operations of the program: recording their functions apart, and the call itself.
#include "torch/capture.h"
#include "torch/glue.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace ttpu {

namespace {

// A region's program.
struct Captured {
  Captured() = default;
  Captured(const Captured &) = delete;
  ~Captured() { rt_captured_free(&program); }

  // Other results than the returned ones, which are the first, are left out.
  std::string text(const py::list &returned) const {
    Selection wanted;
    for (const py::handle &r : returned) {
      uint32_t number = static_cast<uint32_t>(wanted.results.size());
      TORCH_CHECK(number < program.result_count, "a branch or loop returns one tensor twice");
      wanted.results.emplace_back(number, THPVariable_Unpack(r.ptr()).sizes().vec());
    }
    return select_text(program, wanted);
  }

  rt_captured program{};
};

// One region, open from its making until end(), or until nobody holds it.
class Region {
 public:
  Region(int device, const py::list &arguments) {
    initialize();
    std::vector<rt_storage *> storages = storages_of(arguments);
    check(rt_region_begin(static_cast<uint32_t>(device), static_cast<uint32_t>(storages.size()), storages.data(),
                          &region_));
    mark_.emplace();
  }
  Region(const Region &) = delete;
  ~Region() { cancel(); }

  void cancel() {
    if (region_ != nullptr) (void)rt_region_end(std::exchange(region_, nullptr), 0, nullptr, nullptr);
    mark_.reset();
  }

  // What the region does, as StableHLO text: a function of the arguments whose results are the returned tensors, which
  // are row-major and whole.
  std::string end(const py::list &returned) {
    TORCH_CHECK(region_ != nullptr, "the region has ended");
    std::vector<rt_storage *> storages = storages_of(returned);
    Captured captured;
    ttpu_status status = rt_region_end(std::exchange(region_, nullptr), static_cast<uint32_t>(storages.size()),
                                       storages.data(), &captured.program);
    mark_.reset();
    check(status);
    return captured.text(returned);
  }

 private:
  rt_region *region_ = nullptr;
  std::optional<RecordingMark> mark_; // as long as it is open
};

// A call with its texts and lists of tensors, by hand: these operators are not ATen's and have no schema.
struct ControlCall {
  aten_call call{};
  std::vector<aten_arg> args;
  std::vector<const char *> texts;
  std::vector<aten_tensor> tensors;
  std::vector<rt_storage *> storages;

  void add_text(const std::string &text) {
    args.push_back({ATEN_TEXT, 0, 0, static_cast<uint32_t>(texts.size())});
    texts.push_back(text.c_str());
  }

  static aten_tensor describe(const at::Tensor &t) {
    aten_tensor m{};
    m.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
    m.rank = static_cast<uint8_t>(t.dim());
    m.sizes = t.sizes().data();
    m.strides = t.strides().data();
    m.offset = offset_in(place_of(t.unsafeGetTensorImpl()), t.unsafeGetTensorImpl());
    return m;
  }

  void add_tensors(const std::vector<at::Tensor> &list) {
    args.push_back({ATEN_TENSORS, 0, static_cast<uint16_t>(list.size()), static_cast<uint32_t>(tensors.size())});
    for (const at::Tensor &t : list) {
      tensors.push_back(describe(t));
      storages.push_back(storage_of(t));
    }
  }

  void finish(const aten_row *row) {
    call.row = row;
    call.arg_count = static_cast<uint32_t>(args.size());
    call.tensor_count = static_cast<uint32_t>(tensors.size());
    call.text_count = static_cast<uint32_t>(texts.size());
    call.args = args.data();
    call.tensors = tensors.data();
    call.texts = texts.data();
  }
};

std::vector<at::Tensor> tensors_of(const py::list &list) {
  std::vector<at::Tensor> tensors;
  for (const py::handle &t : list) {
    const at::Tensor &tensor = THPVariable_Unpack(t.ptr());
    TORCH_CHECK(
        tensor.device().type() == kTpu && tensor.dim() <= TTPU_MAX_RANK && !tensor.is_conj() && !tensor.is_neg(),
        "control flow on tpu takes tensors there of at most ", TTPU_MAX_RANK, " dimensions");
    tensors.push_back(tensor);
  }
  return tensors;
}

const rt_op &control_op(const std::string &name) {
  static const rt_op ops[] = {{&aten_cond_row, "cond", base_hash(0, "ttpu::cond", 10)},
                              {&aten_scan_row, "scan", base_hash(0, "ttpu::scan", 10)},
                              {&aten_while_loop_row, "while_loop", base_hash(0, "ttpu::while_loop", 16)}};
  for (const rt_op &op : ops)
    if (name == op.name) return op;
  TORCH_CHECK(false, "no control flow operator is called ", name);
}

// Records one of them on its functions and lists of tensors; the results have the examples' dtypes and sizes.
py::list record_control(const std::string &name, const std::vector<std::string> &functions,
                        const std::vector<py::list> &lists, const py::list &examples) {
  const rt_op &op = control_op(name);
  ControlCall c;
  for (const std::string &text : functions) c.add_text(text);
  c10::DeviceIndex device = -1;
  for (const py::list &of : lists) {
    std::vector<at::Tensor> list = tensors_of(of); // Python's list holds them too
    if (device < 0) {
      TORCH_CHECK(!list.empty(), name, ": nothing is carried");
      device = list[0].device().index();
    }
    for (const at::Tensor &t : list)
      TORCH_CHECK(t.device().index() == device, name, ": expected all tensors to be on the same device, but found ",
                  t.device(), " and tpu:", static_cast<int>(device));
    c.add_tensors(list);
  }
  c.finish(op.row);
  std::vector<rt_tensor> results;
  py::list made;
  for (const py::handle &e : examples) {
    const at::Tensor &example = THPVariable_Unpack(e.ptr());
    c10::DimVector strides(example.sizes().size());
    base_row_major(static_cast<uint32_t>(example.dim()), example.sizes().data(), strides.data());
    at::Tensor t = make_tensor(device, dtype_of(example.scalar_type()), example.sizes(), strides);
    results.push_back({storage_of(t), ControlCall::describe(t)}); // its arrays are the tensor's own
    made.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(t))));
  }
  rt_call call{c.call, c.storages.data(), rt_meta_key(&op, &c.call, 0), ir_precision{}, {}};
  check(rt_record(static_cast<uint32_t>(device), &op, &call, static_cast<uint32_t>(results.size()), results.data()));
  return made;
}

} // namespace

void bind_control(py::module_ &m) {
  py::class_<Region>(m, "Region")
      .def(py::init<int, const py::list &>())
      .def("end", &Region::end)
      .def("cancel", &Region::cancel);
  m.def("record_control", &record_control);
}

} // namespace ttpu
