#include "guard.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

extern "C" {

c10d_status c10d_set_cuda_device(int32_t device) {
  return guarded([&] { c10::impl::getDeviceGuardImpl(c10::kCUDA)->setDevice(c10d_sys::cuda(device)); });
}

c10d_status c10d_exchange_cuda_device(int32_t device, int32_t* previous) {
  return guarded([&] {
    const auto* guard = c10::impl::getDeviceGuardImpl(c10::kCUDA);
    *previous = guard->exchangeDevice(c10d_sys::cuda(device)).index();
  });
}

c10d_status c10d_restore_cuda_device(int32_t device) {
  return guarded([&] {
    // What the destructors of c10's guards call: c10::cuda::MaybeSetDevice.
    c10::impl::getDeviceGuardImpl(c10::kCUDA)->uncheckedSetDevice(c10d_sys::cuda(device));
  });
}

void c10d_set_cudnn_deterministic(bool enabled) noexcept { at::globalContext().setDeterministicCuDNN(enabled); }

} // extern "C"
