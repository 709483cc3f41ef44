//! The flags of a training: data, network, recipe, and where results go.

use super::data::DataArgs;
use super::recipe::RecipeArgs;
use crate::layout::channels_last;
use anyhow::Result;
use clap::value_parser;
use ddp_imagenet::models::Arch;
use report::{ProcessGroupArgs, ReportArgs, Resume};
use std::ops::Range;
use std::path::PathBuf;
use tch::Tensor;

#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Network: resnet18, 34, 50, 101 or 152; pyramidnet, the tutorial's; or pyramidnet110_a270,
    /// pyramidnet164_a270_bn …, of any depth and α, with bottlenecks or without.
    #[arg(short, long, default_value = "resnet18")]
    pub arch: Arch,
    /// Normalise over the batches of all ranks (SyncBatchNorm).
    #[arg(long)]
    pub sync_bn: bool,
    /// Store the channels of a pixel side by side, which suits a GPU's tensor cores.
    #[arg(long)]
    pub channels_last: bool,
    /// Find parameters that the loss does not depend on, which would otherwise be an error.
    #[arg(long)]
    pub find_unused_parameters: bool,
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Seed of the images' order, and on rank r, plus r, of the weights [default: 0]. If given, cuDNN
    /// takes only deterministic algorithms, which may be slower.
    #[arg(long)]
    pub seed: Option<u64>,

    /// Resume from this checkpoint, with any number of ranks; auto: from that of --checkpoint-dir,
    /// if there is one; with --evaluate, there must be one.
    #[arg(long, value_name = "PATH|auto")]
    pub resume: Option<Resume>,
    /// Start at epoch N, without a checkpoint.
    #[arg(long, default_value_t = 0, conflicts_with = "resume")]
    pub start_epoch: u64,
    /// Validate the model without training it.
    #[arg(short, long)]
    pub evaluate: bool,
    /// Directory in which rank 0 saves checkpoint.safetensors and model_best.safetensors.
    #[arg(long, value_name = "DIR", default_value = ".")]
    checkpoint_dir: PathBuf,
    /// Save every N batches as well as after each epoch.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    save_every: Option<u32>,

    /// Print a line every N batches.
    #[arg(short, long, default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    print_freq: u32,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Stop each epoch, and each validation, after N batches.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    steps: Option<u32>,

    #[command(flatten)]
    pub process_group: ProcessGroupArgs,
}

impl TrainArgs {
    /// The images in the memory format that the flags ask for.
    pub fn layout(&self, images: Tensor) -> Result<Tensor> {
        if self.channels_last { channels_last(&images) } else { Ok(images) }
    }

    /// The file from which a training resumes.
    pub fn checkpoint(&self) -> PathBuf {
        self.checkpoint_dir.join("checkpoint.safetensors")
    }

    /// The file with the weights of the best epoch.
    pub fn model_best(&self) -> PathBuf {
        self.checkpoint_dir.join("model_best.safetensors")
    }

    /// How many of a loader's batches are used.
    pub fn steps(&self, batches: usize) -> usize {
        self.steps.map_or(batches, |steps| batches.min(steps as usize))
    }

    /// Whether the line of batch number `step`, from 0, is printed.
    pub fn prints(&self, step: usize) -> bool {
        step.is_multiple_of(self.print_freq as usize)
    }

    /// Whether to save a checkpoint after the step of these batches. Between the batches of a step
    /// there is nothing to save.
    pub fn saves(&self, batches: Range<usize>) -> bool {
        let due = |every: usize| batches.start / every != batches.end / every;
        self.save_every.is_some_and(|every| due(every as usize))
    }
}
