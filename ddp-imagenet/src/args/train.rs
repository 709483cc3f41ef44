//! The flags of a training: data, network, recipe, and where results go.

use super::data::{DataArgs, Source};
use super::recipe::RecipeArgs;
use ddp_imagenet::models::Arch;
use report::{ProcessGroupArgs, ReportArgs, Resume, positive, say};
use std::{ops::Range, path::PathBuf};
use tch::Tensor;
use tch_parallel::data::{DataLoaderOptions, DistributedSampler, Shard};
use tch_parallel::distributed::{DdpOptions, ProcessGroup};
use tch_parallel::nn::{NormLayer, channels_last};
use tch_parallel::{Error, Result, backends::cudnn};

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
    /// Compute what N ranks would, to the bit, on any smaller number of ranks. The batch size is that of
    /// all of them together.
    #[arg(long, value_name = "N", value_parser = positive(), conflicts_with_all = ["accumulate", "sync_bn", "skip_bad"])]
    pub virtual_ranks: Option<usize>,
    /// Go on in the same processes when a rank is lost, and take in the one that `launch
    /// --max-restarts` starts in its place. The batch of all ranks together keeps its size.
    #[arg(long, conflicts_with_all = ["accumulate", "sync_bn", "zero", "skip_bad", "evaluate"])]
    pub elastic: bool,
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
    /// Save every N batches as well as after each epoch. Not with --skip-bad, which shifts where a resumed epoch goes on.
    #[arg(long, value_name = "N", value_parser = positive(), conflicts_with = "skip_bad")]
    save_every: Option<usize>,

    /// Print a line every N batches.
    #[arg(short, long, default_value_t = 10, value_parser = positive())]
    pub print_freq: usize,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Stop each epoch, and each validation, after N batches.
    #[arg(long, value_name = "N", value_parser = positive())]
    pub steps: Option<usize>,

    #[command(flatten)]
    pub process_group: ProcessGroupArgs,
}

impl TrainArgs {
    /// Lets cuDNN try which algorithms are fastest, as main.py does, unless the run is to be repeatable.
    pub fn choose_algorithms(&self) {
        let is_repeatable = self.seed.is_some() || self.virtual_ranks.is_some();
        cudnn::set_deterministic(is_repeatable);
        cudnn::set_benchmark(!is_repeatable);
    }

    /// Says what a user may not expect.
    pub fn announce(&self, group: &ProcessGroup) {
        if self.data.source() == Source::Synthetic {
            say(group, "=> Dummy data is used: noise, from which nothing can be learnt");
        }
        if group.device().is_cuda() && self.seed.is_some() {
            let why = "cuDNN takes only deterministic algorithms, which may be much slower";
            say(group, format!("=> --seed: {why}"));
        }
    }

    /// The model's normalisation, over the batch of this rank or of all ranks.
    pub fn norm_layer(&self, group: &ProcessGroup) -> NormLayer {
        if self.sync_bn { NormLayer::SyncBatchNorm(group.clone()) } else { NormLayer::BatchNorm }
    }

    pub fn ddp(&self) -> Result<DdpOptions> {
        Ok(DdpOptions {
            comm_hook: self.recipe.comm_hook.hook()?,
            find_unused_parameters: self.find_unused_parameters,
            virtual_ranks: self.virtual_ranks,
            ..Default::default()
        })
    }

    /// The images of this rank, and how it loads their batches. A collective.
    pub fn share(
        &self,
        group: &ProcessGroup,
        options: &DataLoaderOptions,
    ) -> Result<(DistributedSampler, DataLoaderOptions)> {
        let shard = Shard::from(group).with_virtual_ranks(self.virtual_ranks)?;
        let mut options = options.clone();
        // The ranks of a host divide its batch. All use the smallest share, and so have equally many batches.
        let smallest = group.all_gather_object(&options.batch_size)?.into_iter().min();
        options.batch_size = smallest.unwrap_or(options.batch_size);
        if let Some(count) = self.virtual_ranks {
            let batch_size = self.data.batch_size;
            if batch_size < count {
                let expected = format!("at least {count}, an image for each virtual rank");
                return Err(Error::argument("--batch-size", batch_size, expected));
            }
            options.batch_size = batch_size / count * shard.parts();
        }
        Ok((DistributedSampler::new(shard, self.seed.unwrap_or(0)), options))
    }

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

    /// Whether to save a checkpoint after the step of these batches. Between the batches of a step
    /// there is nothing to save.
    pub fn saves(&self, batches: Range<usize>) -> bool {
        self.save_every.is_some_and(|every| batches.start / every != batches.end / every)
    }
}
