#include "arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>

namespace c10d_sys {

// Memory can only be given back in whole pages.
static size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* Arena::allocate(size_t bytes) {
  if (!file_.is_mapped()) {
    return nullptr;
  }
  const size_t size = whole_pages(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto space = free_.begin(); space != free_.end(); ++space) {
    const auto [begin, length] = *space;
    if (length >= size) {
      free_.erase(space);
      if (length > size) {
        free_.emplace(begin + size, length - size);
      }
      return file_.data() + begin;
    }
  }
  return nullptr;
}

void Arena::free(void* block, size_t bytes) {
  size_t begin = static_cast<char*>(block) - file_.data();
  size_t length = whole_pages(bytes);
  if (file_.is_mapped()) {
    // Gives the memory back to the system.
    madvise(block, length, MADV_REMOVE);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      length += previous->second;
      free_.erase(previous);
    }
  }
  if (next != free_.end() && begin + length == next->first) {
    length += next->second;
    free_.erase(next);
  }
  free_.emplace(begin, length);
}

} // namespace c10d_sys
