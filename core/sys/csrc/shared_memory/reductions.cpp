// Operations that combine the values of all ranks.

#include "exchange.hpp"
#include "virtual_ranks.hpp"

#include <algorithm>
#include <utility>

namespace c10d_sys {

// The values of `count` that a rank reduces for all: as many for each, in whole cache lines.
static std::pair<size_t, size_t> slice(size_t count, size_t element_size, int rank, int size) {
  const size_t line = 64 / element_size;
  const size_t each = ((count + size - 1) / size + line - 1) / line * line;
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

// Combines values `begin` to `end` of all ranks, in gloo's order. `at(rank, i)` is where a rank's
// value i lies; `put(i, values, bytes)` takes the results from value i on.
template <typename At, typename Put>
static void reduce(
    const Operation& operation, const Fold& fold, int ranks, size_t begin, size_t end, At at, Put put) {
  alignas(64) char folded[8 << 10];
  const size_t block = sizeof(folded) / fold.element_size;
  const bool is_reduce = operation.type == c10d::OpType::REDUCE;
  const size_t chunk = ring_chunk(is_reduce, operation.count, fold.element_size, ranks);
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

// Adds values `begin` to `end` of all rows. `at(rank, row, i)` is where value i of a row lies.
template <typename At, typename Put>
static void add_rows(const Fold& fold, const VirtualRanks& all, size_t begin, size_t end, At at, Put put) {
  alignas(64) char sum[VirtualRanks::kBlock];
  while (begin < end) {
    const size_t length = std::min(sizeof(sum) / fold.element_size, end - begin);
    const auto at_row = [&](int rank, int row) { return at(rank, row, begin); };
    VirtualRanks::Row next;
    const char* all_of_one_rank = all.add(fold, 0, all.count, next, length, at_row, sum);
    if (all_of_one_rank != sum) {
      std::memcpy(sum, all_of_one_rank, length * fold.element_size);
    }
    put(begin, sum, length * fold.element_size);
    begin += length;
  }
}

// The one of these that an all_reduce or a reduce asks for. Value i of row r of a rank is its value r * count + i.
template <typename At, typename Put>
static void combine(const Operation& operation, const Fold& fold, int ranks, size_t begin, size_t end, At at, Put put) {
  if (operation.rows == 0) {
    return reduce(operation, fold, ranks, begin, end, at, put);
  }
  const auto at_row = [&](int rank, int row, size_t i) { return at(rank, row * operation.count + i); };
  add_rows(fold, {operation.virtual_ranks, ranks}, begin, end, at_row, put);
}

void Exchange::all_reduce_small(const Operation& operation, const Places& places) {
  const auto fold = fold_of(operation.dtype, operation.op);
  in_one_round(operation, places, [&](uint32_t round) {
    combine(
        operation, fold, size_, 0, receives(operation, rank_) ? operation.count : 0,
        [&](int rank, size_t i) { return staging(rank, round) + i * fold.element_size; },
        [&](size_t i, const char* values, size_t bytes) { places.input.write(i * fold.element_size, values, bytes); });
  });
}

void Exchange::all_reduce_in_place(const Operation& operation, const Places&, uint32_t round) {
  const auto fold = fold_of(operation.dtype, operation.op);
  const auto [begin, end] = slice(operation.count, fold.element_size, rank_, size_);
  combine(
      operation, fold, size_, begin, end,
      [&](int rank, size_t i) { return tensor_of(rank) + i * fold.element_size; },
      [&](size_t i, const char* values, size_t bytes) {
        for (int rank = 0; rank < size_; ++rank) {
          if (receives(operation, rank)) {
            std::memcpy(tensor_of(rank) + i * fold.element_size, values, bytes);
          }
        }
      });
  check_what_was_read(operation);
  own().reduced.publish(round + 1);
  wait_for_all(&Board::reduced, round + 1);
  finish(round);
}

void Exchange::all_reduce_staged(const Operation& operation, const Places& places) {
  const auto fold = fold_of(operation.dtype, operation.op);
  char* data = places.input.only();
  const size_t size = fold.element_size;
  const size_t per_round = kStaged / size;
  // Everything except this rank's own slice.
  const auto stage = [&](size_t first, size_t count, char* to) {
    const auto [begin, end] = slice(count, size, rank_, size_);
    const char* from = data + first * size;
    std::memcpy(to, from, begin * size);
    std::memcpy(to + end * size, from + end * size, (count - end) * size);
  };
  in_rounds(operation.count, per_round, stage, [&](size_t first, size_t count, uint32_t round) {
    char* mine = staging(rank_, round);
    wait_for_all(&Board::arrived, round + 1);
    const auto [begin, end] = slice(count, size, rank_, size_);
    reduce(
        operation, fold, size_, first + begin, first + end,
        [&](int rank, size_t k) { return rank == rank_ ? data + k * size : staging(rank, round) + (k - first) * size; },
        [&](size_t k, const char* values, size_t bytes) {
          std::memcpy(mine + (k - first) * size, values, bytes);
          if (receives(operation, rank_)) {
            std::memcpy(data + k * size, values, bytes);
          }
        });
    own().reduced.publish(round + 1);
    for (int offset = 1; offset < size_ && receives(operation, rank_); ++offset) {
      const auto& peer = peers_[(rank_ + offset) % size_];
      wait(peer, &Board::reduced, round + 1);
      const auto [from, to] = slice(count, size, peer.rank, size_);
      std::memcpy(data + (first + from) * size, staging(peer.rank, round) + from * size, (to - from) * size);
    }
  });
}

// Every rank adds all of a round: this is only for want of room in an arena.
void Exchange::add_rows_staged(const Operation& operation, const Places& places) {
  const auto fold = fold_of(operation.dtype, operation.op);
  const size_t size = fold.element_size;
  const size_t per_round = kStaged / operation.rows / size;
  const auto stage = [&](size_t begin, size_t count, char* to) {
    for (int row = 0; row < operation.rows; ++row) {
      places.input.read((row * operation.count + begin) * size, count * size, to + row * per_round * size);
    }
  };
  in_rounds(operation.count, per_round, stage, [&](size_t begin, size_t count, uint32_t round) {
    wait_for_all(&Board::arrived, round + 1);
    add_rows(
        fold, {operation.virtual_ranks, size_}, 0, count,
        [&](int rank, int row, size_t k) { return staging(rank, round) + (row * per_round + k) * size; },
        [&](size_t k, const char* values, size_t bytes) { places.input.write((begin + k) * size, values, bytes); });
  });
}

// Combines values `begin` to `end` of this rank's part. `at(rank, i)` is where value i of a rank's whole tensor lies.
template <typename At>
void Exchange::reduce_part(
    const Operation& operation, const Fold& fold, const Places& places, size_t begin, size_t end, At at) const {
  const size_t part = rank_ * (operation.count / size_);
  reduce(operation, fold, size_, part + begin, part + end, at, [&](size_t i, const char* values, size_t bytes) {
    places.outputs[0].write((i - part) * fold.element_size, values, bytes);
  });
}

void Exchange::reduce_scatter_small(const Operation& operation, const Places& places) {
  const auto fold = fold_of(operation.dtype, operation.op);
  in_one_round(operation, places, [&](uint32_t round) {
    reduce_part(operation, fold, places, 0, operation.count / size_, [&](int rank, size_t i) {
      return staging(rank, round) + i * fold.element_size;
    });
  });
}

void Exchange::reduce_scatter_from_arena(const Operation& operation, const Places& places, uint32_t round) {
  const auto fold = fold_of(operation.dtype, operation.op);
  reduce_part(
      operation, fold, places, 0, operation.count / size_,
      [&](int rank, size_t i) { return tensor_of(rank) + i * fold.element_size; });
  check_what_was_read(operation);
  finish(round);
  // The others may still be reading this rank's tensor.
  wait_for_all(&Board::done, round + 1);
}

void Exchange::reduce_scatter_staged(const Operation& operation, const Places& places) {
  const auto fold = fold_of(operation.dtype, operation.op);
  const size_t size = fold.element_size;
  const size_t part = operation.count / size_;
  // Read where it lies, if that is one place. Otherwise this rank's own part is staged too.
  const char* whole = places.input.only();
  // A staging buffer has a piece for each rank, in whole cache lines.
  const size_t piece = kStaged / size_ / 64 * 64 / size;
  const auto stage = [&](size_t begin, size_t count, char* to) {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ || whole == nullptr) {
        places.input.read((rank * part + begin) * size, count * size, to + rank * piece * size);
      }
    }
  };
  in_rounds(part, piece, stage, [&](size_t begin, size_t count, uint32_t round) {
    const size_t first = rank_ * part + begin;
    wait_for_all(&Board::arrived, round + 1);
    reduce_part(operation, fold, places, begin, begin + count, [&](int rank, size_t k) {
      const bool is_staged = rank != rank_ || whole == nullptr;
      return is_staged ? staging(rank, round) + (rank_ * piece + k - first) * size : whole + k * size;
    });
  });
}

} // namespace c10d_sys
