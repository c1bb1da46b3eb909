// Allocator, device guard, streams, events, hooks and generator of the tpu device.
#include "torch/glue.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace ttpu {

void check(ttpu_status status) {
  if (status == TTPU_OK) return;
  std::string message = base_message();
  switch (status) {
    case TTPU_RESOURCE_EXHAUSTED: TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case TTPU_OUT_OF_RANGE: TORCH_CHECK_INDEX(false, message);
    case TTPU_ABORTED: TORCH_CHECK_LINALG(false, message);
    case TTPU_UNIMPLEMENTED: TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default: TORCH_CHECK(false, message);
  }
}

// ---- start ----

static std::string soft_path, libtpu_path;
void set_plugin_paths(const std::string &soft, const std::string &libtpu) {
  soft_path = soft;
  libtpu_path = libtpu;
}

std::pair<std::string, std::string> plugin_choice() {
  pjrt_choice choice;
  check(pjrt_choose("", soft_path.c_str(), libtpu_path.c_str(), &choice));
  return {choice.path, choice.reason};
}

static ttpu_status start() { return rt_init(soft_path.c_str(), libtpu_path.c_str()); }

void initialize() {
  if (rt_is_initialized()) return;
  check(start());
}

static thread_local c10::DeviceIndex current = 0;
c10::DeviceIndex current_device() { return current; }

// How many devices there are; 0 where the plugin cannot be used (a forked child, a bad setting): never throws.
static c10::DeviceIndex device_count() noexcept {
  if (rt_is_initialized()) return static_cast<c10::DeviceIndex>(rt_device_count());
  uint32_t count = 0;
  return rt_count_devices(soft_path.c_str(), libtpu_path.c_str(), &count) == TTPU_OK
             ? static_cast<c10::DeviceIndex>(count)
             : 0;
}

uint32_t count_devices() {
  if (rt_is_initialized() || rt_in_bad_fork()) return rt_device_count();
  uint32_t count = 0;
  check(rt_count_devices(soft_path.c_str(), libtpu_path.c_str(), &count));
  return count;
}

bool is_available() { return rt_is_available(soft_path.c_str(), libtpu_path.c_str()); }

void set_current_device(c10::DeviceIndex index) {
  initialize();
  TORCH_CHECK(index >= 0 && index < device_count(), "invalid device ordinal tpu:", static_cast<int>(index),
              "; there are ", static_cast<int>(device_count()), " devices");
  current = index;
}

// ---- device memory ----

void free_storage(void *context) { rt_storage_free(static_cast<rt_storage *>(context)); }

Place place_at(const void *address) {
  Place place{};
  place.storage = rt_storage_find(address, &place.begin);
  TORCH_CHECK(place.storage != nullptr, "a tpu tensor over memory that is not a tpu storage's: ", address);
  return place;
}

int64_t offset_in(const Place &place, const c10::TensorImpl *t) {
  if (place.begin == 0) return t->storage_offset();
  size_t bytes = t->itemsize();
  TORCH_CHECK(place.begin % bytes == 0, "a tpu tensor's elements of ", bytes, " bytes cannot begin at byte ",
              place.begin, " of the storage that its own is a slice of");
  return t->storage_offset() + static_cast<int64_t>(place.begin / bytes);
}

