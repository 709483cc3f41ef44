//! Layers initialised exactly as PyTorch's are: the same seed gives the same weights. And a
//! normalisation over all ranks.
//!
//! They are tch's own layer types where only the drawing of the initial values differs.

mod batch_norm;
mod conv2d;
mod embedding;
pub mod init;
mod linear;
mod norm_layer;
mod sync_batch_norm;

pub use batch_norm::{BatchNorm, BatchNormOptions, RunningStats, batch_norm2d};
pub use conv2d::{Conv2d, Conv2dOptions, conv2d};
pub use embedding::{EmbeddingOptions, embedding};
pub use linear::{LinearOptions, linear};
pub use norm_layer::NormLayer;
pub use sync_batch_norm::{SyncBatchNorm, sync_batch_norm};
