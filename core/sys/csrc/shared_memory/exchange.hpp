// Collectives between the CPU ranks of one host through shared memory. The results equal gloo's to
// the last bit, because the values are combined in the order of gloo's ring.
//
// Memory. Each rank owns one file, which every rank maps: a board, four staging buffers, and an
// arena for tensors. What a board says, only its owner writes. A tensor that lies in the arena is
// read there by all; any other is copied through the staging buffers, in rounds of kStaged bytes.
//
// Rounds. All ranks count rounds alike. In round t, a rank
//   1. publishes arrived = t + 1 once its values can be read, and waits for the others' values;
//   2. reduces its slice, publishes reduced = t + 1, and waits for the others' slices;
//   3. publishes done = t + 1 once it needs nothing more of the others.
// A staging buffer is written again four rounds later, when all ranks are done with it. Nobody
// resets a counter and nobody holds a lock, so a rank that dies leaves nothing that others could
// stumble over: they notice that its process has ended, and fail.
//
// Operations. In the first round of an operation, the ranks compare what they are about to do before
// they touch any data. If they differ, all fail and say what two of them called. Operations of up to
// kSmall bytes take this one round, in which every rank reduces all that it needs. Larger ones find out
// in it whether all tensors that others read lie in arenas. If so, that is all; if not, further rounds follow.
//
// Waiting. A rank spins for some microseconds, then sleeps on a futex. Before it sleeps, and whenever it wakes, it looks
// whether those it waits for have failed or left, and whether the time is up. Ten times a second it also asks the system
// whether their processes are alive. As long as no rank sleeps, none of this costs anything.
//
// Failures. The first failure of a rank is its last: it tells the others why, and every later operation fails too. What
// an arena holds is undefined from then on, since a rank that was stopped for too long may still write to it.
//
// exchange.cpp has how ranks find each other and take turns, rounds.cpp how they wait, and
// collectives.cpp how an operation is carried out, with the functions of reductions.cpp and copies.cpp.
#pragma once

#include "../guard.hpp"
#include "arena.hpp"
#include "board.hpp"
#include "operation.hpp"
#include "pieces.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace c10d_sys {

class Exchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // The place of an operation among all of the group, and among those that go through here.
  struct Ticket {
    uint64_t sequence;
    uint64_t turn;
  };

  // What an operation reads, and where its results go, in the order of ranks:
  //   barrier: nothing
  //   all_reduce, reduce, broadcast: one input, which they change; an all_reduce of rows changes its first row
  //   all_gather: any number of inputs, and as many outputs for each rank; gather has outputs at its root alone
  //   reduce_scatter: any number of inputs for each rank, and one output
  //   scatter: an input for each rank at its root, none elsewhere, and one output
  //   all_to_all: an input and an output for each rank
  struct Operands {
    Tensors inputs;
    Tensors outputs;
  };

  // `name` is what messages call this rank. Throws if shared memory is not available.
  Exchange(int rank, int size, int name);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Tells the other ranks where this one's file is. To be called before gloo connects: a rank that
  // has not offered by then never will.
  void offer(c10d::Store& store) const;
  // Maps the files of the others. To be called after gloo has connected. Returns nothing if every
  // rank has succeeded, and otherwise a reason, on every rank that has offered.
  std::optional<std::string> join(c10d::Store& store, Milliseconds timeout);

  const c10::intrusive_ptr<Arena>& arena() const { return arena_; }

  // The next ticket. Not to be called by two threads at once.
  Ticket enqueue();
  // Whether all other ranks have arrived at this operation, so that it would take no time to wait.
  bool others_have_arrived(const Ticket& ticket) const;
  // Carries out an operation, after those with earlier tickets. The inputs must be dense, and contiguous
  // if there are outputs.
  void run(const Ticket& ticket, const Operation& operation, const Operands& operands, Milliseconds timeout);
  // Tells the others of an operation that gloo will carry out. A rank that waits here for another
  // operation learns that it waits in vain. Not to be called by two threads at once.
  void announce(const Operation& operation);
  // Makes every operation fail from now on, here and on the other ranks.
  void fail(const std::string& why, c10d_error_kind kind) { end(kFailed, why, kind); }

  // The same for a rank that does not go on, whether or not it has operations to carry out.
  void leave() { fail(kGone, C10D_CONNECTION); }

 private:
  using Clock = std::chrono::steady_clock;

  // Where the operands' values lie. `input` is what others read of this rank, if they read anything. outputs[r] takes
  // what comes from rank r: in a broadcast, that of the root is this rank's tensor. reduce_scatter has only the first.
  struct Places {
    Pieces input;
    std::vector<Pieces> outputs;
  };
  struct Ways;

  void map(c10d::Store& store);
  void end(State state, const std::string& why, c10d_error_kind kind);
  void say_why(const std::string& why) { std::strncpy(own().why, why.c_str(), sizeof(own().why) - 1); }
  void set_deadline(Milliseconds timeout);
  void carry_out(const Operation& operation, const Places& places);
  static Ways ways_of(const Operation& operation);
  at::Tensor place_for(const Operands& operands, size_t index, c10d::OpType type) const;
  void all_reduce_small(const Operation& operation, const Places& places);
  void all_reduce_in_place(const Operation& operation, const Places& places, uint32_t round);
  void all_reduce_staged(const Operation& operation, const Places& places);
  void add_rows_staged(const Operation& operation, const Places& places);
  void reduce_scatter_small(const Operation& operation, const Places& places);
  void reduce_scatter_from_arena(const Operation& operation, const Places& places, uint32_t round);
  void reduce_scatter_staged(const Operation& operation, const Places& places);
  template <typename At>
  void reduce_part(
      const Operation& operation, const Fold& fold, const Places& places, size_t begin, size_t end, At at) const;
  void copy_small(const Operation& operation, const Places& places);
  void copy_from_arena(const Operation& operation, const Places& places, uint32_t round);
  void copy_staged(const Operation& operation, const Places& places);
  struct Part;
  Part part_of(const Operation& operation) const;
  void copy_own(const Operation& operation, const Places& places) const;
  // Whether others read a rank's values.
  static bool gives(const Operation& operation, int rank) {
    const bool has_source = operation.type == c10d::OpType::BROADCAST || operation.type == c10d::OpType::SCATTER;
    return !has_source || operation.root == rank;
  }
  // Whether a rank gets a result from the others' values.
  static bool receives(const Operation& operation, int rank) {
    switch (operation.type) {
      case c10d::OpType::GATHER:
      case c10d::OpType::REDUCE: return operation.root == rank;
      case c10d::OpType::BROADCAST: return operation.root != rank;
      default: return true;
    }
  }

  // Carries out a small operation: `take(round)` reads what all ranks have staged.
  template <typename Take>
  void in_one_round(const Operation& operation, const Places& places, Take take) {
    const auto round = round_++;
    if (gives(operation, rank_)) {
      wait_for_staging(round);
      places.input.read(0, operation.bytes(), staging(rank_, round));
    }
    meet(round);
    take(round);
    finish(round);
  }

  // Carries out further rounds of an operation on `all` values, of at most `most` each. `stage(begin, count, buffer)`
  // writes `count` of this rank's values from number `begin` on, and `take(begin, count, round)` reads those of the
  // others. Each round is staged before the one before it is read.
  template <typename Stage, typename Take>
  void in_rounds(size_t all, size_t most, Stage stage, Take take) {
    const auto first = round_;
    round_ += static_cast<uint32_t>((all + most - 1) / most);
    const auto count_from = [&](size_t begin) { return std::min(most, all - begin); };
    const auto round_of = [&](size_t begin) { return first + static_cast<uint32_t>(begin / most); };
    const auto publish = [&](size_t begin) {
      wait_for_staging(round_of(begin));
      stage(begin, count_from(begin), staging(rank_, round_of(begin)));
      own().arrived.publish(round_of(begin) + 1);
    };
    publish(0);
    for (size_t begin = 0; begin < all; begin += most) {
      if (begin + most < all) {
        publish(begin + most);
      }
      take(begin, count_from(begin), round_of(begin));
      finish(round_of(begin));
    }
  }

  void meet(uint32_t round);
  void finish(uint32_t round) {
    own().reduced.publish(round + 1);
    own().done.publish(round + 1);
  }
  // Until the buffer of a round may be written, which was last used kBuffers rounds before.
  void wait_for_staging(uint32_t round) { wait_for_all(&Board::done, round - kBuffers + 1); }
  void wait_for_all(Cell Board::*cell, uint32_t value);
  void check_what_was_read(const Operation& operation) const;
  void wait(const Peer& peer, Cell Board::*cell, uint32_t value) { wait(peer, cell, value, &peer + 1); }
  void wait(const Peer& peer, Cell Board::*cell, uint32_t value, const Peer* end);
  void look_at(const Peer& peer, Cell Board::*cell, uint32_t value, bool checks_process) const;
  void check_own_state() const;
  void check_state(const Peer& peer) const;
  void expect_own_process() const;
  void record(uint64_t sequence, const Operation& operation);
  void compare(uint64_t sequence, const Operation& operation, const Peer& peer) const;
  const Peer& own_peer() const { return peers_[rank_]; }
  Board& own() const { return *own_peer().board; }
  char* staging(int rank, uint32_t round) const { return peers_[rank].data + kBoard + round % kBuffers * kStaged; }
  // A rank's tensor in its arena.
  char* tensor_of(int rank) const {
    return peers_[rank].data + peers_[rank].board->block.load(std::memory_order_relaxed);
  }
  std::string name(const Peer& peer) const { return "rank " + std::to_string(peer.board->name); }
  // With the root's number in the job, as `name` has it.
  std::string text(Operation operation) const {
    operation.root = static_cast<int>(peers_[operation.root].board->name);
    return operation.to_string();
  }

  const int rank_;
  const int size_;
  const pid_t process_;
  const std::chrono::nanoseconds spin_;
  c10::intrusive_ptr<Arena> arena_;
  // By rank. Until `join`, only this rank's is mapped.
  std::vector<Peer> peers_;

  uint64_t sequence_ = 0;
  std::mutex recording_;

  uint64_t enqueued_ = 0;
  std::atomic<uint64_t> turn_{0};
  std::mutex mutex_;
  std::condition_variable next_turn_;

  // What every operation after a failed one throws.
  std::exception_ptr failure_;
  // What kind of failure the reason on this rank's board is.
  std::atomic<c10d_error_kind> failed_as_{C10D_OTHER};

  // Of the operation whose turn it is.
  uint32_t round_;
  uint64_t current_sequence_ = 0;
  Operation current_{c10d::OpType::UNKNOWN};
  Clock::time_point deadline_;
  // When this rank last asked whether the processes that it waits for are alive.
  Clock::time_point checked_{};
  Milliseconds timeout_{};
};

} // namespace c10d_sys
