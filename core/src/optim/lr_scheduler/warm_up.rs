//! Warm-up, and the schedule that follows it.

use super::schedule::{Schedule, check_length};
use crate::{Error, Result};

/// Changes the learning rate linearly from one factor to another, and keeps it there.
/// `LinearLR(start_factor, end_factor, total_iters)`
///
/// The large batch of many ranks needs a large rate, at which the initial weights would diverge:
/// hence a warm-up (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearLr {
    /// The factor of the optimizer's rate in epoch 0; above 0 and at most 1.
    pub start_factor: f64,
    /// The final factor, from 0 to 1.
    pub end_factor: f64,
    /// The epoch in which it is reached.
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

/// Several schedules in sequence. Each starts at its own epoch 0, from the optimizer's initial
/// rate. `SequentialLR(schedulers, milestones)`
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{CosineAnnealingLr, LinearLr, LrScheduler, SequentialLr};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let vs = tch::nn::VarStore::new(tch::Device::Cpu);
/// # let weight = vs.root().zeros("weight", &[3]);
/// # let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
///
/// let warm_up = LinearLr { start_factor: 0.01, total_iters: 5, ..Default::default() };
/// let schedule = SequentialLr {
///     schedules: vec![Box::new(warm_up), Box::new(CosineAnnealingLr::new(85))],
///     milestones: vec![5],
/// };
/// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
/// assert_eq!(optimizer.lr(), 0.1 * 0.01);
/// for _epoch in 0..5 {
///     scheduler.step(&mut optimizer);
/// }
/// assert_eq!(optimizer.lr(), 0.1); // warmed up; from here on along the cosine
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct SequentialLr {
    /// The schedules, in order.
    pub schedules: Vec<Box<dyn Schedule>>,
    /// The epochs in which the second, the third and later schedules start.
    pub milestones: Vec<u64>,
}

impl Schedule for SequentialLr {
    fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: String, expected: &str| {
            Err(Error::Argument { what: what.into(), found, expected: expected.into() })
        };
        if self.schedules.len() != self.milestones.len() + 1 {
            let found =
                format!("{}, with {} milestones", self.schedules.len(), self.milestones.len());
            return refuse(
                "the number of schedules",
                found,
                "one more than the number of milestones",
            );
        }
        let after = [0].iter().chain(&self.milestones);
        if after.zip(&self.milestones).any(|(before, milestone)| milestone <= before) {
            let found = format!("{:?}", self.milestones);
            return refuse("milestones", found, "epochs from 1 on, each after the one before");
        }
        self.schedules.iter().try_for_each(|schedule| schedule.check())
    }

    fn first(&self, lr: f64) -> f64 {
        self.schedules[0].first(lr)
    }

    fn next(&self, epoch: u64, lr: f64, base_lr: f64) -> f64 {
        let passed = self.milestones.partition_point(|&milestone| milestone <= epoch);
        let schedule = &self.schedules[passed];
        match passed.checked_sub(1).map(|last| epoch - self.milestones[last]) {
            Some(0) => schedule.restart(base_lr),
            Some(since) => schedule.next(since, lr, base_lr),
            None => schedule.next(epoch, lr, base_lr),
        }
    }

    fn restart(&self, base_lr: f64) -> f64 {
        self.schedules[0].restart(base_lr)
    }
}
