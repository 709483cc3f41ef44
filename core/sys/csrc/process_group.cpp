#include "guard.hpp"
#include "handles.hpp"
#include "serial_process_group.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <future>
#include <thread>

using std::chrono::milliseconds;

namespace {

// Null, with the reason in the handle, if shared memory is not available here.
std::shared_ptr<c10d_sys::Exchange> offer_exchange(c10d_process_group* handle, c10d::Store& store, int name) {
  const int size = handle->group->getSize();
  if (size == 1) {
    handle->why_none = "there is one rank";
    return nullptr;
  }
  try {
    auto exchange = std::make_shared<c10d_sys::Exchange>(handle->group->getRank(), size, name);
    exchange->offer(store);
    return exchange;
  } catch (const std::exception& error) {
    handle->why_none = c10d_sys::text_of(error);
    return nullptr;
  }
}

// Gloo connects to the other ranks one by one. If a connection fails, it never tries the rest, and those ranks would wait
// for five times the timeout. So a rank that cannot connect tells the others through the store. Gloo cannot be
// interrupted, so it connects on its own thread, which may outlive this call and keep the store and the options alive.
c10::intrusive_ptr<c10d_sys::Gloo> connect(
    const c10::intrusive_ptr<c10d::Store>& store, const c10d::ProcessGroup& group, int name,
    const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + options->timeout;
  std::packaged_task<c10::intrusive_ptr<c10d_sys::Gloo>()> task([=, rank = group.getRank(), size = group.getSize()] {
    return c10::make_intrusive<c10d_sys::Gloo>(store, rank, size, options);
  });
  auto gloo = task.get_future();
  std::thread([task = std::move(task)]() mutable { task.make_ready_at_thread_exit(); }).detach();
  const auto has_ended = [&] { return gloo.wait_for(milliseconds(100)) == std::future_status::ready; };
  const std::string failed = "connect_failed";
  while (!has_ended() && steady_clock::now() < end) {
    if (store->check({failed})) {
      throw c10d_sys::Failure(store->get_to_str(failed), C10D_CONNECTION);
    }
  }
  if (!has_ended()) {
    const auto timeout = std::to_string(options->timeout.count());
    throw c10d_sys::Failure("timed out after " + timeout + " ms connecting to the other ranks", C10D_TIMEOUT);
  }
  try {
    return gloo.get();
  } catch (const std::exception& error) {
    // After a timeout there is nothing to tell: each rank has its own. Without the store, the others fail as well.
    try {
      if (steady_clock::now() < end) {
        store->set(failed, "rank " + std::to_string(name) + " could not connect: " + c10d_sys::text_of(error));
      }
    } catch (const std::exception&) {
    }
    throw;
  }
}

// With TORCH_GLOO_LAZY_INIT, gloo connects to a rank only when it needs it, and its constructor waits
// for nobody. This waits until every rank has published its last address.
void await_addresses(c10d::Store& store, int size, size_t per_rank, milliseconds timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) {
    keys.push_back(std::to_string(per_rank - 1) + "/" + std::to_string(rank));
  }
  store.wait(keys, timeout);
}

} // namespace

