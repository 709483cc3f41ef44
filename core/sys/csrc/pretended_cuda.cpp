#include "guard.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <cstdint>
#include <utility>

namespace {

// Of this thread, so that tests do not see each other's.
thread_local c10d_cuda_calls calls{};
thread_local c10::DeviceIndex current = 0;
thread_local std::array<c10::StreamId, 64> streams{};
// Goes on by a nanosecond with each event.
thread_local intptr_t clock_ns = 0;

// CUDA's devices for tests on a machine that has none. No work can be queued on them; only the calls
// are counted. The rules for contexts are those of c10/cuda/CUDAFunctions.cpp.
struct PretendedCuda final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device getDevice() const override { return {c10::kCUDA, current}; }
  void setDevice(c10::Device next) const override {
    if (std::exchange(current, next.index()) != next.index()) {
      // cudaSetDevice makes a context since CUDA 12.
      calls.contexts |= uint64_t{1} << (next.index() % 64);
    }
  }
  c10::Device exchangeDevice(c10::Device next) const override {
    const auto previous = getDevice();
    setDevice(next);
    return previous;
  }
  void uncheckedSetDevice(c10::Device next) const noexcept override { current = next.index(); }
  // Autograd starts a thread for each device that there is.
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, streams.at(device.index()));
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return c10::Stream(c10::Stream::UNSAFE, next.device(), std::exchange(streams.at(next.device_index()), next.id()));
  }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    ++calls.events;
    *event = reinterpret_cast<void*>(++clock_ns);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    constexpr double kMilliseconds = 1e-6;
    return kMilliseconds * static_cast<double>(reinterpret_cast<intptr_t>(end) - reinterpret_cast<intptr_t>(begin));
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { ++calls.waits; }
  void synchronizeDevice(c10::DeviceIndex) const override { ++calls.waits; }
};

} // namespace

extern "C" {

bool c10d_pretend_cuda(void) {
  static const bool pretends = [] {
    auto& cuda = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)];
    const c10::impl::DeviceGuardImplInterface* none = nullptr;
    // Never destroyed, like all of them.
    return cuda.compare_exchange_strong(none, new PretendedCuda);
  }();
  return pretends;
}

c10d_cuda_calls c10d_take_cuda_calls(void) { return std::exchange(calls, {}); }

} // extern "C"
