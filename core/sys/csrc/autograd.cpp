#include "guard.hpp"
#include "releases.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace {

// Lives as long as the graph that leads to it.
struct HookState : torch::CustomClassHolder {
  HookState(c10d_gradient_hook call, void* context, c10d_drop drop, size_t inputs)
      : call(call), context(context, drop), inputs(inputs) {}

  c10d_gradient_hook call;
  std::unique_ptr<void, c10d_drop> context;
  size_t inputs;
};

constexpr const char* kState = "state";

// A part of the graph whose backward pass is the caller's own.
struct GradientHook : torch::autograd::Function<GradientHook> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const c10::intrusive_ptr<HookState>& state, at::TensorList leaves,
      at::TensorList) {
    context->saved_data[kState] = c10::IValue::make_capsule(state);
    context->set_materialize_grads(false);
    torch::autograd::variable_list results;
    for (const auto& leaf : leaves) {
      // Not a view, so it may be changed in place like any result. Whoever has saved the leaf must notice that.
      auto result = leaf.variable_data();
      torch::autograd::impl::set_version_counter(result, torch::autograd::impl::version_counter(leaf));
      results.push_back(std::move(result));
    }
    return results;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "a custom gradient has no gradient of its own, but `create_graph` is set");
    auto state = c10::static_intrusive_pointer_cast<HookState>(context->saved_data[kState].toCapsule());
    std::vector<c10d_tensor*> borrowed;
    for (auto& gradient : gradients) {
      borrowed.push_back(gradient.defined() ? &gradient : nullptr);
    }
    std::vector<c10d_tensor*> given(state->inputs);
    const bool keep_graph = torch::autograd::get_current_graph_task_keep_graph();
    const auto status = state->call(state->context.get(), borrowed.data(), keep_graph, given.data());
    // One for the state, which is not a tensor, one for each leaf and one for each input.
    torch::autograd::variable_list results(1 + gradients.size());
    for (auto* pointer : given) {
      std::unique_ptr<at::Tensor> gradient(static_cast<at::Tensor*>(pointer));
      results.push_back(gradient ? std::move(*gradient) : at::Tensor());
    }
    c10d_sys::raise(status);
    return results;
  }
};

// The root of a backward pass: hands each graph end its gradient and keeps none, so that a gradient
// is freed as soon as it has been used.
struct Deliver : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return std::move(gradients); }

  torch::autograd::variable_list gradients;
};

} // namespace

struct c10d_graph_end {
  torch::autograd::Edge edge;
};

struct c10d_thread_state {
  at::ThreadLocalState state;
};

extern "C" {

c10d_status c10d_tensor_backward(const c10d_tensor* tensor) {
  return guarded([&] { c10d_sys::tensor(tensor).backward(); });
}

bool c10d_is_checkpoint_valid(void) {
  return torch::autograd::Engine::get_default_engine().is_checkpoint_valid();
}

c10d_status c10d_graph_end_new(const c10d_tensor* pointer, c10d_graph_end** out) {
  return guarded([&] {
    const auto& tensor = c10d_sys::tensor(pointer);
    TORCH_CHECK(tensor.requires_grad(), "the tensor does not require grad and does not have a grad_fn");
    *out = new c10d_graph_end{torch::autograd::impl::gradient_edge(tensor)};
  });
}

void c10d_graph_end_free(c10d_graph_end* end) { delete end; }

// Moves the gradients out of their handles, so that each is freed as soon as it has been used.
c10d_status c10d_backward(c10d_graph_end** ends, c10d_tensors gradients, bool keep_graph) {
  return guarded([&] {
    auto root = c10d_sys::make_node<Deliver>();
    torch::autograd::edge_list edges;
    for (size_t i = 0; i < gradients.count; ++i) {
      edges.push_back(ends[i]->edge);
      root->gradients.push_back(std::move(c10d_sys::tensor(gradients.first[i])));
    }
    root->set_next_edges(std::move(edges));
    const auto go = at::zeros({});
    root->add_input_metadata(go);
    constexpr bool kCreateGraph = false;
    constexpr bool kAccumulate = true;
    torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::Edge(root, 0)}, {go}, keep_graph, kCreateGraph, kAccumulate);
  });
}

c10d_status c10d_hook_gradients(
    c10d_tensors leaves, c10d_tensors inputs, c10d_gradient_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    auto state = c10::make_intrusive<HookState>(call, context, drop, inputs.count);
    const auto given = tensors(leaves);
    const auto sources = tensors(inputs);
    auto hooked = GradientHook::apply(state, at::TensorList(given), at::TensorList(sources));
    for (size_t i = 0; i < leaves.count; ++i) {
      c10d_sys::tensor(leaves.first[i]) = hooked[i];
    }
  });
}

c10d_status c10d_thread_state_new(c10d_thread_state** out) { return guarded([&] { *out = new c10d_thread_state(); }); }

// `body` must not throw.
c10d_status c10d_thread_state_run(const c10d_thread_state* state, void (*body)(void*), void* context) {
  return guarded([&] {
    at::ThreadLocalStateGuard guard(state->state);
    // As torch.autocast does: the cache of cast weights lives until the outermost block ends.
    at::autocast::increment_nesting();
    body(context);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
  });
}

void c10d_thread_state_free(c10d_thread_state* state) { delete state; }

} // extern "C"
