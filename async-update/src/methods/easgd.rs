//! Elastic averaging SGD: every worker has its own parameters, tied to a common centre (Zhang,
//! Choromanska and LeCun 2015).

use super::Method;
use crate::link::Traffic;
use crate::server::Shards;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

/// A worker steps along its own gradients. After every `tau` batches it and the centre draw each
/// other closer, as by a spring; the centre, which the server keeps, is the model.
///
/// In the paper's Algorithm 1 the gradient that follows an exchange is taken where the worker was
/// before it; here, where the worker is.
pub struct Easgd {
    pub shards: Shards,
    pub lr: f64,
    /// Batches between two exchanges.
    pub tau: usize,
    /// How many batches it may do before it must exchange.
    pub granted: usize,
    /// Batches since the last exchange; None before it has fetched where to begin.
    pub batches: Option<usize>,
}

impl Method for Easgd {
    // ANCHOR: before_batch
    fn before_batch(&mut self, theta: &mut Tensor) -> Result<ControlFlow<()>> {
        if self.granted == 0 {
            self.granted = match self.batches {
                Some(batches) => self.shards.exchange(theta, batches, self.tau)?,
                None => self.shards.fetch(theta, self.tau)?,
            };
            self.batches = Some(0);
        }
        if self.granted == 0 {
            self.shards.leave()?;
            return Ok(ControlFlow::Break(()));
        }
        self.granted -= 1;
        Ok(ControlFlow::Continue(()))
    }
    // ANCHOR_END: before_batch

    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        *theta -= gradient * self.lr;
        self.batches = self.batches.map(|batches| batches + 1);
        Ok(())
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.shards.traffic())
    }
}
