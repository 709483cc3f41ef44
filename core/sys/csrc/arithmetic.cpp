#include "guard.hpp"

#include <ATen/ScalarOps.h>

using c10d_sys::guarded;
using c10d_sys::tensor;

extern "C" {

c10d_status c10d_with_number(c10d_tensor* target, uint8_t operation, double number) {
  return guarded([&] {
    // What Python passes. The overloads that take a number multiply in the other order, for which
    // the kernel rounds the number to the tensor's kind first.
    const auto wrapped = at::native::wrapped_scalar_tensor(number);
    switch (operation) {
      case C10D_ADD: tensor(target).add_(wrapped); break;
      case C10D_MUL: tensor(target).mul_(wrapped); break;
      case C10D_DIV: tensor(target).div_(wrapped); break;
      case C10D_CLAMP_MIN: tensor(target).clamp_min_(number); break;
      case C10D_CLAMP_MAX: tensor(target).clamp_max_(number); break;
      case C10D_POW: tensor(target).pow_(number); break;
      default: TORCH_CHECK(false, "no operation has the number ", static_cast<int>(operation));
    }
  });
}

c10d_status c10d_lerp(c10d_tensor* target, const c10d_tensor* end, double weight) {
  return guarded([&] { tensor(target).lerp_(tensor(end), weight); });
}

c10d_status c10d_add_scaled(const c10d_tensor* source, const c10d_tensor* other, double alpha, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).add(tensor(other), alpha)); });
}

c10d_status c10d_add_scaled_(c10d_tensor* target, const c10d_tensor* other, double alpha) {
  return guarded([&] { tensor(target).add_(tensor(other), alpha); });
}

c10d_status c10d_addcmul(c10d_tensor* target, const c10d_tensor* a, const c10d_tensor* b, double value) {
  return guarded([&] { tensor(target).addcmul_(tensor(a), tensor(b), value); });
}

c10d_status c10d_addcdiv(c10d_tensor* target, const c10d_tensor* a, const c10d_tensor* b, double value) {
  return guarded([&] { tensor(target).addcdiv_(tensor(a), tensor(b), value); });
}

c10d_status c10d_copy(const c10d_tensor* source, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).detach().clone()); });
}

c10d_status c10d_norm(const c10d_tensor* source, double p, c10d_slice<int64_t> dims, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).norm(p, at::IntArrayRef(dims.first, dims.count))); });
}

} // extern "C"
