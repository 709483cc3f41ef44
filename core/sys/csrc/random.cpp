#include "guard.hpp"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <mutex>

using c10d_sys::guarded;

namespace {

at::Generator generator(int32_t cuda_device) {
  const auto device = cuda_device < 0 ? c10::Device(c10::kCPU) : c10d_sys::cuda(cuda_device);
  return at::globalContext().defaultGenerator(device);
}

} // namespace

c10d_status c10d_rng_state(int32_t cuda_device, c10d_tensor** out) {
  return guarded([&] {
    auto source = generator(cuda_device);
    std::lock_guard<std::mutex> lock(source.mutex());
    *out = new at::Tensor(source.get_state());
  });
}

c10d_status c10d_set_rng_state(int32_t cuda_device, const c10d_tensor* state) {
  return guarded([&] {
    auto target = generator(cuda_device);
    std::lock_guard<std::mutex> lock(target.mutex());
    target.set_state(*static_cast<const at::Tensor*>(state));
  });
}
