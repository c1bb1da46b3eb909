#include "torch/exchange.h"

#include <cstdlib>
#include <cstring>

namespace ttpu {

// ---- host memory ----

namespace {
constexpr size_t kSmall = 1 << 20;  // bytes below which malloc has pages at hand
constexpr size_t kKept = 512 << 20; // bytes at most that nobody uses
} // namespace

HostMemory::~HostMemory() {
  for (const auto &[bytes, data] : free_) std::free(data);
}

at::Tensor HostMemory::take(int64_t count, at::ScalarType dtype) {
  at::TensorOptions options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  size_t bytes = static_cast<size_t>(count) * c10::elementSize(dtype);
  if (bytes < kSmall) return at::empty({count}, options);
  void *data = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= bytes + bytes / 2) {
      bytes = found->first;
      data = found->second;
      kept_ -= bytes;
      free_.erase(found);
    }
  }
  if (data == nullptr && posix_memalign(&data, 4096, bytes) != 0)
    TORCH_CHECK_WITH(OutOfMemoryError, false, "tpu_dist: no ", bytes, " bytes of host memory");
  auto deleter = [memory = shared_from_this(), bytes](void *p) { memory->give_back(p, bytes); };
  return at::from_blob(data, {count}, std::move(deleter), options);
}

void HostMemory::give_back(void *data, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.emplace(bytes, data);
  for (kept_ += bytes; kept_ > kKept;
       free_.erase(free_.begin())) { // the smallest first: it is the cheapest to get again
    kept_ -= free_.begin()->first;
    std::free(free_.begin()->second);
  }
}

// ---- messages ----

namespace {

constexpr int kTag = 0x7fffffff; // of the messages to the carrier; users' own count from 0

// A part is a message of this size, which holds all of a small one, and behind it the bytes of a large one.
struct Heading {
  char name[32];
  uint64_t number, bytes;
};
constexpr size_t kFirst = 4096, kInside = kFirst - sizeof(Heading);

bool fits(const at::Tensor &bytes) { return static_cast<size_t>(bytes.numel()) <= kInside; }

at::Tensor first_message() { return at::empty({static_cast<int64_t>(kFirst)}, at::kByte); }

at::Tensor write_first(const Exchange::Collective &collective, const at::Tensor &bytes) {
  at::Tensor message = first_message();
  Heading heading{};
  std::strncpy(heading.name, collective.name, sizeof heading.name - 1);
  heading.number = collective.number;
  heading.bytes = static_cast<uint64_t>(bytes.numel());
  auto *data = message.mutable_data_ptr<uint8_t>();
  std::memcpy(data, &heading, sizeof heading);
  if (fits(bytes) && heading.bytes > 0) std::memcpy(data + sizeof heading, bytes.const_data_ptr(), heading.bytes);
  return message;
}

void read_first(const Exchange::Collective &collective, const Exchange::Part &part, const at::Tensor &message) {
  Heading heading;
  const auto *data = message.const_data_ptr<uint8_t>();
  std::memcpy(&heading, data, sizeof heading);
  heading.name[sizeof heading.name - 1] = '\0';
  auto bytes = static_cast<uint64_t>(part.bytes.numel());
  TORCH_CHECK(
      std::strcmp(heading.name, collective.name) == 0 && heading.number == collective.number && heading.bytes == bytes,
      "the processes are in different collectives: rank ", part.rank, " sent ", heading.bytes, " bytes of ",
      heading.name, ", its collective ", heading.number, ", to this one, which is in ", collective.name,
      ", its collective ", collective.number, ", and expects ", bytes, " bytes");
  if (fits(part.bytes) && bytes > 0) std::memcpy(part.bytes.mutable_data_ptr(), data + sizeof heading, bytes);
}

} // namespace

void Exchange::run(const Collective &collective, const std::vector<Part> &sent, const std::vector<Part> &received) {
  TORCH_CHECK(failure_.empty(), "tpu_dist: ", collective.name, " after a collective of this group failed: ", failure_);
  try {
    carry(collective, sent, received);
  } catch (const c10::Error &error) {
    failure_ = error.what_without_backtrace();
  } catch (const std::exception &error) {
    failure_ = error.what();
  }
  TORCH_CHECK(failure_.empty(), "tpu_dist: ", collective.name, ": ", failure_);
  works_.clear();
  buffers_.clear();
}

void Exchange::carry(const Collective &collective, const std::vector<Part> &sent, const std::vector<Part> &received) {
  using Work = c10::intrusive_ptr<c10d::Work>;
  int self = carrier_->getRank();
  std::vector<Work> later; // to wait for at the end
  auto keep = [&](Work work) { return works_.emplace_back(std::move(work)); };
  auto send = [&](const at::Tensor &bytes, int rank) {
    std::vector<at::Tensor> one{buffers_.emplace_back(bytes)};
    later.push_back(keep(carrier_->send(one, rank, kTag)));
  };
  auto receive = [&](const at::Tensor &bytes, int rank) {
    std::vector<at::Tensor> one{buffers_.emplace_back(bytes)};
    return keep(carrier_->recv(one, rank, kTag));
  };

  std::vector<std::pair<at::Tensor, Work>> firsts;
  for (const Part &part : received) {
    if (part.rank == self) continue;
    at::Tensor message = first_message();
    firsts.emplace_back(message, receive(message, part.rank));
  }
  const at::Tensor *own = nullptr;
  for (const Part &part : sent) {
    if (part.rank == self) {
      own = &part.bytes;
    } else {
      send(write_first(collective, part.bytes), part.rank);
      if (!fits(part.bytes)) send(part.bytes, part.rank);
    }
  }
  auto first = firsts.begin();
  for (const Part &part : received) {
    if (part.rank == self) {
      if (own->data_ptr() != part.bytes.data_ptr()) part.bytes.copy_(*own);
      continue;
    }
    first->second->wait(collective.timeout);
    read_first(collective, part, first->first);
    if (!fits(part.bytes)) later.push_back(receive(part.bytes, part.rank));
    ++first;
  }
  for (const Work &work : later) work->wait(collective.timeout);
}

} // namespace ttpu
