// Saved models for Python: the C API of src/model over the client that torch_tpu has.
#include "model/model.h"
#include "torch/glue.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

namespace py = pybind11;

namespace ttpu {
namespace {

py::list describe(uint32_t count, const ttpu_model *model, const ttpu_tensor *(*get)(const ttpu_model *, uint32_t)) {
  py::list list;
  for (uint32_t i = 0; i < count; ++i) {
    const ttpu_tensor *t = get(model, i);
    list.append(py::make_tuple(t->name, t->dtype, std::vector<int64_t>(t->dims, t->dims + t->rank)));
  }
  return list;
}

// Copies a result to a tensor on the CPU.
at::Tensor to_tensor(const ttpu_tensor &t) {
  at::Tensor result =
      at::empty(at::IntArrayRef(t.dims, t.rank), at::TensorOptions(scalar_type_of(model_dtype(t.dtype))));
  if (t.bytes > 0) memcpy(result.mutable_data_ptr(), t.data, t.bytes);
  return result;
}

class Model {
 public:
  Model(const std::string &folder, uint32_t device) {
    initialize();
    py::gil_scoped_release release;
    check(model_runtime_borrow(rt_client(), &runtime_));
    int status = ttpu_model_load(runtime_, folder.c_str(), device, &model_);
    if (status == 0) return;
    ttpu_runtime_close(runtime_);
    check(static_cast<ttpu_status>(status));
  }
  Model(const Model &) = delete;
  ~Model() {
    ttpu_model_free(model_);
    ttpu_runtime_close(runtime_);
  }

  // inputs: names and tensors of any device; gives names and tensors on the CPU.
  py::dict run(const py::dict &inputs) {
    std::vector<std::string> names;
    std::vector<at::Tensor> held;
    for (const auto &[name, value] : inputs) {
      TORCH_CHECK_TYPE(THPVariable_Check(value.ptr()), "the input \"", py::cast<std::string>(name), "\" is no tensor");
      names.push_back(py::cast<std::string>(name));
      held.push_back(materialise(THPVariable_Unpack(value.ptr()).detach()).cpu().contiguous());
    }
    std::vector<ttpu_tensor> tensors;
    for (size_t i = 0; i < held.size(); ++i)
      tensors.push_back({names[i].c_str(), base_dtypes[dtype_of(held[i].scalar_type())].name,
                         static_cast<uint32_t>(held[i].dim()), held[i].sizes().data(), held[i].const_data_ptr(),
                         held[i].nbytes()});
    ttpu_results *raw = nullptr;
    int status; // its message is this thread's
    {
      py::gil_scoped_release release;
      status = ttpu_model_run(model_, static_cast<uint32_t>(tensors.size()), tensors.data(), &raw);
    }
    if (status == TTPU_INVALID_ARGUMENT) throw py::value_error(ttpu_message());
    check(static_cast<ttpu_status>(status));
    std::unique_ptr<ttpu_results, decltype(&ttpu_results_free)> results(raw, &ttpu_results_free);
    py::dict outputs;
    for (uint32_t i = 0; i < ttpu_results_count(raw); ++i) {
      const ttpu_tensor *t = ttpu_results_at(raw, i);
      outputs[t->name] = py::reinterpret_steal<py::object>(THPVariable_Wrap(to_tensor(*t)));
    }
    return outputs;
  }

  py::list inputs() const { return describe(ttpu_model_input_count(model_), model_, &ttpu_model_input); }
  py::list outputs() const { return describe(ttpu_model_output_count(model_), model_, &ttpu_model_output); }
  void reset() { check(static_cast<ttpu_status>(ttpu_model_reset(model_))); }
  void seed(uint64_t seed) { ttpu_model_seed(model_, seed); }

 private:
  ttpu_runtime *runtime_ = nullptr;
  ttpu_model *model_ = nullptr;
};

} // namespace

void bind_model(py::module_ &m) {
  py::class_<Model>(m, "Model")
      .def(py::init<const std::string &, uint32_t>())
      .def_property_readonly("inputs", &Model::inputs)
      .def_property_readonly("outputs", &Model::outputs)
      .def("run", &Model::run)
      .def("reset", &Model::reset)
      .def("seed", &Model::seed);
}

} // namespace ttpu
