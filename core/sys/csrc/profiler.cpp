#include "guard.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <string_view>

namespace libkineto {
// What setLogSeverityLevel of kineto/LoggingAPI.h sets, which libtorch does not export. It exports this.
struct Logger {
  static std::atomic_int severityLevel_;
};
} // namespace libkineto

namespace {

// Above the severest of kineto's levels.
constexpr int kNoLog = 6;

// The name that stream.rs gives a range in which the host waits for a device's event.
constexpr char kWaitForDevice[] = "wait for the device";

// Of this thread, while it is being counted.
thread_local int64_t synchronizations = 0;

// tensor.to("cpu"), unless it is non_blocking: to.device(self, device, dtype, non_blocking, …) or
// to.dtype_layout(self, dtype, layout, device, pin_memory, non_blocking, …). With a dtype, the latter
// is tensor.to(dtype), which names the tensor's own device.
bool is_copy_to_host(c10::ArrayRef<const c10::IValue> inputs) {
  // A range to which a program has given this name has no inputs.
  if (inputs.size() < 4) {
    return false;
  }
  const size_t at = inputs[1].isDevice() ? 1 : 3;
  return inputs.size() > at + 2 && (at == 1 || inputs[1].isNone()) && inputs[at].isDevice() &&
      inputs[at].toDevice().is_cpu() && !inputs[at + 2].toBool();
}

// What torch.cuda.set_sync_debug_mode warns of, by the operators in which it happens.
std::unique_ptr<at::ObserverContext> count_synchronization(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  // `item` and conversions to a number end in the first of these, but tch's begin with `to`.
  constexpr std::array<std::string_view, 4> kReads = {
      "aten::_local_scalar_dense", "aten::nonzero", "aten::equal", kWaitForDevice};
  if (std::find(kReads.begin(), kReads.end(), name) != kReads.end() ||
      (name == "aten::to" && is_copy_to_host(function.inputs()))) {
    ++synchronizations;
  }
  return nullptr;
}

} // namespace

extern "C" {

c10d_status c10d_profiler_start(bool cuda) {
  return guarded([&] {
    using torch::profiler::impl::ActivityType;
    std::set<ActivityType> activities = {ActivityType::CPU};
    if (cuda) {
      activities.insert(ActivityType::CUDA);
    }
    torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    // The backward pass of a GPU, and what is exchanged meanwhile, have threads of their own.
    config.experimental_config.profile_all_threads = true;
    torch::autograd::profiler::prepareProfiler(config, activities);
    if (!cuda && std::getenv("KINETO_LOG_LEVEL") == nullptr) {
      // Otherwise it logs when it starts and stops, and as an error that there is no GPU. The first call
      // above has set a level of its own.
      libkineto::Logger::severityLevel_ = kNoLog;
    }
    torch::autograd::profiler::enableProfiler(config, activities);
  });
}

// `path` is null for no trace.
c10d_status c10d_profiler_stop(const char* path) {
  return guarded([&] {
    const auto result = torch::autograd::profiler::disableProfiler();
    if (path != nullptr && result != nullptr) {
      result->save(path);
    }
  });
}

c10d_status c10d_record_function(const char* name, void (*body)(void*), void* context) {
  return guarded([&] {
    RECORD_USER_SCOPE(std::string(name));
    body(context);
  });
}

c10d_status c10d_count_synchronizations(void (*body)(void*), void* context, int64_t* count) {
  return guarded([&] {
    const auto callback = at::RecordFunctionCallback(&count_synchronization)
                              .needsInputs(true)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
    const int64_t before = synchronizations;
    const auto handle = at::addThreadLocalCallback(callback);
    body(context);
    at::removeCallback(handle);
    *count = synchronizations - before;
  });
}

} // extern "C"
