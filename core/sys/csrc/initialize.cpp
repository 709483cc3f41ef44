#include "guard.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <cstdlib>

extern "C" c10d_status c10d_initialize(void) {
  return c10d_sys::guarded([] {
    // Without this call TORCH_DISTRIBUTED_DEBUG is ignored.
    c10d::setDebugLevelFromEnvironment();
    // c10d logs a warning with a backtrace for every attempt to connect; real failures are thrown.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
      FLAGS_caffe2_log_level = 2; // ERROR
    }
  });
}
