// The only C++ of the project: PyTorch's extension classes over rt.
//
//   backend.cpp    allocator, device guard, streams, events, hooks, generator
//   tensor.cpp     what needs PyTorch's own types: empty, views, set_, resize_, copies, reading a number
//   call.cpp       one call of an operator: pack the arguments, find the results' metadata, record
//   deep.cpp       calls on tensors of more dimensions than a program's may have
//   register.cpp   rows of aten.def to dispatcher kernels, with their in-place and out variants; the fallback
//   graph.cpp      graphs of torch.compile: a function recorded once, run again as one program
//   module.cpp     the Python module torch_tpu._C
//   capture.cpp    its part for programs that are compiled ahead of time
//   control.cpp    its part for branches and loops within a program
//   distributed.cpp the process group backend of torch.distributed
//   exchange.cpp   its messages between processes
//   watch.cpp      its part for who watches a program run: what is alive, what ran, which chips there are
//
// An operator's call is packed into an aten_call on the C stack. Nothing here computes, but for what a reduction between
// processes adds up on the host.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "rt/rt.h"

namespace ttpu {

constexpr c10::DeviceType kTpu = c10::DeviceType::PrivateUse1;

// Raises status as the exception that PyTorch's CPU kernels would raise; no effect when OK.
void check(ttpu_status status);

// ---- backend.cpp
void initialize();        // loads the plugin once; raises on failure
uint32_t count_devices(); // without starting it, where that can be
bool is_available();
void set_plugin_paths(const std::string &soft, const std::string &libtpu); // libtpu: "" where there is none
std::pair<std::string, std::string> plugin_choice();                       // the path and why, without starting it
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Allocator *allocator();
void free_storage(void *context); // the deleter of every DataPtr whose context is an rt_storage
inline bool is_whole_storage(const c10::DataPtr &data) { return data.get_deleter() == &free_storage; }
// Where a PyTorch storage lies: not at the beginning of ours when it is a slice of an UntypedStorage.
struct Place {
  rt_storage *storage;
  size_t begin; // bytes
};
Place place_at(const void *address); // of storages that PyTorch made over an address; raises if there is none
inline Place place_of(const c10::TensorImpl *t) {
  const c10::DataPtr &data = t->unsafe_storage().data_ptr();
  return is_whole_storage(data) ? Place{static_cast<rt_storage *>(data.get_context()), 0} : place_at(data.get());
}
inline rt_storage *storage_of(const at::Tensor &t) { return place_of(t.unsafeGetTensorImpl()).storage; }
// The tensor's first element, counted from the beginning of our storage; raises where it lies between two elements.
int64_t offset_in(const Place &place, const c10::TensorImpl *t);
// Changes a storage's size, keeping its contents.
void resize_storage(const c10::Storage &storage, size_t bytes);
// The seed and offset for a call that draws `counters` Philox counters, from `generator` or the device's own.
rt_random draw(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t counters);
at::Generator &default_generator(c10::DeviceIndex device);
void seed_default_generators(uint64_t seed); // every device's, without starting one
at::Generator new_generator(c10::DeviceIndex device);
bool is_pinned(const void *data);

// ---- tensor.cpp
c10::Storage make_storage(c10::DeviceIndex device, size_t bytes);
c10::Storage wrap_storage(c10::DeviceIndex device, rt_storage *s); // which it then owns
at::Tensor make_tensor(c10::DeviceIndex device, ttpu_dtype dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
at::Tensor empty_like_shape(c10::DeviceIndex device, const aten_shape &shape);
// Sizes and strides of an out= argument that has to change.
void resize_tensor(const at::Tensor &t, c10::IntArrayRef sizes, c10::IntArrayRef strides);
// The same values without the conjugate and the negative bit, in a new tensor if t has one.
at::Tensor materialise(const at::Tensor &t);
void register_tensor_ops();

// ---- call.cpp
ttpu_dtype dtype_of(c10::ScalarType t); // raises for dtypes that a TPU does not know
c10::ScalarType scalar_type_of(ttpu_dtype t);

enum class ArgKind : uint8_t {
  Tensor,
  TensorList,
  Int,
  Bool,
  Dtype,
  Float,
  Scalar,
  IntList,
  FloatList,
  BoolList,
  ScalarList,
  Text,
  Generator,
  Other
};

// A variant of a row as the dispatcher knows it.
struct Operator {
  Operator(const aten_row *row, const c10::OperatorHandle &handle);
  c10::OperatorHandle handle;
  std::string name; // "add_.Tensor"
  rt_op op;
  std::vector<ArgKind> kinds;
  std::vector<int> return_alias; // per return: the argument it is, or -1 for a new tensor
  std::vector<bool> return_is_list;
  std::vector<bool> return_is_int; // as max_q of attention; the shape then is {no dtype, rank 1, the integer}
  std::vector<uint32_t> mutated;   // arguments that are written but not returned
  bool is_out = false;             // has out= arguments: results may resize them
  uint32_t inputs = 0;             // arguments before those
  bool has_text = false;
  int cut_dim_argument = -1; // of a dynamic row: the argument that names the dimension to cut, or -1: the first
};

// Runs one call: arguments on the stack are replaced by results.
void call(const Operator &op, torch::jit::Stack *stack);

// ---- register.cpp
void register_operators();
const Operator &copy_operator(); // "copy_"
void allow_fallback(bool allow);
bool fallback_allowed();
using NamedCounts = std::vector<std::pair<std::string, uint64_t>>; // operator, calls
NamedCounts fallback_counts();
NamedCounts host_counts();                      // the factorisations that always run on the CPU
void reset_counts();                            // both
std::vector<std::string> registered_names();    // by rows
std::vector<std::string> host_operator_names(); // that always run on the CPU

} // namespace ttpu
