// What a rank is asked to do, as the others see it.
#pragma once

#include "fold.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace c10d_sys {

// What must be the same on all ranks.
struct Operation {
  c10d::OpType type;
  at::ScalarType dtype = at::kFloat;
  RedOp op = RedOp::SUM;
  int root = 0;
  // Of one rank's values; for reduce_scatter, scatter and all_to_all, of all parts together.
  uint64_t count = 0;
  // Whether gloo carries it out, because the tensor is not dense or not on the CPU, for instance.
  bool by_gloo = false;
  // For an all_reduce that adds up virtual ranks: how many there are, and how many rows of `count` values each rank gives.
  // 0 for any other.
  uint16_t virtual_ranks = 0;
  uint8_t rows = 0;

  uint64_t bytes() const { return std::max<uint64_t>(rows, 1) * count * c10::elementSize(dtype); }
  // "all_reduce (sum) of 12 x Float"
  std::string to_string() const;

  // Everything but the count, in 64 bits.
  uint64_t encode() const;
  static Operation decode(uint64_t what, uint64_t count);
};

} // namespace c10d_sys
