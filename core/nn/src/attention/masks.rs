//! Which keys a query must not see.

use tch::{Device, Kind, Tensor};

/// Masks as numbers that are added to the scores.
pub(crate) struct Masks {
    pub(crate) attn: Option<Tensor>,
    pub(crate) key_padding: Option<Tensor>,
}

impl Masks {
    pub(crate) fn new(attn: Option<&Tensor>, key_padding: Option<&Tensor>, kind: Kind) -> Self {
        // Minus infinity where a mask is true, so that a softmax gives 0.
        let canonical = |mask: &Tensor| match mask.kind() {
            Kind::Bool => Tensor::zeros(mask.size(), (kind, mask.device()))
                .masked_fill_(mask, f64::NEG_INFINITY),
            found => {
                let expected = "of Bool, or of floats to add to the scores";
                assert!(mask.is_floating_point(), "a mask is of {found:?}, but must be {expected}");
                mask.shallow_clone()
            }
        };
        Masks { attn: attn.map(canonical), key_padding: key_padding.map(canonical) }
    }

    /// `MultiheadAttention.merge_masks`: both in one, and its kind, 1 for padding alone, else 2.
    pub(crate) fn merged(&self, query: &Tensor, heads: i64) -> (Option<Tensor>, Option<i64>) {
        let (batch, length) = (query.size()[0], query.size()[1]);
        let Some(attn) = &self.attn else {
            let padding = self.key_padding.as_ref().map(Tensor::shallow_clone);
            let kind = padding.is_some().then_some(1);
            return (padding, kind);
        };
        let merged = match attn.dim() {
            3 => attn.view([batch, -1, length, length]),
            _ => attn.view([1, 1, length, length]).expand([batch, heads, -1, -1], false),
        };
        let Some(padding) = &self.key_padding else { return (Some(merged), Some(2)) };
        let padding = padding.view([batch, 1, 1, length]).expand([-1, heads, -1, -1], false);
        (Some(merged + padding), Some(2))
    }
}

/// `nn.Transformer.generate_square_subsequent_mask(size)`: lets every element of a sequence see only
/// those up to its own place. `[size, size]`, with minus infinity above the diagonal.
pub fn generate_square_subsequent_mask(size: i64, device: Device) -> Tensor {
    Tensor::full([size, size], f64::NEG_INFINITY, (Kind::Float, device)).triu(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a mask is of Int64, but must be of Bool")]
    fn an_integer_mask_is_refused() {
        Masks::new(None, Some(&Tensor::from_slice(&[0i64, 1])), Kind::Float);
    }
}
