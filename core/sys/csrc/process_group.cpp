#include "guard.hpp"
#include "handles.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

using c10d_sys::guarded;
using c10d_sys::tensor;
using c10d_sys::tensors;
using std::chrono::milliseconds;

namespace {

// The operations take lists; each of ours is about one tensor.
template <typename F>
char* started(c10d_work** out, F&& start) noexcept {
  return guarded([&] { *out = new c10d_work{start()}; });
}

c10d::ReduceOp reduce_op(uint8_t op) {
  return c10d::ReduceOp(static_cast<c10d::ReduceOp::RedOpType>(op));
}

} // namespace

char* c10d_process_group_new(const c10d_store* store, int rank, int world_size, c10d_process_group** out) {
  return guarded([&] {
    *out = new c10d_process_group{
        c10::make_intrusive<c10d::ProcessGroup>(store->store, rank, world_size)};
  });
}

char* c10d_process_group_add_gloo(
    c10d_process_group* handle, const char* interface, const char* hostname, int64_t timeout_ms) {
  return guarded([&] {
    auto& group = handle->group;
    auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_ms));
    options->devices.push_back(
        interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                             : c10d::ProcessGroupGloo::createDeviceForHostname(hostname));
    options->group_name = c10d_sys::kGroupName;
    // Gloo serves CUDA tensors as well, by way of the CPU; PyTorch names the prefix after the first device.
    auto store = c10::make_intrusive<c10d::PrefixStore>("cpu/", group->getStore());
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        store, group->getRank(), group->getSize(), std::move(options));
    gloo->setSequenceNumberForGroup();
    c10::intrusive_ptr<c10d::Backend> backend = std::move(gloo);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, backend);
    c10d_sys::name(*group);
  });
}

char* c10d_all_reduce(c10d_process_group* handle, c10d_tensor* input, uint8_t op, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{tensor(input)};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(op);
    return handle->group->allreduce(list, options);
  });
}

char* c10d_broadcast(c10d_process_group* handle, c10d_tensor* input, int root, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{tensor(input)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return handle->group->broadcast(list, options);
  });
}

char* c10d_reduce(c10d_process_group* handle, c10d_tensor* input, int root, uint8_t op, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{tensor(input)};
    c10d::ReduceOptions options;
    options.reduceOp = reduce_op(op);
    options.rootRank = root;
    return handle->group->reduce(list, options);
  });
}

char* c10d_all_gather(
    c10d_process_group* handle, c10d_tensor** outputs, size_t count, c10d_tensor* input, c10d_work** out) {
  return started(out, [&] {
    std::vector<std::vector<at::Tensor>> gathered{tensors(outputs, count)};
    std::vector<at::Tensor> list{tensor(input)};
    return handle->group->allgather(gathered, list);
  });
}

char* c10d_send(c10d_process_group* handle, c10d_tensor* input, int destination, int tag, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{tensor(input)};
    return handle->group->send(list, destination, tag);
  });
}

char* c10d_recv(c10d_process_group* handle, c10d_tensor* output, int source, int tag, c10d_work** out) {
  return started(out, [&] {
    std::vector<at::Tensor> list{tensor(output)};
    return handle->group->recv(list, source, tag);
  });
}

char* c10d_barrier(c10d_process_group* handle, c10d_work** out) {
  return started(out, [&] { return handle->group->barrier(); });
}

char* c10d_monitored_barrier(c10d_process_group* handle, int64_t timeout_ms, bool wait_all_ranks) {
  return guarded([&] {
    c10d::BarrierOptions options;
    options.timeout = milliseconds(timeout_ms);
    handle->group->monitoredBarrier(options, wait_all_ranks);
  });
}

char* c10d_broadcast_coalesced(
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

char* c10d_work_wait(c10d_work* work) {
  return guarded([&] { work->work->wait(); });
}

char* c10d_work_is_completed(c10d_work* work, bool* out) {
  return guarded([&] { *out = work->work->isCompleted(); });
}

void c10d_work_free(c10d_work* work) {
  delete work;
}

void c10d_process_group_free(c10d_process_group* handle) {
  // NCCL wants to be told before it is destroyed; gloo does nothing.
  std::free(guarded([&] { handle->group->shutdown(); }));
  delete handle;
}
