//! Optimizers with PyTorch's order of operations, parameter groups and a state that can be saved,
//! learning-rate schedules, and gradient clipping.
//!
//! Programs use it as `tch_parallel::optim`, which adds the optimizers of several ranks.

#![deny(missing_docs)]

mod adadelta;
mod adagrad;
mod adam;
mod averaged_model;
mod check;
mod clip_grad;
pub mod lr_scheduler;
mod nadam;
mod optimizer;
mod optimizer_in_backward;
mod param_group;
mod param_group_optimizer;
mod parameter_state;
mod radam;
mod rmsprop;
mod rule_parts;
mod sgd;
mod sparse_adam;
mod step;
mod step_hooks;
mod tensor_list;
mod update_rule;

use tch_parallel_base::{Error, Result};

pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions};
pub use averaged_model::{AveragedModel, AveragedModelOptions, Averaging};
pub use clip_grad::{
    ClipGradNormOptions, clip_grad_norm_, clip_grad_norm_of_parts, clip_grads_with_norm_,
};
pub use clip_grad::{clip_grad_value_, get_total_norm};
pub use nadam::{NAdam, NAdamOptions};
pub use optimizer::{Optimizer, OptimizerState, ParamGroupState};
pub use optimizer_in_backward::{OptimizerInBackward, steps_in_backward};
pub use param_group::{GroupOptions, ParamGroup};
pub use param_group_optimizer::ParamGroupOptimizer;
pub use parameter_state::{ParameterState, StateShape};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use sgd::{Sgd, SgdOptions};
pub use sparse_adam::{SparseAdam, SparseAdamOptions};
pub use step::Step;
pub use tensor_list::TensorList;
pub use update_rule::{GradientLayout, UpdateRule};
