// What the parts of the Python module share that record programs without running them.
#pragma once

#include <pybind11/pybind11.h>

#include "torch/glue.h"

namespace ttpu {

std::vector<rt_storage *> storages_of(const pybind11::list &tensors); // capture.cpp; raises unless all are on tpu

} // namespace ttpu
