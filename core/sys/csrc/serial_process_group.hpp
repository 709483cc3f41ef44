// A process group that several threads may use.
#pragma once

#include "guard.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <mutex>

namespace c10d_sys {

// The backends match operations up by counters that no lock guards, and the reducer starts
// operations from autograd's threads.
class SerialProcessGroup : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Starts an operation of ours, on the backend itself: c10d's dispatcher would only pass it on.
  template <typename F>
  auto start(F&& operation) {
    const std::lock_guard<std::mutex> lock(starting_);
    return operation(*getDefaultBackend());
  }

  // What c10d itself starts, such as the reducer.
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::broadcast(tensors, options);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::allreduce(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    const std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::allgather(outputs, inputs, options);
  }
  // The base class's barrier uses one tensor for all groups of the process, without a lock.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return start([&](c10d::Backend& backend) { return backend.barrier(options); });
  }

 private:
  std::mutex starting_;
};

} // namespace c10d_sys
