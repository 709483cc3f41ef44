// What differs between the releases of libtorch that this library compiles against. The build script
// refuses other releases, because what is called here may change without a deprecation.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/headeronly/version.h>

#include <memory>

namespace c10d_sys {

// 2.13: a torch::autograd::Node counts its references itself.
template <typename Node>
auto make_node() {
#if TORCH_VERSION_MINOR >= 13
  return c10::make_intrusive<Node>();
#else
  return std::make_shared<Node>();
#endif
}

} // namespace c10d_sys
