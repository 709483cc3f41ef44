// What ranks do in the rounds of each operation.

#include "exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace c10d_sys {

// Up to here it costs less to reduce everything on every rank than to wait a second time.
constexpr size_t kSmall = 16 << 10;

// The values of `count` that a rank reduces for all: as many for each, in whole cache lines.
static std::pair<size_t, size_t> slice(size_t count, size_t element_size, int rank, int size) {
  const size_t line = 64 / element_size;
  const size_t each = ((count + size - 1) / size + line - 1) / line * line;
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

void Exchange::carry_out(const Operation& operation, char* data) {
  if (operation.type == c10d::OpType::BARRIER) {
    const auto round = round_++;
    meet(round);
    finish(round);
    return;
  }
  const bool reduces = operation.type == c10d::OpType::ALLREDUCE;
  const auto fold = fold_of(operation.dtype, operation.op);
  if (operation.bytes() <= kSmall) {
    return reduces ? all_reduce_small(operation, fold, data) : broadcast_small(operation, data);
  }
  const auto round = round_++;
  // The root of a broadcast may be ahead of ranks that have yet to read this for that operation.
  wait_for_all(&Board::done, round);
  own().block = arena_->offset(data, kFile);
  meet(round);
  const auto in_arena = [](const Peer& peer) { return peer.board->block >= 0; };
  if (reduces ? std::all_of(peers_.begin(), peers_.end(), in_arena) : in_arena(peers_[operation.root])) {
    return reduces ? all_reduce_in_place(operation, fold, round) : broadcast_from_arena(operation, data, round);
  }
  finish(round);
  return reduces ? all_reduce_staged(operation, fold, data) : broadcast_staged(operation, data);
}

// Combines values `begin` to `end` of all ranks, in gloo's order. `at(rank, i)` is where a rank's
// value i lies; `put(i, values, bytes)` takes the results from value i on.
template <typename At, typename Put>
static void reduce(const Fold& fold, size_t count, int ranks, size_t begin, size_t end, At at, Put put) {
  alignas(64) char folded[8 << 10];
  const size_t block = sizeof(folded) / fold.element_size;
  const size_t chunk = ring_chunk(count, fold.element_size, ranks);
  while (begin < end) {
    const int last = static_cast<int>(std::min<size_t>(begin / chunk, ranks - 1));
    const size_t chunk_end = last == ranks - 1 ? end : (last + 1) * chunk;
    const size_t length = std::min({end, begin + block, chunk_end}) - begin;
    const auto before = [&](int rank) { return (rank + ranks - 1) % ranks; };
    const int first = before(last);
    fold.apply(folded, at(before(first), begin), at(first, begin), length);
    for (int rank = before(first); rank != last;) {
      rank = before(rank);
      fold.apply(folded, at(rank, begin), folded, length);
    }
    put(begin, folded, length * fold.element_size);
    begin += length;
  }
}

void Exchange::all_reduce_small(const Operation& operation, const Fold& fold, char* data) {
  const auto round = round_++;
  wait_for_staging(round);
  std::memcpy(staging(rank_, round), data, operation.bytes());
  meet(round);
  reduce(
      fold, operation.count, size_, 0, operation.count,
      [&](int rank, size_t i) { return staging(rank, round) + i * fold.element_size; },
      [&](size_t i, const char* values, size_t bytes) { std::memcpy(data + i * fold.element_size, values, bytes); });
  finish(round);
}

void Exchange::all_reduce_in_place(const Operation& operation, const Fold& fold, uint32_t round) {
  std::vector<char*> tensors;
  for (const auto& peer : peers_) {
    tensors.push_back(peer.data + peer.board->block);
  }
  const auto [begin, end] = slice(operation.count, fold.element_size, rank_, size_);
  reduce(
      fold, operation.count, size_, begin, end,
      [&](int rank, size_t i) { return tensors[rank] + i * fold.element_size; },
      [&](size_t i, const char* values, size_t bytes) {
        for (char* tensor : tensors) {
          std::memcpy(tensor + i * fold.element_size, values, bytes);
        }
      });
  own().reduced.publish(round + 1);
  wait_for_all(&Board::reduced, round + 1);
  finish(round);
}

void Exchange::all_reduce_staged(const Operation& operation, const Fold& fold, char* data) {
  const size_t size = fold.element_size;
  const size_t per_round = kStaged / size;
  const size_t rounds = (operation.count + per_round - 1) / per_round;
  const auto first_round = round_;
  round_ += static_cast<uint32_t>(rounds);
  const auto count_of = [&](size_t i) { return std::min(per_round, operation.count - i * per_round); };
  // Makes this rank's values of a round readable, except for its own slice.
  const auto stage = [&](size_t i) {
    const auto round = first_round + static_cast<uint32_t>(i);
    const auto [begin, end] = slice(count_of(i), size, rank_, size_);
    const char* from = data + i * per_round * size;
    char* to = staging(rank_, round);
    wait_for_staging(round);
    std::memcpy(to, from, begin * size);
    std::memcpy(to + end * size, from + end * size, (count_of(i) - end) * size);
    own().arrived.publish(round + 1);
  };
  stage(0);
  for (size_t i = 0; i < rounds; ++i) {
    if (i + 1 < rounds) {
      stage(i + 1);
    }
    const auto round = first_round + static_cast<uint32_t>(i);
    const size_t first = i * per_round;
    char* mine = staging(rank_, round);
    wait_for_all(&Board::arrived, round + 1);
    const auto [begin, end] = slice(count_of(i), size, rank_, size_);
    reduce(
        fold, operation.count, size_, first + begin, first + end,
        [&](int rank, size_t k) { return rank == rank_ ? data + k * size : staging(rank, round) + (k - first) * size; },
        [&](size_t k, const char* values, size_t bytes) {
          std::memcpy(data + k * size, values, bytes);
          std::memcpy(mine + (k - first) * size, values, bytes);
        });
    own().reduced.publish(round + 1);
    for (int offset = 1; offset < size_; ++offset) {
      const auto& peer = peers_[(rank_ + offset) % size_];
      wait(peer, &Board::reduced, round + 1);
      const auto [from, to] = slice(count_of(i), size, peer.rank, size_);
      std::memcpy(data + (first + from) * size, staging(peer.rank, round) + from * size, (to - from) * size);
    }
    own().done.publish(round + 1);
  }
}

void Exchange::broadcast_small(const Operation& operation, char* data) {
  const auto round = round_++;
  if (rank_ == operation.root) {
    wait_for_staging(round);
    std::memcpy(staging(rank_, round), data, operation.bytes());
  }
  meet(round);
  if (rank_ != operation.root) {
    std::memcpy(data, staging(operation.root, round), operation.bytes());
  }
  finish(round);
}

void Exchange::broadcast_from_arena(const Operation& operation, char* data, uint32_t round) {
  const auto& root = peers_[operation.root];
  if (rank_ != operation.root) {
    std::memcpy(data, root.data + root.board->block, operation.bytes());
  }
  finish(round);
  if (rank_ == operation.root) {
    wait_for_all(&Board::done, round + 1);
  }
}

void Exchange::broadcast_staged(const Operation& operation, char* data) {
  for (size_t begin = 0; begin < operation.bytes(); begin += kStaged) {
    const auto round = round_++;
    const size_t bytes = std::min(kStaged, operation.bytes() - begin);
    if (rank_ == operation.root) {
      wait_for_staging(round);
      std::memcpy(staging(rank_, round), data + begin, bytes);
      own().arrived.publish(round + 1);
    } else {
      own().arrived.publish(round + 1);
      wait(peers_[operation.root], &Board::arrived, round + 1);
      std::memcpy(data + begin, staging(operation.root, round), bytes);
    }
    finish(round);
  }
}

char* Exchange::staging(int rank, uint32_t round) const {
  return peers_[rank].data + kBoard + round % kBuffers * kStaged;
}

} // namespace c10d_sys
