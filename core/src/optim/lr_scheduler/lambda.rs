//! `torch.optim.lr_scheduler.LambdaLR`: a schedule of your own.

use super::check_factor;
use super::schedule::Schedule;
use crate::Result;
use std::fmt;

/// Multiplies the optimizer's own rate by a factor that a function gives for each epoch.
/// `LambdaLR(lr_lambda)`
///
/// As in PyTorch, the function is not part of the scheduler's state: only whoever resumes can see to
/// it that it is the same. A [`Schedule`] of your own is compared with its settings.
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
    /// A schedule whose rate in an epoch, counted from 0, is `lr_lambda(epoch)` times that which the
    /// optimizer was made with.
    pub fn new(lr_lambda: impl Fn(u64) -> f64 + Send + 'static) -> Self {
        LambdaLr { lr_lambda: Box::new(lr_lambda) }
    }
}

/// Without the function, which has no text that another run would know it by.
impl fmt::Debug for LambdaLr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLr").finish_non_exhaustive()
    }
}

impl Schedule for LambdaLr {
    /// In epoch 0 only: the others are not known.
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
