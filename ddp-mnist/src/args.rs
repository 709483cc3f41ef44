//! The command line.

use crate::comm_hook::CommHookArgs;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tch_parallel::Result;
use tch_parallel::data::{DataLoaderOptions, Mnist, Split, download};
use tch_parallel::distributed::{Backend, DdpOptions, DeviceChoice, ProcessGroupOptions};
use tch_parallel::optim::SgdOptions;

/// Trains a digit classifier on all ranks of a job, with PyTorch's DistributedDataParallel engine.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(
    version,
    args_override_self = true,
    after_help = "Examples:
  ddp-mnist --epochs 3                                          one process, on a GPU if there is one
  launch -n 2 ddp-mnist --lr 0.05 --momentum 0.9                two processes, each with half of the samples
  launch -n 2 ddp-mnist --download --metrics run                all of MNIST; what each rank does in run/*.jsonl
  launch -n 4 ddp-mnist --comm-hook fp16                        gradients sent with half the bytes"
)]
pub struct Args {
    /// How often to go through the training set.
    #[arg(long, default_value_t = 10)]
    pub epochs: u64,
    /// Samples in a batch, on each rank.
    #[arg(long, default_value_t = 128, value_parser = positive)]
    pub batch_size: usize,
    /// The learning rate.
    #[arg(long, default_value_t = 0.01)]
    pub lr: f64,
    /// How much of the last step is kept in the next.
    #[arg(long, default_value_t = 0.0)]
    pub momentum: f64,
    /// How strongly weights are drawn to zero.
    #[arg(long, default_value_t = 0.0)]
    pub weight_decay: f64,
    /// Whether to look ahead along the momentum.
    #[arg(long)]
    pub nesterov: bool,
    /// Rank r seeds weights and dropout with this plus r.
    #[arg(long, default_value_t = 0)]
    pub seed: i64,
    /// Seeds the order of the samples, the same on every rank.
    #[arg(long, default_value_t = 42)]
    pub sampler_seed: u64,
    /// Go through the samples in their order.
    #[arg(long)]
    pub no_shuffle: bool,

    /// What to learn.
    #[arg(long, value_enum, default_value_t = Dataset::Mnist)]
    pub dataset: Dataset,
    /// Where the IDX files lie; by default 10,000 of MNIST's digits that are part of the program.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Fetch all 70,000 digits of MNIST first.
    #[arg(long, conflicts_with = "data_dir")]
    pub download: bool,
    /// Threads that make batches ahead; 0 makes them in the training loop.
    #[arg(long, default_value_t = 2)]
    pub workers: usize,

    /// Where to train: cpu, cuda or auto.
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,
    /// Who moves gradients: gloo or nccl; by default nccl for cuda.
    #[arg(long)]
    pub backend: Option<Backend>,
    /// Seconds to wait for another rank.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,

    /// Where rank 0 puts the weights at the end.
    #[arg(long, default_value = "model.safetensors")]
    pub save: PathBuf,
    /// Keep no weights.
    #[arg(long)]
    pub no_save: bool,
    /// Begin with these weights.
    #[arg(long)]
    pub load: Option<PathBuf>,
    /// A directory for the losses of every step, as JSON lines, a file for each rank.
    #[arg(long)]
    pub metrics: Option<PathBuf>,

    /// MiB of gradients to exchange at once; by default 25, and 1 the first time.
    #[arg(long)]
    pub bucket_cap_mb: Option<f64>,
    /// Look for parameters that take no part in a loss.
    #[arg(long)]
    pub find_unused_parameters: bool,
    /// Let gradients be views into the buckets.
    #[arg(long)]
    pub gradient_as_bucket_view: bool,
    /// Rely on the graph being the same in every step.
    #[arg(long)]
    pub static_graph: bool,
    /// Do not send rank 0's buffers before each step.
    #[arg(long)]
    pub no_broadcast_buffers: bool,
    #[command(flatten)]
    pub comm_hook: CommHookArgs,
}

/// Ten classes of 28 by 28 grey pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dataset {
    /// Handwritten digits.
    Mnist,
    /// Clothes; Debian's package dataset-fashion-mnist has all 70,000.
    FashionMnist,
}

impl Args {
    /// The training set and the test set.
    pub fn data(&self) -> Result<(Mnist, Mnist)> {
        let directory = match (&self.data_dir, self.download, self.dataset) {
            (Some(directory), ..) => Some(directory.clone()),
            (None, true, Dataset::Mnist) => Some(download::mnist()?),
            _ => None,
        };
        let split = |split| match (&directory, self.dataset) {
            (Some(directory), _) => Mnist::from_dir(directory, split),
            (None, Dataset::Mnist) => Mnist::embedded(split),
            (None, Dataset::FashionMnist) => Mnist::fashion(split),
        };
        Ok((split(Split::Train)?, split(Split::Test)?))
    }

    pub fn process_group(&self) -> ProcessGroupOptions {
        ProcessGroupOptions {
            backend: self.backend,
            device: self.device,
            timeout: Duration::from_secs(self.timeout),
        }
    }

    /// `pinned`: whether batches go to a GPU.
    pub fn loader(&self, pinned: bool) -> DataLoaderOptions {
        DataLoaderOptions {
            batch_size: self.batch_size,
            num_workers: self.workers,
            pin_memory: pinned,
            ..Default::default()
        }
    }

    pub fn ddp(&self) -> DdpOptions {
        DdpOptions {
            bucket_cap_mb: self.bucket_cap_mb,
            find_unused_parameters: self.find_unused_parameters,
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            static_graph: self.static_graph,
            broadcast_buffers: !self.no_broadcast_buffers,
        }
    }

    pub fn sgd(&self) -> SgdOptions {
        SgdOptions {
            lr: self.lr,
            momentum: self.momentum,
            weight_decay: self.weight_decay,
            nesterov: self.nesterov,
            ..Default::default()
        }
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a batch holds at least 1 sample".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}; expected a whole number from 1")),
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
