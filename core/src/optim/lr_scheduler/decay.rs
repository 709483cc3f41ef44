//! Learning-rate decay: in steps, exponential, or along a cosine.

use super::schedule::{Schedule, check_factor, check_length};
use crate::{Error, Result};
use std::f64::consts::PI;

/// Multiplies the learning rate by `gamma` every `step_size` epochs. `StepLR(step_size, gamma)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLr {
    /// The number of epochs between two reductions.
    pub step_size: u64,
    /// The factor of a reduction.
    pub gamma: f64,
}

impl StepLr {
    /// With PyTorch's default `gamma`, 0.1.
    pub fn new(step_size: u64) -> Self {
        StepLr { step_size, gamma: 0.1 }
    }
}

impl Schedule for StepLr {
    fn check(&self) -> Result<()> {
        check_length("step_size", self.step_size)?;
        check_factor("gamma", self.gamma)
    }

    fn first(&self, lr: f64) -> f64 {
        lr
    }

    fn next(&self, epoch: u64, lr: f64, _base_lr: f64) -> f64 {
        if epoch.is_multiple_of(self.step_size) { lr * self.gamma } else { lr }
    }
}

/// Multiplies the learning rate by `gamma` at each milestone. `MultiStepLR(milestones, gamma)`
#[derive(Debug, Clone, PartialEq)]
pub struct MultiStepLr {
    /// The epochs at which the rate is reduced, in any order. A duplicate counts twice.
    pub milestones: Vec<u64>,
    /// The factor of a reduction.
    pub gamma: f64,
}

impl MultiStepLr {
    /// With PyTorch's default `gamma`, 0.1.
    pub fn new(milestones: impl Into<Vec<u64>>) -> Self {
        MultiStepLr { milestones: milestones.into(), gamma: 0.1 }
    }

    fn at(&self, epoch: u64, lr: f64) -> f64 {
        match self.milestones.iter().filter(|&&milestone| milestone == epoch).count() {
            0 => lr,
            // Not powi, which multiplies in a different order.
            times => lr * self.gamma.powf(times as f64),
        }
    }
}

impl Schedule for MultiStepLr {
    fn check(&self) -> Result<()> {
        check_factor("gamma", self.gamma)
    }

    fn first(&self, lr: f64) -> f64 {
        self.at(0, lr)
    }

    fn next(&self, epoch: u64, lr: f64, _base_lr: f64) -> f64 {
        self.at(epoch, lr)
    }
}

/// Multiplies the learning rate by `gamma` in every epoch. `ExponentialLR(gamma)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialLr {
    /// The factor per epoch.
    pub gamma: f64,
}

impl Schedule for ExponentialLr {
    fn check(&self) -> Result<()> {
        check_factor("gamma", self.gamma)
    }

    fn first(&self, lr: f64) -> f64 {
        lr
    }

    fn next(&self, _epoch: u64, lr: f64, _base_lr: f64) -> f64 {
        lr * self.gamma
    }
}

/// Lowers the learning rate along half a cosine wave (Loshchilov and Hutter, "SGDR", 2016, without
/// restarts). After `t_max` epochs it rises again. `CosineAnnealingLR(T_max, eta_min)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineAnnealingLr {
    /// The epoch in which the rate is lowest: PyTorch's `T_max`.
    pub t_max: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl CosineAnnealingLr {
    /// With PyTorch's default `eta_min`, 0.
    pub fn new(t_max: u64) -> Self {
        CosineAnnealingLr { t_max, eta_min: 0.0 }
    }

    /// 1 plus the cosine at an epoch: 2 at the maximum, 0 at the minimum.
    fn height(&self, epoch: u64) -> f64 {
        1.0 + (PI * epoch as f64 / self.t_max as f64).cos()
    }
}

impl Schedule for CosineAnnealingLr {
    fn check(&self) -> Result<()> {
        if !self.eta_min.is_finite() || self.eta_min < 0.0 {
            return Err(Error::Argument {
                what: "eta_min".into(),
                found: self.eta_min.to_string(),
                expected: "a learning rate, not below 0".into(),
            });
        }
        check_length("t_max", self.t_max)
    }

    fn first(&self, lr: f64) -> f64 {
        lr
    }

    fn next(&self, epoch: u64, lr: f64, base_lr: f64) -> f64 {
        let Self { t_max, eta_min } = *self;
        // At the minimum the factor is 0, and no factor can raise the rate again.
        if epoch > t_max && (epoch - 1 - t_max).is_multiple_of(2 * t_max) {
            return lr + (base_lr - eta_min) * (1.0 - (PI / t_max as f64).cos()) / 2.0;
        }
        self.height(epoch) / self.height(epoch - 1) * (lr - eta_min) + eta_min
    }

    fn restart(&self, base_lr: f64) -> f64 {
        self.eta_min + (base_lr - self.eta_min) * self.height(0) / 2.0
    }
}
