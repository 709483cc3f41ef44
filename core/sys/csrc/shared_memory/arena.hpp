// Shared memory that this process allocates tensors in.
#pragma once

#include "file.hpp"

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace c10d_sys {

// The part of a shared file from `begin` on, given out in blocks of whole pages. A block keeps the
// arena alive, because a tensor may outlive its group.
class Arena : public c10::intrusive_ptr_target {
 public:
  Arena(size_t begin, size_t size) : file_(SharedFile::create(begin + size)), free_{{begin, size}} {}

  // Null if the arena is full, and in a forked child.
  void* allocate(size_t bytes);
  void free(void* block, size_t bytes);

  // How far into the file an address lies; -1 for an address elsewhere.
  int64_t offset(const void* address, size_t file_size) const {
    const auto* data = static_cast<const char*>(address);
    return data >= file_.data() && data < file_.data() + file_size ? data - file_.data() : -1;
  }

  SharedFile& file() { return file_; }

 private:
  SharedFile file_;
  std::mutex mutex_;
  // Where free space begins, and how long it is.
  std::map<size_t, size_t> free_;
};

// While this lives, the CPU tensors that this thread makes lie in the arena, as long as it has room.
// Without an arena, they lie where they always do.
class AllocateIn {
 public:
  explicit AllocateIn(const c10::intrusive_ptr<Arena>& arena);
  ~AllocateIn();
  AllocateIn(const AllocateIn&) = delete;
  AllocateIn& operator=(const AllocateIn&) = delete;

 private:
  Arena* previous_;
};

} // namespace c10d_sys
