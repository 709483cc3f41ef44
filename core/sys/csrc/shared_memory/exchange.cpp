// How ranks find each other, and in which order operations are carried out.

#include "exchange.hpp"

#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

namespace c10d_sys {
namespace {

// Names this arrangement of memory, and what ranks do with it. Ranks with different ones use gloo.
constexpr const char* kLayout = "7";
// The count of rounds soon wraps around, so that this does not happen for the first time in a
// training that has run for days.
constexpr uint32_t kFirstRound = -100;

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

std::string key(int rank) { return "shared_memory/" + std::to_string(rank); }

} // namespace

Exchange::Exchange(int rank, int size, int name)
    : rank_(rank), size_(size), process_(getpid()), spin_(time_to_spin(size)), round_(kFirstRound) {
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
    end(kLeft, kGone, C10D_CONNECTION);
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
    TORCH_CHECK(
        false, "rank ", rank,
        " of the group does not offer it: it runs Python, has switched it off, or itself reports why it cannot");
  }
  const auto offers = store.multiGet(keys);
  const auto here = place();
  for (auto& peer : peers_) {
    std::istringstream offer(std::string(offers[peer.rank].begin(), offers[peer.rank].end()));
    std::string layout, boot, processes;
    int name = -1;
    int descriptor = -1;
    uint64_t cookie = 0;
    offer >> layout >> boot >> processes >> name >> peer.process >> descriptor >> cookie;
    TORCH_CHECK(offer && layout == kLayout, "rank ", peer.rank, " of the group has another version of it");
    TORCH_CHECK(boot + " " + processes == here, "rank ", name, " is on another host, or in another container");
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

static const char* title(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE: return "shared_memory:all_reduce";
    case c10d::OpType::_REDUCE_SCATTER_BASE: return "shared_memory:reduce_scatter";
    case c10d::OpType::ALLGATHER: return "shared_memory:all_gather";
    case c10d::OpType::GATHER: return "shared_memory:gather";
    case c10d::OpType::REDUCE: return "shared_memory:reduce";
    case c10d::OpType::SCATTER: return "shared_memory:scatter";
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE: return "shared_memory:all_to_all";
    case c10d::OpType::BROADCAST: return "shared_memory:broadcast";
    default: return "shared_memory:barrier";
  }
}

void Exchange::expect_own_process() const {
  TORCH_CHECK(getpid() == process_, "this process was forked from a rank, and is none itself");
}

Exchange::Ticket Exchange::enqueue() {
  expect_own_process();
  return {++sequence_, enqueued_++};
}

bool Exchange::others_have_arrived(const Ticket& ticket) const {
  return turn_ == ticket.turn && std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
           return peer.rank == rank_ || peer.board->arrived.has_reached(round_ + 1);
         });
}

// The tensor to write an output's values to. If writing to the output could change inputs while other
// ranks read them, or if it is not contiguous, this is a new tensor, to be copied to the output afterwards.
at::Tensor Exchange::place_for(const Operands& operands, size_t index, c10d::OpType type) const {
  const auto& [inputs, outputs] = operands;
  const auto& output = outputs[index];
  const auto begin_of = [](const at::Tensor& tensor) { return static_cast<const char*>(tensor.data_ptr()); };
  const auto end_of = [&](const at::Tensor& tensor) { return begin_of(tensor) + tensor.nbytes(); };
  // Whether no other rank reads this input, or its values stay the same.
  const auto is_own = [&](size_t input) {
    switch (type) {
      case c10d::OpType::SCATTER:
      case c10d::OpType::_REDUCE_SCATTER_BASE: return input == rank_ * inputs.size() / size_;
      case c10d::OpType::ALLTOALL:
      case c10d::OpType::ALLTOALL_BASE: return index == static_cast<size_t>(rank_) && input == index;
      default: return index == rank_ * inputs.size() + input;
    }
  };
  bool is_safe = output.is_contiguous();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool overlaps = begin_of(output) < end_of(inputs[i]) && begin_of(inputs[i]) < end_of(output);
    is_safe = is_safe && (!overlaps || (is_own(i) && begin_of(output) == begin_of(inputs[i])));
  }
  return is_safe ? output : at::empty(output.sizes(), output.options());
}

void Exchange::run(const Ticket& ticket, const Operation& operation, const Operands& operands, Milliseconds timeout) {
  expect_own_process();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    next_turn_.wait(lock, [&] { return turn_ == ticket.turn; });
  }
  const auto next_turn = c10::make_scope_exit([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++turn_;
    next_turn_.notify_all();
  });
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
  check_own_state();

  current_ = operation;
  current_sequence_ = ticket.sequence;
  set_deadline(timeout);
  record(ticket.sequence, operation);
  // For the profiler, as gloo does.
  RECORD_USER_SCOPE(title(operation.type));
  try {
    const auto& [inputs, outputs] = operands;
    Places places{{}, std::vector<Pieces>(size_)};
    for (const auto& input : inputs) {
      (gives(operation, rank_) ? places.input : places.outputs[operation.root]).add(input);
    }
    Tensors written;
    for (size_t i = 0; i < outputs.size(); ++i) {
      written.push_back(place_for(operands, i, operation.type));
      const bool is_from_root = operation.type == c10d::OpType::SCATTER;
      places.outputs[is_from_root ? operation.root : i * size_ / outputs.size()].add(written[i]);
    }
    carry_out(operation, places);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!written[i].is_same(outputs[i])) {
        outputs[i].copy_(written[i]);
      }
    }
    if (operation.op == RedOp::AVG) {
      (outputs.empty() ? inputs : outputs)[0].div_(size_);
    }
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    fail(text_of(error), kind_of(error));
    throw;
  }
}

void Exchange::announce(const Operation& operation) {
  expect_own_process();
  record(++sequence_, operation);
  try {
    for (const auto& peer : peers_) {
      compare(sequence_, operation, peer);
    }
  } catch (const std::exception& error) {
    fail(text_of(error), kind_of(error));
    throw;
  }
}

void Exchange::end(State state, const std::string& why, c10d_error_kind kind) {
  uint32_t well = kWell;
  if (own().state.compare_exchange_strong(well, kWriting, std::memory_order_relaxed)) {
    // A rank that only leaves keeps its text: others may still be reading why it could not join.
    if (state == kFailed) {
      say_why(why);
    }
    failed_as_ = kind;
    own().state.store(state, std::memory_order_release);
  }
  // Others may sleep where this rank publishes, and this rank where others do.
  for (const auto& peer : peers_) {
    for (auto cell : {&Board::verdict, &Board::arrived, &Board::reduced, &Board::done}) {
      if (peer.board != nullptr) {
        (peer.board->*cell).wake();
      }
    }
  }
}

void Exchange::set_deadline(Milliseconds timeout) {
  timeout_ = timeout;
  // Longer ones would overflow.
  deadline_ = Clock::now() + std::min<Milliseconds>(timeout, std::chrono::hours(24 * 365));
}

} // namespace c10d_sys

extern "C" void c10d_probe_shared_memory(void (*probe)(void)) { c10d_sys::probe = probe; }
