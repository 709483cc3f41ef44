//! Learning rates that change during training: `torch.optim.lr_scheduler`, with the same values to the last bit.
//!
//! A schedule ([`StepLr`], [`CosineAnnealingLr`] …) is a formula, and the [`LrScheduler`] applies it to an optimizer:
//!
//! ```
//! use tch::{Device, nn::VarStore};
//! use tch_parallel::optim::lr_scheduler::{LrScheduler, LrSchedulerState, Scheduler, StepLr};
//! use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
//!
//! let vs = VarStore::new(Device::Cpu);
//! let weight = vs.root().zeros("weight", &[3]);
//! let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
//! let mut scheduler = LrScheduler::new(&mut optimizer, StepLr::new(30))?;
//! for _epoch in 0..30 {
//!     // … the steps of an epoch …
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert_eq!(optimizer.lr(), 0.1 * 0.1);
//! let state: LrSchedulerState = scheduler.state_dict()?; // to be saved with the optimizer's
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! A schedule sets every parameter group, each from its own initial rate. Settings for which PyTorch
//! takes a list, such as `max_lr`, are one value [`PerGroup`] or one for all. [`OneCycleLr`] and
//! [`CyclicLr`] also set the momentum. [`ReduceLrOnPlateau`] is no formula: it steps by a metric.
//!
//! Settings that hold neither functions nor other schedules can be read and written with serde, under PyTorch's names.
//!
//! | file | what it holds |
//! |---|---|
//! | `schedule` | [`Schedule`], and [`Epoch`], how far one is |
//! | `group` | [`GroupRates`], what a schedule sets of a parameter group, and [`PerGroup`] |
//! | `lambda` | [`LambdaLr`] and [`MultiplicativeLr`], for a formula of your own |
//! | `decay` | rates that fall: [`StepLr`], [`MultiStepLr`], [`ExponentialLr`], [`PolynomialLr`], [`CosineAnnealingLr`] |
//! | `warm_restarts` | [`CosineAnnealingWarmRestarts`] |
//! | `warm_up` | rates that start low: [`LinearLr`], [`ConstantLr`] |
//! | `one_cycle`, `cyclic` | [`OneCycleLr`] and [`CyclicLr`], which move the momentum too |
//! | `swa` | [`SwaLr`], for stochastic weight averaging |
//! | `combined` | [`SequentialLr`] and [`ChainedScheduler`], made of other schedules |
//! | `scheduler` | [`LrScheduler`], which applies a schedule |
//! | `plateau` | [`ReduceLrOnPlateau`], which steps by a metric |
//! | `state` | [`Scheduler`], what both have in common, and the state that is saved |

mod combined;
mod cyclic;
mod decay;
mod group;
mod lambda;
mod one_cycle;
mod plateau;
mod schedule;
mod scheduler;
mod state;
mod swa;
mod warm_restarts;
mod warm_up;

pub use combined::{ChainedScheduler, SequentialLr};
pub use cyclic::{CyclicLr, CyclicMode, ScaleFn};
pub use decay::{CosineAnnealingLr, ExponentialLr, MultiStepLr, PolynomialLr, StepLr};
pub use group::{GroupRates, PerGroup};
pub use lambda::{LambdaLr, LrLambda, MultiplicativeLr};
pub use one_cycle::{AnnealStrategy, OneCycleLr};
pub use plateau::{PlateauMode, ReduceLrOnPlateau, ReduceLrOnPlateauOptions, ThresholdMode};
pub use schedule::{Epoch, Schedule};
pub use scheduler::LrScheduler;
pub use state::{LrSchedulerState, Scheduler};
pub use swa::SwaLr;
pub use warm_restarts::CosineAnnealingWarmRestarts;
pub use warm_up::{ConstantLr, LinearLr};