static c10::CachingAllocator::StatArray stat(uint64_t now, uint64_t peak, uint64_t added, uint64_t removed) {
  c10::CachingAllocator::StatArray s{};
  auto &total = s[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  total.current = static_cast<int64_t>(now);
  total.peak = static_cast<int64_t>(peak);
  total.allocated = static_cast<int64_t>(added);
  total.freed = static_cast<int64_t>(removed);
  return s;
}

struct TpuAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    initialize();
    rt_storage *s = nullptr;
    check(rt_storage_new(static_cast<uint32_t>(current), bytes, &s));
    return {rt_storage_address(s), s, &free_storage, c10::Device(kTpu, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; } // data is not the context: no raw allocation
  void copy_data(void *, const void *, std::size_t) const override {
    TORCH_CHECK(false, "a tpu storage is copied as a tensor, not by its address");
  }
  bool initialized() override { return rt_is_initialized(); }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    for (uint32_t i = 0; i < rt_device_count(); ++i) rt_memory_trim(i);
  }
  void recordStream(const c10::DataPtr &, c10::Stream) override {} // all streams share one order
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    initialize();
    rt_memory_stats m{};
    check(rt_memory_get_stats(static_cast<uint32_t>(device), &m));
    c10::CachingDeviceAllocator::DeviceStats s{};
    s.allocated_bytes = s.requested_bytes = stat(m.allocated, m.allocated_peak, m.allocated_total, m.freed_total);
    s.active_bytes = s.allocated_bytes;
    s.allocation = stat(m.active, m.active_peak, m.allocations, m.frees);
    s.active = s.allocation;
    uint64_t reserved = static_cast<uint64_t>(std::max<int64_t>(0, m.device.bytes_in_use) +
                                              std::max<int64_t>(0, m.device.bytes_reserved));
    uint64_t peak = static_cast<uint64_t>(std::max<int64_t>(0, m.device.peak_bytes_in_use));
    s.reserved_bytes = stat(reserved, std::max(reserved, peak), peak, 0);
    s.num_ooms = static_cast<int64_t>(m.oom_count);
    return s;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    rt_memory_reset_accumulated(static_cast<uint32_t>(device));
  }
  void resetPeakStats(c10::DeviceIndex device) override { rt_memory_reset_peak(static_cast<uint32_t>(device)); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    initialize();
    rt_memory_stats m{};
    check(rt_memory_get_stats(static_cast<uint32_t>(device), &m));
    int64_t total = std::max<int64_t>(0, m.device.bytes_limit), used = std::max<int64_t>(0, m.device.bytes_in_use);
    return {static_cast<size_t>(std::max<int64_t>(0, total - used)), static_cast<size_t>(total)};
  }
};

static TpuAllocator tpu_allocator;
c10::Allocator *allocator() { return &tpu_allocator; }
REGISTER_ALLOCATOR(kTpu, &tpu_allocator)

void resize_storage(const c10::Storage &storage, size_t bytes) {
  TORCH_CHECK(is_whole_storage(storage.data_ptr()), "Trying to resize storage that is not resizable");
  rt_storage *s = static_cast<rt_storage *>(storage.data_ptr().get_context());
  check(rt_storage_resize(s, bytes));
  c10::StorageImpl *impl = storage.unsafeGetStorageImpl();
  if (rt_storage_address(s) != impl->data()) { // the same context under a new address
    c10::DataPtr &old = impl->mutable_data_ptr();
    c10::Device device = old.device();
    old.release_context();
    impl->set_data_ptr_noswap(c10::DataPtr(rt_storage_address(s), s, &free_storage, device));
  }
  impl->set_nbytes(bytes);
}

// ---- pinned host memory: plain memory that we remember ----

static std::mutex pinned_lock;
static std::map<const char *, size_t> pinned;

static void free_pinned(void *p) {
  {
    std::lock_guard<std::mutex> guard(pinned_lock);
    pinned.erase(static_cast<const char *>(p));
  }
  std::free(p);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::kCPU)};
    void *p = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&p, 64, bytes) == 0, "out of host memory: ", bytes,
                     " pinned bytes");
    std::lock_guard<std::mutex> guard(pinned_lock);
    pinned[static_cast<const char *>(p)] = bytes;
    return {p, p, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void *to, const void *from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
static PinnedAllocator pinned_allocator;

bool is_pinned(const void *data) {
  std::lock_guard<std::mutex> guard(pinned_lock);
  auto after = pinned.upper_bound(static_cast<const char *>(data));
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const char *>(data) < after->first + after->second;
}

// ---- guard, streams, events ----
// A device runs everything in one order, so streams are names: work on one never overtakes work on another.

namespace {

thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;
std::atomic<c10::StreamId> next_stream{1};

struct TpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTpu; }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::Device old(kTpu, current);
    if (d.index() >= 0 && d.index() != current) set_current_device(d.index());
    return old;
  }
  c10::Device getDevice() const override { return c10::Device(kTpu, current); }
  void setDevice(c10::Device d) const override {
    if (d.index() >= 0) set_current_device(d.index());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::Stream getStream(c10::Device d) const override {
    c10::DeviceIndex index = d.has_index() ? d.index() : current;
    auto found = current_streams.find(index);
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, index),
                       found == current_streams.end() ? 0 : found->second);
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, d.has_index() ? d.index() : current), 0);
  }
  c10::Stream getNewStream(c10::Device d, int = 0) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, d.has_index() ? d.index() : current), next_stream++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool = false) const override { return getNewStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    c10::Stream old = getStream(s.device());
    current_streams[s.device_index()] = s.id();
    return old;
  }
  void *getStreamNativeHandle(const c10::Stream s) const override { return reinterpret_cast<void *>(s.id()); }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    rt_event_free(static_cast<rt_event *>(event));
  }
  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      rt_event *made = nullptr;
      check(rt_event_new(&made));
      *event = made;
    }
    check(rt_event_record(static_cast<rt_event *>(*event), static_cast<uint32_t>(stream.device_index())));
  }
  void block(void *, const c10::Stream &) const override {}
  bool queryEvent(void *event) const override {
    return event == nullptr || rt_event_query(static_cast<rt_event *>(event));
  }
  void synchronizeEvent(void *event) const override {
    if (event != nullptr) check(rt_event_synchronize(static_cast<rt_event *>(event)));
  }
  double elapsedTime(void *start, void *end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    double milliseconds = 0;
    check(rt_event_elapsed(static_cast<rt_event *>(start), static_cast<rt_event *>(end), &milliseconds));
    return milliseconds;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return c10::DeviceCapability(); }
  bool queryStream(const c10::Stream &stream) const override {
    rt_event *e = nullptr;
    check(rt_event_new(&e));
    ttpu_status status = rt_event_record(e, static_cast<uint32_t>(stream.device_index()));
    bool done = status == TTPU_OK && rt_event_query(e);
    rt_event_free(e);
    check(status);
    return done;
  }
  void synchronizeStream(const c10::Stream &stream) const override {
    check(rt_synchronize(static_cast<uint32_t>(stream.device_index())));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    check(rt_synchronize(static_cast<uint32_t>(device < 0 ? current : device)));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, TpuGuard)

