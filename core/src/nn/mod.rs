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

mod attention;
mod batch_norm;
mod conv;
mod conv_transpose;
pub mod init;
mod layers;
mod norm_layer;
mod norms;
mod rnn;
mod sync_batch_norm;
mod transformer;
mod transformer_encoder;

pub use crate::parameters::{named_buffers, named_parameters};
pub use attention::masks::generate_square_subsequent_mask;
pub use attention::{
    AttentionOptions, MultiheadAttention, MultiheadAttentionOptions, multihead_attention,
};
pub use batch_norm::{
    BatchNorm, BatchNormOptions, RunningStats, batch_norm1d, batch_norm2d, batch_norm3d,
};
pub use conv::{Conv, Conv1d, Conv2d, Conv3d, ConvOptions, conv1d, conv2d, conv3d};
pub use conv_transpose::{
    ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeOptions,
    conv_transpose1d, conv_transpose2d, conv_transpose3d,
};
pub use layers::{EmbeddingOptions, LinearOptions, embedding, linear};
pub use norm_layer::NormLayer;
pub use norms::{GroupNormOptions, LayerNormOptions, group_norm, layer_norm};
pub use rnn::{Gru, Lstm, RnnOptions, gru, lstm};
pub use sync_batch_norm::{SyncBatchNorm, sync_batch_norm};
pub use transformer::{
    Activation, EncoderMasks, TransformerEncoderLayer, TransformerEncoderLayerOptions,
    transformer_encoder_layer,
};
pub use transformer_encoder::{TransformerEncoder, transformer_encoder};
