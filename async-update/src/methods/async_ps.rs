//! Asynchronous updates through a parameter server: Downpour SGD (Dean 2012), and the article's asynchronous update.

use super::Method;
use crate::{args::ServerArgs, model, server::Shards};
use tch::Tensor;
use tch_parallel::Result;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 5 async-update async-ps                         each gradient from new parameters
  launch -n 5 async-update async-ps --n-fetch 5 --n-push 5   a fifth of the messages
  launch -n 6 async-update async-ps --servers 2             each server has half of the model
  launch -n 5 async-update async-ps --sync-every 8          all meet after every 8 updates")]
pub struct AsyncPsArgs {
    /// Batches between two fetches of θ.
    #[arg(long, default_value_t = 1, value_parser = report::positive())]
    pub n_fetch: usize,
    /// Batches whose gradients are pushed at once.
    #[arg(long, default_value_t = 1, value_parser = report::positive())]
    pub n_push: usize,
    /// Make all workers wait for each other after every UPDATES updates of each, at their next fetch.
    #[arg(long, value_name = "UPDATES", value_parser = report::positive())]
    pub sync_every: Option<usize>,
    /// Divide the learning rate for a gradient by its staleness.
    #[arg(long)]
    pub staleness_aware: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 5 async-update ssp --staleness 4
  launch -n 5 async-update ssp --staleness 0 --straggle 4:40   all take their steps together")]
pub struct SspArgs {
    /// Maximum lead over the slowest worker, in updates, when a worker begins a batch.
    #[arg(long, default_value_t = 4, allow_negative_numbers = true)]
    pub staleness: u32,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// A worker fetches θ, steps along its own gradients, and pushes their sum, without waiting for other workers.
pub struct AsyncPs {
    shards: Shards,
    lr: f64,
    n_fetch: usize,
    n_push: usize,
    /// The sum of the gradients that have not been pushed, and their number.
    gradients: Tensor,
    batches: usize,
}

impl AsyncPs {
    pub fn new(shards: Shards, lr: f64, n_fetch: usize, n_push: usize) -> AsyncPs {
        AsyncPs { shards, lr, n_fetch, n_push, gradients: model::zeros(), batches: 0 }
    }

    fn push(&mut self) -> Result<()> {
        if self.batches > 0 {
            self.shards.push(&self.gradients, self.batches)?;
            (self.gradients, self.batches) = (model::zeros(), 0);
        }
        Ok(())
    }
}

impl Method for AsyncPs {
    // ANCHOR: steps
    fn next_batches(&mut self, theta: &mut Tensor, _left: usize) -> Result<usize> {
        self.shards.fetch(theta, self.n_fetch)
    }

    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        *theta -= &gradient * self.lr;
        self.gradients += gradient;
        self.batches += 1;
        if self.batches == self.n_push { self.push() } else { Ok(()) }
    }

    fn end(&mut self, _theta: &mut Tensor) -> Result<()> {
        self.push()?;
        self.shards.leave()
    }
    // ANCHOR_END: steps
}
