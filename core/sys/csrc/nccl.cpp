#include "guard.hpp"
#include "handles.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace {

struct Nccl final : c10d::ProcessGroupNCCL {
  using ProcessGroupNCCL::ProcessGroupNCCL;

  c10d_progress progress() const {
    // The watchdog writes them without a lock, and PyTorch reads them so.
    return {
        __atomic_load_n(&pgStatus_->lastEnqueuedSeq, __ATOMIC_RELAXED),
        __atomic_load_n(&pgStatus_->lastCompletedSeq, __ATOMIC_RELAXED)};
  }
};

} // namespace

extern "C" c10d_status c10d_process_group_add_nccl(c10d_process_group* handle, int device_index, int64_t timeout_ms) {
  return c10d_sys::guarded([&] {
    auto& group = handle->group;
    const auto device = c10d_sys::cuda(device_index);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    options->group_name = c10d_sys::kGroupName;
    auto store = c10::make_intrusive<c10d::PrefixStore>("cuda/", group->getStore());
    auto nccl = c10::make_intrusive<Nccl>(store, group->getRank(), group->getSize(), std::move(options));
    nccl->setSequenceNumberForGroup();
    group->setBoundDeviceId(device);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
    group->setBackend(
        c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, c10::intrusive_ptr<c10d::Backend>(nccl));
    c10d_sys::name(*group);
    if (!c10d::getCvarBool(c10d::TORCH_NCCL_BLOCKING_WAIT, false)) {
      // Otherwise there is no watchdog that counts. The group, which the handle holds, holds the backend.
      handle->progress = [nccl = nccl.get()] { return nccl->progress(); };
    }
    // Connect now, so that a wrong set-up fails here and not in the first step.
    nccl->eagerConnectSingleDevice(device);
  });
}
