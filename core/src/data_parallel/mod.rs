//! One process, several devices, a replica of the model on each: `torch.nn.parallel`.
//!
//! A step goes through the files in this order:
//!
//! | file | what happens |
//! |---|---|
//! | `scatter` | [`scatter()`]: a batch is divided along its first dimension |
//! | `replicate` | the original's variables are copied to the replica on every other device |
//! | `parallel_apply` | [`Workers`]: every replica runs on a thread of its own |
//! | `gather` | [`gather()`]: the outputs are concatenated on one device |
//! | `backward` | the way back: a slice of the output's gradient goes to each replica, and the replicas' gradients are summed into the original |
//!
//! The other files put these steps together:
//!
//! | file | what it holds |
//! |---|---|
//! | `replicas` | a model with its replicas, and the passes they make; [`ModuleGuard`], which gives access to the original |
//! | `dp` | [`DataParallel`]: all the steps |
//! | `model`, `criterion` | [`DataParallelModel`] and [`DataParallelCriterion`], which skip the gathering: each device computes the loss of its own outputs |
//! | `error_check_mutex` | the lock by which passes take turns, and a pass within a pass is refused |
//! | `trace`, `gpu_span` | [`Trace`]: what happened when, and how many bytes were copied |
//! | `coalesced` | variables and gradients between GPUs, in few large copies |

mod backward;
mod coalesced;
mod criterion;
mod dp;
mod error_check_mutex;
mod gather;
mod gpu_span;
mod model;
mod parallel_apply;
mod replicas;
mod replicate;
mod scatter;
mod trace;

pub use criterion::{DataParallelCriterion, Mean, ParallelLoss};
pub use dp::{DataParallel, DataParallelOptions};
pub use gather::gather;
pub use model::DataParallelModel;
pub use parallel_apply::Workers;
pub use replicas::{ModuleGuard, SplitOutputs};
pub use scatter::scatter;
pub use trace::{Event, Step, Trace};
