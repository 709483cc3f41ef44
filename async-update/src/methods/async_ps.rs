//! Asynchronous updates through a parameter server: Downpour SGD (Dean 2012), and the article's
//! asynchronous update.

use super::Method;
use crate::link::Traffic;
use crate::server::Shards;
use tch::Tensor;
use tch_parallel::Result;

/// A worker fetches θ, steps along its own gradients, and pushes their sum, without waiting for other
/// workers.
pub struct AsyncPs {
    pub shards: Shards,
    pub lr: f64,
    /// Batches between two fetches of θ.
    pub n_fetch: usize,
    /// Batches whose gradients are pushed at once.
    pub n_push: usize,
    /// The sum of the gradients that have not been pushed, and their number.
    pub gradients: Option<(Tensor, usize)>,
}

impl AsyncPs {
    pub fn new(shards: Shards, lr: f64, n_fetch: usize, n_push: usize) -> AsyncPs {
        AsyncPs { shards, lr, n_fetch, n_push, gradients: None }
    }

    fn push(&mut self) -> Result<()> {
        match self.gradients.take() {
            Some((sum, batches)) => self.shards.push(&sum, batches),
            None => Ok(()),
        }
    }
}

impl Method for AsyncPs {
    // ANCHOR: steps
    fn next_batches(&mut self, theta: &mut Tensor) -> Result<usize> {
        self.shards.fetch(theta, self.n_fetch)
    }

    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        *theta -= &gradient * self.lr;
        let (sum, batches) = match self.gradients.take() {
            Some((sum, batches)) => (sum + gradient, batches + 1),
            None => (gradient, 1),
        };
        self.gradients = Some((sum, batches));
        if batches == self.n_push { self.push() } else { Ok(()) }
    }

    fn end(&mut self, _theta: &mut Tensor) -> Result<()> {
        self.push()?;
        self.shards.leave()
    }
    // ANCHOR_END: steps

    fn traffic(&self) -> Option<Traffic> {
        Some(self.shards.traffic())
    }
}
