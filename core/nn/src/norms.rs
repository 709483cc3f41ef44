//! `torch.nn.LayerNorm` and `GroupNorm`, with PyTorch's keyword arguments. The layers are tch's.

use std::borrow::Borrow;
use tch::nn::{self, GroupNorm, GroupNormConfig, Init, LayerNorm, LayerNormConfig, Path};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `nn.LayerNorm`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct LayerNormOptions {
        /// Added to the variance, so that a constant row causes no division by zero.
        pub eps: f64 = 1e-5,
        /// Whether each element is then scaled, and shifted if `bias` says so, by trainable numbers.
        pub elementwise_affine: bool = true,
        /// Whether it is shifted.
        pub bias: bool = true,
    }
}

/// `torch.nn.LayerNorm(normalized_shape)`: brings what the last dimensions hold, which must be of this shape, to mean 0
/// and variance 1, for each sample on its own. Ba et al., "Layer Normalization" (2016).
///
/// # Panics
/// Like tch's layers, in the forward pass, if the input does not fit.
pub fn layer_norm<'a>(
    path: impl Borrow<Path<'a>>,
    normalized_shape: &[i64],
    options: LayerNormOptions,
) -> LayerNorm {
    let path = path.borrow();
    let config =
        LayerNormConfig { eps: options.eps, elementwise_affine: false, ..Default::default() };
    let mut layer = nn::layer_norm(path, normalized_shape.to_vec(), config);
    if options.elementwise_affine {
        layer.ws = Some(path.var("weight", normalized_shape, Init::Const(1.0)));
        layer.bs = options.bias.then(|| path.var("bias", normalized_shape, Init::Const(0.0)));
    }
    layer
}

options! {
    /// PyTorch's keyword arguments of `nn.GroupNorm`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct GroupNormOptions {
        /// Added to the variance, so that a constant group causes no division by zero.
        pub eps: f64 = 1e-5,
        /// Whether each channel is then scaled and shifted by a trainable weight and bias.
        pub affine: bool = true,
    }
}

/// `torch.nn.GroupNorm(num_groups, num_channels)`: brings every group of channels of `[N, num_channels, …]` to mean 0
/// and variance 1, for each sample on its own. Wu and He, "Group Normalization" (2018).
///
/// # Panics
/// If `num_groups` does not divide `num_channels`, and in the forward pass if the input does not fit.
pub fn group_norm<'a>(
    path: impl Borrow<Path<'a>>,
    num_groups: i64,
    num_channels: i64,
    options: GroupNormOptions,
) -> GroupNorm {
    assert!(
        num_groups >= 1 && num_channels % num_groups == 0,
        "num_channels is {num_channels}, but must be divisible by num_groups, {num_groups}"
    );
    let GroupNormOptions { eps, affine } = options;
    let config = GroupNormConfig { eps, affine, ..Default::default() };
    nn::group_norm(path, num_groups, num_channels, config)
}
