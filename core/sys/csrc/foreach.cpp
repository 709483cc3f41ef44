#include "guard.hpp"

extern "C" {

// In place if `out` is null; otherwise it has room for a new tensor for each of the sources.
c10d_status c10d_foreach(
    uint8_t operation, c10d_tensors sources, c10d_tensors first, c10d_tensors second, c10d_slice<double> numbers,
    c10d_tensor** out) {
  return guarded([&] {
    const auto self = tensors(sources);
    const auto a = tensors(first);
    const auto b = tensors(second);
    const auto one = [&]() -> at::Scalar {
      TORCH_CHECK(numbers.count == 1, "one number for all tensors was expected, and not ", numbers.count);
      return *numbers.first;
    };
    const auto each = [&] { return std::vector<at::Scalar>(numbers.first, numbers.first + numbers.count); };
    const auto in_place = [&] {
      switch (operation) {
        case C10D_FOREACH_ADD_NUMBER: return at::_foreach_add_(self, one());
        case C10D_FOREACH_ADD_NUMBERS: return at::_foreach_add_(self, each());
        case C10D_FOREACH_MUL_NUMBER: return at::_foreach_mul_(self, one());
        case C10D_FOREACH_MUL_NUMBERS: return at::_foreach_mul_(self, each());
        case C10D_FOREACH_DIV_NUMBERS: return at::_foreach_div_(self, each());
        case C10D_FOREACH_CLAMP_MIN: return at::_foreach_clamp_min_(self, one());
        case C10D_FOREACH_CLAMP_MAX: return at::_foreach_clamp_max_(self, one());
        case C10D_FOREACH_SQRT: return at::_foreach_sqrt_(self);
        case C10D_FOREACH_RECIPROCAL: return at::_foreach_reciprocal_(self);
        case C10D_FOREACH_MUL: return at::_foreach_mul_(self, a);
        case C10D_FOREACH_DIV: return at::_foreach_div_(self, a);
        case C10D_FOREACH_MAXIMUM: return at::_foreach_maximum_(self, a);
        case C10D_FOREACH_ADD_SCALED: return at::_foreach_add_(self, a, one());
        case C10D_FOREACH_LERP: return at::_foreach_lerp_(self, a, one());
        case C10D_FOREACH_ADDCMUL: return at::_foreach_addcmul_(self, a, b, one());
        case C10D_FOREACH_ADDCDIV: return at::_foreach_addcdiv_(self, a, b, one());
        case C10D_FOREACH_ADDCDIV_NUMBERS: return at::_foreach_addcdiv_(self, a, b, each());
        default: TORCH_CHECK(false, "no operation in place has the number ", static_cast<int>(operation));
      }
    };
    if (out == nullptr) {
      return in_place();
    }
    const auto results = [&]() -> std::vector<at::Tensor> {
      switch (operation) {
        case C10D_FOREACH_ADD_NUMBER: return at::_foreach_add(self, one());
        case C10D_FOREACH_MUL_NUMBERS: return at::_foreach_mul(self, each());
        case C10D_FOREACH_SQRT: return at::_foreach_sqrt(self);
        case C10D_FOREACH_NEG: return at::_foreach_neg(self);
        case C10D_FOREACH_ADD_SCALED: return at::_foreach_add(self, a, one());
        case C10D_FOREACH_ADDCMUL: return at::_foreach_addcmul(self, a, b, one());
        case C10D_FOREACH_NORM: return at::_foreach_norm(self, one());
        default: TORCH_CHECK(false, "no operation has the number ", static_cast<int>(operation));
      }
    }();
    const size_t count = sources.count;
    TORCH_CHECK(results.size() == count, "there are ", results.size(), " results for ", count, " tensors");
    c10d_sys::give(results, out);
  });
}

c10d_status c10d_foreach_mul_tensor(c10d_tensors targets, const c10d_tensor* factor) {
  return guarded([&] { at::_foreach_mul_(tensors(targets), tensor(factor)); });
}

c10d_status c10d_unflatten_into(const c10d_tensor* flat, c10d_tensors targets, bool add) {
  return guarded([&] {
    const auto list = tensors(targets);
    const auto parts = at::unflatten_dense_tensors(tensor(flat), list);
    add ? at::_foreach_add_(list, parts) : at::_foreach_copy_(list, parts);
  });
}

} // extern "C"
