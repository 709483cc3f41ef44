//! One block of the transformer: every position looks at all others, and is then worked on alone.

use super::ModelOptions;
use tch::nn::{Linear, Module, Path};
use tch::{Kind, Tensor};
use tch_parallel::nn::{LinearOptions, linear};

/// codertimo's `TransformerBlock`.
#[derive(Debug)]
pub struct TransformerBlock {
    attention: Attention,
    feed_forward: FeedForward,
    input_sublayer: Sublayer,
    output_sublayer: Sublayer,
    dropout: f64,
}

impl TransformerBlock {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        Self {
            attention: Attention::new(&(path / "attention"), options),
            feed_forward: FeedForward::new(&(path / "feed_forward"), options),
            input_sublayer: Sublayer::new(&(path / "input_sublayer"), options),
            output_sublayer: Sublayer::new(&(path / "output_sublayer"), options),
            dropout: options.dropout,
        }
    }

    /// `[batch, seq_len, hidden]` to the same; `mask` as in [`Attention::forward_t`].
    pub fn forward_t(&self, x: &Tensor, mask: &Tensor, train: bool) -> Tensor {
        let attention = |x: &Tensor| self.attention.forward_t(x, mask, train);
        let feed_forward = |x: &Tensor| self.feed_forward.forward_t(x, train);
        let x = self.input_sublayer.forward_t(x, attention, train);
        let x = self.output_sublayer.forward_t(&x, feed_forward, train);
        x.dropout(self.dropout, train)
    }
}

/// codertimo's `SublayerConnection`. It normalises before the layer (pre-norm), where the paper's
/// BERT does so after the sum.
#[derive(Debug)]
struct Sublayer {
    norm: LayerNorm,
    dropout: f64,
}

impl Sublayer {
    fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        Self { norm: LayerNorm::new(&(path / "norm"), options.hidden), dropout: options.dropout }
    }

    /// `x + dropout(layer(norm(x)))`
    fn forward_t(&self, x: &Tensor, layer: impl Fn(&Tensor) -> Tensor, train: bool) -> Tensor {
        x + layer(&self.norm.forward(x)).dropout(self.dropout, train)
    }
}

/// Added to the standard deviation, where PyTorch's `nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-6;

/// codertimo's `LayerNorm`: `a_2 * (x - mean) / (std + eps) + b_2`, with the unbiased deviation
/// (divided by n - 1), where `nn.LayerNorm` has the biased one.
#[derive(Debug)]
struct LayerNorm {
    a_2: Tensor,
    b_2: Tensor,
}

impl LayerNorm {
    fn new(path: &Path<'_>, features: i64) -> Self {
        Self { a_2: path.ones("a_2", &[features]), b_2: path.zeros("b_2", &[features]) }
    }

    /// Normalises the last dimension, which has `features` values.
    fn forward(&self, x: &Tensor) -> Tensor {
        let (unbiased, keepdim) = (true, true);
        let mean = x.mean_dim(-1, keepdim, x.kind());
        let std = x.std_dim(-1, unbiased, keepdim);
        &self.a_2 * (x - mean) / (std + EPS) + &self.b_2
    }
}

/// What takes the place of a score that nobody may see: its softmax is 0.
const MASKED: f64 = -1e9;

/// codertimo's `MultiHeadedAttention`: several scaled dot products side by side.
#[derive(Debug)]
struct Attention {
    /// Of queries, keys and values.
    linear_layers: [Linear; 3],
    output_linear: Linear,
    heads: i64,
    dropout: f64,
}

impl Attention {
    fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
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
    fn forward_t(&self, x: &Tensor, mask: &Tensor, train: bool) -> Tensor {
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

/// codertimo's `PositionwiseFeedForward`: two layers, the first four times as wide as the vectors.
#[derive(Debug)]
struct FeedForward {
    w_1: Linear,
    w_2: Linear,
    dropout: f64,
}

impl FeedForward {
    fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        let (narrow, wide) = (options.hidden, 4 * options.hidden);
        Self {
            w_1: linear(path / "w_1", narrow, wide, LinearOptions::default()),
            w_2: linear(path / "w_2", wide, narrow, LinearOptions::default()),
            dropout: options.dropout,
        }
    }

    /// `[batch, seq_len, hidden]` to the same.
    fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        self.w_2.forward(&gelu(&self.w_1.forward(x)).dropout(self.dropout, train))
    }
}

/// codertimo's `GELU`. He writes the approximation out, and so does this: `gelu("tanh")` is one
/// operation, which rounds differently and keeps less in memory for the backward pass.
fn gelu(x: &Tensor) -> Tensor {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    let inner: Tensor = x + 0.044715 * x.pow_tensor_scalar(3);
    0.5 * x * (1.0 + (scale * inner).tanh())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn::VarStore};

    #[test]
    fn the_deviation_is_the_unbiased_one() {
        let vs = VarStore::new(Device::Cpu);
        let norm = LayerNorm::new(&vs.root(), 2);
        // The deviation of -1 and 1 is √2 if unbiased, else 1.
        let y = Vec::<f32>::try_from(norm.forward(&Tensor::from_slice(&[-1f32, 1.0]))).unwrap();
        // The eps shifts the last digits.
        assert!((y[1] - 0.5f32.sqrt()).abs() < 1e-6, "{y:?}");
        assert_eq!(y[0], -y[1]);
    }

    #[test]
    fn a_constant_row_becomes_zero() {
        let vs = VarStore::new(Device::Cpu);
        let norm = LayerNorm::new(&vs.root(), 3);
        let y = norm.forward(&Tensor::from_slice(&[5f32, 5.0, 5.0]));
        assert_eq!(Vec::<f32>::try_from(y).unwrap(), [0.0; 3]);
    }

    #[test]
    fn gelu_is_pytorchs_but_for_rounding() {
        let x = Tensor::linspace(-4, 4, 101, (Kind::Float, Device::Cpu));
        // A few roundings of an f32 below 4.
        assert!(gelu(&x).allclose(&x.gelu("tanh"), 1e-6, 1e-6, false));
    }
}
