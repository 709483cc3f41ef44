#include "guard.hpp"

#include <ATen/autocast_mode.h>

static c10::DeviceType device_type(bool cuda) { return cuda ? c10::kCUDA : c10::kCPU; }

extern "C" {

// `kind` is a c10::ScalarType, or -1 for enabled=False.
c10d_status c10d_autocast_enter(bool cuda, int32_t kind, c10d_autocast* previous) {
  return guarded([&] {
    const auto device = device_type(cuda);
    previous->enabled = at::autocast::is_autocast_enabled(device);
    previous->kind = static_cast<int32_t>(at::autocast::get_autocast_dtype(device));
    at::autocast::set_autocast_enabled(device, kind >= 0);
    if (kind >= 0) {
      at::autocast::set_autocast_dtype(device, static_cast<c10::ScalarType>(kind));
    }
    at::autocast::increment_nesting();
  });
}

c10d_status c10d_autocast_leave(bool cuda, const c10d_autocast* previous) {
  return guarded([&] {
    const auto device = device_type(cuda);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(device, previous->enabled);
    at::autocast::set_autocast_dtype(device, static_cast<c10::ScalarType>(previous->kind));
  });
}

bool c10d_cuda_autocast_enabled(void) { return at::autocast::is_autocast_enabled(c10::kCUDA); }

c10d_status c10d_non_finite_check_and_unscale(
    c10d_tensors gradients, c10d_tensor* found_inf, const c10d_tensor* inv_scale) {
  return guarded([&] {
    at::_amp_foreach_non_finite_check_and_unscale_(tensors(gradients), tensor(found_inf), tensor(inv_scale));
  });
}

} // extern "C"