extern "C" {

c10d_status c10d_process_group_new(const c10d_store* store, int rank, int world_size, c10d_process_group** out) {
  return guarded([&] {
    TORCH_CHECK_VALUE(rank >= 0 && rank < world_size, "rank ", rank, " of ", world_size);
    *out = new c10d_process_group{c10::make_intrusive<c10d_sys::SerialProcessGroup>(store->store, rank, world_size)};
  });
}

c10d_status c10d_process_group_add_gloo(
    c10d_process_group* handle, c10d_slice<const char*> names, bool are_interfaces, bool shared_memory, int name,
    int64_t timeout_ms, int64_t join_timeout_ms) {
  return guarded([&] {
    auto& group = handle->group;
    const milliseconds timeout(join_timeout_ms);
    const auto make_options = [&] {
      auto options = c10d::ProcessGroupGloo::Options::create(timeout);
      const bool lazy = c10d::getDefaultGlooLazyInit();
      for (size_t i = 0; i < names.count; ++i) {
        options->devices.push_back(
            are_interfaces ? c10d::ProcessGroupGloo::createDeviceForInterface(names.first[i], lazy)
                           : c10d::ProcessGroupGloo::createDeviceForHostname(names.first[i], lazy));
      }
      options->group_name = c10d_sys::kGroupName;
      return options;
    };
    // Gloo also serves CUDA tensors, through the CPU; PyTorch names the prefix after the first device.
    auto store = c10::make_intrusive<c10d::PrefixStore>("cpu/", group->getStore());
    handle->why_none = "it is switched off";
    auto exchange = shared_memory ? offer_exchange(handle, *store, name) : nullptr;
    auto gloo = connect(store, *group, name, make_options());
    if (c10d::getDefaultGlooLazyInit()) {
      await_addresses(*store, group->getSize(), names.count, timeout);
    }
    gloo->setSequenceNumberForGroup();
    if (exchange != nullptr) {
      if (auto why_not = exchange->join(*store, timeout)) {
        handle->why_none = *why_not;
      } else {
        handle->exchange = exchange;
        gloo->set_exchange(std::move(exchange));
      }
    }
    handle->gloo = gloo;
    c10::intrusive_ptr<c10d::Backend> backend = std::move(gloo);
    if (c10d::debug_level() == c10d::DebugLevel::Detail) {
      // Before each operation the ranks check, over a second group, that all are about to do the same.
      auto own = c10::make_intrusive<c10d::PrefixStore>(std::string("pg_wrapper:") + c10d_sys::kGroupName, store);
      // With options of its own: a group that connects lazily shuts its devices down with itself.
      handle->helper = connect(own, *group, name, make_options());
      backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, handle->helper);
    }
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, backend);
    c10d_sys::name(*group);
    for (const auto& each : {handle->gloo, handle->helper}) {
      if (each != nullptr) {
        each->setTimeout(milliseconds(timeout_ms));
      }
    }
  });
}

// Null if the group exchanges through shared memory. Borrowed from the group.
const char* c10d_process_group_no_shared_memory(const c10d_process_group* handle) {
  return handle->exchange == nullptr ? handle->why_none.c_str() : nullptr;
}

c10d_status c10d_process_group_lost_peer(c10d_process_group* handle, int first, int64_t age_ms, int* out) {
  return guarded([&] {
    const auto& gloo = handle->gloo;
    *out = gloo == nullptr ? -1 : gloo->lost_peer(first, milliseconds(age_ms)).value_or(-1);
  });
}

c10d_status c10d_process_group_fail_operations_with(c10d_process_group* handle, int rank) {
  return guarded([&] {
    if (handle->gloo != nullptr) {
      handle->gloo->fail_operations_with(rank);
    }
  });
}

c10d_status c10d_process_group_is_busy(c10d_process_group* handle, bool* out) {
  return guarded([&] {
    *out = (handle->gloo != nullptr && handle->gloo->is_busy()) ||
        (handle->helper != nullptr && handle->helper->is_busy());
  });
}

c10d_status c10d_process_group_fail(c10d_process_group* handle) {
  return guarded([&] {
    for (const auto& gloo : {handle->gloo, handle->helper}) {
      if (gloo != nullptr) {
        gloo->fail();
      }
    }
  });
}

c10d_status c10d_allocate_tensor(
    c10d_process_group* handle, c10d_slice<int64_t> size, c10d_tensor* like, c10d_tensor** out) {
  return guarded([&] {
    const auto arena = handle->arena();
    const c10d_sys::AllocateIn scope(arena);
    *out = new at::Tensor(at::empty({size.first, size.count}, tensor(like).options()));
  });
}

c10d_status c10d_process_group_progress(c10d_process_group* handle, c10d_progress* out) {
  return guarded([&] {
    TORCH_CHECK_VALUE(handle->progress != nullptr, "only NCCL counts its operations");
    *out = handle->progress();
  });
}

c10d_status c10d_process_group_abort(c10d_process_group* handle) { return guarded([&] { handle->group->abort(); }); }

void c10d_process_group_free(c10d_process_group* handle) {
  // NCCL requires a shutdown before its destructor; for gloo it does nothing.
  std::free(guarded([&] { handle->group->shutdown(); }).message);
  delete handle;
}

} // extern "C"
