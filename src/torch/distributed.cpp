// torch.distributed: the process group backend "tpu_dist" (docs/distributed.md).
//
// Tensors go from process to process through the memory of their hosts, so that it works on every plugin. A collective reads
// its tensors when it is called; the rest is done by a thread of the group, in the order of the calls, which is the same in
// every process, while the caller goes on. A backend for CPU tensors (Gloo) carries messages (exchange.h). What a reduction
// computes is computed here: in the order of the ranks and at least in float32, so that every process gets the same bits.
#include "torch/capture.h"
#include "torch/exchange.h"

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/csrc/utils/pybind.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace py = pybind11;

namespace ttpu {

namespace {

using c10d::OpType;
using c10d::ReduceOp;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

const char kName[] = "tpu_dist";
constexpr int64_t kOneRound = 1 << 16; // bytes up to which a reduction gathers everything instead of taking two rounds

// ---- host memory ----

at::Tensor host_like(HostMemory &memory, const at::Tensor &t) { return memory.take(t.numel(), t.scalar_type()); }

// The elements in order, in one dimension on the CPU.
at::Tensor to_host(HostMemory &memory, const at::Tensor &t) {
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor host = host_like(memory, t);
  host.view(t.sizes()).copy_(t);
  return host;
}

Tensors to_host(HostMemory &memory, const Tensors &tensors) {
  Tensors copies;
  for (const at::Tensor &t : tensors) copies.push_back(to_host(memory, t));
  return copies;
}

// Host tensors of one dimension into the tensors that they are the elements of.
void deliver(const Tensors &hosts, const Tensors &outputs) {
  at::AutoDispatchBelowADInplaceOrView guard; // as PyTorch's own backends write
  for (size_t i = 0; i < hosts.size(); ++i) outputs[i].copy_(hosts[i].view(outputs[i].sizes()));
}

// ---- reductions ----

at::ScalarType accumulator(at::ScalarType t) {
  if (t == at::kUInt16) return at::kInt;
  if (t == at::kUInt32) return at::kLong;
  return c10::isReducedFloatingType(t) ? at::kFloat : t;
}

void check_reduction(const char *name, const ReduceOp &op, at::ScalarType t) {
  bool ok = t != at::kUInt64;
  switch (op.op_) {
    case ReduceOp::MIN:
    case ReduceOp::MAX: ok = ok && !c10::isComplexType(t); break;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR: ok = ok && c10::isIntegralType(t, /*includeBool=*/true); break;
    case ReduceOp::AVG:
    case ReduceOp::PREMUL_SUM: ok = ok && t != at::kBool; break;
    case ReduceOp::SUM:
    case ReduceOp::PRODUCT: break;
    default: ok = false;
  }
  static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  TORCH_CHECK_VALUE(ok, kName, ": ", name, " with ReduceOp.", op.op_ < 9 ? names[op.op_] : "?", " is not defined for ",
                    t, " tensors");
}

void combine(ReduceOp::RedOpType op, at::Tensor &so_far, const at::Tensor &next) {
  switch (op) {
    case ReduceOp::PRODUCT: so_far.mul_(next); break;
    case ReduceOp::MIN: at::minimum_out(so_far, so_far, next); break;
    case ReduceOp::MAX: at::maximum_out(so_far, so_far, next); break;
    case ReduceOp::BAND: so_far.bitwise_and_(next); break;
    case ReduceOp::BOR: so_far.bitwise_or_(next); break;
    case ReduceOp::BXOR: so_far.bitwise_xor_(next); break;
    default: so_far.add_(next); // SUM, AVG, and PREMUL_SUM of what was multiplied before
  }
}

// One row a rank, in their order, to one row.
at::Tensor reduce_rows(const at::Tensor &rows, ReduceOp::RedOpType op) {
  at::ScalarType wide = accumulator(rows.scalar_type());
  at::Tensor result = rows[0].to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t rank = 1; rank < rows.size(0); ++rank) combine(op, result, rows[rank].to(wide));
  if (op == ReduceOp::AVG && c10::isIntegralType(wide, true)) result.div_(rows.size(0), "trunc");
  else if (op == ReduceOp::AVG) (result.is_complex() ? at::view_as_real(result) : result).div_(rows.size(0));
  return result.to(rows.scalar_type());
}

// What a rank gives to a reduction that is defined: with PREMUL_SUM its own factor times the tensor.
at::Tensor contribution(const char *name, HostMemory &memory, const at::Tensor &t, const ReduceOp &op) {
  check_reduction(name, op, t.scalar_type());
  if (op.op_ != ReduceOp::PREMUL_SUM) return to_host(memory, t);
  const auto *factor = static_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());
  at::Tensor scaled = factor->tensor_factor.defined() ? t.detach() * factor->tensor_factor.reshape({})
                                                      : t.detach() * factor->double_factor;
  return to_host(memory, scaled.to(t.scalar_type()));
}

