//! Which normalisation a model is built with: torchvision's `norm_layer`.

use super::{BatchNormOptions, batch_norm2d, sync_batch_norm::sync_batch_norm};
use crate::distributed::ProcessGroup;
use std::borrow::Borrow;
use tch::nn::{ModuleT, Path};

// ANCHOR: norm_layer
/// A model builder's argument that selects the normalisation layer.
#[derive(Debug, Clone, Default)]
pub enum NormLayer {
    /// Each replica or rank normalises its own part of the batch. `nn.BatchNorm2d`.
    #[default]
    BatchNorm,
    /// All ranks of the group normalise their batches as one. `nn.SyncBatchNorm`.
    SyncBatchNorm(ProcessGroup),
}

impl NormLayer {
    /// The layer for images `[N, num_features, H, W]`, with PyTorch's default options. `norm_layer(num_features)`
    pub fn build<'a>(&self, path: impl Borrow<Path<'a>>, num_features: i64) -> Box<dyn ModuleT> {
        let options = BatchNormOptions::default();
        match self {
            NormLayer::BatchNorm => Box::new(batch_norm2d(path, num_features, options)),
            NormLayer::SyncBatchNorm(group) => {
                Box::new(sync_batch_norm(path, num_features, group, options))
            }
        }
    }
}
// ANCHOR_END: norm_layer
