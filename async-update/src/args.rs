//! The command line.

use crate::compare::CompareArgs;
use crate::pace::Straggler;
use crate::{cost, quadratic, ring, trace};
use clap::{Args as ClapArgs, Parser, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Shard, Split, download};
use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions};
use tch_parallel::{Error, Result};

/// Brings the gradients or parameters of several workers together in every way that the article
/// names, and measures what each costs.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(
    version,
    args_override_self = true,
    after_help = "Examples:
  launch -n 4 async-update ring                  four workers, their gradients summed around a ring
  launch -n 5 async-update async-ps              a server and four workers that wait for nobody
  launch -n 5 async-update ssp --straggle 4:40   the last worker takes 40 ms longer for a gradient
  async-update compare                           all methods, with equal workers and with a slow one
  async-update trace case1                       what the article's GPUs read and write"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// All ranks take the mean of their gradients with c10d's all_reduce.
    #[command(after_help = "Examples:
  launch -n 4 async-update sync-allreduce
  launch -n 4 async-update sync-allreduce --lr 0.4                a fourfold batch, a fourfold rate
  launch -n 4 async-update sync-allreduce --step-time 10 --straggle 3:40   all wait for the last")]
    SyncAllreduce(TrainArgs),
    /// Rank 0 collects all gradients, makes the update, and sends the model back.
    #[command(after_help = "Examples:
  launch -n 4 async-update sync-ps   and how many bytes go through rank 0")]
    SyncPs(TrainArgs),
    /// All ranks take the mean of their gradients, chunk by chunk, around a ring.
    Ring(RingArgs),
    /// Every rank makes its own steps; now and then all take the mean of their parameters.
    LocalSgd(LocalSgdArgs),
    /// First as sync-allreduce, and from some step on as local-sgd.
    PostLocal(PostLocalArgs),
    /// Workers fetch θ from a server and push gradients to it whenever they like (Downpour).
    AsyncPs(AsyncPsArgs),
    /// As async-ps, but no worker leads the slowest by more than a few updates.
    Ssp(SspArgs),
    /// Workers go their own ways, tied to a common centre that a server keeps.
    Easgd(EasgdArgs),
    /// Threads of one process change the same parameters, without a lock.
    Hogwild(HogwildArgs),
    /// Tells the article's two asynchronous stories, number by number.
    #[command(after_help = "Examples:
  async-update trace case1
  async-update trace case2")]
    Trace {
        #[command(subcommand)]
        story: trace::Story,
    },
    /// Measures what theory says of asynchronous updates, on a quadratic function.
    Quadratic(quadratic::Args),
    Compare(CompareArgs),
    /// Measures what a message costs, and predicts what an update costs with up to 10,000 ranks.
    Cost(cost::Args),
}

/// `ring` trains; with a subcommand it is looked at.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  launch -n 4 async-update ring         training
  async-update ring show --n 5          the article's figures, in letters
  launch -n 4 async-update ring check   are the sums those of all_reduce?"
)]
pub struct RingArgs {
    #[command(subcommand)]
    pub look: Option<RingCommand>,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, Subcommand)]
pub enum RingCommand {
    /// Shows which chunk of the gradient is where after each iteration.
    Show(ring::show::Args),
    /// Compares the ring's sums with those of all_reduce and a parameter server.
    Check(ring::check::Args),
}

#[derive(Debug, ClapArgs)]
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

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  launch -n 4 async-update post-local --start 50 --period 8")]
pub struct PostLocalArgs {
    /// Steps that all ranks make together first.
    #[arg(long, default_value_t = 50)]
    pub start: usize,
    #[command(flatten)]
    pub local: LocalSgdArgs,
}

