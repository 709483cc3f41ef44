//! What a schedule sees and sets of a parameter group, and settings that may differ from group to group.

use crate::{Optimizer, Result, check::check};
use serde::{Deserialize, Serialize};

/// What a [`Schedule`](super::Schedule) sees and sets of one parameter group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupRates {
    /// The group's position in the optimizer: 0 for the first.
    pub index: usize,
    /// The learning rate.
    pub lr: f64,
    /// SGD's momentum, or the first of Adam's betas. None if the optimizer has neither.
    pub momentum: Option<f64>,
    /// The rate that the optimizer was created with, or that OneCycleLR or CyclicLR has put in its
    /// place. None until the first schedule has started.
    pub initial_lr: Option<f64>,
}

impl GroupRates {
    /// The rate that a schedule starts from: the optimizer's at its creation, whatever other schedules made of it.
    pub fn base_lr(&self) -> f64 {
        self.initial_lr.unwrap_or(self.lr)
    }

    /// The rates of all groups. `base_lrs` are those from which a schedule has started, if it has; a group may be new.
    pub(super) fn all(optimizer: &dyn Optimizer, base_lrs: &[f64]) -> Vec<Self> {
        let groups = optimizer.param_groups().into_iter().enumerate();
        let rates = groups.map(|(index, group)| GroupRates {
            index,
            lr: group.options.lr(),
            momentum: group.options.momentum(),
            initial_lr: base_lrs.get(index).copied().or(group.initial_lr),
        });
        rates.collect()
    }

    pub(super) fn apply(groups: &[Self], optimizer: &mut dyn Optimizer) {
        for (rates, group) in groups.iter().zip(optimizer.param_groups_mut()) {
            group.options.set_lr(rates.lr);
            group.initial_lr = group.initial_lr.or(rates.initial_lr);
            if let Some(momentum) = rates.momentum {
                group.options.set_momentum(momentum);
            }
        }
    }

    /// Sets the momentum; does nothing for an optimizer without one.
    pub fn set_momentum(&mut self, value: f64) {
        self.momentum = self.momentum.map(|_| value);
    }
}

/// One value for all parameter groups, or one for each.
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{AnnealStrategy, OneCycleLr, PerGroup};
///
/// let all = OneCycleLr { anneal_strategy: AnnealStrategy::Linear, ..OneCycleLr::new(0.1, 1000) };
/// assert_eq!(all.max_lr, PerGroup::All(0.1));
/// let each = OneCycleLr::new([0.01, 0.1], 1000); // backbone, head
/// assert_eq!(each.max_lr, PerGroup::Each(vec![0.01, 0.1]));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PerGroup {
    /// The same value for all.
    All(f64),
    /// One for each, in the order of the groups.
    Each(Vec<f64>),
}

impl From<f64> for PerGroup {
    fn from(value: f64) -> Self {
        PerGroup::All(value)
    }
}

impl From<Vec<f64>> for PerGroup {
    fn from(values: Vec<f64>) -> Self {
        PerGroup::Each(values)
    }
}

impl<const N: usize> From<[f64; N]> for PerGroup {
    fn from(values: [f64; N]) -> Self {
        PerGroup::Each(values.into())
    }
}

impl PerGroup {
    /// The value for the group at `index`.
    ///
    /// # Panics
    /// If there is none, which [`check`](Self::check) refuses beforehand.
    pub fn of(&self, index: usize) -> f64 {
        match self {
            PerGroup::All(value) => *value,
            PerGroup::Each(values) => values[index],
        }
    }

    /// Refuses a list that has not one value for each of `groups` groups. A schedule of your own
    /// calls this in [`Schedule::check`](super::Schedule::check); `what` is the setting's name.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument), naming the setting.
    pub fn check(&self, what: &str, groups: usize) -> Result<()> {
        match self {
            PerGroup::All(_) => Ok(()),
            PerGroup::Each(values) => check_one_each(what, values.len(), groups),
        }
    }
}

/// Refuses a list with another length than that of the groups.
pub(super) fn check_one_each(what: &str, values: usize, groups: usize) -> Result<()> {
    let expected = format_args!("{groups}, one for each parameter group");
    check(values == groups, format_args!("the length of {what}"), values, expected)
}

/// Refuses momenta to cycle between that do not fit the groups, and to cycle a momentum that the optimizer lacks.
pub(super) fn check_momentum(base: &PerGroup, max: &PerGroup, groups: &[GroupRates]) -> Result<()> {
    let expected = "false for an optimizer with neither momentum nor betas";
    check(groups.iter().all(|group| group.momentum.is_some()), "cycle_momentum", true, expected)?;
    base.check("base_momentum", groups.len())?;
    max.check("max_momentum", groups.len())
}
