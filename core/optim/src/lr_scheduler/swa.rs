//! The learning rate at which stochastic weight averaging collects its models.

use super::schedule::{Epoch, Schedule};
use super::{group::GroupRates, group::PerGroup, one_cycle::AnnealStrategy};
use crate::Result;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use tch_parallel_base::options;

options! {
    /// Moves the learning rate from its current value to a constant one, at which an
    /// [`AveragedModel`](crate::AveragedModel) collects models (Izmailov et al., "Averaging Weights Leads to Wider
    /// Optima and Better Generalization", 2018). `swa_utils.SWALR(swa_lr, anneal_epochs, anneal_strategy)`
    ///
    /// ```
    /// use tch_parallel::optim::lr_scheduler::{ExponentialLr, LrScheduler, SwaLr};
    /// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
    /// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 0.5, ..Default::default() })?;
    ///
    /// let mut scheduler = LrScheduler::new(&mut optimizer, ExponentialLr { gamma: 0.9 })?;
    /// let swa = SwaLr { anneal_epochs: 5, ..SwaLr::new(0.05) };
    /// let mut swa_scheduler = LrScheduler::new(&mut optimizer, swa)?;
    /// for epoch in 0..20 {
    ///     // … the steps of an epoch, and from epoch 10 on `averaged.update_parameters()` …
    ///     match epoch {
    ///         0..10 => scheduler.step(&mut optimizer)?,
    ///         _ => swa_scheduler.step(&mut optimizer)?,
    ///     }
    /// }
    /// assert_eq!(optimizer.lr(), 0.05);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SwaLr {
        /// The final rate.
        pub swa_lr: PerGroup,
        /// The number of epochs until the rate is reached; with 0, it is set at once.
        pub anneal_epochs: u64 = 10,
        /// The shape of the transition.
        pub anneal_strategy: AnnealStrategy = AnnealStrategy::Cos,
    }
    /// With PyTorch's defaults: ten epochs along half a cosine wave.
    pub fn new(swa_lr: impl Into<PerGroup>);
}

impl SwaLr {
    /// The fraction of the transition that is done after this many steps.
    fn alpha(&self, steps: f64) -> f64 {
        let t = (steps / self.anneal_epochs.max(1) as f64).clamp(0.0, 1.0);
        match self.anneal_strategy {
            AnnealStrategy::Cos => (1.0 - (PI * t).cos()) / 2.0,
            AnnealStrategy::Linear => t,
        }
    }
}

impl Schedule for SwaLr {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        self.swa_lr.check("swa_lr", groups.len())
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let swa_lr = self.swa_lr.of(group.index);
        let steps = epoch.number().max((self.anneal_epochs == 0).into()) as f64;
        // PyTorch computes the rate at the start from the last rate, whatever has set it.
        let (before, alpha) = (self.alpha(steps - 1.0), self.alpha(steps));
        let start = (group.lr - before * swa_lr) / (1.0 - before);
        group.lr = if before < 1.0 { swa_lr * alpha + start * (1.0 - alpha) } else { swa_lr };
        Ok(())
    }

    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        self.step(Epoch::default(), group)
    }
}
