//! Schedules made of others: one after the other, or several at once.

use super::{group::GroupRates, schedule::Epoch, schedule::Schedule};
use crate::{Result, check::check};

/// Several schedules in sequence. Each starts at its own epoch 0, from the optimizer's initial
/// rate. `SequentialLR(schedulers, milestones)`
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{CosineAnnealingLr, LinearLr, LrScheduler, SequentialLr};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 0.1, ..Default::default() })?;
///
/// let warm_up = LinearLr { start_factor: 0.01, total_iters: 5, ..Default::default() };
/// let schedule = SequentialLr {
///     schedules: vec![Box::new(warm_up), Box::new(CosineAnnealingLr::new(85))],
///     milestones: vec![5],
/// };
/// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
/// assert_eq!(optimizer.lr(), 0.1 * 0.01);
/// for _epoch in 0..5 {
///     scheduler.step(&mut optimizer)?;
/// }
/// assert_eq!(optimizer.lr(), 0.1); // warmed up; from here on along the cosine
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct SequentialLr {
    /// The schedules, in order. [`OneCycleLr`](super::OneCycleLr) can only be the first.
    pub schedules: Vec<Box<dyn Schedule>>,
    /// The epochs in which the second, the third and later schedules start.
    pub milestones: Vec<u64>,
}

impl Schedule for SequentialLr {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        let (schedules, milestones) = (self.schedules.len(), self.milestones.len());
        let found = format_args!("{schedules}, with {milestones} milestones");
        let expected = "one more than the number of milestones";
        check(schedules == milestones + 1, "the number of schedules", found, expected)?;
        let ascending = [0].iter().chain(&self.milestones).is_sorted_by(|a, b| a < b);
        let found = format_args!("{:?}", self.milestones);
        check(ascending, "milestones", found, "epochs from 1 on, each after the one before")?;
        check_all(&self.schedules, groups)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let number = epoch.number();
        if number == 0 {
            // PyTorch creates all schedulers, which may set the momentum, and starts the first again.
            start_all(&self.schedules, group)?;
            group.lr = group.base_lr();
        }
        let passed = self.milestones.partition_point(|&milestone| milestone <= number);
        let schedule = &self.schedules[passed];
        match passed.checked_sub(1).map(|last| number - self.milestones[last]) {
            Some(0) => schedule.restart(group),
            Some(since) => schedule.step(since.into(), group),
            None => schedule.step(epoch, group),
        }
    }

    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        self.schedules[0].restart(group)
    }
}

/// Several schedules at once: each changes the rate that the one before it has set. `ChainedScheduler(schedulers)`
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{ChainedScheduler, ConstantLr, ExponentialLr, LrScheduler};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 1.0, ..Default::default() })?;
///
/// let low = ConstantLr { factor: 0.5, total_iters: 2 };
/// let decay = ExponentialLr { gamma: 0.5 };
/// let schedule = ChainedScheduler { schedules: vec![Box::new(low), Box::new(decay)] };
/// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
/// let mut rates = Vec::new();
/// for _epoch in 0..4 {
///     rates.push(optimizer.lr());
///     scheduler.step(&mut optimizer)?;
/// }
/// assert_eq!(rates, [0.5, 0.25, 0.25, 0.125]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ChainedScheduler {
    /// The schedules, in order. Only some multiply the rate; those that compute it from the epoch
    /// (such as [`LambdaLr`](super::LambdaLr) and [`CyclicLr`](super::CyclicLr)) undo what those
    /// before them did. [`OneCycleLr`](super::OneCycleLr) can only be the first.
    pub schedules: Vec<Box<dyn Schedule>>,
}

impl Schedule for ChainedScheduler {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        check(!self.schedules.is_empty(), "the number of schedules", 0, "at least 1")?;
        check_all(&self.schedules, groups)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        match epoch.number() {
            0 => start_all(&self.schedules, group),
            _ => self.schedules.iter().try_for_each(|schedule| schedule.step(epoch, group)),
        }
    }
}

/// Starts a schedule as PyTorch creates a scheduler: an optimizer's first notes the rate that all others start from.
pub(super) fn start(schedule: &dyn Schedule, group: &mut GroupRates) -> Result<()> {
    let lr = group.lr;
    schedule.step(Epoch::default(), group)?;
    group.initial_lr.get_or_insert(lr);
    Ok(())
}

fn start_all(schedules: &[Box<dyn Schedule>], group: &mut GroupRates) -> Result<()> {
    schedules.iter().try_for_each(|schedule| start(schedule, group))
}

/// Refuses schedules that refuse their settings, and one that would change the rate from which earlier ones started.
fn check_all(schedules: &[Box<dyn Schedule>], groups: &[GroupRates]) -> Result<()> {
    schedules.iter().try_for_each(|schedule| schedule.check(groups))?;
    let expected = "a list that begins with it, because it sets the rate that others start from";
    for mut group in groups.iter().copied() {
        let mut initial_lr = None;
        for schedule in schedules {
            start(schedule, &mut group)?;
            let same = *initial_lr.get_or_insert(group.initial_lr) == group.initial_lr;
            let found = format_args!("a list with {schedule:?} after others");
            check(same, "the schedules", found, expected)?;
        }
    }
    Ok(())
}
