// The Python module torch_tpu._C.
#include "check/check.h"
#include "torch/glue.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/version.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace py = pybind11;

namespace ttpu {

// Has this process a thread whose name begins so?
static bool has_thread(const std::string &prefix) {
  std::error_code error;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

static py::dict to_dict(const NamedCounts &counts) {
  py::dict d;
  for (const auto &[name, count] : counts) d[py::str(name)] = count;
  return d;
}

// Ends autograd's threads, one a device, while the interpreter still runs: as they end they take the GIL once more, and
// one that asks for it later is unwound out of a destructor, which aborts the process.
static void stop_autograd() {
  if (!rt_is_initialized() || rt_in_bad_fork()) return;
  torch::autograd::Engine::get_default_engine().stop();
  for (int waited = 0; waited < 1000 && has_thread("pt_autograd"); ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void register_graph(py::module_ &m); // graph.cpp

static py::dict counters() {
  rt_counters c = rt_get_counters();
  py::dict d;
  d["ops_recorded"] = c.ops_recorded;
  d["op_cache_hits"] = c.op_cache_hits;
  d["op_cache_misses"] = c.op_cache_misses;
  d["programs_run"] = c.programs_run;
  d["program_cache_hits"] = c.program_cache_hits;
  d["programs_built"] = c.programs_built;
  d["programs_compiled"] = c.programs_compiled;
  d["programs_loaded"] = c.programs_loaded;
  d["programs_bucketed"] = c.programs_bucketed;
  d["compile_seconds"] = static_cast<double>(c.compile_nanoseconds) * 1e-9;
  d["host_reads"] = c.host_reads;
  d["uploads"] = c.uploads;
  d["fallbacks"] = to_dict(fallback_counts());
  d["host"] = to_dict(host_counts());
  return d;
}

static py::dict device_properties(int index) {
  initialize();
  TORCH_CHECK(index >= 0 && index < static_cast<int>(rt_device_count()), "invalid device ordinal tpu:", index);
  const pjrt_device_info *info = pjrt_device_get_info(pjrt_client_device(rt_client(), static_cast<uint32_t>(index)));
  py::dict d;
  d["name"] = info->kind;
  d["id"] = info->id;
  d["process_index"] = info->process_index;
  d["coords"] = py::make_tuple(info->coords[0], info->coords[1], info->coords[2]);
  d["core_on_chip"] = info->core_on_chip;
  d["total_memory"] = info->memory_limit;
  return d;
}

static py::dict plugin_info() {
  initialize();
  int major = 0, minor = 0;
  pjrt_client_api_version(rt_client(), &major, &minor);
  py::dict d;
  d["platform"] = pjrt_client_platform(rt_client());
  d["platform_version"] = pjrt_client_platform_version(rt_client());
  d["path"] = pjrt_client_plugin_path(rt_client());
  d["pjrt_api_version"] = py::make_tuple(major, minor);
  d["software"] = pjrt_client_is_soft(rt_client());
  d["reason"] = rt_plugin_reason();
  return d;
}

static std::string plugin_report(const std::string &path, const std::string &options) {
  base_text json = {};
  ttpu_status status = pjrt_plugin_report(path.c_str(), options.c_str(), &json);
  std::string text(json.data ? json.data : "", json.length);
  base_text_free(&json);
  check(status);
  return text;
}

static py::dict memory_stats(int index) {
  initialize();
  rt_memory_stats m{};
  check(rt_memory_get_stats(static_cast<uint32_t>(index), &m));
  py::dict d;
  d["bytes_in_use"] = m.device.bytes_in_use;
  d["peak_bytes_in_use"] = m.device.peak_bytes_in_use;
  d["bytes_limit"] = m.device.bytes_limit;
  d["largest_alloc_size"] = m.device.largest_alloc;
  d["num_allocs"] = m.device.num_allocs;
  d["bytes_reserved"] = m.device.bytes_reserved;
  return d;
}

static py::dict cpu_features() {
  const base_cpu_features *f = base_cpu();
  py::dict d;
  d["avx2"] = f->avx2;
  d["avx512"] = f->avx512;
  d["avx512_bf16"] = f->avx512_bf16;
  d["avx512_vnni"] = f->avx512_vnni;
  d["avx512_fp16"] = f->avx512_fp16;
  d["amx"] = f->amx;
  d["cores"] = f->cores;
  return d;
}

static py::dict outcome_to_dict(const check_outcome &outcome) {
  static const char *const stages[] = {"passed", "read", "compile", "run", "values"};
  py::dict d;
  d["stage"] = stages[outcome.stage];
  d["ran"] = outcome.ran;
  d["checks"] = outcome.count;
  d["message"] = py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(outcome.message, static_cast<Py_ssize_t>(strlen(outcome.message)), "replace"));
  return d;
}

static py::dict check_stablehlo(const std::string &text) {
  check_outcome outcome;
  {
    py::gil_scoped_release released;
    initialize();
    check_run(rt_client(), text.data(), text.size(), &outcome);
  }
  return outcome_to_dict(outcome);
}

static py::dict read_stablehlo(const std::string &text, const std::string &function, int64_t size) {
  check_outcome outcome;
  check_read(text.data(), text.size(), function.empty() ? nullptr : function.c_str(), size, &outcome);
  return outcome_to_dict(outcome);
}

} // namespace ttpu

namespace ttpu {
void bind_capture(py::module_ &m);     // capture.cpp
void bind_control(py::module_ &m);     // control.cpp
void bind_distributed(py::module_ &m); // distributed.cpp
void bind_model(py::module_ &m);       // model.cpp
void bind_watch(py::module_ &m);       // watch.cpp
} // namespace ttpu

PYBIND11_MODULE(_C, m) {
  using namespace ttpu;
  using release = py::call_guard<py::gil_scoped_release>;
  m.attr("torch_version") = TORCH_VERSION;
  m.def("register", [] {
    rt_disk_set_salt(TORCH_VERSION);
    register_tensor_ops();
    register_operators();
  });
  m.def("stop_autograd", &stop_autograd, release());
  m.def("set_plugin_paths", &set_plugin_paths);
  m.def("chip_count", [] { return pjrt_chips_find("").count; });
  m.def("plugin_choice", &plugin_choice);
  m.def("plugin_report", &plugin_report);
  m.def("initialize", &initialize, release());
  m.def("is_initialized", &rt_is_initialized);
  m.def("in_bad_fork", &rt_in_bad_fork);
  m.def("device_count", [] { return static_cast<int>(count_devices()); });
  m.def("is_available", &is_available);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("synchronize", [](int index) { check(rt_synchronize(static_cast<uint32_t>(index))); }, release());
  m.def("flush", [](int index) { check(rt_flush(static_cast<uint32_t>(index))); }, release());
  m.def("set_mode", [](int mode) { rt_set_mode(static_cast<rt_mode>(mode)); }, release());
  m.def("get_mode", [] { return static_cast<int>(rt_get_mode()); });
  m.def("set_threads", [](int threads) {
    if (rt_is_initialized()) pjrt_client_set_threads(rt_client(), threads);
  });
  m.def("counters", &counters);
  m.def("reset_counters", [] {
    rt_reset_counters();
    reset_counts();
  });
  m.def("forbid_compile", &rt_forbid_compile, release());
  m.def("clear_caches", &rt_clear_caches, release());
  m.def("allow_fallback", &allow_fallback);
  m.def("fallback_allowed", &fallback_allowed);
  m.def("registered_operators", &registered_names);
  m.def("host_operators", &host_operator_names);
  m.def("device_properties", &device_properties);
  m.def("plugin_info", &plugin_info);
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory_stats", [](int index) { rt_memory_reset_peak(static_cast<uint32_t>(index)); });
  m.def("cpu_features", &cpu_features);
  m.def("check_stablehlo", &check_stablehlo);
  m.def("read_stablehlo", &read_stablehlo);
  m.def("is_ready", [](const py::handle &tensor) {
    const at::Tensor &t = THPVariable_Unpack(tensor.ptr());
    return rt_storage_is_ready(storage_of(t));
  });
  register_graph(m);
  bind_capture(m);
  bind_control(m);
  bind_distributed(m);
  bind_model(m);
  bind_watch(m);
  m.def("seed_default_generators", &seed_default_generators);
  m.def("default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(default_generator(static_cast<c10::DeviceIndex>(index))));
  });
}
