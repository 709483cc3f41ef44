//! Synchronous updates by c10d's all-reduce: what DistributedDataParallel does, in one bucket.

use super::{Method, Steps};
use crate::link::Traffic;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

/// All ranks take the mean of their gradients, and each the same step with it.
pub struct SyncAllReduce {
    pub group: ProcessGroup,
    pub lr: f64,
    pub steps: Steps,
}

impl Method for SyncAllReduce {
    fn before_batch(&mut self, _theta: &mut Tensor) -> Result<ControlFlow<()>> {
        Ok(self.steps.take())
    }

    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        self.group.all_reduce(&mut gradient, ReduceOp::Sum)?;
        *theta -= gradient * (self.lr / self.group.world_size() as f64);
        Ok(())
    }
    // ANCHOR_END: after_batch

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
