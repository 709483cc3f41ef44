// The only place that decides what kind of failure an exception is.

#include "guard.hpp"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <torch/csrc/distributed/c10d/exception.h>

namespace c10d_sys {
namespace {

template <typename... Types>
bool is_any_of(const std::exception& error) { return (... || (dynamic_cast<const Types*>(&error) != nullptr)); }

bool says(const std::exception& error, const char* words) { return std::strstr(error.what(), words) != nullptr; }

} // namespace

c10d_error_kind kind_of(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const Failure*>(&error)) {
    return failure->kind;
  }
  // A TimeoutError is a DistNetworkError too, so it must be checked first. Stores throw a DistStoreError
  // for a key that is not set in time, and for nothing else; FileStore only says so.
  if (is_any_of<c10d::TimeoutError, c10::DistStoreError>(error) || says(error, "Wait timeout")) {
    return C10D_TIMEOUT;
  }
  if (is_any_of<c10::DistNetworkError>(error)) {
    return C10D_CONNECTION;
  }
  // gloo (common/error.h, common/logging.h) and NCCL (c10d/NCCLUtils.hpp) have one type for a peer that
  // is late and for one that is gone. What gloo throws while it connects is thrown again as a c10::Error.
  if (is_any_of<gloo::Exception, gloo::EnforceNotMet, c10::DistBackendError>(error) ||
      says(error, "Gloo connectFullMesh failed")) {
    return says(error, "imed out") || says(error, "imeout") ? C10D_TIMEOUT : C10D_CONNECTION;
  }
  if (is_any_of<
          c10::IndexError, c10::NotImplementedError, c10::TypeError, c10::ValueError, std::invalid_argument>(error)) {
    return C10D_MISUSE;
  }
  // Under TORCH_DISTRIBUTED_DEBUG=DETAIL, ranks meet in a barrier and compare their calls before each
  // (c10d/ProcessGroupWrapper.hpp). A c10::Error says what is wrong, and of a rank that does not come
  // never whether it is gone.
  if (says(error, "Detected mismatch between collectives")) {
    return C10D_MISUSE;
  }
  if (says(error, "monitoredBarrier") || says(error, "Monitored Barrier")) {
    return C10D_TIMEOUT;
  }
  return C10D_OTHER;
}

} // namespace c10d_sys
