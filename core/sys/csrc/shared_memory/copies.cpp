// Operations that only copy.

#include "exchange.hpp"

#include <algorithm>

namespace c10d_sys {

void Exchange::broadcast_small(const Operation& operation, const Places& places) {
  const auto round = round_++;
  if (rank_ == operation.root) {
    wait_for_staging(round);
    places.input.read(0, operation.bytes(), staging(rank_, round));
  }
  meet(round);
  if (rank_ != operation.root) {
    places.input.write(0, staging(operation.root, round), operation.bytes());
  }
  finish(round);
}

void Exchange::broadcast_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  if (rank_ != operation.root) {
    places.input.write(0, tensor_of(operation.root), operation.bytes());
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
      places.input.read(begin, bytes, staging(rank_, round));
      own().arrived.publish(round + 1);
    } else {
      own().arrived.publish(round + 1);
      wait(peers_[operation.root], &Board::arrived, round + 1);
      places.input.write(begin, staging(operation.root, round), bytes);
    }
    finish(round);
  }
}

// Of these, gather is the case in which only the root has places for what the ranks send.

void Exchange::all_gather_small(const Operation& operation, const Places& places) {
  in_one_round(operation, places, [&](uint32_t round) {
    for (int rank = 0; rank < size_ && receives(operation); ++rank) {
      places.outputs[rank].write(0, staging(rank, round), operation.bytes());
    }
  });
}

void Exchange::all_gather_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  for (int offset = 1; offset < size_ && receives(operation); ++offset) {
    const int rank = (rank_ + offset) % size_;
    places.outputs[rank].write(0, tensor_of(rank), operation.bytes());
  }
  finish(round);
  if (receives(operation)) {
    places.outputs[rank_].write(places.input);
  }
  // The others may still be reading this rank's tensor.
  wait_for_all(&Board::done, round + 1);
}

void Exchange::all_gather_staged(const Operation& operation, const Places& places) {
  const size_t rounds = (operation.bytes() + kStaged - 1) / kStaged;
  const auto bytes_of = [&](size_t i) { return std::min(kStaged, operation.bytes() - i * kStaged); };
  const auto stage = [&](size_t i, char* to) { places.input.read(i * kStaged, bytes_of(i), to); };
  if (receives(operation)) {
    places.outputs[rank_].write(places.input);
  }
  in_rounds(rounds, stage, [&](size_t i, uint32_t round) {
    for (int offset = 1; offset < size_ && receives(operation); ++offset) {
      const auto& peer = peers_[(rank_ + offset) % size_];
      wait(peer, &Board::arrived, round + 1);
      places.outputs[peer.rank].write(i * kStaged, staging(peer.rank, round), bytes_of(i));
    }
  });
}

} // namespace c10d_sys
