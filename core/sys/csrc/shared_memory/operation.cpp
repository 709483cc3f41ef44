#include "operation.hpp"

#include <iterator>

namespace c10d_sys {

static const char* op_name(RedOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  static_assert(RedOp::SUM == 0 && RedOp::BXOR == std::size(kNames) - 1);
  return op <= RedOp::BXOR ? kNames[op] : "another operation";
}

std::string Operation::to_string() const {
  const char* way = by_gloo ? ", by way of gloo" : "";
  const auto numbers = std::to_string(count) + " x " + c10::toString(dtype) + way;
  const auto values = " of " + numbers;
  // With gloo, the ranks' numbers of rows may differ.
  const auto parts = by_gloo ? std::string(" of ") + c10::toString(dtype) + way : values;
  const char* advice = by_gloo ? ": with split sizes, if it has any, on all ranks or on none" : "";
  const auto function = std::string(" (") + op_name(op) + ")";
  const auto rank = " rank " + std::to_string(root);
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      return virtual_ranks > 0 ? "add_rows of " + std::to_string(virtual_ranks) + " virtual ranks, " + numbers
                               : "all_reduce" + function + values;
    case c10d::OpType::REDUCE: return "reduce" + function + " to" + rank + values;
    case c10d::OpType::BROADCAST: return "broadcast from" + rank + values;
    case c10d::OpType::ALLGATHER: return "all_gather" + values;
    case c10d::OpType::_REDUCE_SCATTER_BASE: return "reduce_scatter" + function + values;
    case c10d::OpType::GATHER: return "gather to" + rank + values;
    case c10d::OpType::SCATTER: return "scatter from" + rank + values;
    case c10d::OpType::ALLTOALL: return "all_to_all" + parts;
    case c10d::OpType::ALLTOALL_BASE: return "all_to_all_single" + parts + advice;
    case c10d::OpType::BARRIER: return "barrier";
    default: return "the start of the group";
  }
}

uint64_t Operation::encode() const {
  return static_cast<uint64_t>(type) | static_cast<uint64_t>(dtype) << 8 |
      static_cast<uint64_t>(op) << 16 | static_cast<uint64_t>(by_gloo) << 24 | static_cast<uint64_t>(rows) << 25 |
      static_cast<uint64_t>(virtual_ranks) << 32 | static_cast<uint64_t>(root) << 48;
}

Operation Operation::decode(uint64_t what, uint64_t count) {
  return {
      static_cast<c10d::OpType>(what & 0xff), static_cast<at::ScalarType>(what >> 8 & 0xff),
      static_cast<RedOp>(what >> 16 & 0xff), static_cast<int>(what >> 48), count, (what >> 24 & 1) != 0,
      static_cast<uint16_t>(what >> 32), static_cast<uint8_t>(what >> 25 & 0x7f)};
}

} // namespace c10d_sys
