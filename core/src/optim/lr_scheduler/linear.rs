//! `torch.optim.lr_scheduler.LinearLR`, mostly used to warm up.

use super::check_length;
use super::schedule::Schedule;
use crate::{Error, Result};

/// Moves the learning rate in equal steps from one share of it to another, and leaves it there.
/// `LinearLR(start_factor, end_factor, total_iters)`
///
/// A large batch, as many ranks have together, wants a large rate, which the first weights do not
/// stand: hence a warm-up (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearLr {
    /// The share of the optimizer's rate in epoch 0; above 0 and at most 1.
    pub start_factor: f64,
    /// The share at the end; from 0 to 1.
    pub end_factor: f64,
    /// In which epoch the end is reached.
    pub total_iters: u64,
}

impl Default for LinearLr {
    fn default() -> Self {
        LinearLr { start_factor: 1.0 / 3.0, end_factor: 1.0, total_iters: 5 }
    }
}

impl Schedule for LinearLr {
    fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: f64, expected: &str| {
            Err(Error::Argument {
                what: what.into(),
                found: found.to_string(),
                expected: expected.into(),
            })
        };
        if !(self.start_factor > 0.0 && self.start_factor <= 1.0) {
            return refuse("start_factor", self.start_factor, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.end_factor) {
            return refuse("end_factor", self.end_factor, "from 0 to 1");
        }
        check_length("total_iters", self.total_iters)
    }

    fn first(&self, lr: f64) -> f64 {
        lr * self.start_factor
    }

    fn next(&self, epoch: u64, lr: f64, _base_lr: f64) -> f64 {
        if epoch > self.total_iters {
            return lr;
        }
        let rise = self.end_factor - self.start_factor;
        let (total, before) = (self.total_iters as f64, (epoch - 1) as f64);
        lr * (1.0 + rise / (total * self.start_factor + before * rise))
    }
}
