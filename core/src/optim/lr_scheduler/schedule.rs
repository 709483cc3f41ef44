//! Formulas for the learning rate (`get_lr` of PyTorch's schedulers): the trait, and a formula
//! given as a function.

use crate::{Error, Result};
use std::fmt::{self, Debug};

/// How the learning rate of an epoch is computed from that of the previous one.
///
/// PyTorch's schedulers multiply the current rate instead of computing it from the epoch number.
/// Mathematically that is the same, but floating-point rounding differs, so this trait does as
/// PyTorch does.
///
/// An epoch is the time between two calls of [`LrScheduler::step`](super::LrScheduler::step): one
/// batch if you call it after each.
pub trait Schedule: Debug + Send {
    /// Refuses settings that no run could use.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument), naming the setting.
    fn check(&self) -> Result<()>;

    /// The rate in epoch 0 if the optimizer was created with `lr`.
    fn first(&self, lr: f64) -> f64;

    /// The rate in `epoch`, from 1 on, if it was `lr` in the previous epoch and the optimizer was
    /// created with `base_lr`.
    fn next(&self, epoch: u64, lr: f64, base_lr: f64) -> f64;

    /// The rate in epoch 0 of a schedule that follows another one. PyTorch computes it with a
    /// closed form, which rounds differently.
    fn restart(&self, base_lr: f64) -> f64 {
        self.first(base_lr)
    }
}

/// For a schedule that is chosen at run time.
impl Schedule for Box<dyn Schedule> {
    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn first(&self, lr: f64) -> f64 {
        (**self).first(lr)
    }

    fn next(&self, epoch: u64, lr: f64, base_lr: f64) -> f64 {
        (**self).next(epoch, lr, base_lr)
    }

    fn restart(&self, base_lr: f64) -> f64 {
        (**self).restart(base_lr)
    }
}

/// Multiplies the optimizer's initial rate by a function of the epoch. `LambdaLR(lr_lambda)`
///
/// As in PyTorch, the function is not part of the scheduler's state: make sure to resume with the
/// same one. If you implement [`Schedule`] instead, its settings are compared.
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{LambdaLr, LrScheduler};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let vs = tch::nn::VarStore::new(tch::Device::Cpu);
/// # let weight = vs.root().zeros("weight", &[3]);
/// # let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() })?;
///
/// // A warm-up of four epochs, then in proportion to 1 / sqrt(n).
/// let factor = |epoch: u64| {
///     let n = (epoch + 1) as f64;
///     n.min(8.0 / n.sqrt()) / 4.0
/// };
/// let mut scheduler = LrScheduler::new(&mut optimizer, LambdaLr::new(factor))?;
/// assert_eq!(optimizer.lr(), 0.5 * 0.25);
/// scheduler.step(&mut optimizer);
/// assert_eq!(optimizer.lr(), 0.5 * 0.5);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub struct LambdaLr {
    lr_lambda: Box<dyn Fn(u64) -> f64 + Send>,
}

impl LambdaLr {
    /// A schedule with the rate `lr_lambda(epoch)` times the optimizer's initial rate; epochs count
    /// from 0.
    pub fn new(lr_lambda: impl Fn(u64) -> f64 + Send + 'static) -> Self {
        LambdaLr { lr_lambda: Box::new(lr_lambda) }
    }
}

/// Without the function, which cannot be shown as text.
impl fmt::Debug for LambdaLr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLr").finish_non_exhaustive()
    }
}

impl Schedule for LambdaLr {
    /// Only for epoch 0, because any other may follow.
    fn check(&self) -> Result<()> {
        check_factor("lr_lambda(0)", (self.lr_lambda)(0))
    }

    fn first(&self, lr: f64) -> f64 {
        lr * (self.lr_lambda)(0)
    }

    fn next(&self, epoch: u64, _lr: f64, base_lr: f64) -> f64 {
        base_lr * (self.lr_lambda)(epoch)
    }
}

/// Refuses to divide by 0.
pub(super) fn check_length(what: &str, epochs: u64) -> Result<()> {
    if epochs > 0 {
        return Ok(());
    }
    Err(Error::Argument {
        what: what.into(),
        found: "0".into(),
        expected: "1 epoch or more".into(),
    })
}

/// Refuses a factor that would make the rate negative, infinite or NaN.
pub(super) fn check_factor(what: &str, factor: f64) -> Result<()> {
    if factor.is_finite() && factor >= 0.0 {
        return Ok(());
    }
    Err(Error::Argument {
        what: what.into(),
        found: factor.to_string(),
        expected: "a number not below 0".into(),
    })
}
