// Operations that only copy.

#include "exchange.hpp"

#include <algorithm>
#include <cstring>

namespace c10d_sys {

void Exchange::broadcast_small(const Operation& operation, const Places& places) {
  const auto round = round_++;
  if (rank_ == operation.root) {
    wait_for_staging(round);
    std::memcpy(staging(rank_, round), places.input, operation.bytes());
  }
  meet(round);
  if (rank_ != operation.root) {
    std::memcpy(places.input, staging(operation.root, round), operation.bytes());
  }
  finish(round);
}

void Exchange::broadcast_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  if (rank_ != operation.root) {
    std::memcpy(places.input, tensor_of(operation.root), operation.bytes());
  }
  finish(round);
  if (rank_ == operation.root) {
    wait_for_all(&Board::done, round + 1);
  }
}

void Exchange::broadcast_staged(const Operation& operation, const Places& places) {
  for (size_t begin = 0; begin < operation.bytes(); begin += kStaged) {
    const auto round = round_++;
    const size_t bytes = std::min(kStaged, operation.bytes() - begin);
    if (rank_ == operation.root) {
      wait_for_staging(round);
      std::memcpy(staging(rank_, round), places.input + begin, bytes);
      own().arrived.publish(round + 1);
    } else {
      own().arrived.publish(round + 1);
      wait(peers_[operation.root], &Board::arrived, round + 1);
      std::memcpy(places.input + begin, staging(operation.root, round), bytes);
    }
    finish(round);
  }
}

// Copies this rank's values to their output, unless they already lie there.
void Exchange::keep_own(const Operation& operation, const Places& places) const {
  if (places.outputs[rank_] != places.input) {
    std::memcpy(places.outputs[rank_], places.input, operation.bytes());
  }
}

void Exchange::all_gather_small(const Operation& operation, const Places& places) {
  const auto round = round_++;
  wait_for_staging(round);
  std::memcpy(staging(rank_, round), places.input, operation.bytes());
  meet(round);
  for (int rank = 0; rank < size_; ++rank) {
    std::memcpy(places.outputs[rank], staging(rank, round), operation.bytes());
  }
  finish(round);
}

void Exchange::all_gather_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  for (int offset = 1; offset < size_; ++offset) {
    const int rank = (rank_ + offset) % size_;
    std::memcpy(places.outputs[rank], tensor_of(rank), operation.bytes());
  }
  finish(round);
  keep_own(operation, places);
  // The others may still be reading this rank's tensor.
  wait_for_all(&Board::done, round + 1);
}

void Exchange::all_gather_staged(const Operation& operation, const Places& places) {
  const size_t rounds = (operation.bytes() + kStaged - 1) / kStaged;
  const auto bytes_of = [&](size_t i) { return std::min(kStaged, operation.bytes() - i * kStaged); };
  const auto stage = [&](size_t i, char* to) { std::memcpy(to, places.input + i * kStaged, bytes_of(i)); };
  keep_own(operation, places);
  in_rounds(rounds, stage, [&](size_t i, uint32_t round) {
    for (int offset = 1; offset < size_; ++offset) {
      const auto& peer = peers_[(rank_ + offset) % size_];
      wait(peer, &Board::arrived, round + 1);
      std::memcpy(places.outputs[peer.rank] + i * kStaged, staging(peer.rank, round), bytes_of(i));
    }
  });
}

} // namespace c10d_sys
