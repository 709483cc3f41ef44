//! Learning rates that start low.

use super::group::GroupRates;
use super::schedule::{Epoch, Schedule, check_fraction, check_length};
use crate::{Result, check::check};
use serde::{Deserialize, Serialize};
use tch_parallel_base::options;

options! {
    /// Changes the learning rate linearly from one factor to another, and keeps it there.
    /// `LinearLR(start_factor, end_factor, total_iters)`
    ///
    /// The large batch of many ranks needs a large rate, at which the initial weights would diverge:
    /// hence a warm-up (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2).
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct LinearLr {
        /// The factor of the optimizer's rate in epoch 0; above 0 and at most 1.
        pub start_factor: f64 = 1.0 / 3.0,
        /// The final factor, from 0 to 1.
        pub end_factor: f64 = 1.0,
        /// The epoch in which it is reached.
        pub total_iters: u64 = 5,
    }
}

impl Schedule for LinearLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_positive_fraction("start_factor", self.start_factor)?;
        check_fraction("end_factor", self.end_factor)?;
        check_length("total_iters", self.total_iters)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let epoch = epoch.number();
        if epoch == 0 {
            group.lr *= self.start_factor;
        } else if epoch <= self.total_iters {
            let rise = self.end_factor - self.start_factor;
            let (total, before) = (self.total_iters as f64, (epoch - 1) as f64);
            group.lr *= 1.0 + rise / (total * self.start_factor + before * rise);
        }
        Ok(())
    }
}

options! {
    /// Multiplies the learning rate by a factor, and takes it back after some epochs. `ConstantLR(factor, total_iters)`
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct ConstantLr {
        /// The factor; above 0 and at most 1. PyTorch accepts 0, by which it divides in the end.
        pub factor: f64 = 1.0 / 3.0,
        /// The first epoch without the factor.
        pub total_iters: u64 = 5,
    }
}

impl Schedule for ConstantLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_length("total_iters", self.total_iters)?;
        check_positive_fraction("factor", self.factor)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        if epoch.number() == 0 {
            group.lr *= self.factor;
        } else if epoch.number() == self.total_iters {
            group.lr *= 1.0 / self.factor;
        }
        Ok(())
    }
}

/// Refuses a factor from which no other factor could lead back to the rate.
fn check_positive_fraction(what: &str, factor: f64) -> Result<()> {
    check(factor > 0.0 && factor <= 1.0, what, factor, "above 0 and at most 1")
}
