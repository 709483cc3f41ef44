#include "guard.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <cstdlib>

c10d_status c10d_initialize(void) {
  return c10d_sys::guarded([] {
    // Without it TORCH_DISTRIBUTED_DEBUG is ignored.
    c10d::setDebugLevelFromEnvironment();
    // c10d warns about every attempt to connect, with a backtrace; what matters comes as an exception.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
      FLAGS_caffe2_log_level = 2; // ERROR
    }
  });
}
