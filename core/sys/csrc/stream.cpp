#include "guard.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

// libtorch's interface for the streams of any device, which needs none of CUDA's headers.
struct c10d_event {
  // A hook may still record it.
  std::shared_ptr<c10::Event> event;
};

namespace {

c10::impl::VirtualGuardImpl guard_impl() { return c10::impl::VirtualGuardImpl(c10::kCUDA); }

c10::Stream stream(c10d_stream from) {
  return c10::Stream::unpack3(from.id, c10d_sys::cuda(from.device).index(), c10::kCUDA);
}

c10d_stream packed(c10::Stream from) { return {from.id(), from.device_index()}; }

// Records the event when a leaf has got its gradient, on the stream that has computed it.
struct RecordEvent final : torch::autograd::PostAccumulateGradHook {
  RecordEvent(std::shared_ptr<c10::Event> event, c10::Device device) : event(std::move(event)), device(device) {}

  void operator()(const torch::autograd::Variable&) override { event->record(guard_impl().getStream(device)); }

  std::shared_ptr<c10::Event> event;
  c10::Device device;
};

} // namespace

extern "C" {

c10d_status c10d_stream_from_pool(int32_t device, c10d_stream* out) {
  return guarded([&] { *out = packed(guard_impl().getStreamFromGlobalPool(c10d_sys::cuda(device))); });
}

c10d_status c10d_current_stream(int32_t device, c10d_stream* out) {
  return guarded([&] { *out = packed(guard_impl().getStream(c10d_sys::cuda(device))); });
}

c10d_status c10d_exchange_stream(c10d_stream next, c10d_stream* previous) {
  return guarded([&] { *previous = packed(guard_impl().exchangeStream(stream(next))); });
}

c10d_status c10d_record_stream(c10d_tensor* tensor, c10d_stream user) {
  return guarded([&] { c10d_sys::tensor(tensor).record_stream(stream(user)); });
}

c10d_status c10d_event_new(c10d_stream on, bool timing, c10d_event** out) {
  return guarded([&] {
    const auto flag = timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
    auto event = std::make_shared<c10::Event>(c10::kCUDA, flag);
    event->record(stream(on));
    *out = new c10d_event{std::move(event)};
  });
}

c10d_status c10d_event_block(const c10d_event* event, c10d_stream waiting) {
  return guarded([&] { event->event->block(stream(waiting)); });
}

c10d_status c10d_event_query(const c10d_event* event, bool* out) {
  return guarded([&] { *out = event->event->query(); });
}

c10d_status c10d_event_synchronize(const c10d_event* event) { return guarded([&] { event->event->synchronize(); }); }

c10d_status c10d_event_elapsed(const c10d_event* begin, const c10d_event* end, double* milliseconds) {
  return guarded([&] { *milliseconds = begin->event->elapsedTime(*end->event); });
}

c10d_status c10d_event_after_gradients(c10d_tensors leaves, int32_t device, c10d_event** out) {
  return guarded([&] {
    auto event = std::make_shared<c10::Event>(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    const auto watched = c10d_sys::tensors(leaves);
    for (const auto& leaf : watched) {
      // Setting one would delete the other.
      const bool has_hook =
          torch::autograd::impl::get_autograd_meta(leaf) && torch::autograd::impl::post_acc_grad_hooks(leaf);
      TORCH_CHECK(!has_hook, "a leaf has a hook already");
    }
    for (const auto& leaf : watched) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaf, std::make_unique<RecordEvent>(event, c10d_sys::cuda(device)));
    }
    *out = new c10d_event{std::move(event)};
  });
}

c10d_status c10d_forget_gradients(c10d_tensors leaves) {
  return guarded([&] {
    for (auto& leaf : c10d_sys::tensors(leaves)) {
      torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
    }
  });
}

void c10d_event_free(c10d_event* event) { delete event; }

} // extern "C"
