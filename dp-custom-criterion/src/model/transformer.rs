//! One block of the transformer: every position attends to all others, and is then processed alone.

use super::ModelOptions;
use tch::nn::{self, Linear, Module, ModuleT, Path, SequentialT};
use tch::{Kind, Tensor};
use tch_parallel::nn::{LinearOptions, linear};

/// codertimo's `TransformerBlock`. It normalises before each layer (pre-norm), where the paper's BERT
/// normalises after the sum.
#[derive(Debug)]
pub struct TransformerBlock {
    input_norm: LayerNorm,
    attention: Attention,
    output_norm: LayerNorm,
    feed_forward: SequentialT,
    dropout: f64,
}

impl TransformerBlock {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        let norm = |name: &str| LayerNorm::new(&(path / name / "norm"), options.hidden);
        Self {
            attention: Attention::new(&(path / "attention"), options),
            feed_forward: feed_forward(&(path / "feed_forward"), options),
            input_norm: norm("input_sublayer"),
            output_norm: norm("output_sublayer"),
            dropout: options.dropout,
        }
    }

    /// `[batch, seq_len, hidden]` to the same; `mask` as in [`Attention::forward_t`]. A layer's input is
    /// added to its output, codertimo's `SublayerConnection`.
    pub fn forward_t(&self, x: &Tensor, mask: &Tensor, train: bool) -> Tensor {
        let attention = self.attention.forward_t(&self.input_norm.forward(x), mask, train);
        let x = x + attention.dropout(self.dropout, train);
        let feed_forward = self.feed_forward.forward_t(&self.output_norm.forward(&x), train);
        let x = x + feed_forward.dropout(self.dropout, train);
        x.dropout(self.dropout, train)
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

/// The score of a masked position: its softmax is 0.
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
        let weights = scores.softmax(-1, None::<Kind>).dropout(self.dropout, train);
        let seen = weights.matmul(&value).transpose(1, 2).contiguous().view([batch, -1, hidden]);
        self.output_linear.forward(&seen)
    }
}

/// codertimo's `PositionwiseFeedForward`: two layers, the first four times as wide as the vectors.
fn feed_forward(path: &Path<'_>, options: &ModelOptions) -> SequentialT {
    let (narrow, wide, dropout) = (options.hidden, 4 * options.hidden, options.dropout);
    nn::seq_t()
        .add(linear(path / "w_1", narrow, wide, LinearOptions::default()))
        .add_fn(gelu)
        .add_fn_t(move |x, train| x.dropout(dropout, train))
        .add(linear(path / "w_2", wide, narrow, LinearOptions::default()))
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
