//! A transformer's layer with PyTorch's initial values: `torch.nn.TransformerEncoderLayer`.

use super::attention::masks::Masks;
use super::attention::{
    AttentionOptions, InProjection, MultiheadAttention, MultiheadAttentionOptions,
    multihead_attention,
};
use super::{layers::LinearOptions, layers::linear, norms::LayerNormOptions, norms::layer_norm};
use std::{borrow::Borrow, iter::once};
use tch::{Tensor, nn::LayerNorm, nn::Linear, nn::Module, nn::ModuleT, nn::Path};
use tch_parallel_base::options;

/// The function between the two linear layers.
#[derive(Debug, Clone, Copy)]
pub enum Activation {
    /// `"relu"`
    Relu,
    /// `"gelu"`
    Gelu,
    /// Any other.
    Function(fn(&Tensor) -> Tensor),
}

impl Activation {
    fn apply(self, xs: &Tensor) -> Tensor {
        match self {
            Activation::Relu => xs.relu(),
            Activation::Gelu => xs.gelu("none"),
            Activation::Function(function) => function(xs),
        }
    }
}

options! {
    /// PyTorch's keyword arguments of `nn.TransformerEncoderLayer`, with its defaults.
    #[derive(Debug, Clone, Copy)]
    pub struct TransformerEncoderLayerOptions {
        /// The size between the two linear layers.
        pub dim_feedforward: i64 = 2048,
        /// In training, the share set to 0 of attention weights, between linear layers, and of what each half adds.
        pub dropout: f64 = 0.1,
        /// The function between the two linear layers.
        pub activation: Activation = Activation::Relu,
        /// Added to the variance in the layer norms.
        pub layer_norm_eps: f64 = 1e-5,
        /// Whether inputs and outputs are `[N, L, d_model]` instead of `[L, N, d_model]`.
        pub batch_first: bool = false,
        /// Whether the layer norms come before attention and linear layers instead of after.
        pub norm_first: bool = false,
        /// Whether linear layers and layer norms have biases.
        pub bias: bool = true,
    }
}

/// PyTorch's keyword arguments of the forward pass of a transformer's encoder, with its defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct EncoderMasks<'a> {
    /// Which element must not see which, `[L, L]` or `[N · nhead, L, L]`: `true`, or numbers added to the scores.
    pub src_mask: Option<&'a Tensor>,
    /// Which elements to ignore, `[N, L]`, in the same forms.
    pub src_key_padding_mask: Option<&'a Tensor>,
    /// Says that `src_mask` hides later elements. `None`: false for a layer; an encoder looks at the mask.
    pub is_causal: Option<bool>,
}

/// See [`transformer_encoder_layer`].
#[derive(Debug)]
pub struct TransformerEncoderLayer {
    /// The attention.
    pub self_attn: MultiheadAttention,
    /// The linear layer after it.
    pub linear1: Linear,
    /// The last linear layer.
    pub linear2: Linear,
    /// The attention's layer norm.
    pub norm1: LayerNorm,
    /// That of the linear layers.
    pub norm2: LayerNorm,
    options: TransformerEncoderLayerOptions,
}

/// `torch.nn.TransformerEncoderLayer(d_model, nhead)`: self-attention, then two linear layers, each half added to its
/// input. Maps `[L, N, d_model]` to the same shape. Vaswani et al., "Attention Is All You Need" (2017).
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::{ModuleT, VarStore}};
/// use tch_parallel::nn::{TransformerEncoderLayerOptions, transformer_encoder_layer};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = TransformerEncoderLayerOptions { batch_first: true, ..Default::default() };
/// let layer = transformer_encoder_layer(vs.root() / "layer", 16, 4, options);
/// let words = Tensor::ones([2, 10, 16], (Kind::Float, Device::Cpu));
/// assert_eq!(layer.forward_t(&words, true).size(), [2, 10, 16]);
/// assert_eq!(vs.variables()["layer.self_attn.in_proj_weight"].size(), [48, 16]);
/// ```
///
/// # Panics
/// If `nhead` is not at least 1 or does not divide `d_model`, and in the forward pass if the input does not fit.
pub fn transformer_encoder_layer<'a>(
    path: impl Borrow<Path<'a>>,
    d_model: i64,
    nhead: i64,
    options: TransformerEncoderLayerOptions,
) -> TransformerEncoderLayer {
    let path = path.borrow();
    let TransformerEncoderLayerOptions { dim_feedforward, dropout, batch_first, bias, .. } =
        options;
    let attention = MultiheadAttentionOptions { dropout, bias, batch_first, ..Default::default() };
    let biased = LinearOptions { bias };
    let norm = LayerNormOptions { eps: options.layer_norm_eps, bias, ..Default::default() };
    TransformerEncoderLayer {
        self_attn: multihead_attention(path / "self_attn", d_model, nhead, attention),
        linear1: linear(path / "linear1", d_model, dim_feedforward, biased),
        linear2: linear(path / "linear2", dim_feedforward, d_model, biased),
        norm1: layer_norm(path / "norm1", &[d_model], norm),
        norm2: layer_norm(path / "norm2", &[d_model], norm),
        options,
    }
}

