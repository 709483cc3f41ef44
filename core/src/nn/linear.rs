//! A fully connected layer: `torch.nn.Linear`.

use super::init::{default_bias, default_weight};
use std::borrow::Borrow;
use tch::nn::{Linear, Path};

/// PyTorch's keyword arguments of `nn.Linear`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearOptions {
    /// Whether something is added to the product; some last layers do without.
    pub bias: bool,
}

impl Default for LinearOptions {
    fn default() -> Self {
        LinearOptions { bias: true }
    }
}

/// `torch.nn.Linear(in_features, out_features)`: maps `[.., in_features]` to `[.., out_features]`.
///
/// Draws the weight, `[out_features, in_features]`, then the bias, from the global generator, as
/// `Linear.reset_parameters` does; tch's own layer draws them the other way round.
///
/// # Panics
/// As tch's layers do: if tensors of such shapes cannot be made; and in the forward pass for an input
/// that is no `[.., in_features]`.
pub fn linear<'a>(
    path: impl Borrow<Path<'a>>,
    in_features: i64,
    out_features: i64,
    options: LinearOptions,
) -> Linear {
    let path = path.borrow();
    let ws = path.var("weight", &[out_features, in_features], default_weight(in_features));
    let bs = options.bias.then(|| path.var("bias", &[out_features], default_bias(in_features)));
    Linear { ws, bs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn::VarStore};

    #[test]
    fn without_a_bias_there_is_none() {
        let vs = VarStore::new(Device::Cpu);
        let layer = linear(vs.root(), 3, 2, LinearOptions { bias: false });
        assert!(layer.bs.is_none());
        assert_eq!(vs.len(), 1);
    }
}
