#include "operation.hpp"

#include <iterator>

namespace c10d_sys {

static const char* op_name(RedOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  static_assert(RedOp::SUM == 0 && RedOp::BXOR == std::size(kNames) - 1);
  return op <= RedOp::BXOR ? kNames[op] : "another operation";
}

std::string Operation::to_string() const {
  const auto values = std::to_string(count) + " x " + c10::toString(dtype);
  const char* way = by_gloo ? ", by way of gloo" : "";
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      if (rows > 0) {
        return "add_rows of " + std::to_string(rows) + " x " + values;
      }
      return std::string("all_reduce (") + op_name(op) + ") of " + values + way;
    case c10d::OpType::REDUCE:
      return std::string("reduce (") + op_name(op) + ") to rank " + std::to_string(root) + " of " + values;
    case c10d::OpType::BROADCAST: return "broadcast from rank " + std::to_string(root) + " of " + values + way;
    case c10d::OpType::ALLGATHER: return "all_gather of " + values + way;
    case c10d::OpType::_REDUCE_SCATTER_BASE: return std::string("reduce_scatter (") + op_name(op) + ") of " + values;
    case c10d::OpType::GATHER: return "gather to rank " + std::to_string(root) + " of " + values + way;
    case c10d::OpType::SCATTER: return "scatter from rank " + std::to_string(root) + " of " + values;
    case c10d::OpType::ALLTOALL: return std::string("all_to_all of ") + c10::toString(dtype);
    case c10d::OpType::ALLTOALL_BASE: return std::string("all_to_all_single of ") + c10::toString(dtype);
    case c10d::OpType::BARRIER: return "barrier";
    default: return "the start of the group";
  }
}

uint64_t Operation::encode() const {
  return static_cast<uint64_t>(type) | static_cast<uint64_t>(dtype) << 8 |
      static_cast<uint64_t>(op) << 16 | static_cast<uint64_t>(by_gloo) << 24 |
      static_cast<uint64_t>(rows) << 32 | static_cast<uint64_t>(root) << 48;
}

Operation Operation::decode(uint64_t what, uint64_t count) {
  return {
      static_cast<c10d::OpType>(what & 0xff), static_cast<at::ScalarType>(what >> 8 & 0xff),
      static_cast<RedOp>(what >> 16 & 0xff), static_cast<int>(what >> 48), count, (what >> 24 & 0xff) != 0,
      static_cast<uint16_t>(what >> 32)};
}

} // namespace c10d_sys
