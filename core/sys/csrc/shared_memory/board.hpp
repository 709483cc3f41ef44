// What ranks read and write in each other's files. ../../tests/memory_order.rs tries all executions of a model of it, with
// each order of its atomics, and with weaker ones.
#pragma once

#include "file.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <iterator>

namespace c10d_sys {

// The bytes of a staging buffer. Two ranks' fit into a core's cache.
constexpr size_t kStaged = 512 << 10;
// A power of two, so that a buffer's turn comes as regularly where the count of rounds wraps around.
constexpr uint32_t kBuffers = 4;
static_assert((kBuffers & (kBuffers - 1)) == 0);
// More than a board takes, so that what follows begins with a page, however long pages are.
constexpr size_t kBoard = 64 << 10;
constexpr size_t kArenaBegin = kBoard + kBuffers * kStaged;
// Address space, not memory. A tensor that finds no room lies elsewhere and is staged.
constexpr size_t kArena = size_t{16} << 30;
constexpr size_t kFile = kArenaBegin + kArena;

// Whether a rank takes part.
enum State : uint32_t { kWell, kWriting, kFailed, kLeft };
// Why a rank fails that does not go on, though nothing has failed there.
constexpr const char* kGone = "this rank has left the group";
enum Verdict : uint32_t { kYes = 1, kNo = 2 };

// For tests: called whenever what the other ranks can see of this one has changed.
inline std::atomic<void (*)()> probe{nullptr};

inline void step() {
  if (auto* call = probe.load(std::memory_order_relaxed)) {
    call();
  }
}

// A number that one rank publishes and others wait for. Each has cache lines of its own.
struct alignas(128) Cell {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  bool has_reached(uint32_t awaited) const {
    // Acquire: what the rank has written before this number can be read. Numbers wrap around.
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - awaited) >= 0;
  }

  void publish(uint32_t next) {
    // Release: whoever sees the number can read what this rank has written before.
    value.store(next, std::memory_order_release);
    step();
    // Each of the two looks at the other's number only after it has written its own: either the sleeper sees
    // the new value, or this sees the sleeper.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_relaxed) != 0) {
      wake();
    }
  }

  void wake() { futex(FUTEX_WAKE, INT_MAX, nullptr); }

  // Returns when the value is no longer `seen`, or after this time at the latest.
  void sleep(uint32_t seen, std::chrono::nanoseconds time) {
    constexpr auto kSecond = std::chrono::nanoseconds(std::chrono::seconds(1)).count();
    const timespec limit{time.count() / kSecond, time.count() % kSecond};
    sleepers.fetch_add(1, std::memory_order_relaxed);
    // See `publish`.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    futex(FUTEX_WAIT, seen, &limit);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void futex(int operation, uint32_t argument, const timespec* limit) {
    syscall(SYS_futex, &value, operation, argument, limit, nullptr, 0);
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// The beginning of a file. A new file holds zeros, which are valid values of all of this.
struct Board {
  // Shows that a file is the one that was offered.
  std::atomic<uint64_t> cookie;
  std::atomic<int> name;
  Cell verdict;
  Cell arrived;
  Cell reduced;
  Cell done;
  // Where in the file this rank's tensor lies; -1 if elsewhere. Relaxed: it is read once `arrived` is seen.
  alignas(128) std::atomic<int64_t> block;
  // Release and acquire: whoever sees kFailed can read why.
  std::atomic<uint32_t> state;
  char why[512];
  // The last operations that this rank has begun. Release and acquire: whoever reads one of the others after it has
  // changed sees kBeingWritten, or a later number, when it reads the first again.
  struct Entry {
    // kBeingWritten while the others change.
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> what;
    std::atomic<uint64_t> count;
  } log[16];
  static constexpr uint64_t kBeingWritten = UINT64_MAX;

  Entry& entry(uint64_t number) { return log[number % std::size(log)]; }
};
static_assert(sizeof(Board) <= kBoard);

// A rank, as this one sees it.
struct Peer {
  Board* board;
  char* data;
  int rank;
  pid_t process;
  // Readable once the process has ended; -1 for this rank itself.
  int pidfd;
  SharedFile file;
};

} // namespace c10d_sys
