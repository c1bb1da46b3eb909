// What the parts of the Python module share that record programs without running them.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torch/glue.h"

namespace ttpu {

// All of capture.cpp; they raise.

// This thread, and those to which PyTorch hands its work on (a backward pass), record what is being recorded. To be made when
// the recording has begun: before, this thread may have to wait for another's.
class RecordingMark {
 public:
  RecordingMark();
  RecordingMark(const RecordingMark &) = delete;
  ~RecordingMark();

 private:
  bool set_; // by this mark, not by one around it
};

bool is_recording(); // is this thread one of those?

std::vector<rt_storage *> storages_of(const pybind11::list &tensors); // which must be on tpu

// What of a captured program is wanted.
struct Selection {
  std::vector<std::pair<uint32_t, std::vector<int64_t>>> results; // the number and sizes of each
  std::vector<uint32_t> donated;                                  // arguments whose place a result takes
  bool random = false; // the vector with the numbers of random operators stays an argument
};

// StableHLO text of that, and its portable artifact where there is a place for it. Other numbers are constants in it.
std::string select_text(const rt_captured &program, const Selection &wanted, std::string *artifact = nullptr);

} // namespace ttpu
