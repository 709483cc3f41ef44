//! Local SGD: every rank makes its own steps, and now and then all average their parameters (Stich
//! 2019). Post-local SGD: the same, after a synchronous beginning (Lin 2020).

use super::{Method, SyncAllReduce};
use std::num::NonZeroUsize;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::distributed::ReduceOp;

/// Each rank steps along its own gradient; after every `period` steps all take the mean of their
/// parameters. With a period of 1 that is the mean of the gradients, up to rounding.
///
/// PyTorch's counterparts are `PeriodicModelAverager` and `post_localSGD_hook`.
pub struct LocalSgd {
    /// How steps are made together.
    pub together: SyncAllReduce,
    /// How many steps are still made together: far from a minimum the ranks' ways part quickly,
    /// close to it their mean is a good place.
    pub start: usize,
    pub period: NonZeroUsize,
    /// Steps since the last mean.
    pub since_mean: usize,
}

impl Method for LocalSgd {
    fn next_batches(&mut self, theta: &mut Tensor) -> Result<usize> {
        self.together.next_batches(theta)
    }

    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        if self.start > 0 {
            self.start -= 1;
            return self.together.after_batch(theta, gradient);
        }
        *theta -= gradient * self.together.lr;
        self.since_mean += 1;
        if self.since_mean == self.period.get() { self.average(theta) } else { Ok(()) }
    }
    // ANCHOR_END: after_batch

    /// All ranks end with one model, even if the last period is cut short.
    fn end(&mut self, theta: &mut Tensor) -> Result<()> {
        if self.since_mean > 0 { self.average(theta) } else { Ok(()) }
    }
}

impl LocalSgd {
    fn average(&mut self, theta: &mut Tensor) -> Result<()> {
        self.since_mean = 0;
        let group = &self.together.group;
        group.all_reduce(theta, ReduceOp::Sum)?;
        *theta /= group.world_size() as f64;
        Ok(())
    }
}
