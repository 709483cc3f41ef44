//! A learning rate that falls when a metric stops improving.

use super::state::{LrSchedulerState, Scheduler};
use super::{group::GroupRates, group::PerGroup, schedule::check_factor};
use crate::{Optimizer, Result, check::check};
use serde::{Deserialize, Serialize};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `ReduceLROnPlateau`, with its defaults.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ReduceLrOnPlateauOptions {
        /// Which metrics are better.
        pub mode: PlateauMode = PlateauMode::Min,
        /// The factor of a reduction, below 1.
        pub factor: f64 = 0.1,
        /// The number of epochs without an improvement that are tolerated.
        pub patience: u64 = 10,
        /// How much better a metric must be to count as an improvement.
        pub threshold: f64 = 1e-4,
        /// What the threshold means.
        pub threshold_mode: ThresholdMode = ThresholdMode::Rel,
        /// The number of epochs after a reduction in which no epoch counts as bad.
        pub cooldown: u64 = 0,
        /// The lowest rate.
        pub min_lr: PerGroup = PerGroup::All(0.0),
        /// Smaller reductions than this are not made.
        pub eps: f64 = 1e-8,
    }
}

/// Which metrics are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlateauMode {
    /// Low ones, such as losses.
    Min,
    /// High ones, such as accuracies.
    Max,
}

/// What the threshold of [`ReduceLrOnPlateauOptions`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThresholdMode {
    /// A fraction of the best metric.
    Rel,
    /// A difference from it.
    Abs,
}

/// Reduces the learning rate when a metric has stopped improving. `torch.optim.lr_scheduler.ReduceLROnPlateau`
///
/// With several ranks, the metric must be the same on all. Otherwise some reduce their rate before others, and their
/// weights drift apart, although all apply the same gradients. So reduce it first, as `AverageMeter::all_reduce` does:
///
/// ```
/// use tch_parallel::distributed::{AverageMeter, ProcessGroup};
/// use tch_parallel::optim::lr_scheduler::{PlateauMode, ReduceLrOnPlateau, ReduceLrOnPlateauOptions, ThresholdMode};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 1.0, ..Default::default() })?;
///
/// let group = ProcessGroup::from_env()?;
/// let (mode, threshold_mode) = (PlateauMode::Min, ThresholdMode::Rel); // Max for an accuracy
/// let options = ReduceLrOnPlateauOptions { mode, threshold_mode, factor: 0.5, patience: 1, ..Default::default() };
/// let mut scheduler = ReduceLrOnPlateau::new(&optimizer, options)?;
/// for loss_of_my_share in [0.9, 0.5, 0.6, 0.6] {
///     // … an epoch, and this rank's share of the validation data …
///     let mut loss = AverageMeter::default();
///     loss.update(loss_of_my_share, 128);
///     scheduler.step(&mut optimizer, loss.all_reduce(&group)?)?;
/// }
/// assert_eq!(optimizer.lr(), 0.5);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// As in PyTorch, it cannot be part of a [`SequentialLr`](super::SequentialLr) or of a
/// [`ChainedScheduler`](super::ChainedScheduler).
#[derive(Debug)]
pub struct ReduceLrOnPlateau {
    options: ReduceLrOnPlateauOptions,
    state: State,
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// Infinite before the first metric, so it is saved as text: JSON has no infinity.
    #[serde(with = "as_text")]
    best: f64,
    num_bad_epochs: u64,
    cooldown_counter: u64,
    last_epoch: u64,
    last_lr: Vec<f64>,
}

impl ReduceLrOnPlateau {
    /// A scheduler that has not seen a metric yet. It leaves the rates as they are.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a factor of 1 or more, which would reduce nothing, for one below 0,
    /// and for a list of lowest rates that does not fit the optimizer's parameter groups.
    pub fn new(optimizer: &dyn Optimizer, options: ReduceLrOnPlateauOptions) -> Result<Self> {
        check_factor("factor", options.factor)?;
        check(options.factor < 1.0, "factor", options.factor, "below 1")?;
        let groups = GroupRates::all(optimizer, &[]);
        options.min_lr.check("min_lr", groups.len())?;
        let best = if options.mode == PlateauMode::Min { f64::INFINITY } else { f64::NEG_INFINITY };
        let last_lr = groups.iter().map(|group| group.lr).collect();
        let state = State { best, num_bad_epochs: 0, cooldown_counter: 0, last_epoch: 0, last_lr };
        Ok(ReduceLrOnPlateau { options, state })
    }

    /// Takes an epoch's metric, and reduces the rate of every parameter group if it is time. NaN is not an improvement.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a parameter group was added to the optimizer, and the lowest rates
    /// are a list without one for it. Nothing has changed then.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, metric: f64) -> Result<()> {
        let options = &self.options;
        let mut groups = GroupRates::all(optimizer, &[]);
        options.min_lr.check("min_lr", groups.len())?;
        let state = &mut self.state;
        state.last_epoch += 1;
        if options.is_better(metric, state.best) {
            state.best = metric;
            state.num_bad_epochs = 0;
        } else {
            state.num_bad_epochs += 1;
        }
        if state.cooldown_counter > 0 {
            state.cooldown_counter -= 1;
            state.num_bad_epochs = 0;
        }
        if state.num_bad_epochs > options.patience {
            for group in &mut groups {
                let reduced = (group.lr * options.factor).max(options.min_lr.of(group.index));
                if group.lr - reduced > options.eps {
                    group.lr = reduced;
                }
            }
            GroupRates::apply(&groups, optimizer);
            state.cooldown_counter = options.cooldown;
            state.num_bad_epochs = 0;
        }
        state.last_lr = groups.iter().map(|group| group.lr).collect();
        Ok(())
    }

    /// The best metric so far; infinite, in the worse direction, before the first.
    pub fn best(&self) -> f64 {
        self.state.best
    }

    /// The number of metrics that it has seen.
    pub fn last_epoch(&self) -> u64 {
        self.state.last_epoch
    }
}

impl ReduceLrOnPlateauOptions {
    fn is_better(&self, metric: f64, best: f64) -> bool {
        match (self.mode, self.threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Rel) => metric < best * (1.0 - self.threshold),
            (PlateauMode::Min, ThresholdMode::Abs) => metric < best - self.threshold,
            (PlateauMode::Max, ThresholdMode::Rel) => metric > best * (self.threshold + 1.0),
            (PlateauMode::Max, ThresholdMode::Abs) => metric > best + self.threshold,
        }
    }
}

impl Scheduler for ReduceLrOnPlateau {
    fn last_lr(&self) -> &[f64] {
        &self.state.last_lr
    }

    fn state_dict(&self) -> Result<LrSchedulerState> {
        LrSchedulerState::new(&self.options, &self.state)
    }

    fn load_state_dict(&mut self, state: &LrSchedulerState) -> Result<()> {
        self.state = state.of(&self.options)?;
        Ok(())
    }
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
