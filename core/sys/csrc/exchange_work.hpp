// A gloo operation that goes through shared memory.
#pragma once

#include "shared_memory/exchange.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <utility>
#include <vector>

namespace c10d_sys {

// An operation that the exchange carries out: on the thread that waits for it if that waits at once,
// otherwise on one of gloo's.
class ExchangeWork final : public c10d::ProcessGroupGloo::AsyncWork {
 public:
  // Work that must be over before this begins.
  using Prior = c10::weak_intrusive_ptr<AsyncWork>;

  ExchangeWork(
      std::shared_ptr<Exchange> exchange, const Operation& operation, const Exchange::Operands& operands,
      std::chrono::milliseconds timeout, const char* title, std::vector<Prior> prior)
      // Only the reducer reads a result, that of an all_reduce. Tensors of other operations would stay alive after
      // `run`.
      : AsyncWork(
            nullptr, {operation.type == c10d::OpType::ALLREDUCE ? operands.inputs : Tensors{}}, operation.type, 0, timeout,
            title, operands.inputs),
        exchange_(std::move(exchange)),
        ticket_(exchange_->enqueue()),
        operation_(operation),
        operands_(operands),
        prior_(std::move(prior)) {}

  // If nobody has waited for it: the other ranks still count on this one, and what follows on its turn.
  ~ExchangeWork() override {
    try {
      if (is_left_to_wait_) {
        run();
      }
    } catch (...) {
      // The exchange keeps the failure.
    }
  }

  const Exchange::Ticket& ticket() const { return ticket_; }

  // Leaves it to `wait` to carry this out.
  void leave_to_wait() { is_left_to_wait_ = true; }

  void run() override {
    for (const auto& each : prior_) {
      if (auto work = each.lock()) {
        try {
          work->wait();
        } catch (const std::exception&) {
          // It is over. Whoever waits for it learns of this.
        }
      }
    }
    // Released before this counts as finished: whoever waits for it may free the tensors at once.
    const auto operands = std::exchange(operands_, {});
    exchange_->run(ticket_, operation_, operands, getTimeout());
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (is_left_to_wait_.exchange(false)) {
      execute(c10::intrusive_ptr<AsyncWork>::reclaim_copy(this));
    }
    return AsyncWork::wait(timeout);
  }

  const Tensors getInputTensors() override { return operands_.inputs; }
  const Tensors getOutputTensors() override {
    return operands_.outputs.empty() ? operands_.inputs : operands_.outputs;
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const Exchange::Ticket ticket_;
  const Operation operation_;
  Exchange::Operands operands_;
  const std::vector<Prior> prior_;
  std::atomic<bool> is_left_to_wait_{false};
};

} // namespace c10d_sys
