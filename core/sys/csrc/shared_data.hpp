// Memory that exchanges share with the tensors of their callers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <utility>

namespace c10d_sys {

using SharedData = std::shared_ptr<at::DataPtr>;

inline void release_shared(void* context) { delete static_cast<SharedData*>(context); }

inline at::DataPtr data_of(const SharedData& shared) {
  return {shared->get(), new SharedData(shared), &release_shared, shared->device()};
}

// Held while anybody reads or changes who owns the memory of a storage, which another thread may have a tensor of.
inline std::mutex& ownership() {
  static std::mutex mutex;
  return mutex;
}

// What holds the memory, whether or not it is shared. Needs `ownership`.
inline const at::DataPtr& owner(const at::DataPtr& data) {
  return data.get_deleter() == &release_shared ? **static_cast<SharedData*>(data.get_context()) : data;
}

// Whether an exchange may still read or write the memory.
inline bool is_in_use(const at::DataPtr& data) {
  const std::lock_guard<std::mutex> lock(ownership());
  return data.get_deleter() == &release_shared && static_cast<SharedData*>(data.get_context())->use_count() > 1;
}

// Makes the memory of a storage such that others can share it. Its address, which others may be reading,
// stays the same throughout.
inline SharedData share(c10::StorageImpl& storage) {
  const std::lock_guard<std::mutex> lock(ownership());
  auto& data = storage.mutable_data_ptr();
  if (data.get_deleter() == &release_shared) {
    return *static_cast<SharedData*>(data.get_context());
  }
  auto shared = std::make_shared<at::DataPtr>(std::move(data));
  data = data_of(shared);
  return shared;
}

// A tensor on the CPU with the same memory. An exchange takes its time, and whoever has another
// handle to its tensor could meanwhile resize that, or put other data in its place (`set_data`),
// which frees the memory. This tensor keeps both the memory and its shape.
inline at::Tensor independent(const at::Tensor& tensor) {
  auto impl = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true);
  const auto shared = share(*tensor.storage().unsafeGetStorageImpl());
  impl->set_storage_keep_dtype(c10::Storage(
      c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), data_of(shared), /*allocator=*/nullptr,
      /*resizable=*/false));
  return at::Tensor(std::move(impl));
}

} // namespace c10d_sys
