//! A single cycle: the learning rate rises to a maximum and falls far below its start.

use super::group::{GroupRates, PerGroup, check_momentum};
use super::schedule::{Epoch, Schedule, check_fraction, check_length};
use crate::{Result, check::check};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use tch_parallel_base::options;

options! {
    /// Raises the learning rate to `max_lr`, and lowers it to a small fraction of its start, while the momentum does
    /// the opposite (Smith and Topin, "Super-Convergence", 2017). `OneCycleLR(max_lr, total_steps, …)`
    ///
    /// The schedule counts batches: call [`LrScheduler::step`](super::LrScheduler::step) after each
    /// step of the optimizer. The rate that the optimizer was created with has no influence.
    ///
    /// If a [`CyclicLr`](super::CyclicLr) follows in a sequence, both keep their own momenta; in
    /// PyTorch the second replaces those of the first.
    ///
    /// ```
    /// use tch_parallel::optim::lr_scheduler::{LrScheduler, OneCycleLr};
    /// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
    /// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { momentum: 0.9, ..Default::default() })?;
    ///
    /// let (epochs, steps_per_epoch) = (10, 100);
    /// let schedule = OneCycleLr::new(0.5, epochs * steps_per_epoch);
    /// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
    /// assert!((optimizer.lr() - 0.5 / 25.0).abs() < 1e-12);
    /// for _batch in 0..299 {
    ///     // … a step …
    ///     scheduler.step(&mut optimizer)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct OneCycleLr {
        /// The highest rate.
        pub max_lr: PerGroup,
        /// The number of steps in the cycle: epochs times steps per epoch. No step can follow.
        pub total_steps: u64,
        /// The fraction of the steps in which the rate rises, from 0 to 1.
        pub pct_start: f64 = 0.3,
        /// The shape of rise and fall.
        pub anneal_strategy: AnnealStrategy = AnnealStrategy::Cos,
        /// Whether to move the momentum (Adam's first beta) against the rate. If not, it is left alone.
        pub cycle_momentum: bool = true,
        /// The momentum at the highest rate.
        pub base_momentum: PerGroup = PerGroup::All(0.85),
        /// The momentum at the lowest rates.
        pub max_momentum: PerGroup = PerGroup::All(0.95),
        /// `max_lr` divided by the initial rate.
        pub div_factor: f64 = 25.0,
        /// The initial rate divided by the last.
        pub final_div_factor: f64 = 1e4,
        /// Whether to fall to the initial rate as slowly as it rose, and only then to the last one.
        pub three_phase: bool = false,
    }
    /// With PyTorch's defaults: a rise of 30 % of the steps, from 1/25 of the highest rate, and a
    /// fall to 1/10,000 of the initial one, along cosines; momentum from 0.95 to 0.85 and back.
    pub fn new(max_lr: impl Into<PerGroup>, total_steps: u64);
}

/// The curve between two rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnealStrategy {
    /// Half a cosine wave.
    Cos,
    /// A straight line.
    Linear,
}

/// The ends of a phase.
struct Phase {
    end_step: f64,
    /// The rates at its start and at its end.
    lr: [f64; 2],
    momentum: [f64; 2],
}

impl OneCycleLr {
    fn initial_lr(&self, group: &GroupRates) -> f64 {
        self.max_lr.of(group.index) / self.div_factor
    }

    fn phases(&self, group: &GroupRates) -> Vec<Phase> {
        let initial = self.initial_lr(group);
        let (max, min) = (self.max_lr.of(group.index), initial / self.final_div_factor);
        let (low, high) = (self.base_momentum.of(group.index), self.max_momentum.of(group.index));
        let total = self.total_steps as f64;
        let end_step = self.pct_start * total - 1.0;
        let up = Phase { end_step, lr: [initial, max], momentum: [high, low] };
        if !self.three_phase {
            let end_step = total - 1.0;
            return vec![up, Phase { end_step, lr: [max, min], momentum: [low, high] }];
        }
        let end_step = 2.0 * self.pct_start * total - 2.0;
        let down = Phase { end_step, lr: [max, initial], momentum: [low, high] };
        vec![up, down, Phase { end_step: total - 1.0, lr: [initial, min], momentum: [high, high] }]
    }
}

impl AnnealStrategy {
    fn between(self, [start, end]: [f64; 2], pct: f64) -> f64 {
        match self {
            AnnealStrategy::Cos => end + (start - end) / 2.0 * ((PI * pct).cos() + 1.0),
            AnnealStrategy::Linear => (end - start) * pct + start,
        }
    }
}

impl Schedule for OneCycleLr {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        check_length("total_steps", self.total_steps)?;
        check_fraction("pct_start", self.pct_start)?;
        self.max_lr.check("max_lr", groups.len())?;
        if self.cycle_momentum {
            check_momentum(&self.base_momentum, &self.max_momentum, groups)?;
        }
        Ok(())
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let expected = format_args!("at most total_steps, which is {}", self.total_steps);
        check(epoch.number() <= self.total_steps, "the number of steps", epoch.number(), expected)?;
        if epoch.number() == 0 {
            group.initial_lr = Some(self.initial_lr(group));
        }
        let (step, phases) = (epoch.number() as f64, self.phases(group));
        let last = phases.len() - 1;
        let passed = phases[..last].iter().take_while(|phase| step > phase.end_step).count();
        let phase = &phases[passed];
        let start_step = if passed == 0 { 0.0 } else { phases[passed - 1].end_step };
        let pct = (step - start_step) / (phase.end_step - start_step);
        group.lr = self.anneal_strategy.between(phase.lr, pct);
        if self.cycle_momentum {
            group.set_momentum(self.anneal_strategy.between(phase.momentum, pct));
        }
        Ok(())
    }
}
