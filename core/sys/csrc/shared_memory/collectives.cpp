// How each operation is carried out.

#include "exchange.hpp"

#include <algorithm>

namespace c10d_sys {

// Up to here it costs less to reduce everything on every rank than to wait a second time.
constexpr size_t kSmall = 16 << 10;

struct Exchange::Ways {
  void (Exchange::*small)(const Operation&, const Places&);
  // In this round, the ranks have found that the tensors lie in arenas.
  void (Exchange::*in_arena)(const Operation&, const Places&, uint32_t round);
  void (Exchange::*staged)(const Operation&, const Places&);
};

Exchange::Ways Exchange::ways_of(const Operation& operation) {
  switch (operation.type) {
    case c10d::OpType::ALLREDUCE:
      return {
          &Exchange::all_reduce_small, &Exchange::all_reduce_in_place,
          operation.rows > 0 ? &Exchange::add_rows_staged : &Exchange::all_reduce_staged};
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return {&Exchange::reduce_scatter_small, &Exchange::reduce_scatter_from_arena, &Exchange::reduce_scatter_staged};
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::GATHER:
      return {&Exchange::all_gather_small, &Exchange::all_gather_from_arena, &Exchange::all_gather_staged};
    default:
      return {&Exchange::broadcast_small, &Exchange::broadcast_from_arena, &Exchange::broadcast_staged};
  }
}

void Exchange::carry_out(const Operation& operation, const Places& places) {
  if (operation.type == c10d::OpType::BARRIER) {
    const auto round = round_++;
    meet(round);
    finish(round);
    return;
  }
  const auto ways = ways_of(operation);
  if (operation.bytes() <= kSmall) {
    return (this->*ways.small)(operation, places);
  }
  const auto round = round_++;
  // A rank that does not wait for the others, such as the root of a broadcast, may be ahead of some that
  // have yet to read this for that operation.
  wait_for_all(&Board::done, round);
  own().block.store(arena_->offset(places.input.only(), kFile), std::memory_order_relaxed);
  meet(round);
  const auto in_arena = [](const Peer& peer) { return peer.board->block.load(std::memory_order_relaxed) >= 0; };
  const bool has_root = operation.type == c10d::OpType::BROADCAST;
  if (has_root ? in_arena(peers_[operation.root]) : std::all_of(peers_.begin(), peers_.end(), in_arena)) {
    return (this->*ways.in_arena)(operation, places, round);
  }
  finish(round);
  (this->*ways.staged)(operation, places);
}

} // namespace c10d_sys
