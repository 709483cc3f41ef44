#pragma once

// What a model's wrapper, the gradient accumulators of its parameters and running backward passes own together.

#include "comm_hook.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace c10d_sys {

// The reducer's own list of the parameters whose gradients the last backward pass has not made is
// private. An explicit instantiation may name what is private; this is the function that it defines.
std::vector<size_t> unmarked_parameters(c10d::Reducer& reducer);

template <std::vector<size_t> (c10d::Reducer::*function)()>
struct Unmarked {
  friend std::vector<size_t> unmarked_parameters(c10d::Reducer& reducer) { return (reducer.*function)(); }
};

template struct Unmarked<&c10d::Reducer::getUnmarkedParamIndicesForIteration>;

// The reducer and the gradient accumulators of its parameters own each other: accumulators through
// `ReducerGuard`, and the reducer directly, until `release`. From then on the graphs that lead to the
// accumulators keep them alive, and they the reducer.
class OwnedReducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // The hooks stay, since a backward pass may be running them: without these two, which only the
  // destructor reads, it removes none.
  void release() {
    decltype(hooks_)().swap(hooks_);
    decltype(grad_accumulators_)().swap(grad_accumulators_);
  }

  // A graph that was made before may be running its backward pass.
  void set_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook) {
    const std::lock_guard<std::mutex> lock(mutex_);
    register_comm_hook(std::move(hook));
  }

  // After the reducer's own setter, the first gradients would go to buckets that nobody exchanges.
  void compute_in(c10::ScalarType kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::vector<size_t>> indices;
    for (const auto& bucket : buckets_) {
      indices.push_back(bucket.variable_indices);
    }
    set_mixed_precision_param_dtype(kind);
    initialize_buckets(std::move(indices));
  }

  void expect_no_gradients() {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect_autograd_hooks_ = false;
  }

  // As in PyTorch, but an order that was set also applies if the last forward pass has had no backward pass.
  bool rebuild() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      expect_autograd_hooks_ &= require_finalize_ || rebuilt_params_.empty() || !should_rebuild_buckets();
    }
    return rebuild_buckets();
  }

  bool expects_gradients() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return expect_autograd_hooks_;
  }

  // The parameters whose gradients are missing, if the last backward pass has not made all. The next pass fails then.
  std::vector<size_t> missing() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return require_finalize_ ? unmarked_parameters(*this) : std::vector<size_t>{};
  }

  // The parameters as the buckets list them; empty as long as no backward pass has shown it.
  std::vector<int64_t> bucket_order() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_rebuilt_bucket_) {
      const bool complete = rebuilt_param_indices_.size() == params_.size();
      return complete ? rebuilt_param_indices_ : std::vector<int64_t>{};
    }
    std::vector<int64_t> order;
    for (const auto& bucket : buckets_) {
      order.insert(order.end(), bucket.variable_indices.begin(), bucket.variable_indices.end());
    }
    return order;
  }

  // The parameters of each bucket, in their order there, and the number of each one's bucket.
  void buckets_to(size_t* indices, size_t* numbers) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t number = 0; number < buckets_.size(); ++number) {
      const auto& bucket = buckets_[number].variable_indices;
      indices = std::copy(bucket.begin(), bucket.end(), indices);
      numbers = std::fill_n(numbers, bucket.size(), number);
    }
  }

  // Has the next `rebuild_buckets` act as if gradients had arrived in this order. Buckets that have been
  // rebuilt stay: the reducer remembers their parameters.
  void set_bucket_order(std::vector<int64_t> order) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool rebuilds = !has_rebuilt_bucket_ && (!find_unused_parameters_ || static_graph_);
    const std::unordered_set<int64_t> different(order.begin(), order.end());
    if (order.size() != params_.size() || different.size() != order.size() || !rebuilds) {
      return;
    }
    rebuilt_params_.clear();
    for (const auto index : order) {
      rebuilt_params_.push_back(params_[index]);
    }
    rebuilt_param_indices_ = std::move(order);
  }
};

// What owns one is another type from PyTorch 2.12 on.
using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

