//! The optimizers of [`tch_parallel_optim`], and those of several ranks.

mod clip_grad;
mod diloco;
mod post_local_sgd;
mod zero_redundancy;

pub use clip_grad::clip_grad_norm_;
pub use diloco::{DiLoCo, DiLoCoOptions, model_fragments};
pub use post_local_sgd::PostLocalSgdOptimizer;
#[doc(inline)]
pub use tch_parallel_optim::*;
pub use zero_redundancy::ZeroRedundancyOptimizer;
