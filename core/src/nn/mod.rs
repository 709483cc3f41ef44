//! Layers initialised exactly like PyTorch's: the same seed gives the same weights. And batch
//! normalisation over all ranks.
//!
//! If only the initial values differ, they are tch's own layer types.
//!
//! ```
//! use tch::{Device, nn::VarStore};
//! use tch_parallel::nn::{LinearOptions, linear};
//!
//! tch::manual_seed(0);
//! let vs = VarStore::new(Device::Cpu);
//! let layer = linear(vs.root() / "fc", 1, 1, LinearOptions::default());
//! // Python: torch.manual_seed(0); torch.nn.Linear(1, 1).weight is -0.0075
//! assert_eq!(format!("{:.4}", layer.ws.double_value(&[0, 0])), "-0.0075");
//! ```

mod batch_norm;
pub mod init;
mod layers;
mod norm_layer;
mod sync_batch_norm;

pub use crate::parameters::{named_buffers, named_parameters};
pub use batch_norm::{
    BatchNorm, BatchNormOptions, RunningStats, batch_norm1d, batch_norm2d, batch_norm3d,
};
pub use layers::{
    Conv2d, Conv2dOptions, EmbeddingOptions, LinearOptions, conv2d, embedding, linear,
};
pub use norm_layer::NormLayer;
pub use sync_batch_norm::{SyncBatchNorm, sync_batch_norm};