// Owned by the handle, by the gradient accumulators, and by graphs that contain a `Sink`.
struct ReducerState : torch::CustomClassHolder {
  // Members are destroyed in reverse order: the logger's destructor still uses the reducer.
  std::shared_ptr<OwnedReducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  // Whether there is a handle.
  std::atomic<bool> in_use{false};
  // Null if none is registered. Owned by the reducer.
  std::atomic<CommHook*> comm_hook{nullptr};
  bool static_graph = false;
  // Whether the parameters get data of another kind for its passes.
  bool casts = false;

  // Owns the accumulator that a parameter has got with other data; see c10d_parameter_set_data.
  void keep(size_t index, Accumulator accumulator) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (in_use) {
      accumulators[index] = std::move(accumulator);
    }
  }

  std::mutex mutex;
  std::unordered_map<size_t, Accumulator> accumulators;
  // static_graph reduces everything after the first backward pass, once. Atomic, because the
  // backward pass may set it on another thread than the next forward pass reads it.
  std::atomic<bool> delayed_all_reduce_queued{false};

  // The reducer calls the hook with its mutex held, so the hook would wait for itself.
  void check_not_in_comm_hook() const {
    const CommHook* hook = comm_hook;
    TORCH_CHECK(
        hook == nullptr || !hook->is_running(),
        "the model was used while its communication hook was running: a model can have one backward "
        "pass at a time");
  }
};

// The first hook on a parameter's gradient accumulator. The reducer's own, which follows, points to
// the reducer without owning it.
struct ReducerGuard : torch::autograd::FunctionPostHook {
  ReducerGuard(
      c10::intrusive_ptr<ReducerState> state, size_t index, at::Tensor parameter, std::string name, bool expect_sparse,
      bool exchanges = false)
      : state(std::move(state)), index(index), parameter(std::move(parameter)), name(std::move(name)),
        expect_sparse(expect_sparse), exchanges(exchanges) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients, const torch::autograd::variable_list&) override {
    // The reducer's constructor failed after it had put its hooks on a graph.
    TORCH_CHECK(state->reducer, "the model could not be wrapped after this graph was made");
    state->check_not_in_comm_hook();
    // The reducer would read memory that a sparse tensor does not have.
    const auto& gradient = parameter.grad();
    TORCH_CHECK(
        expect_sparse || !gradient.defined() || !gradient.is_sparse(),
        "the gradient of ", name, " is sparse: name it in DdpOptions::sparse_gradients");
    if (exchanges) {
      state->reducer->autograd_hook(index);
    }
    return gradients;
  }

  c10::intrusive_ptr<ReducerState> state;
  size_t index;
  at::Tensor parameter;
  std::string name;
  bool expect_sparse;
  // Whether this is the only hook, and so tells the reducer.
  bool exchanges;
};

// The guards of reducers in use on an accumulator, which may be null.
inline std::vector<const ReducerGuard*> guards_of(const torch::autograd::Node* accumulator) {
  std::vector<const ReducerGuard*> guards;
  if (accumulator != nullptr) {
    for (const auto& hook : accumulator->post_hooks()) {
      const auto* guard = dynamic_cast<const ReducerGuard*>(hook.get());
      if (guard != nullptr && guard->state->in_use) {
        guards.push_back(guard);
      }
    }
  }
  return guards;
}

// A reducer, and the position among given parameters of each parameter that it knows, in the order given.
struct Numbered {
  c10::intrusive_ptr<ReducerState> state;
  std::vector<size_t> positions;
  std::vector<int64_t> indices;
};

// The reducers in use that know these parameters.
inline std::vector<Numbered> reducers_of(const std::vector<at::Tensor>& parameters) {
  std::vector<Numbered> found;
  for (size_t position = 0; position < parameters.size(); ++position) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameters[position]);
    for (const auto* guard : guards_of(accumulator.get())) {
      guard->state->check_not_in_comm_hook();
      const auto has_this_state = [&](const Numbered& each) { return each.state == guard->state; };
      auto known = std::find_if(found.begin(), found.end(), has_this_state);
      if (known == found.end()) {
        known = found.insert(found.end(), Numbered{guard->state, {}, {}});
      }
      known->positions.push_back(position);
      known->indices.push_back(static_cast<int64_t>(guard->index));
    }
  }
  return found;
}

} // namespace c10d_sys
