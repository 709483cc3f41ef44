//! Learning rates that change as the training goes on: `torch.optim.lr_scheduler`, with its values
//! to the last bit.
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

mod cosine_annealing;
mod exponential;
mod lambda;
mod linear;
mod multi_step;
mod schedule;
mod scheduler;
mod sequential;
mod step;

pub use cosine_annealing::CosineAnnealingLr;
pub use exponential::ExponentialLr;
pub use lambda::LambdaLr;
pub use linear::LinearLr;
pub use multi_step::MultiStepLr;
pub use schedule::Schedule;
pub use scheduler::{LrScheduler, LrSchedulerState};
pub use sequential::SequentialLr;
pub use step::StepLr;

use crate::{Error, Result};

/// Refuses to divide by 0.
fn check_length(what: &str, epochs: u64) -> Result<()> {
    if epochs > 0 {
        return Ok(());
    }
    Err(Error::Argument {
        what: what.into(),
        found: "0".into(),
        expected: "1 epoch or more".into(),
    })
}

/// Refuses what would make the rate negative, or no number.
fn check_factor(what: &str, factor: f64) -> Result<()> {
    if factor.is_finite() && factor >= 0.0 {
        return Ok(());
    }
    Err(Error::Argument {
        what: what.into(),
        found: factor.to_string(),
        expected: "a number not below 0".into(),
    })
}
