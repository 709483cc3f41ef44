//! Initial values: `torch.nn.init`.

use tch::nn::Init;
use tch::nn::init::FanInOut;
use tch::{Tensor, no_grad};

/// `nn.init.kaiming_normal_(tensor, mode=mode, nonlinearity="relu")`: draws new values for a weight
/// from a normal distribution with standard deviation sqrt(2 / fan).
///
/// He et al., "Delving Deep into Rectifiers" (2015): `FanIn` preserves the variance of activations
/// from layer to layer, `FanOut` that of gradients. All handles of the tensor see the new values.
///
/// # Panics
/// For a tensor with fewer than two dimensions.
pub fn kaiming_normal_(tensor: &Tensor, mode: FanInOut) {
    let fan = mode.for_weight_dims(&tensor.size());
    let std = 2f64.sqrt() / (fan as f64).sqrt();
    let _ = no_grad(|| tensor.shallow_clone().normal_(0.0, std));
}

/// How `reset_parameters` of linear and convolution layers draws a weight:
/// `nn.init.kaiming_uniform_(weight, a=sqrt(5))`. Mathematically the bound is 1/sqrt(fan_in); the
/// steps are PyTorch's, to round the same way.
pub(super) fn default_weight(fan_in: i64) -> Init {
    let a = 5f64.sqrt();
    let gain = (2.0 / (1.0 + a * a)).sqrt();
    let std = gain / (fan_in as f64).sqrt();
    uniform(3f64.sqrt() * std)
}

/// How they draw a bias.
pub(super) fn default_bias(fan_in: i64) -> Init {
    uniform(1.0 / (fan_in as f64).sqrt())
}

fn uniform(bound: f64) -> Init {
    Init::Uniform { lo: -bound, up: bound }
}
