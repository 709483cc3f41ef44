#include "guard.hpp"

#include <ATen/Context.h>

extern "C" void c10d_set_cudnn_deterministic(bool enabled) noexcept {
  at::globalContext().setDeterministicCuDNN(enabled);
}
