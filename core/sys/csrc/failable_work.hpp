// An operation of gloo's that can be made to fail while gloo goes on waiting.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace c10d_sys {

inline std::exception_ptr peer_is_lost() {
  return std::make_exception_ptr(
      C10_BUILD_ERROR(DistNetworkError, "gloo waits for a rank whose connection has closed"));
}

// Gloo loses an operation whose peer dies at one moment (gloo.cpp says which), and offers no way to
// end the wait for it. This one is over when gloo's is, or when it is aborted.
class FailableWork final : public c10d::Work {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  static c10::intrusive_ptr<FailableWork> around(WorkPtr work) {
    auto failable = c10::make_intrusive<FailableWork>(work);
    // On the thread of gloo's that carries it out.
    work->getFuture()->addCallback([failable](c10::ivalue::Future& done) {
      done.hasError() ? failable->fail(done.exception_ptr()) : failable->succeed(done.value());
    });
    return failable;
  }

  explicit FailableWork(WorkPtr work)
      : Work(-1, work->retrieveOpType()),
        future_(work->getFuture()->createInstance(work->getFuture()->elementType())),
        work_(std::move(work)) {}

  void abort() override { fail(peer_is_lost()); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return work_->result(); }
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }
  void synchronize() override { work_->synchronize(); }

 private:
  void succeed(c10::IValue value) {
    if (!is_over_.exchange(true)) {
      future_->markCompleted(std::move(value));
      finish();
    }
  }

  void fail(std::exception_ptr error) {
    if (!is_over_.exchange(true)) {
      future_->setError(error);
      finish(std::move(error));
    }
  }

  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  const WorkPtr work_;
  std::atomic<bool> is_over_{false};
};

} // namespace c10d_sys
