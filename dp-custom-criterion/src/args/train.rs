//! The training.

use super::{method::MethodArgs, text::TextArgs};
use crate::model::ModelOptions;
use anyhow::{Result, ensure};
use clap::{builder::PossibleValuesParser, builder::TypedValueParser, value_parser};
use report::ReportArgs;
use std::path::PathBuf;
use tch::Kind;
use tch_parallel::{Error, data::DataLoaderOptions, optim::AdamOptions};

#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub method: MethodArgs,
    #[command(flatten)]
    pub text: TextArgs,
    /// Save the weights to this file after each epoch, in PyTorch's format if it ends in .pt or .pth.
    #[arg(short, long, visible_alias = "output-path")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub model: ModelOptions,

    /// Pairs per batch, for all devices and ranks together. An incomplete last batch of an epoch is dropped.
    #[arg(short, long, default_value_t = 64, value_parser = value_parser!(u64).range(1..))]
    batch_size: u64,
    /// Number of passes over the corpus.
    #[arg(short, long, default_value_t = 10)]
    pub epochs: u64,
    /// Stop after N steps, even mid-epoch.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Threads that load batches ahead; 0 loads them in the training loop.
    #[arg(short, long, visible_alias = "num-workers", default_value_t = 0)]
    workers: usize,
    /// Seed of weights, dropout and masking.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Weight decay (L2 penalty).
    #[arg(long, default_value_t = 0.01)]
    adam_weight_decay: f64,
    /// Adam's decay rate of the mean of past gradients.
    #[arg(long, default_value_t = 0.9)]
    adam_beta1: f64,
    /// Adam's decay rate of the mean of their squares.
    #[arg(long, default_value_t = 0.999)]
    adam_beta2: f64,
    /// Learn from the words alone: the loss of the next sentence is only shown, and its head gets no gradient.
    #[arg(long)]
    pub no_next_sentence: bool,
    /// Steps of warm-up, after which the learning rate falls; a short run learns more with 100.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    warmup: u64,
    /// Train in mixed precision, with floats of 16 bits: bf16 has the range of 32-bit floats with 8 bits of precision.
    #[arg(long, value_parser = PossibleValuesParser::new(["bf16"]).map(|_bf16| Kind::BFloat16))]
    pub amp: Option<Kind>,

    /// Print a line every N steps.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    pub log_freq: u64,
    #[command(flatten)]
    pub report: ReportArgs,
}

impl TrainArgs {
    /// How a rank loads its share of each batch, as in PyTorch's ImageNet example, where `--batch-size` is the total of
    /// a host. `pairs`, the size of the corpus, must fill a batch, and the ranks must be able to share one evenly.
    pub fn loader(&self, pairs: usize, ranks: usize, on_gpu: bool) -> Result<DataLoaderOptions> {
        let batch_size = self.batch_size as usize;
        let at_most = format!("at most {pairs}, the pairs of the corpus");
        ensure!(batch_size <= pairs, Error::argument("--batch-size", batch_size, at_most));
        let multiple = format!("a multiple of {ranks}, the ranks that share a batch");
        let is_shared = batch_size.is_multiple_of(ranks);
        ensure!(is_shared, Error::argument("--batch-size", batch_size, multiple));
        Ok(DataLoaderOptions {
            batch_size: batch_size / ranks,
            num_workers: self.workers,
            // A small last batch may hold no pair that counts, and then has no loss.
            drop_last: true,
            pin_memory: on_gpu,
            ..Default::default()
        })
    }

    pub fn adam(&self) -> AdamOptions {
        let betas = (self.adam_beta1, self.adam_beta2);
        AdamOptions { betas, weight_decay: self.adam_weight_decay, ..Default::default() }
    }

    /// The learning rate of step number `step`, counted from 1.
    ///
    /// codertimo's `ScheduledOptim`, after "Attention is all you need": the rate grows in proportion to the step, then
    /// falls with its square root, and larger models take smaller steps. He sets it before every step, so his flag
    /// `--lr`, the optimizer's initial rate, has no effect.
    pub fn lr(&self, step: u64) -> f64 {
        let (step, warmup) = (step as f64, self.warmup as f64);
        (self.model.hidden as f64).powf(-0.5) * step.powf(-0.5).min(warmup.powf(-1.5) * step)
    }
}
