#include "guard.hpp"
#include "handles.hpp"
#include "reducer_state.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>

using c10d_sys::guards_of;
using c10d_sys::OwnedReducer;
using c10d_sys::ReducerGuard;
using c10d_sys::reducers_of;
using c10d_sys::ReducerState;

namespace {

constexpr const char* kSinkState = "state";

struct Sink : torch::autograd::Function<Sink> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const c10::intrusive_ptr<ReducerState>& state,
      at::TensorList outputs) {
    context->saved_data[kSinkState] = c10::IValue::make_capsule(state);
    // An output that the loss does not use has no gradient; zeros would mark its parameters as used.
    context->set_materialize_grads(false);
    torch::autograd::variable_list copies;
    for (const auto& output : outputs) {
      copies.push_back(output.clone());
    }
    return copies;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    auto state = c10::static_intrusive_pointer_cast<ReducerState>(context->saved_data[kSinkState].toCapsule());
    if (state->static_graph && !state->delayed_all_reduce_queued.exchange(true)) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [reducer = state->reducer] { reducer->delay_all_reduce(); });
    }
    // The first argument of forward is not a tensor and has no gradient.
    gradients.insert(gradients.begin(), at::Tensor());
    return gradients;
  }
};

} // namespace

struct c10d_reducer {
  c10::intrusive_ptr<ReducerState> state;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // Where the buckets lie.
  c10::intrusive_ptr<c10d_sys::Arena> arena;
  bool find_unused_parameters;

  // Whether each backward pass is followed by an exchange of which parameters took part in it.
  bool exchanges_used_parameters() const { return find_unused_parameters && !state->static_graph; }

  OwnedReducer& reducer() const {
    state->check_not_in_comm_hook();
    return *state->reducer;
  }

  // It locks the reducer's mutex, too.
  c10d::Logger& logger() const {
    state->check_not_in_comm_hook();
    return *state->logger;
  }

  // For what the reducer refuses as long as gradients of the last backward pass are missing.
  template <typename F>
  c10d_status after_backward(F&& body) const noexcept {
    return guarded([&] {
      auto& own = reducer();
      try {
        body(own);
      } catch (const c10::Error& error) {
        if (own.missing().empty()) {
          throw;
        }
        throw c10d_sys::Failure(error.what_without_backtrace(), C10D_UNFINISHED);
      }
    });
  }
};

extern "C" {

c10d_status c10d_verify_params(c10d_process_group* handle, c10d_tensors parameters) {
  return guarded([&] {
    TORCH_CHECK_VALUE(parameters.count > 0, "no parameters to compare");
    c10d::verify_params_across_processes(handle->group, tensors(parameters), std::nullopt);
  });
}

c10d_status c10d_reducer_new(
    c10d_process_group* handle, c10d_tensors parameters, const char** names, const bool* expect_sparse,
    const char* module_name, const size_t* bucket_bytes, size_t bucket_count, const c10d_reducer_options* options,
    c10d_reducer** out) {
  return guarded([&] {
    const size_t count = parameters.count;
    auto params = tensors(parameters);
    std::vector<bool> sparse(expect_sparse, expect_sparse + count);

    constexpr size_t kLargest = std::numeric_limits<int64_t>::max();
    std::vector<size_t> limits(bucket_bytes, bucket_bytes + bucket_count);
    for (auto& limit : limits) {
      limit = std::min(limit, kLargest);
    }
    // Until the first backward pass has shown the order in which gradients arrive, only find_unused_parameters and a
    // list of sizes use several buckets; see _BucketCapacityConfig in distributed.py.
    const size_t largest = *std::max_element(limits.begin(), limits.end());
    const size_t first = options->limit_first_buckets ? largest : limits.front();
    std::vector<int64_t> limits_for_rebuilding;
    if (options->limit_first_buckets) {
      limits_for_rebuilding.assign(limits.begin(), limits.end());
    } else if (options->static_graph || !options->find_unused_parameters) {
      limits = {kLargest};
    }
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(params, limits, sparse));
    // Gradients arrive in roughly the reverse order of registration.
    std::reverse(buckets.begin(), buckets.end());

    auto state = c10::make_intrusive<ReducerState>();
    state->static_graph = options->static_graph;
    // Held until the reducer holds them.
    std::vector<c10d_sys::Accumulator> accumulators;
    std::unordered_set<const c10::TensorImpl*> known;
    std::unordered_map<size_t, std::string> param_names;
    for (size_t i = 0; i < count; ++i) {
      TORCH_CHECK_VALUE(params[i].requires_grad(), names[i], " needs no gradient");
      TORCH_CHECK_VALUE(known.insert(params[i].unsafeGetTensorImpl()).second, names[i], " is a parameter twice");
      accumulators.push_back(torch::autograd::impl::grad_accumulator(params[i]));
      accumulators.back()->add_post_hook(
          std::make_unique<ReducerGuard>(state, i, params[i], names[i], expect_sparse[i]));
      param_names[i] = names[i];
    }
    // The buckets are exchanged without a copy.
    const auto arena = handle->arena();
    const c10d_sys::AllocateIn scope(arena);
    state->reducer = std::make_shared<OwnedReducer>(
        params, std::move(buckets), handle->group, std::move(sparse), largest, options->find_unused_parameters,
        options->gradient_as_bucket_view, std::move(param_names), first, options->skip_all_reduce_unused_params,
        /*use_python_reducer=*/false, std::move(limits_for_rebuilding));
    auto& logger = state->logger = std::make_shared<c10d::Logger>(state->reducer);
    state->reducer->set_logger(logger);
    std::vector<int> device_ids;
    int output_device = -1;
    if (count > 0 && params[0].is_cuda()) {
      output_device = params[0].device().index();
      device_ids.push_back(output_device);
    }
    logger->set_construction_data_and_log(
        module_name, device_ids, output_device, options->broadcast_buffers, /*has_sync_bn=*/false,
        options->static_graph);
    if (options->static_graph) {
      state->reducer->set_static_graph();
      logger->set_static_graph();
    }
    state->in_use = true;
    *out = new c10d_reducer{std::move(state), handle->group, arena, options->find_unused_parameters};
  });
}

