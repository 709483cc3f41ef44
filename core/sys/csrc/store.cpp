#include "guard.hpp"
#include "handles.hpp"

#include <c10/util/Logging.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <resolv.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

using std::chrono::milliseconds;

// A TCP store's server closes the connection of a client that sends more.
constexpr size_t kMostBytes = 8 << 20;

static std::vector<uint8_t> copy_of(c10d_slice<uint8_t> bytes) {
  TORCH_CHECK_VALUE(bytes.count <= kMostBytes, "a value of ", bytes.count, " bytes; expected at most 8 MiB");
  return {bytes.first, bytes.first + bytes.count};
}

// A copy of these bytes, to be freed with c10d_free.
static void give(const std::vector<uint8_t>& bytes, uint8_t** value, size_t* length) {
  // malloc(0) may be null, which would read as a failure.
  *value = static_cast<uint8_t*>(std::malloc(bytes.size() + 1));
  TORCH_CHECK(*value != nullptr, "out of memory");
  std::memcpy(*value, bytes.data(), bytes.size());
  *length = bytes.size();
}

// For each connection, libtorch looks up the name of the peer's address, for its log. Where many ranks
// start at once the name server loses questions, and each costs seconds. While the result lives, this
// thread asks none; /etc/hosts and numeric addresses still work.
static auto without_name_servers() {
  if ((_res.options & RES_INIT) == 0) {
    res_init();
  }
  return c10::make_scope_exit([count = std::exchange(_res.nscount, 0)] { _res.nscount = count; });
}

extern "C" {

void c10d_free(void* memory) { std::free(memory); }

// A copy to be freed with c10d_free, for the messages of callbacks.
char* c10d_copy_text(const char* text) { return c10d_sys::copy_text(text); }

// `listen_fd` >= 0 makes this process the server, on that bound and listening socket.
c10d_status c10d_tcp_store_new(
    const char* host, uint16_t port, size_t world_size, int listen_fd, int64_t timeout_ms, c10d_store** out) {
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.numWorkers = world_size;
    // With waitWorkers a server waits for all clients at once, without saying which is missing.
    // Ours need not wait, because the backends wait for each rank by name. A client always sets it,
    // which announces it to the server, since a Python server does wait.
    // A server that is the only process waits for nobody, and sets the same first key as in PyTorch.
    options.waitWorkers = listen_fd < 0 || world_size == 1;
    options.timeout = milliseconds(timeout_ms);
    if (listen_fd >= 0) {
      options.isServer = true;
      options.masterListenFd = listen_fd;
    }
    const auto numeric = without_name_servers();
    *out = new c10d_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
  });
}

c10d_status c10d_initialize(void) {
  return guarded([] {
    // Without this call TORCH_DISTRIBUTED_DEBUG is ignored.
    c10d::setDebugLevelFromEnvironment();
    // c10d logs a warning with a backtrace for every attempt to connect; real failures are thrown.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
      FLAGS_caffe2_log_level = 2; // ERROR
    }
  });
}

c10d_status c10d_hash_store_new(c10d_store** out) {
  return guarded([&] { *out = new c10d_store{c10::make_intrusive<c10d::HashStore>()}; });
}

c10d_status c10d_file_store_new(const char* path, int world_size, c10d_store** out) {
  return guarded([&] { *out = new c10d_store{c10::make_intrusive<c10d::FileStore>(path, world_size)}; });
}

c10d_status c10d_prefix_store_new(const char* prefix, const c10d_store* store, c10d_store** out) {
  return guarded([&] { *out = new c10d_store{c10::make_intrusive<c10d::PrefixStore>(prefix, store->store)}; });
}

c10d_status c10d_store_clone(const c10d_store* store, c10d_store** out) {
  return guarded([&] {
    const auto numeric = without_name_servers();
    *out = new c10d_store{store->store->clone()};
  });
}

c10d_status c10d_store_set(const c10d_store* store, const char* key, c10d_slice<uint8_t> value) {
  return guarded([&] { store->store->set(key, copy_of(value)); });
}

c10d_status c10d_store_append(const c10d_store* store, const char* key, c10d_slice<uint8_t> value) {
  return guarded([&] {
    auto& own = *store->store;
    const auto added = copy_of(value);
    if (own.hasExtendedApi() || added.empty()) {
      own.append(key, added);
      return;
    }
    // What libtorch does instead loses a value that equals the one before.
    for (;;) {
      const auto before = own.check({key}) ? own.get(key) : std::vector<uint8_t>{};
      auto after = before;
      after.insert(after.end(), added.begin(), added.end());
      if (own.compareSet(key, before, after) == after) {
        return;
      }
    }
  });
}

