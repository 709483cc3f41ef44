//! The layers of [`tch_parallel_nn`], and batch normalisation over all ranks.

mod norm_layer;
mod sync_batch_norm;

pub use norm_layer::NormLayer;
pub use sync_batch_norm::{SyncBatchNorm, sync_batch_norm};
#[doc(inline)]
pub use tch_parallel_nn::*;
