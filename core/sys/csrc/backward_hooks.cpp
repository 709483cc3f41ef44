// Callbacks during a backward pass and at its end.

#include "guard.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace {

// A callback that lives as long as the graph that leads to it.
struct Hook : torch::CustomClassHolder {
  Hook(c10d_backward_hook call, void* context, c10d_drop drop) : call(call), context(context, drop) {}

  void operator()() const { c10d_sys::raise(call(context.get())); }

  c10d_backward_hook call;
  std::unique_ptr<void, c10d_drop> context;
};

constexpr const char* kHook = "hook";

// Returns its inputs as they are. Autograd makes views of them, which share the version counter, so that a
// graph that has saved an input notices when it is changed in place.
struct AfterBackward : torch::autograd::Function<AfterBackward> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Hook>& hook, at::TensorList inputs) {
    context->saved_data[kHook] = c10::IValue::make_capsule(hook);
    return inputs.vec();
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    (*c10::static_intrusive_pointer_cast<Hook>(context->saved_data[kHook].toCapsule()))();
    // One for the hook, which is not a tensor.
    torch::autograd::variable_list results(1);
    std::move(gradients.begin(), gradients.end(), std::back_inserter(results));
    return results;
  }
};

} // namespace

extern "C" {

c10d_status c10d_before_backward(c10d_tensor* output, c10d_backward_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    const auto hook = c10::make_intrusive<Hook>(call, context, drop);
    tensor(output).register_hook([hook](const at::Tensor&) { (*hook)(); });
  });
}

c10d_status c10d_after_accumulation(c10d_tensor* leaf, c10d_backward_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    const auto hook = c10::make_intrusive<Hook>(call, context, drop);
    const auto accumulator = torch::autograd::impl::grad_accumulator(tensor(leaf));
    TORCH_CHECK_VALUE(accumulator, "a tensor that needs no gradient");
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [hook](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          (*hook)();
          return outputs;
        }));
  });
}

c10d_status c10d_after_backward(c10d_tensors inputs, c10d_backward_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    const auto hook = c10::make_intrusive<Hook>(call, context, drop);
    const auto given = tensors(inputs);
    auto hooked = AfterBackward::apply(hook, at::TensorList(given));
    for (size_t i = 0; i < inputs.count; ++i) {
      tensor(inputs.first[i]) = std::move(hooked[i]);
    }
  });
}

c10d_status c10d_at_end_of_backward(c10d_backward_hook call, void* context, c10d_drop drop) {
  return guarded([&] {
    const auto hook = c10::make_intrusive<Hook>(call, context, drop);
    torch::autograd::Engine::get_default_engine().queue_callback([hook] { (*hook)(); });
  });
}

bool c10d_in_backward(void) { return torch::autograd::get_current_graph_task_id() != -1; }

} // extern "C"
