#include "guard.hpp"
#include "shared_data.hpp"
#include "shared_memory/arena.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <array>
#include <atomic>
#include <memory>
#include <utility>

namespace {

struct Counter {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes) + bytes;
    int64_t highest = peak.load();
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
  }
};

std::array<Counter, C10D_HOST + 1> counters;
thread_local int32_t current_device = 0;
thread_local c10d_sys::Arena* current_arena = nullptr;

// Precedes every block. It is as long as libtorch's alignment, so that the block stays aligned.
struct alignas(64) Header {
  int64_t bytes;
  int32_t device;
};
static_assert(sizeof(Header) == 64, "blocks keep the alignment that kernels rely on");

Header* header(void* block) { return static_cast<Header*>(block) - 1; }

void release(void* block) {
  if (block != nullptr) {
    Header* found = header(block);
    counters[found->device].live -= found->bytes;
    c10::free_cpu(found);
  }
}

// A block in an arena. Not in front of it, because a forked child cannot read there.
struct ArenaBlock {
  c10::intrusive_ptr<c10d_sys::Arena> arena;
  void* block;
  int64_t bytes;
  int32_t device;
};

void release_in_arena(void* context) {
  const std::unique_ptr<ArenaBlock> found(static_cast<ArenaBlock*>(context));
  counters[found->device].live -= found->bytes;
  found->arena->free(found->block, found->bytes);
}

// Charges every block to the current device of the thread that allocates it. Freeing the block
// credits that same device, whichever thread frees it.
struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    }
    TORCH_CHECK(bytes <= SIZE_MAX - sizeof(Header), "a block of ", bytes, " bytes is asked for");
    if (current_arena != nullptr) {
      if (void* block = current_arena->allocate(bytes)) {
        const auto size = static_cast<int64_t>(bytes);
        auto arena = c10::intrusive_ptr<c10d_sys::Arena>::reclaim_copy(current_arena);
        auto* found = new ArenaBlock{std::move(arena), block, size, current_device};
        counters[current_device].add(size);
        return {block, found, &release_in_arena, c10::Device(c10::kCPU)};
      }
    }
    auto* found = static_cast<Header*>(c10::alloc_cpu(bytes + sizeof(Header)));
    found->bytes = static_cast<int64_t>(bytes);
    found->device = current_device;
    counters[current_device].add(found->bytes);
    void* block = found + 1;
    return {block, block, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

// Installed before the program can make a tensor, because libtorch expects to return a block to the
// allocator that it came from. Never destroyed, since blocks may outlive main.
[[maybe_unused]] const bool installed = [] {
  // Above the priority of libtorch's own allocator.
  constexpr uint8_t kPriority = 1;
  c10::SetAllocator(c10::kCPU, new CountingAllocator, kPriority);
  return true;
}();

} // namespace

namespace c10d_sys {

AllocateIn::AllocateIn(const c10::intrusive_ptr<Arena>& arena) : previous_(std::exchange(current_arena, arena.get())) {}

AllocateIn::~AllocateIn() { current_arena = previous_; }

} // namespace c10d_sys

extern "C" {

int32_t c10d_exchange_cpu_device(int32_t device) noexcept { return std::exchange(current_device, device); }

c10d_bytes c10d_cpu_memory(int32_t device) noexcept {
  const auto live = counters[device].live.load();
  const auto peak = counters[device].peak.load();
  return {static_cast<size_t>(live), static_cast<size_t>(peak)};
}

void c10d_reset_cpu_peak(int32_t device) noexcept { counters[device].peak = counters[device].live.load(); }

int32_t c10d_cpu_device_of(const c10d_tensor* pointer) noexcept {
  const auto& tensor = c10d_sys::tensor(pointer);
  // A sparse tensor has no storage of its own: it consists of several tensors.
  if (!tensor.defined() || !tensor.has_storage()) {
    return -1;
  }
  try {
    const std::lock_guard<std::mutex> lock(c10d_sys::ownership());
    // Throws while the memory is freed.
    const auto& data = c10d_sys::owner(tensor.storage().data_ptr());
    if (data.get_deleter() == &release_in_arena) {
      return static_cast<const ArenaBlock*>(data.get_context())->device;
    }
    if (data.get() != nullptr && data.get_deleter() == &release) {
      return header(data.get_context())->device;
    }
  } catch (...) {
  }
  return -1;
}

c10d_status c10d_cuda_memory(int32_t device, c10d_bytes* out) {
  return guarded([&] {
    const auto stats = c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(c10d_sys::cuda(device).index());
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto& bytes = stats.allocated_bytes[kAll];
    *out = {static_cast<size_t>(bytes.current), static_cast<size_t>(bytes.peak)};
  });
}

c10d_status c10d_reset_cuda_peak(int32_t device) {
  return guarded([&] { c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(c10d_sys::cuda(device).index()); });
}

} // extern "C"
