//! `torch.optim.lr_scheduler.ExponentialLR`.

use super::check_factor;
use super::schedule::Schedule;
use crate::Result;

/// Multiplies the learning rate by `gamma` in every epoch. `ExponentialLR(gamma)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialLr {
    /// What it is multiplied by.
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
