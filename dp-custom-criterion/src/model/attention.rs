//! Every position looks at all others.

use super::ModelOptions;
use tch::nn::{Linear, Module, Path};
use tch::{Kind, Tensor};
use tch_parallel::nn::{LinearOptions, linear};

/// What takes the place of a score that nobody may see: its softmax is 0.
const MASKED: f64 = -1e9;

/// codertimo's `MultiHeadedAttention`: several scaled dot products side by side.
#[derive(Debug)]
pub struct Attention {
    /// Of queries, keys and values.
    linear_layers: [Linear; 3],
    output_linear: Linear,
    heads: i64,
    dropout: f64,
}

impl Attention {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        let layer =
            |path: Path<'_>| linear(path, options.hidden, options.hidden, LinearOptions::default());
        Self {
            linear_layers: [0, 1, 2].map(|number| layer(path / "linear_layers" / number)),
            output_linear: layer(path / "output_linear"),
            heads: options.attn_heads,
            dropout: options.dropout,
        }
    }

    /// `x` is `[batch, seq_len, hidden]`, and so is the result; `mask`, `[batch, 1, seq_len,
    /// seq_len]`, is false where a position (row) must not look at another (column).
    pub fn forward_t(&self, x: &Tensor, mask: &Tensor, train: bool) -> Tensor {
        let batch = x.size()[0];
        let hidden = x.size()[2];
        let d_k = hidden / self.heads;
        // [batch, heads, seq_len, d_k]
        let [query, key, value] = self
            .linear_layers
            .each_ref()
            .map(|layer| layer.forward(x).view([batch, -1, self.heads, d_k]).transpose(1, 2));

        let scores = query.matmul(&key.transpose(-2, -1)) / (d_k as f64).sqrt();
        let scores = scores.masked_fill(&mask.eq(0), MASKED);
        let weights = scores.softmax(-1, Kind::Float).dropout(self.dropout, train);
        let seen = weights.matmul(&value).transpose(1, 2).contiguous().view([batch, -1, hidden]);
        self.output_linear.forward(&seen)
    }
}
