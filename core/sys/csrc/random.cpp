#include "guard.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace {

at::Generator generator(int32_t cuda_device) {
  const auto device = cuda_device < 0 ? c10::Device(c10::kCPU) : c10d_sys::cuda(cuda_device);
  return at::globalContext().defaultGenerator(device);
}

// One of its own, or the global one of the CPU without a seed.
at::Generator seeded(const uint64_t* seed) {
  return seed == nullptr ? generator(-1) : at::detail::createCPUGenerator(*seed);
}

const auto kIndices = at::TensorOptions().dtype(at::kLong).device(at::kCPU);

// Python draws indices with replacement in parts of this size.
constexpr int64_t kPart = 32;

// The first `count` numbers of `drawn`.
void copy_indices(const at::Tensor& drawn, int64_t count, int64_t* out) {
  std::memcpy(out, drawn.const_data_ptr<int64_t>(), static_cast<size_t>(count) * sizeof(int64_t));
}

} // namespace

extern "C" {

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
    target.set_state(c10d_sys::tensor(state));
  });
}

c10d_status c10d_randperm(int64_t n, int64_t count, const uint64_t* seed, int64_t* out) {
  return guarded([&] {
    TORCH_CHECK(n > 0 || count == 0, "there is nothing to draw from");
    auto source = seeded(seed);
    for (int64_t begin = 0; begin < count; begin += n) {
      copy_indices(at::randperm(n, source, kIndices), std::min(n, count - begin), out + begin);
    }
  });
}

c10d_status c10d_randint(int64_t n, int64_t count, const uint64_t* seed, int64_t* out) {
  return guarded([&] {
    auto source = seeded(seed);
    for (int64_t begin = 0; begin < count; begin += kPart) {
      const auto size = std::min(kPart, count - begin);
      copy_indices(at::randint(n, {size}, source, kIndices), size, out + begin);
    }
  });
}

c10d_status c10d_multinomial(
    const double* weights, int64_t n, int64_t count, bool replacement, const uint64_t* seed, int64_t* out) {
  return guarded([&] {
    TORCH_CHECK(n > 0, "there are no weights");
    auto source = seeded(seed);
    auto probabilities = at::empty({n}, at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
    std::memcpy(probabilities.mutable_data_ptr<double>(), weights, static_cast<size_t>(n) * sizeof(double));
    copy_indices(at::multinomial(probabilities, count, replacement, source), count, out);
  });
}

} // extern "C"
