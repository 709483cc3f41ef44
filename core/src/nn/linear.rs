//! A fully connected layer: `torch.nn.Linear`.

use std::borrow::Borrow;
use tch::nn::{Init, Linear, Path};

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
pub fn linear<'a>(
    path: impl Borrow<Path<'a>>,
    in_features: i64,
    out_features: i64,
    options: LinearOptions,
) -> Linear {
    let path = path.borrow();
    let ws = path.var("weight", &[out_features, in_features], uniform(kaiming_bound(in_features)));
    let bs = options
        .bias
        .then(|| path.var("bias", &[out_features], uniform(1.0 / (in_features as f64).sqrt())));
    Linear { ws, bs }
}

/// `nn.init.kaiming_uniform_(weight, a=sqrt(5))`. It is 1/sqrt(fan_in) on paper; the steps are
/// PyTorch's, so that the rounding is.
fn kaiming_bound(fan_in: i64) -> f64 {
    let a = 5f64.sqrt();
    let gain = (2.0 / (1.0 + a * a)).sqrt();
    let std = gain / (fan_in as f64).sqrt();
    3f64.sqrt() * std
}

fn uniform(bound: f64) -> Init {
    Init::Uniform { lo: -bound, up: bound }
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
