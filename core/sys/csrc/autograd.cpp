#include "guard.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

using c10d_sys::guarded;
using c10d_sys::tensors;

namespace {

// Lives as long as the graph that leads to it.
struct HookState : torch::CustomClassHolder {
  HookState(c10d_gradient_hook call, void* context, c10d_drop drop) : call(call), context(context), drop(drop) {}
  ~HookState() override {
    drop(context);
  }

  c10d_gradient_hook call;
  void* context;
  c10d_drop drop;
};

constexpr const char* kState = "state";

// Where a graph ends: hands its gradients over and passes nothing on.
struct GradientHook : torch::autograd::Function<GradientHook> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context,
      const c10::intrusive_ptr<HookState>& state,
      at::TensorList leaves) {
    context->saved_data[kState] = c10::IValue::make_capsule(state);
    context->set_materialize_grads(false);
    return leaves.vec();
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    auto state = c10::static_intrusive_pointer_cast<HookState>(context->saved_data[kState].toCapsule());
    std::vector<c10d_tensor*> pointers;
    for (auto& gradient : gradients) {
      pointers.push_back(gradient.defined() ? &gradient : nullptr);
    }
    if (char* message = state->call(state->context, pointers.data(), pointers.size())) {
      std::string text(message);
      c10d_free(message);
      TORCH_CHECK(false, text);
    }
    // One for the state, which is no tensor, and one for each leaf.
    return torch::autograd::variable_list(1 + gradients.size());
  }
};

} // namespace

struct c10d_thread_state {
  at::ThreadLocalState state;
};

char* c10d_backward(c10d_tensor** roots, c10d_tensor** gradients, size_t count) {
  return guarded([&] { torch::autograd::backward(tensors(roots, count), tensors(gradients, count)); });
}

char* c10d_hook_gradients(
    c10d_tensor** leaves, size_t count, c10d_gradient_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    auto state = c10::make_intrusive<HookState>(call, context, drop);
    const auto given = tensors(leaves, count);
    auto hooked = GradientHook::apply(state, at::TensorList(given));
    for (size_t i = 0; i < count; ++i) {
      c10d_sys::tensor(leaves[i]) = hooked[i];
    }
  });
}

char* c10d_thread_state_new(c10d_thread_state** out) {
  return guarded([&] { *out = new c10d_thread_state(); });
}

char* c10d_thread_state_run(const c10d_thread_state* state, void (*body)(void*), void* context) {
  return guarded([&] {
    at::ThreadLocalStateGuard guard(state->state);
    // What torch.autocast does: weights that were cast live as long as the outermost block.
    at::autocast::increment_nesting();
    body(context);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
  });
}

void c10d_thread_state_free(c10d_thread_state* state) {
  delete state;
}
