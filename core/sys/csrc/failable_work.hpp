// An operation of gloo's that can be made to fail while gloo goes on waiting.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/exception.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace c10d_sys {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline std::exception_ptr peer_is_lost() {
  return std::make_exception_ptr(
      C10_BUILD_ERROR(DistNetworkError, "gloo waits for a rank whose connection has closed"));
}

// Gloo loses an operation whose peer dies at one moment (gloo.cpp says which), and offers no way to
// end the wait for it. This one is over when gloo's is, or when it is aborted.
class FailableWork final : public c10d::Work {
 public:
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

  bool wait(std::chrono::milliseconds timeout) override {
    Work::wait(timeout);
    // Gloo's thread has still to finish its own, which it does next.
    return work_->wait(kNoTimeout);
  }

  void abort() override { fail(peer_is_lost()); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

  // When the last owner is gone. The group's list of operations does not own them, but without this
  // it would keep their tensors.
  void release_resources() override {
    future_.reset();
    work_.reset();
  }

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

  c10::intrusive_ptr<c10::ivalue::Future> future_;
  WorkPtr work_;
  std::atomic<bool> is_over_{false};
};

// A message of gloo's, which is carried out by whoever waits for it, and can be aborted.
class MessageWork final : public c10d::Work {
 public:
  MessageWork(WorkPtr work, std::chrono::milliseconds timeout)
      : Work(-1, work->retrieveOpType()), work_(std::move(work)), timeout_(timeout) {}

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      // After `abort`, gloo says once that the message is not over, even if it is.
      if (!work_->wait(timeout == kNoTimeout ? timeout_ : timeout) && !work_->wait(kMoment)) {
        std::rethrow_exception(peer_is_lost());
      }
    } catch (const std::exception&) {
      finish(std::current_exception());
      if (is_aborted_) {
        std::rethrow_exception(peer_is_lost());
      }
      throw;
    }
    finish();
    return true;
  }

  void abort() override {
    is_aborted_ = true;
    work_->abort();
  }

  int sourceRank() const override { return work_->sourceRank(); }

  void release_resources() override { work_.reset(); }

 private:
  static constexpr std::chrono::milliseconds kMoment{10};

  WorkPtr work_;
  // The group's. Gloo would take the one with which the group has connected.
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> is_aborted_{false};
};

} // namespace c10d_sys
