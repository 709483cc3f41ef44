// What every function of the C ABI shares: an exception becomes a status, and the other way round.
#pragma once

#include "c10d.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10d_sys {

using Tensors = std::vector<at::Tensor>;

// Never null, which would read as success: without memory for an error, the process ends as Rust's do.
inline char* copy_text(const std::string& text) {
  auto* copy = strdup(text.c_str());
  return copy != nullptr ? copy : (std::abort(), nullptr);
}

// A failure whose kind is known where it is thrown.
struct Failure : std::runtime_error {
  Failure(const std::string& text, c10d_error_kind kind) : std::runtime_error(text), kind(kind) {}

  c10d_error_kind kind;
};

c10d_error_kind kind_of(const std::exception& error);

// Without C++'s backtrace.
inline std::string text_of(const std::exception& error) {
  const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error);
  return with_backtrace != nullptr ? with_backtrace->what_without_backtrace() : error.what();
}

template <typename F>
c10d_status guarded(F&& body) noexcept {
  try {
    body();
    return {nullptr, C10D_OTHER};
  } catch (const std::exception& error) {
    return {copy_text(text_of(error)), kind_of(error)};
  } catch (...) {
    return {copy_text("an exception that is no std::exception"), C10D_OTHER};
  }
}

// Throws the failure that a callback returned, if any.
inline void raise(const c10d_status& status) {
  if (status.message != nullptr) {
    Failure failure(status.message, status.kind);
    std::free(status.message);
    throw failure;
  }
}

// Checked, because an index that does not fit would wrap around to another device's.
inline c10::Device cuda(int32_t index) {
  TORCH_CHECK(index >= 0 && index <= std::numeric_limits<c10::DeviceIndex>::max(), "no CUDA device ", index);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

inline at::Tensor& tensor(c10d_tensor* pointer) { return *static_cast<at::Tensor*>(pointer); }

inline const at::Tensor& tensor(const c10d_tensor* pointer) { return *static_cast<const at::Tensor*>(pointer); }

inline Tensors tensors(c10d_tensors list) {
  Tensors result;
  result.reserve(list.count);
  for (size_t i = 0; i < list.count; ++i) {
    result.push_back(tensor(list.first[i]));
  }
  return result;
}

// A new handle to each tensor. All or none: one that was made before another throws would be lost.
inline void give(const Tensors& tensors, c10d_tensor** out) {
  std::vector<std::unique_ptr<at::Tensor>> owned;
  for (const auto& each : tensors) {
    owned.push_back(std::make_unique<at::Tensor>(each));
  }
  for (auto& each : owned) {
    *out++ = each.release();
  }
}

} // namespace c10d_sys

// For the functions of the C ABI, which are in no namespace.
using c10d_sys::guarded;
using c10d_sys::tensor;
using c10d_sys::tensors;
using c10d_sys::Tensors;