#[derive(Debug, ClapArgs)]
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
#[derive(Debug, ClapArgs)]
pub struct ServerArgs {
    /// Ranks that keep θ, an equal shard each; all others are workers.
    #[arg(long, default_value_t = 1, value_parser = count)]
    pub servers: usize,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  launch -n 5 async-update async-ps                         each gradient from new parameters
  launch -n 5 async-update async-ps --n-fetch 5 --n-push 5   a fifth of the messages
  launch -n 6 async-update async-ps --servers 2             each server has half of the model
  launch -n 5 async-update async-ps --sync-every 8          all meet after every 8 updates")]
pub struct AsyncPsArgs {
    /// Batches that a worker does before it fetches θ again.
    #[arg(long, default_value_t = 1, value_parser = count)]
    pub n_fetch: usize,
    /// Batches whose gradients a worker pushes at once.
    #[arg(long, default_value_t = 1, value_parser = count)]
    pub n_push: usize,
    /// After so many updates each worker waits, when it next fetches, until all others have made as
    /// many.
    #[arg(long, value_name = "UPDATES", value_parser = count)]
    pub sync_every: Option<usize>,
    /// Divide the learning rate for a gradient by the number of updates that have overtaken it.
    #[arg(long)]
    pub staleness_aware: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, ClapArgs)]
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

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  launch -n 5 async-update easgd --tau 4 --rho 2")]
pub struct EasgdArgs {
    /// Batches that a worker does between two exchanges with the centre.
    #[arg(long, default_value_t = 4, value_parser = count)]
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

/// What all methods have in common.
#[derive(Debug, ClapArgs)]
pub struct TrainArgs {
    /// How often to go through the training set, all workers together.
    #[arg(long, default_value_t = 3, value_parser = count)]
    pub epochs: usize,
    /// Samples in a batch, for each worker.
    #[arg(long, default_value_t = 32, value_parser = count)]
    pub batch_size: usize,
    /// The learning rate.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = positive)]
    pub lr: f64,
    /// Seeds the weights.
    #[arg(long, default_value_t = 0)]
    pub seed: i64,
    /// Seeds the order of the samples, the same on every rank.
    #[arg(long, default_value_t = 42)]
    pub sampler_seed: u64,

    /// Milliseconds that computing a gradient takes at least, as if the worker had a device of its own.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub step_time: u64,
    /// A rank that takes so many milliseconds longer for each gradient; may be given several times.
    #[arg(long, value_name = "RANK:MS")]
    pub straggle: Vec<Straggler>,

    /// Where MNIST's IDX files lie; by default 10,000 digits that are part of the program.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Fetch all 70,000 digits of MNIST first.
    #[arg(long, conflicts_with = "data_dir")]
    pub download: bool,
    /// A directory for what happens in every step, as JSON lines, a file for each rank.
    #[arg(long)]
    pub metrics: Option<PathBuf>,
    /// Seconds to wait for another rank.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

impl TrainArgs {
    /// The training set and the test set.
    pub fn data(&self) -> Result<(Arc<Mnist>, Arc<Mnist>)> {
        let directory = match &self.data_dir {
            Some(directory) => Some(directory.clone()),
            None if self.download => Some(download::mnist()?),
            None => None,
        };
        let split = |split| match &directory {
            Some(directory) => Mnist::from_dir(directory, split),
            None => Mnist::embedded(split),
        };
        Ok((Arc::new(split(Split::Train)?), Arc::new(split(Split::Test)?)))
    }

    /// How long a gradient takes at least.
    pub fn step_time(&self) -> Duration {
        Duration::from_millis(self.step_time)
    }

    pub fn process_group(&self) -> ProcessGroupOptions {
        ProcessGroupOptions {
            device: DeviceChoice::Cpu,
            timeout: Duration::from_secs(self.timeout),
            ..Default::default()
        }
    }

    /// One worker's part of the data.
    pub fn loader(
        &self,
        data: &Arc<Mnist>,
        worker: Shard,
    ) -> Result<DataLoader<Arc<Mnist>, DistributedSampler>> {
        let sampler = DistributedSampler::new(worker, self.sampler_seed);
        DataLoader::new(Arc::clone(data), sampler, self.batch_size)
    }

    /// How many batches all workers do together, so that every method sees as many samples.
    pub fn batches(&self, samples: usize) -> usize {
        // An IDX file counts its samples, and `count` the epochs, with 32 bits.
        (samples * self.epochs).div_ceil(self.batch_size)
    }
}

/// How many of something: at least one, and no more than 32 bits count, so that two such numbers can
/// be multiplied.
pub fn count(text: &str) -> Result<usize, String> {
    const MOST: usize = u32::MAX as usize;
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(format!("{text} is not in 1..={MOST}")),
    }
}

/// A learning rate: with 0 nothing is learnt, and below it the loss is raised.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        Ok(number) => Err(format!("{number} is not a finite number above 0")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
