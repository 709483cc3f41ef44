//! The flags of single methods.

use super::{TrainArgs, count};
use std::num::NonZeroUsize;
use tch_parallel::{Error, Result};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update local-sgd               the mean of the parameters every 8 steps
  launch -n 4 async-update local-sgd --period 64   an eighth of the messages")]
pub struct LocalSgdArgs {
    /// Steps that each rank makes by itself before all take the mean.
    #[arg(long, default_value = "8")]
    pub period: NonZeroUsize,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update post-local --start 50 --period 8")]
pub struct PostLocalArgs {
    /// Steps that all ranks make together first.
    #[arg(long, default_value_t = 50)]
    pub start: usize,
    #[command(flatten)]
    pub local: LocalSgdArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update hogwild --threads 4 --lr 0.05 --epochs 5")]
pub struct HogwildArgs {
    /// How many threads train; --straggle counts them from 0, like ranks.
    // Each is a thread of this machine, which has no room for any number of them.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    #[command(flatten)]
    pub train: TrainArgs,
}

/// The server's part of the job.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Ranks that keep θ, an equal shard each; all others are workers.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub servers: usize,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 5 async-update async-ps                         each gradient from new parameters
  launch -n 5 async-update async-ps --n-fetch 5 --n-push 5   a fifth of the messages
  launch -n 6 async-update async-ps --servers 2             each server has half of the model
  launch -n 5 async-update async-ps --sync-every 8          all meet after every 8 updates")]
pub struct AsyncPsArgs {
    /// Batches that a worker does before it fetches θ again.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub n_fetch: usize,
    /// Batches whose gradients a worker pushes at once.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub n_push: usize,
    /// After so many updates each worker waits, when it next fetches, until all others have made as
    /// many.
    #[arg(long, value_name = "UPDATES", value_parser = count())]
    pub sync_every: Option<usize>,
    /// Divide the learning rate for a gradient by the number of updates that have overtaken it.
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
    /// By how many updates a worker may lead the slowest when it begins a batch.
    #[arg(long, default_value_t = 4, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32))]
    pub staleness: u32,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 5 async-update easgd --tau 4 --rho 2")]
pub struct EasgdArgs {
    /// Batches that a worker does between two exchanges with the centre.
    #[arg(long, default_value_t = 4, value_parser = count())]
    pub tau: usize,
    /// How strongly workers and centre draw each other: in an exchange each goes lr · rho of the way.
    /// With p workers, p · lr · rho should be below 1, else the centre overshoots.
    #[arg(long, default_value_t = 2.0, allow_negative_numbers = true)]
    pub rho: f64,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl EasgdArgs {
    /// α = ηρ, the part of the way.
    pub fn alpha(&self) -> Result<f64> {
        let alpha = self.server.train.lr * self.rho;
        if alpha > 0.0 && alpha < 1.0 {
            return Ok(alpha);
        }
        Err(Error::Argument {
            what: "--rho".into(),
            found: format!("{}, with --lr {}", self.rho, self.server.train.lr),
            expected: "such that lr · rho lies between 0 and 1: it is a part of a way".into(),
        })
    }
}
