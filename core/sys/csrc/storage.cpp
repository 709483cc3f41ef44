// Freeing the memory of tensors and allocating it again.

#include "guard.hpp"
#include "shared_data.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>

// The memory of a tensor that was freed.
struct c10d_memory {
  at::DataPtr data;
};

namespace {

// A freed storage refuses access. Not every release has functions to ask whether it does, and to allow
// access again. An explicit instantiation may name private members; it defines these two.
bool is_freed(const c10::StorageImpl& storage);
void allow_access(c10::StorageImpl& storage);

template <bool c10::StorageImpl::*is_forbidden, void (c10::StorageImpl::*refresh)()>
struct Access {
  friend bool is_freed(const c10::StorageImpl& storage) { return storage.*is_forbidden; }
  friend void allow_access(c10::StorageImpl& storage) {
    storage.*is_forbidden = false;
    (storage.*refresh)();
  }
};

template struct Access<&c10::StorageImpl::throw_on_immutable_data_ptr_, &c10::StorageImpl::refresh_has_data_ptr_check>;

// Exchanges a tensor's memory. Views that autograd has saved share the storage, so they see the new one.
at::DataPtr exchange_memory(const at::Tensor& of, at::DataPtr memory, size_t bytes) {
  auto& storage = *of.storage().unsafeGetStorageImpl();
  const std::lock_guard<std::mutex> lock(c10d_sys::ownership());
  allow_access(storage);
  std::swap(memory, storage.mutable_data_ptr());
  storage.set_nbytes(bytes);
  return memory;
}

at::DataPtr allocate(const at::Tensor& of, size_t bytes) {
  const c10::OptionalDeviceGuard guard(of.device());
  return of.storage().unsafeGetStorageImpl()->allocator()->allocate(bytes);
}

} // namespace

extern "C" {

c10d_status c10d_free_storage(c10d_tensor* pointer, const char* message, size_t* bytes, c10d_memory** out) {
  return guarded([&] {
    const auto& freed = tensor(pointer);
    auto& storage = *freed.storage().unsafeGetStorageImpl();
    TORCH_CHECK(storage.resizable() && storage.allocator() != nullptr, "only memory that the tensor has allocated itself can be freed");
    TORCH_CHECK(!is_freed(storage), "the memory has already been freed");
    *bytes = storage.nbytes();
    auto memory = exchange_memory(freed, allocate(freed, 0), 0);
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(message));
    // GPUs' memory is kept by their own allocator. What an exchange still uses is not free.
    const bool is_free = freed.is_cpu() && !c10d_sys::is_in_use(memory);
    *out = is_free ? new c10d_memory{std::move(memory)} : nullptr;
  });
}

c10d_status c10d_allocate_storage(c10d_tensor* pointer, size_t bytes, c10d_memory* from) {
  return guarded([&] {
    const auto& freed = tensor(pointer);
    TORCH_CHECK(is_freed(*freed.storage().unsafeGetStorageImpl()), "the memory has not been freed");
    // More, if it was resized meanwhile.
    const size_t needed = std::max(bytes, freed.storage().nbytes());
    const bool fits = from != nullptr && needed == bytes && from->data.device() == freed.device();
    exchange_memory(freed, fits ? std::move(from->data) : allocate(freed, needed), needed);
  });
}

void c10d_memory_free(c10d_memory* memory) { delete memory; }

int64_t c10d_version(const c10d_tensor* pointer) {
  // Others have no counter, and throw when asked.
  const auto& counted = tensor(pointer);
  return counted.defined() && !counted.is_inference() ? static_cast<int64_t>(counted._version()) : 0;
}

} // extern "C"
