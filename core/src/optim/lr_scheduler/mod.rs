//! Learning rates that change during training: `torch.optim.lr_scheduler`, with the same values to
//! the last bit.
//!
//! A schedule ([`StepLr`], [`CosineAnnealingLr`] …) is a formula, and the [`LrScheduler`] applies it
//! to an optimizer:
//!
//! ```
//! use tch::{Device, nn::VarStore};
//! use tch_parallel::optim::lr_scheduler::{LrScheduler, StepLr};
//! use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
//!
//! let vs = VarStore::new(Device::Cpu);
//! let weight = vs.root().zeros("weight", &[3]);
//! let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
//! let mut scheduler = LrScheduler::new(&mut optimizer, StepLr::new(30))?;
//! for _epoch in 0..30 {
//!     // … the steps of an epoch …
//!     scheduler.step(&mut optimizer);
//! }
//! assert_eq!(optimizer.lr(), 0.1 * 0.1);
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `schedule` | [`Schedule`], and [`LambdaLr`] for a formula of your own |
//! | `decay` | rates that fall: [`StepLr`], [`MultiStepLr`], [`ExponentialLr`], [`CosineAnnealingLr`] |
//! | `warm_up` | [`LinearLr`], and [`SequentialLr`] for the schedule that follows it |
//! | `scheduler` | [`LrScheduler`], which applies a schedule, and its state |

mod decay;
mod schedule;
mod scheduler;
mod warm_up;

pub use decay::{CosineAnnealingLr, ExponentialLr, MultiStepLr, StepLr};
pub use schedule::{LambdaLr, Schedule};
pub use scheduler::{LrScheduler, LrSchedulerState};
pub use warm_up::{LinearLr, SequentialLr};
