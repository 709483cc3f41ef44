//! A cosine that starts anew from the top again and again.

use super::group::GroupRates;
use super::schedule::{Epoch, Schedule, check_eta_min, check_length};
use crate::Result;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use tch_parallel_base::options;

options! {
    /// Lowers the rate along half a cosine wave, then starts from the top again, each time with a cycle `t_mult` times
    /// as long (Loshchilov and Hutter, "SGDR", 2016). `CosineAnnealingWarmRestarts(T_0, T_mult, eta_min)`
    ///
    /// Its scheduler can also be set to any epoch, even within one, with [`step_to`](super::LrScheduler::step_to).
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct CosineAnnealingWarmRestarts {
        /// The length of the first cycle in epochs: PyTorch's `T_0`.
        #[serde(rename = "T_0")]
        pub t_0: u64,
        /// By how much longer each cycle is than the one before: PyTorch's `T_mult`.
        #[serde(rename = "T_mult")]
        pub t_mult: u64 = 1,
        /// The lowest rate.
        pub eta_min: f64 = 0.0,
    }
    /// With PyTorch's defaults: cycles of the same length, down to 0.
    pub fn new(t_0: u64);
}

impl CosineAnnealingWarmRestarts {
    /// The epoch in its cycle, and the cycle's length: PyTorch's `T_cur` and `T_i`.
    fn cycle(&self, epoch: Epoch) -> (f64, f64) {
        let (mut t_cur, mut t_i) = self.cycle_of(epoch.origin);
        if self.t_mult == 1 && t_cur.fract() == 0.0 {
            return ((t_cur + epoch.steps as f64) % t_i, t_i);
        }
        let mut steps = epoch.steps;
        while steps > 0 {
            // With fractions, a sum of many ones at once would round differently.
            let whole = t_cur.fract() == 0.0;
            let together = if whole { steps.min((t_i - t_cur) as u64).max(1) } else { 1 };
            steps -= together;
            t_cur += together as f64;
            if t_cur >= t_i {
                t_cur %= t_i;
                t_i *= self.t_mult as f64;
            }
        }
        (t_cur, t_i)
    }

    /// The same by PyTorch's closed form. Its logarithm may be a bit too small, so that the epoch
    /// of a restart becomes the end of the cycle before.
    fn cycle_of(&self, epoch: f64) -> (f64, f64) {
        let (t_0, t_mult) = (self.t_0 as f64, self.t_mult as f64);
        if epoch < t_0 {
            return (epoch, t_0);
        }
        if self.t_mult == 1 {
            return (epoch % t_0, t_0);
        }
        let cycles = ((epoch / t_0 * (t_mult - 1.0) + 1.0).ln() / t_mult.ln()).trunc();
        let growth = t_mult.powf(cycles);
        (epoch - t_0 * (growth - 1.0) / (t_mult - 1.0), t_0 * growth)
    }
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn check(&self, _groups: &[GroupRates]) -> Result<()> {
        check_length("t_0", self.t_0)?;
        check_length("t_mult", self.t_mult)?;
        check_eta_min(self.eta_min)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        let (t_cur, t_i) = self.cycle(epoch);
        let height = 1.0 + (PI * t_cur / t_i).cos();
        group.lr = self.eta_min + (group.base_lr() - self.eta_min) * height / 2.0;
        Ok(())
    }
}