// ---- work ----

// A collective. Who waits for it, or for its future, finds the results in the output tensors.
class Collective final : public c10d::Work {
 public:
  // Runs in the group's thread; gives the elements of each output.
  using Job = std::function<Tensors(const Exchange::Collective &)>;

  Collective(int rank, OpType type, Exchange::Collective which, c10::Device device, Tensors outputs, Job job)
      : Work(rank, type, c10::str(kName, ":", which.name).c_str()),
        which_(which),
        outputs_(std::move(outputs)),
        job_(std::move(job)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{device})),
        caller_records_(is_recording()) {}

  // In the group's thread.
  void run() noexcept {
    try {
      results_ = job_(which_);
    } catch (...) {
      error_ = std::current_exception();
    }
    job_ = nullptr; // and the copies that it holds
    if (caller_records_) carried_.set_value();
    else complete();
  }

  // In the caller's, behind the start. While a function is recorded (torch.compile), no other thread may use the device.
  void complete_if_recording() {
    if (!caller_records_) return;
    carried_.get_future().wait();
    complete();
  }

  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void complete() noexcept {
    try {
      if (!error_) deliver(results_, outputs_);
    } catch (...) {
      error_ = std::current_exception();
    }
    results_.clear();
    finish(error_);
    if (error_) future_->setError(error_);
    else future_->markCompleted(c10::IValue(outputs_));
  }

  const Exchange::Collective which_;
  Tensors outputs_, results_;
  std::exception_ptr error_;
  Job job_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  const bool caller_records_;
  std::promise<void> carried_;
};

// A message that is sent or received by the host's backend itself: messages overtake each other and collectives.
class Message final : public c10d::Work {
 public:
  Message(int rank, OpType type, at::Tensor host, std::optional<at::Tensor> output, WorkPtr carried)
      : Work(rank, type), host_(std::move(host)), output_(std::move(output)), carried_(std::move(carried)) {}

  bool isCompleted() override { return carried_->isCompleted(); }
  bool isSuccess() const override { return carried_->isSuccess(); }
  std::exception_ptr exception() const override { return carried_->exception(); }
  int sourceRank() const override { return carried_->sourceRank(); }
  bool wait(Milliseconds timeout) override {
    if (!carried_->wait(timeout)) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    if (output_.has_value()) deliver({host_}, {*output_});
    output_.reset();
    return true;
  }

 private:
  at::Tensor host_;
  std::optional<at::Tensor> output_;
  WorkPtr carried_;
};

// Several as one, for calls between start and end of coalescing.
class Together final : public c10d::Work {
 public:
  Together(int rank, std::vector<WorkPtr> works) : Work(rank, OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr &w) { return w->isCompleted(); });
  }
  bool wait(Milliseconds timeout) override {
    for (const WorkPtr &w : works_)
      if (!w->wait(timeout)) return false;
    return true;
  }

 private:
  std::vector<WorkPtr> works_;
};

// ---- the backend ----

class TpuDist final : public c10d::Backend {
 public:
  TpuDist(c10::intrusive_ptr<c10d::Backend> host, Milliseconds timeout)
      : Backend(host->getRank(), host->getSize()),
        host_(std::move(host)),
        exchange_(host_),
        memory_(std::make_shared<HostMemory>()),
        options_(c10::make_intrusive<Options>(kName, timeout)),
        thread_([this] { serve(); }) {}

  ~TpuDist() override { close(); }

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(Milliseconds timeout) override {
    options_->timeout = timeout;
    host_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {} // they all begin at 0
  uint64_t getSequenceNumberForGroup() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return number_;
  }
  void abort() override { host_->abort(); }
  void shutdown() override {
    close();
    host_->shutdown();
  }

