//! Initial values: `torch.nn.init`. The same seed draws PyTorch's numbers.
//!
//! Each function writes to its tensor in place, without a graph, so that all handles see the new
//! values. The numbers come from the global generator of the tensor's device.
//!
//! `xavier_*`, `kaiming_*` and `orthogonal_` panic for a tensor with fewer than two dimensions.

use std::f64::consts::SQRT_2;
use tch::nn::Init;
pub use tch::nn::init::FanInOut;
use tch::{Device, Kind, Tensor, no_grad};

/// The function after a layer, for which [`calculate_gain`] knows a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Nonlinearity {
    /// None, or one for which the weights need no factor. `"linear"`, `"conv2d"` …
    Linear,
    /// `"sigmoid"`
    Sigmoid,
    /// `"tanh"`
    Tanh,
    /// `"relu"`
    Relu,
    /// `"leaky_relu"` with its slope below 0: `a`, by default 0.01 in `calculate_gain`, 0 in `kaiming_uniform_`.
    LeakyRelu(f64),
    /// `"selu"`
    Selu,
}

/// `nn.init.calculate_gain(nonlinearity)`: the recommended gain for weights before this function.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => SQRT_2,
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// `nn.init.uniform_(tensor, a, b)`: draws from a uniform distribution over [a, b).
pub fn uniform_(tensor: &Tensor, a: f64, b: f64) {
    let _ = no_grad(|| tensor.shallow_clone().uniform_(a, b));
}

/// `nn.init.normal_(tensor, mean, std)`: draws from a normal distribution.
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) {
    let _ = no_grad(|| tensor.shallow_clone().normal_(mean, std));
}

/// `nn.init.trunc_normal_(tensor, mean, std, a, b)`: draws from a normal distribution truncated to [a, b]; PyTorch's
/// defaults are 0, 1, -2 and 2. The draws are those of PyTorch 2.13, whichever release is linked.
pub fn trunc_normal_(tensor: &Tensor, mean: f64, std: f64, a: f64, b: f64) {
    let below = |x: f64| {
        let erf = Tensor::from((x - mean) / std / SQRT_2).erf().double_value(&[]);
        (1.0 + erf) / 2.0
    };
    no_grad(|| match below(b) - below(a) > 0.3 {
        true => draw_until_within(tensor, mean, std, a, b),
        false => draw_until_accepted(tensor, mean, std, a, b),
    });
}

/// Draws again what lies outside.
fn draw_until_within(tensor: &Tensor, mean: f64, std: f64, a: f64, b: f64) {
    let rounded = |bound: f64| Tensor::from(bound).to_kind(tensor.kind()).double_value(&[]);
    let (lowest, highest) = (rounded(a), rounded(b));
    let mut drawn = tensor.shallow_clone().normal_(mean, std);
    loop {
        let outside = drawn.lt(lowest).logical_or(&drawn.gt(highest));
        if !any(&outside) {
            break;
        }
        drawn = drawn.empty_like().normal_(mean, std).where_self(&outside, &drawn);
    }
    tensor.shallow_clone().copy_(&drawn);
}

/// Draws uniformly, and again what a second draw refuses: few normal numbers lie within.
fn draw_until_accepted(tensor: &Tensor, mean: f64, std: f64, a: f64, b: f64) {
    let mode = a.max(mean.min(b));
    let log_peak = -0.5 * ((mode - mean) / std).powi(2);
    let refused = |candidates: &Tensor| {
        let log_density = ((candidates - mean) / std).pow_(2) * -0.5 - log_peak;
        candidates.empty_like().uniform_(0.0, 1.0).log_().gt_tensor(&log_density)
    };
    let mut drawn = tensor.shallow_clone().uniform_(a, b).copy();
    let mut pending = refused(&drawn);
    while any(&pending) {
        let candidates = drawn.empty_like().uniform_(a, b);
        drawn = candidates.where_self(&pending, &drawn);
        pending = refused(&candidates).where_self(&pending, &pending);
    }
    tensor.shallow_clone().copy_(&drawn);
}

fn any(mask: &Tensor) -> bool {
    mask.any().int64_value(&[]) != 0
}

/// `nn.init.constant_(tensor, val)`: fills with one value; `ones_` and `zeros_` are this too.
pub fn constant_(tensor: &Tensor, val: f64) {
    let _ = no_grad(|| tensor.shallow_clone().fill_(val));
}

/// `nn.init.eye_(tensor)`: the identity, for a layer of two dimensions that returns its input.
///
/// # Panics
/// For a tensor that does not have two dimensions.
pub fn eye_(tensor: &Tensor) {
    let size = tensor.size();
    assert!(
        size.len() == 2,
        "the tensor of eye_ is of shape {size:?}, but must be of two dimensions"
    );
    no_grad(|| {
        let _ = tensor.shallow_clone().zero_();
        let _ = tensor.diagonal(0, 0, 1).fill_(1.0);
    });
}

/// `nn.init.dirac_(tensor, groups)`: a convolution that returns its input, as far as there are output channels for it.
///
/// # Panics
/// For a tensor that is not a kernel of 3, 4 or 5 dimensions, and if `groups` does not divide its output channels.
pub fn dirac_(tensor: &Tensor, groups: i64) {
    let size = tensor.size();
    assert!(
        (3..=5).contains(&size.len()),
        "the tensor of dirac_ is of shape {size:?}, but must be a kernel of 3 to 5 dimensions"
    );
    let dim = size[0];
    assert!(dim % groups == 0, "dim 0 is {dim}, but must be divisible by groups, {groups}");
    let outputs = dim / groups;
    no_grad(|| {
        let _ = tensor.shallow_clone().zero_();
        for (group, channel) in (0..groups)
            .flat_map(|group| (0..outputs.min(size[1])).map(move |channel| (group, channel)))
        {
            let kernel = tensor.get(group * outputs + channel).get(channel);
            let _ =
                size[2..].iter().fold(kernel, |kernel, length| kernel.get(length / 2)).fill_(1.0);
        }
    });
}

