// What torch_tpu.check asks of the runtime while a program runs: few and quick calls, one after each operator.
#include "torch/glue.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace ttpu {

// What each generation of chips has, a device of it: src/soft/generations.def, whose list this is.
static py::list chips() {
  py::list all;
#define GENERATION(name, others, kind, hbm, devices, cores, dims, bf16, int8, bandwidth, vmem, mxu, ici) \
  all.append(py::dict(py::arg("name") = name, py::arg("kind") = kind, py::arg("aliases") = others,       \
                      py::arg("dimensions") = dims, py::arg("hbm_bytes") = static_cast<int64_t>(hbm),    \
                      py::arg("flops_per_second") = (bf16) * 1e12 / (devices),                           \
                      py::arg("bytes_per_second") = (bandwidth) * 1e9 / (devices)));
#include "soft/generations.def"
#undef GENERATION
  return all;
}

// (host reads, programs built, bytes that live tensors hold, the most of that) of the process and a device.
static py::tuple watched(int index) {
  rt_memory_stats m{};
  check(rt_memory_get_stats(static_cast<uint32_t>(index), &m));
  rt_counters c = rt_get_counters();
  return py::make_tuple(c.host_reads, c.programs_built, m.allocated, m.allocated_peak);
}

// (address, bytes) of the live storages of at least so many bytes.
static std::vector<std::pair<uintptr_t, size_t>> live_storages(int index, size_t least) {
  std::vector<std::pair<uintptr_t, size_t>> found;
  rt_storage_visit(
      static_cast<uint32_t>(index), least,
      [](void *context, const void *address, size_t bytes) {
        static_cast<decltype(found) *>(context)->emplace_back(reinterpret_cast<uintptr_t>(address), bytes);
      },
      &found);
  return found;
}

static py::dict to_dict(const rt_program_info &info) {
  py::dict d;
  d["key"] = info.key;
  d["runs"] = info.runs;
  d["operators"] = info.operators;
  d["flops"] = info.cost.flops;
  d["bytes_accessed"] = info.cost.bytes_accessed;
  d["temporaries"] = info.cost.temporaries;
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(info.text));
  d["file"] = info.text == 0 ? py::object(py::none()) : py::str(std::string(info.row) + "-" + text + ".mlir");
  return d;
}

static py::list programs(int index) {
  std::vector<rt_program_info> found;
  rt_program_visit(
      static_cast<uint32_t>(index),
      [](void *context, const rt_program_info *info) {
        static_cast<std::vector<rt_program_info> *>(context)->push_back(*info);
      },
      &found);
  py::list list;
  for (const rt_program_info &info : found) list.append(to_dict(info));
  return list;
}

void bind_watch(py::module_ &m) {
  m.def("chips", &chips);
  m.def("watched", &watched);
  m.def("live_storages", &live_storages);
  m.def("programs", &programs);
}

} // namespace ttpu