  void startCoalescing() override {
    TORCH_CHECK(!coalescing_.has_value(), kName, ": coalescing has begun already");
    coalescing_.emplace();
  }
  WorkPtr endCoalescing() override {
    TORCH_CHECK(coalescing_.has_value(), kName, ": coalescing has not begun");
    auto together = c10::make_intrusive<Together>(getRank(), std::move(*coalescing_));
    coalescing_.reset();
    return together;
  }

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override {
    const at::Tensor &t = only("broadcast", tensors);
    int root = check_rank("broadcast", "src", opts.rootRank);
    bool sends = root == getRank();
    at::Tensor host = sends ? to_host(*memory_, t) : host_like(*memory_, t);
    return start(OpType::BROADCAST, "broadcast", t, sends ? Tensors{} : tensors, opts.timeout,
                 [=, this](const Exchange::Collective &which) -> Tensors {
                   if (sends) exchange_.run(which, with_others(host), {});
                   else exchange_.run(which, {}, {{root, bytes_of(host)}});
                   return sends ? Tensors{} : Tensors{host};
                 });
  }

  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override {
    return reduce_all(OpType::ALLREDUCE, tensors, opts);
  }
  WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override {
    return reduce_all(OpType::ALLREDUCE_COALESCED, tensors, opts);
  }
  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override {
    const at::Tensor &t = only("reduce", tensors);
    int root = check_rank("reduce", "dst", opts.rootRank);
    at::Tensor host = contribution("reduce", *memory_, t, opts.reduceOp);
    return start(OpType::REDUCE, "reduce", t, root == getRank() ? tensors : Tensors{}, opts.timeout,
                 [=, this, op = opts.reduceOp.op_](const Exchange::Collective &which) -> Tensors {
                   at::Tensor result = reduce_to(which, host, op, root);
                   return root == getRank() ? Tensors{result} : Tensors{};
                 });
  }

  WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override {
    return gather_all(OpType::ALLGATHER, outputs, inputs, opts);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                              const c10d::AllgatherOptions &opts) override {
    // PyTorch lists these the other way round: a list a rank.
    std::vector<Tensors> by_input(inputs.size());
    for (const Tensors &of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), kName,
                        ": all_gather_coalesced wants a tensor for each of the ", inputs.size(),
                        " inputs from every rank, got ", of_rank.size());
      for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank[i]);
    }
    return gather_all(OpType::ALLGATHER_COALESCED, by_input, inputs, opts);
  }
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override {
    return gather_into(OpType::_ALLGATHER_BASE, {output}, {input}, opts);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &opts) override {
    return gather_into(OpType::COALESCED, outputs, inputs, opts);
  }

  WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override {
    const at::Tensor &t = only("gather", inputs);
    int root = check_rank("gather", "dst", opts.rootRank);
    Tensors to = list_of_root("gather", root, outputs, t), hosts;
    for (const at::Tensor &o : to) hosts.push_back(host_like(*memory_, o));
    return start(OpType::GATHER, "gather", t, to, opts.timeout,
                 [=, this, host = to_host(*memory_, t)](const Exchange::Collective &which) -> Tensors {
                   exchange_.run(which, {{root, bytes_of(host)}}, by_rank(hosts));
                   return hosts;
                 });
  }

  WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override {
    const at::Tensor &t = only("scatter", outputs);
    int root = check_rank("scatter", "src", opts.rootRank);
    Tensors from = to_host(*memory_, list_of_root("scatter", root, inputs, t));
    return start(OpType::SCATTER, "scatter", t, outputs, opts.timeout,
                 [=, this, host = host_like(*memory_, t)](const Exchange::Collective &which) -> Tensors {
                   exchange_.run(which, by_rank(from), {{root, bytes_of(host)}});
                   return {host};
                 });
  }

  WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                         const c10d::ReduceScatterOptions &opts) override {
    check_on_tpu("reduce_scatter", outputs);
    TORCH_CHECK_VALUE(inputs.size() == outputs.size(), kName,
                      ": reduce_scatter wants a list of tensors for each of the ", outputs.size(), " outputs, got ",
                      inputs.size());
    Tensors rows;
    for (size_t i = 0; i < outputs.size(); ++i) {
      check_each("reduce_scatter", inputs[i], outputs[i]);
      Tensors flat;
      for (const at::Tensor &t : inputs[i]) flat.push_back(t.detach().reshape({-1}));
      rows.push_back(at::cat(flat));
    }
    return scatter_reduced(OpType::REDUCE_SCATTER, outputs, rows, opts);
  }
  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) override {
    return scatter_reduced(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &opts) override {
    return scatter_reduced(OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs, inputs, opts);
  }

  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override {
    check_same("all_to_all_single", input, output);
    std::vector<int64_t> in = bytes_by_rank("input", input, input_splits),
                         out = bytes_by_rank("output", output, output_splits);
    at::Tensor from = to_host(*memory_, input), to = host_like(*memory_, output);
    return start(OpType::ALLTOALL_BASE, "all_to_all", input, {output}, opts.timeout,
                 [=, this](const Exchange::Collective &which) -> Tensors {
                   exchange_.run(which, by_rank(bytes_of(from).split_with_sizes(in)),
                                 by_rank(bytes_of(to).split_with_sizes(out)));
                   return {to};
                 });
  }

  WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override {
    check_on_tpu("all_to_all", inputs);
    check_on_tpu("all_to_all", outputs);
    check_count("all_to_all", "input tensor", inputs.size());
    check_count("all_to_all", "output tensor", outputs.size());
    Tensors from = to_host(*memory_, inputs), to;
    for (const at::Tensor &t : outputs) to.push_back(host_like(*memory_, t));
    return start(OpType::ALLTOALL, "all_to_all", inputs[0], outputs, opts.timeout,
                 [=, this](const Exchange::Collective &which) -> Tensors {
                   exchange_.run(which, by_rank(from), by_rank(to));
                   return to;
                 });
  }

  WorkPtr send(Tensors &tensors, int to, int tag) override {
    const at::Tensor &t = only("send", tensors);
    check_rank("send", "dst", to);
    at::Tensor host = to_host(*memory_, t);
    Tensors carried{bytes_of(host)};
    return keep(
        c10::make_intrusive<Message>(getRank(), OpType::SEND, host, std::nullopt, host_->send(carried, to, tag)));
  }
  WorkPtr recv(Tensors &tensors, int from, int tag) override {
    check_rank("recv", "src", from);
    return receive(OpType::RECV, tensors, [&](Tensors &carried) { return host_->recv(carried, from, tag); });
  }
  WorkPtr recvAnysource(Tensors &tensors, int tag) override {
    return receive(OpType::RECVANYSOURCE, tensors,
                   [&](Tensors &carried) { return host_->recvAnysource(carried, tag); });
  }

  WorkPtr barrier(const c10d::BarrierOptions &opts) override {
    c10::Device device(kTpu, opts.device_ids.empty() ? current_device() : opts.device_ids[0]);
    return start(OpType::BARRIER, "barrier", device, {}, opts.timeout,
                 [this](const Exchange::Collective &which) -> Tensors {
                   std::vector<Exchange::Part> nothing = with_others(at::empty({0}, at::kByte));
                   exchange_.run(which, nothing, nothing);
                   return {};
                 });
  }

 private:
  // ---- arguments ----

  void check_on_tpu(const char *name, const Tensors &tensors) const {
    TORCH_CHECK_VALUE(!tensors.empty(), kName, ": ", name, " wants tensors, got none");
    for (const at::Tensor &t : tensors)
      TORCH_CHECK_VALUE(t.device().type() == kTpu && t.layout() == at::kStrided, kName, ": ", name,
                        " wants dense tensors on tpu, got a ", t.layout(), " one on ", t.device());
  }
  const at::Tensor &only(const char *name, const Tensors &tensors) const {
    check_on_tpu(name, tensors);
    TORCH_CHECK_VALUE(tensors.size() == 1, kName, ": ", name, " wants one tensor, got ", tensors.size());
    return tensors[0];
  }
  int check_rank(const char *name, const char *what, int64_t rank) const {
    TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), kName, ": ", name, " with ", what, "=", rank, " in a group of ",
                      getSize());
    return static_cast<int>(rank);
  }
  void check_count(const char *name, const char *what, size_t count) const {
    TORCH_CHECK_VALUE(count == static_cast<size_t>(getSize()), kName, ": ", name, " wants one ", what, " a rank, ",
                      getSize(), " in all, got ", count);
  }
  void check_same(const char *name, const at::Tensor &a, const at::Tensor &b) const {
    check_on_tpu(name, {a, b});
    TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), kName, ": ", name, " from ", a.scalar_type(), " to ",
                     b.scalar_type());
  }
  // One tensor a rank, each like t.
  void check_each(const char *name, const Tensors &tensors, const at::Tensor &t) const {
    check_count(name, "tensor", tensors.size());
    for (const at::Tensor &one : tensors) {
      check_same(name, one, t);
      TORCH_CHECK_VALUE(one.numel() == t.numel(), kName, ": ", name, " wants tensors of one size, got ", one.sizes(),
                        " and ", t.sizes());
    }
  }
  // The one list of a gather's or a scatter's root, with a tensor like t for each rank; nothing on the others.
  Tensors list_of_root(const char *name, int root, const std::vector<Tensors> &lists, const at::Tensor &t) const {
    if (root != getRank()) return {};
    TORCH_CHECK_VALUE(lists.size() == 1, kName, ": ", name, " wants one list of tensors, got ", lists.size());
    check_each(name, lists[0], t);
    return lists[0];
  }
  // `all` is what `part` of every rank makes together.
  void check_parts(const char *name, const at::Tensor &all, const at::Tensor &part) const {
    check_same(name, all, part);
    TORCH_CHECK_VALUE(all.numel() == part.numel() * getSize(), kName, ": ", name, " in a group of ", getSize(),
                      " wants as many times the elements on one side, got ", all.sizes(), " and ", part.sizes());
  }
  // How many bytes go to, or come from, each rank: by the sizes of dimension 0, or in equal parts.
  std::vector<int64_t> bytes_by_rank(const char *what, const at::Tensor &t, const std::vector<int64_t> &splits) const {
    int64_t length = t.dim() == 0 ? 1 : t.size(0), ranks = getSize(), total = 0;
    std::vector<int64_t> parts = splits;
    if (parts.empty()) {
      TORCH_CHECK_VALUE(length % ranks == 0, kName, ": all_to_all_single: dimension 0 of the ", what, ", ", length,
                        ", is not divisible by the group's size ", ranks);
      parts.assign(static_cast<size_t>(ranks), length / ranks);
    }
    check_count("all_to_all_single", "split size", parts.size());
    for (int64_t part : parts) {
      TORCH_CHECK_VALUE(part >= 0, kName, ": all_to_all_single: a split size is ", part);
      total += part;
    }
    TORCH_CHECK_VALUE(total == length, kName, ": all_to_all_single: the ", what, "'s split sizes make ", total,
                      ", its dimension 0 is ", length);
    int64_t row = length == 0 ? 0 : t.numel() / length * static_cast<int64_t>(t.itemsize());
    for (int64_t &part : parts) part *= row;
    return parts;
  }

  // ---- what the group's thread does ----

  // Host tensor i with rank i; none of none.
  static std::vector<Exchange::Part> by_rank(const Tensors &hosts) {
    std::vector<Exchange::Part> parts;
    for (const at::Tensor &host : hosts) parts.push_back({static_cast<int>(parts.size()), bytes_of(host)});
    return parts;
  }
  // The same to each of the others.
  std::vector<Exchange::Part> with_others(const at::Tensor &host) const {
    std::vector<Exchange::Part> parts;
    for (int rank = 0; rank < getSize(); ++rank)
      if (rank != getRank()) parts.push_back({rank, bytes_of(host)});
    return parts;
  }
  at::Tensor rows_for(const at::Tensor &row) const {
    return memory_->take(getSize() * row.numel(), row.scalar_type()).view({getSize(), row.numel()});
  }

  // A row a rank.
  at::Tensor gather_rows(const Exchange::Collective &which, const at::Tensor &mine) {
    if (getSize() == 1) return mine.unsqueeze(0);
    at::Tensor rows = rows_for(mine);
    exchange_.run(which, by_rank(Tensors(static_cast<size_t>(getSize()), mine)), by_rank(rows.unbind()));
    return rows;
  }

  // From a part for each rank, one behind the other: this rank's, reduced.
  at::Tensor reduce_parts(const Exchange::Collective &which, const at::Tensor &parts, ReduceOp::RedOpType op) {
    at::Tensor sent = parts.view({getSize(), parts.numel() / getSize()}), rows = sent;
    if (getSize() > 1) {
      rows = rows_for(sent[0]);
      exchange_.run(which, by_rank(sent.unbind()), by_rank(rows.unbind()));
    }
    return reduce_rows(rows, op);
  }

  // Small ones take one round: everything goes to everybody who wants the result.
  bool takes_one_round(const at::Tensor &mine) const {
    return getSize() == 1 || mine.numel() * static_cast<int64_t>(mine.itemsize()) * getSize() <= kOneRound;
  }
  // With elements added so that it has a part for each rank.
  at::Tensor in_parts(const at::Tensor &mine) const {
    int64_t rest = mine.numel() % getSize();
    return rest == 0 ? mine : at::constant_pad_nd(mine, {0, getSize() - rest});
  }

  at::Tensor reduce_whole(const Exchange::Collective &which, const at::Tensor &mine, ReduceOp::RedOpType op) {
    if (takes_one_round(mine)) return reduce_rows(gather_rows(which, mine), op);
    at::Tensor rows = gather_rows(which, reduce_parts(which, in_parts(mine), op));
    return rows.view({-1}).narrow(0, 0, mine.numel());
  }

  // On the root alone; nothing elsewhere.
  at::Tensor reduce_to(const Exchange::Collective &which, const at::Tensor &mine, ReduceOp::RedOpType op, int root) {
    bool small = takes_one_round(mine), here = root == getRank();
    at::Tensor row = small ? mine : reduce_parts(which, in_parts(mine), op), rows = here ? rows_for(row) : at::Tensor();
    exchange_.run(which, {{root, bytes_of(row)}}, here ? by_rank(rows.unbind()) : std::vector<Exchange::Part>{});
    if (!here) return rows;
    return small ? reduce_rows(rows, op) : rows.view({-1}).narrow(0, 0, mine.numel());
  }

  // ---- collectives in families ----

  WorkPtr reduce_all(OpType type, const Tensors &tensors, const c10d::AllreduceOptions &opts) {
    check_on_tpu("all_reduce", tensors);
    Tensors hosts;
    for (const at::Tensor &t : tensors) hosts.push_back(contribution("all_reduce", *memory_, t, opts.reduceOp));
    return start(type, "all_reduce", tensors[0], tensors, opts.timeout,
                 [=, this, op = opts.reduceOp.op_](const Exchange::Collective &which) -> Tensors {
                   Tensors results;
                   for (const at::Tensor &host : hosts) results.push_back(reduce_whole(which, host, op));
                   return results;
                 });
  }

  // A list of outputs, one a rank, for each input.
  WorkPtr gather_all(OpType type, const std::vector<Tensors> &outputs, const Tensors &inputs,
                     const c10d::AllgatherOptions &opts) {
    check_on_tpu("all_gather", inputs);
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName, ": all_gather wants a list of tensors for each of the ",
                      inputs.size(), " inputs, got ", outputs.size());
    Tensors all;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_each("all_gather", outputs[i], inputs[i]);
      all.insert(all.end(), outputs[i].begin(), outputs[i].end());
    }
    return start(type, "all_gather", inputs[0], all, opts.timeout,
                 [this, hosts = to_host(*memory_, inputs)](const Exchange::Collective &which) -> Tensors {
                   Tensors results;
                   for (const at::Tensor &host : hosts) {
                     Tensors rows = gather_rows(which, host).unbind();
                     results.insert(results.end(), rows.begin(), rows.end());
                   }
                   return results;
                 });
  }

  WorkPtr gather_into(OpType type, const Tensors &outputs, const Tensors &inputs, const c10d::AllgatherOptions &opts) {
    const char *name = "all_gather_into_tensor";
    check_on_tpu(name, inputs);
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName, ": ", name, " of ", inputs.size(), " tensors into ",
                      outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) check_parts(name, outputs[i], inputs[i]);
    return start(type, "all_gather", inputs[0], outputs, opts.timeout,
                 [this, hosts = to_host(*memory_, inputs)](const Exchange::Collective &which) -> Tensors {
                   Tensors results;
                   for (const at::Tensor &host : hosts) results.push_back(gather_rows(which, host).view({-1}));
                   return results;
                 });
  }

  WorkPtr scatter_reduced(OpType type, const Tensors &outputs, const Tensors &inputs,
                          const c10d::ReduceScatterOptions &opts) {
    const char *name = "reduce_scatter_tensor";
    check_on_tpu(name, inputs);
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName, ": ", name, " of ", inputs.size(), " tensors into ",
                      outputs.size());
    Tensors hosts;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_parts(name, inputs[i], outputs[i]);
      hosts.push_back(contribution(name, *memory_, inputs[i], opts.reduceOp));
    }
    return start(type, "reduce_scatter", inputs[0], outputs, opts.timeout,
                 [=, this, op = opts.reduceOp.op_](const Exchange::Collective &which) -> Tensors {
                   Tensors results;
                   for (const at::Tensor &host : hosts) results.push_back(reduce_parts(which, host, op));
                   return results;
                 });
  }

  template <typename Carry>
  WorkPtr receive(OpType type, const Tensors &tensors, Carry carry) {
    const at::Tensor &t = only("recv", tensors);
    at::Tensor host = host_like(*memory_, t);
    Tensors carried{bytes_of(host)};
    return keep(c10::make_intrusive<Message>(getRank(), type, host, t, carry(carried)));
  }

  // ---- the group's thread ----

  WorkPtr keep(WorkPtr work) {
    if (coalescing_.has_value()) coalescing_->push_back(work);
    return work;
  }

  WorkPtr start(OpType type, const char *name, const at::Tensor &t, Tensors outputs, Milliseconds timeout,
                Collective::Job job) {
    return start(type, name, t.device(), std::move(outputs), timeout, std::move(job));
  }

  WorkPtr start(OpType type, const char *name, c10::Device device, Tensors outputs, Milliseconds timeout,
                Collective::Job job) {
    c10::intrusive_ptr<Collective> work;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TORCH_CHECK(!closed_, kName, ": ", name, " in a process group that was destroyed");
      Exchange::Collective which{name, ++number_, timeout == c10d::kUnsetTimeout ? kNoTimeout : timeout};
      work = c10::make_intrusive<Collective>(getRank(), type, which, device, std::move(outputs), std::move(job));
      queue_.push_back(work);
    }
    changed_.notify_one();
    work->complete_if_recording();
    return keep(work);
  }

  void serve() {
    pthread_setname_np(pthread_self(), "ttpu_dist");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
      if (queue_.empty()) return;
      c10::intrusive_ptr<Collective> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work->run();
      work.reset();
      lock.lock();
    }
  }

  // Ends the thread when it has done what there is to do.
  void close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    if (!thread_.joinable()) return;
    std::optional<py::gil_scoped_release> released; // an operator's shape may have to be asked for in Python
    if (PyGILState_Check()) released.emplace();
    thread_.join();
  }

  c10::intrusive_ptr<c10d::Backend> host_;
  Exchange exchange_; // the thread's
  std::shared_ptr<HostMemory> memory_;
  c10::intrusive_ptr<Options> options_;
  std::optional<std::vector<WorkPtr>> coalescing_;
  std::mutex mutex_; // of what follows
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<Collective>> queue_;
  uint64_t number_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

