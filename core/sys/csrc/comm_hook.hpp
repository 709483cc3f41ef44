// A DDP communication hook made of the caller's functions.
#pragma once

#include "c10d.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>

struct c10d_grad_bucket {
  c10d::GradBucket& bucket;
};

namespace c10d_sys {

class CommHook : public c10d::CommHookInterface {
 public:
  // Takes ownership of `context`.
  CommHook(const c10d_comm_hook& functions, void* context) : functions_(functions), context_(context) {}
  ~CommHook() override { functions_.drop(context_); }

  // Starts the exchange. The future that the reducer gets is complete at once; `parseHookResult`
  // does all the waiting. So an exchange in several steps runs on the thread of the backward pass,
  // in the order of the buckets, which is the same on every rank. On the threads that complete
  // futures, steps that wait for each other could occupy every thread and deadlock.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  // Whether a thread runs the caller's functions.
  bool is_running() const { return running_; }

 private:
  c10d_comm_hook functions_;
  void* context_;
  std::atomic<int> running_{0};
};

} // namespace c10d_sys
