#include "exchange.hpp"

#include "../guard.hpp"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>

#include <climits>
#include <fstream>
#include <random>
#include <sstream>

namespace c10d_sys {
namespace {

// Names this arrangement of memory, and what ranks do with it. Ranks with different ones use gloo.
constexpr const char* kLayout = "1";
constexpr size_t kSmall = 16 << 10;
constexpr size_t kStaged = 512 << 10;
// A power of two, so that a buffer's turn comes as regularly where the count of rounds wraps around.
constexpr uint32_t kBuffers = 4;
// Of which little is used. What follows begins with a page, however long pages are.
constexpr size_t kBoard = 64 << 10;
constexpr size_t kArenaBegin = kBoard + kBuffers * kStaged;
// Address space, not memory. A tensor that finds no room lies elsewhere and is staged.
constexpr size_t kArena = size_t{16} << 30;
constexpr size_t kFile = kArenaBegin + kArena;
// The count of rounds soon wraps around, so that this does not happen for the first time in a
// training that has run for days.
constexpr uint32_t kFirstRound = -100;
// How often a sleeping rank looks after those it waits for.
constexpr std::chrono::milliseconds kLook{100};

// Whether a rank takes part.
enum State : uint32_t { kWell, kWriting, kFailed, kLeft };
enum Verdict : uint32_t { kYes = 1, kNo = 2 };

// For tests: called whenever what the other ranks can see of this one has changed.
std::atomic<void (*)()> probe{nullptr};

void step() {
  if (auto* call = probe.load(std::memory_order_relaxed)) {
    call();
  }
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spinning pays only where every rank has a core to itself.
std::chrono::nanoseconds time_to_spin(int ranks) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  return std::chrono::microseconds(ranks <= CPU_COUNT(&cores) ? 100 : 2);
}

// Where a process must be to map this one's files: on this host, and among the same process ids.
std::string place() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char processes[64] = {};
  TORCH_CHECK(
      readlink("/proc/self/ns/pid", processes, sizeof(processes) - 1) > 0 && !boot.empty(), "no /proc is mounted");
  return boot + " " + processes;
}

std::string key(int rank) {
  return "shared_memory/" + std::to_string(rank);
}

const char* op_name(RedOp op) {
  switch (op) {
    case RedOp::SUM:
      return "sum";
    case RedOp::AVG:
      return "avg";
    case RedOp::PRODUCT:
      return "product";
    case RedOp::MIN:
      return "min";
    case RedOp::MAX:
      return "max";
    default:
      return "another operation";
  }
}

// The values of `count` that a rank reduces for all: as many for each, in whole cache lines.
std::pair<size_t, size_t> slice(size_t count, size_t element_size, int rank, int size) {
  const size_t line = 64 / element_size;
  const size_t each = ((count + size - 1) / size + line - 1) / line * line;
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

} // namespace

// A number that one rank publishes and others wait for. Each has cache lines of its own.
struct alignas(128) Exchange::Cell {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  bool has_reached(uint32_t awaited) const {
    // Numbers wrap around.
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - awaited) >= 0;
  }

  void publish(uint32_t next) {
    value.store(next);
    step();
    // Sequentially consistent, like the sleeper's increment before it looks at the value: either
    // the sleeper sees the new value, or this sees the sleeper.
    if (sleepers.load() != 0) {
      wake();
    }
  }

  void wake() { futex(FUTEX_WAKE, INT_MAX, nullptr); }

  // Returns when the value is no longer `seen`, or after this time at the latest.
  void sleep(uint32_t seen, std::chrono::nanoseconds time) {
    constexpr auto kSecond = std::chrono::nanoseconds(std::chrono::seconds(1)).count();
    const timespec limit{time.count() / kSecond, time.count() % kSecond};
    ++sleepers;
    futex(FUTEX_WAIT, seen, &limit);
    --sleepers;
  }

