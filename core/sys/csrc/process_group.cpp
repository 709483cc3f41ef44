#include "gloo.hpp"
#include "guard.hpp"
#include "handles.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <mutex>

using c10d_sys::guarded;
using c10d_sys::tensor;
using c10d_sys::tensors;
using std::chrono::milliseconds;

namespace {

// c10d's operations take lists of tensors; each of ours passes one.
template <typename F>
c10d_status started(c10d_work** out, F&& start) noexcept {
  return guarded([&] { *out = new c10d_work{start()}; });
}

template <typename F>
c10d_status finished(F&& start) noexcept {
  return guarded([&] { start()->wait(); });
}

// A group whose operations may be started from several threads. The backends match operations up by
// counters that no lock guards, and the reducer starts operations from autograd's threads.
class SerialProcessGroup : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::broadcast(tensors, options);
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::allreduce(tensors, options);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::reduce(tensors, options);
  }
  WorkPtr allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::allgather(outputs, inputs, options);
  }
  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::send(tensors, destination, tag);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override {
    std::lock_guard<std::mutex> lock(starting_);
    return c10d::ProcessGroup::recv(tensors, source, tag);
  }
  // The base class's barrier uses one tensor for all groups of the process, without a lock.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    std::lock_guard<std::mutex> lock(starting_);
    return getDefaultBackend()->barrier(options);
  }
  // A monitored barrier cannot be started without waiting for it: the group stays locked until
  // every rank has arrived.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    std::lock_guard<std::mutex> lock(starting_);
    c10d::ProcessGroup::monitoredBarrier(options, wait_all_ranks);
  }

 private:
  std::mutex starting_;
};

// Gloo reads and writes as many numbers as a tensor has, one after the other from the first. With
// gaps between them, or elements that share memory, it would touch memory that is not the tensor's.
at::Tensor& dense(c10d_tensor* pointer) {
  auto& dense = tensor(pointer);
  TORCH_CHECK(
      dense.layout() != at::kStrided || dense.is_non_overlapping_and_dense(),
      "Tensors must be contiguous");
  return dense;
}

c10d::ReduceOp reduce_op(uint8_t op) {
  return c10d::ReduceOp(static_cast<c10d::ReduceOp::RedOpType>(op));
}

// Null, with the reason in the handle, if shared memory is not available here.
std::shared_ptr<c10d_sys::Exchange> offer_exchange(c10d_process_group* handle, c10d::Store& store, int name) {
  const int size = handle->group->getSize();
  if (size == 1) {
    handle->why_none = "there is one rank";
    return nullptr;
  }
  try {
    auto exchange = std::make_shared<c10d_sys::Exchange>(handle->group->getRank(), size, name);
    exchange->offer(store);
    return exchange;
  } catch (const std::exception& error) {
    handle->why_none = c10d_sys::text_of(error);
    return nullptr;
  }
}

} // namespace

c10d_status c10d_process_group_new(const c10d_store* store, int rank, int world_size, c10d_process_group** out) {
  return guarded([&] {
    *out = new c10d_process_group{
        c10::make_intrusive<SerialProcessGroup>(store->store, rank, world_size)};
  });
}

c10d_status c10d_process_group_add_gloo(
    c10d_process_group* handle,
    const char** names,
    size_t count,
    bool are_interfaces,
    bool shared_memory,
    int name,
    int64_t timeout_ms) {
  return guarded([&] {
    auto& group = handle->group;
    const milliseconds timeout(timeout_ms);
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    for (size_t i = 0; i < count; ++i) {
      options->devices.push_back(
          are_interfaces ? c10d::ProcessGroupGloo::createDeviceForInterface(names[i])
                         : c10d::ProcessGroupGloo::createDeviceForHostname(names[i]));
    }
    options->group_name = c10d_sys::kGroupName;
    // Gloo also serves CUDA tensors, through the CPU; PyTorch names the prefix after the first
    // device.
    auto store = c10::make_intrusive<c10d::PrefixStore>("cpu/", group->getStore());
    handle->why_none = "it is switched off";
    auto exchange = shared_memory ? offer_exchange(handle, *store, name) : nullptr;
    auto gloo = c10::make_intrusive<c10d_sys::Gloo>(store, group->getRank(), group->getSize(), options);
    gloo->setSequenceNumberForGroup();
    if (exchange != nullptr) {
      if (auto why_not = exchange->join(*store, timeout)) {
        handle->why_none = *why_not;
      } else {
        handle->exchange = exchange;
        gloo->set_exchange(std::move(exchange));
      }
    }
    c10::intrusive_ptr<c10d::Backend> backend = std::move(gloo);
    if (c10d::debug_level() == c10d::DebugLevel::Detail) {
      // Before each operation the ranks check, over a second group, that all are about to do the
      // same.
      auto helper = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>(
              std::string("pg_wrapper:") + c10d_sys::kGroupName, store),
          group->getRank(),
          group->getSize(),
          options);
      backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, std::move(helper));
    }
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, backend);
    c10d_sys::name(*group);
  });
}

