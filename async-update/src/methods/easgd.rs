//! Elastic averaging SGD: every worker has its own parameters, tied to a common centre (Zhang,
//! Choromanska and LeCun 2015).

use super::Method;
use crate::{args::ServerArgs, server::Shards};
use tch::Tensor;
use tch_parallel::{Error, Result};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  launch -n 5 async-update easgd --tau 4 --rho 2")]
pub struct EasgdArgs {
    /// Batches between two exchanges with the centre.
    #[arg(long, default_value_t = 4, value_parser = report::positive())]
    pub tau: usize,
    /// Strength of the tie: in an exchange worker and centre each move by lr · rho of their distance.
    /// With p workers, p · lr · rho should be below 1, or the centre overshoots.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    pub rho: f64,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl EasgdArgs {
    /// α = ηρ, the share of the distance.
    pub fn alpha(&self) -> Result<f64> {
        let lr = self.server.train.lr;
        let alpha = lr * self.rho;
        if alpha > 0.0 && alpha < 1.0 {
            return Ok(alpha);
        }
        let found = format!("{}, with --lr {lr}", self.rho);
        Err(Error::argument("--rho", found, "such that lr · rho lies between 0 and 1"))
    }
}

/// A worker steps along its own gradients. After every `tau` batches it and the centre draw each
/// other closer, as by a spring; the centre, which the server keeps, is the model.
///
/// In the paper's Algorithm 1 the gradient that follows an exchange is taken where the worker was
/// before it; here, where the worker is.
pub struct Easgd {
    pub shards: Shards,
    pub lr: f64,
    pub tau: usize,
    /// Batches since the last exchange; 0 before the worker has fetched where to begin.
    pub batches: usize,
}

impl Method for Easgd {
    // ANCHOR: next_batches
    fn next_batches(&mut self, theta: &mut Tensor, _left: usize) -> Result<usize> {
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
}