 private:
  void futex(int operation, uint32_t argument, const timespec* limit) {
    syscall(SYS_futex, &value, operation, argument, limit, nullptr, 0);
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// The beginning of a file. A new file holds zeros, which are valid values of all of this.
struct Exchange::Board {
  // Shows that a file is the one that was offered.
  std::atomic<uint64_t> cookie;
  std::atomic<int> name;
  Cell verdict;
  Cell arrived;
  Cell reduced;
  Cell done;
  // Where in the file this rank's tensor lies; -1 if elsewhere.
  alignas(128) std::atomic<int64_t> block;
  std::atomic<uint32_t> state;
  char why[512];
  // The last operations that this rank has begun.
  struct Entry {
    // kBeingWritten while the others change.
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> what;
    std::atomic<uint64_t> count;
  } log[16];
  static constexpr uint64_t kBeingWritten = UINT64_MAX;

  Entry& entry(uint64_t number) { return log[number % std::size(log)]; }
};

struct Exchange::Peer {
  Board* board;
  char* data;
  int rank;
  pid_t process;
  // Readable once the process has ended; -1 for this rank itself.
  int pidfd;
  SharedFile file;
};

// Everything but the count, in 64 bits.
static uint64_t encode(const Operation& operation) {
  return static_cast<uint64_t>(operation.type) | static_cast<uint64_t>(operation.dtype) << 8 |
      static_cast<uint64_t>(operation.op) << 16 | static_cast<uint64_t>(operation.by_gloo) << 24 |
      static_cast<uint64_t>(operation.root) << 32;
}

static Operation decode(uint64_t what, uint64_t count) {
  return {
      static_cast<c10d::OpType>(what & 0xff),
      static_cast<at::ScalarType>(what >> 8 & 0xff),
      static_cast<RedOp>(what >> 16 & 0xff),
      static_cast<int>(what >> 32),
      count,
      (what >> 24 & 0xff) != 0};
}

std::string Operation::to_string() const {
  const auto values = std::to_string(count) + " x " + c10::toString(dtype);
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      return std::string("all_reduce (") + op_name(op) + ") of " + values + (by_gloo ? ", by way of gloo" : "");
    case c10d::OpType::REDUCE:
      return std::string("reduce (") + op_name(op) + ") to rank " + std::to_string(root) + " of " + values;
    case c10d::OpType::BROADCAST:
      return "broadcast from rank " + std::to_string(root) + " of " + values + (by_gloo ? ", by way of gloo" : "");
    case c10d::OpType::ALLGATHER:
      return "all_gather of " + values;
    case c10d::OpType::BARRIER:
      return "barrier";
    default:
      return "the start of the group";
  }
}

Exchange::Exchange(int rank, int size, int name)
    : rank_(rank), size_(size), process_(getpid()), spin_(time_to_spin(size)), round_(kFirstRound) {
  static_assert(sizeof(Board) <= kBoard);
  static_assert((kBuffers & (kBuffers - 1)) == 0);
  arena_ = c10::make_intrusive<Arena>(kArenaBegin, kArena);
  for (int r = 0; r < size; ++r) {
    peers_.push_back(Peer{nullptr, nullptr, r, 0, -1, {}});
  }
  auto& self = peers_[rank];
  self.process = process_;
  self.data = arena_->file().data();
  self.board = reinterpret_cast<Board*>(self.data);
  std::random_device random;
  own().cookie = (uint64_t{random()} << 32) + random();
  own().name = name;
  for (auto cell : {&Board::arrived, &Board::reduced, &Board::done}) {
    (own().*cell).value = kFirstRound;
  }
}

Exchange::~Exchange() {
  // In a forked child, none of this is mapped.
  if (getpid() == process_) {
    uint32_t well = kWell;
    own().state.compare_exchange_strong(well, kLeft);
    for (auto cell : {&Board::verdict, &Board::arrived, &Board::reduced, &Board::done}) {
      (own().*cell).wake();
    }
  }
  for (const auto& peer : peers_) {
    if (peer.pidfd >= 0) {
      close(peer.pidfd);
    }
  }
}

void Exchange::offer(c10d::Store& store) const {
  std::ostringstream offer;
  offer << kLayout << " " << place() << " " << own().name << " " << process_ << " " << arena_->file().descriptor() << " "
        << own().cookie;
  store.set(key(rank_), offer.str());
}

std::optional<std::string> Exchange::join(c10d::Store& store, Milliseconds timeout) {
  set_deadline(timeout);
  step();
  try {
    map(store);
  } catch (const std::exception& error) {
    // The others have to learn why, but nothing has failed: gloo takes over.
    const auto why = text_of(error);
    say_why(why);
    own().verdict.publish(kNo);
    return why;
  }
  own().verdict.publish(kYes);
  std::optional<std::string> why;
  for (const auto& peer : peers_) {
    wait(peer, &Board::verdict, kYes);
    if (peer.board->verdict.has_reached(kNo)) {
      why = name(peer) + " cannot: " + peer.board->why;
    }
  }
  for (auto& peer : peers_) {
    peer.file.close();
  }
  arena_->file().close();
  return why;
}

// Throws if there is a rank whose file cannot be mapped. A process that is not there is no error of
// its own: the machine may be a copy of that other one.
void Exchange::map(c10d::Store& store) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) {
    keys.push_back(key(rank));
  }
  if (!store.check(keys)) {
    const auto missing = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return !store.check({key}); });
    const auto rank = missing - keys.begin();
    TORCH_CHECK(false, "rank ", rank, " of the group does not offer it: it runs Python, or has switched it off");
  }
  const auto offers = store.multiGet(keys);
  for (auto& peer : peers_) {
    std::istringstream offer(std::string(offers[peer.rank].begin(), offers[peer.rank].end()));
    std::string layout, boot, processes;
    int name = -1;
    int descriptor = -1;
    uint64_t cookie = 0;
    offer >> layout >> boot >> processes >> name >> peer.process >> descriptor >> cookie;
    TORCH_CHECK(offer && layout == kLayout, "rank ", peer.rank, " of the group has another version of it");
    TORCH_CHECK(boot + " " + processes == place(), "rank ", name, " is on another host, or in another container");
    if (peer.rank == rank_) {
      continue;
    }
    peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.process, 0));
    TORCH_CHECK(peer.pidfd >= 0, "rank ", name, " cannot be watched: pidfd_open: ", std::strerror(errno));
    peer.file = SharedFile::open(peer.process, descriptor, kFile);
    peer.data = peer.file.data();
    peer.board = reinterpret_cast<Board*>(peer.data);
    TORCH_CHECK(peer.board->cookie == cookie, "rank ", name, " has another file than the one it offered");
  }
}

