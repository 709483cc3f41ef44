//! One block of the transformer: every position attends to all others, and is then processed alone.
//!
//! PyTorch's `TransformerEncoderLayer` would not do: codertimo's normalisation and GELU round
//! differently, and his attention draws its weights layer by layer.

use super::ModelOptions;
use tch::nn::{Module, ModuleT, Path, seq_t};
use tch::{Kind, Tensor};
use tch_parallel::nn::{CheckpointWrapper, LinearOptions, linear};

/// Makes one tensor of two, with dropout if it is to train.
pub type Layer = Box<dyn Fn((Tensor, Tensor), bool) -> Tensor + Send>;

/// codertimo's `TransformerBlock`: maps `[batch, seq_len, hidden]`, with an [`attention`]'s mask, to
/// the same shape. It normalises before each layer (pre-norm), where the paper's BERT normalises after
/// the sum. A layer's input is added to its output, codertimo's `SublayerConnection`.
pub fn transformer_block(path: &Path<'_>, options: &ModelOptions) -> Layer {
    let ModelOptions { hidden, dropout, .. } = *options;
    let attention = attention(&(path / "attention"), options);
    let feed_forward = feed_forward(&(path / "feed_forward"), options);
    let input_norm = layer_norm(&(path / "input_sublayer" / "norm"), hidden);
    let output_norm = layer_norm(&(path / "output_sublayer" / "norm"), hidden);
    let block: Layer = Box::new(move |(x, mask), train| {
        let x = &x + attention((input_norm(&x), mask), train).dropout(dropout, train);
        let x = &x + feed_forward.forward_t(&output_norm(&x), train).dropout(dropout, train);
        x.dropout(dropout, train)
    });
    if !options.checkpoint_activations {
        return block;
    }
    let block = CheckpointWrapper::new(block);
    Box::new(move |inputs, train| block.call(inputs, move |block, inputs| block(inputs, train)))
}

/// Added to the standard deviation, where PyTorch's `nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-6;

/// codertimo's `LayerNorm` of the last dimension, which has `features` values: `a_2 * (x - mean) / (std + eps) + b_2`,
/// with the unbiased deviation (divided by n - 1), where `nn.LayerNorm` has the biased one.
fn layer_norm(path: &Path<'_>, features: i64) -> impl Fn(&Tensor) -> Tensor + Send + use<> {
    let (a_2, b_2) = (path.ones("a_2", &[features]), path.zeros("b_2", &[features]));
    move |x| {
        let (unbiased, keepdim) = (true, true);
        let mean = x.mean_dim(-1, keepdim, x.kind());
        let std = x.std_dim(-1, unbiased, keepdim);
        &a_2 * (x - mean) / (std + EPS) + &b_2
    }
}

/// The score of a masked position: its softmax is 0.
const MASKED: f64 = -1e9;

/// codertimo's `MultiHeadedAttention`: several scaled dot products side by side.
///
/// `x` is `[batch, seq_len, hidden]`, and so is the result; `mask`, `[batch, 1, seq_len, seq_len]`, is
/// false where a position (row) must not look at another (column).
fn attention(path: &Path<'_>, options: &ModelOptions) -> Layer {
    let ModelOptions { hidden, attn_heads, dropout, .. } = *options;
    let layer = |path: Path<'_>| linear(path, hidden, hidden, LinearOptions::default());
    // Of queries, keys and values.
    let linear_layers = [0, 1, 2].map(|number| layer(path / "linear_layers" / number));
    let output_linear = layer(path / "output_linear");
    let d_k = hidden / attn_heads;
    Box::new(move |(x, mask), train| {
        let batch = x.size()[0];
        // [batch, heads, seq_len, d_k]
        let [query, key, value] = linear_layers
            .each_ref()
            .map(|layer| layer.forward(&x).view([batch, -1, attn_heads, d_k]).transpose(1, 2));
        let scores = query.matmul(&key.transpose(-2, -1)) / (d_k as f64).sqrt();
        let scores = scores.masked_fill(&mask.eq(0), MASKED);
        let weights = scores.softmax(-1, None::<Kind>).dropout(dropout, train);
        let seen = weights.matmul(&value).transpose(1, 2).contiguous().view([batch, -1, hidden]);
        output_linear.forward(&seen)
    })
}

/// codertimo's `PositionwiseFeedForward`: two layers, the first four times as wide as the vectors.
fn feed_forward(path: &Path<'_>, options: &ModelOptions) -> impl ModuleT + use<> {
    let (narrow, wide, dropout) = (options.hidden, 4 * options.hidden, options.dropout);
    seq_t()
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
