//! Convolutions with PyTorch's initial values: `torch.nn.Conv1d`, `Conv2d` and `Conv3d`.

use super::init::{default_bias, default_weight};
use std::borrow::Borrow;
use tch::{Tensor, nn::Module, nn::Path};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `nn.Conv1d`, 2d and 3d, with its defaults; each applies to all dimensions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ConvOptions {
        /// How many pixels the kernel moves between outputs: 2 halves the image.
        pub stride: i64 = 1,
        /// How many zeros are added on every side: half the kernel size preserves the image's size.
        pub padding: i64 = 0,
        /// The distance between the kernel's elements.
        pub dilation: i64 = 1,
        /// The number of groups into which the channels are split, each with its own kernels.
        pub groups: i64 = 1,
        /// Whether to add a bias to each output channel; before a batch norm, which subtracts the mean, it is useless.
        pub bias: bool = true,
    }
}

/// A convolution over N dimensions; see [`conv2d`].
#[derive(Debug)]
pub struct Conv<const N: usize> {
    /// `[out_channels, in_channels / groups, kernel_size, …]`
    pub ws: Tensor,
    /// `[out_channels]`
    pub bs: Option<Tensor>,
    options: ConvOptions,
}

/// See [`conv1d`].
pub type Conv1d = Conv<1>;
/// See [`conv2d`].
pub type Conv2d = Conv<2>;
/// See [`conv3d`].
pub type Conv3d = Conv<3>;

/// Declares a layer's functions, one for each number of dimensions.
macro_rules! layer_functions {
    ($($(#[$attribute:meta])* pub fn $function:ident($Options:ident) -> $Layer:ident;)+) => {$(
        $(#[$attribute])*
        pub fn $function<'a>(
            path: impl Borrow<Path<'a>>,
            in_channels: i64,
            out_channels: i64,
            kernel_size: i64,
            options: $Options,
        ) -> $Layer {
            $Layer::new(path.borrow(), [in_channels, out_channels], kernel_size, options)
        }
    )+};
}
pub(super) use layer_functions;

layer_functions! {
    /// `torch.nn.Conv1d(in_channels, out_channels, kernel_size)`: [`conv2d`] for sequences `[N, in_channels, L]`.
    pub fn conv1d(ConvOptions) -> Conv1d;

    /// `torch.nn.Conv2d(in_channels, out_channels, kernel_size)`: maps images
    /// `[N, in_channels, H, W]` to `[N, out_channels, H', W']`.
    ///
    /// Registers and draws the weight, then the bias, like `Conv2d.reset_parameters`; tch's own layer draws otherwise.
    ///
    /// ```
    /// use tch::{Device, Kind, Tensor, nn::VarStore};
    /// use tch_parallel::nn::{ConvOptions, conv2d};
    ///
    /// let vs = VarStore::new(Device::Cpu);
    /// let options = ConvOptions { stride: 2, padding: 1, ..Default::default() };
    /// let layer = conv2d(vs.root() / "conv1", 3, 64, 3, options);
    /// let images = Tensor::ones([8, 3, 32, 32], (Kind::Float, Device::Cpu));
    /// assert_eq!(images.apply(&layer).size(), [8, 64, 16, 16]);
    /// ```
    ///
    /// # Panics
    /// If `groups` is not at least 1 or does not divide both `in_channels` and `out_channels`; if tensors of these
    /// shapes cannot be created; and in the forward pass, like tch's layers, if the input does not fit.
    pub fn conv2d(ConvOptions) -> Conv2d;

    /// `torch.nn.Conv3d(in_channels, out_channels, kernel_size)`: [`conv2d`] for volumes `[N, in_channels, D, H, W]`.
    pub fn conv3d(ConvOptions) -> Conv3d;
}

impl<const N: usize> Conv<N> {
    fn new(path: &Path<'_>, channels: [i64; 2], kernel_size: i64, options: ConvOptions) -> Self {
        let ConvOptions { groups, bias, .. } = options;
        let (ws, bs) = variables(path, channels, [kernel_size; N], groups, bias, false);
        Conv { ws, bs, options }
    }
}

/// The weight and the bias of a layer from and to so many channels.
pub(super) fn variables<const N: usize>(
    path: &Path<'_>,
    channels: [i64; 2],
    kernel_size: [i64; N],
    groups: i64,
    bias: bool,
    transposed: bool,
) -> (Tensor, Option<Tensor>) {
    assert!(groups >= 1, "groups is {groups}, but must be at least 1");
    for (name, channels) in ["in_channels", "out_channels"].into_iter().zip(channels) {
        assert!(
            channels % groups == 0,
            "{name} is {channels}, but must be divisible by groups, {groups}"
        );
    }
    let [inputs, outputs] = channels;
    let [first, second] = if transposed { [inputs, outputs] } else { [outputs, inputs] };
    let kernel = [&[first, second / groups][..], &kernel_size].concat();
    // PyTorch takes the second dimension for the inputs, even of a transposed convolution.
    let fan_in = kernel[1..].iter().product();
    let ws = path.var("weight", &kernel, default_weight(fan_in));
    (ws, bias.then(|| path.var("bias", &[outputs], default_bias(fan_in))))
}

impl<const N: usize> Module for Conv<N> {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let ConvOptions { stride, padding, dilation, groups, bias: _ } = self.options;
        let (stride, padding, dilation) = ([stride; N], [padding; N], [dilation; N]);
        let bs = self.bs.as_ref();
        // Only these are ever built.
        match N {
            1 => xs.conv1d(&self.ws, bs, stride, padding, dilation, groups),
            2 => xs.conv2d(&self.ws, bs, stride, padding, dilation, groups),
            _ => xs.conv3d(&self.ws, bs, stride, padding, dilation, groups),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, nn::VarStore};

    fn output(options: ConvOptions) -> Vec<i64> {
        let vs = VarStore::new(Device::Cpu);
        let images = Tensor::zeros([7, 4, 9, 9], (Kind::Float, Device::Cpu));
        conv2d(vs.root(), 4, 6, 3, options).forward(&images).size()
    }

    #[test]
    fn images_become_smaller_as_the_options_say() {
        let options = ConvOptions::default();
        assert_eq!(output(options), [7, 6, 7, 7]);
        assert_eq!(output(ConvOptions { padding: 1, ..options }), [7, 6, 9, 9]);
        assert_eq!(output(ConvOptions { stride: 2, ..options }), [7, 6, 4, 4]);
        assert_eq!(output(ConvOptions { dilation: 2, ..options }), [7, 6, 5, 5]);
    }

    #[test]
    #[should_panic = "groups is 0, but must be at least 1"]
    fn no_groups_at_all_are_refused() {
        output(ConvOptions { groups: 0, ..Default::default() });
    }

    #[test]
    #[should_panic = "in_channels is 4, but must be divisible by groups, 3"]
    fn channels_that_do_not_go_into_the_groups_are_refused() {
        output(ConvOptions { groups: 3, ..Default::default() });
    }
}
