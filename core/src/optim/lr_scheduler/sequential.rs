//! `torch.optim.lr_scheduler.SequentialLR`: a warm-up, then another schedule.

use super::schedule::Schedule;
use crate::{Error, Result};

/// One schedule after the other. Each begins at its own epoch 0, from the optimizer's own rate.
/// `SequentialLR(schedulers, milestones)`
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
    /// The epochs in which the second, the third and so on begin.
    pub milestones: Vec<u64>,
}

impl Schedule for SequentialLr {
    fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: String, expected: &str| {
            Err(Error::Argument { what: what.into(), found, expected: expected.into() })
        };
        if self.schedules.len() != self.milestones.len() + 1 {
            let found = format!("{} beside {}", self.schedules.len(), self.milestones.len());
            return refuse("the number of schedules", found, "one more than that of milestones");
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