const char* c10d_process_group_no_shared_memory(const c10d_process_group* handle) {
  return handle->exchange == nullptr ? handle->why_none.c_str() : nullptr;
}

c10d_status c10d_allocate_tensor(
    c10d_process_group* handle, const int64_t* size, size_t dimensions, c10d_tensor* like, c10d_tensor** out) {
  return guarded([&] {
    const auto arena = handle->arena();
    const c10d_sys::AllocateIn scope(arena);
    *out = new at::Tensor(at::empty({size, dimensions}, tensor(like).options()));
  });
}

static c10::intrusive_ptr<c10d::Work> all_reduce(
    c10d_process_group* handle, c10d_tensor* input, uint8_t op, bool async) {
  std::vector<at::Tensor> list{dense(input)};
  c10d::AllreduceOptions options;
  options.reduceOp = reduce_op(op);
  options.asyncOp = async;
  return handle->group->allreduce(list, options);
}

c10d_status c10d_all_reduce(c10d_process_group* handle, c10d_tensor* input, uint8_t op) {
  return finished([&] { return all_reduce(handle, input, op, /*async=*/false); });
}

c10d_status c10d_all_reduce_async(c10d_process_group* handle, c10d_tensor* input, uint8_t op, c10d_work** out) {
  return started(out, [&] { return all_reduce(handle, input, op, /*async=*/true); });
}

c10d_status c10d_broadcast(c10d_process_group* handle, c10d_tensor* input, int root) {
  return finished([&] {
    std::vector<at::Tensor> list{dense(input)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.asyncOp = false;
    return handle->group->broadcast(list, options);
  });
}

c10d_status c10d_reduce(c10d_process_group* handle, c10d_tensor* input, int root, uint8_t op) {
  return finished([&] {
    std::vector<at::Tensor> list{dense(input)};
    c10d::ReduceOptions options;
    options.reduceOp = reduce_op(op);
    options.rootRank = root;
    return handle->group->reduce(list, options);
  });
}

c10d_status c10d_all_gather(c10d_process_group* handle, c10d_tensor** outputs, size_t count, c10d_tensor* input) {
  return finished([&] {
    std::for_each(outputs, outputs + count, dense);
    std::vector<std::vector<at::Tensor>> gathered{tensors(outputs, count)};
    std::vector<at::Tensor> list{dense(input)};
    return handle->group->allgather(gathered, list, c10d::AllgatherOptions());
  });
}

c10d_status c10d_send(c10d_process_group* handle, c10d_tensor* input, int destination, int tag, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{dense(input)};
    return handle->group->send(list, destination, tag);
  });
}

c10d_status c10d_recv(c10d_process_group* handle, c10d_tensor* output, int source, int tag, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{dense(output)};
    return handle->group->recv(list, source, tag);
  });
}

c10d_status c10d_barrier(c10d_process_group* handle) {
  return finished([&] {
    c10d::BarrierOptions options;
    options.asyncOp = false;
    return handle->group->barrier(options);
  });
}

c10d_status c10d_monitored_barrier(c10d_process_group* handle, int64_t timeout_ms, bool wait_all_ranks) {
  return guarded([&] {
    c10d::BarrierOptions options;
    options.timeout = milliseconds(timeout_ms);
    handle->group->monitoredBarrier(options, wait_all_ranks);
  });
}

c10d_status c10d_broadcast_coalesced(
    c10d_process_group* handle, c10d_tensor** pointers, size_t count, size_t buffer_size, int root) {
  return guarded([&] {
    // A leaf that requires a gradient may not be written to; its detached twin shares the memory.
    std::vector<at::Tensor> detached;
    for (const auto& each : tensors(pointers, count)) {
      detached.push_back(each.detach());
    }
    c10d::broadcast_coalesced(handle->group, detached, buffer_size, root);
  });
}

c10d_status c10d_work_wait(c10d_work* work) {
  return guarded([&] { work->work->wait(); });
}

c10d_status c10d_work_is_completed(c10d_work* work, bool* out) {
  return guarded([&] { *out = work->work->isCompleted(); });
}

void c10d_work_free(c10d_work* work) {
  delete work;
}

void c10d_process_group_free(c10d_process_group* handle) {
  // NCCL requires a shutdown before its destructor; for gloo it does nothing.
  std::free(guarded([&] { handle->group->shutdown(); }).message);
  delete handle;
}
