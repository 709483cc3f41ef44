//! The flags that all methods have.

use crate::pace::Straggler;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tch_parallel::Result;
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Shard, Split, download};
use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions};

/// What all methods have in common.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// Passes over the training set, shared by all workers.
    #[arg(long, default_value_t = 3, value_parser = count())]
    pub epochs: usize,
    /// Batch size of each worker.
    #[arg(long, default_value_t = 32, value_parser = count())]
    pub batch_size: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = positive)]
    pub lr: f64,
    /// Seed of the initial weights.
    #[arg(long, default_value_t = 0)]
    pub seed: i64,
    /// Seed of the order of the samples, the same on every rank.
    #[arg(long, default_value_t = 42)]
    pub sampler_seed: u64,

    /// Minimum time for a gradient in milliseconds, as if each worker had its own device.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub step_time: u64,
    /// Slow down a rank by MS milliseconds per gradient; may be given several times.
    #[arg(long, value_name = "RANK:MS")]
    pub straggle: Vec<Straggler>,

    /// Directory of MNIST's IDX files; by default 10,000 digits that are part of the program.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Download all 70,000 digits of MNIST first.
    #[arg(long, conflicts_with = "data_dir")]
    pub download: bool,
    /// Write what happens in every step to this directory, as JSON lines, one file per rank.
    #[arg(long)]
    pub metrics: Option<PathBuf>,
    #[command(flatten)]
    pub meeting: MeetingArgs,
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

    /// The minimum time for a gradient.
    pub fn step_time(&self) -> Duration {
        Duration::from_millis(self.step_time)
    }

    /// One worker's share of the data.
    pub fn loader(
        &self,
        data: &Arc<Mnist>,
        worker: Shard,
    ) -> Result<DataLoader<Arc<Mnist>, DistributedSampler>> {
        let sampler = DistributedSampler::new(worker, self.sampler_seed);
        DataLoader::new(Arc::clone(data), sampler, self.batch_size)
    }

    /// How many batches all workers do together: every method sees the same number of samples.
    pub fn batches(&self, samples: usize) -> usize {
        // An IDX file counts its samples, and `count` the epochs, with 32 bits.
        (samples * self.epochs).div_ceil(self.batch_size)
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
    /// On the CPU, where every byte can be counted.
    pub fn process_group(&self) -> ProcessGroupOptions {
        ProcessGroupOptions {
            device: DeviceChoice::Cpu,
            timeout: Duration::from_secs(self.timeout),
            ..Default::default()
        }
    }
}

/// Parses a count: at least 1, and within 32 bits, so that two counts can be multiplied.
pub fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=u32::MAX.into())
}

/// Parses a learning rate: 0 would learn nothing, and a negative one would raise the loss.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        Ok(number) => Err(format!("{number} is not a finite number above 0")),
        Err(error) => Err(error.to_string()),
    }
}
