//! The command line.

use clap::Parser;
use report::{CommHookArgs, MnistArgs, ProcessGroupArgs, ReportArgs, Resume, positive};
use std::path::PathBuf;
use tch_parallel::{Result, data::DataLoaderOptions, distributed::DdpOptions, optim::SgdOptions};

/// Train a digit classifier on all ranks of a job, with PyTorch's DistributedDataParallel engine.
#[derive(Debug, Parser)]
// As in argparse, the last one counts if a flag is given twice.
#[command(
    version,
    args_override_self = true,
    after_help = "Examples:
  ddp-mnist --epochs 3                                          one process, on a GPU if there is one
  launch -n 2 ddp-mnist --lr 0.05 --momentum 0.9                two ranks, each with half of the samples
  launch -n 2 ddp-mnist --download --metrics run                all of MNIST; every step's loss in run/*.jsonl
  launch -n 4 ddp-mnist --comm-hook fp16                        gradients exchanged in 16 bits
  launch -n 2 --max-restarts 3 ddp-mnist --checkpoint c.safetensors --resume auto"
)]
pub struct Args {
    /// Number of passes over the training set.
    #[arg(long, default_value_t = 10)]
    pub epochs: u64,
    /// Batch size per rank.
    #[arg(long, default_value_t = 128, value_parser = positive())]
    pub batch_size: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.01, allow_negative_numbers = true)]
    pub lr: f64,
    /// Momentum.
    #[arg(long, default_value_t = 0.0)]
    pub momentum: f64,
    /// Weight decay (L2 penalty).
    #[arg(long, default_value_t = 0.0)]
    pub weight_decay: f64,
    /// Use Nesterov momentum.
    #[arg(long)]
    pub nesterov: bool,
    /// Seed of weights and dropout; rank r adds r.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub seed: i64,
    /// Seed of the order of the samples, the same on every rank.
    #[arg(long, default_value_t = 42)]
    pub sampler_seed: u64,
    /// Do not shuffle the samples.
    #[arg(long)]
    pub no_shuffle: bool,

    #[command(flatten)]
    pub data: MnistArgs,
    /// Threads that load batches ahead; 0 loads them in the training loop. By default 2 with a GPU;
    /// on the CPU 0, because the ranks keep its cores busy.
    #[arg(long, visible_alias = "num-workers")]
    pub workers: Option<usize>,

    #[command(flatten)]
    pub process_group: ProcessGroupArgs,
    /// Go on in the same processes when a rank is lost, and take in the one that `launch
    /// --max-restarts` starts in its place. The batch of all ranks together stays as large.
    #[arg(long, conflicts_with = "load")]
    pub elastic: bool,
    /// Compute what N ranks would, to the bit, on any smaller number of ranks, which may be lost and
    /// replaced as with --elastic. The batch size is that of each of the N.
    #[arg(long, value_name = "N", conflicts_with = "load", value_parser = positive())]
    pub virtual_ranks: Option<usize>,

    /// File to which rank 0 saves the weights at the end, in PyTorch's format if it ends in .pt or .pth.
    #[arg(long, value_name = "FILE", default_value = "model.safetensors")]
    pub save: PathBuf,
    /// Do not save the weights.
    #[arg(long)]
    pub no_save: bool,
    /// Start from the weights in this file.
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// File to which rank 0 saves the whole training after each epoch, to resume it.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Save the training every N steps as well.
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = positive())]
    pub save_every: Option<usize>,
    /// Resume from this checkpoint, with any number of ranks; auto: from that of --checkpoint, if it exists.
    #[arg(
        long,
        value_name = "FILE|auto",
        conflicts_with = "load",
        requires_if("auto", "checkpoint")
    )]
    pub resume: Option<Resume>,
    #[command(flatten)]
    pub report: ReportArgs,

    /// Size of a bucket of gradients in MiB; by default 25, with a first bucket of 1.
    #[arg(long)]
    pub bucket_cap_mb: Option<f64>,
    /// Find parameters that the loss does not depend on, which would otherwise be an error.
    #[arg(long)]
    pub find_unused_parameters: bool,
    /// Make gradients views into the buckets, which saves a copy.
    #[arg(long)]
    pub gradient_as_bucket_view: bool,
    /// Assume that the graph is the same in every step.
    #[arg(long)]
    pub static_graph: bool,
    /// Do not broadcast rank 0's buffers before each step.
    #[arg(long)]
    pub no_broadcast_buffers: bool,
    #[command(flatten)]
    pub comm_hook: CommHookArgs,
}

impl Args {
    /// `pin_memory`: whether batches are copied to a GPU.
    pub fn loader(&self, pin_memory: bool) -> DataLoaderOptions {
        let Self { batch_size, workers, .. } = *self;
        let num_workers = workers.unwrap_or(if pin_memory { 2 } else { 0 });
        DataLoaderOptions { batch_size, num_workers, pin_memory, ..Default::default() }
    }

    pub fn ddp(&self) -> Result<DdpOptions> {
        Ok(DdpOptions {
            bucket_cap_mb: self.bucket_cap_mb,
            find_unused_parameters: self.find_unused_parameters,
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            static_graph: self.static_graph,
            broadcast_buffers: !self.no_broadcast_buffers,
            comm_hook: self.comm_hook.hook()?,
            virtual_ranks: self.virtual_ranks,
            ..Default::default()
        })
    }

    pub fn sgd(&self) -> SgdOptions {
        let Self { lr, momentum, weight_decay, nesterov, .. } = *self;
        SgdOptions { lr, momentum, weight_decay, nesterov, ..Default::default() }
    }
}
