//! Asynchronous updates through a parameter server: Downpour SGD (Dean 2012), and the article's
//! asynchronous update.

use super::Method;
use crate::link::Traffic;
use crate::server::Shards;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

/// A worker fetches θ, steps along its own gradients, and pushes their sum, all without regard to
/// what others do meanwhile.
pub struct AsyncPs {
    pub shards: Shards,
    pub lr: f64,
    /// How many batches it does before it fetches θ again.
    pub n_fetch: usize,
    /// The gradients of how many batches it sends at once.
    pub n_push: usize,
    /// How many batches it may do before it must ask again.
    pub granted: usize,
    /// The sum of the gradients that it has not pushed, and how many they are.
    pub gradients: Option<(Tensor, usize)>,
}

impl AsyncPs {
    pub fn new(shards: Shards, lr: f64, n_fetch: usize, n_push: usize) -> AsyncPs {
        AsyncPs { shards, lr, n_fetch, n_push, granted: 0, gradients: None }
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
    fn before_batch(&mut self, theta: &mut Tensor) -> Result<ControlFlow<()>> {
        if self.granted == 0 {
            self.granted = self.shards.fetch(theta, self.n_fetch)?;
        }
        if self.granted == 0 {
            self.push()?;
            self.shards.leave()?;
            return Ok(ControlFlow::Break(()));
        }
        self.granted -= 1;
        Ok(ControlFlow::Continue(()))
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
    // ANCHOR_END: steps

    fn traffic(&self) -> Option<Traffic> {
        Some(self.shards.traffic())
    }
}