/// `nn.init.xavier_uniform_(tensor, gain)`: uniform, with the variance gain² · 2 / (fan_in + fan_out). Glorot and
/// Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).
pub fn xavier_uniform_(tensor: &Tensor, gain: f64) {
    let bound = 3f64.sqrt() * xavier_std(tensor, gain);
    uniform_(tensor, -bound, bound);
}

/// `nn.init.xavier_normal_(tensor, gain)`: normal, with the variance of [`xavier_uniform_`].
pub fn xavier_normal_(tensor: &Tensor, gain: f64) {
    normal_(tensor, 0.0, xavier_std(tensor, gain));
}

fn xavier_std(tensor: &Tensor, gain: f64) -> f64 {
    let fans = fan(tensor, FanInOut::FanIn) + fan(tensor, FanInOut::FanOut);
    gain * (2.0 / fans as f64).sqrt()
}

/// `nn.init.kaiming_uniform_(tensor, a, mode, nonlinearity)`: uniform, with the standard deviation
/// of [`kaiming_normal_`].
pub fn kaiming_uniform_(tensor: &Tensor, mode: FanInOut, nonlinearity: Nonlinearity) {
    let bound = finite(3f64.sqrt() * kaiming_std(fan(tensor, mode), nonlinearity));
    uniform_(tensor, -bound, bound);
}

/// `nn.init.kaiming_normal_(tensor, a, mode, nonlinearity)`: normal, with standard deviation gain /
/// sqrt(fan). PyTorch's defaults are `FanIn` and `LeakyRelu(0.0)`.
///
/// He et al., "Delving Deep into Rectifiers" (2015): `FanIn` keeps the activations' variance, `FanOut` the gradients'.
pub fn kaiming_normal_(tensor: &Tensor, mode: FanInOut, nonlinearity: Nonlinearity) {
    normal_(tensor, 0.0, kaiming_std(fan(tensor, mode), nonlinearity));
}

fn kaiming_std(fan: i64, nonlinearity: Nonlinearity) -> f64 {
    calculate_gain(nonlinearity) / (fan as f64).sqrt()
}

fn fan(tensor: &Tensor, mode: FanInOut) -> i64 {
    mode.for_weight_dims(&matrix_size(tensor))
}

fn matrix_size(tensor: &Tensor) -> Vec<i64> {
    let size = tensor.size();
    assert!(
        size.len() >= 2,
        "the tensor is of shape {size:?}, but must be of at least two dimensions"
    );
    size
}

/// `nn.init.orthogonal_(tensor, gain)`: an orthogonal matrix, times `gain`. With more dimensions, the rows are the
/// first. Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks" (2013).
pub fn orthogonal_(tensor: &Tensor, gain: f64) {
    let size = matrix_size(tensor);
    if tensor.numel() == 0 {
        return;
    }
    no_grad(|| {
        let (rows, columns) = (size[0], size[1..].iter().product::<i64>());
        let mut drawn = Tensor::empty([rows, columns], (tensor.kind(), tensor.device()));
        let drawn = drawn.normal_(0.0, 1.0);
        let wide = rows < columns;
        let (q, r) = Tensor::linalg_qr(&if wide { drawn.tr() } else { drawn }, "reduced");
        let q = q * r.diag(0).sign();
        let q = if wide { q.tr() } else { q };
        let mut target = tensor.shallow_clone();
        target.copy_(&q.reshape(&size[..]));
        let _ = target.g_mul_scalar_(gain);
    });
}

/// `nn.init.sparse_(tensor, sparsity, std)`: a matrix of normal numbers, of which a fraction of
/// every column is 0. Martens, "Deep learning via Hessian-free optimization" (2010).
///
/// # Panics
/// For a tensor that does not have two dimensions.
pub fn sparse_(tensor: &Tensor, sparsity: f64, std: f64) {
    let size = tensor.size();
    let [rows, columns] = size[..] else {
        panic!("the tensor of sparse_ is of shape {size:?}, but must be of two dimensions");
    };
    let zeros = (sparsity * rows as f64).ceil() as i64;
    normal_(tensor, 0.0, std);
    no_grad(|| {
        for column in 0..columns {
            let chosen = Tensor::randperm(rows, (Kind::Int64, Device::Cpu)).narrow(0, 0, zeros);
            let _ =
                tensor.select(1, column).index_fill_(0, &chosen.to_device(tensor.device()), 0.0);
        }
    });
}

/// How `reset_parameters` of linear layers and convolutions draws a weight:
/// `nn.init.kaiming_uniform_(weight, a=sqrt(5))`. The bound is 1/sqrt(fan_in), in PyTorch's steps, to round alike.
pub(super) fn default_weight(fan_in: i64) -> Init {
    uniform(3f64.sqrt() * kaiming_std(fan_in, Nonlinearity::LeakyRelu(5f64.sqrt())))
}

/// How they draw a bias, and how recurrent layers draw all their parameters.
pub(super) fn default_bias(fan_in: i64) -> Init {
    uniform(1.0 / (fan_in as f64).sqrt())
}

fn uniform(bound: f64) -> Init {
    let bound = finite(bound);
    Init::Uniform { lo: -bound, up: bound }
}

/// 0 for a layer without inputs, whose bound is infinite.
fn finite(bound: f64) -> f64 {
    if bound == f64::INFINITY { 0.0 } else { bound }
}
