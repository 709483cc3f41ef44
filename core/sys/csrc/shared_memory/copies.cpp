// Operations that only copy: broadcast, all_gather, gather, scatter and all_to_all. They differ in who gives, in who
// receives, and in whether a receiver gets all of a rank's values or its own part of them.

#include "exchange.hpp"

#include <algorithm>

namespace c10d_sys {

// Into how many parts the values of a rank that gives are divided, which of them this rank gets, how long each is, and
// whether it receives more than a cache holds.
struct Exchange::Part {
  size_t count;
  size_t number;
  size_t bytes;
  bool is_uncached;
};

Exchange::Part Exchange::part_of(const Operation& operation) const {
  const bool is_divided = operation.type == c10d::OpType::SCATTER || operation.type == c10d::OpType::ALLTOALL ||
      operation.type == c10d::OpType::ALLTOALL_BASE;
  const size_t count = is_divided ? size_ : 1;
  const size_t bytes = operation.bytes() / count;
  // All of them or one.
  const size_t givers = gives(operation, 0) && gives(operation, size_ - 1) ? size_ : 1;
  return {count, is_divided ? static_cast<size_t>(rank_) : 0, bytes, givers * bytes >= kUncached};
}

void Exchange::copy_own(const Operation& operation, const Places& places) const {
  if (receives(operation, rank_) && gives(operation, rank_)) {
    const auto part = part_of(operation);
    places.outputs[rank_].write(places.input, part.number * part.bytes, part.is_uncached);
  }
}

void Exchange::copy_small(const Operation& operation, const Places& places) {
  const auto part = part_of(operation);
  in_one_round(operation, places, [&](uint32_t round) {
    for (int rank = 0; rank < size_ && receives(operation, rank_); ++rank) {
      if (gives(operation, rank)) {
        places.outputs[rank].write(0, staging(rank, round) + part.number * part.bytes, part.bytes);
      }
    }
  });
}

void Exchange::copy_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  const auto part = part_of(operation);
  for (int offset = 1; offset < size_ && receives(operation, rank_); ++offset) {
    const int rank = (rank_ + offset) % size_;
    if (gives(operation, rank)) {
      places.outputs[rank].write(0, tensor_of(rank) + part.number * part.bytes, part.bytes, part.is_uncached);
    }
  }
  check_what_was_read(operation);
  finish(round);
  copy_own(operation, places);
  if (gives(operation, rank_)) {
    // The others may still be reading this rank's tensor.
    wait_for_all(&Board::done, round + 1);
  }
}

void Exchange::copy_staged(const Operation& operation, const Places& places) {
  const auto part = part_of(operation);
  // A staging buffer has a piece of each part, in whole cache lines.
  const size_t piece = kStaged / part.count / 64 * 64;
  const auto stage = [&](size_t begin, size_t bytes, char* to) {
    for (size_t k = 0; k < part.count && gives(operation, rank_); ++k) {
      places.input.read(k * part.bytes + begin, bytes, to + k * piece);
    }
  };
  copy_own(operation, places);
  in_rounds(part.bytes, piece, stage, [&](size_t begin, size_t bytes, uint32_t round) {
    for (int offset = 1; offset < size_ && receives(operation, rank_); ++offset) {
      const auto& peer = peers_[(rank_ + offset) % size_];
      if (gives(operation, peer.rank)) {
        wait(peer, &Board::arrived, round + 1);
        places.outputs[peer.rank].write(
            begin, staging(peer.rank, round) + part.number * piece, bytes, part.is_uncached);
      }
    }
  });
}

} // namespace c10d_sys
