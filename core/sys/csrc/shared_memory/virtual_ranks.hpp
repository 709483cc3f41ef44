// A sum over virtual ranks whose order does not depend on which rank has which.
#pragma once

#include "fold.hpp"

#include <cstdint>

namespace c10d_sys {

// The leaves of a tree, divided among ranks. A branch of n leaves has the largest power of two below n on its left, and
// the others on its right. A rank gives a row for each maximal branch that is wholly its own.
struct VirtualRanks {
  int count;
  int ranks;

  // How many rows of the branch with leaves `first` to `last` this rank gives.
  int rows(int rank, int first, int last) const {
    const int common = std::min(last, end(rank)) - std::max(first, end(rank - 1));
    if (common <= 0 || common == last - first) {
      return common > 0 ? 1 : 0;
    }
    const int middle = middle_of(first, last);
    return rows(rank, first, middle) + rows(rank, middle, last);
  }

  int most_rows() const {
    int most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      most = std::max(most, rows(rank, 0, count));
    }
    return most;
  }

  struct Row {
    int rank = 0;
    int number = 0;
  };

  // Returns where the sum of the branch is: at its row, or in `into`. `next` is the first row of the branch, and becomes
  // the first one after it.
  template <typename At>
  const char* add(const Fold& fold, int first, int last, Row& next, size_t length, At at, char* into) const {
    while (end(next.rank) <= first) {
      next = {next.rank + 1, 0};
    }
    if (last <= end(next.rank)) {
      return at(next.rank, next.number++);
    }
    alignas(64) char other[kBlock];
    const int middle = middle_of(first, last);
    const char* left = add(fold, first, middle, next, length, at, into);
    const char* right = add(fold, middle, last, next, length, at, other);
    fold.apply(into, right, left, length);
    return into;
  }

  // The most bytes of a row that are added at once.
  static constexpr size_t kBlock = 8 << 10;

 private:
  // The first leaf that the next rank has.
  int end(int rank) const { return static_cast<int>(static_cast<int64_t>(count) * (rank + 1) / ranks); }

  static int middle_of(int first, int last) {
    int half = 1;
    while (2 * half < last - first) {
      half *= 2;
    }
    return first + half;
  }
};

} // namespace c10d_sys
