#include "guard.hpp"

using c10d_sys::guarded;
using c10d_sys::tensors;

extern "C" c10d_status c10d_unflatten_into(const c10d_tensor* flat, c10d_tensors targets, bool add) {
  return guarded([&] {
    const auto list = tensors(targets);
    const auto parts = at::unflatten_dense_tensors(c10d_sys::tensor(flat), list);
    add ? at::_foreach_add_(list, parts) : at::_foreach_copy_(list, parts);
  });
}
