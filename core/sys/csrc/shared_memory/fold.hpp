// Gloo's arithmetic: which values it combines in which order, and how.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <cstring>

namespace c10d_sys {

using RedOp = c10d::ReduceOp::RedOpType;

// Combines the values of one rank with what has been combined so far.
struct Fold {
  // out[i] = own[i] op folded[i]; `out` may be `folded`.
  void (*apply)(void* out, const void* own, const void* folded, size_t count) = nullptr;
  size_t element_size = 0;
};

template <RedOp op, typename T>
inline T combine(T own, T folded) {
  if constexpr (op == RedOp::PRODUCT) {
    return own * folded;
  } else if constexpr (op == RedOp::MIN) {
    return std::min(own, folded);
  } else if constexpr (op == RedOp::MAX) {
    return std::max(own, folded);
  } else {
    return own + folded;
  }
}

// c10::BFloat16's rounding has a branch for NaN, which keeps compilers from vectorizing the loop.
template <RedOp op>
inline c10::BFloat16 combine(c10::BFloat16 own, c10::BFloat16 folded) {
  if constexpr (op == RedOp::MIN || op == RedOp::MAX) {
    return combine<op, c10::BFloat16>(own, folded);
  } else {
    const float exact = combine<op, float>(own, folded);
    uint32_t bits;
    std::memcpy(&bits, &exact, sizeof(bits));
    const uint32_t to_nearest_even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = 0x7fc0;
    return c10::BFloat16(static_cast<uint16_t>(exact != exact ? nan : to_nearest_even), c10::BFloat16::from_bits());
  }
}

template <RedOp op, typename T>
void apply(void* out, const void* own, const void* folded, size_t count) {
  auto* o = static_cast<T*>(out);
  const auto* a = static_cast<const T*>(own);
  const auto* b = static_cast<const T*>(folded);
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    o[i] = combine<op>(a[i], b[i]);
  }
}

template <typename T>
Fold fold_of(RedOp op) {
  switch (op) {
    case RedOp::SUM:
    // Gloo sums, and c10d divides afterwards.
    case RedOp::AVG: return {&apply<RedOp::SUM, T>, sizeof(T)};
    case RedOp::PRODUCT: return {&apply<RedOp::PRODUCT, T>, sizeof(T)};
    case RedOp::MIN: return {&apply<RedOp::MIN, T>, sizeof(T)};
    case RedOp::MAX: return {&apply<RedOp::MAX, T>, sizeof(T)};
    default: return {};
  }
}

// Empty for what gloo does not reduce either, and for what is left to it.
inline Fold fold_of(at::ScalarType type, RedOp op) {
  switch (type) {
    case at::kFloat: return fold_of<float>(op);
    case at::kDouble: return fold_of<double>(op);
    case at::kHalf: return fold_of<c10::Half>(op);
    case at::kBFloat16: return fold_of<c10::BFloat16>(op);
    case at::kLong: return fold_of<int64_t>(op);
    case at::kInt: return fold_of<int32_t>(op);
    case at::kChar: return fold_of<int8_t>(op);
    case at::kByte:
    case at::kBool: return fold_of<uint8_t>(op);
    default: return {};
  }
}

// Gloo's ring passes a tensor around in one chunk per rank. Rank c - 1 sends chunk c first, and rank
// c adds to it last: the sum of chunk c is x[c] + (x[c+1] + (… + x[c-1])). This is the number of
// elements in a chunk; the last one takes what is left. A chunk is a number of segments, of at most
// 1 MiB each; there are at least two per rank. all_reduce makes all segments equally long; reduce makes
// them as long as they may be, and the last takes the rest (allreduce.cc and reduce.cc in gloo).
inline size_t ring_chunk(bool is_reduce, size_t count, size_t element_size, size_t ranks) {
  const auto divide_up = [](size_t value, size_t by) { return (value + by - 1) / by; };
  const size_t bytes = count * element_size;
  const size_t largest_segment = element_size * std::max<size_t>(1, (1 << 20) / element_size);
  const size_t segments = divide_up(std::max(divide_up(bytes, largest_segment), ranks * 2), ranks) * ranks;
  const size_t longest = std::min(divide_up(bytes, ranks * 2), largest_segment);
  const size_t segment = divide_up(is_reduce ? longest : divide_up(bytes, segments), element_size);
  return std::max<size_t>(1, segments / ranks * segment);
}

} // namespace c10d_sys
