//! Which network.

use crate::layout::channels_last;
use anyhow::Result;
use ddp_imagenet::models::Arch;
use tch::Tensor;

#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
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
}

impl ModelArgs {
    /// The images in the memory format that the flags ask for.
    pub fn layout(&self, images: Tensor) -> Result<Tensor> {
        if self.channels_last { channels_last(&images) } else { Ok(images) }
    }
}
