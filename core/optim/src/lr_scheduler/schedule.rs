//! What a schedule is: how it sets a parameter group's rate, epoch after epoch (`get_lr` of PyTorch's schedulers).

use super::group::GroupRates;
use crate::{Result, check::check};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// How the learning rate of an epoch, and the momentum if it is scheduled too, follow from those of the previous epoch.
///
/// PyTorch's schedulers mostly multiply the current rate instead of computing it from the epoch number. Mathematically
/// that is the same, but floating-point rounding differs, so this trait does as PyTorch does.
///
/// An epoch lies between two calls of [`LrScheduler::step`](super::LrScheduler::step): a batch if called after each.
pub trait Schedule: Debug + Send {
    /// Refuses settings that no run with these parameter groups could use.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument), naming the setting.
    fn check(&self, groups: &[GroupRates]) -> Result<()>;

    /// Sets a group's rate in `epoch`. The group has the values of the previous epoch; in epoch 0,
    /// those of the optimizer when the schedule is created.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an epoch after the schedule's last.
    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()>;

    /// Sets a group's rate in epoch 0 of a schedule that follows another one. PyTorch computes it
    /// with a closed form, which may round differently.
    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        group.lr = group.base_lr();
        self.step(Epoch::default(), group)
    }
}

/// For a schedule that is chosen at run time.
impl Schedule for Box<dyn Schedule> {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        (**self).check(groups)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        (**self).step(epoch, group)
    }

    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        (**self).restart(group)
    }
}

/// How far a schedule is: the number of steps since the epoch it was set to, which is 0 unless
/// [`step_to`](super::LrScheduler::step_to) set another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    pub(super) origin: f64,
    pub(super) steps: u64,
}

impl Epoch {
    /// The number of the epoch: PyTorch's `last_epoch`.
    pub fn number(self) -> u64 {
        self.origin as u64 + self.steps
    }
}

impl From<u64> for Epoch {
    fn from(steps: u64) -> Self {
        Epoch { origin: 0.0, steps }
    }
}

/// Refuses to divide by 0.
pub(super) fn check_length(what: &str, epochs: u64) -> Result<()> {
    check(epochs > 0, what, epochs, "1 epoch or more")
}

/// Refuses a factor that would make the rate negative, infinite or NaN.
pub(super) fn check_factor(what: &str, factor: f64) -> Result<()> {
    check(factor.is_finite() && factor >= 0.0, what, factor, "a number not below 0")
}

/// Refuses a factor that would raise the rate or change its sign.
pub(super) fn check_fraction(what: &str, factor: f64) -> Result<()> {
    check((0.0..=1.0).contains(&factor), what, factor, "from 0 to 1")
}

pub(super) fn check_eta_min(eta_min: f64) -> Result<()> {
    check(eta_min.is_finite() && eta_min >= 0.0, "eta_min", eta_min, "a learning rate, not below 0")
}
