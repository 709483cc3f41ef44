//! A formula for the learning rate: `get_lr` of PyTorch's schedulers.

use crate::Result;
use std::fmt::Debug;

/// How the learning rate of one epoch follows from that of the epoch before.
///
/// PyTorch's schedulers multiply the present rate instead of computing it from the epoch's number.
/// Mathematically that is the same; in floating-point numbers it is not, so here it is done alike.
///
/// An epoch is what passes between two calls of [`LrScheduler::step`](super::LrScheduler::step): one
/// batch, if you call it after each.
pub trait Schedule: Debug + Send {
    /// Refuses settings that no run could work with.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) naming the setting.
    fn check(&self) -> Result<()>;

    /// The rate in epoch 0, where the optimizer was made with `lr`.
    fn first(&self, lr: f64) -> f64;

    /// The rate in `epoch`, from 1 on, where it was `lr` in the epoch before and the optimizer was
    /// made with `base_lr`.
    fn next(&self, epoch: u64, lr: f64, base_lr: f64) -> f64;

    /// The rate in epoch 0 of a schedule that follows upon another: PyTorch computes it from a closed
    /// form, which rounds otherwise.
    fn restart(&self, base_lr: f64) -> f64 {
        self.first(base_lr)
    }
}

/// For a choice that is made at run time.
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
