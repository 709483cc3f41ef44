// Gloo, with shared memory between the ranks of one host.
#pragma once

#include "exchange_work.hpp"
#include "failable_work.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace c10d_sys {

// Hands collectives over to an exchange, for tensors that it supports, but for all_to_all_single with split sizes: no
// rank knows the others'. Messages are gloo's, and so is everything if there is no exchange. Gloo implements reduce_scatter
// with all_reduce, and all_gather_into_tensor with all_gather, so both come through here too.
class Gloo final : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  void set_exchange(std::shared_ptr<Exchange> exchange) { exchange_ = std::move(exchange); }

  // These four do what ProcessGroup in ../src/process_group.rs says. Operations that whoever waits for them
  // carries out do not make it busy.
  std::optional<int> lost_peer(int first, std::chrono::milliseconds age);
  void fail_operations_with(int rank);
  bool is_busy();
  void fail();

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Its messages get the next numbers of gloo's collectives as tags. The exchange uses none of these, so without this
  // they would be the tags of a user's messages, from 0 on.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    if (exchange_ != nullptr) {
      collectiveCounter_ = std::max<uint32_t>(collectiveCounter_, 1 << 30);
    }
    ProcessGroupGloo::monitoredBarrier(options, wait_all_ranks);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  // Like all_gather_into_tensor and reduce_scatter_tensor of one tensor that for each rank consists of the
  // rank's rows of all these, `[ranks, ...]`, one after the other. Only in shared memory.
  WorkPtr allgather_parts(const Tensors& outputs, const Tensors& inputs, const c10d::AllgatherOptions& options);
  WorkPtr reduce_scatter_parts(
      const at::Tensor& output, const Tensors& inputs, const c10d::ReduceScatterOptions& options);
  // Adds up all ranks' rows, which are sums over virtual ranks, into everyone's first row. Only in shared memory.
  WorkPtr add_rows(const at::Tensor& tensor, int virtual_ranks, const c10d::AllreduceOptions& options);
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Tracked {
    c10::weak_intrusive_ptr<c10d::Work> work;
    // The rank it needs; all, if none is given.
    std::optional<int> peer;
    Clock::time_point begun;

    // Null if it is over.
    WorkPtr in_progress() const {
      auto locked = work.lock();
      return locked && !locked->isCompleted() ? locked : nullptr;
    }
  };

  template <typename CallOptions>
  WorkPtr start(
      const Operation& operation, const Exchange::Operands& operands, const CallOptions& options, const char* title,
      std::vector<ExchangeWork::Prior> prior = {});
  // Lets gloo carry an operation out, once the other ranks know that it does.
  template <typename F>
  WorkPtr leave_to_gloo(Operation operation, F carry_out) {
    if (exchange_ != nullptr) {
      operation.by_gloo = true;
      exchange_->announce(operation);
    }
    return failable(carry_out());
  }
  int64_t checked_rank(int64_t rank) const;
  bool has_one_per_rank(const std::vector<Tensors>& lists, const at::Tensor& like) const;
  std::vector<Tensors> parts_of(const Tensors& tensors) const;
  WorkPtr failable(WorkPtr work);
  WorkPtr track(WorkPtr work, std::optional<int> peer);
  std::vector<WorkPtr> in_progress(int rank, std::chrono::milliseconds age);

  std::shared_ptr<Exchange> exchange_;
  std::mutex tracking_;
  // Gloo's operations. Some are over.
  std::vector<Tracked> tracked_;
};

} // namespace c10d_sys
