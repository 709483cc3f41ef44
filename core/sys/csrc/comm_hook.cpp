#include "comm_hook.hpp"

#include "guard.hpp"

#include <c10/util/ScopeExit.h>

#include <memory>
#include <utility>

namespace {

// An exchange that has been started, as it travels through the reducer.
struct Pending : torch::CustomClassHolder {
  explicit Pending(c10d_drop drop) : exchange(nullptr, drop) {}

  std::unique_ptr<void, c10d_drop> exchange;
};

} // namespace

namespace c10d_sys {

c10::intrusive_ptr<c10::ivalue::Future> CommHook::runHook(c10d::GradBucket& bucket) {
  at::NoGradGuard no_grad;
  ++running_;
  const auto done = c10::make_scope_exit([this] { --running_; });
  c10d_grad_bucket borrowed{bucket};
  auto pending = c10::make_intrusive<Pending>(functions_.drop_pending);
  void* started = nullptr;
  raise(functions_.start(context_, &borrowed, &started));
  pending->exchange.reset(started);
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::CapsuleType::get());
  future->markCompleted(c10::IValue::make_capsule(std::move(pending)));
  return future;
}

at::Tensor CommHook::parseHookResult(const c10::IValue& result) {
  at::NoGradGuard no_grad;
  ++running_;
  const auto done = c10::make_scope_exit([this] { --running_; });
  auto pending = c10::static_intrusive_pointer_cast<Pending>(result.toCapsule());
  c10d_tensor* given = nullptr;
  raise(functions_.finish(pending->exchange.release(), &given));
  std::unique_ptr<at::Tensor> tensor(static_cast<at::Tensor*>(given));
  // The reducer computes each gradient's offset from the start of the storage, but copies one that is sparse.
  const bool is_usable =
      tensor->layout() != at::kStrided || (tensor->is_contiguous() && tensor->storage_offset() == 0);
  return is_usable ? std::move(*tensor) : tensor->clone(at::MemoryFormat::Contiguous);
}

} // namespace c10d_sys

extern "C" {

size_t c10d_grad_bucket_index(const c10d_grad_bucket* handle) { return handle->bucket.getIndex(); }

bool c10d_grad_bucket_is_last(const c10d_grad_bucket* handle) { return handle->bucket.isLast(); }

c10d_status c10d_grad_bucket_buffer(const c10d_grad_bucket* handle, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(handle->bucket.getBuffer()); });
}

c10d_status c10d_grad_bucket_set_buffer(c10d_grad_bucket* handle, c10d_tensor* buffer) {
  return guarded([&] { handle->bucket.setBuffer(c10d_sys::tensor(buffer)); });
}

size_t c10d_grad_bucket_len(const c10d_grad_bucket* handle) { return handle->bucket.getParameters().size(); }

// `out` has room for c10d_grad_bucket_len new tensors, here and below.
c10d_status c10d_grad_bucket_gradients(const c10d_grad_bucket* handle, c10d_tensor** out) {
  return guarded([&] {
    const auto gradients = handle->bucket.getGradients();
    TORCH_CHECK_VALUE(
        gradients.size() == handle->bucket.getParameters().size(),
        "a sparse gradient is its bucket's buffer, which has no parts");
    c10d_sys::give(gradients, out);
  });
}

c10d_status c10d_grad_bucket_parameters(const c10d_grad_bucket* handle, c10d_tensor** out) {
  return guarded([&] { c10d_sys::give(handle->bucket.getParameters(), out); });
}

} // extern "C"