// How long the parts of a DistributedDataParallel step take on the device, for its log.
class StepTimer final : public c10d::Timer {
 public:
  explicit StepTimer(c10::Device device)
      : device_(static_cast<uint32_t>(device.has_index() ? device.index() : current_device())) {}

  void record(Event event) override {
    Timer::record(event);
    rt_event *e = nullptr;
    check(rt_event_new(&e));
    events_[static_cast<size_t>(event)].reset(e);
    check(rt_event_record(e, device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    rt_event *a = events_[static_cast<size_t>(start)].get(), *b = events_[static_cast<size_t>(end)].get();
    if (a == nullptr || b == nullptr) return std::nullopt;
    double milliseconds = 0;
    for (rt_event *e : {a, b}) check(rt_event_synchronize(e));
    check(rt_event_elapsed(a, b, &milliseconds));
    return milliseconds < 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  struct Free {
    void operator()(rt_event *e) const { rt_event_free(e); }
  };
  uint32_t device_;
  std::unique_ptr<rt_event, Free> events_[5]; // by Event
};

} // namespace
} // namespace ttpu

namespace c10d {
using ttpu::StepTimer;
C10_REGISTER_TYPED_CLASS(TimerRegistry, ttpu::kTpu, StepTimer)
} // namespace c10d

namespace ttpu {

void bind_distributed(py::module_ &m) {
  m.attr("process_group_name") = kName;
  m.def("process_group",
        [](c10::intrusive_ptr<c10d::Backend> host, Milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
          return c10::make_intrusive<TpuDist>(std::move(host), timeout);
        });
}

} // namespace ttpu
