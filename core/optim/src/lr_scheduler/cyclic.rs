//! Cycles between two learning rates.

use super::group::{GroupRates, PerGroup, check_momentum};
use super::schedule::{Epoch, Schedule, check_factor, check_length};
use crate::Result;
use std::fmt::{self, Debug};
use tch_parallel_base::options;

options! {
    /// Moves the learning rate up and down between two boundaries, and the momentum in the opposite direction (Smith,
    /// "Cyclical Learning Rates for Training Neural Networks", 2015). `CyclicLR(base_lr, max_lr, …)`
    ///
    /// The schedule counts batches: call [`LrScheduler::step`](super::LrScheduler::step) after each
    /// step of the optimizer. The rate that the optimizer was created with has no influence.
    ///
    /// ```
    /// use tch_parallel::optim::lr_scheduler::{CyclicLr, LrScheduler};
    /// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
    /// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { momentum: 0.9, ..Default::default() })?;
    ///
    /// let schedule = CyclicLr { step_size_up: 2, ..CyclicLr::new(0.5, 1.0) };
    /// let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
    /// let mut rates = Vec::new();
    /// for _batch in 0..5 {
    ///     rates.push(optimizer.lr());
    ///     scheduler.step(&mut optimizer)?;
    /// }
    /// assert_eq!(rates, [0.5, 0.75, 1.0, 0.75, 0.5]);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct CyclicLr {
        /// The lower boundary, at which a cycle begins and ends.
        pub base_lr: PerGroup,
        /// The upper boundary.
        pub max_lr: PerGroup,
        /// The number of steps in which the rate rises.
        pub step_size_up: u64 = 2000,
        /// The number of steps in which it falls. `None`: the same as `step_size_up`.
        pub step_size_down: Option<u64> = None,
        /// How the height of the cycles changes.
        pub mode: CyclicMode = CyclicMode::Triangular,
        /// Whether to move the momentum (Adam's first beta) against the rate. If not, it is left alone.
        pub cycle_momentum: bool = true,
        /// The momentum at the upper boundary of the rate.
        pub base_momentum: PerGroup = PerGroup::All(0.8),
        /// The momentum at the lower boundary.
        pub max_momentum: PerGroup = PerGroup::All(0.9),
    }
    /// With PyTorch's defaults: triangles of 2000 steps up and as many down, and momentum from 0.9 to 0.8 and back.
    pub fn new(base_lr: impl Into<PerGroup>, max_lr: impl Into<PerGroup>);
}

/// How the height of the cycles changes. `mode`, or `scale_fn` and `scale_mode`
pub enum CyclicMode {
    /// All cycles have the same height. `mode="triangular"`
    Triangular,
    /// Each cycle is half as high as the one before. `mode="triangular2"`
    Triangular2,
    /// It shrinks by `gamma` with each step. `mode="exp_range"`
    ExpRange {
        /// The factor per step.
        gamma: f64,
    },
    /// By this factor of the cycle's number, which counts from 1. `scale_fn` with `scale_mode="cycle"`
    Cycle(ScaleFn),
    /// By this factor of the step's number, which counts from 0. `scale_fn` with `scale_mode="iterations"`
    Iterations(ScaleFn),
}

/// The factor of a [`CyclicMode`]. As in PyTorch, it is not part of the scheduler's state.
pub type ScaleFn = Box<dyn Fn(u64) -> f64 + Send>;

/// Without the functions, which cannot be shown as text.
impl Debug for CyclicMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CyclicMode::Triangular => f.write_str("Triangular"),
            CyclicMode::Triangular2 => f.write_str("Triangular2"),
            CyclicMode::ExpRange { gamma } => write!(f, "ExpRange {{ gamma: {gamma:?} }}"),
            CyclicMode::Cycle(_) => f.write_str("Cycle"),
            CyclicMode::Iterations(_) => f.write_str("Iterations"),
        }
    }
}

impl CyclicLr {
    fn set(&self, step: u64, group: &mut GroupRates) {
        let up = self.step_size_up as f64;
        let total = up + self.step_size_down.unwrap_or(self.step_size_up) as f64;
        let step_ratio = up / total;
        let cycle = (1.0 + step as f64 / total).floor();
        let x = 1.0 + step as f64 / total - cycle;
        let place = if x <= step_ratio { x / step_ratio } else { (x - 1.0) / (step_ratio - 1.0) };
        let scale = match &self.mode {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => 1.0 / 2f64.powf(cycle - 1.0),
            CyclicMode::ExpRange { gamma } => gamma.powf(step as f64),
            CyclicMode::Cycle(scale) => scale(cycle as u64),
            CyclicMode::Iterations(scale) => scale(step),
        };
        let height = |from: f64, to: f64| (to - from) * place * scale;

        let [base_lr, max_lr] = [&self.base_lr, &self.max_lr].map(|of| of.of(group.index));
        group.lr = base_lr + height(base_lr, max_lr);
        if self.cycle_momentum {
            let [base, max] =
                [&self.base_momentum, &self.max_momentum].map(|of| of.of(group.index));
            group.set_momentum(max - height(base, max));
        }
    }
}

impl Schedule for CyclicLr {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        check_length("step_size_up", self.step_size_up)?;
        if let CyclicMode::ExpRange { gamma } = self.mode {
            check_factor("gamma", gamma)?;
        }
        self.base_lr.check("base_lr", groups.len())?;
        self.max_lr.check("max_lr", groups.len())?;
        if self.cycle_momentum {
            check_momentum(&self.base_momentum, &self.max_momentum, groups)?;
        }
        Ok(())
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        self.set(epoch.number(), group);
        if epoch.number() == 0 {
            // The first schedule of an optimizer sets the rate that others start from. A later one
            // has to start from it, although it goes on from `base_lr`: as in PyTorch.
            group.lr = *group.initial_lr.get_or_insert(group.lr);
        }
        Ok(())
    }

    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        self.set(0, group);
        Ok(())
    }
}
