// Values that lie in several places of memory, one after the other.
#pragma once

#include "copy_uncached.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace c10d_sys {

// The pieces of one tensor's values, or of several tensors' that count as one.
class Pieces {
 public:
  void add(const at::Tensor& tensor) {
    auto* data = static_cast<char*>(tensor.data_ptr());
    const size_t bytes = tensor.nbytes();
    const bool goes_on = !pieces_.empty() && pieces_.back().data + (bytes_ - pieces_.back().begin) == data;
    if (bytes > 0 && !goes_on) {
      pieces_.push_back({data, bytes_});
    }
    bytes_ += bytes;
  }

  // Where the values lie if that is one place; otherwise null.
  char* only() const { return pieces_.size() == 1 ? pieces_[0].data : nullptr; }

  // Copies values from byte `begin` on.
  void read(size_t begin, size_t bytes, char* to) const {
    each(begin, bytes, [&](const char* piece, size_t length) {
      std::memcpy(to, piece, length);
      to += length;
    });
  }

  // Changes values from byte `begin` on.
  void write(size_t begin, const char* from, size_t bytes, bool is_uncached = false) const {
    const auto copy = is_uncached ? copy_uncached : std::memcpy;
    each(begin, bytes, [&](char* piece, size_t length) {
      if (piece != from) {
        copy(piece, from, length);
      }
      from += length;
    });
  }

  // Changes all values to those of `others`, from byte `offset` of them on.
  void write(const Pieces& others, size_t offset, bool is_uncached) const {
    size_t begin = 0;
    others.each(offset, bytes_, [&](const char* piece, size_t length) {
      write(begin, piece, length, is_uncached);
      begin += length;
    });
  }

 private:
  struct Piece {
    char* data;
    // How many bytes lie in the pieces before.
    size_t begin;
  };

  template <typename F>
  void each(size_t begin, size_t bytes, F f) const {
    const auto is_later = [](size_t byte, const Piece& piece) { return byte < piece.begin; };
    auto next = std::upper_bound(pieces_.begin(), pieces_.end(), begin, is_later);
    while (bytes > 0) {
      const auto& piece = *std::prev(next);
      const size_t end = next == pieces_.end() ? bytes_ : next->begin;
      const size_t length = std::min(bytes, end - begin);
      f(piece.data + (begin - piece.begin), length);
      begin += length;
      bytes -= length;
      ++next;
    }
  }

  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

} // namespace c10d_sys
