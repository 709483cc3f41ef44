//! Learning-rate decay: in steps, exponential, polynomial, or along a cosine.

use super::group::GroupRates;
use super::schedule::{Epoch, Schedule, check_eta_min, check_factor, check_length};
use crate::Result;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use tch_parallel_base::options;

options! {
    /// Multiplies the learning rate by `gamma` every `step_size` epochs. `StepLR(step_size, gamma)`
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct StepLr {
        /// The number of epochs between two reductions.
        pub step_size: u64,
        /// The factor of a reduction.
        pub gamma: f64 = 0.1,
    }
    /// With PyTorch's default `gamma`, 0.1.
    pub fn new(step_size: u64);
}

impl Schedule for StepLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_length("step_size", self.step_size)?;
        check_factor("gamma", self.gamma)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        if epoch.number() > 0 && epoch.number().is_multiple_of(self.step_size) {
            group.lr *= self.gamma;
        }
        Ok(())
    }
}

options! {
    /// Multiplies the learning rate by `gamma` at each milestone. `MultiStepLR(milestones, gamma)`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MultiStepLr {
        /// The epochs at which the rate is reduced, in any order. A duplicate counts twice.
        pub milestones: Vec<u64>,
        /// The factor of a reduction.
        pub gamma: f64 = 0.1,
    }
    /// With PyTorch's default `gamma`, 0.1.
    pub fn new(milestones: impl Into<Vec<u64>>);
}

impl Schedule for MultiStepLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_factor("gamma", self.gamma)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let times = self.milestones.iter().filter(|&&at| at == epoch.number()).count();
        // Not powi, which multiplies in a different order.
        group.lr *= self.gamma.powf(times as f64);
        Ok(())
    }
}

/// Multiplies the learning rate by `gamma` in every epoch. `ExponentialLR(gamma)`
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExponentialLr {
    /// The factor per epoch.
    pub gamma: f64,
}

impl Schedule for ExponentialLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_factor("gamma", self.gamma)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        if epoch.number() > 0 {
            group.lr *= self.gamma;
        }
        Ok(())
    }
}

options! {
    /// Lowers the learning rate to 0 along a power of the epochs that are left. `PolynomialLR(total_iters, power)`
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct PolynomialLr {
        /// The epoch in which the rate reaches 0.
        pub total_iters: u64 = 5,
        /// The power: 1 for a straight line.
        pub power: f64 = 1.0,
    }
}

impl Schedule for PolynomialLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_length("total_iters", self.total_iters)?;
        check_factor("power", self.power)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let left = |epoch: u64| 1.0 - epoch as f64 / self.total_iters as f64;
        let epoch = epoch.number();
        if (1..=self.total_iters).contains(&epoch) {
            group.lr *= (left(epoch) / left(epoch - 1)).powf(self.power);
        }
        Ok(())
    }
}

options! {
    /// Lowers the learning rate along half a cosine wave (Loshchilov and Hutter, "SGDR", 2016,
    /// without restarts). After `t_max` epochs it rises again. `CosineAnnealingLR(T_max, eta_min)`
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct CosineAnnealingLr {
        /// The epoch in which the rate is lowest: PyTorch's `T_max`.
        #[serde(rename = "T_max")]
        pub t_max: u64,
        /// The lowest rate.
        pub eta_min: f64 = 0.0,
    }
    /// With PyTorch's default `eta_min`, 0.
    pub fn new(t_max: u64);
}

impl CosineAnnealingLr {
    /// 1 plus the cosine at an epoch: 2 at the maximum, 0 at the minimum.
    fn height(&self, epoch: u64) -> f64 {
        1.0 + (PI * epoch as f64 / self.t_max as f64).cos()
    }
}

impl Schedule for CosineAnnealingLr {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_eta_min(self.eta_min)?;
        check_length("t_max", self.t_max)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let Self { t_max, eta_min } = *self;
        let epoch = epoch.number();
        if epoch == 0 {
            return Ok(());
        }
        // At the minimum the factor is 0, and no factor can raise the rate again.
        if epoch > t_max && (epoch - 1 - t_max).is_multiple_of(2 * t_max) {
            let rise = 1.0 - (PI / t_max as f64).cos();
            group.lr += (group.base_lr() - eta_min) * rise / 2.0;
        } else {
            let factor = self.height(epoch) / self.height(epoch - 1);
            group.lr = factor * (group.lr - eta_min) + eta_min;
        }
        Ok(())
    }

    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        group.lr = self.eta_min + (group.base_lr() - self.eta_min) * self.height(0) / 2.0;
        Ok(())
    }
}
