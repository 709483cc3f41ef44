//! What goes around an attention and around a feed-forward network.

use super::ModelOptions;
use super::layer_norm::LayerNorm;
use tch::Tensor;
use tch::nn::Path;

/// codertimo's `SublayerConnection`. It normalises before the layer (pre-norm), where the paper's
/// BERT does so after the sum.
#[derive(Debug)]
pub struct Sublayer {
    norm: LayerNorm,
    dropout: f64,
}

impl Sublayer {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        Self { norm: LayerNorm::new(&(path / "norm"), options.hidden), dropout: options.dropout }
    }

    /// `x + dropout(layer(norm(x)))`
    pub fn forward_t(&self, x: &Tensor, layer: impl Fn(&Tensor) -> Tensor, train: bool) -> Tensor {
        x + layer(&self.norm.forward(x)).dropout(self.dropout, train)
    }
}