Exchange::Ticket Exchange::enqueue() {
  return {++sequence_, enqueued_++};
}

bool Exchange::others_have_arrived(const Ticket& ticket) const {
  return turn_ == ticket.turn && std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
           return peer.rank == rank_ || peer.board->arrived.has_reached(round_ + 1);
         });
}

void Exchange::run(const Ticket& ticket, const Operation& operation, const at::Tensor& tensor, Milliseconds timeout) {
  TORCH_CHECK(getpid() == process_, "this process was forked from a rank, and is none itself");
  {
    std::unique_lock<std::mutex> lock(mutex_);
    next_turn_.wait(lock, [&] { return turn_ == ticket.turn; });
  }
  struct NextTurn {
    Exchange& exchange;
    ~NextTurn() {
      const std::lock_guard<std::mutex> lock(exchange.mutex_);
      ++exchange.turn_;
      exchange.next_turn_.notify_all();
    }
  } next_turn{*this};
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
  TORCH_CHECK(own().state == kWell, own().why);

  current_ = operation;
  current_sequence_ = ticket.sequence;
  set_deadline(timeout);
  record(ticket.sequence, operation);
  try {
    carry_out(operation, tensor.defined() ? static_cast<char*>(tensor.data_ptr()) : nullptr);
    if (operation.type == c10d::OpType::ALLREDUCE && operation.op == RedOp::AVG) {
      tensor.div_(size_);
    }
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    fail(text_of(error));
    throw;
  }
}

void Exchange::announce(const Operation& operation) {
  TORCH_CHECK(getpid() == process_, "this process was forked from a rank, and is none itself");
  record(++sequence_, operation);
  try {
    for (const auto& peer : peers_) {
      compare(sequence_, operation, peer);
    }
  } catch (const std::exception& error) {
    fail(text_of(error));
    throw;
  }
}

void Exchange::fail(const std::string& why) {
  uint32_t well = kWell;
  if (own().state.compare_exchange_strong(well, kWriting)) {
    say_why(why);
    own().state = kFailed;
  }
  for (auto cell : {&Board::verdict, &Board::arrived, &Board::reduced, &Board::done}) {
    (own().*cell).wake();
  }
}

void Exchange::say_why(const std::string& why) {
  std::strncpy(own().why, why.c_str(), sizeof(own().why) - 1);
}

void Exchange::set_deadline(Milliseconds timeout) {
  timeout_ = timeout;
  // Longer ones would overflow.
  deadline_ = Clock::now() + std::min<Milliseconds>(timeout, std::chrono::hours(24 * 365));
}

// --- operations ---

