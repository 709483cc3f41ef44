//! Transformer layers in turn: `torch.nn.TransformerEncoder`.

use super::attention::masks::{Masks, generate_square_subsequent_mask};
use super::transformer::{
    EncoderMasks, TransformerEncoderLayer, TransformerEncoderLayerOptions,
    transformer_encoder_layer,
};
use std::borrow::Borrow;
use tch::{Tensor, nn::LayerNorm, nn::Module, nn::ModuleT, nn::Path, no_grad};
use tch_parallel_base::random::drawing_nothing;

/// See [`transformer_encoder`].
#[derive(Debug)]
pub struct TransformerEncoder {
    /// One after the other.
    pub layers: Vec<TransformerEncoderLayer>,
    /// What comes after the last; `None` at first.
    pub norm: Option<LayerNorm>,
}

/// `torch.nn.TransformerEncoder(nn.TransformerEncoderLayer(d_model, nhead), num_layers, enable_nested_tensor=False)`:
/// layers in turn. As in PyTorch, where they are copies of one, all have the same initial weights.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{
///     EncoderMasks, TransformerEncoderLayerOptions, generate_square_subsequent_mask,
///     transformer_encoder,
/// };
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = TransformerEncoderLayerOptions { batch_first: true, ..Default::default() };
/// let encoder = transformer_encoder(vs.root() / "encoder", 16, 4, 2, options);
/// let words = Tensor::ones([2, 10, 16], (Kind::Float, Device::Cpu));
/// let mask = generate_square_subsequent_mask(10, Device::Cpu);
/// let masks = EncoderMasks { src_mask: Some(&mask), ..Default::default() };
/// assert_eq!(encoder.forward(&words, masks, true).size(), [2, 10, 16]);
/// assert_eq!(vs.variables()["encoder.layers.1.linear2.bias"].size(), [16]);
/// ```
///
/// # Panics
/// Those of [`transformer_encoder_layer`], and if `num_layers` is not at least 1.
pub fn transformer_encoder<'a>(
    path: impl Borrow<Path<'a>>,
    d_model: i64,
    nhead: i64,
    num_layers: usize,
    options: TransformerEncoderLayerOptions,
) -> TransformerEncoder {
    assert!(num_layers >= 1, "num_layers is 0, but must be at least 1");
    let path = path.borrow() / "layers";
    let layer = |index| transformer_encoder_layer(&path / index, d_model, nhead, options);
    let mut layers = vec![layer(0)];
    let device = layers[0].linear1.ws.device();
    let copies = drawing_nothing(&[device], || (1..num_layers).map(layer).collect::<Vec<_>>());
    layers.extend(copies.unwrap_or_else(|error| panic!("{error}")));
    for copy in &layers[1..] {
        for (source, variable) in layers[0].variables().into_iter().zip(copy.variables()) {
            no_grad(|| variable.shallow_clone().copy_(source));
        }
    }
    TransformerEncoder { layers, norm: None }
}

impl TransformerEncoder {
    /// The output for `src`, with masks.
    ///
    /// # Panics
    /// Like tch's layers, if the input or the masks do not fit; if `is_causal` comes without a mask.
    pub fn forward(&self, src: &Tensor, masks: EncoderMasks<'_>, train: bool) -> Tensor {
        let EncoderMasks { src_mask, src_key_padding_mask, is_causal } = masks;
        let masks = Masks::new(src_mask, src_key_padding_mask, src.kind());
        let causal = || masks.attn.as_ref().is_some_and(is_causal_mask);
        let masks = EncoderMasks {
            src_mask: masks.attn.as_ref(),
            src_key_padding_mask: masks.key_padding.as_ref(),
            is_causal: Some(is_causal.unwrap_or_else(causal)),
        };
        let pass = |xs: Tensor, layer: &TransformerEncoderLayer| layer.forward(&xs, masks, train);
        let xs = self.layers.iter().fold(src.shallow_clone(), pass);
        match &self.norm {
            Some(norm) => norm.forward(&xs),
            None => xs,
        }
    }
}

/// The output without masks.
impl ModuleT for TransformerEncoder {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.forward(xs, EncoderMasks::default(), train)
    }
}

fn is_causal_mask(mask: &Tensor) -> bool {
    let size = mask.size();
    let [rows, columns] = size[..] else { return false };
    let causal = || generate_square_subsequent_mask(rows, mask.device()).to_kind(mask.kind());
    rows == columns && *mask == causal()
}
