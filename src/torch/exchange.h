// What the processes of a group send each other: bytes of host memory.
#pragma once

#include "torch/glue.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ttpu {

// Host memory that is used again: fresh pages cost more than what is done with them.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory &) = delete;
  ~HostMemory();

  // A CPU tensor of one dimension, whose memory comes back when nobody has it any more.
  at::Tensor take(int64_t count, at::ScalarType dtype);

 private:
  void give_back(void *data, size_t bytes);

  std::mutex mutex_;
  std::multimap<size_t, void *> free_; // by bytes
  size_t kept_ = 0;
};

// What a host tensor holds, as bytes.
inline at::Tensor bytes_of(const at::Tensor &host) { return host.view(at::kByte); }

// Carries the parts of collectives over a backend for CPU tensors. Each part has a heading with the collective's name, number and
// size, so that processes that are in different collectives find out, instead of waiting for each other or taking each
// other's bytes. For one thread.
class Exchange {
 public:
  struct Part {
    int rank;         // of the peer
    at::Tensor bytes; // which a received part is written into
  };
  struct Collective {
    const char *name;
    uint64_t number; // counted alike in all processes
    std::chrono::milliseconds timeout;
  };

  explicit Exchange(c10::intrusive_ptr<c10d::Backend> carrier) : carrier_(std::move(carrier)) {}

  // Sends and receives, with this process itself too; returns when both are done. After a failure the processes are out of
  // step, and every later call fails.
  void run(const Collective &collective, const std::vector<Part> &sent, const std::vector<Part> &received);

 private:
  void carry(const Collective &collective, const std::vector<Part> &sent, const std::vector<Part> &received);

  c10::intrusive_ptr<c10d::Backend> carrier_;
  // Of this call; after a failure they stay, as the carrier may still use them. The works end before their buffers.
  std::vector<at::Tensor> buffers_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::string failure_;
};

} // namespace ttpu
