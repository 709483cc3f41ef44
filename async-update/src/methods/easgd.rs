//! Elastic averaging SGD: every worker has its own parameters, tied to a common centre (Zhang,
//! Choromanska and LeCun 2015).

use super::Method;
use crate::link::Traffic;
use crate::server::Shards;
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
    /// Batches since the last exchange; 0 before the worker has fetched where to begin.
    pub batches: usize,
}

impl Method for Easgd {
    // ANCHOR: next_batches
    fn next_batches(&mut self, theta: &mut Tensor) -> Result<usize> {
        self.batches = match self.batches {
            0 => self.shards.fetch(theta, self.tau)?,
            done => self.shards.exchange(theta, done, self.tau)?,
        };
        Ok(self.batches)
    }
    // ANCHOR_END: next_batches

    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        *theta -= gradient * self.lr;
        Ok(())
    }

    fn end(&mut self, _theta: &mut Tensor) -> Result<()> {
        self.shards.leave()
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.shards.traffic())
    }
}
