#include "guard.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <memory>
#include <set>
#include <string>

using c10d_sys::guarded;

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
    torch::autograd::profiler::enableProfiler(config, activities);
  });
}

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
