//! `torch.optim.lr_scheduler.StepLR`.

use super::schedule::Schedule;
use super::{check_factor, check_length};
use crate::Result;

/// Multiplies the learning rate by `gamma` every `step_size` epochs. `StepLR(step_size, gamma)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLr {
    /// After how many epochs the rate falls each time.
    pub step_size: u64,
    /// What it is multiplied by then.
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