c10d_status c10d_store_get(
    const c10d_store* store, const char* key, int64_t timeout_ms, uint8_t** value, size_t* length) {
  return guarded([&] {
    store->store->wait({key}, milliseconds(timeout_ms));
    give(store->store->get(key), value, length);
  });
}

// The values one after the other, to be freed with c10d_free; `lengths` has room for one of each key.
c10d_status c10d_store_multi_get(
    const c10d_store* store, c10d_slice<const char*> keys, int64_t timeout_ms, size_t* lengths, uint8_t** values,
    size_t* length) {
  return guarded([&] {
    const std::vector<std::string> names{keys.first, keys.first + keys.count};
    store->store->wait(names, milliseconds(timeout_ms));
    std::vector<uint8_t> joined;
    for (const auto& value : store->store->multiGet(names)) {
      *lengths++ = value.size();
      joined.insert(joined.end(), value.begin(), value.end());
    }
    give(joined, values, length);
  });
}

c10d_status c10d_store_multi_set(
    const c10d_store* store, c10d_slice<const char*> keys, c10d_slice<c10d_slice<uint8_t>> values) {
  return guarded([&] {
    std::vector<std::vector<uint8_t>> copies;
    std::transform(values.first, values.first + values.count, std::back_inserter(copies), copy_of);
    store->store->multiSet({keys.first, keys.first + keys.count}, copies);
  });
}

c10d_status c10d_store_wait(const c10d_store* store, c10d_slice<const char*> keys, int64_t timeout_ms) {
  return guarded([&] { store->store->wait({keys.first, keys.first + keys.count}, milliseconds(timeout_ms)); });
}

c10d_status c10d_store_compare_set(
    const c10d_store* store, const char* key, c10d_slice<uint8_t> expected, c10d_slice<uint8_t> desired,
    uint8_t** value, size_t* length) {
  return guarded([&] { give(store->store->compareSet(key, copy_of(expected), copy_of(desired)), value, length); });
}

c10d_status c10d_store_queue_push(const c10d_store* store, const char* key, c10d_slice<uint8_t> value) {
  return guarded([&] { store->store->queuePush(key, copy_of(value)); });
}

c10d_status c10d_store_queue_pop(
    const c10d_store* store, const char* key, int64_t timeout_ms, uint8_t** value, size_t* length) {
  return guarded([&] {
    // After `wait`, a TCP store would count this client as waiting for ever, and a HashStore may wake another thread.
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
    for (;;) {
      const auto now = std::chrono::steady_clock::now();
      try {
        return give(store->store->queuePop(key, false), value, length);
      } catch (const c10::DistQueueEmptyError&) {
        if (now >= deadline) { throw; }
      }
      std::this_thread::sleep_until(std::min(deadline, now + milliseconds(20)));
    }
  });
}

c10d_status c10d_store_queue_len(const c10d_store* store, const char* key, int64_t* out) {
  return guarded([&] { *out = store->store->queueLen(key); });
}

c10d_status c10d_store_delete_key(const c10d_store* store, const char* key, bool* out) {
  return guarded([&] {
    auto& own = *store->store;
    // A FileStore always says that it has deleted something. Of several that delete at once, each may be told so.
    const bool was_set = own.hasExtendedApi() || own.check({key});
    *out = own.deleteKey(key) && was_set;
  });
}

c10d_status c10d_store_num_keys(const c10d_store* store, int64_t* out) {
  return guarded([&] { *out = store->store->getNumKeys(); });
}

c10d_status c10d_store_check(const c10d_store* store, const char* key, bool* out) {
  return guarded([&] { *out = store->store->check({key}); });
}

c10d_status c10d_store_add(const c10d_store* store, const char* key, int64_t amount, int64_t* out) {
  return guarded([&] {
    auto& own = store->store;
    *out = own->add(key, amount);
    auto* prefixed = dynamic_cast<c10d::PrefixStore*>(own.get());
    const auto base = prefixed == nullptr ? own : prefixed->getUnderlyingNonPrefixStore();
    if (dynamic_cast<c10d::HashStore*>(base.get()) != nullptr) {
      // Unlike `add`, this wakes those who wait for the key.
      const auto text = std::to_string(*out);
      const std::vector<uint8_t> value{text.begin(), text.end()};
      own->compareSet(key, value, value);
    }
  });
}

void c10d_store_free(c10d_store* store) { delete store; }

} // extern "C"
