//! Local SGD: every rank goes its own way, and now and then all meet in the middle (Stich 2019).

use super::{Method, Steps};
use crate::link::Traffic;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

/// Each rank steps along its own gradient; after every `period` steps all take the mean of their
/// parameters. With a period of 1 that is the mean of the gradients, up to rounding.
///
/// PyTorch's counterpart is `PeriodicModelAverager`.
pub struct LocalSgd {
    pub group: ProcessGroup,
    pub lr: f64,
    pub steps: Steps,
    pub period: NonZeroUsize,
    /// How many steps have been made since the last mean.
    pub since_mean: usize,
}

impl Method for LocalSgd {
    fn before_batch(&mut self, theta: &mut Tensor) -> Result<ControlFlow<()>> {
        let next = self.steps.take();
        // All ranks end with one model, even if the last period is cut short.
        if next.is_break() && self.since_mean > 0 {
            self.average(theta)?;
        }
        Ok(next)
    }

    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        *theta -= gradient * self.lr;
        self.since_mean += 1;
        if self.since_mean == self.period.get() { self.average(theta) } else { Ok(()) }
    }
    // ANCHOR_END: after_batch

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

impl LocalSgd {
    fn average(&mut self, theta: &mut Tensor) -> Result<()> {
        self.since_mean = 0;
        self.group.all_reduce(theta, ReduceOp::Sum)?;
        *theta /= self.group.world_size() as f64;
        Ok(())
    }
}
