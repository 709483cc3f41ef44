#include "guard.hpp"

// Adds source * number, in one pass if both are dense CPU floats of equal strides.
static void add_product(at::Tensor& target, const at::Tensor& source, double number) {
  const auto is_usual = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
        tensor.is_non_overlapping_and_dense() && !tensor.is_neg() && !tensor.requires_grad();
  };
  if (!is_usual(target) || !is_usual(source) || target.sizes() != source.sizes() ||
      target.strides() != source.strides() || target.is_alias_of(source)) {
    target.add_(source.mul(at::native::wrapped_scalar_tensor(number)));
    return;
  }
  target.unsafeGetTensorImpl()->bump_version();
  auto* to = target.mutable_data_ptr<float>();
  const auto* from = source.const_data_ptr<float>();
  const auto factor = static_cast<float>(number);
  const auto count = target.numel();
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    to[i] += from[i] * factor;
  }
}

extern "C" {

// An operation of fewer tensors ignores `b`, or both.
c10d_status c10d_arithmetic(
    c10d_tensor* target, uint8_t operation, const c10d_tensor* a, const c10d_tensor* b, double number) {
  return guarded([&] {
    auto& self = tensor(target);
    // What Python passes. The overloads that take a number multiply in the other order, for which
    // the kernel rounds the number to the tensor's kind first.
    const auto wrapped = [&] { return at::native::wrapped_scalar_tensor(number); };
    switch (operation) {
      case C10D_ADD: self.add_(wrapped()); break;
      case C10D_MUL: self.mul_(wrapped()); break;
      case C10D_DIV: self.div_(wrapped()); break;
      case C10D_CLAMP_MIN: self.clamp_min_(number); break;
      case C10D_CLAMP_MAX: self.clamp_max_(number); break;
      case C10D_POW: self.pow_(number); break;
      case C10D_LERP: self.lerp_(tensor(a), number); break;
      case C10D_ADD_SCALED: self.add_(tensor(a), number); break;
      case C10D_ADDCMUL: self.addcmul_(tensor(a), tensor(b), number); break;
      case C10D_ADDCDIV: self.addcdiv_(tensor(a), tensor(b), number); break;
      case C10D_ADD_PRODUCT: add_product(self, tensor(a), number); break;
      default: TORCH_CHECK(false, "no operation has the number ", static_cast<int>(operation));
    }
  });
}

c10d_status c10d_add_scaled(const c10d_tensor* source, const c10d_tensor* other, double alpha, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).add(tensor(other), alpha)); });
}

c10d_status c10d_copy(const c10d_tensor* source, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).detach().clone()); });
}

c10d_status c10d_norm(const c10d_tensor* source, double p, c10d_slice<int64_t> dims, c10d_tensor** out) {
  return guarded([&] { *out = new at::Tensor(tensor(source).norm(p, at::IntArrayRef(dims.first, dims.count))); });
}

} // extern "C"