bool c10d_is_in_reducer(const c10d_tensor* parameter) noexcept {
  if (!tensor(parameter).defined()) {
    return false;
  }
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor(parameter));
  return !guards_of(accumulator.get()).empty();
}

c10d_status c10d_reducer_prepare_for_forward(c10d_reducer* handle) {
  return handle->after_backward([&](OwnedReducer& reducer) {
    handle->state->logger->set_runtime_stats_and_log();
    reducer.prepare_for_forward();
  });
}

c10d_status c10d_reducer_rebuild_buckets(c10d_reducer* handle, bool* out) {
  return handle->after_backward([&](OwnedReducer& reducer) {
    const c10d_sys::AllocateIn scope(handle->arena);
    *out = reducer.rebuild();
  });
}

c10d_status c10d_reducer_prepare_for_backward(c10d_reducer* handle, c10d_tensors outputs) {
  return handle->after_backward([&](OwnedReducer& reducer) {
    // Given outputs, the reducer walks the graph for unused parameters. Only find_unused_parameters
    // should pay for that.
    reducer.prepare_for_backward(handle->exchanges_used_parameters() ? tensors(outputs) : Tensors{});
  });
}

c10d_status c10d_reducer_expect_no_gradients(c10d_reducer* handle) {
  return guarded([&] { handle->reducer().expect_no_gradients(); });
}

c10d_status c10d_reducer_expects_gradients(const c10d_reducer* handle, bool* out) {
  return guarded([&] { *out = handle->reducer().expects_gradients(); });
}

// The parameters without a gradient, if one of the three above has failed with C10D_UNFINISHED;
// otherwise none. `indices` has room for all parameters.
c10d_status c10d_reducer_missing(c10d_reducer* handle, size_t* indices, size_t* len) {
  return guarded([&] {
    const auto missing = handle->reducer().missing();
    std::copy(missing.begin(), missing.end(), indices);
    *len = missing.size();
  });
}

// The parameters in the order of the buckets, and the number of each one's bucket. Both have room for all parameters.
c10d_status c10d_reducer_buckets(c10d_reducer* handle, size_t* indices, size_t* buckets) {
  return guarded([&] { handle->reducer().buckets_to(indices, buckets); });
}

bool c10d_reducer_needs_sink(const c10d_reducer* handle) {
  const auto& state = *handle->state;
  return state.static_graph ? !state.delayed_all_reduce_queued : handle->find_unused_parameters;
}

c10d_status c10d_reducer_sink(c10d_reducer* handle, c10d_tensors outputs) {
  return guarded([&] {
    // A tensor without a grad_fn has no backward pass.
    std::vector<size_t> positions;
    std::vector<at::Tensor> tracked;
    for (size_t i = 0; i < outputs.count; ++i) {
      if (tensor(outputs.first[i]).grad_fn()) {
        positions.push_back(i);
        tracked.push_back(tensor(outputs.first[i]));
      }
    }
    if (tracked.empty()) {
      return;
    }
    auto passed = Sink::apply(handle->state, at::TensorList(tracked));
    for (size_t i = 0; i < positions.size(); ++i) {
      tensor(outputs.first[positions[i]]) = passed[i];
    }
  });
}

// `*text` is to be freed with c10d_free; null if no text of that name is logged.
c10d_status c10d_reducer_logged_text(c10d_reducer* handle, const char* name, char** text) {
  return guarded([&] {
    auto data = handle->logger().get_ddp_logging_data();
    auto found = data.strs_map.find(name);
    *text = found == data.strs_map.end() ? nullptr : c10d_sys::copy_text(found->second);
  });
}

c10d_status c10d_reducer_logged_number(c10d_reducer* handle, const char* name, int64_t* number) {
  return guarded([&] {
    auto data = handle->logger().get_ddp_logging_data();
    auto found = data.ints_map.find(name);
    *number = found == data.ints_map.end() ? 0 : found->second;
  });
}

