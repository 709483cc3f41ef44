//! Applies a schedule to an optimizer: PyTorch's base class `LRScheduler`.

use super::schedule::{Epoch, Schedule, check_factor};
use super::state::{LrSchedulerState, Scheduler};
use super::{combined::start, group::GroupRates, warm_restarts::CosineAnnealingWarmRestarts};
use crate::{Error, Optimizer, Result};
use serde::{Deserialize, Serialize};

/// A schedule, how far it is, and the learning rates that it has set. PyTorch's base class
/// `LRScheduler`; there is an example in the [module](super).
#[derive(Debug)]
pub struct LrScheduler<S = Box<dyn Schedule>> {
    schedule: S,
    state: State,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    last_epoch: Epoch,
    /// The rates that the groups started from.
    base_lrs: Vec<f64>,
    last_lr: Vec<f64>,
}

impl<S: Schedule> LrScheduler<S> {
    /// Starts the schedule: sets the learning rate of each parameter group to that of epoch 0, which may differ from
    /// the rate that the optimizer was created with. An optimizer can have several schedulers: all start from that rate
    /// ([`ParamGroup::initial_lr`]), and each changes what the one before has set.
    ///
    /// [`ParamGroup::initial_lr`]: crate::ParamGroup::initial_lr
    ///
    /// # Errors
    /// [`Error::Argument`] for settings that no run could use.
    pub fn new(optimizer: &mut dyn Optimizer, schedule: S) -> Result<Self> {
        let mut groups = GroupRates::all(optimizer, &[]);
        schedule.check(&groups)?;
        groups.iter_mut().try_for_each(|group| start(&schedule, group))?;
        let mut scheduler = LrScheduler { schedule, state: State::default() };
        scheduler.set(optimizer, Epoch::default(), &groups)?;
        for (rates, group) in groups.iter().zip(optimizer.param_groups_mut()) {
            // One schedule, OneCycleLR, replaces the rate from which later ones start.
            group.initial_lr = rates.initial_lr;
        }
        Ok(scheduler)
    }

    /// Advances to the next epoch and sets the learning rates for its steps. Call this after the
    /// optimizer's steps of an epoch, or after every step if the schedule counts steps.
    ///
    /// Steps that `GradScaler` skipped count too, as in PyTorch. If a parameter group was added to the optimizer, it
    /// follows the schedule from the rate that it has.
    ///
    /// # Errors
    /// [`Error::Argument`] after the schedule's last epoch, for a rate that is not finite, and for an added group if
    /// the settings are lists without a value for it. The optimizer is then unchanged.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let Epoch { origin, steps } = self.state.last_epoch;
        self.advance(optimizer, Epoch { origin, steps: steps + 1 })
    }

    /// The number of the current epoch: PyTorch's `last_epoch`.
    pub fn last_epoch(&self) -> u64 {
        self.state.last_epoch.number()
    }

    fn advance(&mut self, optimizer: &mut dyn Optimizer, epoch: Epoch) -> Result<()> {
        let mut groups = GroupRates::all(optimizer, &self.state.base_lrs);
        if groups.len() != self.state.base_lrs.len() {
            self.schedule.check(&groups)?;
        }
        for group in &mut groups {
            group.initial_lr.get_or_insert(group.lr);
            self.schedule.step(epoch, group)?;
        }
        self.set(optimizer, epoch, &groups)
    }

    fn set(
        &mut self,
        optimizer: &mut dyn Optimizer,
        epoch: Epoch,
        groups: &[GroupRates],
    ) -> Result<()> {
        if let Some(group) = groups.iter().find(|group| !group.lr.is_finite()) {
            let what = format!("the rate of parameter group {} in epoch", group.index);
            let what = format!("{what} {} of {:?}", epoch.number(), self.schedule);
            return Err(Error::argument(what, group.lr, "a finite number"));
        }
        GroupRates::apply(groups, optimizer);
        let base_lrs = groups.iter().map(GroupRates::base_lr).collect();
        let last_lr = groups.iter().map(|group| group.lr).collect();
        self.state = State { last_epoch: epoch, base_lrs, last_lr };
        Ok(())
    }
}

impl LrScheduler<CosineAnnealingWarmRestarts> {
    /// Sets the schedule to any epoch, forward or back, in the middle of one too:
    /// `step(epoch + batch / batches)`. Later calls of [`step`](Self::step) go on from there.
    ///
    /// PyTorch's schedulers all accept an epoch, but only for this one that is not deprecated.
    ///
    /// ```
    /// use tch_parallel::optim::lr_scheduler::{CosineAnnealingWarmRestarts, LrScheduler};
    /// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
    /// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 1.0, ..Default::default() })?;
    ///
    /// let schedule = CosineAnnealingWarmRestarts::new(2);
    /// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
    /// let (epochs, batches) = (4, 100);
    /// for epoch in 0..epochs {
    ///     for batch in 0..batches {
    ///         // … a step …
    ///         let epoch = epoch as f64 + batch as f64 / batches as f64;
    ///         scheduler.step_to(&mut optimizer, epoch)?;
    ///     }
    /// }
    /// assert!(optimizer.lr() < 1e-3); // just before the second restart
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for an epoch that is negative or not finite.
    pub fn step_to(&mut self, optimizer: &mut dyn Optimizer, epoch: f64) -> Result<()> {
        check_factor("epoch", epoch)?;
        self.advance(optimizer, Epoch { origin: epoch, steps: 0 })
    }
}

impl<S: Schedule> Scheduler for LrScheduler<S> {
    fn last_lr(&self) -> &[f64] {
        &self.state.last_lr
    }

    fn state_dict(&self) -> Result<LrSchedulerState> {
        LrSchedulerState::new(&self.schedule, &self.state)
    }

    fn load_state_dict(&mut self, state: &LrSchedulerState) -> Result<()> {
        self.state = state.of(&self.schedule)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
