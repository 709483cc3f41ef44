//! Optimizers with PyTorch's order of operations and a state that can be saved, learning-rate
//! schedules, and gradient clipping.

mod adam;
mod clip_grad;
pub mod lr_scheduler;
mod optimizer;
mod parameter_states;
#[cfg(test)]
mod problem;
mod sgd;
mod zero_redundancy;

pub use adam::{Adam, AdamOptions};
pub use clip_grad::{clip_grad_norm_, clip_grad_value_};
pub use optimizer::{Optimizer, OptimizerState};
pub use sgd::{Sgd, SgdOptions};
pub use zero_redundancy::ZeroRedundancyOptimizer;
