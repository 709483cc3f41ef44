// How ranks wait for each other, and what they notice while they do.

#include "exchange.hpp"

#include <torch/csrc/distributed/c10d/exception.h>

#include <poll.h>

namespace c10d_sys {

// How often a sleeping rank asks the system whether the processes that it waits for are alive.
constexpr std::chrono::milliseconds kCheck{100};

static void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The first round of an operation: no data may be touched before all do the same.
void Exchange::meet(uint32_t round) {
  own().arrived.publish(round + 1);
  wait_for_all(&Board::arrived, round + 1);
  for (const auto& peer : peers_) {
    compare(current_sequence_, current_, peer);
    // A rank that arrives has recorded what for, so it has counted otherwise.
    const auto sequence = peer.board->entry(current_sequence_).sequence.load(std::memory_order_relaxed);
    TORCH_CHECK_VALUE(
        sequence >= current_sequence_,
        "the ranks call different operations: ", name(own_peer()), " calls ", text(current_), " as number ",
        current_sequence_, ", but ", name(peer), " has not called as many");
    // This rank may have been stopped for longer than the others have waited. They have given up these tensors.
    check_state(peer);
  }
}

// After the last read of other ranks' tensors: one that has failed meanwhile may have freed its own.
void Exchange::check_what_was_read(const Operation& operation) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  for (const auto& peer : peers_) {
    if (gives(operation, peer.rank)) {
      check_state(peer);
    }
  }
}

void Exchange::wait_for_all(Cell Board::*cell, uint32_t value) {
  for (const auto& peer : peers_) {
    wait(peer, cell, value, peers_.data() + peers_.size());
  }
}

// Waits for `peer`, and meanwhile looks at all from it to `end`, whose turn is next.
void Exchange::wait(const Peer& peer, Cell Board::*cell, uint32_t value, const Peer* end) {
  auto& awaited = peer.board->*cell;
  if (peer.rank == rank_ || awaited.has_reached(value)) {
    return;
  }
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      pause_briefly();
      if (awaited.has_reached(value)) {
        return;
      }
    }
  } while (Clock::now() - start < spin_);
  for (;;) {
    const auto seen = awaited.value.load(std::memory_order_relaxed);
    const auto now = Clock::now();
    check_own_state();
    const bool checks_process = now - checked_ >= kCheck;
    if (checks_process) {
      checked_ = now;
    }
    for (const auto* each = &peer; each != end; ++each) {
      look_at(*each, cell, value, checks_process);
    }
    if (awaited.has_reached(value)) {
      return;
    }
    if (now > deadline_) {
      throw c10d::TimeoutError(
          {__func__, __FILE__, __LINE__},
          c10::str("timed out after ", timeout_.count(), " ms waiting for ", name(peer), " in ", text(current_)));
    }
    awaited.sleep(seen, std::min(checked_ + kCheck, deadline_) - now);
  }
}

// Throws if this rank will not publish the value any more: for all that its board says, or also by its process.
void Exchange::look_at(const Peer& peer, Cell Board::*cell, uint32_t value, bool checks_process) const {
  const auto& awaited = peer.board->*cell;
  if (peer.rank == rank_ || awaited.has_reached(value)) {
    return;
  }
  try {
    compare(current_sequence_, current_, peer);
    check_state(peer);
    TORCH_CHECK_WITH(
        DistNetworkError, peer.board->state.load(std::memory_order_acquire) != kLeft, "lost connection to ", name(peer), ", which has left the group");
    pollfd process{peer.pidfd, POLLIN, 0};
    TORCH_CHECK_WITH(
        DistNetworkError, !checks_process || poll(&process, 1, 0) <= 0,
        "lost connection to ", name(peer), " (pid ", peer.process, "), which has ended");
  } catch (const c10::Error&) {
    // It may have published the value first.
    if (!awaited.has_reached(value)) {
      throw;
    }
  }
}

void Exchange::check_own_state() const {
  uint32_t state;
  // Another thread of this rank may be writing why.
  while ((state = own().state.load(std::memory_order_acquire)) == kWriting) {
    pause_briefly();
  }
  if (state != kWell) {
    throw Failure(own().why, failed_as_);
  }
}

void Exchange::check_state(const Peer& peer) const {
  if (peer.rank == rank_ || peer.board->state.load(std::memory_order_acquire) != kFailed) {
    return;
  }
  const std::string why = peer.board->why;
  const auto what = why == kGone ? "has left the group" : "has failed: " + why;
  TORCH_CHECK_WITH(DistNetworkError, false, "lost connection to ", name(peer), ", which ", what);
}

void Exchange::record(uint64_t sequence, const Operation& operation) {
  // An operation for gloo may be recorded while an earlier one is being carried out here.
  const std::lock_guard<std::mutex> lock(recording_);
  auto& entry = own().entry(sequence);
  entry.sequence.store(Board::kBeingWritten, std::memory_order_release);
  entry.what.store(operation.encode(), std::memory_order_release);
  entry.count.store(operation.count, std::memory_order_release);
  entry.sequence.store(sequence, std::memory_order_release);
}

// Throws if the other rank has begun something else under this number.
void Exchange::compare(uint64_t sequence, const Operation& operation, const Peer& peer) const {
  const auto& entry = peer.board->entry(sequence);
  constexpr auto acquire = std::memory_order_acquire;
  if (sequence == 0 || peer.rank == rank_ || entry.sequence.load(acquire) != sequence) {
    return;
  }
  const uint64_t what = entry.what.load(acquire);
  const uint64_t count = entry.count.load(acquire);
  const bool was_overwritten = entry.sequence.load(acquire) != sequence;
  TORCH_CHECK_VALUE(
      was_overwritten || (what == operation.encode() && count == operation.count),
      "the ranks call different operations: ", name(own_peer()), " calls ", text(operation), ", but ", name(peer),
      " calls ", text(Operation::decode(what, count)));
}

} // namespace c10d_sys