impl TransformerEncoderLayer {
    /// The output for `src`, with masks.
    ///
    /// # Panics
    /// Like tch's layers, if the input or the masks do not fit; if `is_causal` comes without a mask.
    pub fn forward(&self, src: &Tensor, masks: EncoderMasks<'_>, train: bool) -> Tensor {
        let EncoderMasks { src_mask, src_key_padding_mask, is_causal } = masks;
        let masks = Masks::new(src_mask, src_key_padding_mask, src.kind());
        if let Some(output) = self.fast_path(src, &masks, train) {
            return output;
        }
        let attention = AttentionOptions {
            attn_mask: masks.attn.as_ref(),
            key_padding_mask: masks.key_padding.as_ref(),
            need_weights: false,
            is_causal: is_causal.unwrap_or(false),
            ..Default::default()
        };
        let dropout = |xs: Tensor| xs.dropout(self.options.dropout, train);
        let attend = |xs: &Tensor| dropout(self.self_attn.forward(xs, xs, xs, attention, train).0);
        let feed_forward = |xs: &Tensor| {
            let hidden = dropout(self.options.activation.apply(&self.linear1.forward(xs)));
            dropout(self.linear2.forward(&hidden))
        };
        if self.options.norm_first {
            let xs = src + attend(&self.norm1.forward(src));
            &xs + feed_forward(&self.norm2.forward(&xs))
        } else {
            let xs = self.norm1.forward(&(src + attend(src)));
            self.norm2.forward(&(&xs + feed_forward(&xs)))
        }
    }

    /// The output of PyTorch's kernel for evaluations without gradients, where PyTorch takes it.
    fn fast_path(&self, src: &Tensor, masks: &Masks, train: bool) -> Option<Tensor> {
        let use_gelu = match self.options.activation {
            Activation::Relu => false,
            Activation::Gelu => true,
            Activation::Function(_) => return None,
        };
        if src.dim() != 3 {
            return None;
        }
        let [weight, bias] = self.self_attn.fast_path(src, train, &self.variables())?;
        let out_proj = &self.self_attn.out_proj;
        let (mask, kind) = masks.merged(src, self.self_attn.num_heads);
        Some(Tensor::internal_transformer_encoder_layer_fwd(
            src,
            self.self_attn.embed_dim,
            self.self_attn.num_heads,
            weight,
            bias,
            &out_proj.ws,
            out_proj.bs.as_ref()?,
            use_gelu,
            self.options.norm_first,
            self.options.layer_norm_eps,
            self.norm1.ws.as_ref()?,
            self.norm1.bs.as_ref()?,
            self.norm2.ws.as_ref()?,
            self.norm2.bs.as_ref()?,
            &self.linear1.ws,
            self.linear1.bs.as_ref()?,
            &self.linear2.ws,
            self.linear2.bs.as_ref()?,
            mask,
            kind,
        ))
    }

    /// All variables, in the order of registration.
    pub(super) fn variables(&self) -> Vec<&Tensor> {
        let InProjection::Packed(weight) = &self.self_attn.in_proj else { return Vec::new() };
        let in_proj = [Some(weight), self.self_attn.in_proj_bias.as_ref()];
        let linears = [&self.self_attn.out_proj, &self.linear1, &self.linear2];
        let linears = linears.map(|linear| [Some(&linear.ws), linear.bs.as_ref()]);
        let norms = [&self.norm1, &self.norm2].map(|norm| [norm.ws.as_ref(), norm.bs.as_ref()]);
        once(in_proj).chain(linears).chain(norms).flatten().flatten().collect()
    }
}

/// The output without masks.
impl ModuleT for TransformerEncoderLayer {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.forward(xs, EncoderMasks::default(), train)
    }
}
