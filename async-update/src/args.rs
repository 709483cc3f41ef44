//! The flags that several methods have; those of a single one stand with it in `methods`.

use report::{MnistArgs, positive};
use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};
use tch_parallel::distributed::{DeviceChoice, Env, ProcessGroupOptions};
use tch_parallel::{Error, Result, data::Mnist};

/// What all methods have in common.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// Passes over the training set, shared by all workers.
    #[arg(long, default_value_t = 3, value_parser = positive())]
    pub epochs: usize,
    /// Batch size of each worker.
    #[arg(long, default_value_t = 32, value_parser = positive())]
    pub batch_size: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = rate)]
    pub lr: f64,
    /// Seed of the initial weights.
    #[arg(long, default_value_t = 0)]
    pub seed: i64,

    /// Device of the gradients: cpu, cuda or auto. θ, and what workers exchange, is on the CPU, where
    /// every byte can be counted. cuda requires the feature `cuda`, with which `cargo launch` and `cargo
    /// xtask run` build on a machine with a GPU.
    #[arg(long, default_value = "cpu")]
    pub device: DeviceChoice,
    /// Minimum time for a gradient in milliseconds, as if each worker had its own device.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    step_time: u64,
    /// Slow down a rank by MS milliseconds per gradient; may be given several times.
    #[arg(long, value_name = "RANK:MS", value_parser = straggler)]
    straggle: Vec<(usize, Duration)>,

    #[command(flatten)]
    data: MnistArgs,
    /// Write what happens in every step to this directory, as JSON lines, one file per rank.
    #[arg(long)]
    pub metrics: Option<PathBuf>,
    #[command(flatten)]
    pub meeting: MeetingArgs,
}

impl TrainArgs {
    /// The training set and the test set.
    pub fn data(&self) -> Result<(Arc<Mnist>, Arc<Mnist>)> {
        let (train_set, test_set) = self.data.load()?;
        Ok((Arc::new(train_set), Arc::new(test_set)))
    }

    /// How many batches all workers do together: every method sees the same number of samples.
    pub fn batches(&self, samples: usize) -> usize {
        // An IDX file counts its samples, and `positive` the epochs, with 32 bits.
        (samples * self.epochs).div_ceil(self.batch_size)
    }

    /// Rejects stragglers that do not exist, or do not train.
    pub fn check_stragglers(&self, workers: Range<usize>) -> Result<()> {
        let mut slow = self.straggle.iter().map(|(rank, _)| rank);
        let Some(wrong) = slow.find(|rank| !workers.contains(*rank)) else { return Ok(()) };
        let expected = format!("a rank that trains, from {} to {}", workers.start, workers.end - 1);
        Err(Error::argument("--straggle", format!("rank {wrong}"), expected))
    }

    /// The least time between the beginning of one of a rank's steps and its gradient.
    pub fn pace(&self, rank: usize) -> Duration {
        let delays = self.straggle.iter().filter(|(straggler, _)| *straggler == rank);
        Duration::from_millis(self.step_time) + delays.map(|(_, delay)| delay).sum::<Duration>()
    }
}

/// The flags of all commands that run on several ranks.
#[derive(Debug, clap::Args)]
pub struct MeetingArgs {
    /// Seconds to wait for another rank.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

impl MeetingArgs {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Exchanges are on the CPU, where every byte can be counted.
    pub fn process_group(&self) -> ProcessGroupOptions {
        let timeout = Some(self.timeout());
        ProcessGroupOptions { device: DeviceChoice::Cpu, timeout, ..Default::default() }
    }
}

/// The flags of the methods with a server.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Number of server ranks, each with an equal shard of θ; all other ranks are workers.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub servers: usize,
    #[command(flatten)]
    pub train: TrainArgs,
}

impl ServerArgs {
    /// This process's place in the job.
    pub fn place(&self) -> Result<Env> {
        let (env, servers) = (Env::read()?, self.servers);
        let ranks = env.as_ref().map_or(1, |env| env.world_size);
        env.filter(|_| servers < ranks).ok_or_else(|| {
            let expected = format!(
                "below the number of ranks, so that at least one is a worker: `cargo launch -n {} async-update -- …`",
                servers + 1
            );
            Error::argument("--servers", format!("{servers} in a world of {ranks}"), expected)
        })
    }

    /// The ranks that are workers; those before them are servers.
    pub fn workers(&self, env: &Env) -> Range<usize> {
        self.servers..env.world_size
    }
}

/// Parses a learning rate: 0 would learn nothing, and a negative one would raise the loss.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_rate = number.is_finite() && number > 0.0;
    is_rate.then_some(number).ok_or_else(|| format!("{number} is not a finite number above 0"))
}

/// Parses `RANK:MS`: a rank that is slower than the others, and how much longer each of its steps takes.
fn straggler(text: &str) -> Result<(usize, Duration), String> {
    let straggler = || {
        let (rank, ms) = text.split_once(':')?;
        Some((rank.parse().ok()?, Duration::from_millis(ms.parse().ok()?)))
    };
    straggler().ok_or_else(|| format!("expected RANK:MS, as in 3:40, and found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    #[test]
    fn a_straggler_is_slower_than_the_others() {
        let args: TrainArgs = parse_flags(["--step-time=10", "--straggle=3:40"]).unwrap();
        assert_eq!(args.pace(2), Duration::from_millis(10));
        assert_eq!(args.pace(3), Duration::from_millis(50));
    }

    #[test]
    fn what_is_no_straggler_is_refused() {
        for text in ["3", "3:", ":40", "3:-1", "a:40"] {
            let error = straggler(text).unwrap_err();
            assert_eq!(error, format!("expected RANK:MS, as in 3:40, and found {text:?}"));
        }
    }
}