// ---- generator ----
// Philox: 16 bytes of state, the seed and then the offset (counted in numbers of 32 bits, four to a counter).

struct TpuGenerator final : at::GeneratorImpl {
  explicit TpuGenerator(c10::DeviceIndex device)
      : at::GeneratorImpl(c10::Device(kTpu, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl &state) override {
    TORCH_CHECK(state.device_type() == c10::kCPU && state.dtype() == at::kByte && state.numel() == 16,
                "RNG state must be a torch.ByteTensor of 16 elements (seed, offset) on the CPU");
    const char *bytes = static_cast<const char *>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    std::memcpy(state.data_ptr<uint8_t>(), &seed_, 8);
    std::memcpy(state.data_ptr<uint8_t>() + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  TpuGenerator *clone_impl() const override {
    auto *copy = new TpuGenerator(device_.index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }
  static c10::DeviceType device_type() { return kTpu; }

 private:
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

std::mutex generators_lock;
std::map<c10::DeviceIndex, at::Generator> generators; // of each device, made at its first use
uint64_t first_seed = c10::default_rng_seed_val;      // of those not made yet

} // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<TpuGenerator>(device < 0 ? current : device);
}

at::Generator &default_generator(c10::DeviceIndex device) {
  if (device < 0) device = current;
  TORCH_CHECK(device < std::max<c10::DeviceIndex>(device_count(), 1),
              "invalid device ordinal tpu:", static_cast<int>(device));
  std::lock_guard<std::mutex> guard(generators_lock);
  auto found = generators.find(device);
  if (found == generators.end()) {
    found = generators.emplace(device, new_generator(device)).first;
    found->second.set_current_seed(first_seed);
  }
  return found->second;
}

void seed_default_generators(uint64_t seed) {
  std::lock_guard<std::mutex> guard(generators_lock);
  first_seed = seed;
  for (auto &[device, generator] : generators) {
    std::lock_guard<std::mutex> state(generator.mutex());
    generator.set_current_seed(seed);
  }
}

rt_random draw(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t counters) {
  at::Generator g = generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(g.device().type() == kTpu, "Expected a 'tpu' device type for generator but found '", g.device().type(),
              "'");
  std::lock_guard<std::mutex> guard(g.mutex());
  auto *impl = static_cast<TpuGenerator *>(g.unsafeGetGeneratorImpl());
  uint64_t offset = (impl->get_offset() + 3) / 4;
  impl->set_offset((offset + counters) * 4);
  return {impl->current_seed(), offset};
}

// ---- hooks ----

namespace {

struct TpuHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_available(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return rt_is_initialized(); }
  void init() const override { initialize(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    c10::DeviceIndex old = current;
    if (device >= 0) set_current_device(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }
  at::Device getDeviceFromPtr(void *) const override { return c10::Device(kTpu, current); }
  bool isPinnedPtr(const void *data) const override { return is_pinned(data); }
  at::Allocator *getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

struct RegisterHooks {
  RegisterHooks() { at::RegisterPrivateUse1HooksInterface(new TpuHooks()); }
} register_hooks;

} // namespace
} // namespace ttpu
