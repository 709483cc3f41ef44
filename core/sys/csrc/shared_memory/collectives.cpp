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
    case c10d::OpType::REDUCE:
      return {
          &Exchange::all_reduce_small, &Exchange::all_reduce_in_place,
          operation.rows > 0 ? &Exchange::add_rows_staged : &Exchange::all_reduce_staged};
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return {&Exchange::reduce_scatter_small, &Exchange::reduce_scatter_from_arena, &Exchange::reduce_scatter_staged};
    default:
      return {&Exchange::copy_small, &Exchange::copy_from_arena, &Exchange::copy_staged};
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
  const auto in_arena = [&](const Peer& peer) {
    return !gives(operation, peer.rank) || peer.board->block.load(std::memory_order_relaxed) >= 0;
  };
  if (std::all_of(peers_.begin(), peers_.end(), in_arena)) {
    return (this->*ways.in_arena)(operation, places, round);
  }
  finish(round);
  (this->*ways.staged)(operation, places);
}

} // namespace c10d_sys