// Takes ownership of `context`, even if it fails.
c10d_status c10d_reducer_register_comm_hook(
    c10d_reducer* handle, const char* name, const c10d_comm_hook* functions, void* context) {
  return guarded([&] {
    auto hook = std::make_unique<c10d_sys::CommHook>(*functions, context);
    auto* borrowed = hook.get();
    handle->reducer().set_comm_hook(std::move(hook));
    handle->state->comm_hook = borrowed;
    handle->state->logger->set_comm_hook(name);
  });
}

c10d_status c10d_reducer_set_uneven_input_join(c10d_reducer* handle) {
  return guarded([&] { handle->logger().set_uneven_input_join(); });
}

c10d_status c10d_reducer_set_forward_pass_work(
    c10d_reducer* handle, const c10d_work* work, bool use_static_world_size) {
  return guarded([&] {
    handle->reducer().set_forward_pass_work_handle(work == nullptr ? nullptr : work->work, use_static_world_size);
  });
}

// See _match_all_reduce_for_bwd_pass in distributed.py, and what follows it in _DDPJoinHook.main_hook.
c10d_status c10d_reducer_shadow_backward(c10d_reducer* handle) {
  return guarded([&] {
    auto& reducer = handle->reducer();
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    auto buckets = reducer.get_grad_buckets(/*return_zero_tensors=*/true);
    for (auto& bucket : buckets) {
      futures.push_back(reducer.run_comm_hook(bucket));
    }
    c10::intrusive_ptr<c10d::Work> used;
    if (handle->exchanges_used_parameters()) {
      // Zeros of its own: the reducer's map still holds what all ranks used when this one last trained.
      std::vector<at::Tensor> none{at::zeros_like(reducer.get_local_used_map_on_device())};
      used = handle->group->allreduce(none);
    }
    for (auto& future : futures) {
      future->waitAndThrow();
      if (auto* hook = handle->state->comm_hook.load()) {
        hook->parseHookResult(future->value());
      }
    }
    if (used) {
      used->wait();
    }
    reducer.push_rebuilt_params_for_all_indices();
  });
}

// `order` has room for all; `*len` is 0 if no reducer knows the parameters, or knows the order yet.
c10d_status c10d_bucket_order(c10d_tensors parameters, size_t* order, size_t* len) {
  return guarded([&] {
    *len = 0;
    for (const auto& known : reducers_of(tensors(parameters))) {
      std::unordered_map<int64_t, size_t> position_of;
      for (size_t i = 0; i < known.indices.size(); ++i) {
        position_of[known.indices[i]] = known.positions[i];
      }
      const auto indices = known.state->reducer->bucket_order();
      if (!indices.empty() && indices.size() == position_of.size()) {
        for (const auto index : indices) {
          order[(*len)++] = position_of.at(index);
        }
        return;
      }
    }
  });
}

c10d_status c10d_set_bucket_order(c10d_tensors parameters) {
  return guarded([&] {
    for (auto& known : reducers_of(tensors(parameters))) {
      known.state->reducer->set_bucket_order(std::move(known.indices));
    }
  });
}

c10d_status c10d_reducer_compute_in(c10d_reducer* handle, const c10d_tensor* like) {
  return guarded([&] {
    const c10d_sys::AllocateIn scope(handle->arena);
    handle->reducer().compute_in(tensor(like).scalar_type());
    handle->state->casts = true;
  });
}

// `parameter.data = data`. With data of another kind a parameter gets another accumulator of gradients. The
// guards of reducers go along, and tell them of gradients: that which casts only if `exchanges`. See
// _module_wait_for_copy_hook in distributed.py.
c10d_status c10d_parameter_set_data(c10d_tensor* pointer, const c10d_tensor* data, bool exchanges) {
  return guarded([&] {
    auto& parameter = tensor(pointer);
    TORCH_CHECK_VALUE(parameter.defined() && tensor(data).defined(), "an undefined tensor has no data");
    const auto before = torch::autograd::impl::try_get_grad_accumulator(parameter);
    parameter.set_data(tensor(data));
    if (!before || before == torch::autograd::impl::try_get_grad_accumulator(parameter)) {
      return;
    }
    for (const auto* guard : guards_of(before.get())) {
      // One that is frozen has none, but may be trained again.
      const bool requires_grad = parameter.requires_grad();
      parameter.set_requires_grad(true);
      auto after = torch::autograd::impl::grad_accumulator(parameter);
      parameter.set_requires_grad(requires_grad);
      after->add_post_hook(std::make_unique<ReducerGuard>(
          guard->state, guard->index, parameter, guard->name, guard->expect_sparse, exchanges || !guard->state->casts));
      guard->state->keep(guard->index, std::move(after));
    }
  });
}

void c10d_reducer_free(c10d_reducer* handle) {
  // `delete` may destroy the reducer, `release` must not.
  {
    const std::lock_guard<std::mutex> lock(handle->state->mutex);
    handle->state->in_use = false;
    handle->state->accumulators.clear();
  }
  handle->state->reducer->release();
  delete handle;
}

} // extern "C"
