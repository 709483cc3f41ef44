#include "guard.hpp"
#include "shared_data.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <atomic>

extern "C" {

c10d_status c10d_randn(c10d_tensors tensors, uint64_t seed) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(seed);
    for (auto& target : c10d_sys::tensors(tensors)) {
      target.copy_(at::randn(
          target.sizes(), generator, at::TensorOptions().dtype(target.scalar_type()).device(at::kCPU)));
    }
  });
}

// Assigns to the last two tensors, which may be undefined.
c10d_status c10d_batch_norm_backward_reduce(
    const c10d_tensor* gradient, const c10d_tensor* input, const c10d_tensor* mean, const c10d_tensor* var, double eps,
    c10d_tensor* sum, c10d_tensor* sum_normalized) {
  return guarded([&] {
    constexpr bool kTrain = false;
    constexpr std::array<bool, 3> kSumsOnly = {false, true, true};
    // The kernel reads as much as the input's shape promises.
    const auto& images = tensor(input);
    const auto is_for_channels = [&](const at::Tensor& statistic) {
      return statistic.defined() && statistic.dim() == 1 && statistic.size(0) == images.size(1);
    };
    TORCH_CHECK_VALUE(
        images.defined() && images.dim() >= 2 && tensor(gradient).defined() &&
            tensor(gradient).sizes() == images.sizes() && is_for_channels(tensor(mean)) && is_for_channels(tensor(var)),
        "a batch norm needs images [N, C, ..] with a gradient of their shape, and a mean and a variance of [C]");
    auto sums = at::native_batch_norm_backward(
        tensor(gradient), images, /*weight=*/{}, tensor(mean), tensor(var), /*save_mean=*/{}, /*save_invstd=*/{},
        kTrain, eps, kSumsOnly);
    tensor(sum_normalized) = std::get<1>(sums);
    tensor(sum) = std::get<2>(sums);
  });
}

// All undefined tensors are the same object, which no thread may change.
static at::Tensor& with_gradient(c10d_tensor* pointer) {
  auto& target = tensor(pointer);
  TORCH_CHECK_VALUE(target.defined(), "an undefined tensor has no gradient");
  return target;
}

c10d_status c10d_set_grad(c10d_tensor* target, const c10d_tensor* gradient) {
  return guarded([&] { with_gradient(target).mutable_grad() = tensor(gradient); });
}

c10d_status c10d_clear_grad(c10d_tensor* target) {
  return guarded([&] { with_gradient(target).mutable_grad().reset(); });
}

bool c10d_grad_enabled(void) { return at::GradMode::is_enabled(); }

bool c10d_is_view(const c10d_tensor* pointer) {
  const auto& tensor = c10d_sys::tensor(pointer);
  return tensor.defined() && tensor.is_view();
}

bool c10d_is_plain(const c10d_tensor* pointer) {
  const auto& tensor = c10d_sys::tensor(pointer);
  // Tensors of other layouts have no strides and throw when asked.
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_complex() &&
      !tensor.is_neg();
}

bool c10d_has_overlap(const c10d_tensor* pointer) {
  const auto& tensor = c10d_sys::tensor(pointer);
  // Tensors of other layouts have no strides.
  return tensor.defined() && tensor.layout() == at::kStrided &&
      at::has_internal_overlap(tensor.unsafeGetTensorImpl()) == at::MemOverlap::Yes;
}

const void* c10d_tensor_identity(const c10d_tensor* pointer) { return tensor(pointer).unsafeGetTensorImpl(); }

float* c10d_exclusive_floats(c10d_tensor* pointer) noexcept {
  try {
    const at::Tensor& floats = tensor(pointer);
    // Other handles share the tensor; views share its storage, and so does an exchange in progress. A weak reference
    // could become a handle at any time.
    if (floats.use_count() != 1 || floats.weak_use_count() != 1 || floats.storage().use_count() != 1 ||
        c10d_sys::is_in_use(floats.storage().data_ptr())) {
      return nullptr;
    }
    // The counts are read with relaxed ordering. Another thread may have read the elements just
    // before it dropped the last other handle.
    std::atomic_thread_fence(std::memory_order_acquire);
    // Only now, since whoever had another handle may have changed this, too.
    const auto is_usable =
        c10d_is_plain(pointer) && floats.device().is_cpu() && floats.scalar_type() == at::kFloat;
    return is_usable ? floats.mutable_data_ptr<float>() : nullptr;
  } catch (...) {
    return nullptr;
  }
}

} // extern "C"
