//! The flags of single methods.

use super::{TrainArgs, count};
use crate::model::PARAMETERS;
use std::num::NonZeroUsize;
use std::ops::Range;
use tch_parallel::distributed::Env;
use tch_parallel::{Error, Result};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update local-sgd               the mean of the parameters every 8 steps
  launch -n 4 async-update local-sgd --period 64   an eighth of the messages")]
pub struct LocalSgdArgs {
    /// Steps that each rank takes on its own between two averages.
    #[arg(long, default_value = "8")]
    pub period: NonZeroUsize,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update post-local --start 50 --period 8")]
pub struct PostLocalArgs {
    /// Synchronous steps at the beginning.
    #[arg(long, default_value_t = 50)]
    pub start: usize,
    #[command(flatten)]
    pub local: LocalSgdArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update hogwild --threads 4 --lr 0.05 --epochs 5")]
pub struct HogwildArgs {
    /// Number of threads; --straggle counts them from 0, like ranks.
    // A machine cannot run any number of threads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    #[command(flatten)]
    pub train: TrainArgs,
}

/// The flags of the methods with a server.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Number of server ranks, each with an equal shard of θ; all other ranks are workers.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub servers: usize,
    #[command(flatten)]
    pub train: TrainArgs,
}

/// A process's place in a job whose first ranks are servers and whose others are workers.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub rank: usize,
    pub ranks: usize,
    pub servers: usize,
}

impl Place {
    pub fn workers(self) -> Range<usize> {
        self.servers..self.ranks
    }
}

impl ServerArgs {
    /// This process's place.
    ///
    /// # Errors
    /// [`Error::Argument`] for a job with too few ranks for the servers, or too many servers for θ.
    pub fn place(&self) -> Result<Place> {
        let servers = self.servers;
        let (rank, ranks) = Env::read()?.map_or((0, 1), |env| (env.rank, env.world_size));
        let expected = if servers > PARAMETERS {
            format!("at most {PARAMETERS}, one for each parameter")
        } else if servers >= ranks {
            format!(
                "below the number of ranks, so that at least one is a worker: `cargo launch -n {} async-update -- …`",
                servers + 1
            )
        } else {
            return Ok(Place { rank, ranks, servers });
        };
        let (what, found) = ("--servers".into(), format!("{servers} in a world of {ranks}"));
        Err(Error::Argument { what, found, expected })
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 5 async-update async-ps                         each gradient from new parameters
  launch -n 5 async-update async-ps --n-fetch 5 --n-push 5   a fifth of the messages
  launch -n 6 async-update async-ps --servers 2             each server has half of the model
  launch -n 5 async-update async-ps --sync-every 8          all meet after every 8 updates")]
pub struct AsyncPsArgs {
    /// Batches between two fetches of θ.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub n_fetch: usize,
    /// Batches whose gradients are pushed at once.
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub n_push: usize,
    /// Make all workers wait for each other after every UPDATES updates of each, at their next fetch.
    #[arg(long, value_name = "UPDATES", value_parser = count())]
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
    /// Batches between two exchanges with the centre.
    #[arg(long, default_value_t = 4, value_parser = count())]
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
        let alpha = self.server.train.lr * self.rho;
        if alpha > 0.0 && alpha < 1.0 {
            return Ok(alpha);
        }
        Err(Error::Argument {
            what: "--rho".into(),
            found: format!("{}, with --lr {}", self.rho, self.server.train.lr),
            expected: "such that lr · rho lies between 0 and 1".into(),
        })
    }
}
