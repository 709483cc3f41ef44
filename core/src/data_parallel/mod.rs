//! One process, several devices, a replica of the model on each: `torch.nn.parallel`.
//!
//! A step goes through the files in this order:
//!
//! - [`mod@scatter`]: a batch is divided along its first dimension.
//! - [`replicate`]: the model is copied to every device but the first, which has the original.
//! - [`parallel_apply`]: every replica runs on a thread of its own.
//! - [`mod@gather`]: the outputs are put together on one device.
//! - [`backward`]: the other way round: a slice of the output's gradient goes to each replica, and
//!   the replicas' gradients are summed into the original.
//!
//! [`dp`] holds [`DataParallel`], which does all of it. [`model`] and [`criterion`] hold
//! [`DataParallelModel`] and [`DataParallelCriterion`], which leave out the gathering: the loss is
//! computed where the outputs are. [`trace`] records what happened when, and what was copied.

pub mod backward;
pub mod criterion;
pub mod dp;
pub mod gather;
pub mod model;
pub mod parallel_apply;
pub mod replicate;
pub mod scatter;
pub mod trace;

pub use criterion::{DataParallelCriterion, Mean, ParallelLoss};
pub use dp::{DataParallel, DataParallelOptions};
pub use gather::gather;
pub use model::{DataParallelModel, SplitOutputs};
pub use parallel_apply::Workers;
pub use scatter::scatter;
pub use trace::{Event, Step, Trace};
