//! When [`DiLoCo`](super::DiLoCo) exchanges, and how it applies the result.

use crate::{Result, check, optim::SgdOptions};

/// Arguments of torchft's `DiLoCo`. Exchanges start and end at the same steps as there. Each fragment is one bucket, the
/// global weights are on the same devices as the ranks' own, and nothing is quantized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiLoCoOptions<R = SgdOptions> {
    /// The options of the outer optimizer. Their type selects it: `AdamOptions` for Adam. `outer_optimizer`
    pub outer: R,
    /// The number of steps in which each fragment is exchanged once: a multiple of the number of fragments.
    pub sync_every: u64,
    /// The number of steps between sending a fragment and applying the result: less than `sync_every / fragments`.
    pub fragment_sync_delay: u64,
    /// The fraction of a rank's own weights that is mixed with the global ones: 0 replaces them, 1 keeps them.
    pub fragment_update_alpha: f64,
}

impl DiLoCoOptions {
    /// The paper's outer optimizer, SGD with a learning rate of 0.7 and a Nesterov momentum of 0.9, and torchft's
    /// defaults for the rest: no delay, and global weights that replace the rank's own.
    pub fn new(sync_every: u64) -> Self {
        let outer = SgdOptions { lr: 0.7, momentum: 0.9, nesterov: true, ..Default::default() };
        DiLoCoOptions { outer, sync_every, fragment_sync_delay: 0, fragment_update_alpha: 0.0 }
    }
}

impl<R> DiLoCoOptions<R> {
    /// The number of steps from one fragment to the next. Refuses what torchft refuses too.
    pub(super) fn period(&self, fragments: usize) -> Result<u64> {
        let period = self.sync_every / fragments as u64;
        let is_multiple = period > 0 && self.sync_every.is_multiple_of(fragments as u64);
        let expected = format_args!("a multiple of the number of fragments, which is {fragments}");
        check(is_multiple, "sync_every", self.sync_every, expected)?;
        let (delay, alpha) = (self.fragment_sync_delay, self.fragment_update_alpha);
        let expected = format_args!("below {period}, the steps from one fragment to the next");
        check(delay < period, "fragment_sync_delay", delay, expected)?;
        check((0.0..=1.0).contains(&alpha), "fragment_update_alpha", alpha, "from 0 to 1")?;
        Ok(period)
    }
}