void Exchange::carry_out(const Operation& operation, char* data) {
  const bool small = operation.bytes() <= kSmall;
  if (operation.type == c10d::OpType::BARRIER) {
    const auto round = round_++;
    meet(round);
    finish(round);
    return;
  }
  const bool reduces = operation.type == c10d::OpType::ALLREDUCE;
  const auto fold = fold_of(operation.dtype, operation.op);
  if (small) {
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

// --- rounds ---

// The first round of an operation: no data may be touched before all do the same.
void Exchange::meet(uint32_t round) {
  own().arrived.publish(round + 1);
  wait_for_all(&Board::arrived, round + 1);
  for (const auto& peer : peers_) {
    compare(current_sequence_, current_, peer);
    // A rank that arrives has recorded what for, so it has counted otherwise.
    const uint64_t sequence = peer.board->entry(current_sequence_).sequence;
    TORCH_CHECK_VALUE(
        sequence >= current_sequence_,
        "the ranks call different operations: ", name(own_peer()), " calls ", current_.to_string(), " as number ",
        current_sequence_, ", but ", name(peer), " has not called as many");
    // This rank may have been stopped for longer than the others have waited. They have given up
    // these tensors.
    check_state(peer);
  }
}

void Exchange::finish(uint32_t round) {
  own().reduced.publish(round + 1);
  own().done.publish(round + 1);
}

// Until the buffer of a round may be written, which was last used kBuffers rounds before.
void Exchange::wait_for_staging(uint32_t round) {
  wait_for_all(&Board::done, round - kBuffers + 1);
}

void Exchange::wait_for_all(Cell Board::*cell, uint32_t value) {
  for (const auto& peer : peers_) {
    wait(peer, cell, value, peers_.data() + peers_.size());
  }
}

void Exchange::wait(const Peer& peer, Cell Board::*cell, uint32_t value) {
  wait(peer, cell, value, &peer + 1);
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
    const auto seen = awaited.value.load();
    for (const auto* each = &peer; each != end; ++each) {
      look_at(*each, cell, value);
    }
    if (awaited.has_reached(value)) {
      return;
    }
    const auto now = Clock::now();
    if (now > deadline_) {
      throw c10d::TimeoutError(
          {__func__, __FILE__, __LINE__},
          c10::str("timed out after ", timeout_.count(), " ms waiting for ", name(peer), " in ", current_.to_string()));
    }
    awaited.sleep(seen, std::min<std::chrono::nanoseconds>(kLook, deadline_ - now));
  }
}

// Throws if this rank will not publish the value any more.
void Exchange::look_at(const Peer& peer, Cell Board::*cell, uint32_t value) const {
  const auto& awaited = peer.board->*cell;
  if (peer.rank == rank_ || awaited.has_reached(value)) {
    return;
  }
  try {
    compare(current_sequence_, current_, peer);
    check_state(peer);
    pollfd process{peer.pidfd, POLLIN, 0};
    // error.rs classifies the errors of a backward pass by words such as these.
    TORCH_CHECK_WITH(
        DistNetworkError,
        peer.board->state != kLeft && poll(&process, 1, 0) <= 0,
        "lost connection to ", name(peer), " (pid ", peer.process, "), which has ended or left the group");
  } catch (const c10::Error&) {
    // It may have published the value first.
    if (!awaited.has_reached(value)) {
      throw;
    }
  }
}

void Exchange::check_state(const Peer& peer) const {
  TORCH_CHECK_WITH(
      DistNetworkError,
      peer.rank == rank_ || peer.board->state != kFailed,
      "lost connection to ", name(peer), ", which has failed: ", peer.board->why);
}

void Exchange::record(uint64_t sequence, const Operation& operation) {
  // An operation for gloo may be recorded while an earlier one is being carried out here.
  const std::lock_guard<std::mutex> lock(recording_);
  auto& entry = own().entry(sequence);
  entry.sequence = Board::kBeingWritten;
  entry.what = encode(operation);
  entry.count = operation.count;
  entry.sequence = sequence;
}

// Throws if the other rank has begun something else under this number.
void Exchange::compare(uint64_t sequence, const Operation& operation, const Peer& peer) const {
  const auto& entry = peer.board->entry(sequence);
  if (sequence == 0 || peer.rank == rank_ || entry.sequence != sequence) {
    return;
  }
  const uint64_t what = entry.what;
  const uint64_t count = entry.count;
  const bool was_overwritten = entry.sequence != sequence;
  TORCH_CHECK_VALUE(
      was_overwritten || (what == encode(operation) && count == operation.count),
      "the ranks call different operations: ", name(own_peer()), " calls ", operation.to_string(), ", but ", name(peer),
      " calls ", decode(what, count).to_string());
}

const Exchange::Peer& Exchange::own_peer() const {
  return peers_[rank_];
}

Exchange::Board& Exchange::own() const {
  return *own_peer().board;
}

char* Exchange::staging(int rank, uint32_t round) const {
  return peers_[rank].data + kBoard + round % kBuffers * kStaged;
}

std::string Exchange::name(const Peer& peer) const {
  return "rank " + std::to_string(peer.board->name);
}

} // namespace c10d_sys

void c10d_probe_shared_memory(void (*probe)(void)) {
  c10d_sys::probe = probe;
}
