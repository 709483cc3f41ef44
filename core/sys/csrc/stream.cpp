#include "guard.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

using c10d_sys::guarded;

// libtorch's interface for the streams of any device, which needs none of CUDA's headers.
struct c10d_event {
  c10::Event event;
};

namespace {

c10::impl::VirtualGuardImpl guard_impl() {
  return c10::impl::VirtualGuardImpl(c10::kCUDA);
}

c10::Stream stream(c10d_stream from) {
  return c10::Stream::unpack3(from.id, c10d_sys::cuda(from.device).index(), c10::kCUDA);
}

c10d_stream packed(c10::Stream from) {
  return {from.id(), from.device_index()};
}

} // namespace

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
    auto event = std::make_unique<c10d_event>(c10d_event{c10::Event(c10::kCUDA, flag)});
    event->event.record(stream(on));
    *out = event.release();
  });
}

c10d_status c10d_event_block(const c10d_event* event, c10d_stream waiting) {
  return guarded([&] { event->event.block(stream(waiting)); });
}

c10d_status c10d_event_query(const c10d_event* event, bool* out) {
  return guarded([&] { *out = event->event.query(); });
}

c10d_status c10d_event_synchronize(const c10d_event* event) {
  return guarded([&] { event->event.synchronize(); });
}

c10d_status c10d_event_elapsed(const c10d_event* begin, const c10d_event* end, double* milliseconds) {
  return guarded([&] { *milliseconds = begin->event.elapsedTime(end->event); });
}

void c10d_event_free(c10d_event* event) {
  delete event;
}
