//! Attention with PyTorch's initial values: `torch.nn.MultiheadAttention`.

use super::init::{constant_, xavier_normal_, xavier_uniform_};
use super::layers::{LinearOptions, linear};
use std::borrow::Borrow;
use tch::{Tensor, nn::Init, nn::Linear, nn::Path};
use tch_parallel_base::options;

mod forward;
pub(super) mod masks;

options! {
    /// PyTorch's keyword arguments of `nn.MultiheadAttention`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct MultiheadAttentionOptions {
        /// In training, the share of the attention's weights that is set to 0.
        pub dropout: f64 = 0.0,
        /// Whether the projections have biases.
        pub bias: bool = true,
        /// Whether to add a trainable key and value to every sequence.
        pub add_bias_kv: bool = false,
        /// Whether to add a key and a value of zeros to every sequence.
        pub add_zero_attn: bool = false,
        /// The size of a key; `None` for `embed_dim`.
        pub kdim: Option<i64> = None,
        /// The size of a value; `None` for `embed_dim`.
        pub vdim: Option<i64> = None,
        /// Whether inputs and outputs are `[N, L, E]` instead of `[L, N, E]`.
        pub batch_first: bool = false,
    }
}

options! {
    /// PyTorch's keyword arguments of the forward pass of `nn.MultiheadAttention`, with its defaults.
    #[derive(Debug, Clone, Copy)]
    pub struct AttentionOptions<'a> {
        /// Which keys to ignore, `[N, S]`: `true` for those, or numbers to be added to the scores.
        pub key_padding_mask: Option<&'a Tensor> = None,
        /// Whether to return the weights too. Without them the pass is faster, and rounds differently.
        pub need_weights: bool = true,
        /// Which query must not see which key, `[L, S]` or `[N · num_heads, L, S]`, in the same forms.
        pub attn_mask: Option<&'a Tensor> = None,
        /// Whether the weights returned are the mean over all heads.
        pub average_attn_weights: bool = true,
        /// Says that `attn_mask`, still required, hides later keys; without weights or padding it is then not read.
        pub is_causal: bool = false,
    }
}

/// See [`multihead_attention`].
#[derive(Debug)]
pub struct MultiheadAttention {
    pub(super) in_proj: InProjection,
    pub(super) in_proj_bias: Option<Tensor>,
    bias_kv: Option<[Tensor; 2]>,
    /// The projection of all heads' outputs together.
    pub out_proj: Linear,
    pub(super) embed_dim: i64,
    pub(super) num_heads: i64,
    pub(super) options: MultiheadAttentionOptions,
}

/// The weights of queries, keys and values.
#[derive(Debug)]
pub(super) enum InProjection {
    Packed(Tensor),
    Separate([Tensor; 3]),
}

/// `torch.nn.MultiheadAttention(embed_dim, num_heads)`: every query becomes a mean of all values, weighted by how well
/// their keys fit the query, once for each head. Vaswani et al., "Attention Is All You Need" (2017).
///
/// Registers `in_proj_weight` (or `q_proj_weight`, `k_proj_weight` and `v_proj_weight`),
/// `in_proj_bias`, `bias_k`, `bias_v` and `out_proj`, and draws them in PyTorch's order.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{AttentionOptions, MultiheadAttentionOptions, multihead_attention};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = MultiheadAttentionOptions { batch_first: true, ..Default::default() };
/// let layer = multihead_attention(vs.root() / "attn", 16, 4, options);
/// let words = Tensor::ones([2, 10, 16], (Kind::Float, Device::Cpu));
/// let (outputs, weights) = layer.forward(&words, &words, &words, AttentionOptions::default(), true);
/// assert_eq!(outputs.size(), [2, 10, 16]);
/// assert_eq!(weights.map(|weights| weights.size()), Some(vec![2, 10, 10]));
/// ```
///
/// # Panics
/// If `num_heads` is not at least 1 or does not divide `embed_dim`, and in the forward pass if the inputs do not fit.
pub fn multihead_attention<'a>(
    path: impl Borrow<Path<'a>>,
    embed_dim: i64,
    num_heads: i64,
    options: MultiheadAttentionOptions,
) -> MultiheadAttention {
    let path = path.borrow();
    assert!(
        embed_dim >= 1 && num_heads >= 1 && embed_dim % num_heads == 0,
        "embed_dim is {embed_dim}, but must be divisible by num_heads, {num_heads}"
    );
    let zeros = |name: &str, shape: &[i64]| path.var(name, shape, Init::Const(0.0));
    let (kdim, vdim) = (options.kdim.unwrap_or(embed_dim), options.vdim.unwrap_or(embed_dim));
    let in_proj = if (kdim, vdim) == (embed_dim, embed_dim) {
        InProjection::Packed(zeros("in_proj_weight", &[3 * embed_dim, embed_dim]))
    } else {
        let all = [("q_proj_weight", embed_dim), ("k_proj_weight", kdim), ("v_proj_weight", vdim)];
        InProjection::Separate(all.map(|(name, inputs)| zeros(name, &[embed_dim, inputs])))
    };
    let in_proj_bias = options.bias.then(|| zeros("in_proj_bias", &[3 * embed_dim]));
    let bias_kv = || ["bias_k", "bias_v"].map(|name| zeros(name, &[1, 1, embed_dim]));
    let bias_kv = options.add_bias_kv.then(bias_kv);
    let bias = LinearOptions { bias: options.bias };
    let out_proj = linear(path / "out_proj", embed_dim, embed_dim, bias);
    // Drawn after the weights of `out_proj`, which come last in the store.
    match &in_proj {
        InProjection::Packed(weight) => xavier_uniform_(weight, 1.0),
        InProjection::Separate(weights) => {
            weights.iter().for_each(|weight| xavier_uniform_(weight, 1.0));
        }
    }
    if let Some(bias) = &out_proj.bs {
        constant_(bias, 0.0);
    }
    bias_kv.iter().flatten().for_each(|bias| xavier_normal_(bias, 1.0));
    MultiheadAttention { in_proj, in_proj_bias, bias_kv, out_proj, embed_dim, num_heads, options }
}
