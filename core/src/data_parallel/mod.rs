//! One process, several devices, a replica of the model on each: `torch.nn.parallel`.
//!
//! A step goes through the files in this order:
//!
//! | file | what happens |
//! |---|---|
//! | `scatter` | [`scatter()`]: a batch is divided along its first dimension |
//! | `replicate` | the model is copied to every device but the first, which has the original |
//! | `parallel_apply` | [`Workers`]: every replica runs on a thread of its own |
//! | `gather` | [`gather()`]: the outputs are put together on one device |
//! | `backward` | the other way round: a slice of the output's gradient goes to each replica, and the replicas' gradients are summed into the original |
//!
//! `dp` holds [`DataParallel`], which does all of it. `model` and `criterion` hold
//! [`DataParallelModel`] and [`DataParallelCriterion`], which leave out the gathering: the loss is
//! computed where the outputs are. `trace` holds [`Trace`], which records what happened when, and
//! what was copied; `module_guard` the [`ModuleGuard`] by which one looks at the original.

mod backward;
mod criterion;
mod dp;
mod gather;
mod model;
mod module_guard;
mod parallel_apply;
mod replicate;
mod scatter;
mod trace;

pub use criterion::{DataParallelCriterion, Mean, ParallelLoss};
pub use dp::{DataParallel, DataParallelOptions};
pub use gather::gather;
pub use model::{DataParallelModel, SplitOutputs};
pub use module_guard::ModuleGuard;
pub use parallel_apply::Workers;
pub use scatter::scatter;
pub use trace::{Event, Step, Trace};
