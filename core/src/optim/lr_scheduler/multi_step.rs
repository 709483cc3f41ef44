//! `torch.optim.lr_scheduler.MultiStepLR`.

use super::check_factor;
use super::schedule::Schedule;
use crate::Result;

/// Multiplies the learning rate by `gamma` at each of some epochs. `MultiStepLR(milestones, gamma)`
#[derive(Debug, Clone, PartialEq)]
pub struct MultiStepLr {
    /// The epochs from which on the rate is lower, in any order. One that is given twice counts
    /// twice.
    pub milestones: Vec<u64>,
    /// What the rate is multiplied by there.
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
            // Not powi, which multiplies in an order of its own.
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
