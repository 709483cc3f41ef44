//! Layers initialised exactly like PyTorch's: the same seed gives the same weights.
//!
//! Programs use it as `tch_parallel::nn`, which adds batch normalisation over all ranks.
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

#![deny(missing_docs)]

mod attention;
mod batch_norm;
mod checkpoint_wrapper;
mod conv;
mod conv_transpose;
pub mod init;
mod layers;
mod memory_format;
mod norms;
mod rnn;
mod transformer;
mod transformer_encoder;
mod update_bn;

use tch_parallel_base::Result;

pub use attention::masks::generate_square_subsequent_mask;
pub use attention::{
    AttentionOptions, MultiheadAttention, MultiheadAttentionOptions, multihead_attention,
};
pub use batch_norm::{
    BatchNorm, BatchNormOptions, Inputs, RunningStats, batch_norm1d, batch_norm2d, batch_norm3d,
};
pub use checkpoint_wrapper::CheckpointWrapper;
pub use conv::{Conv, Conv1d, Conv2d, Conv3d, ConvOptions, conv1d, conv2d, conv3d};
pub use conv_transpose::{
    ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeOptions,
    conv_transpose1d, conv_transpose2d, conv_transpose3d,
};
pub use layers::{EmbeddingOptions, LinearOptions, embedding, linear};
pub use memory_format::{channels_last, channels_last_weights};
pub use norms::{GroupNormOptions, LayerNormOptions, group_norm, layer_norm};
pub use rnn::{Gru, Lstm, RnnOptions, gru, lstm};
pub use tch_parallel_base::parameters::{named_buffers, named_parameters};
pub use transformer::{
    Activation, EncoderMasks, TransformerEncoderLayer, TransformerEncoderLayerOptions,
    transformer_encoder_layer,
};
pub use transformer_encoder::{TransformerEncoder, transformer_encoder};
pub use update_bn::update_bn;
